//! Committers that fail for ever, in each of their ways: tries are bounded and lie apart, a person is told, what is sealed
//! is never given up, and the next run finishes it.

use std::iter::repeat_n;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_pipeline::observe::Observer;
use tidegate_pipeline::run::{Control, RunReport, run};
use tidegate_protocol::event::{End, Notice};
use tidegate_protocol::plugin::{Call, ErrorKind};
use tidegate_protocol::record::Blocked;
use tidegate_store::MemoryLog;
use tokio::time::Instant;

use crate::destination::{Destination, Mischief};
use crate::lines::Lines;
use crate::support::{env, pipeline, run_to_end, sink};

/// What an operator is told.
#[derive(Default)]
struct Told(Mutex<Vec<Notice>>);

impl Observer for Told {
    fn notice(&self, notice: &Notice) {
        self.0.lock().expect("nobody panicked").push(notice.clone());
    }
}

struct Outcome {
    destination: Destination,
    report: RunReport,
    told: Vec<Notice>,
    took: Duration,
    log: MemoryLog,
    lines: Lines,
}

/// Runs into a destination whose calls are scripted.
async fn into(script: impl IntoIterator<Item = (Call, Vec<Mischief>)>) -> Outcome {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(1, 2000));
    script.into_iter().for_each(|(call, mischief)| destination.script(call, mischief));
    let told = Arc::new(Told::default());
    let pipeline = pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]);
    let env = env(Control::default(), Arc::clone(&told) as Arc<dyn Observer>);
    let began = Instant::now();
    let report = run(pipeline, Box::new(log.clone()), env).await.expect("the log is readable");
    let told = told.0.lock().expect("nobody panicked").clone();
    Outcome { destination, report, told, took: began.elapsed(), log, lines }
}

fn left(destination: &Destination, call: Call) -> usize {
    destination.lock().mischief.get(&call).map_or(0, |left| left.len())
}

/// Blocked after its tries, with everything that was sealed still there; and the next run, with nothing in the way, commits
/// it.
async fn is_blocked_and_finished_later(outcome: Outcome) {
    let Outcome { destination, report, told, log, lines, .. } = outcome;
    let End::Blocked { waiting } = &report.end else { panic!("{:?}", report.end) };
    let [(_, of, Blocked::TriesSpent(why))] = &waiting[..] else { panic!("{waiting:?}") };
    assert!(!why.is_empty());
    let blocked = |notice: &Notice| matches!(notice, Notice::Blocked { of: told, .. } if told == of);
    assert!(told.iter().any(blocked), "a person is told: {told:?}");
    assert!(!destination.lock().staged.is_empty(), "what is sealed is not given back");
    assert_ne!(destination.rows(), lines.expected());

    destination.lock().mischief.clear();
    let report = run_to_end(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected(), "each row once");
}

#[tokio::test(start_paused = true)]
async fn h09_a_trap_in_every_later_commit_is_tried_apart_blocked_and_never_abandoned() {
    let script = [Mischief::None, Mischief::None].into_iter().chain(repeat_n(Mischief::Trap, 100)).collect();
    let outcome = into([(Call::Commit, script)]).await;
    assert_eq!(left(&outcome.destination, Call::Commit), 90, "`commit-tries` is 10");
    assert!(outcome.took > Duration::from_secs(30), "waits that double lie between: {:?}", outcome.took);
    let doubt = |notice: &&Notice| matches!(notice, Notice::InDoubt { reason, .. } if reason.contains("trapped"));
    assert!(outcome.told.iter().filter(doubt).count() > 0, "it is in doubt, never failed");
    is_blocked_and_finished_later(outcome).await;
}

#[tokio::test(start_paused = true)]
async fn h09_a_committer_in_quarantine_leaves_its_epoch_in_doubt_and_nobody_spins() {
    let instances = [Mischief::None].into_iter().chain(repeat_n(Mischief::Quarantine, 100)).collect();
    let commits = vec![Mischief::None, Mischief::Trap];
    let outcome = into([(Call::Instantiate, instances), (Call::Commit, commits)]).await;
    let asked = 100 - left(&outcome.destination, Call::Instantiate);
    assert!((1..=10).contains(&asked), "asked for an instance {asked} times");
    assert!(outcome.took > Duration::from_secs(30), "waits that double lie between: {:?}", outcome.took);
    let words = |notice: &&Notice| matches!(notice, Notice::InDoubt { reason, .. } if reason.contains("quarantine"));
    assert!(outcome.told.iter().filter(words).count() > 0, "{:?}", outcome.told);
    is_blocked_and_finished_later(outcome).await;
}

#[tokio::test(start_paused = true)]
async fn h65_a_commit_that_asks_to_be_tried_again_for_ever_is_capped_and_told() {
    let again = repeat_n(Mischief::Error(ErrorKind::Retryable), 1000).collect();
    let outcome = into([(Call::Commit, again)]).await;
    assert_eq!(left(&outcome.destination, Call::Commit), 990);
    let fails = |notice: &&Notice| matches!(notice, Notice::CallFails { .. });
    assert_eq!(outcome.told.iter().filter(fails).count(), 1, "a reason is told once");
    is_blocked_and_finished_later(outcome).await;
}
