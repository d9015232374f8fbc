//! Which files a pattern finds, and what it says when it finds none.

#[allow(dead_code, reason = "each test file uses its part")]
mod source_support;

use source_support::*;
use tempfile::tempdir;
use tidegate_pipeline::source::files::{FilesOptions, FilesSource, Format};
use tidegate_pipeline::source::{Source, SourceError};
use tidegate_protocol::plugin::Encoding;

fn find(base: &std::path::Path, patterns: &[&str]) -> Result<Vec<String>, SourceError> {
    let patterns = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
    FilesSource::new(FilesOptions::new(base, patterns, Format::Raw))?.partitions()
}

#[test]
fn patterns_find_files_sorted_and_each_once() {
    let dir = tempdir().unwrap();
    for name in
        ["p/data/b.jsonl", "p/data/a.jsonl", "p/data/x.csv", "p/data/sub/c.jsonl", "p/data/.tmp.jsonl", "q/d.jsonl"]
    {
        write(dir.path(), name, "1\n");
    }
    let base = dir.path().join("p");
    let absolute = |rest: &str| format!("{}/{rest}", dir.path().display());
    for (patterns, expected) in [
        (vec!["data/*.jsonl"], vec!["data/a.jsonl", "data/b.jsonl"]),
        (vec!["./data/*.jsonl", "data/a.jsonl", "data/../data/b.jsonl"], vec!["data/a.jsonl", "data/b.jsonl"]),
        (vec!["data/**/*.jsonl"], vec!["data/a.jsonl", "data/b.jsonl", "data/sub/c.jsonl"]),
        (vec!["**/{a,c}.jsonl"], vec!["data/a.jsonl", "data/sub/c.jsonl"]),
        (vec!["data/?.[cj]s*"], vec!["data/a.jsonl", "data/b.jsonl", "data/x.csv"]),
        (vec!["data/.t*"], vec!["data/.tmp.jsonl"]),
        (vec!["*/*/*.jsonl"], vec!["data/sub/c.jsonl"]),
        (vec!["../q/*"], vec!["../q/d.jsonl"]),
        (vec![&absolute("p/data/x.*")], vec!["data/x.csv"]),
    ] {
        assert_eq!(find(&base, &patterns).unwrap(), expected, "{patterns:?}");
    }
    assert_eq!(find(&base, &[&absolute("q/*")]).unwrap(), [absolute("q/d.jsonl")]);
}

#[test]
fn a_pattern_that_matches_nothing_is_named_with_the_directory() {
    let dir = tempdir().unwrap();
    write(dir.path(), "data/a.jsonl", "1\n");
    for (pattern, searched) in
        [("data/*.csv", "data"), ("data/b.jsonl", "data"), ("nowhere/*", "nowhere"), ("nowhere/x/a", "nowhere/x")]
    {
        let error = find(dir.path(), &["data/*.jsonl", pattern]).unwrap_err();
        assert!(error.permanent());
        let expected = format!("no file matches `{pattern}`; searched in {}.", dir.path().join(searched).display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
}

#[test]
fn wrong_patterns_are_told() {
    let dir = tempdir().unwrap();
    write(dir.path(), "data/a", "1\n");
    assert!(find(dir.path(), &[]).unwrap_err().to_string().contains("`paths`"));
    assert!(find(dir.path(), &["data/[a"]).unwrap_err().to_string().contains("data/[a"));
    assert!(find(dir.path(), &["data"]).unwrap_err().to_string().contains("data/*"));
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_circles_are_told() {
    let dir = tempdir().unwrap();
    write(dir.path(), "real/a", "1\n");
    std::os::unix::fs::symlink(dir.path().join("real"), dir.path().join("link")).unwrap();
    assert_eq!(find(dir.path(), &["link/*"]).unwrap(), ["link/a"]);
    std::os::unix::fs::symlink(dir.path(), dir.path().join("real/circle")).unwrap();
    assert!(find(dir.path(), &["real/**/a"]).unwrap_err().to_string().contains("own parent"));
}

#[cfg(unix)]
#[test]
fn two_names_of_one_file_are_refused_with_both() {
    let dir = tempdir().unwrap();
    write(dir.path(), "d/1.jsonl", "1\n");
    write(dir.path(), "d/2.jsonl", "1\n");
    assert_eq!(find(dir.path(), &["d/*.jsonl"]).unwrap().len(), 2, "equal content is no reason");
    let real = dir.path().join("d/1.jsonl");
    let link = dir.path().join("d/l.jsonl");
    let refused = |patterns: &[&str], names: [&str; 2]| {
        let error = find(dir.path(), patterns).unwrap_err();
        let message = error.to_string();
        assert!(error.permanent() && names.iter().all(|name| message.contains(&format!("`{name}`"))), "{message}");
    };
    std::os::unix::fs::symlink("1.jsonl", &link).unwrap();
    refused(&["d/*.jsonl"], ["d/1.jsonl", "d/l.jsonl"]);
    std::fs::remove_file(&link).unwrap();
    std::fs::hard_link(&real, &link).unwrap();
    refused(&["d/*.jsonl"], ["d/1.jsonl", "d/l.jsonl"]);
    std::os::unix::fs::symlink("d", dir.path().join("e")).unwrap();
    refused(&["d/1*", "e/1*"], ["d/1.jsonl", "e/1.jsonl"]);
    assert_eq!(find(dir.path(), &["d/[12]*"]).unwrap(), ["d/1.jsonl", "d/2.jsonl"], "a name outside does not count");
}

#[cfg(unix)]
#[test]
fn sockets_and_devices_that_a_pattern_matches_are_named_and_not_left_out() {
    let dir = tempdir().unwrap();
    write(dir.path(), "d/a", "1\n");
    write(dir.path(), "d/sub/b", "1\n");
    assert_eq!(find(dir.path(), &["d/*"]).unwrap(), ["d/a"], "directories are no matter");
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("d/s")).unwrap();
    assert_eq!(find(dir.path(), &["d/a*"]).unwrap(), ["d/a"], "nothing matches it");
    for pattern in ["d/*", "d/s"] {
        let error = find(dir.path(), &[pattern]).unwrap_err();
        assert!(error.permanent() && error.to_string().contains("d/s is a socket"), "{error}");
    }
    std::fs::remove_file(dir.path().join("d/s")).unwrap();
    std::os::unix::fs::symlink("/dev/null", dir.path().join("d/null")).unwrap();
    assert!(find(dir.path(), &["d/*"]).unwrap_err().to_string().contains("d/null is a device"));
}

#[test]
fn options_out_of_range_name_their_key() {
    let options = |change: fn(&mut FilesOptions)| {
        let mut options = FilesOptions::new(".", vec!["a".to_owned()], Format::Raw);
        change(&mut options);
        match FilesSource::new(options) {
            Err(SourceError::Configuration { key, .. }) => key,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(options(|o| o.max_line = 0), "max-line");
    assert_eq!(options(|o| o.rate = Some(0)), "rate");
    let csv = tidegate_pipeline::source::files::CsvOptions { header: false, ..Default::default() };
    let Err(error) = FilesSource::new(FilesOptions::new(".", vec!["a".to_owned()], Format::Csv(csv))) else {
        panic!("columns are missing");
    };
    assert!(error.to_string().contains("csv.columns"));
}

#[test]
fn an_encoding_that_was_not_offered_is_refused() {
    let dir = tempdir().unwrap();
    write(dir.path(), "a", "1\n");
    let source = files(dir.path(), "a", Format::Raw);
    assert_eq!(source.contract().encodings, [Encoding::Raw]);
    assert!(source.contract().replayable && source.contract().bounded);
    let Err(error) = source.open(Encoding::JsonLines, None, 1) else { panic!("raw lines are not JSON") };
    assert!(error.to_string().contains("json-lines"), "{error}");
}
