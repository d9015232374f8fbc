//! What people ask of a running pipeline, and the one answer that each request gets.

mod world;

use tidegate_protocol::coordinator::Settings;
use tidegate_protocol::event::{Effect, Event, RequestRefused};
use tidegate_protocol::history::CheckpointState;
use tidegate_protocol::ids::EpochRef;
use tidegate_protocol::record::{Body, CutReason};
use world::drive::*;
use world::host::Host;
use world::{World, abilities, settings};

fn savepoint(host: &mut Host, name: &str) -> u64 {
    host.ask(|request| Event::SavepointAsked { request, name: name.to_owned() })
}

fn forget(host: &mut Host, name: &str) -> u64 {
    host.ask(|request| Event::ForgetAsked { request, name: name.to_owned() })
}

fn answer_to(host: &Host, request: u64) -> Option<Result<EpochRef, RequestRefused>> {
    host.answers[&request].clone()
}

fn barrier(effect: &Effect) -> bool {
    matches!(effect, Effect::InjectBarrier { .. })
}

fn reasons(world: &World) -> Vec<CutReason> {
    let seal = |body: &Body| if let Body::Seal(seal) = body { Some(seal.reason.clone()) } else { None };
    world.log.records.values().filter_map(|record| seal(&record.body)).collect()
}

#[test]
fn a_savepoint_is_cut_at_once_with_and_without_rows_and_answered_when_sealed() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    let idle = savepoint(&mut host, "idle");
    host.settle(&mut world, appends);
    assert_eq!(answer_to(&host, idle), None, "not before it is durable");
    host.settle(&mut world, everything);
    assert_eq!(answer_to(&host, idle), Some(Ok(seals(&world)[0])));
    host.read(&mut world, 0, 1_000);
    let busy = savepoint(&mut host, "busy");
    host.settle(&mut world, everything);
    assert_eq!(answer_to(&host, busy), Some(Ok(seals(&world)[1])));
    assert_eq!(world.log.fold().savepoints().len(), 2);
}

#[test]
fn names_that_are_taken_or_not_allowed_are_refused_and_change_nothing() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    for name in ["7", "7@3", "", "Upper", "with space", "-x", &"a".repeat(41)] {
        let asked = savepoint(&mut host, name);
        assert!(matches!(answer_to(&host, asked), Some(Err(RequestRefused::IllegalName(_)))), "{name}");
    }
    let first = savepoint(&mut host, "s");
    let twin = savepoint(&mut host, "s");
    assert_eq!(answer_to(&host, twin), Some(Err(RequestRefused::NameTaken(None))));
    host.settle(&mut world, everything);
    assert!(matches!(answer_to(&host, first), Some(Ok(_))));
    let late = savepoint(&mut host, "s");
    assert_eq!(answer_to(&host, late), Some(Err(RequestRefused::NameTaken(Some(seals(&world)[0])))));
    assert_eq!(seals(&world).len(), 1);
}

#[test]
fn several_savepoints_are_cut_one_after_the_other_and_before_a_stop() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.read(&mut world, 0, 1_000);
    let asked: Vec<u64> = ["one", "two", "three"].into_iter().map(|name| savepoint(&mut host, name)).collect();
    host.tell(Event::StopRequested);
    host.settle(&mut world, everything);
    assert!(asked.iter().all(|request| matches!(answer_to(&host, *request), Some(Ok(_)))), "{:?}", host.answers);
    let last = reasons(&world).pop();
    assert_eq!((reasons(&world).len(), last), (4, Some(CutReason::Stop)));
    assert!(host.ended.is_some());
}

#[test]
fn too_many_requests_are_refused() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = Host::start(&world, &graph, settings(), 1);
    let asked: Vec<u64> = (0..40).map(|n| savepoint(&mut host, &format!("s{n}"))).collect();
    let refused = asked.iter().filter(|request| answer_to(&host, **request) == Some(Err(RequestRefused::TooMany)));
    assert!(refused.count() > 20);
    host.settle(&mut world, everything);
    assert!(asked.iter().all(|request| answer_to(&host, *request).is_some()));
    assert_eq!(seals(&world).len(), world.log.fold().savepoints().len());
}

#[test]
fn a_savepoint_waits_while_a_sink_is_behind_and_can_be_withdrawn() {
    let (mut world, graph) = one_sink(abilities());
    let few = Settings { max_waiting: 1, ..settings() };
    let mut host = started_with(&mut world, &graph, few, 1);
    host.epoch(&mut world, 2);
    host.settle(&mut world, commits);
    let (kept, withdrawn) = (savepoint(&mut host, "kept"), savepoint(&mut host, "withdrawn"));
    host.settle(&mut world, commits);
    assert_eq!((answer_to(&host, kept), answer_to(&host, withdrawn)), (None, None));
    host.tell(Event::RequestWithdrawn { request: withdrawn });
    assert_eq!(answer_to(&host, withdrawn), Some(Err(RequestRefused::Withdrawn)));
    host.settle(&mut world, everything);
    assert!(matches!(answer_to(&host, kept), Some(Ok(_))));
    assert_eq!(world.log.fold().savepoints().len(), 1);
}

#[test]
fn what_has_begun_is_not_withdrawn() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    let asked = savepoint(&mut host, "s");
    host.settle(&mut world, barrier);
    host.tell(Event::RequestWithdrawn { request: asked });
    assert_eq!(answer_to(&host, asked), None);
    host.settle(&mut world, everything);
    assert!(matches!(answer_to(&host, asked), Some(Ok(_))));
}

#[test]
fn a_run_that_ends_answers_everything_that_waits() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    let cutting = savepoint(&mut host, "cutting");
    host.settle(&mut world, barrier);
    let waiting = savepoint(&mut host, "waiting");
    host.lose_epoch();
    host.settle(&mut world, everything);
    for request in [cutting, waiting] {
        assert_eq!(answer_to(&host, request), Some(Err(RequestRefused::RunOver)));
    }
    assert!(seals(&world).is_empty());
    // While the last epoch is being cut there is no place for another.
    let mut host = started(&mut world, &graph, 2);
    host.read(&mut world, 0, 1_000);
    host.tell(Event::StopRequested);
    let late = savepoint(&mut host, "late");
    assert_eq!(answer_to(&host, late), Some(Err(RequestRefused::RunOver)));
}

#[test]
fn a_forgotten_savepoint_is_subject_to_retention_again() {
    let (mut world, graph) = one_sink(abilities());
    let mut host = started(&mut world, &graph, 1);
    host.read(&mut world, 0, 1_000);
    savepoint(&mut host, "s");
    host.settle(&mut world, everything);
    let kept = seals(&world)[0];
    let epochs = |host: &mut Host, world: &mut World| {
        for _ in 0..12 {
            host.epoch(world, 2);
            host.settle(world, everything);
        }
    };
    epochs(&mut host, &mut world);
    assert_eq!(world.log.fold().seal(kept).map(|epoch| epoch.checkpoint), Some(CheckpointState::Retained));
    let (first, twin) = (forget(&mut host, "s"), forget(&mut host, "s"));
    assert_eq!(answer_to(&host, twin), Some(Err(RequestRefused::UnknownSavepoint)), "it is on its way already");
    host.settle(&mut world, everything);
    assert_eq!(answer_to(&host, first), Some(Ok(kept)));
    epochs(&mut host, &mut world);
    assert!(world.log.fold().seal(kept).is_none());
    let again = forget(&mut host, "s");
    assert_eq!(answer_to(&host, again), Some(Err(RequestRefused::UnknownSavepoint)));
    assert!(host.ended.is_none(), "{:?}", host.ended);
}

#[test]
fn what_is_asked_while_the_run_starts_is_done_once_it_runs() {
    let (mut world, graph) = one_sink(abilities());
    let mut first = started(&mut world, &graph, 1);
    savepoint(&mut first, "old");
    first.settle(&mut world, everything);
    drop(first);
    let mut host = Host::start(&world, &graph, settings(), 2);
    let (made, forgotten) = (savepoint(&mut host, "new"), forget(&mut host, "old"));
    assert_eq!((answer_to(&host, made), answer_to(&host, forgotten)), (None, None));
    host.settle(&mut world, everything);
    assert!(matches!(answer_to(&host, made), Some(Ok(_))) && matches!(answer_to(&host, forgotten), Some(Ok(_))));
    let history = world.log.fold();
    assert_eq!(history.savepoints().keys().collect::<Vec<_>>(), ["new"]);
}
