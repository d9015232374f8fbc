//! Short words for driving one host through a scenario.

use std::collections::BTreeMap;

use super::destination::Destination;
use super::host::Host;
use super::{SharedLog, World, graph, settings, sink, spec};
use tidegate_protocol::coordinator::{Coordinator, Settings};
use tidegate_protocol::event::{Effect, End, Event, Graph, Refusal};
use tidegate_protocol::ids::{EpochRef, Nonce};
use tidegate_protocol::permit::CommitPermit;
use tidegate_protocol::plugin::{Abilities, Outcome};
use tidegate_protocol::record::{Body, MismatchPolicy, Record};

pub fn one_sink(can: Abilities) -> (World, Graph) {
    sinks(vec![("a", can)])
}

pub fn sinks(list: Vec<(&str, Abilities)>) -> (World, Graph) {
    let destinations: BTreeMap<_, _> =
        list.iter().map(|(name, can)| (sink(name), Destination::new(can.atomic_scope, can.fence))).collect();
    let specs = list.into_iter().map(|(name, can)| (sink(name), spec(2, can))).collect();
    (World { log: SharedLog::default(), destinations, streams: 1, partitions: 1, states: false }, graph(1, specs))
}

pub fn everything(_: &Effect) -> bool {
    false
}

pub fn commits(effect: &Effect) -> bool {
    matches!(effect, Effect::Commit(_))
}

pub fn appends(effect: &Effect) -> bool {
    matches!(effect, Effect::Append { .. })
}

pub fn started(world: &mut World, graph: &Graph, nonce: u8) -> Host {
    started_with(world, graph, settings(), nonce)
}

pub fn started_with(world: &mut World, graph: &Graph, settings: Settings, nonce: u8) -> Host {
    let mut host = Host::start(world, graph, settings, nonce);
    host.settle(world, everything);
    host
}

pub fn commit_of(host: &mut Host) -> CommitPermit {
    match host.take(commits) {
        Some(Effect::Commit(permit)) => permit,
        _ => panic!("no commit waits: {:?}", host.coordinator.status()),
    }
}

pub fn answer(
    host: &mut Host,
    permit: &CommitPermit,
    result: Result<Vec<Outcome>, tidegate_protocol::plugin::CallFault>,
) {
    let (sink, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
    host.tell(Event::CommitAnswered { sink, of, attempt, result });
}

pub fn seals(world: &World) -> Vec<EpochRef> {
    let seal = |record: &Record| match &record.body {
        Body::Seal(seal) => Some(EpochRef { run: record.run, epoch: seal.epoch }),
        _ => None,
    };
    world.log.records.values().filter_map(seal).collect()
}

pub fn refusal(host: &Host) -> &Refusal {
    match &host.ended {
        Some(End::Refused(refusal)) => refusal,
        other => panic!("it was not refused: {other:?}"),
    }
}

pub fn new(world: &World, graph: &Graph, settings: Settings) -> Result<Coordinator, Refusal> {
    let nonce = Nonce([99; 10]);
    Coordinator::new(super::pipeline(), graph.clone(), "graph".to_owned(), settings, world.log.all(), nonce)
}

pub fn fork(id: &str, from: EpochRef) -> Settings {
    let wish = (id.to_owned(), "me".to_owned(), from, MismatchPolicy::AcceptDuplicates);
    Settings { fork: Some(wish), ..settings() }
}
