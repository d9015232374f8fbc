//! What is in a folder, read as it is asked for: a folder with very many names costs the host no memory.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, Dir, FileType};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

use super::{code, identity};

/// Stands behind WASI's `directory-entry-stream`.
pub(crate) struct Listing(Dir);

impl Listing {
    pub(crate) fn new(dir: &File) -> io::Result<Self> {
        Ok(Self(Dir::read_from(dir)?))
    }

    /// The next entry, in no order; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<DirectoryEntry>, ErrorCode> {
        loop {
            let Some(entry) = self.0.read() else { return Ok(None) };
            let entry = entry.map_err(|error| code(&error.into()))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let dir = self.0.fd().map_err(|error| code(&error.into()))?;
                kind = identity::at(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| code(&error))?.kind;
            }
            let name = name.to_str().map_err(|_| ErrorCode::IllegalByteSequence)?;
            return Ok(Some(DirectoryEntry { type_: descriptor_type(kind), name: name.to_owned() }));
        }
    }
}

/// In WASI's words.
pub(crate) fn descriptor_type(kind: FileType) -> DescriptorType {
    match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        _ => DescriptorType::Unknown,
    }
}
