//! One side of `sandbox-ratio` or of `process-batch-us`: a sink takes batches that are in memory already, epoch by epoch, through write, prepare
//! and commit; prints the CPU seconds, or those of the wall clock, that took.
//!
//! `sinkbench native|sandboxed|shared|process PLUGIN INPUT OUTPUT MIB`: INPUT is cut into batches and sent again until MIB mebibytes
//! went through. PLUGIN is `builtin:files`, or the component of `tidegate-test-reading`. Native is the plugin's own crate
//! linked into this program; sandboxed is the component with the limits and ticks that pipelines have. Shared is the same,
//! measured on the wall clock; process runs it in a child process.

mod native;
mod sandboxed;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use tidegate_sink_files::Files;
use tidegate_test_reading::Reading;
use tidegate_wasm::Isolation;

/// Size of a batch, about what a pipeline hands on at once.
const BATCH_BYTES: usize = 1 << 20;
/// Batches of one epoch: what one of two participants takes in a small part of a second at the speed of the product.
const EPOCH_BATCHES: usize = 64;

/// The sink that is embedded.
const FILES: &str = "builtin:files";

/// A batch of whole lines.
#[derive(Debug, Clone)]
struct Rows {
    bytes: Bytes,
    rows: u64,
}

/// The sink, one way or the other.
trait Side {
    /// Stages and commits one epoch.
    fn epoch(&mut self, number: u64, batches: &[Rows]) -> Result<()>;
}

fn main() -> Result<()> {
    tidegate_wasm::worker::run_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [side, plugin, input, output, mib] = &arguments[..] else {
        bail!("expected: sinkbench native|sandboxed|shared|process PLUGIN INPUT OUTPUT MIB");
    };
    let batches = cut(std::fs::read(input).with_context(|| format!("cannot read `{input}`"))?)?;
    let wanted = mib.parse::<usize>().context("MIB is a whole number")? << 20;
    std::fs::create_dir_all(output)?;
    let mut sink: Box<dyn Side> = match side.as_str() {
        "native" if plugin == FILES => Box::new(native::Native::<Files>::open(Path::new(output))?),
        "native" => Box::new(native::Native::<Reading>::open(Path::new(output))?),
        "sandboxed" | "shared" => Box::new(sandboxed::Sandboxed::open(plugin, Path::new(output), Isolation::Shared)?),
        "process" => Box::new(sandboxed::Sandboxed::open(plugin, Path::new(output), Isolation::Process)?),
        other => bail!("`{other}` is no side"),
    };
    touch_free_memory(Path::new(output), 2 * wanted)?;
    let mut source = batches.iter().cycle();
    let mut next = |bytes: &mut usize| -> Vec<Rows> {
        let epoch: Vec<Rows> = source.by_ref().take(EPOCH_BATCHES).cloned().collect();
        *bytes += epoch.iter().map(|batch| batch.bytes.len()).sum::<usize>();
        epoch
    };
    // The first epoch makes directories and warms up; it is not measured.
    let (mut number, mut sent) = (1, 0);
    sink.epoch(number, &next(&mut sent))?;
    sent = 0;
    let (before, began) = (cpu_seconds()?, Instant::now());
    while sent < wanted {
        number += 1;
        sink.epoch(number, &next(&mut sent))?;
    }
    println(match side.as_str() {
        "shared" | "process" => began.elapsed().as_secs_f64(),
        _ => cpu_seconds()? - before,
    });
    Ok(())
}

/// On a virtual machine, memory that was not used for a while is given back to its host, and taking it again costs many
/// times what a sink does. So as much as will be written, and what the process itself takes, is written beside the output
/// and removed. Right before measuring: one side takes longer to start than the other.
fn touch_free_memory(output: &Path, bytes: usize) -> Result<()> {
    let path = output.with_extension("touched");
    let mut file = File::create(&path).with_context(|| format!("cannot create `{}`", path.display()))?;
    let mebibyte = vec![1; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&mebibyte)?;
    }
    drop(file);
    Ok(std::fs::remove_file(path)?)
}

#[expect(clippy::print_stdout, reason = "the figure is this program's output")]
fn println(seconds: f64) {
    println!("{seconds}");
}

fn cut(input: Vec<u8>) -> Result<Vec<Rows>> {
    let mut rest = Bytes::from(input);
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let most = BATCH_BYTES.min(rest.len());
        let end = rest[..most].iter().rposition(|byte| *byte == b'\n').context("a line is longer than a batch")? + 1;
        let bytes = rest.split_to(end);
        let rows = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        batches.push(Rows { bytes, rows });
    }
    ensure!(!batches.is_empty(), "the input is empty");
    Ok(batches)
}

/// User and system time of this process, all threads, to the nanosecond.
fn cpu_seconds() -> Result<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live, writable `timespec`.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    ensure!(answer == 0, "no CPU clock: {}", std::io::Error::last_os_error());
    Ok(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}
