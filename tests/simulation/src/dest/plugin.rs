//! The plugin of a simulated destination: every call may be delayed, and may misbehave as the script says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_protocol::ids::{KeyRange, PartId};
use tidegate_protocol::plugin::{
    Batch, BoxFuture, Call, CallContext, CallFault, Committable, Committer, Description, Encoding, ErrorKind, External,
    FaultKind, IntentLog, Janitor, OrphanPage, Orphans, Outcome, Plugin, PluginError, Position, Prepared, Reject,
    Unsealed, Writer, WriterState,
};

use super::journal::Did;
use super::mischief::{Act, ON_PURPOSE, error};
use super::{Destination, Rejects};
use crate::crash::Crash;

pub(super) struct SimPlugin {
    destination: Destination,
    host: Crash,
    description: Description,
}

impl SimPlugin {
    pub(super) fn new(destination: Destination, host: Crash) -> Self {
        let kind = destination.kind();
        let description = Description {
            name: kind.name.into(),
            version: "1".into(),
            config_schema: "{}".into(),
            encodings: vec![Encoding::JsonLines, Encoding::Raw],
            abilities: kind.abilities(),
            committable_versions: vec![1],
            grants: vec![],
            needs: vec![],
        };
        Self { destination, host, description }
    }

    fn caller(&self) -> Caller {
        Caller { destination: self.destination.clone(), host: self.host.clone(), dead: Arc::default() }
    }

    async fn instance<T>(&self, make: impl FnOnce(Caller) -> T + Send) -> Result<T, CallFault> {
        self.caller().make(Call::Instantiate, |_| Ok(()), |_, ()| ()).await?;
        Ok(make(self.caller()))
    }
}

impl Plugin for SimPlugin {
    fn description(&self) -> &Description {
        &self.description
    }

    fn digest(&self) -> &str {
        "sha256:simulated"
    }

    fn writer(&self, intents: Arc<dyn IntentLog>) -> BoxFuture<'_, Result<Box<dyn Writer>, CallFault>> {
        let make = |caller| {
            Box::new(SimWriter { caller, intents, part: None, rows: Vec::new(), stream: None, range: KeyRange::ALL })
                as Box<dyn Writer>
        };
        Box::pin(self.instance(make))
    }

    fn committer(&self) -> BoxFuture<'_, Result<Box<dyn Committer>, CallFault>> {
        Box::pin(self.instance(|caller| Box::new(caller) as Box<dyn Committer>))
    }

    fn janitor(&self) -> BoxFuture<'_, Result<Box<dyn Janitor>, CallFault>> {
        Box::pin(self.instance(|caller| Box::new(caller) as Box<dyn Janitor>))
    }
}

/// Makes calls on behalf of one host.
#[derive(Clone)]
struct Caller {
    destination: Destination,
    host: Crash,
    /// This instance must not be called again.
    dead: Arc<AtomicBool>,
}

fn fault(call: Call, kind: FaultKind) -> CallFault {
    CallFault::new("simulated 1", call, kind, "as the simulation wants it")
}

fn answered(call: Call, error: PluginError) -> CallFault {
    fault(call, FaultKind::Error(error))
}

impl Caller {
    /// One call. `work` does it (its argument: only in part), `twist` changes a good answer as a lie wants it.
    async fn make<T: Send + 'static>(
        &self,
        call: Call,
        mut work: impl FnMut(bool) -> Result<T, PluginError> + Send + 'static,
        twist: impl FnOnce(&Act, T) -> T + Send,
    ) -> Result<T, CallFault> {
        let world = self.destination.world.clone();
        self.host.hang_if_dead().await;
        if self.dead.load(Ordering::Relaxed) {
            self.destination.lock().write_down(None, Did::Haunted { call });
        }
        world.jitter().await;
        self.host.hang_if_dead().await;
        let act = self.destination.script.next(call);
        if let Some(act) = &act {
            world.note(|| format!("{} of {}: {}", call, self.destination.name(), act.kind()));
            world.fired(&act.kind());
            let ends = matches!(act, Act::Trap | Act::TrapAfter | Act::Hang | Act::HangAfter | Act::Late(_));
            self.dead.fetch_or(ends, Ordering::Relaxed);
        }
        let done = |result: Result<T, PluginError>| result.map_err(|error| answered(call, error));
        let answer = match act {
            None => done(work(false)),
            Some(Act::Trap) => Err(fault(call, FaultKind::Trap)),
            Some(Act::TrapAfter) => {
                let _ = work(false);
                Err(fault(call, FaultKind::Trap))
            }
            Some(Act::Hang) => std::future::pending().await,
            Some(Act::HangAfter) => {
                let _ = work(false);
                std::future::pending().await
            }
            Some(Act::LoseAnswer) => {
                let _ = work(false);
                Err(fault(call, FaultKind::AnswerLost))
            }
            Some(Act::Late(millis)) => {
                // It lands whoever still lives: the destination does not know that its caller is gone.
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    world.note(|| format!("late {call} lands"));
                    let _ = work(false);
                });
                std::future::pending().await
            }
            Some(Act::Slow(millis)) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                self.host.hang_if_dead().await;
                done(work(false))
            }
            Some(Act::Twice) => {
                let first = work(false);
                let _ = work(false);
                done(first)
            }
            Some(Act::Error(kind)) => Err(answered(call, error(kind))),
            Some(Act::ErrorAfter(kind)) => {
                let _ = work(false);
                Err(answered(call, error(kind)))
            }
            Some(Act::Partly) => done(work(true)),
            Some(Act::HostPanic) => std::panic::panic_any(ON_PURPOSE),
            Some(Act::CrashBefore) => {
                self.host.now();
                std::future::pending().await
            }
            Some(Act::CrashAfter) => {
                let _ = work(false);
                self.host.now();
                std::future::pending().await
            }
            Some(act @ (Act::WrongRows | Act::WrongPart | Act::OldName | Act::OneTooFew | Act::OneTooMany)) => {
                done(work(false)).map(|answer| twist(&act, answer))
            }
            // Only calls with a list of outcomes have these; `outcomes` handles them before.
            Some(Act::Answer(_) | Act::OnlySays | Act::BlamesFirst) => done(work(false)),
        };
        self.destination.world.jitter().await;
        self.host.hang_if_dead().await;
        answer
    }

    /// A call that answers with an outcome for each of `count` items.
    async fn outcomes(
        &self,
        call: Call,
        count: usize,
        parts: Vec<PartId>,
        mut work: impl FnMut(bool) -> Vec<Outcome> + Send + 'static,
    ) -> Result<Vec<Outcome>, CallFault> {
        let instead = self.destination.script.peek_answer(call);
        if let Some(act) = instead {
            let destination = self.destination.clone();
            let mut answers = match act {
                Act::Answer(ref outcome) => vec![outcome.clone(); count],
                Act::BlamesFirst => vec![Outcome::NotCommitted; count],
                _ => vec![Outcome::Committed; count],
            };
            if let (Act::BlamesFirst, Some(first)) = (&act, answers.first_mut()) {
                *first = Outcome::Rejected(error(ErrorKind::Permanent));
            }
            let answer = answers.first().cloned().unwrap_or(Outcome::Unknown);
            let lies = matches!(answer, Outcome::Committed | Outcome::AlreadyCommitted | Outcome::Never);
            let asked = call == Call::Reconcile;
            return self
                .make(
                    call,
                    move |_| {
                        if asked {
                            let answers = parts.iter().cloned().zip(answers.clone()).collect();
                            destination.lock().write_down(None, Did::Asked { answers });
                        }
                        if lies {
                            let how = format!("{call} answered {answer:?} and did nothing");
                            destination.lock().write_down(None, Did::Lied { parts: parts.clone(), how });
                        }
                        Ok(answers.clone())
                    },
                    |_, answer| answer,
                )
                .await;
        }
        self.make(
            call,
            move |partly| Ok(work(partly)),
            |act, mut outcomes: Vec<Outcome>| {
                match act {
                    Act::OneTooFew => drop(outcomes.pop()),
                    Act::OneTooMany => outcomes.extend(outcomes.last().cloned()),
                    _ => {}
                }
                outcomes
            },
        )
        .await
    }
}

struct SimWriter {
    caller: Caller,
    intents: Arc<dyn IntentLog>,
    part: Option<PartId>,
    /// All rows handed to the part; those that it refused have no bytes, and are counted.
    rows: Vec<Option<Bytes>>,
    stream: Option<String>,
    range: KeyRange,
}

impl SimWriter {
    /// What the part will consist of; a stream too, in every epoch that writes to it.
    async fn announce(&self, part: &PartId) -> Result<(), CallFault> {
        self.announce_as(part, "staged", &part.short).await?;
        match &self.stream {
            Some(stream) => self.announce_as(part, "stream", stream).await,
            None => Ok(()),
        }
    }

    async fn announce_as(&self, part: &PartId, kind: &str, name: &str) -> Result<(), CallFault> {
        let resource = External { kind: kind.to_owned(), name: String::new(), expires_at: None };
        let number = self.intents.intent(Some(part.clone()), resource).await;
        let number = number.map_err(|error| answered(Call::Begin, error))?;
        let bound = self.intents.bound(number, name.to_owned()).await;
        bound.map_err(|error| answered(Call::Begin, error))
    }
}

impl Writer for SimWriter {
    fn open<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        range: KeyRange,
        restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move {
            let given = Did::Restored { range, states: restored.to_vec() };
            self.caller.destination.lock().write_down(Some(ctx.run), given);
            self.caller.make(Call::Open, |_| Ok(()), |_, ()| ()).await?;
            self.range = range;
            // A stream of its own in every run: what an older run named is knowledge, not a handle.
            if self.caller.destination.kind().streams {
                self.stream = Some(format!("stream-{}-{}", ctx.run, range.first));
            }
            Ok(())
        })
    }

    fn begin<'a>(&'a mut self, ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(async move {
            if self.caller.destination.kind().orphans == Orphans::DurableIntent {
                self.announce(part).await?;
            }
            let (destination, run, begun) = (self.caller.destination.clone(), ctx.run, part.clone());
            self.caller
                .make(
                    Call::Begin,
                    move |_| {
                        destination.lock().begin(run, &begun);
                        Ok(())
                    },
                    |_, ()| (),
                )
                .await?;
            self.part = Some(part.clone());
            self.rows.clear();
            Ok(())
        })
    }

    fn write<'a>(&'a mut self, ctx: &'a CallContext, batch: Batch) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>> {
        Box::pin(async move {
            let rejects = self.caller.destination.rejects();
            let rows: Vec<Bytes> = batch
                .bytes
                .split_inclusive(|b| *b == b'\n')
                .map(|row| batch.bytes.slice_ref(row.trim_ascii_end()))
                .collect();
            if rejects.batches && rows.iter().any(|row| marked(row, b'b')) {
                // Of a batch of one row that row is meant; a larger one comes again in halves.
                if rows.len() == 1 {
                    self.rows.push(None);
                }
                return Err(answered(Call::Write, error(ErrorKind::BadBatch)));
            }
            let all: Vec<Option<Bytes>> = rows.into_iter().map(Some).collect();
            let (all, refused) = sort(all, |row| rejects.in_write && marked(row, b'w'));
            let taken: Vec<Bytes> = all.iter().flatten().cloned().collect();
            let (destination, run, part) = (self.caller.destination.clone(), ctx.run, self.part.clone());
            let early = taken;
            let refused = self
                .caller
                .make(
                    Call::Write,
                    move |_| {
                        if let Some(part) = &part {
                            destination.lock().show_early(run, part, &early);
                        }
                        Ok(refused.clone())
                    },
                    |act, mut refused| {
                        // A row number that does not rise.
                        if *act == Act::OneTooMany {
                            refused.push(reject(u64::MAX));
                        }
                        refused
                    },
                )
                .await?;
            self.rows.extend(all);
            Ok(refused)
        })
    }

    fn prepare<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>> {
        Box::pin(async move {
            let Some(part) = self.part.take() else {
                return Err(answered(Call::Prepare, error(ErrorKind::EpochLost)));
            };
            let Rejects { in_prepare, .. } = self.caller.destination.rejects();
            let (rows, rejects) = sort(std::mem::take(&mut self.rows), |row| in_prepare && marked(row, b'p'));
            let rows: Vec<Bytes> = rows.into_iter().flatten().collect();
            let expires_at = self.caller.destination.lock().expires_at();
            let mut resources = vec![External { kind: "staged".into(), name: part.short.clone(), expires_at }];
            let stream = self.stream.as_ref();
            resources.extend(stream.map(|name| External {
                kind: "stream".into(),
                name: name.clone(),
                expires_at: None,
            }));
            let count = rows.len() as u64;
            let range = self.range;
            let prepared = Prepared {
                committable: Committable {
                    part: part.clone(),
                    version: 1,
                    body: Bytes::new(),
                    rows: count,
                    expires_at,
                },
                resources: resources.clone(),
                state: stream.map(|name| WriterState { range, version: 1, body: Bytes::from(name.clone()) }),
                rows: count,
                rejects,
            };
            let (destination, run) = (self.caller.destination.clone(), ctx.run);
            let released = self.caller.destination.clone();
            self.caller
                .make(
                    Call::Prepare,
                    move |_| {
                        destination.lock().prepare(run, &part, rows.clone(), &resources);
                        Ok(prepared.clone())
                    },
                    |act, mut prepared| {
                        match act {
                            Act::WrongRows => prepared.rows += 1,
                            Act::WrongPart => prepared.committable.part.ordinal += 1,
                            Act::OldName => prepared.resources.extend(released.lock().released_last()),
                            Act::OneTooMany => prepared.rejects.push(reject(0)),
                            _ => {}
                        }
                        prepared
                    },
                )
                .await
        })
    }
}

fn reject(row: u64) -> Reject {
    Reject { row, code: "marked".into(), message: "rows with this mark are not taken".into() }
}

fn marked(row: &[u8], mark: u8) -> bool {
    row.windows(6).any(|bytes| bytes == [b'"', b'x', b'"', b':', b'"', mark])
}

/// Takes out the rows that are refused, and says which.
fn sort(mut rows: Vec<Option<Bytes>>, refused: impl Fn(&[u8]) -> bool) -> (Vec<Option<Bytes>>, Vec<Reject>) {
    let mut rejects = Vec::new();
    for (number, row) in (0u64..).zip(&mut rows) {
        if row.take_if(|row| refused(row)).is_some() {
            rejects.push(reject(number));
        }
    }
    (rows, rejects)
}

impl Committer for Caller {
    fn observe<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Position, CallFault>> {
        let (destination, run) = (self.destination.clone(), ctx.run);
        Box::pin(self.make(Call::Observe, move |_| Ok(destination.lock().observe(run)), |_, position| position))
    }

    fn fence<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        expected: &'a Position,
    ) -> BoxFuture<'a, Result<Position, CallFault>> {
        let (destination, run, expected) = (self.destination.clone(), ctx.run, expected.clone());
        Box::pin(self.make(Call::Fence, move |_| destination.lock().fence(run, &expected), |_, position| position))
    }

    fn commit<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        previous: &'a [PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let (destination, run, config) = (self.destination.clone(), ctx.run, Arc::clone(&ctx.config));
        let (previous, committables) = (previous.to_vec(), committables.to_vec());
        let parts: Vec<PartId> = committables.iter().map(|c| c.part.clone()).collect();
        self.destination.lock().write_down(Some(run), Did::Sent { parts: parts.clone() });
        let work = move |partly: bool| {
            let only = partly.then_some(1);
            destination.lock().commit(run, &config, &previous, &committables, only)
        };
        Box::pin(async move { self.outcomes(Call::Commit, parts.len(), parts, work).await })
    }

    fn reconcile<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let (destination, run, committables) = (self.destination.clone(), ctx.run, committables.to_vec());
        let parts = committables.iter().map(|c| c.part.clone()).collect();
        let work = move |_| destination.lock().reconcile(run, &committables);
        Box::pin(async move { self.outcomes(Call::Reconcile, Vec::len(&parts), parts, work).await })
    }
}

impl Janitor for Caller {
    fn abandon<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        parts: &'a [Unsealed],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let (destination, run, parts) = (self.destination.clone(), ctx.run, parts.to_vec());
        let ids = parts.iter().map(|unsealed| unsealed.part.clone()).collect();
        let work = move |partly: bool| {
            let mut store = destination.lock();
            let limit = if partly { 1 } else { parts.len() };
            let one = |(number, unsealed): (usize, &Unsealed)| match number < limit {
                true => store.abandon(run, &unsealed.part, &unsealed.resources),
                false => Outcome::Unknown,
            };
            parts.iter().enumerate().map(one).collect()
        };
        Box::pin(async move { self.outcomes(Call::Abandon, Vec::len(&ids), ids, work).await })
    }

    fn release<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        resources: &'a [External],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let (destination, run, resources) = (self.destination.clone(), ctx.run, resources.to_vec());
        let count = resources.len();
        let work = move |partly: bool| {
            let mut store = destination.lock();
            let limit = if partly { 1 } else { resources.len() };
            let one = |(number, resource): (usize, &External)| match number < limit {
                true => store.release(run, resource),
                false => Outcome::Unknown,
            };
            resources.iter().enumerate().map(one).collect()
        };
        Box::pin(async move { self.outcomes(Call::Release, count, Vec::new(), work).await })
    }

    fn list_orphans<'a>(
        &'a mut self,
        _ctx: &'a CallContext,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OrphanPage, CallFault>> {
        let (destination, prefix) = (self.destination.clone(), prefix.to_owned());
        let page = page.map(str::to_owned);
        let work = move |_| Ok(destination.lock().list_orphans(&prefix, page.as_deref()));
        Box::pin(self.make(Call::ListOrphans, work, |_, page| page))
    }
}
