//! The network as a plugin has it: real servers on this machine's loopback, which the grants allow.

mod budgets;
mod closing;
mod places;
pub(crate) mod servers;
mod sockets;
mod tls;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_protocol::plugin::{BoxFuture, CallFault, Committer, Plugin};
use tidegate_wasm::{BindOptions, Limits, Resolve, ResolveError, TcpGrant, Tenant, TlsStart, Trust};

use crate::support::{Kept, caller, context};

/// A place on this machine, without TLS.
pub(crate) fn place(host: &str, port: u16) -> TcpGrant {
    TcpGrant {
        host: host.to_owned(),
        port,
        tls: TlsStart::Off,
        trust: Trust::default(),
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        connect_time: Duration::from_secs(30),
    }
}

/// The same, with TLS from the start and these roots.
pub(crate) fn secured(host: &str, port: u16, roots: PathBuf) -> TcpGrant {
    let trust = Trust { roots: Some(roots), ..Trust::default() };
    TcpGrant { tls: TlsStart::AtOnce, trust, ..place(host, port) }
}

/// Answers in turn with these addresses, the last answer for ever.
pub(crate) struct Names {
    answers: Mutex<BTreeMap<String, VecDeque<Vec<IpAddr>>>>,
    /// How often anything was asked.
    pub(crate) asked: AtomicU64,
}

impl Names {
    pub(crate) fn new(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let answer = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        let name = |(name, answers): &(&str, &[&[&str]])| ((*name).to_owned(), answers.iter().map(answer).collect());
        Self::with(names.iter().map(name).collect())
    }

    /// Every name is this machine.
    pub(crate) fn here(names: &[&str]) -> Arc<Self> {
        let here = || VecDeque::from([vec![IpAddr::from([127, 0, 0, 1])]]);
        Self::with(names.iter().map(|name| ((*name).to_owned(), here())).collect())
    }

    fn with(answers: BTreeMap<String, VecDeque<Vec<IpAddr>>>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers), asked: AtomicU64::new(0) })
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str, _: &'a str) -> BoxFuture<'a, Result<Vec<IpAddr>, ResolveError>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let mut names = self.answers.lock().unwrap();
        let answer = names.get_mut(name).and_then(|answers| match answers.len() {
            0 | 1 => answers.front().cloned(),
            _ => answers.pop_front(),
        });
        Box::pin(async move { answer.ok_or_else(|| ResolveError::Failed("no such name".to_owned())) })
    }
}

/// A plugin that calls, and who pays.
pub(crate) struct Bound {
    pub(crate) plugin: Arc<dyn Plugin>,
    pub(crate) tenant: Tenant,
    pub(crate) kept: Arc<Kept>,
}

pub(crate) fn options(a: TcpGrant, b: TcpGrant) -> BindOptions {
    let mut options = BindOptions::new("out");
    options.tcp.insert("a".to_owned(), a);
    options.tcp.insert("b".to_owned(), b);
    options.limits = Limits { call_time: Duration::from_secs(60), ..Limits::default() };
    options
}

pub(crate) fn bind(mut options: BindOptions) -> Bound {
    let kept = Arc::new(Kept::default());
    options.log = kept.clone();
    options.metrics = kept.clone();
    let tenant = options.tenant.clone();
    Bound { plugin: caller().bind(options).unwrap(), tenant, kept }
}

/// One place as both `a` and `b`.
pub(crate) fn bound_to(place: TcpGrant) -> Bound {
    bind(options(place.clone(), place))
}

/// Takes these steps on an instance.
pub(crate) async fn on(committer: &mut dyn Committer, steps: &[&str]) -> Result<String, CallFault> {
    // No step needs an escape.
    let steps: Vec<_> = steps.iter().map(|step| format!("\"{step}\"")).collect();
    let config = format!(r#"{{"steps":[{}]}}"#, steps.join(","));
    let position = committer.observe(&context("out", 1, &config)).await?;
    Ok(String::from_utf8(position.token.to_vec()).unwrap())
}

impl Bound {
    /// Takes these steps on a fresh instance, which then ends.
    pub(crate) async fn take(&self, steps: &[&str]) -> Result<String, CallFault> {
        let mut committer = self.plugin.committer().await?;
        on(committer.as_mut(), steps).await
    }

    pub(crate) async fn says(&self, steps: &[&str]) -> String {
        self.take(steps).await.unwrap()
    }
}
