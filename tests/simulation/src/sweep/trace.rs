//! What happened in one execution: facts, written down by those who did it. Failure points are recognised in them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::ids::{PartId, RunId};
use tidegate_protocol::plugin::Call;

use super::effect::{DiskOp, Mode, What};

/// Which process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host(pub(crate) u16);

/// One call of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) sink: usize,
    pub(crate) call: Call,
    /// On whose behalf; not known of an instantiation.
    pub(crate) run: Option<RunId>,
    /// Whom it is about.
    pub(crate) parts: Vec<PartId>,
    /// Tells calls of the same kind apart.
    pub(crate) id: u64,
}

impl Site {
    pub(crate) fn is(&self, call: Call) -> bool {
        self.call == call
    }

    /// The newest epoch that it is about.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.parts.iter().map(|part| part.epoch.0).max()
    }

    pub(crate) fn about(&self, part: &PartId) -> bool {
        self.parts.contains(part)
    }
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The host makes it.
    Asked,
    /// The request has arrived.
    Arrived,
    /// So many steps are done.
    Middle(u32),
    /// All is done; with a good answer or not.
    Done(bool),
    /// The host has the answer.
    Answered(bool),
    /// The host has stopped waiting.
    Dropped,
}

/// What a record is, as far as failure points speak of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Open,
    Seal { epoch: u64, empty: bool },
    Retire,
    Deleted,
    Released,
    Intent,
    Decision,
    Finished,
    Other,
}

/// What came of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    Created,
    Taken,
    Unknown,
    NotWritten,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    /// A process begins.
    Life(Host),
    /// It passes this.
    Moment(Host, Moment),
    /// It has decided its run.
    Opened(Host, RunId),
    /// A sink's epoch is committed, as the host sees it.
    Committed {
        host: Host,
        sink: usize,
        epoch: u64,
    },
    /// An epoch waits for a person.
    Blocked {
        host: Host,
        sink: usize,
    },
    Call {
        host: Host,
        site: Site,
        stage: Stage,
    },
    /// A request arrived that nobody waits for any more.
    Late {
        site: Site,
        ok: bool,
    },
    /// Rows were rejected by a plugin, or could not be read.
    Rejected(Host),
    /// A changing operation was carried out.
    Disk {
        host: Host,
        tenant: usize,
        op: DiskOp,
        path: String,
        ok: bool,
    },
    /// The log was asked to keep a record.
    Append {
        host: Host,
        tenant: usize,
        kind: Kind,
        outcomes: usize,
        stage: Option<Appended>,
    },
    /// The log was opened, or could not be.
    Recovered {
        host: Host,
        tenant: usize,
        refused: Option<String>,
    },
    /// Rows, or none, were read by this task of the source.
    Read {
        host: Host,
        task: usize,
        rows: u64,
        watermark: Option<i64>,
        ended: bool,
    },
    /// A source was opened, or refused to be.
    SourceOpened {
        host: Host,
        from: Option<u64>,
        ok: bool,
    },
    /// A log was read, and not all of it was seen.
    LeftOut(Host),
    /// Progress is told outside.
    Published {
        host: Host,
        rows: u64,
    },
    /// The disturbance.
    Disturbed {
        host: Host,
        n: u64,
        what: What,
        mode: Mode,
    },
    /// What the power cut left, in words.
    Image(Vec<Loss>),
    /// What was changed before the next process.
    Changed(super::effect::Between),
    /// The clock was set off.
    ClockJumped(Host),
    /// A process was ended from outside.
    Killed(Host),
    /// It was held and goes on.
    Woke(Host),
    /// It ended by itself.
    Ended(Host, String),
}

/// What a power cut did to one thing that was not flushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Loss {
    /// A write is there in part; torn at this sector of so many.
    Torn { at: usize, of: usize },
    /// A write is not there.
    Write,
    /// A name, a rename or a removal is not there.
    Name,
}

/// The facts of one execution; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<Fact>>>);

impl Trace {
    pub(crate) fn of(facts: Vec<Fact>) -> Self {
        Self(Arc::new(Mutex::new(facts)))
    }

    pub(crate) fn note(&self, fact: Fact) {
        self.lock().push(fact);
    }

    pub(crate) fn facts(&self) -> Vec<Fact> {
        self.lock().clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Fact>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |parts: &[PartId]| {
            let name = |part: &PartId| format!("r{}e{}p{}", part.run.number, part.epoch, part.ordinal);
            parts.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        match self {
            Self::Life(host) => write!(f, "== process {} begins", host.0),
            Self::Moment(host, moment) => write!(f, "{}: {}", host.0, moment.as_str()),
            Self::Opened(host, run) => write!(f, "{}: run {}", host.0, run.number),
            Self::Committed { host, sink, epoch } => write!(f, "{}: sink {sink}: epoch {epoch} is committed", host.0),
            Self::Blocked { host, sink } => write!(f, "{}: sink {sink} waits for a person", host.0),
            Self::Call { host, site, stage } => {
                let run = site.run.map_or(String::new(), |run| format!(" of run {}", run.number));
                write!(f, "{}: sink {}: {}{run} [{}]: {stage:?}", host.0, site.sink, site.call, names(&site.parts))
            }
            Self::Late { site, ok } => {
                write!(f, "late: sink {}: {} [{}]: {ok}", site.sink, site.call, names(&site.parts))
            }
            Self::Disk { host, op, path, ok, .. } => write!(f, "{}: {op:?} {path}: {ok}", host.0),
            Self::Append { host, kind, stage, .. } => write!(f, "{}: append {kind:?}: {stage:?}", host.0),
            Self::Recovered { host, refused, .. } => {
                write!(f, "{}: log {}", host.0, refused.as_deref().unwrap_or("opened"))
            }
            Self::Disturbed { host, n, what, mode } => write!(f, "** {}: effect {n}, {what}: {mode}", host.0),
            other => write!(f, "{other:?}"),
        }
    }
}
