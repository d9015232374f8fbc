//! Rows of one or several files on their way into one batch: many small files cost little more than one large one.

use bytes::Bytes;

use crate::source::SourceBatch;
use crate::source::rows::Taken;

/// Rows that are not copied to lie behind others: the batch ends with them.
const LARGE: usize = 64 << 10;
/// Bad rows in one batch, about.
const MOST_BAD: usize = 256;

/// See the module.
pub(super) struct Gather {
    most_bytes: usize,
    most_rows: u64,
    most_files: usize,
    /// All rows, if they came in one piece.
    piece: Bytes,
    /// All rows, if they did not.
    pieces: Vec<u8>,
    batch: SourceBatch,
}

impl Gather {
    pub(super) fn new(most_bytes: usize, most_rows: u64, most_files: usize) -> Self {
        let most_bytes = most_bytes.max(1);
        let (piece, pieces, batch) = (Bytes::new(), Vec::new(), SourceBatch::default());
        Self { most_bytes, most_rows, most_files, piece, pieces, batch }
    }

    fn bytes(&self) -> usize {
        self.piece.len() + self.pieces.len()
    }

    fn rows(&self) -> u64 {
        self.batch.rows + self.batch.bad.len() as u64
    }

    /// How many bytes and rows may still come. `None` if the batch is to be handed out.
    pub(super) fn room(&self) -> Option<(usize, u64)> {
        let full = self.bytes() >= (self.most_bytes / 4 * 3).max(1)
            || self.piece.len() >= LARGE
            || self.rows() >= self.most_rows
            || self.batch.bad.len() >= MOST_BAD
            || self.batch.positions.len() >= self.most_files;
        (!full).then(|| (self.most_bytes - self.bytes(), self.most_rows - self.rows()))
    }

    pub(super) fn add(&mut self, taken: Taken) {
        self.batch.rows += taken.rows;
        self.batch.bad.extend(taken.bad);
        if self.bytes() == 0 {
            self.piece = taken.bytes;
        } else if !taken.bytes.is_empty() {
            self.pieces.reserve(self.piece.len() + taken.bytes.len());
            self.pieces.extend_from_slice(&std::mem::take(&mut self.piece));
            self.pieces.extend_from_slice(&taken.bytes);
        }
    }

    /// Where a partition stands behind the rows added last.
    pub(super) fn moved(&mut self, partition: &str, position: String) {
        match self.batch.positions.last_mut() {
            Some((last, old)) if last == partition => *old = position,
            _ => self.batch.positions.push((partition.to_owned(), position)),
        }
    }

    /// Positions that belong to no rows.
    pub(super) fn moved_alone(&mut self, positions: Vec<(String, String)>) {
        self.batch.positions.extend(positions);
    }

    /// `None` if nothing happened.
    pub(super) fn finish(mut self) -> Option<SourceBatch> {
        self.batch.bytes = if self.pieces.is_empty() { self.piece } else { Bytes::from(self.pieces) };
        let nothing = self.batch.rows == 0 && self.batch.bad.is_empty() && self.batch.positions.is_empty();
        (!nothing).then_some(self.batch)
    }
}
