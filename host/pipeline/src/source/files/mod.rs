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
//!   gone (by the same first 4 KiB and last 1 KiB) is refused: it was renamed, and its rows would be read twice. So are
//!   two names for one file.
//! - **A file may go** when it is finished. Its position is kept, so that it is not read again if it comes back.
//! - **Compressed files** are read again from the start to find a position, which takes time and changes nothing. All
//!   content before it has to be what was handed out, by its checksum.
//! - **Damage in compressed files** may be found behind the rows that it made wrong, because a gzip member's or zstd
//!   frame's own checksum stands at its end, and rows do not wait for it. The error says so. An intact file goes on only
//!   if no wrong row was handed out up to the checkpoint.

mod absent;
mod discover;
mod follow;
mod gather;
mod partition;
mod position;
mod reader;
mod sample;

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_columns::Schema;
use tidegate_protocol::plugin::Encoding;
use tidegate_protocol::positions::Entries;
use tidegate_protocol::record::SourceCut;

use self::absent::Absent;
pub use self::discover::reaches;
pub use self::follow::{FollowOptions, OnLostRows};
use self::partition::{Partition, Settings};
use self::position::Position;
use self::reader::FilesReader;
pub use super::csv::CsvOptions;
pub use super::input::Compression;
use super::rate::RateLimiter;
pub use super::rows::Format;
use super::{ColumnsPlan, HandOut, Reader, Source, SourceContract, SourceError, check_encoding, no_columns};

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

/// What is there, and what was.
struct Found {
    partitions: Vec<Partition>,
    /// Positions of files that are finished and not there any more.
    gone: Vec<(String, String)>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct FilesSource {
    options: FilesOptions,
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
        if options.rate == Some(0) {
            return wrong("rate", "must be at least 1 row per second; leave it out for no limit");
        }
        if options.follow.is_some() && !matches!(options.compression, Compression::Auto | Compression::None) {
            return wrong(
                "follow",
                "does not go with `compression`: how far a compressed file is written cannot be told; follow files that \
                 are not compressed",
            );
        }
        Ok(Self { options })
    }

    /// The partitions that are there now, sorted; for choosing the number of tasks. Blocking.
    ///
    /// # Errors
    /// A pattern matches nothing, or a directory cannot be read.
    pub fn partitions(&self) -> Result<Vec<String>, SourceError> {
        Ok(discover::discover(&self.options.base, &self.options.paths)?.into_keys().collect())
    }

    /// All partitions, each checked against the checkpoint.
    fn find(&self, restored: Option<&SourceCut>) -> Result<Found, SourceError> {
        let mut found = discover::discover(&self.options.base, &self.options.paths)?;
        let mut partitions = Vec::new();
        let mut gone = Vec::new();
        let mut absent = Absent::default();
        let mut missing = None;
        let known = restored.map(|cut| cut.partitions.entries()).transpose()?;
        for (name, text) in known.iter().flat_map(Entries::iter) {
            let position = Position::parse_still(name, text)?;
            match found.remove(name) {
                Some(path) => {
                    partitions.push(Partition::find(name, path, Some(position), self.options.compression)?);
                }
                None => {
                    if position.done {
                        gone.push((name.to_owned(), text.to_owned()));
                    } else if missing.is_none() {
                        let next_line = position.line.saturating_add(1);
                        missing = Some(SourceError::Missing { partition: name.to_owned(), next_line });
                    }
                    if self.may_have_rows(&position) {
                        absent.add(name, position);
                    }
                }
            }
        }
        if restored.is_some() && !found.is_empty() {
            let names: Vec<&str> = found.keys().take(10).map(String::as_str).collect();
            tracing::info!(count = found.len(), files = ?names, "new files since the checkpoint");
        }
        for (name, path) in found {
            let partition = Partition::find(&name, path, None, self.options.compression)?;
            absent.refuse(&partition, self.options.compression)?;
            partitions.push(partition);
        }
        // Last, because saying where the file went is the better answer.
        missing.map_or(Ok(Found { partitions, gone }), Err)
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
        let Found { partitions, mut gone } = self.find(restored)?;
        Ok(deal(partitions, tasks)
            .into_iter()
            .map(|share| {
                let kept = std::mem::take(&mut gone);
                let files = self.options.files_per_batch.max(1);
                let reader = FilesReader::new(share, kept, settings.clone(), limiter.clone(), files);
                Box::new(reader) as Box<dyn Reader>
            })
            .collect())
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
        };
        follow::open(files, restored.collect::<Result<_, SourceError>>()?, tasks.max(1) as usize, limiter)
    }

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

/// Deals partitions by the bytes that are left: the largest first, each to the task with the least so far. Each task
/// reads its own in order of their names.
fn deal(mut partitions: Vec<Partition>, tasks: u32) -> Vec<Vec<Partition>> {
    let mut shares: Vec<(u64, Vec<Partition>)> = (0..tasks.max(1)).map(|_| (0, Vec::new())).collect();
    let left = |partition: &Partition| match &partition.position {
        position if position.done => 0,
        // The offset of a compressed file counts other bytes; near enough.
        position => position.size.saturating_sub(position.offset).max(1),
    };
    partitions.sort_by(|a, b| (Reverse(left(a)), &a.name).cmp(&(Reverse(left(b)), &b.name)));
    for partition in partitions {
        let least = shares.iter_mut().min_by_key(|(bytes, share)| (*bytes, share.len()));
        let (bytes, share) = least.expect("there is at least one task");
        *bytes = bytes.saturating_add(left(&partition));
        share.push(partition);
    }
    for (_, share) in &mut shares {
        share.sort_by(|a, b| a.name.cmp(&b.name));
    }
    shares.into_iter().map(|(_, share)| share).collect()
}
