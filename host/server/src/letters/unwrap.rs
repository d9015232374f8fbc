//! One letter: what it says, and the row in it.

use serde::Deserialize;
use serde_json::{Map, Value};

/// A letter, as far as sending it again needs it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Letter {
    pub(super) source: Option<String>,
    pub(super) sink: Option<String>,
    /// Why the sink did not take it, for programs.
    pub(super) code: Option<String>,
    /// The file that the row came from.
    pub(super) file: Option<String>,
    row: Option<String>,
    row_base64: Option<String>,
    truncated_from_bytes: Option<u64>,
}

/// What the reason of a letter begins with that was kept once.
const KEPT: &str = "cannot be replayed: ";

impl Letter {
    /// Reads a line.
    ///
    /// # Errors
    /// Why it is no letter.
    pub(super) fn read(line: &[u8]) -> Result<Letter, String> {
        serde_json::from_slice(line).map_err(|error| format!("this is no dead letter: {error}"))
    }

    /// The row's bytes.
    ///
    /// # Errors
    /// Why they are not there.
    pub(super) fn row(&self) -> Result<Vec<u8>, String> {
        if let Some(bytes) = self.truncated_from_bytes {
            let place = self.file.as_deref().unwrap_or("the source");
            return Err(format!("only the beginning of the row's {bytes} bytes is here; the whole row is in {place}"));
        }
        match (&self.row, &self.row_base64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(base64)) => data_encoding::BASE64
                .decode(base64.as_bytes())
                .map_err(|error| format!("`row-base64` is not base64: {error}")),
            (None, None) => Err("the letter has no `row`".to_owned()),
            (Some(_), Some(_)) => Err("the letter has both `row` and `row-base64`; remove one".to_owned()),
        }
    }
}

/// The letter that stands for one that cannot be sent again, with the reason; a line that is no letter becomes one.
pub(super) fn kept(line: &[u8], file: &str, number: u64, why: &str) -> Vec<u8> {
    let mut letter = match serde_json::from_slice::<Map<String, Value>>(line) {
        Ok(letter) if Letter::read(line).is_ok() => letter,
        _ => {
            let mut letter = Map::new();
            letter.insert("file".to_owned(), file.into());
            letter.insert("line".to_owned(), number.into());
            match std::str::from_utf8(line) {
                Ok(text) => letter.insert("row".to_owned(), text.into()),
                Err(_) => letter.insert("row-base64".to_owned(), data_encoding::BASE64.encode(line).into()),
            };
            letter
        }
    };
    let before = letter.get("reason").and_then(Value::as_str).unwrap_or_default();
    // A letter that is kept again and again must not grow.
    if !before.starts_with(KEPT) {
        let before = if before.is_empty() { String::new() } else { format!(" (first: {before})") };
        letter.insert("reason".to_owned(), format!("{KEPT}{why}{before}").into());
    }
    let mut out = Value::Object(letter).to_string().into_bytes();
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(letter: &str) -> Result<Vec<u8>, String> {
        Letter::read(letter.as_bytes()).and_then(|letter| letter.row())
    }

    #[test]
    fn rows_come_out_as_they_were() {
        assert_eq!(row(r#"{"source":"s","epoch":1,"reason":"r","row":"a \"ü\"\t"}"#), Ok("a \"ü\"\t".into()));
        assert_eq!(row(r#"{"sink":"k","row-base64":"/wA="}"#), Ok(vec![0xff, 0]));
        for (letter, part) in [
            (
                r#"{"source":"s","file":"f","row":"a","truncated-from-bytes":70000}"#,
                "70000 bytes is here; the whole row is in f",
            ),
            (r#"{"source":"s"}"#, "no `row`"),
            (r#"{"row":"a","row-base64":"YQ=="}"#, "both"),
            (r#"{"row-base64":"?"}"#, "base64"),
            ("[1]", "no dead letter"),
            ("oops", "no dead letter"),
        ] {
            let error = row(letter).expect_err(letter);
            assert!(error.contains(part), "{letter}: {error}");
        }
    }

    #[test]
    fn a_kept_letter_says_why_once() {
        let line = br#"{"source":"s","line":7,"reason":"too long","row":"a","truncated-from-bytes":9}"#;
        let once = kept(line, "f", 1, "it was cut");
        let text = String::from_utf8(once.clone()).expect("JSON");
        assert!(text.contains(r#""reason":"cannot be replayed: it was cut (first: too long)""#), "{text}");
        assert!(text.contains(r#""line":7"#) && text.contains(r#""truncated-from-bytes":9"#), "{text}");
        assert_eq!(kept(once.trim_ascii_end(), "f", 1, "it was cut"), once);
        let text = String::from_utf8(kept(b"oops", "f", 3, "this is no letter")).expect("JSON");
        assert_eq!(
            text,
            "{\"file\":\"f\",\"line\":3,\"reason\":\"cannot be replayed: this is no letter\",\"row\":\"oops\"}\n"
        );
    }
}
