//! What an instance has spent, and the moment it is too much.

mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wasmtime::UpdateDeadline;

use crate::limits::{Limits, Unit, budget};
use crate::net::traffic::Traffic;
use crate::tenant::Tenant;

pub(crate) use memory::MemoryMeter;

/// Stops an instance from outside: its code ends at the next tick.
#[derive(Debug, Clone, Default)]
pub(crate) struct KillSwitch(Arc<AtomicBool>);

impl KillSwitch {
    pub(crate) fn kill(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Processor time of this thread so far. An instance lives on one thread, which does nothing else: neither waiting for a
/// disk nor for a busy machine counts.
fn thread_time() -> Duration {
    // The clock of one's own thread never runs backwards from before its start.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Time, host calls and random bytes of the running call.
#[derive(Debug)]
pub(crate) struct Meter {
    kill: KillSwitch,
    tenant: Tenant,
    /// [`thread_time`] when the call began.
    cpu_start: Duration,
    /// What [`thread_time`] may come to in this call.
    cpu_end: Duration,
    /// And before the next checkpoint begins; `None` while no part has begun.
    checkpoint_end: Option<Duration>,
    /// Up to where it was charged to the tenant.
    charged: Duration,
    host_calls_left: u64,
    /// A host call has begun, and the plugin's own code has not run for a tick since.
    in_host: bool,
    /// Counts by itself.
    traffic: Traffic,
    random_once: u64,
    random_left: u64,
    breach: Option<&'static str>,
    /// How much was asked for and how much there is, where that is known.
    figures: Option<String>,
}

impl Meter {
    pub(crate) fn new(kill: KillSwitch, tenant: Tenant, traffic: Traffic) -> Self {
        Self {
            kill,
            tenant,
            cpu_start: Duration::ZERO,
            cpu_end: Duration::ZERO,
            checkpoint_end: None,
            charged: thread_time(),
            host_calls_left: 0,
            in_host: false,
            traffic,
            random_once: 0,
            random_left: 0,
            breach: None,
            figures: None,
        }
    }

    /// Fills the budgets for one call.
    pub(crate) fn begin_call(&mut self, limits: &Limits) {
        self.cpu_start = thread_time();
        self.cpu_end = self.cpu_start.saturating_add(limits.cpu_time);
        self.host_calls_left = limits.host_calls;
        self.in_host = false;
        self.random_once = limits.random_bytes;
        self.random_left = limits.random_total;
        self.breach = None;
        self.figures = None;
    }

    /// A call is over, well or not.
    pub(crate) fn end_call(&mut self) {
        self.look_at_time();
    }

    /// From here on processor time counts for another checkpoint.
    pub(crate) fn begin_checkpoint(&mut self, limits: &Limits) {
        self.checkpoint_end = Some(thread_time().saturating_add(limits.checkpoint_cpu_time));
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

    /// By how much, in words.
    pub(crate) fn figures(&self) -> Option<&str> {
        self.figures.as_deref()
    }

    /// Notes that a budget is overdrawn: the call ends as such a fault, whatever it answers. The error ends it at once.
    pub(crate) fn overdraw(&mut self, budget: &'static str) -> wasmtime::Error {
        let budget = self.breach().unwrap_or(budget);
        self.breach = Some(budget);
        wasmtime::format_err!("the budget of {budget} is spent")
    }

    /// Refuses what goes beyond a budget that has a bound for one piece.
    pub(crate) fn bound(&mut self, budget: &'static str, asked: u64, limit: u64, unit: Unit) -> wasmtime::Result<()> {
        if asked <= limit {
            return Ok(());
        }
        if self.breach().is_none() {
            self.figures = Some(format!("{} where {} are allowed", unit.show(asked), unit.show(limit)));
        }
        Err(self.overdraw(budget))
    }

    /// One call into the host. WASI's functions cannot be stopped from here; the next tick ends the instance.
    pub(crate) fn count_host_call(&mut self) {
        self.in_host = true;
        match self.host_calls_left.checked_sub(1) {
            Some(left) => self.host_calls_left = left,
            None => {
                self.overdraw(budget::HOST_CALLS);
            }
        }
    }

    /// Like [`Meter::count_host_call`], for the host's own functions, which can refuse at once.
    pub(crate) fn check(&self) -> wasmtime::Result<()> {
        match self.breach() {
            Some(budget) => Err(wasmtime::format_err!("the budget of {budget} is spent")),
            None => Ok(()),
        }
    }

    /// Random bytes that are asked for.
    pub(crate) fn take_random(&mut self, bytes: u64) -> wasmtime::Result<()> {
        self.check()?;
        self.bound(budget::RANDOM, bytes, self.random_once, Unit::Bytes)?;
        match self.random_left.checked_sub(bytes) {
            Some(left) => self.random_left = left,
            None => return Err(self.overdraw(budget::RANDOM_TOTAL)),
        }
        Ok(())
    }

    /// Charges the time since the last look to the tenant, and compares it with the budgets.
    fn look_at_time(&mut self) {
        let now = thread_time();
        self.tenant.pace().spend(now.saturating_sub(self.charged), Instant::now());
        self.charged = now;
        if now > self.cpu_end {
            self.overdraw(budget::CPU);
        }
        if self.checkpoint_end.is_some_and(|end| now > end) {
            self.overdraw(budget::CHECKPOINT_CPU);
        }
    }

    /// One tick passed while the plugin's code ran. It may go on, perhaps after a while: waiting counts as time of the
    /// call, and not as processor time.
    pub(crate) fn tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        self.in_host = false;
        if self.kill.is_killed() {
            return Err(wasmtime::format_err!("the instance was closed"));
        }
        self.look_at_time();
        self.check()?;
        // Both let the instance's thread see a timeout or a cancelled call.
        Ok(match self.tenant.pace().due(Instant::now()) {
            None => UpdateDeadline::Yield(1),
            Some(_) => {
                let tenant = self.tenant.clone();
                UpdateDeadline::YieldCustom(1, Box::pin(async move { tenant.pace().wait().await }))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(limits: &Limits) -> Meter {
        let tenant = Tenant::default();
        let mut meter = Meter::new(KillSwitch::default(), tenant.clone(), Traffic::new(tenant, limits));
        meter.begin_call(limits);
        meter
    }

    fn burn(time: Duration) {
        let end = thread_time() + time;
        while thread_time() < end {
            std::hint::black_box(0);
        }
    }

    #[test]
    fn random_bytes_are_bounded_per_request_and_per_call() {
        let limits = Limits { random_bytes: 10, random_total: 25, ..Limits::default() };
        let mut meter = meter(&limits);
        assert!(meter.take_random(10).is_ok() && meter.take_random(10).is_ok());
        assert!(meter.take_random(10).is_err());
        assert_eq!(meter.breach(), Some(budget::RANDOM_TOTAL));
        meter.begin_call(&limits);
        assert!(meter.take_random(u64::MAX).is_err());
        assert_eq!(meter.breach(), Some(budget::RANDOM));
        assert_eq!(meter.figures(), Some("16777216.0 TiB where 10 bytes are allowed"));
    }

    #[test]
    fn a_checkpoints_time_goes_on_from_call_to_call_until_the_next_begins() {
        let tick = Duration::from_millis(2);
        let limits = Limits { checkpoint_cpu_time: tick * 3, ..Limits::default() };
        let mut meter = meter(&limits);
        meter.begin_checkpoint(&limits);
        burn(tick * 2);
        meter.begin_call(&limits);
        burn(tick * 2);
        meter.end_call();
        assert_eq!(meter.breach(), Some(budget::CHECKPOINT_CPU));
        meter.begin_call(&limits);
        meter.begin_checkpoint(&limits);
        meter.end_call();
        assert_eq!(meter.breach(), None);
    }

    #[test]
    fn the_first_budget_that_is_overdrawn_is_the_one_that_is_named() {
        let mut meter = meter(&Limits { host_calls: 0, ..Limits::default() });
        meter.count_host_call();
        assert!(meter.take_random(u64::MAX).is_err());
        assert_eq!(meter.breach(), Some(budget::HOST_CALLS));
    }
}
