//! On a real directory.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use tidegate_protocol::ids::Slot;
use tidegate_store::{AppendResult, ErrorKind, LocalLog, Log, OpenOptions, StoreError, Tail, state};

use crate::support::{append_all, open, run, script, seal, small};

fn local(dir: &Path) -> LocalLog {
    LocalLog::open(dir, OpenOptions::default()).unwrap()
}

#[test]
fn what_was_appended_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("deep/state");
    let records = script(400);
    append_all(&mut local(&dir), &records);
    for _ in 0..3 {
        let mut log = local(&dir);
        assert_eq!(log.read_all().unwrap(), records);
        assert_eq!(log.recovery().tail, Tail::Clean);
        assert_eq!(log.next_slot(), Slot(401));
    }
    assert_eq!(LocalLog::open_read_only(&dir).unwrap().read_all().unwrap(), records);
}

#[test]
fn a_taken_slot_returns_what_is_there_and_a_gap_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = local(dir.path());
    append_all(&mut log, &script(3));
    let mut late = seal(2, 10);
    late.run = run(2);
    assert_eq!(log.append(&late), AppendResult::Taken(Box::new(script(2)[1].clone())));
    // F23: our own record, whose answer was lost.
    assert_eq!(log.append(&script(3)[2]), AppendResult::Taken(Box::new(script(3)[2].clone())));
    for slot in [0, 5, u64::MAX] {
        assert!(matches!(log.append(&seal(slot, 10)), AppendResult::NotWritten { retryable: false, .. }), "{slot}");
    }
    assert_eq!(log.append(&seal(4, 10)), AppendResult::Created);
}

#[test]
fn f46_a_second_owner_is_refused_and_told_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = local(dir.path());
    let error = LocalLog::open(dir.path(), OpenOptions::default()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { pid: Some(pid), .. } if pid == std::process::id()), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotOwner);
    drop(first);
    local(dir.path());
}

#[test]
fn the_lock_holds_against_another_process_and_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    append_all(&mut local(dir.path()), &script(2));
    // `flock` of util-linux takes the same lock in another process.
    let lock = dir.path().join("lock");
    let mut other = Command::new("flock");
    other.arg(&lock).args(["sh", "-c", "echo held; read x"]);
    other.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut other = other.spawn().unwrap();
    let mut held = [0; 5];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut held).unwrap();
    let error = LocalLog::open(dir.path(), OpenOptions::default()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    drop(other.stdin.take());
    other.wait().unwrap();
    local(dir.path());
}

#[test]
fn a_log_whose_lock_file_was_replaced_writes_nothing_more() {
    for replace in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut log = local(dir.path());
        append_all(&mut log, &script(2));
        std::fs::remove_file(dir.path().join("lock")).unwrap();
        let successor = replace.then(|| local(dir.path()));
        let AppendResult::NotWritten { message, retryable: false } = log.append(&seal(3, 1)) else {
            panic!("a log without its lock wrote")
        };
        assert!(message.contains("no longer the lock"), "{message}");
        assert!(log.put_state(b"x").is_err());
        assert!(log.delete(&[Slot(2)]).is_err());
        assert!(log.retain_state(&BTreeSet::new()).is_err());
        if let Some(mut successor) = successor {
            append_all(&mut successor, &script(3)[2..]);
        }
    }
}

#[test]
fn a_directory_that_was_moved_away_is_written_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    let mut log = local(&here);
    append_all(&mut log, &script(2));
    std::fs::rename(&here, &there).unwrap();
    assert!(matches!(log.append(&seal(3, 1)), AppendResult::NotWritten { retryable: false, .. }));
}

#[test]
fn a_log_of_another_pipeline_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    append_all(&mut local(dir.path()), &[open(1)]);
    let options = OpenOptions { pipeline: Some("trains".parse().unwrap()), ..OpenOptions::default() };
    let error = LocalLog::open(dir.path(), options).unwrap_err();
    assert!(matches!(error, StoreError::ForeignPipeline { .. }));
    assert!(error.to_string().contains("`flights`") && error.to_string().contains("`trains`"), "{error}");
    let options = OpenOptions { pipeline: Some("flights".parse().unwrap()), ..OpenOptions::default() };
    LocalLog::open(dir.path(), options).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), b"").unwrap();
    let error = LocalLog::open(&dir.path().join("file/state"), OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("file/state"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Mend);
    assert!(matches!(LocalLog::open(Path::new("/proc/tidegate"), small()), Err(StoreError::Io { .. })));
}

#[test]
fn looking_changes_nothing_and_needs_a_log() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(LocalLog::open_read_only(dir.path()), Err(StoreError::NoLog { .. })));
    assert!(matches!(LocalLog::open_read_only(&dir.path().join("x")), Err(StoreError::NoLog { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let mut owner = local(dir.path());
    append_all(&mut owner, &script(5));
    let chunk = owner.put_state(b"some state").unwrap();
    let mut reader = LocalLog::open_read_only(dir.path()).unwrap();
    assert_eq!(reader.read_all().unwrap(), script(5));
    append_all(&mut owner, &script(6)[5..]);
    assert_eq!(reader.read_all().unwrap(), script(6));
    assert_eq!(reader.read_state(&chunk).unwrap().as_ref(), b"some state");
    assert!(matches!(reader.append(&seal(7, 1)), AppendResult::NotWritten { retryable: false, .. }));
    for refused in [reader.delete(&[Slot(2)]).err(), reader.put_state(b"y").err()] {
        assert!(matches!(refused, Some(StoreError::ReadOnly { .. })));
    }
    assert_eq!(owner.append(&seal(7, 1)), AppendResult::Created);
}

#[test]
fn a_reader_sees_whole_records_whatever_the_owner_does_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let records = script(1500);
    let mut owner = LocalLog::open(dir.path(), small()).unwrap();
    append_all(&mut owner, &records[..1]);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut log = LocalLog::open_read_only(dir.path()).unwrap();
            let (mut seen, mut looks) = (0, 0);
            while seen < records.len() {
                let read = log.read_all().unwrap();
                // Deletions take records from the middle; what is there is as it was written.
                assert!(read.iter().all(|record| records[record.slot.0 as usize - 1] == *record));
                seen = read.last().map_or(0, |record| record.slot.0 as usize);
                looks += 1;
            }
            looks
        });
        for record in &records[1..] {
            assert_eq!(owner.append(record), AppendResult::Created);
            if record.slot.0 > 20 {
                owner.delete(&[Slot(record.slot.0 - 10)]).unwrap();
            }
        }
        assert!(reading.join().unwrap() > 0);
    });
}

#[test]
fn large_state_survives_reopening_and_unchanged_parts_keep_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let mut seed = 1u64;
    let mut bytes: Vec<u8> = (0..5 << 20)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .collect();
    let (before, after);
    {
        let mut log = local(dir.path());
        before = state::store(&mut log, &bytes).unwrap();
        bytes.splice(1000..1000, *b"a few bytes near the front");
        after = state::store(&mut log, &bytes).unwrap();
    }
    let mut log = local(dir.path());
    assert_eq!(state::load(&mut log, &after).unwrap(), bytes);
    use tidegate_protocol::record::StateRef::Chunks;
    let (Chunks(before), Chunks(after)) = (before, after) else { panic!("large state was kept inline") };
    let new: Vec<_> = after.iter().filter(|chunk| !before.contains(chunk)).collect();
    assert!(after.len() > 8 && new.len() <= 2, "{} of {} pieces are new", new.len(), after.len());
    // Only what is named stays.
    let keep: BTreeSet<_> = after.iter().cloned().collect();
    assert_eq!(log.retain_state(&keep).unwrap(), before.iter().filter(|chunk| !keep.contains(chunk)).count() as u64);
    assert!(log.read_state(&after[0]).is_ok());
    assert_eq!(log.retain_state(&keep).unwrap(), 0);
}
