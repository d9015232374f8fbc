//! A sink of another tenant that behaves well, at work while guests attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{CallContext, CallFault, Outcome, Plugin, Writer};

use crate::kept::Kept;
use crate::stage::{context, part, rows};

const BATCH: &str = "{\"n\":1,\"word\":\"tide\"}\n{\"n\":2,\"word\":\"gate\"}\n";
const CONFIG: &str = "{}";

/// It writes, prepares and commits epoch after epoch.
pub struct Neighbour {
    plugin: Arc<dyn Plugin>,
    ctx: CallContext,
    epoch: u64,
    rows: u64,
}

impl Neighbour {
    /// Takes over an empty folder.
    pub fn new(plugin: Arc<dyn Plugin>) -> Self {
        Self { plugin, ctx: context("neighbour", 1, CONFIG), epoch: 0, rows: 0 }
    }

    /// One epoch of so many batches.
    ///
    /// # Errors
    /// Any call failed, or its answer was not the good one.
    pub async fn epoch(&mut self, batches: usize) -> Result<(), String> {
        let fail = |fault: CallFault| format!("the neighbour suffers: {fault}");
        self.epoch += 1;
        let mut writer = self.plugin.writer(Arc::new(Kept::default())).await.map_err(fail)?;
        writer.open(&self.ctx, KeyRange::ALL, &[]).await.map_err(fail)?;
        writer.begin(&self.ctx, &part(&self.ctx, self.epoch, 0)).await.map_err(fail)?;
        for _ in 0..batches {
            writer.write(&self.ctx, rows(BATCH)).await.map_err(fail)?;
        }
        let prepared = writer.prepare(&self.ctx).await.map_err(fail)?;
        let mut committer = self.plugin.committer().await.map_err(fail)?;
        if self.epoch == 1 {
            let position = committer.observe(&self.ctx).await.map_err(fail)?;
            committer.fence(&self.ctx, &position).await.map_err(fail)?;
        }
        let outcomes = committer.commit(&self.ctx, &[], &[prepared.committable]).await.map_err(fail)?;
        if outcomes != [Outcome::Committed] {
            return Err(format!("the neighbour's commit had the outcomes {outcomes:?}"));
        }
        self.rows += 2 * batches as u64;
        Ok(())
    }

    /// Epoch after epoch until it is told to stop; at least one.
    ///
    /// # Errors
    /// As for [`Neighbour::epoch`].
    pub async fn until(&mut self, stop: &AtomicBool) -> Result<(), String> {
        loop {
            self.epoch(3).await?;
            if stop.load(Ordering::SeqCst) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// How many rows must have been published.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// A writer that has begun a part, for measuring writes.
    ///
    /// # Errors
    /// Any call failed.
    pub async fn writer(&mut self) -> Result<Timed, String> {
        let fail = |fault: CallFault| format!("the neighbour suffers: {fault}");
        self.epoch += 1;
        let mut writer = self.plugin.writer(Arc::new(Kept::default())).await.map_err(fail)?;
        writer.open(&self.ctx, KeyRange::ALL, &[]).await.map_err(fail)?;
        writer.begin(&self.ctx, &part(&self.ctx, self.epoch, 0)).await.map_err(fail)?;
        Ok(Timed { writer, ctx: self.ctx.clone() })
    }
}

/// A writer whose writes are timed.
pub struct Timed {
    writer: Box<dyn Writer>,
    ctx: CallContext,
}

impl Timed {
    /// The 99th percentile of the latency of so many writes, in microseconds.
    ///
    /// # Errors
    /// A write failed.
    pub async fn p99(&mut self, writes: usize) -> Result<f64, String> {
        let mut times = Vec::with_capacity(writes);
        for _ in 0..writes {
            let began = Instant::now();
            let written = self.writer.write(&self.ctx, rows(BATCH)).await;
            written.map_err(|fault| format!("the neighbour suffers: {fault}"))?;
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let at = (times.len() * 99 / 100).min(times.len().saturating_sub(1));
        Ok(times.get(at).map_or(0.0, |time: &Duration| time.as_secs_f64()) * 1e6)
    }
}
