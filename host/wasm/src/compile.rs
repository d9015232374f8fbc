//! From a component's bytes to native code: in a worker of its own with limits, so that a component that the compiler
//! cannot cope with costs that worker and an error.

pub(crate) mod job;
mod slots;

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use wasmtime::Engine;

use crate::compile::job::{Answer, Refusal, Settings};
use crate::compile::slots::Slots;
use crate::confine::{Confinement, ConfinementPolicy};
use crate::engine;
use crate::error::{AdmitError, WasmError};
use crate::text::clean;
use crate::worker::process::{Ending, WorkerProcess};
use crate::worker::{Start, Task, Worker, WorkerError, frame};

/// Bytes of a worker's answer without the code.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// What compiling one component may take, and how many are compiled at once. In [`Worker::InProcess`] only
/// `workers` and `queue` hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileLimits {
    /// Bytes of address space of the worker.
    pub memory_bytes: u64,
    /// Processor time of all threads of the worker together, rounded up to seconds.
    pub cpu_time: Duration,
    /// Wall-clock time from the worker's start to its answer.
    pub wall_time: Duration,
    /// Bytes of compiled code that are accepted.
    pub code_bytes: usize,
    /// Threads that compile one component.
    pub threads: usize,
    /// Components that are compiled at once.
    pub workers: usize,
    /// Admissions that wait for their turn; one more is refused.
    pub queue: usize,
}

impl Default for CompileLimits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            memory_bytes: 3 << 30,
            cpu_time: Duration::from_secs(300),
            wall_time: Duration::from_secs(300),
            code_bytes: 512 << 20,
            threads: cores.min(4),
            workers: 2,
            queue: 64,
        }
    }
}

/// Compiles components, a few at once.
pub(crate) struct Compiler {
    worker: Worker,
    policy: ConfinementPolicy,
    limits: CompileLimits,
    slots: Slots,
}

impl Compiler {
    /// Checks that workers can be started and confined as `policy` says.
    pub(crate) fn new(worker: Worker, policy: ConfinementPolicy, limits: CompileLimits) -> Result<Self, WasmError> {
        let compiler = Self { worker, policy, slots: Slots::new(limits.workers, limits.queue), limits };
        if let Worker::Program(program) = &compiler.worker {
            compiler.start(program, Task::Probe).map_err(|error| WasmError::Worker { detail: error.to_string() })?;
        }
        Ok(compiler)
    }

    /// Compiles a component once it is its turn, unless `have` finds then that another admission did so meanwhile.
    pub(crate) fn compile<T>(
        &self,
        plugin: &str,
        engine: &Engine,
        bytes: &[u8],
        have: impl FnOnce() -> Option<T>,
        take: impl FnOnce(Vec<u8>) -> Result<T, AdmitError>,
    ) -> Result<T, AdmitError> {
        let _slot = self.slots.take().map_err(|waiting| AdmitError::Busy { plugin: plugin.to_owned(), waiting })?;
        if let Some(compiled) = have() {
            return Ok(compiled);
        }
        let code = match &self.worker {
            Worker::InProcess => job::compile(engine, bytes).map_err(|refusal| refused(plugin, refusal))?,
            Worker::Program(program) => self.compile_in(program, plugin, engine, bytes)?,
        };
        take(code)
    }

    fn start(&self, program: &Path, task: Task) -> Result<WorkerProcess, WorkerError> {
        WorkerProcess::start(program, &Start { confinement: self.confinement(), policy: self.policy, task })
    }

    fn confinement(&self) -> Confinement {
        let limits = &self.limits;
        let seconds = limits.cpu_time.as_secs() + u64::from(limits.cpu_time.subsec_nanos() > 0);
        Confinement {
            address_space: Some(limits.memory_bytes),
            cpu_seconds: Some(seconds.max(1)),
            // The standard streams and the socket: there is nothing to open.
            open_files: Some(4),
            file_bytes: Some(0),
            // Those that compile, the first one, and the one that watches the parent.
            threads: Some(limits.threads.max(1) as u64 + 2),
            nice: 10,
            ..Confinement::default()
        }
    }

    fn compile_in(&self, program: &Path, plugin: &str, engine: &Engine, bytes: &[u8]) -> Result<Vec<u8>, AdmitError> {
        let host_failed =
            |error: WorkerError| AdmitError::Worker { plugin: plugin.to_owned(), detail: error.to_string() };
        let until = Instant::now() + self.limits.wall_time;
        let settings = Settings { engine: engine::id(engine), threads: self.limits.threads.max(1) };
        let mut worker = self.start(program, Task::Compile(settings)).map_err(host_failed)?;
        worker.talk.until = until;
        let answer = ask(&mut worker, bytes, self.limits.code_bytes);
        match answer {
            Ok((Answer::Compiled, code)) => Ok(code),
            Ok((Answer::Refused(refusal), _)) => Err(refused(plugin, refusal)),
            Ok((Answer::AnotherEngine(engine), _)) => {
                let detail = format!(
                    "the child process compiles for another engine ({}) than this process runs; both must be the same \
                     version of the program, on the same machine",
                    clean(&engine, 100)
                );
                Err(AdmitError::Worker { plugin: plugin.to_owned(), detail })
            }
            Ok((Answer::TooMuchCode(size), _)) => Err(self.too_much(plugin, Spent::Code(size))),
            Err(error) => {
                let error = WorkerError::of_talk(error);
                if matches!(error, WorkerError::Late) {
                    return Err(self.too_much(plugin, Spent::WallTime));
                }
                match worker.end() {
                    Ok(ending) => Err(self.died(plugin, &ending, &error)),
                    Err(error) => Err(host_failed(WorkerError::Broken(error))),
                }
            }
        }
    }

    fn died(&self, plugin: &str, ending: &Ending, error: &WorkerError) -> AdmitError {
        // The words of the standard library, of Cranelift, and of the kernel.
        const OUT_OF_MEMORY: [&str; 3] = ["memory allocation of", "out of memory", "Cannot allocate memory"];
        let signal = ending.status.signal().and_then(Signal::from_named_raw);
        let words = clean(ending.last_words.trim(), 500);
        if signal == Some(Signal::XCPU) {
            return self.too_much(plugin, Spent::CpuTime);
        }
        if OUT_OF_MEMORY.iter().any(|sign| ending.last_words.contains(sign)) {
            return self.too_much(plugin, Spent::Memory);
        }
        let words = if words.is_empty() { error.to_string() } else { words };
        AdmitError::Compiler { plugin: plugin.to_owned(), detail: format!("{} ({words})", ending.status) }
    }

    fn too_much(&self, plugin: &str, spent: Spent) -> AdmitError {
        let limits = &self.limits;
        let (limit, key) = match spent {
            Spent::Memory => (format!("{} bytes of memory", limits.memory_bytes), "compile-memory"),
            Spent::CpuTime => (format!("{:?} of processor time", limits.cpu_time), "compile-cpu-time"),
            Spent::WallTime => (format!("{:?} of wall-clock time", limits.wall_time), "compile-time"),
            Spent::Code(size) => {
                let detail = format!("{size} bytes of compiled code; allowed are {}", limits.code_bytes);
                return AdmitError::CompileLimit { plugin: plugin.to_owned(), detail, key: "compile-code" };
            }
        };
        AdmitError::CompileLimit { plugin: plugin.to_owned(), detail: format!("more than the allowed {limit}"), key }
    }
}

enum Spent {
    Memory,
    CpuTime,
    WallTime,
    Code(u64),
}

fn refused(plugin: &str, refusal: Refusal) -> AdmitError {
    let plugin = plugin.to_owned();
    let detail = clean(&refusal.detail, 1000);
    match refusal.proposals.is_empty() {
        true => AdmitError::Compile { plugin, detail },
        false => {
            let proposals = refusal.proposals.iter().map(|proposal| clean(proposal, 100)).collect();
            AdmitError::Proposals { plugin, proposals, detail }
        }
    }
}

/// Hands over the component and waits for the answer, and for the code that follows it.
fn ask(worker: &mut WorkerProcess, bytes: &[u8], max_code: usize) -> std::io::Result<(Answer, Vec<u8>)> {
    frame::write(&mut worker.talk, &(max_code as u64))?;
    frame::write_bytes(&mut worker.talk, bytes)?;
    let answer = frame::read(&mut worker.talk, MAX_ANSWER_BYTES)?;
    let code = match &answer {
        Answer::Compiled => frame::read_bytes(&mut worker.talk, max_code)?,
        _ => Vec::new(),
    };
    Ok((answer, code))
}
