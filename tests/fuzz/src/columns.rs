//! Column lists, what is inferred from rows, and rows of JSON and CSV.

use serde_json::value::RawValue;
use tidegate_columns::Schema;
use tidegate_columns::decode::{CsvDecoder, CsvDialect, Decoded, JsonDecoder, UnknownFields};
use tidegate_columns::encode::encode;
use tidegate_columns::schema::Kept;
use tidegate_protocol::plugin::Encoding;

use crate::input::Input;
use crate::{Met, words};

pub(crate) fn schema(bytes: &[u8]) -> Met {
    let mut input = Input(bytes);
    match input.byte() % 3 {
        0 => column_list(&input.text()),
        1 => kept(&input.text()),
        _ => inferred(input.0),
    }
}

/// What is read is written so that it is read as the same.
fn column_list(text: &str) -> Met {
    let schema = Schema::parse_ddl(text);
    match &schema {
        Ok(schema) => {
            let written = schema.to_text();
            let again = Schema::from_text(&written).expect("what was written is read");
            assert_eq!(again, *schema, "{written}");
            assert_eq!(again.to_text(), written);
        }
        Err(error) => drop(words(error)),
    }
    Met::of(&schema)
}

fn kept(text: &str) -> Met {
    let kept = Kept::from_text(text);
    match &kept {
        Ok(Kept::Columns(columns)) => {
            let again = Kept::from_text(&columns.to_text()).expect("what was written is read");
            assert_eq!(again, Kept::Columns(columns.clone()));
        }
        Ok(Kept::Names(names)) => {
            let again = Kept::from_text(&Kept::names_to_text(names)).expect("what was written is read");
            assert_eq!(again, Kept::Names(names.clone()));
        }
        Err(error) => drop(words(error)),
    }
    Met::of(&kept)
}

/// Columns that were inferred from rows take those rows.
fn inferred(sample: &[u8]) -> Met {
    let schema = Schema::infer_json(sample);
    match &schema {
        Ok(schema) => {
            assert_eq!(Schema::from_text(&schema.to_text()).as_ref(), Ok(schema));
            let mut decoder = JsonDecoder::new(schema, UnknownFields::BadRow).expect("what is inferred is decoded");
            checked(sample, decoder.decode(sample).expect("an input is not that large"));
        }
        Err(error) => drop(words(error)),
    }
    Met::of(&schema)
}

const SCHEMAS: [&str; 6] = [
    "a BIGINT, b VARCHAR, c DOUBLE, d BOOLEAN",
    "a DECIMAL(20, 4), b DATE, c TIMESTAMP(3), d TIME, e REAL",
    "a STRUCT<x BIGINT, y VARCHAR>, b BIGINT[]",
    "a SMALLINT NOT NULL, b TINYINT, c INTEGER, d VARBINARY",
    "a VARCHAR, b TIMESTAMP(9) WITH TIME ZONE, c DECIMAL(38, 0)",
    "a VARCHAR NOT NULL",
];

fn schema_of(number: u8) -> Schema {
    // A name that this version does not know would leave a target idle without a word.
    let known = SCHEMAS[usize::from(number) % SCHEMAS.len()];
    Schema::parse_ddl(known).unwrap_or_else(|error| panic!("`{known}`: {error}"))
}

pub(crate) fn rows(bytes: &[u8]) -> Met {
    let mut input = Input(bytes);
    let how = input.byte();
    let schema = schema_of(how >> 1);
    if how % 2 == 0 { json(&schema, input.0) } else { csv(&schema, input.0) }
}

fn json(schema: &Schema, lines: &[u8]) -> Met {
    let Ok(mut decoder) = JsonDecoder::new(schema, UnknownFields::Drop) else { return Met::Refused };
    let decoded = checked(lines, decoder.decode(lines).expect("an input is not that large"));
    // Each good row is JSON for another parser as well.
    let bad: Vec<usize> = decoded.bad.iter().map(|bad| bad.line).collect();
    for (number, line) in lines.split(|byte| *byte == b'\n').enumerate() {
        if !line.trim_ascii().is_empty() && !bad.contains(&number) {
            let parsed = serde_json::from_slice::<&RawValue>(line);
            assert!(parsed.is_ok(), "{parsed:?}: {:?}", String::from_utf8_lossy(line));
        }
    }
    let written = encode(&decoded.batch, Encoding::JsonLines).expect("what is decoded is encoded");
    let again = decoder.decode(&written).expect("an input is not that large");
    assert_eq!(again.bad, [], "what was written is not read");
    same(&decoded, &again, Encoding::JsonLines);
    met(&decoded)
}

fn csv(schema: &Schema, records: &[u8]) -> Met {
    let names: Vec<String> = schema.arrow().fields().iter().map(|field| field.name().clone()).collect();
    let made = CsvDecoder::new(schema, &names, CsvDialect::default(), UnknownFields::BadRow);
    let Ok(mut decoder) = made.map_err(|error| words(&error)) else { return Met::Refused };
    let decoded = checked(records, decoder.decode(records).expect("an input is not that large"));
    let written = encode(&decoded.batch, Encoding::Csv).expect("what is decoded is encoded");
    let again = decoder.decode(&written).expect("an input is not that large");
    assert_eq!(again.bad, [], "what was written is not read");
    same(&decoded, &again, Encoding::Csv);
    met(&decoded)
}

/// Written once more it is the same: values are compared by their text, since NaN equals nothing.
fn same(one: &Decoded, other: &Decoded, encoding: Encoding) {
    let text = |decoded: &Decoded| encode(&decoded.batch, encoding).expect("it was encoded before");
    assert_eq!(text(one), text(other));
}

/// Every line is a row, blank, or bad with words and its place.
fn checked(input: &[u8], decoded: Decoded) -> Decoded {
    assert!(decoded.read <= input.len());
    assert!(decoded.batch.num_rows() + decoded.bad.len() <= decoded.lines);
    for bad in &decoded.bad {
        assert!(bad.line < decoded.lines);
        assert!(input.get(bad.bytes.clone()).is_some(), "{:?} is not in the input", bad.bytes);
        let reason = words(&bad.reason);
        assert!(reason.len() < 2048, "{} bytes of reason", reason.len());
    }
    decoded
}

fn met(decoded: &Decoded) -> Met {
    if decoded.batch.num_rows() > 0 { Met::Read } else { Met::Refused }
}
