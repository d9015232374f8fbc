//! Columns that the host adds to rows on their way to a destination.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray, TimestampMillisecondArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef, TimeUnit};

use crate::{ColumnsError, Result, Schema};

/// A column that can be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedColumn {
    /// `_epoch`, the number of the epoch that makes the row visible.
    Epoch,
    /// `_part`, the short name of the part that it belongs to.
    Part,
    /// `_emitted_at`, when it was handed to the destination: a timestamp in milliseconds, UTC.
    EmittedAt,
}

impl AddedColumn {
    /// Its name in rows and in pipeline files.
    pub fn name(self) -> &'static str {
        match self {
            AddedColumn::Epoch => "_epoch",
            AddedColumn::Part => "_part",
            AddedColumn::EmittedAt => "_emitted_at",
        }
    }

    fn field(self) -> Field {
        let kind = match self {
            AddedColumn::Epoch => DataType::UInt64,
            AddedColumn::Part => DataType::Utf8,
            AddedColumn::EmittedAt => DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())),
        };
        Field::new(self.name(), kind, false)
    }
}

/// What the added columns say.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// The epoch's number.
    pub epoch: u64,
    /// The part's short name.
    pub part: Arc<str>,
    /// Unix milliseconds.
    pub emitted_at: i64,
}

/// Columns behind those of the rows.
#[derive(Debug, Clone)]
pub struct AddedColumns {
    columns: Vec<AddedColumn>,
}

impl AddedColumns {
    /// Columns to add, in this order, to rows with the columns `input`.
    ///
    /// # Errors
    /// `BadOption`: a column of this name is there.
    pub fn new(columns: &[AddedColumn], input: &Schema) -> Result<Self> {
        for column in columns {
            let name = column.name();
            if input.arrow().field_with_name(name).is_ok() {
                return Err(ColumnsError::bad_option(format!(
                    "`columns` adds `{name}`, but the rows have a column of this name; rename it with `transform`, or \
                     leave it out of `columns`"
                )));
            }
        }
        Ok(Self { columns: columns.to_vec() })
    }

    /// The columns of rows of `input` with the added ones.
    pub fn output(&self, input: &Schema) -> Schema {
        Schema::new(self.extend(input.arrow()))
    }

    fn extend(&self, input: &SchemaRef) -> SchemaRef {
        let mut fields: Vec<_> = input.fields().iter().cloned().collect();
        fields.extend(self.columns.iter().map(|column| Arc::new(column.field())));
        Arc::new(ArrowSchema::new_with_metadata(fields, input.metadata().clone()))
    }

    /// Adds the columns.
    ///
    /// # Errors
    /// `Internal`: the rows are none that this was made for.
    pub fn apply(&self, batch: &RecordBatch, stamp: &Stamp) -> Result<RecordBatch> {
        if self.columns.is_empty() {
            return Ok(batch.clone());
        }
        let rows = batch.num_rows();
        let mut columns = batch.columns().to_vec();
        columns.extend(self.columns.iter().map(|column| -> ArrayRef {
            match column {
                AddedColumn::Epoch => Arc::new(UInt64Array::from_value(stamp.epoch, rows)),
                AddedColumn::Part => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(&*stamp.part, rows))),
                AddedColumn::EmittedAt => {
                    Arc::new(TimestampMillisecondArray::from_value(stamp.emitted_at, rows).with_timezone("UTC"))
                }
            }
        }));
        RecordBatch::try_new(self.extend(&batch.schema()), columns)
            .map_err(|error| ColumnsError::internal(format!("columns cannot be added: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_say_their_epoch_part_and_time_and_names_are_not_taken_twice() {
        let numbers: ArrayRef = Arc::new(UInt64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).expect("one column");
        let schema = Schema::new(batch.schema());
        let added =
            AddedColumns::new(&[AddedColumn::Epoch, AddedColumn::Part, AddedColumn::EmittedAt], &schema).unwrap();
        let stamp = Stamp { epoch: 7, part: "tg-x-1-7-0-1".into(), emitted_at: 1_357_000_000_000 };
        let out = added.apply(&batch, &stamp).unwrap();
        assert_eq!(out.schema(), *added.output(&schema).arrow());
        assert_eq!((out.num_rows(), out.num_columns()), (2, 4));
        let again = AddedColumns::new(&[AddedColumn::Part], &Schema::new(out.schema())).unwrap_err();
        assert!(again.message.contains("`_part`"), "{again}");
    }
}
