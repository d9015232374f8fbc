//! A plugin that misbehaves: it is stopped, the fault says why, and a fresh instance works.

use std::sync::Arc;
use std::time::Duration;

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{Blame, Call, CallFault, ErrorKind, FaultKind, Outcome, Plugin, Position};
use tidegate_wasm::{BindOptions, Isolation, Limits, SecretRef};

use crate::support::{Intents, Kept, both_ways, context, hostile, part, rows};

const CANARY: &str = "canary-7c1f-do-not-show";

struct Bound {
    plugin: Arc<dyn Plugin>,
    kept: Arc<Kept>,
    dir: tempfile::TempDir,
}

fn bind(isolation: Isolation, limits: Limits) -> Bound {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, format!("{CANARY}\n")).unwrap();
    let kept = Arc::new(Kept::default());
    let mut options = BindOptions::new("out");
    options.dirs.insert("output".to_owned(), dir.path().join("output").into());
    options.secrets.insert("token".to_owned(), SecretRef::File(token));
    options.limits = limits;
    options.isolation = Some(isolation);
    options.log = kept.clone();
    options.metrics = kept.clone();
    Bound { plugin: hostile().bind(options).unwrap(), kept, dir }
}

/// Generous, so that a busy machine changes no outcome.
fn limits() -> Limits {
    Limits { call_time: Duration::from_secs(60), cpu_time: Duration::from_secs(30), ..Limits::default() }
}

async fn ask(bound: &Bound, word: &str) -> Result<Position, CallFault> {
    let mut committer = bound.plugin.committer().await?;
    committer.observe(&context("out", 1, &format!(r#"{{"do":"{word}"}}"#))).await
}

async fn answer(bound: &Bound, word: &str) -> String {
    String::from_utf8(ask(bound, word).await.unwrap().token.to_vec()).unwrap()
}

/// It has a directory, so a long wait may be that directory's.
fn blame_of(word: &str) -> Blame {
    if word == "nap" { Blame::Destination } else { Blame::Plugin }
}

/// Asks, checks that the instance is gone, and that a fresh one works.
async fn fault(bound: &Bound, word: &str) -> CallFault {
    let mut committer = bound.plugin.committer().await.unwrap();
    let fault = committer.observe(&context("out", 1, &format!(r#"{{"do":"{word}"}}"#))).await.unwrap_err();
    assert_eq!((fault.call, &*fault.plugin), (Call::Observe, "hostile 1.0.0"), "{fault}");
    assert_eq!((fault.tenant.as_deref(), fault.blame), (Some("default"), blame_of(word)), "{fault}");
    if let FaultKind::Budget(budget) = fault.kind {
        let figure = fault.message.contains(|c: char| c.is_ascii_digit());
        assert!(figure && fault.to_string().contains(&format!("budget of {budget}: ")), "how much of what: {fault}");
    }
    let again = committer.observe(&context("out", 1, r#"{"do":"nothing"}"#)).await.unwrap_err();
    assert_eq!(again.kind, FaultKind::Host, "a dead instance answers nothing: {again}");
    assert_eq!(answer(bound, "nothing").await, "harmless");
    fault
}

both_ways!(h01_an_endless_loop_spends_its_cpu_time);

async fn h01_an_endless_loop_spends_its_cpu_time(isolation: Isolation) {
    let bound = bind(isolation, Limits { cpu_time: Duration::from_millis(500), ..limits() });
    assert_eq!(fault(&bound, "loop").await.kind, FaultKind::Budget("cpu time"));
}

both_ways!(h01_an_endless_loop_also_ends_with_the_wall_clock);

async fn h01_an_endless_loop_also_ends_with_the_wall_clock(isolation: Isolation) {
    let bound = bind(isolation, Limits { call_time: Duration::from_secs(2), ..limits() });
    assert_eq!(fault(&bound, "loop").await.kind, FaultKind::Timeout);
}

both_ways!(waiting_in_the_host_spends_no_cpu_time);

async fn waiting_in_the_host_spends_no_cpu_time(isolation: Isolation) {
    let bound = bind(isolation, Limits { cpu_time: Duration::from_millis(300), ..limits() });
    assert_eq!(answer(&bound, "naps").await, "rested");
}

both_ways!(h06_a_nap_in_the_host_ends_with_the_wall_clock);

async fn h06_a_nap_in_the_host_ends_with_the_wall_clock(isolation: Isolation) {
    let bound = bind(isolation, Limits { call_time: Duration::from_secs(2), ..limits() });
    assert_eq!(fault(&bound, "nap").await.kind, FaultKind::Timeout);
}

both_ways!(h04_deep_recursion_spends_the_stack);

async fn h04_deep_recursion_spends_the_stack(isolation: Isolation) {
    assert_eq!(fault(&bind(isolation, limits()), "recurse").await.kind, FaultKind::Budget("stack"));
}

both_ways!(h08_host_calls_are_counted_ours_and_wasis);

async fn h08_host_calls_are_counted_ours_and_wasis(isolation: Isolation) {
    for word in ["calls", "clocks"] {
        let bound = bind(isolation, Limits { host_calls: 1000, ..limits() });
        assert_eq!(fault(&bound, word).await.kind, FaultKind::Budget("host calls"), "{word}");
    }
}

both_ways!(h11_a_memory_hog_spends_its_memory);

async fn h11_a_memory_hog_spends_its_memory(isolation: Isolation) {
    let bound = bind(isolation, Limits { memory_bytes: 32 << 20, ..limits() });
    assert_eq!(fault(&bound, "hog").await.kind, FaultKind::Budget("memory"));
}

both_ways!(h14_a_huge_answer_is_refused_before_it_is_copied);

async fn h14_a_huge_answer_is_refused_before_it_is_copied(isolation: Isolation) {
    assert_eq!(
        fault(&bind(isolation, limits()), "big-answer").await.kind,
        FaultKind::Budget("bytes handed to the host")
    );
}

both_ways!(h21_handles_that_are_never_dropped_run_out);

async fn h21_handles_that_are_never_dropped_run_out(isolation: Isolation) {
    let bound = bind(isolation, Limits { handles: 100, ..limits() });
    let fault = fault(&bound, "handles").await;
    assert_eq!(fault.kind, FaultKind::Budget("handles"), "{fault}");
    assert!(fault.message.contains("open_at < "), "it says where: {fault}");
}

both_ways!(h56_panic_and_exit_are_traps_never_success);

async fn h56_panic_and_exit_are_traps_never_success(isolation: Isolation) {
    let bound = bind(isolation, limits());
    let panicked = fault(&bound, "panic").await;
    assert_eq!(panicked.kind, FaultKind::Trap);
    let lines = bound.kept.lines.lock().unwrap().clone();
    assert!(lines.iter().any(|line| line.message.contains("nobody expects this")), "{lines:?}");
    let exited = fault(&bound, "exit").await;
    assert!(exited.kind == FaultKind::Trap && exited.message.contains("exit"), "{exited}");
}

both_ways!(h26_output_becomes_bounded_lines);

async fn h26_output_becomes_bounded_lines(isolation: Isolation) {
    let bound = bind(isolation, Limits { log_lines: 50, ..limits() });
    assert_eq!(answer(&bound, "flood").await, "flooded");
    let lines = bound.kept.lines.lock().unwrap().clone();
    assert_eq!(lines.len(), 51);
    assert!(lines[50].message.contains("log budget spent"), "{:?}", lines[50]);
}

both_ways!(h26_output_cannot_forge_lines_or_move_cursors);

async fn h26_output_cannot_forge_lines_or_move_cursors(isolation: Isolation) {
    let bound = bind(isolation, limits());
    assert_eq!(answer(&bound, "forge").await, "forged");
    let lines = bound.kept.lines.lock().unwrap().clone();
    assert_eq!(lines[0].message, "one\\u{1b}[2J\\u{202e}two");
    assert_eq!(lines[1].message, "three");
    assert!(lines.iter().all(|line| line.message.len() <= 4096 && !line.message.contains(['\n', '\x1b'])));
    assert_eq!(lines.iter().map(|line| line.message.matches('x').count()).sum::<usize>(), 10_000);
}

both_ways!(h51_nothing_of_the_host_is_there);

async fn h51_nothing_of_the_host_is_there(isolation: Isolation) {
    let answer = answer(&bind(isolation, limits()), "ambient").await;
    assert!(answer.starts_with("env=0 args=0 stdin=0 "), "{answer}");
    assert!(answer.ends_with("dns=true file=true up=true"), "{answer}");
}

both_ways!(h51_random_numbers_and_memory_are_an_instances_own);

async fn h51_random_numbers_and_memory_are_an_instances_own(isolation: Isolation) {
    let bound = bind(isolation, limits());
    assert_ne!(answer(&bound, "random").await, answer(&bound, "random").await);
    let mut one = bound.plugin.committer().await.unwrap();
    let mut other = bound.plugin.committer().await.unwrap();
    let count = context("out", 1, r#"{"do":"count"}"#);
    assert_eq!(one.observe(&count).await.unwrap().token, "0");
    assert_eq!(one.observe(&count).await.unwrap().token, "1");
    assert_eq!(other.observe(&count).await.unwrap().token, "0");
}

both_ways!(what_was_not_granted_is_denied);

async fn what_was_not_granted_is_denied(isolation: Isolation) {
    assert_eq!(answer(&bind(isolation, limits()), "ungranted").await, "Some(\"Denied\") true");
}

both_ways!(secrets_are_in_no_log_metric_or_message);

async fn secrets_are_in_no_log_metric_or_message(isolation: Isolation) {
    let bound = bind(isolation, limits());
    let fault = ask(&bound, "secret").await.unwrap_err();
    assert_eq!(fault.error().map(|e| e.kind), Some(ErrorKind::Permanent));
    let lines = bound.kept.lines.lock().unwrap().clone();
    let samples = bound.kept.samples.lock().unwrap().clone();
    assert_eq!((lines.len(), samples.len()), (2, 1));
    let all = format!("{fault} {fault:?} {lines:?} {samples:?}");
    assert!(!all.contains(CANARY), "{all}");
    assert!(all.contains("<secret token>"), "{all}");
    assert!(!all.contains(bound.dir.path().to_str().unwrap()), "{all}");
}

both_ways!(h54_long_and_strange_messages_are_cut_and_escaped);

async fn h54_long_and_strange_messages_are_cut_and_escaped(isolation: Isolation) {
    let fault = ask(&bind(isolation, limits()), "long-error").await.unwrap_err();
    let error = fault.error().unwrap();
    assert_eq!(error.code, "code\\u{a}");
    assert!(error.message.starts_with("line\\u{a}break y") && error.message.len() < 4200, "{}", error.message.len());
}

/// How `prepare` ends.
async fn prepare_fault(isolation: Isolation, word: &str) -> CallFault {
    let bound = bind(isolation, limits());
    let ctx = context("out", 1, &format!(r#"{{"do":"{word}"}}"#));
    let mut writer = bound.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap();
    writer.prepare(&ctx).await.unwrap_err()
}

both_ways!(a_committable_with_a_secret_is_malformed);

async fn a_committable_with_a_secret_is_malformed(isolation: Isolation) {
    let fault = prepare_fault(isolation, "secret-committable").await;
    assert_eq!(fault.kind, FaultKind::Malformed, "{fault}");
    assert!(!fault.to_string().contains(CANARY));
}

both_ways!(what_is_stored_with_every_checkpoint_has_a_bound);

async fn what_is_stored_with_every_checkpoint_has_a_bound(isolation: Isolation) {
    for (word, budget) in [("huge-committable", "bytes of a committable"), ("huge-state", "bytes of a writer state")] {
        let fault = prepare_fault(isolation, word).await;
        assert_eq!(fault.kind, FaultKind::Budget(budget), "{fault}");
        assert!(fault.message.contains("2 MiB where 1 MiB are allowed"), "{fault}");
    }
}

both_ways!(announced_resources_carry_the_part);

async fn announced_resources_carry_the_part(isolation: Isolation) {
    let bound = bind(isolation, limits());
    let ctx = context("out", 1, "{}");
    let intents = Arc::new(Intents::default());
    let mut writer = bound.plugin.writer(intents.clone()).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    let part = part(&ctx, 4, 2);
    writer.begin(&ctx, &part).await.unwrap();
    assert_eq!(*intents.0.lock().unwrap(), [format!("{} u", part.short), "1 is u-1".to_owned()]);
    let rejects = writer.write(&ctx, rows("one\ntwo\n")).await.unwrap();
    assert_eq!((rejects[0].row, rejects[0].message.as_str()), (2, "one\\u{a}two\\u{a}"));
    assert_eq!(writer.prepare(&ctx).await.unwrap().committable.part, part);
}

both_ways!(outcomes_are_passed_on_as_they_are_with_a_bounded_pause);

async fn outcomes_are_passed_on_as_they_are_with_a_bounded_pause(isolation: Isolation) {
    let bound = bind(isolation, limits());
    let outcomes = bound.plugin.committer().await.unwrap().commit(&context("out", 1, "{}"), &[], &[]).await.unwrap();
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Retry(Some(86_400_000)), Outcome::Never]);
}

both_ways!(a_call_whose_future_is_dropped_takes_its_instance_with_it);

async fn a_call_whose_future_is_dropped_takes_its_instance_with_it(isolation: Isolation) {
    let bound = bind(isolation, limits());
    let mut committer = bound.plugin.committer().await.unwrap();
    for word in ["loop", "nap"] {
        let ctx = context("out", 1, &format!(r#"{{"do":"{word}"}}"#));
        let call = committer.observe(&ctx);
        assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
        let dead = committer.observe(&context("out", 1, "{}")).await.unwrap_err();
        assert_eq!(dead.kind, FaultKind::Host, "{dead}");
        // Comes back only after the thread of the dropped call has ended.
        committer = bound.plugin.committer().await.unwrap();
    }
    committer.observe(&context("out", 1, "{}")).await.unwrap();
}

#[test]
fn calls_need_no_runtime_of_the_callers() {
    // The simplest executor there is.
    let bound = bind(Isolation::Shared, limits());
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    let mut future = Box::pin(answer(&bound, "nothing"));
    let answer = loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(answer) => break answer,
            std::task::Poll::Pending => std::thread::yield_now(),
        }
    };
    assert_eq!(answer, "harmless");
}
