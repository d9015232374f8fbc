//! Archives are written as they are kept under `tests/old-formats/cases/archive`. That later versions import them or
//! refuse them in words is that crate's test.
//!
//! A new case is written by this test with `TIDEGATE_WRITE_FORMATS=1`; one that is there is never changed. When the
//! archive gets a new version, what writes the old one goes from here and its cases stay.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, Nonce, RunId, Slot};
use tidegate_protocol::record::{
    Binding, Body, CutReason, Open, OperatorCut, PartCut, Record, Savepoint, Seal, SinkCut, SourceCut, StateRef,
};
use tidegate_server::{SystemClock, config, export};
use tidegate_store::{LocalLog, Log as _, OpenOptions};

const PIPELINE: &str = include_str!("archive.toml");

fn records(state: StateRef) -> Vec<Record> {
    let run = RunId { number: 1, nonce: Nonce([7; 10]) };
    let open = Open {
        pipeline: "flights".parse().unwrap(),
        parent: None,
        observed: BTreeMap::new(),
        under: Vec::new(),
        product: "0.1.0".to_owned(),
    };
    let source = SourceCut {
        partitions: [("in/a.jsonl".to_owned(), "{\"offset\":17}".to_owned())].into(),
        ended: false,
        watermark: None,
        rows: 0,
        dead_lettered: 0,
        schema: None,
    };
    let operator = OperatorCut {
        range: KeyRange::ALL,
        version: 1,
        state,
        timers: vec![(5, Bytes::from_static(b"key"))],
        watermark: None,
        rows_in: 0,
        rows_out: 0,
    };
    let part = PartCut {
        ordinal: 0,
        range: KeyRange::ALL,
        committable: None,
        resources: Vec::new(),
        state: Vec::new(),
        rows_in: 0,
        rows: 0,
        rejected: 0,
        filtered: 0,
    };
    let text = |text: &str| text.to_owned();
    let binding =
        Binding { plugin: text("sha256:00"), plugin_name: text("files 0.1.0"), config: text("{}"), grants: text("{}") };
    let seal = Seal {
        epoch: Epoch(1),
        reason: CutReason::Interval,
        graph: text("sha256:11"),
        sources: BTreeMap::from([("in".parse().unwrap(), source)]),
        operators: BTreeMap::from([("count".parse().unwrap(), vec![operator])]),
        sinks: BTreeMap::from([("out".parse().unwrap(), SinkCut { binding, parts: vec![part] })]),
    };
    let bodies = [
        Body::Open(open),
        Body::Seal(Box::new(seal)),
        Body::Savepoint(Savepoint { name: "monday".to_owned(), of: EpochRef { run, epoch: Epoch(1) } }),
    ];
    let record =
        |(slot, body)| Record { slot: Slot(slot), run, written_at: 1_700_000_000_000, outcomes: Vec::new(), body };
    (1..).zip(bodies).map(record).collect()
}

/// A state directory with one epoch and a piece of state, exported.
fn exported() -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let file = config::parse(PIPELINE, Path::new("pipeline.toml"), place.path()).unwrap();
    let mut log = LocalLog::open(&place.path().join("state"), OpenOptions::default()).unwrap();
    let state = tidegate_store::state::store(&mut log, &[3; 6000]).unwrap();
    for record in records(state) {
        assert_eq!(log.append(&record), AppendResult::Created);
    }
    drop(log);
    let to = place.path().join("archive.tar.zst");
    export(&file, &to, false, &SystemClock).unwrap();
    std::fs::read(to).unwrap()
}

/// Files of an archive, in order.
type Files = Vec<(String, Vec<u8>)>;

fn unpacked(archive: &[u8]) -> Files {
    let mut tar = tar::Archive::new(zstd::Decoder::new(archive).unwrap());
    let entries = tar.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (String::from_utf8(entry.path_bytes().into_owned()).unwrap(), content)
    });
    entries.collect()
}

fn packed(files: &Files) -> Vec<u8> {
    let mut zstd = zstd::Encoder::new(Vec::new(), 3).unwrap();
    zstd.include_checksum(true).unwrap();
    let mut tar = tar::Builder::new(zstd);
    for (path, content) in files {
        let mut header = tar::Header::new_ustar();
        // As bytes: `set_path` refuses what a hostile archive holds.
        header.as_ustar_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        tar.append(&header, content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(bytes))
}

/// The archive with another manifest, whose digest fits.
fn with_manifest(files: &Files, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut files = files.clone();
    let mut manifest: Value = serde_json::from_slice(&files[0].1).unwrap();
    change(&mut manifest);
    files[0].1 = serde_json::to_vec(&manifest).unwrap();
    files.last_mut().unwrap().1 = sha256(&files[0].1).into_bytes();
    packed(&files)
}

fn cases() -> Vec<(&'static str, Vec<u8>, String)> {
    let good = exported();
    let files = unpacked(&good);
    let mut flipped = good.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let mut without_end = files.clone();
    without_end.pop();
    let mut more = files.clone();
    more.push(("state/../../evil".to_owned(), b"x".to_vec()));
    let mut changed = files.clone();
    changed[1].1[600] ^= 1;
    // The manifest fits; the log in it does not hold together.
    let damaged = {
        let mut damaged = files.clone();
        damaged[1].1[700] ^= 1;
        let digest = sha256(&damaged[1].1);
        with_manifest(&damaged, |manifest| manifest["files"][0]["sha256"] = json!(digest))
    };
    let piece_gone = {
        let mut fewer = files.clone();
        fewer.remove(2);
        with_manifest(&fewer, |manifest| {
            manifest["files"].as_array_mut().unwrap().remove(1);
        })
    };
    let same = PIPELINE.to_owned();
    vec![
        ("good", good.clone(), same.clone()),
        ("of-another-pipeline", good.clone(), PIPELINE.replace("\"flights\"", "\"trains\"")),
        ("newer-version", with_manifest(&files, |manifest| manifest["format"] = json!(60_000)), same.clone()),
        ("cut-short", good[..good.len() - 40].to_vec(), same.clone()),
        ("one-bit-flipped", flipped, same.clone()),
        ("without-its-end", packed(&without_end), same.clone()),
        ("with-more-than-it-says", packed(&more), same.clone()),
        ("file-changed", packed(&changed), same.clone()),
        ("log-damaged", damaged, same.clone()),
        ("piece-gone", piece_gone, same.clone()),
        (
            "leads-out",
            with_manifest(&files, |manifest| manifest["files"][0]["path"] = json!("log/../../evil")),
            same.clone(),
        ),
        ("no-archive", b"kept here by somebody".to_vec(), same),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/old-formats/cases/archive/v1")
}

#[test]
fn an_archive_of_today_is_the_one_that_is_kept() {
    for (name, archive, pipeline) in cases() {
        let dir = folder().join(name);
        if std::env::var_os("TIDEGATE_WRITE_FORMATS").is_some() && !dir.exists() {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("archive.tar.zst"), &archive).unwrap();
            std::fs::write(dir.join("pipeline.toml"), &pipeline).unwrap();
        }
        assert_eq!(std::fs::read_to_string(dir.join("pipeline.toml")).unwrap(), pipeline, "{name}");
    }
    // How well it is compressed may change with the compressor.
    let kept = unpacked(&std::fs::read(folder().join("good/archive.tar.zst")).unwrap());
    assert!(kept == unpacked(&exported()), "an archive is written differently now: raise its version");
}
