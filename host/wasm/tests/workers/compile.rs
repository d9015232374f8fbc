//! Compilation in a process of its own.

use std::sync::Arc;

use tidegate_wasm::{AdmitError, CompileLimits, ConfinementPolicy, Runtime, RuntimeOptions, Worker, builtin};

use crate::PROGRAM;

fn options() -> RuntimeOptions {
    RuntimeOptions {
        worker: Worker::Program(PROGRAM.into()),
        // Whether this machine can confine is another test's question.
        confinement: ConfinementPolicy::IfPossible,
        ..RuntimeOptions::default()
    }
}

fn runtime(compile: CompileLimits) -> Arc<Runtime> {
    Runtime::new(RuntimeOptions { compile, ..options() }).unwrap()
}

fn files() -> &'static [u8] {
    builtin::component("files").unwrap()
}

fn refusal(runtime: &Arc<Runtime>, bytes: &[u8]) -> AdmitError {
    match runtime.admit("x.wasm", bytes) {
        Ok(_) => panic!("it was admitted"),
        Err(error) => error,
    }
}

#[test]
fn what_a_worker_compiled_runs_here() {
    let admitted = runtime(CompileLimits::default()).admit("builtin:files", files()).unwrap();
    assert_eq!(admitted.description().name, "files");
}
