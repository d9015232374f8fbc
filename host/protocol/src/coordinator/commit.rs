//! From sealed to committed, per sink and in order.
//!
//! What a call without a good answer did is not known (P4): it is asked about if the plugin can be asked, repeated if a
//! repeat changes nothing, and left to a person otherwise. It is never taken for done, and never for failed.

use std::collections::{BTreeSet, VecDeque};

use super::{Coordinator, SinkStatus};
use crate::event::{Effect, End, Notice, Timer};
use crate::fault::Remedy;
use crate::history::{History, SinkEpochState, Standing};
use crate::ids::{EpochRef, SinkId};
use crate::permit::CommitPermit;
use crate::plugin::{Abilities, AtomicScope, CallFault, Committable, ErrorKind, Outcome, PluginError};
use crate::record::{Blocked, EpochOutcome, OutcomeEntry};

/// A plugin may ask for a longer wait than the backoff, up to this.
const LONGEST_RETRY_AFTER_MS: u64 = 3_600_000;

/// So many failures in a row, and a run that was asked to stop leaves the epoch to the next one.
const TRIES_WHILE_STOPPING: u32 = 4;

/// One sink's sealed epochs on their way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    /// Without the head.
    queue: VecDeque<(EpochRef, Origin)>,
    head: Option<Head>,
    standing: Standing,
    committed: Option<EpochRef>,
    /// The plugin says that it cannot be asked, whatever it declared.
    mute: bool,
}

/// How an epoch came into the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    /// Sealed by this run: never sent.
    Fresh,
    /// Sealed by an older run, which may have sent it this many times.
    Older(u32),
}

/// The epoch whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Head {
    of: EpochRef,
    /// Of the last commit sent.
    attempt: u32,
    failures: u32,
    parts: Vec<PartState>,
    state: HeadState,
    /// The newest call about it that failed; a reason is told once.
    obstacle: Option<CallFault>,
    /// A person wants it sent once, whatever is known of it.
    told: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum HeadState {
    /// A call may be made now.
    Ready,
    /// A call is under way, about these parts.
    Asked(Ask, Vec<usize>),
    /// Until the timer fires.
    Waiting,
    /// For a person.
    Blocked(Blocked),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Ask {
    Commit,
    Reconcile,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum PartState {
    /// Certainly not done by any answered call: the same commit may be sent.
    ToSend,
    /// May be done.
    InDoubt(String),
    Done,
    Refused(Blocked),
}

impl Lane {
    pub(super) fn new(history: &History, sink: &SinkId) -> Self {
        let mut lane =
            Self { queue: VecDeque::new(), head: None, standing: history.standing(sink), committed: None, mute: false };
        for of in history.unfinished(sink) {
            lane.load(history, sink, of);
        }
        lane
    }

    fn load(&mut self, history: &History, sink: &SinkId, of: EpochRef) {
        let state = history.outcome(sink, of);
        let attempt = state.map_or(1, SinkEpochState::attempt);
        // Many tries that settled nothing may settle it in another run; all other reasons need a decision.
        let reason = match state {
            Some(SinkEpochState::Blocked(_, reason)) if !matches!(reason, Blocked::TriesSpent(_)) => {
                Some(reason.clone())
            }
            _ => None,
        };
        match (reason, self.head.is_none() && self.queue.is_empty()) {
            (Some(reason), true) => {
                let state = HeadState::Blocked(reason);
                let told = false;
                self.head = Some(Head { of, attempt, failures: 0, parts: Vec::new(), state, obstacle: None, told });
            }
            _ => self.queue.push_back((of, Origin::Older(attempt))),
        }
    }

    /// Sealed epochs without an end.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + usize::from(self.head.is_some())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Nothing more will happen without a seal or a person.
    pub(super) fn at_rest(&self) -> bool {
        self.is_empty() || self.blocked().is_some()
    }

    /// It waits before a further try, after several that settled nothing.
    pub(super) fn keeps_failing(&self) -> bool {
        let failing = |head: &Head| head.state == HeadState::Waiting && head.failures >= TRIES_WHILE_STOPPING;
        self.head.as_ref().is_some_and(failing)
    }

    pub(super) fn blocked(&self) -> Option<(EpochRef, &Blocked)> {
        match self.head.as_ref() {
            Some(Head { of, state: HeadState::Blocked(reason), .. }) => Some((*of, reason)),
            _ => None,
        }
    }

    pub(super) fn epochs(&self) -> impl Iterator<Item = EpochRef> {
        self.head.iter().map(|head| head.of).chain(self.queue.iter().map(|(of, _)| *of))
    }

    pub(super) fn status(&self) -> SinkStatus {
        let doubt = |head: &&Head| head.parts.iter().any(|part| matches!(part, PartState::InDoubt(_)));
        SinkStatus {
            waiting: self.epochs().collect(),
            in_doubt: self.head.as_ref().filter(doubt).map(|head| head.of),
            blocked: self.blocked().map(|(of, reason)| (of, reason.clone())),
            committed: self.committed,
        }
    }
}

impl Coordinator {
    /// Takes up what older runs sealed, from durable records alone.
    pub(super) fn begin_finishing(&mut self) {
        for (sink, lane) in &mut self.lanes {
            let committed = lane.committed;
            *lane = Lane { committed, ..Lane::new(&self.history, sink) };
        }
    }

    /// An epoch that this run has just sealed.
    pub(super) fn enqueue(&mut self, of: EpochRef) {
        for (sink, lane) in &mut self.lanes {
            if self.history.outcome(sink, of).is_some_and(|state| !state.ended()) {
                lane.queue.push_back((of, Origin::Fresh));
            }
        }
    }

    /// Remembers, for each epoch that waits, how late it has been since.
    pub(super) fn note_time(&mut self) {
        let waiting: BTreeSet<EpochRef> = self.lanes.values().flat_map(Lane::epochs).collect();
        self.latest.retain(|of, _| waiting.contains(of));
        for of in waiting {
            let latest = self.latest.entry(of).or_insert(self.now);
            *latest = self.now.max(*latest);
        }
    }

    /// The first sink at which so many epochs wait that no further one may be cut.
    pub(super) fn full_lane(&self) -> Option<&SinkId> {
        let full = |(sink, lane): &(&SinkId, &Lane)| lane.waiting() >= self.waiting_limit(sink);
        self.lanes.iter().find(full).map(|(sink, _)| sink)
    }

    pub(super) fn waiting_limit(&self, sink: &SinkId) -> usize {
        let open = self.graph.sinks.get(sink).map_or(1, |spec| spec.abilities.max_open_epochs);
        self.settings.max_waiting.min(open).max(1) as usize
    }

    pub(super) fn go_on_committing(&mut self) {
        if !self.alive() || self.phase < super::Phase::Finishing {
            return;
        }
        let mut lanes = std::mem::take(&mut self.lanes);
        lanes.iter_mut().for_each(|(sink, lane)| self.go_on_with_lane(sink, lane));
        self.lanes = lanes;
    }

    fn go_on_with_lane(&mut self, sink: &SinkId, lane: &mut Lane) {
        if lane.head.is_none()
            && let Some((of, origin)) = lane.queue.pop_front()
        {
            lane.head = Some(self.new_head(sink, of, origin));
        }
        if lane.head.as_ref().is_some_and(|head| head.state == HeadState::Ready) {
            self.ask(sink, lane);
        }
    }

    fn new_head(&self, sink: &SinkId, of: EpochRef, origin: Origin) -> Head {
        let count = self.history.seal(of).map_or(0, |epoch| epoch.parts(sink).len());
        let (attempt, part) = match origin {
            Origin::Fresh => (0, PartState::ToSend),
            Origin::Older(sent) => {
                (sent, PartState::InDoubt("sealed by an older run, which may have sent it".to_owned()))
            }
        };
        let parts = vec![part; count];
        let told = self.history.is_to_be_sent(sink, of);
        Head { of, attempt, failures: 0, parts, state: HeadState::Ready, obstacle: None, told }
    }

    /// Makes the next call for the head, or blocks it.
    fn ask(&mut self, sink: &SinkId, lane: &mut Lane) {
        let Some(spec) = self.graph.sinks.get(sink) else { return };
        let abilities = spec.abilities.clone();
        let Some(head) = lane.head.as_mut() else { return };
        let doubt = head.parts.iter().find_map(|part| match part {
            PartState::InDoubt(why) => Some(why.clone()),
            _ => None,
        });
        let ask = match doubt {
            None => Ask::Commit,
            Some(_) if abilities.reconcile && !lane.mute => Ask::Reconcile,
            Some(_) if abilities.idempotent_commit => Ask::Commit,
            // Whoever decided that has looked at the destination.
            Some(_) if std::mem::take(&mut head.told) => Ask::Commit,
            Some(why) => return self.block(sink, lane, Blocked::CannotAsk(why)),
        };
        if ask == Ask::Commit
            && let Some(why) = self.too_late(sink, head, &abilities)
        {
            return self.block(sink, lane, why);
        }
        let subject = |part: &PartState| match (ask, abilities.atomic_scope) {
            (Ask::Reconcile, AtomicScope::Participant) => matches!(part, PartState::InDoubt(_)),
            (Ask::Commit, AtomicScope::Participant) => matches!(part, PartState::InDoubt(_) | PartState::ToSend),
            // One step for all parts: the same commit is the commit of all of them.
            (_, AtomicScope::Sink) => true,
        };
        let indices: Vec<usize> = (0..head.parts.len()).filter(|i| subject(&head.parts[*i])).collect();
        if ask == Ask::Commit {
            head.attempt = head.attempt.saturating_add(1);
        }
        let Some(permit) = self.permit(sink, head, &lane.standing, abilities.atomic_scope, &indices) else { return };
        head.state = HeadState::Asked(ask, indices);
        self.emit(match ask {
            Ask::Commit => Effect::Commit(permit),
            Ask::Reconcile => Effect::Reconcile(permit),
        });
    }

    /// Why a commit may not be sent any more, unless a person says so: the destination may have dropped what it would
    /// publish, or may have forgotten that it published it. A clock that runs ahead asks a person too early; it loses
    /// and repeats nothing. One that was set back counts as what this run or the log has seen since the seal.
    fn too_late(&self, sink: &SinkId, head: &Head, abilities: &Abilities) -> Option<Blocked> {
        let epoch = self.history.seal(head.of)?;
        let parts = || head.parts.iter().zip(epoch.committables(sink)).filter(|(part, _)| part.is_open());
        if self.history.was_told_to_retry(sink, head.of) {
            return None;
        }
        let seen = self.latest.get(&head.of).copied().unwrap_or(0);
        let now = self.now.max(seen).max(self.history.latest_since(epoch));
        if let Some(at) = parts().filter_map(|(_, committable)| committable.expires_at).min().filter(|at| *at <= now) {
            return Some(Blocked::Rejected(PluginError {
                kind: ErrorKind::Permanent,
                code: "expired".to_owned(),
                message: format!(
                    "the destination keeps its prepared work until {at} and may have dropped it since; look whether its \
                     rows are there, then retry it or give it up"
                ),
            }));
        }
        let kept = abilities.marker_retention.filter(|_| head.attempt > 0)?;
        (now.saturating_sub(epoch.sealed_at) >= kept).then(|| {
            Blocked::CannotAsk(format!(
                "the destination remembers commits for {kept} ms, which have passed since it may have been sent: that it \
                 does not know this one says nothing"
            ))
        })
    }

    /// Only from a seal that the log holds, and only while this run is the newest that it knows.
    fn permit(
        &self,
        sink: &SinkId,
        head: &Head,
        standing: &Standing,
        scope: AtomicScope,
        indices: &[usize],
    ) -> Option<CommitPermit> {
        let run = self.run.filter(|run| self.history.newest_run() == Some(*run))?;
        let cut = self.history.seal(head.of)?.seal.sinks.get(sink)?;
        let all: Vec<&Committable> = self.history.seal(head.of)?.committables(sink).collect();
        let committables: Vec<Committable> = indices.iter().filter_map(|i| all.get(*i).copied().cloned()).collect();
        let previous = standing.previous(scope);
        Some(CommitPermit::new(sink.clone(), head.of, run, head.attempt, cut.binding.clone(), previous, committables))
    }

    pub(super) fn on_commit_answered(
        &mut self,
        sink: &SinkId,
        of: EpochRef,
        attempt: u32,
        result: Result<Vec<Outcome>, CallFault>,
    ) {
        self.on_answer(sink, of, attempt, Ask::Commit, result);
    }

    pub(super) fn on_reconciled(
        &mut self,
        sink: &SinkId,
        of: EpochRef,
        attempt: u32,
        result: Result<Vec<Outcome>, CallFault>,
    ) {
        self.on_answer(sink, of, attempt, Ask::Reconcile, result);
    }

    /// An answer that nobody waits for (late, repeated, of another run) changes nothing.
    fn on_answer(
        &mut self,
        sink: &SinkId,
        of: EpochRef,
        attempt: u32,
        ask: Ask,
        result: Result<Vec<Outcome>, CallFault>,
    ) {
        let Some(mut lane) = self.lanes.remove(sink) else { return };
        if let Some(head) = lane.head.as_mut()
            && (head.of, head.attempt) == (of, attempt)
            && let HeadState::Asked(asked, indices) = &head.state
            && *asked == ask
        {
            let indices = indices.clone();
            let answer = head.read_answer(ask, &indices, result, &mut lane.mute);
            self.settle(sink, &mut lane, answer);
        }
        self.lanes.insert(sink.clone(), lane);
    }

    fn settle(&mut self, sink: &SinkId, lane: &mut Lane, answer: Answer) {
        let Some(head) = lane.head.as_mut() else { return };
        head.state = HeadState::Ready;
        if answer.fenced {
            self.end(End::Superseded(format!("sink `{sink}` was fenced by a newer run")));
            return;
        }
        if !head.parts.iter().any(PartState::is_open) {
            return match refusal(&head.parts) {
                None => self.committed(sink, lane),
                Some(reason) => self.block(sink, lane, reason),
            };
        }
        let doubt = head.parts.iter().find_map(|part| match part {
            PartState::InDoubt(why) => Some(why.clone()),
            _ => None,
        });
        if let Some(why) = &doubt {
            let (of, attempt) = (head.of, head.attempt);
            self.note_outcome(OutcomeEntry {
                sink: sink.clone(),
                of,
                attempt,
                outcome: EpochOutcome::InDoubt(why.clone()),
            });
            self.notice(Notice::InDoubt { sink: sink.clone(), of, reason: why.clone() });
        }
        let Some(head) = lane.head.as_mut() else { return };
        if !answer.failed {
            return;
        }
        let can = self.graph.sinks.get(sink).map(|spec| &spec.abilities);
        let can_go_on = can.is_some_and(|can| can.idempotent_commit || (can.reconcile && !lane.mute));
        if let Some(why) = doubt.as_ref().filter(|_| !can_go_on) {
            return self.block(sink, lane, Blocked::CannotAsk(why.clone()));
        }
        head.failures = head.failures.saturating_add(1);
        if self.settings.spent(head.failures) {
            let last = doubt.or_else(|| head.obstacle.as_ref().map(ToString::to_string));
            let last = last.unwrap_or_else(|| "the destination did not commit it".to_owned());
            return self.block(sink, lane, Blocked::TriesSpent(last));
        }
        head.state = HeadState::Waiting;
        let (of, failures) = (head.of, head.failures);
        let asked_for = answer.retry_after.unwrap_or(0).min(LONGEST_RETRY_AFTER_MS);
        let millis = self.settings.backoff(failures).max(asked_for);
        // That it is in doubt is told with the reason, which names no cause.
        if let Some(fault) = answer.news.filter(|fault| doubt.is_none() || fault.cause().is_some()) {
            let for_ms = self.settings.patience(failures).max(millis);
            self.notice(Notice::CallFails { sink: sink.clone(), of: Some(of), fault, for_ms });
        }
        let timer = Timer::CommitRetry(sink.clone(), of);
        self.emit(Effect::Wait { timer, millis });
    }

    fn committed(&mut self, sink: &SinkId, lane: &mut Lane) {
        let Some(head) = lane.head.take() else { return };
        let of = head.of;
        if let Some(epoch) = self.history.seal(of) {
            let rows = epoch
                .seal
                .sinks
                .get(sink)
                .map_or(0, |cut| cut.parts.iter().fold(0u64, |n, p| n.saturating_add(p.rows)));
            lane.standing.advance(epoch.parts(sink), epoch.slot);
            self.notice(Notice::EpochCommitted { sink: sink.clone(), of, rows });
        }
        lane.committed = Some(of);
        let outcome = EpochOutcome::Committed;
        self.note_outcome(OutcomeEntry { sink: sink.clone(), of, attempt: head.attempt, outcome });
        if self.alive()
            && let Some((next, origin)) = lane.queue.pop_front()
        {
            lane.head = Some(self.new_head(sink, next, origin));
            self.ask(sink, lane);
        }
    }

    fn block(&mut self, sink: &SinkId, lane: &mut Lane, reason: Blocked) {
        let Some(head) = lane.head.as_mut() else { return };
        head.state = HeadState::Blocked(reason.clone());
        let (of, attempt) = (head.of, head.attempt.max(1));
        self.notice(Notice::Blocked { sink: sink.clone(), of, reason: reason.clone() });
        self.note_outcome(OutcomeEntry { sink: sink.clone(), of, attempt, outcome: EpochOutcome::Blocked(reason) });
    }

    /// Keeps an outcome for the next record. A newer word about the same epoch replaces the older one.
    fn note_outcome(&mut self, entry: OutcomeEntry) {
        self.unrecorded.retain(|old| old.sink != entry.sink || old.of != entry.of);
        self.unrecorded.push(entry);
    }

    pub(super) fn on_commit_retry(&mut self, sink: &SinkId, of: EpochRef) {
        let head = self.lanes.get_mut(sink).and_then(|lane| lane.head.as_mut());
        if let Some(head) = head.filter(|head| head.of == of && head.state == HeadState::Waiting) {
            head.state = HeadState::Ready;
        }
    }
}

impl Head {
    /// Writes what the answer says into the parts.
    fn read_answer(
        &mut self,
        ask: Ask,
        indices: &[usize],
        result: Result<Vec<Outcome>, CallFault>,
        mute: &mut bool,
    ) -> Answer {
        let was_in_doubt = self.parts.iter().any(|part| matches!(part, PartState::InDoubt(_)));
        let mut answer = Answer::default();
        let outcomes = match result {
            Ok(outcomes) if outcomes.len() == indices.len() => outcomes,
            Ok(outcomes) => {
                let why = format!("{} outcomes came for {} committables", outcomes.len(), indices.len());
                vec_unknown(self, indices, &why);
                answer.failed = true;
                return answer;
            }
            Err(fault) => {
                if !self.obstacle.as_ref().is_some_and(|told| told.same_reason(&fault)) {
                    answer.news = Some(fault.clone());
                }
                self.obstacle = Some(fault.clone());
                read_fault(self, ask, indices, &fault, &mut answer, mute);
                return answer;
            }
        };
        for (i, outcome) in indices.iter().zip(outcomes) {
            let part = &mut self.parts[*i];
            match outcome {
                Outcome::Committed | Outcome::AlreadyCommitted => *part = PartState::Done,
                // What was certain stays certain: a snapshot cannot take a commit back.
                _ if *part == PartState::Done => {}
                Outcome::NotCommitted => *part = PartState::ToSend,
                Outcome::Retry(after) => {
                    // To a commit: nothing was done. To a question: no answer yet, and what was in doubt still is.
                    if ask == Ask::Commit {
                        *part = PartState::ToSend;
                    }
                    answer.retry_after = answer.retry_after.max(after);
                }
                Outcome::Never => *part = PartState::Refused(Blocked::Never),
                Outcome::Rejected(error) => *part = PartState::Refused(Blocked::Rejected(error)),
                Outcome::Fenced => answer.fenced = true,
                Outcome::Unsupported if ask == Ask::Reconcile => {
                    *mute = true;
                    *part = PartState::InDoubt("the plugin cannot say what became of it".to_owned());
                }
                Outcome::Unsupported => *part = PartState::Refused(Blocked::Rejected(unsupported_commit())),
                Outcome::Unknown => *part = PartState::InDoubt("the plugin does not know what became of it".to_owned()),
            }
        }
        let in_doubt = self.parts.iter().any(|part| matches!(part, PartState::InDoubt(_)));
        let open = self.parts.iter().any(PartState::is_open);
        // Being told "not committed" when one asked is progress: the commit follows at once.
        let progress = ask == Ask::Reconcile && was_in_doubt && !in_doubt && answer.retry_after.is_none();
        answer.failed = open && !progress && !(ask == Ask::Reconcile && *mute);
        answer
    }
}

/// What an answer means for the epoch.
#[derive(Debug, Default)]
struct Answer {
    fenced: bool,
    /// It left something open and brought no progress.
    failed: bool,
    /// How the call failed, if that is not what was told before.
    news: Option<CallFault>,
    retry_after: Option<u64>,
}

impl PartState {
    fn is_open(&self) -> bool {
        matches!(self, Self::ToSend | Self::InDoubt(_))
    }
}

fn vec_unknown(head: &mut Head, indices: &[usize], why: &str) {
    for i in indices {
        if head.parts[*i].is_open() {
            head.parts[*i] = PartState::InDoubt(why.to_owned());
        }
    }
}

fn read_fault(head: &mut Head, ask: Ask, indices: &[usize], fault: &CallFault, answer: &mut Answer, mute: &mut bool) {
    answer.failed = true;
    let mut set_open = |state: PartState| {
        for i in indices {
            if head.parts[*i].is_open() {
                head.parts[*i] = state.clone();
            }
        }
    };
    match (ask, fault.remedy(), fault.error()) {
        (_, Remedy::Superseded, _) => answer.fenced = true,
        (Ask::Reconcile, Remedy::NotOffered, _) => {
            *mute = true;
            answer.failed = false;
        }
        // To be told that nothing was done, and that the same call may work later, is an answer.
        (Ask::Commit, Remedy::Again, _) => set_open(PartState::ToSend),
        (Ask::Commit, Remedy::Mend | Remedy::NotOffered, Some(error)) => {
            set_open(PartState::Refused(Blocked::Rejected(error.clone())));
        }
        // Of a commit nothing is known; asking changed nothing: what was in doubt still is.
        _ => set_open(PartState::InDoubt(fault.to_string())),
    }
}

/// Why an epoch without open parts is not committed. Only when nothing else stands in its way is it `never`: that
/// counts as an end.
fn refusal(parts: &[PartState]) -> Option<Blocked> {
    let refused = || parts.iter().filter_map(|part| if let PartState::Refused(why) = part { Some(why) } else { None });
    refused().find(|why| **why != Blocked::Never).or_else(|| refused().next()).cloned()
}

fn unsupported_commit() -> PluginError {
    PluginError {
        kind: ErrorKind::Unsupported,
        code: "unsupported".to_owned(),
        message: "the plugin answered a commit with `unsupported`".to_owned(),
    }
}
