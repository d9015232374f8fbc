//! Secrets are named in the pipeline file and never stored or shown.

use tidegate_e2e::{Ended, Running, Scene, numbered, talkative};

const CANARY: &str = "canary-5f1d8c7be2a94f60";

/// Every file below the scene whose bytes contain the canary.
fn found_in(scene: &Scene) -> Vec<String> {
    let holds = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path).expect("a file can be read");
        bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
    };
    let files = [scene.files("state"), scene.files("out")].concat();
    assert!(!files.is_empty(), "neither state nor output was found");
    files.iter().filter(|path| holds(path)).map(|path| path.display().to_string()).collect()
}

/// A pipeline into the plugin that tells its secret wherever it can.
fn talkative_scene(secret: &str, leak: &str) -> Scene {
    let scene = Scene::slow(300);
    std::fs::copy(talkative(), scene.path("talkative.wasm")).expect("the plugin can be copied");
    scene.write("token.txt", CANARY);
    let config = format!("[sinks.out.secrets]\ntoken = {secret}\n\n[sinks.out.config]\nleak = \"{leak}\"\n");
    scene.pipeline("rate = 100", &config);
    scene.edit("builtin:files", "talkative.wasm");
    scene.edit("name = \"flights\"", "name = \"flights\"\nguarantee = \"at-least-once\"");
    scene
}

const FROM_ENVIRONMENT: &str = "{ env = \"TIDEGATE_TEST_TOKEN\" }";

fn with_secret(scene: &Scene, arguments: &[&str]) -> Running {
    let mut command = scene.command(arguments);
    command.env("TIDEGATE_TEST_TOKEN", CANARY);
    Running::start(command)
}

/// Runs a command of the binary with the secret in its environment; what it says must not contain it.
#[track_caller]
fn silent(scene: &Scene, arguments: &[&str]) -> Ended {
    let ended = with_secret(scene, arguments).end();
    assert!(!ended.said().contains(CANARY), "the secret was said by {arguments:?}: {ended}");
    ended
}

#[test]
fn a_canary_secret_is_in_no_record_no_checkpoint_no_committable_and_no_message() {
    for secret in [FROM_ENVIRONMENT, "{ file = \"token.txt\" }"] {
        let scene = talkative_scene(secret, "nothing");
        silent(&scene, &["validate", "pipeline.toml"]).expect(0);
        let mut held = with_secret(&scene, &["run", "pipeline.toml", "--hold-at", "sealed:2"]);
        held.hear("held sealed");
        held.kill();
        assert_eq!(found_in(&scene), Vec::<String>::new(), "killed between seal and commit");
        silent(&scene, &["run", "pipeline.toml"]).expect(0).says(&["the token is"]);
        assert_eq!(found_in(&scene), Vec::<String>::new());
        scene.expect_rows("out", &numbered(0..300));
        for look in [&["checkpoint", "list"][..], &["checkpoint", "show"], &["checkpoint", "verify"], &["ledger"]] {
            silent(&scene, &[look, &["pipeline.toml", "--json"]].concat()).expect(0);
        }
    }
}

#[test]
fn a_canary_secret_in_an_error_or_a_committable_goes_no_further() {
    for leak in ["error", "committable"] {
        let scene = talkative_scene(FROM_ENVIRONMENT, leak);
        let ended = silent(&scene, &["run", "pipeline.toml"]);
        assert_ne!(ended.code(), 0, "{ended}");
        assert_eq!(found_in(&scene), Vec::<String>::new(), "leaked in {leak}");
    }
}

#[test]
fn a_secret_that_is_not_there_is_named_by_its_reference() {
    let scene = talkative_scene("{ env = \"TIDEGATE_TEST_NO_SUCH_TOKEN\" }", "nothing");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["TIDEGATE_TEST_NO_SUCH_TOKEN"]);
}

#[test]
fn a_secret_that_the_plugin_does_not_ask_for_is_refused() {
    let scene = Scene::plain(30, "");
    scene.pipeline("", "[sinks.out.secrets]\ntoken = { env = \"TIDEGATE_TEST_TOKEN\" }\n");
    silent(&scene, &["run", "pipeline.toml"]).expect(2).says(&["token", "does not ask"]);
}

#[test]
fn a_secret_written_into_the_file_is_refused_and_not_repeated() {
    let scene = Scene::plain(30, "");
    scene.pipeline("", &format!("[sinks.out.secrets]\ntoken = \"{CANARY}\"\n"));
    let ended = scene.run(&[]).expect(2).says(&["token", "env", "file"]);
    assert!(!ended.said().contains(CANARY), "the secret was repeated: {ended}");
}
