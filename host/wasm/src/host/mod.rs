//! What a plugin can call: one small module per service. Adding a service means a module here, a field in
//! [`State`], and a line in [`link`].

pub(crate) mod cli;
pub(crate) mod clocks;
pub(crate) mod http;
mod io;
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod network;
mod random;
pub(crate) mod rows;
pub(crate) mod secrets;
pub(crate) mod sockets;
pub(crate) mod stdio;
pub(crate) mod tcp;
pub(crate) mod wasi;

use std::sync::Arc;

use tidegate_protocol::plugin::Usage;
use wasmtime::component::{HasSelf, Linker, ResourceTable};
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi::p2::bindings as wasi_bindings;

use crate::bindings::{self, imported};
use crate::disk::{self, Disk};
use crate::limits::{Limits, Unit, budget};
use crate::meter::{KillSwitch, MemoryMeter, Meter};
use crate::tenant::Tenant;
use crate::text::Redactor;

/// Everything the host keeps for one instance. Nothing in it is shared with another instance, except for the places
/// where the operator reads logs and metrics.
pub(crate) struct State {
    pub(crate) table: ResourceTable,
    pub(crate) wasi: WasiCtx,
    pub(crate) disk: Disk,
    pub(crate) kill: KillSwitch,
    pub(crate) meter: Meter,
    pub(crate) memory: MemoryMeter,
    pub(crate) stdio: [stdio::LineStream; 2],
    pub(crate) log: Arc<log::PluginLog>,
    pub(crate) metrics: metrics::PluginMetrics,
    pub(crate) secrets: secrets::GrantedSecrets,
    pub(crate) ledger: ledger::Ledger,
    pub(crate) redactor: Redactor,
    /// It was granted something outside, which it may wait for.
    pub(crate) reaches_out: bool,
    pub(crate) network: network::Network,
    /// Who pays.
    pub(crate) tenant: Tenant,
    /// Stack of its own code.
    pub(crate) stack_bytes: usize,
    /// Most resources alive at once.
    max_handles: usize,
    /// Most bytes that are handed over at once.
    max_transfer: usize,
    pub(crate) http: http::HttpState,
}

impl State {
    pub(crate) fn new(grants: Granted, limits: &Limits, stack_bytes: usize, kill: KillSwitch) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles);
        Self {
            table,
            wasi: grants.wasi,
            disk: grants.disk,
            kill: kill.clone(),
            meter: Meter::new(kill, grants.tenant.clone(), grants.network.traffic.clone()),
            memory: MemoryMeter::new(limits, &grants.tenant),
            stdio: grants.stdio,
            log: grants.log,
            metrics: grants.metrics,
            secrets: grants.secrets,
            ledger: grants.ledger,
            redactor: grants.redactor,
            reaches_out: grants.reaches_out,
            network: grants.network,
            tenant: grants.tenant,
            stack_bytes,
            max_handles: limits.handles,
            max_transfer: limits.transfer_bytes,
            http: grants.http,
        }
    }

    /// Refuses to hand `bytes` to the plugin where that is more than it may be given at once.
    pub(crate) fn hand_over(&mut self, bytes: usize) -> wasmtime::Result<()> {
        self.meter.bound(budget::TRANSFER_IN, bytes as u64, self.max_transfer as u64, Unit::Bytes)
    }

    /// Fills the budgets for one call.
    pub(crate) fn begin_call(&mut self, limits: &Limits) {
        self.meter.begin_call(limits);
        self.memory.begin_call();
        self.network.traffic.begin_call(limits);
    }

    /// A call is over, well or not.
    pub(crate) fn end_call(&mut self) {
        self.stdio.iter().for_each(stdio::LineStream::end);
        self.meter.end_call();
    }

    /// What the instance holds now.
    pub(crate) fn usage(&mut self) -> Usage {
        let handles = self.table.iter_mut().count() as u64;
        Usage { memory_bytes: self.memory.bytes() as u64, handles }
    }

    /// Every function of the host's own interfaces passes through here.
    pub(crate) fn counted(&mut self) -> &mut Self {
        self.meter.count_host_call();
        self
    }
}

/// What one instance was given.
pub(crate) struct Granted {
    pub(crate) wasi: WasiCtx,
    pub(crate) disk: Disk,
    pub(crate) stdio: [stdio::LineStream; 2],
    pub(crate) log: Arc<log::PluginLog>,
    pub(crate) metrics: metrics::PluginMetrics,
    pub(crate) secrets: secrets::GrantedSecrets,
    pub(crate) ledger: ledger::Ledger,
    pub(crate) redactor: Redactor,
    /// It was granted something outside, which it may wait for.
    pub(crate) reaches_out: bool,
    pub(crate) network: network::Network,
    /// Who pays.
    pub(crate) tenant: Tenant,
    pub(crate) http: http::HttpState,
}

/// Links all services. What an instance was not granted is linked too, and denies.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    link_bounded(linker)?;
    sockets::link(linker)?;
    http::link(linker)?;
    imported::types::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    imported::rows::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    imported::ledger::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    imported::log::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    imported::metrics::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    imported::secrets::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    imported::tcp::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    Ok(())
}

/// In place of what WASI does, where that has no bound.
fn link_bounded(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    wasi_bindings::io::error::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    wasi_bindings::io::poll::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    wasi_bindings::io::streams::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    wasi_bindings::random::random::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    wasi_bindings::random::insecure::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    wasi_bindings::random::insecure_seed::add_to_linker::<_, HasSelf<State>>(linker, State::counted)?;
    disk::link(linker)?;
    cli::link(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

impl bindings::imported::types::Host for State {}

/// An error of the host, in the interface's words.
pub(crate) fn error(
    kind: imported::types::ErrorKind,
    code: &str,
    message: impl Into<String>,
) -> imported::types::Error {
    imported::types::Error { kind, code: code.to_owned(), message: message.into() }
}
