//! From one task to all subtasks of the next step.

use bytes::BytesMut;
use memchr::memchr;
use tidegate_columns::encode::encode;
use tidegate_columns::rows::{ColumnBatch, Rows};
use tidegate_protocol::ids::{Epoch, KeyRange};
use tidegate_protocol::plugin::{Batch, Encoding};

use crate::exchange::{Closed, Output};
use crate::source::key::KeyExtractor;
use crate::spec::Route;

/// How rows find their subtask.
enum Way {
    InTurn,
    ByKey(Keys),
}

/// Hands rows to the subtasks of one step.
pub(crate) struct Router {
    outputs: Vec<Output>,
    way: Way,
    encoding: Option<Encoding>,
    turn: usize,
}

impl Router {
    /// `turn` differs between the tasks that feed a step, so that they do not all start with the same subtask.
    /// `encoding`, where given, is what the rows are called from here on.
    pub(crate) fn new(outputs: Vec<Output>, route: &Route, encoding: Option<Encoding>, turn: usize) -> Self {
        let way = match route {
            Route::RoundRobin => Way::InTurn,
            Route::Key(field) => Way::ByKey(Keys::new(field)),
        };
        Self { outputs, way, encoding, turn }
    }

    pub(crate) async fn rows(&mut self, rows: impl Into<Rows>) -> Result<(), Closed> {
        let mut rows = rows.into();
        if rows.is_empty() {
            return Ok(());
        }
        if let (Some(encoding), Rows::Encoded(batch)) = (self.encoding, &mut rows) {
            batch.encoding = encoding;
        }
        let count = self.outputs.len();
        match &self.way {
            _ if count == 1 => self.outputs[0].rows(rows).await,
            Way::InTurn => {
                self.turn = (self.turn + 1) % count;
                self.outputs[self.turn].rows(rows).await
            }
            Way::ByKey(keys) => {
                for (output, share) in self.outputs.iter().zip(keys.split(rows, count)) {
                    if let Some(share) = share {
                        output.rows(share).await?;
                    }
                }
                Ok(())
            }
        }
    }

    pub(crate) async fn barrier(&self, epoch: Epoch) -> Result<(), Closed> {
        for output in &self.outputs {
            output.barrier(epoch).await?;
        }
        Ok(())
    }

    pub(crate) async fn watermark(&self, watermark: i64) -> Result<(), Closed> {
        for output in &self.outputs {
            output.watermark(watermark).await?;
        }
        Ok(())
    }
}

/// Routes by a field of the row.
struct Keys {
    extractor: KeyExtractor,
    /// Where rows without the field go, and rows that have no fields at all.
    without: u32,
}

impl Keys {
    fn new(field: &str) -> Self {
        let extractor = KeyExtractor::new(field);
        let without = extractor.point(b"{}").unwrap_or_default();
        Self { extractor, without }
    }

    /// Deals rows to `count` owners of the key space, keeping their order.
    fn split(&self, rows: Rows, count: usize) -> Vec<Option<Rows>> {
        match rows {
            Rows::Encoded(batch) => {
                self.split_lines(&batch, count).into_iter().map(|share| share.map(Rows::Encoded)).collect()
            }
            Rows::Columns(columns) => self.split_columns(&columns, count),
        }
    }

    /// The key is written as JSON, so that a row has the same point whether it travels as text or as columns.
    fn split_columns(&self, columns: &ColumnBatch, count: usize) -> Vec<Option<Rows>> {
        let owners = u32::try_from(count).unwrap_or(u32::MAX);
        let lines_of = |key: ColumnBatch| encode(&key.batch, Encoding::JsonLines).ok();
        let keys = columns.column(self.extractor.field()).and_then(lines_of).unwrap_or_default();
        let mut points: Vec<u32> = lines(&keys)
            .map(|line| KeyRange::owner(self.extractor.point(line).unwrap_or(self.without), owners))
            .collect();
        // Without such a column no row has a key.
        points.resize(columns.batch.num_rows(), KeyRange::owner(self.without, owners));
        match columns.deal(&points, count) {
            Ok(shares) => shares.into_iter().map(|share| share.map(Rows::Columns)).collect(),
            // There is an owner for every row, so this does not happen; and no row is lost if it does.
            Err(_) => std::iter::once(Some(Rows::Columns(columns.clone()))).chain((1..count).map(|_| None)).collect(),
        }
    }

    fn split_lines(&self, batch: &Batch, count: usize) -> Vec<Option<Batch>> {
        let owners = u32::try_from(count).unwrap_or(u32::MAX);
        let mut shares = vec![(BytesMut::new(), 0u64); count];
        for line in lines(&batch.bytes) {
            let point = self.extractor.point(line).unwrap_or(self.without);
            let (bytes, rows) = &mut shares[KeyRange::owner(point, owners) as usize];
            bytes.extend_from_slice(line);
            *rows += 1;
        }
        shares
            .into_iter()
            .map(|(bytes, rows)| (rows > 0).then(|| Batch { bytes: bytes.freeze(), rows, ..batch.clone() }))
            .collect()
    }
}

/// The rows of a batch, each with its newline.
pub(crate) fn lines(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let end = memchr(b'\n', bytes).map_or(bytes.len(), |newline| newline + 1);
        let (line, rest) = bytes.split_at(end);
        bytes = rest;
        Some(line)
    })
}
