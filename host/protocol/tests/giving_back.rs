//! Abandoning what was never sealed and releasing what no checkpoint needs, when the destination is slow to let go.

mod world;

use std::collections::BTreeMap;

use tidegate_protocol::coordinator::{Phase, Settings};
use tidegate_protocol::event::{Effect, End, Event, Graph, Notice, Timer};
use tidegate_protocol::history::CheckpointState;
use tidegate_protocol::ids::{Epoch, Nonce, PartId, PipelineId, RunId};
use tidegate_protocol::plugin::{
    Abilities, Call, CallFault, ErrorKind, External, FaultKind, Orphan, OrphanPage, Orphans, Outcome, PluginError,
    Unsealed,
};
use tidegate_protocol::record::{Body, MismatchPolicy};
use world::drive::*;
use world::host::{Host, fault, plugin_error, staged_file};
use world::{World, abilities, settings, sink};

fn abandons(effect: &Effect) -> bool {
    matches!(effect, Effect::Abandon { .. })
}

fn releases(effect: &Effect) -> bool {
    matches!(effect, Effect::Release { .. })
}

fn lists(effect: &Effect) -> bool {
    matches!(effect, Effect::ListOrphans { .. })
}

/// What one event leads to; nothing of it is carried out but what waits as usual.
fn step(host: &mut Host, event: Event) -> Vec<Notice> {
    host.now += 1;
    let mut notices = Vec::new();
    for effect in host.coordinator.step(host.now, event) {
        match effect {
            Effect::Notice(notice) => notices.push(notice),
            Effect::End(end) => host.ended = Some(end),
            effect => host.todo.push(world::host::Todo::Do(effect)),
        }
    }
    notices
}

fn warned(notices: &[Notice], words: &str) -> bool {
    notices.iter().any(|notice| matches!(notice, Notice::Warning(said) if said.contains(words)))
}

/// A second run that is about to give back the two parts of the first.
fn about_to_abandon(can: Abilities) -> (World, Graph, Host, Vec<Unsealed>) {
    let (mut world, graph) = one_sink(can);
    let mut first = started(&mut world, &graph, 1);
    first.epoch(&mut world, 4);
    first.settle(&mut world, |effect| matches!(effect, Effect::InjectBarrier { .. }));
    let mut host = Host::start(&world, &graph, settings(), 2);
    host.settle(&mut world, abandons);
    let parts = asked_to_abandon(&mut host);
    assert_eq!((parts.len(), host.coordinator.status().phase), (2, Phase::Cleaning));
    (world, graph, host, parts)
}

fn asked_to_abandon(host: &mut Host) -> Vec<Unsealed> {
    match host.take(abandons) {
        Some(Effect::Abandon { parts, .. }) => parts,
        _ => panic!("nothing is abandoned"),
    }
}

fn abandoned(host: &mut Host, result: Result<Vec<Outcome>, CallFault>) -> Vec<Notice> {
    step(host, Event::Abandoned { sink: sink("a"), result })
}

fn refused() -> Outcome {
    let error = PluginError { kind: ErrorKind::Permanent, code: "c".to_owned(), message: "m".to_owned() };
    Outcome::Rejected(error)
}

fn no(call: Call, kind: ErrorKind, code: &str) -> CallFault {
    let error = PluginError { kind, code: code.to_owned(), message: "m".to_owned() };
    fault(call, FaultKind::Error(error))
}

#[test]
fn only_what_is_not_given_back_yet_is_asked_for_again() {
    let (mut world, _, mut host, parts) = about_to_abandon(abilities());
    for open in [Outcome::Retry(None), Outcome::Unknown, Outcome::NotCommitted] {
        let given = if open == Outcome::Retry(None) { vec![Outcome::Committed, open] } else { vec![open] };
        abandoned(&mut host, Ok(given));
        assert!(host.take(abandons).is_none(), "not at once");
        abandoned(&mut host, Ok(vec![Outcome::Committed]));
        assert_eq!(host.coordinator.status().phase, Phase::Cleaning, "an answer that nobody waits for");
        host.timers();
        assert_eq!(asked_to_abandon(&mut host), parts[1..]);
    }
    abandoned(&mut host, Ok(vec![Outcome::AlreadyCommitted]));
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running);
    abandoned(&mut host, Err(no(Call::Abandon, ErrorKind::Fenced, "c")));
    assert!(host.ended.is_none(), "nothing was asked");
}

#[test]
fn a_short_answer_says_nothing_about_any_part() {
    let (_, _, mut host, parts) = about_to_abandon(abilities());
    abandoned(&mut host, Ok(vec![Outcome::Committed]));
    host.timers();
    assert_eq!(asked_to_abandon(&mut host), parts);
}

#[test]
fn what_cannot_be_given_back_stays_with_a_warning_and_does_not_stop_the_pipeline() {
    let (mut world, _, mut host, _) = about_to_abandon(abilities());
    let notices = abandoned(&mut host, Ok(vec![Outcome::Never, refused()]));
    assert!(warned(&notices, "2 unsealed parts could not be given back"), "{notices:?}");
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running);

    let hopeless = || Err(no(Call::Abandon, ErrorKind::Permanent, "c"));
    let (mut world, _, mut host, _) = about_to_abandon(abilities());
    let notices = abandoned(&mut host, hopeless());
    assert!(warned(&notices, "left for later"), "{notices:?}");
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running);
    // The next sweep looks again.
    step(&mut host, Event::TimerFired { timer: Timer::Sweep });
    host.settle(&mut world, abandons);
    assert_eq!(asked_to_abandon(&mut host).len(), 2);
    abandoned(&mut host, Ok(vec![Outcome::Committed; 2]));
    assert!(host.ended.is_none());
}

#[test]
fn abandoning_is_tried_so_often_and_left_for_later() {
    let (mut world, _, mut host, _) = about_to_abandon(abilities());
    let mut told = 0;
    for attempt in 1..=5 {
        let notices = abandoned(&mut host, Err(no(Call::Abandon, ErrorKind::Retryable, "no-space")));
        told += notices.iter().filter(|notice| matches!(notice, Notice::CallFails { of: None, .. })).count();
        assert_eq!(warned(&notices, "left for later"), attempt == 5, "{attempt}");
        host.timers();
        if attempt < 5 {
            assert_eq!(asked_to_abandon(&mut host).len(), 2);
        }
    }
    assert_eq!(told, 1, "a cause that somebody has to mend is told at its first sight");
    assert!(host.take(abandons).is_none());
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running);
}

#[test]
fn a_newer_run_that_shows_while_giving_back_ends_this_one() {
    for result in [Ok(vec![Outcome::Committed, Outcome::Fenced]), Err(no(Call::Abandon, ErrorKind::Fenced, "c"))] {
        let (_, _, mut host, _) = about_to_abandon(abilities());
        abandoned(&mut host, result);
        assert!(matches!(host.ended, Some(End::Superseded(_))), "{:?}", host.ended);
    }
    let (mut world, graph) = one_sink(abilities());
    let mut host = Host::start(&world, &graph, settings(), 1);
    host.settle(&mut world, lists);
    let result = Err(no(Call::ListOrphans, ErrorKind::Fenced, "c"));
    step(&mut host, Event::OrphansListed { sink: sink("a"), result });
    assert!(matches!(host.ended, Some(End::Superseded(_))), "{:?}", host.ended);
}

fn listing() -> (World, Host) {
    let (mut world, graph) = one_sink(abilities());
    drop(started(&mut world, &graph, 1));
    let mut host = Host::start(&world, &graph, settings(), 2);
    host.settle(&mut world, lists);
    (world, host)
}

fn listed(host: &mut Host, orphans: Vec<Orphan>, next: Option<&str>) -> (Option<String>, Vec<Notice>) {
    let Some(Effect::ListOrphans { page, .. }) = host.take(lists) else { panic!("nothing is listed") };
    let result = Ok(OrphanPage { orphans, next: next.map(str::to_owned) });
    (page, step(host, Event::OrphansListed { sink: sink("a"), result }))
}

#[test]
fn a_listing_is_read_page_by_page_to_its_end() {
    let (mut world, mut host) = listing();
    let orphan = |ordinal| {
        let run = RunId { number: 1, nonce: Nonce([1; 10]) };
        let part = PartId::mint(&world::pipeline(), &sink("a"), run, Epoch(1), ordinal, 1);
        Orphan { short: part.short.clone(), resource: staged_file(&part.short), bytes: None }
    };
    assert_eq!(listed(&mut host, vec![orphan(0)], Some("2")).0, None);
    assert_eq!(asked_to_abandon(&mut host).len(), 1, "a page's orphans before the next page");
    step(&mut host, Event::OrphansListed { sink: sink("a"), result: Ok(OrphanPage { orphans: vec![], next: None }) });
    assert_eq!(host.coordinator.status().phase, Phase::Cleaning, "a page that nobody asked for");
    abandoned(&mut host, Ok(vec![Outcome::Committed]));
    assert_eq!(listed(&mut host, vec![orphan(1)], None).0.as_deref(), Some("2"));
    asked_to_abandon(&mut host);
    abandoned(&mut host, Ok(vec![Outcome::Committed]));
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running);
}

#[test]
fn a_listing_that_does_not_come_to_an_end_is_left_for_the_next_sweep() {
    let (_, mut host) = listing();
    listed(&mut host, Vec::new(), Some("again"));
    let (_, notices) = listed(&mut host, Vec::new(), Some("again"));
    assert!(warned(&notices, "did not come to an end"), "the same page twice");
    assert!(host.take(lists).is_none());
    let (_, mut host) = listing();
    let mut pages = 0;
    while host.take(|effect| matches!(effect, Effect::OpenTasks(_))).is_none() {
        let (_, notices) = listed(&mut host, Vec::new(), Some(&pages.to_string()));
        pages += 1;
        assert_eq!(warned(&notices, "did not come to an end"), pages == 10_000, "{pages}");
    }
    assert_eq!(pages, 10_000);
}

#[test]
fn a_listing_that_fails_is_tried_again_from_the_same_page_and_then_left() {
    let (mut world, mut host) = listing();
    listed(&mut host, Vec::new(), Some("2"));
    for attempt in 1..=5 {
        let Some(Effect::ListOrphans { page, .. }) = host.take(lists) else { panic!("nothing is listed") };
        assert_eq!(page.as_deref(), Some("2"));
        let result = Err(fault(Call::ListOrphans, FaultKind::Timeout));
        let notices = step(&mut host, Event::OrphansListed { sink: sink("a"), result });
        assert_eq!(warned(&notices, "left for later"), attempt == 5);
        host.timers();
    }
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running);
}

#[test]
fn what_carries_no_name_of_ours_is_left_alone_and_told() {
    let (mut world, mut host) = listing();
    let run = RunId { number: 1, nonce: Nonce([1; 10]) };
    let other = PipelineId::new("q").expect("a legal name");
    let foreign = PartId::mint(&other, &sink("a"), run, Epoch(1), 0, 1).short;
    let unknown_run = RunId { number: 1, nonce: Nonce([66; 10]) };
    let unknown = PartId::mint(&world::pipeline(), &sink("a"), unknown_run, Epoch(1), 0, 1).short;
    let orphans = [foreign, unknown].map(|short| Orphan { resource: staged_file(&short), short, bytes: None });
    let (_, notices) = listed(&mut host, orphans.to_vec(), None);
    assert!(warned(&notices, "2 staged things carry no name"), "{notices:?}");
    assert!(host.take(abandons).is_none());
    host.settle(&mut world, everything);
    assert_eq!(host.coordinator.status().phase, Phase::Running);
}

#[test]
fn a_sweep_is_for_runs_that_run() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = Host::start(&world, &graph, settings(), 1);
    step(&mut host, Event::TimerFired { timer: Timer::Sweep });
    assert!(host.take(lists).is_none());
    host.settle(&mut world, everything);
    step(&mut host, Event::TimerFired { timer: Timer::Sweep });
    step(&mut host, Event::TimerFired { timer: Timer::Sweep });
    assert!(host.take(lists).is_some() && host.take(lists).is_none(), "one listing at a time");
    let never = Settings { sweep_ms: 0, ..settings() };
    let mut host = Host::start(&world, &graph, never, 2);
    host.settle(&mut world, |effect| matches!(effect, Effect::Wait { .. }));
    assert_eq!(host.coordinator.status().phase, Phase::Running);
    assert!(host.take(|effect| matches!(effect, Effect::Wait { timer: Timer::Sweep, .. })).is_none());
}

#[test]
fn what_was_announced_and_given_back_is_recorded_as_gone() {
    let (mut world, _, mut host, parts) =
        about_to_abandon(Abilities { orphans: Orphans::DurableIntent, ..abilities() });
    abandoned(&mut host, Ok(vec![Outcome::Committed, refused()]));
    host.settle(&mut world, everything);
    let gone: Vec<External> = world
        .log
        .records
        .values()
        .filter_map(|record| if let Body::Released(released) = &record.body { Some(&released.resources) } else { None })
        .flatten()
        .cloned()
        .collect();
    assert_eq!(gone, parts[0].resources, "only what was given back");
}

/// A run that has retired checkpoints and waits for the answer to a release.
fn about_to_release() -> (World, Graph, Host, Vec<External>) {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    let mut asked = None;
    for _ in 0..6 {
        host.epoch(&mut world, 4);
        host.settle(&mut world, releases);
        asked = host.take(releases);
        if asked.is_some() {
            break;
        }
    }
    let Some(Effect::Release { resources, attempt: 1, .. }) = asked else { panic!("nothing is released") };
    assert_eq!(resources.len(), 2);
    (world, graph, host, resources)
}

fn released(host: &mut Host, result: Result<Vec<Outcome>, CallFault>) -> Vec<Notice> {
    step(host, Event::ReleaseAnswered { sink: sink("a"), result })
}

fn asked_to_release(host: &mut Host) -> Vec<External> {
    match host.take(releases) {
        Some(Effect::Release { resources, .. }) => resources,
        _ => panic!("nothing is released"),
    }
}

fn gone(world: &World) -> usize {
    let released = |body: &Body| if let Body::Released(released) = body { released.resources.len() } else { 0 };
    world.log.records.values().map(|record| released(&record.body)).sum()
}

#[test]
fn only_what_is_not_released_yet_is_asked_for_again() {
    let (mut world, _, mut host, resources) = about_to_release();
    for open in [Outcome::Retry(None), Outcome::Unknown, Outcome::NotCommitted] {
        let given = if open == Outcome::Retry(None) { vec![Outcome::Committed, open] } else { vec![open] };
        released(&mut host, Ok(given));
        released(&mut host, Ok(vec![Outcome::Committed]));
        assert_eq!(gone(&world), 0, "an answer that nobody waits for");
        host.due();
        assert!(host.take(releases).is_none(), "not before the timer");
        host.timers();
        assert_eq!(asked_to_release(&mut host), resources[1..]);
    }
    released(&mut host, Ok(vec![Outcome::AlreadyCommitted]));
    host.settle(&mut world, |effect| matches!(effect, Effect::DeleteRecords { .. }));
    assert_eq!(gone(&world), 2);
    released(&mut host, Err(no(Call::Release, ErrorKind::Fenced, "c")));
    assert!(host.ended.is_none(), "nothing was asked");
}

#[test]
fn a_short_answer_says_nothing_about_any_resource() {
    let (_, _, mut host, resources) = about_to_release();
    released(&mut host, Ok(vec![Outcome::Committed]));
    host.timers();
    assert_eq!(asked_to_release(&mut host), resources);
}

#[test]
fn a_plugin_that_releases_nothing_has_nothing_to_release() {
    for result in [Ok(vec![Outcome::Unsupported; 2]), Err(fault(Call::Release, plugin_error(ErrorKind::Unsupported)))] {
        let (mut world, _, mut host, _) = about_to_release();
        released(&mut host, result);
        host.settle(&mut world, |effect| matches!(effect, Effect::DeleteRecords { .. }));
        assert_eq!(gone(&world), 2);
    }
}

#[test]
fn what_is_not_released_keeps_its_checkpoint_in_the_log_and_is_asked_for_at_the_next_retirement() {
    type Answer = fn() -> Result<Vec<Outcome>, CallFault>;
    let answers: [(Answer, &str); 2] = [
        (|| Ok(vec![Outcome::Never, refused()]), "2 resources of retired checkpoints could not be released"),
        (|| Err(no(Call::Release, ErrorKind::Permanent, "c")), "are not released yet"),
    ];
    for (result, words) in answers {
        let (mut world, _, mut host, resources) = about_to_release();
        let notices = released(&mut host, result());
        assert!(warned(&notices, words), "{notices:?}");
        host.settle(&mut world, releases);
        let history = world.log.fold();
        assert!(history.checkpoints().any(|epoch| epoch.checkpoint == CheckpointState::Retired), "not deleted");
        let again = (0..6).find_map(|_| {
            host.epoch(&mut world, 4);
            host.settle(&mut world, releases);
            host.take(releases)
        });
        let Some(Effect::Release { resources: asked, .. }) = again else { panic!("nothing is released") };
        assert!(resources.iter().all(|resource| asked.contains(resource)) && asked.len() == 4, "{asked:?}");
    }
}

#[test]
fn releasing_is_tried_so_often_and_left_for_later() {
    let (mut world, _, mut host, _) = about_to_release();
    let mut told = 0;
    for attempt in 1..=5 {
        let notices = released(&mut host, Err(no(Call::Release, ErrorKind::Retryable, "read-only")));
        told += notices.iter().filter(|notice| matches!(notice, Notice::CallFails { of: None, .. })).count();
        assert_eq!(warned(&notices, "are not released yet"), attempt == 5, "{attempt}");
        host.timers();
        if attempt < 5 {
            asked_to_release(&mut host);
        }
    }
    assert_eq!(told, 1);
    host.settle(&mut world, everything);
    assert!(host.ended.is_none() && gone(&world) == 0);
}

#[test]
fn a_newer_run_that_shows_while_releasing_ends_this_one() {
    for result in [Ok(vec![Outcome::Committed, Outcome::Fenced]), Err(no(Call::Release, ErrorKind::Fenced, "c"))] {
        let (_, _, mut host, _) = about_to_release();
        released(&mut host, result);
        assert!(matches!(host.ended, Some(End::Superseded(_))), "{:?}", host.ended);
    }
}

#[test]
fn an_answer_that_comes_twice_counts_once_while_another_sink_still_releases() {
    let (mut world, graph) = sinks(vec![("a", abilities()), ("b", abilities())]);
    let mut host = started(&mut world, &graph, 1);
    let mut asked = Vec::new();
    for _ in 0..6 {
        host.epoch(&mut world, 4);
        host.settle(&mut world, releases);
        asked.extend(host.take(releases));
        asked.extend(host.take(releases));
        if !asked.is_empty() {
            break;
        }
    }
    assert_eq!(asked.len(), 2);
    let answer = |at: &str| Event::ReleaseAnswered { sink: sink(at), result: Ok(vec![Outcome::Committed; 2]) };
    step(&mut host, answer("a"));
    let late = Err(no(Call::Release, ErrorKind::Fenced, "c"));
    step(&mut host, Event::ReleaseAnswered { sink: sink("a"), result: late });
    assert!(host.ended.is_none() && gone(&world) == 0, "`b` has not answered");
    step(&mut host, answer("b"));
    host.settle(&mut world, |effect| matches!(effect, Effect::DeleteRecords { .. }));
    assert_eq!(gone(&world), 4);
}

#[test]
fn one_timer_serves_giving_back_and_releasing_at_the_same_sink() {
    let (mut world, _, mut host, resources) = about_to_release();
    released(&mut host, Err(fault(Call::Release, FaultKind::Timeout)));
    step(&mut host, Event::TimerFired { timer: Timer::Sweep });
    let Some(Effect::ListOrphans { .. }) = host.take(lists) else { panic!("nothing is listed") };
    let result = Err(fault(Call::ListOrphans, FaultKind::Timeout));
    step(&mut host, Event::OrphansListed { sink: sink("a"), result });
    host.timers();
    assert_eq!(asked_to_release(&mut host), resources);
    assert!(host.take(lists).is_some());
    released(&mut host, Ok(vec![Outcome::Committed; 2]));
    host.settle(&mut world, |effect| lists(effect) || matches!(effect, Effect::DeleteRecords { .. }));
    assert_eq!(gone(&world), 2);
}

#[test]
fn a_run_that_is_ending_asks_for_nothing_more() {
    let (mut world, _, mut host, _) = about_to_release();
    released(&mut host, Err(fault(Call::Release, FaultKind::Timeout)));
    step(&mut host, Event::TimerFired { timer: Timer::Sweep });
    host.take(lists).expect("a listing");
    let result = Err(fault(Call::ListOrphans, FaultKind::Timeout));
    step(&mut host, Event::OrphansListed { sink: sink("a"), result });
    // An announcement is on its way, so that the end waits for the log.
    step(&mut host, Event::IntentAnnounced { request: 1, sink: sink("a"), part: None, resource: staged_file("x") });
    host.lose_epoch();
    assert!(host.ended.is_none());
    step(&mut host, Event::TimerFired { timer: Timer::CleanUpRetry(sink("a")) });
    step(&mut host, Event::TimerFired { timer: Timer::Sweep });
    assert!(host.take(|effect| releases(effect) || lists(effect)).is_none());
    host.settle(&mut world, everything);
    assert!(matches!(host.ended, Some(End::Restart(_))), "{:?}", host.ended);
}

/// The log is an older copy: it does not know that the second epoch is committed and the third one sealed.
#[test]
fn after_an_accepted_ahead_nothing_of_the_run_that_went_further_is_given_back() {
    let (mut world, graph) = one_sink(abilities());
    let mut first = started(&mut world, &graph, 1);
    for _ in 0..2 {
        first.epoch(&mut world, 4);
        first.settle(&mut world, |_| false);
    }
    first.epoch(&mut world, 4);
    first.settle(&mut world, commits);
    drop(first);
    let second = world.log.records.values().filter(|record| matches!(record.body, Body::Seal(_))).nth(1);
    let kept = second.map(|record| record.slot).expect("two seals");
    world.log.records.retain(|slot, _| *slot < kept);
    let staged = world.destinations[&sink("a")].staged.clone();
    assert!(!staged.is_empty());
    let accepted = (sink("a"), ("d".to_owned(), "me".to_owned(), MismatchPolicy::AcceptDuplicates));
    let accepting = Settings { mismatch: BTreeMap::from([accepted]), ..settings() };
    let mut host = Host::start(&world, &graph, accepting, 2);
    host.settle(&mut world, lists);
    let listed = host.take(lists).expect("asked");
    let Effect::ListOrphans { sink: at, .. } = listed else { panic!("{listed:?}") };
    let orphan = |short: &String| Orphan { short: short.clone(), resource: staged_file(short), bytes: None };
    let page = OrphanPage { orphans: staged.keys().map(orphan).collect(), next: None };
    let notices = step(&mut host, Event::OrphansListed { sink: at, result: Ok(page) });
    assert!(warned(&notices, "may have been sealed and committed"), "{notices:?}");
    host.settle(&mut world, |_| false);
    // What the run that accepted it leaves behind is its own again, and the next one gives it back.
    host.epoch(&mut world, 2);
    host.settle(&mut world, |effect| matches!(effect, Effect::InjectBarrier { .. }));
    drop(host);
    let last = started(&mut world, &graph, 3);
    assert!(last.ended.is_none(), "{:?}", last.ended);
    let destination = &world.destinations[&sink("a")];
    assert_eq!((&destination.staged, &destination.violations), (&staged, &Vec::new()));
}
