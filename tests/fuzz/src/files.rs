//! What the `files` sink reads back: committables, register entries, the readers' log, and its configuration.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use tidegate_sdk::native::Host;
use tidegate_sdk::{Committable, Ctx, Error, Outcome, Part, RunId, Sink};
use tidegate_sink_files::Files;

use crate::input::{Input, scratch};
use crate::{Met, words};

const HASH: &str = "abcd2345";

pub(crate) fn run(bytes: &[u8]) -> Met {
    let mut input = Input(bytes);
    let place = scratch();
    let output = place.path().join("output");
    fs::create_dir(&output).expect("it is new");
    let met = match input.byte() % 3 {
        0 => commit(&output, input, 1),
        1 => commit(&output, input, 2),
        _ => look(&output, input),
    };
    let beside: Vec<_> =
        fs::read_dir(place.path()).expect("it is there").map(|entry| entry.expect("listing")).collect();
    assert_eq!(beside.len(), 1, "something was made outside the output directory: {beside:?}");
    met
}

fn run_id(number: u64) -> RunId {
    RunId { number, nonce: "aaaaaaaaaaaaaaab".to_owned() }
}

fn part(ordinal: u32) -> Part {
    let run = run_id(1);
    Part {
        full: format!("p/s/{run}/2/{ordinal}/1"),
        short: format!("tg-{HASH}-{run}-2-{ordinal}-1"),
        run,
        epoch: 2,
        ordinal,
        attempt: 1,
    }
}

fn ctx(host: &Arc<Host>, number: u64) -> Ctx {
    host.ctx("out", HASH, run_id(number), "{}", 1)
}

fn host(output: &Path) -> Arc<Host> {
    Arc::new(Host::new().dir("output", output).without_flushes())
}

/// A committable of any content, for a file that was staged.
fn commit(output: &Path, mut input: Input<'_>, version: u32) -> Met {
    let host = host(output);
    let register = fence(&host, 1);
    assert!(register.is_ok(), "{register:?}");
    let staged = output.join(format!("_tidegate/{HASH}/staging"));
    let rows = u64::from(input.byte());
    for name in [part(0).short, format!("{}.0", part(0).short), format!("{}.1", part(0).short)] {
        fs::write(staged.join(name), b"{}\n").expect("staging is there");
    }
    let committable = Committable { part: part(0), version, body: input.0.to_vec(), rows, expires_at: None };
    let before = listing(output);
    let outcomes = Files::default().commit(&ctx(&host, 1), &[], std::slice::from_ref(&committable));
    match outcomes.as_deref() {
        Ok([Outcome::Committed]) => {
            let again = Files::default().commit(&ctx(&host, 1), &[], &[committable]);
            assert_eq!(again, Ok(vec![Outcome::AlreadyCommitted]));
            Met::Read
        }
        Ok(other) => {
            assert_eq!(other.len(), 1);
            visible_as_before(output, &before);
            Met::Refused
        }
        Err(error) => {
            in_words(error);
            visible_as_before(output, &before);
            Met::Refused
        }
    }
}

/// Any content in the places where a sink looks: slots, spares, the readers' log.
fn look(output: &Path, mut input: Input<'_>) -> Met {
    let host = host(output);
    fence(&host, 1).expect("an empty directory");
    let places = [
        format!("_tidegate/{HASH}/register/00000000000000000001"),
        format!("_tidegate/{HASH}/register/00000000000000000002"),
        format!("_tidegate/{HASH}/register/new-spare-1-aaaaaaaaaaaaaaab-9"),
        format!("_epochs/00000000000000000002-{HASH}-1-aaaaaaaaaaaaaaab.json"),
    ];
    while !input.0.is_empty() {
        let place = &places[usize::from(input.byte()) % places.len()];
        let Some(piece) = input.piece() else { break };
        fs::write(output.join(place), piece).expect("its folder is there");
    }
    let before = listing(output);
    let observed = Files::default().observe(&ctx(&host, 2));
    assert_eq!(listing(output), before, "observing changed something");
    if let Err(error) = &observed {
        in_words(error);
    }
    match fence(&host, 2) {
        Ok(()) => {
            let position = Files::default().observe(&ctx(&host, 2)).expect("what was fenced is observed");
            assert!(position.fence >= Some(run_id(2)), "{position:?}");
        }
        Err(error) => in_words(&error),
    }
    let committable = Committable {
        part: part(0),
        version: 1,
        body: b"{\"file\":null,\"bytes\":0}".to_vec(),
        rows: 0,
        expires_at: None,
    };
    match Files::default().reconcile(&ctx(&host, 2), &[committable]) {
        Ok(outcomes) => assert_eq!(outcomes.len(), 1),
        Err(error) => in_words(&error),
    }
    Met::of(&observed)
}

fn fence(host: &Arc<Host>, run: u64) -> Result<(), Error> {
    let observed = Files::default().observe(&ctx(host, run))?;
    Files::default().fence(&ctx(host, run), &observed).map(drop)
}

fn in_words(error: &Error) {
    words(&error.message);
    assert!(!error.code.is_empty(), "{error:?}");
}

/// Paths and sizes below a directory.
fn listing(dir: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let (mut found, mut waiting) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let known = entry.metadata().expect("it was listed");
            if known.is_dir() { waiting.push(entry.path()) } else { found.push((entry.path(), known.len())) }
        }
    }
    found.sort();
    found
}

/// Nothing that is not the sink's own has come.
fn visible_as_before(output: &Path, before: &[(std::path::PathBuf, u64)]) {
    let own = output.join("_tidegate");
    let visible = |list: &[(std::path::PathBuf, u64)]| {
        list.iter().filter(|(path, _)| !path.starts_with(&own)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(visible(&listing(output)), visible(before), "it was refused, and something is visible");
}
