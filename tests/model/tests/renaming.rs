//! Participants are identical: what a coordinator does with two of them that change places is what it does with them as
//! they are, with their names changed. The model explores only one of the two orders because of that.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_model::engine::NOW;
use tidegate_model::outside::staged_file;
use tidegate_model::plan::{Plan, SinkPlan, StartKind, nonce, pipeline, sink, source};
use tidegate_protocol::coordinator::Coordinator;
use tidegate_protocol::event::{AppendResult, Effect, Event, SourceProgress};
use tidegate_protocol::ids::{Epoch, PartId, RunId};
use tidegate_protocol::plugin::{AtomicScope, Committable, Outcome, Position, Prepared};
use tidegate_protocol::record::{Body, CutReason, Record};

const RUN: RunId = RunId { number: 1, nonce: tidegate_protocol::ids::Nonce([1; 10]) };
const PARTICIPANTS: u32 = 3;

/// A life of one epoch, as events in which participant `order[i]` does what the ith does; and all that came of it, with
/// the names changed back.
fn life(scope: AtomicScope, order: [u32; 3], outcomes: [Outcome; 3]) -> Vec<Vec<String>> {
    let plan =
        Plan::new("renaming", vec![SinkPlan::able("a", PARTICIPANTS).with(|can| can.atomic_scope = scope)], &[3]);
    let (graph, settings) = (plan.graph(0, StartKind::Plain), plan.settings(StartKind::Plain, None));
    let made = Coordinator::new(pipeline(), graph, "graph".to_owned(), settings, Vec::new(), nonce(1));
    let mut coordinator = made.unwrap_or_else(|refusal| panic!("{refusal:?}"));
    let a = sink("a");
    let fenced = Position { fence: Some(RUN), ..Position::default() };
    let told = |event| vec![event];
    let observed = |position: Position| Event::Observed { sink: a.clone(), result: Ok(position) };
    let part = |i: usize| PartId::mint(&pipeline(), &a, RUN, Epoch(1), order[i], 1);
    let mut seen = Vec::new();
    let mut appended: Option<Record> = None;
    let mut ask = |events: Vec<Event>, coordinator: &mut Coordinator, appended: &mut Option<Record>| {
        let mut all = Vec::new();
        for event in events {
            for effect in coordinator.step(NOW, event) {
                if let Effect::Append { record } = &effect {
                    *appended = Some(Record::clone(record));
                }
                all.push(named(&effect, order));
            }
        }
        seen.push(all);
    };
    ask(told(Event::Start), &mut coordinator, &mut appended);
    ask(told(observed(Position::default())), &mut coordinator, &mut appended);
    ask(created(&appended), &mut coordinator, &mut appended);
    ask(told(Event::Fenced { sink: a.clone(), result: Ok(fenced.clone()) }), &mut coordinator, &mut appended);
    ask(told(observed(fenced)), &mut coordinator, &mut appended);
    let page = tidegate_protocol::plugin::OrphanPage::default();
    ask(told(Event::OrphansListed { sink: a.clone(), result: Ok(page) }), &mut coordinator, &mut appended);
    ask(told(Event::TasksOpened), &mut coordinator, &mut appended);
    ask(vec![Event::Busy, Event::BarrierDue { reason: CutReason::Interval }], &mut coordinator, &mut appended);
    let moved = BTreeMap::from([("0".to_owned(), "3".to_owned())]);
    let progress = SourceProgress { moved, rows: 3, ..SourceProgress::default() };
    let cut = Event::SourceCut { source: source(), task: 0, epoch: Epoch(1), progress };
    ask(told(cut), &mut coordinator, &mut appended);
    for (i, ordinal) in order.into_iter().enumerate() {
        let body = Bytes::from(vec![i as u8]);
        let committable = Committable { part: part(i), version: 1, body, rows: 1, expires_at: None };
        let resources = vec![staged_file(&part(i).short)];
        let prepared = Prepared { committable, resources, state: None, rows: 1, rejects: Vec::new() };
        let event = Event::PartPrepared {
            sink: a.clone(),
            ordinal,
            epoch: Epoch(1),
            rows_in: 1,
            filtered: 0,
            rejected_in_write: 0,
            prepared: Some(prepared),
        };
        ask(told(event), &mut coordinator, &mut appended);
    }
    ask(created(&appended), &mut coordinator, &mut appended);
    // Outcomes come in the order of the parts: that of participant `order[i]` is the ith one.
    let mut result = vec![Outcome::Unknown; 3];
    for (i, outcome) in outcomes.into_iter().enumerate() {
        result[order[i] as usize] = outcome;
    }
    let of = part(0).epoch_ref();
    let answer = Event::CommitAnswered { sink: a.clone(), of, attempt: 1, result: Ok(result) };
    ask(told(answer), &mut coordinator, &mut appended);
    let again = tidegate_protocol::event::Timer::CommitRetry(a.clone(), of);
    ask(told(Event::TimerFired { timer: again }), &mut coordinator, &mut appended);
    seen
}

fn created(appended: &Option<Record>) -> Vec<Event> {
    let slot = appended.as_ref().map(|record| record.slot).expect("something is appended");
    vec![Event::Appended { slot, result: AppendResult::Created }]
}

/// An effect in words in which participants have the names that they had before they changed places, and lists of parts
/// no order.
fn named(effect: &Effect, order: [u32; 3]) -> String {
    let back = |part: &PartId| {
        let ordinal = order.iter().position(|at| *at == part.ordinal).expect("a participant");
        format!("{}/{ordinal}/{}", part.epoch, part.attempt)
    };
    match effect {
        Effect::Commit(permit) | Effect::Reconcile(permit) => {
            let mut parts: Vec<String> =
                permit.committables().iter().map(|c| format!("{} {:?}", back(&c.part), c.body)).collect();
            parts.sort();
            let kind = if matches!(effect, Effect::Commit(_)) { "commit" } else { "reconcile" };
            format!("{kind} {} {parts:?}", permit.attempt())
        }
        Effect::Append { record } => match &record.body {
            Body::Seal(seal) => {
                let parts = seal.sinks.values().flat_map(|cut| &cut.parts);
                let mut parts: Vec<String> = parts
                    .map(|cut| {
                        let committable = cut.committable.as_ref().expect("every part has rows");
                        assert_eq!(cut.ordinal, committable.part.ordinal);
                        format!("{} {:?} {}", back(&committable.part), committable.body, cut.rows)
                    })
                    .collect();
                parts.sort();
                format!("seal {} {parts:?} {:?}", record.slot, record.outcomes)
            }
            other => format!("append {} {other:?}", record.slot),
        },
        other => format!("{other:?}"),
    }
}

#[test]
fn participants_that_change_places_change_nothing_but_names() {
    use Outcome::{AlreadyCommitted, Committed, Never, NotCommitted, Unknown};
    let orders = [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let kinds = [Committed, AlreadyCommitted, NotCommitted, Unknown, Never];
    let mut compared = 0;
    for scope in [AtomicScope::Sink, AtomicScope::Participant] {
        for number in 0..kinds.len().pow(3) {
            let kind = |place: u32| kinds[number / kinds.len().pow(place) % kinds.len()].clone();
            let outcomes = [kind(0), kind(1), kind(2)];
            let as_they_are = life(scope, [0, 1, 2], outcomes.clone());
            assert!(as_they_are.iter().flatten().any(|effect| effect.starts_with("commit")), "{as_they_are:?}");
            for order in orders {
                assert_eq!(life(scope, order, outcomes.clone()), as_they_are, "{scope:?} {order:?} {outcomes:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 2 * 125 * 5);
}
