//! The log of a simulated host: the production store over a disk that can fail, or over memory as an object store would
//! answer, with an honest journal of every record that ever became durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::{PipelineId, Slot};
use tidegate_protocol::record::{Record, StateChunk};
use tidegate_store::disk::sim::{Dishonest, Fate, Fault, Image, SimDisk};
use tidegate_store::disk::{Disk, Entry};
use tidegate_store::{AppendFault, LocalLog, Log, MemoryLog, OpenOptions, StoreError};

use crate::crash::Crash;
use crate::dice::Dice;
use crate::world::{Seq, World};

/// Where a log lies.
#[derive(Debug, Clone)]
enum Place {
    /// On a disk of its host.
    Local(SimDisk),
    /// In an object store: any host can reach it.
    Object(MemoryLog),
}

/// One log with everything that is known of it. Clones are the same one; [`SimStore::copy`] makes another.
#[derive(Debug, Clone)]
pub struct SimStore {
    world: World,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    place: Place,
    journal: LogJournal,
    /// Reads of the disk that fail: after so many further ones.
    bad_read: Option<u64>,
    /// The host dies at this changing operation of the disk, counted from now.
    crash_in: Option<u64>,
    died_at: Option<usize>,
    planted: BTreeMap<u64, Fault>,
    appended: u64,
    dishonest: Option<Dishonest>,
}

/// Every record that became durable, or may have.
#[derive(Debug, Clone, Default)]
pub struct LogJournal {
    /// In the order of appends.
    pub entries: Vec<LogEntry>,
    /// Slots that were given to `delete`.
    pub deleted: BTreeSet<Slot>,
    /// What a run was told although it is not so; each names its promise.
    pub violations: Vec<(Seq, String)>,
}

/// One append.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// When it was answered.
    pub seq: Seq,
    /// The record.
    pub record: Arc<Record>,
    /// It is durable; else its answer was lost and it may be.
    pub certain: bool,
    /// It was seen in the log afterwards.
    pub seen: bool,
}

impl LogJournal {
    /// Records that certainly are in the log, with the place of the event from which on that was so.
    pub fn durable(&self) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().filter(|entry| entry.certain || entry.seen)
    }
}

/// What a host leaves behind on its disk when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The process ended: all that it wrote can be read, and a later power cut can still take what was not flushed.
    Process,
    /// The power went: of what was not flushed anything may be there, in whole or in part.
    PowerCut,
}

impl SimStore {
    /// A log on a local disk.
    pub fn local(world: &World) -> Self {
        Self::at(world, Place::Local(SimDisk::new()))
    }

    /// A log in an object store.
    pub fn object(world: &World) -> Self {
        Self::at(world, Place::Object(MemoryLog::new()))
    }

    fn at(world: &World, place: Place) -> Self {
        let shared = Shared {
            place,
            journal: LogJournal::default(),
            bad_read: None,
            crash_in: None,
            died_at: None,
            planted: BTreeMap::new(),
            appended: 0,
            dishonest: None,
        };
        Self { world: world.clone(), shared: Arc::new(Mutex::new(shared)) }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Nothing panics while it is held.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it lies on a local disk.
    pub fn is_local(&self) -> bool {
        matches!(self.lock().place, Place::Local(_))
    }

    /// The disk, if it lies on one.
    pub fn disk(&self) -> Option<SimDisk> {
        match &self.lock().place {
            Place::Local(disk) => Some(disk.clone()),
            Place::Object(_) => None,
        }
    }

    /// The log in memory, if it lies in an object store.
    pub fn memory(&self) -> Option<MemoryLog> {
        match &self.lock().place {
            Place::Local(_) => None,
            Place::Object(log) => Some(log.clone()),
        }
    }

    /// Plants a bug into the disk, for good.
    pub fn plant(&self, dishonest: Option<Dishonest>) {
        let mut shared = self.lock();
        shared.dishonest = dishonest;
        if let (Place::Local(disk), Some(dishonest)) = (&shared.place, dishonest) {
            disk.plant(dishonest);
        }
    }

    /// What it holds and held.
    pub fn journal(&self) -> LogJournal {
        self.lock().journal.clone()
    }

    /// The same log once more, as somebody who copied its directory has it.
    #[must_use]
    pub fn copy(&self) -> Self {
        self.fork(&self.world)
    }

    /// The same log in another world.
    #[must_use]
    pub fn fork(&self, world: &World) -> Self {
        let shared = self.lock();
        let place = match &shared.place {
            Place::Local(disk) => Place::Local(SimDisk::from_image(disk.visible())),
            // Copied by its records.
            Place::Object(log) => {
                let mut other = MemoryLog::new();
                log.snapshot().iter().for_each(|record| drop(other.append(record)));
                Place::Object(other)
            }
        };
        let copy = Self::at(world, place);
        copy.lock().journal = shared.journal.clone();
        copy
    }

    /// The host ends, and the disk is as it then is. `dice` decide over what was not flushed.
    pub fn end(&self, ending: Ending, dice: &mut Dice) {
        let mut shared = self.lock();
        let died_at = shared.died_at.take();
        shared.crash_in = None;
        shared.bad_read = None;
        let Place::Local(disk) = &shared.place else { return };
        match ending {
            Ending::Process => shared.place = Place::Local(disk.handed_on()),
            Ending::PowerCut => {
                let image = power_cut(disk, died_at.unwrap_or_else(|| disk.ops()), dice);
                shared.put(image);
            }
        }
    }

    /// What lies on the disk now.
    pub fn image(&self) -> Option<Image> {
        self.disk().map(|disk| disk.visible())
    }

    /// Puts another image there.
    pub fn put_image(&self, image: Image) {
        let mut shared = self.lock();
        if let Place::Local(_) = shared.place {
            shared.put(image);
        }
    }

    /// The host dies in the middle of the changing operation of the disk after `skip` further ones.
    pub fn crash_after(&self, skip: u64) {
        self.lock().crash_in = Some(skip);
    }

    /// The changing operation after `skip` further ones fails.
    pub fn fail_after(&self, skip: u64, fault: Fault) {
        self.lock().planted.insert(skip, fault);
    }

    /// The read after `skip` further ones fails.
    pub fn fail_read_after(&self, skip: u64) {
        self.lock().bad_read = Some(skip);
    }

    /// No fault that has not come yet will come.
    pub fn clear_faults(&self) {
        let mut shared = self.lock();
        shared.bad_read = None;
        shared.crash_in = None;
        shared.planted.clear();
    }

    /// Opens it for a host.
    ///
    /// # Errors
    /// As the store says.
    pub fn open(&self, host: &Crash, pipeline: &PipelineId) -> Result<Box<dyn Log>, StoreError> {
        let place = self.lock().place.clone();
        match place {
            Place::Local(disk) => {
                let disk = FaultyDisk { disk, store: self.clone(), host: host.clone() };
                self.open_on(host, pipeline, Box::new(disk))
            }
            Place::Object(log) => Ok(self.watched(host, Box::new(log))),
        }
    }

    /// Opens it on a disk that stands before its own.
    ///
    /// # Errors
    /// As the store says.
    pub fn open_on(
        &self,
        host: &Crash,
        pipeline: &PipelineId,
        disk: Box<dyn Disk>,
    ) -> Result<Box<dyn Log>, StoreError> {
        let options = OpenOptions { pipeline: Some(pipeline.clone()), segment_bytes: 64 << 10 };
        let log = LocalLog::open_on(disk, Path::new("state"), options)?;
        Ok(self.watched(host, Box::new(log)))
    }

    fn watched(&self, host: &Crash, log: Box<dyn Log>) -> Box<dyn Log> {
        Box::new(Watched { log, store: self.clone(), host: host.clone(), stale: false })
    }

    /// The next read of an object store's log misses so many of its newest records.
    pub fn read_stale_once(&self, records: usize) {
        if let Some(log) = self.memory() {
            self.world.fired("log-stale-read");
            log.read_stale_once(records);
        }
    }

    /// The append after `skip` good ones fails as an object store's can.
    pub fn fail_append(&self, skip: usize, fault: AppendFault) {
        if let Some(log) = self.memory() {
            log.fail_append(skip, fault);
        }
    }
}

impl Shared {
    fn put(&mut self, image: Image) {
        let disk = SimDisk::from_image(image);
        if let Some(dishonest) = self.dishonest {
            disk.plant(dishonest);
        }
        self.place = Place::Local(disk);
    }
}

/// What a power cut leaves: each thing that was not flushed meets its own fate.
fn power_cut(disk: &SimDisk, done: usize, dice: &mut Dice) -> Image {
    let pending = disk.pending(done);
    // Often all or nothing, else each by itself.
    let mood = dice.below(4);
    let fates: BTreeMap<usize, Fate> = pending
        .into_iter()
        .map(|at| {
            let fate = match mood {
                0 => Fate::Lost,
                1 => Fate::Kept,
                _ => match dice.below(4) {
                    0 => Fate::Lost,
                    1 => Fate::OnlySectors(0..usize::try_from(dice.below(4)).unwrap_or(0)),
                    2 => {
                        let from = usize::try_from(dice.below(6)).unwrap_or(0);
                        Fate::AllButSectors(from..from + 1)
                    }
                    _ => Fate::Kept,
                },
            };
            (at, fate)
        })
        .collect();
    disk.crash(done, |at| fates.get(&at).cloned().unwrap_or(Fate::Lost))
}

/// A disk of one host.
struct FaultyDisk {
    disk: SimDisk,
    store: SimStore,
    host: Crash,
}

impl FaultyDisk {
    fn before_change(&self) -> io::Result<()> {
        if self.host.is_dead() {
            return Err(io::Error::other("the host is dead"));
        }
        let mut shared = self.store.lock();
        let planted: Vec<(u64, Fault)> = std::mem::take(&mut shared.planted).into_iter().collect();
        for (left, fault) in planted {
            match left {
                0 => {
                    self.disk.fail_after(0, fault);
                    self.store.world.fired(match fault {
                        Fault::Eio => "disk-eio",
                        Fault::Full => "disk-full",
                    });
                }
                left => {
                    shared.planted.insert(left - 1, fault);
                }
            }
        }
        match shared.crash_in {
            Some(0) => {
                shared.crash_in = None;
                shared.died_at = Some(self.disk.ops());
                self.store.world.fired("crash-in-disk-write");
                drop(shared);
                self.host.now();
                Err(io::Error::other("the host dies here"))
            }
            Some(left) => {
                shared.crash_in = Some(left - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn before_read(&self) -> io::Result<()> {
        let mut shared = self.store.lock();
        match shared.bad_read {
            Some(0) => {
                shared.bad_read = None;
                self.store.world.fired("disk-read-eio");
                Err(io::Error::other("simulated device failure"))
            }
            Some(left) => {
                shared.bad_read = Some(left - 1);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Disk for FaultyDisk {
    fn list(&mut self, folder: &str) -> io::Result<Vec<Entry>> {
        self.before_read()?;
        self.disk.list(folder)
    }
    fn read(&mut self, path: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        self.before_read()?;
        self.disk.read(path, offset, len)
    }
    fn create(&mut self, path: &str) -> io::Result<()> {
        self.before_change()?;
        self.disk.create(path)
    }
    fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.before_change()?;
        self.disk.write(path, offset, bytes)
    }
    fn flush(&mut self, path: &str) -> io::Result<()> {
        self.before_change()?;
        self.disk.flush(path)
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.before_change()?;
        self.disk.rename(from, to)
    }
    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.before_change()?;
        self.disk.remove(path)
    }
    fn make_folder(&mut self, folder: &str) -> io::Result<()> {
        self.before_change()?;
        self.disk.make_folder(folder)
    }
    fn remove_folder(&mut self, folder: &str) -> io::Result<()> {
        self.disk.may_remove_folder(folder)?;
        self.before_change()?;
        self.disk.remove_folder(folder)
    }
    fn flush_folder(&mut self, folder: &str) -> io::Result<()> {
        self.before_change()?;
        self.disk.flush_folder(folder)
    }
}

/// Writes down what the log answers, and compares what it shows with what it answered before.
struct Watched {
    log: Box<dyn Log>,
    store: SimStore,
    host: Crash,
    /// The reads of this handle may be old.
    stale: bool,
}

impl Watched {
    fn died(&self) -> StoreError {
        StoreError::Poisoned { dir: "state".into(), reason: "the host is dead".to_owned() }
    }
}

impl Log for Watched {
    fn append(&mut self, record: &Record) -> AppendResult {
        if self.host.is_dead() {
            return AppendResult::Unknown("the host is dead".to_owned());
        }
        let result = self.log.append(record);
        let answer = match &result {
            AppendResult::Created => "created",
            AppendResult::Taken(_) => "taken",
            AppendResult::Unknown(_) => "unknown",
            AppendResult::NotWritten { .. } => "not written",
        };
        let seq = self.store.world.note(|| format!("log: {} {answer}", shown(record)));
        let mut shared = self.store.lock();
        shared.appended += 1;
        let entry = |certain| LogEntry { seq, record: Arc::new(record.clone()), certain, seen: false };
        match result {
            AppendResult::Created => shared.journal.entries.push(entry(true)),
            AppendResult::Unknown(_) => shared.journal.entries.push(entry(false)),
            AppendResult::Taken(_) | AppendResult::NotWritten { .. } => {}
        }
        if self.host.is_dead() { AppendResult::Unknown("the host is dead".to_owned()) } else { result }
    }

    fn read_all(&mut self) -> Result<Vec<Record>, StoreError> {
        if self.host.is_dead() {
            return Err(self.died());
        }
        let memory = self.store.memory();
        let before = memory.as_ref().map(|log| log.snapshot().len());
        let records = self.log.read_all()?;
        self.stale = before.is_some_and(|before| before > records.len());
        let seq = self.store.world.note(|| format!("log: read {} records", records.len()));
        if !self.stale {
            self.store.lock().journal.compare(seq, &records);
        }
        Ok(records)
    }

    fn delete(&mut self, slots: &[Slot]) -> Result<(), StoreError> {
        if self.host.is_dead() {
            return Err(self.died());
        }
        self.store.world.note(|| format!("log: delete {} records", slots.len()));
        self.store.lock().journal.deleted.extend(slots);
        self.log.delete(slots)
    }

    fn put_state(&mut self, chunk: &[u8]) -> Result<StateChunk, StoreError> {
        if self.host.is_dead() { Err(self.died()) } else { self.log.put_state(chunk) }
    }

    fn read_state(&mut self, chunk: &StateChunk) -> Result<Bytes, StoreError> {
        if self.host.is_dead() { Err(self.died()) } else { self.log.read_state(chunk) }
    }

    fn retain_state(&mut self, keep: &BTreeSet<StateChunk>) -> Result<u64, StoreError> {
        if self.host.is_dead() { Err(self.died()) } else { self.log.retain_state(keep) }
    }
}

impl LogJournal {
    /// What is read must be what was acknowledged; what was not acknowledged may be there.
    fn compare(&mut self, seq: Seq, records: &[Record]) {
        let read: BTreeMap<Slot, &Record> = records.iter().map(|record| (record.slot, record)).collect();
        let mut certain: BTreeMap<Slot, Arc<Record>> = BTreeMap::new();
        for entry in &mut self.entries {
            let there = read.get(&entry.record.slot).is_some_and(|record| same(record, &entry.record));
            if entry.certain || entry.seen {
                certain.insert(entry.record.slot, Arc::clone(&entry.record));
            } else if there {
                entry.seen = true;
                entry.seq = entry.seq.max(1);
                certain.insert(entry.record.slot, Arc::clone(&entry.record));
            }
        }
        for (slot, record) in &certain {
            match read.get(slot) {
                Some(there) if same(there, record) => {}
                None if self.deleted.contains(slot) => {}
                Some(_) => {
                    self.violations.push((seq, format!("P4: record {slot} was acknowledged and is another one now")))
                }
                None => self.violations.push((seq, format!("P4: record {slot} was acknowledged and is gone"))),
            }
        }
        for slot in read.keys().filter(|slot| !certain.contains_key(slot)) {
            self.violations.push((seq, format!("P4: record {slot} is in the log and nobody wrote it")));
        }
    }
}

/// By all that makes a record what it is. Positions that lie beside the log are compared by the store's own tests.
fn same(one: &Record, other: &Record) -> bool {
    one.slot == other.slot
        && one.run == other.run
        && one.written_at == other.written_at
        && one.outcomes == other.outcomes
        && std::mem::discriminant(&one.body) == std::mem::discriminant(&other.body)
}

fn shown(record: &Record) -> String {
    use tidegate_protocol::record::Body;
    let body = match &record.body {
        Body::Open(open) => format!(
            "open after {}",
            open.parent.map_or("nothing".to_owned(), |of| format!("epoch {} of run {}", of.epoch, of.run.number))
        ),
        Body::Intent(intent) => format!("intent {}", intent.number),
        Body::Bound(bound) => format!("bound {}", bound.number),
        Body::Seal(seal) => {
            format!("seal of epoch {} ({} rows)", seal.epoch, seal.sources.values().map(|cut| cut.rows).sum::<u64>())
        }
        Body::Outcomes => "outcomes".to_owned(),
        Body::Decision(decision) => format!("decision {} {:?}", decision.id, std::mem::discriminant(&decision.choice)),
        Body::Savepoint(savepoint) => format!("savepoint {}", savepoint.name),
        Body::Forget(forget) => format!("forget {}", forget.name),
        Body::Retire(retire) => format!("retire {} checkpoints", retire.of.len()),
        Body::Released(released) => format!("released {}", released.resources.len()),
        Body::Finished(_) => "finished".to_owned(),
        Body::Deleted(_) => "deleted".to_owned(),
    };
    let outcomes: Vec<String> = record
        .outcomes
        .iter()
        .map(|entry| {
            use tidegate_protocol::record::EpochOutcome;
            let word = match &entry.outcome {
                EpochOutcome::Committed => "committed",
                EpochOutcome::InDoubt(_) => "in doubt",
                EpochOutcome::Blocked(_) => "blocked",
            };
            format!("{} epoch {} {word}", entry.sink, entry.of.epoch)
        })
        .collect();
    format!(
        "{} of run {}: {body}{}{}",
        record.slot,
        record.run.number,
        if outcomes.is_empty() { "" } else { "; " },
        outcomes.join(", ")
    )
}
