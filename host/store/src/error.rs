//! What can go wrong with a log, and what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};

use tidegate_protocol::ids::{PipelineId, Slot};

/// What the caller should do about a [`StoreError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The same call may be made again: nothing was changed, the log still accepts work.
    Retry,
    /// The call was wrong and stays wrong; the log still accepts work.
    Invalid,
    /// A person must change something outside: free space, another directory, another version of the program.
    Mend,
    /// Stored bytes are not what was written. A person must restore them; nothing was changed.
    Damaged,
    /// Another process owns the log, or took it over.
    NotOwner,
    /// This process must end. The next one recovers the log when it opens it.
    Stop,
}

/// A log that cannot be read, written or opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// Another process holds the lock.
    Locked {
        /// The log's directory.
        dir: PathBuf,
        /// The holder, where it could be found out.
        pid: Option<u32>,
    },
    /// The lock file at the log's path is no longer the one that this process holds.
    LockLost {
        /// The lock file.
        file: PathBuf,
        /// What was found instead.
        detail: String,
    },
    /// Stored bytes are not what was written.
    Corrupt {
        /// Which file.
        file: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// The record that stands there or should, where known.
        slot: Option<Slot>,
        /// What was found and what was expected.
        detail: String,
    },
    /// A file, or a range of records, that must be there is not.
    MissingFile {
        /// Which file, or the directory where it should be.
        file: PathBuf,
        /// First record that is missing, where known.
        slot: Option<Slot>,
        /// How its absence was noticed.
        detail: String,
    },
    /// The directory holds a file that this program did not put there.
    ForeignFile {
        /// Which.
        file: PathBuf,
    },
    /// Written by another version of the format.
    UnsupportedVersion {
        /// Which file.
        file: PathBuf,
        /// Version found.
        found: u16,
        /// Newest version that this program reads.
        supported: u16,
    },
    /// Opened for inspection only.
    ReadOnly {
        /// The log's directory.
        dir: PathBuf,
    },
    /// No log has been written there yet.
    NoLog {
        /// The directory.
        dir: PathBuf,
    },
    /// The disk, or a quota, is full. What was being written is not there.
    Full {
        /// The file that was being written.
        file: PathBuf,
        /// The system's message.
        detail: String,
    },
    /// The directory lies on a file system whose locks and flushes cannot be relied on.
    NetworkFileSystem {
        /// The directory.
        dir: PathBuf,
        /// The file system's kind.
        kind: String,
    },
    /// A write or flush failed before; nothing more is accepted in this process.
    Poisoned {
        /// The log's directory.
        dir: PathBuf,
        /// The first failure.
        reason: String,
    },
    /// The log belongs to another pipeline.
    ForeignPipeline {
        /// The log's directory.
        dir: PathBuf,
        /// Whose it is.
        found: PipelineId,
        /// Whose it should be.
        expected: PipelineId,
    },
    /// Larger than one record or chunk may be.
    TooLarge {
        /// What.
        what: String,
        /// Its size in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// `open` records are never deleted: they make a sleeper of an older run collide.
    OpenRecord {
        /// Which.
        slot: Slot,
    },
    /// A piece of state that is named differently from what it holds, or is not named by a SHA-256 in hex.
    BadChunkName {
        /// The name.
        name: String,
    },
    /// The system refused.
    Io {
        /// Which file or directory.
        file: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's message.
        detail: String,
    },
}

impl StoreError {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Locked { .. } | Self::LockLost { .. } => ErrorKind::NotOwner,
            Self::Corrupt { .. } | Self::MissingFile { .. } => ErrorKind::Damaged,
            Self::ForeignFile { .. }
            | Self::UnsupportedVersion { .. }
            | Self::NoLog { .. }
            | Self::NetworkFileSystem { .. }
            | Self::ForeignPipeline { .. } => ErrorKind::Mend,
            Self::Full { .. } => ErrorKind::Retry,
            Self::ReadOnly { .. } | Self::TooLarge { .. } | Self::OpenRecord { .. } | Self::BadChunkName { .. } => {
                ErrorKind::Invalid
            }
            Self::Poisoned { .. } => ErrorKind::Stop,
            Self::Io { .. } => ErrorKind::Mend,
        }
    }

    pub(crate) fn corrupt(
        file: impl Into<PathBuf>,
        offset: u64,
        slot: Option<Slot>,
        detail: impl Into<String>,
    ) -> StoreError {
        Self::Corrupt { file: file.into(), offset, slot, detail: detail.into() }
    }

    /// Sorts a system error: no space is [`StoreError::Full`], anything else [`StoreError::Io`].
    pub(crate) fn io(file: impl AsRef<Path>, doing: &'static str, error: &std::io::Error) -> StoreError {
        let file = file.as_ref().to_owned();
        let detail = error.to_string();
        if is_full(error) { Self::Full { file, detail } } else { Self::Io { file, doing, detail } }
    }
}

/// Whether the system said that there is no room.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { dir, pid } => {
                write!(f, "the log in `{}` is in use by ", dir.display())?;
                match pid {
                    Some(pid) => write!(f, "process {pid}")?,
                    None => f.write_str("another process")?,
                }
                f.write_str("; wait for it to end or stop it, a log has one owner at a time")
            }
            Self::LockLost { file, detail } => write!(
                f,
                "`{}` is no longer the lock that this process holds ({detail}); another process may own the log now, so \
                 nothing more is written. Do not move or delete a state directory while its pipeline runs",
                file.display()
            ),
            Self::Corrupt { file, offset, slot, detail } => {
                write!(f, "`{}` is damaged at byte {offset}", file.display())?;
                if let Some(slot) = slot {
                    write!(f, ", record {slot}")?;
                }
                write!(f, ": {detail}. {RESTORE}")
            }
            Self::MissingFile { file, slot, detail } => {
                match slot {
                    Some(slot) => write!(f, "record {slot} and its file are missing from `{}`", file.display())?,
                    None => write!(f, "`{}` is missing", file.display())?,
                }
                write!(f, ": {detail}. {RESTORE}")
            }
            Self::ForeignFile { file } => write!(
                f,
                "`{}` does not belong to this log; move it out of the directory, which must hold nothing else",
                file.display()
            ),
            Self::UnsupportedVersion { file, found, supported } => write!(
                f,
                "`{}` is written in format version {found}, this program reads up to version {supported}; run the \
                 version of the program that wrote it, or a newer one",
                file.display()
            ),
            Self::ReadOnly { dir } => write!(f, "the log in `{}` was opened for reading only", dir.display()),
            Self::NoLog { dir } => write!(
                f,
                "there is no log in `{}`; the pipeline has not run yet, or its `state` names another directory",
                dir.display()
            ),
            Self::Full { file, detail } => write!(
                f,
                "no room to write `{}` ({detail}); free some space or raise the quota, nothing was lost",
                file.display()
            ),
            Self::NetworkFileSystem { dir, kind } => write!(
                f,
                "`{}` lies on {kind}, a file system whose locks and flushes cannot be relied on between machines; put \
                 the state directory on a local disk (ext4, xfs, btrfs, zfs)",
                dir.display()
            ),
            Self::Poisoned { dir, reason } => write!(
                f,
                "the log in `{}` accepts nothing more in this process, because an earlier write failed: {reason}. Mend \
                 the disk and start again; the log is recovered when it is opened",
                dir.display()
            ),
            Self::ForeignPipeline { dir, found, expected } => write!(
                f,
                "the log in `{}` belongs to pipeline `{found}`, not to `{expected}`; give every pipeline a state \
                 directory of its own, or set the name back",
                dir.display()
            ),
            Self::TooLarge { what, bytes, limit } => {
                write!(f, "{what} has {bytes} bytes, the limit is {limit}; keep large state in chunks beside the log")
            }
            Self::OpenRecord { slot } => {
                write!(
                    f,
                    "record {slot} opens a run; such records are never deleted, because older runs collide with it"
                )
            }
            Self::BadChunkName { name } => {
                write!(
                    f,
                    "`{name}` does not name a piece of state: expected a SHA-256 in 64 characters of lower-case hex"
                )
            }
            Self::Io { file, doing, detail } => {
                write!(f, "cannot {doing} `{}`: {detail}; check the path, its permissions and the disk", file.display())
            }
        }
    }
}

const RESTORE: &str = "Nothing was changed. Restore the state directory from a copy that is complete, or begin with an \
                       empty one; destinations that are ahead of it are then refused until you choose a policy";

impl std::error::Error for StoreError {}
