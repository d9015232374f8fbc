//! Files of the checkpoint that are not there any more, and whether a new one is one of them under another name.

use std::collections::BTreeMap;
use std::fs::File;

use super::partition::{Partition, identify};
use super::position::{Position, read_tail};
use crate::source::SourceError;
use crate::source::input::{Compression, Input};
use crate::source::window::{Window, digest};

/// Positions by the length and the digest of the first bytes that they know.
#[derive(Default)]
pub(super) struct Absent {
    by_head: BTreeMap<u64, BTreeMap<String, Vec<(String, Position)>>>,
}

impl Absent {
    /// Adds a file that is gone. Ones without any content tell nothing: all of them look the same.
    pub(super) fn add(&mut self, name: &str, position: Position) {
        if position.offset > 0 {
            let heads = self.by_head.entry(position.head_len).or_default();
            heads.entry(position.head.clone()).or_default().push((name.to_owned(), position));
        }
    }

    /// Refuses a new file that begins with all that was read of a file that is gone: its rows would be read again.
    ///
    /// # Errors
    /// It is such a file, or it cannot be read.
    pub(super) fn refuse(&self, new: &Partition, compression: Compression) -> Result<(), SourceError> {
        if self.by_head.is_empty() {
            return Ok(());
        }
        let (file, identity, compression) = identify(&new.name, &new.path, compression)?;
        for (head_len, heads) in &self.by_head {
            // Ascending, so the others are longer still.
            let Some(head) = usize::try_from(*head_len).ok().and_then(|length| identity.head.get(..length)) else {
                break;
            };
            for (old, position) in heads.get(&digest(head)).into_iter().flatten() {
                if identity.size >= position.size && begins_with(new, &file, compression, position)? {
                    return Err(SourceError::Renamed {
                        partition: old.clone(),
                        now: new.name.to_string(),
                        finished: position.done,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Whether what was read up to `position` is in this file too. Compressed ones are read up to there, which only happens
/// to files with the same first bytes.
fn begins_with(
    new: &Partition,
    file: &File,
    compression: Compression,
    position: &Position,
) -> Result<bool, SourceError> {
    if compression == Compression::None {
        let tail = read_tail(file, position.offset).map_err(|error| new.io(error))?;
        return Ok(position.checksum.is_none() && digest(&tail) == position.tail);
    }
    let again = File::open(&new.path).and_then(|file| Input::new(file, compression)).map_err(|error| new.io(error))?;
    let mut window = Window::new(again);
    loop {
        match window.skip_towards(position.offset) {
            Ok(true) => return Ok(position.is_at(&window)),
            Ok(false) => {}
            Err(error) => return Err(super::partition::explain(new, compression, window.lines(), error.into())),
        }
    }
}
