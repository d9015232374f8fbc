//! H37: no more than the quota gets into a directory, on whatever way.

use std::time::Duration;

use tidegate_protocol::plugin::Writer;
use tidegate_wasm::{Limits, Tenant, TenantLimits};

use super::{Desk, Hand, Options, bind};
use crate::support::{context, rows};

const KIB: u64 = 1 << 10;

async fn take(writer: &mut Hand, name: &str, bytes: usize) -> Result<(), String> {
    let Hand::Writer(writer) = writer else { panic!("a writer takes batches") };
    let ctx = context("out", 1, &format!(r#"{{"do":"{name}"}}"#));
    let batch = rows(&"x".repeat(bytes));
    let answer = writer.write(&ctx, batch).await;
    answer.map(|_| ()).map_err(|fault| fault.error().map_or(fault.to_string(), |error| error.code.clone()))
}

#[tokio::test]
async fn h37_every_way_to_write_counts() {
    let desk = Desk::quota(64 * KIB, 100);
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(
        writer.does("create a; stream a 0 40960; append a 8192; write a 49152 8192; stat a").await,
        "ok ok ok 8192 57344"
    );
    // 8 KiB are left.
    assert_eq!(
        writer.does("stream a 57344 8193; append a 8193; write a 57344 8193; size a 65537").await,
        ["quota"; 4].join(" ")
    );
    assert_eq!(take(&mut writer, "rows", 8193).await, Err("quota-exceeded".to_owned()));
    assert_eq!(writer.does("write a 0 57344; size a 65536; write a 65535 2").await, "57344 ok quota");
    assert_eq!(writer.does("size a 0; rm rows").await, "ok ok");
    assert_eq!(take(&mut writer, "more", 65536).await, Ok(()));
    assert_eq!(writer.does("rm more; rm a; create b; size b 65536").await, "ok ok ok ok");
}

#[tokio::test]
async fn h37_a_sparse_file_counts_by_its_length() {
    let desk = Desk::quota(1 << 30, 100);
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(
        writer.does("create a; size a 10737418240; write a 10737418240 1; stream a 10737418240 1").await,
        "ok quota quota quota"
    );
    assert_eq!(
        writer.does("write a 1073741823 1; create b; write b 0 1; size a 5; write b 0 1").await,
        "1 ok quota ok 1"
    );
    assert_eq!(
        writer.does("write a 18446744073709551615 1; size a 18446744073709551615").await,
        "file-too-large file-too-large"
    );
    assert_eq!(std::fs::metadata(desk.at("a")).unwrap().len(), 5);
}

#[tokio::test]
async fn h37_names_are_counted_files_folders_and_links() {
    let desk = Desk::quota(1 << 30, 50);
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(committer.does("many f 1000000; mkdir d; link f0 g").await, "50:quota quota quota");
    assert_eq!(
        committer.does("rm f1; mkdir d; rm f2; link f0 g; rm f3; create d/x; create y").await,
        "ok ok ok ok ok ok quota"
    );
    assert_eq!(committer.does("rename f4 f5; create y; rm g; rmdir d").await, "ok ok ok not-empty");
    assert_eq!(std::fs::read_dir(desk.at(".")).unwrap().count() + 1, 49);
}

#[tokio::test]
async fn h37_the_bytes_of_a_file_with_two_names_count_once_and_until_both_are_gone() {
    let desk = Desk::quota(64 * KIB, 100);
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(
        committer.does("create a; size a 40960; link a b; create c; size c 24576; rm a; append c 1").await,
        "ok ok ok ok ok ok quota"
    );
    assert_eq!(committer.does("rm b; close a; append c 40960; append c 1").await, "ok ok ok quota");
}

#[tokio::test]
async fn h37_what_is_removed_and_still_open_is_still_there() {
    let desk = Desk::quota(64 * KIB, 100);
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(
        writer.does("create a; size a 65536; rm a; create b; size b 1; append a 1").await,
        "ok ok ok ok quota quota"
    );
    assert_eq!(writer.does("look b; close a; size b 65536").await, "ok ok not-permitted");
    // `look` took the place of the handle that may write.
    assert_eq!(
        writer.does("open b; size b 65536; look b; rm b; create c; size c 1; close b; size c 1").await,
        "ok ok ok ok ok quota ok ok"
    );
}

#[tokio::test]
async fn h37_renaming_over_a_file_gives_its_bytes_back() {
    let desk = Desk::quota(64 * KIB, 3);
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(
        committer.does("create a; size a 40960; close a; create b; size b 20480; rename b a; append b 45057").await,
        "ok ok ok ok ok ok quota"
    );
    assert_eq!(committer.does("append b 45056; create c; create d; create e").await, "ok ok ok quota");
}

#[tokio::test]
async fn h37_all_instances_and_sinks_share_the_quota_of_a_directory() {
    let desk = Desk::quota(64 * KIB, 100);
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(writer.does("create a; size a 40960").await, "ok ok");
    let quota = Options { quota: Some((48 * KIB, 100)), ..Options::default() };
    let other = bind(desk.base.path(), quota, &Tenant::new("umbrella", TenantLimits::default()));
    let other = Desk { plugin: other, base: tempfile::tempdir().unwrap(), tenant: Tenant::default() };
    let mut stranger = Hand::committer(&other).await;
    assert_eq!(stranger.does("create b; size b 8193; size b 8192").await, "ok quota ok");
    assert_eq!(writer.does("append a 16385; append a 16384").await, "quota ok");
    assert_eq!(stranger.does("rm b; close b; rm a").await, "ok ok ok");
    assert_eq!(writer.does("create c; size c 8193; size c 8192").await, "ok quota ok", "its own handle keeps `a`");
    assert_eq!(writer.does("close a; size c 65536").await, "ok ok");
}

#[tokio::test]
async fn h37_a_directory_is_counted_anew_at_a_start_and_before_anything_is_refused() {
    let desk = Desk::quota(64 * KIB, 10);
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(writer.does("create a; size a 40960; close a").await, "ok ok ok");
    // A reader moves it away: nobody tells, and there is room.
    std::fs::rename(desk.at("a"), desk.base.path().join("a")).unwrap();
    assert_eq!(writer.does("create b; size b 65536; close b").await, "ok ok ok");
    drop(writer);
    let Desk { base, plugin, tenant } = desk;
    drop(plugin);
    // Somebody adds something while nothing runs.
    std::fs::write(base.path().join("output/c"), vec![7; 20 << 10]).unwrap();
    std::fs::remove_file(base.path().join("output/b")).unwrap();
    let quota = Options { quota: Some((64 * KIB, 10)), ..Options::default() };
    let plugin = bind(base.path(), quota, &tenant);
    let desk = Desk { base, plugin, tenant };
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(writer.does("create d; size d 45057; size d 45056").await, "ok quota ok");
}

#[tokio::test]
async fn h37_deep_folders_and_long_names_end() {
    let desk = Desk::new();
    let mut committer = Hand::committer(&desk).await;
    assert_eq!(committer.does("deep 100000").await, "64:name-too-long");
    let long = "x".repeat(256);
    assert_eq!(
        committer.does(&format!("mkdir {long}; create {long}; look {long}/x")).await,
        ["name-too-long"; 3].join(" ")
    );
    assert_eq!(committer.does(&format!("mkdir {}", "y".repeat(255))).await, "ok");
    let path = "z/".repeat(2500);
    assert_eq!(committer.does(&format!("look {path}z")).await, "name-too-long");
    // Moving a folder into another one makes none deeper either.
    assert_eq!(committer.does("mkdir top; rename d top/d").await, "ok cross-device");
}

/// Whoever flushes too often waits, and nothing fails; the waiting is time of the call.
#[tokio::test]
async fn flushes_beyond_the_rate_wait() {
    let limits = Limits { flushes: 1, call_time: Duration::from_secs(300), ..Limits::default() };
    let desk = Desk::with(Options { limits: limits.clone(), ..Options::default() });
    let mut writer = Hand::writer(&desk).await;
    assert_eq!(writer.does("create a; sync a 10").await, "ok ok");
    let began = std::time::Instant::now();
    assert_eq!(writer.does("sync a 3").await, "ok");
    // Ten were free; each further one waits for its second, less what has passed since.
    assert!(began.elapsed() > Duration::from_millis(100), "{:?}", began.elapsed());

    let hurried = Limits { call_time: Duration::from_secs(2), ..limits };
    let desk = Desk::with(Options { limits: hurried, ..Options::default() });
    let Hand::Writer(mut writer) = Hand::writer(&desk).await else { unreachable!() };
    let ctx = context("out", 1, r#"{"do":"create a; sync a 1000"}"#);
    let fault = Writer::begin(&mut *writer, &ctx, &crate::support::part(&ctx, 1, 0)).await.unwrap_err();
    assert_eq!(fault.kind, tidegate_protocol::plugin::FaultKind::Timeout, "{fault}");
}
