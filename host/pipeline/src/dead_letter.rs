//! Rows that could not be read or were not taken, as rows of the dead-letter sink.
//!
//! One JSON object per row: where it came from, why, and its bytes (as text where they are UTF-8, else in base64), so
//! that it can be mended and sent again. A row longer than a line may be is cut, says so, and is found in full at the
//! file and line that are named. Every letter has an id that no other one ever has, whatever directory or copy it is
//! found in: a replay sends each id once.

use bytes::Bytes;
use serde::Serialize;
use tidegate_protocol::ids::{Epoch, PipelineId, RunId, SinkId, SourceId};
use tidegate_protocol::plugin::{Batch, Encoding, Reject};

use crate::source::BadRow;
use crate::spec::Origin;

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct DeadLetter<'a> {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sink: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    epoch: u64,
    /// How often the row was tried, this time included; not there where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u64>,
    /// In a replay: the letter that the row was in.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_of: Option<&'a str>,
    /// In a replay: its file of rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    replay_file: Option<&'a str>,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    row_base64: Option<String>,
    /// Present where `row` is only the beginning: how many bytes the whole row has.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_from_bytes: Option<u64>,
}

impl DeadLetter<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        // Plain strings and numbers cannot fail to serialise into memory.
        if serde_json::to_writer(&mut *out, self).is_ok() {
            out.push(b'\n');
        }
    }
}

/// Splits bytes into text, or base64 where they are not UTF-8.
fn text_or_base64(row: &[u8]) -> (Option<&str>, Option<String>) {
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    match std::str::from_utf8(row) {
        Ok(text) => (Some(text), None),
        Err(_) => (None, Some(data_encoding::BASE64.encode(row))),
    }
}

fn batch(bytes: Vec<u8>, rows: u64) -> Batch {
    Batch::new(Bytes::from(bytes), rows, Encoding::JsonLines)
}

/// Ids for the letters of one task of one run: `<pipeline>/<run>/<epoch>/source|sink/<name>/<task>/<number>`. The run's
/// random part makes them differ from those of every other state; an epoch belongs to one run and is written once.
pub(crate) struct LetterIds {
    run: String,
    task: String,
    epoch: Epoch,
    count: u64,
}

impl LetterIds {
    pub(crate) fn of_source(pipeline: &PipelineId, run: RunId, source: &SourceId, task: u32) -> Self {
        Self::new(pipeline, run, format!("source/{source}/{task}"))
    }

    pub(crate) fn of_sink(pipeline: &PipelineId, run: RunId, sink: &SinkId, ordinal: u32) -> Self {
        Self::new(pipeline, run, format!("sink/{sink}/{ordinal}"))
    }

    fn new(pipeline: &PipelineId, run: RunId, task: String) -> Self {
        Self { run: format!("{pipeline}/{run}"), task, epoch: Epoch::ZERO, count: 0 }
    }

    fn next(&mut self, epoch: Epoch) -> String {
        if self.epoch != epoch {
            (self.epoch, self.count) = (epoch, 0);
        }
        let id = format!("{}/{epoch}/{}/{}", self.run, self.task, self.count);
        self.count += 1;
        id
    }
}

/// Rows that a source could not read. `origins` tells, for each of the first of them, where it was before if it was taken
/// out of a letter.
pub(crate) fn of_bad_rows(
    ids: &mut LetterIds,
    source: &SourceId,
    epoch: Epoch,
    bad: &[BadRow],
    origins: &[Option<Origin>],
) -> Batch {
    let mut out = Vec::new();
    for (number, row) in bad.iter().enumerate() {
        let (text, base64) = text_or_base64(&row.raw);
        let here = Origin { file: Some(row.partition.clone()), line: Some(row.line), ..Origin::default() };
        let before = origins.get(number).and_then(Option::as_ref);
        let Origin { letter, file, line, attempt } = before.unwrap_or(&here);
        DeadLetter {
            id: ids.next(epoch),
            source: Some(source.as_str()),
            file: file.as_deref(),
            line: *line,
            sink: None,
            code: None,
            epoch: epoch.0,
            attempt: match before {
                Some(_) => attempt.map(|attempt| attempt.saturating_add(1)),
                None => Some(1),
            },
            replay_of: letter.as_deref(),
            replay_file: before.map(|_| row.partition.as_str()),
            reason: &row.reason,
            row: text,
            row_base64: base64,
            truncated_from_bytes: (row.raw_len > row.raw.len() as u64).then_some(row.raw_len),
        }
        .write(&mut out);
    }
    batch(out, bad.len() as u64)
}

/// Rows that a sink did not take, each with its bytes. How often they were tried is not known in a replay.
pub(crate) fn of_rejects<'a>(
    ids: &mut LetterIds,
    sink: &SinkId,
    epoch: Epoch,
    attempt: Option<u64>,
    rejects: impl Iterator<Item = (&'a Reject, &'a [u8])>,
) -> Batch {
    let mut out = Vec::new();
    let mut rows = 0;
    for (reject, row) in rejects {
        let (text, base64) = text_or_base64(row);
        DeadLetter {
            id: ids.next(epoch),
            source: None,
            file: None,
            line: None,
            sink: Some(sink.as_str()),
            code: Some(&reject.code),
            epoch: epoch.0,
            attempt,
            replay_of: None,
            replay_file: None,
            reason: &reject.message,
            row: text,
            row_base64: base64,
            truncated_from_bytes: None,
        }
        .write(&mut out);
        rows += 1;
    }
    batch(out, rows)
}

#[cfg(test)]
mod tests {
    use tidegate_protocol::ids::Nonce;

    use super::*;

    fn ids(run: u8, task: u32) -> LetterIds {
        let (pipeline, source) = (PipelineId::new("p").expect("legal name"), SourceId::new("s").expect("legal name"));
        LetterIds::of_source(&pipeline, RunId { number: 1, nonce: Nonce([run; 10]) }, &source, task)
    }

    #[test]
    fn no_two_letters_have_one_id() {
        let sink = SinkId::new("s").expect("legal name");
        let run = RunId { number: 1, nonce: Nonce([0; 10]) };
        let of_sink = LetterIds::of_sink(&PipelineId::new("p").expect("legal name"), run, &sink, 0);
        let mut seen = std::collections::BTreeSet::new();
        for mut ids in [ids(0, 0), ids(0, 1), ids(1, 0), of_sink] {
            for epoch in [1, 1, 1, 2, 2, 3] {
                let id = ids.next(Epoch(epoch));
                assert!(seen.insert(id.clone()), "{id} twice");
            }
        }
        assert!(seen.iter().any(|id| id.ends_with("/2/source/s/1/1")), "{seen:?}");
    }

    /// One letter of each form.
    fn letters_of_today() -> Vec<u8> {
        let pipeline = PipelineId::new("flights").expect("legal name");
        let (source, sink) = (SourceId::new("in").expect("legal name"), SinkId::new("out").expect("legal name"));
        let run = RunId { number: 2, nonce: Nonce([7; 10]) };
        let bad = |partition: &str, line, raw: &'static [u8], raw_len| BadRow {
            partition: partition.to_owned(),
            line,
            reason: "expected a JSON object".to_owned(),
            raw: Bytes::from_static(raw),
            raw_len,
        };
        let rows = [
            bad("00000001/rows/in/00000000", 3, b"[2]\n", 3),
            bad("in/a.jsonl", 17, b"\"g\xc3\xbc\"", 5),
            bad("in/a.jsonl", 18, b"\xff\x00", 2),
            bad("in/b.jsonl", 1, b"{\"n\":1", 70_000),
        ];
        let before = Origin {
            letter: Some("flights/1-bqdqoby/1/source/in/0/4".to_owned()),
            file: Some("in/a.jsonl".to_owned()),
            line: Some(9),
            attempt: Some(1),
        };
        let mut ids = LetterIds::of_source(&pipeline, run, &source, 0);
        let mut written = of_bad_rows(&mut ids, &source, Epoch(3), &rows, &[Some(before)]).bytes.to_vec();
        let reject = Reject { row: 0, code: "bad-date".to_owned(), message: "2013-13-01 is no date".to_owned() };
        let mut ids = LetterIds::of_sink(&pipeline, run, &sink, 1);
        let rejected = [(&reject, &b"{\"date\":\"2013-13-01\"}\n"[..])];
        written.extend_from_slice(&of_rejects(&mut ids, &sink, Epoch(3), Some(1), rejected.into_iter()).bytes);
        written
    }

    /// A new case is written with `TIDEGATE_WRITE_FORMATS=1`; one that is there is never changed.
    #[test]
    fn a_letter_of_today_is_the_one_that_is_kept() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let kept = std::path::Path::new(root).join("tests/old-formats/cases/letters/v1/good/dead/3.jsonl");
        if std::env::var_os("TIDEGATE_WRITE_FORMATS").is_some() && !kept.exists() {
            std::fs::create_dir_all(kept.parent().expect("a folder")).expect("it can be made");
            std::fs::write(&kept, letters_of_today()).expect("it can be written");
        }
        let kept = std::fs::read(&kept).expect("it is there");
        assert!(kept == letters_of_today(), "letters are written differently now: keep those of today as another case");
    }

    #[test]
    fn format_md_lists_exactly_the_keys_that_are_written() {
        let text = include_str!("../../store/FORMAT.md");
        let table = text.split("\n### letter\n").nth(1).and_then(|rest| rest.split("\n#").next()).expect("a table");
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        let listed: std::collections::BTreeSet<_> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        let letters = letters_of_today();
        let letters = letters.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let letters: Vec<serde_json::Value> =
            letters.map(|letter| serde_json::from_slice(letter).expect("a letter is JSON")).collect();
        let keys = letters.iter().filter_map(serde_json::Value::as_object).flat_map(|letter| letter.keys());
        assert_eq!(listed, keys.map(String::as_str).collect());
    }

    #[test]
    fn a_row_that_was_cut_says_how_long_it_is() {
        let source = SourceId::new("s").expect("legal name");
        let bad = |raw_len| BadRow {
            partition: "f".into(),
            line: 7,
            reason: "too long".into(),
            raw: Bytes::from_static(b"abc"),
            raw_len,
        };
        let letters = of_bad_rows(&mut ids(0, 0), &source, Epoch(1), &[bad(3), bad(4096)], &[]);
        let text = String::from_utf8(letters.bytes.to_vec()).expect("JSON is UTF-8");
        let (whole, cut) = text.trim_end().split_once('\n').expect("two rows");
        assert!(!whole.contains("truncated"), "{whole}");
        assert!(cut.contains(r#""truncated-from-bytes":4096"#), "{cut}");
    }

    #[test]
    fn a_row_that_fails_again_names_where_it_was_first_and_counts_its_tries() {
        let source = SourceId::new("s").expect("legal name");
        let bad = BadRow {
            partition: "1/rows/s/0".into(),
            line: 7,
            reason: "bad".into(),
            raw: Bytes::from_static(b"abc"),
            raw_len: 3,
        };
        let told = |origin: Option<Origin>| {
            let letters = of_bad_rows(&mut ids(0, 0), &source, Epoch(1), std::slice::from_ref(&bad), &[origin]);
            let mut letter: serde_json::Value = serde_json::from_slice(&letters.bytes).expect("JSON");
            let fields = letter.as_object_mut().expect("an object");
            fields.retain(|field, _| !["id", "epoch", "reason", "row", "source"].contains(&field.as_str()));
            letter.to_string()
        };
        assert_eq!(told(None), r#"{"attempt":1,"file":"1/rows/s/0","line":7}"#);
        let file = Origin { letter: Some("a".into()), file: Some("in/a".into()), line: Some(3), attempt: Some(2) };
        assert_eq!(
            told(Some(file)),
            r#"{"attempt":3,"file":"in/a","line":3,"replay-file":"1/rows/s/0","replay-of":"a"}"#
        );
        let of_sink = Origin { letter: Some("b".into()), ..Origin::default() };
        assert_eq!(told(Some(of_sink)), r#"{"replay-file":"1/rows/s/0","replay-of":"b"}"#);
    }
}
