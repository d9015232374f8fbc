use std::sync::Arc;

use tidegate_protocol::plugin::{Call, FaultKind};
use tidegate_wasm::{Tenant, TenantLimits};

use crate::case::{Case, Ends, Expect, Seen};
use crate::kept::Kept;
use crate::memory;
use crate::stage::{Doing, Stage};

/// What one process holds.
const MOST: usize = 2000;
const TENANTS: usize = 1000;

pub(super) fn case() -> Case {
    Case::new("a thousand tenants start three instances each at once", Call::Instantiate, Expect::Harmless)
        .pipeline(Ends::Finishes)
        .instances(MOST as u64)
        .instead(all_at_once)
}

/// Of all that ask at once, as many get an instance as there is room for; the others are told so, and get one later.
fn all_at_once(stage: &Stage) -> Doing<'_> {
    Box::pin(async move {
        let kept = Arc::new(Kept::default());
        let limits = TenantLimits { instances: 3, ..TenantLimits::default() };
        let plugins: Vec<_> = (0..TENANTS)
            .map(|n| stage.well_behaved_of(&kept, &Tenant::new(format!("tenant-{n}"), limits.clone())))
            .collect::<Result<_, _>>()?;
        let asked: Vec<_> = (0..3)
            .flat_map(|_| plugins.iter().cloned())
            .map(|plugin| tokio::spawn(async move { plugin.committer().await }))
            .collect();
        let (mut alive, mut refused) = (Vec::new(), 0);
        for one in asked {
            match one.await.map_err(|e| format!("an instance panicked: {e}"))? {
                Ok(committer) => alive.push(committer),
                Err(fault) if fault.kind == FaultKind::Budget("instances") => refused += 1,
                Err(fault) => return Err(format!("expected no room for it: {fault}")),
            }
        }
        if alive.len() > MOST || refused == 0 || alive.len() + refused != 3 * TENANTS {
            return Err(format!("{} of {} live, {refused} were refused", alive.len(), 3 * TENANTS));
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
