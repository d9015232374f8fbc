//! What the field's own guides ask to rehearse, by name.

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::plugin::{AtomicScope, Call};
use tidegate_simulation::dest::{Act, Kind};
use tidegate_simulation::host::Do;

use crate::scene::{Scene, good_rows};

fn kinds() -> [Kind; 3] {
    let participant = Kind { scope: AtomicScope::Participant, ..Kind::register() };
    [Kind::register(), participant, Kind { reconcile: false, ..Kind::register() }]
}

#[tokio::test(start_paused = true)]
async fn interruption_before_the_sinks_commit() {
    for kind in kinds() {
        for nth in 1..=4 {
            // Decided and not called; and called, and dead before anything was done.
            let mut scene = Scene::of(kind.clone()).rows(good_rows(2, 600));
            scene.live_until_crash(Moment::Sealed, nth).await;
            scene.out().script().plan(Call::Commit, nth, Act::CrashBefore);
            scene.live_until_death().await;
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn interruption_after_the_commit_and_before_its_acknowledgement() {
    for kind in kinds() {
        for nth in 1..=4 {
            let mut scene = Scene::of(kind.clone()).rows(good_rows(2, 600));
            for _ in 0..2 {
                scene.out().script().plan(Call::Commit, nth, Act::CrashAfter);
                scene.live_until_death().await;
            }
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn interruption_between_two_destinations_commits() {
    for kind in kinds() {
        for nth in 1..=4 {
            let mut scene = Scene::with(vec![("one", kind.clone()), ("two", kind.clone())]).rows(good_rows(2, 600));
            // The first has committed an epoch, the second has not: in one life this one lags, in the next that one.
            scene.spec.sinks[1].destination.script().plan(Call::Commit, nth, Act::CrashBefore);
            scene.live_until_death().await;
            scene.spec.sinks[0].destination.script().plan(Call::Commit, 2, Act::CrashBefore);
            scene.live_until_death().await;
            let before = scene.history().checkpoints().filter(|epoch| !epoch.ended()).count();
            scene.claim(before > 0, "something is left to finish");
            scene.live(vec![(Moment::Sealed, 1, Do::Stop)]).await;
            scene.finish().await;
            scene.assert_each_row_once();
        }
    }
}
