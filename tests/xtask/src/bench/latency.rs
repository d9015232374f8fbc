//! From a barrier to what readers see, against the same by hand in the same directory.
//!
//! The product tells when it injects a barrier (its log target `tidegate::timeline`); all else is seen from outside. The
//! readers' contract fixes the order: an entry of `_epochs/` appears after the files' names were flushed, and the note
//! `published-…` in the register after that entry was. So the time at which the kernel tells of the one is an upper
//! bound for "visible and flushed", and of the other for "in the epoch log and flushed".

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Bench;
use super::watch::{Watch, monotonic_ns};
use crate::figure::{Figure, Op};
use crate::flights::{split, write_lines};
use crate::multiset::Difference;
use crate::product::{PATIENCE, Process, pause};
use crate::reader;
use crate::workshop::{Plan, Workshop};

const RATE: u64 = 20_000;
const INTERVAL_MS: u64 = 200;
const SUBTASKS: u32 = 2;
/// How long the product may take until its folders are there.
const START: Duration = Duration::from_secs(30);

/// `barrier-to-visible` and `barrier-to-manifest`.
pub(super) fn latency(bench: &mut Bench) -> Result<()> {
    let workshop = Workshop::new(&bench.disk, "latency")?;
    let wanted = bench.arguments.epochs;
    // A few more, since the first and the last do not count, and since a slow disk may stretch some.
    input(bench, &workshop, (wanted + wanted / 4 + 10) * RATE * INTERVAL_MS / 1000)?;
    let observed = observe(bench, &workshop)?;
    let output = reader::read_all(&workshop.output())?;
    let difference = output.rows.against(&workshop.sent()?);
    ensure!(difference == Difference::default(), "the output differs from the input: {difference:?}");

    let (mut visible, mut manifest, mut floors) = (Vec::new(), Vec::new(), Vec::new());
    for epoch in observed.epochs.values() {
        let (Some(barrier), Some(seen), Some(listed), Some(floor)) =
            (epoch.barrier, epoch.visible, epoch.manifest, epoch.floor)
        else {
            continue;
        };
        visible.push(millis(barrier, seen)?);
        manifest.push(millis(barrier, listed)?);
        floors.push(floor);
    }
    let count = visible.len();
    bench.figures.show(Figure::new("latency-epochs", count as f64, Op::AtLeast, wanted as f64))?;
    eprintln!(
        "{count} epochs; ms at p50 and p99: visible {:.2}, {:.2}; manifest {:.2}, {:.2}; by hand {:.2}, {:.2}",
        quantile(&visible, 0.5),
        quantile(&visible, 0.99),
        quantile(&manifest, 0.5),
        quantile(&manifest, 0.99),
        quantile(&floors, 0.5),
        quantile(&floors, 0.99)
    );
    bench.figures.show(ratio("barrier-to-visible", &visible, &floors, 3.0))?;
    bench.figures.show(ratio("barrier-to-manifest", &manifest, &floors, 4.5))?;
    workshop.remove()
}

fn input(bench: &Bench, workshop: &Workshop, rows: u64) -> Result<()> {
    let lines: Vec<&String> = bench.lines.iter().cycle().take(usize::try_from(rows)?).collect();
    for (part, lines) in split(&lines, 3).into_iter().enumerate() {
        write_lines(&workshop.inputs().join(format!("flights-{part}.jsonl")), lines)?;
    }
    workshop.plan(&Plan { rate: Some(RATE), interval_ms: INTERVAL_MS, subtasks: SUBTASKS, ..Plan::default() })
}

/// What was seen of one epoch; times in nanoseconds of the monotonic clock.
#[derive(Debug, Default)]
struct Epoch {
    barrier: Option<u64>,
    visible: Option<u64>,
    manifest: Option<u64>,
    /// Milliseconds of the same by hand, right after it.
    floor: Option<f64>,
}

#[derive(Debug, Default)]
struct Observed {
    epochs: BTreeMap<u64, Epoch>,
}

/// Runs the pipeline once and watches.
fn observe(bench: &Bench, workshop: &Workshop) -> Result<Observed> {
    let mut command = workshop.command(&bench.binary);
    command.env("TIDEGATE_LOG", "tidegate::timeline=debug").args(["--progress", "none"]);
    let mut process = Process::start(command)?;
    let output = workshop.output();
    let register = wait_for_folders(&output, &mut process)?;
    let watch = Watch::start(&[output.join("_epochs"), register])?;
    let mut observed = Observed::default();
    let mut newest = None;
    let mut hand = Hand::new(&output, bench)?;
    let end = Instant::now() + PATIENCE;
    while process.lives() && Instant::now() < end {
        while let Some(line) = process.take_line() {
            if let Some((epoch, at_ns)) = barrier(&line) {
                observed.epochs.entry(epoch).or_default().barrier = Some(at_ns);
            }
        }
        let Ok(seen) = watch.names.recv_timeout(Duration::from_millis(20)) else { continue };
        if seen.folder == 0 {
            let digits: String = seen.name.chars().take_while(char::is_ascii_digit).collect();
            let Ok(epoch) = digits.parse::<u64>() else { continue };
            if reader::epoch_entry(&output, &seen.name)?.rows > 0 {
                observed.epochs.entry(epoch).or_default().visible = Some(seen.at_ns);
                newest = Some(epoch);
            }
        } else if seen.name.starts_with("published-")
            && let Some(epoch) = newest.take().and_then(|epoch| observed.epochs.get_mut(&epoch))
        {
            epoch.manifest = Some(seen.at_ns);
            // The pipeline only stages rows now: nothing else of ours is flushed until the next barrier.
            epoch.floor = Some(hand.publish()?);
        }
    }
    let (status, _, said) = process.finish(PATIENCE)?;
    ensure!(status.success(), "`tidegate run` ended with {status}; it said:\n{said}");
    for (epoch, at_ns) in said.lines().filter_map(barrier) {
        observed.epochs.entry(epoch).or_default().barrier = Some(at_ns);
    }
    Ok(observed)
}

fn wait_for_folders(output: &Path, process: &mut Process) -> Result<PathBuf> {
    let end = Instant::now() + START;
    while Instant::now() < end && process.lives() {
        let sinks = std::fs::read_dir(output.join("_tidegate")).into_iter().flatten().flatten();
        let register = sinks.map(|sink| sink.path().join("register")).find(|register| register.is_dir());
        if let Some(register) = register
            && output.join("_epochs").is_dir()
        {
            return Ok(register);
        }
        pause(Duration::from_millis(2));
    }
    anyhow::bail!("`_epochs` and `_tidegate/*/register` never came")
}

/// `DEBUG barrier epoch=7 at_ns=123`.
fn barrier(line: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if !words.contains(&"barrier") {
        return None;
    }
    let number = |name: &str| words.iter().find_map(|word| word.strip_prefix(name))?.parse().ok();
    Some((number("epoch=")?, number("at_ns=")?))
}

/// The floor: what publishing one part by hand takes, with a flush of the file and of the directory.
struct Hand {
    folder: PathBuf,
    directory: File,
    bytes: Vec<u8>,
    number: u64,
}

impl Hand {
    fn new(folder: &Path, bench: &Bench) -> Result<Self> {
        let rows = usize::try_from(RATE * INTERVAL_MS / 1000 / u64::from(SUBTASKS))?;
        let bytes = bench.lines.iter().cycle().take(rows).flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect();
        Ok(Self { folder: folder.to_owned(), directory: File::open(folder)?, bytes, number: 0 })
    }

    /// Answers with milliseconds. Readers do not see names that begin with a dot.
    fn publish(&mut self) -> Result<f64> {
        self.number += 1;
        let staged = self.folder.join(format!(".by-hand-{}-staged", self.number));
        let published = self.folder.join(format!(".by-hand-{}", self.number));
        let began = monotonic_ns();
        let mut file = File::create_new(&staged)?;
        file.write_all(&self.bytes)?;
        file.sync_all()?;
        std::fs::rename(&staged, &published)?;
        self.directory.sync_all()?;
        let took = millis(began, monotonic_ns())?;
        std::fs::remove_file(&published)?;
        Ok(took)
    }
}

fn millis(from_ns: u64, to_ns: u64) -> Result<f64> {
    let ns = to_ns.checked_sub(from_ns).context("what came first was seen last")?;
    Ok(ns as f64 / 1e6)
}

fn quantile(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len().saturating_sub(1) as f64 * at).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Median over median; the spread is that of the same in five stretches of the run.
fn ratio(name: &str, values: &[f64], floors: &[f64], must: f64) -> Figure {
    let of = |values: &[f64], floors: &[f64]| quantile(values, 0.5) / quantile(floors, 0.5);
    let whole = of(values, floors);
    let parts: Vec<f64> = split(values, 5).into_iter().zip(split(floors, 5)).map(|(v, f)| of(v, f)).collect();
    let (least, most) = (quantile(&parts, 0.0), quantile(&parts, 1.0));
    Figure::with_spread(name, whole, Op::AtMost, must, values.len(), (most - least) / whole)
}

/// Calls that flush, counted by strace between the first published epoch and the last.
pub(super) fn flushes(bench: &mut Bench) -> Result<()> {
    let workshop = Workshop::new(&bench.disk, "flushes")?;
    input(bench, &workshop, 30 * RATE * INTERVAL_MS / 1000)?;
    let sent = workshop.sent()?;
    let mut counts = Vec::new();
    for _ in bench.rounds() {
        workshop.clear()?;
        let trace = bench.disk.join("flushes.strace");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-y", "-e", "trace=fsync,fdatasync,sync,syncfs,sync_file_range,msync", "-o"]);
        command.arg(&trace).arg(&bench.binary).arg("run").arg(workshop.file());
        let started = Process::start(command).context("strace is needed: apt-get install -y strace")?;
        let (status, _, said) = started.finish(PATIENCE)?;
        ensure!(status.success(), "the traced run ended with {status}; it said:\n{said}");
        let difference = reader::read_all(&workshop.output())?.rows.against(&sent);
        ensure!(difference == Difference::default(), "the output differs from the input: {difference:?}");
        counts.push(per_epoch(&std::fs::read_to_string(&trace)?)?);
    }
    // The `files` sink promises nine in eight epochs for each such part and 25 in eight epochs for their commits, and the
    // log adds one per epoch: 6.4 with two subtasks. Retention's come on top.
    bench.figures.show(Figure::median("flushes-per-epoch", &counts, Op::AtMost, 8.0))?;
    workshop.remove()
}

fn per_epoch(trace: &str) -> Result<f64> {
    // Each call once, by the line on which it begins.
    let calls: Vec<&str> = trace.lines().filter(|line| line.contains('(') && !line.contains("resumed>")).collect();
    let epochs: Vec<usize> =
        calls.iter().enumerate().filter(|(_, call)| call.contains("/_epochs>")).map(|(index, _)| index).collect();
    let (Some(first), Some(last)) = (epochs.first(), epochs.last()) else {
        anyhow::bail!("`_epochs` was never flushed");
    };
    ensure!(epochs.len() > 10, "only {} epochs were flushed", epochs.len());
    Ok((last - first) as f64 / (epochs.len() - 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_is_read_from_the_log_and_nothing_else_is() {
        assert_eq!(barrier("DEBUG barrier epoch=7 at_ns=123"), Some((7, 123)));
        assert_eq!(barrier("DEBUG sealed epoch=7 at_ns=123"), None);
        assert_eq!(barrier("a barrier"), None);
    }

    #[test]
    fn flushes_are_counted_between_the_first_epoch_and_the_last() {
        let epoch =
            "1 fsync(3</d/staging/a>) = 0\n1 fsync(4</d/out/_epochs> <unfinished ...>\n1 <... fsync resumed>) = 0\n";
        let trace = format!("1 fdatasync(9</d/log>) = 0\n{}", epoch.repeat(12));
        assert_eq!(per_epoch(&trace).expect("twelve epochs"), 2.0);
        assert!(per_epoch("1 fsync(3</d/x>) = 0\n").is_err());
    }
}
