//! JSON lines to columns, in one pass.
//!
//! Written here rather than taken from arrow-json because that one is lenient where a sink must not be: 1.5 becomes 1
//! in an integer column, a repeated key loses a value, digits beyond a timestamp's unit are cut off, a string may be a
//! number, a value may go on over lines, and one bad line fails a whole batch. The tests compare with it where both are
//! right.

use arrow_buffer::i256;

use super::column::{Children, Column, Data, type_name};
use super::cursor::{Cursor, Fault, Parsed, shown};
use super::number::{Misfit, Number};
use super::{BadLine, Decoded, UnknownFields, check_length};
use crate::{Result, Schema, temporal};

/// Decodes JSON lines. Memory is kept from one call to the next.
#[derive(Debug)]
pub struct JsonDecoder {
    schema: Schema,
    columns: Children,
    unknown: UnknownFields,
}

impl JsonDecoder {
    /// # Errors
    /// The schema has a type that text is not decoded to, or two columns of one name.
    pub fn new(schema: &Schema, unknown: UnknownFields) -> Result<Self> {
        let columns = Children::new(schema.arrow().fields())?;
        Ok(Self { schema: schema.clone(), columns, unknown })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Decodes whole lines; the last may lack its newline. Lines of white space are skipped. Every other line becomes a
    /// row or a [`BadLine`].
    ///
    /// # Errors
    /// `lines` is longer than [`super::LONGEST_INPUT`].
    pub fn decode(&mut self, lines: &[u8]) -> Result<Decoded> {
        self.decode_until(lines, usize::MAX)
    }

    /// [`JsonDecoder::decode`], but ends behind the line that is bad number `most_bad`: how far it came is
    /// [`Decoded::read`].
    ///
    /// # Errors
    /// As for [`JsonDecoder::decode`].
    pub fn decode_until(&mut self, lines: &[u8], most_bad: usize) -> Result<Decoded> {
        check_length(lines)?;
        // One look at all of it is much cheaper than one at each line.
        let all_utf8 = std::str::from_utf8(lines).is_ok();
        let mut bad = Vec::new();
        let mut count = 0;
        let mut start = 0;
        while start < lines.len() && bad.len() < most_bad {
            let end = memchr::memchr(b'\n', &lines[start..]).map_or(lines.len(), |at| start + at);
            let line = &lines[start..end];
            if let Err(fault) = self.line(line, all_utf8) {
                self.columns.truncate(self.columns.rows);
                bad.push(BadLine { line: count, bytes: start..end, reason: fault.to_string() });
            }
            count += 1;
            start = end + 1;
        }
        let read = start.min(lines.len());
        Ok(Decoded { batch: self.columns.take_batch(&self.schema)?, bad, lines: count, read })
    }

    fn line(&mut self, line: &[u8], is_utf8: bool) -> Parsed<()> {
        if !is_utf8 {
            check_utf8(line)?;
        }
        let mut cursor = Cursor::new(line);
        cursor.space();
        match cursor.peek() {
            None => return Ok(()),
            Some(b'{') => {}
            Some(_) => {
                // A line that is no JSON at all is told so.
                let start = cursor.clone();
                cursor.value()?;
                cursor.end()?;
                return Err(start.wrong("an object, one per line"));
            }
        }
        object(&mut cursor, &mut self.columns, self.unknown)?;
        cursor.end()?;
        self.columns.rows += 1;
        Ok(())
    }
}

pub(super) fn check_utf8(line: &[u8]) -> Parsed<()> {
    match std::str::from_utf8(line) {
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::new(format!("not UTF-8 at byte {}; convert the file to UTF-8", error.valid_up_to()))),
    }
}

/// Reads an object into the row behind the last; its opening brace is next. The caller counts the row.
fn object(cursor: &mut Cursor<'_>, children: &mut Children, unknown: UnknownFields) -> Parsed<()> {
    cursor.skip(1);
    cursor.space();
    let row = children.rows;
    let mut found = 0;
    let mut guess = 0;
    if !cursor.take(b'}') {
        loop {
            let place = match children.names.starts(guess, cursor.rest()) {
                Some(length) => {
                    cursor.skip(length);
                    Some(guess)
                }
                None => name(cursor, children, unknown)?,
            };
            cursor.space();
            match place {
                Some(place) => {
                    let column = &mut children.columns[place];
                    if column.len() != row {
                        return Err(Fault::new("is there twice in one object").within(column.field.name()));
                    }
                    value(cursor, column, unknown).map_err(|fault| fault.within(column.field.name()))?;
                    found += 1;
                    guess = place + 1;
                }
                None => cursor.value()?,
            }
            cursor.space();
            if cursor.take(b'}') {
                break;
            }
            if !cursor.take(b',') {
                return Err(cursor.wrong("`,` or `}`"));
            }
            cursor.space();
        }
    }
    if found < children.columns.len() {
        children.fill().map_err(|missing| {
            let field = &children.columns[missing].field;
            Fault::new("is missing, and its column is NOT NULL").within(field.name())
        })?;
    }
    Ok(())
}

/// Passes a name and its colon. Gives its place, if it has one.
fn name(cursor: &mut Cursor<'_>, children: &Children, unknown: UnknownFields) -> Parsed<Option<usize>> {
    let mut decoded = Vec::new();
    let plain = cursor.string(&mut decoded)?;
    let name = std::str::from_utf8(plain.unwrap_or(&decoded)).map_err(|_| cursor.wrong("a name in UTF-8"))?;
    let place = children.names.place(name);
    if place.is_none() && unknown == UnknownFields::BadRow {
        return Err(Fault::new(
            "is not in the schema. Declare it there, or set `unknown-fields = \"drop\"` to leave such fields out",
        )
        .within(&shown(name.as_bytes())));
    }
    cursor.space();
    if cursor.take(b':') { Ok(place) } else { Err(cursor.wrong("`:`")) }
}

/// Reads a value into the next row of a column.
pub(super) fn value(cursor: &mut Cursor<'_>, column: &mut Column, unknown: UnknownFields) -> Parsed<()> {
    if cursor.peek() == Some(b'n') {
        cursor.literal("null")?;
        if !column.field.is_nullable() {
            return Err(Fault::new("is null, and its column is NOT NULL"));
        }
        column.push_null();
        return Ok(());
    }
    /// A whole number of the type that a vector holds.
    macro_rules! integer {
        ($values:expr) => {
            match short_integer(cursor.rest())
                .and_then(|(negative, magnitude, length)| fit(negative, magnitude).map(|value| (value, length)))
            {
                Some((value, length)) => {
                    cursor.skip(length);
                    $values.push(value);
                }
                None => {
                    let number = number(cursor, column.field.as_ref())?;
                    let value = number
                        .integer()
                        .and_then(|(negative, magnitude)| fit(negative, magnitude).ok_or(Misfit::Range));
                    $values.push(value.map_err(|misfit| misfits(number.text, misfit, &column.field))?);
                }
            }
        };
    }
    match &mut column.data {
        Data::Boolean(values) => match cursor.peek() {
            Some(b't') => {
                cursor.literal("true")?;
                values.append(true);
            }
            Some(b'f') => {
                cursor.literal("false")?;
                values.append(false);
            }
            _ => return Err(wrong_type(cursor, &column.field)),
        },
        Data::Int8(values) => integer!(values),
        Data::Int16(values) => integer!(values),
        Data::Int32(values) => integer!(values),
        Data::Int64(values) => integer!(values),
        Data::UInt8(values) => integer!(values),
        Data::UInt16(values) => integer!(values),
        Data::UInt32(values) => integer!(values),
        Data::UInt64(values) => integer!(values),
        Data::Float32(values) => values.push(match not_a_number(cursor) {
            Some(value) => value as f32,
            None => exact(cursor, &column.field, Number::single)?,
        }),
        Data::Float64(values) => values.push(match not_a_number(cursor) {
            Some(value) => value,
            None => exact(cursor, &column.field, Number::double)?,
        }),
        Data::Decimal128(values, precision, scale) => {
            let value: i128 = exact(cursor, &column.field, |number| number.decimal128(*precision, *scale))?;
            values.push(value);
        }
        Data::Decimal256(values, precision, scale) => {
            let value: i256 = exact(cursor, &column.field, |number| number.decimal256(*precision, *scale))?;
            values.push(value);
        }
        Data::Utf8(texts) => {
            if cursor.peek() != Some(b'"') {
                return Err(wrong_type(cursor, &column.field));
            }
            if let Some(text) = cursor.string(texts.bytes())? {
                texts.bytes().extend_from_slice(text);
            }
            texts.end();
        }
        Data::Struct(children) => {
            if cursor.peek() != Some(b'{') {
                return Err(wrong_type(cursor, &column.field));
            }
            object(cursor, children, unknown)?;
            children.rows += 1;
        }
        Data::List(offsets, items) => {
            if !cursor.take(b'[') {
                return Err(wrong_type(cursor, &column.field));
            }
            list(cursor, items, unknown)?;
            // Every item takes a byte of the input at least, so their number fits.
            offsets.push(items.len() as i32);
        }
        _ => {
            if cursor.peek() != Some(b'"') {
                return Err(wrong_type(cursor, &column.field));
            }
            let mut decoded = Vec::new();
            let text = cursor.string(&mut decoded)?;
            return text_value(text.unwrap_or(&decoded), column);
        }
    }
    column.nulls.append_non_null();
    Ok(())
}

fn list(cursor: &mut Cursor<'_>, items: &mut Column, unknown: UnknownFields) -> Parsed<()> {
    cursor.space();
    if cursor.take(b']') {
        return Ok(());
    }
    loop {
        value(cursor, items, unknown).map_err(|fault| fault.within("[]"))?;
        cursor.space();
        if cursor.take(b']') {
            return Ok(());
        }
        if !cursor.take(b',') {
            return Err(cursor.wrong("`,` or `]`"));
        }
        cursor.space();
    }
}

/// Appends a value of a type that is written as a string.
pub(super) fn text_value(text: &[u8], column: &mut Column) -> Parsed<()> {
    let wrong = |expected: &str| {
        let name = type_name(&column.field);
        Fault::new(format!("`{}` is no {name}; expected {expected}", shown(text)))
    };
    match &mut column.data {
        Data::Binary(texts) => {
            hex(text, texts.bytes()).ok_or_else(|| wrong("bytes as pairs of hexadecimal digits"))?;
            texts.end();
        }
        Data::Date32(values) => {
            let days = temporal::parse_date(text).and_then(|days| i32::try_from(days).ok());
            values.push(days.ok_or_else(|| wrong("a date such as 2013-01-31"))?);
        }
        Data::Time32(values, unit) => {
            let value = temporal::parse_time(text).and_then(|nanos| temporal::exact(nanos.into(), *unit));
            let value = value.and_then(|value| i32::try_from(value).ok());
            values
                .push(value.ok_or_else(|| wrong("a time such as 10:15:00, with no more decimal places than it has"))?);
        }
        Data::Time64(values, unit) => {
            let value = temporal::parse_time(text).and_then(|nanos| temporal::exact(nanos.into(), *unit));
            values
                .push(value.ok_or_else(|| wrong("a time such as 10:15:00, with no more decimal places than it has"))?);
        }
        Data::Timestamp(values, unit, zoned) => {
            let instant = temporal::parse_instant(text);
            let example = if *zoned { "2013-01-31T10:15:00Z or +01:00" } else { "2013-01-31T10:15:00" };
            let instant = instant.ok_or_else(|| wrong(&format!("a time after RFC 3339 such as {example}")))?;
            match (instant.zoned, *zoned) {
                (true, false) => {
                    return Err(wrong("no time zone; declare TIMESTAMP WITH TIME ZONE for times that have one"));
                }
                (false, true) => {
                    return Err(wrong("a time zone, `Z` or an offset; declare TIMESTAMP for times that have none"));
                }
                _ => {}
            }
            let value = instant.in_unit(*unit).ok_or_else(|| {
                wrong(
                    "no more decimal places than it has, and a year that it reaches; declare TIMESTAMP(9) for \
                       nanoseconds, TIMESTAMP(6) or less for years before 1678 or after 2261",
                )
            })?;
            values.push(value);
        }
        _ => return Err(wrong("another kind of value")),
    }
    column.nulls.append_non_null();
    Ok(())
}

/// A whole number of few digits, written as one, and its length. `None` for everything else.
#[inline]
fn short_integer(bytes: &[u8]) -> Option<(bool, u64, usize)> {
    let negative = bytes.first() == Some(&b'-');
    let start = usize::from(negative);
    let mut magnitude = 0u64;
    let mut at = start;
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit <= 9) {
        // Nineteen digits cannot overflow; the loop ends soon enough for any.
        magnitude = magnitude.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    let digits = at - start;
    let plain = !matches!(bytes.get(at), Some(b'.' | b'e' | b'E'));
    if digits == 0 || digits > 19 || !plain || (digits > 1 && bytes[start] == b'0') {
        return None;
    }
    Some((negative, magnitude, at))
}

#[inline]
pub(super) fn fit<T: TryFrom<i64> + TryFrom<u64>>(negative: bool, magnitude: u64) -> Option<T> {
    if negative { T::try_from(0i64.checked_sub_unsigned(magnitude)?).ok() } else { T::try_from(magnitude).ok() }
}

fn number<'a>(cursor: &mut Cursor<'a>, field: &arrow_schema::Field) -> Parsed<Number<'a>> {
    match cursor.peek() {
        Some(b'-' | b'0'..=b'9') => {}
        _ => return Err(wrong_type(cursor, field)),
    }
    let number = Number::scan(cursor.rest()).ok_or_else(|| cursor.wrong("a number"))?;
    cursor.skip(number.text.len());
    Ok(number)
}

fn exact<'a, T>(
    cursor: &mut Cursor<'a>,
    field: &arrow_schema::Field,
    convert: impl Fn(&Number<'a>) -> Result<T, Misfit>,
) -> Parsed<T> {
    let number = number(cursor, field)?;
    convert(&number).map_err(|misfit| misfits(number.text, misfit, field))
}

/// Floats that JSON has no numbers for are strings, here and where JSON is written.
fn not_a_number(cursor: &mut Cursor<'_>) -> Option<f64> {
    if cursor.peek() != Some(b'"') {
        return None;
    }
    for (text, value) in [("\"NaN\"", f64::NAN), ("\"Infinity\"", f64::INFINITY), ("\"-Infinity\"", f64::NEG_INFINITY)]
    {
        if cursor.rest().starts_with(text.as_bytes()) {
            cursor.skip(text.len());
            return Some(value);
        }
    }
    None
}

/// A number that the column's type does not hold.
#[cold]
pub(super) fn misfits(text: &str, misfit: Misfit, field: &arrow_schema::Field) -> Box<Fault> {
    let name = type_name(field);
    let text = shown(text.as_bytes());
    Fault::new(match misfit {
        Misfit::Fraction => format!("{text} is not a whole number, which {name} holds; declare DECIMAL or DOUBLE"),
        Misfit::Range => format!("{text} is outside of what {name} holds; declare a larger type"),
        Misfit::Places => format!("{text} has more decimal places than {name}; declare a larger scale"),
        Misfit::Inexact => {
            format!("{text} cannot be {name} without being rounded; declare DECIMAL with as many digits")
        }
    })
}

/// A value of another kind than the column's. Valid JSON is told from what is not.
#[cold]
fn wrong_type(cursor: &Cursor<'_>, field: &arrow_schema::Field) -> Box<Fault> {
    let start = cursor.at();
    let mut end = cursor.clone();
    if let Err(fault) = end.value() {
        return fault;
    }
    let kind = match cursor.peek() {
        Some(b'"') => "a string",
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b't' | b'f') => "a boolean",
        _ => "a number",
    };
    let (name, found) = (type_name(field), shown(end.since(start)));
    Fault::new(format!("expected {name}, found {kind}: {found}"))
}

fn hex(text: &[u8], bytes: &mut Vec<u8>) -> Option<()> {
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    for [high, low] in pairs {
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        // Two hexadecimal digits are a byte.
        bytes.push((digit(high)? * 16 + digit(low)?) as u8);
    }
    Some(())
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
