//! Crash images: SIGKILL never tests a flush, so a traced run tells what a power cut could have left, and the product
//! must recover from each.

mod model;
mod strace;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::figure::{Figure, Figures, Op};
use crate::flights;
use crate::multiset::Difference;
use crate::product::{self, PATIENCE, Process};
use crate::random::Random;
use crate::reader;
use crate::workshop::{Plan, Workshop, folder_for};
use model::{Disk, Fate, Image};

/// What `cargo xtask crash-images` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many different images are recovered.
    #[arg(long, default_value_t = 500, value_parser = crate::arguments::some::<usize>)]
    images: usize,
    /// Rows of the traced run's input.
    #[arg(long, default_value_t = 600, value_parser = crate::arguments::some::<usize>)]
    rows: usize,
    /// All flights instead of the example's January.
    #[arg(long)]
    flights: Option<PathBuf>,
    /// Judge this binary instead of the release build.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Makes the same choices again.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The calls that change a directory tree, open it or flush it.
const CALLS: &str = "?open,?creat,openat,?openat2,close,?dup,?dup2,dup3,fcntl,write,writev,pwrite64,pwritev,?pwritev2,\
lseek,ftruncate,fallocate,fsync,fdatasync,sync,syncfs,?mkdir,mkdirat,?rename,?renameat,renameat2,?link,linkat,\
?unlink,unlinkat,?rmdir";

/// One image to be recovered: a traced run, a line of its trace, and the fate of what was not flushed.
#[derive(Debug, Clone, Copy)]
struct Case {
    run: usize,
    point: usize,
    fate: Fate,
}

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    ensure!(Command::new("strace").arg("-V").output().is_ok(), "strace is missing: apt-get install -y strace");
    let binary = product::binary(arguments.binary.as_deref())?;
    let mut lines = flights::lines_for_checks(arguments.flights.as_deref())?;
    lines.truncate(arguments.rows);
    let folder = folder_for("crash-images", 1 << 30);
    let workshop = Workshop::new(&folder, "work")?;
    workshop.input(&lines, 3)?;
    // About a second and a half of input: some twenty epochs of 50 ms under strace.
    workshop.plan(&Plan { rate: Some(arguments.rows as u64 * 2 / 3), retain: 3, ..Plan::default() })?;

    let runs = [trace_from(&workshop, &binary, &folder, None)?, trace_recovery(&workshop, &binary, &folder)?];
    for disk in &runs {
        ensure!(disk.flushes > 0, "the traced run flushed nothing below `{}`", workshop.disk().display());
    }
    let cases = choose(&runs, arguments.images, arguments.seed);
    eprintln!("{} images from {} and {} points", cases.len(), runs[0].points().len(), runs[1].points().len());

    // Recovering needs no slow source.
    workshop.plan(&Plan { retain: 3, ..Plan::default() })?;
    let failed = recover_all(&workshop, &binary, &runs, &cases)?;
    let mut figures = Figures::default();
    figures.show(Figure::new("crash-images", cases.len() as f64, Op::AtLeast, arguments.images as f64))?;
    figures.show(Figure::new("crash-images-failed", failed as f64, Op::Exactly, 0.0))?;
    std::fs::remove_dir_all(&folder)?;
    figures.verdict()
}

/// Traces a whole run that starts on `before` (nothing: on an empty disk) and checks that the model tells what is
/// really on the disk afterwards.
fn trace_from(workshop: &Workshop, binary: &Path, folder: &Path, before: Option<Image>) -> Result<Disk> {
    let before = match before {
        Some(image) => image,
        None => Image::read(&workshop.disk())?,
    };
    let output = folder.join("trace");
    let run = workshop.command(binary);
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-xx", "-s", "16777216", "-e"]).arg(format!("trace={CALLS}"));
    command.args(["-e", "signal=none", "-o"]).arg(&output).arg(run.get_program()).args(run.get_args());
    let (status, _, said) = Process::start(command)?.finish(PATIENCE)?;
    ensure!(status.success(), "the traced run ended with {status}; it said:\n{said}");

    let trace = std::fs::read_to_string(&output)?;
    let root = workshop.disk();
    let mut disk = Disk::new(root.to_str().context("the folder's name is not UTF-8")?, &before);
    for call in strace::parse(&trace)? {
        disk.apply(&call).with_context(|| format!("line {} of `{}`", call.start + 1, output.display()))?;
    }
    let differences = disk.image(usize::MAX, Fate::Everything).differences(&Image::read(&root)?);
    ensure!(differences.is_empty(), "the trace does not explain what is on the disk: {}", differences.join(", "));
    Ok(disk)
}

/// A run is killed with a sealed epoch that was sent nowhere; the run that recovers from it is traced.
fn trace_recovery(workshop: &Workshop, binary: &Path, folder: &Path) -> Result<Disk> {
    empty(&workshop.disk())?;
    let mut command = workshop.command(binary);
    command.args(["--hold-at", "sealed:4"]);
    let mut process = Process::start(command)?;
    ensure!(process.wait_for_line("held sealed", Duration::from_secs(60)), "the run was never held at `sealed`");
    ensure!(process.kill()?, "the run ended before it was killed");
    let before = Image::read(&workshop.disk())?;
    trace_from(workshop, binary, folder, Some(before))
}

/// Different images, spread evenly over both traces and all fates.
fn choose(runs: &[Disk], wanted: usize, seed: u64) -> Vec<Case> {
    let mut random = Random::new(seed);
    let mut seen = HashSet::new();
    let mut cases = Vec::new();
    for (run, disk) in runs.iter().enumerate() {
        for point in disk.points() {
            let fates = [
                Fate::NothingUnflushed,
                Fate::Everything,
                Fate::NamesOnly,
                Fate::Zeroed,
                Fate::ContentsOnly,
                Fate::Torn(random.next()),
                Fate::Journal(random.next()),
                Fate::Random(random.next()),
                Fate::Random(random.next()),
            ];
            for fate in fates {
                if seen.insert(disk.image(point, fate).fingerprint()) {
                    cases.push(Case { run, point, fate });
                }
            }
        }
    }
    if cases.len() <= wanted {
        return cases;
    }
    (0..wanted).map(|index| cases[index * cases.len() / wanted]).collect()
}

/// Lays out each image, runs the product on it to the end and compares. Answers with how many went wrong.
fn recover_all(workshop: &Workshop, binary: &Path, runs: &[Disk], cases: &[Case]) -> Result<usize> {
    let sent = workshop.sent()?;
    let mut failed = 0;
    for (index, case) in cases.iter().enumerate() {
        let image = runs[case.run].image(case.point, case.fate);
        empty(&workshop.disk())?;
        image.write(&workshop.disk())?;
        let recovered = workshop.finish(binary).and_then(|()| {
            let output = reader::read_all(&workshop.output())?;
            let difference = output.rows.against(&sent);
            ensure!(difference == Difference::default(), "{difference:?} of {} rows", sent.total());
            Ok(())
        });
        if let Err(error) = recovered {
            failed += 1;
            let kept = keep(&image, workshop, failed)?;
            eprintln!("image {index} ({case:?}) failed, kept in `{}`: {error:#}", kept.display());
        }
        if (index + 1) % 100 == 0 {
            eprintln!("{} images of {}, {failed} failed", index + 1, cases.len());
        }
    }
    Ok(failed)
}

/// Keeps a failed image for a person, the first few of them.
fn keep(image: &Image, workshop: &Workshop, number: usize) -> Result<PathBuf> {
    let kept = product::target_directory()?.join("xtask/failed-images").join(number.to_string());
    if number <= 20 {
        if kept.exists() {
            std::fs::remove_dir_all(&kept)?;
        }
        std::fs::create_dir_all(kept.join("disk"))?;
        image.write(&kept.join("disk"))?;
        std::fs::copy(workshop.file(), kept.join("pipeline.toml"))?;
    }
    Ok(kept)
}

/// Removes what is in a directory, and not the directory.
fn empty(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { std::fs::remove_dir_all(&path)? } else { std::fs::remove_file(&path)? }
    }
    Ok(())
}
