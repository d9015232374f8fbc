//! Columns that say where a row belongs, against the readers' log.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_e2e::{Scene, lines, numbered};

use super::{all_rows, pipeline, rows_in, validate};

const COLUMNS: &str = "columns = [\"_epoch\", \"_part\", \"_emitted_at\"]";

fn slow(sink: &str, more: &str) -> Scene {
    let scene = Scene::new();
    for part in 0..3 {
        scene.write(&format!("in/{part}.jsonl"), lines(&numbered(part * 100..(part + 1) * 100)));
    }
    pipeline(&scene, "rate = 100", sink, more);
    scene
}

/// What the log of epochs says, by file: its epoch, the short name of its part, and how many rows it has.
fn logged(scene: &Scene) -> BTreeMap<String, (u64, String, u64)> {
    let mut files = BTreeMap::new();
    for path in scene.files("out/_epochs") {
        let entry: Value = serde_json::from_slice(&std::fs::read(&path).expect("an entry can be read")).expect("JSON");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let number = |value: &Value| value.as_u64().expect("a number");
        let parts: BTreeMap<u64, String> = entry["parts"]
            .as_array()
            .expect("parts")
            .iter()
            .map(|part| (number(&part["ordinal"]), text(&part["short"])))
            .collect();
        for file in entry["files"].as_array().expect("files") {
            let name = text(&file["name"]);
            // EPOCH-SINK-RUN-RANDOM-PARTICIPANT-ATTEMPT[-NUMBER].ENDING
            let stem = name.rsplit('/').next().and_then(|name| name.split('.').next()).expect("a name");
            let participant: u64 = stem.split('-').nth(4).and_then(|part| part.parse().ok()).expect("a participant");
            files.insert(name, (number(&entry["epoch"]), parts[&participant].clone(), number(&file["rows"])));
        }
    }
    files
}

#[test]
fn rows_name_the_epoch_and_the_part_that_the_log_of_epochs_names() {
    for (sink, more) in [("", ""), ("format = \"parquet\"", "[sinks.out.files]\nfolder = \"c={carrier}/e={_epoch}/\"")]
    {
        let scene = slow(&format!("{sink}\n{COLUMNS}"), more);
        let before = now();
        scene.killed_at("preparing:3", &[]);
        scene.finish();
        let after = now();
        let files = logged(&scene);
        let mut epochs = 0;
        let mut numbers = Vec::new();
        for (name, (epoch, part, count)) in &files {
            let rows = rows_in(&scene.path("out").join(name));
            assert_eq!(rows.len() as u64, *count, "{name}");
            for row in rows {
                let row: Value = serde_json::from_str(&row).expect("JSON");
                assert_eq!((row["_epoch"].as_u64(), row["_part"].as_str()), (Some(*epoch), Some(&**part)), "{name}");
                let at = row["_emitted_at"].as_str().expect("a time");
                let at = if at.contains('.') { at.to_owned() } else { at.replace('Z', ".000Z") };
                assert!(before <= at && at <= after && at.len() == after.len(), "{at} in {before} to {after}");
                numbers.push(row["n"].as_u64().expect("a number"));
            }
            if !more.is_empty() {
                assert!(name.contains(&format!("/e={epoch}/")), "{name}");
            }
            epochs = epochs.max(*epoch);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
        assert!(epochs > 2, "several epochs are compared");
        assert_eq!(all_rows(&scene, "out").len(), 300, "nothing is there that the log does not name");
    }
}

/// The time by another clock than the product's own code, as it writes times.
fn now() -> String {
    let date = std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%S.%3NZ"]).output();
    String::from_utf8(date.expect("there is `date`").stdout).expect("text").trim().to_owned()
}

#[test]
fn a_column_that_is_there_already_is_not_taken() {
    let scene = Scene::new();
    scene.write("in/a.jsonl", "{\"n\":1,\"_epoch\":\"mine\"}\n");
    pipeline(&scene, "schema = \"n BIGINT, _epoch TEXT\"", COLUMNS, "");
    for ended in [validate(&scene), scene.run(&[])] {
        ended.expect(2).says(&["sink `out`", "`_epoch`", "rename"]);
    }
    scene.write("pipeline.toml", {
        let text = std::fs::read_to_string(scene.path("pipeline.toml")).expect("it is there");
        format!("{text}\n[sinks.out.transform]\nrename = {{ _epoch = \"theirs\" }}\n")
    });
    scene.finish();
    let rows = all_rows(&scene, "out");
    assert!(rows[0].starts_with(r#"{"n":1,"theirs":"mine","_epoch":1,"_part":"tg-"#), "{rows:?}");
}
