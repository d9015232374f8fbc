//! The child's side: instances that run for the parent.

use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc as sync_mpsc};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use tidegate_protocol::ids::PartId;
use tidegate_protocol::plugin::{
    BoxFuture, Call, CallFault, ErrorKind, External, FaultKind, IntentLog, Plugin, PluginError, Role,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::actor::Actor;
use super::pipe::{Inbox, Parcel};
use super::wire::{self, Down, MAX_BODY_BYTES, MAX_DOWN_BYTES, Request, SecretPlace, Up};
use crate::admitted::Admitted;
use crate::disk::GrantedDir;
use crate::engine;
use crate::grants::{BindOptions, Grants, count_dirs};
use crate::host::log::{LogLine, LogSink};
use crate::host::metrics::{MetricSample, MetricSink};
use crate::host::secrets::SecretRef;
use crate::instance::Stragglers;
use crate::limits::TenantLimits;
use crate::runtime::{Runtime, RuntimeOptions};
use crate::sync::lock;
use crate::tenant::Tenant;
use crate::worker::frame;

/// For the parent to find a secret.
const SECRET_PATIENCE: Duration = Duration::from_secs(30);

/// What the parent says about itself.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The parent's [`engine::id`].
    pub(crate) engine: String,
    pub(crate) tenant: String,
    pub(crate) limits: TenantLimits,
}

/// Ends this process at once, in whatever its other threads are: there is nobody any more to answer to.
fn die() -> ! {
    let _ = kill_process(getpid(), Signal::KILL);
    std::process::abort()
}

/// Runs instances until the parent ends.
pub(crate) fn serve(socket: UnixStream, settings: &Settings) -> i32 {
    // Nobody may have to wait because the parent does not read what a panic says.
    let _ = rustix::io::ioctl_fionbio(rustix::stdio::stderr(), true);
    match Child::new(socket, settings) {
        Ok(child) => child.work(),
        Err(error) => {
            // The parent reads it; it also sees how this process ends.
            let _ = io::Write::write_all(&mut io::stderr(), format!("{error}\n").as_bytes());
            1
        }
    }
}

/// Where the parent's answer about a secret goes.
type Found = sync_mpsc::SyncSender<Result<Option<String>, String>>;

/// The way to the parent.
pub(crate) struct Outbox {
    socket: Mutex<UnixStream>,
    /// Secrets that were asked for.
    asked: Mutex<BTreeMap<u32, Found>>,
    next: AtomicU32,
    /// Denied attempts that were told.
    denied: Mutex<BTreeMap<&'static str, u64>>,
}

static PARENT: OnceLock<Arc<Outbox>> = OnceLock::new();

impl Outbox {
    /// Waits until the parent has taken it: who says much waits for who listens.
    fn tell(&self, up: &Up) {
        let Ok(parcel) = Parcel::new(up) else { die() };
        if parcel.send(&lock(&self.socket)).is_err() {
            die();
        }
    }

    fn tell_denied(&self, tenant: &Tenant) {
        let mut told = lock(&self.denied);
        let now = tenant.denied();
        let before = |what: &str| told.get(what).copied().unwrap_or(0);
        let news = now.iter().map(|(what, count)| ((*what).to_owned(), count - before(what)));
        let news: Vec<_> = news.filter(|(_, count)| *count > 0).collect();
        if !news.is_empty() {
            self.tell(&Up::Denied(news));
            *told = now;
        }
    }

    fn secret(&self, place: SecretPlace, reveal: bool) -> Result<Option<String>, String> {
        let ask = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = sync_mpsc::sync_channel(1);
        lock(&self.asked).insert(ask, answer);
        self.tell(&Up::Secret { ask, place, reveal });
        let answer = answered.recv_timeout(SECRET_PATIENCE);
        lock(&self.asked).remove(&ask);
        answer.unwrap_or_else(|_| Err(format!("it could not be read within {SECRET_PATIENCE:?}")))
    }
}

/// Asks the parent for a secret's value. Blocks. The error says what happened, not where the operator keeps it.
pub(crate) fn read_secret(place: &SecretPlace) -> Result<String, String> {
    let parent = PARENT.get().ok_or("there is no parent process to ask")?;
    parent.secret(place.clone(), true)?.ok_or_else(|| "the parent process gave no value".to_owned())
}

/// Asks the parent whether a secret's value can be read. Blocks.
pub(crate) fn find_secret(place: &SecretPlace) -> Result<(), String> {
    PARENT.get().ok_or("there is no parent process to ask")?.secret(place.clone(), false).map(drop)
}

struct Child {
    runtime: Arc<Runtime>,
    tenant: Tenant,
    tasks: tokio::runtime::Runtime,
    inbox: BufReader<Inbox>,
    outbox: Arc<Outbox>,
    code: BTreeMap<String, Vec<u8>>,
    bindings: BTreeMap<u32, Arc<Binding>>,
    instances: BTreeMap<u32, Instance>,
}

/// What one sink granted.
struct Binding {
    terms: wire::Terms,
    admitted: Admitted,
    stragglers: Stragglers,
    /// Instances that were closed and have not let go yet.
    closing: watch::Sender<usize>,
    /// So that directories are counted once, and not for every instance.
    _counted: Vec<GrantedDir>,
}

/// The way to an instance's task.
struct Instance {
    binding: Arc<Binding>,
    calls: mpsc::UnboundedSender<(Request, bytes::Bytes)>,
    /// Dropped to close it.
    close: oneshot::Sender<()>,
    intents: Intents,
}

type Intents = Arc<Mutex<Option<oneshot::Sender<Result<u64, PluginError>>>>>;

impl Child {
    fn new(socket: UnixStream, settings: &Settings) -> io::Result<Self> {
        let fail = |error: crate::error::WasmError| io::Error::other(error.to_string());
        let runtime = Runtime::new(RuntimeOptions::default()).map_err(fail)?;
        if engine::id(runtime.engine()) != settings.engine {
            return Err(io::Error::other("parent and child are not the same version of the program"));
        }
        let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let outbox = Arc::new(Outbox {
            socket: Mutex::new(socket.try_clone()?),
            asked: Mutex::default(),
            next: AtomicU32::new(0),
            denied: Mutex::default(),
        });
        let outbox = PARENT.get_or_init(|| outbox).clone();
        Ok(Self {
            runtime,
            tenant: Tenant::new(&settings.tenant, settings.limits.clone()),
            tasks,
            inbox: BufReader::with_capacity(64 << 10, Inbox::new(socket)),
            outbox,
            code: BTreeMap::new(),
            bindings: BTreeMap::new(),
            instances: BTreeMap::new(),
        })
    }

    fn work(mut self) -> ! {
        loop {
            // The end of the socket is the end of the parent, and what makes no sense as good as that.
            let Ok(message) = frame::read::<Down>(&mut self.inbox, MAX_DOWN_BYTES) else { die() };
            if self.take(message).is_none() {
                die();
            }
        }
    }

    fn body(&mut self) -> Option<Vec<u8>> {
        frame::read_bytes(&mut self.inbox, MAX_BODY_BYTES).ok()
    }

    /// `None` if it makes no sense.
    fn take(&mut self, message: Down) -> Option<()> {
        match message {
            Down::Code { digest } => {
                let code = self.body()?;
                self.code.insert(digest, code);
            }
            Down::Bind { terms, leased } => {
                let lease = if leased { Some(self.inbox.get_mut().lease()?) } else { None };
                self.bind(*terms, lease)?;
            }
            Down::Unbind { binding } => drop(self.bindings.remove(&binding)?),
            Down::Make { instance, binding, role } => {
                let binding = self.bindings.get(&binding)?.clone();
                let made = self.make(instance, binding, role);
                self.instances.insert(instance, made);
            }
            Down::Call { instance, request } => {
                let rows = if matches!(request, Request::Write { .. }) { self.body()? } else { Vec::new() };
                // Of an instance that is closing, nobody waits for the answer.
                if let Some(instance) = self.instances.get(&instance) {
                    let _ = instance.calls.send((request, rows.into()));
                }
            }
            Down::Close { instance } => {
                if let Some(Instance { binding, close, .. }) = self.instances.remove(&instance) {
                    binding.closing.send_modify(|n| *n += 1);
                    drop(close);
                }
            }
            Down::Intent { instance, answer } => {
                if let Some(waiting) = self.instances.get(&instance).and_then(|of| lock(&of.intents).take()) {
                    let _ = waiting.send(answer);
                }
            }
            Down::Secret { ask, answer } => {
                if let Some(waiting) = lock(&self.outbox.asked).remove(&ask) {
                    let _ = waiting.try_send(answer);
                }
            }
        }
        Some(())
    }

    fn bind(&mut self, terms: wire::Terms, lease: Option<OwnedFd>) -> Option<()> {
        let code = self.code.get(&terms.digest)?;
        let loaded = self.runtime.load(&terms.plugin, &terms.digest, code);
        let (component, pre) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                let _ = io::Write::write_all(&mut io::stderr(), format!("{error}\n").as_bytes());
                return None;
            }
        };
        let admitted =
            Admitted::in_child(self.runtime.clone(), component, pre, terms.description.clone(), terms.digest.clone());
        let number = terms.binding;
        let (stragglers, closing) = (Stragglers::default(), watch::Sender::new(0));
        // Where that fails it fails again for each instance, which says so.
        let counted = count_dirs(&terms.dirs, &terms.limits).unwrap_or_default();
        let binding = Arc::new(Binding { terms, admitted, stragglers, closing, _counted: counted });
        if let Some(lease) = lease {
            self.tasks.spawn(keep(lease, Arc::downgrade(&binding), binding.stragglers.clone()));
        }
        self.bindings.insert(number, binding).is_none().then_some(())
    }

    fn make(&self, instance: u32, binding: Arc<Binding>, role: Role) -> Instance {
        let (calls, inbox) = mpsc::unbounded_channel();
        let (close, closed) = oneshot::channel();
        let intents = Intents::default();
        let voice = Arc::new(Voice { instance, outbox: self.outbox.clone(), intents: intents.clone() });
        let options = options(&binding.terms, &self.tenant, &voice);
        let grants = Grants::open(options, binding.terms.plugin.clone(), binding.terms.description.grants.clone());
        let (tenant, of) = (self.tenant.clone(), binding.clone());
        self.tasks.spawn(async move {
            let plugin = grants.map(|grants| of.admitted.bound(grants, of.stragglers.clone()));
            let work = async {
                match &plugin {
                    Ok(plugin) => serve_instance(&of, &**plugin, role, &voice, &tenant, inbox).await,
                    Err(error) => {
                        let fault = CallFault::new(
                            of.terms.plugin.clone(),
                            Call::Instantiate,
                            FaultKind::Host,
                            error.to_string(),
                        );
                        voice.outbox.tell(&Up::Made { instance, made: Err(fault.into()) });
                        std::future::pending().await
                    }
                }
            };
            tokio::select! {
                biased;
                _ = closed => {}
                () = work => {}
            }
            drop(plugin);
            of.closing.send_modify(|n| *n = n.saturating_sub(1));
        });
        Instance { binding, calls, close, intents }
    }
}

/// Holds a lease until nothing of the binding is left, threads that sit in a system call included.
async fn keep(lease: OwnedFd, binding: std::sync::Weak<Binding>, stragglers: Stragglers) {
    while binding.strong_count() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stragglers.all_gone().await;
    drop(lease);
}

fn options(terms: &wire::Terms, tenant: &Tenant, voice: &Arc<Voice>) -> BindOptions {
    let place = |name: &String| SecretPlace::Granted { instance: voice.instance, name: name.clone() };
    BindOptions {
        tenant: tenant.clone(),
        dirs: terms.dirs.clone(),
        tcp: terms.tcp.clone(),
        http: terms.http.clone(),
        secrets: terms.secrets.iter().map(|name| (name.clone(), SecretRef::Parent(place(name)))).collect(),
        limits: terms.limits.clone(),
        log: voice.clone(),
        metrics: voice.clone(),
        ..BindOptions::new(terms.sink.clone())
    }
}

/// The life of an instance.
async fn serve_instance(
    binding: &Binding,
    plugin: &dyn Plugin,
    role: Role,
    voice: &Arc<Voice>,
    tenant: &Tenant,
    mut calls: mpsc::UnboundedReceiver<(Request, bytes::Bytes)>,
) {
    // Its own end says nothing about others, so this always becomes true.
    let _ = binding.closing.subscribe().wait_for(|closing| *closing == 0).await;
    let (instance, outbox) = (voice.instance, &voice.outbox);
    let mut actor = match Actor::make(plugin, role, voice.clone()).await {
        Ok(actor) => {
            outbox.tell(&Up::Made { instance, made: Ok(()) });
            actor
        }
        Err(fault) => {
            outbox.tell_denied(tenant);
            outbox.tell(&Up::Made { instance, made: Err(fault.into()) });
            // Closed by the parent.
            return std::future::pending().await;
        }
    };
    while let Some((request, rows)) = calls.recv().await {
        // The parent asks a role only for what the role does.
        let Some(answer) = actor.act(request, rows).await else { die() };
        outbox.tell_denied(tenant);
        outbox.tell(&Up::Answer { instance, answer: answer.map_err(wire::Fault::from) });
    }
}

/// What an instance says besides its answers.
struct Voice {
    instance: u32,
    outbox: Arc<Outbox>,
    intents: Intents,
}

impl Voice {
    async fn announce(&self, up: Up) -> Result<u64, PluginError> {
        let (answer, answered) = oneshot::channel();
        *lock(&self.intents) = Some(answer);
        self.outbox.tell(&up);
        answered.await.unwrap_or_else(|_| {
            let message = "the instance is being closed".to_owned();
            Err(PluginError { kind: ErrorKind::Unknown, code: "closing".to_owned(), message })
        })
    }
}

impl IntentLog for Voice {
    fn intent(&self, _part: Option<PartId>, resource: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        // The parent knows the part.
        Box::pin(self.announce(Up::Intent { instance: self.instance, resource }))
    }

    fn bound(&self, intent: u64, name: String) -> BoxFuture<'_, Result<(), PluginError>> {
        Box::pin(async move { self.announce(Up::Bound { instance: self.instance, intent, name }).await.map(drop) })
    }
}

impl LogSink for Voice {
    fn line(&self, line: LogLine) {
        let LogLine { level, message, fields, .. } = line;
        self.outbox.tell(&Up::Line { instance: self.instance, level, message, fields });
    }
}

impl MetricSink for Voice {
    fn sample(&self, sample: MetricSample) {
        let MetricSample { name, labels, change, .. } = sample;
        self.outbox.tell(&Up::Sample { instance: self.instance, name, labels, change });
    }
}
