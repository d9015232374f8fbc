//! Compilation in a process of its own.

use std::sync::Arc;
use std::time::Duration;

use tidegate_wasm::{
    AdmitError, BindOptions, CompileLimits, ComponentCaps, ConfinementPolicy, Runtime, RuntimeOptions, WasmError,
    Worker, builtin,
};

use crate::{PROGRAM, made};

/// Lets in what is meant for the compiler.
fn lifted() -> ComponentCaps {
    ComponentCaps {
        function_bytes: u64::MAX,
        locals: u64::MAX,
        total_locals: u64::MAX,
        branch_targets: u64::MAX,
        function_branch_targets: u64::MAX,
        ..ComponentCaps::default()
    }
}

fn options(compile: CompileLimits) -> RuntimeOptions {
    RuntimeOptions {
        worker: Worker::Program(PROGRAM.into()),
        // Whether this machine can confine is another test's question.
        confinement: ConfinementPolicy::IfPossible,
        compile,
        caps: lifted(),
        ..RuntimeOptions::default()
    }
}

fn runtime(compile: CompileLimits) -> Arc<Runtime> {
    Runtime::new(options(compile)).unwrap()
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

fn spent(error: &AdmitError) -> &str {
    match error {
        AdmitError::CompileLimit { key, .. } => key,
        other => panic!("{other}"),
    }
}

/// Takes minutes to compile, and little memory.
fn endless() -> Vec<u8> {
    made::many_locals(10_000, 49_000)
}

#[test]
fn what_a_worker_compiled_runs_here() {
    let admitted = runtime(CompileLimits::default()).admit("builtin:files", files()).unwrap();
    assert_eq!(admitted.description().name, "files");
}

#[test]
fn h29_very_many_locals_spend_the_compilers_processor_time() {
    let runtime = runtime(CompileLimits { cpu_time: Duration::from_secs(2), ..CompileLimits::default() });
    let error = refusal(&runtime, &endless());
    assert_eq!(spent(&error), "compile-cpu-time", "{error}");
    let words = error.to_string();
    assert!(words.contains("x.wasm") && words.contains("2s") && words.contains("[host]"), "{words}");
}

#[test]
fn h29_very_many_locals_spend_the_compilers_wall_clock_time() {
    let runtime = runtime(CompileLimits { wall_time: Duration::from_secs(2), ..CompileLimits::default() });
    assert_eq!(spent(&refusal(&runtime, &endless())), "compile-time");
}

#[test]
fn h29_a_huge_function_spends_the_compilers_memory() {
    let runtime = runtime(CompileLimits { memory_bytes: 512 << 20, threads: 1, ..CompileLimits::default() });
    let error = refusal(&runtime, &made::huge_function(7_000_000));
    assert_eq!(spent(&error), "compile-memory", "{error}");
}

#[test]
fn h29_a_branch_table_of_a_million_targets_is_more_than_the_compiler_takes() {
    let error = refusal(&runtime(CompileLimits::default()), &made::branch_table(1_000_000));
    assert!(matches!(&error, AdmitError::Compile { detail, .. } if detail.contains("1000000 targets")), "{error}");
}

#[test]
fn h29_what_is_too_much_by_its_figures_never_reaches_a_worker() {
    let options = RuntimeOptions { caps: ComponentCaps::default(), ..options(CompileLimits::default()) };
    let runtime = Runtime::new(options).unwrap();
    for (bytes, words) in [
        (made::many_locals(10_000, 50_000), "50000 local variables in one function"),
        (made::huge_function(7_000_000), "bytes in one function"),
        (made::branch_table(1_000_000), "1000000 targets of one branch table"),
        (made::many_locals(300_000, 0), "300000 functions"),
    ] {
        let error = refusal(&runtime, &bytes);
        assert!(matches!(error, AdmitError::TooIntricate { .. }), "{error}");
        assert!(error.to_string().contains(words) && error.to_string().contains("at most"), "{error}");
    }
}

#[test]
fn a_program_that_knows_nothing_of_workers_is_no_worker() {
    for program in ["/bin/true", "/bin/cat", "/nowhere/to/be/found"] {
        let options = RuntimeOptions { worker: Worker::Program(program.into()), ..options(CompileLimits::default()) };
        let Err(error) = Runtime::new(options) else { panic!("{program} is no worker") };
        assert!(matches!(error, WasmError::Worker { .. }), "{error}");
    }
    let Err(error) = Worker::this_program() else { panic!("the test's own `main` asks nothing") };
    assert!(error.to_string().contains("run_if_asked"), "{error}");
}

#[test]
fn h34_code_in_use_and_code_in_the_cache_are_not_the_same_memory() {
    let dir = tempfile::tempdir().unwrap();
    let cached = || RuntimeOptions { cache_dir: Some(dir.path().to_owned()), ..options(CompileLimits::default()) };
    Runtime::new(cached()).unwrap().admit("builtin:files", files()).unwrap();
    let runtime = Runtime::new(cached()).unwrap();
    let admitted = runtime.admit("builtin:files", files()).unwrap();
    let entries = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let entry = entries.into_iter().find(|path| path.extension().is_some_and(|end| end == "cwasm")).unwrap();
    // The very file that was loaded, emptied and filled with something else while its code is in use.
    std::fs::write(&entry, vec![0xcc; 1 << 20]).unwrap();
    let outputs = tempfile::tempdir().unwrap();
    let mut options = BindOptions::new("out");
    options.dirs.insert("output".to_owned(), outputs.path().join("out").into());
    let plugin = admitted.bind(options).unwrap();
    let started = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(plugin.committer());
    assert!(started.is_ok());
    assert!(runtime.inspect("builtin:files", files()).unwrap().description.is_ok());
}
