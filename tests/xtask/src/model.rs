//! Exhaustive small scope: the explorations of `tests/model`.

use anyhow::Result;
use clap::Args;

use crate::figure::{Figure, Figures, Op};
use crate::{counter_examples, proof};

pub(crate) const PACKAGE: &str = "tidegate-model";
/// What a full run explores at least, and what a quick one does.
const STATES: f64 = 10_000_000.0;
const STATES_QUICK: f64 = 1_500_000.0;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The smaller set, as in CI.
    #[arg(long)]
    quick: bool,
    /// Only the counter-examples, each with its rule and without it.
    #[arg(long, conflicts_with_all = ["quick", "config"])]
    counter_examples: bool,
    /// Only the exploration of this name, as often as it is given. One that is not there makes it name those that are.
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
    if arguments.counter_examples || all {
        counter_examples::run(&mut figures)?;
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
