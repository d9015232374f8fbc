//! Transforms, and how many rows become what.

use super::{DEAD_LETTER, all_rows, expect_all, one_file, published, told, validate};

const SCHEMA: &str = "schema = \"n BIGINT NOT NULL, carrier TEXT, delay TEXT, note TEXT\"";

const TRANSFORM: &str = "[sinks.out.transform]\nfilter = \"number % 3 <> 0\"\nselect = [\"number\", \"lower(carrier) AS line\", \
                         \"delay\", \"late\", \"origin\", \"sum\", \"note\"]\ndrop = [\"note\"]\n\n\
                         [sinks.out.transform.cast]\ndelay = \"BIGINT\"\n\n[sinks.out.transform.add]\n\
                         late = \"delay > 40\"\norigin = \"'JFK'\"\nsum = \"number + delay\"\n\n\
                         [sinks.out.transform.rename]\nn = \"number\"\n\n";

/// Sixty rows, and what becomes of them; row 50 has a delay that is no number.
fn rows() -> (String, Vec<String>) {
    let mut input = String::new();
    let mut expected = Vec::new();
    for n in 0..60 {
        let delay = match n {
            50 => "\"soon\"".to_owned(),
            n if n % 7 == 0 => "null".to_owned(),
            n => format!("\"{n}\""),
        };
        input.push_str(&format!("{{\"n\":{n},\"carrier\":\"UA\",\"delay\":{delay},\"note\":\"x\"}}\n"));
        if n % 3 == 0 || n == 50 {
            continue;
        }
        let (delay, late, sum) = match n % 7 {
            0 => ("null".to_owned(), "null".to_owned(), "null".to_owned()),
            _ => (n.to_string(), (n > 40).to_string(), (2 * n).to_string()),
        };
        expected
            .push(format!(r#"{{"number":{n},"line":"ua","delay":{delay},"late":{late},"origin":"JFK","sum":{sum}}}"#));
    }
    (input, expected)
}

#[test]
fn all_steps_of_a_transform_together_and_every_row_is_counted() {
    let (input, expected) = rows();
    for sink in ["", "format = \"parquet\""] {
        let scene = one_file(&input, SCHEMA, sink, &format!("{TRANSFORM}{DEAD_LETTER}"));
        validate(&scene).expect(0);
        scene.finish().says(&[
            "60 rows read",
            "39 rows committed at sink `out`",
            "1 row dead-lettered",
            "20 rows left out by filters",
        ]);
        expect_all(&scene, "out", &expected);
        assert_eq!(scene.rows("dead").len(), 1);
    }
}

#[test]
fn rows_read_are_those_committed_dead_lettered_and_filtered() {
    let (input, _) = rows();
    let scene = one_file(&input, SCHEMA, "format = \"parquet\"", &format!("{TRANSFORM}{DEAD_LETTER}"));
    let progress = told(&scene)["progress"].clone();
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("no number in {progress}"));
    let committed = number(&progress["rows-committed"]["out"]);
    let (dead, filtered) = (number(&progress["rows-dead-lettered"]), number(&progress["rows-filtered"]));
    assert_eq!((committed, dead, filtered), (39, 1, 20));
    assert_eq!(number(&progress["rows-read"]), committed + dead + filtered);
    // The checkpoint tells the same, part by part.
    let shown = scene.tidegate(&["checkpoint", "show", "pipeline.toml", "--json"]).expect(0);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let parts = shown["parts"]["out"]["parts"].as_array().expect("parts");
    let sum = |key: &str| parts.iter().map(|part| part[key].as_u64().expect(key)).sum::<u64>();
    assert_eq!((sum("rows"), sum("rejected"), sum("filtered")), (39, 1, 20));
    scene.tidegate(&["checkpoint", "show", "pipeline.toml"]).expect(0).says(&["20 left out", "n BIGINT NOT NULL"]);
}

#[test]
fn a_filter_that_leaves_out_everything_begins_no_part_and_ends_well() {
    let (input, _) = rows();
    for sink in ["", "format = \"parquet\""] {
        let scene = one_file(&input, SCHEMA, sink, "[sinks.out.transform]\nfilter = \"n < 0\"");
        scene.finish().says(&["60 rows read", "60 rows left out by filters"]);
        assert!(published(&scene, "out").is_empty());
        scene.tidegate(&["checkpoint", "show", "pipeline.toml"]).expect(0).says(&["no rows", "60 left out"]);
        scene.finish().says(&["nothing has changed"]);
        // Rows that come later are filtered as well, and those that pass arrive.
        scene.write("in/b.jsonl", "{\"n\":-1}\n{\"n\":1}\n");
        scene.finish();
        assert_eq!(all_rows(&scene, "out"), [r#"{"n":-1,"carrier":null,"delay":null,"note":null}"#]);
    }
}

#[test]
fn one_source_feeds_a_sink_with_a_transform_and_one_without() {
    let (input, expected) = rows();
    let other = "[sinks.all]\nplugin = \"builtin:files\"\ndirs = { output = \"all\" }\n\n";
    let scene = one_file(&input, SCHEMA, "format = \"parquet\"", &format!("{TRANSFORM}{other}{DEAD_LETTER}"));
    scene.finish().says(&["60 rows committed at sink `all`", "39 rows committed at sink `out`"]);
    expect_all(&scene, "out", &expected);
    expect_all(&scene, "all", &input.lines().map(str::to_owned).collect::<Vec<_>>());
}
