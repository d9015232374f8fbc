//! Granted directories: where paths lead, what each role may do, how much fits, and what is left of a killed instance.

mod killed;
mod paths;
mod quotas;
mod rights;
mod surroundings;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{CallFault, Committer, Janitor, Plugin, Writer};
use tidegate_wasm::{BindOptions, DirGrant, Limits, Tenant, TenantLimits};

use crate::support::{Intents, context, part, scribe};

/// A scribe with two directories.
struct Desk {
    base: tempfile::TempDir,
    plugin: Arc<dyn Plugin>,
    tenant: Tenant,
}

struct Options {
    quota: Option<(u64, u64)>,
    limits: Limits,
}

impl Default for Options {
    fn default() -> Self {
        Self { quota: None, limits: Limits { call_time: std::time::Duration::from_secs(300), ..Limits::default() } }
    }
}

fn bind(base: &Path, options: Options, tenant: &Tenant) -> Arc<dyn Plugin> {
    let mut bind = BindOptions::new("out");
    let (quota_bytes, quota_files) = options.quota.unzip();
    let grant = DirGrant { path: base.join("output"), quota_bytes, quota_files };
    bind.dirs.insert("output".to_owned(), grant);
    bind.dirs.insert("other".to_owned(), base.join("other").into());
    bind.limits = options.limits;
    bind.tenant = tenant.clone();
    scribe().bind(bind).unwrap()
}

impl Desk {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn quota(bytes: u64, files: u64) -> Self {
        Self::with(Options { quota: Some((bytes, files)), ..Options::default() })
    }

    fn with(options: Options) -> Self {
        let base = tempfile::tempdir().unwrap();
        let tenant = Tenant::new("acme", TenantLimits::default());
        let plugin = bind(base.path(), options, &tenant);
        Self { base, plugin, tenant }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.base.path().join("output").join(path)
    }

    fn denied(&self, interface: &str) -> u64 {
        self.tenant.denied().get(interface).copied().unwrap_or(0)
    }
}

/// An instance in one of the roles.
enum Hand {
    Writer(Box<dyn Writer>),
    Committer(Box<dyn Committer>),
    Janitor(Box<dyn Janitor>),
}

impl Hand {
    async fn writer(desk: &Desk) -> Self {
        let mut writer = desk.plugin.writer(Arc::new(Intents::default())).await.unwrap();
        writer.open(&context("out", 1, r#"{"do":"nothing"}"#), KeyRange::ALL, &[]).await.unwrap();
        Self::Writer(writer)
    }

    async fn committer(desk: &Desk) -> Self {
        Self::Committer(desk.plugin.committer().await.unwrap())
    }

    async fn janitor(desk: &Desk) -> Self {
        Self::Janitor(desk.plugin.janitor().await.unwrap())
    }

    /// Has commands carried out, see `tests/scribe`.
    async fn does(&mut self, commands: &str) -> String {
        let ctx = context("out", 1, &format!(r#"{{"do":"{commands}"}}"#));
        let fault: CallFault = match self {
            Hand::Writer(writer) => writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap_err(),
            Hand::Committer(committer) => committer.observe(&ctx).await.unwrap_err(),
            Hand::Janitor(janitor) => janitor.list_orphans(&ctx, "", None).await.unwrap_err(),
        };
        match fault.error() {
            Some(error) if error.code == "answers" => error.message.clone(),
            _ => panic!("{commands}: {fault}"),
        }
    }
}
