//! What the log refuses to hold, and what it makes of the rest.

mod world;

use std::collections::BTreeMap;

use tidegate_protocol::history::{History, HistoryErrorKind as Kind, IntentState, OrphanStanding, SinkEpochState};
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, OperatorId, PartId, PipelineId, RunId, Slot};
use tidegate_protocol::plugin::{ErrorKind, External, Orphan, PluginError, Position};
use tidegate_protocol::record::{
    Blocked, Body, Bound, Choice, CutReason, EpochOutcome, Finished, Forget, MismatchPolicy, Open, OutcomeEntry,
    Record, Retire, Savepoint, Seal,
};
use world::records::*;
use world::{pipeline, sink};

fn blocked(of: EpochRef, why: Blocked) -> OutcomeEntry {
    OutcomeEntry { outcome: EpochOutcome::Blocked(why), ..committed("a", of) }
}

fn refused_for_good() -> Blocked {
    Blocked::Rejected(PluginError { kind: ErrorKind::Permanent, code: "c".to_owned(), message: "m".to_owned() })
}

fn under(parent: Option<EpochRef>, ids: &[&str]) -> Body {
    Body::Open(Open { under: ids.iter().map(|id| (*id).to_owned()).collect(), ..open(parent) })
}

fn seal(seal: Seal) -> Body {
    Body::Seal(Box::new(seal))
}

fn accept(policy: MismatchPolicy) -> Choice {
    Choice::Accept { sink: sink("a"), policy }
}

fn savepoint(name: &str, of: EpochRef) -> Body {
    Body::Savepoint(Savepoint { name: name.to_owned(), of })
}

fn named(mut seal: Seal, name: &str) -> Seal {
    seal.reason = CutReason::Savepoint(name.to_owned());
    seal
}

#[test]
fn the_last_numbers_there_are_end_nothing_but_the_record() {
    let hand = Hand::new();
    let last = Record { slot: Slot(u64::MAX), ..hand.record(Body::Outcomes) };
    assert_eq!(hand.refuses(&last), Kind::NumberSpent);
    let last = Record { run: RunId { number: u64::MAX, ..hand.run }, ..hand.record(Body::Open(open(None))) };
    assert_eq!(hand.refuses(&last), Kind::NumberSpent);
}

#[test]
fn before_the_first_run_there_are_decisions_and_nothing_else() {
    let mut hand = Hand { history: History::default(), records: Vec::new(), run: run(1) };
    assert_eq!(hand.refuses_body(Body::Outcomes), Kind::NoRun);
    hand.add(decision("d", accept(MismatchPolicy::AcceptDuplicates)));
    hand.add(under(None, &["d"]));
    assert_eq!(hand.history.decisions()["d"].used_by, Some(run(1)));
}

#[test]
fn runs_are_of_this_pipeline_and_newer_than_all_before_them() {
    let mut hand = Hand::new();
    hand.opened(2, open(None));
    let other = PipelineId::new("other").expect("a legal name");
    let foreign = Record { run: run(3), ..hand.record(Body::Open(Open { pipeline: other.clone(), ..open(None) })) };
    assert_eq!(hand.refuses(&foreign), Kind::ForeignPipeline { log: pipeline(), record: other });
    for number in [1, 2] {
        let older = Record { run: run(number), ..hand.record(Body::Open(open(None))) };
        assert_eq!(hand.refuses(&older), Kind::RunNotNewer { newest: run(2) });
    }
    // Decisions are made in the name of the newest run or of the one to come, never of one before.
    let choice = decision("d", accept(MismatchPolicy::AcceptLoss));
    let older = Record { run: run(1), ..hand.record(choice.clone()) };
    assert_eq!(hand.refuses(&older), Kind::NotNewestRun { newest: run(2) });
    hand.put(Record { run: run(3), ..hand.record(choice) });
}

#[test]
fn an_epoch_ends_once_in_order_and_not_without_the_decision_it_waits_for() {
    let mut hand = Hand::new();
    let (first, second) = (hand.sealed(1), hand.sealed(2));
    let at = || sink("a");
    assert_eq!(
        hand.refuses_with(vec![committed("a", second)]),
        Kind::OutOfOrder { sink: at(), of: second, before: first }
    );
    let twice = vec![committed("a", first), committed("a", first)];
    assert_eq!(hand.refuses_with(twice), Kind::AlreadyEnded { sink: at(), of: first });
    assert_eq!(
        hand.refuses_with(vec![committed("b", first)]),
        Kind::UnknownSink { sink: sink("b"), of: first },
        "the seal has no such sink"
    );
    hand.add_with(vec![committed("a", first), committed("a", second)], Body::Outcomes);
    assert_eq!(hand.refuses_with(vec![committed("a", second)]), Kind::AlreadyEnded { sink: at(), of: second });
    let third = hand.sealed(3);
    hand.add_with(vec![blocked(third, refused_for_good())], Body::Outcomes);
    assert_eq!(hand.refuses_with(vec![committed("a", third)]), Kind::NeedsDecision { sink: at(), of: third });
    hand.add(decision("r", Choice::Retry { sink: at(), of: third }));
    assert_eq!(hand.history.outcome(&at(), third), Some(&SinkEpochState::Sent(2)));
    hand.committed(third);
    let fourth = hand.sealed(4);
    hand.add_with(vec![blocked(fourth, Blocked::TriesSpent("busy".to_owned()))], Body::Outcomes);
    hand.committed(fourth);
    assert_eq!(hand.folded(), hand.history);
}

#[test]
fn intents_are_numbered_without_gaps_while_nothing_is_deleted() {
    let mut hand = Hand::new();
    hand.add(Body::Intent(intent(1, None, 1, "one")));
    for number in [1, 3] {
        let wrong = Body::Intent(intent(number, None, 1, "two"));
        assert_eq!(hand.refuses_body(wrong), Kind::IntentNotNext { expected: 2 });
    }
    let (mut hand, ..) = Hand::with_a_deleted_epoch();
    hand.add(Body::Intent(intent(5, None, 3, "five")));
    assert_eq!(hand.refuses_body(Body::Intent(intent(5, None, 3, "again"))), Kind::IntentNotNext { expected: 6 });
    hand.add(Body::Intent(intent(8, None, 3, "eight")));
}

#[test]
fn a_name_is_given_once_and_only_to_what_was_announced() {
    let bound = |number, name: &str| Body::Bound(Bound { number, name: name.to_owned() });
    let mut hand = Hand::new();
    hand.add(Body::Intent(intent(1, None, 1, "planned")));
    assert_eq!(hand.refuses_body(bound(2, "x")), Kind::IntentNotOpen(2));
    hand.add(bound(1, "real"));
    assert_eq!(hand.refuses_body(bound(1, "other")), Kind::IntentNotOpen(1));
    let names: Vec<&str> = hand.history.ledger().iter().map(|(key, _)| key.name.as_str()).collect();
    assert_eq!(names, ["real"], "the plan is no resource");
    assert!(hand.history.intents()[&1].bound);

    // A plan that another announcement shares stays, and a name given late to what is gone brings nothing back.
    hand.add(Body::Intent(intent(2, None, 1, "shared")));
    hand.add(Body::Intent(intent(3, None, 1, "shared")));
    hand.add(bound(2, "second"));
    let names: Vec<&str> = hand.history.ledger().iter().map(|(key, _)| key.name.as_str()).collect();
    assert_eq!(names, ["real", "second", "shared"]);
    hand.opened(2, open(None));
    hand.add(released(&["shared"]));
    assert_eq!(hand.history.intents()[&3].state, IntentState::Closed);
    assert_eq!(
        hand.refuses_body(bound(3, "shared")),
        Kind::NamedAfterRelease { sink: sink("a"), name: "shared".to_owned() }
    );
    hand.add(bound(3, "late"));
    assert!(hand.history.ledger().iter().all(|(key, _)| key.name != "late"));
    assert_eq!(hand.folded(), hand.history);

    // Where records were deleted the announcement may be among them.
    let (mut hand, ..) = Hand::with_a_deleted_epoch();
    hand.add(bound(77, "x"));
}

#[test]
fn a_run_goes_on_from_the_newest_epoch_or_says_by_which_decision_not() {
    let mut hand = Hand::new();
    let (first, second) = (hand.sealed(1), hand.sealed(2));
    hand.committed(first);
    hand.run = run(2);
    let leaves = Kind::ForkWithoutDecision { newest: second };
    assert_eq!(hand.refuses_body(under(Some(first), &[])), leaves);
    assert_eq!(hand.refuses_body(under(Some(first), &["nobody"])), Kind::DecisionNotPending("nobody".to_owned()));
    let nowhere = EpochRef { epoch: Epoch(9), ..first };
    assert_eq!(hand.refuses_body(under(Some(nowhere), &[])), Kind::ParentUnknown(nowhere));
    let policy = MismatchPolicy::AcceptDuplicates;
    hand.run = run(1);
    hand.add(decision("here", Choice::Fork { from: second, policy }));
    hand.add(decision("dup", accept(policy)));
    hand.add(decision("back", Choice::Fork { from: first, policy }));
    hand.run = run(2);
    for other in ["here", "dup"] {
        assert_eq!(hand.refuses_body(under(Some(first), &[other])), leaves, "{other} allows something else");
    }
    let open_epoch = Kind::ForkBeforeUnfinished { sink: sink("a"), of: second };
    assert_eq!(hand.refuses_body(under(Some(first), &["back"])), open_epoch);
    hand.run = run(1);
    hand.add_with(vec![blocked(second, Blocked::Never)], Body::Outcomes);
    hand.run = run(2);
    hand.add(under(Some(first), &["back"]));
    assert_eq!(hand.history.outcome(&sink("a"), second), Some(&SinkEpochState::ForkedOff("back".to_owned())));
    hand.run = run(3);
    assert_eq!(hand.refuses_body(under(Some(first), &["back"])), Kind::DecisionNotPending("back".to_owned()));
    assert_eq!(hand.folded(), hand.history);
}

#[test]
fn a_retired_checkpoint_is_no_parent_no_savepoint_and_no_fork_point() {
    let mut hand = Hand::new();
    let (first, second) = (hand.sealed(1), hand.sealed(2));
    hand.committed(first);
    hand.committed(second);
    let fork = |from| Choice::Fork { from, policy: MismatchPolicy::AcceptDuplicates };
    hand.add(decision("early", fork(first)));
    hand.retired(first);
    assert_eq!(hand.refuses_body(decision("late", fork(first))), Kind::Retired(first));
    assert_eq!(hand.refuses_body(savepoint("s", first)), Kind::Retired(first));
    hand.run = run(2);
    assert_eq!(hand.refuses_body(under(Some(first), &["early"])), Kind::ParentRetired(first));
    hand.run = run(1);
    hand.add(savepoint("s", second));
    assert_eq!(hand.refuses_body(savepoint("s", second)), Kind::SavepointNameTaken("s".to_owned()));
}

#[test]
fn what_is_needed_is_not_retired() {
    let mut hand = Hand::new();
    let (first, second) = (hand.sealed(1), hand.sealed(2));
    let why = |hand: &Hand, of| match hand.refuses_body(Body::Retire(Retire { of: vec![of] })) {
        Kind::MustBeKept { of: named, why } if named == of => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(&hand, first), "a sink has not finished it");
    hand.committed(first);
    assert_eq!(why(&hand, first), "a destination stands there");
    hand.committed(second);
    hand.add(savepoint("s", first));
    assert_eq!(why(&hand, first), "it is a savepoint");
    assert_eq!(why(&hand, second), "it is the newest");
    hand.add(Body::Forget(Forget { name: "s".to_owned() }));
    hand.retired(first);
    assert_eq!(why(&hand, first), "it is retired already");
    assert_eq!(
        hand.refuses_body(Body::Forget(Forget { name: "s".to_owned() })),
        Kind::UnknownSavepoint("s".to_owned())
    );
}

#[test]
fn a_checkpoint_younger_than_the_age_is_kept_whatever_their_number() {
    let mut hand = Hand::new();
    let sealed: Vec<EpochRef> = (1..=4).map(|epoch| hand.sealed(epoch)).collect();
    sealed.iter().for_each(|of| hand.committed(*of));
    let age_of_second = hand.history.seal(sealed[1]).expect("sealed").sealed_at;
    assert_eq!(hand.history.retirable(1, None, 0), &sealed[..3]);
    assert_eq!(hand.history.retirable(1, Some(10_000), age_of_second + 10_000), &sealed[..1]);
    assert!(hand.history.retirable(1, Some(10_000), 0).is_empty(), "a clock that was set back makes all young");
}

#[test]
fn a_seal_has_the_next_number_whole_ranges_and_its_own_parts() {
    let mut hand = Hand::new();
    hand.sealed(1);
    for epoch in [3, 9] {
        let next = seal(hand.seal(epoch, &["a"]));
        assert_eq!(hand.refuses_body(next), Kind::EpochNotNext { sealed: hand.of(epoch), expected: 2 });
    }
    let zero = seal(hand.seal(0, &["a"]));
    assert_eq!(hand.refuses_body(zero), Kind::EpochNotNext { sealed: hand.of(0), expected: 2 });
    let wrong = |change: fn(&mut Seal, &Hand)| {
        let mut wrong = hand.seal(2, &["a"]);
        change(&mut wrong, &hand);
        hand.refuses_body(seal(wrong))
    };
    let half = wrong(|seal, _| seal.sinks.values_mut().for_each(|cut| cut.parts[0].range.last = 7));
    assert_eq!(half, Kind::RangesIncomplete("sink `a`".to_owned()));
    let operator = wrong(|seal, _| {
        let id = OperatorId::new("op").expect("a legal name");
        seal.operators.insert(id, Vec::new());
    });
    assert_eq!(operator, Kind::RangesIncomplete("operator `op`".to_owned()));
    let of_before = wrong(|seal, hand| {
        let before = hand.part_cut("a", 1);
        seal.sinks.values_mut().for_each(|cut| cut.parts = vec![before.clone()]);
    });
    assert!(matches!(of_before, Kind::WrongPart(_)), "{of_before:?}");
    let of_another = wrong(|seal, _| seal.sinks.values_mut().for_each(|cut| cut.parts[0].ordinal = 4));
    assert!(matches!(of_another, Kind::WrongPart(_)), "{of_another:?}");
    let twice = wrong(|seal, _| {
        for cut in seal.sinks.values_mut() {
            let mut second = cut.parts[0].clone();
            (cut.parts[0].range, second.range) = (KeyRange::split(2)[0], KeyRange::split(2)[1]);
            cut.parts.push(second);
        }
    });
    assert!(matches!(twice, Kind::WrongPart(_)), "{twice:?}");
}

#[test]
fn operators_that_cover_the_key_space_are_sealed() {
    let mut hand = Hand::new();
    let mut next = hand.seal(1, &["a"]);
    next.operators.insert(OperatorId::new("op").expect("a legal name"), vec![operator_cut(1, 1)]);
    hand.add(seal(next));
}

#[test]
fn a_savepoint_name_is_given_once_by_seals_too() {
    let mut hand = Hand::new();
    hand.add(seal(named(hand.seal(1, &["a"]), "s")));
    assert_eq!(hand.refuses_body(seal(named(hand.seal(2, &["a"]), "s"))), Kind::SavepointNameTaken("s".to_owned()));
    hand.add(seal(named(hand.seal(2, &["a"]), "t")));
    assert_eq!(hand.history.savepoints().len(), 2);
}

#[test]
fn a_released_name_comes_back_nowhere() {
    let (mut hand, first) = (Hand::new(), run(1));
    hand.add(Body::Intent(intent(1, None, 1, "left")));
    hand.opened(2, open(None));
    hand.add(released(&["left", "unheard-of"]));
    let taken = Kind::NamedAfterRelease { sink: sink("a"), name: "left".to_owned() };
    assert_eq!(hand.refuses_body(Body::Intent(intent(2, None, 1, "left"))), taken);
    let mut again = hand.seal(1, &["a"]);
    again.sinks.values_mut().for_each(|cut| cut.parts[0].resources.push(file("left")));
    assert_eq!(hand.refuses_body(seal(again)), taken);
    assert_eq!(hand.history.runs().keys().next(), Some(&first));
}

#[test]
fn what_somebody_names_is_not_released() {
    let mut hand = Hand::new();
    let first = hand.sealed(1);
    let short = hand.part("a", 1, 0).short;
    let named = Kind::ReleasedWhileNamed { sink: sink("a"), name: short.clone() };
    assert_eq!(hand.refuses_body(released(&[&short])), named);
    hand.committed(first);
    assert_eq!(hand.refuses_body(released(&[&short])), named, "a retained checkpoint names it");
    hand.add(Body::Intent(intent(1, None, 2, "mine")));
    let mine = Kind::ReleasedWhileNamed { sink: sink("a"), name: "mine".to_owned() };
    assert_eq!(hand.refuses_body(released(&["mine"])), mine, "this run may still seal it");
    hand.opened(2, open(Some(first)));
    hand.add(released(&["mine"]));
}

#[test]
fn finished_means_the_newest_epoch_and_everything_committed() {
    let mut hand = Hand::new();
    let first = hand.sealed(1);
    let finished = |last| Body::Finished(Finished { last });
    assert_eq!(hand.refuses_body(finished(first)), Kind::NotFinished, "it is not committed");
    hand.committed(first);
    let second = hand.sealed(2);
    hand.committed(second);
    assert_eq!(hand.refuses_body(finished(first)), Kind::NotFinished, "it is not the newest");
    hand.add(finished(second));
    assert_eq!(hand.history.finished(), Some(second));
    hand.sealed(3);
    assert_eq!(hand.history.finished(), None);
    // The last epoch of a finished input may be deleted when more came after it.
    let (mut hand, first, _) = Hand::with_a_deleted_epoch();
    hand.add(finished(first));
    assert_eq!(hand.history.finished(), None);
}

#[test]
fn a_decision_is_made_once_and_about_something_that_waits_for_it() {
    let mut hand = Hand::new();
    let first = hand.sealed(1);
    let give_up = |id: &str, at: &str, of| decision(id, Choice::GiveUp { sink: sink(at), of });
    assert_eq!(hand.refuses_body(give_up("d", "a", first)), Kind::NotBlocked { sink: sink("a"), of: first });
    assert_eq!(hand.refuses_body(give_up("d", "b", first)), Kind::UnknownSink { sink: sink("b"), of: first });
    hand.add_with(vec![blocked(first, refused_for_good())], Body::Outcomes);
    hand.add(give_up("d", "a", first));
    assert_eq!(hand.history.outcome(&sink("a"), first), Some(&SinkEpochState::GivenUp("d".to_owned())));
    let again = decision("d", accept(MismatchPolicy::AcceptLoss));
    assert_eq!(hand.refuses_body(again), Kind::DecisionRepeated("d".to_owned()));
    // What is over may be deleted, and with it what the decision spoke of.
    let (mut hand, deleted, _) = Hand::with_a_deleted_epoch();
    hand.add(give_up("e", "a", deleted));
    hand.add(decision("f", Choice::Retry { sink: sink("a"), of: deleted }));
    assert_eq!(hand.history.outcome(&sink("a"), deleted), None);
}

#[test]
fn records_about_what_is_deleted_change_nothing() {
    let (mut hand, deleted, second) = Hand::with_a_deleted_epoch();
    let before = hand.history.clone();
    hand.add_with(vec![committed("a", deleted)], Body::Outcomes);
    hand.add(savepoint("s", deleted));
    hand.add(Body::Forget(Forget { name: "t".to_owned() }));
    hand.retired(deleted);
    assert!(hand.history.savepoints().is_empty());
    assert_eq!(hand.history.standing(&sink("a")), before.standing(&sink("a")));
    // A fork to a checkpoint that was retained then, and is retired now, was recorded before that.
    let third = hand.sealed(3);
    hand.committed(third);
    hand.retired(second);
    hand.add(decision("f", Choice::Fork { from: second, policy: MismatchPolicy::AcceptDuplicates }));
    assert_eq!(hand.folded(), hand.history);
}

#[test]
fn the_list_of_deleted_records_is_ascending_in_the_past_and_expendable() {
    let mut hand = Hand::new();
    let (first, second) = (hand.sealed(1), hand.sealed(2));
    hand.committed(first);
    hand.committed(second);
    hand.retired(first);
    hand.add(released(&[&hand.part("a", 1, 0).short]));
    let (_, added) = hand.history.expendable();
    assert_eq!(added, [2, 4, 6, 7].map(Slot), "the seal, its outcome, its retirement and its release");
    for (wrong, named) in [
        (&[(2, 2), (2, 2)][..], 2),
        (&[(4, 4), (2, 2)], 2),
        (&[(3, 2)], 3),
        (&[(0, 0)], 0),
        (&[(2, 99)], 2),
        (&[(1, 2)], 1),
        (&[(2, 3)], 3),
    ] {
        assert_eq!(hand.refuses_body(deleted(wrong)), Kind::DeletesNeeded(Slot(named)), "{wrong:?}");
    }
    hand.add(deleted(&[(2, 2)]));
    assert_eq!(hand.history.seal(first), None);
    // A record in such a slot that is still there is read as gone; a run or a decision cannot be.
    assert_eq!(History::fold(&hand.records).expect("a log"), hand.history);
    let mut lost = hand.records.clone();
    lost[1].body = Body::Open(open(None));
    assert_eq!(History::fold(&lost).expect_err("needed").kind, Kind::DeletesNeeded(Slot(2)));
}

#[test]
fn an_announcement_and_its_name_are_given_up_together() {
    let mut hand = Hand::new();
    let part = hand.part("a", 1, 0);
    let announced = hand.add(Body::Intent(intent(1, Some(&part), 1, "planned")));
    let (first, second) = (hand.sealed(1), hand.sealed(2));
    hand.committed(first);
    hand.committed(second);
    let third = hand.sealed(3);
    // The name comes late, in a record that says something about an epoch which stays.
    let bound = Body::Bound(Bound { number: 1, name: "real".to_owned() });
    let named = hand.add_with(vec![committed("a", third)], bound);
    hand.retired(first);
    hand.add(released(&[&part.short, "real"]));
    let (_, expendable) = hand.history.expendable();
    assert!(!expendable.contains(&named), "it carries an outcome that is needed");
    assert!(!expendable.contains(&announced), "the name would be left without its announcement");
}

#[test]
fn the_records_of_a_savepoint_stay_until_it_is_forgotten_and_its_checkpoint_gone() {
    let mut hand = Hand::new();
    let first = hand.sealed(1);
    let saved = hand.add(savepoint("s", first));
    let second = hand.sealed(2);
    hand.committed(first);
    hand.committed(second);
    assert!(!hand.history.expendable().1.contains(&saved), "it is a savepoint");
    let forgotten = hand.add(Body::Forget(Forget { name: "s".to_owned() }));
    for slot in [saved, forgotten] {
        assert!(!hand.history.expendable().1.contains(&slot), "its checkpoint is retained");
    }
    hand.retired(first);
    hand.add(released(&[&hand.part("a", 1, 0).short]));
    let (gone, added) = hand.history.expendable();
    assert!(added.contains(&saved) && added.contains(&forgotten), "{added:?}");
    hand.add(Body::Deleted(tidegate_protocol::record::Deleted { gone }));
    assert_eq!(hand.folded(), hand.history);
}

#[test]
fn a_retired_checkpoint_is_no_parent_even_as_the_newest_that_is_left() {
    let mut hand = Hand::new();
    let (first, second) = (hand.sealed(1), hand.sealed(2));
    hand.committed(first);
    hand.committed(second);
    hand.retired(first);
    hand.opened(2, open(Some(second)));
    hand.add(deleted(&[]));
    let mut left = hand.records.clone();
    // The log of somebody who deleted the second epoch and then went on from the first, which is retired.
    for record in &mut left {
        match &mut record.body {
            Body::Open(open) if record.run == run(2) => open.parent = Some(first),
            body @ Body::Deleted(_) => *body = deleted(&[(3, 3), (5, 5)]),
            _ => {}
        }
    }
    left.retain(|record| ![3, 5].contains(&record.slot.0));
    assert_eq!(History::fold(&left).expect_err("it cannot be restored").kind, Kind::ParentRetired(first));
}

#[test]
fn a_decision_to_retry_is_about_one_epoch_at_one_sink() {
    let mut hand = Hand::new();
    let (first, second) = (hand.sealed(1), hand.sealed(2));
    hand.add_with(vec![blocked(first, refused_for_good())], Body::Outcomes);
    hand.add(decision("r", Choice::Retry { sink: sink("a"), of: first }));
    assert!(hand.history.was_told_to_retry(&sink("a"), first));
    assert!(!hand.history.was_told_to_retry(&sink("a"), second));
    assert!(!hand.history.was_told_to_retry(&sink("b"), first));
}

#[test]
fn an_announcement_is_the_checkpoints_as_soon_as_its_part_or_its_resource_is_sealed() {
    let mut hand = Hand::new();
    let part = hand.part("a", 1, 0);
    hand.add(Body::Intent(intent(1, Some(&part), 1, "by-part")));
    hand.add(Body::Intent(intent(2, None, 1, &part.short)));
    let kind = External { kind: "upload".to_owned(), ..file(&part.short) };
    hand.add(Body::Intent(tidegate_protocol::record::Intent { resource: kind, ..intent(3, None, 1, "") }));
    let elsewhere = tidegate_protocol::record::Intent { sink: sink("b"), ..intent(4, None, 1, &part.short) };
    hand.add(Body::Intent(elsewhere));
    let first = hand.sealed(1);
    let states: Vec<IntentState> = hand.history.intents().values().map(|intent| intent.state).collect();
    use IntentState::{Open, Sealed};
    assert_eq!(states, [Sealed(first), Sealed(first), Open, Open], "the same name of another kind is another thing");
    // An announcement that comes behind the seal of its part is the checkpoint's at once.
    hand.add(Body::Intent(intent(5, Some(&part), 1, "late")));
    hand.add(Body::Bound(Bound { number: 5, name: "late-name".to_owned() }));
    assert_eq!(hand.history.intents()[&5].state, Sealed(first));
    hand.opened(2, open(Some(first)));
    assert!(matches!(hand.refuses_body(released(&["late-name"])), Kind::ReleasedWhileNamed { .. }));
    assert_eq!(hand.folded(), hand.history);
}

#[test]
fn giving_back_what_has_no_name_leaves_what_the_newest_run_announced() {
    let mut hand = Hand::new();
    hand.add(Body::Intent(intent(1, None, 1, "")));
    hand.opened(2, open(None));
    hand.add(Body::Intent(intent(2, None, 1, "")));
    hand.add(released(&[""]));
    let states: Vec<IntentState> = hand.history.intents().values().map(|intent| intent.state).collect();
    assert_eq!(states, [IntentState::Closed, IntentState::Open]);
    assert_eq!(hand.folded(), hand.history);
}

#[test]
fn what_was_announced_outside_any_part_is_given_back_for_its_first_participant() {
    let mut hand = Hand::new();
    hand.add(Body::Intent(intent(1, None, 1, "loose")));
    hand.opened(2, open(None));
    let (left, _) = hand.history.announced_and_unsealed(&pipeline(), &sink("a"));
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].part, PartId::mint(&pipeline(), &sink("a"), run(1), Epoch(1), 0, 0));
    assert_eq!(left[0].resources, [file("loose")]);
}

#[test]
fn what_a_destination_that_is_ahead_may_have_committed_is_not_given_back() {
    let announced = |hand: &Hand| {
        let (left, kept) = hand.history.announced_and_unsealed(&pipeline(), &sink("a"));
        (left.len(), kept.len())
    };
    let stranger = PartId::mint(&pipeline(), &sink("a"), run(7), Epoch(9), 0, 1);
    let seen = |hand: &Hand| {
        let last = |part: PartId| Position { last: vec![part], ..Position::default() };
        [
            // This very part; a later one of its run, while what is announced may lie between; of a run that is met there.
            (last(hand.part("a", 1, 0)), (0, 1)),
            (last(hand.part("a", 5, 0)), (0, 1)),
            (last(stranger.clone()), (0, 1)),
            (Position { fence: Some(run(7)), ..Position::default() }, (0, 1)),
            (Position::default(), (1, 0)),
        ]
    };
    for case in 0..5 {
        let mut hand = Hand::new();
        let part = hand.part("a", 1, 0);
        hand.add(Body::Intent(intent(1, Some(&part), 1, "named")));
        let (position, expected) = seen(&hand)[case].clone();
        hand.add(decision("d", accept(MismatchPolicy::AcceptDuplicates)));
        let Body::Open(opened) = under(None, &["d"]) else { panic!("an open record") };
        hand.opened(8, Open { observed: BTreeMap::from([(sink("a"), position.clone())]), ..opened });
        assert_eq!(announced(&hand), expected, "{position:?}");
        let orphan = Orphan { short: part.short.clone(), resource: file("named"), bytes: None };
        let standing = hand.history.orphan(&pipeline(), &sink("a"), &orphan);
        let left = matches!(standing, OrphanStanding::Unsealed(_));
        assert_eq!(left, expected == (1, 0), "{standing:?}");
        // The run that accepted it is none of those, whatever is accepted again.
        hand.add(Body::Intent(intent(2, Some(&hand.part("a", 1, 0)), 1, "own")));
        hand.add(decision("d2", accept(MismatchPolicy::AcceptDuplicates)));
        let Body::Open(opened) = under(None, &["d2"]) else { panic!("an open record") };
        hand.opened(9, Open { observed: BTreeMap::from([(sink("a"), position)]), ..opened });
        assert_eq!(announced(&hand), (expected.0 + 1, expected.1));
        assert_eq!(hand.folded(), hand.history);
    }
}

#[test]
fn an_epoch_keeps_what_it_carries_on_although_it_wrote_no_rows() {
    let mut hand = Hand::new();
    let mut empty = hand.seal(1, &["a"]);
    for cut in empty.sinks.values_mut() {
        cut.parts[0].committable = None;
        cut.parts[0].resources = vec![file("kept")];
    }
    hand.add(seal(empty));
    let first = hand.of(1);
    assert_eq!(hand.history.outcome(&sink("a"), first), Some(&SinkEpochState::Committed));
    let holders: Vec<_> = hand.history.ledger().iter().flat_map(|(_, entry)| entry.holders.keys()).collect();
    assert_eq!(holders.len(), 1, "the checkpoint, and no commit: {holders:?}");
}

#[test]
fn runs_that_this_log_never_opened_sealed_nothing_here() {
    let hand = Hand::new();
    let foreign = EpochRef { run: run(9), epoch: Epoch(1) };
    assert!(!hand.history.may_be_sealed(foreign));
    assert!(!hand.history.descends(foreign, hand.of(1)));
    let part = PartId::mint(&pipeline(), &sink("a"), run(9), Epoch(1), 0, 1);
    let orphan = Orphan { short: part.short.clone(), resource: file("x"), bytes: None };
    assert_eq!(hand.history.orphan(&pipeline(), &sink("a"), &orphan), OrphanStanding::Foreign);
}

#[test]
fn of_several_parts_of_one_participant_the_newest_stands_in_whatever_order_they_are_seen() {
    let mut hand = Hand::new();
    let (old, new) = (hand.part("a", 3, 0), hand.part("a", 5, 0));
    hand.add(decision("d", accept(MismatchPolicy::AcceptDuplicates)));
    for last in [[old.clone(), new.clone()], [new.clone(), old]] {
        let mut hand = Hand { history: hand.history.clone(), records: hand.records.clone(), run: run(2) };
        let position = Position { last: last.to_vec(), ..Position::default() };
        let Body::Open(opened) = under(None, &["d"]) else { panic!("an open record") };
        hand.add(Body::Open(Open { observed: BTreeMap::from([(sink("a"), position)]), ..opened }));
        assert_eq!(hand.history.standing(&sink("a")).by_participant, BTreeMap::from([(0, new.clone())]));
    }
}
