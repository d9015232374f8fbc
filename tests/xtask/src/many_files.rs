//! A directory of very many small files: it starts soon, a checkpoint writes what moved and not where everything
//! stands, and a kill in the middle loses and repeats nothing.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::figure::{Figure, Figures, Op};
use crate::product::{self, PATIENCE, Process, pause};
use crate::reader;
use crate::workshop::{Plan, Workshop, folder_for};

/// What `cargo xtask many-files` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many files.
    #[arg(long, default_value_t = 100_000, value_parser = crate::arguments::some::<usize>)]
    files: usize,
    /// Judge this binary instead of the release build.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Work in this directory instead of in memory.
    #[arg(long)]
    folder: Option<PathBuf>,
}

const ROWS_PER_FILE: usize = 3;
const INTERVAL_MS: u64 = 100;
/// Rows per second of the first half: so few that about ten files move between two checkpoints.
const SLOW: u64 = 300;
/// Checkpoints over which bytes are counted.
const COUNTED: u64 = 150;

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let binary = product::binary(arguments.binary.as_deref())?;
    let folder = arguments.folder.clone().unwrap_or_else(|| folder_for("many-files", 1 << 30));
    std::fs::create_dir_all(&folder)?;
    let mut figures = Figures::default();
    let kept = || format!("the pipeline is kept in `{}`", folder.display());
    judge(&binary, &folder, arguments.files, &mut figures).with_context(kept)?;
    figures.verdict().with_context(kept)?;
    std::fs::remove_dir_all(folder.join("pipeline"))?;
    // Ours only when nothing else is in it.
    let _ = std::fs::remove_dir(&folder);
    Ok(())
}

fn judge(binary: &Path, folder: &Path, files: usize, figures: &mut Figures) -> Result<()> {
    let workshop = Workshop::new(folder, "pipeline")?;
    write_files(&workshop.input_folder(), files)?;
    let plan = Plan { rate: Some(SLOW), interval_ms: INTERVAL_MS, ..Plan::default() };
    workshop.plan(&plan)?;

    let (process, start_ms) = start(&workshop, binary)?;
    figures.show(Figure::new("many-files-start-ms", start_ms, Op::AtMost, 10_000.0))?;
    figures.show(Figure::new(
        "many-files-bytes-per-checkpoint",
        bytes_per_checkpoint(&workshop, &process)?,
        Op::AtMost,
        131_072.0,
    ))?;
    ensure!(process.kill()?, "the process ended before it could be killed");

    workshop.plan(&Plan { rate: None, ..plan })?;
    let (process, restart_ms) = start(&workshop, binary)?;
    figures.show(Figure::new("many-files-restart-ms", restart_ms, Op::AtMost, 10_000.0))?;
    let (status, cost, said) = process.finish(PATIENCE)?;
    ensure!(status.success(), "`tidegate run` ended with {status}; it said:\n{said}");
    figures.show(Figure::new("many-files-seconds", cost.wall_seconds, Op::AtMost, PATIENCE.as_secs_f64()))?;
    figures.show(Figure::new("many-files-peak-mib", cost.peak_mib, Op::AtMost, 512.0))?;

    let output = reader::read_all(&workshop.output())?;
    let sent = workshop.sent()?;
    ensure!(sent.total() == (files * ROWS_PER_FILE) as u64, "the input changed under the check");
    let difference = output.rows.against(&sent);
    figures.show(Figure::new("many-files-lost", difference.lost as f64, Op::Exactly, 0.0))?;
    figures.show(Figure::new("many-files-duplicated", difference.duplicated as f64, Op::Exactly, 0.0))
}

fn write_files(input: &Path, files: usize) -> Result<()> {
    for number in 0..files {
        let mut text = Vec::new();
        for row in 0..ROWS_PER_FILE {
            writeln!(text, "{{\"file\":{number},\"row\":{row},\"text\":\"one of very many rows\"}}")?;
        }
        std::fs::write(input.join(format!("part-{number:07}.jsonl")), text)?;
    }
    Ok(())
}

/// Starts the pipeline; answers when the next epoch is sealed, and how long that took.
fn start(workshop: &Workshop, binary: &Path) -> Result<(Process, f64)> {
    let before = workshop.newest_slot()?;
    let began = Instant::now();
    let mut process = Process::start(workshop.command(binary))?;
    // The run's `open` record comes first, then a seal.
    while workshop.newest_slot()? < before + 2 {
        ensure!(process.lives(), "the process ended before its first seal; it said:\n{}", process.finish(PATIENCE)?.2);
        ensure!(began.elapsed() < PATIENCE, "no epoch was sealed within {} s", PATIENCE.as_secs());
        pause(Duration::from_millis(5));
    }
    Ok((process, began.elapsed().as_secs_f64() * 1000.0))
}

/// All that the process hands to the kernel: log, state, output and what it says. Seen from outside.
fn bytes_per_checkpoint(workshop: &Workshop, process: &Process) -> Result<f64> {
    // The first epochs hold the files' first positions and what the start left to do.
    wait_for_epochs(workshop, 10)?;
    let (epochs, bytes) = (epochs(workshop)?, process.written()?);
    wait_for_epochs(workshop, epochs + COUNTED)?;
    let (epochs, bytes) = (self::epochs(workshop)? - epochs, process.written()? - bytes);
    ensure!(epochs >= COUNTED, "only {epochs} checkpoints were counted");
    Ok(bytes as f64 / epochs as f64)
}

fn epochs(workshop: &Workshop) -> Result<u64> {
    Ok(reader::epoch_names(&workshop.output())?.len() as u64)
}

fn wait_for_epochs(workshop: &Workshop, wanted: u64) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while epochs(workshop)? < wanted {
        ensure!(Instant::now() < end, "{wanted} epochs were not committed within {} s", PATIENCE.as_secs());
        pause(Duration::from_millis(20));
    }
    Ok(())
}
