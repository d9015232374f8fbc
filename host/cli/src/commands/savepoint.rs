//! `tidegate savepoint create|list|forget`

use tidegate_server::{SavepointDone, State, SystemClock, savepoint_create, savepoint_forget};

use super::{Outcome, load, no_state};
use crate::args::{FileArgs, SavepointArgs, SavepointCommand};
use crate::exit::Exit;
use crate::output::{one_line, print, print_json, say, table};
use crate::words::{counted, time};

pub(crate) fn run(command: &SavepointCommand) -> Outcome {
    match command {
        SavepointCommand::Create(args) => create(args),
        SavepointCommand::List(args) => list(args),
        SavepointCommand::Forget(args) => forget(args),
    }
}

fn create(args: &SavepointArgs) -> Outcome {
    let file = load(&args.file)?;
    let done = savepoint_create(&file, &args.name, args.timeout, &SystemClock)?;
    told(args, &done, || {
        let what = match done.running {
            true => "an epoch was cut for it",
            false => "the newest checkpoint; the pipeline is not running",
        };
        format!("savepoint `{}` is epoch {} of run {}: {what}", done.name, done.epoch, done.run)
    })
}

fn forget(args: &SavepointArgs) -> Outcome {
    let file = load(&args.file)?;
    let done = savepoint_forget(&file, &args.name, args.timeout, &SystemClock)?;
    told(args, &done, || {
        format!("savepoint `{}` is forgotten; epoch {} is kept as long as any other checkpoint", done.name, done.epoch)
    })
}

fn told(args: &SavepointArgs, done: &SavepointDone, words: impl Fn() -> String) -> Outcome {
    if args.output.json {
        print_json(done);
    } else {
        say(&words());
    }
    Ok(Exit::Done)
}

fn list(args: &FileArgs) -> Outcome {
    let file = load(&args.file)?;
    let savepoints = match State::read(&file)? {
        Some(state) => state.savepoint_list(),
        None => {
            say(&no_state(&file));
            Vec::new()
        }
    };
    if args.output.json {
        print_json(&savepoints);
        return Ok(Exit::Done);
    }
    let mut rows = vec![["NAME", "EPOCH", "RUN", "SEALED", ""].map(str::to_owned).to_vec()];
    for savepoint in &savepoints {
        rows.push(vec![
            one_line(&savepoint.name),
            savepoint.epoch.to_string(),
            savepoint.run.clone(),
            savepoint.sealed_at.map(time).unwrap_or_default(),
            if savepoint.on_newest_line { "" } else { "left behind" }.to_owned(),
        ]);
    }
    if !savepoints.is_empty() {
        print(&table(&rows));
    }
    say(&counted(savepoints.len() as u64, "savepoint"));
    Ok(Exit::Done)
}
