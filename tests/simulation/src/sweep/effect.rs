//! What can be disturbed, and how.

use std::fmt;

use tidegate_protocol::plugin::{Call, ErrorKind};

/// One place at which a host meets the world. Whatever happens between two of them changes nothing that outlives it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// A changing operation of the disk that holds a log, before it is carried out.
    Disk { tenant: usize, op: DiskOp, path: String },
    /// A read of that disk.
    Look { tenant: usize, list: bool, path: String },
    /// A call of a log that lies elsewhere.
    Log { op: LogOp, phase: Phase },
    /// A call of a plugin.
    Call { sink: usize, call: Call, phase: Phase },
    /// Rows are asked for, or a source is opened.
    Source { op: SourceOp },
    /// The coordinator takes a step: a timer fired, an answer came, somebody asked.
    Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DiskOp {
    Create,
    Write,
    Flush,
    Rename,
    Remove,
    MakeFolder,
    FlushFolder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogOp {
    Append,
    ReadAll,
    Delete,
    PutState,
    ReadState,
    RetainState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceOp {
    Open,
    Next,
    Committed,
}

/// When within a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The request has not arrived.
    Before,
    /// So many of its steps are done; of `prepare`, 0 means that it arrived and staged nothing.
    Middle(u32),
    /// Everything is done, and nobody knows.
    After,
}

/// What a disturbance is from the host's point of view. Hits are counted for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Category {
    Crash,
    Error,
    Timeout,
    /// Something else acts at the same time: another host, a late request, a second copy, a person.
    Race,
}

impl Category {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Race => "race",
        }
    }
}

/// What is done to the machine, or changed about the pipeline, while the host is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Between {
    Nothing,
    /// It stays dead for longer than prepared work lives.
    Downtime,
    /// The wall clock is set a day back.
    ClockBack,
    /// The plugin is replaced by a newer one that reads what the older one prepared.
    Upgrade,
    /// By one that does not; a person has to take the old one back.
    UpgradeBlind,
    /// The sinks get so many participants.
    Rescale(u32),
    /// The credentials do not work for the next calls.
    Denied,
    /// The source has lost rows that the checkpoint speaks of; later they are there again.
    SourceBehind,
    /// A byte of the newest record is changed; later it is put right.
    Corrupt,
    /// The newest file ends behind the record before the newest.
    Cut,
    /// The newest file has its name and none of its contents.
    Hollow,
    /// The newest record was never written, whatever the disk said.
    Forgotten,
}

/// How an effect is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The process ends; all that it could see is kept.
    Kill(Between),
    /// The machine ends: what was not flushed is there or not.
    Power,
    /// The request is on its way when the process ends, and arrives so many calls later.
    KillLate(u32),
    /// The device fails.
    Eio,
    /// The device fails, and when the process has ended the machine does.
    EioThenPower,
    /// No space is left.
    Full,
    /// The log certainly did not write.
    Refused,
    /// An append's answer is lost; the object is there.
    AnswerLost,
    /// The answer is lost, the request is repeated, and the object is there already.
    TakenByUs,
    /// A log is read as it was so many records ago.
    Stale(u32),
    /// A log is read without the record that lies so many before its newest.
    Gap(u32),
    /// A listing leaves out what is newest.
    Miss,
    /// The instance traps.
    Trap,
    /// The instance has spent a budget.
    Budget(&'static str),
    /// The host's own code panics.
    Panic,
    /// The answer is lost on the way.
    Lost,
    /// The plugin says no.
    Says(ErrorKind),
    /// The plugin answers every commit so.
    Outcome(Said),
    /// No answer comes.
    Hang,
    /// No answer comes, and the request arrives so many calls later.
    Late(u32),
    /// The same, and the process ends some effects after it stopped waiting.
    LateThenDies(u32),
    /// The request arrives twice.
    Twice,
    /// "Done", and nothing was.
    Lie,
    /// An answer that breaks the rules.
    Malformed(Break),
    /// For so many calls requests arrive and answers do not.
    Deaf(u32),
    /// For so many calls requests do not arrive.
    Mute(u32),
    /// Credentials do not work for so many calls.
    DeniedFor(u32),
    /// The source fails and may work later.
    SourceFails,
    /// The wall clock jumps by so many hours.
    Clock(i32),
    /// A person asks the pipeline to stop.
    Stop,
    /// A person asks for a savepoint.
    Savepoint,
    /// The host is held, another one takes over and finishes, the first one goes on.
    Pause,
    /// Two hosts start at once; the second is held at this effect of its own.
    Together(u32),
}

/// Outcomes that settle nothing, or for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Said {
    Retry,
    Unknown,
    Rejected,
}

/// How an answer breaks the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Break {
    /// One answer too few, or rows that do not add up.
    Count,
    /// The committable of another part, or of the epoch before.
    Foreign,
}

impl Mode {
    pub(crate) fn category(self) -> Category {
        match self {
            Self::Kill(_) | Self::Power | Self::EioThenPower | Self::KillLate(_) => Category::Crash,
            Self::Hang | Self::Late(_) | Self::LateThenDies(_) | Self::Deaf(_) | Self::Mute(_) | Self::AnswerLost => {
                Category::Timeout
            }
            Self::Twice | Self::Pause | Self::Together(_) | Self::Stop | Self::Savepoint => Category::Race,
            Self::Eio
            | Self::Full
            | Self::Refused
            | Self::TakenByUs
            | Self::Stale(_)
            | Self::Gap(_)
            | Self::Miss
            | Self::Trap
            | Self::Budget(_)
            | Self::Panic
            | Self::Lost
            | Self::Says(_)
            | Self::Outcome(_)
            | Self::Lie
            | Self::Malformed(_)
            | Self::DeniedFor(_)
            | Self::SourceFails
            | Self::Clock(_) => Category::Error,
        }
    }

    /// The host is dead at once.
    pub(crate) fn kills(self) -> bool {
        matches!(self, Self::Kill(_) | Self::Power)
    }
}

/// As on the command line: `kill:downtime`, `late:3`, `says:retryable`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = format!("{self:?}").replace('(', ":").replace([')', '"'], "").to_lowercase();
        f.write_str(&text)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk { tenant, op, path } => write!(f, "disk {tenant}: {op:?} {path}"),
            Self::Look { tenant, list: true, path } => write!(f, "disk {tenant}: list {path}"),
            Self::Look { tenant, list: false, path } => write!(f, "disk {tenant}: read {path}"),
            Self::Log { op, phase } => write!(f, "log: {op:?}, {phase}"),
            Self::Call { sink, call, phase } => write!(f, "sink {sink}: {call}, {phase}"),
            Self::Source { op } => write!(f, "source: {op:?}"),
            Self::Step => f.write_str("a step of the coordinator"),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before => f.write_str("before it"),
            Self::Middle(done) => write!(f, "after {done} of its steps"),
            Self::After => f.write_str("after it"),
        }
    }
}
