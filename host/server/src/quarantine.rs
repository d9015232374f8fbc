//! Plugins that failed so often that no instance of them is made: telling of them, and letting a person end it. It lasts as
//! long as the process that runs the pipeline, so that process is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidegate_pipeline::observe::Observer;
use tidegate_protocol::event::Notice;
use tidegate_protocol::ids::SinkId;
use tidegate_wasm::{QuarantineChange, QuarantineWatch, Quarantined, Tenant};

use crate::assemble::Assembled;
use crate::config::{PipelineFile, suggest};
use crate::control::{self, Ask, Asked, Said, Why};
use crate::error::ServerError;

/// So many are told in one answer, and so many sinks of each.
const TOLD: usize = 64;

/// A plugin of a running pipeline that is in quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct QuarantineView {
    /// The sinks that it writes for.
    pub sinks: Vec<SinkId>,
    /// Who pays for it.
    pub tenant: String,
    /// Its name and version.
    pub plugin: String,
    /// `sha256:<hex>` of its file.
    pub digest: String,
    /// Unix milliseconds of the fault that brought it here.
    pub since: u64,
    /// Faults that counted.
    pub faults: u32,
    /// The newest of them.
    pub why: String,
    /// Milliseconds until one instance is made for a trial; `None`: it is on trial.
    pub trial_in_ms: Option<u64>,
}

/// What a running pipeline says of its plugins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct QuarantineReport {
    /// The pipeline is running; else there is nothing to tell.
    pub running: bool,
    /// Plugins in quarantine; or those that were, if it was to be lifted.
    pub plugins: Vec<QuarantineView>,
}

/// Asks the process that runs the pipeline for its plugins in quarantine; with `lift`, ends that of the named sink's plugin,
/// or of all. Blocks, at most about `patience`.
///
/// # Errors
/// There is no such sink, or the process does not answer.
pub fn quarantine(
    file: &PipelineFile,
    lift: Option<Option<&SinkId>>,
    patience: Duration,
) -> Result<QuarantineReport, ServerError> {
    if let Some(Some(sink)) = lift {
        let known: Vec<SinkId> = file.all_sinks().map(|(id, ..)| id).collect();
        if !known.contains(sink) {
            let names: Vec<_> = known.iter().map(SinkId::as_str).collect();
            let problem = format!("the file has no sink `{sink}`");
            return Err(ServerError::Request { problem, hints: vec![suggest(sink.as_str(), &names)] });
        }
    }
    let ask = match lift {
        Some(sink) => Ask::QuarantineLift { sink: sink.cloned() },
        None => Ask::QuarantineList,
    };
    let asked = match control::ask(&file.pipeline.state, &ask, Instant::now() + patience) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Asked::Nobody,
        asked => asked.map_err(|error| ServerError::Host(format!("cannot speak to the running pipeline: {error}")))?,
    };
    match asked {
        Asked::Answered(Said::Quarantine { plugins }) => Ok(QuarantineReport { running: true, plugins }),
        Asked::Nobody => Ok(QuarantineReport { running: false, plugins: Vec::new() }),
        Asked::Answered(Said::Refused { why: Why::Request, message, .. }) => {
            Err(ServerError::Host(format!("{message}: it runs another version of tidegate")))
        }
        Asked::Answered(Said::Refused { message, .. }) => Err(ServerError::Host(message)),
        Asked::Answered(Said::Done { .. }) => {
            Err(ServerError::Host("the running pipeline answers in a way that is not understood here".to_owned()))
        }
        Asked::Lost | Asked::Silent => Err(ServerError::Host(
            "the running pipeline did not answer; it may be ending, stopped (SIGSTOP) or overloaded: ask again"
                .to_owned(),
        )),
    }
}

/// The plugins of one pipeline's sinks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plugins(Arc<BTreeMap<SinkId, (Tenant, String)>>);

impl Plugins {
    pub(crate) fn of(assembled: &Assembled) -> Self {
        let plugin = |(id, sink): (&SinkId, &crate::plugins::Admission)| {
            (id.clone(), (sink.tenant.clone(), sink.binding.plugin.clone()))
        };
        Self(Arc::new(assembled.sinks.iter().map(plugin).collect()))
    }

    /// Those in quarantine.
    pub(crate) fn list(&self) -> Vec<QuarantineView> {
        let mut views: Vec<QuarantineView> = Vec::new();
        for (sink, (tenant, digest)) in self.0.iter() {
            let known = views.iter().position(|view| view.digest == *digest && view.tenant == tenant.name());
            match known {
                Some(at) if views[at].sinks.len() < TOLD => views[at].sinks.push(sink.clone()),
                None if views.len() < TOLD => {
                    let found = tenant.quarantined().into_iter().find(|quarantined| quarantined.digest == *digest);
                    views.extend(found.map(|quarantined| view(sink, quarantined)));
                }
                Some(_) | None => {}
            }
        }
        views
    }

    /// Sinks whose plugin is in quarantine.
    pub(crate) fn sinks(&self) -> Vec<SinkId> {
        self.list().into_iter().flat_map(|view| view.sinks).collect()
    }

    /// Ends the quarantine of one sink's plugin, or of all, and says of which.
    pub(crate) fn lift(&self, sink: Option<&SinkId>) -> Vec<QuarantineView> {
        let mut views = self.list();
        views.retain(|view| sink.is_none_or(|sink| view.sinks.contains(sink)));
        for view in &views {
            let of = view.sinks.first().and_then(|sink| self.0.get(sink));
            if let Some((tenant, digest)) = of {
                tenant.lift_quarantine(digest);
            }
        }
        views
    }

    /// Tells `to` of every quarantine that begins or ends, while what this returns lives.
    pub(crate) fn tell(&self, to: &Arc<dyn Observer>) -> Vec<QuarantineWatch> {
        let tenants: BTreeMap<&str, &Tenant> = self.0.values().map(|(tenant, _)| (tenant.name(), tenant)).collect();
        let watch = |tenant: &Tenant| {
            let (plugins, to, name) = (self.clone(), Arc::clone(to), tenant.name().to_owned());
            tenant.watch_quarantine(move |change| {
                let sinks = plugins.with(&name, change.digest());
                if !sinks.is_empty() {
                    to.notice(&Notice::Warning(words(&sinks, change)));
                }
            })
        };
        tenants.into_values().map(watch).collect()
    }

    fn with(&self, tenant: &str, digest: &str) -> BTreeSet<&SinkId> {
        let same = |(whose, file): &(Tenant, String)| whose.name() == tenant && file == digest;
        self.0.iter().filter(|(_, plugin)| same(plugin)).map(|(sink, _)| sink).collect()
    }
}

fn view(sink: &SinkId, quarantined: Quarantined) -> QuarantineView {
    let Quarantined { tenant, plugin, digest, since_ms, faults, why, trial_in } = quarantined;
    let trial_in_ms = trial_in.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
    QuarantineView { sinks: vec![sink.clone()], tenant, plugin, digest, since: since_ms, faults, why, trial_in_ms }
}

fn words(sinks: &BTreeSet<&SinkId>, change: &QuarantineChange) -> String {
    let sinks: Vec<_> = sinks.iter().map(|sink| format!("`{sink}`")).collect();
    let sinks = format!("sink {}", sinks.join(", "));
    match change {
        QuarantineChange::Began(quarantined) => format!(
            "{sinks}: the plugin {} of tenant `{}` is in quarantine, no instance of it is made: {quarantined}; lift it with \
             `tidegate plugin quarantine FILE --lift`",
            quarantined.plugin, quarantined.tenant
        ),
        QuarantineChange::Passed { plugin, .. } => {
            format!(
                "{sinks}: the plugin {plugin} answered on trial and is out of quarantine; the next fault brings it back"
            )
        }
        QuarantineChange::Lifted { plugin, .. } => format!("{sinks}: the quarantine of the plugin {plugin} was lifted"),
    }
}
