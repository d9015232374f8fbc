//! Between the protocol's words and the generated ones. What comes from a plugin is checked here: sizes, names,
//! numbers. The error is a sentence for [`FaultKind::Malformed`](tidegate_protocol::plugin::FaultKind).

use bytes::Bytes;
use tidegate_protocol::ids::{Epoch, KeyRange, PartId, RunId};
use tidegate_protocol::plugin as p;

use crate::bindings::exported::{janitor as wj, plugin as wp, writer as ww};
use crate::bindings::imported::types as w;
use crate::host::rows::encoding_from_wit;
use crate::text::{MAX_NAME, Redactor, clean, is_safe};

/// Longest name of a resource, in bytes.
const MAX_RESOURCE_NAME: usize = 1024;
/// Longest full or short name of a part, in bytes.
const MAX_PART_NAME: usize = 512;
/// Longest opaque token of a position, in bytes.
const MAX_TOKEN: usize = 64 << 10;
/// Longest list that one answer may hold.
const MAX_LIST: usize = 100_000;

/// What was taken, or a sentence that says what is wrong with it.
pub type Checked<T> = Result<T, String>;

pub(crate) fn run_to_wit(run: RunId) -> w::RunId {
    w::RunId { number: run.number, nonce: run.nonce.to_string() }
}

fn run_from_wit(run: w::RunId, redactor: &Redactor) -> Checked<RunId> {
    let nonce = run.nonce.parse();
    // The words quote what was given.
    let nonce = nonce.map_err(|e| format!("a run's random part: {}", redactor.show(&format!("{e}"), MAX_NAME)))?;
    Ok(RunId { number: run.number, nonce })
}

pub(crate) fn part_to_wit(part: &PartId) -> w::Part {
    w::Part {
        full: part.full.clone(),
        short: part.short.clone(),
        run: run_to_wit(part.run),
        epoch: part.epoch.0,
        ordinal: part.ordinal,
        attempt: part.attempt,
    }
}

/// A part's names will be stored in the log, within committables and within the position that a run has observed. The
/// host minted them, so they are names that can be shown.
fn part_from_wit(part: w::Part, redactor: &Redactor) -> Checked<PartId> {
    for name in [&part.full, &part.short] {
        if name.len() > MAX_PART_NAME {
            return Err(format!("a part's name is longer than {MAX_PART_NAME} bytes"));
        }
        if let Some(marker) = redactor.secret_in(name.as_bytes()) {
            return Err(format!("a part's name contains {marker}; it would be stored with every checkpoint"));
        }
        if !is_safe(name) {
            let shown = redactor.show(name, MAX_NAME);
            return Err(format!(
                "a part's name `{shown}`: expected one that the host gave, without control characters"
            ));
        }
    }
    Ok(PartId {
        run: run_from_wit(part.run, redactor)?,
        epoch: Epoch(part.epoch),
        ordinal: part.ordinal,
        attempt: part.attempt,
        full: part.full,
        short: part.short,
    })
}

pub(crate) fn ctx_to_wit(ctx: &p::CallContext) -> w::Ctx {
    w::Ctx {
        sink: ctx.sink.to_string(),
        sink_hash: ctx.sink_hash.as_str().to_owned(),
        run: run_to_wit(ctx.run),
        config: ctx.config.to_string(),
        attempt: ctx.attempt,
    }
}

pub(crate) fn range_to_wit(range: KeyRange) -> w::KeyRange {
    w::KeyRange { first: range.first, last: range.last }
}

/// As a plugin gets it back.
pub fn state_to_wit(state: &p::WriterState) -> w::WriterState {
    w::WriterState { range: range_to_wit(state.range), version: state.version, body: state.body.to_vec() }
}

/// As a plugin gets it back.
pub fn committable_to_wit(committable: &p::Committable) -> w::Committable {
    w::Committable {
        part: part_to_wit(&committable.part),
        version: committable.version,
        body: committable.body.to_vec(),
        rows: committable.rows,
        expires_at: committable.expires_at,
    }
}

/// As a plugin gets it back.
pub fn external_to_wit(external: &p::External) -> w::External {
    w::External { kind: external.kind.clone(), name: external.name.clone(), expires_at: external.expires_at }
}

/// A resource's name is kept as it is, since it is handed back to the plugin; only its size is checked.
pub(crate) fn external_from_wit(external: w::External) -> Checked<p::External> {
    if external.kind.len() > MAX_NAME || external.name.len() > MAX_RESOURCE_NAME {
        return Err(format!("a resource's kind is longer than {MAX_NAME} bytes or its name than {MAX_RESOURCE_NAME}"));
    }
    Ok(p::External { kind: external.kind, name: external.name, expires_at: external.expires_at })
}

/// As a plugin gets it back.
pub fn position_to_wit(position: &p::Position) -> w::Position {
    w::Position {
        fence: position.fence.map(run_to_wit),
        last: position.last.iter().map(part_to_wit).collect(),
        token: position.token.to_vec(),
    }
}

/// Where the destination stands; it will be stored.
pub fn position_from_wit(position: w::Position, redactor: &Redactor) -> Checked<p::Position> {
    check_len(position.last.len(), "parts in a position")?;
    Ok(p::Position {
        fence: position.fence.map(|run| run_from_wit(run, redactor)).transpose()?,
        last: position.last.into_iter().map(|part| part_from_wit(part, redactor)).collect::<Checked<_>>()?,
        token: body_from_wit(position.token, "token of a position", redactor, MAX_TOKEN)?,
    })
}

pub(crate) fn unsealed_to_wit(unsealed: &p::Unsealed) -> wj::Unsealed {
    wj::Unsealed {
        part: part_to_wit(&unsealed.part),
        committable: unsealed.committable.as_ref().map(committable_to_wit),
        resources: unsealed.resources.iter().map(external_to_wit).collect(),
    }
}

pub(crate) fn error_to_wit(error: p::PluginError) -> w::Error {
    w::Error { kind: kind_to_wit(error.kind), code: error.code, message: error.message }
}

/// An error of the plugin's own: its words can be shown.
pub fn error_from_wit(error: w::Error, redactor: &Redactor) -> p::PluginError {
    p::PluginError {
        kind: kind_from_wit(error.kind),
        code: redactor.show(&error.code, MAX_NAME),
        message: redactor.message(&error.message),
    }
}

fn kind_to_wit(kind: p::ErrorKind) -> w::ErrorKind {
    match kind {
        p::ErrorKind::Retryable => w::ErrorKind::Retryable,
        p::ErrorKind::Permanent => w::ErrorKind::Permanent,
        p::ErrorKind::BadConfig => w::ErrorKind::BadConfig,
        p::ErrorKind::BadBatch => w::ErrorKind::BadBatch,
        p::ErrorKind::EpochLost => w::ErrorKind::EpochLost,
        p::ErrorKind::Fenced => w::ErrorKind::Fenced,
        p::ErrorKind::Unsupported => w::ErrorKind::Unsupported,
        p::ErrorKind::Denied => w::ErrorKind::Denied,
        p::ErrorKind::Unknown => w::ErrorKind::Unknown,
    }
}

fn kind_from_wit(kind: w::ErrorKind) -> p::ErrorKind {
    match kind {
        w::ErrorKind::Retryable => p::ErrorKind::Retryable,
        w::ErrorKind::Permanent => p::ErrorKind::Permanent,
        w::ErrorKind::BadConfig => p::ErrorKind::BadConfig,
        w::ErrorKind::BadBatch => p::ErrorKind::BadBatch,
        w::ErrorKind::EpochLost => p::ErrorKind::EpochLost,
        w::ErrorKind::Fenced => p::ErrorKind::Fenced,
        w::ErrorKind::Unsupported => p::ErrorKind::Unsupported,
        w::ErrorKind::Denied => p::ErrorKind::Denied,
        w::ErrorKind::Unknown => p::ErrorKind::Unknown,
    }
}

/// The outcomes as they came, however many: whether their number fits is for the caller to judge.
pub fn outcomes_from_wit(outcomes: Vec<w::Outcome>, redactor: &Redactor) -> Checked<Vec<p::Outcome>> {
    check_len(outcomes.len(), "outcomes")?;
    Ok(outcomes
        .into_iter()
        .map(|outcome| match outcome {
            w::Outcome::Committed => p::Outcome::Committed,
            w::Outcome::AlreadyCommitted => p::Outcome::AlreadyCommitted,
            w::Outcome::NotCommitted => p::Outcome::NotCommitted,
            w::Outcome::Never => p::Outcome::Never,
            w::Outcome::Retry(after) => p::Outcome::Retry(after.map(|ms| ms.min(MAX_RETRY_MS))),
            w::Outcome::Fenced => p::Outcome::Fenced,
            w::Outcome::Unsupported => p::Outcome::Unsupported,
            w::Outcome::Unknown => p::Outcome::Unknown,
            w::Outcome::Rejected(error) => p::Outcome::Rejected(error_from_wit(error, redactor)),
        })
        .collect())
}

/// A plugin may ask for a pause, not for a standstill: at most one day.
const MAX_RETRY_MS: u64 = 24 * 60 * 60 * 1000;

/// Rows that were not taken, with words that can be shown.
pub fn rejects_from_wit(rejects: Vec<w::Reject>, redactor: &Redactor) -> Checked<Vec<p::Reject>> {
    check_len(rejects.len(), "rejected rows")?;
    Ok(rejects
        .into_iter()
        .map(|reject| p::Reject {
            row: reject.row,
            code: redactor.show(&reject.code, MAX_NAME),
            message: redactor.message(&reject.message),
        })
        .collect())
}

/// What was prepared: all of it that will be stored is bounded and without secrets.
pub fn prepared_from_wit(
    prepared: ww::Prepared,
    redactor: &Redactor,
    max_body: usize,
    max_state: usize,
) -> Checked<p::Prepared> {
    check_len(prepared.resources.len(), "resources")?;
    Ok(p::Prepared {
        committable: p::Committable {
            part: part_from_wit(prepared.committable.part, redactor)?,
            version: prepared.committable.version,
            body: body_from_wit(prepared.committable.body, "committable", redactor, max_body)?,
            rows: prepared.committable.rows,
            expires_at: prepared.committable.expires_at,
        },
        resources: prepared.resources.into_iter().map(|r| stored_external(r, redactor)).collect::<Checked<_>>()?,
        state: prepared.state.map(|state| state_from_wit(state, redactor, max_state)).transpose()?,
        rows: prepared.rows,
        rejects: rejects_from_wit(prepared.rejects, redactor)?,
    })
}

fn state_from_wit(state: w::WriterState, redactor: &Redactor, max_body: usize) -> Checked<p::WriterState> {
    Ok(p::WriterState {
        range: KeyRange { first: state.range.first, last: state.range.last },
        version: state.version,
        body: body_from_wit(state.body, "writer state", redactor, max_body)?,
    })
}

/// A resource that will be stored in the log.
pub fn stored_external(external: w::External, redactor: &Redactor) -> Checked<p::External> {
    let external = external_from_wit(external)?;
    for text in [&external.kind, &external.name] {
        if let Some(marker) = redactor.secret_in(text.as_bytes()) {
            return Err(format!("a resource's name contains {marker}; it would be stored with every checkpoint"));
        }
    }
    Ok(external)
}

/// Bytes that will be stored in the log, where a secret must never be.
fn body_from_wit(body: Vec<u8>, what: &str, redactor: &Redactor, max: usize) -> Checked<Bytes> {
    if body.len() > max {
        return Err(format!("a {what} of {} bytes; at most {max} are allowed", body.len()));
    }
    if let Some(marker) = redactor.secret_in(&body) {
        return Err(format!("the {what} contains {marker}; it would be stored with every checkpoint"));
    }
    Ok(body.into())
}

/// A page of orphans: bounded. Names are handed back to the plugin, and escaped by whoever shows them.
pub fn orphans_from_wit(page: wj::OrphanPage) -> Checked<p::OrphanPage> {
    check_len(page.orphans.len(), "orphans in a page")?;
    if page.next.as_ref().is_some_and(|next| next.len() > MAX_TOKEN) {
        return Err(format!("a page token of more than {MAX_TOKEN} bytes"));
    }
    let orphans = page
        .orphans
        .into_iter()
        .map(|orphan| {
            if orphan.short.len() > MAX_PART_NAME {
                return Err(format!("an orphan's short name is longer than {MAX_PART_NAME} bytes"));
            }
            Ok(p::Orphan { short: orphan.short, resource: external_from_wit(orphan.resource)?, bytes: orphan.bytes })
        })
        .collect::<Checked<_>>()?;
    Ok(p::OrphanPage { orphans, next: page.next })
}

fn check_len(len: usize, what: &str) -> Checked<()> {
    if len > MAX_LIST { Err(format!("{len} {what}; at most {MAX_LIST} are allowed")) } else { Ok(()) }
}

/// Longest configuration schema, in bytes.
const MAX_SCHEMA: usize = 256 << 10;
/// Most grants that one plugin may ask for.
const MAX_GRANTS: usize = 100;

/// What a plugin says about itself, before anything is granted to it.
pub fn description_from_wit(d: wp::Description) -> Checked<p::Description> {
    let named = |text: &str, what: &str| {
        let legal = (1..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'+'));
        if legal {
            Ok(text.to_owned())
        } else {
            Err(format!("{what} `{}`: expected 1 to 64 of a-z, 0-9, `-`, `.`, `_` and `+`", clean(text, MAX_NAME)))
        }
    };
    if d.config_schema.len() > MAX_SCHEMA {
        return Err(format!("its configuration schema has more than {MAX_SCHEMA} bytes"));
    }
    if d.encodings.is_empty() {
        return Err("it accepts no encoding".to_owned());
    }
    if d.encodings.len() > 16
        || d.committable_versions.len() > 1000
        || d.grants.len() > MAX_GRANTS
        || d.needs.len() > MAX_GRANTS
    {
        return Err("it lists too many encodings, committable versions, grants or needs".to_owned());
    }
    let grants = d
        .grants
        .into_iter()
        .map(|grant| {
            Ok(p::GrantRequest {
                role: match grant.role {
                    wp::Role::Writer => p::Role::Writer,
                    wp::Role::Committer => p::Role::Committer,
                    wp::Role::Janitor => p::Role::Janitor,
                },
                kind: named(&grant.kind, "the kind of a grant")?,
                name: named(&grant.name, "the name of a grant")?,
                reason: clean(&grant.reason, MAX_NAME),
            })
        })
        .collect::<Checked<_>>()?;
    let needs = d
        .needs
        .into_iter()
        .map(|need| Ok(p::Need { budget: named(&need.budget, "the name of a budget")?, at_least: need.at_least }))
        .collect::<Checked<_>>()?;
    Ok(p::Description {
        name: named(&d.name, "its name")?,
        version: named(&d.version, "its version")?,
        config_schema: d.config_schema,
        encodings: d.encodings.into_iter().map(encoding_from_wit).collect(),
        abilities: abilities_from_wit(d.abilities),
        committable_versions: d.committable_versions,
        grants,
        needs,
    })
}

fn abilities_from_wit(a: wp::Abilities) -> p::Abilities {
    p::Abilities {
        staging: a.staging,
        idempotent_commit: a.idempotent_commit,
        marker_retention: a.marker_retention,
        marker_survives_foreign_writers: a.marker_survives_foreign_writers,
        observe: a.observe,
        fence: a.fence,
        reconcile: a.reconcile,
        atomic_scope: match a.atomic_scope {
            wp::AtomicScope::Participant => p::AtomicScope::Participant,
            wp::AtomicScope::Sink => p::AtomicScope::Sink,
        },
        visibility: match a.visibility {
            wp::Visibility::WholeEpoch => p::Visibility::WholeEpoch,
            wp::Visibility::PerParticipant => p::Visibility::PerParticipant,
            wp::Visibility::Early => p::Visibility::Early,
        },
        max_open_epochs: a.max_open_epochs.max(1),
        upsert_keys: a.upsert_keys,
        prepared_ttl: a.prepared_ttl,
        max_idle: a.max_idle,
        names_per_day: a.names_per_day,
        orphans: match a.orphans {
            wp::Orphans::Listable => p::Orphans::Listable,
            wp::Orphans::DurableIntent => p::Orphans::DurableIntent,
            wp::Orphans::Expires(ms) => p::Orphans::Expires(ms),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(change: impl FnOnce(&mut w::Part)) -> w::Part {
        let run = w::RunId { number: 1, nonce: "a".repeat(16) };
        let (full, short) = ("p/out/1/1/0/1".to_owned(), "tg-0-1-1-0-1".to_owned());
        let mut part = w::Part { full, short, run, epoch: 1, ordinal: 0, attempt: 1 };
        change(&mut part);
        part
    }

    fn positioned(part: w::Part) -> Checked<p::Position> {
        let redactor = Redactor::default();
        redactor.hide_secret("hunter22", "token");
        position_from_wit(w::Position { fence: None, last: vec![part], token: Vec::new() }, &redactor)
    }

    /// A position is stored in the record with which a run begins, and told when it does not fit.
    #[test]
    fn names_of_parts_carry_no_secret_and_no_control_character_into_the_log() {
        assert!(positioned(part(|_| {})).is_ok());
        for (wrong, word) in [
            (part(|part| part.full = "x/hunter22".to_owned()), "<secret token>"),
            (part(|part| part.short = "hunter22".to_owned()), "<secret token>"),
            (part(|part| part.run.nonce = "hunter22".to_owned()), "<secret token>"),
            (part(|part| part.short = "a\u{1b}[2J".to_owned()), "\\u{1b}"),
            (part(|part| part.full = "a\u{202e}b".to_owned()), "\\u{202e}"),
        ] {
            let error = positioned(wrong).expect_err(word);
            assert!(error.contains(word) && !error.contains("hunter22"), "{error}");
        }
    }
}
