//! Plugins around plugins: what a writer may do that the simulated destinations do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_protocol::ids::{KeyRange, PartId};
use tidegate_protocol::plugin::{
    Batch, BoxFuture, Call, CallContext, CallFault, Committer, Description, ErrorKind, FaultKind, IntentLog, Janitor,
    Plugin, PluginError, Prepared, Reject, Usage, Writer, WriterState,
};

/// How its writers differ from those within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// They do not differ.
    None,
    /// Each prepare leaves something open.
    Leaks,
    /// The last row of every batch is dropped, and counted as if it were none.
    Swallows,
    /// Now and then a write is done, and answered with an error that says "try again".
    FailsBehindWrite,
}

/// A plugin whose writers are counted and may have a quirk.
pub(crate) struct Wrapped {
    inner: Arc<dyn Plugin>,
    quirk: Quirk,
    pub(crate) counts: Arc<Counts>,
}

/// Writers of a [`Wrapped`] plugin.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) made: AtomicU64,
    pub(crate) alive: AtomicU64,
    pub(crate) most_alive: AtomicU64,
    pub(crate) writes: AtomicU64,
}

impl Wrapped {
    pub(crate) fn new(inner: Arc<dyn Plugin>, quirk: Quirk) -> Self {
        Self { inner, quirk, counts: Arc::default() }
    }
}

impl Plugin for Wrapped {
    fn description(&self) -> &Description {
        self.inner.description()
    }
    fn digest(&self) -> &str {
        self.inner.digest()
    }
    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        Box::pin(async move {
            let inner = self.inner.writer(intents).await?;
            let counts = Arc::clone(&self.counts);
            counts.made.fetch_add(1, Ordering::Relaxed);
            let alive = counts.alive.fetch_add(1, Ordering::Relaxed) + 1;
            counts.most_alive.fetch_max(alive, Ordering::Relaxed);
            Ok(Box::new(WrappedWriter { inner, quirk: self.quirk, held: 3, counts }) as Box<dyn Writer>)
        })
    }
    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        self.inner.committer()
    }
    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        self.inner.janitor()
    }
}

struct WrappedWriter {
    inner: Box<dyn Writer>,
    quirk: Quirk,
    held: u64,
    counts: Arc<Counts>,
}

impl Drop for WrappedWriter {
    fn drop(&mut self) {
        self.counts.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Writer for WrappedWriter {
    fn open<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        range: KeyRange,
        restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>> {
        self.inner.open(ctx, range, restored)
    }

    fn begin<'a>(&'a mut self, ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>> {
        self.inner.begin(ctx, part)
    }

    fn write<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        mut batch: Batch,
    ) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>> {
        if self.quirk == Quirk::Swallows {
            let end = batch.bytes.len().saturating_sub(1);
            let last = batch.bytes[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            batch.bytes = batch.bytes.slice(..last);
            batch.rows -= 1;
        }
        let number = self.counts.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = self.quirk == Quirk::FailsBehindWrite && [15, 40].contains(&number);
        Box::pin(async move {
            let answer = self.inner.write(ctx, batch).await;
            if !fails {
                return answer;
            }
            let error = PluginError { kind: ErrorKind::Retryable, code: "late".into(), message: "try again".into() };
            Err(CallFault::new("wrapped 1", Call::Write, FaultKind::Error(error), ""))
        })
    }

    fn prepare<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>> {
        if self.quirk == Quirk::Leaks {
            self.held += 1;
        }
        self.inner.prepare(ctx)
    }

    fn usage(&self) -> Option<Usage> {
        Some(Usage { memory_bytes: 1 << 20, handles: self.held })
    }
}
