//! The explorer itself: that it is complete, counts the same each time, and finds what is planted.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_model::coverage::Branch;
use tidegate_model::examples::counter_examples;
use tidegate_model::explore::{Failure, Order, explore};
use tidegate_model::judge::{Promise, Violation};
use tidegate_model::log::{Facts, Log};
use tidegate_model::plan::{How, Plan, STRANGER, SinkPlan, Spend, nonce, pipeline};
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, PartId, RunId, SinkId, Slot};
use tidegate_protocol::plugin::{AtomicScope, Committable, Position};
use tidegate_protocol::record::{Body, CutReason, EpochOutcome, Open, OutcomeEntry, PartCut, Record, Seal, SinkCut};

const ENOUGH: u64 = 200_000;

fn tiny() -> Plan {
    Plan::new("tiny", vec![SinkPlan::able("a", 1)], &[1]).allow(Spend::Crash, 1)
}

#[test]
fn a_tiny_pipeline_is_explored_to_its_end() {
    let report = explore(tiny(), Order::ShortestFirst, ENOUGH).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.states > 500 && report.transitions > report.states && report.longest > 10, "{report}");
    for branch in [Branch::EndFinished, Branch::DoReconcile, Branch::EpochCommitted, Branch::PhaseCleaning] {
        assert!(report.coverage.count(branch) > 0, "{branch:?} was not reached");
    }
}

#[test]
fn the_count_is_the_same_each_time_and_in_each_order() {
    let count = |order| {
        let report = explore(tiny(), order, ENOUGH).unwrap_or_else(|failure| panic!("{failure}"));
        let coverage: Vec<u64> = Branch::ALL.iter().map(|branch| report.coverage.count(*branch)).collect();
        (report.states, report.transitions, report.ends, report.longest, coverage)
    };
    let first = count(Order::NewestFirst);
    assert_eq!(first, count(Order::NewestFirst));
    assert_eq!(first, count(Order::ShortestFirst));
}

#[test]
fn an_exploration_that_is_cut_short_fails() {
    assert!(matches!(explore(tiny(), Order::NewestFirst, 100), Err(Failure::TooLarge(_))));
}

#[test]
fn a_destination_that_repeats_a_commit_is_caught() {
    let plan = tiny().faults(1, &[How::Twice]).set(|plan| plan.without.idempotence = true);
    match explore(plan, Order::ShortestFirst, ENOUGH) {
        Err(Failure::Broken(violation, trace)) => {
            assert_eq!(violation.promise, Promise::P1, "{violation}");
            assert!(trace.len() > 5 && trace.iter().any(|step| step.contains("commit")), "{trace:?}");
        }
        other => panic!("nothing was found: {other:?}"),
    }
}

#[test]
fn a_counter_example_is_shown_only_by_the_promise_that_it_names() {
    let examples = counter_examples();
    let numbers: BTreeSet<u32> = examples.iter().map(|example| example.number).collect();
    assert!(numbers.into_iter().eq(1..=12));
    let mut names = BTreeSet::new();
    for example in &examples {
        assert!(names.insert(example.name) && example.name.starts_with(&example.number.to_string()), "{example:?}");
        let broken = |promise| Err(Failure::Broken(Violation { promise, message: String::new() }, Vec::new()));
        let other = if example.breaks == Promise::P1 { Promise::P2 } else { Promise::P1 };
        assert_eq!(example.objection(true, &broken(example.breaks)), None);
        for bad in [broken(other), broken(Promise::Model), broken(Promise::Liveness), Err(Failure::TooLarge(1))] {
            assert!(example.objection(true, &bad).is_some() && example.objection(false, &bad).is_some(), "{bad:?}");
        }
        assert!(example.objection(false, &broken(example.breaks)).is_some());
    }
}

#[test]
fn a_rule_that_stands_shows_nothing_when_it_should_be_taken_out() {
    let examples = counter_examples();
    // Its rule is one of the protocol, which stands in this program.
    let example = examples.iter().find(|example| example.name == "8-foreign").expect("it is there");
    let explored = example.explored(true, ENOUGH);
    assert_eq!(example.objection(false, &explored), None);
    assert!(example.objection(true, &explored).is_some_and(|why| why.contains("does not happen")));
}

fn id(name: &str) -> SinkId {
    tidegate_model::plan::sink(name)
}

/// A log in which this run sealed epochs 1 and 2 with a row each, and recorded that sink `a` committed them.
fn committed_twice() -> Log {
    let run = RunId { number: 1, nonce: nonce(1) };
    let mut log = Log::default();
    let mut put = |outcomes, body| {
        let slot = log.next();
        log.append(&Record { slot, run, written_at: 0, outcomes, body });
    };
    let open = Open {
        pipeline: pipeline(),
        parent: None,
        observed: BTreeMap::new(),
        under: Vec::new(),
        product: String::new(),
    };
    put(Vec::new(), Body::Open(open));
    for epoch in [1, 2] {
        let part = PartId::mint(&pipeline(), &id("a"), run, Epoch(epoch), 0, 1);
        let committable =
            Committable { part, version: 1, body: Bytes::from(vec![epoch as u8]), rows: 1, expires_at: None };
        let cut = PartCut {
            ordinal: 0,
            range: KeyRange::ALL,
            committable: Some(committable),
            resources: Vec::new(),
            state: Vec::new(),
            rows_in: 1,
            rows: 1,
            rejected: 0,
            filtered: 0,
        };
        let plan = Plan::new("x", vec![SinkPlan::able("a", 1)], &[1]);
        let binding = plan.graph(0, tidegate_model::plan::StartKind::Plain).sinks[&id("a")].binding.clone();
        let seal = Seal {
            epoch: Epoch(epoch),
            reason: CutReason::Interval,
            graph: String::new(),
            sources: BTreeMap::new(),
            operators: BTreeMap::new(),
            sinks: BTreeMap::from([(id("a"), SinkCut { binding, parts: vec![cut] })]),
        };
        put(Vec::new(), Body::Seal(Box::new(seal)));
        let of = EpochRef { run, epoch: Epoch(epoch) };
        let outcome = OutcomeEntry { sink: id("a"), of, attempt: 1, outcome: EpochOutcome::Committed };
        put(vec![outcome], Body::Outcomes);
    }
    log
}

#[test]
fn the_judge_sees_a_destination_that_is_behind_ahead_or_foreign() {
    let facts = Facts::of(&committed_twice());
    let run = RunId { number: 1, nonce: nonce(1) };
    let at = |run, epoch| Position {
        fence: Some(run),
        last: vec![PartId::mint(&pipeline(), &id("a"), run, Epoch(epoch), 0, 1)],
        ..Position::default()
    };
    for scope in [AtomicScope::Sink, AtomicScope::Participant] {
        let stands = |seen: &Position| {
            let end = Slot(99);
            (facts.explains(&id("a"), seen, end).is_ok(), facts.reaches(scope, &id("a"), seen, end).is_ok())
        };
        assert_eq!(stands(&at(run, 2)), (true, true));
        assert_eq!(stands(&at(run, 1)), (true, false), "behind");
        assert_eq!(stands(&Position::default()), (true, false), "behind, and empty");
        assert!(!stands(&at(run, 3)).0, "ahead");
        assert!(!stands(&at(RunId { number: 1, nonce: STRANGER }, 2)).0, "foreign");
    }
}
