//! What must not make rows of followed files come twice, and what must not lose them in silence.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use source_support::followed::{Followed, is_root};
use source_support::told;
use source_support::told_apart::{alone, copy, each_once, followed, lines, mode, says, stops, truncate};
use tidegate_pipeline::source::files::{FollowOptions, Format, OnLostRows};

#[test]
fn a_file_that_cannot_be_opened_at_a_restart_is_waited_for_and_never_read_again() {
    let _alone = alone();
    for policy in [OnLostRows::Stop, OnLostRows::Warn] {
        let mut f = followed("app.log*", policy);
        f.as_nobody = is_root();
        f.write("app.log", &lines('d', 20));
        f.open();
        f.read();
        f.readers.clear();
        let path = f.dir.path().join("app.log");
        // Whoever is not root writes first.
        f.append("app.log", &lines('e', 5));
        mode(&path, 0o000);
        f.open();
        f.read();
        each_once(&f, &[('d', 20)]);
        says(&["app.log", "Permission denied"]);
        f.open();
        mode(&path, 0o644);
        for _ in 0..100 {
            f.read();
        }
        each_once(&f, &[('d', 20), ('e', 5)]);
        assert!(!told::take().iter().any(|text| text.contains("truncated")));
    }
}

#[test]
fn a_copy_that_cannot_be_opened_is_waited_for() {
    let _alone = alone();
    for restart in [false, true] {
        let mut f = followed("app.log", OnLostRows::Stop);
        f.as_nobody = is_root();
        f.write("app.log", &lines('d', 20));
        f.open();
        f.read();
        f.append("app.log", &lines('e', 5));
        copy(&f, "app.log", "app.log.1");
        let path = f.dir.path().join("app.log.1");
        mode(&path, 0o000);
        truncate(&f, "app.log");
        f.append("app.log", &lines('f', 3));
        if restart {
            f.open();
        }
        f.read();
        says(&["app.log.1", "Permission denied"]);
        mode(&path, 0o644);
        f.read();
        each_once(&f, &[('d', 20), ('e', 5), ('f', 3)]);
    }
}

#[test]
fn a_log_copied_and_truncated_while_a_backlog_of_it_is_read_comes_once() {
    let _alone = alone();
    for tasks in [1, 2] {
        for (refilled, most_bytes) in [(10, 1), (1, 100), (900, 4000), (3000, 4000)] {
            for before in 1..4 {
                let mut f = followed("app.log*", OnLostRows::Stop);
                (f.tasks, f.most_bytes) = (tasks, most_bytes);
                f.write("app.log", &lines('d', 1000));
                f.open();
                for _ in 0..before {
                    f.call(0).unwrap();
                }
                copy(&f, "app.log", "app.log.1");
                for task in 0..tasks as usize {
                    f.call(task).unwrap();
                }
                truncate(&f, "app.log");
                f.append("app.log", &lines('e', refilled));
                f.most_bytes = 1 << 20;
                f.read();
                each_once(&f, &[('d', 1000), ('e', refilled)]);
                f.open();
                f.read();
                each_once(&f, &[('d', 1000), ('e', refilled)]);
            }
        }
    }
}

#[test]
fn a_log_truncated_and_written_anew_behind_what_is_buffered_of_it_is_never_taken_for_its_continuation() {
    let _alone = alone();
    let mut f = followed("app.log*", OnLostRows::Stop);
    // More than one block.
    let many = 60_000;
    f.write("app.log", &lines('d', many));
    f.open();
    f.most_bytes = 1000;
    f.call(0).unwrap();
    copy(&f, "app.log", "app.log.1");
    truncate(&f, "app.log");
    f.append("app.log", &lines('e', many + 1));
    f.most_bytes = 1 << 20;
    f.read();
    each_once(&f, &[('d', many), ('e', many + 1)]);
}

#[test]
fn a_copy_made_before_the_last_rows_that_were_read_is_not_read_again() {
    let _alone = alone();
    for seen in [false, true] {
        for restart in [false, true] {
            let mut f = followed("app.log*", OnLostRows::Warn);
            f.write("app.log", &lines('d', 3));
            f.open();
            f.read();
            f.append("app.log", &lines('e', 2));
            copy(&f, "app.log", "app.log.1");
            if seen {
                f.read();
            }
            f.append("app.log", &lines('f', 2));
            if seen {
                f.read();
            } else {
                // Read by a task that was under way.
                f.call(0).unwrap();
            }
            truncate(&f, "app.log");
            f.append("app.log", &lines('g', 1));
            if restart {
                f.open();
            }
            f.read();
            each_once(&f, &[('d', 3), ('e', 2), ('f', 2), ('g', 1)]);
        }
    }
}

#[test]
fn several_names_of_a_file_are_one_from_the_start_on() {
    let _alone = alone();
    let mut f = followed("*", OnLostRows::Stop);
    let dir = f.dir.path().to_owned();
    f.write("app.log", &lines('d', 10));
    symlink("app.log", dir.join("a-link")).unwrap();
    fs::hard_link(dir.join("app.log"), dir.join("twin")).unwrap();
    f.open();
    f.read();
    each_once(&f, &[('d', 10)]);
    assert_eq!(f.positions.keys().collect::<Vec<_>>(), ["app.log"], "a name that is no link counts");
    f.append("twin", &lines('e', 2));
    f.open();
    f.read();
    // The symbolic link leads to the new file, and the hard link is the old one.
    f.rename("app.log", "app.1");
    f.write("app.log", &lines('f', 3));
    f.read();
    f.open();
    f.append("twin", &lines('g', 1));
    f.read();
    each_once(&f, &[('d', 10), ('e', 2), ('f', 3), ('g', 1)]);
    f.readers.clear();
    f.remove("app.1");
    f.open();
    f.append("twin", &lines('h', 1));
    f.read();
    each_once(&f, &[('d', 10), ('e', 2), ('f', 3), ('g', 1), ('h', 1)]);
}

#[test]
fn a_link_that_is_led_to_the_next_file_reads_neither_twice() {
    let _alone = alone();
    for restart in [false, true] {
        let mut f = followed("*", OnLostRows::Stop);
        let dir = f.dir.path().to_owned();
        f.write("day1.log", &lines('d', 3));
        symlink("day1.log", dir.join("current")).unwrap();
        f.open();
        f.read();
        f.write("day2.log", &lines('e', 3));
        fs::remove_file(dir.join("current")).unwrap();
        symlink("day2.log", dir.join("current")).unwrap();
        if restart {
            f.open();
        }
        f.append("current", &lines('f', 2));
        f.read();
        each_once(&f, &[('d', 3), ('e', 3), ('f', 2)]);
    }
}

#[test]
fn a_truncation_that_loses_bytes_known_to_be_unread_stops_a_running_pipeline() {
    let _alone = alone();
    // A torn line; whole rows of a backlog; rows of a file of which nothing was read yet.
    let cases: [(&str, usize, &[&str]); 3] = [
        ("torn", 1 << 20, &["app.log", "after line 20", "4 bytes that were seen", "on-lost-rows"]),
        ("", 1, &["app.log", "after line 1", "bytes that were seen", "on-lost-rows"]),
        ("", 0, &["app.log", "after line 0", "bytes that were seen", "on-lost-rows"]),
    ];
    for (torn, most_bytes, parts) in cases {
        for policy in [OnLostRows::Stop, OnLostRows::Warn] {
            let mut f = followed("*.log", policy);
            f.write("app.log", &format!("{}{torn}", lines('d', 20)));
            f.write("before.log", &lines('b', 1000));
            if most_bytes == 0 {
                // Its turn comes later.
                f.write("aaa.log", &lines('a', 1000));
                f.write("app.log", &lines('d', 20));
            }
            f.most_bytes = most_bytes.max(1);
            f.open();
            match most_bytes {
                0 => drop(f.call(0).unwrap()),
                1 => {
                    while !f.rows.iter().any(|row| row.starts_with('d')) {
                        f.call(0).unwrap();
                    }
                }
                _ => drop(f.read()),
            }
            truncate(&f, "app.log");
            f.append("app.log", "new\n");
            f.most_bytes = 1 << 20;
            match policy {
                OnLostRows::Stop => stops(f.try_read(), parts),
                OnLostRows::Warn => {
                    f.read();
                    says(&parts[..3]);
                    assert!(f.rows.contains(&"new".to_owned()));
                }
            }
        }
    }
}

#[test]
fn a_copy_without_the_bytes_that_were_seen_stops_the_pipeline() {
    let _alone = alone();
    let mut f = followed("app.log", OnLostRows::Stop);
    f.write("app.log", &lines('d', 5));
    f.open();
    f.read();
    copy(&f, "app.log", "app.log.1");
    f.append("app.log", "half a row");
    f.read();
    truncate(&f, "app.log");
    stops(f.try_read(), &["app.log.1 ends before", "10 bytes that were seen"]);
}

#[test]
fn a_torn_line_may_be_taken_back_and_whole_rows_may_not() {
    let _alone = alone();
    let mut f = followed("app.log", OnLostRows::Stop);
    f.write("app.log", &format!("{}torn", lines('d', 2)));
    f.open();
    f.read();
    f.write("app.log", &lines('d', 2));
    f.read();
    f.append("app.log", &lines('e', 1));
    f.read();
    each_once(&f, &[('d', 2), ('e', 1)]);
    // Nothing is known to be lost, so that a truncation is told and no more.
    f.write("app.log", "new\n");
    f.read();
    says(&["truncated or overwritten after line 3", "if any, are lost"]);
}

#[test]
fn a_file_that_is_gone_at_a_restart_is_told_even_if_it_was_read_to_its_end() {
    let _alone = alone();
    let mut f = followed("*.log", OnLostRows::Stop);
    f.write("app.log", &lines('d', 5));
    f.open();
    f.read();
    f.readers.clear();
    f.append("app.log", &lines('e', 5));
    f.remove("app.log");
    f.open();
    says(&["app.log (line 5)", "appended between the last look", "lost"]);
    f.open();
    assert!(!told::take().iter().any(|text| text.contains("app.log")), "once is enough");
    // What is known to be unread is another matter.
    f.write("b.log", &format!("{}torn", lines('b', 1)));
    f.read();
    f.readers.clear();
    f.remove("b.log");
    stops(f.try_open(), &["b.log", "4 more bytes"]);
}

#[test]
fn a_copy_is_found_under_its_later_name() {
    let _alone = alone();
    for pattern in ["app.log", "app.log*", "*"] {
        for read in [1, 5] {
            let mut f = followed(pattern, OnLostRows::Stop);
            f.write("app.log", &lines('d', read));
            f.open();
            f.read();
            f.readers.clear();
            f.append("app.log", &lines('e', 20));
            copy(&f, "app.log", "app.log.1");
            truncate(&f, "app.log");
            f.append("app.log", &lines('f', 20));
            f.rename("app.log.1", "app.log.2");
            f.rename("app.log", "app.log.1");
            f.write("app.log", &lines('g', 1));
            f.open();
            f.read();
            each_once(&f, &[('d', read), ('e', 20), ('f', 20), ('g', 1)]);
        }
    }
}

#[test]
fn a_name_of_a_partition_is_never_told_of_by_two_tasks_in_one_run() {
    let _alone = alone();
    // `Followed` checks it. The copy is known from before it was filled, and goes; its name comes again.
    for tasks in 1..4 {
        let mut f = followed("*", OnLostRows::Warn);
        f.tasks = tasks;
        for other in 0..tasks {
            f.write(&format!("other{other}.log"), &lines('o', 1));
        }
        f.write("b.log", &lines('d', 3));
        f.open();
        f.read();
        f.write("b.log.1", "");
        f.read();
        f.readers.clear();
        copy(&f, "b.log", "b.log.1");
        truncate(&f, "b.log");
        f.append("b.log", &lines('e', 1));
        f.open();
        f.rename("b.log.1", "b.log.2");
        copy(&f, "b.log", "b.log.1");
        f.read();
        f.remove("b.log.1");
        for _ in 0..20 {
            f.read();
        }
        f.write("b.log.1", &lines('x', 1));
        f.read();
        let rows = f.rows.iter().filter(|row| !row.starts_with('o')).count();
        assert_eq!(rows, 5, "{:#?}", f.rows);
    }
}

#[test]
fn copies_that_were_read_long_ago_and_forgotten_are_not_read_again() {
    let _alone = alone();
    for restart_often in [false, true] {
        let mut f = followed("app.log", OnLostRows::Stop);
        let rotate = |f: &Followed| {
            let mut last = 1;
            while f.dir.path().join(format!("app.log.{last}")).exists() {
                last += 1;
            }
            for number in (1..last).rev() {
                f.rename(&format!("app.log.{number}"), &format!("app.log.{}", number + 1));
            }
            copy(f, "app.log", "app.log.1");
            truncate(f, "app.log");
        };
        f.write("app.log", "");
        f.open();
        let mut expected = Vec::new();
        for n in 0..110 {
            let rows = format!("{n:03} of a row that is long enough\n{n:03} and one more of the same length\n");
            f.append("app.log", &rows);
            expected.extend(rows.lines().map(str::to_owned));
            if n < 100 {
                f.read();
            } else if n == 100 {
                f.readers.clear();
            }
            rotate(&f);
            if restart_often && n % 9 == 0 && n < 100 {
                f.open();
            }
        }
        f.open();
        f.read();
        f.open();
        f.read();
        f.rows.sort();
        expected.sort();
        assert_eq!(f.rows, expected);
        assert!(f.positions.len() < 90, "{}", f.positions.len());
    }
}

#[test]
fn a_file_that_went_while_nobody_looked_is_told_also_if_that_is_certain_only_later() {
    let _alone = alone();
    let mut f = followed("app.log*", OnLostRows::Stop);
    f.as_nobody = is_root();
    f.write("app.log", &lines('d', 20));
    f.open();
    f.read();
    f.rename("app.log", "app.log.1");
    f.write("app.log", &lines('e', 5));
    f.read();
    f.readers.clear();
    f.append("app.log.1", &lines('f', 3));
    f.remove("app.log.1");
    // It might be this one, as far as can be told.
    f.write("app.log.2", &lines('g', 4));
    mode(&f.dir.path().join("app.log.2"), 0o000);
    f.open();
    f.read();
    assert!(!told::take().iter().any(|text| text.contains("while nobody looked")));
    mode(&f.dir.path().join("app.log.2"), 0o644);
    for _ in 0..100 {
        f.read();
    }
    says(&["app.log.1", "while nobody looked", "lost"]);
    each_once(&f, &[('d', 20), ('e', 5), ('g', 4)]);
}

#[test]
fn a_checkpoint_knows_what_was_seen_of_a_file_of_which_nothing_was_read() {
    let _alone = alone();
    let mut f = followed("app.log*", OnLostRows::Stop);
    f.as_nobody = is_root();
    f.write("app.log", "");
    f.open();
    f.read();
    f.append("app.log", &lines('d', 20));
    mode(&f.dir.path().join("app.log"), 0o000);
    f.rename("app.log", "app.log.1");
    f.read();
    f.remove("app.log.1");
    f.readers.clear();
    stops(f.try_open(), &["app.log.1", "is not found", "880 more bytes"]);
}

#[test]
fn rows_written_to_a_copy_that_lacks_rows_which_were_read_are_never_lost_in_silence_nor_make_others_come_twice() {
    let _alone = alone();
    for (pattern, restart) in [("app.log", false), ("app.log", true), ("app.log*", false), ("app.log*", true)] {
        for more in [5, 12, 200] {
            for policy in [OnLostRows::Stop, OnLostRows::Warn] {
                let mut f = followed(pattern, policy);
                f.write("app.log", &lines('d', 10));
                f.open();
                f.read();
                copy(&f, "app.log", "app.log.1");
                f.read();
                f.append("app.log", &lines('e', 10));
                f.read();
                truncate(&f, "app.log");
                f.append("app.log.1", &lines('f', more));
                f.append("app.log", &lines('g', 2));
                told::take();
                if restart {
                    f.readers.clear();
                }
                let result = if restart { f.try_open().and_then(|()| f.try_read()) } else { f.try_read() };
                let what = ["app.log", "its copy app.log.1 has something else", "lost"];
                match policy {
                    OnLostRows::Stop => stops(result, &what),
                    OnLostRows::Warn => {
                        result.unwrap();
                        says(&what);
                        f.append("app.log.1", &lines('h', 3));
                        f.append("app.log", "i\n");
                        f.read();
                        assert_eq!(f.rows.pop().as_deref(), Some("i"));
                        each_once(&f, &[('d', 10), ('e', 10), ('g', 2), ('h', 3)]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_file_that_was_seen_to_grow_and_is_gone_before_it_can_be_opened_is_a_loss() {
    let _alone = alone();
    for renamed in [false, true] {
        let mut f = followed("app.log*", OnLostRows::Stop);
        f.as_nobody = is_root();
        f.write("app.log", &lines('d', 20));
        f.open();
        f.read();
        f.append("app.log", &lines('e', 5));
        mode(&f.dir.path().join("app.log"), 0o000);
        f.open();
        f.read();
        if renamed {
            f.rename("app.log", "app.log.1");
            f.read();
        }
        f.remove(if renamed { "app.log.1" } else { "app.log" });
        stops(f.try_read(), &["app.log", "line 20", "220 more bytes", "is not found"]);
    }
}

#[test]
fn a_truncation_that_loses_bytes_which_a_look_has_seen_and_nobody_has_read_stops_a_running_pipeline() {
    let _alone = alone();
    for policy in [OnLostRows::Stop, OnLostRows::Warn] {
        let mut f = followed("*.log", policy);
        f.write("app.log", &lines('d', 3));
        f.write("busy.log", &lines('b', 1));
        f.open();
        f.read();
        f.append("busy.log", &lines('c', 1000));
        f.most_bytes = 1;
        f.call(0).unwrap();
        f.append("app.log", &lines('e', 5));
        // A look sees it, and the other file is read on.
        f.call(0).unwrap();
        assert_eq!(f.rows.len(), 6);
        truncate(&f, "app.log");
        f.append("app.log", "new\n");
        f.most_bytes = 1 << 20;
        let parts = ["app.log", "after line 3", "220 bytes that were seen"];
        match policy {
            OnLostRows::Stop => stops(f.try_read(), &parts),
            OnLostRows::Warn => {
                f.read();
                says(&parts);
                assert!(f.rows.contains(&"new".to_owned()));
            }
        }
    }
}

#[test]
fn a_copy_that_has_just_begun_is_not_read_for_a_file_of_its_own_while_the_original_cannot_be_opened() {
    let _alone = alone();
    let poll = Duration::from_secs(60);
    let mut f = Followed::with("app.log*", Format::Raw, |options| {
        options.follow = Some(FollowOptions { poll, on_lost_rows: OnLostRows::Stop });
    });
    (f.tasks, f.as_nobody) = (2, is_root());
    f.write("app.log", &lines('d', 20));
    f.open();
    f.read();
    let look = |f: &Followed| f.runtime.block_on(tokio::time::advance(poll));
    mode(&f.dir.path().join("app.log"), 0o000);
    f.open();
    f.write("app.log.1", &lines('d', 20)[..20]);
    // The other task looks; the one that reads does so when there is more.
    f.call(1).unwrap();
    look(&f);
    f.call(1).unwrap();
    f.append("app.log.1", &lines('d', 20)[20..]);
    f.call(0).unwrap();
    for unlocked in [false, true] {
        if unlocked {
            mode(&f.dir.path().join("app.log"), 0o644);
        }
        for _ in 0..10 {
            look(&f);
            f.read();
        }
        each_once(&f, &[('d', 20)]);
    }
}

#[test]
fn rows_that_are_left_of_a_log_that_is_cut_short_are_not_read_again() {
    let _alone = alone();
    let short = |end: usize| (1..=end).map(|n| format!("row {n:02}\n")).collect::<String>();
    let long = |end: usize| (1..=end).map(|n| format!("row {n:02} {}\n", "x".repeat(3000))).collect::<String>();
    for row in [short as fn(usize) -> String, long] {
        for (left, more) in [(1, false), (5, false), (5, true), (9, true)] {
            let mut f = followed("app.log", OnLostRows::Stop);
            f.write("app.log", &row(10));
            f.open();
            f.read();
            f.read();
            let length = row(left).len() as u64;
            fs::OpenOptions::new().write(true).open(f.dir.path().join("app.log")).unwrap().set_len(length).unwrap();
            if more {
                f.append("app.log", "new 01\nnew 02\n");
            }
            match f.try_read() {
                Ok(()) => {
                    says(&["app.log", "begins with lines 1 to", "and nothing else"]);
                    f.append("app.log", "end 01\n");
                    f.read();
                    let mut expected = row(10) + "end 01\n";
                    if more {
                        expected = row(10) + "new 01\nnew 02\nend 01\n";
                    }
                    assert_eq!(f.rows.join("\n") + "\n", expected);
                }
                // What is behind the first 4 KiB is not known.
                stopped => {
                    assert!(length > 4096, "{left}: {stopped:?}");
                    stops(stopped, &["app.log", "line 10", "begins with lines 1 to", "cannot be known"]);
                    assert_eq!(f.rows.len(), 10);
                }
            }
        }
    }
}
