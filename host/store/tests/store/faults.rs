//! A disk that fails while the log is in use.

use std::path::Path;

use tidegate_protocol::ids::Slot;
use tidegate_store::disk::sim::{Fate, Fault, Op, SimDisk};
use tidegate_store::{AppendResult, ErrorKind, LocalLog, Log as _, OpenOptions, StoreError, Tail};

use crate::support::{DIR, append_all, open, open_on, script, seal};

fn not_written(answer: AppendResult) -> (String, bool) {
    match answer {
        AppendResult::NotWritten { message, retryable } => (message, retryable),
        other => panic!("{other:?}"),
    }
}

#[test]
fn c10_what_a_failed_flush_left_in_the_page_cache_is_written_again_before_it_is_acted_upon() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(3));
    disk.fail_after(1, Fault::Eio);
    assert!(matches!(log.append(&seal(4, 900)), AppendResult::Unknown(_)));

    // Nothing more in this process, and the reason is said.
    let (message, retryable) = not_written(log.append(&seal(4, 900)));
    assert!(!retryable && message.contains("simulated device failure"), "{message}");
    for error in [log.read_all().unwrap_err(), log.put_state(b"x").unwrap_err(), log.delete(&[Slot(2)]).unwrap_err()] {
        assert!(matches!(error, StoreError::Poisoned { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Stop);
    }
    drop(log);

    // The next process sees the record, and may commit what it seals.
    let acted_upon = open_on(&disk).unwrap().read_all().unwrap();
    assert_eq!(acted_upon.len(), 4);
    let after_power_cut = disk.crash(disk.ops(), |_| Fate::Lost);
    assert_eq!(crate::support::read(after_power_cut).unwrap(), acted_upon);
}

#[test]
fn f20_a_full_disk_is_said_and_the_same_append_goes_through_when_there_is_room() {
    // The write into the segment itself, as on a file system that copies on write.
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(3));
    disk.fail_after(0, Fault::Full);
    let (message, retryable) = not_written(log.append(&seal(4, 2000)));
    assert!(retryable && message.contains("no room") && message.contains("log/"), "{message}");
    // In between the next process reads cleanly.
    assert_eq!(crate::support::read(disk.crash(disk.ops(), |_| Fate::Lost)).unwrap(), script(3));
    assert_eq!(log.append(&seal(4, 100)), AppendResult::Created);
    assert_eq!(open_on(&disk).unwrap().recovery().tail, Tail::Clean);
}

#[test]
fn f20_a_full_disk_while_a_segment_is_made_leaves_nothing_behind() {
    for call in 0..4 {
        let disk = SimDisk::new();
        let mut log = open_on(&disk).unwrap();
        append_all(&mut log, &script(2));
        let files = disk.visible().paths();
        disk.fail_after(call, Fault::Full);
        // Too large for what is left of the first segment.
        let (message, retryable) = not_written(log.append(&seal(3, 90_000)));
        assert!(retryable && message.contains("no room"), "{message}");
        assert_eq!(disk.visible().paths(), files, "call {call}");
        assert_eq!(log.append(&seal(3, 90_000)), AppendResult::Created);
        append_all(&mut log, &[seal(4, 10)]);
    }
}

#[test]
fn f20_a_full_disk_keeps_state_out_and_the_log_usable() {
    for call in 0..4 {
        let disk = SimDisk::new();
        let mut log = open_on(&disk).unwrap();
        append_all(&mut log, &script(2));
        disk.fail_after(call, Fault::Full);
        let error = log.put_state(b"some state").unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Retry);
        let chunk = log.put_state(b"some state").unwrap();
        append_all(&mut log, &[seal(3, 10)]);
        assert_eq!(open_on(&disk).unwrap().read_state(&chunk).unwrap().as_ref(), b"some state");
    }
}

#[test]
fn f16_a_failed_flush_of_state_stops_the_log() {
    for call in 2..5 {
        let disk = SimDisk::new();
        let mut log = open_on(&disk).unwrap();
        append_all(&mut log, &script(2));
        disk.fail_after(call, Fault::Eio);
        assert!(matches!(log.put_state(b"some state"), Err(StoreError::Io { .. })));
        assert!(!not_written(log.append(&seal(3, 10))).1);
    }
}

#[test]
fn an_append_costs_one_write_and_one_flush() {
    let disk = SimDisk::new();
    let mut log = LocalLog::open_on(Box::new(disk.clone()), Path::new(DIR), OpenOptions::default()).unwrap();
    append_all(&mut log, &script(1));
    let before = disk.ops();
    append_all(&mut log, &script(40)[1..]);
    let done = &disk.trace()[before..];
    assert_eq!(done.len(), 2 * 39);
    assert!(done.chunks(2).all(|pair| matches!(pair, [Op::Write { .. }, Op::Flush { ok: true, .. }])));
}

#[test]
fn a_record_over_the_limit_is_refused_and_the_log_goes_on() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(2));
    let (message, retryable) = not_written(log.append(&seal(3, tidegate_store::codec::MAX_PAYLOAD)));
    assert!(!retryable && message.contains("the limit is"), "{message}");
    append_all(&mut log, &[seal(3, 3 << 20)]);
    assert_eq!(open_on(&disk).unwrap().read_all().unwrap().len(), 3);
    assert!(matches!(
        log.put_state(&vec![0; tidegate_store::codec::MAX_PAYLOAD + 1]),
        Err(StoreError::TooLarge { .. })
    ));
    append_all(&mut log, &[seal(4, 10)]);
}

#[test]
fn f16_a_piece_of_state_of_which_only_the_name_was_not_flushed_is_written_anew() {
    for at in 0..6 {
        let disk = SimDisk::new();
        let mut log = open_on(&disk).unwrap();
        append_all(&mut log, &[open(1)]);
        disk.fail_after(at, Fault::Eio);
        drop(log.put_state(b"some state"));
        drop(log);
        // The next process sees it, and a power cut may still take it.
        let disk = disk.handed_on();
        let chunk = open_on(&disk).unwrap().put_state(b"some state").unwrap();
        let left = SimDisk::from_image(disk.crash(disk.ops(), |_| Fate::Lost));
        assert_eq!(open_on(&left).unwrap().read_state(&chunk).unwrap(), &b"some state"[..], "call {at}");
    }
}
