//! Several sinks in one pipeline.

use std::path::PathBuf;

use tidegate_e2e::{Scene, numbered};

/// A second sink with the same configuration, publishing into `directory`.
fn second(directory: &str) -> String {
    format!(
        "[sinks.second]\nplugin = \"builtin:files\"\nsubtasks = 2\n\n[sinks.second.dirs]\noutput = \"{directory}\"\n"
    )
}

/// What the second sink has staged and not published.
fn staged(scene: &Scene) -> Vec<PathBuf> {
    let mut files = scene.files("out2");
    files.retain(|path| path.components().any(|part| part.as_os_str() == "staging"));
    files
}

#[test]
fn b34_two_sinks_with_equal_configuration_each_get_every_row() {
    let scene = Scene::plain(600, "");
    scene.pipeline("", &second("out2"));
    scene.finish();
    scene.expect_rows("out", &numbered(0..600));
    scene.expect_rows("out2", &numbered(0..600));
}

#[test]
fn b34_two_sinks_into_the_same_directory_share_nothing() {
    let scene = Scene::slow(300);
    scene.pipeline("rate = 100", &second("out"));
    scene.killed_at("sent:3", &[]);
    scene.finish();
    scene.expect_rows("out", &[numbered(0..300), numbered(0..300)].concat());
}

#[test]
fn a_kill_between_the_commits_of_two_sinks_loses_nothing() {
    for nth in 1..6 {
        let scene = Scene::slow(300);
        scene.pipeline("rate = 100", &second("out2"));
        scene.killed_at(&format!("sent:{nth}"), &[]);
        scene.finish();
        scene.expect_rows("out", &numbered(0..300));
        scene.expect_rows("out2", &numbered(0..300));
    }
}

#[test]
fn one_sink_blocked_the_other_goes_on_and_a_decision_finishes_the_first() {
    let scene = Scene::plain(300, "");
    scene.pipeline("", &second("out2"));
    scene.killed_at("sealed", &[]);
    // Somebody takes the second sink's staged files away: its sealed epoch can not be committed.
    let taken: Vec<(PathBuf, Vec<u8>)> =
        staged(&scene).into_iter().map(|path| (path.clone(), std::fs::read(path).expect("it is there"))).collect();
    assert!(!taken.is_empty(), "the second sink had staged something");
    for (path, _) in &taken {
        std::fs::remove_file(path).expect("it is there");
    }
    scene.run(&[]).expect(5).says(&["second", "resolve"]);
    scene.expect_rows("out", &numbered(0..300));
    assert!(scene.rows("out2").len() < 300);

    // It stays blocked until somebody decides, and says so each time.
    scene.run(&[]).expect(5).says(&["second"]);
    let checked = scene.tidegate(&["validate", "pipeline.toml"]).expect(5);
    assert!(checked.stdout.contains("tidegate resolve pipeline.toml --sink second --epoch "), "{checked}");

    for (path, bytes) in &taken {
        std::fs::write(path, bytes).expect("the folder is there");
    }
    let shown = scene.tidegate(&["ledger", "pipeline.toml"]).expect(0);
    assert!(!shown.stdout.is_empty());
    let epoch = blocked_epoch(&scene);
    let decide =
        ["resolve", "pipeline.toml", "--sink", "second", "--epoch", &epoch, "--choice", "retry", "--by", "test"];
    scene.tidegate(&decide).expect(0);
    scene.finish();
    scene.expect_rows("out", &numbered(0..300));
    scene.expect_rows("out2", &numbered(0..300));
}

#[test]
fn p12_rows_given_up_by_a_decision_are_told_and_the_rest_arrives() {
    let scene = Scene::slow(300);
    scene.killed_at("sealed", &[]);
    let mut files = scene.files("out");
    files.retain(|path| path.components().any(|part| part.as_os_str() == "staging"));
    for path in files {
        std::fs::remove_file(path).expect("it is there");
    }
    scene.run(&[]).expect(5);
    let epoch = blocked_epoch(&scene);
    let decide =
        ["resolve", "pipeline.toml", "--sink", "out", "--epoch", &epoch, "--choice", "give-up", "--by", "test"];
    scene.tidegate(&decide).expect(0);
    scene.finish();
    let rows = scene.rows("out");
    assert!(!rows.is_empty() && rows.len() < 300, "{} rows", rows.len());
    let mut once = rows.clone();
    once.dedup();
    assert_eq!(rows, once, "nothing twice");
}

/// The number of the epoch that a person must decide about, as `run` tells it.
fn blocked_epoch(scene: &Scene) -> String {
    let said = scene.run(&[]).expect(5).said();
    let (_, after) = said.split_once("--epoch ").unwrap_or_else(|| panic!("no `--epoch` in:\n{said}"));
    after.chars().take_while(char::is_ascii_digit).collect()
}
