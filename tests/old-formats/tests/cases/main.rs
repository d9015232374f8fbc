//! Every later version reads what an earlier one has stored, or refuses it in words and changes nothing.

mod archive;
mod files;
mod letters;
mod log;
mod moved;

use std::collections::BTreeSet;

/// A folder that no test goes through would be kept for nothing.
#[test]
fn every_folder_of_cases_is_gone_through() {
    let there: BTreeSet<String> =
        tidegate_old_formats::folders(&tidegate_old_formats::root()).unwrap().into_iter().collect();
    assert_eq!(there, ["archive", "files", "letters", "log", "moved"].map(str::to_owned).into());
}
