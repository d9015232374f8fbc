//! From wasmtime's errors to why a call has no answer.

use std::time::Duration;

use tidegate_protocol::plugin::{Blame, FaultKind};
use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::host::State;
use crate::limits::{Limits, Unit, budget};

/// Frames of a plugin's call stack that are worth showing.
const MAX_FRAMES: usize = 8;

/// A fault that does not yet know its plugin and call.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FaultKind,
    pub(crate) blame: Blame,
    pub(crate) message: String,
}

impl Failure {
    fn new(kind: FaultKind, message: String) -> Self {
        let blame = kind.blame();
        Self { kind, blame, message }
    }

    /// Who is in a host call, has computed little and was granted something to wait for, waits for that. A processor that
    /// others use as well says nothing: a loop may compute little too.
    pub(crate) fn timeout(limit: Duration, state: &State) -> Self {
        let computed = state.meter.computed();
        let message = format!("no answer within {limit:?} (`call-time`), {computed:.1?} of it spent computing");
        let waited = state.meter.in_host() && computed < limit / 2 && state.reaches_out;
        let blame = if waited { Blame::Destination } else { Blame::Plugin };
        Self { blame, ..Self::new(FaultKind::Timeout, message) }
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(FaultKind::Host, "nobody waits for the answer any more".to_owned())
    }

    pub(crate) fn budget(budget: &'static str, state: &State, limits: &Limits) -> Self {
        Self::new(FaultKind::Budget(budget), figures(budget, state.meter.figures(), limits))
    }
}

/// How much was asked for, where that is known, and how much of the budget there is.
fn figures(budget: &str, asked: Option<&str>, limits: &Limits) -> String {
    let asked = asked.map(|asked| format!("{asked}; ")).unwrap_or_default();
    format!("{asked}{}", budget::figure(budget, limits))
}

/// Which budget was spent, or that the plugin trapped.
pub(crate) fn classify(error: wasmtime::Error, state: &State, limits: &Limits) -> Failure {
    let message = state.redactor.message(&describe(&error));
    match spent_budget(&error, state) {
        Some((budget, asked)) => {
            let figures = figures(budget, asked.as_deref(), limits);
            Failure::new(FaultKind::Budget(budget), format!("{figures}; {message}"))
        }
        None => Failure::new(FaultKind::Trap, message),
    }
}

fn spent_budget(error: &wasmtime::Error, state: &State) -> Option<(&'static str, Option<String>)> {
    if let Some(budget) = state.meter.breach() {
        return Some((budget, state.meter.figures().map(str::to_owned)));
    }
    if let Some(Trap::StackOverflow) = error.downcast_ref::<Trap>() {
        return Some((budget::STACK, Some(Unit::Bytes.show(state.stack_bytes as u64))));
    }
    // wasmtime has no types for these. A wording that changes turns a budget's fault into a trap, no more; the tests
    // notice.
    let text = format!("{error:#}");
    let named = [
        ("fuel allocated for hostcalls has been exhausted", budget::TRANSFER),
        ("total size of fields exceeds limit", budget::HEADERS),
        ("too many fields in the field map", budget::HEADERS),
        ("store handle limit exceeded", budget::HANDLES),
        ("resource table has no free keys", budget::HANDLES),
        ("resource limit exceeded: instance count", budget::CORE_INSTANCES),
        ("resource limit exceeded: memory count", budget::MEMORIES),
        ("resource limit exceeded: table count", budget::TABLES),
    ];
    let is_trap = error.downcast_ref::<Trap>().is_some();
    if let Some((_, budget)) = named.iter().find(|(words, _)| !is_trap && text.contains(words)) {
        return Some((budget, None));
    }
    state.memory.denied().map(|denied| (denied.budget, Some(denied.figures())))
}

/// What happened and where, without addresses.
fn describe(error: &wasmtime::Error) -> String {
    if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
        return format!("it called exit({code}); a plugin answers, it does not exit");
    }
    let cause = error.root_cause().to_string();
    match error.downcast_ref::<WasmBacktrace>() {
        Some(trace) => {
            let frames = worth_showing(trace.frames().iter().filter_map(|f| f.func_name()).map(readable).collect());
            if frames.is_empty() { cause } else { format!("{cause} (in {})", frames.join(" < ")) }
        }
        None => cause,
    }
}

/// The innermost frames, without those in which Rust panics and aborts: they are the same each time and say nothing.
fn worth_showing(mut frames: Vec<String>) -> Vec<String> {
    const MACHINERY: [&str; 8] = [
        "abort",
        "__rustc::",
        "std::sys::",
        "std::process::abort",
        "std::panicking::",
        "core::panicking::",
        "std::panic",
        "rust_panic",
    ];
    let panics = |frame: &String| MACHINERY.iter().any(|start| frame.starts_with(start));
    let first = frames.iter().position(|frame| !panics(frame)).unwrap_or(0);
    frames.drain(..first);
    frames.truncate(MAX_FRAMES);
    frames
}

/// A function's name without its hash.
fn readable(mangled: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(mangled))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(frames: &[&str]) -> Vec<String> {
        worth_showing(frames.iter().map(|frame| (*frame).to_owned()).collect())
    }

    #[test]
    fn a_panic_is_told_with_the_function_that_panicked() {
        let frames =
            ["abort", "std::process::abort", "__rustc::rust_panic", "core::panicking::panic_fmt", "sink::commit"];
        assert_eq!(shown(&frames), ["sink::commit"]);
        assert_eq!(shown(&["sink::read", "abort"]), ["sink::read", "abort"], "only what comes first is left out");
        assert_eq!(shown(&["abort", "std::process::abort"]).len(), 2, "better than nothing");
        assert_eq!(shown(&["f"; 20]).len(), MAX_FRAMES);
    }
}
