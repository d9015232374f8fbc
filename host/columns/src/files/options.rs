//! What files are written, and within which bounds.

use crate::files::folder::FolderTemplate;
use crate::{ColumnsError, Result};

/// Files per participant that are open at once, unless said otherwise.
pub const DEFAULT_OPEN_FILES: usize = 64;
/// Size at which a file is ended, unless said otherwise.
pub const DEFAULT_ROLL_BYTES: u64 = 128 << 20;
/// Memory of all open files of a sink, unless said otherwise.
pub const DEFAULT_MEMORY_BYTES: usize = 32 << 20;
/// The least of it that one of several participants gets.
const LEAST_MEMORY_BYTES: usize = 8 << 20;

const MAX_ZSTD_LEVEL: i32 = 22;

/// How rows are laid out in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileFormat {
    /// One JSON object per line.
    JsonLines,
    /// RFC 4180 with a header line.
    Csv,
    /// Opaque records, each followed by a newline; typed rows are JSON lines there.
    Raw,
    /// Apache Parquet.
    Parquet,
    /// An Arrow IPC file, also known as Feather 2.
    Arrow,
    /// An Arrow IPC stream.
    ArrowStream,
}

impl FileFormat {
    /// Its name in pipeline files.
    pub fn as_str(self) -> &'static str {
        match self {
            FileFormat::JsonLines => "json-lines",
            FileFormat::Csv => "csv",
            FileFormat::Raw => "raw",
            FileFormat::Parquet => "parquet",
            FileFormat::Arrow => "arrow",
            FileFormat::ArrowStream => "arrow-stream",
        }
    }

    fn extension(self) -> &'static str {
        match self {
            FileFormat::JsonLines => "jsonl",
            FileFormat::Csv => "csv",
            FileFormat::Raw => "txt",
            FileFormat::Parquet => "parquet",
            FileFormat::Arrow => "arrow",
            FileFormat::ArrowStream => "arrows",
        }
    }
}

/// How files, or the pages of a Parquet file, are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// Gzip, or deflate in Parquet; levels 0 to 9, normally 6.
    Gzip(Option<u32>),
    /// Zstandard; levels 1 to 22, normally 3, in Parquet 1.
    Zstd(Option<i32>),
    /// Snappy; in Parquet only.
    Snappy,
}

impl Compression {
    /// From the words of a pipeline file.
    ///
    /// # Errors
    /// `BadOption`: the name is not known, or has no such level.
    pub fn parse(name: &str, level: Option<i32>) -> Result<Compression> {
        let no_level = |compression, name: &str| match level {
            None => Ok(compression),
            Some(_) => {
                Err(ColumnsError::bad_option(format!("compression `{name}` has no levels; leave out the level")))
            }
        };
        match name {
            "none" => no_level(Compression::None, name),
            "snappy" => no_level(Compression::Snappy, name),
            "gzip" => match level.map(u32::try_from) {
                None => Ok(Compression::Gzip(None)),
                Some(Ok(level @ 0..=9)) => Ok(Compression::Gzip(Some(level))),
                Some(_) => Err(bad_level(name, level, "0 to 9")),
            },
            "zstd" => match level {
                None => Ok(Compression::Zstd(None)),
                Some(known @ 1..=MAX_ZSTD_LEVEL) => Ok(Compression::Zstd(Some(known))),
                Some(_) => Err(bad_level(name, level, "1 to 22")),
            },
            other => Err(ColumnsError::bad_option(format!(
                "compression `{other}` is not known: expected none, gzip or zstd, or for Parquet also snappy"
            ))),
        }
    }
}

fn bad_level(name: &str, level: Option<i32>, expected: &str) -> ColumnsError {
    ColumnsError::bad_option(format!("compression `{name}` has no level {}: expected {expected}", level.unwrap_or(0)))
}

/// What a [`FileWriter`](crate::files::FileWriter) writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOptions {
    /// How rows are laid out.
    pub format: FileFormat,
    /// How they are compressed; `None` = as is usual for the format: zstd in Parquet, otherwise not at all.
    pub compression: Option<Compression>,
    /// Into which folders rows go, by their values.
    pub folder: Option<FolderTemplate>,
    /// A file is ended with the rows with which it reaches this size, encoded.
    pub roll_bytes: u64,
    /// So many files are open at once. Rows for others wait while memory lasts; then the least recently used file is ended.
    pub max_open_files: usize,
    /// Bytes that all open files and waiting rows together may hold in memory.
    pub memory_bytes: usize,
}

impl FileOptions {
    /// The same for one of several participants, which share the memory.
    #[must_use]
    pub fn shared_by(mut self, participants: u32) -> Self {
        let share = self.memory_bytes / (participants.max(1) as usize);
        self.memory_bytes = share.max(self.memory_bytes.min(LEAST_MEMORY_BYTES));
        self
    }

    /// Files of a format, with the usual bounds.
    pub fn new(format: FileFormat) -> FileOptions {
        FileOptions {
            format,
            compression: None,
            folder: None,
            roll_bytes: DEFAULT_ROLL_BYTES,
            max_open_files: DEFAULT_OPEN_FILES,
            memory_bytes: DEFAULT_MEMORY_BYTES,
        }
    }

    /// The compression that counts.
    pub fn compression(&self) -> Compression {
        self.compression.unwrap_or(match self.format {
            FileFormat::Parquet => Compression::Zstd(None),
            _ => Compression::None,
        })
    }

    /// What names of these files end in, without the dot: `parquet`, `jsonl.gz`.
    pub fn extension(&self) -> String {
        let format = self.format.extension();
        match self.compression() {
            // Within the file, and not around it.
            _ if self.format == FileFormat::Parquet => format.to_owned(),
            Compression::Gzip(_) => format!("{format}.gz"),
            Compression::Zstd(_) => format!("{format}.zst"),
            Compression::None | Compression::Snappy => format.to_owned(),
        }
    }

    /// Whether the format can be written in this way at all.
    pub(crate) fn check(&self) -> Result<()> {
        let bad = |message: &str| Err(ColumnsError::bad_option(message));
        match (self.format, self.compression()) {
            (FileFormat::Arrow, compression) if compression != Compression::None => {
                return bad("files in the format `arrow` are read in place and not compressed: take compression \
                            `none`, or the format `arrow-stream` or `parquet`");
            }
            (format, Compression::Snappy) if format != FileFormat::Parquet => {
                return bad("compression `snappy` is for Parquet only: expected none, gzip or zstd");
            }
            _ => {}
        }
        if self.format == FileFormat::Raw && self.folder.is_some() {
            return bad("folders by column need columns, and `raw` rows have none");
        }
        if self.roll_bytes == 0 || self.max_open_files == 0 || self.memory_bytes == 0 {
            return bad("roll size, number of open files and memory must be more than 0");
        }
        Ok(())
    }
}
