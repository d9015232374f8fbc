//! Followed files of rows that tell themselves apart, and what happens to them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use tidegate_pipeline::source::SourceError;
use tidegate_pipeline::source::files::{FollowOptions, Format, OnLostRows};

use super::followed::Followed;
use super::told;

/// One test at a time, because all hear what is told.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    static LISTEN: Once = Once::new();
    let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    LISTEN.call_once(told::listen);
    told::take();
    alone
}

pub(crate) fn followed(pattern: &str, on_lost_rows: OnLostRows) -> Followed {
    Followed::with(pattern, Format::Raw, |options| {
        options.follow = Some(FollowOptions { poll: Duration::ZERO, on_lost_rows });
    })
}

/// Rows that tell themselves apart, and are long enough to be told by their beginning.
pub(crate) fn rows(kind: char, end: usize) -> Vec<String> {
    (1..=end).map(|n| format!("{kind}{n:05} and the rest of a row of this length")).collect()
}

pub(crate) fn lines(kind: char, end: usize) -> String {
    rows(kind, end).iter().map(|row| format!("{row}\n")).collect()
}

#[track_caller]
pub(crate) fn each_once(f: &Followed, kinds: &[(char, usize)]) {
    let mut read = f.rows.clone();
    read.sort();
    let mut expected: Vec<String> = kinds.iter().flat_map(|(kind, end)| rows(*kind, *end)).collect();
    expected.sort();
    assert!(read == expected, "{} rows, expected {}; {:#?}", read.len(), expected.len(), f.positions);
}

#[track_caller]
pub(crate) fn says(parts: &[&str]) {
    let told = told::take();
    assert!(told.iter().any(|text| parts.iter().all(|part| text.contains(part))), "{parts:?}: {told:#?}");
}

#[track_caller]
pub(crate) fn stops(result: Result<(), SourceError>, parts: &[&str]) {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert!(error.permanent() && parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
}

pub(crate) fn truncate(f: &Followed, name: &str) {
    fs::OpenOptions::new().write(true).open(f.dir.path().join(name)).unwrap().set_len(0).unwrap();
}

pub(crate) fn copy(f: &Followed, from: &str, to: &str) {
    fs::copy(f.dir.path().join(from), f.dir.path().join(to)).unwrap();
}

pub(crate) fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// What rotation by copying does, in a directory where copies are numbered.
pub(crate) fn rotate(f: &Followed) {
    let last = (1..).take_while(|number| f.dir.path().join(format!("app.log.{number}")).exists()).count();
    for number in (1..=last).rev() {
        f.rename(&format!("app.log.{number}"), &format!("app.log.{}", number + 1));
    }
    copy(f, "app.log", "app.log.1");
    truncate(f, "app.log");
}
