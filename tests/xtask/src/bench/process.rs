//! What it costs that plugins run in a process of their own: the same batches both ways.

use std::path::Path;

use anyhow::Result;

use super::Bench;
use super::sink::{self, SINK_MIB};
use crate::figure::{Figure, Op};
use crate::flights::write_lines;

/// `process-batch-us`: by how much longer a batch of a mebibyte takes that passes to a child process, commits included,
/// on the wall clock. `process-batch-ratio`: the time in one process over that in two.
pub(super) fn process(bench: &mut Bench) -> Result<()> {
    let program = sink::program()?;
    let input = bench.folder.join("batches.jsonl");
    write_lines(&input, (0..bench.arguments.copies).flat_map(|_| bench.lines.iter()))?;
    let (mut costs, mut ratios) = (Vec::new(), Vec::new());
    for (_, turned) in bench.rounds() {
        let order = if turned { ["process", "shared"] } else { ["shared", "process"] };
        let mut least = [f64::INFINITY; 2];
        for side in [order; sink::TRIES].concat() {
            let taken = sink::run_sink(&program, side, Path::new("builtin:files"), &input, &bench.folder)?;
            let index = usize::from(side == "process");
            least[index] = taken.min(least[index]);
        }
        let [shared, process] = least;
        sink::same_output(&bench.folder, "shared", "process")?;
        let batches: f64 = SINK_MIB.parse()?;
        eprintln!("seconds for {SINK_MIB} batches: in one process {shared:.3}, in two {process:.3}");
        costs.push((process - shared) / batches * 1e6);
        ratios.push(shared / process);
    }
    std::fs::remove_file(input)?;
    bench.figures.show(Figure::median("process-batch-us", &costs, Op::AtMost, 2000.0))?;
    bench.figures.show(Figure::median("process-batch-ratio", &ratios, Op::AtLeast, 0.2))
}
