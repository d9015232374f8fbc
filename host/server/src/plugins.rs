//! From a sink's section to an admitted plugin and its binding.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_protocol::ids::SinkId;
use tidegate_protocol::plugin::{Description, Plugin};
use tidegate_protocol::record::Binding;
use tidegate_wasm::{
    AdmitError, Admitted, BindOptions, Inspection, Isolation, Lease, Runtime, RuntimeOptions, Tenant, WasmError,
    Worker, builtin,
};

use crate::canonical;
use crate::config::{HostFile, PipelineFile, PluginRef, SinkSection, of_sink, real, suggest};
use crate::dirs;
use crate::error::ServerError;
use crate::grants;
use crate::network;
use crate::schema;
use crate::tenants::Tenants;

/// What all pipelines of a process share: the WebAssembly engine and its compile cache.
#[derive(Clone)]
pub struct Host {
    runtime: Arc<Runtime>,
    tenants: Arc<Tenants>,
}

impl Host {
    /// Starts the engine. Plugins are compiled in confined child processes of this program, whose `main` must call
    /// [`run_if_asked`](tidegate_wasm::worker::run_if_asked) first thing; what they compile is kept in `cache_dir`, if given.
    ///
    /// # Errors
    /// The engine does not run on this machine, the cache cannot be used, or child processes cannot be started or confined.
    pub fn new(cache_dir: Option<PathBuf>) -> Result<Self, ServerError> {
        Self::for_tenants(cache_dir, None)
    }

    /// As [`Host::new`], with the budgets and tenants of a host file. Without one every tenant that a pipeline names has
    /// more than one pipeline needs.
    ///
    /// # Errors
    /// As for [`Host::new`].
    pub fn for_tenants(cache_dir: Option<PathBuf>, file: Option<&HostFile>) -> Result<Self, ServerError> {
        Self::isolated(cache_dir, file, Isolation::Shared)
    }

    /// As [`Host::for_tenants`], with the plugins of every tenant in a process of its own if `isolation` says so, whatever the
    /// host file says.
    ///
    /// # Errors
    /// As for [`Host::new`].
    pub fn isolated(
        cache_dir: Option<PathBuf>,
        file: Option<&HostFile>,
        isolation: Isolation,
    ) -> Result<Self, ServerError> {
        let worker = Worker::this_program().map_err(|error| ServerError::Host(error.to_string()))?;
        let mut options = RuntimeOptions { cache_dir, worker, isolation, ..RuntimeOptions::default() };
        if let Some(HostFile { host, .. }) = file {
            options.host = host.limits.clone();
            options.compile = host.compile.clone();
            options.confinement = host.confinement;
        }
        Self::with_tenants(options, file)
    }

    /// Starts the engine as `options` say.
    ///
    /// # Errors
    /// As for [`Host::new`].
    pub fn with(options: RuntimeOptions) -> Result<Self, ServerError> {
        Self::with_tenants(options, None)
    }

    /// Starts the engine as `options` say, for the tenants of a host file.
    ///
    /// # Errors
    /// As for [`Host::new`].
    pub fn with_tenants(options: RuntimeOptions, file: Option<&HostFile>) -> Result<Self, ServerError> {
        let runtime = Runtime::new(options).map_err(|error| ServerError::Host(error.to_string()))?;
        Ok(Self { runtime, tenants: Arc::new(Tenants::new(file)) })
    }

    /// The tenants of this process: what each holds, has spent and was refused is in
    /// [`Tenant::usage`](tidegate_wasm::Tenant::usage).
    pub fn tenants(&self) -> Vec<Tenant> {
        self.tenants.all()
    }

    /// Where the plugins of a tenant run.
    pub fn isolation(&self, tenant: &str) -> Isolation {
        self.tenants.isolation(tenant)
    }

    /// Refuses a pipeline whose tenant is not known, or has less than the pipeline's plugins may come to.
    pub(crate) fn check_tenant(&self, file: &PipelineFile) -> Result<(), ServerError> {
        Ok(self.tenants.check(file)?)
    }

    /// Looks at a plugin file, or at `builtin:NAME`.
    ///
    /// # Errors
    /// It cannot be read, or is no component.
    pub fn inspect(&self, plugin: &Path) -> Result<Inspection, ServerError> {
        let text = plugin.to_string_lossy();
        let plugin = match text.strip_prefix("builtin:") {
            Some(name) => PluginRef::Builtin(name.to_owned()),
            None => PluginRef::File(plugin.to_owned()),
        };
        let request = |(problem, hints)| ServerError::Request { problem, hints };
        let bytes = read(&plugin).map_err(request)?;
        self.runtime.inspect(&plugin.to_string(), &bytes).map_err(|error| request((error.to_string(), vec![])))
    }

    /// Admits the plugin of one sink and checks the sink's section against what the plugin says of itself.
    pub(crate) fn admit(
        &self,
        file: &PipelineFile,
        id: &SinkId,
        section: &SinkSection,
    ) -> Result<Admission, ServerError> {
        let refuse = |problem: String, hints: Vec<String>| {
            file.wrong(&of_sink(id, &["plugin"]), format!("sink `{id}`: {problem}"), hints)
        };
        let tenant = self.tenants.of(file)?;
        let bytes = read(&section.plugin).map_err(|(problem, hints)| refuse(problem, hints))?;
        let admitted = self
            .runtime
            .admit_within(&section.plugin.to_string(), &bytes, &tenant, &section.limits)
            .map_err(|error| match error {
                AdmitError::Budget { budget, .. } => {
                    let hint = format!("raise `{budget}` in [{}]", of_sink(id, &["limits"]).join("."));
                    file.wrong(&of_sink(id, &["limits", budget]), format!("sink `{id}`: {error}"), vec![hint])
                }
                error => refuse(error.to_string(), vec![]),
            })?;
        let description = admitted.description();
        let schema: Value = serde_json::from_str(&description.config_schema).map_err(|error| {
            refuse(
                format!("the plugin {} declares a configuration schema that is not JSON: {error}", description.name),
                vec![],
            )
        })?;
        let problems = schema::check(file, id, section, &schema);
        if !problems.is_empty() {
            return Err(file.wrong_in(problems).into());
        }
        let problems = grants::check(file, id, section, description);
        if !problems.is_empty() {
            return Err(file.wrong_in(problems).into());
        }
        let binding = binding(section, &admitted);
        let isolation = self.tenants.isolation(tenant.name());
        Ok(Admission { id: id.clone(), section: section.clone(), tenant, isolation, admitted, binding })
    }
}

/// A sink whose plugin has been admitted.
pub(crate) struct Admission {
    id: SinkId,
    section: SinkSection,
    admitted: Admitted,
    /// Who pays.
    pub(crate) tenant: Tenant,
    isolation: Isolation,
    pub(crate) binding: Binding,
}

impl Admission {
    pub(crate) fn description(&self) -> &Description {
        self.admitted.description()
    }

    /// Hands over the grants. Creates granted directories that are missing; none may reach the state directory.
    /// With the lease of the pipeline that the plugin may change a destination for; a look needs none.
    pub(crate) fn bind(&self, file: &PipelineFile, lease: Option<&Lease>) -> Result<Arc<dyn Plugin>, ServerError> {
        let dirs = &self.section.dirs;
        if let Some(wrong) = dirs.iter().find_map(|(name, grant)| dirs::no_directory(file, &self.id, name, grant)) {
            return Err(wrong.into());
        }
        if let Some(wrong) = dirs.iter().find_map(|(name, grant)| dirs::shared_volume(file, &self.id, name, grant)) {
            return Err(wrong.into());
        }
        let mut options = BindOptions::new(self.id.as_str());
        options.tenant = self.tenant.clone();
        options.dirs = self.section.dirs.iter().map(|(name, grant)| (name.clone(), dirs::of_plugin(grant))).collect();
        options.tcp = self.section.tcp.iter().map(|(name, place)| (name.clone(), place.grant())).collect();
        options.http = self.section.http.iter().map(|(name, service)| (name.clone(), service.grant())).collect();
        options.secrets =
            self.section.secrets.iter().map(|(name, source)| (name.clone(), source.reference())).collect();
        options.limits = self.section.limits.clone();
        options.keep_out.push(file.pipeline.state.clone());
        options.lease = lease.cloned();
        // Else as the runtime says.
        options.isolation = Some(self.isolation).filter(|isolation| *isolation == Isolation::Process);
        self.admitted.bind(options).map_err(|error| {
            let problem = match error {
                WasmError::Grant { detail, .. } | WasmError::Budget { detail, .. } => {
                    format!("sink `{}`: {detail}", self.id)
                }
                other => format!("sink `{}`: {other}", self.id),
            };
            // What cannot be opened may be mended there; else it is what was granted that is wrong.
            match dirs.values().all(|grant| std::fs::read_dir(&grant.path).is_ok()) {
                true => file.wrong(&of_sink(&self.id, &["dirs"]), problem, vec![]).into(),
                false => ServerError::Destination { problem },
            }
        })
    }
}

/// For children of an earlier run to end. They were killed; only a system call can hold one back.
const LEASE_PATIENCE: Duration = Duration::from_secs(60);

/// Waits until no child process of an earlier run works for the pipeline any more, and takes its place. The caller holds
/// the lock of its state. Blocks.
pub(crate) fn lease(file: &PipelineFile) -> Result<Lease, ServerError> {
    let taken = Lease::take(&file.pipeline.state.join("lease"), LEASE_PATIENCE);
    taken.map_err(|error| ServerError::Host(error.to_string()))
}

/// What goes into the seal: paths as written and where they lead, secrets by reference.
fn binding(section: &SinkSection, admitted: &Admitted) -> Binding {
    let dirs: serde_json::Map<_, _> =
        section.dirs.iter().map(|(name, grant)| (name.clone(), grant.written.clone().into())).collect();
    let at: serde_json::Map<_, _> =
        section.dirs.iter().map(|(name, grant)| (name.clone(), real(&grant.path).to_string_lossy().into())).collect();
    let secrets: serde_json::Map<_, _> =
        section.secrets.iter().map(|(name, source)| (name.clone(), source.bound())).collect();
    let mut grants = json!({"dirs": dirs, "at": at, "secrets": secrets});
    // Seals of older versions have no word of it.
    if !section.tcp.is_empty() {
        grants["tcp"] = Value::Object(network::bound(section));
    }
    if !section.http.is_empty() {
        grants["http"] = Value::Object(network::bound_services(section));
    }
    let description = admitted.description();
    Binding {
        plugin: admitted.digest().to_owned(),
        plugin_name: format!("{} {}", description.name, description.version),
        config: canonical::text(&Value::Object(section.config.clone())),
        grants: canonical::text(&grants),
    }
}

type Problem = (String, Vec<String>);

fn read(plugin: &PluginRef) -> Result<Vec<u8>, Problem> {
    match plugin {
        PluginRef::Builtin(name) => match builtin::component(name) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => {
                let names: Vec<_> = builtin::names().collect();
                Err((format!("there is no plugin builtin:{name}"), vec![suggest(name, &names)]))
            }
        },
        PluginRef::File(path) => read_file(path),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Problem> {
    let cannot = |error: std::io::Error| {
        let hint = "give the path of a .wasm file, or builtin:NAME";
        (format!("cannot read the plugin {}: {error}", path.display()), vec![hint.to_owned()])
    };
    tidegate_wasm::read_component(path).map_err(cannot)
}
