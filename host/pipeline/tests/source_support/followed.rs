//! A folder that is followed, step by step. Every call of a reader looks at the directories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::{TempDir, tempdir};
use tidegate_pipeline::source::files::{FilesOptions, FilesSource, FollowOptions, Format};
use tidegate_pipeline::source::{Read, Reader, Source, SourceError};
use tidegate_protocol::record::SourceCut;

use super::{append, cut, write};

/// What opening a source gives.
pub(crate) type Opened = Result<Vec<Box<dyn Reader>>, SourceError>;

/// A folder that is followed.
pub(crate) struct Followed {
    pub(crate) dir: TempDir,
    pub(crate) source: Arc<FilesSource>,
    pub(crate) tasks: u32,
    pub(crate) most_bytes: usize,
    pub(crate) readers: Vec<Box<dyn Reader>>,
    pub(crate) rows: Vec<String>,
    pub(crate) bad: Vec<String>,
    pub(crate) positions: BTreeMap<String, String>,
    /// Which task spoke of a partition in this run: never two.
    pub(crate) speakers: BTreeMap<String, usize>,
    pub(crate) runtime: Arc<tokio::runtime::Runtime>,
    /// The reader has no more rights than `nobody` to open files; the test, which is root, has.
    pub(crate) as_nobody: bool,
}

pub(crate) fn is_root() -> bool {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Whose rights this thread has when it opens files.
fn act_as(user: libc::uid_t) {
    // SAFETY: it changes the calling thread only.
    unsafe { libc::syscall(libc::SYS_setfsuid, user) };
}

const NOBODY: libc::uid_t = 65_534;

pub(crate) fn options(dir: &Path, pattern: &str, format: Format) -> FilesOptions {
    let mut options = FilesOptions::new(dir, vec![pattern.to_owned()], format);
    options.follow = Some(FollowOptions { poll: Duration::ZERO, ..FollowOptions::default() });
    options
}

impl Followed {
    pub(crate) fn new(pattern: &str) -> Self {
        Self::with(pattern, Format::Raw, |_| {})
    }

    pub(crate) fn with(pattern: &str, format: Format, change: impl Fn(&mut FilesOptions)) -> Self {
        let dir = tempdir().unwrap();
        let mut options = options(dir.path(), pattern, format);
        change(&mut options);
        let source = Arc::new(FilesSource::new(options).unwrap());
        let (rows, bad, positions, speakers) = Default::default();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let runtime = Arc::new(runtime);
        Self {
            dir,
            source,
            tasks: 1,
            most_bytes: 1 << 20,
            readers: Vec::new(),
            rows,
            bad,
            positions,
            speakers,
            runtime,
            as_nobody: false,
        }
    }

    pub(crate) fn cut(&self) -> SourceCut {
        cut(&self.positions)
    }

    pub(crate) fn try_open(&mut self) -> Result<(), SourceError> {
        self.readers.clear();
        self.act_as_reader();
        let opened = self.opening()();
        self.act_as_writer();
        self.opened(opened)
    }

    /// Opens it, on any thread.
    pub(crate) fn opening(&self) -> impl FnOnce() -> Opened + Send + 'static {
        let restored = (!self.positions.is_empty()).then(|| self.cut());
        let (source, tasks) = (Arc::clone(&self.source), self.tasks);
        move || source.open(source.contract().encodings[0], restored.as_ref(), tasks)
    }

    /// Threads have the rights of the one that starts them.
    pub(crate) fn act_as_reader(&self) {
        if self.as_nobody {
            act_as(NOBODY);
        }
    }

    pub(crate) fn act_as_writer(&self) {
        if self.as_nobody {
            act_as(0);
        }
    }

    pub(crate) fn opened(&mut self, opened: Opened) -> Result<(), SourceError> {
        self.readers = opened?;
        self.speakers.clear();
        for (task, reader) in self.readers.iter().enumerate() {
            let positions = reader.initial_positions();
            self.speakers.extend(positions.iter().map(|(partition, _)| (partition.clone(), task)));
            self.positions.extend(positions);
        }
        self.positions.retain(|_, position| !position.is_empty());
        Ok(())
    }

    pub(crate) fn open(&mut self) {
        self.try_open().unwrap();
    }

    /// One call of one reader. Whether anything came.
    pub(crate) fn call(&mut self, task: usize) -> Result<bool, SourceError> {
        self.act_as_reader();
        let read = self.runtime.block_on(self.readers[task].next(self.most_bytes));
        self.act_as_writer();
        self.came(task, read)
    }

    /// What a call gave.
    pub(crate) fn came(&mut self, task: usize, read: Result<Read, SourceError>) -> Result<bool, SourceError> {
        match read? {
            Read::End => panic!("there is no end"),
            Read::Idle => Ok(false),
            Read::Rows(batch) => {
                let text = String::from_utf8(batch.bytes.to_vec()).unwrap();
                assert_eq!(text.lines().count() as u64, batch.rows);
                assert!(text.is_empty() || text.ends_with('\n'), "torn: {text:?}");
                self.rows.extend(text.lines().map(str::to_owned));
                self.bad.extend(batch.bad.iter().map(ToString::to_string));
                for (partition, position) in batch.positions {
                    let speaker = *self.speakers.entry(partition.clone()).or_insert(task);
                    assert_eq!(speaker, task, "two tasks read {partition}");
                    if position.is_empty() {
                        self.positions.remove(&partition);
                    } else {
                        self.positions.insert(partition, position);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Until nothing comes any more.
    pub(crate) fn try_read(&mut self) -> Result<(), SourceError> {
        let mut quiet = 0;
        while quiet < 2 {
            quiet += 1;
            for task in 0..self.readers.len() {
                if self.call(task)? {
                    quiet = 0;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn read(&mut self) -> &mut Self {
        self.try_read().unwrap();
        self
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, rows: &[&str]) {
        self.read();
        assert_eq!(self.rows, rows);
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        write(self.dir.path(), name, text);
    }

    pub(crate) fn append(&self, name: &str, text: &str) {
        append(self.dir.path(), name, text);
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        fs::rename(self.dir.path().join(from), self.dir.path().join(to)).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.dir.path().join(name)).unwrap();
    }
}
