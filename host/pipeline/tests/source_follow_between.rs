//! What happens to followed files between a look at them and the first reading of what it found.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use source_support::followed::{Followed, is_root};
use source_support::told;
use source_support::told_apart::{alone, copy, each_once, followed, lines, mode, rotate, says, truncate};
use tidegate_pipeline::source::files::{FilesSource, FollowOptions, Format, Moment, Moments, OnLostRows};

#[test]
fn of_two_rotations_between_two_looks_the_file_in_the_middle_is_read() {
    let _alone = alone();
    for pattern in ["app.log", "app.log*"] {
        for read in [true, false] {
            let mut f = followed(pattern, OnLostRows::Stop);
            f.write("app.log", &lines('d', 30));
            f.open();
            f.read();
            if read {
                f.read();
            }
            for kind in ['e', 'f'] {
                f.rename("app.log", "app.log.1");
                f.write("app.log", &lines(kind, 10));
            }
            f.read();
            each_once(&f, &[('d', 30), ('e', 10), ('f', 10)]);
        }
    }
}

#[test]
fn a_copy_made_between_a_look_and_the_first_reading_of_what_it_found_is_read() {
    let _alone = alone();
    for restart in [false, true] {
        for (rotations, dated) in [(0, false), (1, false), (1, true), (3, false)] {
            // Between two looks there is time.
            let mut f = Followed::with("app.log", Format::Raw, |options| {
                let poll = Duration::from_secs(3600);
                options.follow = Some(FollowOptions { poll, ..FollowOptions::default() });
            });
            f.write("app.log", &lines('d', 5));
            f.open();
            f.read();
            f.readers.clear();
            rotate(&f);
            f.append("app.log", &lines('e', 3));
            f.open();
            // Nobody has read that yet.
            rotate(&f);
            if dated {
                f.rename("app.log.1", "app.log-20261130");
                f.rename("app.log.2", "app.log.1");
            }
            f.append("app.log", &lines('f', 4));
            f.call(0).unwrap();
            each_once(&f, &[('d', 5), ('f', 4)]);
            let kinds = ['g', 'h', 'i'];
            for kind in &kinds[..rotations] {
                rotate(&f);
                f.append("app.log", &lines(*kind, 6));
            }
            if restart {
                f.open();
            }
            for _ in 0..4 {
                f.runtime.block_on(tokio::time::advance(Duration::from_secs(7200)));
                f.read();
            }
            let rest = kinds[..rotations].iter().map(|kind| (*kind, 6));
            each_once(&f, &[('d', 5), ('e', 3), ('f', 4)].into_iter().chain(rest).collect::<Vec<_>>());
        }
    }
}

/// Does something when the reader comes to that moment, once each time it was armed.
fn once_at(f: &mut Followed, at: Moment, does: impl Fn(&PathBuf) + Send + Sync + 'static) -> Arc<AtomicBool> {
    let armed = Arc::new(AtomicBool::new(false));
    let (dir, trigger) = (f.dir.path().to_owned(), Arc::clone(&armed));
    f.source = Arc::new(FilesSource::clone(&f.source).telling(Moments::told(move |moment| {
        if moment == at && trigger.swap(false, Ordering::SeqCst) {
            does(&dir);
        }
    })));
    armed
}

#[test]
fn a_file_truncated_between_opening_and_the_first_reading_gives_no_rows_twice() {
    let _alone = alone();
    for pattern in ["app.log", "app.log*"] {
        for at in [Moment::Opening, Moment::Reading] {
            let mut f = followed(pattern, OnLostRows::Stop);
            let armed = once_at(&mut f, at, |dir| {
                fs::copy(dir.join("app.log"), dir.join("app.log.1")).unwrap();
                fs::write(dir.join("app.log"), lines('e', 4)).unwrap();
            });
            f.write("app.log", "");
            f.open();
            f.read();
            f.append("app.log", &lines('d', 10));
            armed.store(true, Ordering::SeqCst);
            for _ in 0..4 {
                f.read();
            }
            assert!(!armed.load(Ordering::SeqCst));
            each_once(&f, &[('d', 10), ('e', 4)]);
        }
    }
}

#[test]
fn the_first_copies_of_a_log_are_read_if_it_could_not_be_opened_before() {
    let _alone = alone();
    for (restart, rotations) in [(false, 1), (false, 3), (true, 1), (true, 3)] {
        let mut f = followed("app.log", OnLostRows::Stop);
        f.as_nobody = is_root();
        // Of before the log was known.
        f.write("app.log.1", &lines('c', 40));
        f.write("app.log", &lines('d', 20));
        mode(&f.dir.path().join("app.log"), 0o000);
        f.open();
        f.read();
        for kind in &['e', 'f', 'g'][..rotations] {
            rotate(&f);
            f.append("app.log", &lines(*kind, 2));
        }
        for number in 1..=rotations {
            mode(&f.dir.path().join(format!("app.log.{number}")), 0o644);
        }
        match restart {
            true => f.open(),
            false => drop(f.read()),
        }
        mode(&f.dir.path().join("app.log"), 0o644);
        for _ in 0..100 {
            f.read();
        }
        let rest = ['e', 'f', 'g'][..rotations].iter().map(|kind| (*kind, 2));
        each_once(&f, &[('d', 20)].into_iter().chain(rest).collect::<Vec<_>>());
    }
}

#[test]
fn a_copy_that_is_renamed_while_a_look_is_worked_in_is_no_loss() {
    let _alone = alone();
    for pattern in ["app.log", "app.log*"] {
        let mut f = Followed::with(pattern, Format::Raw, |options| {
            options.follow = Some(FollowOptions { poll: Duration::from_secs(3600), ..FollowOptions::default() });
        });
        let armed = once_at(&mut f, Moment::ListedAround, |dir| {
            fs::rename(dir.join("app.log.1"), dir.join("app.log.2")).unwrap();
        });
        let look = |f: &mut Followed| {
            f.runtime.block_on(tokio::time::advance(Duration::from_secs(7200)));
            f.call(0).unwrap();
        };
        (f.as_nobody, f.most_bytes) = (is_root(), 1);
        // The copy is renamed on the reader's thread.
        mode(f.dir.path(), 0o777);
        f.write("app.log", "");
        f.open();
        f.call(0).unwrap();
        mode(&f.dir.path().join("app.log"), 0o000);
        f.append("app.log", &lines('d', 20));
        look(&mut f);
        copy(&f, "app.log", "app.log.1");
        truncate(&f, "app.log");
        mode(&f.dir.path().join("app.log.1"), 0o644);
        armed.store(true, Ordering::SeqCst);
        for _ in 0..4 {
            look(&mut f);
        }
        assert!(!armed.load(Ordering::SeqCst));
        f.append("app.log", &lines('e', 3));
        mode(&f.dir.path().join("app.log"), 0o644);
        for _ in 0..200 {
            look(&mut f);
        }
        each_once(&f, &[('d', 20), ('e', 3)]);
    }
}

#[test]
fn a_new_log_that_waits_for_what_became_of_the_one_before_is_known_when_it_is_rotated_itself() {
    let _alone = alone();
    for restart in [false, true] {
        let mut f = followed("app.log", OnLostRows::Warn);
        f.as_nobody = is_root();
        f.write("app.log", &lines('b', 5));
        f.open();
        f.read();
        f.rename("app.log", "app.log.1");
        f.write("app.log", &lines('d', 20));
        f.read();
        f.readers.clear();
        f.append("app.log", &lines('z', 1));
        // It might be a copy of it, as far as can be told.
        f.write("app.log.3", &lines('c', 30));
        mode(&f.dir.path().join("app.log.3"), 0o000);
        f.remove("app.log");
        f.write("app.log", &lines('e', 10));
        f.open();
        f.read();
        each_once(&f, &[('b', 5), ('d', 20)]);
        rotate(&f);
        f.append("app.log", &lines('f', 5));
        f.read();
        if restart {
            f.readers.clear();
        }
        f.rename("app.log.2", "app.log.4");
        f.rename("app.log.1", "app.log.2");
        f.rename("app.log", "app.log.1");
        f.write("app.log", &lines('g', 5));
        if restart {
            f.open();
        }
        f.read();
        f.remove("app.log.3");
        for _ in 0..100 {
            f.read();
        }
        says(&["app.log", "lost"]);
        assert!(!told::take().iter().any(|text| text.contains("app.log.1 (partition")));
        each_once(&f, &[('b', 5), ('d', 20), ('e', 10), ('f', 5), ('g', 5)]);
    }
}

/// What rotation by renaming does, before the log is created anew.
fn rename_all(dir: &Path) {
    let name = |number| dir.join(format!("app.log.{number}"));
    let last = (1..).take_while(|number| name(*number).exists()).count();
    for number in (1..=last).rev() {
        fs::rename(name(number), name(number + 1)).unwrap();
    }
    fs::rename(dir.join("app.log"), name(1)).unwrap();
}

/// Reads `app.log` to its end; then it is gone, and two rotated files and a new log are there. The file that comes along
/// keeps the inode of the old one from being given again.
fn rotated_twice_while_nobody_looks(f: &mut Followed) -> fs::File {
    f.open();
    f.read();
    f.readers.clear();
    let kept = fs::File::open(f.dir.path().join("app.log")).unwrap();
    f.remove("app.log");
    f.write("app.log.2", &lines('e', 10));
    f.write("app.log.1", &lines('f', 10));
    f.write("app.log", &lines('g', 10));
    kept
}

#[test]
fn files_rotated_before_a_log_that_is_renamed_while_the_one_known_is_missed_are_read() {
    let _alone = alone();
    for (looks, created) in [(0, false), (0, true), (1, false), (2, true)] {
        let mut f = followed("app.log", OnLostRows::Warn);
        f.write("app.log", &lines('d', 20));
        let _kept = rotated_twice_while_nobody_looks(&mut f);
        let armed = once_at(&mut f, Moment::Listed, |dir| rename_all(dir));
        armed.store(true, Ordering::SeqCst);
        f.open();
        assert!(!armed.load(Ordering::SeqCst));
        let mut kinds = vec![('d', 20), ('e', 10), ('f', 10), ('g', 10)];
        if created {
            f.write("app.log", &lines('h', 10));
            kinds.push(('h', 10));
        }
        for kind in &['i', 'j'][..looks] {
            f.write("app.log", &lines(*kind, 10));
            kinds.retain(|(other, _)| *other != 'h');
            kinds.push((*kind, 10));
            armed.store(true, Ordering::SeqCst);
            f.read();
        }
        for _ in 0..10 {
            f.read();
        }
        each_once(&f, &kinds);
    }
}

#[test]
fn files_that_the_last_look_missed_between_two_known_ones_are_read() {
    let _alone = alone();
    let mut f = followed("app.log", OnLostRows::Warn);
    f.as_nobody = is_root();
    // It might be what is missed, as far as can be told.
    f.write("app.log.9", &lines('c', 30));
    mode(&f.dir.path().join("app.log.9"), 0o000);
    f.write("app.log", &lines('d', 20));
    let _kept = rotated_twice_while_nobody_looks(&mut f);
    f.open();
    f.readers.clear();
    // As if these had been renamed all the time while they were listed.
    f.positions.retain(|_, position| !position.contains("app.log.1") && !position.contains("app.log.2"));
    assert_eq!(f.positions.len(), 2, "{:#?}", f.positions);
    f.remove("app.log.9");
    rename_all(f.dir.path());
    f.open();
    for _ in 0..10 {
        f.read();
    }
    each_once(&f, &[('d', 20), ('e', 10), ('f', 10), ('g', 10)]);
}

#[test]
fn a_file_of_which_nothing_was_read_does_not_go_on_in_one_that_was_its_copy_once() {
    let _alone = alone();
    let mut f = followed("app.log*", OnLostRows::Warn);
    f.as_nobody = is_root();
    f.write("app.log", &lines('d', 20));
    mode(&f.dir.path().join("app.log"), 0o000);
    f.open();
    for _ in 0..4 {
        f.call(0).unwrap();
    }
    // It can be opened, and will be in some looks.
    mode(&f.dir.path().join("app.log"), 0o644);
    f.write("app.log.1", &lines('d', 5));
    f.call(0).unwrap();
    says(&["app.log.1", "is a copy"]);
    assert_eq!(f.rows.len(), 0);
    f.remove("app.log");
    f.append("app.log.1", &lines('f', 6));
    for _ in 0..10 {
        f.read();
    }
    says(&["app.log", "up to line 0", "may be lost"]);
    each_once(&f, &[('d', 5), ('f', 6)]);
}
