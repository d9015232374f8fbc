//! One task per sink and role that makes the coordinator's calls, one at a time and in order.
//!
//! After a fault the instance is dropped and the next call gets a fresh one. A call that is under way when the run ends
//! is waited for, so that a later run of this process never has two commits of the same epoch on the way.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidegate_protocol::event::Event;
use tidegate_protocol::ids::{RunId, SinkHash, SinkId};
use tidegate_protocol::permit::CommitPermit;
use tidegate_protocol::plugin::{
    Call, CallContext, CallFault, Committer, External, FaultKind, Janitor, Plugin, Position, Unsealed,
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
    /// Name and version of the plugin, for messages.
    pub(crate) fn label(&self) -> String {
        let description = self.plugin.description();
        format!("{} {} (sink `{}`)", description.name, description.version, self.sink)
    }

    pub(crate) fn ctx(&self, run: RunId, config: Arc<str>, attempt: u32) -> CallContext {
        CallContext { sink: self.sink.clone(), sink_hash: self.hash.clone(), run, config, attempt }
    }
}

/// Waits for a call's answer, at most `limit`.
pub(crate) async fn timed<T>(
    plugin: &str,
    call: Call,
    limit: Duration,
    answer: impl Future<Output = Result<T, CallFault>>,
) -> Result<T, CallFault> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(CallFault {
            plugin: plugin.to_owned(),
            call,
            kind: FaultKind::Timeout,
            message: format!("no answer within {} s", limit.as_secs_f64()),
        }),
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
        let event = match instance.take() {
            Some(committer) => carry_out(&handle, order, Ok(committer), &mut instance).await,
            None => {
                let label = handle.label();
                let fresh = timed(&label, Call::Instantiate, handle.call_timeout, handle.plugin.committer()).await;
                carry_out(&handle, order, fresh, &mut instance).await
            }
        };
        handle.report.event(event);
    }
}

async fn carry_out(
    handle: &SinkHandle,
    order: CommitOrder,
    committer: Result<Box<dyn Committer>, CallFault>,
    instance: &mut Option<Box<dyn Committer>>,
) -> Event {
    let sink = handle.sink.clone();
    let label = handle.label();
    let limit = handle.call_timeout;
    let mut committer = match committer {
        Ok(committer) => committer,
        Err(fault) => return refused(sink, order, fault),
    };
    let (event, usable) = match order {
        CommitOrder::Observe { run } => {
            let ctx = handle.ctx(run, Arc::clone(&handle.config), 1);
            let result = timed(&label, Call::Observe, limit, committer.observe(&ctx)).await;
            let usable = survives(&result);
            (Event::Observed { sink, result }, usable)
        }
        CommitOrder::Fence { run, expected } => {
            let ctx = handle.ctx(run, Arc::clone(&handle.config), 1);
            let result = timed(&label, Call::Fence, limit, committer.fence(&ctx, &expected)).await;
            let usable = survives(&result);
            (Event::Fenced { sink, result }, usable)
        }
        CommitOrder::Commit(permit) => {
            let ctx = handle.ctx(permit.run(), permit.binding().config.as_str().into(), permit.attempt());
            let answer = committer.commit(&ctx, permit.previous(), permit.committables());
            let result = timed(&label, Call::Commit, limit, answer).await;
            let usable = survives(&result);
            (Event::CommitAnswered { sink, of: permit.of(), attempt: permit.attempt(), result }, usable)
        }
        CommitOrder::Reconcile(permit) => {
            let ctx = handle.ctx(permit.run(), permit.binding().config.as_str().into(), permit.attempt());
            let answer = committer.reconcile(&ctx, permit.committables());
            let result = timed(&label, Call::Reconcile, limit, answer).await;
            let usable = survives(&result);
            (Event::Reconciled { sink, of: permit.of(), attempt: permit.attempt(), result }, usable)
        }
    };
    if usable {
        *instance = Some(committer);
    }
    event
}

/// No instance could be made: the call was not sent.
fn refused(sink: SinkId, order: CommitOrder, fault: CallFault) -> Event {
    match order {
        CommitOrder::Observe { .. } => Event::Observed { sink, result: Err(fault) },
        CommitOrder::Fence { .. } => Event::Fenced { sink, result: Err(fault) },
        CommitOrder::Commit(permit) => {
            Event::CommitAnswered { sink, of: permit.of(), attempt: permit.attempt(), result: Err(fault) }
        }
        CommitOrder::Reconcile(permit) => {
            Event::Reconciled { sink, of: permit.of(), attempt: permit.attempt(), result: Err(fault) }
        }
    }
}

/// Makes janitor calls until the orders end.
pub(crate) async fn clean_up_actor(handle: SinkHandle, run: RunId, mut orders: mpsc::UnboundedReceiver<CleanUpOrder>) {
    let mut instance: Option<Box<dyn Janitor>> = None;
    while let Some(order) = orders.recv().await {
        let sink = handle.sink.clone();
        let label = handle.label();
        let limit = handle.call_timeout;
        let janitor = match instance.take() {
            Some(janitor) => Ok(janitor),
            None => timed(&label, Call::Instantiate, limit, handle.plugin.janitor()).await,
        };
        let (event, usable) = match (order, janitor) {
            (CleanUpOrder::ListOrphans { .. }, Err(fault)) => (Event::OrphansListed { sink, result: Err(fault) }, None),
            (CleanUpOrder::Abandon { .. }, Err(fault)) => (Event::Abandoned { sink, result: Err(fault) }, None),
            (CleanUpOrder::Release { .. }, Err(fault)) => (Event::ReleaseAnswered { sink, result: Err(fault) }, None),
            (CleanUpOrder::ListOrphans { prefix, page }, Ok(mut janitor)) => {
                let ctx = handle.ctx(run, Arc::clone(&handle.config), 1);
                let answer = janitor.list_orphans(&ctx, &prefix, page.as_deref());
                let result = timed(&label, Call::ListOrphans, limit, answer).await;
                let usable = survives(&result).then_some(janitor);
                (Event::OrphansListed { sink, result }, usable)
            }
            (CleanUpOrder::Abandon { parts, attempt }, Ok(mut janitor)) => {
                let ctx = handle.ctx(run, Arc::clone(&handle.config), attempt);
                let result = timed(&label, Call::Abandon, limit, janitor.abandon(&ctx, &parts)).await;
                let usable = survives(&result).then_some(janitor);
                (Event::Abandoned { sink, result }, usable)
            }
            (CleanUpOrder::Release { resources, attempt }, Ok(mut janitor)) => {
                let ctx = handle.ctx(run, Arc::clone(&handle.config), attempt);
                let result = timed(&label, Call::Release, limit, janitor.release(&ctx, &resources)).await;
                let usable = survives(&result).then_some(janitor);
                (Event::ReleaseAnswered { sink, result }, usable)
            }
        };
        instance = usable;
        handle.report.event(event);
    }
}
