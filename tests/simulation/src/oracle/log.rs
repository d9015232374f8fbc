//! The records of the log, against each other and against what was told.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_protocol::event::Notice;
use tidegate_protocol::ids::{Epoch, EpochRef, RunId, Slot};
use tidegate_protocol::plugin::AtomicScope;
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::{Body, Choice, Record};

use super::facts::{Facts, SealFact};
use super::{Evidence, Violation};
use crate::dest::Did;
use crate::world::Seq;

fn violation(promise: &'static str, at: Seq, what: String) -> Violation {
    Violation { promise, what, at: Some(at) }
}

/// P3: the epochs of a run follow each other without a gap, empty ones too, and nothing is told of an epoch before its seal.
pub(super) fn p3_every_epoch_is_sealed_and_then_told(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut last: BTreeMap<RunId, Epoch> = BTreeMap::new();
    let mut highest = Epoch::ZERO;
    let mut in_order: Vec<(&EpochRef, &SealFact)> = facts.seals.iter().collect();
    in_order.sort_by_key(|(_, fact)| fact.slot);
    for (of, fact) in in_order {
        let expected = last.insert(of.run, of.epoch).map(Epoch::next);
        if expected.is_some_and(|expected| expected != of.epoch) {
            found.push(violation("P3", fact.seq, format!("{of} does not follow the epoch before it")));
        }
        if of.epoch <= highest {
            found.push(violation("P3", fact.seq, format!("the number of {of} was used before")));
        }
        highest = highest.max(of.epoch);
    }
    for (seq, notice) in evidence.told.iter().flat_map(|told| &told.notices) {
        let of = match notice {
            Notice::EpochSealed { of, .. } | Notice::EpochCommitted { of, .. } => of,
            _ => continue,
        };
        if facts.seals.get(of).is_none_or(|fact| fact.seq > *seq) {
            found.push(violation("P3", *seq, format!("{of} was acknowledged and is not sealed")));
        }
    }
    found
}

/// P4: a record that was acknowledged is there for ever, or was given up through the log.
pub(super) fn p4_what_is_acknowledged_stays(evidence: &Evidence) -> Vec<Violation> {
    let logs = std::iter::once(&evidence.log).chain(&evidence.copies);
    logs.flat_map(|log| &log.violations).map(|(seq, what)| violation("P4", *seq, what.clone())).collect()
}

/// P7: every record is of the run that was opened last.
pub(super) fn p7_only_the_newest_run_writes(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut records: BTreeMap<Slot, (Seq, &Record)> = BTreeMap::new();
    for entry in evidence.log.durable() {
        if let Some((_, other)) = records.insert(entry.record.slot, (entry.seq, entry.record.as_ref()))
            && other.run != entry.record.run
        {
            let what = format!("two runs hold slot {}", entry.record.slot);
            found.push(violation("P7", entry.seq, what));
        }
    }
    let mut newest: Option<RunId> = None;
    for (seq, record) in records.into_values() {
        match record.body {
            Body::Open(_) => newest = Some(record.run),
            // A decision to accept or to fork is written on behalf of the run that will be opened with it.
            Body::Decision(_) => {}
            _ if newest != Some(record.run) => {
                let what = format!("run {} wrote record {} after another run was opened", record.run, record.slot);
                found.push(violation("P7", seq, what));
            }
            _ => {}
        }
    }
    found
}

/// P8: a run is opened on a destination that is not where the log says only under a recorded decision, and a decision is
/// used once.
pub(super) fn p8_a_strange_destination_needs_a_decision(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    let forks: BTreeSet<&str> = evidence
        .log
        .durable()
        .filter_map(|entry| match &entry.record.body {
            Body::Decision(decision) if matches!(decision.choice, Choice::Fork { .. }) => Some(decision.id.as_str()),
            _ => None,
        })
        .collect();
    let mut opens: Vec<_> = facts.runs.values().collect();
    opens.sort_by_key(|(_, slot, _)| *slot);
    let mut under_before = false;
    for (seq, slot, open) in opens {
        for id in &open.under {
            let uses = uses.entry(id).or_default();
            *uses += 1;
            if *uses > 1 && forks.contains(id.as_str()) {
                found.push(violation("P8", *seq, format!("decision `{id}` was acted upon twice")));
            }
        }
        if open.under.is_empty() {
            found.extend(strange(evidence, facts, (*seq, *slot), open, under_before));
        }
        under_before |= !open.under.is_empty();
    }
    found
}

/// What an `open` record without a decision overlooks.
fn strange(
    evidence: &Evidence,
    facts: &Facts,
    (seq, slot): (Seq, Slot),
    open: &tidegate_protocol::record::Open,
    under_before: bool,
) -> Vec<Violation> {
    let mut found = Vec::new();
    let committed = Facts::recorded_committed(&evidence.log, slot);
    for (sink, seen) in evidence.sinks.iter().filter(|(_, seen)| seen.kind.observe) {
        let Some(position) = open.observed.get(sink) else {
            found.push(violation("P8", seq, format!("a run was opened without a look at sink `{sink}`")));
            continue;
        };
        // What the destination showed, by its own account.
        let looks = seen.journal.entries.iter().filter(|entry| entry.seq < seq);
        let shown = looks.rev().any(|entry| matches!(&entry.did, Did::Observed { position: at } if at == position));
        if !shown {
            found.push(violation(
                "P8",
                seq,
                format!("the position that was recorded of sink `{sink}` was never shown"),
            ));
        }
        let sealed_before = |short: &str| {
            let sealed = facts.parts.get(&(sink.clone(), short.to_owned()))?;
            facts.seals.get(&sealed.of).map(|fact| fact.slot).filter(|at| *at < slot)
        };
        if let Some(part) = position.last.iter().find(|part| sealed_before(&part.short).is_none())
            && !under_before
        {
            let what = format!("sink `{sink}` holds {part}, which this log never sealed, and a run was opened");
            found.push(violation("P8", seq, what));
        }
        if under_before {
            continue;
        }
        // The newest epoch that the log calls committed: as a whole, or per participant.
        let mut newest: BTreeMap<u32, (Slot, String)> = BTreeMap::new();
        for (_, of) in committed.iter().filter(|(at, _)| at == sink) {
            let Some(fact) = facts.seals.get(of) else { continue };
            for part in fact.seal().and_then(|seal| seal.sinks.get(sink)).into_iter().flat_map(|cut| &cut.parts) {
                let Some(committable) = &part.committable else { continue };
                let key = if seen.kind.scope == AtomicScope::Sink { 0 } else { part.ordinal };
                let candidate = (fact.slot, committable.part.short.clone());
                let entry = newest.entry(key).or_insert_with(|| candidate.clone());
                *entry = entry.clone().max(candidate);
            }
        }
        for (at, short) in newest.into_values() {
            let reached = position.last.iter().any(|part| sealed_before(&part.short).is_some_and(|seen| seen >= at));
            if !reached {
                let what = format!("sink `{sink}` lacks {short}, which the log calls committed, and a run was opened");
                found.push(violation("P8", seq, what));
            }
        }
    }
    found
}

/// P11: progress that is published is that of an epoch which every sink has committed, and all before it.
pub(super) fn p11_progress_is_of_committed_epochs(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (seq, cut) in &evidence.published {
        let same = |fact: &&SealFact| {
            let sources = fact.seal().into_iter().flat_map(|seal| seal.sources.values());
            sources.into_iter().any(|sealed| equal(&sealed.partitions, &cut.partitions))
        };
        let sealed = facts.seals.values().filter(|fact| fact.seq < *seq).filter(same);
        let whole = |fact: &SealFact| {
            let Some(seal) = fact.seal() else { return false };
            let of = EpochRef { run: fact.record.run, epoch: seal.epoch };
            ancestors(facts, of).into_iter().all(|of| {
                let forked = facts.forked && !facts.line.contains(&of);
                forked
                    || evidence.sinks.keys().all(|sink| {
                        let excuses = facts.excuses(sink);
                        let lied = facts.parts_of(sink, of).any(|short| excuses.lied.contains(short));
                        lied || facts.ended_by(sink, of, *seq)
                    })
            })
        };
        if !sealed.into_iter().any(whole) {
            found.push(violation("P11", *seq, "progress was published that not every sink has committed".to_owned()));
        }
    }
    found
}

fn equal(one: &Positions, other: &Positions) -> bool {
    match (one.entries(), other.entries()) {
        (Ok(one), Ok(other)) => one.iter().eq(other.iter()),
        _ => false,
    }
}

/// An epoch and those that it descends from.
fn ancestors(facts: &Facts, of: EpochRef) -> Vec<EpochRef> {
    let mut line = Vec::new();
    let mut at = Some(of);
    while let Some(here) = at {
        let first = EpochRef { run: here.run, epoch: Epoch::ZERO };
        line.extend(facts.seals.range(first..=here).map(|(of, _)| *of));
        at = facts.runs.get(&here.run).and_then(|(_, _, open)| open.parent);
    }
    line
}

/// P12: in every seal, rows in are rows staged, refused and left out; and what is said to be staged is.
pub(super) fn p12_the_sum_of_rows_holds(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (of, fact) in &facts.seals {
        let Some(seal) = fact.seal() else { continue };
        let rows: u64 = seal.sources.values().map(|cut| cut.rows).sum();
        let bad: u64 = seal.sources.values().map(|cut| cut.dead_lettered).sum();
        // What a step holds back comes in a later epoch; that all of it comes is for P1 to see.
        let steps = seal.operators.values().flatten();
        let handed_on: u64 = if evidence.holds { steps.map(|cut| cut.rows_out).sum() } else { rows };
        let mut refused = 0;
        for (sink, cut) in &seal.sinks {
            let Some(seen) = evidence.sinks.get(sink) else { continue };
            let taken: u64 = cut.parts.iter().map(|part| part.rows_in).sum();
            if !seen.dead_letter {
                refused += cut.parts.iter().map(|part| part.rejected).sum::<u64>();
                if taken != handed_on {
                    let what = format!("{of}: {handed_on} rows were due and {taken} reached sink `{sink}`");
                    found.push(violation("P12", fact.seq, what));
                }
            }
            for part in &cut.parts {
                if part.rows + part.rejected + part.filtered != part.rows_in {
                    let what = format!("{of}: participant {} of sink `{sink}` does not add up", part.ordinal);
                    found.push(violation("P12", fact.seq, what));
                }
                let Some(committable) = &part.committable else { continue };
                let staged = facts.staged.get(&(sink.clone(), committable.part.short.clone())).map_or(0, Vec::len);
                if staged as u64 != part.rows {
                    let what = format!(
                        "{of}: {} counts {} rows at sink `{sink}`, and {staged} are staged",
                        committable.part, part.rows
                    );
                    found.push(violation("P12", fact.seq, what));
                }
            }
        }
        let letters =
            seal.sinks.iter().filter(|(sink, _)| evidence.sinks.get(*sink).is_some_and(|seen| seen.dead_letter));
        let letters: Vec<u64> = letters.map(|(_, cut)| cut.parts.iter().map(|part| part.rows_in).sum()).collect();
        if let [letters] = letters[..]
            && letters != bad + refused
        {
            let what = format!("{of}: {} rows were refused or bad, and {letters} letters were written", bad + refused);
            found.push(violation("P12", fact.seq, what));
        }
    }
    found
}
