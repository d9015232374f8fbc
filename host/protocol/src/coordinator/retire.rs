//! Retention: retire, release, delete; each step durable before the next.
//!
//! Only when `retire` is in the log may a resource go: a checkpoint that can still be restored never finds it missing.

use std::collections::BTreeMap;

use super::cleanup::Why;
use super::commit::Lane;
use super::{Coordinator, Phase};
use crate::event::{Effect, End, Timer};
use crate::fault::Remedy;
use crate::ids::{SinkId, Slot};
use crate::plugin::{CallFault, External, Outcome};
use crate::record::{Body, Deleted, Released, Retire};

/// So many resources go into one call.
const RESOURCES_PER_CALL: usize = 256;

/// Where retention is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Retiring {
    stage: Stage,
    /// Still there although the log gave them up: the deletion was cut short.
    leftovers: Vec<Slot>,
    /// Resources may be waiting from an older run.
    begun: bool,
    sinks: BTreeMap<SinkId, Release>,
    /// Records on their way into the log.
    recording: u32,
    deleting: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    /// The `retire` record is on its way.
    Retiring,
    Releasing,
    /// `released` records are on their way.
    Noting,
    /// The `deleted` record is on its way.
    Deleting,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Release {
    todo: Vec<External>,
    asked: Vec<External>,
    gone: Vec<External>,
    waiting: bool,
    failures: u32,
}

impl Release {
    /// The call for what is under way.
    fn ask(&self, sink: &SinkId) -> Effect {
        let (resources, attempt) = (self.asked.clone(), self.failures.saturating_add(1));
        Effect::Release { sink: sink.clone(), resources, attempt }
    }
}

impl Retiring {
    pub(super) fn new(leftovers: Vec<Slot>) -> Self {
        Self { stage: Stage::Idle, leftovers, begun: false, sinks: BTreeMap::new(), recording: 0, deleting: Vec::new() }
    }
}

impl Coordinator {
    pub(super) fn go_on_retiring(&mut self) {
        if !self.alive() || self.phase != Phase::Running {
            return;
        }
        if !self.retiring.begun {
            self.retiring.begun = true;
            let slots = std::mem::take(&mut self.retiring.leftovers);
            if !slots.is_empty() {
                self.emit(Effect::DeleteRecords { slots });
            }
            self.begin_releasing();
        }
        match self.retiring.stage {
            Stage::Idle => self.retire_when_due(),
            Stage::Releasing => self.go_on_releasing(),
            Stage::Retiring | Stage::Noting | Stage::Deleting => {}
        }
    }

    fn retire_when_due(&mut self) {
        // A run that is about to end leaves it to the next one.
        if self.writing.last_cut.is_some() || self.writing.stopping {
            return;
        }
        let count = self.settings.retain_count.max(1);
        let of = self.history.retirable(count, self.settings.retain_age_ms, self.now);
        let enough = (count as usize / 2).max(1);
        // A commit under way does not share log and destination with this, unless there always is one.
        let quiet = self.lanes.values().all(Lane::is_empty);
        if of.len() >= if quiet { enough } else { enough.saturating_mul(2) } {
            self.retiring.stage = Stage::Retiring;
            self.record(Body::Retire(Retire { of }));
        }
    }

    pub(super) fn on_retired(&mut self) {
        self.begin_releasing();
    }

    fn begin_releasing(&mut self) {
        self.retiring.stage = Stage::Releasing;
        self.retiring.sinks.clear();
        for sink in self.graph.sinks.keys() {
            let pinned = |resource: &External| {
                let mut prepared = self.writing.prepared().filter(|(at, _)| *at == sink);
                prepared.any(|(_, p)| p.resources.iter().any(|r| r.kind == resource.kind && r.name == resource.name))
            };
            let todo: Vec<External> =
                self.history.ledger().releasable(sink).into_iter().filter(|resource| !pinned(resource)).collect();
            if !todo.is_empty() {
                self.retiring.sinks.insert(sink.clone(), Release { todo, ..Release::default() });
            }
        }
        self.go_on_releasing();
    }

    fn go_on_releasing(&mut self) {
        for (sink, release) in &mut self.retiring.sinks {
            if release.asked.is_empty() && !release.todo.is_empty() {
                let count = release.todo.len().min(RESOURCES_PER_CALL);
                release.asked = release.todo.drain(..count).collect();
                self.out.push(release.ask(sink));
            }
        }
        let done = |release: &Release| release.asked.is_empty() && release.todo.is_empty();
        if self.retiring.sinks.values().all(done) {
            self.note_released();
        }
    }

    pub(super) fn on_release_answered(&mut self, sink: &SinkId, result: Result<Vec<Outcome>, CallFault>) {
        let Some(release) = self.retiring.sinks.get_mut(sink) else { return };
        if release.asked.is_empty() || release.waiting {
            return;
        }
        let outcomes = match result {
            Ok(outcomes) if outcomes.len() == release.asked.len() => outcomes,
            Ok(outcomes) => {
                let message = format!("{} outcomes came for {} resources", outcomes.len(), release.asked.len());
                return self.release_failed(sink, Why::Words(message));
            }
            Err(fault) if fault.remedy() == Remedy::NotOffered => {
                vec![Outcome::Unsupported; release.asked.len()]
            }
            Err(fault) => return self.release_failed(sink, Why::Fault(fault)),
        };
        let mut refused = 0usize;
        for (resource, outcome) in std::mem::take(&mut release.asked).into_iter().zip(outcomes) {
            match outcome {
                // A plugin that releases nothing leaves nothing that would have to be released.
                Outcome::Committed | Outcome::AlreadyCommitted | Outcome::Unsupported => release.gone.push(resource),
                Outcome::Fenced => {
                    return self.end(End::Superseded(format!("sink `{sink}` was fenced by a newer run")));
                }
                Outcome::NotCommitted | Outcome::Retry(_) | Outcome::Unknown => release.asked.push(resource),
                Outcome::Never | Outcome::Rejected(_) => refused += 1,
            }
        }
        let again = !release.asked.is_empty();
        if !again {
            release.failures = 0;
        }
        if refused > 0 {
            self.warn(format!("sink `{sink}`: {refused} resources of retired checkpoints could not be released"));
        }
        if again {
            self.release_failed(sink, Why::Words("resources are not released yet".to_owned()));
        }
    }

    fn release_failed(&mut self, sink: &SinkId, why: Why) {
        if why.remedy() == Remedy::Superseded {
            return self.end(End::Superseded(format!("sink `{sink}`: {why}")));
        }
        let Some(release) = self.retiring.sinks.get_mut(sink) else { return };
        release.failures = release.failures.saturating_add(1);
        let failures = release.failures;
        if why.is_hopeless() || self.settings.spent(failures) {
            release.asked.clear();
            release.todo.clear();
            self.warn(format!("sink `{sink}`: resources of retired checkpoints are not released yet: {why}"));
            return;
        }
        release.waiting = true;
        self.tell_lasting(sink, why, failures);
        let millis = self.settings.backoff(failures);
        self.emit(Effect::Wait { timer: Timer::CleanUpRetry(sink.clone()), millis });
    }

    pub(super) fn on_release_retry(&mut self, sink: &SinkId) {
        let Some(release) = self.retiring.sinks.get_mut(sink).filter(|release| release.waiting) else { return };
        release.waiting = false;
        if self.ending.is_none() {
            self.out.push(release.ask(sink));
        }
    }

    fn note_released(&mut self) {
        self.retiring.stage = Stage::Noting;
        for (sink, release) in std::mem::take(&mut self.retiring.sinks) {
            if !release.gone.is_empty() {
                self.retiring.recording += 1;
                self.record(Body::Released(Released { sink, resources: release.gone }));
            }
        }
        if self.retiring.recording == 0 {
            self.give_up_records();
        }
    }

    fn give_up_records(&mut self) {
        self.retiring.stage = Stage::Idle;
        let (gone, added) = self.history.expendable();
        let seals = added.iter().any(|slot| self.history.checkpoints().any(|epoch| epoch.slot == *slot));
        if seals {
            self.retiring.stage = Stage::Deleting;
            self.retiring.deleting = added;
            self.record(Body::Deleted(Deleted { gone }));
        }
    }

    /// A `released` or `deleted` record is durable.
    pub(super) fn on_cleaned_record(&mut self, body: &Body) {
        match (body, self.retiring.stage) {
            (Body::Released(_), Stage::Noting) => {
                self.retiring.recording = self.retiring.recording.saturating_sub(1);
                if self.retiring.recording == 0 {
                    self.give_up_records();
                }
            }
            (Body::Deleted(_), Stage::Deleting) => {
                self.retiring.stage = Stage::Idle;
                let slots = std::mem::take(&mut self.retiring.deleting);
                self.emit(Effect::DeleteRecords { slots });
            }
            _ => {}
        }
    }
}
