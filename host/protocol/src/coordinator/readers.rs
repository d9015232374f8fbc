//! Which task of a source reads which partition: never two the same, or rows would come twice.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::ids::SourceId;

/// Partitions that moved in this run, and the task that moved them. Of a name only a digest is kept, since there may be
/// very many; that two names have the same one is out of the question.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Readers {
    tasks: BTreeMap<SourceId, BTreeMap<[u8; 16], u32>>,
}

impl Readers {
    /// Notes what a task has moved; `Err` is the first partition that another task has moved before.
    pub(super) fn note<'a>(
        &mut self,
        source: &SourceId,
        task: u32,
        partitions: impl Iterator<Item = &'a String>,
    ) -> Result<(), &'a str> {
        let readers = self.tasks.entry(source.clone()).or_default();
        for partition in partitions {
            if *readers.entry(digest(partition)).or_insert(task) != task {
                return Err(partition);
            }
        }
        Ok(())
    }
}

fn digest(partition: &str) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&Sha256::digest(partition)[..16]);
    digest
}
