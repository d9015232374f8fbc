//! The promises, as oracles. Nothing here asks the product whether it kept them, except where the product's own words
//! are what is judged.

use std::fmt;

use tidegate_protocol::coordinator::Coordinator;
use tidegate_protocol::event::{Effect, End, Event, Graph, Notice, Restored};
use tidegate_protocol::fault::Remedy;
use tidegate_protocol::history::{History, HistoryError};
use tidegate_protocol::ids::{EpochRef, KeyRange, PartId, RunId, SinkId, Slot};
use tidegate_protocol::plugin::{AtomicScope, CallFault, Outcome, WriterState};
use tidegate_protocol::record::{Blocked, Body, PartCut, Record, Seal};

use crate::coverage::Coverage;
use crate::destination::{Destination, Manner};
use crate::log::{Facts, Log};
use crate::plan::{How, Plan, is_stranger};

/// What was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Each row exactly once.
    P1,
    /// Nothing visible before its seal, nothing sealed abandoned.
    P2,
    /// Sealed before acknowledged.
    P3,
    /// A lost answer means in doubt.
    P4,
    /// Nothing that is named is released.
    P5,
    /// Restoring works as often as one likes, and changes nothing before the run is decided.
    P6,
    /// A superseded run changes nothing.
    P7,
    /// What this log does not know is shown to a person.
    P8,
    /// Progress is published from what is committed everywhere.
    P11,
    /// No row is dropped silently.
    P12,
    /// The log folds, and what a run knows is that fold.
    History,
    /// Without faults it comes to an end.
    Liveness,
    /// The model itself is wrong.
    Model,
}

impl Promise {
    /// As it is called outside: a log that does not fold cannot be restored, as often as one tries, and a pipeline that
    /// without faults neither goes on nor ends is what the simulation counts as P10.
    pub fn name(self) -> String {
        match self {
            Self::History => "P6".to_owned(),
            Self::Liveness => "P10".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// How.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.message)
    }
}

impl std::error::Error for Violation {}

type Verdict = Result<(), Violation>;

fn broken(promise: Promise, message: impl Into<String>) -> Verdict {
    Err(Violation { promise, message: message.into() })
}

fn ensure(holds: bool, promise: Promise, message: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { broken(promise, message()) }
}

/// The model did something that makes no sense.
pub fn fault(message: &str) -> Violation {
    Violation { promise: Promise::Model, message: message.to_owned() }
}

/// A log that cannot be folded.
pub fn folding(error: &HistoryError) -> Violation {
    Violation { promise: Promise::History, message: format!("the log contradicts itself: {error}") }
}

/// A record is about to be created behind what `facts` tell of.
pub fn appended(plan: &Plan, facts: &Facts, record: &Record) -> Verdict {
    if let (Some(newest), false) = (facts.newest_run(), matches!(record.body, Body::Open(_) | Body::Decision(_))) {
        ensure(record.run == newest, Promise::P7, || {
            format!("run {} was superseded by run {newest} and added to the log: {:?}", record.run, record.body)
        })?;
    }
    match &record.body {
        Body::Open(open) => {
            if let Some(newest) = facts.newest_run() {
                ensure(record.run.number > newest.number, Promise::P7, || {
                    format!("run {} opens behind run {newest}", record.run)
                })?;
            }
            for id in &open.under {
                ensure(!facts.used.contains_key(id), Promise::P8, || {
                    format!("decision `{id}` is acted upon a second time")
                })?;
            }
            for seal in facts.line() {
                let observes = |sink: &SinkId| plan.sinks.iter().any(|p| p.id() == *sink && p.abilities.observe);
                let lost = seal
                    .ends
                    .iter()
                    .find(|(sink, ended)| !**ended && observes(sink) && !open.observed.contains_key(*sink));
                if let (Some((sink, _)), true) = (lost, open.parent.is_some()) {
                    let of = seal.of;
                    return broken(
                        Promise::P1,
                        format!("a run opens without sink `{sink}`, where {of} is not committed"),
                    );
                }
            }
            for (sink, seen) in &open.observed {
                let (ahead, behind) = facts.allowed(&open.under, sink);
                let scope = plan.sinks.iter().find(|plan| plan.id() == *sink).map(|plan| plan.abilities.atomic_scope);
                let scope = scope.unwrap_or(AtomicScope::Sink);
                let differs = match facts.explains(sink, seen, record.slot) {
                    // What is below it, the destination does not show any more.
                    Err(_) if ahead => Ok(()),
                    Ok(()) if !behind => facts.reaches(scope, sink, seen, record.slot),
                    explained => explained,
                };
                if let Err(why) = differs {
                    return broken(Promise::P8, format!("sink `{sink}` was taken as it is although {why}"));
                }
            }
            Ok(())
        }
        Body::Seal(seal) => {
            for (sink, cut) in &seal.sinks {
                let sum = |f: fn(&PartCut) -> u64| cut.parts.iter().map(f).sum::<u64>();
                let handed_on: u64 = seal.sources.values().map(|cut| cut.rows).sum();
                let (taken, accounted) = (sum(|p| p.rows_in), sum(|p| p.rows + p.rejected + p.filtered));
                ensure(handed_on == taken && taken == accounted, Promise::P12, || {
                    format!("sink `{sink}`: {handed_on} rows were read, {taken} taken in, {accounted} accounted for")
                })?;
                let ranges = cut.parts.iter().map(|part| part.range);
                ensure(KeyRange::complete(ranges), Promise::P1, || {
                    format!("the participants of sink `{sink}` do not own each key once")
                })?;
                ensure(
                    plan.sinks.iter().any(|plan| plan.id() == *sink) || sink.as_str() == "renamed",
                    Promise::Model,
                    || format!("sink `{sink}` is sealed and not in the plan"),
                )?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A log that was not there before.
pub fn log(plan: &Plan, log: &Log, facts: &Facts, coverage: &mut Coverage) -> Verdict {
    let history = log.fold().map_err(|error| folding(&error))?;
    if let Some((sink, of)) = facts.left_behind.first() {
        return broken(
            Promise::P1,
            format!("{of} was left behind while sink `{sink}` may still get it: it could be sent at any time"),
        );
    }
    // P1 and P12 of the line that the next run goes on from: every row once, none left out.
    let line = facts.line();
    if let Some(last) = line.last() {
        let expected: Vec<u8> = (0..Facts::position(&last.seal)).collect();
        for sink in last.seal.sinks.keys() {
            let mut rows = Facts::rows_at(&line, sink);
            rows.sort_unstable();
            ensure(
                rows == expected || !line.iter().all(|seal| seal.seal.sinks.contains_key(sink)),
                Promise::P1,
                || format!("sink `{sink}`: sealed are rows {rows:?}, read were {expected:?}"),
            )?;
        }
    }
    coverage.log(plan, log, history)
}

/// What a run knows against what the log says up to there.
pub fn history(log: &Log, known: &History) -> Verdict {
    // What others deleted since, an older run may still know.
    if known.next_slot() < log.next() && log.entries.iter().any(|entry| entry.gone) {
        return Ok(());
    }
    let folded = log.fold_before(known.next_slot()).map_err(|error| folding(&error))?;
    ensure(folded == *known, Promise::History, || {
        format!("a run knows something else than a fold of the log says:\n{known:#?}\n{folded:#?}")
    })
}

/// What can be seen at a destination, against the log.
pub fn pair(facts: &Facts, name: &SinkId, destination: &Destination) -> Verdict {
    let mut rows: Vec<u8> = Vec::new();
    for (part, visible) in destination.committed.iter().filter(|(part, _)| !is_stranger(part.run)) {
        let Some(sealed) = facts.sealed.get(&part.short).filter(|sealed| sealed.part == *part) else {
            return broken(Promise::P2, format!("`{part}` can be seen at sink `{name}` and was never sealed"));
        };
        ensure(sealed.rows == *visible, Promise::P1, || {
            format!("`{part}` at sink `{name}` was sealed with rows {:?} and shows {visible:?}", sealed.rows)
        })?;
        rows.extend(visible);
    }
    let count = rows.len();
    rows.sort_unstable();
    rows.dedup();
    ensure(rows.len() == count || facts.duplicates_accepted, Promise::P1, || {
        format!("rows came twice to sink `{name}`: {:?}", destination.committed)
    })?;
    for seal in facts.seals.values().filter(|seal| seal.committed.contains_key(name)) {
        let cut = seal.seal.sinks.get(name).into_iter().flat_map(|cut| &cut.parts);
        let missing = cut.filter_map(|part| part.committable.as_ref()).find(|c| !destination.has(&c.part));
        if let (Some(missing), false) = (missing, destination.restored) {
            let part = &missing.part;
            return broken(Promise::P1, format!("`{part}` is recorded as committed and is not at sink `{name}`"));
        }
    }
    Ok(())
}

/// A part is about to be staged.
pub fn staged(destination: &Destination, part: &PartId) -> Verdict {
    ensure(!destination.has(part) && !destination.released.contains(&part.short), Promise::P5, || {
        format!("`{part}` is written to again")
    })
}

/// A call is about to reach a destination.
pub fn outside(
    facts: &Facts,
    name: &SinkId,
    destination: &Destination,
    run: Option<RunId>,
    effect: &Effect,
    how: How,
) -> Verdict {
    if matches!(effect, Effect::Fence { .. } | Effect::Commit(_) | Effect::Abandon { .. } | Effect::Release { .. }) {
        // After a restored backup the log may have lost the run.
        let decided = run.is_some_and(|run| facts.opens.contains_key(&run));
        ensure(decided || facts.went_back, Promise::P6, || {
            format!("a run that is not decided changes sink `{name}`: {effect:?}")
        })?;
    }
    let carried_out = matches!(how, How::Well | How::DoneLost | How::Twice | How::UnknownDone | How::Short);
    match effect {
        Effect::Commit(permit) => {
            for committable in permit.committables() {
                let part = &committable.part;
                ensure(facts.sealed.contains_key(&part.short), Promise::P2, || {
                    format!("a commit is sent for `{part}`, which is not sealed")
                })?;
                let there = destination.staged.contains_key(&part.short)
                    || destination.has(part)
                    || destination.dropped.contains(&part.short);
                ensure(there || destination.restored, Promise::P2, || {
                    format!("nothing is staged for `{part}`, which is sealed: it was given back")
                })?;
            }
            Ok(())
        }
        Effect::Abandon { parts, .. } if carried_out => {
            for unsealed in parts {
                let part = &unsealed.part;
                ensure(!facts.known.contains(&part.short), Promise::P2, || {
                    format!("`{part}` is sealed and is given back at sink `{name}`")
                })?;
                // Also where the log has lost its seal: somebody accepted what the destination shows.
                ensure(!destination.has(part), Promise::P2, || {
                    format!("`{part}` is committed and is given back at sink `{name}`")
                })?;
            }
            Ok(())
        }
        Effect::Release { resources, .. } if carried_out => {
            for resource in resources {
                if let Some(why) = facts.needs(name, &resource.name) {
                    return broken(
                        Promise::P5,
                        format!("`{}` is released at sink `{name}` although {why}", resource.name),
                    );
                }
                // What is staged and sealed is judged by who names it; what is not sealed may still be.
                let prepared = destination.staged.get(&resource.name);
                let waits = prepared.is_some_and(|(part, _)| {
                    !facts.known.contains(&part.short) && Some(part.run) == facts.newest_run()
                });
                ensure(!waits, Promise::P5, || {
                    format!("`{}` is released at sink `{name}` and is prepared work", resource.name)
                })?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// A call was carried out.
pub fn called(
    manner: Manner,
    before: &Destination,
    after: &Destination,
    run: Option<RunId>,
    effect: &Effect,
) -> Verdict {
    let changed = before.committed != after.committed || before.staged != after.staged;
    let superseded = run.is_some_and(|run| before.superseded(run));
    ensure(!(manner.fences && superseded && changed), Promise::P7, || {
        format!("a run that was fenced got through: {effect:?}")
    })
}

/// A record is about to be deleted.
pub fn deleted(facts: &Facts, log: &Log, slot: Slot) -> Verdict {
    let Some(entry) = log.at(slot) else { return broken(Promise::P6, format!("slot {slot} is deleted and empty")) };
    let record = &entry.record;
    match &record.body {
        Body::Open(_) | Body::Decision(_) => {
            broken(Promise::P7, format!("record {slot} is deleted: a sleeper would find its slot free"))
        }
        Body::Seal(seal) => {
            let of = EpochRef { run: record.run, epoch: seal.epoch };
            let retired = facts.seals.get(&of).is_some_and(|seal| seal.retired);
            ensure(retired, Promise::P6, || format!("the seal of {of} is deleted and can still be restored"))
        }
        _ => Ok(()),
    }
}

/// Tasks are opened from a checkpoint.
pub fn opened(facts: &Facts, graph: &Graph, restored: &Restored) -> Verdict {
    let line = facts.line();
    if facts.newest_run() != Some(restored.run) {
        // It does not know yet that it was superseded, and can do no harm.
        return Ok(());
    }
    let last = line.last();
    ensure(restored.from == last.map(|seal| seal.of), Promise::P1, || {
        format!("tasks are opened from {:?}, and the newest is {:?}", restored.from, last.map(|seal| seal.of))
    })?;
    let position = last.map_or(0, |seal| Facts::position(&seal.seal));
    let read = restored.sources.values().next().and_then(|cut| {
        cut.partitions.entries().ok().and_then(|entries| entries.get("0").and_then(|text| text.parse().ok()))
    });
    ensure(read.unwrap_or(0) == position, Promise::P1, || {
        format!("the source is opened at {read:?}, and the checkpoint stands at {position}")
    })?;
    for seal in &line {
        for (sink, ended) in &seal.ends {
            ensure(*ended || graph.sinks.contains_key(sink), Promise::P1, || {
                format!("{} is not committed at sink `{sink}`, which is not in the graph any more", seal.of)
            })?;
        }
    }
    states(last.map(|seal| &seal.seal), restored)
}

/// The same, of a destination as it really is: whatever the run observed, it goes on only from what its log explains.
pub fn opened_at(facts: &Facts, name: &SinkId, manner: Manner, destination: &Destination, run: RunId) -> Verdict {
    if facts.newest_run() != Some(run) || (manner.fences && destination.fence != Some(run)) {
        // Whoever took it over since is not seen before the next call.
        return Ok(());
    }
    let (position, end) = (destination.position(manner), Slot(u64::MAX));
    let stands = facts.explains(name, &position, end).and(facts.reaches(manner.scope, name, &position, end));
    stands.or_else(|why| broken(Promise::P8, format!("tasks are opened and at sink `{name}` {why}")))
}

/// What the checkpoint keeps of a key reaches whoever owns it now, and once.
fn states(seal: Option<&Seal>, restored: &Restored) -> Verdict {
    for (sink, cut) in seal.into_iter().flat_map(|seal| &seal.sinks) {
        let Some(given) = restored.writers.get(sink) else { continue };
        let sealed: Vec<&WriterState> = cut.parts.iter().flat_map(|part| &part.state).collect();
        // Between two edges of ranges all keys are alike.
        let edges = sealed.iter().copied().chain(given).flat_map(|state| [state.range.first, state.range.last]);
        for key in edges {
            let owns = |state: &&WriterState| state.range.first <= key && key <= state.range.last;
            let kept: Vec<_> = sealed.iter().copied().filter(owns).map(|state| &state.body).collect();
            let told: Vec<_> = given.iter().filter(owns).map(|state| &state.body).collect();
            let right = told.len() == usize::from(!kept.is_empty()) && told.iter().all(|body| kept.contains(body));
            ensure(right, Promise::P1, || {
                format!("a writer of sink `{sink}` is told {told:?} of key {key}, and the checkpoint holds {kept:?}")
            })?;
        }
    }
    Ok(())
}

/// P11: progress up to `of` is published.
pub fn progress(facts: &Facts, of: EpochRef, name: &SinkId, destination: &Destination) -> Verdict {
    let line = facts.line_to(Some(of.run), of.epoch.0);
    ensure(line.last().is_some_and(|seal| seal.of == of), Promise::P11, || {
        format!("progress of {of} is published, which is not sealed")
    })?;
    for seal in line {
        let ended = seal.ends.get(name).copied().unwrap_or(true);
        ensure(ended, Promise::P11, || {
            format!("progress of {of} is published and {} is not committed at sink `{name}`", seal.of)
        })?;
        let parts = seal.seal.sinks.get(name).into_iter().flat_map(|cut| &cut.parts);
        let missing = parts.filter_map(|part| part.committable.as_ref()).find(|c| !destination.has(&c.part));
        let excused = facts.loss_accepted || destination.restored || !seal.committed.contains_key(name);
        if let (Some(missing), false) = (missing, excused) {
            let part = &missing.part;
            return broken(Promise::P11, format!("progress of {of} is published and `{part}` is not at sink `{name}`"));
        }
    }
    Ok(())
}

/// The pipeline calls itself finished.
pub fn finished(facts: &Facts, rows: u8, name: &SinkId, destination: &Destination) -> Verdict {
    if !facts.finished {
        return broken(Promise::P3, "the pipeline is finished and the log does not say so");
    }
    for seal in facts.seals.values() {
        let ended = seal.ends.get(name).copied().unwrap_or(true);
        ensure(ended, Promise::P1, || format!("finished, and {} is not committed at sink `{name}`", seal.of))?;
    }
    let mut there: Vec<u8> = destination.committed.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
    there.sort_unstable();
    if facts.duplicates_accepted {
        there.dedup();
    }
    let all: Vec<u8> = (0..rows).collect();
    ensure(there == all || facts.loss_accepted, Promise::P1, || {
        format!("finished, and at sink `{name}` are rows {there:?} of {all:?}")
    })
}

/// A start was refused.
pub fn refused(touched: bool) -> Verdict {
    ensure(!touched, Promise::P6, || {
        "a start was refused behind changes at a destination: whoever is at home there was disturbed".to_owned()
    })
}

/// One step of a coordinator.
pub fn step(before: &Coordinator, event: &Event, after: &Coordinator, effects: &[Effect]) -> Verdict {
    for effect in effects {
        step_effect(after, effect)?;
    }
    match event {
        Event::CommitAnswered { sink, of, result, .. } | Event::Reconciled { sink, of, result, .. } => {
            let (was, is) = (before.status(), after.status());
            let (Some(was), Some(is)) = (was.sinks.get(sink), is.sinks.get(sink)) else { return Ok(()) };
            let committed = was.committed != is.committed && is.committed == Some(*of);
            let blocked = is.blocked.as_ref().filter(|now| was.blocked.as_ref() != Some(now) && now.0 == *of);
            answered(*of, result, committed, blocked.map(|(_, why)| why))
        }
        _ => Ok(()),
    }
}

/// P4: what an answer that says nothing may lead to.
fn answered(
    of: EpochRef,
    result: &Result<Vec<Outcome>, CallFault>,
    committed: bool,
    blocked: Option<&Blocked>,
) -> Verdict {
    let patience = |why: &Blocked| matches!(why, Blocked::TriesSpent(_) | Blocked::CannotAsk(_));
    match result {
        Err(fault) => {
            ensure(!committed, Promise::P4, || format!("{of} counts as committed although {fault}"))?;
            let mend = matches!(fault.remedy(), Remedy::Mend | Remedy::NotOffered);
            ensure(blocked.is_none_or(|why| mend || patience(why)), Promise::P4, || {
                format!("{of} counts as failed ({blocked:?}) although nothing is known: {fault}")
            })
        }
        Ok(outcomes) => {
            let yes = |outcome: &Outcome| matches!(outcome, Outcome::Committed | Outcome::AlreadyCommitted);
            let open =
                |outcome: &Outcome| matches!(outcome, Outcome::NotCommitted | Outcome::Retry(_) | Outcome::Unknown);
            ensure(!committed || outcomes.iter().any(yes), Promise::P4, || {
                format!("{of} counts as committed behind {outcomes:?}")
            })?;
            let settled = outcomes.iter().any(|outcome| !yes(outcome) && !open(outcome));
            ensure(blocked.is_none_or(|why| settled || patience(why)), Promise::P4, || {
                format!("{of} counts as failed ({blocked:?}) behind {outcomes:?}")
            })
        }
    }
}

fn step_effect(after: &Coordinator, effect: &Effect) -> Verdict {
    let history = after.history();
    let decided = after.run().is_some() && history.newest_run() == after.run();
    match effect {
        Effect::Fence { .. } | Effect::Commit(_) | Effect::Abandon { .. } | Effect::Release { .. } => {
            // A drain run changes destinations before its fork is decided, and is a run of its own.
            ensure(decided, Promise::P6, || format!("before the run is decided: {effect:?}"))?;
            if let Effect::Commit(permit) = effect {
                ensure(history.seal(permit.of()).is_some(), Promise::P2, || {
                    format!("{} is committed and not known as sealed", permit.of())
                })?;
            }
            Ok(())
        }
        Effect::InjectBarrier { epoch, .. } => ensure(*epoch == history.next_epoch(), Promise::P3, || {
            format!("the barrier of epoch {epoch} is sent before the epoch before it is sealed")
        }),
        Effect::Notice(Notice::EpochSealed { of, .. }) => {
            ensure(history.seal(*of).is_some(), Promise::P3, || format!("{of} is called sealed and is not"))
        }
        Effect::RequestAnswered { result: Ok(of), .. } => {
            // A savepoint that is answered is in the log; one that was given up may be gone from it.
            let known = history.seal(*of).is_some() || history.may_be_sealed(*of);
            ensure(known, Promise::P3, || format!("a savepoint is acknowledged as {of}, which is not sealed"))
        }
        Effect::End(End::StoreFailed(message)) => {
            ensure(!message.contains("contradicts the log"), Promise::History, || message.clone())
        }
        _ => Ok(()),
    }
}
