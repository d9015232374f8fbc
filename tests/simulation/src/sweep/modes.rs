//! Which disturbances apply where.

use tidegate_protocol::plugin::{Call, ErrorKind};

use super::effect::{Between, Break, DiskOp, LogOp, Mode, Phase, Said, SourceOp, What};
use super::scenario::Scenario;

/// Every way in which this effect is disturbed.
pub(crate) fn modes(scenario: &Scenario, what: &What) -> Vec<Mode> {
    let mut modes = vec![Mode::Kill(Between::Nothing)];
    modes.extend(scenario.betweens.iter().map(|between| Mode::Kill(*between)));
    if scenario.power {
        modes.push(Mode::Power);
    }
    if scenario.hosts {
        modes.push(Mode::Pause);
    }
    match what {
        What::Disk { op, .. } => {
            modes.push(Mode::Eio);
            if scenario.power {
                modes.push(Mode::EioThenPower);
            }
            if matches!(op, DiskOp::Create | DiskOp::Write | DiskOp::Flush | DiskOp::MakeFolder | DiskOp::Rename) {
                modes.push(Mode::Full);
            }
        }
        What::Look { list, .. } => {
            modes.push(Mode::Eio);
            if *list {
                modes.push(Mode::Miss);
            }
        }
        What::Log { op, phase } => modes.extend(log_modes(*op, *phase)),
        What::Call { call, phase, .. } if scenario.plugins => modes.extend(call_modes(scenario, *call, *phase)),
        What::Call { .. } => {}
        What::Source { op: SourceOp::Open | SourceOp::Next } => modes.push(Mode::SourceFails),
        What::Source { op: SourceOp::Committed } => {}
        What::Step => modes.extend([Mode::Clock(-24), Mode::Clock(24), Mode::Stop, Mode::Savepoint]),
    }
    modes
}

fn log_modes(op: LogOp, phase: Phase) -> Vec<Mode> {
    match (op, phase) {
        (LogOp::Append, Phase::Before) => vec![Mode::Full, Mode::Refused, Mode::Hang],
        (LogOp::Append, _) => vec![Mode::AnswerLost, Mode::TakenByUs],
        (LogOp::ReadAll, _) => {
            let (stale, gaps) = ((1..=8).map(Mode::Stale), (0..8).map(Mode::Gap));
            [Mode::Eio].into_iter().chain(stale).chain(gaps).collect()
        }
        (_, _) => vec![Mode::Eio],
    }
}

/// What an instance can do in the middle of anything.
const BROKEN: [Mode; 4] = [Mode::Trap, Mode::Budget("memory"), Mode::Panic, Mode::Hang];

fn call_modes(scenario: &Scenario, call: Call, phase: Phase) -> Vec<Mode> {
    let mut modes = BROKEN.to_vec();
    if phase != Phase::Before {
        modes.push(Mode::Lost);
        if phase == Phase::After {
            modes.extend([Mode::Deaf(3), Mode::Deaf(12)]);
        }
        return modes;
    }
    modes.extend([Mode::Mute(3), Mode::Mute(12)]);
    let late = || {
        let late = scenario.late.iter();
        late.flat_map(|calls| [Mode::Late(*calls), Mode::KillLate(*calls), Mode::LateThenDies(calls + 5)])
    };
    let says = |kinds: &[ErrorKind]| kinds.iter().map(|kind| Mode::Says(*kind)).collect::<Vec<_>>();
    use ErrorKind::{EpochLost, Permanent, Retryable, Unknown};
    match call {
        Call::Open | Call::Begin | Call::Write => modes.extend(says(&[EpochLost, Retryable])),
        Call::Prepare => {
            modes.extend(says(&[EpochLost, Retryable]));
            modes.extend(late());
            modes.extend([Mode::Lie, Mode::Malformed(Break::Count), Mode::Malformed(Break::Foreign)]);
        }
        Call::Observe => modes.extend(says(&[Retryable])),
        Call::Fence => {
            modes.extend(says(&[Retryable, Unknown]));
            modes.extend(late());
            modes.push(Mode::Lie);
        }
        Call::Commit => {
            modes.extend(says(&[Retryable, Permanent, Unknown]));
            modes.extend([Mode::Outcome(Said::Retry), Mode::Outcome(Said::Unknown), Mode::Outcome(Said::Rejected)]);
            modes.extend(late());
            modes.extend([Mode::Twice, Mode::Lie, Mode::Malformed(Break::Count), Mode::DeniedFor(2)]);
        }
        Call::Reconcile => {
            modes.extend(says(&[Retryable, Unknown]));
            modes.push(Mode::Malformed(Break::Count));
        }
        Call::Abandon | Call::Release => {
            modes.extend(says(&[Retryable, Permanent]));
            modes.extend(late());
            modes.extend([Mode::Lie, Mode::Malformed(Break::Count)]);
        }
        Call::ListOrphans => {
            modes.extend(says(&[Retryable]));
            modes.push(Mode::Miss);
        }
        Call::Instantiate | Call::Describe => {}
    }
    modes
}
