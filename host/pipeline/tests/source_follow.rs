//! Files that grow, appear, are rotated and go, read step by step. Every call of a reader looks at the directories.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use source_support::followed::{Followed, options};
use source_support::*;
use tidegate_pipeline::source::files::{CsvOptions, FilesSource, FollowOptions, Format, OnLostRows};
use tidegate_pipeline::source::{Source, SourceError};
use tidegate_protocol::plugin::Encoding;

#[test]
fn growth_and_new_files_are_read_without_an_end() {
    let mut f = Followed::new("*.log");
    f.open();
    assert!(!f.source.contract().bounded && f.source.contract().replayable);
    f.expect(&[]);
    f.write("a.log", "1\n");
    f.expect(&["1"]);
    f.append("a.log", "2\n3\n");
    f.expect(&["1", "2", "3"]);
    f.write("b.log", "");
    f.write("c.txt", "no\n");
    f.expect(&["1", "2", "3"]);
    f.append("b.log", "4\n");
    f.expect(&["1", "2", "3", "4"]);
    assert_eq!(f.positions.keys().collect::<Vec<_>>(), ["a.log", "b.log"]);
}

#[test]
fn nothing_new_is_told_when_nothing_happens() {
    let mut f = Followed::new("*.log");
    f.write("a.log", "1\nto");
    f.open();
    f.expect(&["1"]);
    for _ in 0..20 {
        assert!(!f.call(0).unwrap(), "an idle pipeline cuts no epoch");
    }
    f.append("a.log", "rn");
    assert!(!f.call(0).unwrap(), "a torn line is nothing");
}

#[test]
fn a_torn_last_line_waits_for_its_end_also_over_restarts() {
    for (format, pieces, rows) in [
        (Format::Raw, vec!["1", "2\n3", "", "4", "5\n"], vec!["12", "345"]),
        (Format::JsonLines, vec!["{\"a\":", "1}", "\n[", "]\n", "7"], vec!["{\"a\":1}", "[]"]),
        (
            Format::Csv(CsvOptions::default()),
            vec!["a,", "b", "\n1,\"x\n", "\ny", "\"\n", "2,3", "\r", "\n\n4", ",5\n"],
            vec![r#"{"a":"1","b":"x\n\ny"}"#, r#"{"a":"2","b":"3"}"#, r#"{"a":"4","b":"5"}"#],
        ),
    ] {
        for restart in [false, true] {
            let mut f = Followed::with("f", format.clone(), |_| {});
            f.write("f", "");
            f.open();
            for piece in &pieces {
                f.append("f", piece);
                f.read();
                if restart {
                    f.open();
                }
            }
            f.expect(&rows);
            assert_eq!(f.bad, [""; 0]);
        }
    }
}

#[test]
fn a_byte_order_mark_in_pieces_is_no_row() {
    let mut f = Followed::new("f");
    f.write("f", "");
    f.open();
    for byte in "\u{feff}a\n".as_bytes() {
        append(f.dir.path(), "f", [*byte]);
        f.read();
    }
    f.expect(&["a"]);
}

#[test]
fn a_line_over_the_limit_is_one_bad_row_when_its_end_comes() {
    for size in [10, 3 << 20] {
        let mut f = Followed::with("f", Format::Raw, |options| options.max_line = 5);
        f.write("f", "1\n");
        f.append("f", &"x".repeat(size));
        f.open();
        f.expect(&["1"]);
        assert!(f.bad.is_empty());
        f.append("f", "y");
        f.open();
        f.expect(&["1"]);
        f.append("f", "\n2\n");
        f.expect(&["1", "2"]);
        assert_eq!(f.bad.len(), 1);
        assert!(f.bad[0].starts_with(&format!("f, line 2: the line has {} bytes", size + 1)), "{:?}", f.bad);
    }
}

/// One thing that happens in a folder.
type Happens = Box<dyn Fn(&Followed)>;

/// What happens, and how many rows there are when it has.
struct Scenario {
    name: &'static str,
    pattern: &'static str,
    steps: Vec<Happens>,
    rows: usize,
}

fn log(from: usize, to: usize) -> String {
    (from..to).map(|n| format!("row {n}\n")).collect()
}

fn rows(from: usize, end: usize) -> Happens {
    to("app.log", from, end)
}

fn append_or_create(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn mv(from: &'static str, to: &'static str) -> Happens {
    Box::new(move |f| f.rename(from, to))
}

fn cp(from: &'static str, to: &'static str) -> Happens {
    Box::new(move |f| {
        fs::copy(f.dir.path().join(from), f.dir.path().join(to)).unwrap();
    })
}

fn create(name: &'static str) -> Happens {
    Box::new(move |f| f.write(name, ""))
}

fn truncate(name: &'static str) -> Happens {
    Box::new(move |f| {
        fs::OpenOptions::new().write(true).open(f.dir.path().join(name)).unwrap().set_len(0).unwrap();
    })
}

fn to(name: &'static str, from: usize, end: usize) -> Happens {
    Box::new(move |f| append_or_create(&f.dir.path().join(name), &log(from, end)))
}

fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for pattern in ["app.log", "app.log*"] {
        all.push(Scenario {
            name: "renamed, then created anew, and both written",
            pattern,
            steps: vec![
                rows(0, 3),
                rows(3, 5),
                mv("app.log", "app.log.1"),
                // The writer has not noticed yet.
                to("app.log.1", 5, 7),
                create("app.log"),
                rows(7, 9),
                to("app.log.1", 9, 10),
                rows(10, 12),
            ],
            rows: 12,
        });
        all.push(Scenario {
            name: "rotated three times",
            pattern,
            steps: vec![
                rows(0, 3),
                mv("app.log", "app.log.1"),
                rows(3, 6),
                mv("app.log.1", "app.log.2"),
                mv("app.log", "app.log.1"),
                rows(6, 9),
                mv("app.log.2", "app.log.3"),
                mv("app.log.1", "app.log.2"),
                mv("app.log", "app.log.1"),
                rows(9, 12),
            ],
            rows: 12,
        });
        all.push(Scenario {
            name: "copied and truncated",
            pattern,
            steps: vec![
                rows(0, 3),
                rows(3, 5),
                cp("app.log", "app.log.1"),
                truncate("app.log"),
                rows(5, 6),
                rows(6, 12),
            ],
            rows: 12,
        });
        all.push(Scenario {
            name: "copied and truncated twice",
            pattern,
            steps: vec![
                rows(0, 4),
                cp("app.log", "app.log.1"),
                truncate("app.log"),
                rows(4, 8),
                mv("app.log.1", "app.log.2"),
                cp("app.log", "app.log.1"),
                truncate("app.log"),
                rows(8, 12),
            ],
            rows: 12,
        });
    }
    all.push(Scenario {
        name: "a new name every day",
        pattern: "app*.log",
        steps: vec![
            to("app-2026-11-29.log", 0, 4),
            to("app-2026-11-29.log", 4, 5),
            to("app-2026-11-30.log", 5, 8),
            to("app-2026-11-29.log", 8, 9),
            to("app-2026-11-30.log", 9, 12),
        ],
        rows: 12,
    });
    all.push(Scenario {
        name: "written anew with more behind it, as rsync does",
        pattern: "app.log",
        steps: vec![
            rows(0, 4),
            Box::new(|f| {
                f.write(".tmp", &log(0, 8));
                f.rename(".tmp", "app.log");
            }),
            Box::new(|f| {
                f.write(".tmp", &log(0, 12));
                f.rename(".tmp", "app.log");
            }),
        ],
        rows: 12,
    });
    all
}

#[track_caller]
fn all_once(f: &Followed, rows: usize, what: &str) {
    let mut sorted = f.rows.clone();
    sorted.sort_by_key(|row| row[4..].parse::<usize>().unwrap());
    let expected: Vec<_> = (0..rows).map(|n| format!("row {n}")).collect();
    assert_eq!(sorted, expected, "{what}; positions: {:#?}", f.positions);
}

#[test]
fn every_rotation_gives_every_row_once_wherever_it_is_looked_at() {
    for scenario in scenarios() {
        let steps = scenario.steps.len();
        // Bit by bit: whether the reader looks behind a step.
        for looks in (0..1u32 << steps).step_by(if steps > 6 { 7 } else { 1 }) {
            let mut f = Followed::new(scenario.pattern);
            f.tasks = 1 + looks % 2;
            f.open();
            let mut read = false;
            for (step, happens) in scenario.steps.iter().enumerate() {
                happens(&f);
                // What was never seen under a name that matches cannot be known to be rotated.
                if looks >> step & 1 == 1 || step == 0 {
                    f.read();
                    read = true;
                }
            }
            f.read();
            assert!(read);
            all_once(&f, scenario.rows, &format!("{}, {}, {looks:b}", scenario.name, scenario.pattern));
        }
    }
}

#[test]
fn every_rotation_gives_every_row_once_from_every_restart() {
    for scenario in scenarios() {
        let steps = scenario.steps.len();
        for most_bytes in [1, 1 << 20] {
            // Read behind each step up to `stop`, die, and come back `down` steps later.
            for stop in 0..steps {
                for back in stop..steps {
                    let mut f = Followed::new(scenario.pattern);
                    f.most_bytes = most_bytes;
                    f.open();
                    let mut snapshots = Vec::new();
                    for happens in &scenario.steps[..=stop] {
                        happens(&f);
                        f.read();
                    }
                    snapshots.push((f.rows.len(), f.positions.clone()));
                    f.readers.clear();
                    for happens in &scenario.steps[stop + 1..=back] {
                        happens(&f);
                    }
                    let what = format!("{}, {}, {stop} to {back}", scenario.name, scenario.pattern);
                    f.try_open().unwrap_or_else(|error| panic!("{what}: {error}\n{:#?}", f.positions));
                    for happens in &scenario.steps[back + 1..] {
                        happens(&f);
                        f.read();
                    }
                    f.read();
                    all_once(&f, scenario.rows, &what);
                }
            }
        }
    }
}

#[test]
fn every_position_on_the_way_is_good_for_a_restart_after_all_that_happened() {
    for scenario in scenarios() {
        // All cuts of a run that reads row by row, each restored when everything has happened.
        let steps = scenario.steps.len();
        let mut cut = 0;
        loop {
            let mut f = Followed::new(scenario.pattern);
            f.most_bytes = 1;
            f.open();
            let mut calls = 0;
            let mut died = None;
            for (step, happens) in scenario.steps.iter().enumerate() {
                happens(&f);
                while died.is_none() && f.call(0).unwrap() {
                    calls += 1;
                    if calls == cut + 1 && !f.rows.is_empty() {
                        died = Some(step);
                        f.readers.clear();
                    }
                }
            }
            if died.is_none() && calls <= cut {
                break;
            }
            cut += 1;
            if died.is_none() {
                continue;
            }
            let what = format!("{}, {}, cut {cut} at {died:?} of {steps}", scenario.name, scenario.pattern);
            f.try_open().unwrap_or_else(|error| panic!("{what}: {error}"));
            f.read();
            all_once(&f, scenario.rows, &what);
        }
        assert!(cut >= 5, "{}: {cut}", scenario.name);
    }
}

#[test]
fn the_old_file_is_read_to_its_end_before_the_new_one() {
    let mut f = Followed::new("app.log");
    f.write("app.log", "1\n");
    f.open();
    f.expect(&["1"]);
    f.append("app.log", "2\n3\n");
    f.rename("app.log", "old");
    f.write("app.log", "4\n5\n");
    f.most_bytes = 1;
    f.expect(&["1", "2", "3", "4", "5"]);
}

#[test]
fn a_deleted_file_is_read_to_its_end_while_it_is_open_and_then_forgotten() {
    let mut f = Followed::new("*.log");
    f.write("a.log", "1\n");
    f.write("b.log", "x\n");
    f.open();
    f.read();
    f.append("a.log", "2\n");
    f.remove("a.log");
    f.read();
    assert_eq!(f.rows, ["1", "x", "2"]);
    for _ in 0..20 {
        f.read();
    }
    assert_eq!(f.positions.keys().collect::<Vec<_>>(), ["b.log"]);
    // A new one with the same name and content is a new one.
    f.write("a.log", "1\n");
    f.expect(&["1", "x", "2", "1"]);
}

#[test]
fn a_file_may_be_deleted_at_its_end_while_nobody_looks() {
    let mut f = Followed::new("*.log");
    f.write("a.log", "1\n");
    f.open();
    f.expect(&["1"]);
    f.readers.clear();
    f.remove("a.log");
    f.open();
    f.expect(&["1"]);
    // It comes back from a backup.
    f.write("a.log", "1\n2\n");
    f.expect(&["1", "2"]);
}

#[test]
fn rows_that_are_gone_are_an_error_and_never_another_position() {
    type Loses = fn(&Followed);
    let cases: [(&str, Loses, &str); 4] = [
        // Behind a torn line.
        ("1\ntorn", |f| f.remove("app.log"), "app.log: was read up to line 1, with 4 more bytes"),
        // Another file has its name, and it is nowhere.
        (
            "1\n",
            |f| {
                f.remove("app.log");
                f.write("app.log", "other\n");
            },
            "another file has its name",
        ),
        ("1\n2\n", |f| f.write("app.log", "3\n"), "app.log: was truncated or overwritten after line 2"),
        ("1\n2\n", |f| f.write("app.log", "1\n3\nand more\n"), "app.log: was truncated or overwritten after line 2"),
    ];
    for (content, loses, told) in cases {
        for warn in [false, true] {
            let mut f = Followed::with("app.log", Format::Raw, |options| {
                let on_lost_rows = if warn { OnLostRows::Warn } else { OnLostRows::Stop };
                options.follow = Some(FollowOptions { poll: Duration::ZERO, on_lost_rows });
            });
            f.write("app.log", content);
            f.open();
            f.read();
            let before = f.rows.len();
            f.readers.clear();
            // Keeps the inode from being given to the next file.
            fs::hard_link(f.dir.path().join("app.log"), f.dir.path().join("keep")).unwrap();
            if content == "1\n" || content.contains("torn") {
                fs::create_dir(f.dir.path().join("far")).unwrap();
                f.rename("keep", "far/keep");
            } else {
                f.remove("keep");
            }
            loses(&f);
            if warn {
                f.open();
                f.read();
                let now = fs::read_to_string(f.dir.path().join("app.log")).unwrap_or_default();
                assert_eq!(f.rows[before..], now.lines().collect::<Vec<_>>()[..], "{told}");
            } else {
                let error = f.try_open().unwrap_err();
                assert!(error.permanent() && error.to_string().contains(told), "{error}");
                assert!(error.to_string().contains("on-lost-rows"), "{error}");
            }
        }
    }
}

#[test]
fn a_truncated_file_without_a_copy_is_read_from_its_start() {
    let mut f = Followed::new("app.log");
    f.write("app.log", "1\n2\n");
    f.open();
    f.expect(&["1", "2"]);
    f.write("app.log", "3\n");
    f.expect(&["1", "2", "3"]);
    // Longer than what was read, and something else.
    f.write("app.log", "4\n5\n6\n");
    f.expect(&["1", "2", "3", "4", "5", "6"]);
    f.open();
    f.append("app.log", "7\n");
    f.expect(&["1", "2", "3", "4", "5", "6", "7"]);
}

#[test]
fn a_copy_is_held_back_until_it_is_a_file_of_its_own() {
    let mut f = Followed::new("app.log*");
    f.write("app.log", "1\n2\n");
    f.open();
    f.read();
    f.write("app.log.1", "1\n");
    f.read();
    f.append("app.log.1", "2\n");
    f.expect(&["1", "2"]);
    f.append("app.log.1", "3\n");
    f.expect(&["1", "2", "1", "2", "3"]);
    // Names that do not go together are files of their own.
    f.write("app.logs-2", "1\n");
    f.expect(&["1", "2", "1", "2", "3", "1"]);
}

#[test]
fn two_names_of_one_file_are_read_once_and_the_second_takes_over() {
    let mut f = Followed::new("*.log");
    f.write("a.log", "1\n");
    f.open();
    f.read();
    fs::hard_link(f.dir.path().join("a.log"), f.dir.path().join("b.log")).unwrap();
    std::os::unix::fs::symlink("a.log", f.dir.path().join("c.log")).unwrap();
    f.append("c.log", "2\n");
    f.expect(&["1", "2"]);
    f.remove("a.log");
    f.append("b.log", "3\n");
    f.expect(&["1", "2", "3"]);
}

#[test]
fn a_link_that_leads_elsewhere_is_a_rotation() {
    let mut f = Followed::new("current");
    let path = f.dir.path().join("current");
    f.write("day-1", "1\n");
    std::os::unix::fs::symlink("day-1", &path).unwrap();
    f.open();
    f.expect(&["1"]);
    f.append("day-1", "2\n");
    f.write("day-2", "3\n");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("day-2", &path).unwrap();
    f.expect(&["1", "2", "3"]);
    f.open();
    f.append("day-1", "late\n");
    f.append("day-2", "4\n");
    f.read();
    f.rows.sort();
    assert_eq!(f.rows, ["1", "2", "3", "4", "late"]);
}

#[test]
fn compressed_files_are_refused() {
    let refused = |error: SourceError| {
        let text = error.to_string();
        assert!(error.permanent() && text.starts_with("`follow`") && text.contains("compressed"), "{text}");
    };
    let mut wrong = options(Path::new("."), "*", Format::Raw);
    wrong.compression = tidegate_pipeline::source::files::Compression::Gzip;
    refused(FilesSource::new(wrong).err().unwrap());
    let mut f = Followed::new("*");
    write(f.dir.path(), "a.log.1.gz", gzip(b"1\n"));
    refused(f.try_open().unwrap_err());
    f.remove("a.log.1.gz");
    f.write("a.log", "1\n");
    f.open();
    f.expect(&["1"]);
    write(f.dir.path(), "a.log.1", gzip(b"1\n"));
    refused(f.try_read().unwrap_err());
}

#[test]
fn a_fifo_hangs_nobody() {
    let mut f = Followed::new("*.log");
    f.write("a.log", "1\n");
    f.open();
    f.read();
    let fifo = f.dir.path().join("f.log");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    f.append("a.log", "2\n");
    f.expect(&["1", "2"]);
    let error = f.try_open().unwrap_err();
    assert!(error.to_string().contains("f.log is a FIFO"), "{error}");
}

#[test]
fn positions_stay_few_over_many_rotations() {
    for pattern in ["app.log", "app.log*"] {
        let mut f = Followed::new(pattern);
        f.write("app.log", "");
        f.open();
        for n in 0..200 {
            f.append("app.log", &format!("row {n}\n"));
            f.read();
            if f.dir.path().join("app.log.1").exists() {
                f.rename("app.log.1", "app.log.2");
            }
            f.rename("app.log", "app.log.1");
            f.write("app.log", "");
        }
        f.read();
        all_once(&f, 200, pattern);
        assert!(f.positions.len() < 30, "{}", f.positions.len());
    }
}

#[test]
fn of_very_many_files_that_are_gone_the_newest_thousand_are_remembered() {
    let mut f = Followed::new("*");
    for n in 0..1200 {
        f.write(&format!("{n:04}"), &format!("{n}\n"));
    }
    f.open();
    f.read();
    f.readers.clear();
    for n in 0..1200 {
        f.remove(&format!("{n:04}"));
    }
    f.open();
    f.read();
    assert_eq!(f.positions.len(), 1000);
    // New ones are not mistaken for them.
    f.write("new", "9999\n");
    f.read();
    assert_eq!(f.rows.len(), 1201);
}

#[test]
fn new_files_are_dealt_to_all_tasks_and_each_file_has_one() {
    let mut f = Followed::new("*");
    f.tasks = 3;
    f.open();
    for n in 0..30 {
        f.write(&format!("f{n}"), &log(n, n + 1));
    }
    let mut by_task = Vec::new();
    for _ in 0..5 {
        for task in 0..3 {
            let before = f.rows.len();
            f.call(task).unwrap();
            by_task.push((task, f.rows.len() - before));
        }
    }
    for task in 0..3 {
        let rows: usize = by_task.iter().filter(|(of, _)| *of == task).map(|(_, rows)| rows).sum();
        assert_eq!(rows, 10, "{by_task:?}");
    }
    all_once(&f, 30, "dealt");
    f.tasks = 2;
    f.open();
    f.append("f7", "row 30\n");
    f.read();
    all_once(&f, 31, "dealt anew");
}

#[test]
fn a_source_that_did_not_follow_goes_on_following_and_not_back() {
    let mut f = Followed::new("*.log");
    f.write("a.log", "1\n2");
    f.write("b.log", "x\n");
    let still = files(f.dir.path(), "*.log", Format::Raw);
    let all = read_from(&still, Encoding::Raw, None, 1, 1 << 20).unwrap();
    assert_eq!(all.rows, 3);
    f.positions.clone_from(&all.positions);
    f.open();
    f.expect(&[]);
    f.append("a.log", "\n3\n");
    f.append("b.log", "y\n");
    f.read();
    f.rows.sort();
    assert_eq!(f.rows, ["3", "y"]);
    let error = read_from(&still, Encoding::Raw, Some(&f.cut()), 1, 1).unwrap_err();
    assert!(error.to_string().contains("follow = true"), "{error}");
}
