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

/// Refuses a state directory that carries the mark, readable or not.
pub(crate) fn refuse(dir: &Path) -> Result<(), ServerError> {
    let path = dir.join(NAME);
    if std::fs::symlink_metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(());
    }
    let mark: Option<Mark> = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let archive = mark.map_or("an archive".to_owned(), |mark| mark.archive);
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
