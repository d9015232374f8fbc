//! Hosts that woke up late, two hosts at once, programs that write beside, writers that become more or fewer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::event::{End, Notice};
use tidegate_protocol::fault::Cause;
use tidegate_protocol::guarantee::{self, Delivery, Ingredients, Times};
use tidegate_protocol::plugin::{AtomicScope, Call, ErrorKind, Outcome, PluginError};
use tidegate_protocol::record::Blocked;
use tidegate_simulation::crash::Crash;
use tidegate_simulation::dest::{Act, Did, Kind};
use tidegate_simulation::host::{Do, Ended};
use tidegate_simulation::operator::Counter;
use tidegate_simulation::source::{Pace, SimSource};

use crate::scene::{Scene, good_rows, sink_id};

/// How a life ended that was not cut short.
fn end(scene: &Scene, ended: Ended) -> End {
    match ended {
        Ended::Report(report) => report.end,
        other => scene.fail(&format!("P6: a run goes on or ends in a named refusal, and not: {other:?}")),
    }
}

/// Enforced by the one log with its one next slot (`append::on_appended`) and by the fence at the destination.
#[tokio::test(start_paused = true)]
async fn b66_a_host_that_hangs_while_another_takes_over_commits_nothing() {
    for delay in [40, 130, 190, 260, 330] {
        for kind in [Kind::register(), Kind { idempotent: false, ..Kind::register() }] {
            let mut scene = Scene::of(kind);
            // The first host sits in a commit that reaches the destination when the second one has long taken over.
            scene.out().script().plan(Call::Commit, 2, Act::Late(1_500));
            let [one, other] = scene.live_beside(delay).await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            let ends = [end(&scene, one), end(&scene, other)];
            let finished = ends.iter().filter(|end| **end == End::Finished).count();
            let outdone = ends.iter().filter(|end| matches!(end, End::Superseded(_))).count();
            scene.claim((finished, outdone) == (1, 1), &format!("P7: one goes on, behind {delay} ms: {ends:?}"));
            scene.assert_each_row_once();
        }
    }
}

/// Enforced by `stop::go_on_publishing`: in the order of the log, by a run that the log knows as the newest.
#[tokio::test(start_paused = true)]
async fn b67_published_progress_never_goes_back() {
    for delay in [40, 100, 160, 220, 280, 340] {
        let mut scene = Scene::register();
        scene.out().script().plan(Call::Commit, 3, Act::Slow(300));
        scene.live_beside(delay).await;
        scene.live(vec![(Moment::Sealed, 2, Do::Crash)]).await;
        scene.live(vec![]).await;
        scene.assert_each_row_once();
        let mut newest: BTreeMap<String, u32> = BTreeMap::new();
        let published = scene.spec.source.published();
        assert!(published.len() > 2);
        for (at, cut) in &published {
            for (partition, place) in cut.partitions.entries().expect("all pages are there").iter() {
                let place: u32 = place.parse().expect("a number");
                let before = newest.insert(partition.to_string(), place).unwrap_or(0);
                scene.claim(before <= place, &format!("P11: {partition} goes back from {before} to {place} at #{at}"));
            }
        }
    }
}

/// Enforced by creating the `open` record in the next free slot: whoever gets it goes on, and exactly one does.
#[tokio::test(start_paused = true)]
async fn b68_of_two_hosts_that_start_at_once_one_goes_on() {
    // Without a fence the log alone decides.
    let kinds = [Kind::register(), Kind::named("not-fenced").expect("the kit has it")];
    let starts = [(false, 0), (true, 0), (false, 1), (true, 2), (true, 3)];
    for (kind, (crashes_before, delay)) in kinds.iter().flat_map(|kind| starts.map(|start| (kind, start))) {
        let mut scene = Scene::of(kind.clone());
        if crashes_before {
            scene.live_until_crash(Moment::Sealed, 3).await;
        }
        let [one, other] = scene.live_beside(delay).await;
        let ends = [end(&scene, one), end(&scene, other)];
        let finished = ends.iter().filter(|end| **end == End::Finished).count();
        let outdone = ends.iter().filter(|end| matches!(end, End::Superseded(_))).count();
        scene.claim((finished, outdone) == (1, 1), &format!("P7: one goes on, neither both nor none: {ends:?}"));
        scene.assert_each_row_once();
    }
    // One that got it and died keeps nobody out.
    let mut scene = Scene::register();
    for _ in 0..3 {
        scene.live_until_crash(Moment::Restoring, 1).await;
    }
    scene.finish().await;
    scene.assert_each_row_once();
}

/// Enforced by `commit::too_late` in a run, and by the guarantee before it (`guarantee::sink_guarantee`).
#[tokio::test(start_paused = true)]
async fn b69_a_commit_is_not_repeated_behind_the_window_in_which_it_is_recognised() {
    let kind = Kind { marker_retention: Some(3_000), ..Kind::register() };
    for reconcile in [true, false] {
        let mut scene = Scene::of(Kind { reconcile, ..kind.clone() });
        scene.out().script().plan(Call::Commit, 3, Act::CrashAfter);
        scene.live_until_death().await;
        let seen = scene.seen(scene.out()).len();
        // It lands, the host is down, and the destination forgets it.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let end = scene.live_to_end().await;
        let blocked = scene.blocked(&end);
        assert!(matches!(&blocked[..], [(_, _, Blocked::CannotAsk(_))]), "P4: {blocked:?}");
        assert_eq!(scene.seen(scene.out()).into_values().sum::<u32>() as usize, seen, "P1: it was not sent again");
        // A person finds the rows there.
        scene.resolve("they-are-there", &blocked[0].0, blocked[0].1, false);
        scene.finish().await;
        let twice = scene.seen(scene.out()).into_values().filter(|count| *count > 1).count();
        scene.claim(twice == 0, &format!("P1: {twice} rows came twice"));
    }
    // Within the window nobody is asked.
    let mut scene = Scene::of(kind.clone());
    scene.out().script().plan(Call::Commit, 3, Act::CrashAfter);
    scene.live_until_death().await;
    scene.finish().await;
    scene.assert_each_row_once();
    // A sleeper cannot be kept out where there is no fence, and a window shorter than the host's own tries is none.
    let promised = |kind: Kind| Scene::of(kind).spec.guarantee(None);
    assert_eq!(promised(kind.clone()).delivery, Delivery::ExactlyOnce, "P9");
    for (weak, words) in [
        (Kind { fence: false, ..kind.clone() }, "lands a second time"),
        (Kind { marker_retention: Some(500), ..kind.clone() }, "may be asked about one for"),
    ] {
        let guarantee = promised(weak);
        assert_eq!(guarantee.delivery, Delivery::AtLeastOnce, "P9: {:?}", guarantee.reasons);
        assert!(guarantee.reasons.iter().any(|reason| reason.contains(words)), "P9: {:?}", guarantee.reasons);
    }
}

/// Enforced by `commit::too_late`: of the time counts what this run, or the log since the seal, has seen of it.
#[tokio::test(start_paused = true)]
async fn f47_a_clock_that_is_set_back_opens_no_window_again() {
    const KEPT: u64 = 3_000;
    const BACK: i64 = -20_000;
    for within_a_run in [true, false] {
        let mut scene = Scene::of(Kind { marker_retention: Some(KEPT), ..Kind::register() });
        scene.spec.settings.protocol.commit_tries = 10_000;
        // So long that the log sees time pass behind an epoch that waits.
        scene.spec.settings.interval_ms = if within_a_run { 60 } else { KEPT + 500 };
        let pace = Pace { batch: 5, pause_ms: 60 };
        scene.spec.source = SimSource::new(&scene.world, good_rows(2, 1_000), pace, &scene.dice);
        // One lands, and for so long nobody gets to know of it.
        scene.out().script().plan(Call::Commit, 1, Act::LoseAnswer);
        scene.out().script().then(Call::Reconcile, vec![Act::Error(ErrorKind::Retryable); 1_000]);
        let end = if within_a_run {
            let (world, destination) = (scene.world.clone(), scene.out().clone());
            let later = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(KEPT + 300)).await;
                world.skew(BACK);
                destination.script().clear();
            });
            let end = scene.live_to_end().await;
            later.await.expect("it sets the clock");
            end
        } else {
            scene.live_until_crash(Moment::Sealed, 2).await;
            scene.world.skew(BACK);
            scene.out().script().clear();
            scene.live_to_end().await
        };
        let twice = scene.seen(scene.out()).into_values().filter(|count| *count > 1).count();
        scene.claim(twice == 0, &format!("P1: {twice} rows came twice"));
        let blocked = scene.blocked(&end);
        let asked = blocked.iter().filter(|(_, _, why)| matches!(why, Blocked::CannotAsk(_))).count();
        scene.claim(asked >= 1 && asked == blocked.len(), &format!("P4: a person is asked: {blocked:?}"));
    }
}

/// Enforced by `stop` (an epoch is cut, sealed and committed) and by `cleanup` at the next start.
#[tokio::test(start_paused = true)]
async fn b70_a_stop_commits_and_what_a_dead_run_left_open_is_given_back() {
    for kind in [Kind::register(), Kind::named("announced").expect("the kit has it")] {
        let mut scene = Scene::of(kind);
        let ended =
            scene.live(vec![(Moment::Open, 3, Do::Savepoint("before".into())), (Moment::Open, 4, Do::Stop)]).await;
        assert_eq!(end(&scene, ended), End::Stopped, "P4: a stop commits what is there, and stops");
        let history = scene.history();
        let savepoint = history.savepoints()["before"];
        let ended = history.checkpoints().all(|epoch| epoch.ended());
        assert!(ended && history.seal(savepoint).is_some(), "P4: all that was sealed is committed, the savepoint too");
        assert_eq!(scene.out().staged(), Vec::<String>::new(), "P4: a stop leaves something open");
        // A job that is cancelled hard, with work prepared and not sealed.
        scene.out().script().plan(Call::Prepare, 5, Act::CrashAfter);
        scene.live_until_death().await;
        assert!(!scene.out().staged().is_empty(), "it leaves something open");
        scene.finish().await;
        assert_eq!(scene.out().staged(), Vec::<String>::new(), "P4: what a dead run left open is not given back");
        scene.assert_each_row_once();
    }
}

/// Enforced by `cleanup`: what there is is listed by prefix or known by the log, nothing is guessed, and it is given back
/// once.
#[tokio::test(start_paused = true)]
async fn b72_a_restart_does_not_probe_more_with_every_crash() {
    const CALLS: [Call; 4] = [Call::Observe, Call::Fence, Call::ListOrphans, Call::Abandon];
    for kind in ["register", "announced", "streams"] {
        let mut scene = Scene::of(Kind::named(kind).expect("the kit has it"));
        scene.live_until_crash(Moment::Sealed, 2).await;
        let mut calls = Vec::new();
        for _ in 0..15 {
            let made = |scene: &Scene| CALLS.map(|call| scene.out().script().made(call)).iter().sum::<u64>();
            let before = made(&scene);
            // Dies when both writers have prepared, over and over.
            scene.out().script().plan(Call::Prepare, 2, Act::CrashAfter);
            scene.live_until_death().await;
            calls.push(made(&scene) - before);
        }
        let (first, last) = (calls[1], calls[14]);
        assert!(last <= first, "P6: {kind}: the calls of each start: {calls:?}");
        assert!(scene.out().staged().len() <= 4, "P6: {kind}: {:?}", scene.out().staged());
        scene.finish().await;
        scene.assert_each_row_once();
    }
}

/// Said by the guarantee, from the plugin's `names-per-day` (`guarantee::sink_guarantee`), and nowhere enforced: payments do
/// not stand still because a broker keeps names for long.
#[tokio::test(start_paused = true)]
async fn b73_more_names_than_the_destination_bears_are_told_before_the_start() {
    let scene = Scene::register();
    let mut graph = scene.spec.pipeline(&Crash::new()).expect("legal names").graph();
    let mut told = |budget, interval_ms: u64| {
        for sink in graph.sinks.values_mut() {
            sink.abilities.names_per_day = budget;
        }
        let times = Times { interval_ms: Some(interval_ms), ..Times::default() };
        let reasons = guarantee::compute(&Ingredients::of(&graph, times, true)).reasons;
        reasons.into_iter().filter(|reason| reason.contains("new names a day")).collect::<Vec<_>>()
    };
    // Two writers and an epoch a second: 172,800 a day.
    assert!(told(None, 1_000).is_empty());
    assert!(told(Some(172_800), 1_000).is_empty());
    let reasons = told(Some(172_799), 1_000);
    assert!(
        matches!(&reasons[..], [reason] if reason.contains("172800; no row waits") && reason.contains("interval")),
        "P9: {reasons:?}"
    );
    // And that is really what it may make: one name for each writer and epoch, none for one without rows, none for a retry.
    let mut scene = Scene::register();
    scene.out().script().then(Call::Commit, vec![Act::Error(ErrorKind::Retryable); 3]);
    scene.finish().await;
    let begun: Vec<String> = scene
        .out()
        .journal()
        .entries
        .into_iter()
        .filter_map(|entry| match entry.did {
            Did::Began { part } => Some(part.short),
            _ => None,
        })
        .collect();
    let journal = scene.store.journal();
    let seals = journal.durable().filter(|entry| matches!(entry.record.body, tidegate_protocol::record::Body::Seal(_)));
    assert!(begun.len() <= 2 * seals.count(), "P9: more names than told: {begun:?}");
    assert_eq!(begun.iter().collect::<BTreeSet<_>>().len(), begun.len());
}

/// Enforced by `commit::read_answer`; the code `conflict` is a cause of its own (`fault::Cause::Conflict`).
#[tokio::test(start_paused = true)]
async fn b75_a_conflict_with_another_program_waits_for_a_person() {
    let message = "the table was compacted into other buckets".to_owned();
    let conflict = PluginError { kind: ErrorKind::Permanent, code: "conflict".to_owned(), message };
    assert_eq!(conflict.cause(), Some(Cause::Conflict));
    let mut scene = Scene::with(vec![("out", Kind::register()), ("beside", Kind::register())]);
    scene.out().script().plan(Call::Commit, 2, Act::Answer(Outcome::Rejected(conflict)));
    let ended = scene.live_to_end().await;
    let blocked = scene.blocked(&ended);
    let is_conflict = |why: &Blocked| matches!(why, Blocked::Rejected(error) if error.cause() == Some(Cause::Conflict));
    assert!(matches!(&blocked[..], [(sink, _, why)] if *sink == sink_id("out") && is_conflict(why)), "P4: {blocked:?}");
    // The other sink was not held up by it: it has all that was sealed.
    assert!(scene.history().unfinished(&sink_id("beside")).is_empty(), "P4: one sink holds up the other");
    assert!(scene.history().unfinished(&sink_id("out")).len() > 1);
    // When the other program is done with it, the same work is committed, once.
    scene.resolve("it-is-done", &blocked[0].0, blocked[0].1, true);
    scene.finish().await;
    scene.assert_each_row_once();
    // One that a repeat mends is told by its first answer, and repeated.
    let told = scene.notices(|notice| matches!(notice, Notice::Blocked { .. }));
    assert!(told >= 1);
}

/// Enforced by rescaling between runs alone, from a sealed epoch, with states handed over by key range (`open`, `seal`).
#[tokio::test(start_paused = true)]
async fn b76_rescaling_while_commits_wait_loses_nothing() {
    for scope in [AtomicScope::Sink, AtomicScope::Participant] {
        for counts in [[2, 4, 1, 3], [1, 2, 3, 4], [4, 3, 2, 1]] {
            let mut scene = Scene::of(Kind { scope, ..Kind::register() }).rows(good_rows(3, 200));
            let counter = Counter::new(&scene.world);
            scene.spec.sinks[0].by_key = true;
            scene.spec.settings.protocol.commit_tries = 1_000;
            for subtasks in &counts[..3] {
                scene.spec.sinks[0].subtasks = *subtasks;
                // The step's state is handed over by key range as well.
                scene.spec.operator = Some((counter.clone(), 5 - subtasks));
                scene.out().script().then(Call::Commit, vec![Act::Error(ErrorKind::Retryable); 60]);
                scene.live_until_crash(Moment::Sealed, 2).await;
                scene.out().script().clear();
            }
            scene.spec.sinks[0].subtasks = counts[3];
            scene.finish().await;
            let rows: u32 = scene.seen(scene.out()).into_values().sum();
            scene.claim(rows == 600, &format!("P1: {rows} of 600 rows"));
            scene.assert_promises(true);
        }
    }
}

/// Enforced by ids that come with every call (`plugin::CallContext`, `PartId`), and hold pipeline and sink.
#[tokio::test(start_paused = true)]
async fn b80_concurrent_pipelines_do_not_share_their_ids() {
    // One destination that knows commits by their ids alone, and two pipelines that write to it at the same time.
    let mut one = Scene::of(Kind::named("not-observable").expect("the kit has it"));
    let mut other = one.beside("another");
    for nth in [2, 3, 7, 8] {
        one.out().script().plan(Call::Commit, nth, Act::LoseAnswer);
    }
    tokio::join!(one.finish(), other.finish());
    let counts: BTreeSet<u32> = one.seen(one.out()).into_values().collect();
    assert_eq!(counts, BTreeSet::from([2]), "P1: each row once from each of the two");
    assert_eq!(one.seen(one.out()).len(), one.expected().len());
}
