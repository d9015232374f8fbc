//! A pipeline whose input has ended.

use tidegate_e2e::{Scene, lines, numbered};

#[test]
fn a_finished_pipeline_run_again_changes_nothing_and_exits_0() {
    let scene = Scene::plain(300, "");
    scene.finish().says(&["300"]);
    let published = scene.files("out").into_iter().filter(|path| !path.to_string_lossy().contains("_tidegate"));
    let before: Vec<_> = published.collect();
    for _ in 0..3 {
        scene.finish().says(&["nothing"]);
    }
    let published = scene.files("out").into_iter().filter(|path| !path.to_string_lossy().contains("_tidegate"));
    assert_eq!(published.collect::<Vec<_>>(), before);
    scene.expect_rows("out", &numbered(0..300));
}

#[test]
fn a_new_file_afterwards_is_taken_and_told() {
    let scene = Scene::plain(300, "");
    scene.finish();
    scene.write("in/9.jsonl", lines(&numbered(300..350)));
    scene.finish().says(&["50"]);
    scene.expect_rows("out", &numbered(0..350));
}

#[test]
fn a_file_that_shrank_or_was_replaced_is_named_and_refused() {
    // One task reads the files in order: rows of the first are in the first epoch that has any.
    let scene = Scene::plain(300, "rate = 100\ntasks = 1");
    scene.killed_at("sealed:3", &[]);
    let whole = std::fs::read(scene.path("in/0.jsonl")).expect("it is there");
    scene.write("in/0.jsonl", "{\"n\":1}\n");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["0.jsonl"]);
    scene.write("in/0.jsonl", whole.iter().rev().copied().collect::<Vec<u8>>());
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["0.jsonl"]);
    std::fs::remove_file(scene.path("in/0.jsonl")).expect("it is there");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["0.jsonl"]);
}

#[test]
fn an_empty_input_directory_with_empty_files_finishes() {
    let scene = Scene::new();
    scene.write("in/empty.jsonl", "");
    scene.pipeline("", "");
    scene.finish();
    assert_eq!(scene.rows("out"), Vec::<String>::new());
}
