//! The explorations.

use tidegate_protocol::plugin::{AtomicScope, Orphans};
use tidegate_protocol::record::MismatchPolicy;

use crate::plan::{Choosing, How, Plan, SinkPlan, Spend, StartKind};

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
            .faults(1, &[How::Late, How::Never])
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
        // Repeated answers, timers and reports, which nobody waits for any more.
        Plan::new("repeated", vec![SinkPlan::able("a", 1)], &[1])
            .allow(Spend::Crash, 1)
            .faults(1, &[How::Twice, How::DoneLost, How::NotDone])
            .set(|plan| plan.answers_travel = true),
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

/// A plan that shows why a rule is there: with the rule nothing is broken, without it `breaks` is.
#[derive(Debug)]
pub struct CounterExample {
    /// Its number in the design.
    pub number: u32,
    /// What happens.
    pub tells: &'static str,
    /// The promise that is broken without the rule.
    pub breaks: &'static str,
    /// The rule of the environment that is taken out; `None`: a rule of the protocol, taken out by a patch of `rules/`.
    pub rule: Option<&'static str>,
    /// What is explored.
    pub plan: Plan,
}

/// The counter-examples that shaped the design, in order.
pub fn counter_examples() -> Vec<CounterExample> {
    let one = || vec![SinkPlan::able("a", 1)];
    let fenceless = || vec![SinkPlan::able("a", 1).with(|can| can.fence = false)];
    let example = |number, tells, breaks, rule, plan| CounterExample { number, tells, breaks, rule, plan };
    vec![
        example(
            1,
            "a sleeper seals what a newer run gave back",
            "P7",
            Some("one-log"),
            Plan::new("counter-example-1", one(), &[1]).allow(Spend::Zombie, 1),
        ),
        example(
            2,
            "a run aborts an epoch whose seal lands late",
            "P2",
            None,
            Plan::new("counter-example-2", one(), &[1]).faults(1, &[How::Late]),
        ),
        example(
            3,
            "an epoch outlives the instance that took its first rows",
            "P12",
            None,
            Plan::new("counter-example-3", one(), &[1, 1]).allow(Spend::Loss, 1),
        ),
        example(
            4,
            "a fork leaves a sealed epoch behind whose commit is under way",
            "P1",
            None,
            Plan::new("counter-example-4", fenceless(), &[1, 1])
                .allow(Spend::Crash, 1)
                .allow(Spend::Decision, 1)
                .starts(&[StartKind::Fork(MismatchPolicy::AcceptLoss)]),
        ),
        example(
            5,
            "the same request to go back is carried out twice",
            "P8",
            None,
            Plan::new("counter-example-5", one(), &[1])
                .allow(Spend::Restart, 2)
                .allow(Spend::Decision, 2)
                .starts(&[StartKind::Fork(MismatchPolicy::AcceptDuplicates)]),
        ),
        example(
            6,
            "a run of a restored backup has the ids of the one that it replaces",
            "P1",
            Some("nonce"),
            Plan::new("counter-example-6", one(), &[1, 1])
                .allow(Spend::Backup, 1)
                .set(|plan| plan.backup_of_all = true),
        ),
        example(
            7,
            "a commit that was stuck lands behind the one that was sent in its place",
            "P1",
            Some("idempotence"),
            Plan::new("counter-example-7", one(), &[1]).faults(1, &[How::Late]),
        ),
        example(
            8,
            "a copy of the state fences production and then refuses",
            "P8",
            None,
            Plan::new("counter-example-8", one(), &[1]).allow(Spend::Backup, 1),
        ),
        example(
            9,
            "half an object becomes whole when its writer is gone",
            "P2",
            Some("broken-ends"),
            Plan::new("counter-example-9", one(), &[1]).allow(Spend::Crash, 1),
        ),
        example(
            10,
            "a record that only the page cache had is acted upon",
            "P6",
            Some("rewritten-tail"),
            Plan::new("counter-example-10", one(), &[1]).faults(1, &[How::Volatile]).allow(Spend::Power, 1),
        ),
        example(
            11,
            "a resource is released while its checkpoint can be restored",
            "P5",
            None,
            Plan::new("counter-example-11", one(), &[1, 1, 1]).set(|plan| (plan.retain, plan.max_waiting) = (1, 1)),
        ),
        example(
            12,
            "a sink that has not committed is renamed",
            "P1",
            None,
            Plan::new("counter-example-12", vec![SinkPlan::able("a", 1), SinkPlan::able("b", 1)], &[1])
                .allow(Spend::Crash, 1)
                .allow(Spend::Decision, 1)
                .starts(&[StartKind::Renamed]),
        ),
    ]
}
