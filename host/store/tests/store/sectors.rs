//! Segments in which every checksum is right and what they say is not.

use std::path::Path;

use tidegate_protocol::ids::Slot;
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::Record;
use tidegate_store::codec::encode_record;
use tidegate_store::disk::Disk as _;
use tidegate_store::disk::sim::{Image, SimDisk};
use tidegate_store::{AppendResult, ErrorKind, Log as _, ReadOnlyLog, StoreError, Tail};

use crate::pages::{entry, seal_at};
use crate::support::{DIR, append_all, image_of, open, open_on, script, seal, segment};
use crate::wire::{self, cut, frame, frame_body, sector, summed};

const OURS: [u8; 10] = [1; 10];
const RECORD: u8 = 1;
const GAP: u8 = 2;
const ROLL: u8 = 3;

fn record_frame(record: &Record) -> Vec<u8> {
    let payload = encode_record(record).unwrap();
    frame(record.format_version(), RECORD, record.slot.0, &record.run.nonce.0, &payload)
}

fn gap(first: u64, last: u64, nonce: &[u8; 10]) -> Vec<u8> {
    frame(1, GAP, first, nonce, &last.to_le_bytes())
}

/// A log of one segment: a first record, and these sectors behind it.
fn behind_the_first(frames: &[Vec<u8>]) -> Image {
    let frames: Vec<Vec<u8>> = std::iter::once(record_frame(&open(1))).chain(frames.iter().cloned()).collect();
    image_with(&wire::segment(&frames))
}

fn image_with(file: &[u8]) -> Image {
    let disk = SimDisk::new();
    drop(open_on(&disk).unwrap());
    let mut image = disk.visible();
    image.put(&segment(1), file.to_vec());
    image
}

fn read(image: &Image) -> Result<Vec<Record>, StoreError> {
    let looked = ReadOnlyLog::open_on(Box::new(SimDisk::from_image(image.clone())), Path::new(DIR))
        .and_then(|mut log| log.read_all());
    let owned = crate::support::read(image.clone());
    assert_eq!(looked, owned, "both ways of opening agree");
    owned
}

fn damage(image: &Image) -> String {
    let error = read(image).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(matches!(&error, StoreError::Corrupt { .. } | StoreError::MissingFile { .. }), "{error}");
    error.to_string()
}

/// The `n`-th bytes of a frame's body changed, and its checksum made good.
fn changed(record: &Record, at: usize, to: u8) -> Vec<u8> {
    let payload = encode_record(record).unwrap();
    let mut body = frame_body(1, RECORD, record.slot.0, &record.run.nonce.0, &payload);
    body[at] = to;
    cut(record.slot.0, &summed(body))
}

#[test]
fn a_log_put_together_by_hand_is_read() {
    let records = script(4);
    let mut frames: Vec<Vec<u8>> = records.iter().map(record_frame).collect();
    assert_eq!(read(&image_with(&wire::segment(&frames))).unwrap(), records);
    // Deleted slots in between.
    frames[1] = gap(2, 3, &OURS);
    frames.remove(2);
    assert_eq!(read(&image_with(&wire::segment(&frames))).unwrap(), [records[0].clone(), records[3].clone()]);
}

#[test]
fn a_segment_that_is_full_to_its_last_sector_is_read_and_the_log_goes_on() {
    let records = script(1);
    let mut file = wire::segment(&[record_frame(&records[0]), gap(2, 4, &OURS)]);
    file.truncate(3 * 512);
    wire::patch_header(&mut file, 32, &(3 * 512u64).to_le_bytes());
    let image = image_with(&file);
    assert_eq!(read(&image).unwrap(), records);
    let disk = SimDisk::from_image(image);
    let mut log = open_on(&disk).unwrap();
    append_all(&mut log, &[seal(5, 40)]);
    assert_eq!(crate::support::read(disk.visible()).unwrap().len(), 2);
}

#[test]
fn frames_that_contradict_themselves_are_damage() {
    let second = seal(2, 40);
    let payload = encode_record(&second).unwrap();
    let body = || frame_body(1, RECORD, 2, &OURS, &payload);
    let mut wrong_sum = summed(body());
    *wrong_sum.last_mut().unwrap() ^= 1;
    let mut longer = summed(body());
    longer.push(7);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (changed(&second, 0, b'X'), "no frame begins here"),
        (changed(&second, 6, 9), "unknown kind 9"),
        (changed(&second, 7, 1), "must be zero"),
        (changed(&second, 30, 1), "must be zero"),
        (changed(&second, 31, 1), "must be zero"),
        (cut(2, &longer), "must be zero"),
        (cut(2, &wrong_sum), "checksum does not match, though"),
        (changed(&second, 10, 1), "does not fit its sectors"),
        (gap(2, 1, &OURS), "ends at 1"),
        (gap(2, u64::MAX, &OURS), "ends at 18446744073709551615"),
        (frame(1, GAP, 2, &OURS, b"short"), "without its end"),
        (gap(2, 3, &[9; 10]), "of another log"),
        (frame(1, RECORD, 2, &OURS, b"junk"), "not a record"),
        (frame(1, RECORD, 2, &OURS, &encode_record(&seal(9, 40)).unwrap()), "what is in it of record 9"),
        (frame(1, RECORD, 2, &[9; 10], &payload), "what is in it of record 2"),
        (cut(2, &summed(frame_body(1, RECORD, 2 + (1 << 32), &OURS, &payload))), "stands where another should"),
        (record_frame(&seal(3, 40)), "does not belong here"),
        (sector(0, 1 << 10, 2, &[]), "beyond the file's end"),
    ];
    for (frame, words) in cases {
        let said = damage(&behind_the_first(std::slice::from_ref(&frame)));
        assert!(said.contains(words), "{words}: {said}");
    }
    let mut after_roll = frame(1, ROLL, 2, &OURS, &[]);
    after_roll.extend(record_frame(&second));
    assert!(damage(&behind_the_first(&[after_roll])).contains("something follows the mark"));
}

#[test]
fn versions_to_come_are_refused_as_such() {
    let second = seal(2, 40);
    for version in [0, tidegate_protocol::record::FORMAT_VERSION + 1] {
        let frame = frame(version, RECORD, 2, &OURS, &encode_record(&second).unwrap());
        let error = read(&behind_the_first(&[frame])).unwrap_err();
        assert!(matches!(&error, StoreError::UnsupportedVersion { found, .. } if *found == version), "{error}");
    }
    // A record that needs version 2 in a frame that says 1.
    let positions: Positions = (0..3_000).map(|number| entry(number, 0)).collect();
    let paged = seal_at(2, &positions);
    assert_eq!(paged.format_version(), 2);
    let frame = frame(1, RECORD, 2, &OURS, &encode_record(&paged).unwrap());
    assert!(damage(&behind_the_first(&[frame])).contains("version 2 in a frame of version 1"));
}

#[test]
fn what_a_crash_tore_is_cut_and_pieces_of_other_records_are_damage() {
    let piece = |index, count, slot| sector(index, count, slot, &[7; 100]);
    let torn = behind_the_first(&[[piece(0, 3, 2), vec![0; 512], piece(2, 3, 2)].concat()]);
    let disk = SimDisk::from_image(torn.clone());
    assert!(matches!(open_on(&disk).unwrap().recovery().tail, Tail::Torn { slot: Slot(2), .. }));
    assert_eq!(read(&torn).unwrap().len(), 1);
    for strange in [
        [piece(0, 3, 2), piece(2, 3, 2)].concat(),
        [piece(0, 3, 2), piece(1, 4, 2)].concat(),
        [piece(0, 3, 2), piece(1, 3, 5)].concat(),
    ] {
        assert!(damage(&behind_the_first(&[strange])).contains("does not belong here"));
    }
}

/// A log of at least four segments.
fn long() -> Image {
    let records: Vec<Record> = script(1).into_iter().chain((2..40).map(|slot| seal(slot, 9000))).collect();
    let image = image_of(&records);
    assert!(image.paths().len() >= 4);
    image
}

fn segments(image: &Image) -> Vec<String> {
    image.paths().into_iter().filter(|path| path.starts_with("log/")).collect()
}

/// Where the mark stands that the segment is closed.
fn closing(image: &Image, path: &str) -> usize {
    let file = image.file(path).unwrap();
    file.iter().rposition(|byte| *byte != 0).unwrap() / 512 * 512
}

#[test]
fn only_the_newest_file_may_lack_the_mark_that_it_is_closed() {
    let image = long();
    let paths = segments(&image);
    for path in &paths[..paths.len() - 1] {
        let mark = closing(&image, path);
        let mut open_ended = image.clone();
        open_ended.file_mut(path).unwrap()[mark..mark + 512].fill(0);
        assert!(damage(&open_ended).contains("no mark that it is closed"), "{path}");
        let mut torn = image.clone();
        let next = paths[paths.iter().position(|p| p == path).unwrap() + 1].clone();
        let slot: u64 = next[4..24].parse().unwrap();
        torn.file_mut(path).unwrap()[mark..mark + 512].copy_from_slice(&sector(0, 2, slot, &[7]));
        assert!(damage(&torn).contains("no mark that it is closed"), "{path}");
    }
}

#[test]
fn two_files_that_claim_the_same_record_are_damage() {
    let image = long();
    let paths = segments(&image);
    let first: u64 = paths[1][4..24].parse().unwrap();
    let mut both = image.clone();
    let mut file = both.take(&paths[1]).unwrap();
    wire::patch_header(&mut file, 16, &(first - 1).to_le_bytes());
    both.put(&segment(first - 1), file);
    let said = damage(&both);
    assert!(said.contains("two files claim this one"), "{said}");
}

#[test]
fn a_header_whose_last_record_comes_before_its_first_is_damage() {
    let image = long();
    let path = segments(&image)[1].clone();
    let mut lying = image.clone();
    wire::patch_header(lying.file_mut(&path).unwrap(), 24, &1u64.to_le_bytes());
    assert!(damage(&lying).contains("contradicts itself"));
}

#[test]
fn a_record_that_changes_under_an_open_log_is_noticed_when_it_is_read() {
    let records = script(3);
    let opened = || {
        let disk = SimDisk::from_image(image_of(&records));
        (disk.clone(), open_on(&disk).unwrap())
    };
    let frames: Vec<usize> = records.iter().map(|record| record_frame(record).len()).collect();
    let second = (512 + frames[0]) as u64;
    // As many sectors as the second record takes, whole and in place, and no record.
    let filler = frame(1, GAP, 2, &OURS, &vec![0; frames[1] / 512 * 496 - 36]);
    assert_eq!(filler.len(), frames[1]);
    let another = record_frame(&Record { slot: Slot(9), ..records[1].clone() });
    assert_eq!(another.len(), frames[1]);
    for (bytes, words) in [
        (vec![7; 512], "no longer what it was"),
        (another, "stands where another should"),
        (filler, "stands where another should"),
    ] {
        let (mut disk, mut log) = opened();
        disk.write(&segment(1), second, &bytes).unwrap();
        let error = log.read_all().unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { slot: Some(Slot(2)), .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        // Who meets it while it creates a record does not know what is there, and writes nothing more.
        assert!(matches!(log.append(&seal(2, 1)), AppendResult::Unknown(_)));
        assert!(matches!(log.append(&seal(4, 1)), AppendResult::NotWritten { retryable: false, .. }));
    }
}
