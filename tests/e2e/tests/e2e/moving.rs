//! Moving a pipeline to another host: one archive, whole or refused, and never two hosts that both go on.

use std::path::Path;

use tidegate_e2e::{Running, Scene, numbered, pause};

/// A killed run with sealed epochs, and the file of the "other host": the same pipeline with another state directory.
fn scene() -> Scene {
    let scene = Scene::slow(900);
    scene.killed_at("sealed:3", &[]);
    let text = std::fs::read_to_string(scene.path("pipeline.toml")).expect("it is there");
    scene.write("other.toml", text.replace("state = \"state\"", "state = \"there/state\""));
    scene
}

fn export(scene: &Scene, more: &[&str]) -> tidegate_e2e::Ended {
    scene.tidegate(&[&["checkpoint", "export", "pipeline.toml", "--to", "moved.tar.zst"], more].concat())
}

fn import(scene: &Scene, archive: &str) -> tidegate_e2e::Ended {
    scene.tidegate(&["checkpoint", "import", "other.toml", "--from", archive])
}

fn run_other(scene: &Scene) -> tidegate_e2e::Ended {
    scene.tidegate(&["run", "other.toml"])
}

#[test]
fn a_moved_pipeline_goes_on_elsewhere_and_refuses_to_run_here() {
    let scene = scene();
    export(&scene, &["--move"]).expect(0).says(&["refuses to run", "`out` has not finished", "staged"]);
    for command in ["run", "validate"] {
        let refused = scene.tidegate(&[command, "pipeline.toml"]).expect(3);
        refused.says(&["moved away", "moved.tar.zst", "to take it back", "moved.json"]);
    }
    let copy = scene.tidegate(&["checkpoint", "export", "pipeline.toml", "--to", "copy.tar.zst"]).expect(0);
    assert!(!copy.said().contains("can still run here"), "{copy}");
    copy.says(&["was moved away before"]);
    let second =
        scene.tidegate(&["checkpoint", "export", "pipeline.toml", "--to", "second.tar.zst", "--move"]).expect(3);
    second.says(&["was moved away into", "moved.tar.zst", "without --move"]);
    assert!(!scene.path("second.tar.zst").exists());
    scene.tidegate(&["savepoint", "create", "pipeline.toml", "s"]).expect(3);
    scene.tidegate(&["orphans", "abandon", "pipeline.toml"]).expect(3);
    import(&scene, "moved.tar.zst").expect(0);
    scene.tidegate(&["checkpoint", "verify", "other.toml"]).expect(0);
    run_other(&scene).expect(0);
    scene.expect_rows("out", &numbered(0..900));
    // Taken back against the rules: the destination tells.
    std::fs::remove_file(scene.path("state/moved.json")).expect("it is there");
    scene.run(&[]).expect(3);
    scene.expect_rows("out", &numbered(0..900));
}

#[test]
fn after_a_plain_export_the_destination_refuses_the_second_that_runs() {
    let scene = scene();
    export(&scene, &[]).expect(0).says(&["warning", "--move"]);
    import(&scene, "moved.tar.zst").expect(0);
    run_other(&scene).expect(0);
    let second = scene.run(&[]);
    assert!([3, 6].contains(&second.code()), "{second}");
    scene.expect_rows("out", &numbered(0..900));
}

#[test]
fn of_two_that_run_at_once_the_fenced_one_ends() {
    let scene = scene();
    export(&scene, &[]).expect(0);
    import(&scene, "moved.tar.zst").expect(0);
    let mut first = scene.start(&[]);
    first.hear("run ");
    let second = run_other(&scene);
    let first = first.end();
    // Whoever fenced last goes on; at most one may have come to a good end.
    let codes = [first.code(), second.code()];
    assert!(codes.contains(&0) && codes.iter().any(|code| [3, 6].contains(code)), "{first}\n{second}");
    scene.expect_rows("out", &numbered(0..900));
}

#[test]
fn nothing_is_overwritten_and_another_pipelines_archive_is_refused() {
    let scene = scene();
    scene.tidegate(&["checkpoint", "import", "other.toml", "--from", "absent"]).expect(2);
    export(&scene, &[]).expect(0);
    export(&scene, &[]).expect(2).says(&["already", "not overwritten"]);
    scene.tidegate(&["checkpoint", "export", "pipeline.toml", "--to", "state/log/x.tar.zst"]).expect(2);
    scene.tidegate(&["checkpoint", "import", "pipeline.toml", "--from", "moved.tar.zst"]).expect(3).says(&["already"]);
    let text = std::fs::read_to_string(scene.path("other.toml")).expect("it is there");
    scene.write("foreign.toml", text.replace("name = \"flights\"", "name = \"trains\""));
    let foreign = scene.tidegate(&["checkpoint", "import", "foreign.toml", "--from", "moved.tar.zst"]);
    foreign.expect(3).says(&["flights", "trains"]);
    assert!(!scene.path("there/state").exists());
    std::fs::create_dir_all(scene.path("there/state")).expect("it can be made");
    import(&scene, "moved.tar.zst").expect(0);
    import(&scene, "moved.tar.zst").expect(3).says(&["already"]);
    let mut running = scene.start(&["--hold-at", "open"]);
    running.hear("held open");
    scene.tidegate(&["checkpoint", "export", "pipeline.toml", "--to", "b.tar.zst"]).expect(6).says(&["in use"]);
    running.kill();
    assert!(!scene.path("b.tar.zst").exists());
}

#[test]
fn damaged_and_truncated_archives_are_refused_and_leave_nothing() {
    let scene = scene();
    export(&scene, &[]).expect(0);
    let whole = std::fs::read(scene.path("moved.tar.zst")).expect("it is there");
    let refused = |bytes: &[u8], what: &str| {
        scene.write("bad.tar.zst", bytes);
        let ended = import(&scene, "bad.tar.zst");
        assert_eq!(ended.code(), 3, "{what}: {ended}");
        assert!(!scene.path("there/state").exists(), "{what}");
        assert!(std::fs::read_dir(scene.path("there")).map_or(0, Iterator::count) == 0, "{what}");
    };
    for length in [0, 1, 4, whole.len() / 3, whole.len() / 2, whole.len() - 5, whole.len() - 1] {
        refused(&whole[..length], &format!("cut to {length}"));
    }
    let step = (whole.len() / 24).max(1);
    for at in (8..whole.len()).step_by(step) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        scene.write("bad.tar.zst", &bytes);
        if import(&scene, "bad.tar.zst").code() == 0 {
            // A log is mostly zeros, and zeros copied from another place are the same zeros.
            assert_eq!(contents(&scene, "there/state/log"), contents(&scene, "state/log"), "byte {at} changed");
            std::fs::remove_dir_all(scene.path("there")).expect("it can be removed");
        } else {
            refused(&bytes, &format!("byte {at} changed"));
        }
    }
    refused(&[&whole[..], b"more"].concat(), "something behind it");
    refused(b"no archive at all, but a text that is long enough to be read as one", "a text");
    import(&scene, "moved.tar.zst").expect(0);
}

/// All files below a folder, by name, with what they hold.
fn contents(scene: &Scene, folder: &str) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let found = scene.files(folder).into_iter().map(|path| {
        let held = std::fs::read(&path).expect("it can be read");
        (path.strip_prefix(scene.path(folder)).expect("it lies there").to_owned(), held)
    });
    let found: Vec<_> = found.collect();
    assert!(!found.is_empty(), "`{folder}` is empty");
    found
}

fn entries(folder: &Path) -> Vec<String> {
    let listed = std::fs::read_dir(folder).map(|entries| entries.flatten().collect::<Vec<_>>()).unwrap_or_default();
    listed.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn exports_and_imports_that_are_killed_leave_all_or_nothing() {
    let scene = scene();
    for wait in [0u64, 1, 2, 3, 4, 6, 8, 12] {
        let killed = |arguments: &[&str]| {
            let mut running = Running::start(scene.command(arguments));
            for _ in 0..wait {
                pause();
            }
            if running.lives() {
                running.signal(9);
            }
            drop(running.end());
        };
        killed(&["checkpoint", "export", "pipeline.toml", "--to", "moved.tar.zst"]);
        if !scene.path("moved.tar.zst").exists() {
            export(&scene, &[]).expect(0);
        }
        killed(&["checkpoint", "import", "other.toml", "--from", "moved.tar.zst"]);
        if !scene.path("there/state").exists() {
            import(&scene, "moved.tar.zst").expect(0);
        }
        scene.tidegate(&["checkpoint", "verify", "other.toml"]).expect(0);
        assert_eq!(entries(&scene.path("there")), ["state"], "nothing is left beside it");
        scene.remove("there");
        std::fs::remove_file(scene.path("moved.tar.zst")).expect("it is there");
    }
    assert!(!entries(&scene.path(".")).iter().any(|name| name.contains("unfinished")));
    scene.finish();
    scene.expect_rows("out", &numbered(0..900));
}

#[test]
fn a_move_that_is_killed_never_leaves_an_archive_and_a_state_that_runs() {
    for wait in [0u64, 1, 2, 3, 4, 5, 6, 8] {
        let scene = scene();
        let mut running = Running::start(scene.command(&[
            "checkpoint",
            "export",
            "pipeline.toml",
            "--to",
            "moved.tar.zst",
            "--move",
        ]));
        for _ in 0..wait {
            pause();
        }
        if running.lives() {
            running.signal(9);
        }
        drop(running.end());
        let (archive, marked) = (scene.path("moved.tar.zst").exists(), scene.path("state/moved.json").exists());
        assert!(marked || !archive, "killed after {wait} looks");
        if marked && !archive {
            // Said again, it is carried out.
            export(&scene, &["--move"]).expect(0);
        }
        if marked {
            import(&scene, "moved.tar.zst").expect(0);
            run_other(&scene).expect(0);
        } else {
            scene.finish();
        }
        scene.expect_rows("out", &numbered(0..900));
    }
}

#[test]
fn an_unfinished_epoch_is_taken_up_by_a_file_that_reaches_the_directory_by_another_path() {
    let scene = scene();
    export(&scene, &["--move"]).expect(0);
    let text = std::fs::read_to_string(scene.path("other.toml")).expect("it is there");
    std::fs::create_dir_all(scene.path("there/in")).expect("it can be made");
    for part in ["0", "1", "2"] {
        let name = format!("in/{part}.jsonl");
        std::fs::copy(scene.path(&name), scene.path(&format!("there/{name}"))).expect("it can be copied");
    }
    let elsewhere = text.replace("\"there/state\"", "\"state\"");
    let there = |output: &str| scene.write("there/p.toml", elsewhere.replace("\"out\"", &format!("\"{output}\"")));
    there("../out");
    scene.tidegate(&["checkpoint", "import", "there/p.toml", "--from", "moved.tar.zst"]).expect(0);
    // The same words mean another directory there.
    there("out");
    scene.tidegate(&["validate", "there/p.toml"]).expect(3).says(&["are staged in the old one"]);
    scene.tidegate(&["run", "there/p.toml"]).expect(3).says(&["are staged in the old one"]);
    there("../out");
    scene.tidegate(&["validate", "there/p.toml"]).expect(0);
    scene.tidegate(&["run", "there/p.toml"]).expect(0);
    scene.expect_rows("out", &numbered(0..900));
}
