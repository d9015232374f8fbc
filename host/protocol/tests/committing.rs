//! What every answer to a commit, or to a question about one, means for the epoch.

mod world;

use tidegate_protocol::event::{Effect, End, Event, Graph, Notice, Timer};
use tidegate_protocol::ids::{Epoch, EpochRef, PartId};
use tidegate_protocol::permit::CommitPermit;
use tidegate_protocol::plugin::{
    Abilities, AtomicScope, Call, CallFault, ErrorKind, FaultKind, Outcome, PluginError, Prepared,
};
use tidegate_protocol::record::{Blocked, Body, Choice, Decision, Record};
use world::drive::*;
use world::host::{Host, fault, plugin_error, prepared};
use world::{World, abilities, settings, sink};

fn asks(effect: &Effect) -> bool {
    matches!(effect, Effect::Reconcile(_))
}

fn calls(effect: &Effect) -> bool {
    commits(effect) || asks(effect)
}

/// A sealed epoch of two parts, and its commit.
fn sent(can: Abilities) -> (World, Graph, Host, CommitPermit) {
    let (mut world, graph) = one_sink(can);
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 4);
    host.settle(&mut world, calls);
    let permit = commit_of(&mut host);
    assert_eq!(permit.committables().len(), 2);
    (world, graph, host, permit)
}

fn question(host: &mut Host) -> CommitPermit {
    match host.take(asks) {
        Some(Effect::Reconcile(permit)) => permit,
        _ => panic!("nothing is asked: {:?}", host.coordinator.status()),
    }
}

fn told(host: &mut Host, asked: &CommitPermit, result: Result<Vec<Outcome>, CallFault>) {
    let (sink, of, attempt) = (asked.sink().clone(), asked.of(), asked.attempt());
    host.tell(Event::Reconciled { sink, of, attempt, result });
}

fn blocked(host: &Host) -> Option<Blocked> {
    host.coordinator.status().blocked.first().map(|(_, _, why)| why.clone())
}

fn done(host: &Host) -> bool {
    host.coordinator.status().waiting.is_empty()
}

/// The notices that one event leads to.
fn notices(host: &mut Host, event: Event) -> Vec<Notice> {
    let effects = host.coordinator.step(host.now, event);
    let notice = |effect: &Effect| if let Effect::Notice(notice) = effect { Some(notice.clone()) } else { None };
    let found = effects.iter().filter_map(notice).collect();
    host.todo.extend(effects.into_iter().filter(|e| notice(e).is_none()).map(world::host::Todo::Do));
    found
}

#[test]
fn a_plugin_that_cannot_answer_the_question_is_sent_the_same_commit_again() {
    for answered in [Ok(vec![Outcome::Unsupported; 2]), Err(plugin_error(ErrorKind::Unsupported))] {
        let (mut world, _, mut host, permit) = sent(abilities());
        answer(&mut host, &permit, Err(fault(Call::Commit, FaultKind::AnswerLost)));
        host.timers();
        let asked = question(&mut host);
        told(&mut host, &asked, answered.map_err(|kind| fault(Call::Reconcile, kind)));
        let again = commit_of(&mut host);
        assert_eq!((again.committables(), again.attempt()), (permit.committables(), 2), "without waiting");
        answer(&mut host, &again, Err(fault(Call::Commit, FaultKind::AnswerLost)));
        host.timers();
        assert!(host.take(asks).is_none(), "it is not asked a second time");
        let third = commit_of(&mut host);
        answer(&mut host, &third, Ok(vec![Outcome::AlreadyCommitted; 2]));
        assert!(done(&host));
        host.settle(&mut world, everything);
    }
}

#[test]
fn a_plugin_that_may_not_repeat_and_turns_out_mute_leaves_the_epoch_to_a_person() {
    let (_, _, mut host, permit) = sent(Abilities { idempotent_commit: false, ..abilities() });
    answer(&mut host, &permit, Err(fault(Call::Commit, FaultKind::AnswerLost)));
    assert_eq!(blocked(&host), None, "it can be asked");
    host.timers();
    let asked = question(&mut host);
    told(&mut host, &asked, Ok(vec![Outcome::Unsupported; 2]));
    assert!(matches!(blocked(&host), Some(Blocked::CannotAsk(_))), "{:?}", host.coordinator.status());
}

#[test]
fn a_commit_that_is_not_offered_is_refused_for_good() {
    for result in [Ok(vec![Outcome::Unsupported; 2]), Err(fault(Call::Commit, plugin_error(ErrorKind::Unsupported)))] {
        let (_, _, mut host, permit) = sent(abilities());
        answer(&mut host, &permit, result);
        let Some(Blocked::Rejected(error)) = blocked(&host) else { panic!("{:?}", host.coordinator.status()) };
        assert_eq!(error.kind, ErrorKind::Unsupported);
    }
}

#[test]
fn what_was_done_stays_done_whatever_later_answers_say() {
    // One step for all parts: the whole epoch is sent again, and an answer about a part that is done takes nothing back.
    for result in
        [Ok(vec![Outcome::NotCommitted, Outcome::Committed]), Ok(vec![Outcome::Never, Outcome::AlreadyCommitted])]
    {
        let (_, _, mut host, permit) = sent(abilities());
        answer(&mut host, &permit, Ok(vec![Outcome::Committed, Outcome::NotCommitted]));
        host.timers();
        let again = commit_of(&mut host);
        assert_eq!(again.committables().len(), 2);
        answer(&mut host, &again, result);
        assert!(done(&host), "{:?}", host.coordinator.status());
    }
    // Nor does an answer that broke off, or none at all.
    let (_, _, mut host, permit) = sent(abilities());
    answer(&mut host, &permit, Ok(vec![Outcome::Committed, Outcome::NotCommitted]));
    host.timers();
    let again = commit_of(&mut host);
    answer(&mut host, &again, Ok(vec![Outcome::Committed]));
    host.timers();
    let asked = question(&mut host);
    told(&mut host, &asked, Err(fault(Call::Reconcile, FaultKind::Trap)));
    host.timers();
    let asked = question(&mut host);
    told(&mut host, &asked, Ok(vec![Outcome::NotCommitted, Outcome::AlreadyCommitted]));
    assert!(done(&host), "{:?}", host.coordinator.status());
}

#[test]
fn a_destination_that_asks_for_time_gets_it_and_a_commit_it_refused_was_not_done() {
    let (_, _, mut host, permit) = sent(abilities());
    answer(&mut host, &permit, Ok(vec![Outcome::Committed, Outcome::Retry(Some(5_000))]));
    let waits = |effect: &Effect| matches!(effect, Effect::Wait { timer: Timer::CommitRetry(..), .. });
    let Some(Effect::Wait { timer, millis }) = host.take(waits) else { panic!("it does not wait") };
    assert_eq!(millis, 5_000);
    assert!(host.coordinator.status().in_doubt.is_empty());
    let other = EpochRef { epoch: Epoch(77), ..permit.of() };
    host.tell(Event::TimerFired { timer: Timer::CommitRetry(sink("a"), other) });
    assert!(host.take(calls).is_none(), "the timer of another epoch");
    host.tell(Event::TimerFired { timer: timer.clone() });
    host.tell(Event::TimerFired { timer });
    let again = commit_of(&mut host);
    assert!(host.take(calls).is_none(), "once");
    // To a question it is no answer: what was in doubt still is.
    answer(&mut host, &again, Err(fault(Call::Commit, FaultKind::Timeout)));
    host.timers();
    let asked = question(&mut host);
    told(&mut host, &asked, Ok(vec![Outcome::AlreadyCommitted, Outcome::Retry(Some(u64::MAX))]));
    assert_eq!(host.coordinator.status().in_doubt.len(), 1);
    let Some(Effect::Wait { millis, .. }) = host.take(waits) else { panic!("it does not wait") };
    assert_eq!(millis, 3_600_000, "no plugin makes the host wait for ever");
}

#[test]
fn a_question_that_is_answered_with_not_known_is_asked_again_after_a_while() {
    let (_, _, mut host, permit) = sent(abilities());
    answer(&mut host, &permit, Err(fault(Call::Commit, FaultKind::Timeout)));
    host.timers();
    let asked = question(&mut host);
    told(&mut host, &asked, Ok(vec![Outcome::NotCommitted, Outcome::Unknown]));
    assert!(host.take(calls).is_none(), "not at once");
    assert_eq!(host.coordinator.status().in_doubt.len(), 1);
    host.timers();
    let asked = question(&mut host);
    told(&mut host, &asked, Ok(vec![Outcome::NotCommitted; 2]));
    assert_eq!(commit_of(&mut host).attempt(), 2, "to be told is progress: the commit follows at once");
}

#[test]
fn answers_that_nobody_waits_for_change_nothing() {
    let (_, _, mut host, permit) = sent(abilities());
    let (at, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
    let fenced = || Ok(vec![Outcome::Fenced; 2]);
    let other = EpochRef { epoch: Epoch(77), ..of };
    host.tell(Event::CommitAnswered { sink: at.clone(), of: other, attempt, result: fenced() });
    host.tell(Event::CommitAnswered { sink: at.clone(), of, attempt: attempt + 1, result: fenced() });
    host.tell(Event::Reconciled { sink: at.clone(), of, attempt, result: fenced() });
    assert!(host.ended.is_none());
    answer(&mut host, &permit, Ok(vec![Outcome::NotCommitted; 2]));
    answer(&mut host, &permit, fenced());
    assert!(host.ended.is_none(), "a repeat of an answer");
    host.timers();
    let again = commit_of(&mut host);
    answer(&mut host, &permit, fenced());
    assert!(host.ended.is_none(), "an answer to the attempt before");
    answer(&mut host, &again, Ok(vec![Outcome::Committed; 2]));
    answer(&mut host, &again, fenced());
    assert!(host.ended.is_none() && done(&host), "an answer about what is over");
}

#[test]
fn a_failing_commit_is_told_once_for_each_reason_and_doubt_only_with_a_cause() {
    let (_, _, mut host, permit) = sent(abilities());
    let mut permit = permit;
    let mut told = Vec::new();
    for code in ["busy", "busy", "no-space"] {
        let error = PluginError { kind: ErrorKind::Retryable, code: code.to_owned(), message: "m".to_owned() };
        let result = Err(fault(Call::Commit, FaultKind::Error(error)));
        let (sink, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
        let news = notices(&mut host, Event::CommitAnswered { sink, of, attempt, result });
        told.push(news.iter().any(|notice| matches!(notice, Notice::CallFails { of: Some(_), .. })));
        host.timers();
        permit = commit_of(&mut host);
    }
    assert_eq!(told, [true, false, true]);
    // In doubt is told with its reason; that a call fails besides, only where somebody can mend something.
    for (code, mend) in [("weather", false), ("no-space", true)] {
        let (_, _, mut host, permit) = sent(abilities());
        let error = PluginError { kind: ErrorKind::Unknown, code: code.to_owned(), message: "m".to_owned() };
        let result = Err(fault(Call::Commit, FaultKind::Error(error)));
        let (sink, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
        let news = notices(&mut host, Event::CommitAnswered { sink, of, attempt, result });
        assert!(news.iter().any(|notice| matches!(notice, Notice::InDoubt { .. })), "{news:?}");
        assert_eq!(news.iter().any(|notice| matches!(notice, Notice::CallFails { .. })), mend, "{news:?}");
    }
}

#[test]
fn a_destination_that_says_not_yet_until_the_tries_are_spent_blocks_the_epoch_for_this_run() {
    let (mut world, graph, mut host, permit) = sent(abilities());
    let mut permit = permit;
    for _ in 0..4 {
        answer(&mut host, &permit, Ok(vec![Outcome::NotCommitted; 2]));
        host.timers();
        permit = commit_of(&mut host);
    }
    answer(&mut host, &permit, Ok(vec![Outcome::NotCommitted; 2]));
    assert!(matches!(blocked(&host), Some(Blocked::TriesSpent(words)) if words.contains("did not commit")));
    host.settle(&mut world, everything);
    assert!(matches!(host.ended, Some(End::Blocked { .. })), "{:?}", host.ended);
    let next = started(&mut world, &graph, 2);
    assert!(next.ended.is_none() && world.destinations[&sink("a")].rows().len() == 4, "the next run tries again");
}

#[test]
fn of_several_reasons_the_one_that_a_person_can_act_on_is_told() {
    let refused = PluginError { kind: ErrorKind::Permanent, code: "c".to_owned(), message: "m".to_owned() };
    for outcomes in [
        vec![Outcome::Never, Outcome::Rejected(refused.clone())],
        vec![Outcome::Rejected(refused.clone()), Outcome::Never],
    ] {
        let (_, _, mut host, permit) = sent(Abilities { atomic_scope: AtomicScope::Participant, ..abilities() });
        answer(&mut host, &permit, Ok(outcomes));
        assert_eq!(blocked(&host), Some(Blocked::Rejected(refused.clone())));
    }
}

/// One sink with one participant, and the commit of an epoch of two rows whose seal was written at about 1,000.
fn sealed_until(can: Abilities, expires_at: Option<u64>) -> (World, Graph, Host, CommitPermit) {
    let (mut world, mut graph) = one_sink(can);
    if let Some(spec) = graph.sinks.get_mut(&sink("a")) {
        spec.participants = 1;
    }
    let mut host = started(&mut world, &graph, 1);
    host.tell(Event::Busy);
    host.due();
    let run = host.coordinator.run().expect("a run");
    let part = PartId::mint(&world::pipeline(), &sink("a"), run, Epoch(1), 0, 1);
    let destination = world.destinations.get_mut(&sink("a")).expect("a");
    destination.staged.insert(part.short.clone(), (part.clone(), vec![0, 8]));
    let mut answer: Prepared = prepared(part, 2);
    answer.committable.expires_at = expires_at;
    host.now = 1_000;
    host.tell(Event::PartPrepared {
        sink: sink("a"),
        ordinal: 0,
        epoch: Epoch(1),
        rows_in: 2,
        filtered: 0,
        rejected_in_write: 0,
        prepared: Some(answer),
    });
    let progress = tidegate_protocol::event::SourceProgress { rows: 2, ..Default::default() };
    host.tell(Event::SourceCut { source: world::source(), task: 0, epoch: Epoch(1), progress });
    host.settle(&mut world, |effect| !appends(effect));
    let permit = commit_of(&mut host);
    (world, graph, host, permit)
}

/// The commit was not carried out, and its next try comes at `now`.
fn tried_again_at(host: &mut Host, permit: &CommitPermit, now: u64) {
    answer(host, permit, Ok(vec![Outcome::NotCommitted]));
    host.now = now;
    host.timers();
}

#[test]
fn prepared_work_that_the_destination_may_have_dropped_is_not_sent_without_being_told_to() {
    let (_, _, mut host, permit) = sealed_until(abilities(), Some(11_000));
    tried_again_at(&mut host, &permit, 10_000);
    assert_eq!(commit_of(&mut host).attempt(), 2, "it lives");
    let (mut world, graph, mut host, permit) = sealed_until(abilities(), Some(11_000));
    tried_again_at(&mut host, &permit, 11_000);
    assert!(host.take(commits).is_none());
    assert!(matches!(blocked(&host), Some(Blocked::Rejected(error)) if error.code == "expired"));
    host.settle(&mut world, everything);
    assert!(matches!(host.ended, Some(End::Blocked { .. })), "{:?}", host.ended);
    // A person who looked may have it sent all the same, however late it is.
    let history = world.log.fold();
    let retry = Choice::Retry { sink: sink("a"), of: permit.of() };
    world.log.append(&Record {
        slot: history.next_slot(),
        run: history.newest_run().expect("a run"),
        written_at: 12_000,
        outcomes: Vec::new(),
        body: Body::Decision(Decision { id: "r".to_owned(), by: "me".to_owned(), choice: retry }),
    });
    let mut next = Host::start(&world, &graph, settings(), 2);
    next.now = 50_000;
    next.settle(&mut world, everything);
    assert!(next.ended.is_none(), "{:?}", next.ended);
    assert_eq!(world.destinations[&sink("a")].rows().len(), 2);
}

#[test]
fn a_clock_that_was_set_back_does_not_bring_back_what_has_expired() {
    // While the run goes on.
    let (_, _, mut host, permit) = sealed_until(abilities(), Some(11_000));
    host.now = 11_000;
    host.tell(Event::Busy);
    tried_again_at(&mut host, &permit, 2_000);
    assert!(host.take(commits).is_none());
    assert!(matches!(blocked(&host), Some(Blocked::Rejected(error)) if error.code == "expired"));
    // Between two runs: the log has it from the one that was opened in time.
    let (mut world, graph, first, _) = sealed_until(abilities(), Some(11_000));
    drop(first);
    let mut second = Host::start(&world, &graph, settings(), 2);
    second.now = 12_000;
    second.settle(&mut world, |effect| !matches!(effect, Effect::Observe { .. } | Effect::Append { .. }));
    assert_eq!(world.log.fold().runs().len(), 2);
    drop(second);
    let mut third = Host::start(&world, &graph, settings(), 3);
    third.now = 2_000;
    third.settle(&mut world, everything);
    let Some(End::Blocked { waiting }) = &third.ended else { panic!("{:?}", third.ended) };
    assert!(matches!(&waiting[0].2, Blocked::Rejected(error) if error.code == "expired"), "{waiting:?}");
}

#[test]
fn a_clock_that_once_ran_ahead_ages_nothing_that_was_sealed_after() {
    let (mut world, graph) = one_sink(Abilities { marker_retention: Some(5_000), ..abilities() });
    let mut early = Host::start(&world, &graph, settings(), 1);
    early.now = 1_000_000;
    early.settle(&mut world, everything);
    drop(early);
    let mut host = started(&mut world, &graph, 2);
    host.epoch(&mut world, 2);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    answer(&mut host, &permit, Ok(vec![Outcome::NotCommitted; permit.committables().len()]));
    host.timers();
    assert_eq!(commit_of(&mut host).attempt(), 2);
}

#[test]
fn what_is_done_does_not_expire() {
    let can = Abilities { atomic_scope: AtomicScope::Participant, ..abilities() };
    let (_, _, mut host, permit) = sealed_until(can, Some(11_000));
    host.now = 20_000;
    answer(&mut host, &permit, Ok(vec![Outcome::AlreadyCommitted]));
    assert!(done(&host) && blocked(&host).is_none());
}

#[test]
fn a_commit_that_the_destination_may_have_forgotten_is_not_repeated() {
    let forgetful = || Abilities { marker_retention: Some(5_000), ..abilities() };
    let (_, _, mut host, permit) = sealed_until(forgetful(), None);
    tried_again_at(&mut host, &permit, 4_000);
    assert_eq!(commit_of(&mut host).attempt(), 2, "it is remembered");
    let (_, _, mut host, permit) = sealed_until(forgetful(), None);
    tried_again_at(&mut host, &permit, 6_100);
    assert!(host.take(commits).is_none());
    assert!(matches!(blocked(&host), Some(Blocked::CannotAsk(words)) if words.contains("5000 ms")));
    // What was never sent cannot have been forgotten.
    let (mut world, graph) = one_sink(forgetful());
    let mut host = started(&mut world, &graph, 1);
    for _ in 0..2 {
        host.epoch(&mut world, 2);
        host.settle(&mut world, commits);
    }
    let first = commit_of(&mut host);
    host.now = 50_000;
    answer(&mut host, &first, Ok(vec![Outcome::Committed; first.committables().len()]));
    assert_eq!(commit_of(&mut host).attempt(), 1);
}

#[test]
fn what_a_person_wants_sent_is_sent_once_although_nobody_can_be_asked() {
    let mute = Abilities { idempotent_commit: false, reconcile: false, ..abilities() };
    let (mut world, graph) = one_sink(mute);
    let mut host = started(&mut world, &graph, 1);
    host.epoch(&mut world, 2);
    host.settle(&mut world, commits);
    let permit = commit_of(&mut host);
    answer(&mut host, &permit, Err(fault(Call::Commit, FaultKind::Trap)));
    host.settle(&mut world, everything);
    assert!(matches!(host.ended, Some(End::Blocked { .. })), "{:?}", host.ended);
    let history = world.log.fold();
    world.log.append(&Record {
        slot: history.next_slot(),
        run: history.newest_run().expect("a run"),
        written_at: 1,
        outcomes: Vec::new(),
        body: Body::Decision(Decision {
            id: "r".to_owned(),
            by: "me".to_owned(),
            choice: Choice::Retry { sink: sink("a"), of: permit.of() },
        }),
    });
    let mut told = Host::start(&world, &graph, settings(), 2);
    told.settle(&mut world, commits);
    let again = commit_of(&mut told);
    assert_eq!(again.committables(), permit.committables(), "it is sent");
    // Whatever became of that: the decision is used up, and who decided must look again.
    let mut after = Host::start(&world, &graph, settings(), 3);
    after.settle(&mut world, everything);
    let Some(End::Blocked { waiting }) = &after.ended else { panic!("{:?}", after.ended) };
    assert!(matches!(waiting[0].2, Blocked::CannotAsk(_)), "{waiting:?}");
    answer(&mut told, &again, Err(fault(Call::Commit, FaultKind::Trap)));
    assert!(matches!(blocked(&told), Some(Blocked::CannotAsk(_))), "{:?}", told.coordinator.status());
}
