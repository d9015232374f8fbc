//! Files, found by patterns. Each file is a partition.
//!
//! - **Finished is not for ever.** A finished pipeline run again reads new files that match, and rows appended to
//!   files it has read. Where the old last line had no newline, what is appended has to begin with one; anything else
//!   would belong to a row that was handed on already, and such a file is refused.
//! - **A file is the same file** if it has not shrunk, and of what was read of it the first 4 KiB and the last 1 KiB are
//!   the same. Content is never read whole to find out. What lies behind the position may be corrected; a file of which
//!   nothing was read may be replaced. A compressed file's first 4 KiB count as they are, wherever its position. The
//!   inode does not count: files restored from a backup go on.
//! - **The name is the identity**, and a file has one. A new file that begins with all that was read of a file that is
//!   gone (by the same first 4 KiB and last 1 KiB) is refused: it was renamed, and its rows would be read twice. So is
//!   one that was packed since, whatever it is called, and one that was unpacked or packed in another way under the name
//!   that it had but for the ending; and two names for one file.
//! - **A file may go** when it is finished. Its position is kept, so that it is not read again if it comes back.
//! - **Compressed files** are read again from the start to find a position, which takes time and changes nothing. All
//!   content before it has to be what was handed out, by its checksum.
//! - **Damage in compressed files** may be found behind the rows that it made wrong, because a gzip member's or zstd
//!   frame's own checksum stands at its end, and rows do not wait for it. The error says so. An intact file goes on only
//!   if no wrong row was handed out up to the checkpoint.

mod absent;
pub(super) mod deal;
pub(super) mod discover;
mod follow;
mod gather;
mod partition;
pub(super) mod position;
pub(super) mod reader;
mod sample;

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_columns::Schema;
use tidegate_protocol::plugin::Encoding;
use tidegate_protocol::positions::Entries;
use tidegate_protocol::record::SourceCut;

use self::absent::Absent;
use self::deal::Compare;
pub use self::discover::{matches_file, reaches};
pub use self::follow::{FollowOptions, Moment, Moments, OnLostRows};
use self::partition::{OpenPartition, Partition, Settings};
use self::position::Position;
use self::reader::FilesReader;
pub use super::csv::CsvOptions;
use super::header::Header;
pub use super::input::Compression;
use super::rate::RateLimiter;
pub use super::rows::Format;
use super::{ColumnsPlan, HandOut, Reader, Source, SourceContract, SourceError, check_encoding, no_columns, rate};

/// Which files, and how to read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesOptions {
    /// Relative patterns and partition names count from here: the pipeline file's directory.
    pub base: PathBuf,
    /// Paths, with `*`, `?`, `[…]`, `{a,b}` and, for any number of directories, `**`.
    pub paths: Vec<String>,
    /// How rows are written.
    pub format: Format,
    /// How files are compressed.
    pub compression: Compression,
    /// Longest line, or CSV record, in bytes without its newline.
    pub max_line: usize,
    /// Rows per second over all tasks.
    pub rate: Option<u64>,
    /// Files whose rows may share a batch.
    pub files_per_batch: usize,
    /// Reads files as they grow and appear, without an end.
    pub follow: Option<FollowOptions>,
}

impl FilesOptions {
    /// Default length limit of a line: 1 MiB.
    pub const MAX_LINE: usize = 1 << 20;

    /// Default number of files that may share a batch.
    pub const FILES_PER_BATCH: usize = 256;

    /// Options with defaults.
    pub fn new(base: impl Into<PathBuf>, paths: Vec<String>, format: Format) -> Self {
        let compression = Compression::Auto;
        Self {
            base: base.into(),
            paths,
            format,
            compression,
            max_line: Self::MAX_LINE,
            rate: None,
            files_per_batch: Self::FILES_PER_BATCH,
            follow: None,
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct FilesSource {
    options: FilesOptions,
    moments: Moments,
}

impl FilesSource {
    /// Checks the options; looks at no file.
    ///
    /// # Errors
    /// An option is out of range; the message names the key.
    pub fn new(options: FilesOptions) -> Result<Self, SourceError> {
        let wrong = |key, expected: &str| Err(SourceError::Configuration { key, expected: expected.to_owned() });
        if let Format::Csv(csv) = &options.format {
            csv.check()?;
        }
        if options.max_line == 0 || options.max_line > 1 << 30 {
            return wrong("max-line", "must be from 1 byte to 1 GiB");
        }
        rate::check(options.rate)?;
        if options.follow.is_some() && !matches!(options.compression, Compression::Auto | Compression::None) {
            return wrong(
                "follow",
                "does not go with `compression`: how far a compressed file is written cannot be told; follow files that \
                 are not compressed",
            );
        }
        Ok(Self { options, moments: Moments::default() })
    }

    /// Tells of what is about to be done at followed files.
    #[must_use]
    pub fn telling(mut self, moments: Moments) -> Self {
        self.moments = moments;
        self
    }

    /// The partitions that are there now, sorted; for choosing the number of tasks. Blocking.
    ///
    /// # Errors
    /// A pattern matches nothing, or a directory cannot be read.
    pub fn partitions(&self) -> Result<Vec<String>, SourceError> {
        Ok(discover::discover(&self.options.base, &self.options.paths)?.into_keys().collect())
    }

    fn settings(&self, hand_out: HandOut) -> Settings {
        Settings {
            format: self.options.format.clone(),
            compression: self.options.compression,
            hand_out,
            longest: self.options.max_line,
        }
    }

    fn open_as(
        &self,
        hand_out: HandOut,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let settings = self.settings(hand_out);
        let limiter = self.options.rate.map(|rate| Arc::new(RateLimiter::new(rate)));
        if let Some(options) = self.options.follow {
            return self.follow(options, settings, restored, tasks, limiter);
        }
        let found = discover::discover(&self.options.base, &self.options.paths)?;
        let share = deal::compare(found, restored, Checks { options: &self.options, absent: Absent::default() })?;
        let files = self.options.files_per_batch.max(1);
        let reader = |share| FilesReader::<OpenPartition>::new(share, settings.clone(), limiter.clone(), files);
        let boxed = |share| Box::new(reader(share)) as Box<dyn Reader>;
        Ok(deal::deal(share, tasks).into_iter().map(boxed).collect())
    }

    fn follow(
        &self,
        options: FollowOptions,
        settings: Settings,
        restored: Option<&SourceCut>,
        tasks: u32,
        limiter: Option<Arc<RateLimiter>>,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let known = restored.map(|cut| cut.partitions.entries()).transpose()?;
        let restored = known.iter().flat_map(Entries::iter);
        let restored = restored.map(|(name, text)| Ok((name.to_owned(), Position::parse(name, text)?)));
        let files = follow::Files {
            base: discover::base(&self.options.base)?,
            paths: self.options.paths.clone(),
            settings,
            options,
            per_batch: self.options.files_per_batch.max(1),
            moments: self.moments.clone(),
        };
        follow::open(files, restored.collect::<Result<_, SourceError>>()?, tasks.max(1) as usize, limiter)
    }
}

/// Compares files with a checkpoint.
struct Checks<'a> {
    options: &'a FilesOptions,
    absent: Absent,
}

impl Compare for Checks<'_> {
    type Position = Position;
    type File = Partition;

    fn parse(&self, name: &str, text: &str) -> Result<Position, SourceError> {
        Position::parse_still(name, text)
    }

    fn find(&mut self, name: &str, path: PathBuf, restored: Option<Position>) -> Result<Partition, SourceError> {
        Partition::find(name, path, restored, self.options.compression)
    }

    fn gone(&mut self, name: &str, position: Position) -> Result<(), SourceError> {
        let missing = SourceError::Missing { partition: name.to_owned(), unit: "line", last: position.line };
        let done = position.done;
        if self.may_have_rows(&position) {
            self.absent.add(name, position);
        }
        if done { Ok(()) } else { Err(missing) }
    }

    fn refuse_renamed(&self, new: &Partition) -> Result<(), SourceError> {
        self.absent.refuse(new, self.options.compression)
    }
}

impl Checks<'_> {
    /// Whether rows can have been read up to there. Not in a CSV file with a header alone: a day without data looks like
    /// any other.
    fn may_have_rows(&self, position: &Position) -> bool {
        match &self.options.format {
            Format::Csv(csv) if csv.header => position.line > 1,
            _ => position.line > 0,
        }
    }
}

impl Source for FilesSource {
    fn contract(&self) -> SourceContract {
        let FilesOptions { paths, format, follow, .. } = &self.options;
        SourceContract {
            replayable: true,
            bounded: follow.is_none(),
            encodings: format.encodings(),
            describe: format!(
                "files: {} as {}{}",
                paths.join(", "),
                format.name(),
                if follow.is_some() { ", followed" } else { "" }
            ),
        }
    }

    fn open(
        &self,
        encoding: Encoding,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        check_encoding(&self.contract(), encoding)?;
        if let (Format::Csv(csv), Encoding::Csv) = (&self.options.format, encoding) {
            let header = Header::restored(csv, restored)?;
            let readers = self.open_as(HandOut::Records(Arc::clone(&header)), restored, tasks)?;
            return Ok(header.told_by(readers));
        }
        self.open_as(HandOut::Encoded(encoding), restored, tasks)
    }

    fn has_columns(&self) -> bool {
        self.options.format.has_columns()
    }

    fn sample_schema(&self) -> Result<Schema, SourceError> {
        if !self.has_columns() {
            return Err(no_columns(&self.contract()));
        }
        let files = match self.options.follow {
            // There may be none yet.
            Some(_) => discover::discover(&self.options.base, &self.options.paths).unwrap_or_default(),
            None => discover::discover(&self.options.base, &self.options.paths)?,
        };
        sample::schema(files, &self.settings(HandOut::Encoded(Encoding::JsonLines)))
    }

    fn open_columns(
        &self,
        plan: &ColumnsPlan,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        if !self.has_columns() {
            return Err(no_columns(&self.contract()));
        }
        self.open_as(HandOut::Columns(plan.clone()), restored, tasks)
    }
}
