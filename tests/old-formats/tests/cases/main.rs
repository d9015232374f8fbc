//! Every later version reads what an earlier one has stored, or refuses it in words and changes nothing.

mod archive;
mod files;
mod letters;
mod log;
mod moved;

use std::collections::BTreeSet;
use std::path::Path;

use tempfile::TempDir;
use tidegate_old_formats::Case;
use tidegate_server::config;

/// A copy of a case, to be changed, and the pipeline in it.
fn pipeline_of(case: &Case) -> (TempDir, config::PipelineFile) {
    let place = tempfile::tempdir().unwrap();
    tidegate_old_formats::copy(case, place.path()).unwrap();
    let text = std::fs::read_to_string(place.path().join("pipeline.toml")).unwrap();
    let file = config::parse(&text, Path::new("pipeline.toml"), place.path()).unwrap();
    (place, file)
}

/// Words about such a copy without where it lies.
fn without_place(words: &str, place: &TempDir) -> String {
    words.replace(&format!("{}/", place.path().display()), "")
}

/// A folder that no test goes through would be kept for nothing.
#[test]
fn every_folder_of_cases_is_gone_through() {
    let there: BTreeSet<String> =
        tidegate_old_formats::folders(&tidegate_old_formats::root()).unwrap().into_iter().collect();
    assert_eq!(there, ["archive", "files", "letters", "log", "moved"].map(str::to_owned).into());
}
