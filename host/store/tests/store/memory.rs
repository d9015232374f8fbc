//! The log in memory, and what both logs have in common.

use std::collections::BTreeSet;

use tidegate_protocol::ids::Slot;
use tidegate_protocol::record::StateRef;
use tidegate_store::disk::sim::SimDisk;
use tidegate_store::{AppendFault, AppendResult, Log, MemoryLog, StateFault, StoreError, state};

use crate::support::{append_all, open_on, run, script, seal};

/// The same questions to every kind of log.
fn check(log: &mut dyn Log) {
    assert_eq!(log.read_all().unwrap(), []);
    append_all(log, &script(5));
    assert_eq!(log.read_all().unwrap(), script(5));
    assert_eq!(log.append(&seal(4, 0)), AppendResult::Taken(Box::new(script(4)[3].clone())));
    assert!(matches!(log.append(&seal(7, 0)), AppendResult::NotWritten { retryable: false, .. }));
    log.delete(&[Slot(3)]).unwrap();
    assert!(matches!(log.append(&seal(3, 0)), AppendResult::NotWritten { retryable: false, .. }));
    assert!(matches!(log.delete(&[Slot(1)]), Err(StoreError::OpenRecord { slot: Slot(1) })));
    assert_eq!(log.read_all().unwrap().len(), 4);

    let small = state::store(log, &[1; 4095]).unwrap();
    assert!(matches!(small, StateRef::Inline(_)));
    assert_eq!(state::load(log, &small).unwrap().as_ref(), [1; 4095]);
    let StateRef::Chunks(chunks) = state::store(log, &[1; 4096]).unwrap() else { panic!("not in a piece") };
    assert_eq!(state::load(log, &StateRef::Chunks(chunks.clone())).unwrap().as_ref(), [1; 4096]);
    let other = log.put_state(b"other").unwrap();
    let keep: BTreeSet<_> = chunks.into_iter().collect();
    assert_eq!(log.retain_state(&keep).unwrap(), 1);
    assert!(matches!(log.read_state(&other), Err(StoreError::MissingFile { .. })));
    assert!(matches!(log.retain_state(&BTreeSet::from([other])), Err(StoreError::MissingFile { .. })));
    assert_eq!(log.retain_state(&BTreeSet::new()).unwrap(), 1);
    append_all(log, &[seal(6, 0)]);
}

#[test]
fn both_logs_answer_alike() {
    check(&mut MemoryLog::new());
    check(&mut open_on(&SimDisk::new()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    check(&mut tidegate_store::LocalLog::open(dir.path(), Default::default()).unwrap());
}

#[test]
fn f23_a_lost_answer_stops_the_handle_and_the_next_one_finds_out() {
    for (fault, written) in [(AppendFault::UnknownWritten, true), (AppendFault::UnknownNotWritten, false)] {
        let mut log = MemoryLog::new();
        log.fail_append(2, fault);
        append_all(&mut log, &script(2));
        assert!(matches!(log.append(&script(3)[2]), AppendResult::Unknown(_)));
        assert!(matches!(log.append(&script(3)[2]), AppendResult::NotWritten { retryable: false, .. }));
        assert!(matches!(log.read_all(), Err(StoreError::Poisoned { .. })));
        let mut next = log.clone();
        assert_eq!(next.read_all().unwrap().len(), if written { 3 } else { 2 });
        let answer = next.append(&script(3)[2]);
        let expected =
            if written { AppendResult::Taken(Box::new(script(3)[2].clone())) } else { AppendResult::Created };
        assert_eq!(answer, expected);
    }
}

#[test]
fn faults_come_in_the_order_in_which_they_were_planted() {
    let mut log = MemoryLog::new();
    let mut other = seal(9, 1);
    other.run = run(2);
    log.fail_append(0, AppendFault::Full);
    log.fail_append(1, AppendFault::TakenBy(Box::new(other.clone())));
    log.fail_append(0, AppendFault::Refused);
    assert!(matches!(log.append(&script(1)[0]), AppendResult::NotWritten { retryable: true, .. }));
    append_all(&mut log, &script(1));
    other.slot = Slot(2);
    assert_eq!(log.append(&script(2)[1]), AppendResult::Taken(Box::new(other)));
    assert!(matches!(log.append(&seal(3, 1)), AppendResult::NotWritten { retryable: false, .. }));
    assert_eq!((log.appends(), log.snapshot().len()), (4, 2));
}

#[test]
fn f22_a_stale_read_misses_the_newest_once_and_the_slot_is_still_taken() {
    let mut log = MemoryLog::new();
    append_all(&mut log, &script(3));
    log.read_stale_once(2);
    assert_eq!(log.read_all().unwrap(), script(1));
    assert!(matches!(log.append(&seal(2, 3)), AppendResult::Taken(_)));
    assert_eq!(log.read_all().unwrap(), script(3));
}

#[test]
fn state_faults_are_named_and_damage_is_found() {
    let mut log = MemoryLog::new();
    let chunk = log.put_state(b"abc").unwrap();
    log.fail_state(0, StateFault::Full);
    log.fail_state(0, StateFault::Eio);
    assert!(matches!(log.put_state(b"x"), Err(StoreError::Full { .. })));
    assert!(matches!(log.read_state(&chunk), Err(StoreError::Io { .. })));
    assert!(log.damage_state(&chunk));
    assert!(matches!(log.read_state(&chunk), Err(StoreError::Corrupt { .. })));
}
