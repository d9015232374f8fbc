//! The wasmtime engine and its clock.

use std::sync::mpsc;
use std::thread;

use wasmtime::{Config, Engine};

use crate::error::WasmError;
use crate::limits::{TICK, WASM_STACK_BYTES};

/// The fiber that a plugin's own code runs on also carries the host functions it calls.
const FIBER_STACK_BYTES: usize = 2 << 20;

/// An engine whose clock ticks as long as this value lives.
pub(crate) struct TickingEngine {
    pub(crate) engine: Engine,
    /// Dropped to end the clock's thread.
    _stop: mpsc::Sender<()>,
}

impl TickingEngine {
    pub(crate) fn new() -> Result<Self, WasmError> {
        let engine = Engine::new(&config()).map_err(|e| WasmError::Engine { detail: format!("{e:#}") })?;
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

fn config() -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
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
