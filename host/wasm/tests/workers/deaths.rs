//! A worker dies, or its host does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::processes::workers_of;
use crate::{PROGRAM, made};

fn kill(id: u32) {
    let id = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
}

/// A host that has a component compiled for which its worker needs minutes.
#[expect(clippy::zombie_processes, reason = "the caller waits for it")]
fn host() -> (Child, TempDir, u32) {
    let folder = tempfile::tempdir().unwrap();
    let file: PathBuf = folder.path().join("slow.wasm");
    fs::write(&file, made::many_locals(10_000, 49_000)).unwrap();
    let host = admit(&file, "if-possible").stdout(Stdio::piped()).spawn().unwrap();
    loop {
        if let [worker] = workers_of(host.id())[..] {
            return (host, folder, worker);
        }
    }
}

pub(crate) fn admit(file: &Path, policy: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("admit").arg(file).arg(policy);
    command
}

#[test]
fn h70_a_worker_that_is_killed_is_an_error_and_the_next_component_is_compiled() {
    let (host, _folder, worker) = host();
    kill(worker);
    let output = host.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("admitted: Err(\"the compiler broke down over test.wasm: signal: 9 (SIGKILL)"), "{said}");
    assert!(said.contains("another: Ok(\"files\")"), "{said}");
}

#[test]
fn a_worker_dies_with_its_host() {
    let (mut host, _folder, worker) = host();
    let id = host.id();
    host.kill().unwrap();
    host.wait().unwrap();
    // Either gone or waiting to be reaped by whoever inherited it.
    let alive = || {
        let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap_or_default();
        !status.is_empty() && !status.contains("State:\tZ") && !status.contains("State:\tX")
    };
    while alive() {
        std::thread::yield_now();
    }
    assert!(workers_of(id).is_empty());
}

#[test]
fn a_kernel_without_namespaces_is_refused_unless_configured_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("files.wasm");
    fs::write(&file, tidegate_wasm::builtin::component("files").unwrap()).unwrap();
    // In a user namespace in which no more namespaces may be made.
    let deny = "for kind in user net ipc uts cgroup; do echo 0 > /proc/sys/user/max_${kind}_namespaces || exit 77; done; \
                exec \"$@\"";
    let within = |policy: &str| {
        let command = admit(&file, policy);
        let mut outer = Command::new("unshare");
        outer.args(["--user", "--map-root-user", "sh", "-c", deny, "sh"]).arg(command.get_program());
        outer.args(command.get_args()).output()
    };
    let refused = match within("required") {
        Ok(output) if output.status.code() != Some(77) && !output.stdout.is_empty() => output,
        other => {
            assert!(std::env::var_os("TIDEGATE_REQUIRE_ALL").is_none(), "{other:?}");
            eprintln!("left out: namespaces cannot be denied here: {other:?}");
            return;
        }
    };
    let said = String::from_utf8(refused.stdout).unwrap();
    assert!(said.contains("runtime: ") && said.contains("cannot be confined") && said.contains("namespaces"), "{said}");
    assert!(said.contains("if-possible"), "it says how to do without: {said}");
    let said = String::from_utf8(within("if-possible").unwrap().stdout).unwrap();
    assert!(said.contains("admitted: Ok(())"), "{said}");
}

#[test]
fn h29_other_plugins_are_admitted_and_run_while_one_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slow.wasm");
    fs::write(&file, made::many_locals(10_000, 49_000)).unwrap();
    let output = Command::new(PROGRAM).arg("beside").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, "another: Ok(\"files\")\nslow: true\n", "{}", String::from_utf8_lossy(&output.stderr));
}
