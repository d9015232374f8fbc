//! The columns of a Parquet file as they are read.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, TimestampNanosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Fields, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type;
use parquet::schema::types::SchemaDescriptor;

use crate::parquet::Failure;
use crate::{ColumnsError, Result};

/// INT96 columns as nanoseconds.
///
/// INT96 counts nanoseconds over millions of years; 64 bits hold either the nanoseconds or the years. They are read as
/// microseconds, and read again as nanoseconds modulo 2^64 in order to see that nothing was cut off.
pub(super) struct Exact {
    pub(super) reading: ArrowReaderMetadata,
    pub(super) mask: ProjectionMask,
    leaves: Vec<bool>,
}

/// How a file is read: dictionaries and views as plain values, INT96 as microseconds.
pub(super) fn adapted(found: &ArrowReaderMetadata) -> Result<(ArrowReaderMetadata, Option<Exact>), Failure> {
    let leaves: Vec<bool> = int96(found.parquet_schema()).collect();
    let as_wanted = |int96: TimeUnit| {
        let mut leaf = 0;
        let fields: Vec<FieldRef> =
            found.schema().fields().iter().map(|field| plain(field, &leaves, &mut leaf, int96)).collect();
        let options = ArrowReaderOptions::new().with_schema(Arc::new(arrow_schema::Schema::new(fields)));
        ArrowReaderMetadata::try_new(found.metadata().clone(), options)
    };
    let reading = as_wanted(TimeUnit::Microsecond)?;
    let exact = if leaves.contains(&true) {
        let indexes = leaves.iter().enumerate().filter(|(_, is)| **is).map(|(index, _)| index);
        let mask = ProjectionMask::leaves(found.parquet_schema(), indexes);
        Some(Exact { reading: as_wanted(TimeUnit::Nanosecond)?, mask, leaves })
    } else {
        None
    };
    Ok((reading, exact))
}

/// Whether any column is INT96.
pub(super) fn has_int96(found: &ArrowReaderMetadata) -> bool {
    int96(found.parquet_schema()).any(|is| is)
}

/// Of every leaf, whether it is INT96.
fn int96(parquet: &SchemaDescriptor) -> impl Iterator<Item = bool> {
    parquet.columns().iter().map(|column| column.physical_type() == Type::INT96)
}

fn plain(field: &FieldRef, leaves: &[bool], leaf: &mut usize, int96: TimeUnit) -> FieldRef {
    let mut inner = |field: &FieldRef| plain(field, leaves, leaf, int96);
    let data_type = match field.data_type() {
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(&mut inner).collect::<Fields>()),
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(inner(item), *length),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        other => {
            let is_int96 = leaves.get(*leaf).copied().unwrap_or(false);
            *leaf += 1;
            match other {
                // The zone, if the program that wrote the file noted one: INT96 are instants then.
                DataType::Timestamp(_, zone) if is_int96 => DataType::Timestamp(int96, zone.clone()),
                _ if is_int96 => DataType::Timestamp(int96, None),
                other => plain_leaf(other),
            }
        }
    };
    // Their metadata are notes of the program that wrote the file.
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

fn plain_leaf(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_leaf(values),
        DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

impl Exact {
    /// Of some of all columns. `None` if none of these is INT96.
    pub(super) fn only(&self, parquet: &SchemaDescriptor, roots: &[usize]) -> Option<Exact> {
        let kept = int96(parquet).enumerate().filter(|(leaf, _)| roots.contains(&parquet.get_column_root_idx(*leaf)));
        let (indexes, leaves): (Vec<usize>, Vec<bool>) = kept.unzip();
        let marked: Vec<usize> =
            indexes.into_iter().zip(&leaves).filter(|(_, is)| **is).map(|(leaf, _)| leaf).collect();
        let mask = (!marked.is_empty()).then(|| ProjectionMask::leaves(parquet, marked))?;
        Some(Exact { reading: self.reading.clone(), mask, leaves })
    }

    /// Whether all INT96 of `batch` are whole microseconds; `exact` has the same rows as nanoseconds.
    pub(super) fn check(&self, batch: &RecordBatch, exact: &RecordBatch) -> Result<()> {
        let (mut micros, mut nanos) = (Vec::new(), Vec::new());
        let mut leaf = 0;
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            leaves_of(field.name(), column, &self.leaves, &mut leaf, &mut micros);
        }
        let mut leaf = 0;
        let all = vec![true; self.leaves.len()];
        for (field, column) in exact.schema().fields().iter().zip(exact.columns()) {
            leaves_of(field.name(), column, &all, &mut leaf, &mut nanos);
        }
        for ((name, micros), (_, nanos)) in micros.into_iter().zip(nanos) {
            let (micros, nanos) = (
                micros.as_primitive_opt::<TimestampMicrosecondType>(),
                nanos.as_primitive_opt::<TimestampNanosecondType>(),
            );
            let (Some(micros), Some(nanos)) = (micros, nanos) else {
                return Err(ColumnsError::internal("INT96 columns were read as something else"));
            };
            let whole = micros.len() == nanos.len()
                && (0..micros.len())
                    .all(|row| micros.is_null(row) || micros.value(row).wrapping_mul(1000) == nanos.value(row));
            if !whole {
                return Err(ColumnsError::unsupported(format!(
                    "column `{name}` is INT96 and holds nanoseconds, which would be cut off: write it as \
                     TIMESTAMP(NANOS)"
                )));
            }
        }
        Ok(())
    }
}

/// The leaves of a column that are marked, with the name of the column.
fn leaves_of<'a>(
    name: &str,
    array: &'a dyn Array,
    marked: &[bool],
    leaf: &mut usize,
    found: &mut Vec<(String, &'a dyn Array)>,
) {
    match array.data_type() {
        DataType::Struct(_) => {
            for column in array.as_struct().columns() {
                leaves_of(name, column, marked, leaf, found);
            }
        }
        DataType::List(_) => leaves_of(name, array.as_list::<i32>().values(), marked, leaf, found),
        DataType::LargeList(_) => leaves_of(name, array.as_list::<i64>().values(), marked, leaf, found),
        DataType::FixedSizeList(..) => leaves_of(name, array.as_fixed_size_list().values(), marked, leaf, found),
        DataType::Map(..) => {
            for column in array.as_map().entries().columns() {
                leaves_of(name, column, marked, leaf, found);
            }
        }
        _ => {
            if marked.get(*leaf).copied().unwrap_or(false) {
                found.push((name.to_owned(), array));
            }
            *leaf += 1;
        }
    }
}
