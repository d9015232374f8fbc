//! One task's share of the files. All reading happens on threads that may block, one hop per batch.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_protocol::plugin::BoxFuture;
use tokio::task::JoinHandle;

use super::gather::Gather;
use super::partition::{OpenPartition, Partition, Settings, Step};
use crate::source::rate::RateLimiter;
use crate::source::{Read, Reader, SourceError};

/// See the module.
pub(super) struct FilesReader {
    initial: Vec<(String, String)>,
    /// Here, or in `running`; nowhere after an error.
    files: Option<Box<Files>>,
    running: Option<Running>,
    limiter: Option<Arc<RateLimiter>>,
}

/// A batch being read. Kept here and not in the future, so that dropping the future loses nothing.
struct Running {
    task: JoinHandle<(Box<Files>, Result<Read, SourceError>)>,
    allowed: u64,
}

impl FilesReader {
    pub(super) fn new(
        share: Vec<Partition>,
        gone: Vec<(String, String)>,
        settings: Settings,
        limiter: Option<Arc<RateLimiter>>,
        files_per_batch: usize,
    ) -> Self {
        let mut initial = gone;
        initial.extend(share.iter().map(|p| (p.name.to_string(), p.position.to_json())));
        let waiting = share.into_iter().filter(|p| !p.position.done).collect();
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

impl Reader for FilesReader {
    fn next<'a>(&'a mut self, max_bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(self.read(max_bytes))
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        self.initial.clone()
    }
}

/// What moves between threads.
struct Files {
    settings: Settings,
    waiting: VecDeque<Partition>,
    open: Option<OpenPartition>,
    files_per_batch: usize,
}

impl Files {
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
                    Some(partition) => self.open.insert(OpenPartition::open(partition, &self.settings)?),
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
            gather.moved(open.name(), open.position().to_json());
            if open.position().done {
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
