//! What an operator gives a plugin, and which part of it each role gets.

pub(crate) mod check;
pub(crate) mod dir;
pub(crate) mod place;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_protocol::plugin::{Description, GrantRequest, IntentLog, Role};

use crate::disk::account::Amount;
use crate::disk::{Disk, GrantedDir};
use crate::error::WasmError;
use crate::grants::check::{GrantKind, GrantProblem, GrantedNames, compare_grants};
use crate::grants::dir::DirGrant;
use crate::grants::place::{HttpGrant, TcpGrant};
use crate::host::http::HttpState;
use crate::host::ledger::Ledger;
use crate::host::log::{LogBudget, LogSink, PluginLog, Speaker, TracingLog};
use crate::host::metrics::{MetricSink, PluginMetrics, TracingMetrics};
use crate::host::network::{Network, TcpPlaces};
use crate::host::secrets::{GrantedSecrets, SecretRef};
use crate::host::{Granted, wasi};
use crate::limits::Limits;
use crate::net::http::place::HttpPlace;
use crate::net::place::TcpPlace;
use crate::net::resolve::{Resolve, SystemResolver};
use crate::process::{Isolation, Lease};
use crate::tenant::Tenant;
use crate::text::Redactor;

/// What a sink's plugin is bound to.
#[derive(Clone)]
pub struct BindOptions {
    /// The sink's name, for logs, metrics and messages.
    pub sink: String,
    /// Who pays.
    pub tenant: Tenant,
    /// The plugin's name for a directory → the directory, created if missing.
    pub dirs: BTreeMap<String, DirGrant>,
    /// The plugin's name for a place → where it connects to.
    pub tcp: BTreeMap<String, TcpGrant>,
    /// The plugin's name for a service → what requests it may send.
    pub http: BTreeMap<String, HttpGrant>,
    /// Who looks names up.
    pub resolver: Arc<dyn Resolve>,
    /// The host's own directories, in which no granted one may lie, nor around them, whatever links lead there. The compile
    /// cache is always one of them.
    pub keep_out: Vec<PathBuf>,
    /// The plugin's name for a secret → where its value is found.
    pub secrets: BTreeMap<String, SecretRef>,
    /// What each instance may spend.
    pub limits: Limits,
    /// Where its instances run; `None`: as [`crate::RuntimeOptions::isolation`] says.
    pub isolation: Option<Isolation>,
    /// The pipeline's, for the child processes that work for it.
    pub lease: Option<Lease>,
    /// Where its log lines go.
    pub log: Arc<dyn LogSink>,
    /// Where its metrics go.
    pub metrics: Arc<dyn MetricSink>,
}

impl BindOptions {
    /// No grants, default limits, log and metrics to `tracing`.
    pub fn new(sink: impl Into<String>) -> Self {
        Self {
            sink: sink.into(),
            tenant: Tenant::default(),
            dirs: BTreeMap::new(),
            tcp: BTreeMap::new(),
            http: BTreeMap::new(),
            resolver: SystemResolver::shared(),
            keep_out: Vec::new(),
            secrets: BTreeMap::new(),
            limits: Limits::default(),
            isolation: None,
            lease: None,
            log: Arc::new(TracingLog),
            metrics: Arc::new(TracingMetrics),
        }
    }
}

/// Makes a directory and those above it, and makes their names durable: what a plugin flushes inside is lost in a power
/// cut when the directory's own name is.
fn make_directory(dir: &Path) -> io::Result<()> {
    let flush_name = |made: &Path| {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent).and_then(|parent| parent.sync_all())
    };
    let missing: Vec<&Path> =
        dir.ancestors().filter(|path| !path.as_os_str().is_empty()).take_while(|path| !path.exists()).collect();
    std::fs::create_dir_all(dir)?;
    if missing.is_empty() {
        // Perhaps a process that was killed made it and did not come to flush it. A folder that we did not make may lie
        // where we must not read.
        let _ = flush_name(dir);
    }
    missing.into_iter().try_for_each(flush_name)
}

/// Whether one of two directories is, or lies in, the other. One that is not there lies nowhere.
fn overlap(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one.starts_with(&other) || other.starts_with(&one),
        _ => false,
    }
}

/// Which of a sink's grants one role gets.
#[derive(Default)]
struct Share {
    dirs: BTreeMap<String, PathBuf>,
    secrets: GrantedSecrets,
    ledger: Ledger,
    tcp: TcpPlaces,
    http: Vec<Arc<HttpPlace>>,
}

/// Grants of one sink, checked against what the plugin asks for.
pub(crate) struct Grants {
    options: BindOptions,
    /// Name and version of the plugin.
    plugin: String,
    requests: Vec<GrantRequest>,
    log_budget: Arc<LogBudget>,
    tcp: TcpPlaces,
    http: Vec<Arc<HttpPlace>>,
    /// Keeps what is known of the directories, so that they are counted once and not for every instance.
    _counted: Vec<GrantedDir>,
}

impl Grants {
    pub(crate) fn none(plugin: &str, tenant: &Tenant, limits: &Limits) -> Self {
        let (tenant, limits) = (tenant.clone(), limits.clone());
        let options = BindOptions { tenant, limits, ..BindOptions::new("-") };
        Self::new(options, plugin.to_owned(), Vec::new())
    }

    /// Without places in the network.
    fn new(options: BindOptions, plugin: String, requests: Vec<GrantRequest>) -> Self {
        let log_budget = Arc::new(LogBudget::new(options.limits.log_lines, options.limits.log_bytes));
        Self { options, plugin, requests, log_budget, tcp: TcpPlaces::new(), http: Vec::new(), _counted: Vec::new() }
    }

    /// Checks the names, and creates the directories.
    pub(crate) fn make(options: BindOptions, description: &Description, plugin: String) -> Result<Self, WasmError> {
        Self::check(&options, description, &plugin)?;
        let refuse = |detail: String| Err(WasmError::Grant { sink: options.sink.clone(), detail });
        for (name, DirGrant { path: dir, .. }) in &options.dirs {
            if let Err(e) = make_directory(dir) {
                return refuse(format!("the directory `{name}` ({}) cannot be created: {e}", dir.display()));
            }
            if let Err(e) = std::fs::read_dir(dir) {
                return refuse(format!("the directory `{name}` ({}) cannot be opened: {e}", dir.display()));
            }
            if let Some(own) = options.keep_out.iter().find(|own| overlap(dir, own)) {
                let (dir, own) = (dir.display(), own.display());
                return refuse(format!(
                    "the directory `{name}` ({dir}) and {own}, which is the host's own, lie in each other; grant another"
                ));
            }
        }
        Self::open(options, plugin, description.grants.clone())
    }

    /// Counts the directories, which are there, and reads what the places in the network need. Nothing is compared with
    /// what the plugin asks for.
    pub(crate) fn open(options: BindOptions, plugin: String, requests: Vec<GrantRequest>) -> Result<Self, WasmError> {
        let refuse = |detail: String| Err(WasmError::Grant { sink: options.sink.clone(), detail });
        let counted = match count_dirs(&options.dirs, &options.limits) {
            Ok(counted) => counted,
            Err(detail) => return refuse(detail),
        };
        let mut tcp = TcpPlaces::new();
        for (name, grant) in &options.tcp {
            match TcpPlace::new(grant, options.tenant.name(), options.resolver.clone()) {
                Ok(place) => tcp.insert(name.clone(), Arc::new(place)),
                Err(error) => return refuse(format!("the place granted as tcp `{name}` cannot be used: {error}")),
            };
        }
        let mut http = Vec::new();
        for (name, grant) in &options.http {
            match HttpPlace::new(name, grant, options.tenant.name(), options.resolver.clone()) {
                Ok(place) => http.push(Arc::new(place)),
                Err(error) => return refuse(format!("the service granted as http `{name}` cannot be used: {error}")),
            };
        }
        Ok(Self { tcp, http, _counted: counted, ..Self::new(options, plugin, requests) })
    }

    /// Checks that operator and plugin mean the same names. Changes nothing.
    pub(crate) fn check(options: &BindOptions, description: &Description, plugin: &str) -> Result<(), WasmError> {
        let given = GrantedNames::default()
            .with(GrantKind::Dir, options.dirs.keys())
            .with(GrantKind::Tcp, options.tcp.keys())
            .with(GrantKind::Http, options.http.keys())
            .with(GrantKind::Secret, options.secrets.keys());
        let Some(problem) = compare_grants(description, &given).into_iter().next() else { return Ok(()) };
        let asked = match &problem {
            GrantProblem::NotAsked { asked, .. } if asked.is_empty() => "; it asks for nothing of that kind".to_owned(),
            GrantProblem::NotAsked { asked, .. } => format!("; it asks for {}", asked.join(", ")),
            GrantProblem::Missing { .. } | GrantProblem::NoSuchKind { .. } => String::new(),
        };
        Err(WasmError::Grant { sink: options.sink.clone(), detail: format!("the plugin {plugin} {problem}{asked}") })
    }

    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }

    pub(crate) fn options(&self) -> &BindOptions {
        &self.options
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.options.limits
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        &self.options.tenant
    }

    /// For an instance in `role`: only what the plugin asks for in that role. The error names the grant.
    pub(crate) fn for_role(&self, role: Role, intents: Option<Arc<dyn IntentLog>>) -> Result<Granted, String> {
        let asks = |kind: &str, name: &str| {
            self.requests.iter().any(|request| request.role == role && request.kind == kind && request.name == name)
        };
        let dirs = self.options.dirs.iter().filter(|(name, _)| asks(GrantKind::Dir.as_str(), name));
        let secrets = self.options.secrets.iter().filter(|(name, _)| asks(GrantKind::Secret.as_str(), name));
        let tcp = self.tcp.iter().filter(|(name, _)| asks(GrantKind::Tcp.as_str(), name));
        let http = self.http.iter().filter(|place| asks(GrantKind::Http.as_str(), &place.name));
        let share = Share {
            dirs: dirs.map(|(name, dir)| (name.clone(), dir.path.clone())).collect(),
            secrets: GrantedSecrets(secrets.map(|(name, place)| (name.clone(), place.clone())).collect()),
            ledger: Ledger { intents, part: None },
            tcp: tcp.map(|(name, place)| (name.clone(), place.clone())).collect(),
            http: http.cloned().collect(),
        };
        self.granted(Some(role), share, &self.options.limits)
    }

    /// For `describe`: nothing.
    pub(crate) fn for_describe(&self, limits: &Limits) -> Result<Granted, String> {
        self.granted(None, Share::default(), limits)
    }

    fn granted(&self, role: Option<Role>, share: Share, limits: &Limits) -> Result<Granted, String> {
        let Share { dirs, secrets, ledger, tcp, http } = share;
        let redactor = Redactor::new(limits.message_bytes);
        for (name, dir) in &dirs {
            redactor.hide_path(&dir.to_string_lossy(), name);
            if let Ok(resolved) = dir.canonicalize() {
                redactor.hide_path(&resolved.to_string_lossy(), name);
            }
        }
        let disk = self.disk(role, &dirs, limits)?;
        let role = match role {
            Some(Role::Writer) => "writer",
            Some(Role::Committer) => "committer",
            Some(Role::Janitor) => "janitor",
            None => "describe",
        };
        let speaker = Speaker { sink: self.options.sink.clone(), plugin: self.plugin.clone(), role };
        let tenant = self.options.tenant.clone();
        let (sink, logs) = (self.options.sink.clone(), self.options.log.clone());
        let log = PluginLog::new(speaker, logs, redactor.clone(), self.log_budget.clone(), tenant.clone());
        let log = Arc::new(log);
        let metrics = PluginMetrics::new(sink, self.options.metrics.clone(), redactor.clone(), tenant.clone(), limits);
        let (wasi, stdio) = wasi::context(&log, limits);
        let reaches_out = !(dirs.is_empty() && tcp.is_empty() && http.is_empty());
        let network = Network::new(tenant.clone(), limits, tcp);
        let http = HttpState::new(http, tenant.clone(), network.traffic.clone(), log.clone(), redactor.clone(), limits);
        Ok(Granted { wasi, disk, stdio, log, metrics, secrets, ledger, redactor, tenant, reaches_out, network, http })
    }

    /// The directories of one instance. They are opened anew: where one was put in the place of another one, that counts.
    fn disk(&self, role: Option<Role>, dirs: &BTreeMap<String, PathBuf>, limits: &Limits) -> Result<Disk, String> {
        let granted = self.options.dirs.iter().filter(|(name, _)| dirs.contains_key(*name));
        let granted: Result<Vec<_>, String> = granted
            .map(|(name, grant)| match open_dir(grant, limits) {
                Ok(dir) => Ok((name.clone(), dir)),
                Err(e) => Err(format!("the directory granted as `{name}` cannot be opened: {e}")),
            })
            .collect();
        Ok(Disk::new(role, granted?, limits, self.options.tenant.clone()))
    }
}

/// What is known of these directories, as long as it is kept. The error names the one that cannot be counted.
pub(crate) fn count_dirs(dirs: &BTreeMap<String, DirGrant>, limits: &Limits) -> Result<Vec<GrantedDir>, String> {
    let count = |(name, grant): (&String, &DirGrant)| {
        open_dir(grant, limits)
            .map_err(|e| format!("the directory `{name}` ({}) cannot be counted: {e}", grant.path.display()))
    };
    dirs.iter().map(count).collect()
}

fn open_dir(grant: &DirGrant, limits: &Limits) -> io::Result<GrantedDir> {
    let quota = Amount {
        bytes: grant.quota_bytes.unwrap_or(limits.disk_bytes),
        names: grant.quota_files.unwrap_or(limits.disk_files),
    };
    GrantedDir::open(&grant.path, quota)
}
