//! Opening: read, check, and put on the disk what will be acted upon.
//!
//! After a crash of the process the page cache may show a record whose flush had failed: it would be believed, acted
//! upon, and gone after the next power cut. Flushing the old file again proves nothing, because the kernel counts its
//! pages as written. So the newest segment, the only one that can hold such a record, is written again as a new file.

use std::io::ErrorKind;
use std::path::PathBuf;

use super::chunks::Chunks;
use super::layout::{LOG_FOLDER, STATE_FOLDER};
use super::scan::{Scan, Segment, scan};
use super::segment_file::{PIECE, write_segment};
use super::{FIRST_SEGMENT, LocalLog, OpenOptions, Recovery, check_pipeline};
use crate::codec::{Header, SECTOR};
use crate::disk::{DirLock, Disk};
use crate::{StoreError, Tail};

impl LocalLog {
    pub(super) fn recover(
        mut disk: Box<dyn Disk>,
        dir: PathBuf,
        lock: Option<DirLock>,
        options: OpenOptions,
    ) -> Result<LocalLog, StoreError> {
        let io = |path: &str, doing, error: &std::io::Error| StoreError::io(dir.join(path), doing, error);
        for folder in [LOG_FOLDER, STATE_FOLDER] {
            // One in which nothing is may be there only to see: the flush that was to keep it may have failed. Made anew, it
            // is flushed as what it is. What else has its name is for the next line to tell.
            match disk.remove_folder(folder) {
                Err(error) if !stays(error.kind()) => return Err(io(folder, "remove", &error)),
                _ => disk.make_folder(folder).map_err(|error| io(folder, "create", &error))?,
            }
        }
        disk.flush_folder("").map_err(|error| io("", "flush", &error))?;

        let mut found = scan(&mut *disk, &dir, &mut |record| check_pipeline(&record, options.pipeline.as_ref(), &dir))?;
        let chunks = Chunks::list(&mut *disk, &dir)?;
        if let Tail::Torn { file, offset, slot } = &found.tail {
            tracing::warn!(file = %file.display(), offset, %slot, "cutting a record that a crash left unfinished");
        }
        let removed = remove_leftovers(&mut *disk, &dir, &mut found)?;
        rewrite_newest(&mut *disk, &dir, &options, &mut found)?;

        Ok(LocalLog {
            disk,
            lock,
            options,
            log: found.segments.first().map(|segment| segment.header.log),
            segments: found.segments,
            index: found.index,
            chunks,
            poisoned: None,
            recovery: Recovery { tail: found.tail, removed },
            dir,
        })
    }
}

/// A folder that was to be removed if nothing is in it stays as it is, or was never there.
fn stays(why: ErrorKind) -> bool {
    // Some systems say of a folder that is not empty that it exists. What is mounted there, or may not be removed, was made
    // by somebody else.
    use ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory, NotFound, PermissionDenied, ResourceBusy};
    matches!(why, NotFound | DirectoryNotEmpty | AlreadyExists | NotADirectory | PermissionDenied | ResourceBusy)
}

/// Removes what an interrupted change left. Before anything is renamed: a segment whose records were copied elsewhere
/// must not come back once its copy is no longer marked as one.
fn remove_leftovers(disk: &mut dyn Disk, dir: &std::path::Path, found: &mut Scan) -> Result<Vec<PathBuf>, StoreError> {
    let leftovers = std::mem::take(&mut found.leftovers);
    for path in &leftovers {
        disk.remove(path).map_err(|error| StoreError::io(dir.join(path), "remove", &error))?;
    }
    // Also without leftovers: a rename of the process before us may have been seen and not flushed.
    disk.flush_folder(LOG_FOLDER).map_err(|error| StoreError::io(dir.join(LOG_FOLDER), "flush", &error))?;
    Ok(leftovers.iter().map(|path| dir.join(path)).collect())
}

/// Writes the newest segment that holds something again, as a new file that takes the old one's name. A newer one that
/// is empty goes afterwards: the mark that announced it may not have reached the disk.
fn rewrite_newest(
    disk: &mut dyn Disk,
    dir: &std::path::Path,
    options: &OpenOptions,
    found: &mut Scan,
) -> Result<(), StoreError> {
    let dropped = if found.empty_newest { found.segments.pop() } else { None };
    if let Some(newest) = found.segments.last_mut() {
        let path = newest.path();
        let header = Header { last: None, capacity: capacity_for(newest, options), ..newest.header };
        write_segment(disk, dir, &header, |pieces| {
            while pieces.at() < newest.used {
                let wanted = usize::try_from(newest.used - pieces.at()).map_or(PIECE, |rest| rest.min(PIECE));
                let at = pieces.at();
                let bytes = pieces
                    .disk()
                    .read(&path, at, wanted)
                    .map_err(|error| StoreError::io(dir.join(&path), "read", &error))?;
                if bytes.len() != wanted {
                    return Err(StoreError::corrupt(dir.join(&path), newest.used, None, "the file became shorter"));
                }
                pieces.put(&bytes)?;
            }
            Ok(())
        })?;
        newest.header = header;
        newest.rolled = false;
    }
    if let Some(dropped) = dropped {
        let path = dropped.path();
        let removed = disk.remove(&path).and_then(|()| disk.flush_folder(LOG_FOLDER));
        removed.map_err(|error| StoreError::io(dir.join(&path), "remove", &error))?;
    }
    Ok(())
}

/// Room to go on: twice what is used, within the limit, and always enough for what is there and a closing frame.
fn capacity_for(segment: &Segment, options: &OpenOptions) -> u64 {
    let wanted = segment.used.saturating_mul(2).next_power_of_two().max(FIRST_SEGMENT);
    wanted.min(options.segment_limit()).max(segment.used + 2 * SECTOR as u64)
}
