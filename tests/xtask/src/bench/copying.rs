//! Rows that pass unchanged: against `cat` on the same files, and the time to the first epoch.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use super::{Bench, run_unchanged};
use crate::figure::{Figure, Op};
use crate::multiset::{Difference, Lines};
use crate::product::{Cost, PATIENCE, Process};
use crate::workshop::{Plan, Workshop};

/// The whole product against `cat` on the same files.
pub(super) fn against_cat(bench: &mut Bench) -> Result<()> {
    let contenders = ["raw", "json-lines"].map(|format| {
        let workshop = Workshop::new(&bench.folder, format)?;
        workshop.plan(&Plan { format, interval_ms: 1000, ..Plan::default() })?;
        anyhow::Ok(workshop)
    });
    let [raw, checked] = contenders;
    let (raw, checked) = (raw?, checked?);
    let inputs = bench.inputs(&raw.inputs())?;
    for input in &inputs {
        std::fs::hard_link(input, checked.inputs().join(input.file_name().unwrap_or_default()))?;
    }
    let sent = raw.sent()?;
    let cat_output = bench.folder.join("cat");
    let (mut passed, mut proved) = (Vec::new(), Vec::new());
    for (_, turned) in bench.rounds() {
        let mut cat = None;
        if !turned {
            cat = Some(run_cat(&inputs, &cat_output, &sent)?);
        }
        let (raw_cost, _) = run_unchanged(&bench.binary, &raw, &sent)?;
        let (checked_cost, _) = run_unchanged(&bench.binary, &checked, &sent)?;
        raw.clear()?;
        checked.clear()?;
        let cat = match cat {
            Some(cat) => cat,
            None => run_cat(&inputs, &cat_output, &sent)?,
        };
        passed.push(cat.cpu_seconds / raw_cost.cpu_seconds);
        proved.push(cat.cpu_seconds / checked_cost.cpu_seconds);
        bench.peak("raw", &raw_cost);
        bench.peak("json-lines", &checked_cost);
        eprintln!(
            "{} rows; CPU seconds: cat {:.3}, raw {:.3}, json-lines {:.3}; wall: {:.2}, {:.2}, {:.2}",
            sent.total(),
            cat.cpu_seconds,
            raw_cost.cpu_seconds,
            checked_cost.cpu_seconds,
            cat.wall_seconds,
            raw_cost.wall_seconds,
            checked_cost.wall_seconds
        );
    }
    bench.figures.show(Figure::median("pass-through-of-cat", &passed, Op::AtLeast, 0.35))?;
    bench.figures.show(Figure::median("checked-of-cat", &proved, Op::AtLeast, 0.2))?;
    raw.remove()?;
    checked.remove()
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

/// From the start of the process to its end with one row committed: an upper bound of the time to the first epoch.
/// On a disk, with all its flushes. The first run fills the compile cache and is not counted.
pub(super) fn starting(bench: &mut Bench) -> Result<()> {
    let workshop = Workshop::new(&bench.disk, "start")?;
    workshop.input(&bench.lines[..1], 1)?;
    workshop.plan(&Plan { interval_ms: 1000, ..Plan::default() })?;
    let sent = workshop.sent()?;
    run_unchanged(&bench.binary, &workshop, &sent)?;
    let mut times = Vec::new();
    for _ in bench.rounds() {
        times.push(run_unchanged(&bench.binary, &workshop, &sent)?.0.wall_seconds * 1000.0);
    }
    bench.figures.show(Figure::median("start-ms", &times, Op::AtMost, 500.0))
}
