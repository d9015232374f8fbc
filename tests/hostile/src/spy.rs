//! A plugin behind which somebody notes for which parts commit and abandon were called.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_protocol::ids::{KeyRange, PartId};
use tidegate_protocol::plugin::{
    Batch, BoxFuture, CallContext, CallFault, Committable, Committer, Description, External, IntentLog, Janitor,
    OrphanPage, Outcome, Plugin, Position, Prepared, Reject, Unsealed, Usage, Writer, WriterState,
};

/// What was asked of the plugin.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) committed: Mutex<Vec<PartId>>,
    pub(crate) abandoned: Mutex<Vec<PartId>>,
    pub(crate) faults: Mutex<Vec<CallFault>>,
}

impl Notes {
    fn faults<T>(&self, answer: Result<T, CallFault>) -> Result<T, CallFault> {
        if let Err(fault) = &answer {
            lock(&self.faults).push(fault.clone());
        }
        answer
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Spied {
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) notes: Arc<Notes>,
}

impl Plugin for Spied {
    fn description(&self) -> &Description {
        self.plugin.description()
    }
    fn digest(&self) -> &str {
        self.plugin.digest()
    }
    fn tenant(&self) -> Option<&str> {
        self.plugin.tenant()
    }
    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        Box::pin(async move {
            let inner = self.notes.faults(self.plugin.writer(intents).await)?;
            Ok(Box::new(Watched { inner, notes: self.notes.clone() }) as Box<dyn Writer>)
        })
    }
    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        Box::pin(async move {
            let inner = self.notes.faults(self.plugin.committer().await)?;
            Ok(Box::new(Watched { inner, notes: self.notes.clone() }) as Box<dyn Committer>)
        })
    }
    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        Box::pin(async move {
            let inner = self.notes.faults(self.plugin.janitor().await)?;
            Ok(Box::new(Watched { inner, notes: self.notes.clone() }) as Box<dyn Janitor>)
        })
    }
}

struct Watched<T> {
    inner: T,
    notes: Arc<Notes>,
}

impl Writer for Watched<Box<dyn Writer>> {
    fn open<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        range: KeyRange,
        restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move { self.notes.faults(self.inner.open(ctx, range, restored).await) })
    }
    fn begin<'a>(&'a mut self, ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move { self.notes.faults(self.inner.begin(ctx, part).await) })
    }
    fn write<'a>(&'a mut self, ctx: &'a CallContext, batch: Batch) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>> {
        Box::pin(async move { self.notes.faults(self.inner.write(ctx, batch).await) })
    }
    fn prepare<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>> {
        Box::pin(async move { self.notes.faults(self.inner.prepare(ctx).await) })
    }
    fn usage(&self) -> Option<Usage> {
        self.inner.usage()
    }
}

impl Committer for Watched<Box<dyn Committer>> {
    fn observe<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Position, CallFault>> {
        self.inner.observe(ctx)
    }
    fn fence<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        expected: &'a Position,
    ) -> BoxFuture<'a, Result<Position, CallFault>> {
        self.inner.fence(ctx, expected)
    }
    fn commit<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        previous: &'a [PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        lock(&self.notes.committed).extend(committables.iter().map(|committable| committable.part.clone()));
        Box::pin(async move { self.notes.faults(self.inner.commit(ctx, previous, committables).await) })
    }
    fn reconcile<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move { self.notes.faults(self.inner.reconcile(ctx, committables).await) })
    }
}

impl Janitor for Watched<Box<dyn Janitor>> {
    fn abandon<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        parts: &'a [Unsealed],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        lock(&self.notes.abandoned).extend(parts.iter().map(|unsealed| unsealed.part.clone()));
        Box::pin(async move { self.notes.faults(self.inner.abandon(ctx, parts).await) })
    }
    fn release<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        resources: &'a [External],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        self.inner.release(ctx, resources)
    }
    fn list_orphans<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OrphanPage, CallFault>> {
        self.inner.list_orphans(ctx, prefix, page)
    }
}
