//! What plugins announce before they create it, and the names that it gets.

mod world;

use std::collections::BTreeMap;

use tidegate_protocol::event::{AppendResult, Effect, End, Event, Graph, Timer};
use tidegate_protocol::history::IntentState;
use tidegate_protocol::ids::{Epoch, PartId, PipelineId, Slot};
use tidegate_protocol::plugin::{Abilities, ErrorKind, External, Orphans, PluginError};
use tidegate_protocol::record::{Body, Record};
use world::drive::*;
use world::host::{Host, Todo, staged_file};
use world::{World, abilities, sink};

type Answers = BTreeMap<u64, Result<u64, PluginError>>;

/// Tells the coordinator something itself: what it answers to announcements is kept, everything else waits as usual.
fn tell(host: &mut Host, answers: &mut Answers, event: Event) {
    host.now += 1;
    for effect in host.coordinator.step(host.now, event) {
        match effect {
            Effect::IntentRecorded { request, result } => {
                assert_eq!(answers.insert(request, result), None, "request {request} is answered once");
            }
            Effect::End(end) => host.ended = Some(end),
            effect => host.todo.push(Todo::Do(effect)),
        }
    }
}

/// Carries out the append that waits, by hand.
fn append(world: &mut World, host: &mut Host, answers: &mut Answers) -> Record {
    let Some(Effect::Append { record }) = host.take(appends) else { panic!("nothing is appended") };
    let result = world.log.append(&record);
    tell(host, answers, Event::Appended { slot: record.slot, result });
    *record
}

fn announcing() -> (World, Graph) {
    one_sink(Abilities { orphans: Orphans::DurableIntent, ..abilities() })
}

fn part(host: &Host, epoch: u64, ordinal: u32) -> PartId {
    let run = host.coordinator.run().expect("a run");
    PartId::mint(&world::pipeline(), &sink("a"), run, Epoch(epoch), ordinal, 1)
}

fn announce(request: u64, part: Option<PartId>, name: &str) -> Event {
    Event::IntentAnnounced { request, sink: sink("a"), part, resource: staged_file(name) }
}

fn kind_and_code(answer: Option<&Result<u64, PluginError>>) -> (ErrorKind, &str) {
    match answer {
        Some(Err(error)) => (error.kind, &error.code),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_announcement_is_answered_when_it_is_durable_and_so_is_its_name() {
    let (mut world, graph) = announcing();
    let mut host = started(&mut world, &graph, 1);
    let answers = &mut Answers::new();
    let first = part(&host, 1, 0);
    tell(&mut host, answers, announce(10, Some(first), "planned"));
    assert!(answers.is_empty(), "not before it is in the log");
    append(&mut world, &mut host, answers);
    assert_eq!(answers[&10], Ok(1));
    let bound = |request, name: &str| Event::IntentBound { request, number: 1, name: name.to_owned() };
    tell(&mut host, answers, bound(11, "real"));
    tell(&mut host, answers, bound(12, "real"));
    assert_eq!(kind_and_code(answers.get(&12)), (ErrorKind::Denied, "not-bound"), "one name is on its way");
    append(&mut world, &mut host, answers);
    assert_eq!(answers[&11], Ok(1));
    tell(&mut host, answers, bound(13, "real"));
    assert_eq!(answers[&13], Ok(1), "the same name again is no other name");
    tell(&mut host, answers, bound(14, "another"));
    assert_eq!(kind_and_code(answers.get(&14)), (ErrorKind::Denied, "not-bound"));
    tell(&mut host, answers, Event::IntentBound { request: 15, number: 9, name: "x".to_owned() });
    assert_eq!(kind_and_code(answers.get(&15)), (ErrorKind::Denied, "not-bound"), "nobody announced it");
    assert_eq!(world.log.fold().intents()[&1].resource, staged_file("real"));
}

#[test]
fn what_is_announced_outside_a_part_belongs_to_the_epoch_being_written() {
    let (mut world, graph) = announcing();
    let mut host = started(&mut world, &graph, 1);
    let answers = &mut Answers::new();
    tell(&mut host, answers, announce(1, None, "loose"));
    let record = append(&mut world, &mut host, answers);
    let Body::Intent(intent) = record.body else { panic!("an intent") };
    assert_eq!((intent.epoch, intent.part), (Epoch(1), None));
}

#[test]
fn only_parts_of_this_sink_and_run_that_are_being_written_are_announced_for() {
    let (mut world, graph) = announcing();
    let mut before = started(&mut world, &graph, 1);
    let old = part(&before, 2, 0);
    before.epoch(&mut world, 2);
    before.settle(&mut world, everything);
    let mut host = started(&mut world, &graph, 2);
    host.epoch(&mut world, 2);
    host.settle(&mut world, everything);
    assert_eq!(seals(&world).len(), 2);
    let answers = &mut Answers::new();
    let mut refused = |host: &mut Host, request, event: Event, expected: (ErrorKind, &str)| {
        tell(host, answers, event);
        assert_eq!(kind_and_code(answers.get(&request)), expected);
    };
    let not_writing = (ErrorKind::EpochLost, "not-writing");
    refused(&mut host, 1, announce(1, Some(old), "x"), not_writing);
    let sealed = part(&host, 2, 0);
    refused(&mut host, 2, announce(2, Some(sealed), "x"), not_writing);
    let other_pipeline = PipelineId::new("q").expect("a legal name");
    let run = host.coordinator.run().expect("a run");
    let foreign = PartId::mint(&other_pipeline, &sink("a"), run, Epoch(3), 0, 1);
    refused(&mut host, 3, announce(3, Some(foreign), "x"), (ErrorKind::Denied, "foreign-part"));
    let unknown = Event::IntentAnnounced { request: 4, sink: sink("z"), part: None, resource: staged_file("x") };
    refused(&mut host, 4, unknown, (ErrorKind::Denied, "unknown-sink"));
    assert!(host.take(appends).is_none(), "nothing is written of what was refused");
}

#[test]
fn before_tasks_are_opened_and_after_the_end_nothing_is_announced() {
    let (mut world, graph) = announcing();
    let mut host = Host::start(&world, &graph, world::settings(), 1);
    let answers = &mut Answers::new();
    tell(&mut host, answers, announce(1, None, "x"));
    assert_eq!(kind_and_code(answers.get(&1)), (ErrorKind::EpochLost, "not-writing"));
    host.settle(&mut world, everything);
    tell(&mut host, answers, announce(2, None, "x"));
    append(&mut world, &mut host, answers);
    tell(&mut host, answers, announce(3, None, "y"));
    host.lose_epoch();
    assert!(host.ended.is_none(), "a record is on its way");
    tell(&mut host, answers, announce(4, None, "z"));
    assert_eq!(kind_and_code(answers.get(&4)), (ErrorKind::EpochLost, "not-writing"));
    tell(&mut host, answers, Event::IntentBound { request: 5, number: 1, name: "n".to_owned() });
    assert_eq!(kind_and_code(answers.get(&5)), (ErrorKind::EpochLost, "not-bound"));
    append(&mut world, &mut host, answers);
    assert_eq!(answers[&3], Ok(2), "what became durable is said although the run ends");
    assert!(matches!(host.ended, Some(End::Restart(_))), "{:?}", host.ended);
}

#[test]
fn a_name_that_was_released_is_neither_announced_nor_given_again() {
    let (mut world, graph) = announcing();
    let mut before = started(&mut world, &graph, 1);
    let answers = &mut Answers::new();
    tell(&mut before, answers, announce(1, None, "left"));
    append(&mut world, &mut before, answers);
    drop(before);
    let mut host = started(&mut world, &graph, 2);
    assert!(world.log.records.values().any(|record| matches!(record.body, Body::Released(_))), "given back");
    let answers = &mut Answers::new();
    tell(&mut host, answers, announce(1, None, "left"));
    assert_eq!(kind_and_code(answers.get(&1)), (ErrorKind::Denied, "name-reused"));
    tell(&mut host, answers, announce(2, None, "planned"));
    append(&mut world, &mut host, answers);
    let number = *answers[&2].as_ref().expect("it is durable");
    tell(&mut host, answers, Event::IntentBound { request: 3, number, name: "left".to_owned() });
    assert_eq!(kind_and_code(answers.get(&3)), (ErrorKind::Denied, "not-bound"));
    // Another kind of thing may have the same name.
    let upload = External { kind: "upload".to_owned(), ..staged_file("left") };
    tell(&mut host, answers, Event::IntentAnnounced { request: 4, sink: sink("a"), part: None, resource: upload });
    append(&mut world, &mut host, answers);
    assert!(answers[&4].is_ok());
}

#[test]
fn a_plugin_that_announces_faster_than_the_log_writes_is_told_to_come_again() {
    let (mut world, graph) = announcing();
    let mut host = started(&mut world, &graph, 1);
    let answers = &mut Answers::new();
    for request in 0..400 {
        tell(&mut host, answers, announce(request, None, &format!("f{request}")));
    }
    assert_eq!(answers.len(), 400 - 1 - 256, "one is on its way and 256 wait");
    assert!(answers.values().all(|answer| kind_and_code(Some(answer)) == (ErrorKind::Retryable, "busy")));
    for _ in 0..257 {
        append(&mut world, &mut host, answers);
    }
    assert_eq!(answers.len(), 400);
    let numbers: Vec<u64> = world.log.fold().intents().keys().copied().collect();
    assert_eq!(numbers, (1..=257).collect::<Vec<u64>>(), "numbered without gaps");
}

#[test]
fn an_append_that_wrote_nothing_is_tried_again_and_given_up_after_its_tries() {
    let (mut world, graph) = announcing();
    let mut host = started(&mut world, &graph, 1);
    let answers = &mut Answers::new();
    tell(&mut host, answers, announce(1, None, "x"));
    let retry = |host: &mut Host, answers: &mut Answers| {
        let waits = |effect: &Effect| matches!(effect, Effect::Wait { timer: Timer::AppendRetry, .. });
        assert!(host.take(waits).is_some(), "it is tried again");
        tell(host, answers, Event::TimerFired { timer: Timer::AppendRetry });
    };
    let full = || AppendResult::NotWritten { message: "disk full".to_owned(), retryable: true };
    let Some(Effect::Append { record }) = host.take(appends) else { panic!("nothing is appended") };
    tell(&mut host, answers, Event::TimerFired { timer: Timer::AppendRetry });
    assert!(host.take(appends).is_none(), "a timer that nobody set changes nothing");
    tell(&mut host, answers, Event::Appended { slot: record.slot, result: full() });
    tell(&mut host, answers, Event::Appended { slot: record.slot, result: AppendResult::Created });
    assert!(answers.is_empty() && host.ended.is_none(), "an answer that nobody waits for");
    retry(&mut host, answers);
    let Some(Effect::Append { record: again }) = host.take(appends) else { panic!("nothing is appended") };
    assert_eq!(again, record, "the same record");
    tell(&mut host, answers, Event::Appended { slot: Slot(99), result: AppendResult::Created });
    assert!(answers.is_empty(), "an answer about another slot");
    tell(&mut host, answers, Event::Appended { slot: record.slot, result: full() });
    retry(&mut host, answers);
    host.take(appends).expect("a third try");
    assert_eq!(world.log.append(&record), AppendResult::Created);
    tell(&mut host, answers, Event::Appended { slot: record.slot, result: AppendResult::Created });
    assert_eq!(answers[&1], Ok(1));

    // The tries of one record are not charged to the next.
    tell(&mut host, answers, announce(2, None, "y"));
    for _ in 0..4 {
        let Some(Effect::Append { record }) = host.take(appends) else { panic!("nothing is appended") };
        tell(&mut host, answers, Event::Appended { slot: record.slot, result: full() });
        retry(&mut host, answers);
    }
    let Some(Effect::Append { record }) = host.take(appends) else { panic!("nothing is appended") };
    tell(&mut host, answers, Event::Appended { slot: record.slot, result: full() });
    assert!(matches!(&host.ended, Some(End::StoreFailed(message)) if message == "disk full"), "{:?}", host.ended);
}

#[test]
fn a_run_that_ends_does_not_wait_for_a_log_that_takes_nothing() {
    let (mut world, graph) = announcing();
    let mut host = started(&mut world, &graph, 1);
    let answers = &mut Answers::new();
    tell(&mut host, answers, announce(1, None, "x"));
    let Some(Effect::Append { record }) = host.take(appends) else { panic!("nothing is appended") };
    host.lose_epoch();
    let full = AppendResult::NotWritten { message: "disk full".to_owned(), retryable: true };
    tell(&mut host, answers, Event::Appended { slot: record.slot, result: full });
    assert!(matches!(&host.ended, Some(End::StoreFailed(_))), "losing the log outranks: {:?}", host.ended);
}

/// A thing that has no name yet is told from others by its number alone: many may be announced at once, over many runs.
#[test]
fn what_was_announced_without_a_name_and_given_back_forbids_no_other_without_a_name() {
    let (mut world, graph) = announcing();
    let mut answers = Answers::new();
    let mut before = started(&mut world, &graph, 1);
    let first = part(&before, 1, 0);
    tell(&mut before, &mut answers, announce(1, Some(first), ""));
    append(&mut world, &mut before, &mut answers);
    for nonce in 2..=4u8 {
        let run = u64::from(nonce);
        let mut host = started(&mut world, &graph, nonce);
        let announced = part(&host, 1, 0);
        tell(&mut host, &mut answers, announce(run, Some(announced), ""));
        append(&mut world, &mut host, &mut answers);
        assert_eq!(answers[&run], Ok(run), "run {run}");
        let bound = Event::IntentBound { request: 100 + run, number: run, name: format!("named-{run}") };
        if run == 3 {
            tell(&mut host, &mut answers, bound);
            append(&mut world, &mut host, &mut answers);
            assert_eq!(answers[&(100 + run)], Ok(run), "what another run gave back took nothing from this one");
        }
        assert_eq!(host.ended, None);
    }
    let open: Vec<u64> =
        world.log.fold().intents().iter().filter(|(_, i)| i.state == IntentState::Open).map(|(n, _)| *n).collect();
    assert_eq!(open, [4], "older announcements are given back once, and stay so");
}
