//! How often a tenant's children died: what the next one waits for.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a death counts.
pub(crate) const WINDOW: Duration = Duration::from_secs(300);
/// So many deaths in the window, and there is no fresh child for [`COOL_DOWN`] after the last of them. The plugins at
/// fault are quarantined before that, where it is seen which ones they are.
const MOST: usize = 8;
/// See [`MOST`].
const COOL_DOWN: Duration = Duration::from_secs(60);
/// From a death to the next child; doubles with each further death in the window.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The newest deaths, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Deaths(VecDeque<Instant>);

/// There were too many; the next child may be started after this time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany {
    pub(crate) deaths: usize,
    pub(crate) left: Duration,
}

impl Deaths {
    pub(crate) fn note(&mut self, now: Instant) {
        self.0.push_back(now);
        // More say nothing more.
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// How long the next child waits.
    pub(crate) fn wait(&mut self, now: Instant) -> Result<Duration, TooMany> {
        while self.0.front().is_some_and(|death| now.saturating_duration_since(*death) > WINDOW) {
            self.0.pop_front();
        }
        let Some(last) = self.0.back() else { return Ok(Duration::ZERO) };
        let (deaths, since) = (self.0.len(), now.saturating_duration_since(*last));
        if deaths >= MOST && since < COOL_DOWN {
            return Err(TooMany { deaths, left: COOL_DOWN - since });
        }
        let wait = FIRST_WAIT.saturating_mul(1 << (deaths - 1).min(16)).min(LONGEST_WAIT);
        Ok(wait.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_death_doubles_the_wait_until_there_is_no_fresh_child_for_a_while() {
        let (mut deaths, start) = (Deaths::default(), Instant::now());
        assert_eq!(deaths.wait(start), Ok(Duration::ZERO));
        let mut waits = Vec::new();
        for _ in 1..MOST {
            deaths.note(start);
            waits.push(deaths.wait(start).unwrap().as_millis());
        }
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 3200]);
        deaths.note(start);
        assert_eq!(deaths.wait(start), Err(TooMany { deaths: MOST, left: COOL_DOWN }));
        assert_eq!(deaths.wait(start + COOL_DOWN), Ok(Duration::ZERO), "one is tried");
        deaths.note(start + COOL_DOWN);
        assert!(deaths.wait(start + COOL_DOWN).is_err(), "and dies as well");
        assert_eq!(deaths.wait(start + COOL_DOWN + WINDOW + COOL_DOWN), Ok(Duration::ZERO));
    }
}
