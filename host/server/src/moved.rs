//! The mark that a state directory was moved to another host, so that two do not both go on with it.

use std::io::{Read as _, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::PipelineFile;
use crate::error::ServerError;

/// The mark's name in the state directory.
const NAME: &str = "moved.json";
/// Longest mark that is read, in bytes.
const LONGEST: u64 = 1 << 16;

/// What the mark says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The archive into which the state was moved.
    pub archive: String,
    /// When, in milliseconds since 1970.
    pub at: u64,
}

/// Where the state of a pipeline was moved to, if it was. Its runs are refused whether the mark can be read or not.
///
/// # Errors
/// The mark is there and cannot be read.
pub fn moved(file: &PipelineFile) -> Result<Option<Moved>, ServerError> {
    let dir = &file.pipeline.state;
    if !is_marked(dir) {
        return Ok(None);
    }
    read(dir).map(Some).map_err(|why| refusal(dir, Err(why)))
}

/// Whether the state directory carries the mark, readable or not.
pub(crate) fn is_marked(dir: &Path) -> bool {
    !std::fs::symlink_metadata(dir.join(NAME)).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// The mark, or why it cannot be read.
fn read(dir: &Path) -> Result<Moved, String> {
    let mut text = Vec::new();
    let file = tidegate_wasm::open_file(&dir.join(NAME));
    file.and_then(|file| file.take(LONGEST).read_to_end(&mut text)).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| format!("expected {{\"archive\": text, \"at\": number}}: {error}"))
}

/// Refuses to move a state directory that was moved into another archive. Into the same one it is moved again, for
/// whoever was interrupted.
pub(crate) fn refuse_again(dir: &Path, to: &Path) -> Result<(), ServerError> {
    if !is_marked(dir) {
        return Ok(());
    }
    let before = match read(dir) {
        Ok(mark) if mark.archive == to.display().to_string() => return Ok(()),
        before => before.map(|mark| mark.archive),
    };
    let (into, lost) = match before {
        Ok(archive) => (archive.clone(), format!("if it is lost, move again with --to {archive}, or")),
        Err(why) => (unknown(dir, &why), "if it is lost,".to_owned()),
    };
    Err(ServerError::refused(
        format!("the pipeline in {} was moved away into {into} before", dir.display()),
        vec![
            "import that archive; of two, two hosts could go on".to_owned(),
            format!("{lost} export a copy without --move"),
        ],
    ))
}

/// Refuses a state directory that carries the mark, readable or not.
pub(crate) fn refuse(dir: &Path) -> Result<(), ServerError> {
    if is_marked(dir) { Err(refusal(dir, read(dir))) } else { Ok(()) }
}

fn refusal(dir: &Path, mark: Result<Moved, String>) -> ServerError {
    let into = mark.map_or_else(|why| unknown(dir, &why), |mark| mark.archive);
    ServerError::refused(
        format!("the pipeline in {} was moved away into {into}", dir.display()),
        vec![
            "run it where the archive was imported, so that two hosts do not both go on with it".to_owned(),
            format!("to take it back, make sure that it runs nowhere else, then remove {}", dir.join(NAME).display()),
        ],
    )
}

/// Stands for an archive whose name is not known.
fn unknown(dir: &Path, why: &str) -> String {
    format!("an archive ({} does not say which: {why})", dir.join(NAME).display())
}

/// Puts the mark there, durably. The caller holds the lock.
pub(crate) fn mark(dir: &Path, archive: &Path, at: u64) -> std::io::Result<()> {
    let text = serde_json::to_vec(&Moved { archive: archive.display().to_string(), at })?;
    let unfinished = dir.join(format!("{NAME}.tmp"));
    let mut file = std::fs::File::create(&unfinished)?;
    file.write_all(&text)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, dir.join(NAME))?;
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHEN: u64 = 1_700_000_000_000;

    /// The mark that is written today, and what may have become of one.
    fn cases() -> Vec<(&'static str, Vec<u8>)> {
        let dir = tempfile::tempdir().expect("a folder");
        mark(dir.path(), Path::new("/srv/flights.tar.zst"), WHEN).expect("it can be written");
        let good = std::fs::read(dir.path().join(NAME)).expect("it is there");
        vec![
            ("cut-short", good[..good.len() - 9].to_vec()),
            ("empty", Vec::new()),
            ("more-keys", br#"{"archive":"/srv/flights.tar.zst","at":1700000000000,"by":"somebody"}"#.to_vec()),
            ("no-json", b"flights.tar.zst\n".to_vec()),
            ("other-types", br#"{"archive":7,"at":"today"}"#.to_vec()),
            ("good", good),
        ]
    }

    /// A new case is written with `TIDEGATE_WRITE_FORMATS=1`; one that is there is never changed.
    #[test]
    fn a_mark_of_today_is_the_one_that_is_kept() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/old-formats/cases/moved/v1");
        for (name, bytes) in cases() {
            let dir = folder.join(name);
            if std::env::var_os("TIDEGATE_WRITE_FORMATS").is_some() && !dir.exists() {
                std::fs::create_dir_all(dir.join("state")).expect("it can be made");
                std::fs::write(dir.join("state").join(NAME), &bytes).expect("it can be written");
                std::fs::write(dir.join("pipeline.toml"), include_str!("../tests/archive.toml")).expect("likewise");
            }
            let kept = std::fs::read(dir.join("state").join(NAME)).expect("it is there");
            assert!(kept == bytes, "{name}: a mark is written differently now: keep that of today as another case");
        }
        let mark = read(&folder.join("good/state")).expect("it is whole");
        assert_eq!(mark, Moved { archive: "/srv/flights.tar.zst".to_owned(), at: WHEN });
    }

    #[test]
    fn a_mark_that_cannot_be_read_still_refuses_and_says_why() {
        let dir = tempfile::tempdir().expect("a folder");
        refuse(dir.path()).expect("there is no mark");
        std::fs::write(dir.path().join(NAME), "{\"archive\":").expect("it can be written");
        for refused in [refuse(dir.path()), refuse_again(dir.path(), Path::new("a.tar.zst"))] {
            let error = refused.expect_err("it is marked").to_string();
            assert!(error.contains(NAME) && error.contains("line 1 column 11"), "{error}");
        }
        std::fs::remove_file(dir.path().join(NAME)).expect("it is there");
        std::fs::create_dir(dir.path().join(NAME)).expect("a folder instead");
        assert!(refuse(dir.path()).is_err_and(|error| error.to_string().contains("a directory")));
    }
}
