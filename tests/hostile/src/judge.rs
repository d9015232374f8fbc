//! One guest, judged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tidegate_wasm::TICK;

use crate::case::{Ends, Guest, Seen, ended};
use crate::kept::Kept;
use crate::neighbour::Neighbour;
use crate::stage::{CANARY, Stage};
use crate::{memory, panics, pipeline};

/// The host's memory may grow by so much, the guest's own included.
const MOST_GROWTH: u64 = 64 << 20;

/// What came of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Its name.
    pub guest: String,
    /// What it attacks.
    pub attacks: String,
    /// Why it is not as it must be.
    pub escaped: Vec<String>,
    /// How its call ended, in words.
    pub fault: String,
    /// By how much the memory of the process grew at most, in bytes for each instance that attacked.
    pub growth: u64,
    /// From the beginning of the guest's last call to its end, in ticks of the engine.
    pub ticks: f64,
}

/// Runs a guest in this process, which should do nothing else, and judges.
///
/// # Errors
/// It could not be run: that says nothing about it.
pub fn judge(guest: &'static Guest) -> Result<Verdict, String> {
    panics::count_all();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))?;
    runtime.block_on(judged(guest))
}

async fn judged(guest: &'static Guest) -> Result<Verdict, String> {
    let stage = Stage::new(guest)?;
    let mut neighbour = Neighbour::new(stage.neighbour("before")?);
    neighbour.epoch(3).await?;
    // Compiling is measured elsewhere.
    let _ = stage.admit();
    memory::forget_peak()?;
    let before = memory::resident()?;

    let stop = Arc::new(AtomicBool::new(false));
    let meanwhile = {
        let stop = stop.clone();
        tokio::spawn(async move { neighbour.until(&stop).await.map(|()| neighbour) })
    };
    let began = Instant::now();
    let seen = match stage.case.instead {
        Some(instead) => instead(&stage).await,
        None => stage.call_all().await,
    };
    let began = seen.as_ref().map_or(began, |seen| seen.began.max(began));
    let ticks = began.elapsed().as_secs_f64() / TICK.as_secs_f64();
    stop.store(true, Ordering::SeqCst);
    let neighbour = meanwhile.await.map_err(|e| format!("the neighbour panicked: {e}"))?;
    let growth = memory::peak()?.saturating_sub(before) / stage.case.instances;
    let seen = seen?;

    let mut escaped = Vec::new();
    let mut must = |holds: Result<(), String>| escaped.extend(holds.err());
    must(ended(&stage.case, &seen));
    must((stage.case.check)(&seen));
    must(keeps_secrets(&seen));
    must(gives_back(&stage, &seen));
    if growth > MOST_GROWTH {
        must(Err(format!("the host's memory grew by {} MiB", growth >> 20)));
    }
    match neighbour {
        Ok(mut neighbour) => {
            must(neighbour.epoch(3).await);
            must(published(&stage, neighbour.rows()));
        }
        Err(words) => must(Err(words)),
    }
    must(another_lives(&stage).await);
    if stage.case.pipeline != Ends::NotRun {
        must(pipeline::judge(&stage).await);
    }
    let (count, first) = panics::counted();
    if count > 0 {
        must(Err(format!("the host panicked {count} times, first with: {first}")));
    }
    let fault = match (&seen.fault, &seen.refused) {
        (Some(fault), _) => fault.to_string(),
        (None, Some(words)) => words.clone(),
        (None, None) => "no harm done".to_owned(),
    };
    let attacks = stage.case.attacks.to_owned();
    Ok(Verdict { guest: guest.name.to_owned(), attacks, escaped, fault, growth, ticks })
}

/// Nothing that a person may be shown holds the secret.
fn keeps_secrets(seen: &Seen) -> Result<(), String> {
    match seen.shown().contains(CANARY) {
        true => Err("the secret was shown".to_owned()),
        false => Ok(()),
    }
}

/// What the tenant held was given back when its instances ended.
fn gives_back(stage: &Stage, _: &Seen) -> Result<(), String> {
    let began = Instant::now();
    for budget in ["instances", "memory of the tenant", "memory", "connections"] {
        // Threads end a moment after the answer.
        while stage.tenant.held(budget) > 0 {
            if began.elapsed().as_secs() > 30 {
                return Err(format!("the tenant still holds {} of {budget}", stage.tenant.held(budget)));
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// An instance of the same tenant that behaves well works after the attack.
async fn another_lives(stage: &Stage) -> Result<(), String> {
    let kept = Arc::new(Kept::default());
    let plugin = stage.well_behaved(&kept)?;
    let mut committer = plugin.committer().await.map_err(|fault| format!("after the attack: {fault}"))?;
    let ctx = crate::stage::context("attacked", 1, "{}");
    committer.observe(&ctx).await.map(drop).map_err(|fault| format!("after the attack: {fault}"))
}

/// What the neighbour committed can be read.
fn published(stage: &Stage, rows: u64) -> Result<(), String> {
    let folder = stage.folder().join("before");
    let mut lines = 0;
    for entry in std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))? {
        let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            lines += text.lines().count() as u64;
        }
    }
    match lines == rows {
        true => Ok(()),
        false => Err(format!("the neighbour committed {rows} rows, and {lines} can be read")),
    }
}
