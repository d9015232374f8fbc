//! Budgets of instances and tenants.

use std::time::Duration;

use tidegate_wasm::{FaultRules, Limits, TenantLimits};

use super::reader::Section;

fn small(number: Option<u64>) -> Option<usize> {
    number.and_then(|number| usize::try_from(number).ok())
}

/// `[sinks.NAME.limits]`.
pub(super) fn limits(section: &Section<'_, '_>) -> Option<Limits> {
    let call_time = section.duration("call-time");
    let cpu_time = match section.has("cpu-time") {
        true => section.duration("cpu-time"),
        // Who allows longer calls allows the plugin to compute in them.
        false => call_time.map(|call_time| LEAST_CPU_TIME.max(call_time / 2)),
    };
    let read = |name: &str| section.integer(name);
    let size = |name: &str| section.size(name);
    let (memory, transfer) = (small(size("memory")), small(size("transfer")));
    let (table_entries, core_instances) = (small(read("table-entries")), small(read("core-instances")));
    let (memories, tables) = (small(read("memories")), small(read("tables")));
    let checkpoint_cpu_time = section.duration("checkpoint-cpu-time");
    let (host_calls, handles) = (read("host-calls"), small(read("handles")));
    let (random, random_total) = (size("random"), size("random-total"));
    let (log_lines, log_bytes) = (read("log-lines"), size("log-bytes"));
    let (metric_names, metric_series) = (small(read("metric-names")), small(read("metric-series")));
    let (committable, state) = (small(size("committable")), small(size("state")));
    let (message, connections) = (small(size("message")), small(read("connections")));
    let (requests, lookups) = (read("requests"), read("lookups"));
    let (bytes_up, bytes_down) = (size("bytes-up"), size("bytes-down"));
    let header_bytes = small(size("header-bytes"));
    let (disk_bytes, disk_files) = (size("disk-bytes"), read("disk-files"));
    let flushes = read("flushes");
    Some(Limits {
        memory_bytes: memory?,
        table_entries: table_entries?,
        core_instances: core_instances?,
        memories: memories?,
        tables: tables?,
        call_time: call_time?,
        cpu_time: cpu_time?,
        checkpoint_cpu_time: checkpoint_cpu_time?,
        host_calls: host_calls?,
        transfer_bytes: transfer?,
        handles: handles?,
        random_bytes: random?,
        random_total: random_total?,
        log_lines: log_lines?,
        log_bytes: log_bytes?,
        metric_names: metric_names?,
        metric_series: metric_series?,
        committable_bytes: committable?,
        state_bytes: state?,
        message_bytes: message?,
        connections: connections?,
        requests: requests?,
        lookups: lookups?,
        bytes_up: bytes_up?,
        bytes_down: bytes_down?,
        header_bytes: header_bytes?,
        disk_bytes: disk_bytes?,
        disk_files: disk_files?,
        flushes: flushes?,
    })
}

const LEAST_CPU_TIME: Duration = Duration::from_secs(30);

/// `[tenants.NAME]`, but for what is shared out among the tenants: of that, what was written, else nothing.
pub(super) fn tenant(section: &Section<'_, '_>) -> Option<TenantLimits> {
    let (memory, instances) = (section.size("memory"), section.integer("instances"));
    let (connections, cpu_millis) = (section.integer("connections"), section.integer("cpu-millis"));
    let (log_lines, log_bytes) = (section.integer("log-lines"), section.size("log-bytes"));
    let metric_series = section.integer("metric-series");
    let (bytes_up, bytes_down) = (section.size("bytes-up"), section.size("bytes-down"));
    let flushes = section.integer("flushes");
    Some(TenantLimits {
        instances: instances.unwrap_or_default(),
        memory_bytes: memory.unwrap_or_default(),
        cpu_millis: cpu_millis.unwrap_or_default(),
        connections: connections.unwrap_or_default(),
        log_lines: log_lines?,
        log_bytes: log_bytes?,
        metric_series: metric_series?,
        bytes_up: bytes_up?,
        bytes_down: bytes_down?,
        flushes: flushes?,
        faults: FaultRules::default(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidegate_wasm::BUDGETS;

    use super::super::reader::{Absent, Document};
    use super::super::{host_tables, tables};
    use super::*;

    #[test]
    fn every_budget_has_a_key_and_every_key_is_a_budget() {
        let keys: BTreeSet<_> = tables::LIMITS.keys.iter().map(|key| key.name).collect();
        let budgets: BTreeSet<_> = BUDGETS.iter().map(|budget| budget.key).collect();
        assert_eq!(keys, budgets);
    }

    #[test]
    fn what_nobody_wrote_is_the_sandboxs_own_default() {
        let (document, empty) = (Document::new(""), toml::de::DeTable::new());
        let section = Section::new(&document, "sinks.out.limits", 0..0, &empty, tables::LIMITS);
        assert_eq!(limits(&section), Some(Limits::default()));
        let section = Section::new(&document, "tenants.a", 0..0, &empty, host_tables::TENANT);
        let (read, defaults) = (tenant(&section).unwrap(), TenantLimits::default());
        let shared = TenantLimits {
            instances: defaults.instances,
            memory_bytes: defaults.memory_bytes,
            cpu_millis: defaults.cpu_millis,
            connections: defaults.connections,
            ..read
        };
        assert_eq!(shared, defaults);
        assert!(tables::LIMITS.keys.iter().all(|key| key.absent != Absent::Required));
    }

    #[test]
    fn longer_calls_may_compute_longer() {
        let cpu_time = |written: &str| {
            let text = format!("[limits]\n{written}\n");
            let root = toml::de::DeTable::parse(&text).unwrap();
            let document = Document::new(&text);
            let table = root.get_ref().get("limits").unwrap().get_ref().as_table().unwrap();
            limits(&Section::new(&document, "limits", 0..0, table, tables::LIMITS)).unwrap().cpu_time
        };
        assert_eq!(cpu_time("call-time = \"1s\""), Duration::from_secs(30));
        assert_eq!(cpu_time("call-time = \"10m\""), Duration::from_secs(300));
        assert_eq!(cpu_time("call-time = \"10m\"\ncpu-time = \"2s\""), Duration::from_secs(2));
    }
}
