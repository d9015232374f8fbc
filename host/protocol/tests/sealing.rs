//! What goes into a seal, and what the log refuses to hold.

mod world;

use std::collections::BTreeMap;

use tidegate_protocol::event::{Effect, End, Event, SourceProgress, TaskFailure};
use tidegate_protocol::history::{History, HistoryErrorKind};
use tidegate_protocol::ids::{Epoch, EpochRef, PartId, RunId, Slot};
use tidegate_protocol::plugin::FaultKind;
use tidegate_protocol::record::{Body, CutReason, Record, Seal};
use world::drive::*;
use world::host::{Host, prepared};
use world::{abilities, sink};

#[test]
fn b21_b37_b44_a_repeated_message_stands_in_for_nobody() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 2);
    host.settle(&mut world, |_| true);
    let inject = |effect: &Effect| matches!(effect, Effect::InjectBarrier { .. });
    let Some(Effect::InjectBarrier { epoch, .. }) = host.take(inject) else { panic!("no barrier") };
    let run = host.coordinator.run().expect("a run");
    let part = PartId::mint(&world::pipeline(), &sink("a"), run, epoch, 0, 1);
    let report = |ordinal| Event::PartPrepared {
        sink: sink("a"),
        ordinal,
        epoch,
        rows_in: 2,
        filtered: 0,
        rejected_in_write: 0,
        prepared: Some(prepared(part.clone(), 2)),
    };
    for _ in 0..3 {
        host.tell(report(0));
    }
    assert!(host.take(appends).is_none() && host.ended.is_none(), "complete means every key range");
    host.tell(report(7));
    assert!(matches!(host.ended, Some(End::Restart(TaskFailure::Host(_)))), "foreign: {:?}", host.ended);
}

#[test]
fn b35_an_epoch_without_rows_is_sealed_and_calls_no_plugin() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.due();
    host.settle(&mut world, everything);
    assert!(seals(&world).is_empty(), "an idle pipeline injects no barrier");
    host.tell(Event::BarrierDue { reason: CutReason::Savepoint("s".to_owned()) });
    host.settle(&mut world, everything);
    assert_eq!(seals(&world).len(), 1);
    assert!(host.coordinator.status().waiting.is_empty());
    assert!(world.destinations[&sink("a")].committed.is_empty());
}

#[test]
fn b42_what_belongs_to_no_barrier_ends_the_run() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    let late = |epoch| Event::PartPrepared {
        sink: sink("a"),
        ordinal: 0,
        epoch: Epoch(epoch),
        rows_in: 0,
        filtered: 0,
        rejected_in_write: 0,
        prepared: None,
    };
    host.epoch(&mut world, 2);
    host.settle(&mut world, everything);
    host.tell(late(1));
    assert!(host.ended.is_none(), "a repeat of what is sealed changes nothing");
    host.tell(late(9));
    host.settle(&mut world, everything);
    assert!(matches!(host.ended, Some(End::Restart(TaskFailure::Host(_)))));
}

#[test]
fn p12_a_row_that_does_not_arrive_ends_the_run() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 2);
    host.settle(&mut world, |effect| matches!(effect, Effect::InjectBarrier { .. }));
    let barrier = |effect: &Effect| matches!(effect, Effect::InjectBarrier { .. });
    let Some(Effect::InjectBarrier { epoch, .. }) = host.take(barrier) else { panic!("no barrier") };
    let run = host.coordinator.run().expect("a run");
    for ordinal in 0..2 {
        let part = PartId::mint(&world::pipeline(), &sink("a"), run, epoch, ordinal, 1);
        host.tell(Event::PartPrepared {
            sink: sink("a"),
            ordinal,
            epoch,
            rows_in: 2,
            filtered: 0,
            rejected_in_write: 0,
            prepared: Some(prepared(part, 2)),
        });
    }
    let moved = BTreeMap::from([("0".to_owned(), "5".to_owned())]);
    let progress = SourceProgress { moved, rows: 5, ..SourceProgress::default() };
    host.tell(Event::SourceCut { source: world::source(), task: 0, epoch, progress });
    let Some(End::Failed(TaskFailure::Host(words))) = &host.ended else { panic!("{:?}", host.ended) };
    assert!(words.contains('5') && words.contains('4'), "{words}");
    assert!(seals(&world).is_empty());
}

#[test]
fn impossible_records_are_named() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 2);
    host.settle(&mut world, everything);
    host.tell(Event::StopRequested);
    host.settle(&mut world, everything);
    let records = world.log.all();
    let history = History::fold(&records).expect("an honest log");
    let kind = |record: Record| history.clone().apply(&record).expect_err("impossible").kind;
    let sealed = records.iter().find(|record| matches!(record.body, Body::Seal(_))).expect("a seal").clone();
    let next = Record { slot: history.next_slot(), ..sealed.clone() };
    let of = EpochRef { run: sealed.run, epoch: Epoch(1) };
    assert_eq!(kind(next.clone()), HistoryErrorKind::SealedTwice(of));
    assert!(matches!(kind(sealed.clone()), HistoryErrorKind::SlotNotRising { .. }));
    let gap = Record { slot: Slot(next.slot.0 + 5), ..next.clone() };
    assert!(matches!(kind(gap), HistoryErrorKind::Gap { .. }));
    let older = Record { run: RunId { number: 0, ..sealed.run }, ..next.clone() };
    assert!(matches!(kind(older), HistoryErrorKind::NotNewestRun { .. }));
    let outcome = tidegate_protocol::record::OutcomeEntry {
        sink: sink("a"),
        of: EpochRef { run: sealed.run, epoch: Epoch(77) },
        attempt: 1,
        outcome: tidegate_protocol::record::EpochOutcome::Committed,
    };
    let unknown = Record { outcomes: vec![outcome], body: Body::Outcomes, ..next.clone() };
    assert!(matches!(kind(unknown), HistoryErrorKind::UnknownSeal(_)));
    let Body::Seal(seal) = &sealed.body else { panic!("a seal") };
    let far = Seal { epoch: Epoch(u64::MAX), ..(**seal).clone() };
    let spent = Record { body: Body::Seal(Box::new(far)), ..next };
    assert_eq!(kind(spent), HistoryErrorKind::NumberSpent);
    let missing: Vec<Record> = records.iter().filter(|record| record.slot != sealed.slot).cloned().collect();
    assert!(History::fold(&missing).is_err());
}

/// One sink with a dead-letter sink beside it; reports an epoch of five rows by hand.
fn with_dead_letters(rejected: u64, dead_letters: Option<u64>) -> Option<End> {
    let (mut world, mut graph) = sinks(vec![("a", abilities()), ("dead", abilities())]);
    if dead_letters.is_none() {
        graph.sinks.remove(&sink("dead"));
    }
    for (name, spec) in &mut graph.sinks {
        spec.participants = 1;
        spec.dead_letter = *name == sink("dead");
    }
    let mut host = started(&mut world, &graph, 1);
    host.tell(Event::Busy);
    host.due();
    let barrier = |effect: &Effect| matches!(effect, Effect::InjectBarrier { .. });
    let Some(Effect::InjectBarrier { epoch, .. }) = host.take(barrier) else { panic!("no barrier") };
    let run = host.coordinator.run().expect("a run");
    let report = |host: &mut Host, name: &str, rows_in: u64, rejected_in_write: u64| {
        let part = PartId::mint(&world::pipeline(), &sink(name), run, epoch, 0, 1);
        let prepared = (rows_in > 0).then(|| prepared(part, rows_in - rejected_in_write));
        host.tell(Event::PartPrepared {
            sink: sink(name),
            ordinal: 0,
            epoch,
            rows_in,
            filtered: 0,
            rejected_in_write,
            prepared,
        });
    };
    report(&mut host, "a", 5, rejected);
    if let Some(rows) = dead_letters {
        report(&mut host, "dead", rows, 0);
    }
    let moved = BTreeMap::from([("0".to_owned(), "5".to_owned())]);
    let progress = SourceProgress { moved, rows: 5, ..SourceProgress::default() };
    host.tell(Event::SourceCut { source: world::source(), task: 0, epoch, progress });
    host.settle(&mut world, |effect| !appends(effect));
    assert_eq!(host.ended.is_none(), seals(&world).len() == 1);
    host.ended
}

#[test]
fn p12_a_rejected_row_is_in_the_dead_letter_sink_of_the_same_epoch() {
    assert_eq!(with_dead_letters(2, Some(2)), None);
    assert_eq!(with_dead_letters(0, None), None);
    assert!(matches!(with_dead_letters(2, Some(1)), Some(End::Failed(TaskFailure::Host(_)))));
    assert!(matches!(with_dead_letters(0, Some(1)), Some(End::Failed(TaskFailure::Host(_)))));
    assert!(matches!(with_dead_letters(2, None), Some(End::Failed(TaskFailure::BadRow { .. }))));
}

#[test]
fn what_a_plugin_claims_of_its_part_is_checked() {
    type Lie = fn(&mut tidegate_protocol::plugin::Prepared);
    let lies: [Lie; 7] = [
        |p| p.committable.part.ordinal = 1,
        |p| p.committable.part.epoch = Epoch(9),
        |p| p.committable.part.short.push('x'),
        |p| p.committable.version = 2,
        |p| p.committable.rows = 4,
        |p| p.rows = 6,
        |p| p.resources[0].name.clear(),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let (mut world, mut graph) = one_sink(abilities());
        if let Some(spec) = graph.sinks.get_mut(&sink("a")) {
            spec.participants = 1;
        }
        let mut host = started(&mut world, &graph, 1);
        host.tell(Event::Busy);
        host.due();
        let run = host.coordinator.run().expect("a run");
        let mut answer = prepared(PartId::mint(&world::pipeline(), &sink("a"), run, Epoch(1), 0, 1), 5);
        lie(&mut answer);
        let epoch = Epoch(1);
        let (rows_in, rejected_in_write) = (5, 0);
        host.tell(Event::PartPrepared {
            sink: sink("a"),
            ordinal: 0,
            epoch,
            rows_in,
            filtered: 0,
            rejected_in_write,
            prepared: Some(answer),
        });
        let progress = SourceProgress { rows: 5, ..SourceProgress::default() };
        host.tell(Event::SourceCut { source: world::source(), task: 0, epoch, progress });
        let Some(End::Failed(TaskFailure::Plugin(_, fault))) = &host.ended else {
            panic!("lie {number}: {:?}", host.ended)
        };
        assert_eq!(fault.kind, FaultKind::Malformed, "lie {number}");
    }
}
