//! The task that owns the log. Calls are made in order; each blocks a thread made for blocking, or, where everything
//! must run in one thread, the caller's.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidegate_protocol::event::{AppendResult, Event};
use tidegate_protocol::ids::{Epoch, Slot};
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::{Body, Record, StateChunk, StateRef};
use tidegate_store::{Log, StoreError, state};
use tokio::sync::{mpsc, oneshot};

use crate::driver::Report;

/// Where blocking calls run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocking {
    /// On tokio's threads for blocking work.
    Threads,
    /// In place. For simulation.
    Inline,
}

enum Order {
    Append(Box<Record>),
    Delete { slots: Vec<Slot>, named: BTreeSet<StateChunk> },
    PutState { epoch: Epoch, state: Bytes, done: oneshot::Sender<Result<StateRef, StoreError>> },
    GetState { state: StateRef, done: oneshot::Sender<Result<Bytes, StoreError>> },
    LoadPositions { positions: Positions, done: oneshot::Sender<Result<(), StoreError>> },
}

/// Asks the log's task.
#[derive(Clone)]
pub(crate) struct LogHandle {
    orders: mpsc::UnboundedSender<Order>,
}

/// The log's task is gone: the run is ending.
#[derive(Debug)]
pub(crate) enum LogError {
    Closed,
    Store(StoreError),
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogError::Closed => f.write_str("the run is ending"),
            LogError::Store(error) => error.fmt(f),
        }
    }
}

impl LogHandle {
    /// Answered with [`Event::Appended`].
    pub(crate) fn append(&self, record: Box<Record>) {
        let _ = self.orders.send(Order::Append(record));
    }

    /// Deletes records, then all state that neither `named` nor an epoch not yet sealed needs.
    pub(crate) fn delete(&self, slots: Vec<Slot>, named: BTreeSet<StateChunk>) {
        let _ = self.orders.send(Order::Delete { slots, named });
    }

    /// Stores state that the seal of `epoch` will name.
    pub(crate) async fn put_state(&self, epoch: Epoch, state: Bytes) -> Result<StateRef, LogError> {
        self.ask(|done| Order::PutState { epoch, state, done }).await
    }

    /// Reads state that a seal names.
    pub(crate) async fn get_state(&self, state: StateRef) -> Result<Bytes, LogError> {
        self.ask(|done| Order::GetState { state, done }).await
    }

    /// Reads the pages of these positions, for all that share them.
    pub(crate) async fn load_positions(&self, positions: Positions) -> Result<(), LogError> {
        self.ask(|done| Order::LoadPositions { positions, done }).await
    }

    async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Order) -> Result<T, LogError> {
        let (done, answer) = oneshot::channel();
        self.orders.send(order(done)).map_err(|_| LogError::Closed)?;
        answer.await.map_err(|_| LogError::Closed)?.map_err(LogError::Store)
    }
}

/// Starts the task. It hands the log back when all handles are gone.
pub(crate) fn start(
    log: Box<dyn Log>,
    blocking: Blocking,
    report: Report,
) -> (LogHandle, tokio::task::JoinHandle<Box<dyn Log>>) {
    let (orders, inbox) = mpsc::unbounded_channel();
    let keeper = Keeper { pending_state: Vec::new(), newest: BTreeSet::new(), report };
    (LogHandle { orders }, tokio::spawn(serve(log, blocking, inbox, keeper)))
}

async fn serve(
    mut log: Box<dyn Log>,
    blocking: Blocking,
    mut inbox: mpsc::UnboundedReceiver<Order>,
    mut keeper: Keeper,
) -> Box<dyn Log> {
    while let Some(order) = inbox.recv().await {
        match blocking {
            Blocking::Inline => keeper.carry_out(log.as_mut(), order),
            Blocking::Threads => {
                let work = tokio::task::spawn_blocking(move || {
                    keeper.carry_out(log.as_mut(), order);
                    (log, keeper)
                });
                match work.await {
                    Ok(back) => (log, keeper) = back,
                    // The log is lost with its thread; whoever waits for its answer learns that it is gone.
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                }
            }
        }
    }
    log
}

/// What the log's task remembers between orders.
struct Keeper {
    /// State stored for epochs that were not sealed when last looked at.
    pending_state: Vec<(Epoch, StateChunk)>,
    /// What the newest seal names: whoever asks for a deletion may not have heard of it yet.
    newest: BTreeSet<StateChunk>,
    report: Report,
}

impl Keeper {
    fn carry_out(&mut self, log: &mut dyn Log, order: Order) {
        match order {
            Order::Append(record) => {
                let result = log.append(&record);
                if let (AppendResult::Created, Body::Seal(seal)) = (&result, &record.body) {
                    self.pending_state.retain(|(epoch, _)| *epoch > seal.epoch);
                    self.newest = seal.state_chunks().cloned().collect();
                }
                self.report.event(Event::Appended { slot: record.slot, result });
            }
            Order::Delete { slots, mut named } => {
                named.extend(self.newest.iter().cloned());
                named.extend(self.pending_state.iter().map(|(_, chunk)| chunk.clone()));
                let deleted = log.delete(&slots).and_then(|()| log.retain_state(&named));
                if let Err(error) = deleted {
                    // Nothing depends on it: what was not deleted is found again by the next run.
                    tracing::warn!(%error, "could not delete retired checkpoints");
                }
            }
            Order::PutState { epoch, state, done } => {
                let stored = state::store(log, &state);
                if let Ok(StateRef::Chunks(chunks)) = &stored {
                    self.pending_state.extend(chunks.iter().map(|chunk| (epoch, chunk.clone())));
                }
                let _ = done.send(stored);
            }
            Order::GetState { state, done } => {
                let _ = done.send(state::load(log, &state));
            }
            Order::LoadPositions { positions, done } => {
                let _ = done.send(state::load_positions(log, &positions));
            }
        }
    }
}
