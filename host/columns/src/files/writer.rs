//! All files of one participant.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::{DataType, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::take_record_batch;
use tidegate_protocol::plugin::{Batch, Encoding};

use crate::files::open::OpenFile;
use crate::files::options::{FileFormat, FileOptions};
use crate::rows::{ColumnBatch, Rows};
use crate::{ColumnsError, ColumnsErrorKind, Result, Schema};

/// Rows that are encoded in one step, at most: bounds what a step adds to memory.
const STEP_ROWS: usize = 8192;
/// Part of a file that is written in one step, at most: bounds how far a file goes beyond its size.
const STEP_OF_FILE: u64 = 8;
/// Files of one part. Each is named in the part's committable, and flushed by its plugin.
const MAX_FILES: u32 = 4096;
/// Waiting rows of a folder are put together when they are so many batches.
const MAX_WAITING_BATCHES: usize = 32;
/// What a column of a batch takes besides its values.
const COLUMN_BYTES: usize = 256;
/// Bytes of the folders of one part's files, together.
const MAX_FOLDERS_BYTES: usize = 512 << 10;

/// Writes the files of one participant, epoch after epoch.
pub struct FileWriter {
    options: FileOptions,
    extension: Arc<str>,
    schema: Option<SchemaRef>,
    /// By folder.
    open: BTreeMap<Arc<str>, Open>,
    /// Rows of folders for which no further file may be open.
    waiting: BTreeMap<Arc<str>, Waiting>,
    /// Counts uses of files.
    uses: u64,
    /// Memory of all open files and waiting rows.
    memory: usize,
    /// Memory of waiting rows.
    waiting_bytes: usize,
    /// Files of this part that were begun.
    next: u32,
    /// Their numbers for the plugin, in the order of their first pieces: files that were begun later may be handed out
    /// earlier.
    numbers: BTreeMap<u32, u32>,
    folders_bytes: usize,
    failed: bool,
}

struct Open {
    file: OpenFile,
    used: u64,
    memory: usize,
}

#[derive(Default)]
struct Waiting {
    batches: Vec<RecordBatch>,
    bytes: usize,
    /// When its first rows came.
    since: u64,
}

impl FileWriter {
    /// A writer of typed rows of `schema`; without one, of rows that have the files' encoding already.
    ///
    /// # Errors
    /// `BadOption`: the options contradict each other or the schema. `BadSchema`: the format cannot hold these columns.
    pub fn new(options: FileOptions, schema: Option<&Schema>) -> Result<FileWriter> {
        options.check()?;
        let schema = schema.map(|schema| schema.arrow().clone());
        match &schema {
            None if options.format == FileFormat::JsonLines || options.format == FileFormat::Raw => {
                if options.folder.is_some() {
                    return Err(ColumnsError::bad_option(
                        "folders by column need typed rows: give the source a schema",
                    ));
                }
            }
            None => {
                let format = options.format.as_str();
                let message = format!("files in the format `{format}` need typed rows: give the source a schema");
                return Err(ColumnsError::bad_option(message));
            }
            Some(schema) => {
                if let Some(folder) = &options.folder {
                    folder.check(schema)?;
                }
                if schema.fields().is_empty() {
                    return Err(ColumnsError::bad_schema("files need at least one column"));
                }
                if options.format == FileFormat::Csv {
                    check_csv(schema)?;
                }
            }
        }
        let extension: Arc<str> = options.extension().into();
        // Finds out now what the format cannot hold.
        let mut trial = OpenFile::new(&options, schema.as_ref(), 0, "".into(), extension.clone())?;
        if let Some(schema) = &schema {
            trial.write(&RecordBatch::new_empty(schema.clone()))?;
        }
        Ok(FileWriter {
            options,
            extension,
            schema,
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
            uses: 0,
            memory: 0,
            next: 0,
            numbers: BTreeMap::new(),
            folders_bytes: 0,
            failed: false,
        })
    }

    /// Adds rows; returns the pieces of files that are ready, to be handed to the plugin in this order.
    ///
    /// # Errors
    /// `TooManyFiles`: the part has to end earlier. `BadValue`: a row cannot be encoded. `Internal`: the rows are not what
    /// this writer was made for. The part cannot be finished any more: drop the writer.
    pub fn write(&mut self, rows: &Rows) -> Result<Vec<Batch>> {
        self.guarded(|writer, ready| match rows {
            Rows::Columns(columns) => writer.write_columns(&columns.batch, ready),
            Rows::Encoded(batch) => writer.write_encoded(batch, ready),
        })
    }

    /// Ends every file of this part; returns their last pieces. The next rows belong to the next part.
    ///
    /// # Errors
    /// As for [`FileWriter::write`].
    pub fn finish(&mut self) -> Result<Vec<Batch>> {
        let ready = self.guarded(|writer, ready| {
            let mut open: Vec<Open> = std::mem::take(&mut writer.open).into_values().collect();
            open.sort_by_key(|open| open.file.number);
            for open in open {
                open.file.end(ready)?;
            }
            let mut waiting: Vec<(Arc<str>, u64)> =
                writer.waiting.iter().map(|(folder, waiting)| (folder.clone(), waiting.since)).collect();
            waiting.sort_by_key(|(_, since)| *since);
            for (folder, _) in waiting {
                writer.write_waiting(&folder, ready)?;
                writer.end(&folder, ready)?;
            }
            (writer.memory, writer.next, writer.folders_bytes) = (0, 0, 0);
            Ok(())
        })?;
        self.numbers.clear();
        Ok(ready)
    }

    /// Bytes of memory that open files and waiting rows hold.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Whether a part has about as many files as it may have: it should end soon.
    pub fn crowded(&self) -> bool {
        self.files() >= MAX_FILES as usize / 2 || self.folders_bytes >= MAX_FOLDERS_BYTES / 2
    }

    /// Files of this part, also those that rows wait for.
    fn files(&self) -> usize {
        (self.next as usize).saturating_add(self.waiting.len())
    }

    /// Files that are open.
    pub fn open_files(&self) -> usize {
        self.open.len()
    }

    fn guarded(&mut self, call: impl FnOnce(&mut Self, &mut Vec<Batch>) -> Result<()>) -> Result<Vec<Batch>> {
        if self.failed {
            return Err(ColumnsError::internal("the files of this part failed before and cannot be finished"));
        }
        let mut ready = Vec::new();
        // Stays so if the call fails, or panics.
        self.failed = true;
        call(self, &mut ready)?;
        for chunk in ready.iter_mut().filter_map(|batch: &mut Batch| batch.file.as_mut()) {
            let next = self.numbers.len() as u32;
            chunk.number = *self.numbers.entry(chunk.number).or_insert(next);
        }
        self.failed = false;
        Ok(ready)
    }

    fn write_columns(&mut self, batch: &RecordBatch, ready: &mut Vec<Batch>) -> Result<()> {
        let fits = self.schema.as_ref().is_some_and(|schema| {
            Arc::ptr_eq(schema, batch.schema_ref()) || schema.fields() == batch.schema_ref().fields()
        });
        if !fits {
            return Err(ColumnsError::internal("rows with other columns than the files were begun with"));
        }
        let row_bytes = ColumnBatch::new(batch.clone()).bytes() / batch.num_rows().max(1);
        let step_rows = (self.step_bytes() / row_bytes.max(1)).clamp(1, STEP_ROWS);
        for from in (0..batch.num_rows()).step_by(step_rows) {
            let step = batch.slice(from, step_rows.min(batch.num_rows() - from));
            match &self.options.folder {
                None => self.write_step(&"".into(), &step, ready)?,
                Some(template) => {
                    for (folder, rows) in template.split(&step)? {
                        self.write_step(&folder, &rows, ready)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes rows of one folder, or lets them wait: to end a file for each of many folders in turn would make very
    /// many, very small files.
    fn write_step(&mut self, folder: &Arc<str>, rows: &RecordBatch, ready: &mut Vec<Batch>) -> Result<()> {
        if !self.open.contains_key(folder) && self.open.len() >= self.options.max_open_files {
            self.let_wait(folder, rows)?;
            return self.relieve(ready);
        }
        self.write_waiting(folder, ready)?;
        self.with_file(folder, ready, |file, _| file.write(rows))?;
        self.relieve(ready)
    }

    fn let_wait(&mut self, folder: &Arc<str>, rows: &RecordBatch) -> Result<()> {
        if !self.waiting.contains_key(folder) {
            // Counted now: when the part ends it would be too late.
            self.folders_bytes = self.folders_bytes.saturating_add(folder.len());
            self.check_room()?;
        }
        self.uses += 1;
        let since = self.uses;
        let waiting = self.waiting.entry(folder.clone()).or_insert_with(|| Waiting { since, ..Waiting::default() });
        // A copy: a slice would hold on to all of its batch.
        let all = UInt32Array::from_iter_values(0..rows.num_rows() as u32);
        waiting.batches.push(take_record_batch(rows, &all).map_err(not_copied)?);
        if waiting.batches.len() >= MAX_WAITING_BATCHES {
            let schema = waiting.batches[0].schema();
            waiting.batches = vec![concat_batches(&schema, &waiting.batches).map_err(not_copied)?];
        }
        let bytes = waiting.batches.iter().map(|batch| ColumnBatch::new(batch.clone()).bytes()).sum::<usize>()
            + waiting.batches.len() * rows.num_columns() * COLUMN_BYTES;
        self.memory = self.memory - waiting.bytes + bytes;
        self.waiting_bytes = self.waiting_bytes - waiting.bytes + bytes;
        waiting.bytes = bytes;
        Ok(())
    }

    /// Writes the rows that wait for this folder, if there are any.
    fn write_waiting(&mut self, folder: &Arc<str>, ready: &mut Vec<Batch>) -> Result<()> {
        let Some(waiting) = self.waiting.remove(folder) else { return Ok(()) };
        self.folders_bytes -= folder.len();
        self.memory -= waiting.bytes;
        self.waiting_bytes -= waiting.bytes;
        for batch in &waiting.batches {
            self.with_file(folder, ready, |file, _| file.write(batch))?;
        }
        Ok(())
    }

    fn write_encoded(&mut self, batch: &Batch, ready: &mut Vec<Batch>) -> Result<()> {
        let expected = match self.options.format {
            FileFormat::JsonLines => Some(Encoding::JsonLines),
            FileFormat::Raw => Some(Encoding::Raw),
            _ => None,
        };
        // JSON lines are lines too.
        let raw = self.options.format == FileFormat::Raw && batch.encoding == Encoding::JsonLines;
        if self.options.folder.is_some() || !(raw || expected == Some(batch.encoding)) {
            let message = format!("rows in `{}` for files in `{}`", batch.encoding, self.options.format.as_str());
            return Err(ColumnsError::internal(message));
        }
        if batch.rows == 0 && batch.bytes.is_empty() {
            return Ok(());
        }
        if batch.bytes.len() <= self.step_bytes() {
            self.with_file(&"".into(), ready, |file, ready| file.pass(&batch.bytes, batch.rows, ready))?;
            return self.relieve(ready);
        }
        let mut rest = batch.bytes.clone();
        while !rest.is_empty() {
            let last = rest.len().min(self.step_bytes()) - 1;
            let end = memchr::memchr(b'\n', &rest[last..]).map_or(rest.len(), |newline| last + newline + 1);
            let step = rest.split_to(end);
            let rows = memchr::memchr_iter(b'\n', &step).count() as u64;
            self.with_file(&"".into(), ready, |file, ready| file.pass(&step, rows, ready))?;
            self.relieve(ready)?;
        }
        Ok(())
    }

    fn step_bytes(&self) -> usize {
        usize::try_from(self.options.roll_bytes / STEP_OF_FILE).unwrap_or(usize::MAX).max(1)
    }

    /// Uses the file of a folder, opened if need be, and ends it when it is large enough.
    fn with_file(
        &mut self,
        folder: &Arc<str>,
        ready: &mut Vec<Batch>,
        call: impl FnOnce(&mut OpenFile, &mut Vec<Batch>) -> Result<()>,
    ) -> Result<()> {
        if !self.open.contains_key(folder) {
            if self.open.len() >= self.options.max_open_files {
                self.end_least_recent(ready)?;
            }
            self.begin(folder)?;
        }
        let Some(open) = self.open.get_mut(folder) else {
            return Err(ColumnsError::internal("a file that is not open"));
        };
        self.uses += 1;
        open.used = self.uses;
        call(&mut open.file, ready)?;
        open.file.hand_out_if_much(ready);
        let full = open.file.encoded_bytes() >= self.options.roll_bytes;
        if full {
            return self.end(folder, ready);
        }
        self.weigh(folder);
        Ok(())
    }

    fn begin(&mut self, folder: &Arc<str>) -> Result<()> {
        self.folders_bytes = self.folders_bytes.saturating_add(folder.len());
        self.check_room()?;
        let file =
            OpenFile::new(&self.options, self.schema.as_ref(), self.next, folder.clone(), self.extension.clone())?;
        self.next += 1;
        self.open.insert(folder.clone(), Open { file, used: self.uses, memory: 0 });
        Ok(())
    }

    /// Whether there may be one more file.
    fn check_room(&self) -> Result<()> {
        if self.files() < MAX_FILES as usize && self.folders_bytes <= MAX_FOLDERS_BYTES {
            return Ok(());
        }
        let folders = self.options.folder.as_ref().map(|template| format!(" (folder `{template}`)"));
        let message = format!(
            "one epoch of one subtask would have more than {} files{}: choose columns with fewer values for folders, more \
             open files, a larger roll size, or a shorter checkpoint interval",
            self.files(),
            folders.unwrap_or_default()
        );
        Err(ColumnsError::new(ColumnsErrorKind::TooManyFiles, message))
    }

    fn end(&mut self, folder: &Arc<str>, ready: &mut Vec<Batch>) -> Result<()> {
        let Some(open) = self.open.remove(folder) else { return Ok(()) };
        self.memory -= open.memory;
        open.file.end(ready)
    }

    fn end_least_recent(&mut self, ready: &mut Vec<Batch>) -> Result<()> {
        let oldest = self.open.iter().min_by_key(|(_, open)| open.used).map(|(folder, _)| folder.clone());
        match oldest {
            Some(folder) => self.end(&folder, ready),
            None => Ok(()),
        }
    }

    fn weigh(&mut self, folder: &Arc<str>) {
        if let Some(open) = self.open.get_mut(folder) {
            self.memory -= open.memory;
            open.memory = open.file.relievable() + open.file.held();
            self.memory += open.memory;
        }
    }

    /// Keeps memory below its bound: hands out what can be, the most first; then ends files.
    fn relieve(&mut self, ready: &mut Vec<Batch>) -> Result<()> {
        while self.memory > self.options.memory_bytes {
            let (open, relievable) = self
                .open
                .iter()
                .map(|(folder, open)| (folder, open.file.relievable(), open.file.number))
                .max_by_key(|(_, bytes, number)| (*bytes, Reverse(*number)))
                .map_or((None, 0), |(folder, bytes, _)| (Some(folder.clone()), bytes));
            let waiting = self
                .waiting
                .iter()
                .max_by_key(|(_, waiting)| (waiting.bytes, Reverse(waiting.since)))
                .map(|(folder, _)| folder.clone());
            match (open, waiting) {
                (_, Some(folder)) if relievable == 0 || self.waiting_bytes > self.options.memory_bytes / 2 => {
                    self.write_waiting(&folder, ready)?;
                }
                (Some(folder), _) if relievable > 0 => {
                    if let Some(open) = self.open.get_mut(&folder) {
                        open.file.relieve(ready)?;
                    }
                    self.weigh(&folder);
                }
                _ if self.open.len() > 1 => self.end_least_recent(ready)?,
                // One file with its compressor is the least there can be.
                _ => break,
            }
        }
        Ok(())
    }
}

/// A record of one empty field is an empty line, which is none; so NULL is written like the empty text.
fn check_csv(schema: &SchemaRef) -> Result<()> {
    let text = |kind: &DataType| kind.is_string() || kind.is_binary();
    match schema.fields().iter().as_slice() {
        [only] if only.is_nullable() && text(only.data_type()) => Err(ColumnsError::bad_schema(format!(
            "a CSV of the one column `{}` cannot tell NULL from an empty text; declare it NOT NULL, add a column, or write \
             json-lines",
            only.name()
        ))),
        _ => Ok(()),
    }
}

/// Whether rows of two sources, each with its name, can be in the same files.
///
/// # Errors
/// `BadSchema`: their columns differ; names both.
pub fn check_same_columns((one, columns): (&str, &Schema), (other, others): (&str, &Schema)) -> Result<()> {
    if columns == others {
        return Ok(());
    }
    Err(ColumnsError::bad_schema(format!(
        "the rows of the sources `{one}` and `{other}` have different columns ({columns}; {others}), and a file has only \
         one list of columns; declare the same `schema` for both, or give each its own sink"
    )))
}

fn not_copied(error: arrow_schema::ArrowError) -> ColumnsError {
    ColumnsError::internal(format!("rows of a folder could not be put aside: {error}"))
}
