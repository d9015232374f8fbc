//! How a neighbour fares while a guest attacks without end, in several instances at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::Plugin;
use tidegate_wasm::{Limits, TenantLimits};

use crate::case::Guest;
use crate::kept::Kept;
use crate::neighbour::{Neighbour, Timed};
use crate::stage::{Stage, context, part, rows};

const PAIRS: usize = 5;
const WRITES: usize = 2000;
/// Instances that attack at once: more than there are processors.
const ATTACKERS: usize = 6;

/// Latencies of a neighbour's writes: 99th percentiles in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Nobody attacks.
    pub quiet: Vec<f64>,
    /// Nobody attacks either, right afterwards.
    pub quiet_again: Vec<f64>,
    /// The guest attacks.
    pub attacked: Vec<f64>,
}

/// Measures them. Without budgets the guest may spend whatever it gets.
///
/// # Errors
/// It could not be measured, or the neighbour failed.
pub fn latencies(guest: &'static Guest, budgets: bool) -> Result<Latencies, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))?;
    runtime.block_on(measured(guest, budgets))
}

async fn measured(guest: &'static Guest, budgets: bool) -> Result<Latencies, String> {
    let tenant = match budgets {
        // What an operator gives a stranger: a tenth of a processor.
        true => TenantLimits { cpu_millis: 100, ..TenantLimits::default() },
        false => {
            TenantLimits { cpu_millis: 1_000_000, log_lines: u64::MAX, log_bytes: u64::MAX, ..TenantLimits::default() }
        }
    };
    let stage = Stage::with_tenant(guest, tenant)?;
    let limits = match budgets {
        true => stage.case.limits.clone(),
        false => without_bounds(&stage.case.limits),
    };
    let kept = Arc::new(Kept::default());
    let plugin = stage.bound(&kept, &limits)?;
    let mut neighbour = Neighbour::new(stage.neighbour("measured")?);
    let mut writer = neighbour.writer().await?;
    writer.p99(WRITES).await?;
    let mut taken = Latencies::default();
    for pair in 0..PAIRS {
        // Who comes first changes from pair to pair.
        if pair % 2 == 0 {
            taken.quiet.push(writer.p99(WRITES).await?);
            taken.quiet_again.push(writer.p99(WRITES).await?);
            taken.attacked.push(attacked(&stage, &plugin, &mut writer).await?);
        } else {
            taken.attacked.push(attacked(&stage, &plugin, &mut writer).await?);
            taken.quiet_again.push(writer.p99(WRITES).await?);
            taken.quiet.push(writer.p99(WRITES).await?);
        }
    }
    Ok(taken)
}

/// All that can be raised is.
fn without_bounds(limits: &Limits) -> Limits {
    let long = Duration::from_secs(3600);
    Limits {
        cpu_time: long,
        call_time: long,
        checkpoint_cpu_time: long,
        host_calls: u64::MAX,
        log_lines: u64::MAX,
        log_bytes: u64::MAX,
        memory_bytes: 512 << 20,
        handles: 1_000_000,
        random_total: u64::MAX,
        ..limits.clone()
    }
}

async fn attacked(stage: &Stage, plugin: &Arc<dyn Plugin>, writer: &mut Timed) -> Result<f64, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let config = stage.config();
    let attackers: Vec<_> = (0..ATTACKERS)
        .map(|ordinal| {
            let (plugin, stop, config) = (plugin.clone(), stop.clone(), config.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    // It ends with a fault each time; that is judged elsewhere.
                    let _ = attack(&*plugin, &config, ordinal as u32).await;
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    // Until they are at work.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let p99 = writer.p99(WRITES).await;
    stop.store(true, Ordering::Relaxed);
    for attacker in attackers {
        // Dropping a call's future ends its instance.
        attacker.abort();
        let _ = attacker.await;
    }
    while stage.tenant.held("instances") > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    p99
}

async fn attack(plugin: &dyn Plugin, config: &str, ordinal: u32) -> Result<(), tidegate_protocol::plugin::CallFault> {
    let ctx = context("attacked", 1, config);
    let mut writer = plugin.writer(Arc::new(Kept::default())).await?;
    writer.open(&ctx, KeyRange::ALL, &[]).await?;
    writer.begin(&ctx, &part(&ctx, 1, ordinal)).await?;
    loop {
        writer.write(&ctx, rows("{\"n\":1}\n")).await?;
    }
}
