//! Writing a segment as a whole new file, piece by piece.
//!
//! A segment may have 64 MiB, most of it fill. A buffer of that size, taken and freed now and then by whichever thread
//! the log happens to run on, stays with the allocator, once for each of those threads.

use std::io;
use std::path::Path;

use super::{flush_names, layout, name_new};
use crate::StoreError;
use crate::codec::{Header, SECTOR};
use crate::disk::Disk;

/// Most bytes that are written, or held, at once.
pub(super) const PIECE: usize = 64 << 10;

static FILL: [u8; PIECE] = [0; PIECE];

/// Writes a segment: its header, what `frames` puts behind it, and fill up to the header's capacity. Flushes it, names it
/// and flushes the name. An error leaves nothing under that name that was not there before.
pub(super) fn write_segment(
    disk: &mut dyn Disk,
    dir: &Path,
    header: &Header,
    frames: impl FnOnce(&mut Pieces<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let path = layout::segment_path(header.first);
    name_new(disk, dir, &path, |disk, unfinished| {
        let mut pieces = Pieces { disk, dir, path: unfinished, taken: 0, held: Vec::with_capacity(PIECE) };
        pieces.put(&header.encode())?;
        frames(&mut pieces)?;
        pieces.fill(header.capacity)
    })?;
    flush_names(disk, dir, layout::LOG_FOLDER)
}

/// A file that grows at its end.
pub(super) struct Pieces<'a> {
    disk: &'a mut dyn Disk,
    dir: &'a Path,
    path: &'a str,
    /// Bytes that were put, those that are still held included.
    taken: u64,
    held: Vec<u8>,
}

impl Pieces<'_> {
    /// For reading what is to be put.
    pub(super) fn disk(&mut self) -> &mut dyn Disk {
        self.disk
    }

    /// Where what is put next will stand.
    pub(super) fn at(&self) -> u64 {
        self.taken
    }

    pub(super) fn put(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.held.len()));
            self.held.extend_from_slice(now);
            self.taken += now.len() as u64;
            bytes = later;
            if self.held.len() == PIECE {
                self.write_held()?;
            }
        }
        Ok(())
    }

    /// Puts zeros up to the file's length, and writes what is held.
    fn fill(&mut self, len: u64) -> Result<(), StoreError> {
        debug_assert!(self.taken <= len && len.is_multiple_of(SECTOR as u64), "{} of {len}", self.taken);
        while self.taken < len {
            let missing = usize::try_from(len - self.taken).unwrap_or(PIECE);
            self.put(&FILL[..missing.min(PIECE - self.held.len())])?;
        }
        self.write_held()
    }

    fn write_held(&mut self) -> Result<(), StoreError> {
        let offset = self.taken - self.held.len() as u64;
        let written = if self.held.is_empty() { Ok(()) } else { self.disk.write(self.path, offset, &self.held) };
        self.held.clear();
        written.map_err(|error: io::Error| StoreError::io(self.dir.join(self.path), "write", &error))
    }
}
