//! Secrets are named in the pipeline file and never stored or shown.

use std::process::Command;

use tidegate_e2e::{Running, Scene, tidegate};

const CANARY: &str = "canary-5f1d8c7be2a94f60";

/// Every file below the scene whose bytes contain the canary.
fn found_in(scene: &Scene) -> Vec<String> {
    let holds = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).expect("a file can be read");
        bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
    };
    let files = [scene.files("state"), scene.files("out")].concat();
    assert!(files.len() > 3, "state and output were not found");
    files.iter().filter(|path| holds(path)).map(|path| path.display().to_string()).collect()
}

/// Runs a command of the binary with the secret in its environment; what it says must not contain it.
fn with_secret(scene: &Scene, arguments: &[&str]) -> i32 {
    let mut command = Command::new(tidegate());
    command.args(arguments).current_dir(scene.path(".")).env("TIDEGATE_TEST_TOKEN", CANARY);
    let ended = Running::start(command).end();
    assert!(!ended.said().contains(CANARY), "the secret was said by {arguments:?}: {ended}");
    ended.code()
}

#[test]
fn a_canary_secret_is_in_no_record_no_checkpoint_no_committable_and_no_message() {
    let scene = Scene::plain(300, "");
    scene.write("token.txt", CANARY);
    let secrets = "[sinks.out.secrets]\ntoken = { env = \"TIDEGATE_TEST_TOKEN\" }\nkey = { file = \"token.txt\" }\n";
    scene.pipeline("rate = 3000", secrets);
    // Debug logging may say the most.
    assert_eq!(with_secret(&scene, &["validate", "pipeline.toml"]), 0);
    let mut command = Command::new(tidegate());
    command.args(["run", "pipeline.toml", "--hold-at", "sealed:2"]).current_dir(scene.path("."));
    let mut held = Running::start({
        command.env("TIDEGATE_TEST_TOKEN", CANARY);
        command
    });
    held.hear("held sealed");
    held.kill();
    assert_eq!(found_in(&scene), Vec::<String>::new(), "killed between seal and commit");
    assert_eq!(with_secret(&scene, &["run", "pipeline.toml"]), 0);
    assert_eq!(found_in(&scene), Vec::<String>::new());
    for look in [&["checkpoint", "list"][..], &["checkpoint", "show"], &["checkpoint", "verify"], &["ledger"]] {
        assert_eq!(with_secret(&scene, &[look, &["pipeline.toml", "--json"]].concat()), 0);
    }
}

#[test]
fn a_secret_that_is_not_there_is_named_by_its_reference() {
    let scene = Scene::plain(30, "");
    scene.pipeline("", "[sinks.out.secrets]\ntoken = { env = \"TIDEGATE_TEST_NO_SUCH_TOKEN\" }\n");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["TIDEGATE_TEST_NO_SUCH_TOKEN"]);
}

#[test]
fn a_secret_written_into_the_file_is_refused_and_not_repeated() {
    let scene = Scene::plain(30, "");
    scene.pipeline("", &format!("[sinks.out.secrets]\ntoken = \"{CANARY}\"\n"));
    let ended = scene.run(&[]).expect(2).says(&["token", "env", "file"]);
    assert!(!ended.said().contains(CANARY), "the secret was repeated: {ended}");
}
