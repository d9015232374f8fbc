//! What can go wrong with a file.

use std::fmt;

/// What went wrong, as far as a sink acts on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// No such name.
    NotFound,
    /// The name is taken.
    Exists,
    /// The disk is full, or a quota is spent.
    NoSpace,
    /// Not allowed.
    Denied,
    /// The file system is mounted read-only.
    ReadOnly,
    /// The content is larger than the caller takes.
    TooLarge,
    /// Anything else.
    Other,
}

/// A call on a file that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// What was tried.
    pub op: &'static str,
    /// The name, relative to its directory.
    pub path: String,
    /// What the system said.
    pub detail: String,
}

impl Error {
    /// The name is not there.
    pub fn is_not_found(&self) -> bool {
        self.kind == ErrorKind::NotFound
    }

    /// The name is taken.
    pub fn is_exists(&self) -> bool {
        self.kind == ErrorKind::Exists
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} `{}`: {}", self.op, self.path, self.detail)
    }
}

impl std::error::Error for Error {}

impl From<Error> for crate::Error {
    /// A full disk or a broken one may be mended and the call repeated; a missing name or right may not.
    fn from(error: Error) -> crate::Error {
        let message = error.to_string();
        match error.kind {
            ErrorKind::NoSpace => crate::Error::retryable("no-space", message),
            ErrorKind::Denied => crate::Error::denied("file-denied", message),
            ErrorKind::ReadOnly => crate::Error::denied("read-only", message),
            ErrorKind::NotFound => crate::Error::permanent("file-missing", message),
            ErrorKind::Exists => crate::Error::permanent("file-exists", message),
            ErrorKind::TooLarge => crate::Error::permanent("file-too-large", message),
            ErrorKind::Other => crate::Error::retryable("file-io", message),
        }
    }
}
