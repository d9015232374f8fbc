//! A destination, hosts of several runs, and a reader that shares no code with the sink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_sdk::fs::{Error as FsError, ErrorKind as FsErrorKind};
use tidegate_sdk::native::{FsOp, Host, Probe, Rows};
use tidegate_sdk::{
    Committable, Ctx, Encoding, Error, FileChunk, KeyRange, Outcome, Part, Position, Prepared, RunId, Sink, Unsealed,
    Writer,
};
use tidegate_sink_files::Files;

pub(crate) const HASH: &str = "abcd2345";
/// Most names that the register has after a commit: entries and notes since it was trimmed and nine before that, spares,
/// and those of entries.
pub(crate) const REGISTER: usize = 9 + 8 * 4 + 1;

/// A directory with everything that was ever staged there. With `SEVERAL`, the host writes the files: each part has
/// several, some in folders.
pub(crate) struct World<const SEVERAL: bool> {
    dir: TempDir,
    pub(crate) hash: String,
    pub(crate) config: String,
}

/// In memory where that is possible: the sweeps make thousands of small directories.
fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a temporary directory")
}

pub(crate) fn run(number: u64) -> RunId {
    RunId { number, nonce: format!("{}{}", "a".repeat(15), (b'a' + (number % 26) as u8) as char) }
}

impl<const SEVERAL: bool> World<SEVERAL> {
    pub(crate) fn new() -> Self {
        World { dir: scratch(), hash: HASH.to_owned(), config: "{}".to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn part(&self, run: &RunId, epoch: u64, ordinal: u32) -> Part {
        Part {
            full: format!("p/s/{run}/{epoch}/{ordinal}/1"),
            short: format!("tg-{}-{run}-{epoch}-{ordinal}-1", self.hash),
            run: run.clone(),
            epoch,
            ordinal,
            attempt: 1,
        }
    }

    pub(crate) fn ctx(&self, run: &RunId, attempt: u32) -> Ctx {
        self.ctx_with(run, attempt, None)
    }

    pub(crate) fn ctx_with(&self, run: &RunId, attempt: u32, probe: Option<Probe>) -> Ctx {
        let mut host = Host::new().dir("output", self.path()).without_flushes();
        if let Some(probe) = probe {
            host = host.probe(probe);
        }
        Arc::new(host).ctx("out", &self.hash, run.clone(), &self.config, attempt)
    }

    /// Stages one part of `rows` rows that say where they come from.
    pub(crate) fn stage(&self, run: &RunId, epoch: u64, ordinal: u32, rows: u64) -> Committable {
        self.prepare(&self.ctx(run, 1), run, epoch, ordinal, rows).expect("staging works").committable
    }

    pub(crate) fn prepare(
        &self,
        ctx: &Ctx,
        run: &RunId,
        epoch: u64,
        ordinal: u32,
        rows: u64,
    ) -> Result<Prepared, Error> {
        let mut writer = Files::default().open(ctx, KeyRange { first: 0, last: u32::MAX }, Vec::new())?;
        writer.begin(ctx, &self.part(run, epoch, ordinal))?;
        for row in 0..rows {
            let line = format!("{{\"run\":{},\"epoch\":{epoch},\"part\":{ordinal},\"row\":{row}}}\n", run.number);
            let mut batch = Rows::lines(Encoding::JsonLines, line);
            if SEVERAL {
                batch = piece(row as usize % FOLDERS.len(), batch.bytes, 1, false);
            }
            writer.write(ctx, &batch.batch())?;
        }
        if SEVERAL {
            for number in 0..FOLDERS.len().min(rows as usize) {
                writer.write(ctx, &piece(number, Vec::new(), 0, true).batch())?;
            }
        }
        writer.prepare(ctx)
    }

    /// Both parts of an epoch.
    pub(crate) fn stage_epoch(&self, run: &RunId, epoch: u64) -> Vec<Committable> {
        vec![self.stage(run, epoch, 0, 3), self.stage(run, epoch, 1, 2)]
    }

    /// One part of a run that owns nothing: staged as a host would that has not noticed yet.
    pub(crate) fn stage_epoch_unchecked(&self, run: &RunId, epoch: u64) -> Vec<Committable> {
        let other = Self { dir: scratch(), hash: self.hash.clone(), config: "{}".into() };
        let committable = other.stage(run, epoch, 0, 1);
        for name in other.staged() {
            let staged = format!("_tidegate/{}/staging/{name}", self.hash);
            fs::copy(other.path().join(&staged), self.path().join(&staged)).expect("copies");
        }
        vec![committable]
    }

    /// Stages and commits an epoch on a fresh instance.
    pub(crate) fn commit_epoch(&self, run: &RunId, epoch: u64, previous: &[Part]) -> Vec<Part> {
        let committables = self.stage_epoch(run, epoch);
        let outcomes = Files::default().commit(&self.ctx(run, 1), previous, &committables).expect("commit answers");
        assert_eq!(outcomes, [Outcome::Committed, Outcome::Committed]);
        parts(&committables)
    }

    pub(crate) fn observe(&self, run: &RunId) -> Position {
        Files::default().observe(&self.ctx(run, 1)).expect("observe answers")
    }

    /// A new run takes over.
    pub(crate) fn fence(&self, run: &RunId) -> Position {
        let expected = self.observe(run);
        Files::default().fence(&self.ctx(run, 1), &expected).expect("fence answers")
    }

    pub(crate) fn names(&self, below: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path().join(below))
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("listing").file_name().into_string().expect("utf-8"))
            .collect();
        names.sort();
        names
    }

    pub(crate) fn staged(&self) -> Vec<String> {
        self.names(&format!("_tidegate/{}/staging", self.hash))
    }

    /// Short ids of the parts of which something is staged.
    pub(crate) fn staged_parts(&self) -> Vec<String> {
        let mut parts: Vec<String> =
            self.staged().iter().map(|name| name.split('.').next().expect("a name").to_owned()).collect();
        parts.dedup();
        parts
    }

    /// Paths of all published files, as a reader finds them who looks into all folders.
    pub(crate) fn published(&self) -> Vec<String> {
        let (mut found, mut waiting) = (Vec::new(), vec![String::new()]);
        while let Some(folder) = waiting.pop() {
            for name in self.names(&folder).into_iter().filter(|name| !name.starts_with('_')) {
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let is_dir = fs::metadata(self.path().join(&path)).expect("there").is_dir();
                if is_dir { waiting.push(path) } else { found.push(path) }
            }
        }
        found.sort();
        found
    }

    pub(crate) fn register(&self) -> Vec<String> {
        self.names(&format!("_tidegate/{}/register", self.hash))
    }

    /// What a plain listing shows: every line with the number of times it is there. Lines must be whole.
    pub(crate) fn plain_rows(&self) -> BTreeMap<String, u32> {
        rows_of(self.path(), &self.published())
    }

    /// What a reader of the epoch log sees: every entry's files must be there, whole.
    pub(crate) fn logged_rows(&self) -> BTreeMap<String, u32> {
        let mut files = Vec::new();
        for name in self.names("_epochs") {
            let text = fs::read_to_string(self.path().join("_epochs").join(&name)).expect("readable entry");
            let entry: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("torn entry {name}"));
            let mut rows = 0;
            for file in entry["files"].as_array().expect("files") {
                let file_name = file["name"].as_str().expect("name").to_owned();
                let size = fs::metadata(self.path().join(&file_name)).map(|m| m.len());
                assert_eq!(size.ok(), file["bytes"].as_u64(), "{name}: {file_name} is whole");
                rows += file["rows"].as_u64().expect("rows");
                files.push(file_name);
            }
            assert_eq!(entry["rows"].as_u64(), Some(rows), "{name}");
        }
        rows_of(self.path(), &files)
    }

    /// Readers of both kinds must see these epochs, each row once, and nothing else.
    pub(crate) fn assert_visible(&self, epochs: &[(u64, u64)]) {
        let expected: BTreeMap<String, u32> = epochs
            .iter()
            .flat_map(|&(run, epoch)| [(run, epoch, 0, 3), (run, epoch, 1, 2)])
            .flat_map(|(run, epoch, part, rows)| {
                (0..rows)
                    .map(move |row| (format!("{{\"run\":{run},\"epoch\":{epoch},\"part\":{part},\"row\":{row}}}"), 1))
            })
            .collect();
        assert_eq!(self.plain_rows(), expected, "plain listing");
        assert_eq!(self.logged_rows(), expected, "epoch log");
    }

    /// Run and epoch pairs in the epoch log.
    pub(crate) fn logged_epochs(&self) -> BTreeSet<(u64, u64)> {
        let read = |name: String| {
            let text = fs::read_to_string(self.path().join("_epochs").join(name)).expect("readable entry");
            let entry: serde_json::Value = serde_json::from_str(&text).expect("whole entry");
            let run: RunId = entry["run"].as_str().expect("run").parse().expect("a run");
            (run.number, entry["epoch"].as_u64().expect("epoch"))
        };
        self.names("_epochs").into_iter().map(read).collect()
    }
}

fn rows_of(dir: &Path, files: &[String]) -> BTreeMap<String, u32> {
    let mut rows = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(dir.join(file)).expect("readable file");
        assert!(text.is_empty() || text.ends_with('\n'), "{file} ends in the middle of a row");
        for line in text.lines() {
            *rows.entry(line.to_owned()).or_insert(0) += 1;
        }
    }
    rows
}

/// Where the files of a part are, by their numbers.
pub(crate) const FOLDERS: [&str; 3] = ["", "carrier=UA/day=1", "carrier=UA/day=2"];

/// A piece of a file of the host.
pub(crate) fn piece(number: usize, bytes: impl Into<Bytes>, rows: u64, last: bool) -> Rows {
    let folder = FOLDERS[number % FOLDERS.len()].to_owned();
    let file = FileChunk { number: number as u32, folder, extension: "jsonl".to_owned(), last };
    Rows { bytes: bytes.into(), rows, encoding: Encoding::Files, schema: 0, file: Some(file) }
}

pub(crate) fn parts(committables: &[Committable]) -> Vec<Part> {
    committables.iter().map(|committable| committable.part.clone()).collect()
}

pub(crate) fn unsealed(part: Part) -> Unsealed {
    Unsealed { part, committable: None, resources: Vec::new() }
}

pub(crate) fn io_error(kind: FsErrorKind) -> FsError {
    FsError { kind, op: "test", path: "test".to_owned(), detail: "made to fail".to_owned() }
}

/// Fails the call with this number, from 0, and everything after it. Tells whether it was reached.
pub(crate) fn crash_at(number: usize) -> (Probe, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let probe = move |op: FsOp<'_>| {
        let reached =
            if op.changes() { counter.fetch_add(1, Ordering::SeqCst) } else { counter.load(Ordering::SeqCst) };
        let dead = if op.changes() { reached >= number } else { reached > number };
        if dead { Err(io_error(FsErrorKind::Other)) } else { Ok(()) }
    };
    (Arc::new(probe), calls)
}

/// Fails only the call with this number.
pub(crate) fn fail_once(number: usize, kind: FsErrorKind) -> (Probe, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let probe = move |_: FsOp<'_>| {
        if counter.fetch_add(1, Ordering::SeqCst) == number { Err(io_error(kind)) } else { Ok(()) }
    };
    (Arc::new(probe), calls)
}

/// Lets somebody else run before the call with this number, reads included.
pub(crate) fn meanwhile(number: usize, other: impl FnOnce() + Send + 'static) -> (Probe, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let other: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(Some(Box::new(other)));
    let probe = move |_: FsOp<'_>| {
        if counter.fetch_add(1, Ordering::SeqCst) == number {
            let other = other.lock().expect("not poisoned").take();
            if let Some(other) = other {
                other();
            }
        }
        Ok(())
    };
    (Arc::new(probe), calls)
}

/// A file call, as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    CreateDir(PathBuf),
    Create(PathBuf),
    Write(PathBuf, u64, Vec<u8>),
    SyncFile(PathBuf),
    SyncDir(PathBuf),
    Rename(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Remove(PathBuf),
    Look,
}

/// Records every call.
pub(crate) fn recording() -> (Probe, Arc<Mutex<Vec<Op>>>) {
    let ops = Arc::new(Mutex::new(Vec::new()));
    let record = ops.clone();
    let probe = move |op: FsOp<'_>| {
        record.lock().expect("not poisoned").push(match op {
            FsOp::CreateDir(path) => Op::CreateDir(path.to_owned()),
            FsOp::Create(path) => Op::Create(path.to_owned()),
            FsOp::Write(path, at, bytes) => Op::Write(path.to_owned(), at, bytes.to_owned()),
            FsOp::SyncFile(path) => Op::SyncFile(path.to_owned()),
            FsOp::SyncDir(path) => Op::SyncDir(path.to_owned()),
            FsOp::Rename(from, to) => Op::Rename(from.to_owned(), to.to_owned()),
            FsOp::Link(from, to) => Op::Link(from.to_owned(), to.to_owned()),
            FsOp::Remove(path) => Op::Remove(path.to_owned()),
            FsOp::Open(_) | FsOp::Read(_) | FsOp::List(_) => Op::Look,
        });
        Ok(())
    };
    (Arc::new(probe), ops)
}

pub(crate) fn flushes(ops: &[Op]) -> usize {
    ops.iter().filter(|op| matches!(op, Op::SyncFile(_) | Op::SyncDir(_))).count()
}
