//! How a host behaves: towards answers that it got or lost, savepoints, state of the epochs before, instances that died.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_protocol::ids::{EpochRef, KeyRange, PartId, RunId, SinkId, Slot};
use tidegate_protocol::plugin::{AtomicScope, Outcome, WriterState};
use tidegate_protocol::record::{Body, CutReason, PartCut};

use super::facts::{Facts, SealFact};
use super::{Evidence, Violation};
use crate::dest::{Did, Entry};
use crate::world::Seq;

fn violation(promise: &'static str, at: Seq, what: String) -> Violation {
    Violation { promise, what, at: Some(at) }
}

/// P1: who says that a pipeline is finished has committed everything.
pub(super) fn p1_finished_means_committed(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    // Another host may have gone on with a copy of the log.
    if !evidence.copies.is_empty() {
        return found;
    }
    for finished in evidence.told.iter().filter_map(|told| told.finished) {
        for (of, fact) in facts.seals.iter().filter(|(_, fact)| fact.seq < finished) {
            let left_behind = facts.forked && !facts.line.contains(of);
            let Some(seal) = fact.seal().filter(|_| !left_behind) else { continue };
            for sink in seal.sinks.keys().filter(|sink| evidence.sinks.contains_key(*sink)) {
                let excuses = facts.excuses(sink);
                let excused = |short: &str| excuses.lied.contains(short) || excuses.lost.contains(short);
                let excused = facts.parts_of(sink, *of).any(excused) || excuses.accepted;
                if !excused && !facts.ended_by(sink, *of, finished) {
                    let what = format!("finished, and {of} is not committed at sink `{sink}`");
                    found.push(violation("P1", finished, what));
                }
            }
        }
    }
    found
}

/// P3: a savepoint is confirmed when its seal is there, and not before.
pub(super) fn p3_savepoints_are_confirmed_when_sealed(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    if !evidence.copies.is_empty() {
        return Vec::new();
    }
    let confirmed = evidence.told.iter().flat_map(|told| &told.savepoints);
    let early = confirmed.filter(|(seq, of)| facts.seals.get(of).is_none_or(|fact| fact.seq > *seq));
    early.map(|(seq, of)| violation("P3", *seq, format!("a savepoint was confirmed before {of} was sealed"))).collect()
}

/// P6: what a step and a source know of event time goes through restarts as if there had been none.
pub(super) fn p6_time_does_not_go_back(facts: &Facts) -> Vec<Violation> {
    let times = |fact: &SealFact| {
        let seal = fact.seal()?;
        let steps = seal.operators.iter().map(|(id, cuts)| {
            let time = cuts.iter().map(|cut| cut.watermark).min().flatten();
            (format!("step `{id}`"), time)
        });
        let sources = seal.sources.iter().map(|(id, cut)| (format!("source `{id}`"), cut.watermark));
        Some(steps.chain(sources).collect::<BTreeMap<String, Option<i64>>>())
    };
    let mut found = Vec::new();
    for pair in facts.line.windows(2) {
        let (Some(before), Some(after)) = (facts.seals.get(&pair[0]), facts.seals.get(&pair[1])) else { continue };
        let (Some(old), Some(new)) = (times(before), times(after)) else { continue };
        for (who, old) in old {
            let new = new.get(&who).copied().unwrap_or(old);
            if new < old {
                let what = format!("the event time of {who} goes back from {old:?} to {new:?} in {}", pair[1]);
                found.push(violation("P6", after.seq, what));
            }
        }
    }
    found
}

/// P6: a writer gets back what the checkpoint keeps for its keys, and nothing else.
pub(super) fn p6_writers_get_back_what_was_kept(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (sink, seen) in &evidence.sinks {
        for Entry { seq, by, did } in &seen.journal.entries {
            let (Did::Restored { range, states }, Some(run)) = (did, by) else { continue };
            // Of a run that only a copy of the log knows nothing can be said.
            let Some((_, _, open)) = facts.runs.get(run) else { continue };
            let seal = open.parent.and_then(|parent| facts.seals.get(&parent)).and_then(SealFact::seal);
            let parts = seal.and_then(|seal| seal.sinks.get(sink)).map(|cut| &cut.parts[..]).unwrap_or_default();
            let owned = |part: &PartCut| part.range.shared(*range);
            let same =
                |one: &WriterState, other: &WriterState| (one.version, &one.body) == (other.version, &other.body);
            let holds = |all: &[WriterState], state: &WriterState, keys: KeyRange| {
                all.iter().any(|other| same(other, state) && other.range.shared(keys) == Some(keys))
            };
            for part in parts {
                let Some(owned) = owned(part) else { continue };
                let due = part.state.iter().filter_map(|state| Some((state, state.range.shared(owned)?)));
                if let Some((_, keys)) = due.clone().find(|(state, keys)| !holds(states, state, *keys)) {
                    let what = format!("run {run} opened a writer of sink `{sink}` without the state of {keys:?}");
                    found.push(violation("P6", *seq, what));
                }
                let given = states.iter().filter_map(|state| Some((state, state.range.shared(owned)?)));
                if let Some((_, keys)) = given.clone().find(|(state, keys)| !holds(&part.state, state, *keys)) {
                    let what = format!("run {run} opened a writer of sink `{sink}` with outdated state of {keys:?}");
                    found.push(violation("P6", *seq, what));
                }
            }
            if parts.is_empty() && !states.is_empty() {
                found.push(violation("P6", *seq, format!("run {run} gave sink `{sink}` state that nothing keeps")));
            }
        }
    }
    found
}

/// P6: a step gets back a state that it kept, byte by byte, or its pipeline does not start.
pub(super) fn p6_steps_get_back_what_they_kept(evidence: &Evidence) -> Vec<Violation> {
    let strange = evidence.strange_states.iter();
    strange.map(|seq| violation("P6", *seq, "a step was given a state that it never kept".to_owned())).collect()
}

/// P8: a commit names what the destination holds before it; without that it cannot see that it stands elsewhere.
pub(super) fn p8_a_commit_names_what_came_before(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (sink, seen) in &evidence.sinks {
        let excuses = facts.excuses(sink);
        // What a plugin lied about the host believes to be there, and names.
        if excuses.accepted || excuses.second_host || !excuses.lied.is_empty() {
            continue;
        }
        // Parts that certainly landed, since when, in the order of their seals.
        let landed = facts.marked.iter().filter(|((at, _), _)| at == sink).filter_map(|(key, seq)| {
            let of = facts.parts.get(key)?.of;
            Some((facts.seals.get(&of)?.slot, of, *seq))
        });
        let mut landed: Vec<(Slot, EpochRef, Seq)> = landed.collect();
        landed.sort_unstable();
        for entry in &seen.journal.entries {
            let Did::CommitCalled { parts, previous, .. } = &entry.did else { continue };
            let Some((part, at)) = parts.iter().find_map(|p| Some((p, facts.seals.get(&p.epoch_ref())?.slot))) else {
                continue;
            };
            // What a person gave up by then is not named any more.
            let given_up = |of| facts.given_up.get(&(sink.clone(), of)).is_some_and(|since| *since < entry.seq);
            let before = landed.iter().filter(|(slot, of, seq)| *slot < at && *seq < entry.seq && !given_up(*of));
            let before: Vec<_> = before.collect();
            if previous.is_empty() && !before.is_empty() {
                let what = format!("{part} was to be committed at sink `{sink}` as if nothing were there before it");
                found.push(violation("P8", entry.seq, what));
            }
            // What the same run committed before it knows for certain, of each participant the newest.
            let mut newest: BTreeMap<u32, &PartId> = BTreeMap::new();
            for (_, of, _) in before.iter().filter(|(_, of, _)| of.run == part.run) {
                let sealed = facts.seals.get(of).and_then(SealFact::seal).and_then(|seal| seal.sinks.get(sink));
                let sealed = sealed.into_iter().flat_map(|cut| &cut.parts).filter_map(|cut| cut.committable.as_ref());
                if seen.kind.scope == AtomicScope::Sink {
                    newest.clear();
                }
                newest.extend(sealed.map(|committable| (committable.part.ordinal, &committable.part)));
            }
            if let Some(missing) = newest.into_values().find(|part| !previous.contains(part)) {
                let what =
                    format!("the commit of {part} at sink `{sink}` does not name {missing}, which came before it");
                found.push(violation("P8", entry.seq, what));
            }
        }
    }
    found
}

/// P4: where a repeat is not without effect, a commit that landed is sent again only after an answer that it had not.
pub(super) fn p4_what_landed_is_not_sent_again_unasked(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for (sink, seen) in evidence.sinks.iter().filter(|(_, seen)| !seen.kind.idempotent) {
        if facts.excuses(sink).second_host {
            continue;
        }
        // By whom. An older run that wakes up late does not know of it, and is stopped by the fence.
        let mut landed: BTreeMap<&str, Option<RunId>> = BTreeMap::new();
        // Of which somebody was told that they had not landed, since they were sent last.
        let mut open: BTreeSet<&str> = BTreeSet::new();
        for Entry { seq, by, did } in &seen.journal.entries {
            match did {
                Did::Marked { part } => drop(landed.insert(&part.short, *by)),
                Did::Asked { answers } => {
                    for (part, _) in answers.iter().filter(|(_, answer)| *answer == Outcome::NotCommitted) {
                        open.insert(&part.short);
                        // Where that is a lie, nobody can know better until it lands again.
                        landed.remove(part.short.as_str());
                    }
                }
                Did::WentBack { .. } => landed.clear(),
                Did::Sent { parts } => {
                    let person = |part: &PartId| facts.retried.contains(&(sink.clone(), part.epoch_ref()));
                    let blind = |part: &&PartId| {
                        let short = part.short.as_str();
                        landed.get(short).is_some_and(|lander| by >= lander) && !open.contains(short) && !person(part)
                    };
                    if let Some(part) = parts.iter().find(blind) {
                        let what = format!("{part} had landed at sink `{sink}` and was sent again, unasked");
                        found.push(violation("P4", *seq, what));
                    }
                    for part in parts {
                        open.remove(part.short.as_str());
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// P4: what the log notes as released, or given back, is gone at the destination.
pub(super) fn p4_what_counts_as_released_is_gone(evidence: &Evidence, _facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in evidence.log.durable() {
        let Body::Released(released) = &entry.record.body else { continue };
        let Some(seen) = evidence.sinks.get(&released.sink) else { continue };
        let before: Vec<&Did> =
            seen.journal.entries.iter().filter(|done| done.seq < entry.seq).map(|done| &done.did).collect();
        let excused = |did: &&&Did| matches!(did, Did::WentBack { .. } | Did::Lied { .. });
        if before.iter().any(|did| excused(&did)) || !evidence.copies.is_empty() {
            continue;
        }
        for resource in &released.resources {
            let (mut existed, mut taken_away) = (false, false);
            for did in &before {
                // What a sleeper stages after that is found by the next look for orphans.
                taken_away |= match did {
                    Did::Released { resource: gone, .. } => gone.name == resource.name,
                    Did::Abandoned { short, resources, .. } => {
                        *short == resource.name || resources.iter().any(|gone| gone.name == resource.name)
                    }
                    _ => false,
                };
                match did {
                    Did::Staged { resources, .. } => {
                        existed |= resources.iter().any(|r| (&r.kind, &r.name) == (&resource.kind, &resource.name));
                    }
                    Did::Expired { part } if part.short == resource.name => existed = false,
                    _ => {}
                }
            }
            if existed && !taken_away {
                let what =
                    format!("{} counts as released at sink `{}`, where it still is", resource.name, released.sink);
                found.push(violation("P4", entry.seq, what));
            }
        }
    }
    found
}

/// P5: what the log notes as released, as long as it still does, is named by no seal: names are never used again.
pub(super) fn p5_released_names_are_not_used_again(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut released: BTreeMap<(&SinkId, &str, &str), Slot> = BTreeMap::new();
    for entry in evidence.log.durable() {
        match &entry.record.body {
            Body::Released(gone) => {
                let names = gone.resources.iter().map(|r| (&gone.sink, r.kind.as_str(), r.name.as_str()));
                released.extend(names.map(|name| (name, entry.record.slot)));
            }
            Body::Deleted(deleted) => {
                released.retain(|_, slot| !deleted.gone.iter().any(|range| range.contains(*slot)));
            }
            Body::Seal(seal) => {
                for (sink, cut) in &seal.sinks {
                    let mut named = cut.parts.iter().flat_map(|part| &part.resources);
                    if let Some(old) = named.find(|r| released.contains_key(&(sink, r.kind.as_str(), r.name.as_str())))
                    {
                        let what = format!("epoch {} names {} at sink `{sink}`, released before", seal.epoch, old.name);
                        found.push(violation("P5", entry.seq, what));
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// P5, P6: state of the epoch before stays until its keys have newer state, whatever the parallelism, and what it speaks
/// of stays named with it.
pub(super) fn p5_state_is_kept_with_what_it_speaks_of(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    for pair in facts.line.windows(2) {
        let (Some(before), Some(after)) = (facts.seals.get(&pair[0]), facts.seals.get(&pair[1])) else { continue };
        let (Some(old), Some(new)) = (before.seal(), after.seal()) else { continue };
        for (sink, _) in evidence.sinks.iter().filter(|(_, seen)| seen.kind.streams) {
            let parts = |seal: &'_ tidegate_protocol::record::Seal| -> Vec<PartCut> {
                seal.sinks.get(sink).map(|cut| cut.parts.clone()).unwrap_or_default()
            };
            let old = parts(old);
            for part in parts(new) {
                // What a participant keeps of others counts for its own keys.
                for old in old.iter().filter(|_| part.committable.is_none()) {
                    let keys = old.range.shared(part.range);
                    let due = old.state.iter().filter_map(|state| Some((state, state.range.shared(keys?)?)));
                    for (state, keys) in due {
                        let same = |kept: &WriterState| (kept.version, &kept.body) == (state.version, &state.body);
                        if !part.state.iter().any(|kept| same(kept) && kept.range.shared(keys) == Some(keys)) {
                            let what = format!("{} lost the state of {keys:?} at sink `{sink}`", pair[1]);
                            found.push(violation("P6", after.seq, what));
                        }
                    }
                }
                // The state of a stream is its name.
                for state in &part.state {
                    let named = part.resources.iter().any(|resource| resource.name.as_bytes() == state.body);
                    if !named {
                        let what = format!("{} keeps state at sink `{sink}` and not the stream of it", pair[1]);
                        found.push(violation("P5", after.seq, what));
                    }
                }
            }
        }
    }
    found
}

/// P6: a savepoint can be restored until it is given up by name.
pub(super) fn p6_savepoints_stay(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut savepoints: BTreeMap<String, EpochRef> = BTreeMap::new();
    for entry in evidence.log.durable() {
        match &entry.record.body {
            Body::Savepoint(savepoint) => {
                savepoints.insert(savepoint.name.clone(), savepoint.of);
            }
            Body::Seal(seal) => {
                if let CutReason::Savepoint(name) = &seal.reason {
                    savepoints.insert(name.clone(), EpochRef { run: entry.record.run, epoch: seal.epoch });
                }
            }
            Body::Forget(forget) => {
                savepoints.remove(&forget.name);
            }
            Body::Retire(retire) => {
                let held: BTreeSet<EpochRef> = savepoints.values().copied().collect();
                if let Some(of) = retire.of.iter().find(|of| held.contains(of)) {
                    found.push(violation("P6", entry.seq, format!("{of} is a savepoint and was retired")));
                }
            }
            _ => {}
        }
    }
    found
}

/// P10: an instance that trapped, or that did not come back within its time, is not called again.
pub(super) fn p10_dead_instances_rest(evidence: &Evidence) -> Vec<Violation> {
    let mut found = Vec::new();
    for (sink, seen) in &evidence.sinks {
        for entry in &seen.journal.entries {
            if let Did::Haunted { call } = &entry.did {
                found.push(violation("P10", entry.seq, format!("{call} of a dead instance at sink `{sink}`")));
            }
        }
    }
    found
}
