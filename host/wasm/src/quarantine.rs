//! Plugins that fail again and again: how long their next instance waits, and when there is none any more.
//!
//! Counted per tenant and plugin file, over all sinks and roles: [`Quarantine`] is a part of the tenant. It decides, and
//! waits for nothing; [`crate::guard`] asks it before each instance and tells it what became of it.
//!
//! ```text
//!            fault                    fault number `max_faults` in the window
//! free ──────────────▶ free, later ───────────────────────────────────────▶ quarantined ◀─────────┐
//!  ▲                                                                          │ cool-down is over  │ fault, or no
//!  │ window without a fault                                                   ▼                    │ answer: longer
//!  └────────────────────────────── on probation ◀───────────────────────── one trial instance ─────┘
//!                                       │    the trial has answered a call
//!                                       └──── first fault ────▶ quarantined, longer
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tidegate_protocol::plugin::{Blame, BoxFuture, Call, CallFault, FaultKind};

use crate::text::clean;

/// Bytes of the newest fault's text that are kept with a quarantine.
const SHOWN: usize = 300;

/// When a plugin that fails is held back. A window or a time of nothing counts as one millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRules {
    /// So many faults of one plugin within `window`, and it is quarantined. At least 1.
    pub max_faults: u32,
    /// How long a fault counts.
    pub window: Duration,
    /// How long the next instance waits after a fault; doubles with each further one in the window.
    pub first_wait: Duration,
    /// The longest such wait.
    pub longest_wait: Duration,
    /// How long no instance is made in quarantine; then one is, for a trial. Doubles with each quarantine that follows
    /// within `window` after the end of the one before.
    pub cool_down: Duration,
    /// The longest cool-down.
    pub longest_cool_down: Duration,
}

impl Default for FaultRules {
    fn default() -> Self {
        Self {
            max_faults: 5,
            window: Duration::from_secs(600),
            first_wait: Duration::from_millis(100),
            longest_wait: Duration::from_secs(5),
            cool_down: Duration::from_secs(30),
            longest_cool_down: Duration::from_secs(3600),
        }
    }
}

/// Time for backoff and quarantine. Injected, so that tests need not wait.
pub trait Time: Send + Sync + fmt::Debug {
    /// Since any start; never goes back.
    fn now(&self) -> Duration;
    /// Milliseconds since 1970-01-01 UTC, for people.
    fn unix_ms(&self) -> u64;
    /// Ready after `span`. `timer` is one of the machine's that is.
    fn wait<'a>(&'a self, span: Duration, timer: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        let _ = span;
        timer
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct MachineTime;

impl Time for MachineTime {
    fn now(&self) -> Duration {
        // Counts from the machine's start, so it is never negative.
        Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
    }

    fn unix_ms(&self) -> u64 {
        let since = Duration::try_from(clock_gettime(ClockId::Realtime)).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A plugin of which no instances are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// Whose.
    pub tenant: String,
    /// Name and version.
    pub plugin: String,
    /// `sha256:<hex>` of its file.
    pub digest: String,
    /// Unix milliseconds of the fault that brought it here.
    pub since_ms: u64,
    /// Faults within the window, that one included.
    pub faults: u32,
    /// The newest fault in words.
    pub why: String,
    /// How long until an instance is made for a trial; nothing while one is on trial.
    pub trial_in: Option<Duration>,
}

/// A quarantine that began or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuarantineChange {
    /// No instance is made any more.
    Began(Quarantined),
    /// An instance on trial answered; further ones are made, until the next fault.
    Passed {
        /// Name and version.
        plugin: String,
        /// `sha256:<hex>` of its file.
        digest: String,
    },
    /// Somebody ended it.
    Lifted {
        /// Name and version.
        plugin: String,
        /// `sha256:<hex>` of its file.
        digest: String,
    },
}

impl QuarantineChange {
    /// `sha256:<hex>` of the plugin's file.
    pub fn digest(&self) -> &str {
        match self {
            Self::Began(quarantined) => &quarantined.digest,
            Self::Passed { digest, .. } | Self::Lifted { digest, .. } => digest,
        }
    }
}

/// Whether an instance may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Now.
    Free,
    /// Now, and what it answers decides.
    Trial,
    /// Ask again after so long.
    Later(Duration),
    /// Not before the quarantine is over.
    Refused(Quarantined),
}

type Listener = Box<dyn Fn(&QuarantineChange) + Send + Sync>;

/// The faults of one tenant's plugins.
pub(crate) struct Quarantine {
    rules: FaultRules,
    time: Arc<dyn Time>,
    plugins: Mutex<BTreeMap<String, Record>>,
    listeners: Mutex<Vec<(u64, Listener)>>,
}

#[derive(Debug)]
struct Record {
    plugin: String,
    /// Those within the window, oldest first.
    faults: VecDeque<Duration>,
    /// The newest in words.
    why: String,
    not_before: Duration,
    standing: Standing,
    cool_down: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Free,
    Closed { since_ms: u64, until: Duration },
    OnTrial { since_ms: u64 },
}

/// Whether a fault says something about the plugin. An answer that says no is none; nor is what the destination or the way
/// to it did, nor that no instance could be had for reasons of the host's.
pub(crate) fn counts(fault: &CallFault) -> bool {
    match &fault.kind {
        FaultKind::Error(_) | FaultKind::AnswerLost | FaultKind::Quarantined => false,
        _ => match fault.blame {
            Blame::Plugin => true,
            // A panic of the host's own code with this plugin on the stack: nobody knows what it will do the next time.
            Blame::Host => fault.call != Call::Instantiate,
            Blame::Destination | Blame::Operator => false,
        },
    }
}

impl Quarantine {
    pub(crate) fn new(rules: FaultRules, time: Arc<dyn Time>) -> Self {
        Self { rules, time, plugins: Mutex::default(), listeners: Mutex::default() }
    }

    pub(crate) fn time(&self) -> &dyn Time {
        self.time.as_ref()
    }

    /// Asks for an instance of this plugin. An [`Entry::Trial`] must be followed by one of [`Quarantine::answered`],
    /// [`Quarantine::fault`] or [`Quarantine::silent`].
    pub(crate) fn enter(&self, tenant: &str, digest: &str) -> Entry {
        let now = self.time.now();
        let mut plugins = self.lock();
        let Some(record) = plugins.get_mut(digest) else { return Entry::Free };
        match record.standing {
            Standing::Closed { since_ms, until } if now >= until => {
                record.standing = Standing::OnTrial { since_ms };
                Entry::Trial
            }
            Standing::Closed { .. } | Standing::OnTrial { .. } => match record.told(tenant, digest, now) {
                Some(quarantined) => Entry::Refused(quarantined),
                None => Entry::Free,
            },
            Standing::Free => {
                record.forget(now, self.rules.window);
                if record.faults.is_empty() {
                    plugins.remove(digest);
                    return Entry::Free;
                }
                match record.not_before.checked_sub(now).filter(|left| !left.is_zero()) {
                    Some(left) => Entry::Later(left),
                    None => Entry::Free,
                }
            }
        }
    }

    /// An instance ended with a fault that [`counts`].
    pub(crate) fn fault(&self, tenant: &str, digest: &str, fault: &CallFault, trial: bool) {
        let (now, unix_ms) = (self.time.now(), self.time.unix_ms());
        let mut plugins = self.lock();
        let record = plugins.entry(digest.to_owned()).or_insert_with(|| Record {
            plugin: fault.plugin.to_string(),
            faults: VecDeque::new(),
            why: String::new(),
            not_before: now,
            standing: Standing::Free,
            cool_down: self.rules.cool_down,
        });
        record.forget(now, self.rules.window);
        record.faults.push_back(now);
        record.why = clean(&format!("{} {}", fault.call, fault.reason()), SHOWN);
        let max = self.rules.max_faults.max(1) as usize;
        // More than that say nothing more.
        while record.faults.len() > max {
            record.faults.pop_front();
        }
        let over = record.faults.len() >= max;
        let since_ms = match record.standing {
            Standing::Free => over.then_some(unix_ms),
            // Instances that were there before it began may fail too; that makes it no longer.
            Standing::Closed { .. } => None,
            Standing::OnTrial { since_ms } => trial.then_some(since_ms),
        };
        let Some(since_ms) = since_ms else {
            let doubled = 1u32.checked_shl(record.faults.len() as u32 - 1).unwrap_or(u32::MAX);
            let wait = self.rules.first_wait.saturating_mul(doubled).min(self.rules.longest_wait);
            record.not_before = record.not_before.max(now.saturating_add(wait));
            return;
        };
        record.close(now, since_ms, self.rules.longest_cool_down);
        let began = record.told(tenant, digest, now).map(QuarantineChange::Began);
        drop(plugins);
        self.tell(began);
    }

    /// The instance on trial has answered a call.
    pub(crate) fn answered(&self, digest: &str) {
        let now = self.time.now();
        let mut plugins = self.lock();
        let Some(record) = plugins.get_mut(digest) else { return };
        if !matches!(record.standing, Standing::OnTrial { .. }) {
            return;
        }
        record.standing = Standing::Free;
        record.not_before = now;
        // On probation: the next fault is the last one.
        record.faults = std::iter::repeat_n(now, self.rules.max_faults.max(1) as usize - 1).collect();
        if record.faults.is_empty() {
            record.faults.push_back(now);
        }
        let passed = QuarantineChange::Passed { plugin: record.plugin.clone(), digest: digest.to_owned() };
        drop(plugins);
        self.tell(Some(passed));
    }

    /// The instance on trial is gone and has answered nothing: another one is made after the same time.
    pub(crate) fn silent(&self, digest: &str) {
        let now = self.time.now();
        if let Some(record) = self.lock().get_mut(digest)
            && let Standing::OnTrial { since_ms } = record.standing
        {
            record.standing = Standing::Closed { since_ms, until: now.saturating_add(record.cool_down) };
        }
    }

    /// All plugins in quarantine, by digest.
    pub(crate) fn list(&self, tenant: &str) -> Vec<Quarantined> {
        let now = self.time.now();
        self.lock().iter().filter_map(|(digest, record)| record.told(tenant, digest, now)).collect()
    }

    /// Ends the quarantine of a plugin and forgets its faults; `false` if there was none.
    pub(crate) fn lift(&self, digest: &str) -> bool {
        let mut plugins = self.lock();
        let Some(record) = plugins.get(digest) else { return false };
        let (plugin, was) = (record.plugin.clone(), record.standing != Standing::Free);
        plugins.remove(digest);
        drop(plugins);
        self.tell(was.then(|| QuarantineChange::Lifted { plugin, digest: digest.to_owned() }));
        was
    }

    /// Calls `listener` with every change, until the number that this returns is handed to [`Quarantine::unsubscribe`].
    pub(crate) fn subscribe(&self, listener: Listener) -> u64 {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let number = listeners.last().map_or(0, |(number, _)| number + 1);
        listeners.push((number, listener));
        number
    }

    pub(crate) fn unsubscribe(&self, number: u64) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != number);
    }

    fn tell(&self, change: Option<QuarantineChange>) {
        let Some(change) = change else { return };
        match &change {
            QuarantineChange::Began(Quarantined { tenant, plugin, digest, faults, why, .. }) => {
                tracing::warn!(%tenant, %plugin, %digest, faults, %why, "plugin in quarantine");
            }
            QuarantineChange::Passed { plugin, digest } => tracing::info!(%plugin, %digest, "plugin out of quarantine"),
            QuarantineChange::Lifted { plugin, digest } => tracing::info!(%plugin, %digest, "quarantine lifted"),
        }
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|(_, listener)| listener(&change));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.plugins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Record {
    fn forget(&mut self, now: Duration, window: Duration) {
        while self.faults.front().is_some_and(|at| now.saturating_sub(*at) >= window.max(Duration::from_millis(1))) {
            self.faults.pop_front();
        }
    }

    fn close(&mut self, now: Duration, since_ms: u64, longest: Duration) {
        self.standing = Standing::Closed { since_ms, until: now.saturating_add(self.cool_down) };
        self.cool_down = self.cool_down.saturating_mul(2).min(longest);
    }

    fn told(&self, tenant: &str, digest: &str, now: Duration) -> Option<Quarantined> {
        let (since_ms, trial_in) = match self.standing {
            Standing::Free => return None,
            Standing::Closed { since_ms, until } => (since_ms, Some(until.saturating_sub(now))),
            Standing::OnTrial { since_ms } => (since_ms, None),
        };
        Some(Quarantined {
            tenant: tenant.to_owned(),
            plugin: self.plugin.clone(),
            digest: digest.to_owned(),
            since_ms,
            faults: self.faults.len() as u32,
            why: self.why.clone(),
            trial_in,
        })
    }
}

impl fmt::Display for Quarantined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} faults, the last: {}; ", self.faults, self.why)?;
        match self.trial_in {
            Some(left) => write!(f, "one instance is tried in {} s; ", left.as_secs_f64().ceil())?,
            None => f.write_str("one instance is on trial; ")?,
        }
        f.write_str("another file of the plugin is free at once, and so is this one when the quarantine is lifted")
    }
}

#[cfg(test)]
#[path = "quarantine/tests.rs"]
mod tests;
