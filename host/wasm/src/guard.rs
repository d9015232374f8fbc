//! Around every plugin that is bound to a sink: after faults its next instance waits, and in quarantine there is none.
//! Whether an instance lives in this process or in another one makes no difference here.

use std::sync::Arc;

use tidegate_protocol::ids::{KeyRange, PartId};
use tidegate_protocol::plugin::{
    Batch, BoxFuture, Call, CallContext, CallFault, Committable, Committer, Description, External, FaultKind,
    IntentLog, Janitor, OrphanPage, Outcome, Plugin, Position, Prepared, Reject, Unsealed, Usage, Writer, WriterState,
};

use crate::instance::Threads;
use crate::quarantine::{Entry, counts};
use crate::tenant::Tenant;

/// A plugin whose faults are counted for its tenant.
pub(crate) struct Guarded {
    inner: Arc<dyn Plugin>,
    tenant: Tenant,
    label: String,
    threads: Arc<Threads>,
}

impl Guarded {
    pub(crate) fn new(inner: Arc<dyn Plugin>, tenant: Tenant, label: String, threads: Arc<Threads>) -> Self {
        Self { inner, tenant, label, threads }
    }

    /// Waits as long as the plugin's faults ask for.
    async fn enter(&self) -> Result<Pass, CallFault> {
        let quarantine = self.tenant.quarantine();
        loop {
            let trial = match quarantine.enter(self.tenant.name(), self.inner.digest()) {
                Entry::Free => false,
                Entry::Trial => true,
                Entry::Later(left) => {
                    quarantine.time().wait(left, Box::pin(self.threads.sleep(left))).await;
                    continue;
                }
                Entry::Refused(why) => {
                    let message = why.to_string();
                    return Err(CallFault::new(&self.label, Call::Instantiate, FaultKind::Quarantined, message)
                        .of_tenant(Some(self.tenant.name())));
                }
            };
            return Ok(Pass {
                tenant: self.tenant.clone(),
                digest: self.inner.digest().to_owned(),
                trial,
                over: false,
            });
        }
    }

    async fn watched<'a, I: ?Sized>(
        &'a self,
        make: impl FnOnce() -> BoxFuture<'a, Result<Box<I>, CallFault>>,
    ) -> Result<Watched<I>, CallFault> {
        let mut pass = self.enter().await?;
        match make().await {
            Ok(inner) => Ok(Watched { inner, pass }),
            Err(fault) => {
                pass.ended(&fault);
                Err(fault)
            }
        }
    }
}

impl Plugin for Guarded {
    fn description(&self) -> &Description {
        self.inner.description()
    }

    fn digest(&self) -> &str {
        self.inner.digest()
    }

    fn tenant(&self) -> Option<&str> {
        Some(self.tenant.name())
    }

    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        Box::pin(async move {
            let watched = self.watched(|| self.inner.writer(intents)).await?;
            Ok(Box::new(watched) as Box<dyn Writer>)
        })
    }

    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        Box::pin(async move { Ok(Box::new(self.watched(|| self.inner.committer()).await?) as Box<dyn Committer>) })
    }

    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        Box::pin(async move { Ok(Box::new(self.watched(|| self.inner.janitor()).await?) as Box<dyn Janitor>) })
    }
}

/// The right to one instance. What became of it is told once.
struct Pass {
    tenant: Tenant,
    digest: String,
    /// Nothing is known of it yet, and no other instance is made before something is.
    trial: bool,
    /// It ended with a fault.
    over: bool,
}

impl Pass {
    fn note<T>(&mut self, answer: Result<T, CallFault>) -> Result<T, CallFault> {
        match &answer {
            Err(fault) if !matches!(fault.kind, FaultKind::Error(_)) => self.ended(fault),
            // To say no is to answer.
            Ok(_) | Err(_) if self.trial => {
                self.trial = false;
                self.tenant.quarantine().answered(&self.digest);
            }
            Ok(_) | Err(_) => {}
        }
        answer
    }

    fn ended(&mut self, fault: &CallFault) {
        if !self.over && counts(fault) {
            self.over = true;
            let trial = std::mem::take(&mut self.trial);
            self.tenant.quarantine().fault(self.tenant.name(), &self.digest, fault, trial);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.trial {
            self.tenant.quarantine().silent(&self.digest);
        }
    }
}

/// An instance whose faults are counted.
struct Watched<I: ?Sized> {
    inner: Box<I>,
    pass: Pass,
}

impl Writer for Watched<dyn Writer> {
    fn open<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        range: KeyRange,
        restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.open(ctx, range, restored).await) })
    }

    fn begin<'a>(&'a mut self, ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.begin(ctx, part).await) })
    }

    fn write<'a>(&'a mut self, ctx: &'a CallContext, batch: Batch) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.write(ctx, batch).await) })
    }

    fn prepare<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.prepare(ctx).await) })
    }

    fn usage(&self) -> Option<Usage> {
        self.inner.usage()
    }
}

impl Committer for Watched<dyn Committer> {
    fn observe<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Position, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.observe(ctx).await) })
    }

    fn fence<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        expected: &'a Position,
    ) -> BoxFuture<'a, Result<Position, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.fence(ctx, expected).await) })
    }

    fn commit<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        previous: &'a [PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.commit(ctx, previous, committables).await) })
    }

    fn reconcile<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.reconcile(ctx, committables).await) })
    }
}

impl Janitor for Watched<dyn Janitor> {
    fn abandon<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        parts: &'a [Unsealed],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.abandon(ctx, parts).await) })
    }

    fn release<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        resources: &'a [External],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.release(ctx, resources).await) })
    }

    fn list_orphans<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OrphanPage, CallFault>> {
        Box::pin(async move { self.pass.note(self.inner.list_orphans(ctx, prefix, page).await) })
    }
}
