//! Archives of `tidegate checkpoint export`.

use serde_json::json;
use tidegate_old_formats::{Case, Found, Refused, check, tree, without_long_bytes};
use tidegate_server::{ARCHIVE_FORMAT, State, import};

use super::pipeline_of;

const ARCHIVE: &str = "archive.tar.zst";

#[test]
fn archives_of_every_version_are_imported_or_refused_in_words() {
    let cases = check("archive", 1..=ARCHIVE_FORMAT, read).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(cases >= 6, "{cases} cases");
}

fn read(case: &Case) -> Found {
    let (place, file) = pipeline_of(case);
    let before = tree(place.path()).unwrap();
    match import(&file, &place.path().join(ARCHIVE)) {
        Ok(imported) => {
            let state = State::read(&file).unwrap().unwrap();
            let records = without_long_bytes(serde_json::to_value(&state.records).unwrap());
            Ok(json!({
                "files": imported.files, "newest-epoch": imported.newest_epoch, "exported-by": imported.exported_by,
                "records": records,
            }))
        }
        Err(error) => {
            assert!(tree(place.path()).unwrap() == before, "{}: it was refused and changed", case.dir.display());
            assert!(!file.pipeline.state.exists());
            let message = error.to_string().replace(&place.path().display().to_string(), "<folder>");
            Err(Refused { kind: format!("{:?}", error.kind()), message: message.replace("<folder>/", "") })
        }
    }
}
