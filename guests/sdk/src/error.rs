//! Errors: a closed kind on which the host acts, an open code, and a message for a person.

use std::fmt;

/// Closed list of what an error means for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The same call may work later.
    Retryable,
    /// The same call will never work.
    Permanent,
    /// The configuration is wrong; the message names the key.
    BadConfig,
    /// One row of the batch is wrong and it is not known which.
    BadBatch,
    /// This instance can no longer finish its epoch.
    EpochLost,
    /// A newer run owns the destination.
    Fenced,
    /// This sink does not do that.
    Unsupported,
    /// Not allowed, by destination or host.
    Denied,
    /// Not known whether it happened.
    Unknown,
}

/// An answer that says no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What the host should do.
    pub kind: ErrorKind,
    /// Open; for dashboards. Of `no-space`, `read-only` and `conflict` (another program changed what the call builds on),
    /// and of the kind `Denied`, a person is told at once: time alone does not mend them.
    pub code: String,
    /// What happened and how to mend it.
    pub message: String,
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident = $kind:ident;)*) => {
        impl Error {
            $(
                $(#[$doc])*
                pub fn $name(code: impl Into<String>, message: impl Into<String>) -> Self {
                    Self { kind: ErrorKind::$kind, code: code.into(), message: message.into() }
                }
            )*
        }
    };
}

constructors! {
    /// The same call may work later.
    retryable = Retryable;
    /// The same call will never work.
    permanent = Permanent;
    /// The configuration is wrong; name the key in the message.
    bad_config = BadConfig;
    /// One row of the batch is wrong and it is not known which.
    bad_batch = BadBatch;
    /// This instance can no longer finish its epoch.
    epoch_lost = EpochLost;
    /// A newer run owns the destination.
    fenced = Fenced;
    /// Not allowed.
    denied = Denied;
    /// Not known whether it happened.
    unknown = Unknown;
}

impl Error {
    /// This sink does not do that.
    pub fn unsupported(call: &str) -> Self {
        Self { kind: ErrorKind::Unsupported, code: "unsupported".into(), message: format!("this sink has no {call}") }
    }

    /// The same error under another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for Error {}
