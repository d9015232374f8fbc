//! One followed file, for as long as it is the same file, whatever its name.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::look::Seen;
use crate::source::files::position::{FileId, HEAD, Position, open_file, read_at, read_tail};

/// Where a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Under its path.
    Here,
    /// Under no name that is known; it is still open, and did not grow in this many looks.
    Away(u32),
    /// Not there any more, or out of reach; read to its end.
    Gone,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Generation {
    /// Its partition: the name under which it was found first, with a number where another file had that name before.
    pub(super) label: Arc<str>,
    /// Who reads it.
    pub(super) task: usize,
    pub(super) path: PathBuf,
    /// `file` and `name` are always set once it was seen.
    pub(super) position: Position,
    /// Its size and time of change when it was looked at last.
    pub(super) size: u64,
    pub(super) modified: (i64, i64),
    /// No whole row lies between the position and this size.
    pub(super) dry: u64,
    pub(super) place: Place,
    pub(super) handle: Option<Arc<File>>,
    /// Columns of a CSV file, once they are known.
    pub(super) header: Option<Arc<[String]>>,
    /// A task reads it now.
    pub(super) reading: bool,
    /// Its position changed and was not reported.
    pub(super) moved: bool,
    /// What was read does not stand at its beginning any more.
    pub(super) changed: bool,
    /// It looks like a copy of another one, and somebody was told.
    pub(super) held: bool,
    /// Read before this one: what was under its name before.
    pub(super) after: Option<u64>,
    /// Refused how often, and not tried before this look.
    pub(super) refused: u32,
    pub(super) not_before: u64,
}

impl Generation {
    pub(super) fn new(label: Arc<str>, task: usize, path: PathBuf, position: Position) -> Self {
        Self {
            label,
            task,
            path,
            size: position.size,
            modified: (0, 0),
            dry: position.offset,
            position,
            place: Place::Here,
            handle: None,
            header: None,
            reading: false,
            moved: true,
            changed: false,
            held: false,
            after: None,
            refused: 0,
            not_before: 0,
        }
    }

    pub(super) fn of(label: Arc<str>, task: usize, seen: &Seen) -> Self {
        let mut new = Self::new(label, task, seen.path.clone(), Position::nowhere());
        new.found(seen);
        new
    }

    /// It is what was seen there. Tells whether its name is another one than before.
    pub(super) fn found(&mut self, seen: &Seen) -> bool {
        (self.size, self.modified, self.place) = (seen.size, seen.modified, Place::Here);
        // Without a time of creation a device number that changed is no news.
        if self.position.file.is_none_or(|file| !file.is(&seen.id)) {
            self.position.file = Some(seen.id);
            self.moved = true;
        }
        if self.position.name.as_deref() == Some(&seen.name) {
            return false;
        }
        let renamed = self.position.name.is_some();
        self.position.name = Some(seen.name.clone());
        self.path.clone_from(&seen.path);
        self.moved = true;
        renamed
    }

    /// It goes on in another file, which begins with all that was read.
    pub(super) fn go_on_in(&mut self, seen: &Seen) {
        self.found(seen);
        self.position.file = Some(seen.id);
        self.position.done = false;
        (self.handle, self.moved, self.dry, self.changed) = (None, true, self.position.offset, false);
    }

    /// From the start.
    pub(super) fn start_again(&mut self) {
        let Position { file, name, .. } = self.position.clone();
        self.position = Position { file, name, ..Position::nowhere() };
        (self.dry, self.moved, self.changed, self.header) = (0, true, false, None);
    }

    /// What was read moves its position; name and inode are the registry's.
    pub(super) fn advance(&mut self, read: &Position) {
        let Position { file, name, .. } = std::mem::replace(&mut self.position, Position::nowhere());
        self.position = Position { file, name, ..read.clone() };
    }

    pub(super) fn is(&self, id: &FileId) -> bool {
        self.position.file.is_some_and(|file| file.is(id))
    }

    pub(super) fn name(&self) -> &str {
        self.position.name.as_deref().unwrap_or(&self.label)
    }

    /// Under another name than the one under which it was found.
    pub(super) fn was_renamed(&self) -> bool {
        !self.label.strip_prefix(self.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    }

    pub(super) fn shrank(&self) -> bool {
        self.changed || self.size < self.position.offset
    }

    /// What is under its path now.
    pub(super) fn seen(&self) -> Option<Seen> {
        Seen::at(self.name(), &self.path).ok().flatten()
    }

    /// Everything that was there when it was seen last was read.
    pub(super) fn at_end(&self) -> bool {
        self.position.offset == self.size.max(self.position.size)
    }

    /// May have whole rows that were not read.
    pub(super) fn has_more(&self) -> bool {
        self.place != Place::Gone && self.size > self.dry
    }

    /// Whether all that was read of it stands at the beginning of that file. Never, if nothing was read: then it tells
    /// nothing.
    pub(super) fn fits(&self, seen: &Seen) -> bool {
        self.position.line > 0
            && seen.size >= self.position.offset
            && open_file(&seen.path).and_then(|(file, data)| self.position.fits(&file, data.len())).unwrap_or(false)
    }

    /// Whether that file has nothing but what stands at the beginning of this one, as a copy has.
    pub(super) fn begins_with(&self, seen: &Seen) -> bool {
        let same = || -> io::Result<bool> {
            let (copy, data) = open_file(&seen.path)?;
            let original = match &self.handle {
                Some(file) => Arc::clone(file),
                None => Arc::new(open_file(&self.path)?.0),
            };
            let length = data.len();
            if length == 0 || length > original.metadata()?.len() {
                return Ok(false);
            }
            let head = usize::try_from(length).map_or(HEAD, |length| length.min(HEAD));
            Ok(read_at(&copy, 0, head)? == read_at(&original, 0, head)?
                && read_tail(&copy, length)? == read_tail(&original, length)?)
        };
        same().unwrap_or(false)
    }
}
