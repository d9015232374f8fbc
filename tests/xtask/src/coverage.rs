//! Branch coverage of the protocol and the store.
//!
//! A branch is covered on a side when any test took that side in any instantiation of the code: a generic function is
//! one function here, however often the compiler makes it. Branches are those that the compiler instruments: conditions
//! of `if`, `while`, `let … else` and `if let`, each operand of `&&` and `||`, and guards; the arms of a `match` are not
//! among them. Test equipment and test modules are left out. What is not covered stands in [`LIST`] with its reason.

mod export;
mod listed;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::figure::{Figure, Figures, Op};
use crate::product::target_directory;
use export::{Branch, Coverage};

/// The exceptions, from the workspace's root.
const LIST: &str = "tests/xtask/docs/uncovered.txt";
/// What is measured.
const PACKAGES: [(&str, &str); 2] = [("tidegate-protocol", "host/protocol/src"), ("tidegate-store", "host/store/src")];
/// Test equipment among it.
const EQUIPMENT: &[&str] = &["host/store/src/disk/sim.rs"];

/// Fewer branches than this would mean that something was not measured.
const LEAST_SIDES: f64 = 1_500.0;
const LEAST_BRANCHES: f64 = 96.5;
const LEAST_LINES: f64 = 95.5;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Also what the layers of the proof take: the tests of pipeline, model and simulation, the small model, some seeds
    /// and the short sweep.
    #[arg(long)]
    all: bool,
    /// With `--all`: how many seeds are simulated.
    #[arg(long, requires = "all", default_value_t = 200, value_parser = crate::arguments::some::<u64>)]
    seeds: u64,
    /// Measures nothing again: reads what the last run left.
    #[arg(long, conflicts_with = "all")]
    again: bool,
}

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let root = crate::workspace();
    let target = target_directory()?.join("xtask/coverage");
    if !arguments.again {
        measure(&target, arguments)?;
    }
    let text =
        std::fs::read_to_string(exported(&target)).context("there is no measurement yet; leave out `--again`")?;
    let coverage = export::read(&text, &root, &|file| is_measured(file))?;
    let list = std::fs::read_to_string(root.join(LIST)).with_context(|| format!("cannot read {LIST}"))?;
    let mut listed = listed::parse(&list)?;

    let (mut sides, mut covered, mut unexplained) = (0u64, 0u64, 0u64);
    for branch in &coverage.branches {
        for (side, taken) in [(true, branch.taken_true), (false, branch.taken_false)] {
            sides += 1;
            if taken {
                covered += 1;
            } else {
                let why = listed.take(branch, side);
                unexplained += u64::from(why.is_none());
                eprintln!("{}", in_words(branch, side, why.as_deref()));
            }
        }
    }
    let stale = listed.left();
    for entry in &stale {
        eprintln!("{LIST}:{}: this branch is covered, or not there any more; take the line out", entry.line);
    }
    show(&coverage, sides, covered, unexplained, stale.len())
}

fn show(coverage: &Coverage, sides: u64, covered: u64, unexplained: u64, stale: usize) -> Result<()> {
    let percent = |part: u64, whole: u64| if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    let mut figures = Figures::default();
    figures.show(Figure::new("branch-sides", sides as f64, Op::AtLeast, LEAST_SIDES))?;
    figures.show(Figure::new("branch-coverage", percent(covered, sides), Op::AtLeast, LEAST_BRANCHES))?;
    figures.show(Figure::new("branches-unexplained", unexplained as f64, Op::Exactly, 0.0))?;
    figures.show(Figure::new("branches-explained-and-covered", stale as f64, Op::Exactly, 0.0))?;
    let lines = percent(coverage.lines_covered, coverage.lines);
    figures.show(Figure::new("line-coverage", lines, Op::AtLeast, LEAST_LINES))?;
    figures.verdict()
}

fn in_words(branch: &Branch, side: bool, why: Option<&str>) -> String {
    let Branch { file, line, column, function, text, .. } = branch;
    let why = why.map_or_else(|| format!("NOT LISTED in {LIST}"), str::to_owned);
    format!("{file}:{line}:{column}: in `{function}`, never {side}: {text}\n    {why}")
}

fn is_measured(file: &str) -> bool {
    let test = file.ends_with("/tests.rs") || file.contains("/tests/");
    PACKAGES.iter().any(|(_, folder)| file.starts_with(folder)) && !EQUIPMENT.contains(&file) && !test
}

fn exported(target: &Path) -> PathBuf {
    target.join("coverage.json")
}

/// Runs everything that counts, and exports what it took.
fn measure(target: &Path, arguments: &Arguments) -> Result<()> {
    let version = llvm_cov(target).args(["llvm-cov", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(
        version.is_ok_and(|status| status.success()),
        "cargo-llvm-cov is missing: `cargo install --locked cargo-llvm-cov && rustup component add llvm-tools`"
    );
    std::fs::create_dir_all(target)?;
    // Programs of an earlier run speak of lines that have moved since.
    call(target, &["llvm-cov", "clean", "--workspace"])?;
    // Unoptimised, the model would take hours.
    let profile: &[&str] = if arguments.all { &["--profile", "proof"] } else { &[] };
    for (package, _) in PACKAGES {
        call(target, &[&["llvm-cov", "--no-report", "--branch", "--package", package], profile].concat())?;
    }
    if arguments.all {
        measure_the_proof(target, profile, arguments.seeds)?;
    }
    let path = exported(target);
    let path = path.to_str().context("the target directory's path is not UTF-8")?;
    let mut report = vec!["llvm-cov", "report", "--branch", "--json", "--output-path", path];
    report.extend(PACKAGES.iter().flat_map(|(package, _)| ["--package", package]));
    report.extend(profile);
    call(target, &report)
}

fn measure_the_proof(target: &Path, profile: &[&str], seeds: u64) -> Result<()> {
    for package in ["tidegate-pipeline", "tidegate-model", "tidegate-simulation"] {
        call(target, &[&["llvm-cov", "--no-report", "--branch", "--package", package], profile].concat())?;
    }
    let program = [&["llvm-cov", "run", "--no-report", "--branch"], profile, &["--package"]].concat();
    let seeds = seeds.to_string();
    for (package, arguments) in [
        ("tidegate-model", &["--quick"][..]),
        ("tidegate-simulation", &["simulate", "--seeds", &seeds]),
        ("tidegate-simulation", &["sweep", "--quick"]),
    ] {
        call(target, &[&program[..], &[package, "--"], arguments].concat())?;
    }
    Ok(())
}

fn llvm_cov(target: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Branches are an unstable option of the compiler.
    command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", target).current_dir(crate::workspace());
    command
}

fn call(target: &Path, arguments: &[&str]) -> Result<()> {
    // Standard output is for figures.
    let status = llvm_cov(target).args(arguments).stdout(std::io::stderr()).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("`cargo {}` failed", arguments.join(" "));
    }
    Ok(())
}
