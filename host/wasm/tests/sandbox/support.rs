//! What the tests share.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use tidegate_protocol::ids::{Epoch, Nonce, PartId, PipelineId, RunId, SinkHash, SinkId};
use tidegate_protocol::plugin::{
    Batch, BoxFuture, CallContext, Encoding, External, IntentLog, Plugin, PluginError, Position,
};
use tidegate_wasm::{
    Admitted, ConfinementPolicy, LogLine, LogSink, MetricSample, MetricSink, Runtime, RuntimeOptions, Worker, builtin,
};

#[path = "../../build/guest.rs"]
mod guest;

/// One runtime for all tests: compiling is the slow part. Whether this machine can confine is another test's question.
pub(crate) fn runtime() -> Arc<Runtime> {
    static RUNTIME: OnceLock<Arc<Runtime>> = OnceLock::new();
    let options = || RuntimeOptions {
        worker: Worker::Program(env!("CARGO_BIN_EXE_tidegate-test-worker").into()),
        confinement: ConfinementPolicy::IfPossible,
        ..RuntimeOptions::default()
    };
    RUNTIME.get_or_init(|| Runtime::new(options()).unwrap()).clone()
}

/// Two tests of a scenario: in this process, and in a child.
macro_rules! both_ways {
    ($scenario:ident) => {
        mod $scenario {
            #[tokio::test]
            async fn in_this_process() {
                super::$scenario(tidegate_wasm::Isolation::Shared).await;
            }

            #[tokio::test]
            async fn in_a_child_process() {
                super::$scenario(tidegate_wasm::Isolation::Process).await;
            }
        }
    };
}
pub(crate) use both_ways;

pub(crate) fn files() -> Admitted {
    static FILES: OnceLock<Admitted> = OnceLock::new();
    FILES.get_or_init(|| runtime().admit("builtin:files", builtin::component("files").unwrap()).unwrap()).clone()
}

/// Builds a guest that only tests have, beside the reference plugins.
fn built(package: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    guest::ensure_target(root).unwrap();
    let target_dir = guest::target_dir(Path::new(env!("OUT_DIR")));
    std::fs::read(guest::compile(root, &target_dir, package, &package.replace('-', "_")).unwrap()).unwrap()
}

/// The misbehaving guest.
pub(crate) fn hostile_bytes() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| built("tidegate-test-hostile"))
}

/// The guest that uses the network.
pub(crate) fn caller() -> Admitted {
    static CALLER: OnceLock<Admitted> = OnceLock::new();
    CALLER.get_or_init(|| runtime().admit("caller.wasm", &built("tidegate-test-caller")).unwrap()).clone()
}

/// The guest that sends requests.
pub(crate) fn fetcher() -> Admitted {
    static FETCHER: OnceLock<Admitted> = OnceLock::new();
    FETCHER.get_or_init(|| runtime().admit("fetcher.wasm", &built("tidegate-test-fetcher")).unwrap()).clone()
}

/// The guest that does with files what it is told.
pub(crate) fn scribe() -> Admitted {
    static SCRIBE: OnceLock<Admitted> = OnceLock::new();
    SCRIBE.get_or_init(|| runtime().admit("scribe.wasm", &built("tidegate-test-scribe")).unwrap()).clone()
}

pub(crate) fn hostile() -> Admitted {
    static HOSTILE: OnceLock<Admitted> = OnceLock::new();
    HOSTILE.get_or_init(|| runtime().admit("hostile.wasm", hostile_bytes()).unwrap()).clone()
}

pub(crate) fn context(sink: &str, run: u64, config: &str) -> CallContext {
    let sink = SinkId::new(sink).unwrap();
    CallContext {
        sink_hash: SinkHash::of(&pipeline(), &sink),
        sink,
        run: run_id(run),
        config: config.into(),
        attempt: 1,
    }
}

pub(crate) fn pipeline() -> PipelineId {
    PipelineId::new("test").unwrap()
}

pub(crate) fn run_id(number: u64) -> RunId {
    RunId { number, nonce: Nonce([number as u8; 10]) }
}

pub(crate) fn part(ctx: &CallContext, epoch: u64, ordinal: u32) -> PartId {
    PartId::mint(&pipeline(), &ctx.sink, ctx.run, Epoch(epoch), ordinal, 1)
}

pub(crate) fn rows(text: &str) -> Batch {
    Batch::new(text.to_owned().into(), text.lines().count() as u64, Encoding::JsonLines)
}

/// Remembers what was announced.
#[derive(Default)]
pub(crate) struct Intents(pub Mutex<Vec<String>>);

impl IntentLog for Intents {
    fn intent(&self, part: Option<PartId>, resource: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        let mut seen = self.0.lock().unwrap();
        seen.push(format!("{} {}", part.map(|p| p.short).unwrap_or_default(), resource.name));
        let number = seen.len() as u64;
        Box::pin(async move { Ok(number) })
    }

    fn bound(&self, intent: u64, name: String) -> BoxFuture<'_, Result<(), PluginError>> {
        self.0.lock().unwrap().push(format!("{intent} is {name}"));
        Box::pin(async { Ok(()) })
    }
}

/// Keeps what a plugin logged and measured.
#[derive(Default)]
pub(crate) struct Kept {
    pub lines: Mutex<Vec<LogLine>>,
    pub samples: Mutex<Vec<MetricSample>>,
}

impl LogSink for Kept {
    fn line(&self, line: LogLine) {
        self.lines.lock().unwrap().push(line);
    }
}

impl MetricSink for Kept {
    fn sample(&self, sample: MetricSample) {
        self.samples.lock().unwrap().push(sample);
    }
}

/// Where a destination stands, asked with a fresh committer.
pub(crate) async fn observe(plugin: &dyn Plugin, ctx: &CallContext) -> Position {
    plugin.committer().await.unwrap().observe(ctx).await.unwrap()
}
