//! `cargo xtask sweep`: every effect of small pipelines is disturbed in every way, until nothing is left to disturb.

use anyhow::Result;
use clap::Args;

use crate::figure::{Figure, Figures, Op};
use crate::proof;

const PACKAGE: &str = "tidegate-simulation";

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// About a minute: a share of the effects, with every failure point met all the same.
    #[arg(long)]
    quick: bool,
    /// Crashes that are drawn are drawn from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    /// Everything, or the smaller set.
    pub(crate) fn of(quick: bool) -> Self {
        Self { quick, seed: 1 }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut words = vec!["sweep".to_owned(), "--seed".to_owned(), arguments.seed.to_string()];
    words.extend(arguments.quick.then(|| "--quick".to_owned()));
    let said = proof::run(PACKAGE, &words)?;
    // Every form of every failure point counts, and the one that was met least is the figure.
    let (recoveries, images, hits) = if arguments.quick { (3_000.0, 500.0, 2.0) } else { (50_000.0, 20_000.0, 10.0) };
    let mut figures = Figures::default();
    let mut show = |name: &str, value: f64, op, must| figures.show(Figure::new(name, value, op, must));
    show("sweep-effects", said.number("effects")?, Op::AtLeast, 500.0)?;
    show("sweep-recoveries", said.number("recoveries")?, Op::AtLeast, recoveries)?;
    show("sweep-images", said.number("images")?, Op::AtLeast, images)?;
    show("sweep-clean-passes", said.number("clean-passes")?, Op::Exactly, said.number("scenarios")?)?;
    show("failure-points-minimum-hits", said.number("failure-points-minimum-hits")?, Op::AtLeast, hits)?;
    show("sweep-violations", said.number("violations")?.max(said.violations.len() as f64), Op::Exactly, 0.0)?;
    show("sweep-seconds", said.number("seconds")?, Op::AtMost, if arguments.quick { 600.0 } else { 3_600.0 })?;
    figures.verdict()
}
