//! Dead letters, and what is kept of those that were sent again, as they lie under `tests/old-formats/cases/letters`. That
//! later versions read them or refuse them in words is that crate's test; what writes a letter is held against them in
//! `tidegate-pipeline`.
//!
//! A new case is written by this test with `TIDEGATE_WRITE_FORMATS=1`; one that is there is never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tidegate_server::{config, replay};

/// Files of a case, by their paths.
type Files = BTreeMap<String, Vec<u8>>;

const LETTERS: &str = "dead/3.jsonl";
const TAKE: &str = "takes/00000001";

fn pipeline() -> Vec<u8> {
    let dead_letter = "[dead-letter]\nplugin = \"builtin:files\"\n[dead-letter.dirs]\noutput = \"dead\"\n";
    [include_str!("archive.toml"), dead_letter].concat().into_bytes()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/old-formats/cases/letters/v1")
}

fn files_below(dir: &Path) -> Files {
    let (mut files, mut waiting) = (Files::new(), vec![dir.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    files
}

fn lay(files: &Files, dir: &Path) {
    for (name, bytes) in files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

/// The same files after their letters were taken.
fn taken(files: &Files) -> Files {
    let place = tempfile::tempdir().unwrap();
    lay(files, place.path());
    let text = std::str::from_utf8(&files["pipeline.toml"]).unwrap();
    let file = config::parse(text, Path::new("pipeline.toml"), place.path()).unwrap();
    assert!(replay(&file, None).unwrap().found.count.replayed > 0);
    let mut files = files_below(place.path());
    files.retain(|name, _| !name.ends_with("/lock"));
    files
}

fn with(files: &Files, end: &str, change: impl FnOnce(&mut Vec<u8>)) -> Files {
    let mut files = files.clone();
    let (_, bytes) = files.iter_mut().find(|(name, _)| name.ends_with(end)).unwrap();
    change(bytes);
    files
}

fn without(files: &Files, end: &str) -> Files {
    let mut files = files.clone();
    files.retain(|name, _| !name.ends_with(end));
    files
}

fn of_letters(letters: &[u8]) -> Files {
    Files::from([("pipeline.toml".to_owned(), pipeline()), (LETTERS.to_owned(), letters.to_vec())])
}

/// As people, and versions before letters had ids, write them.
const WITHOUT_IDS: &str = concat!(
    "{\"source\":\"in\",\"file\":\"in/a.jsonl\",\"line\":1,\"epoch\":1,\"reason\":\"r\",\"row\":\"{}\"}\n",
    "\n",
    "{\"source\":\"in\",\"line\":\"about 7\",\"row\":\"{}\"}\n",
    "{\"sink\":\"out\",\"code\":\"bad-date\",\"row\":\"{\\\"n\\\":1}\"}",
);

fn cases() -> Vec<(&'static str, Files)> {
    let letters = std::fs::read(folder().join("good").join(LETTERS)).unwrap();
    let good = of_letters(&letters);
    let sent = taken(&good);
    let unnamed = of_letters(WITHOUT_IDS.as_bytes());
    let unnamed_sent = taken(&unnamed);
    let damaged: &[u8] =
        b"oops\n{\"id\":7,\"source\":\"in\",\"row\":\"{}\"}\n\xff\xfe\n{\"id\":\"a\",\"source\":\"in\"}\n\
        {\"id\":\"b\",\"source\":\"gone\",\"row\":\"{}\"}\n{\"id\":\"c\",\"source\":\"in\",\"row-base64\":\"?\"}\n\
        {\"id\":\"d\",\"source\":\"in\",\"row\":\"{}\",\"later\":{\"version\":2}}\n";
    vec![
        ("cut-short", of_letters(&letters[..letters.len() - 30])),
        ("damaged-lines", of_letters(damaged)),
        ("without-ids", unnamed),
        ("without-ids-sent", unnamed_sent.clone()),
        ("without-ids-changed", with(&unnamed_sent, LETTERS, |text| text.splice(..0, *b"{}\n").for_each(drop))),
        ("compressed", of_letters(&zstd_frame(&letters))),
        ("sent", sent.clone()),
        ("sent-ids-missing", without(&sent, "/ids")),
        ("sent-ids-cut", with(&sent, "/ids", |ids| ids.truncate(ids.len() - 5))),
        ("sent-ids-short-of-one", with(&sent, "/ids", |ids| drop(ids.drain(16..32)))),
        ("sent-ids-flipped", with(&sent, "/ids", |ids| ids[40] ^= 0x80)),
        ("sent-ids-of-a-later-version", with(&sent, "/ids", |ids| ids[..16].copy_from_slice(b"tidegate letter2"))),
        ("sent-foreign-take", with_file(&sent, &format!("{}/kept-by-somebody", parent_of(&sent)), b"x")),
        ("good", good),
    ]
}

fn zstd_frame(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// The folder of the takes.
fn parent_of(sent: &Files) -> String {
    let name = sent.keys().find(|name| name.contains(TAKE)).unwrap();
    name[..name.find(TAKE).unwrap() + "takes".len()].to_owned()
}

fn with_file(files: &Files, name: &str, bytes: &[u8]) -> Files {
    let mut files = files.clone();
    files.insert(name.to_owned(), bytes.to_vec());
    files
}

#[test]
fn what_is_kept_of_letters_that_were_sent_is_written_as_it_was() {
    for (name, files) in cases() {
        let dir = folder().join(name);
        if std::env::var_os("TIDEGATE_WRITE_FORMATS").is_some() && !dir.join("pipeline.toml").exists() {
            lay(&files, &dir);
        }
        let mut kept = files_below(&dir);
        kept.remove("expect.json");
        // How well it is compressed may change with the compressor.
        if name == "compressed" {
            kept.insert(LETTERS.to_owned(), files[LETTERS].clone());
        }
        assert!(kept == files, "{name}: it is written differently now: keep what is written today as another case");
    }
}

#[test]
fn format_md_lists_exactly_the_keys_of_origins() {
    let text = include_str!("../../store/FORMAT.md");
    let table = text.split("\n### origin\n").nth(1).unwrap().split("\n#").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let listed: BTreeSet<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
    let files = cases().into_iter().flat_map(|(_, files)| files).filter(|(name, _)| name.contains("/origins/"));
    let mut written = BTreeSet::new();
    for line in files.flat_map(|(_, bytes)| bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>())
    {
        let origin: Option<serde_json::Value> = serde_json::from_slice(&line).ok();
        written.extend(origin.iter().filter_map(|origin| origin.as_object()).flat_map(|origin| origin.keys().cloned()));
    }
    assert_eq!(listed, written.iter().map(String::as_str).collect());
}
