//! Deletion, and the space that comes back.

use std::collections::BTreeSet;

use tidegate_protocol::ids::Slot;
use tidegate_store::disk::sim::{Fault, SimDisk};
use tidegate_store::{AppendResult, Log as _, StoreError};

use crate::support::{append_all, open, open_on, retire, script, seal};

#[test]
fn deleted_records_are_gone_at_once_and_open_records_never() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(6));
    assert!(matches!(log.delete(&[Slot(2), Slot(1)]), Err(StoreError::OpenRecord { slot: Slot(1) })));
    assert_eq!(log.read_all().unwrap(), script(6));
    // Deleting twice, and what never was, changes nothing.
    for _ in 0..2 {
        log.delete(&[Slot(3), Slot(6), Slot(99)]).unwrap();
        let slots: Vec<u64> = log.read_all().unwrap().iter().map(|record| record.slot.0).collect();
        assert_eq!(slots, [1, 2, 4, 5]);
    }
    // A deleted slot stays used, also when it was the newest.
    assert!(matches!(log.append(&seal(6, 5)), AppendResult::NotWritten { retryable: false, .. }));
    append_all(&mut log, &[seal(7, 5)]);
}

#[test]
fn f26_a_hundred_thousand_epochs_take_bounded_space() {
    let disk = SimDisk::new();
    let (mut largest, mut most_files) = (0, 0);
    let mut opens = Vec::new();
    let mut slot = 0;
    for round in 0..20 {
        let mut log = open_on(&disk).unwrap();
        // What was deleted of the newest segments may be back, and is deleted again.
        let back = log.read_all().unwrap().into_iter().map(|record| record.slot);
        let back: Vec<Slot> = back.filter(|at| !opens.contains(at) && at.0 + 30 < slot).collect();
        assert!(back.len() < 700, "{} records came back", back.len());
        log.delete(&back).unwrap();
        slot += 1;
        opens.push(Slot(slot));
        append_all(&mut log, &[open(slot)]);
        for epoch in 0..5000 {
            slot += 1;
            let record = if epoch % 10 == 9 { retire(slot, slot - 9) } else { seal(slot, 20) };
            append_all(&mut log, &[record]);
            if epoch % 10 == 9 && epoch > 30 {
                let dead: Vec<Slot> = (slot - 29..slot - 19).map(Slot).collect();
                log.delete(&dead).unwrap();
            }
            if epoch % 100 == 0 {
                disk.forget();
                largest = largest.max(disk.visible().bytes());
                most_files = most_files.max(disk.visible().paths().len());
            }
        }
        let kept = log.read_all().unwrap().len();
        assert!(kept <= 100 + round, "{kept} records after {slot}");
    }
    let found: BTreeSet<Slot> = open_on(&disk).unwrap().read_all().unwrap().iter().map(|record| record.slot).collect();
    assert!(opens.iter().all(|slot| found.contains(slot)));
    assert!(largest < 512 << 10, "{largest} bytes");
    assert!(most_files < 12, "{most_files} files");
}

#[test]
fn a_full_disk_does_not_undo_a_deletion() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &[open(1)]);
    append_all(&mut log, &(2..40).map(|slot| seal(slot, 9000)).collect::<Vec<_>>());
    disk.fail_after(1, Fault::Full);
    let files = disk.visible().paths();
    log.delete(&(2..30).map(Slot).collect::<Vec<_>>()).unwrap();
    assert_eq!(disk.visible().paths(), files);
    assert_eq!(log.read_all().unwrap().len(), 11);
    // The next deletion makes up for it.
    log.delete(&[Slot(30)]).unwrap();
    assert!(disk.visible().paths().len() < files.len());
    assert_eq!(log.read_all().unwrap().len(), 10);
    append_all(&mut log, &[seal(40, 9)]);
    assert_eq!(open_on(&disk).unwrap().read_all().unwrap().len(), 11);
}
