//! Every number of the list of hostile scenarios has a test that bears it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const LIST: &str = include_str!("../numbers.txt");

/// Numbers in names of test functions, and of guests, which are tests each.
fn tested(root: &Path) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let mut folders = vec![root.join("host"), root.join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the repository").flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                if folder.ends_with("tests/hostile/src/cases") {
                    numbers.extend(number(&name));
                }
                let text = std::fs::read_to_string(&path).expect("a source file is text");
                numbers.extend(text.lines().filter_map(|line| number(line.trim_start().split_once("fn ")?.1)));
            }
        }
    }
    numbers
}

/// `h07_busy_poll` → 7.
fn number(name: &str) -> Option<u32> {
    let (digits, rest) = name.strip_prefix('h')?.split_at_checked(2)?;
    rest.starts_with('_').then(|| digits.parse().ok())?
}

#[test]
fn every_scenario_of_the_list_has_a_test() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tested = tested(&root);
    let listed = LIST.lines().filter(|line| !line.starts_with('#'));
    let (mut count, mut missing) = (0, Vec::new());
    for line in listed {
        count += 1;
        let named = line.get(1..3).and_then(|digits| digits.parse::<u32>().ok());
        let named = named.unwrap_or_else(|| panic!("expected `H07 words [- why not]`, found: {line}"));
        let excused = line.contains(" - ");
        assert!(!(excused && tested.contains(&named)), "there is a test now, so the excuse can go: {line}");
        if !excused && !tested.contains(&named) {
            missing.push(line);
        }
    }
    assert!(count > 40, "only {count} scenarios are listed");
    assert!(missing.is_empty(), "no test function begins with these numbers (h07_…): {missing:#?}");
}
