//! The children of one tenant: one at a time, and a fresh one when it died or may not touch what a new sink was granted.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::child::Settings;
use super::deaths::{Deaths, TooMany, WINDOW};
use super::remote::Bond;
use super::running::Running;
use crate::confine::{Confinement, ConfinementPolicy};
use crate::error::WasmError;
use crate::instance::Threads;
use crate::sync::lock;
use crate::tenant::Tenant;
use crate::worker::process::WorkerProcess;
use crate::worker::{Start, Task};

/// What an instance takes in the child beyond its own memory, at most: stacks, tables, what its calls carry.
const OVERHEAD_BYTES: u64 = 4 << 20;
/// What the child takes besides its instances, code included.
const BASE_BYTES: u64 = 1 << 30;
/// Threads besides those of instances: the engine's, and those for files.
const BASE_THREADS: u64 = 600;
const OPEN_FILES: u64 = 65_536;
/// What looking up names and checking certificates reads.
const NETWORK_FILES: [&str; 11] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/ssl",
    "/etc/pki",
    "/usr/share/ca-certificates",
    "/lib",
    "/lib64",
    "/usr/lib",
];

/// The children of one tenant.
pub(crate) struct Group {
    tenant: Tenant,
    program: PathBuf,
    policy: ConfinementPolicy,
    /// See [`crate::engine::id`].
    engine: String,
    threads: Arc<Threads>,
    bonds: Mutex<Vec<Weak<Bond>>>,
    current: Mutex<Option<Arc<Running>>>,
    deaths: Arc<Mutex<Deaths>>,
}

/// Why there is no child.
pub(crate) enum Refused {
    /// It died so often that none is started for a while.
    Quarantined(String),
    /// It cannot be started.
    Failed(String),
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({})", self.tenant.name())
    }
}

impl Group {
    /// Checks that children can be started and confined as `policy` says.
    pub(crate) fn new(
        tenant: Tenant,
        program: PathBuf,
        policy: ConfinementPolicy,
        engine: String,
        threads: Arc<Threads>,
    ) -> Result<Arc<Self>, WasmError> {
        let (bonds, current, deaths) = (Mutex::default(), Mutex::default(), Arc::default());
        let group = Self { tenant, program, policy, engine, threads, bonds, current, deaths };
        let probe = Start { confinement: group.confinement(&[]), policy, task: Task::Probe };
        WorkerProcess::start(&group.program, &probe)
            .map_err(|error| WasmError::Worker { detail: format!("tenant `{}`: {error}", group.tenant.name()) })?;
        Ok(Arc::new(group))
    }

    pub(crate) fn threads(&self) -> &Arc<Threads> {
        &self.threads
    }

    /// The process id of the child that runs now.
    pub(crate) fn child_id(&self) -> Option<u32> {
        lock(&self.current).as_ref().and_then(|child| child.id())
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    pub(crate) fn join(&self, bond: &Arc<Bond>) {
        let mut bonds = lock(&self.bonds);
        bonds.retain(|bond| bond.strong_count() > 0);
        bonds.push(Arc::downgrade(bond));
    }

    /// A child that may touch what the binding is granted.
    pub(crate) async fn child(self: &Arc<Self>, bond: &Arc<Bond>) -> Result<Arc<Running>, Refused> {
        if let Some(fit) = self.current.try_lock().ok().and_then(|current| fitting(&current, bond)) {
            return Ok(fit);
        }
        let (group, bond) = (self.clone(), bond.clone());
        let started = self.threads.handle().spawn_blocking(move || group.start(&bond)).await;
        started.unwrap_or_else(|_| Err(Refused::Failed("the host is shutting down".to_owned())))
    }

    /// Blocks. Others who need a child wait for the same one.
    fn start(&self, bond: &Arc<Bond>) -> Result<Arc<Running>, Refused> {
        let mut current = lock(&self.current);
        if let Some(fit) = fitting(&current, bond) {
            return Ok(fit);
        }
        // One that lives and does not fit has its instances to the end.
        *current = None;
        let wait = self.wait().map_err(Refused::Quarantined)?;
        #[expect(clippy::disallowed_methods, reason = "on a thread for what blocks, as starting a process does")]
        std::thread::sleep(wait);
        let bonds: Vec<_> = lock(&self.bonds).iter().filter_map(Weak::upgrade).collect();
        let settings = Settings {
            engine: self.engine.clone(),
            tenant: self.tenant.name().to_owned(),
            limits: self.tenant.limits().clone(),
        };
        let start = Start { confinement: self.confinement(&bonds), policy: self.policy, task: Task::Host(settings) };
        let deaths = self.deaths.clone();
        let died = move || lock(&deaths).note(Instant::now());
        let running = Running::start(&self.program, &start, &self.tenant, self.threads.handle().clone(), died)
            .map_err(|error| Refused::Failed(error.to_string()))?;
        let running = Arc::new(running);
        *current = Some(running.clone());
        Ok(running)
    }

    /// How long the next child waits, or why there is none now.
    fn wait(&self) -> Result<Duration, String> {
        lock(&self.deaths).wait(Instant::now()).map_err(|TooMany { deaths, left }| {
            format!(
                "the child process of tenant `{}` died {deaths} times within {WINDOW:?}; a fresh one is tried in {left:.0?}",
                self.tenant.name()
            )
        })
    }

    fn confinement(&self, bonds: &[Arc<Bond>]) -> Confinement {
        let limits = self.tenant.limits();
        let network = bonds.iter().any(|bond| bond.network());
        let mut read: Vec<PathBuf> = bonds.iter().flat_map(|bond| bond.files()).collect();
        if network {
            read.extend(NETWORK_FILES.map(PathBuf::from));
        }
        read.retain(|path| Path::exists(path));
        let mut write: Vec<PathBuf> = bonds.iter().flat_map(|bond| bond.dirs().cloned()).collect();
        // One that was removed meanwhile is the concern of whoever opens it.
        write.retain(|path| path.is_dir());
        write.sort();
        write.dedup();
        Confinement {
            data: Some(
                limits.memory_bytes.saturating_add(limits.instances.saturating_mul(OVERHEAD_BYTES)) + BASE_BYTES,
            ),
            open_files: Some(OPEN_FILES),
            threads: Some(limits.instances.saturating_add(BASE_THREADS)),
            network,
            read,
            write,
            ..Confinement::default()
        }
    }
}

fn fitting(current: &Option<Arc<Running>>, bond: &Bond) -> Option<Arc<Running>> {
    current.as_ref().filter(|child| child.is_alive() && child.reaches(bond.dirs(), bond.network())).cloned()
}
