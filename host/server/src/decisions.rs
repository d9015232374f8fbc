//! What became of the decisions that a start was asked to act on.

use serde::Serialize;
use tidegate_protocol::event::{End, Mismatch, Refusal};
use tidegate_protocol::history::History;
use tidegate_protocol::ids::{EpochRef, SinkId};
use tidegate_protocol::record::Choice;

use crate::error::ServerError;
use crate::refusal::policy_name;
use crate::run::RunOptions;
use crate::state::State;

/// What became of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It was carried out and is in the log.
    Applied,
    /// The run was opened without it: nothing asked for it. Its id can still be used.
    NotNeeded,
    /// Its id was used by an earlier run, so it did nothing.
    UsedBefore,
    /// It was not carried out: the run did not get so far, or it does not fit what was found.
    NotApplied,
}

/// A decision that a start was asked to act on, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct DecisionReport {
    /// Its id in the log.
    pub id: String,
    /// What was asked for, as on the command line: `--accept out=accept-loss`, `--from 7`.
    pub asked: String,
    /// What became of it.
    pub fate: Fate,
    #[serde(skip)]
    sink: Option<SinkId>,
}

impl DecisionReport {
    /// One line for a person.
    pub fn words(&self) -> String {
        let Self { id, asked, .. } = self;
        match self.fate {
            Fate::Applied => format!("{asked}: applied, recorded as decision `{id}`"),
            Fate::NotNeeded => format!("{asked}: not needed; nothing was recorded, decision `{id}` can still be used"),
            Fate::UsedBefore => {
                format!(
                    "{asked}: decision `{id}` was used before and does nothing; for a new one give another --decision-id"
                )
            }
            Fate::NotApplied => format!("{asked}: not applied; decision `{id}` can still be used"),
        }
    }
}

/// Id of the decision to accept a mismatch at `sink`.
pub(crate) fn accept_id(options: &RunOptions, sink: &SinkId, policy: &str) -> String {
    match &options.decision_id {
        Some(id) => format!("{id}-{sink}"),
        None => format!("accept-{sink}-{policy}"),
    }
}

/// A wish to go back, as the log understands it.
pub(crate) struct GoBack {
    /// Id of the decision.
    pub(crate) id: String,
    /// Where to; `None` if it was carried out before: the checkpoint may be gone by now, and need not be there.
    pub(crate) to: Option<EpochRef>,
}

/// The decision to go back to `name`. Without an id of its own it names the epoch: a savepoint's name may mean another
/// one later, and is another wish then.
///
/// # Errors
/// There is no such checkpoint, or the id was used for another one.
pub(crate) fn go_back(options: &RunOptions, name: &str, state: &State) -> Result<GoBack, ServerError> {
    let decisions = state.history.decisions();
    let forked_to = |id: &str| match &decisions.get(id)?.decision.choice {
        Choice::Fork { from, .. } => Some(*from),
        _ => None,
    };
    let found = state.find(name);
    let id = match (&options.decision_id, &found) {
        (Some(id), _) => id.clone(),
        (None, Ok(of)) => format!("from-{name}-{}", of.epoch),
        // Gone, and so it was forgotten; perhaps after the run went back to it.
        (None, Err(_)) => {
            let start = format!("from-{name}-");
            let of_name = |id: &&String| id.strip_prefix(&start).is_some_and(|epoch| epoch.parse::<u64>().is_ok());
            let used = decisions.keys().filter(of_name).max_by_key(|id| decisions[*id].slot);
            used.cloned().unwrap_or_else(|| format!("from-{name}"))
        }
    };
    if !decisions.contains_key(&id) {
        return found.map(|of| GoBack { id, to: Some(of) });
    }
    let before = forked_to(&id);
    if before.is_some_and(|before| found.map_or(true, |of| of == before)) {
        return Ok(GoBack { id, to: None });
    }
    let what = before.map_or("something else".to_owned(), |of| format!("going back to {of}"));
    Err(ServerError::refused(
        format!("--from {name}: decision `{id}` was used before, for {what}; nothing was done"),
        vec!["give another --decision-id".to_owned()],
    ))
}

/// All that were asked for, as they stand before the start.
///
/// # Errors
/// As for [`go_back`].
pub(crate) fn asked(options: &RunOptions, state: &State) -> Result<Vec<DecisionReport>, ServerError> {
    let before = &state.history;
    let of = |id: String, asked: String, sink: Option<SinkId>| {
        let used = before.decisions().get(&id).is_some_and(|decided| decided.used_by.is_some());
        let fate = if used { Fate::UsedBefore } else { Fate::NotApplied };
        DecisionReport { id, asked, fate, sink }
    };
    let from = match &options.from {
        Some(name) => Some(of(go_back(options, name, state)?.id, format!("--from {name}"), None)),
        None => None,
    };
    let accepts = options.accept.iter().map(|(sink, policy)| {
        let policy = policy_name(*policy);
        of(accept_id(options, sink, policy), format!("--accept {sink}={policy}"), Some(sink.clone()))
    });
    Ok(from.into_iter().chain(accepts).collect())
}

/// Compares with the log after the run.
pub(crate) fn settle(asked: &mut [DecisionReport], before_runs: usize, after: &History) {
    let opened = after.runs().len() > before_runs;
    for decision in asked.iter_mut().filter(|decision| decision.fate == Fate::NotApplied) {
        if after.decisions().get(&decision.id).is_some_and(|decided| decided.used_by.is_some()) {
            decision.fate = Fate::Applied;
        } else if opened && decision.sink.is_some() {
            // A wish to go back always has something to do; where it did nothing, older epochs were in its way.
            decision.fate = Fate::NotNeeded;
        }
    }
}

/// Why the decisions did not help against this end, one hint each.
pub(crate) fn hints(asked: &[DecisionReport], end: &End) -> Vec<String> {
    let Some(at) = (match end {
        End::Refused(Refusal::Mismatch { sink, .. }) => Some(sink),
        _ => None,
    }) else {
        return Vec::new();
    };
    let of_sink = asked.iter().filter(|decision| decision.sink.as_ref() == Some(at));
    let hint = |decision: &DecisionReport| match decision.fate {
        Fate::UsedBefore => Some(format!(
            "decision `{}` was used before, for what was found then; to accept this too, add --decision-id with a new id",
            decision.id
        )),
        Fate::NotApplied => Some(format!("{} does not fit this and was not applied", decision.asked)),
        Fate::Applied | Fate::NotNeeded => None,
    };
    of_sink.filter_map(hint).collect()
}

/// Whether this end speaks of a checkpoint that the run would go back to, not of the log's newest.
pub(crate) fn goes_back(asked: &[DecisionReport], end: &End) -> bool {
    let ahead = matches!(end, End::Refused(Refusal::Mismatch { mismatch: Mismatch::Ahead { .. }, .. }));
    ahead && asked.iter().any(|decision| decision.sink.is_none() && decision.fate == Fate::NotApplied)
}
