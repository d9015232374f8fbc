//! The mark that a state directory was moved to another host, so that two do not both go on with it.

use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::ServerError;

/// The mark's name in the state directory.
const NAME: &str = "moved.json";

#[derive(Serialize, Deserialize)]
struct Mark {
    archive: String,
    at: u64,
}

/// Whether the state directory carries the mark, readable or not.
pub(crate) fn is_marked(dir: &Path) -> bool {
    !std::fs::symlink_metadata(dir.join(NAME)).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// The archive that the mark names.
fn archive(dir: &Path) -> Option<String> {
    let mark: Option<Mark> = std::fs::read(dir.join(NAME)).ok().and_then(|text| serde_json::from_slice(&text).ok());
    mark.map(|mark| mark.archive)
}

/// Refuses to move a state directory that was moved into another archive. Into the same one it is moved again, for
/// whoever was interrupted.
pub(crate) fn refuse_again(dir: &Path, to: &Path) -> Result<(), ServerError> {
    let before = archive(dir);
    if !is_marked(dir) || before.as_deref() == Some(&*to.display().to_string()) {
        return Ok(());
    }
    let before = before.unwrap_or_else(|| "an archive".to_owned());
    Err(ServerError::refused(
        format!("the pipeline in {} was moved away into {before} before", dir.display()),
        vec![
            "import that archive; of two, two hosts could go on".to_owned(),
            format!("if it is lost, move again with --to {before}, or export a copy without --move"),
        ],
    ))
}

/// Refuses a state directory that carries the mark, readable or not.
pub(crate) fn refuse(dir: &Path) -> Result<(), ServerError> {
    if !is_marked(dir) {
        return Ok(());
    }
    let path = dir.join(NAME);
    let archive = archive(dir).unwrap_or_else(|| "an archive".to_owned());
    Err(ServerError::refused(
        format!("the pipeline in {} was moved away into {archive}", dir.display()),
        vec![
            "run it where the archive was imported, so that two hosts do not both go on with it".to_owned(),
            format!("to take it back, make sure that it runs nowhere else, then remove {}", path.display()),
        ],
    ))
}

/// Puts the mark there, durably. The caller holds the lock.
pub(crate) fn mark(dir: &Path, archive: &Path, at: u64) -> std::io::Result<()> {
    let text = serde_json::to_vec(&Mark { archive: archive.display().to_string(), at })?;
    let unfinished = dir.join(format!("{NAME}.tmp"));
    let mut file = std::fs::File::create(&unfinished)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, dir.join(NAME))?;
    std::fs::File::open(dir)?.sync_all()
}
