//! Whole pipelines through the library: what a second start with an edited file is told, and what becomes of finished
//! pipelines.

use std::path::Path;

use tidegate_server::{
    End, ErrorKind, Host, Report, RunOptions, ServerError, State, Verdict, assemble, config, validate,
};

struct Place {
    dir: tempfile::TempDir,
    host: Host,
}

const FILE: &str = r#"
[pipeline]
name = "rows"
state = "state"
[sources.made]
kind = "files"
paths = ["in/*.jsonl"]
format = "json-lines"
[sinks.out]
plugin = "builtin:files"
subtasks = 2
[sinks.out.dirs]
output = "out"
"#;

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        let place = Self { dir, host: Host::new(None).unwrap() };
        place.put("a", 100);
        place
    }

    fn put(&self, name: &str, rows: usize) {
        let text: String = (0..rows).map(|n| format!("{{\"file\":\"{name}\",\"n\":{n}}}\n")).collect();
        std::fs::write(self.dir.path().join(format!("in/{name}.jsonl")), text).unwrap();
    }

    fn file(&self, text: &str) -> config::PipelineFile {
        config::parse(text, Path::new("p.toml"), self.dir.path()).unwrap()
    }

    async fn run(&self, text: &str) -> Result<Report, ServerError> {
        assemble(&self.host, &self.file(text))?.open()?.run(RunOptions::default()).await
    }

    fn rows(&self, out: &str) -> usize {
        let Ok(entries) = std::fs::read_dir(self.dir.path().join(out)) else { return 0 };
        let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        files.map(|path| std::fs::read_to_string(path).unwrap().lines().count()).sum()
    }

    /// Verdict and message of everything that validating says.
    fn said(&self, text: &str) -> Vec<(Verdict, String)> {
        let validation = validate(&self.host, &self.file(text)).unwrap();
        validation.findings.into_iter().map(|finding| (finding.verdict, finding.message)).collect()
    }
}

fn edited(from: &str, to: &str) -> String {
    assert!(FILE.contains(from), "{from}");
    FILE.replacen(from, to, 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_pipeline_changes_nothing_or_takes_new_files() {
    let place = Place::new();
    let report = place.run(FILE).await.unwrap();
    assert_eq!((&report.end, report.was_finished), (&End::Finished, false));
    assert_eq!(place.rows("out"), 100);
    let report = place.run(FILE).await.unwrap();
    assert!(report.nothing_new(), "{report:?}");
    place.put("b", 50);
    let report = place.run(FILE).await.unwrap();
    assert_eq!((&report.end, report.was_finished, report.nothing_new()), (&End::Finished, true, false));
    assert_eq!((report.progress.rows_read, place.rows("out")), (50, 150));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_edit_between_runs_is_allowed_or_refused_in_words() {
    let place = Place::new();
    assert_eq!(place.said(FILE), []);
    place.run(FILE).await.unwrap();
    assert_eq!(place.said(FILE), []);

    let said = place.said(&edited("[sources.made]", "[sources.other]"));
    assert!(
        said.iter().any(|(v, m)| *v == Verdict::Refused && m.contains("`made` was renamed to `other`")),
        "{said:?}"
    );
    let error = place.run(&edited("[sources.made]", "[sources.other]")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused);

    let more = format!("{FILE}\n[sources.more]\nkind = \"generate\"\nrows = 10\n");
    let said = place.said(&more);
    assert!(said.contains(&(Verdict::Allowed, "source `more` is new: read from its beginning".into())), "{said:?}");

    let said = place.said(&edited("subtasks = 2", "subtasks = 3"));
    assert_eq!(said, [(Verdict::Allowed, "sink `out`: subtasks 2 → 3; writers divide the keys anew".into())]);

    let said = place.said(&edited("format = \"json-lines\"", "format = \"json-lines\"\ntasks = 2"));
    assert_eq!(said, [(Verdict::Allowed, "source `made`: tasks 1 → 2; partitions are dealt anew".into())]);

    let said = place.said(&edited("[sinks.out.dirs]", "[sinks.out.config]\nfile-prefix = \"x-\"\n[sinks.out.dirs]"));
    assert!(
        matches!(said.as_slice(), [(Verdict::Allowed, m)] if m.contains("counts from the next epoch on")),
        "{said:?}"
    );

    let said = place.said(&edited("output = \"out\"", "output = \"elsewhere\""));
    assert!(matches!(said.as_slice(), [(Verdict::Warning, m)] if m.contains("another destination")), "{said:?}");

    let said = place.said(&FILE.replace("sinks.out", "sinks.new"));
    assert!(said.iter().any(|(v, m)| *v == Verdict::Warning && m.contains("sink `out` was removed")), "{said:?}");
    assert!(said.iter().any(|(v, m)| *v == Verdict::Allowed && m.contains("sink `new` is new")), "{said:?}");

    let said = place.said(&edited("in/*.jsonl", "in/a*.jsonl"));
    assert!(matches!(said.as_slice(), [(Verdict::Allowed, m)] if m.contains("paths")), "{said:?}");

    let error = validate(&place.host, &place.file(&edited("\"rows\"", "\"others\""))).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weak_guarantee_is_refused_and_named() {
    let place = Place::new();
    let weak = FILE.replace("kind = \"files\"\npaths = [\"in/*.jsonl\"]", "kind = \"stdin\"");
    let error = place.run(&weak).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let (message, hints) = error.messages().remove(0);
    assert!(message.contains("asks for exactly-once"), "{message}");
    assert!(hints.iter().any(|hint| hint.contains("source `made` cannot be read again")), "{hints:?}");
    assert!(!place.dir.path().join("state").exists() && !place.dir.path().join("out").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn checking_a_pipeline_changes_nothing() {
    let place = Place::new();
    validate(&place.host, &place.file(FILE)).unwrap();
    let names: Vec<_> = std::fs::read_dir(place.dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["in"]);
    assert!(State::read(&place.file(FILE)).unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_and_grants_are_checked_in_words() {
    let place = Place::new();
    let said = |text: &str| {
        let error = assemble(&place.host, &place.file(text)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Config);
        let (message, hints) = error.messages().remove(0);
        format!("{message} | {}", hints.join(" | "))
    };
    assert!(said(&edited("builtin:files", "builtin:flies")).ends_with("did you mean `files`?"));
    assert!(said(&edited("builtin:files", "no.wasm")).contains("cannot read the plugin"));
    assert!(
        said(&edited("output = \"out\"", "outptu = \"out\"")).contains("add output = \"PATH\" to [sinks.out.dirs]")
    );
    let config = edited("[sinks.out.dirs]", "[sinks.out.config]\nfile-perfix = \"x\"\n[sinks.out.dirs]");
    let said = said(&config);
    assert!(said.contains("p.toml:13:1") && said.ends_with("did you mean `file-prefix`?"), "{said}");
    std::fs::write(place.dir.path().join("text.wasm"), "hello").unwrap();
    let error = assemble(&place.host, &place.file(&edited("builtin:files", "text.wasm"))).err().unwrap();
    assert!(error.to_string().contains("not a WebAssembly component"), "{error}");
}
