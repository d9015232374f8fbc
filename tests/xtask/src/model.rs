//! Exhaustive small scope: the explorations of `tests/model`, and the counter-examples that need its rules.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::figure::{Figure, Figures, Op};
use crate::mutants::copy::{Build, Copy};
use crate::mutants::patch::Mutant;
use crate::proof;

const PACKAGE: &str = "tidegate-model";
/// Rules of the protocol, each as the patch that takes it out.
const RULES: &str = "tests/model/rules";
/// So many counter-examples shaped the design.
const COUNTER_EXAMPLES: u32 = 12;
/// What a full run explores at least, and what a quick one does.
const STATES: f64 = 10_000_000.0;
const STATES_QUICK: f64 = 1_500_000.0;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The smaller set, as in CI.
    #[arg(long)]
    quick: bool,
    /// Take out every rule that a counter-example needs, and nothing else.
    #[arg(long)]
    counter_examples: bool,
    /// Only explorations of this name.
    #[arg(long, value_name = "NAME")]
    config: Vec<String>,
}

impl Arguments {
    /// Everything, or the smaller set.
    pub(crate) fn of(quick: bool) -> Self {
        Self { quick, counter_examples: false, config: Vec::new() }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut figures = Figures::default();
    let all = arguments.config.is_empty();
    if !arguments.counter_examples {
        explore(arguments, all, &mut figures)?;
    }
    // Those of the environment's rules are cheap; those of the protocol's need a build each.
    if arguments.counter_examples || (all && !arguments.quick) {
        counter_examples(&mut figures)?;
    }
    figures.verdict()
}

fn explore(arguments: &Arguments, all: bool, figures: &mut Figures) -> Result<()> {
    let mut given: Vec<String> = arguments.config.iter().flat_map(|name| ["--config".into(), name.clone()]).collect();
    given.extend(arguments.quick.then(|| "--quick".to_owned()));
    let said = proof::run(PACKAGE, &given)?;
    for violation in &said.violations {
        eprintln!("broken: {violation}");
    }
    let (states, configurations) = match (all, arguments.quick) {
        (true, false) => (STATES, 3.0),
        (true, true) => (STATES_QUICK, 3.0),
        (false, _) => (1.0, 1.0),
    };
    let seconds = said.number("seconds")?;
    figures.show(Figure::new("model-violations", said.violations.len() as f64, Op::Exactly, 0.0))?;
    figures.show(Figure::new("model-states", said.number("states")?, Op::AtLeast, states))?;
    figures.show(Figure::new(
        "model-complete-configurations",
        said.number("configurations")?,
        Op::AtLeast,
        configurations,
    ))?;
    figures.show(Figure::new("model-unfinished-configurations", said.number("unfinished")?, Op::Exactly, 0.0))?;
    figures.show(Figure::new("model-branches-unreached", said.number("branches-unreached")?, Op::Exactly, 0.0))?;
    figures.show(Figure::new(
        "model-longest-way-to-an-end",
        said.number("longest-way-to-an-end")?,
        Op::AtLeast,
        1.0,
    ))?;
    figures.show(Figure::new("model-seconds", seconds, Op::AtLeast, 0.0))?;
    figures.show(Figure::new("model-states-per-second", said.number("states")? / seconds.max(0.001), Op::AtLeast, 1.0))
}

/// Each is impossible while its rule stands, and happens when it is taken out.
fn counter_examples(figures: &mut Figures) -> Result<()> {
    let program = proof::program(PACKAGE)?;
    let tree = crate::workspace();
    let rules = Mutant::all(&tree.join(RULES))?;
    let copy = Copy::of(&tree, &crate::product::target_directory()?)?;
    let mut shown = 0;
    for number in 1..=COUNTER_EXAMPLES {
        let with = found(&program, number, false)?;
        ensure!(with.is_none(), "counter-example {number} happens although its rule stands: {with:?}");
        let rule = rules.iter().find(|rule| rule.name.starts_with(&format!("{number:02}-")));
        let without = match rule {
            Some(rule) => {
                let before = copy.plant(rule)?;
                let patched = copy.build(&Build::Program(PACKAGE)).and_then(|program| found(&program, number, true));
                copy.clean(&before)?;
                patched.with_context(|| format!("rule `{}`", rule.name))?
            }
            None => found(&program, number, true)?,
        };
        match without {
            Some((promise, what)) => {
                shown += 1;
                eprintln!("counter-example {number}: without its rule {promise} is broken: {what}");
                let expected = rule.map(|rule| rule.breaks.clone());
                ensure!(
                    expected.as_ref().is_none_or(|expected| *expected == promise),
                    "counter-example {number} breaks {promise} instead of {expected:?}"
                );
            }
            None => eprintln!("counter-example {number} does not happen without its rule"),
        }
    }
    figures.show(Figure::new("model-counter-examples", f64::from(shown), Op::Exactly, f64::from(COUNTER_EXAMPLES)))
}

/// The promise that is broken in a counter-example, and how.
fn found(program: &Path, number: u32, taken_out: bool) -> Result<Option<(String, String)>> {
    let mut command = Command::new(program);
    command.args(["--counter-example", &number.to_string()]);
    if taken_out {
        command.arg("--taken-out");
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().context("cannot start the model")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let summary = lines.last().context("the model said nothing")?;
    let complete = summary.get("configurations").and_then(Value::as_u64) == Some(1);
    let broken = lines.iter().find_map(|line| {
        let what: String = line.get("what")?.as_str()?.chars().take(160).collect();
        Some((line.get("promise")?.as_str()?.to_owned(), what))
    });
    ensure!(broken.is_some() || complete, "counter-example {number} was cut short");
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_be_taken_out_of_the_tree() {
        let tree = crate::workspace();
        let rules = Mutant::all(&tree.join(RULES)).expect("all can be read");
        assert!(!rules.is_empty());
        for rule in rules {
            rule.planted(&tree).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }
}
