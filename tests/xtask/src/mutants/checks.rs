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
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) build: Build,
    pub(crate) arguments: &'static [&'static str],
    /// What its summary counts: a number behind these words. Without it nothing was looked at.
    pub(crate) counts: &'static str,
}

/// In the order in which they are tried where a mutant names no other.
pub(crate) const CHECKS: [Check; 4] = [
    Check {
        name: "known-bugs",
        build: Build::Test("tidegate-simulation", "known_bugs"),
        arguments: &["--test-threads", "2", "--nocapture"],
        counts: "test result: ok. ",
    },
    Check {
        name: "simulate",
        build: Build::Program("tidegate-simulation"),
        arguments: &["simulate", "--seeds", "999", "--threads", "2"],
        counts: "\"seeds\":",
    },
    Check { name: "model", build: Build::Program("tidegate-model"), arguments: &["--quick"], counts: "\"states\":" },
    Check {
        name: "sweep",
        build: Build::Program("tidegate-simulation"),
        arguments: &["sweep", "--threads", "2"],
        counts: "\"recoveries\":",
    },
];

/// No check takes longer: it has limits of its own, and a pipeline that goes round for ever must be found by them.
const LIMIT: Duration = Duration::from_secs(600);
/// What one failure breaks is told in several lines; so long the one that was expected is waited for.
const GRACE: Duration = Duration::from_millis(300);
/// So many lines of standard error are kept for a person.
const KEPT: usize = 12;

/// The name of a check, as an argument.
pub(crate) fn known(name: &str) -> Result<String, String> {
    let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    if is_known(name) { Ok(name.to_owned()) } else { Err(format!("there are: {}", names.join(", "))) }
}

pub(crate) fn is_known(name: &str) -> bool {
    CHECKS.iter().any(|check| check.name == name)
}

/// All checks, those that are named first.
pub(crate) fn in_order(named: &[String]) -> Vec<&'static Check> {
    let first = named.iter().filter_map(|name| CHECKS.iter().find(|check| check.name == name));
    let rest = CHECKS.iter().filter(|check| !named.iter().any(|name| name == check.name));
    first.chain(rest).collect()
}

/// What a check made of the source as it is.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing is wrong.
    Clean,
    /// A promise is broken: which, and the whole line.
    Broken { promise: String, line: String },
    /// It ended badly, or not at all, and told of no promise. That is no finding.
    Otherwise(String),
}

impl Check {
    /// Of several promises that are broken at once, the one that was `expected` is told.
    pub(crate) fn run(&self, program: &Path, folder: &Path, expected: &str) -> Result<Verdict> {
        let mut child = Command::new(program)
            .args(self.arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{}`", program.display()))?;
        let verdict = self.watch(&mut child, expected);
        // Whatever came of it, nothing stays behind.
        let _ = child.kill();
        let _ = child.wait();
        verdict
    }

    fn watch(&self, child: &mut Child, expected: &str) -> Result<Verdict> {
        let deadline = Instant::now() + LIMIT;
        let out = lines_of(child.stdout.take().context("its output is a pipe")?);
        let err = lines_of(child.stderr.take().context("its errors are a pipe")?);
        let mut counted = 0;
        loop {
            match out.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(promise) = broken_promise(&line) {
                        let others = std::iter::from_fn(|| out.recv_timeout(GRACE).ok());
                        let others = others.filter_map(|line| Some((broken_promise(&line)?, line)));
                        let (promise, line) = std::iter::once((promise, line))
                            .chain(others.take(20))
                            .reduce(
                                |first, other| if first.0 != expected && other.0 == expected { other } else { first },
                            )
                            .unwrap_or_default();
                        return Ok(Verdict::Broken { promise, line });
                    }
                    counted = counted.max(self.count(&line));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Ok(Verdict::Otherwise(format!("it did not end within {} s", LIMIT.as_secs())));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait()?;
        if status.success() && counted > 0 {
            return Ok(Verdict::Clean);
        }
        let said: Vec<String> = err.iter().collect();
        let tail = said[said.len().saturating_sub(KEPT)..].join("\n    ");
        Ok(Verdict::Otherwise(format!("it ended with {status}, counted {counted} and told of no promise:\n    {tail}")))
    }
}

impl Check {
    /// What a line says was looked at.
    fn count(&self, line: &str) -> u64 {
        let Some(at) = line.find(self.counts) else { return 0 };
        let digits = line[at + self.counts.len()..].bytes().take_while(u8::is_ascii_digit);
        digits.fold(0, |n: u64, digit| n.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    }
}

/// The promise that a line says is broken.
fn broken_promise(line: &str) -> Option<String> {
    // Within a test the line may begin with the test's name.
    let json = &line[line.find("{\"")?..];
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
        let check = Check { name: "shell", build: Build::Program("none"), arguments, counts: "\"seeds\":" };
        check.run(Path::new("/bin/sh"), Path::new("/"), "P2").expect("there is a shell")
    }

    #[test]
    fn only_a_broken_promise_is_a_finding() {
        assert!(matches!(shell("echo '{\"seeds\":3}'"), Verdict::Clean));
        assert!(matches!(shell("echo '{\"seeds\":0}'"), Verdict::Otherwise(_)));
        assert!(matches!(shell("true"), Verdict::Otherwise(_)));
        assert!(matches!(shell("echo panicked >&2; exit 101"), Verdict::Otherwise(_)));
        assert!(matches!(shell("echo '{\"promise\":\"P13\"}'; exit 1"), Verdict::Otherwise(_)));
        let panicked = "echo '{\"promise\":\"P10\",\"what\":\"the host panicked: x\"}'; exit 1";
        assert!(matches!(shell(panicked), Verdict::Otherwise(_)));
        let later = shell("echo '{\"again\":\"sweep\",\"promise\":\"P6\",\"what\":[\"x\"]}'; exit 1");
        assert!(matches!(later, Verdict::Broken { promise, .. } if promise == "P6"), "whatever its keys' order");
        let Verdict::Broken { promise, .. } = shell("echo 'test a ... {\"promise\":\"P5\",\"seed\":1}'; sleep 1000")
        else {
            panic!("a promise was broken")
        };
        assert_eq!(promise, "P5");
        let two = shell("echo '{\"promise\":\"P10\"}'; echo '{\"promise\":\"P2\"}'; exit 1");
        assert!(matches!(two, Verdict::Broken { promise, .. } if promise == "P2"));
    }

    #[test]
    fn every_check_is_tried_the_named_ones_first() {
        let order: Vec<_> = in_order(&["sweep".to_owned()]).iter().map(|check| check.name).collect();
        assert_eq!((order[0], order.len()), ("sweep", CHECKS.len()));
    }
}
