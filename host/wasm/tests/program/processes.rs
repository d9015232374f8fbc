//! Who works for whom, as the kernel says.

use std::fs;

/// Processes that `parent` started and that are at work: past everything that waits for the host.
pub(crate) fn workers_of(parent: u32) -> Vec<u32> {
    let children = fs::read_dir("/proc").unwrap().flatten();
    let ids = children.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| is_worker_of(*id, parent)).collect()
}

fn is_worker_of(id: u32, parent: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default();
    // One thread watches the host, another one compiles.
    field("PPid:") == parent.to_string() && field("Threads:").parse().is_ok_and(|threads: u32| threads > 1)
}
