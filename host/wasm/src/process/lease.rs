//! Knowing that no child process of an earlier run is left.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::WasmError;

/// How often it is looked whether the lock is free.
const LOOK: Duration = Duration::from_millis(10);

/// A lock on a file that this process shares with the children that work for a pipeline. The kernel gives it up when
/// the last of them has closed it, which a killed process does after its last system call. Clones are the same lock.
#[derive(Debug, Clone)]
pub struct Lease(Arc<File>);

impl Lease {
    /// Waits until nobody holds the lock on the file, which is created if missing, and takes it. Blocks.
    ///
    /// # Errors
    /// The file cannot be locked, or an earlier run's child is still there after `patience`.
    pub fn take(path: &Path, patience: Duration) -> Result<Self, WasmError> {
        let fail = |detail: String| WasmError::Lease { path: path.to_owned(), detail };
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = file.map_err(|error| fail(format!("it cannot be opened: {error}")))?;
        let until = Instant::now() + patience;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(Arc::new(file))),
                Err(Errno::INTR) => {}
                #[expect(
                    clippy::disallowed_methods,
                    reason = "at a start, which has no runtime yet; the lock tells nobody"
                )]
                Err(Errno::WOULDBLOCK) if Instant::now() < until => thread::sleep(LOOK),
                Err(Errno::WOULDBLOCK) => {
                    return Err(fail(format!(
                        "a child process of an earlier run still works for this pipeline after {patience:?}; it was told \
                         to end, and may sit in a system call: look for a process that has this file open, and for the \
                         disk that it waits for"
                    )));
                }
                Err(error) => return Err(fail(format!("it cannot be locked: {error}"))),
            }
        }
    }
}

impl AsFd for Lease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_free_when_its_last_holder_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lease");
        let lease = Lease::take(&path, Duration::ZERO).unwrap();
        let childs = rustix::io::dup(&lease).unwrap();
        drop(lease);
        let error = Lease::take(&path, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("an earlier run") && error.contains("lease"), "{error}");
        drop(childs);
        Lease::take(&path, Duration::ZERO).unwrap();
    }
}
