//! Columns under construction. Values are appended one by one, and taken back when their row turns out to be bad.

use std::mem;
use std::sync::Arc;

use arrow_array::types::{
    Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, ListArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray,
};
use arrow_buffer::{
    ArrowNativeType, BooleanBufferBuilder, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer, i256,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, TimeUnit};

use super::names::Names;
use crate::schema::TypeName;
use crate::{ColumnsError, Result, Schema};

/// How deep types may lie in one another; reading values goes as deep.
const DEEPEST: usize = 64;

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) field: FieldRef,
    pub(super) nulls: NullBufferBuilder,
    pub(super) data: Data,
}

/// Values of one type, one for each row, nulls included.
#[derive(Debug)]
pub(super) enum Data {
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    UInt8(Vec<u8>),
    UInt16(Vec<u16>),
    UInt32(Vec<u32>),
    UInt64(Vec<u64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal128(Vec<i128>, u8, i8),
    Decimal256(Vec<i256>, u8, i8),
    Date32(Vec<i32>),
    Time32(Vec<i32>, TimeUnit),
    Time64(Vec<i64>, TimeUnit),
    /// And whether the column has a time zone.
    Timestamp(Vec<i64>, TimeUnit, bool),
    Utf8(Texts),
    Binary(Texts),
    List(Vec<i32>, Box<Column>),
    Struct(Children),
}

/// Bytes of all rows one after the other.
#[derive(Debug)]
pub(super) struct Texts {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Texts {
    fn new() -> Self {
        Self { offsets: vec![0], bytes: Vec::new() }
    }

    /// Where the next value's bytes go; [`Texts::end`] ends it.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Ends a value. All bytes of a batch fit, because its input does.
    pub(super) fn end(&mut self) {
        self.offsets.push(self.bytes.len() as i32);
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.bytes.truncate(last(&self.offsets));
    }

    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let bytes = Vec::with_capacity(self.bytes.len());
        (take_offsets(&mut self.offsets), Buffer::from_vec(mem::replace(&mut self.bytes, bytes)))
    }
}

/// The fields of an object.
#[derive(Debug)]
pub(super) struct Children {
    pub(super) columns: Vec<Column>,
    pub(super) names: Names,
    pub(super) rows: usize,
}

impl Children {
    /// # Errors
    /// A type that cannot be decoded.
    pub(super) fn new(fields: &Fields) -> Result<Self> {
        Self::at_depth(fields, 0)
    }

    fn at_depth(fields: &Fields, depth: usize) -> Result<Self> {
        let columns = fields.iter().map(|field| Column::new(field, depth)).collect::<Result<_>>()?;
        Ok(Self { columns, names: Names::new(fields)?, rows: 0 })
    }

    /// Ends a row: columns that have no value yet get null.
    ///
    /// # Errors
    /// The name of a column that must have one.
    pub(super) fn fill(&mut self) -> Result<(), usize> {
        for (index, column) in self.columns.iter_mut().enumerate() {
            if column.len() == self.rows {
                if !column.field.is_nullable() {
                    return Err(index);
                }
                column.push_null();
            }
        }
        Ok(())
    }

    /// Takes back all rows from this one on.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.rows = rows;
        for column in &mut self.columns {
            column.truncate(rows);
        }
    }

    /// All rows, as a batch of `schema`, which has these columns. Afterwards there are none.
    pub(super) fn take_batch(&mut self, schema: &Schema) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        self.finish()
            .and_then(|columns| RecordBatch::try_new_with_options(schema.arrow().clone(), columns, &options))
            .map_err(|error| ColumnsError::internal(format!("decoded columns do not fit: {error}")))
    }

    /// All rows, as arrays. Afterwards there are none.
    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.rows = 0;
        self.columns.iter_mut().map(Column::finish).collect()
    }
}

impl Column {
    fn new(field: &FieldRef, depth: usize) -> Result<Self> {
        let unsupported = || {
            let (name, data_type) = (field.name(), field.data_type());
            ColumnsError::unsupported(format!(
                "column `{name}`: text is not decoded to {data_type}; declare another type"
            ))
        };
        if depth > DEEPEST {
            return Err(ColumnsError::unsupported(format!("types lie in one another more than {DEEPEST} deep")));
        }
        let data = match field.data_type() {
            DataType::Boolean => Data::Boolean(BooleanBufferBuilder::new(0)),
            DataType::Int8 => Data::Int8(Vec::new()),
            DataType::Int16 => Data::Int16(Vec::new()),
            DataType::Int32 => Data::Int32(Vec::new()),
            DataType::Int64 => Data::Int64(Vec::new()),
            DataType::UInt8 => Data::UInt8(Vec::new()),
            DataType::UInt16 => Data::UInt16(Vec::new()),
            DataType::UInt32 => Data::UInt32(Vec::new()),
            DataType::UInt64 => Data::UInt64(Vec::new()),
            DataType::Float32 => Data::Float32(Vec::new()),
            DataType::Float64 => Data::Float64(Vec::new()),
            DataType::Decimal128(precision, scale) => Data::Decimal128(Vec::new(), *precision, *scale),
            DataType::Decimal256(precision, scale) => Data::Decimal256(Vec::new(), *precision, *scale),
            DataType::Date32 => Data::Date32(Vec::new()),
            DataType::Time32(unit @ (TimeUnit::Second | TimeUnit::Millisecond)) => Data::Time32(Vec::new(), *unit),
            DataType::Time64(unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond)) => Data::Time64(Vec::new(), *unit),
            DataType::Timestamp(unit, zone) => Data::Timestamp(Vec::new(), *unit, zone.is_some()),
            DataType::Utf8 => Data::Utf8(Texts::new()),
            DataType::Binary => Data::Binary(Texts::new()),
            DataType::List(item) => Data::List(vec![0], Box::new(Self::new(item, depth + 1)?)),
            DataType::Struct(fields) => Data::Struct(Children::at_depth(fields, depth + 1)?),
            _ => return Err(unsupported()),
        };
        Ok(Self { field: Arc::clone(field), nulls: NullBufferBuilder::new(0), data })
    }

    /// How many rows it has. While a value is appended, those before it.
    pub(super) fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Appends null, whether it is allowed or not: parents that are null allow it.
    pub(super) fn push_null(&mut self) {
        match &mut self.data {
            Data::Boolean(values) => values.append(false),
            Data::Int8(values) => values.push(0),
            Data::Int16(values) => values.push(0),
            Data::Int32(values) | Data::Date32(values) | Data::Time32(values, _) => values.push(0),
            Data::Int64(values) | Data::Time64(values, _) | Data::Timestamp(values, ..) => values.push(0),
            Data::UInt8(values) => values.push(0),
            Data::UInt16(values) => values.push(0),
            Data::UInt32(values) => values.push(0),
            Data::UInt64(values) => values.push(0),
            Data::Float32(values) => values.push(0.0),
            Data::Float64(values) => values.push(0.0),
            Data::Decimal128(values, ..) => values.push(0),
            Data::Decimal256(values, ..) => values.push(i256::ZERO),
            Data::Utf8(texts) | Data::Binary(texts) => texts.end(),
            Data::List(offsets, _) => offsets.push(last(offsets) as i32),
            Data::Struct(children) => {
                for column in &mut children.columns {
                    column.push_null();
                }
                children.rows += 1;
            }
        }
        self.nulls.append_null();
    }

    /// Takes back what comes behind the first rows, half-appended values too.
    fn truncate(&mut self, len: usize) {
        self.nulls.truncate(len);
        match &mut self.data {
            Data::Boolean(values) => values.truncate(len),
            Data::Int8(values) => values.truncate(len),
            Data::Int16(values) => values.truncate(len),
            Data::Int32(values) | Data::Date32(values) | Data::Time32(values, _) => values.truncate(len),
            Data::Int64(values) | Data::Time64(values, _) | Data::Timestamp(values, ..) => values.truncate(len),
            Data::UInt8(values) => values.truncate(len),
            Data::UInt16(values) => values.truncate(len),
            Data::UInt32(values) => values.truncate(len),
            Data::UInt64(values) => values.truncate(len),
            Data::Float32(values) => values.truncate(len),
            Data::Float64(values) => values.truncate(len),
            Data::Decimal128(values, ..) => values.truncate(len),
            Data::Decimal256(values, ..) => values.truncate(len),
            Data::Utf8(texts) | Data::Binary(texts) => texts.truncate(len),
            Data::List(offsets, items) => {
                offsets.truncate(len + 1);
                items.truncate(last(offsets));
            }
            Data::Struct(children) => children.truncate(len),
        }
    }

    fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        let data_type = self.field.data_type();
        Ok(match &mut self.data {
            Data::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Data::Int8(values) => primitive::<Int8Type>(values, nulls, data_type)?,
            Data::Int16(values) => primitive::<Int16Type>(values, nulls, data_type)?,
            Data::Int32(values) => primitive::<Int32Type>(values, nulls, data_type)?,
            Data::Int64(values) => primitive::<Int64Type>(values, nulls, data_type)?,
            Data::UInt8(values) => primitive::<UInt8Type>(values, nulls, data_type)?,
            Data::UInt16(values) => primitive::<UInt16Type>(values, nulls, data_type)?,
            Data::UInt32(values) => primitive::<UInt32Type>(values, nulls, data_type)?,
            Data::UInt64(values) => primitive::<UInt64Type>(values, nulls, data_type)?,
            Data::Float32(values) => primitive::<Float32Type>(values, nulls, data_type)?,
            Data::Float64(values) => primitive::<Float64Type>(values, nulls, data_type)?,
            Data::Decimal128(values, ..) => primitive::<Decimal128Type>(values, nulls, data_type)?,
            Data::Decimal256(values, ..) => primitive::<Decimal256Type>(values, nulls, data_type)?,
            Data::Date32(values) => primitive::<Date32Type>(values, nulls, data_type)?,
            Data::Time32(values, TimeUnit::Second) => primitive::<Time32SecondType>(values, nulls, data_type)?,
            Data::Time32(values, _) => primitive::<Time32MillisecondType>(values, nulls, data_type)?,
            Data::Time64(values, TimeUnit::Microsecond) => {
                primitive::<Time64MicrosecondType>(values, nulls, data_type)?
            }
            Data::Time64(values, _) => primitive::<Time64NanosecondType>(values, nulls, data_type)?,
            Data::Timestamp(values, unit, _) => match unit {
                TimeUnit::Second => primitive::<TimestampSecondType>(values, nulls, data_type)?,
                TimeUnit::Millisecond => primitive::<TimestampMillisecondType>(values, nulls, data_type)?,
                TimeUnit::Microsecond => primitive::<TimestampMicrosecondType>(values, nulls, data_type)?,
                TimeUnit::Nanosecond => primitive::<TimestampNanosecondType>(values, nulls, data_type)?,
            },
            Data::Utf8(texts) => {
                let (offsets, bytes) = texts.take();
                Arc::new(StringArray::try_new(offsets, bytes, nulls)?)
            }
            Data::Binary(texts) => {
                let (offsets, bytes) = texts.take();
                Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?)
            }
            Data::List(offsets, items) => {
                let field = Arc::clone(&items.field);
                Arc::new(ListArray::try_new(field, take_offsets(offsets), items.finish()?, nulls)?)
            }
            Data::Struct(children) => {
                let DataType::Struct(fields) = data_type else {
                    unreachable!("children are made for structs only");
                };
                let rows = children.rows;
                let arrays = children.finish()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, nulls, rows)?)
            }
        })
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: &mut Vec<T::Native>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let capacity = values.len();
    let values = ScalarBuffer::from(mem::replace(values, Vec::with_capacity(capacity)));
    let array = PrimitiveArray::<T>::try_new(values, nulls)?;
    Ok(if array.data_type() == data_type { Arc::new(array) } else { Arc::new(array.with_data_type(data_type.clone())) })
}

/// Offsets always have a first.
fn last(offsets: &[i32]) -> usize {
    offsets.last().map_or(0, |offset| offset.as_usize())
}

fn take_offsets(offsets: &mut Vec<i32>) -> OffsetBuffer<i32> {
    let mut next = Vec::with_capacity(offsets.len());
    next.push(0);
    OffsetBuffer::new(ScalarBuffer::from(mem::replace(offsets, next)))
}

/// What a field should hold, for messages: `BIGINT`.
pub(super) fn type_name(field: &Field) -> String {
    TypeName(field.data_type()).to_string()
}
