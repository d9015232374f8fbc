//! Polars, from PyPI, in a virtual environment below the target directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::multiset::Lines;
use crate::product::{Cost, PATIENCE, Process};
use crate::values::Values;

/// The version that is compared with.
const VERSION: &str = "2.1.0";

/// The ways in which polars can do the job; the fastest one counts.
const WAYS: [&str; 4] = ["each-at-once", "each-streaming", "all-at-once", "all-streaming"];

/// `way json|parquet OUTPUT INPUT…`. Says how much CPU time had gone by when polars was loaded.
const WORK: &str = r#"
import sys, time
import polars as pl
print("loaded", time.process_time(), file=sys.stderr)
way, kind, output, inputs = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
batches = [[name] for name in inputs] if way.startswith("each") else [inputs]
for number, names in enumerate(batches):
    target = f"{output}/{number:02}.{kind}"
    if way.endswith("streaming"):
        rows = pl.scan_ndjson(names)
        if kind == "json":
            rows.sink_ndjson(target)
        else:
            rows.sink_parquet(target, compression="zstd", compression_level=3)
    else:
        rows = pl.read_ndjson(names[0]) if len(names) == 1 else pl.scan_ndjson(names).collect()
        if kind == "json":
            rows.write_ndjson(target)
        else:
            rows.write_parquet(target, compression="zstd", compression_level=3)
"#;

/// Reads Parquet files and writes their rows as JSON lines.
const READ_BACK: &str = r#"
import sys
import polars as pl
for name in sys.argv[1:]:
    rows = pl.read_parquet(name)
    times = [n for n, t in rows.schema.items() if isinstance(t, pl.Datetime)]
    rows = rows.with_columns(pl.col(n).dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ") for n in times)
    rows.write_ndjson(sys.stdout.buffer)
"#;

/// An interpreter that has polars.
pub(super) struct Polars {
    python: PathBuf,
}

/// What polars needed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// Of the whole process.
    pub(super) cost: Cost,
    /// CPU seconds until polars was loaded.
    pub(super) loading: f64,
}

impl Polars {
    /// Installs it, once.
    pub(super) fn ready() -> Result<Self> {
        let folder = crate::product::target_directory()?.join(format!("xtask/polars-{VERSION}"));
        let python = folder.join("bin/python");
        if !has_polars(&python) {
            let hint = "polars is installed with python3, its module venv, and pip";
            let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder).status().context(hint)?;
            ensure!(made.success(), "{hint}");
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            let installed = pip.arg(format!("polars=={VERSION}")).status().context(hint)?;
            ensure!(installed.success() && has_polars(&python), "{hint}");
        }
        Ok(Self { python })
    }

    /// The fastest way, by CPU time, on these files.
    pub(super) fn fastest(&self, kind: &str, inputs: &[PathBuf], output: &Path) -> Result<&'static str> {
        let mut times = Vec::new();
        for way in WAYS {
            // A way that this version does not offer is no candidate.
            match self.work(way, kind, inputs, output) {
                Ok(done) => times.push((done.cost.cpu_seconds, way)),
                Err(error) => eprintln!("polars, {kind}, {way}: {error:#}"),
            }
        }
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        eprintln!("polars to {kind}, CPU seconds on {} files: {times:.2?}", inputs.len());
        Ok(times.first().context("polars does the job in no way")?.1)
    }

    /// Does the job once. The output folder is emptied before.
    pub(super) fn work(&self, way: &str, kind: &str, inputs: &[PathBuf], output: &Path) -> Result<Done> {
        if output.exists() {
            std::fs::remove_dir_all(output)?;
        }
        std::fs::create_dir_all(output)?;
        let mut command = Command::new(&self.python);
        command.args(["-c", WORK, way, kind]).arg(output).args(inputs);
        let (status, cost, said) = Process::start(command)?.finish(PATIENCE)?;
        ensure!(status.success(), "polars ended with {status}: {said}");
        let loading = said.lines().find_map(|line| line.strip_prefix("loaded ")).context("polars said no `loaded`")?;
        Ok(Done { cost, loading: loading.trim().parse()? })
    }

    /// The rows of Parquet files, by value.
    pub(super) fn parquet_rows(&self, files: &[PathBuf], values: &mut Values) -> Result<Lines> {
        ensure!(!files.is_empty(), "there is no Parquet file to read");
        let mut command = Command::new(&self.python);
        let mut child = command.args(["-c", READ_BACK]).args(files).stdout(Stdio::piped()).spawn()?;
        let mut rows = Lines::default();
        let read = values.add_all(&mut rows, child.stdout.take().context("standard output was asked for")?);
        ensure!(child.wait()?.success(), "a Parquet file could not be read");
        read?;
        Ok(rows)
    }
}

fn has_polars(python: &Path) -> bool {
    let check = format!("import polars; assert polars.__version__ == '{VERSION}'");
    let checked = Command::new(python).args(["-c", &check]).stderr(Stdio::null()).status();
    checked.is_ok_and(|status| status.success())
}
