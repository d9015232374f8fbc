//! What a child says, checked as if a plugin had said it: a plugin that got the better of the engine speaks with the
//! child's voice.

use tidegate_protocol::plugin::{
    Blame, External, FaultKind, OrphanPage, Outcome, PluginError, Position, Prepared, Reject,
};

use super::wire::Fault;
use crate::bindings::exported::{janitor as wj, writer as ww};
use crate::bindings::imported::types as w;
use crate::convert::{self, Checked};
use crate::limits::Limits;
use crate::text::Redactor;

pub(crate) fn error(error: PluginError, redactor: &Redactor) -> PluginError {
    convert::error_from_wit(convert::error_to_wit(error), redactor)
}

/// The kind, the blame and the words; `None` for a kind that this host does not know.
pub(crate) fn fault(fault: Fault, redactor: &Redactor) -> Option<(FaultKind, Blame, String)> {
    let (blame, message) = (fault.blame(), redactor.message(&fault.message));
    let kind = match fault.kind.meant()? {
        FaultKind::Error(own) => FaultKind::Error(error(own, redactor)),
        kind => kind,
    };
    Some((kind, blame, message))
}

pub(crate) fn external(external: &External, redactor: &Redactor) -> Checked<External> {
    convert::stored_external(convert::external_to_wit(external), redactor)
}

pub(crate) fn rejects(rejects: Vec<Reject>, redactor: &Redactor) -> Checked<Vec<Reject>> {
    let rejects = rejects.into_iter().map(reject_to_wit).collect();
    convert::rejects_from_wit(rejects, redactor)
}

fn reject_to_wit(reject: Reject) -> w::Reject {
    w::Reject { row: reject.row, code: reject.code, message: reject.message }
}

pub(crate) fn prepared(prepared: Prepared, redactor: &Redactor, limits: &Limits) -> Checked<Prepared> {
    let prepared = ww::Prepared {
        committable: convert::committable_to_wit(&prepared.committable),
        resources: prepared.resources.iter().map(convert::external_to_wit).collect(),
        state: prepared.state.as_ref().map(convert::state_to_wit),
        rows: prepared.rows,
        rejects: prepared.rejects.into_iter().map(reject_to_wit).collect(),
    };
    convert::prepared_from_wit(prepared, redactor, limits.committable_bytes, limits.state_bytes)
}

pub(crate) fn position(position: &Position, redactor: &Redactor) -> Checked<Position> {
    convert::position_from_wit(convert::position_to_wit(position), redactor)
}

pub(crate) fn outcomes(outcomes: Vec<Outcome>, redactor: &Redactor) -> Checked<Vec<Outcome>> {
    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Committed => w::Outcome::Committed,
        Outcome::AlreadyCommitted => w::Outcome::AlreadyCommitted,
        Outcome::NotCommitted => w::Outcome::NotCommitted,
        Outcome::Never => w::Outcome::Never,
        Outcome::Retry(after) => w::Outcome::Retry(after),
        Outcome::Fenced => w::Outcome::Fenced,
        Outcome::Unsupported => w::Outcome::Unsupported,
        Outcome::Unknown => w::Outcome::Unknown,
        Outcome::Rejected(error) => w::Outcome::Rejected(convert::error_to_wit(error)),
    });
    convert::outcomes_from_wit(outcomes.collect(), redactor)
}

pub(crate) fn orphans(page: OrphanPage) -> Checked<OrphanPage> {
    let orphans = page.orphans.into_iter().map(|orphan| wj::Orphan {
        short: orphan.short,
        resource: convert::external_to_wit(&orphan.resource),
        bytes: orphan.bytes,
    });
    convert::orphans_from_wit(wj::OrphanPage { orphans: orphans.collect(), next: page.next })
}
