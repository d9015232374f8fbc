//! What the process tells its caller when it ends.

use std::process::ExitCode;

use tidegate_server::ErrorKind;

/// Exit codes. They never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Finished, or stopped with everything committed. Also when there was nothing to do.
    Done = 0,
    /// Failed, or standard output could not be written. Starting again may help.
    Failed = 1,
    /// The command line or the pipeline file is wrong.
    Usage = 2,
    /// Refused: log and destination disagree, the file or the input does not fit the state, the input is not what the file
    /// says, or the guarantee is too weak. Starting again does not help; what refuses before the run changes nothing at any
    /// destination.
    Refused = 3,
    /// Stopped with epochs that are sealed and not yet committed. Starting again finishes them.
    InDoubt = 4,
    /// Blocked: a person must decide, with `tidegate resolve`.
    Blocked = 5,
    /// Another process, or a newer run, owns the pipeline.
    Owned = 6,
    /// The log cannot be read or written.
    Log = 7,
    /// Left at once on a second Ctrl-C. Nothing is lost: starting again goes on at the last sealed epoch.
    Left = 130,
}

/// The list for `--help`.
macro_rules! exit_codes {
    () => {
        "\
Exit codes:
    0  finished, or stopped with everything committed; also when nothing was to be done
    1  failed; starting again may help
    2  the command line or the pipeline file is wrong
    3  refused: log and destination disagree, the file or the input does not fit the state, the input is not what the
       file says, or the guarantee is too weak
    4  stopped with epochs sealed and not yet committed; starting again finishes them
    5  blocked: a person must decide, see `tidegate resolve`
    6  another process, or a newer run, owns the pipeline
    7  the log cannot be read or written
  130  left at once on a second Ctrl-C; nothing is lost"
    };
}

/// What `--help` says last.
pub(crate) const AFTER_HELP: &str =
    concat!("`tidegate config reference` prints every table and key of a pipeline file.\n\n", exit_codes!());

#[cfg(test)]
const EXIT_CODES: &str = exit_codes!();

impl Exit {
    #[cfg(test)]
    const ALL: [Exit; 9] = [
        Exit::Done,
        Exit::Failed,
        Exit::Usage,
        Exit::Refused,
        Exit::InDoubt,
        Exit::Blocked,
        Exit::Owned,
        Exit::Log,
        Exit::Left,
    ];
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Exit {
        match kind {
            ErrorKind::Config => Exit::Usage,
            ErrorKind::Refused => Exit::Refused,
            ErrorKind::NotOwner => Exit::Owned,
            ErrorKind::Log => Exit::Log,
            ErrorKind::Failed => Exit::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_in_the_help() {
        for exit in Exit::ALL {
            let start = format!("{:>5}  ", exit as u8);
            assert!(EXIT_CODES.lines().any(|line| line.starts_with(&start)), "{exit:?}");
        }
        assert_eq!(EXIT_CODES.lines().filter(|line| !line.starts_with("       ")).count(), Exit::ALL.len() + 1);
    }
}
