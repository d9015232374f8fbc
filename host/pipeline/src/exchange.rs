//! Channels between tasks, bounded in bytes.
//!
//! Each pair of tasks has a channel with a budget of its own. A shared budget would deadlock: rows of an input that is
//! held back could use it up while the barrier that would free them waits behind it on another input.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tidegate_columns::rows::Rows;
use tidegate_protocol::align::{AlignError, Aligner, Alignment};
use tidegate_protocol::ids::Epoch;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Messages that may wait besides bytes, so that tiny batches are bounded too.
const MESSAGES: usize = 256;

/// What passes between tasks.
#[derive(Debug)]
pub(crate) enum Message {
    /// Rows, and the share of the channel's bytes that they hold until they are used.
    Rows(Rows, OwnedSemaphorePermit),
    /// All rows of the epoch came before it.
    Barrier(Epoch),
    /// No row with an earlier event time will come from here.
    Watermark(i64),
}

/// The other end is gone: the run is ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

/// Sending end of one channel.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    sender: mpsc::Sender<Message>,
    budget: Arc<Semaphore>,
    capacity: u32,
}

impl Output {
    pub(crate) async fn rows(&self, rows: Rows) -> Result<(), Closed> {
        // A batch larger than the whole budget passes alone.
        let share = u32::try_from(rows.bytes()).unwrap_or(u32::MAX).clamp(1, self.capacity);
        let permit = Arc::clone(&self.budget).acquire_many_owned(share).await.map_err(|_| Closed)?;
        self.sender.send(Message::Rows(rows, permit)).await.map_err(|_| Closed)
    }

    pub(crate) async fn barrier(&self, epoch: Epoch) -> Result<(), Closed> {
        self.sender.send(Message::Barrier(epoch)).await.map_err(|_| Closed)
    }

    pub(crate) async fn watermark(&self, watermark: i64) -> Result<(), Closed> {
        self.sender.send(Message::Watermark(watermark)).await.map_err(|_| Closed)
    }
}

/// A channel that holds at most about `bytes` of rows.
pub(crate) fn channel(bytes: usize) -> (Output, mpsc::Receiver<Message>) {
    let capacity = u32::try_from(bytes.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize))).unwrap_or(u32::MAX);
    let (sender, receiver) = mpsc::channel(MESSAGES);
    (Output { sender, budget: Arc::new(Semaphore::new(capacity as usize)), capacity }, receiver)
}

/// What a task gets from its inputs, aligned.
#[derive(Debug)]
pub(crate) enum Input {
    /// Rows of the current epoch.
    Rows(Rows, OwnedSemaphorePermit),
    /// Every input has reached the barrier.
    Barrier(Epoch),
    /// The lowest watermark of all inputs rose to this.
    Watermark(i64),
}

/// Why a task has no further input.
#[derive(Debug)]
pub(crate) enum InputEnd {
    /// The run is ending.
    Closed,
    /// The barriers make no sense; a defect of the host.
    Barriers(AlignError),
}

/// Receiving end of all channels into one task. Inputs that reached the barrier are held back until all have.
pub(crate) struct Inputs {
    receivers: Vec<mpsc::Receiver<Message>>,
    aligner: Aligner,
    watermarks: Vec<Option<i64>>,
    watermark: Option<i64>,
    next: usize,
}

impl Inputs {
    pub(crate) fn new(receivers: Vec<mpsc::Receiver<Message>>, first_epoch: Epoch) -> Self {
        let count = receivers.len();
        Self {
            aligner: Aligner::new(count, first_epoch),
            watermarks: vec![None; count],
            watermark: None,
            next: 0,
            receivers,
        }
    }

    /// Time goes on from where a checkpoint says that it was: until all inputs have told theirs, it is not later.
    pub(crate) fn resumed(self, watermark: Option<i64>) -> Self {
        Self { watermark, ..self }
    }

    pub(crate) async fn next(&mut self) -> Result<Input, InputEnd> {
        loop {
            let (index, message) = self.receive().await.ok_or(InputEnd::Closed)?;
            match message {
                Message::Rows(rows, permit) => return Ok(Input::Rows(rows, permit)),
                Message::Barrier(epoch) => match self.aligner.on_barrier(index, epoch) {
                    Ok(Alignment::Aligned(epoch)) => return Ok(Input::Barrier(epoch)),
                    Ok(Alignment::Hold | Alignment::Nothing | Alignment::AllEnded) => {}
                    Err(error) => return Err(InputEnd::Barriers(error)),
                },
                Message::Watermark(watermark) => {
                    if let Some(risen) = self.raise(index, watermark) {
                        return Ok(Input::Watermark(risen));
                    }
                }
            }
        }
    }

    /// The next message of any input that is not held back; inputs take turns. `None` once any input is closed: tasks
    /// end only together.
    async fn receive(&mut self) -> Option<(usize, Message)> {
        poll_fn(|cx| {
            let count = self.receivers.len();
            for step in 0..count {
                let index = (self.next + step) % count;
                if self.aligner.held(index) {
                    continue;
                }
                match self.receivers[index].poll_recv(cx) {
                    Poll::Ready(Some(message)) => {
                        self.next = (index + 1) % count;
                        return Poll::Ready(Some((index, message)));
                    }
                    Poll::Ready(None) => return Poll::Ready(None),
                    Poll::Pending => {}
                }
            }
            Poll::Pending
        })
        .await
    }

    fn raise(&mut self, index: usize, watermark: i64) -> Option<i64> {
        let mine = &mut self.watermarks[index];
        *mine = Some(mine.map_or(watermark, |old| old.max(watermark)));
        let lowest = self.watermarks.iter().copied().min().flatten();
        if lowest > self.watermark {
            self.watermark = lowest;
            lowest
        } else {
            None
        }
    }

    /// The lowest watermark of all inputs, as far as it is known.
    pub(crate) fn watermark(&self) -> Option<i64> {
        self.watermark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn f44_event_time_goes_on_from_the_checkpoint_whatever_inputs_have_told() {
        let (outputs, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| channel(64)).unzip();
        let mut inputs = Inputs::new(receivers, Epoch(7)).resumed(Some(10));
        for output in &outputs {
            output.barrier(Epoch(7)).await.expect("somebody listens");
        }
        assert!(matches!(inputs.next().await, Ok(Input::Barrier(Epoch(7)))));
        assert_eq!(inputs.watermark(), Some(10), "no input has told anything yet");
        for (output, watermark) in [(0, 12), (1, 9), (1, 11)] {
            outputs[output].watermark(watermark).await.expect("somebody listens");
        }
        assert!(matches!(inputs.next().await, Ok(Input::Watermark(11))), "the slowest counts, and not what was before");
        assert_eq!(inputs.watermark(), Some(11));
    }
}
