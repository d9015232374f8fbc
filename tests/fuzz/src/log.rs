//! A log's files as they may be found: any bytes, or frames of any content whose checksums fit.

use std::collections::BTreeMap;
use std::path::Path;

use tidegate_protocol::event::AppendResult;
use tidegate_protocol::record::{Body, Record};
use tidegate_store::disk::sim::{Image, SimDisk};
use tidegate_store::{LocalLog, Log as _, OpenOptions, ReadOnlyLog, StoreError};

use crate::input::Input;
use crate::{Met, wire, words};

const DIR: &str = "/simulated";

pub(crate) fn run(bytes: &[u8]) -> Met {
    let mut input = Input(bytes);
    let image = match input.byte() % 3 {
        0 => raw(input),
        1 => framed(input, 1),
        _ => framed(input, 2),
    };
    let disk = SimDisk::from_image(image.clone());
    let opened = open(&disk);
    match &opened {
        Ok(records) => read_again(&disk, records, &image),
        Err(error) => {
            let words = words(error);
            assert!(words.contains(DIR) || words.contains("state/"), "no place is named: {words}");
            assert_eq!(files(&disk.visible()), files(&image), "it was refused and changed");
        }
    }
    Met::of(&opened)
}

/// A disk on which a log was opened, so that its folders are there.
fn empty() -> Image {
    let disk = SimDisk::new();
    open(&disk).expect("an empty log opens");
    disk.visible()
}

fn path(first: u64) -> String {
    format!("log/{first:020}.log")
}

/// Up to four pieces are files: segments under the name that their header asks for, or pieces of state.
fn raw(mut input: Input<'_>) -> Image {
    let mut image = empty();
    for _ in 0..4 {
        let Some(piece) = input.piece() else { break };
        let first = piece.get(16..24).and_then(|slot| slot.try_into().ok()).map_or(1, u64::from_le_bytes);
        // The fill of a segment would be most of an input.
        let mut file = piece.to_vec();
        if let Some(&length) = piece.get(34) {
            file.resize(file.len().max(usize::from(length % 4) << 16), 0);
        }
        image.put(&path(first.max(1)), file);
    }
    image
}

/// Pieces are frames: kind, version, slot and payload. Each is written as a program with this format would.
fn framed(mut input: Input<'_>, segments: u64) -> Image {
    let mut image = empty();
    for segment in 0..segments {
        let mut frames = Vec::new();
        let mut slot = 1u64;
        while let Some(piece) = input.piece() {
            let mut piece = Input(piece);
            let (kind, version, by) = (piece.byte(), piece.byte(), piece.byte());
            let whole = piece.byte();
            let frame = wire::frame(u16::from(version), kind, slot, &[1; 10], piece.0);
            // Some of a frame's sectors may never have reached the disk.
            let keep = if whole == 0 { frame.len() } else { usize::from(whole) * 512 % (frame.len() + 1) };
            frames.push([&frame[..keep], &vec![0; frame.len() - keep]].concat());
            slot = slot.wrapping_add(u64::from(by));
            if kind == 3 {
                break;
            }
        }
        let mut file = wire::segment(&frames);
        if segment > 0 {
            wire::patch_header(&mut file, 16, &slot.max(2).to_le_bytes());
        }
        image.put(&path(if segment > 0 { slot.max(2) } else { 1 }), file);
    }
    image
}

fn open(disk: &SimDisk) -> Result<Vec<Record>, StoreError> {
    let options = OpenOptions { segment_bytes: 64 << 10, ..OpenOptions::default() };
    LocalLog::open_on(Box::new(disk.clone()), Path::new(DIR), options)?.read_all()
}

/// A reader saw the same before the owner did anything; the next owner sees it again; and the log goes on.
fn read_again(disk: &SimDisk, records: &[Record], before: &Image) {
    let reader = SimDisk::from_image(before.clone());
    let looked = ReadOnlyLog::open_on(Box::new(reader.clone()), Path::new(DIR)).and_then(|mut log| log.read_all());
    assert_eq!(looked.as_deref(), Ok(records), "readers see something else");
    assert_eq!(files(&reader.visible()), files(before), "a look changed something");
    assert_eq!(open(disk).as_deref(), Ok(records), "the second opening reads something else");
    let Some(last) = records.last().filter(|last| last.slot.0 < u64::MAX - 1) else { return };
    let mut log = LocalLog::open_on(Box::new(disk.clone()), Path::new(DIR), OpenOptions::default()).expect("as before");
    let next = Record { slot: log.next_slot(), outcomes: Vec::new(), body: Body::Outcomes, ..last.clone() };
    if next.slot.0 < u64::MAX - 1 {
        assert_eq!(log.append(&next), AppendResult::Created);
        assert_eq!(open(disk).as_deref(), Ok(&[records, &[next]].concat()[..]), "what was appended is not read");
    }
}

fn files(image: &Image) -> BTreeMap<String, Vec<u8>> {
    image.paths().into_iter().map(|path| (path.clone(), image.file(&path).unwrap_or_default().to_vec())).collect()
}
