//! A failure, for people: the promise, a plan with as few misfortunes as still break it, and the part of the trace that
//! matters.

use super::plan::Plan;
use super::run::Outcome;
use super::{Options, guarded};
use crate::oracle::Violation;
use crate::said::{print, say};
use crate::world::Line;

/// So many lines before a violation are shown.
const BEFORE: u64 = 160;

/// Tells what breaks in a seed, and how to run it again.
pub(super) fn failure(seed: u64, violations: &[Violation], options: &Options) {
    say(format!("\nseed {seed} breaks a promise:"));
    violations.iter().take(8).for_each(|violation| say(format!("  {violation}")));
    let plan = shrink(Plan::draw(seed, options.planted), violations, options);
    let outcome = guarded(&plan, true, options.planted_disk);
    say("with the misfortunes that are needed for it:");
    describe(&plan);
    outcome.violations.iter().take(8).for_each(|violation| say(format!("  {violation}")));
    shortened(&outcome).iter().for_each(say);
    say(format!("again: cargo run --profile proof -p tidegate-simulation -- simulate --seed {seed}"));
}

fn describe(plan: &Plan) {
    for (number, sink) in plan.sinks.iter().enumerate() {
        say(format!("  sink {number}: {} {:?} by key: {}", sink.kind.name, sink.rejects, sink.by_key));
    }
    say(format!(
        "  object store: {}, step with state: {}, columns: {}",
        plan.object_store, plan.operator, plan.columns
    ));
    for (number, life) in plan.lives.iter().enumerate() {
        say(format!(
            "  life {number}: tasks {}, step {}, sinks {:?}: {:?}",
            life.tasks, life.operator_subtasks, life.subtasks, life.items
        ));
    }
}

/// Leaves out what is not needed for the same promise to break.
fn shrink(mut plan: Plan, violations: &[Violation], options: &Options) -> Plan {
    let promise = violations.first().map_or("", |violation| violation.promise);
    let breaks = |plan: &Plan| {
        guarded(plan, false, options.planted_disk).violations.iter().any(|violation| violation.promise == promise)
    };
    while plan.lives.len() > 1 {
        let mut fewer = plan.clone();
        fewer.lives.pop();
        if !breaks(&fewer) {
            break;
        }
        plan = fewer;
    }
    for at in plan.items().into_iter().rev() {
        let fewer = plan.without(at);
        if breaks(&fewer) {
            plan = fewer;
        }
    }
    plan
}

/// What matters of a trace: lives, faults, decisions and records of runs throughout, and all that led to the violation.
fn shortened(outcome: &Outcome) -> Vec<&Line> {
    let at = outcome.violations.iter().filter_map(|violation| violation.at).min();
    let end = outcome.trace.last().map_or(0, |line| line.seq);
    let until = at.unwrap_or(end);
    let always = ["FAULT", "host starts", "host ends", "a person", ": open after", "decision", "put back", "late "];
    let never = ["told: Epoch", "host: ", "progress is published"];
    outcome
        .trace
        .iter()
        .filter(|line| {
            let close = line.seq <= until + 4 && line.seq + BEFORE >= until;
            always.iter().any(|word| line.what.contains(word))
                || (close && !never.iter().any(|word| line.what.starts_with(word) || line.what.contains("progress is")))
        })
        .collect()
}

/// One seed with its whole trace; false if a promise breaks.
pub(super) fn one(seed: u64, options: &Options) -> bool {
    let plan = Plan::draw(seed, options.planted);
    describe(&plan);
    let outcome = guarded(&plan, true, options.planted_disk);
    outcome.trace.iter().for_each(print);
    say(format!(
        "{} epochs, {} recoveries, {} faults, ends {:?}, counts: {}",
        outcome.epochs,
        outcome.recoveries,
        outcome.faults.values().sum::<u64>(),
        outcome.ends,
        outcome.counts()
    ));
    if outcome.violations.is_empty() {
        return true;
    }
    failure(seed, &outcome.violations, options);
    false
}
