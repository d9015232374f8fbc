//! One record at a time into the log.
//!
//! Whoever creates record n+1 has read record n: so there is never more than one append under way, and whatever is in a
//! slot that should have been ours decides.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Coordinator, Phase};
use crate::event::{AppendResult, Effect, End, Notice, Timer};
use crate::history::{History, ResourceKey};
use crate::ids::{EpochRef, PartId, RunId, SinkId, Slot};
use crate::plugin::{ErrorKind, External, PluginError};
use crate::record::{Body, Bound, Intent, Record};

/// More announcements than this may not wait; a plugin that hurries is told to come again.
const MAX_QUEUED: usize = 256;

/// What waits for the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Appender {
    in_flight: Option<Record>,
    /// The append wrote nothing and is tried again when the timer fires.
    retrying: bool,
    failures: u32,
    queue: VecDeque<(RunId, Body)>,
    next_intent: u64,
    /// Requests of the driver that are answered when the intent, or its name, is durable.
    requests: BTreeMap<u64, u64>,
    names: VecDeque<(u64, u64)>,
}

impl Appender {
    pub(super) fn new(history: &History) -> Self {
        Self {
            in_flight: None,
            retrying: false,
            failures: 0,
            queue: VecDeque::new(),
            next_intent: history.next_intent(),
            requests: BTreeMap::new(),
            names: VecDeque::new(),
        }
    }

    /// Nothing is under way and nothing waits.
    pub(super) fn idle(&self) -> bool {
        self.in_flight.is_none() && self.queue.is_empty()
    }

    /// The log has been asked and has not answered.
    pub(super) fn asked(&self) -> bool {
        self.in_flight.is_some() && !self.retrying
    }

    pub(super) fn clear_queue(&mut self) {
        self.queue.clear();
    }
}

impl Coordinator {
    /// Queues a record of this run.
    pub(super) fn record(&mut self, body: Body) {
        if let Some(run) = self.run {
            self.append.queue.push_back((run, body));
        }
    }

    pub(super) fn go_on_appending(&mut self) {
        if self.append.in_flight.is_some() {
            return;
        }
        let Some((run, body)) = self.append.queue.pop_front() else { return };
        // Only the run that the log knows as the newest may speak of outcomes.
        let outcomes =
            if self.history.newest_run() == Some(run) { std::mem::take(&mut self.unrecorded) } else { Vec::new() };
        let record = Record { slot: self.history.next_slot(), run, written_at: self.now, outcomes, body };
        if let Err(error) = self.history.check_shared(&record) {
            // A fault of this crate. What is in the log stays there, so it must not get there.
            return self
                .end(End::StoreFailed(format!("the run would write a record that contradicts the log: {error}")));
        }
        self.append.in_flight = Some(record.clone());
        self.emit(Effect::Append { record: Box::new(record) });
    }

    pub(super) fn on_appended(&mut self, slot: Slot, result: AppendResult) {
        if !self.append.asked() || self.append.in_flight.as_ref().is_none_or(|record| record.slot != slot) {
            return;
        }
        match result {
            AppendResult::Created => self.on_created(),
            AppendResult::Taken(found) if Some(&*found) == self.append.in_flight.as_ref() => self.on_created(),
            AppendResult::Taken(found) => {
                let message = format!("record {slot} of the log was created by run {}", found.run);
                self.end(End::Superseded(message));
            }
            AppendResult::Unknown(message) => {
                // The record may be there. Nothing of this epoch is given back: the next run will read the slot, or
                // take it with its own `open` record, and only then decide.
                self.end(End::StoreFailed(message));
            }
            AppendResult::NotWritten { message, retryable } => self.on_not_written(message, retryable),
        }
        if self.ending.is_some() && self.append.asked() {
            self.append.in_flight = None;
            self.append.queue.clear();
        }
    }

    fn on_not_written(&mut self, message: String, retryable: bool) {
        self.append.failures = self.append.failures.saturating_add(1);
        if !retryable || self.settings.spent(self.append.failures) || self.ending.is_some() {
            self.end(End::StoreFailed(message));
            return;
        }
        self.append.retrying = true;
        self.warn(format!("the log could not be written and is tried again: {message}"));
        let millis = self.settings.backoff(self.append.failures);
        self.emit(Effect::Wait { timer: Timer::AppendRetry, millis });
    }

    pub(super) fn on_append_retry(&mut self) {
        if !self.append.retrying {
            return;
        }
        self.append.retrying = false;
        if let Some(record) = self.append.in_flight.clone() {
            self.emit(Effect::Append { record: Box::new(record) });
        }
    }

    fn on_created(&mut self) {
        let Some(record) = self.append.in_flight.take() else { return };
        self.append.failures = 0;
        if let Err(error) = Arc::make_mut(&mut self.history).apply(&record) {
            // The log holds a record that it cannot hold: a fault of this crate. Going on would build on it.
            self.end(End::StoreFailed(format!("the run wrote a record that contradicts the log: {error}")));
            return;
        }
        match record.body {
            Body::Open(open) => self.on_opened(record.run, open.parent),
            Body::Seal(_) => self.on_sealed(record.run),
            Body::Intent(intent) => self.on_intent_durable(intent.number),
            Body::Bound(_) => self.on_name_durable(),
            Body::Retire(_) => self.on_retired(),
            Body::Released(_) | Body::Deleted(_) => self.on_cleaned_record(&record.body),
            Body::Finished(_) => self.end(End::Finished),
            Body::Forget(forget) => self.on_forgotten(&forget.name),
            Body::Outcomes | Body::Decision(_) | Body::Savepoint(_) => {}
        }
    }

    fn on_opened(&mut self, run: RunId, from: Option<EpochRef>) {
        self.notice(Notice::RunOpened { run, from });
        self.begin_fencing();
    }

    pub(super) fn on_intent_announced(&mut self, request: u64, sink: SinkId, part: Option<PartId>, resource: External) {
        if let Err(error) = self.check_intent(&sink, part.as_ref(), &resource) {
            self.emit(Effect::IntentRecorded { request, result: Err(error) });
            return;
        }
        let number = self.append.next_intent;
        self.append.next_intent = number.saturating_add(1);
        self.append.requests.insert(number, request);
        let epoch = part.as_ref().map_or(self.writing.epoch, |part| part.epoch);
        self.record(Body::Intent(Intent { number, sink, part: part.map(|part| part.short), epoch, resource }));
    }

    fn check_intent(&self, sink: &SinkId, part: Option<&PartId>, resource: &External) -> Result<(), PluginError> {
        let refuse = |kind, code: &str, message: String| Err(PluginError { kind, code: code.to_owned(), message });
        if !self.alive() || !matches!(self.phase, Phase::OpeningTasks | Phase::Running) {
            return refuse(ErrorKind::EpochLost, "not-writing", "the run is not writing any epoch".to_owned());
        }
        if !self.graph.sinks.contains_key(sink) {
            return refuse(ErrorKind::Denied, "unknown-sink", format!("there is no sink `{sink}`"));
        }
        if let Some(part) = part
            && PartId::from_short(&self.pipeline, sink, &part.short).as_ref() != Some(part)
        {
            let message = format!("`{part}` is not the name of a part of sink `{sink}`");
            return refuse(ErrorKind::Denied, "foreign-part", message);
        }
        if part.is_some_and(|part| Some(part.run) != self.run || part.epoch < self.writing.epoch_open_for_intents()) {
            return refuse(ErrorKind::EpochLost, "not-writing", "that part is not being written any more".to_owned());
        }
        if self.history.is_given_up(&ResourceKey::of(sink, resource)) {
            let message = format!("`{}` was given up before; names are never used again", resource.name);
            return refuse(ErrorKind::Denied, "name-reused", message);
        }
        if self.append.queue.len() >= MAX_QUEUED {
            return refuse(ErrorKind::Retryable, "busy", "too many announcements wait for the log".to_owned());
        }
        Ok(())
    }

    pub(super) fn on_intent_bound(&mut self, request: u64, number: u64, name: String) {
        let known = self.history.intents().get(&number).filter(|intent| Some(intent.run) == self.run);
        let waits = self.append.names.iter().any(|(waiting, _)| *waiting == number);
        let error = match known {
            _ if !self.alive() => Some((ErrorKind::EpochLost, "the run is over".to_owned())),
            Some(intent) if intent.bound && intent.resource.name == name => {
                self.emit(Effect::IntentRecorded { request, result: Ok(number) });
                return;
            }
            Some(intent) if !intent.bound && !waits => {
                let key =
                    ResourceKey { sink: intent.sink.clone(), kind: intent.resource.kind.clone(), name: name.clone() };
                let reused = self.history.is_given_up(&key);
                reused.then(|| (ErrorKind::Denied, format!("`{name}` was given up before; names are never used again")))
            }
            _ => Some((ErrorKind::Denied, format!("intent {number} does not wait for a name"))),
        };
        if let Some((kind, message)) = error {
            let error = PluginError { kind, code: "not-bound".to_owned(), message };
            self.emit(Effect::IntentRecorded { request, result: Err(error) });
            return;
        }
        self.append.names.push_back((number, request));
        self.record(Body::Bound(Bound { number, name }));
    }

    fn on_intent_durable(&mut self, number: u64) {
        if let Some(request) = self.append.requests.remove(&number) {
            self.emit(Effect::IntentRecorded { request, result: Ok(number) });
        }
    }

    fn on_name_durable(&mut self) {
        if let Some((number, request)) = self.append.names.pop_front() {
            self.emit(Effect::IntentRecorded { request, result: Ok(number) });
        }
    }
}
