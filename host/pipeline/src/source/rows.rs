//! Rows of one format out of a window.
//!
//! What a row is:
//! - **raw**: the bytes up to a newline. Nothing is looked at: carriage returns, NUL and any other byte pass; an empty
//!   line is a row.
//! - **json-lines**: the same, and proved to be one JSON value. Lines of white space only are skipped. A carriage
//!   return before the newline is white space to JSON and stays part of the row.
//! - **csv**: a record, which may span lines within quotes. Blank lines are skipped. Handed out as a JSON object of
//!   strings, or unchanged with its line end. A field that goes on behind its closing quote makes it a bad row.
//!
//! A last row without a newline is a row, and gets one. A byte-order mark at the start of the input is dropped. A line
//! over the limit is a bad row, and only its head is kept; a CSV record over the limit ends the source, since an open
//! quote may have swallowed the rest of the file.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memchr_iter;
use tidegate_protocol::plugin::Encoding;

use super::csv::{self, CsvOptions, Found, Objects, Records};
use super::json;
use super::window::{BLOCK, Window};
use super::{BAD_ROW_CLIP, BadRow};

/// Bad rows in one batch; the batch ends there.
const MOST_BAD: usize = 256;

/// How a partition's bytes are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// Lines of any bytes.
    Raw,
    /// One JSON value per line.
    JsonLines,
    /// CSV records.
    Csv(CsvOptions),
}

impl Format {
    /// Encodings that rows of this format can be handed out in, best first.
    pub(super) fn encodings(&self) -> Vec<Encoding> {
        match self {
            Self::Raw => vec![Encoding::Raw],
            Self::JsonLines => vec![Encoding::JsonLines, Encoding::Raw],
            // RFC 4180 only if it is written that way.
            Self::Csv(CsvOptions { delimiter: b',', quote: b'"', .. }) => {
                vec![Encoding::JsonLines, Encoding::Csv, Encoding::Raw]
            }
            Self::Csv(_) => vec![Encoding::JsonLines, Encoding::Raw],
        }
    }

    /// The name as in the pipeline file.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::JsonLines => "json-lines",
            Self::Csv(_) => "csv",
        }
    }
}

/// Why rows cannot be read.
#[derive(Debug)]
pub(super) enum RowsError {
    Io(io::Error),
    /// The content does not follow the format; on which line, and what was expected.
    Malformed(u64, String),
}

impl From<io::Error> for RowsError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Rows, without positions.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) bytes: Bytes,
    pub(super) rows: u64,
    pub(super) bad: Vec<BadRow>,
}

/// Reads one partition.
pub(super) struct Rows {
    window: Window,
    partition: Arc<str>,
    longest: usize,
    kind: Kind,
    checked_encoding: bool,
}

enum Kind {
    Raw,
    JsonLines,
    Csv { options: CsvOptions, records: Box<Records>, columns: Option<Columns>, as_json: bool },
}

struct Columns {
    count: usize,
    objects: Objects,
}

impl Columns {
    fn new(names: &[String]) -> Self {
        Self { count: names.len(), objects: Objects::new(names) }
    }
}

impl Rows {
    /// `header` names the columns of a CSV file that is not read from its start.
    pub(super) fn new(
        window: Window,
        partition: Arc<str>,
        format: &Format,
        encoding: Encoding,
        longest: usize,
        header: Option<&[String]>,
    ) -> Self {
        let kind = match format {
            Format::Raw => Kind::Raw,
            Format::JsonLines => Kind::JsonLines,
            Format::Csv(options) => {
                let names = if options.header { header } else { Some(&options.columns[..]) };
                Kind::Csv {
                    options: options.clone(),
                    records: Box::new(Records::new(options)),
                    columns: names.map(Columns::new),
                    as_json: encoding == Encoding::JsonLines,
                }
            }
        };
        Self { window, partition, longest, kind, checked_encoding: false }
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    pub(super) fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Rows up to about `most_bytes` and `most_rows` (bad ones count). `None` at the end. May be without rows where
    /// only blank lines or a header were read, or, of an input that may grow, where no row is whole.
    pub(super) fn next(&mut self, most_bytes: usize, most_rows: u64) -> Result<Option<Taken>, RowsError> {
        if self.window.unread().is_empty() {
            if self.window.ended() {
                return Ok(None);
            }
            self.window.fill(self.longest)?;
            self.check_byte_order()?;
            if self.window.finished() {
                return Ok(None);
            }
        }
        match self.kind {
            Kind::Raw | Kind::JsonLines => self.next_lines(most_bytes, most_rows).map(Some),
            Kind::Csv { .. } => self.next_records(most_bytes, most_rows).map(Some),
        }
    }

    /// UTF-16 looks like a file of bad rows otherwise.
    fn check_byte_order(&mut self) -> Result<(), RowsError> {
        let first = !std::mem::replace(&mut self.checked_encoding, true) && self.window.offset() == 0;
        let wide = matches!(self.window.unread(), [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
        if first && wide && !matches!(self.kind, Kind::Raw) {
            return Err(RowsError::Malformed(1, "the file is UTF-16; convert it to UTF-8".to_owned()));
        }
        Ok(())
    }

    fn next_lines(&mut self, most_bytes: usize, most_rows: u64) -> Result<Taken, RowsError> {
        loop {
            let line = self.window.lines() + 1;
            if let Some(lines) = self.window.find_lines(most_bytes, most_rows, self.longest) {
                let (length, count, taken) = match self.kind {
                    Kind::JsonLines => self.prove(lines.bytes, line),
                    _ => {
                        let taken = Taken { bytes: lines.bytes, rows: lines.count, bad: Vec::new() };
                        (taken.bytes.len(), lines.count, taken)
                    }
                };
                self.window.take_counted(length, count);
                return Ok(taken);
            }
            if self.window.next_too_long(self.longest) {
                let Some((raw, raw_len)) = self.window.drop_line(BAD_ROW_CLIP)? else {
                    return Ok(Taken::default());
                };
                let reason = format!(
                    "the line has {raw_len} bytes, `max-line` allows {}; raise it if such lines are right",
                    self.longest
                );
                let bad = BadRow { partition: self.partition.to_string(), line, reason, raw, raw_len };
                return Ok(Taken { bad: vec![bad], ..Taken::default() });
            }
            if self.window.ended() {
                // What was taken is all that is whole.
                return Ok(Taken::default());
            }
            self.window.fill(self.longest)?;
        }
    }

    /// Keeps the lines that are JSON, until too many are not. Gives also how many bytes and lines it looked at. If all
    /// is well, the bytes stay where they are.
    fn prove(&self, bytes: Bytes, first_line: u64) -> (usize, u64, Taken) {
        let utf8 = std::str::from_utf8(&bytes).is_ok();
        let mut kept = Kept::default();
        let (mut start, mut count) = (0, 0);
        for end in memchr_iter(b'\n', &bytes) {
            let line = &bytes[start..end];
            let checked = if utf8 { json::check_utf8_line(line) } else { json::check_line(line) };
            match checked {
                Ok(()) => kept.rows += 1,
                Err(reason) => {
                    kept.leave_out(&bytes, start, end + 1);
                    if !json::is_blank(line) {
                        kept.bad.push(self.bad_row(first_line + count, reason, line));
                    }
                }
            }
            start = end + 1;
            count += 1;
            if kept.bad.len() == MOST_BAD {
                break;
            }
        }
        (start, count, kept.finish(bytes.slice(..start)))
    }

    fn bad_row(&self, line: u64, reason: String, raw: &[u8]) -> BadRow {
        // A copy: a few bad rows must not hold whole blocks in memory for as long as they are kept.
        let clipped = Bytes::copy_from_slice(&raw[..raw.len().min(BAD_ROW_CLIP)]);
        BadRow { partition: self.partition.to_string(), line, reason, raw: clipped, raw_len: raw.len() as u64 }
    }

    fn next_records(&mut self, most_bytes: usize, most_rows: u64) -> Result<Taken, RowsError> {
        let mut out = Vec::with_capacity(most_bytes.min(BLOCK));
        let mut taken = Taken::default();
        while out.len() < most_bytes && taken.bad.len() < MOST_BAD {
            let count = taken.rows + taken.bad.len() as u64;
            if count >= most_rows {
                break;
            }
            // What is there is handed out before anything is waited for.
            match self.next_record(&mut out, count == 0)? {
                Record::End | Record::NotYet => break,
                Record::Header => {}
                Record::Row => taken.rows += 1,
                Record::Bad(bad) => taken.bad.push(bad),
            }
        }
        taken.bytes = Bytes::from(out);
        Ok(taken)
    }

    /// Reads one record and appends it to `out`.
    fn next_record(&mut self, out: &mut Vec<u8>, may_fill: bool) -> Result<Record, RowsError> {
        let Kind::Csv { options, records, columns, as_json } = &mut self.kind else {
            unreachable!("only CSV has records");
        };
        let (found, count) = records.next(&mut self.window, self.longest, may_fill)?;
        let line = self.window.lines() + 1;
        let length = match found {
            Found::Record(length) => length,
            Found::End => return Ok(Record::End),
            Found::NotYet => return Ok(Record::NotYet),
            Found::TooLong => {
                let expected = format!(
                    "the record that begins here is longer than `max-line` ({} bytes). A quote may not be closed; \
                     close it, or raise `max-line`",
                    self.longest
                );
                return Err(RowsError::Malformed(line, expected));
            }
            Found::OpenQuote => {
                let expected = "the record that begins here has a quote that is not closed before the end of the \
                                file; close it, or double it if it is meant";
                return Err(RowsError::Malformed(line, expected.to_owned()));
            }
        };
        let quotes = csv::check_quotes(&self.window.unread()[..length], options);
        let Some(columns) = columns else {
            debug_assert!(options.header);
            let names = quotes
                .and_then(|()| csv::header(records.fields(count)))
                .map_err(|what| RowsError::Malformed(line, what))?;
            *columns = Some(Columns::new(&names));
            self.window.take(length);
            return Ok(Record::Header);
        };
        let mut result = quotes.and_then(|()| match count {
            _ if count == columns.count => Ok(()),
            _ => Err(format!("expected {} fields, found {count}", columns.count)),
        });
        if *as_json {
            result = result.and_then(|()| columns.objects.append(out, records.fields(count)));
        }
        let as_is = !*as_json;
        let raw = self.window.take(length);
        if let Err(reason) = result {
            return Ok(Record::Bad(self.bad_row(line, reason, trimmed(&raw))));
        }
        if as_is {
            out.extend_from_slice(&raw);
            if raw.last() != Some(&b'\n') {
                out.push(b'\n');
            }
        }
        Ok(Record::Row)
    }
}

/// A record without its line end.
fn trimmed(raw: &[u8]) -> &[u8] {
    let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
    raw.strip_suffix(b"\r").unwrap_or(raw)
}

enum Record {
    Row,
    Bad(BadRow),
    Header,
    End,
    NotYet,
}

/// Lines of a piece that stay. Nothing is copied before the first line has to go.
#[derive(Default)]
struct Kept {
    copy: Option<Vec<u8>>,
    /// Bytes before this are in `copy`, or left out.
    done: usize,
    rows: u64,
    bad: Vec<BadRow>,
}

impl Kept {
    fn leave_out(&mut self, bytes: &[u8], start: usize, end: usize) {
        let copy = self.copy.get_or_insert_with(|| Vec::with_capacity(bytes.len()));
        copy.extend_from_slice(&bytes[self.done..start]);
        self.done = end;
    }

    fn finish(self, bytes: Bytes) -> Taken {
        let bytes = match self.copy {
            None => bytes,
            Some(mut copy) => {
                copy.extend_from_slice(&bytes[self.done..]);
                Bytes::from(copy)
            }
        };
        Taken { bytes, rows: self.rows, bad: self.bad }
    }
}
