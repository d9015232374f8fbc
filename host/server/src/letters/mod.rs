//! Dead letters, sent again.
//!
//! [`replay`] makes a pipeline out of another one: its sources are the rows in the letters, its sinks the same
//! destinations. Rows that a source could not read go through that source's format to the sinks that take it, rows that
//! a sink did not take to that sink alone. The pipeline has a name and a state of its own, so it and the original never
//! take each other's epochs for theirs, and runs like any other: each letter's row counts once, however often the
//! replay is started and wherever it is killed. Rows that fail again become new letters.
//!
//! The rows are taken out of the letters into files beside the state first, so that everything a source knows about
//! files (positions, formats, schemas) holds for them:
//!
//! ```text
//! <state>-replay-<hash>/takes/<number>/rows/<source>/<file>  what one start has found, for each source
//! <state>-replay-<hash>/takes/<number>/origins/…             which letter each of these rows was in
//! <state>-replay-<hash>/takes/<number>/ids                   all letters ever taken; only in the newest take
//! <state>-replay-<hash>/log/                                 the state of the replay
//! ```
//! Rows and ids get their name together, before the first row is sent. A letter is known by its id, wherever it is found
//! and whatever was done to its row, and is taken once. Letters without an id (people write such, and older versions did)
//! are known by directory, file and place; a file with such letters must not be changed afterwards. A letter whose row
//! cannot be sent stays where it is and is not taken.

mod header;
mod ids;
pub(crate) mod origins;
mod plan;
mod rows;
mod unwrap;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::canonical;
use crate::config::{PipelineFile, PluginRef};
use crate::error::ServerError;
use crate::moved;
use crate::state::State;

use plan::Plan;
use rows::Store;

/// A pipeline that sends dead letters again.
#[derive(Debug)]
pub struct Replay {
    /// The pipeline; `None` if there was never a letter.
    pub file: Option<PipelineFile>,
    /// Where the letters are.
    pub letters_dir: PathBuf,
    /// What this start found there.
    pub found: Found,
}

/// What is in a directory of letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// How many letters.
    pub count: LetterCount,
    /// The first letters whose rows cannot be sent, each with the reason.
    pub kept: Vec<String>,
}

/// A number of letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LetterCount {
    /// Whose rows are sent again.
    pub replayed: u64,
    /// Whose rows cannot be sent: they stay where they are.
    pub kept: u64,
    /// That are known: they, or copies of them, were taken before.
    pub sent_before: u64,
}

/// Takes the rows out of the letters of a pipeline, and makes the pipeline that sends them again. `from` is a directory
/// with letters, perhaps edited; without it, the directory of the dead-letter sink.
///
/// # Errors
/// The pipeline has no dead letters or was moved away, they cannot be read, or a file of letters without ids was changed
/// after it was replayed.
pub fn replay(file: &PipelineFile, from: Option<&Path>) -> Result<Replay, ServerError> {
    moved::refuse(&file.pipeline.state)?;
    let Some(dead_letter) = &file.dead_letter else {
        return Err(ServerError::Request {
            problem: "the pipeline has no [dead-letter], so there are no dead letters, and none could be written"
                .to_owned(),
            hints: vec!["add a table [dead-letter] with a plugin".to_owned()],
        });
    };
    let letters_dir = match from {
        Some(dir) => std::path::absolute(dir).map_err(|error| failed(dir, "found", &error))?,
        None => match (&dead_letter.plugin, dead_letter.dirs.get("output")) {
            (PluginRef::Builtin(name), Some(grant)) if name == "files" => grant.path.clone(),
            _ => {
                return Err(ServerError::Request {
                    problem: format!("it is not known how {} keeps dead letters", dead_letter.plugin),
                    hints: vec!["write them to files, one JSON object per line, and give --from DIR".to_owned()],
                });
            }
        },
    };
    let state = State::read(file)?;
    let (store, tag) = store_of(file);
    let plan = Plan::new(file, state.as_ref(), store.takes_dir())?;
    let found = store.take(&letter_files(&letters_dir, from.is_some())?, &letters_dir, &plan)?;
    let file = plan.pipeline(&store, &tag)?;
    Ok(Replay { file, letters_dir, found })
}

/// The pipeline that sends a pipeline's dead letters again, for looking into its state: sources and sinks are not those
/// that it runs with. Takes no letters, and creates nothing.
///
/// # Errors
/// There is no name for it.
pub fn replay_state(file: &PipelineFile) -> Result<PipelineFile, ServerError> {
    let (store, tag) = store_of(file);
    plan::of_replay(file, &store, &tag)
}

fn store_of(file: &PipelineFile) -> (Store, String) {
    let tag = tag_of(file);
    (Store::new(beside(&file.pipeline.state, &tag)), tag)
}

fn tag_of(file: &PipelineFile) -> String {
    short_hash(file.pipeline.name.as_str().as_bytes())
}

/// What a directory of letters is called, wherever the project is moved and by whatever link it is reached.
fn place_of(base: &Path, dir: &Path) -> Vec<u8> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let base = base.canonicalize().unwrap_or_else(|_| base.to_owned());
    dir.strip_prefix(&base).unwrap_or(&dir).as_os_str().as_encoded_bytes().to_vec()
}

/// Eight digits that stand for bytes.
fn short_hash(bytes: &[u8]) -> String {
    let digest = canonical::sha256(bytes);
    digest.trim_start_matches("sha256:").chars().take(8).collect()
}

/// Where it is kept which letters of this pipeline were sent again, if any were.
pub(crate) fn kept_beside(file: &PipelineFile) -> Option<PathBuf> {
    Some(beside(&file.pipeline.state, &tag_of(file))).filter(|dir| dir.is_dir())
}

/// The replay's directory: beside the state directory, which holds nothing but the log.
fn beside(state: &Path, tag: &str) -> PathBuf {
    let mut name = state.file_name().unwrap_or_default().to_owned();
    name.push(format!("-replay-{tag}"));
    state.with_file_name(name)
}

/// The files of letters, in the order of their names. Hidden files, those of the `files` plugin itself (`_…`) and
/// editors' copies (`…~`) are none.
/// `asked`: the directory was named in the request.
fn letter_files(dir: &Path, asked: bool) -> Result<Vec<PathBuf>, ServerError> {
    let mut files = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if asked && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(ServerError::Request {
                problem: format!("{} cannot be read: {error}", dir.display()),
                hints: vec!["give --from the directory in which the letters are".to_owned()],
            });
        }
        Err(error) => return Err(failed(dir, "read", &error)),
    };
    for entry in entries {
        let path = entry.map_err(|error| failed(dir, "read", &error))?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let other = name.starts_with(b".") || name.starts_with(b"_") || name.ends_with(b"~");
        if !other && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn failed(path: &Path, verb: &str, error: &std::io::Error) -> ServerError {
    ServerError::Host(format!("{} cannot be {verb}: {error}", path.display()))
}
