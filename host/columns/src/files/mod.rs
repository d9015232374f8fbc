//! The host's encoder of whole files: typed or encoded rows in, pieces of files out.
//!
//! A plugin that takes `files` only stores bytes. One [`FileWriter`] serves one participant, epoch after epoch:
//! [`FileWriter::write`] returns the pieces that are ready, [`FileWriter::finish`] ends every file, before `prepare`.
//! The same rows in the same batches give the same files.

mod compress;
mod folder;
mod open;
mod options;
mod writer;

#[cfg(test)]
mod tests;

pub use folder::FolderTemplate;
pub use options::{Compression, DEFAULT_MEMORY_BYTES, DEFAULT_OPEN_FILES, DEFAULT_ROLL_BYTES, FileFormat, FileOptions};
pub use writer::{FileWriter, check_same_columns};
