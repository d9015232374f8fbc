//! The lock that makes one process the owner of a log.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions};
use rustix::fs::{FlockOperation, flock};

use crate::StoreError;

const NAME: &str = "lock";
/// How often to begin again when the lock file is replaced between opening and locking it.
const TRIES: usize = 5;

/// Held for as long as this value lives; the system gives it up when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct DirLock {
    path: PathBuf,
    file: File,
}

impl DirLock {
    pub(crate) fn acquire(dir: &Dir, path: &Path) -> Result<DirLock, StoreError> {
        let file_path = path.join(NAME);
        let failed = |error: &io::Error| StoreError::io(&file_path, "lock", error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        for _ in 0..TRIES {
            let mut file = dir.open_with(NAME, &options).map_err(|error| failed(&error))?.into_std();
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StoreError::Locked { dir: path.to_owned(), pid: holder(&mut file) });
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(failed(&error.into())),
            }
            let lock = DirLock { path: file_path.clone(), file };
            if lock.check().is_err() {
                continue;
            }
            // For the message of who comes second; nothing hangs on it, so an error does not matter.
            let _ = lock.write_pid();
            return Ok(lock);
        }
        Err(StoreError::LockLost { file: file_path, detail: "it is replaced again and again".to_owned() })
    }

    /// Whether the path still leads to the file that is locked.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let lost = |detail: String| StoreError::LockLost { file: self.path.clone(), detail };
        let held = self.file.metadata().map_err(|error| lost(error.to_string()))?;
        let there = std::fs::symlink_metadata(&self.path).map_err(|error| lost(error.to_string()))?;
        if (held.dev(), held.ino()) == (there.dev(), there.ino()) {
            Ok(())
        } else {
            Err(lost("another file has its place".to_owned()))
        }
    }

    fn write_pid(&self) -> io::Result<()> {
        let mut file = &self.file;
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
