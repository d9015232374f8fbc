//! What a call without its good answer means, for every call of the interface in one place.

use crate::plugin::{Call, CallFault, ErrorKind, FaultKind, PluginError};

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
        CallFault { plugin: "p 1".to_owned(), call, kind: FaultKind::Error(error), message: String::new() }
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
