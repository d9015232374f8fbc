//! One followed file, for as long as it is the same file, whatever its name.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::look::{Age, Seen};
use crate::source::files::position::{FileId, HEAD, Position, SHORTEST, open_file, read_at, read_tail};
use crate::source::window::digest;

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
    /// The largest size that it was seen to have together with what was read of it.
    pub(super) most: u64,
    /// Its size at the look before it was found shorter.
    pub(super) before: u64,
    pub(super) modified: (i64, i64),
    /// No whole row lies between the position and this size.
    pub(super) dry: u64,
    pub(super) place: Place,
    pub(super) handle: Option<Arc<File>>,
    /// The first bytes that were read of it, up to 4 KiB, while it is open and nothing is read.
    pub(super) begin: Option<Vec<u8>>,
    /// Columns of a CSV file, once they are known.
    pub(super) header: Option<Arc<[String]>>,
    /// A task reads it now.
    pub(super) reading: bool,
    /// Which loan to a task is good. One that was called back has another number, and what is read under it counts not.
    pub(super) lease: u64,
    /// Its position changed and was not reported.
    pub(super) moved: bool,
    /// What was read does not stand at its beginning any more.
    pub(super) changed: bool,
    /// What was read stood at its beginning at least once since the start.
    pub(super) verified: bool,
    /// It was not found yet since the start: what became of it happened while nobody looked.
    pub(super) unwatched: bool,
    /// The last look found it under a name that a pattern matches.
    pub(super) listed: bool,
    /// It was not looked around since it was begun to be read: what was read first need not be what was there when it
    /// was found.
    pub(super) fresh: bool,
    /// Of which other file it looks like a copy. Somebody was told.
    pub(super) held: Option<u64>,
    /// Read before this one: what was under its name before.
    pub(super) after: Option<u64>,
    /// Refused how often, and not tried before this look.
    pub(super) refused: u32,
    pub(super) not_before: u64,
}

impl Generation {
    pub(super) fn new(label: Arc<str>, task: usize, path: PathBuf, position: Position) -> Self {
        let position_is_new = position.offset == 0;
        Self {
            label,
            task,
            path,
            size: position.size,
            most: position.size,
            before: 0,
            modified: (0, 0),
            dry: position.offset,
            position,
            place: Place::Here,
            handle: None,
            begin: None,
            header: None,
            reading: false,
            lease: 0,
            moved: true,
            changed: false,
            verified: position_is_new,
            unwatched: true,
            listed: false,
            fresh: !position_is_new,
            held: None,
            after: None,
            refused: 0,
            not_before: 0,
        }
    }

    pub(super) fn of(label: Arc<str>, task: usize, seen: &Seen) -> Self {
        let mut new = Self::new(label, task, seen.path.clone(), Position::nowhere());
        new.found(seen);
        new.position.size = seen.size;
        new
    }

    /// It is what was seen there. The path before, if its name is another one now.
    pub(super) fn found(&mut self, seen: &Seen) -> Option<PathBuf> {
        if seen.size < self.size {
            self.before = self.before.max(self.size);
        }
        (self.size, self.modified, self.place) = (seen.size, seen.modified, Place::Here);
        if self.size >= self.most && !self.shrank() {
            self.position.modified = Some(self.modified);
        }
        self.unwatched = false;
        if self.position.offset == 0 {
            self.most = self.most.max(seen.size);
        }
        // Without a time of creation a device number that changed is no news.
        if self.position.file.is_none_or(|file| !file.is(&seen.id)) {
            self.position.file = Some(seen.id);
            self.moved = true;
        }
        if self.position.name.as_deref() == Some(&seen.name) {
            return None;
        }
        let renamed = self.position.name.is_some();
        self.position.name = Some(seen.name.clone());
        self.moved = true;
        let before = std::mem::replace(&mut self.path, seen.path.clone());
        renamed.then_some(before)
    }

    /// Its position, for a checkpoint: with what was seen of it, so that the next run misses what was taken away.
    pub(super) fn report(&mut self) -> String {
        if self.most > self.dry {
            self.position.size = self.position.size.max(self.most);
        }
        self.moved = false;
        self.position.to_json()
    }

    /// It goes on in another file, which begins with all that was read.
    pub(super) fn go_on_in(&mut self, seen: &Seen) {
        self.call_back();
        self.found(seen);
        self.position.file = Some(seen.id);
        self.position.done = false;
        self.position.size = seen.size.max(self.position.offset);
        (self.handle, self.moved, self.dry, self.changed) = (None, true, self.position.offset, false);
        self.begin = None;
        (self.most, self.before, self.verified) = (self.position.size, 0, true);
    }

    /// It goes on behind the end of another file, which has only a part of what was read.
    pub(super) fn go_on_behind(&mut self, seen: &Seen) -> io::Result<()> {
        let (file, size) = seen.open()?;
        let line = self.position.line.min(size);
        self.go_on_at(seen, &file, (size, line))
    }

    /// It goes on in another file, behind a part of what was read, which ends there with that line.
    pub(super) fn go_on_at(&mut self, seen: &Seen, file: &File, (offset, line): (u64, u64)) -> io::Result<()> {
        let (name, modified) = (self.position.name.clone(), self.position.modified);
        let mut end = Position { offset, size: offset, line, ..Position::nowhere() };
        let head = read_at(file, 0, HEAD)?;
        end.cover_head(&head, false);
        end.cover_marks(&head);
        end.tail = digest(&read_tail(file, offset)?);
        self.position = Position { file: Some(seen.id), name, modified, ..end };
        self.go_on_in(seen);
        Ok(())
    }

    /// From the start.
    pub(super) fn start_again(&mut self) {
        self.call_back();
        let Position { file, name, .. } = self.position.clone();
        self.position = Position { file, name, modified: Some(self.modified), ..Position::nowhere() };
        (self.dry, self.moved, self.changed, self.header, self.begin) = (0, true, false, None, None);
        (self.most, self.before, self.verified) = (self.size, 0, true);
    }

    /// It is a copy of another one, or is not. Whether that is news.
    pub(super) fn hold(&mut self, original: Option<(u64, Arc<str>)>) -> bool {
        let (held, label) = original.map_or((None, None), |(number, label)| (Some(number), Some(label.to_string())));
        let news = held.is_some() && self.held.is_none() && self.position.copy_of.is_none();
        self.held = held;
        if self.position.copy_of != label {
            self.position.copy_of = label;
            self.moved = true;
        }
        news
    }

    /// Ends a task's reading: what it has read and not handed out counts not.
    pub(super) fn call_back(&mut self) {
        self.lease += 1;
        self.reading = false;
    }

    /// What was read moves its position; name and inode are the registry's.
    pub(super) fn advance(&mut self, read: &Position) {
        self.fresh |= self.position.offset == 0 && read.offset > 0;
        let Position { file, name, modified, .. } = std::mem::replace(&mut self.position, Position::nowhere());
        self.position = Position { file, name, modified, ..read.clone() };
    }

    pub(super) fn is(&self, id: &FileId) -> bool {
        self.position.file.is_some_and(|file| file.is(id))
    }

    pub(super) fn name(&self) -> &str {
        self.position.name.as_deref().unwrap_or(&self.label)
    }

    /// The name under which this file, or the one that had its name first, was found.
    pub(super) fn log(&self) -> &str {
        match self.label.rsplit_once('#') {
            Some((log, number)) if number.parse::<u64>().is_ok() => log,
            _ => &self.label,
        }
    }

    /// Under another name than the one under which it was found.
    pub(super) fn was_renamed(&self) -> bool {
        !self.label.strip_prefix(self.name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    }

    /// Another file had the log's name before.
    pub(super) fn is_later(&self) -> bool {
        self.log().len() < self.label.len()
    }

    /// Under the log's own name.
    pub(super) fn is_current(&self) -> bool {
        self.place == Place::Here && self.name() == self.log()
    }

    pub(super) fn shrank(&self) -> bool {
        self.changed || self.size < self.position.offset
    }

    /// To tell which of the files of a log came first: by their creation, because a program may write to the older one
    /// for longer; if that is not known by the last change.
    pub(super) fn age(&self) -> Age {
        (self.position.file.and_then(|file| file.born), self.modified)
    }

    /// Not older than this are the copies that were made of it since the last look at which it was not shorter than before.
    pub(super) fn oldest_copy(&self) -> Option<Age> {
        Some((self.position.file.and_then(|file| file.born), self.position.modified?))
    }

    /// What is under its path now, if it is this file.
    pub(super) fn seen(&self) -> io::Result<Option<Seen>> {
        Ok(Seen::at(self.name(), &self.path)?.filter(|seen| self.is(&seen.id)))
    }

    /// Of a file that is shorter than what was read: bytes that were seen behind that, by readers and by looks.
    pub(super) fn unread_before(&self) -> u64 {
        let before = if self.size < self.position.offset { self.before } else { 0 };
        self.unread().max(before.saturating_sub(self.position.offset))
    }

    /// Bytes behind what was read, where a look has seen that there are so many and nobody has read since whether it is
    /// still what it was: it cannot be opened, or there was no time yet.
    pub(super) fn unread_at_last(&self) -> u64 {
        let seen = if self.changed { 0 } else { self.size.saturating_sub(self.position.offset) };
        self.unread().max(seen)
    }

    /// Bytes that were seen behind what was read.
    pub(super) fn unread(&self) -> u64 {
        self.most.max(self.position.size).saturating_sub(self.position.offset)
    }

    /// Of them, those that a copy does not have either.
    pub(super) fn unread_behind(&self, copy: &Seen) -> u64 {
        self.unread().saturating_sub(copy.size.saturating_sub(self.position.offset))
    }

    /// May have whole rows that were not read.
    pub(super) fn has_more(&self) -> bool {
        self.place != Place::Gone && self.size > self.dry
    }

    /// Nothing of it was read, so that it may turn out to be a copy.
    pub(super) fn is_untouched(&self) -> bool {
        self.position.offset == 0 && self.place == Place::Here
    }

    /// Whether all that was read of it stands at the beginning of that file. Never, if nothing was read: then it tells
    /// nothing.
    pub(super) fn fits(&self, seen: &Seen) -> io::Result<bool> {
        if self.position.line == 0 || seen.size < self.position.offset {
            return Ok(false);
        }
        let (file, size) = seen.open()?;
        self.position.fits(&file, size)
    }

    /// Whether that file has nothing but the beginning of what was read of this one, as far as that can be told.
    pub(super) fn outgrew(&self, seen: &Seen) -> io::Result<bool> {
        if self.position.line == 0 || seen.size == 0 || seen.size >= self.position.offset {
            return Ok(false);
        }
        let (file, size) = seen.open()?;
        self.position.began_like(&file, size)
    }

    /// Whether the first bytes of that file are those of this one. If there are too few to tell, they are.
    pub(super) fn begins(&self, seen: &Seen) -> io::Result<bool> {
        let (file, size) = seen.open()?;
        self.position.begins(&file, size)
    }

    /// Whether that file begins with rows that were read of this one, more than the one that a header may be.
    pub(super) fn shares(&self, seen: &Seen) -> io::Result<bool> {
        let (file, size) = seen.open()?;
        let common = self.position.common(&file, size)?;
        Ok(memchr::memchr_iter(b'\n', &read_at(&file, 0, common)?).count() > 1)
    }

    /// The bytes with which a file begins as this one did, up to 4 KiB and as far as that can be told, and whether nothing
    /// behind them was read of this one.
    pub(super) fn common(&self, file: &File, size: u64) -> io::Result<(Vec<u8>, bool)> {
        let mut head = read_at(file, 0, HEAD)?;
        let begin = self.begin.as_deref().unwrap_or_default();
        let known = head.iter().zip(begin).take_while(|(one, other)| one == other).count();
        let differs = known < head.len().min(begin.len());
        head.truncate(known.max(self.position.common(file, size)?));
        let ends = differs || head.len() as u64 == size;
        Ok((head, ends))
    }

    /// Compares another file, of which nothing was read, with this one.
    ///
    /// # Errors
    /// The other one cannot be read.
    pub(super) fn compare(&self, other: &Seen) -> io::Result<Likeness> {
        let (copy, length) = other.open()?;
        if length == 0 || self.shrank() {
            return Ok(Likeness::Unknown);
        }
        let compared = || -> io::Result<Likeness> {
            let original = match &self.handle {
                Some(file) => Arc::clone(file),
                None => {
                    let (file, data) = open_file(&self.path)?;
                    if self.position.file.is_some_and(|id| (id.dev, id.ino) != (data.dev(), data.ino())) {
                        return Err(io::ErrorKind::NotFound.into());
                    }
                    Arc::new(file)
                }
            };
            let head = usize::try_from(length).map_or(HEAD, |length| length.min(HEAD));
            let alike = length <= original.metadata()?.len()
                && read_at(&copy, 0, head)? == read_at(&original, 0, head)?
                && read_tail(&copy, length)? == read_tail(&original, length)?;
            // The answer no counts only if the original had not been truncated before it was given.
            let whole = || -> io::Result<bool> {
                let size = original.metadata()?.len();
                Ok(size >= self.size && (self.position.line == 0 || self.position.fits(&original, size)?))
            };
            Ok(match alike {
                true => Likeness::Copy,
                false if whole()? => Likeness::Other,
                false => Likeness::Changed,
            })
        };
        match compared() {
            Ok(likeness) => Ok(likeness),
            // It cannot be read now. What was read of it is still known.
            Err(_) if self.position.line == 0 => Ok(Likeness::Unknown),
            Err(_) if self.fits(other)? || self.outgrew(other)? => Ok(Likeness::Copy),
            // A copy that has just begun tells nothing, and there will be more of it when it is read.
            Err(_) if length < self.position.offset.min(SHORTEST as u64) => Ok(Likeness::Unknown),
            Err(_) => Ok(Likeness::Other),
        }
    }
}

/// What two files have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Likeness {
    /// One has nothing but the beginning of the other.
    Copy,
    Other,
    /// The original is not what it was.
    Changed,
    /// Not to be told before more is known of the original.
    Unknown,
}
