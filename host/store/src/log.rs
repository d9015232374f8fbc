//! What every store offers.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::Slot;
use tidegate_protocol::record::{Record, StateChunk};

use crate::StoreError;

/// One pipeline's log. Calls block; the driver makes them from one thread.
pub trait Log: Send {
    /// Creates `record` in its slot if that slot is free, which it is only when it is the next one. Pages of positions
    /// that a seal names are put beside the log before that, as by [`Log::put_state`]; those that are not in memory must
    /// be there already.
    ///
    /// `Created` means durable. `Taken` returns what is there already, which may be this very record when an earlier
    /// answer was lost: compare. After `Unknown`, and after `NotWritten` that is not `retryable`, the log accepts
    /// nothing more in this process.
    fn append(&mut self, record: &Record) -> AppendResult;

    /// All records that are retained, by ascending slot. A slot that is missing between two others was deleted.
    ///
    /// # Errors
    /// The log is damaged, or a failed write has made what can be read here unreliable.
    fn read_all(&mut self) -> Result<Vec<Record>, StoreError>;

    /// Deletes records that are retired and released. Slots that hold no record any more are passed over.
    ///
    /// The records are gone for [`Log::read_all`] at once. Their bytes are reclaimed later, in order of slots; after a
    /// crash in between, deleted records may be there again, and then all later ones as well: delete them again.
    ///
    /// # Errors
    /// One of them is an `open` record (then none is deleted), or the store failed.
    fn delete(&mut self, slots: &[Slot]) -> Result<(), StoreError>;

    /// Keeps a piece of state beside the log, durable on return. What is there already is not written again.
    ///
    /// # Errors
    /// The store failed, or the piece is larger than [`crate::codec::MAX_PAYLOAD`].
    fn put_state(&mut self, chunk: &[u8]) -> Result<StateChunk, StoreError>;

    /// Reads a piece of state and checks it against its name.
    ///
    /// # Errors
    /// It is missing or damaged.
    fn read_state(&mut self, chunk: &StateChunk) -> Result<Bytes, StoreError>;

    /// Deletes all pieces of state but these, and returns how many. Everything is classified before anything is
    /// deleted; what cannot be classified, or a piece of `keep` that is missing, stops it. Pieces that were put for an
    /// epoch which is not sealed yet belong in `keep` as well.
    ///
    /// # Errors
    /// Then, before the first deletion, nothing was deleted.
    fn retain_state(&mut self, keep: &BTreeSet<StateChunk>) -> Result<u64, StoreError>;
}
