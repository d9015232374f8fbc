//! CSV records out of a window.

use csv_core::{ReadRecordResult, ReaderBuilder};
use memchr::memchr;

use super::SourceError;
use super::window::Window;

/// How CSV is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvOptions {
    /// The first record of every file names its columns.
    pub header: bool,
    /// One byte between fields.
    pub delimiter: u8,
    /// One byte around fields that contain delimiters, quotes or newlines; within them it is doubled.
    pub quote: u8,
    /// The columns' names when `header` is false.
    pub columns: Vec<String>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self { header: true, delimiter: b',', quote: b'"', columns: Vec::new() }
    }
}

impl CsvOptions {
    /// # Errors
    /// A key contradicts another; the message names it.
    pub fn check(&self) -> Result<(), SourceError> {
        let wrong = |key, expected: &str| Err(SourceError::Configuration { key, expected: expected.to_owned() });
        let usable = |byte: u8| byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0);
        if !usable(self.delimiter) {
            return wrong("csv.delimiter", "must be one ASCII character other than a line end");
        }
        if !usable(self.quote) || self.quote == self.delimiter {
            return wrong("csv.quote", "must be one ASCII character other than a line end and the delimiter");
        }
        match (self.header, self.columns.is_empty()) {
            (false, true) => wrong("csv.columns", "must name the columns, because `header` is false"),
            (true, false) => wrong("csv.columns", "only goes with `header = false`; the header names the columns"),
            _ => check_columns(&self.columns)
                .map_err(|expected| SourceError::Configuration { key: "csv.columns", expected }),
        }
    }
}

/// Names of columns become keys, so each may be there once.
fn check_columns(columns: &[String]) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    match columns.iter().find(|column| !seen.insert(column.as_str())) {
        Some(twice) => Err(format!("the column `{twice}` is named twice; every column needs a name of its own")),
        None => Ok(()),
    }
}

/// Reads records one by one.
pub(super) struct Records {
    parser: csv_core::Reader,
    fields: Vec<u8>,
    ends: Vec<usize>,
}

/// What the window's start holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A record: how many bytes it takes, its line end among them. Its fields are in [`Records::fields`].
    Record(usize),
    /// Nothing but the end.
    End,
    /// Nothing whole, and filling the window was not allowed, or there is no more yet.
    NotYet,
    /// A record that does not end, or is longer than allowed.
    TooLong,
    /// A quote that is still open at the end of the input.
    OpenQuote,
}

impl Records {
    pub(super) fn new(options: &CsvOptions) -> Self {
        let parser = ReaderBuilder::new().delimiter(options.delimiter).quote(options.quote).build();
        Self { parser, fields: vec![0; 4096], ends: vec![0; 64] }
    }

    /// The fields of the record found last.
    pub(super) fn fields(&self, count: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let ends = &self.ends[..count];
        let start = move |field: usize| if field == 0 { 0 } else { ends[field - 1] };
        (0..count).map(move |field| &self.fields[start(field)..ends[field]])
    }

    /// Finds the next record, after blank lines, which it takes. Fills the window as far as one record needs, if it
    /// may. Gives what it found and the number of fields.
    pub(super) fn next(
        &mut self,
        window: &mut Window,
        longest: usize,
        may_fill: bool,
    ) -> Result<(Found, usize), std::io::Error> {
        loop {
            let blank = window.unread().iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
            if blank > 0 {
                window.take(blank);
            }
            if window.unread().is_empty() {
                if window.ended() {
                    return Ok((Found::End, 0));
                }
                if !may_fill {
                    return Ok((Found::NotYet, 0));
                }
                window.fill(longest)?;
                continue;
            }
            if let Some((length, count)) = self.parse(window.unread(), window.ended()) {
                let found = if length > longest.saturating_add(2) { Found::TooLong } else { Found::Record(length) };
                return Ok((found, count));
            }
            if window.unread().len() > longest.saturating_add(2) {
                return Ok((Found::TooLong, 0));
            }
            if window.ended() {
                let found = if window.may_grow() { Found::NotYet } else { Found::OpenQuote };
                return Ok((found, 0));
            }
            if !may_fill {
                return Ok((Found::NotYet, 0));
            }
            window.fill(longest)?;
        }
    }

    /// The length of the first record of `input` and its number of fields; `None` if it is not whole.
    fn parse(&mut self, input: &[u8], last: bool) -> Option<(usize, usize)> {
        self.parser.reset();
        // The parser drops a byte-order mark from the first bytes it sees, which here may be any record.
        self.parser.read_record(b"\n", &mut self.fields, &mut self.ends);
        let (mut read, mut written, mut count) = (0, 0, 0);
        loop {
            if read == input.len() {
                return None;
            }
            let (result, nin, nout, nend) =
                self.parser.read_record(&input[read..], &mut self.fields[written..], &mut self.ends[count..]);
            read += nin;
            written += nout;
            count += nend;
            match result {
                ReadRecordResult::Record => break,
                ReadRecordResult::OutputFull => self.fields.resize(self.fields.len() * 2, 0),
                ReadRecordResult::OutputEndsFull => self.ends.resize(self.ends.len() * 2, 0),
                ReadRecordResult::InputEmpty | ReadRecordResult::End => return None,
            }
        }
        if input[read - 1] == b'\r' {
            match input.get(read) {
                Some(b'\n') => read += 1,
                // The line feed may be in the next block.
                None if !last => return None,
                _ => {}
            }
        }
        Some((read, count))
    }
}

/// Refuses a record with bytes between a closing quote and the end of the field, which the parser would take in without
/// its quotes. A quote within a field that does not begin with one is a byte like any other. Records without quotes cost
/// one search.
///
/// # Errors
/// Which field.
pub(super) fn check_quotes(record: &[u8], options: &CsvOptions) -> Result<(), String> {
    let CsvOptions { delimiter, quote, .. } = *options;
    if memchr(quote, record).is_none() {
        return Ok(());
    }
    let mut rest = record;
    let mut field = 1;
    loop {
        if let Some(mut quoted) = rest.strip_prefix(&[quote]) {
            loop {
                // The parser has found the record whole, so there is a closing quote.
                let Some(end) = memchr(quote, quoted) else { return Ok(()) };
                quoted = &quoted[end + 1..];
                match quoted.strip_prefix(&[quote]) {
                    Some(more) => quoted = more,
                    None => break,
                }
            }
            if quoted.first().is_some_and(|&byte| byte != delimiter && !matches!(byte, b'\r' | b'\n')) {
                return Err(format!(
                    "field {field} goes on behind its closing quote; a quote within quotes has to be doubled"
                ));
            }
            rest = quoted;
        }
        // Outside of quotes a line end ends the record, and nothing but delimiters matters.
        match memchr(delimiter, rest) {
            Some(at) => rest = &rest[at + 1..],
            None => return Ok(()),
        }
        field += 1;
    }
}

/// A header's names.
///
/// # Errors
/// A name is not UTF-8 or is there twice.
pub(super) fn header<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Result<Vec<String>, String> {
    let columns = fields
        .map(|field| std::str::from_utf8(field).map(str::to_owned))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| "the header is not UTF-8; convert the file to UTF-8".to_owned())?;
    check_columns(&columns)?;
    Ok(columns)
}

/// Writes records as JSON objects with string values, in the order of the columns.
pub(super) struct Objects {
    /// `{"a":`, `,"b":` and so on.
    prefixes: Vec<String>,
}

impl Objects {
    pub(super) fn new(columns: &[String]) -> Self {
        let prefixes = columns.iter().enumerate().map(|(i, column)| {
            let name = serde_json::to_string(column).expect("a string is always JSON");
            format!("{}{name}:", if i == 0 { '{' } else { ',' })
        });
        Self { prefixes: prefixes.collect() }
    }

    /// Appends one line.
    ///
    /// # Errors
    /// A field is not UTF-8; nothing was appended.
    pub(super) fn append<'a>(&self, out: &mut Vec<u8>, fields: impl Iterator<Item = &'a [u8]>) -> Result<(), String> {
        let before = out.len();
        for (index, (prefix, field)) in self.prefixes.iter().zip(fields).enumerate() {
            let Ok(text) = std::str::from_utf8(field) else {
                out.truncate(before);
                return Err(format!("field {} is not UTF-8; convert the file to UTF-8", index + 1));
            };
            out.extend_from_slice(prefix.as_bytes());
            serde_json::to_writer(&mut *out, text).expect("a string is always JSON, and a Vec takes it");
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether some of the fields in quotes and the others as they are make this record.
    fn can_be_written(fields: &[String], record: &str) -> bool {
        (0..1u32 << fields.len()).any(|choice| {
            let written = fields.iter().enumerate().map(|(index, field)| match choice >> index & 1 {
                0 if !field.starts_with('"') => field.clone(),
                _ => format!("\"{}\"", field.replace('"', "\"\"")),
            });
            written.collect::<Vec<_>>().join(",") == record
        })
    }

    #[test]
    fn every_short_record_is_either_read_as_it_was_written_or_refused() {
        let options = CsvOptions::default();
        let mut records = Records::new(&options);
        let (mut fine, mut refused) = (0, 0);
        for length in 1..=7 {
            for number in 0..4usize.pow(length) {
                let letter = |place| char::from(b"a\",\n"[number / 4usize.pow(place) % 4]);
                let text: String = (0..length).map(letter).chain(['\n']).collect();
                // One that begins with a blank line, or whose quote stays open, is not a record here.
                if text.starts_with('\n') {
                    continue;
                }
                let Some((read, count)) = records.parse(text.as_bytes(), true) else { continue };
                let record = &text[..read];
                let fields: Vec<_> =
                    records.fields(count).map(|field| String::from_utf8(field.to_vec()).expect("letters")).collect();
                let checked = check_quotes(record.as_bytes(), &options);
                let expected = can_be_written(&fields, record.strip_suffix('\n').expect("a line end"));
                assert_eq!(checked.is_ok(), expected, "{record:?} is {fields:?}: {checked:?}");
                if expected { fine += 1 } else { refused += 1 }
            }
        }
        assert!(fine > 1000 && refused > 1000, "{fine} {refused}");
    }
}
