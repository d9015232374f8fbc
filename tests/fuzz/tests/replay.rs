//! All corpora once more: what was found by fuzzing stays found.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidegate_fuzz::{Counting, Met, TARGETS, judge};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

fn inputs(target: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = corpus(target);
    let listed = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |path: PathBuf| (path.display().to_string(), std::fs::read(&path).unwrap());
    listed.map(|entry| read(entry.unwrap().path())).collect()
}

/// In one test, one after the other: memory is counted for the whole process.
#[test]
fn every_corpus_is_replayed() {
    for target in TARGETS {
        let mut met: BTreeMap<Met, usize> = BTreeMap::new();
        for (name, input) in inputs(target.name) {
            let outcome = std::panic::catch_unwind(|| judge(target, &input)).unwrap_or_else(|_| panic!("{name}"));
            *met.entry(outcome).or_default() += 1;
        }
        // A target that nothing gets into, or out of, tests nothing.
        assert!(met.contains_key(&Met::Read) && met.contains_key(&Met::Refused), "{}: {met:?}", target.name);
    }
}

#[test]
fn every_corpus_has_a_target() {
    let folders = std::fs::read_dir(corpus("")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut folders: Vec<String> = folders.map(|name| name.to_string_lossy().into_owned()).collect();
    let mut names = tidegate_fuzz::names();
    folders.sort();
    names.sort_unstable();
    assert_eq!(folders, names);
}
