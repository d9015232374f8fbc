//! A sink plugin that sends requests. Its configuration is a list of steps; `observe` takes one after the other and answers
//! what came of them, separated by `; `. A writer moves its rows to the URL in its configuration, in one request.
#![allow(clippy::disallowed_methods, reason = "it does what a plugin should not")]

mod raw;
mod steps;

use serde::Deserialize;
use tidegate_sdk::http::{Request, Upload};
use tidegate_sdk::{
    Abilities, Batch, Committable, Ctx, Description, Encoding, Error, GrantRequest, KeyRange, Outcome, Part, Position,
    Prepared, Reject, Role, Sink, Writer, WriterState,
};

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    steps: Vec<steps::Step>,
    #[serde(default)]
    url: String,
}

/// The sink.
#[derive(Default)]
pub struct Fetcher {
    held: steps::Held,
}

impl Sink for Fetcher {
    type Writer = SendingWriter;

    fn describe() -> Description {
        let grant = |role, name| GrantRequest { role, kind: "http", name, reason: "for the test" };
        Description {
            name: "fetcher".to_owned(),
            version: "1.0.0".to_owned(),
            config_schema: r#"{"type":"object"}"#.to_owned(),
            encodings: vec![Encoding::JsonLines],
            abilities: Abilities { observe: true, ..Abilities::NONE },
            committable_versions: vec![1],
            grants: vec![grant(Role::Committer, "a"), grant(Role::Committer, "b"), grant(Role::Writer, "a")],
            needs: vec![],
        }
    }

    fn open(&mut self, ctx: &Ctx, _: KeyRange, _: Vec<WriterState>) -> Result<SendingWriter, Error> {
        let config: Config = ctx.config()?;
        Ok(SendingWriter { url: config.url, upload: None, part: None, rows: 0 })
    }

    fn observe(&mut self, ctx: &Ctx) -> Result<Position, Error> {
        let config: Config = ctx.config()?;
        let said: Vec<_> = config.steps.iter().map(|step| self.held.take(step)).collect();
        Ok(Position { fence: None, last: vec![], token: said.join("; ").into_bytes() })
    }

    fn commit(&mut self, _: &Ctx, _: &[Part], committables: &[Committable]) -> Result<Vec<Outcome>, Error> {
        Ok(vec![Outcome::Committed; committables.len()])
    }
}

/// Its writer.
pub struct SendingWriter {
    url: String,
    upload: Option<Upload>,
    part: Option<Part>,
    rows: u64,
}

impl Writer for SendingWriter {
    fn begin(&mut self, _: &Ctx, part: &Part) -> Result<(), Error> {
        self.upload = Some(Request::new("PUT", &self.url).begin()?);
        self.part = Some(part.clone());
        Ok(())
    }

    fn write(&mut self, _: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        let upload = self.upload.as_mut().ok_or_else(|| Error::permanent("no-part", "begin first"))?;
        upload.write_batch(rows)?;
        self.rows += rows.info().rows;
        Ok(Vec::new())
    }

    fn prepare(&mut self, _: &Ctx) -> Result<Prepared, Error> {
        let begun = self.part.take().zip(self.upload.take());
        let (part, upload) = begun.ok_or_else(|| Error::permanent("no-part", "begin first"))?;
        let status = upload.finish()?.status();
        let rows = std::mem::take(&mut self.rows);
        let body = status.to_string().into_bytes();
        let committable = Committable { part, version: 1, body, rows, expires_at: None };
        Ok(Prepared { committable, resources: vec![], state: None, rows, rejects: vec![] })
    }
}

tidegate_sdk::export!(Fetcher);
