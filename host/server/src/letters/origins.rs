//! Where the rows of a replay come from: beside each file of rows lies one that names, for every row, the letter that it
//! was in. Rows that fail again name the file and line of their first letter, and not our file of them.
//!
//! One line of JSON per row, in the order of the rows: `at` is the line in the file of rows on which it begins.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tidegate_pipeline::spec::{Origin, Origins};

use super::unwrap::Letter;

/// Files that are read at the same time.
const MOST_OPEN: usize = 64;
/// Longest entry, in bytes: it holds an id and a path.
const LONGEST: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    letter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u64>,
}

/// Writes where a row comes from that begins on this line of its file.
pub(super) fn write(out: &mut impl Write, at: u64, letter: &Letter) -> std::io::Result<()> {
    let entry = Entry {
        at,
        letter: letter.id.clone(),
        file: letter.file.clone(),
        line: letter.line.as_u64(),
        attempt: letter.attempt.as_u64(),
    };
    serde_json::to_writer(&mut *out, &entry)?;
    out.write_all(b"\n")
}

/// Where the origins of a file of rows lie, both named within the takes: `<take>/rows/…` and `<take>/origins/…`.
pub(super) fn beside(rows: &Path) -> Option<PathBuf> {
    let mut parts = rows.iter();
    let take = parts.next()?;
    (parts.next()? == "rows").then(|| Path::new(take).join("origins").join(parts.as_path()))
}

/// The origins of all rows in the takes.
#[derive(Debug)]
pub(crate) struct Takes {
    dir: PathBuf,
    open: Mutex<BTreeMap<String, Reading>>,
}

/// Rows fail in the order of their lines: a file is read once, forwards.
#[derive(Debug)]
struct Reading {
    lines: BufReader<File>,
    /// The entries around the line that was asked for last.
    entry: Option<Entry>,
    next: Next,
}

#[derive(Debug)]
enum Next {
    Entry(Entry),
    /// There is no further one.
    End,
    /// It cannot be read, and so it is not known on which line its row begins.
    Damaged,
}

impl Takes {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, open: Mutex::default() }
    }
}

impl Origins for Takes {
    fn of(&self, partition: &str, line: u64) -> Option<Origin> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = open.get(partition).is_some_and(|reading| reading.is_behind(line));
        if behind || !open.contains_key(partition) {
            // Takes of older versions have none.
            let reading = Reading::open(&self.dir.join(beside(Path::new(partition))?))?;
            if open.len() >= MOST_OPEN {
                open.clear();
            }
            open.insert(partition.to_owned(), reading);
        }
        let Entry { letter, file, line, attempt, .. } = open.get_mut(partition)?.find(line)?;
        Some(Origin { letter, file, line, attempt })
    }
}

impl Reading {
    fn open(path: &Path) -> Option<Self> {
        let mut lines = BufReader::new(File::open(path).ok()?);
        let next = read(&mut lines);
        Some(Self { lines, entry: None, next })
    }

    fn is_behind(&self, line: u64) -> bool {
        self.entry.as_ref().is_some_and(|entry| entry.at > line)
    }

    /// The row that begins on this line, or before it with blank lines.
    fn find(&mut self, line: u64) -> Option<Entry> {
        while let Next::Entry(next) = &self.next
            && next.at <= line
        {
            self.entry = Some(next.clone());
            self.next = read(&mut self.lines);
        }
        // Behind damage a row may be that of the next letter: better none than the wrong one.
        let sure = |entry: &&Entry| !matches!(self.next, Next::Damaged) || entry.at == line;
        self.entry.as_ref().filter(sure).cloned()
    }
}

fn read(lines: &mut BufReader<File>) -> Next {
    let mut line = Vec::new();
    match lines.take(LONGEST).read_until(b'\n', &mut line) {
        Ok(0) => Next::End,
        Ok(_) => serde_json::from_slice(&line).map_or(Next::Damaged, Next::Entry),
        Err(_) => Next::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_by_the_line_on_which_it_begins_in_any_order() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("1/origins/s")).expect("a folder can be made");
        let mut out = File::create(dir.path().join("1/origins/s/0")).expect("a file can be made");
        for (at, letter) in [
            (2, r#"{"id":"a","file":"in/a","line":7,"row":"x","attempt":1}"#),
            (3, r#"{"id":"b","sink":"k","row":"y"}"#),
            (6, r#"{"file":"in/c","line":1,"row":"z","attempt":4}"#),
        ] {
            write(&mut out, at, &Letter::read(letter.as_bytes()).expect("a letter")).expect("can be written");
        }
        let takes = Takes::new(dir.path().to_owned());
        let of = |line| takes.of("1/rows/s/0", line);
        let origin = |letter: Option<&str>, file: Option<&str>, line, attempt| {
            Some(Origin { letter: letter.map(str::to_owned), file: file.map(str::to_owned), line, attempt })
        };
        assert_eq!(of(1), None, "its header");
        assert_eq!(of(2), origin(Some("a"), Some("in/a"), Some(7), Some(1)));
        assert_eq!(of(4), origin(Some("b"), None, None, None), "behind blank lines");
        assert_eq!(of(6), origin(None, Some("in/c"), Some(1), Some(4)));
        assert_eq!(of(2), origin(Some("a"), Some("in/a"), Some(7), Some(1)), "once more");
        assert_eq!(takes.of("1/rows/s/other", 1), None);
    }

    #[test]
    fn behind_a_damaged_line_no_letter_is_named_rather_than_a_wrong_one() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("1/origins/s")).expect("a folder can be made");
        let text = "{\"at\":1,\"letter\":\"a\"}\n{\"at\":2,\"let\n{\"at\":3,\"letter\":\"c\"}\n";
        std::fs::write(dir.path().join("1/origins/s/0"), text).expect("a file can be made");
        let takes = Takes::new(dir.path().to_owned());
        let of = |line| takes.of("1/rows/s/0", line).and_then(|origin| origin.letter);
        assert_eq!([of(1), of(2), of(3)], [Some("a".to_owned()), None, None]);
    }
}
