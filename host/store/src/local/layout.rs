//! Every name in a log's directory is spelled here.

use tidegate_protocol::ids::Slot;

use crate::state::is_chunk_name;

/// Segments.
pub(crate) const LOG_FOLDER: &str = "log";
/// Pieces of state.
pub(crate) const STATE_FOLDER: &str = "state";
const SEGMENT_ENDING: &str = ".log";
/// A file that is being written, and gets its name when it is whole.
const UNFINISHED_ENDING: &str = ".tmp";

/// What a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Segment(Slot),
    Chunk,
    Unfinished,
    Foreign,
}

pub(crate) fn segment_name(first: Slot) -> String {
    format!("{:020}{SEGMENT_ENDING}", first.0)
}

pub(crate) fn segment_path(first: Slot) -> String {
    format!("{LOG_FOLDER}/{}", segment_name(first))
}

pub(crate) fn chunk_path(sha256: &str) -> String {
    format!("{STATE_FOLDER}/{sha256}")
}

pub(crate) fn unfinished(path: &str) -> String {
    format!("{path}{UNFINISHED_ENDING}")
}

/// What a name in [`LOG_FOLDER`] stands for.
pub(crate) fn log_name(name: &str) -> Named {
    if let Some(whole) = name.strip_suffix(UNFINISHED_ENDING) {
        return if segment_of(whole).is_some() { Named::Unfinished } else { Named::Foreign };
    }
    segment_of(name).map_or(Named::Foreign, Named::Segment)
}

/// What a name in [`STATE_FOLDER`] stands for.
pub(crate) fn state_name(name: &str) -> Named {
    match name.strip_suffix(UNFINISHED_ENDING) {
        Some(whole) if is_chunk_name(whole) => Named::Unfinished,
        None if is_chunk_name(name) => Named::Chunk,
        _ => Named::Foreign,
    }
}

fn segment_of(name: &str) -> Option<Slot> {
    let digits = name.strip_suffix(SEGMENT_ENDING)?;
    let slot = digits.parse().ok().filter(|slot| *slot > 0).map(Slot)?;
    (segment_name(slot) == name).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognised_only_in_the_one_spelling() {
        assert_eq!(log_name("00000000000000000042.log"), Named::Segment(Slot(42)));
        assert_eq!(log_name("00000000000000000042.log.tmp"), Named::Unfinished);
        for foreign in ["42.log", "00000000000000000000.log", "+0000000000000000042.log", "x", ".log", "a.tmp", ""] {
            assert_eq!(log_name(foreign), Named::Foreign, "{foreign}");
        }
        let chunk = "a".repeat(64);
        assert_eq!(state_name(&chunk), Named::Chunk);
        assert_eq!(state_name(&format!("{chunk}.tmp")), Named::Unfinished);
        assert_eq!(state_name(&"A".repeat(64)), Named::Foreign);
    }
}
