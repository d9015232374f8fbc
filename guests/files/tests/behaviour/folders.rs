//! Files of the host: many of a part, in folders.

use std::fs;
use std::sync::Arc;

use tidegate_sdk::fs::ErrorKind as FsErrorKind;
use tidegate_sdk::native::{FsOp, Rows};
use tidegate_sdk::{Committable, Encoding, Error, ErrorKind, External, FileChunk, KeyRange, Outcome, Sink, Writer};
use tidegate_sink_files::{Files, FilesWriter};

use crate::world::{FOLDERS, HASH, Op, flushes, io_error, parts, piece, recording, run, unsealed};

type World = crate::world::World<true>;

const ALL: KeyRange = KeyRange { first: 0, last: u32::MAX };

fn begun(world: &World, epoch: u64) -> FilesWriter {
    let ctx = world.ctx(&run(1), 1);
    let mut writer = Files::default().open(&ctx, ALL, Vec::new()).expect("opens");
    writer.begin(&ctx, &world.part(&run(1), epoch, 0)).expect("begins");
    writer
}

/// A whole file of one piece.
fn whole(number: u32, folder: &str, extension: &str) -> Rows {
    let file = FileChunk { number, folder: folder.to_owned(), extension: extension.to_owned(), last: true };
    Rows { bytes: "{}\n".into(), rows: 1, encoding: Encoding::Files, schema: 0, file: Some(file) }
}

fn commit_one(world: &World, committable: Committable) -> Vec<Outcome> {
    Files::default().commit(&world.ctx(&run(1), 1), &[], &[committable]).expect("answers")
}

#[test]
fn files_of_a_part_are_published_in_their_folders_under_names_of_their_own() {
    let world = World::new();
    let committables = world.stage_epoch(&run(1), 1);
    assert_eq!(committables[0].version, 2);
    assert_eq!(world.staged().len(), 5, "of a part with three rows three, of one with two rows two");
    Files::default().commit(&world.ctx(&run(1), 1), &[], &committables).expect("answers");
    let name = |ordinal: u32, number: usize| {
        let slash = if FOLDERS[number].is_empty() { "" } else { "/" };
        format!("{}{slash}00000000000000000001-{HASH}-{}-{ordinal}-1-{number}.jsonl", FOLDERS[number], run(1))
    };
    let mut expected = vec![name(0, 0), name(0, 1), name(0, 2), name(1, 0), name(1, 1)];
    expected.sort();
    assert_eq!(world.published(), expected);
    assert!(world.staged().is_empty());
    let text = fs::read_to_string(world.path().join("_epochs").join(&world.names("_epochs")[0])).expect("reads");
    let entry: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(entry["format"], 2, "who knows only one file of each part refuses it");
    assert_eq!(entry["files"][1]["name"].as_str(), Some(name(0, 1).as_str()));
    world.assert_visible(&[(1, 1)]);
}

#[test]
fn pieces_of_several_files_may_alternate_and_files_come_out_whole() {
    let world = World::new();
    let ctx = world.ctx(&run(1), 1);
    let mut writer = begun(&world, 1);
    for (number, text, rows, last) in [
        (0, "a\n", 1, false),
        (1, "x\n", 1, false),
        (0, "b", 0, false),
        (1, "y\n", 1, true),
        (2, "1\n", 1, true),
        (0, "\n", 1, false),
        (0, "", 0, true),
    ] {
        let bytes = bytes::Bytes::from_static(text.as_bytes());
        writer.write(&ctx, &piece(number, bytes, rows, last).batch()).expect("writes");
    }
    let prepared = writer.prepare(&ctx).expect("prepares");
    assert_eq!((prepared.rows, prepared.resources.len()), (5, 1));
    assert_eq!(commit_one(&world, prepared.committable), [Outcome::Committed]);
    let texts: Vec<String> =
        world.published().iter().map(|name| fs::read_to_string(world.path().join(name)).expect("reads")).collect();
    assert_eq!(texts, ["a\nb\n", "x\ny\n", "1\n"]);
}

#[test]
fn flushes_are_one_for_each_file_and_folder_and_a_few_more() {
    let world = World::new();
    let one = run(1);
    world.commit_epoch(&one, 1, &[]);
    let (probe, ops) = recording();
    let staged = world.prepare(&world.ctx_with(&one, 1, Some(probe)), &one, 2, 0, 30).expect("stages").committable;
    let taken = ops.lock().expect("not poisoned").split_off(0);
    let of_directories = taken.iter().filter(|op| matches!(op, Op::SyncDir(_))).count();
    // A fresh writer makes sure of three directories.
    assert_eq!((flushes(&taken) - of_directories, of_directories), (FOLDERS.len(), 1 + 3));
    let (probe, ops) = recording();
    let ctx = world.ctx_with(&one, 1, Some(probe));
    Files::default().commit(&ctx, &[], &[staged]).expect("answers");
    let taken = ops.lock().expect("not poisoned").clone();
    // The epoch before: its readers' log. A fresh instance: the register, when it makes spares and when it sweeps. This
    // epoch: entry, readers' log, the output directory; and the folders `carrier=UA`, `carrier=UA/day=1` and
    // `carrier=UA/day=2`.
    assert_eq!(flushes(&taken), 1 + 2 + 3 + 3, "{taken:#?}");
}

#[test]
fn no_folder_leads_out_of_the_directory_or_out_of_sight() {
    let world = World::new();
    let ctx = world.ctx(&run(1), 1);
    let long = "x".repeat(256);
    let deep = ["x"; 17].join("/");
    for folder in ["..", "a/..", ".", "/a", "a/", "a//b", "_epochs", "a/_b", "a\nb", "\u{9b}", &long, &deep] {
        let error = begun(&world, 1).write(&ctx, &whole(0, folder, "csv").batch()).expect_err("refused");
        assert_eq!((error.kind, error.code.as_str()), (ErrorKind::Permanent, "bad-folder"), "{folder:?}");
    }
    for extension in ["", ".", "a/b", "..", "a..b", "_", "x ", "abcdefghijklmnopq"] {
        let error = begun(&world, 1).write(&ctx, &whole(0, "", extension).batch()).expect_err("refused");
        assert_eq!(error.code, "bad-extension", "{extension:?}");
    }
    assert!(world.staged().is_empty(), "nothing is made for what is refused");
    let good = world.stage(&run(1), 2, 0, 3);
    let text = String::from_utf8(good.body.clone()).expect("text");
    for (from, to, code) in [
        ("carrier=UA/day=1", "../day=1", "bad-folder"),
        ("carrier=UA/day=1", "_tidegate", "bad-folder"),
        ("\"folder\":2", "\"folder\":3", "committable-body"),
        ("\"rows\":1", "\"rows\":2", "committable-body"),
        ("\"stem\":\"0", "\"stem\":\"../0", "bad-file-name"),
        ("\"extension\":\"jsonl\"", "\"extension\":\"/x\"", "bad-file-name"),
    ] {
        let mut bad = good.clone();
        bad.body = text.replacen(from, to, 1).into_bytes();
        assert_ne!(bad.body, good.body, "{from}");
        assert_eq!(Files::default().commit(&ctx, &[], &[bad]).expect_err("refused").code, code, "{to}");
    }
}

#[test]
fn pieces_that_break_the_rules_are_refused() {
    let world = World::new();
    let ctx = world.ctx(&run(1), 1);
    let refused = |first: &[Rows], last: Rows| -> Error {
        let world = World::new();
        let ctx = world.ctx(&run(1), 1);
        let mut writer = begun(&world, 1);
        for rows in first {
            writer.write(&ctx, &rows.batch()).expect("writes");
        }
        writer.write(&ctx, &last.batch()).expect_err("refused")
    };
    assert_eq!(refused(&[], whole(1, "", "csv")).code, "file-number");
    assert_eq!(refused(&[whole(0, "", "csv")], whole(0, "", "csv")).code, "file-ended");
    let open = piece(0, "x", 1, false);
    assert_eq!(refused(std::slice::from_ref(&open), whole(0, "a", "jsonl")).code, "file-moved");
    assert_eq!(refused(&[whole(0, "", "csv")], Rows::lines(Encoding::Raw, "x\n")).code, "encoding-changed");
    assert_eq!(refused(&[Rows::lines(Encoding::Raw, "x\n")], whole(0, "", "csv")).code, "encoding-changed");
    assert_eq!(refused(&[], Rows { file: None, ..open.clone() }).code, "no-file");
    let mut writer = begun(&world, 1);
    writer.write(&ctx, &open.batch()).expect("writes");
    assert_eq!(writer.prepare(&ctx).expect_err("no promise").code, "file-not-ended");
}

#[test]
fn abandon_release_and_the_list_of_orphans_go_by_part() {
    let world = World::new();
    let one = run(1);
    let committables = world.stage_epoch(&one, 1);
    let page = Files::default().list_orphans(&world.ctx(&run(2), 1), "tg-", None).expect("lists");
    let shorts: Vec<&str> = page.orphans.iter().map(|orphan| orphan.short.as_str()).collect();
    assert_eq!(shorts, [&committables[0].part.short, &committables[1].part.short]);
    let row = r#"{"run":1,"epoch":1,"part":0,"row":0}"#.len() as u64 + 1;
    assert_eq!(page.orphans[0].bytes, Some(3 * row));
    let gone = Files::default().abandon(&world.ctx(&one, 1), &[unsealed(committables[0].part.clone())]);
    assert_eq!(gone, Ok(vec![Outcome::Committed]));
    assert_eq!(world.staged_parts(), [committables[1].part.short.clone()]);
    let resource =
        External { kind: "staged-file".to_owned(), name: committables[1].part.short.clone(), expires_at: None };
    let released = Files::default().release(&world.ctx(&one, 1), &[resource.clone(), resource]);
    assert_eq!(released, Ok(vec![Outcome::Committed, Outcome::AlreadyCommitted]));
    assert!(world.staged().is_empty());
}

#[test]
fn one_missing_or_damaged_file_of_many_holds_back_the_epoch() {
    for remove in [true, false] {
        let world = World::new();
        let one = run(1);
        let previous = world.commit_epoch(&one, 1, &[]);
        let committables = world.stage_epoch(&one, 2);
        let staged = world.path().join(format!("_tidegate/{HASH}/staging/{}.1", committables[0].part.short));
        if remove {
            fs::remove_file(staged).expect("removes")
        } else {
            fs::write(staged, "x").expect("writes")
        }
        let outcomes = Files::default().commit(&world.ctx(&one, 1), &previous, &committables).expect("answers");
        match &outcomes[0] {
            Outcome::Never if remove => {}
            Outcome::Rejected(error) if !remove => assert_eq!(error.code, "staged-file-damaged"),
            other => panic!("{other:?}"),
        }
        assert_eq!(outcomes[1], outcomes[0]);
        world.assert_visible(&[(1, 1)]);
    }
}

#[test]
fn a_reader_may_remove_an_empty_folder_at_any_time() {
    let world = Arc::new(World::new());
    let one = run(1);
    let committables = world.stage_epoch(&one, 1);
    let folder = world.path().join(FOLDERS[1]);
    let removals = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = removals.clone();
    let probe = move |op: FsOp<'_>| {
        if let FsOp::Link(_, to) = op
            && to.starts_with(&folder)
            && count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0
        {
            fs::remove_dir(&folder).expect("empty");
        }
        Ok(())
    };
    let ctx = world.ctx_with(&one, 1, Some(Arc::new(probe)));
    let outcomes = Files::default().commit(&ctx, &[], &committables).expect("answers");
    assert_eq!(outcomes, [Outcome::Committed, Outcome::Committed]);
    assert!(removals.load(std::sync::atomic::Ordering::SeqCst) >= 2);
    world.assert_visible(&[(1, 1)]);
}

#[test]
fn a_link_in_the_place_of_a_folder_is_not_followed() {
    let world = World::new();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let committables = world.stage_epoch(&run(1), 1);
    std::os::unix::fs::symlink(elsewhere.path(), world.path().join("carrier=UA")).expect("links");
    fs::create_dir(elsewhere.path().join("day=1")).expect("makes");
    let error = Files::default().commit(&world.ctx(&run(1), 1), &[], &committables);
    assert!(error.is_err(), "{error:?}");
    assert_eq!(fs::read_dir(elsewhere.path().join("day=1")).expect("lists").count(), 0);
}

#[test]
fn a_commit_that_stopped_between_folders_is_finished_by_the_next_run() {
    let world = World::new();
    let committables = world.stage_epoch(&run(1), 1);
    let stop = world.path().join(FOLDERS[2]);
    let probe = move |op: FsOp<'_>| match op {
        FsOp::Link(_, to) if to.starts_with(&stop) => Err(io_error(FsErrorKind::NoSpace)),
        _ => Ok(()),
    };
    let ctx = world.ctx_with(&run(1), 1, Some(Arc::new(probe)));
    Files::default().commit(&ctx, &[], &committables).expect_err("stopped half-way");
    assert!(!world.published().is_empty() && world.names("_epochs").is_empty());
    let position = world.fence(&run(2));
    assert_eq!(position.last, parts(&committables));
    world.assert_visible(&[(1, 1)]);
}

#[test]
fn lines_and_files_of_the_host_follow_each_other_in_one_directory() {
    let world = World::new();
    let lines = crate::world::World::<false>::new();
    let one = run(1);
    let first = world.commit_epoch(&one, 1, &[]);
    // The sink was given another format in between.
    let ctx = world.ctx(&one, 1);
    let mut writer = Files::default().open(&ctx, ALL, Vec::new()).expect("opens");
    let mut staged = Vec::new();
    for (ordinal, rows) in [(0, 3), (1, 2)] {
        writer.begin(&ctx, &lines.part(&one, 2, ordinal)).expect("begins");
        for row in 0..rows {
            let line = format!("{{\"run\":1,\"epoch\":2,\"part\":{ordinal},\"row\":{row}}}\n");
            writer.write(&ctx, &Rows::lines(Encoding::JsonLines, line).batch()).expect("writes");
        }
        staged.push(writer.prepare(&ctx).expect("prepares").committable);
    }
    assert_eq!(staged[0].version, 1, "what needs no folders is read by older plugins");
    Files::default().commit(&ctx, &first, &staged).expect("answers");
    world.commit_epoch(&one, 3, &parts(&staged));
    world.assert_visible(&[(1, 1), (1, 2), (1, 3)]);
}
