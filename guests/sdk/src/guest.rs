//! The component's side: bindings, conversions and the instance behind the exports. Reached through
//! [`crate::export!`]; not part of the public interface.

use crate::{Ctx, Error, ErrorKind, Sink, Writer};

#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod bindings {
    // `wit/` is the single source of the interface; this world only adds what an SDK needs of WASI.
    wit_bindgen::generate!({
        inline: "
            package tidegate:sdk;
            world guest {
                include tidegate:sink/sink@0.1.0;
                import wasi:filesystem/types@0.2.12;
                import wasi:filesystem/preopens@0.2.12;
                import wasi:http/types@0.2.12;
                import wasi:http/outgoing-handler@0.2.12;
            }
        ",
        path: "../../wit/0.1",
        world: "tidegate:sdk/guest",
        generate_all,
        pub_export_macro: true,
        default_bindings_module: "tidegate_sdk::guest::bindings",
    });
}

use bindings::exports::tidegate::sink as exports;
use bindings::tidegate::sink::{rows, types as wit};

/// What an instance holds between calls.
pub struct Instance<S: Sink> {
    sink: S,
    writer: Option<S::Writer>,
}

impl<S: Sink> Instance<S> {
    /// Nothing opened yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { sink: S::default(), writer: None }
    }

    fn writer(&mut self) -> Result<&mut S::Writer, Error> {
        self.writer.as_mut().ok_or_else(|| Error::permanent("not-open", "`open` has to be called first"))
    }
}

/// Gives access to the one instance; implemented by [`crate::export!`].
pub trait Exported {
    /// The registered sink.
    type Sink: Sink;
    /// Runs `call` on the instance.
    fn with<R>(call: impl FnOnce(&mut Instance<Self::Sink>) -> R) -> R;
}

fn convert<A, B: From<A>>(items: Vec<A>) -> Vec<B> {
    items.into_iter().map(B::from).collect()
}

impl<E: Exported> exports::plugin::Guest for E {
    fn describe() -> exports::plugin::Description {
        E::Sink::describe().into()
    }
}

impl<E: Exported> exports::writer::Guest for E {
    fn open(ctx: wit::Ctx, range: wit::KeyRange, restored: Vec<wit::WriterState>) -> Result<(), wit::Error> {
        E::with(|instance| {
            instance.writer = Some(instance.sink.open(&ctx.into(), range.into(), convert(restored))?);
            Ok(())
        })
    }

    fn begin(ctx: wit::Ctx, part: wit::Part) -> Result<(), wit::Error> {
        E::with(|instance| Ok(instance.writer()?.begin(&ctx.into(), &part.into())?))
    }

    fn write(ctx: wit::Ctx, rows: &rows::Batch) -> Result<Vec<wit::Reject>, wit::Error> {
        E::with(|instance| Ok(convert(instance.writer()?.write(&ctx.into(), &crate::Batch { inner: rows })?)))
    }

    fn prepare(ctx: wit::Ctx) -> Result<wit::Prepared, wit::Error> {
        E::with(|instance| Ok(instance.writer()?.prepare(&ctx.into())?.into()))
    }
}

impl<E: Exported> exports::committer::Guest for E {
    fn observe(ctx: wit::Ctx) -> Result<wit::Position, wit::Error> {
        E::with(|instance| Ok(instance.sink.observe(&ctx.into())?.into()))
    }

    fn fence(ctx: wit::Ctx, expected: wit::Position) -> Result<wit::Position, wit::Error> {
        E::with(|instance| Ok(instance.sink.fence(&ctx.into(), &expected.into())?.into()))
    }

    fn commit(
        ctx: wit::Ctx,
        previous: Vec<wit::Part>,
        committables: Vec<wit::Committable>,
    ) -> Result<Vec<wit::Outcome>, wit::Error> {
        let (previous, committables) = (convert(previous), convert(committables));
        E::with(|instance| Ok(convert(instance.sink.commit(&ctx.into(), &previous, &committables)?)))
    }

    fn reconcile(ctx: wit::Ctx, committables: Vec<wit::Committable>) -> Result<Vec<wit::Outcome>, wit::Error> {
        E::with(|instance| Ok(convert(instance.sink.reconcile(&ctx.into(), &convert(committables))?)))
    }
}

impl<E: Exported> exports::janitor::Guest for E {
    fn abandon(ctx: wit::Ctx, parts: Vec<exports::janitor::Unsealed>) -> Result<Vec<wit::Outcome>, wit::Error> {
        E::with(|instance| Ok(convert(instance.sink.abandon(&ctx.into(), &convert(parts))?)))
    }

    fn release(ctx: wit::Ctx, resources: Vec<wit::External>) -> Result<Vec<wit::Outcome>, wit::Error> {
        E::with(|instance| Ok(convert(instance.sink.release(&ctx.into(), &convert(resources))?)))
    }

    fn list_orphans(
        ctx: wit::Ctx,
        prefix: String,
        page: Option<String>,
    ) -> Result<exports::janitor::OrphanPage, wit::Error> {
        E::with(|instance| Ok(instance.sink.list_orphans(&ctx.into(), &prefix, page.as_deref())?.into()))
    }
}

impl From<wit::Ctx> for Ctx {
    fn from(ctx: wit::Ctx) -> Self {
        Ctx {
            sink: ctx.sink,
            sink_hash: ctx.sink_hash,
            run: ctx.run.into(),
            config_json: ctx.config,
            attempt: ctx.attempt,
        }
    }
}

/// Records whose fields have the same names on both sides.
macro_rules! same_fields {
    ($($a:ty, $b:ty { $($field:ident),* $(; $($list:ident),*)? };)*) => {
        $(
            impl From<$a> for $b {
                fn from(from: $a) -> Self {
                    Self { $($field: from.$field.into(),)* $($($list: crate::guest::convert(from.$list),)*)? }
                }
            }
        )*
    };
}

/// The same, both ways.
macro_rules! both_ways {
    ($($a:ty, $b:ty { $($fields:tt)* };)*) => {
        same_fields! { $($a, $b { $($fields)* }; $b, $a { $($fields)* };)* }
    };
}

both_ways! {
    wit::RunId, crate::RunId { number, nonce };
    wit::Part, crate::Part { full, short, run, epoch, ordinal, attempt };
    wit::KeyRange, crate::KeyRange { first, last };
    wit::External, crate::External { kind, name, expires_at };
    wit::Committable, crate::Committable { part, version, body, rows, expires_at };
    wit::WriterState, crate::WriterState { range, version, body };
}

same_fields! {
    crate::Reject, wit::Reject { row, code, message };
    rows::FileChunk, crate::FileChunk { number, folder, extension, last };
    crate::Orphan, exports::janitor::Orphan { short, resource, bytes };
    crate::OrphanPage, exports::janitor::OrphanPage { next; orphans };
}

impl From<rows::BatchInfo> for crate::BatchInfo {
    fn from(from: rows::BatchInfo) -> Self {
        let rows::BatchInfo { rows, bytes, encoding, schema, file } = from;
        Self { rows, bytes, encoding: encoding.into(), schema, file: file.map(Into::into) }
    }
}

impl From<crate::Prepared> for wit::Prepared {
    fn from(prepared: crate::Prepared) -> Self {
        Self {
            committable: prepared.committable.into(),
            resources: convert(prepared.resources),
            state: prepared.state.map(Into::into),
            rows: prepared.rows,
            rejects: convert(prepared.rejects),
        }
    }
}

impl From<crate::Position> for wit::Position {
    fn from(position: crate::Position) -> Self {
        Self { fence: position.fence.map(Into::into), last: convert(position.last), token: position.token }
    }
}

impl From<wit::Position> for crate::Position {
    fn from(position: wit::Position) -> Self {
        Self { fence: position.fence.map(Into::into), last: convert(position.last), token: position.token }
    }
}

impl From<exports::janitor::Unsealed> for crate::Unsealed {
    fn from(unsealed: exports::janitor::Unsealed) -> Self {
        Self {
            part: unsealed.part.into(),
            committable: unsealed.committable.map(Into::into),
            resources: convert(unsealed.resources),
        }
    }
}

/// Enums without content, variant by variant.
macro_rules! same_variants {
    ($($a:ty, $b:ty { $($variant:ident),* };)*) => {
        $(
            impl From<$a> for $b {
                fn from(from: $a) -> Self {
                    match from { $(<$a>::$variant => <$b>::$variant,)* }
                }
            }
        )*
    };
}

same_variants! {
    ErrorKind, wit::ErrorKind {
        Retryable, Permanent, BadConfig, BadBatch, EpochLost, Fenced, Unsupported, Denied, Unknown
    };
    wit::ErrorKind, ErrorKind {
        Retryable, Permanent, BadConfig, BadBatch, EpochLost, Fenced, Unsupported, Denied, Unknown
    };
    crate::Encoding, rows::Encoding { Raw, JsonLines, Csv, ArrowStream, Files };
    rows::Encoding, crate::Encoding { Raw, JsonLines, Csv, ArrowStream, Files };
    crate::AtomicScope, exports::plugin::AtomicScope { Participant, Sink };
    crate::Visibility, exports::plugin::Visibility { WholeEpoch, PerParticipant, Early };
    crate::Role, exports::plugin::Role { Writer, Committer, Janitor };
}

same_fields! {
    Error, wit::Error { kind, code, message };
    wit::Error, Error { kind, code, message };
}

impl From<crate::Outcome> for wit::Outcome {
    fn from(outcome: crate::Outcome) -> Self {
        use crate::Outcome as From;
        match outcome {
            From::Committed => Self::Committed,
            From::AlreadyCommitted => Self::AlreadyCommitted,
            From::NotCommitted => Self::NotCommitted,
            From::Never => Self::Never,
            From::Retry(after) => Self::Retry(after),
            From::Fenced => Self::Fenced,
            From::Unsupported => Self::Unsupported,
            From::Unknown => Self::Unknown,
            From::Rejected(error) => Self::Rejected(error.into()),
        }
    }
}

impl From<crate::Orphans> for exports::plugin::Orphans {
    fn from(orphans: crate::Orphans) -> Self {
        match orphans {
            crate::Orphans::Listable => Self::Listable,
            crate::Orphans::DurableIntent => Self::DurableIntent,
            crate::Orphans::Expires(after) => Self::Expires(after),
        }
    }
}

impl From<crate::Abilities> for exports::plugin::Abilities {
    fn from(from: crate::Abilities) -> Self {
        Self {
            staging: from.staging,
            idempotent_commit: from.idempotent_commit,
            marker_retention: from.marker_retention,
            marker_survives_foreign_writers: from.marker_survives_foreign_writers,
            observe: from.observe,
            fence: from.fence,
            reconcile: from.reconcile,
            atomic_scope: from.atomic_scope.into(),
            visibility: from.visibility.into(),
            max_open_epochs: from.max_open_epochs,
            upsert_keys: from.upsert_keys,
            prepared_ttl: from.prepared_ttl,
            max_idle: from.max_idle,
            names_per_day: from.names_per_day,
            orphans: from.orphans.into(),
        }
    }
}

impl From<crate::GrantRequest> for exports::plugin::GrantRequest {
    fn from(from: crate::GrantRequest) -> Self {
        Self { role: from.role.into(), kind: from.kind.into(), name: from.name.into(), reason: from.reason.into() }
    }
}

impl From<crate::Need> for exports::plugin::Need {
    fn from(from: crate::Need) -> Self {
        Self { budget: from.budget.into(), at_least: from.at_least }
    }
}

impl From<crate::Description> for exports::plugin::Description {
    fn from(from: crate::Description) -> Self {
        Self {
            name: from.name,
            version: from.version,
            config_schema: from.config_schema,
            encodings: convert(from.encodings),
            abilities: from.abilities.into(),
            committable_versions: from.committable_versions,
            grants: convert(from.grants),
            needs: convert(from.needs),
        }
    }
}
