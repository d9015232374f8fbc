//! Rows of a Parquet file from a row number on.

use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::RowGroupMetaData;

use crate::parquet::source::Source;
use crate::parquet::{Failure, ParquetFile, contained, damaged};
use crate::rows::ColumnBatch;
use crate::{ColumnsError, Result};

/// Rows of the first batch: how large rows are is not known before.
const FIRST_ROWS: usize = 256;
/// Rows of a batch at most.
const MAX_ROWS: usize = 8192;
/// By how much a batch may be larger than the one before.
const GROWTH: usize = 8;

/// Consecutive rows of a Parquet file.
#[derive(Debug, Clone, PartialEq)]
pub struct ParquetBatch {
    /// Number of the first one, from 0. Number and count give the position behind them.
    pub first_row: u64,
    /// The rows.
    pub batch: RecordBatch,
}

/// Reads on from a row number. See [`ParquetFile::read_from`].
pub struct ParquetRows {
    source: Source,
    name: Arc<str>,
    reading: ArrowReaderMetadata,
    mask: Option<ProjectionMask>,
    exact: Option<Arc<super::schema::Exact>>,
    /// The row that is read next.
    next_row: u64,
    max_bytes: usize,
    /// Rows of the next batch, from the size of those before.
    batch_rows: usize,
    group: Option<Group>,
    /// Read, and too large to be handed out at once.
    rest: Option<RecordBatch>,
    failed: bool,
}

/// A row group that is being read.
struct Group {
    reader: ParquetRecordBatchReader,
    exact: Option<ParquetRecordBatchReader>,
    /// With which size of a batch.
    batch_rows: usize,
    /// The row behind its last.
    end: u64,
}

impl ParquetRows {
    pub(super) fn new(of: &ParquetFile, row: u64, max_bytes: usize) -> ParquetRows {
        ParquetRows {
            source: of.source.clone(),
            name: of.name.clone(),
            reading: of.reading.clone(),
            mask: of.mask.clone(),
            exact: of.exact.clone(),
            next_row: row.min(of.rows),
            max_bytes: max_bytes.max(1),
            batch_rows: FIRST_ROWS,
            group: None,
            rest: None,
            failed: false,
        }
    }

    /// The row behind those that were handed out.
    pub fn position(&self) -> u64 {
        self.next_row - self.rest.as_ref().map_or(0, |rest| rest.num_rows() as u64)
    }

    /// The next rows, at least one; `None` behind the last.
    ///
    /// # Errors
    /// `Io`: the file cannot be read. `BadValue`: it is damaged. `Unsupported`: it holds values that cannot be read
    /// without changing them. A reader that failed stays so; another one can go on behind the bad rows' row group.
    pub fn next_batch(&mut self) -> Result<Option<ParquetBatch>> {
        if self.failed {
            return Err(damaged(&self.name, "it could not be read on before"));
        }
        if self.rest.is_none() {
            self.failed = true;
            self.rest = self.decode()?;
            self.failed = false;
        }
        let Some(batch) = self.rest.take() else { return Ok(None) };
        let first_row = self.next_row - batch.num_rows() as u64;
        let rows = ColumnBatch::new(batch.clone()).rows_within(self.max_bytes);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        Ok(Some(ParquetBatch { first_row, batch: batch.slice(0, rows) }))
    }

    fn decode(&mut self) -> Result<Option<RecordBatch>> {
        if self.group.as_ref().is_none_or(|group| group.end <= self.next_row) {
            self.expect_size();
            if !self.open_group()? {
                return Ok(None);
            }
        }
        // Larger batches once rows are known to be small, and the other way round.
        let wrong_size = self.group.as_ref().is_some_and(|group| {
            self.batch_rows < group.batch_rows || self.batch_rows >= group.batch_rows.saturating_mul(GROWTH / 2)
        });
        if wrong_size && !self.open_group()? {
            return Ok(None);
        }
        let name = self.name.clone();
        let exact = self.exact.clone();
        let Some(group) = &mut self.group else { return Ok(None) };
        let batch = contained(&name, "rows", || {
            let Some(batch) = group.reader.next().transpose()? else { return Ok(None) };
            if let (Some(exact), Some(reader)) = (&exact, &mut group.exact) {
                let same = reader.next().transpose()?;
                let same = same.ok_or_else(|| Failure::Theirs("columns of different lengths".to_owned()))?;
                exact.check(&batch, &same)?;
            }
            Ok(Some(batch))
        })?;
        let left = group.end - self.next_row;
        match batch {
            Some(batch) if batch.num_rows() > 0 && batch.num_rows() as u64 <= left => {
                self.next_row += batch.num_rows() as u64;
                self.learn(&batch);
                Ok(Some(batch))
            }
            _ => Err(damaged(&name, "a row group does not have as many rows as it says")),
        }
    }

    /// Takes fewer rows from the next row group, if it says that they are large. That is a hint: values of a dictionary
    /// take more when they are read, and a file may say anything.
    fn expect_size(&mut self) {
        let Some((_, _, group)) = self.group_of_next() else { return };
        let wanted = |leaf: &usize| self.mask.as_ref().is_none_or(|mask| mask.leaf_included(*leaf));
        let sizes = (0..group.num_columns()).filter(wanted).map(|leaf| group.column(leaf).uncompressed_size());
        let bytes = sizes.fold(0u64, |sum, size| sum.saturating_add(u64::try_from(size).unwrap_or(0)));
        let of_a_row = bytes / u64::try_from(group.num_rows()).unwrap_or(1).max(1);
        let fit = self.max_bytes / usize::try_from(of_a_row).unwrap_or(usize::MAX).max(1);
        self.batch_rows = self.batch_rows.min(fit.max(1));
    }

    /// The row group of the next row, its number, and its first row. `None` behind the last.
    fn group_of_next(&self) -> Option<(usize, u64, &RowGroupMetaData)> {
        let mut start = 0u64;
        for (index, group) in self.reading.metadata().row_groups().iter().enumerate() {
            let end = start.saturating_add(rows_of(group));
            if self.next_row < end {
                return Some((index, start, group));
            }
            start = end;
        }
        None
    }

    fn learn(&mut self, batch: &RecordBatch) {
        let bytes = ColumnBatch::new(batch.clone()).bytes();
        let of_a_row = (bytes / batch.num_rows().max(1)).max(1);
        let fit = self.max_bytes / of_a_row;
        self.batch_rows = fit.min(self.batch_rows.saturating_mul(GROWTH)).clamp(1, MAX_ROWS);
    }

    /// Opens the row group of the next row, at that row. Answers `false` behind the last.
    fn open_group(&mut self) -> Result<bool> {
        self.group = None;
        let Some((index, start, group)) = self.group_of_next() else { return Ok(false) };
        let end = start.saturating_add(rows_of(group));
        let skip = usize::try_from(self.next_row - start)
            .map_err(|_| ColumnsError::unsupported(format!("{}: has too many rows in a group", self.name)))?;
        let open = |reading: &ArrowReaderMetadata, mask: Option<ProjectionMask>| {
            let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.source.clone(), reading.clone());
            if let Some(mask) = mask {
                builder = builder.with_projection(mask);
            }
            builder.with_row_groups(vec![index]).with_offset(skip).with_batch_size(self.batch_rows).build()
        };
        let (reader, exact) = contained(&self.name, "row group", || {
            let exact = self.exact.as_ref().map(|exact| open(&exact.reading, Some(exact.mask.clone())));
            Ok((open(&self.reading, self.mask.clone())?, exact.transpose()?))
        })?;
        self.group = Some(Group { reader, exact, batch_rows: self.batch_rows, end });
        Ok(true)
    }
}

/// Checked when the file was opened.
fn rows_of(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or(0)
}
