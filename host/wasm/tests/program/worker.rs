//! The program that tests of workers start. As a worker it is like any other; else its first argument says what it does,
//! and it prints what it finds, one `name: value` a line.

#![allow(clippy::print_stdout, reason = "what it prints is what tests read")]

use std::fs;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tidegate_protocol::ids::{Epoch, KeyRange, Nonce, PartId, PipelineId, RunId, SinkHash, SinkId};
use tidegate_protocol::plugin::{Batch, BoxFuture, CallContext, Encoding, External, IntentLog, PluginError};
use tidegate_wasm::confine::{self, Confinement};
use tidegate_wasm::{
    BindOptions, CompileLimits, ComponentCaps, ConfinementPolicy, Isolation, Lease, Runtime, RuntimeOptions, Tenant,
    Worker, builtin, worker,
};

mod processes;

fn main() {
    worker::run_if_asked();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match *arguments.as_slice() {
        ["confined", folder, port, socket] => confined(Path::new(folder), port.parse().expect("a port"), socket),
        ["orphaned"] => say("parent", confine::die_with_parent(1)),
        ["beside", file] => beside(Path::new(file)),
        ["admit", file, policy] => admit(Path::new(file), policy),
        ["commit", folder] => commit(Path::new(folder)),
        _ => std::process::exit(2),
    }
}

fn say(name: &str, value: impl std::fmt::Debug) {
    println!("{name}: {value:?}");
}

fn tell<T>(name: &str, result: io::Result<T>) {
    say(name, result.map(drop).map_err(|error| error.kind()));
}

/// Tries what a confined process must not be able to do.
fn confined(folder: &Path, port: u16, socket: &str) {
    const MIB: u64 = 1 << 20;
    // SAFETY: nothing was opened yet.
    tell("close", unsafe { confine::close_inherited() });
    let open = (3..100).filter(|fd| {
        // SAFETY: asking whether it is open borrows it for no longer than the question.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
        rustix::io::fcntl_getfd(fd).is_ok()
    });
    say("inherited", open.count());
    let confinement = Confinement {
        address_space: Some(512 * MIB),
        cpu_seconds: Some(60),
        file_bytes: Some(1000),
        threads: Some(2),
        read: vec![folder.join("read")],
        write: vec![folder.join("write")],
        ..Confinement::default()
    };
    let gaps = confinement.apply();
    say("gaps", gaps.iter().map(|gap| gap.barrier.as_str()).collect::<Vec<_>>());
    tell("tcp", TcpStream::connect(("127.0.0.1", port)));
    tell("udp", UdpSocket::bind("0.0.0.0:0").and_then(|udp| udp.send_to(b"x", ("127.0.0.1", port))));
    tell("abstract socket", SocketAddr::from_abstract_name(socket).and_then(|to| UnixStream::connect_addr(&to)));
    tell("read a granted file", fs::read(folder.join("read/file")));
    tell("write where reading is granted", fs::write(folder.join("read/file"), "x"));
    tell("write a granted file", fs::write(folder.join("write/file"), "x"));
    tell("read another file", fs::read(folder.join("other")));
    tell("list the root", fs::read_dir("/"));
    tell("run a program", Command::new("/bin/true").status());
    say("memory", Vec::<u8>::new().try_reserve_exact(600 << 20).is_err());
    let parent = rustix::process::getppid().expect("it has a parent");
    tell("signal the parent", rustix::process::test_kill_process(parent).map_err(io::Error::from));
    let pid = rustix::process::getpid();
    say("leads its session", rustix::process::getsid(None) == Ok(pid));
    say("new privileges", rustix::thread::no_new_privs().map(|no| !no).ok());
    let held = rustix::thread::capabilities(None).map(|sets| sets.permitted.is_empty());
    say("capabilities", held.map(|none| !none).ok());
    say("file size", rustix::process::getrlimit(rustix::process::Resource::Fsize).current);
    say("core", rustix::process::getrlimit(rustix::process::Resource::Core).current);
}

/// Has a file compiled by a worker that may take very long, and that is confined as `policy` says.
fn admit(file: &Path, policy: &str) {
    let bytes = fs::read(file).expect("a file");
    match Runtime::new(patient(policy)) {
        Err(error) => say("runtime", error.to_string()),
        Ok(runtime) => {
            let admitted = runtime.admit("test.wasm", &bytes);
            say("admitted", admitted.map(drop).map_err(|error| error.to_string()));
            // A component that comes after one that failed.
            say("another", described(&runtime));
        }
    }
}

/// Admits another plugin while a worker is busy with a file.
fn beside(file: &Path) {
    let bytes = fs::read(file).expect("a file");
    let runtime = Runtime::new(patient("if-possible")).expect("a runtime");
    let compiling = runtime.clone();
    let slow = std::thread::spawn(move || compiling.admit("test.wasm", &bytes).map(drop));
    while processes::workers_of(std::process::id()).is_empty() {
        std::thread::yield_now();
    }
    say("another", described(&runtime));
    say("slow", !slow.is_finished());
}

fn described(runtime: &Arc<Runtime>) -> Result<String, String> {
    let files = tidegate_wasm::builtin::component("files").expect("there is one");
    let admitted = runtime.admit("builtin:files", files).map_err(|error| error.to_string())?;
    Ok(admitted.description().name.clone())
}

fn patient(policy: &str) -> RuntimeOptions {
    let hour = Duration::from_secs(3600);
    RuntimeOptions {
        worker: Worker::this_program().expect("main asked"),
        confinement: if policy == "required" { ConfinementPolicy::Required } else { ConfinementPolicy::IfPossible },
        compile: CompileLimits { cpu_time: hour, wall_time: hour, threads: 1, ..CompileLimits::default() },
        caps: ComponentCaps { locals: u64::MAX, total_locals: u64::MAX, ..ComponentCaps::default() },
        ..RuntimeOptions::default()
    }
}

struct NoIntents;

impl IntentLog for NoIntents {
    fn intent(&self, _: Option<PartId>, _: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        Box::pin(async { Ok(0) })
    }

    fn bound(&self, _: u64, _: String) -> BoxFuture<'_, Result<(), PluginError>> {
        Box::pin(async { Ok(()) })
    }
}

/// Stages a row in a child process, holds the child, and has it commit.
fn commit(folder: &Path) {
    let options = RuntimeOptions {
        worker: Worker::this_program().expect("main asked"),
        confinement: ConfinementPolicy::IfPossible,
        isolation: Isolation::Process,
        ..RuntimeOptions::default()
    };
    let runtime = Runtime::new(options).expect("a runtime");
    let files = runtime.admit("files", builtin::component("files").expect("embedded")).expect("it fits");
    let tenant = Tenant::default();
    let lease = Lease::take(&folder.join("lease"), Duration::from_secs(10)).expect("it is free");
    let mut options = BindOptions { tenant: tenant.clone(), lease: Some(lease), ..BindOptions::new("out") };
    options.dirs.insert("output".to_owned(), folder.join("output").into());
    let plugin = files.bind(options).expect("grants fit");
    let (pipeline, sink) = (PipelineId::new("test").expect("a name"), SinkId::new("out").expect("a name"));
    let run = RunId { number: 1, nonce: Nonce([1; 10]) };
    let part = PartId::mint(&pipeline, &sink, run, Epoch(1), 0, 1);
    let ctx = CallContext { sink_hash: SinkHash::of(&pipeline, &sink), sink, run, config: "{}".into(), attempt: 1 };
    let tokio = tokio::runtime::Builder::new_current_thread().build().expect("an executor");
    tokio.block_on(async {
        let mut writer = plugin.writer(Arc::new(NoIntents)).await.expect("a writer");
        writer.open(&ctx, KeyRange::ALL, &[]).await.expect("it opens");
        writer.begin(&ctx, &part).await.expect("it begins");
        writer.write(&ctx, Batch::new("{}\n".into(), 1, Encoding::JsonLines)).await.expect("it takes a row");
        let committables = [writer.prepare(&ctx).await.expect("it is staged").committable];
        let mut committer = plugin.committer().await.expect("a committer");
        let child = runtime.child_id(&tenant).expect("a child");
        let pid = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw).expect("an id");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it is ours");
        let mut commit = std::pin::pin!(committer.commit(&ctx, &[], &committables));
        std::future::poll_fn(|cx| std::task::Poll::Ready(commit.as_mut().poll(cx).is_pending())).await;
        say("child", child);
        say("committing", ());
        say("committed", commit.await.map_err(|fault| fault.to_string()));
    });
}
