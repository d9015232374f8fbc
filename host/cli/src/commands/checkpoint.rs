//! `tidegate checkpoint list|show|verify`

use serde_json::json;
use tidegate_server::{CheckpointDetail, CheckpointSummary, PartView, State, verify};

use super::{Outcome, archive, load, no_state};
use crate::args::{CheckpointCommand, FileArgs, ShowArgs};
use crate::exit::Exit;
use crate::output::{Failure, one_line, print, print_json, say, table};
use crate::words::{clip, count, counted, time};

pub(crate) fn run(command: &CheckpointCommand) -> Outcome {
    match command {
        CheckpointCommand::List(args) => list(args),
        CheckpointCommand::Show(args) => show(args),
        CheckpointCommand::Verify(args) => check(args),
        CheckpointCommand::Export(args) => archive::export(args),
        CheckpointCommand::Import(args) => archive::import(args),
    }
}

fn list(args: &FileArgs) -> Outcome {
    let file = load(&args.file)?;
    let checkpoints = match State::read(&file)? {
        Some(state) => state.checkpoints(),
        None => {
            say(&no_state(&file));
            Vec::new()
        }
    };
    if args.output.json {
        print_json(&checkpoints);
        return Ok(Exit::Done);
    }
    if !checkpoints.is_empty() {
        print(&list_text(&checkpoints));
    }
    say(&counted(checkpoints.len() as u64, "checkpoint"));
    Ok(Exit::Done)
}

fn list_text(checkpoints: &[CheckpointSummary]) -> String {
    let mut rows = vec![["EPOCH", "RUN", "SEALED", "ROWS", "STATE", "SINKS"].map(str::to_owned).to_vec()];
    for checkpoint in checkpoints {
        let mut state = checkpoint.state.to_owned();
        if !checkpoint.on_newest_line {
            state.push_str(", left behind");
        }
        for savepoint in &checkpoint.savepoints {
            state.push_str(&format!(", savepoint {}", one_line(savepoint)));
        }
        rows.push(vec![
            checkpoint.epoch.to_string(),
            run_number(&checkpoint.run).to_owned(),
            time(checkpoint.sealed_at),
            count(checkpoint.rows),
            state,
            sinks_text(checkpoint),
        ]);
    }
    table(&rows)
}

fn run_number(run: &str) -> &str {
    run.split_once('-').map_or(run, |(number, _)| number)
}

fn sinks_text(checkpoint: &CheckpointSummary) -> String {
    let sinks = checkpoint.sinks.iter().map(|(sink, outcome)| match &outcome.reason {
        Some(reason) => format!("{sink} {} ({})", outcome.state, clip(&one_line(reason), 60)),
        None => format!("{sink} {}", outcome.state),
    });
    sinks.collect::<Vec<_>>().join(", ")
}

fn show(args: &ShowArgs) -> Outcome {
    let file = load(&args.file)?;
    let Some(state) = State::read(&file)? else {
        return Err(Failure::new(Exit::Failed, no_state(&file)));
    };
    let of = match (&args.checkpoint, state.history.newest_seal()) {
        (Some(name), _) => state.find(name)?,
        (None, Some(newest)) => newest,
        (None, None) => {
            let message = format!("pipeline `{}` has no checkpoint yet", file.pipeline.name);
            return Err(Failure::new(Exit::Failed, message));
        }
    };
    let detail = state.checkpoint(of)?;
    if args.output.json {
        print_json(&detail);
    } else {
        print(&show_text(&detail));
    }
    Ok(Exit::Done)
}

fn show_text(detail: &CheckpointDetail) -> String {
    let summary = &detail.summary;
    let mut lines = vec![
        format!("epoch {} of run {}", summary.epoch, summary.run),
        format!("  sealed      {} ({}), record {}", time(summary.sealed_at), detail.reason, summary.slot),
        format!("  checkpoint  {}", summary.state),
        format!("  rows        {} read, {} unreadable", count(summary.rows), count(summary.dead_lettered)),
        format!("  graph       {}", detail.graph),
    ];
    for savepoint in &summary.savepoints {
        lines.push(format!("  savepoint   {}", one_line(savepoint)));
    }
    for (id, source) in &detail.sources {
        let ended = if source.ended { ", at its end" } else { "" };
        lines.push(format!("source {id}: {} rows{ended}", count(source.rows)));
        if let Some(schema) = &source.schema {
            lines.push(format!("  columns {}", one_line(schema)));
        }
        if !source.only_null.is_empty() {
            lines.push(format!("  only NULL so far: {}", one_line(&source.only_null.join(", "))));
        }
        if !source.names.is_empty() {
            lines.push(format!("  header {}", one_line(&source.names.join(","))));
        }
        if source.positions_gone {
            lines.push("  its positions are deleted".to_owned());
        }
        for (partition, position) in &source.partitions {
            lines.push(format!("  {}  {position}", one_line(partition)));
        }
    }
    for (id, operators) in &detail.operators {
        for operator in operators {
            lines.push(format!(
                "operator {id}, keys {} to {}: {} bytes of state, {} timers",
                operator.first_key, operator.last_key, operator.state_bytes, operator.timers
            ));
        }
    }
    for (id, sink) in &detail.sinks {
        let outcome = summary.sinks.get(id).map_or("", |outcome| outcome.state);
        lines.push(format!("sink {id}: {outcome}; plugin {} {}", one_line(&sink.plugin_name), sink.plugin));
        lines.push(format!("  config {}  grants {}", sink.config, sink.grants));
        for part in &sink.parts {
            let name = part.part.as_deref().map(|name| format!("  {}", one_line(name))).unwrap_or_default();
            lines.push(format!("  part {}  {}{name}", part.ordinal, part_rows(part)));
            lines.extend(part.resources.iter().map(|resource| format!("    {}", one_line(resource))));
        }
    }
    lines.join("\n") + "\n"
}

/// What became of the rows of a part.
fn part_rows(part: &PartView) -> String {
    let mut words = match &part.part {
        Some(_) => format!("{} rows", count(part.rows)),
        None => "no rows".to_owned(),
    };
    if part.rejected > 0 {
        words.push_str(&format!(", {} dead-lettered", count(part.rejected)));
    }
    if part.filtered > 0 {
        words.push_str(&format!(", {} left out by the filter", count(part.filtered)));
    }
    words
}

fn check(args: &FileArgs) -> Outcome {
    let file = load(&args.file)?;
    let verified = verify(&file)?;
    if args.output.json {
        print_json(&json!({"state": verified.is_some(), "verified": verified}));
        return Ok(Exit::Done);
    }
    match verified {
        None => say(&no_state(&file)),
        Some(verified) => {
            print(&format!(
                "ok: {}, {}, {}, {} read and checked\n",
                counted(verified.records as u64, "record"),
                counted(verified.runs as u64, "run"),
                counted(verified.checkpoints as u64, "checkpoint"),
                counted(verified.state_chunks as u64, "state file"),
            ));
            for (sink, epochs) in &verified.unfinished {
                say(&format!("sink `{sink}` has not finished {}", counted(epochs.len() as u64, "sealed epoch")));
            }
        }
    }
    Ok(Exit::Done)
}
