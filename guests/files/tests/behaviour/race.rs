//! Somebody else acts between any two steps.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tidegate_sdk::{Outcome, Part, Sink};
use tidegate_sink_files::Files;

use super::World;
use crate::world::{REGISTER, meanwhile, parts, run, unsealed};

/// Runs `attempt` for every step until the step is not reached; counts.
fn every_step(mut attempt: impl FnMut(usize) -> bool) -> usize {
    (0..500).find(|&number| !attempt(number)).expect("the sweep comes to an end")
}

#[test]
fn f37_the_same_commit_twice_at_once_makes_rows_visible_once() {
    for attempt in [1, 2] {
        let reached = every_step(|number| {
            let world = Arc::new(World::new());
            let one = run(1);
            let previous = world.commit_epoch(&one, 1, &[]);
            let committables = world.stage_epoch(&one, 2);
            let other = {
                let (world, one) = (world.clone(), one.clone());
                let (previous, committables) = (previous.clone(), committables.clone());
                move || {
                    let ctx = world.ctx(&one, attempt);
                    let done = Files::default().commit(&ctx, &previous, &committables).expect("commit answers");
                    assert!(done.iter().all(|o| matches!(o, Outcome::Committed | Outcome::AlreadyCommitted)));
                    world.assert_visible(&[(1, 1), (1, 2)]);
                }
            };
            let (probe, calls) = meanwhile(number, other);
            let done = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &previous, &committables);
            let done = done.expect("commit answers");
            assert!(done.iter().all(|o| matches!(o, Outcome::Committed | Outcome::AlreadyCommitted)), "{done:?}");
            world.assert_visible(&[(1, 1), (1, 2)]);
            assert_eq!(world.observe(&one).last, parts(&committables));
            calls.load(Ordering::SeqCst) > number
        });
        assert!(reached >= 12, "only {reached} steps");
    }
}

#[test]
fn b66_f32_a_late_commit_of_an_older_run_is_either_seen_by_the_fence_or_never_visible() {
    let (mut won, mut fenced) = (0, 0);
    every_step(|number| {
        let world = Arc::new(World::new());
        let (one, two) = (run(1), run(2));
        let previous = world.commit_epoch(&one, 1, &[]);
        let committables = world.stage_epoch(&one, 2);
        let seen: Arc<Mutex<Option<Vec<Part>>>> = Arc::default();
        let other = {
            let (world, two, seen) = (world.clone(), two.clone(), seen.clone());
            move || {
                let position = world.fence(&two);
                *seen.lock().expect("not poisoned") = Some(position.last);
            }
        };
        let (probe, calls) = meanwhile(number, other);
        let late = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &previous, &committables);
        let reached = calls.load(Ordering::SeqCst) > number;
        let late = late.expect("commit answers");
        let Some(seen) = seen.lock().expect("not poisoned").take() else { return reached };
        if seen == parts(&committables) {
            won += 1;
            world.assert_visible(&[(1, 1), (1, 2)]);
        } else {
            fenced += 1;
            assert_eq!(late, [Outcome::Fenced, Outcome::Fenced], "step {number}");
            world.assert_visible(&[(1, 1)]);
        }
        // Either way the new run's commit of the sealed epoch ends in the same place.
        let done = Files::default().commit(&world.ctx(&two, 1), &previous, &committables).expect("answers");
        assert!(done.iter().all(|o| matches!(o, Outcome::Committed | Outcome::AlreadyCommitted)));
        world.assert_visible(&[(1, 1), (1, 2)]);
        reached
    });
    assert!(won >= 5 && fenced >= 3, "won {won}, fenced {fenced}");
}

#[test]
fn b69_a_sleeper_that_wakes_after_the_register_was_trimmed_makes_no_row_visible() {
    let (mut won, mut fenced) = (0, 0);
    every_step(|number| {
        let world = Arc::new(World::new());
        let (one, two) = (run(1), run(2));
        let previous = world.commit_epoch(&one, 1, &[]);
        let committables = world.stage_epoch(&one, 2);
        let seen: Arc<Mutex<Option<Vec<Part>>>> = Arc::default();
        let other = {
            let (world, two, seen) = (world.clone(), two.clone(), seen.clone());
            move || {
                let mut last = world.fence(&two).last;
                *seen.lock().expect("not poisoned") = Some(last.clone());
                for epoch in 10..22 {
                    last = world.commit_epoch(&two, epoch, &last);
                }
            }
        };
        let (probe, calls) = meanwhile(number, other);
        let late = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &previous, &committables);
        let reached = calls.load(Ordering::SeqCst) > number;
        let Some(seen) = seen.lock().expect("not poisoned").take() else { return reached };
        let mut visible: Vec<(u64, u64)> = (10..22).map(|epoch| (2, epoch)).collect();
        visible.push((1, 1));
        if seen == parts(&committables) {
            // Decided before the fence: the fence made it visible.
            won += 1;
            visible.push((1, 2));
        } else {
            fenced += 1;
            assert_eq!(late, Ok(vec![Outcome::Fenced, Outcome::Fenced]), "step {number}");
        }
        world.assert_visible(&visible);
        let position = world.observe(&two);
        assert_eq!(position.fence, Some(two.clone()));
        assert_eq!(position.last[0].epoch, 21, "the newest entry is still the new run's");
        world.commit_epoch(&two, 22, &position.last);
        assert!(world.register().len() <= REGISTER, "{:?}", world.register());
        reached
    });
    assert!(won >= 5 && fenced >= 3, "won {won}, fenced {fenced}");
}

#[test]
fn f46_two_runs_fence_at_once_and_exactly_the_newer_one_owns_the_destination() {
    every_step(|number| {
        let world = Arc::new(World::new());
        let (one, two, three) = (run(1), run(2), run(3));
        let previous = world.commit_epoch(&one, 1, &[]);
        let committables = world.stage_epoch(&one, 2);
        let expected = world.observe(&two);
        let other = {
            let (world, three) = (world.clone(), three.clone());
            move || {
                world.fence(&three);
            }
        };
        let (probe, calls) = meanwhile(number, other);
        let answer = Files::default().fence(&world.ctx_with(&two, 1, Some(probe)), &expected);
        let reached = calls.load(Ordering::SeqCst) > number;
        if !reached {
            assert!(answer.is_ok());
            return false;
        }
        assert_eq!(world.observe(&one).fence, Some(three.clone()));
        let late = Files::default().commit(&world.ctx(&two, 1), &previous, &committables).expect("answers");
        assert_eq!(late, [Outcome::Fenced, Outcome::Fenced]);
        world.assert_visible(&[(1, 1)]);
        true
    });
}

#[test]
fn an_abandon_that_lands_in_the_middle_of_a_commit_is_never_a_silent_loss() {
    every_step(|number| {
        let world = Arc::new(World::new());
        let one = run(1);
        let previous = world.commit_epoch(&one, 1, &[]);
        let committables = world.stage_epoch(&one, 2);
        let other = {
            let (world, one, committables) = (world.clone(), one.clone(), committables.clone());
            move || {
                let subjects: Vec<_> = parts(&committables).into_iter().map(unsealed).collect();
                Files::default().abandon(&world.ctx(&one, 1), &subjects).expect("abandon answers");
            }
        };
        let (probe, calls) = meanwhile(number, other);
        let answer = Files::default().commit(&world.ctx_with(&one, 1, Some(probe)), &previous, &committables);
        let done = |outcomes: &Vec<Outcome>| outcomes.iter().all(|o| *o == Outcome::Committed);
        if answer.as_ref().is_ok_and(done) {
            world.assert_visible(&[(1, 1), (1, 2)]);
        } else {
            // No host does that to a sealed part. If one does: said so, and the log shows no half epoch.
            assert!(!world.logged_epochs().contains(&(1, 2)));
            world.logged_rows();
        }
        calls.load(Ordering::SeqCst) > number
    });
}
