//! A sink plugin that uses the network. Its configuration is a list of steps; `observe` takes one after the other and
//! answers what came of them, separated by `; `. A writer moves its rows to the place `a`.

#![allow(clippy::disallowed_methods, reason = "it does what a plugin should not")]

mod sockets;
mod steps;

use serde::Deserialize;
use tidegate_sdk::tcp::Connection;
use tidegate_sdk::{
    Abilities, Batch, Committable, Ctx, Description, Encoding, Error, GrantRequest, KeyRange, Outcome, Part, Position,
    Prepared, Reject, Role, Sink, Writer, WriterState,
};

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    steps: Vec<String>,
}

/// The sink.
#[derive(Default)]
pub struct Caller {
    held: steps::Held,
}

impl Sink for Caller {
    type Writer = CallingWriter;

    fn describe() -> Description {
        let grant = |role, name| GrantRequest { role, kind: "tcp", name, reason: "for the test" };
        Description {
            name: "caller".to_owned(),
            version: "1.0.0".to_owned(),
            config_schema: r#"{"type":"object"}"#.to_owned(),
            encodings: vec![Encoding::JsonLines],
            abilities: Abilities { observe: true, ..Abilities::NONE },
            committable_versions: vec![1],
            grants: vec![grant(Role::Committer, "a"), grant(Role::Committer, "b"), grant(Role::Writer, "a")],
            needs: vec![],
        }
    }

    fn open(&mut self, ctx: &Ctx, _: KeyRange, _: Vec<WriterState>) -> Result<CallingWriter, Error> {
        Ok(CallingWriter { connection: ctx.connect("a")?, part: None, rows: 0 })
    }

    fn observe(&mut self, ctx: &Ctx) -> Result<Position, Error> {
        let config: Config = ctx.config()?;
        let said: Vec<_> = config.steps.iter().filter_map(|step| self.held.take(ctx, step)).collect();
        Ok(Position { fence: None, last: vec![], token: said.join("; ").into_bytes() })
    }

    fn commit(&mut self, _: &Ctx, _: &[Part], committables: &[Committable]) -> Result<Vec<Outcome>, Error> {
        Ok(vec![Outcome::Committed; committables.len()])
    }
}

/// Its writer.
pub struct CallingWriter {
    connection: Connection,
    part: Option<Part>,
    rows: u64,
}

impl Writer for CallingWriter {
    fn begin(&mut self, _: &Ctx, part: &Part) -> Result<(), Error> {
        self.part = Some(part.clone());
        Ok(())
    }

    fn write(&mut self, _: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        let moved = self.connection.write_batch(rows)?;
        if moved != rows.info().bytes {
            return Err(Error::epoch_lost("short", format!("{moved} bytes were moved")));
        }
        self.rows += rows.info().rows;
        Ok(Vec::new())
    }

    fn prepare(&mut self, _: &Ctx) -> Result<Prepared, Error> {
        let part = self.part.take().ok_or_else(|| Error::permanent("no-part", "begin first"))?;
        let rows = std::mem::take(&mut self.rows);
        let committable = Committable { part, version: 1, body: b"sent".to_vec(), rows, expires_at: None };
        Ok(Prepared { committable, resources: vec![], state: None, rows, rejects: vec![] })
    }
}

tidegate_sdk::export!(Caller);
