//! So much per span of time.

use std::time::{Duration, Instant};

/// A budget that is full again with every window.
#[derive(Debug)]
pub(crate) struct Rate {
    window: Duration,
    limit: u64,
    /// `None` before the first use.
    began: Option<Instant>,
    left: u64,
}

impl Rate {
    pub(crate) fn new(limit: u64, window: Duration) -> Self {
        Self { window, limit, began: None, left: limit }
    }

    /// Takes `amount`, or nothing: then it says in what time there is more.
    pub(crate) fn take(&mut self, amount: u64, now: Instant) -> Result<(), Duration> {
        let age = self.began.map(|began| now.saturating_duration_since(began));
        let age = match age.filter(|age| *age < self.window) {
            Some(age) => age,
            None => {
                (self.began, self.left) = (Some(now), self.limit);
                Duration::ZERO
            }
        };
        match self.left.checked_sub(amount) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.window.saturating_sub(age)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_again_when_its_window_is_over() {
        let (mut rate, start) = (Rate::new(10, Duration::from_secs(60)), Instant::now());
        assert_eq!(rate.take(10, start), Ok(()));
        assert_eq!(rate.take(1, start + Duration::from_secs(20)), Err(Duration::from_secs(40)));
        assert_eq!(rate.take(0, start + Duration::from_secs(20)), Ok(()));
        assert_eq!(rate.take(10, start + Duration::from_secs(60)), Ok(()));
        assert_eq!(rate.take(11, start + Duration::from_secs(180)), Err(Duration::from_secs(60)));
    }
}
