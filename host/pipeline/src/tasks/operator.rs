//! One subtask of an operator.

use tidegate_columns::encode::encode;
use tidegate_columns::rows::Rows;
use tidegate_protocol::event::{Event, TaskFailure};
use tidegate_protocol::ids::{Epoch, KeyRange, OperatorId};
use tidegate_protocol::plugin::{Batch, Encoding};
use tidegate_protocol::record::OperatorCut;

use crate::driver::Report;
use crate::exchange::{Input, InputEnd, Inputs};
use crate::log::LogHandle;
use crate::operator::{OperatorError, OperatorTask};
use crate::router::Router;

pub(crate) struct OperatorSubtask {
    pub(crate) id: OperatorId,
    pub(crate) task: u32,
    pub(crate) range: KeyRange,
    pub(crate) operator: Box<dyn OperatorTask>,
    pub(crate) inputs: Inputs,
    pub(crate) next: Vec<Router>,
    pub(crate) log: LogHandle,
    pub(crate) report: Report,
}

/// Why the subtask ends.
enum Stop {
    Closed,
    Failed(String),
}

impl From<crate::exchange::Closed> for Stop {
    fn from(_: crate::exchange::Closed) -> Self {
        Stop::Closed
    }
}

impl From<OperatorError> for Stop {
    fn from(error: OperatorError) -> Self {
        Stop::Failed(error.message)
    }
}

/// Operators work on lines.
fn lines_of(rows: Rows) -> Result<Batch, Stop> {
    match rows {
        Rows::Encoded(batch) => Ok(batch),
        Rows::Columns(columns) => {
            let bytes = encode(&columns.batch, Encoding::JsonLines).map_err(|error| Stop::Failed(error.to_string()))?;
            Ok(Batch::new(bytes, columns.rows(), Encoding::JsonLines))
        }
    }
}

impl OperatorSubtask {
    pub(crate) async fn run(mut self) {
        if let Err(Stop::Failed(message)) = self.work().await {
            let reason = TaskFailure::Host(format!("operator `{}`, subtask {}: {message}", self.id, self.task));
            self.report.event(Event::EpochLost { reason });
            self.report.until_closed().await;
        }
    }

    async fn work(&mut self) -> Result<(), Stop> {
        let (mut rows_in, mut rows_out) = (0, 0);
        loop {
            match self.inputs.next().await {
                Ok(Input::Rows(rows, permit)) => {
                    let batch = lines_of(rows)?;
                    rows_in += batch.rows;
                    let out = self.operator.process(&batch)?;
                    drop(permit);
                    rows_out += self.hand_on(out).await?;
                }
                Ok(Input::Watermark(watermark)) => {
                    let out = self.operator.watermark(watermark)?;
                    rows_out += self.hand_on(out).await?;
                    for next in &self.next {
                        next.watermark(watermark).await?;
                    }
                }
                Ok(Input::Barrier(epoch)) => {
                    self.barrier(epoch, std::mem::take(&mut rows_in), std::mem::take(&mut rows_out)).await?;
                }
                Err(InputEnd::Closed) => return Err(Stop::Closed),
                Err(InputEnd::Barriers(error)) => return Err(Stop::Failed(error.to_string())),
            }
        }
    }

    async fn barrier(&mut self, epoch: Epoch, rows_in: u64, mut rows_out: u64) -> Result<(), Stop> {
        let (out, snapshot) = self.operator.barrier()?;
        rows_out += self.hand_on(out).await?;
        for next in &self.next {
            next.barrier(epoch).await?;
        }
        let state = self.log.put_state(epoch, snapshot.state).await.map_err(|error| Stop::Failed(error.to_string()))?;
        let cut = OperatorCut {
            range: self.range,
            version: snapshot.version,
            state,
            timers: snapshot.timers,
            watermark: self.inputs.watermark(),
            rows_in,
            rows_out,
        };
        self.report.event(Event::OperatorCut { operator: self.id.clone(), task: self.task, epoch, cut });
        Ok(())
    }

    async fn hand_on(&mut self, batches: Vec<Batch>) -> Result<u64, Stop> {
        let mut rows = 0;
        for batch in batches {
            rows += batch.rows;
            for next in &mut self.next {
                next.rows(batch.clone()).await?;
            }
        }
        Ok(rows)
    }
}
