//! What the log and the destinations answer, well or badly.

use tidegate_protocol::event::{AppendResult, Effect, Event};
use tidegate_protocol::ids::{PartId, RunId, SinkId};
use tidegate_protocol::permit::CommitPermit;
use tidegate_protocol::plugin::{
    Call, CallFault, ErrorKind, External, FaultKind, Orphan, OrphanPage, Outcome, PluginError,
};
use tidegate_protocol::record::{Body, Record};

use crate::destination::{Destination, Manner};
use crate::engine::Engine;
use crate::item::Item;
use crate::judge::{self, Violation};
use crate::log::rows_of;
use crate::plan::How;
use crate::world::NONE;

/// A call without its good answer.
pub fn fault(call: Call, kind: FaultKind) -> CallFault {
    CallFault::new("model 1", call, kind, "")
}

/// A plugin's error.
pub fn plugin_error(kind: ErrorKind) -> PluginError {
    PluginError { kind, code: "c".to_owned(), message: "m".to_owned() }
}

fn error(call: Call, kind: ErrorKind) -> CallFault {
    fault(call, FaultKind::Error(plugin_error(kind)))
}

/// What the staged rows of a part are called.
pub fn staged_file(name: &str) -> External {
    External { kind: "file".to_owned(), name: name.to_owned(), expires_at: None }
}

/// The parts of a permit with the rows that their committables stand for.
pub fn parts(permit: &CommitPermit) -> Vec<(PartId, Vec<u8>)> {
    permit.committables().iter().map(|c| (c.part.clone(), rows_of(&c.body))).collect()
}

/// Whom an effect calls.
pub fn called(effect: &Effect) -> Option<&SinkId> {
    match effect {
        Effect::Observe { sink, .. }
        | Effect::Fence { sink, .. }
        | Effect::ListOrphans { sink, .. }
        | Effect::Abandon { sink, .. }
        | Effect::Release { sink, .. } => Some(sink),
        Effect::Commit(permit) | Effect::Reconcile(permit) => Some(permit.sink()),
        Effect::Append { .. }
        | Effect::OpenTasks(_)
        | Effect::InjectBarrier { .. }
        | Effect::IntentRecorded { .. }
        | Effect::RequestAnswered { .. }
        | Effect::PublishProgress { .. }
        | Effect::DeleteRecords { .. }
        | Effect::Wait { .. }
        | Effect::Notice(_)
        | Effect::End(_) => None,
    }
}

/// What can go wrong with an effect, besides all that goes well.
pub fn faults_of(effect: &Effect, participant_scope: bool) -> &'static [How] {
    match effect {
        Effect::Append { .. } => {
            &[How::DoneLost, How::Late, How::NotDone, How::Refused, How::TakenByItself, How::Volatile]
        }
        Effect::Observe { .. } => &[How::Trapped, How::Retryable, How::Denied, How::Superseded, How::Unsupported],
        Effect::Fence { .. } => {
            &[How::DoneLost, How::Late, How::Trapped, How::Retryable, How::Denied, How::Superseded, How::Unsupported]
        }
        Effect::Commit(permit) => {
            if participant_scope && permit.committables().len() > 1 {
                &COMMIT
            } else {
                &COMMIT[1..]
            }
        }
        Effect::Reconcile(_) => &[
            How::Trapped,
            How::Unknown,
            How::RetryAfter,
            How::Retryable,
            How::Denied,
            How::Superseded,
            How::Unsupported,
            How::CannotSay,
            How::Permanent,
            How::Rejected,
            How::Short,
        ],
        Effect::ListOrphans { .. } => &[How::Trapped, How::Retryable, How::Denied, How::Superseded, How::Unsupported],
        Effect::Abandon { .. } | Effect::Release { .. } => &[
            How::DoneLost,
            How::Late,
            How::Trapped,
            How::NotDone,
            How::Rejected,
            How::Denied,
            How::Superseded,
            How::Unsupported,
            How::CannotSay,
            How::Permanent,
            How::Short,
        ],
        Effect::DeleteRecords { .. } => &[How::Partly],
        Effect::OpenTasks(_)
        | Effect::InjectBarrier { .. }
        | Effect::IntentRecorded { .. }
        | Effect::RequestAnswered { .. }
        | Effect::PublishProgress { .. }
        | Effect::Wait { .. }
        | Effect::Notice(_)
        | Effect::End(_) => &[],
    }
}

const COMMIT: [How; 18] = [
    How::Partly,
    How::DoneLost,
    How::Late,
    How::Twice,
    How::Trapped,
    How::NotDone,
    How::RetryAfter,
    How::Unknown,
    How::UnknownDone,
    How::Retryable,
    How::Denied,
    How::Superseded,
    How::Unsupported,
    How::CannotSay,
    How::Permanent,
    How::Rejected,
    How::Never,
    How::Short,
];

impl Engine {
    /// Creates a record; the log behind it, and the answer as an item.
    ///
    /// # Errors
    /// It breaks a promise.
    pub fn append(&mut self, log: u32, item: u32, record: &Record, how: How) -> Result<(u32, u32), Violation> {
        if let Some(done) = self.appended.get(&(log, item, how as u8)) {
            return Ok(*done);
        }
        let lost = || "the answer was lost".to_owned();
        let mut after = self.logs.get(log).clone();
        let not_written = |retryable| AppendResult::NotWritten { message: "the disk is full".to_owned(), retryable };
        let result = match how {
            How::DoneLost | How::Volatile => {
                // Somebody else's record in the slot is an answer that can be read again; ours is not seen any more.
                match self.create_record(log, &mut after, record)? {
                    AppendResult::Created => {
                        if how == How::Volatile
                            && let Some(entry) = after.entries.last_mut()
                        {
                            entry.volatile = true;
                        }
                        AppendResult::Unknown(lost())
                    }
                    other => other,
                }
            }
            How::Late => AppendResult::Unknown(lost()),
            How::NotDone => not_written(true),
            How::Refused => not_written(false),
            How::TakenByItself => match self.create_record(log, &mut after, record)? {
                AppendResult::Created => AppendResult::Taken(Box::new(record.clone())),
                other => other,
            },
            _ => self.create_record(log, &mut after, record)?,
        };
        let slot = record.slot;
        let after = if after == *self.logs.get(log) { log } else { self.log(after)? };
        let answer = self.item(Item::Tell(Event::Appended { slot, result }));
        self.appended.insert((log, item, how as u8), (after, answer));
        Ok((after, answer))
    }

    fn create_record(&self, log: u32, after: &mut crate::log::Log, record: &Record) -> Result<AppendResult, Violation> {
        let moved;
        let record = if self.plan.without.one_log && matches!(record.body, Body::Seal(_)) {
            // Seals lie apart from the record of who is current: one lands behind whatever is there.
            moved = Record { slot: after.next(), ..record.clone() };
            &moved
        } else {
            record
        };
        let result = after.append(record);
        if result == AppendResult::Created {
            judge::appended(&self.plan, &self.facts(log), record)?;
        }
        Ok(result)
    }

    /// Calls a destination: the destination behind it, and the answer as an item, if there is one.
    ///
    /// # Errors
    /// It breaks a promise.
    pub fn call(
        &mut self,
        at: usize,
        destination: u32,
        item: u32,
        run: Option<RunId>,
        effect: &Effect,
        how: How,
    ) -> Result<(u32, u32), Violation> {
        if let Some(done) = self.called.get(&(destination, item, how as u8)) {
            return Ok(*done);
        }
        let manner = self.manners[at];
        let mut after = self.destinations.get(destination).clone();
        let event = answer(manner, &mut after, run, effect, how);
        judge::called(manner, self.destinations.get(destination), &after, run, effect)?;
        let after = self.destinations.put(after).0;
        let answer = event.map_or(NONE, |event| self.item(Item::Tell(event)));
        self.called.insert((destination, item, how as u8), (after, answer));
        Ok((after, answer))
    }
}

/// Whether the effect reaches its destination now.
fn is_done(how: How) -> bool {
    matches!(how, How::Well | How::DoneLost | How::Twice | How::UnknownDone | How::Short | How::Partly)
}

fn answer(
    manner: Manner,
    destination: &mut Destination,
    run: Option<RunId>,
    effect: &Effect,
    how: How,
) -> Option<Event> {
    let run = run.unwrap_or(RunId { number: 0, nonce: crate::plan::nonce(0) });
    Some(match effect {
        Effect::Observe { sink, .. } => {
            let result = bad(Call::Observe, how).map_or_else(|| Ok(destination.position(manner)), Err);
            Event::Observed { sink: sink.clone(), result }
        }
        Effect::Fence { sink, expected, run } => {
            let done = if is_done(how) { destination.fence(manner, expected, *run) } else { None };
            let result = match (bad(Call::Fence, how), done) {
                (Some(fault), _) => Err(fault),
                (None, Some(position)) => Ok(position),
                (None, None) => Err(error(Call::Fence, ErrorKind::Retryable)),
            };
            Event::Fenced { sink: sink.clone(), result }
        }
        Effect::Commit(permit) => {
            let result = commit(manner, destination, permit, how);
            let (sink, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
            Event::CommitAnswered { sink, of, attempt, result }
        }
        Effect::Reconcile(permit) => {
            let outcomes = permit.committables().iter().map(|c| destination.standing(&c.part)).collect();
            let result = outcomes_or_fault(Call::Reconcile, outcomes, how);
            let (sink, of, attempt) = (permit.sink().clone(), permit.of(), permit.attempt());
            Event::Reconciled { sink, of, attempt, result }
        }
        Effect::ListOrphans { sink, prefix, .. } => {
            let staged = destination.staged.keys().filter(|short| short.starts_with(prefix));
            let orphans =
                staged.map(|short| Orphan { short: short.clone(), resource: staged_file(short), bytes: None });
            let page = OrphanPage { orphans: orphans.collect(), next: None };
            let result = bad(Call::ListOrphans, how).map_or(Ok(page), Err);
            Event::OrphansListed { sink: sink.clone(), result }
        }
        Effect::Abandon { sink, parts, .. } => {
            let parts: Vec<PartId> = parts.iter().map(|unsealed| unsealed.part.clone()).collect();
            let outcomes = match is_done(how) {
                true => destination.abandon(manner, run, &parts),
                false => vec![Outcome::NotCommitted; parts.len()],
            };
            Event::Abandoned { sink: sink.clone(), result: outcomes_or_fault(Call::Abandon, outcomes, how) }
        }
        Effect::Release { sink, resources, .. } => {
            let fenced = destination.keeps_out(manner, run);
            let mut one = |resource: &External| {
                destination.staged.remove(&resource.name);
                match destination.released.insert(resource.name.clone()) {
                    true => Outcome::Committed,
                    false => Outcome::AlreadyCommitted,
                }
            };
            let outcomes = match (fenced, is_done(how)) {
                (true, _) => vec![Outcome::Fenced; resources.len()],
                (false, true) => resources.iter().map(&mut one).collect(),
                (false, false) => vec![Outcome::NotCommitted; resources.len()],
            };
            Event::ReleaseAnswered { sink: sink.clone(), result: outcomes_or_fault(Call::Release, outcomes, how) }
        }
        _ => return None,
    })
}

fn commit(
    manner: Manner,
    destination: &mut Destination,
    permit: &CommitPermit,
    how: How,
) -> Result<Vec<Outcome>, CallFault> {
    let parts = parts(permit);
    if destination.keeps_out(manner, permit.run()) {
        // Whoever is kept out is told so, or told nothing.
        return bad(Call::Commit, how).map_or_else(|| Ok(vec![Outcome::Fenced; parts.len()]), Err);
    }
    let outcomes = match how {
        How::Never => {
            destination.drop_staged(&parts);
            parts.iter().map(|(part, _)| destination.standing(part)).collect()
        }
        How::Partly => {
            let mut outcomes = destination.commit(manner, permit.run(), &parts[..1]);
            outcomes.resize(parts.len(), Outcome::NotCommitted);
            outcomes
        }
        how if is_done(how) => destination.commit(manner, permit.run(), &parts),
        _ => vec![Outcome::NotCommitted; parts.len()],
    };
    outcomes_or_fault(Call::Commit, outcomes, how)
}

/// Outcomes as they are answered when it goes like that.
fn outcomes_or_fault(call: Call, mut outcomes: Vec<Outcome>, how: How) -> Result<Vec<Outcome>, CallFault> {
    if let Some(fault) = bad(call, how) {
        return Err(fault);
    }
    let all = |outcome: Outcome| vec![outcome; outcomes.len()];
    Ok(match how {
        How::RetryAfter => all(Outcome::Retry(Some(1))),
        How::Unknown | How::UnknownDone => all(Outcome::Unknown),
        How::CannotSay => all(Outcome::Unsupported),
        How::Rejected => all(Outcome::Rejected(plugin_error(ErrorKind::Permanent))),
        How::Short => {
            outcomes.pop();
            outcomes
        }
        _ => outcomes,
    })
}

/// The fault that a call ends with, if it ends with one.
fn bad(call: Call, how: How) -> Option<CallFault> {
    match how {
        How::DoneLost => Some(fault(call, FaultKind::AnswerLost)),
        How::Late => Some(fault(call, FaultKind::Timeout)),
        How::Trapped => Some(fault(call, FaultKind::Trap)),
        How::Retryable => Some(error(call, ErrorKind::Retryable)),
        How::Denied => Some(error(call, ErrorKind::Denied)),
        How::Unsupported => Some(error(call, ErrorKind::Unsupported)),
        How::Superseded => Some(error(call, ErrorKind::Fenced)),
        How::Permanent => Some(error(call, ErrorKind::Permanent)),
        How::Well
        | How::Twice
        | How::ToldTwice
        | How::NotDone
        | How::RetryAfter
        | How::CannotSay
        | How::Unknown
        | How::UnknownDone
        | How::Rejected
        | How::Never
        | How::Partly
        | How::Short
        | How::Refused
        | How::TakenByItself
        | How::Volatile => None,
    }
}

/// Whether what a dead host had sent can still change anything; what cannot is forgotten. A slot that is taken stays
/// taken, what is committed stays committed, and a fence is only ever replaced by a newer one.
pub fn may_matter(engine: &Engine, log: u32, sinks: &[u32], effect: &Effect, run: Option<RunId>) -> bool {
    let next = engine.logs.get(log).next();
    let Some(at) = called(effect).map(|sink| engine.index(sink)) else {
        // A process that is gone deletes nothing more; the next run deletes what is left over.
        return matches!(effect, Effect::Append { record } if record.slot >= next || engine.plan.without.one_log);
    };
    let manner = engine.manners[at];
    let destination = engine.destinations.get(sinks[at]);
    let kept_out = run.is_some_and(|run| destination.keeps_out(manner, run));
    match effect {
        Effect::Fence { expected, run, .. } => destination.could_fence(expected, *run),
        Effect::Commit(permit) if manner.without.idempotence => !destination.keeps_out(manner, permit.run()),
        Effect::Commit(permit) => {
            let open = |part: &PartId| destination.standing(part) == Outcome::NotCommitted;
            !kept_out && permit.committables().iter().any(|c| open(&c.part))
        }
        // What it would give back is of a run that can never seal it: a later arrival of the same rows is rubbish.
        Effect::Abandon { parts, .. } => {
            !kept_out && parts.iter().any(|unsealed| destination.staged.contains_key(&unsealed.part.short))
        }
        Effect::Release { resources, .. } => {
            !kept_out && resources.iter().any(|resource| !destination.released.contains(&resource.name))
        }
        _ => false,
    }
}
