//! Fuzzing of everything that parses: builds `tests/fuzz` with coverage, replays each target's corpus, and fuzzes it.
//!
//! The crates of this workspace are instrumented, and nothing that they depend on: so those are the ones that the tests were
//! built with. What is found goes to a folder of its own, so that a run changes nothing in the repository; `--keep` adds
//! to the corpora what covers more than they did.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::figure::{Figure, Figures, Op};
use crate::product::target_directory;

/// Targets that are fuzzed at one time.
const AT_ONCE: usize = 2;
/// Longest input that is kept, in bytes.
const LONGEST: u64 = 64 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How long each target is fuzzed.
    #[arg(long, default_value_t = 60, value_parser = crate::arguments::some::<u64>)]
    seconds: u64,
    /// Only these targets.
    #[arg(long)]
    target: Vec<String>,
    /// Adds what covers more to `tests/fuzz/corpus`.
    #[arg(long)]
    keep: bool,
}

/// What came of one target.
struct Fuzzed {
    target: String,
    executions: u64,
    /// Input that broke a promise, if one did.
    crash: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let corpora = crate::workspace().join("tests/fuzz/corpus");
    let targets = targets(&corpora, &arguments.target)?;
    let began = Instant::now();
    let fuzzer = build()?;
    let built = began.elapsed();
    let waiting = Mutex::new(targets.iter());
    let finished = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                    let Some(target) = next else { break };
                    let fuzzed = fuzz(&fuzzer, &corpora, target, arguments);
                    finished.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(fuzzed);
                }
            });
        }
    });
    let finished = finished.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let finished: Vec<Fuzzed> = finished.into_iter().collect::<Result<_>>()?;
    show(&finished, targets.len(), built, began.elapsed())
}

fn show(finished: &[Fuzzed], targets: usize, built: Duration, all: Duration) -> Result<()> {
    let mut figures = Figures::default();
    for fuzzed in finished {
        eprintln!("{}: {} executions", fuzzed.target, fuzzed.executions);
        if let Some(crash) = &fuzzed.crash {
            eprintln!("{}: broken by {crash}", fuzzed.target);
        }
        // A target that ran nothing would be a check that cannot fail.
        figures.show(Figure::new(
            format!("fuzz-executions-{}", fuzzed.target),
            fuzzed.executions as f64,
            Op::AtLeast,
            100.0,
        ))?;
    }
    let executions: u64 = finished.iter().map(|fuzzed| fuzzed.executions).sum();
    let crashes = finished.iter().filter(|fuzzed| fuzzed.crash.is_some()).count();
    figures.show(Figure::new("fuzz-targets", finished.len() as f64, Op::Exactly, targets as f64))?;
    figures.show(Figure::new("fuzz-executions", executions as f64, Op::AtLeast, 1000.0 * targets as f64))?;
    figures.show(Figure::new("fuzz-crashes", crashes as f64, Op::Exactly, 0.0))?;
    figures.show(Figure::new("fuzz-build-seconds", built.as_secs_f64(), Op::AtMost, 1800.0))?;
    figures.show(Figure::new("fuzz-seconds", all.as_secs_f64(), Op::AtMost, 7200.0))?;
    figures.verdict()
}

/// All targets, as their corpora are called, or those that are asked for.
fn targets(corpora: &Path, wanted: &[String]) -> Result<Vec<String>> {
    let listed = std::fs::read_dir(corpora).with_context(|| format!("cannot list `{}`", corpora.display()))?;
    let mut known: Vec<String> =
        listed.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<std::io::Result<_>>()?;
    known.sort();
    for name in wanted {
        ensure!(known.contains(name), "there is no target `{name}`; there are: {}", known.join(", "));
    }
    let chosen: Vec<String> = known.into_iter().filter(|name| wanted.is_empty() || wanted.contains(name)).collect();
    ensure!(!chosen.is_empty(), "there is no target");
    Ok(chosen)
}

fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", "tidegate-fuzz", "--features", "tidegate-fuzz/libfuzzer"])
        .env("RUSTC_WORKSPACE_WRAPPER", crate::workspace().join("tests/fuzz/rustc-with-coverage.sh"))
        // Of our own crates alone: what they depend on has a level of its own in the profile.
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .current_dir(crate::workspace())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the fuzzer could not be built; it needs a C++ compiler (`apt-get install -y g++`)");
    let path = target_directory()?.join("debug/tidegate-fuzz");
    ensure!(path.is_file(), "the build left no `{}`", path.display());
    Ok(path)
}

fn fuzz(fuzzer: &Path, corpora: &Path, target: &str, arguments: &Arguments) -> Result<Fuzzed> {
    let found = target_directory()?.join("fuzz").join(target);
    if found.exists() {
        std::fs::remove_dir_all(&found)?;
    }
    std::fs::create_dir_all(&found)?;
    let corpus = corpora.join(target);
    let run = |folders: &[&Path], options: &[String]| -> Result<(bool, String)> {
        let output = Command::new(fuzzer)
            .env("TIDEGATE_FUZZ_TARGET", target)
            .env("RUST_BACKTRACE", "1")
            .args(folders)
            .args(options)
            .arg(format!("-max_len={LONGEST}"))
            .args(["-timeout=30", "-rss_limit_mb=4096", "-print_final_stats=1"])
            .arg(format!("-artifact_prefix={}-", found.display()))
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start `{}`", fuzzer.display()))?;
        Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    // The corpus first, each input once; then from there.
    let (held, said) = run(&[&corpus], &["-runs=0".to_owned()])?;
    let (held, said) = match held {
        true => run(&[&found, &corpus], &[format!("-max_total_time={}", arguments.seconds)])?,
        false => (held, said),
    };
    let executions = executions(&said);
    let crash = if held { None } else { Some(artifact(&said)) };
    if crash.is_some() {
        let start = said.find("panicked at").unwrap_or(said.len().saturating_sub(4000));
        eprintln!("{target}:\n{}", said[start..].lines().take(40).collect::<Vec<_>>().join("\n"));
    } else if arguments.keep {
        let (merged, said) = run(&[&corpus, &found], &["-merge=1".to_owned()])?;
        if !merged {
            bail!("{target}: what was found could not be added to its corpus: {said}");
        }
    }
    Ok(Fuzzed { target: target.to_owned(), executions, crash })
}

/// What libFuzzer counted; nothing if it never came to that.
fn executions(said: &str) -> u64 {
    let counted = said.lines().rev().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    counted.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// The file that holds the input, or the last words where there is none.
fn artifact(said: &str) -> String {
    let written = said.lines().find_map(|line| line.split_once("Test unit written to "));
    match written {
        Some((_, path)) => path.to_owned(),
        None => said.lines().last().unwrap_or("nothing was said").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_executed_counts_as_nothing() {
        assert_eq!(executions("INFO: A corpus is not provided\n"), 0);
        assert_eq!(executions("stat::number_of_executed_units: 42\nstat::peak_rss_mb: 3\n"), 42);
    }

    #[test]
    fn a_target_that_ran_nothing_fails_and_so_does_one_that_was_broken() {
        let of = |executions, crash: Option<&str>| Fuzzed {
            target: "t".to_owned(),
            executions,
            crash: crash.map(str::to_owned),
        };
        let second = Duration::from_secs(1);
        assert!(show(&[of(5000, None)], 1, second, second).is_ok());
        assert!(show(&[of(0, None)], 1, second, second).is_err());
        assert!(show(&[of(5000, Some("crash-1"))], 1, second, second).is_err());
        assert!(show(&[of(5000, None)], 2, second, second).is_err());
        assert!(targets(Path::new("/nowhere"), &[]).is_err());
    }
}
