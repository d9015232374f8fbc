//! How a plugin misbehaves: call by call from a script, which a seed may have written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_protocol::plugin::{Call, ErrorKind, Outcome, PluginError};

/// What a host says that is broken on purpose.
pub const ON_PURPOSE: &str = "as the simulation wants it";

/// What one call does instead of working.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Traps before it did anything.
    Trap,
    /// Does its work, and traps.
    TrapAfter,
    /// Never answers, and does nothing.
    Hang,
    /// Does its work, and never answers.
    HangAfter,
    /// Does its work, and the answer is lost.
    LoseAnswer,
    /// Never answers; the work is done so many milliseconds later, whoever still lives then.
    Late(u64),
    /// Answers after so many milliseconds.
    Slow(u64),
    /// Does its work twice, and answers as the first time.
    Twice,
    /// Answers with an error, and did nothing.
    Error(ErrorKind),
    /// Does its work, and answers with an error.
    ErrorAfter(ErrorKind),
    /// Does nothing, and answers this for everything that it was asked about.
    Answer(Outcome),
    /// Does the first of several and nothing more, and answers that it does not know of the rest.
    Partly,
    /// Does nothing, and says of the first of several that it is refused, of the others that they are not committed.
    BlamesFirst,
    /// A lie: says that it is done, and did nothing.
    OnlySays,
    /// A lie: counts one row more than it staged.
    WrongRows,
    /// A lie: names another part than the one it was given.
    WrongPart,
    /// A lie: names something among its resources that was released before.
    OldName,
    /// Leaves out the last item of its answer.
    OneTooFew,
    /// Repeats the last item of its answer.
    OneTooMany,
    /// The host's own code around the call breaks.
    HostPanic,
    /// The host dies before the call does anything.
    CrashBefore,
    /// The host dies when the work is done and nothing was answered.
    CrashAfter,
}

impl Act {
    /// Its kind, for figures.
    pub fn kind(&self) -> String {
        match self {
            Act::Trap => "trap".into(),
            Act::TrapAfter => "trap-after".into(),
            Act::Hang => "hang".into(),
            Act::HangAfter => "hang-after".into(),
            Act::LoseAnswer => "answer-lost".into(),
            Act::Late(_) => "late".into(),
            Act::Slow(_) => "slow".into(),
            Act::Twice => "twice".into(),
            Act::Error(kind) => format!("error-{}", kind_name(*kind)),
            Act::ErrorAfter(kind) => format!("done-and-error-{}", kind_name(*kind)),
            Act::Answer(outcome) => format!("answer-{}", outcome_name(outcome)),
            Act::Partly => "partly".into(),
            Act::BlamesFirst => "blames-first".into(),
            Act::OnlySays => "lie-done".into(),
            Act::WrongRows => "lie-rows".into(),
            Act::WrongPart => "lie-part".into(),
            Act::OldName => "lie-old-name".into(),
            Act::OneTooFew => "one-too-few".into(),
            Act::OneTooMany => "one-too-many".into(),
            Act::HostPanic => "host-panic".into(),
            Act::CrashBefore => "crash-before-call".into(),
            Act::CrashAfter => "crash-after-call".into(),
        }
    }
}

fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Retryable => "retryable",
        ErrorKind::Permanent => "permanent",
        ErrorKind::BadConfig => "bad-config",
        ErrorKind::BadBatch => "bad-batch",
        ErrorKind::EpochLost => "epoch-lost",
        ErrorKind::Fenced => "fenced",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Denied => "denied",
        ErrorKind::Unknown => "unknown",
    }
}

fn outcome_name(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Committed => "committed",
        Outcome::AlreadyCommitted => "already-committed",
        Outcome::NotCommitted => "not-committed",
        Outcome::Never => "never",
        Outcome::Retry(_) => "retry",
        Outcome::Fenced => "fenced",
        Outcome::Unsupported => "unsupported",
        Outcome::Unknown => "unknown",
        Outcome::Rejected(_) => "rejected",
    }
}

/// An error with a code that says where it comes from.
pub fn error(kind: ErrorKind) -> PluginError {
    PluginError { kind, code: format!("simulated-{}", kind_name(kind)), message: "as the simulation wants it".into() }
}

/// What the calls of one sink are to do, counted by call. Clones are the same script.
#[derive(Debug, Clone, Default)]
pub struct Script(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    made: BTreeMap<Call, u64>,
    acts: BTreeMap<(Call, u64), Act>,
}

impl Script {
    /// The `nth` call from now on, from 1, does this.
    pub fn plan(&self, call: Call, nth: u64, act: Act) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let made = lines.made.get(&call).copied().unwrap_or(0);
        lines.acts.insert((call, made + nth.max(1)), act);
    }

    /// The next calls do these, one after the other.
    pub fn then(&self, call: Call, acts: impl IntoIterator<Item = Act>) {
        for (nth, act) in (1..).zip(acts) {
            self.plan(call, nth, act);
        }
    }

    /// Forgets what is still planned.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).acts.clear();
    }

    /// How often a call was made.
    pub fn made(&self, call: Call) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).made.get(&call).copied().unwrap_or(0)
    }

    /// What the next call answers instead of working, if that is planned.
    pub(crate) fn peek_answer(&self, call: Call) -> Option<Act> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = lines.made.get(&call).copied().unwrap_or(0) + 1;
        lines
            .acts
            .get(&(call, next))
            .filter(|act| matches!(act, Act::Answer(_) | Act::OnlySays | Act::BlamesFirst))
            .cloned()
    }

    pub(crate) fn next(&self, call: Call) -> Option<Act> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let made = lines.made.entry(call).or_default();
        *made += 1;
        let key = (call, *made);
        lines.acts.remove(&key)
    }
}
