//! Resources that were finalised, aborted, deleted or leaked while something still needed them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::coordinator::Settings;
use tidegate_protocol::event::{End, Notice};
use tidegate_protocol::plugin::{AtomicScope, Call, ErrorKind, Outcome};
use tidegate_simulation::dest::{Act, Did, Kind};
use tidegate_simulation::host::Do;

use crate::hand::Hand;
use crate::scene::{Scene, good_rows};
use crate::wrapped::{Quirk, Wrapped};

/// Writers keep a stream open over epochs; every checkpoint names it.
fn streams() -> Kind {
    Kind::named("streams").expect("the kit has it")
}

/// Enforced by the ledger (`history::ledger`) and by closing a writer without a call (`Plugin`).
#[tokio::test(start_paused = true)]
async fn b01_writer_never_finalises_a_stream_that_a_checkpoint_names() {
    let mut scene = Scene::of(streams());
    scene.live_until_crash(Moment::Sealed, 3).await;
    // The first append of the restored writer fails, twice in a row: its stream is not what it remembers.
    scene.out().script().then(Call::Write, vec![Act::Error(ErrorKind::EpochLost); 2]);
    scene.live_until_crash(Moment::Sealed, 2).await;
    // The same checkpoint again, and its commit is repeated.
    scene.finish().await;
    scene.assert_each_row_once();
    let gone = scene.count(scene.out(), |did| matches!(did, Did::NothingToCommit { .. }));
    assert_eq!(gone, 0, "P5: whatever a checkpoint names is there when it is committed");
}

/// Enforced by the pipeline: a task that ends drops its instance and calls nothing (`tasks::sink`, `tasks::actor`).
#[tokio::test(start_paused = true)]
async fn b02_a_closed_writer_touches_nothing_at_the_destination() {
    let mut scene = Scene::of(streams());
    // Rows are appended after the last checkpoint; then the task is cancelled, once by a fault and once by a stop.
    scene.out().script().plan(Call::Write, 30, Act::Trap);
    scene.live(vec![(Moment::Open, 5, Do::Stop)]).await;
    let seals = scene.history().checkpoints().count();
    assert!(seals > 0, "something was sealed before");
    let touched = scene.count(scene.out(), |did| matches!(did, Did::Released { was_there: true, .. }));
    assert_eq!(touched, 0, "P5: a stream was finalised when its writer was closed");
    scene.live_until_crash(Moment::Open, 2).await;
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by the coordinator: `retire::begin_releasing` leaves out what a prepared part names.
#[test]
fn b03_what_is_prepared_and_not_sealed_is_pinned_like_what_is_sealed() {
    let mut hand = Hand::new(Settings { retain_count: 1, ..Settings::default() });
    let epoch = |hand: &mut Hand, epoch: u64, resources: [&[&str]; 2]| {
        hand.cut(epoch, 4);
        for (ordinal, names) in (0..).zip(resources) {
            let answer = hand.answer(ordinal, epoch, 2, names);
            hand.tell(answer);
        }
    };
    epoch(&mut hand, 1, [&["stream-a"], &["stream-b"]]);
    hand.commit_all();
    epoch(&mut hand, 2, [&["other-a"], &["other-b"]]);
    // One writer appends to its first stream again, and has prepared; the other has not. The epoch is not sealed.
    hand.cut(3, 4);
    let answer = hand.answer(0, 3, 2, &["stream-a"]);
    hand.tell(answer);
    // Now the first checkpoint is retired: the second is committed, and some record says so.
    hand.commit_all();
    hand.announce(3, "announced");
    let released = hand.released();
    assert!(released.contains(&"stream-b".to_owned()), "what nobody names is released: {released:?}");
    assert!(!released.contains(&"stream-a".to_owned()), "P5: prepared work names it: {released:?}");
    let answer = hand.answer(1, 3, 2, &["other-c"]);
    hand.tell(answer);
    assert_eq!((hand.seals().len(), hand.ended()), (3, None), "P5: what was pinned can be sealed");
}

#[tokio::test(start_paused = true)]
async fn b03_an_append_that_times_out_after_prepare_loses_nothing() {
    let mut scene = Scene::of(streams());
    scene.spec.settings.protocol.retain_count = 1;
    // Prepare of an epoch is slow at one writer; the other's first append of the next epoch gets no answer.
    scene.out().script().plan(Call::Prepare, 4, Act::Slow(150));
    scene.out().script().plan(Call::Write, 20, Act::Hang);
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by the coordinator (`cleanup` gives back only what no record names) and by the guarantee and the seal, which
/// compare what the destination keeps with what checkpoints need (`guarantee::compute`, `seal::short_lives`).
#[tokio::test(start_paused = true)]
async fn b04_staged_uploads_outlive_a_failed_task_and_the_checkpoints_that_name_them() {
    let mut scene = Scene::of(Kind { prepared_ttl: Some(4_000), ..Kind::register() });
    scene.spec.settings.protocol.retain_age_ms = Some(60_000);
    // The task fails right behind its prepare, without the death of its process, and again in the next run.
    scene.out().script().plan(Call::Begin, 4, Act::Trap);
    scene.out().script().plan(Call::Begin, 7, Act::Error(ErrorKind::EpochLost));
    scene.out().script().then(Call::Commit, vec![Act::Error(ErrorKind::Retryable); 3]);
    scene.finish().await;
    scene.assert_each_row_once();
    let runs = scene.notices(|notice| matches!(notice, Notice::RunOpened { .. }));
    let warnings = scene.was_warned_of("checkpoints are kept for 60000 ms");
    assert_eq!((runs, warnings), (3, 3), "P9: told once in every run, and not at every seal");
    let reasons = scene.spec.guarantee(Some(60_000)).reasons;
    assert!(reasons.iter().any(|reason| reason.contains("may find its work gone")), "P9: {reasons:?}");
    let reasons = scene.spec.guarantee(Some(1_000)).reasons;
    assert!(!reasons.iter().any(|reason| reason.contains("may find its work gone")), "{reasons:?}");
}

/// Enforced by the order of a start: nothing is changed before the run is decided, and only unsealed work is given back.
#[tokio::test(start_paused = true)]
async fn b05_the_same_checkpoint_can_be_restored_again_and_again() {
    let mut scene = Scene::of(streams());
    scene.live_until_crash(Moment::Sealed, 3).await;
    let checkpoint = scene.history().newest_seal();
    for moment in [Moment::Restoring, Moment::Open, Moment::Preparing, Moment::Open, Moment::Starting] {
        scene.live_until_crash(moment, 1).await;
        assert_eq!(scene.history().newest_seal(), checkpoint, "P6: the same checkpoint, whatever was written since");
    }
    scene.finish().await;
    scene.assert_each_row_once();
}

/// A commit lands and its answer is lost. Then the destination forgets that it did.
async fn lands_and_is_forgotten(kind: Kind) -> (Scene, End) {
    let mut scene = Scene::of(kind);
    scene.out().script().plan(Call::Commit, 3, Act::CrashAfter);
    scene.live_until_death().await;
    let end = scene.live_to_end().await;
    (scene, end)
}

/// Enforced by `commit::ask`: `unknown` permits neither a repeat nor giving anything back.
#[tokio::test(start_paused = true)]
async fn b06_a_marker_that_was_pruned_does_not_make_a_commit_undone() {
    let pruned = Kind { idempotent: false, history_kept: Some(0), ..Kind::register() };
    let mute = Kind { idempotent: false, reconcile: false, ..Kind::register() };
    for kind in [pruned, mute] {
        waits_for_a_person_who_looks(kind).await;
    }
}

async fn waits_for_a_person_who_looks(kind: Kind) {
    let (mut scene, end) = lands_and_is_forgotten(kind).await;
    let blocked = scene.blocked(&end);
    let [(sink, of, _)] = &blocked[..] else { scene.fail(&format!("P4: one epoch waits: {blocked:?}")) };
    let given_back = scene.count(scene.out(), |did| matches!(did, Did::Abandoned { was_committed: true, .. }));
    assert_eq!(given_back, 0, "P4: nothing is deleted while it is not known");
    // A person looks, finds the rows, and says so.
    scene.out().script().clear();
    scene.resolve("they-are-there", sink, *of, false);
    scene.live(vec![]).await;
    let twice = scene.seen(scene.out()).into_values().filter(|count| *count > 1).count();
    scene.claim(twice == 0, &format!("P1: {twice} rows came twice"));
    scene.assert_promises(false);
}

/// Enforced by `commit::read_answer`: only `not-committed` lets the same commit go out again, `unknown` does not.
#[tokio::test(start_paused = true)]
async fn b07_history_that_does_not_reach_back_proves_no_absence() {
    // It can be asked, cannot be repeated, and looks back one commit only.
    let kind = Kind { idempotent: false, ..Kind::register() };
    let mut scene = Scene::of(kind);
    scene.out().script().plan(Call::Commit, 3, Act::LoseAnswer);
    scene.out().script().then(Call::Reconcile, vec![Act::Answer(Outcome::Unknown); 2]);
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by `commit::read_fault`: of a commit that failed without saying that nothing was done, nothing is known.
#[tokio::test(start_paused = true)]
async fn b08_nothing_is_deleted_while_the_outcome_is_not_known() {
    for act in [Act::ErrorAfter(ErrorKind::Unknown), Act::HangAfter, Act::TrapAfter, Act::LoseAnswer] {
        for kind in [Kind::register(), Kind { scope: AtomicScope::Participant, ..Kind::register() }, streams()] {
            let mut scene = Scene::of(kind);
            scene.out().script().plan(Call::Commit, 2, act.clone());
            // The host dies while it does not know, and asks only in its next life.
            scene.live(vec![(Moment::InDoubt, 1, Do::Crash)]).await;
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}

/// Enforced by the ids: a part's name holds its run, and the log never opens a run twice (`ids::PartId::mint`).
#[tokio::test(start_paused = true)]
async fn b09_names_are_never_used_again_when_the_writers_change() {
    let mut scene = Scene::of(streams());
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for (life, subtasks) in [3, 1, 3].into_iter().enumerate() {
        scene.spec.sinks[0].subtasks = subtasks;
        let before = scene.out().journal().entries.len();
        match life {
            2 => scene.finish().await,
            _ => scene.live_until_crash(Moment::Sealed, 2).await,
        }
        let journal = scene.out().journal();
        let names = journal.entries[before..].iter().filter_map(|entry| match &entry.did {
            Did::Staged { resources, .. } => Some(resources.iter().map(|resource| resource.name.clone())),
            _ => None,
        });
        for name in names.flatten().collect::<BTreeSet<_>>() {
            let owner = *owners.entry(name.clone()).or_insert(life);
            assert_eq!(owner, life, "P5: `{name}` of life {owner} is used again in life {life}");
        }
    }
    assert!(owners.len() > 10, "{owners:?}");
    scene.assert_each_row_once();
}

/// Enforced by `start::begin_fencing` behind the `open` record and before everything else.
#[tokio::test(start_paused = true)]
async fn b10_the_older_run_is_fenced_before_the_newer_one_touches_anything() {
    // A repeat would append again: only the fence keeps the late one out.
    let mut scene = Scene::of(Kind { idempotent: false, ..Kind::register() });
    scene.out().script().plan(Call::Commit, 3, Act::Late(900));
    scene.live_until_crash(Moment::Sealed, 4).await;
    scene.finish().await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let refused = scene.count(scene.out(), |did| matches!(did, Did::Refused { call: "commit" }));
    assert_eq!(refused, 1, "P7: the late commit of the older run came, and is refused");
    scene.assert_each_row_once();
    let journal = scene.out().journal();
    let second = journal.entries.iter().filter_map(|entry| entry.by).max();
    let of_second = |sort: fn(&Did) -> bool| {
        journal.entries.iter().find(|entry| entry.by == second && sort(&entry.did)).map(|entry| entry.seq)
    };
    let fenced = of_second(|did| matches!(did, Did::Fenced { .. }));
    let touched = of_second(|did| matches!(did, Did::Began { .. } | Did::Marked { .. } | Did::Abandoned { .. }));
    assert!(fenced.is_some() && fenced < touched, "P7: fenced at {fenced:?}, touched at {touched:?}");
}

/// Enforced by `open::open_sink` (once a run, with what was restored said in words) and by `tasks::growth`.
#[tokio::test(start_paused = true)]
async fn b11_a_writer_is_opened_once_and_one_that_holds_more_and_more_is_told_of() {
    for (quirk, told) in [(Quirk::Leaks, true), (Quirk::None, false)] {
        let mut scene = Scene::register().rows(good_rows(2, 3_000));
        scene.spec.settings.interval_ms = 15;
        scene.spec.sinks[0].subtasks = 1;
        let mut counts = None;
        let report = scene
            .live_changed(|pipeline| {
                let wrapped = Wrapped::new(Arc::clone(&pipeline.sinks[0].plugin), quirk);
                counts = Some(Arc::clone(&wrapped.counts));
                pipeline.sinks[0].plugin = Arc::new(wrapped);
            })
            .await;
        assert_eq!(report.end, End::Finished);
        assert!(report.progress.epochs_sealed > 130, "{} epochs", report.progress.epochs_sealed);
        let counts = counts.expect("the pipeline was made");
        assert_eq!(counts.made.load(Ordering::Relaxed), 1, "P10: no checkpoint makes a new client");
        let made = scene.out().script().made(Call::Instantiate);
        assert!(made <= 3, "P10: a writer, a committer and a janitor, and not {made}");
        let warnings = scene.was_warned_of("holds more and more");
        assert_eq!(warnings, usize::from(told), "P10: {quirk:?}: told once, or not at all");
        scene.assert_each_row_once();
    }
}

/// Enforced by the host, which owns the instance: it is dropped when its start fails or is cancelled (`open::open_sink`).
#[tokio::test(start_paused = true)]
async fn b12_an_instance_whose_start_fails_is_freed() {
    let mut scene = Scene::register();
    scene.spec.settings.restarts = 10;
    scene.out().script().then(Call::Open, [Act::Trap, Act::Hang, Act::Error(ErrorKind::Retryable), Act::HostPanic]);
    let mut counts = None;
    let report = scene
        .live_changed(|pipeline| {
            let wrapped = Wrapped::new(Arc::clone(&pipeline.sinks[0].plugin), Quirk::None);
            counts = Some(Arc::clone(&wrapped.counts));
            pipeline.sinks[0].plugin = Arc::new(wrapped);
        })
        .await;
    assert_eq!(report.end, End::Finished);
    let counts = counts.expect("the pipeline was made");
    assert!(counts.made.load(Ordering::Relaxed) > 4, "several starts failed");
    assert_eq!(counts.alive.load(Ordering::Relaxed), 0, "P10: every instance is freed");
    assert_eq!(counts.most_alive.load(Ordering::Relaxed), 2, "P10: never more than the run has participants");
    scene.assert_each_row_once();
}
