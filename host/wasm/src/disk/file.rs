//! Writing within a quota.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;

use super::account::{Account, Amount};
use crate::meter::KillSwitch;

/// A write of more than this is done in pieces: an instance that is closed ends it between two of them.
const PIECE: usize = 4 << 20;

/// What all who have one file open share.
pub(crate) struct SharedFile {
    account: Arc<Account>,
    /// Its length as it was charged. Held while the length changes, so that two writers do not both charge for one growth.
    bytes: Mutex<u64>,
    /// The same, for whoever only looks.
    seen: AtomicU64,
    /// Its last name is gone; its bytes are there until the last one closes it.
    nameless: AtomicBool,
    /// It is published: nobody writes to it any more.
    frozen: AtomicBool,
}

impl SharedFile {
    pub(crate) fn new(account: Arc<Account>, bytes: u64) -> Self {
        Self {
            account,
            bytes: Mutex::new(bytes),
            seen: AtomicU64::new(bytes),
            nameless: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
        }
    }

    /// Bytes that no walk finds, because they have no name.
    pub(crate) fn hidden(&self) -> u64 {
        if self.nameless.load(Ordering::Acquire) { self.seen.load(Ordering::Acquire) } else { 0 }
    }

    /// Its bytes are given back when nobody has it open any more.
    pub(crate) fn lose_last_name(&self) {
        self.nameless.store(true, Ordering::Release);
    }

    /// Refuses every write from now on. One that is running is waited for.
    pub(crate) fn freeze(&self) {
        self.frozen.store(true, Ordering::Release);
        drop(self.bytes.lock());
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        if self.nameless.load(Ordering::Acquire) {
            let bytes = *self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner);
            self.account.give_back(Amount::bytes(bytes));
        }
    }
}

/// Where the bytes of a write go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    At(u64),
    End,
}

/// A file open for writing, and who pays for what it grows by.
#[derive(Clone)]
pub(crate) struct Writable {
    pub(crate) file: Arc<File>,
    pub(crate) shared: Arc<SharedFile>,
    pub(crate) quota: Amount,
    pub(crate) kill: KillSwitch,
}

impl Writable {
    /// Writes all of `bytes`; answers where they end. On an error some may be there, and are paid for.
    pub(crate) fn write(&self, place: Place, bytes: &[u8]) -> io::Result<u64> {
        let mut length = self.length()?;
        let start = match place {
            Place::At(start) => start,
            Place::End => self.file.metadata()?.len(),
        };
        // `off_t` is signed.
        let end = start.checked_add(bytes.len() as u64).filter(|end| i64::try_from(*end).is_ok()).ok_or(Errno::FBIG)?;
        if bytes.is_empty() {
            return Ok(end);
        }
        let growth = end.saturating_sub(*length);
        self.charged(&mut length, growth, || {
            let mut at = start;
            for piece in bytes.chunks(PIECE) {
                if self.kill.is_killed() {
                    return (at, Err(Errno::INTR.into()));
                }
                match self.file.write_all_at(piece, at) {
                    Ok(()) => at = at.saturating_add(piece.len() as u64),
                    // How much of the piece is there only the file tells.
                    Err(error) => return (self.file.metadata().map_or(end, |found| found.len()), Err(error)),
                }
            }
            (end, Ok(()))
        })?;
        Ok(end)
    }

    /// Cuts or extends the file.
    pub(crate) fn set_size(&self, size: u64) -> io::Result<()> {
        let mut length = self.length()?;
        if size >= *length {
            let growth = size - *length;
            return self.charged(&mut length, growth, || match self.file.set_len(size) {
                Ok(()) => (size, Ok(())),
                Err(error) => (0, Err(error)),
            });
        }
        self.file.set_len(size)?;
        self.shared.account.give_back(Amount::bytes(*length - size));
        self.set_length(&mut length, size);
        Ok(())
    }

    fn set_length(&self, length: &mut u64, now: u64) {
        *length = now;
        self.shared.seen.store(now, Ordering::Release);
    }

    fn length(&self) -> io::Result<std::sync::MutexGuard<'_, u64>> {
        let length = self.shared.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.frozen.load(Ordering::Acquire) {
            return Err(Errno::PERM.into());
        }
        Ok(length)
    }

    /// Takes `growth` bytes from the quota, has them written, and gives back what was not needed. `work` answers how far
    /// the file reaches now.
    fn charged(&self, length: &mut u64, growth: u64, work: impl FnOnce() -> (u64, io::Result<()>)) -> io::Result<()> {
        let account = &self.shared.account;
        if growth > 0 && !account.take(Amount::bytes(growth), self.quota) {
            return Err(Errno::DQUOT.into());
        }
        let (reaches, result) = work();
        let grown = reaches.saturating_sub(*length).min(growth);
        self.set_length(length, length.saturating_add(grown));
        if growth > 0 {
            account.settle(Amount::bytes(growth), Amount::bytes(growth - grown));
        }
        result
    }
}
