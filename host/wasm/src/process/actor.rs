//! An instance in the child, and what is asked of it.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_protocol::plugin::{CallFault, Committer, IntentLog, Janitor, Plugin, Role, Writer};

use super::wire::{Reply, Request};

/// An instance in its role.
pub(crate) enum Actor {
    Writer(Box<dyn Writer>),
    Committer(Box<dyn Committer>),
    Janitor(Box<dyn Janitor>),
}

impl Actor {
    pub(crate) async fn make(plugin: &dyn Plugin, role: Role, intents: Arc<dyn IntentLog>) -> Result<Self, CallFault> {
        Ok(match role {
            Role::Writer => Self::Writer(plugin.writer(intents).await?),
            Role::Committer => Self::Committer(plugin.committer().await?),
            Role::Janitor => Self::Janitor(plugin.janitor().await?),
        })
    }

    /// `None` if the role does not do that.
    pub(crate) async fn act(&mut self, request: Request, rows: Bytes) -> Option<Result<Reply, CallFault>> {
        match self {
            Self::Writer(writer) => write(&mut **writer, request, rows).await,
            Self::Committer(committer) => commit(&mut **committer, request).await,
            Self::Janitor(janitor) => clean_up(&mut **janitor, request).await,
        }
    }
}

async fn write(writer: &mut dyn Writer, request: Request, rows: Bytes) -> Option<Result<Reply, CallFault>> {
    Some(match request {
        Request::Open { ctx, range, restored } => {
            writer.open(&ctx.into(), range, &restored).await.map(|()| Reply::Done)
        }
        Request::Begin { ctx, part } => writer.begin(&ctx.into(), &part).await.map(|()| Reply::Done),
        Request::Write { ctx, batch } => writer.write(&ctx.into(), batch.with(rows)).await.map(Reply::Rejects),
        Request::Prepare { ctx } => {
            let prepared = writer.prepare(&ctx.into()).await;
            prepared.map(|prepared| Reply::prepared(prepared, writer.usage()))
        }
        _ => return None,
    })
}

async fn commit(committer: &mut dyn Committer, request: Request) -> Option<Result<Reply, CallFault>> {
    Some(match request {
        Request::Observe { ctx } => committer.observe(&ctx.into()).await.map(Reply::Position),
        Request::Fence { ctx, expected } => committer.fence(&ctx.into(), &expected).await.map(Reply::Position),
        Request::Commit { ctx, previous, committables } => {
            committer.commit(&ctx.into(), &previous, &committables).await.map(Reply::Outcomes)
        }
        Request::Reconcile { ctx, committables } => {
            committer.reconcile(&ctx.into(), &committables).await.map(Reply::Outcomes)
        }
        _ => return None,
    })
}

async fn clean_up(janitor: &mut dyn Janitor, request: Request) -> Option<Result<Reply, CallFault>> {
    Some(match request {
        Request::Abandon { ctx, parts } => janitor.abandon(&ctx.into(), &parts).await.map(Reply::Outcomes),
        Request::Release { ctx, resources } => janitor.release(&ctx.into(), &resources).await.map(Reply::Outcomes),
        Request::ListOrphans { ctx, prefix, page } => {
            janitor.list_orphans(&ctx.into(), &prefix, page.as_deref()).await.map(Reply::Orphans)
        }
        _ => return None,
    })
}
