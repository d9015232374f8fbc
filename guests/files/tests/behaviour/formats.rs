//! What the sink stores is written as it is kept under `tests/old-formats/cases/files`: a destination with one committed
//! epoch, and one that is prepared. That later versions finish it or refuse it in words is that crate's test.
//!
//! A new case is written by this test with `TIDEGATE_WRITE_FORMATS=1`; one that is there is never changed. When something
//! gets a new version, what writes the old one goes from here and its cases stay.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidegate_sdk::{Committable, Part, Sink};
use tidegate_sink_files::Files;

use crate::world::{World, run};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/old-formats/cases/files")
}

/// Paths below a directory, with contents.
type Tree = BTreeMap<String, Vec<u8>>;

fn tree(dir: &Path) -> Tree {
    let (mut found, mut waiting) = (Tree::new(), vec![dir.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("listing").path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(dir).expect("below").to_str().expect("utf-8").to_owned();
                found.insert(name, fs::read(path).expect("readable"));
            }
        }
    }
    found
}

struct Destination {
    files: Tree,
    hash: String,
    previous: Vec<Part>,
    pending: Vec<Committable>,
}

/// Epoch 1 of run 1 is committed, epoch 2 is prepared.
fn destination<const SEVERAL: bool>() -> Destination {
    let world = World::<SEVERAL>::new();
    let run = run(1);
    world.fence(&run);
    let previous = world.commit_epoch(&run, 1, &[]);
    let pending = world.stage_epoch(&run, 2);
    Destination { files: tree(world.path()), hash: world.hash.clone(), previous, pending }
}

impl Destination {
    /// As a case: the directory under `output`, and the commit that is still to be made.
    fn case(&self, change: impl FnOnce(&mut Tree, &mut Value)) -> Tree {
        let committable = |c: &Committable| {
            let body = String::from_utf8(c.body.clone()).expect("a body is JSON");
            json!({ "part": c.part, "version": c.version, "body": body, "rows": c.rows })
        };
        let mut call = json!({
            "hash": self.hash,
            "config": "{}",
            "run": run(2),
            "previous": self.previous,
            "committables": self.pending.iter().map(committable).collect::<Vec<_>>(),
        });
        let mut files = self.files.clone();
        // Spares that were not used yet.
        files.retain(|_, bytes| !bytes.iter().all(|byte| *byte == b' ') || bytes.is_empty());
        change(&mut files, &mut call);
        let mut case: Tree = files.into_iter().map(|(path, bytes)| (format!("output/{path}"), bytes)).collect();
        case.insert("call.json".to_owned(), serde_json::to_vec_pretty(&call).expect("JSON"));
        case
    }

    /// The newest entry of the register.
    fn newest(&self) -> String {
        let slots = self.files.keys().filter(|path| {
            let name = path.split("/register/").nth(1);
            name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        });
        slots.max().expect("an entry").clone()
    }

    fn staged(&self) -> String {
        let part = &self.pending[0].part.short;
        self.files.keys().find(|path| path.contains("/staging/") && path.contains(part)).expect("staged").clone()
    }

    /// In all copies of the newest entry: its slot, the spare's name and the readers' log.
    fn in_entry(&self, files: &mut Tree, from: &str, to: &str) {
        let entry = self.files[&self.newest()].clone();
        let text = String::from_utf8(entry.clone()).expect("an entry is JSON");
        assert!(text.contains(from));
        for bytes in files.values_mut().filter(|bytes| **bytes == entry) {
            *bytes = text.replacen(from, to, 1).into_bytes();
        }
    }
}

fn cases<const SEVERAL: bool>() -> Vec<(&'static str, Tree)> {
    let made = destination::<SEVERAL>();
    let version = if SEVERAL { 2 } else { 1 };
    let body = |call: &mut Value, change: &dyn Fn(String) -> String| {
        let body = &mut call["committables"][0]["body"];
        *body = change(body.as_str().expect("text").to_owned()).into();
    };
    vec![
        ("good", made.case(|_, _| {})),
        ("committable-newer", made.case(|_, call| call["committables"][1]["version"] = json!(60_000))),
        (
            "committable-of-another-version",
            made.case(|_, call| call["committables"][1]["version"] = json!(3 - version)),
        ),
        ("committable-unknown-field", made.case(|_, call| body(call, &|text| text.replacen('{', "{\"x\":1,", 1)))),
        ("committable-cut", made.case(|_, call| body(call, &|text| text[..text.len() / 2].to_owned()))),
        (
            "committable-leads-out",
            made.case(|_, call| {
                let stem = if SEVERAL { "\"stem\":\"" } else { "\"file\":\"" };
                body(call, &|text| text.replacen(stem, &format!("{stem}../../"), 1));
            }),
        ),
        (
            "entry-newer",
            made.case(|files, _| {
                made.in_entry(files, &format!("\"format\":{version}"), "\"format\":60000");
            }),
        ),
        ("entry-of-another-slot", made.case(|files, _| made.in_entry(files, "\"slot\":2", "\"slot\":7"))),
        (
            "entry-cut",
            made.case(|files, _| {
                let newest = made.newest();
                // Its spare's name would show it whole.
                files.retain(|path, bytes| !path.contains("/new-") || *bytes != made.files[&newest]);
                files.insert(newest.clone(), made.files[&newest][..100].to_vec());
            }),
        ),
        (
            "staged-file-gone",
            made.case(|files, _| {
                files.remove(&made.staged());
            }),
        ),
        (
            "staged-file-cut",
            made.case(|files, _| {
                files.get_mut(&made.staged()).expect("staged").pop();
            }),
        ),
    ]
}

fn compare(version: u32, name: &str, case: &Tree) {
    let dir = folder().join(format!("v{version}/{name}"));
    if std::env::var_os("TIDEGATE_WRITE_FORMATS").is_some() && !dir.exists() {
        for (path, bytes) in case {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().expect("below")).expect("folders");
            fs::write(path, bytes).expect("written");
        }
    }
    let mut kept = tree(&dir);
    kept.remove("expect.json");
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&kept), names(case), "v{version}/{name}");
    for (path, bytes) in case {
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok().filter(|_| path == "call.json");
        let same = kept[path] == *bytes || json(bytes).is_some_and(|value| json(&kept[path]) == Some(value));
        assert!(same, "`v{version}/{name}/{path}` is written differently now: raise the version");
    }
}

#[test]
fn what_is_stored_today_is_what_is_kept() {
    for (name, case) in cases::<false>() {
        compare(1, name, &case);
    }
    for (name, case) in cases::<true>() {
        compare(2, name, &case);
    }
}

/// Keys with the keys around them; those of list entries behind `[]`.
fn keys(value: &Value, place: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            keys(value, &place, found);
        }),
        Value::Array(list) => list.iter().for_each(|value| keys(value, &format!("{place}[]"), found)),
        _ => {
            found.insert(place.to_owned());
        }
    }
}

/// A destination that was fenced when a file of its newest epoch was gone.
fn fenced_unfinished() -> Tree {
    for calls in 0.. {
        let world = World::<false>::new();
        world.fence(&run(1));
        let pending = world.stage_epoch(&run(1), 1);
        let (probe, _) = crate::world::crash_at(calls);
        let done = Files::default().commit(&world.ctx_with(&run(1), 1, Some(probe)), &[], &pending).is_ok();
        assert!(!done, "no crash left an entry whose file can go");
        for name in world.staged() {
            fs::remove_file(world.path().join(format!("_tidegate/{}/staging/{name}", world.hash))).expect("staged");
        }
        world.fence(&run(2));
        let files = tree(world.path());
        let unfinished = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).contains("\"unfinished\"");
        if files.values().any(unfinished) {
            return files;
        }
    }
    unreachable!("the sweep ends in an assertion")
}

#[test]
fn format_md_lists_exactly_the_keys_that_are_written() {
    let text = include_str!("../../FORMAT.md");
    let mut listed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for section in text.split("\n### ").skip(1) {
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let key = |row: &str| row.split('`').nth(1).expect("a key").to_owned();
        listed.insert(section.lines().next().expect("a heading"), rows.map(key).collect());
    }
    let mut written: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut entries = |files: &Tree| {
        for (path, bytes) in files.iter().filter(|(path, _)| path.contains("/register/") || path.contains("_epochs/")) {
            if let Ok(entry) = serde_json::from_slice::<Value>(bytes) {
                assert!(path.contains(".json") || entry["register"]["slot"].is_u64(), "{path}");
                keys(&entry, "", written.entry("entry of format 1 and 2").or_default());
            }
        }
    };
    let (one, several) = (destination::<false>(), destination::<true>());
    [&one.files, &several.files, &fenced_unfinished()].into_iter().for_each(&mut entries);
    for (heading, made) in [("committable of version 1", &one), ("committable of version 2", &several)] {
        for committable in &made.pending {
            assert_eq!(heading, format!("committable of version {}", committable.version));
            let body: Value = serde_json::from_slice(&committable.body).expect("a body is JSON");
            keys(&body, "", written.entry(heading).or_default());
        }
    }
    assert_eq!(listed, written);
}
