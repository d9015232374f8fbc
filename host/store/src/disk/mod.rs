//! The seam between a log and its directory: what a log asks of a disk, and nothing else. Crashes are built through it.

mod lock;
mod real;
pub mod sim;
mod vet;

use std::io;

pub(crate) use lock::DirLock;
pub use real::RealDisk;
pub(crate) use vet::refuse_network;

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name; what is not UTF-8 in it is replaced.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// An ordinary file: not a folder, a link or a device.
    pub file: bool,
}

/// A directory as a log sees it. Paths are relative, with `/` between folder and name.
///
/// Nothing is durable before it is flushed: a file's bytes and length by [`Disk::flush`], its name, a rename and a
/// removal by [`Disk::flush_folder`]. An error of either flush means that what was to be flushed is lost, whatever a
/// later read shows, and flushing once more proves nothing.
pub trait Disk: Send {
    /// The entries of a folder, in any order.
    ///
    /// # Errors
    /// The folder is not there, or the device failed.
    fn list(&mut self, folder: &str) -> io::Result<Vec<Entry>>;

    /// Up to `len` bytes from `offset`; fewer at the file's end.
    ///
    /// # Errors
    /// The file is not there, or the device failed.
    fn read(&mut self, path: &str, offset: u64, len: usize) -> io::Result<Vec<u8>>;

    /// Makes an empty file.
    ///
    /// # Errors
    /// The name is taken, or the device failed.
    fn create(&mut self, path: &str) -> io::Result<()>;

    /// Writes all of `bytes` at `offset` of an existing file.
    ///
    /// # Errors
    /// Disk full or device failed; any part may have been written.
    fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the file's bytes and length durable.
    ///
    /// # Errors
    /// They are not durable.
    fn flush(&mut self, path: &str) -> io::Result<()>;

    /// Gives a file another name, in one step; a file that had that name is gone.
    ///
    /// # Errors
    /// Nothing was changed.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// It is not there, or the device failed.
    fn remove(&mut self, path: &str) -> io::Result<()>;

    /// Makes a folder if it is not there.
    ///
    /// # Errors
    /// Something else has that name, or the device failed.
    fn make_folder(&mut self, folder: &str) -> io::Result<()>;

    /// Removes a folder in which nothing is.
    ///
    /// # Errors
    /// Something is in it, it is not there, or the device failed.
    fn remove_folder(&mut self, folder: &str) -> io::Result<()>;

    /// Makes a folder's names durable. The empty name is the directory itself.
    ///
    /// # Errors
    /// They are not durable.
    fn flush_folder(&mut self, folder: &str) -> io::Result<()>;
}
