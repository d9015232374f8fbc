//! Rows on their way from a source to a sink: as bytes that nobody has looked into, or as columns.

use std::ops::Range;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use tidegate_protocol::plugin::Batch;

use crate::{ColumnsError, Result};

/// Rows between two tasks. Cheap to clone: bytes and columns are shared.
#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// In the encoding in which the source has them.
    Encoded(Batch),
    /// Typed.
    Columns(ColumnBatch),
}

impl Rows {
    /// How many rows.
    pub fn rows(&self) -> u64 {
        match self {
            Rows::Encoded(batch) => batch.rows,
            Rows::Columns(columns) => columns.rows(),
        }
    }

    /// Bytes of memory they take, for budgets. Columns: see [`ColumnBatch::bytes`].
    pub fn bytes(&self) -> usize {
        match self {
            Rows::Encoded(batch) => batch.bytes.len(),
            Rows::Columns(columns) => columns.bytes(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }
}

impl From<Batch> for Rows {
    fn from(batch: Batch) -> Self {
        Rows::Encoded(batch)
    }
}

impl From<ColumnBatch> for Rows {
    fn from(batch: ColumnBatch) -> Self {
        Rows::Columns(batch)
    }
}

/// Typed rows. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnBatch {
    /// The rows.
    pub batch: RecordBatch,
}

impl ColumnBatch {
    /// Rows of a record batch.
    pub fn new(batch: RecordBatch) -> Self {
        Self { batch }
    }

    /// Their columns' names and types.
    pub fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }

    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.batch.num_rows() as u64
    }

    /// Bytes that these rows need: of a slice only its own part. Never 0 while there are rows, so that a budget in
    /// bytes bounds rows without columns too.
    pub fn bytes(&self) -> usize {
        let columns: usize = self
            .batch
            .columns()
            .iter()
            // Fails for types only whose layout is unknown; all of their memory is the safe side.
            .map(|column| column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size()))
            .sum();
        columns.max(self.batch.num_rows())
    }

    /// How many of the first rows take about `most_bytes`, if all are of one size; at least one, unless there are none.
    pub fn rows_within(&self, most_bytes: usize) -> usize {
        let (rows, bytes) = (self.batch.num_rows(), self.bytes());
        if bytes <= most_bytes {
            return rows;
        }
        let within = rows as u128 * most_bytes as u128 / bytes as u128;
        usize::try_from(within).unwrap_or(rows).max(1)
    }

    /// Some of the rows, sharing their memory. What reaches beyond the end is left out.
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        let offset = offset.min(self.batch.num_rows());
        let len = len.min(self.batch.num_rows() - offset);
        Self { batch: self.batch.slice(offset, len) }
    }
}

impl ColumnBatch {
    /// Deals the rows, keeping their order: row n goes to the share that `owners` says at n, which is below `count`.
    ///
    /// # Errors
    /// `Internal`: `owners` does not have an owner for each row.
    pub fn deal(&self, owners: &[u32], count: usize) -> Result<Vec<Option<ColumnBatch>>> {
        if owners.len() != self.batch.num_rows() {
            let (owners, rows) = (owners.len(), self.batch.num_rows());
            return Err(ColumnsError::internal(format!("{owners} owners for {rows} rows")));
        }
        let mut shares: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (row, &owner) in (0u32..).zip(owners) {
            let share = shares.get_mut(owner as usize);
            share.ok_or_else(|| ColumnsError::internal(format!("owner {owner} of {count}")))?.push(row);
        }
        let take = |rows: Vec<u32>| match rows.len() {
            0 => Ok(None),
            all if all == self.batch.num_rows() => Ok(Some(self.clone())),
            _ => take_record_batch(&self.batch, &UInt32Array::from(rows))
                .map(|batch| Some(ColumnBatch { batch }))
                .map_err(|error| ColumnsError::internal(format!("rows cannot be dealt: {error}"))),
        };
        shares.into_iter().map(take).collect()
    }

    /// Some of the rows, copied. A slice of lists still has the items of all rows, and an item that fails fails every
    /// slice.
    ///
    /// # Errors
    /// `Internal`: the rows are not there.
    pub fn copied(batch: &RecordBatch, rows: Range<usize>) -> Result<RecordBatch> {
        let rows = UInt32Array::from_iter_values(rows.map(|row| row as u32));
        take_record_batch(batch, &rows)
            .map_err(|error| ColumnsError::internal(format!("rows cannot be copied: {error}")))
    }

    /// The rows of several batches of one schema, one after the other.
    ///
    /// # Errors
    /// `Internal`: their schemas differ, there are none, or their texts are too long together.
    pub fn join(batches: &[RecordBatch]) -> Result<RecordBatch> {
        match batches {
            [one] => Ok(one.clone()),
            [] => Err(ColumnsError::internal("no rows to join")),
            [first, ..] => concat_batches(first.schema_ref(), batches)
                .map_err(|error| ColumnsError::internal(format!("rows cannot be joined: {error}"))),
        }
    }

    /// One column alone, by name.
    pub fn column(&self, name: &str) -> Option<ColumnBatch> {
        let place = self.batch.schema().index_of(name).ok()?;
        self.batch.project(&[place]).ok().map(|batch| ColumnBatch { batch })
    }
}

impl From<RecordBatch> for ColumnBatch {
    fn from(batch: RecordBatch) -> Self {
        Self { batch }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatchOptions, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn columns(rows: i64) -> ColumnBatch {
        let schema =
            Schema::new(vec![Field::new("number", DataType::Int64, false), Field::new("text", DataType::Utf8, false)]);
        let numbers = Int64Array::from_iter_values(0..rows);
        let texts = StringArray::from_iter_values((0..rows).map(|row| format!("{row:010}")));
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(texts)]);
        ColumnBatch::new(batch.expect("two columns of one length"))
    }

    #[test]
    fn a_slice_is_charged_for_its_own_rows() {
        let whole = columns(1000);
        let tenth = whole.slice(100, 100);
        assert_eq!((whole.rows(), tenth.rows()), (1000, 100));
        assert!((22_000..23_000).contains(&whole.bytes()), "{}", whole.bytes());
        assert!((2_200..2_300).contains(&tenth.bytes()), "{}", tenth.bytes());
    }

    #[test]
    fn dealt_rows_keep_their_order_and_are_all_there() {
        let whole = columns(5);
        let shares = whole.deal(&[1, 0, 1, 1, 0], 3).expect("five owners below three");
        let numbers = |share: &ColumnBatch| {
            let column = share.batch.column(0).as_any().downcast_ref::<Int64Array>().expect("numbers");
            column.values().to_vec()
        };
        let dealt: Vec<_> = shares.iter().map(|share| share.as_ref().map(numbers)).collect();
        assert_eq!(dealt, [Some(vec![1, 4]), Some(vec![0, 2, 3]), None]);
        assert!(whole.deal(&[0], 1).is_err() && whole.deal(&[7; 5], 2).is_err());
    }

    #[test]
    fn a_slice_ends_where_the_rows_end() {
        let whole = columns(10);
        assert_eq!(whole.slice(8, 100).rows(), 2);
        assert_eq!(whole.slice(10, 1).rows(), 0);
        assert_eq!(whole.slice(usize::MAX, usize::MAX).rows(), 0);
    }

    #[test]
    fn rows_that_fit_are_counted_and_one_always_does() {
        let whole = columns(1000);
        assert_eq!((whole.rows_within(usize::MAX), whole.rows_within(whole.bytes())), (1000, 1000));
        assert_eq!((whole.rows_within(whole.bytes() / 10 + 1), whole.rows_within(0)), (100, 1));
        assert_eq!(whole.slice(0, 0).rows_within(7), 0);
    }

    #[test]
    fn rows_without_columns_still_cost_something() {
        let options = RecordBatchOptions::new().with_row_count(Some(7));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).expect("no columns");
        let rows = Rows::from(ColumnBatch::from(batch));
        assert_eq!((rows.rows(), rows.bytes()), (7, 7));
        assert!(!rows.is_empty());
    }
}
