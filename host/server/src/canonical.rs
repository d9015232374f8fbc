//! JSON with one spelling per value, and digests of it.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Writes `value` with keys in order and without blanks, so that equal values have equal texts whatever the map kept.
pub(crate) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// `sha256:<hex>` of bytes.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn equal_values_have_equal_texts() {
        let value = json!({"b": [1, {"z": null, "a": "\"ü\n"}], "a": 1.5});
        assert_eq!(super::text(&value), "{\"a\":1.5,\"b\":[1,{\"a\":\"\\\"ü\\n\",\"z\":null}]}");
    }
}
