//! What lies in a log's folders, and disks that change under it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::{Body, StateChunk, StateRef};
use tidegate_store::codec::MAX_PAYLOAD;
use tidegate_store::disk::sim::{Fate, Fault, SimDisk};
use tidegate_store::disk::{Disk, Entry, RealDisk};
use tidegate_store::state::{LOAD_LIMIT, chunk_of, load};
use tidegate_store::{AppendResult, LocalLog, Log, MemoryLog, OpenOptions, StoreError};

use crate::pages::{entry, seal_at};
use crate::support::{DIR, append_all, open, open_on, script, seal, segment, small};

#[test]
fn folders_that_have_the_name_of_a_file_do_not_belong_there() {
    for name in [
        segment(1),
        format!("{}.tmp", segment(1)),
        format!("state/{}", "a".repeat(64)),
        format!("state/{}.tmp", "a".repeat(64)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        drop(LocalLog::open(dir.path(), OpenOptions::default()).unwrap());
        std::fs::create_dir(dir.path().join(&name)).unwrap();
        let error = LocalLog::open(dir.path(), OpenOptions::default()).unwrap_err();
        assert!(matches!(&error, StoreError::ForeignFile { file } if file.ends_with(&name)), "{name}: {error}");
    }
}

#[test]
fn what_only_looks_unfinished_is_foreign() {
    let disk = SimDisk::new();
    drop(open_on(&disk).unwrap());
    for name in ["state/x.tmp", "state/.tmp", "log/.tmp"] {
        let mut image = disk.visible();
        image.put(name, Vec::new());
        assert!(matches!(open_on(&SimDisk::from_image(image)), Err(StoreError::ForeignFile { .. })), "{name}");
    }
}

#[test]
fn the_contents_of_a_log_are_its_segments_and_pieces_and_nothing_else() {
    let mut disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(3));
    let chunk = log.put_state(&[7; 5000]).unwrap();
    let path = format!("state/{}", chunk.sha256);
    let listed: Vec<(String, u64)> = log.contents().unwrap().into_iter().map(|file| (file.path, file.bytes)).collect();
    assert_eq!(listed, [(segment(1), 64 << 10), (path.clone(), 5000)]);
    assert_eq!(log.read_file(&path, 4990, 100).unwrap(), [7; 10], "fewer at the end");
    for foreign in ["lock", "state/../lock", "log/x", &format!("{path}.tmp")] {
        assert!(matches!(log.read_file(foreign, 0, 1), Err(StoreError::Io { .. })), "{foreign}");
    }
    // What was cut short is no part of it; what does not belong there stops it.
    disk.create(&format!("{path}.tmp")).unwrap();
    assert_eq!(log.contents().unwrap().len(), 2);
    disk.create("log/notes.txt").unwrap();
    assert!(matches!(log.contents(), Err(StoreError::ForeignFile { file }) if file.ends_with("log/notes.txt")));
    disk.remove("log/notes.txt").unwrap();
    disk.fail_after(0, Fault::Eio);
    log.put_state(b"other").unwrap_err();
    assert!(matches!(log.contents(), Err(StoreError::Poisoned { .. })), "after a failure it proves nothing");
    assert!(matches!(log.read_file(&path, 0, 1), Err(StoreError::Poisoned { .. })));
}

#[test]
fn a_folder_with_the_name_of_a_piece_is_no_content() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = LocalLog::open(dir.path(), OpenOptions::default()).unwrap();
    std::fs::create_dir(dir.path().join(format!("state/{}", "a".repeat(64)))).unwrap();
    assert!(matches!(log.contents(), Err(StoreError::ForeignFile { .. })));
}

#[test]
fn what_an_interrupted_write_left_is_written_over() {
    let mut disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(1));
    let chunk = chunk_of(b"some state");
    let path = format!("state/{}.tmp", chunk.sha256);
    disk.create(&path).unwrap();
    disk.write(&path, 0, b"longer than what will be there").unwrap();
    assert_eq!(log.put_state(b"some state").unwrap(), chunk);
    assert_eq!(log.read_state(&chunk).unwrap().as_ref(), b"some state");
    assert_eq!(disk.visible().file(&path), None);
}

#[test]
fn a_piece_that_came_after_opening_can_be_read_and_written() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(1));
    let mut other = open_on(&disk).unwrap();
    let chunk = other.put_state(b"some state").unwrap();
    assert_eq!(log.read_state(&chunk).unwrap().as_ref(), b"some state");
    assert_eq!(log.put_state(b"some state").unwrap(), chunk);
}

#[test]
fn pages_that_two_sources_share_are_written_once() {
    let positions: Positions = (0..3_000).map(|number| entry(number, 0)).collect();
    let mut record = seal_at(2, &positions);
    let Body::Seal(sealed) = &mut record.body else { panic!("a seal") };
    let twin = sealed.sources.values().next().unwrap().clone();
    sealed.sources.insert("twin".parse().unwrap(), twin);
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &[open(1), record]);
    let pages = disk.visible().paths().into_iter().filter(|path| path.starts_with("state/")).count();
    assert_eq!(pages, positions.pages().count());
    assert_eq!(open_on(&disk).unwrap().read_all().unwrap().len(), 2);
}

#[test]
fn a_full_disk_on_which_not_even_the_fill_can_be_put_back_stops_the_log() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(3));
    disk.fail_after(0, Fault::Full);
    disk.fail_after(1, Fault::Eio);
    assert!(matches!(log.append(&seal(4, 2000)), AppendResult::Unknown(_)));
    assert!(matches!(log.append(&seal(4, 10)), AppendResult::NotWritten { retryable: false, .. }));
    // Whoever opens it next cuts what was left.
    drop(log);
    assert_eq!(open_on(&disk).unwrap().read_all().unwrap(), script(3));
}

/// A disk of which one read, counted over all that share the counter, gives less than there is.
struct Short {
    disk: SimDisk,
    reads: Arc<AtomicU64>,
    /// A file that no listing shows.
    hidden: Option<String>,
    /// What is hidden cannot be read either.
    unreadable: bool,
}

impl Disk for Short {
    fn list(&mut self, folder: &str) -> io::Result<Vec<Entry>> {
        let mut entries = self.disk.list(folder)?;
        entries.retain(|entry| self.hidden.as_ref() != Some(&format!("{folder}/{}", entry.name)));
        Ok(entries)
    }
    fn read(&mut self, path: &str, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        if self.unreadable && self.hidden.as_deref() == Some(path) {
            return Err(io::Error::other("simulated device failure"));
        }
        let mut bytes = self.disk.read(path, offset, len)?;
        if self.reads.fetch_sub(1, Ordering::Relaxed) == 1 {
            bytes.truncate(bytes.len() / 2);
        }
        Ok(bytes)
    }
    fn create(&mut self, path: &str) -> io::Result<()> {
        self.disk.create(path)
    }
    fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(path, offset, bytes)
    }
    fn flush(&mut self, path: &str) -> io::Result<()> {
        self.disk.flush(path)
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&mut self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn make_folder(&mut self, folder: &str) -> io::Result<()> {
        self.disk.make_folder(folder)
    }
    fn remove_folder(&mut self, folder: &str) -> io::Result<()> {
        self.disk.remove_folder(folder)
    }
    fn flush_folder(&mut self, folder: &str) -> io::Result<()> {
        self.disk.flush_folder(folder)
    }
}

#[test]
fn a_file_that_becomes_shorter_while_it_is_read_is_damage_at_every_read() {
    let mut records = script(3);
    records.push(seal(4, 200_000));
    let image = crate::support::image_of(&records);
    let mut seen = BTreeMap::new();
    for nth in 1.. {
        let reads = Arc::new(AtomicU64::new(nth));
        let disk = SimDisk::from_image(image.clone());
        let disk = Short { disk, reads: Arc::clone(&reads), hidden: None, unreadable: false };
        let read = LocalLog::open_on(Box::new(disk), Path::new(DIR), small()).and_then(|mut log| log.read_all());
        if reads.load(Ordering::Relaxed) as i64 > 0 {
            assert_eq!(read.unwrap(), records, "no read was short");
            break;
        }
        match read {
            Err(StoreError::Corrupt { detail, .. }) => *seen.entry(detail).or_insert(0) += 1,
            other => panic!("read {nth}: {other:?}"),
        }
    }
    let words: Vec<&String> = seen.keys().collect();
    for expected in ["ends after", "shorter while it was read", "became shorter", "no longer what it was"] {
        assert!(words.iter().any(|said| said.contains(expected)), "{expected}: {words:?}");
    }
}

#[test]
fn f24_a_segment_that_a_listing_leaves_out_is_missed_whichever_it_is() {
    // One segment, and several: what is left out is the only one, the first, one between and the newest.
    for count in [3, 9] {
        let records: Vec<_> = (1..=count).map(|slot| if slot == 1 { open(1) } else { seal(slot, 20_000) }).collect();
        let image = crate::support::image_of(&records);
        let segments: Vec<String> = image.paths().into_iter().filter(|path| path.starts_with("log/")).collect();
        assert!(count == 3 || segments.len() > 2, "{segments:?}");
        for hidden in segments {
            let disk = SimDisk::from_image(image.clone());
            let blind =
                Short { disk: disk.clone(), reads: Arc::default(), hidden: Some(hidden.clone()), unreadable: false };
            match LocalLog::open_on(Box::new(blind), Path::new(DIR), small()) {
                Err(StoreError::MissingFile { .. }) => {}
                other => panic!("{hidden}: {other:?}"),
            }
            assert_eq!(
                open_on(&disk).unwrap().read_all().unwrap(),
                records,
                "nothing was changed by the one that refused"
            );
        }
    }
}

#[test]
fn lengths_of_state_that_no_memory_holds_are_refused_before_anything_is_read() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    let chunk = StateChunk { sha256: "a".repeat(64), bytes: MAX_PAYLOAD as u64 };
    let many = StateRef::Chunks(vec![chunk; (LOAD_LIMIT / MAX_PAYLOAD as u64 + 1) as usize]);
    assert!(matches!(load(&mut log, &many), Err(StoreError::TooLarge { .. })));
}

#[test]
fn the_log_in_memory_has_the_limits_of_one_on_a_disk() {
    let mut log = MemoryLog::new();
    append_all(&mut log, &script(1));
    let AppendResult::NotWritten { message, retryable: false } = log.append(&seal(2, MAX_PAYLOAD)) else {
        panic!("it was written")
    };
    assert!(message.contains("the limit is"), "{message}");
    append_all(&mut log, &[seal(2, 10)]);
    let empty = log.put_state(b"").unwrap();
    assert!(!log.damage_state(&empty), "there is no bit to flip");
    assert!(!log.damage_state(&chunk_of(b"never put")));
}

#[test]
fn a_folder_is_made_once_and_nothing_else_passes_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = RealDisk::open(dir.path()).unwrap();
    disk.make_folder("log").unwrap();
    disk.make_folder("log").unwrap();
    std::fs::write(dir.path().join("state"), b"").unwrap();
    assert_eq!(disk.make_folder("state").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(disk.make_folder("not/there").unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn f24_an_empty_listing_beside_a_first_segment_that_cannot_be_read_is_no_new_log() {
    let image = crate::support::image_of(&script(3));
    let hidden = image.paths().into_iter().find(|path| path.starts_with("log/"));
    let disk = SimDisk::from_image(image);
    let blind = Short { disk: disk.clone(), reads: Arc::default(), hidden, unreadable: true };
    let refused = LocalLog::open_on(Box::new(blind), Path::new(DIR), small()).err();
    assert!(matches!(&refused, Some(StoreError::Io { doing: "read", .. })), "{refused:?}");
    assert_eq!(open_on(&disk).unwrap().read_all().unwrap(), script(3), "nothing was changed");
}

#[test]
fn f16_f20_folders_whose_first_flush_failed_are_made_anew() {
    for at in 0..8 {
        for fault in [Fault::Eio, Fault::Full] {
            let disk = SimDisk::new();
            disk.fail_after(at, fault);
            drop(open_on(&disk));
            // The next process sees the folders, and a power cut may still take them.
            let disk = disk.handed_on();
            append_all(&mut open_on(&disk).unwrap(), &script(3));
            let left = SimDisk::from_image(disk.crash(disk.ops(), |_| Fate::Lost));
            assert_eq!(open_on(&left).unwrap().read_all().unwrap(), script(3), "call {at}");
        }
    }
}

#[test]
fn a_disk_that_fails_while_empty_folders_are_made_anew_is_told_and_the_next_start_makes_them() {
    let disk = SimDisk::new();
    drop(open_on(&disk).unwrap());
    disk.fail_after(0, Fault::Eio);
    let refused = open_on(&disk).err();
    assert!(matches!(&refused, Some(StoreError::Io { doing: "remove", .. })), "{refused:?}");
    append_all(&mut open_on(&disk).unwrap(), &script(3));
    assert_eq!(open_on(&disk).unwrap().read_all().unwrap(), script(3));
}
