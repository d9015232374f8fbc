//! A log in memory that can be told to fail.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::Slot;
use tidegate_protocol::record::{Body, Record, StateChunk};

use crate::codec::{self, MAX_PAYLOAD};
use crate::state::{check_chunk, chunk_of, pages_of};
use crate::{Log, StoreError};

/// What an append does instead of its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendFault {
    /// Written, but the answer is lost: `Unknown`, and this handle accepts nothing more.
    UnknownWritten,
    /// Not written, and the answer is lost: `Unknown`, and this handle accepts nothing more.
    UnknownNotWritten,
    /// Another process was faster: its record, with the slot set to the one that was tried, is there.
    TakenBy(Box<Record>),
    /// Disk full: `NotWritten`, may be tried again.
    Full,
    /// Certainly not written, and this handle accepts nothing more.
    Refused,
}

/// What a call that reads or writes state does instead of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFault {
    /// Disk full.
    Full,
    /// The device failed.
    Eio,
}

/// A log in memory. Clones share the storage as processes share a directory: each has its own view of whether it still
/// accepts work, and a clone begins anew, as a process that was started again does.
#[derive(Debug, Default)]
pub struct MemoryLog {
    shared: Arc<Mutex<Shared>>,
    poisoned: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    records: BTreeMap<Slot, Record>,
    /// Number of slots ever used; deleted ones count.
    used: u64,
    state: BTreeMap<String, Bytes>,
    append_faults: VecDeque<Option<AppendFault>>,
    state_faults: VecDeque<Option<StateFault>>,
    stale: usize,
    appends: u64,
}

impl Clone for MemoryLog {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), poisoned: None }
    }
}

impl MemoryLog {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the append after `skip` good ones fail. Each call adds to the queue behind the faults already there.
    pub fn fail_append(&self, skip: usize, fault: AppendFault) {
        let mut shared = self.lock();
        shared.append_faults.extend(std::iter::repeat_n(None, skip));
        shared.append_faults.push_back(Some(fault));
    }

    /// Makes the `put_state` or `read_state` after `skip` good ones fail.
    pub fn fail_state(&self, skip: usize, fault: StateFault) {
        let mut shared = self.lock();
        shared.state_faults.extend(std::iter::repeat_n(None, skip));
        shared.state_faults.push_back(Some(fault));
    }

    /// Makes the next `read_all` miss the newest `records` records, as a stale listing does.
    pub fn read_stale_once(&self, records: usize) {
        self.lock().stale = records;
    }

    /// Flips a bit of a stored piece of state. Returns whether there was one to flip.
    pub fn damage_state(&self, chunk: &StateChunk) -> bool {
        match self.lock().state.get_mut(&chunk.sha256) {
            Some(content) if !content.is_empty() => {
                let mut bytes = content.to_vec();
                bytes[0] ^= 1;
                *content = Bytes::from(bytes);
                true
            }
            _ => false,
        }
    }

    /// How many appends were tried by all handles together.
    pub fn appends(&self) -> u64 {
        self.lock().appends
    }

    /// All records, whatever this handle's state.
    pub fn snapshot(&self) -> Vec<Record> {
        self.lock().records.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic of another holder cannot leave a half-made change: every change is one insert or remove.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poison(&mut self, reason: &str) {
        self.poisoned.get_or_insert_with(|| reason.to_owned());
    }

    fn check_poison(&self) -> Result<(), StoreError> {
        match &self.poisoned {
            Some(reason) => Err(StoreError::Poisoned { dir: place(), reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn state_fault(&self) -> Result<(), StoreError> {
        match self.lock().state_faults.pop_front().flatten() {
            Some(StateFault::Full) => Err(StoreError::Full { file: place(), detail: "injected".to_owned() }),
            Some(StateFault::Eio) => Err(StoreError::Io { file: place(), doing: "use", detail: "injected".to_owned() }),
            None => Ok(()),
        }
    }
}

fn place() -> PathBuf {
    PathBuf::from("memory")
}

impl Shared {
    fn create(&mut self, record: &Record) -> AppendResult {
        match check_slot(record.slot, self.used) {
            SlotCheck::Free => {
                for page in pages_of(record) {
                    match page.bytes() {
                        Some(bytes) => {
                            self.state.entry(page.name().sha256.clone()).or_insert_with(|| bytes.into());
                        }
                        None if self.state.contains_key(&page.name().sha256) => {}
                        None => return not_written(format!("page {} of positions is not there", page.name().sha256)),
                    }
                }
                // What is read again knows its pages by name, as from a disk.
                let mut kept = record.clone();
                if let Body::Seal(seal) = &mut kept.body {
                    seal.sources.values_mut().for_each(|cut| cut.partitions.unload());
                }
                self.records.insert(record.slot, kept);
                self.used = record.slot.0;
                AppendResult::Created
            }
            SlotCheck::Used => match self.records.get(&record.slot) {
                Some(there) => AppendResult::Taken(Box::new(there.clone())),
                None => not_written(format!("slot {} was used, and its record was deleted", record.slot)),
            },
            SlotCheck::Gap { next } => not_written(gap_message(record.slot, next)),
        }
    }
}

/// How a slot relates to a log in which `used` slots were taken.
pub(crate) enum SlotCheck {
    Free,
    Used,
    Gap { next: Slot },
}

pub(crate) fn check_slot(slot: Slot, used: u64) -> SlotCheck {
    if slot.0 == 0 || slot.0 == u64::MAX || slot.0 - 1 > used {
        SlotCheck::Gap { next: Slot(used.saturating_add(1)) }
    } else if slot.0 <= used {
        SlotCheck::Used
    } else {
        SlotCheck::Free
    }
}

pub(crate) fn gap_message(slot: Slot, next: Slot) -> String {
    format!("slot {slot} would leave a gap, the next one is {next}")
}

pub(crate) fn not_written(message: String) -> AppendResult {
    AppendResult::NotWritten { message, retryable: false }
}

impl Log for MemoryLog {
    fn append(&mut self, record: &Record) -> AppendResult {
        if let Err(error) = self.check_poison() {
            return not_written(error.to_string());
        }
        // Encoded for its limits only, so that a record which a directory would refuse is refused here as well.
        if let Err(error) = codec::encode_record(record) {
            return not_written(error.to_string());
        }
        let mut shared = self.lock();
        shared.appends += 1;
        let Some(fault) = shared.append_faults.pop_front().flatten() else {
            return shared.create(record);
        };
        match fault {
            AppendFault::UnknownWritten => {
                shared.create(record);
                drop(shared);
                self.poison("the answer to an append was lost");
                AppendResult::Unknown("injected: the answer was lost".to_owned())
            }
            AppendFault::UnknownNotWritten => {
                drop(shared);
                self.poison("the answer to an append was lost");
                AppendResult::Unknown("injected: the answer was lost".to_owned())
            }
            AppendFault::TakenBy(mut other) => {
                other.slot = record.slot;
                shared.create(&other);
                shared.create(record)
            }
            AppendFault::Full => {
                AppendResult::NotWritten { message: "injected: no space left".to_owned(), retryable: true }
            }
            AppendFault::Refused => {
                drop(shared);
                self.poison("an append was refused");
                not_written("injected: refused".to_owned())
            }
        }
    }

    fn read_all(&mut self) -> Result<Vec<Record>, StoreError> {
        self.check_poison()?;
        let mut shared = self.lock();
        let stale = std::mem::take(&mut shared.stale);
        let seen = shared.records.len().saturating_sub(stale);
        Ok(shared.records.values().take(seen).cloned().collect())
    }

    fn delete(&mut self, slots: &[Slot]) -> Result<(), StoreError> {
        self.check_poison()?;
        let mut shared = self.lock();
        if let Some(slot) = slots.iter().find(|slot| shared.records.get(slot).is_some_and(is_open)) {
            return Err(StoreError::OpenRecord { slot: *slot });
        }
        for slot in slots {
            shared.records.remove(slot);
        }
        Ok(())
    }

    fn put_state(&mut self, chunk: &[u8]) -> Result<StateChunk, StoreError> {
        self.check_poison()?;
        check_chunk_size(chunk.len())?;
        self.state_fault()?;
        let name = chunk_of(chunk);
        self.lock().state.entry(name.sha256.clone()).or_insert_with(|| Bytes::copy_from_slice(chunk));
        Ok(name)
    }

    fn read_state(&mut self, chunk: &StateChunk) -> Result<Bytes, StoreError> {
        self.check_poison()?;
        self.state_fault()?;
        let file = place().join(&chunk.sha256);
        let content = self.lock().state.get(&chunk.sha256).cloned();
        let content = content.ok_or_else(|| StoreError::MissingFile {
            file: file.clone(),
            slot: None,
            detail: "a checkpoint names this piece of state".to_owned(),
        })?;
        check_chunk(&file, chunk, &content)?;
        Ok(content)
    }

    fn retain_state(&mut self, keep: &BTreeSet<StateChunk>) -> Result<u64, StoreError> {
        self.check_poison()?;
        let mut shared = self.lock();
        if let Some(missing) = keep.iter().find(|chunk| !shared.state.contains_key(&chunk.sha256)) {
            return Err(StoreError::MissingFile {
                file: place().join(&missing.sha256),
                slot: None,
                detail: "a checkpoint names this piece of state; nothing was deleted".to_owned(),
            });
        }
        let before = shared.state.len();
        let names: BTreeSet<&str> = keep.iter().map(|chunk| chunk.sha256.as_str()).collect();
        shared.state.retain(|name, _| names.contains(name.as_str()));
        Ok((before - shared.state.len()) as u64)
    }
}

pub(crate) fn is_open(record: &Record) -> bool {
    matches!(record.body, Body::Open(_))
}

pub(crate) fn check_chunk_size(bytes: usize) -> Result<(), StoreError> {
    if bytes > MAX_PAYLOAD {
        return Err(StoreError::TooLarge {
            what: "a piece of state".to_owned(),
            bytes: bytes as u64,
            limit: MAX_PAYLOAD as u64,
        });
    }
    Ok(())
}
