//! What a person gets wrong: each with a message to act on, and nothing lost.

use tidegate_e2e::{Scene, lines, numbered};

#[test]
fn a_pipeline_file_that_is_not_there_is_named() {
    Scene::new().run(&[]).expect(2).says(&["pipeline.toml"]);
}

#[test]
fn an_unknown_key_is_named_with_its_place_and_a_hint() {
    let scene = Scene::plain(10, "");
    scene.edit("interval", "intervall");
    scene.run(&[]).expect(2).says(&["intervall", "pipeline.toml:6", "interval"]);
    scene.tidegate(&["validate", "pipeline.toml"]).expect(2).says(&["intervall"]);
    assert!(!scene.path("state").exists(), "nothing was begun");
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_what_was_expected() {
    let scene = Scene::plain(10, "");
    scene.edit("subtasks = 2", "subtasks = \"two\"");
    scene.run(&[]).expect(2).says(&["subtasks", "number"]);
}

#[test]
fn a_file_that_is_not_toml_is_told_with_its_line() {
    let scene = Scene::plain(10, "");
    scene.write("pipeline.toml", "[pipeline\nname = 1\n");
    scene.run(&[]).expect(2).says(&["pipeline.toml:1"]);
}

#[test]
fn input_that_does_not_exist_is_named() {
    let scene = Scene::plain(10, "");
    scene.edit("in/*", "input/2013.jsonl");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["input/2013.jsonl"]);
}

#[test]
fn a_plugin_that_is_not_a_component_is_refused_in_words() {
    let scene = Scene::plain(10, "");
    for (name, bytes) in
        [("text.wasm", &b"#!/bin/sh\n"[..]), ("module.wasm", &b"\0asm\x01\0\0\0"[..]), ("none.wasm", b"")]
    {
        scene.write(name, bytes);
        scene.pipeline("", "");
        scene.edit("builtin:files", name);
        let ended = scene.run(&[]);
        assert!([2, 3].contains(&ended.code()), "{ended}");
        ended.says(&[name, "component"]);
        scene.tidegate(&["plugin", "inspect", name]).says(&["component"]);
    }
    assert!(!scene.path("out").join("_epochs").exists());
}

/// A component that exports an empty instance under this name, and nothing else.
fn component_exporting(name: &str) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    // One instance made of no exports.
    bytes.extend([5, 3, 1, 1, 0]);
    // One export: the name, sort `instance`, index 0, no type.
    let length = u8::try_from(name.len()).expect("the name is short");
    bytes.extend([11, length + 6, 1, 0, length]);
    bytes.extend(name.as_bytes());
    bytes.extend([5, 0, 0]);
    bytes
}

#[test]
fn a_plugin_of_another_interface_version_is_refused_with_both_versions() {
    let scene = Scene::plain(10, "");
    scene.write("later.wasm", component_exporting("tidegate:sink/plugin@0.9.0"));
    scene.edit("builtin:files", "later.wasm");
    let ended = scene.run(&[]);
    assert!([2, 3].contains(&ended.code()), "{ended}");
    ended.says(&["0.9.0", "0.1.0"]);
    scene.tidegate(&["plugin", "inspect", "later.wasm"]).says(&["0.9.0", "0.1.0"]);
}

#[test]
fn a_component_that_is_no_sink_is_refused() {
    let scene = Scene::plain(10, "");
    scene.write("other.wasm", component_exporting("wasi:cli/run@0.2.0"));
    scene.edit("builtin:files", "other.wasm");
    let ended = scene.run(&[]);
    assert!([2, 3].contains(&ended.code()), "{ended}");
    ended.says(&["tidegate:sink"]);
}

#[test]
fn a_plugin_that_is_not_built_in_is_named_with_those_that_are() {
    let scene = Scene::plain(10, "");
    scene.edit("builtin:files", "builtin:flies");
    scene.run(&[]).expect(2).says(&["flies", "files"]);
}

#[test]
fn a_configuration_that_the_plugin_does_not_know_is_refused_before_anything_runs() {
    let scene = Scene::plain(10, "");
    scene.pipeline("", "[sinks.out.config]\nfile-prefixx = \"a\"\n");
    scene.run(&[]).expect(2).says(&["file-prefixx"]);
}

#[test]
fn a_bad_line_stops_the_pipeline_with_file_and_line_and_nothing_else_is_lost() {
    let scene = Scene::plain(30, "");
    let text = std::fs::read_to_string(scene.path("in/1.jsonl")).expect("it is there");
    scene.write("in/1.jsonl", text.replacen('}', "", 3));
    let ended = scene.run(&[]);
    assert!(![0, 2].contains(&ended.code()), "{ended}");
    ended.says(&["1.jsonl", "line 1"]);
    // Mended, and run again.
    scene.write("in/1.jsonl", text);
    scene.remove_if_there("state");
    scene.remove_if_there("out");
    scene.finish();
    scene.expect_rows("out", &numbered(0..30));
}

#[test]
fn a_bad_line_goes_to_the_dead_letters_with_file_line_and_reason() {
    let scene = Scene::plain(30, "");
    let rows = numbered(0..10);
    scene.write("in/0.jsonl", format!("{}{{\"n\": oops}}\n{}", lines(&rows[..4]), lines(&rows[4..])));
    scene.pipeline(
        "on-bad-row = \"dead-letter\"",
        "[dead-letter]\nplugin = \"builtin:files\"\n\n[dead-letter.dirs]\noutput = \"dead\"\n",
    );
    scene.finish();
    scene.expect_rows("out", &numbered(0..30));
    let dead = scene.rows("dead");
    assert_eq!(dead.len(), 1, "{dead:?}");
    for word in ["0.jsonl", "5", "oops"] {
        assert!(dead[0].contains(word), "`{word}` is missing in {}", dead[0]);
    }
}

#[test]
fn p9_exactly_once_from_standard_input_is_refused() {
    let scene = Scene::new();
    scene.write(
        "pipeline.toml",
        "[pipeline]\nname = \"flights\"\nstate = \"state\"\n\n[sources.rows]\nkind = \"stdin\"\nformat = \"json-lines\"\n\n\
         [sinks.out]\nplugin = \"builtin:files\"\n\n[sinks.out.dirs]\noutput = \"out\"\n",
    );
    scene.run(&[]).expect(3).says(&["exactly-once", "rows", "cannot be read again"]);
}

#[test]
fn a_usage_error_is_a_usage_error() {
    let scene = Scene::plain(10, "");
    scene.tidegate(&["rnu", "pipeline.toml"]).expect(2);
    scene.tidegate(&[]).expect(2);
    scene.tidegate(&["--help"]).expect(0).says(&["run", "validate", "checkpoint", "exit code"]);
}

/// What validating and running say to the same file: the same exit code, and the same words.
#[track_caller]
fn both(scene: &Scene, code: i32, words: &[&str]) {
    scene.tidegate(&["validate", "pipeline.toml"]).expect(code).says(words);
    scene.run(&[]).expect(code).says(words);
}

#[test]
fn validating_and_running_end_with_one_code_for_one_cause() {
    let plain = || Scene::plain(10, "");
    let scene = plain();
    scene.write("file", "");
    scene.edit("output = \"out\"", "output = \"file\"");
    both(&scene, 2, &["pipeline.toml:", "is not a directory", "granted as `output`"]);
    scene.edit("output = \"file\"", "output = \"file/below\"");
    both(&scene, 2, &["pipeline.toml:", "is not a directory, on the way to"]);
    for tasks in ["", "tasks = 2"] {
        let scene = Scene::plain(10, tasks);
        scene.edit("in/*", "none/*");
        both(&scene, 3, &["pipeline.toml:", "no file matches `none/*`"]);
    }
    let scene = plain();
    scene.pipeline("", "[sinks.out.transform]\nfilter = \"m > 1\"\n");
    both(&scene, 2, &["pipeline.toml:", "sink `out`", "filter"]);
    let scene = Scene::plain(10, "schema = \"n NUMMER\"");
    both(&scene, 2, &["pipeline.toml:", "source `flights`: schema: column n: unknown type NUMMER"]);
}

#[test]
fn what_only_an_edit_of_the_input_mends_is_not_called_a_failure() {
    for content in ["a,a\n1,2\n", "a,b\n1,\"2\n", "a,b\n1\n"] {
        let scene = Scene::new();
        scene.write("in/a.csv", content);
        scene.pipeline("schema = \"a TEXT, b TEXT\"", "");
        scene.edit("format = \"json-lines\"", "format = \"csv\"");
        let ended = scene.run(&["--json"]).says(&["in/a.csv"]);
        assert!([2, 3].contains(&ended.code()), "{ended}");
        let last = ended.stdout.lines().last().unwrap_or_default();
        assert!(last.contains("\"result\":\"refused\""), "{ended}");
    }
    let scene = Scene::plain(10, "");
    scene.pipeline("", "[dead-letter]\nplugin = \"builtin:files\"\n\n[dead-letter.dirs]\noutput = \"dead\"\n");
    scene.tidegate(&["dead-letter", "replay", "pipeline.toml", "--from", "nodir"]).expect(2).says(&["nodir", "--from"]);
}

#[test]
fn a_state_directory_that_a_source_would_read_is_refused() {
    let scene = Scene::plain(10, "");
    scene.edit("state = \"state\"", "state = \"in\"");
    both(&scene, 2, &["pipeline.toml:3:9: `state` in [pipeline]", "`in/*` of `paths` in [sources.flights]"]);
    assert!(!scene.path("in/log").exists(), "nothing was begun");
}

#[test]
fn two_sources_of_one_sink_that_read_the_same_file_are_told() {
    let scene = Scene::plain(10, "");
    let again = "[sources.again]\nkind = \"files\"\npaths = [\"in/0.*\"]\nformat = \"json-lines\"\n\n";
    scene.edit("[sinks.out]", &format!("{again}[sinks.out]"));
    both(&scene, 0, &["warning: pipeline.toml:", "sources `again` and `flights` both read", "in/0.jsonl", "twice"]);
    // Two sinks may each have rows of their own.
    let scene = Scene::plain(10, "");
    let other = "[sinks.other]\nplugin = \"builtin:files\"\nsources = [\"again\"]\ndirs = { output = \"other\" }\n\n";
    scene.edit("[sinks.out]", &format!("{again}{other}[sinks.out]\nsources = [\"flights\"]"));
    let ended = scene.tidegate(&["validate", "pipeline.toml"]).expect(0);
    assert!(!ended.stdout.contains("both read"), "{ended}");
}
