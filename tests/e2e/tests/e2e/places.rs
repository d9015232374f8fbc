//! Directories that cannot be written, disks that are full, clocks that go back.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_e2e::{Clock, Ended, Running, Scene, Tool, left_out, numbered, tidegate};

/// Runs the pipeline as the user `nobody`: for root, no directory is unwritable.
fn run_as_nobody(scene: &Scene) -> Ended {
    as_nobody(scene, &["run", "pipeline.toml"])
}

fn as_nobody(scene: &Scene, arguments: &[&str]) -> Ended {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]);
    command.arg(scene.path("tidegate")).args(arguments).current_dir(scene.path("."));
    // The cache of compiled plugins has to be somewhere that this user may write.
    command.env("HOME", scene.path("home")).env("XDG_CACHE_HOME", scene.path("home"));
    Running::start(command).end()
}

fn open_to_all(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// A scene that `nobody` may use: folder, binary, state and output.
fn for_nobody() -> Scene {
    let scene = Scene::plain(300, "");
    open_to_all(&scene.path("."), 0o777);
    std::fs::copy(tidegate(), scene.path("tidegate")).expect("the binary can be copied");
    open_to_all(&scene.path("tidegate"), 0o755);
    for folder in ["home", "out", "state"] {
        std::fs::create_dir(scene.path(folder)).expect("a folder can be made");
        open_to_all(&scene.path(folder), 0o777);
    }
    scene
}

#[test]
fn an_unwritable_state_directory_is_named() {
    if left_out("an_unwritable_state_directory_is_named", &[Tool::Root, Tool::Setpriv]) {
        return;
    }
    let scene = for_nobody();
    open_to_all(&scene.path("state"), 0o555);
    run_as_nobody(&scene).expect(7).says(&["state", "permission"]);
    open_to_all(&scene.path("state"), 0o777);
    run_as_nobody(&scene).expect(0);
    scene.expect_rows("out", &numbered(0..300));
}

#[test]
fn an_unwritable_output_directory_is_named_and_nothing_is_lost() {
    if left_out("an_unwritable_output_directory_is_named_and_nothing_is_lost", &[Tool::Root, Tool::Setpriv]) {
        return;
    }
    let scene = for_nobody();
    open_to_all(&scene.path("out"), 0o555);
    let asked = as_nobody(&scene, &["validate", "pipeline.toml", "--connect"]).expect(1);
    let found = format!("{} (granted as `output`) cannot be written: permission denied", scene.path("out").display());
    assert!(asked.stdout.contains(&found), "{asked}");
    let ended = run_as_nobody(&scene).expect(1);
    let out = scene.path("out").display().to_string();
    ended.says(&["taken over from older runs", &format!("permission denied in {out}"), "let the user"]);
    open_to_all(&scene.path("out"), 0o777);
    run_as_nobody(&scene).expect(0);
    scene.expect_rows("out", &numbered(0..300));
}

/// A small file system of its own in memory, taken away at the end.
struct Small<'a> {
    scene: &'a Scene,
    name: &'a str,
}

impl<'a> Small<'a> {
    fn mount(scene: &'a Scene, name: &'a str, kib: u32) -> Self {
        std::fs::create_dir_all(scene.path(name)).expect("a folder can be made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "none"])
            .arg(scene.path(name))
            .status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount");
        Self { scene, name }
    }

    fn grow(&self, kib: u32) {
        let options = format!("remount,size={kib}k");
        let grown = Command::new("mount").args(["-o", &options]).arg(self.scene.path(self.name)).status();
        assert!(grown.is_ok_and(|status| status.success()), "cannot grow");
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.scene.path(self.name)).status();
    }
}

#[test]
fn f20_a_full_output_disk_is_told_and_nothing_is_lost() {
    if left_out("f20_a_full_output_disk_is_told_and_nothing_is_lost", &[Tool::Mount]) {
        return;
    }
    let scene = Scene::plain(9000, "");
    scene.edit("interval", "commit-tries = 3\ninterval");
    let small = Small::mount(&scene, "out", 256);
    let ended = scene.run(&[]).expect(1);
    let said = ended.said();
    let out = scene.path("out").display().to_string();
    // What fails first is told when it fails, with how long it is tried again, and each reason once.
    let warned: Vec<_> = said.lines().filter(|line| line.starts_with("warning: ")).collect();
    let space = format!("no space left in {out}");
    assert!(warned.iter().all(|line| line.contains(&space) && line.contains("free space in ")), "{ended}");
    assert!(
        warned.iter().any(|line| line.contains("rows could not be staged") && line.contains("at most 5")),
        "{ended}"
    );
    let taken = warned.iter().filter(|line| line.contains("taken over from older runs")).count();
    assert!(taken <= 6, "each run tells it once: {ended}");
    // The end is under the heading of the call that failed, with the place and how to mend it.
    let error = said.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(error.contains(&space) && !error.contains("where it stands"), "{ended}");
    assert!(said.contains(&format!("hint: free space in {out}")), "{ended}");
    small.grow(16 << 10);
    scene.finish();
    scene.expect_rows("out", &numbered(0..9000));
}

#[test]
fn a_full_or_read_only_output_disk_is_found_by_asking_before_a_run() {
    if left_out("a_full_or_read_only_output_disk_is_found_by_asking_before_a_run", &[Tool::Mount]) {
        return;
    }
    let scene = Scene::plain(30, "");
    let _small = Small::mount(&scene, "out", 256);
    ask(&scene, 0, "has only 256 KiB left");
    // Short of the last byte that there is room for.
    let _ = std::fs::write(scene.path("out/_other"), vec![0; 256 << 10]);
    ask(&scene, 1, "has no space left");
    scene.tidegate(&["validate", "pipeline.toml"]).expect(0).says(&["were not asked"]);
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(scene.path("out")).status();
    assert!(remounted.is_ok_and(|status| status.success()), "cannot remount");
    ask(&scene, 1, "is mounted read-only");
}

#[test]
fn asking_a_destination_changes_nothing_there() {
    let scene = Scene::slow(90);
    ask(&scene, 0, "is not there; a run makes it");
    assert!(!scene.path("out").exists() && !scene.path("state").exists());
    std::fs::create_dir(scene.path("out")).expect("a folder can be made");
    ask(&scene, 0, "can be used");
    assert_eq!(scene.files("out"), Vec::<std::path::PathBuf>::new());
    // Also beside work that waits to be finished or given back.
    scene.killed_at("sealed", &[]);
    let before = contents(&scene);
    assert!(before.iter().any(|(path, ..)| path.contains("staging")), "{before:?}");
    ask(&scene, 0, "can be used");
    assert_eq!(contents(&scene), before);
    // What the plugin finds is told as a run would.
    std::fs::remove_dir_all(scene.path("out/_epochs")).expect("it is there");
    ask(&scene, 1, "does not say where it stands");
}

#[track_caller]
fn ask(scene: &Scene, code: i32, words: &str) {
    let asked = scene.tidegate(&["validate", "pipeline.toml", "--connect"]).expect(code);
    assert!(asked.stdout.contains(words), "{asked}");
}

/// Every file of output and state, with its content and when it was written.
fn contents(scene: &Scene) -> Vec<(String, Vec<u8>, SystemTime)> {
    let read = |path: &std::path::PathBuf| {
        let written = path.metadata().and_then(|found| found.modified()).expect("it is there");
        (path.display().to_string(), std::fs::read(path).expect("it can be read"), written)
    };
    [scene.files("out"), scene.files("state")].concat().iter().map(read).collect()
}

#[test]
fn f20_a_full_state_disk_is_told_and_nothing_is_lost() {
    if left_out("f20_a_full_state_disk_is_told_and_nothing_is_lost", &[Tool::Mount]) {
        return;
    }
    let scene = Scene::slow(9000);
    let small = Small::mount(&scene, "state", 96);
    let ended = scene.run(&[]);
    assert!(![0, -1].contains(&ended.code()), "{ended}");
    ended.says(&["state", "space"]);
    small.grow(16 << 10);
    scene.finish();
    scene.expect_rows("out", &numbered(0..9000));
}

#[test]
fn f47_a_clock_that_was_set_back_between_runs_changes_nothing() {
    if left_out("f47_a_clock_that_was_set_back_between_runs_changes_nothing", &[Tool::Faketime]) {
        return;
    }
    let scene = Scene::slow(600);
    scene.killed_at("sealed:3", &[]);
    for (offset, hours) in [("-2h", -2), ("-400d", -400 * 24), ("+400d", 400 * 24), ("-2h", -2)] {
        let command = scene.command(&["run", "pipeline.toml", "--hold-at", "sealed"]);
        let mut running = Running::start(Clock::off_by(offset).shown_to(&command));
        running.hear("held sealed");
        running.kill();
        assert_eq!(hours_ahead(newest_seal(&scene)), hours, "the run did not see a clock that is off by {offset}");
    }
    scene.finish();
    scene.expect_rows("out", &numbered(0..600));
}

/// When the newest checkpoint was sealed by the clock of the run that sealed it, in unix milliseconds.
fn newest_seal(scene: &Scene) -> i64 {
    let listed = scene.tidegate(&["checkpoint", "list", "pipeline.toml", "--json"]).expect(0);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON on standard output");
    let newest = listed.as_array().and_then(|all| all.iter().max_by_key(|checkpoint| checkpoint["slot"].as_u64()));
    newest.and_then(|checkpoint| checkpoint["sealed-at"].as_i64()).expect("a checkpoint with its time")
}

/// How many hours after now that is, to the nearest hour.
#[expect(clippy::disallowed_methods, reason = "the clock that other processes are shown is compared with the real one")]
fn hours_ahead(millis: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is past 1970").as_millis();
    let ahead = millis - i64::try_from(now).expect("milliseconds fit for a while yet");
    (ahead + ahead.signum() * 1_800_000) / 3_600_000
}
