//! The `files` sink: rows become whole files in a directory, epochs become whole entries in a log for readers.
//!
//! Rows are staged outside the readers' view. A commit first creates the next entry of a **position register**, a chain
//! of files made with `link` (which fails when the name is taken); that is the atomic step. The entry is durable before
//! it: written over a file whose name was flushed earlier ([`register`]). Then it links the staged
//! files into place, and the entry itself into the readers' log. Whoever comes next finishes what a crash left half
//! done, before anything else: only the newest entry can be unfinished.
//!
//! README.md holds the readers' contract and the order of writes and flushes.

mod body;
mod commit;
mod config;
mod entry;
mod janitor;
mod layout;
mod publish;
mod register;
mod writer;

use tidegate_sdk::{
    Abilities, AtomicScope, Committable, Ctx, Description, Encoding, Error, External, GrantRequest, KeyRange,
    OrphanPage, Orphans, Outcome, Part, Position, Role, Sink, Unsealed, Visibility, WriterState,
};

pub use entry::FORMATS as ENTRY_FORMATS;
pub use writer::FilesWriter;

/// The name of the directory grant.
pub const GRANT: &str = "output";

/// The sink. What it holds saves flushes and listings.
#[derive(Default)]
pub struct Files {
    kept: register::Kept,
}

impl Sink for Files {
    type Writer = FilesWriter;

    fn describe() -> Description {
        let grant = |role, reason| GrantRequest { role, kind: "dir", name: GRANT, reason };
        Description {
            name: "files".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            config_schema: config::SCHEMA.to_owned(),
            encodings: vec![Encoding::JsonLines, Encoding::Raw, Encoding::Csv, Encoding::Files],
            abilities: Abilities {
                staging: true,
                idempotent_commit: true,
                marker_retention: None,
                marker_survives_foreign_writers: true,
                observe: true,
                fence: true,
                reconcile: true,
                atomic_scope: AtomicScope::Sink,
                visibility: Visibility::WholeEpoch,
                max_open_epochs: 1024,
                upsert_keys: false,
                prepared_ttl: None,
                max_idle: None,
                names_per_day: None,
                orphans: Orphans::Listable,
            },
            committable_versions: body::VERSIONS.to_vec(),
            grants: vec![
                grant(Role::Writer, "stages files under _tidegate"),
                grant(Role::Committer, "moves staged files into place and keeps _epochs"),
                grant(Role::Janitor, "removes staged files that were given up"),
            ],
            needs: vec![],
        }
    }

    fn open(&mut self, ctx: &Ctx, _range: KeyRange, _restored: Vec<WriterState>) -> Result<FilesWriter, Error> {
        FilesWriter::open(ctx)
    }

    fn observe(&mut self, ctx: &Ctx) -> Result<Position, Error> {
        commit::observe(ctx)
    }

    fn fence(&mut self, ctx: &Ctx, expected: &Position) -> Result<Position, Error> {
        commit::fence(ctx, expected, &mut self.kept)
    }

    fn commit(&mut self, ctx: &Ctx, previous: &[Part], committables: &[Committable]) -> Result<Vec<Outcome>, Error> {
        commit::commit(ctx, previous, committables, &mut self.kept)
    }

    fn reconcile(&mut self, ctx: &Ctx, committables: &[Committable]) -> Result<Vec<Outcome>, Error> {
        commit::reconcile(ctx, committables)
    }

    fn abandon(&mut self, ctx: &Ctx, parts: &[Unsealed]) -> Result<Vec<Outcome>, Error> {
        janitor::abandon(ctx, parts)
    }

    fn release(&mut self, ctx: &Ctx, resources: &[External]) -> Result<Vec<Outcome>, Error> {
        janitor::release(ctx, resources)
    }

    fn list_orphans(&mut self, ctx: &Ctx, prefix: &str, page: Option<&str>) -> Result<OrphanPage, Error> {
        janitor::list_orphans(ctx, prefix, page)
    }
}

tidegate_sdk::export!(Files);
