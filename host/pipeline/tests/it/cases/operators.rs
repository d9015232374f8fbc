//! Operator state, timers and watermarks live through restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_pipeline::observe::{Moment, Observer};
use tidegate_pipeline::operator::OperatorEntry;
use tidegate_pipeline::run::{Control, run};
use tidegate_pipeline::spec::{Pipeline, Route};
use tidegate_protocol::event::End;
use tidegate_protocol::ids::OperatorId;
use tidegate_protocol::plugin::Call;
use tidegate_store::MemoryLog;

use crate::count::CountPerKey;
use crate::destination::{Destination, Mischief};
use crate::lines::Lines;
use crate::support::{env, pipeline, run_and_stop, run_to_end, sink};

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

/// Cut off at a moment, as by a kill: what runs then is dropped. Whether it came to that.
async fn killed_at(with: Pipeline, log: &MemoryLog, moment: Moment) -> bool {
    struct Wait(Moment, tokio::sync::Notify);
    impl Observer for Wait {
        fn reached(&self, moment: Moment) {
            if moment == self.0 {
                self.1.notify_one();
            }
        }
    }
    let wait = Arc::new(Wait(moment, tokio::sync::Notify::new()));
    let running = run(with, Box::new(log.clone()), env(Control::default(), wait.clone()));
    tokio::select! {
        biased;
        () = wait.1.notified() => true,
        ended = running => {
            ended.expect("the log is readable");
            false
        }
    }
}

/// Keyed state, writers and source tasks at once, over what was prepared, sealed and in doubt in another shape.
#[tokio::test(start_paused = true)]
async fn f43_every_part_of_a_pipeline_changes_its_number_over_unfinished_work() {
    for moment in [Moment::Open, Moment::Preparing, Moment::Sealed, Moment::Sent, Moment::InDoubt] {
        let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(4, 400));
        let shaped = |tasks, subtasks, writers| {
            let mut with = counting(&lines, &destination, subtasks);
            with.sources[0].tasks = tasks;
            with.sinks[0].subtasks = writers;
            with
        };
        let mut killed = 0;
        for (tasks, subtasks, writers) in [(2, 2, 2), (3, 1, 3), (1, 4, 1), (4, 3, 4)] {
            if moment == Moment::InDoubt {
                destination.script(Call::Commit, [Mischief::LoseAnswer]);
            }
            killed += usize::from(killed_at(shaped(tasks, subtasks, writers), &log, moment).await);
        }
        assert!(killed >= 3, "{moment:?}: {killed} kills");
        destination.lock().mischief.clear();
        let report = run_to_end(shaped(2, 2, 2), &log).await;
        assert_eq!(report.end, End::Finished, "{moment:?}");
        assert_eq!(totals(&destination), expected(&lines), "{moment:?}");
        // No total of a key is told twice: nothing was counted or written again.
        let mut rows = destination.rows();
        let all = rows.len();
        rows.dedup();
        assert_eq!(rows.len(), all, "{moment:?}");
    }
}
