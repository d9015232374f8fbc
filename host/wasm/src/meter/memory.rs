//! Memory of an instance, and what it holds of its tenant's.

use wasmtime::ResourceLimiter;

use crate::limits::{Limits, Unit, budget};
use crate::tenant::{Held, Tenant};

/// All linear memories and tables of an instance together.
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
    /// The same bytes, at the tenant.
    held: Held,
    tenant_limit: u64,
    denied: Option<Denied>,
}

/// A growth that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Denied {
    pub(crate) budget: &'static str,
    /// What there would have been.
    asked: u64,
    limit: u64,
    unit: Unit,
}

impl Denied {
    pub(crate) fn figures(&self) -> String {
        format!("{} where {} are allowed", self.unit.show(self.asked), self.unit.show(self.limit))
    }
}

/// A table entry is a pointer, plus what wasmtime keeps for lazy initialisation.
const BYTES_PER_ENTRY: usize = 16;

impl MemoryMeter {
    pub(crate) fn new(limits: &Limits, tenant: &Tenant) -> Self {
        Self {
            limit_bytes: limits.memory_bytes,
            limit_entries: limits.table_entries,
            instances: limits.core_instances,
            memories: limits.memories,
            tables: limits.tables,
            bytes: 0,
            entries: 0,
            last_growth: 0,
            held: tenant.hold_none(budget::MEMORY),
            tenant_limit: tenant.limits().memory_bytes,
            denied: None,
        }
    }

    pub(crate) fn begin_call(&mut self) {
        self.denied = None;
    }

    /// All that is in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The growth that was refused in this call. Most languages answer that with a trap.
    pub(crate) fn denied(&self) -> Option<Denied> {
        self.denied
    }

    fn deny(&mut self, budget: &'static str, asked: usize, limit: u64, unit: Unit) -> bool {
        self.denied = Some(Denied { budget, asked: asked as u64, limit, unit });
        self.last_growth = 0;
        false
    }

    fn take(&mut self, bytes: usize) -> bool {
        let sum = self.bytes.saturating_add(bytes);
        if sum > self.limit_bytes {
            return self.deny(budget::MEMORY, sum, self.limit_bytes as u64, Unit::Bytes);
        }
        if !self.held.grow(bytes as u64) {
            let asked = usize::try_from(self.held.of_tenant()).unwrap_or(usize::MAX).saturating_add(bytes);
            return self.deny(budget::TENANT_MEMORY, asked, self.tenant_limit, Unit::Bytes);
        }
        self.bytes = sum;
        self.last_growth = bytes;
        true
    }

    fn give_back(&mut self) {
        self.bytes -= self.last_growth;
        self.held.shrink(self.last_growth as u64);
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
        let entries = self.entries.saturating_add(growth);
        if entries > self.limit_entries {
            return Ok(self.deny(budget::TABLE_ENTRIES, entries, self.limit_entries as u64, Unit::Count));
        }
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
    use crate::limits::TenantLimits;

    fn meter(limits: Limits) -> MemoryMeter {
        MemoryMeter::new(&limits, &Tenant::default())
    }

    #[test]
    fn memories_and_tables_share_one_budget() {
        let mut meter = meter(Limits { memory_bytes: 3 << 16, table_entries: 10_000, ..Limits::default() });
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
        assert!(!meter.table_growing(0, 5_000, None).unwrap(), "80 kB do not fit beside two pages");
        assert!(meter.table_growing(0, 4_000, None).unwrap());
        assert!(!meter.memory_growing(1 << 16, 2 << 16, None).unwrap());
        let denied = meter.denied().unwrap();
        assert_eq!(denied.budget, budget::MEMORY);
        assert_eq!(denied.figures(), "254.5 KiB where 192 KiB are allowed");
    }

    #[test]
    fn entries_of_tables_are_a_budget_of_their_own() {
        let mut meter = meter(Limits { table_entries: 100, ..Limits::default() });
        assert!(meter.table_growing(0, 100, None).unwrap());
        assert!(!meter.table_growing(0, 1, None).unwrap());
        let denied = meter.denied().unwrap();
        assert_eq!((denied.budget, denied.figures().as_str()), (budget::TABLE_ENTRIES, "101 where 100 are allowed"));
        meter.begin_call();
        assert_eq!(meter.denied(), None);
    }

    #[test]
    fn growth_that_failed_is_given_back() {
        let mut meter = meter(Limits { memory_bytes: 1 << 16, ..Limits::default() });
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
        meter.memory_grow_failed(wasmtime::format_err!("no memory")).unwrap();
        assert!(meter.memory_growing(0, 1 << 16, None).unwrap());
    }

    #[test]
    fn instances_of_one_tenant_share_its_memory() {
        let tenant = Tenant::new("t", TenantLimits { memory_bytes: 3 << 16, ..TenantLimits::default() });
        let mut one = MemoryMeter::new(&Limits::default(), &tenant);
        let mut other = MemoryMeter::new(&Limits::default(), &tenant);
        assert!(one.memory_growing(0, 2 << 16, None).unwrap());
        assert!(!other.memory_growing(0, 2 << 16, None).unwrap());
        let denied = other.denied().unwrap();
        assert_eq!(denied.budget, budget::TENANT_MEMORY);
        assert_eq!(denied.figures(), "256 KiB where 192 KiB are allowed");
        one.memory_grow_failed(wasmtime::format_err!("no memory")).unwrap();
        assert!(other.memory_growing(0, 2 << 16, None).unwrap());
        assert_eq!(tenant.held(budget::MEMORY), 2 << 16);
        drop(other);
        assert_eq!(tenant.held(budget::MEMORY), 0);
    }
}
