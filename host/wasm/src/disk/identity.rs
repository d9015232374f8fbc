//! Which file a descriptor or a name stands for.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, statx};

/// A file among all of this machine, also when its number is used again: with the time at which it was made, where the
/// file system keeps that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: (u32, u32),
    inode: u64,
    born: (i64, u32),
}

/// What a look at a file tells.
pub(crate) struct Found {
    pub(crate) id: FileId,
    pub(crate) kind: FileType,
    pub(crate) bytes: u64,
    pub(crate) links: u64,
    pub(crate) raw: Statx,
}

/// Of an open file.
pub(crate) fn of(file: impl AsFd) -> io::Result<Found> {
    at(file, c"", AtFlags::EMPTY_PATH)
}

/// Of what `name` stands for in `dir`.
pub(crate) fn at(dir: impl AsFd, name: &CStr, flags: AtFlags) -> io::Result<Found> {
    let raw = statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let has_birth = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    let born = if has_birth { (raw.stx_btime.tv_sec, raw.stx_btime.tv_nsec) } else { (0, 0) };
    Ok(Found {
        id: FileId { device: (raw.stx_dev_major, raw.stx_dev_minor), inode: raw.stx_ino, born },
        kind: FileType::from_raw_mode(u32::from(raw.stx_mode)),
        bytes: raw.stx_size,
        links: u64::from(raw.stx_nlink),
        raw,
    })
}
