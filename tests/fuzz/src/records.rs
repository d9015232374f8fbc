//! Records, what a list of them means, pages of positions, and the names in all of them.

use tidegate_protocol::history::History;
use tidegate_protocol::ids::Slot;
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::{Body, FORMAT_VERSION, Record};
use tidegate_store::codec::{decode_record, encode_record};
use tidegate_store::state::chunk_of;

use crate::input::Input;
use crate::{Met, names, words};

pub(crate) fn run(bytes: &[u8]) -> Met {
    let mut input = Input(bytes);
    match input.byte() % 5 {
        0 => one(input.0).map_or(Met::Refused, |_| Met::Read),
        1 => history(input, false),
        2 => history(input, true),
        3 => page(input.0),
        _ => names::run(input.0),
    }
}

/// What decodes means the same when it is encoded and decoded again.
fn one(bytes: &[u8]) -> Option<Record> {
    let record = decode_record(bytes).map_err(|error| words(&error)).ok()?;
    let encoded = encode_record(&record).expect("an input is not that large");
    let again = decode_record(&encoded).expect("what was encoded decodes");
    assert_eq!(again, record);
    assert_eq!(encode_record(&again).expect("the same"), encoded);
    assert!((1..=FORMAT_VERSION).contains(&record.format_version()));
    Some(record)
}

/// A list of records has one meaning, or none and words for it. With `mended` slots and runs fit.
fn history(mut input: Input<'_>, mended: bool) -> Met {
    let mut records: Vec<Record> = Vec::new();
    while let Some(piece) = input.piece() {
        let Some(mut record) = one(piece) else { continue };
        if mended {
            record.slot = Slot(records.len() as u64 + 1);
            record.run = records.first().map_or(record.run, |first| first.run);
        }
        records.push(record);
    }
    let folded = History::fold(&records);
    match &folded {
        Ok(history) => {
            // What a run has heard of deletions so far is another matter.
            if !records.iter().any(|record| matches!(record.body, Body::Deleted(_))) {
                let mut live = History::default();
                for record in &records {
                    live.apply(record).expect("one by one it means the same as at once");
                }
                assert_eq!(live, *history);
            }
            for sink in history.sinks() {
                for of in history.unfinished(&sink) {
                    assert!(history.seal(of).is_some(), "{of} is unfinished and unknown");
                }
            }
            for of in history.checkpoints().map(|sealed| sealed.of) {
                assert!(history.descends(of, of));
            }
            assert!(history.next_slot().0 > records.last().map_or(0, |record| record.slot.0));
        }
        Err(error) => drop(words(error)),
    }
    if records.is_empty() { Met::Refused } else { Met::of(&folded) }
}

/// A page is taken in one form alone.
fn page(bytes: &[u8]) -> Met {
    let name = chunk_of(bytes);
    let digest = data_encoding::HEXLOWER.decode(name.sha256.as_bytes()).expect("it is hex");
    let layer = ciborium::Value::Bytes([&digest[..], &name.bytes.to_le_bytes()].concat());
    let both = ciborium::Value::Array(vec![ciborium::Value::Map(Vec::new()), ciborium::Value::Array(vec![layer])]);
    let positions: Positions = both.deserialized().expect("a layer of one page");
    let page = positions.missing().next().expect("it is not loaded");
    let filled = page.fill(bytes);
    match &filled {
        Ok(()) => {
            assert_eq!(page.bytes().as_deref(), Some(bytes));
            let entries = positions.entries().expect("all pages are there");
            let names: Vec<&str> = entries.iter().map(|(partition, _)| partition).collect();
            assert!(names.is_sorted(), "{names:?}");
            for (partition, position) in entries.iter() {
                assert_eq!(entries.get(partition), Some(position));
            }
        }
        Err(error) => {
            words(error);
            assert!(positions.entries().is_err(), "a part was taken for the whole");
        }
    }
    Met::of(&filled)
}
