//! Dead letters, and what is kept of those that were sent again.

use std::collections::BTreeMap;

use serde_json::json;
use tidegate_old_formats::{Case, Found, Refused, check, tree};
use tidegate_server::replay;

use super::{pipeline_of, without_place};

#[test]
fn letters_of_every_version_are_sent_or_refused_in_words() {
    let cases = check("letters", 1..=1, read).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(cases >= 14, "{cases} cases");
}

/// What a replay makes of them, and that another one sends none twice.
fn read(case: &Case) -> Found {
    let (place, file) = pipeline_of(case);
    let files = || {
        let mut files = tree(place.path()).unwrap();
        files.retain(|path, _| !path.ends_with("/lock"));
        files
    };
    let before = files();
    let here = |text: &str| without_place(text, &place);
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
