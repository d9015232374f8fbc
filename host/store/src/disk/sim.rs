//! A disk in memory that records what was done to it, fails on request, and builds the images that a power cut could
//! leave behind. For tests.
//!
//! What a power cut leaves is modelled without mercy: every write and every change of a name that was not flushed may be
//! there or not, each by itself and in any order, and a write may be there in part, by sectors.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, Entry};

const SECTOR: usize = 512;

/// A simulated disk. Clones are the same disk: what the machine shows, page cache included.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    shared: Arc<Mutex<Sim>>,
}

/// What a disk holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    files: BTreeMap<u64, Vec<u8>>,
    names: BTreeMap<String, u64>,
    folders: BTreeSet<String>,
}

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// A file was made.
    Create {
        /// Its name.
        path: String,
        /// Its number.
        inode: u64,
    },
    /// Bytes were written.
    Write {
        /// Into which file.
        inode: u64,
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// A file was flushed, or the flush failed.
    Flush {
        /// Which.
        inode: u64,
        /// Whether it succeeded.
        ok: bool,
    },
    /// A file got another name.
    Rename {
        /// The old one.
        from: String,
        /// The new one.
        to: String,
        /// Its number.
        inode: u64,
    },
    /// A name was removed.
    Remove {
        /// Which.
        path: String,
    },
    /// A folder was removed.
    RemoveFolder {
        /// Which.
        folder: String,
    },
    /// A folder was made.
    MakeFolder {
        /// Which.
        folder: String,
    },
    /// A folder was flushed, or the flush failed.
    FlushFolder {
        /// Which.
        folder: String,
        /// Whether it succeeded.
        ok: bool,
    },
}

/// What a power cut does to one thing that was not flushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is there.
    Kept,
    /// It is not.
    Lost,
    /// Of a write only these sectors are there, counted from its start, and the file's length.
    OnlySectors(Range<usize>),
    /// Of a write all but these sectors are there, and the file's length.
    AllButSectors(Range<usize>),
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device failed. A write has done half of its work, in whole sectors; what a flush was to make durable never will be.
    Eio,
    /// No space is left. A write has done half of its work, in whole sectors.
    Full,
}

#[derive(Debug, Clone, Default)]
struct Sim {
    now: Image,
    base: Image,
    ops: Vec<Op>,
    next_inode: u64,
    calls: u64,
    faults: BTreeMap<u64, Fault>,
    dishonest: Option<Dishonest>,
}

/// A planted bug: a flush that is called and does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dishonest {
    /// Flushes of files.
    Files,
    /// Flushes of folders.
    Folders,
}

impl SimDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk that holds `image`, all of it durable.
    pub fn from_image(image: Image) -> Self {
        let next_inode = image.files.keys().next_back().map_or(0, |inode| inode + 1);
        let sim = Sim { now: image.clone(), base: image, next_inode, ..Sim::default() };
        Self { shared: Arc::new(Mutex::new(sim)) }
    }

    /// Plants a bug.
    pub fn plant(&self, dishonest: Dishonest) {
        self.lock().dishonest = Some(dishonest);
    }

    /// Makes the call after `skip` further changing calls (all but list and read) fail.
    pub fn fail_after(&self, skip: u64, fault: Fault) {
        let mut sim = self.lock();
        let at = sim.calls + skip;
        sim.faults.insert(at, fault);
    }

    /// Number of things done so far.
    pub fn ops(&self) -> usize {
        self.lock().ops.len()
    }

    /// What was done.
    pub fn trace(&self) -> Vec<Op> {
        self.lock().ops.clone()
    }

    /// What a process sees now.
    pub fn visible(&self) -> Image {
        self.lock().now.clone()
    }

    /// Takes what is visible now as durable and forgets how it came about, so that a long test needs little memory.
    pub fn forget(&self) {
        let mut sim = self.lock();
        let named: BTreeSet<u64> = sim.now.names.values().copied().collect();
        sim.now.files.retain(|inode, _| named.contains(inode));
        sim.base = sim.now.clone();
        sim.ops.clear();
    }

    /// The same disk as the next process finds it: what was not flushed is seen, and a power cut can still take it. Who
    /// holds this one changes nothing there.
    pub fn handed_on(&self) -> Self {
        let mut sim = self.lock().clone();
        (sim.calls, sim.faults) = (0, BTreeMap::new());
        let all_durable = sim.pending(sim.ops.len()).is_empty();
        let next = Self { shared: Arc::new(Mutex::new(sim)) };
        if all_durable {
            next.forget();
        }
        next
    }

    /// Which of the first `done` things could be lost by a power cut right after them.
    pub fn pending(&self, done: usize) -> Vec<usize> {
        self.lock().pending(done)
    }

    /// What a power cut after the first `done` things leaves, when each pending thing meets its fate.
    pub fn crash(&self, done: usize, fate: impl Fn(usize) -> Fate) -> Image {
        self.lock().crash(done, fate)
    }

    /// Whether a folder can be removed: it is there, and nothing is in it. Otherwise the attempt changes nothing, and is no
    /// changing call.
    ///
    /// # Errors
    /// As the attempt ends.
    pub fn may_remove_folder(&self, folder: &str) -> io::Result<()> {
        let sim = self.lock();
        if !sim.now.folders.contains(folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if sim.now.names.keys().any(|path| folder_of(path) == folder) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Sim> {
        // A test that panicked while holding it has failed already.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Image {
    /// The bytes of a file.
    pub fn file(&self, path: &str) -> Option<&[u8]> {
        self.names.get(path).and_then(|inode| self.files.get(inode)).map(Vec::as_slice)
    }

    /// The bytes of a file, to be changed.
    pub fn file_mut(&mut self, path: &str) -> Option<&mut Vec<u8>> {
        self.names.get(path).and_then(|inode| self.files.get_mut(inode))
    }

    /// Puts a file there, replacing one of the same name.
    pub fn put(&mut self, path: &str, bytes: Vec<u8>) {
        let inode = self.files.keys().next_back().map_or(0, |inode| inode + 1);
        self.files.insert(inode, bytes);
        self.names.insert(path.to_owned(), inode);
    }

    /// Takes a file away.
    pub fn take(&mut self, path: &str) -> Option<Vec<u8>> {
        self.names.remove(path).and_then(|inode| self.files.remove(&inode))
    }

    /// All names, sorted.
    pub fn paths(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// Sum of the lengths of all named files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.names.values().filter_map(|inode| self.files.get(inode)).map(|file| file.len() as u64).sum()
    }

    fn write(&mut self, inode: u64, offset: u64, bytes: &[u8], sectors: impl Fn(usize) -> bool) {
        let file = self.files.entry(inode).or_default();
        let offset = usize::try_from(offset).expect("simulated files fit in memory");
        if file.len() < offset + bytes.len() {
            file.resize(offset + bytes.len(), 0);
        }
        for (index, piece) in bytes.chunks(SECTOR).enumerate() {
            if sectors(index) {
                let at = offset + index * SECTOR;
                file[at..at + piece.len()].copy_from_slice(piece);
            }
        }
    }

    fn apply(&mut self, op: &Op, fate: &Fate) {
        match (op, fate) {
            (_, Fate::Lost) => {}
            (Op::Create { path, inode }, _) => {
                self.names.insert(path.clone(), *inode);
                self.files.entry(*inode).or_default();
            }
            (Op::Write { inode, offset, bytes }, fate) => self.write(*inode, *offset, bytes, |sector| match fate {
                Fate::OnlySectors(range) => range.contains(&sector),
                Fate::AllButSectors(range) => !range.contains(&sector),
                Fate::Kept | Fate::Lost => true,
            }),
            (Op::Rename { from, to, inode }, _) => {
                self.names.remove(from);
                self.names.insert(to.clone(), *inode);
                self.files.entry(*inode).or_default();
            }
            (Op::Remove { path }, _) => {
                self.names.remove(path);
            }
            (Op::MakeFolder { folder }, _) => {
                self.folders.insert(folder.clone());
            }
            (Op::RemoveFolder { folder }, _) => {
                self.folders.remove(folder);
            }
            (Op::Flush { .. } | Op::FlushFolder { .. }, _) => {}
        }
    }
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl Sim {
    fn pending(&self, done: usize) -> Vec<usize> {
        let ops = &self.ops[..done];
        let is_pending = |at: usize| {
            // The first flush decides: one that fails leaves its matter undecided for ever.
            let flushed = match &ops[at] {
                Op::Write { inode, .. } => ops[at..].iter().find_map(|later| match later {
                    Op::Flush { inode: flushed, ok } if flushed == inode => Some(*ok),
                    _ => None,
                }),
                Op::Create { path, .. } | Op::Rename { to: path, .. } | Op::Remove { path } => {
                    first_folder_flush(&ops[at..], folder_of(path))
                }
                Op::MakeFolder { folder } | Op::RemoveFolder { folder } => {
                    first_folder_flush(&ops[at..], folder_of(folder))
                }
                Op::Flush { .. } | Op::FlushFolder { .. } => Some(true),
            };
            flushed != Some(true)
        };
        (0..done).filter(|at| is_pending(*at)).collect()
    }

    fn crash(&self, done: usize, fate: impl Fn(usize) -> Fate) -> Image {
        let pending: BTreeSet<usize> = self.pending(done).into_iter().collect();
        let mut image = self.base.clone();
        for (at, op) in self.ops[..done].iter().enumerate() {
            let fate = if pending.contains(&at) { fate(at) } else { Fate::Kept };
            image.apply(op, &fate);
        }
        let folders = image.folders.clone();
        image.names.retain(|path, _| folders.contains(folder_of(path)));
        image
    }

    /// Counts a changing call, and says whether it fails.
    fn fault(&mut self) -> Option<Fault> {
        let fault = self.faults.remove(&self.calls);
        self.calls += 1;
        fault
    }

    fn run(&mut self, op: Op) {
        self.now.apply(&op, &Fate::Kept);
        self.ops.push(op);
    }

    fn inode(&self, path: &str) -> io::Result<u64> {
        self.now.names.get(path).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

fn first_folder_flush(ops: &[Op], folder: &str) -> Option<bool> {
    ops.iter().find_map(|later| match later {
        Op::FlushFolder { folder: flushed, ok } if flushed == folder => Some(*ok),
        _ => None,
    })
}

fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::Eio => io::Error::other("simulated device failure"),
        Fault::Full => io::Error::from(io::ErrorKind::StorageFull),
    }
}

impl Disk for SimDisk {
    fn list(&mut self, folder: &str) -> io::Result<Vec<Entry>> {
        let sim = self.lock();
        if !folder.is_empty() && !sim.now.folders.contains(folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let names = sim.now.names.iter().filter(|(path, _)| folder_of(path) == folder);
        let entry = |(path, inode): (&String, &u64)| Entry {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            len: sim.now.files.get(inode).map_or(0, |file| file.len() as u64),
            file: true,
        };
        Ok(names.map(entry).collect())
    }

    fn read(&mut self, path: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let sim = self.lock();
        let file = sim.now.file(path).ok_or(io::ErrorKind::NotFound)?;
        let rest = file.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        Ok(rest[..len.min(rest.len())].to_vec())
    }

    fn create(&mut self, path: &str) -> io::Result<()> {
        let mut sim = self.lock();
        if let Some(fault) = sim.fault() {
            return Err(error(fault));
        }
        if sim.now.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = sim.next_inode;
        sim.next_inode += 1;
        sim.run(Op::Create { path: path.to_owned(), inode });
        Ok(())
    }

    fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut sim = self.lock();
        let inode = sim.inode(path)?;
        let fault = sim.fault();
        let done = if fault.is_some() { bytes.len() / 2 / SECTOR * SECTOR } else { bytes.len() };
        sim.run(Op::Write { inode, offset, bytes: bytes[..done].to_vec() });
        fault.map_or(Ok(()), |fault| Err(error(fault)))
    }

    fn flush(&mut self, path: &str) -> io::Result<()> {
        let mut sim = self.lock();
        let inode = sim.inode(path)?;
        let fault = sim.fault();
        if sim.dishonest != Some(Dishonest::Files) {
            sim.run(Op::Flush { inode, ok: fault.is_none() });
        }
        fault.map_or(Ok(()), |fault| Err(error(fault)))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut sim = self.lock();
        let inode = sim.inode(from)?;
        if let Some(fault) = sim.fault() {
            return Err(error(fault));
        }
        sim.run(Op::Rename { from: from.to_owned(), to: to.to_owned(), inode });
        Ok(())
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        let mut sim = self.lock();
        sim.inode(path)?;
        if let Some(fault) = sim.fault() {
            return Err(error(fault));
        }
        sim.run(Op::Remove { path: path.to_owned() });
        Ok(())
    }

    fn make_folder(&mut self, folder: &str) -> io::Result<()> {
        let mut sim = self.lock();
        if let Some(fault) = sim.fault() {
            return Err(error(fault));
        }
        if !sim.now.folders.contains(folder) {
            sim.run(Op::MakeFolder { folder: folder.to_owned() });
        }
        Ok(())
    }

    fn remove_folder(&mut self, folder: &str) -> io::Result<()> {
        self.may_remove_folder(folder)?;
        let mut sim = self.lock();
        if let Some(fault) = sim.fault() {
            return Err(error(fault));
        }
        sim.run(Op::RemoveFolder { folder: folder.to_owned() });
        Ok(())
    }

    fn flush_folder(&mut self, folder: &str) -> io::Result<()> {
        let mut sim = self.lock();
        let fault = sim.fault();
        if sim.dishonest != Some(Dishonest::Folders) {
            sim.run(Op::FlushFolder { folder: folder.to_owned(), ok: fault.is_none() });
        }
        fault.map_or(Ok(()), |fault| Err(error(fault)))
    }
}
