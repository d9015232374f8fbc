//! F43: another number of writers at a restart, with what the writers before left behind.

mod world;

use tidegate_protocol::event::Graph;
use tidegate_protocol::ids::{KeyRange, Nonce, RunId};
use tidegate_protocol::plugin::{External, WriterState};
use tidegate_protocol::record::{Binding, Body, PartCut, Seal, SinkCut};
use world::drive::{one_sink, started};
use world::{World, abilities, sink};

fn with_writers(graph: &Graph, writers: u32) -> Graph {
    let mut graph = graph.clone();
    graph.sinks.get_mut(&sink("a")).expect("the sink").participants = writers;
    graph
}

fn newest_seal(world: &World) -> Seal {
    let seals = world.log.records.values().rev().filter_map(|record| match &record.body {
        Body::Seal(seal) => Some(Seal::clone(seal)),
        _ => None,
    });
    seals.into_iter().next().expect("an epoch was sealed")
}

/// Rows come to one writer at a time; the others keep what they were told, and must not keep it once for each of them.
#[test]
fn f43_state_that_writers_keep_after_a_rescale_does_not_grow_with_empty_epochs() {
    let (mut world, graph) = one_sink(abilities());
    world.states = true;
    for (nonce, writers) in (1..).zip([1, 4, 3, 4, 2, 4]) {
        let mut host = started(&mut world, &with_writers(&graph, writers), nonce);
        for _ in 0..12 {
            host.epoch(&mut world, 1);
            host.settle(&mut world, |_| false);
            let cut = newest_seal(&world).sinks.remove(&sink("a")).expect("the sink");
            for part in &cut.parts {
                assert!(part.state.len() <= 4, "{} states of one writer: {:?}", part.state.len(), part.state);
                assert!(part.resources.len() <= 5, "{} resources of one writer", part.resources.len());
            }
        }
    }
}

fn part(ordinal: u32, of: u32, state: Vec<WriterState>) -> PartCut {
    PartCut {
        ordinal,
        range: KeyRange::split(of)[ordinal as usize],
        committable: None,
        resources: vec![External { kind: "file".to_owned(), name: format!("f{ordinal}"), expires_at: None }],
        state,
        rows_in: 0,
        rows: 0,
        rejected: 0,
        filtered: 0,
    }
}

fn state(range: KeyRange, body: &'static [u8]) -> WriterState {
    WriterState { range, version: 1, body: body.into() }
}

fn cut(parts: Vec<PartCut>) -> SinkCut {
    let text = String::new;
    SinkCut { binding: Binding { plugin: text(), plugin_name: text(), config: text(), grants: text() }, parts }
}

#[test]
fn f43_of_keys_that_a_writer_has_written_since_a_rescale_older_state_does_not_count() {
    let thirds = KeyRange::split(3);
    // One writer became three; the first of them has written since.
    let old = state(KeyRange::ALL, b"old");
    let split = cut(vec![
        part(0, 3, vec![state(thirds[0], b"new")]),
        part(1, 3, vec![old.clone()]),
        part(2, 3, vec![old.clone()]),
    ]);
    let rest = KeyRange { first: thirds[1].first, last: u32::MAX };
    assert_eq!(split.writer_states(KeyRange::ALL), [state(thirds[0], b"new"), state(rest, b"old")]);
    assert_eq!(split.writer_states(thirds[0]), [state(thirds[0], b"new")]);
    // Nobody has written: what they keep is one state again.
    let kept = cut((0..3).map(|ordinal| part(ordinal, 3, vec![old.clone(), old.clone()])).collect());
    assert_eq!(kept.writer_states(KeyRange::ALL), [old]);
    assert_eq!(kept.writer_states(thirds[1]), [state(thirds[1], b"old")]);
}

#[test]
fn f43_states_that_differ_in_version_or_content_are_not_put_together() {
    let halves = KeyRange::split(2);
    let of_version = |range, version| WriterState { version, ..state(range, b"s") };
    let versions = cut(vec![
        part(0, 2, vec![of_version(KeyRange::ALL, 1)]),
        part(1, 2, vec![of_version(KeyRange::ALL, 2), state(halves[1], b"t")]),
    ]);
    let all = [of_version(halves[0], 1), of_version(halves[1], 2), state(halves[1], b"t")];
    assert_eq!(versions.writer_states(KeyRange::ALL), all);
}

#[test]
fn f43_a_rescaled_run_finishes_what_the_other_shape_has_sealed() {
    for (before, after) in [(2, 3), (3, 1), (1, 4), (4, 2)] {
        let (mut world, graph) = one_sink(abilities());
        let mut host = started(&mut world, &with_writers(&graph, before), 1);
        host.epoch(&mut world, 8);
        // Sealed, and the commit never sent.
        host.settle(&mut world, world::drive::commits);
        let sealed = newest_seal(&world).sinks.remove(&sink("a")).expect("the sink");
        drop(host);
        assert!(world.destinations[&sink("a")].committed.is_empty());
        let mut host = started(&mut world, &with_writers(&graph, after), 2);
        let committed: Vec<_> = world.destinations[&sink("a")].committed.iter().map(|(part, _)| part.clone()).collect();
        let parts: Vec<_> = sealed.parts.iter().filter_map(|p| Some(p.committable.as_ref()?.part.clone())).collect();
        assert_eq!(committed, parts, "exactly what was sealed is committed, whoever has the keys now");
        assert!(parts.iter().all(|part| part.run == RunId { number: 1, nonce: Nonce([1; 10]) }));
        host.epoch(&mut world, 8);
        host.settle(&mut world, |_| false);
        assert_eq!(newest_seal(&world).sinks[&sink("a")].parts.len(), after as usize);
        assert_eq!(world.destinations[&sink("a")].rows().len(), 16);
        assert!(world.destinations[&sink("a")].violations.is_empty());
    }
}
