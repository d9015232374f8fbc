//! What an instance gets of wasmtime's WASI: clocks, its own random numbers, and output that becomes log lines. No
//! network. Directories are in [`crate::disk`], and what is denied of a command line's surroundings in [`super::cli`].

use std::sync::Arc;

use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use super::State;
use super::clocks::{CoarseMonotonic, CoarseWall};
use super::log::{LogLevel, PluginLog};
use super::stdio::LineStream;
use crate::limits::Limits;

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.meter.count_host_call();
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// The context of one instance, and its standard output and error.
pub(crate) fn context(log: &Arc<PluginLog>, limits: &Limits) -> (WasiCtx, [LineStream; 2]) {
    let stdio = [LineStream::new(log.clone(), LogLevel::Info), LineStream::new(log.clone(), LogLevel::Warn)];
    let mut builder = WasiCtxBuilder::new();
    builder
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .max_random_size(limits.random_bytes)
        .wall_clock(CoarseWall)
        .monotonic_clock(CoarseMonotonic::start())
        .stdout(stdio[0].clone())
        .stderr(stdio[1].clone());
    (builder.build(), stdio)
}
