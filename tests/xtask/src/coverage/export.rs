//! What `cargo llvm-cov report --json` says, and the source that it speaks of.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// All branches and lines that are measured.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// By file and place.
    pub(super) branches: Vec<Branch>,
    pub(super) lines: u64,
    pub(super) lines_covered: u64,
}

/// A condition in the source, taken together over all instantiations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Branch {
    /// From the workspace's root.
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) column: usize,
    /// The function around it.
    pub(super) function: String,
    /// The condition, with single spaces.
    pub(super) text: String,
    pub(super) taken_true: bool,
    pub(super) taken_false: bool,
}

#[derive(Deserialize)]
struct Export {
    data: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    files: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    filename: String,
    /// Lines and columns of begin and end, how often true and false, and more.
    branches: Vec<Vec<u64>>,
    /// Line, column, count, whether it has a count, whether a region begins, whether it is a gap.
    segments: Vec<(usize, usize, u64, bool, bool, bool)>,
}

/// Reads an export; `is_measured` is asked with paths from `root`.
pub(super) fn read(text: &str, root: &Path, is_measured: &dyn Fn(&str) -> bool) -> Result<Coverage> {
    let export: Export = serde_json::from_str(text).context("not an export of llvm-cov")?;
    let mut coverage = Coverage::default();
    for file in export.data.iter().flat_map(|data| &data.files) {
        let Ok(path) = Path::new(&file.filename).strip_prefix(root) else { continue };
        let path = path.to_string_lossy().into_owned();
        if !is_measured(&path) {
            continue;
        }
        let source = std::fs::read_to_string(&file.filename).with_context(|| format!("cannot read {path}"))?;
        let source = Source::new(&source);
        add_branches(&mut coverage, &path, file, &source)?;
        add_lines(&mut coverage, file, &source);
    }
    coverage.branches.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    Ok(coverage)
}

fn add_branches(coverage: &mut Coverage, path: &str, file: &File, source: &Source<'_>) -> Result<()> {
    // Each instantiation has an entry of its own.
    let mut merged: BTreeMap<[usize; 4], (bool, bool)> = BTreeMap::new();
    for branch in &file.branches {
        ensure!(branch.len() >= 6, "a branch of {path} lacks its counts");
        let place = [branch[0] as usize, branch[1] as usize, branch[2] as usize, branch[3] as usize];
        let taken = merged.entry(place).or_default();
        taken.0 |= branch[4] > 0;
        taken.1 |= branch[5] > 0;
    }
    for (place, (taken_true, taken_false)) in merged {
        let [line, column, ..] = place;
        if source.is_test(line) {
            continue;
        }
        let text = source.text(place).with_context(|| format!("{path} has no {line}:{column}: was it changed?"))?;
        let function = source.function(line).to_owned();
        let file = path.to_owned();
        coverage.branches.push(Branch { file, line, column, function, text, taken_true, taken_false });
    }
    Ok(())
}

/// As llvm-cov counts: a line counts with the most that any region beginning on it was run, or else with the region that
/// goes on from before it.
fn add_lines(coverage: &mut Coverage, file: &File, source: &Source<'_>) {
    let mut by_line: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for segment in &file.segments {
        by_line.entry(segment.0).or_default().push(segment);
    }
    let (Some(first), Some(last)) = (by_line.keys().next().copied(), by_line.keys().next_back().copied()) else {
        return;
    };
    let mut before: Option<(u64, bool)> = None;
    for line in first..=last {
        let here = by_line.get(&line).map(Vec::as_slice).unwrap_or_default();
        let begins = |segment: &&&(usize, usize, u64, bool, bool, bool)| segment.3 && segment.4 && !segment.5;
        let skipped = here.first().is_some_and(|segment| !segment.3 && segment.4);
        let counted = before.filter(|(_, has_count)| *has_count).map(|(count, _)| count);
        let begun = here.iter().filter(begins).map(|segment| segment.2).max();
        if !skipped && !source.is_test(line) && (counted.is_some() || begun.is_some()) {
            coverage.lines += 1;
            coverage.lines_covered += u64::from(counted.max(begun) > Some(0));
        }
        before = here.last().map(|segment| (segment.2, segment.3)).or(before);
    }
}

/// The lines of a file.
struct Source<'a> {
    lines: Vec<&'a str>,
    /// Which of them belong to a test module.
    tests: Vec<bool>,
}

impl<'a> Source<'a> {
    fn new(text: &'a str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let mut tests = vec![false; lines.len()];
        let mut inside = false;
        for (at, line) in lines.iter().enumerate() {
            // A module at the left edge ends with a brace at the left edge: rustfmt sees to it.
            inside |= *line == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.ends_with('{'));
            tests[at] = inside;
            inside &= *line != "}";
        }
        Self { lines, tests }
    }

    fn is_test(&self, line: usize) -> bool {
        self.tests.get(line - 1).copied().unwrap_or(false)
    }

    /// What stands between two places, both counted from 1, with single spaces.
    fn text(&self, [line, column, last_line, last_column]: [usize; 4]) -> Option<String> {
        let mut parts = Vec::new();
        for at in line..=last_line {
            let whole = self.lines.get(at.checked_sub(1)?)?;
            let from = if at == line { column - 1 } else { 0 };
            let to = if at == last_line { last_column - 1 } else { whole.len() };
            parts.push(whole.get(from..to)?);
        }
        Some(parts.join(" ").split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// The name of the function that a line belongs to: the nearest one above it that is indented less.
    fn function(&self, line: usize) -> &'a str {
        let indent = |line: &str| line.len() - line.trim_start().len();
        let mut within = self.lines.get(line - 1).map_or(0, |line| indent(line)).max(1);
        for above in self.lines[..line].iter().rev() {
            if above.trim().is_empty() || indent(above) >= within {
                continue;
            }
            // A signature over several lines ends with its brackets where its name stands.
            within = indent(above) + usize::from(above.trim_start().starts_with(')'));
            if let Some(name) = function_name(above) {
                return name;
            }
        }
        "-"
    }
}

fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe"];
    let qualifies = |word: &str| words.contains(&word) || word.starts_with("pub(") || word == "extern";
    let declares = before.split_whitespace().all(qualifies);
    let name = after.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty());
    name.filter(|_| declares)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
fn first(a: bool) {
    if a &&
        b {}
}

impl X {
    pub(super) fn second(
        &self,
    ) -> bool {
        let close = |n: u32| n > 7;
        self.is_some_and(close)
    }
}

#[cfg(test)]
mod tests {
    fn third() {
        if a {}
    }
}
";

    fn measured(branches: &str, segments: &str) -> Coverage {
        let dir = target_directory_of_tests();
        std::fs::create_dir_all(&dir).expect("a folder");
        let path = dir.join("lib.rs");
        std::fs::write(&path, SOURCE).expect("a file");
        let path = path.to_str().expect("UTF-8");
        let file = format!(r#"{{"filename":"{path}","branches":{branches},"segments":{segments}}}"#);
        let elsewhere = r#"{"filename":"/elsewhere/lib.rs","branches":[[1,1,1,2,0,0]],"segments":[]}"#;
        let text = format!(r#"{{"data":[{{"files":[{file},{elsewhere}]}}]}}"#);
        let found = read(&text, &dir, &|file| file == "lib.rs").expect("an export");
        std::fs::remove_dir_all(&dir).expect("a folder");
        found
    }

    fn target_directory_of_tests() -> std::path::PathBuf {
        let name = std::thread::current().name().unwrap_or("test").replace(':', "-");
        std::env::temp_dir().join(format!("tidegate-coverage-{}-{name}", std::process::id()))
    }

    #[test]
    fn instantiations_of_a_branch_are_one_branch() {
        let found =
            measured("[[2,8,2,9,3,0,0,0,4],[2,8,2,9,0,1,0,0,4],[10,30,10,35,0,5,0,0,4],[18,12,18,13,0,0,0,0,4]]", "[]");
        let [first, second] = &found.branches[..] else { panic!("{:?}", found.branches) };
        assert_eq!(
            (first.function.as_str(), first.text.as_str(), first.taken_true, first.taken_false),
            ("first", "a", true, true)
        );
        assert_eq!((second.function.as_str(), second.text.as_str()), ("second", "n > 7"));
        assert!(!second.taken_true && second.taken_false, "and what stands in a test module is none");
    }

    #[test]
    fn a_condition_over_two_lines_is_one_text() {
        let found = measured("[[2,8,3,10,1,1,0,0,4]]", "[]");
        assert_eq!(found.branches[0].text, "a && b");
    }

    #[test]
    fn a_place_that_is_not_in_the_source_is_an_error() {
        let dir = target_directory_of_tests();
        let source = Source::new(SOURCE);
        assert_eq!(source.text([99, 1, 99, 2]), None);
        assert_eq!(source.text([1, 90, 1, 99]), None);
        assert!(read("{}", &dir, &|_| true).is_err());
    }

    #[test]
    fn lines_count_once_and_those_of_tests_do_not() {
        let segments = "[[1,1,5,true,true,false],[2,8,0,true,true,false],[2,12,5,true,false,false],[4,2,0,false,false,false],\
                        [17,5,0,true,true,false],[19,6,0,false,false,false]]";
        let found = measured("[]", segments);
        assert_eq!((found.lines, found.lines_covered), (4, 4));
        let never = measured("[]", "[[9,7,0,true,true,false],[12,6,0,false,false,false]]");
        assert_eq!((never.lines, never.lines_covered), (4, 0));
    }
}
