//! Every read of a source.

use std::sync::Arc;

use tidegate_pipeline::source::{ColumnsPlan, Read, Reader, Source, SourceContract, SourceError};
use tidegate_protocol::plugin::{BoxFuture, Encoding};
use tidegate_protocol::record::SourceCut;

use crate::sweep::director::{Director, Verdict};
use crate::sweep::effect::{SourceOp, What};
use crate::sweep::trace::Fact;

/// A source of one process.
pub(crate) struct TapSource {
    inner: Arc<dyn Source>,
    director: Director,
    /// It has lost the rows behind this many of each partition.
    ends_at: Option<u64>,
}

impl TapSource {
    pub(crate) fn new(inner: Arc<dyn Source>, director: &Director, ends_at: Option<u64>) -> Self {
        Self { inner, director: director.clone(), ends_at }
    }
}

fn failed() -> SourceError {
    SourceError::Io { path: "rows".into(), error: std::io::Error::other("simulated") }
}

fn furthest(cut: &SourceCut) -> Option<u64> {
    cut.partitions.entries().ok()?.iter().filter_map(|(_, place)| place.parse().ok()).max()
}

impl Source for TapSource {
    fn contract(&self) -> SourceContract {
        self.inner.contract()
    }

    fn open(
        &self,
        encoding: Encoding,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        self.opened(restored, || self.inner.open(encoding, restored, tasks))
    }

    fn has_columns(&self) -> bool {
        self.inner.has_columns()
    }

    fn open_columns(
        &self,
        plan: &ColumnsPlan,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        self.opened(restored, || self.inner.open_columns(plan, restored, tasks))
    }

    fn committed(&self, cut: &SourceCut) {
        if self.director.effect(What::Source { op: SourceOp::Committed }) == Verdict::Go {
            self.director.note(Fact::Published { host: self.director.host(), rows: cut.rows });
            self.inner.committed(cut);
        }
    }
}

impl TapSource {
    fn opened(
        &self,
        restored: Option<&SourceCut>,
        open: impl FnOnce() -> Result<Vec<Box<dyn Reader>>, SourceError>,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let host = self.director.host();
        let from = restored.and_then(furthest);
        let refuse = |error| {
            self.director.note(Fact::SourceOpened { host, from, ok: false });
            Err(error)
        };
        match self.director.effect(What::Source { op: SourceOp::Open }) {
            Verdict::Go => {}
            Verdict::Dead | Verdict::Do(_) => return refuse(failed()),
        }
        // What the contract asks of a source: a position that is gone is an error, never another position.
        if self.ends_at.is_some_and(|end| from.is_some_and(|from| from > end)) {
            let expected = "the rows up to the position of the checkpoint".to_owned();
            return refuse(SourceError::Configuration { key: "positions", expected });
        }
        let readers = open()?;
        self.director.note(Fact::SourceOpened { host, from, ok: true });
        let tap =
            |(task, inner)| Box::new(TapReader { inner, task, director: self.director.clone() }) as Box<dyn Reader>;
        Ok(readers.into_iter().enumerate().map(tap).collect())
    }
}

struct TapReader {
    inner: Box<dyn Reader>,
    task: usize,
    director: Director,
}

impl Reader for TapReader {
    fn next<'a>(&'a mut self, bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move {
            match self.director.effect(What::Source { op: SourceOp::Next }) {
                Verdict::Go => {}
                Verdict::Dead => std::future::pending().await,
                Verdict::Do(_) => return Err(failed()),
            }
            let mut read = self.inner.next(bytes).await?;
            if let Read::Rows(batch) = &mut read {
                // By where the rows are: what is read again, or from another partition, is older than what was read last.
                batch.watermark = batch.positions.first().and_then(|(_, place)| place.parse().ok());
            }
            let (rows, watermark, ended) = match &read {
                Read::Rows(batch) => (batch.rows, batch.watermark, false),
                Read::Idle => (0, None, false),
                Read::End => (0, None, true),
            };
            if let Read::Rows(batch) = &read
                && !batch.bad.is_empty()
            {
                self.director.note(Fact::Rejected(self.director.host()));
            }
            self.director.note(Fact::Read { host: self.director.host(), task: self.task, rows, watermark, ended });
            Ok(read)
        })
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        self.inner.initial_positions()
    }

    fn header(&self) -> Option<&[String]> {
        self.inner.header()
    }
}
