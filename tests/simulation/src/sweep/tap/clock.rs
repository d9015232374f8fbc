//! The wall clock of one process. It is read at every step of the coordinator, so that each timer, answer and request is
//! an effect.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use tidegate_pipeline::clock::Clock;

use crate::sweep::director::{Director, Verdict};
use crate::sweep::effect::{Mode, What};
use crate::sweep::trace::Fact;

const HOUR_MS: i64 = 3_600_000;

/// A clock around a clock.
pub(crate) struct TapClock<C> {
    inner: C,
    director: Director,
    off_ms: AtomicI64,
}

impl<C> TapClock<C> {
    pub(crate) fn new(inner: C, director: &Director) -> Self {
        Self { inner, director: director.clone(), off_ms: AtomicI64::new(0) }
    }
}

impl<C> fmt::Debug for TapClock<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TapClock")
    }
}

impl<C: Clock> Clock for TapClock<C> {
    fn now_ms(&self) -> u64 {
        if let Verdict::Do(Mode::Clock(hours)) = self.director.effect(What::Step) {
            self.off_ms.fetch_add(i64::from(hours) * HOUR_MS, Ordering::Relaxed);
            self.director.note(Fact::ClockJumped(self.director.host()));
        }
        self.inner.now_ms().saturating_add_signed(self.off_ms.load(Ordering::Relaxed))
    }
}
