//! A log in a local directory.
//!
//! ```text
//! <dir>/lock                         held by its owner
//! <dir>/log/<first slot>.log         segments
//! <dir>/state/<sha-256>              pieces of state
//! ```

mod append;
mod chunks;
pub mod contents;
mod layout;
mod read_only;
mod reclaim;
mod recover;
mod scan;
mod segment_file;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::{Nonce, PipelineId, Slot};
use tidegate_protocol::record::{Body, Record, StateChunk};

use crate::codec::SECTOR;
use crate::disk::{DirLock, Disk, RealDisk, refuse_network};
use crate::error::is_full;
use crate::{Log, StoreError};

use chunks::Chunks;
pub use read_only::ReadOnlyLog;
use scan::{Place, Segment};

/// How to open a [`LocalLog`].
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Whose log it must be. `None`: anyone's.
    pub pipeline: Option<PipelineId>,
    /// Size of a full-grown segment, in bytes. Segments begin small and double. Between 64 KiB and 64 MiB; 8 MiB.
    pub segment_bytes: u64,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { pipeline: None, segment_bytes: 8 << 20 }
    }
}

/// Size of the first segment.
const FIRST_SEGMENT: u64 = 64 << 10;

impl OpenOptions {
    fn segment_limit(&self) -> u64 {
        let limit = self.segment_bytes.clamp(FIRST_SEGMENT, 64 << 20);
        limit - limit % SECTOR as u64
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
pub struct LocalLog {
    disk: Box<dyn Disk>,
    dir: PathBuf,
    lock: Option<DirLock>,
    options: OpenOptions,
    /// The log's identity: the nonce of the run that began it. `None` before the first segment.
    log: Option<Nonce>,
    /// In order of slots; the last one is appended to.
    segments: Vec<Segment>,
    /// Every record that counts.
    index: BTreeMap<Slot, Place>,
    chunks: Chunks,
    poisoned: Option<String>,
    recovery: Recovery,
}

impl fmt::Debug for LocalLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLog").field("dir", &self.dir).field("poisoned", &self.poisoned).finish_non_exhaustive()
    }
}

impl LocalLog {
    /// Opens the log in `dir`, or begins one there: takes the lock, reads and checks everything, cuts a torn tail, and
    /// rewrites the newest segment, so that what is acted upon from now on is on the disk and not only in memory.
    ///
    /// # Errors
    /// Another process holds the lock, the directory lies on a network file system, the log is damaged, belongs to
    /// another pipeline or version, or the system refused.
    pub fn open(dir: &Path, options: OpenOptions) -> Result<LocalLog, StoreError> {
        make_directory(dir)?;
        let dir = dir.canonicalize().map_err(|error| StoreError::io(dir, "open", &error))?;
        let disk = RealDisk::open(&dir).map_err(|error| StoreError::io(&dir, "open", &error))?;
        refuse_network(disk.dir(), &dir)?;
        let lock = DirLock::acquire(disk.dir(), &dir)?;
        Self::recover(Box::new(disk), dir, Some(lock), options)
    }

    /// Opens the log on any disk, without a lock. `dir` is for messages.
    ///
    /// # Errors
    /// As [`LocalLog::open`].
    pub fn open_on(disk: Box<dyn Disk>, dir: &Path, options: OpenOptions) -> Result<LocalLog, StoreError> {
        Self::recover(disk, dir.to_owned(), None, options)
    }

    /// Opens the log in `dir` for inspection, also while another process owns it.
    ///
    /// # Errors
    /// There is no log, or it cannot be read.
    pub fn open_read_only(dir: &Path) -> Result<ReadOnlyLog, StoreError> {
        ReadOnlyLog::open(dir)
    }

    /// What opening found and did.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The log's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The slot that the next record takes.
    pub fn next_slot(&self) -> Slot {
        self.segments.last().map_or(Slot(1), |segment| segment.next)
    }

    fn check_poison(&self) -> Result<(), StoreError> {
        match &self.poisoned {
            Some(reason) => Err(StoreError::Poisoned { dir: self.dir.clone(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    /// Refuses to change anything after a failure, or when the log may have another owner.
    fn check_ours(&mut self) -> Result<(), StoreError> {
        self.check_poison()?;
        if let Some(lock) = &self.lock
            && let Err(error) = lock.check()
        {
            self.poison(&error);
            return Err(error);
        }
        Ok(())
    }

    fn poison(&mut self, reason: &StoreError) {
        if self.poisoned.is_none() {
            tracing::error!(dir = %self.dir.display(), %reason, "the log accepts nothing more in this process");
            self.poisoned = Some(reason.to_string());
        }
    }

    /// Poisons unless the failure was a full disk, after which nothing was changed.
    fn poison_unless_full(&mut self, error: StoreError) -> StoreError {
        if !matches!(error, StoreError::Full { .. }) {
            self.poison(&error);
        }
        error
    }

    fn error(&self, path: &str, doing: &'static str, error: &io::Error) -> StoreError {
        StoreError::io(self.dir.join(path), doing, error)
    }
}

/// Makes the directory and those above it, and makes their names durable.
fn make_directory(dir: &Path) -> Result<(), StoreError> {
    let failed = |at: &Path, error: &io::Error| StoreError::io(at, "create", error);
    let missing: Vec<&Path> =
        dir.ancestors().filter(|path| !path.as_os_str().is_empty()).take_while(|path| !path.exists()).collect();
    std::fs::create_dir_all(dir).map_err(|error| failed(dir, &error))?;
    for made in missing {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flushed = std::fs::File::open(parent).and_then(|parent| parent.sync_all());
        flushed.map_err(|error| failed(parent, &error))?;
    }
    Ok(())
}

/// Writes a whole new file, flushes it and gives it its name. An error leaves nothing under that name that was not there
/// before; a full disk is told from a failure, and then nothing is left at all.
fn write_whole(disk: &mut dyn Disk, dir: &Path, path: &str, bytes: &[u8]) -> Result<(), StoreError> {
    name_whole(disk, dir, path, bytes)?;
    flush_names(disk, dir, path.rsplit_once('/').map_or("", |(folder, _)| folder))
}

/// The same without the last step: the name does not last before [`flush_names`].
fn name_whole(disk: &mut dyn Disk, dir: &Path, path: &str, bytes: &[u8]) -> Result<(), StoreError> {
    name_new(disk, dir, path, |disk, unfinished| {
        disk.write(unfinished, 0, bytes).map_err(|error| StoreError::io(dir.join(path), "write", &error))
    })
}

/// Makes a file, has it written under another name, flushes it and gives it its own.
fn name_new(
    disk: &mut dyn Disk,
    dir: &Path,
    path: &str,
    write: impl FnOnce(&mut dyn Disk, &str) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let unfinished = layout::unfinished(path);
    let failed = |error: io::Error| StoreError::io(dir.join(path), "write", &error);
    let created = match disk.create(&unfinished) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            disk.remove(&unfinished).and_then(|()| disk.create(&unfinished))
        }
        other => other,
    };
    let named = created
        .map_err(failed)
        .and_then(|()| write(disk, &unfinished))
        .and_then(|()| disk.flush(&unfinished).and_then(|()| disk.rename(&unfinished, path)).map_err(failed));
    if named.is_err() {
        // What cannot be removed now is removed by the next opening.
        let _ = disk.remove(&unfinished);
    }
    named
}

fn flush_names(disk: &mut dyn Disk, dir: &Path, folder: &str) -> Result<(), StoreError> {
    disk.flush_folder(folder).map_err(|error| {
        // The new name is visible, and whether it lasts is not known: not even a full disk may be tried again.
        let detail = if is_full(&error) { format!("no room: {error}") } else { error.to_string() };
        StoreError::Io { file: dir.join(folder), doing: "flush", detail }
    })
}

/// The pipeline that an `open` record names must be the expected one.
fn check_pipeline(record: &Record, expected: Option<&PipelineId>, dir: &Path) -> Result<(), StoreError> {
    match (&record.body, expected) {
        (Body::Open(open), Some(expected)) if open.pipeline != *expected => Err(StoreError::ForeignPipeline {
            dir: dir.to_owned(),
            found: open.pipeline.clone(),
            expected: expected.clone(),
        }),
        _ => Ok(()),
    }
}

impl Log for LocalLog {
    fn append(&mut self, record: &Record) -> AppendResult {
        self.append_record(record)
    }

    fn read_all(&mut self) -> Result<Vec<Record>, StoreError> {
        // After a failed flush the page cache may show a record that is not on the disk.
        self.check_poison()?;
        let mut records = Vec::with_capacity(self.index.len());
        for segment in &self.segments {
            let path = segment.path();
            let file = self.dir.join(&path);
            let used = usize::try_from(segment.used).expect("a segment is limited to what fits in memory");
            let bytes = self.disk.read(&path, 0, used).map_err(|error| StoreError::io(&file, "read", &error))?;
            for (slot, place) in self.index.range(segment.header.first..segment.next) {
                let from = place.offset as usize;
                let sectors = bytes.get(from..from + place.sectors * SECTOR).unwrap_or_default();
                records.push(scan::record_in(&file, *slot, *place, sectors)?);
            }
        }
        Ok(records)
    }

    fn delete(&mut self, slots: &[Slot]) -> Result<(), StoreError> {
        self.check_ours()?;
        if let Some(slot) = slots.iter().find(|slot| self.index.get(slot).is_some_and(|place| place.open)) {
            return Err(StoreError::OpenRecord { slot: *slot });
        }
        for slot in slots {
            if let Some(place) = self.index.remove(slot) {
                let at = self.segments.partition_point(|segment| segment.header.first <= *slot) - 1;
                self.segments[at].live -= place.bytes();
                self.segments[at].dead += place.bytes();
            }
        }
        self.reclaim()
    }

    fn put_state(&mut self, chunk: &[u8]) -> Result<StateChunk, StoreError> {
        self.check_ours()?;
        let put = self.chunks.put(&mut *self.disk, &self.dir, chunk);
        put.map_err(|error| self.poison_unless_invalid(error))
    }

    fn read_state(&mut self, chunk: &StateChunk) -> Result<Bytes, StoreError> {
        self.check_poison()?;
        self.chunks.read(&mut *self.disk, &self.dir, chunk)
    }

    fn retain_state(&mut self, keep: &BTreeSet<StateChunk>) -> Result<u64, StoreError> {
        self.check_ours()?;
        self.chunks.retain(&mut *self.disk, &self.dir, keep)
    }
}

impl LocalLog {
    pub(super) fn poison_unless_invalid(&mut self, error: StoreError) -> StoreError {
        if matches!(error, StoreError::TooLarge { .. }) { error } else { self.poison_unless_full(error) }
    }
}
