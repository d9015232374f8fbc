//! Checks a pipeline without running it: file, plugins, grants, guarantee, and what has changed since the last run.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_columns::Schema;
use tidegate_columns::schema::{Kept, KeptColumns};
use tidegate_pipeline::source::{ColumnsPlan, SourceError};
use tidegate_pipeline::spec::find_schema;
use tidegate_protocol::guarantee::Guarantee;
use tidegate_protocol::history::SinkEpochState;
use tidegate_protocol::ids::{EpochRef, SinkId, SourceId};
use tidegate_protocol::record::SourceCut;

use crate::assemble::{Assembled, assemble};
use crate::config::{PipelineFile, of_source};
use crate::dirs;
use crate::edits::{self, Finding, Verdict};
use crate::error::{ErrorKind, Refused, ServerError};
use crate::graph;
use crate::moved;
use crate::overlaps;
use crate::plugins::Host;
use crate::refusal::{Named, blocked_words};
use crate::resolve::{given_up, rows_at};
use crate::state::State;

/// What checking a pipeline found.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Validation {
    /// The pipeline's name.
    pub pipeline: String,
    /// What it promises.
    pub guarantee: Guarantee,
    /// What that rests on.
    pub grounds: Vec<String>,
    /// How rows travel where they are not handed on as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub travel: Vec<String>,
    /// Plugins with their versions.
    pub plugins: std::collections::BTreeMap<SinkId, String>,
    /// The state that was found; `None` if the pipeline has never run.
    pub state: Option<StateFound>,
    /// Epochs that wait for a person.
    pub blocked: Vec<BlockedEpoch>,
    /// What is to be said about it. Empty: nothing has changed.
    pub findings: Vec<Finding>,
}

/// A sealed epoch that nobody commits before a person has decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockedEpoch {
    /// At which sink.
    pub sink: SinkId,
    /// The epoch's number.
    pub epoch: u64,
    /// The rows that wait there.
    pub rows: u64,
    /// Why.
    pub reason: String,
    /// The command that decides.
    pub command: String,
}

/// The state next to which a file was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct StateFound {
    /// Runs so far.
    pub runs: usize,
    /// The newest epoch.
    pub newest_epoch: Option<u64>,
    /// The input had ended and everything was committed.
    pub finished: bool,
    /// The graph is the same as in the newest epoch.
    pub unchanged: bool,
}

impl Validation {
    /// File, plugins and state fit, and the destinations, if [`connect`](crate::connect()) asked them and its findings were
    /// added. Else they were not asked, and nothing is said about [`Validation::blocked`].
    pub fn passed(&self) -> bool {
        self.refused().is_none()
    }

    /// What to do about the first reason why the pipeline would not start: the one that a run would end with.
    pub fn refused(&self) -> Option<ErrorKind> {
        self.findings.iter().find(|finding| finding.verdict == Verdict::Refused).map(|finding| finding.kind)
    }
}

/// Checks a pipeline. Changes nothing; the pipeline may be running.
///
/// # Errors
/// The file, a plugin or a source cannot be used at all, or the state cannot be read.
pub fn validate(host: &Host, file: &PipelineFile) -> Result<Validation, ServerError> {
    check(&assemble(host, file)?)
}

/// Checks a pipeline whose parts are known: see [`validate`].
///
/// # Errors
/// As for [`validate`].
pub fn check(assembled: &Assembled) -> Result<Validation, ServerError> {
    let file = assembled.file();
    let state = State::read(file)?;
    let mut findings = Vec::new();
    if let Err(error) = assembled.require_guarantee() {
        findings.extend(Finding::of_error(&error));
    }
    if let Err(error) = moved::refuse(&file.pipeline.state) {
        findings.extend(Finding::of_error(&error));
    }
    if let Some(state) = &state {
        findings.extend(compare(assembled, state, None));
        findings.extend(given_up(&state.history));
    }
    // In the order in which a run finds them.
    findings.extend(dirs::findings(file));
    findings.extend(overlaps::findings(file));
    let (known, unknown) = known_columns(assembled, state.as_ref());
    for (source, error) in unknown.into_iter().chain(unopened(assembled, state.as_ref(), &known)) {
        // What an edit broke is told once.
        if !findings.iter().any(|found| found.is_refused_source(source.as_str())) {
            findings.extend(Finding::of_error(&ServerError::of_source(file, &source, error)));
        }
    }
    if let Err(error) = assembled.check_columns(&known) {
        findings.extend(Finding::of_error(&error));
    }
    let blocked = state.as_ref().map(|state| blocked(file, state)).unwrap_or_default();
    let found = state.map(|state| {
        let newest = state.history.newest_seal();
        let sealed = newest.and_then(|of| state.history.seal(of));
        StateFound {
            runs: state.history.runs().len(),
            newest_epoch: newest.map(|of| of.epoch.0),
            finished: state.history.finished().is_some(),
            unchanged: sealed
                .is_some_and(|sealed| graph::digest(&sealed.seal.graph) == graph::digest(&assembled.fingerprint())),
        }
    });
    Ok(Validation {
        pipeline: file.pipeline.name.to_string(),
        guarantee: assembled.guarantee().clone(),
        grounds: assembled.grounds(),
        travel: assembled.travel(),
        plugins: assembled.plugins(),
        state: found,
        blocked,
        findings,
    })
}

/// What has changed since the checkpoint that a run goes on from: the one that it goes `back` to, else the newest.
pub(crate) fn compare(assembled: &Assembled, state: &State, back: Option<EpochRef>) -> Vec<Finding> {
    let mut findings = edits::compare(assembled.description(), &assembled.sinks_now(), &state.history, back);
    let from = back.or_else(|| state.history.newest_seal()).and_then(|of| state.history.seal(of));
    for (source, cut) in from.iter().flat_map(|sealed| &sealed.seal.sources) {
        let before = cut.schema.as_deref().and_then(|text| Kept::from_text(text).ok()).and_then(Kept::into_columns);
        let declared = assembled.columns(source).and_then(|columns| columns.declared.as_ref());
        let Some((before, now)) = before.zip(declared) else { continue };
        findings.extend(no_more_nulls(before.schema(), now).map(|column| {
            let message = format!(
                "source `{source}`: the column `{column}` may have been NULL and is NOT NULL now; rows without a value \
                 are bad rows from here on, and those handed on before stay"
            );
            Finding::new(Verdict::Warning, assembled.file.told_at(&of_source(source, &["schema"]), message))
        }));
        if let Err(error) = KeptColumns::after(Some(&before), now.clone()) {
            let message =
                assembled.file.told_at(&of_source(source, &["schema"]), format!("source `{source}`: {error}"));
            findings.push(Finding::of_source(source.as_str(), Verdict::Refused, message));
        }
    }
    findings
}

/// The columns that took NULL before and do not any more.
fn no_more_nulls(before: &Schema, now: &Schema) -> impl Iterator<Item = String> {
    let strict = now.arrow().fields().iter().filter(|field| !field.is_nullable());
    let took = |name: &str| before.arrow().field_with_name(name).is_ok_and(|field| field.is_nullable());
    strict.filter(move |field| took(field.name())).map(|field| field.name().clone())
}

/// Refuses the edits that a run must not start with.
pub(crate) fn refuse(findings: Vec<Finding>) -> Result<Vec<Finding>, ServerError> {
    let (refused, rest): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding.verdict == Verdict::Refused);
    if refused.is_empty() {
        return Ok(rest);
    }
    let edits = refused.into_iter().map(|finding| Refused { problem: finding.message, hints: finding.hints });
    Err(ServerError::Edits(edits.collect()))
}

/// What is blocked, in the order of sinks and epochs.
fn blocked(file: &PipelineFile, state: &State) -> Vec<BlockedEpoch> {
    let mut blocked = Vec::new();
    for sink in state.history.sinks() {
        for of in state.history.unfinished(&sink) {
            if let Some(SinkEpochState::Blocked(_, why)) = state.history.outcome(&sink, of) {
                blocked.push(BlockedEpoch {
                    sink: sink.clone(),
                    epoch: of.epoch.0,
                    reason: blocked_words(why),
                    rows: rows_at(&state.history, &sink, of),
                    command: Named::of(file).resolve_command(&sink, of),
                });
            }
        }
    }
    blocked
}

/// Opens a source at the newest checkpoint, as a run would, and closes it again.
///
/// # Errors
/// Why it cannot be.
pub(crate) fn position(assembled: &Assembled, state: Option<&State>, source: &SourceId) -> Result<(), SourceError> {
    let plan = columns(assembled, state, source)?;
    open(assembled, state, source, plan.as_ref())
}

fn open(
    assembled: &Assembled,
    state: Option<&State>,
    source: &SourceId,
    plan: Option<&ColumnsPlan>,
) -> Result<(), SourceError> {
    let Some((_, built, encoding)) = assembled.sources().find(|(id, ..)| *id == source) else { return Ok(()) };
    // What comes once is not to be taken by somebody who only looks.
    if !built.source.contract().replayable {
        return Ok(());
    }
    let cut = newest_cut(state, source);
    match plan {
        Some(plan) => built.source.open_columns(plan, cut, built.tasks),
        None => built.source.open(encoding, cut, built.tasks),
    }
    .map(drop)
}

fn newest_cut<'a>(state: Option<&'a State>, source: &SourceId) -> Option<&'a SourceCut> {
    let newest = state.and_then(|state| state.history.seal(state.history.newest_seal()?));
    newest.and_then(|sealed| sealed.seal.sources.get(source))
}

/// The columns that a run would find, of a source whose rows have any.
fn columns(
    assembled: &Assembled,
    state: Option<&State>,
    source: &SourceId,
) -> Result<Option<ColumnsPlan>, SourceError> {
    let built = assembled.sources().find(|(id, ..)| *id == source).map(|(_, built, _)| built);
    let Some((built, options)) = built.zip(assembled.columns(source)) else { return Ok(None) };
    let kept = newest_cut(state, source).and_then(|cut| cut.schema.as_deref());
    let columns = find_schema(built.source.as_ref(), options, kept)?;
    Ok(Some(ColumnsPlan::new(columns.schema().clone(), options)))
}

/// The columns that a run would find, of all sources whose rows have any, and why those of others are not known.
pub(crate) fn known_columns(
    assembled: &Assembled,
    state: Option<&State>,
) -> (BTreeMap<SourceId, Schema>, Vec<(SourceId, SourceError)>) {
    let (mut known, mut unknown) = (BTreeMap::new(), Vec::new());
    for (source, ..) in assembled.sources() {
        match columns(assembled, state, source) {
            Ok(plan) => known.extend(plan.map(|plan| (source.clone(), plan.schema))),
            Err(error) => unknown.push((source.clone(), error)),
        }
    }
    (known, unknown)
}

/// The sources with known columns, or without any, that cannot be opened.
fn unopened(
    assembled: &Assembled,
    state: Option<&State>,
    known: &BTreeMap<SourceId, Schema>,
) -> Vec<(SourceId, SourceError)> {
    let mut unopened = Vec::new();
    for (source, ..) in assembled.sources() {
        let options = assembled.columns(source);
        let plan = options.zip(known.get(source)).map(|(options, schema)| ColumnsPlan::new(schema.clone(), options));
        if options.is_some() && plan.is_none() {
            continue;
        }
        if let Err(error) = open(assembled, state, source, plan.as_ref()) {
            unopened.push((source.clone(), error));
        }
    }
    unopened
}
