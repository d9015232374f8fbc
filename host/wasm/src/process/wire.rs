//! What parent and child say to each other. Both are the same program; a frame holds one message, and some are followed
//! by a frame of bytes as they are.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_protocol::ids::{KeyRange, PartId, RunId, SinkHash, SinkId};
use tidegate_protocol::plugin::{
    Batch, Blame, Call, CallContext, CallFault, Committable, Description, Encoding, External, FaultKind, FileChunk,
    OrphanPage, Outcome, PluginError, Position, Prepared, Reject, Role, Unsealed, Usage, WriterState,
};

use crate::grants::dir::DirGrant;
use crate::grants::place::{HttpGrant, TcpGrant};
use crate::host::log::LogLevel;
use crate::host::metrics::MetricChange;
use crate::limits::{Limits, budget};

/// Bytes of rows, or of compiled code, in one frame.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 30;
/// Bytes of a message to the child: what the coordinator sends has been bounded piece by piece.
pub(crate) const MAX_DOWN_BYTES: usize = 512 << 20;
/// Bytes that a message to the parent may have beyond what a plugin may hand over in one go.
pub(crate) const UP_OVERHEAD_BYTES: usize = 4 << 20;

/// From the parent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Down {
    /// Compiled code, which follows.
    Code { digest: String },
    /// What one sink grants its plugin. With a lease, one that comes along.
    Bind { terms: Box<Terms>, leased: bool },
    /// Nothing more is asked of this binding. Its lease ends with its last instance.
    Unbind { binding: u32 },
    /// A fresh instance.
    Make { instance: u32, binding: u32, role: Role },
    /// One call. Rows follow a [`Request::Write`].
    Call { instance: u32, request: Request },
    /// Ends an instance, whatever it is doing.
    Close { instance: u32 },
    /// The answer to [`Up::Intent`] and [`Up::Bound`].
    Intent { instance: u32, answer: Result<u64, PluginError> },
    /// The answer to [`Up::Secret`]: the value, if it was asked for, or why there is none.
    Secret { ask: u32, answer: Result<Option<String>, String> },
}

/// From the child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Up {
    /// The answer to [`Down::Make`].
    Made { instance: u32, made: Result<(), Fault> },
    /// The answer to [`Down::Call`].
    Answer { instance: u32, answer: Result<Reply, Fault> },
    /// Something is about to be created.
    Intent { instance: u32, resource: External },
    /// It exists under this name.
    Bound { instance: u32, intent: u64, name: String },
    /// Whether a secret is there, or its value.
    Secret { ask: u32, place: SecretPlace, reveal: bool },
    /// A line of an instance's log.
    Line { instance: u32, level: LogLevel, message: String, fields: Vec<(String, String)> },
    /// A change of a metric.
    Sample { instance: u32, name: String, labels: Vec<(String, String)>, change: MetricChange },
    /// So many more attempts at what was not granted.
    Denied(Vec<(String, u64)>),
}

/// Which secret is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecretPlace {
    /// One that is granted to the plugin.
    Granted {
        /// The instance that asks.
        instance: u32,
        /// Under which name it was granted.
        name: String,
    },
    /// One that the host uses for the plugin, which never sees it.
    Hosts {
        /// For whom.
        binding: u32,
        /// Which one.
        number: u32,
    },
}

/// What a plugin is bound to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Terms {
    pub(crate) binding: u32,
    pub(crate) sink: String,
    /// Name and version.
    pub(crate) plugin: String,
    pub(crate) digest: String,
    pub(crate) description: Description,
    pub(crate) dirs: BTreeMap<String, DirGrant>,
    pub(crate) tcp: BTreeMap<String, TcpGrant>,
    pub(crate) http: BTreeMap<String, HttpGrant>,
    /// Names only.
    pub(crate) secrets: Vec<String>,
    pub(crate) limits: Limits,
}

/// A call context.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Context {
    sink: SinkId,
    sink_hash: SinkHash,
    run: RunId,
    config: String,
    attempt: u32,
}

impl From<&CallContext> for Context {
    fn from(ctx: &CallContext) -> Self {
        let CallContext { sink, sink_hash, run, config, attempt } = ctx.clone();
        Self { sink, sink_hash, run, config: config.to_string(), attempt }
    }
}

impl From<Context> for CallContext {
    fn from(ctx: Context) -> Self {
        let Context { sink, sink_hash, run, config, attempt } = ctx;
        Self { sink, sink_hash, run, config: config.into(), attempt }
    }
}

/// A batch without its bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BatchHead {
    rows: u64,
    encoding: Encoding,
    schema: u32,
    file: Option<(u32, String, String, bool)>,
}

impl From<&Batch> for BatchHead {
    fn from(batch: &Batch) -> Self {
        let file = batch.file.as_ref();
        let file = file.map(|file| (file.number, file.folder.to_string(), file.extension.to_string(), file.last));
        Self { rows: batch.rows, encoding: batch.encoding, schema: batch.schema, file }
    }
}

impl BatchHead {
    pub(crate) fn with(self, bytes: Bytes) -> Batch {
        let file = self.file.map(|(number, folder, extension, last)| FileChunk {
            number,
            folder: folder.into(),
            extension: extension.into(),
            last,
        });
        Batch { bytes, rows: self.rows, encoding: self.encoding, schema: self.schema, file }
    }
}

/// What is asked of an instance.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Open { ctx: Context, range: KeyRange, restored: Vec<WriterState> },
    Begin { ctx: Context, part: PartId },
    Write { ctx: Context, batch: BatchHead },
    Prepare { ctx: Context },
    Observe { ctx: Context },
    Fence { ctx: Context, expected: Position },
    Commit { ctx: Context, previous: Vec<PartId>, committables: Vec<Committable> },
    Reconcile { ctx: Context, committables: Vec<Committable> },
    Abandon { ctx: Context, parts: Vec<Unsealed> },
    Release { ctx: Context, resources: Vec<External> },
    ListOrphans { ctx: Context, prefix: String, page: Option<String> },
}

impl Request {
    pub(crate) fn call(&self) -> Call {
        match self {
            Self::Open { .. } => Call::Open,
            Self::Begin { .. } => Call::Begin,
            Self::Write { .. } => Call::Write,
            Self::Prepare { .. } => Call::Prepare,
            Self::Observe { .. } => Call::Observe,
            Self::Fence { .. } => Call::Fence,
            Self::Commit { .. } => Call::Commit,
            Self::Reconcile { .. } => Call::Reconcile,
            Self::Abandon { .. } => Call::Abandon,
            Self::Release { .. } => Call::Release,
            Self::ListOrphans { .. } => Call::ListOrphans,
        }
    }
}

/// A good answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    Rejects(Vec<Reject>),
    Prepared { prepared: Box<Prepared>, memory_bytes: u64, handles: u64 },
    Position(Position),
    Outcomes(Vec<Outcome>),
    Orphans(OrphanPage),
}

impl Reply {
    pub(crate) fn prepared(prepared: Prepared, usage: Option<Usage>) -> Self {
        let Usage { memory_bytes, handles } = usage.unwrap_or(Usage { memory_bytes: 0, handles: 0 });
        Self::Prepared { prepared: Box::new(prepared), memory_bytes, handles }
    }
}

/// A fault, without what the parent knows better.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    blame: Whom,
    pub(crate) message: String,
}

/// [`FaultKind`] with words of its own.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Kind {
    Trap,
    Budget(String),
    Timeout,
    Host,
    AnswerLost,
    Malformed,
    Quarantined,
    Error(PluginError),
}

#[derive(Debug, Serialize, Deserialize)]
enum Whom {
    Plugin,
    Host,
    Destination,
    Operator,
}

impl From<CallFault> for Fault {
    fn from(fault: CallFault) -> Self {
        let kind = match fault.kind {
            FaultKind::Trap => Kind::Trap,
            FaultKind::Budget(budget) => Kind::Budget(budget.to_owned()),
            FaultKind::Timeout => Kind::Timeout,
            FaultKind::Host => Kind::Host,
            FaultKind::AnswerLost => Kind::AnswerLost,
            FaultKind::Malformed => Kind::Malformed,
            FaultKind::Quarantined => Kind::Quarantined,
            FaultKind::Error(error) => Kind::Error(error),
        };
        let blame = match fault.blame {
            Blame::Plugin => Whom::Plugin,
            Blame::Host => Whom::Host,
            Blame::Destination => Whom::Destination,
            Blame::Operator => Whom::Operator,
        };
        Self { kind, blame, message: fault.message }
    }
}

impl Fault {
    pub(crate) fn blame(&self) -> Blame {
        match self.blame {
            Whom::Plugin => Blame::Plugin,
            Whom::Host => Blame::Host,
            Whom::Destination => Blame::Destination,
            Whom::Operator => Blame::Operator,
        }
    }
}

impl Kind {
    /// The kind that is meant; `None` for a budget that this host does not have.
    pub(crate) fn meant(self) -> Option<FaultKind> {
        Some(match self {
            Self::Trap => FaultKind::Trap,
            Self::Budget(name) => FaultKind::Budget(budget::known(&name)?),
            Self::Timeout => FaultKind::Timeout,
            Self::Host => FaultKind::Host,
            Self::AnswerLost => FaultKind::AnswerLost,
            Self::Malformed => FaultKind::Malformed,
            Self::Quarantined => FaultKind::Quarantined,
            Self::Error(error) => FaultKind::Error(error),
        })
    }
}
