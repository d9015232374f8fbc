//! A person's decision about an epoch that is blocked.

use tidegate_pipeline::clock::Clock;
use tidegate_protocol::history::{History, SinkEpochState};
use tidegate_protocol::ids::{EpochRef, SinkId};
use tidegate_protocol::record::{Body, Choice, Decision};
use tidegate_store::Log;

use crate::config::PipelineFile;
use crate::edits::{Finding, Verdict};
use crate::error::ServerError;
use crate::letters;
use crate::savepoint::append;
use crate::state::{self, State};

/// What to do with a blocked epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// Send the same commit again.
    Retry,
    /// Its rows will never be at this sink.
    GiveUp,
}

/// A decision that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveRequest {
    /// At which sink.
    pub sink: SinkId,
    /// The epoch's number.
    pub epoch: u64,
    /// What to do.
    pub choice: Resolution,
    /// Who decides.
    pub by: String,
    /// Id of the decision; `None` = made from sink, epoch and attempt.
    pub id: Option<String>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The epoch.
    pub of: EpochRef,
    /// The epoch's rows at this sink.
    pub rows: u64,
    /// Id of the decision.
    pub id: String,
    /// The very same decision was there before; nothing was changed.
    pub again: bool,
}

/// Whether this very epoch is blocked in the replay of the pipeline's dead letters.
fn is_blocked_in_replay(file: &PipelineFile, request: &ResolveRequest) -> bool {
    let state = letters::replay_state(file).ok().and_then(|replay| State::read(&replay).ok().flatten());
    state.is_some_and(|state| matches!(find(&state, request), Ok(Found::Blocked(..))))
}

/// Records a decision about a blocked epoch. The pipeline must not be running; its next start acts on it.
///
/// # Errors
/// The pipeline is running, the epoch is not blocked, or the log cannot be written.
pub fn resolve(file: &PipelineFile, request: &ResolveRequest, clock: &dyn Clock) -> Result<Resolved, ServerError> {
    // A look without the lock first, so that a mistyped name does not create a state directory.
    if State::read(file)?.is_none() {
        return Err(ServerError::Request {
            problem: format!("pipeline `{}` has no state yet, so nothing is blocked", file.pipeline.name),
            hints: vec![],
        });
    }
    let mut log = state::open_log(file)?;
    let state = State::of(log.read_all()?, &file.pipeline.name, &file.pipeline.state)?;
    let found = find(&state, request).map_err(|error| match error {
        ServerError::Request { problem, mut hints } if !file.replays && is_blocked_in_replay(file, request) => {
            hints.push("it is blocked in the replay of the dead letters: add --replay".to_owned());
            ServerError::Request { problem, hints }
        }
        error => error,
    });
    let (of, attempt) = match found? {
        Found::Blocked(of, attempt) => (of, attempt),
        Found::Decided(of, id) => {
            return Ok(Resolved { of, rows: rows_at(&state.history, &request.sink, of), id, again: true });
        }
    };
    let rows = rows_at(&state.history, &request.sink, of);
    let word = match request.choice {
        Resolution::Retry => "retry",
        Resolution::GiveUp => "give-up",
    };
    let id = request.id.clone().unwrap_or_else(|| format!("{word}-{}-{}-{attempt}", request.sink, of.epoch));
    if state.history.decisions().contains_key(&id) {
        return Err(ServerError::Request {
            problem: format!("the log has another decision with the id `{id}`"),
            hints: vec!["choose another --decision-id".to_owned()],
        });
    }
    let sink = request.sink.clone();
    let choice = match request.choice {
        Resolution::Retry => Choice::Retry { sink, of },
        Resolution::GiveUp => Choice::GiveUp { sink, of },
    };
    let decision = Decision { id: id.clone(), by: request.by.clone(), choice };
    append(&mut log, &state, Body::Decision(decision), clock)?;
    Ok(Resolved { of, rows, id, again: false })
}

/// The rows that a sealed epoch has at a sink.
pub(crate) fn rows_at(history: &History, sink: &SinkId, of: EpochRef) -> u64 {
    let parts = history.seal(of).and_then(|epoch| epoch.seal.sinks.get(sink)).map(|cut| &cut.parts);
    parts.into_iter().flatten().fold(0u64, |sum, part| sum.saturating_add(part.rows))
}

/// What was given up since the newest run began, with the number of rows: told by the run that goes on behind it.
pub(crate) fn given_up(history: &History) -> Vec<Finding> {
    let opened = history.runs().values().next_back().map(|node| node.slot);
    let since = history.decisions().values().filter(|decided| opened.is_none_or(|opened| decided.slot > opened));
    let given_up = since.filter_map(|decided| match &decided.decision.choice {
        Choice::GiveUp { sink, of } => Some((&decided.decision, sink, *of)),
        _ => None,
    });
    let words = given_up.map(|(Decision { id, by, .. }, sink, of)| {
        let rows = rows_at(history, sink, of);
        let epoch = of.epoch;
        format!("{rows} rows of epoch {epoch} at sink `{sink}` are given up by decision `{id}` of {by}")
    });
    words.map(|words| Finding::new(Verdict::Warning, words)).collect()
}

enum Found {
    Blocked(EpochRef, u32),
    Decided(EpochRef, String),
}

fn find(state: &State, request: &ResolveRequest) -> Result<Found, ServerError> {
    let history = &state.history;
    let sink = &request.sink;
    if !history.sinks().contains(sink) {
        let names: Vec<_> = history.sinks().iter().map(ToString::to_string).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        return Err(ServerError::Request {
            problem: format!("no checkpoint knows a sink `{sink}`"),
            hints: vec![crate::config::suggest(sink.as_str(), &names)],
        });
    }
    let of_number = || history.checkpoints().map(|sealed| sealed.of).filter(|of| of.epoch.0 == request.epoch);
    for of in of_number() {
        if let Some(SinkEpochState::Blocked(attempt, _)) = history.outcome(sink, of) {
            return Ok(Found::Blocked(of, *attempt));
        }
    }
    // The same request seen again: what it asked for is decided.
    let same = |choice: &Choice| match (request.choice, choice) {
        (Resolution::Retry, Choice::Retry { sink: at, of }) | (Resolution::GiveUp, Choice::GiveUp { sink: at, of }) => {
            (at == sink && of.epoch.0 == request.epoch).then_some(*of)
        }
        _ => None,
    };
    for (id, decided) in history.decisions() {
        if let Some(of) = same(&decided.decision.choice)
            && request.id.as_ref().is_none_or(|wanted| wanted == id)
        {
            return Ok(Found::Decided(of, id.clone()));
        }
    }
    let blocked: Vec<_> = history
        .checkpoints()
        .filter(|sealed| matches!(sealed.sinks.get(sink), Some(SinkEpochState::Blocked(..))))
        .map(|sealed| sealed.of.epoch.to_string())
        .collect();
    let hint = match blocked.is_empty() {
        true => format!("nothing is blocked at sink `{sink}`"),
        false => format!("blocked at sink `{sink}`: epoch {}", blocked.join(", ")),
    };
    let mut hints = vec![hint];
    let problem = match of_number().next().and_then(|of| history.outcome(sink, of)) {
        Some(state) => {
            if !state.ended() {
                hints.push("it is not committed yet: the next run commits it, or blocks it and says why".to_owned());
            }
            format!("epoch {} is not blocked at sink `{sink}`", request.epoch)
        }
        None => format!("epoch {} is not kept", request.epoch),
    };
    Err(ServerError::Request { problem, hints })
}
