//! Epochs that were acknowledged too early, committed in part, forgotten or left behind.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_columns::transform::TransformOptions;
use tidegate_pipeline::observe::Moment;
use tidegate_protocol::coordinator::Settings;
use tidegate_protocol::event::{End, Event, Notice, TaskFailure};
use tidegate_protocol::plugin::{AtomicScope, Call, ErrorKind};
use tidegate_protocol::record::Body;
use tidegate_simulation::dest::{Act, Did, Kind};
use tidegate_simulation::source::row_id;

use crate::hand::Hand;
use crate::scene::{Scene, good_rows};

/// Enforced by `seal::sink_cut` (a part for every participant, empty ones too) and by `pipeline::liveness`.
#[tokio::test(start_paused = true)]
async fn b35_empty_parts_are_sealed_and_a_commit_that_does_not_get_on_is_an_alarm() {
    // All rows have one key: of three writers two have nothing, in every epoch.
    let mut rows = good_rows(2, 200);
    rows.keys = 1;
    let mut scene = Scene::of(Kind { scope: AtomicScope::Participant, ..Kind::register() }).rows(rows);
    (scene.spec.sinks[0].subtasks, scene.spec.sinks[0].by_key) = (3, true);
    scene.live_until_crash(Moment::Sealed, 3).await;
    scene.finish().await;
    scene.assert_each_row_once();
    let history = scene.history();
    let parts: Vec<usize> =
        history.checkpoints().map(|epoch| epoch.seal.sinks.values().map(|cut| cut.parts.len()).sum()).collect();
    assert!(!parts.is_empty() && parts.iter().all(|parts| *parts == 3), "P3: each seal holds all writers: {parts:?}");
    assert_eq!(alarms(&scene), 0, "no alarm where all gets on");

    // Rows of which none reaches the sink: an epoch is sealed with nothing but how far the source was read.
    let mut scene = Scene::register();
    scene.spec.columns = true;
    scene.spec.settings.interval_ms = 15;
    let filter = TransformOptions { filter: Some("n < 20 or n >= 150".to_owned()), ..TransformOptions::default() };
    let report = scene.live_changed(|pipeline| pipeline.sinks[0].shape.transform = Some(filter)).await;
    assert_eq!(report.end, End::Finished);
    let journal = scene.store.journal();
    let seals = journal.durable().filter_map(|entry| match &entry.record.body {
        Body::Seal(seal) => Some((seal.epoch.0, seal.sinks.values().all(|cut| cut.parts.iter().all(|p| p.rows == 0)))),
        _ => None,
    });
    let (sealed, empty): (Vec<u64>, Vec<bool>) = seals.unzip();
    assert!(sealed.iter().copied().eq(1..=sealed.len() as u64), "P3: an epoch was passed over: {sealed:?}");
    assert!(empty.iter().filter(|empty| **empty).count() > 3, "P3: epochs without rows were not sealed: {sealed:?}");
    let first =
        scene.count(scene.out(), |did| matches!(did, Did::CommitCalled { previous, .. } if previous.is_empty()));
    assert_eq!(first, 1, "P8: a commit behind epochs without rows still names what is there");

    // Sealed, and the commit gets nowhere without an error: a person is told, at the sink and with the time.
    let mut scene = Scene::with(vec![("out", Kind::register()), ("quick", Kind::register())]);
    scene.spec.settings.protocol.commit_tries = 100;
    scene.spec.settings.call_timeout_ms = 60_000;
    scene.out().script().plan(Call::Commit, 2, Act::Slow(9_000));
    let report = scene.live_changed(|pipeline| pipeline.settings.alarm_after = Duration::from_millis(1_000)).await;
    assert_eq!(report.end, End::Finished);
    let told: Vec<u64> = scene.told[0]
        .notices
        .iter()
        .filter_map(|(_, notice)| match notice {
            Notice::NoProgress { sink: Some(sink), for_ms, .. } if sink.as_str() == "out" => Some(*for_ms),
            Notice::NoProgress { .. } => scene.fail(&format!("not there: {notice:?}")),
            _ => None,
        })
        .collect();
    assert_eq!(told.len(), 4, "P4: silence about what waits; after 1, 2, 4 and 8 seconds it is told: {told:?}");
    assert!(told.is_sorted() && told[0] >= 1_000 && told[3] < 9_000, "{told:?}");
    scene.assert_each_row_once();

    // A barrier that does not come through is one as well.
    let mut scene = Scene::register();
    scene.spec.settings.call_timeout_ms = 60_000;
    scene.out().script().plan(Call::Prepare, 3, Act::Slow(5_000));
    scene.live_changed(|pipeline| pipeline.settings.alarm_after = Duration::from_millis(1_000)).await;
    let cutting = scene.notices(|notice| matches!(notice, Notice::NoProgress { sink: None, .. }));
    assert_eq!(cutting, 3, "P4: silence about what waits; after 1, 2 and 4 seconds it is told");
    scene.assert_each_row_once();
}

fn alarms(scene: &Scene) -> usize {
    scene.notices(|notice| matches!(notice, Notice::NoProgress { .. }))
}

/// Enforced by `running::is_complete`: a set of who answered, never a count or a notification.
#[tokio::test(start_paused = true)]
async fn b37_nothing_is_committed_before_all_writers_have_answered() {
    for late in 1..6 {
        let mut scene = Scene::of(Kind { scope: AtomicScope::Participant, ..Kind::register() });
        scene.spec.sinks[0].subtasks = 3;
        // One writer's answer is on its way for several intervals.
        scene.out().script().plan(Call::Prepare, late, Act::Slow(300));
        scene.live_until_crash(Moment::Sealed, 2).await;
        scene.finish().await;
        scene.assert_each_row_once();
    }
    let mut hand = Hand::new(Settings::default());
    hand.cut(1, 4);
    let answer = hand.answer(0, 1, 4, &[]);
    hand.tell(answer);
    assert!(
        hand.seals().is_empty() && hand.asked.is_empty(),
        "P2: one of two has answered; neither sealed nor committed"
    );
}

/// Enforced by `Lane::new`: what a run finishes comes from the log and from nothing else.
#[tokio::test(start_paused = true)]
async fn b38_what_is_sealed_is_committed_by_the_next_run_whoever_was_told() {
    for nth in 1..5 {
        for scope in [AtomicScope::Sink, AtomicScope::Participant] {
            let mut scene = Scene::of(Kind { scope, ..Kind::register() }).rows(good_rows(2, 600));
            // Between the snapshot and the word that it is complete, in every life.
            for _ in 0..3 {
                scene.live_until_crash(Moment::Sealed, nth).await;
            }
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}

/// Enforced by `History::unfinished`: a commit that has no end is open, however many checkpoints come behind it.
#[tokio::test(start_paused = true)]
async fn b39_a_commit_that_fails_is_carried_on_behind_later_epochs() {
    let mut scene = Scene::register();
    scene.spec.settings.protocol.commit_tries = 100;
    scene.spec.settings.protocol.retain_count = 1;
    scene.out().script().plan(Call::Commit, 2, Act::Error(ErrorKind::Retryable));
    scene.out().script().then(
        Call::Commit,
        [
            Act::Slow(1),
            Act::Error(ErrorKind::Retryable),
            Act::Error(ErrorKind::Retryable),
            Act::Error(ErrorKind::Retryable),
            Act::Error(ErrorKind::Retryable),
            Act::Error(ErrorKind::Retryable),
        ],
    );
    // Epoch 2 is not committed, 3 and 4 are sealed behind it; the newest checkpoint is restored.
    scene.live_until_crash(Moment::Sealed, 4).await;
    let waiting = scene.history().unfinished(&scene.spec.sinks[0].id).len();
    assert!(waiting >= 3, "{waiting} epochs wait");
    scene.out().script().clear();
    scene.finish().await;
    scene.assert_each_row_once();
    assert_in_order(&scene);
}

/// Epochs became visible in the order of their numbers.
fn assert_in_order(scene: &Scene) {
    let journal = scene.out().journal();
    let epochs: Vec<u64> = journal
        .entries
        .iter()
        .filter_map(|entry| match &entry.did {
            Did::Visible { part, .. } => Some(part.epoch.0),
            _ => None,
        })
        .collect();
    scene.claim(epochs.is_sorted(), &format!("P1: epochs are seen in order: {epochs:?}"));
}

/// Enforced by `stop::go_on_stopping`: `finished` is recorded when nothing waits any more.
#[tokio::test(start_paused = true)]
async fn b40_the_end_is_told_only_when_the_last_epoch_is_committed() {
    // The last commits are slow, lost, or refused for a while.
    for act in [Act::Slow(350), Act::LoseAnswer, Act::Error(ErrorKind::Retryable), Act::HangAfter] {
        let mut scene = Scene::register().rows(good_rows(2, 30));
        for nth in 1..=3 {
            scene.out().script().plan(Call::Commit, nth, act.clone());
        }
        scene.finish().await;
        scene.assert_each_row_once();
    }
    // The host dies between the last commit and the word that it has finished.
    let mut scene = Scene::register();
    scene.live_until_crash(Moment::Finishing, 1).await;
    scene.finish().await;
    scene.assert_each_row_once();
    // Where it cannot be committed, nobody says that it has finished.
    let mut scene = Scene::register().rows(good_rows(1, 10));
    scene.out().script().then(Call::Commit, vec![Act::Error(ErrorKind::Retryable); 50]);
    let end = scene.live_to_end().await;
    assert!(matches!(end, End::StoppedInDoubt { .. }), "P4: what is not committed is not done: {end:?}");
    assert_eq!(scene.history().finished(), None, "P4: what is not committed is not done");
    scene.out().script().clear();
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by `running::next_cut`: the end of the input cuts an epoch.
#[tokio::test(start_paused = true)]
async fn b41_the_last_rows_of_a_bounded_input_are_committed_without_an_interval() {
    for rows in [1, 7, 200] {
        let mut scene = Scene::register().rows(good_rows(2, rows));
        scene.spec.settings.interval_ms = 3_600_000;
        scene.finish().await;
        scene.assert_each_row_once();
    }
    // Rows behind the last interval, and a host that dies before they are sealed.
    let mut scene = Scene::register();
    scene.live_until_crash(Moment::Preparing, 4).await;
    scene.spec.settings.interval_ms = 3_600_000;
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by `running::fits` and by `seal::Checks::part`: what a writer answers belongs to the epoch that it names.
#[tokio::test(start_paused = true)]
async fn b42_a_late_answer_belongs_to_its_own_epoch_or_to_none() {
    let mut hand = Hand::new(Settings::default());
    for epoch in 1..=2 {
        hand.cut(epoch, 4);
        for ordinal in 0..2 {
            let answer = hand.answer(ordinal, epoch, 2, &[]);
            hand.tell(answer);
        }
    }
    hand.cut(3, 4);
    // The answer for the epoch before comes once more, late; it must not stand in for the one that is missing.
    let late = hand.answer(0, 2, 2, &[]);
    hand.tell(late);
    let answer = hand.answer(1, 3, 4, &[]);
    hand.tell(answer);
    assert_eq!((hand.seals().len(), hand.ended()), (2, None), "P3: sealed without the answer of one writer");
    // A writer whose answer names the epoch before loses this one, and is not believed.
    let wrong = match (hand.answer(0, 3, 0, &[]), hand.answer(0, 2, 0, &[])) {
        (Event::PartPrepared { sink, ordinal, epoch, rows_in, filtered, rejected_in_write, .. }, _) => {
            let Event::PartPrepared { prepared, .. } = hand.answer(0, 2, 2, &[]) else { panic!("an answer") };
            Event::PartPrepared { sink, ordinal, epoch, rows_in: rows_in + 2, filtered, rejected_in_write, prepared }
        }
        _ => panic!("an answer"),
    };
    hand.tell(wrong);
    assert!(
        matches!(hand.ended(), Some(End::Failed(TaskFailure::Plugin(..)))),
        "P3: it is not believed: {:?}",
        hand.ended()
    );
    assert_eq!(hand.seals().len(), 2, "P3: nothing is sealed with an answer for another epoch");

    let mut scene = Scene::register();
    scene.out().script().plan(Call::Prepare, 5, Act::WrongPart);
    let end = scene.live_to_end().await;
    assert!(matches!(end, End::Failed(TaskFailure::Plugin(..))), "P3: it is not believed: {end:?}");
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by `running::fits`: told apart by who sent it and for which epoch.
#[test]
fn b44_an_answer_that_comes_twice_counts_once() {
    let mut hand = Hand::new(Settings::default());
    hand.cut(1, 4);
    let answer = hand.answer(0, 1, 2, &[]);
    for _ in 0..3 {
        hand.tell(answer.clone());
    }
    assert!(hand.seals().is_empty(), "P3: one of two, however often it says so");
    let other = hand.answer(1, 1, 2, &[]);
    hand.tell(other.clone());
    // The whole cycle is replayed.
    hand.tell(answer.clone());
    hand.tell(other.clone());
    hand.cut(2, 2);
    hand.tell(answer);
    hand.tell(other);
    let next = hand.answer(0, 2, 2, &[]);
    hand.tell(next);
    let none = hand.answer(1, 2, 0, &[]);
    hand.tell(none);
    let seals = hand.seals();
    let parts: Vec<Vec<(u32, u64)>> = seals
        .iter()
        .map(|seal| seal.sinks.values().flat_map(|cut| &cut.parts).map(|part| (part.ordinal, part.rows)).collect())
        .collect();
    assert_eq!(parts, [vec![(0, 2), (1, 2)], vec![(0, 2), (1, 0)]], "P1: each part in one seal");
    assert_eq!(hand.ended(), None);
    // Twice and not the same: somebody is broken, and nothing of it is sealed.
    hand.cut(3, 4);
    let one = hand.answer(0, 3, 2, &[]);
    hand.tell(one);
    let other = hand.answer(0, 3, 3, &[]);
    hand.tell(other);
    assert!(matches!(hand.ended(), Some(End::Restart(_))), "P3: {:?}", hand.ended());
    assert_eq!(hand.seals().len(), 2, "P3: nothing is sealed with two answers of one writer");
}

/// Enforced by `stop::go_on_publishing`.
#[tokio::test(start_paused = true)]
async fn b46_progress_is_published_only_for_what_every_sink_committed() {
    let mut scene = Scene::with(vec![("one", Kind::register()), ("two", Kind::register())]);
    scene.spec.settings.protocol.commit_tries = 100;
    // One of the sinks lags behind, and the host dies meanwhile.
    scene.spec.sinks[1].destination.script().then(Call::Commit, vec![Act::Error(ErrorKind::Retryable); 7]);
    scene.live_until_crash(Moment::Sealed, 4).await;
    scene.spec.sinks[1].destination.script().plan(Call::Commit, 2, Act::Slow(200));
    scene.finish().await;
    scene.assert_each_row_once();
    // By the rows themselves: whatever is published can be seen at both sinks from then on, or before.
    for sink in &scene.spec.sinks {
        let mut seen: BTreeMap<u32, Vec<(u64, u32)>> = BTreeMap::new();
        for entry in &sink.destination.journal().entries {
            if let Did::Visible { rows, .. } = &entry.did {
                for (partition, row) in rows.iter().filter_map(|row| row_id(row)) {
                    seen.entry(partition).or_default().push((entry.seq, row));
                }
            }
        }
        let published = scene.spec.source.published();
        assert!(published.len() > 3, "{}", published.len());
        for (at, cut) in published {
            for (partition, rows) in seen.iter() {
                let cut = cut.partitions.entries().expect("all pages are there");
                let to = cut.get(&format!("p{partition}")).map_or(0, |to| to.parse::<u32>().expect("a number"));
                let before = rows.iter().filter(|(seq, row)| *seq < at && *row < to).count();
                scene.claim(
                    before == to as usize,
                    &format!("P11: {to} rows published and {before} seen at `{}`", sink.id),
                );
            }
        }
    }
    let committed = |record: &tidegate_protocol::record::Record| matches!(record.body, Body::Finished(_));
    assert_eq!(scene.store.journal().durable().filter(|entry| committed(&entry.record)).count(), 1);
}
