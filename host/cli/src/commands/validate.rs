//! `tidegate validate`

use serde_json::json;
use tidegate_server::{Validation, Verdict, assemble, check, connect};

use super::{Outcome, host, load, wait};
use crate::args::ValidateArgs;
use crate::exit::Exit;
use crate::output::{print, print_json};
use crate::words::counted;

pub(crate) fn run(args: &ValidateArgs) -> Outcome {
    let file = load(&args.file)?;
    let assembled = assemble(&host(&args.host)?, &file)?;
    let mut validation = check(&assembled)?;
    if args.connect {
        validation.findings.extend(wait(connect(&assembled))?);
    }
    let (passed, refused) = (validation.passed(), validation.refused());
    if args.output.json {
        print_json(&json!({"passed": passed, "connected": args.connect, "validation": validation}));
    } else {
        print(&text(&validation, args.connect));
    }
    Ok(match refused {
        Some(kind) => kind.into(),
        None if validation.blocked.is_empty() => Exit::Done,
        None => Exit::Blocked,
    })
}

/// The guarantee, what it rests on and what limits it, one line each.
pub(crate) fn guarantee_lines(guarantee: &tidegate_server::Guarantee, grounds: &[String]) -> Vec<String> {
    let visibility = match guarantee.visibility {
        tidegate_server::Visibility::WholeEpoch => "a whole epoch becomes visible at once",
        tidegate_server::Visibility::PerParticipant => "each writer's part of an epoch becomes visible at once",
        tidegate_server::Visibility::Early => "rows can be seen before their epoch is sealed",
    };
    let mut lines = vec![format!("guarantee: {}; {visibility}", guarantee.delivery)];
    lines.extend(grounds.iter().map(|ground| format!("  because {ground}")));
    lines.extend(guarantee.reasons.iter().map(|reason| format!("  but {reason}")));
    lines
}

fn text(validation: &Validation, connected: bool) -> String {
    let mut lines = vec![format!("pipeline `{}`", validation.pipeline)];
    lines.extend(guarantee_lines(&validation.guarantee, &validation.grounds));
    lines.extend(validation.travel.iter().cloned());
    lines.push(match &validation.state {
        None => "state: none yet".to_owned(),
        Some(state) => format!(
            "state: {}, {}{}; {}",
            counted(state.runs as u64, "run"),
            state.newest_epoch.map_or("no epoch".to_owned(), |epoch| format!("newest epoch {epoch}")),
            if state.finished { ", finished" } else { "" },
            if state.unchanged { "the file has not changed since" } else { "the file has changed since" },
        ),
    });
    for finding in &validation.findings {
        let word = match finding.verdict {
            Verdict::Allowed => "allowed",
            Verdict::Warning => "warning",
            Verdict::Refused => "refused",
        };
        lines.push(format!("{word}: {}", finding.message));
        lines.extend(finding.hints.iter().map(|hint| format!("  hint: {hint}")));
    }
    for blocked in &validation.blocked {
        let rows = counted(blocked.rows, "row");
        lines.push(format!("blocked: epoch {} at sink `{}`, {rows}: {}", blocked.epoch, blocked.sink, blocked.reason));
        lines.push(format!("  hint: {}", blocked.command));
    }
    let end = match (validation.passed(), validation.blocked.is_empty()) {
        (false, _) => "the pipeline would not start",
        (true, false) => "blocked: a person must decide",
        (true, true) if connected => "ok: file, plugins and state fit, and the destinations can be used",
        (true, true) => "ok: file, plugins and state fit; the destinations were not asked (--connect asks them)",
    };
    lines.push(end.to_owned());
    lines.join("\n") + "\n"
}
