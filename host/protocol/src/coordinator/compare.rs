//! Whether a destination stands where the log says it should.

use crate::event::{Mismatch, ReplayWaits};
use crate::history::{CheckpointState, History, SealedEpoch, SinkEpochState, Standing};
use crate::ids::{EpochRef, PartId, RunId, SinkId, Slot};
use crate::plugin::{AtomicScope, Position};

/// How `position` differs from what the log says, or `None`. `back_to` is the checkpoint that a fork goes back to.
pub(super) fn compare(
    history: &History,
    sink: &SinkId,
    scope: AtomicScope,
    position: &Position,
    back_to: Option<EpochRef>,
) -> Option<Mismatch> {
    let standing = history.standing(sink);
    if let Some(run) = position.fence.filter(|run| !ours(history, sink, *run)) {
        return Some(Mismatch::Foreign { run });
    }
    let mut seen: Vec<(&PartId, Slot)> = Vec::new();
    for part in &position.last {
        match place(history, sink, &standing, part) {
            Place::Known(slot) => seen.push((part, slot)),
            Place::Foreign => return Some(Mismatch::Foreign { run: part.run }),
            Place::NeverSealed => return Some(ahead(history, position)),
        }
    }
    match back_to {
        Some(from) => compare_with_line(history, sink, scope, position, &seen, from),
        None => {
            let slot_of = |part: &PartId| sealed_part(history, sink, part).map_or(standing.since, |epoch| epoch.slot);
            let behind = is_behind(scope, &seen, &standing, slot_of);
            behind.then(|| self::behind(history, position))
        }
    }
}

/// Where a sink that cannot be observed stands, by the log alone: it matters only when going back.
pub(super) fn compare_unseen(history: &History, sink: &SinkId, back_to: Option<EpochRef>) -> Option<Mismatch> {
    let from = back_to?;
    let standing = history.standing(sink);
    let left_behind = standing.newest.iter().any(|part| !history.descends(from, part.epoch_ref()));
    left_behind.then_some(Mismatch::Ahead { destination: standing.newest, log: Some(from) })
}

/// The newest checkpoint that can be restored and at which the destination stands.
pub(super) fn replay_point(
    history: &History,
    sink: &SinkId,
    scope: AtomicScope,
    position: &Position,
) -> Option<EpochRef> {
    let line = history.line(history.newest_seal());
    let fits = |epoch: &&&SealedEpoch| {
        epoch.checkpoint == CheckpointState::Retained
            && !position.last.is_empty()
            && compare(history, sink, scope, position, Some(epoch.of)).is_none()
    };
    line.iter().find(fits).map(|epoch| epoch.of)
}

/// What may still land behind the point to which a replay would go back.
pub(super) fn replay_waits(history: &History, from: EpochRef) -> Option<ReplayWaits> {
    let (sink, of) = history.unended_behind(Some(from))?;
    let blocked = matches!(history.outcome(&sink, of), Some(SinkEpochState::Blocked(..)));
    Some(ReplayWaits { sink, of, blocked })
}

/// The run was opened here, or was met at the destination and accepted by a decision.
fn ours(history: &History, sink: &SinkId, run: RunId) -> bool {
    history.runs().contains_key(&run)
        || history.runs().values().filter(|node| !node.open.under.is_empty()).any(|node| {
            let accepted = node.open.observed.get(sink);
            accepted.is_some_and(|seen| seen.fence == Some(run) || seen.last.iter().any(|part| part.run == run))
        })
}

enum Place {
    /// Sealed here, or accepted; the slot orders it among the others.
    Known(Slot),
    Foreign,
    NeverSealed,
}

fn sealed_part<'a>(history: &'a History, sink: &SinkId, part: &PartId) -> Option<&'a SealedEpoch> {
    // The exact id: a part of the same epoch with another attempt was never sealed (P8).
    history.seal(part.epoch_ref()).filter(|epoch| epoch.parts(sink).contains(part))
}

fn place(history: &History, sink: &SinkId, standing: &Standing, part: &PartId) -> Place {
    if let Some(epoch) = sealed_part(history, sink, part) {
        return Place::Known(epoch.slot);
    }
    if standing.holds(part) {
        return Place::Known(standing.since);
    }
    if !history.runs().contains_key(&part.run) {
        return Place::Foreign;
    }
    let deleted = history.seal(part.epoch_ref()).is_none() && history.may_be_sealed(part.epoch_ref());
    if deleted { Place::Known(Slot(0)) } else { Place::NeverSealed }
}

fn is_behind(
    scope: AtomicScope,
    seen: &[(&PartId, Slot)],
    expected: &Standing,
    slot_of: impl Fn(&PartId) -> Slot,
) -> bool {
    let reached = |wanted: &PartId, (part, slot): &(&PartId, Slot)| *part == wanted || *slot > slot_of(wanted);
    match scope {
        AtomicScope::Sink => {
            !expected.newest.is_empty()
                && !seen.iter().any(|at| expected.newest.iter().any(|wanted| reached(wanted, at)))
        }
        AtomicScope::Participant => expected
            .by_participant
            .values()
            .any(|wanted| !seen.iter().any(|at| at.0.ordinal == wanted.ordinal && reached(wanted, at))),
    }
}

fn compare_with_line(
    history: &History,
    sink: &SinkId,
    scope: AtomicScope,
    position: &Position,
    seen: &[(&PartId, Slot)],
    from: EpochRef,
) -> Option<Mismatch> {
    let beyond = |(part, slot): &(&PartId, Slot)| {
        *slot > Slot(0) && history.seal(part.epoch_ref()).is_some() && !history.descends(from, part.epoch_ref())
    };
    if seen.iter().any(beyond) {
        return Some(Mismatch::Ahead { destination: position.last.clone(), log: Some(from) });
    }
    let mut expected = Standing::default();
    for epoch in history.line(Some(from)).into_iter().rev() {
        expected.advance(epoch.parts(sink), epoch.slot);
    }
    let slot_of = |part: &PartId| sealed_part(history, sink, part).map_or(Slot(0), |epoch| epoch.slot);
    let behind = is_behind(scope, seen, &expected, slot_of);
    behind.then(|| Mismatch::Behind { destination: position.last.clone(), log: Some(from) })
}

fn ahead(history: &History, position: &Position) -> Mismatch {
    Mismatch::Ahead { destination: position.last.clone(), log: history.newest_seal() }
}

fn behind(history: &History, position: &Position) -> Mismatch {
    Mismatch::Behind { destination: position.last.clone(), log: history.newest_seal() }
}
