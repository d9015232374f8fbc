//! Looking into a pipeline's state without changing it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use tidegate_columns::schema::Kept;
use tidegate_protocol::history::{CheckpointState, History, Holder, SealedEpoch, SinkEpochState};
use tidegate_protocol::ids::{EpochRef, PipelineId, SinkId, SourceId};
use tidegate_protocol::record::{CutReason, Record, SourceCut, StateRef};
use tidegate_store::state::load_positions;
use tidegate_store::{LocalLog, Log, OpenOptions, StoreError};

use crate::config::PipelineFile;
use crate::error::ServerError;
use crate::graph;

/// The records of a pipeline and what they mean, as they were when they were read.
pub struct State {
    /// All retained records.
    pub records: Vec<Record>,
    /// Their meaning.
    pub history: History,
    dir: PathBuf,
}

impl State {
    /// Reads the state of a pipeline without taking its lock; the pipeline may be running. `None` if it has none yet.
    ///
    /// # Errors
    /// The log cannot be read, contradicts itself, or belongs to another pipeline.
    pub fn read(file: &PipelineFile) -> Result<Option<State>, ServerError> {
        let mut log = match LocalLog::open_read_only(&file.pipeline.state) {
            Ok(log) => log,
            Err(StoreError::NoLog { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let records = match log.read_all() {
            Ok(records) => records,
            Err(StoreError::NoLog { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Self::of(records, &file.pipeline.name, &file.pipeline.state).map(Some)
    }

    /// From records that were read already.
    pub(crate) fn of(records: Vec<Record>, pipeline: &PipelineId, dir: &Path) -> Result<State, ServerError> {
        let history = History::fold(&records)?;
        match history.pipeline() {
            Some(found) if found != pipeline => Err(ServerError::Store(StoreError::ForeignPipeline {
                dir: dir.to_owned(),
                found: found.clone(),
                expected: pipeline.clone(),
            })),
            _ => Ok(State { records, history, dir: dir.to_owned() }),
        }
    }

    /// The checkpoint that a person names: a savepoint, an epoch's number, or a number with its run, as `7@3`.
    ///
    /// # Errors
    /// There is none; says which there are.
    pub fn find(&self, name: &str) -> Result<EpochRef, ServerError> {
        if let Some(of) = self.history.savepoints().get(name) {
            return Ok(*of);
        }
        let (epoch, run) = match name.split_once('@') {
            Some((epoch, run)) => (epoch, Some(run)),
            None => (name, None),
        };
        let matching: Vec<_> = self
            .history
            .checkpoints()
            .map(|sealed| sealed.of)
            .filter(|of| epoch.parse() == Ok(of.epoch.0))
            .filter(|of| run.is_none_or(|run| run == of.run.to_string() || run.parse() == Ok(of.run.number)))
            .collect();
        // Several branches may hold the number: the newest line is meant.
        let on_line = |of: &&EpochRef| self.history.newest_seal().is_some_and(|tip| self.history.descends(tip, **of));
        if let Some(of) = matching.iter().find(on_line).or(matching.last()) {
            return Ok(*of);
        }
        let first = self.history.checkpoints().next().map(|sealed| sealed.of.epoch);
        let last = self.history.checkpoints().next_back().map(|sealed| sealed.of.epoch);
        let mut hints = match (first, last) {
            (Some(first), Some(last)) => vec![format!("kept are epochs from {first} to {last}")],
            _ => vec!["there is no checkpoint yet".to_owned()],
        };
        if !self.history.savepoints().is_empty() {
            let names: Vec<_> = self.history.savepoints().keys().cloned().collect();
            hints.push(format!("savepoints are: {}", names.join(", ")));
        }
        Err(ServerError::Request { problem: format!("there is no checkpoint `{name}`"), hints })
    }

    /// Sealed epochs without an end, of every sink that has some.
    pub(crate) fn unfinished(&self) -> BTreeMap<SinkId, Vec<u64>> {
        let unfinished = self.history.sinks().into_iter().map(|sink| {
            let epochs = self.history.unfinished(&sink).iter().map(|of| of.epoch.0).collect();
            (sink, epochs)
        });
        unfinished.filter(|(_, epochs): &(_, Vec<u64>)| !epochs.is_empty()).collect()
    }

    /// All checkpoints, oldest first.
    pub fn checkpoints(&self) -> Vec<CheckpointSummary> {
        self.history.checkpoints().map(|sealed| self.summary(sealed)).collect()
    }

    /// One checkpoint in full. Positions that lie beside the log are read for this.
    ///
    /// # Errors
    /// It is not there any more, or its positions cannot be read.
    pub fn checkpoint(&self, of: EpochRef) -> Result<CheckpointDetail, ServerError> {
        let sealed = self
            .history
            .seal(of)
            .ok_or_else(|| ServerError::Request { problem: format!("{of} is not kept any more"), hints: vec![] })?;
        let mut sources = BTreeMap::new();
        for (id, cut) in &sealed.seal.sources {
            sources.insert(id.clone(), self.source_view(cut, sealed.checkpoint)?);
        }
        Ok(CheckpointDetail {
            summary: self.summary(sealed),
            reason: reason(&sealed.seal.reason),
            graph: graph::digest(&sealed.seal.graph).to_owned(),
            sources,
            operators: sealed.seal.operators.iter().map(|(id, cuts)| (id.to_string(), operator_views(cuts))).collect(),
            sinks: sealed.seal.sinks.iter().map(|(id, cut)| (id.clone(), sink_view(cut))).collect(),
        })
    }

    fn source_view(&self, cut: &SourceCut, checkpoint: CheckpointState) -> Result<SourceView, ServerError> {
        let mut view = SourceView {
            partitions: BTreeMap::new(),
            positions_gone: false,
            ended: cut.ended,
            schema: None,
            only_null: Vec::new(),
            names: Vec::new(),
            watermark: cut.watermark,
            rows: cut.rows,
            dead_lettered: cut.dead_lettered,
        };
        match cut.schema.as_deref().map(Kept::from_text) {
            Some(Ok(Kept::Columns(columns))) => {
                view.schema = Some(columns.schema().to_text());
                view.only_null = columns.unset_columns();
            }
            Some(Ok(Kept::Names(names))) => view.names = names,
            // Shown as it is: a run says what is wrong with it.
            Some(Err(_)) => view.schema.clone_from(&cut.schema),
            None => {}
        }
        if cut.partitions.missing().next().is_some() {
            let mut log = LocalLog::open_read_only(&self.dir)?;
            match load_positions(&mut log, &cut.partitions) {
                // What only a retired checkpoint names is deleted before its record is.
                Err(StoreError::MissingFile { .. }) if checkpoint == CheckpointState::Retired => {
                    view.positions_gone = true;
                    return Ok(view);
                }
                loaded => loaded?,
            }
        }
        let entries = cut
            .partitions
            .entries()
            .map_err(|error| ServerError::Request { problem: error.to_string(), hints: vec![] })?;
        view.partitions = entries.iter().map(|(name, position)| (name.to_owned(), json_or_text(position))).collect();
        Ok(view)
    }

    fn summary(&self, sealed: &SealedEpoch) -> CheckpointSummary {
        let of = sealed.of;
        let savepoints = self.history.savepoints().iter().filter(|(_, savepoint)| **savepoint == of);
        CheckpointSummary {
            epoch: of.epoch.0,
            run: of.run.to_string(),
            slot: sealed.slot.0,
            sealed_at: sealed.sealed_at,
            rows: sealed.seal.sources.values().map(|cut| cut.rows).sum(),
            dead_lettered: sealed.seal.sources.values().map(|cut| cut.dead_lettered).sum(),
            state: match sealed.checkpoint {
                CheckpointState::Retained => "retained",
                CheckpointState::Retired => "retired",
            },
            on_newest_line: self.history.newest_seal().is_some_and(|tip| self.history.descends(tip, of)),
            savepoints: savepoints.map(|(name, _)| name.clone()).collect(),
            sinks: sealed.sinks.iter().map(|(id, state)| (id.clone(), OutcomeView::of(state))).collect(),
        }
    }

    /// What exists at the destinations, and who still needs it.
    pub fn ledger(&self) -> Vec<ResourceView> {
        let entries = self.history.ledger().iter();
        entries
            .map(|(key, entry)| ResourceView {
                sink: key.sink.clone(),
                kind: key.kind.clone(),
                name: key.name.clone(),
                expires_at: entry.external.expires_at,
                since: entry.since(),
                holders: entry.holders.keys().map(holder).collect(),
            })
            .collect()
    }
}

/// A row of `checkpoint list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CheckpointSummary {
    /// The epoch's number.
    pub epoch: u64,
    /// The run that sealed it.
    pub run: String,
    /// Its record in the log.
    pub slot: u64,
    /// Unix milliseconds.
    pub sealed_at: u64,
    /// Rows that the sources handed on.
    pub rows: u64,
    /// Rows that could not be read.
    pub dead_lettered: u64,
    /// `retained` or `retired`.
    pub state: &'static str,
    /// The next run descends from it, or from an epoch behind it.
    pub on_newest_line: bool,
    /// Savepoints that name it.
    pub savepoints: Vec<String>,
    /// What became of it, per sink.
    pub sinks: BTreeMap<SinkId, OutcomeView>,
}

/// What became of an epoch at a sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct OutcomeView {
    /// `sent`, `committed`, `in-doubt`, `blocked`, `given-up` or `forked-off`.
    pub state: &'static str,
    /// The newest attempt; 0 once it has ended.
    pub attempt: u32,
    /// Why, or by which decision.
    pub reason: Option<String>,
}

impl OutcomeView {
    fn of(state: &SinkEpochState) -> Self {
        let (word, reason) = match state {
            SinkEpochState::Sent(_) => ("sent", None),
            SinkEpochState::Committed => ("committed", None),
            SinkEpochState::InDoubt(_, why) => ("in-doubt", Some(why.clone())),
            SinkEpochState::Blocked(_, why) => ("blocked", Some(crate::refusal::blocked_words(why))),
            SinkEpochState::GivenUp(by) => ("given-up", Some(format!("by decision {by}"))),
            SinkEpochState::ForkedOff(by) => ("forked-off", Some(format!("by decision {by}"))),
        };
        Self { state: word, attempt: state.attempt(), reason }
    }
}

/// What `checkpoint show` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CheckpointDetail {
    /// As in the list.
    #[serde(flatten)]
    pub summary: CheckpointSummary,
    /// Why it was cut.
    pub reason: String,
    /// Digest of the graph.
    pub graph: String,
    /// Where the sources stand.
    pub sources: BTreeMap<SourceId, SourceView>,
    /// State of the operators.
    pub operators: BTreeMap<String, Vec<OperatorView>>,
    /// What the sinks prepared.
    #[serde(rename = "parts")]
    pub sinks: BTreeMap<SinkId, SinkView>,
}

/// Where a source stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SourceView {
    /// Position per partition.
    pub partitions: BTreeMap<String, Value>,
    /// The checkpoint is retired, and its positions are deleted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub positions_gone: bool,
    /// Everything is read.
    pub ended: bool,
    /// The columns of its rows, where they are typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Those of them that never had a value, and may be declared anew with any type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub only_null: Vec<String>,
    /// The columns of its rows, where these are untyped and do not tell them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Low watermark.
    pub watermark: Option<i64>,
    /// Rows of this epoch.
    pub rows: u64,
    /// Rows of this epoch that could not be read.
    pub dead_lettered: u64,
}

/// State of one subtask of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct OperatorView {
    /// First key that it owns.
    pub first_key: u32,
    /// Last key that it owns.
    pub last_key: u32,
    /// Bytes of state.
    pub state_bytes: u64,
    /// Pieces beside the log.
    pub state_chunks: usize,
    /// Waiting timers.
    pub timers: usize,
}

/// What one sink prepared.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SinkView {
    /// Digest of the plugin.
    pub plugin: String,
    /// Its name and version.
    pub plugin_name: String,
    /// Its configuration.
    pub config: Value,
    /// Its grants.
    pub grants: Value,
    /// One entry per participant.
    pub parts: Vec<PartView>,
}

/// One participant's part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PartView {
    /// Which participant.
    pub ordinal: u32,
    /// Name of the part; `None` if it had no rows.
    pub part: Option<String>,
    /// Rows that become visible with it.
    pub rows: u64,
    /// Rows that were handed to it.
    pub rows_in: u64,
    /// Rows that became dead letters.
    pub rejected: u64,
    /// Rows that the pipeline's own filter left out.
    pub filtered: u64,
    /// Version of the committable.
    pub version: Option<u32>,
    /// Bytes of the committable.
    pub committable_bytes: usize,
    /// What exists outside for it, as kind and name.
    pub resources: Vec<String>,
}

/// A row of `ledger`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ResourceView {
    /// At which sink.
    pub sink: SinkId,
    /// The plugin's word for it.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Unix milliseconds after which the destination may drop it.
    pub expires_at: Option<u64>,
    /// Unix milliseconds of the oldest record that still names it; `None` if none does.
    pub since: Option<u64>,
    /// Who needs it. Empty: it will be released.
    pub holders: Vec<String>,
}

/// What `checkpoint verify` found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Verified {
    /// Records read.
    pub records: usize,
    /// Runs.
    pub runs: usize,
    /// Checkpoints.
    pub checkpoints: usize,
    /// Pieces of state read and compared with their names.
    pub state_chunks: usize,
    /// Epochs without an end, per sink.
    pub unfinished: BTreeMap<SinkId, Vec<u64>>,
}

/// How long a lock is waited for that no running pipeline holds: another command needs it for a moment.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at such a lock.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Takes the log's lock, and with it the right to change the log. Waits a moment for another command.
///
/// # Errors
/// Somebody else has it, the log cannot be read or belongs to another pipeline, or the pipeline was moved away.
pub(crate) fn open_log(file: &PipelineFile) -> Result<LocalLog, ServerError> {
    let log = lock_log(file)?;
    crate::moved::refuse(&file.pipeline.state)?;
    Ok(log)
}

/// As [`open_log`], without waiting.
pub(crate) fn try_open_log(file: &PipelineFile) -> Result<LocalLog, ServerError> {
    let log = try_lock_log(file)?;
    crate::moved::refuse(&file.pipeline.state)?;
    Ok(log)
}

/// As [`open_log`], also of a pipeline that was moved away.
pub(crate) fn lock_log(file: &PipelineFile) -> Result<LocalLog, ServerError> {
    let deadline = Instant::now() + LOCK_PATIENCE;
    loop {
        match try_lock_log(file) {
            // A pipeline that listens runs on, and nobody waits for that.
            Err(ServerError::Store(StoreError::Locked { .. }))
                if Instant::now() < deadline && !crate::control::listens(&file.pipeline.state) => {}
            done => return done,
        }
        #[expect(clippy::disallowed_methods, reason = "a command that waits for another process has no runtime")]
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn try_lock_log(file: &PipelineFile) -> Result<LocalLog, ServerError> {
    let options = OpenOptions { pipeline: Some(file.pipeline.name.clone()), ..OpenOptions::default() };
    Ok(LocalLog::open(&file.pipeline.state, options)?)
}

/// Reads everything that the pipeline's state holds and checks it. `None` if there is none yet.
///
/// # Errors
/// The first thing that is damaged, with file and place.
pub fn verify(file: &PipelineFile) -> Result<Option<Verified>, ServerError> {
    let Some(state) = State::read(file)? else { return Ok(None) };
    let chunks = state.history.state_chunks();
    let mut log = LocalLog::open_read_only(&file.pipeline.state)?;
    for chunk in &chunks {
        log.read_state(chunk)?;
    }
    Ok(Some(Verified {
        records: state.records.len(),
        runs: state.history.runs().len(),
        checkpoints: state.history.checkpoints().count(),
        state_chunks: chunks.len(),
        unfinished: state.unfinished(),
    }))
}

fn reason(reason: &CutReason) -> String {
    match reason {
        CutReason::Interval => "interval".to_owned(),
        CutReason::End => "end of input".to_owned(),
        CutReason::Stop => "stop".to_owned(),
        CutReason::Savepoint(name) => format!("savepoint {name}"),
    }
}

fn holder(holder: &Holder) -> String {
    match holder {
        Holder::Checkpoint(of) => format!("checkpoint {}", of.epoch),
        Holder::Commit(of) => format!("commit of epoch {}", of.epoch),
        Holder::Savepoint(name) => format!("savepoint {name}"),
        Holder::Intent(number) => format!("intent {number}"),
    }
}

/// JSON where it is JSON, else the text.
fn json_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

fn operator_views(cuts: &[tidegate_protocol::record::OperatorCut]) -> Vec<OperatorView> {
    let view = |cut: &tidegate_protocol::record::OperatorCut| {
        let (state_bytes, state_chunks) = match &cut.state {
            StateRef::Inline(bytes) => (bytes.len() as u64, 0),
            StateRef::Chunks(chunks) => (chunks.iter().map(|chunk| chunk.bytes).sum(), chunks.len()),
        };
        OperatorView {
            first_key: cut.range.first,
            last_key: cut.range.last,
            state_bytes,
            state_chunks,
            timers: cut.timers.len(),
        }
    };
    cuts.iter().map(view).collect()
}

fn sink_view(cut: &tidegate_protocol::record::SinkCut) -> SinkView {
    let part = |part: &tidegate_protocol::record::PartCut| PartView {
        ordinal: part.ordinal,
        part: part.committable.as_ref().map(|committable| committable.part.short.clone()),
        rows: part.committable.as_ref().map_or(0, |committable| committable.rows),
        rows_in: part.rows_in,
        rejected: part.rejected,
        filtered: part.filtered,
        version: part.committable.as_ref().map(|committable| committable.version),
        committable_bytes: part.committable.as_ref().map_or(0, |committable| committable.body.len()),
        resources: part.resources.iter().map(|resource| format!("{} {}", resource.kind, resource.name)).collect(),
    };
    SinkView {
        plugin: cut.binding.plugin.clone(),
        plugin_name: cut.binding.plugin_name.clone(),
        config: json_or_text(&cut.binding.config),
        grants: json_or_text(&cut.binding.grants),
        parts: cut.parts.iter().map(part).collect(),
    }
}
