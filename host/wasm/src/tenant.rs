//! Who pays. A tenant is a group of pipelines that trust each other; its budgets are sums over all its instances.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tidegate_protocol::plugin::FaultKind;

use crate::host::log::LogBudget;
use crate::limits::{TenantLimits, Unit, budget};
use crate::pace::Pace;
use crate::quarantine::{MachineTime, Quarantine, QuarantineChange, Quarantined, Time};
use crate::rate::Rate;
use crate::sync::lock;

/// A tenant of this process: its name, its budgets, and what it holds and has spent. Clones are the same tenant.
#[derive(Clone)]
pub struct Tenant(Arc<Inner>);

struct Inner {
    name: String,
    limits: TenantLimits,
    books: Mutex<Books>,
    rates: Mutex<BTreeMap<&'static str, Rate>>,
    log: Arc<LogBudget>,
    pace: Pace,
    series: Mutex<BTreeSet<u64>>,
    /// So that nobody can make up two series that look like one.
    hash: RandomState,
    quarantine: Quarantine,
}

#[derive(Default)]
struct Books {
    held: BTreeMap<&'static str, Holding>,
    spent: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, u64>,
    denied: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
}

fn add(counts: &mut BTreeMap<&'static str, u64>, what: &'static str, amount: u64) {
    let count = counts.entry(what).or_default();
    *count = count.saturating_add(amount);
}

/// What a tenant has of something that is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Holding {
    /// Now.
    pub now: u64,
    /// Ever.
    pub most: u64,
}

/// What a tenant holds, has spent and was refused since the process began. Budgets are named as in faults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantUsage {
    /// What it holds: instances, bytes of memory, connections, metric series.
    pub held: BTreeMap<&'static str, Holding>,
    /// What it has spent of its rates: bytes up and down, flushes, log lines and bytes.
    pub spent: BTreeMap<&'static str, u64>,
    /// Processor time of its plugins.
    pub cpu_time: Duration,
    /// Time that its instances have waited because its share of the processors was spent, summed over them.
    pub waited: Duration,
    /// How often a budget of the tenant did not reach.
    pub refused: BTreeMap<&'static str, u64>,
    /// Attempts at what was not granted, by the name of the interface or of the kind of grant.
    pub denied: BTreeMap<&'static str, u64>,
    /// Calls that ended otherwise than with an answer of the plugin: by the budget, or by the kind of fault.
    pub faults: BTreeMap<&'static str, u64>,
}

/// A rate of a tenant is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    /// Which.
    pub(crate) budget: &'static str,
    /// In what time there is more.
    pub(crate) again_in: Duration,
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tenant({})", self.0.name)
    }
}

impl Default for Tenant {
    /// The one that pipelines belong to which name none.
    fn default() -> Self {
        Self::new(Self::DEFAULT, TenantLimits::default())
    }
}

const MINUTE: Duration = Duration::from_secs(60);

impl Tenant {
    /// Name of the tenant that pipelines belong to which name none.
    pub const DEFAULT: &str = "default";

    /// A tenant that holds nothing yet.
    pub fn new(name: impl Into<String>, limits: TenantLimits) -> Self {
        Self::with_time(name, limits, Arc::new(MachineTime))
    }

    /// As [`Tenant::new`], with other clocks for what is held back after faults.
    pub fn with_time(name: impl Into<String>, limits: TenantLimits, time: Arc<dyn Time>) -> Self {
        let rates = BTreeMap::from([
            (budget::BYTES_UP, Rate::new(limits.bytes_up, MINUTE)),
            (budget::BYTES_DOWN, Rate::new(limits.bytes_down, MINUTE)),
            (budget::FLUSHES, Rate::new(limits.flushes, Duration::from_secs(1))),
        ]);
        Self(Arc::new(Inner {
            name: name.into(),
            books: Mutex::default(),
            rates: Mutex::new(rates),
            log: Arc::new(LogBudget::new(limits.log_lines, limits.log_bytes)),
            pace: Pace::new(limits.cpu_millis),
            series: Mutex::default(),
            hash: RandomState::new(),
            quarantine: Quarantine::new(limits.faults, time),
            limits,
        }))
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

    /// What it holds, has spent and was refused.
    pub fn usage(&self) -> TenantUsage {
        let (cpu_time, waited) = self.0.pace.so_far();
        let series = lock(&self.0.series).len() as u64;
        let books = self.books();
        let mut held = books.held.clone();
        held.insert(budget::METRIC_SERIES, Holding { now: series, most: series });
        TenantUsage {
            held,
            spent: books.spent.clone(),
            cpu_time,
            waited,
            refused: books.refused.clone(),
            denied: books.denied.clone(),
            faults: books.faults.clone(),
        }
    }

    /// Attempts at what was not granted, by the name of the interface or of the kind of grant.
    pub fn denied(&self) -> BTreeMap<&'static str, u64> {
        self.books().denied.clone()
    }

    /// Counts an attempt at something that was not granted.
    pub(crate) fn count_denied(&self, what: &'static str) {
        add(&mut self.books().denied, what, 1);
    }

    /// Counts a call that has no answer of the plugin.
    pub(crate) fn count_fault(&self, kind: &FaultKind) {
        let name = match kind {
            FaultKind::Budget(budget) => budget,
            FaultKind::Trap => "trap",
            FaultKind::Timeout => "timeout",
            FaultKind::Malformed => "malformed answer",
            FaultKind::AnswerLost => "lost answer",
            FaultKind::Host => "host",
            FaultKind::Quarantined => "quarantined",
            FaultKind::Error(_) => return,
        };
        add(&mut self.books().faults, name, 1);
    }

    /// Counts attempts that were made in a child process.
    pub(crate) fn add_denied(&self, what: &str, attempts: u64) {
        add(&mut self.books().denied, denial(what), attempts);
    }

    /// Takes `amount` of something that the tenant holds for a while; `None` when its budget does not reach.
    pub(crate) fn hold(&self, budget: &'static str, amount: u64) -> Option<Held> {
        self.take(budget, amount).then(|| Held { tenant: self.clone(), budget, amount })
    }

    /// To be grown.
    pub(crate) fn hold_none(&self, budget: &'static str) -> Held {
        Held { tenant: self.clone(), budget, amount: 0 }
    }

    /// What it holds now of one budget.
    pub fn held(&self, budget: &str) -> u64 {
        self.books().held.get(budget).map_or(0, |holding| holding.now)
    }

    /// Spends `amount` of a rate: [`budget::BYTES_UP`] and [`budget::BYTES_DOWN`] per minute, [`budget::FLUSHES`] per
    /// second. All of it or nothing.
    pub(crate) fn spend(&self, budget: &'static str, amount: u64) -> Result<(), Spent> {
        self.spend_at(budget, amount, Instant::now())
    }

    fn spend_at(&self, budget: &'static str, amount: u64, now: Instant) -> Result<(), Spent> {
        let taken = lock(&self.0.rates).get_mut(budget).map_or(Ok(()), |rate| rate.take(amount, now));
        self.note_spent(budget, taken.is_ok().then_some(amount));
        taken.map_err(|again_in| Spent { budget, again_in })
    }

    /// Counts what was spent of a budget that is looked after elsewhere; `None`: it did not reach.
    pub(crate) fn note_spent(&self, budget: &'static str, amount: Option<u64>) {
        let mut books = self.books();
        match amount {
            Some(amount) => add(&mut books.spent, budget, amount),
            None => add(&mut books.refused, budget, 1),
        }
    }

    /// What all its plugins may log.
    pub(crate) fn log(&self) -> &LogBudget {
        &self.0.log
    }

    /// Whether so many instances, which may use so much memory together, are within its budgets.
    ///
    /// # Errors
    /// A sentence with both figures.
    pub fn check(&self, instances: u64, memory_bytes: u64) -> Result<(), String> {
        let limits = &self.0.limits;
        let figures = [
            ("instances", instances, limits.instances, Unit::Count),
            ("memory", memory_bytes, limits.memory_bytes, Unit::Bytes),
        ];
        match figures.into_iter().find(|(_, needs, has, _)| needs > has) {
            None => Ok(()),
            Some((what, needs, has, unit)) => {
                let (needs, has) = (unit.show(needs), unit.show(has));
                Err(format!("of `{what}` up to {needs} are needed, and tenant `{}` has {has}", self.0.name))
            }
        }
    }

    /// Its share of the processors.
    pub(crate) fn pace(&self) -> &Pace {
        &self.0.pace
    }

    /// Whether a metric series is one of the tenant's, or may become one. It stays one: whoever keeps metrics keeps it.
    pub(crate) fn admit_series(&self, series: &impl Hash) -> bool {
        let series = self.0.hash.hash_one(series);
        let mut known = lock(&self.0.series);
        if known.contains(&series) {
            return true;
        }
        let fits = (known.len() as u64) < self.0.limits.metric_series;
        if fits {
            known.insert(series);
        } else {
            self.note_spent(budget::METRIC_SERIES, None);
        }
        fits
    }

    fn take(&self, budget: &'static str, amount: u64) -> bool {
        let limit = self.limit(budget);
        let mut books = self.books();
        let holding = books.held.entry(budget).or_default();
        match holding.now.checked_add(amount).filter(|sum| *sum <= limit) {
            Some(sum) => {
                *holding = Holding { now: sum, most: holding.most.max(sum) };
                true
            }
            None => {
                add(&mut books.refused, budget, 1);
                false
            }
        }
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

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.0.books)
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

/// The name of a kind of denial, as this process knows it.
fn denial(what: &str) -> &'static str {
    const KINDS: [&str; 5] = ["dir", "tcp", "http", "secret", "name"];
    let mut known = crate::screen::WASI_INTERFACES.iter().chain(&KINDS).copied();
    known.find(|known| *known == what).unwrap_or("other")
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
        let taken = self.tenant.take(self.budget, amount);
        if taken {
            self.amount = self.amount.saturating_add(amount);
        }
        taken
    }

    /// Gives a part of it back.
    pub(crate) fn shrink(&mut self, amount: u64) {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        self.give_back(amount);
    }

    /// What the tenant holds of it in all.
    pub(crate) fn of_tenant(&self) -> u64 {
        self.tenant.held(self.budget)
    }

    fn give_back(&self, amount: u64) {
        if let Some(holding) = self.tenant.books().held.get_mut(self.budget) {
            holding.now = holding.now.saturating_sub(amount);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(limits: TenantLimits) -> Tenant {
        Tenant::new("acme", limits)
    }

    #[test]
    fn what_is_held_is_bounded_and_comes_back() {
        let tenant = tenant(TenantLimits { connections: 3, ..TenantLimits::default() });
        let mut two = tenant.hold(budget::CONNECTIONS, 2).unwrap();
        assert!(tenant.hold(budget::CONNECTIONS, 2).is_none());
        assert!(two.grow(1) && !two.grow(1));
        two.shrink(2);
        assert_eq!(tenant.held(budget::CONNECTIONS), 1);
        drop(two);
        let usage = tenant.usage();
        assert_eq!(usage.held[budget::CONNECTIONS], Holding { now: 0, most: 3 });
        assert_eq!(usage.refused[budget::CONNECTIONS], 2);
    }

    #[test]
    fn rates_say_when_there_is_more() {
        let tenant = tenant(TenantLimits { bytes_up: 100, flushes: 1, ..TenantLimits::default() });
        let start = Instant::now();
        assert_eq!(tenant.spend_at(budget::BYTES_UP, 100, start), Ok(()));
        let spent = Spent { budget: budget::BYTES_UP, again_in: Duration::from_secs(50) };
        assert_eq!(tenant.spend_at(budget::BYTES_UP, 1, start + Duration::from_secs(10)), Err(spent));
        assert_eq!(tenant.spend_at(budget::BYTES_UP, 1, start + MINUTE), Ok(()));
        assert_eq!(tenant.spend_at(budget::FLUSHES, 1, start), Ok(()));
        assert!(tenant.spend_at(budget::FLUSHES, 1, start).is_err());
        let usage = tenant.usage();
        assert_eq!((usage.spent[budget::BYTES_UP], usage.refused[budget::BYTES_UP]), (101, 1));
    }

    #[test]
    fn a_metric_series_counts_once_and_for_good() {
        let tenant = tenant(TenantLimits { metric_series: 2, ..TenantLimits::default() });
        assert!(tenant.admit_series(&("out", "a")) && tenant.admit_series(&("out", "b")));
        assert!(tenant.admit_series(&("out", "a")));
        assert!(!tenant.admit_series(&("out", "c")));
        let usage = tenant.usage();
        assert_eq!(usage.held[budget::METRIC_SERIES].now, 2);
        assert_eq!(usage.refused[budget::METRIC_SERIES], 1);
    }

    #[test]
    fn faults_are_counted_by_budget_or_kind() {
        let tenant = tenant(TenantLimits::default());
        for kind in [FaultKind::Trap, FaultKind::Budget(budget::CPU), FaultKind::Trap] {
            tenant.count_fault(&kind);
        }
        assert_eq!(tenant.usage().faults, BTreeMap::from([("trap", 2), (budget::CPU, 1)]));
    }
}
