//! One execution: a process is disturbed at one effect, others recover without further faults, and the promises are judged.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;

use tidegate_pipeline::run::RunError;
use tidegate_protocol::event::{End, Refusal};
use tidegate_protocol::ids::{EpochRef, SinkId};
use tidegate_protocol::record::{Blocked, MismatchPolicy};

use super::bench::{Bench, Setting, Tenant};
use super::director::{Director, Hold};
use super::effect::{Between, Mode, What};
use super::images::{self, Left};
use super::process::{Ended, Process, shown};
use super::scenario::Scenario;
use super::trace::{Fact, Host, Trace};
use crate::host::Told;
use crate::person;

/// A pipeline that needs more processes than this does not come to its end.
const LIVES: usize = 16;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) effect: u64,
    pub(crate) mode: Mode,
    /// Further crashes: of the first recovery, of its recovery.
    pub(crate) again: [Option<u64>; 2],
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) facts: Vec<Fact>,
    /// What was disturbed.
    pub(crate) fired: Option<What>,
    /// All further crashes took place too.
    pub(crate) fired_again: bool,
    /// Which image of a power cut it went on from.
    pub(crate) image: Option<usize>,
    /// What went wrong.
    pub(crate) violations: Vec<String>,
}

/// The effects of a process that nobody disturbs, and the epochs that it seals without rows.
pub(crate) struct Dry {
    pub(crate) effects: Vec<What>,
    pub(crate) empty: BTreeSet<u64>,
}

/// Runs without a disturbance.
///
/// # Errors
/// It does not end well.
pub(crate) fn dry(scenario: &'static Scenario) -> Result<Dry, String> {
    let mut bench = prepared(scenario)?;
    let director = bench.next_director(None);
    director.record();
    let ended = bench.live(&director);
    if let Some(other) = ended.iter().find(|ended| !matches!(ended, Ended::Report(End::Finished))) {
        return Err(format!("undisturbed, it does not finish: {}", shown(other)));
    }
    if let Some(violation) = bench.judge().first() {
        return Err(format!("undisturbed, it breaks a promise: {violation}"));
    }
    let facts = bench.trace.facts();
    let empty = facts.iter().filter_map(|fact| match fact {
        Fact::Append { kind: super::trace::Kind::Seal { epoch, empty: true }, .. } => Some(*epoch),
        _ => None,
    });
    Ok(Dry { effects: director.seen(), empty: empty.collect() })
}

/// A world as the scenario wants it before its first process.
fn prepared(scenario: &'static Scenario) -> Result<Bench, String> {
    let mut bench = Bench::new(scenario);
    for (call, phase, nth) in scenario.prelude {
        let mut count = 0;
        let seen = {
            let mut probe = bench.fork();
            let director = probe.next_director(None);
            director.record();
            probe.live(&director);
            director.seen()
        };
        let at = seen.iter().position(|what| {
            let fits = matches!(what, What::Call { call: c, phase: p, .. } if c == call && p == phase);
            count += usize::from(fits);
            fits && count == *nth
        });
        let at = at.ok_or_else(|| format!("there is no {call}, {phase}, number {nth} to begin behind"))?;
        let director = bench.next_director(Some((at as u64 + 1, Mode::Kill(Between::Nothing))));
        bench.live(&director);
        // What lies before is no part of the sweep.
        bench.trace = Trace::default();
    }
    if scenario.goes_back {
        bench.go_back()?;
    }
    Ok(bench)
}

/// Does it, and hands every outcome on: one, or one per image of a power cut. `thorough`: all images.
pub(crate) fn execute(
    scenario: &'static Scenario,
    plan: Plan,
    thorough: bool,
    only_image: Option<usize>,
    each: &mut dyn FnMut(Outcome),
) {
    let mut bench = match prepared(scenario) {
        Ok(bench) => bench,
        Err(why) => {
            return each(Outcome {
                facts: vec![],
                fired: None,
                fired_again: false,
                image: None,
                violations: vec![why],
            });
        }
    };
    let disturbed = match plan.mode {
        Mode::Pause => overtaken(&mut bench, plan.effect),
        Mode::Together(other) => together(&mut bench, plan.effect, u64::from(other)),
        _ => {
            let director = bench.next_director(Some((plan.effect, plan.mode)));
            let ended = bench.live(&director);
            (director.fired(), Ok(ended))
        }
    };
    let (fired, ended) = disturbed;
    let ended = match ended {
        Ok(ended) => ended,
        Err(why) => {
            let outcome = bench.outcome(fired, vec![why]);
            return each(outcome);
        }
    };
    if matches!(plan.mode, Mode::Power | Mode::EioThenPower) && fired.is_some() {
        return from_images(&bench, plan, thorough, only_image, &fired, each);
    }
    let mut fired_again = true;
    let mut ended = ended;
    if let Mode::Kill(between) = plan.mode
        && fired.is_some()
    {
        bench.change(between);
        for again in plan.again.into_iter().flatten() {
            let director = bench.next_director(Some((again, Mode::Kill(Between::Nothing))));
            ended = bench.live(&director);
            fired_again &= director.fired().is_some();
        }
        if scenario.power && fired_again && matches!(plan.again, [Some(_), None]) {
            return from_images(&bench, plan, thorough, only_image, &fired, each);
        }
    }
    let violations = bench.recover(ended, plan.mode);
    let mut outcome = bench.outcome(fired, violations);
    outcome.fired_again = fired_again;
    each(outcome);
}

/// Recovers from everything that a power cut may leave now.
fn from_images(
    bench: &Bench,
    plan: Plan,
    thorough: bool,
    only_image: Option<usize>,
    fired: &Option<What>,
    each: &mut dyn FnMut(Outcome),
) {
    // Of several pipelines the first one's disk loses power; the others' keep what they had.
    let Some(disk) = bench.tenants[0].store.disk() else { return };
    for (number, left) in images::images(&disk, thorough).into_iter().enumerate() {
        if only_image.is_none_or(|only| only == number) {
            let mut outcome = from_image(bench, left, plan.mode, fired.clone());
            outcome.image = Some(number);
            each(outcome);
        }
    }
}

fn from_image(bench: &Bench, left: Left, mode: Mode, fired: Option<What>) -> Outcome {
    let mut bench = bench.fork();
    bench.tenants[0].store.put_image(left.image);
    bench.trace.note(Fact::Image(left.losses));
    let dead = bench.tenants.iter().map(|_| Ended::Died).collect();
    let violations = bench.recover(dead, mode);
    bench.outcome(fired, violations)
}

/// A process is held, another one takes over and comes to its end, and the first one goes on.
fn overtaken(bench: &mut Bench, effect: u64) -> (Option<What>, Result<Vec<Ended>, String>) {
    let director = bench.next_director(Some((effect, Mode::Pause)));
    let (reached, is_held) = channel();
    let (go_on, wait) = channel();
    director.hold_with(Hold { reached, go_on: wait });
    let process = Process::new(bench, &director);
    let result = std::thread::scope(|scope| {
        let first = scope.spawn(|| process.live());
        let mut result = Ok(());
        if is_held.recv().is_ok() {
            let dead = bench.tenants.iter().map(|_| Ended::Died).collect();
            result = bench.come_to_end(dead, Mode::Pause);
        }
        let _ = go_on.send(());
        let ended = first.join().map_err(|_| "the process that was held panicked".to_owned())?;
        result.map(|()| bench.keep(ended))
    });
    (director.fired(), result)
}

/// Two processes start at once and each is held once.
fn together(bench: &mut Bench, effect: u64, other: u64) -> (Option<What>, Result<Vec<Ended>, String>) {
    let mut hold = |plan: u64| {
        let director = bench.next_director(Some((plan, Mode::Together(0))));
        let (reached, is_held) = channel();
        let (go_on, wait) = channel();
        director.hold_with(Hold { reached, go_on: wait });
        (director, is_held, go_on)
    };
    let (one, one_held, one_goes) = hold(effect);
    let (two, two_held, two_goes) = hold(other);
    let (first, second) = (Process::new(bench, &one), Process::new(bench, &two));
    let ended = std::thread::scope(|scope| {
        // Only one of them runs at a time: each is waited for until it is held, or over.
        let first = scope.spawn(|| first.live());
        let _ = one_held.recv();
        let second = scope.spawn(|| second.live());
        let _ = two_held.recv();
        let _ = one_goes.send(());
        let first = first.join();
        let _ = two_goes.send(());
        let second = second.join();
        Some((first.ok()?, second.ok()?))
    });
    let result = match ended {
        Some((first, second)) => {
            bench.keep(first);
            Ok(bench.keep(second))
        }
        None => Err("one of two processes panicked".to_owned()),
    };
    (two.fired().and(one.fired()), result)
}

impl Bench {
    fn next_director(&mut self, plan: Option<(u64, Mode)>) -> Director {
        let host = Host(self.hosts);
        self.hosts += 1;
        Director::new(host, plan, self.trace.clone())
    }

    fn live(&mut self, director: &Director) -> Vec<Ended> {
        let records = |bench: &Self| bench.tenants[0].store.journal().entries.len();
        let before = if self.undamaged.is_some() { records(self) } else { 0 };
        let ended = Process::new(self, director).live();
        if self.undamaged.is_some() && records(self) > before {
            // The log went on from what it found: what lay there before is not what it must become.
            self.undamaged = None;
        }
        self.keep(ended)
    }

    /// What a process told is kept.
    fn keep(&mut self, ended: Vec<(Ended, Told)>) -> Vec<Ended> {
        let mut ends = Vec::new();
        for (tenant, (ended, told)) in self.tenants.iter_mut().zip(ended) {
            tenant.finished |= matches!(ended, Ended::Report(End::Finished));
            tenant.told.push(told);
            ends.push(ended);
        }
        ends
    }

    fn outcome(&self, fired: Option<What>, violations: Vec<String>) -> Outcome {
        Outcome { facts: self.trace.facts(), fired, fired_again: true, image: None, violations }
    }

    /// Processes without faults until all is done; then what is still on its way arrives, and the promises are judged.
    fn recover(&mut self, ended: Vec<Ended>, mode: Mode) -> Vec<String> {
        let came_to_end = self.come_to_end(ended, mode);
        self.drain();
        let mut violations: Vec<String> = came_to_end.err().into_iter().collect();
        violations.extend(self.judge().iter().map(ToString::to_string));
        violations
    }

    fn come_to_end(&mut self, mut ended: Vec<Ended>, mode: Mode) -> Result<(), String> {
        let mut first = true;
        for life in 0..LIVES {
            for (tenant, ended) in ended.iter().enumerate() {
                self.react(tenant, ended, mode, life == 0)?;
            }
            if ended.iter().all(|ended| matches!(ended, Ended::Report(End::Finished))) {
                return Ok(());
            }
            if !std::mem::take(&mut first) {
                // Whatever was wrong with the surroundings is mended after one try.
                self.mend();
            }
            let director = self.next_director(None);
            ended = self.live(&director);
        }
        let ends: Vec<String> = ended.iter().map(shown).collect();
        Err(format!("P10: it does not come to its end; the last process: {}", ends.join("; ")))
    }

    fn mend(&mut self) {
        let dress = self.setting.dress.clone();
        self.setting = Setting { dress, subtasks: self.setting.subtasks, ..Setting::default() };
        self.world.skew(0);
    }

    /// What a person does about how a process ended.
    fn react(&mut self, tenant: usize, ended: &Ended, mode: Mode, disturbed: bool) -> Result<(), String> {
        let lied = mode == Mode::Lie || self.store_lied;
        let unexpected = |what: &str| Err(format!("{what}: {}", shown(ended)));
        match ended {
            Ended::Stuck => unexpected("P10: it hangs"),
            Ended::Report(End::Blocked { waiting }) => {
                self.resolve(tenant, waiting, mode);
                Ok(())
            }
            Ended::Report(End::Refused(Refusal::Graph(_))) if self.setting.dress.reads == [2] => {
                self.setting = Setting { subtasks: self.setting.subtasks, ..Setting::default() };
                Ok(())
            }
            Ended::Report(End::Refused(Refusal::Mismatch { sink, policies, .. })) if lied && !disturbed => {
                // To put the log right is better than to do without what it says.
                if !self.put_right() {
                    self.accept(tenant, sink, policies);
                }
                Ok(())
            }
            Ended::Report(End::Refused(_)) | Ended::Unopened(_) | Ended::Error(RunError::Log(_)) if !disturbed => {
                if self.put_right() {
                    Ok(())
                } else {
                    unexpected("P6: a start without faults is refused")
                }
            }
            Ended::Error(RunError::Spec(_)) => unexpected("the pipeline makes no sense"),
            _ => Ok(()),
        }
    }

    /// A person asks to go back to the first savepoint. It stays asked for: the same request seen again does nothing.
    fn go_back(&mut self) -> Result<(), String> {
        let tenant = &mut self.tenants[0];
        let history = person::look(&tenant.store, &tenant.spec.id);
        let savepoint = history.as_ref().and_then(|history| history.savepoints().values().min().copied());
        let of = savepoint.ok_or("there is no savepoint to go back to")?;
        let behind = history.is_some_and(|history| history.checkpoints().any(|epoch| epoch.of > of));
        if !behind {
            return Err("nothing lies behind the savepoint".to_owned());
        }
        let policy = MismatchPolicy::AcceptDuplicates;
        tenant.spec.settings.protocol.fork = Some(("back".into(), "a person".into(), of, policy));
        Ok(())
    }

    fn resolve(&self, tenant: usize, waiting: &[(SinkId, EpochRef, Blocked)], mode: Mode) {
        let Tenant { spec, store, .. } = &self.tenants[tenant];
        let decided = waiting.iter().filter(|(.., why)| !matches!(why, Blocked::TriesSpent(_)));
        for (number, (sink, of, why)) in decided.enumerate() {
            let id = format!("person-{}-{tenant}-{number}", self.hosts);
            let retry = !matches!(why, Blocked::Never) && !self.is_gone(why, mode);
            person::resolve(&self.world, store, &spec.id, &id, (sink, *of), retry);
        }
    }

    /// What cannot be committed by anybody any more: nothing but giving it up is left.
    fn is_gone(&self, why: &Blocked, mode: Mode) -> bool {
        matches!(mode, Mode::Lie | Mode::Kill(Between::Downtime))
            && matches!(why, Blocked::Rejected(error) if error.code == "not-there")
    }

    fn accept(&mut self, tenant: usize, sink: &SinkId, policies: &[MismatchPolicy]) {
        // To send again is better than to do without, where it is possible.
        let wanted =
            [MismatchPolicy::ReplayFromDestination, MismatchPolicy::AcceptLoss, MismatchPolicy::AcceptDuplicates];
        let Some(policy) = wanted.into_iter().find(|policy| policies.contains(policy)) else { return };
        let id = format!("accepted-{}", self.hosts);
        let numbers = &mut self.tenants[tenant].spec.settings.protocol;
        numbers.mismatch.insert(sink.clone(), (id, "a person".into(), policy));
    }

    /// A damaged log is brought back as it was. False if there is none.
    fn put_right(&mut self) -> bool {
        let Some(image) = self.undamaged.take() else { return false };
        self.tenants[0].store.put_image(image);
        true
    }
}
