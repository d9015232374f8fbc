//! What was reached, and how often. The list follows from exhaustive matches: a variant that is added to the protocol
//! does not compile here before somebody says how it is counted.

use tidegate_protocol::coordinator::{Coordinator, Phase};
use tidegate_protocol::event::{
    AppendResult, Effect, End, Event, Mismatch, Notice, Refusal, RequestRefused, TaskFailure,
};
use tidegate_protocol::fault::Remedy;
use tidegate_protocol::history::{
    CheckpointState, History, HistoryErrorKind, Holder, IntentState, OrphanStanding, SinkEpochState,
};
use tidegate_protocol::plugin::{CallFault, Outcome};
use tidegate_protocol::record::{Blocked, Body, Choice, MismatchPolicy};

use crate::log::Log;
use crate::plan::{Plan, pipeline};
use crate::probe;

macro_rules! branches {
    ($($name:ident),* $(,)?) => {
        /// Something that can be reached.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "they are named after what they count")]
        #[repr(u16)]
        pub enum Branch { $($name),* }

        impl Branch {
            /// All of them.
            pub const ALL: &[Branch] = &[$(Branch::$name),*];
        }
    };
}

branches! {
    // Where a run gets.
    PhaseObserving, PhaseOpening, PhaseFencing, PhaseFinishing, PhaseCleaning, PhaseOpeningTasks,
    PhaseRunning, PhaseEnded, DrainedBeforeFork,
    // How it ends.
    EndFinished, EndStopped, EndStoppedInDoubt, EndBlocked, EndSuperseded, EndStoreFailed, RefusedBeforeStart,
    RefusedAhead, RefusedBehind, RefusedForeign, RefusedGraph, RefusedFork,
    RestartPlugin, RestartSource, RestartHost, FailedPlugin, FailedSource, FailedBadRow, FailedShape,
    // What it tells.
    NoticeRunOpened, NoticeEpochPrepared, NoticeEpochSealed, NoticeEpochCommitted, NoticeInDoubt, NoticeBlockedRejected,
    NoticeBlockedNever, NoticeBlockedTriesSpent, NoticeBlockedCannotAsk, NoticeCallFails, NoticeWarning,
    // What it asks for.
    DoObserve, DoAppend, DoFence, DoCommit, DoReconcile, DoListOrphans, DoAbandon, DoRelease, DoOpenTasks,
    DoInjectBarrier, DoIntentRecorded, DoPublish, DoDelete, DoWait,
    // Requests of people.
    RequestDone, RequestNameTaken, RequestUnknownSavepoint, RequestWithdrawn, RequestRunOver,
    // Answers of the log.
    Created, TakenByItself, TakenByAnother, AppendUnknown, NotWrittenAgain, NotWrittenForGood,
    // What a failed call leads to, by what the call was for.
    StartAgain, StartFindOut, StartMend, StartNotOffered, StartSuperseded,
    CommitAgain, CommitFindOut, CommitMend, CommitNotOffered, CommitSuperseded,
    ReconcileAgain, ReconcileFindOut, ReconcileMend, ReconcileNotOffered, ReconcileSuperseded,
    CleanAgain, CleanFindOut, CleanMend, CleanNotOffered, CleanSuperseded,
    // Outcomes, by what was asked.
    CommitCommitted, CommitAlready, CommitNotCommitted, CommitNever, CommitRetry, CommitFenced, CommitUnsupported,
    CommitUnknown, CommitRejected,
    ReconcileAlready, ReconcileNotCommitted, ReconcileNever, ReconcileRetry, ReconcileUnsupported, ReconcileUnknown,
    ReconcileRejected,
    AbandonGone, AbandonNotYet, AbandonRefused, AbandonFenced,
    ReleaseGone, ReleaseNotYet, ReleaseRefused, ReleaseFenced,
    MissingEntry,
    // How the commit of an epoch goes on, by what was known before.
    DoubtToCommitted, DoubtToBlocked, DoubtStays, DoubtToSent, SentToCommitted, SentToDoubt, SentToBlocked,
    // Orphans.
    OrphanNamed, OrphanForeign, OrphanNewest, OrphanSealed, OrphanUnsealed, OrphanElsewhere,
    // What nobody waits for changes nothing.
    IgnoredObserved, IgnoredAppended, IgnoredFenced, IgnoredCommitAnswered, IgnoredReconciled, IgnoredOrphansListed,
    IgnoredAbandoned, IgnoredReleaseAnswered, IgnoredTasksOpened, IgnoredTimer, IgnoredPartPrepared, IgnoredSourceCut,
    // States of epochs, checkpoints, announcements and resources in the log.
    EpochSent, EpochSentAgain, EpochCommitted, EpochInDoubt, EpochBlocked, EpochGivenUp, EpochForkedOff,
    CheckpointRetained, CheckpointRetired, IntentOpen, IntentSealed, IntentClosed, IntentBound,
    HeldByCheckpoint, HeldByCommit, HeldBySavepoint, HeldByIntent, HeldByNobody, EmptyEpoch, EmptyPart,
    // Records.
    RecordOpen, RecordIntent, RecordBound, RecordSeal, RecordOutcomes, RecordForget, RecordRetire,
    RecordReleased, RecordFinished, RecordDeleted, RecordWithOutcomes,
    // Decisions, and runs under them.
    DecidedRetry, DecidedGiveUp, DecidedFork, DecidedAccept, ForkedWithLoss, ForkedWithDuplicates,
    AcceptedDuplicates, AcceptedLoss, Replayed, Rescaled,
    // Records that the log refuses.
    NoGap, NoSlotTwice, NoNumberSpent, NoRecordBeforeRun, NoForeignPipeline, NoRunNotNewer, NoParentUnknown,
    NoParentRetired, NoForkWithoutDecision, NoForkBeforeUnfinished, NoDecisionNotPending, NoDecisionRepeated,
    NoNotNewestRun, NoSealedTwice, NoEpochNotNext, NoRangesIncomplete, NoWrongPart, NoSavepointNameTaken, NoUnknownSeal,
    NoUnknownSink, NoAlreadyEnded, NoNeedsDecision, NoOutOfOrder, NoNotBlocked, NoRetired, NoUnknownSavepoint,
    NoMustBeKept, NoIntentNotNext, NoIntentNotOpen, NoReleasedWhileNamed, NoNamedAfterRelease, NoNotFinished,
    NoDeletesNeeded,
}

/// How often each branch was reached.
#[derive(Debug, Clone)]
pub struct Coverage {
    counts: Vec<u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { counts: vec![0; Branch::ALL.len()] }
    }
}

impl Coverage {
    /// They were reached once more.
    pub fn reach(&mut self, branches: &[Branch]) {
        for branch in branches {
            self.counts[*branch as usize] += 1;
        }
    }

    /// How often.
    pub fn count(&self, branch: Branch) -> u64 {
        self.counts[branch as usize]
    }

    /// Both together.
    pub fn add(&mut self, other: &Coverage) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// A log that was not there before: what its fold holds, and what it refuses.
    ///
    /// # Errors
    /// A record that is refused leaves a trace, or one that must be refused is not.
    pub fn log(&mut self, plan: &Plan, log: &Log, history: History) -> Result<(), crate::judge::Violation> {
        let mut reached = of_history(&history);
        reached.extend(log.entries.iter().flat_map(|entry| of_record(&entry.record.body)));
        if log.entries.iter().any(|entry| !entry.record.outcomes.is_empty()) {
            reached.push(Branch::RecordWithOutcomes);
        }
        if plan.probes {
            reached.extend(probe::refused(log, history)?.iter().map(of_error));
        }
        self.reach(&reached);
        Ok(())
    }
}

fn of_record(body: &Body) -> Vec<Branch> {
    use Branch as B;
    vec![match body {
        Body::Open(_) => B::RecordOpen,
        Body::Intent(_) => B::RecordIntent,
        Body::Bound(_) => B::RecordBound,
        Body::Seal(seal) => {
            let empty = seal.sinks.values().all(|cut| cut.parts.iter().all(|part| part.committable.is_none()));
            let part = seal.sinks.values().any(|cut| cut.parts.iter().any(|part| part.committable.is_none()));
            let mut both = vec![B::RecordSeal];
            both.extend(empty.then_some(B::EmptyEpoch));
            both.extend((part && !empty).then_some(B::EmptyPart));
            return both;
        }
        Body::Outcomes => B::RecordOutcomes,
        Body::Decision(decision) => match &decision.choice {
            Choice::Retry { .. } => B::DecidedRetry,
            Choice::GiveUp { .. } => B::DecidedGiveUp,
            Choice::Fork { .. } => B::DecidedFork,
            Choice::Accept { .. } => B::DecidedAccept,
        },
        // Written by nobody any more: a savepoint is a seal of its own. The fold still reads it (`probe`).
        Body::Savepoint(_) => return Vec::new(),
        Body::Forget(_) => B::RecordForget,
        Body::Retire(_) => B::RecordRetire,
        Body::Released(_) => B::RecordReleased,
        Body::Finished(_) => B::RecordFinished,
        Body::Deleted(_) => B::RecordDeleted,
    }]
}

fn of_history(history: &History) -> Vec<Branch> {
    use Branch as B;
    let mut reached = Vec::new();
    for epoch in history.checkpoints() {
        reached.push(match epoch.checkpoint {
            CheckpointState::Retained => B::CheckpointRetained,
            CheckpointState::Retired => B::CheckpointRetired,
        });
        reached.extend(epoch.sinks.values().map(|state| match state {
            SinkEpochState::Sent(1) => B::EpochSent,
            SinkEpochState::Sent(_) => B::EpochSentAgain,
            SinkEpochState::Committed => B::EpochCommitted,
            SinkEpochState::InDoubt(..) => B::EpochInDoubt,
            SinkEpochState::Blocked(..) => B::EpochBlocked,
            SinkEpochState::GivenUp(_) => B::EpochGivenUp,
            SinkEpochState::ForkedOff(_) => B::EpochForkedOff,
        }));
    }
    for intent in history.intents().values() {
        reached.push(match intent.state {
            IntentState::Open => B::IntentOpen,
            IntentState::Sealed(_) => B::IntentSealed,
            IntentState::Closed => B::IntentClosed,
        });
        reached.extend(intent.bound.then_some(B::IntentBound));
    }
    for (_, entry) in history.ledger().iter() {
        reached.extend(entry.holders.keys().map(|holder| match holder {
            Holder::Checkpoint(_) => B::HeldByCheckpoint,
            Holder::Commit(_) => B::HeldByCommit,
            Holder::Savepoint(_) => B::HeldBySavepoint,
            Holder::Intent(_) => B::HeldByIntent,
        }));
        reached.extend(entry.holders.is_empty().then_some(B::HeldByNobody));
    }
    for decided in history.decisions().values().filter(|decided| decided.used_by.is_some()) {
        reached.extend(match &decided.decision.choice {
            Choice::Fork { policy, .. } => Some(match policy {
                MismatchPolicy::AcceptDuplicates => B::ForkedWithDuplicates,
                MismatchPolicy::AcceptLoss | MismatchPolicy::ReplayFromDestination => B::ForkedWithLoss,
            }),
            Choice::Accept { policy, .. } => Some(match policy {
                MismatchPolicy::AcceptDuplicates => B::AcceptedDuplicates,
                MismatchPolicy::AcceptLoss => B::AcceptedLoss,
                MismatchPolicy::ReplayFromDestination => B::Replayed,
            }),
            Choice::Retry { .. } | Choice::GiveUp { .. } => None,
        });
    }
    let widths = history.checkpoints().flat_map(|epoch| epoch.seal.sinks.iter().map(|(s, cut)| (s, cut.parts.len())));
    let mut widths: Vec<_> = widths.collect();
    widths.sort();
    widths.dedup();
    if widths.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        reached.push(B::Rescaled);
    }
    reached
}

fn of_error(kind: &HistoryErrorKind) -> Branch {
    use Branch as B;
    use HistoryErrorKind as K;
    match kind {
        K::Gap { .. } => B::NoGap,
        K::SlotNotRising { .. } => B::NoSlotTwice,
        K::NumberSpent => B::NoNumberSpent,
        K::NoRun => B::NoRecordBeforeRun,
        K::ForeignPipeline { .. } => B::NoForeignPipeline,
        K::RunNotNewer { .. } => B::NoRunNotNewer,
        K::ParentUnknown(_) => B::NoParentUnknown,
        K::ParentRetired(_) => B::NoParentRetired,
        K::ForkWithoutDecision { .. } => B::NoForkWithoutDecision,
        K::ForkBeforeUnfinished { .. } => B::NoForkBeforeUnfinished,
        K::DecisionNotPending(_) => B::NoDecisionNotPending,
        K::DecisionRepeated(_) => B::NoDecisionRepeated,
        K::NotNewestRun { .. } => B::NoNotNewestRun,
        K::SealedTwice(_) => B::NoSealedTwice,
        K::EpochNotNext { .. } => B::NoEpochNotNext,
        K::RangesIncomplete(_) => B::NoRangesIncomplete,
        K::WrongPart(_) => B::NoWrongPart,
        K::SavepointNameTaken(_) => B::NoSavepointNameTaken,
        K::UnknownSeal(_) => B::NoUnknownSeal,
        K::UnknownSink { .. } => B::NoUnknownSink,
        K::AlreadyEnded { .. } => B::NoAlreadyEnded,
        K::NeedsDecision { .. } => B::NoNeedsDecision,
        K::OutOfOrder { .. } => B::NoOutOfOrder,
        K::NotBlocked { .. } => B::NoNotBlocked,
        K::Retired(_) => B::NoRetired,
        K::UnknownSavepoint(_) => B::NoUnknownSavepoint,
        K::MustBeKept { .. } => B::NoMustBeKept,
        K::IntentNotNext { .. } => B::NoIntentNotNext,
        K::IntentNotOpen(_) => B::NoIntentNotOpen,
        K::ReleasedWhileNamed { .. } => B::NoReleasedWhileNamed,
        K::NamedAfterRelease { .. } => B::NoNamedAfterRelease,
        K::NotFinished => B::NoNotFinished,
        K::DeletesNeeded(_) => B::NoDeletesNeeded,
    }
}

impl Branch {
    /// Everything that one step of a coordinator reaches.
    pub fn of_step(before: &Coordinator, event: &Event, after: &Coordinator, effects: &[Effect]) -> Vec<Branch> {
        let mut reached = Vec::new();
        if effects.is_empty() && before == after {
            reached.extend(ignored(event));
            return reached;
        }
        reached.extend(of_phase(before, after));
        of_event(before, event, &mut reached);
        of_lanes(before, event, after, &mut reached);
        for effect in effects {
            of_effect(effect, &mut reached);
        }
        reached
    }

    /// A start that was refused.
    pub fn of_refusal(refusal: &Refusal) -> Branch {
        match refusal {
            Refusal::Mismatch { mismatch, .. } => match mismatch {
                Mismatch::Ahead { .. } => Branch::RefusedAhead,
                Mismatch::Behind { .. } => Branch::RefusedBehind,
                Mismatch::Foreign { .. } => Branch::RefusedForeign,
            },
            // What can be guaranteed is computed before a coordinator is made; a log that cannot be folded is a broken
            // promise here.
            Refusal::Graph(_) | Refusal::Guarantee(_) | Refusal::Log(_) => Branch::RefusedGraph,
            Refusal::Fork(_) => Branch::RefusedFork,
        }
    }
}

fn of_phase(before: &Coordinator, after: &Coordinator) -> Option<Branch> {
    let (was, is) = (before.phase(), after.phase());
    if was == is {
        return None;
    }
    Some(match is {
        // None is ever in the first again, or in the second for longer than a step.
        Phase::New | Phase::Deciding => return None,
        Phase::Observing if was == Phase::Finishing => Branch::DrainedBeforeFork,
        Phase::Observing => Branch::PhaseObserving,
        Phase::Opening => Branch::PhaseOpening,
        Phase::Fencing => Branch::PhaseFencing,
        Phase::Finishing => Branch::PhaseFinishing,
        Phase::Cleaning => Branch::PhaseCleaning,
        Phase::OpeningTasks => Branch::PhaseOpeningTasks,
        Phase::Running => Branch::PhaseRunning,
        Phase::Ended => Branch::PhaseEnded,
    })
}

/// What was told and changed nothing.
fn ignored(event: &Event) -> Option<Branch> {
    use Branch as B;
    Some(match event {
        Event::Observed { .. } => B::IgnoredObserved,
        Event::Appended { .. } => B::IgnoredAppended,
        Event::Fenced { .. } => B::IgnoredFenced,
        Event::CommitAnswered { .. } => B::IgnoredCommitAnswered,
        Event::Reconciled { .. } => B::IgnoredReconciled,
        Event::OrphansListed { .. } => B::IgnoredOrphansListed,
        Event::Abandoned { .. } => B::IgnoredAbandoned,
        Event::ReleaseAnswered { .. } => B::IgnoredReleaseAnswered,
        Event::TasksOpened => B::IgnoredTasksOpened,
        Event::TimerFired { .. } => B::IgnoredTimer,
        Event::PartPrepared { .. } => B::IgnoredPartPrepared,
        Event::SourceCut { .. } => B::IgnoredSourceCut,
        // They set what is set already, or come from a host without operators.
        Event::Start
        | Event::BarrierDue { .. }
        | Event::OperatorCut { .. }
        | Event::IntentAnnounced { .. }
        | Event::IntentBound { .. }
        | Event::Busy
        | Event::SourcesEnded
        | Event::EpochLost { .. }
        | Event::StopRequested
        | Event::SavepointAsked { .. }
        | Event::ForgetAsked { .. }
        | Event::RequestWithdrawn { .. } => return None,
    })
}

fn of_event(before: &Coordinator, event: &Event, reached: &mut Vec<Branch>) {
    use Branch as B;
    match event {
        Event::Observed { result: Err(fault), .. } | Event::Fenced { result: Err(fault), .. } => {
            reached.push(of_fault(
                fault,
                [B::StartAgain, B::StartFindOut, B::StartMend, B::StartNotOffered, B::StartSuperseded],
            ));
        }
        Event::Appended { result, slot } => reached.push(match result {
            AppendResult::Created => B::Created,
            AppendResult::Taken(found) => {
                let own = Some(found.run) == before.run() && found.slot == *slot;
                if own { B::TakenByItself } else { B::TakenByAnother }
            }
            AppendResult::Unknown(_) => B::AppendUnknown,
            AppendResult::NotWritten { retryable: true, .. } => B::NotWrittenAgain,
            AppendResult::NotWritten { retryable: false, .. } => B::NotWrittenForGood,
        }),
        Event::CommitAnswered { result, .. } => match result {
            Err(fault) => reached.push(of_fault(
                fault,
                [B::CommitAgain, B::CommitFindOut, B::CommitMend, B::CommitNotOffered, B::CommitSuperseded],
            )),
            Ok(outcomes) => reached.extend(outcomes.iter().map(of_commit)),
        },
        Event::Reconciled { result, .. } => match result {
            Err(fault) => reached.push(of_fault(
                fault,
                [
                    B::ReconcileAgain,
                    B::ReconcileFindOut,
                    B::ReconcileMend,
                    B::ReconcileNotOffered,
                    B::ReconcileSuperseded,
                ],
            )),
            Ok(outcomes) => reached.extend(outcomes.iter().filter_map(of_reconcile)),
        },
        Event::OrphansListed { result, sink } => match result {
            Err(fault) => reached.push(of_clean(fault)),
            Ok(page) => reached.extend(page.orphans.iter().map(|orphan| {
                match before.history().orphan(&pipeline(), sink, orphan) {
                    OrphanStanding::Named => B::OrphanNamed,
                    OrphanStanding::Foreign => B::OrphanForeign,
                    OrphanStanding::Newest(_) => B::OrphanNewest,
                    OrphanStanding::Sealed(_) => B::OrphanSealed,
                    OrphanStanding::Unsealed(_) => B::OrphanUnsealed,
                    OrphanStanding::Elsewhere(_) => B::OrphanElsewhere,
                }
            })),
        },
        Event::Abandoned { result, .. } => match result {
            Err(fault) => reached.push(of_clean(fault)),
            Ok(outcomes) => {
                let kinds = [B::AbandonGone, B::AbandonNotYet, B::AbandonRefused, B::AbandonFenced];
                reached.extend(outcomes.iter().map(|outcome| of_clean_up(outcome, kinds)));
            }
        },
        Event::ReleaseAnswered { result, .. } => match result {
            Err(fault) => reached.push(of_clean(fault)),
            Ok(outcomes) => {
                let kinds = [B::ReleaseGone, B::ReleaseNotYet, B::ReleaseRefused, B::ReleaseFenced];
                reached.extend(outcomes.iter().map(|outcome| of_clean_up(outcome, kinds)));
            }
        },
        Event::Observed { result: Ok(_), .. }
        | Event::Fenced { result: Ok(_), .. }
        | Event::Start
        | Event::TasksOpened
        | Event::BarrierDue { .. }
        | Event::SourceCut { .. }
        | Event::OperatorCut { .. }
        | Event::PartPrepared { .. }
        | Event::IntentAnnounced { .. }
        | Event::IntentBound { .. }
        | Event::Busy
        | Event::SourcesEnded
        | Event::EpochLost { .. }
        | Event::TimerFired { .. }
        | Event::StopRequested
        | Event::SavepointAsked { .. }
        | Event::ForgetAsked { .. }
        | Event::RequestWithdrawn { .. } => {}
    }
}

fn of_fault(fault: &CallFault, kinds: [Branch; 5]) -> Branch {
    let [again, find_out, mend, not_offered, superseded] = kinds;
    match fault.remedy() {
        Remedy::Again => again,
        Remedy::FindOut => find_out,
        Remedy::Mend => mend,
        Remedy::NotOffered => not_offered,
        Remedy::Superseded => superseded,
    }
}

fn of_clean(fault: &CallFault) -> Branch {
    use Branch as B;
    of_fault(fault, [B::CleanAgain, B::CleanFindOut, B::CleanMend, B::CleanNotOffered, B::CleanSuperseded])
}

fn of_commit(outcome: &Outcome) -> Branch {
    use Branch as B;
    match outcome {
        Outcome::Committed => B::CommitCommitted,
        Outcome::AlreadyCommitted => B::CommitAlready,
        Outcome::NotCommitted => B::CommitNotCommitted,
        Outcome::Never => B::CommitNever,
        Outcome::Retry(_) => B::CommitRetry,
        Outcome::Fenced => B::CommitFenced,
        Outcome::Unsupported => B::CommitUnsupported,
        Outcome::Unknown => B::CommitUnknown,
        Outcome::Rejected(_) => B::CommitRejected,
    }
}

fn of_reconcile(outcome: &Outcome) -> Option<Branch> {
    use Branch as B;
    Some(match outcome {
        Outcome::AlreadyCommitted => B::ReconcileAlready,
        Outcome::NotCommitted => B::ReconcileNotCommitted,
        Outcome::Never => B::ReconcileNever,
        Outcome::Retry(_) => B::ReconcileRetry,
        Outcome::Unsupported => B::ReconcileUnsupported,
        Outcome::Unknown => B::ReconcileUnknown,
        Outcome::Rejected(_) => B::ReconcileRejected,
        // A question commits nothing, and whoever may not commit may ask.
        Outcome::Committed | Outcome::Fenced => return None,
    })
}

fn of_clean_up(outcome: &Outcome, kinds: [Branch; 4]) -> Branch {
    let [gone, not_yet, refused, fenced] = kinds;
    match outcome {
        Outcome::Committed | Outcome::AlreadyCommitted => gone,
        Outcome::NotCommitted | Outcome::Retry(_) | Outcome::Unknown => not_yet,
        Outcome::Never | Outcome::Unsupported | Outcome::Rejected(_) => refused,
        Outcome::Fenced => fenced,
    }
}

/// How an answer moves the epoch that it is about.
fn of_lanes(before: &Coordinator, event: &Event, after: &Coordinator, reached: &mut Vec<Branch>) {
    use Branch as B;
    let (sink, of, result) = match event {
        Event::CommitAnswered { sink, of, result, .. } | Event::Reconciled { sink, of, result, .. } => {
            (sink, of, result)
        }
        _ => return,
    };
    let (was, is) = (before.status(), after.status());
    let (Some(was), Some(is)) = (was.sinks.get(sink), is.sinks.get(sink)) else { return };
    let doubt = was.in_doubt == Some(*of);
    let committed = is.committed == Some(*of) && was.committed != is.committed;
    let blocked = is.blocked.as_ref().is_some_and(|(blocked, _)| blocked == of);
    reached.push(match (doubt, committed, blocked, is.in_doubt == Some(*of)) {
        (true, true, ..) => B::DoubtToCommitted,
        (true, _, true, _) => B::DoubtToBlocked,
        (true, _, _, true) => B::DoubtStays,
        (true, ..) => B::DoubtToSent,
        (false, true, ..) => B::SentToCommitted,
        (false, _, true, _) => B::SentToBlocked,
        (false, _, _, true) => B::SentToDoubt,
        (false, ..) => return,
    });
    let parts = before.history().seal(*of).map_or(0, |epoch| epoch.parts(sink).len());
    if result.as_ref().is_ok_and(|outcomes| outcomes.len() < parts && doubt_by_length(after, sink)) {
        reached.push(B::MissingEntry);
    }
}

/// The last answer lacked an entry: the coordinator says so in words.
fn doubt_by_length(after: &Coordinator, sink: &tidegate_protocol::ids::SinkId) -> bool {
    after.status().sinks.get(sink).is_some_and(|sink| sink.in_doubt.is_some())
}

fn of_effect(effect: &Effect, reached: &mut Vec<Branch>) {
    use Branch as B;
    reached.push(match effect {
        Effect::Observe { .. } => B::DoObserve,
        Effect::Append { .. } => B::DoAppend,
        Effect::Fence { .. } => B::DoFence,
        Effect::Commit(_) => B::DoCommit,
        Effect::Reconcile(_) => B::DoReconcile,
        Effect::ListOrphans { .. } => B::DoListOrphans,
        Effect::Abandon { .. } => B::DoAbandon,
        Effect::Release { .. } => B::DoRelease,
        Effect::OpenTasks(_) => B::DoOpenTasks,
        Effect::InjectBarrier { .. } => B::DoInjectBarrier,
        Effect::IntentRecorded { result: Ok(_), .. } => B::DoIntentRecorded,
        // Tasks here announce only what they write; a strange announcement is for `host/protocol/tests`.
        Effect::IntentRecorded { result: Err(_), .. } => return,
        Effect::RequestAnswered { result, .. } => match result {
            Ok(_) => B::RequestDone,
            Err(RequestRefused::NameTaken(_)) => B::RequestNameTaken,
            Err(RequestRefused::UnknownSavepoint) => B::RequestUnknownSavepoint,
            Err(RequestRefused::Withdrawn) => B::RequestWithdrawn,
            Err(RequestRefused::RunOver) => B::RequestRunOver,
            // Names and numbers of requests are no question of order: `host/protocol/tests/requests.rs`.
            Err(RequestRefused::IllegalName(_) | RequestRefused::TooMany) => return,
        },
        Effect::PublishProgress { .. } => B::DoPublish,
        Effect::DeleteRecords { .. } => B::DoDelete,
        Effect::Wait { .. } => B::DoWait,
        Effect::Notice(notice) => match notice {
            Notice::RunOpened { .. } => B::NoticeRunOpened,
            Notice::EpochPrepared { .. } => B::NoticeEpochPrepared,
            Notice::EpochSealed { .. } => B::NoticeEpochSealed,
            Notice::EpochCommitted { .. } => B::NoticeEpochCommitted,
            Notice::InDoubt { .. } => B::NoticeInDoubt,
            Notice::Blocked { reason, .. } => match reason {
                Blocked::Rejected(_) => B::NoticeBlockedRejected,
                Blocked::Never => B::NoticeBlockedNever,
                Blocked::TriesSpent(_) => B::NoticeBlockedTriesSpent,
                Blocked::CannotAsk(_) => B::NoticeBlockedCannotAsk,
            },
            Notice::CallFails { .. } => B::NoticeCallFails,
            Notice::Warning(_) => B::NoticeWarning,
            // The driver tells it, between two runs.
            Notice::GoesBack { .. } => return,
            // They tell of time, which stands still here.
            Notice::NoProgress { .. } | Notice::ExpiresSoon { .. } => return,
        },
        Effect::End(end) => match end {
            End::Finished => B::EndFinished,
            End::Stopped => B::EndStopped,
            End::StoppedInDoubt { .. } => B::EndStoppedInDoubt,
            End::Blocked { .. } => B::EndBlocked,
            End::Superseded(_) => B::EndSuperseded,
            End::StoreFailed(_) => B::EndStoreFailed,
            End::Refused(refusal) => Branch::of_refusal(refusal),
            End::Restart(failure) => match failure {
                TaskFailure::Plugin(..) => B::RestartPlugin,
                TaskFailure::Source { .. } => B::RestartSource,
                TaskFailure::Host(_) => B::RestartHost,
                // Never tried again.
                TaskFailure::BadRow { .. } | TaskFailure::Shape { .. } => return,
            },
            End::Failed(failure) => match failure {
                TaskFailure::Plugin(..) => B::FailedPlugin,
                TaskFailure::Source { .. } => B::FailedSource,
                TaskFailure::BadRow { .. } => B::FailedBadRow,
                TaskFailure::Shape { .. } => B::FailedShape,
                // The host's own contradictions: a row sum that does not hold. None is reached while the rules hold.
                TaskFailure::Host(_) => return,
            },
        },
    });
}
