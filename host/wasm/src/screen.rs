//! What a file is, read from its bytes alone. Nothing is compiled and nothing runs.

use std::collections::BTreeSet;

use wasmparser::{Parser, Payload};

use crate::caps::ComponentCaps;
use crate::error::AdmitError;
use crate::limits::MAX_COMPONENT_BYTES;
use crate::shape::{Shape, Stop};

/// The interface version that this host speaks.
pub const INTERFACE_VERSION: &str = "0.1.0";

const PACKAGE: &str = "tidegate:sink/";
const EXPORTS: [&str; 4] = ["plugin", "writer", "committer", "janitor"];
const IMPORTS: [&str; 7] = ["types", "rows", "ledger", "log", "metrics", "secrets", "tcp"];

/// The WASI 0.2 interfaces that a plugin may import, in any patch version. Importing one grants nothing.
pub const WASI_INTERFACES: [&str; 29] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:http/outgoing-handler",
    "wasi:http/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// The outermost names of a component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outline {
    pub(crate) imports: BTreeSet<String>,
    pub(crate) exports: BTreeSet<String>,
}

impl Outline {
    /// The version of `tidegate:sink` that the component exports; a component of several lists them all.
    pub(crate) fn interface_version(&self) -> Option<String> {
        let versions: BTreeSet<&str> = self
            .exports
            .iter()
            .filter_map(|name| name.strip_prefix(PACKAGE))
            .map(|rest| rest.split_once('@').map_or("without a version", |(_, version)| version))
            .collect();
        (!versions.is_empty()).then(|| versions.into_iter().collect::<Vec<_>>().join(", "))
    }
}

/// Reads the names of a component and counts what it consists of, or says what the bytes are instead.
pub(crate) fn outline(plugin: &str, bytes: &[u8], caps: &ComponentCaps) -> Result<Outline, AdmitError> {
    if bytes.len() > MAX_COMPONENT_BYTES {
        let (plugin, bytes) = (plugin.to_owned(), bytes.len());
        return Err(AdmitError::TooLarge { plugin, bytes, max: MAX_COMPONENT_BYTES });
    }
    if let Some(other) = other_kind(bytes) {
        return Err(AdmitError::NotAComponent { plugin: plugin.to_owned(), detail: other.to_owned() });
    }
    read(bytes, caps).map_err(|stop| match stop {
        Stop::Excess(excess) => AdmitError::TooIntricate { plugin: plugin.to_owned(), excess },
        Stop::Damaged(at) => {
            let detail = format!("it is damaged or cut short at byte {at}");
            AdmitError::NotAComponent { plugin: plugin.to_owned(), detail }
        }
    })
}

fn read(bytes: &[u8], caps: &ComponentCaps) -> Result<Outline, Stop> {
    let mut outline = Outline::default();
    let mut shape = Shape::new(caps);
    let mut depth = 0u32;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        shape.count(&payload)?;
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    outline.imports.insert(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    outline.exports.insert(export?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(outline)
}

fn other_kind(bytes: &[u8]) -> Option<&'static str> {
    const WASM: &[u8] = b"\0asm";
    if bytes.is_empty() {
        return Some("the file is empty");
    }
    if let Some(rest) = bytes.strip_prefix(WASM) {
        // Version 1 of layer 0 is a module, of layer 1 a component.
        return rest.starts_with(&[1, 0, 0, 0]).then_some(
            "it is a core module; build for the target wasm32-wasip2, or wrap it with `wasm-tools component new`",
        );
    }
    Some(if bytes.starts_with(b"\x7fELF") {
        "it is an ELF file: a native program, or a component compiled in advance; only portable components are accepted"
    } else if bytes.trim_ascii_start().starts_with(b"(") || bytes.trim_ascii_start().starts_with(b";;") {
        "it is WebAssembly text; convert it with `wasm-tools parse`"
    } else if bytes.starts_with(b"PK\x03\x04")
        || bytes.starts_with(b"\x1f\x8b")
        || bytes.starts_with(b"\x28\xb5\x2f\xfd")
    {
        "it is an archive; unpack it first"
    } else if WASM.starts_with(bytes) {
        "it is cut short"
    } else {
        "it does not start with the mark of WebAssembly"
    })
}

/// The whole name of one of the interfaces that a plugin exports.
pub(crate) fn export_name(interface: &str) -> String {
    format!("{PACKAGE}{interface}@{INTERFACE_VERSION}")
}

/// Checks version, exports and imports by name.
pub(crate) fn check_names(plugin: &str, outline: &Outline) -> Result<(), AdmitError> {
    let interface = |found: Option<String>, detail: String| AdmitError::Interface {
        plugin: plugin.to_owned(),
        found,
        expected: INTERFACE_VERSION,
        detail,
    };
    match outline.interface_version() {
        // Those of another version beside ours are none of our business.
        _ if outline.exports.contains(&export_name("plugin")) => {}
        None => {
            let detail = "it exports no interface of tidegate:sink; build it with the SDK or against wit/0.1";
            return Err(interface(None, detail.to_owned()));
        }
        Some(version) if version != INTERFACE_VERSION => {
            let detail = "rebuild the plugin, or use a host that speaks its version";
            return Err(interface(Some(version), detail.to_owned()));
        }
        Some(_) => {}
    }
    let missing: Vec<_> =
        EXPORTS.iter().map(|name| export_name(name)).filter(|name| !outline.exports.contains(name)).collect();
    if !missing.is_empty() {
        return Err(interface(None, format!("it does not export {}", missing.join(", "))));
    }
    let unknown: Vec<_> = outline.imports.iter().filter(|name| !known_import(name)).cloned().collect();
    if !unknown.is_empty() {
        let unknown = unknown.iter().take(20).map(|name| crate::text::clean(name, 200)).collect();
        return Err(AdmitError::Imports { plugin: plugin.to_owned(), unknown });
    }
    Ok(())
}

fn known_import(name: &str) -> bool {
    let Some((interface, version)) = name.split_once('@') else { return false };
    match interface.strip_prefix(PACKAGE) {
        Some(own) => IMPORTS.contains(&own) && version == INTERFACE_VERSION,
        None => WASI_INTERFACES.contains(&interface) && is_wasi_0_2(version),
    }
}

fn is_wasi_0_2(version: &str) -> bool {
    version.strip_prefix("0.2.").is_some_and(|patch| {
        let digits = patch.bytes().all(|byte| byte.is_ascii_digit());
        digits && patch.parse::<u32>().is_ok_and(|number| number.to_string() == patch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        outline("x.wasm", bytes, &ComponentCaps::default()).unwrap_err().to_string()
    }

    fn read(bytes: &[u8]) -> Result<Outline, AdmitError> {
        outline("x", bytes, &ComponentCaps::default())
    }

    #[test]
    fn what_is_not_a_component_is_named() {
        assert!(refusal(b"").contains("empty"));
        assert!(refusal(b"\x7fELF\x02\x01").contains("ELF"));
        assert!(refusal(b"  (component)").contains("text"));
        assert!(refusal(b"PK\x03\x04rest").contains("archive"));
        assert!(refusal(b"\0as").contains("cut short"));
        assert!(refusal(b"hello").contains("mark of WebAssembly"));
        assert!(refusal(b"\0asm\x01\0\0\0").contains("core module"));
    }

    #[test]
    fn a_component_cut_anywhere_is_refused_or_has_fewer_names() {
        let whole = wat::parse_str(r#"(component (import "a" (func)) (import "b" (func)))"#).unwrap();
        assert_eq!(read(&whole).unwrap().imports.len(), 2);
        for end in 0..whole.len() {
            if let Ok(outline) = read(&whole[..end]) {
                assert!(outline.imports.len() < 2, "cut at {end}");
            }
        }
    }

    #[test]
    fn names_inside_a_nested_component_do_not_count() {
        let bytes = wat::parse_str(
            r#"(component (component (import "inner" (func)) (core module)) (core module) (import "outer" (func)))"#,
        )
        .unwrap();
        let outline = read(&bytes).unwrap();
        assert_eq!(outline.imports, BTreeSet::from(["outer".to_owned()]));
    }

    #[test]
    fn the_published_list_is_the_one_that_counts() {
        let page = include_str!("../../../wit/README.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `wasi:")?.split_once("` |"));
        let published = rows.flat_map(|(package, interfaces)| {
            let interfaces = interfaces.split('`').skip(1).step_by(2);
            interfaces.map(move |interface| format!("wasi:{package}/{interface}"))
        });
        let published: BTreeSet<_> = published.collect();
        assert_eq!(published, WASI_INTERFACES.iter().map(|name| (*name).to_owned()).collect());
    }

    #[test]
    fn patch_versions_of_wasi_are_one() {
        assert!(known_import("wasi:io/streams@0.2.0"));
        assert!(known_import("wasi:io/streams@0.2.12"));
        assert!(!known_import("wasi:io/streams@0.3.0"));
        for odd in ["0.2", "0.2.", "0.2.+1", "0.2.01", "0.2.1-rc1", "0.20.1", "1.0.2.1"] {
            assert!(!known_import(&format!("wasi:io/streams@{odd}")), "{odd}");
        }
        assert!(!known_import("wasi:http/incoming-handler@0.2.0"));
        assert!(!known_import("tidegate:sink/rows@0.2.0"));
    }
}
