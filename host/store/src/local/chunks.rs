//! Pieces of state: files named by the SHA-256 of what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use bytes::Bytes;
use tidegate_protocol::positions::Page;
use tidegate_protocol::record::StateChunk;

use super::layout::{self, Named, STATE_FOLDER};
use super::{flush_names, name_whole, write_whole};
use crate::StoreError;
use crate::disk::Disk;
use crate::memory::check_chunk_size;
use crate::state::{check_chunk, check_name, chunk_of};

/// What is known of the pieces that are there.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// By name.
    known: BTreeMap<String, Checked>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checked {
    /// Written by this process, or read for a checkpoint that names it.
    Yes,
    /// It is only seen: the flush of its name may have failed in an earlier process, and its content is not looked at.
    NotYet,
}

impl Chunks {
    /// Finds what is there, and removes what was left unfinished.
    pub(super) fn list(disk: &mut dyn Disk, dir: &Path) -> Result<Chunks, StoreError> {
        let sorted = classify(disk, dir)?;
        for name in &sorted.unfinished {
            remove(disk, dir, name)?;
        }
        flush(disk, dir)?;
        Ok(Chunks { known: sorted.whole.into_iter().map(|name| (name, Checked::NotYet)).collect() })
    }

    pub(super) fn put(&mut self, disk: &mut dyn Disk, dir: &Path, content: &[u8]) -> Result<StateChunk, StoreError> {
        check_chunk_size(content.len())?;
        let chunk = chunk_of(content);
        // What is only seen is written anew: it may have rotted, or be gone after a power cut.
        if self.known.get(&chunk.sha256) != Some(&Checked::Yes) {
            write_whole(disk, dir, &layout::chunk_path(&chunk.sha256), content)?;
        }
        self.known.insert(chunk.sha256.clone(), Checked::Yes);
        Ok(chunk)
    }

    /// Puts what is not there yet, with one flush of the folder for all.
    pub(super) fn put_pages<'a>(
        &mut self,
        disk: &mut dyn Disk,
        dir: &Path,
        pages: impl Iterator<Item = &'a Page>,
    ) -> Result<(), StoreError> {
        let mut named = Vec::new();
        for page in pages {
            let name = page.name();
            if self.known.get(&name.sha256) == Some(&Checked::Yes) || named.contains(&name) {
                continue;
            }
            match page.bytes() {
                Some(content) => {
                    check_chunk_size(content.len())?;
                    name_whole(disk, dir, &layout::chunk_path(&name.sha256), &content)?;
                }
                // One that an earlier checkpoint names and nobody has needed since.
                None if self.known.contains_key(&name.sha256) && read(disk, dir, name).is_ok() => {}
                None => {
                    let detail = "the next checkpoint names this page, which is neither there nor in memory";
                    return Err(missing(dir, &name.sha256, detail));
                }
            }
            named.push(name);
        }
        if !named.is_empty() {
            flush_names(disk, dir, STATE_FOLDER)?;
        }
        self.known.extend(named.into_iter().map(|name| (name.sha256.clone(), Checked::Yes)));
        Ok(())
    }

    /// Reads a piece; from then on new checkpoints may lean on it.
    pub(super) fn read(&mut self, disk: &mut dyn Disk, dir: &Path, chunk: &StateChunk) -> Result<Bytes, StoreError> {
        let content = read(disk, dir, chunk)?;
        if let Some(checked) = self.known.get_mut(&chunk.sha256) {
            *checked = Checked::Yes;
        }
        Ok(content)
    }

    pub(super) fn retain(
        &mut self,
        disk: &mut dyn Disk,
        dir: &Path,
        keep: &BTreeSet<StateChunk>,
    ) -> Result<u64, StoreError> {
        let sorted = classify(disk, dir)?;
        for chunk in keep {
            check_name(chunk)?;
            if !sorted.whole.contains(&chunk.sha256) {
                return Err(missing(dir, &chunk.sha256, "a retained checkpoint names this piece; nothing was deleted"));
            }
        }
        let kept: BTreeSet<&str> = keep.iter().map(|chunk| chunk.sha256.as_str()).collect();
        let mut removed = 0;
        for name in sorted.whole.iter().filter(|name| !kept.contains(name.as_str())) {
            self.known.remove(name);
            remove(disk, dir, name)?;
            removed += 1;
        }
        Ok(removed)
    }
}

/// Reads a piece and checks it against its name.
pub(super) fn read(disk: &mut dyn Disk, dir: &Path, chunk: &StateChunk) -> Result<Bytes, StoreError> {
    check_name(chunk)?;
    let path = layout::chunk_path(&chunk.sha256);
    // One byte more than it should have shows a file that is too long. The length was limited with the name.
    let limit = chunk.bytes as usize + 1;
    let content = disk.read(&path, 0, limit).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => missing(dir, &chunk.sha256, "a checkpoint names this piece of state"),
        _ => StoreError::io(dir.join(&path), "read", &error),
    })?;
    check_chunk(&dir.join(&path), chunk, &content)?;
    Ok(content.into())
}

#[derive(Default)]
struct Sorted {
    whole: BTreeSet<String>,
    unfinished: Vec<String>,
}

/// Sorts the folder's names, and stops at what does not belong there.
fn classify(disk: &mut dyn Disk, dir: &Path) -> Result<Sorted, StoreError> {
    let folder = dir.join(STATE_FOLDER);
    let entries = disk.list(STATE_FOLDER).map_err(|error| StoreError::io(&folder, "list", &error))?;
    let mut sorted = Sorted::default();
    for entry in entries {
        match layout::state_name(&entry.name) {
            Named::Chunk if entry.file => {
                sorted.whole.insert(entry.name);
            }
            Named::Unfinished if entry.file => sorted.unfinished.push(entry.name),
            _ => return Err(StoreError::ForeignFile { file: folder.join(entry.name) }),
        }
    }
    Ok(sorted)
}

fn remove(disk: &mut dyn Disk, dir: &Path, name: &str) -> Result<(), StoreError> {
    let path = layout::chunk_path(name);
    disk.remove(&path).map_err(|error| StoreError::io(dir.join(&path), "remove", &error))
}

fn flush(disk: &mut dyn Disk, dir: &Path) -> Result<(), StoreError> {
    disk.flush_folder(STATE_FOLDER).map_err(|error| StoreError::io(dir.join(STATE_FOLDER), "flush", &error))
}

fn missing(dir: &Path, name: &str, detail: &str) -> StoreError {
    StoreError::MissingFile { file: dir.join(layout::chunk_path(name)), slot: None, detail: detail.to_owned() }
}
