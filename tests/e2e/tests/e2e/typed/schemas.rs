//! Where columns come from: declared, or inferred once and kept.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;

use tidegate_e2e::{Ended, Running, Scene, lines, numbered, sorted, until};

use super::{DEAD_LETTER, all_rows, expect_all, one_file, pipeline, published, texts, validate};

const PARQUET: &str = "format = \"parquet\"";

/// Refused by `validate` and by `run` in the same words; nothing happens.
#[track_caller]
fn refused(scene: &Scene, code: i32, words: &[&str]) {
    for ended in [validate(scene), scene.run(&[])] {
        ended.expect(code).says(words);
    }
}

/// Known only once somebody looks into the files: `run` ends, and says why.
#[track_caller]
fn ends(scene: &Scene, words: &[&str]) {
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(words);
    assert!(published(scene, "out").is_empty());
}

#[test]
fn inferred_columns_are_kept_and_a_later_value_of_another_kind_is_a_bad_row() {
    let scene = one_file("{\"n\":1,\"v\":1}\n", "on-bad-row = \"dead-letter\"", PARQUET, DEAD_LETTER);
    scene.finish();
    scene.tidegate(&["checkpoint", "show", "pipeline.toml"]).expect(0).says(&["columns n BIGINT, v BIGINT"]);
    scene.write(
        "in/b.jsonl",
        "{\"n\":2,\"v\":\"text\"}\n{\"n\":3,\"v\":3}\n{\"n\":4,\"v\":4,\"more\":1}\n{\"v\":null}\n",
    );
    scene.finish().says(&["2 rows dead-lettered"]);
    expect_all(&scene, "out", &texts(&[r#"{"n":1,"v":1}"#, r#"{"n":3,"v":3}"#, r#"{"n":null,"v":null}"#]));
    let letters = lines(&scene.rows("dead"));
    assert!(letters.contains("field `v`: expected BIGINT, found a string") && letters.contains("more"), "{letters}");
    // Not even if all that the columns were inferred from is gone.
    std::fs::remove_file(scene.path("in/a.jsonl")).expect("it can be removed");
    std::fs::remove_file(scene.path("in/b.jsonl")).expect("it can be removed");
    scene.write("in/c.jsonl", "{\"v\":\"5\",\"n\":\"5\"}\n");
    scene.finish().says(&["1 row dead-lettered"]);
}

#[test]
fn without_dead_letters_a_value_of_another_kind_stops_the_run_and_is_named() {
    let scene = one_file("{\"n\":1}\n", "", PARQUET, "");
    scene.finish();
    scene.write("in/b.jsonl", "{\"n\":\"two\"}\n");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["in/b.jsonl", "line 1", "field `n`", "BIGINT", "two"]);
    expect_all(&scene, "out", &texts(&[r#"{"n":1}"#]));
}

#[test]
fn wider_columns_may_be_declared_later_and_narrower_ones_are_refused() {
    let scene = one_file("{\"n\":1,\"v\":7}\n", "", PARQUET, "");
    scene.finish();
    let declared = |text: &str| pipeline(&scene, &format!("schema = \"{text}\""), PARQUET, "");
    for (text, column) in [("n BIGINT, v INT", "`v`"), ("n TEXT, v BIGINT", "`n`"), ("n BIGINT, v DOUBLE", "`v`")] {
        declared(text);
        scene.write("in/b.jsonl", "{\"n\":2,\"v\":8}\n");
        refused(&scene, 3, &["source `flights`", &format!("the column {column} was BIGINT"), "wider"]);
    }
    declared("w TEXT, v DECIMAL(22,2), n BIGINT");
    validate(&scene).expect(0);
    scene.write("in/b.jsonl", "{\"n\":2,\"v\":8.25,\"w\":\"x\"}\n");
    scene.finish();
    expect_all(&scene, "out", &texts(&[r#"{"n":1,"v":7}"#, r#"{"w":"x","v":8.25,"n":2}"#]));
    // From here on they are the ones to compare with, also when nothing is declared any more.
    pipeline(&scene, "", PARQUET, "");
    scene.write("in/c.jsonl", "{\"n\":3,\"v\":9.75,\"w\":null}\n");
    scene.finish();
    assert!(all_rows(&scene, "out").contains(&r#"{"w":null,"v":9.75,"n":3}"#.to_owned()));
    declared("n BIGINT, v BIGINT");
    refused(&scene, 3, &["the column `v` was DECIMAL(22,2)", "BIGINT"]);
}

#[test]
fn a_column_that_was_only_null_may_be_declared_with_any_type_until_it_had_a_value() {
    let scene = one_file("{\"n\":1,\"v\":null,\"w\":null,\"o\":{\"p\":null}}\n", "", PARQUET, "");
    scene.finish();
    let shown = || scene.tidegate(&["checkpoint", "show", "pipeline.toml"]).expect(0);
    shown().says(&["v TEXT, w TEXT, o STRUCT<p TEXT>", "only NULL so far: o.p, v, w"]);
    // The first number says what to do.
    scene.write("in/b.jsonl", "{\"n\":2,\"v\":2.5,\"w\":\"x\",\"o\":{\"p\":true}}\n");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["in/b.jsonl", "field `v`", "declare `schema`", "o.p, v, w had only NULL so far"]);
    let declared = |text: &str| pipeline(&scene, &format!("schema = \"{text}\""), PARQUET, "");
    declared("n TEXT, v DOUBLE, w TEXT, o STRUCT<p BOOLEAN>");
    refused(&scene, 3, &["the column `n` was BIGINT"]);
    declared("n BIGINT, v DOUBLE, w TEXT, o STRUCT<p BOOLEAN>");
    validate(&scene).expect(0);
    scene.finish();
    let second = r#"{"n":2,"v":2.5,"w":"x","o":{"p":true}}"#;
    expect_all(&scene, "out", &texts(&[r#"{"n":1,"v":null,"w":null,"o":{"p":null}}"#, second]));
    let said = shown();
    assert!(!said.stdout.contains("only NULL"), "{said}");
    // Now they have had values.
    declared("n BIGINT, v DOUBLE, w BIGINT, o STRUCT<p BOOLEAN>");
    refused(&scene, 3, &["the column `w` was TEXT and is declared BIGINT", "`cast`", "another name"]);
}

#[test]
fn csv_without_a_header_goes_on_with_the_columns_that_it_had() {
    let scene = Scene::new();
    scene.write("in/a.csv", "n,m\n1,2\n");
    pipeline(&scene, "", "format = \"csv\"", "");
    scene.edit("json-lines", "csv");
    scene.finish();
    scene.tidegate(&["checkpoint", "show", "pipeline.toml"]).expect(0).says(&["header n,m"]);
    scene.write("in/b.csv", "m,n\n4,3\n");
    scene.run(&[]).expect(3).says(&["in/b.csv", "the columns are m, n", "rows handed on before are n, m", "`schema`"]);
    assert_eq!(sorted(&scene.rows("out")), ["1,2"]);
    // As the message says: columns by their names, in the order of the schema.
    pipeline(&scene, "schema = \"n BIGINT, m BIGINT\"", "format = \"csv\"", "");
    scene.edit("json-lines", "csv");
    scene.finish();
    assert_eq!(sorted(&scene.rows("out")), ["1,2", "3,4"]);

    // Files without a header of their own have the columns that are declared for them.
    let scene = Scene::new();
    scene.write("in/a.csv", "1,2\n");
    let declared = |columns: &str| {
        let source = format!("\n[sources.flights.csv]\nheader = false\ncolumns = {columns}\n");
        pipeline(&scene, &source, "format = \"csv\"", "");
        scene.edit("json-lines", "csv");
    };
    declared("[\"n\", \"m\"]");
    scene.finish();
    declared("[\"m\", \"n\"]");
    scene.write("in/b.csv", "4,3\n");
    refused(&scene, 2, &["the columns are m, n", "rows handed on before are n, m"]);
    declared("[\"n\", \"m\"]");
    scene.write("in/b.csv", "3,4\n");
    scene.finish();
    assert_eq!(sorted(&scene.rows("out")), ["1,2", "3,4"]);
}

#[test]
fn files_without_rows_tell_no_columns() {
    let scene = one_file("\n \n", "", PARQUET, "");
    scene.write("in/b.jsonl", "");
    ends(&scene, &["source `flights`", "no schema can be inferred", "declare `schema`"]);
    validate(&scene).says(&["no schema can be inferred", "declare `schema`"]);
    // With rows beside them it goes on; declared, it needs none.
    scene.write("in/c.jsonl", "{\"n\":1}\n");
    scene.finish();
    expect_all(&scene, "out", &texts(&[r#"{"n":1}"#]));
    let scene = one_file("", "schema = \"n BIGINT\"", PARQUET, "");
    scene.finish();
    assert!(published(&scene, "out").is_empty());
}

#[test]
fn fields_of_all_files_are_columns_and_a_field_that_is_missing_is_null() {
    let scene = one_file("{\"n\":1,\"a\":true}\n", "schema = \"infer\"", PARQUET, "");
    scene.write("in/b.jsonl", "{\"b\":[1.5],\"n\":2}\n{\"n\":3,\"a\":null}\n");
    scene.finish();
    let expected = [r#"{"n":1,"a":true,"b":null}"#, r#"{"n":2,"a":null,"b":[1.5]}"#, r#"{"n":3,"a":null,"b":null}"#];
    expect_all(&scene, "out", &texts(&expected));
}

#[test]
fn files_that_contradict_each_other_are_refused_naming_the_field() {
    let scene = one_file("{\"n\":1,\"v\":{\"x\":1}}\n", "", PARQUET, "");
    scene.write("in/b.jsonl", "{\"n\":1,\"v\":{\"x\":\"text\"}}\n");
    ends(&scene, &["field `v.x`", "BIGINT", "TEXT", "declare", "in/a.jsonl", "in/b.jsonl"]);
}

#[test]
fn fields_that_no_column_is_declared_for_are_bad_rows_or_left_out() {
    let rows = "{\"n\":1,\"more\":{\"x\":[1,\"}\"]}}\n{\"n\":2}\n";
    let scene = one_file(rows, "schema = \"n BIGINT\"", PARQUET, "");
    let ended = scene.run(&[]);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["line 1", "more", "unknown-fields"]);
    scene.edit("schema =", "unknown-fields = \"drop\"\nschema =");
    scene.finish();
    expect_all(&scene, "out", &texts(&[r#"{"n":1}"#, r#"{"n":2}"#]));
}

#[test]
fn csv_columns_are_found_by_name_whatever_their_order() {
    let scene = Scene::new();
    scene.write("in/a.csv", "id,name,at\n1,a,2024-05-06\n2,\"b, \"\"c\"\"\n\",\n");
    scene.write("in/b.csv", "name,id,at\n,3,\n\"\",x,\n");
    scene.write("in/c.csv", "id,name,at\n");
    pipeline(
        &scene,
        "schema = \"id BIGINT NOT NULL, name TEXT, at DATE\"\non-bad-row = \"dead-letter\"",
        PARQUET,
        DEAD_LETTER,
    );
    scene.edit("format = \"json-lines\"", "format = \"csv\"");
    scene.finish().says(&["1 row dead-lettered"]);
    let expected = [
        r#"{"id":1,"name":"a","at":"2024-05-06"}"#,
        r#"{"id":2,"name":"b, \"c\"\n","at":null}"#,
        r#"{"id":3,"name":null,"at":null}"#,
    ];
    expect_all(&scene, "out", &texts(&expected));
    assert!(lines(&scene.rows("dead")).contains("`id`"));
}

#[test]
fn a_byte_order_mark_and_gzip_do_not_change_what_is_inferred() {
    let scene = Scene::new();
    scene.write("in/a.csv", "\u{feff}id,\"the name\"\r\n1,a\r\n2,\"\"\r\n");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"the name,id\nb,3\n").expect("memory can be written");
    scene.write("in/b.csv.gz", packed.finish().expect("memory can be written"));
    pipeline(&scene, "", PARQUET, "");
    scene.edit("format = \"json-lines\"", "format = \"csv\"");
    scene.finish();
    let expected = [r#"{"id":1,"the name":"a"}"#, r#"{"id":2,"the name":""}"#, r#"{"id":3,"the name":"b"}"#];
    expect_all(&scene, "out", &texts(&expected));
    let scene = one_file("\u{feff}{\"n\":1}\n", "", PARQUET, "");
    scene.finish();
    expect_all(&scene, "out", &texts(&[r#"{"n":1}"#]));
}

pub(super) fn from_stdin(scene: &Scene, rows: &str) -> Ended {
    scene.write("rows", rows);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" run pipeline.toml < rows"]).arg(tidegate_e2e::tidegate());
    command.current_dir(scene.path(""));
    Running::start(command).end()
}

#[test]
fn standard_input_needs_declared_columns_and_says_so() {
    let scene = Scene::new();
    let file = |schema: &str| {
        format!(
            "[pipeline]\nname = \"flights\"\nstate = \"state\"\nguarantee = \"at-most-once\"\n\n[sources.flights]\n\
             kind = \"stdin\"\nformat = \"json-lines\"\n{schema}\n\n[sinks.out]\nplugin = \"builtin:files\"\n{PARQUET}\n\
             dirs = {{ output = \"out\" }}\n"
        )
    };
    scene.write("pipeline.toml", file(""));
    let rows = "{\"n\":1,\"s\":\"x\"}\n{\"n\":2}";
    let ended = from_stdin(&scene, rows);
    assert_ne!(ended.code(), 0, "{ended}");
    ended.says(&["standard input", "declare", "schema = "]);
    validate(&scene).expect(2).says(&["pipeline.toml:", "standard input", "declare", "schema = "]);
    scene.write("pipeline.toml", file("schema = \"n BIGINT, s TEXT\""));
    validate(&scene).expect(0);
    from_stdin(&scene, rows).expect(0);
    expect_all(&scene, "out", &texts(&[r#"{"n":1,"s":"x"}"#, r#"{"n":2,"s":null}"#]));
}

/// A second source beside that of the plain pipeline.
fn second_source(schema: &str) -> String {
    format!("[sources.more]\nkind = \"files\"\npaths = [\"more/*\"]\nformat = \"json-lines\"\n{schema}\n")
}

#[test]
fn sources_with_different_columns_do_not_share_files_and_both_are_named() {
    let words = ["`flights`", "`more`", "different columns", "n BIGINT", "n TEXT"];
    // Declared, it is known beforehand; inferred, once there are rows.
    for (one, other) in [("schema = \"n BIGINT\"", "schema = \"n TEXT\""), ("", "schema = \"n TEXT\"")] {
        let scene = one_file("{\"n\":1}\n", one, PARQUET, &second_source(other));
        std::fs::create_dir(scene.path("more")).expect("a folder can be made");
        scene.write("more/a.jsonl", "{\"n\":\"2\"}\n");
        if one.is_empty() {
            ends(&scene, &words);
        } else {
            validate(&scene).expect(2).says(&words);
            ends(&scene, &words);
        }
        // The same columns share them.
        scene.edit("n TEXT", "n BIGINT");
        scene.write("more/a.jsonl", "{\"n\":2}\n");
        scene.finish();
        expect_all(&scene, "out", &texts(&[r#"{"n":1}"#, r#"{"n":2}"#]));
    }
}

#[test]
fn columns_that_are_not_there_are_refused_with_the_nearest_name() {
    let declared = "schema = \"number BIGINT, carrier TEXT\"";
    for (sink, more, words) in [
        (PARQUET, "[sinks.out.files]\nfolder = \"c={carier}/\"", ["carier", "carrier"]),
        ("", "[sinks.out.transform]\nselect = [\"numbr\"]", ["numbr", "number"]),
        ("", "[sinks.out.transform]\ndrop = [\"carriers\"]", ["carriers", "carrier"]),
        ("", "[sinks.out.transform]\nrename = { nunber = \"n\" }", ["nunber", "number"]),
        (PARQUET, "[sinks.out.transform]\nfilter = \"numer > 1\"", ["numer", "number"]),
        // The folder is of the columns behind the transform.
        (
            PARQUET,
            "[sinks.out.files]\nfolder = \"c={carrier}/\"\n[sinks.out.transform]\nrename = { carrier = \"carriers\" }",
            ["carrier", "carriers"],
        ),
    ] {
        let scene = one_file("{\"number\":1,\"carrier\":\"UA\"}\n", declared, sink, more);
        refused(&scene, 2, &[&["sink `out`", "the nearest is"][..], &words[..]].concat());
        scene.edit(declared, "");
        ends(&scene, &[&["sink `out`", "the nearest is"][..], &words[..]].concat());
    }
}

#[test]
fn files_that_grow_are_read_as_columns_over_a_kill_and_a_stop() {
    let scene = Scene::new();
    pipeline(&scene, "follow = true\ntasks = 2\nschema = \"n BIGINT, carrier TEXT, note TEXT\"", PARQUET, "");
    let append = |name: &str, text: &str| {
        let mut file =
            OpenOptions::new().append(true).create(true).open(scene.path(name)).expect("a file can be opened");
        file.write_all(text.as_bytes()).expect("a file can be written");
    };
    let text = lines(&numbered(0..50));
    let torn = lines(&numbered(0..30)).len() + 9;
    append("in/a.jsonl", &text[..torn]);
    let running = scene.start(&[]);
    until("the whole rows are there", || all_rows(&scene, "out").len() == 30);
    running.kill();
    append("in/a.jsonl", &text[torn..]);
    append("in/b.jsonl", &lines(&numbered(50..60)));
    let running = scene.start(&[]);
    until("the rest is there", || all_rows(&scene, "out").len() == 60);
    running.signal(libc::SIGTERM);
    running.end().expect(0);
    expect_all(&scene, "out", &numbered(0..60));
}
