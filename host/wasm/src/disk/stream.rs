//! Streams out of files and into them. Everything happens on the instance's own thread, at once: when an instance is
//! gone, so is every read and write that it began.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::file::{Place, Writable};

/// Most bytes that one read gives, and one write that was not asked to wait takes.
pub(crate) const STEP: usize = 64 << 10;

/// Bytes into a file, at the place where the last ones ended.
pub(crate) struct FileWriter {
    file: Writable,
    place: Place,
    /// A write failed: nobody knows what is in the file.
    dead: bool,
}

impl FileWriter {
    pub(crate) fn new(file: Writable, place: Place) -> Self {
        Self { file, place, dead: false }
    }

    fn put(&mut self, bytes: &[u8]) -> StreamResult<()> {
        if self.dead {
            return Err(StreamError::Closed);
        }
        match self.file.write(self.place, bytes) {
            Ok(end) => {
                if let Place::At(at) = &mut self.place {
                    *at = end;
                }
                Ok(())
            }
            Err(error) => {
                self.dead = true;
                Err(StreamError::LastOperationFailed(error.into()))
            }
        }
    }
}

#[async_trait]
impl Pollable for FileWriter {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for FileWriter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > STEP {
            return Err(StreamError::trap("more was written at once than `check-write` allows"));
        }
        self.put(&bytes)
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.put(&bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        if self.dead { Err(StreamError::Closed) } else { Ok(()) }
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if self.dead { Err(StreamError::Closed) } else { Ok(STEP) }
    }
}

/// Bytes out of a file.
pub(crate) struct FileReader {
    file: Arc<File>,
    at: u64,
    ended: bool,
}

impl FileReader {
    pub(crate) fn new(file: Arc<File>, at: u64) -> Self {
        Self { file, at, ended: false }
    }
}

#[async_trait]
impl Pollable for FileReader {
    async fn ready(&mut self) {}
}

#[async_trait]
impl InputStream for FileReader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if self.ended {
            return Err(StreamError::Closed);
        }
        if size == 0 {
            return Ok(Bytes::new());
        }
        let mut buffer = BytesMut::zeroed(size.min(STEP));
        match read_at(&self.file, &mut buffer, self.at) {
            Ok(0) => {
                self.ended = true;
                Err(StreamError::Closed)
            }
            Ok(read) => {
                self.at = self.at.saturating_add(read as u64);
                buffer.truncate(read);
                Ok(buffer.freeze())
            }
            Err(error) => {
                self.ended = true;
                Err(StreamError::LastOperationFailed(error.into()))
            }
        }
    }
}

/// Reads once, whatever signals come.
pub(crate) fn read_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, at) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
