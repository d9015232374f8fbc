//! Budgets of instances, tenants and the host: what is spent, who pays, and what is refused at the door.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{CallFault, FaultKind, Plugin, WriterState};
use tidegate_wasm::{
    AdmitError, BindOptions, HostLimits, Limits, Runtime, RuntimeOptions, SecretRef, Tenant, TenantLimits, WasmError,
};

use crate::support::{Intents, Kept, context, files, hostile, hostile_bytes, part, rows, runtime};

struct Bound {
    plugin: Arc<dyn Plugin>,
    kept: Arc<Kept>,
    _dir: tempfile::TempDir,
}

fn options(dir: &tempfile::TempDir, kept: &Arc<Kept>, tenant: &Tenant, limits: Limits) -> BindOptions {
    let token = dir.path().join("token");
    std::fs::write(&token, "a-token").unwrap();
    let mut options = BindOptions::new("out");
    options.tenant = tenant.clone();
    options.dirs.insert("output".to_owned(), dir.path().join("output").into());
    options.secrets.insert("token".to_owned(), SecretRef::File(token));
    options.limits = limits;
    options.log = kept.clone();
    options.metrics = kept.clone();
    options
}

fn bind(tenant: &Tenant, limits: Limits) -> Bound {
    let (dir, kept) = (tempfile::tempdir().unwrap(), Arc::new(Kept::default()));
    Bound { plugin: hostile().bind(options(&dir, &kept, tenant, limits)).unwrap(), kept, _dir: dir }
}

fn tenant(limits: TenantLimits) -> Tenant {
    Tenant::new("acme", limits)
}

async fn ask(bound: &Bound, word: &str) -> Result<String, CallFault> {
    let mut committer = bound.plugin.committer().await?;
    let answer = committer.observe(&context("out", 1, &format!(r#"{{"do":"{word}"}}"#))).await?;
    Ok(String::from_utf8_lossy(&answer.token).into_owned())
}

async fn spent(bound: &Bound, word: &str) -> &'static str {
    let fault = ask(bound, word).await.unwrap_err();
    match &fault.kind {
        FaultKind::Budget(budget) => budget,
        other => panic!("{other:?}: {fault}"),
    }
}

/// Instances end on threads of their own.
fn wait_until(mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "it did not come to hold");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn h25_random_bytes_are_bounded_per_request_and_per_call() {
    let bound = bind(&Tenant::default(), Limits { random_bytes: 255, ..Limits::default() });
    assert_eq!(spent(&bound, "entropy").await, "random bytes");
    let bound = bind(&Tenant::default(), Limits { random_total: 100_000, ..Limits::default() });
    assert_eq!(spent(&bound, "entropy").await, "random bytes per call");
}

#[tokio::test]
async fn a_batch_is_handed_over_only_within_the_bound() {
    let bound = bind(&Tenant::default(), Limits { transfer_bytes: 1 << 20, ..Limits::default() });
    let ctx = context("out", 1, "{}");
    let mut writer = bound.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap();
    writer.write(&ctx, rows("small\n")).await.unwrap();
    let fault = writer.write(&ctx, rows(&"x".repeat((1 << 20) + 1))).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Budget("bytes handed to the plugin"), "{fault}");
    assert!(fault.message.contains("(`transfer`)"), "{fault}");
}

#[tokio::test]
async fn states_that_a_writer_is_opened_with_are_bounded_together() {
    let bound = bind(&Tenant::default(), Limits { transfer_bytes: 1 << 20, ..Limits::default() });
    let ctx = context("out", 1, "{}");
    let state = WriterState { range: KeyRange::ALL, version: 1, body: vec![0; 600 << 10].into() };
    let mut writer = bound.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, std::slice::from_ref(&state)).await.unwrap();
    let mut writer = bound.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    let fault = writer.open(&ctx, KeyRange::ALL, &[state.clone(), state]).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Budget("bytes handed to the plugin"), "{fault}");
    assert!(fault.message.contains("1.2 MiB where 1 MiB are allowed"), "{fault}");
}

#[tokio::test]
async fn a_writers_time_is_summed_up_from_one_begin_to_the_next() {
    let limits = Limits { checkpoint_cpu_time: Duration::from_millis(100), ..Limits::default() };
    let bound = bind(&Tenant::default(), limits);
    let ctx = context("out", 1, r#"{"do":"burn"}"#);
    let mut writer = bound.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    // No epoch comes to its bound, all of them together do.
    for epoch in 1..=30 {
        writer.begin(&ctx, &part(&ctx, epoch, 0)).await.unwrap();
        writer.write(&ctx, rows("a\n")).await.unwrap();
    }
    writer.begin(&ctx, &part(&ctx, 31, 0)).await.unwrap();
    let fault = loop {
        if let Err(fault) = writer.write(&ctx, rows("a\n")).await {
            break fault;
        }
    };
    assert_eq!(fault.kind, FaultKind::Budget("cpu time per checkpoint"), "{fault}");
}

#[tokio::test]
async fn messages_are_as_long_as_they_may_be() {
    let bound = bind(&Tenant::default(), Limits { message_bytes: 300, ..Limits::default() });
    let fault = ask(&bound, "long-error").await.unwrap_err();
    let length = fault.error().unwrap().message.len();
    assert!((250..330).contains(&length), "{length}");
    ask(&bound, "forge").await.unwrap();
    let lines = bound.kept.lines.lock().unwrap().clone();
    assert!(lines.iter().all(|line| line.message.len() <= 330));
    assert_eq!(lines.iter().map(|line| line.message.matches('x').count()).sum::<usize>(), 10_000);
}

#[tokio::test]
async fn metric_names_are_bounded_like_series() {
    let bound = bind(&Tenant::default(), Limits { metric_names: 2, ..Limits::default() });
    ask(&bound, "names").await.unwrap();
    let names: Vec<_> = bound.kept.samples.lock().unwrap().iter().map(|sample| sample.name.clone()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[tokio::test]
async fn h11_memory_of_all_instances_of_a_tenant_is_one_budget_and_comes_back() {
    let tenant = tenant(TenantLimits { memory_bytes: 48 << 20, ..TenantLimits::default() });
    let bound = bind(&tenant, Limits::default());
    let neighbour = bind(&Tenant::default(), Limits::default());
    let fault = ask(&bound, "hog").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Budget("memory of the tenant"), "{fault}");
    assert!(fault.message.contains("where 48 MiB are allowed"), "{fault}");
    assert_eq!(ask(&neighbour, "nothing").await.unwrap(), "harmless");
    let usage = tenant.usage();
    assert_eq!(usage.faults["memory of the tenant"], 1);
    assert!(usage.refused["memory"] >= 1 && usage.held["memory"].most <= 48 << 20, "{usage:?}");
    wait_until(|| tenant.held("memory") == 0 && tenant.held("instances") == 0);
    assert_eq!(ask(&bound, "nothing").await.unwrap(), "harmless");
}

#[tokio::test]
async fn h69_a_tenant_has_only_so_many_instances() {
    let tenant = tenant(TenantLimits { instances: 2, ..TenantLimits::default() });
    let bound = bind(&tenant, Limits::default());
    let (one, _other) = (bound.plugin.committer().await.unwrap(), bound.plugin.janitor().await.unwrap());
    let fault = bound.plugin.committer().await.err().unwrap();
    assert_eq!(fault.kind, FaultKind::Budget("instances of the tenant"), "{fault}");
    assert_eq!(fault.tenant.as_deref(), Some("acme"));
    assert!(bind(&Tenant::default(), Limits::default()).plugin.committer().await.is_ok());
    drop(one);
    wait_until(|| tenant.held("instances") == 1);
    assert!(bound.plugin.committer().await.is_ok());
}

#[tokio::test]
async fn h26_sinks_of_a_tenant_share_its_log() {
    let tenant = tenant(TenantLimits { log_lines: 80, ..TenantLimits::default() });
    let (one, other) = (Limits { log_lines: 50, ..Limits::default() }, Limits { log_lines: 50, ..Limits::default() });
    let (one, other) = (bind(&tenant, one), bind(&tenant, other));
    ask(&one, "flood").await.unwrap();
    ask(&other, "flood").await.unwrap();
    let lines = |bound: &Bound| bound.kept.lines.lock().unwrap().clone();
    assert_eq!((lines(&one).len(), lines(&other).len()), (51, 31));
    assert!(lines(&one)[50].message.contains("of this sink's plugin"), "{:?}", lines(&one)[50]);
    assert!(lines(&other)[30].message.contains("of this tenant's plugins"), "{:?}", lines(&other)[30]);
    assert_eq!(tenant.usage().spent["log lines"], 80);
}

#[tokio::test]
async fn h01_a_loop_goes_at_its_tenants_pace_and_no_other_tenant_waits() {
    let slow = tenant(TenantLimits { cpu_millis: 100, ..TenantLimits::default() });
    let fast = Tenant::new("fast", TenantLimits { cpu_millis: 500, ..TenantLimits::default() });
    let limits =
        Limits { cpu_time: Duration::from_millis(300), call_time: Duration::from_secs(60), ..Limits::default() };
    let (looping, neighbour) = (bind(&slow, limits), bind(&fast, Limits::default()));
    let begun = Instant::now();
    let (looped, answered) = tokio::join!(spent(&looping, "loop"), ask(&neighbour, "nothing"));
    let took = begun.elapsed();
    assert_eq!((looped, answered.unwrap().as_str()), ("cpu time", "harmless"));
    let usage = slow.usage();
    assert!(usage.cpu_time >= Duration::from_millis(300), "{usage:?}");
    // The share, what was saved up, and the last look at the clock, which a busy machine may delay.
    assert!(usage.cpu_time <= took / 10 + Duration::from_millis(10 + 150), "{took:?} {usage:?}");
    assert_eq!(fast.usage().waited, Duration::ZERO);
}

#[tokio::test]
async fn waiting_for_its_share_is_time_of_the_call() {
    let slow = tenant(TenantLimits { cpu_millis: 1, ..TenantLimits::default() });
    let limits = Limits { call_time: Duration::from_secs(2), ..Limits::default() };
    let fault = ask(&bind(&slow, limits), "loop").await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout, "{fault}");
}

#[test]
fn h12_who_begins_with_more_than_it_may_have_is_refused_with_both_figures() {
    let small = Limits { memory_bytes: 64 << 10, ..Limits::default() };
    let bytes = tidegate_wasm::builtin::component("files").unwrap();
    let error = runtime().admit_within("builtin:files", bytes, &Tenant::default(), &small).err().unwrap();
    assert!(matches!(error, AdmitError::Budget { budget: "memory", .. }), "{error}");
    let begins = files().footprint().memory_bytes;
    assert!(begins > 64 << 10 && error.to_string().contains("and 64 KiB are allowed"), "{begins}: {error}");

    let (dir, kept) = (tempfile::tempdir().unwrap(), Arc::new(Kept::default()));
    let refused = hostile().bind(options(&dir, &kept, &Tenant::default(), small)).err().unwrap();
    assert!(matches!(refused, WasmError::Budget { .. }), "{refused}");
}

#[test]
fn who_says_that_it_needs_more_than_it_may_have_is_refused_with_both_figures() {
    let few = Limits { connections: 1, ..Limits::default() };
    let error = runtime().admit_within("hostile.wasm", hostile_bytes(), &Tenant::default(), &few).err().unwrap();
    assert!(matches!(error, AdmitError::Budget { budget: "connections", .. }), "{error}");
    assert!(error.to_string().contains("at least 2, and 1 are allowed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn h04_h69_stack_and_instances_are_the_hosts() {
    let host = HostLimits { instances: 1, stack_bytes: 128 << 10 };
    let own = Runtime::new(RuntimeOptions { host, ..RuntimeOptions::default() }).unwrap();
    let admitted = own.admit("hostile.wasm", hostile_bytes()).unwrap();
    let (dir, kept) = (tempfile::tempdir().unwrap(), Arc::new(Kept::default()));
    let plugin = admitted.bind(options(&dir, &kept, &Tenant::default(), Limits::default())).unwrap();
    let mut committer = loop {
        // The instance that described it ends on a thread of its own.
        match plugin.committer().await {
            Ok(committer) => break committer,
            Err(fault) => assert_eq!(fault.kind, FaultKind::Budget("instances"), "{fault}"),
        }
    };
    let second = plugin.committer().await.err().unwrap();
    assert_eq!(second.kind, FaultKind::Budget("instances"), "{second}");
    let fault = committer.observe(&context("out", 1, r#"{"do":"recurse"}"#)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Budget("stack"), "{fault}");
}
