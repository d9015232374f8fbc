//! The guest as the sink of a real pipeline, whose log is judged afterwards; then the same pipeline with a plugin that
//! behaves well.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_pipeline::clock::SystemClock;
use tidegate_pipeline::observe::Silent;
use tidegate_pipeline::source::files::{FilesOptions, FilesSource, Format};
use tidegate_pipeline::spec::{OnBadRow, Pipeline, Route, Settings, SinkEntry, SinkShape, SourceEntry};
use tidegate_pipeline::{Blocking, Control, Env, run};
use tidegate_protocol::coordinator;
use tidegate_protocol::event::End;
use tidegate_protocol::history::History;
use tidegate_protocol::ids::{EpochRef, Nonce, SinkId, SourceId};
use tidegate_protocol::plugin::{Encoding, Plugin};
use tidegate_protocol::record::Binding;
use tidegate_store::{LocalLog, Log, OpenOptions};

use crate::case::Ends;
use crate::kept::Kept;
use crate::spy::{Notes, Spied, lock};
use crate::stage::{Stage, pipeline_id};

const ROWS: u64 = 200;

/// Runs both, and judges the log after each.
///
/// # Errors
/// What does not hold.
pub(crate) async fn judge(stage: &Stage) -> Result<(), String> {
    let input: String = (0..ROWS).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "{{\"n\":{n}}}");
        text
    });
    std::fs::write(stage.folder().join("rows.jsonl"), input).map_err(|e| format!("rows.jsonl: {e}"))?;

    let kept = Arc::new(Kept::default());
    let notes = Arc::new(Notes::default());
    let end = once(stage, stage.bound(&kept, &stage.case.limits)?, &notes).await?;
    let history = legal(stage, &notes)?;
    let attacker = stage.tenant.name();
    if let Some(fault) = lock(&notes.faults).iter().find(|fault| fault.tenant.as_deref() != Some(attacker)) {
        return Err(format!("a fault in the pipeline names another tenant than `{attacker}`: {fault}"));
    }
    match (stage.case.pipeline, &end) {
        (Ends::Finishes, End::Finished) | (Ends::Waits, End::Blocked { .. }) => return Ok(()),
        (Ends::Finishes | Ends::Waits, end) => return Err(format!("the pipeline ended with {end:?}")),
        (Ends::ThenFinishes, End::Finished) => {
            return Err("the pipeline finished as if nobody had attacked it".to_owned());
        }
        (Ends::ThenFinishes | Ends::NotRun, _) => {}
    }
    let waiting = history.unfinished(&sink()).len();

    let end = once(stage, stage.well_behaved(&kept)?, &notes).await?;
    let history = legal(stage, &notes)?;
    if end != End::Finished {
        return Err(format!(
            "with a plugin that behaves well ({waiting} epochs waited) the pipeline ended with {end:?}"
        ));
    }
    let staged: u64 = history
        .line(history.newest_seal())
        .iter()
        .filter_map(|epoch| epoch.seal.sinks.get(&sink()))
        .flat_map(|cut| &cut.parts)
        .map(|part| part.rows)
        .sum();
    match staged == ROWS {
        true => Ok(()),
        false => Err(format!("{staged} rows were sealed instead of {ROWS}")),
    }
}

/// Nothing was committed without its seal, nothing abandoned that has one.
fn legal(stage: &Stage, notes: &Notes) -> Result<History, String> {
    let mut log = open(stage)?;
    let records = log.read_all().map_err(|e| format!("the log cannot be read: {e}"))?;
    let history = History::fold(&records).map_err(|e| format!("the log makes no sense: {e}"))?;
    let sealed =
        |part: &tidegate_protocol::ids::PartId| history.seal(EpochRef { run: part.run, epoch: part.epoch }).is_some();
    if let Some(part) = lock(&notes.committed).iter().find(|part| !sealed(part)) {
        return Err(format!("{} was committed without a seal", part.short));
    }
    if let Some(part) = lock(&notes.abandoned).iter().find(|part| sealed(part)) {
        return Err(format!("{} was abandoned after its seal", part.short));
    }
    Ok(history)
}

fn open(stage: &Stage) -> Result<LocalLog, String> {
    let options = OpenOptions { segment_bytes: 64 << 10, ..OpenOptions::default() };
    LocalLog::open(&stage.folder().join("log"), options).map_err(|e| format!("the log cannot be opened: {e}"))
}

fn sink() -> SinkId {
    SinkId::new("attacked").expect("a legal name")
}

async fn once(stage: &Stage, plugin: Arc<dyn Plugin>, notes: &Arc<Notes>) -> Result<End, String> {
    let log = Box::new(open(stage)?);
    let pipeline = pipeline(stage, Arc::new(Spied { plugin, notes: notes.clone() }))?;
    static NONCE: AtomicU64 = AtomicU64::new(1);
    let env = Env {
        clock: Arc::new(SystemClock),
        nonce: Box::new(|| {
            let mut bytes = [0; 10];
            bytes[..8].copy_from_slice(&NONCE.fetch_add(1, Ordering::Relaxed).to_be_bytes());
            Nonce(bytes)
        }),
        control: Control::default(),
        observer: Arc::new(Silent),
        blocking: Blocking::Threads,
    };
    Ok(run(pipeline, log, env).await.map_err(|e| format!("the pipeline did not start: {e}"))?.end)
}

fn pipeline(stage: &Stage, plugin: Arc<dyn Plugin>) -> Result<Pipeline, String> {
    let mut files = FilesOptions::new(stage.folder(), vec!["rows.jsonl".to_owned()], Format::JsonLines);
    files.rate = stage.case.rate;
    let source = FilesSource::new(files).map_err(|e| format!("the source: {e}"))?;
    let description = plugin.description();
    let binding = Binding {
        plugin: plugin.digest().into(),
        plugin_name: format!("{} {}", description.name, description.version),
        config: stage.config(),
        grants: "{}".into(),
    };
    let sink = SinkEntry {
        id: sink(),
        plugin,
        binding,
        subtasks: 1,
        route: Route::RoundRobin,
        encoding: Encoding::JsonLines,
        shape: SinkShape::default(),
        sources: None,
    };
    Ok(Pipeline {
        id: pipeline_id(),
        fingerprint: "hostile".into(),
        sources: vec![SourceEntry {
            origins: None,
            id: SourceId::new("rows").expect("a legal name"),
            source: Arc::new(source),
            tasks: 1,
            encoding: Encoding::JsonLines,
            columns: None,
            on_bad_row: OnBadRow::Stop,
        }],
        operators: vec![],
        sinks: vec![sink],
        dead_letter: None,
        settings: Settings {
            interval: Duration::from_millis(100),
            min_pause: Duration::ZERO,
            channel_bytes: 4096,
            batch_bytes: 1024,
            alarm_after: Duration::from_secs(60),
            call_timeout: stage.case.limits.call_time + Duration::from_secs(10),
            reject_window: 1 << 20,
            restarts: 1,
            restart_backoff: Duration::from_millis(10),
            restart_backoff_max: Duration::from_millis(20),
            protocol: coordinator::Settings {
                commit_tries: 3,
                backoff_base_ms: 10,
                backoff_max_ms: 50,
                idle_flush_ms: 100,
                mismatch: BTreeMap::new(),
                ..coordinator::Settings::default()
            },
        },
        rejects_in_prepare: Default::default(),
        pace: Default::default(),
    })
}
