//! `tidegate checkpoint export|import`

use tidegate_server::SystemClock;

use super::{Outcome, load};
use crate::args::{ExportArgs, ImportArgs};
use crate::exit::Exit;
use crate::output::{print_json, say};
use crate::words::{count, counted};

pub(crate) fn export(args: &ExportArgs) -> Outcome {
    let file = load(&args.file)?;
    let done = tidegate_server::export(&file, &args.to, args.moving, &SystemClock)?;
    if args.output.json {
        print_json(&done);
    } else {
        say(&format!(
            "exported {} up to epoch {} into {} ({} bytes)",
            counted(done.files as u64, "file"),
            done.newest_epoch.map_or("none".to_owned(), |epoch| epoch.to_string()),
            done.archive.display(),
            count(done.bytes)
        ));
    }
    for (sink, epochs) in &done.unfinished {
        say(&format!(
            "warning: sink `{sink}` has not finished {}: rows are staged in the directories that it has here, and the \
             other host must reach these very directories; a start here finishes them, then export again",
            counted(epochs.len() as u64, "sealed epoch")
        ));
    }
    if let Some(replays) = &done.replays {
        say(&format!(
            "warning: {} tells which dead letters were sent again and is not in the archive; copy it beside the state \
             directory of the other host, under the name of that directory in place of `{}`, before letters are replayed there",
            replays.display(),
            file.pipeline.state.file_name().unwrap_or_default().to_string_lossy()
        ));
    }
    let state = file.pipeline.state.display();
    if done.moved && !args.moving {
        say(&format!("warning: the state in {state} was moved away before and refuses to run; this is another copy"));
    } else if done.moved {
        say(&format!("the state in {state} refuses to run from now on"));
    } else {
        say("warning: this is a copy, and the pipeline can still run here; two hosts must not both go on");
        say("hint: with --move the state that is left behind refuses to run");
    }
    Ok(Exit::Done)
}

pub(crate) fn import(args: &ImportArgs) -> Outcome {
    let file = load(&args.file)?;
    let done = tidegate_server::import(&file, &args.from)?;
    if args.output.json {
        print_json(&done);
    } else {
        say(&format!(
            "imported {} up to epoch {} into {}; `tidegate validate` tells what has changed",
            counted(done.files as u64, "file"),
            done.newest_epoch.map_or("none".to_owned(), |epoch| epoch.to_string()),
            done.state.display()
        ));
    }
    Ok(Exit::Done)
}
