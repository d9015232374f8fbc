//! Why a source cannot go on.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tidegate_protocol::positions::NotLoaded;

/// A source cannot be opened, or cannot go on. The message names the file or partition and says how to mend it.
#[derive(Debug)]
pub enum SourceError {
    /// The options contradict each other.
    Configuration {
        /// The key of the pipeline file.
        key: &'static str,
        /// What was expected.
        expected: String,
    },
    /// A pattern matches nothing.
    NothingMatches {
        /// The pattern as written.
        pattern: String,
        /// The directory that was searched.
        searched: PathBuf,
    },
    /// A file that was being read at the checkpoint is not found any more.
    Missing {
        /// Its partition.
        partition: String,
        /// What its position counts, `line` or `row`.
        unit: &'static str,
        /// The last one that was read, from 1.
        last: u64,
    },
    /// A followed file is nowhere, and not all of it was read.
    Gone {
        /// Its partition.
        partition: String,
        /// Its name when it was seen last.
        name: String,
        /// The last line that was read.
        line: u64,
        /// Bytes behind it, as far as they were seen.
        unread: u64,
        /// Another file has its name.
        name_taken: bool,
    },
    /// A followed file is shorter than what was seen of it, or begins otherwise, and no copy of the rest is found.
    CutOff {
        /// Its partition.
        partition: String,
        /// Its name.
        name: String,
        /// The last line that was read.
        line: u64,
        /// Bytes that are known to have been behind it and are found nowhere.
        unread: u64,
        /// The copy that was found, and that lacks them; if none are known to be lost, that has other rows in it.
        copy: Option<String>,
    },
    /// A followed file was truncated or overwritten, and still begins with rows that were read.
    Headed {
        /// Its partition.
        partition: String,
        /// Its name.
        name: String,
        /// The last line that was read.
        line: u64,
        /// Bytes that are known to have been behind it and are found nowhere.
        unread: u64,
        /// The last line at its beginning that is known to be what was read.
        known: u64,
        /// Nothing behind them is what was read.
        all: bool,
    },
    /// What is there is not what was there at the checkpoint.
    Changed {
        /// Which partition.
        partition: String,
        /// How it changed.
        how: String,
    },
    /// A new file is one that was read before the checkpoint and is not there any more under its old name.
    Renamed {
        /// The name in the checkpoint.
        partition: String,
        /// The new one.
        now: String,
        /// It was read to its end.
        finished: bool,
    },
    /// The content of a compressed file before the position is not what was handed out.
    Replaced {
        /// Which partition.
        partition: String,
        /// The line behind the position.
        next_line: u64,
    },
    /// A compressed file is damaged. That may be found out behind rows that are wrong: a checksum comes last.
    Damaged {
        /// Which.
        partition: String,
        /// How it is compressed.
        format: &'static str,
        /// Complete lines handed out before.
        lines: u64,
        /// What the decompressor says.
        problem: String,
    },
    /// A compressed file ends in the middle.
    Truncated {
        /// Which.
        partition: String,
        /// How it is compressed.
        format: &'static str,
        /// Complete lines before the end.
        lines: u64,
    },
    /// The bytes are not what the format demands.
    Malformed {
        /// Which partition.
        partition: String,
        /// Where, if lines were being read.
        line: Option<u64>,
        /// What was expected.
        expected: String,
    },
    /// A stored position cannot be used.
    Position {
        /// Whose.
        partition: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The operating system said no.
    Io {
        /// What was being read.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
    /// The reader's own task ended; only while the host shuts down, or after a defect.
    Interrupted(String),
}

impl SourceError {
    /// Trying again cannot help before a person has done something.
    pub fn permanent(&self) -> bool {
        match self {
            Self::Io { error, .. } => matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::IsADirectory
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::InvalidInput
            ),
            Self::Interrupted(_) => false,
            _ => true,
        }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration { key, expected } => write!(f, "`{key}`: {expected}"),
            Self::NothingMatches { pattern, searched } => write!(
                f,
                "no file matches `{pattern}`; searched in {}. Correct the pattern, or put the files there first",
                searched.display()
            ),
            Self::Missing { partition, unit, last } => write!(
                f,
                "{partition}: was read up to {unit} {last} at the checkpoint and is not there any more, or no pattern of \
                 `paths` matches it any more. Put the file or the pattern back; a file may go once it is finished"
            ),
            Self::Gone { partition, name, line, unread, name_taken } => {
                write!(f, "{name}")?;
                if partition != name {
                    write!(f, " (partition {partition})")?;
                }
                let taken = if *name_taken { ", and another file has its name" } else { "" };
                write!(
                    f,
                    ": was read up to line {line}, with {unread} more bytes seen behind it, and is not found in its \
                     directory any more{taken}; rows of it may be lost. Put it back there, under any name, uncompressed; \
                     or set `on-lost-rows = \"warn\"` to go on without them"
                )
            }
            Self::CutOff { partition, name, line, unread, copy } => {
                write!(f, "{name}")?;
                if partition != name {
                    write!(f, " (partition {partition})")?;
                }
                write!(f, ": was truncated or overwritten after line {line} was read, ")?;
                match (copy, unread) {
                    (Some(copy), 0) => write!(
                        f,
                        "and its copy {copy} has something else behind a part of what was read; rows that were written \
                         to the copy alone are lost"
                    )?,
                    (Some(copy), _) => write!(f, "and its copy {copy} ends before what was seen of it")?,
                    (None, _) => write!(f, "and no copy of its old content is found in its directory")?,
                }
                match (copy, unread) {
                    (Some(_), 0) => {}
                    (None, 0) => write!(f, "; rows written behind that line before, if any, are lost")?,
                    (_, unread) => write!(f, "; {unread} bytes that were seen behind that line are lost")?,
                }
                write!(
                    f,
                    ". What is there now is read from its start. If it is not: put a copy of the old content into that \
                     directory, or set `on-lost-rows = \"warn\"`"
                )
            }
            Self::Headed { partition, name, line, unread, known, all } => {
                write!(f, "{name}")?;
                if partition != name {
                    write!(f, " (partition {partition})")?;
                }
                write!(
                    f,
                    ": was truncated or overwritten after line {line} was read, no copy of its old content is found in its \
                     directory, and it begins with lines 1 to {known} of that"
                )?;
                match all {
                    true => write!(f, " and nothing else of it")?,
                    false => write!(f, "; whether what is behind them was read cannot be known")?,
                }
                match unread {
                    0 => write!(f, "; rows written behind line {line} before, if any, are lost")?,
                    unread => write!(f, "; {unread} bytes that were seen behind line {line} are lost")?,
                }
                write!(
                    f,
                    ". It is read behind line {known}. If it is not: put the old content, or a copy of it, back into that \
                     directory, or set `on-lost-rows = \"warn\"`"
                )
            }
            Self::Changed { partition, how } => write!(
                f,
                "{partition}: {how}, so the position of the checkpoint does not fit it. Put the old content back, or \
                 put what is new, and only that, into a file of its own"
            ),
            Self::Renamed { partition, now, finished } => write!(
                f,
                "{now}: begins with all that was read of {partition}, which was {} and is not there any more, so its \
                 rows would be read twice. If {now} is {partition} under a new name, or packed or unpacked since, put it \
                 back as it was, or move it to where no pattern of `paths` matches it; if it is new data that happens to be the same, put a copy of \
                 the old data back as {partition}, and both stay apart",
                if *finished { "read to its end" } else { "being read at the checkpoint" }
            ),
            Self::Replaced { partition, next_line } => write!(
                f,
                "{partition}: the file was replaced or edited: its content before line {next_line} is not what was \
                 handed on up to the checkpoint. Put the old content back. If the file was damaged when it was read and \
                 this is the intact one, rows handed on were wrong: start from a checkpoint older than them"
            ),
            Self::Damaged { partition, format, lines, problem } => write!(
                f,
                "{partition}: the {format} data is damaged ({problem}). {lines} whole lines before this were read and \
                 may be delivered already; damage among them is only found here, behind them. Put the intact file \
                 there and start again: reading goes on if it is the same up to the checkpoint, and is refused \
                 otherwise; then start from a checkpoint older than the wrong rows"
            ),
            Self::Truncated { partition, format, lines } => write!(
                f,
                "{partition}: the {format} data ends in the middle. {lines} whole lines before this were read and may \
                 be delivered already; this is not taken for the end of the file. Put the complete file there and \
                 start again: reading goes on if it is the same up to the checkpoint"
            ),
            Self::Malformed { partition, line: Some(line), expected } => {
                write!(f, "{partition}, line {line}: {expected}")
            }
            Self::Malformed { partition, line: None, expected } => write!(f, "{partition}: {expected}"),
            Self::Position { partition, problem } => {
                write!(f, "{partition}: the checkpoint's position cannot be used: {problem}")
            }
            Self::Io { path, error } => write!(f, "{}: cannot be read: {error}", path.display()),
            Self::Interrupted(why) => write!(f, "reading was interrupted: {why}"),
        }
    }
}

impl From<NotLoaded> for SourceError {
    fn from(error: NotLoaded) -> Self {
        Self::Interrupted(format!("the checkpoint was not read whole: {error}"))
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            _ => None,
        }
    }
}
