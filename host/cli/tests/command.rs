//! The command as a process: exit codes, signals, closed pipes, output for people and machines.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Slow enough for many epochs.
const FINITE: &str = "seed = 1\nrows = 20000\npartitions = 2\nrate = 50000";
const ENDLESS: &str = "seed = 1\nrate = 20000";
/// No process takes longer; one that does hangs.
const PATIENCE: Duration = Duration::from_secs(120);

struct Place(tempfile::TempDir);

impl Place {
    fn new(source: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let text = format!(
            "[pipeline]\nname = \"p\"\nstate = \"state\"\n[checkpoint]\ninterval = \"20ms\"\n[sources.made]\nkind = \
             \"generate\"\n{source}\n[sinks.out]\nplugin = \"builtin:files\"\ndirs = {{ output = \"out\" }}\n"
        );
        std::fs::write(place.path().join("p.toml"), text).unwrap();
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // Where the tests run under `nohup`, they would hand on that a hang-up is ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_tidegate")]);
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command
            .env("TIDEGATE_CACHE_DIR", self.path().join("cache"))
            .env_remove("TIDEGATE_LOG")
            .env_remove("TIDEGATE_HOST");
        command
    }

    fn tidegate(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a process and waits until a line of its talk begins with `until`.
    fn start(&self, arguments: &[&str], until: &str) -> Running {
        let mut child = self.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let talk = BufReader::new(child.stderr.take().unwrap());
        let mut running = Running { child, talk };
        running.wait_for(until);
        running
    }

    fn rows(&self) -> usize {
        let files = std::fs::read_dir(self.path().join("out")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap().lines().count()).sum()
    }
}

struct Running {
    child: Child,
    talk: BufReader<ChildStderr>,
}

impl Running {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait_for(&mut self, until: &str) {
        let mut seen = String::new();
        let mut last = 0;
        while !seen[last..].starts_with(until) {
            last = seen.len();
            assert!(self.talk.read_line(&mut seen).unwrap() > 0, "ended without saying `{until}`:\n{seen}");
        }
    }

    fn end(mut self) -> (Option<i32>, String) {
        let (sender, read) = mpsc::channel();
        std::thread::spawn(move || {
            let mut rest = String::new();
            let _ = self.talk.read_to_string(&mut rest);
            let _ = sender.send(rest);
        });
        let Ok(rest) = read.recv_timeout(PATIENCE) else {
            self.child.kill().unwrap();
            panic!("did not end");
        };
        (self.child.wait().unwrap().code(), rest)
    }
}

fn talk(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn wrong_command_lines_and_files_end_with_2_and_a_hint() {
    let place = Place::new("sede = 1");
    assert_eq!(place.tidegate(&["launch"]).status.code(), Some(2));
    assert_eq!(place.tidegate(&["run"]).status.code(), Some(2));
    let output = place.tidegate(&["run", "p.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        talk(&output),
        "error: p.toml:8:1: unknown key `sede` in [sources.made]\nhint: did you mean `seed`?\nhint: `tidegate config reference` lists every key\n"
    );
    assert!(output.stdout.is_empty());
    let help = place.tidegate(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8(help.stdout).unwrap().contains("Exit codes:"));
}

#[test]
fn a_host_file_is_given_by_option_or_environment_and_says_who_is_a_tenant() {
    let place = Place::new("seed = 1\nrows = 10");
    let write = |name: &str, text: &str| std::fs::write(place.path().join(name), text).unwrap();
    write("good.toml", "[tenants.default]\n");
    write("other.toml", "[tenants.acme]\n");
    write("small.toml", "[host]\nmemory = \"512MiB\"\n[tenants.default]\n");
    write("full.toml", "[host]\ncpu-millis = 100\n[tenants.a]\ncpu-millis = 60\n[tenants.b]\ncpu-millis = 50\n");
    for (host, words) in [
        (
            "other.toml",
            "error: the pipeline names no tenant, and other.toml has no tenant `default`\nhint: known are: `acme`",
        ),
        (
            "small.toml",
            "of `memory` up to 768 MiB are needed, and tenant `default` has 512 MiB\nhint: sink `out`: 3 instances",
        ),
        (
            "full.toml",
            "full.toml:3:2: `cpu-millis` of all tenants comes to 110 (a 60, b 50); [host] has 100\nhint: lower",
        ),
        ("none.toml", "none.toml: cannot read the host file"),
    ] {
        for output in [
            place.tidegate(&["validate", "p.toml", "--host", host]),
            place.command(&["run", "p.toml"]).env("TIDEGATE_HOST", host).output().unwrap(),
        ] {
            assert_eq!(output.status.code(), Some(2), "{host}: {}", talk(&output));
            assert!(talk(&output).replace("p.toml:1:2: ", "").contains(words), "{host}: {}", talk(&output));
        }
    }
    let output =
        place.command(&["run", "p.toml", "--host", "good.toml"]).env("TIDEGATE_HOST", "none.toml").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    assert_eq!(place.rows(), 10);
}

#[test]
fn data_is_json_on_standard_output_and_talk_is_not() {
    let place = Place::new(FINITE);
    let output = place.tidegate(&["run", "p.toml", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.first().unwrap()["event"], "start");
    assert_eq!(lines.first().unwrap()["guarantee"]["delivery"], "exactly-once");
    let end = lines.last().unwrap();
    assert_eq!((&end["event"], &end["result"], &end["exit"]), (&"end".into(), &"finished".into(), &0.into()));
    assert_eq!(end["progress"]["rows-committed"]["out"], 20_000);
    assert_eq!(place.rows(), 20_000);
    for arguments in [
        ["checkpoint", "list", "p.toml", "--json"].as_slice(),
        &["checkpoint", "show", "p.toml", "--json"],
        &["checkpoint", "verify", "p.toml", "--json"],
        &["ledger", "p.toml", "--json"],
        &["validate", "p.toml", "--json"],
        &["plugin", "inspect", "builtin:files", "--json"],
    ] {
        let output = place.tidegate(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", talk(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
    }
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let place = Place::new(FINITE);
    for arguments in [["run", "p.toml", "--json"].as_slice(), &["validate", "p.toml"], &["--help"]] {
        let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().unwrap().code(), Some(0), "{arguments:?}");
    }
    assert_eq!(place.rows(), 20_000);
}

#[test]
fn a_signal_stops_with_everything_committed() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = Place::new(ENDLESS);
        let running = place.start(&["run", "p.toml"], "run 1 begins");
        running.signal(signal);
        let (code, rest) = running.end();
        assert_eq!(code, Some(0), "{rest}");
        assert!(rest.contains("stopped: everything that was sealed is committed"), "{rest}");
    }
}

#[test]
fn a_hang_up_is_ignored_under_nohup() {
    let place = Place::new(FINITE);
    let mut command = Command::new("sh");
    let script = format!("trap '' HUP; exec '{}' run p.toml", env!("CARGO_BIN_EXE_tidegate"));
    command.args(["-c", &script]).current_dir(place.path()).stdin(Stdio::null()).stdout(Stdio::null());
    command.env("TIDEGATE_CACHE_DIR", place.path().join("cache")).env_remove("TIDEGATE_LOG");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let talk = BufReader::new(child.stderr.take().unwrap());
    let mut running = Running { child, talk };
    running.wait_for("run 1 begins");
    running.signal(Signal::HUP);
    let (code, rest) = running.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(!rest.contains("stop"), "{rest}");
    assert_eq!(place.rows(), 20_000);
}

#[test]
fn a_second_interrupt_leaves_at_once_and_loses_nothing() {
    let place = Place::new(FINITE);
    let mut running = place.start(&["run", "p.toml", "--hold-at", "sealed:2"], "held sealed");
    running.signal(Signal::INT);
    running.wait_for("stopping:");
    running.signal(Signal::INT);
    let (code, rest) = running.end();
    assert_eq!(code, Some(130), "{rest}");
    assert_eq!(place.tidegate(&["run", "p.toml", "--lose-commit-answers", "2"]).status.code(), Some(0));
    assert_eq!(place.rows(), 20_000);
}

#[test]
fn a_running_pipeline_has_one_owner_and_can_be_looked_at() {
    let place = Place::new(FINITE);
    let mut running = place.start(&["run", "p.toml", "--hold-at", "sent:2"], "held sent");
    let resolve = ["resolve", "p.toml", "--sink", "out", "--epoch", "1", "--choice", "retry", "--by", "me"];
    for arguments in [["run", "p.toml"].as_slice(), &resolve] {
        let output = place.tidegate(arguments);
        assert_eq!(output.status.code(), Some(6), "{}", talk(&output));
        assert!(talk(&output).contains(&format!("process {}", running.child.id())), "{}", talk(&output));
    }
    for arguments in [["checkpoint", "list", "p.toml"].as_slice(), &["ledger", "p.toml"], &["validate", "p.toml"]] {
        assert_eq!(place.tidegate(arguments).status.code(), Some(0), "{arguments:?}");
    }
    running.child.kill().unwrap();
    running.end();
    let output = place.tidegate(&resolve);
    assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
    assert!(talk(&output).contains("is not blocked at sink `out`"), "{}", talk(&output));
}

#[test]
fn a_lost_state_directory_is_refused_until_a_policy_is_chosen() {
    let place = Place::new(FINITE);
    assert_eq!(place.tidegate(&["run", "p.toml"]).status.code(), Some(0));
    std::fs::remove_dir_all(place.path().join("state")).unwrap();
    let output = place.tidegate(&["run", "p.toml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(talk(&output).contains("hint: --accept out=accept-duplicates"), "{}", talk(&output));
    assert_eq!(place.rows(), 20_000);
    let accept = ["run", "p.toml", "--accept", "out=accept-duplicates", "--by", "test"];
    assert_eq!(place.tidegate(&accept).status.code(), Some(0));
    assert_eq!(place.rows(), 40_000);
}

#[test]
fn the_same_wish_to_go_back_is_carried_out_once() {
    let place = Place::new(FINITE);
    assert_eq!(place.tidegate(&["run", "p.toml"]).status.code(), Some(0));
    let list = place.tidegate(&["checkpoint", "list", "p.toml", "--json"]);
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    let list = list.as_array().unwrap();
    assert!(list.len() >= 2, "{list:?}");
    let (last, before) = (&list[list.len() - 1], &list[list.len() - 2]);
    let from = before["epoch"].to_string();
    let back = ["run", "p.toml", "--from", &from, "--accept", "out=accept-duplicates"];
    let again = 20_000 + usize::try_from(last["rows"].as_u64().unwrap()).unwrap();
    for _ in 0..2 {
        let output = place.tidegate(&back);
        assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
        assert_eq!(place.rows(), again);
    }
}

impl Place {
    fn json(&self, arguments: &[&str]) -> (Option<i32>, Vec<serde_json::Value>) {
        let output = self.tidegate(arguments);
        let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        (output.status.code(), values.collect::<Result<_, _>>().unwrap())
    }
}

#[test]
fn standard_input_runs_with_the_guarantee_that_the_hint_names() {
    let place = Place::new("");
    let file = place.path().join("p.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace("\"generate\"", "\"stdin\"\nformat = \"json-lines\"");
    std::fs::write(&file, &text).unwrap();
    for wanted in ["exactly-once", "at-least-once"] {
        let asks = format!("name = \"p\"\nguarantee = \"{wanted}\"");
        std::fs::write(&file, text.replace("name = \"p\"", &asks)).unwrap();
        let output = place.tidegate(&["run", "p.toml"]);
        assert_eq!(output.status.code(), Some(3));
        let hint = "hint: write guarantee = \"at-most-once\" in [pipeline] if that is enough";
        assert!(talk(&output).contains(hint), "{}", talk(&output));
    }
    let mut rows = 0;
    for wanted in ["at-most-once", "best-effort"] {
        let asks = format!("name = \"p\"\nguarantee = \"{wanted}\"");
        std::fs::write(&file, text.replace("name = \"p\"", &asks)).unwrap();
        assert_eq!(place.tidegate(&["validate", "p.toml"]).status.code(), Some(0));
        let mut child = place.command(&["run", "p.toml"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"{\"n\":1}\n{\"n\":2}\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
        rows += 2;
        assert_eq!(place.rows(), rows, "{}", talk(&output));
    }
}

#[test]
fn early_errors_are_objects_for_machines_too() {
    let place = Place::new("sede = 1");
    for (arguments, event) in [
        (["run", "p.toml", "--json"].as_slice(), "end"),
        (&["validate", "p.toml", "--json"], "error"),
        (&["checkpoint", "list", "p.toml", "--json"], "error"),
        (&["ledger", "none.toml", "--json"], "error"),
        (&["plugin", "inspect", "p.toml", "--json"], "error"),
    ] {
        let (code, values) = place.json(arguments);
        assert_eq!((code, values.len()), (Some(2), 1), "{arguments:?}");
        assert_eq!((&values[0]["event"], &values[0]["exit"]), (&event.into(), &2.into()), "{arguments:?}");
        assert!(values[0]["errors"][0]["message"].is_string());
    }
}

#[test]
fn keys_for_machines_have_one_spelling() {
    let place = Place::new(FINITE);
    let (_, run) = place.json(&["run", "p.toml", "--json"]);
    let (_, inspected) = place.json(&["plugin", "inspect", "builtin:files", "--json"]);
    assert!(run[0]["guarantee"]["survives-second-host"].is_boolean(), "{run:?}");
    assert_eq!(run.last().unwrap()["progress"]["epochs-committed"], run.last().unwrap()["progress"]["epochs-sealed"]);
    assert!(inspected[0]["description"]["abilities"]["atomic-scope"].is_string(), "{inspected:?}");
    assert_eq!(inspected[0]["imports-not-asked-for"], serde_json::json!([]), "it imports no more than it asks for");
    let text = format!("{run:?}{}", inspected[0]["description"]["abilities"]);
    assert!(!text.contains("_scope") && !text.contains("_second"), "{text}");
}

#[test]
fn data_that_cannot_be_printed_is_a_failure() {
    let place = Place::new(FINITE);
    assert_eq!(place.tidegate(&["run", "p.toml"]).status.code(), Some(0));
    for arguments in [
        ["checkpoint", "list", "p.toml"].as_slice(),
        &["ledger", "p.toml", "--json"],
        &["run", "p.toml", "--json"],
        &["config", "reference"],
        &["--help"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.command(arguments).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", talk(&output));
        assert_eq!(talk(&output).matches("error: standard output cannot be written").count(), 1, "{}", talk(&output));
    }
}

#[test]
fn the_reference_is_printed() {
    let place = Place::new(FINITE);
    let output = place.tidegate(&["config", "reference"]);
    assert_eq!((output.status.code(), talk(&output).as_str()), (Some(0), ""));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
    assert!(text.contains("# on-bad-row: ") && text.contains("at-most-once"), "{text}");
}

#[test]
fn every_decision_is_told_what_became_of_it() {
    let place = Place::new(FINITE);
    let accept = ["run", "p.toml", "--accept", "out=accept-loss", "--json"];
    let fate = |values: &[serde_json::Value]| values.last().unwrap()["decisions"][0]["fate"].clone();
    let (code, values) = place.json(&accept);
    assert_eq!((code, fate(&values)), (Some(0), "not-needed".into()));
    std::fs::remove_dir_all(place.path().join("out")).unwrap();
    let output = place.tidegate(&accept[..4]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    let applied = "--accept out=accept-loss: applied, recorded as decision `accept-out-accept-loss`";
    assert!(talk(&output).contains(applied), "{}", talk(&output));
    let (code, values) = place.json(&accept);
    assert_eq!((code, fate(&values)), (Some(0), "used-before".into()));
}

#[test]
fn a_decision_that_cannot_help_is_not_passed_over() {
    let place = Place::new(FINITE);
    assert_eq!(place.tidegate(&["run", "p.toml"]).status.code(), Some(0));
    std::fs::remove_dir_all(place.path().join("state")).unwrap();
    let wrong = place.tidegate(&["run", "p.toml", "--accept", "out=accept-loss"]);
    assert_eq!(wrong.status.code(), Some(3));
    assert!(talk(&wrong).contains("hint: --accept out=accept-loss does not fit this"), "{}", talk(&wrong));
    let accept = ["run", "p.toml", "--accept", "out=accept-duplicates"];
    assert_eq!(place.tidegate(&accept).status.code(), Some(0));
    // The same loss of state again, under the log of the first acceptance: the id is spent.
    let newest = place.json(&["checkpoint", "list", "p.toml", "--json"]).1.remove(0);
    let first = newest.as_array().unwrap()[0]["epoch"].to_string();
    let back = ["run", "p.toml", "--from", &first, "--accept", "out=accept-duplicates"];
    let output = place.tidegate(&back);
    assert_eq!(output.status.code(), Some(3), "{}", talk(&output));
    let said = talk(&output);
    assert!(said.contains("decision `accept-out-accept-duplicates` was used before"), "{said}");
    assert!(said.contains(&format!("the run would go back to epoch {first}")), "{said}");
    assert!(said.contains("--decision-id with a new id"), "{said}");
}

#[test]
fn input_that_no_longer_fits_is_refused_by_every_command() {
    let place = Place::new("");
    let file = place.path().join("p.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let files = "\"files\"\npaths = [\"in.txt\"]\nformat = \"raw\"\nrate = 200";
    std::fs::write(&file, text.replace("\"generate\"", files)).unwrap();
    std::fs::write(place.path().join("in.txt"), "row\n".repeat(20_000)).unwrap();
    let mut running = place.start(&["run", "p.toml", "--hold-at", "sealed:3"], "held sealed");
    running.child.kill().unwrap();
    running.end();
    std::fs::write(place.path().join("in.txt"), "other\n").unwrap();
    for command in ["validate", "run"] {
        let output = place.tidegate(&[command, "p.toml"]);
        assert_eq!(output.status.code(), Some(3), "{command}: {}", talk(&output));
    }
    assert_eq!(place.json(&["run", "p.toml", "--json"]).1.last().unwrap()["result"], "refused");
}
