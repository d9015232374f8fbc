//! Child processes of the same program, which do for the host what a stranger's bytes could break.
//!
//! A worker is started with a private argument, an empty environment, and one end of a socket pair as its standard input.
//! It ties its life to its parent's, puts itself under the [`Confinement`](crate::confine::Confinement) that the parent
//! sent, says which part of that was denied, and only then reads what it is to work on.

pub(crate) mod frame;
pub(crate) mod process;

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fmt, io, process as std_process};

use serde::{Deserialize, Serialize};

use crate::compile::job;
use crate::confine::{self, Confinement, ConfinementPolicy, Gap};
use crate::error::WasmError;
use crate::process::child;

/// The argument that makes a program a worker; the id of its parent follows.
const MARKER: &str = "--tidegate-worker";
/// Exit code of a worker that was not confined as its parent requires.
const UNCONFINED: i32 = 3;
/// Exit code of a worker that its parent said nothing sensible to.
const ABANDONED: i32 = 4;
/// Bytes of a message that the parent sends to start a worker, or that one answers with.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

static ASKED: AtomicBool = AtomicBool::new(false);

/// Where plugins are compiled, and which program runs those of a tenant with a process of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Worker {
    /// In this process. A component that takes very much time or memory to compile, or meets a bug of the compiler,
    /// then takes this process along: for plugins that are trusted, and for tests.
    #[default]
    InProcess,
    /// In child processes of this program, which calls [`run_if_asked`] first thing in its `main`.
    Program(PathBuf),
}

impl Worker {
    /// Child processes of the running program.
    ///
    /// # Errors
    /// Its `main` did not call [`run_if_asked`]: started once more it would not know what it is there for.
    pub fn this_program() -> Result<Self, WasmError> {
        if ASKED.load(Ordering::Acquire) {
            // Not by its name: that may belong to a newer version by now.
            return Ok(Worker::Program("/proc/self/exe".into()));
        }
        let detail = "plugins are compiled in child processes of this program, and it does not call \
                      tidegate_wasm::worker::run_if_asked() first thing in main; add that call, or choose \
                      Worker::InProcess for plugins that are trusted";
        Err(WasmError::Worker { detail: detail.to_owned() })
    }
}

/// Must be called first thing in `main` by every program that compiles plugins, before it starts a thread or opens a
/// file. In a process that was started as a worker it works, and does not return.
pub fn run_if_asked() {
    ASKED.store(true, Ordering::Release);
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(MARKER)) {
        return;
    }
    let parent = arguments.next().as_deref().and_then(OsStr::to_str).and_then(|id| id.parse().ok());
    std_process::exit(parent.map_or(ABANDONED, serve));
}

/// What is said to a worker first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) confinement: Confinement,
    pub(crate) policy: ConfinementPolicy,
    pub(crate) task: Task,
}

/// What a worker is there for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// To say what could not be applied, no more.
    Probe,
    /// To compile one component.
    Compile(job::Settings),
    /// To run the plugins of one tenant.
    Host(child::Settings),
}

/// What a worker answers first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) gaps: Vec<Gap>,
}

fn serve(parent: u32) -> i32 {
    if !confine::die_with_parent(parent) {
        return ABANDONED;
    }
    // SAFETY: `run_if_asked` comes first in `main`: nothing was opened yet but the standard streams.
    if unsafe { confine::close_inherited() }.is_err() {
        return UNCONFINED;
    }
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return ABANDONED };
    let mut socket = UnixStream::from(socket);
    let Ok(start) = frame::read::<Start>(&mut socket, MAX_MESSAGE_BYTES) else { return ABANDONED };
    let gaps = start.confinement.apply();
    let enough = gaps.is_empty() || start.policy == ConfinementPolicy::IfPossible;
    // Other credentials may have undone it.
    if frame::write(&mut socket, &Ready { gaps }).is_err() || !confine::die_with_parent(parent) {
        return ABANDONED;
    }
    if !enough {
        return UNCONFINED;
    }
    match start.task {
        Task::Probe => 0,
        Task::Compile(settings) => job::serve(socket, &settings),
        Task::Host(settings) => child::serve(socket, &settings),
    }
}

fn arguments() -> [OsString; 2] {
    [MARKER.into(), std_process::id().to_string().into()]
}

/// Why a worker is of no use.
#[derive(Debug)]
pub(crate) enum WorkerError {
    /// It cannot be started.
    Start(io::Error),
    /// A part of the confinement was denied.
    Unconfined(Vec<Gap>),
    /// It did not answer within the time it has.
    Late,
    /// It ended, or sent what makes no sense.
    Broken(io::Error),
}

impl WorkerError {
    pub(crate) fn of_talk(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => WorkerError::Late,
            _ => WorkerError::Broken(error),
        }
    }
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerError::Start(error) => write!(f, "a child process cannot be started: {error}"),
            WorkerError::Unconfined(gaps) => {
                let gaps: Vec<_> = gaps.iter().map(Gap::to_string).collect();
                write!(
                    f,
                    "child processes cannot be confined on this machine: {}; allow it in the kernel or the container, or \
                     set `confinement = \"if-possible\"` under [host] to do without",
                    gaps.join(", ")
                )
            }
            WorkerError::Late => f.write_str("a child process does not answer"),
            WorkerError::Broken(error) => write!(f, "a child process broke off: {error}"),
        }
    }
}
