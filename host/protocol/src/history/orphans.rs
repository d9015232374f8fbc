//! What is found staged at a destination, compared with what the log knows.

use std::collections::BTreeMap;

use super::{History, Holder, IntentState, ResourceKey};
use crate::ids::{PartId, PipelineId, SinkId};
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
        } else {
            OrphanStanding::Unsealed(part)
        }
    }

    /// Announcements of runs before the newest that no seal took over, by part.
    pub fn announced_and_left(&self, pipeline: &PipelineId, sink: &SinkId) -> Vec<Unsealed> {
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
        parts.into_iter().map(|(part, resources)| Unsealed { part, committable: None, resources }).collect()
    }
}
