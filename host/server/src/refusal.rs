//! Words for how a run ends when it does not end well.

use std::collections::BTreeSet;
use std::path::PathBuf;

use tidegate_protocol::event::{End, Mismatch, Refusal, ReplayWaits, TaskFailure};
use tidegate_protocol::fault::Cause;
use tidegate_protocol::ids::{EpochRef, PartId, SinkId};
use tidegate_protocol::record::{Blocked, MismatchPolicy};

use crate::config::PipelineFile;
use crate::faults::Directories;

/// One line what happened, then how to go on.
fn words(refusal: &Refusal, named: &Named, goes_back: bool) -> (String, Vec<String>) {
    match refusal {
        Refusal::Mismatch { sink, mismatch, policies, replay_waits } => {
            let mut hints = vec!["nothing was changed, neither there nor here".to_owned()];
            hints.extend(
                policies
                    .iter()
                    .map(|policy| format!("--accept {sink}={}: {}", policy_name(*policy), policy_meaning(*policy))),
            );
            hints.extend(replay_waits.as_deref().map(|waits| replay_words(waits, sink, named)));
            hints.push(
                "a policy is a decision with an id; an id that the log knows does nothing, see --decision-id".into(),
            );
            (format!("sink `{sink}`: {}", mismatch_words(mismatch, goes_back)), hints)
        }
        Refusal::Graph(text) | Refusal::Guarantee(text) => (text.clone(), vec![]),
        Refusal::Fork(text) => (text.clone(), vec!["see `tidegate checkpoint list`".to_owned()]),
        Refusal::Log(text) => (text.clone(), vec!["see `tidegate checkpoint verify`".to_owned()]),
    }
}

fn mismatch_words(mismatch: &Mismatch, goes_back: bool) -> String {
    let here = |log: &Option<tidegate_protocol::ids::EpochRef>| match log {
        Some(of) if goes_back => format!("the run would go back to epoch {} of run {}", of.epoch, of.run.number),
        Some(of) => format!("the log's newest is epoch {} of run {}", of.epoch, of.run.number),
        None => "the log knows of none".to_owned(),
    };
    match mismatch {
        Mismatch::Ahead { destination, log } => {
            format!("the destination is ahead: it holds {}, and {}", parts(destination), here(log))
        }
        Mismatch::Behind { destination, log } => {
            format!("the destination is behind: it holds {}, and {}", parts(destination), here(log))
        }
        Mismatch::Foreign { run } => format!(
            "the destination was written by run {run}, which this log never opened: it belongs to another state directory"
        ),
    }
}

fn parts(parts: &[PartId]) -> String {
    match parts.iter().max_by_key(|part| (part.epoch, part.run)) {
        Some(part) => format!("epoch {} of run {}", part.epoch, part.run.number),
        None => "nothing".to_owned(),
    }
}

/// As written on the command line.
pub fn policy_name(policy: MismatchPolicy) -> &'static str {
    match policy {
        MismatchPolicy::AcceptDuplicates => "accept-duplicates",
        MismatchPolicy::AcceptLoss => "accept-loss",
        MismatchPolicy::ReplayFromDestination => "replay-from-destination",
    }
}

fn policy_meaning(policy: MismatchPolicy) -> &'static str {
    match policy {
        MismatchPolicy::AcceptDuplicates => "go on behind what is there; rows may be there twice",
        MismatchPolicy::AcceptLoss => "go on from the log; rows that the destination lost are not sent again",
        MismatchPolicy::ReplayFromDestination => "go back to where the destination stands and send again",
    }
}

/// Why the policy that sends again is not offered, and what comes first.
fn replay_words(waits: &ReplayWaits, behind: &SinkId, named: &Named) -> String {
    let ReplayWaits { sink, of, blocked } = waits;
    let (file, epoch) = (named.file.display(), of.epoch);
    let why = format!(
        "{behind}={} cannot be taken yet: epoch {epoch} at sink `{sink}` is sealed and may still land behind that point; ",
        policy_name(MismatchPolicy::ReplayFromDestination)
    );
    if *blocked {
        why + &format!(
            "look whether its rows are there; if they are not, give it up first, and the replay sends them: {}",
            named.give_up_command(sink, *of)
        )
    } else {
        why + &format!(
            "only a run can end it: put the destination back to a newer state, or start with {behind}=accept-loss, which \
             finishes it; what the destination lost is then sent again from a savepoint only (`tidegate run {file} --from \
             NAME`), and with it what it kept"
        )
    }
}

/// Why an epoch waits for a person.
pub fn blocked_words(blocked: &Blocked) -> String {
    match blocked {
        Blocked::Rejected(error) if error.code == "expired" => format!("it is too late to commit it unasked: {error}"),
        Blocked::Rejected(error) if error.cause() == Some(Cause::Conflict) => {
            format!("another program changed what it builds on: {error}")
        }
        Blocked::Rejected(error) => format!("the destination refuses it for good: {error}"),
        Blocked::Never => "nobody can commit it any more".to_owned(),
        Blocked::TriesSpent(last) => format!("so many tries did not settle it; the last said: {last}"),
        Blocked::CannotAsk(why) => format!("it can neither be repeated nor asked about: {why}"),
    }
}

/// What a pipeline is called on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) file: PathBuf,
    /// It is the replay of that file's dead letters.
    pub(crate) replays: bool,
}

impl Named {
    pub(crate) fn of(file: &PipelineFile) -> Self {
        Self { file: file.path.clone(), replays: file.replays }
    }

    /// The command that decides about a blocked epoch.
    pub(crate) fn resolve_command(&self, sink: &SinkId, of: EpochRef) -> String {
        self.resolve(sink, of, "retry|give-up")
    }

    fn give_up_command(&self, sink: &SinkId, of: EpochRef) -> String {
        self.resolve(sink, of, "give-up")
    }

    fn resolve(&self, sink: &SinkId, of: EpochRef, choice: &str) -> String {
        let (file, replay) = (self.file.display(), if self.replays { " --replay" } else { "" });
        format!("tidegate resolve {file}{replay} --sink {sink} --epoch {} --choice {choice} --by WHO", of.epoch)
    }
}

/// One line how a run of this file ended, then how to go on; for every end. `goes_back`: a mismatch speaks of a checkpoint
/// that the run would go back to.
pub(crate) fn end_words(end: &End, named: &Named, directories: &Directories, goes_back: bool) -> (String, Vec<String>) {
    match end {
        End::Finished => ("finished: the input has ended and everything is committed".to_owned(), vec![]),
        End::Stopped => ("stopped: everything that was sealed is committed".to_owned(), vec![]),
        End::StoppedInDoubt { waiting } => {
            let what: Vec<_> =
                waiting.iter().map(|(sink, of)| format!("epoch {} at sink `{sink}`", of.epoch)).collect();
            (
                format!("stopped: sealed and not yet committed: {}", what.join(", ")),
                vec!["nothing is lost; start again to finish them".to_owned()],
            )
        }
        End::Blocked { waiting } => {
            let what = waiting
                .iter()
                .map(|(sink, of, why)| format!("epoch {} at sink `{sink}`: {}", of.epoch, blocked_words(why)));
            let mut hints = Vec::new();
            if waiting.iter().any(|(.., why)| matches!(why, Blocked::TriesSpent(_))) {
                hints.push("mend the cause and start again: the next run tries again by itself; or decide:".to_owned());
            }
            hints.extend(waiting.iter().map(|(sink, of, _)| named.resolve_command(sink, *of)));
            let sinks: BTreeSet<&SinkId> = waiting.iter().map(|(sink, ..)| sink).collect();
            hints.extend(sinks.into_iter().flat_map(|sink| directories.hints(sink)));
            (format!("blocked, a person must decide: {}", what.collect::<Vec<_>>().join("; ")), hints)
        }
        End::Restart(failure) | End::Failed(failure) => {
            let go_on = "nothing is lost; the next run goes on behind the last sealed epoch";
            match failure {
                // What a source could not read any more may be lost there; its message says so.
                TaskFailure::Source { .. } => {
                    (failure.to_string(), vec!["the next run goes on behind the last sealed epoch".to_owned()])
                }
                TaskFailure::Plugin(sink, fault) => {
                    let mending = directories.mending(sink, fault);
                    let mut hints: Vec<_> =
                        mending.into_iter().map(|mending| format!("{mending}; then start again")).collect();
                    hints.push(go_on.to_owned());
                    // A cause that is known is told with the directory.
                    hints.extend(directories.hints(sink).into_iter().filter(|_| fault.cause().is_none()));
                    (directories.words(sink, None, fault), hints)
                }
                other => (other.to_string(), vec![go_on.to_owned()]),
            }
        }
        End::Refused(refusal) => words(refusal, named, goes_back),
        End::Superseded(message) => (
            format!("a newer run owns the pipeline: {message}"),
            vec!["find the other process and stop one of the two".to_owned()],
        ),
        End::StoreFailed(message) => (
            format!("the log cannot be written any more: {message}"),
            vec!["mend the disk and start again; the log is recovered when it is opened".to_owned()],
        ),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_protocol::ids::{Epoch, Nonce, RunId};

    use super::*;

    #[test]
    fn what_is_blocked_is_told_with_the_command_that_decides() {
        let run = RunId { number: 3, nonce: Nonce([0; 10]) };
        let of = EpochRef { run, epoch: Epoch(41) };
        let why = Blocked::TriesSpent("no answer".to_owned());
        let replay = Named { file: PathBuf::from("a/p.toml"), replays: true };
        assert!(replay.resolve_command(&SinkId::new("out").unwrap(), of).contains("a/p.toml --replay --sink out"));
        let (message, hints) = end_words(
            &End::Blocked { waiting: vec![(SinkId::new("out").unwrap(), of, why)] },
            &Named { replays: false, ..replay },
            &Directories::default(),
            false,
        );
        assert_eq!(
            message,
            "blocked, a person must decide: epoch 41 at sink `out`: so many tries did not settle it; the last said: no answer"
        );
        assert!(hints[0].contains("the next run tries again"), "{hints:?}");
        assert_eq!(hints[1..], ["tidegate resolve a/p.toml --sink out --epoch 41 --choice retry|give-up --by WHO"]);
    }

    #[test]
    fn a_mismatch_is_told_with_every_policy_that_allows_it() {
        let run = RunId { number: 3, nonce: Nonce([0; 10]) };
        let refusal = Refusal::Mismatch {
            sink: SinkId::new("out").unwrap(),
            mismatch: Mismatch::Behind { destination: vec![], log: Some(EpochRef { run, epoch: Epoch(7) }) },
            policies: vec![MismatchPolicy::AcceptLoss, MismatchPolicy::ReplayFromDestination],
            replay_waits: None,
        };
        let named = Named { file: PathBuf::from("p.toml"), replays: false };
        let (message, hints) = words(&refusal, &named, false);
        assert_eq!(
            message,
            "sink `out`: the destination is behind: it holds nothing, and the log's newest is epoch 7 of run 3"
        );
        assert!(hints[1].starts_with("--accept out=accept-loss: ") && hints[2].contains("=replay-from-destination: "));
    }

    #[test]
    fn a_replay_that_is_not_possible_yet_is_told_with_what_comes_first() {
        let of = EpochRef { run: RunId { number: 3, nonce: Nonce([0; 10]) }, epoch: Epoch(7) };
        let named = Named { file: PathBuf::from("p.toml"), replays: false };
        let hint = |blocked| {
            let refusal = Refusal::Mismatch {
                sink: SinkId::new("out").unwrap(),
                mismatch: Mismatch::Behind { destination: vec![], log: Some(of) },
                policies: vec![MismatchPolicy::AcceptLoss],
                replay_waits: Some(Box::new(ReplayWaits { sink: SinkId::new("other").unwrap(), of, blocked })),
            };
            words(&refusal, &named, false).1[2].clone()
        };
        assert!(hint(true).ends_with("tidegate resolve p.toml --sink other --epoch 7 --choice give-up --by WHO"));
        let on_its_way = hint(false);
        assert!(
            on_its_way.contains("epoch 7 at sink `other`") && on_its_way.contains("out=accept-loss"),
            "{on_its_way}"
        );
        assert!(!on_its_way.contains("resolve"), "nothing is blocked: {on_its_way}");
    }
}
