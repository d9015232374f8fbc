//! One record after another: first everything that can be wrong with it, then what it changes.

use std::collections::{BTreeMap, BTreeSet};

use super::ledger::{Holder, ResourceKey};
use super::{
    CheckpointState, Decided, History, HistoryErrorKind as Kind, IntentEntry, IntentState, Note, RunNode, SealedEpoch,
    SinkEpochState, Standing, parts_of,
};
use crate::ids::{EpochRef, KeyRange, SinkId, Slot};
use crate::record::{
    Blocked, Body, Bound, Choice, CutReason, Decision, EpochOutcome, Finished, Forget, Intent, MismatchPolicy, Open,
    OutcomeEntry, Record, Released, Retire, Savepoint, Seal,
};

type Check = Result<(), Kind>;

impl History {
    pub(super) fn check_and_apply(&mut self, record: &Record) -> Check {
        self.check_record(record)?;
        for entry in &record.outcomes {
            self.apply_outcome(entry);
        }
        self.last_slot = record.slot;
        let carried = record.outcomes.iter().map(|entry| entry.of).collect();
        let note = self.apply_body(record);
        self.notes.insert(record.slot, (note, carried));
        Ok(())
    }

    /// The body is checked as it will stand behind the record's own outcomes: a retirement may ride with the commit that
    /// makes it legal. They are taken back before this returns.
    pub(super) fn check_record(&mut self, record: &Record) -> Check {
        if record.outcomes.is_empty() {
            return self.check_without_outcomes(record);
        }
        self.check_slot(record.slot)?;
        self.check_writer(record)?;
        self.check_outcomes(record)?;
        let undo = self.undo_outcomes(&record.outcomes);
        for entry in &record.outcomes {
            self.apply_outcome(entry);
        }
        let checked = self.check_body(record);
        self.restore(undo);
        checked
    }

    pub(super) fn check_without_outcomes(&self, record: &Record) -> Check {
        self.check_slot(record.slot)?;
        self.check_writer(record)?;
        self.check_body(record)
    }

    fn check_slot(&self, slot: Slot) -> Check {
        let expected = self.next_slot();
        if slot < expected {
            return Err(Kind::SlotNotRising { expected });
        }
        if slot.0 == u64::MAX {
            return Err(Kind::NumberSpent);
        }
        let mut missing = expected;
        while missing < slot {
            let Some(range) = self.gone.iter().find(|range| range.contains(missing)) else {
                return Err(Kind::Gap { expected: missing });
            };
            missing = range.last.next();
        }
        Ok(())
    }

    fn check_writer(&self, record: &Record) -> Check {
        let newest = self.newest_run();
        match (&record.body, newest) {
            (Body::Open(_), _) => Ok(()),
            // Decided between two runs: in the name of the newest, or of the one about to be opened.
            (Body::Decision(_), None) => Ok(()),
            (Body::Decision(_) | Body::Savepoint(_) | Body::Forget(_), Some(newest))
                if record.run == newest || record.run.number > newest.number =>
            {
                Ok(())
            }
            (_, None) => Err(Kind::NoRun),
            (_, Some(newest)) if record.run == newest => Ok(()),
            (_, Some(newest)) => Err(Kind::NotNewestRun { newest }),
        }
    }

    /// An epoch whose seal may have been deleted is not an error: nothing can be wrong with what is over.
    fn known(&self, of: EpochRef, slot: Slot) -> Result<Option<&SealedEpoch>, Kind> {
        if let Some(epoch) = self.epochs.get(&of) {
            return Ok(Some(epoch));
        }
        match self.runs.get(&of.run) {
            Some(node) if self.gone_between(node.slot, slot) => Ok(None),
            _ => Err(Kind::UnknownSeal(of)),
        }
    }

    fn check_outcomes(&self, record: &Record) -> Check {
        let mut ended: BTreeSet<(&SinkId, EpochRef)> = BTreeSet::new();
        for OutcomeEntry { sink, of, outcome, .. } in &record.outcomes {
            let Some(epoch) = self.known(*of, record.slot)? else { continue };
            let unknown_sink = || Kind::UnknownSink { sink: sink.clone(), of: *of };
            let state = epoch.sinks.get(sink).ok_or_else(unknown_sink)?;
            if state.ended() || ended.contains(&(sink, *of)) {
                return Err(Kind::AlreadyEnded { sink: sink.clone(), of: *of });
            }
            // Many tries that settled nothing may settle it in another run; every other reason needs a person.
            if matches!(state, SinkEpochState::Blocked(_, why) if !matches!(why, Blocked::TriesSpent(_))) {
                return Err(Kind::NeedsDecision { sink: sink.clone(), of: *of });
            }
            if *outcome == EpochOutcome::Committed {
                let open = self.unfinished(sink).into_iter().find(|of| !ended.contains(&(sink, *of)));
                if let Some(before) = open.filter(|first| first != of) {
                    return Err(Kind::OutOfOrder { sink: sink.clone(), of: *of, before });
                }
                ended.insert((sink, *of));
            }
        }
        Ok(())
    }

    fn check_body(&self, record: &Record) -> Check {
        match &record.body {
            Body::Open(open) => self.check_open(record, open),
            Body::Seal(seal) => self.check_seal(record, seal),
            Body::Intent(intent) if intent.number != self.next_intent() && self.gone.is_empty() => {
                Err(Kind::IntentNotNext { expected: self.next_intent() })
            }
            Body::Intent(intent) if intent.number < self.next_intent() => {
                Err(Kind::IntentNotNext { expected: self.next_intent() })
            }
            Body::Intent(intent) => self.check_not_released(&intent.sink, &intent.resource.kind, &intent.resource.name),
            Body::Bound(bound) => self.check_bound(bound),
            Body::Outcomes => Ok(()),
            Body::Decision(decision) => self.check_decision(record.slot, decision),
            Body::Savepoint(savepoint) => self.check_savepoint(record.slot, savepoint),
            Body::Forget(forget) if !self.savepoints.contains_key(&forget.name) => match self.gone.is_empty() {
                true => Err(Kind::UnknownSavepoint(forget.name.clone())),
                false => Ok(()),
            },
            Body::Forget(_) => Ok(()),
            Body::Retire(retire) => self.check_retire(record.slot, retire),
            Body::Released(released) => self.check_released(record.slot, released),
            Body::Finished(finished) => self.check_finished(record.slot, finished),
            Body::Deleted(deleted) => self.check_deleted(record.slot, &deleted.gone),
        }
    }

    fn check_open(&self, record: &Record, open: &Open) -> Check {
        if let Some(log) = self.pipeline.as_ref().filter(|log| **log != open.pipeline) {
            return Err(Kind::ForeignPipeline { log: log.clone(), record: open.pipeline.clone() });
        }
        if record.run.number == u64::MAX {
            return Err(Kind::NumberSpent);
        }
        if let Some(newest) = self.newest_run().filter(|newest| newest.number >= record.run.number) {
            return Err(Kind::RunNotNewer { newest });
        }
        for id in &open.under {
            if self.decisions.get(id).is_none_or(|decided| decided.used_by.is_some()) {
                return Err(Kind::DecisionNotPending(id.clone()));
            }
        }
        if let Some(parent) = open.parent {
            let epoch = self.known(parent, record.slot).map_err(|_| Kind::ParentUnknown(parent))?;
            if epoch.is_some_and(|epoch| epoch.checkpoint == CheckpointState::Retired) {
                return Err(Kind::ParentRetired(parent));
            }
        }
        // A parent further down the same line is the newest epoch whose seal is deleted, while an older one is kept.
        match self.tip {
            Some(newest) if !open.parent.is_some_and(|parent| self.descends(parent, newest)) => {
                self.check_fork(open, newest)
            }
            _ => Ok(()),
        }
    }

    fn check_fork(&self, open: &Open, newest: EpochRef) -> Check {
        let allows = |id: &String| {
            self.decisions.get(id).is_some_and(|decided| match &decided.decision.choice {
                Choice::Fork { from, .. } => Some(*from) == open.parent,
                Choice::Accept { policy, .. } => *policy == MismatchPolicy::ReplayFromDestination,
                _ => false,
            })
        };
        if !open.under.iter().any(allows) {
            return Err(Kind::ForkWithoutDecision { newest });
        }
        match self.unended_behind(open.parent) {
            Some((sink, of)) => Err(Kind::ForkBeforeUnfinished { sink, of }),
            None => Ok(()),
        }
    }

    /// The first sealed epoch outside the line of descent that ends with `from` for which something may still be sent.
    /// What can never be committed is at an end (`never` comes only after a fence or a confirmed abandon).
    pub fn unended_behind(&self, from: Option<EpochRef>) -> Option<(SinkId, EpochRef)> {
        let behind = self.checkpoints().filter(|epoch| !from.is_some_and(|from| self.descends(from, epoch.of)));
        let mut open = behind.flat_map(|epoch| epoch.sinks.iter().map(move |(sink, state)| (sink, epoch.of, state)));
        let found =
            open.find(|(_, _, state)| !state.ended() && !matches!(state, SinkEpochState::Blocked(_, Blocked::Never)));
        found.map(|(sink, of, _)| (sink.clone(), of))
    }

    fn check_seal(&self, record: &Record, seal: &Seal) -> Check {
        let of = EpochRef { run: record.run, epoch: seal.epoch };
        if seal.epoch.0 == u64::MAX {
            return Err(Kind::NumberSpent);
        }
        if self.epochs.contains_key(&of) {
            return Err(Kind::SealedTwice(of));
        }
        let expected = self.next_epoch();
        if seal.epoch < expected || (seal.epoch > expected && self.gone.is_empty()) {
            return Err(Kind::EpochNotNext { sealed: of, expected: expected.0 });
        }
        if let CutReason::Savepoint(name) = &seal.reason
            && self.savepoints.contains_key(name)
        {
            return Err(Kind::SavepointNameTaken(name.clone()));
        }
        for (operator, cuts) in &seal.operators {
            if !KeyRange::complete(cuts.iter().map(|cut| cut.range)) {
                return Err(Kind::RangesIncomplete(format!("operator `{operator}`")));
            }
        }
        for (sink, cut) in &seal.sinks {
            if !KeyRange::complete(cut.parts.iter().map(|part| part.range)) {
                return Err(Kind::RangesIncomplete(format!("sink `{sink}`")));
            }
            let mut ordinals = BTreeSet::new();
            for part in &cut.parts {
                let own = part.committable.as_ref().is_none_or(|committable| {
                    committable.part.epoch_ref() == of && committable.part.ordinal == part.ordinal
                });
                if !own || !ordinals.insert(part.ordinal) {
                    let what = format!("participant {} of sink `{sink}` has a part that is not its own", part.ordinal);
                    return Err(Kind::WrongPart(what));
                }
                for resource in &part.resources {
                    self.check_not_released(sink, &resource.kind, &resource.name)?;
                }
            }
        }
        Ok(())
    }

    fn check_not_released(&self, sink: &SinkId, kind: &str, name: &str) -> Check {
        let key = ResourceKey { sink: sink.clone(), kind: kind.to_owned(), name: name.to_owned() };
        if self.ledger.was_released(&key) {
            return Err(Kind::NamedAfterRelease { sink: key.sink, name: key.name });
        }
        Ok(())
    }

    fn check_bound(&self, bound: &Bound) -> Check {
        match self.intents.get(&bound.number) {
            Some(intent) if !intent.bound => self.check_not_released(&intent.sink, &intent.resource.kind, &bound.name),
            None if !self.gone.is_empty() => Ok(()),
            _ => Err(Kind::IntentNotOpen(bound.number)),
        }
    }

    fn check_decision(&self, slot: Slot, decision: &Decision) -> Check {
        if self.decisions.contains_key(&decision.id) {
            return Err(Kind::DecisionRepeated(decision.id.clone()));
        }
        match &decision.choice {
            Choice::Retry { sink, of } | Choice::GiveUp { sink, of } => {
                let Some(epoch) = self.known(*of, slot)? else { return Ok(()) };
                match epoch.sinks.get(sink) {
                    Some(SinkEpochState::Blocked(..)) => Ok(()),
                    Some(_) => Err(Kind::NotBlocked { sink: sink.clone(), of: *of }),
                    None => Err(Kind::UnknownSink { sink: sink.clone(), of: *of }),
                }
            }
            Choice::Fork { from, .. } => match self.known(*from, slot)? {
                Some(epoch) if epoch.checkpoint == CheckpointState::Retired && self.gone.is_empty() => {
                    Err(Kind::Retired(*from))
                }
                _ => Ok(()),
            },
            Choice::Accept { .. } => Ok(()),
        }
    }

    fn check_savepoint(&self, slot: Slot, savepoint: &Savepoint) -> Check {
        if self.savepoints.contains_key(&savepoint.name) {
            return Err(Kind::SavepointNameTaken(savepoint.name.clone()));
        }
        match self.known(savepoint.of, slot)? {
            Some(epoch) if epoch.checkpoint == CheckpointState::Retired => Err(Kind::Retired(savepoint.of)),
            _ => Ok(()),
        }
    }

    fn check_retire(&self, slot: Slot, retire: &Retire) -> Check {
        for of in &retire.of {
            let Some(epoch) = self.known(*of, slot)? else { continue };
            // What is newer than it may be deleted by now; what still speaks of it is not.
            let newer_gone = self.gone_between(epoch.slot, slot);
            let why = if newer_gone { self.needed_itself(epoch) } else { self.must_be_kept(epoch) };
            if let Some(why) = why {
                return Err(Kind::MustBeKept { of: *of, why });
            }
        }
        Ok(())
    }

    fn check_released(&self, slot: Slot, released: &Released) -> Check {
        for resource in &released.resources {
            let key = ResourceKey::of(&released.sink, resource);
            let Some(entry) = self.ledger.get(&key) else { continue };
            let over = |number: u64| self.of_older_run(number) || self.seal_may_be_gone(number, slot);
            if entry.holders.keys().any(|holder| !matches!(holder, Holder::Intent(n) if over(*n))) {
                return Err(Kind::ReleasedWhileNamed { sink: key.sink, name: key.name });
            }
        }
        Ok(())
    }

    fn of_older_run(&self, intent: u64) -> bool {
        self.intents.get(&intent).is_some_and(|intent| Some(intent.run) != self.newest_run())
    }

    /// Whether the announcement may have been taken over by a seal that is deleted by now, while another's outcomes keep
    /// its own record.
    fn seal_may_be_gone(&self, intent: u64, slot: Slot) -> bool {
        let run = self.intents.get(&intent).and_then(|intent| self.runs.get(&intent.run));
        run.is_some_and(|run| self.gone_between(run.slot, slot))
    }

    fn check_finished(&self, slot: Slot, finished: &Finished) -> Check {
        let ended = self.epochs.values().all(SealedEpoch::ended);
        let newest = self.tip == Some(finished.last) || self.known(finished.last, slot)?.is_none();
        if newest && ended { Ok(()) } else { Err(Kind::NotFinished) }
    }

    fn apply_outcome(&mut self, entry: &OutcomeEntry) {
        let OutcomeEntry { sink, of, attempt, outcome } = entry;
        let state = match outcome {
            EpochOutcome::Committed => SinkEpochState::Committed,
            EpochOutcome::InDoubt(why) => SinkEpochState::InDoubt(*attempt, why.clone()),
            EpochOutcome::Blocked(why) => SinkEpochState::Blocked(*attempt, why.clone()),
        };
        self.set_state(sink, *of, state);
    }

    fn set_state(&mut self, sink: &SinkId, of: EpochRef, state: SinkEpochState) {
        let Some(epoch) = self.epochs.get_mut(&of) else { return };
        let committed = state == SinkEpochState::Committed;
        let ended = state.ended();
        epoch.sinks.insert(sink.clone(), state);
        let (parts, slot) = (epoch.parts(sink), epoch.slot);
        let keys = resource_keys(sink, epoch);
        if committed {
            self.standings.entry(sink.clone()).or_default().advance(parts, slot);
        }
        if ended {
            for key in keys {
                self.ledger.drop_holder(&key, &Holder::Commit(of));
            }
        }
    }

    fn apply_body(&mut self, record: &Record) -> Note {
        match &record.body {
            Body::Open(open) => self.apply_open(record, open),
            Body::Intent(intent) => self.apply_intent(record, intent),
            Body::Bound(bound) => self.apply_bound(bound, record.written_at),
            Body::Seal(seal) => self.apply_seal(record, seal),
            Body::Outcomes => Note::Outcomes,
            Body::Decision(decision) => self.apply_decision(record.slot, decision),
            Body::Savepoint(savepoint) => self.apply_savepoint(savepoint),
            Body::Forget(forget) => self.apply_forget(forget),
            Body::Retire(retire) => self.apply_retire(retire),
            Body::Released(released) => self.apply_released(record.slot, released),
            Body::Finished(finished) => {
                self.finished = Some(finished.last);
                Note::Finished(finished.last)
            }
            Body::Deleted(deleted) => {
                self.give_up(&deleted.gone);
                Note::Deleted
            }
        }
    }

    fn apply_open(&mut self, record: &Record, open: &Open) -> Note {
        self.pipeline = Some(open.pipeline.clone());
        let mut rebased: BTreeSet<&SinkId> = BTreeSet::new();
        let mut fork = None;
        for id in &open.under {
            let Some(decided) = self.decisions.get_mut(id) else { continue };
            decided.used_by = Some(record.run);
            match &decided.decision.choice {
                Choice::Fork { .. } | Choice::Accept { policy: MismatchPolicy::ReplayFromDestination, .. } => {
                    fork = Some(id.clone());
                    rebased.extend(open.observed.keys());
                }
                Choice::Accept { sink, .. } => rebased.extend(open.observed.keys().filter(|seen| *seen == sink)),
                Choice::Retry { .. } | Choice::GiveUp { .. } => {}
            }
        }
        for sink in rebased {
            self.standings.insert(sink.clone(), Standing::accepted(&open.observed[sink], record.slot));
        }
        if let Some(id) = fork {
            self.fork_off(open.parent, &id);
        }
        self.tip = open.parent;
        self.runs.insert(record.run, RunNode { slot: record.slot, opened_at: record.written_at, open: open.clone() });
        Note::Open
    }

    fn fork_off(&mut self, parent: Option<EpochRef>, decision: &str) {
        let behind = self.checkpoints().filter(|epoch| !parent.is_some_and(|parent| self.descends(parent, epoch.of)));
        let open = behind.flat_map(|epoch| {
            epoch.sinks.iter().filter(|(_, state)| !state.ended()).map(move |(sink, _)| (sink.clone(), epoch.of))
        });
        for (sink, of) in open.collect::<Vec<_>>() {
            self.set_state(&sink, of, SinkEpochState::ForkedOff(decision.to_owned()));
        }
    }

    fn apply_intent(&mut self, record: &Record, intent: &Intent) -> Note {
        let key = ResourceKey::of(&intent.sink, &intent.resource);
        let sealed = intent.part.as_ref().and_then(|short| self.sealed_short(&intent.sink, record, intent, short));
        let state = sealed.map_or(IntentState::Open, IntentState::Sealed);
        let holder = sealed.map_or(Holder::Intent(intent.number), Holder::Checkpoint);
        self.ledger.hold(key, &intent.resource, holder, record.written_at);
        let entry = IntentEntry {
            run: record.run,
            sink: intent.sink.clone(),
            part: intent.part.clone(),
            epoch: intent.epoch,
            resource: intent.resource.clone(),
            bound: false,
            state,
        };
        self.intents.insert(intent.number, entry);
        Note::Intent(intent.number)
    }

    /// The epoch that holds this part, if it was sealed before the announcement came into the log.
    fn sealed_short(&self, sink: &SinkId, record: &Record, intent: &Intent, short: &str) -> Option<EpochRef> {
        let of = EpochRef { run: record.run, epoch: intent.epoch };
        self.epochs.get(&of)?.parts(sink).iter().any(|part| part.short == short).then_some(of)
    }

    fn apply_bound(&mut self, bound: &Bound, written_at: u64) -> Note {
        if let Some(intent) = self.intents.get_mut(&bound.number) {
            let planned = ResourceKey::of(&intent.sink, &intent.resource);
            intent.resource.name = bound.name.clone();
            intent.bound = true;
            let key = ResourceKey::of(&intent.sink, &intent.resource);
            if let Some(holder) = intent_holder(bound.number, intent.state) {
                self.ledger.drop_holder(&planned, &holder);
                if self.ledger.get(&planned).is_some_and(|entry| entry.holders.is_empty()) {
                    self.ledger.remove(&planned);
                }
                self.ledger.hold(key, &intent.resource, holder, written_at);
            }
        }
        Note::Intent(bound.number)
    }

    fn apply_seal(&mut self, record: &Record, seal: &Seal) -> Note {
        let of = EpochRef { run: record.run, epoch: seal.epoch };
        let state = |cut| if parts_of(cut).is_empty() { SinkEpochState::Committed } else { SinkEpochState::Sent(1) };
        let sinks: BTreeMap<_, _> = seal.sinks.iter().map(|(sink, cut)| (sink.clone(), state(cut))).collect();
        let epoch = SealedEpoch {
            of,
            slot: record.slot,
            sealed_at: record.written_at,
            seal: self.sharing_pages(seal),
            sinks,
            checkpoint: CheckpointState::Retained,
        };
        for (sink, cut) in &seal.sinks {
            let unfinished = !epoch.sinks[sink].ended();
            for resource in cut.parts.iter().flat_map(|part| &part.resources) {
                let key = ResourceKey::of(sink, resource);
                self.ledger.hold(key.clone(), resource, Holder::Checkpoint(of), record.written_at);
                if unfinished {
                    self.ledger.hold(key, resource, Holder::Commit(of), record.written_at);
                }
            }
        }
        self.take_over_intents(of, seal, record.written_at);
        if let CutReason::Savepoint(name) = &seal.reason {
            self.savepoints.insert(name.clone(), of);
            self.hold_savepoint(name, &epoch);
        }
        self.epochs.insert(of, epoch);
        self.by_slot.insert(record.slot, of);
        self.tip = Some(of);
        Note::Seal(of)
    }

    /// The seal, with the pages that the one before it has as well: each is in memory once.
    fn sharing_pages(&self, seal: &Seal) -> Seal {
        let mut seal = seal.clone();
        let before = self.tip.and_then(|of| self.epochs.get(&of)).map(|epoch| &epoch.seal.sources);
        for (source, cut) in &mut seal.sources {
            if let Some(before) = before.and_then(|sources| sources.get(source)) {
                cut.partitions.share(&before.partitions);
            }
        }
        seal
    }

    /// What was announced for a sealed part is the checkpoint's from now on, named by prepare's answer or not.
    fn take_over_intents(&mut self, of: EpochRef, seal: &Seal, written_at: u64) {
        for (number, intent) in &mut self.intents {
            let Some(cut) = seal.sinks.get(&intent.sink) else { continue };
            let sealed_part = intent.part.as_ref().is_some_and(|short| parts_of(cut).iter().any(|p| p.short == *short));
            let sealed_resource = cut
                .parts
                .iter()
                .flat_map(|part| &part.resources)
                .any(|resource| resource.kind == intent.resource.kind && resource.name == intent.resource.name);
            if intent.state == IntentState::Open && (sealed_part || sealed_resource) {
                intent.state = IntentState::Sealed(of);
                let key = ResourceKey::of(&intent.sink, &intent.resource);
                self.ledger.drop_holder(&key, &Holder::Intent(*number));
                self.ledger.hold(key.clone(), &intent.resource, Holder::Checkpoint(of), written_at);
            }
        }
    }

    fn hold_savepoint(&mut self, name: &str, epoch: &SealedEpoch) {
        for (sink, cut) in &epoch.seal.sinks {
            for resource in cut.parts.iter().flat_map(|part| &part.resources) {
                let key = ResourceKey::of(sink, resource);
                self.ledger.hold(key, resource, Holder::Savepoint(name.to_owned()), epoch.sealed_at);
            }
        }
    }

    fn apply_decision(&mut self, slot: Slot, decision: &Decision) -> Note {
        match &decision.choice {
            Choice::Retry { sink, of } => {
                let next = self.outcome(sink, *of).map_or(1, |state| state.attempt().saturating_add(1));
                self.set_state(sink, *of, SinkEpochState::Sent(next));
            }
            Choice::GiveUp { sink, of } => {
                self.set_state(sink, *of, SinkEpochState::GivenUp(decision.id.clone()));
            }
            Choice::Fork { .. } | Choice::Accept { .. } => {}
        }
        self.decisions.insert(decision.id.clone(), Decided { slot, decision: decision.clone(), used_by: None });
        Note::Decision
    }

    fn apply_savepoint(&mut self, savepoint: &Savepoint) -> Note {
        if let Some(epoch) = self.epochs.get(&savepoint.of).cloned() {
            self.savepoints.insert(savepoint.name.clone(), savepoint.of);
            self.hold_savepoint(&savepoint.name, &epoch);
        }
        Note::Savepoint { name: savepoint.name.clone(), of: savepoint.of }
    }

    fn apply_forget(&mut self, forget: &Forget) -> Note {
        let of = self.savepoints.remove(&forget.name);
        if let Some(epoch) = of.and_then(|of| self.epochs.get(&of)) {
            let keys: Vec<_> = epoch.seal.sinks.keys().flat_map(|sink| resource_keys(sink, epoch)).collect();
            for key in keys {
                self.ledger.drop_holder(&key, &Holder::Savepoint(forget.name.clone()));
            }
        }
        Note::Forget { of }
    }

    fn apply_retire(&mut self, retire: &Retire) -> Note {
        for of in &retire.of {
            let Some(epoch) = self.epochs.get_mut(of) else { continue };
            epoch.checkpoint = CheckpointState::Retired;
            let epoch = &self.epochs[of];
            let named = epoch.seal.sinks.keys().flat_map(|sink| resource_keys(sink, epoch));
            let announced = self.intents.values().filter(|intent| intent.state == IntentState::Sealed(*of));
            let keys: BTreeSet<_> =
                named.chain(announced.map(|intent| ResourceKey::of(&intent.sink, &intent.resource))).collect();
            for key in keys {
                self.ledger.drop_holder(&key, &Holder::Checkpoint(*of));
            }
        }
        Note::Retire(retire.of.clone())
    }

    fn apply_released(&mut self, slot: Slot, released: &Released) -> Note {
        let keys: Vec<_> = released.resources.iter().map(|r| ResourceKey::of(&released.sink, r)).collect();
        for key in &keys {
            self.ledger.release(key.clone(), slot);
        }
        let newest = self.newest_run();
        for intent in self.intents.values_mut() {
            // Of those without a name the older ones are meant: what the newest run announced is not given back.
            let meant = !intent.resource.name.is_empty() || Some(intent.run) != newest;
            if meant && keys.contains(&ResourceKey::of(&intent.sink, &intent.resource)) {
                intent.state = IntentState::Closed;
            }
        }
        Note::Released(keys)
    }

    fn undo_outcomes(&self, entries: &[OutcomeEntry]) -> Undo {
        let touched: BTreeSet<EpochRef> = entries.iter().map(|entry| entry.of).collect();
        Undo {
            epochs: touched.iter().filter_map(|of| Some((*of, self.epochs.get(of)?.sinks.clone()))).collect(),
            standings: self.standings.clone(),
            ledger: self.ledger.clone(),
        }
    }

    fn restore(&mut self, undo: Undo) {
        for (of, sinks) in undo.epochs {
            if let Some(epoch) = self.epochs.get_mut(&of) {
                epoch.sinks = sinks;
            }
        }
        self.standings = undo.standings;
        self.ledger = undo.ledger;
    }
}

/// What outcomes change, as it was before.
struct Undo {
    epochs: Vec<(EpochRef, BTreeMap<SinkId, SinkEpochState>)>,
    standings: BTreeMap<SinkId, Standing>,
    ledger: super::Ledger,
}

fn intent_holder(number: u64, state: IntentState) -> Option<Holder> {
    match state {
        IntentState::Open => Some(Holder::Intent(number)),
        IntentState::Sealed(of) => Some(Holder::Checkpoint(of)),
        IntentState::Closed => None,
    }
}

pub(super) fn resource_keys(sink: &SinkId, epoch: &SealedEpoch) -> Vec<ResourceKey> {
    let parts = epoch.seal.sinks.get(sink).into_iter().flat_map(|cut| &cut.parts);
    parts.flat_map(|part| &part.resources).map(|resource| ResourceKey::of(sink, resource)).collect()
}
