//! Rows of one or several files on their way into one batch: many small files cost little more than one large one.

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidegate_columns::rows::ColumnBatch;

use crate::source::rows::Taken;
use crate::source::{SourceBatch, SourceError};

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
    /// All rows, if they are columns.
    columns: Vec<RecordBatch>,
    /// Memory of these.
    columns_bytes: usize,
    batch: SourceBatch,
}

impl Gather {
    pub(super) fn new(most_bytes: usize, most_rows: u64, most_files: usize) -> Self {
        let most_bytes = most_bytes.max(1);
        let (piece, pieces, batch) = (Bytes::new(), Vec::new(), SourceBatch::default());
        let (columns, columns_bytes) = (Vec::new(), 0);
        Self { most_bytes, most_rows, most_files, piece, pieces, columns, columns_bytes, batch }
    }

    fn bytes(&self) -> usize {
        self.piece.len() + self.pieces.len() + self.columns_bytes
    }

    fn rows(&self) -> u64 {
        self.batch.rows + self.batch.bad.len() as u64
    }

    /// How many bytes and rows may still come. `None` if the batch is to be handed out.
    pub(super) fn room(&self) -> Option<(usize, u64)> {
        let full = self.bytes() >= (self.most_bytes / 4 * 3).max(1)
            || self.piece.len().max(self.columns_bytes) >= LARGE
            || self.rows() >= self.most_rows
            || self.batch.bad.len() >= MOST_BAD
            || self.batch.positions.len() >= self.most_files;
        (!full).then(|| (self.most_bytes - self.bytes(), self.most_rows - self.rows()))
    }

    pub(super) fn add(&mut self, taken: Taken) {
        self.batch.rows += taken.rows;
        self.batch.bad.extend(taken.bad);
        if let Some(columns) = taken.columns.filter(|columns| columns.num_rows() > 0) {
            self.columns_bytes += ColumnBatch::new(columns.clone()).bytes();
            self.columns.push(columns);
        }
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
    pub(super) fn finish(mut self) -> Result<Option<SourceBatch>, SourceError> {
        self.batch.bytes = if self.pieces.is_empty() { self.piece } else { Bytes::from(self.pieces) };
        if !self.columns.is_empty() {
            let joined = ColumnBatch::join(&self.columns);
            self.batch.columns = Some(joined.map_err(|error| SourceError::Interrupted(error.message))?);
        }
        let nothing = self.batch.rows == 0 && self.batch.bad.is_empty() && self.batch.positions.is_empty();
        Ok((!nothing).then_some(self.batch))
    }
}
