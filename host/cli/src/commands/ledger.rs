//! `tidegate ledger`

use tidegate_server::State;

use super::{Outcome, load, no_state};
use crate::args::FileArgs;
use crate::exit::Exit;
use crate::output::{one_line, print, print_json, say, table};
use crate::words::{counted, time};

pub(crate) fn run(args: &FileArgs) -> Outcome {
    let file = load(&args.file)?;
    let resources = match State::read(&file)? {
        Some(state) => state.ledger(),
        None => {
            say(&no_state(&file));
            Vec::new()
        }
    };
    if args.output.json {
        print_json(&resources);
        return Ok(Exit::Done);
    }
    let mut rows = vec![["SINK", "KIND", "NAME", "SINCE", "NEEDED BY"].map(str::to_owned).to_vec()];
    for resource in &resources {
        let needed = match resource.holders.as_slice() {
            [] => "nobody; to be released".to_owned(),
            [one] => one.clone(),
            [first, .., last] => format!("{first}, … {last} ({})", resource.holders.len()),
        };
        rows.push(vec![
            resource.sink.to_string(),
            one_line(&resource.kind),
            one_line(&resource.name),
            resource.since.map(time).unwrap_or_default(),
            needed,
        ]);
    }
    if !resources.is_empty() {
        print(&table(&rows));
    }
    say(&counted(resources.len() as u64, "resource"));
    Ok(Exit::Done)
}
