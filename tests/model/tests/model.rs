//! The explorer itself: that it is complete, counts the same each time, and finds what is planted.

use tidegate_model::coverage::Branch;
use tidegate_model::explore::{Failure, Order, explore};
use tidegate_model::judge::Promise;
use tidegate_model::plan::{How, Plan, SinkPlan, Spend};

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
