//! The sink side alone: the same plugin, once as a sandboxed component and once linked natively.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Bench;
use crate::figure::{Figure, Op};
use crate::flights::write_lines;
use crate::{multiset, product, reader};

/// Mebibytes that each side takes in a round.
pub(super) const SINK_MIB: &str = "512";
/// How often each side runs in a round; the least counts. What else goes on in the machine can only add to it, at times
/// more than the sink takes.
pub(super) const TRIES: usize = 3;

/// `sandbox-ratio` with the `files` sink, and `sandbox-ratio-bytes` with a plugin that looks at every byte.
pub(super) fn sandbox(bench: &mut Bench) -> Result<()> {
    let program = program()?;
    let input = bench.folder.join("batches.jsonl");
    write_lines(&input, (0..bench.arguments.copies).flat_map(|_| bench.lines.iter()))?;
    let reading = reading_plugin()?;
    let plugins = [("sandbox-ratio", Path::new("builtin:files"), 0.85), ("sandbox-ratio-bytes", &reading, 0.45)];
    for (name, plugin, must) in plugins {
        let mut ratios = Vec::new();
        for (round, turned) in bench.rounds() {
            // Alternating who comes first: whoever does finds the memory of the other's output free or not.
            let order = if turned { ["sandboxed", "native"] } else { ["native", "sandboxed"] };
            let mut seconds = BTreeMap::new();
            for side in [order; TRIES].concat() {
                let taken = run_sink(&program, side, plugin, &input, &bench.folder)?;
                let least = seconds.entry(side).or_insert(taken);
                *least = taken.min(*least);
            }
            let (native, sandboxed) = (seconds["native"], seconds["sandboxed"]);
            same_output(&bench.folder, "native", "sandboxed").with_context(|| format!("round {round}"))?;
            eprintln!("CPU seconds of the sink {}: native {native:.3}, sandboxed {sandboxed:.3}", plugin.display());
            ratios.push(native / sandboxed);
        }
        bench.figures.show(Figure::median(name, &ratios, Op::AtLeast, must))?;
    }
    std::fs::remove_file(input)?;
    Ok(())
}

/// The program that drives a sink alone.
pub(super) fn program() -> Result<PathBuf> {
    let program = product::target_directory()?.join("release/sinkbench");
    ensure!(program.is_file(), "`{}` is missing: cargo build --release -p tidegate-sinkbench", program.display());
    Ok(program)
}

/// Both sides must have published the same.
pub(super) fn same_output(folder: &Path, one: &str, other: &str) -> Result<()> {
    ensure!(
        published(&folder.join(one))? == published(&folder.join(other))?,
        "the sinks {one} and {other} published different bytes"
    );
    Ok(())
}

/// Builds the plugin that reads every byte.
fn reading_plugin() -> Result<PathBuf> {
    let target = product::target_directory()?.join("xtask/plugins");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--package", "tidegate-test-reading", "--target", "wasm32-wasip2"])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(crate::workspace())
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the plugin does not build: is the target there? rustup target add wasm32-wasip2");
    Ok(target.join("wasm32-wasip2/release/tidegate_test_reading.wasm"))
}

/// Runs one side; answers with the seconds it measured around the sink's calls: of the CPU for `native` and `sandboxed`,
/// of the wall clock for `shared` and `process`.
pub(super) fn run_sink(program: &Path, side: &str, plugin: &Path, input: &Path, folder: &Path) -> Result<f64> {
    let output = folder.join(side);
    if output.exists() {
        std::fs::remove_dir_all(&output)?;
    }
    let mut command = Command::new(program);
    command.args([side.as_ref(), plugin]).arg(input).arg(&output).arg(SINK_MIB).stderr(Stdio::inherit());
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
