//! `tidegate dead-letter`

use serde_json::json;
use tidegate_server::replay as replay_letters;

use super::{Outcome, load, run};
use crate::args::ReplayArgs;
use crate::exit::Exit;
use crate::output::{print_json_line, say};
use crate::words::counted;

/// Sends dead letters again.
pub(crate) fn replay(args: &ReplayArgs) -> Outcome {
    let replay = replay_letters(&load(&args.file)?, args.from.as_deref())?;
    let found = replay.found;
    if args.output.json {
        print_json_line(&json!({
            "event": "letters",
            "directory": replay.letters_dir,
            "replayed": found.replayed,
            "kept": found.kept,
        }));
    }
    let letters_dir = replay.letters_dir.display();
    let Some(file) = &replay.file else {
        say(&format!("there are no dead letters in {letters_dir}"));
        return Ok(Exit::Done);
    };
    say(&format!("{} in {letters_dir} not seen before", counted(found.replayed + found.kept, "dead letter")));
    if found.kept > 0 {
        let letters = counted(found.kept, "letter");
        say(&format!(
            "warning: {letters} without a row that could be sent again; written to the dead letters with the reason"
        ));
    }
    run::run_file(file, &args.run())
}
