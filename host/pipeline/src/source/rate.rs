//! A limit on rows per second that all tasks of a source share.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::SourceError;

/// How long [`RateLimiter::take`] waits before it answers "nothing".
const PATIENCE: Duration = Duration::from_millis(50);

/// Checks the option.
///
/// # Errors
/// It allows no row at all.
pub(super) fn check(rows_per_second: Option<u64>) -> Result<(), SourceError> {
    if rows_per_second == Some(0) {
        let expected = "must be at least 1 row per second; leave it out for no limit".to_owned();
        return Err(SourceError::Configuration { key: "rate", expected });
    }
    Ok(())
}

/// A token bucket on tokio's clock. It holds what 50 ms bring, at least one row, and starts full.
#[derive(Debug)]
pub struct RateLimiter {
    rows_per_second: f64,
    capacity: f64,
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    rows: f64,
    /// Unknown until the first use: the limiter may be built outside of the runtime.
    filled_at: Option<Instant>,
}

impl RateLimiter {
    /// Allows `rows_per_second`, at least 1, over all that share it.
    pub fn new(rows_per_second: u64) -> Self {
        let rows_per_second = rows_per_second.max(1) as f64;
        let capacity = (rows_per_second * PATIENCE.as_secs_f64()).max(1.0);
        Self { rows_per_second, capacity, bucket: Mutex::new(Bucket { rows: capacity, filled_at: None }) }
    }

    /// Waits at most 50 ms for at least one row's permission and takes up to `most`; 0 when none came.
    pub async fn take(&self, most: u64) -> u64 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let wait = match self.try_take(most) {
                Ok(rows) => return rows,
                Err(wait) => wait,
            };
            let until = Instant::now() + wait;
            if until > deadline {
                tokio::time::sleep_until(deadline).await;
                return self.try_take(most).unwrap_or(0);
            }
            tokio::time::sleep_until(until).await;
        }
    }

    /// Gives back what was taken and not used.
    pub fn give_back(&self, rows: u64) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        bucket.rows = (bucket.rows + rows as f64).min(self.capacity);
    }

    /// Takes whole rows, or says how long until there is one.
    fn try_take(&self, most: u64) -> Result<u64, Duration> {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let since = bucket.filled_at.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        bucket.rows = (bucket.rows + since.as_secs_f64() * self.rows_per_second).min(self.capacity);
        bucket.filled_at = Some(now);
        if bucket.rows >= 1.0 {
            let rows = bucket.rows.min(most.max(1) as f64).floor();
            bucket.rows -= rows;
            return Ok(rows as u64);
        }
        let missing = (1.0 - bucket.rows) / self.rows_per_second;
        // Timers have a resolution of a millisecond; less would spin.
        Err(Duration::from_secs_f64(missing).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_tasks_share_one_limit() {
        let limiter = RateLimiter::new(1000);
        let start = Instant::now();
        let mut taken = 0;
        while start.elapsed() < Duration::from_secs(10) {
            taken += limiter.take(7).await;
            taken += limiter.take(100).await;
        }
        assert!((9_900..=10_200).contains(&taken), "{taken}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_rate_answers_nothing_instead_of_waiting_long() {
        let limiter = RateLimiter::new(1);
        assert_eq!(limiter.take(10).await, 1);
        let start = Instant::now();
        assert_eq!(limiter.take(10).await, 0);
        assert!(start.elapsed() <= Duration::from_millis(60));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(limiter.take(10).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn rows_given_back_can_be_taken_again() {
        let limiter = RateLimiter::new(1000);
        assert_eq!(limiter.take(50).await, 50);
        limiter.give_back(20);
        assert_eq!(limiter.take(50).await, 20);
    }
}
