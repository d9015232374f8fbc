//! Today's format does not change unnoticed: what is written now is, byte for byte, what is kept under
//! `tests/old-formats/cases/log`. That later versions read those cases or refuse them in words is that crate's test.
//!
//! A new case is written by this test with `TIDEGATE_WRITE_FORMATS=1`; one that is there is never changed. When the
//! format gets a new version, what writes the old one goes from here and its cases stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, PartId, Slot};
use tidegate_protocol::plugin::{Committable, ErrorKind, External, PluginError, Position, WriterState};
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::*;
use tidegate_store::Log as _;
use tidegate_store::codec::{decode_record, encode_record};
use tidegate_store::disk::sim::{Image, SimDisk};
use tidegate_store::state::load_positions;

use crate::pages::{entry, positions_of, seal_at};
use crate::support::{append_all, open_on, read, run, seal, segment};
use crate::wire;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/old-formats/cases/log")
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

/// Outcomes with every kind of error.
pub(crate) fn every_error() -> Vec<Record> {
    let kinds = [
        ErrorKind::Retryable,
        ErrorKind::Permanent,
        ErrorKind::BadConfig,
        ErrorKind::BadBatch,
        ErrorKind::EpochLost,
        ErrorKind::Fenced,
        ErrorKind::Unsupported,
        ErrorKind::Denied,
        ErrorKind::Unknown,
    ];
    let error = |kind| PluginError { kind, code: "E1".to_owned(), message: "no".to_owned() };
    let entry = |kind| OutcomeEntry {
        outcome: EpochOutcome::Blocked(Blocked::Rejected(error(kind))),
        ..outcomes().swap_remove(0)
    };
    let record = golden_records().swap_remove(0);
    vec![Record { outcomes: kinds.map(entry).into(), ..record }]
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

pub(crate) fn golden_records() -> Vec<Record> {
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

/// Logs of version 1 that are wrong in one way each, made from small good ones.
fn damaged_logs() -> Vec<(&'static str, Image)> {
    let small = || crate::support::image_of(&golden_records()[..5]);
    let path = segment(1);
    let change = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = small();
        change(image.file_mut(&path).unwrap());
        image
    };
    let newest = |file: &Vec<u8>| file.iter().rposition(|byte| *byte != 0).unwrap() / 512 * 512;
    let with = |path: &str, bytes: &[u8]| {
        let mut image = small();
        image.put(path, bytes.to_vec());
        image
    };
    let mut lost = golden_log().0;
    let first = lost.paths()[0].clone();
    lost.take(&first).unwrap();
    let mut mixed = golden_log().0;
    let second = mixed.paths()[1].clone();
    wire::patch_header(mixed.file_mut(&second).unwrap(), 40, &[9; 10]);
    let finished = crate::support::retire(1, 1);
    let payload = encode_record(&finished).unwrap();
    let one = |version, kind, payload: &[u8]| {
        let mut image = Image::default();
        image.put(&path, wire::segment(&[wire::frame(version, kind, 1, &[1; 10], payload)]));
        image
    };
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
        ("grown", change(&|file| file.extend_from_slice(&[0; 512]))),
        ("middle-damaged", change(&|file| file[512 + 300] ^= 1)),
        ("header-damaged", change(&|file| file[20] ^= 1)),
        ("fill-damaged", change(&|file| *file.last_mut().unwrap() = 1)),
        ("of-two-logs", mixed),
        ("foreign-file", with("log/notes.txt", b"kept here by somebody")),
        ("foreign-piece", with("state/notes.txt", b"kept here by somebody")),
        ("unfinished-files", with(&format!("{}.tmp", segment(6)), b"a segment that was never whole")),
        ("one-record", one(1, 1, &payload)),
        ("newer-record", one(60_000, 1, &payload)),
        ("unknown-kind", one(1, 250, &payload)),
        ("not-a-record", one(1, 1, b"\xa1\x64slot\x01")),
        ("unknown-record", one(1, 1, &wire::replaced(&payload, b"fretire", b"gretired"))),
    ]
}

/// State beside the log, as it was kept and wrong in one way each.
fn state_logs() -> Vec<(&'static str, Image)> {
    let disk = SimDisk::new();
    let mut log = open_on(&disk).unwrap();
    let content: Vec<u8> = (0..5000u32).map(|n| (n * 7 % 251) as u8).collect();
    let state = tidegate_store::state::store(&mut log, &content).unwrap();
    let StateRef::Chunks(chunks) = &state else { panic!("it is large enough") };
    let piece = format!("state/{}", chunks[0].sha256);
    let mut record = seal(2, 10);
    if let Body::Seal(seal) = &mut record.body {
        seal.operators.values_mut().flatten().for_each(|cut| cut.state = state.clone());
    }
    append_all(&mut log, &[crate::support::open(1), record]);
    let good = disk.visible();
    let change = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = good.clone();
        change(image.file_mut(&piece).unwrap());
        image
    };
    let mut missing = good.clone();
    missing.take(&piece).unwrap();
    vec![
        ("state", good.clone()),
        ("state-missing", missing),
        ("state-damaged", change(&|bytes| bytes[77] ^= 1)),
        ("state-longer", change(&|bytes| bytes.push(0))),
        ("state-shorter", change(&|bytes| bytes.truncate(4000))),
    ]
}

/// Seals of record format 2 that are wrong in one way each.
fn damaged_pages() -> Vec<(&'static str, Image)> {
    let (good, records) = golden_pages();
    let page = good.paths().into_iter().find(|path| path.starts_with("state/")).unwrap();
    let mut missing = good.clone();
    missing.take(&page).unwrap();
    let mut damaged = good.clone();
    damaged.file_mut(&page).unwrap()[9] ^= 1;
    // A seal with a page of exactly this name is taken, and the page is no page.
    let junk = b"this is no map from partition to position".to_vec();
    let name = tidegate_store::state::chunk_of(&junk);
    let seal = encode_record(&records[2]).unwrap();
    let named = |of: &StateChunk| {
        let hash = data_encoding::HEXLOWER.decode(of.sha256.as_bytes()).unwrap();
        [&hash[..], &of.bytes.to_le_bytes()].concat()
    };
    let Body::Seal(cut) = &records[2].body else { panic!("it is a seal") };
    let first = cut.sources.values().next().unwrap().partitions.chunks().next().unwrap().clone();
    let two = |payload: &[u8]| {
        let mut image = Image::default();
        let open = encode_record(&records[0]).unwrap();
        let frames = [
            wire::frame(1, 1, 1, &[1; 10], &open),
            wire::frame(2, 1, 2, &[1; 10], &encode_record(&records[1]).unwrap()),
            wire::frame(2, 1, 3, &[1; 10], payload),
        ];
        image.put(&segment(1), wire::segment(&frames));
        image
    };
    let mut other = two(&wire::replaced(&seal, &named(&first), &named(&name)));
    for path in good.paths().into_iter().filter(|path| path.starts_with("state/")) {
        other.put(&path, good.file(&path).unwrap().to_vec());
    }
    other.put(&format!("state/{}", name.sha256), junk);
    vec![
        ("page-missing", missing),
        ("page-damaged", damaged),
        ("page-of-something-else", other),
        ("layer-cut-short", two(&wire::shortened_layer(&seal, &named(&first)))),
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

/// Compares with what is kept; writes a case that is not there yet when that is asked for.
fn compare(place: &str, image: &Image) -> Image {
    let folder = folder().join(place);
    if std::env::var_os("TIDEGATE_WRITE_FORMATS").is_some() && !folder.exists() {
        for path in image.paths() {
            let file = folder.join(&path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, image.file(&path).unwrap()).unwrap();
        }
    }
    let kept = on_disk(&folder);
    assert_eq!(kept.paths(), image.paths(), "{place}");
    for path in image.paths() {
        let same = kept.file(&path) == image.file(&path);
        assert!(same, "`{place}/{path}` is written differently now: raise the format version");
    }
    kept
}

#[test]
fn the_format_of_today_is_the_one_that_is_kept() {
    let (image, records) = golden_log();
    let kinds: BTreeSet<usize> = records.iter().map(|record| kind(&record.body)).collect();
    assert_eq!(kinds, (0..12).collect());
    let kept = compare("v1/good", &image);
    assert!(kept.paths().len() >= 3);
    assert_eq!(read(kept).unwrap(), records);
    for (name, image) in damaged_logs().iter().chain(&state_logs()) {
        compare(&format!("v1/{name}"), image);
    }
    for (name, image) in damaged_pages() {
        compare(&format!("v2/{name}"), &image);
    }
}

/// Seals of record format 2: pages of positions, several layers, and what moved since.
pub(crate) fn golden_pages() -> (Image, Vec<Record>) {
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
    let kept = compare("v2/good", &image);
    assert!(kept.paths().len() >= 4, "{:?}", kept.paths());
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
