//! Giving back what older runs staged and never sealed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::{Coordinator, Phase};
use crate::event::{Effect, End, Notice, Timer};
use crate::fault::Remedy;
use crate::history::{IntentState, OrphanStanding};
use crate::ids::{PartId, SinkHash, SinkId};
use crate::plugin::{CallFault, External, Orphan, OrphanPage, Orphans, Outcome, Unsealed};
use crate::record::{Body, Released};

/// So many parts go into one call.
const PARTS_PER_CALL: usize = 128;
/// A listing that does not come to an end is left for the next sweep.
const PAGES_PER_SWEEP: u32 = 10_000;

/// Clean up at one sink.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Janitor {
    listing: Listing,
    pages: u32,
    todo: VecDeque<Unsealed>,
    /// Under way.
    asked: Vec<Unsealed>,
    waiting: bool,
    failures: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum Listing {
    #[default]
    Done,
    /// A page is wanted.
    Next(Option<String>),
    /// A page was asked for.
    Asked(Option<String>),
}

/// Why clean up did not get on.
pub(super) enum Why {
    /// The call failed.
    Fault(CallFault),
    /// It was answered, and that was not enough.
    Words(String),
}

impl Why {
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::Fault(fault) => fault.remedy(),
            Self::Words(_) => Remedy::Again,
        }
    }

    pub(super) fn is_hopeless(&self) -> bool {
        matches!(self, Self::Fault(fault) if fault.is_hopeless())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fault(fault) => fault.fmt(f),
            Self::Words(words) => f.write_str(words),
        }
    }
}

impl Janitor {
    /// Nothing to do and nothing under way.
    pub(super) fn at_rest(&self) -> bool {
        self.listing == Listing::Done && self.todo.is_empty() && self.asked.is_empty()
    }

    /// The call for what is under way.
    fn abandon(&self, sink: &SinkId) -> Effect {
        let (parts, attempt) = (self.asked.clone(), self.failures.saturating_add(1));
        Effect::Abandon { sink: sink.clone(), parts, attempt }
    }
}

impl Coordinator {
    pub(super) fn begin_cleaning(&mut self) {
        let mut kept = Vec::new();
        for (sink, janitor) in &mut self.janitors {
            let (left, elsewhere) = self.history.announced_and_unsealed(&self.pipeline, sink);
            janitor.todo.extend(left);
            kept.push((sink.clone(), elsewhere.len()));
        }
        kept.into_iter().for_each(|(sink, parts)| self.tell_kept(&sink, parts));
        self.begin_listing();
        self.go_on_cleaning();
    }

    fn begin_listing(&mut self) {
        for (sink, janitor) in &mut self.janitors {
            let lists = self.graph.sinks.get(sink).is_some_and(|spec| spec.abilities.orphans == Orphans::Listable);
            if lists && janitor.at_rest() {
                janitor.listing = Listing::Next(None);
                janitor.pages = 0;
            }
        }
    }

    /// A sleeper of an older run may stage after the first look.
    pub(super) fn on_sweep(&mut self) {
        if self.phase == Phase::Running && self.alive() {
            self.begin_listing();
            self.emit(Effect::Wait { timer: Timer::Sweep, millis: self.settings.sweep_ms });
        }
    }

    pub(super) fn go_on_cleaning(&mut self) {
        if !self.alive() || !matches!(self.phase, Phase::Cleaning | Phase::Running) {
            return;
        }
        for (sink, janitor) in &mut self.janitors {
            if janitor.waiting || !janitor.asked.is_empty() || matches!(janitor.listing, Listing::Asked(_)) {
                continue;
            }
            if !janitor.todo.is_empty() {
                let count = janitor.todo.len().min(PARTS_PER_CALL);
                janitor.asked = janitor.todo.drain(..count).collect();
                self.out.push(janitor.abandon(sink));
            } else if let Listing::Next(page) = janitor.listing.clone() {
                janitor.listing = Listing::Asked(page.clone());
                let prefix = SinkHash::of(&self.pipeline, sink).prefix();
                self.out.push(Effect::ListOrphans { sink: sink.clone(), prefix, page });
            }
        }
        self.go_on_starting();
    }

    pub(super) fn on_orphans_listed(&mut self, sink: &SinkId, result: Result<OrphanPage, CallFault>) {
        let Some(mut janitor) = self.janitors.remove(sink) else { return };
        self.read_listing(sink, &mut janitor, result);
        self.janitors.insert(sink.clone(), janitor);
    }

    fn read_listing(&mut self, sink: &SinkId, janitor: &mut Janitor, result: Result<OrphanPage, CallFault>) {
        let Listing::Asked(asked) = janitor.listing.clone() else { return };
        match result {
            Ok(page) => {
                janitor.failures = 0;
                janitor.pages = janitor.pages.saturating_add(1);
                let endless = janitor.pages >= PAGES_PER_SWEEP || (page.next.is_some() && page.next == asked);
                janitor.listing = match page.next {
                    Some(next) if !endless => Listing::Next(Some(next)),
                    _ => Listing::Done,
                };
                if endless {
                    self.warn(format!("sink `{sink}`: the listing of orphans did not come to an end"));
                }
                self.sort_orphans(sink, janitor, page.orphans);
            }
            Err(fault) => {
                janitor.listing = Listing::Next(asked);
                if !self.clean_up_failed(sink, janitor, Why::Fault(fault)) {
                    janitor.listing = Listing::Done;
                }
            }
        }
    }

    /// Removes what is ours, of an older run, and certainly unsealed. Everything else is left, and reported where a
    /// person could wonder.
    fn sort_orphans(&mut self, sink: &SinkId, janitor: &mut Janitor, orphans: Vec<Orphan>) {
        let mut found: BTreeMap<PartId, Vec<External>> = BTreeMap::new();
        let (mut strange, mut elsewhere) = (0usize, BTreeSet::new());
        for orphan in orphans {
            match self.history.orphan(&self.pipeline, sink, &orphan) {
                OrphanStanding::Unsealed(part) => found.entry(part).or_default().push(orphan.resource),
                OrphanStanding::Foreign => strange += 1,
                OrphanStanding::Elsewhere(part) => drop(elsewhere.insert(part)),
                OrphanStanding::Named | OrphanStanding::Newest(_) | OrphanStanding::Sealed(_) => {}
            }
        }
        if strange > 0 {
            self.warn(format!(
                "sink `{sink}`: {strange} staged things carry no name of a run that this log knows; they are left alone"
            ));
        }
        self.tell_kept(sink, elsewhere.len());
        let parts = found.into_iter().map(|(part, resources)| Unsealed { part, committable: None, resources });
        janitor.todo.extend(parts);
    }

    fn tell_kept(&mut self, sink: &SinkId, parts: usize) {
        if parts > 0 {
            self.warn(format!(
                "sink `{sink}`: {parts} staged parts may have been sealed and committed before somebody accepted that the \
                 destination has more than this log: they are not given back; see `tidegate orphans list`"
            ));
        }
    }

    pub(super) fn on_abandoned(&mut self, sink: &SinkId, result: Result<Vec<Outcome>, CallFault>) {
        let Some(mut janitor) = self.janitors.remove(sink) else { return };
        self.read_abandoned(sink, &mut janitor, result);
        self.janitors.insert(sink.clone(), janitor);
    }

    fn read_abandoned(&mut self, sink: &SinkId, janitor: &mut Janitor, result: Result<Vec<Outcome>, CallFault>) {
        if janitor.asked.is_empty() || janitor.waiting {
            return;
        }
        let asked = std::mem::take(&mut janitor.asked);
        let outcomes = match result {
            Ok(outcomes) if outcomes.len() == asked.len() => outcomes,
            Ok(outcomes) => {
                janitor.asked = asked;
                let message = format!("{} outcomes came for an abandon of {}", outcomes.len(), janitor.asked.len());
                return self.abandon_failed(sink, janitor, Why::Words(message));
            }
            Err(fault) => {
                janitor.asked = asked;
                return self.abandon_failed(sink, janitor, Why::Fault(fault));
            }
        };
        let mut gone = Vec::new();
        let mut again = Vec::new();
        let mut refused = 0usize;
        for (part, outcome) in asked.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Committed | Outcome::AlreadyCommitted => gone.extend(part.resources),
                Outcome::Fenced => {
                    return self.end(End::Superseded(format!("sink `{sink}` was fenced by a newer run")));
                }
                Outcome::NotCommitted | Outcome::Retry(_) | Outcome::Unknown => again.push(part),
                Outcome::Never | Outcome::Unsupported | Outcome::Rejected(_) => refused += 1,
            }
        }
        if refused > 0 {
            self.warn(format!("sink `{sink}`: {refused} unsealed parts could not be given back; they stay"));
        }
        self.note_given_back(sink, gone);
        janitor.asked = again;
        if janitor.asked.is_empty() {
            janitor.failures = 0;
        } else {
            self.abandon_failed(sink, janitor, Why::Words("parts are not given back yet".to_owned()));
        }
    }

    /// What was announced is known by the log, so that it is gone must be too.
    fn note_given_back(&mut self, sink: &SinkId, gone: Vec<External>) {
        let announced = |resource: &External| {
            self.history
                .intents()
                .values()
                .any(|intent| intent.sink == *sink && intent.state == IntentState::Open && intent.resource == *resource)
        };
        let resources: Vec<External> = gone.into_iter().filter(announced).collect();
        if !resources.is_empty() {
            self.record(Body::Released(Released { sink: sink.clone(), resources }));
        }
    }

    fn abandon_failed(&mut self, sink: &SinkId, janitor: &mut Janitor, why: Why) {
        if !self.clean_up_failed(sink, janitor, why) {
            janitor.asked.clear();
            janitor.todo.clear();
        }
    }

    /// Clean up fails in silence until its tries are spent, unless somebody has to mend something.
    pub(super) fn tell_lasting(&mut self, sink: &SinkId, why: Why, failures: u32) {
        if let Why::Fault(fault) = why
            && failures == 1
            && fault.cause().is_some()
        {
            let for_ms = self.settings.patience(failures);
            self.notice(Notice::CallFails { sink: sink.clone(), of: None, fault, for_ms });
        }
    }

    /// Whether it is tried again. What cannot be given back does not stop the pipeline: the next sweep looks again.
    fn clean_up_failed(&mut self, sink: &SinkId, janitor: &mut Janitor, why: Why) -> bool {
        if why.remedy() == Remedy::Superseded {
            self.end(End::Superseded(format!("sink `{sink}`: {why}")));
            return false;
        }
        janitor.failures = janitor.failures.saturating_add(1);
        let failures = janitor.failures;
        if why.is_hopeless() || self.settings.spent(failures) {
            janitor.failures = 0;
            self.warn(format!("sink `{sink}`: unsealed work could not be given back and is left for later: {why}"));
            return false;
        }
        janitor.waiting = true;
        self.tell_lasting(sink, why, failures);
        let millis = self.settings.backoff(failures);
        self.emit(Effect::Wait { timer: Timer::CleanUpRetry(sink.clone()), millis });
        true
    }

    pub(super) fn on_clean_up_retry(&mut self, sink: &SinkId) {
        if let Some(janitor) = self.janitors.get_mut(sink)
            && janitor.waiting
        {
            janitor.waiting = false;
            if !janitor.asked.is_empty() && self.ending.is_none() {
                self.out.push(janitor.abandon(sink));
            }
        }
        self.on_release_retry(sink);
    }
}
