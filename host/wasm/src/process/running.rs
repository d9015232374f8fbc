//! The parent's side of one child: its instances, and what it says.

mod hear;

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_protocol::ids::PartId;
use tidegate_protocol::plugin::{IntentLog, Role};
use tokio::sync::oneshot;

use super::pipe::Parcel;
use super::remote::Bond;
use super::wire::{Down, Fault, Reply, UP_OVERHEAD_BYTES};
use crate::host::Granted;
use crate::host::log::PluginLog;
use crate::host::metrics::PluginMetrics;
use crate::host::secrets::SecretRef;
use crate::tenant::Tenant;
use crate::text::{Redactor, clean};
use crate::worker::process::WorkerProcess;
use crate::worker::{Start, WorkerError};

/// For a child that closed its end to be gone by itself, so that it is seen how it ended.
const LAST_MOMENTS: Duration = Duration::from_secs(1);

/// A child. Dropped, it is ended.
pub(crate) struct Running(Arc<Shared>);

impl std::ops::Deref for Running {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.lock().unwanted = true;
        self.0.end();
    }
}

/// What its owner and its threads share.
pub(crate) struct Shared {
    tenant: Tenant,
    outbox: mpsc::Sender<Parcel>,
    socket: UnixStream,
    process: Mutex<Option<WorkerProcess>>,
    /// Where what may wait is done.
    tasks: tokio::runtime::Handle,
    /// Bytes of a message that is taken from the child.
    max_up: AtomicUsize,
    /// Secrets that are being looked for.
    asked: AtomicUsize,
    table: Mutex<Table>,
    /// Directories that it may write in.
    dirs: Vec<PathBuf>,
    network: bool,
}

#[derive(Default)]
struct Table {
    /// Why it is gone.
    death: Option<Arc<str>>,
    /// It is ended because nobody needs it any more.
    unwanted: bool,
    /// Next number of an instance.
    next: u32,
    instances: BTreeMap<u32, Entry>,
    bonds: BTreeMap<u32, Weak<Bond>>,
    code: Vec<String>,
}

/// Where what an instance says goes, and what it may ask for.
pub(crate) struct Voices {
    pub(crate) redactor: Redactor,
    log: Arc<PluginLog>,
    metrics: PluginMetrics,
    secrets: BTreeMap<String, SecretRef>,
}

impl From<Granted> for Voices {
    fn from(granted: Granted) -> Self {
        let Granted { redactor, log, metrics, secrets, .. } = granted;
        Self { redactor, log, metrics, secrets: secrets.0 }
    }
}

/// What is known of an instance here.
struct Entry {
    voices: Voices,
    intents: Option<Arc<dyn IntentLog>>,
    /// An intent waits for its answer.
    announcing: bool,
    /// The part begun last.
    part: Option<PartId>,
    /// Who waits for its answer.
    waiting: Option<oneshot::Sender<Result<Reply, Fault>>>,
}

/// The child is gone. Says how.
#[derive(Debug, Clone)]
pub(crate) struct Gone(pub(crate) Arc<str>);

impl Running {
    /// Starts a child and the threads that talk to it. Blocks. `died` is called when it dies of itself.
    pub(crate) fn start(
        program: &Path,
        start: &Start,
        tenant: &Tenant,
        tasks: tokio::runtime::Handle,
        died: impl FnOnce() + Send + 'static,
    ) -> Result<Self, WorkerError> {
        let process = WorkerProcess::start(program, start)?;
        let socket = process.talk.socket.try_clone().map_err(WorkerError::Start)?;
        let untimed = socket.set_read_timeout(None).and_then(|()| socket.set_write_timeout(None));
        untimed.map_err(WorkerError::Start)?;
        let clone = || socket.try_clone().map_err(WorkerError::Start);
        let (reading, writing) = (clone()?, clone()?);
        let (outbox, parcels) = mpsc::channel::<Parcel>();
        let shared = Arc::new(Shared {
            tenant: tenant.clone(),
            outbox,
            socket,
            process: Mutex::new(Some(process)),
            tasks,
            max_up: AtomicUsize::new(UP_OVERHEAD_BYTES),
            asked: AtomicUsize::new(0),
            table: Mutex::default(),
            dirs: start.confinement.write.clone(),
            network: start.confinement.network,
        });
        let write = move || {
            for parcel in parcels {
                if parcel.send(&writing).is_err() {
                    // The reader sees the end of it.
                    let _ = writing.shutdown(Shutdown::Both);
                }
            }
        };
        let read = {
            let shared = shared.clone();
            move || {
                let why = shared.listen(reading);
                if shared.bury(&why) {
                    died();
                }
            }
        };
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.to_owned()).stack_size(256 << 10);
            thread.spawn(body).map_err(WorkerError::Start)
        };
        let running = Self(shared);
        spawn("tidegate-to-child", Box::new(write))?;
        spawn("tidegate-child", Box::new(read))?;
        Ok(running)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.lock().death.is_none()
    }

    /// Whether it may touch all that is granted.
    pub(crate) fn reaches<'a>(&self, mut dirs: impl Iterator<Item = &'a PathBuf>, network: bool) -> bool {
        (self.network || !network) && dirs.all(|dir| self.dirs.contains(dir))
    }

    /// Ends it at once.
    pub(crate) fn end(&self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = &mut *process {
            let _ = process.kill();
        }
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(WorkerProcess::id)
    }

    fn gone(&self) -> Gone {
        Gone(self.lock().death.clone().unwrap_or_else(|| "the child process is gone".into()))
    }

    fn post(&self, down: &Down) {
        if let Ok(parcel) = Parcel::new(down) {
            // A writer that is gone means a child that is gone, which the reader tells.
            let _ = self.outbox.send(parcel);
        }
    }

    /// Has an instance made. Its number, and where the answer arrives.
    pub(crate) fn make(
        &self,
        bond: &Arc<Bond>,
        role: Role,
        voices: Voices,
        intents: Option<Arc<dyn IntentLog>>,
    ) -> Result<(u32, oneshot::Receiver<Result<Reply, Fault>>), Gone> {
        let io_failed = |error: std::io::Error| Gone(error.to_string().into());
        let mut table = self.lock();
        if let Some(death) = &table.death {
            return Err(Gone(death.clone()));
        }
        let terms = bond.terms();
        if !table.bonds.contains_key(&terms.binding) {
            self.max_up.fetch_max(terms.limits.transfer_bytes.saturating_add(UP_OVERHEAD_BYTES), Ordering::Relaxed);
            if !table.code.contains(&terms.digest) {
                let code = Parcel::new(&Down::Code { digest: terms.digest.clone() });
                let code = code.and_then(|parcel| parcel.with_body(bond.code()?.into())).map_err(io_failed)?;
                let _ = self.outbox.send(code);
                table.code.push(terms.digest.clone());
            }
            let lease = bond.lease();
            let bind = Down::Bind { terms: Box::new(terms.clone()), leased: lease.is_some() };
            let _ = self.outbox.send(Parcel::new(&bind).map_err(io_failed)?.with_lease(lease));
            table.bonds.insert(terms.binding, Arc::downgrade(bond));
        }
        let instance = table.next;
        table.next = table.next.wrapping_add(1);
        let (answer, answered) = oneshot::channel();
        let entry = Entry { voices, intents, announcing: false, part: None, waiting: Some(answer) };
        table.instances.insert(instance, entry);
        self.post(&Down::Make { instance, binding: terms.binding, role });
        Ok((instance, answered))
    }

    /// Sends a call. The receiver has no answer if the child dies.
    pub(crate) fn call(
        &self,
        instance: u32,
        parcel: Parcel,
        begun: Option<PartId>,
    ) -> Result<oneshot::Receiver<Result<Reply, Fault>>, Gone> {
        let (answer, answered) = oneshot::channel();
        let mut table = self.lock();
        match table.instances.get_mut(&instance) {
            Some(entry) => {
                entry.waiting = Some(answer);
                entry.part = begun.or(entry.part.take());
            }
            None => {
                drop(table);
                return Err(self.gone());
            }
        }
        let _ = self.outbox.send(parcel);
        Ok(answered)
    }

    pub(crate) fn how_it_died(&self) -> Gone {
        self.gone()
    }

    pub(crate) fn close(&self, instance: u32) {
        let closed = self.lock().instances.remove(&instance);
        if closed.is_some() {
            self.post(&Down::Close { instance });
        }
    }

    pub(crate) fn unbind(&self, binding: u32) {
        if self.lock().bonds.remove(&binding).is_some() {
            self.post(&Down::Unbind { binding });
        }
    }

    /// Everybody who waits learns that it is gone, once it is. `true` if it died of itself.
    fn bury(&self, why: &str) -> bool {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        let how = process.map(|mut process| {
            process.talk.until = Instant::now() + if why.is_empty() { LAST_MOMENTS } else { Duration::ZERO };
            process.end()
        });
        let tenant = self.tenant.name();
        let death = match how {
            _ if !why.is_empty() => format!("the child process of tenant `{tenant}` is gone: {why}"),
            Some(Ok(ending)) => {
                let words = clean(ending.last_words.trim(), 500);
                let words = if words.is_empty() { words } else { format!(" ({words})") };
                format!("the child process of tenant `{tenant}` died: {}{words}", ending.status)
            }
            Some(Err(error)) => format!("the child process of tenant `{tenant}` is gone: {error}"),
            None => format!("the child process of tenant `{tenant}` is gone"),
        };
        let mut table = self.lock();
        let unwanted = table.unwanted;
        if !unwanted {
            tracing::warn!(target: "tidegate::wasm", "{death}");
        }
        table.death = Some(death.into());
        let instances = std::mem::take(&mut table.instances);
        table.bonds.clear();
        drop(table);
        drop(instances);
        !unwanted
    }
}
