//! What a pipeline is made of, as the driver needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_columns::added::AddedColumn;
use tidegate_columns::decode::UnknownFields;
use tidegate_columns::files::FileOptions;
use tidegate_columns::schema::{Kept, KeptColumns};
use tidegate_columns::transform::TransformOptions;
use tidegate_columns::{ColumnsError, Schema};
use tidegate_protocol::coordinator;
use tidegate_protocol::ids::{PipelineId, SinkId, SourceId};
use tidegate_protocol::plugin::{Encoding, Plugin};
use tidegate_protocol::record::Binding;

use crate::operator::OperatorEntry;
use crate::source::{Source, SourceError};
use crate::tasks::shaper::Shaper;

/// A pipeline: sources, then operators in order, then sinks.
pub struct Pipeline {
    /// Its stable name.
    pub id: PipelineId,
    /// Fingerprint of the graph, for the seal.
    pub fingerprint: String,
    /// At least one.
    pub sources: Vec<SourceEntry>,
    /// In the order in which rows pass them.
    pub operators: Vec<OperatorEntry>,
    /// At least one.
    pub sinks: Vec<SinkEntry>,
    /// Where bad and rejected rows go; without it the first of them stops the pipeline.
    pub dead_letter: Option<SinkEntry>,
    /// Numbers.
    pub settings: Settings,
    /// Which sinks' plugins have rejected rows in prepare; starts empty, the driver remembers here from run to run.
    pub rejects_in_prepare: RejectsInPrepare,
    /// How much is under way at once; starts with what the settings say, the driver remembers here from run to run.
    pub pace: Pace,
}

/// How much is under way at once. An epoch cannot end within a batch, nor before rows that wait between two tasks: where one
/// would have too many files, the next run has smaller batches.
#[derive(Debug, Default)]
pub struct Pace(AtomicU32);

impl Pace {
    /// Each step leaves a sixteenth.
    const SHIFT: u32 = 4;
    const STEPS: u32 = 3;

    pub(crate) fn step(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Bytes instead of those in the settings.
    pub(crate) fn bytes(&self, settings: usize) -> usize {
        (settings >> (Self::SHIFT * self.step())).max(1)
    }

    /// Slows down from a step, once for all that ask; false if there is no slower one.
    pub(crate) fn slow_down(&self, from: u32) -> bool {
        let _ = self.0.compare_exchange(from, (from + 1).min(Self::STEPS), Ordering::Relaxed, Ordering::Relaxed);
        from < Self::STEPS
    }
}

impl Pipeline {
    /// How much runs of this process have learned so far about how the next one must go. There is a bounded number of such
    /// things, each learned once.
    pub(crate) fn lessons(&self) -> usize {
        self.rejects_in_prepare.known() + self.pace.step() as usize
    }
}

/// Per sink: its plugin has rejected rows in prepare before.
#[derive(Debug, Default)]
pub struct RejectsInPrepare(Mutex<BTreeMap<SinkId, Arc<AtomicBool>>>);

impl RejectsInPrepare {
    /// How many have.
    fn known(&self) -> usize {
        let flags = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flags.values().filter(|flag| flag.load(Ordering::Relaxed)).count()
    }

    pub(crate) fn of(&self, sink: &SinkId) -> Arc<AtomicBool> {
        let mut flags = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(flags.entry(sink.clone()).or_default())
    }
}

/// One source.
pub struct SourceEntry {
    /// Its stable name.
    pub id: SourceId,
    /// The source.
    pub source: Arc<dyn Source>,
    /// How many tasks read it; at least 1.
    pub tasks: u32,
    /// What it is asked to hand out.
    pub encoding: Encoding,
    /// How its rows become columns; `None`: they travel as bytes, in `encoding`.
    pub columns: Option<ColumnsOptions>,
    /// What becomes of rows that cannot be read.
    pub on_bad_row: OnBadRow,
    /// Where its rows were before, if they were taken out of dead letters.
    pub origins: Option<Arc<dyn Origins>>,
}

/// Knows where rows were before they were taken out of dead letters.
pub trait Origins: Send + Sync {
    /// The letter of the row that begins on this line of a partition. Blocking.
    fn of(&self, partition: &str, line: u64) -> Option<Origin>;
}

/// Where a row was before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// The id of its letter.
    pub letter: Option<String>,
    /// The file that the letter names.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u64>,
    /// How often the row had been tried, if that is known.
    pub attempt: Option<u64>,
}

/// How the rows of a source become columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnsOptions {
    /// The columns; `None`: those of the checkpoint, and at the first start those of a sample.
    pub declared: Option<Schema>,
    /// What a field that is not among them amounts to.
    pub unknown: UnknownFields,
}

/// The columns of a source's rows: the declared ones if they can follow those of the checkpoint, which are `kept`; those
/// of the checkpoint; those of a sample. Blocking.
///
/// # Errors
/// The declared columns do not hold every value of before, or the rows cannot be looked at.
pub fn find_schema(
    source: &dyn Source,
    options: &ColumnsOptions,
    kept: Option<&str>,
) -> Result<KeptColumns, SourceError> {
    let refused = |expected: String| SourceError::Configuration { key: "schema", expected };
    let kept = kept.map(Kept::from_text).transpose();
    let kept = kept.map_err(|error| refused(format!("the columns in the checkpoint cannot be read: {error}")))?;
    let kept = kept.and_then(Kept::into_columns);
    let schema = match (&options.declared, &kept) {
        (Some(declared), _) => declared.clone(),
        (None, Some(kept)) => return Ok(kept.clone()),
        (None, None) => {
            let schema = source.sample_schema()?;
            tracing::info!(source = source.contract().describe, %schema, "inferred the columns from a sample");
            schema
        }
    };
    KeptColumns::after(kept.as_ref(), schema).map_err(|error| refused(error.message))
}

/// What the host does with rows before a plugin gets them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SinkShape {
    /// Which rows and columns go on.
    pub transform: Option<TransformOptions>,
    /// Columns behind those, in order.
    pub added: Vec<AddedColumn>,
    /// The host writes whole files, and the plugin stores them.
    pub files: Option<FileOptions>,
}

impl SinkShape {
    /// Finds out what a sink cannot do with the rows of these sources, as a run does at its start; none of them if rows come
    /// as bytes.
    ///
    /// # Errors
    /// It names the source.
    pub fn check(&self, encoding: Encoding, route: &Route, schemas: &[(SourceId, Schema)]) -> Result<(), ColumnsError> {
        Shaper::new(self, encoding, route, 1, schemas).map(drop)
    }
}

/// What becomes of a row that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBadRow {
    /// The pipeline stops and names it.
    Stop,
    /// It goes to the dead-letter sink, with file, line and reason.
    DeadLetter,
}

/// One sink.
#[derive(Clone)]
pub struct SinkEntry {
    /// Its stable name.
    pub id: SinkId,
    /// The admitted plugin, bound to configuration and grants.
    pub plugin: Arc<dyn Plugin>,
    /// What goes into the seal.
    pub binding: Binding,
    /// How many participants write it; at least 1.
    pub subtasks: u32,
    /// How rows find their participant.
    pub route: Route,
    /// The encoding that the plugin is handed.
    pub encoding: Encoding,
    /// What the host does with rows before.
    pub shape: SinkShape,
    /// Which sources feed it; `None` = all. Ignored behind operators.
    pub sources: Option<BTreeSet<SourceId>>,
}

/// How rows find their participant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Batch by batch, in turn.
    RoundRobin,
    /// By the hash of this top-level field.
    Key(String),
}

/// Numbers that a pipeline runs by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// From one barrier to the next.
    pub interval: Duration,
    /// From a seal to the next barrier, at least.
    pub min_pause: Duration,
    /// Bytes that may wait between two tasks.
    pub channel_bytes: usize,
    /// Bytes that a source is asked for at once.
    pub batch_bytes: usize,
    /// Work waits, and nothing was sealed or committed for so long: an alarm. Zero: never.
    pub alarm_after: Duration,
    /// Wall clock for one call of a plugin, including what the host does for it.
    pub call_timeout: Duration,
    /// Bytes of rows that a participant keeps until prepare, once the plugin has shown that it rejects rows there.
    pub reject_window: usize,
    /// Runs that may end without a committed epoch, one after the other, before the pipeline gives up.
    pub restarts: u32,
    /// First wait before such a run; doubles up to `restart_backoff_max`.
    pub restart_backoff: Duration,
    /// Longest wait between two runs.
    pub restart_backoff_max: Duration,
    /// The protocol's own numbers.
    pub protocol: coordinator::Settings,
}
