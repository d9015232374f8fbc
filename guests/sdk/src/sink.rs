//! What a sink implements.

use crate::{
    Batch, Committable, Ctx, Description, Error, External, KeyRange, OrphanPage, Outcome, Part, Position, Prepared,
    Reject, Unsealed, WriterState,
};

/// A destination. One value lives as long as its instance, which serves one role; use it to keep connections, never to
/// keep anything that a later call must know.
pub trait Sink: Default + 'static {
    /// What stages rows.
    type Writer: Writer;

    /// What the sink is. Called once at admission, without grants.
    fn describe() -> Description;

    /// Checks the configuration and connects. Changes nothing at the destination.
    ///
    /// # Errors
    /// The configuration is wrong or the destination cannot be reached.
    fn open(&mut self, ctx: &Ctx, range: KeyRange, restored: Vec<WriterState>) -> Result<Self::Writer, Error>;

    /// Publishes the parts of one epoch. A repeat changes nothing. One outcome per committable, in order.
    ///
    /// # Errors
    /// An error speaks of all committables at once.
    fn commit(&mut self, ctx: &Ctx, previous: &[Part], committables: &[Committable]) -> Result<Vec<Outcome>, Error>;

    /// Where the destination stands; changes nothing.
    ///
    /// # Errors
    /// The default answers `unsupported`.
    fn observe(&mut self, ctx: &Ctx) -> Result<Position, Error> {
        let _ = ctx;
        Err(Error::unsupported("observe"))
    }

    /// Makes older runs unable to publish: compare-and-set on the observed position.
    ///
    /// # Errors
    /// The default answers `unsupported`.
    fn fence(&mut self, ctx: &Ctx, expected: &Position) -> Result<Position, Error> {
        let _ = (ctx, expected);
        Err(Error::unsupported("fence"))
    }

    /// What became of a commit whose answer was lost; changes nothing.
    ///
    /// # Errors
    /// The destination cannot be asked. The default answers [`Outcome::Unsupported`] for each.
    fn reconcile(&mut self, ctx: &Ctx, committables: &[Committable]) -> Result<Vec<Outcome>, Error> {
        let _ = ctx;
        Ok(vec![Outcome::Unsupported; committables.len()])
    }

    /// Gives back what was staged and never sealed. [`Outcome::Committed`] means: gone.
    ///
    /// # Errors
    /// An error speaks of all parts at once. The default answers [`Outcome::Unsupported`] for each.
    fn abandon(&mut self, ctx: &Ctx, parts: &[Unsealed]) -> Result<Vec<Outcome>, Error> {
        let _ = ctx;
        Ok(vec![Outcome::Unsupported; parts.len()])
    }

    /// Destroys or finalises what no retained checkpoint needs. [`Outcome::Committed`] means: gone.
    ///
    /// # Errors
    /// An error speaks of all resources at once. The default answers [`Outcome::Unsupported`] for each.
    fn release(&mut self, ctx: &Ctx, resources: &[External]) -> Result<Vec<Outcome>, Error> {
        let _ = ctx;
        Ok(vec![Outcome::Unsupported; resources.len()])
    }

    /// Work whose short name starts with `prefix`, page by page.
    ///
    /// # Errors
    /// The default answers `unsupported`.
    fn list_orphans(&mut self, ctx: &Ctx, prefix: &str, page: Option<&str>) -> Result<OrphanPage, Error> {
        let _ = (ctx, prefix, page);
        Err(Error::unsupported("list-orphans"))
    }
}

/// Stages rows. One value writes one epoch after the other, each from its first row to prepare.
///
/// Dropping a writer must touch nothing at the destination.
pub trait Writer {
    /// Starts a part.
    ///
    /// # Errors
    /// The part cannot be written.
    fn begin(&mut self, ctx: &Ctx, part: &Part) -> Result<(), Error>;

    /// Stages rows of the part begun last. Answers with the rows that the destination will not take.
    ///
    /// # Errors
    /// The rows were not staged.
    fn write(&mut self, ctx: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error>;

    /// Flushes, stages and promises that commit can succeed.
    ///
    /// # Errors
    /// The promise cannot be made.
    fn prepare(&mut self, ctx: &Ctx) -> Result<Prepared, Error>;
}
