//! A schema from a sample of rows.
//!
//! Cautious on purpose, because it decides about rows that nobody has seen: whole numbers are `BIGINT`, other numbers
//! `DOUBLE` if every one of the sample is that double exactly, texts stay texts. Where a field has values of two kinds
//! nothing is guessed: it has to be declared.

use std::fmt;

use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Schema, TypeName};
use crate::decode::number::{Misfit, Number};
use crate::{ColumnsError, Result};

/// How deep values may lie in one another.
const DEEPEST: usize = 32;
/// Most columns of an inferred schema.
const MOST_FIELDS: usize = 4096;

/// What a field's values have been so far.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    /// Only null.
    Nothing,
    Boolean,
    /// Whole numbers: some below zero, some beyond `BIGINT`, some that no `DOUBLE` is.
    Integer {
        negative: bool,
        beyond: bool,
        inexact: bool,
    },
    Double,
    Text,
    List(Box<Seen>),
    Object(Vec<(String, Seen)>),
}

impl Schema {
    /// The columns of JSON lines. A last line without its end is left out, and so are lines that are no objects: they
    /// are bad rows whatever the schema is.
    ///
    /// # Errors
    /// No line is an object, or a field has values of different kinds; the message names it.
    pub fn infer_json(sample: &[u8]) -> Result<Schema> {
        let mut seen = Seen::Object(Vec::new());
        let mut rows = 0;
        for line in whole_lines(sample) {
            let Ok(object) = serde_json::from_slice::<Object<'_>>(line) else { continue };
            let row = object_seen(object, 0).map_err(|why| not_inferred(&why))?;
            seen = join(seen, row, &mut Vec::new()).map_err(|why| not_inferred(&why))?;
            rows += 1;
        }
        match seen {
            Seen::Object(fields) if rows > 0 && !fields.is_empty() => kept(schema(&fields)),
            _ => Err(ColumnsError::bad_schema(
                "no schema can be inferred: no line of the sample is a JSON object with a field; declare `schema`",
            )),
        }
    }

    /// The columns of CSV fields: `records` are the fields' texts in rows; empty ones are null. Numbers that begin with
    /// a zero are texts, as are all that cannot be read as one kind.
    ///
    /// # Errors
    /// There are no columns, or two of one name.
    pub fn infer_csv<'a>(names: &[String], records: impl IntoIterator<Item = &'a [Vec<u8>]>) -> Result<Schema> {
        let mut seen = vec![Seen::Nothing; names.len()];
        for record in records {
            for (column, text) in seen.iter_mut().zip(record) {
                if !text.is_empty() {
                    let value = csv_seen(text);
                    let both = std::mem::replace(column, Seen::Nothing);
                    *column = join(both, value, &mut Vec::new()).unwrap_or(Seen::Text);
                }
            }
        }
        if names.is_empty() {
            return Err(ColumnsError::bad_schema("no schema can be inferred: there are no columns"));
        }
        let fields: Vec<_> = names.iter().cloned().zip(seen).collect();
        kept(schema(&fields))
    }

    /// The stable text that stands in checkpoints: the same column list as in a pipeline file.
    pub fn to_text(&self) -> String {
        self.to_string()
    }

    /// Reads [`Self::to_text`].
    ///
    /// # Errors
    /// It is none.
    pub fn from_text(text: &str) -> Result<Schema> {
        Self::parse_ddl(text)
    }
}

fn whole_lines(sample: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = memchr::memrchr(b'\n', sample).map_or(0, |at| at + 1);
    // A file of one line without its end is its only row.
    let whole = if end == 0 { sample } else { &sample[..end] };
    whole.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty())
}

fn not_inferred(why: &str) -> ColumnsError {
    ColumnsError::bad_schema(format!("no schema can be inferred: {why}; declare `schema`"))
}

/// A schema that a checkpoint can hold: one that could not be read again would stop the next run.
fn kept(schema: Schema) -> Result<Schema> {
    if schema.arrow().flattened_fields().iter().any(|field| field.name().is_empty()) {
        return Err(ColumnsError::bad_schema(
            "no schema can be inferred: a field has an empty name, and no column can have it; declare `schema` with the \
             others, and leave it out with unknown-fields = \"drop\"",
        ));
    }
    match Schema::from_text(&schema.to_text()) {
        Ok(read) if read == schema => Ok(schema),
        Ok(_) => Err(not_inferred("the columns cannot be written as a column list")),
        Err(error) => Err(not_inferred(&error.message)),
    }
}

fn schema(fields: &[(String, Seen)]) -> Schema {
    let fields: Fields = fields.iter().map(|(name, seen)| Field::new(name, data_type(seen), true)).collect();
    Schema::new(ArrowSchema::new(fields).into())
}

fn data_type(seen: &Seen) -> DataType {
    match seen {
        Seen::Nothing | Seen::Text => DataType::Utf8,
        Seen::Boolean => DataType::Boolean,
        Seen::Integer { beyond: true, .. } => DataType::UInt64,
        Seen::Integer { .. } => DataType::Int64,
        Seen::Double => DataType::Float64,
        Seen::List(item) => DataType::new_list(data_type(item), true),
        Seen::Object(fields) => {
            DataType::Struct(fields.iter().map(|(name, seen)| Field::new(name, data_type(seen), true)).collect())
        }
    }
}

fn value_seen(raw: &RawValue, depth: usize) -> Result<Seen, String> {
    if depth > DEEPEST {
        return Err(format!("values lie more than {DEEPEST} deep in one another"));
    }
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'n') => Ok(Seen::Nothing),
        Some(b't' | b'f') => Ok(Seen::Boolean),
        Some(b'"') => Ok(Seen::Text),
        Some(b'{') => {
            let object = serde_json::from_str(text).map_err(|error| error.to_string())?;
            object_seen(object, depth + 1)
        }
        Some(b'[') => {
            let List(items) = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let mut item = Seen::Nothing;
            for raw in items {
                item = join(item, value_seen(raw, depth + 1)?, &mut vec!["[]".to_owned()])?;
            }
            Ok(Seen::List(Box::new(item)))
        }
        _ => number_seen(Number::whole(text.as_bytes()).ok_or_else(|| format!("`{text}` is no value"))?),
    }
}

fn object_seen(Object(fields): Object<'_>, depth: usize) -> Result<Seen, String> {
    let mut seen: Vec<(String, Seen)> = Vec::with_capacity(fields.len());
    if fields.len() > MOST_FIELDS {
        return Err(format!("there are more than {MOST_FIELDS} fields"));
    }
    for (name, raw) in fields {
        let value = value_seen(raw, depth).map_err(|why| format!("field `{name}`: {why}"))?;
        // A name that is there twice makes a bad row of its line, whatever it holds.
        match seen.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => seen.push((name, value)),
        }
    }
    Ok(Seen::Object(seen))
}

fn number_seen(number: Number<'_>) -> Result<Seen, String> {
    if number.is_integer() {
        return match number.integer() {
            Ok((negative, magnitude)) if negative && magnitude > 1 << 63 => {
                Err(format!("{} is below what BIGINT holds: write DECIMAL for its field", number.text))
            }
            Ok((negative, magnitude)) => Ok(Seen::Integer {
                negative: negative && magnitude > 0,
                beyond: !negative && magnitude > i64::MAX as u64,
                inexact: number.double().is_err(),
            }),
            Err(_) => Err(format!("{} has more digits than 64 bits hold: write DECIMAL for its field", number.text)),
        };
    }
    match number.double() {
        Ok(_) => Ok(Seen::Double),
        Err(Misfit::Range) => Err(format!("{} is beyond what DOUBLE holds: write TEXT for its field", number.text)),
        Err(_) => Err(format!("{} would be rounded as DOUBLE: write DECIMAL for its field", number.text)),
    }
}

fn csv_seen(text: &[u8]) -> Seen {
    if text.eq_ignore_ascii_case(b"true") || text.eq_ignore_ascii_case(b"false") {
        return Seen::Boolean;
    }
    match Number::whole(text) {
        Some(number) if !number.has_leading_zeros() => number_seen(number).unwrap_or(Seen::Text),
        _ => Seen::Text,
    }
}

/// What holds the values of both.
fn join(a: Seen, b: Seen, path: &mut Vec<String>) -> Result<Seen, String> {
    let different = |a: &Seen, b: &Seen, path: &[String]| {
        let (one, other) = (data_type(a), data_type(b));
        format!("field `{}` has values of {} and of {}", path.join("."), TypeName(&one), TypeName(&other))
    };
    Ok(match (a, b) {
        (Seen::Nothing, other) | (other, Seen::Nothing) => other,
        (Seen::Integer { negative, beyond, inexact }, Seen::Integer { negative: n, beyond: b, inexact: i }) => {
            let both = Seen::Integer { negative: negative || n, beyond: beyond || b, inexact: inexact || i };
            if matches!(both, Seen::Integer { negative: true, beyond: true, .. }) {
                let path = path.join(".");
                return Err(format!(
                    "field `{path}` has numbers below zero and beyond BIGINT: write DECIMAL(20,0) for it"
                ));
            }
            both
        }
        (Seen::Integer { inexact: true, .. }, Seen::Double) | (Seen::Double, Seen::Integer { inexact: true, .. }) => {
            return Err(format!(
                "field `{}` has fractions, and whole numbers that would be rounded as DOUBLE: write DECIMAL for it",
                path.join(".")
            ));
        }
        (Seen::Integer { .. }, Seen::Double) | (Seen::Double, Seen::Integer { .. }) => Seen::Double,
        (Seen::List(a), Seen::List(b)) => {
            path.push("[]".to_owned());
            let item = join(*a, *b, path)?;
            path.pop();
            Seen::List(Box::new(item))
        }
        (Seen::Object(mut fields), Seen::Object(others)) => {
            for (at, (name, other)) in others.into_iter().enumerate() {
                // Rows mostly have their fields in one order.
                let place = match fields.get(at) {
                    Some((known, _)) if *known == name => Some(at),
                    _ => fields.iter().position(|(known, _)| *known == name),
                };
                match place {
                    Some(place) => {
                        path.push(name);
                        let known = std::mem::replace(&mut fields[place].1, Seen::Nothing);
                        fields[place].1 = join(known, other, path)?;
                        path.pop();
                    }
                    None if fields.len() == MOST_FIELDS => {
                        return Err(format!("there are more than {MOST_FIELDS} fields"));
                    }
                    None => fields.push((name, other)),
                }
            }
            Seen::Object(fields)
        }
        (a, b) if a == b => a,
        (a, b) => return Err(different(&a, &b, path)),
    })
}

/// An object's fields in their order.
struct Object<'a>(Vec<(String, &'a RawValue)>);

struct List<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Object(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for List<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items;
        impl<'de> Visitor<'de> for Items {
            type Value = List<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    items.push(item);
                }
                Ok(List(items))
            }
        }
        deserializer.deserialize_seq(Items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{JsonDecoder, UnknownFields};

    #[test]
    fn types_are_those_that_hold_every_value_of_the_sample() {
        let sample = concat!(
            r#"{"i":1,"d":1,"t":"x","b":true,"n":null,"u":18446744073709551615,"l":[1,null],"o":{"p":[{"q":1}]}}"#,
            "\n\nnot json\n[1]\n",
            r#"{"i":-5,"d":2.5,"t":null,"b":false,"n":null,"l":[],"o":{"p":[{"q":2.5,"r":"s"}]},"later":"x"}"#,
            "\n",
            r#"{"i":"the end is missing"#,
        );
        let schema = Schema::infer_json(sample.as_bytes()).expect("a schema");
        assert_eq!(
            schema.to_text(),
            "i BIGINT, d DOUBLE, t TEXT, b BOOLEAN, n TEXT, u BIGINT UNSIGNED, l BIGINT[], \
             o STRUCT<p STRUCT<q DOUBLE, r TEXT>[]>, later TEXT"
        );
        assert_eq!(Schema::from_text(&schema.to_text()), Ok(schema.clone()));
        let mut decoder = JsonDecoder::new(&schema, UnknownFields::BadRow).expect("a decoder");
        let decoded = decoder.decode(sample.as_bytes()).expect("decoded");
        assert_eq!((decoded.batch.num_rows(), decoded.bad.len()), (2, 3));
    }

    #[test]
    fn what_is_not_sure_must_be_declared() {
        for (sample, words) in [
            ("{\"a\":1}\n{\"a\":\"x\"}\n", "field `a` has values of BIGINT and of TEXT"),
            ("{\"a\":{\"b\":1}}\n{\"a\":{\"b\":[]}}\n", "field `a.b`"),
            ("{\"a\":0.1234567890123456789}\n", "DECIMAL"),
            ("{\"a\":123456789012345678901}\n", "DECIMAL"),
            ("{\"a\":-1}\n{\"a\":18446744073709551615}\n", "DECIMAL(20,0)"),
            ("{\"a\":9007199254740993}\n{\"a\":0.5}\n", "field `a` has fractions"),
            ("{\"a\":0.5}\n{\"a\":-9007199254740993}\n", "field `a` has fractions"),
            ("{\"a\":{}}\n", "STRUCT"),
            ("{\"\":1}\n", "empty name"),
            ("{\"a\":{\"\":1}}\n", "unknown-fields = \"drop\""),
            ("1\n2\n", "no line"),
            ("", "no line"),
            ("{}\n", "no line"),
        ] {
            let error = Schema::infer_json(sample.as_bytes()).expect_err(sample);
            assert!(error.message.contains(words) && error.message.contains("declare"), "{sample}: {error}");
        }
    }

    #[test]
    fn a_sample_of_very_many_fields_is_refused_soon_and_never_kept_unreadable() {
        let row = |fields: usize| {
            let fields: Vec<_> = (0..fields).map(|at| format!("\"field{at}\":[1]")).collect();
            format!("{{{}}}\n", fields.join(","))
        };
        Schema::infer_json(row(100_000).as_bytes()).expect_err("too many");
        for fields in [1, 60, 70, 3000] {
            if let Ok(schema) = Schema::infer_json(row(fields).as_bytes()) {
                assert_eq!(Schema::from_text(&schema.to_text()), Ok(schema));
            } else {
                assert!(fields > 60, "{fields} lists are not too many");
            }
        }
    }

    #[test]
    fn csv_texts_that_look_like_numbers_with_leading_zeros_stay_texts() {
        let names = ["a", "b", "c", "d", "e"].map(str::to_owned);
        let rows = [["1", "007", "x", "1.5", ""], ["-2", "8", "1", "2", ""]]
            .map(|row| row.map(|text| text.as_bytes().to_vec()).to_vec());
        let schema = Schema::infer_csv(&names, rows.iter().map(Vec::as_slice)).expect("a schema");
        assert_eq!(schema.to_text(), "a BIGINT, b TEXT, c TEXT, d DOUBLE, e TEXT");
    }
}
