//! `tidegate orphans list|abandon`

use serde_json::json;
use tidegate_server::{Abandoned, Clock as _, SinkOrphans, SystemClock, assemble};

use super::{Outcome, host, load, wait};
use crate::args::{AbandonArgs, OrphansArgs, OrphansCommand};
use crate::exit::Exit;
use crate::output::{one_line, print, print_json, say, table};
use crate::words::{count, counted, span};

pub(crate) fn run(command: &OrphansCommand) -> Outcome {
    match command {
        OrphansCommand::List(args) => list(args),
        OrphansCommand::Abandon(args) => abandon(args),
    }
}

fn list(args: &OrphansArgs) -> Outcome {
    let file = load(&args.file)?;
    let assembled = assemble(&host(&args.host)?, &file)?;
    let found = wait(tidegate_server::orphans_list(&assembled))?;
    let failed = found.iter().any(|sink| sink.problem.is_some());
    if args.output.json {
        print_json(&found);
    } else {
        let orphans: usize = found.iter().map(|sink| sink.orphans.len()).sum();
        if orphans > 0 {
            print(&list_text(&found, SystemClock.now_ms()));
        }
        say(&counted(orphans as u64, "orphan"));
    }
    for sink in &found {
        if let Some(problem) = &sink.problem {
            say(&format!("error: sink `{}`: {}", sink.sink, one_line(problem)));
        }
    }
    Ok(if failed { Exit::Failed } else { Exit::Done })
}

fn list_text(found: &[SinkOrphans], now: u64) -> String {
    let mut rows = vec![["SINK", "KIND", "NAME", "BYTES", "AGE AT MOST", "REMOVABLE", ""].map(str::to_owned).to_vec()];
    for sink in found {
        for orphan in &sink.orphans {
            rows.push(vec![
                sink.sink.to_string(),
                one_line(&orphan.kind),
                one_line(&orphan.name),
                orphan.bytes.map(count).unwrap_or_default(),
                orphan.since.map(|since| span(now.saturating_sub(since))).unwrap_or_default(),
                if orphan.removable { "yes" } else { "no" }.to_owned(),
                orphan.why.to_owned(),
            ]);
        }
    }
    table(&rows)
}

fn abandon(args: &AbandonArgs) -> Outcome {
    let file = load(&args.file)?;
    let assembled = assemble(&host(&args.host)?, &file)?;
    let done = wait(tidegate_server::orphans_abandon(&assembled, args.sink.as_ref(), &SystemClock))?;
    let Abandoned { parts, problems } = &done;
    if args.output.json {
        let problems: Vec<_> =
            problems.iter().map(|(sink, problem)| json!({"sink": sink, "problem": problem})).collect();
        print_json(&json!({"parts": parts, "problems": problems}));
    } else {
        for part in parts {
            let why = part.why.as_ref().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
            say(&format!("sink `{}`: {} {}{why}", part.sink, one_line(&part.part), part.result.replace('-', " ")));
        }
        let given = parts.iter().filter(|part| part.result == "given-back").count();
        say(&format!("{} given back", counted(given as u64, "part")));
    }
    problems.iter().for_each(|(sink, problem)| say(&format!("error: sink `{sink}`: {}", one_line(problem))));
    let kept = parts.iter().any(|part| part.result == "kept");
    Ok(if kept || !problems.is_empty() { Exit::Failed } else { Exit::Done })
}
