//! Ratios measured inside one run: each round runs every contender once, in alternating order, and each ratio is taken
//! within its round. What arrived is compared with what was sent after every run.

mod copying;
mod idle;
mod latency;
mod polars;
mod process;
mod scaling;
mod sink;
mod typed;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use crate::figure::{Figure, Figures, Op};
use crate::flights;
use crate::multiset::{Difference, Lines};
use crate::product::{self, Cost, PATIENCE, Process};
use crate::reader::{self, Output};
use crate::workshop::{Workshop, folder_for, folder_on_disk};

/// What `cargo xtask bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rounds; figures are medians over them.
    #[arg(long, default_value_t = 5, value_parser = crate::arguments::some::<usize>)]
    pub(crate) rounds: usize,
    /// Copies of the flights that make the input.
    #[arg(long, default_value_t = 10, value_parser = crate::arguments::some::<usize>)]
    pub(crate) copies: usize,
    /// All flights instead of the example's January.
    #[arg(long)]
    pub(crate) flights: Option<PathBuf>,
    /// Judge this binary instead of the release build.
    #[arg(long)]
    pub(crate) binary: Option<PathBuf>,
    /// Only these groups or figures; see FIGURES.md.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Epochs with rows that the latencies are taken from.
    #[arg(long, default_value_t = 200, value_parser = crate::arguments::some::<u64>)]
    pub(crate) epochs: u64,
    /// `scaling` also takes ten times the input, which needs 25 GB of disk.
    #[arg(long)]
    pub(crate) largest: bool,
    /// Where `scaling` draws its plot.
    #[arg(long, value_name = "SVG")]
    pub(crate) plot: Option<PathBuf>,
}

type Measure = fn(&mut Bench) -> Result<()>;

/// Groups of figures that are measured together.
const GROUPS: &[(&str, &[&str], Measure)] = &[
    ("copying", &["pass-through-of-cat", "checked-of-cat"], copying::against_cat),
    ("start", &["start-ms"], copying::starting),
    ("typed", &["typed-of-polars-json", "typed-of-polars-parquet", "typed-of-polars"], typed::against_polars),
    ("checkpoints", &["checkpoint-cost-wall", "checkpoint-cost-cpu", "epochs-per-second"], typed::checkpoint_cost),
    ("sandbox", &["sandbox-ratio", "sandbox-ratio-bytes"], sink::sandbox),
    ("idle", &["instantiate-p50-us", "idle-instance-mib", "idle-instances"], idle::idle),
    ("process", &["process-batch-us", "process-batch-ratio"], process::process),
    ("latency", &["barrier-to-visible", "barrier-to-manifest", "latency-epochs"], latency::latency),
    ("flushes", &["flushes-per-epoch"], latency::flushes),
    ("scaling", &["scaling"], scaling::scaling),
];

/// One run of the benchmarks.
pub(crate) struct Bench<'a> {
    arguments: &'a Arguments,
    binary: PathBuf,
    /// In memory where there is enough.
    folder: PathBuf,
    /// On a disk.
    disk: PathBuf,
    lines: Vec<String>,
    figures: Figures,
    /// Peak memory of every run on the whole input, by contender.
    peaks: BTreeMap<&'static str, Vec<f64>>,
}

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let wanted = wanted(&arguments.only)?;
    let lines = flights::lines_for_checks(arguments.flights.as_deref())?;
    let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
    let mut bench = Bench {
        arguments,
        binary: product::binary(arguments.binary.as_deref())?,
        // The input, and outputs of two contenders, one of them being replaced.
        folder: folder_for("bench", 4 * (bytes * arguments.copies) as u64),
        disk: folder_on_disk("bench")?,
        lines,
        figures: Figures::default(),
        peaks: BTreeMap::new(),
    };
    std::fs::create_dir_all(&bench.folder)?;
    let measured = wanted.into_iter().try_for_each(|measure| measure(&mut bench));
    let measured = measured.and_then(|()| bench.show_peaks());
    std::fs::remove_dir_all(&bench.folder)?;
    std::fs::remove_dir_all(&bench.disk)?;
    measured?;
    bench.figures.verdict()
}

fn wanted(only: &[String]) -> Result<Vec<Measure>> {
    if let Some(unknown) =
        only.iter().find(|name| !GROUPS.iter().any(|(group, figures, _)| names(group, figures, name)))
    {
        let known: Vec<&str> = GROUPS.iter().map(|(group, ..)| *group).collect();
        bail!("`{unknown}` is no group and no figure; the groups are {}", known.join(", "));
    }
    let asked = |(group, figures, _): &&(&str, &[&str], Measure)| {
        only.is_empty() || only.iter().any(|name| names(group, figures, name))
    };
    Ok(GROUPS.iter().filter(asked).map(|(.., measure)| *measure).collect())
}

fn names(group: &str, figures: &[&str], name: &str) -> bool {
    name == group || figures.contains(&name)
}

impl Bench<'_> {
    /// The number of a round, and whether the order of contenders is turned round in it.
    fn rounds(&self) -> impl Iterator<Item = (usize, bool)> + use<> {
        (0..self.arguments.rounds).map(|round| (round, round % 2 == 1))
    }

    /// Writes the copies of the flights, each a file, unless they are there.
    fn inputs(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        std::fs::create_dir_all(folder)?;
        let names = (0..self.arguments.copies).map(|copy| folder.join(format!("flights-{copy:02}.jsonl")));
        names
            .map(|name| {
                if !name.exists() {
                    flights::write_lines(&name, &self.lines)?;
                }
                Ok(name)
            })
            .collect()
    }

    fn peak(&mut self, contender: &'static str, cost: &Cost) {
        self.peaks.entry(contender).or_default().push(cost.peak_mib);
    }

    /// The largest of all contenders' medians.
    fn show_peaks(&mut self) -> Result<()> {
        let figures = self.peaks.iter().map(|(contender, peaks)| {
            let figure = Figure::median("peak-memory-mib", peaks, Op::AtMost, 150.0);
            eprintln!("peak memory of {contender}: {:.1} MiB", figure.value());
            figure
        });
        match figures.max_by(|a, b| a.value().total_cmp(&b.value())) {
            Some(largest) => self.figures.show(largest),
            None => Ok(()),
        }
    }
}

/// Runs the pipeline from nothing to its end. Answers with what it cost and left; rows are compared by the caller.
fn run_pipeline(binary: &Path, workshop: &Workshop) -> Result<Cost> {
    workshop.clear()?;
    let (status, cost, said) = Process::start(workshop.command(binary))?.finish(PATIENCE)?;
    ensure!(status.success(), "`tidegate run` ended with {status}; it said:\n{said}");
    ensure!(cost.peak_mib > 0.0, "the process ended before its memory could be looked at");
    not_copied(workshop)?;
    Ok(cost)
}

/// As [`run_pipeline`], for rows that pass unchanged, byte by byte.
fn run_unchanged(binary: &Path, workshop: &Workshop, sent: &Lines) -> Result<(Cost, Output)> {
    let cost = run_pipeline(binary, workshop)?;
    let output = reader::read_all(&workshop.output())?;
    let difference = output.rows.against(sent);
    ensure!(difference == Difference::default(), "the output differs from the input: {difference:?}");
    Ok((cost, output))
}

/// A whole input file that came out as a whole output file may have been copied by the file system.
fn not_copied(workshop: &Workshop) -> Result<()> {
    let sizes = |folder: &Path, names: Vec<String>| -> Result<Vec<u64>> {
        names.into_iter().map(|name| Ok(std::fs::metadata(folder.join(name))?.len())).collect()
    };
    let inputs = sizes(&workshop.inputs(), reader::listing(&workshop.inputs())?.into_iter().collect())?;
    let outputs = sizes(&workshop.output(), reader::listing(&workshop.output())?.into_iter().collect())?;
    ensure!(!outputs.is_empty(), "nothing was published");
    ensure!(
        inputs.iter().max() < Some(&(1 << 16)) || !outputs.iter().any(|size| inputs.contains(size)),
        "an output file is as long as an input file: a copy of whole files proves nothing"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_figures_are_asked_for_by_name() {
        assert_eq!(wanted(&[]).expect("all").len(), GROUPS.len());
        assert_eq!(wanted(&["start-ms".to_owned(), "start".to_owned()]).expect("known").len(), 1);
        assert!(wanted(&["speed".to_owned()]).is_err());
    }
}
