//! One task per sink and role that makes the coordinator's calls, one at a time and in order.
//!
//! After a fault the instance is dropped and the next call gets a fresh one. A call that is under way when the run ends
//! is waited for, so that a later run of this process never has two commits of the same epoch on the way.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidegate_protocol::event::Event;
use tidegate_protocol::ids::{RunId, SinkHash, SinkId};
use tidegate_protocol::permit::CommitPermit;
use tidegate_protocol::plugin::{
    BoxFuture, Call, CallContext, CallFault, Committer, External, FaultKind, Janitor, Plugin, Position, Unsealed,
};
use tokio::sync::mpsc;

use crate::driver::Report;

/// What a committer is told to do.
#[derive(Debug)]
pub(crate) enum CommitOrder {
    Observe { run: RunId },
    Fence { run: RunId, expected: Position },
    Commit(CommitPermit),
    Reconcile(CommitPermit),
}

/// What a janitor is told to do.
#[derive(Debug)]
pub(crate) enum CleanUpOrder {
    ListOrphans { prefix: String, page: Option<String> },
    Abandon { parts: Vec<Unsealed>, attempt: u32 },
    Release { resources: Vec<External>, attempt: u32 },
}

/// What both actors know of their sink.
#[derive(Clone)]
pub(crate) struct SinkHandle {
    pub(crate) sink: SinkId,
    pub(crate) hash: SinkHash,
    pub(crate) plugin: Arc<dyn Plugin>,
    /// The configuration of today, for calls that belong to no seal.
    pub(crate) config: Arc<str>,
    pub(crate) call_timeout: Duration,
    pub(crate) report: Report,
}

impl SinkHandle {
    /// Who is called, for messages.
    pub(crate) fn callee(&self) -> Callee {
        Callee::of(self.plugin.as_ref(), Some(&self.sink))
    }

    pub(crate) fn ctx(&self, run: RunId, config: Arc<str>, attempt: u32) -> CallContext {
        CallContext { sink: self.sink.clone(), sink_hash: self.hash.clone(), run, config, attempt }
    }
}

/// Who is called, as faults name it.
#[derive(Debug, Clone)]
pub struct Callee {
    /// Name and version of the plugin, and its sink where that is known.
    pub label: String,
    /// Who pays for it.
    pub tenant: Option<String>,
}

impl fmt::Display for Callee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl Callee {
    /// A plugin, at a sink.
    pub fn of(plugin: &dyn Plugin, sink: Option<&SinkId>) -> Self {
        let description = plugin.description();
        let at = sink.map(|sink| format!(" (sink `{sink}`)")).unwrap_or_default();
        let label = format!("{} {}{at}", description.name, description.version);
        Self { label, tenant: plugin.tenant().map(str::to_owned) }
    }

    /// One of its calls failed.
    pub fn fault(&self, call: Call, kind: FaultKind, message: String) -> CallFault {
        CallFault::new(&self.label, call, kind, message).of_tenant(self.tenant.as_deref())
    }
}

/// Waits for a call's answer, at most `limit`.
///
/// # Errors
/// Those of the call, or that the time ran out: then nothing is known of its effect.
pub async fn timed<T>(
    callee: &Callee,
    call: Call,
    limit: Duration,
    answer: impl Future<Output = Result<T, CallFault>>,
) -> Result<T, CallFault> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(callee.fault(call, FaultKind::Timeout, format!("no answer within {} s", limit.as_secs_f64()))),
    }
}

/// Whether the instance can be called again.
fn survives<T>(answer: &Result<T, CallFault>) -> bool {
    match answer {
        Ok(_) => true,
        Err(fault) => matches!(fault.kind, FaultKind::Error(_)),
    }
}

/// Makes committer calls until the orders end.
pub(crate) async fn commit_actor(handle: SinkHandle, mut orders: mpsc::UnboundedReceiver<CommitOrder>) {
    let mut instance: Option<Box<dyn Committer>> = None;
    while let Some(order) = orders.recv().await {
        let mut call = OneCall::begin(&handle, instance.take(), || handle.plugin.committer()).await;
        let event = commit(&mut call, order).await;
        instance = call.end();
        handle.report.event(event);
    }
}

async fn commit(call: &mut OneCall<'_, dyn Committer>, order: CommitOrder) -> Event {
    let handle = call.handle;
    let sink = handle.sink.clone();
    let of_seal =
        |permit: &CommitPermit| handle.ctx(permit.run(), permit.binding().config.as_str().into(), permit.attempt());
    match &order {
        CommitOrder::Observe { run } => {
            let ctx = handle.ctx(*run, Arc::clone(&handle.config), 1);
            let result = call.make(Call::Observe, |committer| committer.observe(&ctx)).await;
            Event::Observed { sink, result }
        }
        CommitOrder::Fence { run, expected } => {
            let ctx = handle.ctx(*run, Arc::clone(&handle.config), 1);
            let result = call.make(Call::Fence, |committer| committer.fence(&ctx, expected)).await;
            Event::Fenced { sink, result }
        }
        CommitOrder::Commit(permit) => {
            let ctx = of_seal(permit);
            let (previous, parts) = (permit.previous(), permit.committables());
            let result = call.make(Call::Commit, |committer| committer.commit(&ctx, previous, parts)).await;
            Event::CommitAnswered { sink, of: permit.of(), attempt: permit.attempt(), result }
        }
        CommitOrder::Reconcile(permit) => {
            let ctx = of_seal(permit);
            let parts = permit.committables();
            let result = call.make(Call::Reconcile, |committer| committer.reconcile(&ctx, parts)).await;
            Event::Reconciled { sink, of: permit.of(), attempt: permit.attempt(), result }
        }
    }
}

/// Makes janitor calls until the orders end.
pub(crate) async fn clean_up_actor(handle: SinkHandle, run: RunId, mut orders: mpsc::UnboundedReceiver<CleanUpOrder>) {
    let mut instance: Option<Box<dyn Janitor>> = None;
    while let Some(order) = orders.recv().await {
        let mut call = OneCall::begin(&handle, instance.take(), || handle.plugin.janitor()).await;
        let event = clean_up(&mut call, run, order).await;
        instance = call.end();
        handle.report.event(event);
    }
}

async fn clean_up(call: &mut OneCall<'_, dyn Janitor>, run: RunId, order: CleanUpOrder) -> Event {
    let sink = call.handle.sink.clone();
    let handle = call.handle;
    let ctx = |attempt| handle.ctx(run, Arc::clone(&handle.config), attempt);
    match &order {
        CleanUpOrder::ListOrphans { prefix, page } => {
            let ctx = ctx(1);
            let page = page.as_deref();
            let result = call.make(Call::ListOrphans, |janitor| janitor.list_orphans(&ctx, prefix, page)).await;
            Event::OrphansListed { sink, result }
        }
        CleanUpOrder::Abandon { parts, attempt } => {
            let ctx = ctx(*attempt);
            let result = call.make(Call::Abandon, |janitor| janitor.abandon(&ctx, parts)).await;
            Event::Abandoned { sink, result }
        }
        CleanUpOrder::Release { resources, attempt } => {
            let ctx = ctx(*attempt);
            let result = call.make(Call::Release, |janitor| janitor.release(&ctx, resources)).await;
            Event::ReleaseAnswered { sink, result }
        }
    }
}

/// One call of a role's instance. If none could be made, the call is not sent, and its answer is why.
struct OneCall<'a, I: ?Sized> {
    handle: &'a SinkHandle,
    instance: Result<Box<I>, CallFault>,
    /// The instance can be called again.
    usable: bool,
}

impl<'a, I: ?Sized> OneCall<'a, I> {
    /// With the instance of the call before, or with a fresh one.
    async fn begin(
        handle: &'a SinkHandle,
        kept: Option<Box<I>>,
        fresh: impl FnOnce() -> BoxFuture<'a, Result<Box<I>, CallFault>>,
    ) -> Self {
        let instance = match kept {
            Some(kept) => Ok(kept),
            None => timed(&handle.callee(), Call::Instantiate, handle.call_timeout, fresh()).await,
        };
        Self { handle, instance, usable: false }
    }

    async fn make<'b, T>(
        &'b mut self,
        call: Call,
        ask: impl FnOnce(&'b mut I) -> BoxFuture<'b, Result<T, CallFault>>,
    ) -> Result<T, CallFault> {
        let instance = self.instance.as_mut().map_err(|fault| fault.clone())?;
        let result = timed(&self.handle.callee(), call, self.handle.call_timeout, ask(instance)).await;
        self.usable = survives(&result);
        result
    }

    fn end(self) -> Option<Box<I>> {
        self.instance.ok().filter(|_| self.usable)
    }
}
