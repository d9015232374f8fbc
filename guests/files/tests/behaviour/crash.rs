//! A crash, or one error, at every single step; then the work is repeated to the end.

use std::fs;
use std::sync::atomic::Ordering;

use tidegate_sdk::fs::ErrorKind;
use tidegate_sdk::{Outcome, Sink};
use tidegate_sink_files::Files;

use super::World;
use crate::world::{crash_at, fail_once, parts, run, unsealed};

fn is_done(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| matches!(outcome, Outcome::Committed | Outcome::AlreadyCommitted))
}

/// Calls `attempt` with 0, 1, 2 … until it says that the fault was not reached any more. Returns how many were.
fn sweep(mut attempt: impl FnMut(usize) -> bool) -> usize {
    (0..500).find(|&number| !attempt(number)).expect("the sweep comes to an end")
}

#[test]
fn crash_after_every_step_of_a_first_commit_then_the_same_run_repeats_it() {
    let reached = sweep(|number| {
        let world = World::new();
        let one = run(1);
        let committables = world.stage_epoch(&one, 1);
        let (probe, calls) = crash_at(number);
        let _ = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &[], &committables);
        world.logged_rows();
        let again = Files::default().commit(&world.ctx(&one, 2), &[], &committables).expect("commit answers");
        assert!(is_done(&again), "crash at {number}: {again:?}");
        world.assert_visible(&[(1, 1)]);
        assert_eq!(world.observe(&one).last, parts(&committables));
        assert!(world.staged().is_empty());
        calls.load(Ordering::SeqCst) > number
    });
    assert!(reached >= 10, "only {reached} steps were crashed");
}

#[test]
fn f42_crash_in_commit_then_crash_in_the_next_runs_recovery_then_recovery() {
    let mut inner_reached = 0;
    let reached = sweep(|number| {
        let mut outer = false;
        inner_reached += sweep(|inner| {
            let world = World::new();
            let (one, two, three) = (run(1), run(2), run(3));
            let previous = world.commit_epoch(&one, 1, &[]);
            let committables = world.stage_epoch(&one, 2);
            let (probe, calls) = crash_at(number);
            let _ = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &previous, &committables);
            outer = calls.load(Ordering::SeqCst) > number;
            world.logged_rows();

            let (probe, calls) = crash_at(inner);
            let ctx = world.ctx_with(&two, 1, Some(probe));
            let expected = world.observe(&two);
            let mut files = Files::default();
            if files.fence(&ctx, &expected).is_ok() {
                let _ = files.commit(&ctx, &previous, &committables);
            }
            let inner_hit = calls.load(Ordering::SeqCst) > inner;
            world.logged_rows();

            world.fence(&three);
            let done = Files::default().commit(&world.ctx(&three, 1), &previous, &committables).expect("answers");
            assert!(is_done(&done), "crash at {number}, then {inner}: {done:?}");
            world.assert_visible(&[(1, 1), (1, 2)]);
            let of_older = |name: &String| name.starts_with("new-") && !name.contains(&three.to_string());
            let leftovers = world.register().iter().filter(|name| of_older(name)).count();
            assert_eq!(leftovers, 0, "crash at {number}, then {inner}: what older runs wrote is swept");
            inner_hit
        });
        outer
    });
    assert!(reached >= 9 && inner_reached > reached * 5, "{reached} and {inner_reached} crashes");
}

#[test]
fn a_file_gone_behind_a_decision_then_a_crash_in_the_fence_then_it_is_put_back_or_given_up() {
    let (mut blocked, mut crashed) = (0, 0);
    for put_back in [true, false] {
        sweep(|number| {
            let mut outer = false;
            crashed += sweep(|inner| {
                let world = World::new();
                let (one, two, three) = (run(1), run(2), run(3));
                let previous = world.commit_epoch(&one, 1, &[]);
                let committables = world.stage_epoch(&one, 2);
                let (probe, calls) = crash_at(number);
                let _ = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &previous, &committables);
                outer = calls.load(Ordering::SeqCst) > number;
                let expected = world.observe(&two);
                let staged = world.staged().into_iter().next();
                let (true, Some(staged)) = (expected.last == parts(&committables), staged) else { return false };
                let path = world.path().join(format!("_tidegate/{}/staging/{staged}", world.hash));
                let bytes = fs::read(&path).expect("it is staged");
                fs::remove_file(&path).expect("it is staged");

                let (probe, calls) = crash_at(inner);
                let _ = Files::default().fence(&world.ctx_with(&two, 1, Some(probe)), &expected);
                let inner_hit = calls.load(Ordering::SeqCst) > inner;
                world.fence(&three);
                let ctx = world.ctx(&three, 1);
                match Files::default().commit(&ctx, &previous, &committables) {
                    // That file had its published name by then.
                    Ok(done) => assert!(is_done(&done), "crash at {number}, then {inner}: {done:?}"),
                    Err(error) => {
                        blocked += 1;
                        assert_eq!(error.code, "committed-file-missing", "crash at {number}, then {inner}");
                        assert!(!world.logged_epochs().contains(&(1, 2)));
                        if !put_back {
                            world.commit_epoch(&three, 3, &previous);
                            world.fence(&run(4));
                            assert_eq!(world.logged_epochs(), [(1, 1), (3, 3)].into());
                            return inner_hit;
                        }
                        fs::write(&path, bytes).expect("the folder is there");
                        let done = Files::default().commit(&ctx, &previous, &committables).expect("answers");
                        assert!(is_done(&done), "crash at {number}, then {inner}: {done:?}");
                    }
                }
                world.assert_visible(&[(1, 1), (1, 2)]);
                inner_hit
            });
            outer
        });
    }
    assert!(blocked >= 20 && crashed >= 40, "{blocked} epochs were blocked, {crashed} fences crashed");
}

#[test]
fn what_a_crash_left_half_done_is_finished_by_the_fence_alone() {
    let mut finished_by_fence = 0;
    sweep(|number| {
        let world = World::new();
        let (one, two) = (run(1), run(2));
        let committables = world.stage_epoch(&one, 1);
        let (probe, calls) = crash_at(number);
        let _ = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &[], &committables);
        let decided = !world.observe(&two).last.is_empty();
        let position = world.fence(&two);
        assert_eq!(position.last.is_empty(), !decided, "a fence decides nothing");
        if decided {
            // Nobody has to send the commit again.
            finished_by_fence += 1;
            world.assert_visible(&[(1, 1)]);
        } else {
            world.assert_visible(&[]);
        }
        calls.load(Ordering::SeqCst) > number
    });
    assert!(finished_by_fence >= 5, "{finished_by_fence} epochs were finished by a fence");
}

#[test]
fn what_a_crash_left_half_done_is_finished_by_the_next_commit_alone() {
    let mut finished = 0;
    sweep(|number| {
        let world = World::new();
        let one = run(1);
        let first = world.stage_epoch(&one, 1);
        let (probe, calls) = crash_at(number);
        let _ = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &[], &first);
        if world.observe(&one).last == parts(&first) {
            finished += 1;
            world.commit_epoch(&one, 2, &parts(&first));
            world.assert_visible(&[(1, 1), (1, 2)]);
        }
        calls.load(Ordering::SeqCst) > number
    });
    assert!(finished >= 5, "{finished} epochs were finished by the next commit");
}

#[test]
fn crash_after_every_step_of_a_fence_then_the_same_or_another_run_fences() {
    for second in [2, 3] {
        let reached = sweep(|number| {
            let world = World::new();
            let (one, two, next) = (run(1), run(2), run(second));
            let previous = world.commit_epoch(&one, 1, &[]);
            let expected = world.observe(&two);
            let (probe, calls) = crash_at(number);
            let _ = Files::default().fence(&world.ctx_with(&two, 1, Some(probe)), &expected);
            let expected = world.observe(&next);
            let position = Files::default().fence(&world.ctx(&next, 2), &expected).expect("fences");
            assert_eq!(position.fence, Some(next.clone()));
            assert_eq!(position.last, previous);
            assert_eq!(world.observe(&next), position);
            world.assert_visible(&[(1, 1)]);
            calls.load(Ordering::SeqCst) > number
        });
        assert!(reached >= 6, "only {reached} steps were crashed");
    }
}

#[test]
fn crash_after_every_step_of_abandon_then_it_is_repeated() {
    let reached = sweep(|number| {
        let world = World::new();
        let (one, two) = (run(1), run(2));
        let kept = world.stage_epoch(&one, 1);
        let given_up = world.stage_epoch(&one, 2);
        world.fence(&two);
        let subjects: Vec<_> = parts(&given_up).into_iter().map(unsealed).collect();
        let (probe, calls) = crash_at(number);
        let _ = Files::default().abandon(&world.ctx_with(&two, 1, Some(probe)), &subjects);
        let done = Files::default().abandon(&world.ctx(&two, 2), &subjects).expect("abandon answers");
        assert!(is_done(&done));
        let staged: Vec<_> = parts(&kept).into_iter().map(|part| part.short).collect();
        assert_eq!(world.staged_parts(), staged, "only what was given up is gone");
        calls.load(Ordering::SeqCst) > number
    });
    assert!(reached >= 3, "only {reached} steps were crashed");
}

#[test]
fn f05_crash_in_staging_leaves_an_orphan_that_is_listed_or_nothing() {
    let mut orphans = 0;
    sweep(|number| {
        let world = World::new();
        let one = run(1);
        let (probe, calls) = crash_at(number);
        let answer = world.prepare(&world.ctx_with(&one, 1, Some(probe)), &one, 1, 0, 3);
        world.assert_visible(&[]);
        let page = Files::default().list_orphans(&world.ctx(&run(2), 1), "tg-", None).expect("lists");
        assert!(answer.is_err() || page.orphans.len() == 1);
        orphans += page.orphans.len();
        for orphan in page.orphans {
            assert_eq!(orphan.short, world.part(&one, 1, 0).short);
            let gone = Files::default().abandon(&world.ctx(&run(2), 1), &[unsealed(world.part(&one, 1, 0))]);
            assert_eq!(gone, Ok(vec![Outcome::Committed]));
        }
        assert!(world.staged().is_empty());
        calls.load(Ordering::SeqCst) > number
    });
    assert!(orphans >= 3, "{orphans} orphans");
}

#[test]
fn one_error_at_every_step_of_commit_never_ends_in_a_false_answer() {
    for kind in [ErrorKind::Other, ErrorKind::NoSpace, ErrorKind::Denied] {
        let reached = sweep(|number| {
            let world = World::new();
            let one = run(1);
            let previous = world.commit_epoch(&one, 1, &[]);
            let committables = world.stage_epoch(&one, 2);
            let (probe, calls) = fail_once(number, kind);
            let mut files = Files::default();
            let answer = files.commit(&world.ctx_with(&one, 1, Some(probe)), &previous, &committables);
            if let Ok(outcomes) = &answer {
                assert!(is_done(outcomes), "{outcomes:?}");
                world.assert_visible(&[(1, 1), (1, 2)]);
            }
            let again = files.commit(&world.ctx(&one, 2), &previous, &committables).expect("commit answers");
            assert!(is_done(&again));
            world.assert_visible(&[(1, 1), (1, 2)]);
            calls.load(Ordering::SeqCst) > number
        });
        assert!(reached >= 12, "only {reached} steps failed");
    }
}

#[test]
fn b49_one_error_at_every_step_of_staging_is_never_a_prepared_part() {
    for kind in [ErrorKind::Other, ErrorKind::NoSpace] {
        sweep(|number| {
            let world = World::new();
            let (probe, calls) = fail_once(number, kind);
            let answer = world.prepare(&world.ctx_with(&run(1), 1, Some(probe)), &run(1), 1, 0, 3);
            let failed = calls.load(Ordering::SeqCst) > number;
            assert_eq!(answer.is_err(), failed, "step {number}");
            failed
        });
    }
}
