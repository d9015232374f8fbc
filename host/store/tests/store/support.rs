//! Records to work with.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, Nonce, RunId, Slot};
use tidegate_protocol::record::{Body, CutReason, Open, OperatorCut, Record, Retire, Seal, SourceCut, StateRef};
use tidegate_store::disk::sim::{Image, SimDisk};
use tidegate_store::{AppendResult, LocalLog, Log, OpenOptions, StoreError};

pub(crate) const DIR: &str = "/simulated";

pub(crate) fn run(number: u64) -> RunId {
    RunId { number, nonce: Nonce([number as u8; 10]) }
}

fn record(slot: u64, body: Body) -> Record {
    Record {
        slot: Slot(slot),
        run: run(1),
        written_at: 1_700_000_000_000u64.wrapping_add(slot),
        outcomes: Vec::new(),
        body,
    }
}

pub(crate) fn open(slot: u64) -> Record {
    let open = Open {
        pipeline: "flights".parse().unwrap(),
        parent: None,
        observed: BTreeMap::new(),
        under: Vec::new(),
        product: "0.1.0".to_owned(),
    };
    record(slot, Body::Open(open))
}

/// A seal whose encoding takes a little more than `size` bytes.
pub(crate) fn seal(slot: u64, size: usize) -> Record {
    let state: Vec<u8> = (0..size).map(|i| (i as u64 * 31).wrapping_add(slot.wrapping_mul(17)) as u8).collect();
    let cut = OperatorCut {
        range: KeyRange::ALL,
        version: 1,
        state: StateRef::Inline(Bytes::from(state)),
        timers: Vec::new(),
        watermark: Some(-5),
        rows_in: slot,
        rows_out: slot,
    };
    let source = SourceCut {
        partitions: [("a.jsonl".to_owned(), format!("{{\"offset\":{slot}}}"))].into(),
        ended: false,
        watermark: None,
        rows: 7,
        dead_lettered: 0,
        schema: None,
    };
    let seal = Seal {
        epoch: Epoch(slot),
        reason: CutReason::Interval,
        graph: "sha256:00".to_owned(),
        sources: BTreeMap::from([("in".parse().unwrap(), source)]),
        operators: BTreeMap::from([("count".parse().unwrap(), vec![cut])]),
        sinks: BTreeMap::new(),
    };
    record(slot, Body::Seal(Box::new(seal)))
}

pub(crate) fn retire(slot: u64, epoch: u64) -> Record {
    record(slot, Body::Retire(Retire { of: vec![EpochRef { run: run(1), epoch: Epoch(epoch) }] }))
}

/// `open`, then seals of differing sizes.
pub(crate) fn script(records: u64) -> Vec<Record> {
    (1..=records).map(|slot| if slot == 1 { open(1) } else { seal(slot, (slot as usize * 211) % 1400) }).collect()
}

pub(crate) fn small() -> OpenOptions {
    OpenOptions { segment_bytes: 64 << 10, ..OpenOptions::default() }
}

pub(crate) fn open_on(disk: &SimDisk) -> Result<LocalLog, StoreError> {
    LocalLog::open_on(Box::new(disk.clone()), Path::new(DIR), small())
}

pub(crate) fn append_all(log: &mut dyn Log, records: &[Record]) {
    for record in records {
        assert_eq!(log.append(record), AppendResult::Created, "record {}", record.slot);
    }
}

/// A disk that holds these records, all of them acknowledged.
pub(crate) fn image_of(records: &[Record]) -> Image {
    let disk = SimDisk::new();
    append_all(&mut open_on(&disk).unwrap(), records);
    disk.visible()
}

pub(crate) fn read(image: Image) -> Result<Vec<Record>, StoreError> {
    open_on(&SimDisk::from_image(image))?.read_all()
}

pub(crate) fn segment(first: u64) -> String {
    format!("log/{first:020}.log")
}
