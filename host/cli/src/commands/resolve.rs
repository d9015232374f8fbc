//! `tidegate resolve`

use serde_json::json;
use tidegate_server::{Resolution, ResolveRequest, SystemClock};

use super::{Outcome, load};
use crate::args::{ResolveArgs, ResolveChoice};
use crate::exit::Exit;
use crate::output::{print_json, say};

pub(crate) fn run(args: &ResolveArgs) -> Outcome {
    let file = load(&args.file)?;
    let request = ResolveRequest {
        sink: args.sink.clone(),
        epoch: args.epoch,
        choice: match args.choice {
            ResolveChoice::Retry => Resolution::Retry,
            ResolveChoice::GiveUp => Resolution::GiveUp,
        },
        by: args.by.clone(),
        id: args.decision_id.clone(),
    };
    let resolved = tidegate_server::resolve(&file, &request, &SystemClock)?;
    if args.output.json {
        print_json(&json!({
            "decision": resolved.id,
            "epoch": resolved.of.epoch.0,
            "run": resolved.of.run.to_string(),
            "again": resolved.again,
        }));
    } else if resolved.again {
        say(&format!("decision `{}` was recorded before; nothing was changed", resolved.id));
    } else {
        say(&format!("recorded as decision `{}`; the next run acts on it", resolved.id));
    }
    Ok(Exit::Done)
}
