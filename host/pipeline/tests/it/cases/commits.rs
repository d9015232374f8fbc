//! Lost answers, refusals, several sinks.

use std::sync::{Arc, Mutex};

use tidegate_pipeline::observe::Observer;
use tidegate_pipeline::run::{Control, run};
use tidegate_protocol::event::{End, Notice};
use tidegate_protocol::plugin::{Call, ErrorKind, Outcome, PluginError};
use tidegate_store::MemoryLog;

use crate::destination::{Destination, Mischief};
use crate::lines::Lines;
use crate::support::{env, pipeline, run_to_end, sink, sink_id};

#[tokio::test(start_paused = true)]
async fn f29_a_lost_answer_is_asked_for_and_nothing_comes_twice() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(2, 100));
    destination.script(Call::Commit, [Mischief::LoseAnswer, Mischief::None, Mischief::Trap, Mischief::LoseAnswer]);
    destination.script(Call::Reconcile, [Mischief::LoseAnswer, Mischief::Trap]);
    let report = run_to_end(pipeline(lines.clone(), 2, vec![sink("out", destination.plugin(), 2)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
    assert_eq!(report.progress.runs, 1, "a lost answer does not end the run");
}

#[tokio::test(start_paused = true)]
async fn without_reconcile_the_same_commit_is_sent_again() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(1, 60));
    destination.script(Call::Commit, [Mischief::LoseAnswer, Mischief::LoseAnswer]);
    let plugin = destination.plugin_with(|abilities| abilities.reconcile = false);
    let report = run_to_end(pipeline(lines.clone(), 1, vec![sink("out", plugin, 1)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
}

#[tokio::test(start_paused = true)]
async fn retryable_outcomes_are_tried_again_and_b48_never_taken_for_success() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(1, 60));
    destination.script(
        Call::Commit,
        [
            Mischief::Outcome(Outcome::Retry(Some(500))),
            Mischief::Outcome(Outcome::NotCommitted),
            Mischief::Outcome(Outcome::Unknown),
            Mischief::Error(ErrorKind::Retryable),
        ],
    );
    let report = run_to_end(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_is_not_allowed_waits_for_the_right_and_is_told_once() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(1, 60));
    destination.script(Call::Commit, std::iter::repeat_n(Mischief::Error(ErrorKind::Denied), 5));
    let told = Arc::new(Told::default());
    let pipeline = pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]);
    let env = env(Control::default(), Arc::clone(&told) as Arc<dyn Observer>);
    let report = run(pipeline, Box::new(log), env).await.expect("it runs");
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
    let told = told.0.lock().expect("nobody panicked");
    let fails: Vec<_> = told.iter().filter(|notice| matches!(notice, Notice::CallFails { .. })).collect();
    let [Notice::CallFails { of: Some(_), fault, for_ms, .. }] = fails[..] else { panic!("{told:?}") };
    assert_eq!((fault.call, *for_ms > 1000), (Call::Commit, true));
}

#[derive(Default)]
struct Told(Mutex<Vec<Notice>>);

impl Observer for Told {
    fn notice(&self, notice: &Notice) {
        self.0.lock().expect("nobody panicked").push(notice.clone());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_epoch_blocks_its_sink_and_the_other_sink_goes_on() {
    let (bad, good, log, lines) =
        (Destination::default(), Destination::default(), MemoryLog::default(), Lines::new(1, 20));
    let refusal = PluginError { kind: ErrorKind::Permanent, code: "full".into(), message: "table is full".into() };
    bad.script(Call::Commit, [Mischief::Outcome(Outcome::Rejected(refusal))]);
    let sinks = vec![sink("bad", bad.plugin(), 1), sink("good", good.plugin(), 1)];
    let report = run_to_end(pipeline(lines.clone(), 1, sinks), &log).await;
    let End::Blocked { waiting } = report.end else { panic!("{:?}", report.end) };
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].0, sink_id("bad"));
    assert_eq!(good.rows(), lines.expected());
    assert!(bad.rows().is_empty());

    // Started again without a decision, it is still blocked, and nothing is sent.
    let sinks = vec![sink("bad", bad.plugin(), 1), sink("good", good.plugin(), 1)];
    let report = run_to_end(pipeline(lines.clone(), 1, sinks), &log).await;
    assert!(matches!(report.end, End::Blocked { .. }), "{:?}", report.end);
    assert!(bad.rows().is_empty());
    assert_eq!(good.rows(), lines.expected());
}

#[tokio::test(start_paused = true)]
async fn b34_two_sinks_with_equal_configuration_share_nothing() {
    let (one, two, log, lines) =
        (Destination::default(), Destination::default(), MemoryLog::default(), Lines::new(2, 50));
    let sinks = vec![sink("one", one.plugin(), 2), sink("two", two.plugin(), 2)];
    let report = run_to_end(pipeline(lines.clone(), 2, sinks), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(one.rows(), lines.expected());
    assert_eq!(two.rows(), lines.expected());
    let shorts = |d: &Destination| d.lock().committed.keys().cloned().collect::<std::collections::BTreeSet<_>>();
    assert!(shorts(&one).is_disjoint(&shorts(&two)), "names carry the sink");
}

#[tokio::test(start_paused = true)]
async fn b15_a_destination_that_knows_epochs_of_a_lost_log_is_refused() {
    let (destination, lines) = (Destination::default(), Lines::new(1, 30));
    run_to_end(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &MemoryLog::default()).await;
    let before = destination.rows();
    let report =
        run_to_end(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &MemoryLog::default()).await;
    assert!(matches!(report.end, End::Refused(_)), "{:?}", report.end);
    assert_eq!(destination.rows(), before, "a refusal changes nothing");
}
