//! Reads what is whole behind a position.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use memchr::memchr;

use super::compressed;
use super::generation::Generation;
use super::look::open_same;
use crate::source::files::partition::{Partition, Settings, explain};
use crate::source::files::position::{HEAD, Position, read_at, read_tail};
use crate::source::input::{Compression, Input};
use crate::source::rows::{Format, Rows, RowsError, Taken};
use crate::source::window::{Window, digest};
use crate::source::{SourceError, csv};

/// What is needed to open a file; taken while the registry is locked.
pub(super) struct Order {
    label: Arc<str>,
    path: PathBuf,
    position: Position,
    handle: Option<Arc<File>>,
    header: Option<Arc<[String]>>,
    dry: u64,
    /// If it is not under its path, it is searched for in its directory.
    search: bool,
}

impl Order {
    pub(super) fn of(generation: &Generation, search: bool) -> Self {
        Self {
            search,
            label: Arc::clone(&generation.label),
            path: generation.path.clone(),
            position: generation.position.clone(),
            handle: generation.handle.clone(),
            header: generation.header.clone(),
            dry: generation.dry,
        }
    }
}

/// Why nothing is read of a file now.
pub(super) enum Refusal {
    /// There is no whole row up to this size.
    Dry(u64, Arc<File>),
    /// Another file is under its path, or none.
    Elsewhere,
    /// What was read does not stand at its beginning any more.
    Changed,
    /// It may work later.
    Later(SourceError),
    /// Nothing will do.
    Never(SourceError),
}

/// A file being read.
pub(super) struct Tail {
    label: Arc<str>,
    path: PathBuf,
    pub(super) position: Position,
    pub(super) handle: Arc<File>,
    pub(super) header: Option<Arc<[String]>>,
    head: Vec<u8>,
    rows: Rows,
    /// Its size when it was checked last.
    pub(super) size: u64,
    /// Up to where the file was read when it was checked last.
    checked: u64,
}

/// What one step gave.
pub(super) enum Stepped {
    /// Rows, or at least a new position.
    Taken(Taken),
    /// No whole row is left.
    Dry,
    /// What was read before does not stand at its beginning any more, so that what was read now is something else.
    Changed,
}

impl Tail {
    pub(super) fn open(order: Order, settings: &Settings) -> Result<Self, Refusal> {
        let Order { label, path, mut position, handle, header, dry, search } = order;
        let refuse = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Refusal::Elsewhere,
            io::ErrorKind::PermissionDenied => Refusal::Later(SourceError::Io { path: path.clone(), error }),
            _ => Refusal::Never(SourceError::Io { path: path.clone(), error }),
        };
        let handle = match handle {
            Some(handle) => handle,
            None => Arc::new(open_same(&path, position.file, search).map_err(refuse)?.ok_or(Refusal::Elsewhere)?),
        };
        let size = handle.metadata().map_err(refuse)?.len();
        if !position.fits(&handle, size).map_err(refuse)? {
            return Err(Refusal::Changed);
        }
        if dry > position.offset && !has_newline(&handle, dry, size).map_err(refuse)? {
            return Err(Refusal::Dry(size, handle));
        }
        let head = read_at(&handle, 0, HEAD).map_err(refuse)?;
        if position.offset == 0 && Compression::of(&head) != Compression::None {
            return Err(Refusal::Never(compressed(&label)));
        }
        let start = position.offset;
        let failed = |error: RowsError| Refusal::Never(told(&label, &path, &position, position.line, error));
        let header = match header {
            Some(header) => Some(header),
            None if start > 0 => read_header(&handle, start, settings).map_err(failed)?,
            None => None,
        };
        let tail = read_tail(&handle, start).map_err(refuse)?;
        let mut file = handle.try_clone().map_err(refuse)?;
        file.seek(SeekFrom::Start(start)).map_err(refuse)?;
        let mut window = Window::at(Input::Plain(file), start, position.line, tail).growing();
        if position.open_end {
            // A run that did not follow took a last line as whole.
            match window.take_line_end() {
                Ok(true) => position.open_end = false,
                Ok(false) => return Err(Refusal::Never(position.grew_in_line(&label))),
                Err(error) => return Err(refuse(error)),
            }
        }
        let names = header.as_deref();
        let rows = Rows::new(window, Arc::clone(&label), &settings.format, &settings.hand_out, settings.longest, names)
            .map_err(|error| Refusal::Never(told(&label, &path, &position, 0, error)))?;
        Ok(Self { label, path, position, handle, header, head, rows, size, checked: start })
    }

    /// Whole rows, and moves the position behind them.
    pub(super) fn step(&mut self, most_bytes: usize, most_rows: u64) -> Result<Stepped, SourceError> {
        let before = self.rows.window().offset();
        let taken = self
            .rows
            .next(most_bytes, most_rows)
            .map_err(|error| told(&self.label, &self.path, &self.position, self.rows.window().lines(), error))?;
        let failed = |error| SourceError::Io { path: self.path.clone(), error };
        let window = self.rows.window();
        let (offset, filled) = (window.offset(), window.offset() + window.left() as u64);
        // More of it may be there than when it was opened.
        let first = self.position.offset == 0 && offset > 0;
        let longer = first || (self.head.len() < HEAD && (self.head.len() as u64) < offset);
        let head = if longer { Some(read_at(&self.handle, 0, HEAD).map_err(failed)?) } else { None };
        if window.is_torn_apart() || filled > self.checked || longer {
            // A file may be truncated and written anew while it is read. Looked at behind the reading, because what is
            // whole now was whole before.
            let size = self.handle.metadata().map_err(failed)?.len();
            let ends = |head: &Vec<u8>| {
                offset > HEAD as u64 || head[..head.len().min(offset as usize)].ends_with(window.tail())
            };
            if !self.position.fits(&self.handle, size).map_err(failed)? || !head.as_ref().is_none_or(ends) {
                return Ok(Stepped::Changed);
            }
            // Nothing was known of it before, not even whether this is what was opened.
            if first && (size < self.size || read_tail(&self.handle, offset).map_err(failed)? != window.tail()) {
                return Ok(Stepped::Changed);
            }
            (self.checked, self.size) = (filled, self.size.max(size));
        }
        if window.is_torn_apart() {
            return Ok(Stepped::Dry);
        }
        self.head = head.unwrap_or(std::mem::take(&mut self.head));
        let moved = offset > before;
        if moved || offset > self.position.offset {
            let position = &mut self.position;
            position.offset = offset;
            position.line = window.lines();
            position.tail = digest(window.tail());
            position.cover_head(&self.head, false);
            position.cover_marks(&self.head);
            position.done = false;
            position.size = self.size.max(position.offset);
        }
        let taken = taken.filter(|taken| moved || taken.rows > 0 || !taken.bad.is_empty());
        Ok(taken.map_or(Stepped::Dry, Stepped::Taken))
    }

    /// The first bytes that were read, unless something else was there already when they were kept.
    pub(super) fn begin(&mut self) -> Option<Vec<u8>> {
        let mut begin = std::mem::take(&mut self.head);
        begin.truncate(usize::try_from(self.position.head_len).unwrap_or(usize::MAX));
        (!begin.is_empty() && digest(&begin) == self.position.head).then_some(begin)
    }

    /// Up to where it was looked at.
    pub(super) fn dry(&self) -> u64 {
        let window = self.rows.window();
        if window.is_torn_apart() { self.size } else { window.offset() + window.left() as u64 }
    }
}

fn told(label: &Arc<str>, path: &std::path::Path, position: &Position, lines: u64, error: RowsError) -> SourceError {
    let partition = Partition { name: Arc::clone(label), path: path.to_owned(), position: position.clone() };
    explain(&partition, Compression::None, lines, error)
}

fn has_newline(file: &File, from: u64, to: u64) -> io::Result<bool> {
    let mut at = from;
    while at < to {
        let piece = read_at(file, at, usize::try_from(to - at).map_or(1 << 16, |left| left.min(1 << 16)))?;
        if memchr(b'\n', &piece).is_some() {
            return Ok(true);
        }
        if piece.is_empty() {
            break;
        }
        at += piece.len() as u64;
    }
    Ok(false)
}

/// The columns' names, if the header stands before `end`.
fn read_header(file: &File, end: u64, settings: &Settings) -> Result<Option<Arc<[String]>>, RowsError> {
    let Format::Csv(options) = &settings.format else { return Ok(None) };
    if !options.header {
        return Ok(None);
    }
    let mut file = file.try_clone()?;
    file.rewind()?;
    let mut window = Window::new(Input::Plain(file)).growing();
    let mut records = csv::Records::new(options);
    match records.next(&mut window, settings.longest, true)? {
        (csv::Found::Record(length), count) if window.offset() + length as u64 <= end => {
            let names = csv::header(records.fields(count));
            names.map(|names| Some(names.into())).map_err(|what| RowsError::Malformed(window.lines() + 1, what))
        }
        _ => Ok(None),
    }
}
