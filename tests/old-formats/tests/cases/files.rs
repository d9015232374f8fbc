//! Directories of the `files` sink in which an older version has prepared an epoch: staged files, register, readers' log,
//! and the committables that a seal holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_old_formats::{Case, Found, Refused, check, copy, sha256, tree};
use tidegate_sdk::native::Host;
use tidegate_sdk::{Committable, Ctx, Error, Outcome, Part, Position, Sink};
use tidegate_sink_files::{ENTRY_FORMATS, Files};

#[test]
fn destinations_of_every_version_are_finished_or_refused_in_words() {
    let versions = Files::describe().committable_versions;
    let cases = check("files", versions, finish).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(cases >= 20, "{cases} cases");
}

#[test]
fn every_version_of_register_entries_is_kept() {
    let mut kept = std::collections::BTreeSet::new();
    for case in tidegate_old_formats::cases("files", Files::describe().committable_versions).unwrap() {
        if case.dir.ends_with("good") {
            let logged = tree(&case.dir.join("output/_epochs")).unwrap();
            assert!(!logged.is_empty());
            let format = |entry: &Vec<u8>| serde_json::from_slice::<Value>(entry).unwrap()["format"].as_u64().unwrap();
            kept.extend(logged.values().map(format));
        }
    }
    assert_eq!(kept, ENTRY_FORMATS.into_iter().map(u64::from).collect());
}

/// What a host with today's plugin does with it: look, fence as the next run, commit what was sealed.
fn finish(case: &Case) -> Found {
    let place = tempfile::tempdir().unwrap();
    copy(case, place.path()).unwrap();
    let output = place.path().join("output");
    let before = tree(&output).unwrap();
    let call: Value = serde_json::from_slice(&std::fs::read(place.path().join("call.json")).unwrap()).unwrap();
    let text = |key: &str| call[key].as_str().unwrap();
    let host = Arc::new(Host::new().dir("output", &output).without_flushes());
    let run: tidegate_sdk::RunId = text("run").parse().unwrap();
    let ctx = || host.ctx("out", text("hash"), run.clone(), text("config"), 1);
    let previous: Vec<Part> = serde_json::from_value(call["previous"].clone()).unwrap();
    let committables: Vec<Committable> = call["committables"].as_array().unwrap().iter().map(committable).collect();

    let observed = Files::default().observe(&ctx()).map_err(|error| refused(&error));
    assert!(tree(&output).unwrap() == before, "{}: a look changed something", case.dir.display());
    let observed = observed?;
    let fenced = Files::default().fence(&ctx(), &observed).map_err(|error| refused(&error))?;
    // "Never" leaves an entry in the register, so that no commit under way can follow it.
    let beside_register = || {
        let mut files = tree(&output).unwrap();
        files.retain(|path, _| !path.contains("/register/"));
        files
    };
    let fenced_tree = beside_register();
    match commit(&ctx(), &previous, &committables) {
        Ok(outcomes) => {
            let again = commit(&ctx(), &previous, &committables).unwrap();
            assert!(again.iter().all(|outcome| *outcome == Outcome::AlreadyCommitted), "{again:?}");
            Ok(json!({
                "observed": position(&observed),
                "fence": fenced.fence,
                "outcomes": outcomes.iter().map(|outcome| format!("{outcome:?}")).collect::<Vec<_>>(),
                "visible": visible(&tree(&output).unwrap()),
            }))
        }
        Err(refused) => {
            assert!(beside_register() == fenced_tree, "{}: it was refused and changed", case.dir.display());
            Err(refused)
        }
    }
}

/// A part that is refused has words; where a part is refused nothing is committed.
fn commit(ctx: &Ctx, previous: &[Part], committables: &[Committable]) -> Result<Vec<Outcome>, Refused> {
    let outcomes = Files::default().commit(ctx, previous, committables).map_err(|error| refused(&error))?;
    let no = outcomes.iter().find_map(|outcome| match outcome {
        Outcome::Rejected(error) => Some(refused(error)),
        Outcome::Committed | Outcome::AlreadyCommitted => None,
        other => Some(Refused { kind: "Outcome".to_owned(), message: format!("{other:?}") }),
    });
    no.map_or(Ok(outcomes), Err)
}

fn committable(value: &Value) -> Committable {
    Committable {
        part: serde_json::from_value(value["part"].clone()).unwrap(),
        version: value["version"].as_u64().unwrap() as u32,
        body: value["body"].as_str().unwrap().as_bytes().to_vec(),
        rows: value["rows"].as_u64().unwrap(),
        expires_at: None,
    }
}

fn position(position: &Position) -> Value {
    let token = String::from_utf8_lossy(&position.token);
    json!({ "fence": position.fence, "last": position.last, "token": token })
}

/// What readers of both kinds see.
fn visible(files: &BTreeMap<String, Vec<u8>>) -> Value {
    let entry = |bytes: &[u8]| -> Value {
        let entry: Value = serde_json::from_slice(bytes).unwrap();
        json!({
            "format": entry["format"], "epoch": entry["epoch"], "run": entry["run"], "rows": entry["rows"],
            "files": entry["files"],
        })
    };
    let seen = files.iter().filter(|(path, _)| !path.starts_with("_tidegate/"));
    seen.map(|(path, bytes)| {
        let content = if path.starts_with("_epochs/") { entry(bytes) } else { json!(sha256(bytes)) };
        (path.clone(), content)
    })
    .collect::<serde_json::Map<_, _>>()
    .into()
}

fn refused(error: &Error) -> Refused {
    Refused { kind: format!("{:?}", error.kind), message: format!("{} ({})", error.message, error.code) }
}
