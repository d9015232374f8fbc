//! Operator state, timers and watermarks live through restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_pipeline::observe::Moment;
use tidegate_pipeline::operator::OperatorEntry;
use tidegate_pipeline::spec::{Pipeline, Route};
use tidegate_protocol::event::End;
use tidegate_protocol::ids::OperatorId;
use tidegate_protocol::plugin::Call;
use tidegate_store::MemoryLog;

use crate::count::CountPerKey;
use tidegate_simulation::destination::{Destination, Mischief};
use tidegate_simulation::lines::Lines;
use tidegate_simulation::support::{pipeline, run_and_stop, run_to_end, sink};

fn counting(lines: &Lines, destination: &Destination, subtasks: u32) -> Pipeline {
    let mut with = pipeline(lines.clone(), 2, vec![sink("out", destination.plugin(), 1)]);
    with.operators = vec![OperatorEntry {
        id: OperatorId::new("count").expect("legal name"),
        operator: Arc::new(CountPerKey),
        subtasks,
        route: Route::Key("key".into()),
    }];
    with
}

/// The largest total per key that a reader sees.
fn totals(destination: &Destination) -> BTreeMap<String, u64> {
    let mut totals = BTreeMap::new();
    for row in destination.rows() {
        let row: serde_json::Value = serde_json::from_str(&row).expect("JSON");
        let total = row["total"].as_u64().expect("a number");
        let best = totals.entry(row["key"].as_str().expect("a key").to_owned()).or_insert(0);
        *best = total.max(*best);
    }
    totals
}

fn expected(lines: &Lines) -> BTreeMap<String, u64> {
    let mut totals = BTreeMap::new();
    for row in lines.expected() {
        let row: serde_json::Value = serde_json::from_str(&row).expect("JSON");
        *totals.entry(row["key"].as_str().expect("a key").to_owned()).or_insert(0) += 1;
    }
    totals
}

#[tokio::test(start_paused = true)]
async fn counts_per_key_are_right_after_stops_and_faults() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(2, 300));
    let report = run_and_stop(counting(&lines, &destination, 2), &log, Moment::Sealed, 2).await;
    assert_eq!(report.end, End::Stopped);
    destination.script(Call::Prepare, [Mischief::None, Mischief::Trap]);
    let report = run_to_end(counting(&lines, &destination, 2), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.progress.runs, 2);
    assert_eq!(totals(&destination), expected(&lines));
    let mut rows = destination.rows();
    let all = rows.len();
    rows.dedup();
    assert_eq!(rows.len(), all, "no total is told twice");
}

#[tokio::test(start_paused = true)]
async fn f43_state_finds_its_keys_after_a_rescale() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(2, 300));
    for subtasks in [1, 3, 2] {
        run_and_stop(counting(&lines, &destination, subtasks), &log, Moment::Sealed, 1).await;
    }
    let report = run_to_end(counting(&lines, &destination, 4), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(totals(&destination), expected(&lines));
}
