//! `cargo xtask verify`: the layers of the proof, one after the other, and how long each took.
//!
//! All of them run, also when one finds something: what one layer sees tells little of what the next one would.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::figure::{Figure, Figures, Op};
use crate::{model, simulate, sweep};

const HOUR: f64 = 3_600.0;
/// The quick set, the building of it included.
const QUICK: f64 = 1_500.0;
/// Entries of the list of known bugs that need no adapter to an engine.
const KNOWN_BUGS: f64 = 54.0;

/// Runs one layer to its end.
type Layer = Box<dyn Fn() -> Result<()>>;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The smaller set, as in CI.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let quick = arguments.quick;
    let mut layers: Vec<(&str, Layer)> = vec![
        ("model", Box::new(move || model::run(&model::Arguments::of(quick)))),
        ("simulate", Box::new(move || simulate::run(&simulate::Arguments::of(quick)))),
        ("sweep", Box::new(move || sweep::run(&sweep::Arguments::of(quick)))),
    ];
    // CI runs them with all other tests.
    if !quick {
        layers.push(("known-bugs", Box::new(known_bugs)));
    }
    let mut figures = Figures::default();
    let began = Instant::now();
    let mut failed = Vec::new();
    for (layer, check) in layers {
        eprintln!("==> {layer}");
        let began = Instant::now();
        if let Err(error) = check() {
            eprintln!("{layer}: {error:#}");
            failed.push(layer);
        }
        let seconds = began.elapsed().as_secs_f64();
        figures.show(Figure::new(format!("verify-{layer}-seconds"), seconds, Op::AtMost, HOUR))?;
    }
    let most = if quick { QUICK } else { HOUR };
    figures.show(Figure::new("verify-seconds", began.elapsed().as_secs_f64(), Op::AtMost, most))?;
    figures.show(Figure::new("verify-layers-failed", failed.len() as f64, Op::Exactly, 0.0))?;
    figures.verdict()
}

/// The scenarios of known bugs, built like the rest of the proof.
fn known_bugs() -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--profile", "proof", "--quiet", "--package", "tidegate-simulation", "--test", "known_bugs"])
        .current_dir(crate::workspace())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = passed(&said).with_context(|| format!("the tests did not say how they went:\n{said}"))?;
    if !output.status.success() {
        eprintln!("{said}");
    }
    let mut figures = Figures::default();
    figures.show(Figure::new("known-bugs-passed", passed, Op::AtLeast, KNOWN_BUGS))?;
    figures.verdict()?;
    ensure!(output.status.success(), "a known bug is there again");
    Ok(())
}

fn passed(said: &str) -> Option<f64> {
    let line = said.lines().find(|line| line.starts_with("test result: "))?;
    line.split_whitespace()
        .zip(line.split_whitespace().skip(1))
        .find_map(|(number, word)| if word == "passed;" { number.parse().ok() } else { None })
}

#[cfg(test)]
mod tests {
    use super::passed;

    #[test]
    fn passed_tests_are_counted_from_what_the_run_said() {
        let said = "\nrunning 2 tests\n..\ntest result: ok. 2 passed; 0 failed; 0 ignored; finished in 0.1s\n";
        assert_eq!(passed(said), Some(2.0));
        assert_eq!(passed("error: could not compile"), None);
    }
}
