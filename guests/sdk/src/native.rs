//! Running a sink natively, behind the same trait as in the sandbox.
//!
//! A [`Host`] holds what an operator would grant; [`Host::ctx`] makes the context of a call, [`Rows`] a batch. A probe
//! sees every file call before it is made and may refuse it: so a test can crash a sink after each of its steps, or let
//! another actor run between two of them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::fs::{self, Dir};
use crate::{Batch, Ctx, Encoding, Error, External, FileChunk, Level, RunId};

/// One call on the file system, about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsOp<'a> {
    /// A directory is made.
    CreateDir(&'a Path),
    /// A file is created.
    Create(&'a Path),
    /// A file that is there is opened for writing.
    Open(&'a Path),
    /// Bytes are written from an offset on.
    Write(&'a Path, u64, &'a [u8]),
    /// A file's content is flushed.
    SyncFile(&'a Path),
    /// A directory's names are flushed.
    SyncDir(&'a Path),
    /// A name moves.
    Rename(&'a Path, &'a Path),
    /// A file gets a second name.
    Link(&'a Path, &'a Path),
    /// A name is removed.
    Remove(&'a Path),
    /// A file is read.
    Read(&'a Path),
    /// A directory is listed.
    List(&'a Path),
}

impl FsOp<'_> {
    /// Whether it changes anything, or makes a change durable.
    pub fn changes(&self) -> bool {
        !matches!(self, FsOp::Open(_) | FsOp::Read(_) | FsOp::List(_))
    }
}

/// Sees every file call before it is made; an error takes the place of the call.
pub type Probe = Arc<dyn Fn(FsOp<'_>) -> Result<(), fs::Error> + Send + Sync>;

/// A line of the sink's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// How loud.
    pub level: Level,
    /// The message.
    pub message: String,
    /// Its fields.
    pub fields: Vec<(String, String)>,
}

/// What was granted, and what the sink said.
#[derive(Default)]
pub struct Host {
    dirs: BTreeMap<String, PathBuf>,
    secrets: BTreeMap<String, String>,
    places: BTreeMap<String, SocketAddr>,
    probe: Option<Probe>,
    skips_flushes: bool,
    said: Mutex<Said>,
}

#[derive(Default)]
struct Said {
    log: Vec<LogLine>,
    counters: BTreeMap<String, u64>,
    intents: Vec<(External, Option<String>)>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets stay out.
        f.debug_struct("Host").field("dirs", &self.dirs).finish_non_exhaustive()
    }
}

impl Host {
    /// A host that grants nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Grants a directory.
    #[must_use]
    pub fn dir(mut self, grant: &str, path: impl Into<PathBuf>) -> Self {
        self.dirs.insert(grant.to_owned(), path.into());
        self
    }

    /// Grants a secret.
    #[must_use]
    pub fn with_secret(mut self, name: &str, value: &str) -> Self {
        self.secrets.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Grants a place in the network.
    #[must_use]
    pub fn tcp(mut self, grant: &str, address: SocketAddr) -> Self {
        self.places.insert(grant.to_owned(), address);
        self
    }

    /// Watches every file call.
    #[must_use]
    pub fn probe(mut self, probe: Probe) -> Self {
        self.probe = Some(probe);
        self
    }

    /// The probe sees flushes, the disk does not: for tests, which lose no power.
    #[must_use]
    pub fn without_flushes(mut self) -> Self {
        self.skips_flushes = true;
        self
    }

    pub(crate) fn flushes(&self) -> bool {
        !self.skips_flushes
    }

    /// The context of one call.
    pub fn ctx(self: &Arc<Self>, sink: &str, sink_hash: &str, run: RunId, config_json: &str, attempt: u32) -> Ctx {
        Ctx {
            sink: sink.to_owned(),
            sink_hash: sink_hash.to_owned(),
            run,
            config_json: config_json.to_owned(),
            attempt,
            host: self.clone(),
        }
    }

    /// What the sink logged so far.
    pub fn log_lines(&self) -> Vec<LogLine> {
        self.said().log.clone()
    }

    /// The value of a counter, over all labels.
    pub fn counter(&self, name: &str) -> u64 {
        self.said().counters.get(name).copied().unwrap_or(0)
    }

    /// Announced resources with the names they got.
    pub fn intents(&self) -> Vec<(External, Option<String>)> {
        self.said().intents.clone()
    }

    fn said(&self) -> std::sync::MutexGuard<'_, Said> {
        // A test that panicked elsewhere does not make what was said untrue.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn before(&self, op: FsOp<'_>) -> Result<(), fs::Error> {
        self.probe.as_ref().map_or(Ok(()), |probe| probe(op))
    }

    pub(crate) fn granted(self: &Arc<Self>, grant: &str) -> Result<Dir, Error> {
        let path = self
            .dirs
            .get(grant)
            .ok_or_else(|| Error::denied("no-grant", format!("no directory is granted under the name `{grant}`")))?;
        Ok(Dir::granted(self.clone(), path.clone()))
    }

    pub(crate) fn place(&self, grant: &str) -> Result<SocketAddr, Error> {
        let missing = || Error::denied("no-grant", format!("no place is granted under the name `{grant}`"));
        self.places.get(grant).copied().ok_or_else(missing)
    }

    pub(crate) fn secret(&self, name: &str) -> Result<String, Error> {
        let missing = || Error::denied("no-grant", format!("no secret is granted under the name `{name}`"));
        self.secrets.get(name).cloned().ok_or_else(missing)
    }

    pub(crate) fn logged(&self, level: Level, message: &str, fields: &[(String, String)]) {
        self.said().log.push(LogLine { level, message: message.to_owned(), fields: fields.to_vec() });
    }

    pub(crate) fn counted(&self, name: &str, _labels: &[(String, String)], value: u64) {
        let mut said = self.said();
        let counter = said.counters.entry(name.to_owned()).or_default();
        *counter = counter.saturating_add(value);
    }

    pub(crate) fn intended(&self, resource: &External) -> u64 {
        let mut said = self.said();
        said.intents.push((resource.clone(), None));
        said.intents.len() as u64
    }

    pub(crate) fn bound(&self, intent: u64, name: &str) -> Result<(), Error> {
        let index = usize::try_from(intent).ok().and_then(|number| number.checked_sub(1));
        let mut said = self.said();
        let found = index.and_then(|index| said.intents.get_mut(index));
        let (_, bound) = found.ok_or_else(|| Error::permanent("no-intent", format!("intent {intent} is not known")))?;
        *bound = Some(name.to_owned());
        Ok(())
    }
}

/// Rows that a test or a benchmark hands to a sink.
#[derive(Debug, Clone)]
pub struct Rows {
    /// The encoded rows.
    pub bytes: Bytes,
    /// How many.
    pub rows: u64,
    /// Their encoding.
    pub encoding: Encoding,
    /// Which schema.
    pub schema: u32,
    /// Which piece of which file.
    pub file: Option<FileChunk>,
}

impl Rows {
    /// Rows of a line encoding: every line is one.
    pub fn lines(encoding: Encoding, bytes: impl Into<Bytes>) -> Rows {
        let bytes = bytes.into();
        let rows = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64;
        Rows { bytes, rows, encoding, schema: 0, file: None }
    }

    /// As the sink sees them.
    pub fn batch(&self) -> Batch<'_> {
        Batch { inner: self }
    }
}
