//! Opening what a person named.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file for reading. Anything else is refused and named: opening a FIFO would wait for its other end for ever,
/// and reading a device need not end.
///
/// # Errors
/// It cannot be opened, or is no file.
pub fn open_file(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::FileTypeExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    let what = match kind {
        kind if kind.is_file() => return Ok(file),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a FIFO or a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a file")))
}
