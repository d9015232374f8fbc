//! A destination that stages, publishes by exact id, and keeps a register.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_protocol::ids::{PartId, RunId};
use tidegate_protocol::plugin::{AtomicScope, Outcome, Position};

pub struct Destination {
    pub scope: AtomicScope,
    pub fences: bool,
    pub fence: Option<RunId>,
    /// Rows by short name, unseen.
    pub staged: BTreeMap<String, (PartId, Vec<u64>)>,
    /// In the order in which they landed.
    pub committed: Vec<(PartId, Vec<u64>)>,
    pub released: BTreeSet<String>,
    pub changes: u64,
    /// A planted fault of the model: how rows get lost.
    pub violations: Vec<String>,
}

impl Destination {
    pub fn new(scope: AtomicScope, fences: bool) -> Self {
        Self {
            scope,
            fences,
            fence: None,
            staged: BTreeMap::new(),
            committed: Vec::new(),
            released: BTreeSet::new(),
            changes: 0,
            violations: Vec::new(),
        }
    }

    pub fn position(&self) -> Position {
        let mut last: Vec<PartId> = Vec::new();
        for (part, _) in &self.committed {
            match self.scope {
                AtomicScope::Sink => last = vec![part.clone()],
                AtomicScope::Participant => {
                    last.retain(|seen| seen.ordinal != part.ordinal);
                    last.push(part.clone());
                }
            }
        }
        Position { fence: self.fence, last, token: Bytes::from(self.changes.to_string()) }
    }

    pub fn fence(&mut self, expected: &Position, run: RunId) -> Option<Position> {
        if expected.token != self.position().token || self.fence.is_some_and(|fence| fence > run) {
            return None;
        }
        self.fence = Some(run);
        self.changes += 1;
        Some(self.position())
    }

    fn fenced(&self, run: RunId) -> bool {
        self.fences && self.fence.is_some_and(|fence| fence != run && fence.number >= run.number)
    }

    pub fn commit(&mut self, run: RunId, parts: &[PartId], sealed: &BTreeSet<String>) -> Vec<Outcome> {
        if self.fenced(run) {
            return vec![Outcome::Fenced; parts.len()];
        }
        let mut outcomes = Vec::new();
        for part in parts {
            if !sealed.contains(&part.short) {
                self.violations.push(format!("P2: {part} was committed and never sealed"));
            }
            if self.has(part) {
                outcomes.push(Outcome::AlreadyCommitted);
                continue;
            }
            match self.staged.remove(&part.short) {
                Some(staged) => {
                    self.committed.push(staged);
                    self.changes += 1;
                    outcomes.push(Outcome::Committed);
                }
                None => {
                    self.violations.push(format!("P1: nothing is staged for {part}"));
                    outcomes.push(Outcome::Never);
                }
            }
        }
        outcomes
    }

    pub fn has(&self, part: &PartId) -> bool {
        self.committed.iter().any(|(seen, _)| seen == part)
    }

    pub fn abandon(&mut self, run: RunId, part: &PartId, sealed: &BTreeSet<String>) -> Outcome {
        if self.fenced(run) {
            return Outcome::Fenced;
        }
        if sealed.contains(&part.short) {
            self.violations.push(format!("P2: {part} was sealed and abandoned"));
        }
        self.staged.remove(&part.short);
        Outcome::Committed
    }

    pub fn rows(&self) -> Vec<u64> {
        let mut rows: Vec<u64> = self.committed.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
        rows.sort_unstable();
        rows
    }
}
