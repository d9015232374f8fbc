//! Schemas as a SQL column list, `year INT NOT NULL, amount DECIMAL(12,2), tags BIGINT[]`, read and written.
//!
//! The only place where SQL types become Arrow types: casts of transforms come here too.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};
use datafusion_sql::sqlparser::ast::{ArrayElemTypeDef, DataType as SqlType, ExactNumberInfo, TimezoneInfo};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::Parser;
use datafusion_sql::sqlparser::tokenizer::Token;

use crate::sql;
use crate::{ColumnsError, Result, Schema};

/// The types of a column list, for messages.
const TYPES: &str = "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT (each also UNSIGNED), REAL, DOUBLE, \
                     DECIMAL(precision, scale), TEXT, BYTEA, DATE, TIME, TIMESTAMP, TIMESTAMP WITH TIME ZONE, \
                     T[], STRUCT<name T, …>";

/// Digits that fit a 128-bit decimal.
const DECIMAL128_DIGITS: u64 = 38;
/// Digits that fit a 256-bit decimal.
const DECIMAL256_DIGITS: u64 = 76;

impl Schema {
    /// Reads a SQL column list: names with types, `NOT NULL` where a value must be given, commas between.
    ///
    /// Names keep their case; a name with other characters than letters, digits and `_` stands in double quotes.
    /// `TIMESTAMP` counts microseconds; `TIMESTAMP(0)`, `(3)`, `(6)` and `(9)` say it otherwise. `WITH TIME ZONE`
    /// holds instants, written in UTC.
    ///
    /// # Errors
    ///
    /// [`ColumnsErrorKind::BadSchema`](crate::ColumnsErrorKind::BadSchema), naming the column.
    pub fn parse_ddl(text: &str) -> Result<Schema> {
        let fields = parse_fields(text).map_err(|m| ColumnsError::bad_schema(format!("schema: {m}")))?;
        Ok(Schema::new(Arc::new(arrow_schema::Schema::new(fields))))
    }
}

/// The column list that [`Schema::parse_ddl`] reads. A type that has no name there is written as the nearest one
/// that has: texts of every layout are `TEXT`, dictionaries are their values.
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, field) in self.arrow().fields().iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{} {}", Name(field.name()), TypeName(field.data_type()))?;
            if !field.is_nullable() {
                f.write_str(" NOT NULL")?;
            }
        }
        Ok(())
    }
}

/// Reads one SQL type, as `cast` options have it.
pub(crate) fn parse_type(text: &str) -> Result<DataType, String> {
    let mut parser = sql::type_parser(text)?;
    let sql_type = parser.parse_data_type().map_err(|e| type_error(&sql::parse_error(e)))?;
    expect_end(&mut parser)?;
    arrow_type(&sql_type)
}

/// The Arrow type of a SQL type.
pub(crate) fn arrow_type(sql: &SqlType) -> Result<DataType, String> {
    Ok(match sql {
        SqlType::Boolean | SqlType::Bool => DataType::Boolean,
        SqlType::TinyInt(None) => DataType::Int8,
        SqlType::SmallInt(None) | SqlType::Int2(None) => DataType::Int16,
        SqlType::Int(None) | SqlType::Integer(None) | SqlType::Int4(None) => DataType::Int32,
        SqlType::BigInt(None) | SqlType::Int8(None) => DataType::Int64,
        SqlType::TinyIntUnsigned(None) | SqlType::UTinyInt => DataType::UInt8,
        SqlType::SmallIntUnsigned(None) | SqlType::Int2Unsigned(None) | SqlType::USmallInt => DataType::UInt16,
        SqlType::IntUnsigned(None) | SqlType::IntegerUnsigned(None) | SqlType::Int4Unsigned(None) => DataType::UInt32,
        SqlType::BigIntUnsigned(None) | SqlType::Int8Unsigned(None) | SqlType::UBigInt => DataType::UInt64,
        SqlType::Real | SqlType::Float4 | SqlType::Float(ExactNumberInfo::None) => DataType::Float32,
        SqlType::Double(ExactNumberInfo::None) | SqlType::DoublePrecision | SqlType::Float8 => DataType::Float64,
        SqlType::Numeric(digits) | SqlType::Decimal(digits) | SqlType::Dec(digits) => decimal_type(digits)?,
        SqlType::Varchar(None) | SqlType::CharacterVarying(None) | SqlType::Text | SqlType::String(None) => {
            DataType::Utf8
        }
        SqlType::Varchar(Some(_)) | SqlType::CharacterVarying(Some(_)) | SqlType::String(Some(_)) => {
            return Err(format!("lengths of texts are not checked, so {sql} would promise too much: write TEXT"));
        }
        SqlType::Bytea | SqlType::Binary(None) | SqlType::Varbinary(None) | SqlType::Blob(None) => DataType::Binary,
        SqlType::Bytes(None) => DataType::Binary,
        SqlType::Date => DataType::Date32,
        SqlType::Time(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => match time_unit(*precision)? {
            unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
            unit => DataType::Time64(unit),
        },
        SqlType::Timestamp(precision, zone) => {
            let zoned = matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone);
            DataType::Timestamp(time_unit(*precision)?, zoned.then(|| "UTC".into()))
        }
        SqlType::Array(ArrayElemTypeDef::AngleBracket(item) | ArrayElemTypeDef::SquareBracket(item, None)) => {
            DataType::new_list(arrow_type(item)?, true)
        }
        SqlType::Array(ArrayElemTypeDef::SquareBracket(item, Some(_))) => {
            return Err(format!("lengths of arrays are not checked: write {item}[]"));
        }
        SqlType::Struct(fields, _) => struct_type(fields)?,
        other => return Err(type_error(&format!("unknown type {other}"))),
    })
}

/// Writes a type as [`parse_type`] reads it.
pub(crate) struct TypeName<'a>(pub(crate) &'a DataType);

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DataType::Boolean => f.write_str("BOOLEAN"),
            DataType::Int8 => f.write_str("TINYINT"),
            DataType::Int16 => f.write_str("SMALLINT"),
            DataType::Int32 => f.write_str("INT"),
            DataType::Int64 => f.write_str("BIGINT"),
            DataType::UInt8 => f.write_str("TINYINT UNSIGNED"),
            DataType::UInt16 => f.write_str("SMALLINT UNSIGNED"),
            DataType::UInt32 => f.write_str("INT UNSIGNED"),
            DataType::UInt64 => f.write_str("BIGINT UNSIGNED"),
            DataType::Float16 | DataType::Float32 => f.write_str("REAL"),
            DataType::Float64 => f.write_str("DOUBLE"),
            DataType::Decimal32(p, s)
            | DataType::Decimal64(p, s)
            | DataType::Decimal128(p, s)
            | DataType::Decimal256(p, s) => write!(f, "DECIMAL({p},{s})"),
            // Of columns without any value nothing else is known.
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => f.write_str("TEXT"),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                f.write_str("BYTEA")
            }
            DataType::Date32 | DataType::Date64 => f.write_str("DATE"),
            DataType::Time32(unit) | DataType::Time64(unit) => write!(f, "TIME{}", precision(*unit)),
            DataType::Timestamp(unit, zone) => {
                write!(f, "TIMESTAMP{}", precision(*unit))?;
                if zone.is_some() { f.write_str(" WITH TIME ZONE") } else { Ok(()) }
            }
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => write!(f, "{}[]", TypeName(item.data_type())),
            DataType::Struct(fields) => {
                f.write_str("STRUCT<")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i > 0 { ", " } else { "" };
                    write!(f, "{comma}{} {}", Name(field.name()), TypeName(field.data_type()))?;
                }
                f.write_str(">")
            }
            DataType::Dictionary(_, value) => TypeName(value).fmt(f),
            // Has no name in a column list.
            other => write!(f, "{other}"),
        }
    }
}

/// Writes a column's name, in quotes where it must be.
pub(crate) struct Name<'a>(pub(crate) &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.0.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && self.0.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if plain { f.write_str(self.0) } else { write!(f, "\"{}\"", self.0.replace('"', "\"\"")) }
    }
}

fn parse_fields(text: &str) -> Result<Vec<Field>, String> {
    let mut parser = sql::type_parser(text)?;
    let mut fields = Vec::new();
    let mut names = HashSet::new();
    while !sql::at_end(&parser) {
        let field = parse_field(&mut parser)?;
        if !names.insert(field.name().clone()) {
            return Err(format!("column {} is there twice", Name(field.name())));
        }
        fields.push(field);
        if !parser.consume_token(&Token::Comma) {
            break;
        }
    }
    if fields.is_empty() {
        return Err("it has no columns; write, for example, \"id BIGINT NOT NULL, name TEXT\"".to_owned());
    }
    expect_end(&mut parser)?;
    Ok(fields)
}

fn parse_field(parser: &mut Parser<'_>) -> Result<Field, String> {
    let name = parser.parse_identifier().map_err(|e| format!("a column's name: {}", sql::parse_error(e)))?.value;
    if name.is_empty() {
        return Err("a column has an empty name".to_owned());
    }
    let in_column = |message: String| format!("column {}: {message}", Name(&name));
    let sql_type = parser.parse_data_type().map_err(|e| in_column(type_error(&sql::parse_error(e))))?;
    let data_type = arrow_type(&sql_type).map_err(in_column)?;
    let nullable = !parser.parse_keywords(&[Keyword::NOT, Keyword::NULL]);
    if nullable {
        // Says what is so anyway.
        let _ = parser.parse_keyword(Keyword::NULL);
    }
    let next = parser.peek_token().token;
    if !matches!(next, Token::Comma | Token::EOF) {
        return Err(in_column(format!(
            "found {next} behind {sql_type}; expected NOT NULL, or a comma and the next column"
        )));
    }
    Ok(Field::new(name, data_type, nullable))
}

fn expect_end(parser: &mut Parser<'_>) -> Result<(), String> {
    match parser.peek_token().token {
        Token::EOF => Ok(()),
        other => Err(format!("found {other} where the text should end")),
    }
}

fn decimal_type(digits: &ExactNumberInfo) -> Result<DataType, String> {
    let (precision, scale) = match *digits {
        ExactNumberInfo::None => {
            return Err("DECIMAL needs its digits: write DECIMAL(precision, scale), as DECIMAL(12, 2)".to_owned());
        }
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let fits = u64::try_from(scale).is_ok_and(|s| s <= precision);
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(p), Ok(s)) if fits && (1..=DECIMAL128_DIGITS).contains(&precision) => Ok(DataType::Decimal128(p, s)),
        (Ok(p), Ok(s)) if fits && (1..=DECIMAL256_DIGITS).contains(&precision) => Ok(DataType::Decimal256(p, s)),
        _ => Err(format!(
            "DECIMAL({precision},{scale}): the precision is 1 to {DECIMAL256_DIGITS}, the scale 0 to the precision"
        )),
    }
}

fn struct_type(fields: &[datafusion_sql::sqlparser::ast::StructField]) -> Result<DataType, String> {
    if fields.is_empty() {
        return Err("STRUCT needs its fields: write STRUCT<name T, …>".to_owned());
    }
    let mut names = HashSet::new();
    let fields = fields.iter().map(|field| {
        let name = match &field.field_name {
            Some(name) if !name.value.is_empty() => &name.value,
            _ => return Err(format!("a field of STRUCT has no name: {}", field.field_type)),
        };
        if !names.insert(name.as_str()) {
            return Err(format!("field {} of STRUCT is there twice", Name(name)));
        }
        let data_type = arrow_type(&field.field_type).map_err(|m| format!("field {}: {m}", Name(name)))?;
        Ok(Field::new(name, data_type, true))
    });
    Ok(DataType::Struct(fields.collect::<Result<Fields, String>>()?))
}

/// The unit of a number of decimal places of a second.
fn time_unit(precision: Option<u64>) -> Result<TimeUnit, String> {
    match precision {
        Some(0) => Ok(TimeUnit::Second),
        Some(3) => Ok(TimeUnit::Millisecond),
        None | Some(6) => Ok(TimeUnit::Microsecond),
        Some(9) => Ok(TimeUnit::Nanosecond),
        Some(other) => Err(format!("{other} decimal places of a second; there can be 0, 3, 6 or 9")),
    }
}

fn precision(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "(0)",
        TimeUnit::Millisecond => "(3)",
        TimeUnit::Microsecond => "",
        TimeUnit::Nanosecond => "(9)",
    }
}

fn type_error(what: &str) -> String {
    format!("{what}; the types are {TYPES}")
}

#[cfg(test)]
#[path = "ddl_tests.rs"]
mod tests;
