//! The only place where anything is decided: [`Coordinator::step`].
//!
//! One coordinator lives as long as one run. It is made from the records of the log, is told what happened, and answers
//! with what to do; it knows nothing that is not in the log or in an event. Each phase has a file of its own: `start`
//! decides the run, `running` cuts and `seal` checks epochs, `commit` publishes, `cleanup` gives back, `retire` does
//! retention, `requests` answers people, `stop` ends; `append` is the one way into the log.

mod append;
mod check;
mod cleanup;
mod commit;
mod compare;
mod readers;
mod requests;
mod retire;
mod running;
mod seal;
mod start;
mod status;
mod stop;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use status::{Phase, SinkStatus, Status};

use crate::event::{Effect, End, Event, Graph, Notice, Refusal, Timer};
use crate::history::History;
use crate::ids::{EpochRef, Nonce, PipelineId, RunId, SinkId};
use crate::record::{MismatchPolicy, OutcomeEntry, Record};

/// What an operator may set. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// So many sealed epochs may wait for their commit at one sink; then no barrier is injected. At least 1.
    pub max_waiting: u32,
    /// So many answers that settle nothing, and an epoch waits for a person. Also bounds every call at start and clean
    /// up. At least 1.
    pub commit_tries: u32,
    /// Wait before the second try; doubles from try to try.
    pub backoff_base_ms: u64,
    /// The longest wait between two tries.
    pub backoff_max_ms: u64,
    /// So many checkpoints are kept. They are retired in groups of half as many, so up to one and a half times as many
    /// are there. At least 1.
    pub retain_count: u32,
    /// Checkpoints younger than this are kept too.
    pub retain_age_ms: Option<u64>,
    /// Outcomes that found no record to ride on are written after so long.
    pub idle_flush_ms: u64,
    /// So often orphans are looked for; 0 = only at start.
    pub sweep_ms: u64,
    /// How a mismatch at a sink may be accepted: id of the decision, who decides, what. Used once per id.
    pub mismatch: BTreeMap<SinkId, (String, String, MismatchPolicy)>,
    /// Go back to an older checkpoint: id of the decision, who decides, the checkpoint, and what may happen at
    /// destinations that are ahead of it. Done once per id.
    pub fork: Option<(String, String, EpochRef, MismatchPolicy)>,
    /// Version of the product, for the `open` record.
    pub product: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_waiting: 4,
            commit_tries: 10,
            backoff_base_ms: 100,
            backoff_max_ms: 10_000,
            retain_count: 10,
            retain_age_ms: None,
            idle_flush_ms: 1_000,
            sweep_ms: 600_000,
            mismatch: BTreeMap::new(),
            fork: None,
            product: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl Settings {
    /// Wait before try number `failures + 1`.
    pub(crate) fn backoff(&self, failures: u32) -> u64 {
        let doubled = 1u64.checked_shl(failures.saturating_sub(1)).unwrap_or(u64::MAX);
        self.backoff_base_ms.saturating_mul(doubled).min(self.backoff_max_ms)
    }

    pub(crate) fn spent(&self, failures: u32) -> bool {
        failures >= self.commit_tries.max(1)
    }

    /// For how long a commit is tried before a person is asked, if each call may take `call_ms`.
    pub fn recovery_ms(&self, call_ms: u64) -> u64 {
        self.patience(1).saturating_add(call_ms.saturating_mul(u64::from(self.commit_tries.max(1))))
    }

    /// How long is waited between further tries after so many failures, until all are spent.
    pub(crate) fn patience(&self, failures: u32) -> u64 {
        let mut sum = 0u64;
        for failed in failures..self.commit_tries.max(1) {
            let wait = self.backoff(failed);
            sum = sum.saturating_add(wait);
            if wait >= self.backoff_max_ms {
                let left = u64::from(self.commit_tries.max(1) - failed - 1);
                return sum.saturating_add(left.saturating_mul(wait));
            }
        }
        sum
    }
}

/// One run of a pipeline, as a machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Coordinator {
    pipeline: PipelineId,
    // Shared, so that a copy of a run costs what is different about it.
    graph: Arc<Graph>,
    fingerprint: String,
    settings: Arc<Settings>,
    nonce: Nonce,
    history: Arc<History>,
    now: u64,
    /// The latest time at which a step was made while this epoch waited for its commit.
    latest: BTreeMap<EpochRef, u64>,
    phase: Phase,
    run: Option<RunId>,
    append: append::Appender,
    unrecorded: Vec<OutcomeEntry>,
    start: start::Start,
    lanes: BTreeMap<SinkId, commit::Lane>,
    writing: running::Writing,
    janitors: BTreeMap<SinkId, cleanup::Janitor>,
    retiring: retire::Retiring,
    requests: requests::Requests,
    idle_timer: bool,
    published: Option<EpochRef>,
    ending: Option<End>,
    out: Vec<Effect>,
}

impl Coordinator {
    /// Makes a run from everything that the log holds. Nothing happens before [`Event::Start`].
    ///
    /// # Errors
    /// The log contradicts itself, the graph does not fit it, the fork point is not there, or an id is given to two
    /// decisions. Nothing was changed anywhere.
    pub fn new(
        pipeline: PipelineId,
        graph: Graph,
        graph_fingerprint: String,
        settings: Settings,
        records: Vec<Record>,
        nonce: Nonce,
    ) -> Result<Self, Refusal> {
        let history = History::fold(&records).map_err(|error| Refusal::Log(error.to_string()))?;
        if let Some(log) = history.pipeline().filter(|log| **log != pipeline) {
            return Err(Refusal::Log(format!("the log belongs to pipeline `{log}`, not to `{pipeline}`")));
        }
        check::graph(&graph, &history)?;
        check::decision_ids(&settings)?;
        check::fork(&settings, &history)?;
        let leftovers = records.iter().map(|record| record.slot).filter(|slot| history.is_gone(*slot)).collect();
        let lanes = graph.sinks.keys().map(|sink| (sink.clone(), commit::Lane::new(&history, sink))).collect();
        Ok(Self {
            start: start::Start::default(),
            writing: running::Writing::new(history.next_epoch()),
            janitors: graph.sinks.keys().map(|sink| (sink.clone(), cleanup::Janitor::default())).collect(),
            retiring: retire::Retiring::new(leftovers),
            requests: requests::Requests::default(),
            append: append::Appender::new(&history),
            pipeline,
            graph: Arc::new(graph),
            fingerprint: graph_fingerprint,
            settings: Arc::new(settings),
            nonce,
            history: Arc::new(history),
            now: 0,
            latest: BTreeMap::new(),
            phase: Phase::New,
            run: None,
            unrecorded: Vec::new(),
            lanes,
            idle_timer: false,
            published: None,
            ending: None,
            out: Vec::new(),
        })
    }

    /// What is known from durable records. Lags behind [`Self::status`] by outcomes that are not written yet.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The run, once it is decided.
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Where it is.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Takes in what happened and says what to do. `now_ms` is in Unix milliseconds and is used for records' time
    /// stamps, for retention by age, and to ask a person about what a destination may have dropped or forgotten, nothing
    /// else.
    pub fn step(&mut self, now_ms: u64, event: Event) -> Vec<Effect> {
        if self.phase == Phase::Ended {
            return Vec::new();
        }
        self.now = now_ms;
        self.take_in(event);
        self.go_on();
        self.note_time();
        std::mem::take(&mut self.out)
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Start => self.begin_start(),
            Event::Observed { sink, result } => self.on_observed(&sink, result),
            Event::Appended { slot, result } => self.on_appended(slot, result),
            Event::Fenced { sink, result } => self.on_fenced(&sink, result),
            Event::CommitAnswered { sink, of, attempt, result } => self.on_commit_answered(&sink, of, attempt, result),
            Event::Reconciled { sink, of, attempt, result } => self.on_reconciled(&sink, of, attempt, result),
            Event::OrphansListed { sink, result } => self.on_orphans_listed(&sink, result),
            Event::Abandoned { sink, result } => self.on_abandoned(&sink, result),
            Event::ReleaseAnswered { sink, result } => self.on_release_answered(&sink, result),
            Event::TasksOpened => self.on_tasks_opened(),
            Event::BarrierDue { reason } => self.on_barrier_due(reason),
            Event::SourceCut { source, task, epoch, progress } => self.on_source_cut(source, task, epoch, progress),
            Event::OperatorCut { operator, task, epoch, cut } => self.on_operator_cut(operator, task, epoch, cut),
            Event::PartPrepared { sink, ordinal, epoch, rows_in, filtered, rejected_in_write, prepared } => {
                let report = running::Report { rows_in, filtered, rejected_in_write, prepared };
                self.on_part_prepared(sink, ordinal, epoch, report);
            }
            Event::IntentAnnounced { request, sink, part, resource } => {
                self.on_intent_announced(request, sink, part, resource);
            }
            Event::IntentBound { request, number, name } => self.on_intent_bound(request, number, name),
            Event::Busy => self.writing.busy = true,
            Event::SourcesEnded => self.writing.sources_ended = true,
            Event::EpochLost { reason } => self.on_epoch_lost(reason),
            Event::TimerFired { timer } => self.on_timer(timer),
            Event::StopRequested => self.on_stop_requested(),
            Event::SavepointAsked { request, name } => self.on_savepoint_asked(request, name),
            Event::ForgetAsked { request, name } => self.on_forget_asked(request, name),
            Event::RequestWithdrawn { request } => self.on_request_withdrawn(request),
        }
    }

    fn on_timer(&mut self, timer: Timer) {
        match timer {
            Timer::CommitRetry(sink, of) => self.on_commit_retry(&sink, of),
            Timer::StartRetry(sink) => self.on_start_retry(&sink),
            Timer::CleanUpRetry(sink) => self.on_clean_up_retry(&sink),
            Timer::IdleFlush => self.on_idle_flush(),
            Timer::Sweep => self.on_sweep(),
            Timer::AppendRetry => self.on_append_retry(),
        }
    }

    /// Everything that may have become possible through the event, in the order in which it matters.
    fn go_on(&mut self) {
        self.go_on_starting();
        self.go_on_committing();
        // An epoch may be blocked without a call; then there is no answer that would let the start go on.
        self.go_on_starting();
        self.go_on_cleaning();
        self.go_on_with_requests();
        self.go_on_writing();
        self.go_on_retiring();
        self.go_on_publishing();
        self.go_on_stopping();
        self.go_on_appending();
        self.go_on_ending();
    }

    fn emit(&mut self, effect: Effect) {
        self.out.push(effect);
    }

    fn notice(&mut self, notice: Notice) {
        self.out.push(Effect::Notice(notice));
    }

    fn warn(&mut self, message: String) {
        self.notice(Notice::Warning(message));
    }

    /// The first reason to end counts, except that losing the log or the destination outranks all others.
    fn end(&mut self, end: End) {
        let outranks = matches!(end, End::Superseded(_) | End::StoreFailed(_))
            && !matches!(self.ending, Some(End::Superseded(_) | End::StoreFailed(_)));
        if self.ending.is_none() || outranks {
            self.ending = Some(end);
        }
    }

    /// Whether new work may still be begun.
    fn alive(&self) -> bool {
        self.ending.is_none() && self.phase != Phase::Ended
    }
}
