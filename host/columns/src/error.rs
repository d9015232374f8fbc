use std::fmt;

/// Why something with typed rows could not be done, apart from single bad rows: those are
/// bad lines of a decoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnsError {
    /// What the caller should do.
    pub kind: ColumnsErrorKind,
    /// What happened, what was expected and how to mend it.
    pub message: String,
}

/// What an error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ColumnsErrorKind {
    /// A schema, or a text that should be one, is wrong; somebody must change the configuration.
    BadSchema,
    /// A transform, a folder template or another option is wrong; somebody must change the configuration.
    BadOption,
    /// A part would have more files than it may have: it has to end earlier.
    TooManyFiles,
    /// Bytes or values do not have the form that they should have; the same bytes fail again.
    BadValue,
    /// Valid, but not something that is done here.
    Unsupported,
    /// Reading or writing failed; it may work later.
    Io,
    /// A mistake of this program.
    Internal,
}

/// A result whose error is a [`ColumnsError`].
pub type Result<T, E = ColumnsError> = std::result::Result<T, E>;

impl ColumnsError {
    /// An error of a kind.
    pub fn new(kind: ColumnsErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// [`ColumnsErrorKind::BadSchema`]
    pub fn bad_schema(message: impl Into<String>) -> Self {
        Self::new(ColumnsErrorKind::BadSchema, message)
    }

    /// [`ColumnsErrorKind::BadOption`]
    pub fn bad_option(message: impl Into<String>) -> Self {
        Self::new(ColumnsErrorKind::BadOption, message)
    }

    /// [`ColumnsErrorKind::BadValue`]
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(ColumnsErrorKind::BadValue, message)
    }

    /// [`ColumnsErrorKind::Unsupported`]
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ColumnsErrorKind::Unsupported, message)
    }

    /// [`ColumnsErrorKind::Io`]
    pub fn io(message: impl Into<String>) -> Self {
        Self::new(ColumnsErrorKind::Io, message)
    }

    /// [`ColumnsErrorKind::Internal`]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ColumnsErrorKind::Internal, message)
    }
}

impl fmt::Display for ColumnsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ColumnsError {}
