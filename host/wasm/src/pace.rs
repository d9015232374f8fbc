//! How fast a tenant may compute.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::processors;

/// How much a tenant that rested may use at once: what it gets in this time.
const BURST: Duration = Duration::from_millis(100);

/// A tenant's share of the processors: a bucket that fills with time and empties with processor time. Who has emptied
/// it waits until it is full enough; nothing is killed for it.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Nanoseconds of processor time per millisecond; `None`: more than there are processors, and no need to look.
    per_milli: Option<i64>,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Nanoseconds that may be used now. Below zero: that was used too early.
    nanos: i64,
    at: Option<Instant>,
    used: Duration,
    waited: Duration,
}

impl Pace {
    /// `millis`: thousandths of one processor.
    pub(crate) fn new(millis: u64) -> Self {
        let all = processors().saturating_mul(1000);
        Self::of(millis, all)
    }

    fn of(millis: u64, all: u64) -> Self {
        let millis = millis.max(1);
        let per_milli = (millis < all).then(|| i64::try_from(millis.saturating_mul(1000)).unwrap_or(i64::MAX));
        let bucket = Bucket { nanos: 0, at: None, used: Duration::ZERO, waited: Duration::ZERO };
        Self { per_milli, bucket: Mutex::new(bucket) }
    }

    /// Takes what was used.
    pub(crate) fn spend(&self, used: Duration, now: Instant) {
        let mut bucket = self.fill(now);
        bucket.used = bucket.used.saturating_add(used);
        if self.per_milli.is_some() {
            bucket.nanos = bucket.nanos.saturating_sub(i64::try_from(used.as_nanos()).unwrap_or(i64::MAX));
        }
    }

    /// How long to wait before going on; `None`: not at all.
    pub(crate) fn due(&self, now: Instant) -> Option<Duration> {
        let per_milli = self.per_milli?;
        let owed = self.fill(now).nanos.checked_neg().filter(|owed| *owed > 0)?;
        let millis = owed.unsigned_abs().div_ceil(per_milli.unsigned_abs());
        Some(Duration::from_millis(millis))
    }

    /// Waits until there is something to use. Needs tokio's timers.
    pub(crate) async fn wait(&self) {
        while let Some(wait) = self.due(Instant::now()) {
            tokio::time::sleep(wait).await;
            let mut bucket = self.lock();
            bucket.waited = bucket.waited.saturating_add(wait);
        }
    }

    /// Processor time so far, and time that instances have waited for it, summed over all of them.
    pub(crate) fn so_far(&self) -> (Duration, Duration) {
        let bucket = self.lock();
        (bucket.used, bucket.waited)
    }

    fn fill(&self, now: Instant) -> MutexGuard<'_, Bucket> {
        let mut bucket = self.lock();
        let Some(per_milli) = self.per_milli else { return bucket };
        let most = i64::try_from(BURST.as_millis()).unwrap_or(i64::MAX).saturating_mul(per_milli);
        match bucket.at {
            None => bucket.nanos = most,
            Some(at) => {
                let micros = i64::try_from(now.saturating_duration_since(at).as_micros()).unwrap_or(i64::MAX);
                let got = micros.saturating_mul(per_milli) / 1000;
                bucket.nanos = bucket.nanos.saturating_add(got).min(most);
            }
        }
        // Never back: of two threads the later one may come first.
        bucket.at = Some(bucket.at.map_or(now, |at| at.max(now)));
        bucket
    }

    fn lock(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_uses_more_than_its_share_waits_for_the_rest() {
        let (pace, start) = (Pace::of(500, 2000), Instant::now());
        assert_eq!(pace.due(start), None);
        pace.spend(50 * MS, start);
        assert_eq!(pace.due(start), None, "a burst is free");
        pace.spend(10 * MS, start);
        assert_eq!(pace.due(start), Some(20 * MS), "half a processor gives 10 ms in 20 ms");
        assert_eq!(pace.due(start + 19 * MS), Some(MS));
        assert_eq!(pace.due(start + 20 * MS), None);
    }

    #[test]
    fn over_time_a_loop_gets_its_share() {
        let (pace, start) = (Pace::of(750, 2000), Instant::now());
        let (mut now, mut used) = (start, Duration::ZERO);
        while now < start + 10_000 * MS {
            now += 10 * MS;
            used += 10 * MS;
            pace.spend(10 * MS, now);
            now += pace.due(now).unwrap_or_default();
        }
        let share = used.as_secs_f64() / now.duration_since(start).as_secs_f64();
        assert!((0.74..0.77).contains(&share), "{share}");
    }

    #[test]
    fn rest_is_not_saved_up() {
        let (pace, start) = (Pace::of(1000, 2000), Instant::now());
        pace.spend(MS, start);
        let later = start + 3_600_000 * MS;
        pace.spend(150 * MS, later);
        assert_eq!(pace.due(later), Some(50 * MS));
    }

    #[test]
    fn a_share_of_all_processors_is_never_waited_for() {
        let (pace, start) = (Pace::of(2000, 2000), Instant::now());
        pace.spend(3_600_000 * MS, start);
        assert_eq!(pace.due(start), None);
        assert_eq!(pace.so_far().0, 3_600_000 * MS);
    }
}
