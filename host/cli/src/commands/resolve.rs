//! `tidegate resolve`

use serde_json::json;
use tidegate_server::{Resolution, ResolveRequest, SystemClock};

use super::{Outcome, load};
use crate::args::{ResolveArgs, ResolveChoice};
use crate::exit::Exit;
use crate::output::{print_json, say};
use crate::words::counted;

pub(crate) fn run(args: &ResolveArgs) -> Outcome {
    let mut file = load(&args.file)?;
    if args.replay {
        file = tidegate_server::replay_state(&file)?;
    }
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
            "rows": resolved.rows,
            "again": resolved.again,
        }));
    } else if resolved.again {
        say(&format!("decision `{}` was recorded before; nothing was changed", resolved.id));
    } else {
        let rows = counted(resolved.rows, "row");
        let (epoch, sink) = (resolved.of.epoch, &args.sink);
        say(&match args.choice {
            ResolveChoice::Retry => format!("{rows} of epoch {epoch} at sink `{sink}` are committed again"),
            ResolveChoice::GiveUp => format!(
                "{rows} of epoch {epoch} at sink `{sink}` are given up; if its commit had begun, some may be there"
            ),
        });
        say(&format!("recorded as decision `{}`; the next run acts on it", resolved.id));
    }
    Ok(Exit::Done)
}
