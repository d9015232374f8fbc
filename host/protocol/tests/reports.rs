//! What tasks and plugins report at a barrier, and what is made of it.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_protocol::coordinator::{Phase, Settings};
use tidegate_protocol::event::{
    Consumer, Effect, End, Event, Graph, Notice, Producer, SourceProgress, TaskFailure, Timer,
};
use tidegate_protocol::ids::{Epoch, KeyRange, OperatorId, PartId};
use tidegate_protocol::plugin::{
    Abilities, Call, ErrorKind, External, FaultKind, Orphans, Outcome, PluginError, Prepared, Reject, WriterState,
};
use tidegate_protocol::record::{Blocked, Body, CutReason, OperatorCut, Seal};
use world::drive::*;
use world::host::{Host, fault, plugin_error, prepared, staged_file};
use world::records::operator_cut;
use world::{World, abilities, settings, sink, source};

fn operator() -> OperatorId {
    OperatorId::new("op").expect("a legal name")
}

/// Sinks of one participant each; the graph may be changed before the run starts.
fn running(names: &[&str], change: impl FnOnce(&mut Graph)) -> (World, Graph, Host) {
    let (mut world, mut graph) = sinks(names.iter().map(|name| (*name, abilities())).collect());
    for spec in graph.sinks.values_mut() {
        spec.participants = 1;
    }
    change(&mut graph);
    let host = started(&mut world, &graph, 1);
    (world, graph, host)
}

fn cut(host: &mut Host) -> Epoch {
    host.tell(Event::Busy);
    host.due();
    let barrier = |effect: &Effect| matches!(effect, Effect::InjectBarrier { .. });
    match host.take(barrier) {
        Some(Effect::InjectBarrier { epoch, .. }) => epoch,
        _ => panic!("no barrier: {:?}", host.ended),
    }
}

fn answer_of(host: &Host, at: &str, epoch: Epoch, rows: u64) -> Prepared {
    let run = host.coordinator.run().expect("a run");
    prepared(PartId::mint(&world::pipeline(), &sink(at), run, epoch, 0, 1), rows)
}

/// So that its commit finds something.
fn stage(world: &mut World, prepared: &Prepared) {
    let part = prepared.committable.part.clone();
    world.destinations.get_mut(&sink("a")).expect("a").staged.insert(part.short.clone(), (part, Vec::new()));
}

fn part(at: &str, epoch: Epoch, rows_in: u64, rejected_in_write: u64, prepared: Option<Prepared>) -> Event {
    Event::PartPrepared { sink: sink(at), ordinal: 0, epoch, rows_in, filtered: 0, rejected_in_write, prepared }
}

fn source_cut(epoch: Epoch, rows: u64) -> Event {
    let progress = SourceProgress { rows, ..SourceProgress::default() };
    Event::SourceCut { source: source(), task: 0, epoch, progress }
}

/// One sink, one epoch of five rows that the sink answers like this.
fn answered(answer: impl FnOnce(&mut Prepared)) -> (World, Host) {
    let (mut world, _, mut host) = running(&["a"], |_| {});
    let epoch = cut(&mut host);
    let mut prepared = answer_of(&host, "a", epoch, 5);
    answer(&mut prepared);
    stage(&mut world, &prepared);
    host.tell(source_cut(epoch, 5));
    host.tell(part("a", epoch, 5, 0, Some(prepared)));
    (world, host)
}

fn malformed(host: &Host) -> &str {
    match &host.ended {
        Some(End::Failed(TaskFailure::Plugin(_, fault))) if fault.kind == FaultKind::Malformed => &fault.message,
        other => panic!("{other:?}"),
    }
}

fn newest_seal(world: &World) -> Seal {
    let seal = |body: &Body| if let Body::Seal(seal) = body { Some((**seal).clone()) } else { None };
    world.log.records.values().rev().find_map(|record| seal(&record.body)).expect("a seal")
}

#[test]
fn what_a_plugin_answers_to_prepare_is_checked_against_what_it_was_asked() {
    let reject = |row| Reject { row, code: "c".to_owned(), message: "m".to_owned() };
    let state = |range| Some(WriterState { range, version: 1, body: Bytes::new() });
    type Lie = Box<dyn Fn(&mut Prepared)>;
    let lies: Vec<(Lie, &str)> = vec![
        (Box::new(|p| p.resources[0].kind.clear()), "without kind or name"),
        (Box::new(move |p| p.state = state(KeyRange { first: 0, last: 7 })), "keys that it does not own"),
        (
            Box::new(|p| {
                let part = &mut p.committable.part;
                part.attempt = 0;
                part.short = part.short.trim_end_matches('1').to_owned() + "0";
                part.full = part.full.trim_end_matches('1').to_owned() + "0";
            }),
            "not the one it wrote",
        ),
        (
            Box::new(move |p| {
                (p.rows, p.committable.rows) = (4, 4);
                p.rejects = vec![reject(5)];
            }),
            "rejects row 5",
        ),
        (
            Box::new(move |p| {
                (p.rows, p.committable.rows) = (3, 3);
                p.rejects = vec![reject(2), reject(2)];
            }),
            "rejects row 2",
        ),
    ];
    for (lie, words) in lies {
        let (world, host) = answered(lie);
        assert!(malformed(&host).contains(words), "{words}: {:?}", host.ended);
        assert!(seals(&world).is_empty());
    }
}

#[test]
fn state_of_a_writer_is_sealed_and_kept_while_it_writes_nothing_or_answers_none() {
    let own = WriterState { range: KeyRange::ALL, version: 1, body: Bytes::from_static(b"s") };
    let (mut world, mut host) = answered(|prepared| prepared.state = Some(own.clone()));
    host.settle(&mut world, everything);
    let first = newest_seal(&world).sinks[&sink("a")].parts[0].clone();
    assert_eq!(first.state, std::slice::from_ref(&own));
    // No rows: the plugin is not called, and what its state speaks of stays pinned.
    host.tell(Event::BarrierDue { reason: CutReason::Savepoint("s".to_owned()) });
    host.tell(source_cut(Epoch(2), 0));
    host.tell(part("a", Epoch(2), 0, 0, None));
    host.settle(&mut world, |effect| matches!(effect, Effect::InjectBarrier { .. }));
    let second = newest_seal(&world).sinks[&sink("a")].parts[0].clone();
    assert_eq!((&second.state, &second.resources), (&first.state, &first.resources));
    host.take(|effect| matches!(effect, Effect::InjectBarrier { .. })).expect("injected");
    // Rows, and no state in the answer: the old one stays, with what it speaks of.
    let epoch = cut(&mut host);
    let mut answer = answer_of(&host, "a", epoch, 5);
    answer.resources.push(first.resources[0].clone());
    stage(&mut world, &answer);
    host.tell(source_cut(epoch, 5));
    host.tell(part("a", epoch, 5, 0, Some(answer)));
    host.settle(&mut world, everything);
    let third = newest_seal(&world).sinks[&sink("a")].parts[0].clone();
    assert_eq!(third.state, first.state);
    assert_eq!(third.resources.len(), 2, "each once: {:?}", third.resources);
}

#[test]
fn after_a_change_of_parallelism_a_part_keeps_the_states_that_overlap_its_keys() {
    let halves = KeyRange::split(2);
    let (mut world, mut graph, host) = running(&["a"], |graph| {
        graph.sinks.values_mut().for_each(|spec| spec.participants = 2);
    });
    let mut host = host;
    let epoch = cut(&mut host);
    let run = host.coordinator.run().expect("a run");
    for (ordinal, range) in (0..).zip(halves) {
        let mut answer = prepared(PartId::mint(&world::pipeline(), &sink("a"), run, epoch, ordinal, 1), 1);
        answer.state = Some(WriterState { range, version: 1, body: Bytes::new() });
        let event = Event::PartPrepared {
            sink: sink("a"),
            ordinal,
            epoch,
            rows_in: 1,
            filtered: 0,
            rejected_in_write: 0,
            prepared: Some(answer),
        };
        host.tell(event);
    }
    host.tell(source_cut(epoch, 2));
    host.settle(&mut world, |effect| !appends(effect));
    drop(host);
    world.destinations.get_mut(&sink("a")).expect("a").staged.clear();
    let permits = newest_seal(&world);
    for part in &permits.sinks[&sink("a")].parts {
        let id = part.committable.as_ref().expect("rows").part.clone();
        world.destinations.get_mut(&sink("a")).expect("a").committed.push((id, vec![]));
    }
    graph.sinks.values_mut().for_each(|spec| spec.participants = 4);
    let mut wider = Host::start(&world, &graph, settings(), 2);
    wider.settle(&mut world, |effect| matches!(effect, Effect::InjectBarrier { .. }));
    wider.tell(Event::BarrierDue { reason: CutReason::Savepoint("s".to_owned()) });
    for ordinal in 0..4 {
        wider.tell(Event::PartPrepared {
            sink: sink("a"),
            ordinal,
            epoch: Epoch(2),
            rows_in: 0,
            filtered: 0,
            rejected_in_write: 0,
            prepared: None,
        });
    }
    wider.tell(source_cut(Epoch(2), 0));
    wider.settle(&mut world, |effect| !appends(effect));
    let kept: Vec<usize> = newest_seal(&world).sinks[&sink("a")].parts.iter().map(|part| part.state.len()).collect();
    assert_eq!(kept, [1, 1, 1, 1], "each quarter lies in one half: {:?}", wider.ended);
}

#[test]
fn rows_without_an_answer_to_prepare_end_the_run() {
    let (_, _, mut host) = running(&["a"], |_| {});
    let epoch = cut(&mut host);
    host.tell(source_cut(epoch, 5));
    host.tell(part("a", epoch, 5, 4, None));
    let Some(End::Failed(TaskFailure::Host(words))) = &host.ended else { panic!("{:?}", host.ended) };
    assert!(words.contains("took 5 rows and did not prepare"), "{words}");
}

#[test]
fn operators_are_cut_with_the_rest_and_their_rows_are_counted() {
    let wiring = |graph: &mut Graph| {
        graph.operators.insert(operator(), 2);
        let from_operator = BTreeSet::from([Producer::Operator(operator())]);
        graph.wiring.insert(Consumer::Sink(sink("a")), from_operator);
    };
    let half = |task: usize, rows_in, rows_out| OperatorCut {
        range: KeyRange::split(2)[task],
        ..operator_cut(rows_in, rows_out)
    };
    let report = |task: u32, epoch, cut| Event::OperatorCut { operator: operator(), task, epoch, cut };
    let (mut world, _, mut host) = running(&["a"], wiring);
    let epoch = cut(&mut host);
    host.tell(source_cut(epoch, 5));
    let answer = answer_of(&host, "a", epoch, 3);
    host.tell(part("a", epoch, 3, 0, Some(answer)));
    host.tell(report(0, epoch, half(0, 3, 3)));
    host.tell(report(0, epoch, half(0, 3, 3)));
    assert!(host.take(appends).is_none(), "the other subtask has not reported");
    host.tell(report(1, epoch, half(1, 2, 0)));
    host.settle(&mut world, everything);
    assert_eq!(newest_seal(&world).operators[&operator()].len(), 2, "{:?}", host.ended);

    // Ranges that leave keys out, and rows that went missing on the way in, are found when the seal is made.
    for (second, words) in [(half(0, 2, 0), "own each key once"), (half(1, 1, 0), "row sum does not hold")] {
        let (_, _, mut host) = running(&["a"], wiring);
        let epoch = cut(&mut host);
        host.tell(source_cut(epoch, 5));
        let answer = answer_of(&host, "a", epoch, 3);
        host.tell(part("a", epoch, 3, 0, Some(answer)));
        host.tell(report(0, epoch, half(0, 3, 3)));
        host.tell(report(1, epoch, second));
        let Some(End::Failed(TaskFailure::Host(said))) = &host.ended else { panic!("{:?}", host.ended) };
        assert!(said.contains(words), "{said}");
    }
    let (_, _, mut host) = running(&["a"], wiring);
    let epoch = cut(&mut host);
    host.tell(report(7, epoch, half(0, 1, 1)));
    assert!(matches!(host.ended, Some(End::Restart(TaskFailure::Host(_)))), "{:?}", host.ended);
}

#[test]
fn the_dead_letter_sink_may_not_reject() {
    let (_, _, mut host) = running(&["a", "dead"], |graph| {
        graph.sinks.iter_mut().for_each(|(name, spec)| spec.dead_letter = *name == sink("dead"));
    });
    let epoch = cut(&mut host);
    host.tell(source_cut(epoch, 5));
    let (good, letters) = (answer_of(&host, "a", epoch, 3), answer_of(&host, "dead", epoch, 1));
    host.tell(part("a", epoch, 5, 2, Some(good)));
    host.tell(part("dead", epoch, 2, 1, Some(letters)));
    let Some(End::Failed(TaskFailure::BadRow { message })) = &host.ended else { panic!("{:?}", host.ended) };
    assert!(message.contains("nowhere left"), "{message}");
}

#[test]
fn two_tasks_that_read_the_same_partition_end_the_run() {
    let (_, _, mut host) = running(&["a"], |graph| {
        graph.sources.values_mut().for_each(|spec| spec.tasks = 2);
    });
    let epoch = cut(&mut host);
    for task in 0..2 {
        let moved = BTreeMap::from([("p".to_owned(), "1".to_owned())]);
        let progress = SourceProgress { moved, ..SourceProgress::default() };
        host.tell(Event::SourceCut { source: source(), task, epoch, progress });
    }
    let Some(End::Failed(TaskFailure::Host(words))) = &host.ended else { panic!("{:?}", host.ended) };
    assert!(words.contains("partition `p`"), "{words}");
}

#[test]
fn reports_that_differ_from_the_first_end_the_run_and_late_ones_are_dropped() {
    let (mut world, _, mut host) = running(&["a"], |_| {});
    let epoch = cut(&mut host);
    host.tell(source_cut(epoch, 5));
    host.tell(source_cut(epoch, 5));
    assert!(host.ended.is_none());
    host.tell(source_cut(epoch, 4));
    host.settle(&mut world, everything);
    let Some(End::Restart(TaskFailure::Host(words))) = &host.ended else { panic!("{:?}", host.ended) };
    assert!(words.contains("not the same"), "{words}");
}

#[test]
fn prepared_work_that_expires_before_its_checkpoint_may_go_is_warned_about_once_for_each_sink() {
    let warned_at_each_seal = |seals: usize, until: Option<u64>, resource_until: Option<u64>| -> Vec<usize> {
        let (mut world, _, mut host) = running(&["a"], |_| {});
        let mut counts = Vec::new();
        for _ in 0..seals {
            let epoch = cut(&mut host);
            let mut answer = answer_of(&host, "a", epoch, 5);
            answer.committable.expires_at = until;
            answer.resources[0].expires_at = resource_until;
            stage(&mut world, &answer);
            host.tell(source_cut(epoch, 5));
            let told = |effect: &Effect| matches!(effect, Effect::Notice(Notice::Warning(words)) if words.contains("the destination drops"));
            let effects = host.coordinator.step(5_000, part("a", epoch, 5, 0, Some(answer)));
            counts.push(effects.iter().filter(|effect| told(effect)).count());
            host.todo.extend(effects.into_iter().filter(|effect| !told(effect)).map(world::host::Todo::Do));
            host.settle(&mut world, |effect| commits(effect) || matches!(effect, Effect::Wait { .. }));
        }
        counts
    };
    assert_eq!(warned_at_each_seal(2, None, None), [0, 0]);
    assert_eq!(warned_at_each_seal(2, Some(60_000), Some(70_000)), [0, 0], "longer than any checkpoint has lived");
    assert_eq!(warned_at_each_seal(1, Some(4_000), None), [1], "and is not sent");
    assert_eq!(warned_at_each_seal(2, Some(60_000), Some(3_000)), [1, 0]);
}

#[test]
fn tasks_are_opened_once() {
    let (mut world, _, mut host) = running(&["a"], |_| {});
    host.todo.clear();
    host.tell(Event::TasksOpened);
    assert!(host.todo.is_empty());
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running);
}

#[test]
fn how_an_epoch_was_lost_decides_whether_a_new_run_may_help() {
    type Is = fn(&End) -> bool;
    let plugin = |kind| TaskFailure::Plugin(sink("a"), fault(Call::Write, kind));
    let lost = |permanent| TaskFailure::Source { source: source(), message: "m".to_owned(), permanent };
    let shape = TaskFailure::Shape { sink: sink("a"), message: "m".to_owned() };
    let (restart, failed): (Is, Is) = (|end| matches!(end, End::Restart(_)), |end| matches!(end, End::Failed(_)));
    let superseded: Is = |end| matches!(end, End::Superseded(_));
    let cases = [
        (plugin(FaultKind::Trap), restart),
        (plugin(plugin_error(ErrorKind::EpochLost)), restart),
        (plugin(plugin_error(ErrorKind::Permanent)), failed),
        (plugin(plugin_error(ErrorKind::Fenced)), superseded),
        (lost(false), restart),
        (lost(true), failed),
        (TaskFailure::BadRow { message: "m".to_owned() }, failed),
        (shape, failed),
        (TaskFailure::Host("m".to_owned()), restart),
    ];
    for (reason, is) in cases {
        let (_, _, mut host) = running(&["a"], |_| {});
        host.tell(Event::EpochLost { reason: reason.clone() });
        assert!(host.ended.as_ref().is_some_and(is), "{reason:?}: {:?}", host.ended);
    }
}

/// A run at whose sink one epoch waits and no further one may be cut.
fn full() -> (World, Host) {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started_with(&mut world, &graph, Settings { max_waiting: 1, ..settings() }, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    (world, host)
}

fn warnings(host: &mut Host, event: Event) -> Vec<String> {
    let effects = host.coordinator.step(host.now, event);
    let words = |effect| if let Effect::Notice(Notice::Warning(words)) = effect { Some(words) } else { None };
    effects.into_iter().filter_map(words).collect()
}

#[test]
fn a_savepoint_that_waits_for_its_barrier_is_neither_replaced_nor_doubled() {
    let (mut world, mut host) = full();
    let savepoint = |name: &str| Event::BarrierDue { reason: CutReason::Savepoint(name.to_owned()) };
    assert_eq!(warnings(&mut host, savepoint("s")), [""; 0]);
    assert_eq!(warnings(&mut host, savepoint("s")), [""; 0], "the same wish again");
    let refused = warnings(&mut host, savepoint("t"));
    assert!(refused.len() == 1 && refused[0].contains("`s` comes first"), "{refused:?}");
    let taken = host.ask(|request| Event::SavepointAsked { request, name: "s".to_owned() });
    assert_eq!(host.answers[&taken], Some(Err(tidegate_protocol::event::RequestRefused::NameTaken(None))));
    host.due();
    assert!(host.coordinator.is_held_up() && host.coordinator.status().backpressure);
    host.settle(&mut world, everything);
    assert_eq!(world.log.fold().savepoints().keys().collect::<Vec<_>>(), ["s"]);
    assert!(!host.coordinator.is_held_up());
    let late = warnings(&mut host, savepoint("s"));
    assert!(late.len() == 1 && late[0].contains("already"), "{late:?}");
}

#[test]
fn nothing_is_held_up_before_a_run_runs() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = Host::start(&world, &graph, settings(), 1);
    host.due();
    assert!(!host.coordinator.is_held_up());
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().open_epoch, Some(Epoch(1)));
}

#[test]
fn outcomes_that_come_while_the_last_record_is_written_are_written_before_the_end() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    host.epoch(&mut world, 4);
    host.settle(&mut world, appends);
    answer(&mut host, &permit, Ok(vec![Outcome::Committed; 2]));
    host.lose_epoch();
    assert!(host.ended.is_none(), "a seal is on its way");
    host.settle(&mut world, everything);
    assert!(matches!(host.ended, Some(End::Restart(_))));
    let history = world.log.fold();
    assert!(history.outcome(&sink("a"), permit.of()).is_some_and(|state| state.ended()));
    assert_eq!(history.unfinished(&sink("a")).len(), 1, "the second is sealed and not sent");
}

#[test]
fn a_run_ends_at_once_when_its_record_waits_for_another_try() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    host.epoch(&mut world, 4);
    host.settle(&mut world, appends);
    let Some(Effect::Append { record }) = host.take(appends) else { panic!("no seal") };
    let full = tidegate_protocol::event::AppendResult::NotWritten { message: "full".to_owned(), retryable: true };
    host.tell(Event::Appended { slot: record.slot, result: full });
    answer(&mut host, &permit, Ok(vec![Outcome::Committed; 2]));
    host.lose_epoch();
    assert!(matches!(host.ended, Some(End::Restart(_))), "{:?}", host.ended);
    // That it was committed is not in the log: the next run asks, and nothing comes twice.
    let destination = world.destinations.get_mut(&sink("a")).expect("a");
    let parts: Vec<PartId> = permit.committables().iter().map(|c| c.part.clone()).collect();
    destination.commit(permit.run(), &parts, &world.log.sealed);
    let next = started(&mut world, &graph, 2);
    assert_eq!(world.destinations[&sink("a")].rows().len(), 4);
    assert!(next.coordinator.waiting().is_empty());
}

#[test]
fn a_stop_says_that_a_person_is_waited_for() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    host.tell(Event::StopRequested);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    let refused = PluginError { kind: ErrorKind::Permanent, code: "c".to_owned(), message: "m".to_owned() };
    answer(&mut host, &permit, Ok(vec![Outcome::Rejected(refused); 2]));
    host.settle(&mut world, commits);
    let Some(End::Blocked { waiting }) = &host.ended else { panic!("{:?}", host.ended) };
    assert!(matches!(waiting[..], [(_, of, Blocked::Rejected(_))] if of == permit.of()));
}

#[test]
fn too_many_names_to_forget_are_refused() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = Host::start(&world, &graph, settings(), 1);
    let asked: Vec<u64> =
        (0..20).map(|n| host.ask(|request| Event::ForgetAsked { request, name: format!("s{n}") })).collect();
    let too_many = Some(Err(tidegate_protocol::event::RequestRefused::TooMany));
    assert_eq!(asked.iter().filter(|request| host.answers[request] == too_many).count(), 4);
    host.settle(&mut world, everything);
    assert!(host.answers.values().all(Option::is_some));
}

/// Retires a checkpoint of which a part that is being prepared names a file; `kind` is what the part calls it.
fn released_while_prepared(kind: &str) -> Vec<String> {
    let (mut world, _, mut host) = running(&["a"], |_| {});
    let mut first_file = None;
    for number in 1..=2u64 {
        let epoch = cut(&mut host);
        assert_eq!(epoch, Epoch(number));
        let answer = answer_of(&host, "a", epoch, 5);
        first_file = first_file.or(Some(answer.resources[0].name.clone()));
        host.tell(source_cut(epoch, 5));
        host.tell(part("a", epoch, 5, 0, Some(answer)));
        host.settle(&mut world, |effect| commits(effect) || matches!(effect, Effect::Wait { .. }));
        let permit = commit_of(&mut host);
        answer_committed(&mut host, &permit);
    }
    let name = first_file.expect("two epochs");
    // The third epoch commits while the fourth is being prepared with the name of the first's file.
    let third = cut(&mut host);
    let answer = answer_of(&host, "a", third, 5);
    host.tell(source_cut(third, 5));
    host.tell(part("a", third, 5, 0, Some(answer)));
    host.settle(&mut world, |effect| commits(effect) || matches!(effect, Effect::Wait { .. }));
    let fourth = cut(&mut host);
    let mut answer = answer_of(&host, "a", fourth, 5);
    answer.resources.push(External { kind: kind.to_owned(), ..staged_file(&name) });
    host.tell(part("a", fourth, 5, 0, Some(answer)));
    let permit = commit_of(&mut host);
    answer_committed(&mut host, &permit);
    let release = |effect: &Effect| matches!(effect, Effect::Release { .. });
    host.settle(&mut world, release);
    match host.take(release) {
        Some(Effect::Release { resources, .. }) => {
            assert!(!resources.is_empty());
            resources.into_iter().filter(|resource| resource.name == name).map(|resource| resource.kind).collect()
        }
        _ => Vec::new(),
    }
}

fn answer_committed(host: &mut Host, permit: &tidegate_protocol::permit::CommitPermit) {
    answer(host, permit, Ok(vec![Outcome::Committed; permit.committables().len()]));
}

#[test]
fn p05_what_a_prepared_part_names_is_not_released() {
    assert_eq!(released_while_prepared("file"), [""; 0]);
    assert_eq!(released_while_prepared("upload"), ["file"], "another kind is another thing");
}

#[test]
fn p05_a_name_whose_release_has_begun_is_neither_sealed_nor_announced_nor_given() {
    let release = |effect: &Effect| matches!(effect, Effect::Release { .. });
    let releasing = || {
        let (mut world, mut graph) = one_sink(Abilities { orphans: Orphans::Listable, ..abilities() });
        graph.sinks.values_mut().for_each(|spec| spec.participants = 1);
        let mut host = started(&mut world, &graph, 1);
        for _ in 0..6 {
            host.epoch(&mut world, 4);
            host.settle(&mut world, release);
        }
        let Some(Effect::Release { resources, .. }) = host.take(release) else { panic!("nothing is released") };
        (world, host, resources[0].clone())
    };
    let (mut world, mut host, going) = releasing();
    let epoch = cut(&mut host);
    let mut answer = answer_of(&host, "a", epoch, 5);
    answer.resources.push(going.clone());
    host.tell(source_cut(epoch, 5));
    host.tell(part("a", epoch, 5, 0, Some(answer)));
    host.settle(&mut world, release);
    assert!(malformed(&host).contains("released"), "{:?}", host.ended);

    let (mut world, mut host, going) = releasing();
    let announce = Event::IntentAnnounced { request: 1, sink: sink("a"), part: None, resource: going.clone() };
    let refused = |effects: &[Effect]| {
        effects.iter().any(|effect| {
            matches!(effect, Effect::IntentRecorded { result: Err(error), .. } if error.kind == ErrorKind::Denied)
        })
    };
    assert!(refused(&host.coordinator.step(host.now, announce)));
    let planned = External { name: "planned".to_owned(), ..going.clone() };
    host.tell(Event::IntentAnnounced { request: 2, sink: sink("a"), part: None, resource: planned });
    host.settle(&mut world, release);
    let bound = Event::IntentBound { request: 3, number: 1, name: going.name.clone() };
    assert!(refused(&host.coordinator.step(host.now, bound)));
    let result = Ok(vec![Outcome::Committed; 1]);
    host.tell(Event::ReleaseAnswered { sink: sink("a"), result });
    host.tell(Event::TimerFired { timer: Timer::IdleFlush });
    host.settle(&mut world, everything);
    assert!(host.ended.is_none(), "{:?}", host.ended);
}
