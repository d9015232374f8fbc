//! What is staged at the destinations and no retained record explains.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate_pipeline::clock::Clock;
use tidegate_protocol::history::OrphanStanding;
use tidegate_protocol::ids::{PartId, RunId, SinkHash, SinkId};
use tidegate_protocol::plugin::{CallContext, ErrorKind, External, Orphan, Orphans, Outcome, Plugin, Unsealed};
use tidegate_protocol::record::{Body, Released};
use tidegate_store::Log as _;
use tidegate_wasm::Lease;

use crate::assemble::Assembled;
use crate::config::SinkSection;
use crate::error::ServerError;
use crate::plugins;
use crate::savepoint::append;
use crate::state::{self, State};

/// A listing that is longer does not come to an end.
const MOST_PAGES: usize = 10_000;
/// More is not held in memory.
const MOST_ORPHANS: usize = 1_000_000;
/// So many parts go into one call.
const PARTS_PER_CALL: usize = 128;
/// Tries of one call.
const TRIES: u32 = 3;
/// What the host itself may need for a call beyond what the plugin is allowed.
const GRACE: Duration = Duration::from_secs(5);

/// Why nothing gives back what a log that is ahead of this one may have sealed.
const MAY_BE_COMMITTED: &str = "may be committed: the destination had more than this log when somebody accepted that; look there before removing it";

/// Something staged that no retained record explains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct OrphanView {
    /// The plugin's word for its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its size, where the destination tells it.
    pub bytes: Option<u64>,
    /// The run that staged it, as its name tells.
    pub run: Option<String>,
    /// Unix milliseconds at which that run was opened; it is at most that old.
    pub since: Option<u64>,
    /// `orphans abandon` gives it back.
    pub removable: bool,
    /// Why it is, or is not.
    pub why: &'static str,
}

/// What was found at one sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SinkOrphans {
    /// Which.
    pub sink: SinkId,
    /// What no retained record explains.
    pub orphans: Vec<OrphanView>,
    /// Staged things that retained records name: no orphans.
    pub explained: u64,
    /// Why nothing, or not everything, could be listed.
    pub problem: Option<String>,
}

/// Something that was given back, or was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct GivenBack {
    /// Which sink.
    pub sink: SinkId,
    /// The part's name.
    pub part: String,
    /// What it is, as kind and name.
    pub resources: Vec<String>,
    /// `given-back`, `gone` (somebody was first) or `kept`.
    pub result: &'static str,
    /// Why it was kept.
    pub why: Option<String>,
}

/// What `orphans abandon` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Abandoned {
    /// Part by part.
    pub parts: Vec<GivenBack>,
    /// Sinks that could not be listed, and why.
    pub problems: Vec<(SinkId, String)>,
}

/// What is staged at each sink and explained by no retained record. Changes nothing; the pipeline may be running.
///
/// # Errors
/// The state cannot be read.
pub async fn orphans_list(assembled: &Assembled) -> Result<Vec<SinkOrphans>, ServerError> {
    let Some(state) = State::read(&assembled.file)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (sink, section, _) in assembled.file.all_sinks() {
        found.push(list(assembled, &state, &sink, section, None).await.view(&state));
    }
    Ok(found)
}

/// Gives back what carries our sink's name and that of an older run, and no retained record names. The pipeline must not
/// be running. Doing it again changes nothing more.
///
/// # Errors
/// Somebody else owns the pipeline or its destination, it was moved away, or the log cannot be read or written.
pub async fn orphans_abandon(
    assembled: &Assembled,
    only: Option<&SinkId>,
    clock: &dyn Clock,
) -> Result<Abandoned, ServerError> {
    let file = &assembled.file;
    let known: Vec<_> = file.all_sinks().map(|(sink, ..)| sink).collect();
    if let Some(sink) = only.filter(|sink| !known.contains(sink)) {
        let names: Vec<_> = known.iter().map(SinkId::as_str).collect();
        let hints = vec![crate::config::suggest(sink.as_str(), &names)];
        return Err(ServerError::Request { problem: format!("the file has no sink `{sink}`"), hints });
    }
    let mut done = Abandoned { parts: Vec::new(), problems: Vec::new() };
    // A look without the lock first, so that a mistyped path does not create a state directory.
    if State::read(file)?.is_none() {
        return Ok(done);
    }
    let mut log = state::open_log(file)?;
    let lease = plugins::lease(file)?;
    for (sink, section, _) in file.all_sinks().filter(|(sink, ..)| only.is_none_or(|only| only == sink)) {
        let state = State::of(log.read_all()?, &file.pipeline.name, &file.pipeline.state)?;
        let found = list(assembled, &state, &sink, section, Some(&lease)).await;
        done.problems.extend(found.problem.clone().map(|problem| (sink.clone(), problem)));
        let Some(speaker) = found.speaker.as_ref() else { continue };
        let parts = found.unsealed(&state, &file.pipeline.name);
        let (given, gone) = abandon(speaker, parts).await?;
        if !gone.is_empty() {
            append(&mut log, &state, Body::Released(Released { sink: sink.clone(), resources: gone }), clock)?;
        }
        done.parts.extend(given);
    }
    Ok(done)
}

/// Makes a janitor's calls for one sink.
struct Speaker {
    sink: SinkId,
    plugin: Arc<dyn Plugin>,
    ctx: CallContext,
    prefix: String,
    limit: Duration,
}

/// What was found at one sink.
struct Found {
    sink: SinkId,
    pipeline: tidegate_protocol::ids::PipelineId,
    speaker: Option<Speaker>,
    listed: Vec<Orphan>,
    problem: Option<String>,
}

async fn list(
    assembled: &Assembled,
    state: &State,
    sink: &SinkId,
    section: &SinkSection,
    lease: Option<&Lease>,
) -> Found {
    let pipeline = assembled.file.pipeline.name.clone();
    let mut found = Found { sink: sink.clone(), pipeline, speaker: None, listed: Vec::new(), problem: None };
    // Binding would create them, and this is a look.
    let missing = section.dirs.values().find(|grant| !grant.path.is_dir());
    if let Some(grant) = missing {
        found.problem = Some(format!("its directory {} is not there", grant.path.display()));
        return found;
    }
    let speaker = match speaker(assembled, state, sink, section, lease) {
        Ok(Some(speaker)) => speaker,
        Ok(None) => return found,
        Err(error) => {
            found.problem = Some(error.to_string());
            return found;
        }
    };
    if speaker.plugin.description().abilities.orphans == Orphans::Listable {
        found.problem = pages(&speaker, &mut found.listed).await.err();
    }
    found.speaker = Some(speaker);
    found
}

fn speaker(
    assembled: &Assembled,
    state: &State,
    sink: &SinkId,
    section: &SinkSection,
    lease: Option<&Lease>,
) -> Result<Option<Speaker>, ServerError> {
    let (Some(admission), Some(run)) = (assembled.sinks.get(sink), state.history.newest_run()) else { return Ok(None) };
    let pipeline = &assembled.file.pipeline;
    let hash = SinkHash::of(&pipeline.name, sink);
    let plugin = admission.bind(&assembled.file, lease)?;
    let config = admission.binding.config.as_str().into();
    let prefix = hash.prefix();
    let ctx = CallContext { sink: sink.clone(), sink_hash: hash, run, config, attempt: 1 };
    let limit = section.limits.call_time.saturating_add(GRACE);
    Ok(Some(Speaker { sink: sink.clone(), plugin, ctx, prefix, limit }))
}

/// Every page of the listing, as far as there is an end.
async fn pages(speaker: &Speaker, listed: &mut Vec<Orphan>) -> Result<(), String> {
    let timed_out = || format!("no answer within {} s", speaker.limit.as_secs_f64());
    let mut janitor = tokio::time::timeout(speaker.limit, speaker.plugin.janitor())
        .await
        .map_err(|_| timed_out())?
        .map_err(|fault| fault.to_string())?;
    let mut page = None;
    for _ in 0..MOST_PAGES {
        let call = janitor.list_orphans(&speaker.ctx, &speaker.prefix, page.as_deref());
        let answer = tokio::time::timeout(speaker.limit, call).await.map_err(|_| timed_out())?;
        let answer = answer.map_err(|fault| fault.to_string())?;
        listed.extend(answer.orphans);
        if answer.next.is_none() {
            return Ok(());
        }
        if listed.len() > MOST_ORPHANS || answer.next == page {
            break;
        }
        page = answer.next;
    }
    Err(format!("the listing does not come to an end; what is shown are the first {}", listed.len()))
}

impl Found {
    fn view(self, state: &State) -> SinkOrphans {
        let Found { sink, pipeline, listed, problem, .. } = self;
        let mut view = SinkOrphans { sink: sink.clone(), orphans: Vec::new(), explained: 0, problem };
        let opened = |run: RunId| state.history.runs().get(&run).map(|node| node.opened_at);
        let mut add = |resource: External, bytes, part: Option<PartId>, removable, why| {
            let run = part.map(|part| part.run);
            view.orphans.push(OrphanView {
                kind: resource.kind,
                name: resource.name,
                bytes,
                run: run.map(|run| run.to_string()),
                since: run.and_then(opened),
                removable,
                why,
            });
        };
        for orphan in listed {
            let standing = state.history.orphan(&pipeline, &sink, &orphan);
            let Orphan { resource, bytes, .. } = orphan;
            match standing {
                OrphanStanding::Named => view.explained += 1,
                OrphanStanding::Foreign => {
                    add(resource, bytes, None, false, "its name is of no run that this log knows")
                }
                OrphanStanding::Newest(part) => {
                    add(resource, bytes, Some(part), false, "of the newest run; the next start gives it back")
                }
                OrphanStanding::Sealed(part) => {
                    add(resource, bytes, Some(part), false, "its epoch was sealed; retention releases it")
                }
                OrphanStanding::Unsealed(part) => {
                    add(resource, bytes, Some(part), true, "of an older run, never sealed, named by no record")
                }
                OrphanStanding::Elsewhere(part) => add(resource, bytes, Some(part), false, MAY_BE_COMMITTED),
            }
        }
        let (left, kept) = state.history.announced_and_unsealed(&pipeline, &sink);
        let left = left.into_iter().map(|unsealed| (unsealed, true, "announced by an older run and never sealed"));
        let kept = kept.into_iter().map(|unsealed| (unsealed, false, MAY_BE_COMMITTED));
        for (Unsealed { part, resources, .. }, removable, why) in left.chain(kept) {
            for resource in resources {
                if !view.orphans.iter().any(|seen| seen.kind == resource.kind && seen.name == resource.name) {
                    let run = Some(part.run);
                    view.orphans.push(OrphanView {
                        kind: resource.kind,
                        name: resource.name,
                        bytes: None,
                        run: run.map(|run| run.to_string()),
                        since: run.and_then(opened),
                        removable,
                        why,
                    });
                }
            }
        }
        view
    }

    /// What may be given back, by part.
    fn unsealed(&self, state: &State, pipeline: &tidegate_protocol::ids::PipelineId) -> Vec<Unsealed> {
        let mut parts = state.history.announced_and_unsealed(pipeline, &self.sink).0;
        for orphan in &self.listed {
            let OrphanStanding::Unsealed(part) = state.history.orphan(pipeline, &self.sink, orphan) else { continue };
            match parts.iter_mut().find(|known| known.part == part) {
                Some(known) if known.resources.contains(&orphan.resource) => {}
                Some(known) => known.resources.push(orphan.resource.clone()),
                None => parts.push(Unsealed { part, committable: None, resources: vec![orphan.resource.clone()] }),
            }
        }
        parts
    }
}

/// Gives parts back. The second value is what is gone for good.
async fn abandon(speaker: &Speaker, parts: Vec<Unsealed>) -> Result<(Vec<GivenBack>, Vec<External>), ServerError> {
    let (mut told, mut gone) = (Vec::new(), Vec::new());
    for parts in parts.chunks(PARTS_PER_CALL) {
        let mut left = parts.to_vec();
        let mut last = String::new();
        for attempt in 1..=TRIES {
            if left.is_empty() {
                break;
            }
            let outcomes = match call(speaker, &left, attempt).await {
                Ok(outcomes) => outcomes,
                Err(Failed::Fenced) => return Err(fenced(&speaker.sink)),
                Err(Failed::Once(why)) => {
                    last = why;
                    continue;
                }
            };
            for (part, outcome) in std::mem::take(&mut left).into_iter().zip(outcomes) {
                let (result, why) = match outcome {
                    Outcome::Committed => ("given-back", None),
                    Outcome::AlreadyCommitted => ("gone", None),
                    Outcome::Fenced => return Err(fenced(&speaker.sink)),
                    Outcome::NotCommitted | Outcome::Retry(_) | Outcome::Unknown => {
                        last = "the destination has not given it back yet".to_owned();
                        left.push(part);
                        continue;
                    }
                    Outcome::Unsupported => ("kept", Some("the plugin cannot give it back".to_owned())),
                    Outcome::Never => ("kept", Some("it can never be given back".to_owned())),
                    Outcome::Rejected(error) => ("kept", Some(error.to_string())),
                };
                if why.is_none() {
                    gone.extend(part.resources.clone());
                }
                told.push(given(&speaker.sink, &part, result, why));
            }
        }
        told.extend(left.iter().map(|part| given(&speaker.sink, part, "kept", Some(last.clone()))));
    }
    Ok((told, gone))
}

enum Failed {
    Fenced,
    Once(String),
}

async fn call(speaker: &Speaker, parts: &[Unsealed], attempt: u32) -> Result<Vec<Outcome>, Failed> {
    let ctx = CallContext { attempt, ..speaker.ctx.clone() };
    // A fresh one each time: after a fault there is none left.
    let answer =
        tokio::time::timeout(speaker.limit, async { speaker.plugin.janitor().await?.abandon(&ctx, parts).await });
    match answer.await {
        Err(_) => Err(Failed::Once(format!("no answer within {} s", speaker.limit.as_secs_f64()))),
        Ok(Err(fault)) if fault.error().is_some_and(|error| error.kind == ErrorKind::Fenced) => Err(Failed::Fenced),
        Ok(Err(fault)) => Err(Failed::Once(fault.to_string())),
        Ok(Ok(outcomes)) if outcomes.len() == parts.len() => Ok(outcomes),
        Ok(Ok(outcomes)) => Err(Failed::Once(format!("{} outcomes came for {} parts", outcomes.len(), parts.len()))),
    }
}

fn fenced(sink: &SinkId) -> ServerError {
    ServerError::Superseded {
        problem: format!("sink `{sink}` was fenced by a newer run, which this log does not know"),
        hints: vec!["the pipeline runs from another state directory: give things back there".to_owned()],
    }
}

fn given(sink: &SinkId, part: &Unsealed, result: &'static str, why: Option<String>) -> GivenBack {
    let resources = part.resources.iter().map(|resource| format!("{} {}", resource.kind, resource.name)).collect();
    GivenBack { sink: sink.clone(), part: part.part.short.clone(), resources, result, why }
}
