//! Pipelines as a library: pipeline files, what they promise, running them, and looking into their state.
//!
//! ```no_run
//! # async fn example() -> Result<(), tidegate_server::ServerError> {
//! use tidegate_server::{Host, RunOptions, assemble, config};
//!
//! // First thing in `main`, before any thread is started:
//! tidegate_server::run_if_asked();
//!
//! let file = config::load("pipeline.toml".as_ref())?;
//! let host = Host::new(None)?;
//! let report = assemble(&host, &file)?.open()?.run(RunOptions::default()).await?;
//! println!("{:?}", report.end);
//! # Ok(())
//! # }
//! ```
//!
//! The way of a pipeline: [`config::load`] reads its file, [`assemble()`] admits its plugins and computes its guarantee,
//! [`Assembled::open`] takes its log and refuses edits that do not fit it, [`Ready::run`] runs it. [`validate()`] goes the
//! same way without changing anything; [`State`] looks into a log that may be in use. Nothing here prints.

mod archive;
mod assemble;
mod canonical;
pub mod config;
mod connect;
mod control;
mod decisions;
mod dirs;
mod edits;
mod encodings;
mod error;
mod faults;
mod grants;
mod graph;
mod letters;
mod moved;
mod network;
mod orphans;
mod overlaps;
mod plugins;
mod quarantine;
mod refusal;
mod resolve;
mod run;
mod savepoint;
mod schema;
mod shapes;
mod state;
mod tenants;
mod validate;

pub use archive::{Exported, FORMAT as ARCHIVE_FORMAT, Imported, export, import};
pub use assemble::{Assembled, assemble};
pub use connect::connect;
pub use decisions::{DecisionReport, Fate};
pub use edits::{Finding, Verdict};
pub use error::{ErrorKind, Refused, ServerError};
pub use letters::{Found, LetterCount, Replay, replay, replay_state};
pub use moved::{Moved, moved};
pub use orphans::{Abandoned, GivenBack, OrphanView, SinkOrphans, orphans_abandon, orphans_list};
pub use plugins::Host;
pub use quarantine::{QuarantineReport, QuarantineView, quarantine};
pub use refusal::{blocked_words, policy_name};
pub use resolve::{Resolution, ResolveRequest, Resolved, resolve};
pub use run::{Ready, Report, RunOptions};
pub use savepoint::{SavepointDone, SavepointView, savepoint_create, savepoint_forget};
pub use state::{
    CheckpointDetail, CheckpointSummary, OperatorView, OutcomeView, PartView, ResourceView, SinkView, SourceView,
    State, Verified, verify,
};
pub use tidegate_wasm::worker::run_if_asked;
pub use tidegate_wasm::{
    CompileLimits, ConfinementPolicy, HostLimits, Isolation, RuntimeOptions, Tenant, TenantLimits, TenantUsage, Worker,
};
pub use validate::{BlockedEpoch, StateFound, Validation, check, validate};

pub use tidegate_pipeline::Control;
pub use tidegate_pipeline::clock::{Clock, SystemClock};
pub use tidegate_pipeline::observe::{Moment, Observer, Progress};
pub use tidegate_protocol::event::{End, Notice, Refusal, TaskFailure};
pub use tidegate_protocol::guarantee::{Delivery, Guarantee};
pub use tidegate_protocol::ids::{EpochRef, PipelineId, SinkId, SourceId};
pub use tidegate_protocol::plugin::{Abilities, Description, Encoding, Role, Visibility};
pub use tidegate_protocol::positions::{Entries, Positions};
pub use tidegate_protocol::record::MismatchPolicy;
pub use tidegate_wasm::{Inspection, imports_not_asked_for, requests_not_imported};
