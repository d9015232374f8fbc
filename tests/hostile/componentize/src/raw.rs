//! Components from core modules in WAT: a whole, well-behaved sink, of which a guest's file replaces single parts.
//!
//! A guest's file holds fields of a module. Where it exports something under a name that the skeleton exports too (a
//! function of the interface, `memory`, `cabi_realloc`), its own counts. It may call the skeleton's `$alloc`, and use
//! its memory from [`FREE`] upwards; `$ok` is the address of zeroes, which mean "done, and nothing to tell" in every
//! answer. A first line `;; strings: utf16` or `;; strings: latin1+utf16` chooses another encoding of its strings.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Where the description is laid out.
const DESCRIPTION: u32 = 1024;
/// Zeroes.
const OK: u32 = 2048;
/// From here on memory is the guest's, up to `$heap`.
const FREE: u32 = 5120;
const HEAP: u32 = 8192;

/// What raw guests may import beside the sink's world, as far as the repository has no package of its own for it. Of
/// each interface only the functions that guests call.
const WASI: [(&str, &str); 2] = [
    (
        "random",
        "package wasi:random@0.2.12;
        interface random { get-random-bytes: func(len: u64) -> list<u8>; get-random-u64: func() -> u64; }
        interface insecure-seed { insecure-seed: func() -> tuple<u64, u64>; }",
    ),
    (
        "cli",
        "package wasi:cli@0.2.12;
        interface stdout { use wasi:io/streams@0.2.12.{output-stream}; get-stdout: func() -> output-stream; }
        interface stdin { use wasi:io/streams@0.2.12.{input-stream}; get-stdin: func() -> input-stream; }
        interface environment { get-arguments: func() -> list<string>; }
        interface exit { exit: func(status: result); }",
    ),
];

const WORLD: &str = "package tidegate:hostile;
world raw {
    include tidegate:sink/sink@0.1.0;
    import wasi:io/poll@0.2.12;
    import wasi:io/streams@0.2.12;
    import wasi:clocks/monotonic-clock@0.2.12;
    import wasi:clocks/wall-clock@0.2.12;
    import wasi:random/random@0.2.12;
    import wasi:random/insecure-seed@0.2.12;
    import wasi:cli/stdout@0.2.12;
    import wasi:cli/stdin@0.2.12;
    import wasi:cli/environment@0.2.12;
    import wasi:cli/exit@0.2.12;
}";

/// Makes a component of the fields in a guest's file.
///
/// # Errors
/// The file is no WAT, or what it replaces has another type.
pub(crate) fn component(wit: &Path, fields: &str) -> Result<Vec<u8>, String> {
    let strings = match fields.lines().next().and_then(|line| line.strip_prefix(";; strings: ")) {
        None => StringEncoding::UTF8,
        Some("utf16") => StringEncoding::UTF16,
        Some("latin1+utf16") => StringEncoding::CompactUTF16,
        Some(other) => return Err(format!("`{other}` is no encoding of strings; expected utf16 or latin1+utf16")),
    };
    let text = module(fields, strings);
    let mut module = wat::parse_str(&text).map_err(|e| format!("{e}"))?;
    let mut resolve = Resolve::default();
    let say = |e: &dyn std::fmt::Debug| format!("{e:?}");
    resolve.push_dir(wit).map_err(|e| say(&e))?;
    for (name, text) in WASI {
        if !resolve.package_names.keys().any(|known| known.namespace == "wasi" && known.name == name) {
            resolve.push_str(format!("{name}.wit"), text).map_err(|e| say(&e))?;
        }
    }
    let package = resolve.push_str("raw.wit", WORLD).map_err(|e| say(&e))?;
    let world = resolve.select_world(&[package], Some("raw")).map_err(|e| say(&e))?;
    embed_component_metadata(&mut module, &resolve, world, strings).map_err(|e| say(&e))?;
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true).module(&module).map_err(|e| say(&e))?.encode().map_err(|e| say(&e))
}

fn module(fields: &str, strings: StringEncoding) -> String {
    let defaults = DEFAULTS.iter().filter(|(name, _)| !fields.contains(&format!("(export \"{name}\")")));
    let defaults: String = defaults.map(|(_, text)| *text).collect();
    format!(
        "(module\n{IMPORTS}\n{fields}\n{COMMON}\n{defaults}\n(data (i32.const {DESCRIPTION}) \"{}\"))",
        escaped(&description(strings))
    )
}

fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("\\{byte:02x}")).collect()
}

/// A `description` as the canonical ABI lays it out at [`DESCRIPTION`], strings behind it.
fn description(strings: StringEncoding) -> Vec<u8> {
    const SIZE: usize = 160;
    let mut record = vec![0; SIZE];
    let mut behind = Vec::new();
    let mut put_list = |record: &mut Vec<u8>, at: usize, bytes: &[u8], count: usize| {
        while behind.len() % 4 != 0 {
            behind.push(0);
        }
        let address = DESCRIPTION + (SIZE + behind.len()) as u32;
        record[at..at + 4].copy_from_slice(&address.to_le_bytes());
        record[at + 4..at + 8].copy_from_slice(&(count as u32).to_le_bytes());
        behind.extend_from_slice(bytes);
    };
    for (at, text) in [(0, "hostile"), (8, "1.0.0"), (16, r#"{"type":"object"}"#)] {
        let bytes = match strings {
            StringEncoding::UTF16 => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
            StringEncoding::UTF8 | StringEncoding::CompactUTF16 => text.as_bytes().to_vec(),
        };
        put_list(&mut record, at, &bytes, text.len());
    }
    // JSON lines, then raw.
    put_list(&mut record, 24, &[1, 0], 2);
    put_list(&mut record, 136, &1u32.to_le_bytes(), 1);
    // Of the abilities, from 32: staging, idempotent commits, markers that others leave alone, reconcile.
    for at in [32, 33, 56, 59] {
        record[at] = 1;
    }
    // Visible per participant, eight open epochs; orphans are announced.
    (record[61], record[64], record[120]) = (1, 8, 1);
    record.extend(behind);
    record
}

const IMPORTS: &str = r#"
(import "tidegate:sink/rows@0.1.0" "[method]batch.info" (func $batch-info (param i32 i32)))
(import "tidegate:sink/rows@0.1.0" "[resource-drop]batch" (func $batch-drop (param i32)))
"#;

/// Fields that are always there. `$mark`: what lies below it must outlive a call. The part lies at 4224, 48 bytes long.
const COMMON: &str = r#"
(global $heap (mut i32) (i32.const 8192))
(global $mark (mut i32) (i32.const 8192))
(global $rows (mut i64) (i64.const 0))
(global $ok i32 (i32.const 2048))
(func $alloc (param $size i32) (result i32)
  (local $at i32)
  (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
  (global.set $heap (i32.add (local.get $at) (local.get $size)))
  (block $fits
    (br_if $fits (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
    (br_if $fits (i32.ne (i32.const -1)
      (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1)))))
    unreachable)
  (local.get $at))
(func $outcomes (param $n i32) (param $outcome i32) (result i32)
  (local $at i32) (local $i i32)
  (local.set $at (call $alloc (i32.shl (local.get $n) (i32.const 5))))
  (memory.fill (local.get $at) (i32.const 0) (i32.shl (local.get $n) (i32.const 5)))
  (block $done (loop $next
    (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
    (i32.store8 (i32.add (local.get $at) (i32.shl (local.get $i) (i32.const 5))) (local.get $outcome))
    (local.set $i (i32.add (local.get $i) (i32.const 1)))
    (br $next)))
  (i32.store (i32.const 4600) (i32.const 0))
  (i32.store (i32.const 4604) (local.get $at))
  (i32.store (i32.const 4608) (local.get $n))
  (global.set $heap (global.get $mark))
  (i32.const 4600))
"#;

/// One export each.
const DEFAULTS: [(&str, &str); 14] = [
    ("memory", "(memory (export \"memory\") 1)\n"),
    (
        "cabi_realloc",
        r#"(func (export "cabi_realloc") (param $old i32) (param $had i32) (param i32) (param $size i32) (result i32)
  (local $at i32)
  (local.set $at (call $alloc (local.get $size)))
  (memory.copy (local.get $at) (local.get $old) (local.get $had))
  (local.get $at))
"#,
    ),
    (
        "tidegate:sink/plugin@0.1.0#describe",
        "(func (export \"tidegate:sink/plugin@0.1.0#describe\") (result i32) (i32.const 1024))\n",
    ),
    (
        "tidegate:sink/writer@0.1.0#open",
        r#"(func (export "tidegate:sink/writer@0.1.0#open")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (global.get $ok))
"#,
    ),
    (
        "tidegate:sink/writer@0.1.0#begin",
        r#"(func (export "tidegate:sink/writer@0.1.0#begin") (param $args i32) (result i32)
  (memory.copy (i32.const 4224) (i32.add (local.get $args) (i32.const 48)) (i32.const 48))
  (global.set $rows (i64.const 0))
  (global.set $mark (global.get $heap))
  (global.get $ok))
"#,
    ),
    (
        "tidegate:sink/writer@0.1.0#write",
        r#"(func (export "tidegate:sink/writer@0.1.0#write")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32) (param $batch i32) (result i32)
  (call $batch-info (local.get $batch) (i32.const 4096))
  (global.set $rows (i64.add (global.get $rows) (i64.load (i32.const 4096))))
  (call $batch-drop (local.get $batch))
  (global.set $heap (global.get $mark))
  (global.get $ok))
"#,
    ),
    (
        "tidegate:sink/writer@0.1.0#prepare",
        r#"(func (export "tidegate:sink/writer@0.1.0#prepare")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32) (result i32)
  (memory.fill (i32.const 4352) (i32.const 0) (i32.const 144))
  (memory.copy (i32.const 4360) (i32.const 4224) (i32.const 48))
  (i32.store (i32.const 4408) (i32.const 1))
  (i64.store (i32.const 4424) (global.get $rows))
  (i64.store (i32.const 4480) (global.get $rows))
  (i32.const 4352))
"#,
    ),
    (
        "tidegate:sink/committer@0.1.0#observe",
        r#"(func (export "tidegate:sink/committer@0.1.0#observe")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32) (result i32) (global.get $ok))
"#,
    ),
    (
        "tidegate:sink/committer@0.1.0#fence",
        r#"(func (export "tidegate:sink/committer@0.1.0#fence") (param i32) (result i32) (global.get $ok))
"#,
    ),
    (
        "tidegate:sink/committer@0.1.0#commit",
        r#"(func (export "tidegate:sink/committer@0.1.0#commit")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32) (param $n i32) (result i32)
  (call $outcomes (local.get $n) (i32.const 0)))
"#,
    ),
    (
        "tidegate:sink/committer@0.1.0#reconcile",
        r#"(func (export "tidegate:sink/committer@0.1.0#reconcile")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (param $n i32) (result i32)
  (call $outcomes (local.get $n) (i32.const 2)))
"#,
    ),
    (
        "tidegate:sink/janitor@0.1.0#abandon",
        r#"(func (export "tidegate:sink/janitor@0.1.0#abandon")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (param $n i32) (result i32)
  (call $outcomes (local.get $n) (i32.const 0)))
"#,
    ),
    (
        "tidegate:sink/janitor@0.1.0#release",
        r#"(func (export "tidegate:sink/janitor@0.1.0#release")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32) (param $n i32) (result i32)
  (call $outcomes (local.get $n) (i32.const 0)))
"#,
    ),
    (
        "tidegate:sink/janitor@0.1.0#list-orphans",
        r#"(func (export "tidegate:sink/janitor@0.1.0#list-orphans")
  (param i32 i32 i32 i32 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (global.get $ok))
"#,
    ),
];

const _: () = assert!(OK + 256 < 4096 && FREE < HEAP);
