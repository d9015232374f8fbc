//! What a case says of its guest.

use std::time::{Duration, Instant};

use tidegate_protocol::plugin::{
    Call, CallFault, Description, FaultKind, OrphanPage, Outcome, Position, Prepared, Reject,
};
use tidegate_wasm::{Limits, LogLine, MetricSample, Tenant};

/// A guest and the case that judges it.
pub struct Guest {
    /// Number and words, as its files are called.
    pub name: &'static str,
    /// What it is made of.
    pub source: Source,
    /// What must come of it.
    pub case: fn() -> Case,
}

/// What a guest is made of.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// One of the guests of the Rust component.
    Rust,
    /// Fields of a core module in WAT, of which the build made this component.
    Wat(&'static [u8]),
}

/// What must come of a guest.
pub struct Case {
    /// What is attacked, and how.
    pub attacks: &'static str,
    /// In which call it attacks.
    pub call: Call,
    /// How that call must end.
    pub expect: Expect,
    /// What it may spend.
    pub limits: Limits,
    /// What must hold besides.
    pub check: Check,
    /// How a pipeline with it ends.
    pub pipeline: Ends,
    /// Rows per second that the pipeline reads; with it there are several epochs.
    pub rate: Option<u64>,
    /// What is done instead of calling one instance after the other.
    pub instead: Option<Instead>,
    /// How many instances attack at once: the growth of memory is divided by them.
    pub instances: u64,
    /// Repeated without end, it is measured how a neighbour fares.
    pub crowds: bool,
}

/// What must hold besides.
pub type Check = fn(&Seen) -> Result<(), String>;
/// Everything that a case does by itself.
pub type Instead = fn(&crate::stage::Stage) -> crate::stage::Doing<'_>;

/// How the attacking call must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// With this budget spent.
    Budget(&'static str),
    /// With a trap.
    Trap,
    /// With the wall clock.
    Timeout,
    /// With an answer that is refused.
    Malformed,
    /// With the plugin's own error, which is shown in safe words.
    Error,
    /// With a good answer that does no harm: `check` says what it must look like.
    Harmless,
    /// It does not come to a call: the file is refused, and the words hold this.
    Refused(&'static str),
    /// Either of two budgets, or a trap: whichever the engine meets first.
    Stopped,
}

/// How a pipeline with the guest as its sink ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// It is not run: the plugin is refused at the door, or the attack is no matter of the protocol.
    NotRun,
    /// However it ends; and the next run, with a plugin that behaves well, finishes.
    ThenFinishes,
    /// It finishes although it is attacked.
    Finishes,
    /// A sealed epoch waits for a person.
    Waits,
}

/// What was seen of a guest.
pub struct Seen {
    /// The first call that failed.
    pub fault: Option<CallFault>,
    /// Why it was not admitted.
    pub refused: Option<String>,
    /// What it says of itself.
    pub description: Option<Description>,
    /// Rejects of all writes.
    pub rejects: Vec<Reject>,
    /// Its answer to prepare.
    pub prepared: Option<Prepared>,
    /// Its answer to observe.
    pub position: Option<Position>,
    /// Its answer to commit.
    pub outcomes: Vec<Outcome>,
    /// Its answer to list-orphans.
    pub page: Option<OrphanPage>,
    /// What it logged.
    pub lines: Vec<LogLine>,
    /// What it measured.
    pub samples: Vec<MetricSample>,
    /// What it announced.
    pub intents: Vec<String>,
    /// When the last call began.
    pub began: Instant,
    /// Who pays.
    pub tenant: Tenant,
    /// What was found besides, by a case that did something of its own.
    pub noted: Vec<String>,
}

impl Seen {
    /// Nothing yet.
    pub fn new(tenant: Tenant) -> Self {
        Self {
            fault: None,
            refused: None,
            description: None,
            rejects: Vec::new(),
            prepared: None,
            position: None,
            outcomes: Vec::new(),
            page: None,
            lines: Vec::new(),
            samples: Vec::new(),
            intents: Vec::new(),
            began: Instant::now(),
            tenant,
            noted: Vec::new(),
        }
    }

    /// The token of its position, as text.
    pub fn token(&self) -> String {
        let token = self.position.as_ref().map(|position| position.token.to_vec());
        String::from_utf8_lossy(&token.unwrap_or_default()).into_owned()
    }

    /// Everything that a person may be shown of it.
    pub fn shown(&self) -> String {
        let Self { fault, rejects, outcomes, lines, samples, .. } = self;
        let fault = fault.as_ref().map(ToString::to_string);
        format!("{fault:?} {rejects:?} {outcomes:?} {lines:?} {samples:?}")
    }
}

/// Little of everything: an attack ends soon. Far more than a sink that behaves well needs here.
pub fn limits() -> Limits {
    Limits {
        memory_bytes: 32 << 20,
        call_time: Duration::from_secs(20),
        cpu_time: Duration::from_millis(300),
        host_calls: 20_000,
        transfer_bytes: 4 << 20,
        handles: 200,
        log_lines: 50,
        log_bytes: 64 << 10,
        ..Limits::default()
    }
}

impl Case {
    /// The case of a guest that attacks in this call.
    pub fn new(attacks: &'static str, call: Call, expect: Expect) -> Self {
        let pipeline = match expect {
            Expect::Refused(_) => Ends::NotRun,
            // These calls are made of a plugin that can be observed and fenced, or that leaves something behind.
            _ if matches!(call, Call::Observe | Call::Fence | Call::Release | Call::ListOrphans) => Ends::NotRun,
            _ => Ends::ThenFinishes,
        };
        Self {
            attacks,
            call,
            expect,
            limits: limits(),
            check: |_| Ok(()),
            pipeline,
            rate: None,
            instead: None,
            instances: 1,
            crowds: false,
        }
    }

    /// With other budgets.
    #[must_use]
    pub fn limited(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    /// With something that must hold besides.
    #[must_use]
    pub fn checked(mut self, check: Check) -> Self {
        self.check = check;
        self
    }

    /// With another end of its pipeline.
    #[must_use]
    pub fn pipeline(mut self, ends: Ends) -> Self {
        self.pipeline = ends;
        self
    }

    /// With several epochs.
    #[must_use]
    pub fn slowly(mut self, rate: u64) -> Self {
        self.rate = Some(rate);
        self
    }

    /// With many instances at once.
    #[must_use]
    pub fn instances(mut self, instances: u64) -> Self {
        self.instances = instances;
        self
    }

    /// It takes what neighbours need: their latency is measured meanwhile.
    #[must_use]
    pub fn crowds(mut self) -> Self {
        self.crowds = true;
        self
    }

    /// With something else than one call after the other.
    #[must_use]
    pub fn instead(mut self, instead: Instead) -> Self {
        self.instead = Some(instead);
        self
    }
}

/// Whether a call ended as it must; says what it did instead.
pub(crate) fn ended(case: &Case, seen: &Seen) -> Result<(), String> {
    let told = || match (&seen.fault, &seen.refused) {
        (Some(fault), _) => format!("it ended with: {fault}"),
        (None, Some(words)) => format!("it was refused: {words}"),
        (None, None) => "every call had a good answer".to_owned(),
    };
    let fits = match (case.expect, &seen.fault, &seen.refused) {
        (Expect::Refused(words), None, Some(refused)) => {
            return match refused.contains(words) {
                true => Ok(()),
                false => Err(format!("refused without `{words}`: {refused}")),
            };
        }
        (Expect::Harmless, None, None) => return Ok(()),
        (expect, Some(fault), None) => match (expect, &fault.kind) {
            (Expect::Budget(budget), FaultKind::Budget(spent)) => *spent == budget,
            (Expect::Trap, FaultKind::Trap)
            | (Expect::Timeout, FaultKind::Timeout)
            | (Expect::Malformed, FaultKind::Malformed)
            | (Expect::Error, FaultKind::Error(_))
            | (Expect::Stopped, FaultKind::Budget(_) | FaultKind::Trap) => true,
            _ => false,
        },
        _ => false,
    };
    let Some(fault) = seen.fault.as_ref().filter(|_| fits) else {
        return Err(format!("expected {:?} in {}; {}", case.expect, case.call, told()));
    };
    if fault.call != case.call {
        return Err(format!("expected it in {}; {}", case.call, told()));
    }
    if fault.tenant.as_deref() != Some(seen.tenant.name()) || !fault.plugin.starts_with("hostile") {
        return Err(format!("the fault does not name plugin and tenant: {fault}"));
    }
    if let FaultKind::Budget(budget) = fault.kind
        && !(fault.to_string().contains(budget) && fault.message.contains(|c: char| c.is_ascii_digit()))
    {
        return Err(format!("the fault does not say how much there was of which budget: {fault}"));
    }
    Ok(())
}
