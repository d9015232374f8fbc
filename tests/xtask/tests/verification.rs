//! `VERIFICATION.md` says what is checked by what. It names every promise, failure point and known bug, and nothing that
//! is not there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate lies two folders below the root").to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// First cells of all rows of all tables.
fn rows(page: &str) -> BTreeSet<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    cells.map(|cell| cell.trim_matches('*').to_owned()).collect()
}

/// Names of all functions in the Rust files below these folders.
fn functions() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut folders: Vec<PathBuf> = ["host", "guests", "tests"].iter().map(|name| root().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("the entry can be read").path();
            if path.is_dir() {
                if path.file_name().is_some_and(|name| name != "target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("sources are text");
                let found = text.lines().filter_map(|line| line.trim_start().split("fn ").nth(1)?.split('(').next());
                names.extend(found.map(str::to_owned));
            }
        }
    }
    names
}

#[test]
fn every_promise_failure_point_and_known_bug_has_its_row() {
    let rows = rows(&read("VERIFICATION.md"));
    let bugs = read("tests/simulation/tests/known_bugs/entries.txt");
    let bugs: Vec<String> = bugs
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split(' ').next().map(str::to_uppercase))
        .collect();
    assert!(bugs.len() > 50, "only {} known bugs are listed", bugs.len());
    let promises = (1..=12).map(|n| format!("P{n}"));
    let points = (1..=54).map(|n| format!("F{n}"));
    let missing: Vec<String> = promises.chain(points).chain(bugs).filter(|name| !rows.contains(name)).collect();
    assert!(missing.is_empty(), "no row in VERIFICATION.md for {missing:?}");
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let page = read("VERIFICATION.md");
    let functions = functions();
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| {
            word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect();
    assert!(named.len() > 80, "the page names only {} tests", named.len());
    let gone: Vec<&str> = named.into_iter().filter(|name| !functions.contains(*name)).collect();
    assert!(gone.is_empty(), "VERIFICATION.md names what is not there: {gone:?}");
}

/// Whether it is the number of a failure point or a known bug: `f16`, `b07`.
fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix(['f', 'b']);
    digits.is_some_and(|digits| digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[test]
fn every_test_that_carries_a_number_stands_in_the_row_of_that_number() {
    let page = read("VERIFICATION.md");
    let row = |number: &str| {
        // Failure points are counted F1, known bugs B01.
        let name = match number.strip_prefix("f0") {
            Some(digit) => format!("| F{digit} |"),
            None => format!("| {} |", number.to_uppercase()),
        };
        page.lines().find(|line| line.starts_with(&name)).unwrap_or_default()
    };
    let functions = functions();
    let numbered = functions.iter().filter(|name| name.split('_').next().is_some_and(is_number));
    let missing: Vec<&String> = numbered
        .filter(|name| {
            let quoted = format!("`{name}`");
            let mut numbers = name.split('_').take_while(|word| is_number(word));
            !numbers.all(|number| row(number).contains(&quoted))
        })
        .collect();
    assert!(missing.is_empty(), "these tests are missing in the rows of VERIFICATION.md: {missing:?}");
}
