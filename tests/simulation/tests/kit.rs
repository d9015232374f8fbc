//! The kit itself: a quiet run, a crash at each moment, and planted bugs that the oracles must name.

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::event::{End, Mismatch, Refusal};
use tidegate_protocol::plugin::Call;
use tidegate_simulation::dest::{Act, Destination, Kind, Planted, Rejects};
use tidegate_simulation::dice::Dice;
use tidegate_simulation::host::{Do, Ended, Life, Numbers, SinkSpec, Spec};
use tidegate_simulation::operator::Counter;
use tidegate_simulation::oracle::{Evidence, Violation, judge};
use tidegate_simulation::source::{Mark, Pace, Rows, SimSource};
use tidegate_simulation::store::{Ending, SimStore};
use tidegate_simulation::world::World;

const ROWS: u32 = 40;

/// A world with a pipeline in it: two partitions with a bad row and a refused one, two sinks and dead letters.
struct Scene {
    world: World,
    dice: Dice,
    spec: Spec,
    store: SimStore,
}

impl Scene {
    fn new(kind: Kind, operator: bool) -> Self {
        let dice = Dice::new(7);
        let world = World::new(&dice, 3, true);
        let mut marks = vec![vec![Mark::Good; ROWS as usize]; 2];
        marks[0][5] = Mark::Bad;
        marks[1][9] = Mark::RefusedInWrite;
        let source = SimSource::new(&world, Rows { marks, keys: 5 }, Pace { batch: 3, pause_ms: 20 }, &dice);
        let sink = |name: &str, destination: Destination, subtasks| SinkSpec {
            id: Spec::name(name).expect("a legal name"),
            destination,
            subtasks,
            by_key: operator,
        };
        let refusing = Rejects { in_write: true, ..Rejects::default() };
        let spec = Spec {
            id: Spec::name("simulated").expect("a legal name"),
            source,
            tasks: 2,
            columns: false,
            operator: operator.then(|| (Counter::new(&world), 2)),
            sinks: vec![
                sink("one", Destination::new(&world, "one", kind), 2),
                sink("two", Destination::new(&world, "two", Kind::register()).rejecting(refusing), 1),
            ],
            dead_letter: Some(sink("letters", Destination::new(&world, "letters", Kind::register()), 1)),
            settings: Numbers::default(),
        };
        let store = SimStore::local(&world);
        Self { world, dice, spec, store }
    }

    async fn live(&self, change: impl FnOnce(&mut Life)) -> (Ended, tidegate_simulation::host::Told) {
        let mut life = Life::new(&self.spec, &self.store);
        change(&mut life);
        life.live(&self.world, &self.dice).await
    }

    /// Goes on until the pipeline is finished, then judges.
    async fn finish(&self, mut told: Vec<tidegate_simulation::host::Told>) -> Vec<Violation> {
        self.world.calm_down();
        for _ in 0..5 {
            let (ended, said) = self.live(|_| {}).await;
            told.push(said);
            if matches!(&ended, Ended::Report(report) if report.end == End::Finished) {
                let mut evidence = Evidence::gather(&self.spec, self.store.journal(), told, None);
                evidence.finished = true;
                return judge(&evidence);
            }
        }
        panic!("it does not finish:\n{}", self.world.trace_text());
    }
}

fn promises(found: &[Violation]) -> Vec<&'static str> {
    let mut promises: Vec<_> = found.iter().map(|violation| violation.promise).collect();
    promises.sort_unstable();
    promises.dedup();
    promises
}

#[tokio::test(start_paused = true)]
async fn a_quiet_run_of_every_kind_of_destination_keeps_every_promise() {
    for kind in Kind::all() {
        for operator in [false, true] {
            let name = kind.name;
            let scene = Scene::new(kind.clone(), operator);
            let found = scene.finish(vec![]).await;
            assert_eq!(found, [], "{name}:\n{}", scene.world.trace_text());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_every_moment_and_a_power_cut_keep_every_promise() {
    for moment in Moment::ALL.into_iter().filter(|moment| *moment != Moment::InDoubt) {
        for (nth, ending) in [(1, Ending::Process), (1, Ending::PowerCut), (3, Ending::PowerCut)] {
            let scene = Scene::new(Kind::named("per-participant").expect("a kind"), true);
            let (ended, told) = scene.live(|life| life.plan.push((moment, nth, Do::Crash))).await;
            let once = matches!(moment, Moment::Starting | Moment::Restoring | Moment::Finishing);
            assert!(matches!(ended, Ended::Died) || (once && nth > 1), "{moment:?} {nth}: {ended:?}");
            scene.store.end(ending, &mut scene.dice.fork("power"));
            let found = scene.finish(vec![told]).await;
            assert_eq!(found, [], "{moment:?} {nth}:\n{}", scene.world.trace_text());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_trace() {
    let mut traces = Vec::new();
    for _ in 0..2 {
        let scene = Scene::new(Kind::register(), true);
        let (_, told) = scene.live(|life| life.plan.push((Moment::Sent, 2, Do::Crash))).await;
        scene.store.end(Ending::PowerCut, &mut scene.dice.fork("power"));
        scene.finish(vec![told]).await;
        traces.push(scene.world.trace_text());
    }
    assert!(traces[0].lines().count() > 100, "{}", traces[0]);
    assert_eq!(traces[0], traces[1]);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_commits_twice_breaks_p1() {
    let kind = Kind { reconcile: false, planted: Some(Planted::NotIdempotent), ..Kind::register() };
    let scene = Scene::new(kind, false);
    scene.spec.sinks[0].destination.script().plan(Call::Commit, 2, Act::LoseAnswer);
    let found = scene.finish(vec![]).await;
    assert!(promises(&found).contains(&"P1"), "{found:?}");
}

/// No promise breaks, since the run that meets this lie does nothing: it is behind the log, and a person is asked.
#[tokio::test(start_paused = true)]
async fn p8_a_destination_that_forgets_what_it_committed_is_behind_the_log_and_refused() {
    let scene = Scene::new(Kind { planted: Some(Planted::ObserveForgets), ..Kind::register() }, false);
    let (ended, _) = scene.live(|life| life.plan.push((Moment::Sealed, 3, Do::Crash))).await;
    assert!(matches!(ended, Ended::Died), "{ended:?}");
    scene.store.end(Ending::Process, &mut scene.dice.fork("power"));
    let (ended, _) = scene.live(|_| {}).await;
    let Ended::Report(report) = ended else { panic!("{ended:?}") };
    let End::Refused(Refusal::Mismatch { sink, mismatch: Mismatch::Behind { .. }, .. }) = &report.end else {
        panic!("{:?}", report.end)
    };
    assert_eq!(sink.as_str(), "one");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_shows_rows_before_the_seal_breaks_p2() {
    let scene = Scene::new(Kind { planted: Some(Planted::VisibleWhenPrepared), ..Kind::register() }, false);
    let found = scene.finish(vec![]).await;
    assert!(promises(&found).contains(&"P2"), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_drops_commits_breaks_p1() {
    let scene = Scene::new(Kind { planted: Some(Planted::DropsCommits), ..Kind::register() }, false);
    let found = scene.finish(vec![]).await;
    assert!(promises(&found).contains(&"P1"), "{found:?}");
}
