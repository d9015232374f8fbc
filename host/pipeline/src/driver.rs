//! One run: carries out what the coordinator decides.
//!
//! The loop is always the same. 1. Wait for one thing to happen: a task's report, a timer, the interval, a wish to stop.
//! 2. Tell the coordinator. 3. Carry out its effects in order. 4. Stop at `End`.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt as _;
use tidegate_protocol::coordinator::Coordinator;
use tidegate_protocol::event::{Effect, End, Event, Notice, TaskFailure, Timer};
use tidegate_protocol::ids::{Epoch, EpochRef, PartId, RunId, SinkId, SourceId};
use tidegate_protocol::plugin::{BoxFuture, ErrorKind, External, IntentLog, PluginError};
use tidegate_protocol::record::{Body, CutReason};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::clock::monotonic_ns;
use crate::control::{Answer, Asked};
use crate::liveness::Liveness;
use crate::log::LogHandle;
use crate::observe::{Moment, Progress};
use crate::open::{OpenTasks, Opened, open_tasks};
use crate::run::Env;
use crate::spec::Pipeline;
use crate::tasks::actor::{CleanUpOrder, CommitOrder, SinkHandle, clean_up_actor, commit_actor};
use crate::tasks::source::Cut;

/// What reaches the driver from the tasks.
pub(crate) enum Signal {
    Event(Event),
    Notice(Notice),
    SourceEnded { source: SourceId, task: u32 },
    Intent { sink: SinkId, part: Option<PartId>, resource: External, done: oneshot::Sender<Result<u64, PluginError>> },
    Bound { number: u64, name: String, done: oneshot::Sender<Result<u64, PluginError>> },
}

/// A task's way to the driver. The queue is bounded by the protocol: every task sends a bounded number of signals per
/// epoch, and the number of epochs under way is bounded.
#[derive(Clone)]
pub(crate) struct Report {
    signals: mpsc::UnboundedSender<Signal>,
    rows_read: Arc<AtomicU64>,
}

impl Report {
    pub(crate) fn new(rows_read: Arc<AtomicU64>) -> (Self, mpsc::UnboundedReceiver<Signal>) {
        let (signals, inbox) = mpsc::unbounded_channel();
        (Self { signals, rows_read }, inbox)
    }

    pub(crate) fn event(&self, event: Event) {
        self.signal(Signal::Event(event));
    }

    /// Something a person may want to see.
    pub(crate) fn notice(&self, notice: Notice) {
        self.signal(Signal::Notice(notice));
    }

    pub(crate) fn source_ended(&self, source: &SourceId, task: u32) {
        self.signal(Signal::SourceEnded { source: source.clone(), task });
    }

    pub(crate) fn rows_read(&self, rows: u64) {
        self.rows_read.fetch_add(rows, Ordering::Relaxed);
    }

    /// Waits until the run is over, keeping whatever the caller owns alive.
    pub(crate) async fn until_closed(&self) {
        self.signals.closed().await;
    }

    fn signal(&self, signal: Signal) {
        // Nobody listens any more when the run is over.
        let _ = self.signals.send(signal);
    }
}

/// Where the writers of one sink announce what they are about to create.
pub(crate) struct Announcements {
    pub(crate) sink: SinkId,
    pub(crate) report: Report,
}

impl Announcements {
    fn ask<'a>(
        &'a self,
        signal: impl FnOnce(oneshot::Sender<Result<u64, PluginError>>) -> Signal + Send + 'a,
    ) -> BoxFuture<'a, Result<u64, PluginError>> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            self.report.signal(signal(done));
            answer.await.unwrap_or_else(|_| {
                Err(PluginError {
                    kind: ErrorKind::EpochLost,
                    code: "run-over".into(),
                    message: "the run ended before the announcement was durable".into(),
                })
            })
        })
    }
}

impl IntentLog for Announcements {
    fn intent(&self, part: Option<PartId>, resource: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        let sink = self.sink.clone();
        self.ask(move |done| Signal::Intent { sink, part, resource, done })
    }

    fn bound(&self, intent: u64, name: String) -> BoxFuture<'_, Result<(), PluginError>> {
        let asked = self.ask(move |done| Signal::Bound { number: intent, name, done });
        Box::pin(async move { asked.await.map(|_| ()) })
    }
}

/// Orders for the two actors of one sink.
struct SinkActors {
    commits: mpsc::UnboundedSender<CommitOrder>,
    clean_up: Option<mpsc::UnboundedSender<CleanUpOrder>>,
    handle: SinkHandle,
}

/// One run under way.
pub(crate) struct Driver<'a> {
    pipeline: Arc<Pipeline>,
    env: &'a Env,
    coordinator: Coordinator,
    report: Report,
    inbox: mpsc::UnboundedReceiver<Signal>,
    log: LogHandle,
    sinks: BTreeMap<SinkId, SinkActors>,
    actors: JoinSet<()>,
    opening: Option<BoxFuture<'static, Result<Opened, TaskFailure>>>,
    tasks: JoinSet<()>,
    cuts: Vec<mpsc::UnboundedSender<Cut>>,
    /// Sources do not read on while this is set.
    hold: watch::Sender<bool>,
    /// The epoch whose barrier was sent last.
    injected: watch::Sender<Epoch>,
    source_tasks_left: usize,
    timers: BTreeMap<Timer, Instant>,
    next_barrier: Option<Instant>,
    barrier_sent: Option<Instant>,
    liveness: Liveness,
    intents: BTreeMap<u64, oneshot::Sender<Result<u64, PluginError>>>,
    next_intent: u64,
    /// Requests of people that have no answer yet.
    asked: BTreeMap<u64, oneshot::Sender<Answer>>,
    stopping: bool,
    busy: bool,
    /// Sealed by this run and not committed by every sink.
    uncommitted: BTreeSet<EpochRef>,
    progress: &'a mut Progress,
    rows_read: Arc<AtomicU64>,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(
        pipeline: Arc<Pipeline>,
        env: &'a Env,
        coordinator: Coordinator,
        (report, inbox): (Report, mpsc::UnboundedReceiver<Signal>),
        log: LogHandle,
        progress: &'a mut Progress,
        rows_read: Arc<AtomicU64>,
    ) -> Self {
        let mut actors = JoinSet::new();
        let liveness = Liveness::new(pipeline.settings.alarm_after);
        let mut sinks = BTreeMap::new();
        for entry in pipeline.sinks.iter().chain(&pipeline.dead_letter) {
            let handle = SinkHandle::new(&pipeline, entry, report.clone());
            let (commits, orders) = mpsc::unbounded_channel();
            actors.spawn(commit_actor(handle.clone(), orders));
            sinks.insert(entry.id.clone(), SinkActors { commits, clean_up: None, handle });
        }
        Self {
            pipeline,
            env,
            coordinator,
            report,
            inbox,
            log,
            sinks,
            actors,
            opening: None,
            tasks: JoinSet::new(),
            cuts: Vec::new(),
            hold: watch::Sender::new(false),
            injected: watch::Sender::new(Epoch::ZERO),
            source_tasks_left: 0,
            timers: BTreeMap::new(),
            next_barrier: None,
            barrier_sent: None,
            liveness,
            intents: BTreeMap::new(),
            next_intent: 0,
            asked: BTreeMap::new(),
            stopping: false,
            busy: false,
            uncommitted: BTreeSet::new(),
            progress,
            rows_read,
        }
    }

    /// Runs until the coordinator says that the run is over, then closes everything.
    pub(crate) async fn run(mut self) -> End {
        self.env.observer.reached(Moment::Starting);
        let mut event = Event::Start;
        let end = loop {
            if let Some(end) = self.tell(event) {
                break end;
            }
            event = self.wait().await;
        };
        self.close().await;
        end
    }

    fn tell(&mut self, event: Event) -> Option<End> {
        if matches!(event, Event::Busy) && !self.busy {
            self.busy = true;
            self.env.observer.reached(Moment::Open);
        }
        let effects = self.coordinator.step(self.env.clock.now_ms(), event);
        let end = effects.into_iter().find_map(|effect| self.carry_out(effect));
        // What is read while no barrier may come makes the open epoch longer and longer.
        let full = self.coordinator.is_held_up();
        self.hold.send_if_modified(|hold| std::mem::replace(hold, full) != full);
        end
    }

    async fn wait(&mut self) -> Event {
        loop {
            let timer = self.timers.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (timer.clone(), *at));
            let alarm = self.liveness.next(self.env.clock.now_ms());
            tokio::select! {
                biased;
                () = self.env.control.stopped(), if !self.stopping => {
                    self.stopping = true;
                    return Event::StopRequested;
                }
                asked = self.env.control.asked() => return self.on_asked(asked),
                Some(signal) = self.inbox.recv() => {
                    if let Some(event) = self.on_signal(signal) {
                        return event;
                    }
                }
                opened = maybe(&mut self.opening) => {
                    self.opening = None;
                    return match opened {
                        Ok(opened) => self.start_tasks(opened),
                        Err(reason) => Event::EpochLost { reason },
                    };
                }
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended
                        && error.is_panic()
                    {
                        let reason = TaskFailure::Host(format!("a task {}", words(error)));
                        return Event::EpochLost { reason };
                    }
                }
                // Actors end when their orders do, which is after the run. One that ends before owes an answer.
                Some(ended) = self.actors.join_next() => {
                    let why = ended.err().map_or_else(|| "ended".to_owned(), words);
                    let reason = TaskFailure::Host(format!("a task that calls a plugin was lost: it {why}"));
                    return Event::EpochLost { reason };
                }
                () = until(self.next_barrier) => {
                    if self.barrier_sent.is_some() {
                        // Still busy with the last one: its seal says when the next may come.
                        self.next_barrier = None;
                        continue;
                    }
                    self.next_barrier = Some(Instant::now() + self.pipeline.settings.interval);
                    return Event::BarrierDue { reason: CutReason::Interval };
                }
                () = until(timer.as_ref().map(|(_, at)| *at)) => {
                    let (timer, _) = timer.expect("`until(None)` never ends");
                    self.timers.remove(&timer);
                    return Event::TimerFired { timer };
                }
                () = until(alarm) => {
                    for notice in self.liveness.due(self.env.clock.now_ms()) {
                        self.on_notice(&notice);
                    }
                }
            }
        }
    }

    fn on_signal(&mut self, signal: Signal) -> Option<Event> {
        match signal {
            Signal::Event(event) => Some(event),
            Signal::Notice(notice) => {
                self.on_notice(&notice);
                None
            }
            Signal::SourceEnded { source, task } => {
                tracing::debug!(%source, task, "source task is at its end");
                self.source_tasks_left = self.source_tasks_left.saturating_sub(1);
                (self.source_tasks_left == 0).then_some(Event::SourcesEnded)
            }
            Signal::Intent { sink, part, resource, done } => {
                let request = self.remember(done);
                Some(Event::IntentAnnounced { request, sink, part, resource })
            }
            Signal::Bound { number, name, done } => {
                let request = self.remember(done);
                Some(Event::IntentBound { request, number, name })
            }
        }
    }

    fn on_asked(&mut self, asked: Asked) -> Event {
        match asked {
            Asked::Savepoint { request, name, done } => {
                self.asked.insert(request, done);
                Event::SavepointAsked { request, name }
            }
            Asked::Forget { request, name, done } => {
                self.asked.insert(request, done);
                Event::ForgetAsked { request, name }
            }
            Asked::Withdraw { request } => Event::RequestWithdrawn { request },
        }
    }

    fn remember(&mut self, done: oneshot::Sender<Result<u64, PluginError>>) -> u64 {
        self.next_intent += 1;
        self.intents.insert(self.next_intent, done);
        self.next_intent
    }

    fn start_tasks(&mut self, opened: Opened) -> Event {
        self.source_tasks_left = opened.sources.len();
        self.cuts = opened.cuts;
        for task in opened.sources {
            self.tasks.spawn(task.run());
        }
        for task in opened.operators {
            self.tasks.spawn(task.run());
        }
        for task in opened.sinks {
            self.tasks.spawn(task.run());
        }
        self.next_barrier = Some(Instant::now() + self.pipeline.settings.interval);
        Event::TasksOpened
    }

    fn carry_out(&mut self, effect: Effect) -> Option<End> {
        match effect {
            Effect::Observe { sink, run } => self.commit_order(&sink, CommitOrder::Observe { run }),
            Effect::Fence { sink, expected, run } => self.commit_order(&sink, CommitOrder::Fence { run, expected }),
            Effect::Commit(permit) => {
                let sink = permit.sink().clone();
                self.commit_order(&sink, CommitOrder::Commit(permit));
                self.env.observer.reached(Moment::Sent);
            }
            Effect::Reconcile(permit) => {
                let sink = permit.sink().clone();
                self.commit_order(&sink, CommitOrder::Reconcile(permit));
            }
            Effect::Append { record } => {
                if matches!(record.body, Body::Finished(_)) {
                    self.env.observer.reached(Moment::Finishing);
                }
                self.log.append(record);
            }
            Effect::ListOrphans { sink, prefix, page } => {
                self.clean_up_order(&sink, CleanUpOrder::ListOrphans { prefix, page });
            }
            Effect::Abandon { sink, parts, attempt } => {
                self.clean_up_order(&sink, CleanUpOrder::Abandon { parts, attempt });
            }
            Effect::Release { sink, resources, attempt } => {
                self.clean_up_order(&sink, CleanUpOrder::Release { resources, attempt });
            }
            Effect::OpenTasks(restored) => {
                let opened = open_tasks(OpenTasks {
                    pipeline: Arc::clone(&self.pipeline),
                    restored: *restored,
                    report: self.report.clone(),
                    log: self.log.clone(),
                    blocking: self.env.blocking,
                    clock: Arc::clone(&self.env.clock),
                    hold: self.hold.subscribe(),
                    injected: self.injected.subscribe(),
                });
                // Plugins and sources are called on the way: a panic of theirs is a fault of theirs.
                let caught = AssertUnwindSafe(opened).catch_unwind();
                self.opening = Some(Box::pin(async move {
                    match caught.await {
                        Ok(opened) => opened,
                        Err(_) => Err(TaskFailure::Host("opening the tasks panicked".to_owned())),
                    }
                }));
            }
            Effect::InjectBarrier { epoch, reason } => {
                self.busy = false;
                self.injected.send_replace(epoch);
                self.barrier_sent = Some(Instant::now());
                self.liveness.barrier_sent(epoch);
                timeline("barrier", epoch);
                for cuts in &self.cuts {
                    // A task that is gone has reported why.
                    let _ = cuts.send(Cut { epoch, reason: reason.clone() });
                }
                self.env.observer.reached(Moment::Preparing);
            }
            Effect::IntentRecorded { request, result } => {
                if let Some(done) = self.intents.remove(&request) {
                    let _ = done.send(result);
                }
            }
            Effect::RequestAnswered { request, result } => {
                if let Some(done) = self.asked.remove(&request) {
                    // Who asked may be gone.
                    let _ = done.send(result);
                }
            }
            Effect::PublishProgress { of: _, sources } => {
                for entry in &self.pipeline.sources {
                    if let Some(cut) = sources.get(&entry.id).filter(|cut| cut.partitions.entries().is_ok()) {
                        entry.source.committed(cut);
                    }
                }
            }
            Effect::DeleteRecords { slots } => self.log.delete(slots, self.coordinator.history().state_chunks()),
            Effect::Wait { timer, millis } => {
                self.timers.insert(timer, Instant::now() + std::time::Duration::from_millis(millis));
            }
            Effect::Notice(notice) => self.on_notice(&notice),
            Effect::End(end) => return Some(end),
        }
        None
    }

    fn on_notice(&mut self, notice: &Notice) {
        let now = self.env.clock.now_ms();
        match notice {
            Notice::RunOpened { run, .. } => {
                self.progress.runs += 1;
                self.start_clean_up_actors(*run);
                self.env.observer.reached(Moment::Restoring);
            }
            Notice::EpochSealed { of, rejected, filtered, .. } => {
                timeline("sealed", of.epoch);
                self.progress.epochs_sealed += 1;
                self.liveness.sealed();
                self.uncommitted.insert(*of);
                self.progress.rows_dead_lettered += rejected;
                self.progress.rows_filtered += filtered;
                self.progress.last_seal_at = Some(now);
                self.progress.last_checkpoint_millis =
                    self.barrier_sent.take().map(|sent| u64::try_from(sent.elapsed().as_millis()).unwrap_or(u64::MAX));
                self.note_positions(*of);
                self.pause_after_seal();
                self.env.observer.reached(Moment::Sealed);
            }
            Notice::EpochCommitted { sink, of, rows } => {
                timeline("committed", of.epoch);
                *self.progress.rows_committed.entry(sink.clone()).or_default() += rows;
                self.progress.last_commit_at = Some(now);
            }
            Notice::InDoubt { .. } => self.env.observer.reached(Moment::InDoubt),
            Notice::Warning(message) => tracing::warn!("{message}"),
            Notice::CallFails { sink, fault, for_ms, .. } => {
                tracing::warn!(%sink, for_ms, "{fault}; it is tried again");
            }
            Notice::NoProgress { sink: Some(sink), epoch, for_ms } => {
                tracing::warn!(%sink, %epoch, for_ms, "sealed, and nothing was committed for so long");
            }
            Notice::NoProgress { sink: None, epoch, for_ms } => {
                tracing::warn!(%epoch, for_ms, "the barrier was sent, and the epoch is not sealed");
            }
            Notice::ExpiresSoon { sink, of, at } => {
                tracing::warn!(%sink, %of, at, "not committed, and the destination will drop its prepared work");
            }
            Notice::EpochPrepared { .. } | Notice::Blocked { .. } | Notice::GoesBack { .. } => {}
        }
        self.env.observer.notice(notice);
        self.show_progress();
    }

    fn show_progress(&mut self) {
        self.progress.rows_read = self.rows_read.load(Ordering::Relaxed);
        self.progress.waiting = self.coordinator.waiting();
        self.liveness.look(&self.coordinator, &self.progress.waiting);
        let sealed = self.uncommitted.len();
        let waiting = &self.progress.waiting;
        self.uncommitted.retain(|of| waiting.iter().any(|(_, other)| other == of));
        self.progress.epochs_committed += (sealed - self.uncommitted.len()) as u64;
        self.env.observer.progress(self.progress);
    }

    fn note_positions(&mut self, of: EpochRef) {
        if let Some(seal) = self.coordinator.history().seal(of) {
            self.progress.positions =
                seal.seal.sources.iter().map(|(source, cut)| (source.clone(), cut.partitions.clone())).collect();
        }
    }

    fn pause_after_seal(&mut self) {
        let earliest = Instant::now() + self.pipeline.settings.min_pause;
        self.next_barrier = Some(self.next_barrier.map_or(earliest, |next| next.max(earliest)));
    }

    fn start_clean_up_actors(&mut self, run: RunId) {
        for actors in self.sinks.values_mut() {
            let (orders, inbox) = mpsc::unbounded_channel();
            self.actors.spawn(clean_up_actor(actors.handle.clone(), run, inbox));
            actors.clean_up = Some(orders);
        }
    }

    fn commit_order(&self, sink: &SinkId, order: CommitOrder) {
        if let Some(actors) = self.sinks.get(sink) {
            let _ = actors.commits.send(order);
        }
    }

    fn clean_up_order(&self, sink: &SinkId, order: CleanUpOrder) {
        if let Some(orders) = self.sinks.get(sink).and_then(|actors| actors.clean_up.as_ref()) {
            let _ = orders.send(order);
        }
    }

    /// Closes tasks and instances; waits for calls that are under way.
    async fn close(mut self) {
        self.opening = None;
        self.intents.clear();
        self.tasks.shutdown().await;
        self.sinks.clear();
        while let Some(ended) = self.actors.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "an actor ended badly");
            }
        }
        self.show_progress();
    }
}

/// For who measures from outside: `at_ns` is on the machine's monotonic clock, which all its processes share.
fn timeline(what: &str, epoch: Epoch) {
    tracing::debug!(target: "tidegate::timeline", epoch = epoch.0, at_ns = monotonic_ns(), "{what}");
}

/// Why a task ended badly. Its number says nothing to anybody, and the same run would tell another one.
fn words(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            text.map_or_else(|| "panicked".to_owned(), |text| format!("panicked: {text}"))
        }
        Err(_) => "was cancelled".to_owned(),
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn maybe<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
