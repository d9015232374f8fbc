//! Budgets. Each has a name, which appears in the fault when it is spent.

use std::time::Duration;

use crate::quarantine::FaultRules;

/// How often the engine's clock ticks: so often a plugin's own code is interrupted and its time looked at.
pub const TICK: Duration = Duration::from_millis(10);

/// Stack of a plugin's own code, in bytes.
pub(crate) const WASM_STACK_BYTES: usize = 1 << 20;

/// Largest component that is looked at, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 64 << 20;

/// What one instance of a plugin may spend. `None` is nowhere: every budget has a bound.
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
    /// Processor time of all calls for one checkpoint together: a writer's from one `begin` to the next.
    pub checkpoint_cpu_time: Duration,
    /// Calls into the host during one call.
    pub host_calls: u64,
    /// Bytes that the plugin may hand to the host in one go, or be handed: arguments of one host call, or one result.
    pub transfer_bytes: usize,
    /// Resources (streams, files, pollables, …) that are alive at once.
    pub handles: usize,
    /// Random bytes per request.
    pub random_bytes: u64,
    /// Random bytes per call.
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
            transfer_bytes: 64 << 20,
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
            disk_bytes: 1 << 40,
            disk_files: 10_000_000,
            flushes: 1000,
        }
    }
}

/// What all plugins of one tenant together may hold or spend.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Distinct metric series.
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
    fn default() -> Self {
        Self {
            instances: 500,
            memory_bytes: 8 << 30,
            cpu_millis: 64_000,
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
    pub(crate) const CHECKPOINT_CPU: &str = "cpu time per checkpoint";
    pub(crate) const HOST_CALLS: &str = "host calls";
    pub(crate) const HANDLES: &str = "handles";
    pub(crate) const TRANSFER: &str = "bytes handed to the host";
    pub(crate) const STACK: &str = "stack";
    pub(crate) const RANDOM: &str = "random bytes";
    pub(crate) const INSTANCES: &str = "instances";
    pub(crate) const CONNECTIONS: &str = "connections";
    pub(crate) const REQUESTS: &str = "requests";
    pub(crate) const LOOKUPS: &str = "name lookups";
    pub(crate) const BYTES_UP: &str = "bytes up";
    pub(crate) const BYTES_DOWN: &str = "bytes down";
    pub(crate) const DISK_BYTES: &str = "disk bytes";
    pub(crate) const DISK_FILES: &str = "disk files";
    pub(crate) const FLUSHES: &str = "flushes";
}

/// How much of a budget there is, and which key sets it: what a person needs who wants to raise it.
pub(crate) fn figure(budget: &str, limits: &Limits) -> String {
    match budget {
        budget::MEMORY => format!(
            "{} of all memories and tables together (`memory`), {} table entries (`table-entries`)",
            size(limits.memory_bytes as u64),
            limits.table_entries
        ),
        budget::CPU => format!("{:?} per call (`cpu-time`)", limits.cpu_time),
        budget::CHECKPOINT_CPU => format!("{:?} per checkpoint (`checkpoint-cpu-time`)", limits.checkpoint_cpu_time),
        budget::HOST_CALLS => format!("{} per call (`host-calls`)", limits.host_calls),
        budget::HANDLES => format!("{} open at once (`handles`)", limits.handles),
        budget::TRANSFER => format!("{} in one go (`transfer`)", size(limits.transfer_bytes as u64)),
        budget::STACK => format!("{}, the same for every plugin", size(WASM_STACK_BYTES as u64)),
        budget::RANDOM => format!(
            "{} per request (`random`), {} per call (`random-total`)",
            size(limits.random_bytes),
            size(limits.random_total)
        ),
        budget::CONNECTIONS => format!("{} open at once (`connections`)", limits.connections),
        budget::REQUESTS => format!("{} per call (`requests`)", limits.requests),
        budget::LOOKUPS => format!("{} per call (`lookups`)", limits.lookups),
        budget::BYTES_UP => format!("{} per call (`bytes-up`)", size(limits.bytes_up)),
        budget::BYTES_DOWN => format!("{} per call (`bytes-down`)", size(limits.bytes_down)),
        budget::DISK_BYTES => format!("{} in one directory (`disk-bytes`)", size(limits.disk_bytes)),
        budget::DISK_FILES => format!("{} in one directory (`disk-files`)", limits.disk_files),
        budget::FLUSHES => format!("{} per second (`flushes`)", limits.flushes),
        _ => "the instance was ended".to_owned(),
    }
}

/// Bytes in the largest unit that leaves a whole number.
fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(shift, _)| bytes > 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_budget_has_its_figure_and_key() {
        let limits = Limits::default();
        for budget in [
            budget::MEMORY,
            budget::CPU,
            budget::CHECKPOINT_CPU,
            budget::HOST_CALLS,
            budget::HANDLES,
            budget::TRANSFER,
            budget::RANDOM,
            budget::CONNECTIONS,
            budget::REQUESTS,
            budget::LOOKUPS,
            budget::BYTES_UP,
            budget::BYTES_DOWN,
            budget::DISK_BYTES,
            budget::DISK_FILES,
            budget::FLUSHES,
        ] {
            let figure = figure(budget, &limits);
            assert!(figure.contains('`') && figure.contains(|c: char| c.is_ascii_digit()), "{budget}: {figure}");
        }
        assert_eq!(figure(budget::CPU, &limits), "30s per call (`cpu-time`)");
        assert_eq!(figure(budget::STACK, &limits), "1 MiB, the same for every plugin");
    }

    #[test]
    fn sizes_are_whole_numbers() {
        assert_eq!(
            [0, 1, 1025, 1 << 10, 3 << 20, 5 << 40].map(size),
            ["0 bytes", "1 bytes", "1025 bytes", "1 KiB", "3 MiB", "5 TiB"]
        );
    }
}
