//! Cutting epochs: when a barrier is injected, and what is collected until the seal.

use std::collections::{BTreeMap, BTreeSet};

use super::readers::Readers;
use super::{Coordinator, Phase, seal};
use crate::event::{Effect, End, Notice, SourceProgress, TaskFailure, Timer};
use crate::fault::Remedy;
use crate::history::CheckpointState;
use crate::ids::{Epoch, EpochRef, OperatorId, RunId, SinkId, SourceId};
use crate::plugin::Prepared;
use crate::record::{Body, CutReason, OperatorCut, Seal};

/// The epoch being written, and the one whose barrier is under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Writing {
    /// The epoch that the next barrier ends.
    pub(super) epoch: Epoch,
    /// It has rows or changed state.
    pub(super) busy: bool,
    /// A barrier is wanted.
    pub(super) due: Option<CutReason>,
    pub(super) sources_ended: bool,
    pub(super) stopping: bool,
    /// Why the last epoch of this run was cut; no barrier comes after it.
    pub(super) last_cut: Option<CutReason>,
    barrier: Option<Barrier>,
    readers: Readers,
    /// Sinks whose resources live too short, as somebody was told.
    told_of_short_lives: BTreeSet<SinkId>,
}

/// What one participant reported.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Report {
    pub(super) rows_in: u64,
    pub(super) filtered: u64,
    pub(super) rejected_in_write: u64,
    pub(super) prepared: Option<Prepared>,
}

/// One barrier and everything that it has brought back so far: sets, not counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Barrier {
    pub(super) epoch: Epoch,
    pub(super) reason: CutReason,
    pub(super) sources: BTreeMap<(SourceId, u32), SourceProgress>,
    pub(super) operators: BTreeMap<(OperatorId, u32), OperatorCut>,
    pub(super) parts: BTreeMap<(SinkId, u32), Report>,
    /// The seal is on its way into the log.
    sealing: bool,
}

impl Writing {
    pub(super) fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            busy: false,
            due: None,
            sources_ended: false,
            stopping: false,
            last_cut: None,
            barrier: None,
            readers: Readers::default(),
            told_of_short_lives: BTreeSet::new(),
        }
    }

    pub(super) fn preparing(&self) -> Option<Epoch> {
        self.barrier.as_ref().map(|barrier| barrier.epoch)
    }

    /// Why the barrier under way was sent.
    pub(super) fn cut_under_way(&self) -> Option<&CutReason> {
        self.barrier.as_ref().map(|barrier| &barrier.reason)
    }

    /// The oldest epoch of this run that is not sealed.
    pub(super) fn epoch_in_work(&self) -> Epoch {
        self.preparing().unwrap_or(self.epoch)
    }

    /// The oldest epoch whose seal is not under way: nothing can be announced for a sealed one.
    pub(super) fn epoch_open_for_intents(&self) -> Epoch {
        let open = self.barrier.as_ref().filter(|barrier| !barrier.sealing);
        open.map_or(self.epoch, |barrier| barrier.epoch)
    }

    /// Parts prepared and not sealed yet: their resources are pinned (P5).
    pub(super) fn prepared(&self) -> impl Iterator<Item = (&SinkId, &Prepared)> {
        let parts = self.barrier.iter().flat_map(|barrier| &barrier.parts);
        parts.filter_map(|((sink, _), report)| Some((sink, report.prepared.as_ref()?)))
    }
}

/// What came of looking at a message for the barrier under way.
enum Fits {
    Yes,
    /// Late or repeated: nothing happens.
    Drop,
    /// It cannot come from tasks that work.
    Broken(String),
}

impl Coordinator {
    pub(super) fn on_tasks_opened(&mut self) {
        if self.phase != Phase::OpeningTasks {
            return;
        }
        self.phase = Phase::Running;
        if self.settings.sweep_ms > 0 {
            self.emit(Effect::Wait { timer: Timer::Sweep, millis: self.settings.sweep_ms });
        }
    }

    pub(super) fn on_barrier_due(&mut self, reason: CutReason) {
        match &reason {
            CutReason::Stop => return self.on_stop_requested(),
            CutReason::End => {
                self.writing.sources_ended = true;
                return;
            }
            CutReason::Savepoint(name) => {
                if self.history.savepoints().contains_key(name)
                    || (self.savepoint_is_due(name) && self.writing.due.as_ref() != Some(&reason))
                {
                    return self.warn(format!("there is a savepoint `{name}` already; choose another name"));
                }
                if let Some(CutReason::Savepoint(other)) = &self.writing.due
                    && other != name
                {
                    return self.warn(format!("savepoint `{name}` is not taken: `{other}` comes first; ask again"));
                }
            }
            CutReason::Interval => {}
        }
        // A savepoint is not lost to a plain barrier that became due at the same time.
        if !matches!(self.writing.due, Some(CutReason::Savepoint(_))) {
            self.writing.due = Some(reason);
        }
    }

    pub(super) fn on_source_cut(&mut self, source: SourceId, task: u32, epoch: Epoch, progress: SourceProgress) {
        let known = self.graph.sources.get(&source).is_some_and(|spec| task < spec.tasks);
        let key = (source, task);
        let fits = self.fits(epoch, known, |barrier| barrier.sources.get(&key).map(|seen| *seen == progress));
        let who = format!("task {task} of source `{}`", key.0);
        if self.take(fits, &who).is_none() {
            return;
        }
        if let Err(partition) = self.writing.readers.note(&key.0, task, progress.moved.keys()) {
            let message = format!("two tasks of source `{}` read partition `{partition}`", key.0);
            return self.end(End::Failed(TaskFailure::Host(message)));
        }
        if let Some(barrier) = self.writing.barrier.as_mut() {
            barrier.sources.insert(key, progress);
        }
    }

    pub(super) fn on_operator_cut(&mut self, operator: OperatorId, task: u32, epoch: Epoch, cut: OperatorCut) {
        let known = self.graph.operators.get(&operator).is_some_and(|tasks| task < *tasks);
        let key = (operator, task);
        let fits = self.fits(epoch, known, |barrier| barrier.operators.get(&key).map(|seen| *seen == cut));
        let who = format!("subtask {task} of operator `{}`", key.0);
        if let Some(barrier) = self.take(fits, &who) {
            barrier.operators.insert(key, cut);
        }
    }

    pub(super) fn on_part_prepared(&mut self, sink: SinkId, ordinal: u32, epoch: Epoch, report: Report) {
        let known = self.graph.sinks.get(&sink).is_some_and(|spec| ordinal < spec.participants);
        let key = (sink, ordinal);
        let fits = self.fits(epoch, known, |barrier| barrier.parts.get(&key).map(|seen| *seen == report));
        let who = format!("participant {ordinal} of sink `{}`", key.0);
        let given_up = match (&report.prepared, self.graph.sinks.get(&key.0)) {
            (Some(prepared), Some(spec)) => {
                seal::names_what_was_given_up(&self.history, &key.0, spec, ordinal, prepared)
            }
            _ => None,
        };
        let Some(barrier) = self.take(fits, &who) else { return };
        barrier.parts.insert(key, report);
        if let Some(failure) = given_up {
            self.end(End::Failed(failure));
        }
    }

    /// Messages are told apart by who sent them and for which epoch, so that a repeat can neither count twice nor stand
    /// in for another.
    fn fits(&self, epoch: Epoch, known: bool, seen: impl Fn(&Barrier) -> Option<bool>) -> Fits {
        if !known {
            return Fits::Broken("is not part of the pipeline".to_owned());
        }
        let barrier = self.writing.barrier.as_ref();
        let barrier = match barrier {
            Some(barrier) if barrier.epoch == epoch => barrier,
            // Of an epoch that was sealed: everything that belongs to it is in its seal, so this is a repeat.
            _ if epoch < self.writing.epoch_in_work() => return Fits::Drop,
            _ => return Fits::Broken(format!("reached a barrier of epoch {epoch} that was never injected")),
        };
        match seen(barrier) {
            None if barrier.sealing => Fits::Broken(format!("reported for epoch {epoch} after it was complete")),
            None => Fits::Yes,
            Some(true) => Fits::Drop,
            Some(false) => Fits::Broken(format!("reported twice for epoch {epoch}, and not the same")),
        }
    }

    fn take(&mut self, fits: Fits, who: &str) -> Option<&mut Barrier> {
        if !self.alive() {
            return None;
        }
        match fits {
            Fits::Yes => self.writing.barrier.as_mut(),
            Fits::Drop => None,
            Fits::Broken(what) => {
                self.end(End::Restart(TaskFailure::Host(format!("{who} {what}"))));
                None
            }
        }
    }

    /// Ends the run: a run never aborts its own epoch, the next one starts behind the last seal.
    pub(super) fn on_epoch_lost(&mut self, reason: TaskFailure) {
        let end = match &reason {
            TaskFailure::Plugin(_, fault) if fault.remedy() == Remedy::Superseded => End::Superseded(fault.to_string()),
            TaskFailure::Plugin(_, fault) if fault.is_hopeless() => End::Failed(reason),
            TaskFailure::Source { permanent: true, .. } | TaskFailure::BadRow { .. } | TaskFailure::Shape { .. } => {
                End::Failed(reason)
            }
            TaskFailure::Plugin(..) | TaskFailure::Source { .. } | TaskFailure::Host(_) => End::Restart(reason),
        };
        self.end(end);
    }

    pub(super) fn go_on_writing(&mut self) {
        if !self.alive() || self.phase != Phase::Running {
            return;
        }
        self.seal_when_complete();
        self.inject_when_due();
    }

    /// Whether an epoch is between its barrier and its seal.
    pub(super) fn cutting(&self) -> bool {
        self.writing.barrier.is_some()
    }

    fn inject_when_due(&mut self) {
        if !self.alive() || self.cutting() || self.writing.last_cut.is_some() {
            return;
        }
        let Some(reason) = self.next_cut() else { return };
        if self.full_lane().is_some() {
            return;
        }
        if matches!(reason, CutReason::Stop | CutReason::End) {
            self.writing.last_cut = Some(reason.clone());
        }
        let epoch = self.writing.epoch;
        self.note_savepoint_cut(&reason);
        self.writing.due = None;
        self.writing.busy = false;
        self.writing.epoch = epoch.next();
        self.writing.barrier = Some(Barrier {
            epoch,
            reason: reason.clone(),
            sources: BTreeMap::new(),
            operators: BTreeMap::new(),
            parts: BTreeMap::new(),
            sealing: false,
        });
        self.emit(Effect::InjectBarrier { epoch, reason });
    }

    fn next_cut(&self) -> Option<CutReason> {
        let Writing { due, busy, sources_ended, stopping, .. } = &self.writing;
        match due {
            Some(CutReason::Savepoint(_)) => due.clone(),
            _ if let Some(asked) = self.requests.next_savepoint() => Some(asked),
            _ if *sources_ended && !self.nothing_new_at_end() => Some(CutReason::End),
            _ if *sources_ended => None,
            _ if *stopping => Some(CutReason::Stop),
            // An idle pipeline injects none.
            _ if *busy => due.clone(),
            _ => None,
        }
    }

    /// The input ended before, with an epoch of its own, and nothing came since. Asked only while none is being cut.
    pub(super) fn nothing_new_at_end(&self) -> bool {
        let last = self.history.newest_seal().and_then(|of| self.history.seal(of));
        !self.writing.busy && last.is_some_and(|epoch| epoch.seal.reason == CutReason::End)
    }

    fn seal_when_complete(&mut self) {
        let (Some(run), Some(barrier)) = (self.run, self.writing.barrier.as_ref()) else { return };
        if barrier.sealing || !self.is_complete(barrier) {
            return;
        }
        let epoch = barrier.epoch;
        let context = seal::Context {
            pipeline: &self.pipeline,
            graph: &self.graph,
            history: &self.history,
            fingerprint: &self.fingerprint,
            run,
        };
        match seal::build(&context, barrier) {
            Ok(sealed) => {
                if let Some(barrier) = self.writing.barrier.as_mut() {
                    barrier.sealing = true;
                }
                self.notice(Notice::EpochPrepared { epoch });
                self.warn_of_short_lives(&sealed);
                self.record(Body::Seal(Box::new(sealed)));
            }
            Err(failure) => self.end(End::Failed(failure)),
        }
    }

    /// What a checkpoint names has to live for as long as the checkpoint can be restored.
    fn warn_of_short_lives(&mut self, sealed: &Seal) {
        let reach = self.history.checkpoints().filter(|epoch| epoch.checkpoint == CheckpointState::Retained);
        // Where no age is set, as long as the oldest of those that are kept has lived.
        let reach = reach.map(|epoch| self.now.saturating_sub(epoch.sealed_at)).max().unwrap_or(0);
        let horizon = reach.max(self.settings.retain_age_ms.unwrap_or(0));
        for (sink, warning) in seal::short_lives(sealed, self.now, horizon) {
            if self.writing.told_of_short_lives.insert(sink) {
                self.warn(warning);
            }
        }
    }

    /// Every task that exists has reported. Whether their ranges cover the key space is checked when the seal is made.
    fn is_complete(&self, barrier: &Barrier) -> bool {
        let sources = self
            .graph
            .sources
            .iter()
            .all(|(id, spec)| (0..spec.tasks).all(|task| barrier.sources.contains_key(&(id.clone(), task))));
        let operators = self
            .graph
            .operators
            .iter()
            .all(|(id, tasks)| (0..*tasks).all(|task| barrier.operators.contains_key(&(id.clone(), task))));
        let sinks =
            self.graph.sinks.iter().all(|(id, spec)| {
                (0..spec.participants).all(|ordinal| barrier.parts.contains_key(&(id.clone(), ordinal)))
            });
        sources && operators && sinks
    }

    /// The decision is durable.
    pub(super) fn on_sealed(&mut self, run: RunId) {
        let Some(barrier) = self.writing.barrier.take() else { return };
        let of = EpochRef { run, epoch: barrier.epoch };
        let sum = |f: fn(&SourceProgress) -> u64| barrier.sources.values().map(f).fold(0u64, u64::saturating_add);
        let seal = self.history.seal(of);
        let parts = || seal.into_iter().flat_map(|epoch| epoch.seal.sinks.values()).flat_map(|cut| &cut.parts);
        let rejected = parts().fold(0u64, |n, part| n.saturating_add(part.rejected));
        let filtered = parts().fold(0u64, |n, part| n.saturating_add(part.filtered));
        let rejected = rejected.saturating_add(sum(|cut| cut.dead_lettered));
        let rows = sum(|cut| cut.rows);
        self.notice(Notice::EpochSealed { of, rows, rejected, filtered });
        self.note_savepoint_sealed(of, &barrier.reason);
        self.enqueue(of);
        self.go_on_committing();
        if self.alive() {
            self.inject_when_due();
        }
    }
}
