//! What an instance gets of WASI: granted directories, clocks, its own random numbers, and output that becomes log
//! lines. No arguments, no environment, no standard input, no network.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use super::State;
use super::log::{LogLevel, PluginLog};
use super::stdio::LineStream;
use crate::limits::Limits;

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.meter.count_host_call();
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// The context of one instance, and its standard output and error. The error names the grant whose directory cannot be
/// opened.
pub(crate) fn context(
    dirs: &BTreeMap<String, PathBuf>,
    log: &Arc<PluginLog>,
    limits: &Limits,
) -> Result<(WasiCtx, [LineStream; 2]), String> {
    let stdio = [LineStream::new(log.clone(), LogLevel::Info), LineStream::new(log.clone(), LogLevel::Warn)];
    let mut builder = WasiCtxBuilder::new();
    builder
        // File calls run on the instance's own thread: a hop to another one would cost more than most of them.
        // Must come before the directories, which remember it.
        .allow_blocking_current_thread(true)
        .allow_tcp(false)
        .allow_udp(false)
        .allow_ip_name_lookup(false)
        .max_random_size(limits.random_bytes)
        .stdout(stdio[0].clone())
        .stderr(stdio[1].clone());
    for (name, host) in dirs {
        builder
            .preopened_dir(host, name, FsPerms::ReadWrite)
            .map_err(|e| format!("the directory granted as `{name}` cannot be opened: {e}"))?;
    }
    Ok((builder.build(), stdio))
}
