//! A confined process tries what it must not be able to do.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use crate::PROGRAM;

fn answers(command: &mut Command) -> BTreeMap<String, String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split_once(": ").unwrap()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn a_confined_process_has_no_network_no_files_and_no_privileges_but_those_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for dir in ["read", "write"] {
        fs::create_dir(path.join(dir)).unwrap();
    }
    fs::write(path.join("read/file"), "text").unwrap();
    fs::write(path.join("other"), "secret").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = format!("tidegate-test-{}", std::process::id());
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    // Without the flag that closes it at the start of a program.
    let leaked = rustix::io::dup(fs::File::open(path.join("other")).unwrap().as_fd()).unwrap();

    let said = answers(Command::new(PROGRAM).arg("confined").arg(path).arg(port.to_string()).arg(&name));
    drop(leaked);
    eprintln!("{said:#?}");
    let said = |name: &str| said[name].as_str();
    assert_eq!(said("inherited"), "0");
    for name in ["read a granted file", "write a granted file"] {
        assert_eq!(said(name), "Ok(())", "{name}");
    }
    assert_eq!(fs::read(path.join("read/file")).unwrap(), b"text");
    assert_eq!((said("memory"), said("core"), said("file size")), ("true", "Some(0)", "Some(1000)"));
    assert_eq!((said("new privileges"), said("capabilities")), ("Some(false)", "Some(false)"));
    assert_eq!(said("leads its session"), "true");
    if said("gaps") != "[]" {
        assert!(std::env::var_os("TIDEGATE_REQUIRE_ALL").is_none(), "this kernel denies {}", said("gaps"));
        eprintln!("left out: this kernel denies {}", said("gaps"));
        return;
    }
    for name in [
        "tcp",
        "udp",
        "abstract socket",
        "write where reading is granted",
        "read another file",
        "list the root",
        "run a program",
        "signal the parent",
    ] {
        assert!(said(name).starts_with("Err("), "{name}: {}", said(name));
    }
    for name in ["read another file", "list the root", "run a program"] {
        assert_eq!(said(name), "Err(PermissionDenied)", "{name}");
    }
}

#[test]
fn a_process_whose_parent_is_another_one_by_now_knows() {
    assert_eq!(answers(Command::new(PROGRAM).arg("orphaned"))["parent"], "false");
}
