//! A plugin around a plugin that loses answers, by a fixed rule. For rehearsals and tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_protocol::plugin::{
    BoxFuture, Call, CallContext, CallFault, Committable, Committer, Description, FaultKind, IntentLog, Janitor,
    Outcome, Plugin, Position, Writer,
};

use crate::tasks::actor::Callee;

/// Every `every`th commit is carried out and its answer lost.
pub struct LosesCommitAnswers {
    inner: Arc<dyn Plugin>,
    every: u64,
    calls: Arc<AtomicU64>,
}

impl LosesCommitAnswers {
    /// `every` of 0 loses none.
    pub fn new(inner: Arc<dyn Plugin>, every: u64) -> Self {
        Self { inner, every, calls: Arc::new(AtomicU64::new(0)) }
    }
}

impl Plugin for LosesCommitAnswers {
    fn description(&self) -> &Description {
        self.inner.description()
    }

    fn digest(&self) -> &str {
        self.inner.digest()
    }

    fn tenant(&self) -> Option<&str> {
        self.inner.tenant()
    }

    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        self.inner.writer(intents)
    }

    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        Box::pin(async {
            let inner = self.inner.committer().await?;
            let plugin = Callee::of(self, None);
            let committer = Forgetful { inner, plugin, every: self.every, calls: Arc::clone(&self.calls) };
            Ok(Box::new(committer) as Box<dyn Committer>)
        })
    }

    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        self.inner.janitor()
    }
}

struct Forgetful {
    inner: Box<dyn Committer>,
    plugin: Callee,
    every: u64,
    calls: Arc<AtomicU64>,
}

impl Committer for Forgetful {
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
        previous: &'a [tidegate_protocol::ids::PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            let answer = self.inner.commit(ctx, previous, committables).await;
            let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
            if self.every > 0 && call.is_multiple_of(self.every) {
                let message = "the answer was dropped on request";
                return Err(self.plugin.fault(Call::Commit, FaultKind::AnswerLost, message.to_owned()));
            }
            answer
        })
    }

    fn reconcile<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        self.inner.reconcile(ctx, committables)
    }
}
