//! One Parquet file being read.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidegate_columns::decode::UnknownFields;
use tidegate_columns::encode::encode;
use tidegate_columns::fit::Fit;
use tidegate_columns::parquet::{ParquetFile, ParquetRows};
use tidegate_columns::rows::ColumnBatch;
use tidegate_columns::{ColumnsError, ColumnsErrorKind, Schema};
use tidegate_protocol::plugin::Encoding;

use super::position::{Identity, Position, explain};
use crate::source::files::deal::Waiting;
use crate::source::files::position::open_file;
use crate::source::files::reader::{OpenFile, Step};
use crate::source::rows::{MOST_BAD, Taken};
use crate::source::{BAD_ROW_CLIP, BadRow, ColumnsPlan, SourceError};

/// For messages.
const AFTER: &str = "after rows of it were read";

/// What rows become; the same for all of a source.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    schema: Schema,
    drop: bool,
}

impl Settings {
    pub(super) fn new(plan: &ColumnsPlan) -> Self {
        Self { schema: plan.schema.clone(), drop: plan.unknown == UnknownFields::Drop }
    }
}

/// Which file, for opening it and for messages.
#[derive(Debug, Clone)]
struct Place {
    name: Arc<str>,
    path: PathBuf,
}

impl Place {
    fn open(&self) -> Result<File, SourceError> {
        open_file(&self.path).map(|(file, _)| file).map_err(|error| self.io(error))
    }

    /// Where to go on in the file, which has to be the one that was read.
    fn position(&self, restored: Option<Position>, file: &File) -> Result<Position, SourceError> {
        match restored.filter(Position::begun) {
            Some(position) => position.check(&self.name, &self.path, file, AFTER).map(|()| position),
            // Nothing was read of it yet: whatever is there now is read.
            None => Identity::of(file, &self.name, &self.path).map(Position::start),
        }
    }

    fn io(&self, error: io::Error) -> SourceError {
        SourceError::Io { path: self.path.clone(), error }
    }

    fn explain(&self, error: ColumnsError) -> SourceError {
        explain(&self.name, &self.path, error)
    }
}

/// A file and where to go on in it. Cheap; the file is not open.
#[derive(Debug, Clone)]
pub(super) struct Partition {
    place: Place,
    pub(super) position: Position,
}

impl Partition {
    /// Looks at the file and at what the checkpoint says of it. Given settings, also at its columns.
    pub(super) fn find(
        name: &str,
        path: PathBuf,
        restored: Option<Position>,
        settings: Option<&Settings>,
    ) -> Result<Self, SourceError> {
        let place = Place { name: name.into(), path };
        let position = match settings {
            Some(settings) => Looked::at(&place, restored, settings)?.position,
            None => place.position(restored, &place.open()?)?,
        };
        Ok(Self { place, position })
    }
}

impl Waiting for Partition {
    fn name(&self) -> &str {
        &self.place.name
    }

    fn position(&self) -> String {
        self.position.to_json()
    }

    fn left(&self) -> u64 {
        let Position { row, rows, size, done, .. } = self.position;
        if done {
            return 0;
        }
        if row == 0 {
            // Its rows may not have been counted yet.
            return size.max(1);
        }
        let left = u128::from(size) * u128::from(rows - row) / u128::from(rows.max(1));
        u64::try_from(left).unwrap_or(u64::MAX).max(1)
    }
}

/// A file that can be read.
struct Looked {
    position: Position,
    handle: File,
    whole: ParquetFile,
    /// With the columns that are wanted.
    file: ParquetFile,
    fit: Fit,
}

impl Looked {
    fn at(place: &Place, restored: Option<Position>, settings: &Settings) -> Result<Self, SourceError> {
        let handle = place.open()?;
        let mut position = place.position(restored, &handle)?;
        let shared = handle.try_clone().map_err(|error| place.io(error))?;
        let whole = ParquetFile::of(shared, &place.name).map_err(|error| place.explain(error))?;
        position.settle_rows(&place.name, whole.rows())?;
        let Settings { schema, drop } = settings;
        let file = whole.only(|column| !drop || schema.arrow().index_of(column).is_ok());
        let fit = Fit::new(file.schema(), schema, *drop).map_err(|error| place.explain(error))?;
        Ok(Self { position, handle, whole, file, fit })
    }
}

/// An open file.
pub(super) struct OpenPartition {
    place: Place,
    position: Position,
    handle: File,
    whole: ParquetFile,
    /// With the columns that are wanted.
    file: ParquetFile,
    fit: Fit,
    /// From the first step on.
    rows: Option<ParquetRows>,
    /// Read and not handed out, from the position on.
    rest: Option<RecordBatch>,
    /// Bytes of a row that was handed out; 0 before the first. It may have more columns than the file.
    row_bytes: usize,
}

impl OpenFile for OpenPartition {
    type Waiting = Partition;
    type Settings = Settings;

    fn open(partition: Partition, settings: &Settings) -> Result<Self, SourceError> {
        // The file may have been replaced since it was found.
        let Partition { place, position } = partition;
        let Looked { position, handle, whole, file, fit } = Looked::at(&place, Some(position), settings)?;
        Ok(Self { place, position, handle, whole, file, fit, rows: None, rest: None, row_bytes: 0 })
    }

    fn name(&self) -> &str {
        &self.place.name
    }

    fn position(&self) -> String {
        self.position.to_json()
    }

    fn done(&self) -> bool {
        self.position.done
    }

    fn step(&mut self, most_bytes: usize, most_rows: u64) -> Result<Step, SourceError> {
        let Some(unread) = self.unread(most_bytes)? else {
            self.finish()?;
            return Ok(Step::Done);
        };
        let mut count = ColumnBatch::new(unread.clone()).rows_within(most_bytes);
        if let Some(fitting) = most_bytes.checked_div(self.row_bytes) {
            count = count.min(fitting.max(1));
        }
        let count = count.min(usize::try_from(most_rows).unwrap_or(usize::MAX));
        let (taken, count) = self.take(&unread.slice(0, count))?;
        self.rest = (count < unread.num_rows()).then(|| unread.slice(count, unread.num_rows() - count));
        self.position.row += count as u64;
        if self.position.row >= self.position.rows {
            self.finish()?;
        }
        Ok(Step::Taken(taken))
    }
}

impl OpenPartition {
    /// Rows of the file from the position on.
    fn unread(&mut self, most_bytes: usize) -> Result<Option<RecordBatch>, SourceError> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        let from = self.position.row;
        let rows = self.rows.get_or_insert_with(|| self.file.read_from(from, most_bytes));
        let read = rows.next_batch().map_err(|error| self.place.explain(error))?;
        Ok(read.map(|read| read.batch))
    }

    /// Brings rows to the schema; gives also how many it looked at, fewer than all after too many bad ones.
    fn take(&mut self, batch: &RecordBatch) -> Result<(Taken, usize), SourceError> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        // Ranges in order, the next one last.
        let all = 0..batch.num_rows();
        let mut ranges = Vec::from([all]);
        let mut looked_at = 0;
        while let Some(range) = ranges.pop().filter(|_| bad.len() < MOST_BAD) {
            let part = match range.len() == batch.num_rows() {
                true => batch.clone(),
                false => ColumnBatch::copied(batch, range.clone()).map_err(|error| self.place.explain(error))?,
            };
            match self.fit.apply(&part) {
                Ok(rows) => good.push(rows),
                Err(error) if error.kind != ColumnsErrorKind::BadValue => return Err(self.place.explain(error)),
                Err(error) if range.len() == 1 => bad.push(self.bad_row(range.start, error.message)?),
                Err(_) => {
                    let middle = range.start + range.len() / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                    continue;
                }
            }
            looked_at = range.end;
        }
        let columns = match good.len() {
            0 => None,
            _ => Some(ColumnBatch::join(&good).map_err(|error| self.place.explain(error))?),
        };
        let rows = columns.as_ref().map_or(0, RecordBatch::num_rows);
        if let Some(columns) = &columns {
            self.row_bytes = ColumnBatch::new(columns.clone()).bytes().div_ceil(rows.max(1));
        }
        Ok((Taken { columns, rows: rows as u64, bad, ..Taken::default() }, looked_at))
    }

    /// The row at a place behind the position, with all columns of the file.
    fn bad_row(&self, at: usize, mut reason: String) -> Result<BadRow, SourceError> {
        let row = self.position.row + at as u64;
        let read = self.whole.read_from(row, 1).next_batch().map_err(|error| self.place.explain(error))?;
        let (raw, left_out) = read.map(|read| as_line(&read.batch)).unwrap_or_default();
        if !left_out.is_empty() {
            reason.push_str(&format!(" (left out of the row here, since they have no text: {})", left_out.join(", ")));
        }
        let raw_len = raw.len() as u64;
        Ok(BadRow {
            partition: self.place.name.to_string(),
            line: row + 1,
            reason,
            raw: raw.slice(..raw.len().min(BAD_ROW_CLIP)),
            raw_len,
        })
    }

    fn finish(&mut self) -> Result<(), SourceError> {
        self.position.check(&self.place.name, &self.place.path, &self.handle, "while it was read")?;
        self.position.done = true;
        Ok(())
    }
}

/// A row as a JSON line without its end, and the names of columns whose type no line can hold.
fn as_line(row: &RecordBatch) -> (Bytes, Vec<String>) {
    let line =
        |row: &RecordBatch| encode(row, Encoding::JsonLines).map(|line| line.slice(..line.len().saturating_sub(1)));
    if let Ok(line) = line(row) {
        return (line, Vec::new());
    }
    let fits = |column: &usize| row.project(&[*column]).is_ok_and(|alone| line(&alone).is_ok());
    let (kept, left_out): (Vec<usize>, Vec<usize>) = (0..row.num_columns()).partition(fits);
    let names = left_out.into_iter().map(|column| format!("`{}`", row.schema().field(column).name())).collect();
    let kept = row.project(&kept).ok().and_then(|kept| line(&kept).ok());
    (kept.unwrap_or_default(), names)
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, DurationSecondArray, Int64Array};

    use super::*;

    #[test]
    fn a_column_that_has_no_form_as_text_is_left_out_of_a_line_and_named() {
        let number: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        let duration: ArrayRef = Arc::new(DurationSecondArray::from(vec![1]));
        let row = |columns: Vec<(&str, &ArrayRef)>| {
            RecordBatch::try_from_iter(columns.into_iter().map(|(name, column)| (name, Arc::clone(column)))).unwrap()
        };
        let (line, left_out) = as_line(&row(vec![("a", &number), ("b", &duration), ("c", &number)]));
        assert_eq!((&line[..], &left_out[..]), (&b"{\"a\":7,\"c\":7}"[..], &["`b`".to_owned()][..]));
        let (line, left_out) = as_line(&row(vec![("b", &duration)]));
        assert_eq!((&line[..], left_out.len()), (&b"{}"[..], 1));
        assert_eq!(as_line(&row(vec![("a", &number)])), (Bytes::from("{\"a\":7}"), vec![]));
    }
}
