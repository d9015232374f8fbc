//! Thousands of random lives of a pipeline: lost answers, traps, crashes, zombies, late and repeated messages, each process
//! with another number of writers and source tasks (F43). At the end of each, with faults off, every row must be at every destination exactly once.

mod world;

use std::collections::BTreeMap;

use tidegate_protocol::event::{End, Event, Graph, TaskFailure};
use tidegate_protocol::ids::SinkId;
use tidegate_protocol::plugin::{Abilities, AtomicScope, Call, Orphans};
use world::destination::Destination;
use world::host::{Host, row};
use world::rng::Rng;
use world::{SharedLog, World, abilities, graph, settings, sink, spec};

/// What all lives together have seen; a test that never saw it tested nothing.
#[derive(Default, Debug)]
struct Seen {
    crashes: u64,
    zombies: u64,
    seals: u64,
    deleted: u64,
    released: u64,
    superseded: u64,
    restarts: u64,
    stops: u64,
    pages: u64,
    /// Requests carried out, of runs that came to an end.
    savepoints: u64,
    /// Processes of another shape than that of sealed epochs that they had to finish.
    rescaled_over_unfinished: u64,
}

const ROWS_PER_STREAM: u64 = 12;

fn life(seed: u64, seen: &mut Seen) {
    let rng = &mut Rng(seed);
    let streams = 1 + rng.below(3);
    let mut sinks = Vec::new();
    let mut destinations = BTreeMap::new();
    for name in ["a", "b"].iter().take(1 + rng.below(2)) {
        let mut can = abilities();
        can.atomic_scope = [AtomicScope::Sink, AtomicScope::Participant][rng.below(2)];
        can.orphans = [Orphans::Listable, Orphans::DurableIntent][rng.below(2)];
        can.reconcile = rng.percent(70);
        can.fence = rng.percent(80);
        can.observe = can.fence || rng.percent(80);
        can.max_open_epochs = 1 + rng.below(4) as u32;
        destinations.insert(sink(name), Destination::new(can.atomic_scope, can.fence));
        sinks.push((sink(name), can));
    }
    let partitions = if seed.is_multiple_of(4) { 40 } else { 1 };
    let mut world =
        World { log: SharedLog::default(), destinations, streams: streams as u32, partitions, states: seed % 3 != 1 };
    let mut settings = settings();
    settings.retain_count = 1 + rng.below(3) as u32;
    let mut nonce = 1u8;
    let mut hosts = vec![Host::start(&world, &rescaled(rng, streams, &sinks), settings.clone(), nonce)];
    for _ in 0..rng.below(600) {
        let faults = [0, 10, 25][rng.below(3)];
        let chosen = rng.below(hosts.len());
        let mut fresh = false;
        match rng.below(100) {
            0..60 => hosts[chosen].one(&mut world, rng, faults),
            60..80 => hosts[chosen].read(&mut world, rng.below(streams), ROWS_PER_STREAM),
            80..92 => hosts[chosen].due(),
            92 | 93 => {
                let name = ["s", "t", "u"][rng.below(3)].to_owned();
                let withdrawn = rng.percent(30);
                let request = match rng.percent(50) {
                    true => hosts[chosen].ask(|request| Event::SavepointAsked { request, name }),
                    false => hosts[chosen].ask(|request| Event::ForgetAsked { request, name }),
                };
                if withdrawn {
                    hosts[chosen].tell(Event::RequestWithdrawn { request });
                }
            }
            94 => hosts[chosen].lose_epoch(),
            95 => hosts[chosen].tell(Event::StopRequested),
            96 | 97 => {
                // Calls that were under way may still be carried out by what is left of the process.
                let dead = hosts.swap_remove(chosen);
                land_late(dead, &mut world, rng);
                seen.crashes += 1;
                fresh = hosts.is_empty();
            }
            _ => {
                seen.zombies += 1;
                fresh = hosts.len() < 3;
            }
        }
        hosts.retain(|host| {
            seen.savepoints += if host.ended.is_some() { count_answered(seed, host) } else { 0 };
            match &host.ended {
                Some(End::Superseded(_)) => seen.superseded += 1,
                Some(End::Restart(_)) => seen.restarts += 1,
                Some(End::Stopped | End::StoppedInDoubt { .. } | End::Finished) => seen.stops += 1,
                Some(End::StoreFailed(_) | End::Blocked { .. }) | None => {}
                Some(End::Refused(refusal)) => {
                    // Somebody else wrote since this host read the log: what it met is foreign to what it knows.
                    let newest = world.log.records.keys().next_back().copied();
                    let stale = newest.is_some_and(|newest| newest >= host.coordinator.history().next_slot());
                    assert!(stale, "seed {seed}: {refusal:?}");
                }
                // A destination that cannot be asked within the tries that there are: loud, and nothing is changed.
                Some(End::Failed(TaskFailure::Plugin(_, fault)))
                    if matches!(fault.call, Call::Observe | Call::Fence) => {}
                Some(End::Failed(failure)) => panic!("seed {seed}: {failure:?}"),
            }
            host.ended.is_none()
        });
        if fresh || hosts.is_empty() {
            nonce = nonce.wrapping_add(1);
            // A process of another shape: more writers or fewer, and other source tasks, with whatever the one before left
            // prepared, sealed or in doubt.
            let graph = rescaled(rng, streams, &sinks);
            seen.rescaled_over_unfinished += u64::from(differs_with_unfinished(&world, &graph));
            hosts.push(Host::start(&world, &graph, settings.clone(), nonce));
        }
    }
    hosts.clear();
    finish(seed, &mut world, &sinks, &settings, nonce, streams);
    for destination in world.destinations.values() {
        seen.released += destination.released.len() as u64;
    }
    seen.pages += world.log.pages.len() as u64;
    seen.seals += world.log.sealed.len() as u64;
    seen.deleted += world.log.deleted.len() as u64;
}

/// Every request has its answer when the run is over.
fn count_answered(seed: u64, host: &Host) -> u64 {
    assert!(host.answers.values().all(Option::is_some), "seed {seed}: {:?}", host.answers);
    host.answers.values().filter(|answer| matches!(answer, Some(Ok(_)))).count() as u64
}

/// The same sinks with another number of writers, and another number of source tasks.
fn rescaled(rng: &mut Rng, streams: usize, sinks: &[(SinkId, Abilities)]) -> Graph {
    let tasks = 1 + rng.below(streams + 1) as u32;
    graph(tasks, sinks.iter().map(|(sink, can)| (sink.clone(), spec(1 + rng.below(4) as u32, can.clone()))).collect())
}

/// Whether a sink has sealed work without an end that was written by another number of writers.
fn differs_with_unfinished(world: &World, graph: &Graph) -> bool {
    let history = world.log.fold();
    graph.sinks.iter().any(|(sink, spec)| {
        let parts = |of| Some(history.seal(of)?.seal.sinks.get(sink)?.parts.len());
        history.unfinished(sink).into_iter().any(|of| parts(of) != Some(spec.participants as usize))
    })
}

fn land_late(dead: Host, world: &mut World, rng: &mut Rng) {
    use tidegate_protocol::event::Effect;
    use world::host::Todo;
    for todo in dead.todo {
        match todo {
            Todo::Do(Effect::Append { record }) if rng.percent(50) => {
                world.log.append(&record);
            }
            Todo::Do(Effect::Commit(permit)) if rng.percent(50) => {
                let parts: Vec<_> = permit.committables().iter().map(|c| c.part.clone()).collect();
                let sealed = world.log.sealed.clone();
                if let Some(destination) = world.destinations.get_mut(permit.sink()) {
                    destination.commit(permit.run(), &parts, &sealed);
                }
            }
            _ => {}
        }
    }
}

/// Faults off: the pipeline reaches its end, and the end is right.
fn finish(
    seed: u64,
    world: &mut World,
    sinks: &[(SinkId, Abilities)],
    settings: &tidegate_protocol::coordinator::Settings,
    nonce: u8,
    streams: usize,
) {
    let rng = &mut Rng(seed ^ 1);
    let mut finished = false;
    'runs: for run in 0..4u8 {
        let graph = rescaled(rng, streams, sinks);
        let mut host = Host::start(world, &graph, settings.clone(), nonce.wrapping_add(1 + run));
        for _ in 0..20_000 {
            if host.tasks.is_some() {
                (0..streams).for_each(|stream| host.read(world, stream, ROWS_PER_STREAM));
                host.end_input(ROWS_PER_STREAM);
            }
            host.one(world, rng, 0);
            match &host.ended {
                Some(End::Finished) => {
                    let again = finished;
                    finished = true;
                    if again {
                        break 'runs;
                    }
                    continue 'runs;
                }
                Some(other) => panic!("seed {seed}: without faults it ended with {other:?}"),
                None => {}
            }
        }
        panic!("seed {seed}: stuck in {:?}", host.coordinator.status());
    }
    assert!(finished);
    let mut expected: Vec<u64> =
        (0..streams as u64).flat_map(|stream| (0..ROWS_PER_STREAM).map(move |n| row(stream, n))).collect();
    expected.sort_unstable();
    for (name, destination) in &world.destinations {
        assert_eq!(destination.violations, Vec::<String>::new(), "seed {seed}, sink {name}");
        assert_eq!(destination.rows(), expected, "P1: seed {seed}, sink {name}");
    }
}

#[test]
fn every_row_arrives_once_in_every_life() {
    let lives = std::env::var("TIDEGATE_LIVES").ok().and_then(|text| text.parse().ok()).unwrap_or(600u64);
    let first = std::env::var("TIDEGATE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0u64);
    let mut seen = Seen::default();
    for seed in first..first + lives {
        life(seed, &mut seen);
    }
    if lives >= 600 {
        let Seen { crashes, zombies, seals, deleted, released, superseded, restarts, stops, pages, savepoints, .. } =
            seen;
        let rescaled = seen.rescaled_over_unfinished;
        for count in
            [crashes, zombies, seals, deleted, released, superseded, restarts, stops, pages, savepoints, rescaled]
        {
            assert!(count > 20, "{seen:?}");
        }
    }
}
