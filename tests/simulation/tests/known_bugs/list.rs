//! The list of known bugs, and the tests that stand for them.

use std::collections::{BTreeMap, BTreeSet};

const ENTRIES: &str = include_str!("entries.txt");
const SOURCES: [&str; 6] = [
    include_str!("lifetime.rs"),
    include_str!("identity.rs"),
    include_str!("ordering.rs"),
    include_str!("errors.rs"),
    include_str!("fencing.rs"),
    include_str!("rehearsed.rs"),
];

/// `b01` by the name of its test, or by why there is none.
fn entries() -> BTreeMap<String, Result<String, String>> {
    let mut entries = BTreeMap::new();
    for (number, line) in (1..).zip(ENTRIES.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let (id, rest) =
            line.split_once(' ').unwrap_or_else(|| panic!("entries.txt:{number}: expected a number and a name"));
        let entry = match rest.strip_prefix("waits: ") {
            Some(why) => Err(why.to_owned()),
            None => Ok(format!("{id}_{rest}")),
        };
        assert!(entries.insert(id.to_owned(), entry).is_none(), "entries.txt:{number}: {id} is there twice");
    }
    entries
}

/// The names of all tests whose name begins with the number of a known bug.
fn tests() -> BTreeSet<String> {
    let lines = SOURCES.iter().flat_map(|source| source.lines());
    let mut attribute = false;
    let mut names = BTreeSet::new();
    for line in lines {
        let name =
            line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn ")).and_then(|rest| rest.split('(').next());
        if let Some(name) = name.filter(|_| attribute) {
            let number = name.get(1..3).is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
            if name.starts_with('b') && number {
                assert!(names.insert(name.to_owned()), "two tests are called {name}");
            }
        }
        attribute = line.starts_with("#[tokio::test") || line.starts_with("#[test]");
    }
    names
}

#[test]
fn every_listed_bug_has_its_test_and_every_test_is_listed() {
    let entries = entries();
    let listed: BTreeSet<String> = entries.values().filter_map(|entry| entry.clone().ok()).collect();
    let tests = tests();
    assert!(listed.len() > 50 && !tests.is_empty(), "{} listed, {} tests", listed.len(), tests.len());
    let missing: Vec<_> = listed.difference(&tests).collect();
    let unlisted: Vec<_> = tests.difference(&listed).collect();
    assert!(missing.is_empty(), "listed and without a test: {missing:?}");
    // A second test of the same bug has a name of its own behind the number.
    let unlisted: Vec<_> = unlisted.into_iter().filter(|name| !entries.contains_key(&name[..3])).collect();
    assert!(unlisted.is_empty(), "not in entries.txt: {unlisted:?}");
    assert!(entries.values().filter_map(|entry| entry.as_ref().err()).all(|why| why.len() > 10), "a reason is missing");
}
