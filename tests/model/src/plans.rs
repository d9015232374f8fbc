//! The explorations.

use tidegate_protocol::plugin::{AtomicScope, Orphans};
use tidegate_protocol::record::MismatchPolicy;

use crate::plan::{Choosing, How, Plan, PutBack, SinkPlan, Spend, StartKind};

/// What may become of a call or an append whose answer is lost.
const LOST: [How; 4] = [How::DoneLost, How::Late, How::Twice, How::Trapped];

/// All that a commit, or a question about one, may be answered with.
const ANSWERS: [How; 14] = [
    How::Permanent,
    How::Partly,
    How::NotDone,
    How::RetryAfter,
    How::Unknown,
    How::UnknownDone,
    How::Retryable,
    How::Denied,
    How::Superseded,
    How::Unsupported,
    How::CannotSay,
    How::Rejected,
    How::Never,
    How::Short,
];

/// What may become of clean up.
const CLEAN: [How; 9] = [
    How::DoneLost,
    How::Late,
    How::NotDone,
    How::Retryable,
    How::Permanent,
    How::Rejected,
    How::Superseded,
    How::Unsupported,
    How::Partly,
];

/// What may become of an append.
const APPENDS: [How; 5] = [How::DoneLost, How::Late, How::NotDone, How::Refused, How::TakenByItself];

fn participant_scope(name: &'static str, participants: u32) -> SinkPlan {
    SinkPlan::able(name, participants).with(|can| can.atomic_scope = AtomicScope::Participant)
}

/// Those of a run in CI.
pub fn quick() -> Vec<Plan> {
    vec![
        Plan::new("tiny", vec![SinkPlan::able("a", 1)], &[1]).allow(Spend::Crash, 1),
        Plan::new("crash-and-lost-answer", vec![SinkPlan::able("a", 2)], &[2, 1])
            .allow(Spend::Crash, 1)
            .faults(1, &LOST),
        // Every answer that there is, one at a time, and what a person decides about it.
        Plan::new("answers", vec![participant_scope("a", 2)], &[2])
            .faults(2, &ANSWERS)
            .allow(Spend::Restart, 1)
            .allow(Spend::Decision, 1)
            .choices(&[Choosing::Retry, Choosing::GiveUp]),
        Plan::new("appends", vec![SinkPlan::able("a", 1)], &[1]).faults(2, &APPENDS),
        // A host that thinks that it lives.
        Plan::new("zombie", vec![SinkPlan::able("a", 1)], &[1, 1]).allow(Spend::Zombie, 1),
        Plan::new("zombie-travelling", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Zombie, 1)
            .set(|plan| plan.answers_travel = true),
        // Epochs that are lost, for every reason; a stop at every moment.
        Plan::new("losses", vec![SinkPlan::able("a", 1)], &[1, 1])
            .allow(Spend::Loss, 1)
            .allow(Spend::Stop, 1)
            .set(|plan| plan.losses = 8),
        Plan::new(
            "mute",
            vec![SinkPlan::able("a", 2).with(|can| (can.reconcile, can.idempotent_commit) = (false, false))],
            &[2],
        )
        .allow(Spend::Crash, 1)
        .faults(1, &LOST)
        .allow(Spend::Restart, 1)
        .allow(Spend::Decision, 1)
        .choices(&[Choosing::Retry, Choosing::GiveUp]),
        Plan::new("two-sinks-small", vec![SinkPlan::able("a", 1), SinkPlan::able("b", 1)], &[1])
            .allow(Spend::Crash, 1)
            .allow(Spend::Restart, 1)
            .allow(Spend::Decision, 1)
            .starts(&[StartKind::Renamed, StartKind::OtherGrants, StartKind::OtherPlugin, StartKind::ForkNowhere]),
        Plan::new(
            "rescale-small",
            vec![SinkPlan { participants: vec![2, 3], states: true, ..SinkPlan::able("a", 2) }],
            &[2, 3],
        )
        .allow(Spend::Crash, 1),
        Plan::new("retention", vec![SinkPlan::able("a", 1)], &[1, 1, 1])
            .allow(Spend::Crash, 1)
            .set(|plan| (plan.retain, plan.max_waiting, plan.probes) = (1, 1, false)),
        Plan::new("intents", vec![SinkPlan::able("a", 1).with(|can| can.orphans = Orphans::DurableIntent)], &[1, 1])
            .allow(Spend::Crash, 1),
        Plan::new("savepoints", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Savepoint, 2)
            .allow(Spend::Forget, 1)
            .allow(Spend::Withdraw, 1)
            .allow(Spend::Crash, 1),
        Plan::new("fork", vec![SinkPlan::able("a", 1)], &[1, 1])
            .allow(Spend::Restart, 1)
            .allow(Spend::Decision, 1)
            .faults(1, &[How::Late, How::Never, How::Rejected])
            .starts(&[StartKind::Fork(MismatchPolicy::AcceptDuplicates), StartKind::Fork(MismatchPolicy::AcceptLoss)])
            .choices(&[Choosing::Fork(MismatchPolicy::AcceptDuplicates)]),
        Plan::new("backup", vec![SinkPlan::able("a", 1)], &[1, 1])
            .allow(Spend::Backup, 1)
            .allow(Spend::Restart, 1)
            .allow(Spend::Decision, 1)
            .starts(&[
                StartKind::Accept(MismatchPolicy::AcceptDuplicates),
                StartKind::Accept(MismatchPolicy::AcceptLoss),
                StartKind::Accept(MismatchPolicy::ReplayFromDestination),
            ])
            .choices(&[Choosing::Accept(MismatchPolicy::AcceptLoss)])
            .set(|plan| plan.probes = false),
        // A destination that lost its newest commit, and one that another log wrote to, at any time.
        Plan::new("mismatches", vec![participant_scope("a", 2)], &[2, 1])
            .allow(Spend::Backup, 1)
            .allow(Spend::Restart, 1)
            .allow(Spend::Crash, 1)
            .allow(Spend::Decision, 1)
            .starts(&[
                StartKind::Accept(MismatchPolicy::AcceptLoss),
                StartKind::Accept(MismatchPolicy::ReplayFromDestination),
            ])
            .set(|plan| (plan.put_back, plan.probes) = (PutBack::Destination, false)),
        Plan::new("strangers", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Stranger, 1)
            .allow(Spend::Crash, 1)
            .allow(Spend::Restart, 2)
            .allow(Spend::Decision, 1)
            .starts(&[
                StartKind::Accept(MismatchPolicy::AcceptDuplicates),
                StartKind::Accept(MismatchPolicy::AcceptLoss),
                StartKind::Accept(MismatchPolicy::ReplayFromDestination),
            ])
            .set(|plan| plan.probes = false),
        // The log that is put back knows what was announced and not that it was sealed.
        Plan::new(
            "backup-announced",
            vec![SinkPlan::able("a", 1).with(|can| can.orphans = Orphans::DurableIntent)],
            &[1],
        )
        .allow(Spend::Backup, 1)
        .allow(Spend::Restart, 1)
        .allow(Spend::Decision, 1)
        .starts(&[StartKind::Accept(MismatchPolicy::AcceptDuplicates)])
        .set(|plan| plan.probes = false),
        // Repeated answers, timers and reports, which nobody waits for any more.
        Plan::new("repeated", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Crash, 1)
            .faults(1, &[How::Twice, How::DoneLost, How::NotDone])
            .set(|plan| plan.answers_travel = true),
        Plan::new("repeated-over-epochs", vec![SinkPlan::able("a", 1)], &[1, 1])
            .allow(Spend::Crash, 1)
            .faults(1, &[How::Twice])
            .set(|plan| (plan.max_waiting, plan.answers_travel, plan.probes) = (1, true, false)),
        // A repeated answer to an earlier try, at a destination where each try has its effect.
        Plan::new("told-twice", vec![SinkPlan::able("a", 1).with(|can| can.idempotent_commit = false)], &[1])
            .faults(2, &[How::ToldTwice, How::RetryAfter])
            .set(|plan| {
                (plan.tries, plan.answers_travel, plan.probes) = (3, true, false);
                plan.without.idempotence = true;
            }),
        // Giving back and releasing go wrong in every way.
        Plan::new("clean-up", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Crash, 1)
            .faults(1, &CLEAN)
            .allow(Spend::Sweep, 1),
        Plan::new("releases", vec![SinkPlan::able("a", 1)], &[1, 1])
            .faults(1, &CLEAN)
            .set(|plan| (plan.retain, plan.max_waiting) = (1, 1)),
        Plan::new("zombie-cleans", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Crash, 1)
            .allow(Spend::Zombie, 1)
            .set(|plan| plan.max_waiting = 1),
        Plan::new("zombie-releases", vec![SinkPlan::able("a", 1)], &[1, 1])
            .allow(Spend::Zombie, 1)
            .set(|plan| (plan.retain, plan.max_waiting) = (1, 1)),
        Plan::new("given-up-and-retired", vec![SinkPlan::able("a", 1)], &[1, 1])
            .faults(1, &[How::Rejected])
            .allow(Spend::Decision, 1)
            .allow(Spend::Restart, 1)
            .allow(Spend::Crash, 1)
            .choices(&[Choosing::GiveUp])
            .set(|plan| (plan.retain, plan.max_waiting) = (1, 1)),
        Plan::new("releases-repeated", vec![SinkPlan::able("a", 1)], &[1, 1])
            .faults(1, &[How::Twice])
            .set(|plan| (plan.retain, plan.max_waiting, plan.answers_travel) = (1, 1, true)),
        Plan::new("power", vec![SinkPlan::able("a", 1)], &[1]).faults(1, &[How::Volatile]).allow(Spend::Power, 1),
    ]
}

/// Those of a full run, the largest first; the quick ones are among them.
pub fn full() -> Vec<Plan> {
    let mut plans = vec![
        Plan::new("two-by-two-by-two", vec![SinkPlan::able("a", 2)], &[2, 1])
            .allow(Spend::Crash, 2)
            .faults(1, &[How::DoneLost, How::Late])
            .set(|plan| plan.probes = false),
        Plan::new("three-by-two", vec![participant_scope("a", 3)], &[3, 2])
            .allow(Spend::Crash, 1)
            .faults(1, &[How::DoneLost, How::Late, How::Twice, How::Trapped, How::Partly]),
        Plan::new(
            "rescale",
            vec![SinkPlan { participants: vec![2, 3], states: true, ..participant_scope("a", 2) }],
            &[2, 3],
        )
        .allow(Spend::Crash, 1)
        .faults(1, &LOST),
        Plan::new("zombie-and-crash", vec![SinkPlan::able("a", 2)], &[2, 1])
            .allow(Spend::Zombie, 1)
            .allow(Spend::Crash, 1),
        Plan::new("zombie-travelling-lost", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Zombie, 1)
            .faults(1, &LOST)
            .set(|plan| plan.answers_travel = true),
        Plan::new("two-zombies", vec![SinkPlan::able("a", 1)], &[1]).allow(Spend::Zombie, 2),
        Plan::new("two-zombies-travelling", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Zombie, 2)
            .set(|plan| plan.answers_travel = true),
        Plan::new("zombie-travelling-two-epochs", vec![SinkPlan::able("a", 1)], &[1, 1])
            .allow(Spend::Zombie, 1)
            .allow(Spend::Crash, 1)
            .set(|plan| plan.answers_travel = true),
        Plan::new("two-sinks-zombie", vec![SinkPlan::able("a", 1), SinkPlan::able("b", 1)], &[1])
            .allow(Spend::Zombie, 1),
        Plan::new("zombie-without-fence", vec![participant_scope("a", 2).with(|can| can.fence = false)], &[2, 1])
            .allow(Spend::Zombie, 1)
            .faults(1, &LOST),
    ];
    plans.extend(quick());
    plans
}
