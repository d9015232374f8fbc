//! Where the bytes of a Parquet file come from.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// A file that many readers share: every read says where, so that none moves the place of another.
#[derive(Clone)]
pub(super) struct Source {
    file: Arc<File>,
    length: u64,
}

impl Source {
    pub(super) fn new(file: File) -> io::Result<Source> {
        let length = file.metadata()?.len();
        Ok(Source { file: Arc::new(file), length })
    }

    /// Bytes in the file when it was opened.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Source {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::new(From { source: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // Before anything is reserved.
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF("a value reaches beyond the end of the file".to_owned()));
        }
        let mut bytes = vec![0; length];
        self.read_exact_at(&mut bytes, start).map_err(|error| ParquetError::External(Box::new(error)))?;
        Ok(bytes.into())
    }
}

/// Reads on from a place.
pub(super) struct From {
    source: Source,
    at: u64,
}

impl Read for From {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.source.file.read_at(bytes, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
