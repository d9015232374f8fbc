//! A sink that asks for the secret `token` and then says it in log lines, metrics and, as its configuration asks, in an
//! error or a committable. Rows are staged as one file per part and published by rename; it cannot be observed.

use tidegate_sdk::{
    Abilities, AtomicScope, Batch, Committable, Ctx, Description, Encoding, Error, External, GrantRequest, KeyRange,
    Level, Orphans, Outcome, Part, Prepared, Reject, Role, Sink, Visibility, Writer, WriterState,
};

/// The sink.
#[derive(Default)]
pub struct Talkative;

/// Tells the secret and answers with it.
fn tell(ctx: &Ctx, call: &str) -> Result<String, Error> {
    let secret = ctx.secret("token")?.reveal();
    ctx.log(Level::Error, &format!("{call}: the token is {secret}"), &[("token".to_owned(), secret.clone())]);
    ctx.counter_add(&format!("token-{secret}"), &[("token".to_owned(), secret.clone())], 1);
    Ok(secret)
}

/// Where the configuration asks for the secret to be told.
fn leaks(ctx: &Ctx, place: &str) -> bool {
    let config: serde_json::Value = serde_json::from_str(&ctx.config_json).unwrap_or_default();
    config["leak"] == place
}

impl Sink for Talkative {
    type Writer = Parts;

    fn describe() -> Description {
        let grant = |role, kind, name| GrantRequest { role, kind, name, reason: "for the test" };
        let roles = [Role::Writer, Role::Committer, Role::Janitor];
        let dirs = roles.map(|role| grant(role, "dir", "output"));
        let secrets = roles.map(|role| grant(role, "secret", "token"));
        Description {
            name: "talkative".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_schema: r#"{"type":"object","additionalProperties":false,"properties":{"leak":{"type":"string"}}}"#
                .to_owned(),
            encodings: vec![Encoding::JsonLines],
            abilities: Abilities {
                staging: true,
                idempotent_commit: true,
                marker_retention: None,
                marker_survives_foreign_writers: true,
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
            grants: dirs.into_iter().chain(secrets).collect(),
            needs: vec![],
        }
    }

    fn open(&mut self, ctx: &Ctx, _: KeyRange, _: Vec<WriterState>) -> Result<Parts, Error> {
        let secret = tell(ctx, "open")?;
        if leaks(ctx, "error") {
            return Err(Error::permanent(format!("code-{secret}"), format!("the token {secret} is wrong")));
        }
        Ok(Parts { part: None, bytes: Vec::new(), rows: 0 })
    }

    fn commit(&mut self, ctx: &Ctx, _: &[Part], committables: &[Committable]) -> Result<Vec<Outcome>, Error> {
        tell(ctx, "commit")?;
        let output = ctx.dir("output")?;
        // For as long as the test wants it.
        assert!(output.open_dir("_break").is_err(), "it was told to break off");
        let publish = |committable: &Committable| {
            let short = &committable.part.short;
            match output.rename(&format!("_{short}"), &output, &format!("{short}.jsonl")) {
                Ok(()) => Ok(Outcome::Committed),
                Err(error) if error.is_not_found() => Ok(Outcome::AlreadyCommitted),
                Err(error) => Err(error.into()),
            }
        };
        committables.iter().map(publish).collect()
    }
}

/// Rows of the part being written.
pub struct Parts {
    part: Option<Part>,
    bytes: Vec<u8>,
    rows: u64,
}

impl Writer for Parts {
    fn begin(&mut self, _ctx: &Ctx, part: &Part) -> Result<(), Error> {
        *self = Parts { part: Some(part.clone()), bytes: Vec::new(), rows: 0 };
        Ok(())
    }

    fn write(&mut self, _ctx: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        self.bytes.extend(rows.bytes());
        self.rows += rows.info().rows;
        Ok(Vec::new())
    }

    fn prepare(&mut self, ctx: &Ctx) -> Result<Prepared, Error> {
        let secret = tell(ctx, "prepare")?;
        let part = self.part.take().ok_or_else(|| Error::permanent("not-begun", "no part was begun"))?;
        let name = format!("_{}", part.short);
        let file = ctx.dir("output")?.create_new(&name)?;
        file.stream(0)?.write_all(&self.bytes)?;
        file.sync()?;
        let body = if leaks(ctx, "committable") { secret.into_bytes() } else { Vec::new() };
        let resources = vec![External { kind: "staged-file".to_owned(), name, expires_at: None }];
        let committable = Committable { part, version: 1, body, rows: self.rows, expires_at: None };
        Ok(Prepared { committable, resources, state: None, rows: self.rows, rejects: Vec::new() })
    }
}

tidegate_sdk::export!(Talkative);
