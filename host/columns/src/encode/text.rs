//! One value after the other of a column, as text.

use std::io::Write as _;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DecimalType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, BooleanArray, PrimitiveArray};
use arrow_schema::{DataType, Field, TimeUnit};

use crate::schema::TypeName;
use crate::temporal::{self, Zone};
use crate::{ColumnsError, Result};

/// How deep types may lie in one another.
const DEEPEST: usize = 64;

/// Appends a row's value.
type Append<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;
/// Where a row's items are.
type Items<'a> = Box<dyn Fn(usize) -> std::ops::Range<usize> + 'a>;

/// A column whose values can be written. Its type was looked at once.
pub(super) enum Column<'a> {
    Null,
    Boolean(&'a BooleanArray),
    Int8(&'a PrimitiveArray<Int8Type>),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    UInt8(&'a PrimitiveArray<UInt8Type>),
    UInt16(&'a PrimitiveArray<UInt16Type>),
    UInt32(&'a PrimitiveArray<UInt32Type>),
    UInt64(&'a PrimitiveArray<UInt64Type>),
    Float16(&'a PrimitiveArray<Float16Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    /// Written as decimal text.
    Decimal(&'a dyn Array, Box<dyn Fn(usize) -> String + 'a>),
    /// Written as text of dates, times and instants.
    Temporal(&'a dyn Array, Append<'a>),
    Text(&'a dyn Array, Box<dyn Fn(usize) -> &'a str + 'a>),
    Binary(&'a dyn Array, Box<dyn Fn(usize) -> &'a [u8] + 'a>),
    List(&'a dyn Array, Items<'a>, Box<Column<'a>>),
    Struct(&'a dyn Array, Vec<(String, Column<'a>)>),
    Map(&'a dyn Array, Items<'a>, Box<Column<'a>>, Box<Column<'a>>),
    Dictionary(&'a dyn Array, Vec<usize>, Box<Column<'a>>),
}

/// What a value is written as.
pub(super) enum Kind {
    /// As it stands: numbers, `true`, `false`.
    Bare,
    /// In quotes, without anything to escape.
    Quoted,
}

impl<'a> Column<'a> {
    /// # Errors
    /// The type has no form as text.
    pub(super) fn new(field: &Field, array: &'a dyn Array) -> Result<Self> {
        Self::at_depth(field, array, 0)
    }

    fn at_depth(field: &Field, array: &'a dyn Array, depth: usize) -> Result<Self> {
        let (name, data_type) = (field.name(), array.data_type());
        let unsupported = |why: &str| {
            let name_of_type = TypeName(data_type);
            ColumnsError::unsupported(format!(
                "column `{name}`: {name_of_type} has no form as text{why}; cast it in a transform, or write Parquet"
            ))
        };
        if depth > DEEPEST {
            return Err(unsupported(&format!(", because it lies more than {DEEPEST} types deep")));
        }
        Ok(match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Boolean(array.as_boolean()),
            DataType::Int8 => Self::Int8(array.as_primitive()),
            DataType::Int16 => Self::Int16(array.as_primitive()),
            DataType::Int32 => Self::Int32(array.as_primitive()),
            DataType::Int64 => Self::Int64(array.as_primitive()),
            DataType::UInt8 => Self::UInt8(array.as_primitive()),
            DataType::UInt16 => Self::UInt16(array.as_primitive()),
            DataType::UInt32 => Self::UInt32(array.as_primitive()),
            DataType::UInt64 => Self::UInt64(array.as_primitive()),
            DataType::Float16 => Self::Float16(array.as_primitive()),
            DataType::Float32 => Self::Float32(array.as_primitive()),
            DataType::Float64 => Self::Float64(array.as_primitive()),
            DataType::Decimal32(precision, scale) => decimal::<Decimal32Type>(array, *precision, *scale),
            DataType::Decimal64(precision, scale) => decimal::<Decimal64Type>(array, *precision, *scale),
            DataType::Decimal128(precision, scale) => decimal::<Decimal128Type>(array, *precision, *scale),
            DataType::Decimal256(precision, scale) => decimal::<Decimal256Type>(array, *precision, *scale),
            DataType::Date32 => {
                let values = array.as_primitive::<Date32Type>();
                Self::Temporal(array, Box::new(|row, out| temporal::write_date(out, i64::from(values.value(row)))))
            }
            DataType::Date64 => {
                let values = array.as_primitive::<Date64Type>();
                if values.iter().flatten().any(|value| value % 86_400_000 != 0) {
                    return Err(unsupported(" where it holds a time of day"));
                }
                let days = |row| values.value(row).div_euclid(86_400_000);
                Self::Temporal(array, Box::new(move |row, out| temporal::write_date(out, days(row))))
            }
            DataType::Time32(_) | DataType::Time64(_) => {
                let column = match data_type {
                    DataType::Time32(TimeUnit::Second) => time::<Time32SecondType>(array, TimeUnit::Second),
                    DataType::Time32(_) => time::<Time32MillisecondType>(array, TimeUnit::Millisecond),
                    DataType::Time64(TimeUnit::Microsecond) => {
                        time::<Time64MicrosecondType>(array, TimeUnit::Microsecond)
                    }
                    _ => time::<Time64NanosecondType>(array, TimeUnit::Nanosecond),
                };
                column.ok_or_else(|| unsupported(" where it lies outside of a day"))?
            }
            DataType::Timestamp(unit, zone) => {
                let zone = Zone::new(zone.as_ref()).map_err(|why| unsupported(&format!(": {why}")))?;
                match unit {
                    TimeUnit::Second => instant::<TimestampSecondType>(array, *unit, zone),
                    TimeUnit::Millisecond => instant::<TimestampMillisecondType>(array, *unit, zone),
                    TimeUnit::Microsecond => instant::<TimestampMicrosecondType>(array, *unit, zone),
                    TimeUnit::Nanosecond => instant::<TimestampNanosecondType>(array, *unit, zone),
                }
            }
            DataType::Utf8 => {
                let texts = array.as_string::<i32>();
                Self::Text(array, Box::new(|row| texts.value(row)))
            }
            DataType::LargeUtf8 => {
                let texts = array.as_string::<i64>();
                Self::Text(array, Box::new(|row| texts.value(row)))
            }
            DataType::Utf8View => {
                let texts = array.as_string_view();
                Self::Text(array, Box::new(|row| texts.value(row)))
            }
            DataType::Binary => {
                let values = array.as_binary::<i32>();
                Self::Binary(array, Box::new(|row| values.value(row)))
            }
            DataType::LargeBinary => {
                let values = array.as_binary::<i64>();
                Self::Binary(array, Box::new(|row| values.value(row)))
            }
            DataType::BinaryView => {
                let values = array.as_binary_view();
                Self::Binary(array, Box::new(|row| values.value(row)))
            }
            DataType::FixedSizeBinary(_) => {
                let values = array.as_fixed_size_binary();
                Self::Binary(array, Box::new(|row| values.value(row)))
            }
            DataType::List(item) => {
                let lists = array.as_list::<i32>();
                let range = |row: usize| {
                    let offsets = lists.value_offsets();
                    offsets[row] as usize..offsets[row + 1] as usize
                };
                Self::List(array, Box::new(range), Box::new(Self::at_depth(item, lists.values(), depth + 1)?))
            }
            DataType::LargeList(item) => {
                let lists = array.as_list::<i64>();
                let range = |row: usize| {
                    let offsets = lists.value_offsets();
                    offsets[row] as usize..offsets[row + 1] as usize
                };
                Self::List(array, Box::new(range), Box::new(Self::at_depth(item, lists.values(), depth + 1)?))
            }
            DataType::FixedSizeList(item, length) => {
                let lists = array.as_fixed_size_list();
                let length = usize::try_from(*length).map_err(|_| unsupported(""))?;
                let range = move |row: usize| row * length..(row + 1) * length;
                Self::List(array, Box::new(range), Box::new(Self::at_depth(item, lists.values(), depth + 1)?))
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns();
                let fields = fields.iter().zip(columns).map(|(field, column)| {
                    Ok((field.name().clone(), Self::at_depth(field, column.as_ref(), depth + 1)?))
                });
                Self::Struct(array, fields.collect::<Result<_>>()?)
            }
            DataType::Map(_, _) => {
                let maps = array.as_map();
                let range = |row: usize| {
                    let offsets = maps.value_offsets();
                    offsets[row] as usize..offsets[row + 1] as usize
                };
                let (keys, values) = (maps.keys(), maps.values());
                if !matches!(keys.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
                    return Err(unsupported(", because its keys are not texts"));
                }
                let inner = Field::new(name, values.data_type().clone(), true);
                let keys = Self::at_depth(field, keys.as_ref(), depth + 1)?;
                let values = Self::at_depth(&inner, values.as_ref(), depth + 1)?;
                Self::Map(array, Box::new(range), Box::new(keys), Box::new(values))
            }
            DataType::Dictionary(_, value) => {
                let dictionary = array.as_any_dictionary();
                // Then every row is null, and there is nothing that keys could point to.
                if dictionary.values().is_empty() {
                    return Ok(Self::Null);
                }
                let inner = Field::new(name, value.as_ref().clone(), true);
                let values = Self::at_depth(&inner, dictionary.values().as_ref(), depth + 1)?;
                Self::Dictionary(array, dictionary.normalized_keys(), Box::new(values))
            }
            _ => return Err(unsupported("")),
        })
    }

    /// Whether a row has no value.
    pub(super) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Null => true,
            Self::Boolean(array) => array.is_null(row),
            Self::Int8(array) => array.is_null(row),
            Self::Int16(array) => array.is_null(row),
            Self::Int32(array) => array.is_null(row),
            Self::Int64(array) => array.is_null(row),
            Self::UInt8(array) => array.is_null(row),
            Self::UInt16(array) => array.is_null(row),
            Self::UInt32(array) => array.is_null(row),
            Self::UInt64(array) => array.is_null(row),
            Self::Float16(array) => array.is_null(row),
            Self::Float32(array) => array.is_null(row),
            Self::Float64(array) => array.is_null(row),
            Self::Dictionary(array, keys, values) => array.is_null(row) || values.is_null(keys[row]),
            Self::Decimal(array, _)
            | Self::Temporal(array, _)
            | Self::Text(array, _)
            | Self::Binary(array, _)
            | Self::List(array, ..)
            | Self::Struct(array, _)
            | Self::Map(array, ..) => array.is_null(row),
        }
    }

    /// Appends a value that is no text, list or object. `None`: it is one, and nothing was written.
    #[inline]
    pub(super) fn plain(&self, row: usize, out: &mut Vec<u8>) -> Option<Kind> {
        match self {
            Self::Boolean(array) => out.extend_from_slice(if array.value(row) { b"true" } else { b"false" }),
            Self::Int8(array) => integer(out, array.value(row)),
            Self::Int16(array) => integer(out, array.value(row)),
            Self::Int32(array) => integer(out, array.value(row)),
            Self::Int64(array) => integer(out, array.value(row)),
            Self::UInt8(array) => integer(out, array.value(row)),
            Self::UInt16(array) => integer(out, array.value(row)),
            Self::UInt32(array) => integer(out, array.value(row)),
            Self::UInt64(array) => integer(out, array.value(row)),
            Self::Float16(array) => return Some(float(out, f32::from(array.value(row)))),
            Self::Float32(array) => return Some(float(out, array.value(row))),
            Self::Float64(array) => return Some(double(out, array.value(row))),
            Self::Decimal(_, text) => out.extend_from_slice(text(row).as_bytes()),
            Self::Temporal(_, write) => {
                write(row, out);
                return Some(Kind::Quoted);
            }
            Self::Binary(_, bytes) => {
                hex(out, bytes(row));
                return Some(Kind::Quoted);
            }
            _ => return None,
        }
        Some(Kind::Bare)
    }
}

fn integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// The shortest text that is read as this number again.
fn double(out: &mut Vec<u8>, value: f64) -> Kind {
    match no_number(value) {
        Some(text) => {
            out.extend_from_slice(text.as_bytes());
            Kind::Quoted
        }
        // Whole numbers of a size that needs no exponent are written without the `.0` that they do not need.
        None if value.fract() == 0.0 && value.abs() < 1e15 && !(value == 0.0 && value.is_sign_negative()) => {
            integer(out, value as i64);
            Kind::Bare
        }
        None => {
            out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
            Kind::Bare
        }
    }
}

fn float(out: &mut Vec<u8>, value: f32) -> Kind {
    match no_number(f64::from(value)) {
        Some(text) => {
            out.extend_from_slice(text.as_bytes());
            Kind::Quoted
        }
        None => {
            out.extend_from_slice(ryu::Buffer::new().format_finite(value).as_bytes());
            Kind::Bare
        }
    }
}

/// JSON has no numbers for these. The decoder reads the texts.
fn no_number(value: f64) -> Option<&'static str> {
    match value {
        _ if value.is_finite() => None,
        _ if value.is_nan() => Some("NaN"),
        _ if value > 0.0 => Some("Infinity"),
        _ => Some("-Infinity"),
    }
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend(bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
}

fn decimal<T: DecimalType>(array: &dyn Array, precision: u8, scale: i8) -> Column<'_> {
    let values = array.as_primitive::<T>();
    Column::Decimal(array, Box::new(move |row| T::format_decimal(values.value(row), precision, scale)))
}

/// `None` if a value is not within a day: files of other programs may hold such.
fn time<T>(array: &dyn Array, unit: TimeUnit) -> Option<Column<'_>>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64>,
{
    let values = array.as_primitive::<T>();
    let step = temporal::per_second(unit);
    let within = |value: T::Native| (0..86_400 * step).contains(&value.into());
    values.iter().flatten().all(within).then(|| {
        let write = move |row: usize, out: &mut Vec<u8>| {
            let value: i64 = values.value(row).into();
            temporal::write_time(out, value.div_euclid(step), value.rem_euclid(step) * (1_000_000_000 / step));
        };
        Column::Temporal(array, Box::new(write))
    })
}

fn instant<T>(array: &dyn Array, unit: TimeUnit, zone: Zone) -> Column<'_>
where
    T: ArrowPrimitiveType<Native = i64>,
{
    let values = array.as_primitive::<T>();
    let step = temporal::per_second(unit);
    Column::Temporal(
        array,
        Box::new(move |row, out| {
            let value = values.value(row);
            let nanos = value.rem_euclid(step) * (1_000_000_000 / step);
            temporal::write_instant(out, value.div_euclid(step), nanos, &zone);
        }),
    )
}

/// Appends what `write!` formats. Writing to memory cannot fail.
pub(super) fn formatted(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(arguments);
}
