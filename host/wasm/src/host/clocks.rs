//! Clocks that tell a plugin what it needs, and not more: milliseconds. Finer ones would measure what neighbours do to
//! caches. The monotonic one starts with the instance, so that it does not say for how long the machine has been up.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

/// What both clocks, and times of files, are rounded down to.
pub(crate) const RESOLUTION: Duration = Duration::from_millis(1);
const NANOS: u64 = RESOLUTION.as_nanos() as u64;

/// Nanoseconds within a second, rounded down.
pub(crate) fn coarse_nanos(nanos: u32) -> u32 {
    nanos - nanos % RESOLUTION.subsec_nanos()
}

/// The time of day.
pub(crate) struct CoarseWall;

impl HostWallClock for CoarseWall {
    fn resolution(&self) -> Duration {
        RESOLUTION
    }

    #[allow(clippy::disallowed_methods, reason = "it is the clock that plugins are given")]
    fn now(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Duration::new(now.as_secs(), coarse_nanos(now.subsec_nanos()))
    }
}

/// Time since the instance began.
pub(crate) struct CoarseMonotonic(Instant);

impl CoarseMonotonic {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }
}

impl HostMonotonicClock for CoarseMonotonic {
    fn resolution(&self) -> u64 {
        NANOS
    }

    fn now(&self) -> u64 {
        let nanos = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        nanos - nanos % NANOS
    }
}
