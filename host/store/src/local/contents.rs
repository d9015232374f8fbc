//! The files that make up a log, for whoever carries a log elsewhere as a whole.

use std::io;
use std::path::Path;

use super::layout::{self, LOG_FOLDER, Named, STATE_FOLDER};
use super::{LocalLog, make_directory};
use crate::StoreError;

/// One file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Relative to the log's directory, with `/` between folder and name.
    pub path: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Folders that a log's directory has, whether or not they hold something.
pub const FOLDERS: [&str; 2] = [LOG_FOLDER, STATE_FOLDER];
/// No file of a log is longer: the largest record or piece, with room for the sectors around it.
pub const LONGEST_FILE: u64 = 128 << 20;

/// Whether a log may hold a file of this path: of a segment, or of a piece of state. Nothing else, however it is spelled.
pub fn belongs(path: &str) -> bool {
    match path.split_once('/') {
        Some((LOG_FOLDER, name)) => matches!(layout::log_name(name), Named::Segment(_)),
        Some((STATE_FOLDER, name)) => matches!(layout::state_name(name), Named::Chunk),
        _ => false,
    }
}

/// Whether a file of this path may be left from something that was cut short.
pub fn is_unfinished(path: &str) -> bool {
    match path.split_once('/') {
        Some((LOG_FOLDER, name)) => matches!(layout::log_name(name), Named::Unfinished),
        Some((STATE_FOLDER, name)) => matches!(layout::state_name(name), Named::Unfinished),
        _ => false,
    }
}

/// Makes a directory and those above it, and makes their names durable.
///
/// # Errors
/// The system refused.
pub fn make_directory_durably(dir: &Path) -> Result<(), StoreError> {
    make_directory(dir)
}

impl LocalLog {
    /// All files that make up this log, in order of their paths. They do not change while the caller does nothing with
    /// the log.
    ///
    /// # Errors
    /// A folder cannot be read, or holds something that does not belong there.
    pub fn contents(&mut self) -> Result<Vec<LogFile>, StoreError> {
        self.check_poison()?;
        let mut files = Vec::new();
        for folder in FOLDERS {
            let entries =
                self.disk.list(folder).map_err(|error| StoreError::io(self.dir.join(folder), "list", &error))?;
            for entry in entries {
                let path = format!("{folder}/{}", entry.name);
                if entry.file && belongs(&path) {
                    files.push(LogFile { path, bytes: entry.len });
                } else if !is_unfinished(&path) {
                    return Err(StoreError::ForeignFile { file: self.dir.join(path) });
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(files)
    }

    /// Reads a part of one of its files; fewer bytes at the end.
    ///
    /// # Errors
    /// It is not one of the log's files, or cannot be read.
    pub fn read_file(&mut self, path: &str, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        self.check_poison()?;
        let file = self.dir.join(path);
        if !belongs(path) {
            return Err(StoreError::io(&file, "read", &io::ErrorKind::NotFound.into()));
        }
        self.disk.read(path, offset, len).map_err(|error| StoreError::io(&file, "read", &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_log_belong_to_it() {
        assert!(belongs("log/00000000000000000001.log") && belongs(&format!("state/{}", "a".repeat(64))));
        for foreign in [
            "lock",
            "log",
            "log/",
            "log/x",
            "/log/00000000000000000001.log",
            "log/../lock",
            "log//00000000000000000001.log",
            "log/00000000000000000001.log.tmp",
            "./log/00000000000000000001.log",
            "state/../../x",
            "",
        ] {
            assert!(!belongs(foreign), "{foreign}");
        }
        assert!(is_unfinished("log/00000000000000000001.log.tmp") && !is_unfinished("log/x.tmp"));
    }
}
