//! Edits of the pipeline file between runs: allowed, or refused in words, by `validate` as by `run`.

use tidegate_e2e::{Scene, lines, numbered};

/// A pipeline stopped in the middle: some of its files are partly read, its last epoch is committed by the next run.
fn begun() -> Scene {
    let scene = Scene::slow(600);
    scene.killed_at("open:4", &[]);
    scene
}

/// The same with a sealed epoch that was not sent.
fn unfinished() -> Scene {
    let scene = Scene::slow(600);
    scene.killed_at("sealed:2", &[]);
    scene
}

#[track_caller]
fn allowed(scene: &Scene, from: &str, to: &str) {
    scene.edit(from, to);
    scene.tidegate(&["validate", "pipeline.toml"]).expect(0);
    scene.finish();
    scene.expect_rows("out", &numbered(0..600));
}

#[track_caller]
fn refused(scene: &Scene, from: &str, to: &str, words: &[&str]) {
    scene.edit(from, to);
    scene.tidegate(&["validate", "pipeline.toml"]).expect(3).says(words);
    scene.run(&[]).expect(3).says(words);
    // Set back, it goes on.
    scene.edit(to, from);
    scene.finish();
    scene.expect_rows("out", &numbered(0..600));
}

#[test]
fn a_file_without_edits_is_valid_before_and_after_a_run() {
    let scene = Scene::plain(60, "");
    scene.tidegate(&["validate", "pipeline.toml"]).expect(0).says(&["exactly-once"]);
    assert!(!scene.path("state").exists(), "validate changes nothing");
    scene.finish();
    scene.tidegate(&["validate", "pipeline.toml"]).expect(0);
}

#[test]
fn more_subtasks_and_fewer_are_allowed() {
    allowed(&begun(), "subtasks = 2", "subtasks = 4");
    allowed(&begun(), "subtasks = 2", "subtasks = 1");
    allowed(&unfinished(), "subtasks = 2", "subtasks = 3");
}

#[test]
fn f43_fewer_and_more_source_tasks_are_allowed() {
    allowed(&begun(), "rate = 200", "tasks = 1");
    allowed(&begun(), "rate = 200", "tasks = 3");
}

#[test]
fn interval_and_rate_are_allowed() {
    allowed(&unfinished(), "interval = \"20ms\"", "interval = \"500ms\"");
    allowed(&unfinished(), "rate = 200", "");
}

#[test]
fn another_route_is_allowed() {
    allowed(&begun(), "subtasks = 2", "subtasks = 2\nroute = { key = \"carrier\" }");
}

#[test]
fn a_glob_that_matches_more_is_allowed_and_one_that_drops_a_begun_file_is_told() {
    let scene = begun();
    std::fs::create_dir(scene.path("more")).expect("a folder can be made");
    scene.write("more/9.jsonl", lines(&numbered(600..700)));
    scene.edit("[\"in/*\"]", "[\"in/*\", \"more/*\"]");
    scene.tidegate(&["validate", "pipeline.toml"]).expect(0);
    scene.finish();
    scene.expect_rows("out", &numbered(0..700));

    let scene = begun();
    scene.edit("[\"in/*\"]", "[\"in/0*\"]");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["1.jsonl"]);
}

#[test]
fn b09_a_sink_with_unfinished_epochs_cannot_be_renamed_or_removed() {
    refused(&unfinished(), "sinks.out", "sinks.renamed", &["out"]);
}

#[test]
fn a_renamed_source_is_refused() {
    refused(&begun(), "sources.flights", "sources.departures", &["flights", "departures"]);
}

#[test]
fn another_kind_or_format_of_a_begun_source_is_refused() {
    refused(&begun(), "format = \"json-lines\"", "format = \"raw\"", &["flights", "format"]);
}

#[test]
fn another_output_directory_with_unfinished_epochs_is_finished_where_it_was_sealed() {
    let scene = unfinished();
    scene.edit("output = \"out\"", "output = \"elsewhere\"");
    let validated = scene.tidegate(&["validate", "pipeline.toml"]);
    let ended = scene.run(&[]);
    if validated.code() == 0 && ended.code() == 0 {
        let mut rows = scene.rows("out");
        rows.extend(scene.rows("elsewhere"));
        rows.sort();
        assert_eq!(rows, tidegate_e2e::sorted(&numbered(0..600)));
    } else {
        assert_eq!((validated.code(), ended.code()), (3, 3), "{validated}\n{ended}");
        scene.edit("output = \"elsewhere\"", "output = \"out\"");
        scene.finish();
        scene.expect_rows("out", &numbered(0..600));
    }
}
