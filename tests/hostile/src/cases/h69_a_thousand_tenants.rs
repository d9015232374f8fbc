use std::sync::Arc;

use tidegate_protocol::plugin::{Call, CallFault, FaultKind};
use tidegate_wasm::{Tenant, TenantLimits};

use crate::case::{Case, Ends, Expect, Seen};
use crate::kept::Kept;
use crate::memory;
use crate::stage::{Doing, Stage, context};

const TENANTS: usize = 1000;
/// Below what one process holds, so that the neighbour has room.
const INSTANCES: usize = 1800;

pub(super) fn case() -> Case {
    Case::new("a thousand tenants start eighteen hundred instances at once", Call::Instantiate, Expect::Harmless)
        .pipeline(Ends::Finishes)
        .instances(INSTANCES as u64)
        .instead(all_at_once)
}

/// All that ask at once get an instance, and it answers.
fn all_at_once(stage: &Stage) -> Doing<'_> {
    Box::pin(async move {
        let kept = Arc::new(Kept::default());
        let plugins: Vec<_> = (0..TENANTS)
            .map(|n| stage.well_behaved_of(&kept, &Tenant::new(format!("tenant-{n}"), TenantLimits::default())))
            .collect::<Result<_, _>>()?;
        let asked: Vec<_> = plugins
            .iter()
            .cycle()
            .take(INSTANCES)
            .cloned()
            .map(|plugin| {
                tokio::spawn(async move {
                    let mut committer = plugin.committer().await?;
                    committer.observe(&context("attacked", 1, "{}")).await?;
                    Ok::<_, CallFault>(committer)
                })
            })
            .collect();
        let mut alive = Vec::new();
        for one in asked {
            let answer = one.await.map_err(|e| format!("an instance panicked: {e}"))?;
            alive.push(answer.map_err(|fault| fault.to_string())?);
        }
        drop(alive);
        churn(stage, &kept).await?;
        Ok(Seen::new(stage.tenant.clone()))
    })
}

/// Instances come and go, and memory stays.
async fn churn(stage: &Stage, kept: &Arc<Kept>) -> Result<(), String> {
    let plugin = stage.well_behaved(kept)?;
    let mut after_the_first = 0;
    for n in 0..2000 {
        // Threads of instances that have gone end a moment later.
        loop {
            match plugin.committer().await {
                Ok(_) => break,
                Err(fault) if fault.kind == FaultKind::Budget("instances") => tokio::task::yield_now().await,
                Err(fault) => return Err(fault.to_string()),
            }
        }
        if n == 500 {
            after_the_first = memory::resident()?;
        }
    }
    let grown = memory::resident()?.saturating_sub(after_the_first);
    if grown > 8 << 20 { Err(format!("fifteen hundred instances left {} MiB", grown >> 20)) } else { Ok(()) }
}
