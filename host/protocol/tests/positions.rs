//! Positions of many partitions, from the tasks' reports into the log and back.

mod world;

use std::collections::BTreeMap;

use tidegate_protocol::event::{Effect, End, Event, SourceProgress, TaskFailure, ToldSchema};
use tidegate_protocol::history::{CheckpointState, History};
use tidegate_protocol::ids::{EpochRef, SinkId};
use tidegate_protocol::plugin::Abilities;
use tidegate_protocol::record::{Body, SourceCut};
use world::drive::*;
use world::host::{Host, partition_name, rows_read};
use world::{World, abilities, sink};

fn many() -> (World, tidegate_protocol::event::Graph) {
    let (mut world, graph) = sinks(Vec::<(&str, Abilities)>::from([("a", abilities())]));
    world.partitions = 300;
    (world, graph)
}

/// An epoch of so many rows, committed.
fn committed(host: &mut Host, world: &mut World, rows: u64) -> EpochRef {
    host.epoch(world, rows);
    host.settle(world, everything);
    host.coordinator.history().newest_seal().expect("a seal")
}

fn cut(history: &History, of: EpochRef) -> SourceCut {
    history.seal(of).expect("it is there").seal.sources[&world::source()].clone()
}

#[test]
fn a_task_reports_what_moved_and_everything_keeps_its_place() {
    let (mut world, graph) = many();
    let mut host = started(&mut world, &graph, 1);
    // All of them are new; that they stand still shows with the next epoch.
    committed(&mut host, &mut world, 4);
    let first = committed(&mut host, &mut world, 6);
    let second = committed(&mut host, &mut world, 5);
    let (first, second) = (cut(host.coordinator.history(), first), cut(host.coordinator.history(), second));
    assert!(first.partitions.pages().count() > 0, "300 positions do not stay in the record");
    assert!(second.partitions.chunks().eq(first.partitions.chunks()), "5 that moved do");
    assert_eq!(second.partitions.entries().expect("the newest is loaded").count(), 300);
    assert_eq!(rows_read(&second.partitions, 1), [15]);
    assert!(first.partitions.entries().is_err(), "what is published and not the newest is dropped from memory");

    // The next run is handed all of it, and reports only what moves then.
    let mut again = started(&mut world, &graph, 2);
    assert_eq!(again.tasks.as_ref().expect("tasks are open").read, [15]);
    let third = committed(&mut again, &mut world, 1);
    let third = cut(again.coordinator.history(), third);
    assert_eq!(rows_read(&third.partitions, 1), [16]);
    assert_eq!(third.partitions.entries().expect("loaded").get(&partition_name(0, 299)).map(|at| &at[..2]), Some("0 "));
}

#[test]
fn a_fork_goes_on_from_the_pages_of_its_checkpoint() {
    let (mut world, graph) = many();
    let mut settings = world::settings();
    settings.retain_count = 3;
    let mut host = started_with(&mut world, &graph, settings.clone(), 1);
    let mut sealed = Vec::new();
    for _ in 0..3 {
        sealed.push(committed(&mut host, &mut world, 290));
    }
    let wanted = sealed[0];
    let mut forked = started_with(&mut world, &graph, fork("f1", wanted), 2);
    assert_eq!(forked.tasks.as_ref().expect("tasks are open").read, [290]);
    // The branch that was left behind goes with its pages; what the new one names stays, and can be gone on from.
    for _ in 0..12 {
        committed(&mut forked, &mut world, 290);
    }
    let history = world.log.fold();
    let retained: Vec<EpochRef> =
        history.checkpoints().filter(|e| e.checkpoint == CheckpointState::Retained).map(|e| e.of).collect();
    assert!(!retained.contains(&sealed[1]) && retained.len() <= 4, "{retained:?}");
    for of in &retained {
        world.log.load(&cut(&history, *of).partitions);
    }
    let oldest = retained[0];
    let expected = {
        let cut = cut(&history, oldest);
        rows_read(&cut.partitions, 1)
    };
    let back = started_with(&mut world, &graph, fork("f2", oldest), 3);
    assert_eq!(back.tasks.as_ref().expect("tasks are open").read, expected);
    let sinks: BTreeMap<&SinkId, usize> = world.destinations.iter().map(|(id, d)| (id, d.violations.len())).collect();
    assert_eq!(sinks, BTreeMap::from([(&sink("a"), 0)]));
}

#[test]
fn what_is_known_of_a_schema_is_what_the_task_that_knows_most_tells() {
    for (first, second) in [(2, 1), (1, 2)] {
        let (mut world, mut graph) = one_sink(abilities());
        graph.sources.get_mut(&world::source()).expect("the source").tasks = 2;
        let mut host = started(&mut world, &graph, 1);
        host.tell(Event::Busy);
        host.due();
        let inject = |effect: &Effect| matches!(effect, Effect::InjectBarrier { .. });
        let Some(Effect::InjectBarrier { epoch, .. }) = host.take(inject) else { panic!("no barrier") };
        for (task, revision) in [(0, first), (1, second)] {
            let schema = Some(ToldSchema { revision, text: format!("revision {revision}") });
            let progress = SourceProgress { schema, ..SourceProgress::default() };
            host.tell(Event::SourceCut { source: world::source(), task, epoch, progress });
        }
        for ordinal in 0..2 {
            let (sink, prepared) = (sink("a"), None);
            let (rows_in, filtered, rejected_in_write) = (0, 0, 0);
            host.tell(Event::PartPrepared { sink, ordinal, epoch, rows_in, filtered, rejected_in_write, prepared });
        }
        host.settle(&mut world, everything);
        let history = host.coordinator.history();
        let schema = cut(history, history.newest_seal().expect("a seal")).schema;
        assert_eq!(schema.as_deref(), Some("revision 2"));
    }
}

#[test]
fn two_tasks_that_read_the_same_partition_end_the_run_whenever_that_is_seen() {
    for apart in [false, true] {
        let (mut world, mut graph) = one_sink(abilities());
        graph.sources.get_mut(&world::source()).expect("the source").tasks = 2;
        world.streams = 2;
        let mut host = started(&mut world, &graph, 1);
        let report = |host: &mut Host, world: &mut World, first: &str, second: &str| {
            host.tell(Event::Busy);
            host.due();
            let inject = |effect: &Effect| matches!(effect, Effect::InjectBarrier { .. });
            let Some(Effect::InjectBarrier { epoch, .. }) = host.take(inject) else { panic!("no barrier") };
            for (task, name) in [(0, first), (1, second)] {
                let moved = BTreeMap::from([(name.to_owned(), "0".to_owned())]);
                let progress = SourceProgress { moved, ..SourceProgress::default() };
                host.tell(Event::SourceCut { source: world::source(), task, epoch, progress });
            }
            for ordinal in 0..2 {
                let (sink, prepared) = (sink("a"), None);
                host.tell(Event::PartPrepared {
                    sink,
                    ordinal,
                    epoch,
                    rows_in: 0,
                    filtered: 0,
                    rejected_in_write: 0,
                    prepared,
                });
            }
            host.settle(world, everything);
        };
        if apart {
            report(&mut host, &mut world, "0/x", "1/y");
            assert!(host.ended.is_none() && seals(&world).len() == 1);
            report(&mut host, &mut world, "0/z", "0/x");
        } else {
            report(&mut host, &mut world, "0/x", "0/x");
        }
        let Some(End::Failed(TaskFailure::Host(words))) = &host.ended else { panic!("{:?}", host.ended) };
        assert!(words.contains("`0/x`"), "{words}");
        let last = world.log.records.values().next_back().map(|record| matches!(record.body, Body::Seal(_)));
        assert_eq!(seals(&world).len(), usize::from(apart), "{last:?}");
    }
}
