//! Parquet files, found by patterns as [`files`](super::files) finds them. Each file is a partition, its position is a
//! row number. Rows are had as columns only.
//!
//! - **Files do not change.** Parquet is written once, with its footer at the end, and never appended to: a file of which
//!   rows were read has to be the same afterwards, finished or not. It is the same by its size, its footer, and 4 KiB at
//!   its start and before the footer; content is never read whole to find out. A file of which nothing was read may be
//!   replaced. What was read to its end is looked at in the same way when a pipeline is run again.
//! - **The name is the identity**, and a file has one. A new file that is the same as one that was read and is gone is
//!   refused: it was renamed, and its rows would be read twice. A file may go when it is finished.
//! - **Files are looked at first.** One that is cut short stops the source before the first row; so does, among the first
//!   10,000 that are not finished, one that is damaged in its footer, or whose columns do not fit. Behind these it does
//!   when its turn comes, so that a directory of very many small files starts in seconds.
//! - **Columns are found by name** and brought to the source's schema where no value changes. A row with a value that
//!   does not fit is a bad row, known by its number, from 1. Columns that are dropped are not read.

mod partition;
mod position;
mod sample;

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_columns::Schema;
use tidegate_protocol::plugin::Encoding;
use tidegate_protocol::record::SourceCut;

use self::partition::{OpenPartition, Partition, Settings};
use self::position::{Absent, Position};
use super::files::deal::{self, Compare, Waiting};
use super::files::reader::FilesReader;
use super::files::{FilesOptions, discover};
use super::rate::{self, RateLimiter};
use super::{ColumnsPlan, Reader, Source, SourceContract, SourceError};

/// Files whose columns are looked at before the first row.
const LOOKED_AT_FIRST: usize = 10_000;

/// Which files, and how fast to read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParquetOptions {
    /// Relative patterns and partition names count from here: the pipeline file's directory.
    pub base: PathBuf,
    /// Paths, with `*`, `?`, `[…]`, `{a,b}` and, for any number of directories, `**`.
    pub paths: Vec<String>,
    /// Rows per second over all tasks.
    pub rate: Option<u64>,
    /// Files whose rows may share a batch.
    pub files_per_batch: usize,
}

impl ParquetOptions {
    /// Options with defaults.
    pub fn new(base: impl Into<PathBuf>, paths: Vec<String>) -> Self {
        Self { base: base.into(), paths, rate: None, files_per_batch: FilesOptions::FILES_PER_BATCH }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct ParquetSource {
    options: ParquetOptions,
}

impl ParquetSource {
    /// Checks the options; looks at no file.
    ///
    /// # Errors
    /// An option is out of range; the message names the key.
    pub fn new(options: ParquetOptions) -> Result<Self, SourceError> {
        rate::check(options.rate)?;
        Ok(Self { options })
    }

    /// The partitions that are there now, sorted; for choosing the number of tasks. Blocking.
    ///
    /// # Errors
    /// A pattern matches nothing, or a directory cannot be read.
    pub fn partitions(&self) -> Result<Vec<String>, SourceError> {
        Ok(discover::discover(&self.options.base, &self.options.paths)?.into_keys().collect())
    }
}

/// Compares files with a checkpoint.
struct Checks<'a> {
    settings: &'a Settings,
    /// Of how many more files to look at the columns.
    looks: usize,
    absent: Absent,
}

impl Compare for Checks<'_> {
    type Position = Position;
    type File = Partition;

    fn parse(&self, name: &str, text: &str) -> Result<Position, SourceError> {
        Position::parse(name, text)
    }

    fn find(&mut self, name: &str, path: PathBuf, restored: Option<Position>) -> Result<Partition, SourceError> {
        let unfinished = restored.as_ref().is_none_or(|position| !position.done);
        let look = unfinished && self.looks > 0;
        self.looks -= usize::from(look);
        Partition::find(name, path, restored, look.then_some(self.settings))
    }

    fn gone(&mut self, name: &str, position: Position) -> Result<(), SourceError> {
        let Position { row, done, .. } = position;
        self.absent.add(name, position);
        if done { Ok(()) } else { Err(SourceError::Missing { partition: name.to_owned(), unit: "row", last: row }) }
    }

    fn refuse_renamed(&self, new: &Partition) -> Result<(), SourceError> {
        self.absent.refuse(new.name(), &new.position)
    }
}

impl Source for ParquetSource {
    fn contract(&self) -> SourceContract {
        SourceContract {
            replayable: true,
            bounded: true,
            // What its rows are written as once they are columns.
            encodings: vec![Encoding::JsonLines],
            describe: format!("files: {} as parquet", self.options.paths.join(", ")),
        }
    }

    /// Rows of Parquet files are had as columns only.
    fn open(
        &self,
        encoding: Encoding,
        _restored: Option<&SourceCut>,
        _tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let expected = format!(
            "rows of Parquet files are columns and not {encoding} ({}); they have to travel as columns",
            self.contract().describe
        );
        Err(SourceError::Configuration { key: "format", expected })
    }

    fn has_columns(&self) -> bool {
        true
    }

    fn sample_schema(&self) -> Result<Schema, SourceError> {
        sample::schema(&discover::discover(&self.options.base, &self.options.paths)?)
    }

    fn open_columns(
        &self,
        plan: &ColumnsPlan,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let settings = Settings::new(plan);
        let found = discover::discover(&self.options.base, &self.options.paths)?;
        let checks = Checks { settings: &settings, looks: LOOKED_AT_FIRST, absent: Absent::default() };
        let share = deal::compare(found, restored, checks)?;
        let limiter = self.options.rate.map(|rate| Arc::new(RateLimiter::new(rate)));
        let files = self.options.files_per_batch.max(1);
        let reader = |share| FilesReader::<OpenPartition>::new(share, settings.clone(), limiter.clone(), files);
        let boxed = |share| Box::new(reader(share)) as Box<dyn Reader>;
        Ok(deal::deal(share, tasks).into_iter().map(boxed).collect())
    }
}
