//! Where rows come from.
//!
//! A [`Source`] finds its partitions and deals them to [`Reader`]s, one per source task. A reader hands out batches of
//! whole rows, each with the positions that a checkpoint needs to go on right behind it. What the driver has to keep to:
//!
//! 1. call [`Source::open`] on a thread that may block;
//! 2. take each reader's [`Reader::initial_positions`] as the task's first cut;
//! 3. call [`Reader::next`] again and again; overwrite positions by partition with what each batch brings;
//! 4. decide what happens to bad rows: a reader only reports them.

mod csv;
mod error;
pub mod files;
pub mod generate;
mod header;
mod input;
pub mod json;
pub mod key;
pub(crate) mod known;
pub mod parquet;
pub mod rate;
mod rows;
pub mod stdin;
mod window;

pub use error::SourceError;

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidegate_columns::Schema;
use tidegate_columns::decode::UnknownFields;
use tidegate_protocol::plugin::{BoxFuture, Encoding};
use tidegate_protocol::record::SourceCut;

use self::header::Header;
use crate::spec::ColumnsOptions;

/// Longest piece of a bad row that is kept, in bytes.
pub const BAD_ROW_CLIP: usize = 64 * 1024;

/// What a source promises. The guarantee is computed from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceContract {
    /// It can go back to any position of a retained checkpoint and gives the same rows again.
    pub replayable: bool,
    /// It ends by itself.
    pub bounded: bool,
    /// Encodings it can hand out, best first. Never empty.
    pub encodings: Vec<Encoding>,
    /// One line for people: kind and what it reads.
    pub describe: String,
}

/// Rows of one origin, in partitions.
pub trait Source: Send + Sync {
    /// What it promises; known without opening it.
    fn contract(&self) -> SourceContract;

    /// Discovers partitions, checks restored positions and deals the partitions to `tasks` readers (at least 1; exactly
    /// as many readers come back, some perhaps with nothing to do). Blocking.
    ///
    /// # Errors
    /// Nothing is there, what is there is not what was there at the checkpoint, or it cannot be read. The message names
    /// file or partition.
    fn open(
        &self,
        encoding: Encoding,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError>;

    /// Whether its rows can be handed out as columns.
    fn has_columns(&self) -> bool {
        false
    }

    /// The columns that its rows seem to have, from a sample of what is there. Blocking.
    ///
    /// # Errors
    /// Nothing is there to look at, or rows differ; the message says what to declare.
    fn sample_schema(&self) -> Result<Schema, SourceError> {
        Err(no_columns(&self.contract()))
    }

    /// [`Source::open`], for rows as columns: batches have [`SourceBatch::columns`]. A row that does not have the schema
    /// is a bad row.
    ///
    /// # Errors
    /// As for [`Source::open`].
    fn open_columns(
        &self,
        plan: &ColumnsPlan,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let _ = (plan, restored, tasks);
        Err(no_columns(&self.contract()))
    }

    /// Every sink has committed up to here: progress may be published outside (consumer-group offsets, acks). Returns
    /// at once.
    fn committed(&self, cut: &SourceCut) {
        let _ = cut;
    }
}

/// How rows become columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnsPlan {
    /// Their columns.
    pub schema: Schema,
    /// What a field that is not among them amounts to.
    pub unknown: UnknownFields,
    /// Nobody said what the columns are: a text is no number where it would not come out as it is written.
    pub inferred: bool,
}

impl ColumnsPlan {
    /// For the columns found by [`crate::spec::find_schema`].
    pub fn new(schema: Schema, options: &ColumnsOptions) -> Self {
        Self { schema, unknown: options.unknown, inferred: options.declared.is_none() }
    }
}

/// How a reader hands out rows.
#[derive(Debug, Clone)]
enum HandOut {
    /// As bytes.
    Encoded(Encoding),
    /// As the records of CSV files, without a header.
    Records(Arc<Header>),
    /// As columns.
    Columns(ColumnsPlan),
}

/// One source task's share of a source.
pub trait Reader: Send {
    /// The next rows: about `max_bytes` at most, more only if a single row is longer, at least one row whatever
    /// `max_bytes` says. Answers [`Read::Idle`] within about 50 ms when nothing comes. After [`Read::End`] it answers
    /// `End` again. Dropping the future loses no rows: the next call goes on with what was begun.
    fn next<'a>(&'a mut self, max_bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>>;

    /// Where this task's partitions stand before the first row: restored positions, and those of new partitions.
    /// Partitions that are finished and gone are among them, so that no checkpoint forgets them.
    fn initial_positions(&self) -> Vec<(String, String)>;

    /// The names of the columns that its rows have and do not tell, as soon as they are known: kept in checkpoints, since
    /// the rows of later runs have to have the same ones.
    fn header(&self) -> Option<&[String]> {
        None
    }
}

/// An answer of [`Reader::next`].
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// Rows, bad rows, or only newer positions.
    Rows(SourceBatch),
    /// Nothing at the moment.
    Idle,
    /// All partitions are at their end and no further ones come in this run.
    End,
}

/// Whole rows and where they end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceBatch {
    /// The rows in the encoding that was asked for. Every row ends with a newline. May be empty.
    pub bytes: Bytes,
    /// The rows as columns, where those were asked for; then there are no bytes.
    pub columns: Option<RecordBatch>,
    /// How many rows.
    pub rows: u64,
    /// Rows that could not be read; not among `rows`. At most a few hundred.
    pub bad: Vec<BadRow>,
    /// New positions, (partition, JSON), of every partition that moved, behind both rows and bad rows.
    pub positions: Vec<(String, String)>,
    /// Low watermark in Unix milliseconds of event time.
    pub watermark: Option<i64>,
}

/// A row that could not be read. Displays as partition, line and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Which partition, for files the file's name.
    pub partition: String,
    /// Its first line within the partition, from 1.
    pub line: u64,
    /// What was expected.
    pub reason: String,
    /// Its bytes without the newline, the first [`BAD_ROW_CLIP`] of them.
    pub raw: Bytes,
    /// How many bytes it has in all.
    pub raw_len: u64,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}: {}", self.partition, self.line, self.reason)
    }
}

fn no_columns(contract: &SourceContract) -> SourceError {
    let expected = format!("this source has no typed rows ({}); leave out what needs columns", contract.describe);
    SourceError::Configuration { key: "schema", expected }
}

/// Refuses an encoding that the source did not offer.
fn check_encoding(contract: &SourceContract, encoding: Encoding) -> Result<(), SourceError> {
    if contract.encodings.contains(&encoding) {
        return Ok(());
    }
    let expected = format!(
        "this source cannot hand out {encoding}; it offers {} ({})",
        Encoding::names(&contract.encodings),
        contract.describe
    );
    Err(SourceError::Configuration { key: "format", expected })
}
