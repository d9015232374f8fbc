//! What is staged and explained by no record: listed with its reason, and given back only where that is certain.

use tidegate_e2e::{Scene, numbered};

fn listed(scene: &Scene) -> Vec<serde_json::Value> {
    let listed = scene.tidegate(&["orphans", "list", "pipeline.toml", "--json"]).expect(0);
    let sinks: Vec<serde_json::Value> = serde_json::from_str(&listed.stdout).expect("a list");
    sinks.iter().flat_map(|sink| sink["orphans"].as_array().expect("a list").clone()).collect()
}

fn staging(scene: &Scene) -> std::path::PathBuf {
    let folder = scene.files("out").into_iter().find(|path| path.to_string_lossy().contains("/tg-"));
    folder.expect("something is staged").parent().expect("in a folder").to_owned()
}

#[test]
fn work_of_the_newest_run_and_what_records_name_is_never_given_back() {
    let scene = Scene::slow(900);
    scene.killed_at("preparing:3", &[]);
    let orphans = listed(&scene);
    assert!(!orphans.is_empty() && orphans.iter().all(|orphan| orphan["removable"] == false), "{orphans:?}");
    scene.tidegate(&["orphans", "abandon", "pipeline.toml"]).expect(0).says(&["0 parts given back"]);
    assert_eq!(listed(&scene).len(), orphans.len());
    scene.finish();
    scene.expect_rows("out", &numbered(0..900));
}

#[test]
fn what_a_sleeper_of_an_older_run_staged_is_given_back_once_and_foreign_things_stay() {
    let scene = Scene::slow(900);
    scene.killed_at("preparing:3", &[]);
    let staged = staging(&scene);
    let left = listed(&scene);
    let name = left[0]["name"].as_str().expect("a name").to_owned();
    // The next run gives back what the killed one left; a sleeper puts it there again.
    let bytes = std::fs::read(staged.join(&name)).expect("it is there");
    scene.killed_at("sealed:2", &[]);
    assert!(!staged.join(&name).exists());
    std::fs::write(staged.join(&name), &bytes).expect("it can be written");
    std::fs::write(staged.join("tg-aaaaaaaa-1-aaaaaaaaaaaaaaaa-1-0-1"), "foreign").expect("it can be written");
    let orphans = listed(&scene);
    let old = orphans.iter().find(|orphan| orphan["name"] == name.as_str()).expect("it is listed");
    assert_eq!((&old["removable"], old["bytes"].as_u64()), (&true.into(), Some(bytes.len() as u64)));
    let running = scene.start(&["--hold-at", "sealed"]);
    let mut running = running;
    running.hear("held sealed");
    scene.tidegate(&["orphans", "abandon", "pipeline.toml"]).expect(6).says(&["in use"]);
    running.kill();
    std::fs::write(staged.join(&name), &bytes).expect("it can be written");
    scene.tidegate(&["orphans", "abandon", "pipeline.toml", "--sink", "nowhere"]).expect(2);
    scene.tidegate(&["orphans", "abandon", "pipeline.toml", "--sink", "out"]).expect(0).says(&["1 part given back"]);
    assert!(!staged.join(&name).exists() && staged.join("tg-aaaaaaaa-1-aaaaaaaaaaaaaaaa-1-0-1").exists());
    scene.tidegate(&["orphans", "abandon", "pipeline.toml"]).expect(0).says(&["0 parts given back"]);
    scene.tidegate(&["checkpoint", "verify", "pipeline.toml"]).expect(0);
    scene.finish();
    scene.expect_rows("out", &numbered(0..900));
}

#[test]
fn a_pipeline_without_state_has_no_orphans_and_gets_none() {
    let scene = Scene::plain(30, "");
    assert!(listed(&scene).is_empty());
    scene.tidegate(&["orphans", "abandon", "pipeline.toml"]).expect(0);
    assert!(!scene.path("state").exists() && !scene.path("out").exists());
}
