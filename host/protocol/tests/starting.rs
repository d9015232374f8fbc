//! Starts that meet silence, refusals, newer runs, stops and decisions.

mod world;

use std::collections::BTreeMap;

use tidegate_protocol::coordinator::{Phase, Settings};
use tidegate_protocol::event::{Effect, End, Event, Graph, Mismatch, Notice, Refusal, ReplayWaits, TaskFailure, Timer};
use tidegate_protocol::ids::{EpochRef, Nonce, OperatorId, PipelineId, RunId, SinkId};
use tidegate_protocol::plugin::{
    Abilities, AtomicScope, Call, CallFault, ErrorKind, FaultKind, Outcome, PluginError, Position,
};
use tidegate_protocol::record::{Blocked, Body, Choice, Decision, EpochOutcome, MismatchPolicy, OutcomeEntry, Record};
use world::drive::*;
use world::host::{Host, fault};
use world::{SharedLog, World, abilities, settings, sink};

fn observes(effect: &Effect) -> bool {
    matches!(effect, Effect::Observe { .. })
}

fn fences(effect: &Effect) -> bool {
    matches!(effect, Effect::Fence { .. })
}

fn observed(host: &mut Host, at: &str, result: Result<Position, CallFault>) {
    host.take(|effect| matches!(effect, Effect::Observe { sink: asked, .. } if *asked == sink(at))).expect("asked");
    host.tell(Event::Observed { sink: sink(at), result });
}

fn fenced(host: &mut Host, result: Result<Position, CallFault>) {
    host.take(fences).expect("asked");
    host.tell(Event::Fenced { sink: sink("a"), result });
}

fn no(call: Call, kind: ErrorKind, code: &str) -> CallFault {
    let error = PluginError { kind, code: code.to_owned(), message: "m".to_owned() };
    CallFault::new("model 1", call, FaultKind::Error(error), "")
}

/// A start whose `open` record is written and whose sink is about to be fenced.
fn about_to_fence(world: &mut World, graph: &Graph) -> Host {
    let mut host = Host::start(world, graph, settings(), 1);
    host.settle(world, fences);
    assert_eq!(host.coordinator.status().phase, Phase::Fencing);
    host
}

fn position(world: &World) -> Position {
    world.destinations[&sink("a")].position()
}

fn accepting(id: &str, policy: MismatchPolicy) -> Settings {
    Settings { mismatch: BTreeMap::from([(sink("a"), (id.to_owned(), "me".to_owned(), policy))]), ..settings() }
}

/// Two committed epochs of two rows each, by a run that stopped.
fn two_epochs(world: &mut World, graph: &Graph) {
    let mut host = started(world, graph, 1);
    for _ in 0..2 {
        host.epoch(world, 2);
        host.settle(world, everything);
    }
    host.tell(Event::StopRequested);
    host.settle(world, everything);
    assert_eq!(host.ended, Some(End::Stopped));
}

#[test]
fn a_start_begins_once() {
    let (world, graph) = one_sink(abilities());
    let mut host = Host::start(&world, &graph, settings(), 1);
    host.tell(Event::Start);
    assert!(host.take(observes).is_some());
    assert!(host.take(observes).is_none());
}

#[test]
fn a_destination_that_does_not_answer_is_asked_so_often_and_no_more() {
    let (world, graph) = one_sink(abilities());
    let mut host = Host::start(&world, &graph, settings(), 1);
    let mut asked = 0;
    while host.ended.is_none() {
        observed(&mut host, "a", Err(fault(Call::Observe, FaultKind::Timeout)));
        asked += 1;
        host.tell(Event::Observed { sink: sink("a"), result: Ok(Position::default()) });
        assert_ne!(host.coordinator.status().phase, Phase::Opening, "an answer that nobody waits for");
        host.timers();
    }
    assert_eq!(asked, 5);
    assert!(matches!(&host.ended, Some(End::Failed(TaskFailure::Plugin(_, fault))) if fault.call == Call::Observe));
    assert!(world.log.records.is_empty(), "nothing was changed");
}

#[test]
fn an_answer_that_no_further_try_can_better_ends_a_start_at_once() {
    let (world, graph) = one_sink(abilities());
    for kind in [ErrorKind::Permanent, ErrorKind::BadConfig, ErrorKind::Denied, ErrorKind::Unsupported] {
        let mut host = Host::start(&world, &graph, settings(), 1);
        observed(&mut host, "a", Err(no(Call::Observe, kind, "c")));
        assert!(matches!(host.ended, Some(End::Failed(TaskFailure::Plugin(..)))), "{kind:?}: {:?}", host.ended);
    }
    let mut host = Host::start(&world, &graph, settings(), 1);
    observed(&mut host, "a", Err(no(Call::Observe, ErrorKind::Fenced, "c")));
    assert!(matches!(host.ended, Some(End::Superseded(_))), "{:?}", host.ended);
}

#[test]
fn why_a_start_waits_is_told_once_for_each_reason() {
    let (world, graph) = one_sink(abilities());
    let mut host = Host::start(&world, &graph, settings(), 1);
    let mut told = Vec::new();
    for code in ["busy", "busy", "no-space", "busy"] {
        host.take(observes).expect("asked");
        let result = Err(no(Call::Observe, ErrorKind::Retryable, code));
        let effects = host.coordinator.step(2_000, Event::Observed { sink: sink("a"), result });
        told.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Notice(Notice::CallFails { fault, of: None, .. }) => fault.error().map(|error| error.code.clone()),
            _ => None,
        }));
        host.tell(Event::TimerFired { timer: Timer::StartRetry(sink("a")) });
    }
    assert_eq!(told, ["busy", "no-space", "busy"]);
}

#[test]
fn what_comes_when_a_start_is_ending_or_is_not_asked_for_changes_nothing() {
    let (mut world, graph) = sinks(vec![("a", abilities()), ("b", abilities())]);
    let mut host = Host::start(&world, &graph, settings(), 1);
    observed(&mut host, "a", Ok(Position::default()));
    host.tell(Event::Observed { sink: sink("a"), result: Err(no(Call::Observe, ErrorKind::Fenced, "c")) });
    host.tell(Event::Fenced { sink: sink("a"), result: Err(no(Call::Fence, ErrorKind::Fenced, "c")) });
    host.tell(Event::TimerFired { timer: Timer::StartRetry(sink("a")) });
    assert!(host.ended.is_none() && host.take(fences).is_none(), "{:?}", host.ended);
    host.settle(&mut world, fences);
    // The record of a drain or an announcement may still be on its way when the end is decided: here the log is asked
    // for the run's record while a destination says that it is somebody else's.
    fenced(&mut host, Err(no(Call::Fence, ErrorKind::Retryable, "busy")));
    host.tell(Event::Fenced { sink: sink("a"), result: Err(no(Call::Fence, ErrorKind::Fenced, "c")) });
    assert!(host.ended.is_none(), "it waits for its timer, and for no answer");
}

#[test]
fn answers_about_sinks_that_are_not_part_of_the_pipeline_change_nothing() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 2);
    host.settle(&mut world, commits);
    let (at, of) = (sink("z"), seals(&world)[0]);
    let superseded = |call| no(call, ErrorKind::Fenced, "c");
    for event in [
        Event::Observed { sink: at.clone(), result: Err(superseded(Call::Observe)) },
        Event::Fenced { sink: at.clone(), result: Err(superseded(Call::Fence)) },
        Event::CommitAnswered { sink: at.clone(), of, attempt: 1, result: Err(superseded(Call::Commit)) },
        Event::Reconciled { sink: at.clone(), of, attempt: 1, result: Err(superseded(Call::Reconcile)) },
        Event::OrphansListed { sink: at.clone(), result: Err(superseded(Call::ListOrphans)) },
        Event::Abandoned { sink: at.clone(), result: Err(superseded(Call::Abandon)) },
        Event::ReleaseAnswered { sink: at.clone(), result: Err(superseded(Call::Release)) },
        Event::TimerFired { timer: Timer::StartRetry(at.clone()) },
        Event::TimerFired { timer: Timer::CleanUpRetry(at.clone()) },
        Event::TimerFired { timer: Timer::CommitRetry(at.clone(), of) },
    ] {
        let before = host.coordinator.clone();
        assert_eq!(host.coordinator.step(host.now, event.clone()), [], "{event:?}");
        assert!(host.coordinator == before, "{event:?}");
    }
}

#[test]
fn a_fence_whose_answer_is_lost_is_looked_for_before_it_is_tried_again() {
    let (mut world, graph) = one_sink(abilities());
    // Carried out: the destination shows it.
    let mut host = about_to_fence(&mut world, &graph);
    let run = host.coordinator.run().expect("a run");
    let before = position(&world);
    world.destinations.get_mut(&sink("a")).expect("a").fence(&before, run);
    fenced(&mut host, Err(fault(Call::Fence, FaultKind::AnswerLost)));
    host.timers();
    assert!(host.take(fences).is_none());
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running, "{:?}", host.ended);
}

#[test]
fn a_destination_that_cannot_be_fenced_fails_the_start_after_its_tries() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = about_to_fence(&mut world, &graph);
    let mut tries = 0;
    while host.ended.is_none() {
        match host.take(|effect| observes(effect) || fences(effect)) {
            Some(Effect::Fence { .. }) => {
                tries += 1;
                let result = Err(fault(Call::Fence, FaultKind::Timeout));
                host.tell(Event::Fenced { sink: sink("a"), result });
            }
            Some(_) => host.tell(Event::Observed { sink: sink("a"), result: Ok(position(&world)) }),
            None => host.timers(),
        }
    }
    assert_eq!(tries, 5);
    assert!(matches!(&host.ended, Some(End::Failed(TaskFailure::Plugin(_, fault))) if fault.call == Call::Fence));
}

#[test]
fn a_destination_that_always_changes_before_it_is_fenced_belongs_to_somebody_else() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = about_to_fence(&mut world, &graph);
    let mut tries = 0;
    while host.ended.is_none() {
        match host.take(|effect| observes(effect) || fences(effect)) {
            Some(Effect::Fence { .. }) => {
                tries += 1;
                host.tell(Event::Fenced { sink: sink("a"), result: Ok(position(&world)) });
            }
            Some(_) => host.tell(Event::Observed { sink: sink("a"), result: Ok(position(&world)) }),
            None => host.timers(),
        }
    }
    assert_eq!(tries, 5);
    assert!(
        matches!(&host.ended, Some(End::Superseded(words)) if words.contains("keeps changing")),
        "{:?}",
        host.ended
    );
}

#[test]
fn a_destination_that_fences_and_is_not_observed_is_fenced_by_its_answer() {
    let can = Abilities { observe: false, ..abilities() };
    let (mut world, graph) = one_sink(can);
    let mut host = about_to_fence(&mut world, &graph);
    fenced(&mut host, Err(fault(Call::Fence, FaultKind::AnswerLost)));
    host.timers();
    assert!(host.take(observes).is_none(), "it cannot be asked");
    let run = host.coordinator.run().expect("a run");
    fenced(&mut host, Ok(Position { fence: Some(run), ..Position::default() }));
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running, "{:?}", host.ended);
}

#[test]
fn a_fence_of_a_newer_run_ends_the_start_wherever_it_is_seen() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = about_to_fence(&mut world, &graph);
    fenced(&mut host, Err(no(Call::Fence, ErrorKind::Fenced, "c")));
    assert!(matches!(host.ended, Some(End::Superseded(_))), "{:?}", host.ended);

    let (mut world, graph) = one_sink(abilities());
    let mut host = about_to_fence(&mut world, &graph);
    let newer = RunId { number: 7, nonce: Nonce([7; 10]) };
    fenced(&mut host, Err(fault(Call::Fence, FaultKind::AnswerLost)));
    host.timers();
    observed(&mut host, "a", Ok(Position { fence: Some(newer), ..Position::default() }));
    assert!(matches!(&host.ended, Some(End::Superseded(words)) if words.contains("run 7-")), "{:?}", host.ended);
}

#[test]
fn a_destination_without_a_fence_is_looked_at_again_all_the_same() {
    let (mut world, graph) = one_sink(Abilities { fence: false, ..abilities() });
    two_epochs(&mut world, &graph);
    let mut host = Host::start(&world, &graph, settings(), 2);
    host.settle(&mut world, appends);
    host.settle(&mut world, observes);
    // Somebody restored a backup between the two looks.
    world.destinations.get_mut(&sink("a")).expect("a").committed.truncate(2);
    host.settle(&mut world, everything);
    assert!(matches!(refusal(&host), Refusal::Mismatch { mismatch: Mismatch::Behind { .. }, .. }), "{:?}", host.ended);
    // What a destination without fences says of a fence is not believed.
    let (mut world, graph) = one_sink(Abilities { fence: false, ..abilities() });
    let mut host = Host::start(&world, &graph, settings(), 2);
    host.settle(&mut world, appends);
    host.settle(&mut world, observes);
    let stranger = RunId { number: 7, nonce: Nonce([7; 10]) };
    observed(&mut host, "a", Ok(Position { fence: Some(stranger), ..Position::default() }));
    assert!(
        matches!(refusal(&host), Refusal::Mismatch { mismatch: Mismatch::Foreign { run }, .. } if *run == stranger)
    );
}

#[test]
fn run_numbers_that_are_spent_refuse_the_start() {
    let (mut world, graph) = one_sink(abilities());
    let last = RunId { number: u64::MAX - 1, nonce: Nonce([9; 10]) };
    world.destinations.get_mut(&sink("a")).expect("a").fence = Some(last);
    let host = started_with(&mut world, &graph, accepting("d", MismatchPolicy::AcceptDuplicates), 1);
    assert!(matches!(refusal(&host), Refusal::Log(words) if words.contains("spent")), "{:?}", host.ended);
    assert!(world.log.records.is_empty());
}

/// What is published then is more than the destination has: that loss was accepted.
fn started_after_loss(world: &mut World, graph: &Graph, settings: Settings, nonce: u8) -> Host {
    let mut host = Host::start(world, graph, settings, nonce);
    host.settle(world, |effect| matches!(effect, Effect::PublishProgress { .. }));
    host
}

#[test]
fn a_policy_allows_only_what_it_is_for() {
    let (mut world, graph) = one_sink(abilities());
    two_epochs(&mut world, &graph);
    world.destinations.get_mut(&sink("a")).expect("a").committed.truncate(2);
    let host = started_with(&mut world, &graph, accepting("d1", MismatchPolicy::AcceptDuplicates), 2);
    assert!(matches!(refusal(&host), Refusal::Mismatch { mismatch: Mismatch::Behind { .. }, .. }));
    let host = started_after_loss(&mut world, &graph, accepting("d2", MismatchPolicy::AcceptLoss), 3);
    assert!(host.ended.is_none(), "{:?}", host.ended);
    let (mut world, graph) = one_sink(abilities());
    two_epochs(&mut world, &graph);
    world.log = SharedLog::default();
    let host = started_with(&mut world, &graph, accepting("d3", MismatchPolicy::AcceptLoss), 2);
    assert!(matches!(refusal(&host), Refusal::Mismatch { mismatch: Mismatch::Foreign { .. }, .. }));
}

#[test]
fn a_recorded_policy_for_one_sink_says_nothing_about_another() {
    let (mut world, graph) = sinks(vec![("a", abilities()), ("b", abilities())]);
    two_epochs(&mut world, &graph);
    world.destinations.get_mut(&sink("a")).expect("a").committed.truncate(2);
    record_decision(&mut world, "for-b", Choice::Accept { sink: sink("b"), policy: MismatchPolicy::AcceptLoss });
    let host = started(&mut world, &graph, 2);
    assert!(matches!(refusal(&host), Refusal::Mismatch { sink: at, .. } if *at == sink("a")), "{:?}", host.ended);
    record_decision(&mut world, "for-a", Choice::Accept { sink: sink("a"), policy: MismatchPolicy::AcceptLoss });
    let host = started_after_loss(&mut world, &graph, settings(), 3);
    assert!(host.ended.is_none(), "{:?}", host.ended);
    assert_eq!(host.coordinator.history().decisions()["for-b"].used_by, None);
}

/// Writes what `tidegate resolve` would, between two runs.
fn record_decision(world: &mut World, id: &str, choice: Choice) {
    let history = world.log.fold();
    let decision = Decision { id: id.to_owned(), by: "me".to_owned(), choice };
    world.log.append(&Record {
        slot: history.next_slot(),
        run: history.newest_run().expect("a run"),
        written_at: 1,
        outcomes: Vec::new(),
        body: Body::Decision(decision),
    });
}

#[test]
fn a_replay_needs_a_checkpoint_at_which_the_destination_stands() {
    let (mut world, graph) = one_sink(abilities());
    two_epochs(&mut world, &graph);
    let destination = world.destinations.get_mut(&sink("a")).expect("a");
    destination.committed.clear();
    let host = started_with(&mut world, &graph, accepting("d", MismatchPolicy::ReplayFromDestination), 2);
    let Refusal::Mismatch { mismatch: Mismatch::Behind { .. }, policies, .. } = refusal(&host) else {
        panic!("{:?}", host.ended)
    };
    assert_eq!(*policies, [MismatchPolicy::AcceptLoss], "an empty destination stands at no checkpoint");
}

#[test]
fn a_replay_waits_until_nothing_behind_it_can_land_any_more() {
    let (mut world, graph) = sinks(vec![("a", abilities()), ("b", abilities())]);
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, everything);
    host.epoch(&mut world, 4);
    let to_b = |effect: &Effect| matches!(effect, Effect::Commit(permit) if *permit.sink() == sink("b"));
    host.settle(&mut world, to_b);
    // Epoch 2 is committed at `a` and on its way at `b`; the next record says so.
    host.tell(Event::TimerFired { timer: Timer::IdleFlush });
    host.settle(&mut world, to_b);
    drop(host);
    let destination = world.destinations.get_mut(&sink("a")).expect("a");
    destination.committed.truncate(2);
    let replay = accepting("d", MismatchPolicy::ReplayFromDestination);
    let second = seals(&world)[1];
    // It is not offered, and asking for it all the same says the same.
    for (nonce, settings) in [(2, settings()), (3, replay.clone())] {
        let refused = started_with(&mut world, &graph, settings, nonce);
        let Refusal::Mismatch { policies, replay_waits, .. } = refusal(&refused) else { panic!("{:?}", refused.ended) };
        assert_eq!(*policies, [MismatchPolicy::AcceptLoss]);
        let expected = ReplayWaits { sink: sink("b"), of: second, blocked: false };
        assert_eq!(replay_waits.as_deref(), Some(&expected));
    }
    let history = world.log.fold();
    let outcome = EpochOutcome::Blocked(Blocked::CannotAsk("m".to_owned()));
    world.log.append(&Record {
        slot: history.next_slot(),
        run: history.newest_run().expect("a run"),
        written_at: 1,
        outcomes: vec![OutcomeEntry { sink: sink("b"), of: second, attempt: 1, outcome }],
        body: Body::Outcomes,
    });
    let refused = started(&mut world, &graph, 4);
    let Refusal::Mismatch { replay_waits, .. } = refusal(&refused) else { panic!("{:?}", refused.ended) };
    assert!(replay_waits.as_ref().is_some_and(|waits| waits.blocked), "{replay_waits:?}");
    // What the refusal then asks for is enough.
    record_decision(&mut world, "no", Choice::GiveUp { sink: sink("b"), of: second });
    let refused = started(&mut world, &graph, 5);
    let Refusal::Mismatch { policies, replay_waits: None, .. } = refusal(&refused) else {
        panic!("{:?}", refused.ended)
    };
    assert_eq!(*policies, [MismatchPolicy::AcceptLoss, MismatchPolicy::ReplayFromDestination]);
    let back = started_with(&mut world, &graph, replay, 6);
    assert_eq!((back.ended.is_none(), back.coordinator.status().phase), (true, Phase::Running), "{:?}", back.ended);
}

#[test]
fn two_decisions_under_one_id_are_refused_before_anything_is_asked() {
    let (mut world, graph) = sinks(vec![("a", abilities()), ("b", abilities())]);
    two_epochs(&mut world, &graph);
    let wish = ("d".to_owned(), "me".to_owned(), MismatchPolicy::AcceptLoss);
    let mismatch: BTreeMap<SinkId, _> = [sink("a"), sink("b")].map(|at| (at, wish.clone())).into();
    let twice = Settings { mismatch: mismatch.clone(), ..settings() };
    assert!(matches!(new(&world, &graph, twice), Err(Refusal::Graph(words)) if words.contains("`d`")));
    let first = seals(&world)[0];
    let alone = mismatch.into_iter().take(1).collect();
    let with_fork = Settings { mismatch: alone, ..fork("d", first) };
    assert!(matches!(new(&world, &graph, with_fork), Err(Refusal::Graph(words)) if words.contains("`d`")));
}

#[test]
fn a_checkpoint_that_is_retired_is_no_point_to_replay_from() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    let release = |effect: &Effect| matches!(effect, Effect::Release { .. });
    for _ in 0..6 {
        host.epoch(&mut world, 2);
        host.settle(&mut world, release);
    }
    drop(host);
    let oldest = world.log.fold().checkpoints().next().map(|epoch| (epoch.of, epoch.checkpoint)).expect("sealed");
    assert_eq!(oldest.1, tidegate_protocol::history::CheckpointState::Retired);
    let destination = world.destinations.get_mut(&sink("a")).expect("a");
    destination.committed.retain(|(part, _)| part.epoch_ref() == oldest.0);
    let refused = started(&mut world, &graph, 2);
    let Refusal::Mismatch { policies, .. } = refusal(&refused) else { panic!("{:?}", refused.ended) };
    assert_eq!(*policies, [MismatchPolicy::AcceptLoss]);
}

#[test]
fn a_destination_that_stands_at_a_deleted_checkpoint_is_behind_and_no_place_to_go_back_to() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 2);
    host.settle(&mut world, everything);
    let (first, newest) = (seals(&world)[0], world.destinations[&sink("a")].committed.clone());
    for _ in 0..8 {
        host.epoch(&mut world, 2);
        host.settle(&mut world, everything);
    }
    assert!(host.coordinator.history().seal(first).is_none(), "deleted");
    let retained = seals(&world)[1];
    drop(host);
    world.destinations.get_mut(&sink("a")).expect("a").committed = newest;
    let policies_of = |host: &Host| match refusal(host) {
        Refusal::Mismatch { mismatch: Mismatch::Behind { .. }, policies, .. } => policies.clone(),
        other => panic!("{other:?}"),
    };
    let refused = started(&mut world, &graph, 2);
    assert_eq!(policies_of(&refused), [MismatchPolicy::AcceptLoss]);
    let refused = started_with(&mut world, &graph, fork("f", retained), 3);
    assert_eq!(policies_of(&refused), [MismatchPolicy::AcceptLoss], "going back to a later one does not help");
}

#[test]
fn parts_of_runs_that_the_log_does_not_know_are_foreign() {
    let (mut world, graph) = one_sink(Abilities { fence: false, ..abilities() });
    two_epochs(&mut world, &graph);
    world.log = SharedLog::default();
    let refused = started(&mut world, &graph, 2);
    let number_one = RunId { number: 1, nonce: Nonce([1; 10]) };
    assert!(
        matches!(refusal(&refused), Refusal::Mismatch { mismatch: Mismatch::Foreign { run }, .. } if *run == number_one)
    );
    // A run that was accepted is ours by what it wrote and by its fence; another one is not.
    let accept = accepting("d", MismatchPolicy::AcceptDuplicates);
    let accepted = started_with(&mut world, &graph, accept, 3);
    assert!(accepted.ended.is_none(), "{:?}", accepted.ended);
    drop(accepted);
    let stranger = RunId { number: 1, nonce: Nonce([77; 10]) };
    world.destinations.get_mut(&sink("a")).expect("a").fence = Some(stranger);
    let refused = started(&mut world, &graph, 4);
    assert!(
        matches!(refusal(&refused), Refusal::Mismatch { mismatch: Mismatch::Foreign { run }, .. } if *run == stranger)
    );
}

#[test]
fn a_run_that_was_accepted_stays_accepted_while_its_fence_stands() {
    let (mut world, graph) = one_sink(abilities());
    let stranger = RunId { number: 5, nonce: Nonce([77; 10]) };
    world.destinations.get_mut(&sink("a")).expect("a").fence = Some(stranger);
    let mut crashed = Host::start(&world, &graph, accepting("d", MismatchPolicy::AcceptDuplicates), 1);
    crashed.settle(&mut world, fences);
    assert_eq!(crashed.coordinator.status().phase, Phase::Fencing, "{:?}", crashed.ended);
    drop(crashed);
    let next = started(&mut world, &graph, 2);
    assert!(next.ended.is_none(), "{:?}", next.ended);
    assert!(next.coordinator.run().is_some_and(|run| run.number > stranger.number));
}

#[test]
fn what_was_accepted_at_a_destination_lies_behind_no_fork() {
    let (mut world, graph) = one_sink(abilities());
    two_epochs(&mut world, &graph);
    let there = world.destinations[&sink("a")].rows();
    world.log = SharedLog::default();
    let mut host = started_with(&mut world, &graph, accepting("d", MismatchPolicy::AcceptDuplicates), 2);
    for name in ["one", "two"] {
        host.ask(|request| Event::SavepointAsked { request, name: name.to_owned() });
        host.settle(&mut world, everything);
    }
    let first = seals(&world)[0];
    drop(host);
    let back = started_with(&mut world, &graph, fork("f", first), 3);
    assert!(back.ended.is_none(), "{:?}", back.ended);
    assert_eq!(world.destinations[&sink("a")].rows(), there);
}

#[test]
fn a_drain_goes_on_when_its_last_outcome_is_durable() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started_with(&mut world, &graph, Settings { retain_count: 10, ..settings() }, 1);
    for _ in 0..2 {
        host.epoch(&mut world, 4);
        host.settle(&mut world, commits);
    }
    let first = seals(&world)[0];
    drop(host);
    let mut draining = Host::start(&world, &graph, fork("f", first), 2);
    let outcomes =
        |effect: &Effect| matches!(effect, Effect::Append { record } if matches!(record.body, Body::Outcomes));
    draining.settle(&mut world, outcomes);
    draining.tell(Event::TimerFired { timer: Timer::Sweep });
    assert!(draining.take(observes).is_none(), "the outcome is on its way");
    draining.settle(&mut world, everything);
    let parent = draining.coordinator.history().runs().values().next_back().and_then(|node| node.open.parent);
    assert_eq!((draining.ended.is_none(), parent), (true, Some(first)), "{:?}", draining.ended);
}

#[test]
fn a_part_that_is_not_the_sealed_one_was_never_sealed() {
    let (mut world, graph) = one_sink(abilities());
    two_epochs(&mut world, &graph);
    let destination = world.destinations.get_mut(&sink("a")).expect("a");
    let (part, rows) = destination.committed.pop().expect("committed");
    let run = part.run;
    let again = tidegate_protocol::ids::PartId::mint(&world::pipeline(), &sink("a"), run, part.epoch, part.ordinal, 2);
    destination.committed.push((again, rows));
    let refused = started(&mut world, &graph, 2);
    assert!(
        matches!(refusal(&refused), Refusal::Mismatch { mismatch: Mismatch::Ahead { .. }, .. }),
        "{:?}",
        refused.ended
    );
}

#[test]
fn a_log_of_another_pipeline_and_a_graph_without_writers_are_refused_before_anything_is_asked() {
    let (mut world, mut graph) = one_sink(abilities());
    two_epochs(&mut world, &graph);
    let other = PipelineId::new("q").expect("a legal name");
    let made = tidegate_protocol::coordinator::Coordinator::new(
        other,
        graph.clone(),
        "graph".to_owned(),
        settings(),
        world.log.all(),
        Nonce([5; 10]),
    );
    assert!(matches!(made, Err(Refusal::Log(words)) if words.contains("`p`") && words.contains("`q`")));
    if let Some(spec) = graph.sinks.get_mut(&sink("a")) {
        spec.participants = 0;
    }
    assert!(matches!(new(&world, &graph, settings()), Err(Refusal::Graph(words)) if words.contains("no participants")));
}

#[test]
fn a_removed_sink_is_missed_in_the_singular_and_the_plural() {
    let (mut world, graph) = sinks(vec![("a", abilities()), ("b", abilities())]);
    let mut host = started(&mut world, &graph, 1);
    let mut without = graph.clone();
    without.sinks.remove(&sink("b"));
    for words in ["1 epoch is", "2 epochs are"] {
        host.epoch(&mut world, 4);
        host.settle(&mut world, commits);
        let Err(Refusal::Graph(said)) = new(&world, &without, settings()) else { panic!("it was not refused") };
        assert!(said.contains("removed or renamed") && said.contains(words), "{said}");
    }
}

#[test]
fn a_stop_during_a_start_ends_it_at_the_next_safe_point() {
    let (mut world, graph) = one_sink(abilities());
    let at_append = |effect: &Effect| appends(effect);
    let mut host = Host::start(&world, &graph, settings(), 1);
    host.settle(&mut world, at_append);
    host.tell(Event::StopRequested);
    assert!(host.ended.is_none(), "the record of the run is on its way");
    host.settle(&mut world, everything);
    assert_eq!(host.ended, Some(End::Stopped));
    assert!(host.take(fences).is_none(), "nothing was fenced any more");

    let abandoning = |effect: &Effect| matches!(effect, Effect::ListOrphans { .. });
    let mut host = Host::start(&world, &graph, settings(), 2);
    host.settle(&mut world, abandoning);
    assert_eq!(host.coordinator.status().phase, Phase::Cleaning);
    host.tell(Event::StopRequested);
    assert_eq!(host.ended, Some(End::Stopped));
}

#[test]
fn a_stop_that_meets_the_last_answer_of_a_start_opens_nothing() {
    let (mut world, graph) =
        one_sink(Abilities { orphans: tidegate_protocol::plugin::Orphans::DurableIntent, ..abilities() });
    let mut host = Host::start(&world, &graph, settings(), 1);
    host.settle(&mut world, |effect| matches!(effect, Effect::OpenTasks(_)));
    host.tell(Event::StopRequested);
    host.settle(&mut world, everything);
    assert_eq!(host.ended, Some(End::Stopped));
}

#[test]
fn a_drain_that_a_person_must_decide_on_ends_blocked_and_forks_nothing() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started_with(&mut world, &graph, Settings { retain_count: 10, ..settings() }, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, everything);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let first = seals(&world)[0];
    drop(host);
    let asks = |effect: &Effect| matches!(effect, Effect::Reconcile(_));
    let mut draining = Host::start(&world, &graph, fork("f", first), 2);
    draining.settle(&mut world, asks);
    let Some(Effect::Reconcile(permit)) = draining.take(asks) else { panic!("nothing is asked") };
    let refused = PluginError { kind: ErrorKind::Permanent, code: "c".to_owned(), message: "m".to_owned() };
    let (at, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
    let result = Ok(vec![Outcome::Rejected(refused); permit.committables().len()]);
    draining.tell(Event::Reconciled { sink: at, of, attempt, result });
    assert!(draining.ended.is_none(), "that it is blocked is written first");
    draining.settle(&mut world, everything);
    let Some(End::Blocked { waiting }) = &draining.ended else { panic!("{:?}", draining.ended) };
    assert!(matches!(waiting[..], [(_, blocked, Blocked::Rejected(_))] if blocked == of));
    let parents: Vec<Option<EpochRef>> = world.log.fold().runs().values().map(|node| node.open.parent).collect();
    assert!(!parents.contains(&Some(first)), "no run forked: {parents:?}");
}

#[test]
fn one_blocked_sink_lets_the_others_start() {
    let (mut world, graph) = sinks(vec![("a", abilities()), ("b", abilities())]);
    let to_b = |effect: &Effect| matches!(effect, Effect::Commit(permit) if *permit.sink() == sink("b"));
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, to_b);
    let Some(Effect::Commit(permit)) = host.take(to_b) else { panic!("no commit to b") };
    answer(&mut host, &permit, Ok(vec![Outcome::Never, Outcome::Never]));
    host.tell(Event::TimerFired { timer: Timer::IdleFlush });
    host.settle(&mut world, to_b);
    // A second epoch waits behind the blocked one.
    host.epoch(&mut world, 4);
    host.settle(&mut world, everything);
    drop(host);
    let next = started(&mut world, &graph, 2);
    let status = next.coordinator.status();
    assert_eq!((status.phase, status.blocked.len(), status.waiting.len()), (Phase::Running, 1, 2), "{:?}", next.ended);
    // With no room for a further epoch there is nothing that a start could be for.
    let few = Settings { max_waiting: 2, ..settings() };
    let full = started_with(&mut world, &graph, few, 3);
    assert!(matches!(&full.ended, Some(End::Blocked { waiting }) if waiting.len() == 1), "{:?}", full.ended);
}

#[test]
fn the_state_of_an_operator_that_was_removed_is_dropped_with_a_warning() {
    let (mut world, mut graph) = one_sink(abilities());
    let op = OperatorId::new("op").expect("a legal name");
    let host = started(&mut world, &graph, 1);
    let run = host.coordinator.run().expect("a run");
    drop(host);
    graph.operators.insert(op.clone(), 1);
    let mut history = world.log.fold();
    let mut hand = world::records::Hand { history: history.clone(), records: Vec::new(), run };
    let mut seal = hand.seal(1, &["a"]);
    seal.operators.insert(op, vec![world::records::operator_cut(1, 1)]);
    let slot = hand.add(Body::Seal(Box::new(seal)));
    for record in &hand.records {
        world.log.append(record);
    }
    history = world.log.fold();
    assert_eq!(history.next_slot(), slot.next());
    let part = hand.part("a", 1, 0);
    world.destinations.get_mut(&sink("a")).expect("a").committed.push((part, vec![0]));
    graph.operators.clear();
    let mut next = Host::start(&world, &graph, settings(), 2);
    next.settle(&mut world, |effect| matches!(effect, Effect::ListOrphans { .. }));
    next.take(|effect| matches!(effect, Effect::ListOrphans { .. })).expect("a listing");
    let page = tidegate_protocol::plugin::OrphanPage { orphans: Vec::new(), next: None };
    let effects = next.coordinator.step(9_000, Event::OrphansListed { sink: sink("a"), result: Ok(page) });
    let warned = effects.iter().any(|e| matches!(e, Effect::Notice(Notice::Warning(words)) if words.contains("`op`")));
    assert!(warned, "{effects:?}");
    let restored = effects.iter().find_map(|e| if let Effect::OpenTasks(restored) = e { Some(restored) } else { None });
    assert!(restored.is_some_and(|restored| restored.operators.is_empty()), "{effects:?}");
}

#[test]
fn participants_that_stand_apart_are_compared_one_by_one() {
    let can = Abilities { atomic_scope: AtomicScope::Participant, ..abilities() };
    let (mut world, graph) = one_sink(can);
    two_epochs(&mut world, &graph);
    let destination = world.destinations.get_mut(&sink("a")).expect("a");
    let newest = destination.committed.last().map(|(part, _)| part.epoch).expect("committed");
    destination.committed.retain(|(part, _)| part.ordinal == 0 || part.epoch < newest);
    let refused = started(&mut world, &graph, 2);
    assert!(
        matches!(refusal(&refused), Refusal::Mismatch { mismatch: Mismatch::Behind { .. }, .. }),
        "{:?}",
        refused.ended
    );
}
