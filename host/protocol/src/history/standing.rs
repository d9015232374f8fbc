//! Where a destination stands when it has all that the log knows as committed.

use std::collections::BTreeMap;

use crate::ids::{PartId, Slot};
use crate::plugin::{AtomicScope, Position};

/// What a sink's destination holds newest. Follows the order of commits, not the line of descent: after a fork the next
/// commit comes after what the destination has, whoever wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The parts of the epoch committed last, or what was observed under an accepted mismatch.
    pub newest: Vec<PartId>,
    /// The newest committed part of each participant.
    pub by_participant: BTreeMap<u32, PartId>,
    /// The record that made it so: a seal, or the `open` that accepted a mismatch.
    pub since: Slot,
}

impl Standing {
    /// After this epoch's parts were committed. An epoch without rows changes nothing.
    pub(crate) fn advance(&mut self, parts: Vec<PartId>, slot: Slot) {
        if !parts.is_empty() {
            self.by_participant.extend(parts.iter().map(|part| (part.ordinal, part.clone())));
            self.newest = parts;
            self.since = slot;
        }
    }

    /// What was seen and accepted, whatever the log knew before.
    pub(crate) fn accepted(position: &Position, slot: Slot) -> Self {
        let mut by_participant: BTreeMap<u32, PartId> = BTreeMap::new();
        for part in &position.last {
            let newest =
                by_participant.get(&part.ordinal).is_none_or(|seen| (seen.epoch, seen.run) < (part.epoch, part.run));
            if newest {
                by_participant.insert(part.ordinal, part.clone());
            }
        }
        Self { newest: position.last.clone(), by_participant, since: slot }
    }

    /// What a commit hands over as the parts before it: of the whole epoch where commits are atomic for the sink, else
    /// of each participant.
    pub fn previous(&self, scope: AtomicScope) -> Vec<PartId> {
        match scope {
            AtomicScope::Sink => self.newest.clone(),
            AtomicScope::Participant => self.by_participant.values().cloned().collect(),
        }
    }

    /// Whether this very part is among the newest.
    pub fn holds(&self, part: &PartId) -> bool {
        self.newest.contains(part) || self.by_participant.get(&part.ordinal) == Some(part)
    }
}
