//! Reading Parquet files: positions are row numbers, batches are bounded in bytes, files are not trusted.

mod footer;
mod read;
mod schema;
mod source;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow_schema::FieldRef;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::ParquetMetaData;

use crate::{ColumnsError, Result, Schema};

use source::Source;

pub use read::{ParquetBatch, ParquetRows};

/// What a Parquet file begins and ends with.
const MAGIC: &[u8; 4] = b"PAR1";
/// What it ends with if its footer is encrypted.
const ENCRYPTED_MAGIC: &[u8; 4] = b"PARE";
/// Length of the footer, and the magic behind it.
const TAIL_BYTES: u64 = 8;
/// The largest footer that is read.
const MAX_FOOTER_BYTES: u64 = 256 << 20;

/// An open Parquet file whose footer has been read and checked.
///
/// A file is not trusted: what is damaged ends in an error of kind `BadValue` that says so. The Parquet library can
/// panic on damaged pages; that is caught, in programs that unwind.
pub struct ParquetFile {
    source: Source,
    /// For messages.
    name: Arc<str>,
    reading: ArrowReaderMetadata,
    /// The columns that are read, if not all.
    mask: Option<ProjectionMask>,
    /// If there are INT96 columns: as nanoseconds, for checking.
    exact: Option<Arc<schema::Exact>>,
    schema: Schema,
    rows: u64,
}

impl ParquetFile {
    /// Opens a local file.
    ///
    /// # Errors
    /// `Io`: it cannot be opened or read. `BadValue`: it is not Parquet, cut short, or damaged. `Unsupported`: it is
    /// encrypted, or has columns of a type that is not read.
    pub fn open(path: &Path) -> Result<ParquetFile> {
        let file = File::open(path)
            .map_err(|error| ColumnsError::io(format!("{}: cannot be opened: {error}", path.display())))?;
        ParquetFile::of(file, &path.display().to_string())
    }

    /// Reads a file that is open already; `name` is for messages.
    ///
    /// # Errors
    /// As for [`ParquetFile::open`].
    pub fn of(file: File, name: &str) -> Result<ParquetFile> {
        let source = Source::new(file).map_err(|error| unreadable(name, &error))?;
        let footer_at = look_over(&source, name)?;
        // What Arrow's writers note besides can hold types that nobody else knows. Parquet's own types say enough, but for
        // whether an INT96 is an instant.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let mut reading = contained(name, "footer", || Ok(ArrowReaderMetadata::load(&source, options)?))?;
        if schema::has_int96(&reading) {
            let noted = || Ok(ArrowReaderMetadata::try_new(reading.metadata().clone(), ArrowReaderOptions::new())?);
            reading = contained(name, "schema", noted)?;
        }
        let rows = check_row_groups(reading.metadata(), footer_at).map_err(|what| damaged(name, what))?;
        let (reading, exact) = contained(name, "schema", || schema::adapted(&reading))?;
        let schema = Schema::new(reading.schema().clone());
        Ok(ParquetFile { source, name: name.into(), reading, mask: None, exact: exact.map(Arc::new), schema, rows })
    }

    /// The columns. Dictionaries are plain values here; INT96 are timestamps in microseconds.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The same file with some of its columns, by name and in their order. The others are not read.
    #[must_use]
    pub fn only(&self, keep: impl Fn(&str) -> bool) -> ParquetFile {
        let parquet = self.reading.parquet_schema();
        let kept = |name: &str| self.schema.arrow().index_of(name).is_ok() && keep(name);
        let (roots, fields): (Vec<usize>, Vec<FieldRef>) = self
            .reading
            .schema()
            .fields()
            .iter()
            .enumerate()
            .filter(|(_, field)| kept(field.name()))
            .map(|(root, field)| (root, field.clone()))
            .unzip();
        let exact = self.exact.as_ref().and_then(|exact| exact.only(parquet, &roots));
        ParquetFile {
            source: self.source.clone(),
            name: self.name.clone(),
            reading: self.reading.clone(),
            mask: Some(ProjectionMask::roots(parquet, roots)),
            exact: exact.map(Arc::new),
            schema: Schema::new(Arc::new(arrow_schema::Schema::new(fields))),
            rows: self.rows,
        }
    }

    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows from number `row` on, from 0, in batches of at most about `max_bytes`. Nothing if there are no more.
    /// Several may be read at once.
    pub fn read_from(&self, row: u64, max_bytes: usize) -> ParquetRows {
        ParquetRows::new(self, row, max_bytes)
    }
}

/// Where the footer of a Parquet file lies. It looks at both ends of the file, and not into the footer. `name` is for
/// messages.
///
/// # Errors
/// `Io`: it cannot be read. `BadValue`: it is not Parquet, or cut short. `Unsupported`: it is encrypted.
pub fn footer_of(file: &File, name: &str) -> Result<Range<u64>> {
    let length = file.metadata().map_err(|error| unreadable(name, &error))?.len();
    find_footer(file, length, name)
}

fn find_footer(file: &File, length: u64, name: &str) -> Result<Range<u64>> {
    let io = |error: std::io::Error| unreadable(name, &error);
    let mut head = [0; 4];
    if length >= 4 {
        file.read_exact_at(&mut head, 0).map_err(io)?;
    }
    if head == *ENCRYPTED_MAGIC {
        return Err(encrypted(name));
    }
    if head != *MAGIC {
        return Err(ColumnsError::bad_value(format!(
            "{name}: is not a Parquet file (it has {length} bytes and does not begin with `PAR1`): choose the format it \
             has, or leave it out of `paths`"
        )));
    }
    let mut tail = [0; TAIL_BYTES as usize];
    if length >= 4 + TAIL_BYTES {
        file.read_exact_at(&mut tail, length - TAIL_BYTES).map_err(io)?;
    }
    let [a, b, c, d, magic @ ..] = tail;
    if magic == *ENCRYPTED_MAGIC {
        return Err(encrypted(name));
    }
    if magic != *MAGIC {
        return Err(ColumnsError::bad_value(format!(
            "{name}: is cut short (it has {length} bytes and does not end with `PAR1`): it is still being written, or was \
             not copied whole"
        )));
    }
    let footer_bytes = u64::from(u32::from_le_bytes([a, b, c, d]));
    let end = length - TAIL_BYTES;
    let Some(start) = end.checked_sub(footer_bytes).filter(|start| *start >= 4) else {
        return Err(damaged(name, "its footer is said to be longer than the file"));
    };
    if footer_bytes > MAX_FOOTER_BYTES {
        return Err(damaged(name, "its footer is said to have more than 256 MiB"));
    }
    Ok(start..end)
}

/// Checks both ends of a file, and the footer's form. Answers where the footer begins.
fn look_over(source: &Source, name: &str) -> Result<u64> {
    let found = find_footer(source.file(), source.length(), name)?;
    let mut footer = vec![0; (found.end - found.start) as usize];
    source.read_exact_at(&mut footer, found.start).map_err(|error| unreadable(name, &error))?;
    let checked = footer::check(&footer).map_err(|what| damaged(name, &format!("in its footer, {what}")))?;
    if checked.encrypted {
        return Err(encrypted(name));
    }
    Ok(found.start)
}

/// Checks what the footer says of its row groups; answers the number of all rows.
fn check_row_groups(metadata: &ParquetMetaData, footer_at: u64) -> Result<u64, &'static str> {
    let negative = "it has a negative number of rows";
    let mut rows = 0u64;
    for group in metadata.row_groups() {
        let count = u64::try_from(group.num_rows()).map_err(|_| negative)?;
        rows = rows.checked_add(count).ok_or("it has more than 2^64 rows")?;
        if count > usize::MAX as u64 / 2 {
            return Err("it has a row group with an impossible number of rows");
        }
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let start = u64::try_from(start.min(column.data_page_offset())).ok();
            let length = u64::try_from(column.compressed_size()).ok();
            let end = start.zip(length).and_then(|(start, length)| start.checked_add(length));
            let outside = start.is_none_or(|start| start < 4) || end.is_none_or(|end| end > footer_at);
            if outside && count > 0 {
                return Err("it has a column that lies outside of the file");
            }
            if column.num_values() < 0 {
                return Err("it has a column with a negative number of values");
            }
        }
    }
    if u64::try_from(metadata.file_metadata().num_rows()).map_err(|_| negative)? != rows {
        return Err("its row groups do not have as many rows as it says");
    }
    Ok(rows)
}

/// Calls into the Parquet library: what it says, or a panic of it, becomes our error.
fn contained<T>(name: &str, what: &str, call: impl FnOnce() -> Result<T, Failure>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Failure::Ours(error))) => Err(ColumnsError::new(error.kind, format!("{name}: {error}"))),
        Ok(Err(Failure::Theirs(message))) => Err(damaged(name, &format!("its {what} cannot be read ({message})"))),
        Err(_) => Err(damaged(name, &format!("its {what} cannot be decoded"))),
    }
}

/// Why a call into the Parquet library failed.
enum Failure {
    Theirs(String),
    Ours(ColumnsError),
}

impl From<parquet::errors::ParquetError> for Failure {
    fn from(error: parquet::errors::ParquetError) -> Failure {
        match error {
            parquet::errors::ParquetError::External(error) if error.is::<std::io::Error>() => {
                Failure::Ours(ColumnsError::io(format!("cannot be read: {error}")))
            }
            parquet::errors::ParquetError::NYI(what) => {
                Failure::Ours(ColumnsError::unsupported(format!("is written in a way that is not read: {what}")))
            }
            other => Failure::Theirs(other.to_string()),
        }
    }
}

impl From<arrow_schema::ArrowError> for Failure {
    fn from(error: arrow_schema::ArrowError) -> Failure {
        match error {
            arrow_schema::ArrowError::IoError(message, _) => {
                Failure::Ours(ColumnsError::io(format!("cannot be read: {message}")))
            }
            other => Failure::Theirs(other.to_string()),
        }
    }
}

impl From<ColumnsError> for Failure {
    fn from(error: ColumnsError) -> Failure {
        Failure::Ours(error)
    }
}

fn unreadable(name: &str, error: &std::io::Error) -> ColumnsError {
    ColumnsError::io(format!("{name}: cannot be read: {error}"))
}

fn damaged(name: &str, what: &str) -> ColumnsError {
    ColumnsError::bad_value(format!("{name}: is a damaged Parquet file: {what}; copy it again, or write it anew"))
}

fn encrypted(name: &str) -> ColumnsError {
    ColumnsError::unsupported(format!("{name}: is an encrypted Parquet file, which is not read: decrypt it first"))
}
