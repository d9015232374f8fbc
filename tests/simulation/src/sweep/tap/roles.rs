//! The three roles of a plugin, call by call and step by step.

use std::sync::Arc;

use tidegate_protocol::ids::{KeyRange, PartId};
use tidegate_protocol::plugin::{
    AtomicScope, Batch, BoxFuture, Call, CallContext, CallFault, Committable, Committer, ErrorKind, External, Janitor,
    OrphanPage, Outcome, Plugin, PluginError, Position, Prepared, Reject, Unsealed, Writer, WriterState,
};

use super::plugin::{Entry, Gate, OneCall, says};
use crate::sweep::effect::{Break, Mode, Said};

/// How a request leaves that nobody waits for.
fn leaves(mode: Mode) -> Option<(u32, bool)> {
    match mode {
        Mode::Late(calls) | Mode::LateThenDies(calls) => Some((calls, false)),
        Mode::KillLate(calls) => Some((calls, true)),
        _ => None,
    }
}

fn short_of_one(mut outcomes: Vec<Outcome>) -> Vec<Outcome> {
    outcomes.pop();
    outcomes
}

pub(super) struct TapWriter {
    /// Gone when its request is on its own way.
    inner: Option<Box<dyn Writer>>,
    gate: Gate,
    part: Option<PartId>,
    before: Option<Committable>,
}

impl TapWriter {
    pub(super) fn new(inner: Box<dyn Writer>, gate: Gate) -> Self {
        Self { inner: Some(inner), gate, part: None, before: None }
    }

    fn parts(&self) -> Vec<PartId> {
        self.part.iter().cloned().collect()
    }
}

/// The instance is away with a request; the host never calls it again.
fn gone(call: Call) -> CallFault {
    says(call, ErrorKind::EpochLost)
}

async fn wait(millis: u64) {
    if millis > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(millis)).await;
    }
}

/// A batch in two, at the end of a row; none if it has one row.
fn halves(batch: &Batch) -> Option<(Batch, Batch)> {
    if batch.rows < 2 {
        return None;
    }
    let rows = batch.rows / 2;
    let at: usize = batch.bytes.split_inclusive(|byte| *byte == b'\n').take(rows as usize).map(<[u8]>::len).sum();
    let half = |bytes, rows| Batch { bytes, rows, ..batch.clone() };
    Some((half(batch.bytes.slice(..at), rows), half(batch.bytes.slice(at..), batch.rows - rows)))
}

impl Writer for TapWriter {
    fn open<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        range: KeyRange,
        restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move {
            let call = self.gate.begin(self.gate.site(Call::Open, Some(ctx.run), Vec::new()));
            call.arrive().await?;
            let inner = self.inner.as_mut().ok_or_else(|| gone(Call::Open))?;
            call.answer(inner.open(ctx, range, restored).await).await
        })
    }

    fn begin<'a>(&'a mut self, ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move {
            self.part = Some(part.clone());
            let call = self.gate.begin(self.gate.site(Call::Begin, Some(ctx.run), vec![part.clone()]));
            call.arrive().await?;
            let inner = self.inner.as_mut().ok_or_else(|| gone(Call::Begin))?;
            call.answer(inner.begin(ctx, part).await).await
        })
    }

    fn write<'a>(&'a mut self, ctx: &'a CallContext, batch: Batch) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>> {
        Box::pin(async move {
            let call = self.gate.begin(self.gate.site(Call::Write, Some(ctx.run), self.parts()));
            call.arrive().await?;
            let inner = self.inner.as_mut().ok_or_else(|| gone(Call::Write))?;
            let halves = if self.gate.splits { halves(&batch) } else { None };
            let answer = match halves {
                None => inner.write(ctx, batch).await,
                Some((first, second)) => {
                    let taken = first.rows;
                    match inner.write(ctx, first).await {
                        Ok(mut rejects) => {
                            call.middle(1).await?;
                            inner.write(ctx, second).await.map(|more| {
                                rejects.extend(more.into_iter().map(|r| Reject { row: r.row + taken, ..r }));
                                rejects
                            })
                        }
                        // A half that holds a row that cannot be taken: the whole is refused, and nothing of it is kept.
                        Err(fault) => Err(fault),
                    }
                }
            };
            if answer.as_ref().map_or(true, |rejects| !rejects.is_empty()) {
                self.gate.rejected();
            }
            call.answer(answer).await
        })
    }

    fn prepare<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>> {
        Box::pin(async move {
            let parts = self.parts();
            let call = self.gate.begin(self.gate.site(Call::Prepare, Some(ctx.run), parts.clone()));
            let entry = call.arrive().await?;
            let special = match entry {
                Entry::Special(mode) => Some(mode),
                Entry::Go => None,
            };
            if let Some((calls, kill)) = special.and_then(leaves) {
                let mut inner = self.inner.take().ok_or_else(|| gone(Call::Prepare))?;
                let ctx = ctx.clone();
                let arrives = Box::pin(async move { inner.prepare(&ctx).await.is_ok() });
                return self.gate.leave(call.site.clone(), calls, kill, arrives).await;
            }
            call.middle(0).await?;
            wait(self.gate.slow_prepare_ms).await;
            let inner = self.inner.as_mut().ok_or_else(|| gone(Call::Prepare))?;
            let mut answer = inner.prepare(ctx).await;
            if let Ok(prepared) = &mut answer {
                prepared.committable.version = self.gate.writes;
                if !prepared.rejects.is_empty() {
                    self.gate.rejected();
                }
                match special {
                    Some(Mode::Lie) => {
                        // "Prepared", and nothing is there.
                        self.gate.lied(&parts, super::plugin::NOTHING_STAGED);
                    }
                    Some(Mode::Malformed(Break::Count)) => prepared.rows += 1,
                    Some(Mode::Malformed(Break::Foreign)) => {
                        if let Some(before) = &self.before {
                            prepared.committable = before.clone();
                        } else {
                            prepared.committable.part.ordinal += 1;
                        }
                    }
                    _ => self.before = Some(prepared.committable.clone()),
                }
            }
            call.answer(answer).await
        })
    }
}

pub(super) struct TapCommitter {
    inner: Box<dyn Committer>,
    plugin: Arc<dyn Plugin>,
    gate: Gate,
}

impl TapCommitter {
    pub(super) fn new(inner: Box<dyn Committer>, plugin: Arc<dyn Plugin>, gate: Gate) -> Self {
        Self { inner, plugin, gate }
    }
}

fn parts_of(committables: &[Committable]) -> Vec<PartId> {
    committables.iter().map(|committable| committable.part.clone()).collect()
}

async fn commit_anew(
    plugin: &Arc<dyn Plugin>,
    ctx: &CallContext,
    previous: &[PartId],
    committables: &[Committable],
) -> Result<Vec<Outcome>, CallFault> {
    plugin.committer().await?.commit(ctx, previous, committables).await
}

impl Committer for TapCommitter {
    fn observe<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Position, CallFault>> {
        Box::pin(async move {
            let call = self.gate.begin(self.gate.site(Call::Observe, Some(ctx.run), Vec::new()));
            call.arrive().await?;
            let answer = self.inner.observe(ctx).await;
            call.answer(answer).await
        })
    }

    fn fence<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        expected: &'a Position,
    ) -> BoxFuture<'a, Result<Position, CallFault>> {
        Box::pin(async move {
            let call = self.gate.begin(self.gate.site(Call::Fence, Some(ctx.run), Vec::new()));
            if let Entry::Special(mode) = call.arrive().await? {
                if let Some((calls, kill)) = leaves(mode) {
                    let (plugin, ctx, expected) = (Arc::clone(&self.plugin), ctx.clone(), expected.clone());
                    let arrives = Box::pin(async move {
                        let Ok(mut committer) = plugin.committer().await else { return false };
                        committer.fence(&ctx, &expected).await.is_ok()
                    });
                    return self.gate.leave(call.site.clone(), calls, kill, arrives).await;
                }
                if mode == Mode::Lie {
                    let position = Position { fence: Some(ctx.run), ..expected.clone() };
                    return call.answer(Ok(position)).await;
                }
            }
            let answer = self.inner.fence(ctx, expected).await;
            call.answer(answer).await
        })
    }

    fn commit<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        previous: &'a [PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            let gate = self.gate.clone();
            let call = gate.begin(gate.site(Call::Commit, Some(ctx.run), parts_of(committables)));
            let mut special = None;
            if let Entry::Special(mode) = call.arrive().await? {
                special = Some(mode);
                if let Some((calls, kill)) = leaves(mode) {
                    let plugin = Arc::clone(&self.plugin);
                    let (ctx, previous, committables) = (ctx.clone(), previous.to_vec(), committables.to_vec());
                    let arrives =
                        Box::pin(async move { commit_anew(&plugin, &ctx, &previous, &committables).await.is_ok() });
                    return gate.leave(call.site.clone(), calls, kill, arrives).await;
                }
                let all = |outcome: Outcome| vec![outcome; committables.len()];
                match mode {
                    Mode::Lie => {
                        gate.lied(&call.site.parts, "said to be committed");
                        return call.answer(Ok(all(Outcome::Committed))).await;
                    }
                    Mode::Outcome(Said::Retry) => return call.answer(Ok(all(Outcome::Retry(Some(50))))).await,
                    Mode::Outcome(Said::Unknown) => return call.answer(Ok(all(Outcome::Unknown))).await,
                    Mode::Outcome(Said::Rejected) => {
                        let error = PluginError {
                            kind: ErrorKind::Permanent,
                            code: "swept".into(),
                            message: "as the sweep wants it".into(),
                        };
                        return call.answer(Ok(all(Outcome::Rejected(error)))).await;
                    }
                    _ => {}
                }
            }
            wait(gate.slow_commit_ms).await;
            let mut answer = self.commit_in_steps(&call, ctx, previous, committables).await?;
            if special == Some(Mode::Twice) {
                let again = commit_anew(&self.plugin, ctx, previous, committables).await;
                gate.note(&call.site, crate::sweep::trace::Stage::Done(again.is_ok()));
            }
            if let (Some(Mode::Malformed(_)), Ok(outcomes)) = (special, &mut answer) {
                *outcomes = short_of_one(std::mem::take(outcomes));
            }
            call.answer(answer).await
        })
    }

    fn reconcile<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            let call = self.gate.begin(self.gate.site(Call::Reconcile, Some(ctx.run), parts_of(committables)));
            let entry = call.arrive().await?;
            let mut answer = self.inner.reconcile(ctx, committables).await;
            if let (Entry::Special(Mode::Malformed(_)), Ok(outcomes)) = (entry, &mut answer) {
                *outcomes = short_of_one(std::mem::take(outcomes));
            }
            call.answer(answer).await
        })
    }
}

impl TapCommitter {
    /// Part by part where each is a step of its own. The outer error is the host's own fault on the way.
    async fn commit_in_steps(
        &mut self,
        call: &OneCall<'_>,
        ctx: &CallContext,
        previous: &[PartId],
        committables: &[Committable],
    ) -> Result<Result<Vec<Outcome>, CallFault>, CallFault> {
        if self.gate.scope == AtomicScope::Sink || committables.len() < 2 {
            return Ok(self.inner.commit(ctx, previous, committables).await);
        }
        let mut outcomes = Vec::new();
        for (done, one) in (0u32..).zip(committables) {
            if done > 0 {
                call.middle(done).await?;
            }
            match self.inner.commit(ctx, previous, std::slice::from_ref(one)).await {
                Ok(some) => outcomes.extend(some),
                Err(fault) => return Ok(Err(fault)),
            }
        }
        Ok(Ok(outcomes))
    }
}

pub(super) struct TapJanitor {
    inner: Box<dyn Janitor>,
    plugin: Arc<dyn Plugin>,
    gate: Gate,
}

impl TapJanitor {
    pub(super) fn new(inner: Box<dyn Janitor>, plugin: Arc<dyn Plugin>, gate: Gate) -> Self {
        Self { inner, plugin, gate }
    }
}

impl Janitor for TapJanitor {
    fn abandon<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        parts: &'a [Unsealed],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            let ids: Vec<PartId> = parts.iter().map(|unsealed| unsealed.part.clone()).collect();
            let call = self.gate.begin(self.gate.site(Call::Abandon, Some(ctx.run), ids));
            let mut special = None;
            if let Entry::Special(mode) = call.arrive().await? {
                special = Some(mode);
                if let Some((calls, kill)) = leaves(mode) {
                    let (plugin, ctx, parts) = (Arc::clone(&self.plugin), ctx.clone(), parts.to_vec());
                    let arrives = Box::pin(async move {
                        let Ok(mut janitor) = plugin.janitor().await else { return false };
                        janitor.abandon(&ctx, &parts).await.is_ok()
                    });
                    return self.gate.leave(call.site.clone(), calls, kill, arrives).await;
                }
                if mode == Mode::Lie {
                    self.gate.lied(&call.site.parts, "said to be given back");
                    return call.answer(Ok(vec![Outcome::Committed; parts.len()])).await;
                }
            }
            let mut outcomes = Vec::new();
            for (done, one) in (0u32..).zip(parts) {
                if done > 0 {
                    call.middle(done).await?;
                }
                match self.inner.abandon(ctx, std::slice::from_ref(one)).await {
                    Ok(some) => outcomes.extend(some),
                    Err(fault) => return call.answer(Err(fault)).await,
                }
            }
            if let Some(Mode::Malformed(_)) = special {
                outcomes = short_of_one(outcomes);
            }
            call.answer(Ok(outcomes)).await
        })
    }

    fn release<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        resources: &'a [External],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(async move {
            let call = self.gate.begin(self.gate.site(Call::Release, Some(ctx.run), Vec::new()));
            if let Entry::Special(mode) = call.arrive().await? {
                if let Some((calls, kill)) = leaves(mode) {
                    let (plugin, ctx, resources) = (Arc::clone(&self.plugin), ctx.clone(), resources.to_vec());
                    let arrives = Box::pin(async move {
                        let Ok(mut janitor) = plugin.janitor().await else { return false };
                        janitor.release(&ctx, &resources).await.is_ok()
                    });
                    return self.gate.leave(call.site.clone(), calls, kill, arrives).await;
                }
                if mode == Mode::Lie {
                    self.gate.lied(&[], "said to be released");
                    return call.answer(Ok(vec![Outcome::Committed; resources.len()])).await;
                }
            }
            let mut outcomes = Vec::new();
            for (done, one) in (0u32..).zip(resources) {
                if done > 0 {
                    call.middle(done).await?;
                }
                match self.inner.release(ctx, std::slice::from_ref(one)).await {
                    Ok(some) => outcomes.extend(some),
                    Err(fault) => return call.answer(Err(fault)).await,
                }
            }
            call.answer(Ok(outcomes)).await
        })
    }

    fn list_orphans<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OrphanPage, CallFault>> {
        Box::pin(async move {
            let call = self.gate.begin(self.gate.site(Call::ListOrphans, Some(ctx.run), Vec::new()));
            let entry = call.arrive().await?;
            let mut answer = self.inner.list_orphans(ctx, prefix, page).await;
            if let (Entry::Special(Mode::Miss), Ok(page)) = (entry, &mut answer) {
                page.orphans.pop();
            }
            call.answer(answer).await
        })
    }
}
