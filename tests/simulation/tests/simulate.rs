//! The seeded simulation: a few seeds of it, that it can be repeated, and that it finds what is planted.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use tidegate_simulation::dest::Planted;
use tidegate_simulation::simulate::{Options, PlantedDisk, run_seed, simulate};

#[test]
fn two_hundred_seeds_keep_every_promise() {
    let options = Options { seeds: 200, threads: 2, ..Options::default() };
    let summary = simulate(&options);
    let found: Vec<String> =
        summary.failed.iter().flat_map(|(seed, all)| all.iter().map(move |v| format!("seed {seed}: {v}"))).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(summary.holds(200), "{summary:?}");
    assert!(summary.repeated >= 2 && summary.epochs >= 2_000, "{summary:?}");
    assert!(summary.uncounted * 5 < summary.counted, "too little happens in {} seeds", summary.uncounted);
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let text = |seed| {
        let trace = run_seed(seed, true, &Options::default()).trace;
        trace.iter().map(|line| format!("{line}\n")).collect::<String>()
    };
    for seed in [1, 2, 3] {
        let first = text(seed);
        assert!(first.lines().count() > 100, "{first}");
        assert!(first == text(seed), "seed {seed}");
    }
    assert_ne!(text(1), text(2), "another seed is another story");
}

/// Whether a promise breaks in one of the first seeds, and which others do before.
fn breaks(options: &Options, promise: &str, seeds: u64) -> Result<(), BTreeSet<&'static str>> {
    let mut others = BTreeSet::new();
    for seed in 0..seeds {
        let found = run_seed(seed, false, options).violations;
        if found.iter().any(|violation| violation.promise == promise) {
            return Ok(());
        }
        others.extend(found.into_iter().map(|violation| violation.promise));
    }
    Err(others)
}

#[test]
fn a_disk_that_does_not_flush_loses_what_was_acknowledged() {
    for planted in [PlantedDisk::Files, PlantedDisk::Folders] {
        let options = Options { planted_disk: Some(planted), ..Options::default() };
        assert_eq!(breaks(&options, "P4", 100), Ok(()), "{planted:?}");
    }
}

#[test]
fn a_destination_that_does_not_keep_its_word_is_found_out() {
    let cases = [
        (Planted::NotIdempotent, "P1"),
        (Planted::NoFence, "P7"),
        (Planted::VisibleWhenPrepared, "P2"),
        (Planted::DropsCommits, "P1"),
        (Planted::AbandonsCommitted, "P1"),
    ];
    for (planted, promise) in cases {
        let options = Options { planted: Some(planted), ..Options::default() };
        assert_eq!(breaks(&options, promise, 200), Ok(()), "{planted:?}");
    }
}

#[test]
fn a_command_whose_listener_has_gone_ends_as_if_it_had_listened() {
    for (arguments, ends) in [(["--seed", "7"], Some(0)), (["--seeds", "0"], Some(2))] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate-simulation"))
            .arg("simulate")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program is there");
        drop((child.stdout.take(), child.stderr.take()));
        assert_eq!(child.wait().expect("it ends").code(), ends, "{arguments:?}");
    }
}
