//! What all parts of a simulation share: time, the order of things that happened, the trace, and the count of faults.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_pipeline::clock::Clock;
use tokio::time::Instant;

use crate::dice::Dice;

/// Where time begins, in Unix milliseconds.
pub const EPOCH_MS: u64 = 1_700_000_000_000;

/// Place of a thing in the order in which all things of one simulation happened.
pub type Seq = u64;

/// Handle to what is shared; clones are the same.
#[derive(Clone)]
pub struct World(Arc<Mutex<Inner>>);

#[derive(Clone)]
struct Inner {
    time: Time,
    seq: Seq,
    tracing: bool,
    trace: Vec<Line>,
    fired: BTreeMap<String, u64>,
    /// Faults are over: what is drawn by chance stays away from here on.
    calm: bool,
    delays: Dice,
    longest_delay_ms: u64,
    skew_ms: i64,
}

/// What time is counted by.
#[derive(Clone)]
enum Time {
    /// Tokio's clock since then.
    Since(Instant),
    /// What it was last set to, in milliseconds: for worlds that outlive a runtime.
    Told(u64),
}

/// One line of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its place.
    pub seq: Seq,
    /// Simulated milliseconds since the beginning.
    pub at: u64,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7} ms #{:<5} {}", self.at, self.seq, self.what)
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seq", &self.lock().seq).finish_non_exhaustive()
    }
}

impl World {
    /// A world that begins now, by tokio's clock. `tracing` keeps a line for everything that happens.
    pub fn new(dice: &Dice, longest_delay_ms: u64, tracing: bool) -> Self {
        Self::with(Time::Since(Instant::now()), dice, longest_delay_ms, tracing)
    }

    /// A world whose time passes only by [`World::advance_to`]. It may outlive runtimes, and be met by several of them.
    /// Calls are not delayed.
    pub fn detached(dice: &Dice) -> Self {
        Self::with(Time::Told(0), dice, 0, false)
    }

    fn with(time: Time, dice: &Dice, longest_delay_ms: u64, tracing: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            time,
            seq: 0,
            tracing,
            trace: Vec::new(),
            fired: BTreeMap::new(),
            calm: false,
            delays: dice.fork("delays"),
            longest_delay_ms,
            skew_ms: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same world once more: what happens in one of them is not seen in the other.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.lock().clone())))
    }

    /// Simulated milliseconds since the beginning.
    pub fn elapsed_ms(&self) -> u64 {
        match self.lock().time {
            Time::Since(origin) => u64::try_from(Instant::now().duration_since(origin).as_millis()).unwrap_or(u64::MAX),
            Time::Told(millis) => millis,
        }
    }

    /// It is now so many milliseconds after the beginning, if it is not later already. Only for a detached world.
    pub fn advance_to(&self, millis: u64) {
        if let Time::Told(now) = &mut self.lock().time {
            *now = (*now).max(millis);
        }
    }

    /// So many milliseconds pass. Only for a detached world.
    pub fn advance(&self, millis: u64) {
        if let Time::Told(now) = &mut self.lock().time {
            *now = now.saturating_add(millis);
        }
    }

    /// Something happened. The text is made only if there is a trace.
    pub fn note(&self, what: impl FnOnce() -> String) -> Seq {
        let tracing = self.lock().tracing;
        let line = tracing.then(|| (self.elapsed_ms(), what()));
        let mut inner = self.lock();
        inner.seq += 1;
        let seq = inner.seq;
        if let Some((at, what)) = line {
            inner.trace.push(Line { seq, at, what });
        }
        seq
    }

    /// How much has happened so far.
    pub fn seq(&self) -> Seq {
        self.lock().seq
    }

    /// A planned fault took place.
    pub fn fired(&self, kind: &str) -> Seq {
        let seq = self.note(|| format!("FAULT {kind}"));
        let mut inner = self.lock();
        match inner.fired.get_mut(kind) {
            Some(count) => *count += 1,
            None => {
                inner.fired.insert(kind.to_owned(), 1);
            }
        }
        seq
    }

    /// Faults that took place, by kind.
    pub fn faults(&self) -> BTreeMap<String, u64> {
        self.lock().fired.clone()
    }

    /// From here on nothing is done to the pipeline that a quiet day would not do.
    pub fn calm_down(&self) {
        self.note(|| "from here on nothing fails".to_owned());
        self.lock().calm = true;
    }

    /// Whether faults are over.
    pub fn is_calm(&self) -> bool {
        self.lock().calm
    }

    /// Lets others go first, for a time or a turn that the seed decides.
    pub async fn jitter(&self) {
        let drawn = {
            let mut inner = self.lock();
            if matches!(inner.time, Time::Told(_)) {
                return;
            }
            let longest = inner.longest_delay_ms;
            match inner.delays.below(8) {
                0..=3 => None,
                4..=5 => Some(0),
                _ => Some(inner.delays.below(longest + 1)),
            }
        };
        match drawn {
            None => {}
            Some(0) => tokio::task::yield_now().await,
            Some(millis) => tokio::time::sleep(std::time::Duration::from_millis(millis)).await,
        }
    }

    /// Sets the wall clock off by so much. Durations are not touched.
    pub fn skew(&self, millis: i64) {
        self.lock().skew_ms = millis;
    }

    /// The trace so far.
    pub fn trace(&self) -> Vec<Line> {
        self.lock().trace.clone()
    }

    /// The trace as text.
    pub fn trace_text(&self) -> String {
        let mut text = String::new();
        for line in &self.lock().trace {
            // Writing into a string does not fail.
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl Clock for World {
    fn now_ms(&self) -> u64 {
        let skew = self.lock().skew_ms;
        EPOCH_MS.saturating_add(self.elapsed_ms()).saturating_add_signed(skew)
    }
}
