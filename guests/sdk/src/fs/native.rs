//! The same files, natively: for tests, and for measuring what the sandbox costs.
//!
//! Every call passes through the host's [`crate::native::Probe`], which may stop it: that is how crashes are tested.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::fs::{Error, ErrorKind, Metadata};
use crate::native::{FsOp, Host};

/// A directory that was granted, or one below it.
pub struct Dir {
    path: PathBuf,
    host: Arc<Host>,
}

/// An open file.
pub struct File {
    inner: Arc<fs::File>,
    path: PathBuf,
    host: Arc<Host>,
}

/// Where rows go: bytes are added at the place where the last ones ended.
pub struct Stream {
    inner: Arc<fs::File>,
    offset: u64,
    path: PathBuf,
    host: Arc<Host>,
}

fn failed(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.display().to_string();
    move |error| {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::NotFound,
            io::ErrorKind::AlreadyExists => ErrorKind::Exists,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ErrorKind::NoSpace
            }
            io::ErrorKind::PermissionDenied => ErrorKind::Denied,
            io::ErrorKind::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            _ => ErrorKind::Other,
        };
        Error { kind, op, path, detail: error.to_string() }
    }
}

impl Dir {
    pub(crate) fn granted(host: Arc<Host>, path: PathBuf) -> Dir {
        Dir { path, host }
    }

    /// The full path; what leads outside is refused as the sandbox would.
    fn at(&self, op: &'static str, path: &str) -> Result<PathBuf, Error> {
        let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if inside && !path.is_empty() {
            return Ok(self.path.join(path));
        }
        Err(Error { kind: ErrorKind::Denied, op, path: path.to_owned(), detail: "leads outside".to_owned() })
    }

    fn before(&self, op: FsOp<'_>) -> Result<(), Error> {
        self.host.before(op)
    }

    /// A directory below this one.
    ///
    /// # Errors
    /// It is not there, or not a directory.
    pub fn open_dir(&self, path: &str) -> Result<Dir, Error> {
        let full = self.at("open directory", path)?;
        let metadata = fs::symlink_metadata(&full).map_err(failed("open directory", &full))?;
        if !metadata.is_dir() {
            return Err(failed("open directory", &full)(io::ErrorKind::NotADirectory.into()));
        }
        Ok(Dir { path: full, host: self.host.clone() })
    }

    /// Makes a directory; answers whether it is new.
    ///
    /// # Errors
    /// It is not there and cannot be made.
    pub fn create_dir(&self, path: &str) -> Result<bool, Error> {
        let full = self.at("make directory", path)?;
        if full.is_dir() {
            return Ok(false);
        }
        self.before(FsOp::CreateDir(&full))?;
        match fs::create_dir(&full) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(failed("make directory", &full)(error)),
        }
    }

    /// Makes a file for writing; fails when the name is taken.
    ///
    /// # Errors
    /// The name is taken, or the file cannot be made.
    pub fn create_new(&self, path: &str) -> Result<File, Error> {
        let full = self.at("create", path)?;
        self.before(FsOp::Create(&full))?;
        let file = fs::OpenOptions::new().write(true).create_new(true).open(&full).map_err(failed("create", &full))?;
        Ok(File { inner: Arc::new(file), path: full, host: self.host.clone() })
    }

    /// Opens a file that is there for writing, and changes nothing in it.
    ///
    /// # Errors
    /// It is not there, or may not be written.
    pub fn open_to_write(&self, path: &str) -> Result<File, Error> {
        let full = self.at("open", path)?;
        self.before(FsOp::Open(&full))?;
        let file = fs::OpenOptions::new().write(true).open(&full).map_err(failed("open", &full))?;
        Ok(File { inner: Arc::new(file), path: full, host: self.host.clone() })
    }

    /// The content of a file of at most `limit` bytes.
    ///
    /// # Errors
    /// It is not there, cannot be read, or is larger.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let full = self.at("read", path)?;
        self.before(FsOp::Read(&full))?;
        let file = fs::File::open(&full).map_err(failed("read", &full))?;
        let mut content = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut content).map_err(failed("read", &full))?;
        if content.len() as u64 > limit {
            return Err(Error {
                kind: ErrorKind::TooLarge,
                op: "read",
                path: path.to_owned(),
                detail: format!("larger than {limit} bytes"),
            });
        }
        Ok(content)
    }

    /// What a name stands for; `None` when it is not there. Links are not followed.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn metadata(&self, path: &str) -> Result<Option<Metadata>, Error> {
        let full = self.at("look at", path)?;
        match fs::symlink_metadata(&full) {
            Ok(metadata) => Ok(Some(Metadata { is_file: metadata.is_file(), bytes: metadata.len() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("look at", &full)(error)),
        }
    }

    /// Moves a name, replacing what was there.
    ///
    /// # Errors
    /// The name is not there, or cannot be moved.
    pub fn rename(&self, from: &str, to_dir: &Dir, to: &str) -> Result<(), Error> {
        let (from, to) = (self.at("rename", from)?, to_dir.at("rename", to)?);
        self.before(FsOp::Rename(&from, &to))?;
        fs::rename(&from, &to).map_err(failed("rename", &from))
    }

    /// Gives a file a second name; fails when it is taken.
    ///
    /// # Errors
    /// The new name is taken, or the old one is not there.
    pub fn hard_link(&self, from: &str, to_dir: &Dir, to: &str) -> Result<(), Error> {
        let (from, to) = (self.at("link", from)?, to_dir.at("link", to)?);
        self.before(FsOp::Link(&from, &to))?;
        fs::hard_link(&from, &to).map_err(failed("link", &to))
    }

    /// Removes a name; answers whether it was there.
    ///
    /// # Errors
    /// It is there and cannot be removed.
    pub fn remove_file(&self, path: &str) -> Result<bool, Error> {
        let full = self.at("remove", path)?;
        self.before(FsOp::Remove(&full))?;
        match fs::remove_file(&full) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("remove", &full)(error)),
        }
    }

    /// The names in this directory, in no order.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        self.before(FsOp::List(&self.path))?;
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed("list", &self.path))? {
            let name = entry.map_err(failed("list", &self.path))?.file_name().into_string();
            names.push(name.map_err(|_| failed("list", &self.path)(io::ErrorKind::InvalidData.into()))?);
        }
        Ok(names)
    }

    /// Makes the names in this directory durable.
    ///
    /// # Errors
    /// They may not be durable.
    pub fn sync(&self) -> Result<(), Error> {
        self.before(FsOp::SyncDir(&self.path))?;
        if !self.host.flushes() {
            return Ok(());
        }
        let synced = fs::File::open(&self.path).and_then(|dir| dir.sync_all());
        synced.map_err(failed("flush directory", &self.path))
    }
}

impl File {
    /// A stream that writes from `offset` on.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn stream(&self, offset: u64) -> Result<Stream, Error> {
        Ok(Stream { inner: self.inner.clone(), offset, path: self.path.clone(), host: self.host.clone() })
    }

    /// Makes content and size durable. Only what streams have flushed is in the file.
    ///
    /// # Errors
    /// It may not be durable; flushing again proves nothing.
    pub fn sync(&self) -> Result<(), Error> {
        self.host.before(FsOp::SyncFile(&self.path))?;
        if !self.host.flushes() {
            return Ok(());
        }
        self.inner.sync_data().map_err(failed("flush", &self.path))
    }

    /// Asks the system to begin to write out `length` bytes from `offset` on, so that a later flush finds little left to
    /// do. Makes nothing durable and waits for nothing. Natively nothing happens.
    pub fn begin_writing_out(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// The size in bytes.
    ///
    /// # Errors
    /// It cannot be asked for.
    pub fn bytes(&self) -> Result<u64, Error> {
        Ok(self.inner.metadata().map_err(failed("look at", &self.path))?.len())
    }
}

impl Stream {
    /// Writes bytes at the place where the last ones ended.
    ///
    /// # Errors
    /// The bytes may be there in part; the stream is dead.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.host.before(FsOp::Write(&self.path, self.offset, bytes))?;
        let mut file: &fs::File = &self.inner;
        // Like `write-via-stream`: the place is the stream's, not the descriptor's.
        io::Seek::seek(&mut file, io::SeekFrom::Start(self.offset)).map_err(failed("write", &self.path))?;
        file.write_all(bytes).map_err(failed("write", &self.path))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
