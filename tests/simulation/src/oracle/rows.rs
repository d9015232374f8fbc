//! Rows: what the source gave against what readers see, and against what the log says.

use std::collections::BTreeMap;

use bytes::Bytes;
use data_encoding::BASE64;
use serde_json::Value;
use tidegate_protocol::guarantee::Delivery;
use tidegate_protocol::ids::SinkId;

use super::facts::Facts;
use super::{Evidence, SinkEvidence, Violation};
use crate::dest::Rejects;
use crate::source::{Mark, RowId, row_id};

/// Where a row belongs: with a sink, or in the dead letters of the source (`None`) or of a sink.
type Letter = (Option<String>, RowId);

fn refuses(rejects: Rejects, mark: Mark) -> bool {
    match mark {
        Mark::Good | Mark::Bad => false,
        Mark::RefusedInWrite | Mark::RefusedNoText => rejects.in_write,
        Mark::RefusedInPrepare => rejects.in_prepare,
        Mark::SpoilsBatch => rejects.batches,
    }
}

/// The rows that a sink must have.
fn wanted(evidence: &Evidence, sink: &SinkEvidence) -> BTreeMap<RowId, u64> {
    let takes = |id: &RowId| {
        let mark = evidence.rows.mark(*id);
        mark != Mark::Bad && !refuses(sink.rejects, mark)
    };
    evidence.rows.all().filter(takes).map(|id| (id, 0)).collect()
}

/// The letters that there must be.
fn wanted_letters(evidence: &Evidence) -> BTreeMap<Letter, u64> {
    let mut letters = BTreeMap::new();
    for id in evidence.rows.all() {
        let mark = evidence.rows.mark(id);
        if mark == Mark::Bad {
            letters.insert((None, id), 0);
        }
        for (sink, seen) in evidence.sinks.iter().filter(|(_, seen)| !seen.dead_letter) {
            if refuses(seen.rejects, mark) {
                letters.insert((Some(sink.to_string()), id), 0);
            }
        }
    }
    letters
}

fn letter_of(row: &[u8]) -> Option<Letter> {
    let letter: Value = serde_json::from_slice(row).ok()?;
    let sink = letter.get("sink").and_then(Value::as_str).map(str::to_owned);
    Some((sink, row_id(&row_in(&letter)?)?))
}

/// The bytes that a letter is about.
fn row_in(letter: &Value) -> Option<Vec<u8>> {
    let text = |field| letter.get(field).and_then(Value::as_str);
    match (text("row"), text("row-base64")) {
        (Some(text), None) => Some(text.as_bytes().to_vec()),
        (None, Some(base64)) => BASE64.decode(base64.as_bytes()).ok(),
        _ => None,
    }
}

/// P12: a letter holds its row byte by byte, so that it can be mended and sent again.
fn letters_hold_other_bytes<'a>(
    evidence: &Evidence,
    sink: &SinkId,
    mut rows: impl Iterator<Item = &'a Bytes>,
) -> Option<Violation> {
    rows.find_map(|row| {
        let letter: Value = serde_json::from_slice(row).ok()?;
        let held = row_in(&letter)?;
        let id = row_id(&held)?;
        let of_sink = letter.get("sink").is_some();
        let right = evidence.rows.bytes(id);
        // What a sink refuses has the number in it that the step wrote.
        let counted = of_sink && evidence.counts;
        let holds =
            if counted { right.strip_suffix(b"}").is_some_and(|row| held.starts_with(row)) } else { held == right };
        let (held, right) = (String::from_utf8_lossy(&held), String::from_utf8_lossy(&right));
        (!holds).then(|| violation("P12", format!("a letter at sink `{sink}` holds {held:?} of the row {right:?}")))
    })
}

/// P12: who takes letters up again takes each id once, so no two rows may share one.
fn letters_of_one_id<'a>(sink: &SinkId, rows: impl Iterator<Item = &'a Bytes>) -> Option<Violation> {
    let mut seen: BTreeMap<String, Letter> = BTreeMap::new();
    for row in rows {
        let (Some(letter), Ok(json)) = (letter_of(row), serde_json::from_slice::<Value>(row)) else {
            continue;
        };
        let Some(id) = json.get("id").and_then(|id| id.as_str()) else { continue };
        let first = seen.entry(id.to_owned()).or_insert_with(|| letter.clone());
        if *first != letter {
            let what = format!("letter `{id}` at sink `{sink}` stands for {first:?} and for {letter:?}");
            return Some(violation("P12", what));
        }
    }
    None
}

/// P1, P12: once all input is committed, a reader sees each row as often as the guarantee says, or finds its letter.
pub(super) fn p1_each_row_as_promised(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    if !evidence.finished {
        return found;
    }
    for (sink, seen) in &evidence.sinks {
        let rows = || seen.visible.iter().flat_map(|(_, rows)| rows);
        let mut strange = 0;
        let counts: Vec<(String, u64)> = if seen.dead_letter {
            let mut wanted = wanted_letters(evidence);
            found.extend(letters_of_one_id(sink, rows()));
            found.extend(letters_hold_other_bytes(evidence, sink, rows()));
            rows().for_each(|row| tally(letter_of(row), &mut wanted, &mut strange));
            wanted.into_iter().map(|((of, id), count)| (format!("the letter of {id:?} from {of:?}"), count)).collect()
        } else {
            let mut wanted = wanted(evidence, seen);
            rows().for_each(|row| tally(row_id(row), &mut wanted, &mut strange));
            wanted.into_iter().map(|(id, count)| (format!("row {id:?}"), count)).collect()
        };
        found.extend(compare(evidence, facts, (sink, seen), counts));
        if strange > 0 {
            found.push(violation("P1", format!("sink `{sink}` shows {strange} rows that are none of the source's")));
        }
        if evidence.counts && !seen.dead_letter {
            found.extend(counts_are_whole(evidence, facts, sink, seen));
        }
    }
    found
}

fn tally<K: Ord>(key: Option<K>, counts: &mut BTreeMap<K, u64>, strange: &mut u64) {
    match key.and_then(|key| counts.get_mut(&key)) {
        Some(count) => *count += 1,
        None => *strange += 1,
    }
}

fn compare(
    evidence: &Evidence,
    facts: &Facts,
    (sink, seen): (&SinkId, &SinkEvidence),
    counts: Vec<(String, u64)>,
) -> Vec<Violation> {
    let excuses = facts.excuses(sink);
    let delivery = evidence.guarantee.sinks.get(sink).map_or(Delivery::BestEffort, |promised| promised.delivery);
    let missing: Vec<&str> = counts.iter().filter(|(_, count)| *count == 0).map(|(what, _)| what.as_str()).collect();
    let repeated: Vec<&str> = counts.iter().filter(|(_, count)| *count > 1).map(|(what, _)| what.as_str()).collect();
    let mut found = Vec::new();
    if delivery >= Delivery::AtLeastOnce && excuses.may_not_lose() && !missing.is_empty() {
        let what =
            format!("sink `{sink}` ({delivery}) lacks {} of {}: {}", missing.len(), counts.len(), first(&missing));
        found.push(violation(if seen.dead_letter { "P12" } else { "P1" }, what));
    }
    // Rows with the same key replace each other: a reader sees one.
    if delivery == Delivery::ExactlyOnce && excuses.may_not_repeat() && !seen.kind.upsert && !repeated.is_empty() {
        let what = format!(
            "sink `{sink}` ({delivery}) has {} of {} twice: {}",
            repeated.len(),
            counts.len(),
            first(&repeated)
        );
        found.push(violation("P1", what));
    }
    found
}

/// P1: the state of the counting step went through all restarts as if there had been none.
fn counts_are_whole(evidence: &Evidence, facts: &Facts, sink: &SinkId, seen: &SinkEvidence) -> Vec<Violation> {
    let excuses = facts.excuses(sink);
    let exactly = evidence.guarantee.sinks.get(sink).is_some_and(|promised| promised.delivery == Delivery::ExactlyOnce);
    // What a sink refuses has a number too, and is not seen here.
    if !exactly || !excuses.may_not_lose() || !excuses.may_not_repeat() || seen.rejects != Rejects::default() {
        return vec![];
    }
    let rows = seen.visible.iter().flat_map(|(_, rows)| rows);
    whole(evidence, rows).into_iter().map(|what| violation("P1", format!("sink `{sink}`: {what}"))).collect()
}

/// Whether the counts of each key are 1, 2, 3 and so on.
fn whole<'a>(evidence: &Evidence, rows: impl Iterator<Item = &'a Bytes>) -> Option<String> {
    let mut counts: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for row in rows {
        let (Some(id), Some(count)) = (row_id(row), count_of(row)) else { return Some("a row has no count".into()) };
        counts.entry(evidence.rows.key(id)).or_default().push(count);
    }
    counts.into_iter().find_map(|(key, mut counts)| {
        counts.sort_unstable();
        let right = (1..).zip(&counts).all(|(n, count)| n == *count);
        (!right).then(|| format!("the rows of key k{key} were counted {counts:?}"))
    })
}

fn count_of(row: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(row);
    text.rsplit_once("\"c\":")?.1.trim_end_matches('}').parse().ok()
}

/// P1, P12: what the epochs of the line staged is each row of the source once, or its letter; forks and accepted losses
/// change nothing about that.
pub(super) fn p1_the_line_holds_each_row_once(evidence: &Evidence, facts: &Facts) -> Vec<Violation> {
    let mut found = Vec::new();
    if !evidence.finished {
        return found;
    }
    for (sink, seen) in evidence.sinks.iter().filter(|(_, seen)| !seen.dead_letter) {
        let shorts = facts.line.iter().flat_map(|of| facts.parts_of(sink, *of));
        let rows: Vec<&Bytes> = shorts
            .flat_map(|short| facts.staged.get(&(sink.clone(), short.to_owned())).into_iter().flatten())
            .collect();
        let mut strange = 0;
        let mut counts = wanted(evidence, seen);
        rows.iter().for_each(|row| tally(row_id(row), &mut counts, &mut strange));
        let missing: Vec<String> = counts.iter().filter(|(_, n)| **n == 0).map(|(id, _)| format!("{id:?}")).collect();
        let twice: Vec<String> = counts.iter().filter(|(_, n)| **n > 1).map(|(id, _)| format!("{id:?}")).collect();
        if !missing.is_empty() || !twice.is_empty() || strange > 0 {
            let what = format!(
                "the line of epochs at sink `{sink}` lacks {} rows ({}), has {} twice ({}) and {strange} strange ones",
                missing.len(),
                first(&missing),
                twice.len(),
                first(&twice)
            );
            found.push(violation("P1", what));
        }
        if evidence.counts && seen.rejects == Rejects::default() {
            let wrong = whole(evidence, rows.into_iter());
            found.extend(wrong.map(|what| violation("P1", format!("the line of epochs at sink `{sink}`: {what}"))));
        }
    }
    found
}

fn first<T: AsRef<str>>(of: &[T]) -> String {
    of.iter().take(4).map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

fn violation(promise: &'static str, what: String) -> Violation {
    Violation { promise, what, at: None }
}
