//! Running plugins. Each instance has one thread, and that thread owns its Store: nothing else ever touches it.
//!
//! A call is a job sent to the thread. Dropping the call's future, or the instance, throws the kill switch: code of
//! the plugin stops at the next tick, a host call at its next wait, and the Store is dropped. A system call that is
//! already running cannot be stopped; the thread then ends after it, and no fresh instance of the same sink starts
//! before ([`Stragglers`]).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tidegate_protocol::plugin::{Blame, Call, CallFault, FaultKind};
use tokio::sync::{mpsc, oneshot, watch};
use wasmtime::{Engine, Store};

use crate::bindings::{Sink, SinkPre};
use crate::fault::{Failure, classify};
use crate::host::{Granted, State};
use crate::limits::{HostLimits, Limits, budget};
use crate::meter::KillSwitch;
use crate::net::traffic::Traffic;
use crate::tenant::Tenant;

/// Threads for reads and writes of files that a plugin does not wait for. Those of all plugins share them.
const MAX_BLOCKING_THREADS: usize = 32;
/// How long the caller waits for a thread that sits in a system call after the call's own time is over.
const GRACE: Duration = Duration::from_secs(1);
/// Most looks at what an instance had going on, before its end is told all the same.
const LOOKS: usize = 64;
/// Guest code runs on a fiber with a stack of its own; the thread only drives it.
const THREAD_STACK_BYTES: usize = 512 << 10;

/// What all instances of a process share: timers, and a count.
pub(crate) struct Threads {
    /// `None` only while being dropped.
    timers: Option<tokio::runtime::Runtime>,
    alive: AtomicU64,
    limits: HostLimits,
}

impl Threads {
    pub(crate) fn new(limits: HostLimits) -> std::io::Result<Self> {
        let timers = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_name("tidegate-timers")
            .enable_all()
            .build()?;
        Ok(Self { timers: Some(timers), alive: AtomicU64::new(0), limits })
    }

    pub(crate) fn handle(&self) -> &tokio::runtime::Handle {
        self.timers.as_ref().expect("taken only in drop").handle()
    }

    /// A timer that any executor can wait for, whatever it does with its own clock.
    pub(crate) fn sleep(&self, duration: Duration) -> tokio::time::Sleep {
        let _context = self.handle().enter();
        tokio::time::sleep(duration)
    }

    fn take_seat(self: &Arc<Self>) -> Option<Seat> {
        let one_more = |n| (n < self.limits.instances).then_some(n + 1);
        let taken = self.alive.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| Seat(self.clone()))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Waiting for it would panic in an async context, and there is nothing to wait for.
        if let Some(timers) = self.timers.take() {
            timers.shutdown_background();
        }
    }
}

/// The right to one thread.
struct Seat(Arc<Threads>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Instances of one sink whose last call was given up and whose thread has not ended yet.
#[derive(Clone)]
pub(crate) struct Stragglers(Arc<watch::Sender<usize>>);

impl Default for Stragglers {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Stragglers {
    /// Waits until there is none.
    pub(crate) async fn all_gone(&self) {
        // The sender is `self`.
        let _ = self.0.subscribe().wait_for(|n| *n == 0).await;
    }
}

const RUNNING: u8 = 0;
const GIVEN_UP: u8 = 1;
const ENDED: u8 = 2;

/// Shared by an instance and its thread.
struct Life {
    kill: KillSwitch,
    stage: AtomicU8,
    stragglers: Stragglers,
}

impl Life {
    /// The owner no longer waits for the call that is running.
    fn give_up(&self) {
        self.kill.kill();
        self.stragglers.0.send_modify(|n| *n += 1);
        if self.stage.compare_exchange(RUNNING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.stragglers.0.send_modify(|n| *n -= 1);
        }
    }

    /// The thread has dropped the Store.
    fn end(&self) {
        if self.stage.swap(ENDED, Ordering::AcqRel) == GIVEN_UP {
            self.stragglers.0.send_modify(|n| *n -= 1);
        }
    }
}

/// Runs at the very end of the thread, after a panic too.
struct EndOnDrop(Arc<Life>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A live component and the Store it lives in.
pub(crate) struct Guest {
    pub(crate) store: Store<State>,
    pub(crate) sink: Sink,
}

type Job = Box<dyn FnOnce(Guest) -> Pin<Box<dyn Future<Output = Option<Guest>>>> + Send>;

/// What an instance is made from.
pub(crate) struct Blueprint {
    pub(crate) threads: Arc<Threads>,
    pub(crate) engine: Engine,
    pub(crate) pre: SinkPre<State>,
    pub(crate) limits: Limits,
    /// Name and version, for faults.
    pub(crate) plugin: String,
    /// Who pays, for faults.
    pub(crate) tenant: Tenant,
    pub(crate) stragglers: Stragglers,
}

/// One instance. Dropping it closes it.
pub(crate) struct Instance {
    threads: Arc<Threads>,
    limits: Limits,
    plugin: String,
    tenant: Tenant,
    life: Arc<Life>,
    /// `None` while a call runs, and after the instance has ended.
    jobs: Option<mpsc::Sender<Job>>,
}

impl Instance {
    /// Instantiates the component in a Store of its own.
    pub(crate) async fn start(blueprint: Blueprint, granted: Granted) -> Result<Self, CallFault> {
        let Blueprint { threads, engine, pre, limits, plugin, tenant, stragglers } = blueprint;
        let fault = |kind, message: &str| {
            tenant.count_fault(&kind);
            let fault = CallFault::new(&plugin, Call::Instantiate, kind, message);
            fault.of_tenant(Some(tenant.name())).blamed_on(Blame::Host)
        };
        wait_for_stragglers(&threads, &stragglers, limits.call_time).await.map_err(|n| {
            fault(FaultKind::Host, &format!("{n} earlier instances of this sink still sit in a system call"))
        })?;
        let place = tenant.hold(budget::INSTANCES, 1).ok_or_else(|| {
            let most = tenant.limits().instances;
            fault(FaultKind::Budget(budget::TENANT_INSTANCES), &format!("{most} at once (`instances` of the tenant)"))
        })?;
        let seat = threads.take_seat().ok_or_else(|| {
            let message = format!("{} in this process, of all tenants together", threads.limits.instances);
            fault(FaultKind::Budget(budget::INSTANCES), &message)
        })?;

        let kill = KillSwitch::default();
        let life = Arc::new(Life { kill: kill.clone(), stage: AtomicU8::new(RUNNING), stragglers });
        let (jobs, inbox) = mpsc::channel::<Job>(1);
        let (reply, answer) = oneshot::channel();
        let body = {
            let (life, threads, limits) = (life.clone(), threads.clone(), limits.clone());
            move || {
                let _end = EndOnDrop(life);
                let _seats = (place, seat);
                let state = State::new(granted, &limits, threads.limits.stack_bytes, kill);
                run(threads.handle(), state.http.is_granted(), live(engine, pre, state, limits, reply, inbox));
            }
        };
        thread::Builder::new()
            .name("tidegate-plugin".to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(body)
            .map_err(|e| fault(FaultKind::Host, &format!("no thread for the instance: {e}")))?;

        let mut instance = Self { threads, limits, plugin, tenant, life, jobs: None };
        instance.wait(Call::Instantiate, answer).await?;
        instance.jobs = Some(jobs);
        Ok(instance)
    }

    /// Makes one call. After a fault that is not the plugin's own answer, and when the future is dropped before it is
    /// ready, the instance is gone.
    pub(crate) async fn call<R, F>(&mut self, call: Call, work: F) -> Result<R, CallFault>
    where
        R: Send + 'static,
        F: AsyncFnOnce(&mut Guest) -> wasmtime::Result<R> + Send + 'static,
    {
        let Some(jobs) = self.jobs.take() else {
            return Err(self.fault(
                call,
                FaultKind::Host,
                "this instance ended with an earlier call; make a fresh one",
            ));
        };
        let (reply, answer) = oneshot::channel();
        let limits = self.limits.clone();
        let job: Job = Box::new(move |guest| Box::pin(answer_with(guest, limits, reply, work)));
        if jobs.send(job).await.is_err() {
            return Err(self.fault(call, FaultKind::Host, "the instance's thread is gone"));
        }
        let answer = self.wait(call, answer).await?;
        self.jobs = Some(jobs);
        Ok(answer)
    }

    async fn wait<R>(&self, call: Call, answer: oneshot::Receiver<Result<R, Failure>>) -> Result<R, CallFault> {
        let given_up = GiveUpOnDrop(Some(&self.life));
        let patience = self.limits.call_time.saturating_add(GRACE);
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = self.threads.sleep(patience) => {
                let message = format!("no answer within {patience:?}; a system call of the host hangs");
                return Err(self.fault(call, FaultKind::Timeout, &message).blamed_on(Blame::Host));
            }
        };
        given_up.disarm();
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failure)) => Err(self.fault(call, failure.kind, &failure.message).blamed_on(failure.blame)),
            Err(_) => Err(self.fault(call, FaultKind::Host, "the host's own part panicked")),
        }
    }

    pub(crate) fn fault(&self, call: Call, kind: FaultKind, message: &str) -> CallFault {
        self.tenant.count_fault(&kind);
        CallFault::new(&self.plugin, call, kind, message).of_tenant(Some(self.tenant.name()))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.life.kill.kill();
    }
}

struct GiveUpOnDrop<'a>(Option<&'a Life>);

impl GiveUpOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for GiveUpOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(life) = self.0 {
            life.give_up();
        }
    }
}

/// `Err` holds how many are still there.
async fn wait_for_stragglers(threads: &Threads, stragglers: &Stragglers, patience: Duration) -> Result<(), usize> {
    let mut count = stragglers.0.subscribe();
    if *count.borrow() == 0 {
        return Ok(());
    }
    tokio::select! {
        _ = count.wait_for(|n| *n == 0) => Ok(()),
        () = threads.sleep(patience) => Err(*stragglers.0.borrow()),
    }
}

/// Lives with the timers of all, or with a runtime of its own: what goes on beside the plugin's calls (an HTTP connection)
/// then happens on this thread, is charged to the instance, and stops with it.
fn run(shared: &tokio::runtime::Handle, alone: bool, life: impl Future<Output = ()>) {
    let own = || tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    match alone.then(own) {
        Some(Ok(runtime)) => runtime.block_on(life),
        // Without descriptors for it the instance lives on, and its connections are not charged to it.
        Some(Err(_)) | None => shared.block_on(life),
    }
}

/// The life of an instance, on its thread.
async fn live(
    engine: Engine,
    pre: SinkPre<State>,
    state: State,
    limits: Limits,
    mut reply: oneshot::Sender<Result<(), Failure>>,
    mut inbox: mpsc::Receiver<Job>,
) {
    let mut store = Store::new(&engine, state);
    store.limiter(|state| &mut state.memory);
    store.epoch_deadline_callback(|mut context| context.data_mut().meter.tick());
    store.set_hostcall_fuel(limits.transfer_bytes);
    store.set_max_component_handles(limits.handles);

    let made = bounded(&mut store, &limits, &mut reply, async |store| pre.instantiate_async(store).await).await;
    let mut guest = match made {
        Ok(sink) => {
            // A receiver that is gone drops the inbox's sender as well.
            let _ = reply.send(Ok(()));
            Guest { store, sink }
        }
        Err(failure) => {
            drop(store);
            let _ = reply.send(Err(failure));
            return;
        }
    };
    while let Some(job) = inbox.recv().await {
        match job(guest).await {
            Some(alive) => guest = alive,
            None => return,
        }
    }
}

/// Carries out one call and sends its answer; gives the guest back if it may live on.
async fn answer_with<R, F>(
    mut guest: Guest,
    limits: Limits,
    mut reply: oneshot::Sender<Result<R, Failure>>,
    work: F,
) -> Option<Guest>
where
    F: AsyncFnOnce(&mut Guest) -> wasmtime::Result<R>,
{
    let answer = bounded(&mut guest, &limits, &mut reply, work).await;
    match answer {
        Ok(answer) => reply.send(Ok(answer)).is_ok().then_some(guest),
        Err(failure) => {
            // Dropped first: who sees the fault knows that nothing runs any more.
            let traffic = guest.store.data().network.traffic.clone();
            drop(guest);
            settle(&traffic).await;
            let _ = reply.send(Err(failure));
            None
        }
    }
}

/// What the Store had going on beside it has been told to stop, and ends when it is next looked at.
async fn settle(traffic: &Traffic) {
    for _ in 0..LOOKS {
        if traffic.is_closed() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Something with a Store in it.
trait HasStore {
    fn store(&mut self) -> &mut Store<State>;
}

impl HasStore for Store<State> {
    fn store(&mut self) -> &mut Store<State> {
        self
    }
}

impl HasStore for Guest {
    fn store(&mut self) -> &mut Store<State> {
        &mut self.store
    }
}

/// How a call came to its end.
enum Ended<R> {
    Answered(wasmtime::Result<R>),
    TooLate,
    Cancelled,
}

/// Runs `work` within the budgets of one call.
async fn bounded<S, R, A, F>(
    subject: &mut S,
    limits: &Limits,
    reply: &mut oneshot::Sender<A>,
    work: F,
) -> Result<R, Failure>
where
    S: HasStore,
    F: AsyncFnOnce(&mut S) -> wasmtime::Result<R>,
{
    let tenant = subject.store().data().tenant.clone();
    let work = async {
        subject.store().data_mut().begin_call(limits);
        // A tenant whose calls are too short for a tick waits here.
        tenant.pace().wait().await;
        subject.store().set_epoch_deadline(1);
        work(subject).await
    };
    let ended = tokio::select! {
        biased;
        answer = work => Ended::Answered(answer),
        () = tokio::time::sleep(limits.call_time) => Ended::TooLate,
        () = reply.closed() => Ended::Cancelled,
    };
    let state = subject.store().data_mut();
    state.end_call();
    match ended {
        // An overdrawn budget counts even if the call came to its end before the next tick.
        Ended::Answered(Ok(answer)) => match state.meter.breach() {
            None => Ok(answer),
            Some(budget) => Err(Failure::budget(budget, state, limits)),
        },
        Ended::Answered(Err(error)) => Err(classify(error, state, limits)),
        Ended::TooLate => Err(Failure::timeout(limits.call_time, state)),
        Ended::Cancelled => Err(Failure::cancelled()),
    }
}
