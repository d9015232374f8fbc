//! What may change between runs of a pipeline with typed rows.

use tidegate_e2e::{Scene, lines, numbered};

use super::{all_rows, pipeline, published, validate};

const SCHEMA: &str = "schema = \"n BIGINT, carrier TEXT, note TEXT\"";

/// A pipeline of typed rows killed at a moment.
fn killed(moment: &str, sink: &str, more: &str) -> Scene {
    let scene = Scene::new();
    for part in 0..3 {
        scene.write(&format!("in/{part}.jsonl"), lines(&numbered(part * 100..(part + 1) * 100)));
    }
    pipeline(&scene, &format!("rate = 100\n{SCHEMA}"), sink, more);
    scene.killed_at(moment, &[]);
    scene
}

/// The numbers of all rows, whatever their columns.
fn numbers(scene: &Scene) -> Vec<u64> {
    let number = |row: &String| {
        let row: serde_json::Value = serde_json::from_str(row).expect("JSON");
        row["n"].as_u64().or(row["number"].as_u64()).unwrap_or_else(|| panic!("no number in {row}"))
    };
    let mut numbers: Vec<_> = all_rows(scene, "out").iter().map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// The edit is told by `validate`, the run goes on, and every row is there once.
#[track_caller]
fn allowed(scene: &Scene, from: &str, to: &str, words: &[&str]) {
    scene.edit(from, to);
    validate(scene).expect(0).says(words);
    scene.finish();
    assert_eq!(numbers(scene), (0..300).collect::<Vec<_>>());
}

#[test]
fn another_transform_counts_from_the_next_epoch_on() {
    let transform = "[sinks.out.transform]\nrename = { n = \"number\" }\n";
    for moment in ["open:4", "sealed:2"] {
        let scene = killed(moment, "format = \"parquet\"", "");
        allowed(&scene, "[sinks.out.dirs]", &format!("{transform}\n[sinks.out.dirs]"), &["sink `out`", "transform"]);
        let rows = all_rows(&scene, "out");
        let new = rows.iter().filter(|row| row.contains("\"number\"")).count();
        assert!(0 < new && new < 300, "{new} rows have the new name");
        let scene = killed(moment, "", transform);
        allowed(&scene, transform, "", &["sink `out`", "transform"]);
    }
}

#[test]
fn other_columns_and_another_kind_of_files_count_from_the_next_epoch_on() {
    for moment in ["open:4", "sealed:2"] {
        let scene = killed(moment, "columns = [\"_epoch\"]", "");
        allowed(&scene, "columns = [\"_epoch\"]", "columns = [\"_part\"]", &["columns"]);
        // Epochs that were sealed with one kind of files are finished beside the other kind.
        let scene = killed(moment, "format = \"parquet\"", "");
        allowed(&scene, "format = \"parquet\"", "format = \"arrow-stream\"\nfiles = {}", &["files"]);
        let endings = |ending: &str| {
            published(&scene, "out").iter().filter(|path| path.to_string_lossy().ends_with(ending)).count()
        };
        assert!(endings(".parquet") > 0 && endings(".arrows") > 0);
        let scene = killed(moment, "", "[sinks.out.files]\ncompression = \"gzip\"\nfolder = \"c={carrier}/\"");
        allowed(&scene, "c={carrier}/", "carrier={carrier}/", &["folder"]);
        let scene = killed(moment, "", "[sinks.out.files]\n");
        allowed(&scene, "[sinks.out.files]\n", "", &["files"]);
    }
}

#[test]
fn a_run_that_goes_back_is_compared_with_the_checkpoint_that_it_goes_back_to() {
    let scene = Scene::new();
    let declared = |columns: &str| pipeline(&scene, &format!("schema = \"{columns}\""), "", "");
    let back = ["--from", "before", "--accept", "out=accept-duplicates"];
    scene.write("in/a.jsonl", "{\"n\":1}\n");
    declared("n BIGINT");
    scene.finish();
    scene.tidegate(&["savepoint", "create", "pipeline.toml", "before"]).expect(0);
    declared("n DECIMAL(22,2)");
    scene.write("in/b.jsonl", "{\"n\":2.5}\n{\"n\":3}\n");
    scene.finish();
    // What fits neither, what fits one of them.
    declared("n DATE");
    scene.run(&back).expect(3).says(&["the column `n` was BIGINT"]);
    declared("n BIGINT");
    scene.run(&[]).expect(3).says(&["the column `n` was DECIMAL(22,2)"]);
    scene.write("in/b.jsonl", "{\"n\":4}\n");
    scene.run(&back).expect(0).says(&["--from before: applied"]);
    let mut rows = all_rows(&scene, "out");
    rows.sort();
    assert_eq!(rows, [r#"{"n":1}"#, r#"{"n":2.50}"#, r#"{"n":3.00}"#, r#"{"n":4}"#]);
}

#[test]
fn rows_may_become_typed_and_untyped() {
    let scene = killed("sealed:2", "", "");
    allowed(&scene, SCHEMA, "", &["schema"]);
    let scene = Scene::slow(300);
    scene.killed_at("sealed:2", &[]);
    allowed(&scene, "subtasks = 2", "subtasks = 2\nformat = \"parquet\"", &["files"]);
    // And back: rows are not looked into any more.
    scene.edit("format = \"parquet\"", "");
    scene.write("in/8.jsonl", "{\"n\":300,\"other\":true}\n");
    scene.finish();
    assert!(all_rows(&scene, "out").contains(&"{\"n\":300,\"other\":true}".to_owned()));
}

#[test]
fn what_does_not_fit_any_more_is_refused_and_set_back_goes_on() {
    let scene = killed("sealed:2", "format = \"parquet\"", "");
    for (from, to, code, words) in [
        (SCHEMA, "schema = \"n INT, carrier TEXT, note TEXT\"", 3, ["`n`", "wider"]),
        ("[sinks.out.dirs]", "[sinks.out.files]\nfolder = \"x={nothing}/\"\n[sinks.out.dirs]", 2, ["`out`", "nothing"]),
        ("format = \"json-lines\"", "format = \"csv\"", 3, ["flights", "format"]),
    ] {
        scene.edit(from, to);
        for ended in [validate(&scene), scene.run(&[])] {
            ended.expect(code).says(&words);
        }
        scene.edit(to, from);
    }
    scene.finish();
    assert_eq!(numbers(&scene), (0..300).collect::<Vec<_>>());
}
