//! Calls that never answer, host code that panics, destinations that are slow: the run ends or goes on, it never hangs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidegate_pipeline::observe::{Moment, Observer, Progress};
use tidegate_pipeline::run::{Control, RunError, RunReport, run};
use tidegate_pipeline::spec::Pipeline;
use tidegate_protocol::event::{AppendResult, End, Notice, TaskFailure};
use tidegate_protocol::ids::{Slot, SourceId};
use tidegate_protocol::plugin::{Call, Outcome};
use tidegate_protocol::record::{Body, Record, StateChunk};
use tidegate_store::{Log, MemoryLog, StoreError};

use crate::destination::{Destination, Mischief};
use crate::lines::Lines;
use crate::support::{Watch, env, pipeline, run_to_end, sink};

/// A run that takes longer than this hangs. Time is paused, so waiting costs nothing.
const FOREVER: Duration = Duration::from_secs(10_000);

async fn run_on(pipeline: Pipeline, log: Box<dyn Log>, observer: Arc<dyn Observer>) -> Result<RunReport, RunError> {
    tokio::time::timeout(FOREVER, run(pipeline, log, env(Control::default(), observer))).await.expect("the run ends")
}

/// Panics when it is to write a seal.
struct Breaks(MemoryLog);

impl Log for Breaks {
    fn append(&mut self, record: &Record) -> AppendResult {
        assert!(!matches!(record.body, Body::Seal(_)), "as scripted");
        self.0.append(record)
    }
    fn read_all(&mut self) -> Result<Vec<Record>, StoreError> {
        self.0.read_all()
    }
    fn delete(&mut self, slots: &[Slot]) -> Result<(), StoreError> {
        self.0.delete(slots)
    }
    fn put_state(&mut self, chunk: &[u8]) -> Result<StateChunk, StoreError> {
        self.0.put_state(chunk)
    }
    fn read_state(&mut self, chunk: &StateChunk) -> Result<Bytes, StoreError> {
        self.0.read_state(chunk)
    }
    fn retain_state(&mut self, keep: &BTreeSet<StateChunk>) -> Result<u64, StoreError> {
        self.0.retain_state(keep)
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_panics_ends_the_run_and_does_not_leave_it_waiting() {
    let destination = Destination::default();
    let with = pipeline(Lines::new(1, 30), 1, vec![sink("out", destination.plugin(), 1)]);
    let ended = run_on(with, Box::new(Breaks(MemoryLog::default())), Arc::new(Watch::default())).await;
    assert!(matches!(ended, Err(RunError::LogLost(_))), "{ended:?}");
    assert!(destination.rows().is_empty(), "nothing is visible without its seal");
}

#[tokio::test(start_paused = true)]
async fn a_panic_or_a_call_without_an_answer_is_a_fault_like_any_other() {
    use Call::{Abandon, Begin, Commit, Fence, ListOrphans, Observe, Open, Prepare, Reconcile, Write};
    for call in [Observe, Fence, Open, Begin, Write, Prepare, Commit, Reconcile, ListOrphans, Abandon] {
        for mischief in [Mischief::Panic, Mischief::Hang] {
            let (destination, lines) = (Destination::default(), Lines::new(2, 100));
            if call == Reconcile {
                destination.script(Commit, [Mischief::LoseAnswer]);
            }
            if call == Abandon {
                destination.script(Prepare, [Mischief::LoseAnswer]);
            }
            destination.script(call, [mischief.clone()]);
            let with = pipeline(lines.clone(), 2, vec![sink("out", destination.plugin(), 2)]);
            let report = run_on(with, Box::new(MemoryLog::default()), Arc::new(Watch::default())).await;
            assert_eq!(report.expect("the log is readable").end, End::Finished, "{call} {mischief:?}");
            assert_eq!(destination.rows(), lines.expected(), "{call} {mischief:?}");
        }
    }
}

/// What was read whenever a commit was in doubt.
#[derive(Default)]
struct InDoubt {
    rows_read: Mutex<Vec<u64>>,
    now: AtomicBool,
}

impl Observer for InDoubt {
    fn notice(&self, notice: &Notice) {
        if matches!(notice, Notice::InDoubt { .. }) {
            self.now.store(true, Ordering::Relaxed);
        }
    }
    fn progress(&self, progress: &Progress) {
        if self.now.swap(false, Ordering::Relaxed) {
            self.rows_read.lock().unwrap_or_else(PoisonError::into_inner).push(progress.rows_read);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_read_while_too_many_epochs_wait_for_their_commit() {
    let (destination, lines) = (Destination::default(), Lines::new(1, 5_000));
    destination.script(Call::Commit, std::iter::repeat_n(Mischief::Outcome(Outcome::Unknown), 8));
    let plugin = destination.plugin_with(|abilities| abilities.reconcile = false);
    let mut with = pipeline(lines.clone(), 1, vec![sink("out", plugin, 1)]);
    with.settings.protocol.max_waiting = 2;
    with.settings.protocol.backoff_base_ms = 5_000;
    let seen = Arc::new(InDoubt::default());
    let report = run_on(with, Box::new(MemoryLog::default()), seen.clone()).await;
    assert_eq!(report.expect("the log is readable").end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
    let seen = seen.rows_read.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(seen.len(), 8);
    // Two epochs wait and a third is open, of about a hundred rows each.
    assert!(seen.iter().all(|rows| *rows < 600), "{seen:?}");
}

/// When barriers were sent and epochs sealed.
#[derive(Default)]
struct Pauses(Mutex<Vec<(bool, tokio::time::Duration)>>, Option<tokio::time::Instant>);

impl Observer for Pauses {
    fn reached(&self, moment: Moment) {
        if let (Moment::Preparing | Moment::Sealed, Some(begin)) = (moment, self.1) {
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push((moment == Moment::Sealed, begin.elapsed()));
        }
    }
    fn notice(&self, _notice: &Notice) {}
}

#[tokio::test(start_paused = true)]
async fn after_a_slow_checkpoint_there_is_a_pause_before_the_next() {
    let (destination, lines) = (Destination::default(), Lines::new(1, 600));
    destination.lock().slow_prepare = Duration::from_millis(150);
    let mut with = pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]);
    with.settings.min_pause = Duration::from_millis(80);
    let seen = Arc::new(Pauses(Mutex::default(), Some(tokio::time::Instant::now())));
    let report = run_on(with, Box::new(MemoryLog::default()), seen.clone()).await;
    assert_eq!(report.expect("the log is readable").end, End::Finished);
    let seen = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
    let pauses: Vec<Duration> =
        seen.windows(2).filter(|pair| pair[0].0 && !pair[1].0).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(pauses.len() > 2, "{seen:?}");
    // The last barrier does not wait: it ends the input.
    assert!(pauses[..pauses.len() - 1].iter().all(|pause| *pause >= Duration::from_millis(80)), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_dead_letter_sink_a_row_rejected_in_prepare_stops_the_pipeline_at_once() {
    let destination = Destination::default();
    destination.lock().rejects_in_prepare = vec![r#""n":3,"#];
    let with = pipeline(Lines::new(1, 10), 1, vec![sink("out", destination.plugin(), 1)]);
    let report = run_to_end(with, &MemoryLog::default()).await;
    assert!(matches!(report.end, End::Failed(TaskFailure::BadRow { .. })), "{:?}", report.end);
    assert_eq!(report.progress.runs, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_that_would_drop_rows_or_spin_is_refused() {
    let destination = Destination::default();
    let good = || pipeline(Lines::new(1, 10), 1, vec![sink("out", destination.plugin(), 1)]);
    let mut spins = good();
    spins.settings.interval = Duration::ZERO;
    let mut drops = good();
    let mut other = pipeline(Lines::new(1, 10), 1, vec![]).sources;
    other[0].id = SourceId::new("unread").expect("legal name");
    drops.sources.extend(other);
    drops.sinks[0].sources = Some(BTreeSet::from([SourceId::new("lines").expect("legal name")]));
    for (with, word) in [(spins, "interval"), (drops, "unread")] {
        let ended = run_on(with, Box::new(MemoryLog::default()), Arc::new(Watch::default())).await;
        let Err(RunError::Spec(message)) = ended else { panic!("{ended:?}") };
        assert!(message.contains(word), "{message}");
    }
}
