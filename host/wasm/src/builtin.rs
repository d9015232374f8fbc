//! The plugins that are part of this binary, for `plugin = "builtin:<name>"`. They are components like any other and
//! run in the same sandbox.

static COMPONENTS: &[(&str, &[u8])] = &[("files", include_bytes!(concat!(env!("OUT_DIR"), "/files.wasm")))];

/// Their names, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMPONENTS.iter().map(|(name, _)| *name)
}

/// The bytes of one.
pub fn component(name: &str) -> Option<&'static [u8]> {
    COMPONENTS.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes)
}
