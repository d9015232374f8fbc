//! Beginning, ending, going back.

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::event::{End, TaskFailure};
use tidegate_protocol::plugin::{Call, ErrorKind};
use tidegate_store::MemoryLog;

use crate::destination::{Destination, Mischief};
use crate::lines::Lines;
use crate::support::{pipeline, run_and_stop, run_to_end, sink, sink_id};

#[tokio::test(start_paused = true)]
async fn a_bounded_source_arrives_whole_and_once() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(3, 100));
    let report = run_to_end(pipeline(lines.clone(), 3, vec![sink("out", destination.plugin(), 2)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
    assert_eq!(report.progress.rows_committed[&sink_id("out")], 300);
    assert_eq!(report.progress.epochs_committed, report.progress.epochs_sealed);
    assert!(report.progress.epochs_sealed > 1, "the barrier interval cuts the input: {report:?}");
    assert!(destination.lock().staged.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_finished_pipeline_run_again_changes_nothing() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(1, 30));
    run_to_end(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    let commits = destination.lock().commits;
    let report = run_to_end(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.progress.epochs_sealed, 0);
    assert_eq!(destination.lock().commits, commits);
    assert_eq!(destination.rows(), lines.expected());
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_with_a_committed_epoch_and_the_next_run_goes_on() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(2, 400));
    let first = pipeline(lines.clone(), 2, vec![sink("out", destination.plugin(), 2)]);
    let report = run_and_stop(first, &log, Moment::Sealed, 1).await;
    assert_eq!(report.end, End::Stopped);
    let seen = destination.rows().len();
    assert!(seen > 0 && seen < 800, "{seen}");
    assert!(destination.lock().staged.is_empty(), "a stop leaves nothing staged");
    let report = run_to_end(pipeline(lines.clone(), 2, vec![sink("out", destination.plugin(), 2)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
}

#[tokio::test(start_paused = true)]
async fn an_endless_source_stops_when_asked() {
    let (destination, log) = (Destination::default(), MemoryLog::default());
    let lines = Lines { endless: true, ..Lines::new(1, 20) };
    let report =
        run_and_stop(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &log, Moment::Open, 1)
            .await;
    assert_eq!(report.end, End::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_trapped_writer_sends_the_pipeline_back_to_the_last_sealed_epoch() {
    for call in [Call::Open, Call::Begin, Call::Write, Call::Prepare] {
        let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(2, 100));
        destination.script(call, [Mischief::None, Mischief::None, Mischief::None, Mischief::Trap]);
        let report = run_to_end(pipeline(lines.clone(), 2, vec![sink("out", destination.plugin(), 2)]), &log).await;
        assert_eq!(report.end, End::Finished, "{call}");
        assert_eq!(destination.rows(), lines.expected(), "{call}");
        assert!(destination.lock().staged.is_empty(), "{call}: what the lost run staged is given back");
    }
}

#[tokio::test(start_paused = true)]
async fn f08_staged_and_then_lost_work_is_abandoned() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(1, 50));
    destination.script(Call::Prepare, [Mischief::LoseAnswer]);
    let report = run_to_end(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(report.progress.runs, 2);
    assert_eq!(destination.rows(), lines.expected());
    assert!(destination.lock().staged.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_always_traps_ends_the_pipeline_after_bounded_tries() {
    let (destination, log) = (Destination::default(), MemoryLog::default());
    destination.script(Call::Write, std::iter::repeat_n(Mischief::Trap, 100));
    let report = run_to_end(pipeline(Lines::new(1, 10), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    assert!(matches!(report.end, End::Failed(_)), "{:?}", report.end);
    assert_eq!(report.progress.runs, 4, "the first and three more");
    assert!(destination.rows().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_bad_configuration_is_not_tried_again() {
    let (destination, log) = (Destination::default(), MemoryLog::default());
    destination.script(Call::Open, [Mischief::Error(ErrorKind::BadConfig)]);
    let report = run_to_end(pipeline(Lines::new(1, 10), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    assert!(matches!(report.end, End::Failed(_)), "{:?}", report.end);
    assert_eq!(report.progress.runs, 1);
}

#[tokio::test(start_paused = true)]
async fn rows_by_key_find_the_same_participant_every_time() {
    use tidegate_pipeline::spec::Route;
    let mut owner = std::collections::BTreeMap::new();
    // As text and as columns alike.
    for columns in [None, Some(Lines::columns())] {
        let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(2, 100));
        let mut out = sink("out", destination.plugin(), 3);
        out.route = Route::Key("key".into());
        let mut with = pipeline(lines.clone(), 2, vec![out]);
        with.sources[0].columns = columns;
        let report = run_to_end(with, &log).await;
        assert_eq!(report.end, End::Finished);
        assert_eq!(destination.rows(), lines.expected());
        for (short, rows) in &destination.lock().committed {
            let ordinal = short.rsplit('-').nth(1).expect("short names end with ordinal and attempt").to_owned();
            for row in rows {
                let value: serde_json::Value = serde_json::from_slice(row).expect("JSON");
                let key = value["key"].to_string();
                assert_eq!(owner.entry(key).or_insert_with(|| ordinal.clone()), &ordinal);
            }
        }
    }
    assert!(owner.values().collect::<std::collections::BTreeSet<_>>().len() > 1, "keys are spread: {owner:?}");
}

#[tokio::test(start_paused = true)]
async fn announced_resources_are_durable_before_they_exist() {
    let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(1, 50));
    destination.lock().announces = true;
    let plugin =
        destination.plugin_with(|abilities| abilities.orphans = tidegate_protocol::plugin::Orphans::DurableIntent);
    let report = run_to_end(pipeline(lines.clone(), 1, vec![sink("out", plugin, 1)]), &log).await;
    assert_eq!(report.end, End::Finished);
    assert_eq!(destination.rows(), lines.expected());
    let numbers: Vec<u64> = destination.lock().intents.iter().map(|(number, _)| *number).collect();
    assert!(!numbers.is_empty());
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_cannot_be_fenced_is_told_in_its_own_words() {
    let (destination, log) = (Destination::default(), MemoryLog::default());
    destination.script(Call::Fence, std::iter::repeat_n(Mischief::Error(ErrorKind::Retryable), 100));
    let report = run_to_end(pipeline(Lines::new(1, 10), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
    let End::Failed(TaskFailure::Plugin(_, fault)) = report.end else { panic!("{:?}", report.end) };
    assert_eq!(fault.call, Call::Fence, "not taken for another run's doing");
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_destination_that_keeps_failing() {
    for call in [Call::Observe, Call::Fence, Call::Commit] {
        let (destination, log, lines) = (Destination::default(), MemoryLog::default(), Lines::new(1, 100));
        destination.script(call, std::iter::repeat_n(Mischief::Error(ErrorKind::Retryable), 1000));
        let mut with = pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]);
        with.settings.protocol.commit_tries = 1_000;
        let began = tokio::time::Instant::now();
        let moment = if call == Call::Observe { Moment::Starting } else { Moment::Restoring };
        let moment = if call == Call::Commit { Moment::Sealed } else { moment };
        let report = run_and_stop(with, &log, moment, 1).await;
        let expected = matches!(report.end, End::Stopped) || matches!(report.end, End::StoppedInDoubt { .. });
        assert!(expected, "{call}: {:?}", report.end);
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{call}: {:?}", began.elapsed());
        destination.lock().mischief.clear();
        let report = run_to_end(pipeline(lines.clone(), 1, vec![sink("out", destination.plugin(), 1)]), &log).await;
        assert_eq!(report.end, End::Finished, "{call}");
        assert_eq!(destination.rows(), lines.expected(), "{call}");
    }
}
