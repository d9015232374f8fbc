//! What is found staged at a destination, compared with what the log knows.

use std::collections::{BTreeMap, BTreeSet};

use super::{History, Holder, IntentState, ResourceKey};
use crate::ids::{EpochRef, PartId, PipelineId, SinkId};
use crate::plugin::{External, Orphan, Unsealed};

/// What the log says to something that was found staged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum OrphanStanding {
    /// A retained record names it: no orphan.
    Named,
    /// It carries no name of a part of this sink, of a run that this log knows.
    Foreign,
    /// It is of the newest run, which may still seal it. The next run gives it back.
    Newest(PartId),
    /// Its epoch was, or may have been, sealed: not to be given back, but released by retention.
    Sealed(PartId),
    /// Of an older run, never sealed, and nothing names it: it can be given back.
    Unsealed(PartId),
    /// This log never sealed it, and a person accepted that a destination has more than this log knows: it may be sealed
    /// elsewhere, and committed. It is left alone.
    Elsewhere(PartId),
}

impl History {
    /// What the log says to something that was found staged at a sink.
    pub fn orphan(&self, pipeline: &PipelineId, sink: &SinkId, orphan: &Orphan) -> OrphanStanding {
        let known = PartId::from_short(pipeline, sink, &orphan.short).filter(|part| self.runs.contains_key(&part.run));
        let Some(part) = known else { return OrphanStanding::Foreign };
        let named = self.ledger.get(&ResourceKey::of(sink, &orphan.resource));
        let named = named.is_some_and(|entry| entry.holders.keys().any(|h| !matches!(h, Holder::Intent(_))));
        if named {
            OrphanStanding::Named
        } else if self.newest_run().is_none_or(|newest| part.run >= newest) {
            OrphanStanding::Newest(part)
        } else if self.may_be_sealed(part.epoch_ref()) {
            OrphanStanding::Sealed(part)
        } else if self.may_be_sealed_elsewhere(part.epoch_ref()) {
            OrphanStanding::Elsewhere(part)
        } else {
            OrphanStanding::Unsealed(part)
        }
    }

    /// Whether an epoch that this log never sealed may be sealed, and committed, all the same: of a run from before
    /// somebody accepted that a destination has more than this log, which is then an older copy of the one that counted.
    /// How far that run got there, and what a run that is met only at the destination has gone on from, nobody here knows.
    pub fn may_be_sealed_elsewhere(&self, of: EpochRef) -> bool {
        let mut met = BTreeSet::new();
        for (run, node) in self.runs.iter().filter(|(_, node)| !node.open.under.is_empty()) {
            for (sink, position) in &node.open.observed {
                let seen = position.fence.iter().chain(position.last.iter().map(|part| &part.run));
                for stranger in seen.filter(|seen| !self.runs.contains_key(seen)) {
                    if met.insert(*stranger) && of.run < *run {
                        return true;
                    }
                }
                if position.last.iter().any(|part| part.run == of.run && !self.sealed_here(sink, part)) {
                    return true;
                }
            }
        }
        false
    }

    /// Whether this log sealed this very part, as far as it still tells.
    fn sealed_here(&self, sink: &SinkId, part: &PartId) -> bool {
        match self.seal(part.epoch_ref()) {
            Some(epoch) => epoch.parts(sink).contains(part),
            None => self.may_be_sealed(part.epoch_ref()),
        }
    }

    /// Announcements of runs before the newest that no seal took over, by part: first those that can be given back, then
    /// those that may be sealed, and committed, by another log.
    pub fn announced_and_unsealed(&self, pipeline: &PipelineId, sink: &SinkId) -> (Vec<Unsealed>, Vec<Unsealed>) {
        let mut parts: BTreeMap<PartId, Vec<External>> = BTreeMap::new();
        for intent in self.intents.values() {
            let left =
                intent.sink == *sink && intent.state == IntentState::Open && Some(intent.run) != self.newest_run();
            // What was announced outside any part stands for the participant's first try of that epoch.
            let part = match &intent.part {
                Some(short) => PartId::from_short(pipeline, sink, short),
                None => Some(PartId::mint(pipeline, sink, intent.run, intent.epoch, 0, 0)),
            };
            let named = self.ledger.get(&ResourceKey::of(sink, &intent.resource));
            let named = named.is_some_and(|entry| entry.holders.len() > 1);
            let sealed =
                intent.part.is_some() && part.as_ref().is_some_and(|part| self.may_be_sealed(part.epoch_ref()));
            if let (true, false, Some(part)) = (left && !sealed, named, part) {
                parts.entry(part).or_default().push(intent.resource.clone());
            }
        }
        let unsealed = parts.into_iter().map(|(part, resources)| Unsealed { part, committable: None, resources });
        unsealed.partition(|unsealed| !self.may_be_sealed_elsewhere(unsealed.part.epoch_ref()))
    }
}
