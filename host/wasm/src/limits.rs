//! Budgets. Each has a name, which appears in the fault when it is spent, and a key in the operator's configuration.

pub(crate) mod budget;

use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quarantine::FaultRules;
pub use budget::{BUDGETS, Budget, Unit};

/// How often the engine's clock ticks: so often a plugin's own code is interrupted and its time looked at.
pub const TICK: Duration = Duration::from_millis(10);

/// Largest component that is looked at, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 64 << 20;

/// What one instance of a plugin may spend. `None` is nowhere: every budget has a bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of all linear memories and tables of one instance together.
    pub memory_bytes: usize,
    /// Entries of all tables of one instance together.
    pub table_entries: usize,
    /// Core modules that one component may instantiate.
    pub core_instances: usize,
    /// Linear memories that one component may have.
    pub memories: usize,
    /// Tables that one component may have.
    pub tables: usize,
    /// Wall-clock time of one call, host calls included.
    pub call_time: Duration,
    /// Processor time of one call, in the plugin's own code and in what the host does for it. Looked at once per tick.
    pub cpu_time: Duration,
    /// Processor time of all calls for one checkpoint together: a writer's from one `begin` to the next.
    pub checkpoint_cpu_time: Duration,
    /// Calls into the host during one call.
    pub host_calls: u64,
    /// Bytes that the plugin may hand to the host in one go, or be handed: arguments of one host call, one result, a
    /// batch, the states that a writer is opened with.
    pub transfer_bytes: usize,
    /// Resources (streams, files, pollables, …) that are alive at once.
    pub handles: usize,
    /// Random bytes per request.
    pub random_bytes: u64,
    /// Random bytes of all requests during one call.
    pub random_total: u64,
    /// Lines of log per minute, of all instances of a sink together; standard output and error included.
    pub log_lines: u64,
    /// Bytes of log per minute, of all instances of a sink together.
    pub log_bytes: u64,
    /// Distinct metric names of one instance.
    pub metric_names: usize,
    /// Distinct metric series (a name with its labels) of one instance.
    pub metric_series: usize,
    /// Bytes of one committable.
    pub committable_bytes: usize,
    /// Bytes of one writer state.
    pub state_bytes: usize,
    /// Bytes of the text of one error, reject or log line that are kept.
    pub message_bytes: usize,
    /// Connections of one instance that are open at once, HTTP requests under way included.
    pub connections: usize,
    /// Connections begun and requests sent during one call.
    pub requests: u64,
    /// Name lookups during one call.
    pub lookups: u64,
    /// Bytes sent to the network during one call.
    pub bytes_up: u64,
    /// Bytes received from the network during one call.
    pub bytes_down: u64,
    /// Bytes of all HTTP header fields that one instance holds.
    pub header_bytes: usize,
    /// Bytes of all files of one granted directory together, where its grant says nothing else.
    pub disk_bytes: u64,
    /// Files and folders of one granted directory, where its grant says nothing else.
    pub disk_files: u64,
    /// Flushes to disk per second, of one instance, on average over ten seconds.
    pub flushes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            table_entries: 200_000,
            core_instances: 64,
            memories: 16,
            tables: 32,
            call_time: Duration::from_secs(60),
            cpu_time: Duration::from_secs(30),
            checkpoint_cpu_time: Duration::from_secs(600),
            host_calls: 1_000_000,
            transfer_bytes: 32 << 20,
            handles: 4096,
            random_bytes: 64 << 10,
            random_total: 16 << 20,
            log_lines: 1000,
            log_bytes: 1 << 20,
            metric_names: 100,
            metric_series: 200,
            committable_bytes: 1 << 20,
            state_bytes: 1 << 20,
            message_bytes: 4096,
            connections: 64,
            requests: 10_000,
            lookups: 1000,
            bytes_up: 16 << 30,
            bytes_down: 1 << 30,
            header_bytes: 4 << 20,
            disk_bytes: 1 << 40,
            disk_files: 10_000_000,
            flushes: 1000,
        }
    }
}

/// What all plugins of one tenant together may hold or spend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantLimits {
    /// Instances that are alive at once.
    pub instances: u64,
    /// Bytes of memories and tables of all instances together.
    pub memory_bytes: u64,
    /// Processor time per second of wall-clock time, in thousandths of one processor. A tenant that has spent it waits.
    pub cpu_millis: u64,
    /// Connections that are open at once.
    pub connections: u64,
    /// Lines of log per minute.
    pub log_lines: u64,
    /// Bytes of log per minute.
    pub log_bytes: u64,
    /// Distinct metric series, for as long as the process runs.
    pub metric_series: u64,
    /// Bytes sent to the network per minute.
    pub bytes_up: u64,
    /// Bytes received from the network per minute.
    pub bytes_down: u64,
    /// Flushes to disk per second.
    pub flushes: u64,
    /// When a plugin that fails is held back.
    pub faults: FaultRules,
}

impl Default for TenantLimits {
    /// For a process that belongs to one tenant alone: no pipeline of the product's own limits comes near them.
    fn default() -> Self {
        Self {
            instances: 1000,
            memory_bytes: 256 << 30,
            cpu_millis: processors() * 1000,
            connections: 1000,
            log_lines: 5000,
            log_bytes: 5 << 20,
            metric_series: 2000,
            bytes_up: 1 << 40,
            bytes_down: 1 << 36,
            flushes: 10_000,
            faults: FaultRules::default(),
        }
    }
}

/// What a process gives to all its plugins together, whoever pays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLimits {
    /// Instances that are alive at once. Each has a thread.
    pub instances: u64,
    /// Stack of a plugin's own code, in bytes, from [`HostLimits::STACK`].
    pub stack_bytes: usize,
}

impl HostLimits {
    /// Least and most stack that can be set, in bytes.
    pub const STACK: (usize, usize) = (64 << 10, 16 << 20);
}

impl Default for HostLimits {
    fn default() -> Self {
        Self { instances: 2000, stack_bytes: 1 << 20 }
    }
}

/// Processors that this process may use.
pub fn processors() -> u64 {
    thread::available_parallelism().map_or(1, |processors| processors.get() as u64)
}

impl Limits {
    /// What a plugin gets to describe itself: no more than `self`, and little time.
    pub(crate) fn for_describe(&self) -> Self {
        Self {
            call_time: self.call_time.min(Duration::from_secs(10)),
            cpu_time: self.cpu_time.min(Duration::from_secs(5)),
            log_lines: self.log_lines.min(100),
            ..self.clone()
        }
    }
}
