//! CSV records to columns. An empty field is no value; `""` is an empty text.

use arrow_array::RecordBatch;

use super::column::{Children, Column, Data, type_name};
use super::cursor::{Cursor, Fault, Parsed, shown};
use super::json::{check_utf8, fit, misfits, text_value, value};
use super::number::{Misfit, Number};
use super::{BadLine, Decoded, UnknownFields, check_length};
use crate::{ColumnsError, Result, Schema};

/// How records are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CsvDialect {
    /// Between two fields.
    pub delimiter: u8,
    /// Around fields that hold delimiters, quotes or line ends; doubled within.
    pub quote: u8,
}

impl Default for CsvDialect {
    fn default() -> Self {
        Self { delimiter: b',', quote: b'"' }
    }
}

/// Decodes CSV records.
#[derive(Debug)]
pub struct CsvDecoder {
    schema: Schema,
    columns: Children,
    /// Of each field of a record, the place of its column; `None` for one that is left out.
    places: Vec<Option<usize>>,
    dialect: CsvDialect,
    careful: bool,
    unquoted: Vec<u8>,
}

impl CsvDecoder {
    /// `names` are those of the fields of every record, in order.
    ///
    /// # Errors
    /// The schema has a type that text is not decoded to; a field has no column and unknown ones are not dropped; or a
    /// column that must have a value has no field.
    pub fn new(schema: &Schema, names: &[String], dialect: CsvDialect, unknown: UnknownFields) -> Result<Self> {
        let columns = Children::new(schema.arrow().fields())?;
        let mut places = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(ColumnsError::bad_schema(format!(
                    "the files have the column `{name}` twice; every column needs a name of its own"
                )));
            }
            let place = columns.names.place(name);
            if place.is_none() && unknown == UnknownFields::BadRow {
                return Err(ColumnsError::bad_schema(format!(
                    "the files have a column `{name}` that the schema does not have. Declare it there, or set \
                     `unknown-fields = \"drop\"` to leave such columns out"
                )));
            }
            places.push(place);
        }
        for field in schema.arrow().fields() {
            if !field.is_nullable() && !names.contains(field.name()) {
                return Err(ColumnsError::bad_schema(format!(
                    "column `{}` is NOT NULL, and the files do not have it; they have: {}",
                    field.name(),
                    names.join(", ")
                )));
            }
        }
        Ok(Self { schema: schema.clone(), columns, places, dialect, careful: false, unquoted: Vec::new() })
    }

    /// For columns that were inferred: `01234` in a column of numbers is a bad row, since it may be no number.
    #[must_use]
    pub fn careful(self) -> Self {
        Self { careful: true, ..self }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Decodes whole records; the last may lack its line end. Blank lines are skipped. Every record becomes a row or a
    /// [`BadLine`], whose line is the record's number.
    ///
    /// # Errors
    /// `records` is longer than [`super::LONGEST_INPUT`].
    pub fn decode(&mut self, records: &[u8]) -> Result<Decoded> {
        check_length(records)?;
        let mut bad = Vec::new();
        let (mut count, mut start) = (0, 0);
        while let Some(&first) = records.get(start) {
            if matches!(first, b'\n' | b'\r') {
                start += 1;
                continue;
            }
            let end = start + record_length(&records[start..], self.dialect);
            let record = trimmed(&records[start..end]);
            if let Err(reason) = self.push(record) {
                bad.push(BadLine { line: count, bytes: start..start + record.len(), reason });
            }
            count += 1;
            start = end;
        }
        Ok(Decoded { batch: self.take()?, bad, lines: count, read: records.len() })
    }

    /// Adds one record, without its line end, to the rows that [`CsvDecoder::take`] gives.
    ///
    /// # Errors
    /// What is wrong with it; the rows are as before.
    pub fn push(&mut self, record: &[u8]) -> Result<(), String> {
        self.record(record).map_err(|fault| {
            self.columns.truncate(self.columns.rows);
            fault.to_string()
        })
    }

    /// The rows that were added since the last call. Together their records have at most [`super::LONGEST_INPUT`]
    /// bytes.
    ///
    /// # Errors
    /// `Internal`.
    pub fn take(&mut self) -> Result<RecordBatch> {
        self.columns.take_batch(&self.schema)
    }

    fn record(&mut self, record: &[u8]) -> Parsed<()> {
        check_utf8(record)?;
        let (expected, mut found) = (self.places.len(), 0);
        let mut rest = Some(record);
        while let Some(bytes) = rest {
            let (quoted, after) = next_field(bytes, self.dialect, &mut self.unquoted)?;
            rest = after;
            if let Some(Some(place)) = self.places.get(found) {
                let column = &mut self.columns.columns[*place];
                let text = std::mem::take(&mut self.unquoted);
                let checked = if self.careful { check_zeros(&text, column) } else { Ok(()) };
                let read = checked.and_then(|()| field(&text, quoted, column));
                let read = read.map_err(|fault| fault.within(column.field.name()));
                self.unquoted = text;
                read?;
            }
            found += 1;
        }
        if found != expected {
            return Err(Fault::new(format!("expected {expected} fields, found {found}")));
        }
        self.columns.fill().map_err(|missing| {
            Fault::new("has no value, and its column is NOT NULL").within(self.columns.columns[missing].field.name())
        })?;
        self.columns.rows += 1;
        Ok(())
    }
}

/// Length in bytes of the first record with its line end: a line end within quotes is none.
pub fn record_length(bytes: &[u8], dialect: CsvDialect) -> usize {
    let mut at = 0;
    loop {
        // At the start of a field.
        if bytes.get(at) == Some(&dialect.quote) {
            at += 1;
            while let Some(quote) = memchr::memchr(dialect.quote, &bytes[at..]) {
                at += quote + 1;
                if bytes.get(at) != Some(&dialect.quote) {
                    break;
                }
                at += 1;
            }
        }
        match memchr::memchr3(dialect.delimiter, b'\n', b'\r', bytes.get(at..).unwrap_or_default()) {
            None => return bytes.len(),
            Some(found) => {
                at += found + 1;
                match bytes[at - 1] {
                    b'\n' => return at,
                    b'\r' => return at + usize::from(bytes.get(at) == Some(&b'\n')),
                    _ => {}
                }
            }
        }
    }
}

fn trimmed(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// Takes the first field apart into `text`: whether it was quoted, and what follows its delimiter.
fn next_field<'a>(bytes: &'a [u8], dialect: CsvDialect, text: &mut Vec<u8>) -> Parsed<(bool, Option<&'a [u8]>)> {
    text.clear();
    let Some(mut rest) = bytes.strip_prefix(&[dialect.quote]) else {
        let end = memchr::memchr(dialect.delimiter, bytes);
        text.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
        return Ok((false, end.map(|end| &bytes[end + 1..])));
    };
    loop {
        let Some(quote) = memchr::memchr(dialect.quote, rest) else {
            return Err(Fault::new("a quote is not closed"));
        };
        text.extend_from_slice(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.first() {
            Some(next) if *next == dialect.quote => {
                text.push(dialect.quote);
                rest = &rest[1..];
            }
            None => return Ok((true, None)),
            Some(next) if *next == dialect.delimiter => return Ok((true, Some(&rest[1..]))),
            Some(_) => return Err(Fault::new("a field goes on behind its closing quote")),
        }
    }
}

fn check_zeros(text: &[u8], column: &Column) -> Parsed<()> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0', b'0'..=b'9', ..] if column.field.data_type().is_numeric() => Err(Fault::new(format!(
            "{} begins with a zero, which a number does not keep. The column was inferred as {}; declare in `schema` what it \
             is",
            shown(text),
            type_name(&column.field)
        ))),
        _ => Ok(()),
    }
}

fn field(text: &[u8], quoted: bool, column: &mut Column) -> Parsed<()> {
    if text.is_empty() && !(quoted && matches!(column.data, Data::Utf8(_) | Data::Binary(_))) {
        if !column.field.is_nullable() {
            return Err(Fault::new("has no value, and its column is NOT NULL"));
        }
        column.push_null();
        return Ok(());
    }
    let wrong = |column: &Column| Fault::new(format!("expected {}, found {}", type_name(&column.field), shown(text)));
    /// A whole number of the type that a vector holds.
    macro_rules! integer {
        ($values:expr) => {{
            let number = Number::whole(text);
            let value = number.map(|number| {
                number.integer().and_then(|(negative, magnitude)| fit(negative, magnitude).ok_or(Misfit::Range))
            });
            match value {
                Some(Ok(value)) => $values.push(value),
                Some(Err(misfit)) => return Err(misfits(&String::from_utf8_lossy(text), misfit, &column.field)),
                None => return Err(wrong(column)),
            }
        }};
    }
    macro_rules! number {
        ($values:expr, $special:expr, $convert:expr) => {{
            let value = match $special {
                Some(value) => Some(Ok(value)),
                None => Number::whole(text).map($convert),
            };
            match value {
                Some(Ok(value)) => $values.push(value),
                Some(Err(misfit)) => return Err(misfits(&String::from_utf8_lossy(text), misfit, &column.field)),
                None => return Err(wrong(column)),
            }
        }};
    }
    match &mut column.data {
        Data::Boolean(values) => match text {
            _ if text.eq_ignore_ascii_case(b"true") => values.append(true),
            _ if text.eq_ignore_ascii_case(b"false") => values.append(false),
            _ => return Err(wrong(column)),
        },
        Data::Int8(values) => integer!(values),
        Data::Int16(values) => integer!(values),
        Data::Int32(values) => integer!(values),
        Data::Int64(values) => integer!(values),
        Data::UInt8(values) => integer!(values),
        Data::UInt16(values) => integer!(values),
        Data::UInt32(values) => integer!(values),
        Data::UInt64(values) => integer!(values),
        Data::Float32(values) => number!(values, no_number(text).map(|value| value as f32), |n| n.single()),
        Data::Float64(values) => number!(values, no_number(text), |n| n.double()),
        Data::Decimal128(values, precision, scale) => {
            number!(values, None, |n| n.decimal128(*precision, *scale));
        }
        Data::Decimal256(values, precision, scale) => {
            number!(values, None, |n| n.decimal256(*precision, *scale));
        }
        Data::Utf8(texts) => {
            texts.bytes().extend_from_slice(text);
            texts.end();
        }
        Data::List(..) | Data::Struct(_) => {
            let mut cursor = Cursor::new(text);
            cursor.space();
            value(&mut cursor, column, UnknownFields::BadRow)?;
            return cursor.end();
        }
        _ => return text_value(text, column),
    }
    column.nulls.append_non_null();
    Ok(())
}

fn no_number(text: &[u8]) -> Option<f64> {
    match text {
        b"NaN" => Some(f64::NAN),
        b"Infinity" => Some(f64::INFINITY),
        b"-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Decimal128Type, Int64Type};

    use super::*;

    fn decode(ddl: &str, names: &[&str], records: &str) -> Decoded {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let schema = Schema::parse_ddl(ddl).expect("a schema");
        let mut decoder =
            CsvDecoder::new(&schema, &names, CsvDialect::default(), UnknownFields::BadRow).expect("a decoder");
        decoder.decode(records.as_bytes()).expect("decoded")
    }

    #[test]
    fn fields_become_values_of_their_columns() {
        let decoded = decode(
            "n BIGINT, t TEXT, d DECIMAL(6,2), b BOOLEAN, l BIGINT[]",
            &["t", "n", "d", "b", "l"],
            "a,1,1.5,true,\"[1,2]\"\r\n\"x,\"\"y\"\"\nz\",-2,12.34,FALSE,[]\n\n,,,,\n\"\",7,0,,",
        );
        assert_eq!((decoded.bad.len(), decoded.lines), (0, 4), "{:?}", decoded.bad);
        let texts: Vec<_> = decoded.batch.column(1).as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("a"), Some("x,\"y\"\nz"), None, Some("")]);
        let decimals: Vec<_> = decoded.batch.column(2).as_primitive::<Decimal128Type>().iter().collect();
        assert_eq!(decimals, [Some(150), Some(1234), None, Some(0)]);
        let numbers: Vec<_> = decoded.batch.column(0).as_primitive::<Int64Type>().iter().collect();
        assert_eq!(numbers, [Some(1), Some(-2), None, Some(7)]);
    }

    #[test]
    fn bad_records_name_the_field_and_leave_the_others() {
        let decoded = decode(
            "n BIGINT NOT NULL, d DECIMAL(4,1)",
            &["n", "d"],
            "1,1.0\nx,1.0\n2,1.25\n3\n,1.0\n9223372036854775808,\n1.5,\n4,\"1.0\"x\n5,5.5\n",
        );
        assert_eq!(decoded.batch.num_rows(), 2);
        let said: Vec<_> = decoded.bad.iter().map(|bad| (bad.line, bad.reason.as_str())).collect();
        assert_eq!(said.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        assert!(said[0].1.contains("`n`") && said[1].1.contains("`d`") && said[2].1.contains("2 fields"), "{said:?}");
    }

    #[test]
    fn a_column_that_the_files_do_not_have_is_told_at_the_start() {
        let schema = Schema::parse_ddl("a BIGINT NOT NULL").expect("a schema");
        let new = |names: &[&str], unknown| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            CsvDecoder::new(&schema, &names, CsvDialect::default(), unknown).map_err(|error| error.message)
        };
        assert!(new(&["b"], UnknownFields::Drop).expect_err("no a").contains("`a`"));
        assert!(new(&["a", "b"], UnknownFields::BadRow).expect_err("b").contains("`b`"));
        assert!(new(&["a", "a"], UnknownFields::BadRow).expect_err("a twice").contains("twice"));
        assert!(new(&["b", "a"], UnknownFields::Drop).is_ok());
    }

    #[test]
    fn a_record_ends_where_no_quote_is_open() {
        let length = |text: &str| record_length(text.as_bytes(), CsvDialect::default());
        for (text, expected) in
            [("a,b\nc", 4), ("\"a\nb\",c\r\nd", 9), ("a\"b\nc", 4), ("\"a\"\"\n\"\nb", 7), ("a", 1), ("\"a\n", 3)]
        {
            assert_eq!(length(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_leading_zero_is_no_number_where_the_columns_were_inferred() {
        let schema = Schema::parse_ddl("zip BIGINT, x DOUBLE, word TEXT").unwrap();
        let names = ["zip", "x", "word"].map(str::to_owned);
        let decoder = CsvDecoder::new(&schema, &names, CsvDialect::default(), UnknownFields::BadRow).unwrap();
        let decoded = decoder.careful().decode(b"01234,1,01\n0,0.5,01\n-7,-01.5,a\n10,1e3,b\n").unwrap();
        assert_eq!(decoded.batch.num_rows(), 2);
        let bad: Vec<_> = decoded.bad.iter().map(|bad| bad.line).collect();
        assert_eq!(bad, [0, 2]);
        assert!(decoded.bad[0].reason.contains("zip") && decoded.bad[0].reason.contains("zero"), "{:?}", decoded.bad);
    }
}
