//! The names of the budgets, as they appear in faults, and their keys, as they appear in configuration.

use std::fmt;
use std::time::Duration;

use super::Limits;

pub(crate) const MEMORY: &str = "memory";
pub(crate) const TABLE_ENTRIES: &str = "table entries";
pub(crate) const CORE_INSTANCES: &str = "core instances";
pub(crate) const MEMORIES: &str = "memories";
pub(crate) const TABLES: &str = "tables";
pub(crate) const CPU: &str = "cpu time";
pub(crate) const CHECKPOINT_CPU: &str = "cpu time per checkpoint";
pub(crate) const HOST_CALLS: &str = "host calls";
pub(crate) const HANDLES: &str = "handles";
pub(crate) const TRANSFER: &str = "bytes handed to the host";
pub(crate) const TRANSFER_IN: &str = "bytes handed to the plugin";
pub(crate) const STACK: &str = "stack";
pub(crate) const RANDOM: &str = "random bytes";
pub(crate) const RANDOM_TOTAL: &str = "random bytes per call";
pub(crate) const LOG_LINES: &str = "log lines";
pub(crate) const LOG_BYTES: &str = "log bytes";
pub(crate) const METRIC_NAMES: &str = "metric names";
pub(crate) const METRIC_SERIES: &str = "metric series";
pub(crate) const COMMITTABLE: &str = "bytes of a committable";
pub(crate) const STATE: &str = "bytes of a writer state";
pub(crate) const INSTANCES: &str = "instances";
pub(crate) const CONNECTIONS: &str = "connections";
pub(crate) const REQUESTS: &str = "requests";
pub(crate) const LOOKUPS: &str = "name lookups";
pub(crate) const BYTES_UP: &str = "bytes up";
pub(crate) const BYTES_DOWN: &str = "bytes down";
pub(crate) const HEADERS: &str = "header bytes";
pub(crate) const DISK_BYTES: &str = "disk bytes";
pub(crate) const DISK_FILES: &str = "disk files";
pub(crate) const FLUSHES: &str = "flushes";
/// Memory of all instances of a tenant.
pub(crate) const TENANT_MEMORY: &str = "memory of the tenant";
/// Bytes of all instances of a tenant, per minute.
pub(crate) const TENANT_BYTES_UP: &str = "bytes up of the tenant";
/// Bytes of all instances of a tenant, per minute.
pub(crate) const TENANT_BYTES_DOWN: &str = "bytes down of the tenant";
/// Instances of a tenant.
pub(crate) const TENANT_INSTANCES: &str = "instances of the tenant";

/// The budget of this name, as this process knows it.
pub(crate) fn known(name: &str) -> Option<&'static str> {
    const OTHERS: [&str; 6] = [STACK, INSTANCES, TENANT_MEMORY, TENANT_BYTES_UP, TENANT_BYTES_DOWN, TENANT_INSTANCES];
    let mut all = BUDGETS.iter().flat_map(|budget| budget.names).chain(&OTHERS).copied();
    all.find(|known| *known == name)
}

/// What a budget is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Millis,
    /// Pieces.
    Count,
}

impl Unit {
    /// An amount in words.
    pub fn show(self, amount: u64) -> String {
        match self {
            Unit::Bytes => {
                let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
                match units.iter().find(|(_, size)| amount >= *size) {
                    Some((name, size)) if amount.is_multiple_of(*size) => format!("{} {name}", amount / size),
                    Some((name, size)) => format!("{:.1} {name}", amount as f64 / *size as f64),
                    None => format!("{amount} bytes"),
                }
            }
            Unit::Millis => format!("{:?}", Duration::from_millis(amount)),
            Unit::Count => amount.to_string(),
        }
    }
}

/// One budget of an instance.
#[derive(Clone, Copy)]
pub struct Budget {
    /// Its key in the operator's configuration, and in a plugin's needs.
    pub key: &'static str,
    /// Its names in faults.
    pub names: &'static [&'static str],
    /// What it is counted in.
    pub unit: Unit,
    /// Of what, or for how long.
    per: &'static str,
    of: fn(&Limits) -> u64,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)
    }
}

impl Budget {
    /// How much of it there is.
    pub fn of(&self, limits: &Limits) -> u64 {
        (self.of)(limits)
    }

    /// The budget that a fault names; `None` for those of the tenant and the host.
    pub fn named(name: &str) -> Option<&'static Budget> {
        BUDGETS.iter().find(|budget| budget.names.contains(&name))
    }
}

const fn budget(
    key: &'static str,
    names: &'static [&'static str],
    unit: Unit,
    per: &'static str,
    of: fn(&Limits) -> u64,
) -> Budget {
    Budget { key, names, unit, per, of }
}

/// How much of a budget there is, and which key sets it: what a person needs who wants to raise it.
pub(crate) fn figure(name: &str, limits: &Limits) -> String {
    match (Budget::named(name), name) {
        (Some(budget), _) => {
            format!("{} {} (`{}`)", budget.unit.show(budget.of(limits)), budget.per, budget.key)
        }
        (None, STACK) => "the same for every plugin (`stack` under [host] in the host file)".to_owned(),
        (None, TENANT_BYTES_UP) => "per minute (`bytes-up` of the tenant in the host file)".to_owned(),
        (None, TENANT_BYTES_DOWN) => "per minute (`bytes-down` of the tenant in the host file)".to_owned(),
        (None, TENANT_MEMORY) => "all instances together (`memory` of the tenant in the host file)".to_owned(),
        (None, _) => "the instance was ended".to_owned(),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Every budget of an instance.
pub const BUDGETS: &[Budget] = &[
    budget("memory", &[MEMORY], Unit::Bytes, "of all memories and tables together", |l| l.memory_bytes as u64),
    budget("table-entries", &[TABLE_ENTRIES], Unit::Count, "of all tables together", |l| l.table_entries as u64),
    budget("core-instances", &[CORE_INSTANCES], Unit::Count, "in one component", |l| l.core_instances as u64),
    budget("memories", &[MEMORIES], Unit::Count, "in one component", |l| l.memories as u64),
    budget("tables", &[TABLES], Unit::Count, "in one component", |l| l.tables as u64),
    budget("call-time", &[], Unit::Millis, "per call", |l| millis(l.call_time)),
    budget("cpu-time", &[CPU], Unit::Millis, "per call", |l| millis(l.cpu_time)),
    budget("checkpoint-cpu-time", &[CHECKPOINT_CPU], Unit::Millis, "per checkpoint", |l| millis(l.checkpoint_cpu_time)),
    budget("host-calls", &[HOST_CALLS], Unit::Count, "per call", |l| l.host_calls),
    budget("transfer", &[TRANSFER, TRANSFER_IN], Unit::Bytes, "in one go", |l| l.transfer_bytes as u64),
    budget("handles", &[HANDLES], Unit::Count, "open at once", |l| l.handles as u64),
    budget("random", &[RANDOM], Unit::Bytes, "per request", |l| l.random_bytes),
    budget("random-total", &[RANDOM_TOTAL], Unit::Bytes, "per call", |l| l.random_total),
    budget("log-lines", &[LOG_LINES], Unit::Count, "per minute", |l| l.log_lines),
    budget("log-bytes", &[LOG_BYTES], Unit::Bytes, "per minute", |l| l.log_bytes),
    budget("metric-names", &[METRIC_NAMES], Unit::Count, "of one instance", |l| l.metric_names as u64),
    budget("metric-series", &[METRIC_SERIES], Unit::Count, "of one instance", |l| l.metric_series as u64),
    budget("committable", &[COMMITTABLE], Unit::Bytes, "for one part", |l| l.committable_bytes as u64),
    budget("state", &[STATE], Unit::Bytes, "of one writer", |l| l.state_bytes as u64),
    budget("message", &[], Unit::Bytes, "per message", |l| l.message_bytes as u64),
    budget("connections", &[CONNECTIONS], Unit::Count, "open at once", |l| l.connections as u64),
    budget("requests", &[REQUESTS], Unit::Count, "per call", |l| l.requests),
    budget("lookups", &[LOOKUPS], Unit::Count, "per call", |l| l.lookups),
    budget("bytes-up", &[BYTES_UP], Unit::Bytes, "per call", |l| l.bytes_up),
    budget("bytes-down", &[BYTES_DOWN], Unit::Bytes, "per call", |l| l.bytes_down),
    budget("header-bytes", &[HEADERS], Unit::Bytes, "held at once", |l| l.header_bytes as u64),
    budget("disk-bytes", &[DISK_BYTES], Unit::Bytes, "in one directory", |l| l.disk_bytes),
    budget("disk-files", &[DISK_FILES], Unit::Count, "in one directory", |l| l.disk_files),
    budget("flushes", &[FLUSHES], Unit::Count, "per second", |l| l.flushes),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_budget_has_a_bound_and_a_key_of_its_own() {
        let limits = Limits::default();
        let keys: std::collections::BTreeSet<_> = BUDGETS.iter().map(|budget| budget.key).collect();
        assert_eq!(keys.len(), BUDGETS.len());
        for budget in BUDGETS {
            assert!((1..u64::MAX).contains(&budget.of(&limits)), "{budget:?}");
        }
        assert_eq!(Budget::named(TRANSFER_IN).map(|budget| budget.key), Some("transfer"));
        assert!(Budget::named(STACK).is_none());
        assert_eq!(figure(CPU, &limits), "30s per call (`cpu-time`)");
        assert_eq!(figure(MEMORY, &limits), "256 MiB of all memories and tables together (`memory`)");
    }

    #[test]
    fn figures_are_shown_with_their_unit() {
        assert_eq!(Unit::Bytes.show(256 << 20), "256 MiB");
        assert_eq!(Unit::Bytes.show((1 << 20) + (1 << 19)), "1.5 MiB");
        assert_eq!(Unit::Bytes.show(17), "17 bytes");
        assert_eq!(Unit::Millis.show(30_000), "30s");
    }
}
