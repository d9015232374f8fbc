//! Who pays. A tenant is a group of pipelines that trust each other; its budgets are sums over all its instances.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{TenantLimits, budget};
use crate::quarantine::{MachineTime, Quarantine, QuarantineChange, Quarantined, Time};

/// A tenant of this process: its name, its budgets, and what it holds and has spent. Clones are the same tenant.
#[derive(Clone)]
pub struct Tenant(Arc<Inner>);

struct Inner {
    name: String,
    limits: TenantLimits,
    held: Mutex<BTreeMap<&'static str, u64>>,
    denied: Mutex<BTreeMap<&'static str, u64>>,
    quarantine: Quarantine,
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({})", self.0.name)
    }
}

impl Default for Tenant {
    /// The one that pipelines belong to which name none.
    fn default() -> Self {
        Self::new("default", TenantLimits::default())
    }
}

impl Tenant {
    /// A tenant that holds nothing yet.
    pub fn new(name: impl Into<String>, limits: TenantLimits) -> Self {
        Self::with_time(name, limits, Arc::new(MachineTime))
    }

    /// As [`Tenant::new`], with other clocks for what is held back after faults.
    pub fn with_time(name: impl Into<String>, limits: TenantLimits, time: Arc<dyn Time>) -> Self {
        let quarantine = Quarantine::new(limits.faults, time);
        let (held, denied) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { name: name.into(), limits, held, denied, quarantine }))
    }

    /// Its plugins of which no instances are made, because they failed too often.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.0.quarantine.list(&self.0.name)
    }

    /// Ends the quarantine of a plugin, given as `sha256:<hex>`; `false` if it is in none.
    pub fn lift_quarantine(&self, digest: &str) -> bool {
        self.0.quarantine.lift(digest)
    }

    /// Tells of every quarantine that begins or ends, while what this returns lives.
    pub fn watch_quarantine(&self, tell: impl Fn(&QuarantineChange) + Send + Sync + 'static) -> QuarantineWatch {
        QuarantineWatch { tenant: self.clone(), number: self.0.quarantine.subscribe(Box::new(tell)) }
    }

    pub(crate) fn quarantine(&self) -> &Quarantine {
        &self.0.quarantine
    }

    /// Its name, in faults, logs and metrics.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its budgets.
    pub fn limits(&self) -> &TenantLimits {
        &self.0.limits
    }

    /// Attempts at what was not granted, by the name of the interface or of the kind of grant.
    pub fn denied(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.0.denied).clone()
    }

    /// Counts an attempt at something that was not granted.
    pub(crate) fn count_denied(&self, what: &'static str) {
        let mut denied = lock(&self.0.denied);
        let count = denied.entry(what).or_default();
        *count = count.saturating_add(1);
    }

    /// Takes `amount` of something that the tenant holds for a while; `None` when its budget does not reach.
    pub(crate) fn hold(&self, budget: &'static str, amount: u64) -> Option<Held> {
        let limit = self.limit(budget);
        let mut held = lock(&self.0.held);
        let now = held.entry(budget).or_default();
        let sum = now.checked_add(amount).filter(|sum| *sum <= limit)?;
        *now = sum;
        Some(Held { tenant: self.clone(), budget, amount })
    }

    /// What it holds now of one budget.
    pub fn held(&self, budget: &str) -> u64 {
        lock(&self.0.held).get(budget).copied().unwrap_or(0)
    }

    fn limit(&self, budget: &'static str) -> u64 {
        let limits = &self.0.limits;
        match budget {
            budget::INSTANCES => limits.instances,
            budget::MEMORY => limits.memory_bytes,
            budget::CONNECTIONS => limits.connections,
            _ => u64::MAX,
        }
    }
}

/// Listens to a tenant's quarantines. Dropped, it listens no more.
#[derive(Debug)]
#[must_use]
pub struct QuarantineWatch {
    tenant: Tenant,
    number: u64,
}

impl Drop for QuarantineWatch {
    fn drop(&mut self) {
        self.tenant.0.quarantine.unsubscribe(self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that a tenant holds. Dropped, it is given back.
#[derive(Debug)]
pub(crate) struct Held {
    tenant: Tenant,
    budget: &'static str,
    amount: u64,
}

impl Held {
    /// Takes more of the same; `false`, and nothing taken, when the budget does not reach.
    pub(crate) fn grow(&mut self, amount: u64) -> bool {
        match self.tenant.hold(self.budget, amount) {
            Some(more) => {
                self.amount += more.amount;
                std::mem::forget(more);
                true
            }
            None => false,
        }
    }

    /// Gives a part of it back.
    pub(crate) fn shrink(&mut self, amount: u64) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        self.give_back(amount);
    }

    fn give_back(&self, amount: u64) {
        if let Some(held) = lock(&self.tenant.0.held).get_mut(self.budget) {
            *held = held.saturating_sub(amount);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}
