//! Counts the effects of one process, and disturbs one of them.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_pipeline::Control;
use tidegate_protocol::plugin::{Call, ErrorKind};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::effect::{Mode, Phase, What};
use super::trace::{Fact, Host, Trace};
use crate::world::World;

/// What becomes of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It takes place.
    Go,
    /// It takes place so.
    Do(Mode),
    /// The process is dead: nothing takes place.
    Dead,
}

/// Lets another thread hold this process.
pub(crate) struct Hold {
    pub(crate) reached: Sender<()>,
    pub(crate) go_on: Receiver<()>,
}

/// One per process; clones are the same.
#[derive(Clone)]
pub(crate) struct Director {
    shared: Arc<Mutex<State>>,
    died: Arc<Notify>,
    trace: Trace,
    host: Host,
    control: Control,
}

struct State {
    plan: Option<(u64, Mode)>,
    count: u64,
    fired: Option<What>,
    dead: bool,
    /// The network works one way for so many more calls; true: requests arrive.
    half_open: Option<(bool, u32)>,
    /// The process ends at this effect, whatever it is.
    ends_at: Option<u64>,
    /// Credentials do not work for so many more commits.
    denied: u32,
    /// Effects in order, where they are wanted.
    seen: Option<Vec<What>>,
    hold: Option<Hold>,
    calls: u64,
    time: Option<Time>,
}

/// How the world learns what time it is: from the process that does something.
struct Time {
    world: World,
    begun: Instant,
    since_ms: u64,
}

impl Time {
    fn tell(&self) {
        let passed = Instant::now().duration_since(self.begun).as_millis();
        self.world.advance_to(self.since_ms + u64::try_from(passed).unwrap_or(0));
    }
}

impl Director {
    pub(crate) fn new(host: Host, plan: Option<(u64, Mode)>, trace: Trace) -> Self {
        let state = State {
            plan,
            count: 0,
            fired: None,
            dead: false,
            half_open: None,
            ends_at: None,
            denied: 0,
            seen: None,
            hold: None,
            calls: 0,
            time: None,
        };
        Self { shared: Arc::new(Mutex::new(state)), died: Arc::default(), trace, host, control: Control::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn host(&self) -> Host {
        self.host
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Keeps a list of all effects.
    pub(crate) fn record(&self) {
        self.lock().seen = Some(Vec::new());
    }

    pub(crate) fn seen(&self) -> Vec<What> {
        self.lock().seen.clone().unwrap_or_default()
    }

    /// What was disturbed, if anything was left to disturb.
    pub(crate) fn fired(&self) -> Option<What> {
        self.lock().fired.clone()
    }

    pub(crate) fn hold_with(&self, hold: Hold) {
        self.lock().hold = Some(hold);
    }

    /// The process is over: nobody waits for it to be held any more.
    pub(crate) fn release(&self) {
        self.lock().hold = None;
    }

    /// Credentials do not work for so many commits.
    pub(crate) fn deny(&self, calls: u32) {
        self.lock().denied = calls;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// Returns when the process is dead.
    pub(crate) async fn died(&self) {
        while !self.is_dead() {
            self.died.notified().await;
        }
    }

    pub(crate) fn note(&self, fact: Fact) {
        if !self.is_dead() {
            self.trace.note(fact);
        }
    }

    /// From here on the world's time is this process's, which began at this instant of its runtime's clock.
    pub(crate) fn keep_time(&self, world: World, begun: Instant, since_ms: u64) {
        self.lock().time = Some(Time { world, begun, since_ms });
    }

    /// A number for a call.
    pub(crate) fn call_id(&self) -> u64 {
        let mut state = self.lock();
        state.calls += 1;
        (u64::from(self.host.0) << 32) | state.calls
    }

    /// An effect is about to take place.
    pub(crate) fn effect(&self, what: What) -> Verdict {
        let mut state = self.lock();
        if state.dead {
            return Verdict::Dead;
        }
        state.count += 1;
        if let Some(time) = &state.time {
            time.tell();
        }
        if let Some(seen) = &mut state.seen {
            seen.push(what.clone());
        }
        if let Some((n, mode)) = state.plan.filter(|(n, _)| *n == state.count) {
            state.plan = None;
            state.fired = Some(what.clone());
            self.trace.note(Fact::Disturbed { host: self.host, n, what: what.clone(), mode });
            if let Some(verdict) = self.disturb(&mut state, mode) {
                return verdict;
            }
        }
        if state.ends_at == Some(state.count) {
            state.dead = true;
            self.tell_of_death();
            return Verdict::Dead;
        }
        self.network(&mut state, &what)
    }

    /// What is not about this effect alone is done here.
    fn disturb(&self, state: &mut State, mode: Mode) -> Option<Verdict> {
        match mode {
            mode if mode.kills() => {
                state.dead = true;
                self.tell_of_death();
                Some(Verdict::Dead)
            }
            Mode::Pause | Mode::Together(_) => {
                if let Some(hold) = state.hold.take() {
                    // Only this thread touches the director while it is held.
                    let _ = hold.reached.send(());
                    let _ = hold.go_on.recv();
                    self.trace.note(Fact::Woke(self.host));
                }
                None
            }
            Mode::LateThenDies(_) => {
                // Long enough for the timeout, the question what became of it, and some of what follows.
                state.ends_at = Some(state.count + 8);
                Some(Verdict::Do(mode))
            }
            Mode::Deaf(calls) => {
                state.half_open = Some((true, calls));
                None
            }
            Mode::Mute(calls) => {
                state.half_open = Some((false, calls));
                None
            }
            Mode::DeniedFor(calls) => {
                state.denied = calls;
                None
            }
            Mode::Stop => {
                self.control.stop();
                None
            }
            Mode::Savepoint => {
                // Nobody waits for the answer, as when who asked is gone.
                drop(self.control.savepoint("asked"));
                None
            }
            _ => Some(Verdict::Do(mode)),
        }
    }

    fn network(&self, state: &mut State, what: &What) -> Verdict {
        let What::Call { call, phase, .. } = what else { return Verdict::Go };
        match (&mut state.half_open, phase) {
            (Some((true, left)), Phase::After) | (Some((false, left)), Phase::Before) => {
                *left -= 1;
                if *left == 0 {
                    state.half_open = None;
                }
                return Verdict::Do(Mode::Hang);
            }
            _ => {}
        }
        if state.denied > 0 && *phase == Phase::Before && *call == Call::Commit {
            state.denied -= 1;
            return Verdict::Do(Mode::Says(ErrorKind::Denied));
        }
        Verdict::Go
    }

    /// The process ends now.
    pub(crate) fn kill(&self) {
        self.lock().dead = true;
        self.tell_of_death();
    }

    /// Whoever waits for it now, and whoever begins to.
    fn tell_of_death(&self) {
        self.died.notify_waiters();
        self.died.notify_one();
    }
}
