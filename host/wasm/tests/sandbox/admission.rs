//! What is let in, and what is turned away before it can do anything.

use std::os::unix::fs::MetadataExt;

use tidegate_wasm::{AdmitError, Runtime, RuntimeOptions, builtin, inspect};

use crate::support::runtime;

fn files() -> Vec<u8> {
    builtin::component("files").unwrap().to_vec()
}

/// Replaces a name by another one of equal length, everywhere.
fn renamed(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = files();
    let mut replaced = 0;
    for at in 0..bytes.len() - from.len() {
        if &bytes[at..at + from.len()] == from.as_bytes() {
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            replaced += 1;
        }
    }
    assert!(replaced > 0, "{from} does not occur");
    bytes
}

fn refusal(bytes: &[u8]) -> AdmitError {
    match runtime().admit("x.wasm", bytes) {
        Ok(_) => panic!("it was admitted"),
        Err(error) => error,
    }
}

fn component(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

#[test]
fn another_interface_version_is_refused_and_both_are_named() {
    let mut bytes = renamed("tidegate:sink/plugin@0.1.0", "tidegate:sink/plugin@0.7.0");
    for name in ["writer", "committer", "janitor"] {
        let (from, to) = (format!("tidegate:sink/{name}@0.1.0"), format!("tidegate:sink/{name}@0.7.0"));
        while let Some(at) = bytes.windows(from.len()).position(|w| w == from.as_bytes()) {
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
    }
    let error = refusal(&bytes);
    assert!(matches!(&error, AdmitError::Interface { found: Some(found), .. } if found == "0.7.0"), "{error}");
    assert!(error.to_string().contains("0.7.0") && error.to_string().contains("0.1.0"), "{error}");
    // Only its name can be wrong here: a file whose names are read is never compiled or run for it.
    bytes.truncate(bytes.len());
    assert!(matches!(inspect("x.wasm", &bytes).unwrap().description, Err(AdmitError::Interface { .. })));
}

#[test]
fn h28_what_is_no_component_is_refused_before_it_is_compiled() {
    let module = component("(module)");
    for (bytes, word) in [
        (&b"\x7fELF\x02\x01\x01"[..], "ELF"),
        (b"(component)", "text"),
        (&module, "core module"),
        (&files()[..1000], "cut short"),
        (b"", "empty"),
    ] {
        let error = refusal(bytes);
        assert!(matches!(error, AdmitError::NotAComponent { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let huge = vec![0; tidegate_wasm::MAX_COMPONENT_BYTES + 1];
    assert!(matches!(refusal(&huge), AdmitError::TooLarge { .. }));
}

#[test]
fn h31_imports_outside_the_list_are_refused_by_name() {
    let error = refusal(&renamed("wasi:clocks/wall-clock@0.2.", "wasi:clocks/wall-cloak@0.2."));
    assert!(matches!(error, AdmitError::Imports { .. }), "{error}");
    assert!(error.to_string().contains("wasi:clocks/wall-cloak"), "{error}");
}

#[test]
fn h35_a_missing_export_is_refused() {
    let error = refusal(&renamed("tidegate:sink/janitor@0.1.0", "tidegate:sink/janitox@0.1.0"));
    assert!(error.to_string().contains("does not export tidegate:sink/janitor@0.1.0"), "{error}");
}

#[test]
fn h35_an_export_of_another_type_is_refused() {
    let error = refusal(&component(
        r#"(component
            (instance $empty)
            (export "tidegate:sink/plugin@0.1.0" (instance $empty))
            (export "tidegate:sink/writer@0.1.0" (instance $empty))
            (export "tidegate:sink/committer@0.1.0" (instance $empty))
            (export "tidegate:sink/janitor@0.1.0" (instance $empty)))"#,
    ));
    assert!(matches!(error, AdmitError::Type { .. }), "{error}");
}

#[test]
fn h32_proposals_that_are_switched_off_do_not_validate() {
    let exports = r#"(instance $empty)
        (export "tidegate:sink/plugin@0.1.0" (instance $empty))
        (export "tidegate:sink/writer@0.1.0" (instance $empty))
        (export "tidegate:sink/committer@0.1.0" (instance $empty))
        (export "tidegate:sink/janitor@0.1.0" (instance $empty))"#;
    for body in [
        "(memory 1 1 shared)",
        "(memory i64 1)",
        "(memory 1) (memory 1)",
        "(type (struct))",
        "(tag)",
        "(func $f (return_call $f))",
        "(func (drop (i8x16.relaxed_swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0))))",
    ] {
        let error = refusal(&component(&format!("(component (core module {body}) {exports})")));
        assert!(matches!(error, AdmitError::Compile { .. }), "{body}: {error}");
    }
}

#[test]
fn inspecting_shows_what_a_plugin_is() {
    let inspection = inspect("builtin:files", &files()).unwrap();
    assert_eq!(inspection.interface.as_deref(), Some("0.1.0"));
    assert_eq!(inspection.bytes, files().len() as u64);
    assert!(inspection.exports.contains(&"tidegate:sink/committer@0.1.0".to_owned()));
    assert_eq!(inspection.description.unwrap().name, "files");
    let other = inspect("x.wasm", &component("(component)")).unwrap();
    assert_eq!(other.interface, None);
    assert!(other.description.is_err());
}

#[test]
fn h33_a_tampered_cache_entry_is_compiled_again() {
    let dir = tempfile::tempdir().unwrap();
    let admit = || {
        let options = RuntimeOptions { cache_dir: Some(dir.path().to_owned()), ..RuntimeOptions::default() };
        Runtime::new(options).unwrap().admit("builtin:files", &files()).unwrap();
        let entry = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path());
        let mut entries: Vec<_> = entry.filter(|path| path.extension().is_some_and(|e| e == "cwasm")).collect();
        assert_eq!(entries.len(), 1);
        entries.remove(0)
    };
    let entry = admit();
    let (good, inode) = (std::fs::read(&entry).unwrap(), std::fs::metadata(&entry).unwrap().ino());
    admit();
    assert_eq!(std::fs::metadata(&entry).unwrap().ino(), inode, "the second runtime loaded it");

    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 0xff;
    std::fs::write(&entry, &bad).unwrap();
    admit();
    assert_ne!(std::fs::metadata(&entry).unwrap().ino(), inode, "it was compiled and written anew");
    assert_ne!(std::fs::read(&entry).unwrap(), bad);
}
