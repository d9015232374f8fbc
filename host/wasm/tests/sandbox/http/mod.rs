//! HTTP as a plugin has it: real servers on this machine's loopback, which the grants allow.

mod answers;
mod budgets;
mod closing;
mod credentials;
mod requests;
mod servers;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_protocol::plugin::{CallFault, Committer, Plugin};
use tidegate_wasm::{BindOptions, HttpAuth, HttpGrant, Limits, Tenant, Trust};

use crate::support::{Kept, context, fetcher};

/// A service on this machine, without TLS.
pub(crate) fn service(host: &str, port: u16) -> HttpGrant {
    HttpGrant {
        secure: false,
        host: host.to_owned(),
        port,
        path: "/".to_owned(),
        auth: HttpAuth::None,
        trust: Trust::default(),
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        http2_only: false,
        connect_time: Duration::from_secs(30),
        request_time: Duration::from_secs(30),
        response_bytes: 1 << 20,
        request_bytes: 64 << 20,
    }
}

/// The same with TLS and these roots.
pub(crate) fn secured(host: &str, port: u16, roots: PathBuf) -> HttpGrant {
    let trust = Trust { roots: Some(roots), ..Trust::default() };
    HttpGrant { secure: true, trust, ..service(host, port) }
}

/// A plugin that sends requests, and who pays.
pub(crate) struct Bound {
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) tenant: Tenant,
    pub(crate) kept: Arc<Kept>,
}

pub(crate) fn options(a: HttpGrant) -> BindOptions {
    let mut options = BindOptions::new("out");
    // Leads nowhere.
    options.http.insert("b".to_owned(), service("127.0.0.1", 9));
    options.http.insert("a".to_owned(), a);
    options.limits = Limits { call_time: Duration::from_secs(60), ..Limits::default() };
    options
}

pub(crate) fn bind(mut options: BindOptions) -> Bound {
    let kept = Arc::new(Kept::default());
    options.log = kept.clone();
    options.metrics = kept.clone();
    let tenant = options.tenant.clone();
    Bound { plugin: fetcher().bind(options).unwrap(), tenant, kept }
}

/// Short enough for a plugin that never ends by itself.
pub(crate) fn short() -> Limits {
    Limits { call_time: Duration::from_secs(3), cpu_time: Duration::from_millis(500), ..Limits::default() }
}

/// Takes these steps on an instance.
pub(crate) async fn on(committer: &mut dyn Committer, steps: &[String]) -> Result<String, CallFault> {
    let config = format!(r#"{{"steps":[{}]}}"#, steps.join(","));
    let position = committer.observe(&context("out", 1, &config)).await?;
    Ok(String::from_utf8(position.token.to_vec()).unwrap())
}

impl Bound {
    /// Takes these steps on a fresh instance, which then ends.
    pub(crate) async fn take(&self, steps: &[String]) -> Result<String, CallFault> {
        let mut committer = self.plugin.committer().await?;
        on(committer.as_mut(), steps).await
    }

    pub(crate) async fn says(&self, step: String) -> String {
        self.take(&[step]).await.unwrap()
    }
}

/// A step without fields.
pub(crate) fn step(act: &str) -> String {
    format!(r#"{{"do":"{act}"}}"#)
}

/// A step with a URL and whatever else, as JSON.
pub(crate) fn to(act: &str, url: &str, rest: &str) -> String {
    let rest = if rest.is_empty() { String::new() } else { format!(",{rest}") };
    format!(r#"{{"do":"{act}","url":"{url}"{rest}}}"#)
}
