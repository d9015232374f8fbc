//! Runs sink plugins: WebAssembly components, sandboxed with wasmtime.
//!
//! ```text
//! file ──Runtime::admit──▶ Admitted ──bind(grants)──▶ dyn Plugin ──writer/committer/janitor──▶ instance
//!        names, types,       one per file             one per sink                            one Store,
//!        describe                                                                             one thread
//! ```
//!
//! # What holds now
//!
//! **Admission.** A file is refused by its size and its first bytes before wasmtime sees it; by the interface version
//! in its export names, and by imports that are not on [`WASI_INTERFACES`] or in `tidegate:sink`, before it is compiled;
//! by the types of all imports and exports before any of its code runs. Then `describe` is called once, without grants.
//!
//! **Deny by default.** Everything on the list is linked, nothing of it is granted: there are no arguments, no
//! environment, no standard input, no directories, no network and no name lookup. A sink grants directories and secrets
//! by name ([`BindOptions`]); a role gets those that the plugin asks for in that role. Clocks can be read. Random
//! numbers differ per instance. Standard output and error become log lines.
//!
//! **Budgets.** See [`Limits`]: memory over all memories and tables, stack, CPU time (counted in ticks of a thread of
//! its own), wall-clock time around every call, calls into the host, bytes per host call, handles, random bytes, log
//! lines and bytes, metric series. An overdrawn budget ends the instance; the fault names it. CPU time and host calls
//! are checked when the clock ticks ([`TICK`]), so that much later at worst. A log budget counts per sink and minute, and
//! only silences.
//!
//! **Isolation.** An instance has a Store and a thread of its own and shares nothing with another one, of the same
//! plugin or not. After a trap, an overdrawn budget, a timeout or a call whose future was dropped, the Store is dropped.
//! Closing runs no code of the plugin.
//!
//! **Faults.** Each names plugin, tenant, call, budget and who is to blame. After one that is the plugin's the next instance
//! waits, doubling, and after several none is made ([`FaultRules`], [`Tenant::quarantined`]) until a cool-down is over and one
//! instance has answered on trial, or somebody lifts it. That is counted per [`Tenant`] and file, over all sinks and roles.
//! What a plugin answers is no fault, and what its destination does is not counted. A panic of the host's own code ends
//! the instance under which it happened.
//!
//! **What a plugin says** is bounded and escaped, and the secrets it revealed and the host paths of its directories are
//! replaced in logs, metrics and messages. A committable or writer state that contains a revealed secret is refused.
//! That stops carelessness; a plugin that encodes a secret first can get it past, and values of less than four bytes are
//! not looked for.
//!
//! **Compiled code** is loaded from the cache only if it carries this host's MAC; nothing supplied from outside is ever
//! loaded as native code.
//!
//! # What does not hold yet
//!
//! - WASI's directory rights are read or read-write. A writer can therefore also rename and delete within a directory it
//!   was granted, a janitor also create. There are no quotas on bytes or files.
//! - A system call that is already running (a write to a disk that hangs) cannot be stopped. Its instance counts as
//!   ended after [`Limits::call_time`] and a second; its thread ends after the system call, and until then no fresh
//!   instance of the same sink starts.
//! - Compilation happens in this process, without limits on time and memory other than the file's size.
//! - Nothing is counted per tenant: log budgets are per sink, all others per instance or call.
//! - TCP and HTTP cannot be granted; `wasi:http` is not on the list. Denied attempts are not counted.
//! - A bug in wasmtime is a bug of this sandbox: there is no second wall of processes.

mod admitted;
mod bindings;
pub mod builtin;
mod cache;
mod caps;
mod compile;
#[doc(hidden)]
pub mod confine;
mod convert;
mod engine;
mod error;
mod exports;
mod fault;
mod files;
mod grants;
mod guard;
mod host;
mod instance;
#[doc(hidden)]
pub mod lifted;
mod limits;
mod meter;
#[allow(dead_code, reason = "TCP and HTTP grants stand on it")]
mod net;
mod quarantine;
mod runtime;
mod screen;
mod shape;
mod tenant;
mod text;
pub mod worker;

pub use admitted::Admitted;
pub use caps::{ComponentCaps, Excess};
pub use compile::CompileLimits;
pub use confine::ConfinementPolicy;
pub use error::{AdmitError, WasmError};
pub use files::open_file;
pub use grants::BindOptions;
pub use grants::check::{
    GrantKind, GrantProblem, GrantedNames, compare_grants, imports_not_asked_for, requests_not_imported,
};
pub use grants::dir::DirGrant;
pub use grants::place::{HttpAuth, HttpGrant, TcpGrant, TlsStart, Trust};
pub use host::log::{LogLevel, LogLine, LogSink, TracingLog};
pub use host::metrics::{MetricChange, MetricSample, MetricSink, TracingMetrics};
pub use host::secrets::SecretRef;
pub use limits::{Limits, MAX_COMPONENT_BYTES, TICK, TenantLimits};
pub use net::resolve::{Resolve, ResolveError, SystemResolver};
pub use quarantine::{FaultRules, MachineTime, QuarantineChange, Quarantined, Time};
pub use runtime::{Inspection, Runtime, RuntimeOptions, inspect};
pub use screen::{INTERFACE_VERSION, WASI_INTERFACES};
pub use tenant::{QuarantineWatch, Tenant};
pub use worker::Worker;
