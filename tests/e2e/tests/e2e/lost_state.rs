//! Log and destination disagree: refused by default, and each way out has a name.

use tidegate_e2e::{Scene, numbered};

#[test]
fn p8_output_used_again_after_the_state_was_lost_is_refused_and_unchanged() {
    let scene = Scene::plain(300, "");
    scene.finish();
    scene.remove("state");
    let before = scene.files("out");
    scene.run(&[]).expect(3).says(&["out", "accept-duplicates"]);
    assert_eq!(scene.files("out"), before);
    scene.expect_rows("out", &numbered(0..300));
}

#[test]
fn p8_accepted_duplicates_are_recorded_and_accepted_once() {
    let scene = Scene::plain(300, "");
    scene.finish();
    scene.remove("state");
    let accept = ["--accept", "out=accept-duplicates", "--decision-id", "lost-state-1", "--by", "test"];
    scene.run(&accept).expect(0);
    scene.expect_rows("out", &[numbered(0..300), numbered(0..300)].concat());
    // The same request again, as a service unit would make it: the decision is there already.
    scene.run(&accept).expect(0);
    scene.expect_rows("out", &[numbered(0..300), numbered(0..300)].concat());
}

#[test]
fn b15_state_restored_from_an_old_backup_is_refused() {
    let scene = Scene::slow(600);
    scene.killed_at("sealed:3", &[]);
    scene.copy("state", "backup");
    scene.finish();
    scene.remove("state");
    scene.copy("backup", "state");
    scene.run(&[]).expect(3).says(&["out"]);
    scene.expect_rows("out", &numbered(0..600));
}

#[test]
fn a_destination_that_lost_rows_is_refused_with_the_ways_out() {
    let scene = Scene::plain(300, "");
    scene.finish();
    scene.write("in/new.jsonl", "{\"n\":\"new\"}\n");
    scene.remove("out");
    scene.run(&[]).expect(3).says(&["out", "accept-loss"]);
    scene.run(&["--accept", "out=accept-loss", "--by", "test"]).expect(0);
    assert_eq!(scene.rows("out"), ["{\"n\":\"new\"}"]);
}
