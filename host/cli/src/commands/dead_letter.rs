//! `tidegate dead-letter`

use serde_json::json;
use tidegate_server::replay as replay_letters;

use super::{Outcome, load, run};
use crate::args::ReplayArgs;
use crate::exit::Exit;
use crate::output::{one_line, print_json_line, say};
use crate::words::counted;

/// Sends dead letters again.
pub(crate) fn replay(args: &ReplayArgs) -> Outcome {
    let replay = replay_letters(&load(&args.file)?, args.from.as_deref())?;
    let found = replay.found.count;
    if args.output.json {
        print_json_line(&json!({
            "event": "letters",
            "directory": replay.letters_dir,
            "replayed": found.replayed,
            "kept": found.kept,
            "sent-before": found.sent_before,
        }));
    }
    let letters_dir = replay.letters_dir.display();
    if found.kept > 0 {
        let letters = counted(found.kept, "letter");
        say(&format!("warning: {letters} without a row that could be sent again; left where they are"));
        replay.found.kept.iter().for_each(|letter| say(&format!("  {}", one_line(letter))));
    }
    let Some(file) = &replay.file else {
        say(&format!("there are no dead letters in {letters_dir} that could be sent"));
        return Ok(Exit::Done);
    };
    say(&format!("{} in {letters_dir} not seen before", counted(found.replayed, "dead letter")));
    if found.sent_before > 0 {
        say(&format!(
            "{} skipped: sent before, from there or from a copy; what failed again is in newer letters",
            counted(found.sent_before, "letter")
        ));
    }
    run::run_file(file, &args.run())
}
