//! From the log to open tasks: observe, compare, open, fence, observe again, finish, give back, open.

use std::collections::{BTreeMap, BTreeSet};

use super::check::{self, Fork};
use super::compare;
use super::{Coordinator, Phase};
use crate::event::{Effect, End, Mismatch, Notice, Refusal, Restored, TaskFailure, Timer};
use crate::fault::Remedy;
use crate::ids::{EpochRef, KeyRange, RunId, SinkId};
use crate::plugin::{AtomicScope, CallFault, Position};
use crate::record::{Body, Choice, Decision, MismatchPolicy, Open};

/// One start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Start {
    sinks: BTreeMap<SinkId, SinkStart>,
    /// Epochs behind the fork point are brought to an end by a run of their own; the fork comes after.
    draining: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SinkStart {
    step: Step,
    /// The call was answered badly and comes again when the timer fires.
    waiting: bool,
    failures: u32,
    /// The last `fence` was answered with a fault, which is counted already.
    fence_failed: bool,
    /// Why the newest call failed; told once for each reason.
    fault: Option<CallFault>,
    position: Option<Position>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Observe,
    Observed,
    Fence,
    Confirm,
    Ready,
}

/// What comparing led to.
struct Plan {
    parent: Option<EpochRef>,
    decisions: Vec<Decision>,
    under: Vec<String>,
}

impl Coordinator {
    pub(super) fn begin_start(&mut self) {
        if self.phase == Phase::New {
            self.begin_observing();
        }
    }

    fn begin_observing(&mut self) {
        self.phase = Phase::Observing;
        let fork = check::pending_fork(&self.settings, &self.history);
        self.start.draining = fork.is_some_and(|fork| self.history.unended_behind(Some(fork.from)).is_some());
        self.start.sinks.clear();
        for (sink, spec) in &self.graph.sinks {
            let step = if spec.abilities.observe { Step::Observe } else { Step::Observed };
            let entry =
                SinkStart { step, waiting: false, failures: 0, fence_failed: false, fault: None, position: None };
            self.start.sinks.insert(sink.clone(), entry);
        }
        for sink in self.graph.sinks.keys().cloned().collect::<Vec<_>>() {
            self.ask_at_start(&sink);
        }
    }

    /// The run on whose behalf calls are made before there is one.
    fn calling_run(&self) -> RunId {
        let next = self.history.newest_run().map_or(1, |newest| newest.number.saturating_add(1));
        let tentative = RunId { number: next, nonce: self.nonce };
        self.run.filter(|_| self.phase >= Phase::Fencing).unwrap_or(tentative)
    }

    fn ask_at_start(&mut self, sink: &SinkId) {
        let run = self.calling_run();
        let Some(entry) = self.start.sinks.get(sink) else { return };
        match entry.step {
            Step::Observe | Step::Confirm => self.emit(Effect::Observe { sink: sink.clone(), run }),
            Step::Fence => {
                let expected = entry.position.clone().unwrap_or_default();
                self.emit(Effect::Fence { sink: sink.clone(), expected, run });
            }
            Step::Observed | Step::Ready => {}
        }
    }

    pub(super) fn on_observed(&mut self, sink: &SinkId, result: Result<Position, CallFault>) {
        let Some(entry) = self.start.sinks.get_mut(sink) else { return };
        if entry.waiting || !matches!(entry.step, Step::Observe | Step::Confirm) {
            return;
        }
        match result {
            Err(fault) => self.on_start_fault(sink, fault),
            Ok(position) if entry.step == Step::Observe => {
                entry.position = Some(position);
                entry.step = Step::Observed;
            }
            Ok(position) => self.confirm(sink, position),
        }
    }

    fn on_start_fault(&mut self, sink: &SinkId, fault: CallFault) {
        let Some(entry) = self.start.sinks.get_mut(sink) else { return };
        entry.failures = entry.failures.saturating_add(1);
        if fault.remedy() == Remedy::Superseded {
            self.end(End::Superseded(fault.to_string()));
        } else if fault.is_hopeless() || self.settings.spent(entry.failures) {
            self.end(End::Failed(TaskFailure::Plugin(sink.clone(), fault)));
        } else {
            entry.waiting = true;
            let millis = self.settings.backoff(entry.failures);
            let for_ms = self.settings.patience(entry.failures);
            let told = entry.fault.as_ref().is_some_and(|told| told.same_reason(&fault));
            entry.fault = Some(fault.clone());
            self.emit(Effect::Wait { timer: Timer::StartRetry(sink.clone()), millis });
            if !told {
                self.notice(Notice::CallFails { sink: sink.clone(), of: None, fault, for_ms });
            }
        }
    }

    pub(super) fn on_start_retry(&mut self, sink: &SinkId) {
        let Some(entry) = self.start.sinks.get_mut(sink) else { return };
        if entry.waiting {
            entry.waiting = false;
            self.ask_at_start(sink);
        }
    }

    pub(super) fn go_on_starting(&mut self) {
        if !self.alive() {
            return;
        }
        let all = |step| self.start.sinks.values().all(|entry| entry.step == step);
        match self.phase {
            Phase::Observing if all(Step::Observed) => self.decide(),
            Phase::Fencing if all(Step::Ready) => {
                self.phase = Phase::Finishing;
                self.begin_finishing();
                self.finish_start();
            }
            Phase::Finishing | Phase::Cleaning => self.finish_start(),
            _ => {}
        }
    }

    fn decide(&mut self) {
        let plan = match self.plan() {
            Ok(plan) => plan,
            Err(refusal) => return self.end(End::Refused(refusal)),
        };
        let positions = self.start.sinks.values().filter_map(|entry| entry.position.as_ref());
        let seen =
            positions.flat_map(|position| position.fence.iter().chain(position.last.iter().map(|part| &part.run)));
        let newest = seen.chain(self.history.newest_run().iter()).map(|run| run.number).max().unwrap_or(0);
        if newest >= u64::MAX - 1 {
            let message = "the run numbers are spent: a destination names the last one there is".to_owned();
            return self.end(End::Refused(Refusal::Log(message)));
        }
        self.run = Some(RunId { number: newest + 1, nonce: self.nonce });
        self.phase = Phase::Opening;
        for decision in plan.decisions {
            self.record(Body::Decision(decision));
        }
        let observed = self.start.sinks.iter().filter_map(|(sink, e)| Some((sink.clone(), e.position.clone()?)));
        let open = Open {
            pipeline: self.pipeline.clone(),
            parent: plan.parent,
            observed: observed.collect(),
            under: plan.under,
            product: self.settings.product.clone(),
        };
        self.record(Body::Open(open));
    }

    fn mismatch(&self, sink: &SinkId, back_to: Option<EpochRef>) -> Option<Mismatch> {
        match self.start.sinks.get(sink).and_then(|entry| entry.position.as_ref()) {
            Some(position) => compare::compare(&self.history, sink, self.scope(sink), position, back_to),
            None => compare::compare_unseen(&self.history, sink, back_to),
        }
    }

    pub(super) fn scope(&self, sink: &SinkId) -> AtomicScope {
        self.graph.sinks.get(sink).map_or(AtomicScope::Sink, |spec| spec.abilities.atomic_scope)
    }

    /// Compares all destinations with the log, under the decisions that there are.
    fn plan(&self) -> Result<Plan, Refusal> {
        let fork = check::pending_fork(&self.settings, &self.history).filter(|_| !self.start.draining);
        let mut plan = Plan { parent: self.history.newest_seal(), decisions: Vec::new(), under: Vec::new() };
        let mut back_to = None;
        if let Some(fork) = &fork {
            plan.parent = Some(fork.from);
            back_to = Some(fork.from);
            let choice = Choice::Fork { from: fork.from, policy: fork.policy };
            self.use_decision(&mut plan, Decision { id: fork.id.clone(), by: fork.by.clone(), choice });
        } else if let Some((from, decision)) = self.replay()? {
            plan.parent = Some(from);
            back_to = Some(from);
            self.use_decision(&mut plan, decision);
        }
        for sink in self.graph.sinks.keys() {
            let Some(mismatch) = self.mismatch(sink, back_to) else { continue };
            if fork.as_ref().is_some_and(|fork| allowed_by_fork(fork, &mismatch)) {
                continue;
            }
            match check::pending_policy(&self.settings, &self.history, sink) {
                Some(decision) if allows(&decision, &mismatch) => self.use_decision(&mut plan, decision),
                _ => return Err(self.refuse(sink, mismatch)),
            }
        }
        Ok(plan)
    }

    fn use_decision(&self, plan: &mut Plan, decision: Decision) {
        plan.under.push(decision.id.clone());
        if !self.history.decisions().contains_key(&decision.id) {
            plan.decisions.push(decision);
        }
    }

    /// A destination that is behind, and whose operator decided to send again what it lost.
    fn replay(&self) -> Result<Option<(EpochRef, Decision)>, Refusal> {
        for sink in self.graph.sinks.keys() {
            let Some(mismatch @ Mismatch::Behind { .. }) = self.mismatch(sink, None) else { continue };
            let Some(decision) = check::pending_policy(&self.settings, &self.history, sink) else { continue };
            let replays =
                matches!(decision.choice, Choice::Accept { policy: MismatchPolicy::ReplayFromDestination, .. });
            let position = self.start.sinks.get(sink).and_then(|entry| entry.position.as_ref());
            let (true, Some(position)) = (replays, position) else { continue };
            return match compare::replay_point(&self.history, sink, self.scope(sink), position) {
                Some(from) if compare::replay_waits(&self.history, from).is_none() => Ok(Some((from, decision))),
                _ => Err(self.refuse(sink, mismatch)),
            };
        }
        Ok(None)
    }

    /// Offers what would be accepted, and nothing else.
    fn refuse(&self, sink: &SinkId, mismatch: Mismatch) -> Refusal {
        let position = self.start.sinks.get(sink).and_then(|entry| entry.position.as_ref());
        let behind = matches!(mismatch, Mismatch::Behind { .. });
        // Who goes back to a checkpoint that was named goes back to no other.
        let forks = check::pending_fork(&self.settings, &self.history).is_some();
        let point = position
            .filter(|_| behind && !forks)
            .and_then(|position| compare::replay_point(&self.history, sink, self.scope(sink), position));
        let replay_waits = point.and_then(|from| compare::replay_waits(&self.history, from));
        let mut policies = vec![if behind { MismatchPolicy::AcceptLoss } else { MismatchPolicy::AcceptDuplicates }];
        if point.is_some() && replay_waits.is_none() {
            policies.push(MismatchPolicy::ReplayFromDestination);
        }
        Refusal::Mismatch { sink: sink.clone(), mismatch, policies, replay_waits: replay_waits.map(Box::new) }
    }

    pub(super) fn begin_fencing(&mut self) {
        if self.writing.stopping {
            return self.end_with_what_waits(true);
        }
        self.phase = Phase::Fencing;
        for (sink, entry) in &mut self.start.sinks {
            let abilities = self.graph.sinks.get(sink).map(|spec| &spec.abilities);
            entry.failures = 0;
            entry.fault = None;
            entry.step = match abilities {
                Some(abilities) if abilities.fence => Step::Fence,
                Some(abilities) if abilities.observe => Step::Confirm,
                _ => Step::Ready,
            };
        }
        for sink in self.graph.sinks.keys().cloned().collect::<Vec<_>>() {
            self.ask_at_start(&sink);
        }
    }

    /// Whatever the answer to `fence` was: it counts only when the destination shows it.
    pub(super) fn on_fenced(&mut self, sink: &SinkId, result: Result<Position, CallFault>) {
        let observes = self.graph.sinks.get(sink).is_some_and(|spec| spec.abilities.observe);
        let Some(entry) = self.start.sinks.get_mut(sink) else { return };
        if entry.waiting || entry.step != Step::Fence {
            return;
        }
        match result {
            Ok(position) if observes => {
                entry.position = Some(position);
                entry.step = Step::Confirm;
                self.ask_at_start(sink);
            }
            Ok(position) => self.confirm(sink, position),
            Err(fault) => {
                // In doubt: it may have been carried out. Look before trying again, with what is seen then.
                if observes && fault.remedy() != Remedy::Superseded {
                    entry.step = Step::Confirm;
                    entry.fence_failed = true;
                }
                self.on_start_fault(sink, fault);
            }
        }
    }

    fn confirm(&mut self, sink: &SinkId, position: Position) {
        let (Some(run), Some(spec)) = (self.run, self.graph.sinks.get(sink)) else { return };
        let fences = spec.abilities.fence;
        let found = position.fence;
        if let Some(newer) = found.filter(|found| fences && *found != run && found.number >= run.number) {
            self.end(End::Superseded(format!("sink `{sink}` was fenced by run {newer}")));
            return;
        }
        if let Some(mismatch) = compare::compare(&self.history, sink, self.scope(sink), &position, None) {
            let refusal = self.refuse(sink, mismatch);
            self.end(End::Refused(refusal));
            return;
        }
        let Some(entry) = self.start.sinks.get_mut(sink) else { return };
        entry.position = Some(position);
        if !fences || found == Some(run) {
            entry.step = Step::Ready;
            return;
        }
        // Not ours yet: the compare-and-set lost against a late commit of an older run, or was never carried out.
        entry.step = Step::Fence;
        if !std::mem::take(&mut entry.fence_failed) {
            entry.failures = entry.failures.saturating_add(1);
        }
        if self.settings.spent(entry.failures) {
            let end = match entry.fault.take() {
                // Nobody took it from us: the destination does not let itself be fenced.
                Some(fault) => End::Failed(TaskFailure::Plugin(sink.clone(), fault)),
                None => End::Superseded(format!("sink `{sink}` could not be fenced: it keeps changing")),
            };
            self.end(end);
            return;
        }
        entry.waiting = true;
        let millis = self.settings.backoff(entry.failures);
        self.emit(Effect::Wait { timer: Timer::StartRetry(sink.clone()), millis });
    }

    fn finish_start(&mut self) {
        if self.writing.stopping && (self.phase == Phase::Cleaning || self.nothing_to_wait_for()) {
            return self.end_with_what_waits(true);
        }
        if self.phase == Phase::Finishing && self.lanes.values().all(super::commit::Lane::at_rest) {
            self.finished_older();
        }
        if self.phase == Phase::Cleaning && self.janitors.values().all(super::cleanup::Janitor::at_rest) {
            self.open_tasks();
        }
    }

    /// Every sealed epoch of older runs is committed or blocked.
    fn finished_older(&mut self) {
        if self.start.draining {
            return self.finished_draining();
        }
        let blocked = self.lanes.values().filter(|lane| lane.blocked().is_some()).count();
        if blocked > 0 && (blocked == self.lanes.len() || self.full_lane().is_some()) {
            return self.end_with_what_waits(false);
        }
        self.phase = Phase::Cleaning;
        self.begin_cleaning();
    }

    fn finished_draining(&mut self) {
        if !self.unrecorded.is_empty() && self.append.idle() {
            self.record(Body::Outcomes);
        }
        if !self.unrecorded.is_empty() || !self.append.idle() {
            return;
        }
        let fork = check::pending_fork(&self.settings, &self.history);
        if fork.is_some_and(|fork| self.history.unended_behind(Some(fork.from)).is_some()) {
            return self.end_with_what_waits(false);
        }
        self.begin_observing();
    }

    fn open_tasks(&mut self) {
        let Some(run) = self.run else { return };
        self.phase = Phase::OpeningTasks;
        self.writing.epoch = self.history.next_epoch();
        let from = self.history.newest_seal();
        let seal = from.and_then(|of| self.history.seal(of)).map(|epoch| &epoch.seal);
        let known: BTreeSet<_> = self.graph.sources.keys().collect();
        let sources = seal.into_iter().flat_map(|seal| &seal.sources).filter(|(id, _)| known.contains(id));
        let operators =
            seal.into_iter().flat_map(|s| &s.operators).filter(|(id, _)| self.graph.operators.contains_key(id));
        let writers = seal.into_iter().flat_map(|s| &s.sinks).filter(|(id, _)| self.graph.sinks.contains_key(id));
        let writers = writers.map(|(sink, cut)| (sink.clone(), cut.writer_states(KeyRange::ALL)));
        let restored = Restored {
            run,
            from,
            first_epoch: self.writing.epoch,
            sources: sources.map(|(id, cut)| (id.clone(), cut.clone())).collect(),
            operators: operators.map(|(id, cuts)| (id.clone(), cuts.clone())).collect(),
            writers: writers.collect(),
        };
        let lost =
            seal.into_iter().flat_map(|s| s.operators.keys()).filter(|id| !self.graph.operators.contains_key(*id));
        let lost: Vec<String> = lost.map(|id| format!("`{id}`")).collect();
        if !lost.is_empty() {
            self.warn(format!(
                "the state of removed operators is dropped with the next checkpoint: {}",
                lost.join(", ")
            ));
        }
        self.emit(Effect::OpenTasks(Box::new(restored)));
    }
}

fn allowed_by_fork(fork: &Fork, mismatch: &Mismatch) -> bool {
    matches!(mismatch, Mismatch::Ahead { .. }) && fork.policy == MismatchPolicy::AcceptDuplicates
}

fn allows(decision: &Decision, mismatch: &Mismatch) -> bool {
    let Choice::Accept { policy, .. } = &decision.choice else { return false };
    match mismatch {
        Mismatch::Ahead { .. } | Mismatch::Foreign { .. } => *policy == MismatchPolicy::AcceptDuplicates,
        Mismatch::Behind { .. } => *policy == MismatchPolicy::AcceptLoss,
    }
}
