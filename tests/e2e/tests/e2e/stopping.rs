//! Asked to stop, once and twice.

use std::os::unix::process::ExitStatusExt as _;

use tidegate_e2e::{Scene, numbered, until};

#[test]
fn sigterm_and_ctrl_c_end_with_a_sealed_and_committed_epoch_and_say_so() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let scene = Scene::plain(30_000, "rate = 2000");
        let running = scene.start(&[]);
        until("the first file is published", || !scene.published("out").is_empty());
        running.signal(signal);
        running.end().expect(0).says(&["stopped", "committed"]);
        let rows = scene.rows("out").len();
        assert!(rows > 0 && rows < 30_000, "{rows} rows");
        scene.edit("rate = 2000", "");
        scene.finish();
        scene.expect_rows("out", &numbered(0..30_000));
    }
}

#[test]
fn a_second_ctrl_c_leaves_at_once_and_loses_nothing() {
    let scene = Scene::plain(30_000, "rate = 2000");
    let mut running = scene.start(&[]);
    until("the first file is published", || !scene.published("out").is_empty());
    running.signal(libc::SIGINT);
    if running.lives() {
        running.signal(libc::SIGINT);
    }
    let ended = running.end();
    assert_eq!(ended.status.signal(), None, "it leaves by itself: {ended}");
    scene.edit("rate = 2000", "");
    scene.finish();
    scene.expect_rows("out", &numbered(0..30_000));
}

#[test]
fn b41_a_stop_while_a_commit_is_in_doubt_has_its_own_exit_code_or_settles_it() {
    let scene = Scene::plain(30_000, "rate = 2000");
    let running = scene.start(&["--lose-commit-answers", "1"]);
    until("an epoch was staged", || !scene.files("out").is_empty());
    running.signal(libc::SIGTERM);
    let ended = running.end();
    assert!([0, 4].contains(&ended.code()), "{ended}");
    scene.edit("rate = 2000", "");
    scene.finish();
    scene.expect_rows("out", &numbered(0..30_000));
}
