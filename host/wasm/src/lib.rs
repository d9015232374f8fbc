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
//! **Admission.** A file is refused by its size, its first bytes, and what it consists of ([`ComponentCaps`]) before
//! wasmtime sees it; by the interface version in its export names, and by imports that are not on [`WASI_INTERFACES`] or in
//! `tidegate:sink`, before it is compiled; by the types of all imports and exports before any of its code runs, start
//! functions included. Exports that the host does not know are left alone. Proposals that are switched off are named. Then
//! `describe` is called once, without grants.
//!
//! **Compilation** happens in a child process of the same program ([`Worker::Program`]): a few at once, the others wait in
//! a bounded queue. The child has limits on address space, processor time and wall-clock time ([`CompileLimits`]), no
//! network, no files, no privileges, no environment, and dies with its parent; where the kernel denies a part of that, the
//! host does not start unless [`ConfinementPolicy::IfPossible`] was chosen. A child that fails or is killed is an
//! [`AdmitError`] that says which limit it met; other plugins do not notice. What it answers is trusted as code: a component
//! that takes over the compiler would win, though it would have to do so in a process that can only answer.
//!
//! **Deny by default.** Everything on the list is linked, nothing of it is granted: there are no arguments, no
//! environment, no standard input, no directories, no network and no name lookup. A sink grants directories, places in the
//! network and secrets by name ([`BindOptions`]); a role gets those that the plugin asks for in that role. Random
//! numbers differ per instance. Standard output and error become log lines. What is asked for in vain of the environment,
//! standard input and directories is counted for its tenant ([`Tenant::denied`]).
//!
//! **HTTP.** `wasi:http` sends requests to granted services alone ([`HttpGrant`]: scheme, host, port, and a path at whose
//! segments a request's path must stay, however it is encoded); anything else is denied, counted ([`Tenant::denied`]) and
//! logged. The host looks the name up, checks every address, dials, speaks TLS, names the granted host, and adds the
//! credentials of the grant, read anew for each request. No redirect is followed, nothing is decompressed, no proxy is
//! asked. Time, sizes of heads and bodies, requests, connections and bytes are bounded. Connections belong to one instance
//! and one grant and are driven on the instance's own thread. A request that the plugin did not finish breaks off, whatever
//! ended the plugin: the server sees no end of its body. Where a server repeats credentials in header fields or trailers
//! they are withheld from the plugin; in bodies, or encoded, they are not looked for.
//!
//! **Directories.** No path leads out of a granted one, whatever is swapped meanwhile, and plugins make no symbolic links.
//! A writer creates, and writes, renames and removes what it made itself; a committer also links, renames and removes
//! what others made; a janitor removes. Nobody writes to a file that another instance made, nor to one that was published
//! (linked, or renamed by another). Bytes and names in a directory are bounded ([`DirGrant`]), for all sinks and roles of
//! this process together, counted by a walk at the start and kept: a sparse file counts by its length, one with two names
//! once, one that was removed until it is closed. Folders are at most 64 deep. What somebody else changes there counts from
//! the next walk on: at a start, and before anything is refused. Flushes beyond [`Limits::flushes`] wait.
//!
//! **Clocks** move by milliseconds, times of files too. The monotonic one starts with the instance.
//!
//! **Budgets.** See [`Limits`] for an instance, [`TenantLimits`] for all instances of a tenant, [`HostLimits`] for the
//! process. An overdrawn budget ends the instance; the fault names it, with how much there was. CPU time and WASI's calls
//! are looked at when the clock ticks ([`TICK`]), so that much later at worst. Log and metric budgets only silence. A
//! [`Tenant`] that has spent its share of the processors waits at the next tick, or before its next call: that is
//! wall-clock time of the call. What a tenant holds, has spent and was refused is in [`Tenant::usage`].
//!
//! **Admission with figures.** What the core modules that a component instantiates begin with ([`Footprint`]), and what a
//! plugin says that it needs, must be within its limits; else it is refused with both figures, the former before it is
//! compiled.
//!
//! **Numbers that a plugin names.** Of what the host reads, keeps or makes because of a length in a call there is a bound:
//! random bytes per request and per call; 64 KiB for a read that waits, 4 KiB for one that does not, since its bytes stay
//! in the host until they are fetched; as many pollables in one wait as there may be handles. Writes of nothing are not
//! handed on to streams that would queue them. Batches, and states that a writer is opened with, are handed over only
//! within [`Limits::transfer_bytes`].
//!
//! **Network.** A plugin connects to places that a [`TcpGrant`] names, and to nothing else: `tcp.connect(name)` takes the
//! grant's name. The host brings the granted host into one canonical form, looks it up once per connection (on threads of
//! its own, of which one tenant has half at most), checks every answer, and dials what it checked. Loopback, private,
//! link-local and all other special ranges are refused unless the grant has them in `allow`, also where an IPv6 address
//! only stands for them (mapped, NAT64, 6to4, Teredo); a metadata service is granted by its own address alone. One refused
//! answer refuses them all. One deadline spans lookup, connection and TLS. TLS is spoken by the host, with roots, client
//! certificate and session cache of that grant of that sink alone; files are read again after they changed. STARTTLS
//! (`start-tls`) refuses words that came before it. Connections (per instance, and per tenant), connections begun, lookups,
//! and bytes up and down per call are budgets. Sockets of WASI are denied and counted ([`Tenant::denied`]), except that they
//! may look up and connect to places whose grant has TLS off; they are the same connections then. No name that is not
//! granted is ever asked for; there is no UDP and no listening.
//!
//! **Closing without a trace.** A connection is reset when its instance is ended, in a call or between two, and TLS then
//! sends no end mark. It ends in order only when the plugin lets go of it, after everything was sent. Nothing is sent by a
//! task in the background.
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
//! **A process of its own.** Where a tenant has [`Isolation::Process`], its instances run in a confined child process, and
//! protocol and log stay here: an abort of the engine is a fault of that tenant's running calls, and a fresh child is
//! started for the next instance, later each time. The child has the code, the granted directories, and the network if one
//! of its sinks was granted a place there; no environment, no cache; the value of a secret only once it is revealed. What
//! it says is checked as what a plugin says. It ends with this process, and holds the pipeline's [`Lease`] until it is gone,
//! so that no commit of an earlier run can still happen once the next run began.
//!
//! **What a plugin says** is bounded and escaped, and the secrets it revealed and the host paths of its directories are
//! replaced in logs, metrics and messages. A committable or writer state that contains a revealed secret is refused.
//! That stops carelessness; a plugin that encodes a secret first can get it past, and values of less than four bytes are
//! not looked for.
//!
//! **Compiled code** is kept under the digest of the component and of the engine's configuration, in a directory that only
//! this user can use, and is loaded only if it carries this host's MAC. It is read into memory once; that memory is checked
//! and loaded, so that a file that is replaced meanwhile changes nothing. Nothing supplied from outside is ever loaded as
//! native code. Code belongs to no tenant: two that use the same component share it read-only, and nothing else.
//!
//! # What does not hold yet
//!
//! - A directory that lies within another granted one is counted in the outer one only when that is walked; processes that
//!   share a directory see what the others add in the same way.
//! - A system call that is already running (a write to a disk that hangs) cannot be stopped. Its instance counts as
//!   ended after [`Limits::call_time`] and a second; its thread ends after the system call, and until then no fresh
//!   instance of the same sink starts. All file calls run on that thread, and a write of more than 4 MiB ends between two
//!   pieces.
//! - Committables are handed to a committer whatever they come to together: each was bounded when it was prepared, and
//!   what is sealed must be finished.
//! - In [`Worker::InProcess`], the default of the library, components are compiled without limits on time and memory.
//! - As root, the limit on a child's threads does not hold: the kernel knows none for root.
//! - What a plugin says to a granted place is its own affair: it can carry out all that it knows, in its words or in the
//!   time between them. `bytes-up` bounds how much, and the grant bounds where to.
//! - With [`Isolation::Shared`], a bug in wasmtime is a bug of this sandbox. With [`Isolation::Process`] a child is a second
//!   wall, with two gaps: `describe` runs in this process, once per admission, and there is no filter on system calls.
//! - A tenant that is held to its share of the processors uses it in pieces of a [`TICK`], several instances at once: calls
//!   of a neighbour can take milliseconds longer meanwhile.
//! - A child may write in all directories of its tenant, whatever the role: its instances are kept apart by WASI alone.
//! - Names are looked up in the child, with the system's resolver, whatever [`BindOptions::resolver`] says.

mod admitted;
mod bindings;
pub mod builtin;
mod cache;
mod caps;
mod compile;
#[doc(hidden)]
pub mod confine;
mod convert;
mod disk;
mod engine;
mod error;
mod exports;
mod fault;
mod files;
mod footprint;
mod grants;
mod guard;
mod host;
mod instance;
#[doc(hidden)]
pub mod lifted;
mod limits;
mod meter;
mod net;
mod pace;
mod process;
mod quarantine;
mod rate;
mod runtime;
mod screen;
mod shape;
mod sync;
mod tenant;
mod text;
pub mod worker;

pub use admitted::Admitted;
pub use caps::{ComponentCaps, Excess};
pub use compile::CompileLimits;
pub use confine::ConfinementPolicy;
pub use error::{AdmitError, WasmError};
pub use files::{open_file, read_component};
pub use footprint::Footprint;
pub use grants::BindOptions;
pub use grants::check::{
    GrantKind, GrantProblem, GrantedNames, compare_grants, imports_not_asked_for, requests_not_imported,
};
pub use grants::dir::DirGrant;
pub use grants::place::{HttpAuth, HttpGrant, TcpGrant, TlsStart, Trust};
pub use host::log::{LogLevel, LogLine, LogSink, TracingLog};
pub use host::metrics::{MetricChange, MetricSample, MetricSink, TracingMetrics};
pub use host::secrets::SecretRef;
pub use ipnet::IpNet;
pub use limits::{BUDGETS, Budget, HostLimits, Limits, MAX_COMPONENT_BYTES, TICK, TenantLimits, Unit, processors};
pub use net::resolve::{Resolve, ResolveError, SystemResolver};
#[doc(hidden)]
pub use process::SecretPlace;
pub use process::{Isolation, Lease};
pub use quarantine::{FaultRules, MachineTime, QuarantineChange, Quarantined, Time};
pub use runtime::{Inspection, Runtime, RuntimeOptions, inspect};
pub use screen::{INTERFACE_VERSION, WASI_INTERFACES};
pub use tenant::{Holding, QuarantineWatch, Tenant, TenantUsage};
pub use worker::Worker;
