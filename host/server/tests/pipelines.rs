//! Whole pipelines through the library: what a second start with an edited file is told, and what becomes of finished
//! pipelines.

use std::path::Path;

use tidegate_protocol::ids::EpochRef;
use tidegate_protocol::record::{Blocked, Body, EpochOutcome, OutcomeEntry, Record};
use tidegate_server::{
    End, ErrorKind, Host, Report, Resolution, ResolveRequest, RunOptions, RuntimeOptions, ServerError, SinkId, State,
    SystemClock, Verdict, assemble, config, resolve, validate,
};
use tidegate_store::{LocalLog, Log, OpenOptions};

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
        let place = Self { dir, host: Host::with(RuntimeOptions::default()).unwrap() };
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

    /// Takes the log back to its newest seal, as if the process had been killed there, and has its commit blocked.
    fn block(&self) -> u64 {
        let state = State::read(&self.file(FILE)).unwrap().unwrap();
        let sealed = state.records.iter().rposition(|record| matches!(record.body, Body::Seal(_))).unwrap();
        let mut records = state.records[..=sealed].to_vec();
        let last = records[sealed].clone();
        let Body::Seal(seal) = &last.body else { unreachable!("it was looked for") };
        let of = EpochRef { run: last.run, epoch: seal.epoch };
        let outcome = EpochOutcome::Blocked(Blocked::TriesSpent("no answer".into()));
        let outcomes = vec![OutcomeEntry { sink: SinkId::new("out").unwrap(), of, attempt: 1, outcome }];
        records.push(Record { slot: last.slot.next(), outcomes, body: Body::Outcomes, ..last.clone() });
        let dir = self.dir.path().join("state");
        std::fs::remove_dir_all(&dir).unwrap();
        let mut log = LocalLog::open(&dir, OpenOptions::default()).unwrap();
        for record in &records {
            assert_eq!(log.append(record), tidegate_protocol::event::AppendResult::Created);
        }
        of.epoch.0
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
async fn a_source_that_is_removed_and_put_back_goes_on_where_it_was() {
    let place = Place::new();
    let more = format!("{FILE}\n[sources.more]\nkind = \"generate\"\nrows = 10\n");
    place.run(&more).await.unwrap();
    let validation = validate(&place.host, &place.file(FILE)).unwrap();
    assert_eq!(validation.findings[0].hints, ["its position is kept: put back under this name, it goes on behind it"]);
    for name in ["b", "c"] {
        place.put(name, 10);
        place.run(FILE).await.unwrap();
    }
    let said = place.said(&more);
    let back = (Verdict::Allowed, "source `more` is back: goes on behind its last position".to_owned());
    assert!(said.contains(&back), "{said:?}");
    place.run(&more).await.unwrap();
    assert_eq!(place.rows("out"), 130, "what it had read is not read again");
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
    let config = edited("[sinks.out.dirs]", "[sinks.out.config]\nextension = \"../x\"\n[sinks.out.dirs]");
    let error = assemble(&place.host, &place.file(&config)).err().unwrap();
    assert!(error.to_string().contains("expected a text that matches"), "{error}");
    std::fs::write(place.dir.path().join("text.wasm"), "hello").unwrap();
    let error = assemble(&place.host, &place.file(&edited("builtin:files", "text.wasm"))).err().unwrap();
    assert!(error.to_string().contains("not a WebAssembly component"), "{error}");
}

/// Another volume than that of temporary files; `None` where there is none.
fn another_volume(than: &Path) -> Option<tempfile::TempDir> {
    use std::os::unix::fs::MetadataExt as _;
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    let other = ["/dev/shm", "/run", "/tmp", "/var/tmp"].map(Path::new).into_iter();
    let mut other = other.filter(|path| device(path).is_some_and(|found| Some(found) != device(than)));
    other.find_map(|path| tempfile::tempdir_in(path).ok())
}

#[tokio::test]
async fn h37_a_directory_can_have_to_be_on_a_volume_of_its_own() {
    let place = Place::new();
    let grant = |path: &str| {
        edited("output = \"out\"", &format!("output = {{ path = \"{path}\", quota = \"1MiB\", own-volume = true }}"))
    };
    let file = place.file(&grant("out"));
    let checked = validate(&place.host, &file).unwrap().findings;
    assert!(checked.iter().any(|finding| finding.message.contains("on the same volume as the state")), "{checked:?}");
    let error = place.run(&grant("out")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("own-volume"), "{error}");
    assert!(!place.dir.path().join("out").exists(), "nothing was made");
    let Some(other) = another_volume(place.dir.path()) else {
        eprintln!("left out: there is one volume only");
        return;
    };
    let out = other.path().join("out");
    place.run(&grant(out.to_str().unwrap())).await.unwrap();
    assert_eq!(place.rows(out.to_str().unwrap()), 100);
}

#[tokio::test]
async fn h37_a_quota_that_is_spent_stops_the_sink_with_the_reason_and_a_larger_one_goes_on() {
    let place = Place::new();
    let grant =
        |quota: &str| edited("output = \"out\"", &format!("output = {{ path = \"out\", quota = \"{quota}\" }}"));
    place.put("b", 10_000);
    let end = place.run(&grant("64KiB")).await.unwrap().end;
    assert!(matches!(&end, End::Failed(why) if why.to_string().contains("quota exceeded")), "{end:?}");
    assert_eq!(place.run(&grant("16MiB")).await.unwrap().end, End::Finished);
    assert_eq!(place.rows("out"), 10_100);
}

fn request(epoch: u64, choice: Resolution) -> ResolveRequest {
    ResolveRequest { sink: SinkId::new("out").unwrap(), epoch, choice, by: "a person".into(), id: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_epoch_waits_for_a_decision_and_then_goes_on() {
    let place = Place::new();
    place.run(FILE).await.unwrap();
    let epoch = place.block();
    let file = place.file(FILE);
    let wrong = resolve(&file, &request(epoch + 7, Resolution::Retry), &SystemClock).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Config);
    assert_eq!(wrong.messages()[0].1, [format!("blocked at sink `out`: epoch {epoch}")]);

    let validation = validate(&place.host, &file).unwrap();
    let [blocked] = validation.blocked.as_slice() else { panic!("{validation:?}") };
    assert_eq!((blocked.sink.as_str(), blocked.epoch), ("out", epoch));
    let command = format!("tidegate resolve p.toml --sink out --epoch {epoch} --choice retry|give-up --by WHO");
    assert_eq!(blocked.command, command);
    assert!(validation.passed(), "{validation:?}");

    let resolved = resolve(&file, &request(epoch, Resolution::Retry), &SystemClock).unwrap();
    assert!(!resolved.again);
    assert_eq!(validate(&place.host, &file).unwrap().blocked, []);
    assert!(resolve(&file, &request(epoch, Resolution::Retry), &SystemClock).unwrap().again);
    // The destination had it all along; the repeated commit changes nothing.
    let report = place.run(FILE).await.unwrap();
    assert_eq!((&report.end, place.rows("out")), (&End::Finished, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_epoch_that_is_given_up_is_recorded_with_who_did_it() {
    let place = Place::new();
    place.run(FILE).await.unwrap();
    let epoch = place.block();
    let resolved = resolve(&place.file(FILE), &request(epoch, Resolution::GiveUp), &SystemClock).unwrap();
    let state = State::read(&place.file(FILE)).unwrap().unwrap();
    assert_eq!(state.history.decisions()[&resolved.id].decision.by, "a person");
    assert_eq!(state.checkpoints().last().unwrap().sinks[&SinkId::new("out").unwrap()].state, "given-up");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_unfinished_epochs_sink_and_grants_must_stay() {
    let place = Place::new();
    place.run(FILE).await.unwrap();
    place.block();
    let refused = |text: &str, words: &str| {
        let said = place.said(text);
        assert!(said.iter().any(|(v, m)| *v == Verdict::Refused && m.contains(words)), "{said:?}");
    };
    refused(&FILE.replace("sinks.out", "sinks.new"), "sink `out` was removed or renamed, and has not finished epoch");
    refused(&edited("output = \"out\"", "output = \"elsewhere\""), "staged in the old one");
    let error = place.run(&FILE.replace("sinks.out", "sinks.new")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_inferred_columns_is_refused_before_a_run() {
    let place = Place::new();
    for (sink, words) in [
        ("transform = { filter = \"nn > 1\" }", "the nearest is n"),
        ("columns = [\"_epoch\"]\ntransform = { rename = { n = \"_epoch\" } }", "_epoch"),
        ("files = { folder = \"file={fil}/\" }", "the nearest is file"),
        ("route = { key = \"m\" }\nformat = \"parquet\"", "route.key"),
    ] {
        let text = FILE.replace("subtasks = 2", &format!("subtasks = 2\n{sink}"));
        let found = validate(&place.host, &place.file(&text)).unwrap();
        let refused = found.findings.iter().find(|finding| finding.verdict == Verdict::Refused);
        assert!(refused.is_some_and(|finding| finding.message.contains(words)), "{sink}: {:?}", found.findings);
        assert!(place.run(&text).await.unwrap().end != End::Finished, "{sink}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipelines_plugins_are_charged_to_its_tenant_and_give_everything_back() {
    let mut place = Place::new();
    let text = "[host]\nmemory = \"2GiB\"\n[tenants.acme]\n[tenants.bolt]\n";
    let host_file = config::parse_host(text, Path::new("host.toml")).unwrap();
    place.host = Host::with_tenants(RuntimeOptions::default(), Some(&host_file)).unwrap();
    let of_acme = edited("name = \"rows\"", "name = \"rows\"\ntenant = \"acme\"");
    let report = place.run(&of_acme).await.unwrap();
    assert_eq!((&report.end, place.rows("out")), (&End::Finished, 100));
    let tenants = place.host.tenants();
    let [acme, bolt] = &tenants[..] else { panic!("{tenants:?}") };
    let usage = acme.usage();
    assert!(usage.held["instances"].most >= 3 && usage.held["memory"].most > 0, "{usage:?}");
    assert!(!usage.cpu_time.is_zero() && usage.faults.is_empty(), "{usage:?}");
    assert_eq!(bolt.usage().held.get("instances"), None);
    // Threads of instances end on their own.
    while acme.held("instances") + acme.held("memory") > 0 {
        tokio::task::yield_now().await;
    }
    // Which tenant it is says nothing of the graph.
    let of_bolt = edited("name = \"rows\"", "name = \"rows\"\ntenant = \"bolt\"\nguarantee = \"exactly-once\"");
    assert_eq!(place.said(&of_bolt), []);
    let more = edited("subtasks = 2", "subtasks = 2\nlimits = { memory = \"1MiB\", call-time = \"5s\" }");
    let more = more.replace("name = \"rows\"", "name = \"rows\"\ntenant = \"acme\"");
    let error = validate(&place.host, &place.file(&more)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("`memory` an instance begins with"), "{error}");
}
