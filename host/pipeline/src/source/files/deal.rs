//! What there is, compared with what a checkpoint says, and dealt to tasks. The same for files of every format.

use std::cmp::Reverse;
use std::path::PathBuf;

use tidegate_protocol::positions::Entries;
use tidegate_protocol::record::SourceCut;

use super::discover::Found;
use crate::source::SourceError;

/// A file and where to go on in it. Cheap; the file is not open.
pub(in crate::source) trait Waiting: Send + 'static {
    /// Its partition.
    fn name(&self) -> &str;

    /// Its position as kept in checkpoints.
    fn position(&self) -> String;

    /// Bytes to be read, about. 0 only if it is finished.
    fn left(&self) -> u64;
}

/// How files of one format are compared with a checkpoint.
pub(in crate::source) trait Compare {
    /// Where a file was left.
    type Position;
    /// A file that is there.
    type File: Waiting;

    /// Reads what a checkpoint says of a file.
    fn parse(&self, name: &str, text: &str) -> Result<Self::Position, SourceError>;

    /// Looks at a file, and whether it is the one that was there.
    fn find(&mut self, name: &str, path: PathBuf, restored: Option<Self::Position>) -> Result<Self::File, SourceError>;

    /// A file is not there any more. The error, if it was not finished.
    fn gone(&mut self, name: &str, position: Self::Position) -> Result<(), SourceError>;

    /// Refuses a new file that is one of those that are gone.
    fn refuse_renamed(&self, new: &Self::File) -> Result<(), SourceError>;
}

/// Files, and what a checkpoint must not forget.
pub(in crate::source) struct Share<F> {
    pub(in crate::source) files: Vec<F>,
    /// Positions of files that are finished and not there any more.
    pub(in crate::source) gone: Vec<(String, String)>,
}

/// All files, each checked against the checkpoint.
pub(in crate::source) fn compare<C: Compare>(
    mut found: Found,
    restored: Option<&SourceCut>,
    mut format: C,
) -> Result<Share<C::File>, SourceError> {
    let mut share = Share { files: Vec::new(), gone: Vec::new() };
    let mut missing = Ok(());
    let known = restored.map(|cut| cut.partitions.entries()).transpose()?;
    for (name, text) in known.iter().flat_map(Entries::iter) {
        let position = format.parse(name, text)?;
        match found.remove(name) {
            Some(path) => share.files.push(format.find(name, path, Some(position))?),
            None => match format.gone(name, position) {
                Ok(()) => share.gone.push((name.to_owned(), text.to_owned())),
                Err(error) => missing = missing.and(Err(error)),
            },
        }
    }
    if restored.is_some() && !found.is_empty() {
        let names: Vec<&str> = found.keys().take(10).map(String::as_str).collect();
        tracing::info!(count = found.len(), files = ?names, "new files since the checkpoint");
    }
    for (name, path) in found {
        let file = format.find(&name, path, None)?;
        format.refuse_renamed(&file)?;
        share.files.push(file);
    }
    // Last, because saying where the file went is the better answer.
    missing.map(|()| share)
}

/// Deals files by the bytes that are left: the largest first, each to the task with the least so far. Each task reads
/// its own in order of their names.
pub(in crate::source) fn deal<F: Waiting>(share: Share<F>, tasks: u32) -> Vec<Share<F>> {
    let Share { mut files, mut gone } = share;
    let mut shares: Vec<(u64, Vec<F>)> = (0..tasks.max(1)).map(|_| (0, Vec::new())).collect();
    files.sort_by(|a, b| (Reverse(a.left()), a.name()).cmp(&(Reverse(b.left()), b.name())));
    for file in files {
        let least = shares.iter_mut().min_by_key(|(bytes, share)| (*bytes, share.len()));
        let (bytes, share) = least.expect("there is at least one task");
        *bytes = bytes.saturating_add(file.left());
        share.push(file);
    }
    let sorted = |mut files: Vec<F>| {
        files.sort_by(|a, b| a.name().cmp(b.name()));
        files
    };
    shares.into_iter().map(|(_, files)| Share { files: sorted(files), gone: std::mem::take(&mut gone) }).collect()
}
