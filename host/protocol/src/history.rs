//! What the records of a log mean: a pure fold.
//!
//! Everything that a run needs to know of the runs before it comes from here, and from nowhere else. A record that
//! cannot stand where it stands is a [`HistoryError`]; it is checked before anything is changed, so that a refused
//! record leaves no trace.

mod apply;
mod error;
mod ledger;
mod orphans;
mod retention;
mod standing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use error::{HistoryError, HistoryErrorKind};
pub use ledger::{Holder, Ledger, ResourceEntry, ResourceKey};
pub use orphans::OrphanStanding;
pub use standing::Standing;

use crate::ids::{Epoch, EpochRef, PartId, PipelineId, RunId, SinkId, Slot};
use crate::plugin::{Committable, External, Position};
use crate::record::{Blocked, Body, Choice, Decision, Open, Record, Seal, SinkCut, SlotRange, StateChunk};

/// Commit state of one sealed epoch at one sink, as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SinkEpochState {
    /// The seal is attempt 1; a decision to try again is the next. May have been sent.
    Sent(u32),
    /// Done. Also every epoch without rows at this sink.
    Committed,
    /// Attempt, and why the outcome is not known.
    InDoubt(u32, String),
    /// Attempt, and why it waits for a person.
    Blocked(u32, Blocked),
    /// Its rows are given up at this sink, by this decision.
    GivenUp(String),
    /// It can never be committed, and a fork left it behind, by this decision.
    ForkedOff(String),
}

impl SinkEpochState {
    /// Nothing will be sent for it any more.
    pub fn ended(&self) -> bool {
        matches!(self, Self::Committed | Self::GivenUp(_) | Self::ForkedOff(_))
    }

    /// Its newest attempt; 0 for an end.
    pub fn attempt(&self) -> u32 {
        match self {
            Self::Sent(k) | Self::InDoubt(k, _) | Self::Blocked(k, _) => *k,
            _ => 0,
        }
    }
}

/// Life of a checkpoint. A deleted one is not in the history any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckpointState {
    /// Can be restored.
    Retained,
    /// Can be neither restored nor promoted; its resources may be gone.
    Retired,
}

/// One sealed epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SealedEpoch {
    /// The run and the number.
    pub of: EpochRef,
    /// Where its seal stands.
    pub slot: Slot,
    /// Unix milliseconds by the writer's clock.
    pub sealed_at: u64,
    /// The seal.
    pub seal: Seal,
    /// State per sink.
    pub sinks: BTreeMap<SinkId, SinkEpochState>,
    /// Retained or retired.
    pub checkpoint: CheckpointState,
}

impl SealedEpoch {
    /// Whether every sink has come to an end with it.
    pub fn ended(&self) -> bool {
        self.sinks.values().all(SinkEpochState::ended)
    }

    /// Its parts at one sink that hold rows.
    pub fn parts(&self, sink: &SinkId) -> Vec<PartId> {
        self.seal.sinks.get(sink).map(parts_of).unwrap_or_default()
    }

    /// What commits hand over at one sink, in order; parts without rows have none.
    pub fn committables(&self, sink: &SinkId) -> impl Iterator<Item = &Committable> {
        self.seal.sinks.get(sink).into_iter().flat_map(|cut| &cut.parts).filter_map(|part| part.committable.as_ref())
    }

    /// When half of what its prepared work at one sink lives is gone, and when all of it is; in Unix milliseconds.
    pub fn lives_until(&self, sink: &SinkId) -> Option<(u64, u64)> {
        let end = self.committables(sink).filter_map(|committable| committable.expires_at).min()?;
        Some((self.sealed_at.saturating_add(end.saturating_sub(self.sealed_at) / 2), end))
    }
}

/// The parts of a cut that hold rows.
pub(crate) fn parts_of(cut: &SinkCut) -> Vec<PartId> {
    cut.parts.iter().filter_map(|p| p.committable.as_ref().map(|c| c.part.clone())).collect()
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunNode {
    /// Where its `open` record stands.
    pub slot: Slot,
    /// When it was opened.
    pub opened_at: u64,
    /// What it said.
    pub open: Open,
}

/// A decision and the run that acted on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Decided {
    /// Where it stands.
    pub slot: Slot,
    /// What was decided.
    pub decision: Decision,
    /// The run that named it in its `open` record. Decisions about one epoch act at once and name none.
    pub used_by: Option<RunId>,
}

/// An announced resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IntentEntry {
    /// The run that announced it.
    pub run: RunId,
    /// For which sink.
    pub sink: SinkId,
    /// The part's short name.
    pub part: Option<String>,
    /// The epoch that was being written.
    pub epoch: Epoch,
    /// What; under its bound name once it has one.
    pub resource: External,
    /// It got its name.
    pub bound: bool,
    /// Where it stands now.
    pub state: IntentState,
}

/// What became of an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IntentState {
    /// Neither sealed nor given back.
    Open,
    /// Its part was sealed.
    Sealed(EpochRef),
    /// It was given back, or released.
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Note {
    Open,
    Seal(EpochRef),
    Outcomes,
    Intent(u64),
    Decision,
    Savepoint { name: String, of: EpochRef },
    Forget { of: Option<EpochRef> },
    Retire(Vec<EpochRef>),
    Released(Vec<ResourceKey>),
    Finished(EpochRef),
    Deleted,
}

/// The state of a pipeline, derived from its log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct History {
    pipeline: Option<PipelineId>,
    last_slot: Slot,
    runs: BTreeMap<RunId, RunNode>,
    tip: Option<EpochRef>,
    epochs: BTreeMap<EpochRef, SealedEpoch>,
    by_slot: BTreeMap<Slot, EpochRef>,
    notes: BTreeMap<Slot, (Note, Vec<EpochRef>)>,
    standings: BTreeMap<SinkId, Standing>,
    decisions: BTreeMap<String, Decided>,
    savepoints: BTreeMap<String, EpochRef>,
    intents: BTreeMap<u64, IntentEntry>,
    ledger: Ledger,
    finished: Option<EpochRef>,
    gone: Vec<SlotRange>,
}

impl History {
    /// Folds all retained records, in ascending slots.
    ///
    /// # Errors
    /// The first record that cannot follow the ones before it.
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<Self, HistoryError> {
        let records: Vec<&Record> = records.into_iter().collect();
        let mut history = Self { gone: newest_gone(&records), ..Self::default() };
        for record in records {
            if !history.is_gone(record.slot) {
                history.apply(record)?;
            } else if matches!(record.body, Body::Open(_) | Body::Decision(_)) {
                return Err(HistoryError { slot: record.slot, kind: HistoryErrorKind::DeletesNeeded(record.slot) });
            }
        }
        Ok(history)
    }

    /// Adds the next record.
    ///
    /// # Errors
    /// The record cannot stand there; nothing was changed.
    pub fn apply(&mut self, record: &Record) -> Result<(), HistoryError> {
        self.check_and_apply(record).map_err(|kind| HistoryError { slot: record.slot, kind })
    }

    /// Whether the next record could be this one. Ask before writing anything: what is in the log stays there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&mut self, record: &Record) -> Result<(), HistoryError> {
        self.check_record(record).map_err(|kind| HistoryError { slot: record.slot, kind })
    }

    /// The same for a history that may be shared: it is copied only if the record carries outcomes.
    pub(crate) fn check_shared(self: &mut Arc<Self>, record: &Record) -> Result<(), HistoryError> {
        if !record.outcomes.is_empty() {
            return Arc::make_mut(self).check(record);
        }
        self.check_without_outcomes(record).map_err(|kind| HistoryError { slot: record.slot, kind })
    }

    /// Whether the record of this slot was given up: it may be missing, and means nothing if it is still there.
    pub fn is_gone(&self, slot: Slot) -> bool {
        self.gone.iter().any(|range| range.contains(slot))
    }

    /// Whose log it is; `None` while it is empty.
    pub fn pipeline(&self) -> Option<&PipelineId> {
        self.pipeline.as_ref()
    }

    /// Where the next record goes.
    pub fn next_slot(&self) -> Slot {
        self.last_slot.next()
    }

    /// The run that may write.
    pub fn newest_run(&self) -> Option<RunId> {
        self.runs.keys().next_back().copied()
    }

    /// All runs ever opened.
    pub fn runs(&self) -> &BTreeMap<RunId, RunNode> {
        &self.runs
    }

    /// The epoch from which the next run descends: the last of the newest run's line.
    pub fn newest_seal(&self) -> Option<EpochRef> {
        self.tip
    }

    /// One sealed epoch.
    pub fn seal(&self, of: EpochRef) -> Option<&SealedEpoch> {
        self.epochs.get(&of)
    }

    /// All sealed epochs that are not deleted, in the order of the log.
    pub fn checkpoints(&self) -> impl DoubleEndedIterator<Item = &SealedEpoch> {
        self.by_slot.values().filter_map(|of| self.epochs.get(of))
    }

    /// Commit state of an epoch at a sink.
    pub fn outcome(&self, sink: &SinkId, of: EpochRef) -> Option<&SinkEpochState> {
        self.epochs.get(&of)?.sinks.get(sink)
    }

    /// Sealed epochs that have no end at this sink yet, in order. They are known from durable records alone.
    pub fn unfinished(&self, sink: &SinkId) -> Vec<EpochRef> {
        let open = |epoch: &&SealedEpoch| epoch.sinks.get(sink).is_some_and(|state| !state.ended());
        self.checkpoints().filter(open).map(|epoch| epoch.of).collect()
    }

    /// All sinks that any retained seal names.
    pub fn sinks(&self) -> BTreeSet<SinkId> {
        self.epochs.values().flat_map(|epoch| epoch.sinks.keys().cloned()).collect()
    }

    /// Savepoints by name.
    pub fn savepoints(&self) -> &BTreeMap<String, EpochRef> {
        &self.savepoints
    }

    /// Decisions by id.
    pub fn decisions(&self) -> &BTreeMap<String, Decided> {
        &self.decisions
    }

    /// Whether a person decided that this epoch is to be sent again.
    pub fn was_told_to_retry(&self, sink: &SinkId, of: EpochRef) -> bool {
        self.retries(sink, of).next().is_some()
    }

    /// Whether a person decided that this epoch is to be sent again, and no run but the newest can have done so since.
    pub fn is_to_be_sent(&self, sink: &SinkId, of: EpochRef) -> bool {
        let before = self.runs.values().map(|node| node.slot).rev().nth(1);
        self.retries(sink, of).any(|decided| Some(decided.slot) > before)
    }

    fn retries(&self, sink: &SinkId, of: EpochRef) -> impl Iterator<Item = &Decided> {
        let asked = move |decided: &&Decided| match &decided.decision.choice {
            Choice::Retry { sink: at, of: which } => at == sink && *which == of,
            _ => false,
        };
        self.decisions.values().filter(asked)
    }

    /// Announced resources by number.
    pub fn intents(&self) -> &BTreeMap<u64, IntentEntry> {
        &self.intents
    }

    /// The smallest number that the next intent may get.
    pub fn next_intent(&self) -> u64 {
        self.intents.keys().next_back().map_or(1, |number| number.saturating_add(1))
    }

    /// What exists outside and who names it.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether a resource is gone or may be going: it was released, nobody names it any more, or only announcements of
    /// older runs do, which are given back. Whoever named it now would name what may be taken away at any moment (P5).
    pub fn is_given_up(&self, key: &ResourceKey) -> bool {
        let left = |holder: &Holder| match holder {
            Holder::Intent(number) => {
                self.intents.get(number).is_none_or(|intent| Some(intent.run) != self.newest_run())
            }
            Holder::Checkpoint(_) | Holder::Commit(_) | Holder::Savepoint(_) => false,
        };
        self.ledger.was_released(key) || self.ledger.get(key).is_some_and(|entry| entry.holders.keys().all(left))
    }

    /// The last epoch, if the bounded input ended there and nothing was sealed since.
    pub fn finished(&self) -> Option<EpochRef> {
        self.finished.filter(|last| self.tip == Some(*last))
    }

    /// The number of the next epoch: larger than every one before it, on any branch.
    pub fn next_epoch(&self) -> Epoch {
        let sealed = self.epochs.keys().map(|of| of.epoch);
        let parents = self.runs.values().filter_map(|node| node.open.parent.map(|of| of.epoch));
        sealed.chain(parents).max().unwrap_or(Epoch::ZERO).next()
    }

    /// All pieces of large state, and pages of positions, that a checkpoint which can be restored names.
    pub fn state_chunks(&self) -> BTreeSet<StateChunk> {
        let retained = self.epochs.values().filter(|epoch| epoch.checkpoint == CheckpointState::Retained);
        retained.flat_map(|epoch| epoch.seal.state_chunks()).cloned().collect()
    }

    /// Drops from memory what only checkpoints up to `of` know of positions; their pages stay beside the log. The newest
    /// one keeps its own: the next one builds on it.
    pub(crate) fn unload_positions(&mut self, of: EpochRef) {
        let Some(slot) = self.epochs.get(&of).map(|epoch| epoch.slot) else { return };
        let older = self.by_slot.range(..=slot).map(|(_, of)| *of).filter(|of| self.tip != Some(*of));
        for of in older.collect::<Vec<_>>() {
            if let Some(epoch) = self.epochs.get_mut(&of) {
                epoch.seal.sources.values_mut().for_each(|cut| cut.partitions.unload());
            }
        }
    }

    /// Whether `ancestor` is `of` or lies behind it on its line of descent.
    pub fn descends(&self, of: EpochRef, ancestor: EpochRef) -> bool {
        let mut at = Some(of);
        while let Some(here) = at {
            if here.run == ancestor.run {
                return ancestor.epoch <= here.epoch;
            }
            at = self.runs.get(&here.run).and_then(|node| node.open.parent);
        }
        false
    }

    /// Sealed epochs on the line of descent that ends with `of`, newest first. Deleted ones are left out.
    pub fn line(&self, of: Option<EpochRef>) -> Vec<&SealedEpoch> {
        let mut line = Vec::new();
        let mut at = of;
        while let Some(here) = at {
            let first = EpochRef { run: here.run, epoch: Epoch::ZERO };
            line.extend(self.epochs.range(first..=here).rev().map(|(_, epoch)| epoch));
            at = self.runs.get(&here.run).and_then(|node| node.open.parent);
        }
        line
    }

    /// Whether an epoch was, or may have been, sealed: also when its seal is deleted. What it says no to was never
    /// sealed and never will be, provided its run is not the newest.
    pub fn may_be_sealed(&self, of: EpochRef) -> bool {
        let Some(node) = self.runs.get(&of.run) else { return false };
        let sealed =
            self.epochs.range(EpochRef { run: of.run, epoch: Epoch::ZERO }..).take_while(|(r, _)| r.run == of.run);
        let parents = self.runs.values().filter_map(|n| n.open.parent).filter(|parent| parent.run == of.run);
        match sealed.map(|(r, _)| r.epoch).chain(parents.map(|parent| parent.epoch)).max() {
            Some(last) => of.epoch <= last,
            None => {
                let next_run = self.runs.range(of.run..).nth(1).map_or(self.next_slot(), |(_, next)| next.slot);
                self.gone_between(node.slot, next_run)
            }
        }
    }

    fn gone_between(&self, after: Slot, before: Slot) -> bool {
        self.gone.iter().any(|range| range.last > after && range.first < before)
    }

    /// Where a sink's destination stands when everything recorded as committed is there.
    pub fn standing(&self, sink: &SinkId) -> Standing {
        self.standings.get(sink).cloned().unwrap_or_default()
    }

    /// The latest time that is recorded in this seal or behind it, in Unix milliseconds: so late it has been, whatever a
    /// clock that was set back since says. What was recorded before may come from one that ran ahead, and says nothing.
    pub fn latest_since(&self, epoch: &SealedEpoch) -> u64 {
        let behind = self.runs.values().rev().take_while(|node| node.slot > epoch.slot).map(|node| node.opened_at);
        let sealed = self.by_slot.range(epoch.slot..).filter_map(|(_, of)| self.epochs.get(of));
        behind.chain(sealed.map(|epoch| epoch.sealed_at)).max().unwrap_or(epoch.sealed_at)
    }

    /// The destination's position when the newest run was decided.
    pub fn observed(&self, sink: &SinkId) -> Option<&Position> {
        self.runs.values().next_back()?.open.observed.get(sink)
    }
}

fn newest_gone(records: &[&Record]) -> Vec<SlotRange> {
    let newest = records.iter().rev().find_map(|record| match &record.body {
        Body::Deleted(deleted) => Some(deleted.gone.clone()),
        _ => None,
    });
    newest.unwrap_or_default()
}
