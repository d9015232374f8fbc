//! Pipelines around [`crate::destination::Destination`], and ways to run them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_pipeline::Blocking;
use tidegate_pipeline::clock::ManualClock;
use tidegate_pipeline::observe::{Moment, Observer};
use tidegate_pipeline::run::{Control, Env, RunReport, run};
use tidegate_pipeline::source::Source;
use tidegate_pipeline::spec::{OnBadRow, Pipeline, Route, Settings, SinkEntry, SinkShape, SourceEntry};
use tidegate_protocol::coordinator;
use tidegate_protocol::ids::{Nonce, PipelineId, SinkId, SourceId};
use tidegate_protocol::plugin::{Encoding, Plugin};
use tidegate_protocol::record::Binding;
use tidegate_store::{Log, MemoryLog};

/// A sink's name.
pub(crate) fn sink_id(name: &str) -> SinkId {
    SinkId::new(name).expect("legal name")
}

/// A sink that takes rows in turn.
pub(crate) fn sink(name: &str, plugin: Arc<dyn Plugin>, subtasks: u32) -> SinkEntry {
    SinkEntry {
        id: sink_id(name),
        plugin,
        binding: Binding {
            plugin: "sha256:memory".into(),
            plugin_name: "memory 1".into(),
            config: "{}".into(),
            grants: "{}".into(),
        },
        subtasks,
        route: Route::RoundRobin,
        encoding: Encoding::JsonLines,
        shape: SinkShape::default(),
        sources: None,
    }
}

/// A pipeline from this source to these sinks.
pub(crate) fn pipeline(source: impl Source + 'static, tasks: u32, sinks: Vec<SinkEntry>) -> Pipeline {
    Pipeline {
        id: PipelineId::new("test").expect("legal name"),
        fingerprint: "f".into(),
        sources: vec![SourceEntry {
            origins: None,
            id: SourceId::new("lines").expect("legal name"),
            source: Arc::new(source),
            tasks,
            encoding: Encoding::JsonLines,
            columns: None,
            on_bad_row: OnBadRow::DeadLetter,
        }],
        operators: vec![],
        sinks,
        dead_letter: None,
        settings: Settings {
            interval: Duration::from_millis(100),
            min_pause: Duration::ZERO,
            channel_bytes: 4096,
            batch_bytes: 1024,
            alarm_after: Duration::from_secs(60),
            call_timeout: Duration::from_secs(10),
            reject_window: 4096,
            restarts: 3,
            restart_backoff: Duration::from_millis(10),
            restart_backoff_max: Duration::from_secs(1),
            protocol: coordinator::Settings::default(),
        },
        rejects_in_prepare: Default::default(),
        pace: Default::default(),
    }
}

/// Remembers the moments, and asks the pipeline to stop at one of them.
#[derive(Default)]
pub(crate) struct Watch {
    /// The moments so far.
    pub(crate) moments: Mutex<Vec<Moment>>,
    /// At which moment, for the how manieth time, and whom to ask.
    pub(crate) stop_at: Option<(Moment, usize, Control)>,
}

impl Observer for Watch {
    fn reached(&self, moment: Moment) {
        let mut moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.push(moment);
        if let Some((at, nth, control)) = &self.stop_at
            && *at == moment
            && moments.iter().filter(|m| **m == moment).count() == *nth
        {
            control.stop();
        }
    }
}

/// Surroundings with a clock that stands still.
pub(crate) fn env(control: Control, observer: Arc<dyn Observer>) -> Env {
    static NONCE: AtomicU64 = AtomicU64::new(1);
    Env {
        clock: Arc::new(ManualClock::new(1_000_000)),
        nonce: Box::new(|| {
            let mut bytes = [0; 10];
            bytes[..8].copy_from_slice(&NONCE.fetch_add(1, Ordering::Relaxed).to_be_bytes());
            Nonce(bytes)
        }),
        control,
        observer,
        blocking: Blocking::Inline,
    }
}

/// Runs to the end.
pub(crate) async fn run_to_end(pipeline: Pipeline, log: &MemoryLog) -> RunReport {
    let log: Box<dyn Log> = Box::new(log.clone());
    run(pipeline, log, env(Control::default(), Arc::new(Watch::default()))).await.expect("the log is readable")
}

/// Runs until the `nth` time that `moment` is reached, then stops in good order.
pub(crate) async fn run_and_stop(pipeline: Pipeline, log: &MemoryLog, moment: Moment, nth: usize) -> RunReport {
    let control = Control::default();
    let watch = Watch { moments: Mutex::default(), stop_at: Some((moment, nth, control.clone())) };
    let log: Box<dyn Log> = Box::new(log.clone());
    run(pipeline, log, env(control, Arc::new(watch))).await.expect("the log is readable")
}
