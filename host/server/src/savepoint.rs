//! Savepoints: checkpoints that a person owns. Of a pipeline that is not running they are written into its log, a running
//! one is asked.

use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_pipeline::clock::Clock;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::history::{CheckpointState, History};
use tidegate_protocol::ids::{self, EpochRef};
use tidegate_protocol::record::{Body, Forget, Record, Savepoint};
use tidegate_store::{LocalLog, Log, StoreError};

use crate::config::PipelineFile;
use crate::control::{self, Ask, Asked, Said, Why};
use crate::error::ServerError;
use crate::state::{self, State};

/// Between two looks at a pipeline that is just starting or ending.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A row of `savepoint list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SavepointView {
    /// Its name.
    pub name: String,
    /// The epoch's number.
    pub epoch: u64,
    /// The run that sealed it.
    pub run: String,
    /// Unix milliseconds.
    pub sealed_at: Option<u64>,
    /// The next run descends from it, or from an epoch behind it.
    pub on_newest_line: bool,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SavepointDone {
    /// The savepoint's name.
    pub name: String,
    /// The epoch's number.
    pub epoch: u64,
    /// The run that sealed it.
    pub run: String,
    /// The pipeline was running, and did it itself.
    pub running: bool,
}

impl SavepointDone {
    fn of(name: &str, of: EpochRef, running: bool) -> Self {
        Self { name: name.to_owned(), epoch: of.epoch.0, run: of.run.to_string(), running }
    }
}

impl State {
    /// All savepoints, by name.
    pub fn savepoint_list(&self) -> Vec<SavepointView> {
        let history = &self.history;
        let view = |(name, of): (&String, &EpochRef)| SavepointView {
            name: name.clone(),
            epoch: of.epoch.0,
            run: of.run.to_string(),
            sealed_at: history.seal(*of).map(|sealed| sealed.sealed_at),
            on_newest_line: history.newest_seal().is_some_and(|tip| history.descends(tip, *of)),
        };
        history.savepoints().iter().map(view).collect()
    }
}

/// Makes a savepoint: of the newest checkpoint if the pipeline is not running, else of an epoch that is cut for it.
/// Blocks until it is durable, at most about `patience`.
///
/// # Errors
/// The name is taken or not allowed, there is nothing to save, or it was not done in time; says what to do.
pub fn savepoint_create(
    file: &PipelineFile,
    name: &str,
    patience: Duration,
    clock: &dyn Clock,
) -> Result<SavepointDone, ServerError> {
    legal(name)?;
    let asks = Asks { file, name, ask: Ask::SavepointCreate { name: name.to_owned() }, patience };
    asks.carry_out(clock, |history| {
        if let Some(of) = history.savepoints().get(name) {
            return Err(taken(name, Some(*of)));
        }
        let newest = history.newest_seal().and_then(|of| history.seal(of));
        match newest.filter(|sealed| sealed.checkpoint == CheckpointState::Retained) {
            Some(sealed) => Ok((sealed.of, Body::Savepoint(Savepoint { name: name.to_owned(), of: sealed.of }))),
            None => Err(nothing_yet(file)),
        }
    })
}

/// Gives a savepoint up: its checkpoint is subject to retention again.
///
/// # Errors
/// There is no such savepoint, or it was not done in time; says what to do.
pub fn savepoint_forget(
    file: &PipelineFile,
    name: &str,
    patience: Duration,
    clock: &dyn Clock,
) -> Result<SavepointDone, ServerError> {
    let asks = Asks { file, name, ask: Ask::SavepointForget { name: name.to_owned() }, patience };
    asks.carry_out(clock, |history| match history.savepoints().get(name) {
        Some(of) => Ok((*of, Body::Forget(Forget { name: name.to_owned() }))),
        None => Err(unknown(name, history)),
    })
}

fn legal(name: &str) -> Result<(), ServerError> {
    ids::check_savepoint_name(name).map_err(|error| ServerError::Request {
        problem: format!("a savepoint cannot be called so: {error}"),
        hints: vec!["an epoch's number is no name, so that `--from` and `checkpoint show` can take both".to_owned()],
    })
}

fn taken(name: &str, of: Option<EpochRef>) -> ServerError {
    let problem = match of {
        Some(of) => format!("there is a savepoint `{name}` already, of epoch {}", of.epoch),
        None => format!("a savepoint `{name}` is being made already"),
    };
    let hint = "choose another name, or give the old one up with `tidegate savepoint forget`".to_owned();
    ServerError::Request { problem, hints: vec![hint] }
}

fn unknown(name: &str, history: &History) -> ServerError {
    let names: Vec<_> = history.savepoints().keys().map(String::as_str).collect();
    let hints =
        if names.is_empty() { vec!["there are none".to_owned()] } else { vec![crate::config::suggest(name, &names)] };
    ServerError::Request { problem: format!("there is no savepoint `{name}`"), hints }
}

fn nothing_yet(file: &PipelineFile) -> ServerError {
    ServerError::Request {
        problem: format!("pipeline `{}` has no checkpoint yet, so there is nothing to save", file.pipeline.name),
        hints: vec!["run it first".to_owned()],
    }
}

/// A request that a running pipeline carries out, or this process does.
struct Asks<'a> {
    file: &'a PipelineFile,
    name: &'a str,
    ask: Ask,
    patience: Duration,
}

impl Asks<'_> {
    fn carry_out(
        &self,
        clock: &dyn Clock,
        body: impl Fn(&History) -> Result<(EpochRef, Body), ServerError>,
    ) -> Result<SavepointDone, ServerError> {
        // A look without the lock first, so that a mistyped path does not create a state directory.
        let Some(before) = State::read(self.file)? else { return Err(nothing_yet(self.file)) };
        let deadline = Instant::now() + self.patience;
        loop {
            let held = match state::try_open_log(self.file) {
                Ok(log) => return self.write(log, clock, &body),
                Err(ServerError::Store(error @ StoreError::Locked { .. })) => error,
                Err(error) => return Err(error),
            };
            let asked = control::ask(&self.file.pipeline.state, &self.ask, deadline)
                .map_err(|error| ServerError::Host(format!("cannot speak to the running pipeline: {error}")))?;
            match asked {
                Asked::Answered(Said::Done { epoch }) => return Ok(SavepointDone::of(self.name, epoch, true)),
                Asked::Answered(Said::Refused { why: Why::RunOver, .. }) | Asked::Lost => {
                    if let Some(of) = self.done_meanwhile(&before)? {
                        return Ok(SavepointDone::of(self.name, of, true));
                    }
                }
                Asked::Answered(Said::Refused { why, message, epoch }) => return Err(self.refused(why, message, epoch)),
                Asked::Silent | Asked::Answered(Said::Quarantine { .. }) => return Err(self.silent()),
                Asked::Nobody => {}
            }
            // It is just starting or ending: soon it listens, or the lock is free.
            if Instant::now() >= deadline {
                return Err(ServerError::Store(held));
            }
            #[expect(clippy::disallowed_methods, reason = "a command that waits for another process has no runtime")]
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn write(
        &self,
        mut log: LocalLog,
        clock: &dyn Clock,
        body: impl Fn(&History) -> Result<(EpochRef, Body), ServerError>,
    ) -> Result<SavepointDone, ServerError> {
        let section = &self.file.pipeline;
        let state = State::of(log.read_all()?, &section.name, &section.state)?;
        let (of, body) = body(&state.history)?;
        append(&mut log, &state, body, clock)?;
        Ok(SavepointDone::of(self.name, of, false))
    }

    /// The run ended while it was asked. Whether its record got into the log is told by the log.
    fn done_meanwhile(&self, before: &State) -> Result<Option<EpochRef>, ServerError> {
        let Some(now) = State::read(self.file)? else { return Ok(None) };
        let (was, is) = (before.history.savepoints().get(self.name), now.history.savepoints().get(self.name));
        Ok(match (&self.ask, was, is) {
            (Ask::SavepointCreate { .. }, None, Some(of)) | (Ask::SavepointForget { .. }, Some(of), None) => Some(*of),
            _ => None,
        })
    }

    fn refused(&self, why: Why, message: String, epoch: Option<EpochRef>) -> ServerError {
        match why {
            Why::NameTaken => taken(self.name, epoch),
            Why::UnknownSavepoint => match State::read(self.file) {
                Ok(Some(state)) => unknown(self.name, &state.history),
                _ => ServerError::Request { problem: message, hints: vec![] },
            },
            Why::IllegalName => ServerError::Request { problem: message, hints: vec![] },
            Why::Withdrawn => self.too_late(),
            Why::Request => ServerError::Host(format!("{message}: it runs another version of tidegate")),
            _ => ServerError::Host(message),
        }
    }

    fn silent(&self) -> ServerError {
        ServerError::Host(format!(
            "the running pipeline did not answer within {} s, so it is not known whether `{}` was done; it may be stopped \
             (SIGSTOP) or overloaded; look with `tidegate savepoint list` when it goes on",
            self.patience.as_secs_f64(),
            self.name
        ))
    }

    fn too_late(&self) -> ServerError {
        ServerError::Host(format!(
            "`{}` was not done within {} s and has been withdrawn: the pipeline waits for something, see `tidegate \
             checkpoint list` for sealed epochs that a sink has not committed; give it more time with --timeout",
            self.name,
            self.patience.as_secs_f64()
        ))
    }
}

/// Adds a record in the name of the newest run. The caller holds the lock, so that run is over.
pub(crate) fn append(log: &mut LocalLog, state: &State, body: Body, clock: &dyn Clock) -> Result<(), ServerError> {
    let run = state.history.newest_run().ok_or_else(|| ServerError::Host("the log has no run".to_owned()))?;
    let slot = state.history.next_slot();
    let record = Record { slot, run, written_at: clock.now_ms(), outcomes: Vec::new(), body };
    // The history is asked first, so that nothing enters the log that would make it unreadable.
    state.history.clone().apply(&record)?;
    match log.append(&record) {
        AppendResult::Created => Ok(()),
        AppendResult::Taken(_) => Err(ServerError::Host(format!("slot {slot} was taken by another process"))),
        AppendResult::Unknown(why) => Err(ServerError::Host(format!(
            "it is not known whether it was recorded: {why}; look with `tidegate checkpoint list`"
        ))),
        AppendResult::NotWritten { message, .. } => Err(ServerError::Host(format!("it was not recorded: {message}"))),
    }
}
