//! What is in the directories at one moment.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::source::SourceError;
use crate::source::files::discover;
use crate::source::files::position::{FileId, open_file};

/// When a file was created, if the disk tells, and when it was changed last.
pub(super) type Age = (Option<u64>, (i64, i64));

/// A file as it was seen.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// As partitions are named.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) id: FileId,
    pub(super) size: u64,
    /// When its content was changed last, in seconds and nanoseconds.
    pub(super) modified: (i64, i64),
    /// Its other names that were seen: hard and symbolic links.
    pub(super) also: Vec<(String, PathBuf)>,
}

impl Seen {
    /// `None` if it is no file, or not there any more.
    fn of(name: String, path: PathBuf, data: io::Result<Metadata>) -> io::Result<Option<Self>> {
        let data = match data {
            Ok(data) if data.is_file() => data,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let modified = (data.mtime(), data.mtime_nsec());
        Ok(Some(Self { name, path, id: FileId::of(&data), size: data.len(), modified, also: Vec::new() }))
    }

    pub(super) fn at(name: &str, path: &Path) -> io::Result<Option<Self>> {
        Self::of(name.to_owned(), path.to_owned(), std::fs::metadata(path))
    }

    /// That file, which was under this name before, if it has another one in its directory by now.
    pub(super) fn renamed(name: &str, path: &Path, id: &FileId) -> Option<Self> {
        let path = renamed(path, id)?;
        let last = path.file_name()?.to_str()?;
        let name = name.rsplit_once('/').map_or_else(|| last.to_owned(), |(folder, _)| format!("{folder}/{last}"));
        Self::at(&name, &path).ok().flatten().filter(|seen| id.is(&seen.id))
    }

    /// That file, and no other one that has taken its path.
    pub(super) fn open(&self) -> io::Result<(File, u64)> {
        let (file, data) = open_file(&self.path)?;
        if (data.dev(), data.ino()) != (self.id.dev, self.id.ino) {
            return Err(io::Error::other("another file is there now"));
        }
        Ok((file, data.len()))
    }

    /// Looks at it again. Whether it is still there.
    pub(super) fn refresh(&mut self) -> bool {
        match Self::at(&self.name, &self.path) {
            Ok(Some(now)) if now.id == self.id => {
                (self.size, self.modified) = (now.size, now.modified);
                true
            }
            _ => false,
        }
    }

    /// As of a generation.
    pub(super) fn age(&self) -> Age {
        (self.id.born, self.modified)
    }

    /// Whether it is neither older than a file was, nor was changed before that file was changed last.
    pub(super) fn is_since(&self, (born, modified): Age) -> bool {
        self.id.born >= born && self.modified >= modified
    }

    /// Takes that name, if it is one of its own.
    pub(super) fn call(&mut self, name: &str) {
        if let Some(at) = self.also.iter().position(|(other, _)| other == name) {
            let (name, path) = self.also.swap_remove(at);
            let before = (std::mem::replace(&mut self.name, name), std::mem::replace(&mut self.path, path));
            self.also.push(before);
        }
    }

    /// Adds the names of what is the same file. The best name comes first: one that is no link, then the first by the
    /// alphabet.
    pub(super) fn join(&mut self, other: Self) {
        let rank = |path: &Path| {
            let link = std::fs::symlink_metadata(path).is_ok_and(|data| data.is_symlink());
            (link, std::fs::canonicalize(path).is_ok_and(|real| real != path))
        };
        self.also.push((other.name, other.path));
        let best = self.also.iter().map(|(name, path)| (rank(path), name)).min();
        if let Some((_, name)) = best.filter(|best| *best < (rank(&self.path), &self.name)) {
            let name = name.clone();
            self.call(&name);
        }
        self.also.extend(other.also);
    }
}

/// Opens that file: under its path, or, if it is to be searched for, under the name that it has in its directory by now.
pub(super) fn open_same(path: &Path, id: Option<FileId>, search: bool) -> io::Result<Option<File>> {
    let is = |data: &Metadata| id.is_none_or(|id| (id.dev, id.ino) == (data.dev(), data.ino()));
    match open_file(path) {
        Ok((file, data)) if is(&data) => return Ok(Some(file)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let renamed = id.filter(|_| search).and_then(|id| renamed(path, &id));
    Ok(renamed.and_then(|path| open_file(&path).ok()).filter(|(_, data)| is(data)).map(|(file, _)| file))
}

/// Where that file is by now in the directory of this path.
fn renamed(path: &Path, id: &FileId) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(path.parent()?).ok()?.flatten();
    entries.find(|entry| entry.ino() == id.ino).map(|entry| entry.path())
}

/// Files by what they are: one that is found again adds its names to the first.
#[derive(Debug, Default)]
struct Unique {
    files: Vec<Seen>,
    by_id: HashMap<(u64, u64), usize>,
}

impl Unique {
    fn add(&mut self, seen: Seen) {
        match self.by_id.entry((seen.id.dev, seen.id.ino)) {
            std::collections::hash_map::Entry::Occupied(first) => self.files[*first.get()].join(seen),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(self.files.len());
                self.files.push(seen);
            }
        }
    }
}

/// Everything that the patterns match.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Each file once, in no order.
    pub(super) files: Vec<Seen>,
    /// What could not be looked at.
    pub(super) problems: Vec<SourceError>,
}

impl Look {
    /// Blocking.
    ///
    /// # Errors
    /// A pattern is none. Everything else is a problem that may go away.
    pub(super) fn take(base: &Path, patterns: &[String]) -> Result<Self, SourceError> {
        let mut files = Unique::default();
        let mut problems = Vec::new();
        let mut paths = HashSet::new();
        for pattern in patterns {
            let absolute = Path::new(pattern).is_absolute();
            discover::search(base, pattern, &mut |found| {
                match found {
                    Ok(path) => {
                        let path = discover::normal(&path);
                        if patterns.len() == 1 || paths.insert(path.clone()) {
                            match see(base, path, absolute) {
                                Ok(seen) => seen.into_iter().for_each(|seen| files.add(seen)),
                                Err(problem) => problems.push(problem),
                            }
                        }
                    }
                    // It may come yet, or went while it was looked at.
                    Err(SourceError::NothingMatches { .. }) => {}
                    Err(SourceError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(problem) => problems.push(problem),
                }
                Ok(())
            })?;
        }
        Ok(Self { files: files.files, problems })
    }

    /// All paths under which files were found.
    pub(super) fn paths(&self) -> Paths {
        let also = self.files.iter().flat_map(|seen| seen.also.iter().map(|(_, path)| path.clone()));
        let all = self.files.iter().map(|seen| seen.path.clone()).chain(also).collect();
        Paths { all, set: OnceCell::new() }
    }
}

/// Very many paths, about which most of the time nobody asks.
pub(super) struct Paths {
    all: Vec<PathBuf>,
    set: OnceCell<HashSet<PathBuf>>,
}

impl Paths {
    pub(super) fn contains(&self, path: &Path) -> bool {
        self.set.get_or_init(|| self.all.iter().cloned().collect()).contains(path)
    }
}

/// The oldest first.
pub(super) fn sort(files: &mut [Seen]) {
    files.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
}

fn see(base: &Path, path: PathBuf, absolute: bool) -> Result<Option<Seen>, SourceError> {
    let data = std::fs::metadata(&path);
    let name = discover::name(base, &path, absolute)?;
    Seen::of(name, path.clone(), data).map_err(|error| SourceError::Io { path, error })
}

/// How often directories are listed until nothing moves in them any more.
const LISTINGS: usize = 10;

/// All files directly in some directories, whether a pattern matches them or not.
pub(super) struct Around {
    /// The oldest first.
    pub(super) files: Vec<Seen>,
    pub(super) problems: Vec<SourceError>,
    /// None was missed.
    pub(super) complete: bool,
}

/// What is directly in these directories. A listing may miss a file that is renamed while it is made, so another one is
/// made until it shows what the one before did.
pub(super) fn neighbours(base: &Path, folders: &BTreeSet<PathBuf>) -> Around {
    let mut listing = Listing::of(folders);
    let mut seen = HashMap::new();
    let mut complete = false;
    for _ in 0..LISTINGS {
        for (path, inode) in &listing.entries {
            if seen.get(path).is_none_or(|(known, _)| known != inode) {
                seen.insert(path.clone(), (*inode, see_neighbour(base, path)));
            }
        }
        let again = Listing::of(folders);
        complete = again.entries == listing.entries;
        seen.retain(|path, (inode, _)| again.entries.get(path) == Some(inode));
        listing = again;
        if complete {
            break;
        }
    }
    let mut all = Unique::default();
    for (_, (_, seen)) in seen {
        seen.into_iter().for_each(|seen| all.add(seen));
    }
    sort(&mut all.files);
    Around { files: all.files, problems: listing.problems, complete }
}

/// What leads nowhere, or where nobody may look, is no file of a directory.
fn see_neighbour(base: &Path, path: &Path) -> Option<Seen> {
    let name = discover::name(base, path, !path.starts_with(base)).ok()?;
    Seen::at(&name, path).ok().flatten()
}

/// Names and inodes, as directories tell of them.
#[derive(Default)]
struct Listing {
    entries: HashMap<PathBuf, u64>,
    problems: Vec<SourceError>,
}

impl Listing {
    fn of(folders: &BTreeSet<PathBuf>) -> Self {
        let mut listing = Self::default();
        for folder in folders {
            match std::fs::read_dir(folder) {
                Ok(entries) => listing.entries.extend(entries.flatten().map(|entry| (entry.path(), entry.ino()))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => listing.problems.push(SourceError::Io { path: folder.clone(), error }),
            }
        }
        listing
    }
}
