//! How often a plugin may have the host flush to disk: so often per second, on average over [`SPAN`]. Who flushes more
//! often waits; the waiting is time of its call.

use std::time::{Duration, Instant};

/// So much can be flushed at once after a pause.
const SPAN: Duration = Duration::from_secs(10);

/// The flushes of one instance.
#[derive(Debug)]
pub(crate) struct FlushRate {
    interval: Duration,
    /// When all flushes so far would be over if one came per interval.
    even: Option<Instant>,
}

impl FlushRate {
    /// `per_second` of zero is one.
    pub(crate) fn new(per_second: u64) -> Self {
        let interval = Duration::from_secs(1).as_nanos() / u128::from(per_second.max(1));
        Self { interval: Duration::from_nanos(u64::try_from(interval).unwrap_or(u64::MAX)), even: None }
    }

    /// Counts one flush, and says how long it has to wait.
    pub(crate) fn take(&mut self, now: Instant) -> Duration {
        let even = self.even.map_or(now, |even| even.max(now));
        let even = even.checked_add(self.interval).unwrap_or(even);
        self.even = Some(even);
        even.saturating_duration_since(now).saturating_sub(SPAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_what_is_beyond_it_is_evenly_spread() {
        let (mut rate, start) = (FlushRate::new(5), Instant::now());
        let waits: Vec<_> = (0..53).map(|_| rate.take(start).as_millis()).collect();
        assert!(waits[..50].iter().all(|wait| *wait == 0));
        assert_eq!(waits[50..], [200, 400, 600]);
        assert_eq!(rate.take(start + Duration::from_secs(60)), Duration::ZERO);
    }
}
