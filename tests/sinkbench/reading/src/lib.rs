//! A sink that has all rows copied into its memory, reads every byte, and publishes how many lines there were and what
//! all bytes add up to. So little work is done on each byte that the copy weighs as much as it can.

use tidegate_sdk::{
    Abilities, AtomicScope, Batch, Committable, Ctx, Description, Encoding, Error, GrantRequest, KeyRange, Orphans,
    Outcome, Part, Prepared, Reject, Role, Sink, Visibility, Writer, WriterState,
};

/// The name of the directory it publishes in.
pub const GRANT: &str = "output";

/// The sink.
#[derive(Default)]
pub struct Reading;

impl Sink for Reading {
    type Writer = Sums;

    fn describe() -> Description {
        let reason = "one file per part";
        Description {
            name: "reading".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_schema: r#"{"type":"object","additionalProperties":false}"#.to_owned(),
            encodings: vec![Encoding::JsonLines, Encoding::Raw],
            abilities: Abilities {
                staging: true,
                idempotent_commit: true,
                marker_retention: None,
                marker_survives_foreign_writers: false,
                observe: false,
                fence: false,
                reconcile: false,
                atomic_scope: AtomicScope::Participant,
                visibility: Visibility::PerParticipant,
                max_open_epochs: 16,
                upsert_keys: false,
                prepared_ttl: None,
                max_idle: None,
                names_per_day: None,
                orphans: Orphans::Expires(1000),
            },
            committable_versions: vec![1],
            grants: vec![GrantRequest { role: Role::Committer, kind: "dir", name: GRANT, reason }],
            needs: vec![],
        }
    }

    fn open(&mut self, _: &Ctx, _: KeyRange, _: Vec<WriterState>) -> Result<Sums, Error> {
        Ok(Sums::default())
    }

    fn commit(&mut self, ctx: &Ctx, _: &[Part], committables: &[Committable]) -> Result<Vec<Outcome>, Error> {
        let output = ctx.dir(GRANT)?;
        let publish = |committable: &Committable| match output.create_new(&committable.part.short) {
            Ok(file) => {
                file.stream(0)?.write_all(&committable.body)?;
                Ok(Outcome::Committed)
            }
            Err(error) if error.is_exists() => Ok(Outcome::AlreadyCommitted),
            Err(error) => Err(error.into()),
        };
        committables.iter().map(publish).collect()
    }
}

/// What the rows of a part amount to.
#[derive(Default)]
pub struct Sums {
    part: Option<Part>,
    rows: u64,
    lines: u64,
    sum: u64,
}

impl Writer for Sums {
    fn begin(&mut self, _: &Ctx, part: &Part) -> Result<(), Error> {
        *self = Sums { part: Some(part.clone()), ..Sums::default() };
        Ok(())
    }

    fn write(&mut self, _: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        self.rows += rows.info().rows;
        for byte in rows.bytes() {
            self.lines += u64::from(byte == b'\n');
            self.sum = self.sum.wrapping_add(u64::from(byte));
        }
        Ok(Vec::new())
    }

    fn prepare(&mut self, _: &Ctx) -> Result<Prepared, Error> {
        let part = self.part.take().ok_or_else(|| Error::permanent("not-begun", "no part was begun"))?;
        let body = format!("{} lines, sum {}\n", self.lines, self.sum).into_bytes();
        let committable = Committable { part, version: 1, body, rows: self.rows, expires_at: None };
        Ok(Prepared { committable, resources: Vec::new(), state: None, rows: self.rows, rejects: Vec::new() })
    }
}

tidegate_sdk::export!(Reading);
