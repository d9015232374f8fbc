//! Where a Parquet file was left, and whether it is still that file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate_columns::parquet::footer_of;
use tidegate_columns::{ColumnsError, ColumnsErrorKind};

use crate::source::SourceError;
use crate::source::files::position::read_at;
use crate::source::window::digest;

/// Bytes at the start of a file, and before its footer, that tell it from another with the same footer.
const EDGE: u64 = 4096;

/// The position of a file, as kept in checkpoints. Unknown fields are refused: they would change the meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct Position {
    /// Rows read.
    pub(super) row: u64,
    /// Rows there are.
    pub(super) rows: u64,
    /// Everything was read.
    pub(super) done: bool,
    /// The file's size in bytes.
    pub(super) size: u64,
    /// Digest of the footer and the bytes around it, see [`Identity`].
    pub(super) content: String,
}

impl Position {
    /// At the start of a file whose rows were not counted.
    pub(super) fn start(identity: Identity) -> Self {
        Self { row: 0, rows: 0, done: false, size: identity.size, content: identity.content }
    }

    /// Takes the number of rows from the file.
    ///
    /// # Errors
    /// Rows were read, and there were another number of them.
    pub(super) fn settle_rows(&mut self, partition: &str, rows: u64) -> Result<(), SourceError> {
        if self.begun() && self.rows != rows {
            let problem = format!("{} of {} rows were read, and the file has {rows}", self.row, self.rows);
            return Err(SourceError::Position { partition: partition.to_owned(), problem });
        }
        self.rows = rows;
        Ok(())
    }

    pub(super) fn parse(partition: &str, text: &str) -> Result<Self, SourceError> {
        let wrong = |problem: String| SourceError::Position { partition: partition.to_owned(), problem };
        let position: Self = serde_json::from_str(text).map_err(|error| {
            wrong(format!(
                "it is not one of a Parquet file ({error}); if the source had another format before, give it a new name"
            ))
        })?;
        let Self { row, rows, done, .. } = position;
        if row > rows || (done && row < rows) {
            let end = if done { ", and finished," } else { "" };
            return Err(wrong(format!("{row} rows read{end} of {rows} cannot be")));
        }
        Ok(position)
    }

    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a struct of numbers and strings is always JSON")
    }

    /// Whether it has to be the same file.
    pub(super) fn begun(&self) -> bool {
        self.row > 0 || self.done
    }

    /// Checks that a file, of which rows were read, is still the same.
    ///
    /// # Errors
    /// It is not; or it cannot be read.
    pub(super) fn check(&self, partition: &str, path: &Path, file: &File, when: &str) -> Result<(), SourceError> {
        let changed = |how: String| SourceError::Changed { partition: partition.to_owned(), how };
        let size = file.metadata().map_err(|error| SourceError::Io { path: path.to_owned(), error })?.len();
        if size != self.size {
            return Err(changed(format!(
                "the file was written anew or appended to {when} (it had {} bytes and has {size}), which is not done to \
                 Parquet files",
                self.size
            )));
        }
        match Identity::of(file, partition, path) {
            Ok(identity) if identity.content == self.content => Ok(()),
            Err(error @ SourceError::Io { .. }) => Err(error),
            // What cannot be read as Parquet is not what was read before.
            Ok(_) | Err(_) => Err(changed(format!("the file was replaced by another one of the same size {when}"))),
        }
    }
}

/// What tells a file from others: its size, and a digest over its first bytes, its footer, and the bytes before that.
/// The footer alone says where columns lie, but need not say anything of their values.
pub(super) struct Identity {
    size: u64,
    content: String,
}

impl Identity {
    /// Looks at a file that was opened from `path`.
    pub(super) fn of(file: &File, partition: &str, path: &Path) -> Result<Self, SourceError> {
        let io = |error| SourceError::Io { path: path.to_owned(), error };
        let size = file.metadata().map_err(io)?.len();
        let footer = footer_of(file, partition).map_err(|error| explain(partition, path, error))?;
        let head = EDGE.min(footer.start);
        let tail = footer.start.saturating_sub(EDGE).max(head);
        let mut bytes = read_at(file, 0, head as usize).map_err(io)?;
        // The footer has at most 256 MiB: longer ones are refused where they are found.
        let length = usize::try_from(footer.end - tail).unwrap_or(usize::MAX);
        bytes.extend(read_at(file, tail, length).map_err(io)?);
        Ok(Self { size, content: digest(&bytes) })
    }
}

/// Our error for what the columns' library says of a file.
pub(super) fn explain(partition: &str, path: &Path, error: ColumnsError) -> SourceError {
    // It was told the name; ours is put before the message again.
    let message = error.message.strip_prefix(&format!("{partition}: ")).unwrap_or(&error.message);
    match error.kind {
        ColumnsErrorKind::Io => {
            let message = message.strip_prefix("cannot be read: ").unwrap_or(message).to_owned();
            SourceError::Io { path: path.to_owned(), error: io::Error::other(message) }
        }
        _ => SourceError::Malformed { partition: partition.to_owned(), line: None, expected: message.to_owned() },
    }
}

/// Files of the checkpoint that are not there any more, by what they were.
#[derive(Default)]
pub(super) struct Absent {
    by_content: BTreeMap<(u64, String), (String, bool)>,
}

impl Absent {
    /// Adds a file that is gone, if rows of it were read.
    pub(super) fn add(&mut self, name: &str, position: Position) {
        if position.row > 0 {
            self.by_content.insert((position.size, position.content), (name.to_owned(), position.done));
        }
    }

    /// Refuses a new file that is one of them: its rows would be read again.
    pub(super) fn refuse(&self, name: &str, position: &Position) -> Result<(), SourceError> {
        match self.by_content.get(&(position.size, position.content.clone())) {
            Some((partition, finished)) => {
                Err(SourceError::Renamed { partition: partition.clone(), now: name.to_owned(), finished: *finished })
            }
            None => Ok(()),
        }
    }
}
