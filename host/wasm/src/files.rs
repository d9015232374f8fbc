//! Opening what a person named.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::limits::MAX_COMPONENT_BYTES;

/// Reads a component. One that is larger than any that is accepted is not read.
///
/// # Errors
/// It cannot be opened or read, is no file, or is too large.
pub fn read_component(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_file(path)?;
    let too_large = |bytes: u64| {
        let words = format!("it has {bytes} bytes or more; a plugin may have at most {MAX_COMPONENT_BYTES}");
        io::Error::new(io::ErrorKind::FileTooLarge, words)
    };
    let (size, max) = (file.metadata()?.len(), MAX_COMPONENT_BYTES as u64);
    if size > max {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        read if read > max => Err(too_large(read)),
        _ => Ok(bytes),
    }
}

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
