//! What was done to destinations, against what the logs allowed at that time.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_protocol::guarantee::Delivery;
use tidegate_protocol::ids::{EpochRef, PartId, RunId, SinkId};
use tidegate_protocol::plugin::{External, Visibility};
use tidegate_protocol::record::{Body, EpochOutcome};

use super::facts::Facts;
use super::{Evidence, Violation};
use crate::dest::{Did, Entry};
use crate::world::Seq;

fn violation(promise: &'static str, at: Seq, what: String) -> Violation {
    Violation { promise, what, at: Some(at) }
}

/// P1: what is sealed is seen once, whatever line it is on, unless a person or the destination itself decided otherwise.
pub(super) fn p1_each_sealed_part_once(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    if !evidence.finished {
        return found;
    }
    for (sink, seen) in evidence.sinks.iter().filter(|(_, seen)| seen.kind.staging) {
        let excuses = facts.excuses(sink);
        let exactly = evidence.guarantee.sinks.get(sink).is_some_and(|p| p.delivery == Delivery::ExactlyOnce);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        seen.visible.iter().for_each(|(short, _)| *counts.entry(short).or_default() += 1);
        for ((at, short), sealed) in facts.parts.iter().filter(|((at, _), _)| at == sink) {
            let count = counts.get(short.as_str()).copied().unwrap_or(0);
            let forgiven = facts.given_up.contains_key(&(at.clone(), sealed.of))
                || excuses.lied.contains(short)
                || excuses.lost.contains(short)
                || (facts.forked
                    && !facts.line.contains(&sealed.of)
                    && !facts.marked.contains_key(&(at.clone(), short.clone())));
            let repeats = exactly && !excuses.markers_erased && !excuses.second_host && !excuses.repeated;
            if count == 0 && !forgiven && !excuses.second_host {
                let what = format!("{short} is sealed, and sink `{sink}` does not show it");
                found.push(violation("P1", sealed.seq, what));
            } else if count > 1 && repeats && !excuses.lied.contains(short) {
                let what = format!("{short} is sealed, and sink `{sink}` shows it {count} times");
                found.push(violation("P1", sealed.seq, what));
            }
        }
    }
    found
}

/// P2: nothing is seen before its seal, and nothing sealed is given back.
pub(super) fn p2_sealed_before_visible_and_never_abandoned(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (sink, seen) in &evidence.sinks {
        for entry in &seen.journal.entries {
            match &entry.did {
                Did::Visible { part, early: false, .. } | Did::Marked { part } => {
                    let sealed = facts.parts_anywhere.get(&(sink.clone(), part.short.clone()));
                    if sealed.is_none_or(|sealed| sealed.seq > entry.seq) {
                        let what = format!("{part} was made visible at sink `{sink}` before it was sealed");
                        found.push(violation("P2", entry.seq, what));
                    }
                }
                Did::CommitCalled { parts, config, .. } => {
                    let unsealed = parts.iter().find(|part| {
                        let sealed = facts.parts_anywhere.get(&(sink.clone(), part.short.clone()));
                        sealed.is_none_or(|sealed| sealed.seq > entry.seq)
                    });
                    if let Some(part) = unsealed {
                        let what = format!("commit of {part} was asked of sink `{sink}` before it was sealed");
                        found.push(violation("P2", entry.seq, what));
                    }
                    if parts.iter().filter_map(|part| sealed_config(facts, sink, part)).any(|sealed| sealed != config) {
                        let what = format!(
                            "commit at sink `{sink}` came with the configuration `{config}`, not with that of its seal"
                        );
                        found.push(violation("P2", entry.seq, what));
                    }
                }
                Did::Abandoned { .. } if facts.excuses(sink).second_host => {}
                // Also what only a copy of the log has sealed: somebody accepted what the destination shows.
                Did::Abandoned { short, was_committed, .. }
                    if *was_committed || facts.parts.contains_key(&(sink.clone(), short.clone())) =>
                {
                    let what = format!("{short} is sealed and was abandoned at sink `{sink}`");
                    found.push(violation("P2", entry.seq, what));
                }
                _ => {}
            }
        }
    }
    found
}

/// The configuration in the seal that holds a part, if the log that counts has one.
fn sealed_config<'a>(facts: &'a Facts, sink: &SinkId, part: &PartId) -> Option<&'a str> {
    let of = facts.parts.get(&(sink.clone(), part.short.clone()))?.of;
    facts.seals.get(&of)?.seal()?.sinks.get(sink).map(|cut| cut.binding.config.as_str())
}

/// P4: what the log and the run call committed was really done.
pub(super) fn p4_what_counts_as_committed_is_there(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    use tidegate_protocol::event::Notice;
    let mut said: Vec<(Seq, &SinkId, EpochRef)> = Vec::new();
    for entry in &evidence.log.entries {
        let committed = entry.record.outcomes.iter().filter(|outcome| outcome.outcome == EpochOutcome::Committed);
        said.extend(committed.map(|outcome| (entry.seq, &outcome.sink, outcome.of)));
    }
    for told in &evidence.told {
        said.extend(told.notices.iter().filter_map(|(seq, notice)| match notice {
            Notice::EpochCommitted { sink, of, .. } => Some((*seq, sink, *of)),
            _ => None,
        }));
    }
    let mut found = Vec::new();
    for (seq, sink, of) in said {
        let excuses = facts.excuses(sink);
        for short in facts.parts_of(sink, of) {
            let marked = facts.marked.get(&(sink.clone(), short.to_owned())).is_some_and(|since| *since < seq);
            if !marked && !excuses.lied.contains(short) {
                let what = format!("{of} counts as committed at sink `{sink}`, and {short} was not committed then");
                found.push(violation("P4", seq, what));
            }
        }
    }
    found
}

/// P5: what a checkpoint that can be restored names, and what is prepared, is not released; no run begins a part of another.
pub(super) fn p5_what_is_needed_is_not_released(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    let retired = retired_since(evidence);
    for (sink, seen) in evidence.sinks.iter().filter(|(sink, _)| !facts.excuses(sink).second_host) {
        let mut prepared = Prepared::new();
        for entry in &seen.journal.entries {
            match &entry.did {
                Did::Began { part } if entry.by.is_some_and(|by| by != part.run) => {
                    let what = format!("{part} of another run was begun at sink `{sink}`");
                    found.push(violation("P5", entry.seq, what));
                }
                Did::Staged { part, resources, .. } => {
                    prepared.insert(part.short.clone(), (part.run, resources.clone()));
                }
                // A run of before the copy releases what its own log has retired.
                Did::Released { .. } | Did::Abandoned { .. }
                    if facts.goes_on_elsewhere(evidence, entry.by, entry.seq) => {}
                Did::Released { resource, .. } => {
                    let gone = std::slice::from_ref(resource);
                    found.extend(needed(facts, &retired, (sink, &prepared), (entry, gone, "released")));
                }
                Did::Abandoned { resources, .. } => {
                    found.extend(needed(facts, &retired, (sink, &prepared), (entry, resources, "given back")));
                }
                _ => {}
            }
        }
    }
    found
}

/// What runs have prepared, by part.
type Prepared = BTreeMap<String, (RunId, Vec<External>)>;

/// Who still needed what was taken away.
fn needed(
    facts: &Facts,
    retired: &BTreeMap<EpochRef, Seq>,
    (sink, prepared): (&SinkId, &Prepared),
    (entry, gone, how): (&Entry, &[External], &str),
) -> Vec<Violation> {
    let mut found = Vec::new();
    for resource in gone {
        let is_it = |other: &External| other.kind == resource.kind && other.name == resource.name;
        for (of, fact) in facts.seals.iter().filter(|(_, fact)| fact.seq < entry.seq) {
            let cut = fact.seal().and_then(|seal| seal.sinks.get(sink));
            let names = cut.into_iter().flat_map(|cut| &cut.parts).flat_map(|part| &part.resources).any(is_it);
            let retired = retired.get(of).is_some_and(|since| *since < entry.seq);
            if names && !retired {
                let what = format!("{} was {how} at sink `{sink}`, and {of} can still be restored", resource.name);
                found.push(violation("P5", entry.seq, what));
            }
        }
        let open = prepared.iter().find(|(short, (run, resources))| {
            let sealed = facts.parts.get(&(sink.clone(), (*short).clone())).is_some_and(|s| s.seq < entry.seq);
            !sealed && entry.by == Some(*run) && resources.iter().any(is_it)
        });
        if let Some((short, _)) = open {
            let what = format!("{} was {how} at sink `{sink}` while {short} was prepared", resource.name);
            found.push(violation("P5", entry.seq, what));
        }
    }
    found
}

/// Since when checkpoints can be restored no more. A savepoint that was not forgotten by then holds its own.
fn retired_since(evidence: &Evidence) -> BTreeMap<EpochRef, Seq> {
    let mut retired = BTreeMap::new();
    let mut savepoints: BTreeMap<String, EpochRef> = BTreeMap::new();
    for entry in evidence.log.durable() {
        match &entry.record.body {
            Body::Savepoint(savepoint) => {
                savepoints.insert(savepoint.name.clone(), savepoint.of);
            }
            Body::Seal(seal) => {
                if let tidegate_protocol::record::CutReason::Savepoint(name) = &seal.reason {
                    savepoints.insert(name.clone(), EpochRef { run: entry.record.run, epoch: seal.epoch });
                }
            }
            Body::Forget(forget) => drop(savepoints.remove(&forget.name)),
            Body::Retire(retire) => {
                let held: BTreeSet<EpochRef> = savepoints.values().copied().collect();
                for of in retire.of.iter().filter(|of| !held.contains(of)) {
                    retired.entry(*of).or_insert(entry.seq);
                }
            }
            _ => {}
        }
    }
    retired
}

/// P6: whoever changes a destination has an `open` record in a log.
pub(super) fn p6_nothing_changes_before_the_run_is_decided(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (sink, seen) in &evidence.sinks {
        for entry in &seen.journal.entries {
            let changes = matches!(
                entry.did,
                Did::Began { .. }
                    | Did::Staged { .. }
                    | Did::CommitCalled { .. }
                    | Did::Fenced { .. }
                    | Did::Abandoned { .. }
                    | Did::Released { .. }
                    | Did::Visible { .. }
            );
            let Some(by) = entry.by.filter(|_| changes) else { continue };
            if facts.opened.get(&by).is_none_or(|opened| *opened > entry.seq) {
                let what = format!("run {by} changed sink `{sink}` before it was decided: {:?}", entry.did);
                found.push(violation("P6", entry.seq, what));
            }
        }
    }
    found
}

/// P7: what is fenced takes nothing from others, and a run that commits has fenced before.
pub(super) fn p7_older_runs_publish_nothing(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    for (sink, seen) in evidence.sinks.iter().filter(|(_, seen)| seen.kind.fence) {
        let mut owner: Option<RunId> = None;
        for entry in &seen.journal.entries {
            match &entry.did {
                Did::Fenced { .. } => owner = entry.by,
                // What it was before is what counts again.
                Did::WentBack { .. } => owner = None,
                Did::Marked { part } if entry.by.is_some() && owner.is_some() && entry.by != owner => {
                    let what = format!("a run that was superseded committed {part} at sink `{sink}`");
                    found.push(violation("P7", entry.seq, what));
                }
                Did::CommitCalled { .. } if entry.by.is_some() => {
                    let fenced = seen.journal.entries.iter().take_while(|other| other.seq < entry.seq);
                    let mut fenced = fenced.filter(|other| matches!(other.did, Did::Fenced { .. }));
                    if !fenced.any(|other| other.by == entry.by) {
                        let what = format!("a run committed at sink `{sink}` and has never fenced it");
                        found.push(violation("P7", entry.seq, what));
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// P9: rows are seen in steps as large as the guarantee says.
pub(super) fn p9_rows_are_seen_as_promised(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (sink, seen) in &evidence.sinks {
        let promised = evidence.guarantee.sinks.get(sink).map_or(Visibility::Early, |promised| promised.visibility);
        for entry in &seen.journal.entries {
            let Did::Visible { part, early, step, .. } = &entry.did else { continue };
            if *early && promised > Visibility::Early {
                found.push(violation("P9", entry.seq, format!("sink `{sink}` shows rows before they are sealed")));
            }
            let whole: BTreeSet<&str> = facts.parts_of(sink, part.epoch_ref()).collect();
            let shown: BTreeSet<&str> = step.iter().map(|part| part.short.as_str()).collect();
            if promised == Visibility::WholeEpoch && !whole.is_empty() && shown != whole {
                let what =
                    format!("sink `{sink}` shows {} of {} parts of {}", shown.len(), whole.len(), part.epoch_ref());
                found.push(violation("P9", entry.seq, what));
            }
        }
    }
    found
}
