//! Epochs of which files are gone: a person puts them back, or gives the epoch up.

use std::path::PathBuf;

use tidegate_e2e::{Scene, numbered, until};

/// What is decided about an epoch.
fn resolve(scene: &Scene, epoch: &str, choice: &str) -> tidegate_e2e::Ended {
    let what = ["resolve", "pipeline.toml", "--sink", "out", "--epoch", epoch, "--choice", choice, "--by", "test"];
    scene.tidegate(&what)
}

/// A pipeline that was killed when its destination had decided on an epoch and readers could not see it yet; then
/// somebody removed a file of that epoch. Answers with the epoch, and the file with its content.
fn decided_and_removed() -> (Scene, String, PathBuf, Vec<u8>) {
    let scene = Scene::slow(300);
    let mut running = scene.start(&["--hold-at", "sent:3"]);
    running.hear("held sent");
    let logged = |scene: &Scene| scene.files("out/_epochs");
    until("the third epoch is published", || logged(&scene).len() >= 3);
    let note = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("published-"));
    until("the publication is noted", || scene.files("out/_tidegate").iter().filter(|path| note(path)).count() >= 3);
    running.kill();
    // What a crash half-way leaves: the decision in the register, and nothing that tells readers of it.
    let entry = logged(&scene).pop().expect("there are three");
    let text = std::fs::read_to_string(&entry).expect("it can be read");
    let told: serde_json::Value = serde_json::from_str(text.trim_end()).expect("an entry is JSON");
    std::fs::remove_file(entry).expect("it is there");
    let noted = scene.files("out/_tidegate").into_iter().filter(note).max().expect("there are three");
    std::fs::remove_file(noted).expect("it is there");
    let name = told["files"][0]["name"].as_str().expect("an epoch with rows has files").to_owned();
    let file = scene.path("out").join(name);
    let bytes = std::fs::read(&file).expect("it is published");
    std::fs::remove_file(&file).expect("it is there");
    (scene, told["epoch"].to_string(), file, bytes)
}

#[test]
fn a_decided_epoch_of_which_a_file_is_gone_blocks_and_a_file_put_back_finishes_it() {
    let (scene, epoch, file, bytes) = decided_and_removed();
    for _ in 0..2 {
        let blocked = scene.run(&[]).expect(5);
        blocked.says(&["neither published nor staged", &format!("resolve pipeline.toml --sink out --epoch {epoch}")]);
    }
    std::fs::write(file, bytes).expect("the folder is there");
    resolve(&scene, &epoch, "retry").expect(0);
    scene.finish();
    scene.expect_rows("out", &numbered(0..300));
}

#[test]
fn p12_a_decided_epoch_of_which_a_file_is_gone_can_be_given_up_and_its_rows_are_counted() {
    let (scene, epoch, file, bytes) = decided_and_removed();
    let gone = String::from_utf8(bytes).expect("rows are text");
    scene.run(&[]).expect(5);
    let checked = scene.tidegate(&["validate", "pipeline.toml", "--json"]).expect(5);
    let checked: serde_json::Value = serde_json::from_str(&checked.stdout).expect("JSON on standard output");
    let rows = checked["validation"]["blocked"][0]["rows"].as_u64().expect("a number of rows");
    assert!(rows >= gone.lines().count() as u64, "{rows}");
    let given_up = format!("{rows} rows of epoch {epoch} at sink `out` are given up");
    resolve(&scene, &epoch, "give-up").expect(0).says(&[&given_up]);
    resolve(&scene, &epoch, "give-up").expect(0).says(&["recorded before"]);
    scene.finish().says(&[&given_up, "of test"]);
    let left: Vec<_> = numbered(0..300).into_iter().filter(|row| !gone.lines().any(|lost| lost == row)).collect();
    scene.expect_rows("out", &left);
    assert!(!file.exists());
    // Decided and done: nothing is told again, and nothing waits.
    let again = scene.run(&[]).expect(0);
    assert!(!again.said().contains("given up"), "{again}");
}
