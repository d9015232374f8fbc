//! What an instance may still do with the network. Shared with its streams, which count where bytes pass.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::limits::{Limits, budget};
use crate::tenant::{Held, Tenant};

/// The network budgets of one instance. Clones are the same.
#[derive(Clone)]
pub(crate) struct Traffic(Arc<Inner>);

struct Inner {
    tenant: Tenant,
    requests_left: AtomicU64,
    lookups_left: AtomicU64,
    up_left: AtomicU64,
    down_left: AtomicU64,
    open: AtomicUsize,
    most_open: usize,
    breach: Mutex<Option<&'static str>>,
}

/// The named budget is spent, and the call must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent(pub(crate) &'static str);

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the budget of {} is spent", self.0)
    }
}

impl std::error::Error for Spent {}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Traffic({:?}, open: {})", self.0.tenant, self.0.open.load(Ordering::Relaxed))
    }
}

impl Traffic {
    /// Nothing can be done before [`Traffic::begin_call`].
    pub(crate) fn new(tenant: Tenant, limits: &Limits) -> Self {
        Self(Arc::new(Inner {
            tenant,
            requests_left: AtomicU64::new(0),
            lookups_left: AtomicU64::new(0),
            up_left: AtomicU64::new(0),
            down_left: AtomicU64::new(0),
            open: AtomicUsize::new(0),
            most_open: limits.connections,
            breach: Mutex::new(None),
        }))
    }

    /// Fills the budgets for one call.
    pub(crate) fn begin_call(&self, limits: &Limits) {
        self.0.requests_left.store(limits.requests, Ordering::Relaxed);
        self.0.lookups_left.store(limits.lookups, Ordering::Relaxed);
        self.0.up_left.store(limits.bytes_up, Ordering::Relaxed);
        self.0.down_left.store(limits.bytes_down, Ordering::Relaxed);
        *self.breach_slot() = None;
    }

    /// The budget that was overdrawn in this call.
    pub(crate) fn breach(&self) -> Option<&'static str> {
        *self.breach_slot()
    }

    fn breach_slot(&self) -> std::sync::MutexGuard<'_, Option<&'static str>> {
        self.0.breach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overdraw(&self, budget: &'static str) -> Spent {
        Spent(self.breach_slot().get_or_insert(budget))
    }

    fn take(&self, left: &AtomicU64, amount: u64, budget: &'static str) -> Result<(), Spent> {
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(amount)) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.overdraw(budget)),
        }
    }

    /// One connection begun, or one request sent.
    pub(crate) fn request(&self) -> Result<(), Spent> {
        self.take(&self.0.requests_left, 1, budget::REQUESTS)
    }

    /// One name looked up.
    pub(crate) fn lookup(&self) -> Result<(), Spent> {
        self.take(&self.0.lookups_left, 1, budget::LOOKUPS)
    }

    /// Bytes about to be sent.
    pub(crate) fn up(&self, bytes: usize) -> Result<(), Spent> {
        self.take(&self.0.up_left, bytes as u64, budget::BYTES_UP)?;
        self.of_tenant(budget::BYTES_UP, bytes, budget::TENANT_BYTES_UP)
    }

    /// Bytes that have arrived.
    pub(crate) fn down(&self, bytes: usize) -> Result<(), Spent> {
        self.take(&self.0.down_left, bytes as u64, budget::BYTES_DOWN)?;
        self.of_tenant(budget::BYTES_DOWN, bytes, budget::TENANT_BYTES_DOWN)
    }

    fn of_tenant(&self, rate: &'static str, bytes: usize, name: &'static str) -> Result<(), Spent> {
        self.0.tenant.spend(rate, bytes as u64).map_err(|_| self.overdraw(name))
    }

    /// Who pays.
    pub(crate) fn tenant(&self) -> &Tenant {
        &self.0.tenant
    }

    /// Whether nothing is open.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) == 0
    }

    /// Whether the instance has as many connections open as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.0.open.load(Ordering::Relaxed) >= self.0.most_open
    }

    /// The right to one connection, given back when it is dropped. `Ok(None)`: others of the tenant have taken all that
    /// the tenant may have.
    pub(crate) fn open(&self) -> Result<Option<Slot>, Spent> {
        let within = |open: usize| (open < self.0.most_open).then(|| open + 1);
        if self.0.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_err() {
            return Err(self.overdraw(budget::CONNECTIONS));
        }
        let held = self.0.tenant.hold(budget::CONNECTIONS, 1);
        let slot = Slot { traffic: self.clone(), held };
        Ok(slot.held.is_some().then_some(slot))
    }
}

/// One connection of an instance and of its tenant.
#[derive(Debug)]
pub(crate) struct Slot {
    traffic: Traffic,
    held: Option<Held>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.traffic.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TenantLimits;

    fn traffic(limits: &Limits, tenant: &Tenant) -> Traffic {
        let traffic = Traffic::new(tenant.clone(), limits);
        traffic.begin_call(limits);
        traffic
    }

    #[test]
    fn an_overdrawn_budget_is_named_until_the_next_call() {
        let limits = Limits { bytes_up: 10, lookups: 1, ..Limits::default() };
        let traffic = traffic(&limits, &Tenant::default());
        assert_eq!(traffic.up(10), Ok(()));
        assert_eq!(traffic.breach(), None);
        assert_eq!(traffic.up(1), Err(Spent(budget::BYTES_UP)));
        assert_eq!(traffic.lookup(), Ok(()));
        assert_eq!(traffic.lookup(), Err(Spent(budget::BYTES_UP)), "the first one ended the call");
        traffic.begin_call(&limits);
        assert_eq!((traffic.breach(), traffic.up(10)), (None, Ok(())));
    }

    #[test]
    fn instances_of_a_tenant_share_its_bytes() {
        let tenant = Tenant::new("t", TenantLimits { bytes_up: 10, bytes_down: 5, ..TenantLimits::default() });
        let limits = Limits::default();
        let (one, other) = (traffic(&limits, &tenant), traffic(&limits, &tenant));
        assert_eq!((one.up(8), other.up(2), one.down(5)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(other.up(1), Err(Spent(budget::TENANT_BYTES_UP)));
        assert_eq!(one.down(1), Err(Spent(budget::TENANT_BYTES_DOWN)));
    }

    #[test]
    fn connections_are_given_back() {
        let tenant = Tenant::new("t", TenantLimits { connections: 2, ..TenantLimits::default() });
        let limits = Limits { connections: 2, ..Limits::default() };
        let (one, other) = (traffic(&limits, &tenant), traffic(&limits, &tenant));
        let slots = [one.open().unwrap().unwrap(), one.open().unwrap().unwrap()];
        assert!(other.open().unwrap().is_none(), "the tenant has no more");
        assert_eq!(other.breach(), None, "and the other instance is not to blame");
        assert_eq!(one.open().unwrap_err(), Spent(budget::CONNECTIONS));
        drop(slots);
        assert_eq!(tenant.held(budget::CONNECTIONS), 0);
        one.begin_call(&limits);
        assert!(one.open().unwrap().is_some());
    }
}
