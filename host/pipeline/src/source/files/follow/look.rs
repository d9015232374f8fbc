//! What is in the directories at one moment.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::source::SourceError;
use crate::source::files::discover;
use crate::source::files::position::FileId;

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
        Ok(Some(Self { name, path, id: FileId::of(&data), size: data.len(), modified }))
    }

    pub(super) fn at(name: &str, path: &Path) -> io::Result<Option<Self>> {
        Self::of(name.to_owned(), path.to_owned(), std::fs::metadata(path))
    }
}

/// Everything that the patterns match.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// Each file once, by one of its names.
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
        let mut look = Self::default();
        let mut paths = BTreeSet::new();
        for pattern in patterns {
            let absolute = Path::new(pattern).is_absolute();
            discover::search(base, pattern, &mut |found| {
                match found {
                    Ok(path) => {
                        let path = discover::normal(&path);
                        if paths.insert(path.clone()) {
                            look.see(base, path, absolute);
                        }
                    }
                    // It may come yet, or went while it was looked at.
                    Err(SourceError::NothingMatches { .. }) => {}
                    Err(SourceError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(problem) => look.problems.push(problem),
                }
                Ok(())
            })?;
        }
        look.files.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
        Ok(look)
    }

    fn see(&mut self, base: &Path, path: PathBuf, absolute: bool) {
        let data = std::fs::metadata(&path);
        let seen = discover::name(base, &path, absolute).and_then(|name| {
            Seen::of(name, path.clone(), data).map_err(|error| SourceError::Io { path: path.clone(), error })
        });
        match seen {
            Ok(seen) => self.files.extend(seen),
            Err(problem) => self.problems.push(problem),
        }
    }
}

/// All files directly in these directories, whether a pattern matches them or not.
pub(super) fn neighbours(base: &Path, folders: &BTreeSet<PathBuf>) -> Vec<Seen> {
    let mut all = Vec::new();
    for folder in folders {
        // What cannot be looked at is not found; that is told for the file that is missed.
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let Ok(name) = discover::name(base, &path, !path.starts_with(base)) else { continue };
            all.extend(Seen::at(&name, &path).ok().flatten());
        }
    }
    all.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
    all
}
