//! What really happened at a destination: written by the destination itself, read by the oracles.

use bytes::Bytes;
use tidegate_protocol::ids::{KeyRange, PartId, RunId};
use tidegate_protocol::plugin::{Call, External, Outcome, Position, WriterState};

use crate::world::Seq;

/// Everything that was done to one destination, in order.
#[derive(Debug, Clone, Default)]
pub struct Journal {
    /// The entries.
    pub entries: Vec<Entry>,
}

/// One thing that was done.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its place among all that happened anywhere.
    pub seq: Seq,
    /// On whose behalf, if a run did it.
    pub by: Option<RunId>,
    /// What.
    pub did: Did,
}

/// What can be done to a destination.
#[derive(Debug, Clone)]
pub enum Did {
    /// A writer began a part.
    Began {
        /// Which.
        part: PartId,
    },
    /// A writer was opened with what the checkpoint kept for it.
    Restored {
        /// Its keys.
        range: KeyRange,
        /// What it was given.
        states: Vec<WriterState>,
    },
    /// A part was prepared; its rows wait.
    Staged {
        /// Which.
        part: PartId,
        /// Its rows.
        rows: Vec<Bytes>,
        /// All that exists for it.
        resources: Vec<External>,
    },
    /// Rows can be seen.
    Visible {
        /// Of which part.
        part: PartId,
        /// Which.
        rows: Vec<Bytes>,
        /// Before any commit: the destination does not stage.
        early: bool,
        /// All parts that became visible in the same step.
        step: Vec<PartId>,
    },
    /// A commit call arrived.
    CommitCalled {
        /// What was to be committed.
        parts: Vec<PartId>,
        /// What was said to be there already.
        previous: Vec<PartId>,
        /// The configuration that came with it.
        config: String,
    },
    /// A host sent a commit; whether it arrives is another question.
    Sent {
        /// What is to be committed.
        parts: Vec<PartId>,
    },
    /// Somebody asked what became of commits, and was, or would have been, told.
    Asked {
        /// About each part.
        answers: Vec<(PartId, Outcome)>,
    },
    /// An instance was called that had trapped, or whose last call never came back.
    Haunted {
        /// The call.
        call: Call,
    },
    /// Nothing was done: a newer run owns the destination.
    Refused {
        /// The call.
        call: &'static str,
    },
    /// A part was marked as committed.
    Marked {
        /// Which.
        part: PartId,
    },
    /// An id that was committed before was asked to be committed, and nothing was done.
    KnownAlready {
        /// Which.
        part: PartId,
    },
    /// A part that is not there was to be committed.
    NothingToCommit {
        /// Which.
        part: PartId,
    },
    /// A run took the destination over.
    Fenced {
        /// Who had it.
        from: Option<RunId>,
        /// Where it stood.
        position: Position,
    },
    /// Somebody looked.
    Observed {
        /// What was there.
        position: Position,
    },
    /// A part was given back.
    Abandoned {
        /// Its short name.
        short: String,
        /// It was waiting for its commit.
        was_staged: bool,
        /// It was committed before. An honest host never asks for that.
        was_committed: bool,
        /// What was taken away with it.
        resources: Vec<External>,
    },
    /// A resource was destroyed.
    Released {
        /// Which.
        resource: External,
        /// It was there.
        was_there: bool,
    },
    /// Prepared work was dropped by the destination itself.
    Expired {
        /// Which.
        part: PartId,
    },
    /// Markers were forgotten.
    MarkersForgotten {
        /// Of which parts, by short name.
        shorts: Vec<String>,
        /// Because a foreign writer wrote; else because time passed.
        foreign: bool,
    },
    /// The destination was put back to what it was.
    WentBack {
        /// To what it held after this.
        to: Seq,
    },
    /// A plugin lied, so that what a host believes of these parts is wrong.
    Lied {
        /// Which parts.
        parts: Vec<PartId>,
        /// How.
        how: String,
    },
}
