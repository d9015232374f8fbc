//! The list of branches that are not covered, each with its reason.
//!
//! ```text
//! # Why: what stands below it is not covered for this reason.
//! host/protocol/src/file.rs | function | never true | the condition
//! host/protocol/src/file.rs | function | sometimes false | a condition that hangs on a race
//! ```

use anyhow::{Context, Result, bail, ensure};

use super::export::Branch;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its number in the list.
    pub(super) line: usize,
    file: String,
    function: String,
    side: bool,
    /// It may be covered as well.
    sometimes: bool,
    text: String,
    why: String,
}

/// The lines that no branch has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Listed {
    entries: Vec<Entry>,
}

/// Reads the list.
pub(super) fn parse(text: &str) -> Result<Listed> {
    let mut entries = Vec::new();
    let mut why = String::new();
    let mut in_why = false;
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(words) = content.strip_prefix('#') {
            if !in_why {
                why.clear();
            }
            in_why = true;
            why = format!("{why} {}", words.trim()).trim().to_owned();
        } else if !content.trim().is_empty() {
            in_why = false;
            let fields: Vec<&str> = content.splitn(4, " | ").map(str::trim).collect();
            let [file, function, when, text] = fields[..] else {
                bail!("line {line} of the list is not `file | function | never true | condition`");
            };
            let sometimes = when.strip_prefix("sometimes ");
            let side = when.strip_prefix("never ").or(sometimes).and_then(|side| side.parse().ok());
            let sometimes = sometimes.is_some();
            let side =
                side.with_context(|| format!("line {line} of the list says neither `never true` nor `never false`"))?;
            ensure!(!why.is_empty(), "line {line} of the list has no reason above it");
            let [file, function, text] = [file, function, text].map(str::to_owned);
            entries.push(Entry { line, file, function, side, sometimes, text, why: why.clone() });
        }
    }
    Ok(Listed { entries })
}

impl Listed {
    /// The reason why this side of a branch is not covered. A line serves one branch: two conditions that read alike in
    /// one function need two lines.
    pub(super) fn take(&mut self, branch: &Branch, side: bool) -> Option<String> {
        let it = |entry: &Entry| {
            entry.side == side
                && (&entry.file, &entry.function, &entry.text) == (&branch.file, &branch.function, &branch.text)
        };
        let at = self.entries.iter().position(it)?;
        Some(self.entries.remove(at).why)
    }

    /// Lines for which there is no such branch that is not covered.
    pub(super) fn left(self) -> Vec<Entry> {
        self.entries.into_iter().filter(|entry| !entry.sometimes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(text: &str) -> Branch {
        Branch {
            file: "a.rs".to_owned(),
            line: 7,
            column: 1,
            function: "f".to_owned(),
            text: text.to_owned(),
            taken_true: false,
            taken_false: false,
        }
    }

    #[test]
    fn every_line_has_the_reason_above_it_and_serves_one_branch() {
        let list = "# One\n# reason.\na.rs | f | never true | a | b\na.rs | f | never true | a | b\n\n# Another.\na.rs | f | never false | c\n";
        let mut listed = parse(list).expect("a list");
        assert_eq!(listed.take(&branch("c"), true), None, "the other side");
        assert_eq!(listed.take(&branch("c"), false).as_deref(), Some("Another."));
        for _ in 0..2 {
            assert_eq!(listed.take(&branch("a | b"), true).as_deref(), Some("One reason."));
        }
        assert_eq!(listed.take(&branch("a | b"), true), None);
        assert!(listed.left().is_empty());
    }

    #[test]
    fn what_nobody_asks_for_is_left() {
        let left = parse("# R.\na.rs | f | never true | x\n").expect("a list").left();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].line, 2);
    }

    #[test]
    fn what_hangs_on_a_race_may_be_covered_or_not() {
        let list = "# R.\na.rs | f | sometimes true | x\n";
        assert!(parse(list).expect("a list").left().is_empty());
        assert!(parse(list).expect("a list").take(&branch("x"), true).is_some());
    }

    #[test]
    fn lines_without_reason_or_side_are_refused() {
        for wrong in ["a.rs | f | never true | x", "# R.\na.rs | f | x", "# R.\na.rs | f | never maybe | x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
