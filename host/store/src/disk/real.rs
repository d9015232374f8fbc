//! A real directory, confined: no path leads out of it.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};

use super::{Disk, Entry};

/// Files kept open, so that a write and its flush go through one descriptor: the kernel reports a failed write-back to
/// descriptors that were open when it happened.
const KEPT_OPEN: usize = 4;

/// A directory of the machine.
#[derive(Debug)]
pub struct RealDisk {
    dir: Dir,
    /// Most recently used last.
    open: Vec<(String, std::fs::File)>,
}

impl RealDisk {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// It is not there, or may not be read.
    pub fn open(dir: &Path) -> io::Result<RealDisk> {
        Ok(RealDisk { dir: Dir::open_ambient_dir(dir, ambient_authority())?, open: Vec::new() })
    }

    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    fn writable(&mut self, path: &str) -> io::Result<&std::fs::File> {
        let kept = match self.open.iter().position(|(name, _)| name == path) {
            Some(at) => self.open.remove(at),
            None => {
                let file = self.dir.open_with(path, OpenOptions::new().read(true).write(true))?;
                (path.to_owned(), file.into_std())
            }
        };
        Ok(self.keep(kept))
    }

    fn keep(&mut self, kept: (String, std::fs::File)) -> &std::fs::File {
        if self.open.len() >= KEPT_OPEN {
            self.open.remove(0);
        }
        self.open.push(kept);
        let last = self.open.len() - 1;
        &self.open[last].1
    }

    fn forget(&mut self, path: &str) {
        self.open.retain(|(name, _)| name != path);
    }
}

impl Disk for RealDisk {
    fn list(&mut self, folder: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in self.dir.read_dir(folder)? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed by its owner while we look.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(Entry { name, len: metadata.len(), file: metadata.is_file() });
        }
        Ok(entries)
    }

    fn read(&mut self, path: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let file = self.dir.open(path)?.into_std();
        // Not more memory than there is file, whatever was asked for.
        let there = file.metadata()?.len().saturating_sub(offset);
        let len = len.min(usize::try_from(there).unwrap_or(usize::MAX));
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn create(&mut self, path: &str) -> io::Result<()> {
        let file = self.dir.open_with(path, OpenOptions::new().read(true).write(true).create_new(true))?;
        self.keep((path.to_owned(), file.into_std()));
        Ok(())
    }

    fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writable(path)?.write_all_at(bytes, offset)
    }

    fn flush(&mut self, path: &str) -> io::Result<()> {
        self.writable(path)?.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.forget(from);
        self.forget(to);
        self.dir.rename(from, &self.dir, to)
    }

    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.forget(path);
        self.dir.remove_file(path)
    }

    fn make_folder(&mut self, folder: &str) -> io::Result<()> {
        match self.dir.create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.dir.is_dir(folder) => Ok(()),
            other => other,
        }
    }

    fn remove_folder(&mut self, folder: &str) -> io::Result<()> {
        self.dir.remove_dir(folder)
    }

    fn flush_folder(&mut self, folder: &str) -> io::Result<()> {
        let folder = if folder.is_empty() { "." } else { folder };
        // A descriptor opened with O_PATH, as cap-std's may be, cannot be flushed: open it for reading.
        let opened = self.dir.open(folder)?.into_std();
        opened.sync_all()
    }
}
