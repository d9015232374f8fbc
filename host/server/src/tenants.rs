//! Who pays for the plugins of a process.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tidegate_wasm::{Tenant, TenantLimits};

use crate::config::{ConfigError, HostFile, Isolation, PipelineFile, suggest};

/// Instances of a sink beside its writers: the committer and the janitor.
const OTHER_ROLES: u64 = 2;

/// The tenants of a process: those of the host file, or, without one, whoever a pipeline names.
pub(crate) struct Tenants {
    file: Option<PathBuf>,
    isolation: BTreeMap<String, Isolation>,
    known: Mutex<BTreeMap<String, Tenant>>,
}

impl Tenants {
    pub(crate) fn new(file: Option<&HostFile>) -> Self {
        let sections = || file.into_iter().flat_map(|file| &file.tenants);
        let known = sections().map(|(name, section)| (name.clone(), Tenant::new(name, section.limits.clone())));
        Self {
            file: file.map(|file| file.path.clone()),
            isolation: sections().map(|(name, section)| (name.clone(), section.isolation)).collect(),
            known: Mutex::new(known.collect()),
        }
    }

    /// Everybody, by name.
    pub(crate) fn all(&self) -> Vec<Tenant> {
        self.lock().values().cloned().collect()
    }

    /// Where the plugins of a tenant run.
    pub(crate) fn isolation(&self, tenant: &str) -> Isolation {
        self.isolation.get(tenant).copied().unwrap_or_default()
    }

    /// The tenant of a pipeline.
    ///
    /// # Errors
    /// The host file has no such tenant.
    pub(crate) fn of(&self, pipeline: &PipelineFile) -> Result<Tenant, ConfigError> {
        let name = &pipeline.pipeline.tenant;
        let mut known = self.lock();
        if let Some(tenant) = known.get(name) {
            return Ok(tenant.clone());
        }
        let Some(host_file) = &self.file else {
            let tenant = Tenant::new(name, TenantLimits::default());
            known.insert(name.clone(), tenant.clone());
            return Ok(tenant);
        };
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let place = path(&["tenant"]);
        let message = match pipeline.places.is_there(&place) {
            true => format!("{} has no tenant `{name}`", host_file.display()),
            false => format!("the pipeline names no tenant, and {} has no tenant `{name}`", host_file.display()),
        };
        let hint = "write tenant = \"NAME\" into [pipeline], or a table [tenants.NAME] into the host file";
        Err(pipeline.wrong(&place, message, vec![suggest(name, &names), hint.to_owned()]))
    }

    /// Refuses a pipeline whose sinks may come to more than their tenant has: all writers, committers and janitors, each
    /// with as much memory as it may have.
    pub(crate) fn check(&self, pipeline: &PipelineFile) -> Result<(), ConfigError> {
        let tenant = self.of(pipeline)?;
        let (mut instances, mut memory, mut each) = (0u64, 0u64, Vec::new());
        for (id, section, _) in pipeline.all_sinks() {
            let of_sink = u64::from(section.subtasks).saturating_add(OTHER_ROLES);
            let memory_bytes = section.limits.memory_bytes as u64;
            instances = instances.saturating_add(of_sink);
            memory = memory.saturating_add(of_sink.saturating_mul(memory_bytes));
            let mib = memory_bytes >> 20;
            each.push(format!("sink `{id}`: {of_sink} instances with up to {mib} MiB each"));
        }
        tenant.check(instances, memory).map_err(|figures| {
            let mend = "lower `subtasks`, or `memory` in the tables `limits`";
            let raise = match &self.file {
                Some(file) => format!("or raise it in [tenants.{}] of {}", tenant.name(), file.display()),
                None => "or give the process a host file with --host, and more to its tenant there".to_owned(),
            };
            let hints = each.into_iter().chain([mend.to_owned(), raise]);
            pipeline.wrong(&path(&["tenant"]), format!("the pipeline's plugins: {figures}"), hints.collect())
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Tenant>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path(keys: &[&str]) -> Vec<String> {
    ["pipeline"].iter().chain(keys).map(|key| (*key).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{parse, parse_host};

    fn pipeline(pipeline: &str, sink: &str) -> PipelineFile {
        let text = format!(
            "[pipeline]\nname = \"p\"\nstate = \"s\"\n{pipeline}\n[sources.g]\nkind = \"generate\"\n[sinks.out]\n\
             plugin = \"x.wasm\"\n{sink}\n"
        );
        parse(&text, "p.toml".as_ref(), "/b".as_ref()).unwrap()
    }

    fn tenants(text: &str) -> Tenants {
        Tenants::new(Some(&parse_host(text, "host.toml".as_ref()).unwrap()))
    }

    fn told(error: &ConfigError) -> String {
        let problem = &error.problems[0];
        format!("{}: {} / {}", error.place(problem), problem.message, problem.hints.join(" / "))
    }

    #[test]
    fn without_a_host_file_every_name_is_a_tenant_with_plenty() {
        let tenants = Tenants::new(None);
        let tenant = tenants.of(&pipeline("tenant = \"acme\"", "")).unwrap();
        assert_eq!((tenant.name(), tenant.limits()), ("acme", &TenantLimits::default()));
        assert_eq!(tenants.of(&pipeline("", "")).unwrap().name(), Tenant::DEFAULT);
        assert_eq!(tenants.all().len(), 2);
        assert!(tenants.check(&pipeline("", "subtasks = 256")).is_ok());
    }

    #[test]
    fn a_tenant_that_the_host_file_does_not_have_is_told_with_the_nearest() {
        let tenants = tenants("[tenants.acme]\nisolation = \"process\"\n[tenants.bolt]\n");
        assert_eq!(tenants.of(&pipeline("tenant = \"acme\"", "")).unwrap().name(), "acme");
        assert_eq!(tenants.isolation("acme"), Isolation::Process);
        assert_eq!(tenants.isolation("bolt"), Isolation::Shared);
        let error = tenants.of(&pipeline("tenant = \"acne\"", "")).unwrap_err();
        assert!(
            told(&error).starts_with("p.toml:4:10: host.toml has no tenant `acne` / did you mean `acme`?"),
            "{}",
            told(&error)
        );
        let error = tenants.of(&pipeline("", "")).unwrap_err();
        assert!(
            told(&error).contains(
                "the pipeline names no tenant, and host.toml has no tenant `default` / known are: `acme`, `bolt`"
            ),
            "{}",
            told(&error)
        );
    }

    #[test]
    fn sinks_that_may_come_to_more_than_the_tenant_has_are_refused_with_figures() {
        let tenants = tenants("[host]\nmemory = \"2GiB\"\n[tenants.default]\ninstances = 20\n");
        assert!(tenants.check(&pipeline("", "subtasks = 6")).is_ok());
        let error = told(&tenants.check(&pipeline("", "subtasks = 7")).unwrap_err());
        assert!(error.contains("of `memory` up to 2.2 GiB are needed, and tenant `default` has 2 GiB"), "{error}");
        assert!(error.contains("sink `out`: 9 instances with up to 256 MiB each"), "{error}");
        let error = told(&tenants.check(&pipeline("", "subtasks = 19\nlimits.memory = \"1MiB\"")).unwrap_err());
        assert!(error.contains("of `instances` up to 21 are needed, and tenant `default` has 20"), "{error}");
    }
}
