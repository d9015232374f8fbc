//! One task's share of the files. All reading happens on threads that may block, one hop per batch.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_protocol::plugin::BoxFuture;
use tokio::task::JoinHandle;

use super::deal::{Share, Waiting};
use super::gather::Gather;
use crate::source::rate::RateLimiter;
use crate::source::rows::Taken;
use crate::source::{Read, Reader, SourceError};

/// A file being read, of some format.
pub(in crate::source) trait OpenFile: Send + Sized + 'static {
    /// The file while it is not open.
    type Waiting: Waiting;
    /// How files are read; the same for all of a source.
    type Settings: Send + 'static;

    fn open(waiting: Self::Waiting, settings: &Self::Settings) -> Result<Self, SourceError>;

    /// Its partition.
    fn name(&self) -> &str;

    /// Behind the rows taken so far, as kept in checkpoints.
    fn position(&self) -> String;

    fn done(&self) -> bool;

    /// Rows up to about `most_bytes` and `most_rows`, and moves the position behind them.
    fn step(&mut self, most_bytes: usize, most_rows: u64) -> Result<Step, SourceError>;
}

/// What became of one step.
pub(in crate::source) enum Step {
    /// Rows, or at least a new position.
    Taken(Taken),
    /// On the way to the position.
    Skipping,
    /// The end; nothing was taken.
    Done,
}

/// See the module.
pub(in crate::source) struct FilesReader<F: OpenFile> {
    initial: Vec<(String, String)>,
    /// Here, or in `running`; nowhere after an error.
    files: Option<Box<Files<F>>>,
    running: Option<Running<F>>,
    limiter: Option<Arc<RateLimiter>>,
}

/// The files come back with what was read of them.
type HadRead<F> = (Box<Files<F>>, Result<Read, SourceError>);

/// A batch being read. Kept here and not in the future, so that dropping the future loses nothing.
struct Running<F: OpenFile> {
    task: JoinHandle<HadRead<F>>,
    allowed: u64,
}

impl<F: OpenFile> FilesReader<F> {
    pub(in crate::source) fn new(
        share: Share<F::Waiting>,
        settings: F::Settings,
        limiter: Option<Arc<RateLimiter>>,
        files_per_batch: usize,
    ) -> Self {
        let mut initial = share.gone;
        initial.extend(share.files.iter().map(|file| (file.name().to_owned(), file.position())));
        let waiting = share.files.into_iter().filter(|file| file.left() > 0).collect();
        let files = Some(Box::new(Files { settings, waiting, open: None, files_per_batch }));
        Self { initial, files, running: None, limiter }
    }

    async fn read(&mut self, max_bytes: usize) -> Result<Read, SourceError> {
        if self.running.is_none() {
            if self.files.as_ref().is_some_and(|files| files.ended()) {
                return Ok(Read::End);
            }
            let allowed = match &self.limiter {
                None => u64::MAX,
                Some(limiter) => limiter.take(u64::MAX).await,
            };
            if allowed == 0 {
                return Ok(Read::Idle);
            }
            let Some(mut files) = self.files.take() else {
                return Err(SourceError::Interrupted("it failed before".to_owned()));
            };
            let task = tokio::task::spawn_blocking(move || {
                let read = files.read(max_bytes.max(1), allowed);
                (files, read)
            });
            self.running = Some(Running { task, allowed });
        }
        let Some(running) = &mut self.running else { return Ok(Read::Idle) };
        let done = (&mut running.task).await;
        let allowed = running.allowed;
        self.running = None;
        let (files, read) = done.map_err(|error| SourceError::Interrupted(error.to_string()))?;
        if let (Some(limiter), Ok(read)) = (&self.limiter, &read) {
            let used = match read {
                Read::Rows(batch) => batch.rows + batch.bad.len() as u64,
                Read::Idle | Read::End => 0,
            };
            limiter.give_back(allowed.saturating_sub(used));
        }
        if read.is_ok() {
            self.files = Some(files);
        }
        read
    }
}

impl<F: OpenFile> Reader for FilesReader<F> {
    fn next<'a>(&'a mut self, max_bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(self.read(max_bytes))
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        self.initial.clone()
    }
}

/// What moves between threads.
struct Files<F: OpenFile> {
    settings: F::Settings,
    waiting: VecDeque<F::Waiting>,
    open: Option<F>,
    files_per_batch: usize,
}

impl<F: OpenFile> Files<F> {
    fn ended(&self) -> bool {
        self.open.is_none() && self.waiting.is_empty()
    }

    /// The next batch: rows of one large file or of several small ones.
    fn read(&mut self, most_bytes: usize, most_rows: u64) -> Result<Read, SourceError> {
        let mut gather = Gather::new(most_bytes, most_rows, self.files_per_batch);
        while let Some((bytes, rows)) = gather.room() {
            let open = match &mut self.open {
                Some(open) => open,
                None => match self.waiting.pop_front() {
                    Some(waiting) => self.open.insert(F::open(waiting, &self.settings)?),
                    None => break,
                },
            };
            let step = open.step(bytes, rows)?;
            if matches!(step, Step::Skipping) {
                break;
            }
            if let Step::Taken(taken) = step {
                gather.add(taken);
            }
            gather.moved(open.name(), open.position());
            if open.done() {
                self.open = None;
            }
        }
        Ok(match (gather.finish()?, self.ended()) {
            (Some(batch), _) => Read::Rows(batch),
            (None, false) => Read::Idle,
            (None, true) => Read::End,
        })
    }
}
