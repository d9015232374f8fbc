//! Ids that were minted again, shared or guessed, so that something was committed twice or taken for done.

use std::collections::BTreeSet;

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::event::{End, Mismatch, Refusal};
use tidegate_protocol::guarantee::Delivery;
use tidegate_protocol::plugin::{AtomicScope, Call, ErrorKind};
use tidegate_protocol::record::{Body, CutReason, MismatchPolicy};
use tidegate_simulation::dest::{Act, Did, Kind};
use tidegate_simulation::host::{Do, Ended};
use tidegate_simulation::source::{Pace, SimSource};
use tidegate_simulation::store::SimStore;
use tidegate_store::AppendFault;

use crate::scene::{ROWS, Scene, good_rows, sink_id};

/// Enforced by the seal, which holds the ids: `commit::permit` takes them from there and mints none.
#[tokio::test(start_paused = true)]
async fn b14_a_commit_keeps_its_id_through_a_restart_under_another_run() {
    // It cannot be asked: all hangs on the repeated commit being known by its id.
    for scope in [AtomicScope::Sink, AtomicScope::Participant] {
        let mut scene = Scene::of(Kind { reconcile: false, scope, ..Kind::register() });
        for nth in [3, 2, 2] {
            scene.out().script().plan(Call::Commit, nth, Act::CrashAfter);
            scene.live_until_death().await;
        }
        scene.finish().await;
        scene.assert_each_row_once();
        let known = scene.count(scene.out(), |did| matches!(did, Did::KnownAlready { .. }));
        assert!(known >= 3, "P1: each lost answer was recognised when it was sent again: {known}");
    }
}

fn refused(scene: &Scene, end: End) -> Mismatch {
    match end {
        End::Refused(Refusal::Mismatch { mismatch, .. }) => mismatch,
        other => scene.fail(&format!("P8: refused, and not: {other:?}")),
    }
}

/// Enforced by `compare::compare` (a run that this log never opened is foreign) before anything is changed.
#[tokio::test(start_paused = true)]
async fn b15_a_start_without_its_log_is_refused_and_nothing_is_taken_for_done() {
    let mut scene = Scene::register();
    scene.live_until_crash(Moment::Sealed, 4).await;
    let before = scene.out().journal().entries.len();
    let lost = std::mem::replace(&mut scene.store, SimStore::object(&scene.world));
    for _ in 0..3 {
        let end = scene.live_to_end().await;
        assert!(matches!(refused(&scene, end), Mismatch::Foreign { .. }), "P8: refused as foreign");
    }
    let journal = scene.out().journal();
    let changes = journal.entries[before..].iter().filter(|entry| !matches!(entry.did, Did::Observed { .. })).count();
    assert_eq!(changes, 0, "P6: a refusal changes nothing at the destination");
    // With its log it goes on, and nothing was skipped.
    scene.store = lost;
    scene.told.clear();
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by ids that hold their run (`ids::PartId`), and by the comparison with a destination that is ahead.
#[tokio::test(start_paused = true)]
async fn b16_going_back_to_a_savepoint_skips_no_row_of_the_new_line() {
    let mut scene = Scene::register();
    let ended = scene.live(vec![(Moment::Sealed, 2, Do::Savepoint("six".into())), (Moment::Sealed, 6, Do::Stop)]).await;
    assert!(matches!(ended, Ended::Report(_)), "{ended:?}");
    let history = scene.history();
    let from = *history.savepoints().get("six").expect("the savepoint was made");
    assert!(history.checkpoints().any(|epoch| epoch.of.epoch > from.epoch), "epochs were committed behind it");
    let seen_before = scene.seen(scene.out()).len();
    // Not without a decision about what the destination has already.
    let fork = |policy, id: &str| Some((id.to_owned(), "a person".to_owned(), from, policy));
    scene.spec.settings.protocol.fork = fork(MismatchPolicy::AcceptLoss, "back-1");
    let end = scene.live_to_end().await;
    assert!(matches!(refused(&scene, end), Mismatch::Ahead { .. }), "P8: refused as ahead");
    assert_eq!(scene.seen(scene.out()).len(), seen_before, "P6: a refusal changes nothing");
    // Decided: rows behind the savepoint come again, whatever the destination holds of those epochs.
    scene.spec.settings.protocol.fork = fork(MismatchPolicy::AcceptDuplicates, "back-2");
    scene.finish().await;
    let seen = scene.seen(scene.out());
    let lost = scene.expected().iter().filter(|row| !seen.contains_key(*row)).count();
    scene.claim(lost == 0, &format!("P1: {lost} rows are lost"));
    assert!(seen.values().any(|count| *count == 2), "rows that were there were sent again, as decided");
    scene.assert_promises(true);
}

/// Enforced by `running::is_complete`, and by finishing sealed epochs alone (`Lane::new`).
#[tokio::test(start_paused = true)]
async fn b18_the_last_epoch_is_sealed_by_all_writers_or_not_at_all() {
    for scope in [AtomicScope::Sink, AtomicScope::Participant] {
        let mut scene = Scene::of(Kind { scope, ..Kind::register() }).rows(good_rows(2, 12));
        // No barrier before the end: the one epoch is the last. One writer has prepared it when the host dies.
        scene.spec.settings.interval_ms = 3_600_000;
        scene.out().script().plan(Call::Prepare, 1, Act::CrashAfter);
        scene.live_until_death().await;
        let staged = scene.staged_parts(scene.out()).len();
        assert_eq!((staged, scene.out().visible().len()), (1, 0), "one of two has prepared");
        scene.finish().await;
        scene.assert_each_row_once();
    }
}

/// Enforced by `History::next_epoch`: numbers rise, and the end of the input is an ordinary epoch.
#[tokio::test(start_paused = true)]
async fn b19_every_end_of_the_input_is_an_epoch_of_its_own() {
    let mut scene = Scene::register();
    for rows in [20, 60, 60, 90] {
        let source = SimSource::new(&scene.world, good_rows(2, rows), Pace { batch: 5, pause_ms: 8 }, &scene.dice);
        scene.spec.source = source;
        scene.finish().await;
        let seen = scene.seen(scene.out()).into_values().sum::<u32>();
        assert_eq!(seen, 2 * rows, "P1: rows that came behind an end are all there");
    }
    let journal = scene.store.journal();
    let ends = journal.durable().filter_map(|entry| match &entry.record.body {
        Body::Seal(seal) if seal.reason == CutReason::End => Some(seal.epoch),
        _ => None,
    });
    let ends: Vec<_> = ends.collect();
    assert_eq!(ends.len(), 3, "three inputs with news: {ends:?}");
    assert!(ends.is_sorted_by(|one, other| one < other), "P1: {ends:?}");
    scene.assert_each_row_once();
}

/// Enforced by the seal's own list of parts: what is pending does not hang on how many writers there are now.
#[tokio::test(start_paused = true)]
async fn b21_committables_of_other_writers_are_all_committed_after_a_rescale() {
    for scope in [AtomicScope::Sink, AtomicScope::Participant] {
        for subtasks in [[3, 2, 5], [1, 4, 2], [4, 1, 1]] {
            let mut scene = Scene::of(Kind { scope, ..Kind::register() });
            scene.spec.settings.protocol.commit_tries = 100;
            for count in &subtasks[..2] {
                scene.spec.sinks[0].subtasks = *count;
                // Several epochs wait for their commit when the host dies.
                scene.out().script().then(Call::Commit, vec![Act::Error(ErrorKind::Retryable); 40]);
                scene.live_until_crash(Moment::Sealed, 2).await;
                scene.out().script().clear();
            }
            scene.spec.sinks[0].subtasks = subtasks[2];
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}

/// Enforced as b15; under a recorded policy the rows are written, never skipped (`check::pending_policy`).
#[tokio::test(start_paused = true)]
async fn b26_a_destination_that_another_log_filled_is_no_reason_to_skip_rows() {
    let mut scene = Scene::register();
    scene.finish().await;
    // A new directory for the log, the same output.
    scene.store = SimStore::object(&scene.world);
    scene.told.clear();
    let end = scene.live_to_end().await;
    assert!(matches!(refused(&scene, end), Mismatch::Foreign { .. }), "P8: refused as foreign, loudly");

    // Where nobody can fence, only the parts that are there tell of the other log.
    let mut unfenced = Scene::of(Kind { fence: false, ..Kind::register() });
    unfenced.finish().await;
    unfenced.store = SimStore::object(&unfenced.world);
    unfenced.told.clear();
    let end = unfenced.live_to_end().await;
    assert!(matches!(refused(&unfenced, end), Mismatch::Foreign { .. }), "P8: refused as foreign without a fence too");

    let decision = ("take-it-over".to_owned(), "a person".to_owned(), MismatchPolicy::AcceptDuplicates);
    scene.spec.settings.protocol.mismatch.insert(sink_id("out"), decision);
    scene.finish().await;
    let seen = scene.seen(scene.out());
    let counts: BTreeSet<u32> = seen.values().copied().collect();
    assert_eq!(
        (seen.len() as u32, counts),
        (2 * ROWS, BTreeSet::from([2])),
        "P1: all were written once more, none skipped"
    );
}

/// Enforced by the random part of a run (`ids::Nonce`) in every name.
#[tokio::test(start_paused = true)]
async fn b27_two_logs_that_count_alike_do_not_share_an_id() {
    // It can be neither observed nor fenced, and knows commits by their ids alone.
    let mut scene = Scene::of(Kind::named("not-observable").expect("the kit has it"));
    scene.finish().await;
    let first: BTreeSet<String> = scene.staged_parts(scene.out()).into_iter().map(|part| part.short).collect();
    // Failed over without its checkpoints: run 1, epoch 1 again.
    scene.store = SimStore::object(&scene.world);
    scene.finish().await;
    let parts = scene.staged_parts(scene.out());
    let all: BTreeSet<String> = parts.iter().map(|part| part.short.clone()).collect();
    assert!(parts.iter().all(|part| part.run.number == 1), "both count from one");
    assert_eq!(all.len(), parts.len(), "P8: no id was used by both");
    assert!(all.len() > first.len());
    let counts: BTreeSet<u32> = scene.seen(scene.out()).into_values().collect();
    assert_eq!(counts, BTreeSet::from([2]), "P8: nothing of the second is taken for done");
}

/// Enforced by the ability `marker-survives-foreign-writers`: the guarantee hangs on it (`guarantee::sink_guarantee`).
#[tokio::test(start_paused = true)]
async fn b29_foreign_commits_between_epochs_do_not_hide_a_marker() {
    let foreign = || vec![1, 3, 4].into_iter().map(|nth| (Moment::Sealed, nth, Do::ForeignWrite(0)));
    let mut scene = Scene::register();
    scene.out().script().plan(Call::Commit, 2, Act::LoseAnswer);
    scene.out().script().plan(Call::Commit, 5, Act::CrashAfter);
    let ended = scene.live(foreign().collect()).await;
    assert!(matches!(ended, Ended::Died), "{ended:?}");
    scene.out().foreign_write();
    scene.live(foreign().collect()).await;
    scene.assert_each_row_once();

    // Where others can erase it, exactly once is not promised, and a restart asks a person before it guesses.
    let kind = Kind { marker_survives_foreign_writers: false, ..Kind::register() };
    let mut scene = Scene::of(kind);
    let guarantee = scene.spec.guarantee(None);
    assert_eq!(guarantee.delivery, Delivery::AtLeastOnce, "P9: {:?}", guarantee.reasons);
    let words = guarantee.require(Delivery::ExactlyOnce).expect_err("refused");
    assert!(words.contains("can erase its commit markers"), "P9: {words}");
    scene.live_until_crash(Moment::Sealed, 4).await;
    scene.out().foreign_write();
    let end = scene.live_to_end().await;
    assert!(matches!(refused(&scene, end), Mismatch::Behind { .. }), "P8: refused as behind");
    scene.assert_promises(false);
}

/// Enforced by `append::on_appended` (an unknown seal ends the run) and by giving back only what the next run's `open`
/// has outrun (`cleanup`).
#[tokio::test(start_paused = true)]
async fn b32_prepared_work_of_an_unknown_seal_is_not_given_back() {
    for fault in [AppendFault::UnknownWritten, AppendFault::UnknownNotWritten] {
        for seal in 1..4 {
            let mut scene = Scene::register();
            // The first append is that of `open`.
            scene.store.fail_append(seal, fault.clone());
            let end = scene.live_to_end().await;
            assert!(matches!(end, End::StoreFailed(_)), "P4: an unknown seal ends the run: {end:?}");
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}

/// Enforced by instances of their own for every sink and role, and by names that hold the sink (`ids::SinkHash`).
#[tokio::test(start_paused = true)]
async fn b34_two_sinks_with_equal_settings_share_nothing() {
    let mut scene = Scene::with(vec![("one", Kind::register()), ("two", Kind::register())]);
    scene.spec.sinks[0].destination.script().plan(Call::Commit, 3, Act::LoseAnswer);
    scene.live_until_crash(Moment::Sealed, 4).await;
    scene.finish().await;
    // That each commit came with the settings of its own sink is among the promises.
    scene.assert_each_row_once();
    let names = |sink: usize| {
        let parts = scene.staged_parts(&scene.spec.sinks[sink].destination);
        parts.into_iter().map(|part| part.short).collect::<BTreeSet<_>>()
    };
    assert!(!names(0).is_empty() && names(0).is_disjoint(&names(1)), "P8: two sinks share a name");
}
