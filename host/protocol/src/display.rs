//! Words for what went wrong.

use std::fmt;

use crate::event::TaskFailure;

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin(sink, fault) => write!(f, "sink `{sink}`: {fault}"),
            Self::Source { source, message, .. } => write!(f, "source `{source}`: {message}"),
            Self::Shape { sink, message } => write!(f, "sink `{sink}`: {message}"),
            Self::BadRow { message } | Self::Host(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for TaskFailure {}
