//! Why a pipeline cannot be assembled, run or looked into.

use std::fmt;

use tidegate_pipeline::RunError;
use tidegate_pipeline::source::SourceError;
use tidegate_protocol::guarantee::Delivery;
use tidegate_protocol::history::HistoryError;
use tidegate_protocol::ids::SourceId;
use tidegate_store::StoreError;

use crate::config::{ConfigError, PipelineFile, of_source};

/// What the caller should do about a [`ServerError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The request or the pipeline file is wrong and must be edited.
    Config,
    /// The file does not fit the state, or asks for more than can be promised. Nothing was changed.
    Refused,
    /// Another process owns the pipeline.
    NotOwner,
    /// The log cannot be read or written, or contradicts itself.
    Log,
    /// Something outside failed; trying again may help.
    Failed,
}

impl ErrorKind {
    /// What to do about a source that cannot be read, whenever that shows.
    pub(crate) fn of_source(error: &SourceError) -> Self {
        match error {
            SourceError::Configuration { .. } => ErrorKind::Config,
            // A right may be given and a disk may come back without a word to the pipeline.
            SourceError::Io { .. } => ErrorKind::Failed,
            error if error.permanent() => ErrorKind::Refused,
            _ => ErrorKind::Failed,
        }
    }
}

/// Why something did not happen.
#[derive(Debug)]
pub enum ServerError {
    /// The pipeline file is wrong, or its parts do not fit together, or not what a plugin or source can do.
    Config(ConfigError),
    /// A source cannot be used, for a reason that is not the file's.
    Source {
        /// Names the source, and the place in the file if it leads there.
        message: String,
        /// Why.
        error: SourceError,
    },
    /// A destination cannot be used, for a reason that is not the file's.
    Destination {
        /// Why; names the sink.
        problem: String,
    },
    /// More was asked for than can be promised.
    Guarantee {
        /// What was asked for and what can be promised.
        problem: String,
        /// What can be promised.
        promised: Delivery,
        /// Why, one line each.
        reasons: Vec<String>,
    },
    /// The file does not fit the state that is there.
    Edits(Vec<Refused>),
    /// What was asked for does not fit what is there, whatever the file says.
    Refused(Refused),
    /// The request names something that is not there, or is not in the state that it needs.
    Request {
        /// What is wrong with it.
        problem: String,
        /// What would be right.
        hints: Vec<String>,
    },
    /// A newer run, of another state directory, owns the destination.
    Superseded {
        /// How that was noticed.
        problem: String,
        /// What to do.
        hints: Vec<String>,
    },
    /// The log's files cannot be used.
    Store(StoreError),
    /// The log contradicts itself.
    History(HistoryError),
    /// The driver could not start, or its log was lost.
    Run(RunError),
    /// The host's own part failed.
    Host(String),
}

/// Something that is not allowed, such as an edit of a pipeline file that its state does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What it is and why that cannot be.
    pub problem: String,
    /// How to go on.
    pub hints: Vec<String>,
}

impl ServerError {
    /// A source of this file cannot be used: what is wrong with the file is told with its place.
    pub(crate) fn of_source(file: &PipelineFile, source: &SourceId, error: SourceError) -> Self {
        match &error {
            SourceError::Configuration { key, .. } => {
                let keys: Vec<_> = key.split('.').collect();
                file.wrong(&of_source(source, &keys), format!("source `{source}`: {error}"), vec![]).into()
            }
            SourceError::NothingMatches { .. } => {
                let message = file.told_at(&of_source(source, &["paths"]), format!("source `{source}`: {error}"));
                ServerError::Source { message, error }
            }
            _ => ServerError::Source { message: format!("source `{source}`: {error}"), error },
        }
    }

    pub(crate) fn refused(problem: impl Into<String>, hints: Vec<String>) -> Self {
        ServerError::Refused(Refused { problem: problem.into(), hints })
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        use tidegate_store::ErrorKind as Store;
        match self {
            ServerError::Config(_) | ServerError::Request { .. } => ErrorKind::Config,
            ServerError::Source { error, .. } => ErrorKind::of_source(error),
            ServerError::Destination { .. } | ServerError::Host(_) => ErrorKind::Failed,
            ServerError::Guarantee { .. } | ServerError::Edits(_) | ServerError::Refused(_) => ErrorKind::Refused,
            ServerError::Superseded { .. } => ErrorKind::NotOwner,
            ServerError::Store(StoreError::ForeignPipeline { .. }) => ErrorKind::Refused,
            ServerError::Store(error) if error.kind() == Store::NotOwner => ErrorKind::NotOwner,
            ServerError::Run(RunError::Log(error)) if error.kind() == Store::NotOwner => ErrorKind::NotOwner,
            ServerError::Run(RunError::Spec(_)) => ErrorKind::Config,
            ServerError::Store(_) | ServerError::History(_) | ServerError::Run(_) => ErrorKind::Log,
        }
    }

    /// What happened, each in one line, with how to mend it.
    pub fn messages(&self) -> Vec<(String, Vec<String>)> {
        match self {
            ServerError::Config(error) => {
                let message = |problem: &crate::config::Problem| {
                    (format!("{}: {}", error.place(problem), problem.message), problem.hints.clone())
                };
                error.problems.iter().map(message).collect()
            }
            ServerError::Source { message, .. } => vec![(message.clone(), vec![])],
            ServerError::Destination { problem } => vec![(problem.clone(), vec![])],
            ServerError::Request { problem, hints } | ServerError::Superseded { problem, hints } => {
                vec![(problem.clone(), hints.clone())]
            }
            ServerError::Guarantee { problem, promised, reasons } => {
                let mut hints = reasons.clone();
                hints.push(format!("write guarantee = \"{promised}\" in [pipeline] if that is enough"));
                vec![(problem.clone(), hints)]
            }
            ServerError::Refused(refused) => vec![(refused.problem.clone(), refused.hints.clone())],
            ServerError::Edits(edits) => edits.iter().map(|e| (e.problem.clone(), e.hints.clone())).collect(),
            ServerError::History(error) => vec![(
                format!("the log contradicts itself: {error}"),
                vec!["nothing was changed; restore the state directory from a complete copy".to_owned()],
            )],
            ServerError::Store(error) => vec![(error.to_string(), vec![])],
            ServerError::Run(error) => vec![(error.to_string(), vec![])],
            ServerError::Host(message) => vec![(message.clone(), vec![])],
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<_> = self.messages().into_iter().map(|(message, _)| message).collect();
        f.write_str(&messages.join("\n"))
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServerError::Config(error) => Some(error),
            ServerError::Source { error, .. } => Some(error),
            ServerError::Store(error) => Some(error),
            ServerError::History(error) => Some(error),
            ServerError::Run(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ConfigError> for ServerError {
    fn from(error: ConfigError) -> Self {
        ServerError::Config(error)
    }
}

impl From<StoreError> for ServerError {
    fn from(error: StoreError) -> Self {
        ServerError::Store(error)
    }
}

impl From<HistoryError> for ServerError {
    fn from(error: HistoryError) -> Self {
        ServerError::History(error)
    }
}
