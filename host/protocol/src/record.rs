//! The records of a pipeline's log. What they mean is decided by [`crate::history`]; how they are written, by
//! `tidegate-store`.
//!
//! A record never changes its meaning. New fields are optional with a default; anything else is a new
//! [`FORMAT_VERSION`], and old versions stay readable.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, EpochRef, KeyRange, OperatorId, PipelineId, RunId, SinkId, Slot, SourceId};
use crate::plugin::{Committable, External, PluginError, Position, WriterState};
use crate::positions::Positions;

/// Newest version of the record format that this crate reads and writes. 2: a seal may name pages of positions.
pub const FORMAT_VERSION: u16 = 2;

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Record {
    /// Where it stands.
    pub slot: Slot,
    /// The run that created it.
    pub run: RunId,
    /// Unix milliseconds by the writer's clock. For people; no decision hangs on it but retention by age, and whether a
    /// destination may have forgotten a commit, which asks a person.
    pub written_at: u64,
    /// Outcomes that rode along, oldest first.
    #[serde(default)]
    pub outcomes: Vec<OutcomeEntry>,
    /// What it says.
    pub body: Body,
}

impl Record {
    /// The oldest version of the format that can hold it; it is written in that one.
    pub fn format_version(&self) -> u16 {
        match &self.body {
            Body::Seal(seal) if seal.sources.values().any(|cut| cut.partitions.pages().next().is_some()) => 2,
            _ => 1,
        }
    }
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Body {
    /// A run begins. Never deleted.
    Open(Open),
    /// Something is about to be created outside.
    Intent(Intent),
    /// It now exists.
    Bound(Bound),
    /// An epoch is decided: commit. Also attempt 1 of the commit of every sink.
    Seal(Box<Seal>),
    /// Nothing but outcomes.
    Outcomes,
    /// A person, or a policy named by a person, decided.
    Decision(Decision),
    /// An existing checkpoint becomes a savepoint.
    Savepoint(Savepoint),
    /// A savepoint is given up.
    Forget(Forget),
    /// These checkpoints will never be restored again; their resources may be released.
    Retire(Retire),
    /// These resources are gone.
    Released(Released),
    /// The bounded input ended and everything is committed.
    Finished(Finished),
    /// These records may be missing from the log from here on. Retired and released before.
    Deleted(Deleted),
}

/// A run begins.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Open {
    /// Which pipeline this log belongs to.
    pub pipeline: PipelineId,
    /// The run it descends from and the last epoch of it that counts. `None` for a first run.
    pub parent: Option<EpochRef>,
    /// Where each sink's destination stood when the run was decided; absent for sinks that cannot be observed.
    pub observed: BTreeMap<SinkId, Position>,
    /// The policy under which a mismatch was accepted, by the id of its decision.
    #[serde(default)]
    pub under: Vec<String>,
    /// Version of the product.
    pub product: String,
}

/// Something is about to be created outside.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Intent {
    /// Rising within the log.
    pub number: u64,
    /// For which sink.
    pub sink: SinkId,
    /// For which part, if one had begun (its short name).
    pub part: Option<String>,
    /// The epoch being written.
    pub epoch: Epoch,
    /// What.
    pub resource: External,
}

/// An announced thing now exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bound {
    /// The intent's number.
    pub number: u64,
    /// Its name at the destination.
    pub name: String,
}

/// An epoch's decision, and the checkpoint that covers it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Seal {
    /// The epoch.
    pub epoch: Epoch,
    /// Why it was cut.
    pub reason: CutReason,
    /// Fingerprint of the graph: ids of sources, operators, sinks, plugin digests, configuration without secrets.
    pub graph: String,
    /// Where every source stands.
    pub sources: BTreeMap<SourceId, SourceCut>,
    /// State of every operator.
    #[serde(default)]
    pub operators: BTreeMap<OperatorId, Vec<OperatorCut>>,
    /// What every sink has prepared.
    pub sinks: BTreeMap<SinkId, SinkCut>,
}

impl Seal {
    /// Everything beside the log that it names.
    pub fn state_chunks(&self) -> impl Iterator<Item = &StateChunk> {
        let states = self.operators.values().flatten().flat_map(|cut| match &cut.state {
            StateRef::Chunks(chunks) => chunks.as_slice(),
            StateRef::Inline(_) => &[],
        });
        states.chain(self.sources.values().flat_map(|cut| cut.partitions.chunks()))
    }
}

/// Why an epoch was cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CutReason {
    /// The interval passed.
    Interval,
    /// All bounded sources ended.
    End,
    /// The run was asked to stop.
    Stop,
    /// A savepoint of this name was asked for.
    Savepoint(String),
}

/// Where one source stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceCut {
    /// Position per partition; the text belongs to the source (JSON).
    pub partitions: Positions,
    /// All partitions are at their end and no further ones will come in this run.
    pub ended: bool,
    /// Low watermark in Unix milliseconds of event time, if known.
    pub watermark: Option<i64>,
    /// Rows of this epoch handed on.
    pub rows: u64,
    /// Rows of this epoch that could not be read and went to the dead-letter sink.
    pub dead_lettered: u64,
    /// The schema of its rows, where they have one; the text belongs to the source. The same one counts after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
}

/// State of one subtask of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OperatorCut {
    /// The keys it owns.
    pub range: KeyRange,
    /// The operator's own version of its state.
    pub version: u32,
    /// The state.
    pub state: StateRef,
    /// Timers: Unix milliseconds of event time and the operator's own key.
    pub timers: Vec<(i64, Bytes)>,
    /// Watermark that it has seen.
    pub watermark: Option<i64>,
    /// Rows of this epoch taken in.
    pub rows_in: u64,
    /// Rows of this epoch handed on.
    pub rows_out: u64,
}

/// State, in the record or beside the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateRef {
    /// Small: here.
    Inline(Bytes),
    /// Large: chunks beside the log, named by their SHA-256 in hex, in order. Unchanged chunks keep their names.
    Chunks(Vec<StateChunk>),
}

/// A piece of large state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StateChunk {
    /// SHA-256 of its content, in hex.
    pub sha256: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What one sink prepared for an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SinkCut {
    /// Digest of the plugin, its configuration without secrets and its grants, as they count for this epoch.
    pub binding: Binding,
    /// One entry per participant, covering the key space.
    pub parts: Vec<PartCut>,
}

impl SinkCut {
    /// What its writers know of these keys, each key once: of a part counts what it keeps for keys that it owned. State
    /// that several parts keep since a rescale, of a writer that they all came from, is put together again.
    pub fn writer_states(&self, range: KeyRange) -> Vec<WriterState> {
        let mut states: Vec<WriterState> = Vec::new();
        for (part, owned) in self.parts.iter().filter_map(|part| Some((part, part.range.shared(range)?))) {
            for state in &part.state {
                let Some(range) = state.range.shared(owned) else { continue };
                let known = |seen: &WriterState| seen.version == state.version && seen.body == state.body;
                if states.iter().any(|seen| known(seen) && seen.range.shared(range) == Some(range)) {
                    continue;
                }
                let before = |seen: &&mut WriterState| seen.range.last.checked_add(1) == Some(range.first);
                match states.iter_mut().filter(|seen| known(seen)).find(before) {
                    Some(seen) => seen.range.last = range.last,
                    None => states.push(WriterState { range, ..state.clone() }),
                }
            }
        }
        states
    }
}

/// What a sink was bound to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// `sha256:<hex>` of the component.
    pub plugin: String,
    /// Its name and version, for people.
    pub plugin_name: String,
    /// The plugin's configuration as JSON, secrets by reference.
    pub config: String,
    /// The grants as JSON.
    pub grants: String,
}

/// One participant's share of a [`SinkCut`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartCut {
    /// Which participant.
    pub ordinal: u32,
    /// The keys it owned.
    pub range: KeyRange,
    /// `None`: it had no rows, the plugin was not called.
    pub committable: Option<Committable>,
    /// All that exists outside for it.
    #[serde(default)]
    pub resources: Vec<External>,
    /// The writer's state; for a part without rows the old one.
    #[serde(default)]
    pub state: Vec<WriterState>,
    /// Rows handed to it in this epoch.
    pub rows_in: u64,
    /// Rows it staged.
    pub rows: u64,
    /// Rows it rejected, all of them in the dead-letter sink of this epoch.
    pub rejected: u64,
    /// Rows that the pipeline's own filter left out, as its file says.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub filtered: u64,
}

/// Nothing is written for it, so that records without it stay as they were.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What is known of one epoch at one sink.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OutcomeEntry {
    /// Which sink.
    pub sink: SinkId,
    /// Which epoch of which run.
    pub of: EpochRef,
    /// The attempt it speaks of.
    pub attempt: u32,
    /// What.
    pub outcome: EpochOutcome,
}

/// Commit state of (epoch, sink) as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EpochOutcome {
    /// All parts are committed.
    Committed,
    /// Sent, outcome not known; why.
    InDoubt(String),
    /// Waits for a person; why.
    Blocked(Blocked),
}

/// Why an epoch waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blocked {
    /// The destination refuses it for good.
    Rejected(PluginError),
    /// It can no longer be committed by anyone.
    Never,
    /// So many tries did not settle it; the last message.
    TriesSpent(String),
    /// It can neither be repeated nor asked about.
    CannotAsk(String),
}

/// A recorded decision. The same id seen again does nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decision {
    /// Unique within the log; chosen by who asks, or minted for them.
    pub id: String,
    /// Who decided, in their own words.
    pub by: String,
    /// What.
    pub choice: Choice,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// A blocked epoch is sent again.
    Retry {
        /// At which sink.
        sink: SinkId,
        /// Which epoch.
        of: EpochRef,
    },
    /// A blocked epoch's rows are given up at this sink.
    GiveUp {
        /// At which sink.
        sink: SinkId,
        /// Which epoch.
        of: EpochRef,
    },
    /// The next run descends from `from` instead of the newest epoch.
    Fork {
        /// The checkpoint to go back to.
        from: EpochRef,
        /// What may happen at destinations that are ahead of it.
        policy: MismatchPolicy,
    },
    /// A mismatch between log and destination is accepted.
    Accept {
        /// At which sink.
        sink: SinkId,
        /// How.
        policy: MismatchPolicy,
    },
}

/// Named ways to go on when a destination is not where the log says it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MismatchPolicy {
    /// Destination ahead or foreign: go on behind what is there. Rows that are there already may come again.
    AcceptDuplicates,
    /// Destination behind: go on from the log's position. Rows that the destination lost are not sent again.
    AcceptLoss,
    /// Destination behind, at an epoch whose checkpoint is retained: go back to it and send again.
    ReplayFromDestination,
}

/// An existing checkpoint becomes a savepoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Savepoint {
    /// Its name.
    pub name: String,
    /// The checkpoint.
    pub of: EpochRef,
}

/// A savepoint is given up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Forget {
    /// Its name.
    pub name: String,
}

/// Checkpoints that will never be restored again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retire {
    /// Which.
    pub of: Vec<EpochRef>,
}

/// Resources that are gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Released {
    /// At which sink.
    pub sink: SinkId,
    /// Which.
    pub resources: Vec<External>,
}

/// The bounded input ended and everything is committed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Finished {
    /// The last epoch.
    pub last: EpochRef,
}

/// Records that may be missing. Each such record restates the ones before it, so that only the newest counts; a record
/// in these slots that is still there is waiting to be deleted, and is read as if it were gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deleted {
    /// Slots, ascending and apart from each other. Never of an `open` record or a decision.
    pub gone: Vec<SlotRange>,
}

/// An inclusive range of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SlotRange {
    /// The first.
    pub first: Slot,
    /// The last.
    pub last: Slot,
}

impl SlotRange {
    /// Whether it holds `slot`.
    pub fn contains(self, slot: Slot) -> bool {
        self.first <= slot && slot <= self.last
    }
}
