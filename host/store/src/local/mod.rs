//! A log in a local directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::{PipelineId, Slot};
use tidegate_protocol::record::{Record, StateChunk};

use crate::{Log, StoreError};

/// How to open a [`LocalLog`].
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Whose log it must be. `None`: anyone's.
    pub pipeline: Option<PipelineId>,
    /// Size of a full-grown segment, in bytes.
    pub segment_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { pipeline: None, segment_bytes: 8 << 20 }
    }
}

/// What opening found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// How the newest segment ended.
    pub tail: Tail,
    /// Files of an interrupted change that were removed.
    pub removed: Vec<PathBuf>,
}

/// How the newest segment of a log ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tail {
    /// With a whole record.
    #[default]
    Clean,
    /// With a record of which only a part had reached the disk; it was never acknowledged.
    Torn {
        /// Which file.
        file: PathBuf,
        /// Where the record begins, in bytes.
        offset: u64,
        /// The slot it would have taken.
        slot: Slot,
    },
}

/// A log in a local directory, owned by this process for as long as this value lives.
#[derive(Debug)]
pub struct LocalLog {
    dir: PathBuf,
    recovery: Recovery,
}

/// A log in a local directory, for inspection: takes no lock, changes nothing, may be owned by another process.
#[derive(Debug)]
pub struct ReadOnlyLog {
    dir: PathBuf,
}

impl LocalLog {
    /// Opens or creates the log in `dir`, takes its lock and recovers its tail.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open(dir: &Path, _options: OpenOptions) -> Result<LocalLog, StoreError> {
        Err(StoreError::NoLog { dir: dir.to_owned() })
    }

    /// Opens the log in `dir` for inspection.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn open_read_only(dir: &Path) -> Result<ReadOnlyLog, StoreError> {
        Err(StoreError::NoLog { dir: dir.to_owned() })
    }

    /// What opening found and did.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }
}

macro_rules! unfinished {
    ($type:ty) => {
        impl Log for $type {
            fn append(&mut self, _record: &Record) -> AppendResult {
                AppendResult::NotWritten { message: "no log".to_owned(), retryable: false }
            }
            fn read_all(&mut self) -> Result<Vec<Record>, StoreError> {
                Err(StoreError::NoLog { dir: self.dir.clone() })
            }
            fn delete(&mut self, _slots: &[Slot]) -> Result<(), StoreError> {
                Err(StoreError::NoLog { dir: self.dir.clone() })
            }
            fn put_state(&mut self, _chunk: &[u8]) -> Result<StateChunk, StoreError> {
                Err(StoreError::NoLog { dir: self.dir.clone() })
            }
            fn read_state(&mut self, _chunk: &StateChunk) -> Result<Bytes, StoreError> {
                Err(StoreError::NoLog { dir: self.dir.clone() })
            }
            fn retain_state(&mut self, _keep: &BTreeSet<StateChunk>) -> Result<u64, StoreError> {
                Err(StoreError::NoLog { dir: self.dir.clone() })
            }
        }
    };
}

unfinished!(LocalLog);
unfinished!(ReadOnlyLog);
