//! The checks that must find a planted bug, each started by itself and stopped at the first broken promise.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::copy::Build;

/// One way to look for broken promises.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) build: Build,
    pub(super) arguments: &'static [&'static str],
}

/// In the order in which they are tried where a mutant names no other.
pub(super) const CHECKS: [Check; 4] = [
    Check {
        name: "known-bugs",
        build: Build::Test("tidegate-simulation", "known_bugs"),
        arguments: &["--test-threads", "2", "--nocapture"],
    },
    Check {
        name: "simulate",
        build: Build::Program("tidegate-simulation"),
        arguments: &["simulate", "--seeds", "4000", "--threads", "2"],
    },
    Check { name: "model", build: Build::Program("tidegate-model"), arguments: &["--quick"] },
    Check {
        name: "sweep",
        build: Build::Program("tidegate-simulation"),
        arguments: &["sweep", "--quick", "--threads", "2"],
    },
];

/// No check takes longer: it has limits of its own, and a pipeline that goes round for ever must be found by them.
const LIMIT: Duration = Duration::from_secs(300);
/// So many lines of standard error are kept for a person.
const KEPT: usize = 12;

pub(super) fn is_known(name: &str) -> bool {
    CHECKS.iter().any(|check| check.name == name)
}

/// All checks, those that are named first.
pub(super) fn in_order(named: &[String]) -> Vec<&'static Check> {
    let first = named.iter().filter_map(|name| CHECKS.iter().find(|check| check.name == name));
    let rest = CHECKS.iter().filter(|check| !named.iter().any(|name| name == check.name));
    first.chain(rest).collect()
}

/// What a check made of the source as it is.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Nothing is wrong.
    Clean,
    /// A promise is broken: which, and the whole line.
    Broken { promise: String, line: String },
    /// It ended badly, or not at all, and told of no promise. That is no finding.
    Otherwise(String),
}

impl Check {
    pub(super) fn run(&self, program: &Path, folder: &Path) -> Result<Verdict> {
        let mut child = Command::new(program)
            .args(self.arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", program.display()))?;
        let verdict = self.watch(&mut child);
        // Whatever came of it, nothing stays behind.
        let _ = child.kill();
        let _ = child.wait();
        verdict
    }

    fn watch(&self, child: &mut Child) -> Result<Verdict> {
        let deadline = Instant::now() + LIMIT;
        let out = lines_of(child.stdout.take().context("its output is a pipe")?);
        let err = lines_of(child.stderr.take().context("its errors are a pipe")?);
        loop {
            match out.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(promise) = broken_promise(&line) {
                        return Ok(Verdict::Broken { promise, line });
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Ok(Verdict::Otherwise(format!("it did not end within {} s", LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait()?;
        if status.success() {
            return Ok(Verdict::Clean);
        }
        let said: Vec<String> = err.iter().collect();
        let tail = said[said.len().saturating_sub(KEPT)..].join("\n    ");
        Ok(Verdict::Otherwise(format!("it ended with {status} and told of no promise:\n    {tail}")))
    }
}

/// The promise that a line says is broken.
fn broken_promise(line: &str) -> Option<String> {
    // Within a test the line may begin with the test's name.
    let json = &line[line.find("{\"promise\"")?..];
    let value = serde_json::Deserializer::from_str(json).into_iter::<Value>().next()?.ok()?;
    let promise = value.get("promise")?.as_str()?;
    // The simulation tells of a panic as of a broken promise. Here a panic is none: what it shows is not what a user sees.
    if value.get("what").and_then(Value::as_str).is_some_and(|what| what.contains("panicked")) {
        return None;
    }
    let number: u32 = promise.strip_prefix('P')?.parse().ok()?;
    (1..=12).contains(&number).then(|| promise.to_owned())
}

/// Lines as they come; read by a thread, so that a full pipe holds nobody up.
fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        // A line longer than that is cut.
        while let Ok(1..) = reader.by_ref().take(1 << 20).read_until(b'\n', &mut line) {
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &'static str) -> Verdict {
        let arguments: &'static [&'static str] = Box::leak(Box::new(["-c", script]));
        let check = Check { name: "shell", build: Build::Program("none"), arguments };
        check.run(Path::new("/bin/sh"), Path::new("/")).expect("there is a shell")
    }

    #[test]
    fn only_a_broken_promise_is_a_finding() {
        assert!(matches!(shell("echo '{\"seeds\":3}'"), Verdict::Clean));
        assert!(matches!(shell("echo panicked >&2; exit 101"), Verdict::Otherwise(_)));
        assert!(matches!(shell("echo '{\"promise\":\"P13\"}'; exit 1"), Verdict::Otherwise(_)));
        let panicked = "echo '{\"promise\":\"P10\",\"what\":\"the host panicked: x\"}'; exit 1";
        assert!(matches!(shell(panicked), Verdict::Otherwise(_)));
        let Verdict::Broken { promise, .. } = shell("echo 'test a ... {\"promise\":\"P5\",\"seed\":1}'; sleep 1000")
        else {
            panic!("a promise was broken")
        };
        assert_eq!(promise, "P5");
    }

    #[test]
    fn every_check_is_tried_the_named_ones_first() {
        let order: Vec<_> = in_order(&["sweep".to_owned()]).iter().map(|check| check.name).collect();
        assert_eq!((order[0], order.len()), ("sweep", CHECKS.len()));
    }
}
