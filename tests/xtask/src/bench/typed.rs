//! Typed rows: against polars, and what more frequent checkpoints cost.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::polars::{Done, Polars};
use super::{Bench, run_pipeline};
use crate::figure::{Figure, Op};
use crate::flights::write_lines;
use crate::multiset::{Difference, Lines};
use crate::product::Cost;
use crate::reader;
use crate::values::Values;
use crate::workshop::{Plan, Workshop};

/// How the lines of the input begin. An encoder writes no such space: a line that came out with it was passed on as it
/// came in, and never was columns.
const SPACED: &str = "{ ";
/// Columns are inferred from the rows.
const SOURCE: &str = "schema = \"infer\"";
/// The codec and level that polars is given, too.
const PARQUET: &str = "format = \"parquet\"\n\n[sinks.out.files]\ncompression = \"zstd\"\nlevel = 3";

/// JSON lines to columns and to JSON lines, or to Parquet, against polars on the same files.
pub(super) fn against_polars(bench: &mut Bench) -> Result<()> {
    let polars = Polars::ready()?;
    let folder = bench.folder.clone();
    let job = Typed::new(bench, &folder)?;
    let mut ratios = Vec::new();
    for (name, kind, sink) in [("typed-of-polars-json", "json", ""), ("typed-of-polars-parquet", "parquet", PARQUET)] {
        job.workshop.plan(&Plan { interval_ms: 1000, source: SOURCE, sink, ..Plan::default() })?;
        let measured = compare(bench, &job, &polars, kind)?;
        let figure = Figure::median(name, &measured, Op::AtLeast, 0.8);
        ratios.push((figure.value(), measured));
        bench.figures.show(figure)?;
    }
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    bench.figures.show(Figure::median("typed-of-polars", &ratios[0].1, Op::AtLeast, 0.8))?;
    job.workshop.remove()
}

/// The ratios of all rounds.
fn compare(bench: &mut Bench, job: &Typed, polars: &Polars, kind: &'static str) -> Result<Vec<f64>> {
    let output = bench.folder.join("polars");
    let mut values = Values::default();
    let way = polars.fastest(kind, &job.inputs[..job.inputs.len().min(2)], &output)?;
    let (mut ratios, mut without_loading) = (Vec::new(), Vec::new());
    for (_, turned) in bench.rounds() {
        let mut theirs = None;
        if !turned {
            theirs = Some(run_polars(job, polars, way, kind, &output, &mut values)?);
        }
        let ours = run_pipeline(&bench.binary, &job.workshop)?;
        let names = reader::listing(&job.workshop.output())?;
        let files: Vec<PathBuf> = names.iter().map(|name| job.workshop.output().join(name)).collect();
        same_rows(job, &files, kind, polars, &mut values)?;
        job.workshop.clear()?;
        let theirs = match theirs {
            Some(theirs) => theirs,
            None => run_polars(job, polars, way, kind, &output, &mut values)?,
        };
        eprintln!(
            "{} rows to {kind}; CPU seconds: polars {:.2} ({:.2} to load), typed {:.2}; wall: {:.2}, {:.2}; MiB: {:.0}, \
             {:.0}",
            job.sent.total(),
            theirs.cost.cpu_seconds,
            theirs.loading,
            ours.cpu_seconds,
            theirs.cost.wall_seconds,
            ours.wall_seconds,
            theirs.cost.peak_mib,
            ours.peak_mib
        );
        ratios.push(theirs.cost.cpu_seconds / ours.cpu_seconds);
        without_loading.push((theirs.cost.cpu_seconds - theirs.loading) / ours.cpu_seconds);
        bench.peak(if kind == "json" { "typed to json-lines" } else { "typed to parquet" }, &ours);
    }
    let without = Figure::median("", &without_loading, Op::AtLeast, 0.8);
    eprintln!("typed-of-polars-{kind} without the time to load polars: {:.3}", without.value());
    Ok(ratios)
}

fn run_polars(job: &Typed, polars: &Polars, way: &str, kind: &str, output: &Path, values: &mut Values) -> Result<Done> {
    let done = polars.work(way, kind, &job.inputs, output)?;
    let files = reader::listing(output)?.iter().map(|name| output.join(name)).collect::<Vec<_>>();
    same_rows(job, &files, kind, polars, values)?;
    std::fs::remove_dir_all(output)?;
    Ok(done)
}

fn same_rows(job: &Typed, files: &[PathBuf], kind: &str, polars: &Polars, values: &mut Values) -> Result<()> {
    if kind != "parquet" {
        encoded_anew(files)?;
    }
    let rows = if kind == "parquet" { polars.parquet_rows(files, values)? } else { rows_of(files, values)? };
    let difference = rows.against(&job.sent);
    ensure!(difference == Difference::default(), "{kind}: values differ from the input's: {difference:?}");
    Ok(())
}

/// No file of JSON lines may hold a line as it came in.
fn encoded_anew(files: &[PathBuf]) -> Result<()> {
    for file in files {
        let mut head = String::new();
        BufReader::new(File::open(file)?).read_line(&mut head)?;
        ensure!(
            !head.starts_with(SPACED),
            "rows came out as they came in: they never were columns, and nothing is shown"
        );
    }
    Ok(())
}

fn rows_of(files: &[PathBuf], values: &mut Values) -> Result<Lines> {
    let mut rows = Lines::default();
    files.iter().try_for_each(|file| values.add_all(&mut rows, File::open(file)?))?;
    Ok(rows)
}

/// The typed job with its input.
struct Typed {
    workshop: Workshop,
    inputs: Vec<PathBuf>,
    /// The input's rows by value.
    sent: Lines,
}

impl Typed {
    fn new(bench: &Bench, parent: &Path) -> Result<Self> {
        let workshop = Workshop::new(parent, "typed")?;
        let inputs: Vec<PathBuf> = (0..bench.arguments.copies)
            .map(|copy| workshop.inputs().join(format!("flights-{copy:02}.jsonl")))
            .collect();
        for input in &inputs {
            write_lines(input, bench.lines.iter().map(|line| line.replacen('{', SPACED, 1)))?;
        }
        let sent = rows_of(&inputs, &mut Values::default())?;
        Ok(Self { workshop, inputs, sent })
    }
}

/// The typed job with a checkpoint every 100 ms over the same with one every second, on a disk.
pub(super) fn checkpoint_cost(bench: &mut Bench) -> Result<()> {
    let disk = bench.disk.clone();
    let job = Typed::new(bench, &disk)?;
    let mut values = Values::default();
    let (mut wall, mut cpu, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for (_, turned) in bench.rounds() {
        let mut costs: [Option<(Cost, f64)>; 2] = [None, None];
        for index in if turned { [1, 0] } else { [0, 1] } {
            let interval_ms = [1000, 100][index];
            job.workshop.plan(&Plan { interval_ms, source: SOURCE, ..Plan::default() })?;
            let cost = run_pipeline(&bench.binary, &job.workshop)?;
            let output = job.workshop.output();
            let epochs = reader::epochs_with_rows(&output)?;
            let files: Vec<PathBuf> = reader::listing(&output)?.iter().map(|name| output.join(name)).collect();
            encoded_anew(&files)?;
            let difference = rows_of(&files, &mut values)?.against(&job.sent);
            ensure!(difference == Difference::default(), "{interval_ms} ms: values differ: {difference:?}");
            job.workshop.clear()?;
            costs[index] = Some((cost, epochs as f64 / cost.wall_seconds));
        }
        let [Some((seldom, _)), Some((often, rate))] = costs else { unreachable!("both were run") };
        eprintln!(
            "typed, 1 s and 100 ms; wall: {:.2}, {:.2}; CPU seconds: {:.2}, {:.2}; epochs per second: {rate:.1}",
            seldom.wall_seconds, often.wall_seconds, seldom.cpu_seconds, often.cpu_seconds
        );
        wall.push(seldom.wall_seconds / often.wall_seconds);
        cpu.push(seldom.cpu_seconds / often.cpu_seconds);
        rates.push(rate);
    }
    bench.figures.show(Figure::median("epochs-per-second", &rates, Op::AtLeast, 8.0))?;
    bench.figures.show(Figure::median("checkpoint-cost-wall", &wall, Op::AtLeast, 0.9))?;
    bench.figures.show(Figure::median("checkpoint-cost-cpu", &cpu, Op::AtLeast, 0.9))?;
    job.workshop.remove()
}
