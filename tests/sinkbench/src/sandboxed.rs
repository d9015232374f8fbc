//! The embedded component, with the limits and ticks that pipelines have.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use tidegate_protocol::ids::{Epoch, KeyRange, PartId, SinkHash};
use tidegate_protocol::plugin::{
    Batch, BoxFuture, CallContext, Committer, Encoding, External, IntentLog, Outcome, PluginError, Writer,
};
use tidegate_wasm::{BindOptions, ConfinementPolicy, DirGrant, Isolation, Runtime, RuntimeOptions, Worker, builtin};
use tokio::runtime::{Builder, Runtime as Tokio};

use crate::native::names;
use crate::{Rows, Side};

pub(crate) struct Sandboxed {
    tokio: Tokio,
    ctx: CallContext,
    writer: Box<dyn Writer>,
    committer: Box<dyn Committer>,
    previous: Vec<PartId>,
}

impl Sandboxed {
    pub(crate) fn open(plugin: &str, output: &Path, isolation: Isolation) -> Result<Self> {
        let (pipeline, sink, run) = names()?;
        let worker = match isolation {
            Isolation::Shared => Worker::InProcess,
            Isolation::Process => Worker::this_program()?,
        };
        // What is measured is the way to the child, not whether this machine can confine it.
        let confinement = ConfinementPolicy::IfPossible;
        let runtime = Runtime::new(RuntimeOptions { worker, confinement, isolation, ..RuntimeOptions::default() })?;
        let admitted = match plugin.strip_prefix("builtin:") {
            Some(name) => runtime.admit(plugin, builtin::component(name).context("no such plugin is embedded")?)?,
            None => runtime.admit(plugin, &std::fs::read(plugin)?)?,
        };
        let mut options = BindOptions::new(sink.as_str());
        options.dirs.insert("output".to_owned(), DirGrant::new(output));
        let plugin = admitted.bind(options)?;
        let sink_hash = SinkHash::of(&pipeline, &sink);
        let ctx = CallContext { sink, sink_hash, run, config: "{}".into(), attempt: 1 };
        let observes = plugin.description().abilities.observe;
        // Nothing here waits for the network or for a clock: instances bring their own.
        let tokio = Builder::new_current_thread().build()?;
        let (writer, committer) = tokio.block_on(async {
            let mut committer = plugin.committer().await?;
            if observes {
                let position = committer.observe(&ctx).await?;
                committer.fence(&ctx, &position).await?;
            }
            let mut writer = plugin.writer(Arc::new(NoIntents)).await?;
            writer.open(&ctx, KeyRange::ALL, &[]).await?;
            anyhow::Ok((writer, committer))
        })?;
        Ok(Self { tokio, ctx, writer, committer, previous: Vec::new() })
    }
}

impl Side for Sandboxed {
    fn epoch(&mut self, number: u64, batches: &[Rows]) -> Result<()> {
        let (pipeline, sink, run) = names()?;
        let part = PartId::mint(&pipeline, &sink, run, Epoch(number), 0, 1);
        let Self { tokio, ctx, writer, committer, previous } = self;
        tokio.block_on(async {
            writer.begin(ctx, &part).await?;
            for batch in batches {
                let batch = Batch::new(batch.bytes.clone(), batch.rows, Encoding::JsonLines);
                let rejects = writer.write(ctx, batch).await?;
                ensure!(rejects.is_empty(), "rows were rejected");
            }
            let prepared = writer.prepare(ctx).await?;
            let outcomes = committer.commit(ctx, previous, &[prepared.committable]).await?;
            ensure!(outcomes == [Outcome::Committed], "not committed: {outcomes:?}");
            anyhow::Ok(())
        })?;
        self.previous = vec![part];
        Ok(())
    }
}

/// The `files` sink announces nothing: its staged files can be listed.
struct NoIntents;

impl IntentLog for NoIntents {
    fn intent(&self, _part: Option<PartId>, _resource: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        Box::pin(async { Ok(0) })
    }

    fn bound(&self, _intent: u64, _name: String) -> BoxFuture<'_, Result<(), PluginError>> {
        Box::pin(async { Ok(()) })
    }
}
