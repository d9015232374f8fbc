//! Runs a pipeline: one run after the other until one ends for good.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tidegate_protocol::coordinator::Coordinator;
use tidegate_protocol::event::{Consumer, End, Graph, Notice, Producer, Refusal, SinkSpec, SourceSpec, TaskFailure};
use tidegate_protocol::ids::{Nonce, SinkHash, Slot, SourceId};
use tidegate_protocol::record::{Body, Record};
use tidegate_store::{Log, StoreError};

use crate::clock::Clock;
pub use crate::control::Control;
use crate::driver::{Driver, Report};
use crate::log::{self, Blocking};
use crate::observe::{Observer, Progress};
use crate::spec::{Pipeline, SinkEntry};
use crate::tasks::actor::SinkHandle;

/// What a pipeline needs from its surroundings.
pub struct Env {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Draws the random part of each run.
    pub nonce: Box<dyn Fn() -> Nonce + Send + Sync>,
    /// Speaks to it.
    pub control: Control,
    /// Looks on.
    pub observer: Arc<dyn Observer>,
    /// Where blocking calls run.
    pub blocking: Blocking,
}

/// How a pipeline ended.
#[derive(Debug)]
pub struct RunReport {
    /// Why.
    pub end: End,
    /// Counters over all runs of this call.
    pub progress: Progress,
}

/// A pipeline could not be run.
#[derive(Debug)]
pub enum RunError {
    /// The log cannot be read. Nothing was changed.
    Log(StoreError),
    /// The pipeline as given makes no sense. A defect of who built it.
    Spec(String),
    /// The thread that owned the log panicked; the process must be started again.
    LogLost(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Log(error) => error.fmt(f),
            RunError::Spec(message) | RunError::LogLost(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Log(error) => Some(error),
            RunError::Spec(_) | RunError::LogLost(_) => None,
        }
    }
}

/// Runs `pipeline` on `log` until it is finished, stopped, refused, blocked or failed.
///
/// # Errors
/// The log cannot be read, or the pipeline makes no sense. Everything that happens later is told by [`RunReport::end`].
pub async fn run(pipeline: Pipeline, log: Box<dyn Log>, env: Env) -> Result<RunReport, RunError> {
    run_keeping(pipeline, log, env).await.map(|(report, _)| report)
}

/// As [`run`], and hands the log back: nobody else owns it before the caller drops it.
///
/// # Errors
/// As [`run`].
pub async fn run_keeping(
    pipeline: Pipeline,
    mut log: Box<dyn Log>,
    env: Env,
) -> Result<(RunReport, Box<dyn Log>), RunError> {
    pipeline.check()?;
    let pipeline = Arc::new(pipeline);
    let rows_read = Arc::new(AtomicU64::new(0));
    let mut progress = Progress::default();
    let mut fruitless = 0u32;
    loop {
        let records;
        (log, records) = read_all(log, env.blocking).await?;
        let (epochs_before, lessons) = (progress.epochs_sealed, pipeline.lessons());
        let (read, nonce) = (records.last().map(|record| record.slot), (env.nonce)());
        let mut end;
        (end, log) = run_once(&pipeline, log, records, nonce, &env, &mut progress, &rows_read).await?;
        if matches!(end, End::Refused(Refusal::Mismatch { .. })) {
            let overtaken;
            (log, overtaken) = overtaken_by(log, read, nonce, env.blocking).await?;
            end = overtaken.unwrap_or(end);
        }
        let End::Restart(failure) = end else {
            return Ok((RunReport { end, progress }, log));
        };
        // A run that ended because it has to go another way the next time has used up none of the tries.
        fruitless = match progress.epochs_sealed > epochs_before {
            true => 0,
            false if pipeline.lessons() > lessons => fruitless,
            false => fruitless + 1,
        };
        if fruitless > pipeline.settings.restarts {
            return Ok((RunReport { end: End::Failed(failure), progress }, log));
        }
        let runs_left = pipeline.settings.restarts.saturating_sub(fruitless).saturating_add(1);
        env.observer.notice(&Notice::GoesBack { failure: failure.clone(), runs_left });
        wait_before_restart(&pipeline, &env, &failure, fruitless).await;
    }
}

/// A destination that does not stand where the log said it should may stand where a run says that began since: then
/// nothing is wrong with it, and this run was overtaken.
async fn overtaken_by(
    log: Box<dyn Log>,
    read: Option<Slot>,
    nonce: Nonce,
    blocking: Blocking,
) -> Result<(Box<dyn Log>, Option<End>), RunError> {
    let (log, records) = read_all(log, blocking).await?;
    let newer = |record: &&Record| Some(record.slot) > read && record.run.nonce != nonce;
    let newer = records.iter().filter(newer).find(|record| matches!(record.body, Body::Open(_)));
    let end = newer
        .map(|record| End::Superseded(format!("run {} began while this one looked at the destinations", record.run)));
    Ok((log, end))
}

async fn run_once(
    pipeline: &Arc<Pipeline>,
    log: Box<dyn Log>,
    records: Vec<Record>,
    nonce: Nonce,
    env: &Env,
    progress: &mut Progress,
    rows_read: &Arc<AtomicU64>,
) -> Result<(End, Box<dyn Log>), RunError> {
    let coordinator = Coordinator::new(
        pipeline.id.clone(),
        pipeline.graph(),
        pipeline.fingerprint.clone(),
        pipeline.settings.protocol.clone(),
        records,
        nonce,
    );
    let coordinator = match coordinator {
        Ok(coordinator) => coordinator,
        Err(refusal) => return Ok((End::Refused(refusal), log)),
    };
    let (report, inbox) = Report::new(Arc::clone(rows_read));
    let (handle, keeper) = log::start(log, env.blocking, report.clone());
    let driver =
        Driver::new(Arc::clone(pipeline), env, coordinator, (report, inbox), handle, progress, Arc::clone(rows_read));
    let lost = |error| RunError::LogLost(format!("the log's thread ended badly: {error}"));
    let mut keeper = keeper;
    let end = tokio::select! {
        biased;
        end = driver.run() => end,
        // The driver holds a handle, so this comes first only when the log broke, and then nobody answers the driver.
        kept = &mut keeper => {
            return Err(kept.map_or_else(lost, |_| RunError::LogLost("the log was closed under the run".to_owned())));
        }
    };
    let log = keeper.await.map_err(lost)?;
    Ok((end, log))
}

async fn read_all(mut log: Box<dyn Log>, blocking: Blocking) -> Result<(Box<dyn Log>, Vec<Record>), RunError> {
    let read = move || {
        let records = log.read_all();
        (log, records)
    };
    let (log, records) = match blocking {
        Blocking::Inline => read(),
        Blocking::Threads => tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| RunError::LogLost(format!("reading the log ended badly: {error}")))?,
    };
    Ok((log, records.map_err(RunError::Log)?))
}

/// Doubling waits, so that nothing loops hot. A wish to stop ends the wait: the next run then stops in good order.
async fn wait_before_restart(pipeline: &Pipeline, env: &Env, failure: &TaskFailure, fruitless: u32) {
    let settings = &pipeline.settings;
    let factor = 1u32.checked_shl(fruitless.saturating_sub(1)).unwrap_or(u32::MAX);
    let wait = settings.restart_backoff.saturating_mul(factor).min(settings.restart_backoff_max);
    tracing::warn!(reason = %failure, wait_millis = wait.as_millis() as u64, "going back to the last sealed epoch");
    // In a fixed order, so that nothing that a run does hangs on chance: a simulation of it can be repeated.
    tokio::select! {
        biased;
        () = env.control.stopped() => {}
        () = tokio::time::sleep(wait) => {}
    }
}

impl SinkHandle {
    pub(crate) fn new(pipeline: &Pipeline, entry: &SinkEntry, report: Report) -> Self {
        Self {
            sink: entry.id.clone(),
            hash: SinkHash::of(&pipeline.id, &entry.id),
            plugin: Arc::clone(&entry.plugin),
            config: entry.binding.config.as_str().into(),
            call_timeout: pipeline.settings.call_timeout,
            report,
        }
    }
}

impl Pipeline {
    fn check(&self) -> Result<(), RunError> {
        let spec = |message: &str| Err(RunError::Spec(format!("pipeline `{}`: {message}", self.id)));
        if self.sources.is_empty() || self.sinks.is_empty() {
            return spec("needs at least one source and one sink");
        }
        let tasks = self.sources.iter().map(|entry| entry.tasks);
        let subtasks = self.sinks.iter().chain(&self.dead_letter).map(|entry| entry.subtasks);
        let operators = self.operators.iter().map(|entry| entry.subtasks);
        if tasks.chain(subtasks).chain(operators).any(|count| count == 0) {
            return spec("every source, operator and sink needs at least one task");
        }
        if self.settings.interval.is_zero() {
            return spec("the interval between two barriers must be longer than nothing");
        }
        let feeds = |source: &SourceId| {
            !self.operators.is_empty()
                || self.sinks.iter().any(|sink| sink.sources.as_ref().is_none_or(|wanted| wanted.contains(source)))
        };
        if let Some(entry) = self.sources.iter().find(|entry| !feeds(&entry.id)) {
            return spec(&format!("no sink takes the rows of source `{}`; they would be lost", entry.id));
        }
        if let Some(sink) = self.sinks.iter().find(|sink| {
            self.operators.is_empty()
                && sink.sources.as_ref().is_some_and(|wanted| self.sources.iter().all(|s| !wanted.contains(&s.id)))
        }) {
            return spec(&format!("no source feeds sink `{}`", sink.id));
        }
        Ok(())
    }

    /// What the coordinator needs to know, and promises are computed from.
    pub fn graph(&self) -> Graph {
        let sink = |entry: &SinkEntry, dead_letter: bool| {
            let description = entry.plugin.description();
            let spec = SinkSpec {
                participants: entry.subtasks,
                abilities: description.abilities.clone(),
                committable_versions: description.committable_versions.clone(),
                binding: entry.binding.clone(),
                dead_letter,
            };
            (entry.id.clone(), spec)
        };
        Graph {
            sources: self
                .sources
                .iter()
                .map(|entry| {
                    let contract = entry.source.contract();
                    let spec =
                        SourceSpec { tasks: entry.tasks, replayable: contract.replayable, bounded: contract.bounded };
                    (entry.id.clone(), spec)
                })
                .collect(),
            operators: self.operators.iter().map(|entry| (entry.id.clone(), entry.subtasks)).collect(),
            sinks: self
                .sinks
                .iter()
                .map(|entry| sink(entry, false))
                .chain(self.dead_letter.iter().map(|entry| sink(entry, true)))
                .collect::<BTreeMap<_, _>>(),
            wiring: self.wiring(),
        }
    }

    /// Who hands rows to whom. The dead-letter sink takes what the others reject and is not listed.
    fn wiring(&self) -> BTreeMap<Consumer, BTreeSet<Producer>> {
        let all_sources = || self.sources.iter().map(|entry| Producer::Source(entry.id.clone())).collect();
        let mut wiring = BTreeMap::new();
        let mut feeders: Option<BTreeSet<Producer>> = None;
        for entry in &self.operators {
            let from = feeders.replace(BTreeSet::from([Producer::Operator(entry.id.clone())]));
            wiring.insert(Consumer::Operator(entry.id.clone()), from.unwrap_or_else(all_sources));
        }
        for entry in &self.sinks {
            let from = match (&feeders, &entry.sources) {
                (Some(last), _) => last.clone(),
                (None, None) => all_sources(),
                (None, Some(wanted)) => wanted.iter().cloned().map(Producer::Source).collect(),
            };
            wiring.insert(Consumer::Sink(entry.id.clone()), from);
        }
        wiring
    }
}
