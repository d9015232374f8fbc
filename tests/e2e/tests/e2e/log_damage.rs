//! A log that was damaged, or belongs to somebody else, is told by name and never read as "no checkpoint".

use std::path::{Path, PathBuf};

use tidegate_e2e::{Scene, numbered};

const SECTOR: usize = 512;

/// Where the newest record lies: its file and its sectors. From `host/store/FORMAT.md`, without its code.
fn newest_record(scene: &Scene) -> (PathBuf, std::ops::Range<usize>) {
    let mut newest: Option<(u64, PathBuf, std::ops::Range<usize>)> = None;
    for path in scene.files("state").into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "log")) {
        let bytes = std::fs::read(&path).expect("a segment can be read");
        for at in (0..bytes.len() / SECTOR).map(|sector| sector * SECTOR) {
            let frame = &bytes[at + 16..at + SECTOR];
            if bytes[at + 4..at + 8] != [0; 4] || !frame.starts_with(b"TGFR") || frame[6] != 1 {
                continue;
            }
            let number =
                |range: std::ops::Range<usize>| frame[range].iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
            let (length, slot) = (number(8..12) as usize, number(12..20));
            let sectors = (32 + length + 4).div_ceil(SECTOR - 16);
            if newest.as_ref().is_none_or(|(other, ..)| *other < slot) {
                newest = Some((slot, path.clone(), at..at + sectors * SECTOR));
            }
        }
    }
    let (_, path, range) = newest.expect("the log holds a record");
    (path, range)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).expect("the file is there");
    bytes[at] ^= 0xff;
    std::fs::write(path, bytes).expect("the file can be written");
}

#[test]
fn f21_a_newest_record_with_any_byte_flipped_is_reported_and_nothing_is_changed() {
    let scene = Scene::slow(300);
    scene.killed_at("sealed:2", &[]);
    let (path, range) = newest_record(&scene);
    let rows = scene.rows("out");
    // Every byte of the frame through the reading command; the running one at every thirty-first, it takes longer.
    for at in range.clone() {
        flip(&path, at);
        scene.tidegate(&["checkpoint", "verify", "pipeline.toml"]).expect(7).says(&[&name(&path)]);
        if (at - range.start).is_multiple_of(31) {
            scene.run(&[]).expect(7).says(&[&name(&path)]);
        }
        flip(&path, at);
    }
    assert_eq!(scene.rows("out"), rows, "nothing was published from a damaged log");
    scene.finish();
    scene.expect_rows("out", &numbered(0..300));
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[test]
fn a_log_that_was_cut_short_or_emptied_is_reported() {
    let scene = Scene::slow(300);
    scene.killed_at("sealed:3", &[]);
    let (path, range) = newest_record(&scene);
    let whole = std::fs::read(&path).expect("the file is there");
    for length in [0, 100, range.start / 2] {
        std::fs::write(&path, &whole[..length]).expect("the file can be written");
        scene.run(&[]).expect(7).says(&[&name(&path)]);
    }
    std::fs::write(&path, whole).expect("the file can be written");
    scene.finish();
    scene.expect_rows("out", &numbered(0..300));
}

#[test]
fn f46_a_second_process_on_the_same_state_is_turned_away_and_the_first_goes_on() {
    let scene = Scene::slow(300);
    let mut first = scene.start(&["--hold-at", "open:2"]);
    first.hear("held open");
    scene.run(&[]).expect(6).says(&["state"]);
    assert!(first.lives());
    first.kill();
    scene.finish();
    scene.expect_rows("out", &numbered(0..300));
}

#[test]
fn the_state_of_another_pipeline_is_refused() {
    let scene = Scene::plain(30, "");
    scene.finish();
    scene.edit("name = \"flights\"", "name = \"trains\"");
    scene.run(&[]).expect(3).says(&["flights", "trains"]);
}

#[test]
fn looking_at_a_running_pipeline_changes_nothing_and_works() {
    let scene = Scene::slow(300);
    let mut running = scene.start(&["--hold-at", "open:4"]);
    running.hear("held open");
    scene.tidegate(&["checkpoint", "list", "pipeline.toml"]).expect(0);
    scene.tidegate(&["checkpoint", "show", "pipeline.toml"]).expect(0).says(&["flights"]);
    scene.tidegate(&["checkpoint", "verify", "pipeline.toml"]).expect(0);
    scene.tidegate(&["ledger", "pipeline.toml"]).expect(0);
    let listed = scene.tidegate(&["checkpoint", "list", "pipeline.toml", "--json"]).expect(0);
    serde_json::from_str::<serde_json::Value>(&listed.stdout).expect("JSON on standard output");
    running.kill();
    scene.finish();
    scene.expect_rows("out", &numbered(0..300));
}
