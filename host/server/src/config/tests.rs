//! What people write wrong, and what they are told.

use super::*;

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
            commit_tries: 10
        }
    );
    let sink = &file.sinks[&SinkId::new("out").unwrap()];
    assert_eq!(sink.plugin, PluginRef::Builtin("files".into()));
    assert_eq!(sink.subtasks, 1);
    assert_eq!(sink.route, Route::RoundRobin);
    assert_eq!(sink.sources, [SourceId::new("flights").unwrap()]);
    assert_eq!(sink.dirs["output"], DirGrant { written: "out".into(), path: "/base/out".into() });
    assert_eq!(sink.limits, LimitsSection { memory: 256 << 20, call_time: Duration::from_secs(60) });
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
    assert_eq!(file.all_sinks().map(|(id, ..)| id.to_string()).collect::<Vec<_>>(), ["out", "rest", "dead-letter"]);
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
        "p.toml:13:12: `subtasks` in [sinks.out] is out of range, expected a whole number from 1 to 256"
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
    assert!(said("link/state", "in/*").contains("lie in each other"));
}

#[test]
fn what_is_missing_is_said_once() {
    let error = parse("", Path::new("p.toml"), Path::new("/b")).unwrap_err().to_string();
    assert_eq!(error.matches("lacks `sources`").count(), 1, "{error}");
}
