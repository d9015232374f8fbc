//! An instance in a child process, as its owner in the parent sees it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_protocol::ids::{KeyRange, PartId};
use tidegate_protocol::plugin::{
    Batch, Blame, BoxFuture, Call, CallContext, CallFault, Committable, Committer, External, FaultKind, IntentLog,
    Janitor, OrphanPage, Outcome, Position, Prepared, Reject, Role, Unsealed, Usage, Writer, WriterState,
};
use tokio::sync::oneshot;

use super::check;
use super::pipe::Parcel;
use super::remote::Bond;
use super::running::{Gone, Running, Voices};
use super::wire::{Context, Down, Fault, Reply, Request};
use crate::convert::Checked;
use crate::text::Redactor;

/// How long the child has, beyond a call's own time, to say how the call ended. It ends its instances itself; one that
/// does not is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// One instance. Dropping it closes it.
pub(crate) struct Seat {
    instance: u32,
    redactor: Redactor,
    usage: Option<Usage>,
    /// A call runs, or the instance ended with one.
    ended: bool,
    bond: Arc<Bond>,
    /// After `bond`, which tells the child that it needs it no more.
    child: Arc<Running>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.child.close(self.instance);
    }
}

/// A call whose owner does not wait for its end ends the instance.
struct CloseOnDrop<'a>(Option<&'a Seat>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.0 {
            seat.child.close(seat.instance);
        }
    }
}

impl Seat {
    pub(crate) async fn make(
        child: Arc<Running>,
        bond: Arc<Bond>,
        role: Role,
        intents: Option<Arc<dyn IntentLog>>,
    ) -> Result<Self, CallFault> {
        let granted = bond.grants().for_role(role, None);
        // What each role is granted is looked at as without a child; the child opens it for itself.
        let voices = granted
            .map(Voices::from)
            .map_err(|message| bond.fault(Call::Instantiate, FaultKind::Host, &message).blamed_on(Blame::Operator))?;
        let redactor = voices.redactor.clone();
        let made = child.make(&bond, role, voices, intents);
        let (instance, answer) = made.map_err(|gone| died(&bond, Call::Instantiate, &gone))?;
        bond.note(&child);
        let seat = Self { instance, redactor, usage: None, ended: false, bond, child };
        match seat.wait(Call::Instantiate, answer).await? {
            Reply::Done => Ok(seat),
            _ => Err(seat.broken(Call::Instantiate)),
        }
    }

    async fn wait(&self, call: Call, answer: oneshot::Receiver<Result<Reply, Fault>>) -> Result<Reply, CallFault> {
        let mut unfinished = CloseOnDrop(Some(self));
        let patience = self.bond.terms().limits.call_time.saturating_add(PATIENCE);
        // An instance may have to wait for the end of earlier ones first.
        let patience = if call == Call::Instantiate { patience.saturating_mul(2) } else { patience };
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = self.bond.group().threads().sleep(patience) => {
                let message = format!("the child process did not answer within {patience:?} and was ended");
                self.child.end();
                return Err(self.bond.fault(call, FaultKind::Timeout, &message).blamed_on(Blame::Host));
            }
        };
        unfinished.0 = None;
        match answer {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(fault)) => Err(self.fault(call, fault)),
            Err(_) => Err(died(&self.bond, call, &self.child.how_it_died())),
        }
    }

    fn fault(&self, call: Call, fault: Fault) -> CallFault {
        match check::fault(fault, &self.redactor) {
            Some((kind, blame, message)) => self.bond.fault(call, kind, &message).blamed_on(blame),
            None => self.broken(call),
        }
    }

    /// It said what it cannot have meant.
    fn broken(&self, call: Call) -> CallFault {
        self.child.end();
        let message = "the child process broke the protocol, and was ended";
        self.bond.fault(call, FaultKind::Host, message).blamed_on(Blame::Plugin)
    }

    async fn ask(&mut self, request: Request) -> Result<Reply, CallFault> {
        self.send(request, None).await
    }

    /// Makes a call. After a fault that is not the plugin's own answer, and when the future is dropped before it is
    /// ready, the instance is gone.
    async fn send(&mut self, request: Request, batch: Option<Batch>) -> Result<Reply, CallFault> {
        let call = request.call();
        if std::mem::replace(&mut self.ended, true) {
            let message = "this instance ended with an earlier call; make a fresh one";
            return Err(self.bond.fault(call, FaultKind::Host, message));
        }
        let begun = match &request {
            Request::Begin { part, .. } => Some(part.clone()),
            _ => None,
        };
        let parcel = Parcel::new(&Down::Call { instance: self.instance, request });
        let parcel = match batch {
            Some(batch) => parcel.and_then(|parcel| parcel.with_body(batch.bytes)),
            None => parcel,
        };
        let parcel = parcel.map_err(|error| self.bond.fault(call, FaultKind::Host, &error.to_string()))?;
        let answer = self.child.call(self.instance, parcel, begun).map_err(|gone| died(&self.bond, call, &gone))?;
        let answer = self.wait(call, answer).await;
        self.ended = !matches!(&answer, Ok(_) | Err(CallFault { kind: FaultKind::Error(_), .. }));
        answer
    }

    fn checked<T>(&self, call: Call, answer: Checked<T>) -> Result<T, CallFault> {
        answer.map_err(|message| self.bond.fault(call, FaultKind::Malformed, &message))
    }

    async fn done(&mut self, request: Request) -> Result<(), CallFault> {
        let call = request.call();
        match self.ask(request).await? {
            Reply::Done => Ok(()),
            _ => Err(self.broken(call)),
        }
    }

    async fn outcomes(&mut self, request: Request) -> Result<Vec<Outcome>, CallFault> {
        let call = request.call();
        match self.ask(request).await? {
            Reply::Outcomes(outcomes) => self.checked(call, check::outcomes(outcomes, &self.redactor)),
            _ => Err(self.broken(call)),
        }
    }

    async fn position(&mut self, request: Request) -> Result<Position, CallFault> {
        let call = request.call();
        match self.ask(request).await? {
            Reply::Position(position) => self.checked(call, check::position(&position, &self.redactor)),
            _ => Err(self.broken(call)),
        }
    }
}

/// Whoever made the engine abort was a plugin of this tenant; which one is not known.
fn died(bond: &Bond, call: Call, gone: &Gone) -> CallFault {
    bond.fault(call, FaultKind::Host, &gone.0).blamed_on(Blame::Plugin)
}

impl Writer for Seat {
    fn open<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        range: KeyRange,
        restored: &'a [WriterState],
    ) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(self.done(Request::Open { ctx: ctx.into(), range, restored: restored.to_vec() }))
    }

    fn begin<'a>(&'a mut self, ctx: &'a CallContext, part: &'a PartId) -> BoxFuture<'a, Result<(), CallFault>> {
        Box::pin(self.done(Request::Begin { ctx: ctx.into(), part: part.clone() }))
    }

    fn write<'a>(&'a mut self, ctx: &'a CallContext, batch: Batch) -> BoxFuture<'a, Result<Vec<Reject>, CallFault>> {
        Box::pin(async move {
            let request = Request::Write { ctx: ctx.into(), batch: (&batch).into() };
            match self.send(request, Some(batch)).await? {
                Reply::Rejects(rejects) => self.checked(Call::Write, check::rejects(rejects, &self.redactor)),
                _ => Err(self.broken(Call::Write)),
            }
        })
    }

    fn prepare<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Prepared, CallFault>> {
        Box::pin(async move {
            match self.ask(Request::Prepare { ctx: Context::from(ctx) }).await? {
                Reply::Prepared { prepared, memory_bytes, handles } => {
                    self.usage = Some(Usage { memory_bytes, handles });
                    let limits = &self.bond.terms().limits;
                    self.checked(Call::Prepare, check::prepared(*prepared, &self.redactor, limits))
                }
                _ => Err(self.broken(Call::Prepare)),
            }
        })
    }

    fn usage(&self) -> Option<Usage> {
        self.usage
    }
}

impl Committer for Seat {
    fn observe<'a>(&'a mut self, ctx: &'a CallContext) -> BoxFuture<'a, Result<Position, CallFault>> {
        Box::pin(self.position(Request::Observe { ctx: ctx.into() }))
    }

    fn fence<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        expected: &'a Position,
    ) -> BoxFuture<'a, Result<Position, CallFault>> {
        Box::pin(self.position(Request::Fence { ctx: ctx.into(), expected: expected.clone() }))
    }

    fn commit<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        previous: &'a [PartId],
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        let (previous, committables) = (previous.to_vec(), committables.to_vec());
        Box::pin(self.outcomes(Request::Commit { ctx: ctx.into(), previous, committables }))
    }

    fn reconcile<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        committables: &'a [Committable],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(self.outcomes(Request::Reconcile { ctx: ctx.into(), committables: committables.to_vec() }))
    }
}

impl Janitor for Seat {
    fn abandon<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        parts: &'a [Unsealed],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(self.outcomes(Request::Abandon { ctx: ctx.into(), parts: parts.to_vec() }))
    }

    fn release<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        resources: &'a [External],
    ) -> BoxFuture<'a, Result<Vec<Outcome>, CallFault>> {
        Box::pin(self.outcomes(Request::Release { ctx: ctx.into(), resources: resources.to_vec() }))
    }

    fn list_orphans<'a>(
        &'a mut self,
        ctx: &'a CallContext,
        prefix: &'a str,
        page: Option<&'a str>,
    ) -> BoxFuture<'a, Result<OrphanPage, CallFault>> {
        Box::pin(async move {
            let (prefix, page) = (prefix.to_owned(), page.map(str::to_owned));
            match self.ask(Request::ListOrphans { ctx: Context::from(ctx), prefix, page }).await? {
                Reply::Orphans(page) => self.checked(Call::ListOrphans, check::orphans(page)),
                _ => Err(self.broken(Call::ListOrphans)),
            }
        })
    }
}
