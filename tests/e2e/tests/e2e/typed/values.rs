//! Values stay equal on their way through every format.

use super::{DEAD_LETTER, all_rows, expect_all, one_file, pipeline, texts};

const SCHEMA: &str = "schema = \"i BIGINT, u BIGINT UNSIGNED, d DECIMAL(38,10), f DOUBLE, b BOOLEAN, t TEXT, \
                      l BIGINT[], s STRUCT<x INT, y TEXT>, z TIMESTAMP WITH TIME ZONE, w TIMESTAMP(9), day DATE, \
                      ls STRUCT<k TEXT, v INT[]>[]\"";

/// Rows as somebody wrote them.
const WRITTEN: &str = r#"{"i":9223372036854775807,"u":18446744073709551615,"d":1234567890123456789012345678.0123456789,"f":0.1,"b":true,"t":"plain","l":[1,null,-9223372036854775808],"s":{"x":1,"y":"a"},"z":"2024-01-02T03:04:05.123456+02:00","w":"2024-01-02 03:04:05.123456789","day":"2024-02-29","ls":[{"k":"a","v":[1,2]},{"k":null,"v":[]},null]}
{"i":-9223372036854775808,"u":0,"d":-0.0000000001,"f":-1e300,"b":false,"t":"a \"quote\", a comma\na line\r\n\ttab \\ \u00fcn\u00efcode 漢字 \ud83d\ude00","l":[],"s":{"x":null,"y":null},"z":"1969-12-31T23:59:59.999999Z","w":"1677-09-21T00:12:44","day":"0001-01-01","ls":[]}
{"i":null,"u":null,"d":null,"f":null,"b":null,"t":null,"l":null,"s":null,"z":null,"w":null,"day":null,"ls":null}
{ }
{"t":"","f":5e-324,"d":1.50,"i":-1}
{"f":1.7976931348623157e308,"t":" blanks at both ends ","d":12,"i":9007199254740993,"s":{"y":"\"q\",\n"}}
{"z":"2024-06-30T23:30:00-11:30","f":-0.5,"t":"null","u":9223372036854775808}
"#;

/// The same as they are written from columns.
const READ: [&str; 7] = [
    r#"{"i":9223372036854775807,"u":18446744073709551615,"d":1234567890123456789012345678.0123456789,"f":0.1,"b":true,"t":"plain","l":[1,null,-9223372036854775808],"s":{"x":1,"y":"a"},"z":"2024-01-02T01:04:05.123456Z","w":"2024-01-02T03:04:05.123456789","day":"2024-02-29","ls":[{"k":"a","v":[1,2]},{"k":null,"v":[]},null]}"#,
    r#"{"i":-9223372036854775808,"u":0,"d":-0.0000000001,"f":-1e300,"b":false,"t":"a \"quote\", a comma\na line\r\n\ttab \\ ünïcode 漢字 😀","l":[],"s":{"x":null,"y":null},"z":"1969-12-31T23:59:59.999999Z","w":"1677-09-21T00:12:44","day":"0001-01-01","ls":[]}"#,
    r#"{"i":null,"u":null,"d":null,"f":null,"b":null,"t":null,"l":null,"s":null,"z":null,"w":null,"day":null,"ls":null}"#,
    r#"{"i":null,"u":null,"d":null,"f":null,"b":null,"t":null,"l":null,"s":null,"z":null,"w":null,"day":null,"ls":null}"#,
    r#"{"i":-1,"u":null,"d":1.5000000000,"f":5e-324,"b":null,"t":"","l":null,"s":null,"z":null,"w":null,"day":null,"ls":null}"#,
    r#"{"i":9007199254740993,"u":null,"d":12.0000000000,"f":1.7976931348623157e308,"b":null,"t":" blanks at both ends ","l":null,"s":{"x":null,"y":"\"q\",\n"},"z":null,"w":null,"day":null,"ls":null}"#,
    r#"{"i":null,"u":9223372036854775808,"d":null,"f":-0.5,"b":null,"t":"null","l":null,"s":null,"z":"2024-07-01T11:00:00Z","w":null,"day":null,"ls":null}"#,
];

#[test]
fn values_are_equal_behind_lines_and_files_of_every_format() {
    for sink in ["", "[sinks.out.files]", "format = \"parquet\"", "format = \"arrow-stream\"\nfiles = {}"] {
        let (key, table) = if sink.starts_with('[') { ("", sink) } else { (sink, "") };
        let scene = one_file(WRITTEN, SCHEMA, key, table);
        scene.finish();
        expect_all(&scene, "out", &texts(&READ));
    }
}

#[test]
fn values_written_as_csv_and_read_again_are_equal() {
    for files in ["", "[sinks.out.files]\ncompression = \"gzip\""] {
        let scene = one_file(WRITTEN, SCHEMA, "format = \"csv\"", files);
        scene.finish();
        // Another pipeline reads what this one wrote.
        let header = if files.is_empty() {
            "\n[sources.flights.csv]\nheader = false\n\
             columns = [\"i\", \"u\", \"d\", \"f\", \"b\", \"t\", \"l\", \"s\", \"z\", \"w\", \"day\", \"ls\"]"
        } else {
            ""
        };
        pipeline(&scene, &format!("{SCHEMA}{header}"), "", "");
        for (from, to) in [
            ("\"flights\"", "\"again\""),
            ("\"state\"", "\"state-again\""),
            ("in/*", "out/0*"),
            ("format = \"json-lines\"", "format = \"csv\""),
            ("output = \"out\"", "output = \"again\""),
        ] {
            scene.edit(from, to);
        }
        scene.finish();
        expect_all(&scene, "again", &texts(&READ));
    }
}

#[test]
fn a_value_that_its_column_cannot_hold_is_a_letter_and_never_another_value() {
    let bad = [
        r#"{"i":9223372036854775808}"#,
        r#"{"u":-1}"#,
        r#"{"d":0.12345678901}"#,
        r#"{"d":12345678901234567890123456789}"#,
        r#"{"f":1e400}"#,
        r#"{"b":1}"#,
        r#"{"t":1}"#,
        r#"{"i":"1"}"#,
        r#"{"i":1.5}"#,
        r#"{"z":"2024-01-02T03:04:05"}"#,
        r#"{"w":"2024-01-02T03:04:05Z"}"#,
        r#"{"w":"1600-01-02T03:04:05"}"#,
        r#"{"day":"2023-02-29"}"#,
        r#"{"l":[1,"x"]}"#,
        r#"{"s":{"x":1,"q":2}}"#,
        r#"{"ls":[{"v":[1.5]}]}"#,
        r#"{"i":1,"i":2}"#,
        r#"{"other":1}"#,
        "[]",
        "{",
    ];
    let scene = one_file(
        &format!("{{\"i\":1}}\n{}\n{{\"i\":2}}\n", bad.join("\n")),
        &format!("{SCHEMA}\non-bad-row = \"dead-letter\""),
        "format = \"parquet\"",
        DEAD_LETTER,
    );
    scene.finish().says(&["2 rows committed at sink `out`", &format!("{} rows dead-lettered", bad.len())]);
    assert_eq!(all_rows(&scene, "out").len(), 2);
    let mut letters: Vec<_> = scene
        .rows("dead")
        .iter()
        .map(|letter| {
            let letter: serde_json::Value = serde_json::from_str(letter).expect("a letter is JSON");
            let text = |key: &str| letter[key].as_str().expect("a text").to_owned();
            assert!(!text("reason").contains('\\'), "easy to read: {letter}");
            (letter["line"].as_u64().expect("a letter names its line"), text("row"))
        })
        .collect();
    letters.sort();
    let expected: Vec<_> = (2u64..).zip(bad).map(|(line, row)| (line, row.to_owned())).collect();
    assert_eq!(letters, expected);
}
