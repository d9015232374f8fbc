//! The counter-examples that shaped the design. Each has a small exploration in which nothing is broken while its rule
//! stands, and in which the promise that it names, and no other one, is broken when that rule is taken out.

use tidegate_protocol::record::MismatchPolicy;

use crate::explore::{Failure, Order, Report, explore};
use crate::judge::{self, Promise};
use crate::plan::{How, Plan, PutBack, SinkPlan, Spend, StartKind};

/// What keeps an accident from happening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A rule of the environment, by its name in [`crate::plan::Without`].
    Environment(&'static str),
    /// A rule of the protocol: the patch of `rules/` that takes it out, without its ending.
    Protocol(&'static str),
}

/// A plan that shows why a rule is there.
#[derive(Debug)]
pub struct CounterExample {
    /// Its number in the design; with a letter where it has several forms.
    pub name: &'static str,
    /// Its number in the design.
    pub number: u32,
    /// What happens.
    pub tells: &'static str,
    /// The promise that is broken without the rule.
    pub breaks: Promise,
    /// What is taken out.
    pub rule: Rule,
    /// What is explored, with the rule and without.
    pub plan: Plan,
}

impl CounterExample {
    /// Explores it. Without a rule of the protocol this must be a program in which that rule's patch is planted.
    ///
    /// # Errors
    /// A promise is broken, or there are more states than `most`.
    pub fn explored(&self, taken_out: bool, most: u64) -> Result<Report, Failure> {
        let mut plan = self.plan.clone();
        if let (Rule::Environment(rule), true) = (self.rule, taken_out)
            && !plan.without.take_out(rule)
        {
            return Err(Failure::Broken(judge::fault("a rule that is not known"), Vec::new()));
        }
        explore(plan, Order::ShortestFirst, most)
    }

    /// Why that is not what must come of it, with its rule or without.
    pub fn objection(&self, taken_out: bool, explored: &Result<Report, Failure>) -> Option<String> {
        match (taken_out, explored) {
            (_, Err(Failure::TooLarge(states))) => Some(format!("it was cut short at {states} states")),
            (false, Err(Failure::Broken(violation, _))) => {
                Some(format!("it happens although its rule stands: {violation}"))
            }
            (true, Ok(_)) => Some("it does not happen without its rule".to_owned()),
            (true, Err(Failure::Broken(violation, _))) if violation.promise != self.breaks => {
                Some(format!("without its rule another promise than {:?} is broken: {violation}", self.breaks))
            }
            (false, Ok(_)) | (true, Err(Failure::Broken(..))) => None,
        }
    }
}

/// All of them, in the order of the design.
pub fn counter_examples() -> Vec<CounterExample> {
    use Promise::{P1, P2, P5, P6, P7, P8, P12};
    use Rule::{Environment, Protocol};
    let one = || vec![SinkPlan::able("a", 1)];
    let two = || vec![SinkPlan::able("a", 1), SinkPlan::able("b", 1)];
    let fenceless = || vec![SinkPlan::able("a", 1).with(|can| can.fence = false)];
    let example = |number, breaks, tells, rule, plan: Plan| {
        let name = plan.name.trim_start_matches("counter-example-");
        CounterExample { name, number, tells, breaks, rule, plan }
    };
    vec![
        example(
            1,
            P7,
            "a sleeper seals what a newer run gave back",
            Environment("one-log"),
            Plan::new("counter-example-1", one(), &[1]).allow(Spend::Zombie, 1),
        ),
        example(
            2,
            P2,
            "a run aborts an epoch whose seal lands late",
            Protocol("02-a-run-aborts-its-own-epoch"),
            Plan::new("counter-example-2", one(), &[1]).faults(1, &[How::Late]),
        ),
        example(
            3,
            P12,
            "an epoch outlives the instance that took its first rows",
            Protocol("03-an-epoch-outlives-its-instance"),
            Plan::new("counter-example-3", one(), &[1, 1]).allow(Spend::Loss, 1),
        ),
        example(
            4,
            P1,
            "a fork leaves a sealed epoch behind whose commit is under way",
            Protocol("04-a-fork-leaves-commits-under-way"),
            Plan::new("counter-example-4", fenceless(), &[1, 1])
                .allow(Spend::Crash, 1)
                .allow(Spend::Decision, 1)
                .starts(&[StartKind::Fork(MismatchPolicy::AcceptLoss)]),
        ),
        example(
            5,
            P8,
            "the same request to go back is carried out twice",
            Protocol("05-a-request-is-carried-out-again"),
            Plan::new("counter-example-5", one(), &[1])
                .allow(Spend::Restart, 2)
                .allow(Spend::Decision, 2)
                .starts(&[StartKind::Fork(MismatchPolicy::AcceptDuplicates)]),
        ),
        example(
            6,
            P1,
            "a run of a restored backup has the ids of the one that it replaces",
            Environment("nonce"),
            Plan::new("counter-example-6", one(), &[1, 1])
                .allow(Spend::Backup, 1)
                .set(|plan| plan.put_back = PutBack::Everything),
        ),
        example(
            7,
            P1,
            "a commit that was stuck lands behind the one that was sent in its place",
            Environment("idempotence"),
            Plan::new("counter-example-7", one(), &[1]).faults(1, &[How::Late]),
        ),
        example(
            8,
            P8,
            "a copy of the state fences production and then refuses",
            Protocol("08-fence-before-compare"),
            Plan::new("counter-example-8-ahead", one(), &[1])
                .allow(Spend::Backup, 1)
                .set(|plan| plan.put_back = PutBack::Log),
        ),
        example(
            8,
            P8,
            "a destination that was put back is fenced and taken as it is",
            Protocol("08-fence-before-compare"),
            Plan::new("counter-example-8-behind", one(), &[1])
                .allow(Spend::Backup, 1)
                .allow(Spend::Restart, 1)
                .set(|plan| plan.put_back = PutBack::Destination),
        ),
        example(
            8,
            P8,
            "a destination that another log writes to is fenced and taken as it is",
            Protocol("08-fence-before-compare"),
            Plan::new("counter-example-8-foreign", one(), &[1]).allow(Spend::Stranger, 1),
        ),
        example(
            8,
            P8,
            "another log writes to a destination between look and fence",
            Protocol("08-no-second-look"),
            Plan::new("counter-example-8-meanwhile", one(), &[1]).allow(Spend::Stranger, 1).allow(Spend::Crash, 1),
        ),
        example(
            9,
            P2,
            "half an object becomes whole when its writer is gone",
            Environment("broken-ends"),
            Plan::new("counter-example-9", one(), &[1]).allow(Spend::Crash, 1),
        ),
        example(
            10,
            P6,
            "a record that only the page cache had is acted upon",
            Environment("rewritten-tail"),
            Plan::new("counter-example-10", one(), &[1]).faults(1, &[How::Volatile]).allow(Spend::Power, 1),
        ),
        example(
            11,
            P5,
            "a resource is released while its checkpoint can be restored",
            Protocol("11-release-before-retire"),
            Plan::new("counter-example-11", one(), &[1, 1, 1]).set(|plan| (plan.retain, plan.max_waiting) = (1, 1)),
        ),
        example(
            12,
            P1,
            "a sink that has not committed is renamed",
            Protocol("12-a-sink-is-renamed-in-doubt"),
            Plan::new("counter-example-12-renamed", two(), &[1])
                .allow(Spend::Crash, 1)
                .allow(Spend::Decision, 1)
                .starts(&[StartKind::Renamed]),
        ),
        example(
            12,
            P1,
            "an epoch is committed at one sink and blocked at the other; going back for the other repeats it at the one",
            Protocol("12-going-back-asks-one-sink-alone"),
            Plan::new("counter-example-12-blocked", two(), &[1, 1])
                .faults(1, &[How::Never])
                .allow(Spend::Restart, 1)
                .allow(Spend::Decision, 1)
                .starts(&[StartKind::Fork(MismatchPolicy::AcceptLoss)])
                .set(|plan| (plan.max_waiting, plan.probes) = (1, false)),
        ),
        example(
            12,
            P1,
            "one destination is put back; sending again what it lost repeats it at the other",
            Protocol("12-going-back-asks-one-sink-alone"),
            Plan::new("counter-example-12-replayed", two(), &[1, 1])
                .allow(Spend::Backup, 1)
                .allow(Spend::Restart, 1)
                .allow(Spend::Decision, 1)
                .starts(&[StartKind::Accept(MismatchPolicy::ReplayFromDestination)])
                .set(|plan| {
                    plan.put_back = PutBack::Destination;
                    (plan.max_waiting, plan.probes) = (1, false);
                }),
        ),
    ]
}
