//! Comparing rows by value: two spellings of one JSON object count as one row. A number is its value and not its
//! spelling, the order of fields does not matter, and a field that is null is not a field that is missing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::multiset::{Lines, hash};

/// Turns lines into what they mean. Most lines were seen before, letter by letter; they are parsed once.
#[derive(Debug, Default)]
pub(crate) struct Values {
    known: HashMap<u128, u128>,
}

impl Values {
    /// Counts every line of JSON by its value.
    pub(crate) fn add_all(&mut self, lines: &mut Lines, input: impl Read) -> Result<()> {
        let mut reader = BufReader::with_capacity(1 << 16, input);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            ensure!(line.pop() == Some(b'\n'), "a last line without a newline: it may be torn");
            let value = match self.known.entry(hash(&line)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => *new.insert(hash(canonical(&line)?.as_bytes())),
            };
            lines.add_hash(value);
            line.clear();
        }
        Ok(())
    }
}

/// One spelling for each value.
fn canonical(line: &[u8]) -> Result<String> {
    let value: Value =
        serde_json::from_slice(line).with_context(|| format!("not JSON: `{}`", String::from_utf8_lossy(line)))?;
    let mut text = String::with_capacity(line.len());
    spell(&value, &mut text)?;
    Ok(text)
}

fn spell(value: &Value, text: &mut String) -> Result<()> {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => write!(text, "{value}")?,
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => write!(text, "{whole}")?,
            (_, Some(whole), _) => write!(text, "{whole}")?,
            // Whole numbers below 2^53 are the same value with and without a fraction.
            (.., Some(broken)) if broken.fract() == 0.0 && broken.abs() < 9e15 => write!(text, "{}", broken as i64)?,
            (.., Some(broken)) => write!(text, "{broken:e}")?,
            _ => write!(text, "{number}")?,
        },
        Value::Array(items) => {
            text.push('[');
            for item in items {
                spell(item, text)?;
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            text.push('{');
            for name in names {
                write!(text, "{}:", Value::from(name.as_str()))?;
                spell(&fields[name], text)?;
                text.push(',');
            }
            text.push('}');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multiset::Difference;

    fn lines(text: &str) -> Lines {
        let mut lines = Lines::default();
        Values::default().add_all(&mut lines, text.as_bytes()).expect("the lines are JSON");
        lines
    }

    #[test]
    fn spelling_does_not_matter_and_values_do() {
        let sent = lines("{\"a\":1,\"b\":null}\n{\"a\":2.5}\n");
        assert_eq!(lines("{\"a\":25e-1}\n{ \"b\":null, \"a\":1.0 }\n").against(&sent), Difference::default());
        assert_eq!(lines("{\"a\":1}\n{\"a\":2.5}\n").against(&sent), Difference { lost: 1, duplicated: 1 });
        assert_eq!(lines("{\"a\":\"1\",\"b\":null}\n{\"a\":2.5}\n").against(&sent).lost, 1);
        assert_ne!(canonical(b"9007199254740993").expect("JSON"), canonical(b"9007199254740992").expect("JSON"));
    }

    #[test]
    fn a_torn_line_and_a_line_that_is_no_json_are_told() {
        let mut lines = Lines::default();
        assert!(Values::default().add_all(&mut lines, &b"{}"[..]).is_err());
        assert!(Values::default().add_all(&mut lines, &b"{]\n"[..]).is_err());
    }
}
