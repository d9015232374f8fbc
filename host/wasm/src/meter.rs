//! What an instance has spent, and the moment it is too much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use wasmtime::{ResourceLimiter, UpdateDeadline};

use crate::limits::{Limits, budget};
use crate::net::traffic::Traffic;

/// Stops an instance from outside: its code ends at the next tick.
#[derive(Debug, Clone, Default)]
pub(crate) struct KillSwitch(Arc<AtomicBool>);

impl KillSwitch {
    pub(crate) fn kill(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_killed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Processor time of this thread so far. An instance lives on one thread, which does nothing else: neither waiting for a
/// disk nor for a busy machine counts.
fn thread_time() -> Duration {
    // The clock of one's own thread never runs backwards from before its start.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Time and host calls of the running call.
#[derive(Debug)]
pub(crate) struct Meter {
    kill: KillSwitch,
    /// [`thread_time`] when the call began.
    cpu_start: Duration,
    /// What [`thread_time`] may come to.
    cpu_end: Duration,
    host_calls_left: u64,
    /// A host call has begun, and the plugin's own code has not run for a tick since.
    in_host: bool,
    /// Counts by itself.
    traffic: Traffic,
    breach: Option<&'static str>,
}

impl Meter {
    pub(crate) fn new(kill: KillSwitch, traffic: Traffic) -> Self {
        Self {
            kill,
            cpu_start: Duration::ZERO,
            cpu_end: Duration::ZERO,
            host_calls_left: 0,
            in_host: false,
            traffic,
            breach: None,
        }
    }

    /// Fills the budgets for one call.
    pub(crate) fn begin_call(&mut self, limits: &Limits) {
        self.cpu_start = thread_time();
        self.cpu_end = self.cpu_start.saturating_add(limits.cpu_time);
        self.host_calls_left = limits.host_calls;
        self.in_host = false;
        self.breach = None;
    }

    /// Processor time of this call so far. To be asked on the instance's own thread.
    pub(crate) fn computed(&self) -> Duration {
        thread_time().saturating_sub(self.cpu_start)
    }

    /// Whether the host is at work for it, or has been less than a tick ago.
    pub(crate) fn in_host(&self) -> bool {
        self.in_host
    }

    /// The budget that was overdrawn in this call.
    pub(crate) fn breach(&self) -> Option<&'static str> {
        self.breach.or_else(|| self.traffic.breach())
    }

    /// One call into the host. WASI's functions cannot be stopped from here; the next tick ends the instance.
    pub(crate) fn count_host_call(&mut self) {
        self.in_host = true;
        match self.host_calls_left.checked_sub(1) {
            Some(left) => self.host_calls_left = left,
            None => self.breach = self.breach.or(Some(budget::HOST_CALLS)),
        }
    }

    /// Like [`Meter::count_host_call`], for the host's own functions, which can refuse at once.
    pub(crate) fn check(&self) -> wasmtime::Result<()> {
        match self.breach() {
            Some(budget) => Err(wasmtime::format_err!("the budget of {budget} is spent")),
            None => Ok(()),
        }
    }

    /// One tick passed while the plugin's code ran.
    pub(crate) fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        self.in_host = false;
        if self.kill.is_killed() {
            return Err(wasmtime::format_err!("the instance was closed"));
        }
        if thread_time() > self.cpu_end {
            self.breach = self.breach.or(Some(budget::CPU));
        }
        self.check()?;
        // Yielding lets the instance's thread see a timeout or a cancelled call.
        Ok(UpdateDeadline::Yield(1))
    }
}

/// Memory of an instance: all linear memories and tables together.
#[derive(Debug)]
pub(crate) struct MemoryMeter {
    limit_bytes: usize,
    limit_entries: usize,
    instances: usize,
    memories: usize,
    tables: usize,
    bytes: usize,
    entries: usize,
    last_growth: usize,
    denied: bool,
}

/// A table entry is a pointer, plus what wasmtime keeps for lazy initialisation.
const BYTES_PER_ENTRY: usize = 16;

impl MemoryMeter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            limit_bytes: limits.memory_bytes,
            limit_entries: limits.table_entries,
            instances: limits.core_instances,
            memories: limits.memories,
            tables: limits.tables,
            bytes: 0,
            entries: 0,
            last_growth: 0,
            denied: false,
        }
    }

    pub(crate) fn begin_call(&mut self) {
        self.denied = false;
    }

    /// All that is in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether growth was refused in this call. Most languages answer that with a trap.
    pub(crate) fn denied(&self) -> bool {
        self.denied
    }

    fn take(&mut self, bytes: usize) -> bool {
        match self.bytes.checked_add(bytes) {
            Some(sum) if sum <= self.limit_bytes => {
                self.bytes = sum;
                self.last_growth = bytes;
                true
            }
            _ => {
                self.denied = true;
                self.last_growth = 0;
                false
            }
        }
    }

    fn give_back(&mut self) {
        self.bytes -= self.last_growth;
        self.last_growth = 0;
    }
}

impl ResourceLimiter for MemoryMeter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(self.take(desired.saturating_sub(current)))
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.give_back();
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        let growth = desired.saturating_sub(current);
        let Some(entries) = self.entries.checked_add(growth).filter(|sum| *sum <= self.limit_entries) else {
            self.denied = true;
            self.last_growth = 0;
            return Ok(false);
        };
        // Below the limit on entries this product is far from an overflow.
        let taken = self.take(growth.saturating_mul(BYTES_PER_ENTRY));
        if taken {
            self.entries = entries;
        }
        Ok(taken)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.entries -= self.last_growth / BYTES_PER_ENTRY;
        self.give_back();
        Ok(())
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables
    }

    fn memories(&self) -> usize {
        self.memories
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_share_one_budget() {
        let mut meter = MemoryMeter::new(&Limits { memory_bytes: 3 << 16, table_entries: 10_000, ..Limits::default() });
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(!meter.table_growing(0, 5_000, None).unwrap(), "80 kB do not fit beside two pages");
        assert!(meter.table_growing(0, 4_000, None).unwrap());
        assert!(!meter.memory_growing(1 << 16, 2 << 16, None).unwrap());
        assert!(meter.denied());
    }

    #[test]
    fn growth_that_failed_is_given_back() {
        let mut meter = MemoryMeter::new(&Limits { memory_bytes: 1 << 16, ..Limits::default() });
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
        meter.memory_grow_failed(wasmtime::format_err!("no memory")).unwrap();
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
    }
}
