//! The log that all hosts share, and what it says: once as the product folds it, once as the judge reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_protocol::event::AppendResult;
use tidegate_protocol::history::{History, HistoryError};
use tidegate_protocol::ids::{EpochRef, PartId, RunId, SinkId, Slot};
use tidegate_protocol::plugin::{AtomicScope, Position};
use tidegate_protocol::record::{
    Blocked, Body, Choice, CutReason, EpochOutcome, MismatchPolicy, Open, OutcomeEntry, Record, Seal,
};

use crate::plan::{number_of, source};

/// One slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Entry {
    /// What was created there.
    pub record: Arc<Record>,
    /// It was deleted. The judge still knows it.
    pub gone: bool,
    /// It can be read and is not on the disk.
    pub volatile: bool,
}

/// Records without gaps, created if absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Log {
    /// By slot, from 1.
    pub entries: Vec<Entry>,
    /// Seals that were in it before it was put back to an older state.
    pub lost: Vec<Arc<Record>>,
}

impl Log {
    /// The next slot.
    pub fn next(&self) -> Slot {
        Slot(self.entries.len() as u64 + 1)
    }

    /// What is in a slot.
    pub fn at(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(usize::try_from(slot.0.checked_sub(1)?).ok()?)
    }

    /// Create if absent.
    pub fn append(&mut self, record: &Record) -> AppendResult {
        match self.at(record.slot) {
            Some(entry) if !entry.gone => AppendResult::Taken(Box::new(Record::clone(&entry.record))),
            Some(_) => AppendResult::NotWritten { message: "the slot is in the past".to_owned(), retryable: false },
            None if record.slot > self.next() => {
                AppendResult::NotWritten { message: "the record before it is missing".to_owned(), retryable: false }
            }
            None => {
                self.entries.push(Entry { record: Arc::new(record.clone()), gone: false, volatile: false });
                AppendResult::Created
            }
        }
    }

    /// Everything that can be read.
    pub fn readable(&self) -> impl Iterator<Item = &Record> {
        self.entries.iter().filter(|entry| !entry.gone).map(|entry| &*entry.record)
    }

    /// The product's fold.
    ///
    /// # Errors
    /// The log contradicts itself.
    pub fn fold(&self) -> Result<History, HistoryError> {
        History::fold(self.readable())
    }

    /// The same up to a slot.
    ///
    /// # Errors
    /// The log contradicts itself.
    pub fn fold_before(&self, slot: Slot) -> Result<History, HistoryError> {
        History::fold(self.readable().filter(|record| record.slot < slot))
    }
}

/// A part that was ever sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPart {
    /// At which sink.
    pub sink: SinkId,
    /// Its id.
    pub part: PartId,
    /// Its rows.
    pub rows: Vec<u8>,
}

/// One sealed epoch, as the judge reads it.
#[derive(Debug, Clone)]
pub struct SealFacts {
    /// The run and the number.
    pub of: EpochRef,
    /// Where its seal stands.
    pub slot: Slot,
    /// Its seal.
    pub seal: Seal,
    /// Sinks with parts, and whether an end is recorded there.
    pub ends: BTreeMap<SinkId, bool>,
    /// Sinks at which it is recorded as committed, and the slot of the record that says so first.
    pub committed: BTreeMap<SinkId, Slot>,
    /// Sinks at which it is recorded that nobody can commit it any more.
    pub never: BTreeSet<SinkId>,
    /// It can never be restored again.
    pub retired: bool,
}

/// Everything that the judge wants to know of a log. Nothing here is taken from the product's fold.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// By run: where its `open` stands, and what it said.
    pub opens: BTreeMap<RunId, (Slot, Open)>,
    /// Every seal that was ever in this log, also deleted ones.
    pub seals: BTreeMap<EpochRef, SealFacts>,
    /// Parts of all of them by short name, and of those that were lost with an older state of the log.
    pub sealed: BTreeMap<String, SealedPart>,
    /// Only what this log knows.
    pub known: BTreeSet<String>,
    /// Savepoints by name.
    pub savepoints: BTreeMap<String, EpochRef>,
    /// Rows may come twice, somebody decided.
    pub duplicates_accepted: bool,
    /// The destination's loss was accepted, or rows were given up.
    pub loss_accepted: bool,
    /// Decisions, by id.
    pub decided: BTreeMap<String, Choice>,
    /// By decision: how many runs were opened under it.
    pub used: BTreeMap<String, u32>,
    /// The largest number of a host that left a trace here.
    pub newest_host: u8,
    /// The input was called finished.
    pub finished: bool,
    /// The log was put back to what it was before, and has lost records.
    pub went_back: bool,
    /// Epochs that a run left behind although something of them could still be sent.
    pub left_behind: Vec<(SinkId, EpochRef)>,
}

/// The rows of a part, as its committable tells.
pub fn rows_of(body: &[u8]) -> Vec<u8> {
    body.to_vec()
}

impl Facts {
    /// Reads a log from its first record, deleted ones too.
    pub fn of(log: &Log) -> Self {
        let mut facts = Self { went_back: !log.lost.is_empty(), ..Self::default() };
        for record in &log.lost {
            facts.note_host(record.run);
            if let Body::Seal(seal) = &record.body {
                facts.note_parts(seal, false);
            }
        }
        for entry in &log.entries {
            facts.read(&entry.record);
        }
        facts
    }

    fn note_host(&mut self, run: RunId) {
        self.newest_host = self.newest_host.max(number_of(run));
    }

    fn note_parts(&mut self, seal: &Seal, known: bool) {
        for (sink, cut) in &seal.sinks {
            for committable in cut.parts.iter().filter_map(|part| part.committable.as_ref()) {
                let (part, rows) = (committable.part.clone(), rows_of(&committable.body));
                if known {
                    self.known.insert(part.short.clone());
                }
                self.sealed.insert(part.short.clone(), SealedPart { sink: sink.clone(), part, rows });
            }
        }
    }

    fn read(&mut self, record: &Record) {
        self.note_host(record.run);
        for OutcomeEntry { sink, of, outcome, .. } in &record.outcomes {
            let Some(seal) = self.seals.get_mut(of) else { continue };
            match outcome {
                EpochOutcome::Committed => {
                    seal.ends.insert(sink.clone(), true);
                    seal.committed.entry(sink.clone()).or_insert(record.slot);
                }
                EpochOutcome::Blocked(Blocked::Never) => {
                    seal.never.insert(sink.clone());
                }
                EpochOutcome::InDoubt(_) | EpochOutcome::Blocked(_) => {}
            }
        }
        match &record.body {
            Body::Open(open) => {
                self.opens.insert(record.run, (record.slot, open.clone()));
                for id in &open.under {
                    *self.used.entry(id.clone()).or_default() += 1;
                }
                self.leave_behind();
            }
            Body::Seal(seal) => self.read_seal(record, seal),
            Body::Decision(decision) => {
                self.decided.insert(decision.id.clone(), decision.choice.clone());
                self.read_choice(&decision.choice);
            }
            Body::Savepoint(savepoint) => {
                self.savepoints.insert(savepoint.name.clone(), savepoint.of);
            }
            Body::Forget(forget) => {
                self.savepoints.remove(&forget.name);
            }
            Body::Retire(retire) => {
                for of in &retire.of {
                    if let Some(seal) = self.seals.get_mut(of) {
                        seal.retired = true;
                    }
                }
            }
            Body::Finished(_) => self.finished = true,
            Body::Intent(_) | Body::Bound(_) | Body::Outcomes | Body::Released(_) | Body::Deleted(_) => {}
        }
    }

    /// What is not on the newest run's line can only be forked off, and only if nobody can commit it any more.
    fn leave_behind(&mut self) {
        let line: BTreeSet<EpochRef> = self.line().iter().map(|seal| seal.of).collect();
        for seal in self.seals.values_mut().filter(|seal| !line.contains(&seal.of)) {
            for (sink, ended) in seal.ends.iter_mut().filter(|(_, ended)| !**ended) {
                *ended = true;
                if !seal.never.contains(sink) {
                    self.left_behind.push((sink.clone(), seal.of));
                }
            }
        }
    }

    fn read_seal(&mut self, record: &Record, seal: &Seal) {
        let of = EpochRef { run: record.run, epoch: seal.epoch };
        self.note_parts(seal, true);
        let empty = |sink: &SinkId| seal.sinks[sink].parts.iter().all(|part| part.committable.is_none());
        let facts = SealFacts {
            of,
            slot: record.slot,
            seal: seal.clone(),
            ends: seal.sinks.keys().map(|sink| (sink.clone(), empty(sink))).collect(),
            committed: BTreeMap::new(),
            never: BTreeSet::new(),
            retired: false,
        };
        self.seals.insert(of, facts);
        if let CutReason::Savepoint(name) = &seal.reason {
            self.savepoints.insert(name.clone(), of);
        }
    }

    fn read_choice(&mut self, choice: &Choice) {
        match choice {
            Choice::GiveUp { sink, of } => {
                self.loss_accepted = true;
                if let Some(seal) = self.seals.get_mut(of) {
                    seal.ends.insert(sink.clone(), true);
                }
            }
            Choice::Retry { sink, of } => {
                if let Some(seal) = self.seals.get_mut(of) {
                    seal.never.remove(sink);
                }
            }
            Choice::Fork { policy, .. } | Choice::Accept { policy, .. } => match policy {
                MismatchPolicy::AcceptDuplicates => self.duplicates_accepted = true,
                MismatchPolicy::AcceptLoss => self.loss_accepted = true,
                // What was lost is sent again; nothing may be missing or come twice in the end.
                MismatchPolicy::ReplayFromDestination => {}
            },
        }
    }

    /// The oldest checkpoint that can be restored.
    pub fn oldest(&self) -> Option<EpochRef> {
        self.seals.values().filter(|seal| !seal.retired).min_by_key(|seal| seal.slot).map(|seal| seal.of)
    }

    /// The run that may write.
    pub fn newest_run(&self) -> Option<RunId> {
        self.opens.keys().next_back().copied()
    }

    /// Sealed epochs of the newest run's line of descent, oldest first.
    pub fn line(&self) -> Vec<&SealFacts> {
        self.line_to(self.newest_run(), u64::MAX)
    }

    /// The same of another run, up to an epoch.
    pub fn line_to(&self, run: Option<RunId>, bound: u64) -> Vec<&SealFacts> {
        let mut line = Vec::new();
        let mut at = run;
        let mut bound = bound;
        while let Some(run) = at {
            line.extend(self.seals.values().rev().filter(|seal| seal.of.run == run && seal.of.epoch.0 <= bound));
            let parent = self.opens.get(&run).and_then(|(_, open)| open.parent);
            at = parent.map(|of| of.run);
            bound = parent.map_or(0, |of| of.epoch.0);
        }
        line.reverse();
        line
    }

    /// Rows that a line has at a sink, in order.
    pub fn rows_at(line: &[&SealFacts], sink: &SinkId) -> Vec<u8> {
        let cuts = line.iter().filter_map(|seal| seal.seal.sinks.get(sink));
        let parts = cuts.flat_map(|cut| &cut.parts).filter_map(|part| part.committable.as_ref());
        parts.flat_map(|committable| rows_of(&committable.body)).collect()
    }

    /// How far the source had come at a seal.
    pub fn position(seal: &Seal) -> u8 {
        let cut = seal.sources.get(&source());
        let entries = cut.and_then(|cut| cut.partitions.entries().ok());
        entries.and_then(|entries| entries.get("0").and_then(|text| text.parse().ok())).unwrap_or(0)
    }

    /// Why a resource must not go, if anything retained names it.
    pub fn needs(&self, sink: &SinkId, name: &str) -> Option<String> {
        let names = |seal: &SealFacts| {
            let parts = seal.seal.sinks.get(sink).into_iter().flat_map(|cut| &cut.parts);
            parts.flat_map(|part| &part.resources).any(|resource| resource.name == name)
        };
        for seal in self.seals.values().filter(|seal| names(seal)) {
            let of = seal.of;
            if !seal.retired {
                return Some(format!("the checkpoint of {of} is retained"));
            }
            if !seal.ends.get(sink).copied().unwrap_or(true) {
                return Some(format!("{of} is not committed"));
            }
            if let Some((name, _)) = self.savepoints.iter().find(|(_, saved)| **saved == of) {
                return Some(format!("savepoint `{name}` is {of}"));
            }
        }
        None
    }

    /// What decisions allow of a sink: that it is ahead or foreign, and that it is behind.
    pub fn allowed(&self, under: &[String], sink: &SinkId) -> (bool, bool) {
        let mut allowed = (false, false);
        for choice in under.iter().filter_map(|id| self.decided.get(id)) {
            match choice {
                // Whoever goes back may find less than the newest checkpoint names, at every sink.
                Choice::Fork { policy, .. } => {
                    allowed.0 |= *policy == MismatchPolicy::AcceptDuplicates;
                    allowed.1 = true;
                }
                Choice::Accept { policy: MismatchPolicy::ReplayFromDestination, .. } => allowed.1 = true,
                Choice::Accept { sink: at, policy } if at == sink => {
                    allowed.0 |= *policy == MismatchPolicy::AcceptDuplicates;
                    allowed.1 |= *policy == MismatchPolicy::AcceptLoss;
                }
                Choice::Accept { .. } | Choice::Retry { .. } | Choice::GiveUp { .. } => {}
            }
        }
        allowed
    }

    /// What a destination shows at least, with the slot of its seal: the newest commit that is recorded, of all
    /// participants or of each, or what somebody accepted since.
    fn expected(&self, scope: AtomicScope, sink: &SinkId, before: Slot) -> Vec<(PartId, Slot)> {
        let accepted = self.opens.values().filter(|(slot, open)| *slot < before && !open.under.is_empty());
        let accepted = accepted.filter_map(|(slot, open)| Some((*slot, open.observed.get(sink)?)));
        let accepted = accepted.max_by_key(|(slot, _)| *slot);
        let since = accepted.map_or(Slot(0), |(slot, _)| slot);
        let seen = accepted.into_iter().flat_map(|(_, seen)| &seen.last);
        let mut expected: BTreeMap<u32, (PartId, Slot)> =
            seen.map(|part| (part.ordinal, (part.clone(), Slot(0)))).collect();
        let commits = self.seals.values().filter_map(|seal| Some((*seal.committed.get(sink)?, seal)));
        let mut commits: Vec<_> = commits.filter(|(slot, _)| *slot > since && *slot < before).collect();
        commits.sort_by_key(|(slot, seal)| (*slot, seal.slot));
        for (_, seal) in commits {
            let parts = seal.seal.sinks.get(sink).into_iter().flat_map(|cut| &cut.parts);
            let parts = parts.filter_map(|part| Some(part.committable.as_ref()?.part.clone()));
            let parts: Vec<PartId> = parts.collect();
            if scope == AtomicScope::Sink && !parts.is_empty() {
                expected.clear();
            }
            expected.extend(parts.into_iter().map(|part| (part.ordinal, (part, seal.slot))));
        }
        expected.into_values().collect()
    }

    /// Whether a destination has what this log knows as committed there, or something newer.
    pub fn reaches(&self, scope: AtomicScope, sink: &SinkId, seen: &Position, before: Slot) -> Result<(), String> {
        // Commits come in order, so what is there and not recorded came behind what is.
        let newer = |part: &PartId, than: Slot| {
            let seal = self.seals.get(&part.epoch_ref());
            seal.is_some_and(|seal| seal.slot > than && !seal.committed.contains_key(sink))
        };
        for (wanted, slot) in self.expected(scope, sink, before) {
            let same = |part: &PartId| match scope {
                AtomicScope::Sink => part.epoch_ref() == wanted.epoch_ref(),
                AtomicScope::Participant => *part == wanted,
            };
            let of = |part: &&PartId| scope == AtomicScope::Sink || part.ordinal == wanted.ordinal;
            if !seen.last.iter().filter(of).any(|part| same(part) || newer(part, slot)) {
                return Err(format!("it stands at {:?} and should have `{wanted}`", seen.last));
            }
        }
        Ok(())
    }

    /// Whether what a run observed is this log's own, or was accepted before.
    ///
    /// # Errors
    /// What is not.
    pub fn explains(&self, sink: &SinkId, seen: &Position, before: Slot) -> Result<(), String> {
        let accepted: Vec<&Position> = self
            .opens
            .values()
            .filter(|(slot, open)| *slot < before && !open.under.is_empty())
            .filter_map(|(_, open)| open.observed.get(sink))
            .collect();
        if let Some(fence) = seen.fence {
            let ours = self.opens.contains_key(&fence)
                || accepted.iter().any(|at| at.fence == Some(fence) || at.last.iter().any(|part| part.run == fence));
            if !ours {
                return Err(format!("it was fenced by run {fence}, which this log never opened"));
            }
        }
        for part in &seen.last {
            if !self.known.contains(&part.short) && !accepted.iter().any(|at| at.last.contains(part)) {
                return Err(format!("it holds `{part}`, which this log never sealed"));
            }
        }
        Ok(())
    }
}
