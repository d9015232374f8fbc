//! Checks a pipeline without running it: file, plugins, grants, guarantee, and what has changed since the last run.

use serde::Serialize;
use tidegate_protocol::guarantee::Guarantee;
use tidegate_protocol::ids::SinkId;

use crate::assemble::{Assembled, assemble};
use crate::config::{PipelineFile, SourceKind};
use crate::edits::{self, Finding, Verdict};
use crate::error::{Refused, ServerError};
use crate::graph;
use crate::plugins::Host;
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
    /// Plugins with their versions.
    pub plugins: std::collections::BTreeMap<SinkId, String>,
    /// The state that was found; `None` if the pipeline has never run.
    pub state: Option<StateFound>,
    /// What is to be said about it. Empty: nothing has changed.
    pub findings: Vec<Finding>,
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
    /// The pipeline would start, as far as can be known without asking the destinations.
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict != Verdict::Refused)
    }
}

/// Checks a pipeline. Changes nothing; the pipeline may be running.
///
/// # Errors
/// The file, a plugin or a source cannot be used at all, or the state cannot be read.
pub fn validate(host: &Host, file: &PipelineFile) -> Result<Validation, ServerError> {
    let assembled = assemble(host, file)?;
    let state = State::read(file)?;
    let mut findings = Vec::new();
    if let Err(error) = assembled.require_guarantee() {
        findings.extend(error.messages().into_iter().map(|(message, hints)| Finding {
            verdict: Verdict::Refused,
            message,
            hints,
        }));
    }
    directories(file, &mut findings);
    if let Some(state) = &state {
        findings.extend(compare(&assembled, state));
    }
    positions(&assembled, state.as_ref(), &mut findings);
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
        plugins: assembled.plugins(),
        state: found,
        findings,
    })
}

/// What has changed since the newest checkpoint.
pub(crate) fn compare(assembled: &Assembled, state: &State) -> Vec<Finding> {
    edits::compare(assembled.description(), &assembled.sinks_now(), &state.history)
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

fn directories(file: &PipelineFile, findings: &mut Vec<Finding>) {
    for (id, section, _) in file.all_sinks() {
        for (name, grant) in &section.dirs {
            let path = &grant.path;
            match std::fs::metadata(path) {
                Ok(found) if !found.is_dir() => findings.push(Finding::new(
                    Verdict::Refused,
                    format!("sink `{id}`: {} (granted as `{name}`) is not a directory", path.display()),
                )),
                Ok(found) if found.permissions().readonly() => findings.push(Finding::new(
                    Verdict::Refused,
                    format!("sink `{id}`: {} (granted as `{name}`) cannot be written", path.display()),
                )),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => findings.push(Finding::new(
                    Verdict::Refused,
                    format!("sink `{id}`: {} (granted as `{name}`) cannot be used: {error}", path.display()),
                )),
            }
        }
    }
}

/// Opens every source at the newest checkpoint, as a run would, and closes it again.
fn positions(assembled: &Assembled, state: Option<&State>, findings: &mut Vec<Finding>) {
    let newest = state.and_then(|state| state.history.seal(state.history.newest_seal()?));
    for (id, built, encoding) in assembled.sources() {
        let stdin = matches!(assembled.file.sources.get(id).map(|s| &s.kind), Some(SourceKind::Stdin { .. }));
        if stdin {
            continue;
        }
        let cut = newest.and_then(|sealed| sealed.seal.sources.get(id));
        if let Err(error) = built.source.open(encoding, cut, built.tasks) {
            findings.push(Finding::new(Verdict::Refused, format!("source `{id}`: {error}")));
        }
    }
}
