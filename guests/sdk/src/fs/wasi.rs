//! Files through `wasi:filesystem`.

use crate::fs::{Error, ErrorKind, Metadata};
use crate::guest::bindings::wasi::filesystem::preopens;
use crate::guest::bindings::wasi::filesystem::types::{
    Advice, Descriptor, DescriptorFlags, DescriptorType, ErrorCode, OpenFlags, PathFlags, filesystem_error_code,
};
use crate::guest::bindings::wasi::io::streams::{OutputStream, StreamError};

/// How much one read asks for.
const READ_STEP: u64 = 64 * 1024;
/// How much one write may carry: the limit of `blocking-write-and-flush`.
const WRITE_STEP: usize = 4096;

/// A directory that was granted, or one below it.
pub struct Dir(Descriptor);

/// An open file.
pub struct File {
    inner: Descriptor,
    path: String,
}

/// Where rows go: bytes are added at the place where the last ones ended.
pub struct Stream {
    inner: OutputStream,
    path: String,
}

fn failed(op: &'static str, path: &str) -> impl FnOnce(ErrorCode) -> Error {
    let path = path.to_owned();
    move |code| Error { kind: kind_of(code), op, path, detail: code.name().to_owned() }
}

fn kind_of(code: ErrorCode) -> ErrorKind {
    match code {
        ErrorCode::NoEntry => ErrorKind::NotFound,
        ErrorCode::Exist => ErrorKind::Exists,
        ErrorCode::InsufficientSpace | ErrorCode::Quota | ErrorCode::FileTooLarge => ErrorKind::NoSpace,
        ErrorCode::Access | ErrorCode::NotPermitted => ErrorKind::Denied,
        ErrorCode::ReadOnly => ErrorKind::ReadOnly,
        _ => ErrorKind::Other,
    }
}

impl Dir {
    pub(crate) fn granted(grant: &str) -> Result<Dir, crate::Error> {
        let found = preopens::get_directories().into_iter().find(|(_, name)| name == grant);
        found.map(|(dir, _)| Dir(dir)).ok_or_else(|| {
            crate::Error::denied("no-grant", format!("no directory is granted under the name `{grant}`"))
        })
    }

    fn open_at(
        &self,
        op: &'static str,
        path: &str,
        how: OpenFlags,
        flags: DescriptorFlags,
    ) -> Result<Descriptor, Error> {
        self.0.open_at(PathFlags::empty(), path, how, flags).map_err(failed(op, path))
    }

    /// A directory below this one.
    ///
    /// # Errors
    /// It is not there, or not a directory.
    pub fn open_dir(&self, path: &str) -> Result<Dir, Error> {
        let flags = DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY;
        self.open_at("open directory", path, OpenFlags::DIRECTORY, flags).map(Dir)
    }

    /// Makes a directory; answers whether it is new.
    ///
    /// # Errors
    /// It is not there and cannot be made.
    pub fn create_dir(&self, path: &str) -> Result<bool, Error> {
        match self.0.create_directory_at(path) {
            Ok(()) => Ok(true),
            Err(ErrorCode::Exist) => Ok(false),
            Err(code) => Err(failed("make directory", path)(code)),
        }
    }

    /// Makes a file for writing; fails when the name is taken.
    ///
    /// # Errors
    /// The name is taken, or the file cannot be made.
    pub fn create_new(&self, path: &str) -> Result<File, Error> {
        let how = OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        let inner = self.open_at("create", path, how, DescriptorFlags::WRITE)?;
        Ok(File { inner, path: path.to_owned() })
    }

    /// Opens a file that is there for writing, and changes nothing in it.
    ///
    /// # Errors
    /// It is not there, or may not be written.
    pub fn open_to_write(&self, path: &str) -> Result<File, Error> {
        let inner = self.open_at("open", path, OpenFlags::empty(), DescriptorFlags::WRITE)?;
        Ok(File { inner, path: path.to_owned() })
    }

    /// The content of a file of at most `limit` bytes.
    ///
    /// # Errors
    /// It is not there, cannot be read, or is larger.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let file = self.open_at("read", path, OpenFlags::empty(), DescriptorFlags::READ)?;
        let mut content = Vec::new();
        loop {
            let (bytes, end) = file.read(READ_STEP, content.len() as u64).map_err(failed("read", path))?;
            let empty = bytes.is_empty();
            content.extend_from_slice(&bytes);
            if content.len() as u64 > limit {
                return Err(Error {
                    kind: ErrorKind::TooLarge,
                    op: "read",
                    path: path.to_owned(),
                    detail: format!("larger than {limit} bytes"),
                });
            }
            if end || empty {
                return Ok(content);
            }
        }
    }

    /// What a name stands for; `None` when it is not there. Links are not followed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn metadata(&self, path: &str) -> Result<Option<Metadata>, Error> {
        match self.0.stat_at(PathFlags::empty(), path) {
            Ok(stat) => Ok(Some(Metadata { is_file: stat.type_ == DescriptorType::RegularFile, bytes: stat.size })),
            Err(ErrorCode::NoEntry) => Ok(None),
            Err(code) => Err(failed("look at", path)(code)),
        }
    }

    /// Moves a name, replacing what was there.
    ///
    /// # Errors
    /// The name is not there, or cannot be moved.
    pub fn rename(&self, from: &str, to_dir: &Dir, to: &str) -> Result<(), Error> {
        self.0.rename_at(from, &to_dir.0, to).map_err(failed("rename", from))
    }

    /// Gives a file a second name; fails when it is taken.
    ///
    /// # Errors
    /// The new name is taken, or the old one is not there.
    pub fn hard_link(&self, from: &str, to_dir: &Dir, to: &str) -> Result<(), Error> {
        self.0.link_at(PathFlags::empty(), from, &to_dir.0, to).map_err(failed("link", to))
    }

    /// Removes a name; answers whether it was there.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn remove_file(&self, path: &str) -> Result<bool, Error> {
        match self.0.unlink_file_at(path) {
            Ok(()) => Ok(true),
            Err(ErrorCode::NoEntry) => Ok(false),
            Err(code) => Err(failed("remove", path)(code)),
        }
    }

    /// The names in this directory, in no order.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let entries = self.0.read_directory().map_err(failed("list", "."))?;
        let mut names = Vec::new();
        loop {
            match entries.read_directory_entry() {
                Ok(Some(entry)) => names.push(entry.name),
                Ok(None) => return Ok(names),
                // Removed while the listing was made.
                Err(ErrorCode::NoEntry) => {}
                Err(code) => return Err(failed("list", ".")(code)),
            }
        }
    }

    /// Makes the names in this directory durable.
    ///
    /// # Errors
    /// They may not be durable.
    pub fn sync(&self) -> Result<(), Error> {
        self.0.sync().map_err(failed("flush directory", "."))
    }
}

impl File {
    /// A stream that writes from `offset` on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn stream(&self, offset: u64) -> Result<Stream, Error> {
        let inner = self.inner.write_via_stream(offset).map_err(failed("write", &self.path))?;
        Ok(Stream { inner, path: self.path.clone() })
    }

    /// Makes content and size durable. Only what streams have flushed is in the file.
    ///
    /// # Errors
    /// It may not be durable; flushing again proves nothing.
    pub fn sync(&self) -> Result<(), Error> {
        self.inner.sync_data().map_err(failed("flush", &self.path))
    }

    /// Asks the system to begin to write out `length` bytes from `offset` on, so that a later flush finds little left to
    /// do. Makes nothing durable and waits for nothing.
    pub fn begin_writing_out(&self, offset: u64, length: u64) {
        // Linux begins to write out what a file "does not need". Pages that are clean already leave the cache, so it is
        // for bytes that were just written. That a system has no such call changes nothing.
        let _ = self.inner.advise(offset, length, Advice::DontNeed);
    }

    /// The size in bytes.
    ///
    /// # Errors
    /// It cannot be asked for.
    pub fn bytes(&self) -> Result<u64, Error> {
        Ok(self.inner.stat().map_err(failed("look at", &self.path))?.size)
    }
}

impl Stream {
    pub(crate) fn output(&self) -> &OutputStream {
        &self.inner
    }

    /// Writes and flushes bytes of the plugin's own memory. Rows belong into [`crate::Batch::write_to`].
    ///
    /// # Errors
    /// The bytes may be there in part; the stream is dead.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for step in bytes.chunks(WRITE_STEP) {
            self.inner.blocking_write_and_flush(step).map_err(|error| {
                let (kind, detail) = match error {
                    StreamError::LastOperationFailed(error) => {
                        (filesystem_error_code(&error).map_or(ErrorKind::Other, kind_of), error.to_debug_string())
                    }
                    StreamError::Closed => (ErrorKind::Other, "the stream is closed".to_owned()),
                };
                Error { kind, op: "write", path: self.path.clone(), detail }
            })?;
        }
        Ok(())
    }
}
