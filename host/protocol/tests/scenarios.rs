//! The counter-examples that shaped the design (`ce…`), and real failures of other systems (`b…`), one by one.

mod world;

use std::collections::BTreeMap;

use tidegate_protocol::coordinator::Settings;
use tidegate_protocol::event::{AppendResult, Effect, End, Event, Graph, Mismatch, Refusal, TaskFailure};
use tidegate_protocol::history::{CheckpointState, SinkEpochState};
use tidegate_protocol::ids::{Epoch, EpochRef, Nonce, PartId, RunId};
use tidegate_protocol::permit::CommitPermit;
use tidegate_protocol::plugin::{Abilities, AtomicScope, Call, ErrorKind, FaultKind, Outcome};
use tidegate_protocol::record::{Blocked, Body, Choice, CutReason, Decision, MismatchPolicy, Record};
use world::drive::*;
use world::host::{Host, fault, plugin_error};
use world::{SharedLog, World, abilities, settings, sink};

#[test]
fn ce01_a_sleeper_cannot_seal_what_a_newer_run_gave_back() {
    let (mut world, graph) = one_sink(abilities());
    let mut sleeper = started(&mut world, &graph, 1);
    sleeper.epoch(&mut world, 4);
    sleeper.settle(&mut world, appends);
    let newer = started(&mut world, &graph, 2);
    assert!(world.destinations[&sink("a")].staged.is_empty(), "the newer run gave the work back");
    sleeper.settle(&mut world, everything);
    assert!(matches!(sleeper.ended, Some(End::Superseded(_))), "{:?}", sleeper.ended);
    assert!(seals(&world).is_empty() && newer.ended.is_none());
}

#[test]
fn ce02_a_run_that_does_not_know_of_its_seal_ends_and_gives_nothing_back() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, appends);
    let Some(Effect::Append { record }) = host.take(appends) else { panic!("no seal waits") };
    host.tell(Event::Appended { slot: record.slot, result: AppendResult::Unknown("timeout".to_owned()) });
    assert!(matches!(host.ended, Some(End::StoreFailed(_))));
    assert!(host.take(|effect| matches!(effect, Effect::Abandon { .. })).is_none());
    assert!(!world.destinations[&sink("a")].staged.is_empty());
    let _next = started(&mut world, &graph, 2);
    assert!(matches!(world.log.append(&record), AppendResult::Taken(_)), "the late put meets the next run");
}

#[test]
fn ce02_a_seal_whose_answer_was_lost_is_recognised_in_its_slot() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, appends);
    let Some(Effect::Append { record }) = host.take(appends) else { panic!("no seal waits") };
    assert_eq!(world.log.append(&record), AppendResult::Created);
    host.tell(Event::Appended { slot: record.slot, result: AppendResult::Taken(record.clone()) });
    assert!(host.ended.is_none());
    assert_eq!(commit_of(&mut host).of().epoch, Epoch(1));
}

#[test]
fn ce03_an_epoch_whose_writer_is_gone_is_never_sealed() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.lose_epoch();
    host.settle(&mut world, everything);
    assert!(matches!(host.ended, Some(End::Restart(TaskFailure::Host(_)))));
    assert!(seals(&world).is_empty());
}

/// Three committed epochs, then a fourth that is sealed and whose commit is under way.
fn four_epochs(world: &mut World, graph: &Graph) -> (EpochRef, CommitPermit) {
    let mut host = started_with(world, graph, Settings { retain_count: 10, ..settings() }, 1);
    for _ in 0..3 {
        host.epoch(world, 2);
        host.settle(world, everything);
    }
    host.epoch(world, 2);
    host.settle(world, commits);
    let permit = commit_of(&mut host);
    (seals(world)[0], permit)
}

#[test]
fn ce04_before_a_fork_every_sealed_epoch_behind_it_is_brought_to_an_end() {
    let (mut world, graph) = one_sink(abilities());
    let (first, late) = four_epochs(&mut world, &graph);
    let mut host = Host::start(&world, &graph, fork("f1", first), 2);
    host.settle(&mut world, everything);
    assert!(host.ended.is_none(), "{:?}", host.ended);
    let tip = host.coordinator.history().runs().values().next_back().map(|node| node.open.parent);
    assert_eq!(tip, Some(Some(first)));
    assert!(world.destinations[&sink("a")].has(&late.committables()[0].part), "committed before the fork");
    assert_eq!(host.coordinator.history().unended_behind(Some(first)), None);
}

#[test]
fn ce05_the_same_decision_seen_again_does_nothing() {
    let (mut world, graph) = one_sink(abilities());
    let (first, _) = four_epochs(&mut world, &graph);
    let mut host = started_with(&mut world, &graph, fork("f1", first), 2);
    host.epoch(&mut world, 2);
    host.settle(&mut world, everything);
    let newest = host.coordinator.history().newest_seal();
    assert!(newest.is_some_and(|of| of.epoch > Epoch(4)), "b16: numbers are never used again: {newest:?}");
    let again = started_with(&mut world, &graph, fork("f1", first), 3);
    assert!(again.ended.is_none(), "{:?}", again.ended);
    let parent = again.coordinator.history().runs().values().next_back().and_then(|node| node.open.parent);
    assert_eq!(parent, newest);
}

#[test]
fn ce06_the_same_number_with_other_random_bits_is_foreign() {
    let (mut world, graph) = one_sink(abilities());
    let backup = SharedLog::default();
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, everything);
    world.log = backup;
    let restored = started(&mut world, &graph, 2);
    let number_one = RunId { number: 1, nonce: Nonce([1; 10]) };
    let Refusal::Mismatch { mismatch, policies, .. } = refusal(&restored) else { panic!("another refusal") };
    assert_eq!(*mismatch, Mismatch::Foreign { run: number_one });
    assert_eq!(*policies, [MismatchPolicy::AcceptDuplicates]);
}

#[test]
fn ce07_a_commit_that_lands_late_changes_nothing() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let stuck = commit_of(&mut host);
    answer(&mut host, &stuck, Err(fault(Call::Commit, FaultKind::Timeout)));
    host.timers();
    host.settle(&mut world, everything);
    let rows = world.destinations[&sink("a")].rows();
    assert_eq!(rows.len(), 4, "it was asked about, then sent again");
    let parts: Vec<PartId> = stuck.committables().iter().map(|c| c.part.clone()).collect();
    let sealed = world.log.sealed.clone();
    let destination = world.destinations.get_mut(&sink("a")).expect("the sink");
    destination.commit(stuck.run(), &parts, &sealed);
    assert_eq!(destination.rows(), rows);
}

#[test]
fn ce08_b15_b26_a_destination_of_somebody_else_is_refused_before_it_is_fenced() {
    let (mut world, graph) = one_sink(abilities());
    let mut production = started(&mut world, &graph, 1);
    production.epoch(&mut world, 4);
    production.settle(&mut world, everything);
    let before = world.destinations[&sink("a")].position();
    world.log = SharedLog::default();
    let copy = started(&mut world, &graph, 7);
    assert!(matches!(refusal(&copy), Refusal::Mismatch { mismatch: Mismatch::Foreign { .. }, .. }));
    assert_eq!(world.destinations[&sink("a")].position(), before);
    assert!(world.log.records.is_empty(), "not even the log was touched");
}

#[test]
fn ce08_an_accepted_mismatch_is_recorded_and_goes_on_behind_what_is_there() {
    let (mut world, graph) = one_sink(abilities());
    let mut lost = started(&mut world, &graph, 1);
    lost.epoch(&mut world, 2);
    lost.settle(&mut world, everything);
    let there = world.destinations[&sink("a")].position().last;
    world.log = SharedLog::default();
    let accept = ("d1".to_owned(), "me".to_owned(), MismatchPolicy::AcceptDuplicates);
    let accepting = Settings { mismatch: BTreeMap::from([(sink("a"), accept)]), ..settings() };
    let mut host = started_with(&mut world, &graph, accepting, 2);
    assert!(host.ended.is_none(), "{:?}", host.ended);
    host.epoch(&mut world, 2);
    host.settle(&mut world, commits);
    assert_eq!(commit_of(&mut host).previous(), there);
    let crashed_and_back = started(&mut world, &graph, 3);
    assert!(crashed_and_back.ended.is_none(), "what was accepted stays accepted: {:?}", crashed_and_back.ended);
}

#[test]
fn a_destination_that_went_back_in_time_is_refused() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    for _ in 0..2 {
        host.epoch(&mut world, 2);
        host.settle(&mut world, everything);
    }
    host.tell(Event::StopRequested);
    host.settle(&mut world, everything);
    let destination = world.destinations.get_mut(&sink("a")).expect("the sink");
    destination.committed.truncate(2);
    let refused = started(&mut world, &graph, 2);
    let Refusal::Mismatch { mismatch: Mismatch::Behind { .. }, policies, .. } = refusal(&refused) else {
        panic!("{:?}", refused.ended)
    };
    assert_eq!(*policies, [MismatchPolicy::AcceptLoss, MismatchPolicy::ReplayFromDestination]);
    let replay = ("d1".to_owned(), "me".to_owned(), MismatchPolicy::ReplayFromDestination);
    let replaying = Settings { mismatch: BTreeMap::from([(sink("a"), replay)]), ..settings() };
    let replayed = started_with(&mut world, &graph, replaying, 3);
    assert_eq!(replayed.tasks.as_ref().map(|tasks| tasks.read.clone()), Some(vec![2]), "{:?}", replayed.ended);
}

#[test]
fn ce11_a_resource_goes_only_after_its_checkpoint_is_retired_for_good() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    let release = |effect: &Effect| matches!(effect, Effect::Release { .. });
    for _ in 0..6 {
        host.epoch(&mut world, 2);
        host.settle(&mut world, release);
    }
    assert!(host.take(release).is_some());
    let retired: Vec<EpochRef> = world
        .log
        .fold()
        .checkpoints()
        .filter(|epoch| epoch.checkpoint == CheckpointState::Retired)
        .map(|epoch| epoch.of)
        .collect();
    assert!(!retired.is_empty(), "the release was asked for after the record");
    assert!(matches!(new(&world, &graph, fork("f", retired[0])), Err(Refusal::Fork(_))));
    // The crash: a new run releases again, and the pipeline goes on.
    let next = started(&mut world, &graph, 2);
    assert!(next.ended.is_none());
    assert!(!world.destinations[&sink("a")].released.is_empty());
}

#[test]
fn ce12_a_blocked_sink_keeps_nobody_else_from_going_on() {
    let (mut world, graph) = sinks(vec![("a", abilities()), ("b", abilities())]);
    let mut host = started(&mut world, &graph, 1);
    let to_b = |effect: &Effect| matches!(effect, Effect::Commit(permit) if *permit.sink() == sink("b"));
    host.epoch(&mut world, 4);
    host.settle(&mut world, to_b);
    let Some(Effect::Commit(permit)) = host.take(to_b) else { panic!("no commit to b") };
    answer(&mut host, &permit, Ok(vec![Outcome::Never, Outcome::Never]));
    for _ in 0..8 {
        host.epoch(&mut world, 4);
        host.settle(&mut world, to_b);
    }
    assert!(matches!(&host.ended, Some(End::Blocked { waiting }) if waiting.len() == 1), "{:?}", host.ended);
    assert_eq!(world.destinations[&sink("a")].rows().len(), 16, "a went on up to the bound");
    assert!(world.destinations[&sink("b")].rows().is_empty());
    let mut renamed = graph.clone();
    let spec_b = renamed.sinks.remove(&sink("b")).expect("b");
    renamed.sinks.insert(sink("c"), spec_b);
    let Err(Refusal::Graph(words)) = new(&world, &renamed, settings()) else { panic!("it was not refused") };
    assert!(words.contains("`b`") && words.contains("put it back"), "{words}");
}

#[test]
fn ce12_grants_of_a_sink_with_unfinished_epochs_stay_as_they_are() {
    let (mut world, mut graph) = one_sink(abilities());
    four_epochs(&mut world, &graph);
    if let Some(spec) = graph.sinks.get_mut(&sink("a")) {
        spec.binding.plugin = "sha256:11".to_owned();
    }
    assert!(new(&world, &graph, settings()).is_ok(), "a plugin that reads the stored version takes over");
    let mut other = graph.clone();
    if let Some(spec) = other.sinks.get_mut(&sink("a")) {
        spec.committable_versions = vec![2];
    }
    assert!(matches!(new(&world, &other, settings()), Err(Refusal::Graph(_))));
    if let Some(spec) = graph.sinks.get_mut(&sink("a")) {
        spec.binding.grants = "[1]".to_owned();
    }
    assert!(matches!(new(&world, &graph, settings()), Err(Refusal::Graph(_))));
}

#[test]
fn b14_ids_come_from_the_seal_in_every_later_run() {
    let (mut world, graph) = one_sink(abilities());
    let (_, sent) = four_epochs(&mut world, &graph);
    let mut next = Host::start(&world, &graph, settings(), 2);
    next.settle(&mut world, |effect| matches!(effect, Effect::Reconcile(_)));
    let Some(Effect::Reconcile(asked)) = next.take(|effect| matches!(effect, Effect::Reconcile(_))) else {
        panic!("nothing is asked")
    };
    assert_eq!(asked.committables(), sent.committables());
    assert_ne!(asked.run(), sent.run());
}

#[test]
fn b18_b19_an_input_that_ended_goes_on_with_the_next_number() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.read(&mut world, 0, 3);
    host.tell(Event::SourcesEnded);
    host.settle(&mut world, everything);
    assert_eq!(host.ended, Some(End::Finished));
    let mut again = started(&mut world, &graph, 2);
    again.read(&mut world, 0, 3);
    again.tell(Event::SourcesEnded);
    again.settle(&mut world, everything);
    assert_eq!(again.ended, Some(End::Finished));
    let numbers: Vec<u64> = seals(&world).iter().map(|of| of.epoch.0).collect();
    assert_eq!(numbers, [1, 2]);
    let mut nothing_new = started(&mut world, &graph, 3);
    nothing_new.tell(Event::SourcesEnded);
    nothing_new.settle(&mut world, everything);
    assert_eq!(nothing_new.ended, Some(End::Finished));
    assert_eq!(seals(&world).len(), 2, "no new seal");
}

#[test]
fn b38_b39_pending_commits_are_known_from_the_log_alone() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    for _ in 0..3 {
        host.epoch(&mut world, 2);
        host.settle(&mut world, commits);
    }
    assert_eq!(world.log.fold().unfinished(&sink("a")).len(), 3);
    let next = started(&mut world, &graph, 2);
    assert!(next.coordinator.status().waiting.is_empty());
    assert_eq!(world.destinations[&sink("a")].rows().len(), 6);
}

#[test]
fn b40_b41_finished_comes_after_the_last_commit() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.read(&mut world, 0, 1);
    host.tell(Event::SourcesEnded);
    host.settle(&mut world, commits);
    assert!(host.ended.is_none(), "the last epoch is not committed");
    host.settle(&mut world, everything);
    assert_eq!(host.ended, Some(End::Finished));
    assert_eq!(world.log.fold().finished(), seals(&world).last().copied());
}

#[test]
fn b48_b51_a_trap_or_a_missing_entry_is_in_doubt_and_never_success() {
    for result in [Err(fault(Call::Commit, FaultKind::Trap)), Ok(vec![Outcome::Committed])] {
        let (mut world, graph) = one_sink(abilities());
        let mut host = started(&mut world, &graph, 1);
        host.epoch(&mut world, 4);
        host.settle(&mut world, commits);
        let permit = commit_of(&mut host);
        assert_eq!(permit.committables().len(), 2);
        answer(&mut host, &permit, result);
        assert_eq!(host.coordinator.status().in_doubt, [(sink("a"), permit.of())]);
        assert!(host.ended.is_none());
    }
}

#[test]
fn b54_a_permanent_failure_waits_for_a_recorded_decision() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    answer(&mut host, &permit, Err(fault(Call::Commit, plugin_error(ErrorKind::Permanent))));
    host.settle(&mut world, everything);
    assert!(matches!(&host.ended, Some(End::Blocked { .. })), "{:?}", host.ended);
    let history = world.log.fold();
    let state = history.outcome(&sink("a"), permit.of());
    assert!(matches!(state, Some(SinkEpochState::Blocked(1, Blocked::Rejected(_)))), "{state:?}");
    let stuck = started(&mut world, &graph, 2);
    assert!(matches!(stuck.ended, Some(End::Blocked { .. })), "a restart alone changes nothing");
    let decision = |id: &str, choice| Record {
        slot: world.log.fold().next_slot(),
        run: world.log.fold().newest_run().expect("a run"),
        written_at: 1,
        outcomes: Vec::new(),
        body: Body::Decision(Decision { id: id.to_owned(), by: "me".to_owned(), choice }),
    };
    let retry = decision("r1", Choice::Retry { sink: sink("a"), of: permit.of() });
    world.log.append(&retry);
    let resolved = started(&mut world, &graph, 3);
    assert!(resolved.ended.is_none(), "{:?}", resolved.ended);
    assert_eq!(world.destinations[&sink("a")].rows().len(), 4);
}

#[test]
fn b56_what_is_unknown_is_asked_about_before_it_is_sent_again() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    answer(&mut host, &permit, Ok(vec![Outcome::Unknown; 2]));
    host.timers();
    assert!(host.take(commits).is_none());
    assert!(host.take(|effect| matches!(effect, Effect::Reconcile(_))).is_some());
}

#[test]
fn what_can_neither_be_repeated_nor_asked_about_waits_for_a_person() {
    let mute = Abilities { idempotent_commit: false, reconcile: false, ..abilities() };
    let (mut world, graph) = one_sink(mute);
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    answer(&mut host, &permit, Err(fault(Call::Commit, FaultKind::AnswerLost)));
    host.settle(&mut world, everything);
    let Some(End::Blocked { waiting }) = &host.ended else { panic!("{:?}", host.ended) };
    assert!(matches!(waiting[0].2, Blocked::CannotAsk(_)));
}

#[test]
fn a_partial_answer_is_kept_and_only_the_rest_is_sent_again() {
    let can = Abilities { atomic_scope: AtomicScope::Participant, ..abilities() };
    let (mut world, graph) = one_sink(can);
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    answer(&mut host, &permit, Ok(vec![Outcome::Committed, Outcome::NotCommitted]));
    host.timers();
    let again = commit_of(&mut host);
    assert_eq!(again.committables(), &permit.committables()[1..]);
    assert_eq!(again.attempt(), 2);
    answer(&mut host, &again, Ok(vec![Outcome::AlreadyCommitted]));
    assert!(host.coordinator.status().waiting.is_empty());
}

#[test]
fn a_fenced_commit_ends_the_run() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    answer(&mut host, &permit, Ok(vec![Outcome::Fenced; 2]));
    assert!(matches!(host.ended, Some(End::Superseded(_))));
}

#[test]
fn tries_are_bounded_and_a_stop_then_says_what_is_in_doubt() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    host.tell(Event::StopRequested);
    host.settle(&mut world, |effect| commits(effect) || matches!(effect, Effect::Reconcile(_)));
    let mut calls = 0;
    while host.ended.is_none() {
        let call = |effect: &Effect| commits(effect) || matches!(effect, Effect::Reconcile(_));
        match host.take(call) {
            Some(Effect::Commit(permit)) => answer(&mut host, &permit, Err(fault(Call::Commit, FaultKind::Timeout))),
            Some(Effect::Reconcile(permit)) => {
                let (sink, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
                let result = Err(fault(Call::Reconcile, FaultKind::Timeout));
                host.tell(Event::Reconciled { sink, of, attempt, result });
            }
            _ => {}
        }
        host.settle(&mut world, call);
        host.timers();
        calls += 1;
        assert!(calls < 50, "it goes on for ever");
    }
    assert!(matches!(&host.ended, Some(End::StoppedInDoubt { waiting }) if !waiting.is_empty()), "{:?}", host.ended);
    let next = started(&mut world, &graph, 2);
    assert!(next.ended.is_none(), "the next run tries again");
    assert_eq!(world.destinations[&sink("a")].rows().len(), 4);
}

#[test]
fn a_savepoint_outlives_retention_until_it_is_forgotten() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.read(&mut world, 0, 1_000);
    let named = || Event::BarrierDue { reason: CutReason::Savepoint("s".to_owned()) };
    host.tell(named());
    host.tell(named());
    host.settle(&mut world, everything);
    let kept = seals(&world)[0];
    for _ in 0..12 {
        host.epoch(&mut world, 2);
        host.settle(&mut world, everything);
    }
    host.tell(named());
    host.settle(&mut world, everything);
    assert!(host.ended.is_none(), "{:?}", host.ended);
    let history = world.log.fold();
    assert_eq!(history.savepoints().get("s"), Some(&kept));
    assert_eq!(history.seal(kept).map(|epoch| epoch.checkpoint), Some(CheckpointState::Retained));
    assert!(seals(&world).len() < 8, "all others go");
    let back = started_with(&mut world, &graph, fork("f", kept), 2);
    assert!(back.ended.is_none(), "{:?}", back.ended);
    assert_eq!(back.tasks.as_ref().map(|tasks| tasks.read.clone()), Some(vec![1]));
}

#[test]
fn a_crash_between_decision_and_run_does_not_use_the_decision_up() {
    let (mut world, graph) = one_sink(abilities());
    let (first, _) = four_epochs(&mut world, &graph);
    drop(started_with(&mut world, &graph, Settings { retain_count: 10, ..settings() }, 2));
    let mut host = Host::start(&world, &graph, fork("f1", first), 3);
    let open = |effect: &Effect| matches!(effect, Effect::Append { record } if matches!(&record.body, Body::Open(open) if !open.under.is_empty()));
    host.settle(&mut world, open);
    assert!(world.log.fold().decisions().contains_key("f1"));
    drop(host);
    let again = started_with(&mut world, &graph, fork("f1", first), 4);
    let parent = again.coordinator.history().runs().values().next_back().and_then(|node| node.open.parent);
    assert_eq!(parent, Some(first), "{:?}", again.ended);
}

#[test]
fn a_commit_is_in_order_and_names_what_came_before() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    for _ in 0..2 {
        host.epoch(&mut world, 2);
        host.settle(&mut world, commits);
    }
    let first = commit_of(&mut host);
    assert!(host.take(commits).is_none(), "the second waits for the first");
    assert!(first.previous().is_empty());
    answer(&mut host, &first, Ok(vec![Outcome::Committed; 2]));
    let second = commit_of(&mut host);
    let parts: Vec<PartId> = first.committables().iter().map(|committable| committable.part.clone()).collect();
    assert_eq!(second.previous(), parts);
}

#[test]
fn what_an_older_run_left_in_doubt_and_nobody_can_settle_ends_the_next_run_and_does_not_hold_it() {
    let mute = Abilities { idempotent_commit: false, reconcile: false, ..abilities() };
    let (mut world, graph) = one_sink(mute);
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, commits);
    commit_of(&mut host);
    drop(host);
    // No call is made that could be answered: the run has to come to its end by itself.
    let next = started(&mut world, &graph, 2);
    let Some(End::Blocked { waiting }) = &next.ended else { panic!("{:?}", next.coordinator.status()) };
    assert!(matches!(waiting[0].2, Blocked::CannotAsk(_)));
}
