//! Compiling one component: what a worker does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::{env, io, process, thread};

use serde::{Deserialize, Serialize};
use wasmparser::{Validator, WasmFeatures};
use wasmtime::Engine;

use crate::engine;
use crate::limits::{HostLimits, MAX_COMPONENT_BYTES};
use crate::worker::frame;

/// What the host tells a worker about the job.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The host's [`engine::id`].
    pub(crate) engine: String,
    /// Threads to compile with.
    pub(crate) threads: usize,
}

/// What a worker answers. The code follows [`Answer::Compiled`] as bytes of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Compiled,
    Refused(Refusal),
    /// Its engine is not the host's.
    AnotherEngine(String),
    /// So many bytes of code came out.
    TooMuchCode(u64),
}

/// Why a component does not compile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) detail: String,
    /// Proposals that it needs and that are switched off.
    pub(crate) proposals: Vec<String>,
}

/// Proposals that are switched off, with the names by which toolchains know them. One that implies another comes before
/// it.
const PROPOSALS: [(WasmFeatures, &str); 21] = [
    (WasmFeatures::SHARED_EVERYTHING_THREADS, "shared-everything-threads"),
    (WasmFeatures::THREADS, "threads (shared memories and atomics)"),
    (WasmFeatures::MEMORY64, "memory64"),
    (WasmFeatures::MULTI_MEMORY, "multi-memory"),
    (WasmFeatures::TAIL_CALL, "tail-call"),
    (WasmFeatures::STACK_SWITCHING, "stack switching"),
    (WasmFeatures::LEGACY_EXCEPTIONS, "exception handling (legacy)"),
    (WasmFeatures::EXCEPTIONS, "exception handling"),
    (WasmFeatures::GC, "garbage collection"),
    (WasmFeatures::FUNCTION_REFERENCES, "typed function references"),
    (WasmFeatures::RELAXED_SIMD, "relaxed SIMD"),
    (WasmFeatures::CUSTOM_PAGE_SIZES, "custom page sizes"),
    (WasmFeatures::WIDE_ARITHMETIC, "wide arithmetic"),
    (WasmFeatures::CM_ASYNC_STACKFUL, "stackful async in components"),
    (WasmFeatures::CM_MORE_ASYNC_BUILTINS, "more builtins for async in components"),
    (WasmFeatures::CM_THREADING, "threads in components"),
    (WasmFeatures::CM_ERROR_CONTEXT, "error-context in components"),
    (WasmFeatures::CM_ASYNC, "async in components (future, stream)"),
    (WasmFeatures::CM_GC, "garbage collection in components"),
    (WasmFeatures::CM_MAP, "maps in components"),
    (WasmFeatures::CM_FIXED_LENGTH_LISTS, "lists of fixed length in components"),
];

/// Answers the host's one request, and says with which code to exit.
pub(crate) fn serve(mut socket: UnixStream, settings: &Settings) -> i32 {
    match try_serve(&mut socket, settings) {
        Ok(()) => 0,
        Err(error) => {
            // The host reads it; it also sees how this process ends.
            let _ = writeln!(io::stderr(), "{error}");
            1
        }
    }
}

fn try_serve(socket: &mut UnixStream, settings: &Settings) -> io::Result<()> {
    // SAFETY: this process has one thread so far.
    unsafe { env::set_var("RAYON_NUM_THREADS", settings.threads.to_string()) };
    let engine = engine::new(HostLimits::default().stack_bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let max_code: u64 = frame::read(socket, 16)?;
    let bytes = frame::read_bytes(socket, MAX_COMPONENT_BYTES)?;
    end_with_the_host()?;
    let id = engine::id(&engine);
    if id != settings.engine {
        return frame::write(socket, &Answer::AnotherEngine(id));
    }
    match compile(&engine, &bytes) {
        Err(refusal) => frame::write(socket, &Answer::Refused(refusal)),
        Ok(code) if code.len() as u64 > max_code => frame::write(socket, &Answer::TooMuchCode(code.len() as u64)),
        Ok(code) => {
            frame::write(socket, &Answer::Compiled)?;
            frame::write_bytes(socket, &code)
        }
    }
}

/// Ends this process when the host closes its end of the socket, on which nothing more is expected.
fn end_with_the_host() -> io::Result<()> {
    let watch = || {
        // The standard input is the same socket; there is no descriptor left for another one.
        let _ = io::stdin().read(&mut [0]);
        process::exit(1);
    };
    thread::Builder::new().name("tidegate-parent".to_owned()).stack_size(64 << 10).spawn(watch).map(drop)
}

/// Compiles for the engine. Does not run anything.
pub(crate) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
    engine
        .precompile_component(bytes)
        .map_err(|error| Refusal { detail: format!("{error:#}"), proposals: needed_proposals(bytes) })
}

/// Proposals that are switched off and without which a component does not validate; none where it does not validate with
/// all of them. As few as possible, where one can stand for another.
fn needed_proposals(bytes: &[u8]) -> Vec<String> {
    let is_valid = |features| Validator::new_with_features(features).validate_all(bytes).is_ok();
    let mut features = PROPOSALS.iter().fold(WasmFeatures::default(), |all, (proposal, _)| all | *proposal);
    if !is_valid(features) {
        return Vec::new();
    }
    let mut needed = Vec::new();
    for (proposal, name) in PROPOSALS {
        match is_valid(features & !proposal) {
            true => features &= !proposal,
            false => needed.push(name.to_owned()),
        }
    }
    needed
}
