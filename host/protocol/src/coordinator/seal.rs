//! From what the tasks reported to a seal: everything that plugins and tasks say is checked here, once.

use std::collections::{BTreeMap, BTreeSet};

use super::running::{Barrier, Report};
use crate::event::{Consumer, Graph, Producer, SinkSpec, SourceProgress, TaskFailure};
use crate::history::{History, ResourceKey};
use crate::ids::{KeyRange, OperatorId, PartId, PipelineId, RunId, SinkId, SourceId};
use crate::plugin::{Call, CallFault, External, FaultKind, Prepared, WriterState};
use crate::positions::Positions;
use crate::record::{OperatorCut, PartCut, Seal, SinkCut, SourceCut};

/// What a seal is made from, besides the reports.
pub(super) struct Context<'a> {
    pub(super) pipeline: &'a PipelineId,
    pub(super) graph: &'a Graph,
    pub(super) history: &'a History,
    pub(super) fingerprint: &'a str,
    pub(super) run: RunId,
}

/// Makes the seal, or says what is wrong with the reports.
pub(super) fn build(context: &Context<'_>, barrier: &Barrier) -> Result<Seal, TaskFailure> {
    let before = context.history.newest_seal().and_then(|of| context.history.seal(of)).map(|epoch| &epoch.seal);
    let sources = join_sources(context, barrier, before)?;
    let operators = join_operators(context, barrier)?;
    let mut sinks = BTreeMap::new();
    for (sink, spec) in &context.graph.sinks {
        sinks.insert(sink.clone(), sink_cut(context, barrier, sink, spec, before)?);
    }
    check_sum(context.graph, barrier, &operators, &sinks)?;
    Ok(Seal {
        epoch: barrier.epoch,
        reason: barrier.reason.clone(),
        graph: context.fingerprint.to_owned(),
        sources,
        operators,
        sinks,
    })
}

fn host(message: String) -> TaskFailure {
    TaskFailure::Host(message)
}

fn join_sources(
    context: &Context<'_>,
    barrier: &Barrier,
    before: Option<&Seal>,
) -> Result<BTreeMap<SourceId, SourceCut>, TaskFailure> {
    // A source that is not in the graph now keeps its place: put back, it goes on where it stood.
    let quiet = |cut: &SourceCut| SourceCut { rows: 0, dead_lettered: 0, ..cut.clone() };
    let kept = before.into_iter().flat_map(|seal| &seal.sources).map(|(id, cut)| (id.clone(), quiet(cut)));
    let mut joined: BTreeMap<SourceId, SourceCut> = kept.collect();
    for id in context.graph.sources.keys() {
        let tasks: Vec<&SourceProgress> =
            barrier.sources.iter().filter(|((source, _), _)| source == id).map(|(_, progress)| progress).collect();
        let cut = join_tasks(id, &tasks, joined.get(id))?;
        joined.insert(id.clone(), cut);
    }
    Ok(joined)
}

/// A partition that nobody moved keeps its place, and time does not run backwards.
fn join_tasks(id: &SourceId, tasks: &[&SourceProgress], before: Option<&SourceCut>) -> Result<SourceCut, TaskFailure> {
    let spent = || host(format!("source `{id}` counted more rows than there are numbers"));
    let (mut rows, mut dead_lettered) = (0u64, 0u64);
    for task in tasks {
        rows = rows.checked_add(task.rows).ok_or_else(spent)?;
        dead_lettered = dead_lettered.checked_add(task.dead_lettered).ok_or_else(spent)?;
    }
    // The slowest task counts; one that has not seen any event time holds the watermark back.
    let marks = tasks.iter().map(|task| task.watermark).collect::<Option<Vec<i64>>>();
    let watermark = marks.and_then(|marks| marks.into_iter().min());
    let moved = tasks.iter().flat_map(|task| &task.moved).map(|(name, at)| (name.clone(), at.clone()));
    let none = Positions::new();
    Ok(SourceCut {
        partitions: before.map_or(&none, |before| &before.partitions).advanced(moved),
        ended: tasks.iter().all(|task| task.ended),
        watermark: watermark.max(before.and_then(|before| before.watermark)),
        rows,
        dead_lettered,
        schema: tasks
            .iter()
            .filter_map(|task| task.schema.as_ref())
            .max_by_key(|told| told.revision)
            .map(|told| told.text.clone()),
    })
}

fn join_operators(
    context: &Context<'_>,
    barrier: &Barrier,
) -> Result<BTreeMap<OperatorId, Vec<OperatorCut>>, TaskFailure> {
    let mut joined = BTreeMap::new();
    for id in context.graph.operators.keys() {
        let cuts: Vec<OperatorCut> =
            barrier.operators.iter().filter(|((operator, _), _)| operator == id).map(|(_, cut)| cut.clone()).collect();
        if !KeyRange::complete(cuts.iter().map(|cut| cut.range)) {
            return Err(host(format!("the subtasks of operator `{id}` do not own each key once")));
        }
        joined.insert(id.clone(), cuts);
    }
    Ok(joined)
}

fn sink_cut(
    context: &Context<'_>,
    barrier: &Barrier,
    sink: &SinkId,
    spec: &SinkSpec,
    before: Option<&Seal>,
) -> Result<SinkCut, TaskFailure> {
    let ranges = KeyRange::split(spec.participants);
    let old = before.and_then(|seal| seal.sinks.get(sink));
    let mut parts = Vec::new();
    for (ordinal, range) in (0u32..).zip(ranges) {
        let Some(report) = barrier.parts.get(&(sink.clone(), ordinal)) else {
            return Err(host(format!("participant {ordinal} of sink `{sink}` has not prepared")));
        };
        let part = match &report.prepared {
            Some(prepared) => {
                let checks = Checks { context, barrier, sink, spec, ordinal };
                checks.prepared(report, prepared)?;
                filled(ordinal, range, report, prepared, old)
            }
            // Nothing of it was left for the plugin.
            None if report.filtered.checked_add(report.rejected_in_write) == Some(report.rows_in) => {
                empty(ordinal, range, report, old)
            }
            None => {
                let rows = report.rows_in;
                return Err(host(format!(
                    "participant {ordinal} of sink `{sink}` took {rows} rows and did not prepare"
                )));
            }
        };
        parts.push(part);
    }
    Ok(SinkCut { binding: spec.binding.clone(), parts })
}

fn filled(ordinal: u32, range: KeyRange, report: &Report, prepared: &Prepared, old: Option<&SinkCut>) -> PartCut {
    // A plugin that answers without state has none to change: the old one stays, with what it speaks of.
    let (state, kept) = match &prepared.state {
        Some(state) => (vec![state.clone()], Vec::new()),
        None => kept(range, old),
    };
    let mut resources = prepared.resources.clone();
    resources.extend(kept.into_iter().filter(|old| !prepared.resources.contains(old)));
    PartCut {
        ordinal,
        range,
        committable: Some(prepared.committable.clone()),
        resources,
        state,
        rows_in: report.rows_in,
        rows: prepared.rows,
        rejected: report.rows_in.saturating_sub(prepared.rows).saturating_sub(report.filtered),
        filtered: report.filtered,
    }
}

fn empty(ordinal: u32, range: KeyRange, report: &Report, old: Option<&SinkCut>) -> PartCut {
    let (state, resources) = kept(range, old);
    PartCut {
        ordinal,
        range,
        committable: None,
        resources,
        state,
        rows_in: report.rows_in,
        rows: 0,
        rejected: report.rejected_in_write,
        filtered: report.filtered,
    }
}

/// What is known of the range's keys, and the resources that it may speak of: they are pinned as long as it is kept (P5).
/// A part that has no state keeps nothing alive.
fn kept(range: KeyRange, old: Option<&SinkCut>) -> (Vec<WriterState>, Vec<External>) {
    let Some(old) = old else { return (Vec::new(), Vec::new()) };
    let speaks = |part: &&PartCut| {
        let owned = part.range.shared(range);
        owned.is_some_and(|owned| part.state.iter().any(|state| state.range.overlaps(owned)))
    };
    let mut resources: Vec<External> = Vec::new();
    for resource in old.parts.iter().filter(speaks).flat_map(|part| &part.resources) {
        if !resources.contains(resource) {
            resources.push(resource.clone());
        }
    }
    (old.writer_states(range), resources)
}

fn malformed(sink: &SinkId, spec: &SinkSpec, ordinal: u32, message: &str) -> TaskFailure {
    let message = format!("participant {ordinal}: {message}");
    let fault = CallFault::new(&spec.binding.plugin_name, Call::Prepare, FaultKind::Malformed, message);
    TaskFailure::Plugin(sink.clone(), fault)
}

/// What is wrong with an answer at the time at which it comes: from then on what it names is pinned (P5), and what was given
/// up before may be going already.
pub(super) fn names_what_was_given_up(
    history: &History,
    sink: &SinkId,
    spec: &SinkSpec,
    ordinal: u32,
    prepared: &Prepared,
) -> Option<TaskFailure> {
    let given_up = |resource: &&External| history.is_given_up(&ResourceKey::of(sink, resource));
    let name = &prepared.resources.iter().find(given_up)?.name;
    Some(malformed(sink, spec, ordinal, &format!("it names `{name}`, which was given up to be released")))
}

/// What a plugin answered to prepare, against what it was asked.
struct Checks<'a> {
    context: &'a Context<'a>,
    barrier: &'a Barrier,
    sink: &'a SinkId,
    spec: &'a SinkSpec,
    ordinal: u32,
}

impl Checks<'_> {
    fn malformed(&self, message: String) -> TaskFailure {
        malformed(self.sink, self.spec, self.ordinal, &message)
    }

    fn prepared(&self, report: &Report, prepared: &Prepared) -> Result<(), TaskFailure> {
        self.part(&prepared.committable.part)?;
        self.rows(report, prepared)?;
        let version = prepared.committable.version;
        if !self.spec.committable_versions.contains(&version) {
            let own = &self.spec.committable_versions;
            return Err(self.malformed(format!("its committable has version {version}, it can finish {own:?}")));
        }
        for resource in &prepared.resources {
            if resource.name.is_empty() || resource.kind.is_empty() {
                return Err(self.malformed("it names a resource without kind or name".to_owned()));
            }
        }
        if let Some(state) = &prepared.state {
            let own = KeyRange::split(self.spec.participants);
            if own.get(self.ordinal as usize) != Some(&state.range) {
                return Err(self.malformed("its state speaks of keys that it does not own".to_owned()));
            }
        }
        Ok(())
    }

    /// Its name holds the participant, so no two participants can name the same one.
    fn part(&self, part: &PartId) -> Result<(), TaskFailure> {
        let Context { pipeline, run, .. } = self.context;
        let epoch = self.barrier.epoch;
        let right =
            part.attempt > 0 && *part == PartId::mint(pipeline, self.sink, *run, epoch, self.ordinal, part.attempt);
        if !right {
            return Err(self.malformed(format!("its committable names part `{part}`, which is not the one it wrote")));
        }
        Ok(())
    }

    fn rows(&self, report: &Report, prepared: &Prepared) -> Result<(), TaskFailure> {
        let rejected = report.rejected_in_write.checked_add(prepared.rejects.len() as u64);
        let sum = rejected.and_then(|rejected| rejected.checked_add(prepared.rows)?.checked_add(report.filtered));
        if sum != Some(report.rows_in) {
            return Err(self.malformed(format!(
                "it was given {} rows and accounts for {} staged, {} rejected in write and {} rejected in prepare",
                report.rows_in.saturating_sub(report.filtered),
                prepared.rows,
                report.rejected_in_write,
                prepared.rejects.len()
            )));
        }
        if prepared.committable.rows != prepared.rows {
            let (promised, staged) = (prepared.committable.rows, prepared.rows);
            return Err(self.malformed(format!("its committable promises {promised} rows, and {staged} are staged")));
        }
        let mut rejected = BTreeSet::new();
        let impossible =
            prepared.rejects.iter().find(|reject| reject.row >= report.rows_in || !rejected.insert(reject.row));
        match impossible {
            Some(reject) => {
                Err(self.malformed(format!("it rejects row {}, which is not there or rejected twice", reject.row)))
            }
            None => Ok(()),
        }
    }
}

/// P12: what the sources handed on arrived at every consumer, and what was rejected arrived at the dead-letter sink. That
/// rows in are rows staged, rejected and filtered is checked part by part.
fn check_sum(
    graph: &Graph,
    barrier: &Barrier,
    operators: &BTreeMap<OperatorId, Vec<OperatorCut>>,
    sinks: &BTreeMap<SinkId, SinkCut>,
) -> Result<(), TaskFailure> {
    let mut handed_on: BTreeMap<Producer, u128> = BTreeMap::new();
    for ((source, _), cut) in &barrier.sources {
        *handed_on.entry(Producer::Source(source.clone())).or_default() += u128::from(cut.rows);
    }
    for (operator, cuts) in operators {
        let rows = cuts.iter().map(|cut| u128::from(cut.rows_out)).sum();
        handed_on.insert(Producer::Operator(operator.clone()), rows);
    }
    let everything: BTreeSet<Producer> = graph.sources.keys().cloned().map(Producer::Source).collect();
    let due = |consumer: &Consumer| -> u128 {
        let from = graph.wiring.get(consumer).unwrap_or(&everything);
        from.iter().map(|producer| handed_on.get(producer).copied().unwrap_or(0)).sum()
    };
    for (operator, cuts) in operators {
        let taken: u128 = cuts.iter().map(|cut| u128::from(cut.rows_in)).sum();
        same(&format!("operator `{operator}`"), due(&Consumer::Operator(operator.clone())), taken)?;
    }
    let mut rejected: u128 = barrier.sources.values().map(|cut| u128::from(cut.dead_lettered)).sum();
    for (sink, cut) in sinks.iter().filter(|(sink, _)| !graph.sinks[*sink].dead_letter) {
        let taken: u128 = cut.parts.iter().map(|part| u128::from(part.rows_in)).sum();
        same(&format!("sink `{sink}`"), due(&Consumer::Sink(sink.clone())), taken)?;
        rejected += cut.parts.iter().map(|part| u128::from(part.rejected)).sum::<u128>();
    }
    check_dead_letters(graph, sinks, rejected)
}

fn check_dead_letters(graph: &Graph, sinks: &BTreeMap<SinkId, SinkCut>, rejected: u128) -> Result<(), TaskFailure> {
    let mut letters = sinks.iter().filter(|(sink, _)| graph.sinks[*sink].dead_letter).peekable();
    if letters.peek().is_none() && rejected > 0 {
        let message = format!(
            "{rejected} rows were rejected and there is no dead-letter sink to hold them; mend the rows or add one"
        );
        return Err(TaskFailure::BadRow { message });
    }
    for (sink, cut) in letters {
        let taken: u128 = cut.parts.iter().map(|part| u128::from(part.rows_in)).sum();
        same(&format!("dead-letter sink `{sink}`"), rejected, taken)?;
        if cut.parts.iter().any(|part| part.rejected > 0) {
            let message = format!("the dead-letter sink `{sink}` rejected rows: there is nowhere left to put them");
            return Err(TaskFailure::BadRow { message });
        }
    }
    Ok(())
}

fn same(who: &str, due: u128, taken: u128) -> Result<(), TaskFailure> {
    if due == taken {
        return Ok(());
    }
    Err(host(format!("the row sum does not hold: {due} rows were due at {who} and {taken} arrived")))
}

/// Sinks at which something is dropped by the destination before the checkpoint that names it is `horizon` milliseconds
/// old, each with the first such thing in words.
pub(super) fn short_lives(seal: &Seal, now: u64, horizon: u64) -> Vec<(SinkId, String)> {
    let until = now.saturating_add(horizon);
    let mut warnings = Vec::new();
    for (sink, cut) in &seal.sinks {
        let things = cut.parts.iter().flat_map(|part| {
            let own = part.committable.iter().filter_map(|c| Some((c.part.short.as_str(), c.expires_at?)));
            own.chain(part.resources.iter().filter_map(|r| Some((r.name.as_str(), r.expires_at?))))
        });
        if let Some((name, expires)) = things.min_by_key(|(_, expires)| *expires).filter(|(_, at)| *at <= until) {
            let message = format!(
                "sink `{sink}`: the destination drops `{name}` of epoch {} after {} ms, and checkpoints are kept for {horizon} \
                 ms: restored later, it finds nothing there; let the destination keep it for longer",
                seal.epoch,
                expires.saturating_sub(now)
            );
            warnings.push((sink.clone(), message));
        }
    }
    warnings
}
