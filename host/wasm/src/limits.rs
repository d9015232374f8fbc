//! Budgets. Each has a name, which appears in the fault when it is spent.

use std::time::Duration;

/// How often the engine's clock ticks: so often a plugin's own code is interrupted and its time looked at.
pub const TICK: Duration = Duration::from_millis(10);

/// Largest component that is looked at, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 64 << 20;

/// What one instance of a plugin may spend.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Calls into the host during one call.
    pub host_calls: u64,
    /// Bytes that the plugin may hand to the host in one go: arguments of one host call, or one result.
    pub transfer_bytes: usize,
    /// Resources (streams, files, pollables, …) that are alive at once.
    pub handles: usize,
    /// Random bytes per request.
    pub random_bytes: u64,
    /// Lines of log per minute, of all instances of a sink together; standard output and error included.
    pub log_lines: u64,
    /// Bytes of log per minute, of all instances of a sink together.
    pub log_bytes: u64,
    /// Distinct metric series of one instance.
    pub metric_series: usize,
    /// Bytes of one committable or one writer state.
    pub committable_bytes: usize,
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
            host_calls: 1_000_000,
            transfer_bytes: 64 << 20,
            handles: 4096,
            random_bytes: 64 << 10,
            log_lines: 1000,
            log_bytes: 1 << 20,
            metric_series: 200,
            committable_bytes: 1 << 20,
        }
    }
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

/// The names of the budgets, as they appear in faults.
pub(crate) mod budget {
    pub(crate) const MEMORY: &str = "memory";
    pub(crate) const CPU: &str = "cpu time";
    pub(crate) const HOST_CALLS: &str = "host calls";
    pub(crate) const HANDLES: &str = "handles";
    pub(crate) const TRANSFER: &str = "bytes handed to the host";
    pub(crate) const STACK: &str = "stack";
    pub(crate) const RANDOM: &str = "random bytes";
    pub(crate) const INSTANCES: &str = "instances";
}
