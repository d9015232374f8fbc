//! Dead letters, sent again.

use std::path::PathBuf;

use tidegate_e2e::{Ended, Running, Scene, lines, numbered, sorted};

const DEAD_LETTER: &str = "[dead-letter]\nplugin = \"builtin:files\"\n\n[dead-letter.dirs]\noutput = \"dead\"\n";

/// A pipeline that has run over rows of which every third is not JSON.
fn with_letters(rows: usize) -> Scene {
    let scene = Scene::new();
    let rows = numbered(0..rows);
    let broken = |(n, row): (usize, &String)| if n % 3 == 0 { row.replace("\"n\":", "\"n\" ") } else { row.clone() };
    scene.write("in/a.jsonl", lines(&rows.iter().enumerate().map(broken).collect::<Vec<_>>()));
    scene.pipeline("on-bad-row = \"dead-letter\"", DEAD_LETTER);
    scene.finish();
    scene
}

fn replay(scene: &Scene, arguments: &[&str]) -> Ended {
    scene.tidegate(&[&["dead-letter", "replay", "pipeline.toml"], arguments].concat())
}

/// Copies the letters to `mended`, with their rows as they should have been.
fn mend(scene: &Scene) {
    std::fs::create_dir_all(scene.path("mended")).expect("a folder can be made");
    for (n, path) in scene.published("dead").iter().enumerate() {
        let text = std::fs::read_to_string(path).expect("a published file can be read");
        scene.write(&format!("mended/{n}.jsonl"), text.replace(r#"\"n\" "#, r#"\"n\":"#));
    }
}

#[test]
fn mended_letters_are_replayed_once_however_often_and_the_original_goes_on() {
    let scene = with_letters(300);
    assert_eq!(scene.rows("dead").len(), 100);
    mend(&scene);
    replay(&scene, &["--from", "mended"]).expect(0).says(&["100 dead letters", "100 rows committed"]);
    scene.expect_rows("out", &numbered(0..300));
    let again = replay(&scene, &["--from", "mended"]).expect(0);
    again.says(&["0 dead letters", "100 letters skipped: sent before", "nothing has changed"]);
    scene.expect_rows("out", &numbered(0..300));
    // Another file of mended letters is read as well.
    let extra = r#"{"source":"flights","file":"in/a.jsonl","line":1,"epoch":1,"reason":"r","row":"{\"n\":300,\"carrier\":\"UA\",\"note\":\"row number 300\"}"}"#;
    scene.write("mended/later.jsonl", format!("{extra}\n"));
    replay(&scene, &["--from", "mended"]).expect(0).says(&["1 dead letter "]);
    scene.expect_rows("out", &numbered(0..301));
    // The pipeline itself goes on in its own state.
    scene.write("in/b.jsonl", lines(&numbered(301..310)));
    scene.finish();
    scene.expect_rows("out", &numbered(0..310));
    assert_eq!(scene.rows("dead").len(), 100, "no new letters");
}

#[test]
fn a_moved_pipeline_replays_nothing_here_and_nothing_twice_there() {
    let scene = with_letters(30);
    mend(&scene);
    replay(&scene, &["--from", "mended"]).expect(0).says(&["10 rows committed"]);
    let exported =
        scene.tidegate(&["checkpoint", "export", "pipeline.toml", "--to", "moved.tar.zst", "--move"]).expect(0);
    exported.says(&["state-replay-", "is not in the archive"]);
    replay(&scene, &["--from", "mended"]).expect(3).says(&["moved away", "moved.tar.zst"]);
    let remembered = std::fs::read_dir(scene.path(".")).expect("the folder is there");
    let mut remembered = remembered.map(|entry| entry.expect("it can be listed").file_name().into_string());
    let replays = remembered.find_map(|name| name.ok().filter(|name| name.starts_with("state-replay-")));
    let replays = replays.expect("what was replayed is remembered beside the state");
    // As the warning says.
    std::fs::create_dir(scene.path("there")).expect("a folder can be made");
    scene.copy(&replays, &format!("there/{replays}"));
    let text = std::fs::read_to_string(scene.path("pipeline.toml")).expect("it is there");
    scene.write("other.toml", text.replace("state = \"state\"", "state = \"there/state\""));
    scene.tidegate(&["checkpoint", "import", "other.toml", "--from", "moved.tar.zst"]).expect(0);
    let there = scene.tidegate(&["dead-letter", "replay", "other.toml", "--from", "mended"]).expect(0);
    there.says(&["10 letters skipped: sent before"]);
    scene.expect_rows("out", &numbered(0..30));
}

#[test]
fn a_replay_killed_at_each_moment_is_finished_by_the_next_one() {
    for moment in ["starting", "open", "preparing", "sealed", "sent", "finishing"] {
        let scene = with_letters(300);
        mend(&scene);
        let arguments = ["dead-letter", "replay", "pipeline.toml", "--from", "mended", "--hold-at", moment];
        let mut running = Running::start(scene.command(&arguments));
        running.hear(&format!("held {moment}"));
        running.kill();
        replay(&scene, &["--from", "mended"]).expect(0);
        scene.expect_rows("out", &numbered(0..300));
    }
}

#[test]
fn an_epoch_blocked_in_a_replay_is_decided_about_with_the_command_that_is_told() {
    for (choice, rows) in [("retry", 300), ("give-up", 200)] {
        let scene = with_letters(300);
        mend(&scene);
        let arguments = ["dead-letter", "replay", "pipeline.toml", "--from", "mended", "--hold-at", "sealed"];
        let mut running = Running::start(scene.command(&arguments));
        running.hear("held sealed");
        running.kill();
        let staged = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "staging");
        let taken: Vec<_> = scene.files("out").into_iter().filter(staged).collect();
        let taken: Vec<_> = taken.into_iter().map(|path| (std::fs::read(&path).expect("it is there"), path)).collect();
        assert!(!taken.is_empty(), "the replay had staged something");
        taken.iter().for_each(|(_, path)| std::fs::remove_file(path).expect("it is there"));

        let said = replay(&scene, &["--from", "mended"]).expect(5).said();
        let (_, command) = said.split_once("tidegate resolve pipeline.toml --replay ").expect("the command is told");
        let (which, _) = command.split_once(" --choice").expect("with its choices");
        let decide = format!("resolve pipeline.toml {which} --choice {choice} --by test");
        let mut decide: Vec<_> = decide.split(' ').collect();
        // The pipeline itself has no such epoch, and says where it is.
        scene.tidegate(&decide).expect(2).says(&["add --replay"]);
        if choice == "retry" {
            taken.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).expect("the folder is there"));
        }
        decide.insert(2, "--replay");
        scene.tidegate(&decide).expect(0).says(&["100 rows of epoch"]);
        replay(&scene, &["--from", "mended"]).expect(0);
        assert_eq!(scene.rows("out").len(), rows, "{choice}");
    }
}

#[test]
fn a_replay_killed_between_its_epochs_goes_on_behind_what_it_has_committed() {
    let scene = with_letters(300);
    mend(&scene);
    scene.edit("on-bad-row", "rate = 40\non-bad-row");
    let arguments = ["dead-letter", "replay", "pipeline.toml", "--from", "mended", "--hold-at", "sent:3"];
    let mut running = Running::start(scene.command(&arguments));
    running.hear("held sent");
    running.kill();
    let rows = scene.rows("out").len();
    assert!((201..300).contains(&rows), "{rows} rows: it was killed in the middle");
    scene.edit("rate = 40\n", "");
    replay(&scene, &["--from", "mended"]).expect(0).says(&["0 dead letters"]);
    scene.expect_rows("out", &numbered(0..300));
}

#[test]
fn rows_that_fail_again_become_letters_again_and_can_be_replayed_again() {
    let scene = with_letters(30);
    let first = scene.rows("dead");
    assert_eq!(first.len(), 10);
    replay(&scene, &[]).expect(0).says(&["10 dead letters", "10 rows dead-lettered"]);
    let second = scene.rows("dead");
    assert_eq!(second.len(), 20);
    let again: Vec<_> = second.iter().filter(|letter| !first.contains(letter)).collect();
    assert!(again.iter().all(|letter| letter.contains(r#""source":"flights""#)), "{again:?}");
    // The letters of the first replay are letters like any other.
    replay(&scene, &[]).expect(0).says(&["10 dead letters"]);
    let third = scene.rows("dead");
    assert_eq!((third.len(), scene.rows("out").len()), (30, 20));
    // All of them say where the row was first, and how often it was tried.
    let mut tries = Vec::new();
    for letter in third {
        let letter: serde_json::Value = serde_json::from_str(&letter).expect("JSON");
        assert_eq!(letter["file"], "in/a.jsonl", "{letter}");
        tries.push((letter["line"].as_u64().expect("a line"), letter["attempt"].as_u64().expect("a number")));
        assert_eq!(letter.get("replay-of").is_some(), letter["attempt"] != 1, "{letter}");
    }
    tries.sort_unstable();
    let expected = (0..10).flat_map(|n| (1..=3).map(move |attempt| (n * 3 + 1, attempt)));
    assert_eq!(tries, expected.collect::<Vec<_>>());
}

#[test]
fn letters_that_were_cut_stay_where_they_are_and_are_named_and_counted() {
    let scene = Scene::plain(30, "");
    scene.write("in/3.jsonl", format!("{{\"long\": \"{}\n", "x".repeat(100_000)));
    scene.pipeline("on-bad-row = \"dead-letter\"", DEAD_LETTER);
    scene.finish();
    assert!(scene.rows("dead")[0].contains("truncated-from-bytes"));
    replay(&scene, &[]).expect(0).says(&["1 letter without a row", "left where", "only the beginning", "in/3.jsonl"]);
    assert_eq!(scene.rows("dead").len(), 1);
    scene.expect_rows("out", &numbered(0..30));
    // With its whole row it is a letter that was never sent.
    std::fs::create_dir_all(scene.path("mended")).expect("a folder can be made");
    let mut letter: serde_json::Value = serde_json::from_str(&scene.rows("dead")[0]).expect("JSON");
    let fields = letter.as_object_mut().expect("an object");
    fields.remove("truncated-from-bytes");
    fields.insert("row".to_owned(), numbered(30..31)[0].clone().into());
    scene.write("mended/letters", format!("{letter}\n"));
    replay(&scene, &["--from", "mended"]).expect(0).says(&["1 dead letter "]);
    scene.expect_rows("out", &numbered(0..31));
}

#[test]
fn letters_of_a_sink_go_to_that_sink_alone() {
    let scene = Scene::new();
    scene.write("in/a.jsonl", lines(&numbered(0..10)));
    let other = "[sinks.other]\nplugin = \"builtin:files\"\n\n[sinks.other.dirs]\noutput = \"other\"\n\n";
    scene.pipeline("on-bad-row = \"dead-letter\"", &format!("{other}{DEAD_LETTER}"));
    scene.finish();
    std::fs::create_dir(scene.path("mended")).expect("a folder can be made");
    scene.write(
        "mended/letters",
        "{\"sink\":\"other\",\"code\":\"c\",\"epoch\":1,\"reason\":\"r\",\"row\":\"{\\\"n\\\":10}\"}\n\
         {\"source\":\"flights\",\"epoch\":1,\"reason\":\"r\",\"row\":\"{\\\"n\\\":11}\"}\n\
         {\"sink\":\"other\",\"code\":\"c\",\"epoch\":1,\"reason\":\"r\",\"row-base64\":\"eyJuIjoxMn0=\"}\n",
    );
    replay(&scene, &["--from", "mended"]).expect(0).says(&["3 dead letters"]);
    let row = |n: usize| format!("{{\"n\":{n}}}");
    scene.expect_rows("out", &[numbered(0..10), vec![row(11)]].concat());
    scene.expect_rows("other", &[numbered(0..10), vec![row(10), row(11), row(12)]].concat());
}

#[test]
fn csv_letters_are_read_under_the_header_of_their_file() {
    let scene = Scene::new();
    scene.write("in/a.csv", "id,name\n1,a\n2\n3,c\n");
    scene.write("in/b.csv", "name,id,extra\nx,4\ny,5,e\n");
    scene.pipeline("on-bad-row = \"dead-letter\"", DEAD_LETTER);
    scene.edit("format = \"json-lines\"", "format = \"csv\"");
    scene.finish();
    assert_eq!(scene.rows("dead").len(), 2);
    std::fs::create_dir(scene.path("mended")).expect("a folder can be made");
    let mended = lines(&scene.rows("dead"))
        .replace(r#""row":"2""#, r#""row":"2,\"b, \"\"\"""#)
        .replace(r#""row":"x,4""#, r#""row":"x,4,d""#);
    scene.write("mended/letters", mended);
    replay(&scene, &["--from", "mended"]).expect(0).says(&["2 dead letters"]);
    let row = |text: &str| text.to_owned();
    scene.expect_rows(
        "out",
        &[
            row(r#"{"id":"1","name":"a"}"#),
            row(r#"{"id":"2","name":"b, \""}"#),
            row(r#"{"id":"3","name":"c"}"#),
            row(r#"{"name":"x","id":"4","extra":"d"}"#),
            row(r#"{"name":"y","id":"5","extra":"e"}"#),
        ],
    );
}

#[test]
fn letters_that_failed_in_replays_and_were_mended_afterwards_arrive_once() {
    let scene = with_letters(30);
    // Nothing is mended yet: they fail, and fail again.
    replay(&scene, &[]).expect(0).says(&["10 dead letters"]);
    replay(&scene, &[]).expect(0).says(&["10 dead letters", "10 letters skipped", "newer letters"]);
    assert_eq!(scene.rows("dead").len(), 30);
    mend(&scene);
    replay(&scene, &["--from", "mended"]).expect(0).says(&["10 dead letters", "20 letters skipped"]);
    scene.expect_rows("out", &numbered(0..30));
}

#[test]
fn letters_under_another_path_or_mended_by_halves_are_sent_once() {
    let scene = with_letters(30);
    mend(&scene);
    let files = scene.published("mended");
    let whole: Vec<String> = files.iter().map(|file| std::fs::read_to_string(file).expect("readable")).collect();
    // Every second letter is mended first.
    for (file, text) in files.iter().zip(&whole) {
        let half = text.lines().enumerate().map(|(n, line)| match n % 2 {
            0 => format!("{line}\n"),
            _ => format!("{}\n", line.replace(r#"\"n\":"#, r#"\"n\" "#)),
        });
        std::fs::write(file, half.collect::<String>()).expect("writable");
    }
    replay(&scene, &["--from", "mended"]).expect(0).says(&["10 dead letters"]);
    let failed = 30 - scene.rows("out").len();
    assert!((1..10).contains(&failed), "{failed} failed");
    for (file, text) in files.iter().zip(&whole) {
        std::fs::write(file, text).expect("writable");
    }
    std::fs::rename(scene.path("mended"), scene.path("moved")).expect("movable");
    std::os::unix::fs::symlink(scene.path("moved"), scene.path("link")).expect("a link can be made");
    for from in ["moved", "link"] {
        replay(&scene, &["--from", from]).expect(0).says(&["0 dead letters", "10 letters skipped"]);
    }
    assert_eq!(scene.rows("out").len(), 30 - failed);
    // What failed again is in newer letters, which are mended and sent.
    mend(&scene);
    replay(&scene, &["--from", "mended"]).expect(0).says(&[&format!("{failed} dead letter"), "10 letters skipped"]);
    scene.expect_rows("out", &numbered(0..30));
}

#[test]
fn letters_without_ids_that_were_changed_after_their_replay_are_refused() {
    let scene = with_letters(30);
    mend(&scene);
    for file in scene.published("mended") {
        let text = std::fs::read_to_string(&file).expect("readable");
        std::fs::write(&file, text.replace("\"id\":", "\"was\":")).expect("writable");
    }
    replay(&scene, &["--from", "mended"]).expect(0);
    let text = std::fs::read_to_string(scene.path("mended/0.jsonl")).expect("it is there");
    scene.write("mended/0.jsonl", text.replace("row number", "ROW NUMBER"));
    replay(&scene, &["--from", "mended"]).expect(3).says(&["0.jsonl", "was changed", "another name"]);
    scene.expect_rows("out", &numbered(0..30));
}

#[test]
fn lines_that_are_no_letters_are_named() {
    let scene = with_letters(3);
    std::fs::create_dir(scene.path("mended")).expect("a folder can be made");
    scene.write(
        "mended/letters",
        "oops\n{\"source\":\"gone\",\"row\":\"1\"}\n\n{\"source\":\"flights\",\"row\":\"1\\n2\"}\n",
    );
    let before = scene.rows("dead").len();
    replay(&scene, &["--from", "mended"]).expect(0).says(&[
        "3 letters without a row",
        "letters, line 1: this is no dead letter",
        "line 2: the pipeline has no source `gone`",
        "line 4: the row has a line break",
    ]);
    assert_eq!(scene.rows("dead").len(), before, "they stay where they are");
    assert_eq!(sorted(&scene.rows("out")), sorted(&numbered(1..3)));
}

#[test]
fn a_pipeline_without_dead_letters_says_so() {
    let scene = Scene::plain(10, "");
    scene.finish();
    replay(&scene, &[]).expect(2).says(&["[dead-letter]"]);
    let scene = Scene::plain(10, "");
    scene.pipeline("", DEAD_LETTER);
    scene.finish();
    replay(&scene, &[]).expect(0).says(&["no dead letters"]);
    assert!(scene.published("dead").is_empty());
}
