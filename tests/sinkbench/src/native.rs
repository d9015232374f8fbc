//! The plugin's crate, linked into this program.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use tidegate_protocol::ids::{Epoch, Nonce, PartId, PipelineId, RunId, SinkHash, SinkId};
use tidegate_sdk::native::{Host, Rows as NativeRows};
use tidegate_sdk::{Ctx, Encoding, KeyRange, Outcome, Part, Sink, Writer as _};
use tidegate_sink_files::GRANT;

use crate::{Rows, Side};

pub(crate) struct Native<S: Sink> {
    ctx: Ctx,
    committer: S,
    writer: S::Writer,
    run: RunId,
    previous: Vec<Part>,
}

/// The names that both sides use, so that they publish under the same ones.
pub(crate) fn names() -> Result<(PipelineId, SinkId, RunId)> {
    Ok((PipelineId::new("bench")?, SinkId::new("out")?, RunId { number: 1, nonce: Nonce([7; 10]) }))
}

impl<S: Sink> Native<S> {
    pub(crate) fn open(output: &Path) -> Result<Self> {
        let (pipeline, sink, run) = names()?;
        let host = Arc::new(Host::new().dir(GRANT, output));
        let run_of_sdk = tidegate_sdk::RunId { number: run.number, nonce: run.nonce.to_string() };
        let ctx = host.ctx(sink.as_str(), SinkHash::of(&pipeline, &sink).as_str(), run_of_sdk, "{}", 1);
        let mut committer = S::default();
        if S::describe().abilities.observe {
            let position = committer.observe(&ctx).map_err(told)?;
            committer.fence(&ctx, &position).map_err(told)?;
        }
        let writer = S::default().open(&ctx, KeyRange { first: 0, last: u32::MAX }, Vec::new()).map_err(told)?;
        Ok(Self { ctx, committer, writer, run, previous: Vec::new() })
    }
}

impl<S: Sink> Side for Native<S> {
    fn epoch(&mut self, number: u64, batches: &[Rows]) -> Result<()> {
        let (pipeline, sink, _) = names()?;
        let PartId { full, short, ordinal, attempt, .. } =
            PartId::mint(&pipeline, &sink, self.run, Epoch(number), 0, 1);
        let part = Part { full, short, run: self.ctx.run.clone(), epoch: number, ordinal, attempt };
        self.writer.begin(&self.ctx, &part).map_err(told)?;
        for batch in batches {
            let rows = NativeRows {
                bytes: batch.bytes.clone(),
                rows: batch.rows,
                encoding: Encoding::JsonLines,
                schema: 0,
                file: None,
            };
            let rejects = self.writer.write(&self.ctx, &rows.batch()).map_err(told)?;
            ensure!(rejects.is_empty(), "rows were rejected");
        }
        let prepared = self.writer.prepare(&self.ctx).map_err(told)?;
        let outcomes = self.committer.commit(&self.ctx, &self.previous, &[prepared.committable]).map_err(told)?;
        ensure!(matches!(outcomes[..], [Outcome::Committed]), "not committed");
        self.previous = vec![part];
        Ok(())
    }
}

fn told(error: tidegate_sdk::Error) -> anyhow::Error {
    anyhow!("{error:?}")
}
