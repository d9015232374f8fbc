//! Reading an archive: whole and to its end before anything is created.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, statvfs};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tidegate_store::contents::{self, FOLDERS, LONGEST_FILE};
use tidegate_store::{LocalLog, Log as _};

use super::{END, FORMAT, LONGEST_MANIFEST, MANIFEST, MOST_FILES, Manifest, PIECE, hex, hex_of};
use crate::config::PipelineFile;
use crate::error::ServerError;
use crate::state::State;

/// The decoder may use so much memory for looking back: 2^27 bytes.
const WINDOW_LOG: u32 = 27;

/// What was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Imported {
    /// Where the state is now.
    pub state: PathBuf,
    /// Files of it.
    pub files: usize,
    /// The newest epoch.
    pub newest_epoch: Option<u64>,
    /// Version of the program that exported it.
    pub exported_by: String,
}

/// Makes the pipeline's state from an archive. The state directory must be absent or empty; it appears whole or not at
/// all.
///
/// # Errors
/// The archive is damaged, of another pipeline or not an archive; there is a state already; or it cannot be written. Then
/// nothing was changed.
pub fn import(file: &PipelineFile, from: &Path) -> Result<Imported, ServerError> {
    let archive = Archive { path: from };
    let state = &file.pipeline.state;
    refuse_occupied(state)?;
    let mut opened = tidegate_wasm::open_file(from).map_err(|error| ServerError::Request {
        problem: format!("cannot read the archive {}: {error}", from.display()),
        hints: vec!["give the path of a file that `tidegate checkpoint export` has written".to_owned()],
    })?;
    let manifest = archive.read(&mut opened, None)?;
    if manifest.pipeline != file.pipeline.name.as_str() {
        return Err(ServerError::refused(
            format!("{} holds pipeline `{}`, not `{}`", from.display(), manifest.pipeline, file.pipeline.name),
            vec!["import it with the pipeline file that it was exported with".to_owned()],
        ));
    }
    let place = Place::begin(state)?;
    place.refuse_too_large(&manifest)?;
    opened.rewind().map_err(|error| archive.damaged(error))?;
    if archive.read(&mut opened, Some(&place.unfinished))? != manifest {
        return Err(archive.damaged("it changed while it was read"));
    }
    check_log(file, &place.unfinished, &archive, &manifest)?;
    place.finish(state)?;
    Ok(Imported {
        state: state.clone(),
        files: manifest.files.len(),
        newest_epoch: manifest.newest_epoch,
        exported_by: manifest.product,
    })
}

fn refuse_occupied(state: &Path) -> Result<(), ServerError> {
    let occupied = match std::fs::symlink_metadata(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if found.is_dir() => match std::fs::read_dir(state) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) => return Err(failed("look into", state, &error)),
        },
        _ => true,
    };
    if !occupied {
        return Ok(());
    }
    Err(ServerError::refused(
        format!("{} is there already, and is not overwritten", state.display()),
        vec![
            "import into an absent or empty directory: change `state` in the file, or move the old one away".to_owned(),
        ],
    ))
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> ServerError {
    ServerError::Host(format!("cannot {doing} {}: {error}", path.display()))
}

/// The log must be readable as such, hold what the manifest says, and every piece that a checkpoint names must be there.
fn check_log(file: &PipelineFile, dir: &Path, archive: &Archive<'_>, manifest: &Manifest) -> Result<(), ServerError> {
    let bad = |error: &dyn std::fmt::Display| archive.damaged(error);
    let mut log = LocalLog::open_read_only(dir).map_err(|error| bad(&error))?;
    let records = log.read_all().map_err(|error| bad(&error))?;
    let state = State::of(records, &file.pipeline.name, dir)?;
    let (found, newest) = (state.records.len() as u64, state.history.newest_seal().map(|of| of.epoch.0));
    if found == 0 || (found, newest) != (manifest.records, manifest.newest_epoch) {
        // Without a record a pipeline would begin anew, in front of destinations that have its rows.
        return Err(archive.damaged(format!(
            "its log has {found} records and {} as its newest epoch, the manifest says {} and {}",
            shown(newest),
            manifest.records,
            shown(manifest.newest_epoch)
        )));
    }
    for chunk in state.history.state_chunks() {
        log.read_state(&chunk).map_err(|error| bad(&error))?;
    }
    Ok(())
}

fn shown(epoch: Option<u64>) -> String {
    epoch.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string())
}

struct Archive<'a> {
    path: &'a Path,
}

impl Archive<'_> {
    fn damaged(&self, why: impl std::fmt::Display) -> ServerError {
        ServerError::refused(
            format!("the archive {} is damaged or none of ours: {why}", self.path.display()),
            vec!["nothing was changed; copy it again from where it was exported, or export once more".to_owned()],
        )
    }

    /// Reads and checks all of it; with `into`, writes the files there.
    fn read(&self, file: &mut File, into: Option<&Path>) -> Result<Manifest, ServerError> {
        self.read_entries(file, into).map_err(|error| match error {
            Broken::Archive(why) => self.damaged(why),
            Broken::Write(path, error) => failed("write", &path, &error),
        })
    }

    fn read_entries(&self, file: &mut File, into: Option<&Path>) -> Result<Manifest, Broken> {
        let mut zstd = zstd::Decoder::new(file)?;
        zstd.window_log_max(WINDOW_LOG)?;
        let mut tar = tar::Archive::new(zstd);
        // Raw: long names, links and extended headers are entries like all others, and refused.
        let mut entries = tar.entries()?.raw(true);
        let mut next = |path: &str, most: u64| -> Result<tar::Entry<'_, _>, Broken> {
            let entry = entries.next().ok_or_else(|| Broken::archive(format!("{path} is missing")))??;
            if entry.header().entry_type() != tar::EntryType::Regular || &*entry.path_bytes() != path.as_bytes() {
                let found = String::from_utf8_lossy(&entry.path_bytes()).escape_debug().to_string();
                return Err(Broken::archive(format!("it holds `{found}` where the file {path} should be")));
            }
            if entry.size() > most {
                return Err(Broken::archive(format!("{path} has {} bytes, at most {most} are expected", entry.size())));
            }
            Ok(entry)
        };
        let mut text = Vec::new();
        next(MANIFEST, LONGEST_MANIFEST)?.read_to_end(&mut text)?;
        let manifest = checked(&text)?;
        for expected in &manifest.files {
            let mut entry = next(&expected.path, expected.bytes)?;
            let mut out = match into {
                Some(dir) => Some(Writer::create(dir.join(&expected.path))?),
                None => None,
            };
            let (mut digest, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
            loop {
                let read = entry.read(&mut piece)?;
                if read == 0 {
                    break;
                }
                bytes += read as u64;
                digest.update(&piece[..read]);
                if let Some(out) = &mut out {
                    out.write(&piece[..read])?;
                }
            }
            if bytes != expected.bytes || hex(digest) != expected.sha256 {
                return Err(Broken::archive(format!("{} is not what the manifest says", expected.path)));
            }
            if let Some(out) = out {
                out.flush()?;
            }
        }
        let mut end = String::new();
        next(END, 64)?.read_to_string(&mut end)?;
        if end != hex_of(&text) {
            return Err(Broken::archive("the manifest is not the one that it was written with".to_owned()));
        }
        if entries.next().is_some() {
            return Err(Broken::archive("it holds more than its manifest says".to_owned()));
        }
        // What is left are zeros; reading them to the end is what checks the checksum over everything.
        let mut rest = tar.into_inner();
        let (mut piece, mut left) = ([0; 4096], 1 << 20);
        loop {
            match rest.read(&mut piece)? {
                0 => return Ok(manifest),
                read if read > left || piece[..read].iter().any(|byte| *byte != 0) => {
                    return Err(Broken::archive("something follows its end".to_owned()));
                }
                read => left -= read,
            }
        }
    }
}

fn checked(text: &[u8]) -> Result<Manifest, Broken> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let format = serde_json::from_slice::<Format>(text).map_err(|error| Broken::archive(error.to_string()))?.format;
    if format != FORMAT {
        return Err(Broken::archive(format!("it has format {format}, this program reads format {FORMAT}")));
    }
    let manifest: Manifest = serde_json::from_slice(text).map_err(|error| Broken::archive(error.to_string()))?;
    if manifest.files.len() > MOST_FILES {
        return Err(Broken::archive(format!("it names {} files, at most {MOST_FILES} are read", manifest.files.len())));
    }
    for file in &manifest.files {
        let name = file.path.escape_debug();
        if !contents::belongs(&file.path) {
            return Err(Broken::archive(format!("`{name}` is no file of a pipeline's state")));
        }
        if file.bytes > LONGEST_FILE {
            return Err(Broken::archive(format!("`{name}` has {} bytes, at most {LONGEST_FILE} are read", file.bytes)));
        }
    }
    if manifest.files.windows(2).any(|pair| pair[0].path >= pair[1].path) {
        return Err(Broken::archive("its files are not in order, or one is there twice".to_owned()));
    }
    Ok(manifest)
}

enum Broken {
    Archive(String),
    Write(PathBuf, io::Error),
}

impl Broken {
    fn archive(why: String) -> Self {
        Broken::Archive(why)
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Broken::Archive(error.to_string())
    }
}

/// A new file of the state.
struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    fn create(path: PathBuf) -> Result<Self, Broken> {
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(Broken::Write(path, error)),
        }
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), Broken> {
        self.file.write_all(piece).map_err(|error| Broken::Write(self.path.clone(), error))
    }

    fn flush(self) -> Result<(), Broken> {
        self.file.sync_all().map_err(|error| Broken::Write(self.path, error))
    }
}

/// A directory beside the state's place, which gets its name when it is whole.
struct Place {
    parent: PathBuf,
    unfinished: PathBuf,
    /// Locked as long as it is being filled.
    dir: File,
}

impl Place {
    fn begin(state: &Path) -> Result<Self, ServerError> {
        let parent = state.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = state.file_name().ok_or_else(|| ServerError::Request {
            problem: format!("{} is no name for a state directory", state.display()),
            hints: vec!["change `state` in the file".to_owned()],
        })?;
        contents::make_directory_durably(parent)?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".import");
        let unfinished = parent.join(hidden);
        match DirBuilder::new().mode(0o700).create(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("create", &unfinished, &error));
            }
            _ => {}
        }
        let there = std::fs::symlink_metadata(&unfinished).map_err(|error| failed("examine", &unfinished, &error))?;
        if !there.is_dir() {
            return Err(failed("use", &unfinished, &io::Error::other("something else has its place; move it away")));
        }
        let dir = File::open(&unfinished).map_err(|error| failed("open", &unfinished, &error))?;
        let locked = flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok();
        let same = dir.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (there.dev(), there.ino()));
        if !locked || !same {
            return Err(ServerError::Host(format!("another import into {} is under way", state.display())));
        }
        empty(&unfinished)?;
        for folder in FOLDERS {
            let path = unfinished.join(folder);
            std::fs::create_dir_all(&path).map_err(|error| failed("create", &path, &error))?;
        }
        Ok(Self { parent: parent.to_owned(), unfinished, dir })
    }

    fn refuse_too_large(&self, manifest: &Manifest) -> Result<(), ServerError> {
        let wanted = manifest.files.iter().fold(0u64, |sum, file| sum.saturating_add(file.bytes));
        let room = statvfs(&self.parent).map_or(u64::MAX, |found| found.f_bavail.saturating_mul(found.f_frsize));
        if wanted <= room {
            return Ok(());
        }
        Err(ServerError::Host(format!(
            "the state takes {wanted} bytes, and {} has room for {room}; free some space",
            self.parent.display()
        )))
    }

    fn finish(&self, state: &Path) -> Result<(), ServerError> {
        let flush = |path: &Path| File::open(path).and_then(|dir| dir.sync_all());
        for folder in FOLDERS {
            let path = self.unfinished.join(folder);
            flush(&path).map_err(|error| failed("flush", &path, &error))?;
        }
        self.dir.sync_all().map_err(|error| failed("flush", &self.unfinished, &error))?;
        // An empty directory is replaced, anything else that came meanwhile is not.
        std::fs::rename(&self.unfinished, state).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                ServerError::refused(format!("{} has been filled meanwhile", state.display()), vec![])
            }
            _ => failed("put the state in its place at", state, &error),
        })?;
        flush(&self.parent).map_err(|error| failed("flush", &self.parent, &error))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Got its name, or goes; what cannot be removed is taken over by the next import.
        let ours = std::fs::symlink_metadata(&self.unfinished)
            .is_ok_and(|there| self.dir.metadata().is_ok_and(|held| held.ino() == there.ino()));
        if ours {
            let _ = std::fs::remove_dir_all(&self.unfinished);
        }
    }
}

/// Removes what a killed import left. Whatever an import does not leave is somebody's, and stays.
fn empty(dir: &Path) -> Result<(), ServerError> {
    let list = |path: &Path| -> io::Result<Vec<std::fs::DirEntry>> { std::fs::read_dir(path)?.collect() };
    let foreign = |path: &Path| {
        failed(
            "use",
            dir,
            &io::Error::other(format!("it holds {}, which is of no import; move it away", path.display())),
        )
    };
    for folder in list(dir).map_err(|error| failed("look into", dir, &error))? {
        let name = folder.file_name().to_string_lossy().into_owned();
        if !FOLDERS.contains(&name.as_str()) || !folder.file_type().is_ok_and(|kind| kind.is_dir()) {
            return Err(foreign(&folder.path()));
        }
        for file in list(&folder.path()).map_err(|error| failed("look into", &folder.path(), &error))? {
            if !contents::belongs(&format!("{name}/{}", file.file_name().to_string_lossy())) {
                return Err(foreign(&file.path()));
            }
        }
    }
    for folder in FOLDERS {
        let path = dir.join(folder);
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(|error| failed("remove", &path, &error))?;
        }
    }
    Ok(())
}
