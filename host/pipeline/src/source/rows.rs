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

use arrow_array::RecordBatch;
use bytes::Bytes;
use memchr::memchr_iter;
use tidegate_columns::ColumnsError;
use tidegate_columns::decode::{CsvDecoder, CsvDialect, JsonDecoder};
use tidegate_protocol::plugin::Encoding;

use super::csv::{self, CsvOptions, Found, Objects, Records};
use super::json;
use super::window::{BLOCK, Window};
use super::{BAD_ROW_CLIP, BadRow, ColumnsPlan, HandOut};

/// Bad rows in one batch; the batch ends there.
pub(super) const MOST_BAD: usize = 256;

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

    /// Whether rows of it have columns.
    pub(super) fn has_columns(&self) -> bool {
        !matches!(self, Self::Raw)
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
    /// Instead of bytes, where columns were asked for.
    pub(super) columns: Option<RecordBatch>,
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
    JsonColumns(Box<JsonDecoder>),
    Csv { options: CsvOptions, records: Box<Records>, hand_out: HandOut, columns: Option<Columns> },
}

/// The columns of a CSV file, and what its records become.
struct Columns {
    count: usize,
    target: Target,
}

enum Target {
    AsIs,
    Objects(Objects),
    Typed(Box<CsvDecoder>),
}

impl Columns {
    fn new(names: &[String], options: &CsvOptions, hand_out: &HandOut) -> Result<Self, ColumnsError> {
        let target = match hand_out {
            HandOut::Encoded(Encoding::JsonLines) => Target::Objects(Objects::new(names)),
            HandOut::Encoded(_) => Target::AsIs,
            HandOut::Records(header) => {
                header.check(names).map_err(ColumnsError::bad_schema)?;
                Target::AsIs
            }
            HandOut::Columns(ColumnsPlan { schema, unknown, inferred }) => {
                let dialect = CsvDialect { delimiter: options.delimiter, quote: options.quote };
                let decoder = CsvDecoder::new(schema, names, dialect, *unknown)?;
                Target::Typed(Box::new(if *inferred { decoder.careful() } else { decoder }))
            }
        };
        Ok(Self { count: names.len(), target })
    }

    /// Adds a record; its fields were found in it before.
    fn add<'a>(
        &mut self,
        out: &mut Vec<u8>,
        raw: &[u8],
        fields: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<(), String> {
        let found = fields.len();
        if found != self.count {
            return Err(format!("expected {} fields, found {found}", self.count));
        }
        match &mut self.target {
            Target::AsIs => {
                out.extend_from_slice(raw);
                if raw.last() != Some(&b'\n') {
                    out.push(b'\n');
                }
                Ok(())
            }
            Target::Objects(objects) => objects.append(out, fields),
            Target::Typed(decoder) => decoder.push(trimmed(raw)),
        }
    }
}

impl Rows {
    /// `header` names the columns of a CSV file that is not read from its start.
    ///
    /// # Errors
    /// These columns cannot be had from this format, or from a file with that header.
    pub(super) fn new(
        window: Window,
        partition: Arc<str>,
        format: &Format,
        hand_out: &HandOut,
        longest: usize,
        header: Option<&[String]>,
    ) -> Result<Self, RowsError> {
        let unreadable = |error: ColumnsError| RowsError::Malformed(1, error.message);
        let kind = match (format, hand_out) {
            (Format::JsonLines, HandOut::Columns(plan)) => {
                let decoder = JsonDecoder::new(&plan.schema, plan.unknown).map_err(unreadable)?;
                Kind::JsonColumns(Box::new(decoder))
            }
            (Format::JsonLines, HandOut::Encoded(_) | HandOut::Records(_)) => Kind::JsonLines,
            (Format::Raw, _) => Kind::Raw,
            (Format::Csv(options), hand_out) => {
                let names = if options.header { header } else { Some(&options.columns[..]) };
                let columns = names.map(|names| Columns::new(names, options, hand_out)).transpose();
                Kind::Csv {
                    options: options.clone(),
                    records: Box::new(Records::new(options)),
                    hand_out: hand_out.clone(),
                    columns: columns.map_err(unreadable)?,
                }
            }
        };
        Ok(Self { window, partition, longest, kind, checked_encoding: false })
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
            Kind::Raw | Kind::JsonLines | Kind::JsonColumns(_) => self.next_lines(most_bytes, most_rows).map(Some),
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
                    Kind::JsonColumns(_) => self.decode(&lines.bytes, line)?,
                    _ => {
                        let taken = Taken { bytes: lines.bytes, rows: lines.count, ..Taken::default() };
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

    /// [`Rows::prove`], for rows as columns.
    fn decode(&mut self, bytes: &Bytes, first_line: u64) -> Result<(usize, u64, Taken), RowsError> {
        let Kind::JsonColumns(decoder) = &mut self.kind else {
            unreachable!("only JSON is decoded by lines");
        };
        let decoded =
            decoder.decode_until(bytes, MOST_BAD).map_err(|error| RowsError::Malformed(first_line, error.message))?;
        let bad = decoded.bad.into_iter().map(|bad| {
            let raw = bytes.get(bad.bytes).unwrap_or_default();
            self.bad_row(first_line + bad.line as u64, bad.reason, raw)
        });
        let taken = Taken {
            rows: decoded.batch.num_rows() as u64,
            bad: bad.collect(),
            columns: Some(decoded.batch),
            ..Taken::default()
        };
        Ok((decoded.read, decoded.lines as u64, taken))
    }

    fn bad_row(&self, line: u64, reason: String, raw: &[u8]) -> BadRow {
        // A copy: a few bad rows must not hold whole blocks in memory for as long as they are kept.
        let clipped = Bytes::copy_from_slice(&raw[..raw.len().min(BAD_ROW_CLIP)]);
        BadRow { partition: self.partition.to_string(), line, reason, raw: clipped, raw_len: raw.len() as u64 }
    }

    fn next_records(&mut self, most_bytes: usize, most_rows: u64) -> Result<Taken, RowsError> {
        let mut out = Vec::with_capacity(most_bytes.min(BLOCK));
        let mut taken = Taken::default();
        let start = self.window.offset();
        while self.window.offset() - start < most_bytes as u64 && out.len() < most_bytes && taken.bad.len() < MOST_BAD {
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
        if let Kind::Csv { columns: Some(Columns { target: Target::Typed(decoder), .. }), .. } = &mut self.kind {
            let columns = decoder.take().map_err(|error| RowsError::Malformed(self.window.lines(), error.message))?;
            taken.columns = Some(columns);
        }
        Ok(taken)
    }

    /// Reads one record and appends it to `out`, or to the rows that are being decoded.
    fn next_record(&mut self, out: &mut Vec<u8>, may_fill: bool) -> Result<Record, RowsError> {
        let Kind::Csv { options, records, hand_out, columns } = &mut self.kind else {
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
        let record = &self.window.unread()[..length];
        let quotes = csv::check_quotes(record, options);
        let Some(columns) = columns else {
            debug_assert!(options.header);
            let named = quotes
                .and_then(|()| csv::header(records.fields(count)))
                .and_then(|names| Columns::new(&names, options, hand_out).map_err(|error| error.message));
            *columns = Some(named.map_err(|what| RowsError::Malformed(line, what))?);
            self.window.take(length);
            return Ok(Record::Header);
        };
        let result = quotes.and_then(|()| columns.add(out, record, records.fields(count)));
        let raw = self.window.take(length);
        match result {
            Ok(()) => Ok(Record::Row),
            Err(reason) => Ok(Record::Bad(self.bad_row(line, reason, trimmed(&raw)))),
        }
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
        Taken { bytes, rows: self.rows, bad: self.bad, columns: None }
    }
}
