//! Letters of typed rows: what is in them, and how they are sent again.

use tidegate_e2e::{Ended, Scene, lines};

use super::{DEAD_LETTER, expect_all, one_file, published, texts, validate};

const SCHEMA: &str = "schema = \"n BIGINT NOT NULL, delay TEXT\"\non-bad-row = \"dead-letter\"";

const TRANSFORM: &str = "[sinks.out.transform]\ncast = { delay = \"INT\" }\nrename = { n = \"number\" }\n\n";

const INPUT: &str = "{\"delay\":\"1\",\"n\":1}\n{ \"n\" : 2, \"delay\":\"soon\" }\n{\"n\":\"3\",\"delay\":\"3\"}\n\
                     {\"n\":4,\"delay\":null}\n";

fn replay(scene: &Scene, arguments: &[&str]) -> Ended {
    scene.tidegate(&[&["dead-letter", "replay", "pipeline.toml"], arguments].concat())
}

/// Copies the letters to `mended`, with words of them replaced.
fn mend(scene: &Scene, words: &[(&str, &str)]) {
    std::fs::create_dir_all(scene.path("mended")).expect("a folder can be made");
    let mut text = lines(&scene.rows("dead"));
    for (from, to) in words {
        assert!(text.contains(from), "{from} is not in {text}");
        text = text.replace(from, to);
    }
    scene.write("mended/letters", text);
}

#[test]
fn a_row_that_cannot_be_transformed_is_a_letter_with_the_row_as_it_was_read() {
    let scene = one_file(INPUT, SCHEMA, "format = \"parquet\"", &format!("{TRANSFORM}{DEAD_LETTER}"));
    scene.finish().says(&["2 rows committed at sink `out`", "2 rows dead-lettered"]);
    let letters = lines(&scene.rows("dead"));
    for part in [
        r#""sink":"out","code":"transform""#,
        r#""row":"{\"n\":2,\"delay\":\"soon\"}""#,
        r#""source":"flights","file":"in/a.jsonl","line":3"#,
        r#""row":"{\"n\":\"3\",\"delay\":\"3\"}""#,
    ] {
        assert!(letters.contains(part), "{part} is missing in {letters}");
    }
}

#[test]
fn without_dead_letters_a_row_that_cannot_be_transformed_stops_the_run_and_is_named() {
    for sink in ["", "format = \"csv\"", "format = \"parquet\""] {
        let scene = one_file("{\"n\":2,\"delay\":\"soon\"}\n", "schema = \"n BIGINT, delay TEXT\"", sink, TRANSFORM);
        let ended = scene.run(&[]);
        assert_ne!(ended.code(), 0, "{ended}");
        ended.says(&["`out`", "soon", "[dead-letter]"]);
        assert!(published(&scene, "out").is_empty());
        // Mended, it goes on.
        scene.write("in/a.jsonl", "{\"n\":2,\"delay\":\"7\"}\n");
        scene.finish();
    }
}

#[test]
fn mended_letters_of_source_and_transform_are_replayed_once_into_every_format() {
    let json = texts(&[
        r#"{"number":1,"delay":1}"#,
        r#"{"number":2,"delay":20}"#,
        r#"{"number":3,"delay":3}"#,
        r#"{"number":4,"delay":null}"#,
    ]);
    let csv = texts(&["1,1", "2,20", "3,3", "4,"]);
    for (sink, files, expected) in [
        ("", "", &json),
        ("format = \"parquet\"", "", &json),
        ("format = \"csv\"", "[sinks.out.files]\n\n", &csv),
        ("format = \"csv\"", "", &csv),
    ] {
        let scene = one_file(INPUT, SCHEMA, sink, &format!("{files}{TRANSFORM}{DEAD_LETTER}"));
        scene.finish();
        mend(&scene, &[("soon\\\"", "20\\\""), (r#"\"n\":\"3\""#, r#"\"n\":3"#)]);
        replay(&scene, &["--from", "mended"]).expect(0).says(&["2 dead letters"]);
        let rows = |scene: &Scene| match (sink, files) {
            // Batches of records have no header.
            ("format = \"csv\"", "") => assert_eq!(scene.rows("out"), *expected),
            _ => expect_all(scene, "out", expected),
        };
        rows(&scene);
        replay(&scene, &["--from", "mended"]).expect(0).says(&["0 dead letters", "nothing has changed"]);
        rows(&scene);
    }
}

#[test]
fn letters_are_read_again_with_the_columns_that_were_inferred() {
    // Alone, the mended rows would have other columns than the file.
    let scene = one_file(
        "{\"n\":1.5,\"v\":[1],\"w\":\"x\"}\n",
        "on-bad-row = \"dead-letter\"",
        "format = \"parquet\"",
        DEAD_LETTER,
    );
    scene.finish();
    scene.write("in/b.jsonl", "{\"n\":\"2\",\"v\":null}\n");
    scene.finish();
    mend(&scene, &[(r#"\"n\":\"2\""#, r#"\"n\":2"#)]);
    replay(&scene, &["--from", "mended"]).expect(0).says(&["1 dead letter "]);
    expect_all(&scene, "out", &texts(&[r#"{"n":1.5,"v":[1],"w":"x"}"#, r#"{"n":2,"v":null,"w":null}"#]));
}

#[test]
fn records_of_csv_files_are_read_again_under_their_header_and_with_their_columns() {
    let scene = Scene::new();
    scene.write("in/a.csv", "id,name,day\n1,a,2024-01-02\nx,\"b\n\",2024-01-03\n");
    scene.write("in/b.csv", "day,id,name\n2024-02-30,3,c\n2024-01-05,4\n");
    super::pipeline(
        &scene,
        "schema = \"id BIGINT, name TEXT, day DATE\"\non-bad-row = \"dead-letter\"",
        "format = \"parquet\"",
        DEAD_LETTER,
    );
    scene.edit("format = \"json-lines\"", "format = \"csv\"");
    scene.finish().says(&["3 rows dead-lettered"]);
    mend(&scene, &[("\"row\":\"x,", "\"row\":\"2,"), ("02-30", "02-29"), ("01-05,4", "01-05,4,")]);
    replay(&scene, &["--from", "mended"]).expect(0).says(&["3 dead letters"]);
    let expected = [
        r#"{"id":1,"name":"a","day":"2024-01-02"}"#,
        r#"{"id":2,"name":"b\n","day":"2024-01-03"}"#,
        r#"{"id":3,"name":"c","day":"2024-02-29"}"#,
        r#"{"id":4,"name":null,"day":"2024-01-05"}"#,
    ];
    expect_all(&scene, "out", &texts(&expected));
}

#[test]
fn letters_that_fail_again_become_letters_again() {
    let scene = one_file(INPUT, SCHEMA, "format = \"csv\"", &format!("{TRANSFORM}{DEAD_LETTER}"));
    scene.finish();
    replay(&scene, &[]).expect(0).says(&["2 dead letters", "2 rows dead-lettered"]);
    assert_eq!(scene.rows("dead").len(), 4);
    // Those of the replay name its own sources and sinks, and are sent again all the same.
    replay(&scene, &[]).expect(0).says(&["2 dead letters", "2 rows dead-lettered"]);
    assert_eq!(scene.rows("dead").len(), 6);
    assert_eq!(scene.rows("out"), ["1,1", "4,"]);
}

#[test]
fn records_that_a_csv_sink_did_not_take_and_rows_that_were_not_transformed_both_arrive() {
    let scene = one_file(INPUT, SCHEMA, "format = \"csv\"", &format!("{TRANSFORM}{DEAD_LETTER}"));
    scene.finish();
    mend(&scene, &[("soon\\\"", "20\\\""), (r#"\"n\":\"3\""#, r#"\"n\":3"#)]);
    // As a plugin's rejects are: the record that it was handed, transformed already.
    scene.write(
        "mended/more",
        "{\"sink\":\"out\",\"code\":\"too-late\",\"epoch\":1,\"reason\":\"r\",\"row\":\"5,50\"}\n",
    );
    replay(&scene, &["--from", "mended"]).expect(0).says(&["3 dead letters"]);
    assert_eq!(scene.rows("out"), ["1,1", "2,20", "3,3", "4,", "5,50"]);
}

#[test]
fn a_letter_of_a_transform_that_is_gone_stays_where_it_is() {
    let scene = one_file(INPUT, SCHEMA, "format = \"csv\"", &format!("{TRANSFORM}{DEAD_LETTER}"));
    scene.finish();
    scene.edit(TRANSFORM, "");
    replay(&scene, &[]).expect(0).says(&["1 letter without a row", "sink `out` has no `transform` any more"]);
    // The other letter failed again.
    assert_eq!(scene.rows("dead").len(), 3, "it stays where it is");
}

#[test]
fn letters_are_lines_for_a_person_and_no_whole_files() {
    let scene = one_file(INPUT, SCHEMA, "", &format!("{DEAD_LETTER}\n[dead-letter.files]\ncompression = \"gzip\"\n"));
    for ended in [validate(&scene), scene.run(&[])] {
        ended.expect(2).says(&["[dead-letter] has no `files`", "remove `files`"]);
    }
}
