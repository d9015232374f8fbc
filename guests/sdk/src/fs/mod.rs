//! Files of a granted directory. In the sandbox over `wasi:filesystem`, natively over the same calls of the system.
//!
//! Paths are relative, may have several parts, and never leave the directory. Nothing is created, replaced or flushed
//! unless a method says so.

mod error;
#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(target_family = "wasm")]
mod wasi;

pub use error::{Error, ErrorKind};
#[cfg(not(target_family = "wasm"))]
pub use native::{Dir, File, Stream};
#[cfg(target_family = "wasm")]
pub use wasi::{Dir, File, Stream};

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// It is a regular file.
    pub is_file: bool,
    /// Its size in bytes.
    pub bytes: u64,
}
