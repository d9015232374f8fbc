//! Where a file was left, and whether it is still that file.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::source::SourceError;
use crate::source::window::{TAIL, Window, digest};

/// How many bytes from its start tell a file from another.
pub(super) const HEAD: usize = 4096;

/// The position of a file, as kept in checkpoints. Unknown fields are refused: they would change the meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Position {
    /// Bytes read, of the content, which for compressed files is the decompressed stream.
    pub(super) offset: u64,
    /// Lines read.
    pub(super) line: u64,
    /// Everything was read.
    pub(super) done: bool,
    /// The last line had no newline. What is appended behind it belongs to that line, unless it begins with one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) open_end: bool,
    /// The file's own size in bytes, which never shrinks.
    pub(super) size: u64,
    /// How many of the file's first bytes `head` stands for: none behind `offset`, which may still be corrected. Of a
    /// compressed file they are compressed bytes, of which it is not known how far they reach.
    pub(super) head_len: u64,
    /// Their digest.
    pub(super) head: String,
    /// Digest of up to 1 KiB of content before `offset`.
    pub(super) tail: String,
    /// CRC-32C of all content before `offset`, of compressed files only: they are read again up to there anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checksum: Option<u32>,
    /// Of a followed file: which one it is on its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<FileId>,
    /// Of a followed file: the name under which it was seen last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Of a followed file: when it was changed last, in seconds and nanoseconds since 1970, as of the last look at which it
    /// was not shorter than before. Copies that were made of it since are not older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<(i64, i64)>,
    /// Of a followed file: CRC-32C of its first 32, 64, 128, … bytes, as far as they were read, in hex: a copy may be
    /// shorter than what was read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) marks: String,
    /// Of a followed file of which nothing was read: the partition of which it is a copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) copy_of: Option<String>,
}

/// The first length of which there may be a mark.
pub(super) const SHORTEST: usize = 32;

/// Lengths of which there may be a mark.
fn marked() -> impl Iterator<Item = usize> {
    (0..7).map(|power| SHORTEST << power)
}

fn mark(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// Which file it is, whatever its name. Only as good as the disk: a number may be given again to a new file once this
/// one is deleted, and be another one after the disk was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileId {
    /// The device; may be numbered anew when the machine starts again.
    pub(super) dev: u64,
    /// The inode.
    pub(super) ino: u64,
    /// When it was created, in nanoseconds since 1970, where the file system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) born: Option<u64>,
}

impl FileId {
    pub(super) fn of(data: &Metadata) -> Self {
        let born = data.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
        let born = born.and_then(|born| u64::try_from(born.as_nanos()).ok());
        Self { dev: data.dev(), ino: data.ino(), born }
    }

    /// As far as can be told without looking inside.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.ino == other.ino
            && match (self.born, other.born) {
                (Some(one), Some(other)) => one == other,
                _ => self.dev == other.dev,
            }
    }
}

impl Position {
    /// At the start of a file of which nothing is known, and which is not compressed.
    pub(super) fn nowhere() -> Self {
        Self::start(&Identity { size: 0, head: Vec::new(), compressed: false })
    }

    /// At the start of a file.
    pub(super) fn start(identity: &Identity) -> Self {
        let mut start = Self {
            offset: 0,
            line: 0,
            done: false,
            open_end: false,
            size: identity.size,
            head_len: 0,
            head: digest(&[]),
            tail: digest(&[]),
            checksum: identity.compressed.then_some(0),
            file: None,
            name: None,
            modified: None,
            marks: String::new(),
            copy_of: None,
        };
        start.cover_head(&identity.head, identity.compressed);
        start
    }

    /// Extends `head` as far as the position allows.
    pub(super) fn cover_head(&mut self, head: &[u8], compressed: bool) {
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let length = if compressed { head.len() } else { head.len().min(offset) };
        if length as u64 > self.head_len {
            self.head_len = length as u64;
            self.head = digest(&head[..length]);
        }
    }

    /// Extends `marks` likewise.
    pub(super) fn cover_marks(&mut self, head: &[u8]) {
        let known = usize::try_from(self.offset).map_or(head.len(), |offset| head.len().min(offset));
        for length in marked().skip(self.marks.len() / 8).take_while(|length| *length <= known) {
            self.marks.push_str(&mark(&head[..length]));
        }
    }

    /// Whether a file of this size, shorter than what was read, begins as this one did, as far as that can be told.
    pub(super) fn began_like(&self, file: &File, size: u64) -> io::Result<bool> {
        let head_len = usize::try_from(self.head_len).unwrap_or(usize::MAX);
        if head_len <= HEAD && size >= self.head_len {
            let head = read_at(file, 0, head_len)?;
            return Ok(head_len > 0 && digest(&head) == self.head);
        }
        let marks = marked().zip(self.marks.as_bytes().chunks_exact(8));
        match marks.take_while(|(length, _)| *length as u64 <= size).last() {
            Some((length, known)) => Ok(mark(&read_at(file, 0, length)?).as_bytes() == known),
            None => Ok(false),
        }
    }

    /// Whether a file of this size begins with the bytes of the first mark. If either has no mark, it does.
    pub(super) fn begins(&self, file: &File, size: u64) -> io::Result<bool> {
        let first = marked().zip(self.marks.as_bytes().chunks_exact(8)).next();
        match first.filter(|(length, _)| *length as u64 <= size) {
            Some((length, known)) => Ok(mark(&read_at(file, 0, length)?).as_bytes() == known),
            None => Ok(true),
        }
    }

    /// How many bytes at its beginning a file of this size has in common with this one, at least: up to a mark, or
    /// the end of its head.
    pub(super) fn common(&self, file: &File, size: u64) -> io::Result<usize> {
        let mut common = 0;
        for (length, known) in marked().zip(self.marks.as_bytes().chunks_exact(8)) {
            if length as u64 > size || mark(&read_at(file, 0, length)?).as_bytes() != known {
                break;
            }
            common = length;
        }
        let head_len = usize::try_from(self.head_len).unwrap_or(usize::MAX);
        if (common + 1..=HEAD).contains(&head_len) && self.head_len <= size {
            let head = read_at(file, 0, head_len)?;
            if head.len() == head_len && digest(&head) == self.head {
                common = head_len;
            }
        }
        Ok(common)
    }

    pub(super) fn parse(partition: &str, text: &str) -> Result<Self, SourceError> {
        let wrong = |problem: String| SourceError::Position { partition: partition.to_owned(), problem };
        let position: Self = serde_json::from_str(text)
            .map_err(|error| wrong(format!("it is not one of the `files` source ({error})")))?;
        // Every line has a byte. Also keeps the count of lines far from overflowing.
        if position.line > position.offset || position.offset > i64::MAX as u64 {
            return Err(wrong(format!("{} lines in {} bytes cannot be", position.line, position.offset)));
        }
        Ok(position)
    }

    /// A position of a source that does not follow.
    pub(super) fn parse_still(partition: &str, text: &str) -> Result<Self, SourceError> {
        let position = Self::parse(partition, text)?;
        if position.file.is_some() || position.name.is_some() {
            let problem =
                "it was written with `follow = true`; set that again, or give the source a new name".to_owned();
            return Err(SourceError::Position { partition: partition.to_owned(), problem });
        }
        Ok(position)
    }

    /// Whether all that was read up to here stands at the beginning of this file, as far as its first 4 KiB and the
    /// last 1 KiB tell.
    pub(super) fn fits(&self, file: &File, size: u64) -> io::Result<bool> {
        if size < self.offset {
            return Ok(false);
        }
        let head_len = usize::try_from(self.head_len).unwrap_or(usize::MAX);
        if head_len > HEAD {
            return Ok(false);
        }
        let head = read_at(file, 0, head_len)?;
        Ok(head.len() == head_len && digest(&head) == self.head && digest(&read_tail(file, self.offset)?) == self.tail)
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a struct of numbers and strings is always JSON")
    }

    /// Whether a window that was moved here from the start of a file has seen what was read then.
    pub(super) fn is_at(&self, window: &Window) -> bool {
        window.offset() == self.offset
            && digest(window.tail()) == self.tail
            && (self.checksum.is_none() || self.checksum == window.checksum())
    }

    /// Where this position stands in the file as it is now: the position itself, or not done any more where the file
    /// has grown.
    ///
    /// # Errors
    /// The file shrank, was replaced, or grew in its last line. The last is not seen here in a compressed file.
    pub(super) fn check(mut self, partition: &str, file: &File, identity: &Identity) -> Result<Self, SourceError> {
        if self.offset == 0 && !self.done {
            // Nothing was read of it yet: whatever is there now is read.
            return Ok(Self::start(identity));
        }
        let changed = |how: String| SourceError::Changed { partition: partition.to_owned(), how };
        if identity.size < self.size {
            return Err(changed(format!("the file shrank from {} to {} bytes", self.size, identity.size)));
        }
        let head_len = usize::try_from(self.head_len).unwrap_or(usize::MAX);
        if identity.head.get(..head_len).is_none_or(|head| digest(head) != self.head) {
            if identity.compressed && !self.done {
                let next_line = self.line.saturating_add(1);
                return Err(SourceError::Replaced { partition: partition.to_owned(), next_line });
            }
            return Err(changed(format!("the file was replaced: its first {head_len} bytes are others")));
        }
        if !identity.compressed {
            let tail =
                read_tail(file, self.offset).map_err(|error| SourceError::Io { path: partition.into(), error })?;
            if digest(&tail) != self.tail {
                return Err(changed(format!(
                    "the file was replaced or edited: the bytes before line {} are others",
                    self.line.saturating_add(1)
                )));
            }
        }
        if identity.size > self.size && self.open_end && !identity.compressed {
            let more =
                read_at(file, self.offset, 2).map_err(|error| SourceError::Io { path: partition.into(), error })?;
            if !matches!(more[..], [] | [b'\n', ..] | [b'\r', b'\n']) {
                return Err(self.grew_in_line(partition));
            }
        }
        if identity.size > self.size {
            self.done = false;
            self.size = identity.size;
        }
        self.cover_head(&identity.head, identity.compressed);
        Ok(self)
    }

    /// The refusal of a file that grew behind a last line without a newline, by something other than a newline.
    pub(super) fn grew_in_line(&self, partition: &str) -> SourceError {
        let how = format!(
            "the file grew behind its last line {}, which had no newline and was taken as whole, and what was appended \
             does not begin with one",
            self.line
        );
        SourceError::Changed { partition: partition.to_owned(), how }
    }
}

/// What a file shows of itself without being read.
pub(super) struct Identity {
    pub(super) size: u64,
    /// Its first bytes, [`HEAD`] or all.
    pub(super) head: Vec<u8>,
    pub(super) compressed: bool,
}

impl Identity {
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let head = read_at(file, 0, HEAD)?;
        Ok(Self { size, head, compressed: false })
    }
}

/// Opens a file for reading; never waits, whatever stands there now.
pub(in crate::source) fn open_file(path: &Path) -> io::Result<(File, Metadata)> {
    let file = File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path)?;
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::other("it is not a file any more"));
    }
    Ok((file, data))
}

/// Up to [`TAIL`] bytes before `offset`.
pub(super) fn read_tail(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let length = offset.min(TAIL as u64);
    read_at(file, offset - length, length as usize)
}

/// Reads without moving the file's own position.
pub(in crate::source) fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut read = 0;
    while read < length {
        match file.read_at(&mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}
