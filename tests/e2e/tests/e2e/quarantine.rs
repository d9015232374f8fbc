//! A plugin that breaks off in every commit: told, listed, lifted by a person; nothing that is sealed is lost.

use serde_json::Value;
use tidegate_e2e::{Scene, numbered, talkative, until};

fn scene() -> Scene {
    let scene = Scene::slow(300);
    std::fs::copy(talkative(), scene.path("talkative.wasm")).expect("the plugin can be copied");
    scene.write("token.txt", "a token");
    scene.pipeline("rate = 100", "[sinks.out.secrets]\ntoken = { file = \"token.txt\" }\n");
    scene.edit("builtin:files", "talkative.wasm");
    scene.edit("name = \"flights\"", "name = \"flights\"\nguarantee = \"at-least-once\"");
    std::fs::create_dir_all(scene.path("out/_break")).expect("a folder can be made");
    scene
}

fn quarantined(scene: &Scene) -> Vec<Value> {
    let listed = scene.tidegate(&["plugin", "quarantine", "pipeline.toml", "--json"]).expect(0);
    let report: Value = serde_json::from_str(&listed.stdout).expect("an object");
    report["plugins"].as_array().expect("a list").clone()
}

#[test]
fn h09_a_quarantine_is_told_and_listed_and_when_it_is_lifted_everything_is_committed() {
    let scene = scene();
    scene.tidegate(&["plugin", "quarantine", "pipeline.toml"]).expect(0).says(&["not running"]);
    let mut running = scene.start(&[]);
    running.hear("warning: sink `out`: the plugin talkative");
    let listed = quarantined(&scene);
    let [plugin] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((plugin["sinks"][0].as_str(), plugin["faults"].as_u64()), (Some("out"), Some(5)), "{plugin}");
    assert!(plugin["why"].as_str().is_some_and(|why| why.starts_with("commit trapped")), "{plugin}");
    scene.tidegate(&["plugin", "quarantine", "pipeline.toml"]).expect(0).says(&["talkative", "1 plugin in quarantine"]);
    scene.tidegate(&["plugin", "quarantine", "pipeline.toml", "--lift", "--sink", "uot"]).expect(2).says(&["`out`"]);
    assert_eq!(scene.rows("out"), Vec::<String>::new(), "what broke off passes for nothing");

    std::fs::remove_dir(scene.path("out/_break")).expect("it is there");
    let lift = ["plugin", "quarantine", "pipeline.toml", "--lift", "--sink", "out"];
    scene.tidegate(&lift).expect(0).says(&["lifted the quarantine of 1 plugin"]);
    running.hear("warning: sink `out`: the quarantine of the plugin talkative");
    until("nothing is in quarantine", || quarantined(&scene).is_empty());
    running.end().expect(0);
    scene.expect_rows("out", &numbered(0..300));
}
