//! Short names and ids, as a plugin or a directory gives them, and state that is cut into pieces and put together.

use tidegate_protocol::ids::{KeyRange, Nonce, PartId, PipelineId, SinkHash, SinkId};
use tidegate_store::MemoryLog;
use tidegate_store::contents::{belongs, is_unfinished};
use tidegate_store::state::{load, store};

use crate::input::Input;
use crate::{Met, words};

pub(crate) fn run(bytes: &[u8]) -> Met {
    let mut input = Input(bytes);
    match input.byte() % 5 {
        0 => short_id(&input.text()),
        1 => name(&input.text()),
        2 => path(&input.text()),
        3 => state(input),
        _ => run_id(&input.text()),
    }
}

/// A short id that is taken for one of ours is spelled exactly as ours.
fn short_id(short: &str) -> Met {
    let (pipeline, sink): (PipelineId, SinkId) = ("flights".parse().expect("ok"), "out".parse().expect("ok"));
    let prefix = SinkHash::of(&pipeline, &sink).prefix();
    let short = short.replacen('~', &prefix, 1);
    let found = PartId::from_short(&pipeline, &sink, &short);
    if let Some(part) = &found {
        assert_eq!(part.short, short);
        assert_eq!(PartId::run_of_short(&short, &prefix), Some(part.run));
        let minted = PartId::mint(&pipeline, &sink, part.run, part.epoch, part.ordinal, part.attempt);
        assert_eq!(minted, *part);
    }
    if found.is_some() { Met::Read } else { Met::Refused }
}

/// A name is taken as it is, and nothing in it needs escaping anywhere.
fn name(text: &str) -> Met {
    let found = SinkId::new(text);
    match &found {
        Ok(name) => {
            assert_eq!(name.as_str(), text);
            assert!(text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        }
        Err(error) => drop(words(error)),
    }
    Met::of(&found)
}

/// What belongs to a log stays in its directory.
fn path(text: &str) -> Met {
    let ours = belongs(text);
    if ours || is_unfinished(text) {
        let (folder, name) = text.split_once('/').expect("a folder and a name");
        assert!(["log", "state"].contains(&folder) && !name.contains(['/', '\\', '\0']) && !name.starts_with('.'));
    }
    if ours { Met::Read } else { Met::Refused }
}

/// State of any length comes back; the input says how it repeats.
fn state(mut input: Input<'_>) -> Met {
    let times = usize::from(input.byte()) + 1;
    let state = input.0.repeat(times);
    let mut log = MemoryLog::default();
    let kept = store(&mut log, &state).expect("memory has room");
    assert_eq!(load(&mut log, &kept).expect("it is there"), state);
    if state.is_empty() { Met::Refused } else { Met::Read }
}

fn run_id(text: &str) -> Met {
    let nonce: Result<Nonce, _> = text.parse();
    match &nonce {
        Ok(nonce) => assert_eq!(nonce.to_string(), text),
        Err(error) => drop(words(error)),
    }
    let count = text.len() as u32 % 257;
    assert!(KeyRange::complete(KeyRange::split(count)));
    for (ordinal, range) in (0..).zip(KeyRange::split(count)) {
        assert_eq!(KeyRange::owner(range.first, count), ordinal);
        assert_eq!(KeyRange::owner(range.last, count), ordinal);
    }
    Met::of(&nonce)
}
