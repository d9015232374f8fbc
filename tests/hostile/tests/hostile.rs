//! Every guest, each in a process of its own.

use std::process::Command;

use tidegate_hostile::Verdict;

fn judged(name: &str) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tidegate-hostile")).args(["judge", name]).env("RUST_BACKTRACE", "0").output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} ended with {}: {said}", output.status);
    let verdict: Verdict = serde_json::from_slice(&output.stdout).expect("a verdict");
    assert!(verdict.escaped.is_empty(), "{name} escaped: {:#?}\n{verdict:#?}\n{said}", verdict.escaped);
}

include!(concat!(env!("OUT_DIR"), "/tests.rs"));
