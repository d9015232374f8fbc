//! The host's side of a worker: starting it, talking to it within a time, and ending it.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::{MAX_MESSAGE_BYTES, Ready, Start, WorkerError, frame};
use crate::confine::{ConfinementPolicy, Gap};

/// For a worker to start and say what it is confined by. It has read nothing of a stranger's by then.
const GREETING: Duration = Duration::from_secs(30);
/// For a worker to end after it said its last.
const LAST_MOMENTS: Duration = Duration::from_secs(10);
/// Bytes of what a dead worker wrote to its standard error that are looked at.
const MAX_LAST_WORDS: u64 = 16 << 10;

/// A running worker. Dropped, it is killed and waited for.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    stderr: Option<ChildStderr>,
    pub(crate) talk: Talk,
}

/// How a worker ended.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) status: ExitStatus,
    /// What it wrote to its standard error last, as far as it was waiting to be read.
    pub(crate) last_words: String,
}

impl WorkerProcess {
    /// Starts a worker. When this returns it is confined, up to the gaps that `start.policy` puts up with, which are
    /// logged.
    pub(crate) fn start(program: &Path, start: &Start) -> Result<Self, WorkerError> {
        let (ours, theirs) = UnixStream::pair().map_err(WorkerError::Start)?;
        let mut command = Command::new(program);
        command.args(super::arguments()).env_clear().current_dir("/");
        // The C library would set apart 64 MiB of address space for each thread.
        command.env("MALLOC_ARENA_MAX", "2");
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = spawn(command).map_err(WorkerError::Start)?;
        let stderr = child.stderr.take();
        let mut worker = Self { child, stderr, talk: Talk { socket: ours, until: Instant::now() + GREETING } };
        frame::write(&mut worker.talk, start).map_err(WorkerError::of_talk)?;
        let ready: Ready = frame::read(&mut worker.talk, MAX_MESSAGE_BYTES).map_err(WorkerError::of_talk)?;
        match start.policy {
            ConfinementPolicy::Required if !ready.gaps.is_empty() => return Err(WorkerError::Unconfined(ready.gaps)),
            _ => warn(&ready.gaps),
        }
        Ok(worker)
    }

    /// Says how it ended. One that does not end by itself after it closed its end of the socket, or when its time is
    /// over, is killed.
    pub(crate) fn end(mut self) -> io::Result<Ending> {
        if !self.ends_within(self.talk.left().unwrap_or_default().min(LAST_MOMENTS)) {
            self.kill()?;
        }
        let status = self.child.wait()?;
        Ok(Ending { status, last_words: self.last_words() })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn ends_within(&mut self, time: Duration) -> bool {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return true;
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let Some(Ok(handle)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return false };
        let Ok(time) = Timespec::try_from(time) else { return false };
        matches!(poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&time)), Ok(1))
    }

    pub(crate) fn kill(&mut self) -> io::Result<()> {
        // It leads a group, in which are those that it started, if it could.
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        self.child.kill()
    }

    fn last_words(&mut self) -> String {
        let Some(stderr) = self.stderr.take() else { return String::new() };
        let mut words = Vec::new();
        // Not waiting: somebody else might hold the other end.
        if rustix::io::ioctl_fionbio(&stderr, true).is_ok() {
            let _ = stderr.take(MAX_LAST_WORDS).read_to_end(&mut words);
        }
        String::from_utf8_lossy(&words).into_owned()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.kill();
            let _ = self.child.wait();
        }
    }
}

fn warn(gaps: &[Gap]) {
    for gap in gaps {
        tracing::warn!(target: "tidegate::wasm", "a child process is confined without {gap}");
    }
}

/// A socket whose every wait ends in time, with an error of the kind `WouldBlock` or `TimedOut`.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) socket: UnixStream,
    pub(crate) until: Instant,
}

impl Talk {
    fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for Talk {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(into)
    }
}

impl Write for Talk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// Starts a process from a thread that lives as long as this process does: what a child asked the kernel to do at its
/// parent's death happens as soon as the thread ends that started it.
fn spawn(command: Command) -> io::Result<Child> {
    type Request = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<Option<mpsc::Sender<Request>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, asked) = mpsc::channel::<Request>();
        let serve = move || {
            for (mut command, answer) in asked {
                // Nobody listens only if the asking thread is gone; the child is then not kept either.
                if let Err(mpsc::SendError(Ok(mut child))) = answer.send(command.spawn()) {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        };
        thread::Builder::new().name("tidegate-spawner".to_owned()).spawn(serve).ok().map(|_| requests)
    });
    let gone = || io::Error::other("no thread to start processes from");
    let (answer, answered) = mpsc::channel();
    spawner.as_ref().and_then(|requests| requests.send((command, answer)).ok()).ok_or_else(gone)?;
    answered.recv().map_err(|_| gone())?
}
