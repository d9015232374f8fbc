//! Every image that a power cut could leave, at every point of a scripted life of a log.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tidegate_protocol::ids::Slot;
use tidegate_protocol::record::{Body, Record, StateChunk};
use tidegate_store::disk::sim::{Dishonest, Fate, Fault, Image, Op, SimDisk};
use tidegate_store::state::load_positions;
use tidegate_store::{AppendResult, LocalLog, Log as _, StoreError};

use crate::pages::{entry, positions_of, seal_at};
use crate::support::{open, open_on, seal};

/// What was asked of the log and what it answered, by the number of things the disk had done before and after.
#[derive(Default)]
struct Story {
    disk: SimDisk,
    appends: Vec<(usize, Option<usize>, Record)>,
    deletes: Vec<(usize, Slot)>,
    states: Vec<(usize, Option<usize>, StateChunk, Vec<u8>)>,
    dropped_states: Vec<(usize, StateChunk)>,
    /// Deletions do not follow the order of slots, so nothing follows from which of them come back.
    any_order: bool,
}

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

impl Story {
    fn append(&mut self, log: &mut LocalLog, record: Record) -> AppendResult {
        let before = self.disk.ops();
        let answer = log.append(&record);
        let after = (answer == AppendResult::Created).then(|| self.disk.ops());
        self.appends.push((before, after, record));
        answer
    }

    fn delete(&mut self, log: &mut LocalLog, slots: &[u64]) -> Result<(), StoreError> {
        let before = self.disk.ops();
        self.deletes.extend(slots.iter().map(|slot| (before, Slot(*slot))));
        log.delete(&slots.iter().map(|slot| Slot(*slot)).collect::<Vec<_>>())
    }

    fn put(&mut self, log: &mut LocalLog, content: &[u8]) -> Result<StateChunk, StoreError> {
        let before = self.disk.ops();
        let answer = log.put_state(content);
        if let Ok(chunk) = &answer {
            self.states.push((before, Some(self.disk.ops()), chunk.clone(), content.to_vec()));
        }
        answer
    }

    fn retain(&mut self, log: &mut LocalLog, keep: &StateChunk) -> Result<u64, StoreError> {
        let before = self.disk.ops();
        let gone = self.states.iter().filter(|state| state.2 != *keep).map(|state| (before, state.2.clone()));
        self.dropped_states.extend(gone);
        log.retain_state(&BTreeSet::from([keep.clone()]))
    }

    /// A life with small and large records, state, deletions that pay and deletions that do not, rolls, a large record
    /// that needs a segment of its own, and restarts. Goes on as far as the log lets it.
    fn live(&mut self) -> Result<(), String> {
        let words = |error: StoreError| error.to_string();
        for restart in 0..3u64 {
            let mut log = open_on(&self.disk).map_err(words)?;
            for step in 0..9u64 {
                let slot = log.next_slot().0;
                let size = [300, 18_000, 40, 9_000, 2_000, 24_000, 700, 12_000, 480][step as usize];
                let record = if step == 0 { open(slot) } else { seal(slot, size) };
                if restart == 1 && step == 7 {
                    self.created(&mut log, seal(slot, 80_000))?;
                } else {
                    self.created(&mut log, record)?;
                }
                if step == 3 {
                    self.put(&mut log, &[restart as u8; 3000]).map_err(words)?;
                    let kept = self.put(&mut log, &[9; 700]).map_err(words)?;
                    if restart > 0 {
                        self.retain(&mut log, &kept).map_err(words)?;
                    }
                }
            }
            let newest = log.next_slot().0 - 1;
            let dead: Vec<u64> = (2..newest - 2).filter(|slot| slot % 9 != 1 && slot % 4 != 0).collect();
            self.delete(&mut log, &dead).map_err(words)?;
        }
        Ok(())
    }

    /// A life whose seals name many positions, each few of them others than before: pages are put aside, merged, dropped
    /// with the seals that named them, and read again by the next process.
    fn live_with_pages(&mut self) -> Result<(), String> {
        let words = |error: StoreError| error.to_string();
        for restart in 0..3u64 {
            let mut log = open_on(&self.disk).map_err(words)?;
            let found = log.read_all().map_err(words)?;
            let newest = found.iter().rev().find(|record| matches!(record.body, Body::Seal(_)));
            let mut positions = newest.map(positions_of).unwrap_or_default();
            load_positions(&mut log, &positions).map_err(words)?;
            let slot = log.next_slot().0;
            self.created(&mut log, open(slot))?;
            for step in 0..7u64 {
                let slot = log.next_slot().0;
                let count = if restart == 0 && step == 0 { 300 } else { 40 };
                positions = positions.advanced((0..count).map(|number| entry((number * 13 + slot * 101) % 300, slot)));
                self.created(&mut log, seal_at(slot, &positions))?;
            }
            let kept: BTreeSet<StateChunk> = positions.chunks().cloned().collect();
            let newest = log.next_slot().0 - 1;
            self.delete(&mut log, &(2..newest).filter(|slot| slot % 8 != 1).collect::<Vec<_>>()).map_err(words)?;
            let before = self.disk.ops();
            let named = self.appends.iter().flat_map(|(.., record)| chunks_of(record));
            self.dropped_states.extend(named.filter(|chunk| !kept.contains(chunk)).map(|chunk| (before, chunk)));
            log.retain_state(&kept).map_err(words)?;
        }
        Ok(())
    }

    /// A life made up from a seed: sizes, deletions, state, restarts and, if asked for, failures of the disk in any order.
    fn live_randomly(&mut self, dice: &mut Dice, faults: bool) {
        self.any_order = true;
        for _ in 0..dice.below(4) + 1 {
            if faults && dice.below(3) == 0 {
                let fault = if dice.below(2) == 0 { Fault::Eio } else { Fault::Full };
                self.disk.fail_after(dice.below(60), fault);
            }
            // A failure while opening ends that process; the next one tries again.
            let Ok(mut log) = open_on(&self.disk) else { continue };
            for _ in 0..dice.below(25) {
                match dice.below(12) {
                    0 => {
                        let Ok(found) = log.read_all() else { break };
                        let dead = found.iter().filter(|r| !matches!(r.body, Body::Open(_)) && dice.below(3) > 0);
                        let dead: Vec<u64> = dead.map(|record| record.slot.0).collect();
                        let _ = self.delete(&mut log, &dead);
                    }
                    1 => {
                        let content = vec![dice.below(5) as u8; dice.below(2000) as usize];
                        let _ = self.put(&mut log, &content);
                    }
                    2 => {
                        if let Ok(kept) = self.put(&mut log, &[1, 2, 3]) {
                            let _ = self.retain(&mut log, &kept);
                        }
                    }
                    _ => {
                        let slot = log.next_slot().0;
                        let size = [30, 480, 3000, 20_000, 60_000][dice.below(5) as usize] + dice.below(500) as usize;
                        let record = if dice.below(9) == 0 { open(slot) } else { seal(slot, size) };
                        self.append(&mut log, record);
                    }
                }
            }
        }
    }

    fn created(&mut self, log: &mut LocalLog, record: Record) -> Result<(), String> {
        match self.append(log, record) {
            AppendResult::Created => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// What is wrong with a log that was opened from an image taken after `done` things, or nothing.
    fn judge(&self, done: usize, log: &mut LocalLog) -> Result<Vec<Record>, String> {
        let found = log.read_all().map_err(|error| error.to_string())?;
        let by_slot: BTreeMap<Slot, &Record> = found.iter().map(|record| (record.slot, record)).collect();
        let deleted: BTreeSet<Slot> =
            self.deletes.iter().filter(|(at, _)| *at <= done).map(|(_, slot)| *slot).collect();
        for (_, after, record) in &self.appends {
            let acknowledged = after.is_some_and(|after| after <= done);
            if acknowledged && !by_slot.contains_key(&record.slot) && !deleted.contains(&record.slot) {
                return Err(format!("record {} was acknowledged and is gone", record.slot));
            }
        }
        for record in &found {
            let asked = self.appends.iter().any(|(before, _, asked)| *before <= done && asked == record);
            if !asked {
                return Err(format!("record {} was never attempted", record.slot));
            }
        }
        let back: Vec<Slot> = deleted.iter().copied().filter(|slot| by_slot.contains_key(slot)).collect();
        if let Some(first) = back.first()
            && !self.any_order
            && deleted.range(*first..).any(|slot| self.acknowledged(*slot, done) && !by_slot.contains_key(slot))
        {
            return Err(format!("record {first} came back, and a deleted one behind it did not"));
        }
        for record in &found {
            let needed = positions_of(record);
            let dropped = |chunk| self.dropped_states.iter().any(|(at, gone)| *at <= done && gone == chunk);
            if !needed.chunks().any(dropped) {
                load_positions(log, &needed).map_err(|error| format!("record {}: {error}", record.slot))?;
            }
        }
        for (_, after, chunk, content) in &self.states {
            let dropped = self.dropped_states.iter().any(|(at, dropped)| *at <= done && dropped == chunk);
            if after.is_some_and(|after| after <= done) && !dropped {
                let read = log.read_state(chunk).map_err(|error| error.to_string())?;
                if read.as_ref() != content {
                    return Err("state differs".to_owned());
                }
            }
        }
        Ok(found)
    }

    fn acknowledged(&self, slot: Slot, done: usize) -> bool {
        self.appends.iter().any(|(_, after, record)| record.slot == slot && after.is_some_and(|after| after <= done))
    }
}

fn chunks_of(record: &Record) -> Vec<StateChunk> {
    positions_of(record).chunks().cloned().collect()
}

/// Images of a power cut after `done` things, each once.
fn images(disk: &SimDisk, done: usize, seen: &mut HashSet<u64>) -> Vec<Image> {
    let pending = disk.pending(done);
    let trace = disk.trace();
    let mut images = Vec::new();
    let mut add = |image: Image| {
        if seen.insert(digest(done, &image)) {
            images.push(image);
        }
    };
    let mut subset = |lost: &[usize]| {
        add(disk.crash(done, |op| if lost.contains(&op) { Fate::Lost } else { Fate::Kept }));
    };
    if pending.len() <= 10 {
        for mask in 0..1u32 << pending.len() {
            let lost: Vec<usize> =
                pending.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, op)| *op).collect();
            subset(&lost);
        }
    } else {
        for (at, one) in pending.iter().enumerate() {
            subset(&[*one]);
            subset(&pending[at..]);
            for other in &pending[at + 1..] {
                subset(&[*one, *other]);
            }
        }
    }
    for op in &pending {
        let Op::Write { bytes, .. } = &trace[*op] else { continue };
        let sectors = bytes.len().div_ceil(512);
        let mut fates = vec![Fate::OnlySectors(0..0)];
        // At every 512 bytes near both ends, and at every 4 KiB between.
        for at in (0..sectors).filter(|at| *at < 12 || at + 4 > sectors || at % 8 == 0) {
            fates.extend([
                Fate::OnlySectors(0..at + 1),
                Fate::OnlySectors(at..sectors),
                Fate::AllButSectors(at..at + 1),
                Fate::AllButSectors(at..at + 8),
            ]);
        }
        for fate in fates {
            for others in [Fate::Kept, Fate::Lost] {
                add(disk.crash(done, |other| if other == *op { fate.clone() } else { others.clone() }));
            }
        }
    }
    images
}

fn digest(done: usize, image: &Image) -> u64 {
    let mut hasher = DefaultHasher::new();
    done.hash(&mut hasher);
    for path in image.paths() {
        (&path, image.file(&path)).hash(&mut hasher);
    }
    hasher.finish()
}

/// Opens every image of a story and returns how many there were, and what was wrong.
fn sweep(story: &Story) -> (usize, Vec<String>) {
    let (mut count, mut wrong) = (0, Vec::new());
    let mut seen = HashSet::new();
    for done in 0..=story.disk.ops() {
        for image in images(&story.disk, done, &mut seen) {
            count += 1;
            let disk = SimDisk::from_image(image);
            let judged = open_on(&disk).map_err(|error| error.to_string()).and_then(|mut log| {
                let found = story.judge(done, &mut log)?;
                goes_on(&disk, log, found)
            });
            if let Err(what) = judged {
                wrong.push(format!("after {done} things: {what}"));
            }
        }
    }
    (count, wrong)
}

/// A recovered log takes the next record and has it after the next opening.
fn goes_on(disk: &SimDisk, mut log: LocalLog, mut found: Vec<Record>) -> Result<(), String> {
    let next = seal(log.next_slot().0, 600);
    if log.append(&next) != AppendResult::Created {
        return Err("the recovered log accepts nothing".to_owned());
    }
    drop(log);
    found.push(next);
    let again = open_on(disk).and_then(|mut log| log.read_all()).map_err(|error| error.to_string())?;
    if again == found { Ok(()) } else { Err("the log changed between two openings".to_owned()) }
}

#[test]
fn f13_to_f19_every_crash_image_opens_and_keeps_what_was_acknowledged() {
    let mut story = Story::default();
    story.live().unwrap();
    let trace = story.disk.trace();
    let removed = trace.iter().filter(|op| matches!(op, Op::Remove { path } if path.starts_with("log/"))).count();
    let renamed = trace.iter().filter(|op| matches!(op, Op::Rename { .. })).count();
    assert!(removed >= 2 && renamed >= 10, "the story reclaims ({removed}) and makes files ({renamed})");
    let (count, wrong) = sweep(&story);
    assert!(count > 2000, "only {count} images");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_seal_is_never_there_without_the_pages_that_it_names() {
    let mut story = Story::default();
    story.live_with_pages().unwrap();
    let trace = story.disk.trace();
    let named = trace.iter().filter(|op| matches!(op, Op::Rename { to, .. } if to.starts_with("state/"))).count();
    let removed = trace.iter().filter(|op| matches!(op, Op::Remove { path } if path.starts_with("state/"))).count();
    assert!(named >= 5 && removed >= 5, "{named} pages were put, {removed} removed");
    let (count, wrong) = sweep(&story);
    assert!(count > 1000, "only {count} images");
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn after_any_failure_of_the_disk_the_newest_seal_has_its_pages() {
    let mut calm = Story::default();
    calm.live_with_pages().unwrap();
    let mut hit = 0;
    for fault in [Fault::Eio, Fault::Full] {
        for call in 0..(calm.disk.ops() as u64) {
            let mut story = Story::default();
            story.disk.fail_after(call, fault);
            if story.live_with_pages().is_ok() {
                continue;
            }
            hit += 1;
            let done = story.disk.ops();
            let mut log = open_on(&story.disk).unwrap_or_else(|error| panic!("{fault:?} at call {call}: {error}"));
            story.judge(done, &mut log).unwrap_or_else(|what| panic!("{fault:?} at call {call}: {what}"));
        }
    }
    assert!(hit > 100, "{hit} failures");
}

#[test]
fn a_flush_that_does_nothing_is_found() {
    for planted in [Dishonest::Files, Dishonest::Folders] {
        let mut story = Story::default();
        story.disk.plant(planted);
        let mut log = open_on(&story.disk).unwrap();
        for record in crate::support::script(4) {
            story.append(&mut log, record);
        }
        let (_, wrong) = sweep(&story);
        assert!(!wrong.is_empty(), "{planted:?} was not found");
    }
}

#[test]
fn f42_a_crash_during_recovery_loses_nothing() {
    let mut story = Story::default();
    story.live().unwrap();
    let mut seen = HashSet::new();
    let mut nested = 0;
    for done in (0..=story.disk.ops()).step_by(7) {
        for image in images(&story.disk, done, &mut seen).into_iter().step_by(19) {
            let disk = SimDisk::from_image(image);
            let acted_upon = story.judge(done, &mut open_on(&disk).unwrap()).unwrap();
            let mut seen = HashSet::new();
            for inner in 0..=disk.ops() {
                let complete = inner == disk.ops();
                for image in images(&disk, inner, &mut seen).into_iter().step_by(if complete { 1 } else { 3 }) {
                    nested += 1;
                    let mut log = open_on(&SimDisk::from_image(image)).unwrap();
                    let found = story.judge(done, &mut log).unwrap();
                    if complete {
                        assert_eq!(found, acted_upon, "what was acted upon must stay");
                    }
                }
            }
        }
    }
    assert!(nested > 500, "only {nested} images");
}

#[test]
fn f16_f20_after_any_failure_of_the_disk_what_a_restart_acts_upon_survives_a_power_cut() {
    let mut calm = Story::default();
    calm.live().unwrap();
    let (mut hit, mut images_seen) = (0, 0);
    for fault in [Fault::Eio, Fault::Full] {
        for call in 0..(calm.disk.ops() as u64) {
            let mut story = Story::default();
            story.disk.fail_after(call, fault);
            if story.live().is_ok() {
                continue;
            }
            hit += 1;
            // The process ends, the next one sees the page cache, and acts upon what it reads. Then the power is cut.
            let done = story.disk.ops();
            let acted_upon = match open_on(&story.disk) {
                Ok(mut log) => story.judge(done, &mut log).unwrap(),
                Err(error) => panic!("{fault:?} at call {call}: {error}"),
            };
            for image in images(&story.disk, story.disk.ops(), &mut HashSet::new()).into_iter().step_by(3) {
                images_seen += 1;
                let mut log = open_on(&SimDisk::from_image(image)).unwrap();
                assert_eq!(log.read_all().unwrap(), acted_upon, "{fault:?} at call {call}");
                story.judge(done, &mut log).unwrap();
            }
        }
    }
    assert!(hit > 100 && images_seen > 200, "{hit} failures, {images_seen} images");
}

#[test]
fn lives_made_up_from_seeds_survive_power_cuts_anywhere() {
    let mut count = 0;
    for seed in 0..80 {
        let mut dice = Dice(seed);
        let mut story = Story::default();
        story.live_randomly(&mut dice, seed % 2 == 1);
        for _ in 0..25 {
            let done = dice.below(story.disk.ops() as u64 + 1) as usize;
            let fates: Vec<Fate> = (0..done)
                .map(|_| match dice.below(5) {
                    0 => Fate::Kept,
                    1 => Fate::OnlySectors(0..dice.below(40) as usize),
                    2 => Fate::AllButSectors(0..dice.below(3) as usize),
                    _ => Fate::Lost,
                })
                .collect();
            let disk = SimDisk::from_image(story.disk.crash(done, |op| fates[op].clone()));
            count += 1;
            let judged = open_on(&disk).map_err(|error| error.to_string()).and_then(|mut log| {
                let found = story.judge(done, &mut log)?;
                goes_on(&disk, log, found)
            });
            assert_eq!(judged, Ok(()), "seed {seed}, after {done} things");
        }
    }
    assert_eq!(count, 2000);
}
