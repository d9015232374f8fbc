//! Goes through every effect of every scenario.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::effect::{Between, DiskOp, Mode, What};
use super::execution::{self, Dry, Outcome, Plan};
use super::modes::modes;
use super::points::{Hits, Point, points};
use super::scenario::Scenario;
use super::view::View;
use crate::dice::Dice;

/// So many effects belong to the start of a process, for two that start together.
const START: u64 = 24;
/// Double crashes in recovery are drawn.
const DRAWN: u64 = 3_000;
const DRAWN_QUICK: u64 = 40;
/// Violations that are kept, per scenario.
const KEPT: usize = 20;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) quick: bool,
    pub(crate) threads: usize,
    pub(crate) seed: u64,
}

/// A broken promise, and how to see it again.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) scenario: &'static str,
    pub(crate) plan: Plan,
    pub(crate) image: Option<usize>,
    pub(crate) what: Vec<String>,
    pub(crate) trace: Vec<String>,
}

/// What was done, and what came of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    pub(crate) hits: Hits,
    /// Disturbances, each with its recovery.
    pub(crate) recoveries: u64,
    /// Of them, from an image of a power cut.
    pub(crate) images: u64,
    /// Effects of undisturbed processes that are to be disturbed.
    pub(crate) effects: u64,
    /// Scenarios in which nothing was left to disturb at the end.
    pub(crate) clean: u64,
    pub(crate) by_mode: BTreeMap<String, u64>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) broken: u64,
}

impl Summary {
    pub(crate) fn join(&mut self, other: Summary) {
        self.hits.add(&other.hits);
        self.recoveries += other.recoveries;
        self.images += other.images;
        self.effects += other.effects;
        self.clean += other.clean;
        for (mode, count) in other.by_mode {
            *self.by_mode.entry(mode).or_default() += count;
        }
        self.broken += other.broken;
        let room = KEPT.saturating_sub(self.violations.len());
        self.violations.extend(other.violations.into_iter().take(room));
    }
}

/// One piece of work: an effect with all its modes, or some crashes within recoveries.
enum Piece {
    Effect { effect: u64, what: What },
    Nested { effect: u64 },
    Drawn { from: u64, to: u64 },
    Clean,
}

/// Sweeps one scenario.
///
/// # Errors
/// It cannot be swept: undisturbed, it does not end well.
pub(crate) fn sweep(scenario: &'static Scenario, extent: Extent) -> Result<Summary, String> {
    let dry = execution::dry(scenario)?;
    let wanted = dry.effects.iter().filter(|what| scenario.only.is_none_or(|only| only(what))).count();
    if wanted == 0 {
        return Err("it has none of the effects that are to be disturbed".to_owned());
    }
    let pieces = pieces(scenario, &dry, extent);
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Summary { effects: wanted as u64, ..Summary::default() });
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..extent.threads.max(1) {
            scope.spawn(|| {
                let points = points();
                let mut worker = Worker { scenario, dry: &dry, extent, points: &points, summary: Summary::default() };
                while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    worker.work(piece);
                }
                total.lock().unwrap_or_else(PoisonError::into_inner).join(worker.summary);
            });
        }
    });
    let _ = failed;
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn pieces(scenario: &Scenario, dry: &Dry, extent: Extent) -> Vec<Piece> {
    let count = dry.effects.len() as u64;
    let stride = if extent.quick { scenario.quick_stride } else { 1 };
    let mut pieces = Vec::new();
    let mut steps = 0;
    for (effect, what) in (1..).zip(&dry.effects) {
        if let Some(only) = scenario.only {
            if only(what) {
                pieces.push(Piece::Effect { effect, what: what.clone() });
            }
            continue;
        }
        // Of kinds of effects that come very often a quick sweep takes some.
        // The disk's own points are met on the smallest scenario, and where segments are written again.
        let kept = match what {
            What::Disk { op: DiskOp::MakeFolder, .. } => false,
            What::Disk { op: DiskOp::Flush | DiskOp::Remove, .. } if scenario.padding > 0 => true,
            What::Disk { .. } => scenario.nested,
            _ => false,
        };
        let often = matches!(what, What::Step | What::Look { .. } | What::Disk { .. }) && !kept;
        steps += u64::from(often);
        if (often || (scenario.quick_stride > 10 && !kept)) && steps % stride != 0 {
            continue;
        }
        pieces.push(Piece::Effect { effect, what: what.clone() });
    }
    if scenario.nested {
        let stride = if extent.quick { 12 } else { 1 };
        pieces.extend((1..=count).step_by(stride).map(|effect| Piece::Nested { effect }));
    }
    let drawn = if extent.quick { DRAWN_QUICK } else { DRAWN } / 10;
    if scenario.only.is_none() {
        pieces.extend((0..10).map(|at| Piece::Drawn { from: at * drawn, to: (at + 1) * drawn }));
    }
    pieces.push(Piece::Clean);
    pieces
}

/// Two hosts that start at once are held at these effects: every pair of their starts, and a grid over all the rest.
fn together(one: u64, other: u64, quick: bool) -> bool {
    let starting = one <= START && other <= START;
    match quick {
        true => starting && other % 5 == 1,
        false => starting || (one.is_multiple_of(5) && other.is_multiple_of(7)),
    }
}

struct Worker<'a> {
    scenario: &'static Scenario,
    dry: &'a Dry,
    extent: Extent,
    points: &'a [Point],
    summary: Summary,
}

impl Worker<'_> {
    fn work(&mut self, piece: &Piece) {
        match piece {
            Piece::Effect { effect, what } => self.effect(*effect, what),
            Piece::Nested { effect } => self.nested(*effect),
            Piece::Drawn { from, to } => self.drawn(*from, *to),
            Piece::Clean => self.clean(),
        }
    }

    fn effect(&mut self, effect: u64, what: &What) {
        for mode in modes(self.scenario, what) {
            self.one(Plan { effect, mode, again: [None; 2] }, Some(what));
        }
        if self.scenario.hosts {
            for other in 1..=self.dry.effects.len() as u64 {
                let mode = Mode::Together(u32::try_from(other).unwrap_or(1));
                if together(effect, other, self.extent.quick) {
                    self.one(Plan { effect, mode, again: [None; 2] }, Some(what));
                }
            }
        }
    }

    /// A crash at every effect of the recovery, until one takes place that nothing was left to crash in.
    fn nested(&mut self, effect: u64) {
        let stride = if self.extent.quick { 9 } else { 1 };
        for again in (1..).step_by(stride) {
            let plan = Plan { effect, mode: Mode::Kill(Between::Nothing), again: [Some(again), None] };
            if !self.one(plan, None) {
                return;
            }
        }
    }

    fn drawn(&mut self, from: u64, to: u64) {
        let count = self.dry.effects.len() as u64;
        for number in from..to {
            let mut dice = Dice::new(self.extent.seed).fork(self.scenario.name).fork(&format!("{number}"));
            let mut below = |limit: u64| 1 + dice.below(limit.max(1));
            let plan = Plan {
                effect: below(count),
                mode: Mode::Kill(Between::Nothing),
                again: [Some(below(count)), Some(below(count))],
            };
            self.one(plan, None);
        }
    }

    /// One effect more than there are: nothing may be left to disturb.
    fn clean(&mut self) {
        let effect = self.dry.effects.len() as u64 + 1;
        let plan = Plan { effect, mode: Mode::Kill(Between::Nothing), again: [None; 2] };
        let mut outcomes = Vec::new();
        execution::execute(self.scenario, plan, true, None, &mut |outcome| outcomes.push(outcome));
        for outcome in outcomes {
            if outcome.fired.is_none() && outcome.violations.is_empty() {
                self.summary.clean += 1;
            } else {
                self.violated(plan, outcome, "the pass that should have been clean was not");
            }
        }
    }

    /// Whether all its crashes took place.
    fn one(&mut self, plan: Plan, expected: Option<&What>) -> bool {
        let mut outcomes = Vec::new();
        execution::execute(self.scenario, plan, !self.extent.quick, None, &mut |outcome| outcomes.push(outcome));
        let mut all_fired = true;
        for (number, outcome) in outcomes.into_iter().enumerate() {
            all_fired &= outcome.fired.is_some() && outcome.fired_again;
            // With two hosts the second may be over before its turn; that is no disturbance.
            let idle = outcome.fired.is_none() && matches!(plan.mode, Mode::Together(_));
            self.summary.recoveries += u64::from(!idle);
            self.summary.images += u64::from(outcome.image.is_some());
            *self.summary.by_mode.entry(plan.mode.to_string()).or_default() += u64::from(!idle);
            if let Some(view) = View::new(&outcome.facts, &self.dry.empty) {
                self.summary.hits.count(self.points, &view, number > 0);
            }
            if !outcome.violations.is_empty() {
                self.violated(plan, outcome, "");
            } else if expected.is_some_and(|what| outcome.fired.as_ref() != Some(what)) && !idle {
                self.violated(plan, outcome, "another effect was disturbed than the one that was there");
            }
        }
        all_fired
    }

    fn violated(&mut self, plan: Plan, outcome: Outcome, also: &str) {
        self.summary.broken += 1;
        if self.summary.violations.len() >= KEPT {
            return;
        }
        let mut what = outcome.violations;
        if !also.is_empty() {
            what.push(also.to_owned());
        }
        let trace = outcome.facts.iter().map(ToString::to_string).collect();
        let violation = Violation { scenario: self.scenario.name, plan, image: outcome.image, what, trace };
        self.summary.violations.push(violation);
    }
}

#[cfg(test)]
mod tests {
    use tidegate_store::disk::sim::Dishonest;

    use super::super::bench::Tenant;
    use super::super::scenario::{PLAIN, named};
    use super::*;
    use crate::world::World;

    const QUICK: Extent = Extent { quick: true, threads: 2, seed: 1 };

    fn build(name: &str, world: &World) -> Vec<Tenant> {
        named(name).map(|scenario| (scenario.build)(world)).unwrap_or_default()
    }

    #[test]
    fn a_small_sweep_ends_with_a_clean_pass() {
        static TINY: Scenario = PLAIN;
        let summary = sweep(&TINY, QUICK).expect("undisturbed it ends well");
        let broken: Vec<_> = summary.violations.iter().map(|violation| &violation.what).collect();
        assert_eq!((summary.clean, broken), (1, vec![]));
        assert!(summary.recoveries > 200 && summary.effects > 60, "{} of {}", summary.recoveries, summary.effects);
    }

    #[test]
    fn a_flush_that_does_nothing_is_found() {
        static DISHONEST: Scenario = Scenario {
            power: true,
            plugins: false,
            build: |world| {
                let tenants = build("small", world);
                let disk = tenants[0].store.disk().expect("the log lies on a disk");
                disk.plant(Dishonest::Files);
                tenants
            },
            ..PLAIN
        };
        let summary = sweep(&DISHONEST, QUICK).expect("undisturbed nobody sees it");
        let found = summary.violations.iter().flat_map(|violation| &violation.what);
        let lost = found.filter(|what| what.contains("was acknowledged and is gone")).count();
        assert!(lost > 0, "{} violations", summary.broken);
        assert!(
            summary.violations.iter().all(|violation| violation.plan.mode == Mode::Power && violation.image.is_some())
        );
    }

    #[test]
    fn the_same_sweep_counts_the_same() {
        let (one, other) = (
            sweep(named("left-sent").expect("it is there"), QUICK),
            sweep(named("left-sent").expect("it is there"), QUICK),
        );
        let counts = |summary: &Summary| (summary.recoveries, summary.effects, summary.hits.0.clone());
        assert_eq!(one.as_ref().map(counts), other.as_ref().map(counts));
    }
}
