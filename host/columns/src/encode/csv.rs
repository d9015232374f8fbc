//! CSV after RFC 4180, with newlines as line ends. No value is an empty field; an empty text is `""`. Lists and objects
//! are JSON in one field.

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::json;
use super::text::Column;
use crate::Result;

/// All rows, without a header.
pub(super) fn records(batch: &RecordBatch) -> Result<Vec<u8>> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, array)| Column::new(field, array.as_ref())).collect::<Result<Vec<_>>>()?;
    let mut out = Vec::new();
    let mut nested = Vec::new();
    for row in 0..batch.num_rows() {
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            field(column, row, &mut out, &mut nested);
        }
        // A line without anything would be no record to a reader.
        if columns.len() == 1 && columns[0].is_null(row) {
            out.extend_from_slice(b"\"\"");
        }
        out.push(b'\n');
    }
    Ok(out)
}

/// The line that names the columns.
pub(crate) fn header(schema: &Schema) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, field) in schema.fields().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        text(field.name().as_bytes(), &mut out);
    }
    out.push(b'\n');
    out
}

fn field(column: &Column<'_>, row: usize, out: &mut Vec<u8>, nested: &mut Vec<u8>) {
    if column.is_null(row) {
        return;
    }
    match column {
        Column::Text(_, value) => text(value(row).as_bytes(), out),
        Column::Dictionary(_, keys, values) => field(values, keys[row], out, nested),
        Column::List(..) | Column::Struct(..) | Column::Map(..) => {
            nested.clear();
            json::value(column, row, nested);
            text(nested, out);
        }
        plain => {
            let start = out.len();
            plain.plain(row, out);
            // No bytes at all are not the same as no value.
            if out.len() == start {
                out.extend_from_slice(b"\"\"");
            }
        }
    }
}

fn text(value: &[u8], out: &mut Vec<u8>) {
    let needs_quotes = |byte: &u8| matches!(byte, b'"' | b',' | b'\n' | b'\r');
    let blank_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_whitespace);
    if !value.is_empty() && !value.iter().any(needs_quotes) && !blank_end(value.first()) && !blank_end(value.last()) {
        out.extend_from_slice(value);
        return;
    }
    out.push(b'"');
    let mut rest = value;
    while let Some(at) = memchr::memchr(b'"', rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(b"\"\"");
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}
