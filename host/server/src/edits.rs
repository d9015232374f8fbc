//! What has changed in a pipeline file since the newest checkpoint, and whether that is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use tidegate_protocol::history::{History, SealedEpoch};
use tidegate_protocol::ids::{EpochRef, SinkId};
use tidegate_protocol::record::Binding;

use crate::error::{ErrorKind, ServerError};
use crate::graph;

/// What an edit, or a fact about a pipeline, amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Fine.
    Allowed,
    /// Allowed, and somebody should know what it means.
    Warning,
    /// The pipeline would not start.
    Refused,
}

/// One thing found by comparing a file with its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it amounts to.
    pub verdict: Verdict,
    /// What was found, in one line.
    pub message: String,
    /// How to go on.
    pub hints: Vec<String>,
    /// What it is about, so that nothing is told twice.
    #[serde(skip)]
    about: About,
    /// What to do about it, if it is refused.
    #[serde(skip)]
    pub(crate) kind: ErrorKind,
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    /// How a source of this name goes on.
    Source(String),
    Other,
}

impl Finding {
    pub(crate) fn new(verdict: Verdict, message: impl Into<String>) -> Self {
        Self { verdict, message: message.into(), hints: Vec::new(), about: About::Other, kind: ErrorKind::Refused }
    }

    /// About how a source goes on.
    pub(crate) fn of_source(id: &str, verdict: Verdict, what: impl fmt::Display) -> Self {
        Self { about: About::Source(id.to_owned()), ..Self::new(verdict, format!("source `{id}`: {what}")) }
    }

    /// Why a pipeline would not start.
    pub(crate) fn of_error(error: &ServerError) -> Vec<Self> {
        let refused = |(message, hints): (String, Vec<String>)| {
            hints.into_iter().fold(Finding::new(Verdict::Refused, message), Finding::hint).of_kind(error.kind())
        };
        error.messages().into_iter().map(refused).collect()
    }

    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Whether a source cannot go on.
    pub(crate) fn is_refused_source(&self, id: &str) -> bool {
        self.verdict == Verdict::Refused && matches!(&self.about, About::Source(source) if source == id)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// A sink as the file describes it now.
pub(crate) struct SinkNow<'a> {
    pub(crate) binding: &'a Binding,
    pub(crate) committable_versions: &'a [u32],
}

/// Compares. `now` is the description that [`graph::describe`] made of the file. Sources are compared with the checkpoint
/// that the run goes `back` to, if it does; sinks always with the newest, since what is sealed behind it is finished first.
pub(crate) fn compare(
    now: &Value,
    sinks: &BTreeMap<SinkId, SinkNow<'_>>,
    history: &History,
    back: Option<EpochRef>,
) -> Vec<Finding> {
    let Some(newest) = history.newest_seal().and_then(|of| history.seal(of)) else {
        return Vec::new();
    };
    let from = back.and_then(|of| history.seal(of)).unwrap_or(newest);
    let (Some(sources), Some(before)) = (graph::read(&from.seal.graph), graph::read(&newest.seal.graph)) else {
        let message = "the newest checkpoint does not tell what the pipeline looked like; edits cannot be compared";
        return vec![Finding::new(Verdict::Warning, message)];
    };
    let mut findings = Vec::new();
    compare_sources(&sources, now, from, &mut findings);
    compare_sinks(&before, now, sinks, newest, history, &mut findings);
    findings
}

fn names(description: &Value, kind: &str) -> BTreeSet<String> {
    description[kind].as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default()
}

/// A value as it would be written in the file.
fn show(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        value => value.to_string(),
    }
}

fn changed(before: &Value, now: &Value, key: &str) -> Option<String> {
    (before[key] != now[key]).then(|| format!("{key} {} → {}", show(&before[key]), show(&now[key])))
}

fn compare_sources(before: &Value, now: &Value, newest: &SealedEpoch, findings: &mut Vec<Finding>) {
    let (old, new) = (names(before, "sources"), names(now, "sources"));
    let reads = |of: &Value, id: &str| {
        let source = &of["sources"][id];
        (source["kind"].clone(), source["paths"].clone(), source["seed"].clone())
    };
    let mut renamed = BTreeSet::new();
    for id in old.difference(&new) {
        let same = new.difference(&old).find(|other| reads(before, id) == reads(now, other));
        findings.push(match same {
            Some(other) => {
                renamed.insert(other.clone());
                let message = format!(
                    "source `{id}` was renamed to `{other}`, which would read again from the beginning what `{id}` has read"
                );
                Finding::new(Verdict::Refused, message).hint(format!("set the name back to `{id}`"))
            }
            None => {
                let message = format!("source `{id}` was removed: what lies behind its last position is not read any more");
                Finding::new(Verdict::Warning, message)
                    .hint("its position is kept: put back under this name, it goes on behind it")
            }
        });
    }
    for id in new.difference(&old).filter(|id| !renamed.contains(*id)) {
        // Positions of removed sources stay in every checkpoint.
        let known = newest.seal.sources.keys().any(|source| source.as_str() == id);
        let from = if known { "is back: goes on behind its last position" } else { "is new: read from its beginning" };
        findings.push(Finding::new(Verdict::Allowed, format!("source `{id}` {from}")));
    }
    for id in old.intersection(&new) {
        let ended = newest.seal.sources.iter().any(|(source, cut)| source.as_str() == id && cut.ended);
        compare_source(id, &before["sources"][id], &now["sources"][id], ended, findings);
    }
}

fn compare_source(id: &str, before: &Value, now: &Value, ended: bool, findings: &mut Vec<Finding>) {
    let say = |verdict, what: String| Finding::of_source(id, verdict, what);
    if let Some(change) = changed(before, now, "kind") {
        let hint = "give the new source a name of its own; the old one can be removed when it is finished";
        findings.push(say(Verdict::Refused, format!("{change}; positions of one do not fit the other")).hint(hint));
        return;
    }
    for key in ["format", "csv", "compression"] {
        let Some(change) = changed(before, now, key) else { continue };
        findings.push(if ended {
            say(Verdict::Allowed, format!("{change}; counts for files that were not read yet"))
        } else {
            let hint = "set it back until everything that was begun is read, or make it a source with another name";
            say(Verdict::Refused, format!("{change}, while some of its files are partly read")).hint(hint)
        });
    }
    for key in ["seed", "partitions", "row-bytes", "keys"] {
        if let Some(change) = changed(before, now, key) {
            let hint = "set it back, or make it a source with another name";
            findings.push(say(Verdict::Refused, format!("{change}; the rows would not be the same ones")).hint(hint));
        }
    }
    for (key, meaning) in [
        ("paths", "files that were begun must still be matched"),
        ("rows", "counts from the next row on"),
        ("tasks", "partitions are dealt anew"),
        ("max-line", "counts from the next row on"),
        ("schema", "counts from the next row on, where it fits the one before"),
        ("as-columns", "counts from the next row on"),
        ("unknown-fields", "counts from the next row on"),
        ("follow", "counts from now on"),
    ] {
        if let Some(change) = changed(before, now, key) {
            findings.push(say(Verdict::Allowed, format!("{change}; {meaning}")));
        }
    }
}

fn compare_sinks(
    before: &Value,
    now: &Value,
    sinks: &BTreeMap<SinkId, SinkNow<'_>>,
    newest: &SealedEpoch,
    history: &History,
    findings: &mut Vec<Finding>,
) {
    let (old, new) = (names(before, "sinks"), names(now, "sinks"));
    // Also sinks that were removed earlier and come up again in older epochs.
    let with_epochs: BTreeSet<String> = history.sinks().iter().map(ToString::to_string).collect();
    for id in old.union(&with_epochs).filter(|id| !new.contains(*id)) {
        let unfinished = SinkId::new(id.as_str()).map(|id| history.unfinished(&id)).unwrap_or_default();
        if !unfinished.is_empty() {
            let message = format!("sink `{id}` was removed or renamed, and has not finished {}", list(&unfinished));
            let hint = format!("put `{id}` back and start once; when its epochs are finished it can go");
            findings.push(Finding::new(Verdict::Refused, message).hint(hint));
        } else if old.contains(id) {
            let message = format!("sink `{id}` was removed: rows from now on do not go there");
            findings.push(Finding::new(Verdict::Warning, message));
        }
    }
    for id in new.difference(&old) {
        let message = format!("sink `{id}` is new: it takes rows from the newest checkpoint on, not those before");
        findings.push(Finding::new(Verdict::Allowed, message));
    }
    for id in old.intersection(&new) {
        let Ok(sink) = SinkId::new(id.as_str()) else { continue };
        let (before, now) = (&before["sinks"][id], &now["sinks"][id]);
        let old_binding = newest.seal.sinks.get(&sink).map(|cut| &cut.binding);
        if let (Some(old), Some(new)) = (old_binding, sinks.get(&sink)) {
            compare_binding(&sink, old, new, history, findings);
        }
        for (key, meaning) in [
            ("subtasks", "writers divide the keys anew"),
            ("route", "counts from the next row on"),
            ("encoding", "counts from the next epoch on"),
            ("columns", "counts from the next epoch on"),
            ("files", "counts from the next epoch on"),
            ("transform", "counts from the next epoch on"),
            ("sources", "counts from the next row on"),
        ] {
            if let Some(change) = changed(before, now, key) {
                findings.push(Finding::new(Verdict::Allowed, format!("sink `{id}`: {change}; {meaning}")));
            }
        }
    }
}

fn compare_binding(id: &SinkId, old: &Binding, new: &SinkNow<'_>, history: &History, findings: &mut Vec<Finding>) {
    let unfinished = history.unfinished(id);
    let say = |verdict, what: String| Finding::new(verdict, format!("sink `{id}`: {what}"));
    if old.plugin != new.binding.plugin {
        let change = format!("plugin {} → {}", old.plugin_name, new.binding.plugin_name);
        let versions = versions(id, &unfinished, history);
        let unreadable: Vec<_> = versions.iter().filter(|v| !new.committable_versions.contains(v)).collect();
        let same = name_of(&old.plugin_name) == name_of(&new.binding.plugin_name);
        findings.push(match (unfinished.is_empty(), same, unreadable.is_empty()) {
            (true, true, _) => say(Verdict::Allowed, format!("{change}; everything sealed is finished")),
            (true, false, _) => say(Verdict::Warning, format!("{change}: another plugin, and so another destination")),
            (false, true, true) => {
                say(Verdict::Allowed, format!("{change}; the new one can finish {}", list(&unfinished)))
            }
            (false, ..) => {
                let hint = "put the old plugin back and start once; when its epochs are finished it can be exchanged";
                say(Verdict::Refused, format!("{change}, which cannot finish {}", list(&unfinished))).hint(hint)
            }
        });
    }
    if old.config != new.binding.config {
        let change = format!("config {} → {}", old.config, new.binding.config);
        let meaning = match unfinished.is_empty() {
            true => "counts from the next epoch on".to_owned(),
            false => format!("the old one still finishes {}", list(&unfinished)),
        };
        findings.push(say(Verdict::Allowed, format!("{change}; {meaning}")));
    }
    if old.grants != new.binding.grants {
        findings.extend(compare_grants(id, &old.grants, &new.binding.grants, &unfinished));
    }
}

fn compare_grants(id: &SinkId, old: &str, new: &str, unfinished: &[EpochRef]) -> Vec<Finding> {
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    let (old, new) = (parse(old), parse(new));
    let mut findings = Vec::new();
    let key = if old["dirs"] == new["dirs"] { "at" } else { "dirs" };
    let others = !same_directories(&old, &new, !unfinished.is_empty());
    if let Some(change) = changed(&old, &new, key).filter(|_| others) {
        let message = format!("sink `{id}`: {change}");
        findings.push(match unfinished {
            [] => Finding::new(Verdict::Warning, format!("{message}: another destination")).hint(
                "unless what was there is moved along, the run finds the destination behind its log and is refused",
            ),
            epochs => Finding::new(
                Verdict::Refused,
                format!("{message}, while rows of {} are staged in the old one", list(epochs)),
            )
            .hint("set it back and start once; when its epochs are finished it can be changed")
            .hint("on another host, make the old directory reachable by the path that it had, or start where it is"),
        });
    }
    if let Some(change) = changed(&old, &new, "tcp") {
        findings.push(compare_places(id, &change, &old["tcp"], &new["tcp"], unfinished));
    }
    if let Some(change) = changed(&old, &new, "http") {
        findings.push(compare_places(id, &change, &old["http"], &new["http"], unfinished));
    }
    if let Some(change) = changed(&old, &new, "secrets") {
        let message = format!("sink `{id}`: {change}; read anew for every instance");
        findings.push(Finding::new(Verdict::Allowed, message));
    }
    findings
}

/// How a place is reached may change; where it is only when nothing waits there.
fn compare_places(id: &SinkId, change: &str, old: &Value, new: &Value, unfinished: &[EpochRef]) -> Finding {
    let addresses = |places: &Value| -> BTreeMap<String, Value> {
        let places = places.as_object().into_iter().flatten();
        places.map(|(name, place)| (name.clone(), place["address"].clone())).collect()
    };
    let message = format!("sink `{id}`: {change}");
    match (addresses(old) == addresses(new), unfinished) {
        (true, _) => Finding::new(Verdict::Allowed, format!("{message}; counts for connections from now on")),
        (false, []) => Finding::new(Verdict::Warning, format!("{message}: another destination"))
            .hint("unless it is the same server, the run finds the destination behind its log and is refused"),
        (false, epochs) => Finding::new(
            Verdict::Refused,
            format!("{message}, while rows of {} are staged at the old one", list(epochs)),
        )
        .hint("set it back and start once; when its epochs are finished it can be changed"),
    }
}

/// Whether grants mean the same directories, whatever they are called. A project that was moved as a whole has them at
/// other places; not so if the old ones are there still, and something is `staged` in them.
fn same_directories(old: &Value, new: &Value, staged: bool) -> bool {
    if names(old, "dirs") != names(new, "dirs") {
        return false;
    }
    names(old, "dirs").iter().all(|name| {
        let is_same_text = old["dirs"][name] == new["dirs"][name];
        match (old["at"][name].as_str(), new["at"][name].as_str()) {
            (Some(old), Some(new)) if old == new => true,
            (Some(old), Some(_)) if staged => is_same_text && !Path::new(old).is_dir(),
            _ => is_same_text,
        }
    })
}

/// Grants as the unfinished epochs of each sink have them. A run that may start goes on with these words: they mean the
/// same directories as its own, and the protocol compares words.
pub(crate) fn grants_of_unfinished(history: &History) -> BTreeMap<SinkId, String> {
    let sealed = history.sinks().into_iter().filter_map(|sink| {
        let of = *history.unfinished(&sink).first()?;
        let grants = history.seal(of)?.seal.sinks.get(&sink)?.binding.grants.clone();
        Some((sink, grants))
    });
    sealed.collect()
}

/// Name without version.
fn name_of(plugin_name: &str) -> &str {
    plugin_name.split_once(' ').map_or(plugin_name, |(name, _)| name)
}

/// Committable versions in unfinished epochs.
fn versions(id: &SinkId, unfinished: &[EpochRef], history: &History) -> BTreeSet<u32> {
    let cuts = unfinished.iter().filter_map(|of| history.seal(*of)?.seal.sinks.get(id));
    let committables = cuts.flat_map(|cut| cut.parts.iter().filter_map(|part| part.committable.as_ref()));
    committables.map(|committable| committable.version).collect()
}

fn list(epochs: &[EpochRef]) -> String {
    match epochs {
        [one] => format!("epoch {}", one.epoch),
        [first, .., last] => format!("{} epochs ({} to {})", epochs.len(), first.epoch, last.epoch),
        [] => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_is_told_once_by_what_a_finding_is_about_and_not_by_its_words() {
        let of = |id: &str, verdict| Finding::of_source(id, verdict, "gone");
        assert!(of("a", Verdict::Refused).is_refused_source("a"));
        assert!(!of("a", Verdict::Warning).is_refused_source("a") && !of("b", Verdict::Refused).is_refused_source("a"));
        let same_words = Finding::new(Verdict::Refused, of("a", Verdict::Refused).message);
        assert!(!same_words.is_refused_source("a"));
    }

    #[test]
    fn directories_are_compared_by_where_they_lead_and_not_by_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let there = folder.path().to_string_lossy();
        let grants = |text: &str, at: &str| json!({"dirs": {"output": text}, "at": {"output": at}});
        for (old, new, same_now, same_staged) in [
            (grants("out", "/a/out"), grants("out", "/a/out"), true, true),
            // By another path, as on another host or through a link.
            (grants("out", "/a/out"), grants("../out", "/a/out"), true, true),
            (grants("out", "/a/out"), grants("other", "/a/other"), false, false),
            // The project was moved along with what is staged.
            (grants("out", "/gone/out"), grants("out", "/a/out"), true, true),
            // The same words in another folder, and the old directory is there still.
            (grants("out", &there), grants("out", "/a/out"), true, false),
            (json!({"dirs": {"output": "out"}}), grants("out", "/a/out"), true, true),
            (json!({"dirs": {"output": "out"}}), grants("../out", "/a/out"), false, false),
            (grants("out", "/a/out"), json!({"dirs": {}, "at": {}}), false, false),
        ] {
            assert_eq!(same_directories(&old, &new, false), same_now, "{old} {new}");
            assert_eq!(same_directories(&old, &new, true), same_staged, "{old} {new}, staged");
        }
    }
}
