//! One task of a source: reads, hands rows on, and sends barriers when told to.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_columns::rows::{ColumnBatch, Rows};
use tidegate_columns::schema::Kept;
use tidegate_protocol::event::{Event, SourceProgress, TaskFailure, ToldSchema};
use tidegate_protocol::ids::{Epoch, SourceId};
use tidegate_protocol::plugin::{Batch, BoxFuture, Encoding};
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::CutReason;
use tokio::sync::{mpsc, watch};

use crate::dead_letter::{self, LetterIds};
use crate::driver::Report;
use crate::exchange::Closed;
use crate::router::Router;
use crate::source::known::KnownColumns;
use crate::source::{BadRow, Read, Reader, SourceBatch, SourceError};
use crate::spec::{OnBadRow, Origin, Origins};

/// Told to every source task: the rows so far are the epoch's.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) epoch: Epoch,
    pub(crate) reason: CutReason,
}

pub(crate) struct SourceTask {
    pub(crate) source: SourceId,
    pub(crate) task: u32,
    pub(crate) reader: Box<dyn Reader>,
    /// What the checkpoint says: only what differs from it is reported.
    pub(crate) restored: Positions,
    pub(crate) encoding: Encoding,
    /// The columns of its rows, where they are typed.
    pub(crate) columns: Option<KnownColumns>,
    /// The names of the columns that untyped rows have and do not tell, as the checkpoint keeps them.
    pub(crate) names: Option<ToldSchema>,
    pub(crate) batch_bytes: usize,
    pub(crate) on_bad_row: OnBadRow,
    pub(crate) origins: Option<Arc<dyn Origins>>,
    pub(crate) first_epoch: Epoch,
    pub(crate) cuts: mpsc::UnboundedReceiver<Cut>,
    /// Nothing is read while this is set: too many epochs wait.
    pub(crate) hold: watch::Receiver<bool>,
    /// One per next step: the first operator, or every sink that this source feeds.
    pub(crate) next: Vec<Router>,
    pub(crate) dead_letter: Option<Router>,
    pub(crate) letter_ids: LetterIds,
    pub(crate) report: Report,
}

type Pending = BoxFuture<'static, (Box<dyn Reader>, Result<Read, SourceError>)>;

/// What the task has done in the epoch that it writes.
#[derive(Default)]
struct EpochSoFar {
    rows: u64,
    dead_lettered: u64,
    busy: bool,
}

impl SourceTask {
    pub(crate) async fn run(mut self) {
        // A closed channel means that the run is ending; whoever closed it has said why.
        let _ = self.read_on().await;
    }

    async fn read_on(&mut self) -> Result<(), Closed> {
        let reader = std::mem::replace(&mut self.reader, Box::new(Nothing));
        // Since the last cut. There may be very many partitions of which few move.
        let mut moved = self.new_positions(reader.as_ref());
        self.learn_names(reader.as_ref());
        let mut pending = Some(start(reader, self.batch_bytes));
        let mut epoch = self.first_epoch;
        let mut so_far = EpochSoFar::default();
        let mut watermark = None;
        let mut ended = false;
        loop {
            let held = *self.hold.borrow_and_update();
            tokio::select! {
                biased;
                cut = self.cuts.recv() => {
                    let cut = cut.ok_or(Closed)?;
                    // A read that is under way belongs to the next epoch: its rows have not been handed on.
                    self.cut(&cut, std::mem::take(&mut moved), &mut so_far, watermark, ended).await?;
                    epoch = cut.epoch.next();
                    if matches!(cut.reason, CutReason::End | CutReason::Stop) {
                        return self.wait_for_close().await;
                    }
                }
                Ok(()) = self.hold.changed() => {}
                (reader, read) = read_or_wait(&mut pending), if !held => {
                    pending = None;
                    self.learn_names(reader.as_ref());
                    match read {
                        Ok(Read::Rows(batch)) => {
                            let risen = batch.watermark.filter(|risen| watermark.is_none_or(|old| *risen > old));
                            moved.extend(batch.positions.iter().cloned());
                            self.hand_on(epoch, batch, &mut so_far).await?;
                            if let Some(risen) = risen {
                                watermark = Some(risen);
                                for next in &self.next {
                                    next.watermark(risen).await?;
                                }
                            }
                            pending = Some(start(reader, self.batch_bytes));
                        }
                        Ok(Read::Idle) => pending = Some(start(reader, self.batch_bytes)),
                        Ok(Read::End) => {
                            ended = true;
                            self.report.source_ended(&self.source, self.task);
                        }
                        Err(error) => {
                            self.fail(TaskFailure::Source {
                                source: self.source.clone(),
                                message: error.to_string(),
                                permanent: error.permanent(),
                            });
                            return self.wait_for_close().await;
                        }
                    }
                }
            }
        }
    }

    /// What the reader begins with and the checkpoint does not say already.
    fn new_positions(&mut self, reader: &dyn Reader) -> BTreeMap<String, String> {
        let restored = std::mem::take(&mut self.restored);
        let known = restored.entries().ok();
        let is_known = |partition: &str, position: &str| known.and_then(|known| known.get(partition)) == Some(position);
        reader.initial_positions().into_iter().filter(|(partition, position)| !is_known(partition, position)).collect()
    }

    fn learn_names(&mut self, reader: &dyn Reader) {
        if self.names.is_none() {
            let told = |names: &[String]| ToldSchema { revision: 0, text: Kept::names_to_text(names) };
            self.names = reader.header().map(told);
        }
    }

    async fn hand_on(&mut self, epoch: Epoch, batch: SourceBatch, so_far: &mut EpochSoFar) -> Result<(), Closed> {
        let nothing_new = batch.rows == 0 && batch.bad.is_empty() && batch.positions.is_empty();
        if !so_far.busy && !nothing_new {
            so_far.busy = true;
            self.report.event(Event::Busy);
        }
        if !batch.bad.is_empty() {
            self.dead_letter(epoch, &batch.bad, so_far).await?;
        }
        if batch.rows > 0 {
            so_far.rows += batch.rows;
            self.report.rows_read(batch.rows);
            if let (Some(known), Some(columns)) = (&self.columns, &batch.columns) {
                known.see(columns);
            }
            let rows = match batch.columns {
                Some(columns) => Rows::Columns(ColumnBatch::new(columns)),
                None => Rows::Encoded(Batch::new(batch.bytes, batch.rows, self.encoding)),
            };
            for next in &mut self.next {
                next.rows(rows.clone()).await?;
            }
        }
        Ok(())
    }

    async fn dead_letter(&mut self, epoch: Epoch, bad: &[BadRow], so_far: &mut EpochSoFar) -> Result<(), Closed> {
        match (&mut self.dead_letter, self.on_bad_row) {
            (Some(router), OnBadRow::DeadLetter) => {
                so_far.dead_lettered += bad.len() as u64;
                let origins = match self.origins.clone() {
                    Some(origins) => find_origins(origins, bad).await,
                    None => Vec::new(),
                };
                router.rows(dead_letter::of_bad_rows(&mut self.letter_ids, &self.source, epoch, bad, &origins)).await
            }
            _ => {
                let row = &bad[0];
                let doubt = self.columns.as_ref().map(KnownColumns::doubt).unwrap_or_default();
                self.fail(TaskFailure::BadRow {
                    message: format!(
                        "source `{}`: {}, line {}: {}; mend the line, or set `on-bad-row = \"dead-letter\"` with a \
                         [dead-letter] sink{doubt}",
                        self.source, row.partition, row.line, row.reason
                    ),
                });
                self.wait_for_close().await
            }
        }
    }

    async fn cut(
        &mut self,
        cut: &Cut,
        moved: BTreeMap<String, String>,
        so_far: &mut EpochSoFar,
        watermark: Option<i64>,
        ended: bool,
    ) -> Result<(), Closed> {
        let done = std::mem::take(so_far);
        self.report.event(Event::SourceCut {
            source: self.source.clone(),
            task: self.task,
            epoch: cut.epoch,
            progress: SourceProgress {
                moved,
                ended,
                watermark,
                rows: done.rows,
                dead_lettered: done.dead_lettered,
                schema: self.columns.as_ref().map(KnownColumns::told).or_else(|| self.names.clone()),
            },
        });
        for next in self.next.iter().chain(&self.dead_letter) {
            next.barrier(cut.epoch).await?;
        }
        Ok(())
    }

    fn fail(&self, reason: TaskFailure) {
        self.report.event(Event::EpochLost { reason });
    }

    /// Keeps the channels open, so that nothing that follows mistakes the end of this task for the end of the run.
    async fn wait_for_close(&mut self) -> Result<(), Closed> {
        while self.cuts.recv().await.is_some() {}
        Err(Closed)
    }
}

/// Where rows were before; a row that nothing is known of is missing at the end, or has `None`.
async fn find_origins(origins: Arc<dyn Origins>, bad: &[BadRow]) -> Vec<Option<Origin>> {
    let places: Vec<_> = bad.iter().map(|row| (row.partition.clone(), row.line)).collect();
    let find = move || places.iter().map(|(partition, line)| origins.of(partition, *line)).collect();
    // A panic there costs the letters a hint, and no row.
    tokio::task::spawn_blocking(find).await.unwrap_or_default()
}

fn start(mut reader: Box<dyn Reader>, bytes: usize) -> Pending {
    Box::pin(async move {
        let read = reader.next(bytes).await;
        (reader, read)
    })
}

async fn read_or_wait(pending: &mut Option<Pending>) -> (Box<dyn Reader>, Result<Read, SourceError>) {
    match pending {
        Some(pending) => pending.await,
        None => std::future::pending().await,
    }
}

/// Stands in while the real reader is inside a pending read.
struct Nothing;

impl Reader for Nothing {
    fn next<'a>(&'a mut self, _bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async { Ok(Read::End) })
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}
