//! Plugins that fail again and again: what their next instance waits for, when there is none any more, and that nothing
//! that breaks off passes for an answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{
    Blame, BoxFuture, Call, CallFault, Committable, ErrorKind, FaultKind, Outcome, Plugin,
};
use tidegate_wasm::{
    BindOptions, Limits, MetricSample, MetricSink, QuarantineChange, SecretRef, Tenant, TenantLimits, Time,
};

use crate::support::{Intents, context, hostile, part, rows};

/// Time that passes only while somebody waits for it.
#[derive(Debug, Default)]
struct Waits(Mutex<Vec<Duration>>, AtomicU64);

impl Waits {
    fn forward(&self, span: Duration) {
        self.1.fetch_add(span.as_millis() as u64, Ordering::SeqCst);
    }

    /// All waits so far, in milliseconds.
    fn so_far(&self) -> Vec<u128> {
        self.0.lock().unwrap().iter().map(Duration::as_millis).collect()
    }
}

impl Time for Waits {
    fn now(&self) -> Duration {
        Duration::from_millis(self.1.load(Ordering::SeqCst))
    }

    fn unix_ms(&self) -> u64 {
        self.1.load(Ordering::SeqCst)
    }

    fn wait<'a>(&'a self, span: Duration, _: BoxFuture<'a, ()>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.lock().unwrap().push(span);
            self.forward(span);
        })
    }
}

struct Scene {
    plugin: Arc<dyn Plugin>,
    tenant: Tenant,
    time: Arc<Waits>,
    _dir: tempfile::TempDir,
}

fn options(dir: &std::path::Path, tenant: &Tenant) -> BindOptions {
    let token = dir.join("token");
    std::fs::write(&token, "a token").unwrap();
    let mut options = BindOptions::new("out");
    options.tenant = tenant.clone();
    options.dirs.insert("output".to_owned(), dir.join("output").into());
    options.secrets.insert("token".to_owned(), SecretRef::File(token));
    options.limits =
        Limits { call_time: Duration::from_secs(60), cpu_time: Duration::from_secs(30), ..Limits::default() };
    options
}

fn scene(change: impl FnOnce(&mut BindOptions)) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let time = Arc::new(Waits::default());
    let tenant = Tenant::with_time("acme", TenantLimits::default(), time.clone());
    let mut options = options(dir.path(), &tenant);
    change(&mut options);
    Scene { plugin: hostile().bind(options).unwrap(), tenant, time, _dir: dir }
}

/// Commits one part of an epoch, with a fresh committer.
async fn commit(plugin: &dyn Plugin, word: &str, epoch: u64) -> Result<Vec<Outcome>, CallFault> {
    let ctx = context("out", 1, &format!(r#"{{"do":"{word}"}}"#));
    let part = part(&ctx, epoch, 0);
    let committable = Committable { part, version: 1, body: "x".into(), rows: 1, expires_at: None };
    plugin.committer().await?.commit(&ctx, &[], &[committable]).await
}

#[tokio::test]
async fn h09_a_trap_in_one_commit_is_tried_again_with_growing_waits_and_then_quarantined() {
    let Scene { plugin, tenant, time, _dir } = scene(|_| {});
    let heard: Arc<Mutex<Vec<QuarantineChange>>> = Arc::default();
    let ear = heard.clone();
    let watch = tenant.watch_quarantine(move |change| ear.lock().unwrap().push(change.clone()));
    for epoch in [1, 2] {
        assert_eq!(commit(plugin.as_ref(), "third", epoch).await.unwrap(), [Outcome::Committed]);
    }
    for _ in 0..5 {
        let fault = commit(plugin.as_ref(), "third", 3).await.unwrap_err();
        assert_eq!((fault.call, &fault.kind, fault.blame), (Call::Commit, &FaultKind::Trap, Blame::Plugin), "{fault}");
    }
    assert_eq!(time.so_far(), [100, 200, 400, 800], "bounded waits between fresh instances");

    // From here on nothing runs: the fault is of the instance that was not made, and says what to do.
    let refused = commit(plugin.as_ref(), "third", 1).await.unwrap_err();
    assert_eq!((refused.call, &refused.kind), (Call::Instantiate, &FaultKind::Quarantined));
    let words = refused.to_string();
    for expected in ["hostile 1.0.0", "tenant `acme`", "5 faults", "commit trapped", "tried in 30 s", "lifted"] {
        assert!(words.contains(expected), "{words}");
    }
    let [listed] = &tenant.quarantined()[..] else { panic!("it is listed") };
    assert_eq!((listed.digest.as_str(), listed.tenant.as_str()), (plugin.digest(), "acme"));
    assert!(matches!(&heard.lock().unwrap()[..], [QuarantineChange::Began(began)] if began.faults == 5));

    // Half open: one instance after the cool-down. It answers, and then the next fault is the last one.
    time.forward(Duration::from_secs(30));
    assert_eq!(commit(plugin.as_ref(), "third", 4).await.unwrap(), [Outcome::Committed]);
    assert_eq!(tenant.quarantined(), []);
    assert_eq!(commit(plugin.as_ref(), "third", 3).await.unwrap_err().kind, FaultKind::Trap);
    let again = commit(plugin.as_ref(), "third", 4).await.unwrap_err();
    assert!(again.kind == FaultKind::Quarantined && again.to_string().contains("tried in 60 s"), "{again}");
    assert_eq!(time.so_far().len(), 4, "who is refused does not wait");

    // An operator's word.
    assert!(tenant.lift_quarantine(plugin.digest()));
    assert_eq!(commit(plugin.as_ref(), "third", 4).await.unwrap(), [Outcome::Committed]);
    drop(watch);
}

#[tokio::test]
async fn h70_a_plugin_that_crashes_in_a_loop_holds_up_no_other_tenant_and_no_other_plugin() {
    let Scene { plugin, tenant, _dir, .. } = scene(|_| {});
    while commit(plugin.as_ref(), "panic", 1).await.unwrap_err().kind != FaultKind::Quarantined {}
    let same_tenant = hostile().bind(options(_dir.path(), &tenant)).unwrap();
    assert_eq!(commit(same_tenant.as_ref(), "third", 1).await.unwrap_err().kind, FaultKind::Quarantined);
    let other_tenant = scene(|_| {});
    assert_eq!(commit(other_tenant.plugin.as_ref(), "third", 1).await.unwrap(), [Outcome::Committed]);
    let mut options = BindOptions::new("other");
    options.tenant = tenant.clone();
    for name in ["staging", "output", "register"] {
        options.dirs.insert(name.to_owned(), _dir.path().join("files").join(name).into());
    }
    let asked: Vec<_> = crate::support::files().description().grants.iter().map(|grant| grant.name.clone()).collect();
    options.dirs.retain(|name, _| asked.contains(name));
    let files = crate::support::files().bind(options).unwrap();
    assert!(files.committer().await.is_ok(), "another plugin of the tenant");
    assert_eq!(tenant.quarantined().len(), 1);
}

#[tokio::test]
async fn what_the_plugin_answers_is_no_fault_however_often_it_says_no() {
    let Scene { plugin, tenant, time, _dir } = scene(|_| {});
    for _ in 0..20 {
        let fault = commit(plugin.as_ref(), "later", 1).await.unwrap_err();
        assert_eq!(fault.error().map(|error| error.kind), Some(ErrorKind::Retryable), "{fault}");
    }
    assert_eq!((time.so_far(), tenant.quarantined()), (vec![], vec![]));
}

#[tokio::test]
async fn h56_breaking_off_in_prepare_or_commit_is_a_failure_whatever_it_looks_like() {
    for word in ["panic", "abort", "exit", "exit-1", "unreachable"] {
        let Scene { plugin, _dir, .. } = scene(|_| {});
        let fault = commit(plugin.as_ref(), word, 1).await.unwrap_err();
        assert_eq!((fault.call, &fault.kind, fault.blame), (Call::Commit, &FaultKind::Trap, Blame::Plugin), "{fault}");
        assert_eq!(fault.tenant.as_deref(), Some("acme"));

        let ctx = context("out", 1, &format!(r#"{{"do":"{word}"}}"#));
        let mut writer = plugin.writer(Arc::new(Intents::default())).await.unwrap();
        writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
        writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap();
        writer.write(&ctx, rows("1\n")).await.unwrap();
        let fault = writer.prepare(&ctx).await.unwrap_err();
        assert_eq!((fault.call, &fault.kind), (Call::Prepare, &FaultKind::Trap), "{word}: {fault}");
        let gone = writer.prepare(&ctx).await.unwrap_err();
        assert_eq!(gone.kind, FaultKind::Host, "its instance is gone: {gone}");
    }
}

/// The host's own code, broken.
struct Breaks;

impl MetricSink for Breaks {
    fn sample(&self, _: MetricSample) {
        panic!("as the test wants it");
    }
}

#[tokio::test]
async fn h57_a_panic_of_the_host_under_a_plugin_ends_that_instance_alone() {
    let Scene { plugin, tenant, time, _dir } = scene(|options| options.metrics = Arc::new(Breaks));
    let call = context("out", 1, r#"{"do":"calls"}"#);
    let harmless = context("out", 1, r#"{"do":"nothing"}"#);
    let mut neighbour = plugin.committer().await.unwrap();
    for _ in 0..5 {
        let mut committer = plugin.committer().await.unwrap();
        let fault = committer.observe(&call).await.unwrap_err();
        assert_eq!((&fault.kind, fault.blame), (&FaultKind::Host, Blame::Host), "{fault}");
        assert_eq!(fault.tenant.as_deref(), Some("acme"));
        assert_eq!(committer.observe(&harmless).await.unwrap_err().kind, FaultKind::Host, "the Store is gone");
        assert_eq!(neighbour.observe(&harmless).await.unwrap().token, "harmless", "the process lives");
    }
    assert_eq!(time.so_far(), [100, 200, 400, 800]);
    // Who makes the host panic again and again is held back as well.
    assert_eq!(plugin.committer().await.err().map(|fault| fault.kind), Some(FaultKind::Quarantined));
    assert_eq!(tenant.quarantined().len(), 1);
}
