//! A simulated destination: stages, publishes by exact id in one atomic step, keeps a register that fences.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_protocol::ids::{PartId, RunId};
use tidegate_protocol::plugin::{AtomicScope, Outcome, Position};

use crate::intern::Fingerprint;
use crate::plan::Without;

/// What is at one sink's destination.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The newest run that fenced it.
    pub fence: Option<RunId>,
    /// Rows by short name, unseen.
    pub staged: BTreeMap<String, (PartId, Vec<u8>)>,
    /// What can be seen, in the order in which it came.
    pub committed: Vec<(PartId, Vec<u8>)>,
    /// Staged rows that it dropped by itself: nobody can commit them any more.
    pub dropped: BTreeSet<String>,
    /// Resources that were released.
    pub released: BTreeSet<String>,
    /// It was put back to what it was before.
    pub restored: bool,
}

/// How a destination behaves.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Of a commit.
    pub scope: AtomicScope,
    /// It keeps older runs out.
    pub fences: bool,
    /// What is taken out.
    pub without: Without,
}

impl Destination {
    /// Where it stands. The token stands for everything that a commit or a fence changes.
    pub fn position(&self, manner: Manner) -> Position {
        let mut last: Vec<PartId> = Vec::new();
        for (part, _) in &self.committed {
            match manner.scope {
                AtomicScope::Sink => last = vec![part.clone()],
                AtomicScope::Participant => {
                    last.retain(|seen| seen.ordinal != part.ordinal);
                    last.push(part.clone());
                }
            }
        }
        last.sort();
        Position { fence: self.fence, last, token: self.token() }
    }

    fn token(&self) -> Bytes {
        let parts: Vec<&PartId> = self.committed.iter().map(|(part, _)| part).collect();
        Bytes::copy_from_slice(&Fingerprint::of(&(self.fence, parts)).to_be_bytes())
    }

    /// Compare-and-set on what was observed.
    pub fn fence(&mut self, manner: Manner, expected: &Position, run: RunId) -> Option<Position> {
        if expected.token != self.token() || self.fence.is_some_and(|fence| fence > run) {
            return None;
        }
        self.fence = Some(run);
        Some(self.position(manner))
    }

    /// Whether a fence could still succeed.
    pub fn could_fence(&self, expected: &Position, run: RunId) -> bool {
        expected.token == self.token() && self.fence.is_none_or(|fence| fence <= run)
    }

    /// A newer run, or one with the same number and another random part, owns it.
    pub fn keeps_out(&self, manner: Manner, run: RunId) -> bool {
        manner.fences && !manner.without.fence && self.superseded(run)
    }

    /// The same, whether or not it keeps anybody out.
    pub fn superseded(&self, run: RunId) -> bool {
        self.fence.is_some_and(|fence| fence != run && fence.number >= run.number)
    }

    /// What became of a part.
    pub fn standing(&self, part: &PartId) -> Outcome {
        if self.has(part) {
            Outcome::AlreadyCommitted
        } else if self.dropped.contains(&part.short) {
            Outcome::Never
        } else {
            Outcome::NotCommitted
        }
    }

    /// Whether it was committed under this very id.
    pub fn has(&self, part: &PartId) -> bool {
        self.committed.iter().any(|(seen, _)| seen == part)
    }

    /// One outcome for each part. `rows` are those that the committable stands for.
    pub fn commit(&mut self, manner: Manner, run: RunId, parts: &[(PartId, Vec<u8>)]) -> Vec<Outcome> {
        if self.keeps_out(manner, run) {
            return vec![Outcome::Fenced; parts.len()];
        }
        let together = manner.scope == AtomicScope::Sink;
        if together && parts.iter().any(|(part, _)| self.dropped.contains(&part.short)) {
            return vec![Outcome::Never; parts.len()];
        }
        parts.iter().map(|(part, rows)| self.commit_part(manner, part, rows)).collect()
    }

    fn commit_part(&mut self, manner: Manner, part: &PartId, rows: &[u8]) -> Outcome {
        match self.standing(part) {
            Outcome::AlreadyCommitted if manner.without.idempotence => {
                self.committed.push((part.clone(), rows.to_vec()));
                Outcome::Committed
            }
            Outcome::NotCommitted => match self.staged.remove(&part.short) {
                Some(staged) => {
                    self.committed.push(staged);
                    Outcome::Committed
                }
                // Nothing is there to be published; the judge sees that it is missing.
                None => Outcome::Never,
            },
            other => other,
        }
    }

    /// It lost what was prepared.
    pub fn drop_staged(&mut self, parts: &[(PartId, Vec<u8>)]) {
        for (part, _) in parts {
            if !self.has(part) {
                self.staged.remove(&part.short);
                self.dropped.insert(part.short.clone());
            }
        }
    }

    /// Gives back what was staged.
    pub fn abandon(&mut self, manner: Manner, run: RunId, parts: &[PartId]) -> Vec<Outcome> {
        if self.keeps_out(manner, run) {
            return vec![Outcome::Fenced; parts.len()];
        }
        let one = |part: &PartId| match self.staged.remove(&part.short) {
            Some(_) => Outcome::Committed,
            None => Outcome::AlreadyCommitted,
        };
        parts.iter().map(one).collect()
    }
}
