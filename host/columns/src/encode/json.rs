//! JSON lines: one object per row, all columns, in their order.

use std::collections::HashSet;

use arrow_array::RecordBatch;

use super::text::{Column, Kind, formatted};
use crate::{ColumnsError, Result};

/// All rows, each with its newline.
pub(super) fn lines(batch: &RecordBatch) -> Result<Vec<u8>> {
    let schema = batch.schema();
    unique(schema.fields().iter().map(|field| field.name().as_str()))?;
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        columns.push((named(field.name(), columns.is_empty()), Column::new(field, array.as_ref())?));
    }
    // Enough for most rows, so that it seldom grows.
    let mut out = Vec::with_capacity(batch.num_rows() * columns.iter().map(|(name, _)| name.len() + 8).sum::<usize>());
    for row in 0..batch.num_rows() {
        if columns.is_empty() {
            out.push(b'{');
        }
        for (name, column) in &columns {
            out.extend_from_slice(name);
            value(column, row, &mut out);
        }
        out.extend_from_slice(b"}\n");
    }
    Ok(out)
}

/// An object with a name that is there twice loses a value with most readers.
fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(ColumnsError::bad_schema(format!(
                "column `{name}` is there twice; a JSON object has every name once: rename one of them in a transform"
            )));
        }
    }
    Ok(())
}

/// What stands before a value: `{"name":` or `,"name":`.
fn named(name: &str, first: bool) -> Vec<u8> {
    let mut text = vec![if first { b'{' } else { b',' }];
    string(name, &mut text);
    text.push(b':');
    text
}

/// One value.
pub(super) fn value(column: &Column<'_>, row: usize, out: &mut Vec<u8>) {
    if column.is_null(row) {
        out.extend_from_slice(b"null");
        return;
    }
    match column {
        Column::Text(_, text) => string(text(row), out),
        Column::List(_, range, items) => {
            out.push(b'[');
            separated(range(row), out, |item, out| value(items, item, out));
            out.push(b']');
        }
        Column::Struct(_, fields) => {
            out.push(b'{');
            separated(0..fields.len(), out, |index, out| {
                let (name, column) = &fields[index];
                string(name, out);
                out.push(b':');
                value(column, row, out);
            });
            out.push(b'}');
        }
        Column::Map(_, range, keys, values) => {
            out.push(b'{');
            separated(range(row), out, |entry, out| {
                value(keys, entry, out);
                out.push(b':');
                value(values, entry, out);
            });
            out.push(b'}');
        }
        Column::Dictionary(_, keys, values) => value(values, keys[row], out),
        plain => {
            // The quote is taken back where the value needs none: nearly none of these types does.
            let start = out.len();
            if let Some(Kind::Quoted) = plain.plain(row, out) {
                out.insert(start, b'"');
                out.push(b'"');
            }
        }
    }
}

fn separated(range: std::ops::Range<usize>, out: &mut Vec<u8>, mut write: impl FnMut(usize, &mut Vec<u8>)) {
    for (nth, index) in range.enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        write(index, out);
    }
}

/// A string with its quotes. Only what must be escaped is.
pub(super) fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let plain = crate::decode::cursor::text_end(rest, 0);
        out.extend_from_slice(&rest[..plain]);
        let Some(&special) = rest.get(plain) else { break };
        match special {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => formatted(out, format_args!("\\u{control:04x}")),
        }
        rest = &rest[plain + 1..];
    }
    out.push(b'"');
}
