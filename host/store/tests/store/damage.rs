//! Media that lie: every flipped bit, every cut, lost and foreign files.

use std::path::Path;

use tidegate_protocol::ids::Slot;
use tidegate_protocol::record::{Record, StateChunk};
use tidegate_store::disk::sim::{Fate, Image, Op, SimDisk};
use tidegate_store::{ErrorKind, Log as _, ReadOnlyLog, StoreError, Tail};

use crate::support::{DIR, append_all, image_of, open_on, read, script, seal, segment};

/// Opens a damaged image both ways; both must agree.
fn open_both(image: &Image) -> Result<Vec<Record>, StoreError> {
    let looked = ReadOnlyLog::open_on(Box::new(SimDisk::from_image(image.clone())), Path::new(DIR))
        .and_then(|mut log| log.read_all());
    let owned = read(image.clone());
    assert_eq!(looked, owned);
    owned
}

#[test]
fn f21_every_flipped_bit_of_a_log_is_a_named_error() {
    let records = script(4);
    let image = image_of(&records);
    let path = segment(1);
    let used = image.file(&path).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
    // All that was ever written, and some of the fill behind it.
    for byte in (0..used + 600).chain([65_535]) {
        for bit in 0..8 {
            let mut damaged = image.clone();
            damaged.file_mut(&path).unwrap()[byte] ^= 1 << bit;
            let error = read(damaged).expect_err("a flipped bit was not noticed");
            match &error {
                StoreError::Corrupt { file, offset, .. } => {
                    assert!(file.ends_with(&path));
                    assert!(
                        offset.abs_diff(byte as u64) < 2 * 512,
                        "bit in byte {byte}, reported at {offset}: {error}"
                    );
                }
                StoreError::UnsupportedVersion { .. } => assert!((8..10).contains(&byte), "{byte}"),
                other => panic!("byte {byte}: {other}"),
            }
        }
    }
}

#[test]
fn f21_a_damaged_newest_record_is_named_with_its_slot_and_what_to_do() {
    let mut image = image_of(&script(3));
    let path = segment(1);
    let file = image.file_mut(&path).unwrap();
    let last = file.iter().rposition(|byte| *byte != 0).unwrap();
    file[last] ^= 0x10;
    let error = open_both(&image).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { slot: Some(Slot(3)), .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let message = error.to_string();
    assert!(message.contains(&path) && message.contains("record 3") && message.contains("Restore"), "{message}");
}

#[test]
fn f14_f25_every_cut_of_a_log_is_a_named_error() {
    let image = image_of(&script(6));
    let path = segment(1);
    let whole = image.file(&path).unwrap().len();
    for len in (0..8000).chain((8000..whole).step_by(997)).chain([whole - 1]) {
        let mut cut = image.clone();
        cut.file_mut(&path).unwrap().truncate(len);
        assert!(matches!(read(cut), Err(StoreError::Corrupt { .. })), "cut to {len}");
    }
    let mut longer = image.clone();
    longer.file_mut(&path).unwrap().push(0);
    assert!(matches!(open_both(&longer), Err(StoreError::Corrupt { .. })));
}

#[test]
fn f14_a_record_torn_at_any_sector_is_cut_and_the_rest_stays() {
    let disk = SimDisk::new();
    let records = script(4);
    append_all(&mut open_on(&disk).unwrap(), &records);
    let before = disk.ops();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &[seal(5, 9000)]);
    let trace = disk.trace();
    let write = (before..trace.len()).rfind(|op| matches!(trace[*op], Op::Write { .. })).unwrap();
    let Op::Write { bytes, .. } = &trace[write] else { unreachable!() };
    let sectors = bytes.len() / 512;
    let torn = |fate: &Fate| disk.crash(write + 1, |_| fate.clone());
    let mut count = 0;
    for at in 0..sectors {
        let fates = [0..at, at + 1..sectors, at..at + 1].map(Fate::OnlySectors);
        for fate in fates.into_iter().chain([Fate::AllButSectors(at..at + 1)]) {
            let image = torn(&fate);
            assert_eq!(open_both(&image).unwrap(), records, "{fate:?}");
            let disk = SimDisk::from_image(image);
            let mut log = open_on(&disk).unwrap();
            if !matches!(&fate, Fate::OnlySectors(kept) if kept.is_empty()) {
                assert!(matches!(log.recovery().tail, Tail::Torn { slot: Slot(5), .. }), "{fate:?}");
                count += 1;
            }
            append_all(&mut log, &[seal(5, 300)]);
            assert_eq!(open_on(&disk).unwrap().recovery().tail, Tail::Clean);
        }
    }
    assert!(count > 60);
    assert_eq!(open_both(&torn(&Fate::Kept)).unwrap().len(), 5);
}

#[test]
fn f25_a_lost_file_is_missed_wherever_it_stood() {
    let records: Vec<Record> = script(1).into_iter().chain((2..40).map(|slot| seal(slot, 9000))).collect();
    let image = image_of(&records);
    let paths = image.paths();
    assert!(paths.len() >= 4, "{paths:?}");
    assert_eq!(open_both(&image).unwrap(), records);
    for path in &paths {
        let mut lost = image.clone();
        lost.take(path).unwrap();
        let error = open_both(&lost).unwrap_err();
        assert!(matches!(&error, StoreError::MissingFile { slot: Some(_), .. }), "{path}: {error}");
    }
    // A file of another log in its place is no better, nor is an older copy of the newest.
    let other = image_of(
        &records
            .iter()
            .cloned()
            .map(|mut record| {
                record.run = crate::support::run(2);
                record
            })
            .collect::<Vec<_>>(),
    );
    let mut mixed = image.clone();
    mixed.put(&paths[1], other.file(&paths[1]).unwrap().to_vec());
    assert!(matches!(open_both(&mixed), Err(StoreError::Corrupt { .. })));
}

#[test]
fn foreign_and_empty_files_are_named() {
    let image = image_of(&script(2));
    for name in ["log/notes.txt", "log/1.log", "log/00000000000000000000.log", "state/readme", "log/x.tmp"] {
        let mut foreign = image.clone();
        foreign.put(name, b"hello".to_vec());
        let error = read(foreign).unwrap_err();
        assert!(matches!(&error, StoreError::ForeignFile { file } if file.ends_with(name)), "{name}: {error}");
    }
    for content in [Vec::new(), vec![0; 100], vec![0; 512], vec![0xFF; 65536], b"TIDEGATE".to_vec()] {
        let mut foreign = image.clone();
        foreign.put(&segment(3), content);
        assert!(matches!(open_both(&foreign), Err(StoreError::Corrupt { .. } | StoreError::UnsupportedVersion { .. })));
    }
}

#[test]
fn lengths_that_lie_cost_no_memory() {
    let records = script(2);
    let image = image_of(&records);
    let path = segment(1);
    // Header: capacity, first, last. Checksums are made good, so that the numbers themselves are judged.
    for (at, value) in [(32, u64::MAX), (32, 1 << 62), (32, 0), (16, 0), (16, u64::MAX), (24, u64::MAX), (24, 7)] {
        let mut lying = image.clone();
        let file = lying.file_mut(&path).unwrap();
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let checksum = crc32c::crc32c(&file[..508]).to_le_bytes();
        file[508..512].copy_from_slice(&checksum);
        assert!(matches!(open_both(&lying), Err(StoreError::Corrupt { .. })), "{at} {value}");
    }
    // First sector of the second record: count of sectors, and the frame's length.
    let second = 512 + (1..).find(|n| image.file(&path).unwrap()[512 + n * 512 + 4..][..4] == [0; 4]).unwrap() * 512;
    for (at, value) in [(8, u32::MAX), (8, 0), (8, 1000), (4, 7), (24, u32::MAX), (24, 0), (22, 0xFFFF_FFFF)] {
        let mut lying = image.clone();
        let sector = &mut lying.file_mut(&path).unwrap()[second..second + 512];
        sector[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let checksum = crc32c::crc32c(&sector[4..]).to_le_bytes();
        sector[..4].copy_from_slice(&checksum);
        assert!(matches!(open_both(&lying), Err(StoreError::Corrupt { .. })), "{at} {value}");
    }
}

#[test]
fn damaged_or_missing_state_is_named_and_written_again_when_it_is_needed_again() {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &script(1));
    let chunk = log.put_state(&[7; 5000]).unwrap();
    let path = format!("state/{}", chunk.sha256);
    drop(log);

    let damages: [fn(&mut Vec<u8>); 3] = [|file| file[4000] ^= 1, |file| file.truncate(10), |file| file.push(0)];
    for damage in damages {
        let mut image = disk.visible();
        damage(image.file_mut(&path).unwrap());
        let mut log = open_on(&SimDisk::from_image(image)).unwrap();
        let error = log.read_state(&chunk).unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { file, .. } if file.ends_with(&path)), "{error}");
        assert_eq!(log.put_state(&[7; 5000]).unwrap(), chunk);
        assert_eq!(log.read_state(&chunk).unwrap().as_ref(), [7; 5000]);
    }
    let mut image = disk.visible();
    image.take(&path).unwrap();
    let mut log = open_on(&SimDisk::from_image(image)).unwrap();
    assert!(matches!(log.read_state(&chunk), Err(StoreError::MissingFile { .. })));
    // What it cannot read stops it, before anything is deleted.
    let other = log.put_state(b"other").unwrap();
    let keep = [chunk.clone()].into();
    assert!(matches!(log.retain_state(&keep), Err(StoreError::MissingFile { .. })));
    assert!(log.read_state(&other).is_ok());
    for bad in ["", "../lock", "ab", &"A".repeat(64), &"é".repeat(32)] {
        let bad = StateChunk { sha256: bad.to_owned(), bytes: 1 };
        assert!(matches!(log.read_state(&bad), Err(StoreError::BadChunkName { .. })));
    }
    let huge = StateChunk { bytes: u64::MAX, ..other };
    assert!(matches!(log.read_state(&huge), Err(StoreError::TooLarge { .. })));
}
