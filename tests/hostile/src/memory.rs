//! Memory of this process, as the kernel counts it.

use std::fs;

/// Bytes resident now.
///
/// # Errors
/// The kernel does not say.
pub fn resident() -> Result<u64, String> {
    field("VmRSS:")
}

/// The most that was resident since [`forget_peak`], in bytes.
///
/// # Errors
/// The kernel does not say.
pub fn peak() -> Result<u64, String> {
    field("VmHWM:")
}

/// Lets [`peak`] begin anew.
///
/// # Errors
/// The kernel does not do that.
pub fn forget_peak() -> Result<(), String> {
    fs::write("/proc/self/clear_refs", "5").map_err(|e| format!("/proc/self/clear_refs: {e}"))
}

fn field(name: &str) -> Result<u64, String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|e| format!("/proc/self/status: {e}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    Ok(kib.ok_or_else(|| format!("/proc/self/status has no {name}"))? << 10)
}
