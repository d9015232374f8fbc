//! Errors that were swallowed, taken for another or tried again without a look.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::event::{End, Notice, TaskFailure};
use tidegate_protocol::guarantee::Delivery;
use tidegate_protocol::ids::{EpochRef, PartId};
use tidegate_protocol::plugin::{AtomicScope, Call, ErrorKind, Outcome, PluginError};
use tidegate_protocol::record::Blocked;
use tidegate_simulation::dest::{Act, Destination, Did, Kind, Rejects};
use tidegate_simulation::host::SinkSpec;
use tidegate_simulation::source::{Mark, Rows};

use crate::scene::{Scene, good_rows, sink_id};
use crate::wrapped::{Quirk, Wrapped};

fn commit_calls(scene: &Scene) -> usize {
    scene.count(scene.out(), |did| matches!(did, Did::CommitCalled { .. }))
}

/// Enforced by `commit::read_fault`: of a commit that trapped nothing is known.
#[tokio::test(start_paused = true)]
async fn b48_a_trap_in_commit_is_never_taken_for_success() {
    for act in [Act::Trap, Act::HostPanic, Act::Hang] {
        for reconcile in [true, false] {
            let mut scene = Scene::of(Kind { reconcile, ..Kind::register() });
            scene.out().script().then(Call::Commit, vec![act.clone(); 30]);
            let end = scene.live_to_end().await;
            assert!(!matches!(end, End::Finished | End::Stopped), "P4: taken for done: {act:?}: {end:?}");
            let told = scene.notices(|notice| matches!(notice, Notice::InDoubt { .. }));
            assert!(told > 0 || act == Act::HostPanic, "P4: silence about what is in doubt");
            let waiting = scene.history().unfinished(&sink_id("out")).len();
            assert!(waiting > 0 && scene.out().visible().is_empty(), "P4: {waiting} epochs wait, and nothing is there");
            scene.out().script().clear();
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}

/// Enforced by `seal::Checks::rows`: rows in are rows staged, refused and left out.
#[tokio::test(start_paused = true)]
async fn b49_rows_that_a_writer_lost_do_not_get_a_checkpoint() {
    let mut scene = Scene::register();
    let report = scene
        .live_changed(|pipeline| {
            let inner = Arc::clone(&pipeline.sinks[0].plugin);
            pipeline.sinks[0].plugin = Arc::new(Wrapped::new(inner, Quirk::Swallows));
        })
        .await;
    let End::Failed(TaskFailure::Plugin(_, fault)) = &report.end else { scene.fail(&format!("P12: {:?}", report.end)) };
    assert!(fault.message.contains("accounts for"), "P12: it says what is missing: {fault}");
    assert_eq!((report.progress.epochs_sealed, scene.out().visible().len()), (0, 0), "P12: nothing is sealed with it");
    // One that counts a row too many is believed no more.
    scene.out().script().plan(Call::Prepare, 5, Act::WrongRows);
    let end = scene.live_to_end().await;
    assert!(matches!(end, End::Failed(TaskFailure::Plugin(..))), "P12: {end:?}");
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by `tasks::sink`: a barrier is answered only with a good answer of `prepare`.
#[tokio::test(start_paused = true)]
async fn b50_no_checkpoint_is_complete_while_the_destination_is_down() {
    for call in [Call::Begin, Call::Write, Call::Prepare] {
        for act in [Act::Error(ErrorKind::Retryable), Act::Trap, Act::Hang] {
            let mut scene = Scene::register();
            scene.live_until_crash(Moment::Sealed, 2).await;
            let checkpoint = scene.history().newest_seal();
            scene.out().script().then(call, vec![act.clone(); 400]);
            let end = scene.live_to_end().await;
            assert!(matches!(end, End::Failed(_)), "P3: {call} {act:?}: {end:?}");
            assert_eq!(scene.history().newest_seal(), checkpoint, "P3: a checkpoint without its rows: {call} {act:?}");
            scene.out().script().clear();
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}

/// Enforced by `commit::read_answer`: a list of another length says nothing of any part.
#[tokio::test(start_paused = true)]
async fn b51_an_outcome_that_is_missing_is_not_known() {
    for kind in [Kind::named("append-only"), Kind::named("per-participant"), Some(Kind::register())] {
        let kind = kind.expect("the kit has it");
        for act in [Act::OneTooFew, Act::OneTooMany, Act::Partly] {
            let mut scene = Scene::of(kind.clone());
            for nth in [2, 4, 6] {
                scene.out().script().plan(Call::Commit, nth, act.clone());
            }
            scene.out().script().plan(Call::Reconcile, 2, Act::OneTooFew);
            scene.finish().await;
            scene.assert_each_row_once();
            let partly = act == Act::Partly && kind.scope == AtomicScope::Sink;
            let told = scene.notices(|notice| matches!(notice, Notice::InDoubt { .. }));
            assert!(told > 0 || partly, "P4: {} {act:?}: it was in doubt", kind.name);
        }
    }
}

fn refusal(code: &str) -> Outcome {
    let message = "the table does not take it".to_owned();
    Outcome::Rejected(PluginError { kind: ErrorKind::Permanent, code: code.to_owned(), message })
}

/// Gives up one epoch after the other until none waits, and runs to the end. How many that were.
async fn give_up_and_finish(scene: &mut Scene, mut end: End) -> usize {
    let mut given_up = 0;
    while let End::Blocked { waiting } = &end {
        for (sink, of, _) in waiting {
            given_up += 1;
            scene.resolve(&format!("give-up-{given_up}"), sink, *of, false);
        }
        scene.claim(given_up < 50, "a person can bring it to an end");
        end = scene.live_to_end().await;
    }
    scene.claim(end == End::Finished, &format!("it finishes, and not: {end:?}"));
    given_up
}

/// Enforced by `commit::block` and by `Lane::load`: a refusal is recorded, and only a recorded decision ends it.
#[tokio::test(start_paused = true)]
async fn b54_a_permanent_refusal_waits_for_a_recorded_decision() {
    let mut scene = Scene::register();
    scene.out().script().plan(Call::Commit, 3, Act::Answer(refusal("not-for-you")));
    let end = scene.live_to_end().await;
    let first = scene.blocked(&end);
    assert!(matches!(&first[..], [(_, _, Blocked::Rejected(error))] if error.code == "not-for-you"), "P4: {first:?}");
    // Started again without a decision, it waits as before, and nothing is sent.
    let calls = commit_calls(&scene);
    for _ in 0..3 {
        let end = scene.live_to_end().await;
        assert_eq!(scene.blocked(&end), first, "P2: only a decision ends it");
    }
    assert_eq!(commit_calls(&scene), calls, "P2: nothing is sent before a person decided");
    let rows: usize = scene
        .history()
        .seal(first[0].1)
        .into_iter()
        .flat_map(|epoch| epoch.committables(&first[0].0))
        .map(|c| c.rows as usize)
        .sum();
    let given_up = give_up_and_finish(&mut scene, End::Blocked { waiting: first }).await;
    let lost = scene.expected().len() - scene.seen(scene.out()).len();
    assert!(given_up == 1 && rows > 0, "one decision about {rows} rows");
    scene.claim(lost == rows, &format!("P12: {lost} rows are missing, {rows} were given up"));
    scene.assert_promises(true);
}

/// Enforced by `pipeline::liveness` (half its life is gone) and by `commit::too_late` (all of it is).
#[tokio::test(start_paused = true)]
async fn b55_work_that_expires_is_announced_and_then_waits_for_a_person() {
    let mut scene = Scene::of(Kind { prepared_ttl: Some(4_000), ..Kind::register() });
    scene.spec.settings.protocol.commit_tries = 10_000;
    scene.out().script().then(Call::Commit, vec![Act::Error(ErrorKind::Retryable); 10_000]);
    let end = scene.live_to_end().await;
    let blocked = scene.blocked(&end);
    assert!(matches!(&blocked[..], [(_, _, Blocked::Rejected(error))] if error.code == "expired"), "P4: {blocked:?}");
    let soon = scene.notices(|notice| matches!(notice, Notice::ExpiresSoon { .. }));
    assert!(soon >= 3, "P4: silence about work that expires; half of its life was gone for 3, {soon} were told");
    let elapsed = scene.world.elapsed_ms();
    assert!((4_000..5_000).contains(&elapsed), "it ended when the first expired, after {elapsed} ms");
    // It does not start over and over.
    let calls = commit_calls(&scene);
    scene.out().script().clear();
    let end = scene.live_to_end().await;
    assert_eq!(
        (scene.blocked(&end), commit_calls(&scene)),
        (blocked.clone(), calls),
        "P4: it waits, and sends nothing"
    );
    // A person may have it sent all the same; here the destination has dropped it.
    scene.resolve("try-it", &blocked[0].0, blocked[0].1, true);
    let end = scene.live_to_end().await;
    let after = scene.blocked(&end);
    assert!(after[0].1 == blocked[0].1 && after[0].2 == Blocked::Never, "{after:?}");
    assert!(commit_calls(&scene) > calls);
    let given_up = give_up_and_finish(&mut scene, end).await;
    assert!(given_up >= 2, "{given_up} epochs had expired");
    let twice = scene.seen(scene.out()).into_values().filter(|count| *count > 1).count();
    assert_eq!(twice, 0, "P1: {twice} rows came twice");
    scene.assert_promises(true);
}

/// Enforced by `commit::ask`: what is in doubt is asked about before it is sent again.
#[tokio::test(start_paused = true)]
async fn b56_an_unknown_commit_is_asked_about_before_it_is_sent_again() {
    // Sent again, its rows would be there twice.
    let kind = Kind::named("append-only").expect("the kit has it");
    for act in [Act::ErrorAfter(ErrorKind::Unknown), Act::Error(ErrorKind::Unknown), Act::LoseAnswer, Act::TrapAfter] {
        let mut scene = Scene::of(kind.clone());
        for nth in [1, 3, 4] {
            scene.out().script().plan(Call::Commit, nth, act.clone());
        }
        scene.finish().await;
        scene.assert_each_row_once();
    }
    // And across a restart.
    let mut scene = Scene::of(kind);
    for nth in [2, 1, 1] {
        scene.out().script().plan(Call::Commit, nth, Act::CrashAfter);
        scene.live_until_death().await;
    }
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced as b56, for each kind of destination with what it can do.
#[tokio::test(start_paused = true)]
async fn b57_a_lost_answer_of_a_commit_that_worked_repeats_nothing_at_any_kind() {
    let mut exact = 0;
    for kind in Kind::all() {
        let name = kind.name;
        let staging = kind.staging;
        let mut scene = Scene::of(kind);
        scene.out().script().plan(Call::Commit, 2, Act::LoseAnswer);
        scene.out().script().plan(Call::Commit, 5, Act::LoseAnswer);
        let end = scene.live_to_end().await;
        let twice = scene.seen(scene.out()).into_values().filter(|count| *count > 1).count();
        scene.claim(!staging || twice == 0, &format!("P1 at {name}: {twice} rows came twice"));
        if scene.spec.guarantee(None).delivery == Delivery::ExactlyOnce {
            exact += 1;
            scene.claim(end == End::Finished, &format!("P1: {name} promises exactly once and ends with {end:?}"));
            scene.assert_each_row_once();
        } else {
            scene.assert_promises(end == End::Finished);
        }
    }
    assert!(exact > 5, "{exact} kinds promise exactly once");

    // Several epochs wait, go through one after the other, and the host dies before the log is told of any: the next one
    // asks about each of them.
    for scope in [AtomicScope::Participant, AtomicScope::Sink] {
        let mut scene = Scene::of(Kind { idempotent: false, scope, ..Kind::register() });
        scene.spec.settings.protocol.commit_tries = 100;
        (1..=6).for_each(|nth| scene.out().script().plan(Call::Commit, nth, Act::Error(ErrorKind::Retryable)));
        scene.out().script().plan(Call::Commit, 8, Act::CrashAfter);
        scene.live_until_death().await;
        let told = scene.history().unfinished(&sink_id("out")).len();
        let parts = scene.staged_parts(scene.out());
        let landed = parts.iter().filter(|part| scene.out().shows_committed(&part.short)).map(PartId::epoch_ref);
        let landed: BTreeSet<EpochRef> = landed.collect();
        assert!(told > 1 && landed.len() == 2, "two landed, and the log knows of neither: {told}, {landed:?}");
        scene.finish().await;
        scene.assert_each_row_once();
    }
}

/// Enforced by `commit::read_answer`: `already-committed` for exactly this id is the end of it.
#[tokio::test(start_paused = true)]
async fn b58_a_commit_that_was_completed_before_is_recognised_by_its_id() {
    // What was staged is gone once it is completed, as an upload is.
    let kind = Kind::named("per-participant").expect("the kit has it");
    for act in [Act::Twice, Act::LoseAnswer, Act::HangAfter] {
        let mut scene = Scene::of(kind.clone());
        scene.out().script().plan(Call::Commit, 2, act.clone());
        scene.out().script().plan(Call::Commit, 4, Act::CrashAfter);
        scene.live_until_death().await;
        scene.finish().await;
        scene.assert_each_row_once();
    }
    // Completed, and answered with an error that says it never will be: a person looks, and the same commit settles it.
    let mut scene = Scene::of(kind);
    scene.out().script().plan(Call::Commit, 3, Act::ErrorAfter(ErrorKind::Permanent));
    let end = scene.live_to_end().await;
    let blocked = scene.blocked(&end);
    scene.resolve("it-is-there", &blocked[0].0, blocked[0].1, true);
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by `tasks::sink`: a write that failed ends its instance's epoch; nothing is written into it again.
#[tokio::test(start_paused = true)]
async fn b61_a_write_that_failed_is_not_repeated_within_its_epoch() {
    let mut scene = Scene::register();
    let report = scene
        .live_changed(|pipeline| {
            let inner = Arc::clone(&pipeline.sinks[0].plugin);
            pipeline.sinks[0].plugin = Arc::new(Wrapped::new(inner, Quirk::FailsBehindWrite));
        })
        .await;
    assert_eq!(
        (report.end, report.progress.runs),
        (End::Finished, 3),
        "P1: each failed write ends its run, and the third finishes"
    );
    scene.assert_each_row_once();
}

/// Enforced by closing without a call, and by `cleanup`, which gives back only what was never sealed.
#[tokio::test(start_paused = true)]
async fn b64_the_end_of_a_bounded_input_gives_back_nothing_that_is_sealed() {
    for act in [Act::CrashAfter, Act::CrashBefore] {
        for scope in [AtomicScope::Sink, AtomicScope::Participant] {
            let mut scene = Scene::of(Kind { scope, ..Kind::register() }).rows(good_rows(2, 12));
            scene.spec.settings.interval_ms = 3_600_000;
            scene.out().script().plan(Call::Commit, 1, act.clone());
            scene.live_until_death().await;
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
    // It ends while its last commit is refused for a while; the next start finds the work.
    let mut scene = Scene::register().rows(good_rows(2, 12));
    scene.spec.settings.interval_ms = 3_600_000;
    scene.out().script().then(Call::Commit, vec![Act::Error(ErrorKind::Retryable); 4]);
    let end = scene.live_to_end().await;
    assert!(matches!(end, End::StoppedInDoubt { .. }), "P4: what is not committed is not done: {end:?}");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by `tasks::sink::hand_to_dead_letter` and by the sum of rows in every seal (`seal::check_sum`).
#[tokio::test(start_paused = true)]
async fn b65_a_row_that_cannot_be_written_is_never_dropped_in_silence() {
    let all = Rejects { in_write: true, in_prepare: true, batches: true };
    for mark in [Mark::RefusedInWrite, Mark::RefusedNoText, Mark::RefusedInPrepare, Mark::SpoilsBatch, Mark::Bad] {
        let mut marks = good_rows(2, 120).marks;
        marks[1][77] = mark;
        let rows = || Rows { marks: marks.clone(), keys: 11 };
        // Without a place for it, the pipeline stops and names it.
        let mut scene = Scene::register().rows(rows());
        scene.spec.sinks[0].destination = scene.out().clone().rejecting(all);
        let report = scene
            .live_changed(|pipeline| pipeline.sources[0].on_bad_row = tidegate_pipeline::spec::OnBadRow::Stop)
            .await;
        let End::Failed(TaskFailure::BadRow { message }) = &report.end else {
            scene.fail(&format!("P12: {:?}", report.end))
        };
        assert!(message.len() > 20, "{message}");
        let good = scene.expected();
        let seen: BTreeSet<String> = scene.seen(scene.out()).into_keys().collect();
        assert!(seen.is_subset(&good) && seen.len() < good.len(), "P12: what is behind it is not read over");
        // With a dead-letter sink every row is in one of the two, once.
        let mut scene = Scene::register().rows(rows());
        scene.spec.sinks[0].destination = scene.out().clone().rejecting(all);
        let letters = Destination::new(&scene.world, "letters", Kind::register());
        scene.spec.dead_letter =
            Some(SinkSpec { id: sink_id("letters"), destination: letters.clone(), subtasks: 1, by_key: false });
        scene.live_until_crash(Moment::Sealed, 2).await;
        scene.finish().await;
        scene.assert_each_row_once();
        let letters = letters.visible().iter().map(|(_, rows)| rows.len()).sum::<usize>();
        scene.claim(letters == 1, &format!("P12: {letters} letters for one {mark:?} row"));
    }
}
