//! How many files, in which folders, and which participant writes them.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_e2e::{Scene, lines};

use super::schemas::from_stdin;
use super::{expect_all, one_file, pipeline, published, rows_in, validate};

/// Rows of about a hundred bytes that do not compress to nothing.
fn wide(rows: u64) -> Vec<String> {
    let mut seed = 7u64;
    let mut word = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:016x}", seed)
    };
    (0..rows).map(|n| format!(r#"{{"n":{n},"text":"{}{}{}{}"}}"#, word(), word(), word(), word())).collect()
}

#[test]
fn a_file_that_is_large_enough_is_ended_and_another_one_begun() {
    let rows = wide(6000);
    for (source, sink, files) in [
        ("", "", ""),
        ("schema = \"n BIGINT, text TEXT\"", "", ""),
        ("", "format = \"parquet\"", ""),
        ("", "format = \"arrow-stream\"", ""),
        ("schema = \"n BIGINT, text TEXT\"", "", "compression = \"gzip\"\n"),
    ] {
        let scene =
            one_file(&lines(&rows), source, sink, &format!("[sinks.out.files]\n{files}roll-size = \"64KiB\"\n"));
        // One epoch.
        scene.edit("20ms", "60s");
        scene.finish();
        expect_all(&scene, "out", &rows);
        let sizes: Vec<_> = published(&scene, "out")
            .iter()
            .map(|path| path.metadata().expect("a published file is there").len())
            .collect();
        assert!(sizes.len() >= 4, "{source} {sink} {files}: {sizes:?}");
        assert!(sizes.iter().all(|size| *size < 2 * 65536), "{source} {sink} {files}: {sizes:?}");
    }
}

#[test]
fn many_folders_with_few_open_files_hold_every_row_and_no_crumbs() {
    let rows: Vec<_> = (0..6000).map(|n| format!(r#"{{"n":{n},"key":"key {:03}"}}"#, n * 7 % 300)).collect();
    let scene = one_file(
        &lines(&rows),
        "",
        "format = \"parquet\"",
        "[sinks.out.files]\nfolder = \"k={key}/\"\nmax-open-files = 8\n",
    );
    scene.edit("20ms", "60s");
    scene.finish();
    expect_all(&scene, "out", &rows);
    let files = published(&scene, "out");
    let folders: BTreeSet<_> = files.iter().filter_map(|path| path.parent()).collect();
    assert_eq!(folders.len(), 300);
    assert!(files.len() <= 2 * 2 * 300, "{} files of two participants", files.len());
}

#[test]
fn a_batch_of_more_folders_than_a_part_may_have_files_is_read_in_smaller_ones() {
    let rows: Vec<_> = (0..5000).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    let scene = one_file(&lines(&rows), "", "format = \"json-lines\"", "[sinks.out.files]\nfolder = \"n={n}/\"\n");
    scene.edit("20ms", "60s");
    scene.edit("subtasks = 2", "subtasks = 1");
    scene.run(&[]).expect(0).says(&["more than 4096 files", "Reading in smaller pieces"]);
    assert_eq!(published(&scene, "out").len(), 5000);
    expect_all(&scene, "out", &rows);
}

#[test]
fn rows_that_come_once_are_refused_in_words_where_they_need_too_many_files() {
    let rows: Vec<_> = (0..5000).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    let sink = "format = \"json-lines\"";
    let scene = one_file("", "schema = \"n BIGINT\"", sink, "[sinks.out.files]\nfolder = \"n={n}/\"\n");
    scene.edit("20ms", "60s");
    scene.edit("subtasks = 2", "subtasks = 1");
    scene.edit("kind = \"files\"\npaths = [\"in/*\"]", "kind = \"stdin\"");
    scene.edit("state = \"state\"", "state = \"state\"\nguarantee = \"at-most-once\"");
    let ended = from_stdin(&scene, &lines(&rows));
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["sink `out`", "more than 4096 files", "n={n}/", "fewer values"]);
    assert!(published(&scene, "out").is_empty());
}

#[test]
fn folders_never_lead_out_of_the_output() {
    let odd = ["../../up", "/etc", "..", ".", "a\\u0000b", "_tidegate", ".hidden", "", "a/b", "ü 🛫", "%2e%2e", "a=b"];
    let rows: Vec<_> = odd.iter().enumerate().map(|(n, text)| format!(r#"{{"n":{n},"k":"{text}"}}"#)).collect();
    for folder in ["{k}", "k={k}/x"] {
        let scene =
            one_file(&lines(&rows), "", "format = \"parquet\"", &format!("[sinks.out.files]\nfolder = \"{folder}\"\n"));
        scene.finish();
        expect_all(&scene, "out", &rows);
        let outside: Vec<_> = scene
            .files("")
            .into_iter()
            .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
            .collect();
        assert_eq!(outside.len(), published(&scene, "out").len());
    }
}

#[test]
fn a_row_meets_the_same_participant_as_text_and_as_columns() {
    let mut rows: Vec<_> = (0..40).map(|n| format!(r#"{{"n":{n},"key":"key {n} \"ü\" \t"}}"#)).collect();
    rows.extend(["null", "\"\"", "\"null\"", "\"1\""].map(|key| format!(r#"{{"n":99,"key":{key}}}"#)));
    for key in ["key", "n"] {
        let owners = |source: &str| {
            let scene = Scene::new();
            scene.write("in/a.jsonl", lines(&rows));
            pipeline(&scene, source, "", "");
            scene.edit("subtasks = 2", &format!("subtasks = 4\nroute = {{ key = \"{key}\" }}"));
            validate(&scene).expect(0);
            scene.finish();
            let mut owners = BTreeMap::new();
            for path in published(&scene, "out") {
                let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
                let participant = name.split('-').nth(4).expect("a participant").to_owned();
                owners.extend(rows_in(&path).into_iter().map(|row| (row, participant.clone())));
            }
            owners
        };
        let as_text = owners("");
        assert_eq!(as_text.len(), rows.len());
        assert_eq!(as_text, owners("schema = \"n BIGINT, key TEXT\""), "by `{key}`");
        let participants = as_text.values().collect::<BTreeSet<_>>().len();
        assert_eq!(participants, 4, "by `{key}`");
    }
}

#[test]
fn a_route_by_a_column_that_is_not_there_is_refused() {
    let scene = Scene::new();
    scene.write("in/a.jsonl", "{\"n\":1,\"key\":\"a\"}\n");
    for source in ["schema = \"n BIGINT, key TEXT\"", "schema = \"infer\""] {
        pipeline(&scene, source, "", "");
        scene.edit("subtasks = 2", "subtasks = 4\nroute = { key = \"kye\" }");
        let words = ["route.key", "the nearest is key"];
        assert_ne!(validate(&scene).says(&words).code(), 0);
        scene.run(&[]).expect(2).says(&words);
    }
}
