//! Looking at a log that another process may own and be writing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::Slot;
use tidegate_protocol::record::{Record, StateChunk};

use super::chunks;
use super::scan::{Scan, scan};
use crate::disk::{Disk, RealDisk};
use crate::memory::not_written;
use crate::{Log, StoreError, Tail};

/// How often to read again when what was read does not fit together.
const TRIES: usize = 8;

/// A log in a local directory, for inspection: takes no lock, changes nothing. Every read sees the log as it is then;
/// a record that is being written at that moment is not seen.
pub struct ReadOnlyLog {
    disk: Box<dyn Disk>,
    dir: PathBuf,
    tail: Tail,
}

impl std::fmt::Debug for ReadOnlyLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadOnlyLog").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl ReadOnlyLog {
    pub(super) fn open(dir: &Path) -> Result<ReadOnlyLog, StoreError> {
        let disk = RealDisk::open(dir).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => StoreError::NoLog { dir: dir.to_owned() },
            _ => StoreError::io(dir, "open", &error),
        })?;
        Self::open_on(Box::new(disk), dir)
    }

    /// Opens the log on any disk. `dir` is for messages.
    ///
    /// # Errors
    /// There is no log, or it cannot be read.
    pub fn open_on(disk: Box<dyn Disk>, dir: &Path) -> Result<ReadOnlyLog, StoreError> {
        let mut log = ReadOnlyLog { disk, dir: dir.to_owned(), tail: Tail::Clean };
        log.scan()?;
        Ok(log)
    }

    /// How the newest segment ended when it was last read. `Torn` is what a record looks like while it is being
    /// written; with no owner alive it is what a crash left, and the next run cuts it.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Reads until the same thing is seen twice. The owner may be writing a record, rolling or reclaiming: then a
    /// sector is half there, a file is gone or two overlap, and the next look differs.
    fn scan(&mut self) -> Result<(Scan, Vec<Record>), StoreError> {
        let mut before = None;
        for _ in 0..TRIES {
            let mut records = Vec::new();
            let result = scan(&mut *self.disk, &self.dir, &mut |record| {
                records.push(record);
                Ok(())
            });
            match result {
                Ok(found) => {
                    self.tail = found.tail.clone();
                    return Ok((found, records));
                }
                Err(error) if before.as_ref() == Some(&error) => return Err(error),
                Err(error) => before = Some(error),
            }
        }
        // Different every time: somebody is busy there, and the last thing seen says more than a made-up message.
        Err(before.expect("at least one try was made, and it failed"))
    }

    fn refuse(&self) -> StoreError {
        StoreError::ReadOnly { dir: self.dir.clone() }
    }
}

impl Log for ReadOnlyLog {
    fn append(&mut self, _record: &Record) -> AppendResult {
        not_written(self.refuse().to_string())
    }

    fn read_all(&mut self) -> Result<Vec<Record>, StoreError> {
        Ok(self.scan()?.1)
    }

    fn delete(&mut self, _slots: &[Slot]) -> Result<(), StoreError> {
        Err(self.refuse())
    }

    fn put_state(&mut self, _chunk: &[u8]) -> Result<StateChunk, StoreError> {
        Err(self.refuse())
    }

    fn read_state(&mut self, chunk: &StateChunk) -> Result<Bytes, StoreError> {
        chunks::read(&mut *self.disk, &self.dir, chunk)
    }

    fn retain_state(&mut self, _keep: &BTreeSet<StateChunk>) -> Result<u64, StoreError> {
        Err(self.refuse())
    }
}
