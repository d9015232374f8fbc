//! From a row to a point of the key space: which participant gets it.
//!
//! **Frozen for ever.** A row's point decides which participant's state it meets, in this version and in every later
//! one. What counts as the key's value:
//! - a string: its decoded text, so that `"A"` and `"\u0041"` are the same key;
//! - anything else: its text as written, white space at its ends left out. `1`, `1.0` and `1e0` are three keys;
//! - a missing field and `null` are one key of their own: such rows stay together.
//!
//! Of a key that an object repeats, the last value counts, as for most readers of JSON. Names are compared decoded.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A row that has no fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoKey {
    /// What was expected.
    pub reason: String,
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for NoKey {}

/// Finds one top-level field of JSON rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyExtractor {
    field: String,
}

impl KeyExtractor {
    /// For a field of this name.
    pub fn new(field: impl Into<String>) -> Self {
        Self { field: field.into() }
    }

    /// The field's name.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The point of the key space that the row belongs to.
    ///
    /// # Errors
    /// The row is not a JSON object.
    pub fn point(&self, row: &[u8]) -> Result<u32, NoKey> {
        let mut parser = serde_json::Deserializer::from_slice(row);
        let value = parser.deserialize_map(FieldVisitor { field: &self.field }).and_then(|value| {
            parser.end()?;
            Ok(value)
        });
        let value = value.map_err(|error| NoKey {
            reason: format!("expected a JSON object to route by its field `{}`: {error}", self.field),
        })?;
        Ok(hash(value.map(RawValue::get)))
    }
}

/// Kinds of values, so that no string is the same key as something else.
const NOTHING: &[u8] = b"n";
const TEXT: &[u8] = b"s";
const OTHER: &[u8] = b"v";

/// CRC-32C of the kind and the value, its bits spread. CRC alone leaves short keys of one length in few ranges of the
/// key space, and participants own ranges.
fn hash(value: Option<&str>) -> u32 {
    let (kind, bytes) = match value {
        None | Some("null") => (NOTHING, Cow::Borrowed("")),
        Some(text) if text.starts_with('"') => {
            // Valid JSON has no other strings; the text as written would still be a key.
            let decoded = serde_json::from_str::<Text<'_>>(text).map_or(Cow::Borrowed(text), |text| text.0);
            (TEXT, decoded)
        }
        Some(text) => (OTHER, Cow::Borrowed(text)),
    };
    spread(crc32c::crc32c_append(crc32c::crc32c(kind), bytes.as_bytes()))
}

/// MurmurHash3's 32-bit finalizer; a bijection.
fn spread(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// A string, borrowed where nothing is escaped.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct FieldVisitor<'f> {
    field: &'f str,
}

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(matches) = map.next_key_seed(IsField(self.field))? {
            if matches {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Compares a decoded name without allocating.
struct IsField<'f>(&'f str);

impl<'de> serde::de::DeserializeSeed<'de> for IsField<'_> {
    type Value = bool;

    /// As bytes: a name with half a surrogate pair is no `str`, and no reason to refuse the row.
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for IsField<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<bool, E> {
        Ok(name == self.0.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(row: &str) -> u32 {
        KeyExtractor::new("k").point(row.as_bytes()).expect("an object")
    }

    #[test]
    fn points_are_frozen() {
        let golden = [
            (r#"{"k":"UA"}"#, 2637806066),
            (r#"{"k":""}"#, 3384176971),
            (r#"{"k":"k17"}"#, 3149134542),
            (r#"{"k":"\u00e9"}"#, 1797648644),
            (r#"{"k":17}"#, 2010980229),
            (r#"{"k":-1.50e3}"#, 2842017725),
            (r#"{"k":true}"#, 2155031679),
            (r#"{"k":{"a":[1, 2]}}"#, 368020983),
            (r#"{"k":null}"#, 1506814005),
            ("{}", 1506814005),
        ];
        let found: Vec<_> = golden.iter().map(|(row, _)| (*row, point(row))).collect();
        assert_eq!(found, golden);
    }

    #[test]
    fn strings_are_compared_decoded_and_other_values_as_written() {
        assert_eq!(point(r#"{"k":"A"}"#), point(r#"{"k" : "\u0041" }"#));
        assert_eq!(point(r#"{"k":1}"#), point("{\"k\":\t1 }\r"));
        assert_ne!(point(r#"{"k":1}"#), point(r#"{"k":1.0}"#));
        assert_ne!(point(r#"{"k":1}"#), point(r#"{"k":"1"}"#));
        assert_ne!(point(r#"{"k":"null"}"#), point(r#"{"k":null}"#));
        assert_ne!(point(r#"{"k":""}"#), point(r#"{"k":null}"#));
    }

    #[test]
    fn a_missing_field_and_null_are_one_key() {
        assert_eq!(point(r#"{"a":1}"#), point(r#"{"k":null}"#));
        assert_eq!(point(r#"{"a":{"k":1}}"#), point("{}"));
    }

    #[test]
    fn the_last_of_repeated_keys_counts_and_names_are_compared_decoded() {
        assert_eq!(point(r#"{"k":"x","k":"y"}"#), point(r#"{"k":"y"}"#));
        assert_eq!(point(r#"{"\u006b":"y"}"#), point(r#"{"k":"y"}"#));
    }

    #[test]
    fn numbers_of_any_size_are_keys() {
        assert_ne!(point(r#"{"k":9007199254740993}"#), point(r#"{"k":9007199254740992}"#));
        point(r#"{"k":1e999999}"#);
    }

    #[test]
    fn half_a_surrogate_pair_is_no_reason_to_refuse_a_row() {
        assert_eq!(point(r#"{"\ud800":1,"k":"y"}"#), point(r#"{"k":"y"}"#));
        assert_ne!(point(r#"{"k":"\ud800"}"#), point(r#"{"k":"\ud801"}"#));
    }

    #[test]
    fn a_row_that_is_no_object_is_told() {
        for row in ["1", "[]", "", "{", "{\"k\":1} x", "\"k\""] {
            let error = KeyExtractor::new("k").point(row.as_bytes()).unwrap_err();
            assert!(error.reason.contains("`k`"), "{error}");
        }
        let deep = format!("{}{}", "{\"a\":".repeat(100_000), "1");
        assert!(KeyExtractor::new("k").point(deep.as_bytes()).is_err());
    }

    #[test]
    fn short_keys_fall_into_every_quarter_evenly() {
        let mut quarters = [0u32; 4];
        for key in 0..4000 {
            quarters[(point(&format!("{{\"k\":\"k{key}\"}}")) >> 30) as usize] += 1;
        }
        assert!(quarters.iter().all(|&count| (850..1150).contains(&count)), "{quarters:?}");
    }
}
