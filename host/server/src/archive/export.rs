//! Writing an archive.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tidegate_pipeline::clock::Clock;
use tidegate_protocol::ids::SinkId;
use tidegate_store::contents::LogFile;
use tidegate_store::{LocalLog, Log as _, StoreError};

use super::{END, Entry, FORMAT, MANIFEST, Manifest, PIECE, hex, hex_of};
use crate::config::PipelineFile;
use crate::error::ServerError;
use crate::letters;
use crate::moved;
use crate::state::{self, State};

/// Strength of the compression: the fill of segments and repeated names are what there is to gain.
const LEVEL: i32 = 3;

/// What was exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Exported {
    /// Where the archive is.
    pub archive: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Files of the state that are in it.
    pub files: usize,
    /// The newest epoch.
    pub newest_epoch: Option<u64>,
    /// The state that is left behind refuses to run, from now on or since it was moved before.
    pub moved: bool,
    /// Sealed epochs without an end, per sink: their rows are staged in the directories that the sinks have here.
    pub unfinished: BTreeMap<SinkId, Vec<u64>>,
    /// The directory that tells which dead letters were sent again, if any were. It is not in the archive.
    pub replays: Option<PathBuf>,
}

/// Writes everything that the pipeline's state holds into one new file. Only a state that verifies is exported, and only
/// while the pipeline is not running. With `moving` the state that is left behind refuses to run from then on.
///
/// # Errors
/// Somebody else owns the pipeline, its state is damaged or was moved into another archive, the archive is there already,
/// or it cannot be written. Then there is no archive.
pub fn export(file: &PipelineFile, to: &Path, moving: bool, clock: &dyn Clock) -> Result<Exported, ServerError> {
    let section = &file.pipeline;
    if State::read(file)?.is_none() {
        return Err(ServerError::Request {
            problem: format!("pipeline `{}` has no state yet, so there is nothing to export", section.name),
            hints: vec!["run it first".to_owned()],
        });
    }
    let place = Place::of(to, &section.state)?;
    let mut log = state::lock_log(file)?;
    if moving {
        moved::refuse_again(&section.state, &place.path)?;
    }
    let state = State::of(log.read_all()?, &section.name, &section.state)?;
    let entries = verified(&mut log, &state)?;
    let newest_epoch = state.history.newest_seal().map(|of| of.epoch.0);
    let manifest = Manifest {
        format: FORMAT,
        pipeline: section.name.to_string(),
        product: env!("CARGO_PKG_VERSION").to_owned(),
        newest_epoch,
        records: state.records.len() as u64,
        files: entries,
    };
    let (unfinished, written) = place.begin()?;
    write(&mut log, &manifest, &written).map_err(|error| place.failed("write", error))?;
    written.sync_all().map_err(|error| place.failed("flush", &error))?;
    let bytes = written.metadata().map_err(|error| place.failed("examine", &error))?.len();
    if moving {
        // Before the archive has its name: whoever finds the archive finds this state marked, whenever we are killed.
        moved::mark(&section.state, &place.path, clock.now_ms())
            .map_err(|error| ServerError::Host(format!("cannot mark the state as moved: {error}")))?;
    }
    place.finish(&unfinished)?;
    Ok(Exported {
        archive: place.path.clone(),
        bytes,
        files: manifest.files.len(),
        newest_epoch,
        moved: moving || moved::is_marked(&section.state),
        unfinished: state.unfinished(),
        replays: letters::kept_beside(file),
    })
}

/// All files with their digests, each piece of state compared with its name, and none missing.
fn verified(log: &mut LocalLog, state: &State) -> Result<Vec<Entry>, ServerError> {
    for chunk in state.history.state_chunks() {
        log.read_state(&chunk)?;
    }
    let mut entries = Vec::new();
    for LogFile { path, bytes } in log.contents()? {
        let mut digest = Sha256::new();
        let mut at = 0;
        while at < bytes {
            let piece = log.read_file(&path, at, PIECE)?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            digest.update(&piece);
        }
        let sha256 = hex(digest);
        let named = path.strip_prefix("state/");
        if at != bytes || named.is_some_and(|name| name != sha256) {
            let file = log.dir().join(&path);
            let detail = format!("it holds {at} bytes with the SHA-256 {sha256}");
            return Err(StoreError::Corrupt { file, offset: at, slot: None, detail }.into());
        }
        entries.push(Entry { path, bytes, sha256 });
    }
    Ok(entries)
}

fn write(log: &mut LocalLog, manifest: &Manifest, archive: &File) -> io::Result<()> {
    let mut zstd = zstd::Encoder::new(BufWriter::new(archive), LEVEL)?;
    zstd.include_checksum(true)?;
    let mut tar = tar::Builder::new(zstd);
    let text = serde_json::to_vec(manifest)?;
    append(&mut tar, MANIFEST, text.len() as u64, text.as_slice())?;
    for entry in &manifest.files {
        let mut reader = FileReader { log, path: &entry.path, at: 0, digest: Sha256::new() };
        append(&mut tar, &entry.path, entry.bytes, (&mut reader).take(entry.bytes))?;
        if hex(reader.digest) != entry.sha256 {
            return Err(io::Error::other(format!("{} changed while it was read", entry.path)));
        }
    }
    let digest = hex_of(&text);
    append(&mut tar, END, digest.len() as u64, digest.as_bytes())?;
    tar.into_inner()?.finish()?.flush()
}

fn append(tar: &mut tar::Builder<impl Write>, path: &str, bytes: u64, data: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_path(path)?;
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(0);
    header.set_cksum();
    tar.append(&header, data)
}

/// One of the log's files, read through the log.
struct FileReader<'a> {
    log: &'a mut LocalLog,
    path: &'a str,
    at: u64,
    digest: Sha256,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let piece = self.log.read_file(self.path, self.at, buffer.len()).map_err(io::Error::other)?;
        buffer[..piece.len()].copy_from_slice(&piece);
        self.digest.update(&piece);
        self.at += piece.len() as u64;
        Ok(piece.len())
    }
}

/// Where an archive goes.
struct Place {
    path: PathBuf,
    folder: PathBuf,
    unfinished: PathBuf,
}

impl Place {
    fn of(to: &Path, state: &Path) -> Result<Self, ServerError> {
        let request = |problem: String, hint: &str| ServerError::Request { problem, hints: vec![hint.to_owned()] };
        let Some(name) = to.file_name() else {
            return Err(request(format!("{} is no name for an archive", to.display()), "give the path of a new file"));
        };
        let folder = match to.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = folder.canonicalize().map_err(|error| {
            request(format!("cannot use the folder {}: {error}", folder.display()), "make the folder first")
        })?;
        let path = folder.join(name);
        if state.canonicalize().is_ok_and(|state| folder.starts_with(state)) {
            let problem = format!("{} lies in the state directory itself", path.display());
            return Err(request(problem, "give a path outside"));
        }
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(".unfinished");
        let place = Self { unfinished: folder.join(hidden), path, folder };
        if std::fs::symlink_metadata(&place.path).is_ok() { Err(place.taken()) } else { Ok(place) }
    }

    fn taken(&self) -> ServerError {
        ServerError::Request {
            problem: format!("{} is there already, and is not overwritten", self.path.display()),
            hints: vec!["give another name, or remove it".to_owned()],
        }
    }

    fn failed(&self, doing: &str, error: impl std::borrow::Borrow<io::Error>) -> ServerError {
        ServerError::Host(format!("cannot {doing} the archive {}: {}", self.path.display(), error.borrow()))
    }

    /// A file without its name yet. What a killed export left is taken over, what another one writes is not.
    fn begin(&self) -> Result<(Unfinished<'_>, File), ServerError> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let file = options.open(&self.unfinished).map_err(|error| self.failed("create", error))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(ServerError::Host(format!("another export writes {} at this moment", self.path.display())));
        }
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            return Err(self.failed("create", io::Error::other(format!("{} is no file", self.unfinished.display()))));
        }
        file.set_len(0).map_err(|error| self.failed("create", error))?;
        Ok((Unfinished(&self.unfinished), file))
    }

    fn finish(&self, unfinished: &Unfinished<'_>) -> Result<(), ServerError> {
        match renameat_with(CWD, unfinished.0, CWD, &self.path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Err(self.taken()),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                // A file system without that call: a second name is refused when it is taken, too.
                std::fs::hard_link(unfinished.0, &self.path).map_err(|error| self.failed("name", error))?;
                std::fs::remove_file(unfinished.0).map_err(|error| self.failed("name", error))?;
            }
            Err(error) => return Err(self.failed("name", io::Error::from(error))),
        }
        let flushed = File::open(&self.folder).and_then(|folder| folder.sync_all());
        flushed.map_err(|error| self.failed("flush the name of", error))
    }
}

/// Removed unless it got its name.
struct Unfinished<'a>(&'a Path);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}
