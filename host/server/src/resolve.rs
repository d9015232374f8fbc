//! A person's decision about an epoch that is blocked.

use tidegate_pipeline::clock::Clock;
use tidegate_protocol::history::SinkEpochState;
use tidegate_protocol::ids::{EpochRef, SinkId};
use tidegate_protocol::record::{Body, Choice, Decision};
use tidegate_store::Log;

use crate::config::PipelineFile;
use crate::error::ServerError;
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
    /// Id of the decision.
    pub id: String,
    /// The very same decision was there before; nothing was changed.
    pub again: bool,
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
    let (of, attempt) = match find(&state, request)? {
        Found::Blocked(of, attempt) => (of, attempt),
        Found::Decided(of, id) => return Ok(Resolved { of, id, again: true }),
    };
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
    Ok(Resolved { of, id, again: false })
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
    let problem = match of_number().next().and_then(|of| history.outcome(sink, of)) {
        Some(_) => format!("epoch {} is not blocked at sink `{sink}`", request.epoch),
        None => format!("epoch {} is not kept", request.epoch),
    };
    Err(ServerError::Request { problem, hints: vec![hint] })
}
