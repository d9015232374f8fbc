//! One participant of a sink: aligns its inputs, stages rows through a writer, prepares at the barrier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidegate_columns::added::Stamp;
use tidegate_columns::decode::{CsvDialect, record_length};
use tidegate_columns::encode::encode;
use tidegate_columns::rows::Rows;
use tidegate_columns::{ColumnsError, ColumnsErrorKind};
use tidegate_protocol::event::{Event, Notice, TaskFailure};
use tidegate_protocol::ids::{Epoch, PartId, SinkId};
use tidegate_protocol::plugin::{
    Batch, Call, CallContext, CallFault, Encoding, ErrorKind, FaultKind, Prepared, Reject, Writer,
};
use tidegate_protocol::record::CutReason;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::dead_letter::{self, LetterIds};
use crate::driver::Report;
use crate::exchange::{Closed, Input, InputEnd, Inputs};
use crate::log::Blocking;
use crate::router::{Router, lines};
use crate::spec::Pipeline;
use crate::tasks::actor::{Callee, timed};
use crate::tasks::growth::Growth;
use crate::tasks::shaper::{Shaped, Shaper, Staged, staged};

pub(crate) struct SinkTask {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) sink: SinkId,
    pub(crate) ordinal: u32,
    pub(crate) plugin: Callee,
    pub(crate) writer: Box<dyn Writer>,
    pub(crate) ctx: CallContext,
    pub(crate) inputs: Inputs,
    /// Not here while it works, nor after it died.
    pub(crate) shaper: Option<Box<Shaper>>,
    pub(crate) blocking: Blocking,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) first_epoch: Epoch,
    /// The epoch whose barrier was sent last.
    pub(crate) injected: watch::Receiver<Epoch>,
    /// The pace that the run was opened with.
    pub(crate) pace: u32,
    pub(crate) dead_letter: Option<Router>,
    pub(crate) letter_ids: LetterIds,
    pub(crate) call_timeout: Duration,
    /// Bytes to keep until prepare once `rejects_in_prepare` is set.
    pub(crate) reject_window: usize,
    /// The plugin has rejected rows in prepare before. Shared by all participants and by later runs of this process.
    pub(crate) rejects_in_prepare: Arc<AtomicBool>,
    pub(crate) growth: Growth,
    pub(crate) report: Report,
}

/// The part being written.
#[derive(Default)]
struct PartSoFar {
    /// Minted with its first rows.
    id: Option<PartId>,
    begun: bool,
    rows_in: u64,
    filtered: u64,
    rejected: u64,
    /// Rows kept for the case that prepare rejects some; empty unless the plugin is known to do that.
    kept: Vec<Kept>,
    kept_bytes: usize,
    asked_for_barrier: bool,
}

/// Rows that the plugin was given.
enum Kept {
    Encoded(Batch),
    /// In the encoding of which they were given.
    Columns(RecordBatch, Encoding),
}

impl Kept {
    fn of(staged: &Staged) -> Self {
        match &staged.columns {
            Some(columns) => Kept::Columns(columns.clone(), staged.batch.encoding),
            None => Kept::Encoded(staged.batch.clone()),
        }
    }
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
                Ok(Input::Rows(rows, permit)) => {
                    self.take_in(epoch, rows, &mut part).await?;
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

    /// Rows that came in, on their way to the plugin.
    async fn take_in(&mut self, epoch: Epoch, rows: Rows, part: &mut PartSoFar) -> Result<(), Stop> {
        part.rows_in += rows.rows();
        let stamp = Stamp {
            epoch: epoch.0,
            part: self.id_of(part, epoch).short.as_str().into(),
            emitted_at: i64::try_from(self.clock.now_ms()).unwrap_or(i64::MAX),
        };
        let Shaped { staged, filtered, bad } = self.shaped(move |shaper| shaper.shape(rows, &stamp)).await?;
        part.filtered += filtered;
        if !bad.is_empty() {
            let (rejects, rows): (Vec<_>, Vec<_>) = bad.into_iter().unzip();
            part.rejected += rejects.len() as u64;
            self.hand_to_dead_letter(epoch, &rejects, &rows).await?;
        }
        for staged in staged {
            self.stage(epoch, staged, part).await?;
        }
        if self.shaper.as_ref().is_some_and(|shaper| shaper.crowded()) {
            self.ask_for_barrier(part);
            // What comes until the barrier does is bounded only if nothing is taken in before it is sent. It is an error if
            // nobody can send one any more: then the inputs are at their end.
            let _ = self.injected.wait_for(|sent| *sent >= epoch).await;
        }
        Ok(())
    }

    fn ask_for_barrier(&self, part: &mut PartSoFar) {
        if !std::mem::replace(&mut part.asked_for_barrier, true) {
            self.report.event(Event::BarrierDue { reason: CutReason::Interval });
        }
    }

    /// Lets the shaper work; on a thread of its own, if it has much to do.
    async fn shaped<T: Send + 'static>(
        &mut self,
        call: impl FnOnce(&mut Shaper) -> Result<T, ColumnsError> + Send + 'static,
    ) -> Result<T, Stop> {
        let Some(mut shaper) = self.shaper.take() else {
            return Err(Stop::Lost(TaskFailure::Host(format!("the rows of sink `{}` cannot be shaped", self.sink))));
        };
        let (shaper, result) = if shaper.works() && self.blocking == Blocking::Threads {
            let work = move || {
                let result = call(&mut shaper);
                (shaper, result)
            };
            tokio::task::spawn_blocking(work).await.map_err(|error| {
                Stop::Lost(TaskFailure::Host(format!("shaping the rows of sink `{}`: {error}", self.sink)))
            })?
        } else {
            let result = call(&mut shaper);
            (shaper, result)
        };
        self.shaper = Some(shaper);
        result.map_err(|error| self.not_shaped(&error))
    }

    fn not_shaped(&self, error: &ColumnsError) -> Stop {
        Stop::Lost(match error.kind {
            ColumnsErrorKind::Io | ColumnsErrorKind::Internal => {
                TaskFailure::Host(format!("sink `{}`: {error}", self.sink))
            }
            // A source that cannot be read again would be lost.
            ColumnsErrorKind::TooManyFiles if self.replayable() && self.pipeline.pace.slow_down(self.pace) => {
                TaskFailure::Host(format!("sink `{}`: {error}. Reading in smaller pieces", self.sink))
            }
            _ => TaskFailure::Shape { sink: self.sink.clone(), message: error.message.clone() },
        })
    }

    fn replayable(&self) -> bool {
        self.pipeline.sources.iter().all(|entry| entry.source.contract().replayable)
    }

    fn id_of<'p>(&self, part: &'p mut PartSoFar, epoch: Epoch) -> &'p PartId {
        let mint = || PartId::mint(&self.pipeline.id, &self.sink, self.ctx.run, epoch, self.ordinal, 1);
        part.id.get_or_insert_with(mint)
    }

    async fn stage(&mut self, epoch: Epoch, staged: Staged, part: &mut PartSoFar) -> Result<(), Stop> {
        if !part.begun {
            let id = self.id_of(part, epoch).clone();
            timed(&self.plugin, Call::Begin, self.call_timeout, self.writer.begin(&self.ctx, &id))
                .await
                .map_err(|fault| self.lost(fault))?;
            part.begun = true;
        }
        self.keep(&staged, part);
        // Halves of a batch that held a bad row are staged in order: the last pushed is the next.
        let mut left = vec![staged];
        while let Some(staged) = left.pop() {
            let batch = &staged.batch;
            let written =
                timed(&self.plugin, Call::Write, self.call_timeout, self.writer.write(&self.ctx, batch.clone())).await;
            match written {
                Ok(rejects) => self.reject(epoch, &staged, &rejects, part).await?,
                Err(fault) if !is_bad_batch(&fault) || batch.file.is_some() => return Err(self.lost(fault)),
                Err(_) if batch.rows > 1 => {
                    let (first, second) = halve(&staged).map_err(|error| self.not_shaped(&error))?;
                    left.push(second);
                    left.push(first);
                }
                Err(fault) => self.reject(epoch, &staged, &[reject_of(&fault)], part).await?,
            }
        }
        Ok(())
    }

    /// Rows rejected in `write` go to the dead-letter sink, in the same epoch.
    async fn reject(
        &mut self,
        epoch: Epoch,
        staged: &Staged,
        rejects: &[Reject],
        part: &mut PartSoFar,
    ) -> Result<(), Stop> {
        if rejects.is_empty() {
            return Ok(());
        }
        let rows = rows_of(rejects, &[Kept::of(staged)])
            .ok_or_else(|| self.lost(self.malformed(Call::Write, staged.batch.rows)))?;
        part.rejected += rejects.len() as u64;
        self.hand_to_dead_letter(epoch, rejects, &rows).await
    }

    async fn barrier(&mut self, epoch: Epoch, mut part: PartSoFar) -> Result<(), Stop> {
        if part.rows_in > 0 {
            for staged in self.shaped(Shaper::finish).await? {
                self.stage(epoch, staged, &mut part).await?;
            }
        }
        let prepared = if part.begun { Some(self.prepare(epoch, &mut part).await?) } else { None };
        if let Some(dead_letter) = &self.dead_letter {
            dead_letter.barrier(epoch).await?;
        }
        self.report.event(Event::PartPrepared {
            sink: self.sink.clone(),
            ordinal: self.ordinal,
            epoch,
            rows_in: part.rows_in,
            filtered: part.filtered,
            rejected_in_write: part.rejected,
            prepared,
        });
        Ok(())
    }

    async fn prepare(&mut self, epoch: Epoch, part: &mut PartSoFar) -> Result<Prepared, Stop> {
        let prepared = timed(&self.plugin, Call::Prepare, self.call_timeout, self.writer.prepare(&self.ctx))
            .await
            .map_err(|fault| self.lost(fault))?;
        if let Some(words) = self.writer.usage().and_then(|usage| self.growth.note(usage)) {
            let message = format!("sink `{}`, participant {}: {words}", self.sink, self.ordinal);
            self.report.notice(Notice::Warning(message));
        }
        if prepared.rejects.is_empty() {
            return Ok(prepared);
        }
        let was_kept = !part.kept.is_empty();
        if self.dead_letter.is_none() {
            return Err(self.bad_row(&prepared.rejects[0], None));
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
            return Err(self.bad_row(&rejects[0], rows.first()));
        };
        let rejected = rejects.iter().zip(rows.iter().map(|row| row.as_ref()));
        // Rows of a replay were tried before, and are not told apart here.
        let attempt = self.pipeline.sources.iter().all(|entry| entry.origins.is_none()).then_some(1);
        let letters = dead_letter::of_rejects(&mut self.letter_ids, &self.sink, epoch, attempt, rejected);
        dead_letter.rows(letters).await?;
        Ok(())
    }

    fn keep(&mut self, staged: &Staged, part: &mut PartSoFar) {
        // Rows within files cannot be told from one another.
        if !self.rejects_in_prepare.load(Ordering::Relaxed) || staged.batch.file.is_some() {
            return;
        }
        part.kept.push(Kept::of(staged));
        part.kept_bytes += staged.batch.bytes.len();
        if part.kept_bytes > self.reject_window {
            self.ask_for_barrier(part);
        }
    }

    fn lost(&self, fault: CallFault) -> Stop {
        Stop::Lost(TaskFailure::Plugin(self.sink.clone(), fault))
    }

    /// There is nowhere to put it.
    fn bad_row(&self, reject: &Reject, row: Option<&Bytes>) -> Stop {
        let row = row.map(|row| format!("; the row: {}", shown(row))).unwrap_or_default();
        Stop::Lost(TaskFailure::BadRow {
            message: format!(
                "sink `{}` does not take a row: {} ({}); mend the row, or add a `[dead-letter]` table{row}",
                self.sink, reject.message, reject.code
            ),
        })
    }

    fn malformed(&self, call: Call, rows: u64) -> CallFault {
        let message = format!("rejected rows must be distinct, in rising order and below {rows}");
        self.plugin.fault(call, FaultKind::Malformed, message)
    }
}

/// The beginning of a row, for a person to find it by.
fn shown(row: &[u8]) -> String {
    const SHOWN: usize = 200;
    let text = String::from_utf8_lossy(row.get(..SHOWN).unwrap_or(row));
    let more = if row.len() > SHOWN { "…" } else { "" };
    format!("{}{more}", text.trim_end().replace(char::is_control, " "))
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
fn halve(staged_rows: &Staged) -> Result<(Staged, Staged), ColumnsError> {
    let Staged { batch, columns } = staged_rows;
    let first_rows = batch.rows / 2;
    if let Some(columns) = columns {
        let (first, rest) = (first_rows as usize, columns.num_rows() - first_rows as usize);
        let half = |from, rows| staged(columns.slice(from, rows), batch.encoding);
        return Ok((half(0, first)?, half(first, rest)?));
    }
    let cut: usize = rows_in(batch).take(first_rows as usize).map(<[u8]>::len).sum();
    let half = |bytes, rows| Staged { batch: Batch { bytes, rows, ..batch.clone() }, columns: None };
    Ok((half(batch.bytes.slice(..cut), first_rows), half(batch.bytes.slice(cut..), batch.rows - first_rows)))
}

/// The rows of a batch, each with its line end.
fn rows_in(batch: &Batch) -> Box<dyn Iterator<Item = &[u8]> + '_> {
    if batch.encoding != Encoding::Csv {
        return Box::new(lines(&batch.bytes));
    }
    // A line end within quotes ends no record.
    let mut rest = batch.bytes.as_ref();
    Box::new(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (record, after) = rest.split_at(record_length(rest, CsvDialect::default()));
        rest = after;
        Some(record)
    }))
}

/// The bytes of the rejected rows; `None` when the numbers do not rise or do not exist.
fn rows_of(rejects: &[Reject], batches: &[Kept]) -> Option<Vec<Bytes>> {
    let mut wanted = rejects.iter().map(|reject| reject.row).peekable();
    let mut rows = Vec::with_capacity(rejects.len());
    let mut number = 0u64;
    for kept in batches {
        match kept {
            Kept::Encoded(batch) => {
                for row in rows_in(batch) {
                    if wanted.next_if_eq(&number).is_some() {
                        rows.push(batch.bytes.slice_ref(row));
                    }
                    number += 1;
                }
            }
            Kept::Columns(columns, encoding) => {
                let end = number + columns.num_rows() as u64;
                // As the sink was given them, where that is text.
                let encoding = if *encoding == Encoding::Csv { Encoding::Csv } else { Encoding::JsonLines };
                while let Some(row) = wanted.next_if(|row| (number..end).contains(row)) {
                    rows.push(encode(&columns.slice((row - number) as usize, 1), encoding).ok()?);
                    if wanted.peek().is_some_and(|next| *next <= row) {
                        return None;
                    }
                }
                number = end;
            }
        }
    }
    (rows.len() == rejects.len()).then_some(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array};

    use super::*;

    fn reject(row: u64) -> Reject {
        Reject { row, code: "c".into(), message: "m".into() }
    }

    fn raw(bytes: &'static [u8], rows: u64) -> Kept {
        Kept::Encoded(Batch::new(Bytes::from_static(bytes), rows, Encoding::Raw))
    }

    fn numbers(from: i64, to: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..to));
        RecordBatch::try_from_iter([("n", numbers)]).expect("one column")
    }

    #[test]
    fn rejected_rows_are_found_across_batches() {
        let batches = [raw(b"a\nb\n", 2), raw(b"c\n", 1), Kept::Columns(numbers(0, 3), Encoding::ArrowStream)];
        let rows = rows_of(&[reject(1), reject(2), reject(4)], &batches).expect("they exist");
        assert_eq!(rows, [&b"b\n"[..], b"c\n", b"{\"n\":1}\n"]);
    }

    #[test]
    fn rejects_out_of_range_twice_or_out_of_order_are_malformed() {
        for batches in [[raw(b"a\nb\n", 2)], [Kept::Columns(numbers(0, 2), Encoding::JsonLines)]] {
            assert_eq!(rows_of(&[reject(2)], &batches), None);
            assert_eq!(rows_of(&[reject(1), reject(1)], &batches), None);
            assert_eq!(rows_of(&[reject(1), reject(0)], &batches), None);
        }
    }

    #[test]
    fn halves_hold_every_row_once() {
        let batch = Batch::new(Bytes::from_static(b"a\nbb\nccc\n"), 3, Encoding::Raw);
        let (first, second) = halve(&Staged { batch, columns: None }).unwrap();
        assert_eq!((first.batch.bytes.as_ref(), first.batch.rows), (&b"a\n"[..], 1));
        assert_eq!((second.batch.bytes.as_ref(), second.batch.rows), (&b"bb\nccc\n"[..], 2));
        let (first, second) = halve(&staged(numbers(0, 3), Encoding::JsonLines).unwrap()).unwrap();
        assert_eq!((first.batch.bytes.as_ref(), first.batch.rows), (&b"{\"n\":0}\n"[..], 1));
        assert_eq!((second.batch.bytes.as_ref(), second.batch.rows), (&b"{\"n\":1}\n{\"n\":2}\n"[..], 2));
    }

    #[test]
    fn a_line_end_within_quotes_does_not_end_a_record() {
        let batch = Batch::new(Bytes::from_static(b"1,\"a\nb\"\n2,c\n"), 2, Encoding::Csv);
        let (first, second) = halve(&Staged { batch: batch.clone(), columns: None }).unwrap();
        assert_eq!((first.batch.bytes.as_ref(), second.batch.bytes.as_ref()), (&b"1,\"a\nb\"\n"[..], &b"2,c\n"[..]));
        assert_eq!(rows_of(&[reject(1)], &[Kept::Encoded(batch)]).unwrap(), [&b"2,c\n"[..]]);
    }
}
