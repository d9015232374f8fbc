//! What instances cost that do nothing: the smallest sink, of many tenants, in one process.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tidegate_protocol::plugin::{Committer, Plugin};
use tidegate_wasm::{Tenant, TenantLimits};

use crate::kept::Kept;
use crate::memory;
use crate::stage::{Stage, context};

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// Instances that were alive at once.
    pub instances: usize,
    /// From asking for an instance to having it, in microseconds, one after the other.
    pub instantiate_us: Vec<f64>,
    /// Memory of the process before the first.
    pub before: u64,
    /// Memory of the process with all of them.
    pub after: u64,
}

/// Makes so many instances, calls each once, and keeps them.
///
/// # Errors
/// One could not be made, or did not answer.
pub fn idle(instances: usize, tenants: usize) -> Result<Idle, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| format!("no runtime: {e}"))?;
    runtime.block_on(measured(instances, tenants))
}

async fn measured(instances: usize, tenants: usize) -> Result<Idle, String> {
    let guest = crate::GUESTS.first().ok_or("there are no guests")?;
    let stage = Stage::new(guest)?;
    let plugins: Vec<Arc<dyn Plugin>> = (0..tenants)
        .map(|n| {
            let tenant = Tenant::new(format!("tenant-{n}"), TenantLimits::default());
            stage.well_behaved_of(&Arc::new(Kept::default()), &tenant)
        })
        .collect::<Result<_, _>>()?;
    let ctx = context("idle", 1, "{}");
    let mut kept: Vec<Box<dyn Committer>> = Vec::with_capacity(instances);
    let mut idle = Idle { instances, instantiate_us: Vec::new(), before: memory::resident()?, after: 0 };
    for plugin in plugins.iter().cycle().take(instances) {
        let began = Instant::now();
        let mut committer = plugin.committer().await.map_err(|fault| fault.to_string())?;
        idle.instantiate_us.push(began.elapsed().as_secs_f64() * 1e6);
        committer.observe(&ctx).await.map_err(|fault| fault.to_string())?;
        kept.push(committer);
    }
    idle.after = memory::resident()?;
    Ok(idle)
}
