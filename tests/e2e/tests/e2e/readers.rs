//! Readers who look while the pipeline writes.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_e2e::{Scene, numbered};

/// One look by plain listing and one by the epoch log. Each file that is shown is whole and stays as it is.
fn look(scene: &Scene, seen: &mut BTreeMap<std::path::PathBuf, Vec<u8>>) {
    let epochs = scene.files("out/_epochs");
    for epoch in epochs.iter().filter(|path| path.extension().is_some_and(|ending| ending == "json")) {
        let text = std::fs::read_to_string(epoch).expect("an epoch is there for good");
        let entry: Value = serde_json::from_str(&text).expect("an epoch is shown whole");
        let mut rows = 0;
        for file in entry["files"].as_array().expect("an epoch lists its files") {
            let name = file["name"].as_str().expect("a file has a name");
            let text = std::fs::read_to_string(scene.path("out").join(name)).expect("its files are in place");
            assert_eq!(text.lines().count() as u64, file["rows"].as_u64().expect("a file has rows"), "{name}");
            rows += file["rows"].as_u64().expect("a file has rows");
        }
        assert_eq!(entry["rows"].as_u64(), Some(rows));
    }
    for path in scene.published("out") {
        let bytes = std::fs::read(&path).expect("a published file stays");
        assert_eq!(bytes.last(), Some(&b'\n'), "{} is whole", path.display());
        let first = seen.entry(path.clone()).or_insert_with(|| bytes.clone());
        assert_eq!(*first, bytes, "{} changed after it was shown", path.display());
    }
}

#[test]
fn p2_a_reader_sees_whole_files_and_whole_epochs_only() {
    let scene = Scene::slow(6000);
    let mut seen = BTreeMap::new();
    for _ in 0..2 {
        scene.killed_at("sent:4", &[]);
        look(&scene, &mut seen);
    }
    let mut running = scene.start(&[]);
    while running.lives() {
        look(&scene, &mut seen);
    }
    running.end().expect(0);
    look(&scene, &mut seen);
    assert!(seen.len() > 5, "{} files", seen.len());
    scene.expect_rows("out", &numbered(0..6000));
}

#[test]
fn p2_nothing_is_shown_before_its_epoch_is_sealed() {
    let scene = Scene::plain(300, "");
    for moment in ["open", "preparing"] {
        scene.killed_at(moment, &[]);
        assert_eq!(scene.published("out"), Vec::<std::path::PathBuf>::new(), "killed at {moment}");
    }
    scene.finish();
    scene.expect_rows("out", &numbered(0..300));
}
