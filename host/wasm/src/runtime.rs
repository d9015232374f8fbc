//! The engine and everything that all plugins of a process share, and the way a file becomes a plugin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use tidegate_protocol::plugin::{Call, CallFault, Description, FaultKind};
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use crate::admitted::Admitted;
use crate::bindings::SinkPre;
use crate::cache::CompileCache;
use crate::caps::ComponentCaps;
use crate::compile::{CompileLimits, Compiler};
use crate::confine::ConfinementPolicy;
use crate::convert;
use crate::engine::{self, TickingEngine};
use crate::error::{AdmitError, WasmError};
use crate::exports;
use crate::footprint::{self, Footprint};
use crate::grants::Grants;
use crate::host::{self, State};
use crate::instance::{Blueprint, Instance, Stragglers, Threads};
use crate::limits::{HostLimits, Limits};
use crate::process::{Group, Isolation};
use crate::screen::{self, Outline};
use crate::tenant::Tenant;
use crate::text::clean;
use crate::worker::Worker;

/// How a [`Runtime`] is set up.
#[derive(Debug, Clone, Default)]
pub struct RuntimeOptions {
    /// Where compiled components are kept. `None`: in memory only, so each process compiles anew.
    pub cache_dir: Option<PathBuf>,
    /// What a plugin may spend while it describes itself, where its sink says nothing.
    pub limits: Limits,
    /// Where components are compiled.
    pub worker: Worker,
    /// What happens where a worker cannot be confined.
    pub confinement: ConfinementPolicy,
    /// What compiling a component may take.
    pub compile: CompileLimits,
    /// How intricate a component may be.
    pub caps: ComponentCaps,
    /// What all plugins together get.
    pub host: HostLimits,
    /// Where plugins run, of tenants for which nothing else is said. [`Isolation::Process`] needs
    /// [`Worker::Program`].
    pub isolation: Isolation,
}

/// Admits plugins. One per process is enough; everything made from it keeps it alive.
pub struct Runtime {
    engine: TickingEngine,
    linker: Linker<State>,
    threads: Arc<Threads>,
    cache: Option<CompileCache>,
    compiler: Compiler,
    caps: ComponentCaps,
    limits: Limits,
    /// Components in use, by digest, so that two sinks with the same plugin share its code (and nothing else).
    compiled: Mutex<BTreeMap<String, Weak<Component>>>,
    worker: Worker,
    confinement: ConfinementPolicy,
    isolation: Isolation,
    /// Of tenants with a process of their own, by name.
    groups: Mutex<BTreeMap<String, Weak<Group>>>,
}

impl Runtime {
    /// Starts the engine and its clock, and opens the compile cache.
    ///
    /// # Errors
    /// wasmtime does not run on this machine, the cache directory cannot be used, or workers cannot be started or
    /// confined.
    pub fn new(options: RuntimeOptions) -> Result<Arc<Self>, WasmError> {
        let fail = |detail: String| WasmError::Engine { detail };
        let engine = TickingEngine::new(&options.host)?;
        let mut linker = Linker::new(&engine.engine);
        host::link(&mut linker).map_err(|e| fail(format!("{e:#}")))?;
        let threads = Threads::new(options.host).map_err(|e| fail(format!("no thread for timers: {e}")))?;
        let cache = options.cache_dir.map(|dir| CompileCache::open(&dir, &engine.engine)).transpose()?;
        Ok(Arc::new(Self {
            engine,
            linker,
            threads: Arc::new(threads),
            cache,
            compiler: Compiler::new(options.worker.clone(), options.confinement, options.compile)?,
            caps: options.caps,
            limits: options.limits,
            compiled: Mutex::default(),
            worker: options.worker,
            confinement: options.confinement,
            isolation: options.isolation,
            groups: Mutex::default(),
        }))
    }

    /// Turns a file into a plugin: what it is, its interface version and imports by name, all types, and only then
    /// its own description, in an instance without grants. `name` is for messages. Blocks while it compiles.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn admit(self: &Arc<Self>, name: &str, bytes: &[u8]) -> Result<Admitted, AdmitError> {
        self.admit_within(name, bytes, &Tenant::default(), &self.limits)
    }

    /// As [`Runtime::admit`], for a sink of `tenant` whose instances may spend `limits`: a plugin that begins with more, or
    /// says that it needs more, is refused with both figures.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn admit_within(
        self: &Arc<Self>,
        name: &str,
        bytes: &[u8],
        tenant: &Tenant,
        limits: &Limits,
    ) -> Result<Admitted, AdmitError> {
        let outline = screen::outline(name, bytes, &self.caps)?;
        screen::check_names(name, &outline)?;
        let footprint = Footprint::of(bytes);
        footprint.check(name, limits)?;
        let digest = digest(bytes);
        let component = self.compile(name, &digest, bytes)?;
        let pre = self.check_types(name, &component)?;
        let description = self.describe(name, &pre, tenant, limits)?;
        footprint::check_needs(name, &description.needs, limits)?;
        Ok(Admitted::new(self.clone(), component, pre, description, footprint, digest, outline))
    }

    /// Looks at a file without judging it more than needed. See [`Inspection`].
    pub fn inspect(self: &Arc<Self>, name: &str, bytes: &[u8]) -> Result<Inspection, AdmitError> {
        let outline = screen::outline(name, bytes, &self.caps)?;
        let admitted = self.admit(name, bytes);
        Ok(Inspection {
            interface: outline.interface_version(),
            digest: format!("sha256:{}", digest(bytes)),
            bytes: bytes.len() as u64,
            imports: outline.imports.into_iter().map(|name| clean(&name, 200)).collect(),
            exports: outline.exports.into_iter().map(|name| clean(&name, 200)).collect(),
            description: admitted.map(|admitted| admitted.description().clone()),
        })
    }

    fn compile(&self, name: &str, digest: &str, bytes: &[u8]) -> Result<Arc<Component>, AdmitError> {
        let have = || self.find(digest);
        match have() {
            Some(component) => Ok(component),
            None => {
                self.compiler.compile(name, &self.engine.engine, bytes, have, |code| self.take(name, digest, &code))
            }
        }
    }

    /// A component that is compiled already.
    fn find(&self, digest: &str) -> Option<Arc<Component>> {
        if let Some(component) = self.lock_compiled().get(digest).and_then(Weak::upgrade) {
            return Some(component);
        }
        let cached = self.cache.as_ref()?.load(&self.engine.engine, digest)?;
        Some(self.share(digest, cached))
    }

    /// Loads code that was compiled for this very digest just now.
    fn take(&self, name: &str, digest: &str, code: &[u8]) -> Result<Arc<Component>, AdmitError> {
        // SAFETY: it comes from our own compiler, in this process or in a worker of the same engine that this process
        // started, confined and talks to over a socket that nobody else has, or from the parent that started this one. A component is only ever its input.
        let component = unsafe { Component::deserialize(&self.engine.engine, code) };
        let component = component.map_err(|e| AdmitError::Worker {
            plugin: name.to_owned(),
            detail: format!("the compiled code does not load: {}", clean(&format!("{e:#}"), 1000)),
        })?;
        if let Some(cache) = &self.cache {
            cache.store(digest, code);
        }
        Ok(self.share(digest, component))
    }

    fn share(&self, digest: &str, component: Component) -> Arc<Component> {
        let component = Arc::new(component);
        let mut compiled = self.lock_compiled();
        compiled.retain(|_, component| component.strong_count() > 0);
        compiled.insert(digest.to_owned(), Arc::downgrade(&component));
        component
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine.engine
    }

    /// Where plugins run for which nothing else is said.
    pub(crate) fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// In a child process: code that the parent compiled, with all its types checked once more.
    pub(crate) fn load(
        &self,
        name: &str,
        digest: &str,
        code: &[u8],
    ) -> Result<(Arc<Component>, SinkPre<State>), AdmitError> {
        let component = match self.find(digest) {
            Some(component) => component,
            None => self.take(name, digest, code)?,
        };
        let pre = self.check_types(name, &component)?;
        Ok((component, pre))
    }

    /// The id of the child process in which a tenant's plugins run now.
    pub fn child_id(&self, tenant: &Tenant) -> Option<u32> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.get(tenant.name()).and_then(Weak::upgrade)?.child_id()
    }

    /// The child processes of a tenant.
    pub(crate) fn group(&self, tenant: &Tenant) -> Result<Arc<Group>, WasmError> {
        let Worker::Program(program) = &self.worker else {
            let detail = format!(
                "tenant `{}` is to run in a process of its own, and this program starts none; set RuntimeOptions::worker \
                 to Worker::this_program()",
                tenant.name()
            );
            return Err(WasmError::Worker { detail });
        };
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|_, group| group.strong_count() > 0);
        if let Some(group) = groups.get(tenant.name()).and_then(Weak::upgrade) {
            return Ok(group);
        }
        let (threads, engine) = (self.threads.clone(), engine::id(self.engine()));
        let group = Group::new(tenant.clone(), program.clone(), self.confinement, engine, threads)?;
        groups.insert(tenant.name().to_owned(), Arc::downgrade(&group));
        Ok(group)
    }

    /// Who can write there, or read the key there, can make the host run native code.
    pub(crate) fn cache_dir(&self) -> Option<&Path> {
        self.cache.as_ref().map(CompileCache::dir)
    }

    pub(crate) fn threads(&self) -> Arc<Threads> {
        self.threads.clone()
    }

    fn lock_compiled(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Weak<Component>>> {
        self.compiled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_types(&self, name: &str, component: &Component) -> Result<SinkPre<State>, AdmitError> {
        let pre = self.linker.instantiate_pre(component).and_then(|pre| {
            exports::check(&pre)?;
            SinkPre::new(pre)
        });
        pre.map_err(|e| AdmitError::Type { plugin: name.to_owned(), detail: clean(&format!("{e:#}"), 1000) })
    }

    fn describe(
        self: &Arc<Self>,
        name: &str,
        pre: &SinkPre<State>,
        tenant: &Tenant,
        limits: &Limits,
    ) -> Result<Description, AdmitError> {
        let failed = |fault| AdmitError::Describe(Box::new(fault));
        let limits = limits.for_describe();
        let granted = Grants::none(name, tenant, &limits)
            .for_describe(&limits)
            .map_err(|detail| failed(CallFault::new(name, Call::Describe, FaultKind::Host, detail)))?;
        let blueprint = self.blueprint(pre.clone(), limits, name.to_owned(), tenant.clone(), Stragglers::default());
        let (answer, answered) = std::sync::mpsc::channel();
        self.threads.handle().spawn(async move {
            let describe = async {
                let mut instance = Instance::start(blueprint, granted).await?;
                let described = instance.call(Call::Describe, async |guest| {
                    guest.sink.tidegate_sink_plugin().call_describe(&mut guest.store).await
                });
                described.await
            };
            // Nobody listens only if this process is ending.
            let _ = answer.send(describe.await);
        });
        let described = answered.recv().unwrap_or_else(|_| {
            Err(CallFault::new(name, Call::Describe, FaultKind::Host, "the host is shutting down"))
        });
        let described = described.map_err(failed)?;
        convert::description_from_wit(described)
            .map_err(|detail| AdmitError::Description { plugin: name.to_owned(), detail })
    }

    pub(crate) fn blueprint(
        &self,
        pre: SinkPre<State>,
        limits: Limits,
        plugin: String,
        tenant: Tenant,
        stragglers: Stragglers,
    ) -> Blueprint {
        let (threads, engine) = (self.threads.clone(), self.engine.engine.clone());
        Blueprint { threads, engine, pre, limits, plugin, tenant, stragglers }
    }
}

fn digest(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// What `plugin inspect` shows.
#[derive(Debug)]
pub struct Inspection {
    /// The version of `tidegate:sink` it was built for, read from its export names; `None` if it is no sink plugin.
    pub interface: Option<String>,
    /// `sha256:<hex>` of the file.
    pub digest: String,
    /// Size of the file.
    pub bytes: u64,
    /// Names of its imports, in order.
    pub imports: Vec<String>,
    /// Names of its exports, in order.
    pub exports: Vec<String>,
    /// What it says of itself, or why it would not be admitted.
    pub description: Result<Description, AdmitError>,
}

/// [`Runtime::inspect`] without a cache, for a single look.
///
/// # Errors
/// The file is not a component, or the engine cannot start (then as [`AdmitError::Compile`]).
pub fn inspect(name: &str, bytes: &[u8]) -> Result<Inspection, AdmitError> {
    screen::outline(name, bytes, &ComponentCaps::default())?;
    let runtime = Runtime::new(RuntimeOptions::default())
        .map_err(|e| AdmitError::Compile { plugin: name.to_owned(), detail: e.to_string() })?;
    runtime.inspect(name, bytes)
}

/// Everything a fresh look at a component's names tells; kept with the admitted plugin.
pub(crate) fn import_names(outline: &Outline) -> Vec<String> {
    outline.imports.iter().cloned().collect()
}
