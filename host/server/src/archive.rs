//! Carrying a pipeline's state to another host: one `tar.zst` with a manifest, the log and its pieces.
//!
//! ```text
//! manifest.json     format, pipeline, and path, length and SHA-256 of every file that follows
//! log/…, state/…    the files, in the manifest's order
//! manifest.sha256   SHA-256 of the manifest, in hex: without it the archive is not whole
//! ```
//! Nothing else may be in it. It is read twice: once to the end before anything is created, then into a directory beside
//! its place, which gets its name when everything in it is flushed and has been read as a log.

mod export;
mod import;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use export::{Exported, export};
pub use import::{Imported, import};

/// Version of the archive's format.
pub const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const END: &str = "manifest.sha256";
/// A manifest is not longer, and names no more files.
const LONGEST_MANIFEST: u64 = 256 << 20;
const MOST_FILES: usize = 1_000_000;
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// What an archive says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Manifest {
    format: u32,
    pipeline: String,
    /// Version of the program that wrote it.
    product: String,
    newest_epoch: Option<u64>,
    /// Records of the log.
    records: u64,
    files: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    path: String,
    bytes: u64,
    sha256: String,
}

fn hex(digest: Sha256) -> String {
    data_encoding::HEXLOWER.encode(&digest.finalize())
}

fn hex_of(bytes: &[u8]) -> String {
    hex(Sha256::new_with_prefix(bytes))
}
