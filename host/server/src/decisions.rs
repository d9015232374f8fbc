//! What became of the decisions that a start was asked to act on.

use serde::Serialize;
use tidegate_protocol::event::{End, Mismatch, Refusal};
use tidegate_protocol::history::History;
use tidegate_protocol::ids::SinkId;

use crate::refusal::policy_name;
use crate::run::RunOptions;

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

/// Id of the decision to go back to `name`.
pub(crate) fn from_id(options: &RunOptions, name: &str) -> String {
    options.decision_id.clone().unwrap_or_else(|| format!("from-{name}"))
}

/// All that were asked for, as they stand before the start.
pub(crate) fn asked(options: &RunOptions, before: &History) -> Vec<DecisionReport> {
    let of = |id: String, asked: String, sink: Option<SinkId>| {
        let used = before.decisions().get(&id).is_some_and(|decided| decided.used_by.is_some());
        let fate = if used { Fate::UsedBefore } else { Fate::NotApplied };
        DecisionReport { id, asked, fate, sink }
    };
    let from = options.from.iter().map(|name| of(from_id(options, name), format!("--from {name}"), None));
    let accepts = options.accept.iter().map(|(sink, policy)| {
        let policy = policy_name(*policy);
        of(accept_id(options, sink, policy), format!("--accept {sink}={policy}"), Some(sink.clone()))
    });
    from.chain(accepts).collect()
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
