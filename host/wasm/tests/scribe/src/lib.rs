//! A sink plugin that does with files what its configuration says: a list of commands, `a b c; d e`, one result per
//! command. It speaks to `wasi:filesystem` directly, so that nothing on its side makes a path harmless.
#![cfg(target_family = "wasm")]

mod commands;

use tidegate_sdk::{
    Abilities, AtomicScope, Batch, Committable, Ctx, Description, Encoding, Error, ErrorKind, GrantRequest, KeyRange,
    OrphanPage, Orphans, Outcome, Part, Position, Prepared, Reject, Role, Sink, Visibility, Writer, WriterState,
};

/// The sink.
#[derive(Default)]
pub struct Scribe;

impl Sink for Scribe {
    type Writer = ScribeWriter;

    fn describe() -> Description {
        let roles = [Role::Writer, Role::Committer, Role::Janitor];
        let grant = |name| roles.map(|role| GrantRequest { role, kind: "dir", name, reason: "for the test" });
        Description {
            name: "scribe".to_owned(),
            version: "1.0.0".to_owned(),
            config_schema: r#"{"type":"object"}"#.to_owned(),
            encodings: vec![Encoding::Raw],
            abilities: Abilities {
                staging: true,
                idempotent_commit: true,
                marker_retention: None,
                marker_survives_foreign_writers: true,
                observe: true,
                fence: false,
                reconcile: false,
                atomic_scope: AtomicScope::Participant,
                visibility: Visibility::PerParticipant,
                max_open_epochs: 0,
                upsert_keys: false,
                prepared_ttl: None,
                max_idle: None,
                names_per_day: None,
                orphans: Orphans::Listable,
            },
            committable_versions: vec![1],
            grants: ["output", "other"].into_iter().flat_map(grant).collect(),
            needs: vec![],
        }
    }

    fn open(&mut self, ctx: &Ctx, _: KeyRange, _: Vec<WriterState>) -> Result<ScribeWriter, Error> {
        match said(ctx) {
            Some(_) => Ok(ScribeWriter),
            None => Err(Error::permanent("no-commands", "")),
        }
    }

    fn observe(&mut self, ctx: &Ctx) -> Result<Position, Error> {
        Err(told(ctx))
    }

    fn commit(&mut self, _: &Ctx, _: &[Part], _: &[Committable]) -> Result<Vec<Outcome>, Error> {
        Ok(vec![])
    }

    fn list_orphans(&mut self, ctx: &Ctx, _: &str, _: Option<&str>) -> Result<OrphanPage, Error> {
        Err(told(ctx))
    }
}

/// Its writer.
pub struct ScribeWriter;

impl Writer for ScribeWriter {
    fn begin(&mut self, ctx: &Ctx, _: &Part) -> Result<(), Error> {
        Err(told(ctx))
    }

    /// The batch goes into a new file.
    fn write(&mut self, ctx: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        let name = said(ctx).unwrap_or_default();
        let mut stream = ctx.dir("output")?.create_new(name)?.stream(0)?;
        rows.write_to(&mut stream)?;
        Ok(vec![])
    }

    fn prepare(&mut self, ctx: &Ctx) -> Result<Prepared, Error> {
        Err(told(ctx))
    }
}

/// `{"do":"commands"}` without a JSON parser.
fn said(ctx: &Ctx) -> Option<&str> {
    ctx.config_json.split('"').nth(3)
}

/// An error is an answer after which the instance goes on.
fn told(ctx: &Ctx) -> Error {
    let answers: Vec<String> = said(ctx).unwrap_or_default().split(';').map(commands::run).collect();
    Error::permanent("answers", answers.join(" ")).with_kind(ErrorKind::Permanent)
}

tidegate_sdk::export!(Scribe);
