//! Components before they are admitted: their names, the version of the interface, and all that follows from them.

use std::sync::{Arc, LazyLock};

use tidegate_wasm::{INTERFACE_VERSION, Runtime, RuntimeOptions};

use crate::{Met, words};

static RUNTIME: LazyLock<Arc<Runtime>> =
    LazyLock::new(|| Runtime::new(RuntimeOptions::default()).expect("wasmtime runs on this machine"));

/// Names that a person sees have no control characters, and a component that is admitted speaks our version.
pub(crate) fn run(bytes: &[u8]) -> Met {
    let seen = RUNTIME.inspect("fuzzed.wasm", bytes);
    match &seen {
        Ok(seen) => {
            for name in seen.imports.iter().chain(&seen.exports) {
                assert!(!name.chars().any(char::is_control) && name.len() <= 1024, "{name:?}");
            }
            match &seen.description {
                Ok(_) => assert_eq!(seen.interface.as_deref(), Some(INTERFACE_VERSION)),
                Err(error) => {
                    let words = words(error);
                    assert!(words.contains("fuzzed.wasm") && words.len() < 16_384, "{words}");
                }
            }
        }
        Err(error) => assert!(words(error).contains("fuzzed.wasm"), "{error}"),
    }
    Met::of(&seen)
}
