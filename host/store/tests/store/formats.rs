//! Old formats stay readable, and today's format does not change unnoticed.
//!
//! `tests/old-formats/v<N>/` holds logs as version N wrote them; they are kept for ever. A new version gets a folder of
//! its own: run this test once with `TIDEGATE_WRITE_FORMATS=1`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, PartId, Slot};
use tidegate_protocol::plugin::{Committable, ErrorKind, External, PluginError, Position, WriterState};
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::*;
use tidegate_store::codec::{SEGMENT_VERSION, decode_record, encode_record};
use tidegate_store::disk::sim::{Image, SimDisk};
use tidegate_store::state::load_positions;
use tidegate_store::{Log as _, StoreError};

use crate::pages::{entry, positions_of, seal_at};
use crate::support::{append_all, open_on, read, run, seal, segment};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/old-formats/v{SEGMENT_VERSION}"))
}

fn part() -> PartId {
    PartId::mint(&"flights".parse().unwrap(), &"out".parse().unwrap(), run(1), Epoch(3), 0, 1)
}

fn external() -> External {
    External { kind: "staged-file".to_owned(), name: part().short, expires_at: Some(1_700_000_100_000) }
}

/// One record of every kind, with every field filled and every variant met.
fn every_kind() -> Vec<Body> {
    let of = EpochRef { run: run(1), epoch: Epoch(3) };
    let sink = || "out".parse().unwrap();
    let error = PluginError { kind: ErrorKind::Denied, code: "E13".to_owned(), message: "not here".to_owned() };
    let decision = |id: &str, choice| Body::Decision(Decision { id: id.to_owned(), by: "ana".to_owned(), choice });
    vec![
        Body::Open(Open {
            pipeline: "flights".parse().unwrap(),
            parent: Some(of),
            observed: BTreeMap::from([(
                sink(),
                Position { fence: Some(run(1)), last: vec![part()], token: Bytes::from_static(b"\x00\xff") },
            )]),
            under: vec!["d-1".to_owned()],
            product: "0.1.0".to_owned(),
        }),
        Body::Intent(Intent {
            number: 1,
            sink: sink(),
            part: Some(part().short),
            epoch: Epoch(3),
            resource: external(),
        }),
        Body::Bound(Bound { number: 1, name: "upload/ü".to_owned() }),
        full_seal(CutReason::Savepoint("before-upgrade".to_owned())),
        Body::Outcomes,
        decision("d-2", Choice::Retry { sink: sink(), of }),
        decision("d-3", Choice::GiveUp { sink: sink(), of }),
        decision("d-4", Choice::Fork { from: of, policy: MismatchPolicy::ReplayFromDestination }),
        decision("d-5", Choice::Accept { sink: sink(), policy: MismatchPolicy::AcceptLoss }),
        decision("d-6", Choice::Accept { sink: sink(), policy: MismatchPolicy::AcceptDuplicates }),
        Body::Savepoint(Savepoint { name: "monday".to_owned(), of }),
        Body::Forget(Forget { name: "monday".to_owned() }),
        Body::Retire(Retire { of: vec![of] }),
        Body::Released(Released { sink: sink(), resources: vec![external()] }),
        Body::Deleted(Deleted { gone: vec![SlotRange { first: Slot(2), last: Slot(3) }] }),
        Body::Seal(Box::new(Seal {
            epoch: Epoch(4),
            reason: CutReason::Stop,
            graph: String::new(),
            sources: BTreeMap::new(),
            operators: BTreeMap::new(),
            sinks: BTreeMap::new(),
        })),
        full_seal(CutReason::End),
        full_seal(CutReason::Interval),
        Body::Decision(Decision {
            id: "d-7".to_owned(),
            by: error.message,
            choice: Choice::Retry { sink: sink(), of },
        }),
        Body::Finished(Finished { last: of }),
    ]
}

fn full_seal(reason: CutReason) -> Body {
    let range = KeyRange { first: 0, last: u32::MAX };
    let chunk = StateChunk { sha256: "ab".repeat(32), bytes: 300_000 };
    let cut = |state| OperatorCut {
        range,
        version: 2,
        state,
        timers: vec![(-1, Bytes::from_static(b"key"))],
        watermark: Some(i64::MIN),
        rows_in: u64::MAX,
        rows_out: 0,
    };
    let source = SourceCut {
        partitions: [("a.jsonl".to_owned(), "{\"offset\":17}".to_owned())].into(),
        ended: true,
        watermark: Some(1_357_000_000_000),
        rows: 1000,
        dead_lettered: 3,
        schema: None,
    };
    let committable = Committable {
        part: part(),
        version: 1,
        body: Bytes::from_static(b"{\"files\":[]}"),
        rows: 997,
        expires_at: Some(1_700_000_200_000),
    };
    let full = PartCut {
        ordinal: 0,
        range,
        committable: Some(committable),
        resources: vec![external()],
        state: vec![WriterState { range, version: 1, body: Bytes::from_static(b"w") }],
        rows_in: 1000,
        rows: 997,
        rejected: 3,
        filtered: 0,
    };
    let empty = PartCut {
        ordinal: 1,
        range,
        committable: None,
        resources: Vec::new(),
        state: Vec::new(),
        rows_in: 0,
        rows: 0,
        rejected: 0,
        filtered: 0,
    };
    let binding = Binding {
        plugin: "sha256:00".to_owned(),
        plugin_name: "files 0.1.0".to_owned(),
        config: "{}".to_owned(),
        grants: "{}".to_owned(),
    };
    Body::Seal(Box::new(Seal {
        epoch: Epoch(3),
        reason,
        graph: "sha256:11".to_owned(),
        sources: BTreeMap::from([("in".parse().unwrap(), source)]),
        operators: BTreeMap::from([(
            "count".parse().unwrap(),
            vec![cut(StateRef::Inline(Bytes::from_static(b"\x01\x02"))), cut(StateRef::Chunks(vec![chunk]))],
        )]),
        sinks: BTreeMap::from([("out".parse().unwrap(), SinkCut { binding, parts: vec![full, empty] })]),
    }))
}

/// A number per kind of record. A new kind does not compile here until it has one, and then must be among the golden ones.
fn kind(body: &Body) -> usize {
    match body {
        Body::Open(_) => 0,
        Body::Intent(_) => 1,
        Body::Bound(_) => 2,
        Body::Seal(_) => 3,
        Body::Outcomes => 4,
        Body::Decision(_) => 5,
        Body::Savepoint(_) => 6,
        Body::Forget(_) => 7,
        Body::Retire(_) => 8,
        Body::Released(_) => 9,
        Body::Deleted(_) => 10,
        Body::Finished(_) => 11,
    }
}

fn outcomes() -> Vec<OutcomeEntry> {
    let error = PluginError { kind: ErrorKind::Permanent, code: "E1".to_owned(), message: "no".to_owned() };
    let outcomes = [
        EpochOutcome::Committed,
        EpochOutcome::InDoubt("timed out".to_owned()),
        EpochOutcome::Blocked(Blocked::Rejected(error)),
        EpochOutcome::Blocked(Blocked::Never),
        EpochOutcome::Blocked(Blocked::TriesSpent("10 tries".to_owned())),
        EpochOutcome::Blocked(Blocked::CannotAsk("unsupported".to_owned())),
    ];
    let entry = |(attempt, outcome)| OutcomeEntry {
        sink: "out".parse().unwrap(),
        of: EpochRef { run: run(1), epoch: Epoch(3) },
        attempt,
        outcome,
    };
    (1..).zip(outcomes).map(entry).collect()
}

fn golden_records() -> Vec<Record> {
    let record = |(slot, body)| Record {
        slot: Slot(slot),
        run: run(1),
        written_at: 1_700_000_000_000 + slot,
        outcomes: if matches!(body, Body::Outcomes) { outcomes() } else { Vec::new() },
        body,
    };
    (1..).zip(every_kind()).map(record).collect()
}

/// Every kind of record, one that takes many sectors, a rolled segment, a reclaimed one with a gap, and state.
fn golden_log() -> (Image, Vec<Record>) {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    let mut records = golden_records();
    append_all(&mut log, &records);
    while log.next_slot() < Slot(40) {
        let record = seal(log.next_slot().0, 6000);
        append_all(&mut log, std::slice::from_ref(&record));
        records.push(record);
    }
    let dead: Vec<Slot> = (21..35).map(Slot).collect();
    log.delete(&dead).unwrap();
    records.retain(|record| !dead.contains(&record.slot));
    log.put_state(&[5; 9000]).unwrap();
    (disk.visible(), records)
}

/// Logs that are wrong in one way each, made from small good ones.
fn golden_damage() -> Vec<(&'static str, Image)> {
    let small = || crate::support::image_of(&golden_records()[..5]);
    let path = segment(1);
    let change = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = small();
        change(image.file_mut(&path).unwrap());
        image
    };
    let newest = |file: &Vec<u8>| file.iter().rposition(|byte| *byte != 0).unwrap() / 512 * 512;
    let mut lost = golden_log().0;
    let first = lost.paths()[0].clone();
    lost.take(&first).unwrap();
    vec![
        (
            "newest-damaged",
            change(&|file| {
                let at = newest(file);
                file[at + 100] ^= 4;
            }),
        ),
        (
            "newest-torn",
            change(&|file| {
                let at = newest(file);
                file[at..at + 512].fill(0);
            }),
        ),
        ("newer-version", change(&|file| file[8] = 200)),
        ("cut-short", change(&|file| file.truncate(3000))),
        ("first-lost", lost),
    ]
}

fn on_disk(folder: &Path) -> Image {
    // Folders are known to the simulated disk once a log was opened there.
    let disk = SimDisk::new();
    drop(open_on(&disk).unwrap());
    let mut image = disk.visible();
    for part in ["log", "state"] {
        let Ok(entries) = fs::read_dir(folder.join(part)) else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            image.put(&format!("{part}/{}", entry.file_name().to_str().unwrap()), fs::read(entry.path()).unwrap());
        }
    }
    image
}

fn write(image: &Image, folder: &Path) {
    for path in image.paths() {
        let file = folder.join(&path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, image.file(&path).unwrap()).unwrap();
    }
}

#[test]
fn the_format_of_today_is_the_one_that_is_kept() {
    let (image, records) = golden_log();
    let kinds: BTreeSet<usize> = records.iter().map(|record| kind(&record.body)).collect();
    assert_eq!(kinds, (0..12).collect());
    if std::env::var_os("TIDEGATE_WRITE_FORMATS").is_some() {
        assert!(!folder().exists(), "a folder of old formats is never changed: raise the version");
        write(&image, &folder().join("good"));
        golden_damage().iter().for_each(|(name, image)| write(image, &folder().join(name)));
    }
    let kept = on_disk(&folder().join("good"));
    assert_eq!(kept.paths(), image.paths());
    assert!(kept.paths().len() >= 3);
    for path in image.paths() {
        assert!(kept.file(&path) == image.file(&path), "`{path}` is written differently now: raise the format version");
    }
    assert_eq!(read(kept).unwrap(), records);
}

/// Seals of record format 2: pages of positions, several layers, and what moved since.
fn golden_pages() -> (Image, Vec<Record>) {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    let mut records = vec![crate::support::open(1)];
    let mut positions = Positions::new();
    for slot in 2..7 {
        let count = if slot == 2 { 300 } else { 40 };
        positions = positions.advanced((0..count).map(|number| entry((number * 13 + slot * 101) % 300, slot)));
        records.push(seal_at(slot, &positions));
    }
    positions = positions.advanced([("ä/ü.jsonl".to_owned(), "{\"offset\":1}".to_owned())]);
    records.push(seal_at(7, &positions));
    append_all(&mut log, &records);
    (disk.visible(), records)
}

#[test]
fn pages_of_positions_are_written_as_they_are_kept() {
    let (image, records) = golden_pages();
    let folder = folder().with_file_name("v1-pages");
    if std::env::var_os("TIDEGATE_WRITE_FORMATS").is_some() {
        assert!(!folder.exists(), "a folder of old formats is never changed: raise the version");
        write(&image, &folder);
    }
    let kept = on_disk(&folder);
    assert_eq!(kept.paths(), image.paths());
    assert!(kept.paths().len() >= 4, "{:?}", kept.paths());
    for path in image.paths() {
        assert!(kept.file(&path) == image.file(&path), "`{path}` is written differently now: raise the format version");
    }
    let mut log = open_on(&SimDisk::from_image(kept)).unwrap();
    let read = log.read_all().unwrap();
    assert_eq!(read, records);
    assert_eq!(read.iter().map(Record::format_version).collect::<Vec<_>>(), [1, 1, 2, 2, 2, 2, 2]);
    for (found, written) in read.iter().zip(&records) {
        let (found, written) = (positions_of(found), positions_of(written));
        load_positions(&mut log, &found).unwrap();
        assert!(found.entries().unwrap().iter().eq(written.entries().unwrap().iter()));
    }
}

#[test]
fn damaged_logs_of_version_1_are_told_apart() {
    let open = |name: &str| read(on_disk(&folder().with_file_name("v1").join(name)));
    assert!(matches!(open("newest-damaged"), Err(StoreError::Corrupt { slot: Some(Slot(5)), .. })));
    assert_eq!(open("newest-torn").unwrap(), golden_records()[..4]);
    assert!(matches!(open("newer-version"), Err(StoreError::UnsupportedVersion { found: 200, supported: 1, .. })));
    assert!(matches!(open("cut-short"), Err(StoreError::Corrupt { offset: 3000, .. })));
    assert!(matches!(open("first-lost"), Err(StoreError::MissingFile { slot: Some(Slot(1)), .. })));
}

#[test]
fn records_survive_encoding_and_junk_is_refused_in_words() {
    for record in golden_records() {
        let bytes = encode_record(&record).unwrap();
        assert_eq!(decode_record(&bytes).unwrap(), record);
        for len in 0..bytes.len() {
            assert!(decode_record(&bytes[..len]).is_err());
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(decode_record(&longer).unwrap_err().contains("1 bytes follow"));
    }
    // Huge lengths, deep nesting, other types.
    let deep = vec![0x81; 100_000];
    let junk: [&[u8]; 6] = [
        b"",
        b"\xff",
        b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x5b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\xbb\x00\x00\x00\x01\x00\x00\x00\x00",
        &deep,
    ];
    for bytes in junk {
        assert!(decode_record(bytes).is_err());
    }
}
