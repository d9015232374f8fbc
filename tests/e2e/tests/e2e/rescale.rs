//! F43: another number of writers and source tasks after a kill, with what was prepared, sealed or in doubt at that moment.
//! The rows are those of `examples/flights`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tidegate_e2e::Scene;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/flights/data")
}

/// The example, with its files copied and a shorter interval. Returns its rows as well.
fn flights() -> (Scene, Vec<String>) {
    let scene = Scene::new();
    let mut rows = Vec::new();
    for name in ["2013-01-1.jsonl.gz", "2013-01-2.jsonl.gz", "2013-01-3.jsonl.gz"] {
        let packed = std::fs::read(data().join(name)).expect("the example has its data");
        let mut text = String::new();
        MultiGzDecoder::new(packed.as_slice()).read_to_string(&mut text).expect("the example's data is whole");
        rows.extend(text.lines().map(str::to_owned));
        scene.write(&format!("in/{name}"), packed);
    }
    assert_eq!(rows.len(), 27_004);
    scene.pipeline("rate = 9000", "");
    (scene, rows)
}

/// Sets the number of writers, and of source tasks where that is named too; `validate` has nothing against it and says
/// what it means.
#[track_caller]
fn rescale(scene: &Scene, from: u32, to: u32) {
    scene.edit(&format!("subtasks = {from}\n"), &format!("subtasks = {to}\n"));
    scene.tidegate(&["validate", "pipeline.toml"]).expect(0).says(&["subtasks", "writers divide the keys anew"]);
}

#[track_caller]
fn tasks(scene: &Scene, from: &str, to: &str) {
    scene.edit(from, to);
    scene.tidegate(&["validate", "pipeline.toml"]).expect(0);
}

#[test]
fn f43_two_writers_three_and_one_with_a_kill_at_every_state_of_an_epoch() {
    for moment in ["preparing:2", "sealed:2", "sent:2"] {
        let (scene, rows) = flights();
        scene.killed_at(moment, &[]);
        rescale(&scene, 2, 3);
        tasks(&scene, "rate = 9000", "rate = 9000\ntasks = 3");
        scene.killed_at(moment, &[]);
        rescale(&scene, 3, 1);
        tasks(&scene, "tasks = 3", "tasks = 1");
        scene.finish();
        scene.expect_rows("out", &rows);
    }
}

#[test]
fn f43_an_epoch_in_doubt_is_finished_by_writers_of_another_number() {
    let (scene, rows) = flights();
    for (from, to) in [(2, 3), (3, 1), (1, 4)] {
        scene.killed_at("in-doubt", &["--lose-commit-answers", "1"]);
        rescale(&scene, from, to);
    }
    scene.finish();
    scene.expect_rows("out", &rows);
}

#[test]
fn f43_a_kill_in_the_recovery_of_a_rescaled_run_and_another_rescale() {
    let (scene, rows) = flights();
    scene.killed_at("sealed:3", &[]);
    rescale(&scene, 2, 3);
    for (moment, from, to) in [("restoring", 3, 1), ("open", 1, 4), ("starting", 4, 5)] {
        scene.killed_at(moment, &[]);
        rescale(&scene, from, to);
    }
    scene.finish();
    scene.expect_rows("out", &rows);
}
