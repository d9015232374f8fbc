//! A sink plugin that is each of the hostile guests in Rust: its configuration `{"guest":"h08_many_host_calls"}` names
//! the file in `guests/` that says what it does in which call. In all other calls it is a well-behaved sink that keeps
//! nothing.

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it does what a plugin should not")]

use tidegate_sdk::{
    Abilities, AtomicScope, Batch, Committable, Ctx, Description, Encoding, Error, External, GrantRequest, KeyRange,
    OrphanPage, Orphans, Outcome, Part, Position, Prepared, Reject, Role, Sink, Unsealed, Visibility, Writer,
    WriterState,
};

include!(concat!(env!("OUT_DIR"), "/guests.rs"));

/// What a guest does in each call, in place of the good answer.
pub(crate) trait Guest {
    fn open(&self, _: &Ctx) -> Result<(), Error> {
        Ok(())
    }
    fn begin(&self, _: &Ctx, _: &Part) -> Result<(), Error> {
        Ok(())
    }
    /// The rows it rejects.
    fn write(&self, _: &Ctx, _: &Batch) -> Result<Vec<Reject>, Error> {
        Ok(Vec::new())
    }
    /// Gets the good answer and may spoil it.
    fn prepare(&self, _: &Ctx, good: Prepared) -> Result<Prepared, Error> {
        Ok(good)
    }
    fn observe(&self, _: &Ctx) -> Result<Position, Error> {
        position("")
    }
    fn fence(&self, _: &Ctx, expected: &Position) -> Result<Position, Error> {
        Ok(expected.clone())
    }
    fn commit(&self, _: &Ctx, parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        Ok(vec![Outcome::Committed; parts.len()])
    }
    fn reconcile(&self, _: &Ctx, parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        Ok(vec![Outcome::NotCommitted; parts.len()])
    }
    fn abandon(&self, _: &Ctx, parts: &[Unsealed]) -> Result<Vec<Outcome>, Error> {
        Ok(vec![Outcome::Committed; parts.len()])
    }
    fn release(&self, _: &Ctx, resources: &[External]) -> Result<Vec<Outcome>, Error> {
        Ok(vec![Outcome::Committed; resources.len()])
    }
    fn list_orphans(&self, _: &Ctx, _: &str, _: Option<&str>) -> Result<OrphanPage, Error> {
        Ok(OrphanPage { orphans: Vec::new(), next: None })
    }
}

/// A position that says something.
pub(crate) fn position(words: impl Into<Vec<u8>>) -> Result<Position, Error> {
    Ok(Position { fence: None, last: Vec::new(), token: words.into() })
}

/// Without a JSON parser.
fn guest(ctx: &Ctx) -> Result<&'static dyn Guest, Error> {
    let name = ctx.config_json.split('"').nth(3).unwrap_or_default();
    find(name).ok_or_else(|| Error::permanent("no-such-guest", format!("no guest `{name}`")))
}

/// The sink.
#[derive(Default)]
pub struct Hostile;

impl Sink for Hostile {
    type Writer = HostileWriter;

    fn describe() -> Description {
        let secret = |role| GrantRequest { role, kind: "secret", name: "token", reason: "to give it away" };
        Description {
            name: "hostile".to_owned(),
            version: "1.0.0".to_owned(),
            config_schema: r#"{"type":"object"}"#.to_owned(),
            encodings: vec![Encoding::JsonLines, Encoding::Raw],
            abilities: Abilities {
                staging: true,
                idempotent_commit: true,
                marker_retention: None,
                marker_survives_foreign_writers: true,
                observe: false,
                fence: false,
                reconcile: true,
                atomic_scope: AtomicScope::Participant,
                visibility: Visibility::PerParticipant,
                max_open_epochs: 8,
                upsert_keys: false,
                prepared_ttl: None,
                max_idle: None,
                names_per_day: None,
                orphans: Orphans::DurableIntent,
            },
            committable_versions: vec![1],
            grants: vec![secret(Role::Writer), secret(Role::Committer)],
            needs: vec![],
        }
    }

    fn open(&mut self, ctx: &Ctx, _: KeyRange, _: Vec<WriterState>) -> Result<HostileWriter, Error> {
        guest(ctx)?.open(ctx)?;
        Ok(HostileWriter { part: None, rows: 0 })
    }

    fn observe(&mut self, ctx: &Ctx) -> Result<Position, Error> {
        guest(ctx)?.observe(ctx)
    }

    fn fence(&mut self, ctx: &Ctx, expected: &Position) -> Result<Position, Error> {
        guest(ctx)?.fence(ctx, expected)
    }

    fn commit(&mut self, ctx: &Ctx, _: &[Part], parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        guest(ctx)?.commit(ctx, parts)
    }

    fn reconcile(&mut self, ctx: &Ctx, parts: &[Committable]) -> Result<Vec<Outcome>, Error> {
        guest(ctx)?.reconcile(ctx, parts)
    }

    fn abandon(&mut self, ctx: &Ctx, parts: &[Unsealed]) -> Result<Vec<Outcome>, Error> {
        guest(ctx)?.abandon(ctx, parts)
    }

    fn release(&mut self, ctx: &Ctx, resources: &[External]) -> Result<Vec<Outcome>, Error> {
        guest(ctx)?.release(ctx, resources)
    }

    fn list_orphans(&mut self, ctx: &Ctx, prefix: &str, page: Option<&str>) -> Result<OrphanPage, Error> {
        guest(ctx)?.list_orphans(ctx, prefix, page)
    }
}

/// Counts rows.
pub struct HostileWriter {
    part: Option<Part>,
    rows: u64,
}

impl Writer for HostileWriter {
    fn begin(&mut self, ctx: &Ctx, part: &Part) -> Result<(), Error> {
        (self.part, self.rows) = (Some(part.clone()), 0);
        guest(ctx)?.begin(ctx, part)
    }

    fn write(&mut self, ctx: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        let rejects = guest(ctx)?.write(ctx, rows)?;
        self.rows += rows.info().rows - rejects.len() as u64;
        Ok(rejects)
    }

    fn prepare(&mut self, ctx: &Ctx) -> Result<Prepared, Error> {
        let part = self.part.take().ok_or_else(|| Error::permanent("no-part", "begin first"))?;
        let rows = self.rows;
        let committable = Committable { part, version: 1, body: b"body".to_vec(), rows, expires_at: None };
        guest(ctx)?.prepare(ctx, Prepared { committable, resources: vec![], state: None, rows, rejects: vec![] })
    }
}

tidegate_sdk::export!(Hostile);
