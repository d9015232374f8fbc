//! What a person asks of a running pipeline: a savepoint now, or giving one up. Every request gets one answer, at the
//! latest before the run ends.

use std::collections::{BTreeMap, VecDeque};

use super::{Coordinator, Phase};
use crate::event::{Effect, RequestRefused};
use crate::ids::{self, EpochRef};
use crate::record::{Body, CutReason, Forget};

/// So many requests of each kind may wait.
const MOST: usize = 16;

/// Requests without an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Requests {
    /// Savepoints whose barrier is still to come, in the order in which they were asked for.
    savepoints: VecDeque<(u64, String)>,
    /// The savepoint whose barrier is under way.
    cutting: Option<(u64, String)>,
    /// Names to be given up once the run can write.
    forgets: VecDeque<(u64, String)>,
    /// Names whose `forget` record is on its way.
    forgetting: BTreeMap<String, (u64, EpochRef)>,
}

impl Requests {
    fn names_savepoint(&self, name: &str) -> bool {
        self.savepoints.iter().chain(&self.cutting).any(|(_, asked)| asked == name)
    }

    /// The savepoint whose barrier comes next.
    pub(super) fn next_savepoint(&self) -> Option<CutReason> {
        self.savepoints.front().map(|(_, name)| CutReason::Savepoint(name.clone()))
    }
}

impl Coordinator {
    pub(super) fn on_savepoint_asked(&mut self, request: u64, name: String) {
        match self.check_savepoint(&name) {
            Ok(()) => self.requests.savepoints.push_back((request, name)),
            Err(refused) => self.answer(request, Err(refused)),
        }
    }

    fn check_savepoint(&self, name: &str) -> Result<(), RequestRefused> {
        ids::check_savepoint_name(name).map_err(RequestRefused::IllegalName)?;
        if let Some(of) = self.history.savepoints().get(name) {
            return Err(RequestRefused::NameTaken(Some(*of)));
        }
        if self.savepoint_is_due(name) {
            return Err(RequestRefused::NameTaken(None));
        }
        if !self.alive() || self.writing.last_cut.is_some() {
            return Err(RequestRefused::RunOver);
        }
        if self.requests.savepoints.len() >= MOST { Err(RequestRefused::TooMany) } else { Ok(()) }
    }

    /// Whether a savepoint of this name has been asked for and is not sealed yet.
    pub(super) fn savepoint_is_due(&self, name: &str) -> bool {
        let is_it = |reason: &CutReason| matches!(reason, CutReason::Savepoint(due) if due == name);
        self.requests.names_savepoint(name)
            || self.writing.due.as_ref().is_some_and(is_it)
            || self.writing.cut_under_way().is_some_and(is_it)
    }

    pub(super) fn on_forget_asked(&mut self, request: u64, name: String) {
        if !self.alive() {
            self.answer(request, Err(RequestRefused::RunOver));
        } else if self.requests.forgets.len() >= MOST {
            self.answer(request, Err(RequestRefused::TooMany));
        } else {
            self.requests.forgets.push_back((request, name));
        }
    }

    /// Nobody waits any more: what has not begun does not begin.
    pub(super) fn on_request_withdrawn(&mut self, request: u64) {
        let before = self.requests.savepoints.len() + self.requests.forgets.len();
        self.requests.savepoints.retain(|(asked, _)| *asked != request);
        self.requests.forgets.retain(|(asked, _)| *asked != request);
        if self.requests.savepoints.len() + self.requests.forgets.len() < before {
            self.answer(request, Err(RequestRefused::Withdrawn));
        }
    }

    /// Gives names up, once the run may write.
    pub(super) fn go_on_with_requests(&mut self) {
        if !self.alive() || self.phase != Phase::Running {
            return;
        }
        while let Some((request, name)) = self.requests.forgets.pop_front() {
            let known = self.history.savepoints().get(&name).copied();
            match known.filter(|_| !self.requests.forgetting.contains_key(&name)) {
                Some(of) => {
                    self.requests.forgetting.insert(name.clone(), (request, of));
                    self.record(Body::Forget(Forget { name }));
                }
                None => self.answer(request, Err(RequestRefused::UnknownSavepoint)),
            }
        }
    }

    /// A barrier was injected.
    pub(super) fn note_savepoint_cut(&mut self, reason: &CutReason) {
        let CutReason::Savepoint(name) = reason else { return };
        if self.requests.savepoints.front().is_some_and(|(_, asked)| asked == name) {
            self.requests.cutting = self.requests.savepoints.pop_front();
        }
    }

    /// Its seal is durable.
    pub(super) fn note_savepoint_sealed(&mut self, of: EpochRef, reason: &CutReason) {
        if let CutReason::Savepoint(name) = reason
            && let Some((request, _)) = self.requests.cutting.take_if(|(_, asked)| asked == name)
        {
            self.answer(request, Ok(of));
        }
    }

    /// A `forget` record is durable.
    pub(super) fn on_forgotten(&mut self, name: &str) {
        if let Some((request, of)) = self.requests.forgetting.remove(name) {
            self.answer(request, Ok(of));
        }
    }

    /// The run ends: whatever still waits will not be done by it.
    pub(super) fn answer_all_requests(&mut self) {
        let Requests { savepoints, cutting, forgets, forgetting } = std::mem::take(&mut self.requests);
        let waiting = cutting.into_iter().chain(savepoints).chain(forgets).map(|(request, _)| request);
        for request in waiting.chain(forgetting.into_values().map(|(request, _)| request)) {
            self.answer(request, Err(RequestRefused::RunOver));
        }
    }

    fn answer(&mut self, request: u64, result: Result<EpochRef, RequestRefused>) {
        self.emit(Effect::RequestAnswered { request, result });
    }
}
