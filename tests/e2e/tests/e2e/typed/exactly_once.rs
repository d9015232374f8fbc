//! Whole files, killed and restored.

use std::io::Write as _;

use tidegate_e2e::{Scene, lines, numbered};

use super::{DEAD_LETTER, all_rows, expect_all, pipeline, published};

const MOMENTS: [&str; 7] = ["starting", "restoring", "open:2", "preparing:2", "sealed:2", "sent:2", "finishing"];

const SCHEMA: &str = "schema = \"n BIGINT NOT NULL, carrier TEXT, amount DECIMAL(12,2), at TIMESTAMP WITH TIME ZONE, \
                      tags TEXT[], more STRUCT<x DOUBLE, y BOOLEAN>\"";

/// A row as somebody wrote it, and as it is written from columns.
fn row(n: usize) -> (String, String) {
    let carrier = match n % 5 {
        0 => "null".to_owned(),
        other => format!("\"C/{other}\""),
    };
    let (hour, minute) = (n % 20, n % 60);
    let written = format!(
        r#"{{ "carrier" : {carrier}, "at":"2024-05-06T{:02}:{minute:02}:09.5+02:00","n":{n}, "more":{{"y":{},"x":{n}.50}},"tags":["a",null,"t{n}"], "amount": {n}.5 }}"#,
        hour + 2,
        n.is_multiple_of(2),
    );
    let read = format!(
        r#"{{"n":{n},"carrier":{},"amount":{n}.50,"at":"2024-05-06T{hour:02}:{minute:02}:09.500Z","tags":["a",null,"t{n}"],"more":{{"x":{n}.5,"y":{}}}}}"#,
        carrier,
        n.is_multiple_of(2),
    );
    (written, read)
}

/// Rows that take three seconds to be read, so that there are epochs to be killed in.
fn slow(rows: usize, row: impl Fn(usize) -> String, source: &str, sink: &str, more: &str) -> Scene {
    let scene = Scene::new();
    for part in 0..3 {
        let these: Vec<_> = (rows * part / 3..rows * (part + 1) / 3).map(&row).collect();
        scene.write(&format!("in/{part}.jsonl"), lines(&these));
    }
    pipeline(&scene, &format!("rate = {}\n{source}", rows / 3), sink, more);
    scene
}

#[test]
fn parquet_in_folders_killed_at_each_moment_holds_every_row_once() {
    let expected: Vec<_> = (0..300).map(|n| row(n).1).collect();
    for moment in MOMENTS {
        let scene = slow(
            300,
            |n| row(n).0,
            SCHEMA,
            "format = \"parquet\"",
            "[sinks.out.files]\ncompression = \"zstd\"\nfolder = \"carrier={carrier}/\"",
        );
        scene.killed_at(moment, &[]);
        scene.finish();
        expect_all(&scene, "out", &expected);
        let mut folders = Vec::new();
        for path in published(&scene, "out") {
            let folder = path.parent().and_then(|path| path.file_name()).expect("it is in a folder");
            folders.push(folder.to_string_lossy().into_owned());
        }
        folders.sort();
        folders.dedup();
        let expected = ["C%2F1", "C%2F2", "C%2F3", "C%2F4", "__HIVE_DEFAULT_PARTITION__"];
        assert_eq!(folders, expected.map(|value| format!("carrier={value}")), "killed at {moment}");
    }
}

#[test]
fn lines_without_a_schema_in_gzip_files_are_the_same_bytes() {
    // Blanks and the order of fields stay as they are: nothing looks into these rows.
    let row = |n: usize| format!(r#"{{"n" : {n}, "z":1.50, "a":[ {n} ] }}"#);
    for moment in ["preparing:2", "sealed:2", "sent:2", "finishing"] {
        let scene = slow(300, row, "", "", "[sinks.out.files]\ncompression = \"gzip\"");
        scene.killed_at(moment, &[]);
        scene.finish();
        let files = published(&scene, "out");
        assert!(files.iter().all(|path| path.to_string_lossy().ends_with(".jsonl.gz")), "{files:?}");
        expect_all(&scene, "out", &(0..300).map(row).collect::<Vec<_>>());
    }
}

#[test]
fn csv_and_arrow_files_killed_and_finished_hold_every_row_once() {
    let csv: Vec<_> = (0..300).map(|n| format!("{n},{},row number {n}", ["UA", "B6", "AA", "DL"][n % 4])).collect();
    let json = numbered(0..300);
    for moment in ["preparing:2", "sealed:2", "sent:2"] {
        for (format, expected) in [("csv", &csv), ("arrow-stream", &json)] {
            let sink = format!("format = \"{format}\"");
            let scene = slow(300, |n| numbered(n..n + 1).remove(0), "", &sink, "[sinks.out.files]");
            scene.killed_at(moment, &[]);
            scene.finish();
            expect_all(&scene, "out", expected);
        }
    }
}

#[test]
fn rows_letters_and_filtered_rows_are_each_counted_once_whatever_is_killed() {
    // Of seven rows one is filtered out, one cannot be transformed, and one is of another kind.
    let written = |n: usize| match n % 7 {
        2 => format!(r#"{{"n":{n},"text":"soon"}}"#),
        4 => format!(r#"{{"n":"{n}","text":"1"}}"#),
        _ => format!(r#"{{"n":{n},"text":"{n}"}}"#),
    };
    let expected: Vec<_> =
        (0..350).filter(|n| ![2, 4, 6].contains(&(n % 7))).map(|n| format!(r#"{{"n":{n},"text":{n}}}"#)).collect();
    for moment in ["preparing:2", "sealed:2", "sent:2", "finishing"] {
        let scene = slow(
            350,
            written,
            "schema = \"n BIGINT, text TEXT\"\non-bad-row = \"dead-letter\"",
            "format = \"parquet\"",
            &format!("[sinks.out.transform]\nfilter = \"n % 7 <> 6\"\ncast = {{ text = \"BIGINT\" }}\n\n{DEAD_LETTER}"),
        );
        scene.killed_at(moment, &[]);
        scene.finish();
        expect_all(&scene, "out", &expected);
        let mut letters: Vec<u64> = scene
            .rows("dead")
            .iter()
            .map(|letter| {
                let letter: serde_json::Value = serde_json::from_str(letter).expect("a letter is JSON");
                let row = letter["row"].as_str().expect("it has its row");
                let row: serde_json::Value = serde_json::from_str(row).expect("the row is JSON");
                let number = row["n"].as_u64().or_else(|| row["n"].as_str()?.parse().ok());
                number.expect("the row has its number")
            })
            .collect();
        letters.sort_unstable();
        assert_eq!(letters, (0..350).filter(|n| [2, 4].contains(&(n % 7))).collect::<Vec<_>>(), "killed at {moment}");
    }
}

#[test]
fn csv_records_over_several_lines_are_read_on_in_the_middle_of_plain_and_packed_files() {
    let record = |n: usize| format!("{n},\"a \"\"quote\"\", and\r\na line {n}\",{n}.25\r\n");
    let expected: Vec<_> =
        (0..300).map(|n| format!(r#"{{"n":{n},"text":"a \"quote\", and\r\na line {n}","d":{n}.25}}"#)).collect();
    let file = |numbers: std::ops::Range<usize>| format!("n,text,d\r\n{}", numbers.map(record).collect::<String>());
    for (source, moment) in [("", "sent:2"), ("schema = \"n BIGINT, text TEXT, d DECIMAL(10,2)\"", "sealed:3")] {
        let scene = Scene::new();
        scene.write("in/0.csv", file(0..150));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(file(150..300).as_bytes()).expect("memory can be written");
        scene.write("in/1.csv.gz", packed.finish().expect("memory can be written"));
        pipeline(&scene, &format!("rate = 100\n{source}"), "format = \"parquet\"", "");
        scene.edit("format = \"json-lines\"", "format = \"csv\"");
        scene.killed_at(moment, &[]);
        scene.killed_at("preparing:2", &[]);
        scene.finish();
        expect_all(&scene, "out", &expected);
    }
}

#[test]
fn f29_lost_commit_answers_neither_lose_nor_repeat_a_file() {
    let scene = slow(300, |n| row(n).0, SCHEMA, "format = \"parquet\"", "");
    scene.run(&["--lose-commit-answers", "2"]).expect(0);
    expect_all(&scene, "out", &(0..300).map(|n| row(n).1).collect::<Vec<_>>());
}

#[test]
fn p2_no_file_is_shown_before_its_epoch_is_sealed_and_none_changes_afterwards() {
    let scene =
        slow(300, |n| row(n).0, SCHEMA, "format = \"parquet\"", "[sinks.out.files]\nfolder = \"carrier={carrier}/\"");
    for moment in ["open", "preparing"] {
        scene.killed_at(moment, &[]);
        assert!(all_rows(&scene, "out").is_empty(), "killed at {moment}");
    }
    scene.killed_at("sent:3", &[]);
    let seen: Vec<_> = published(&scene, "out").into_iter().map(|path| (std::fs::read(&path).ok(), path)).collect();
    assert!(!seen.is_empty(), "two epochs are committed");
    scene.finish();
    for (bytes, path) in seen {
        assert!(std::fs::read(&path).ok() == bytes, "{} changed", path.display());
    }
    expect_all(&scene, "out", &(0..300).map(|n| row(n).1).collect::<Vec<_>>());
}
