//! What the driver tells the coordinator, and what the coordinator asks of the driver.
//!
//! **The driver's contract:** feed every event in the order it happened, and carry out every effect in the order given,
//! each exactly once, until [`Effect::End`]; answers may come back in any order.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{Epoch, EpochRef, OperatorId, PartId, RunId, SinkId, Slot, SourceId};
use crate::permit::CommitPermit;
use crate::plugin::{CallFault, External, OrphanPage, Outcome, PluginError, Position, Prepared, Unsealed, WriterState};
use crate::record::{Binding, Blocked, CutReason, OperatorCut, Record, SourceCut};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    /// The run may begin. First event, once.
    Start,
    /// Answer to [`Effect::Observe`].
    Observed {
        /// Which sink.
        sink: SinkId,
        /// Where it stands.
        result: Result<Position, CallFault>,
    },
    /// Answer to [`Effect::Append`].
    Appended {
        /// The slot that was tried.
        slot: Slot,
        /// What came of it.
        result: AppendResult,
    },
    /// Answer to [`Effect::Fence`].
    Fenced {
        /// Which sink.
        sink: SinkId,
        /// The new position.
        result: Result<Position, CallFault>,
    },
    /// Answer to [`Effect::Commit`].
    CommitAnswered {
        /// Which sink.
        sink: SinkId,
        /// Which epoch.
        of: EpochRef,
        /// The attempt that was sent.
        attempt: u32,
        /// One outcome per committable, in the order of the permit.
        result: Result<Vec<Outcome>, CallFault>,
    },
    /// Answer to [`Effect::Reconcile`].
    Reconciled {
        /// Which sink.
        sink: SinkId,
        /// Which epoch.
        of: EpochRef,
        /// The attempt it was asked about.
        attempt: u32,
        /// One outcome per committable, in the order of the permit.
        result: Result<Vec<Outcome>, CallFault>,
    },
    /// Answer to [`Effect::ListOrphans`].
    OrphansListed {
        /// Which sink.
        sink: SinkId,
        /// One page.
        result: Result<OrphanPage, CallFault>,
    },
    /// Answer to [`Effect::Abandon`].
    Abandoned {
        /// Which sink.
        sink: SinkId,
        /// One outcome per part, in order.
        result: Result<Vec<Outcome>, CallFault>,
    },
    /// Answer to [`Effect::Release`].
    ReleaseAnswered {
        /// Which sink.
        sink: SinkId,
        /// One outcome per resource, in order.
        result: Result<Vec<Outcome>, CallFault>,
    },
    /// Answer to [`Effect::OpenTasks`]: all subtasks stand ready to read.
    TasksOpened,
    /// The driver's clock says that a barrier is due, or somebody asked for one. Ignored while idle or while too many
    /// epochs wait, and then due again when that changes.
    BarrierDue {
        /// Why.
        reason: CutReason,
    },
    /// One source task reached the barrier of `epoch`.
    SourceCut {
        /// Which source.
        source: SourceId,
        /// Which of its tasks.
        task: u32,
        /// The epoch that the barrier ends.
        epoch: Epoch,
        /// What it has done since its last cut; the coordinator joins the tasks' reports.
        progress: SourceProgress,
    },
    /// One operator subtask reached the barrier.
    OperatorCut {
        /// Which operator.
        operator: OperatorId,
        /// Which of its subtasks.
        task: u32,
        /// The epoch that the barrier ends.
        epoch: Epoch,
        /// Its state.
        cut: OperatorCut,
    },
    /// One participant aligned, and prepared its part if it had rows.
    PartPrepared {
        /// Which sink.
        sink: SinkId,
        /// Which participant.
        ordinal: u32,
        /// The epoch that the barrier ends.
        epoch: Epoch,
        /// Rows handed to it in this epoch.
        rows_in: u64,
        /// Of them, rows that the pipeline's own filter left out.
        filtered: u64,
        /// Rows rejected in `write`, or by the host before it, and handed to the dead-letter sink.
        rejected_in_write: u64,
        /// `None`: no rows were left for the plugin, it was not called.
        prepared: Option<Prepared>,
    },
    /// A plugin announced a resource. Answered with [`Effect::IntentRecorded`].
    IntentAnnounced {
        /// The driver's number for this request.
        request: u64,
        /// Which sink.
        sink: SinkId,
        /// The part's short name, if one had begun.
        part: Option<PartId>,
        /// What.
        resource: External,
    },
    /// An announced resource got its name. Answered with [`Effect::IntentRecorded`].
    IntentBound {
        /// The driver's number for this request.
        request: u64,
        /// The intent's number.
        number: u64,
        /// Its name.
        name: String,
    },
    /// Rows, or state changes, exist that no barrier has cut yet. Sent once per epoch, with the first of them.
    Busy,
    /// All bounded sources ended: the last rows are on their way.
    SourcesEnded,
    /// The epoch being written can no longer be prepared: a writer's instance is gone, a source failed, a task died.
    EpochLost {
        /// Why.
        reason: TaskFailure,
    },
    /// A timer asked for with [`Effect::Wait`] ran out.
    TimerFired {
        /// Which.
        timer: Timer,
    },
    /// Somebody asked the run to stop with a sealed and committed epoch.
    StopRequested,
    /// Somebody asks for a savepoint: an epoch of its own, also when there are no rows. Answered with
    /// [`Effect::RequestAnswered`] when it is sealed, and in any case before the run ends.
    SavepointAsked {
        /// The driver's number for this request.
        request: u64,
        /// The savepoint's name.
        name: String,
    },
    /// Somebody gives a savepoint up. Answered with [`Effect::RequestAnswered`] when that is durable.
    ForgetAsked {
        /// The driver's number for this request.
        request: u64,
        /// The savepoint's name.
        name: String,
    },
    /// Nobody waits for the answer any more. What has not begun is not done, and is answered so.
    RequestWithdrawn {
        /// The driver's number for the request.
        request: u64,
    },
}

/// What one source task has done since its last cut, or since it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SourceProgress {
    /// Partitions that moved, and where they stand now; the text belongs to the source (JSON). Partitions that are new
    /// to the checkpoint are among them, also where nothing was read of them.
    pub moved: BTreeMap<String, String>,
    /// All partitions of this task are at their end and no further ones will come in this run.
    pub ended: bool,
    /// Low watermark in Unix milliseconds of event time, if known.
    pub watermark: Option<i64>,
    /// Rows handed on.
    pub rows: u64,
    /// Rows that could not be read and went to the dead-letter sink.
    pub dead_lettered: u64,
    /// The schema of its rows, where they have one.
    pub schema: Option<ToldSchema>,
}

/// What a task knows of the schema of its source's rows. All tasks of a source share what they know; those that were cut
/// later may know more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ToldSchema {
    /// Rises with all that becomes known. Of one epoch the highest counts.
    pub revision: u64,
    /// The text belongs to the source.
    pub text: String,
}

/// What came of creating a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AppendResult {
    /// It is durable.
    Created,
    /// The slot holds another record.
    Taken(Box<Record>),
    /// Not known, and the slot could not be read. The store accepts nothing more.
    Unknown(String),
    /// Certainly not written (disk full before anything reached it, lock lost). The store accepts nothing more unless
    /// `retryable`.
    NotWritten {
        /// Why.
        message: String,
        /// The same append may be tried again.
        retryable: bool,
    },
}

/// Why a request of a person was not carried out. Nothing was changed, except as [`RequestRefused::RunOver`] says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestRefused {
    /// A savepoint cannot be called that.
    IllegalName(crate::ids::InvalidId),
    /// There is a savepoint of this name, or one is being made (`None`).
    NameTaken(Option<EpochRef>),
    /// There is no savepoint of this name.
    UnknownSavepoint,
    /// Too many requests wait.
    TooMany,
    /// It was withdrawn before it began.
    Withdrawn,
    /// The run is ending or over. The log tells whether a record that was on its way got there.
    RunOver,
}

/// Why an epoch was lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TaskFailure {
    /// A plugin call failed.
    Plugin(SinkId, CallFault),
    /// A source cannot go on; for a person. Not retried when `permanent`.
    Source {
        /// Which.
        source: SourceId,
        /// Names file and line.
        message: String,
        /// Trying again cannot help.
        permanent: bool,
    },
    /// A row was bad and the pipeline is configured to stop there.
    BadRow {
        /// Names file, line and reason.
        message: String,
    },
    /// Rows cannot be brought into the form that a sink is to be given; for a person. Not retried.
    Shape {
        /// Which.
        sink: SinkId,
        /// What does not go, and how to mend it.
        message: String,
    },
    /// A task of the host ended unexpectedly.
    Host(String),
}

/// Timers name who asked for them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Before the next try of a commit or of asking about it.
    CommitRetry(SinkId, EpochRef),
    /// Before the next try of a start-up call (observe, fence) at a sink.
    StartRetry(SinkId),
    /// Before abandon or release is tried again.
    CleanUpRetry(SinkId),
    /// Flush recorded outcomes that found no record to ride on.
    IdleFlush,
    /// Look for orphans again.
    Sweep,
    /// Before an append that certainly wrote nothing is tried again.
    AppendRetry,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Call `observe` on a fresh committer.
    Observe {
        /// Which sink.
        sink: SinkId,
        /// For the call's context.
        run: RunId,
    },
    /// Create the record in its slot, durably.
    Append {
        /// The record; its slot is the next one.
        record: Box<Record>,
    },
    /// Call `fence`.
    Fence {
        /// Which sink.
        sink: SinkId,
        /// What was observed.
        expected: Position,
        /// The run that fences.
        run: RunId,
    },
    /// Call `commit`. There is no other way to publish.
    Commit(CommitPermit),
    /// Call `reconcile` for the same committables.
    Reconcile(CommitPermit),
    /// Call `list-orphans`.
    ListOrphans {
        /// Which sink.
        sink: SinkId,
        /// Short names start with it.
        prefix: String,
        /// Where to go on.
        page: Option<String>,
    },
    /// Call `abandon`.
    Abandon {
        /// Which sink.
        sink: SinkId,
        /// Never empty.
        parts: Vec<Unsealed>,
        /// From 1.
        attempt: u32,
    },
    /// Call `release`.
    Release {
        /// Which sink.
        sink: SinkId,
        /// Never empty.
        resources: Vec<External>,
        /// From 1.
        attempt: u32,
    },
    /// Open sources, operators and writers from this state; answer with [`Event::TasksOpened`].
    OpenTasks(Box<Restored>),
    /// Send the barrier that ends `epoch` into every source task. Rows after it belong to the next epoch.
    InjectBarrier {
        /// The epoch that it ends.
        epoch: Epoch,
        /// Why.
        reason: CutReason,
    },
    /// The announced resource is durable (with its number), or is not.
    IntentRecorded {
        /// The driver's number.
        request: u64,
        /// The intent's number.
        result: Result<u64, PluginError>,
    },
    /// The answer to a person's request, with the savepoint's epoch.
    RequestAnswered {
        /// The driver's number.
        request: u64,
        /// The epoch that the savepoint is, or was.
        result: Result<EpochRef, RequestRefused>,
    },
    /// Source progress up to here may be published outside (P11).
    PublishProgress {
        /// Committed by every sink.
        of: EpochRef,
        /// Positions. Those that an older run sealed may not have been read; then there is nothing to publish before the
        /// next epoch.
        sources: BTreeMap<SourceId, SourceCut>,
    },
    /// Delete these records, all at once or in any part; they are retired and released.
    DeleteRecords {
        /// Which.
        slots: Vec<Slot>,
    },
    /// Send [`Event::TimerFired`] after so many milliseconds. A timer set again replaces the old one.
    Wait {
        /// Which.
        timer: Timer,
        /// How long.
        millis: u64,
    },
    /// Something a person may want to see. Changes nothing.
    Notice(Notice),
    /// The run is over. Close all tasks and instances; answers that still come are dropped.
    End(End),
}

/// What a run starts from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Restored {
    /// The run.
    pub run: RunId,
    /// The checkpoint it descends from.
    pub from: Option<EpochRef>,
    /// The first epoch that it writes.
    pub first_epoch: Epoch,
    /// Where every source stood.
    pub sources: BTreeMap<SourceId, SourceCut>,
    /// State of every operator, of all its subtasks.
    pub operators: BTreeMap<OperatorId, Vec<OperatorCut>>,
    /// State of every sink's writers.
    pub writers: BTreeMap<SinkId, Vec<WriterState>>,
}

/// For progress lines, logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A run was decided.
    RunOpened {
        /// Its id.
        run: RunId,
        /// What it descends from.
        from: Option<EpochRef>,
    },
    /// All participants have prepared.
    EpochPrepared {
        /// Which.
        epoch: Epoch,
    },
    /// The seal is durable.
    EpochSealed {
        /// Which.
        of: EpochRef,
        /// Rows handed on by the sources.
        rows: u64,
        /// Rows dead-lettered or rejected.
        rejected: u64,
        /// Rows left out by filters, over all sinks.
        filtered: u64,
    },
    /// A sink committed.
    EpochCommitted {
        /// Where.
        sink: SinkId,
        /// Which.
        of: EpochRef,
        /// Rows made visible.
        rows: u64,
    },
    /// A commit's outcome is not known.
    InDoubt {
        /// Where.
        sink: SinkId,
        /// Which.
        of: EpochRef,
        /// Why.
        reason: String,
    },
    /// An epoch waits for a person.
    Blocked {
        /// Where.
        sink: SinkId,
        /// Which.
        of: EpochRef,
        /// Why.
        reason: Blocked,
    },
    /// A call fails, and is tried again. Told with the first such answer, and again when the reason changes.
    CallFails {
        /// Where.
        sink: SinkId,
        /// The sealed epoch that the call is about, if it is about one.
        of: Option<EpochRef>,
        /// Why.
        fault: CallFault,
        /// For so many milliseconds more, if it goes on to fail.
        for_ms: u64,
    },
    /// Work waits and nothing gets on. Told when that has lasted for as long as the operator allows, and again whenever it
    /// has lasted twice as long.
    NoProgress {
        /// Where the oldest sealed epoch waits for its commit; `None`: the epoch being cut is not sealed.
        sink: Option<SinkId>,
        /// The epoch that waits.
        epoch: Epoch,
        /// For so many milliseconds.
        for_ms: u64,
    },
    /// Half of what its prepared work lives is gone, and the epoch is not committed.
    ExpiresSoon {
        /// Where.
        sink: SinkId,
        /// Which.
        of: EpochRef,
        /// Unix milliseconds from which on the destination may drop it.
        at: u64,
    },
    /// A run ended and the next one goes back to the last sealed epoch.
    GoesBack {
        /// Why.
        failure: TaskFailure,
        /// So many runs at most may still begin without a sealed epoch between them.
        runs_left: u32,
    },
    /// Something worth a warning.
    Warning(String),
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum End {
    /// Input ended, everything committed. Also when a finished pipeline is started again and nothing is new.
    Finished,
    /// Stopped as asked, everything sealed is committed.
    Stopped,
    /// Stopped, or input ended, with epochs sealed and not yet committed.
    StoppedInDoubt {
        /// Which.
        waiting: Vec<(SinkId, EpochRef)>,
    },
    /// Nothing can go on before a person decides.
    Blocked {
        /// Which.
        waiting: Vec<(SinkId, EpochRef, Blocked)>,
    },
    /// Go back to the last sealed epoch as a new run.
    Restart(TaskFailure),
    /// The same failure would come again, or came too often.
    Failed(TaskFailure),
    /// The start was refused; nothing at any destination was changed.
    Refused(Refusal),
    /// A newer run owns log or destination.
    Superseded(String),
    /// The log cannot be written any more.
    StoreFailed(String),
}

/// Why a start was refused, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Log and destination do not agree.
    Mismatch {
        /// Where.
        sink: SinkId,
        /// How.
        mismatch: Mismatch,
        /// Policies that would allow it now.
        policies: Vec<crate::record::MismatchPolicy>,
        /// Why the destination cannot be replayed to although its checkpoint is there.
        replay_waits: Option<Box<ReplayWaits>>,
    },
    /// The configuration does not fit the state; says what, and what to do.
    Graph(String),
    /// The fork point is not there, is retired, or lies before unfinished epochs.
    Fork(String),
    /// More was asked for than can be guaranteed.
    Guarantee(String),
    /// The log is not readable or contradicts itself.
    Log(String),
}

/// A sealed epoch that lies behind the point to which a replay would go back, and may still land.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplayWaits {
    /// Where it has no end yet.
    pub sink: SinkId,
    /// Which.
    pub of: EpochRef,
    /// It waits for a person, who can give it up. Otherwise only a run can bring it to an end.
    pub blocked: bool,
}

/// How log and destination disagree.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Mismatch {
    /// The destination has epochs of ours that the log does not know, or that lie behind the fork point.
    Ahead {
        /// Newest there.
        destination: Vec<PartId>,
        /// Newest here.
        log: Option<EpochRef>,
    },
    /// The destination lacks epochs that the log knows as committed.
    Behind {
        /// Newest there.
        destination: Vec<PartId>,
        /// Newest here.
        log: Option<EpochRef>,
    },
    /// The destination was written or fenced by a run that this log never opened.
    Foreign {
        /// Whose.
        run: RunId,
    },
}

/// What the coordinator needs to know of the pipeline. Fixed for a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Graph {
    /// Sources with the number of their tasks.
    pub sources: BTreeMap<SourceId, SourceSpec>,
    /// Operators with the number of their subtasks.
    pub operators: BTreeMap<OperatorId, u32>,
    /// Sinks.
    pub sinks: BTreeMap<SinkId, SinkSpec>,
    /// Who hands rows to whom, for the row sum (P12). A consumer that is not listed takes the rows of all sources.
    /// Dead-letter sinks are not listed: what they take is what the others reject.
    pub wiring: BTreeMap<Consumer, BTreeSet<Producer>>,
}

/// Takes rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consumer {
    /// An operator.
    Operator(OperatorId),
    /// A sink.
    Sink(SinkId),
}

/// Hands rows on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Producer {
    /// A source.
    Source(SourceId),
    /// An operator.
    Operator(OperatorId),
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SourceSpec {
    /// How many tasks read it; each sends its own cut.
    pub tasks: u32,
    /// Can be read again from a position.
    pub replayable: bool,
    /// Ends by itself.
    pub bounded: bool,
}

/// One sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SinkSpec {
    /// How many participants write it, each owning a range of `KeyRange::split`.
    pub participants: u32,
    /// What the plugin declared.
    pub abilities: crate::plugin::Abilities,
    /// Committable versions that the plugin can finish.
    pub committable_versions: Vec<u32>,
    /// What goes into the seal.
    pub binding: Binding,
    /// Takes the rows that others reject; not part of the row sum of its own input.
    pub dead_letter: bool,
}
