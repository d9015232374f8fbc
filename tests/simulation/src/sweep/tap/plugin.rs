//! Every call of a plugin, before it arrives, between its steps, and before its answer arrives.

use std::sync::Arc;

use tidegate_protocol::ids::{PartId, RunId};
use tidegate_protocol::plugin::{
    AtomicScope, BoxFuture, Call, CallFault, Committer, Description, ErrorKind, FaultKind, IntentLog, Janitor, Plugin,
    PluginError, Writer,
};

use super::network::{Network, Request};
use super::roles::{TapCommitter, TapJanitor, TapWriter};
use crate::sweep::director::{Director, Verdict};
use crate::sweep::effect::{Mode, Phase, What};
use crate::sweep::trace::{Fact, Site, Stage, Trace};

/// The lie that is made true: what a writer has staged is taken away from under it.
pub(crate) const NOTHING_STAGED: &str = "nothing was staged";

/// Is told of parts about which a plugin has lied, and how.
pub(crate) type Liar = Arc<dyn Fn(&[PartId], &str) + Send + Sync>;

/// A plugin whose calls pass the director.
pub(crate) struct TapPlugin {
    inner: Arc<dyn Plugin>,
    gate: Gate,
    description: Description,
    digest: String,
}

/// The way of one sink's calls.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) sink: usize,
    pub(super) scope: AtomicScope,
    /// How long it takes to prepare, and to commit.
    pub(super) slow_prepare_ms: u64,
    pub(super) slow_commit_ms: u64,
    /// Batches arrive in two halves.
    pub(super) splits: bool,
    /// The version of committables that it makes.
    pub(super) writes: u32,
    director: Director,
    network: Network,
    trace: Trace,
    liar: Liar,
}

/// How a call that arrives is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Go,
    Special(Mode),
}

/// What a plugin says of itself instead, for upgrades.
#[derive(Debug, Clone)]
pub(crate) struct Dress {
    pub(crate) version: String,
    /// Versions of committables that it can finish.
    pub(crate) reads: Vec<u32>,
}

impl TapPlugin {
    /// `liar` is told of parts about which the plugin has lied.
    pub(crate) fn new(
        inner: Arc<dyn Plugin>,
        sink: usize,
        director: &Director,
        network: &Network,
        trace: &Trace,
        liar: Liar,
        dress: &Dress,
    ) -> Self {
        let mut description = inner.description().clone();
        description.version.clone_from(&dress.version);
        description.committable_versions.clone_from(&dress.reads);
        let gate = Gate {
            sink,
            scope: description.abilities.atomic_scope,
            slow_prepare_ms: 0,
            slow_commit_ms: 0,
            splits: true,
            writes: dress.reads.last().copied().unwrap_or(1),
            director: director.clone(),
            network: network.clone(),
            trace: trace.clone(),
            liar,
        };
        Self { inner, gate, description, digest: format!("sha256:simulated-{}", dress.version) }
    }

    /// The same at another pace; whether batches arrive in halves.
    #[must_use]
    pub(crate) fn paced(mut self, slow_prepare_ms: u64, slow_commit_ms: u64, splits: bool) -> Self {
        self.gate.slow_prepare_ms = slow_prepare_ms;
        self.gate.slow_commit_ms = slow_commit_ms;
        self.gate.splits = splits;
        self
    }

    fn site(&self) -> Site {
        self.gate.site(Call::Instantiate, None, Vec::new())
    }

    async fn instance<T>(&self, make: BoxFuture<'_, Result<T, CallFault>>) -> Result<T, CallFault> {
        let call = self.gate.begin(self.site());
        call.arrive().await?;
        let made = make.await;
        call.answer(made).await
    }
}

impl Plugin for TapPlugin {
    fn description(&self) -> &Description {
        &self.description
    }

    fn digest(&self) -> &str {
        &self.digest
    }

    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        Box::pin(async move {
            let inner = self.instance(self.inner.writer(intents)).await?;
            Ok(Box::new(TapWriter::new(inner, self.gate.clone())) as Box<dyn Writer>)
        })
    }

    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        Box::pin(async move {
            let inner = self.instance(self.inner.committer()).await?;
            Ok(Box::new(TapCommitter::new(inner, Arc::clone(&self.inner), self.gate.clone())) as Box<dyn Committer>)
        })
    }

    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        Box::pin(async move {
            let inner = self.instance(self.inner.janitor()).await?;
            Ok(Box::new(TapJanitor::new(inner, Arc::clone(&self.inner), self.gate.clone())) as Box<dyn Janitor>)
        })
    }
}

pub(super) fn fault(call: Call, kind: FaultKind) -> CallFault {
    CallFault::new("simulated", call, kind, "as the sweep wants it")
}

pub(super) fn says(call: Call, kind: ErrorKind) -> CallFault {
    let error = PluginError { kind, code: "swept".into(), message: "as the sweep wants it".into() };
    fault(call, FaultKind::Error(error))
}

impl Gate {
    pub(super) fn site(&self, call: Call, run: Option<RunId>, parts: Vec<PartId>) -> Site {
        Site { sink: self.sink, call, run, parts, id: self.director.call_id() }
    }

    pub(super) fn begin(&self, site: Site) -> OneCall<'_> {
        self.note(&site, Stage::Asked);
        OneCall { gate: self, site, ended: std::sync::atomic::AtomicBool::new(false) }
    }

    pub(super) fn note(&self, site: &Site, stage: Stage) {
        self.director.note(Fact::Call { host: self.director.host(), site: site.clone(), stage });
    }

    pub(super) fn rejected(&self) {
        self.director.note(Fact::Rejected(self.director.host()));
    }

    pub(super) fn lied(&self, parts: &[PartId], how: &str) {
        (self.liar)(parts, how);
    }

    /// The request is on its way, and nobody waits. `kill`: the process ends with it.
    pub(super) async fn leave<T>(&self, site: Site, calls: u32, kill: bool, arrives: BoxFuture<'static, bool>) -> T {
        self.network.send(Request { site, arrives }, calls);
        if kill {
            self.director.kill();
        }
        std::future::pending().await
    }
}

/// One call under way.
pub(super) struct OneCall<'a> {
    gate: &'a Gate,
    pub(super) site: Site,
    ended: std::sync::atomic::AtomicBool,
}

impl OneCall<'_> {
    /// The request travels. What is answered without being done is answered here.
    pub(super) async fn arrive(&self) -> Result<Entry, CallFault> {
        let call = self.site.call;
        let verdict = self.effect(Phase::Before);
        match verdict {
            Verdict::Dead => std::future::pending().await,
            Verdict::Go => {}
            Verdict::Do(Mode::Hang) => std::future::pending().await,
            Verdict::Do(Mode::Panic) => panic!("as the sweep wants it"),
            Verdict::Do(Mode::Trap) => return self.end(Err(fault(call, FaultKind::Trap))),
            Verdict::Do(Mode::Budget(budget)) => return self.end(Err(fault(call, FaultKind::Budget(budget)))),
            Verdict::Do(Mode::Lost) => return self.end(Err(fault(call, FaultKind::AnswerLost))),
            Verdict::Do(Mode::Says(kind)) => return self.end(Err(says(call, kind))),
            // Its own way from here on; the role knows how.
            Verdict::Do(mode) => return Ok(Entry::Special(mode)),
        }
        self.gate.network.pass(&self.gate.trace).await;
        self.gate.note(&self.site, Stage::Arrived);
        Ok(Entry::Go)
    }

    /// Some of its steps are done.
    pub(super) async fn middle(&self, done: u32) -> Result<(), CallFault> {
        self.gate.note(&self.site, Stage::Middle(done));
        self.spoil(Phase::Middle(done)).await
    }

    /// Everything is done; the answer travels.
    pub(super) async fn answer<T>(&self, answer: Result<T, CallFault>) -> Result<T, CallFault> {
        self.gate.note(&self.site, Stage::Done(answer.is_ok()));
        self.spoil(Phase::After).await?;
        self.end(answer)
    }

    /// The host gets this.
    pub(super) fn end<T>(&self, answer: Result<T, CallFault>) -> Result<T, CallFault> {
        self.ended.store(true, std::sync::atomic::Ordering::Relaxed);
        self.gate.note(&self.site, Stage::Answered(answer.is_ok()));
        answer
    }

    async fn spoil(&self, phase: Phase) -> Result<(), CallFault> {
        let call = self.site.call;
        match self.effect(phase) {
            Verdict::Go => Ok(()),
            Verdict::Dead | Verdict::Do(Mode::Hang) => std::future::pending().await,
            Verdict::Do(Mode::Panic) => panic!("as the sweep wants it"),
            Verdict::Do(Mode::Trap) => self.end(Err(fault(call, FaultKind::Trap))),
            Verdict::Do(Mode::Budget(budget)) => self.end(Err(fault(call, FaultKind::Budget(budget)))),
            Verdict::Do(_) => self.end(Err(fault(call, FaultKind::AnswerLost))),
        }
    }

    fn effect(&self, phase: Phase) -> Verdict {
        self.gate.director.effect(What::Call { sink: self.site.sink, call: self.site.call, phase })
    }
}

impl Drop for OneCall<'_> {
    fn drop(&mut self) {
        if !self.ended.load(std::sync::atomic::Ordering::Relaxed) {
            self.gate.note(&self.site, Stage::Dropped);
        }
    }
}
