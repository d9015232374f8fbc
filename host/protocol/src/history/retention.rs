//! What may be retired, and which records nobody needs any more.

use std::collections::{BTreeMap, BTreeSet};

use super::apply::resource_keys;
use super::{CheckpointState, History, HistoryErrorKind as Kind, IntentState, Note, ResourceKey, SealedEpoch};
use crate::ids::{EpochRef, PartId, Slot};
use crate::record::SlotRange;

impl History {
    /// Why a checkpoint cannot be retired, or `None`.
    pub fn must_be_kept(&self, epoch: &SealedEpoch) -> Option<&'static str> {
        if self.tip == Some(epoch.of) {
            return Some("it is the newest");
        }
        let standing = |part: &PartId| part.epoch_ref() == epoch.of;
        if self.standings.values().any(|s| s.newest.iter().any(standing) || s.by_participant.values().any(standing)) {
            return Some("a destination stands there");
        }
        self.needed_itself(epoch)
    }

    /// The reasons that hang on nothing newer than the checkpoint.
    pub(super) fn needed_itself(&self, epoch: &SealedEpoch) -> Option<&'static str> {
        if epoch.checkpoint == CheckpointState::Retired {
            return Some("it is retired already");
        }
        if !epoch.ended() {
            return Some("a sink has not finished it");
        }
        if self.savepoints.values().any(|of| *of == epoch.of) {
            return Some("it is a savepoint");
        }
        None
    }

    /// Checkpoints that may be retired, oldest first: neither among the newest `count` that are retained nor younger
    /// than `age` milliseconds. A clock that was set back makes everything young.
    pub fn retirable(&self, count: u32, age: Option<u64>, now_ms: u64) -> Vec<EpochRef> {
        let retained: Vec<_> = self.checkpoints().filter(|e| e.checkpoint == CheckpointState::Retained).collect();
        let beyond = retained.len().saturating_sub(count.max(1) as usize);
        let old = |epoch: &SealedEpoch| age.is_none_or(|age| now_ms.saturating_sub(epoch.sealed_at) > age);
        let may = retained[..beyond].iter().filter(|epoch| old(epoch) && self.must_be_kept(epoch).is_none());
        may.map(|epoch| epoch.of).collect()
    }

    /// All slots that may be missing once the records in them that nobody needs any more are deleted: the list for the
    /// next `deleted` record. The second value is what it adds.
    pub fn expendable(&self) -> (Vec<SlotRange>, Vec<Slot>) {
        let epochs = self.expendable_epochs();
        let mut added: Vec<Slot> = Vec::new();
        for (slot, (note, carried)) in &self.notes {
            if carried.iter().all(|of| self.over(*of, &epochs)) && self.note_is_over(note, &epochs) {
                added.push(*slot);
            }
        }
        // Announcing and naming go together, or a name would be left without its announcement.
        let split = self.split_intents(&added);
        added.retain(|slot| !matches!(&self.notes[slot].0, Note::Intent(n) if split.contains(n)));
        (join(&self.gone, added.iter().map(|slot| SlotRange { first: *slot, last: *slot })), added)
    }

    /// Retired epochs whose resources are gone or named by others. A record that carries outcomes of an epoch which
    /// stays must stay too, and the seal that took over what such a record announces.
    fn expendable_epochs(&self) -> BTreeSet<EpochRef> {
        let mut epochs: BTreeSet<EpochRef> = self
            .epochs
            .values()
            .filter(|epoch| epoch.checkpoint == CheckpointState::Retired && self.tip != Some(epoch.of))
            .filter(|epoch| !self.leaves_resources(epoch))
            .map(|epoch| epoch.of)
            .collect();
        let announcing = self.announcing();
        loop {
            let needed = epochs.iter().find(|of| {
                let stays = |carried: &[EpochRef]| !carried.iter().all(|other| self.over(*other, &epochs));
                stays(&self.notes[&self.epochs[*of].slot].1)
                    || announcing.get(*of).is_some_and(|records| records.iter().any(|carried| stays(carried)))
            });
            match needed.copied() {
                Some(of) => epochs.remove(&of),
                None => return epochs,
            };
        }
    }

    /// Per epoch, the records that announced, or named, something which its seal took over, by what they carry.
    fn announcing(&self) -> BTreeMap<EpochRef, Vec<&[EpochRef]>> {
        let mut records: BTreeMap<EpochRef, Vec<&[EpochRef]>> = BTreeMap::new();
        for (note, carried) in self.notes.values() {
            if let Note::Intent(number) = note
                && let Some(IntentState::Sealed(of)) = self.intents.get(number).map(|intent| intent.state)
            {
                records.entry(of).or_default().push(carried);
            }
        }
        records
    }

    fn leaves_resources(&self, epoch: &SealedEpoch) -> bool {
        let named = epoch.seal.sinks.keys().flat_map(|sink| resource_keys(sink, epoch));
        let announced = self.intents.values().filter(|intent| intent.state == IntentState::Sealed(epoch.of));
        let announced = announced.map(|intent| ResourceKey::of(&intent.sink, &intent.resource));
        named.chain(announced).any(|key| self.ledger.get(&key).is_some_and(|entry| entry.holders.is_empty()))
    }

    fn over(&self, of: EpochRef, expendable: &BTreeSet<EpochRef>) -> bool {
        expendable.contains(&of) || !self.epochs.contains_key(&of)
    }

    fn note_is_over(&self, note: &Note, epochs: &BTreeSet<EpochRef>) -> bool {
        match note {
            Note::Open | Note::Decision => false,
            Note::Seal(of) => epochs.contains(of),
            Note::Outcomes | Note::Deleted => true,
            Note::Intent(number) => self.intents.get(number).is_none_or(|intent| match intent.state {
                IntentState::Open => false,
                IntentState::Sealed(of) => self.over(of, epochs),
                IntentState::Closed => true,
            }),
            Note::Savepoint { name, of } => self.savepoints.get(name) != Some(of) && self.over(*of, epochs),
            Note::Forget { of } => of.is_none_or(|of| self.over(of, epochs)),
            Note::Retire(of) => of.iter().all(|of| self.over(*of, epochs)),
            Note::Released(keys) => !self.named_by_records(keys, epochs),
            Note::Finished(last) => self.finished != Some(*last),
        }
    }

    /// Whether a record that stays names one of these resources: without the release they would seem to exist.
    fn named_by_records(&self, keys: &[ResourceKey], epochs: &BTreeSet<EpochRef>) -> bool {
        let staying = self.epochs.values().filter(|epoch| !epochs.contains(&epoch.of));
        let sealed = staying.flat_map(|e| e.seal.sinks.keys().flat_map(move |sink| resource_keys(sink, e)));
        let announced = self.intents.values().map(|intent| ResourceKey::of(&intent.sink, &intent.resource));
        let named: BTreeSet<ResourceKey> = sealed.chain(announced).collect();
        keys.iter().any(|key| named.contains(key))
    }

    fn split_intents(&self, added: &[Slot]) -> BTreeSet<u64> {
        let number = |(slot, (note, _)): (&Slot, &(Note, Vec<EpochRef>))| match note {
            Note::Intent(number) if !added.contains(slot) => Some(*number),
            _ => None,
        };
        self.notes.iter().filter_map(number).collect()
    }

    pub(super) fn check_deleted(&self, slot: Slot, gone: &[SlotRange]) -> Result<(), Kind> {
        let mut after = Slot(0);
        for range in gone {
            if range.first <= after || range.last < range.first || range.last >= slot {
                return Err(Kind::DeletesNeeded(range.first));
            }
            after = range.last;
        }
        let (_, added) = self.expendable();
        let listed = |slot: Slot| gone.iter().any(|range| range.contains(slot));
        match self.notes.keys().find(|slot| listed(**slot) && !added.contains(slot)) {
            Some(needed) => Err(Kind::DeletesNeeded(*needed)),
            None => Ok(()),
        }
    }

    /// After a `deleted` record: what a fold of the records that are left would not know.
    pub(super) fn give_up(&mut self, ranges: &[SlotRange]) {
        // A fold knows the newest list from its start: an older record must not shorten it.
        self.gone = join(&self.gone, ranges.iter().copied());
        let gone = self.gone.clone();
        let is_gone = |slot: Slot| gone.iter().any(|range| range.contains(slot));
        let slots: Vec<Slot> = self.notes.keys().copied().filter(|slot| is_gone(*slot)).collect();
        for slot in slots {
            match self.notes.remove(&slot) {
                Some((Note::Seal(of), _)) => {
                    self.epochs.remove(&of);
                    self.by_slot.remove(&slot);
                }
                Some((Note::Intent(number), _)) => {
                    self.intents.remove(&number);
                }
                _ => {}
            }
        }
        // A fold no longer knows of which epoch a name was taken.
        for (note, _) in self.notes.values_mut() {
            if let Note::Forget { of } = note {
                *of = of.filter(|of| self.epochs.contains_key(of));
            }
        }
        self.ledger.forget_released(is_gone);
    }
}

fn join(gone: &[SlotRange], added: impl Iterator<Item = SlotRange>) -> Vec<SlotRange> {
    let mut ranges: Vec<SlotRange> = gone.iter().copied().chain(added).collect();
    ranges.sort_by_key(|range| range.first);
    let mut joined: Vec<SlotRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.first <= last.last.next() => last.last = last.last.max(range.last),
            _ => joined.push(range),
        }
    }
    joined
}
