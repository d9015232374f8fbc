//! Positions of very many partitions: pages beside the log, durable before the seal that names them.

use std::collections::BTreeSet;

use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::{Body, Record, StateChunk};
use tidegate_store::disk::sim::{Op, SimDisk};
use tidegate_store::state::load_positions;
use tidegate_store::{AppendResult, LocalLog, Log, MemoryLog, StoreError};

use crate::support::{open, open_on, read, seal};

pub(crate) fn entry(number: u64, at: u64) -> (String, String) {
    (format!("folder/part-{number:06}.jsonl"), format!("{{\"offset\":{at},\"padding\":\"{}\"}}", "x".repeat(150)))
}

/// A seal that says where the source stands.
pub(crate) fn seal_at(slot: u64, positions: &Positions) -> Record {
    let mut record = seal(slot, 40);
    if let Body::Seal(seal) = &mut record.body {
        seal.sources.values_mut().for_each(|cut| cut.partitions = positions.clone());
    }
    record
}

pub(crate) fn positions_of(record: &Record) -> Positions {
    let Body::Seal(seal) = &record.body else { return Positions::new() };
    seal.sources.values().next().map(|cut| cut.partitions.clone()).unwrap_or_default()
}

fn flushes(disk: &SimDisk) -> usize {
    disk.trace().iter().filter(|op| matches!(op, Op::Flush { .. } | Op::FlushFolder { .. })).count()
}

fn written(disk: &SimDisk) -> usize {
    disk.trace().iter().map(|op| if let Op::Write { bytes, .. } = op { bytes.len() } else { 0 }).sum()
}

#[test]
fn a_checkpoint_of_few_moves_among_very_many_writes_and_flushes_little() {
    let disk = SimDisk::new();
    let mut log = LocalLog::open_on(Box::new(disk.clone()), "/simulated".as_ref(), Default::default()).unwrap();
    assert_eq!(log.append(&open(1)), AppendResult::Created);
    let mut positions: Positions = (0..20_000).map(|number| entry(number, 0)).collect();
    assert_eq!(log.append(&seal_at(2, &positions)), AppendResult::Created);
    let all = written(&disk);
    assert!(all > 4_000_000, "{all}");
    let before = (written(&disk), flushes(&disk));
    for slot in 3..203 {
        positions = positions.advanced((0..10).map(|n| entry((slot * 7919 + n * 104_729) % 20_000, slot)));
        assert_eq!(log.append(&seal_at(slot, &positions)), AppendResult::Created);
    }
    let (bytes, flushed) = (written(&disk) - before.0, flushes(&disk) - before.1);
    assert!(bytes < 200 * 64_000, "{} bytes for each checkpoint", bytes / 200);
    assert!(flushed < 200 * 2, "{flushed} flushes for 200 checkpoints");

    // What a fresh process reads is all there, and shared between the seals.
    drop(log);
    let mut log = open_on(&disk).unwrap();
    let newest = positions_of(log.read_all().unwrap().last().unwrap());
    assert_eq!(newest, positions);
    assert!(newest.entries().is_err());
    load_positions(&mut log, &newest).unwrap();
    assert!(newest.entries().unwrap().iter().eq(positions.entries().unwrap().iter()));
}

#[test]
fn a_seal_whose_pages_are_neither_there_nor_in_memory_is_not_written() {
    let positions: Positions = (0..3_000).map(|number| entry(number, 0)).collect();
    let mut names = positions.clone();
    names.unload();
    let disk = SimDisk::new();
    let memory = MemoryLog::new();
    let logs: [Box<dyn Log>; 2] = [Box::new(open_on(&disk).unwrap()), Box::new(memory.clone())];
    for mut log in logs {
        assert_eq!(log.append(&open(1)), AppendResult::Created);
        let refused = log.append(&seal_at(2, &names));
        assert!(matches!(refused, AppendResult::NotWritten { retryable: false, .. }), "{refused:?}");
    }
    // Names alone do where the pages are, also in another process.
    let disk = SimDisk::new();
    let logs: [Box<dyn Log>; 2] = [Box::new(open_on(&disk).unwrap()), Box::new(MemoryLog::new())];
    for mut log in logs {
        for record in [open(1), seal_at(2, &positions), seal_at(3, &names)] {
            assert_eq!(log.append(&record), AppendResult::Created);
        }
        let read = positions_of(&log.read_all().unwrap()[2]);
        load_positions(log.as_mut(), &read).unwrap();
        assert_eq!(read.entries().unwrap().count(), 3_000);
    }
    // What was loaded since counts as in memory; these are names alone.
    let mut names = positions.clone();
    names.unload();
    assert_eq!(open_on(&disk).unwrap().append(&seal_at(4, &names)), AppendResult::Created);
    // One that rotted is not there.
    let mut image = disk.visible();
    let path = format!("state/{}", names.chunks().next().unwrap().sha256);
    image.file_mut(&path).unwrap()[1000] ^= 1;
    let refused = open_on(&SimDisk::from_image(image)).unwrap().append(&seal_at(5, &names));
    assert!(matches!(refused, AppendResult::NotWritten { retryable: false, .. }), "{refused:?}");
}

#[test]
fn a_page_that_rotted_is_found_by_reading_and_written_again_by_the_next_seal() {
    let positions: Positions = (0..3_000).map(|number| entry(number, 0)).collect();
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    for record in [open(1), seal_at(2, &positions)] {
        assert_eq!(log.append(&record), AppendResult::Created);
    }
    drop(log);
    let mut image = disk.visible();
    let path = format!("state/{}", positions.chunks().next().unwrap().sha256);
    image.file_mut(&path).unwrap()[1000] ^= 1;
    let disk = SimDisk::from_image(image);
    let mut log = open_on(&disk).unwrap();
    let found = positions_of(&log.read_all().unwrap()[1]);
    assert!(matches!(load_positions(&mut log, &found), Err(StoreError::Corrupt { .. })));
    assert_eq!(log.append(&seal_at(3, &positions)), AppendResult::Created);
    load_positions(&mut log, &found).unwrap();
    assert_eq!(read(disk.visible()).unwrap().len(), 3);
}

#[test]
fn pages_that_nobody_names_any_more_are_deleted() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    assert_eq!(log.append(&open(1)), AppendResult::Created);
    let mut positions: Positions = (0..3_000).map(|number| entry(number, 0)).collect();
    for slot in 2..20 {
        positions = positions.advanced((0..400).map(|number| entry((number * 7 + slot * 97) % 3_000, slot)));
        assert_eq!(log.append(&seal_at(slot, &positions)), AppendResult::Created);
    }
    let named: BTreeSet<StateChunk> = positions.chunks().cloned().collect();
    assert!(log.retain_state(&named).unwrap() > 0);
    let left = disk.visible().paths().into_iter().filter(|path| path.starts_with("state/")).count();
    assert_eq!(left, named.len());
    // A seal that goes back to positions of which pages are gone brings them along again.
    let old: Positions = (0..3_000).map(|number| entry(number, 0)).collect();
    assert_eq!(log.append(&seal_at(20, &old)), AppendResult::Created);
    let mut fresh = open_on(&disk).unwrap();
    let found = positions_of(fresh.read_all().unwrap().last().unwrap());
    load_positions(&mut fresh, &found).unwrap();
}
