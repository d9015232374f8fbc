//! Ratios measured inside one run: each round runs every contender once, and each ratio is taken within its round.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::figure::{Figure, Figures, Op};
use crate::flights::{self, write_lines};
use crate::multiset::{self, Difference, Lines};
use crate::product::{self, Cost, PATIENCE, Process};
use crate::reader;
use crate::workshop::{Plan, Workshop, folder_for};

/// What `cargo xtask bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rounds; figures are medians over them.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Copies of the flights that make the input.
    #[arg(long, default_value_t = 10)]
    copies: usize,
    /// All flights instead of the example's January.
    #[arg(long)]
    flights: Option<PathBuf>,
    /// Judge this binary instead of the release build.
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.rounds > 0 && arguments.copies > 0, "no round or no copy measures nothing");
    let binary = product::binary(arguments.binary.as_deref())?;
    let folder = folder_for("bench");
    std::fs::create_dir_all(&folder)?;
    let mut figures = Figures::default();
    let measured = measure(arguments, &binary, &folder, &mut figures);
    std::fs::remove_dir_all(&folder)?;
    measured?;
    figures.verdict()
}

fn measure(arguments: &Arguments, binary: &Path, folder: &Path, figures: &mut Figures) -> Result<()> {
    let lines = flights::lines_for_checks(arguments.flights.as_deref())?;
    against_cat(arguments, binary, folder, &lines, figures)?;
    starting(arguments, binary, folder, &lines, figures)?;
    sandbox(arguments, folder, &lines, figures)
}

/// The whole product against `cat` on the same files.
fn against_cat(
    arguments: &Arguments,
    binary: &Path,
    folder: &Path,
    lines: &[String],
    figures: &mut Figures,
) -> Result<()> {
    let mut inputs = Vec::new();
    let mut contenders = Vec::new();
    for format in ["raw", "json-lines"] {
        let workshop = Workshop::new(folder, format)?;
        workshop.plan(&Plan { format, interval_ms: 1000, ..Plan::default() })?;
        contenders.push(workshop);
    }
    let input = folder.join("raw/input");
    for copy in 0..arguments.copies {
        let name = format!("flights-{copy:02}.jsonl");
        write_lines(&input.join(&name), lines)?;
        std::fs::hard_link(input.join(&name), folder.join("json-lines/input").join(&name))?;
        inputs.push(input.join(name));
    }
    let sent = contenders[0].sent()?;
    let (mut passed, mut checked, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.rounds {
        let cat = run_cat(&inputs, &folder.join("cat"), &sent)?;
        let raw = run_product(binary, &contenders[0], &sent)?;
        let json = run_product(binary, &contenders[1], &sent)?;
        passed.push(cat.cpu_seconds / raw.cpu_seconds);
        checked.push(cat.cpu_seconds / json.cpu_seconds);
        peaks.push(raw.peak_mib.max(json.peak_mib));
        eprintln!(
            "{} rows; CPU seconds: cat {:.3}, raw {:.3}, json-lines {:.3}; wall: {:.2}, {:.2}, {:.2}",
            sent.total(),
            cat.cpu_seconds,
            raw.cpu_seconds,
            json.cpu_seconds,
            cat.wall_seconds,
            raw.wall_seconds,
            json.wall_seconds
        );
    }
    figures.show(Figure::median("pass-through-of-cat", &passed, Op::AtLeast, 0.35))?;
    figures.show(Figure::median("checked-of-cat", &checked, Op::AtLeast, 0.2))?;
    figures.show(Figure::median("peak-memory-mib", &peaks, Op::AtMost, 150.0))
}

fn run_cat(inputs: &[PathBuf], output: &Path, sent: &Lines) -> Result<Cost> {
    if output.exists() {
        std::fs::remove_file(output)?;
    }
    // Opened for appending, so that cat really reads and writes: it cannot ask the kernel for a copy or a reflink.
    let file = OpenOptions::new().create(true).append(true).open(output)?;
    let mut command = Command::new("cat");
    command.args(inputs);
    let (status, cost, said) = Process::start_into(command, Stdio::from(file))?.finish(PATIENCE)?;
    ensure!(status.success(), "cat ended with {status}: {said}");
    let mut rows = Lines::default();
    rows.add_all(File::open(output)?)?;
    ensure!(rows.against(sent) == Difference::default(), "cat's output differs from its input");
    std::fs::remove_file(output)?;
    Ok(cost)
}

fn run_product(binary: &Path, workshop: &Workshop, sent: &Lines) -> Result<Cost> {
    workshop.clear()?;
    let (status, cost, said) = Process::start(workshop.command(binary))?.finish(PATIENCE)?;
    ensure!(status.success(), "`tidegate run` ended with {status}; it said:\n{said}");
    let output = reader::read_all(&workshop.output())?;
    let difference = output.rows.against(sent);
    ensure!(difference == Difference::default(), "the output differs from the input: {difference:?}");
    ensure!(cost.peak_mib > 0.0, "the process ended before its memory could be looked at");
    Ok(cost)
}

/// From the start of the process to its end with one row committed: an upper bound of the time to the first epoch.
fn starting(
    arguments: &Arguments,
    binary: &Path,
    folder: &Path,
    lines: &[String],
    figures: &mut Figures,
) -> Result<()> {
    let workshop = Workshop::new(folder, "start")?;
    workshop.input(&lines[..1], 1)?;
    workshop.plan(&Plan { interval_ms: 1000, ..Plan::default() })?;
    let sent = workshop.sent()?;
    run_product(binary, &workshop, &sent)?;
    let mut times = Vec::new();
    for _ in 0..arguments.rounds {
        times.push(run_product(binary, &workshop, &sent)?.wall_seconds * 1000.0);
    }
    figures.show(Figure::median("start-ms", &times, Op::AtMost, 500.0))
}

/// The sink side alone: the same plugin, once as a sandboxed component and once linked natively.
fn sandbox(arguments: &Arguments, folder: &Path, lines: &[String], figures: &mut Figures) -> Result<()> {
    let program = product::target_directory()?.join("release/sinkbench");
    ensure!(program.is_file(), "`{}` is missing: cargo build --release -p tidegate-sinkbench", program.display());
    let input = folder.join("batches.jsonl");
    write_lines(&input, (0..arguments.copies).flat_map(|_| lines.iter()))?;
    let mut ratios = Vec::new();
    for round in 0..arguments.rounds {
        // Alternating who comes first: whoever does finds the memory of the other's output free or not.
        let first = if round % 2 == 0 { ["native", "sandboxed"] } else { ["sandboxed", "native"] };
        let mut seconds = BTreeMap::new();
        for side in first {
            seconds.insert(side, run_sink(&program, side, &input, folder)?);
        }
        let (native, sandboxed) = (seconds["native"], seconds["sandboxed"]);
        ensure!(
            published(&folder.join("native"))? == published(&folder.join("sandboxed"))?,
            "round {round}: the native and the sandboxed sink published different bytes"
        );
        eprintln!("CPU seconds of the sink: native {native:.3}, sandboxed {sandboxed:.3}");
        ratios.push(native / sandboxed);
    }
    figures.show(Figure::median("sandbox-ratio", &ratios, Op::AtLeast, 0.85))
}

/// Mebibytes that each side takes in a round.
const SINK_MIB: &str = "512";

/// Runs one side; answers with the CPU seconds it measured around the sink's calls.
fn run_sink(program: &Path, side: &str, input: &Path, folder: &Path) -> Result<f64> {
    let output = folder.join(side);
    if output.exists() {
        std::fs::remove_dir_all(&output)?;
    }
    let mut command = Command::new(program);
    command.arg(side).arg(input).arg(&output).arg(SINK_MIB).stderr(Stdio::inherit());
    let told = command.output().with_context(|| format!("cannot start `{}`", program.display()))?;
    ensure!(told.status.success(), "sinkbench {side} ended with {}", told.status);
    let text = String::from_utf8(told.stdout)?;
    let seconds: f64 = text.trim().parse().with_context(|| format!("sinkbench said `{text}`"))?;
    ensure!(seconds > 0.01, "{side}: too little work to measure: {seconds} s");
    Ok(seconds)
}

/// Names and hashes of all published files; there must be some.
fn published(output: &Path) -> Result<Vec<(String, u128)>> {
    let names = reader::listing(output)?;
    ensure!(!names.is_empty(), "nothing was published in `{}`", output.display());
    let hashed = |name: String| Ok((name.clone(), multiset::hash(&std::fs::read(output.join(name))?)));
    names.into_iter().map(hashed).collect()
}
