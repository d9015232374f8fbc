//! Plugins in a child process: what happens when it dies, and what it does not have.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_protocol::ids::{KeyRange, PartId};
use tidegate_protocol::plugin::{
    Batch, Blame, BoxFuture, CallFault, Encoding, External, FaultKind, IntentLog, Outcome, Plugin, PluginError,
};
use tidegate_wasm::{
    Admitted, BindOptions, Isolation, Lease, Runtime, RuntimeOptions, SecretRef, Tenant, TenantLimits, Worker, builtin,
};

use crate::support::{Intents, context, files, hostile, observe, part, rows, runtime};

const PATIENCE: Duration = Duration::from_secs(60);

/// A tenant of the test's own, and so a child of its own.
struct Alone {
    tenant: Tenant,
    plugin: Arc<dyn Plugin>,
    dir: tempfile::TempDir,
}

fn alone(name: &str, admitted: Admitted) -> Alone {
    let tenant = Tenant::new(name, TenantLimits::default());
    let dir = tempfile::tempdir().unwrap();
    let mut options =
        BindOptions { isolation: Some(Isolation::Process), tenant: tenant.clone(), ..BindOptions::new("out") };
    options.dirs.insert("output".to_owned(), dir.path().join("output").into());
    if admitted.description().grants.iter().any(|grant| grant.kind == "secret") {
        let token = dir.path().join("token");
        fs::write(&token, CANARY).unwrap();
        options.secrets.insert("token".to_owned(), SecretRef::File(token));
    }
    Alone { plugin: admitted.bind(options).unwrap(), tenant, dir }
}

const CANARY: &str = "canary-93ab-in-no-memory";

impl Alone {
    fn child(&self) -> Pid {
        let id = runtime().child_id(&self.tenant).expect("it has a child");
        Pid::from_raw(i32::try_from(id).unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.child(), signal).unwrap();
    }

    /// Starts a call that the child cannot finish, and kills the child while it is under way.
    async fn killed<T>(&self, call: impl Future<Output = Result<T, CallFault>>) -> CallFault {
        self.signal(Signal::STOP);
        let mut call = std::pin::pin!(call);
        // Polled once, it is on its way.
        let waiting = std::future::poll_fn(|cx| std::task::Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
        assert!(waiting, "the child cannot have answered");
        self.signal(Signal::KILL);
        let Err(fault) = call.await else { panic!("a dead child answered") };
        assert_eq!((fault.kind.clone(), fault.blame), (FaultKind::Host, Blame::Plugin), "{fault}");
        assert_eq!(fault.tenant.as_deref(), Some(self.tenant.name()));
        assert!(fault.message.contains("died") && fault.message.contains("SIGKILL"), "{fault}");
        fault
    }
}

fn published(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_file()).count()
}

#[tokio::test]
async fn h70_a_child_killed_in_any_call_is_a_fault_of_its_tenant_only() {
    let (victim, neighbour) = (alone("h70", files()), alone("h70-neighbour", files()));
    let ctx = context("out", 1, "{}");
    let mut others = neighbour.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    others.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    others.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap();
    let others_child = neighbour.child();

    // While rows are handed over: more than the socket holds.
    let mut writer = victim.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap();
    victim.killed(writer.write(&ctx, Batch::new(vec![b'\n'; 64 << 20].into(), 64 << 20, Encoding::JsonLines))).await;
    let dead = writer.prepare(&ctx).await.unwrap_err();
    assert!(dead.message.contains("ended with an earlier call"), "{dead}");
    drop(writer);

    // In commit. A fresh child finds out, and finishes.
    let mut writer = victim.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    writer.begin(&ctx, &part(&ctx, 2, 0)).await.unwrap();
    writer.write(&ctx, rows("{}\n")).await.unwrap();
    let committables = [writer.prepare(&ctx).await.unwrap().committable];
    let mut committer = victim.plugin.committer().await.unwrap();
    victim.killed(committer.commit(&ctx, &[], &committables)).await;
    let mut committer = victim.plugin.committer().await.unwrap();
    assert_eq!(committer.reconcile(&ctx, &committables).await.unwrap(), [Outcome::NotCommitted]);
    assert_eq!(committer.commit(&ctx, &[], &committables).await.unwrap(), [Outcome::Committed]);
    assert_eq!(published(&victim.dir.path().join("output")), 1);

    others.write(&ctx, rows("{}\n")).await.unwrap();
    assert_eq!(others.prepare(&ctx).await.unwrap().rows, 1);
    assert_eq!(neighbour.child(), others_child, "the neighbour's child was not touched");
}

/// Kills the child when the plugin announces something.
struct Killing(Pid);

impl IntentLog for Killing {
    fn intent(&self, _: Option<PartId>, _: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        kill_process(self.0, Signal::KILL).unwrap();
        Box::pin(async { Ok(1) })
    }

    fn bound(&self, _: u64, _: String) -> BoxFuture<'_, Result<(), PluginError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn h57_a_child_that_dies_within_a_host_call_is_a_fault_and_a_fresh_one_works() {
    let victim = alone("h57", hostile());
    let ctx = context("out", 1, "{}");
    victim.plugin.committer().await.unwrap().observe(&ctx).await.unwrap();
    let mut writer = victim.plugin.writer(Arc::new(Killing(victim.child()))).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    let fault = writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Host, "{fault}");
    victim.plugin.committer().await.unwrap().observe(&ctx).await.unwrap();
}

#[tokio::test]
async fn h09_a_plugin_whose_child_dies_again_and_again_is_quarantined() {
    let victim = alone("crash-loop", files());
    let ctx = context("out", 1, "{}");
    let fault = loop {
        let mut committer = match victim.plugin.committer().await {
            Ok(committer) => committer,
            Err(fault) => break fault,
        };
        victim.killed(committer.observe(&ctx)).await;
    };
    assert_eq!(fault.kind, FaultKind::Quarantined, "{fault}");
    assert!(fault.message.contains("SIGKILL"), "it says what happened: {fault}");
}

#[tokio::test]
async fn a_batch_larger_than_any_buffer_passes() {
    const BYTES: usize = 96 << 20;
    let big = alone("big", files());
    let ctx = context("out", 1, "{}");
    let mut writer = big.plugin.writer(Arc::new(Intents::default())).await.unwrap();
    writer.open(&ctx, KeyRange::ALL, &[]).await.unwrap();
    writer.begin(&ctx, &part(&ctx, 1, 0)).await.unwrap();
    let bytes: Vec<u8> = b"{}\n".iter().copied().cycle().take(BYTES).collect();
    writer.write(&ctx, Batch::new(bytes.into(), (BYTES / 3) as u64, Encoding::JsonLines)).await.unwrap();
    let committables = [writer.prepare(&ctx).await.unwrap().committable];
    let mut committer = big.plugin.committer().await.unwrap();
    assert_eq!(committer.commit(&ctx, &[], &committables).await.unwrap(), [Outcome::Committed]);
    let files: Vec<_> = fs::read_dir(big.dir.path().join("output")).unwrap().map(|entry| entry.unwrap()).collect();
    let sizes: u64 =
        files.iter().map(|file| file.metadata().unwrap()).filter(fs::Metadata::is_file).map(|m| m.len()).sum();
    assert_eq!(sizes, BYTES as u64);
}

#[tokio::test]
async fn many_instances_share_one_child() {
    let many = alone("many", hostile());
    let count = context("out", 1, r#"{"do":"count"}"#);
    let mut instances = Vec::new();
    for _ in 0..50 {
        instances.push(many.plugin.committer().await.unwrap());
    }
    let child = many.child();
    for asked in ["0", "1"] {
        for instance in &mut instances {
            assert_eq!(instance.observe(&count).await.unwrap().token, asked);
        }
    }
    assert_eq!(many.child(), child);
}

fn memory_holds(child: Pid, needle: &[u8]) -> std::io::Result<bool> {
    let proc = format!("/proc/{}", child.as_raw_nonzero());
    let memory = fs::File::open(format!("{proc}/mem"))?;
    let maps = fs::read_to_string(format!("{proc}/maps"))?;
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw"))) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        // What was never touched, or is gone by now, holds nothing.
        if memory.read_exact_at(&mut bytes, from).is_ok() && memchr::memmem::find(&bytes, needle).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[tokio::test]
async fn a_child_has_no_environment_and_a_secret_only_once_it_is_revealed() {
    let keeper = alone("keeper", hostile());
    let ctx = context("out", 1, r#"{"do":"nothing"}"#);
    let mut committer = keeper.plugin.committer().await.unwrap();
    committer.observe(&ctx).await.unwrap();
    let child = keeper.child();
    match fs::read(format!("/proc/{}/environ", child.as_raw_nonzero())) {
        Ok(environment) => assert_eq!(String::from_utf8_lossy(&environment), "MALLOC_ARENA_MAX=2\0"),
        Err(error) => eprintln!("left out: the child's environment cannot be read: {error}"),
    }
    match memory_holds(child, CANARY.as_bytes()) {
        Ok(held) => assert!(!held, "nobody asked for it"),
        Err(error) => return eprintln!("left out: the child's memory cannot be read: {error}"),
    }
    let fault = committer.observe(&context("out", 1, r#"{"do":"secret"}"#)).await.unwrap_err();
    assert!(!fault.to_string().contains(CANARY), "{fault}");
    assert!(memory_holds(child, CANARY.as_bytes()).unwrap(), "this test can see it");
}

#[test]
fn a_process_that_starts_no_workers_cannot_isolate() {
    let admitted = Runtime::new(RuntimeOptions::default()).unwrap();
    let admitted = admitted.admit("files", builtin::component("files").unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut options = BindOptions { isolation: Some(Isolation::Process), ..BindOptions::new("out") };
    options.dirs.insert("output".to_owned(), dir.path().join("output").into());
    let error = admitted.bind(options).err().unwrap().to_string();
    assert!(error.contains("tenant `default`") && error.contains("Worker::this_program()"), "{error}");
}

#[test]
fn a_program_that_is_no_worker_is_refused_at_the_start() {
    let options = RuntimeOptions { worker: Worker::Program("/bin/false".into()), ..RuntimeOptions::default() };
    let error = Runtime::new(options).err().unwrap().to_string();
    assert!(error.contains("child process"), "{error}");
}

/// Whether a process runs; one that was killed and not waited for by whoever adopted it does not.
fn runs(process: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with(['Z', 'X']))
}

#[tokio::test]
async fn a_child_whose_parent_is_killed_in_commit_is_gone_before_the_next_run_and_publishes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_tidegate-test-worker");
    let mut parent = Command::new(program).arg("commit").arg(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(parent.stdout.take().unwrap()).lines();
    let child = said.next().unwrap().unwrap();
    let child = child.strip_prefix("child: ").unwrap();
    assert_eq!(said.next().unwrap().unwrap(), "committing: ()");
    assert!(runs(child));
    let path = dir.path().join("lease");
    assert!(Lease::take(&path, Duration::ZERO).is_err(), "it is held");

    parent.kill().unwrap();
    parent.wait().unwrap();
    Lease::take(&path, PATIENCE).unwrap();
    assert!(!runs(child), "the lease is free, so the child is gone");
    assert_eq!(published(&dir.path().join("output")), 0);

    // What was staged is there for the next run.
    let mut options = BindOptions::new("out");
    options.dirs.insert("output".to_owned(), dir.path().join("output").into());
    let plugin = files().bind(options).unwrap();
    assert_eq!(observe(&*plugin, &context("out", 1, "{}")).await.last, vec![]);
}

#[tokio::test]
async fn a_lease_is_given_up_when_its_sink_is_gone_although_the_child_lives_on() {
    let stays = alone("leased", files());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lease");
    let mut options = BindOptions {
        isolation: Some(Isolation::Process),
        tenant: stays.tenant.clone(),
        lease: Some(Lease::take(&path, Duration::ZERO).unwrap()),
        ..BindOptions::new("goes")
    };
    options.dirs.insert("output".to_owned(), dir.path().join("output").into());
    let goes = files().bind(options).unwrap();
    let ctx = context("goes", 1, "{}");
    let mut committer = goes.committer().await.unwrap();
    committer.observe(&ctx).await.unwrap();
    let mut other = stays.plugin.committer().await.unwrap();
    drop(goes);
    assert!(Lease::take(&path, Duration::ZERO).is_err(), "an instance is left");
    drop(committer);
    Lease::take(&path, PATIENCE).unwrap();
    other.observe(&context("out", 1, "{}")).await.unwrap();
}
