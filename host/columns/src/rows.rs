//! Rows on their way from a source to a sink: as bytes that nobody has looked into, or as columns.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use tidegate_protocol::plugin::Batch;

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

    /// Some of the rows, sharing their memory. What reaches beyond the end is left out.
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        let offset = offset.min(self.batch.num_rows());
        let len = len.min(self.batch.num_rows() - offset);
        Self { batch: self.batch.slice(offset, len) }
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
    fn a_slice_ends_where_the_rows_end() {
        let whole = columns(10);
        assert_eq!(whole.slice(8, 100).rows(), 2);
        assert_eq!(whole.slice(10, 1).rows(), 0);
        assert_eq!(whole.slice(usize::MAX, usize::MAX).rows(), 0);
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
