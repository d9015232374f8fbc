//! Proof that a line is one JSON value.

use serde::de::IgnoredAny;

/// Deepest nesting of arrays and objects that is let through. What reads the rows later (plugins, destinations) gives
/// up at about this depth; the check itself does not recurse.
pub const MAX_DEPTH: usize = 128;

/// Whether `line` is one JSON value as RFC 8259 has it: UTF-8, no control characters in strings, no trailing commas,
/// no lone text behind it, nested at most [`MAX_DEPTH`] deep. White space around it is allowed, so a carriage return
/// at the end is. Numbers may have any size and objects may repeat keys. The error says where, by column in bytes.
pub fn check_line(line: &[u8]) -> Result<(), String> {
    check_utf8(line)?;
    check_utf8_line(line)
}

/// [`check_line`] for a line that is UTF-8 already.
pub(super) fn check_utf8_line(line: &[u8]) -> Result<(), String> {
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(line) {
        let text = error.to_string();
        let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
        // The parser's word for a misspelt `true`, `false` or `null`.
        let text = if text == "expected ident" { "expected a value" } else { text };
        return Err(format!("not valid JSON: {text} at column {}", error.column()));
    }
    // Counting brackets is cheap, and strings with many of them are rare: only such lines are looked at twice.
    let brackets = memchr::memchr2_iter(b'[', b'{', line).nth(MAX_DEPTH);
    if brackets.is_some() && depth(line) > MAX_DEPTH {
        return Err(format!("JSON nested deeper than {MAX_DEPTH} levels"));
    }
    Ok(())
}

fn check_utf8(line: &[u8]) -> Result<(), String> {
    std::str::from_utf8(line).map(drop).map_err(|error| format!("not UTF-8 at column {}", error.valid_up_to() + 1))
}

/// Only white space as JSON has it.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
}

/// Greatest nesting of a line that is valid JSON.
fn depth(line: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let mut bytes = line.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_values_pass() {
        for line in [
            "{}",
            "[]",
            "null",
            " {\"a\" : 1 }\r",
            "-0.5e+10",
            "123456789012345678901234567890",
            "1e999999",
            r#""\u00e9\ud83d\ude00\"\\""#,
            r#"{"a":1,"a":2}"#,
            "\"héllo ☃\"",
            "\"\u{2028}\u{7f}\"",
        ] {
            assert_eq!(check_line(line.as_bytes()), Ok(()), "{line}");
        }
    }

    #[test]
    fn everything_else_is_told_with_its_column() {
        for line in [
            "",
            "{",
            "}",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "{'a':1}",
            "01",
            "1.",
            ".5",
            "+1",
            "NaN",
            "Infinity",
            "tru",
            "nulll",
            "1 2",
            "{} {}",
            "\"a",
            "\"\t\"",
            "\"\\x\"",
            "\"\\u12\"",
            "{\"a\"}",
            "{\"a\":}",
            "{1:2}",
            "// c",
            "\u{feff}{}",
            "[1 2]",
            "-",
            "1e",
            "\u{a0}1",
            "{\"a\":1]",
        ] {
            let reason = check_line(line.as_bytes()).expect_err(line);
            assert!(reason.contains("column"), "{line}: {reason}");
            assert!(!reason.contains("line 1"), "{line}: {reason}");
        }
        assert!(check_line(b"\"\0\"").is_err());
        assert!(check_line(b"{}\0").is_err());
        assert_eq!(check_line(b"\"\xff\""), Err("not UTF-8 at column 2".to_owned()));
        // An encoded surrogate and an overlong slash.
        assert!(check_line(b"\"\xed\xa0\x80\"").is_err());
        assert!(check_line(b"\"\xc0\xaf\"").is_err());
    }

    #[test]
    fn deep_nesting_is_refused_without_a_deep_stack() {
        let nested = |depth: usize| format!("{}1{}", "[{\"a\":".repeat(depth / 2), "}]".repeat(depth / 2));
        assert_eq!(check_line(nested(128).as_bytes()), Ok(()));
        assert!(check_line(nested(130).as_bytes()).unwrap_err().contains("128 levels"));
        assert!(check_line(nested(1_000_000).as_bytes()).unwrap_err().contains("128 levels"));
        assert!(check_line("[".repeat(1_000_000).as_bytes()).is_err());
        // Brackets in strings do not nest, and neither do neighbours.
        assert_eq!(check_line(format!("\"{}\\\"[\"", "[".repeat(500)).as_bytes()), Ok(()));
        assert_eq!(check_line(format!("[{}[]]", "[],".repeat(500)).as_bytes()), Ok(()));
    }
}
