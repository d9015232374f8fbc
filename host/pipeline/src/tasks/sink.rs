//! One participant of a sink: aligns its inputs, stages rows through a writer, prepares at the barrier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_protocol::event::{Event, TaskFailure};
use tidegate_protocol::ids::{Epoch, PartId, PipelineId, SinkId};
use tidegate_protocol::plugin::{Batch, Call, CallContext, CallFault, ErrorKind, FaultKind, Prepared, Reject, Writer};
use tidegate_protocol::record::CutReason;

use crate::dead_letter;
use crate::driver::Report;
use crate::exchange::{Closed, Input, InputEnd, Inputs};
use crate::router::{Router, lines};
use crate::tasks::actor::timed;

pub(crate) struct SinkTask {
    pub(crate) pipeline: PipelineId,
    pub(crate) sink: SinkId,
    pub(crate) ordinal: u32,
    pub(crate) plugin: String,
    pub(crate) writer: Box<dyn Writer>,
    pub(crate) ctx: CallContext,
    pub(crate) inputs: Inputs,
    pub(crate) first_epoch: Epoch,
    pub(crate) dead_letter: Option<Router>,
    pub(crate) call_timeout: Duration,
    /// Bytes to keep until prepare once `rejects_in_prepare` is set.
    pub(crate) reject_window: usize,
    /// The plugin has rejected rows in prepare before. Shared by all participants and by later runs of this process.
    pub(crate) rejects_in_prepare: Arc<AtomicBool>,
    pub(crate) report: Report,
}

/// The part being written.
#[derive(Default)]
struct PartSoFar {
    begun: bool,
    rows_in: u64,
    rejected: u64,
    /// Rows kept for the case that prepare rejects some; empty unless the plugin is known to do that.
    kept: Vec<Bytes>,
    kept_bytes: usize,
    asked_for_barrier: bool,
}

/// Why the task ends.
enum Stop {
    Closed,
    Lost(TaskFailure),
}

impl From<Closed> for Stop {
    fn from(_: Closed) -> Self {
        Stop::Closed
    }
}

impl SinkTask {
    pub(crate) async fn run(mut self) {
        if let Err(Stop::Lost(reason)) = self.work().await {
            self.report.event(Event::EpochLost { reason });
            self.report.until_closed().await;
        }
    }

    async fn work(&mut self) -> Result<(), Stop> {
        let mut epoch = self.first_epoch;
        let mut part = PartSoFar::default();
        loop {
            match self.inputs.next().await {
                Ok(Input::Rows(batch, permit)) => {
                    self.stage(epoch, batch, &mut part).await?;
                    drop(permit);
                }
                // Sinks have no use for event time yet.
                Ok(Input::Watermark(_)) => {}
                Ok(Input::Barrier(ended)) => {
                    self.barrier(ended, std::mem::take(&mut part)).await?;
                    epoch = ended.next();
                }
                Err(InputEnd::Closed) => return Err(Stop::Closed),
                Err(InputEnd::Barriers(error)) => return Err(Stop::Lost(TaskFailure::Host(error.to_string()))),
            }
        }
    }

    async fn stage(&mut self, epoch: Epoch, batch: Batch, part: &mut PartSoFar) -> Result<(), Stop> {
        if !part.begun {
            let id = PartId::mint(&self.pipeline, &self.sink, self.ctx.run, epoch, self.ordinal, 1);
            timed(&self.plugin, Call::Begin, self.call_timeout, self.writer.begin(&self.ctx, &id))
                .await
                .map_err(|fault| self.lost(fault))?;
            part.begun = true;
        }
        part.rows_in += batch.rows;
        self.keep(&batch, part);
        // Halves of a batch that held a bad row are staged in order: the last pushed is the next.
        let mut left = vec![batch];
        while let Some(batch) = left.pop() {
            let written =
                timed(&self.plugin, Call::Write, self.call_timeout, self.writer.write(&self.ctx, batch.clone())).await;
            match written {
                Ok(rejects) => self.reject(epoch, &batch, &rejects, part).await?,
                Err(fault) if is_bad_batch(&fault) && batch.rows > 1 => {
                    let (first, second) = halve(&batch);
                    left.push(second);
                    left.push(first);
                }
                Err(fault) if is_bad_batch(&fault) => {
                    let reject = reject_of(&fault);
                    self.reject(epoch, &batch, &[reject], part).await?;
                }
                Err(fault) => return Err(self.lost(fault)),
            }
        }
        Ok(())
    }

    /// Rows rejected in `write` go to the dead-letter sink, in the same epoch.
    async fn reject(
        &mut self,
        epoch: Epoch,
        batch: &Batch,
        rejects: &[Reject],
        part: &mut PartSoFar,
    ) -> Result<(), Stop> {
        if rejects.is_empty() {
            return Ok(());
        }
        let rows = rows_of(rejects, std::slice::from_ref(&batch.bytes))
            .ok_or_else(|| self.lost(self.malformed(Call::Write, batch.rows)))?;
        part.rejected += rejects.len() as u64;
        self.hand_to_dead_letter(epoch, rejects, &rows).await
    }

    async fn barrier(&mut self, epoch: Epoch, mut part: PartSoFar) -> Result<(), Stop> {
        let prepared = if part.begun { Some(self.prepare(epoch, &mut part).await?) } else { None };
        if let Some(dead_letter) = &self.dead_letter {
            dead_letter.barrier(epoch).await?;
        }
        self.report.event(Event::PartPrepared {
            sink: self.sink.clone(),
            ordinal: self.ordinal,
            epoch,
            rows_in: part.rows_in,
            rejected_in_write: part.rejected,
            prepared,
        });
        Ok(())
    }

    async fn prepare(&mut self, epoch: Epoch, part: &mut PartSoFar) -> Result<Prepared, Stop> {
        let prepared = timed(&self.plugin, Call::Prepare, self.call_timeout, self.writer.prepare(&self.ctx))
            .await
            .map_err(|fault| self.lost(fault))?;
        if prepared.rejects.is_empty() {
            return Ok(prepared);
        }
        let was_kept = !part.kept.is_empty();
        if self.dead_letter.is_none() {
            return Err(self.bad_row(&prepared.rejects[0]));
        }
        if !was_kept && !self.rejects_in_prepare.swap(true, Ordering::Relaxed) {
            // The rows are gone; the next run keeps them.
            let message = format!("{} rejects rows in prepare; reading them again to keep their bytes", self.plugin);
            return Err(Stop::Lost(TaskFailure::Host(message)));
        }
        let rows = rows_of(&prepared.rejects, &part.kept)
            .ok_or_else(|| self.lost(self.malformed(Call::Prepare, part.rows_in)))?;
        self.hand_to_dead_letter(epoch, &prepared.rejects, &rows).await?;
        Ok(prepared)
    }

    async fn hand_to_dead_letter(&mut self, epoch: Epoch, rejects: &[Reject], rows: &[Bytes]) -> Result<(), Stop> {
        let Some(dead_letter) = &mut self.dead_letter else {
            return Err(self.bad_row(&rejects[0]));
        };
        let letters =
            dead_letter::of_rejects(&self.sink, epoch, rejects.iter().zip(rows.iter().map(|row| row.as_ref())));
        dead_letter.rows(letters).await?;
        Ok(())
    }

    fn keep(&mut self, batch: &Batch, part: &mut PartSoFar) {
        if !self.rejects_in_prepare.load(Ordering::Relaxed) {
            return;
        }
        part.kept.push(batch.bytes.clone());
        part.kept_bytes += batch.bytes.len();
        if part.kept_bytes > self.reject_window && !part.asked_for_barrier {
            part.asked_for_barrier = true;
            self.report.event(Event::BarrierDue { reason: CutReason::Interval });
        }
    }

    fn lost(&self, fault: CallFault) -> Stop {
        Stop::Lost(TaskFailure::Plugin(self.sink.clone(), fault))
    }

    /// There is nowhere to put it.
    fn bad_row(&self, reject: &Reject) -> Stop {
        Stop::Lost(TaskFailure::BadRow {
            message: format!(
                "sink `{}` does not take a row: {} ({}); mend the row, or add a `[dead-letter]` table",
                self.sink, reject.message, reject.code
            ),
        })
    }

    fn malformed(&self, call: Call, rows: u64) -> CallFault {
        CallFault {
            plugin: self.plugin.clone(),
            call,
            kind: FaultKind::Malformed,
            message: format!("rejected rows must be distinct, in rising order and below {rows}"),
        }
    }
}

fn is_bad_batch(fault: &CallFault) -> bool {
    fault.error().is_some_and(|error| error.kind == ErrorKind::BadBatch)
}

fn reject_of(fault: &CallFault) -> Reject {
    let (code, message) = match fault.error() {
        Some(error) => (error.code.clone(), error.message.clone()),
        None => (String::from("bad-batch"), fault.to_string()),
    };
    Reject { row: 0, code, message }
}

/// Cuts a batch of at least two rows in two.
fn halve(batch: &Batch) -> (Batch, Batch) {
    let first_rows = batch.rows / 2;
    let cut: usize = lines(&batch.bytes).take(first_rows as usize).map(<[u8]>::len).sum();
    (
        Batch { bytes: batch.bytes.slice(..cut), rows: first_rows, ..batch.clone() },
        Batch { bytes: batch.bytes.slice(cut..), rows: batch.rows - first_rows, ..batch.clone() },
    )
}

/// The bytes of the rejected rows; `None` when the numbers do not rise or do not exist.
fn rows_of(rejects: &[Reject], batches: &[Bytes]) -> Option<Vec<Bytes>> {
    let mut wanted = rejects.iter().map(|reject| reject.row).peekable();
    let mut rows = Vec::with_capacity(rejects.len());
    let mut number = 0u64;
    for batch in batches {
        for line in lines(batch) {
            if wanted.peek() == Some(&number) {
                wanted.next();
                rows.push(batch.slice_ref(line));
            }
            number += 1;
        }
    }
    (rows.len() == rejects.len()).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_protocol::plugin::Encoding;

    fn reject(row: u64) -> Reject {
        Reject { row, code: "c".into(), message: "m".into() }
    }

    #[test]
    fn rejected_rows_are_found_across_batches() {
        let batches = [Bytes::from_static(b"a\nb\n"), Bytes::from_static(b"c\n")];
        let rows = rows_of(&[reject(1), reject(2)], &batches);
        assert_eq!(rows, Some(vec![Bytes::from_static(b"b\n"), Bytes::from_static(b"c\n")]));
    }

    #[test]
    fn rejects_out_of_range_twice_or_out_of_order_are_malformed() {
        let batches = [Bytes::from_static(b"a\nb\n")];
        assert_eq!(rows_of(&[reject(2)], &batches), None);
        assert_eq!(rows_of(&[reject(1), reject(1)], &batches), None);
        assert_eq!(rows_of(&[reject(1), reject(0)], &batches), None);
    }

    #[test]
    fn halves_hold_every_row_once() {
        let batch = Batch::new(Bytes::from_static(b"a\nbb\nccc\n"), 3, Encoding::Raw);
        let (first, second) = halve(&batch);
        assert_eq!((first.bytes.as_ref(), first.rows), (&b"a\n"[..], 1));
        assert_eq!((second.bytes.as_ref(), second.rows), (&b"bb\nccc\n"[..], 2));
    }
}
