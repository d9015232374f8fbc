//! The log and the checkpoint storage of one pipeline: the only code that touches checkpoint files.
//!
//! A log is records numbered without gaps, created if absent, never replaced. What a record *means* is decided in
//! `tidegate_protocol::history`; this crate keeps it: a record whose [`AppendResult::Created`] was returned is on the
//! disk, and a log that cannot be read says so by name and place.
//!
//! [`LocalLog`] keeps a log in a local directory; `FORMAT.md` draws its files byte by byte. [`MemoryLog`] keeps it in
//! memory, for tests, and can be told to fail. [`state`] cuts large state into pieces that lie beside the log.
//!
//! Nothing here reads a clock or draws a random number.

pub mod codec;
pub mod disk;
mod error;
mod local;
mod log;
mod memory;
pub mod state;

pub use error::{ErrorKind, StoreError};
pub use local::contents;
pub use local::{LocalLog, OpenOptions, ReadOnlyLog, Recovery, Tail};
pub use log::Log;
pub use memory::{AppendFault, MemoryLog, StateFault};
pub use tidegate_protocol::event::AppendResult;
