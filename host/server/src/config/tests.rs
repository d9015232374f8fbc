//! What people write wrong, and what they are told.

use super::*;

fn plain_dir(path: &str) -> DirGrant {
    let (written, path) = (path.to_owned(), Path::new("/base").join(path));
    DirGrant { written, path, quota: None, max_files: None, own_volume: false }
}

const GOOD: &str = r#"
[pipeline]
name = "flights"
state = "state"

[sources.flights]
kind = "files"
paths = ["data/*.jsonl"]
format = "json-lines"

[sinks.out]
plugin = "builtin:files"

[sinks.out.dirs]
output = "out"
"#;

fn read(text: &str) -> Result<PipelineFile, ConfigError> {
    parse(text, Path::new("p.toml"), Path::new("/base"))
}

/// Replaces `from` by `to` in a good file and returns what is said of it: message and hints, line by line.
fn said(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    said_of(&GOOD.replacen(from, to, 1))
}

fn said_of(text: &str) -> String {
    let error = read(text).expect_err("the file is wrong");
    let lines = error.problems.iter().flat_map(|problem| {
        let first = format!("{}: {}", error.place(problem), problem.message);
        std::iter::once(first).chain(problem.hints.iter().map(|hint| format!("hint: {hint}")))
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_short_file_gets_every_default() {
    let file = read(GOOD).unwrap();
    assert_eq!(file.pipeline.name.as_str(), "flights");
    assert_eq!(file.pipeline.state, Path::new("/base/state"));
    assert_eq!(file.pipeline.guarantee, Delivery::ExactlyOnce);
    assert_eq!(
        file.checkpoint,
        CheckpointSection {
            interval: Duration::from_secs(1),
            min_pause: Duration::ZERO,
            max_waiting: 4,
            retain_count: 10,
            retain_age: None,
            commit_tries: 10,
            alarm_after: Duration::from_secs(60),
        }
    );
    let sink = &file.sinks[&SinkId::new("out").unwrap()];
    assert_eq!(sink.plugin, PluginRef::Builtin("files".into()));
    assert_eq!(sink.subtasks, 1);
    assert_eq!(sink.route, Route::RoundRobin);
    assert_eq!(sink.sources, [SourceId::new("flights").unwrap()]);
    assert_eq!(sink.dirs["output"], plain_dir("out"));
    assert_eq!(sink.limits, Limits::default());
    let source = &file.sources[&SourceId::new("flights").unwrap()];
    let rows = source.kind.rows().unwrap();
    assert_eq!((rows.max_line, rows.on_bad_row), (1 << 20, OnBadRow::Stop));
}

#[test]
fn every_key_is_read() {
    let file = read(
        r#"
[pipeline]
name = "all"
state = "/var/state"
guarantee = "at-least-once"
[checkpoint]
interval = "250ms"
min-pause = "10ms"
max-waiting = 2
retain-count = 3
retain-age = "1h"
commit-tries = 7
[sources.a]
kind = "files"
paths = ["a/*.csv", "b.csv"]
format = "csv"
tasks = 3
compression = "gzip"
max-line = "64KiB"
on-bad-row = "dead-letter"
rate = 10000
[sources.a.csv]
header = false
delimiter = "\t"
quote = "'"
columns = ["x", "y"]
[sources.g]
kind = "generate"
seed = 7
rows = 100
partitions = 2
row-bytes = [100, 128]
keys = 9
rate = 5
[sources.in]
kind = "stdin"
format = "raw"
[sources.t]
kind = "files"
paths = ["t/*.jsonl"]
format = "json-lines"
schema = "year INT NOT NULL, carrier TEXT"
unknown-fields = "drop"
follow = true
compression = "none"
[sources.p]
kind = "files"
paths = ["p/*.parquet"]
format = "parquet"
schema = "infer"
[sinks.out]
plugin = "plugins/x.wasm"
format = "csv"
subtasks = 2
route = { key = "x" }
sources = ["a"]
[sinks.out.dirs]
output = "out"
[sinks.out.config]
prefix = "p"
nested = { n = 1, list = [1.5, true] }
[sinks.out.secrets]
token = { env = "TOKEN" }
other = { file = "secret.txt" }
[sinks.out.limits]
memory = "64MiB"
call-time = "5s"
[sinks.rest]
plugin = "builtin:files"
sources = ["g", "in"]
[sinks.typed]
plugin = "builtin:files"
format = "parquet"
sources = ["t", "p"]
columns = ["_epoch", "_part", "_emitted_at"]
dirs.output = "typed"
[sinks.typed.files]
compression = "zstd"
level = 7
folder = "carrier={carrier}/"
roll-size = "1MiB"
max-open-files = 8
[sinks.typed.transform]
filter = "year > 2012"
cast = { year = "BIGINT" }
add = { z = "'x'", a = 7, b = true, c = -0.5 }
select = ["year", "lower(carrier) AS carrier", "z"]
drop = ["z"]
rename = { year = "y" }
[sinks.zipped]
plugin = "builtin:files"
format = "json-lines"
sources = ["t"]
files.compression = "gzip"
[dead-letter]
plugin = "builtin:files"
dirs.output = "bad"
"#,
    )
    .unwrap();
    let sink = &file.sinks[&SinkId::new("out").unwrap()];
    assert_eq!(sink.plugin, PluginRef::File("/base/plugins/x.wasm".into()));
    assert_eq!(sink.route, Route::Key("x".into()));
    assert_eq!(
        serde_json::Value::Object(sink.config.clone()),
        serde_json::json!({"prefix": "p", "nested": {"n": 1, "list": [1.5, true]}})
    );
    assert_eq!(sink.secrets["token"], SecretSource::Env("TOKEN".into()));
    let SourceKind::Files { rows, .. } = &file.sources[&SourceId::new("a").unwrap()].kind else { panic!() };
    let Format::Csv(csv) = &rows.format else { panic!() };
    assert_eq!((csv.delimiter, csv.quote, csv.header), (b'\t', b'\'', false));
    assert_eq!(file.dead_letter.as_ref().unwrap().dirs["output"].path, Path::new("/base/bad"));
    assert_eq!(
        file.all_sinks().map(|(id, ..)| id.to_string()).collect::<Vec<_>>(),
        ["out", "rest", "typed", "zipped", "dead-letter"]
    );
    let SourceKind::Files { rows, follow, .. } = &file.sources[&SourceId::new("t").unwrap()].kind else { panic!() };
    assert_eq!(rows.schema, Some(SchemaSection::Declared("year INT NOT NULL, carrier TEXT".into())));
    assert_eq!((rows.unknown_fields, *follow), (UnknownFields::Drop, true));
    let SourceKind::Files { rows, follow, .. } = &file.sources[&SourceId::new("p").unwrap()].kind else { panic!() };
    assert_eq!((&rows.format, &rows.schema, *follow), (&Format::Parquet, &Some(SchemaSection::Infer), false));
    let sink = &file.sinks[&SinkId::new("typed").unwrap()];
    assert_eq!(sink.columns, [AddedColumn::Epoch, AddedColumn::Part, AddedColumn::EmittedAt]);
    let files = sink.files.as_ref().unwrap();
    assert_eq!((files.compression, files.level, files.max_open_files), (Some(Compression::Zstd), Some(7), 8));
    assert_eq!((files.folder.as_deref(), files.roll_size), (Some("carrier={carrier}/"), 1 << 20));
    let transform = sink.transform.as_ref().unwrap();
    assert_eq!(transform.filter.as_deref(), Some("year > 2012"));
    let add: Vec<_> = transform.add.iter().map(|(name, sql)| (name.as_str(), sql.as_str())).collect();
    assert_eq!(add, [("z", "'x'"), ("a", "7"), ("b", "true"), ("c", "-0.5")]);
    assert_eq!(transform.select.as_ref().unwrap()[1], "lower(carrier) AS carrier");
    assert_eq!(transform.rename, [("year".to_owned(), "y".to_owned())]);
    let zipped = &file.sinks[&SinkId::new("zipped").unwrap()];
    let files = zipped.files.as_ref().unwrap();
    assert_eq!((files.compression, files.roll_size, files.max_open_files), (Some(Compression::Gzip), 128 << 20, 64));
}

#[test]
fn what_needs_columns_and_has_none_is_refused_in_words() {
    let raw = GOOD.replace("\"json-lines\"", "\"raw\"");
    let schema = raw.replace("[sinks.out]", "schema = \"a INT\"\n[sinks.out]");
    assert!(said_of(&schema).contains("raw rows have no columns"));
    let sink = |more: &str| said("[sinks.out.dirs]", &format!("{more}\n[sinks.out.dirs]"));
    assert!(sink("format = \"raw\"\ncolumns = [\"_epoch\"]").contains("raw rows have no columns"));
    assert!(sink("columns = [\"_epoc\"]").contains("did you mean `_epoch`?"));
    assert!(sink("columns = [\"_epoch\", \"_epoch\"]").contains("named twice"));
    assert!(sink("files.level = 3").contains("files are not compressed"));
    assert!(sink("files = { compression = \"gzip\", level = 10 }").contains("gzip has levels from 1 to 9"));
    assert!(sink("transform.cast = { a = 3 }").contains("expected a text in quotes"));
    assert!(sink("transform.add = { a = [] }").contains("expected an SQL expression in quotes, a number, true or"));
    let parquet = GOOD.replace("\"json-lines\"", "\"parquet\"\ncompression = \"gzip\"\nfollow = true");
    assert!(said_of(&parquet).contains("compressed within"));
    assert!(said_of(&parquet).contains("cannot be followed"));
    let dead = format!("{GOOD}[dead-letter]\nplugin = \"builtin:files\"\nformat = \"parquet\"\n");
    assert!(said_of(&dead).contains("[dead-letter] takes json-lines"));
    let dead = format!("{GOOD}[dead-letter]\nplugin = \"builtin:files\"\ncolumns = [\"_epoch\"]\n");
    assert!(said_of(&dead).contains("[dead-letter] has no `columns`"));
}

#[test]
fn unknown_keys_are_named_with_place_and_nearest_known_key() {
    assert_eq!(
        said("state = \"state\"", "state = \"state\"\nguarante = \"exactly-once\""),
        "p.toml:5:1: unknown key `guarante` in [pipeline]\nhint: did you mean `guarantee`?\nhint: `tidegate config reference` lists every key"
    );
    assert_eq!(
        said("format =", "max_line = \"1MiB\"\nformat ="),
        "p.toml:9:1: unknown key `max_line` in [sources.flights]\nhint: did you mean `max-line`?\nhint: `tidegate config reference` lists every key"
    );
    assert_eq!(
        said("[sinks.out.dirs]", "[sinks.out.limits]\n  memroy = \"1MiB\"\n[sinks.out.dirs]"),
        "p.toml:15:3: unknown key `memroy` in [sinks.out.limits]\nhint: did you mean `memory`?\nhint: `tidegate config reference` lists every key"
    );
    assert_eq!(
        said("[sinks.out.dirs]", "secrets.a = { env = \"A\", vault = \"x\" }\n[sinks.out.dirs]"),
        "p.toml:14:26: unknown key `vault` in [sinks.out.secrets.a]\nhint: known are: `env`, `file`\nhint: `tidegate config reference` lists every key"
    );
    assert!(said("[sinks.out]", "[sink.other]\nx = 1\n[sinks.out]").contains("did you mean `sinks`?"));
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_file() {
    let text = GOOD.replace("\"flights\"", "\"Flights!\"").replace("kind = \"files\"", "kind = \"file\"");
    assert_eq!(
        said_of(&text),
        "p.toml:3:8: `Flights!` is not a valid name: expected 1 to 40 characters of a-z, 0-9 and `-`, starting with a \
         letter\np.toml:7:8: `kind` in [sources.flights] is \"file\", expected \"files\", \"generate\" or \
         \"stdin\"\nhint: did you mean \"files\"?"
    );
}

#[test]
fn wrong_types_say_what_was_expected() {
    assert_eq!(
        said("paths = [\"data/*.jsonl\"]", "paths = \"data/*.jsonl\""),
        "p.toml:8:9: `paths` in [sources.flights] is a text, expected a list of texts, [\"…\"]"
    );
    assert_eq!(
        said("plugin = \"builtin:files\"", "plugin = \"builtin:files\"\nsubtasks = \"2\""),
        "p.toml:13:12: `subtasks` in [sinks.out] is a text, expected a whole number from 1 to 256"
    );
    assert_eq!(
        said("plugin = \"builtin:files\"", "plugin = \"builtin:files\"\nsubtasks = 0"),
        "p.toml:13:12: `subtasks` in [sinks.out] is 0, which is out of range, expected a whole number from 1 to 256"
    );
    assert_eq!(
        said("[sources.flights]", "[checkpoint]\ninterval = 5\n[sources.flights]"),
        "p.toml:7:12: `interval` in [checkpoint] is the number 5 without a unit, expected a duration such as \"250ms\" \
         or \"10s\""
    );
    assert!(said("[sources.flights]", "[checkpoint]\ninterval = \"0s\"\n[sources.flights]").contains("1ms to 1d"));
    assert!(said("output = \"out\"", "output = 3").contains("`sinks.out.dirs.output` is a number, expected a path"));
}

#[test]
fn a_directory_is_a_path_or_a_table_with_a_quota() {
    let dir = |value: &str| {
        let file = read(&GOOD.replace("output = \"out\"", &format!("output = {value}"))).unwrap();
        file.sinks.values().next().unwrap().dirs["output"].clone()
    };
    assert_eq!(dir("\"out\""), plain_dir("out"));
    assert_eq!(dir("{ path = \"out\" }"), plain_dir("out"));
    let bounded = dir("{ path = \"out\", quota = \"10GiB\", max-files = 1000, own-volume = true }");
    assert_eq!((bounded.quota, bounded.max_files, bounded.own_volume), (Some(10 << 30), Some(1000), true));
    assert!(said("output = \"out\"", "output = { quota = \"1GiB\" }").contains("[sinks.out.dirs.output] lacks `path`"));
    let typo = said("output = \"out\"", "output = { path = \"out\", qouta = \"1GiB\" }");
    assert!(typo.contains("did you mean `quota`?"), "{typo}");
    let small = said("output = \"out\"", "output = { path = \"out\", quota = \"1KiB\" }");
    assert!(small.contains("`quota` in [sinks.out.dirs.output] is"), "{small}");
}

#[test]
fn missing_keys_are_named_with_their_purpose() {
    assert_eq!(
        said("state = \"state\"\n", ""),
        "p.toml:2:2: [pipeline] lacks `state`: the directory of the log and the checkpoints, on a local disk\nhint: add \
         `state = …` with a path in quotes"
    );
    assert!(said_of("").contains("the top level lacks `pipeline`"));
}

#[test]
fn secrets_in_the_file_are_refused_without_repeating_them() {
    let said = said("[sinks.out.dirs]", "[sinks.out.secrets]\ntoken = \"canary-5d1f\"\n[sinks.out.dirs]");
    assert_eq!(
        said,
        "p.toml:15:1: `sinks.out.secrets.token` holds a value; a secret in this file would end up in backups and \
         version control\nhint: write token = { env = \"NAME\" } or token = { file = \"path\" }"
    );
    let broken = said_of("[sinks.out.secrets]\ntoken = \"canary-5d1f\" oops");
    assert!(broken.starts_with("p.toml:2:"), "{broken}");
    assert!(!broken.contains("canary"), "{broken}");
}

#[test]
fn contradictions_are_refused_in_words() {
    assert_eq!(
        said("format = \"json-lines\"", "format = \"json-lines\"\non-bad-row = \"dead-letter\""),
        "p.toml:6:10: [sources.flights] hands bad rows to the dead-letter sink, but there is no [dead-letter]\nhint: add \
         a table [dead-letter] with a plugin, or write on-bad-row = \"stop\""
    );
    let raw = GOOD.replace("\"json-lines\"", "\"raw\"");
    let keyed = raw.replace("[sinks.out.dirs]", "route = { key = \"carrier\" }\n[sinks.out.dirs]");
    assert!(said_of(&keyed).contains("routes by the field `carrier`, but the rows of source `flights` are raw"));
    assert!(said("[sinks.out]", "[sources.flights.csv]\n[sinks.out]").contains("the format is not csv"));
    assert!(
        said("[sinks.out]", "[sources.other]\nkind = \"generate\"\n[sinks.out]\nsources = [\"flights\"]")
            .contains("no sink takes the rows of source `other`")
    );
    assert!(said("[sinks.out.dirs]", "sources = [\"flihgts\"]\n[sinks.out.dirs]").contains("did you mean `flights`?"));
    assert!(said("output = \"out\"", "output = \"data\"").contains("would read what sink `out` writes"));
    assert!(said("output = \"out\"", "output = \"./state/x\"").contains("lie in each other"));
    for (glob, output) in [
        ("*/*.jsonl", "out"),
        ("[a-z]*/*/*.jsonl", "data/out"),
        ("data/{in,out}/*", "data/out"),
        ("data/*/*.json", "data"),
        ("**/*.jsonl", "out"),
        ("out/x.jsonl", "out"),
    ] {
        let edited = GOOD.replace("data/*.jsonl", glob).replace("\"out\"", &format!("\"{output}\""));
        assert!(said_of(&edited).contains("would read what sink `out` writes"), "{glob} and {output}");
    }
    let foldered = GOOD.replace("data/*.jsonl", "out/*/day=*/*.jsonl");
    let foldered =
        foldered.replace("[sinks.out.dirs]", "files = { folder = \"carrier={carrier}/day={day}/\" }\n[sinks.out.dirs]");
    assert!(said_of(&foldered).contains("would read what sink `out` writes"));
    for (glob, output) in [
        ("data/*/in/*.jsonl", "data/out"),
        ("data/in-*/*.jsonl", "data/out"),
        ("data/*.jsonl", "data/out"),
        ("*/*.jsonl", ".out"),
        ("data/in/**/*.jsonl", "data/out"),
    ] {
        let edited = GOOD.replace("data/*.jsonl", glob).replace("\"out\"", &format!("\"{output}\""));
        assert!(read(&edited).is_ok(), "{glob} and {output}");
    }
    let csv = GOOD.replace("\"json-lines\"", "\"csv\"");
    assert!(said_of(&format!("{csv}\n[sources.flights.csv]\nheader = false")).contains("nothing names the columns"));
    assert!(said_of(&format!("{csv}\n[sources.flights.csv]\ncolumns = [\"a\"]")).contains("header that names them"));
}

#[test]
fn broken_toml_is_told_with_its_place() {
    let said = said_of("[pipeline]\nname = \n");
    assert!(said.starts_with("p.toml:2:"), "{said}");
}

#[test]
fn every_default_and_table_can_be_read() {
    for table in TABLES {
        assert!(!table.about.is_empty());
        for key in table.keys {
            assert!(!key.about.is_empty(), "{}.{}", table.path, key.name);
            if let (Absent::Default(text), Shape::OneOf(words)) = (key.absent, key.shape) {
                assert!(words.contains(&text), "{}.{}", table.path, key.name);
            }
        }
    }
}

#[test]
fn files_that_are_no_text_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.toml");
    std::fs::write(&path, b"[pipeline]\nname = \"\xff\"").unwrap();
    let error = load(&path).unwrap_err();
    assert!(error.to_string().contains("line 2 is not UTF-8"), "{error}");
    let error = load(dir.path()).unwrap_err();
    assert!(error.to_string().contains("this is a directory"), "{error}");
    let error = load(&dir.path().join("absent.toml")).unwrap_err();
    assert!(error.unreadable && error.to_string().contains("cannot read the pipeline file"), "{error}");
}

#[test]
fn links_do_not_hide_a_state_directory_among_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    std::fs::create_dir(base.join("out")).unwrap();
    std::os::unix::fs::symlink("out", base.join("link")).unwrap();
    let text = |state: &str, paths: &str| {
        format!(
            "[pipeline]\nname = \"p\"\nstate = \"{state}\"\n[sources.in]\nkind = \"files\"\npaths = \
             [\"{paths}\"]\nformat = \"raw\"\n[sinks.out]\nplugin = \"builtin:files\"\n[sinks.out.dirs]\noutput = \"out\"\n"
        )
    };
    let said = |state: &str, paths: &str| match parse(&text(state, paths), Path::new("p.toml"), base) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert_eq!(said("state", "in/*"), "");
    assert_eq!(said("in/state", "in/*"), "");
    // One file may lie beside the state.
    for (state, paths) in [("state", "state/rows"), ("in", "in/*.jsonl"), ("state", "*/*.jsonl"), (".state", "**/*")] {
        assert!(!said(state, paths).contains("`state` in"), "{paths}");
    }
    for paths in ["st*/*", "state/*", "state/log/*.log", "*/log/*", "state/lock"] {
        let message = said("state", paths);
        assert!(message.starts_with("p.toml:3:9: `state` in [pipeline] is "), "{paths}: {message}");
        assert!(message.contains(&format!("`{paths}` of `paths` in [sources.in]")), "{message}");
    }
    assert!(said("link/state", "in/*").contains("lie in each other"));
}

#[test]
fn what_is_missing_is_said_once() {
    let error = parse("", Path::new("p.toml"), Path::new("/b")).unwrap_err().to_string();
    assert_eq!(error.matches("lacks `sources`").count(), 1, "{error}");
}

#[test]
fn what_nobody_can_write_is_not_asked_for() {
    let said = said_of("[pipeline]\nname = \"p\"\nstate = \"s\"\n");
    assert!(
        said.contains("hint: add a table [sources.NAME]") && said.contains("hint: add a table [sinks.NAME]"),
        "{said}"
    );
    assert!(said_of("").contains("hint: add a table [pipeline]"));
}

#[test]
fn what_is_out_of_range_is_repeated() {
    for (key, written) in [("interval", "\"48h\""), ("max-waiting", "0"), ("retain-count", "99999999999999999999999")] {
        let said = said("[sources.flights]", &format!("[checkpoint]\n{key} = {written}\n[sources.flights]"));
        assert!(said.contains(&format!("is {}, which is out of range", written.trim_matches('"'))), "{said}");
    }
    let said = said("format = ", "max-line = \"1GiB\"\nformat = ");
    assert!(said.contains("is 1GiB, which is out of range"), "{said}");
}

#[test]
fn keys_without_effect_are_refused() {
    let lost = "on-lost-rows = \"warn\"\nformat = ";
    assert!(said("format = ", lost).contains("p.toml:9:16: `on-lost-rows` in [sources.flights] has no effect without"));
    assert!(said("format = ", &format!("follow = false\n{lost}")).contains("no effect"));
    assert!(read(&GOOD.replace("format = ", &format!("follow = true\n{lost}"))).is_ok());
    let empty = said("[sinks.out.dirs]", "[sinks.out.transform.add]\nx = \"\"\n[sinks.out.dirs]");
    assert!(empty.contains("is an empty text, expected an SQL expression in quotes"), "{empty}");
}

#[test]
fn places_are_found_by_names_that_are_written_in_any_way() {
    let text = GOOD.replace("[sinks.out.dirs]\noutput = \"out\"", "dirs.output = \"out\"\nconfig = { a = 1 }");
    let places = read(&text).unwrap().places;
    let at = |path: &[&str]| places.at(&path.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(at(&["sinks", "out", "dirs", "output"]), Some((14, 15)));
    assert_eq!(at(&["sinks", "out", "config", "a"]), Some((15, 16)));
    // What is not there stands where it would be written.
    assert_eq!(at(&["sinks", "out", "transform", "filter"]), at(&["sinks", "out"]));
    assert_eq!((at(&["sinks", "out"]), at(&["dead-letter"])), (Some((11, 8)), None));
    assert_eq!(places.without_sources().at(&["sources".to_owned()]), None);
}

#[test]
fn what_is_quoted_from_a_file_is_shown_in_one_line_and_not_without_end() {
    let long = "é".repeat(100_000);
    let error = read(&GOOD.replace("\"json-lines\"", &format!("\"{long}\""))).unwrap_err();
    assert!(error.problems[0].message.len() <= 1000, "{} bytes", error.problems[0].message.len());
    assert!(error.problems[0].message.contains('…') && error.problems[0].message.contains("format"));
    let error = read(&GOOD.replace("\"json-lines\"", "\"a\\u001b[31mb\\nc\"")).unwrap_err();
    let message = &error.problems[0].message;
    assert!(!message.contains(char::is_control) && message.contains("u{1b}"), "{message}");
}
