//! How fast rows go through the sandbox into a file, beside the same bytes written natively.
//!
//! Beside the time on the clock it shows the processor time of the whole process, which says more on a busy machine.
//!
//! A call costs a few microseconds whatever its size, so small batches show a worse ratio.
//!
//! `cargo run --release -p tidegate-wasm --example throughput [-- <directory>]`

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_protocol::ids::{Epoch, KeyRange, Nonce, PartId, PipelineId, RunId, SinkHash, SinkId};
use tidegate_protocol::plugin::{
    Batch, BoxFuture, CallContext, Encoding, External, IntentLog, PluginError, Unsealed, Writer,
};
use tidegate_wasm::{BindOptions, Runtime, RuntimeOptions, builtin};

const ROW_BYTES: usize = 300;
const TOTAL_BYTES: usize = 512 << 20;
const ROUNDS: usize = 5;

type Failure = Box<dyn std::error::Error>;

struct NoIntents;

impl IntentLog for NoIntents {
    fn intent(&self, _: Option<PartId>, _: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        Box::pin(async { Ok(0) })
    }
    fn bound(&self, _: u64, _: String) -> BoxFuture<'_, Result<(), PluginError>> {
        Box::pin(async { Ok(()) })
    }
}

#[allow(clippy::print_stdout, reason = "its only output")]
#[tokio::main]
async fn main() -> Result<(), Failure> {
    let dir = std::env::args_os().nth(1).unwrap_or_else(|| std::env::temp_dir().into_os_string());
    let dir = Path::new(&dir).join(format!("tidegate-throughput-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let measured = measure(&dir).await;
    std::fs::remove_dir_all(&dir)?;
    for (batch, native, sandboxed) in measured? {
        let rows = |spent: Spent| (TOTAL_BYTES / ROW_BYTES) as f64 / spent.clock.as_secs_f64() / 1e6;
        println!(
            "{:>5} KiB a batch: native {:.2} million rows/s, sandboxed {:.2}, ratio {:.3}, by processor time {:.3}",
            batch >> 10,
            rows(native),
            rows(sandboxed),
            native.clock.as_secs_f64() / sandboxed.clock.as_secs_f64(),
            native.processor.as_secs_f64() / sandboxed.processor.as_secs_f64()
        );
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Spent {
    clock: Duration,
    processor: Duration,
}

impl Spent {
    const NONE_YET: Spent = Spent { clock: Duration::MAX, processor: Duration::MAX };

    fn best(self, other: Spent) -> Spent {
        Spent { clock: self.clock.min(other.clock), processor: self.processor.min(other.processor) }
    }
}

struct Watch(Instant, Duration);

impl Watch {
    fn start() -> Result<Self, Failure> {
        let processor = processor_time()?;
        Ok(Watch(Instant::now(), processor))
    }

    fn stop(self) -> Result<Spent, Failure> {
        let clock = self.0.elapsed();
        Ok(Spent { clock, processor: processor_time()?.saturating_sub(self.1) })
    }
}

/// Of all threads that are alive.
fn processor_time() -> Result<Duration, Failure> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split_whitespace().next().ok_or("an empty schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(sum))
}

/// For each batch size the best time of both ways, in turns, so that neither has the warmer cache.
async fn measure(dir: &Path) -> Result<Vec<(usize, Spent, Spent)>, Failure> {
    let pipeline = PipelineId::new("throughput")?;
    let sink = SinkId::new("out")?;
    let ctx = CallContext {
        sink_hash: SinkHash::of(&pipeline, &sink),
        sink: sink.clone(),
        run: RunId { number: 1, nonce: Nonce([7; 10]) },
        config: "{}".into(),
        attempt: 1,
    };
    let runtime = Runtime::new(RuntimeOptions::default())?;
    let component = builtin::component("files").ok_or("no built-in files plugin")?;
    let mut options = BindOptions::new("out");
    options.dirs.insert("output".to_owned(), dir.join("sandboxed").into());
    let plugin = runtime.admit("builtin:files", component)?.bind(options)?;
    let mut writer = plugin.writer(Arc::new(NoIntents)).await?;
    writer.open(&ctx, KeyRange::ALL, &[]).await?;
    let mut janitor = plugin.janitor().await?;

    let mut results = Vec::new();
    let mut epoch = 0;
    for batch_bytes in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        let batch = rows(batch_bytes);
        let (mut native, mut sandboxed) = (Spent::NONE_YET, Spent::NONE_YET);
        for _ in 0..ROUNDS {
            native = native.best(write_natively(&dir.join("native"), &batch)?);
            epoch += 1;
            let part = PartId::mint(&pipeline, &sink, ctx.run, Epoch(epoch), 0, 1);
            writer.begin(&ctx, &part).await?;
            sandboxed = sandboxed.best(write_sandboxed(&mut *writer, &ctx, &batch).await?);
            let prepared = writer.prepare(&ctx).await?;
            let unsealed = Unsealed { part, committable: Some(prepared.committable), resources: prepared.resources };
            janitor.abandon(&ctx, &[unsealed]).await?;
        }
        results.push((batch_bytes, native, sandboxed));
    }
    Ok(results)
}

fn rows(bytes: usize) -> Batch {
    let mut row = vec![b'x'; ROW_BYTES];
    row[ROW_BYTES - 1] = b'\n';
    let rows = (bytes / ROW_BYTES).max(1);
    Batch::new(Bytes::from(row.repeat(rows)), rows as u64, Encoding::JsonLines)
}

fn write_natively(path: &Path, batch: &Batch) -> Result<Spent, Failure> {
    let mut file = File::create(path)?;
    let watch = Watch::start()?;
    let mut written = 0;
    while written < TOTAL_BYTES {
        file.write_all(&batch.bytes)?;
        written += batch.bytes.len();
    }
    let spent = watch.stop()?;
    file.sync_all()?;
    std::fs::remove_file(path)?;
    Ok(spent)
}

async fn write_sandboxed(writer: &mut dyn Writer, ctx: &CallContext, batch: &Batch) -> Result<Spent, Failure> {
    let watch = Watch::start()?;
    let mut written = 0;
    while written < TOTAL_BYTES {
        writer.write(ctx, batch.clone()).await?;
        written += batch.bytes.len();
    }
    watch.stop()
}
