//! Each call by itself, and in the orders that a host may make.

use std::fs;
use std::sync::Arc;

use tidegate_sdk::fs::ErrorKind as FsErrorKind;
use tidegate_sdk::native::{FsOp, Rows};
use tidegate_sdk::{Committable, Encoding, ErrorKind, External, KeyRange, Outcome, Position, RunId, Sink, Writer};
use tidegate_sink_files::Files;

use crate::world::{HASH, Op, REGISTER, flushes, io_error, parts, recording, run, unsealed};

type World = crate::world::World<false>;

const ALL: KeyRange = KeyRange { first: 0, last: u32::MAX };

fn code(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Rejected(error) => &error.code,
        other => panic!("expected a rejection, got {other:?}"),
    }
}

#[test]
fn rows_are_unseen_before_commit_and_whole_after_it() {
    let world = World::new();
    let committables = world.stage_epoch(&run(1), 1);
    world.assert_visible(&[]);
    let outcomes = Files::default().commit(&world.ctx(&run(1), 1), &[], &committables).expect("answers");
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Committed]);
    world.assert_visible(&[(1, 1)]);
}

#[test]
fn a_repeated_commit_changes_nothing_however_late_it_comes() {
    let world = World::new();
    let one = run(1);
    let first = world.stage_epoch(&one, 1);
    let mut files = Files::default();
    files.commit(&world.ctx(&one, 1), &[], &first).expect("answers");
    let mut previous = parts(&first);
    let mut visible = vec![(1, 1)];
    for epoch in 2..30 {
        previous = world.commit_epoch(&one, epoch, &previous);
        visible.push((1, epoch));
        let again = files.commit(&world.ctx(&one, 2), &[], &first).expect("answers");
        assert_eq!(again, [Outcome::AlreadyCommitted, Outcome::AlreadyCommitted]);
        world.assert_visible(&visible);
        assert_eq!(world.observe(&one).last, previous);
    }
}

#[test]
fn observe_and_reconcile_change_nothing() {
    let world = World::new();
    let (probe, ops) = recording();
    let ctx = world.ctx_with(&run(2), 1, Some(probe));
    assert_eq!(Files::default().observe(&ctx), Ok(Position::default()));
    let committables = world.stage_epoch(&run(1), 1);
    Files::default().observe(&ctx).expect("answers");
    let before = Files::default().reconcile(&ctx, &committables).expect("answers");
    assert_ne!(before[0], Outcome::AlreadyCommitted);
    Files::default().commit(&world.ctx(&run(1), 1), &[], &committables).expect("answers");
    let after = Files::default().reconcile(&ctx, &committables).expect("answers");
    assert_eq!(after, [Outcome::AlreadyCommitted, Outcome::AlreadyCommitted]);
    assert_eq!(Files::default().observe(&ctx).expect("answers").last, parts(&committables));
    assert!(ops.lock().expect("not poisoned").iter().all(|op| *op == Op::Look));
}

#[test]
fn observe_costs_the_same_after_many_epochs_and_leaves_no_trail() {
    let world = World::new();
    let one = run(1);
    let mut files = Files::default();
    let mut previous = Vec::new();
    for epoch in 1..=200 {
        let committables = vec![world.stage(&one, epoch, 0, 1)];
        files.commit(&world.ctx(&one, 1), &previous, &committables).expect("answers");
        previous = parts(&committables);
    }
    let (probe, ops) = recording();
    files.observe(&world.ctx_with(&one, 1, Some(probe))).expect("answers");
    let spares = world.register().iter().filter(|name| name.starts_with("new-")).count();
    assert!((1..=16).contains(&spares), "{spares} spares");
    assert_eq!(ops.lock().expect("not poisoned").len(), 2 + spares, "one listing, one entry, and every spare");
    assert!(world.register().len() <= REGISTER, "{:?}", world.register());
    assert!(world.staged().is_empty());
}

#[test]
fn a_commit_costs_three_flushes_and_one_more_in_eight_and_a_part_two() {
    let world = World::new();
    let one = run(1);
    world.fence(&one);
    let mut files = Files::default();
    let mut previous = Vec::new();
    let mut costs = Vec::new();
    for epoch in 1..=33 {
        let committables = world.stage_epoch(&one, epoch);
        let (probe, ops) = recording();
        files.commit(&world.ctx_with(&one, 1, Some(probe)), &previous, &committables).expect("answers");
        previous = parts(&committables);
        costs.push(flushes(&ops.lock().expect("not poisoned")));
    }
    // The first one of an instance looks about; the others follow a rhythm.
    let rhythm: Vec<usize> = costs[1..].chunks(8).map(|eight| eight.iter().sum()).collect();
    assert_eq!(rhythm, [25; 4], "{costs:?}");

    let (probe, ops) = recording();
    let ctx = world.ctx_with(&one, 1, Some(probe));
    let mut writer = Files::default().open(&ctx, ALL, Vec::new()).expect("opens");
    for epoch in 40..42 {
        ops.lock().expect("not poisoned").clear();
        writer.begin(&ctx, &world.part(&one, epoch, 0)).expect("begins");
        writer.write(&ctx, &Rows::lines(Encoding::Raw, "a\n").batch()).expect("writes");
        writer.prepare(&ctx).expect("prepares");
    }
    assert_eq!(flushes(&ops.lock().expect("not poisoned")), 2, "for the second part of a writer");
}

#[test]
fn names_of_much_data_are_flushed_once_in_eight_epochs_and_never_in_prepare() {
    let world = World::new();
    let one = run(1);
    let (probe, ops) = recording();
    let ctx = world.ctx_with(&one, 1, Some(probe));
    let mut writer = Files::default().open(&ctx, ALL, Vec::new()).expect("opens");
    let much = bytes::Bytes::from("0123456789abcde\n".repeat(20_000));
    let much = || Rows { bytes: much.clone(), rows: 20_000, encoding: Encoding::Raw, schema: 0, file: None };
    let mut committables = Vec::new();
    let mut of_names = 0;
    for epoch in 1..=16 {
        writer.begin(&ctx, &world.part(&one, epoch, 0)).expect("begins");
        ops.lock().expect("not poisoned").clear();
        writer.write(&ctx, &much().batch()).expect("writes");
        of_names += flushes(&ops.lock().expect("not poisoned").split_off(0));
        committables.push(writer.prepare(&ctx).expect("prepares").committable);
        assert_eq!(flushes(&ops.lock().expect("not poisoned")), 1, "the file, in epoch {epoch}");
    }
    assert_eq!(of_names, 2);
    // An epoch that is left out leaves an empty file until names are made again.
    writer.begin(&ctx, &world.part(&one, 27, 0)).expect("begins");
    writer.write(&ctx, &much().batch()).expect("writes");
    committables.push(writer.prepare(&ctx).expect("prepares").committable);
    let empty = |name: &String| {
        let staged = world.path().join(format!("_tidegate/{HASH}/staging/{name}"));
        fs::metadata(staged).expect("there").len() == 0
    };
    assert_eq!(world.staged().iter().filter(|name| empty(name)).count(), 7, "{:?}", world.staged());
    let mut files = Files::default();
    for committable in &committables {
        let outcomes = files.commit(&world.ctx(&one, 1), &[], std::slice::from_ref(committable)).expect("answers");
        assert_eq!(outcomes, [Outcome::Committed]);
    }
    assert_eq!(world.plain_rows().values().sum::<u32>(), 17 * 20_000);
    // What was made ahead and not used is found by the next run, and given back like anything that was not sealed.
    let two = run(2);
    world.fence(&two);
    let page = Files::default().list_orphans(&world.ctx(&two, 1), "tg-", None).expect("lists");
    let left: Vec<_> = (28..35).map(|epoch| world.part(&one, epoch, 0)).collect();
    let shorts: Vec<_> = page.orphans.iter().map(|orphan| orphan.short.clone()).collect();
    assert_eq!(shorts, left.iter().map(|part| part.short.clone()).collect::<Vec<_>>());
    let left: Vec<_> = left.into_iter().map(unsealed).collect();
    let gone = Files::default().abandon(&world.ctx(&two, 1), &left).expect("abandon answers");
    assert_eq!(gone, vec![Outcome::Committed; 7]);
    assert!(world.staged().is_empty());
}

#[test]
fn a_register_that_the_version_before_wrote_is_continued() {
    let world = World::new();
    let (one, two) = (run(1), run(2));
    let first = world.commit_epoch(&one, 1, &[]);
    let register = world.path().join(format!("_tidegate/{HASH}/register"));
    for name in world.register().into_iter().filter(|name| name.starts_with("new-")) {
        fs::remove_file(register.join(name)).expect("removes");
    }
    // It wrote entries without spaces behind them, into a file of any name that began with `new-`.
    let slot = register.join(format!("{:020}", 1));
    let text = fs::read_to_string(&slot).expect("reads");
    fs::write(&slot, text.trim_end()).expect("writes");
    assert_eq!(world.observe(&one).last, first);

    // A crash between the flush of the next entry and its link.
    let ahead = World::new();
    let ahead_first = ahead.commit_epoch(&one, 1, &[]);
    let second = ahead.stage_epoch(&one, 2);
    assert_eq!(world.stage_epoch(&one, 2), second);
    Files::default().commit(&ahead.ctx(&one, 1), &ahead_first, &second).expect("answers");
    let next = fs::read_to_string(ahead.path().join(format!("_tidegate/{HASH}/register/{:020}", 2))).expect("reads");
    fs::write(register.join(format!("new-epoch-{one}-2-1-0")), next.trim_end()).expect("writes");
    assert_eq!(world.observe(&two).last, parts(&second));
    world.fence(&two);
    world.assert_visible(&[(1, 1), (1, 2)]);
    let third = world.commit_epoch(&two, 3, &parts(&second));
    assert_eq!(world.observe(&two).last, third);
    world.assert_visible(&[(1, 1), (1, 2), (2, 3)]);
    let old =
        world.register().iter().filter(|name| name.starts_with("new-") && !name.contains(&two.to_string())).count();
    assert_eq!(old, 0, "{:?}", world.register());
}

#[test]
fn commit_after_abandon_is_never_and_stays_so() {
    let world = World::new();
    let (one, two) = (run(1), run(2));
    let previous = world.commit_epoch(&one, 1, &[]);
    let committables = world.stage_epoch(&one, 2);
    world.fence(&two);
    let gone = Files::default().abandon(&world.ctx(&two, 1), &[unsealed(committables[0].part.clone())]);
    assert_eq!(gone, Ok(vec![Outcome::Committed]));
    for attempt in 1..4 {
        let late = Files::default().commit(&world.ctx(&two, attempt), &previous, &committables).expect("answers");
        assert_eq!(late, [Outcome::Never, Outcome::Never]);
        world.assert_visible(&[(1, 1)]);
    }
    assert_eq!(world.observe(&two).last, previous);
}

#[test]
fn h60_abandon_after_commit_is_refused_and_takes_nothing_away() {
    let world = World::new();
    let one = run(1);
    let previous = world.commit_epoch(&one, 1, &[]);
    for _ in 0..2 {
        let outcomes =
            Files::default().abandon(&world.ctx(&one, 1), &[unsealed(previous[0].clone())]).expect("answers");
        assert_eq!(code(&outcomes[0]), "committed");
    }
    let newer = world.commit_epoch(&one, 2, &previous);
    let outcomes = Files::default().abandon(&world.ctx(&one, 1), &[unsealed(previous[1].clone())]).expect("answers");
    assert_eq!(code(&outcomes[0]), "committed", "by the readers' log too");
    assert_eq!(newer.len(), 2);
    world.assert_visible(&[(1, 1), (1, 2)]);
}

#[test]
fn f41_abandon_of_something_never_staged_is_gone_already_and_may_be_repeated() {
    let world = World::new();
    let ctx = world.ctx(&run(2), 1);
    let subject = [unsealed(world.part(&run(1), 7, 0))];
    assert_eq!(Files::default().abandon(&ctx, &subject), Ok(vec![Outcome::AlreadyCommitted]));
    world.stage_epoch(&run(1), 7);
    assert_eq!(Files::default().abandon(&ctx, &subject), Ok(vec![Outcome::Committed]));
    assert_eq!(Files::default().abandon(&ctx, &subject), Ok(vec![Outcome::AlreadyCommitted]));
    assert_eq!(world.staged(), [world.part(&run(1), 7, 1).short]);
}

#[test]
fn f33_a_late_janitor_of_an_older_run_can_remove_nothing() {
    let world = World::new();
    let (one, two) = (run(1), run(2));
    world.fence(&two);
    let committables = world.stage_epoch(&two, 1);
    let late = world.ctx(&one, 1);
    let subject = [unsealed(committables[0].part.clone())];
    assert_eq!(Files::default().abandon(&late, &subject), Ok(vec![Outcome::Fenced]));
    let resource = External { kind: "staged-file".into(), name: committables[0].part.short.clone(), expires_at: None };
    assert_eq!(Files::default().release(&late, &[resource]), Ok(vec![Outcome::Fenced]));
    assert_eq!(world.staged().len(), 2);
}

#[test]
fn release_removes_a_staged_file_and_finds_nothing_of_a_committed_one() {
    let world = World::new();
    let one = run(1);
    world.commit_epoch(&one, 1, &[]);
    world.stage_epoch(&one, 2);
    let staged =
        |epoch| External { kind: "staged-file".into(), name: world.part(&one, epoch, 0).short, expires_at: None };
    let other = External { kind: "table".into(), name: "x".into(), expires_at: None };
    let escape = External { kind: "staged-file".into(), name: "../../../x".into(), expires_at: None };
    let outcomes = Files::default().release(&world.ctx(&one, 1), &[staged(1), staged(2), other, escape]).expect("ok");
    assert_eq!(outcomes[..3], [Outcome::AlreadyCommitted, Outcome::Committed, Outcome::Unsupported]);
    assert_eq!(code(&outcomes[3]), "foreign-name");
    world.assert_visible(&[(1, 1)]);
}

#[test]
fn fence_is_compare_and_set_and_its_repeat_after_a_lost_answer_is_the_same() {
    let world = World::new();
    let (one, two) = (run(1), run(2));
    world.commit_epoch(&one, 1, &[]);
    let expected = world.observe(&two);
    let first = Files::default().fence(&world.ctx(&two, 1), &expected).expect("fences");
    let again = Files::default().fence(&world.ctx(&two, 2), &expected).expect("the same call again");
    assert_eq!(first, again);
    let stale = Files::default().fence(&world.ctx(&run(3), 1), &expected).expect_err("the register moved");
    assert_eq!((stale.kind, stale.code.as_str()), (ErrorKind::Retryable, "position-moved"));
    world.fence(&run(3));
    let older = Files::default().fence(&world.ctx(&two, 3), &first).expect_err("an older run");
    assert_eq!(older.kind, ErrorKind::Fenced);
}

#[test]
fn b27_an_equal_run_number_with_another_random_part_is_foreign() {
    let world = World::new();
    let mut foreign = run(1);
    foreign.nonce = "z".repeat(16);
    world.commit_epoch(&run(1), 1, &[]);
    let committables = world.stage_epoch_unchecked(&foreign, 2);
    let outcomes = Files::default().commit(&world.ctx(&foreign, 1), &[], &committables).expect("answers");
    assert_eq!(outcomes, [Outcome::Fenced]);
    world.assert_visible(&[(1, 1)]);
}

#[test]
fn b16_the_same_epoch_number_of_another_run_is_another_epoch() {
    let world = World::new();
    let (one, two) = (run(1), run(2));
    let first = world.commit_epoch(&one, 1, &[]);
    let second = world.commit_epoch(&one, 2, &first);
    world.commit_epoch(&one, 3, &second);
    // A fork from epoch 1, accepted by a person: its epochs 2 and 3 have other rows.
    world.fence(&two);
    let forked = world.commit_epoch(&two, 2, &first);
    world.commit_epoch(&two, 3, &forked);
    world.assert_visible(&[(1, 1), (1, 2), (1, 3), (2, 2), (2, 3)]);
}

#[test]
fn b34_two_sinks_with_the_same_run_and_epoch_share_a_directory_and_nothing_else() {
    let world = World::new();
    let mut other = World::new();
    other.hash = "wxyz7654".to_owned();
    let one = run(1);
    let committables = world.stage_epoch(&one, 1);
    // The second sink writes into the first one's directory.
    let host = std::sync::Arc::new(tidegate_sdk::native::Host::new().dir("output", world.path()));
    let ctx = host.ctx("other", &other.hash, one.clone(), "{}", 1);
    let mut writer = Files::default().open(&ctx, ALL, Vec::new()).expect("opens");
    writer.begin(&ctx, &other.part(&one, 1, 0)).expect("begins");
    writer.write(&ctx, &Rows::lines(Encoding::JsonLines, "{\"other\":1}\n").batch()).expect("writes");
    let theirs = writer.prepare(&ctx).expect("prepares").committable;
    assert_eq!(Files::default().commit(&ctx, &[], std::slice::from_ref(&theirs)), Ok(vec![Outcome::Committed]));
    assert!(Files::default().observe(&world.ctx(&one, 1)).expect("answers").last.is_empty());
    Files::default().commit(&world.ctx(&one, 1), &[], &committables).expect("answers");
    assert_eq!(world.plain_rows().len(), 6);
    assert_eq!(world.names("_epochs").len(), 2);
    let foreign = Files::default().commit(&world.ctx(&one, 1), &[], &[theirs]).expect_err("another sink's part");
    assert_eq!(foreign.code, "foreign-name");
}

#[test]
fn b06_a_missing_marker_is_no_proof() {
    let world = World::new();
    let one = run(1);
    let first = world.stage_epoch(&one, 1);
    Files::default().commit(&world.ctx(&one, 1), &[], &first).expect("answers");
    let mut previous = parts(&first);
    for epoch in 2..5 {
        previous = world.commit_epoch(&one, epoch, &previous);
    }
    // Somebody archived the first epoch, entry and files.
    for below in ["", "_epochs"] {
        for name in world.names(below).iter().filter(|name| name.starts_with("00000000000000000001")) {
            fs::remove_file(world.path().join(below).join(name)).expect("removes");
        }
    }
    let unknown = [Outcome::Unknown, Outcome::Unknown];
    assert_eq!(Files::default().reconcile(&world.ctx(&one, 1), &first).expect("answers"), unknown);
    assert_eq!(Files::default().commit(&world.ctx(&one, 2), &[], &first).expect("answers"), unknown);
    assert_eq!(world.observe(&one).last, previous);
}

#[test]
fn reconcile_says_not_committed_while_the_same_commit_can_still_land() {
    let world = World::new();
    let one = run(1);
    let previous = world.commit_epoch(&one, 1, &[]);
    let committables = world.stage_epoch(&one, 2);
    let ask = || Files::default().reconcile(&world.ctx(&one, 1), &committables).expect("answers");
    assert_eq!(ask(), [Outcome::NotCommitted, Outcome::NotCommitted]);
    Files::default().commit(&world.ctx(&one, 1), &previous, &committables).expect("answers");
    assert_eq!(ask(), [Outcome::AlreadyCommitted, Outcome::AlreadyCommitted]);
}

#[test]
fn a_destination_that_went_back_in_time_is_noticed_in_the_middle_of_a_run() {
    let world = World::new();
    let one = run(1);
    world.fence(&one);
    let first = world.commit_epoch(&one, 1, &[]);
    let backup = world.register();
    let second = world.commit_epoch(&one, 2, &first);
    // The directory is restored from a backup made after epoch 1.
    for name in world.register().iter().filter(|name| !backup.contains(name)) {
        fs::remove_file(world.path().join(format!("_tidegate/{HASH}/register/{name}"))).expect("removes");
    }
    let committables = world.stage_epoch(&one, 3);
    let outcomes = Files::default().commit(&world.ctx(&one, 1), &second, &committables).expect("answers");
    assert_eq!(code(&outcomes[0]), "position-mismatch");
    // A new run compares for itself and may accept it.
    world.fence(&run(2));
    let outcomes = Files::default().commit(&world.ctx(&run(2), 1), &second, &committables).expect("answers");
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Committed]);
}

#[test]
fn epochs_of_a_run_are_committed_in_order_or_not_at_all() {
    let world = World::new();
    let one = run(1);
    let first = world.commit_epoch(&one, 1, &[]);
    let second = world.stage_epoch(&one, 2);
    world.commit_epoch(&one, 3, &first);
    let outcomes = Files::default().commit(&world.ctx(&one, 1), &first, &second).expect("answers");
    assert_eq!(code(&outcomes[0]), "out-of-order");
    world.assert_visible(&[(1, 1), (1, 3)]);
}

#[test]
fn f10_parts_and_epochs_without_rows_commit_and_publish_no_file() {
    let world = World::new();
    let one = run(1);
    let committables = vec![world.stage(&one, 1, 0, 0), world.stage(&one, 1, 1, 0)];
    let mut files = Files::default();
    let outcomes = files.commit(&world.ctx(&one, 1), &[], &committables).expect("answers");
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Committed]);
    assert_eq!(world.plain_rows().len(), 0);
    assert_eq!(world.names("_epochs").len(), 1);
    assert_eq!(world.observe(&one).last, parts(&committables));
    assert_eq!(files.commit(&world.ctx(&one, 1), &[], &[]), Ok(vec![]));
}

#[test]
fn b02_dropping_a_writer_in_the_middle_of_a_part_touches_nothing() {
    let world = World::new();
    let (probe, ops) = recording();
    let ctx = world.ctx_with(&run(1), 1, Some(probe));
    let mut writer = Files::default().open(&ctx, ALL, Vec::new()).expect("opens");
    assert!(ops.lock().expect("not poisoned").iter().all(|op| *op == Op::Look), "open changes nothing");
    writer.begin(&ctx, &world.part(&run(1), 1, 0)).expect("begins");
    writer.write(&ctx, &Rows::lines(Encoding::JsonLines, "{}\n").batch()).expect("writes");
    let before = ops.lock().expect("not poisoned").len();
    drop(writer);
    assert_eq!(ops.lock().expect("not poisoned").len(), before);
    assert_eq!(world.staged().len(), 1);
}

#[test]
fn b01_a_staged_name_is_never_written_twice() {
    let world = World::new();
    let one = run(1);
    world.stage(&one, 1, 0, 3);
    let error = world.prepare(&world.ctx(&one, 1), &one, 1, 0, 1).expect_err("the name is taken");
    assert_eq!(error.kind, ErrorKind::EpochLost);
}

#[test]
fn h58_a_part_whose_staged_file_was_removed_or_changed_is_not_prepared() {
    for remove in [true, false] {
        let world = World::new();
        let ctx = world.ctx(&run(1), 1);
        let mut writer = Files::default().open(&ctx, ALL, Vec::new()).expect("opens");
        let part = world.part(&run(1), 1, 0);
        writer.begin(&ctx, &part).expect("begins");
        writer.write(&ctx, &Rows::lines(Encoding::JsonLines, "{}\n").batch()).expect("writes");
        let staged = world.path().join(format!("_tidegate/{HASH}/staging/{}", part.short));
        if remove {
            fs::remove_file(staged).expect("removes")
        } else {
            fs::write(staged, "{}\n{}\n").expect("writes")
        }
        assert_eq!(writer.prepare(&ctx).expect_err("no promise").kind, ErrorKind::EpochLost);
    }
}

#[test]
fn f19_a_staged_file_whose_content_was_lost_is_refused_by_name() {
    let world = World::new();
    let committables = world.stage_epoch(&run(1), 1);
    let staged = world.path().join(format!("_tidegate/{HASH}/staging/{}", committables[0].part.short));
    fs::write(staged, "").expect("writes");
    let outcomes = Files::default().commit(&world.ctx(&run(1), 1), &[], &committables).expect("answers");
    assert_eq!(code(&outcomes[0]), "staged-file-damaged");
    assert_eq!(outcomes[1], outcomes[0], "an epoch is committed whole or not at all");
    world.assert_visible(&[]);
}

#[test]
fn f21_a_damaged_newest_entry_is_an_error_and_never_an_empty_destination() {
    for content in ["", "{\"format\":1", "{\"format\":9}"] {
        let world = World::new();
        world.commit_epoch(&run(1), 1, &[]);
        fs::write(world.path().join(format!("_tidegate/{HASH}/register/00000000000000000001")), content).expect("ok");
        let error = Files::default().observe(&world.ctx(&run(1), 1)).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::Permanent);
        assert!(error.message.contains("register entry 1"), "{}", error.message);
    }
}

#[test]
fn a_directory_that_was_removed_beside_the_register_is_never_an_empty_destination() {
    for below in ["_epochs".to_owned(), format!("_tidegate/{HASH}/staging")] {
        let world = World::new();
        let committables = world.stage_epoch(&run(1), 1);
        fs::remove_dir_all(world.path().join("_epochs")).expect("removes");
        assert_eq!(world.observe(&run(1)), Position::default(), "nothing was ever committed");
        Files::default().commit(&world.ctx(&run(1), 1), &[], &committables).expect("answers");
        fs::remove_dir_all(world.path().join(&below)).expect("removes");
        let error = Files::default().observe(&world.ctx(&run(1), 1)).expect_err("refused");
        assert_eq!(error.code, "directory-missing");
        assert!(error.message.starts_with(&format!("`{below}` was removed")), "{}", error.message);
    }
}

#[test]
fn a_file_of_another_writer_is_never_replaced() {
    let world = World::new();
    let one = run(1);
    let committables = world.stage_epoch(&one, 1);
    let name = format!("00000000000000000001-{HASH}-{one}-0-1.jsonl");
    fs::write(world.path().join(&name), "mine\n").expect("writes");
    let refused = Files::default().commit(&world.ctx(&one, 1), &[], &committables).expect("answers");
    assert_eq!(code(&refused[0]), "file-name-taken");
    assert_eq!(refused[1], refused[0], "an epoch is committed whole or not at all");
    assert_eq!(fs::read_to_string(world.path().join(&name)).expect("reads"), "mine\n");
    fs::remove_file(world.path().join(&name)).expect("removes");
    Files::default().commit(&world.ctx(&one, 2), &[], &committables).expect("finishes");
    world.assert_visible(&[(1, 1)]);
}

#[test]
fn orphans_are_listed_by_prefix_page_by_page() {
    let world = World::new();
    for epoch in 1..=600 {
        world.stage(&run(1), epoch, 0, 1);
    }
    world.stage(&run(2), 1, 0, 1);
    let prefix = format!("tg-{HASH}-{}-", run(1));
    let (mut found, mut page, mut pages) = (Vec::new(), None, 0);
    loop {
        let answer = Files::default().list_orphans(&world.ctx(&run(3), 1), &prefix, page.as_deref()).expect("lists");
        assert!(answer.orphans.len() <= 256);
        found.extend(answer.orphans.into_iter().map(|orphan| orphan.short));
        pages += 1;
        match answer.next {
            Some(next) => page = Some(next),
            None => break,
        }
    }
    assert_eq!((found.len(), pages), (600, 3));
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 600, "no orphan twice");
}

#[test]
fn names_end_as_the_encoding_or_the_configuration_says_and_sort_by_epoch() {
    for (config, encoding, begins, ends) in [
        ("{}", Encoding::JsonLines, "0000", ".jsonl"),
        ("{}", Encoding::Raw, "0000", ".txt"),
        (r#"{"extension":"ndjson","file-prefix":"flights-"}"#, Encoding::JsonLines, "flights-0000", ".ndjson"),
    ] {
        let mut world = World::new();
        world.config = config.to_owned();
        let ctx = world.ctx(&run(1), 1);
        let mut writer = Files::default().open(&ctx, ALL, Vec::new()).expect("opens");
        let mut files = Files::default();
        for epoch in 1..12 {
            writer.begin(&ctx, &world.part(&run(1), epoch, 0)).expect("begins");
            writer.write(&ctx, &Rows::lines(encoding, format!("{epoch}\n")).batch()).expect("writes");
            let committable = writer.prepare(&ctx).expect("prepares").committable;
            files.commit(&ctx, &[], &[committable]).expect("commits");
        }
        let names: Vec<_> = world.names("").into_iter().filter(|name| !name.starts_with('_')).collect();
        assert!(names.iter().all(|name| name.starts_with(begins) && name.ends_with(ends)), "{names:?}");
        let read = |name: &String| fs::read_to_string(world.path().join(name)).expect("reads");
        let epochs: Vec<String> = names.iter().map(read).collect();
        assert_eq!(epochs, (1..12).map(|epoch| format!("{epoch}\n")).collect::<Vec<_>>());
    }
}

#[test]
fn a_wrong_configuration_is_refused_by_key() {
    for (config, said) in [
        (r#"{"extention":"txt"}"#, "unknown field `extention`, expected `extension` or `file-prefix`"),
        (r#"{"extension":"../x"}"#, "`extension` is `../x`"),
        (r#"{"extension":""}"#, "`extension` is ``"),
        (r#"{"file-prefix":"_x"}"#, "`file-prefix` is `_x`"),
        (r#"{"file-prefix":"a/b"}"#, "`file-prefix` is `a/b`"),
        (r#"{"file-prefix":7}"#, "invalid type: integer `7`"),
    ] {
        let mut world = World::new();
        world.config = config.to_owned();
        let error = Files::default().open(&world.ctx(&run(1), 1), ALL, Vec::new()).err().expect("refused");
        assert_eq!(error.kind, ErrorKind::BadConfig);
        assert!(error.message.contains(said), "{}", error.message);
    }
}

#[test]
fn the_schema_knows_the_keys_that_the_sink_reads() {
    let schema: serde_json::Value = serde_json::from_str(&Files::describe().config_schema).expect("JSON");
    let keys: Vec<_> = schema["properties"].as_object().expect("properties").keys().cloned().collect();
    assert_eq!(keys, ["extension", "file-prefix"]);
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn f11_what_a_committable_says_is_checked_before_it_becomes_a_path() {
    let world = World::new();
    let good = world.stage(&run(1), 1, 0, 1);
    let ctx = world.ctx(&run(1), 1);
    let commit = |committables: &[_]| Files::default().commit(&ctx, &[], committables).expect_err("refused").code;
    for file in ["../x", "_epochs", "", "a/b", ".x"] {
        let mut bad = good.clone();
        bad.body = format!("{{\"file\":\"{file}\",\"bytes\":1}}").into_bytes();
        assert_eq!(commit(&[bad]), "bad-file-name");
    }
    let mut other = good.clone();
    other.version = 3;
    assert_eq!(commit(&[other]), "committable-version");
    let mut garbage = good.clone();
    garbage.body = b"{".to_vec();
    assert_eq!(commit(&[garbage]), "committable-body");
    assert_eq!(commit(&[good.clone(), good.clone()]), "same-part-twice");
    let mut short = good.clone();
    short.part.short = format!("tg-{HASH}-../x");
    assert_eq!(commit(&[short]), "foreign-name");
    let next = world.stage(&run(1), 2, 0, 1);
    assert_eq!(commit(&[good, next]), "mixed-epochs");
}

/// Removes all published files and all entries of the readers' log.
fn clear_away(world: &World) {
    for below in ["", "_epochs"] {
        for name in world.names(below).iter().filter(|name| name.starts_with('0')) {
            fs::remove_file(world.path().join(below).join(name)).expect("removes");
        }
    }
}

#[test]
fn readers_may_clear_away_everything_even_the_newest_epoch() {
    let world = World::new();
    let (one, two) = (run(1), run(2));
    let committables = world.stage_epoch(&one, 1);
    Files::default().commit(&world.ctx(&one, 1), &[], &committables).expect("answers");
    clear_away(&world);
    let again = Files::default().reconcile(&world.ctx(&one, 2), &committables).expect("answers");
    assert_eq!(again, [Outcome::AlreadyCommitted, Outcome::AlreadyCommitted]);
    fs::remove_dir(world.path().join("_epochs")).expect("empty");
    fs::create_dir(world.path().join("_epochs")).expect("made");
    let again = Files::default().commit(&world.ctx(&one, 2), &[], &committables).expect("answers");
    assert_eq!(again, [Outcome::AlreadyCommitted, Outcome::AlreadyCommitted]);
    world.fence(&two);
    world.assert_visible(&[]);
    world.commit_epoch(&two, 2, &parts(&committables));
    world.assert_visible(&[(2, 2)]);
}

/// An epoch that is decided in the register while no file of it could be published.
fn decide_without_publishing(world: &World, run: &RunId) -> Vec<Committable> {
    let committables = world.stage_epoch(run, 1);
    let out = world.path().to_owned();
    let unpublishable = move |op: FsOp<'_>| match op {
        FsOp::Link(_, to) if to.parent() == Some(&out) => Err(io_error(FsErrorKind::Other)),
        _ => Ok(()),
    };
    let decided = world.ctx_with(run, 1, Some(Arc::new(unpublishable)));
    Files::default().commit(&decided, &[], &committables).expect_err("stopped half-way");
    committables
}

fn staged_paths(world: &World) -> Vec<std::path::PathBuf> {
    world.staged().iter().map(|name| world.path().join(format!("_tidegate/{HASH}/staging")).join(name)).collect()
}

/// A newer run takes over; what it can do about the epoch that was decided and not published is told, and changes
/// nothing.
fn taken_over(world: &World, committables: &[Committable]) -> Vec<Outcome> {
    let before = world.observe(&run(2)).last;
    assert_eq!(world.fence(&run(2)).last, before, "what was decided counts, finished or not");
    let ctx = world.ctx(&run(2), 1);
    let asked = Files::default().reconcile(&ctx, committables).expect("answers");
    let told = Files::default().commit(&ctx, &[], committables).expect_err("nobody can make it visible");
    assert_eq!(told.code, code(&asked[0]));
    assert_eq!(Files::default().reconcile(&ctx, committables).expect("answers"), asked);
    world.assert_visible(&[]);
    asked
}

#[test]
fn a_file_that_was_removed_before_its_epoch_was_logged_is_named_and_put_back() {
    let world = World::new();
    let committables = decide_without_publishing(&world, &run(1));
    let path = staged_paths(&world).remove(0);
    let bytes = fs::read(&path).expect("reads");
    fs::remove_file(&path).expect("removes");
    for outcome in taken_over(&world, &committables) {
        assert_eq!(code(&outcome), "committed-file-missing");
        let Outcome::Rejected(error) = outcome else { continue };
        assert!(error.message.contains("put the file back"), "{}", error.message);
    }
    // Other runs take over, so often that its entry would be removed as an old one.
    for number in 3..30 {
        world.fence(&run(number));
    }
    fs::write(&path, bytes).expect("writes");
    let ctx = world.ctx(&run(29), 1);
    let asked = Files::default().reconcile(&ctx, &committables).expect("answers");
    assert_eq!(asked, [Outcome::NotCommitted, Outcome::NotCommitted], "the same commit makes it visible");
    world.assert_visible(&[]);
    let late = Files::default().commit(&world.ctx(&run(1), 2), &[], &committables).expect("answers");
    assert_eq!(late, [Outcome::Fenced, Outcome::Fenced]);
    for _ in 0..2 {
        let told = Files::default().commit(&ctx, &[], &committables).expect("answers");
        assert_eq!(told, [Outcome::AlreadyCommitted, Outcome::AlreadyCommitted]);
        let asked = Files::default().reconcile(&ctx, &committables).expect("answers");
        assert_eq!(asked, [Outcome::AlreadyCommitted, Outcome::AlreadyCommitted]);
        world.assert_visible(&[(1, 1)]);
    }
    world.fence(&run(30));
    world.commit_epoch(&run(30), 2, &parts(&committables));
    world.assert_visible(&[(1, 1), (30, 2)]);
}

#[test]
fn an_epoch_of_which_a_file_is_gone_can_be_given_up() {
    let world = World::new();
    let committables = decide_without_publishing(&world, &run(1));
    for path in staged_paths(&world) {
        fs::remove_file(path).expect("removes");
    }
    taken_over(&world, &committables);
    // The host commits in order: a later epoch says that this one is over.
    let mut previous = world.commit_epoch(&run(2), 2, &[]);
    let mut visible = vec![(2, 2)];
    world.assert_visible(&visible);
    world.fence(&run(3));
    for epoch in 3..20 {
        previous = world.commit_epoch(&run(3), epoch, &previous);
        visible.push((3, epoch));
    }
    world.assert_visible(&visible);
    assert!(world.names(&format!("_tidegate/{HASH}/register")).len() <= REGISTER, "its entry is removed in the end");
}

#[test]
fn a_staged_file_that_was_cut_after_its_epoch_was_decided_is_not_published() {
    let world = World::new();
    let committables = decide_without_publishing(&world, &run(1));
    let path = staged_paths(&world).remove(0);
    let whole = fs::read(&path).expect("reads");
    fs::write(&path, &whole[..whole.len() - 1]).expect("writes");
    assert_eq!(code(&taken_over(&world, &committables)[0]), "staged-file-damaged");
    fs::write(&path, &whole).expect("writes");
    world.fence(&run(3));
    world.assert_visible(&[]);
    Files::default().commit(&world.ctx(&run(3), 1), &[], &committables).expect("answers");
    world.assert_visible(&[(1, 1)]);
}

#[test]
fn another_file_under_the_name_of_a_decided_epochs_is_left_and_told() {
    let world = World::new();
    let committables = decide_without_publishing(&world, &run(1));
    world.fence(&run(2));
    world.assert_visible(&[(1, 1)]);
    let name = world.names("").into_iter().find(|name| name.ends_with(".jsonl")).expect("it is published");

    let world = World::new();
    assert_eq!(decide_without_publishing(&world, &run(1)), committables);
    fs::write(world.path().join(&name), "mine").expect("writes");
    world.fence(&run(2));
    let ctx = world.ctx(&run(2), 1);
    assert_eq!(code(&Files::default().reconcile(&ctx, &committables).expect("answers")[0]), "file-name-taken");
    assert_eq!(fs::read(world.path().join(&name)).expect("reads"), b"mine");
    fs::remove_file(world.path().join(&name)).expect("removes");
    Files::default().commit(&ctx, &[], &committables).expect("answers");
    world.assert_visible(&[(1, 1)]);
}
