//! A planted bug: a few lines that say what it is, and a unified diff.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

/// One file of `tests/mutants`.
#[derive(Debug)]
pub(crate) struct Mutant {
    /// The file's name without its ending.
    pub(crate) name: String,
    /// What is planted, in a sentence.
    pub(crate) plants: String,
    /// The rule that it goes against; names entries of the list of known bugs where it makes them again.
    pub(crate) rule: String,
    /// The promise that it breaks, as `P5`.
    pub(crate) breaks: String,
    /// Checks, the one that should find it soonest first.
    pub(crate) tries: Vec<String>,
    edits: BTreeMap<String, Vec<Hunk>>,
}

#[derive(Debug, Default)]
struct Hunk {
    before: String,
    after: String,
}

impl Mutant {
    /// All mutants of a folder, in order of their names.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut mutants = Vec::new();
        let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read `{}`", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(name) = name.strip_suffix(".patch") else { continue };
            let text = std::fs::read_to_string(&path)?;
            mutants.push(Self::parse(name, &text).with_context(|| format!("`{}`", path.display()))?);
        }
        mutants.sort_by(|a, b| a.name.cmp(&b.name));
        ensure!(!mutants.is_empty(), "there is no patch in `{}`", folder.display());
        Ok(mutants)
    }

    pub(crate) fn parse(name: &str, text: &str) -> Result<Self> {
        let (head, diff) = text.split_once("\n\n").context("no empty line between the header and the diff")?;
        let field = |key: &str| -> Result<String> {
            let found = head.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            let value = found.map(str::trim).filter(|value| !value.is_empty());
            value.map(str::to_owned).with_context(|| format!("the header has no line `{key}: …`"))
        };
        let breaks = field("Breaks")?;
        let number = breaks.strip_prefix('P').and_then(|number| number.parse::<u32>().ok());
        ensure!(number.is_some_and(|number| (1..=12).contains(&number)), "`{breaks}` is no promise: P1 to P12");
        let mutant = Self {
            name: name.to_owned(),
            plants: field("Plants")?,
            rule: field("Rule")?,
            breaks,
            tries: field("Try")?.split(',').map(|check| check.trim().to_owned()).collect(),
            edits: hunks(diff)?,
        };
        ensure!(!mutant.edits.is_empty(), "the diff changes nothing");
        for check in &mutant.tries {
            ensure!(super::checks::is_known(check), "there is no check `{check}`");
        }
        if let Some(entry) = mutant.known_bug() {
            let cited = mutant.rule.split([',', ':', ' ']).any(|word| word == entry);
            ensure!(cited, "its name speaks of {entry}, its rule does not");
        }
        Ok(mutant)
    }

    /// The entry of the list of known bugs that its name speaks of: `B05` of `07-b05-…`.
    pub(crate) fn known_bug(&self) -> Option<String> {
        let word = self.name.split('-').nth(1)?;
        let digits = word.strip_prefix('b')?;
        (digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| format!("B{digits}"))
    }

    /// What the files of `root` are with the bug planted. What a hunk takes away, with the lines around it, must be there
    /// once and only once.
    pub(crate) fn planted(&self, root: &Path) -> Result<BTreeMap<String, String>> {
        let mut changed = BTreeMap::new();
        for (path, hunks) in &self.edits {
            let mut text = std::fs::read_to_string(root.join(path)).with_context(|| format!("`{path}`"))?;
            for hunk in hunks {
                let first = hunk.before.lines().next().unwrap_or_default();
                match text.matches(&hunk.before).count() {
                    1 => text = text.replacen(&hunk.before, &hunk.after, 1),
                    0 => bail!("`{}` does not apply any more: `{path}` has changed around `{first}`", self.name),
                    n => bail!("`{}`: `{path}` has {n} places like the one from `{first}` on", self.name),
                }
            }
            changed.insert(path.clone(), text);
        }
        Ok(changed)
    }
}

fn hunks(diff: &str) -> Result<BTreeMap<String, Vec<Hunk>>> {
    let mut files: BTreeMap<String, Vec<Hunk>> = BTreeMap::new();
    let mut path = String::new();
    for line in diff.lines() {
        if line.starts_with("--- ") {
            continue;
        }
        if let Some(name) = line.strip_prefix("+++ b/") {
            path = name.trim_end().to_owned();
            continue;
        }
        if line.starts_with("@@ ") {
            ensure!(!path.is_empty(), "a hunk before any file");
            files.entry(path.clone()).or_default().push(Hunk::default());
            continue;
        }
        let hunk = files.get_mut(&path).and_then(|hunks| hunks.last_mut());
        let hunk = hunk.with_context(|| format!("`{line}` stands outside a hunk"))?;
        let (removed, added) = match line.as_bytes().first() {
            Some(b'-') => (true, false),
            Some(b'+') => (false, true),
            Some(b' ') => (true, true),
            _ => bail!("`{line}` is no line of a hunk"),
        };
        for (wanted, text) in [(removed, &mut hunk.before), (added, &mut hunk.after)] {
            if wanted {
                text.push_str(&line[1..]);
                text.push('\n');
            }
        }
    }
    let nothing = |hunk: &Hunk| hunk.before == hunk.after || hunk.before.is_empty();
    ensure!(!files.values().flatten().any(nothing), "a hunk that changes nothing, or has nothing to hold on to");
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mutant_applies_to_the_tree_and_says_what_it_breaks() {
        let root = crate::workspace();
        let mutants = Mutant::all(&root.join(super::super::FOLDER)).expect("all can be read");
        let mut changes = BTreeSet::new();
        for mutant in &mutants {
            let planted = mutant.planted(&root).unwrap_or_else(|error| panic!("{error:#}"));
            assert!(changes.insert(planted), "`{}` is the same as another one", mutant.name);
        }
        assert!(mutants.len() >= 44, "{} mutants", mutants.len());
        let known: BTreeSet<_> = mutants.iter().filter_map(Mutant::known_bug).collect();
        assert!(known.len() >= 22, "{} known bugs are made again: {known:?}", known.len());
    }

    const HEAD: &str = "Plants: a bug\nRule: B07: none\nBreaks: P1\nTry: model\n\n";

    #[test]
    fn a_hunk_must_find_its_place_once() {
        let folder = std::env::temp_dir().join(format!("tidegate-patch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = format!("{HEAD}--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n");
        let mutant = Mutant::parse("01-b07-a", &text).expect("a mutant");
        assert_eq!(mutant.known_bug().as_deref(), Some("B07"));
        for (content, fits) in [("one\ntwo\n", true), ("one\n2\n", false), ("one\ntwo\none\ntwo\n", false)] {
            std::fs::write(folder.join("x"), content).expect("a file");
            let planted = mutant.planted(&folder);
            assert_eq!(planted.is_ok(), fits, "{content:?}");
            assert!(planted.is_err() || planted.is_ok_and(|files| files["x"] == "one\n2\n"));
        }
        std::fs::remove_dir_all(&folder).expect("our own folder");
    }

    #[test]
    fn a_mutant_without_header_diff_or_promise_is_refused() {
        let hunk = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n";
        for text in [
            hunk.to_owned(),
            HEAD.to_owned(),
            format!("{}{hunk}", HEAD.replace("P1", "P13")),
            format!("{}{hunk}", HEAD.replace("Plants", "Plans")),
            format!("{}{hunk}", HEAD.replace("B07", "B08")),
            format!("{}{hunk}", HEAD.replace("model", "guess")),
            format!("{HEAD}{}", hunk.replace("+b", "+a")),
        ] {
            assert!(Mutant::parse("01-b07-a", &text).is_err(), "{text}");
        }
    }
}
