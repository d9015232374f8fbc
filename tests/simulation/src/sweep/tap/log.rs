//! Every call of a log. Where it lies elsewhere, each is an effect; on a disk the disk's operations are.

use std::collections::BTreeSet;

use bytes::Bytes;
use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::Slot;
use tidegate_protocol::record::{Body, Record, StateChunk};
use tidegate_store::{Log, StoreError};

use crate::sweep::director::{Director, Verdict};
use crate::sweep::effect::{LogOp, Mode, Phase, What};
use crate::sweep::trace::{Appended, Fact, Kind};

/// A log of one process.
pub(crate) struct TapLog {
    inner: Box<dyn Log>,
    tenant: usize,
    director: Director,
    /// It lies elsewhere.
    remote: bool,
    /// After a lost answer the handle accepts nothing more.
    lost: bool,
}

impl TapLog {
    pub(crate) fn new(inner: Box<dyn Log>, tenant: usize, director: &Director, remote: bool) -> Self {
        Self { inner, tenant, director: director.clone(), remote, lost: false }
    }

    fn effect(&self, op: LogOp, phase: Phase) -> Verdict {
        match (self.director.is_dead(), self.remote) {
            (true, _) => Verdict::Dead,
            (false, true) => self.director.effect(What::Log { op, phase }),
            (false, false) => Verdict::Go,
        }
    }

    fn note(&self, record: &Record, stage: Option<Appended>) {
        let kind = match &record.body {
            Body::Open(_) => Kind::Open,
            Body::Seal(seal) => Kind::Seal {
                epoch: seal.epoch.0,
                empty: seal.sinks.values().flat_map(|cut| &cut.parts).all(|part| part.committable.is_none()),
            },
            Body::Retire(_) => Kind::Retire,
            Body::Deleted(_) => Kind::Deleted,
            Body::Released(_) => Kind::Released,
            Body::Intent(_) => Kind::Intent,
            Body::Decision(_) => Kind::Decision,
            Body::Finished(_) => Kind::Finished,
            Body::Bound(_) | Body::Outcomes | Body::Savepoint(_) | Body::Forget(_) => Kind::Other,
        };
        let (host, tenant, outcomes) = (self.director.host(), self.tenant, record.outcomes.len());
        self.director.note(Fact::Append { host, tenant, kind, outcomes, stage });
    }

    fn call<T>(
        &mut self,
        op: LogOp,
        call: impl FnOnce(&mut dyn Log) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self.effect(op, Phase::Before) {
            Verdict::Go => {}
            Verdict::Dead => return Err(failed("the process is dead")),
            Verdict::Do(_) => return Err(failed("simulated")),
        }
        let result = call(self.inner.as_mut());
        match self.effect(op, Phase::After) {
            Verdict::Go => result,
            Verdict::Dead => Err(failed("the process is dead")),
            Verdict::Do(_) => Err(failed("simulated: the answer is lost")),
        }
    }
}

fn failed(why: &str) -> StoreError {
    StoreError::Io { file: "log".into(), doing: "use", detail: why.to_owned() }
}

/// Takes out what a reader does not see. False if the log is too short for that.
fn leave_out(records: &mut Vec<Record>, mode: Mode) -> bool {
    let from_the_end = |back: u32| records.len().checked_sub(back as usize);
    match mode {
        Mode::Stale(newest) => from_the_end(newest).map(|kept| records.truncate(kept)).is_some(),
        Mode::Gap(behind) => from_the_end(behind + 1).map(|at| records.remove(at)).is_some(),
        _ => false,
    }
}

impl Log for TapLog {
    fn append(&mut self, record: &Record) -> AppendResult {
        if self.lost {
            return AppendResult::NotWritten { message: "an answer was lost before".into(), retryable: false };
        }
        self.note(record, None);
        let answer = match self.effect(LogOp::Append, Phase::Before) {
            Verdict::Go => None,
            Verdict::Dead => return AppendResult::Unknown("the process is dead".into()),
            Verdict::Do(Mode::Full) => Some(AppendResult::NotWritten { message: "no space".into(), retryable: true }),
            Verdict::Do(Mode::Refused) => {
                Some(AppendResult::NotWritten { message: "refused".into(), retryable: false })
            }
            Verdict::Do(_) => Some(AppendResult::Unknown("no answer came".into())),
        };
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let answer = self.inner.append(record);
                match self.effect(LogOp::Append, Phase::After) {
                    Verdict::Go => answer,
                    Verdict::Dead => return AppendResult::Unknown("the process is dead".into()),
                    // The client sends the request again, and finds what it had written.
                    Verdict::Do(Mode::TakenByUs) => self.inner.append(record),
                    Verdict::Do(_) => AppendResult::Unknown("no answer came".into()),
                }
            }
        };
        let (stage, lost) = match &answer {
            AppendResult::Created => (Appended::Created, false),
            AppendResult::Taken(_) => (Appended::Taken, false),
            AppendResult::Unknown(_) => (Appended::Unknown, true),
            AppendResult::NotWritten { retryable, .. } => (Appended::NotWritten, !retryable),
        };
        self.lost |= lost;
        self.note(record, Some(stage));
        answer
    }

    fn read_all(&mut self) -> Result<Vec<Record>, StoreError> {
        match self.effect(LogOp::ReadAll, Phase::Before) {
            Verdict::Go => self.inner.read_all(),
            Verdict::Dead => Err(failed("the process is dead")),
            Verdict::Do(mode @ (Mode::Stale(_) | Mode::Gap(_))) => {
                let mut records = self.inner.read_all()?;
                if leave_out(&mut records, mode) {
                    self.director.note(Fact::LeftOut(self.director.host()));
                }
                Ok(records)
            }
            Verdict::Do(_) => Err(failed("simulated")),
        }
    }

    fn delete(&mut self, slots: &[Slot]) -> Result<(), StoreError> {
        self.call(LogOp::Delete, |log| log.delete(slots))
    }

    fn put_state(&mut self, chunk: &[u8]) -> Result<StateChunk, StoreError> {
        self.call(LogOp::PutState, |log| log.put_state(chunk))
    }

    fn read_state(&mut self, chunk: &StateChunk) -> Result<Bytes, StoreError> {
        self.call(LogOp::ReadState, |log| log.read_state(chunk))
    }

    fn retain_state(&mut self, keep: &BTreeSet<StateChunk>) -> Result<u64, StoreError> {
        self.call(LogOp::RetainState, |log| log.retain_state(keep))
    }
}
