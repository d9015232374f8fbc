//! The mark of a state that was moved to another host.

use std::path::Path;

use serde_json::json;
use tidegate_old_formats::{Case, Found, Refused, check, copy, tree};
use tidegate_server::{ErrorKind, ServerError, config, moved, replay};

#[test]
fn marks_of_every_version_are_read_or_refused_in_words_and_stop_every_run() {
    let cases = check("moved", 1..=1, read).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(cases >= 6, "{cases} cases");
}

fn read(case: &Case) -> Found {
    let place = tempfile::tempdir().unwrap();
    copy(case, place.path()).unwrap();
    let before = tree(place.path()).unwrap();
    let text = std::fs::read_to_string(place.path().join("pipeline.toml")).unwrap();
    let file = config::parse(&text, Path::new("pipeline.toml"), place.path()).unwrap();
    let words = |error: &ServerError| error.to_string().replace(&format!("{}/", place.path().display()), "");
    // Readable or not: two hosts must not go on with it.
    let refused = replay(&file, None).expect_err("the state was moved away");
    assert!(refused.kind() == ErrorKind::Refused && words(&refused).contains("moved away"), "{refused}");
    assert!(tree(place.path()).unwrap() == before, "{}: it was refused and changed", case.dir.display());
    match moved(&file) {
        Ok(mark) => {
            let mark = mark.expect("it is there");
            assert!(words(&refused).contains(&mark.archive), "{refused}");
            Ok(json!({ "archive": mark.archive, "at": mark.at }))
        }
        Err(error) => Err(Refused { kind: format!("{:?}", error.kind()), message: words(&error) }),
    }
}
