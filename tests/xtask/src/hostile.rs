//! Hostile plugins: what came of each, and how a neighbour fares while one attacks.
//!
//! The guests and what must come of them are those of `tests/hostile`; each is run by its program in a process of its
//! own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::figure::{Figure, Figures, Op};
use crate::product::target_directory;

const PACKAGE: &str = "tidegate-hostile";
/// The guests of which it is told how long they take to be stopped, and the processor time that each has, in ticks.
const LOOP: &str = "h01_infinite_loop_in_write";
const LOOP_BUDGET_TICKS: f64 = 30.0;
/// A budget is looked at once per tick, and the answer needs one more.
const LOOP_MORE_TICKS: f64 = 2.0;

/// What `cargo xtask hostile` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only guests whose names hold this.
    #[arg(long, default_value = "")]
    only: String,
    /// Leaves the latencies of the neighbour out.
    #[arg(long)]
    verdicts: bool,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    guest: String,
    escaped: Vec<String>,
    fault: String,
    growth: u64,
    ticks: f64,
}

#[derive(Debug, Deserialize)]
struct Latencies {
    quiet: Vec<f64>,
    quiet_again: Vec<f64>,
    attacked: Vec<f64>,
}

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let program = program()?;
    let mut figures = Figures::default();
    let verdicts = verdicts(&program, &arguments.only)?;
    let escaped = verdicts.iter().filter(|verdict| !verdict.escaped.is_empty()).count();
    let growth = verdicts.iter().map(|verdict| mib(verdict.growth)).fold(0.0, f64::max);
    figures.show(Figure::new("hostile-guests", verdicts.len() as f64, Op::AtLeast, 1.0))?;
    figures.show(Figure::new("hostile-escaped", escaped as f64, Op::Exactly, 0.0))?;
    figures.show(Figure::new("hostile-host-growth-mib", growth, Op::AtMost, 64.0))?;
    if verdicts.iter().any(|verdict| verdict.guest == LOOP) {
        figures.show(loop_stop(&program)?)?;
    }
    if !arguments.verdicts {
        neighbours(&program, &arguments.only, &mut figures)?;
    }
    figures.verdict()
}

/// Builds the program that runs them, and says where it is.
pub(crate) fn program() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", PACKAGE])
        .current_dir(crate::workspace())
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "`cargo build --release --package {PACKAGE}` failed");
    Ok(target_directory()?.join("release").join(PACKAGE))
}

fn verdicts(program: &Path, only: &str) -> Result<Vec<Verdict>> {
    let names = said(program, &["list"])?;
    let mut verdicts = Vec::new();
    for name in names.lines().filter(|name| name.contains(only)) {
        let verdict: Verdict = answer(program, &["judge", name])?;
        let word = if verdict.escaped.is_empty() { "stopped" } else { "ESCAPED" };
        let growth = mib(verdict.growth);
        eprintln!("{word}  {name}: {:.160}; +{growth:.1} MiB, {:.1} ticks", verdict.fault, verdict.ticks);
        for escaped in &verdict.escaped {
            eprintln!("         {escaped}");
        }
        verdicts.push(verdict);
    }
    ensure!(!verdicts.is_empty(), "no guest's name holds `{only}`");
    Ok(verdicts)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// From the call of a guest that loops until its end is told. Its processor time
/// counts; a machine that is busy gives it that later, so the least of some tries is taken.
fn loop_stop(program: &Path) -> Result<Figure> {
    let mut ticks = Vec::new();
    for _ in 0..5 {
        ticks.push(answer::<Verdict>(program, &["judge", LOOP])?.ticks);
    }
    let least = ticks.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(Figure::with_spread(
        "loop-stop-ticks",
        least,
        Op::AtMost,
        LOOP_BUDGET_TICKS + LOOP_MORE_TICKS,
        ticks.len(),
        ticks.iter().copied().fold(0.0, f64::max) - least,
    ))
}

/// `quiet-p99-ratio`, and of the worst attack `neighbour-p99-ratio`.
fn neighbours(program: &Path, only: &str, figures: &mut Figures) -> Result<()> {
    let names = said(program, &["list", "crowds"])?;
    let (mut quiet, mut worst, mut unbounded) = (Vec::new(), None, Vec::new());
    for name in names.lines().filter(|name| name.contains(only)) {
        let with: Latencies = answer(program, &["crowd", name])?;
        let without: Latencies = answer(program, &["crowd", name, "unbounded"])?;
        let (attacked, free) = (with.attacked(), without.attacked());
        eprintln!(
            "{name}: p99 of a neighbour's write {:.0} µs when quiet; {:.2} times that under attack, {:.2} without budgets",
            median(&with.quiet),
            median(&attacked),
            median(&free)
        );
        quiet.extend(with.again());
        unbounded.push(median(&free));
        if worst.as_ref().is_none_or(|worst: &Vec<f64>| median(&attacked) > median(worst)) {
            worst = Some(attacked);
        }
    }
    let Some(worst) = worst else { return Ok(()) };
    let quiet = Figure::median("quiet-p99-ratio", &quiet, Op::AtMost, 2.0);
    let most = 1.5 * quiet.value().max(1.0);
    figures.show(quiet)?;
    figures.show(Figure::median("neighbour-p99-ratio", &worst, Op::AtMost, most))?;
    // An attack that hurts nobody even without budgets proves nothing about them.
    let strongest = unbounded.iter().copied().fold(0.0, f64::max);
    figures.show(Figure::new("neighbour-p99-ratio-without-budgets", strongest, Op::AtLeast, most))
}

impl Latencies {
    fn attacked(&self) -> Vec<f64> {
        self.attacked.iter().zip(&self.quiet).map(|(attacked, quiet)| attacked / quiet).collect()
    }

    fn again(&self) -> impl Iterator<Item = f64> {
        self.quiet_again.iter().zip(&self.quiet).map(|(again, quiet)| again / quiet)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn answer<T: DeserializeOwned>(program: &Path, words: &[&str]) -> Result<T> {
    let said = said(program, words)?;
    serde_json::from_str(&said).with_context(|| format!("`{}` said {said:?}", words.join(" ")))
}

fn said(program: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    let output = command.args(words).env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.with_context(|| format!("cannot start `{}`", program.display()))?;
    let (words, said) = (words.join(" "), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "`{} {words}` ended with {}: {said}", program.display(), output.status);
    Ok(String::from_utf8(output.stdout)?)
}
