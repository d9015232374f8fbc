//! `cargo xtask simulate`: very many pipelines from seeds, with faults, in simulated time.

use anyhow::{Result, bail};
use clap::Args;

use crate::figure::{Figure, Figures, Op};
use crate::proof;

/// The program.
const PACKAGE: &str = "tidegate-simulation";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// So many seeds must count: ten committed epochs with rows, three faults that took place, and a recovery at least.
    #[arg(long, default_value_t = 100_000, value_parser = crate::arguments::seeds)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=crate::arguments::MOST_SEEDS))]
    first: u64,
    /// One seed alone, with its whole trace.
    #[arg(long, conflicts_with_all = ["seeds", "first", "threads"])]
    seed: Option<u64>,
    /// Threads.
    #[arg(long, default_value_t = 2, value_parser = crate::arguments::some::<u32>)]
    threads: u32,
}

impl Arguments {
    /// Everything, or the share of it that CI has time for.
    pub(crate) fn of(quick: bool) -> Self {
        Self { seeds: if quick { 2_000 } else { 100_000 }, first: 0, seed: None, threads: 2 }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if let Some(seed) = arguments.seed {
        let status = std::process::Command::new(proof::program(PACKAGE)?)
            .args(["simulate", "--seed", &seed.to_string()])
            .status()?;
        return match status.code() {
            Some(0) => Ok(()),
            Some(1) => bail!("seed {seed} breaks a promise"),
            _ => bail!("seed {seed} was not run to its end: {status}"),
        };
    }
    let asked = ["--seeds", &arguments.seeds.to_string(), "--first", &arguments.first.to_string()].map(str::to_owned);
    let threads = ["--threads", &arguments.threads.to_string()].map(str::to_owned);
    let all: Vec<String> = std::iter::once("simulate".to_owned()).chain(asked).chain(threads).collect();
    let said = proof::run(PACKAGE, &all)?;
    let mut figures = Figures::default();
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    let seeds = arguments.seeds as f64;
    let at_least = [
        ("simulation-seeds", "seeds", seeds),
        ("simulation-epochs", "epochs", seeds * 10.0),
        ("simulation-faults", "faults", seeds * 3.0),
        ("simulation-recoveries", "recoveries", seeds),
        ("simulation-repeated", "repeated", (seeds / 100.0).floor()),
    ];
    for (figure, key, must) in at_least {
        figures.show(Figure::new(figure, said.number(key)?, Op::AtLeast, must))?;
    }
    for (figure, key) in
        [("simulation-violations", "violations"), ("simulation-repeats-that-differ", "repeats-that-differ")]
    {
        figures.show(Figure::new(figure, said.number(key)?, Op::Exactly, 0.0))?;
    }
    // 100,000 of them in half an hour on two cores.
    let limit = (seeds * 0.018).max(900.0);
    figures.show(Figure::new("simulation-seconds", said.number("seconds")?, Op::AtMost, limit))?;
    figures.verdict()
}
