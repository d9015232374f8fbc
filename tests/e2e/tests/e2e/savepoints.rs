//! Savepoints: of a pipeline that runs and of one that does not, through crashes, until they are forgotten.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tidegate_e2e::{Scene, numbered, pause, until};

/// A pipeline that goes on for long, and has sealed something.
fn running(scene: &Scene) -> tidegate_e2e::Running {
    let mut running = scene.start(&[]);
    running.hear("run ");
    until("an epoch is sealed", || !epochs(scene).is_empty());
    running
}

fn epochs(scene: &Scene) -> Vec<serde_json::Value> {
    let listed = scene.tidegate(&["checkpoint", "list", "pipeline.toml", "--json"]);
    serde_json::from_str(&listed.stdout).unwrap_or_default()
}

fn savepoints(scene: &Scene) -> Vec<String> {
    let listed = scene.tidegate(&["savepoint", "list", "pipeline.toml", "--json"]).expect(0);
    let listed: Vec<serde_json::Value> = serde_json::from_str(&listed.stdout).expect("a list");
    listed.iter().map(|savepoint| savepoint["name"].as_str().expect("a name").to_owned()).collect()
}

fn create(scene: &Scene, name: &str) -> tidegate_e2e::Ended {
    scene.tidegate(&["savepoint", "create", "pipeline.toml", name, "--json"])
}

#[test]
fn a_savepoint_of_a_pipeline_that_does_not_run_is_its_newest_checkpoint() {
    let scene = Scene::slow(600);
    create(&scene, "early").expect(2).says(&["nothing to save"]);
    scene.killed_at("sealed:3", &[]);
    let newest = epochs(&scene).last().expect("a checkpoint")["epoch"].as_u64().expect("a number");
    let made = create(&scene, "kept").expect(0);
    let made: serde_json::Value = serde_json::from_str(&made.stdout).expect("an object");
    assert_eq!((made["epoch"].as_u64(), made["running"].as_bool()), (Some(newest), Some(false)));
    create(&scene, "kept").expect(2).says(&["already", "forget"]);
    for name in ["7", "7@1", "Upper", "a b"] {
        create(&scene, name).expect(2).says(&["cannot be called"]);
    }
    assert_eq!(savepoints(&scene), ["kept"]);
    scene.finish();
    scene.expect_rows("out", &numbered(0..600));
    scene.tidegate(&["savepoint", "forget", "pipeline.toml", "kept"]).expect(0).says(&["forgotten"]);
    scene.tidegate(&["savepoint", "forget", "pipeline.toml", "kept"]).expect(2).says(&["no savepoint `kept`"]);
    scene.tidegate(&["checkpoint", "verify", "pipeline.toml"]).expect(0);
}

#[test]
fn a_running_pipeline_cuts_an_epoch_and_the_run_can_go_back_to_it() {
    let scene = Scene::plain(6_000, "rate = 300");
    let running = running(&scene);
    let made: serde_json::Value = serde_json::from_str(&create(&scene, "one").expect(0).stdout).expect("an object");
    assert_eq!(made["running"].as_bool(), Some(true));
    create(&scene, "one").expect(2).says(&["already"]);
    create(&scene, "two").expect(0);
    scene.tidegate(&["savepoint", "forget", "pipeline.toml", "two"]).expect(0);
    scene.tidegate(&["savepoint", "forget", "pipeline.toml", "two"]).expect(2).says(&["no savepoint"]);
    assert_eq!(savepoints(&scene), ["one"]);
    let shown = scene.tidegate(&["checkpoint", "show", "pipeline.toml", "one", "--json"]).expect(0);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("an object");
    assert_eq!(shown["reason"], "savepoint one");
    running.signal(2);
    running.end().expect(0);
    // What was committed since is there already: going back is refused until somebody accepts that.
    scene.run(&["--from", "one"]).expect(3).says(&["ahead"]);
    let mut back = scene.start(&["--from", "one", "--accept", "out=accept-duplicates", "--hold-at", "open"]);
    back.hear("run 2 goes on behind epoch ");
    back.hear("held open");
    back.kill();
}

#[test]
fn an_idle_pipeline_takes_a_savepoint_at_once() {
    let scene = Scene::new();
    scene.write(
        "pipeline.toml",
        "[pipeline]\nname = \"idle\"\nstate = \"state\"\n[checkpoint]\ninterval = \"20ms\"\n[sources.made]\nkind = \
         \"generate\"\nseed = 1\nrate = 1\n[sinks.out]\nplugin = \"builtin:files\"\ndirs = { output = \"out\" }\n",
    );
    let running = running(&scene);
    for name in ["a", "b", "c"] {
        create(&scene, name).expect(0);
    }
    assert_eq!(savepoints(&scene).len(), 3);
    running.signal(15);
    running.end().expect(0);
}

#[test]
fn a_run_that_does_not_answer_is_waited_for_no_longer_than_asked_and_a_killed_one_is_told() {
    let scene = Scene::slow(3_000);
    let mut held = scene.start(&["--hold-at", "sealed:3"]);
    held.hear("held sealed");
    let asked = ["savepoint", "create", "pipeline.toml", "late", "--timeout", "300ms"];
    scene.tidegate(&asked).expect(1).says(&["0.3 s", "not known whether"]);
    held.kill();
    // What the killed process left behind its socket's name hinders nobody.
    create(&scene, "late").expect(0);
    scene.finish();
    scene.expect_rows("out", &numbered(0..3_000));
}

#[test]
fn a_run_killed_while_a_savepoint_is_made_loses_nothing_and_the_answer_is_true() {
    let scene = Scene::plain(3_000, "rate = 100");
    let mut told = Vec::new();
    for (n, wait) in [0u64, 1, 3, 6, 10, 15, 25, 40].into_iter().enumerate() {
        let running = running(&scene);
        let name = format!("s{n}");
        let arguments = ["savepoint", "create", "pipeline.toml", name.as_str()];
        let asking = tidegate_e2e::Running::start(scene.command(&arguments));
        for _ in 0..wait {
            pause();
        }
        running.kill();
        // Either it was made by the run, or by the command itself when the run was gone.
        let ended = asking.end();
        assert_eq!(ended.code(), 0, "{ended}");
        told.push(name);
        scene.tidegate(&["checkpoint", "verify", "pipeline.toml"]).expect(0);
    }
    assert_eq!(savepoints(&scene), told);
    scene.finish();
    scene.expect_rows("out", &numbered(0..3_000));
}

#[test]
fn slow_and_hostile_clients_hurt_nothing() {
    let scene = Scene::plain(3_000, "rate = 100");
    let running = running(&scene);
    let path = scene.path("state/control.sock");
    let mut silent: Vec<UnixStream> = (0..4).filter_map(|_| UnixStream::connect(&path).ok()).collect();
    assert_eq!(silent.len(), 4);
    for bytes in [&b"\n"[..], b"{}\n", b"\xff\xfe\n", &[b'['; 100_000]] {
        let mut client = UnixStream::connect(&path).expect("it listens");
        let _ = client.write_all(bytes);
        let _ = client.set_read_timeout(Some(Duration::from_secs(30)));
        let mut answer = String::new();
        let _ = client.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("refused"), "{answer}");
    }
    create(&scene, "meanwhile").expect(0);
    silent.clear();
    running.signal(2);
    running.end().expect(0);
    scene.finish();
    scene.expect_rows("out", &numbered(0..3_000));
    assert_eq!(savepoints(&scene), ["meanwhile"]);
}

#[test]
fn a_savepoint_made_again_under_its_name_is_gone_back_to_again() {
    let scene = Scene::plain(30, "");
    scene.finish();
    create(&scene, "x").expect(0);
    let back = ["--from", "x", "--accept", "out=accept-duplicates"];
    let newest = || epochs(&scene).last().expect("a checkpoint")["epoch"].as_u64().expect("a number");
    scene.write("in/3.jsonl", tidegate_e2e::lines(&numbered(30..40)));
    scene.finish();
    scene.run(&back).expect(0).says(&["--from x: applied", "from-x-1"]);
    // The same wish again does nothing, also when the savepoint is gone.
    scene.run(&back).expect(0).says(&["used before"]);
    scene.tidegate(&["savepoint", "forget", "pipeline.toml", "x"]).expect(0);
    scene.run(&back).expect(0).says(&["used before"]);
    let second = newest();
    create(&scene, "x").expect(0);
    scene.write("in/4.jsonl", tidegate_e2e::lines(&numbered(40..50)));
    scene.finish();
    // An id that was used for another epoch is refused, and nothing runs.
    let other = [&back[..], &["--decision-id", "from-x-1"]].concat();
    scene.run(&other).expect(3).says(&["from-x-1", "used before", "another --decision-id"]);
    scene
        .run(&["--from", "x", "--accept", "out=accept-duplicates", "--decision-id", "again"])
        .expect(0)
        .says(&["applied"]);
    assert!(newest() > second);
}

#[test]
fn a_run_waits_for_a_command_that_holds_the_log_for_a_moment() {
    use std::os::fd::AsRawFd as _;
    let scene = Scene::plain(30, "");
    scene.finish();
    let lock = std::fs::File::open(scene.path("state/lock")).expect("the lock is there");
    // SAFETY: `flock` takes two integers and touches no memory of ours.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    let mut running = scene.start(&[]);
    running.hear("pipeline `flights`");
    (0..20).for_each(|_| pause());
    assert!(running.lives(), "it waits");
    drop(lock);
    running.end().expect(0);
}
