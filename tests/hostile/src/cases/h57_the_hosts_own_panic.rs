use std::sync::Arc;

use tidegate_protocol::ids::KeyRange;
use tidegate_protocol::plugin::{Blame, Call, CallFault, FaultKind, Plugin};
use tidegate_wasm::{BindOptions, LogLine, LogSink};

use crate::case::{Case, Ends, Expect, Seen};
use crate::kept::Kept;
use crate::stage::{Doing, Stage, context, part, rows};

pub(super) fn case() -> Case {
    Case::new("the host's own code, while the guest is on the stack", Call::Write, Expect::Harmless)
        .pipeline(Ends::NotRun)
        .instead(panics)
}

struct Panics;

impl LogSink for Panics {
    fn line(&self, _: LogLine) {
        panic!("the operator's log is broken");
    }
}

fn panics(stage: &Stage) -> Doing<'_> {
    Box::pin(async move {
        let mut options = BindOptions::new("attacked");
        options.tenant = stage.tenant.clone();
        options.log = Arc::new(Panics);
        let plugin = stage.admit()?.bind(options).map_err(|e| e.to_string())?;
        let fault = write(&*plugin).await.err().ok_or("the panic was not seen")?;
        if crate::panics::forget_one() != 1 {
            return Err("the host did not panic once".to_owned());
        }
        if (&fault.kind, fault.blame) != (&FaultKind::Host, Blame::Host) {
            return Err(format!("the host is to blame: {fault}"));
        }
        Ok(Seen::new(stage.tenant.clone()))
    })
}

async fn write(plugin: &dyn Plugin) -> Result<(), CallFault> {
    let ctx = context("attacked", 1, "{}");
    let mut writer = plugin.writer(Arc::new(Kept::default())).await?;
    writer.open(&ctx, KeyRange::ALL, &[]).await?;
    writer.begin(&ctx, &part(&ctx, 7, 0)).await?;
    writer.write(&ctx, rows("{}\n")).await.map(drop)
}
