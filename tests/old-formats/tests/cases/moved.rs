//! The mark of a state that was moved to another host.

use serde_json::json;
use tidegate_old_formats::{Case, Found, Refused, check, tree};
use tidegate_server::{ErrorKind, ServerError, moved, replay};

use super::{pipeline_of, without_place};

#[test]
fn marks_of_every_version_are_read_or_refused_in_words_and_stop_every_run() {
    let cases = check("moved", 1..=1, read).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(cases >= 6, "{cases} cases");
}

fn read(case: &Case) -> Found {
    let (place, file) = pipeline_of(case);
    let before = tree(place.path()).unwrap();
    let words = |error: &ServerError| without_place(&error.to_string(), &place);
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
