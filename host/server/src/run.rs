//! Running an assembled pipeline on its log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use tidegate_pipeline::clock::{Clock, SystemClock};
use tidegate_pipeline::faults::LosesCommitAnswers;
use tidegate_pipeline::observe::{Observer, Progress, Silent};
use tidegate_pipeline::{Blocking, Control, Env};
use tidegate_protocol::coordinator;
use tidegate_protocol::event::{End, Notice, TaskFailure};
use tidegate_protocol::ids::{Nonce, SinkId};
use tidegate_protocol::record::MismatchPolicy;
use tidegate_store::Log;

use crate::assemble::Assembled;
use crate::config::PipelineFile;
use crate::control::Listening;
use crate::decisions::{self, DecisionReport};
use crate::edits::{self, Finding};
use crate::error::{ErrorKind, ServerError};
use crate::faults::{Directories, Telling};
use crate::overlaps;
use crate::quarantine::Plugins;
use crate::refusal::{Named, end_words};
use crate::resolve;
use crate::state::{self, State};
use crate::validate;

/// How to run a pipeline. The default runs it on the machine's clock, without decisions and unobserved.
#[derive(Clone)]
pub struct RunOptions {
    /// Go back to this checkpoint, once: a savepoint's name or an epoch's number.
    pub from: Option<String>,
    /// Mismatches between log and destination that are accepted, once.
    pub accept: BTreeMap<SinkId, MismatchPolicy>,
    /// Id of these decisions; `None` = made from the request. An id that the log knows does nothing.
    pub decision_id: Option<String>,
    /// Who decides.
    pub by: String,
    /// Looks on.
    pub observer: Arc<dyn Observer>,
    /// Asks the run to stop.
    pub control: Control,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// For rehearsals: the answer of every so-manieth commit is lost; 0 = none.
    pub lose_commit_answers: u64,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            from: None,
            accept: BTreeMap::new(),
            decision_id: None,
            by: "unnamed".to_owned(),
            observer: Arc::new(Silent),
            control: Control::default(),
            clock: Arc::new(SystemClock),
            lose_commit_answers: 0,
        }
    }
}

/// How a pipeline came to its end.
#[derive(Debug)]
pub struct Report {
    /// Why it ended.
    pub end: End,
    /// Counters of this process.
    pub progress: Progress,
    /// It had been finished before this start.
    pub was_finished: bool,
    /// The decisions that were asked for, and what became of them.
    pub decisions: Vec<DecisionReport>,
    /// It failed, and starting again is no use: what to do about it.
    pub no_use: Option<ErrorKind>,
    /// As that is told when it is found before a run.
    told_before: Option<String>,
    named: Named,
    directories: Directories,
}

impl Report {
    /// One line how it ended, then how to go on.
    pub fn words(&self) -> (String, Vec<String>) {
        let goes_back = decisions::goes_back(&self.decisions, &self.end);
        let (message, mut hints) = end_words(&self.end, &self.named, &self.directories, goes_back);
        let message = self.told_before.clone().unwrap_or(message);
        hints.extend(decisions::hints(&self.decisions, &self.end));
        (message, hints)
    }

    /// A finished pipeline was started again and there was nothing to do.
    pub fn nothing_new(&self) -> bool {
        let rows = self.progress.rows_read.saturating_add(self.progress.rows_dead_lettered);
        self.was_finished && self.end == End::Finished && rows == 0
    }
}

/// A pipeline that owns its log and may run: its file fits its state.
pub struct Ready {
    assembled: Assembled,
    log: Box<dyn Log>,
    state: State,
    /// What has changed since the last run, and what somebody should know. Nothing of it is refused.
    pub findings: Vec<Finding>,
}

impl Assembled {
    /// Takes the log's lock and compares file and state. Blocks.
    ///
    /// # Errors
    /// The guarantee is too weak, somebody else owns the log, it cannot be read, or the file does not fit it.
    pub fn open(self) -> Result<Ready, ServerError> {
        self.open_for(&RunOptions::default())
    }

    /// As [`Assembled::open`], for a run with these options: one that goes back is compared with the checkpoint that it
    /// goes back to. Blocks.
    ///
    /// # Errors
    /// As for [`Assembled::open`], and there is no such checkpoint.
    pub fn open_for(self, options: &RunOptions) -> Result<Ready, ServerError> {
        self.require_guarantee()?;
        let section = &self.file.pipeline;
        let mut log = state::open_log(&self.file)?;
        let state = State::of(log.read_all()?, &section.name, &section.state)?;
        let back = options.from.as_deref().map(|name| decisions::go_back(options, name, &state)).transpose()?;
        let mut findings = validate::refuse(validate::compare(&self, &state, back.and_then(|back| back.to)))?;
        findings.extend(resolve::given_up(&state.history));
        findings.extend(overlaps::findings(&self.file));
        Ok(Ready { assembled: self, log: Box::new(log), state, findings })
    }
}

impl Ready {
    /// Where the pipeline stood before this start.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The decisions that `options` ask for, as they stand before the start: used before, or not applied yet.
    ///
    /// # Errors
    /// The checkpoint to go back to is not there, or the id was used for another one.
    pub fn decisions(&self, options: &RunOptions) -> Result<Vec<DecisionReport>, ServerError> {
        decisions::asked(options, &self.state)
    }

    /// Runs the pipeline until it is finished, stopped, refused, blocked or failed.
    ///
    /// # Errors
    /// It could not be started. What happens later is told by [`Report::end`].
    pub async fn run(self, options: RunOptions) -> Result<Report, ServerError> {
        let Ready { assembled, log, state, .. } = self;
        let was_finished = state.history.finished().is_some();
        let protocol = protocol_settings(&assembled.file, &state, &options)?;
        let mut decisions = decisions::asked(&options, &state)?;
        let runs_before = state.history.runs().len();
        let grants = edits::grants_of_unfinished(&state.history);
        drop(state);
        let directories = Directories::of(&assembled.file);
        let every = options.lose_commit_answers;
        let pipeline = assembled.pipeline(protocol, &grants, |plugin| match every {
            0 => plugin,
            every => Arc::new(LosesCommitAnswers::new(plugin, every)),
        })?;
        let plugins = Plugins::of(&assembled);
        let state_dir = &assembled.file.pipeline.state;
        let listening = match Listening::begin(state_dir, options.control.clone(), plugins.clone()) {
            Ok(listening) => Some(listening),
            Err(error) => {
                let warning =
                    format!("nothing can be asked of the pipeline while it runs, no savepoints for example: {error}");
                options.observer.notice(&Notice::Warning(warning));
                None
            }
        };
        let _told = plugins.tell(&options.observer);
        let env = Env {
            clock: options.clock,
            nonce: nonces()?,
            control: options.control,
            observer: Arc::new(Telling { directories: directories.clone(), plugins, to: options.observer }),
            blocking: Blocking::Threads,
        };
        let (report, log) = tidegate_pipeline::run_keeping(pipeline, log, env).await.map_err(ServerError::Run)?;
        if let Some(listening) = listening {
            listening.end().await;
        }
        drop(log);
        let failure = match &report.end {
            End::Failed(failure) => Some(failure.clone()),
            _ => None,
        };
        let named = Named::of(&assembled.file);
        let (mut no_use, mut told_before) = (None, None);
        if !decisions.is_empty() || failure.is_some() {
            let look_back = move || {
                // The log was read a moment ago; where it cannot be any more, the run's own end is what counts.
                let state = State::read(&assembled.file).ok().flatten();
                if let Some(state) = &state {
                    decisions::settle(&mut decisions, runs_before, &state.history);
                }
                let found = failure.and_then(|failure| seen_before(&assembled, state.as_ref(), &failure));
                (decisions, found)
            };
            let found;
            (decisions, found) = tokio::task::spawn_blocking(look_back)
                .await
                .map_err(|error| ServerError::Host(format!("looking at the log after the run: {error}")))?;
            if let Some((kind, words)) = found {
                (no_use, told_before) = (Some(kind), words);
            }
        }
        let (end, progress) = (report.end, report.progress);
        Ok(Report { end, progress, was_finished, decisions, no_use, told_before, named, directories })
    }
}

/// What looking before a run says about why it failed, for what starting again does not mend.
fn seen_before(
    assembled: &Assembled,
    state: Option<&State>,
    failure: &TaskFailure,
) -> Option<(ErrorKind, Option<String>)> {
    let found = match failure {
        TaskFailure::Source { source, permanent: true, .. } => {
            let error = validate::position(assembled, state, source).err();
            error.map(|error| ServerError::of_source(&assembled.file, source, error))
        }
        TaskFailure::Shape { .. } => {
            let (known, _) = validate::known_columns(assembled, state);
            let error = assembled.check_columns(&known).err();
            return Some((ErrorKind::Config, error.map(|error| error.to_string())));
        }
        // Only an edit of the input or of `on-bad-row` helps.
        TaskFailure::BadRow { .. } => None,
        TaskFailure::Source { .. } | TaskFailure::Plugin(..) | TaskFailure::Host(_) => return None,
    };
    // What cannot be seen from its beginning is in the middle of the input.
    Some(found.map_or((ErrorKind::Refused, None), |error| (error.kind(), Some(error.to_string()))))
}

/// Random parts for all runs of this process: drawn once, so that a failure to draw shows before anything begins.
fn nonces() -> Result<Box<dyn Fn() -> Nonce + Send + Sync>, ServerError> {
    let mut seed = [0u8; 32];
    getrandom::fill(&mut seed).map_err(|error| ServerError::Host(format!("no random numbers: {error}")))?;
    let count = AtomicU64::new(0);
    Ok(Box::new(move || {
        let mut digest = Sha256::new_with_prefix(seed);
        digest.update(count.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let digest = digest.finalize();
        let mut nonce = [0u8; 10];
        nonce.copy_from_slice(&digest[..10]);
        Nonce(nonce)
    }))
}

fn protocol_settings(
    file: &PipelineFile,
    state: &State,
    options: &RunOptions,
) -> Result<coordinator::Settings, ServerError> {
    let checkpoint = &file.checkpoint;
    let mut settings = coordinator::Settings {
        max_waiting: checkpoint.max_waiting,
        commit_tries: checkpoint.commit_tries,
        retain_count: checkpoint.retain_count,
        retain_age_ms: checkpoint.retain_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        product: env!("CARGO_PKG_VERSION").to_owned(),
        ..coordinator::Settings::default()
    };
    let known: BTreeMap<_, _> = file.all_sinks().map(|(id, ..)| (id, ())).collect();
    for (sink, policy) in &options.accept {
        if !known.contains_key(sink) {
            let names: Vec<_> = known.keys().map(SinkId::as_str).collect();
            return Err(ServerError::Request {
                problem: format!("the file has no sink `{sink}` for which a policy could be accepted"),
                hints: vec![crate::config::suggest(sink.as_str(), &names)],
            });
        }
        let id = decisions::accept_id(options, sink, crate::refusal::policy_name(*policy));
        settings.mismatch.insert(sink.clone(), (id, options.by.clone(), *policy));
    }
    if let Some(name) = &options.from {
        let decisions::GoBack { id, to } = decisions::go_back(options, name, state)?;
        if let Some(of) = to {
            // Destinations that are ahead are a matter of `accept`, sink by sink.
            settings.fork = Some((id, options.by.clone(), of, MismatchPolicy::AcceptLoss));
        }
    }
    Ok(settings)
}
