//! What follows from the records of the logs, worked out once for all oracles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_protocol::ids::{Epoch, EpochRef, RunId, SinkId, Slot};
use tidegate_protocol::record::{Body, Choice, EpochOutcome, MismatchPolicy, Open, Record, Seal};

use super::Evidence;
use crate::dest::Did;
use crate::store::LogJournal;
use crate::world::Seq;

/// Where a part is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedAt {
    /// Since when.
    pub seq: Seq,
    /// In which epoch.
    pub of: EpochRef,
}

/// A seal in the log that counts.
#[derive(Debug, Clone)]
pub struct SealFact {
    /// Since when.
    pub seq: Seq,
    /// Where.
    pub slot: Slot,
    /// The record.
    pub record: Arc<Record>,
}

impl SealFact {
    /// The seal itself.
    pub fn seal(&self) -> Option<&Seal> {
        match &self.record.body {
            Body::Seal(seal) => Some(seal),
            _ => None,
        }
    }
}

/// What follows from the evidence.
#[derive(Debug, Default)]
pub struct Facts {
    /// Seals of the log that counts.
    pub seals: BTreeMap<EpochRef, SealFact>,
    /// Per sink and short name: parts that are sealed in the log that counts.
    pub parts: BTreeMap<(SinkId, String), SealedAt>,
    /// The same, in any log.
    pub parts_anywhere: BTreeMap<(SinkId, String), SealedAt>,
    /// Runs with their `open` records in the log that counts.
    pub runs: BTreeMap<RunId, (Seq, Slot, Open)>,
    /// When any log may have held the `open` record of a run.
    pub opened: BTreeMap<RunId, Seq>,
    /// The epochs that count, oldest first.
    pub line: Vec<EpochRef>,
    /// Epochs given up at a sink, and since when.
    pub given_up: BTreeMap<(SinkId, EpochRef), Seq>,
    /// Epochs sent again by a person.
    pub retried: BTreeSet<(SinkId, EpochRef)>,
    /// When a part was committed, by short name, for the first time.
    pub marked: BTreeMap<(SinkId, String), Seq>,
    /// Rows that a destination really staged for a part.
    pub staged: BTreeMap<(SinkId, String), Vec<Bytes>>,
    /// Per sink: what excuses it.
    pub excuses: BTreeMap<SinkId, Excuses>,
    /// Somebody went back to an older checkpoint.
    pub forked: bool,
}

/// What a person decided, or a destination did, that a pipeline cannot make good.
#[derive(Debug, Clone, Default)]
pub struct Excuses {
    /// Parts about which a plugin lied.
    pub lied: BTreeSet<String>,
    /// Parts that the destination lost when it was put back.
    pub lost: BTreeSet<String>,
    /// A foreign program erased markers, so that a repeat is not known any more.
    pub markers_erased: bool,
    /// A mismatch was accepted, or a fork may repeat rows.
    pub accepted: bool,
    /// A second host wrote, and the destination cannot be fenced.
    pub second_host: bool,
    /// Some rows were given up.
    pub given_up: bool,
    /// A person had an epoch sent again, and the destination may not know that it has it.
    pub repeated: bool,
}

impl Excuses {
    /// Nothing happened that excuses a row too many.
    pub fn may_not_repeat(&self) -> bool {
        !(self.markers_erased || self.accepted || self.second_host || self.repeated || !self.lied.is_empty())
    }

    /// Nothing happened that excuses a row too few.
    pub fn may_not_lose(&self) -> bool {
        !(self.accepted || self.given_up || self.second_host || !self.lied.is_empty() || !self.lost.is_empty())
    }
}

impl Facts {
    /// Works them out.
    pub fn of(evidence: &Evidence) -> Self {
        let mut facts = Self::default();
        facts.read_log(&evidence.log);
        facts.parts_anywhere = facts.parts.clone();
        for log in std::iter::once(&evidence.log).chain(&evidence.copies) {
            facts.read_any_log(log);
        }
        facts.line = facts.find_line();
        for (sink, seen) in &evidence.sinks {
            let mut excuses = Excuses::default();
            for entry in &seen.journal.entries {
                match &entry.did {
                    Did::Marked { part } => {
                        facts.marked.entry((sink.clone(), part.short.clone())).or_insert(entry.seq);
                    }
                    Did::Staged { part, rows, .. } => {
                        facts.staged.insert((sink.clone(), part.short.clone()), rows.clone());
                    }
                    Did::Lied { parts, .. } => excuses.lied.extend(parts.iter().map(|part| part.short.clone())),
                    Did::MarkersForgotten { foreign: true, shorts } => excuses.markers_erased |= !shorts.is_empty(),
                    Did::WentBack { to } => {
                        let lost = seen.journal.entries.iter().filter(|e| e.seq > *to && e.seq < entry.seq);
                        excuses.lost.extend(lost.filter_map(|e| match &e.did {
                            Did::Staged { part, .. } | Did::Marked { part } => Some(part.short.clone()),
                            _ => None,
                        }));
                    }
                    _ => {}
                }
            }
            excuses.second_host = !evidence.copies.is_empty() && !seen.kind.fence;
            excuses.given_up = facts.given_up.keys().any(|(at, _)| at == sink);
            excuses.repeated = seen.kind.keeps_prepared() && facts.retried.iter().any(|(at, _)| at == sink);
            excuses.accepted = facts.accepted(sink);
            facts.excuses.insert(sink.clone(), excuses);
        }
        facts
    }

    /// What excuses a sink.
    pub fn excuses(&self, sink: &SinkId) -> Excuses {
        self.excuses.get(sink).cloned().unwrap_or_default()
    }

    /// Whether a run does something with a log that was copied, and not with the one that counts.
    pub fn goes_on_elsewhere(&self, evidence: &Evidence, by: Option<RunId>, at: Seq) -> bool {
        let opened = by.map(|by| self.runs.get(&by).map(|(opened, ..)| *opened));
        let before = |copied: &Seq| opened.is_some_and(|opened| opened.is_none_or(|opened| opened < *copied));
        evidence.copied_at.iter().any(|copied| at > *copied && before(copied))
    }

    fn read_log(&mut self, log: &LogJournal) {
        for entry in log.durable() {
            let record = &entry.record;
            match &record.body {
                Body::Open(open) => {
                    self.runs.insert(record.run, (entry.seq, record.slot, open.clone()));
                }
                Body::Seal(seal) => {
                    let of = EpochRef { run: record.run, epoch: seal.epoch };
                    let fact = SealFact { seq: entry.seq, slot: record.slot, record: Arc::clone(record) };
                    self.seals.insert(of, fact);
                    for (sink, cut) in &seal.sinks {
                        for part in cut.parts.iter().filter_map(|part| part.committable.as_ref()) {
                            let at = SealedAt { seq: entry.seq, of };
                            self.parts.insert((sink.clone(), part.part.short.clone()), at);
                        }
                    }
                }
                Body::Decision(decision) => match &decision.choice {
                    Choice::GiveUp { sink, of } => {
                        self.given_up.insert((sink.clone(), *of), entry.seq);
                    }
                    Choice::Retry { sink, of } => {
                        self.retried.insert((sink.clone(), *of));
                    }
                    Choice::Fork { .. } => self.forked = true,
                    Choice::Accept { policy, .. } => self.forked |= *policy == MismatchPolicy::ReplayFromDestination,
                },
                _ => {}
            }
        }
    }

    /// Also what may be there, since a host may have acted on it.
    fn read_any_log(&mut self, log: &LogJournal) {
        for entry in &log.entries {
            match &entry.record.body {
                Body::Open(_) => {
                    self.opened.entry(entry.record.run).or_insert(entry.seq);
                }
                Body::Seal(seal) if entry.certain || entry.seen => {
                    let at = SealedAt { seq: entry.seq, of: EpochRef { run: entry.record.run, epoch: seal.epoch } };
                    for (sink, cut) in &seal.sinks {
                        for part in cut.parts.iter().filter_map(|part| part.committable.as_ref()) {
                            self.parts_anywhere.entry((sink.clone(), part.part.short.clone())).or_insert(at);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Follows the parents back from the newest run.
    fn find_line(&self) -> Vec<EpochRef> {
        let newest = self.runs.iter().max_by_key(|(_, (_, slot, _))| *slot);
        let mut at = newest.map(|(run, _)| EpochRef { run: *run, epoch: Epoch(u64::MAX) });
        let mut line = Vec::new();
        while let Some(here) = at {
            let first = EpochRef { run: here.run, epoch: Epoch::ZERO };
            line.extend(self.seals.range(first..=here).rev().map(|(of, _)| *of));
            at = self.runs.get(&here.run).and_then(|(_, _, open)| open.parent);
        }
        line.reverse();
        line
    }

    fn accepted(&self, sink: &SinkId) -> bool {
        self.runs
            .values()
            .any(|(_, _, open)| !open.under.is_empty() && (self.forked || open.observed.contains_key(sink)))
    }

    /// Whether an epoch has come to an end at a sink by `at`.
    pub fn ended_by(&self, sink: &SinkId, of: EpochRef, at: Seq) -> bool {
        let given_up = self.given_up.get(&(sink.clone(), of)).is_some_and(|since| *since < at);
        given_up
            || self
                .parts_of(sink, of)
                .all(|short| self.marked.get(&(sink.clone(), short.to_owned())).is_some_and(|since| *since < at))
    }

    /// Short names of the parts that a sealed epoch has at a sink.
    pub fn parts_of(&self, sink: &SinkId, of: EpochRef) -> impl Iterator<Item = &str> {
        let seal = self.seals.get(&of).and_then(SealFact::seal);
        let cut = seal.and_then(|seal| seal.sinks.get(sink));
        cut.into_iter()
            .flat_map(|cut| &cut.parts)
            .filter_map(|part| Some(part.committable.as_ref()?.part.short.as_str()))
    }

    /// Epochs with rows that every sink has committed.
    pub fn committed_with_rows(&self) -> usize {
        let full = |fact: &SealFact| {
            let Some(seal) = fact.seal() else { return false };
            let of = EpochRef { run: fact.record.run, epoch: seal.epoch };
            let parts: Vec<(&SinkId, &str)> =
                seal.sinks.keys().flat_map(|sink| self.parts_of(sink, of).map(move |short| (sink, short))).collect();
            !parts.is_empty()
                && parts.iter().all(|(sink, short)| self.marked.contains_key(&((*sink).clone(), (*short).to_owned())))
        };
        self.seals.values().filter(|fact| full(fact)).count()
    }

    /// The newest outcome of an epoch at a sink that the log recorded before a slot is "committed".
    pub fn recorded_committed(log: &LogJournal, before: Slot) -> BTreeSet<(SinkId, EpochRef)> {
        let records = log.durable().filter(|entry| entry.record.slot < before);
        let outcomes = records.flat_map(|entry| &entry.record.outcomes);
        outcomes
            .filter(|outcome| outcome.outcome == EpochOutcome::Committed)
            .map(|outcome| (outcome.sink.clone(), outcome.of))
            .collect()
    }
}
