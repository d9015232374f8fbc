//! The words of the calls. They mirror `wit/`, where each is explained; here they are plain Rust.

use serde::{Deserialize, Serialize};

use crate::Error;

/// One incarnation of a pipeline.
///
/// Written as `<number>-<nonce>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId {
    /// The fencing token.
    pub number: u64,
    /// 80 random bits as 16 characters of lower-case base32. Equal number with another nonce means: not ours.
    pub nonce: String,
}

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.number, self.nonce)
    }
}

impl std::str::FromStr for RunId {
    type Err = String;

    /// Reads `<number>-<nonce>`.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split_once('-')
            .and_then(|(number, nonce)| {
                let legal = nonce.len() == 16 && nonce.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'));
                Some(RunId { number: number.parse().ok()?, nonce: legal.then(|| nonce.to_owned())? })
            })
            .ok_or_else(|| format!("`{text}` is not a run: expected <number>-<16 characters of base32>"))
    }
}

impl TryFrom<String> for RunId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(run: RunId) -> String {
        run.to_string()
    }
}

/// What one participant prepares for one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The long name.
    pub full: String,
    /// The short name: at most 63 characters of `[a-z0-9-]`.
    pub short: String,
    /// The run that writes it.
    pub run: RunId,
    /// The epoch it belongs to.
    pub epoch: u64,
    /// Which participant.
    pub ordinal: u32,
    /// How often this participant began this epoch.
    pub attempt: u32,
}

/// An inclusive range of the key space `0..=u32::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRange {
    /// First key.
    pub first: u32,
    /// Last key.
    pub last: u32,
}

/// Something outside that outlives a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// Your word for its kind.
    pub kind: String,
    /// Its name at the destination; never reused.
    pub name: String,
    /// Unix milliseconds after which the destination may drop it by itself.
    pub expires_at: Option<u64>,
}

/// Bytes with which any fresh instance can finish or give back a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committable {
    /// The part it finishes.
    pub part: Part,
    /// Your own version of `body`.
    pub version: u32,
    /// Opaque to the host.
    pub body: Vec<u8>,
    /// Rows it will make visible.
    pub rows: u64,
    /// Unix milliseconds after which the destination may have dropped it.
    pub expires_at: Option<u64>,
}

/// What a writer wants to know again after a restore. Knowledge, not a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterState {
    /// The keys it speaks of.
    pub range: KeyRange,
    /// Your own version of `body`.
    pub version: u32,
    /// Opaque to the host.
    pub body: Vec<u8>,
}

/// A row that the destination will not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// Counts from 0 within the batch (`write`) or the part (`prepare`).
    pub row: u64,
    /// Open code, for dashboards.
    pub code: String,
    /// For a person.
    pub message: String,
}

/// The one reply to prepare.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Position {
    /// The newest run that fenced the destination or wrote to it.
    pub fence: Option<RunId>,
    /// The newest committed part of each participant; of the newest epoch, if commits are atomic for the whole sink.
    pub last: Vec<Part>,
    /// Opaque to the host; handed back in `fence`.
    pub token: Vec<u8>,
}

/// What became of one committable, part or resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done by this call.
    Committed,
    /// Done before, by exactly this id.
    AlreadyCommitted,
    /// A snapshot; it permits only the same commit again.
    NotCommitted,
    /// Nobody can commit it any more.
    Never,
    /// Again, not sooner than so many milliseconds.
    Retry(Option<u64>),
    /// A newer run owns the destination.
    Fenced,
    /// This sink does not do that.
    Unsupported,
    /// Not known.
    Unknown,
    /// The destination refuses for good.
    Rejected(Error),
}

/// How rows are laid out in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// A piece of one of the files that the host writes for a part. Pieces of several files may alternate; those of one file
/// come in order, and every file is ended before `prepare`. Rows in files cannot be rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChunk {
    /// The file's number within the part, from 0.
    pub number: u32,
    /// The folder it belongs in, such as `carrier=UA/day=3`; empty for none.
    pub folder: String,
    /// What its name ends in, without the dot: `parquet`, `jsonl.gz`.
    pub extension: String,
    /// Nothing follows for this file.
    pub last: bool,
}

/// What a batch says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchInfo {
    /// How many rows.
    pub rows: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Their encoding.
    pub encoding: Encoding,
    /// Which schema they have; 0 for encodings without one.
    pub schema: u32,
    /// Which piece of which file they are; only with [`Encoding::Files`].
    pub file: Option<FileChunk>,
}

/// The scope within which parts become visible in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicScope {
    /// Each participant's part by itself.
    Participant,
    /// All parts of an epoch.
    Sink,
}

/// When rows can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// All rows of an epoch at once.
    WholeEpoch,
    /// Part by part.
    PerParticipant,
    /// Before the epoch is sealed.
    Early,
}

/// How work that was never sealed is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// By [`Sink::list_orphans`](crate::Sink::list_orphans).
    Listable,
    /// Every creation is announced with [`Ctx::resource_intent`](crate::Ctx::resource_intent).
    DurableIntent,
    /// The destination drops it after so many milliseconds.
    Expires(u64),
}

/// What the sink can do. Start from [`Abilities::NONE`] and claim what you keep.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    pub names_per_day: Option<u64>,
    /// How unsealed work is found.
    pub orphans: Orphans,
}

impl Abilities {
    /// The least: rows can be seen at once, nothing is known afterwards.
    pub const NONE: Abilities = Abilities {
        staging: false,
        idempotent_commit: false,
        marker_retention: Some(0),
        marker_survives_foreign_writers: false,
        observe: false,
        fence: false,
        reconcile: false,
        atomic_scope: AtomicScope::Participant,
        visibility: Visibility::Early,
        max_open_epochs: 1,
        upsert_keys: false,
        prepared_ttl: None,
        max_idle: None,
        names_per_day: None,
        orphans: Orphans::DurableIntent,
    };
}

/// The roles of a plugin; each has its own instance, grants and secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Stages.
    Writer,
    /// Publishes.
    Committer,
    /// Abandons and releases.
    Janitor,
}

/// What the sink asks its operator for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRequest {
    /// For which role.
    pub role: Role,
    /// `dir`, `tcp`, `http` or `secret`.
    pub kind: &'static str,
    /// The name under which the sink looks for it.
    pub name: &'static str,
    /// For a person.
    pub reason: &'static str,
}

/// How much of one of its budgets an instance needs at least; the host does not start it with less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The budget's name in the operator's configuration: `memory`, `connections`, ….
    pub budget: &'static str,
    /// In the budget's unit: bytes, a count, or milliseconds.
    pub at_least: u64,
}

/// What the sink says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its version.
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
    /// With less of these budgets it does not work. Usually empty: the host sees how much memory a component begins with.
    pub needs: Vec<Need>,
}

/// Work that may exist outside and was never sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsealed {
    /// The part.
    pub part: Part,
    /// If prepare's answer was seen.
    pub committable: Option<Committable>,
    /// What is known to exist.
    pub resources: Vec<External>,
}

/// What [`Sink::list_orphans`](crate::Sink::list_orphans) found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The part's short name as the destination tells it.
    pub short: String,
    /// The thing itself.
    pub resource: External,
    /// Its size, where known.
    pub bytes: Option<u64>,
}

/// One page of orphans.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrphanPage {
    /// The orphans.
    pub orphans: Vec<Orphan>,
    /// Where the next page starts; `None` = this was the last.
    pub next: Option<String>,
}
