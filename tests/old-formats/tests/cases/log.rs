//! Logs, with the pages and the state that lie beside them.

use std::path::Path;

use serde_json::{Value, json};
use tidegate_old_formats::{Case, Found, Refused, check, copy, sha256, tree, without_long_bytes};
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::record::{Body, FORMAT_VERSION, Record};
use tidegate_store::codec::SEGMENT_VERSION;
use tidegate_store::state::{load, load_positions};
use tidegate_store::{LocalLog, Log, OpenOptions, StoreError, Tail};

#[test]
fn logs_of_every_version_are_read_or_refused_in_words() {
    let cases = check("log", (1..=FORMAT_VERSION).map(u32::from), read).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(cases >= 25, "{cases} cases");
}

/// The segment's version stands in its header, and is the same for both versions of records.
#[test]
fn every_version_of_segments_is_kept() {
    let mut kept = std::collections::BTreeSet::new();
    for case in tidegate_old_formats::cases("log", (1..=FORMAT_VERSION).map(u32::from)).unwrap() {
        if case.dir.ends_with("good") {
            let files = tree(&case.dir.join("log")).unwrap();
            kept.extend(files.values().map(|file| u16::from_le_bytes([file[8], file[9]])));
        }
    }
    assert_eq!(kept, (1..=SEGMENT_VERSION).collect());
}

fn read(case: &Case) -> Found {
    let name = case.dir.display();
    let place = tempfile::tempdir().unwrap();
    copy(case, place.path()).unwrap();
    let before = tree(place.path()).unwrap();
    let seen = looked_at(place.path());
    assert!(tree(place.path()).unwrap() == before, "{name}: a look changed something");
    let log = match LocalLog::open(place.path(), OpenOptions::default()) {
        Ok(log) => log,
        Err(error) => {
            let mut after = tree(place.path()).unwrap();
            after.remove("lock");
            assert!(after == before, "{name}: it was refused and changed");
            let refused = refused(&error, place.path());
            // A foreign name among the pieces matters to whoever would delete there, not to a reader.
            let owners = refused.message.contains("state/") && refused.kind == "Mend";
            assert!(seen == Err(refused.clone()) || owners, "{name}: {seen:?} and {refused:?}");
            return Err(refused);
        }
    };
    let opened = opened(log, place.path());
    assert!(seen == opened, "{name}: {seen:?} and {opened:?}");
    let beside = |mut tree: std::collections::BTreeMap<String, Vec<u8>>| {
        tree.retain(|path, _| path.starts_with("state/"));
        tree
    };
    assert!(beside(tree(place.path()).unwrap()) == beside(before), "{name}: state was changed");
    goes_on(place.path());
    opened
}

fn looked_at(dir: &Path) -> Found {
    let mut log = LocalLog::open_read_only(dir).map_err(|error| refused(&error, dir))?;
    let torn = matches!(log.tail(), Tail::Torn { .. });
    content(&mut log, torn, dir)
}

fn opened(mut log: LocalLog, dir: &Path) -> Found {
    let torn = matches!(log.recovery().tail, Tail::Torn { .. });
    content(&mut log, torn, dir)
}

/// Records as JSON, and what lies beside the log as each of them names it.
fn content(log: &mut dyn Log, torn: bool, dir: &Path) -> Found {
    let records = log.read_all().map_err(|error| refused(&error, dir))?;
    let mut beside = Vec::new();
    for record in &records {
        let Body::Seal(seal) = &record.body else { continue };
        for (source, cut) in &seal.sources {
            if cut.partitions.pages().next().is_some() {
                load_positions(log, &cut.partitions).map_err(|error| refused(&error, dir))?;
                let entries: Vec<(String, String)> = cut
                    .partitions
                    .entries()
                    .unwrap()
                    .iter()
                    .map(|(partition, position)| (partition.to_owned(), position.to_owned()))
                    .collect();
                let text = serde_json::to_vec(&entries).unwrap();
                beside.push(json!({
                    "slot": record.slot, "source": source, "partitions": entries.len(), "sha256": sha256(&text),
                }));
            }
        }
        for (operator, cut) in &seal.operators {
            // The first logs name pieces that were never there, to have a field of every kind.
            let real = cut.iter().filter(|cut| !format!("{:?}", cut.state).contains("abababab"));
            for (subtask, cut) in real.enumerate() {
                let state = load(log, &cut.state).map_err(|error| refused(&error, dir))?;
                beside.push(json!({
                    "slot": record.slot, "operator": operator, "subtask": subtask, "bytes": state.len(),
                    "sha256": sha256(&state),
                }));
            }
        }
    }
    let versions: Vec<u16> = records.iter().map(Record::format_version).collect();
    let records = without_long_bytes(serde_json::to_value(&records).unwrap());
    Ok(json!({ "torn": torn, "versions": versions, "records": records, "beside": beside }))
}

/// The log that was read takes records as any other.
fn goes_on(dir: &Path) {
    let mut log = LocalLog::open(dir, OpenOptions::default()).unwrap();
    let before = log.read_all().unwrap();
    let last = before.last().unwrap().clone();
    let record = Record { slot: log.next_slot(), outcomes: Vec::new(), body: Body::Outcomes, ..last };
    assert_eq!(log.append(&record), AppendResult::Created);
    drop(log);
    let after = LocalLog::open_read_only(dir).unwrap().read_all().unwrap();
    assert_eq!(after, [&before[..], &[record]].concat());
}

/// Paths of one machine stay out of the words.
fn refused(error: &StoreError, dir: &Path) -> Refused {
    let real = dir.canonicalize().unwrap();
    let message = error.to_string().replace(&real.display().to_string(), "<state>");
    Refused {
        kind: format!("{:?}", error.kind()),
        message: message.replace(&dir.display().to_string(), "<state>").replace("<state>/", ""),
    }
}

/// The comparison itself must be able to fail.
#[test]
fn a_record_that_reads_differently_is_noticed() {
    if tidegate_old_formats::writes_expectations() {
        return;
    }
    let wrong = check("log", (1..=FORMAT_VERSION).map(u32::from), |case| {
        let mut found = read(case);
        if let Ok(Value::Object(found)) = &mut found
            && case.dir.ends_with("one-record")
        {
            found["records"][0]["written_at"] = json!(1);
        }
        found
    });
    let wrong = wrong.unwrap_err();
    assert!(wrong.contains("one-record") && wrong.contains("written_at is 1"), "{wrong}");
    assert!(check("log", 1..=9, read).unwrap_err().contains("knows versions"));
}
