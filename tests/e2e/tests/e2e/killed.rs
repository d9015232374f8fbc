//! Killed with SIGKILL, restored, and finished: every row once.

use tidegate_e2e::{Scene, numbered};

#[test]
fn a_run_killed_at_each_moment_is_finished_by_the_next_one() {
    for moment in ["starting", "restoring", "open:2", "preparing:2", "sealed:2", "sent:2", "finishing"] {
        let scene = Scene::slow(900);
        scene.killed_at(moment, &[]);
        scene.finish();
        scene.expect_rows("out", &numbered(0..900));
    }
}

#[test]
fn a_run_killed_in_doubt_finds_out_what_became_of_the_commit() {
    let scene = Scene::slow(900);
    scene.killed_at("in-doubt", &["--lose-commit-answers", "1"]);
    scene.finish();
    scene.expect_rows("out", &numbered(0..900));
}

#[test]
fn f29_lost_commit_answers_neither_lose_nor_repeat_a_row() {
    let scene = Scene::slow(600);
    scene.run(&["--lose-commit-answers", "2"]).expect(0);
    scene.expect_rows("out", &numbered(0..600));
}

#[test]
fn b05_one_checkpoint_restored_five_times_gives_equal_output() {
    let scene = Scene::slow(900);
    scene.killed_at("sealed:3", &[]);
    for _ in 0..5 {
        // Killed before another epoch could be sealed: the next run starts from the same checkpoint.
        scene.killed_at("open", &[]);
    }
    scene.finish();
    scene.expect_rows("out", &numbered(0..900));
}

#[test]
fn copies_of_one_killed_run_finish_equally() {
    let scene = Scene::slow(600);
    scene.killed_at("sent:2", &[]);
    scene.copy("state", "state-kept");
    scene.copy("out", "out-kept");
    for _ in 0..5 {
        scene.finish();
        scene.expect_rows("out", &numbered(0..600));
        scene.remove("state");
        scene.remove("out");
        scene.copy("state-kept", "state");
        scene.copy("out-kept", "out");
    }
}

#[test]
fn f42_a_crash_within_a_crash_within_recovery_loses_nothing() {
    let scene = Scene::slow(600);
    scene.killed_at("sealed:2", &[]);
    scene.killed_at("restoring", &[]);
    scene.killed_at("sent", &[]);
    scene.killed_at("starting", &[]);
    scene.killed_at("preparing", &[]);
    scene.finish();
    scene.expect_rows("out", &numbered(0..600));
}
