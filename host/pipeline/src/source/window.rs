//! A window over an input: reads block by block, hands out slices of the blocks without copying, and keeps count of
//! where it stands. Only a line that a block cuts in two is copied.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use memchr::{memchr, memchr_iter, memrchr};
use sha2::{Digest, Sha256};

use super::input::Input;

/// Size of a block.
pub(super) const BLOCK: usize = 1 << 20;
/// How many bytes before a position are part of its fingerprint.
pub(super) const TAIL: usize = 1024;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// The first 128 bits of SHA-256, in hex.
pub(super) fn digest(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)[..16])
}

/// Blocks that came back, to be filled again: fresh memory costs as much as the reading.
#[derive(Clone, Default)]
struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

impl Pool {
    const KEPT: usize = 4;

    fn take(&self, capacity: usize) -> Vec<u8> {
        if capacity <= BLOCK
            && let Some(block) = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
        {
            return block;
        }
        Vec::with_capacity(capacity.max(BLOCK))
    }

    fn give(&self, mut block: Vec<u8>) {
        block.clear();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < Self::KEPT && block.capacity() <= 2 * BLOCK {
            kept.push(block);
        }
    }
}

/// A block that goes back to its pool when the last slice of it is dropped.
struct Pooled {
    block: Vec<u8>,
    pool: Pool,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.block
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.give(std::mem::take(&mut self.block));
    }
}

/// Why a window cannot be filled.
pub(super) type FillResult = Result<(), std::io::Error>;

/// See the module.
pub(super) struct Window {
    input: Input,
    pool: Pool,
    /// Read and not yet taken.
    unread: Bytes,
    /// How much of `unread` is whole lines.
    whole: usize,
    /// The input gave its end.
    ended: bool,
    /// The last newline of `unread` is not in the input.
    added_newline: bool,
    /// The input may grow: a last line without a newline is no line yet.
    growing: bool,
    /// Bytes at the end that are no whole line yet, where the input may grow.
    torn: usize,
    /// A line was taken in pieces, and its end is not there yet: what this window says of itself counts no more.
    torn_apart: bool,
    started: bool,
    /// Bytes of the input taken, a byte-order mark among them.
    offset: u64,
    /// Newlines taken.
    lines: u64,
    /// The last [`TAIL`] bytes taken.
    tail: Vec<u8>,
    /// CRC-32C of all bytes of the input taken, if that is decompressed or was asked for.
    checksum: Option<u32>,
}

/// Whole lines.
pub(super) struct Lines {
    /// Every line ends with a newline.
    pub(super) bytes: Bytes,
    /// How many.
    pub(super) count: u64,
}

impl Window {
    /// A window at the start of an input.
    pub(super) fn new(input: Input) -> Self {
        Self::at(input, 0, 0, Vec::new())
    }

    /// A window at the start of an input that sums up what it takes, compressed or not.
    pub(super) fn summing(input: Input) -> Self {
        Self { checksum: Some(0), ..Self::new(input) }
    }

    /// A window behind `offset` bytes and `lines` lines, the last bytes of which were `tail`.
    pub(super) fn at(input: Input, offset: u64, lines: u64, tail: Vec<u8>) -> Self {
        let checksum = input.compressed().then_some(0);
        Self {
            input,
            pool: Pool::default(),
            unread: Bytes::new(),
            whole: 0,
            ended: false,
            added_newline: false,
            growing: false,
            torn: 0,
            torn_apart: false,
            started: offset > 0,
            offset,
            lines,
            tail,
            checksum,
        }
    }

    /// The input may grow: its last line is only taken when it has a newline.
    pub(super) fn growing(self) -> Self {
        Self { growing: true, ..self }
    }

    pub(super) fn may_grow(&self) -> bool {
        self.growing
    }

    /// How many bytes there are behind those taken, at the end of an input that may grow.
    pub(super) fn left(&self) -> usize {
        self.unread.len() + self.torn
    }

    /// The window took the first part of a line that has no end yet; it has to be thrown away.
    pub(super) fn is_torn_apart(&self) -> bool {
        self.torn_apart
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Lines taken so far; the next one is this + 1.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    pub(super) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// CRC-32C of everything taken since the start of a compressed file; `None` for others.
    pub(super) fn checksum(&self) -> Option<u32> {
        self.checksum
    }

    /// Everything was taken.
    pub(super) fn finished(&self) -> bool {
        self.ended && self.unread.is_empty()
    }

    /// The end was seen; `unread` is all there is.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Everything was taken, and the last line had no newline of its own.
    pub(super) fn open_end(&self) -> bool {
        self.finished() && self.added_newline
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.unread
    }

    /// Reads on, so that `unread` grows by at least one byte or `ended` becomes true. Never holds more than `most`
    /// bytes and a block. At the end a missing newline is added.
    pub(super) fn fill(&mut self, most: usize) -> FillResult {
        if self.ended {
            return Ok(());
        }
        let carried = self.unread.len();
        let capacity = BLOCK.max(carried.saturating_mul(2).min(most.saturating_add(2))).max(carried + 2);
        let mut block = self.pool.take(capacity);
        block.extend_from_slice(&self.unread);
        while block.len() < capacity {
            let before = block.len();
            if self.input.read_into(&mut block)? == 0 {
                self.ended = true;
                break;
            }
            let maybe_mark = !self.started && block.len() < BOM.len() && BOM.starts_with(&block);
            if !maybe_mark && !self.input.fills_blocks() && memchr(b'\n', &block[before..]).is_some() {
                break;
            }
        }
        let mark = if !self.started && block.starts_with(BOM) { BOM.len() } else { 0 };
        self.started = true;
        if self.ended && !self.growing && block.len() > mark && block.last() != Some(&b'\n') {
            block.push(b'\n');
            self.added_newline = true;
        }
        self.whole = memrchr(b'\n', &block).map_or(0, |at| at + 1);
        if self.ended && self.growing {
            let end = self.whole.max(mark);
            self.torn = block.len() - end;
            block.truncate(end);
        }
        self.unread = Bytes::from_owner(Pooled { block, pool: self.pool.clone() });
        if mark > 0 {
            self.unread.advance(mark);
            self.whole = self.whole.saturating_sub(mark);
            self.offset += mark as u64;
            self.tail.extend_from_slice(BOM);
            self.checksum = self.checksum.map(|before| crc32c::crc32c_append(before, BOM));
        }
        Ok(())
    }

    /// Takes the first `length` bytes.
    pub(super) fn take(&mut self, length: usize) -> Bytes {
        let lines = memchr_iter(b'\n', &self.unread[..length]).count() as u64;
        self.take_counted(length, lines)
    }

    /// [`Self::take`] for who has counted the newlines.
    pub(super) fn take_counted(&mut self, length: usize, lines: u64) -> Bytes {
        let bytes = self.unread.split_to(length);
        self.whole = self.whole.saturating_sub(length);
        self.lines += lines;
        let real = if self.added_newline && self.unread.is_empty() { &bytes[..length - 1] } else { &bytes[..] };
        self.offset += real.len() as u64;
        remember(&mut self.tail, real);
        self.checksum = self.checksum.map(|before| crc32c::crc32c_append(before, real));
        bytes
    }

    /// Whole lines: about `most_bytes`, at most `most_lines`, none longer than `longest` without its newline. `None`
    /// if the next line is too long or not whole yet. They are not taken yet.
    pub(super) fn find_lines(&self, most_bytes: usize, most_lines: u64, longest: usize) -> Option<Lines> {
        let whole = &self.unread[..self.whole];
        let mut end = if whole.len() <= most_bytes {
            whole.len()
        } else {
            let fitting = memrchr(b'\n', &whole[..most_bytes]);
            fitting.or_else(|| memchr(b'\n', whole)).map_or(0, |at| at + 1)
        };
        // No line of a piece that is itself within the limit can be over it, so most pieces need no second look.
        let count = if most_lines == u64::MAX && end <= longest.saturating_add(1) {
            memchr_iter(b'\n', &whole[..end]).count() as u64
        } else {
            let (mut start, mut count) = (0, 0);
            for at in memchr_iter(b'\n', &whole[..end]) {
                if at - start > longest || count == most_lines {
                    break;
                }
                start = at + 1;
                count += 1;
            }
            end = start;
            count
        };
        (end > 0).then(|| Lines { bytes: self.unread.slice(..end), count })
    }

    /// The next line is known to be longer than `longest` without its newline.
    pub(super) fn next_too_long(&self, longest: usize) -> bool {
        memchr(b'\n', &self.unread).unwrap_or(self.unread.len()) > longest
    }

    /// Takes the next line without keeping more than its first `clip` bytes; also gives its length. `None`: it has no
    /// end yet, see [`Self::is_torn_apart`].
    pub(super) fn drop_line(&mut self, clip: usize) -> Result<Option<(Bytes, u64)>, std::io::Error> {
        let mut head = Vec::new();
        let mut length = 0u64;
        loop {
            let end = memchr(b'\n', &self.unread);
            let piece = self.take(end.map_or(self.unread.len(), |at| at + 1));
            let piece = &piece[..end.unwrap_or(piece.len())];
            head.extend_from_slice(&piece[..piece.len().min(clip - head.len())]);
            length += piece.len() as u64;
            if end.is_none() && self.growing && self.ended {
                self.torn_apart = true;
                return Ok(None);
            }
            if end.is_some() || self.finished() {
                return Ok(Some((Bytes::from(head), length)));
            }
            self.fill(0)?;
        }
    }

    /// Takes the line end that a line which was taken already lacked, without counting a line. True also if nothing at
    /// all follows; false if anything else does.
    pub(super) fn take_line_end(&mut self) -> Result<bool, std::io::Error> {
        while self.unread.len() < 2 && !self.ended {
            self.fill(0)?;
        }
        let real = self.unread.len() - usize::from(self.added_newline && !self.unread.is_empty());
        let length = match self.unread[..real] {
            [] => self.unread.len(),
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return Ok(false),
        };
        self.take_counted(length, 0);
        Ok(true)
    }

    /// Takes and drops bytes up to `offset`, a few MiB per call, so that a task is not lost in a large file. True when
    /// it is there, or when the input ended before.
    pub(super) fn skip_towards(&mut self, offset: u64) -> Result<bool, std::io::Error> {
        for _ in 0..16 {
            let left = usize::try_from(offset.saturating_sub(self.offset)).unwrap_or(usize::MAX);
            if left == 0 || self.finished() {
                return Ok(true);
            }
            if self.unread.is_empty() {
                self.fill(0)?;
            }
            self.take(left.min(self.unread.len()));
        }
        Ok(self.offset >= offset)
    }

    /// Corrects the number of lines taken, where bytes were skipped.
    pub(super) fn set_lines(&mut self, lines: u64) {
        self.lines = lines;
    }
}

/// Keeps the last [`TAIL`] bytes.
fn remember(tail: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.len() >= TAIL {
        tail.clear();
        tail.extend_from_slice(&bytes[bytes.len() - TAIL..]);
        return;
    }
    tail.extend_from_slice(bytes);
    let excess = tail.len().saturating_sub(TAIL);
    tail.drain(..excess);
}
