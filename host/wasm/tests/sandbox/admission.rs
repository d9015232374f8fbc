//! What is let in, and what is turned away before it can do anything.

use std::os::unix::fs::MetadataExt;

use tidegate_protocol::plugin::GrantRequest;
use tidegate_wasm::{
    AdmitError, GrantKind, Runtime, RuntimeOptions, builtin, imports_not_asked_for, inspect, read_component,
    requests_not_imported,
};

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
        (b"PK\x03\x04rest of an archive", "archive"),
        (b"\x1f\x8b\x08", "archive"),
        (b"\0asm\x0e\0\x01\0", "damaged"),
    ] {
        let error = refusal(bytes);
        assert!(matches!(error, AdmitError::NotAComponent { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let huge = vec![0; tidegate_wasm::MAX_COMPONENT_BYTES + 1];
    assert!(matches!(refusal(&huge), AdmitError::TooLarge { .. }));
}

#[test]
fn h28_a_file_of_a_gibibyte_is_refused_without_being_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.wasm");
    std::fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let error = read_component(&path).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge);
    assert!(error.to_string().contains("1073741824") && error.to_string().contains("67108864"), "{error}");
    std::fs::write(&path, files()).unwrap();
    assert_eq!(read_component(&path).unwrap(), files());
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
fn h35_an_export_with_the_right_name_and_another_type_is_refused() {
    let interfaces = [
        ("plugin", vec!["describe"]),
        ("writer", vec!["open", "begin", "write", "prepare"]),
        ("committer", vec!["observe", "fence", "commit", "reconcile"]),
        ("janitor", vec!["abandon", "release", "list-orphans"]),
    ];
    let exports = interfaces.map(|(name, functions)| {
        let functions = functions.iter().map(|function| format!(r#"(export "{function}" (func $f))"#));
        let functions: String = functions.collect();
        format!(r#"(instance ${name} {functions}) (export "tidegate:sink/{name}@0.1.0" (instance ${name}))"#)
    });
    let exports = exports.concat();
    let error = refusal(&component(&format!(
        r#"(component
            (core module $m (func $f (export "f") unreachable) (start $f))
            (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f")))
            {exports})"#
    )));
    assert!(matches!(error, AdmitError::Type { .. }), "{error}");
    assert!(
        error.to_string().contains("`describe` of tidegate:sink/plugin@0.1.0 has another type"),
        "before its `start` could trap: {error}"
    );
}

/// A component whose names are right, around something else.
fn around(body: &str) -> Vec<u8> {
    component(&format!(
        r#"(component {body}
            (instance $empty)
            (export "tidegate:sink/plugin@0.1.0" (instance $empty))
            (export "tidegate:sink/writer@0.1.0" (instance $empty))
            (export "tidegate:sink/committer@0.1.0" (instance $empty))
            (export "tidegate:sink/janitor@0.1.0" (instance $empty)))"#
    ))
}

#[test]
fn h32_proposals_that_are_switched_off_are_refused_by_name() {
    for (body, name) in [
        ("(core module (memory 1 1 shared))", "threads"),
        ("(core module (memory 1 1) (func (drop (i32.atomic.load (i32.const 0)))))", "threads"),
        ("(core module (memory i64 1))", "memory64"),
        ("(core module (memory 1) (memory 1))", "multi-memory"),
        ("(core module (type (struct)))", "garbage collection"),
        ("(core module (tag))", "exception handling"),
        ("(core module (func (block $b (try_table (catch_all $b)))))", "exception handling"),
        ("(core module (func $f (return_call $f)))", "tail-call"),
        (
            "(core module (func (drop (i8x16.relaxed_swizzle (v128.const i64x2 0 0) (v128.const i64x2 0 0)))))",
            "relaxed SIMD",
        ),
        ("(core module (type $f (func)) (func (param (ref $f))))", "typed function references"),
        ("(type (stream u8))", "async in components"),
        ("(type (future u8))", "async in components"),
        ("(type (func async))", "async in components"),
        ("(type error-context)", "error-context"),
    ] {
        let error = refusal(&around(body));
        let AdmitError::Proposals { proposals, .. } = &error else { panic!("{body}: {error}") };
        assert!(proposals.iter().any(|proposal| proposal.contains(name)), "{body}: {error}");
        assert!(error.to_string().contains("switched off"), "{error}");
    }
}

#[test]
fn what_is_not_valid_at_all_needs_no_proposal() {
    let error = refusal(&around("(core module (func (drop (i32.add (i32.const 1) (i64.const 1)))))"));
    assert!(matches!(error, AdmitError::Compile { .. }), "{error}");
}

fn excess(bytes: &[u8]) -> String {
    match refusal(bytes) {
        error @ AdmitError::TooIntricate { .. } => error.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn h12_memories_and_tables_that_begin_huge_are_refused_with_figures() {
    let memory = excess(&around("(core module (memory 65536))"));
    assert!(memory.contains("4294967296 bytes of memory") && memory.contains("at most 1073741824"), "{memory}");
    let table = excess(&around("(core module (table 10000000 funcref))"));
    assert!(table.contains("10000000 table entries") && table.contains("at most 1000000"), "{table}");
    // Each is small enough, together they are not.
    let instances = "(core instance (instantiate $m))".repeat(5);
    let memory = excess(&around(&format!("(core module $m (memory 4096)) {instances}")));
    assert!(memory.contains("1342177280 bytes of memory"), "{memory}");
}

#[test]
fn h13_very_many_memories_tables_and_instances_are_refused_with_figures() {
    let hundred = |what: &str| excess(&around(&format!("(core module {})", what.repeat(100))));
    assert!(hundred("(table 1 funcref)").contains("65 tables or more; at most 64"), "{}", hundred("(table 1 funcref)"));
    assert!(hundred("(memory 1)").contains("33 memories or more; at most 32"));
    let modules = excess(&around(&"(core module)".repeat(100)));
    assert!(modules.contains("65 core modules"), "{modules}");
    let instances = excess(&around(&format!("(core module $m) {}", "(core instance (instantiate $m))".repeat(1000))));
    assert!(instances.contains("1000 instances of core modules"), "{instances}");
    // Ten of ten of ten.
    let ten = |component: &str, of: &str| format!("(component ${component} {})", of.repeat(10));
    let inner = format!("(component $c (core module $m) {})", "(core instance (instantiate $m))".repeat(10));
    let middle = ten("d", "(instance (instantiate $c))");
    let instances = excess(&around(&format!("{inner} {middle} {}", "(instance (instantiate $d))".repeat(10))));
    assert!(instances.contains("1000 instances of core modules"), "{instances}");
}

#[test]
fn h28_components_within_components_without_end_are_refused() {
    let deep = format!("{}{}", "(component ".repeat(40), ")".repeat(40));
    assert!(excess(&around(&deep)).contains("components within each other"));
    // A type within a type within a type: only the bytes of types are looked at, whatever they hold.
    let mut types = [0x41, 1, 1].repeat(500_000);
    types.extend([0x41, 0]);
    let mut section = vec![1];
    section.extend(types);
    let mut bytes = around("");
    let tail = bytes.split_off(8);
    bytes.push(7);
    leb(section.len(), &mut bytes);
    bytes.extend(section);
    bytes.extend(tail);
    assert!(excess(&bytes).contains("bytes of component types"));
}

fn leb(mut value: usize, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

#[test]
fn h28_very_many_small_data_segments_are_refused() {
    let module = format!("(core module (memory 1) {})", "(data (i32.const 65535) \"x\")".repeat(60_000));
    assert!(excess(&around(&module)).contains("60000 data segments"));
}

#[test]
fn exports_that_the_host_does_not_know_are_left_alone() {
    let bytes = around(r#"(instance $more) (export "other:thing/api@3.0.0" (instance $more))"#);
    // It comes as far as its exports' types, like without.
    assert!(matches!(refusal(&bytes), AdmitError::Type { .. }));
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

/// Languages with a runtime of their own import what that runtime knows; Rust's does, when a program names a socket once.
#[test]
fn h31_imports_for_which_a_plugin_asks_for_nothing_are_marked() {
    let hostile = crate::support::hostile();
    let imports = hostile.imports();
    let lone = imports_not_asked_for(&imports, hostile.description());
    assert!(lone.iter().any(|(import, kind)| import.starts_with("wasi:sockets/tcp@") && *kind == GrantKind::Tcp));
    assert!(lone.iter().all(|(_, kind)| *kind == GrantKind::Tcp), "it asks for a directory and a secret: {lone:?}");
    assert_eq!(requests_not_imported(&imports, hostile.description()), Vec::<&GrantRequest>::new());
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
