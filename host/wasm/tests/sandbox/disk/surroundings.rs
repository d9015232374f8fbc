//! What is not granted answers with nothing, and counts; clocks are coarse.

use std::time::Duration;

use tidegate_protocol::plugin::{CallFault, FaultKind, Position};
use tidegate_wasm::{BindOptions, Limits, SecretRef, Tenant, TenantLimits};

use crate::support::{context, hostile};

async fn ask(word: &str, limits: Limits, tenant: &Tenant) -> Result<Position, CallFault> {
    let dir = tempfile::tempdir().unwrap();
    let mut options = BindOptions::new("out");
    options.dirs.insert("output".to_owned(), dir.path().join("output").into());
    options.secrets.insert("token".to_owned(), SecretRef::Env("HOME".to_owned()));
    (options.limits, options.tenant) = (limits, tenant.clone());
    let plugin = hostile().bind(options).unwrap();
    plugin.committer().await?.observe(&context("out", 1, &format!(r#"{{"do":"{word}"}}"#))).await
}

async fn answer(word: &str, tenant: &Tenant) -> String {
    let limits = Limits { call_time: Duration::from_secs(300), ..Limits::default() };
    String::from_utf8(ask(word, limits, tenant).await.unwrap().token.to_vec()).unwrap()
}

fn tenant() -> Tenant {
    Tenant::new("acme", TenantLimits::default())
}

#[tokio::test]
async fn h31_h51_what_is_not_granted_is_empty_and_counted_for_its_tenant() {
    let (tenant, neighbour) = (tenant(), tenant());
    let answer = answer("ambient", &tenant).await;
    assert!(answer.starts_with("env=0 args=0 stdin=0 "), "{answer}");
    let denied = tenant.denied();
    for interface in ["wasi:cli/environment", "wasi:cli/stdin", "wasi:filesystem/types"] {
        assert!(denied.get(interface).is_some_and(|count| *count > 0), "{interface}: {denied:?}");
    }
    assert!(neighbour.denied().is_empty());
}

#[tokio::test]
async fn h51_clocks_move_by_milliseconds_and_begin_with_the_instance() {
    let answer = answer("time", &tenant()).await;
    let mut words = answer.splitn(3, ' ');
    assert_eq!((words.next(), words.next()), (Some("0"), Some("0")), "{answer}");
    let began: u64 = words.next().unwrap().parse().unwrap();
    let up = std::fs::read_to_string("/proc/uptime").unwrap();
    let up: f64 = up.split(' ').next().unwrap().parse().unwrap();
    // The host has been up for longer than this instance.
    assert!(Duration::from_nanos(began).as_secs_f64() < up, "{answer} of {up}");
}

#[tokio::test]
async fn h06_a_nap_of_a_hundred_years_ends_with_the_wall_clock() {
    let limits = Limits { call_time: Duration::from_secs(1), ..Limits::default() };
    assert_eq!(ask("century", limits, &tenant()).await.unwrap_err().kind, FaultKind::Timeout);
}

#[tokio::test]
async fn h07_polls_that_wait_for_nothing_are_host_calls() {
    let limits = Limits { host_calls: 300, call_time: Duration::from_secs(300), ..Limits::default() };
    assert_eq!(ask("tiny-naps", limits, &tenant()).await.unwrap_err().kind, FaultKind::Budget("host calls"));
}
