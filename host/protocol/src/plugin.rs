//! What the protocol requires from a destination: the plugin trait and the words of its calls.
//!
//! `tidegate-wasm` implements [`Plugin`] with sandboxed components, the simulator with plain Rust. Nothing here does
//! IO; the traits return boxed futures so that this crate depends on no runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use crate::fault::{Blame, CallFault, FaultKind};
use crate::ids::{Epoch, KeyRange, PartId, RunId, SinkHash, SinkId};

/// A future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Who calls, on whose behalf. Part of every call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallContext {
    /// The sink's stable name.
    pub sink: SinkId,
    /// What its short names contain.
    pub sink_hash: SinkHash,
    /// The run on whose behalf the call is made.
    pub run: RunId,
    /// The configuration that counts for this call (for commits: the one in the seal), as a JSON object without
    /// secrets.
    pub config: Arc<str>,
    /// How often this call has been made for this subject, from 1.
    pub attempt: u32,
}

/// How rows are laid out in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encoding {
    /// Opaque records, each followed by a newline.
    Raw,
    /// One JSON value per line.
    JsonLines,
    /// RFC 4180 without a header.
    Csv,
    /// An Arrow IPC stream.
    ArrowStream,
    /// Pieces of whole files that the host writes: see [`FileChunk`].
    Files,
}

impl Encoding {
    /// Its name in the interface and in pipeline files.
    pub fn as_str(self) -> &'static str {
        match self {
            Encoding::Raw => "raw",
            Encoding::JsonLines => "json-lines",
            Encoding::Csv => "csv",
            Encoding::ArrowStream => "arrow-stream",
            Encoding::Files => "files",
        }
    }

    /// The names of several, for messages.
    pub fn names(encodings: &[Encoding]) -> String {
        encodings.iter().map(|encoding| encoding.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Rows on their way to a destination. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The encoded rows. For line encodings every row ends with a newline.
    pub bytes: Bytes,
    /// How many rows.
    pub rows: u64,
    /// Their encoding.
    pub encoding: Encoding,
    /// Which schema they have; 0 for encodings without one.
    pub schema: u32,
    /// Which piece of which file they are; only with [`Encoding::Files`].
    pub file: Option<FileChunk>,
}

impl Batch {
    /// Rows of an encoding without schemas and files.
    pub fn new(bytes: Bytes, rows: u64, encoding: Encoding) -> Self {
        Self { bytes, rows, encoding, schema: 0, file: None }
    }
}

/// A piece of one of the files that the host writes for a part. Pieces of several files may alternate; those of one file
/// come in order. The rows of all pieces of a part are the rows of the part; a piece that only ends a file has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileChunk {
    /// The file's number within the part, from 0.
    pub number: u32,
    /// The folder it belongs in, such as `carrier=UA/day=3`; empty for none. Segments are separated by `/`, none is
    /// empty, `.` or `..`, begins with `_` or holds a control character.
    pub folder: Arc<str>,
    /// What its name ends in, without the dot: `parquet`, `jsonl.gz`.
    pub extension: Arc<str>,
    /// Nothing follows for this file.
    pub last: bool,
}

/// Bytes with which any fresh instance, given the configuration in the seal, can finish or give back a part.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Committable {
    /// The part it finishes.
    pub part: PartId,
    /// The plugin's own version of `body`.
    pub version: u32,
    /// Opaque to the host.
    pub body: Bytes,
    /// Rows it will make visible.
    pub rows: u64,
    /// Unix milliseconds after which the destination may have dropped it.
    pub expires_at: Option<u64>,
}

/// Something outside that outlives a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct External {
    /// The plugin's word for its kind.
    pub kind: String,
    /// Its name at the destination, never reused.
    pub name: String,
    /// Unix milliseconds after which the destination may drop it by itself.
    pub expires_at: Option<u64>,
}

/// What a writer wants to know again after a restore. Knowledge, not a handle.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WriterState {
    /// The keys it speaks of.
    pub range: KeyRange,
    /// The plugin's own version of `body`.
    pub version: u32,
    /// Opaque to the host.
    pub body: Bytes,
}

/// A row that the destination will not take.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reject {
    /// Counts from 0 within the batch (`write`) or within the part (`prepare`).
    pub row: u64,
    /// The plugin's code.
    pub code: String,
    /// For a person.
    pub message: String,
}

/// The one reply to prepare.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prepared {
    /// Finishes the part.
    pub committable: Committable,
    /// All that exists outside on behalf of the part.
    pub resources: Vec<External>,
    /// State of the writer, if it has any.
    pub state: Option<WriterState>,
    /// Rows staged: rows written less rows rejected.
    pub rows: u64,
    /// Rows that turned out not to fit.
    pub rejects: Vec<Reject>,
}

/// Where a destination stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Position {
    /// The newest run that fenced the destination or wrote to it.
    pub fence: Option<RunId>,
    /// The newest committed part of each participant; one entry if commits are atomic for the whole sink.
    pub last: Vec<PartId>,
    /// Opaque; handed back in `fence`.
    pub token: Bytes,
}

/// What became of one committable, part or resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Done by this call.
    Committed,
    /// Done before, by exactly this id.
    AlreadyCommitted,
    /// A snapshot; permits only the same commit again.
    NotCommitted,
    /// Nobody can commit it any more.
    Never,
    /// Again, not sooner than so many milliseconds.
    Retry(Option<u64>),
    /// A newer run owns the destination.
    Fenced,
    /// The plugin does not do that.
    Unsupported,
    /// Not known.
    Unknown,
    /// The destination refuses for good.
    Rejected(PluginError),
}

/// Closed list of what an error means for the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The same call may work later.
    Retryable,
    /// The same call will never work.
    Permanent,
    /// The configuration is wrong; the message names the key.
    BadConfig,
    /// One row of the batch is wrong and it is not known which.
    BadBatch,
    /// The instance can no longer finish its epoch.
    EpochLost,
    /// A newer run owns the destination.
    Fenced,
    /// The plugin does not do that.
    Unsupported,
    /// Not allowed, by destination or host.
    Denied,
    /// Not known whether it happened.
    Unknown,
}

/// An answer of the plugin that says no.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PluginError {
    /// What the host should do.
    pub kind: ErrorKind,
    /// The plugin's code; open.
    pub code: String,
    /// What happened and how to mend it.
    pub message: String,
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for PluginError {}

/// The calls of the interface, for naming them in errors and budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// Instantiation, before any call.
    Instantiate,
    /// `plugin.describe`
    Describe,
    /// `writer.open`
    Open,
    /// `writer.begin`
    Begin,
    /// `writer.write`
    Write,
    /// `writer.prepare`
    Prepare,
    /// `committer.observe`
    Observe,
    /// `committer.fence`
    Fence,
    /// `committer.commit`
    Commit,
    /// `committer.reconcile`
    Reconcile,
    /// `janitor.abandon`
    Abandon,
    /// `janitor.release`
    Release,
    /// `janitor.list-orphans`
    ListOrphans,
}

impl Call {
    /// The call's name in the interface.
    pub fn as_str(self) -> &'static str {
        match self {
            Call::Instantiate => "instantiate",
            Call::Describe => "describe",
            Call::Open => "open",
            Call::Begin => "begin",
            Call::Write => "write",
            Call::Prepare => "prepare",
            Call::Observe => "observe",
            Call::Fence => "fence",
            Call::Commit => "commit",
            Call::Reconcile => "reconcile",
            Call::Abandon => "abandon",
            Call::Release => "release",
            Call::ListOrphans => "list-orphans",
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether commits are atomic for one participant or for the whole sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtomicScope {
    /// Each part by itself.
    Participant,
    /// All parts of an epoch in one step.
    Sink,
}

/// When rows can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// Before their epoch is sealed.
    Early,
    /// One participant's part at a time, after the seal.
    PerParticipant,
    /// A whole epoch at a time, after the seal.
    WholeEpoch,
}

/// How work that was never sealed is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Orphans {
    /// By prefix, with `list-orphans`.
    Listable,
    /// Every creation is announced and recorded first.
    DurableIntent,
    /// The destination drops it after so many milliseconds.
    Expires(u64),
}

/// What a plugin declares it can do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Abilities {
    /// Rows wait unseen until commit.
    pub staging: bool,
    /// Commit is idempotent by exact id, marker and rows in one atomic step.
    pub idempotent_commit: bool,
    /// How long a commit marker is kept, in milliseconds; `None` = for ever.
    pub marker_retention: Option<u64>,
    /// The marker survives writers that know nothing of Tidegate.
    pub marker_survives_foreign_writers: bool,
    /// `observe` answers.
    pub observe: bool,
    /// `fence` answers.
    pub fence: bool,
    /// `reconcile` answers.
    pub reconcile: bool,
    /// Scope of a commit's atomicity.
    pub atomic_scope: AtomicScope,
    /// When rows can be seen.
    pub visibility: Visibility,
    /// How many epochs may be prepared and unfinished while the next is written.
    pub max_open_epochs: u32,
    /// Rows with the same key replace each other.
    pub upsert_keys: bool,
    /// How long prepared work lives, in milliseconds; `None` = until given back.
    pub prepared_ttl: Option<u64>,
    /// How long a writer may stay without a call, in milliseconds; `None` = for ever.
    pub max_idle: Option<u64>,
    /// How many new names a day the destination bears, one for each participant and epoch with rows; `None` = any number.
    /// What may be made is said in the guarantee; it is not counted, and no row waits for it.
    #[serde(default)]
    pub names_per_day: Option<u64>,
    /// How unsealed work is found.
    pub orphans: Orphans,
}

/// The roles of a plugin. Each has its own instance, grants and secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Stages.
    Writer,
    /// Publishes.
    Committer,
    /// Abandons and releases.
    Janitor,
}

impl Role {
    /// Its name in the interface.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Writer => "writer",
            Role::Committer => "committer",
            Role::Janitor => "janitor",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a plugin asks its operator for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GrantRequest {
    /// For which role.
    pub role: Role,
    /// `dir`, `tcp`, `http` or `secret`.
    pub kind: String,
    /// The name under which the plugin looks for it.
    pub name: String,
    /// For a person.
    pub reason: String,
}

/// How much of one of its budgets an instance needs at least.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Need {
    /// The budget's name in the operator's configuration.
    pub budget: String,
    /// In the budget's unit: bytes, a count, or milliseconds.
    pub at_least: u64,
}

/// What a plugin says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// JSON Schema of its configuration.
    pub config_schema: String,
    /// Encodings it accepts, best first.
    pub encodings: Vec<Encoding>,
    /// What it can do.
    pub abilities: Abilities,
    /// Committable versions it can still finish.
    pub committable_versions: Vec<u32>,
    /// What it asks for.
    pub grants: Vec<GrantRequest>,
    /// With less of these budgets it does not work.
    #[serde(default)]
    pub needs: Vec<Need>,
}

/// Work that may exist outside and was never sealed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unsealed {
    /// The part.
    pub part: PartId,
    /// If prepare's answer was seen.
    pub committable: Option<Committable>,
    /// What is known to exist.
    pub resources: Vec<External>,
}

/// What `list-orphans` found.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Orphan {
    /// The part's short name as the destination tells it.
    pub short: String,
    /// The thing itself.
    pub resource: External,
    /// Its size, where known.
    pub bytes: Option<u64>,
}

/// One page of `list-orphans`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct OrphanPage {
    /// The orphans.
    pub orphans: Vec<Orphan>,
    /// Where the next page starts; `None` = this was the last.
    pub next: Option<String>,
}

/// A plugin that has been admitted: described, type-checked, bound to its configuration and grants.
///
/// Every method makes a fresh instance. Dropping an instance closes it: no code of the plugin runs and nothing at the
/// destination is touched.
pub trait Plugin: Send + Sync {
    /// What the plugin says of itself.
    fn description(&self) -> &Description;
    /// `sha256:<hex>` of the component; goes into the seal.
    fn digest(&self) -> &str;
    /// Who pays for its instances; `None` where there are no tenants.
    fn tenant(&self) -> Option<&str> {
        None
    }
    /// An instance with the writer's grants. What it announces goes to `intents`.
    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>>;
    /// An instance with the committer's grants.
    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>>;
    /// An instance with the janitor's grants.
    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>>;
}

/// Stages rows. After a [`CallFault`] other than [`FaultKind::Error`] the instance is gone.
pub trait Writer: Send {
    /// Checks the configuration and connects; changes nothing at the destination.
    fn open<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        range: KeyRange,
        restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>>;
    /// Starts a part.
    fn begin<'a>(&'a mut self, ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>>;
    /// Stages rows of the part begun last.
    fn write<'a>(&'a mut self, ctx: &'a CallContext, batch: Batch) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>>;
    /// Promises that commit can succeed.
    fn prepare<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>>;
    /// What the instance held at the end of its last prepare, where its host can tell.
    fn usage(&self) -> Option<Usage> {
        None
    }
}

/// What an instance holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Things of the host that it has open: connections, files, streams.
    pub handles: u64,
}

/// Publishes.
pub trait Committer: Send {
    /// Where the destination stands; changes nothing.
    fn observe<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Position, CallFault>>;
    /// Compare-and-set on the observed position.
    fn fence<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        expected: &'a Position,
    ) -> BoxFuture<'a, Result<Position, CallFault>>;
    /// One outcome per committable, in order.
    fn commit<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        previous: &'a [PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>>;
    /// What became of a commit whose answer was lost; changes nothing.
    fn reconcile<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>>;
}

/// Cleans up. For abandon and release, [`Outcome::Committed`] and [`Outcome::AlreadyCommitted`] mean "gone".
pub trait Janitor: Send {
    /// Gives back what was never sealed.
    fn abandon<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        parts: &'a [Unsealed],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>>;
    /// Destroys or finalises what no retained checkpoint needs.
    fn release<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        resources: &'a [External],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>>;
    /// What exists under a prefix.
    fn list_orphans<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OrphanPage, CallFault>>;
}

/// Where a plugin's announced resources become durable before they are created.
pub trait IntentLog: Send + Sync {
    /// Returns, with a number for `bound`, after the intent is durable.
    fn intent(&self, part: Option<PartId>, resource: External) -> BoxFuture<'_, Result<u64, PluginError>>;
    /// The announced thing exists under this name.
    fn bound(&self, intent: u64, name: String) -> BoxFuture<'_, Result<(), PluginError>>;
}

/// The newest epoch among parts, for comparing positions.
pub fn newest_epoch(parts: &[PartId]) -> Epoch {
    parts.iter().map(|p| p.epoch).max().unwrap_or(Epoch::ZERO)
}
