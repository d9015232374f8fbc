//! Dead letters, and what is kept of those that were sent again.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use tidegate_old_formats::{Case, Found, Refused, check, copy, tree};
use tidegate_server::{config, replay};

#[test]
fn letters_of_every_version_are_sent_or_refused_in_words() {
    let cases = check("letters", 1..=1, read).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(cases >= 14, "{cases} cases");
}

/// What a replay makes of them, and that another one sends none twice.
fn read(case: &Case) -> Found {
    let place = tempfile::tempdir().unwrap();
    copy(case, place.path()).unwrap();
    let files = || {
        let mut files = tree(place.path()).unwrap();
        files.retain(|path, _| !path.ends_with("/lock"));
        files
    };
    let before = files();
    let text = std::fs::read_to_string(place.path().join("pipeline.toml")).unwrap();
    let file = config::parse(&text, Path::new("pipeline.toml"), place.path()).unwrap();
    let here = |text: &str| text.replace(&format!("{}/", place.path().display()), "");
    match replay(&file, None) {
        Ok(first) => {
            let count = first.found.count;
            let again = replay(&file, None).unwrap().found.count;
            assert_eq!((again.replayed, again.kept), (0, count.kept), "{}", case.dir.display());
            assert_eq!(again.sent_before, count.sent_before + count.replayed, "{}", case.dir.display());
            let taken: BTreeMap<String, String> = files()
                .into_iter()
                .filter(|(path, _)| path.contains("/rows/") || path.contains("/origins/"))
                .map(|(path, bytes)| (path, String::from_utf8_lossy(&bytes).into_owned()))
                .collect();
            Ok(json!({
                "replayed": count.replayed, "kept": count.kept, "sent-before": count.sent_before,
                "kept-at": first.found.kept.iter().map(|why| place_in(&here(why))).collect::<Vec<_>>(),
                "taken": taken,
            }))
        }
        Err(error) => {
            assert!(files() == before, "{}: it was refused and changed", case.dir.display());
            Err(Refused { kind: format!("{:?}", error.kind()), message: here(&error.to_string()) })
        }
    }
}

/// File and line of a letter that cannot be sent; words say why.
fn place_in(why: &str) -> String {
    let (place, words) = why.split_once(": ").unwrap_or_else(|| panic!("no reason: {why}"));
    assert!(words.len() > 10, "no reason: {why}");
    place.to_owned()
}
