//! How much memory the log takes at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate_protocol::ids::Slot;
use tidegate_store::{LocalLog, Log as _, OpenOptions};

use crate::support::{append_all, open, seal};

/// The system's allocator, which also notes the largest block that each thread asked for.
struct Noting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(bytes: usize) {
    // A thread that is ending has nobody who would ask.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: every call is handed on as it is to the system's allocator.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

fn largest(work: impl FnOnce()) -> usize {
    LARGEST.set(0);
    work();
    LARGEST.get()
}

#[test]
fn new_segments_and_reclaimed_ones_take_no_buffer_of_their_size() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LocalLog::open(dir.path(), OpenOptions::default()).unwrap();
    let records: Vec<_> = (1..=420).map(|slot| if slot == 1 { open(1) } else { seal(slot, 40 << 10) }).collect();
    let sizes = || -> Vec<u64> {
        let segments = std::fs::read_dir(dir.path().join("log")).unwrap();
        segments.map(|entry| entry.unwrap().metadata().unwrap().len()).collect()
    };
    let appending = largest(|| append_all(&mut log, &records));
    assert!(sizes().contains(&(8 << 20)), "no full-grown segment was made: {:?}", sizes());
    assert!(appending < 256 << 10, "{appending} bytes at once to append");

    let before: u64 = sizes().iter().sum();
    let dead: Vec<Slot> = (2..=400).filter(|slot| slot % 3 != 0).map(Slot).collect();
    let reclaiming = largest(|| log.delete(&dead).unwrap());
    let after: u64 = sizes().iter().sum();
    assert!(after + (4 << 20) < before, "nothing was reclaimed: {before} bytes, then {after}");
    assert!(reclaiming < 256 << 10, "{reclaiming} bytes at once to reclaim");

    let kept: Vec<_> = records.into_iter().filter(|record| !dead.contains(&record.slot)).collect();
    assert_eq!(log.read_all().unwrap(), kept);
    drop(log);
    // What lies in a closed segment is gone for good; in the newest, it comes back.
    let found = LocalLog::open(dir.path(), OpenOptions::default()).unwrap().read_all().unwrap();
    assert!(kept.iter().all(|record| found.contains(record)));
}
