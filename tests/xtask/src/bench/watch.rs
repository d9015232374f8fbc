//! When names appear in a directory, told by the kernel and not by the product.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread::JoinHandle;

use anyhow::{Result, bail, ensure};

/// A name that appeared.
#[derive(Debug, Clone)]
pub(super) struct Appeared {
    /// Which of the watched folders.
    pub(super) folder: usize,
    /// The name.
    pub(super) name: String,
    /// When we were told, on the monotonic clock, in nanoseconds: never before it happened.
    pub(super) at_ns: u64,
}

/// Nanoseconds on the clock that all processes of this machine share.
pub(super) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live, writable `timespec`; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Watches folders until it is dropped.
pub(super) struct Watch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
    /// What appeared, in order.
    pub(super) names: Receiver<Appeared>,
}

impl Watch {
    /// Starts watching folders, which must exist.
    pub(super) fn start(folders: &[PathBuf]) -> Result<Self> {
        // SAFETY: takes flags and answers with a descriptor or an error.
        let descriptor = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        ensure!(descriptor >= 0, "inotify: {}", std::io::Error::last_os_error());
        // SAFETY: the descriptor is new and nobody else's.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut watches = Vec::new();
        for folder in folders {
            watches.push(add(&descriptor, folder)?);
        }
        let (sender, names) = mpsc::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0_u8; 64 << 10];
            while !flag.load(Ordering::Relaxed) {
                let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one live, writable `pollfd`, and its number.
                let ready = unsafe { libc::poll(&mut poll, 1, 100) };
                if ready <= 0 {
                    continue;
                }
                // SAFETY: the buffer is live, writable and as long as said.
                let read = unsafe { libc::read(descriptor.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
                let at_ns = monotonic_ns();
                let Ok(read) = usize::try_from(read) else { continue };
                for (watch, name) in events(&buffer[..read])? {
                    let Some(folder) = watches.iter().position(|known| *known == watch) else { continue };
                    if sender.send(Appeared { folder, name, at_ns }).is_err() {
                        return Ok(());
                    }
                }
            }
            Ok(())
        });
        Ok(Self { stop, thread: Some(thread), names })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => eprintln!("watching a folder: {error:#}"),
                Err(_) => eprintln!("watching a folder: panicked"),
            }
        }
    }
}

fn add(descriptor: &OwnedFd, folder: &Path) -> Result<i32> {
    let name = CString::new(folder.as_os_str().as_encoded_bytes())?;
    let events = libc::IN_CREATE | libc::IN_MOVED_TO;
    // SAFETY: a live descriptor and a string that ends in NUL.
    let watch = unsafe { libc::inotify_add_watch(descriptor.as_raw_fd(), name.as_ptr(), events) };
    ensure!(watch >= 0, "cannot watch `{}`: {}", folder.display(), std::io::Error::last_os_error());
    Ok(watch)
}

/// Takes the kernel's events apart: watch, mask, cookie and length of four bytes each, then the padded name.
fn events(mut bytes: &[u8]) -> Result<Vec<(i32, String)>> {
    let mut events = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(16) {
        let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
        if u32::from_ne_bytes(word(4)) & libc::IN_Q_OVERFLOW != 0 {
            bail!("names appeared faster than they could be taken");
        }
        let length = usize::try_from(u32::from_ne_bytes(word(12)))?;
        let Some((name, rest)) = rest.split_at_checked(length) else { bail!("an event was cut off") };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        events.push((i32::from_ne_bytes(word(0)), String::from_utf8_lossy(name).into_owned()));
        bytes = rest;
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_name_that_appears_is_told_with_its_folder_and_time() {
        let folder = std::env::temp_dir().join(format!("tidegate-watch-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a")).expect("a folder can be made");
        std::fs::create_dir_all(folder.join("b")).expect("a folder can be made");
        let watch = Watch::start(&[folder.join("a"), folder.join("b")]).expect("folders can be watched");
        let before = monotonic_ns();
        std::fs::write(folder.join("x"), "").expect("a file can be written");
        std::fs::hard_link(folder.join("x"), folder.join("b/linked")).expect("a file can be linked");
        let seen = watch.names.recv_timeout(Duration::from_secs(30)).expect("it is told");
        assert_eq!((seen.folder, seen.name.as_str()), (1, "linked"));
        assert!(seen.at_ns > before);
        drop(watch);
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }
}
