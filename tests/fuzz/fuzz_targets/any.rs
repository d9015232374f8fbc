//! The fuzzer: one program for all targets. `TIDEGATE_FUZZ_TARGET` names the one to be fuzzed, the rest is libFuzzer's.

#![no_main]

use std::sync::OnceLock;

use tidegate_fuzz::{Counting, Target, judge, target};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn chosen() -> &'static Target {
    let name = std::env::var("TIDEGATE_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        eprintln!("TIDEGATE_FUZZ_TARGET is `{name}`, expected one of: {}", tidegate_fuzz::names().join(", "));
        std::process::exit(2);
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    judge(TARGET.get_or_init(chosen), input);
});
