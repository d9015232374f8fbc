//! `cargo xtask soak`: very many tiny epochs in one process, with a reader that takes what is published and clears it
//! away. Nothing may grow: not the state on disk, not the sink's own names, not memory, handles or threads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::figure::{Figure, Figures, Op};
use crate::product::{self, Process, pause};
use crate::reader;
use crate::workshop::folder_for;

/// What `cargo xtask soak` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Epochs with rows.
    #[arg(long, default_value_t = 100_000)]
    epochs: u64,
    /// Judge this binary instead of the release build.
    #[arg(long)]
    binary: Option<PathBuf>,
}

const RETAINED: usize = 5;
const PARTITIONS: usize = 2;
/// Longest silence between two epochs.
const SILENCE: Duration = Duration::from_secs(60);
/// What the second half may reach of what the first did: growth with every epoch would double it.
const STILL_FLAT: f64 = 1.25;

/// Segments of the log double until they have 8 MiB: the newest, the one before, and what is being reclaimed.
const GROWN_LOG: f64 = 4.0 * 8.0 * 1_048_576.0;

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(arguments.epochs >= 1000, "fewer than 1,000 epochs show nothing");
    let binary = product::binary(arguments.binary.as_deref())?;
    let folder = folder_for("soak", 1 << 28);
    std::fs::create_dir_all(&folder)?;
    let soaked = soak(arguments.epochs, &binary, &folder);
    if soaked.is_err() {
        eprintln!("what is left is kept in {}", folder.display());
    }
    let soaked = soaked?;
    std::fs::remove_dir_all(&folder)?;
    show(arguments.epochs, &soaked)
}

/// What a soak came to.
struct Soaked {
    reader: Reader,
    samples: Vec<Sample>,
}

fn soak(wanted: u64, binary: &Path, folder: &Path) -> Result<Soaked> {
    let file = folder.join("pipeline.toml");
    std::fs::write(
        &file,
        format!(
            "[pipeline]\nname = \"soak\"\nstate = \"state\"\n\n[checkpoint]\ninterval = \"1ms\"\nretain-count = \
             {RETAINED}\n\n[sources.rows]\nkind = \"generate\"\nrate = 20000\npartitions = {PARTITIONS}\n\n\
             [sinks.out]\nplugin = \"builtin:files\"\nsubtasks = 2\ndirs = {{ output = \"out\" }}\n"
        ),
    )?;
    let mut command = Command::new(binary);
    command.arg("run").arg(&file).args(["--progress", "none"]).current_dir(folder);
    let mut process = Process::start(command)?;
    let mut soaked = Soaked { reader: Reader::new(folder.join("out")), samples: Vec::new() };
    let every = (wanted / 400).max(5);
    let (mut next_sample, mut heard, mut told) = (every, Instant::now(), 0);
    while soaked.reader.epochs < wanted {
        let before = soaked.reader.epochs;
        soaked.reader.round()?;
        let epochs = soaked.reader.epochs;
        if epochs > before {
            heard = Instant::now();
        }
        ensure!(process.lives(), "the process ended by itself: {}", process.finish(SILENCE)?.2);
        ensure!(heard.elapsed() < SILENCE, "no epoch for {} s, after {epochs}", SILENCE.as_secs());
        if epochs >= next_sample {
            next_sample = epochs + every;
            soaked.samples.push(Sample::take(folder, process.id())?);
        }
        if epochs * 10 / wanted > told {
            told = epochs * 10 / wanted;
            eprintln!("{epochs} epochs, {} rows: {:?}", soaked.reader.rows, soaked.samples.last());
        }
        pause(Duration::from_millis(5));
    }
    process.signal(libc::SIGTERM)?;
    let (status, _, said) = process.finish(Duration::from_secs(24 * 3600))?;
    ensure!(status.success(), "after SIGTERM the process ended with {status}; it said:\n{said}");
    soaked.reader.round()?;
    soaked.reader.nothing_unlisted()?;
    Ok(soaked)
}

/// A reader by epoch, as the readers' contract has it: it removes files of epochs that are in `_epochs/`, and entries
/// of epochs that no checkpoint needs any more.
struct Reader {
    output: PathBuf,
    /// Names of entries that are still there and were read.
    known: BTreeSet<String>,
    epochs: u64,
    rows: u64,
    partitions: Vec<Numbers>,
}

/// Row numbers of one partition. Without keeping them all: every number from 0 to `most` was there once, exactly if
/// there are that many, and the sums of the numbers and of their squares are those of such a run.
#[derive(Debug, Clone, Default)]
struct Numbers {
    count: u128,
    most: u128,
    sum: u128,
    squares: u128,
}

impl Numbers {
    fn add(&mut self, n: u64) {
        let n = u128::from(n);
        self.count += 1;
        self.most = self.most.max(n);
        self.sum += n;
        self.squares += n * n;
    }

    fn each_once(&self) -> bool {
        let n = self.most;
        self.count == n + 1 && self.sum == n * (n + 1) / 2 && self.squares == n * (n + 1) * (2 * n + 1) / 6
    }
}

impl Reader {
    fn new(output: PathBuf) -> Self {
        let partitions = vec![Numbers::default(); PARTITIONS];
        Self { output, known: BTreeSet::new(), epochs: 0, rows: 0, partitions }
    }

    fn round(&mut self) -> Result<()> {
        for name in reader::epoch_names(&self.output)? {
            if self.known.contains(&name) {
                continue;
            }
            let entry = reader::epoch_entry(&self.output, &name)?;
            for (file, rows) in &entry.files {
                let path = self.output.join(file);
                let text = std::fs::read_to_string(&path).with_context(|| format!("`{name}` names `{file}`"))?;
                ensure!(text.ends_with('\n') && text.lines().count() as u64 == *rows, "`{file}` is not whole");
                text.lines().try_for_each(|line| self.row(line))?;
                std::fs::remove_file(path)?;
            }
            self.epochs += u64::from(entry.rows > 0);
            self.rows += entry.rows;
            self.known.insert(name);
        }
        // With one sink and no rollback, names sort in the order of commits.
        while self.known.len() > 4 * RETAINED {
            let Some(oldest) = self.known.pop_first() else { break };
            std::fs::remove_file(self.output.join("_epochs").join(oldest))?;
        }
        Ok(())
    }

    fn row(&mut self, line: &str) -> Result<()> {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row[name].as_u64().with_context(|| format!("no `{name}` in {line}"));
        let partition = usize::try_from(number("partition")?)?;
        self.partitions.get_mut(partition).with_context(|| format!("an unknown partition: {line}"))?.add(number("n")?);
        Ok(())
    }

    /// Every published file belonged to an epoch, and was cleared away with it.
    fn nothing_unlisted(&self) -> Result<()> {
        let left = reader::listing(&self.output)?;
        ensure!(left.is_empty(), "files that no epoch names: {left:?}");
        Ok(())
    }
}

/// What there is at one time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    state_bytes: f64,
    state_names: f64,
    sink_bytes: f64,
    sink_names: f64,
    resident_mib: f64,
    handles: f64,
    threads: f64,
}

impl Sample {
    fn take(folder: &Path, id: u32) -> Result<Self> {
        let (state_names, state_bytes) = contents(&folder.join("state"))?;
        let (sink_names, sink_bytes) = contents(&folder.join("out/_tidegate"))?;
        let count =
            |what: &str| Ok::<_, std::io::Error>(std::fs::read_dir(format!("/proc/{id}/{what}"))?.count() as f64);
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: f64 = resident.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(Self {
            state_bytes,
            state_names,
            sink_bytes,
            sink_names,
            resident_mib: kib / 1024.0,
            handles: count("fd")?,
            threads: count("task")?,
        })
    }
}

/// Names below a folder, and the bytes of its files. What goes while we look is not there.
fn contents(folder: &Path) -> Result<(f64, f64)> {
    let (mut names, mut bytes) = (0.0, 0.0);
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            names += 1.0;
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => bytes += found.len() as f64,
                Err(_) => {}
            }
        }
    }
    ensure!(names > 0.0, "`{}` holds nothing", folder.display());
    Ok((names, bytes))
}

fn show(wanted: u64, soaked: &Soaked) -> Result<()> {
    let mut figures = Figures::default();
    let Soaked { reader, samples } = soaked;
    ensure!(samples.len() >= 40, "only {} samples were taken", samples.len());
    figures.show(Figure::new("soak-epochs", reader.epochs as f64, Op::AtLeast, wanted as f64))?;
    let broken = reader.partitions.iter().filter(|numbers| !numbers.each_once()).count();
    figures.show(Figure::new("soak-partitions-broken", broken as f64, Op::Exactly, 0.0))?;
    // The start does not count: pools fill, the first checkpoints are kept. What a short soak has not yet grown to its
    // full size may do so, up to the number given with each.
    let settled = &samples[samples.len() / 10..];
    let (first, second) = settled.split_at(settled.len() / 2);
    let mut flat = |name: &str, of: fn(&Sample) -> f64, judged: fn(Vec<f64>) -> f64, allowed: f64| -> Result<()> {
        let values = |samples: &[Sample]| samples.iter().map(of).collect::<Vec<f64>>();
        let must = (judged(values(first)) * STILL_FLAT).max(allowed);
        let (value, most) = (judged(values(second)), most(values(second)));
        let least = values(second).into_iter().fold(f64::INFINITY, f64::min);
        let spread = if most == 0.0 { 0.0 } else { (most - least) / most };
        figures.show(Figure::with_spread(name, value, Op::AtMost, must, second.len(), spread))
    };
    flat("soak-state-bytes", |sample| sample.state_bytes, most, GROWN_LOG)?;
    flat("soak-state-names", |sample| sample.state_names, most, 12.0)?;
    // Staged rows lie there too: when the machine is busy, all that a second brings. What stays there, as a leak would,
    // is in most samples, and after thousands of epochs is far more.
    flat("soak-sink-bytes", |sample| sample.sink_bytes, median, 524_288.0)?;
    flat("soak-sink-names", |sample| sample.sink_names, median, 128.0)?;
    flat("soak-handles", |sample| sample.handles, most, 48.0)?;
    flat("soak-threads", |sample| sample.threads, most, 16.0)?;
    let resident = |samples: &[Sample]| median(samples.iter().map(|sample| sample.resident_mib).collect());
    // Of the end of each half, in MiB. Pages that come and go with a batch are less than this.
    let growth = resident(&second[second.len() / 2..]) - resident(&first[first.len() / 2..]);
    figures.show(Figure::new("soak-memory-growth", growth, Op::AtMost, 6.0))?;
    eprintln!("resident at the end: {:.1} MiB", resident(&second[second.len() / 2..]));
    figures.verdict()
}

fn most(values: Vec<f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(of: &[u64]) -> Numbers {
        let mut numbers = Numbers::default();
        of.iter().for_each(|n| numbers.add(*n));
        numbers
    }

    #[test]
    fn a_lost_a_doubled_and_a_swapped_row_are_seen() {
        assert!(numbers(&[2, 0, 1, 3]).each_once());
        assert!(!numbers(&[0, 1, 3]).each_once());
        assert!(!numbers(&[0, 1, 1, 2, 3]).each_once());
        assert!(!numbers(&[0, 0, 3, 3]).each_once());
    }

    fn soaked(sink_bytes: impl Fn(usize) -> f64) -> Soaked {
        let mut reader = Reader::new(PathBuf::new());
        reader.epochs = 1000;
        reader.partitions = vec![numbers(&[0]); PARTITIONS];
        let sample = |at| Sample {
            state_bytes: 65_536.0,
            state_names: 5.0,
            sink_bytes: sink_bytes(at),
            sink_names: 10.0,
            resident_mib: 20.0,
            handles: 30.0,
            threads: 10.0,
        };
        Soaked { reader, samples: (0..200).map(sample).collect() }
    }

    #[test]
    fn rows_that_one_stall_left_staged_are_no_leak_and_what_stays_is() {
        show(1000, &soaked(|at| if at == 150 { 500_000.0 } else { 9_000.0 })).unwrap();
        show(1000, &soaked(|at| at as f64 * 10_000.0)).unwrap_err();
    }
}
