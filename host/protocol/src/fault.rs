//! Calls without their good answer: why, who is to blame, and what is done about it, for every call of the interface in
//! one place.

use std::fmt;
use std::sync::Arc;

use crate::plugin::{Call, ErrorKind, PluginError};

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The plugin trapped, panicked or exited.
    Trap,
    /// A budget was spent; names it.
    Budget(&'static str),
    /// The wall clock ran out.
    Timeout,
    /// The host's own part failed.
    Host,
    /// The answer was lost on the way.
    AnswerLost,
    /// The answer broke the interface's rules (wrong number of outcomes, another part's committable, …).
    Malformed,
    /// It was not sent: the plugin failed so often that no instance of it is made for a while.
    Quarantined,
    /// The plugin answered with an error.
    Error(PluginError),
}

impl FaultKind {
    /// Who is to blame where nothing more is known.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Trap | Self::Budget(_) | Self::Timeout | Self::Malformed | Self::Quarantined => Blame::Plugin,
            Self::Host => Blame::Host,
            Self::AnswerLost => Blame::Destination,
            Self::Error(error) => match error.kind {
                ErrorKind::Unsupported => Blame::Plugin,
                ErrorKind::BadConfig | ErrorKind::Denied => Blame::Operator,
                ErrorKind::Retryable
                | ErrorKind::Permanent
                | ErrorKind::BadBatch
                | ErrorKind::EpochLost
                | ErrorKind::Fenced
                | ErrorKind::Unknown => Blame::Destination,
            },
        }
    }
}

/// Who is to blame for a call without its good answer: where somebody should look first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Blame {
    /// The plugin: it broke off, spent what it had, or answered what makes no sense.
    Plugin,
    /// The host's own code, or the machine that it runs on.
    Host,
    /// What lies behind the plugin, or the way to it.
    Destination,
    /// What was configured or granted.
    Operator,
}

impl Blame {
    /// In a word: `plugin`, `host`, `destination` or `operator`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plugin => "plugin",
            Self::Host => "host",
            Self::Destination => "destination",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plugin => "the plugin is to blame",
            Self::Host => "the host is to blame",
            Self::Destination => "the destination, or the way to it, is to blame",
            Self::Operator => "what was configured is to blame",
        })
    }
}

/// A call that did not end with its good answer. Except for [`FaultKind::Error`], nothing is known of its effect.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallFault {
    /// Name and version of the plugin.
    pub plugin: Box<str>,
    /// Who pays for it; `None` where there are no tenants.
    pub tenant: Option<Arc<str>>,
    /// Which call.
    pub call: Call,
    /// Why.
    pub kind: FaultKind,
    /// Who is to blame.
    pub blame: Blame,
    /// For a person. Of a budget: how much of it there was, and the key that sets it.
    pub message: String,
}

impl CallFault {
    /// A fault of nobody's tenant, with the blame that its kind suggests.
    pub fn new(plugin: impl Into<String>, call: Call, kind: FaultKind, message: impl Into<String>) -> Self {
        let blame = kind.blame();
        Self { plugin: plugin.into().into_boxed_str(), tenant: None, call, kind, blame, message: message.into() }
    }

    /// Of a plugin that this tenant pays for.
    #[must_use]
    pub fn of_tenant(mut self, tenant: Option<&str>) -> Self {
        self.tenant = tenant.map(Arc::from);
        self
    }

    /// Where more is known than the kind says.
    #[must_use]
    pub fn blamed_on(mut self, blame: Blame) -> Self {
        self.blame = blame;
        self
    }

    /// The plugin's own error, if it answered with one.
    pub fn error(&self) -> Option<&PluginError> {
        match &self.kind {
            FaultKind::Error(error) => Some(error),
            _ => None,
        }
    }

    /// What happened and who is to blame, without plugin and call.
    pub fn reason(&self) -> String {
        let Self { message, blame, .. } = self;
        let what = match &self.kind {
            FaultKind::Trap => "trapped",
            FaultKind::Budget(budget) => return format!("spent its budget of {budget}: {message}; {blame}"),
            FaultKind::Timeout => "did not answer in time",
            FaultKind::Host => "failed in the host",
            FaultKind::AnswerLost => "was sent and its answer was lost",
            FaultKind::Malformed => "gave an answer that breaks the interface",
            FaultKind::Quarantined => return format!("was not sent, the plugin is in quarantine: {message}"),
            // The plugin says itself what happened.
            FaultKind::Error(error) => return format!("failed: {error}"),
        };
        format!("{what}: {message}; {blame}")
    }
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plugin)?;
        if let Some(tenant) = &self.tenant {
            write!(f, " of tenant `{tenant}`")?;
        }
        write!(f, ": {} {}", self.call, self.reason())
    }
}

impl std::error::Error for CallFault {}

/// What is done about a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Remedy {
    /// Nothing was done, and the same call may work later.
    Again,
    /// Whether anything was done is not known: find out, or repeat.
    FindOut,
    /// The same call will not work. Somebody has to mend something, or decide.
    Mend,
    /// The plugin does not do that.
    NotOffered,
    /// A newer run owns the destination.
    Superseded,
}

/// A cause that time alone rarely mends: a person is told at its first sight, whatever is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The disk is full, or a quota is spent.
    NoSpace,
    /// What should be written to is mounted read-only.
    ReadOnly,
    /// The right to do it is missing.
    NotAllowed,
    /// Another program changed what the call builds on.
    Conflict,
}

impl PluginError {
    /// Its cause, if it is one that time alone rarely mends. The code says so, whatever the kind: a writer's full disk
    /// loses its epoch.
    pub fn cause(&self) -> Option<Cause> {
        match self.code.as_str() {
            "no-space" | "storage-full" | "quota-exceeded" => Some(Cause::NoSpace),
            "read-only" => Some(Cause::ReadOnly),
            "file-denied" => Some(Cause::NotAllowed),
            "conflict" => Some(Cause::Conflict),
            _ => (self.kind == ErrorKind::Denied).then_some(Cause::NotAllowed),
        }
    }
}

impl CallFault {
    /// What is done about it. What may be worth a further try depends on the call: a sealed epoch can only wait, while a
    /// start that is not allowed tells whoever started it.
    pub fn remedy(&self) -> Remedy {
        let Some(error) = self.error() else { return Remedy::FindOut };
        match (self.call, error.kind) {
            (_, ErrorKind::Fenced) => Remedy::Superseded,
            (_, ErrorKind::Unsupported) => Remedy::NotOffered,
            (_, ErrorKind::Retryable) | (Call::Commit | Call::Reconcile, ErrorKind::Denied) => Remedy::Again,
            (_, ErrorKind::Permanent | ErrorKind::BadConfig | ErrorKind::BadBatch | ErrorKind::Denied) => Remedy::Mend,
            (_, ErrorKind::EpochLost | ErrorKind::Unknown) => Remedy::FindOut,
        }
    }

    /// No further try of the same call can help.
    pub fn is_hopeless(&self) -> bool {
        matches!(self.remedy(), Remedy::Mend | Remedy::NotOffered)
    }

    /// Whether both say the same to a person: the same call, for the same reason. What a plugin names in its message may
    /// be another file each time.
    pub fn same_reason(&self, other: &CallFault) -> bool {
        let same = match (&self.kind, &other.kind) {
            (FaultKind::Error(one), FaultKind::Error(other)) => (one.kind, &one.code) == (other.kind, &other.code),
            (one, other) => one == other,
        };
        same && self.call == other.call
    }

    /// See [`PluginError::cause`].
    pub fn cause(&self) -> Option<Cause> {
        self.error().and_then(PluginError::cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(call: Call, kind: ErrorKind, code: &str) -> CallFault {
        let error = PluginError { kind, code: code.to_owned(), message: "m".to_owned() };
        CallFault::new("p 1", call, FaultKind::Error(error), "")
    }

    #[test]
    fn only_what_is_sealed_waits_for_a_missing_right() {
        let remedies = [Call::Observe, Call::Fence, Call::Write, Call::Abandon, Call::Commit, Call::Reconcile]
            .map(|call| fault(call, ErrorKind::Denied, "x").remedy());
        use Remedy::{Again, Mend};
        assert_eq!(remedies, [Mend, Mend, Mend, Mend, Again, Again]);
    }

    #[test]
    fn the_same_reason_under_other_words_is_no_news() {
        let one = fault(Call::Fence, ErrorKind::Retryable, "no-space");
        let mut other = one.clone();
        if let FaultKind::Error(error) = &mut other.kind {
            error.message = "another file".to_owned();
        }
        assert!(one.same_reason(&other));
        assert!(!one.same_reason(&fault(Call::Fence, ErrorKind::Retryable, "file-io")));
        assert!(!one.same_reason(&fault(Call::Observe, ErrorKind::Retryable, "no-space")));
        assert!(!one.same_reason(&CallFault { kind: FaultKind::Timeout, ..one.clone() }));
    }

    #[test]
    fn every_fault_names_plugin_tenant_call_budget_and_whom_to_blame() {
        let of =
            |kind, message: &str| CallFault::new("p 1", Call::Commit, kind, message).of_tenant(Some("t")).to_string();
        let begin = "p 1 of tenant `t`: commit";
        for (kind, message, expected) in [
            (FaultKind::Trap, "unreachable", "trapped: unreachable; the plugin is to blame"),
            (
                FaultKind::Budget("cpu time"),
                "30s per call (`cpu-time`)",
                "spent its budget of cpu time: 30s per call (`cpu-time`); the plugin is to blame",
            ),
            (FaultKind::Timeout, "no answer", "did not answer in time: no answer; the plugin is to blame"),
            (FaultKind::Host, "panicked", "failed in the host: panicked; the host is to blame"),
            (
                FaultKind::AnswerLost,
                "gone",
                "was sent and its answer was lost: gone; the destination, or the way to it, is to blame",
            ),
            (
                FaultKind::Malformed,
                "two for one",
                "gave an answer that breaks the interface: two for one; the plugin is to blame",
            ),
            (FaultKind::Quarantined, "5 faults", "was not sent, the plugin is in quarantine: 5 faults"),
        ] {
            assert_eq!(of(kind, message), format!("{begin} {expected}"));
        }
        let slow = CallFault::new("p 1", Call::Write, FaultKind::Timeout, "m").blamed_on(Blame::Destination);
        assert_eq!(
            slow.to_string(),
            "p 1: write did not answer in time: m; the destination, or the way to it, is to blame"
        );
    }

    #[test]
    fn an_answer_that_says_no_blames_the_plugin_only_for_what_it_does_not_do() {
        let blame = |kind| fault(Call::Commit, kind, "x").blame;
        assert_eq!(blame(ErrorKind::Unsupported), Blame::Plugin);
        assert_eq!([ErrorKind::BadConfig, ErrorKind::Denied].map(blame), [Blame::Operator; 2]);
        assert_eq!([ErrorKind::Retryable, ErrorKind::Fenced].map(blame), [Blame::Destination; 2]);
    }

    #[test]
    fn causes_are_known_by_code_under_any_kind() {
        let cause = |kind, code| fault(Call::Write, kind, code).cause();
        assert_eq!(cause(ErrorKind::EpochLost, "storage-full"), Some(Cause::NoSpace));
        assert_eq!(cause(ErrorKind::Retryable, "no-space"), Some(Cause::NoSpace));
        assert_eq!(cause(ErrorKind::EpochLost, "file-denied"), Some(Cause::NotAllowed));
        assert_eq!(cause(ErrorKind::Denied, "anything"), Some(Cause::NotAllowed));
        assert_eq!(cause(ErrorKind::Denied, "read-only"), Some(Cause::ReadOnly));
        assert_eq!(cause(ErrorKind::Retryable, "file-io"), None);
        let lost = CallFault { kind: FaultKind::AnswerLost, ..fault(Call::Commit, ErrorKind::Denied, "") };
        assert_eq!((lost.cause(), lost.remedy()), (None, Remedy::FindOut));
    }
}
