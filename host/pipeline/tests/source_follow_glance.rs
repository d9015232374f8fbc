//! Files that grew lately are read before the next look at the directories, and nothing else is made of them before it.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use std::fs::OpenOptions;
use std::time::Duration;

use source_support::followed::Followed;
use tidegate_pipeline::source::files::{FollowOptions, Format, OnLostRows};

const POLL: Duration = Duration::from_secs(600);

fn followed(tasks: u32) -> Followed {
    let mut followed = Followed::with("*.log", Format::Raw, |options| {
        options.follow = Some(FollowOptions { poll: POLL, on_lost_rows: OnLostRows::Stop });
    });
    followed.tasks = tasks;
    followed
}

/// So much later, as far as the reader knows.
fn later(f: &Followed, time: Duration) {
    f.runtime.block_on(tokio::time::advance(time));
}

#[test]
fn a_file_that_grew_lately_is_read_before_the_next_look_and_others_are_not() {
    for tasks in [1, 2] {
        let mut f = followed(tasks);
        f.write("a.log", "a1\n");
        f.write("empty.log", "");
        f.open();
        f.expect(&["a1"]);
        f.append("a.log", "a2\n");
        later(&f, POLL);
        f.expect(&["a1", "a2"]);
        f.write("b.log", "b1\n");
        f.append("empty.log", "e1\n");
        for row in 3..100 {
            f.append("a.log", &format!("a{row}\n"));
            f.read();
            assert_eq!(f.rows.last().map(String::as_str), Some(&format!("a{row}")[..]));
            // A torn line waits here too.
            f.append("a.log", "b");
            f.read();
            f.append("a.log", "c\n");
            f.read();
            assert_eq!(f.rows.pop().as_deref(), Some("bc"));
        }
        assert!(f.rows.iter().all(|row| row.starts_with('a')), "{:?}", f.rows);
        later(&f, POLL);
        f.read();
        f.rows.sort();
        assert_eq!((f.rows.len(), &f.rows[99][..], &f.rows[100][..]), (101, "b1", "e1"));
    }
}

#[test]
fn a_file_that_did_not_grow_for_a_while_waits_for_the_next_look() {
    let mut f = followed(1);
    f.write("a.log", "a1\n");
    f.open();
    f.expect(&["a1"]);
    later(&f, Duration::from_secs(11));
    f.append("a.log", "a2\n");
    f.expect(&["a1"]);
    later(&f, POLL);
    f.expect(&["a1", "a2"]);
    f.append("a.log", "a3\n");
    f.expect(&["a1", "a2", "a3"]);
}

#[test]
fn what_else_than_growth_happened_to_a_file_is_for_the_next_look() {
    type Happens = fn(&Followed);
    let long: fn(&str) -> String = |name| (0..9).map(|n| format!("{name} {n} {:x<60}\n", "")).collect();
    let renamed: Happens = |f| {
        f.rename("a.log", "a.log.1");
        f.append("a.log.1", "more\n");
        f.write("a.log", "new and longer than what was there before, with so many bytes that it is so\n");
    };
    let deleted: Happens = |f| f.remove("a.log");
    let shorter: Happens = |f| f.write("a.log", "new\n");
    let overwritten: Happens = |f| {
        let file = OpenOptions::new().write(true).open(f.dir.path().join("a.log")).unwrap();
        file.set_len(0).unwrap();
        f.append("a.log", &(0..20).map(|n| format!("new {n} {:z<60}\n", "")).collect::<String>());
    };
    for (happens, more) in [(renamed, 2), (deleted, 0), (shorter, 1), (overwritten, 20)] {
        let mut f = followed(1);
        f.write("a.log", &long("old"));
        f.open();
        f.read();
        f.append("a.log", "one more, so that it is known to grow\n");
        later(&f, POLL);
        f.read();
        assert_eq!(f.rows.len(), 10);
        happens(&f);
        f.read();
        assert_eq!(f.rows.len(), 10, "{:?}", f.rows.last());
        later(&f, POLL);
        f.read();
        later(&f, POLL);
        f.read();
        assert_eq!(f.rows.len(), 10 + more, "{:?}", f.rows.last());
    }
}
