//! An independent reader of what the `files` sink publishes. It knows the documented layout and nothing else.
//!
//! Two ways of reading, as any consumer may choose:
//! * **plain listing**: the files of the output directory whose names start with neither `_` nor `.`;
//! * **epoch log**: the files under `_epochs/`, each of which names the part files and rows of one whole epoch.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::multiset::{self, Lines};
use crate::product::pause;

/// One entry of the epoch log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EpochEntry {
    /// Rows of the whole epoch.
    pub(crate) rows: u64,
    /// Its part files and the rows of each.
    pub(crate) files: BTreeMap<String, u64>,
}

/// Names of the part files that a plain listing shows.
pub(crate) fn listing(output: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let Ok(entries) = std::fs::read_dir(output) else { return Ok(names) };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a part file's name is not UTF-8")?;
        if !name.starts_with(['_', '.']) {
            ensure!(entry.file_type()?.is_file(), "`{name}` in the output directory is not a file");
            names.insert(name);
        }
    }
    Ok(names)
}

/// Names of the entries of the epoch log.
pub(crate) fn epoch_names(output: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let Ok(entries) = std::fs::read_dir(output.join("_epochs")) else { return Ok(names) };
    for entry in entries {
        let name = entry?.file_name().into_string().ok().context("an epoch's name is not UTF-8")?;
        if name.ends_with(".json") && !name.starts_with('.') {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Reads one entry of the epoch log. It must be whole.
pub(crate) fn epoch_entry(output: &Path, name: &str) -> Result<EpochEntry> {
    let text = std::fs::read_to_string(output.join("_epochs").join(name))?;
    let entry: Value = serde_json::from_str(&text).with_context(|| format!("the epoch `{name}` is not whole JSON"))?;
    let rows = entry["rows"].as_u64().with_context(|| format!("the epoch `{name}` has no `rows`"))?;
    let mut files = BTreeMap::new();
    for file in entry["files"].as_array().with_context(|| format!("the epoch `{name}` has no `files`"))? {
        let path = ["name", "path", "file"].iter().find_map(|key| file[*key].as_str());
        let path = path.with_context(|| format!("a file of the epoch `{name}` has no name"))?;
        let rows = file["rows"].as_u64().with_context(|| format!("`{path}` has no `rows`"))?;
        ensure!(files.insert(path.to_owned(), rows).is_none(), "the epoch `{name}` names `{path}` twice");
    }
    ensure!(files.values().sum::<u64>() == rows, "the epoch `{name}` says {rows} rows and its files another sum");
    Ok(EpochEntry { rows, files })
}

/// How many whole epochs with rows readers see.
pub(crate) fn epochs_with_rows(output: &Path) -> Result<u64> {
    let rows = epoch_names(output)?.into_iter().map(|name| Ok(epoch_entry(output, &name)?.rows));
    let rows = rows.collect::<Result<Vec<u64>>>()?;
    Ok(rows.iter().filter(|rows| **rows > 0).count() as u64)
}

/// A part file, judged on its own: whole lines, all of them known.
fn part_file(path: &Path, sent: &Lines) -> Result<(u64, u128)> {
    let bytes = std::fs::read(path).with_context(|| format!("a listed file is gone: `{}`", path.display()))?;
    ensure!(bytes.last() == Some(&b'\n'), "`{}` was shown and is not whole ({} bytes)", path.display(), bytes.len());
    let mut rows = 0;
    for line in bytes[..bytes.len() - 1].split(|byte| *byte == b'\n') {
        ensure!(sent.knows(line), "`{}` holds a line that was never sent", path.display());
        rows += 1;
    }
    Ok((rows, multiset::hash(&bytes)))
}

/// What a finished output holds.
#[derive(Debug)]
pub(crate) struct Output {
    /// All rows, by plain listing.
    pub(crate) rows: Lines,
    /// Entries of the epoch log.
    pub(crate) epochs: u64,
}

/// Reads a finished output both ways. They must tell the same.
pub(crate) fn read_all(output: &Path) -> Result<Output> {
    let listed = listing(output)?;
    let mut rows = Lines::default();
    let mut counts = BTreeMap::new();
    for name in &listed {
        let (count, whole) = rows.add_all(std::fs::File::open(output.join(name))?)?;
        ensure!(whole, "`{name}` does not end with a newline");
        counts.insert(name.clone(), count);
    }
    let names = epoch_names(output)?;
    let mut logged: BTreeMap<String, u64> = BTreeMap::new();
    for name in &names {
        for (file, rows) in epoch_entry(output, name)?.files {
            ensure!(logged.insert(file.clone(), rows).is_none(), "`{file}` belongs to two epochs");
        }
    }
    ensure!(logged == counts, "the epoch log and the listing tell different files or rows");
    Ok(Output { rows, epochs: names.len() as u64 })
}

/// Reads an output again and again while it is written, both ways, and stops at the first half-shown thing.
#[derive(Debug)]
pub(crate) struct Watcher {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Seen>>,
}

/// What a watcher saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Rounds of reading.
    pub(crate) rounds: u64,
    files: BTreeMap<String, (u64, u128)>,
    epochs: BTreeMap<String, EpochEntry>,
}

impl Watcher {
    /// Starts watching.
    pub(crate) fn start(output: PathBuf, sent: Arc<Lines>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !flag.load(Ordering::Relaxed) {
                seen.round(&output, &sent)?;
                pause(Duration::from_millis(15));
            }
            seen.round(&output, &sent)?;
            seen.unchanged(&output, &sent)?;
            Ok(seen)
        });
        Self { stop, thread }
    }

    /// Whether it has found something wrong already.
    pub(crate) fn ended_early(&self) -> bool {
        self.thread.is_finished()
    }

    /// Stops and answers with what was seen.
    pub(crate) fn finish(self) -> Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(seen) => seen,
            Err(_) => bail!("the reader panicked"),
        }
    }
}

impl Seen {
    fn round(&mut self, output: &Path, sent: &Lines) -> Result<()> {
        // The epoch log first: what it names must be in a listing made afterwards.
        let epochs = epoch_names(output)?;
        for name in self.epochs.keys() {
            ensure!(epochs.contains(name), "the epoch `{name}` was shown and is gone");
        }
        for name in epochs {
            if let Entry::Vacant(new) = self.epochs.entry(name) {
                let entry = epoch_entry(output, new.key())?;
                new.insert(entry);
            }
        }
        let listed = listing(output)?;
        for name in self.files.keys() {
            ensure!(listed.contains(name), "`{name}` was shown and is gone");
        }
        for name in &listed {
            if !self.files.contains_key(name) {
                self.files.insert(name.clone(), part_file(&output.join(name), sent)?);
            }
        }
        for (epoch, entry) in &self.epochs {
            for (file, rows) in &entry.files {
                let shown = self.files.get(file).map(|(rows, _)| *rows);
                ensure!(
                    shown == Some(*rows),
                    "the epoch `{epoch}` names `{file}` with {rows} rows; the listing: {shown:?}"
                );
            }
        }
        self.rounds += 1;
        Ok(())
    }

    /// No file has changed since it was first shown.
    fn unchanged(&self, output: &Path, sent: &Lines) -> Result<()> {
        for (name, first) in &self.files {
            ensure!(part_file(&output.join(name), sent)? == *first, "`{name}` changed after it was shown");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tidegate-reader-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("_epochs")).expect("a temporary folder can be made");
        folder
    }

    fn write(folder: &Path, name: &str, text: &str) {
        std::fs::write(folder.join(name), text).expect("a temporary file can be written");
    }

    const EPOCH: &str = r#"{"rows":2,"files":[{"name":"a.jsonl","rows":2}]}"#;

    #[test]
    fn a_whole_output_is_read_both_ways() {
        let folder = output("whole");
        write(&folder, "a.jsonl", "x\ny\n");
        write(&folder, "_epochs/1.json", EPOCH);
        let read = read_all(&folder).expect("the output is whole");
        assert_eq!((read.rows.total(), read.epochs), (2, 1));
        let sent: Lines = ["x", "y"].into_iter().collect();
        let mut seen = Seen::default();
        seen.round(&folder, &sent).expect("all is whole");
        seen.unchanged(&folder, &sent).expect("nothing changed");
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    #[test]
    fn half_a_file_an_unknown_row_and_half_an_epoch_are_seen() {
        let sent: Lines = ["x", "y"].into_iter().collect();
        let folder = output("half");
        write(&folder, "a.jsonl", "x\ny");
        assert!(Seen::default().round(&folder, &sent).is_err(), "no newline at the end");
        write(&folder, "a.jsonl", "x\nz\n");
        assert!(Seen::default().round(&folder, &sent).is_err(), "an unknown row");
        std::fs::remove_file(folder.join("a.jsonl")).expect("the file is there");
        write(&folder, "_epochs/1.json", EPOCH);
        assert!(Seen::default().round(&folder, &sent).is_err(), "an epoch whose file is not there");
        write(&folder, "a.jsonl", "x\n");
        assert!(Seen::default().round(&folder, &sent).is_err(), "fewer rows than the epoch says");
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    #[test]
    fn a_file_that_changes_or_goes_is_seen() {
        let sent: Lines = ["x", "y"].into_iter().collect();
        let folder = output("changed");
        write(&folder, "a.jsonl", "x\n");
        let mut seen = Seen::default();
        seen.round(&folder, &sent).expect("all is whole");
        write(&folder, "a.jsonl", "x\ny\n");
        assert!(seen.unchanged(&folder, &sent).is_err());
        std::fs::remove_file(folder.join("a.jsonl")).expect("the file is there");
        assert!(seen.round(&folder, &sent).is_err());
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }
}
