//! Files of the checkpoint that are not there any more, and whether a new one is one of them under another name.

use std::collections::BTreeMap;
use std::fs::File;

use super::partition::{Partition, identify};
use super::position::{HEAD, Identity, Position, read_tail};
use crate::source::SourceError;
use crate::source::input::{Compression, Input};
use crate::source::window::{Window, digest};

/// Positions by the length and the digest of the first bytes that they know.
#[derive(Default)]
pub(super) struct Absent {
    by_head: BTreeMap<u64, BTreeMap<String, Vec<(String, Position)>>>,
    /// Those of compressed files by their name without the ending. Their heads are compressed bytes, which tell nothing
    /// of the same content compressed in another way or not at all.
    packed: BTreeMap<String, Vec<(String, Position)>>,
}

impl Absent {
    /// Adds a file that is gone. Ones without any content tell nothing: all of them look the same.
    pub(super) fn add(&mut self, name: &str, position: Position) {
        if position.offset > 0 {
            if position.checksum.is_some() {
                let same_stem = self.packed.entry(unpacked_name(name).to_owned()).or_default();
                same_stem.push((name.to_owned(), position.clone()));
            }
            let heads = self.by_head.entry(position.head_len).or_default();
            heads.entry(position.head.clone()).or_default().push((name.to_owned(), position));
        }
    }

    /// Refuses a new file that begins with all that was read of a file that is gone: its rows would be read again. A file
    /// that was packed since is known by its content, one that was unpacked or packed in another way by its name without
    /// the ending and its content.
    ///
    /// # Errors
    /// It is such a file, or it cannot be read.
    pub(super) fn refuse(&self, new: &Partition, compression: Compression) -> Result<(), SourceError> {
        if self.by_head.is_empty() {
            return Ok(());
        }
        let (file, identity, compression) = identify(&new.name, &new.path, compression)?;
        let found = match self.as_it_was(new, &file, &identity, compression)? {
            None if compression != Compression::None => self.packed_since(new, compression)?,
            found => found,
        };
        let found = match found {
            None => self.of_this_name(new, compression)?,
            found => found,
        };
        match found {
            None => Ok(()),
            Some((old, position)) => {
                Err(SourceError::Renamed { partition: old.clone(), now: new.name.to_string(), finished: position.done })
            }
        }
    }

    /// The file that this one was, byte by byte.
    fn as_it_was(
        &self,
        new: &Partition,
        file: &File,
        identity: &Identity,
        compression: Compression,
    ) -> Result<Option<&(String, Position)>, SourceError> {
        for candidate in self.with_head(&identity.head) {
            let (_, position) = candidate;
            if identity.size < position.size {
                continue;
            }
            let is = if compression == Compression::None {
                let tail = read_tail(file, position.offset).map_err(|error| new.io(error))?;
                position.checksum.is_none() && digest(&tail) == position.tail
            } else {
                holds(new, compression, position)?
            };
            if is {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// The plain file that this compressed one was.
    fn packed_since(
        &self,
        new: &Partition,
        compression: Compression,
    ) -> Result<Option<&(String, Position)>, SourceError> {
        let head = first_bytes(new, compression)?;
        for candidate in self.with_head(&head) {
            if candidate.1.checksum.is_none() && holds(new, compression, &candidate.1)? {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// The compressed file that had this name, but for the ending.
    fn of_this_name(
        &self,
        new: &Partition,
        compression: Compression,
    ) -> Result<Option<&(String, Position)>, SourceError> {
        for candidate in self.packed.get(unpacked_name(&new.name)).into_iter().flatten() {
            if holds(new, compression, &candidate.1)? {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }

    /// Files that began like this.
    fn with_head<'a, 'h>(&'a self, head: &'h [u8]) -> impl Iterator<Item = &'a (String, Position)> + use<'a, 'h> {
        let known = |length: u64| usize::try_from(length).ok().and_then(|length| head.get(..length));
        // Ascending, so once one is too long all others are longer still.
        let heads = self.by_head.iter().map_while(move |(length, heads)| known(*length).map(|head| (head, heads)));
        heads.filter_map(|(head, heads)| heads.get(&digest(head))).flatten()
    }
}

/// A name without what says how the file is compressed.
fn unpacked_name(name: &str) -> &str {
    let endings = [".gz", ".gzip", ".zst", ".zstd"];
    endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

/// The first bytes of a file's content.
fn first_bytes(new: &Partition, compression: Compression) -> Result<Vec<u8>, SourceError> {
    let mut head = Vec::with_capacity(HEAD);
    let mut input = open(new, compression)?;
    while head.len() < HEAD {
        match input.read_into(&mut head) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(super::partition::explain(new, compression, 0, error.into())),
        }
    }
    head.truncate(HEAD);
    Ok(head)
}

/// Whether what was read up to `position` is in this file too. It is read up to there, which only happens to files with
/// the same first bytes or the same name.
fn holds(new: &Partition, compression: Compression, position: &Position) -> Result<bool, SourceError> {
    let mut window = Window::summing(open(new, compression)?);
    loop {
        match window.skip_towards(position.offset) {
            Ok(true) => return Ok(position.is_at(&window)),
            Ok(false) => {}
            Err(error) => return Err(super::partition::explain(new, compression, window.lines(), error.into())),
        }
    }
}

fn open(new: &Partition, compression: Compression) -> Result<Input, SourceError> {
    File::open(&new.path).and_then(|file| Input::new(file, compression)).map_err(|error| new.io(error))
}
