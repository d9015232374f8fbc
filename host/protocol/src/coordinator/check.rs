//! What can be refused from the log and the graph alone, before any call.

use super::Settings;
use crate::event::{Graph, Refusal, SinkSpec};
use crate::history::{CheckpointState, History};
use crate::ids::{EpochRef, SinkId};
use crate::record::{Choice, Decision, MismatchPolicy};

/// A sink with unfinished epochs stays, under its name, with a plugin that can finish them.
pub(super) fn graph(graph: &Graph, history: &History) -> Result<(), Refusal> {
    for sink in history.sinks() {
        let unfinished = history.unfinished(&sink);
        let Some(first) = unfinished.first() else { continue };
        let Some(spec) = graph.sinks.get(&sink) else {
            return Err(Refusal::Graph(format!(
                "sink `{sink}` was removed or renamed while {} sealed and not committed there, from {first} on; put it \
                 back under its old name and run until it has committed, or give the epochs up with `resolve`",
                epochs(unfinished.len())
            )));
        };
        for of in unfinished {
            binding(&sink, spec, history, of)?;
        }
    }
    for (sink, spec) in &graph.sinks {
        if spec.participants == 0 {
            return Err(Refusal::Graph(format!("sink `{sink}` has no participants; give it at least one subtask")));
        }
    }
    Ok(())
}

fn epochs(count: usize) -> String {
    if count == 1 { "1 epoch is".to_owned() } else { format!("{count} epochs are") }
}

fn binding(sink: &SinkId, spec: &SinkSpec, history: &History, of: EpochRef) -> Result<(), Refusal> {
    let Some(cut) = history.seal(of).and_then(|epoch| epoch.seal.sinks.get(sink)) else { return Ok(()) };
    if cut.binding.grants != spec.binding.grants {
        return Err(Refusal::Graph(format!(
            "the grants of sink `{sink}` were changed while {of} is sealed and not committed there; restore them, run \
             until it has committed, then change them (then: {}; now: {})",
            cut.binding.grants, spec.binding.grants
        )));
    }
    if cut.binding.plugin == spec.binding.plugin {
        return Ok(());
    }
    let versions = cut.parts.iter().filter_map(|part| part.committable.as_ref()).map(|committable| committable.version);
    for version in versions {
        if !spec.committable_versions.contains(&version) {
            return Err(Refusal::Graph(format!(
                "the plugin of sink `{sink}` was changed from {} to {}, which cannot finish committables of version \
                 {version}, and {of} is sealed and not committed there; run the old plugin until it has committed, \
                 then change it",
                cut.binding.plugin_name, spec.binding.plugin_name
            )));
        }
    }
    Ok(())
}

/// A wish to go back that has not been carried out yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Fork {
    pub(super) id: String,
    pub(super) by: String,
    pub(super) from: EpochRef,
    pub(super) policy: MismatchPolicy,
}

/// The fork that the next run has to make: recorded since the newest run was opened, or asked for under an id that the
/// log does not know. An id that it knows does nothing any more.
pub(super) fn pending_fork(settings: &Settings, history: &History) -> Option<Fork> {
    let recorded = pending(history).rev().find_map(|decision| match &decision.choice {
        Choice::Fork { from, policy } => {
            Some(Fork { id: decision.id.clone(), by: decision.by.clone(), from: *from, policy: *policy })
        }
        _ => None,
    });
    let asked = settings.fork.as_ref().filter(|(id, ..)| !history.decisions().contains_key(id));
    recorded.or(asked.map(|(id, by, from, policy)| Fork {
        id: id.clone(),
        by: by.clone(),
        from: *from,
        policy: *policy,
    }))
}

/// The policy for a mismatch at `sink`, if there is one that was not used before.
pub(super) fn pending_policy(settings: &Settings, history: &History, sink: &SinkId) -> Option<Decision> {
    let for_sink = |decision: &&Decision| matches!(&decision.choice, Choice::Accept { sink: at, .. } if at == sink);
    let recorded = pending(history).rev().find(for_sink).cloned();
    let asked = settings.mismatch.get(sink).filter(|(id, ..)| !history.decisions().contains_key(id));
    let asked = asked.map(|(id, by, policy)| Decision {
        id: id.clone(),
        by: by.clone(),
        choice: Choice::Accept { sink: sink.clone(), policy: *policy },
    });
    recorded.or(asked)
}

fn pending(history: &History) -> impl DoubleEndedIterator<Item = &Decision> {
    let opened = history.runs().values().next_back().map(|node| node.slot);
    let mut since: Vec<_> = history
        .decisions()
        .values()
        .filter(|decided| decided.used_by.is_none() && opened.is_none_or(|opened| decided.slot > opened))
        .collect();
    since.sort_by_key(|decided| decided.slot);
    since.into_iter().map(|decided| &decided.decision)
}

/// Under one id there is one decision: the log would take the second one for the first, seen again.
pub(super) fn decision_ids(settings: &Settings) -> Result<(), Refusal> {
    let accepted = settings.mismatch.values().map(|(id, ..)| id);
    let mut ids: Vec<&String> = accepted.chain(settings.fork.iter().map(|(id, ..)| id)).collect();
    ids.sort();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Refusal::Graph(format!(
            "decision id `{}` is given to two decisions; give each an id of its own",
            pair[0]
        ))),
        None => Ok(()),
    }
}

/// The fork point must be there and restorable.
pub(super) fn fork(settings: &Settings, history: &History) -> Result<(), Refusal> {
    let Some(fork) = pending_fork(settings, history) else { return Ok(()) };
    match history.seal(fork.from) {
        Some(epoch) if epoch.checkpoint == CheckpointState::Retained => Ok(()),
        Some(_) => Err(Refusal::Fork(format!(
            "{} is retired: what it needs at the destinations may be gone; choose a checkpoint that is retained",
            fork.from
        ))),
        None => Err(Refusal::Fork(format!(
            "{} is not in the log: it was never sealed, or was deleted; choose one of those that are listed",
            fork.from
        ))),
    }
}
