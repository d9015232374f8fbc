//! One letter: what it says, and the row in it.

use serde::Deserialize;
use serde_json::Value;

/// A letter, as far as sending it again needs it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Letter {
    /// Names the letter wherever it is found. Older versions, and people, write letters without one.
    pub(super) id: Option<String>,
    pub(super) source: Option<String>,
    pub(super) sink: Option<String>,
    /// Why the sink did not take it, for programs.
    pub(super) code: Option<String>,
    /// The file that the row came from.
    pub(super) file: Option<String>,
    /// The row's first line in it. People write letters: whatever stands there is no reason not to send the row.
    #[serde(default)]
    pub(super) line: Value,
    /// How often the row was tried, if that is known.
    #[serde(default)]
    pub(super) attempt: Value,
    /// The replay's own file that the row came from when it failed again.
    pub(super) replay_file: Option<String>,
    row: Option<String>,
    row_base64: Option<String>,
    truncated_from_bytes: Option<u64>,
}

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
        assert_eq!(row(r#"{"source":"s","line":"about 7","attempt":-1,"row":"a"}"#), Ok(vec![b'a']));
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
}
