//! Sources, seen from outside: what real files look like.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tidegate_e2e::{Scene, lines, numbered};

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

#[test]
fn raw_lines_pass_through_byte_for_byte() {
    let scene = Scene::new();
    let odd = ["", " lead", "tab\there", "ünïcode 🛫", "{broken", "\"quoted\"", "nul\0byte", "90071992547409931"];
    scene.write("in/odd.txt", odd.map(|line| format!("{line}\n")).concat());
    scene.pipeline("", "");
    scene.edit("json-lines", "raw");
    scene.finish();
    let expected: Vec<String> = odd.iter().map(|line| (*line).to_owned()).collect();
    scene.expect_rows("out", &expected);
}

#[test]
fn json_lines_keep_big_numbers_duplicate_keys_and_spelling() {
    let scene = Scene::new();
    let rows: Vec<String> = [
        r#"{"n":9007199254740993,"f":1.10,"e":1E+2}"#,
        r#"{"a":1,"a":2}"#,
        r#"{ "spaced" : [ 1 , { "nested" : null } ] }"#,
        r#"{"u":"\u00fc and ü"}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    scene.write("in/rows.jsonl", lines(&rows));
    scene.pipeline("", "");
    scene.finish();
    scene.expect_rows("out", &rows);
}

#[test]
fn gzip_with_several_members_and_a_last_line_without_newline_are_read_whole() {
    let scene = Scene::new();
    let rows = numbered(0..100);
    let text = lines(&rows[..50]);
    scene.write("in/a.jsonl.gz", [gzip(&text[..500]), gzip(&text[500..])].concat());
    scene.write("in/b.jsonl", lines(&rows[50..]).trim_end());
    scene.pipeline("", "");
    scene.finish();
    scene.expect_rows("out", &rows);
}

#[test]
fn a_truncated_gzip_is_an_error_and_not_an_end() {
    let scene = Scene::new();
    let whole = gzip(&lines(&numbered(0..5000)));
    scene.write("in/a.jsonl.gz", &whole[..whole.len() / 2]);
    scene.pipeline("", "");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["a.jsonl.gz"]);
    // The rest arrives, and every row is there once.
    scene.write("in/a.jsonl.gz", whole);
    scene.finish();
    scene.expect_rows("out", &numbered(0..5000));
}

#[test]
fn csv_becomes_json_lines_with_every_row_once() {
    let scene = Scene::new();
    scene.write("in/a.csv", "n,note\r\n1,plain\r\n2,\"quoted, with comma\"\r\n3,\"two\nlines\"\r\n");
    scene.pipeline("[sources.flights.csv]\nheader = true\n", "");
    scene.edit("json-lines", "csv");
    scene.finish();
    let rows = scene.rows("out");
    assert_eq!(rows.len(), 3, "{rows:?}");
    let notes: Vec<String> = rows
        .iter()
        .map(|row| {
            let value: serde_json::Value = serde_json::from_str(row).expect("a row is JSON");
            value["note"].as_str().expect("a note is a string").to_owned()
        })
        .collect();
    assert!(notes.contains(&"quoted, with comma".to_owned()) && notes.contains(&"two\nlines".to_owned()), "{notes:?}");
}

#[test]
fn a_generated_stream_is_the_same_every_time_and_survives_kills() {
    let text = |state: &str, output: &str| {
        format!(
            "[pipeline]\nname = \"generated\"\nstate = \"{state}\"\n\n[checkpoint]\ninterval = \"20ms\"\n\n\
             [sources.gen]\nkind = \"generate\"\nseed = 7\nrows = 3000\npartitions = 3\nrate = 2000\n\n\
             [sinks.out]\nplugin = \"builtin:files\"\nsubtasks = 2\nroute = {{ key = \"key\" }}\n\n\
             [sinks.out.dirs]\noutput = \"{output}\"\n"
        )
    };
    let scene = Scene::new();
    scene.write("pipeline.toml", text("state-a", "out-a"));
    scene.edit("\nroute = { key = \"key\" }", "");
    scene.finish();
    scene.write("pipeline.toml", text("state-b", "out-b"));
    scene.edit("\nroute = { key = \"key\" }", "");
    scene.killed_at("sent:2", &[]);
    scene.killed_at("open:2", &[]);
    scene.finish();
    assert_eq!(scene.rows("out-a").len(), 3000);
    assert_eq!(scene.rows("out-a"), scene.rows("out-b"));
}
