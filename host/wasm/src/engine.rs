//! The wasmtime engine and its clock.

use std::hash::{Hash, Hasher};
use std::sync::mpsc;
use std::thread;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use wasmtime::{Config, Engine};

use crate::error::WasmError;
use crate::limits::{HostLimits, TICK};

/// The fiber that a plugin's own code runs on also carries the host functions it calls: so much beyond its stack.
const HOST_STACK_BYTES: usize = 1 << 20;

/// An engine whose clock ticks as long as this value lives.
pub(crate) struct TickingEngine {
    pub(crate) engine: Engine,
    /// Dropped to end the clock's thread.
    _stop: mpsc::Sender<()>,
}

impl TickingEngine {
    pub(crate) fn new(limits: &HostLimits) -> Result<Self, WasmError> {
        let engine = new(limits.stack_bytes)?;
        let (stop, stopped) = mpsc::channel();
        let clock = engine.weak();
        thread::Builder::new()
            .name("tidegate-ticks".to_owned())
            .stack_size(128 << 10)
            .spawn(move || {
                while stopped.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
                    match clock.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })
            .map_err(|e| WasmError::Engine { detail: format!("no thread for the clock: {e}") })?;
        Ok(Self { engine, _stop: stop })
    }
}

/// The engine, in this process and in those that compile for it. The stack of a plugin's own code changes nothing of what
/// is compiled.
pub(crate) fn new(stack_bytes: usize) -> Result<Engine, WasmError> {
    Engine::new(&config(stack_bytes)).map_err(|e| WasmError::Engine { detail: format!("{e:#}") })
}

/// Stands for everything that makes compiled code fit: wasmtime's version, the configuration, this processor.
pub(crate) fn id(engine: &Engine) -> String {
    struct Sha256Hasher(Sha256);
    impl Hasher for Sha256Hasher {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut hasher = Sha256Hasher(Sha256::new_with_prefix(env!("CARGO_PKG_VERSION")));
    engine.precompile_compatibility_hash().hash(&mut hasher);
    HEXLOWER.encode(&hasher.0.finalize()[..16])
}

fn config(stack_bytes: usize) -> Config {
    let (least, most) = HostLimits::STACK;
    let stack = stack_bytes.clamp(least, most);
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(stack)
        .async_stack_size(stack + HOST_STACK_BYTES)
        // A plugin must not learn from a NaN's bits on which machine it runs.
        .relaxed_simd_deterministic(true)
        .wasm_relaxed_simd(false)
        .wasm_threads(false)
        .shared_memory(false)
        .wasm_gc(false)
        .wasm_function_references(false)
        .wasm_exceptions(false)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_tail_call(false)
        .wasm_stack_switching(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false)
        .wasm_component_model(true);
    config
}
