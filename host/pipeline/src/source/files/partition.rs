//! One file being read.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use super::deal::Waiting;
use super::position::{Identity, Position, open_file, read_tail};
use super::reader::{OpenFile, Step};
use crate::source::input::{Compression, Input};
use crate::source::rows::{Format, Rows, RowsError};
use crate::source::window::{Window, digest};
use crate::source::{HandOut, SourceError, csv};

/// How files are read; the same for all of a source.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) format: Format,
    pub(super) compression: Compression,
    pub(super) hand_out: HandOut,
    pub(super) longest: usize,
}

/// A file and where to go on in it. Cheap; the file is not open.
#[derive(Debug, Clone)]
pub(super) struct Partition {
    pub(super) name: Arc<str>,
    pub(super) path: PathBuf,
    pub(super) position: Position,
}

impl Partition {
    /// Looks at the file and at what the checkpoint says of it.
    pub(super) fn find(
        name: &str,
        path: PathBuf,
        restored: Option<Position>,
        compression: Compression,
    ) -> Result<Self, SourceError> {
        let (file, identity, _) = identify(name, &path, compression)?;
        let position = match restored {
            Some(position) => position.check(name, &file, &identity)?,
            None => Position::start(&identity),
        };
        Ok(Self { name: name.into(), path, position })
    }

    pub(super) fn io(&self, error: io::Error) -> SourceError {
        SourceError::Io { path: self.path.clone(), error }
    }
}

impl Waiting for Partition {
    fn name(&self) -> &str {
        &self.name
    }

    fn position(&self) -> String {
        self.position.to_json()
    }

    fn left(&self) -> u64 {
        match &self.position {
            position if position.done => 0,
            // The offset of a compressed file counts other bytes; near enough.
            position => position.size.saturating_sub(position.offset).max(1),
        }
    }
}

/// Opens a file, looks at its start and tells its compression.
pub(super) fn identify(
    name: &str,
    path: &std::path::Path,
    compression: Compression,
) -> Result<(File, Identity, Compression), SourceError> {
    let io = |error| SourceError::Io { path: path.to_owned(), error };
    let (file, _) = open_file(path).map_err(io)?;
    let mut identity = Identity::of(&file).map_err(io)?;
    let by_content = Compression::of(&identity.head);
    let by_name = match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz" | "gzip") => Compression::Gzip,
        Some("zst" | "zstd") => Compression::Zstd,
        _ => Compression::None,
    };
    let told = match compression {
        Compression::Auto if by_content == Compression::None => by_name,
        Compression::Auto => by_content,
        told => told,
    };
    if told != Compression::None && told != by_content {
        // Also an empty file: neither format has one.
        if identity.size < 4 {
            return Err(SourceError::Truncated { partition: name.to_owned(), format: told.name(), lines: 0 });
        }
        let expected = format!(
            "expected {}, but the file does not begin like it; set `compression` to what it is (`none`, `gzip`, \
             `zstd`), or rename it",
            told.name()
        );
        return Err(SourceError::Malformed { partition: name.to_owned(), line: None, expected });
    }
    identity.compressed = told != Compression::None;
    Ok((file, identity, told))
}

/// An open file.
pub(super) struct OpenPartition {
    partition: Partition,
    compression: Compression,
    /// The file's first bytes.
    head: Vec<u8>,
    rows: Rows,
    /// Shares its offset with the file that `rows` reads: tells how much of a compressed file was read.
    file: File,
    /// Content that was read at the checkpoint and is to be passed over.
    skip_to: Option<u64>,
    /// The last line read had no newline; it has to come before anything else.
    line_end_due: bool,
}

impl OpenFile for OpenPartition {
    type Waiting = Partition;
    type Settings = Settings;

    fn open(mut partition: Partition, settings: &Settings) -> Result<Self, SourceError> {
        let (mut file, identity, compression) = identify(&partition.name, &partition.path, settings.compression)?;
        // The file may have been replaced since it was found.
        partition.position = partition.position.clone().check(&partition.name, &file, &identity)?;
        let start = partition.position.offset;
        let seek = compression == Compression::None && start > 0;
        let header = if start > 0 { read_header(&partition, compression, settings)? } else { None };
        let tail = if seek {
            let tail = read_tail(&file, start).map_err(|error| partition.io(error))?;
            file.seek(SeekFrom::Start(start)).map_err(|error| partition.io(error))?;
            tail
        } else {
            Vec::new()
        };
        let shared = file.try_clone().map_err(|error| partition.io(error))?;
        let input = Input::new(file, compression).map_err(|error| partition.io(error))?;
        let window = if seek { Window::at(input, start, partition.position.line, tail) } else { Window::new(input) };
        let name = partition.name.clone();
        let rows = Rows::new(window, name, &settings.format, &settings.hand_out, settings.longest, header.as_deref())
            .map_err(|error| explain(&partition, compression, 0, error))?;
        let skip_to = (start > 0 && !seek).then_some(start);
        let line_end_due = partition.position.open_end;
        Ok(Self { partition, compression, head: identity.head, rows, file: shared, skip_to, line_end_due })
    }

    fn name(&self) -> &str {
        &self.partition.name
    }

    fn position(&self) -> String {
        self.partition.position.to_json()
    }

    fn done(&self) -> bool {
        self.partition.position.done
    }

    fn step(&mut self, most_bytes: usize, most_rows: u64) -> Result<Step, SourceError> {
        if let Some(offset) = self.skip_to {
            let there = self.rows.window_mut().skip_towards(offset).map_err(|error| self.explain(error.into()))?;
            if !there {
                return Ok(Step::Skipping);
            }
            self.check_skipped()?;
            self.skip_to = None;
        }
        if self.line_end_due {
            // The row in front of it was handed out already.
            let there = self.rows.window_mut().take_line_end().map_err(|error| self.explain(error.into()))?;
            if !there {
                return Err(self.partition.position.grew_in_line(&self.partition.name));
            }
            self.line_end_due = false;
        }
        let taken = self.rows.next(most_bytes, most_rows).map_err(|error| self.explain(error))?;
        self.advance()?;
        Ok(taken.map_or(Step::Done, Step::Taken))
    }
}

impl OpenPartition {
    /// The decompressed content is checked when it has been passed over.
    fn check_skipped(&mut self) -> Result<(), SourceError> {
        let position = &self.partition.position;
        let window = self.rows.window_mut();
        if !position.is_at(window) {
            let next_line = position.line.saturating_add(1);
            return Err(SourceError::Replaced { partition: self.partition.name.to_string(), next_line });
        }
        window.set_lines(position.line);
        Ok(())
    }

    fn advance(&mut self) -> Result<(), SourceError> {
        let window = self.rows.window();
        let position = &mut self.partition.position;
        position.offset = window.offset();
        position.line = window.lines();
        position.tail = digest(window.tail());
        position.checksum = window.checksum();
        position.cover_head(&self.head, self.compression != Compression::None);
        position.done = window.finished();
        position.open_end = window.open_end();
        if position.done {
            // Where reading ended, not what the size is now: what was appended in between is found by the next run.
            let end = match self.compression {
                Compression::None | Compression::Auto => Ok(position.offset),
                Compression::Gzip | Compression::Zstd => self.file.stream_position(),
            };
            let end = end.map_err(|error| SourceError::Io { path: self.partition.path.clone(), error })?;
            if end < position.size {
                let partition = self.partition.name.to_string();
                let how = format!("the file shrank from {} to {end} bytes while it was read", position.size);
                return Err(SourceError::Changed { partition, how });
            }
            position.size = end;
        }
        Ok(())
    }

    fn explain(&self, error: RowsError) -> SourceError {
        explain(&self.partition, self.compression, self.rows.window().lines(), error)
    }
}

pub(super) fn explain(partition: &Partition, compression: Compression, lines: u64, error: RowsError) -> SourceError {
    let name = partition.name.to_string();
    let compressed = compression != Compression::None;
    match error {
        RowsError::Malformed(line, expected) => SourceError::Malformed { partition: name, line: Some(line), expected },
        RowsError::Io(error) if !compressed || error.raw_os_error().is_some() => partition.io(error),
        RowsError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            SourceError::Truncated { partition: name, format: compression.name(), lines }
        }
        RowsError::Io(error) => {
            let (format, problem) = (compression.name(), error.to_string());
            SourceError::Damaged { partition: name, format, lines, problem }
        }
    }
}

/// The columns' names of a CSV file that is not read from its start.
fn read_header(
    partition: &Partition,
    compression: Compression,
    settings: &Settings,
) -> Result<Option<Vec<String>>, SourceError> {
    let Format::Csv(options) = &settings.format else { return Ok(None) };
    if !options.header {
        return Ok(None);
    }
    let read = || -> Result<Option<Vec<String>>, RowsError> {
        let mut window = Window::new(Input::new(File::open(&partition.path)?, compression)?);
        let mut records = csv::Records::new(options);
        match records.next(&mut window, settings.longest, true)? {
            (csv::Found::Record(_), count) => csv::header(records.fields(count))
                .map(Some)
                .map_err(|expected| RowsError::Malformed(window.lines() + 1, expected)),
            _ => Err(RowsError::Malformed(window.lines() + 1, "expected a header".to_owned())),
        }
    };
    read().map_err(|error| explain(partition, compression, 0, error))
}
