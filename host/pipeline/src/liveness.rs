//! Alarms: work that waits without getting on, and prepared work that will not live much longer.
//!
//! Nothing is decided here; a person is told. A commit path that is stuck without an error would otherwise be silent.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_protocol::coordinator::Coordinator;
use tidegate_protocol::event::Notice;
use tidegate_protocol::ids::{Epoch, EpochRef, SinkId};
use tokio::time::Instant;

/// What waits, and since when.
#[derive(Debug)]
pub(crate) struct Liveness {
    /// Zero: no alarm.
    alarm_after: Duration,
    /// The barrier that is under way.
    cutting: Option<Waits<Epoch>>,
    /// The oldest epoch that waits for its commit, per sink.
    sinks: BTreeMap<SinkId, Waits<EpochRef>>,
    /// Waiting epochs whose prepared work expires: in Unix milliseconds, when to tell, and when it may be gone.
    expiring: BTreeMap<(SinkId, EpochRef), (Option<u64>, u64)>,
}

#[derive(Debug)]
struct Waits<E> {
    what: E,
    since: Instant,
    alarm_at: Instant,
}

impl<E: Copy + PartialEq> Waits<E> {
    fn new(what: E, now: Instant, alarm_after: Duration) -> Self {
        Self { what, since: now, alarm_at: now + alarm_after }
    }

    /// For how long, if that is to be told now; the next time it is after twice as long.
    fn due(&mut self, now: Instant) -> Option<u64> {
        let lasted = now.duration_since(self.since);
        (self.alarm_at <= now).then(|| {
            self.alarm_at = now + lasted;
            u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX)
        })
    }
}

impl Liveness {
    pub(crate) fn new(alarm_after: Duration) -> Self {
        Self { alarm_after, cutting: None, sinks: BTreeMap::new(), expiring: BTreeMap::new() }
    }

    pub(crate) fn barrier_sent(&mut self, epoch: Epoch) {
        self.cutting = Some(Waits::new(epoch, Instant::now(), self.alarm_after));
    }

    pub(crate) fn sealed(&mut self) {
        self.cutting = None;
    }

    /// Looks at what waits now.
    pub(crate) fn look(&mut self, coordinator: &Coordinator, waiting: &[(SinkId, EpochRef)]) {
        let now = Instant::now();
        let mut oldest: BTreeMap<&SinkId, EpochRef> = BTreeMap::new();
        for (sink, of) in waiting {
            oldest.entry(sink).or_insert(*of);
        }
        self.sinks.retain(|sink, waits| oldest.get(sink) == Some(&waits.what));
        for (sink, of) in oldest {
            self.sinks.entry(sink.clone()).or_insert_with(|| Waits::new(of, now, self.alarm_after));
        }
        self.expiring.retain(|(sink, of), _| waiting.iter().any(|(at, which)| (at, which) == (sink, of)));
        for (sink, of) in waiting {
            if let Some((half, end)) = coordinator.history().seal(*of).and_then(|epoch| epoch.lives_until(sink)) {
                self.expiring.entry((sink.clone(), *of)).or_insert((Some(half), end));
            }
        }
    }

    /// When there may be something to tell.
    pub(crate) fn next(&self, now_ms: u64) -> Option<Instant> {
        let waits = self.cutting.iter().map(|waits| waits.alarm_at).chain(self.sinks.values().map(|w| w.alarm_at));
        let waits = waits.filter(|_| !self.alarm_after.is_zero());
        let halves = self.expiring.values().filter_map(|(half, _)| *half);
        let halves = halves.map(|half| Instant::now() + Duration::from_millis(half.saturating_sub(now_ms).max(1)));
        waits.chain(halves).min()
    }

    /// What is to be told now.
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<Notice> {
        let now = Instant::now();
        let mut notices = Vec::new();
        if !self.alarm_after.is_zero() {
            if let Some(waits) = &mut self.cutting
                && let Some(for_ms) = waits.due(now)
            {
                notices.push(Notice::NoProgress { sink: None, epoch: waits.what, for_ms });
            }
            for (sink, waits) in &mut self.sinks {
                if let Some(for_ms) = waits.due(now) {
                    notices.push(Notice::NoProgress { sink: Some(sink.clone()), epoch: waits.what.epoch, for_ms });
                }
            }
        }
        for ((sink, of), (half, end)) in &mut self.expiring {
            if half.take_if(|half| *half <= now_ms).is_some() {
                notices.push(Notice::ExpiresSoon { sink: sink.clone(), of: *of, at: *end });
            }
        }
        notices
    }
}
