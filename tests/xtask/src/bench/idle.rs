//! What instances of plugins cost that do nothing.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Bench;
use crate::figure::{Figure, Op};
use crate::hostile;

const INSTANCES: usize = 1000;
const TENANTS: usize = 100;

#[derive(Debug, Deserialize)]
struct Idle {
    instances: usize,
    instantiate_us: Vec<f64>,
    before: u64,
    after: u64,
}

/// `instantiate-p50-us`, `idle-instance-mib` and `idle-instances`: the smallest sink, of many tenants in one process.
pub(super) fn idle(bench: &mut Bench) -> Result<()> {
    let program = hostile::program()?;
    let (mut times, mut sizes, mut alive, mut total) = (Vec::new(), Vec::new(), 0, 0.0);
    for _ in bench.rounds() {
        let mut command = Command::new(&program);
        let output = command.args(["idle", &INSTANCES.to_string(), &TENANTS.to_string()]).output();
        let output = output.with_context(|| format!("cannot start `{}`", program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{}` ended with {}: {said}", program.display(), output.status);
        let mut idle: Idle = serde_json::from_slice(&output.stdout).context("what it said is no figure")?;
        idle.instantiate_us.sort_by(f64::total_cmp);
        times.push(idle.instantiate_us.get(idle.instances / 2).copied().context("nothing was instantiated")?);
        total = idle.after as f64 / f64::from(1 << 20);
        sizes.push((idle.after.saturating_sub(idle.before)) as f64 / f64::from(1 << 20) / idle.instances as f64);
        alive = idle.instances;
    }
    eprintln!("{alive} instances of {TENANTS} tenants: {total:.1} MiB in all");
    bench.figures.show(Figure::median("instantiate-p50-us", &times, Op::AtMost, 200.0))?;
    bench.figures.show(Figure::median("idle-instance-mib", &sizes, Op::AtMost, 1.0))?;
    bench.figures.show(Figure::new("idle-instances", alive as f64, Op::AtLeast, INSTANCES as f64))
}
