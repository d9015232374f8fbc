//! Records that a log must refuse: every record that it holds, once more, and some that nobody honest would write.

use std::collections::BTreeMap;

use tidegate_protocol::history::{CheckpointState, History, HistoryErrorKind};
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, Nonce, PipelineId, RunId, Slot};
use tidegate_protocol::record::{
    Body, Choice, CutReason, Decision, Deleted, EpochOutcome, Finished, Forget, Intent, Open, OutcomeEntry, Record,
    Released, Retire, Savepoint, Seal, SlotRange,
};

use crate::engine::NOW;
use crate::judge::{Promise, Violation};
use crate::log::Log;
use crate::outside::staged_file;
use crate::plan::{pipeline, sink};

/// What a log refuses, of all that is tried on it. None of it may leave a trace.
///
/// # Errors
/// A record that is refused changed something, or a record of a superseded run was taken.
pub(crate) fn refused(log: &Log, history: History) -> Result<Vec<HistoryErrorKind>, Violation> {
    let mut tried = history.clone();
    let mut kinds = Vec::new();
    for record in probes(log, &history) {
        let stale = history.newest_run().is_some_and(|newest| record.run.number < newest.number)
            && !matches!(record.body, Body::Open(_));
        match tried.apply(&record) {
            Ok(()) if stale => {
                return Err(Violation {
                    promise: Promise::P7,
                    message: format!("a record of a superseded run was taken: {record:?}"),
                });
            }
            Ok(()) => tried = history.clone(),
            Err(error) => {
                kinds.push(error.kind);
                if tried != history {
                    return Err(Violation {
                        promise: Promise::History,
                        message: format!("a record that was refused left a trace: {record:?}"),
                    });
                }
            }
        }
    }
    Ok(kinds)
}

fn probes(log: &Log, history: &History) -> Vec<Record> {
    let next = history.next_slot();
    let mut probes: Vec<Record> =
        log.entries.iter().map(|entry| Record { slot: next, ..Record::clone(&entry.record) }).collect();
    let nobody = RunId { number: 99, nonce: Nonce([99; 10]) };
    let run = history.newest_run().unwrap_or(nobody);
    let with = |body: Body| Record { slot: next, run, written_at: NOW, outcomes: Vec::new(), body };
    let newer =
        |open: Open| Record { run: RunId { number: run.number + 1, nonce: Nonce([98; 10]) }, ..with(Body::Open(open)) };
    let open = |parent: Option<EpochRef>, under: &[&str]| Open {
        pipeline: pipeline(),
        parent,
        observed: BTreeMap::new(),
        under: under.iter().map(|id| (*id).to_owned()).collect(),
        product: String::new(),
    };
    let unknown = EpochRef { run: nobody, epoch: Epoch(7) };
    let tip = history.newest_seal();
    probes.push(Record { slot: Slot(next.0 + 1), ..with(Body::Outcomes) });
    probes.push(Record { slot: Slot(next.0 - 1), ..with(Body::Outcomes) });
    probes.push(with(Body::Outcomes));
    if let Ok(other) = PipelineId::new("other") {
        probes.push(newer(Open { pipeline: other, ..open(tip, &[]) }));
    }
    probes.push(newer(open(Some(unknown), &[])));
    probes.push(newer(open(None, &[])));
    probes.push(newer(open(tip, &["never-decided"])));
    for decided in history.decisions().values() {
        if let Choice::Fork { from, .. } = &decided.decision.choice {
            probes.push(newer(open(Some(*from), &[decided.decision.id.as_str()])));
        }
    }
    probes.push(with(Body::Forget(Forget { name: "never-made".to_owned() })));
    probes.push(with(Body::Finished(Finished { last: tip.unwrap_or(unknown) })));
    probes.push(with(Body::Deleted(Deleted { gone: vec![SlotRange { first: Slot(1), last: Slot(1) }] })));
    probes.push(with(Body::Savepoint(Savepoint { name: "t".to_owned(), of: unknown })));
    probes.push(with(outcome_free_seal(Epoch(u64::MAX))));
    probes.push(with(outcome_free_seal(Epoch(history.next_epoch().0 + 5))));
    for epoch in history.checkpoints() {
        of_epoch(epoch, history, &with, &mut probes);
        if epoch.checkpoint == CheckpointState::Retired {
            probes.push(newer(open(Some(epoch.of), &[])));
        }
    }
    for name in history.savepoints().keys() {
        let of = tip.unwrap_or(unknown);
        probes.push(with(Body::Savepoint(Savepoint { name: name.clone(), of })));
    }
    for (key, entry) in history.ledger().iter() {
        let resources = vec![entry.external.clone()];
        probes.push(with(Body::Released(Released { sink: key.sink.clone(), resources })));
    }
    for entry in &log.entries {
        if let Body::Released(released) = &entry.record.body {
            for resource in &released.resources {
                let number = history.next_intent();
                let (sink, resource) = (released.sink.clone(), resource.clone());
                probes.push(with(Body::Intent(Intent {
                    number,
                    sink,
                    part: None,
                    epoch: history.next_epoch(),
                    resource,
                })));
            }
        }
    }
    let intent = Intent {
        number: history.next_intent() + 1,
        sink: sink("a"),
        part: None,
        epoch: history.next_epoch(),
        resource: staged_file("x"),
    };
    probes.push(with(Body::Intent(intent)));
    probes
}

fn of_epoch(
    epoch: &tidegate_protocol::history::SealedEpoch,
    history: &History,
    with: &impl Fn(Body) -> Record,
    probes: &mut Vec<Record>,
) {
    let of = epoch.of;
    probes.push(with(Body::Retire(Retire { of: vec![of] })));
    probes.push(with(Body::Savepoint(Savepoint { name: "t".to_owned(), of })));
    let outcome = |sink, outcome| {
        let entry = OutcomeEntry { sink, of, attempt: 1, outcome };
        Record { outcomes: vec![entry], ..with(Body::Outcomes) }
    };
    for name in epoch.sinks.keys() {
        probes.push(outcome(name.clone(), EpochOutcome::Committed));
        probes.push(outcome(name.clone(), EpochOutcome::InDoubt(String::new())));
        let choice = Choice::GiveUp { sink: name.clone(), of };
        probes.push(with(Body::Decision(Decision { id: "g".to_owned(), by: String::new(), choice })));
    }
    probes.push(outcome(sink("nowhere"), EpochOutcome::Committed));
    // The next epoch as this one was, with something wrong about it.
    let next = Seal { epoch: history.next_epoch(), reason: CutReason::Interval, ..epoch.seal.clone() };
    probes.push(with(Body::Seal(Box::new(next.clone()))));
    let mut torn = next;
    for part in torn.sinks.values_mut().flat_map(|cut| &mut cut.parts) {
        part.range = KeyRange { first: 0, last: 1 };
    }
    probes.push(with(Body::Seal(Box::new(torn))));
    let again = Seal { reason: CutReason::Interval, ..epoch.seal.clone() };
    probes.push(Record { run: of.run, ..with(Body::Seal(Box::new(again))) });
}

fn outcome_free_seal(epoch: Epoch) -> Body {
    Body::Seal(Box::new(Seal {
        epoch,
        reason: CutReason::Interval,
        graph: String::new(),
        sources: BTreeMap::new(),
        operators: BTreeMap::new(),
        sinks: BTreeMap::new(),
    }))
}
