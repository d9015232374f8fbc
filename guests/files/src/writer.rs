//! Staging: rows go straight from the host into a file outside the readers' view.

use serde::{Deserialize, Serialize};
use tidegate_sdk::fs::{File, Stream};
use tidegate_sdk::{Batch, Committable, Ctx, Encoding, Error, ErrorKind, External, Part, Prepared, Reject, Writer};

use crate::config::Config;
use crate::layout::{self, Layout};

/// Version of [`Body`].
pub(crate) const BODY_VERSION: u32 = 1;
/// The kind of our one resource; its name is the part's short id.
pub(crate) const STAGED_FILE: &str = "staged-file";

/// What a committable says. The staged file's name is the part's short id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Body {
    /// The name to publish under; none: there were no rows and there is no file.
    pub(crate) file: Option<String>,
    /// Size of the file.
    pub(crate) bytes: u64,
}

/// Stages the parts of one participant.
pub struct FilesWriter {
    config: Config,
    layout: Option<Layout>,
    part: Option<Staging>,
}

/// The part being written.
struct Staging {
    part: Part,
    file: Option<Open>,
    bytes: u64,
    rows: u64,
}

struct Open {
    // Closed before the file.
    stream: Stream,
    file: File,
    encoding: Encoding,
}

impl FilesWriter {
    pub(crate) fn open(ctx: &Ctx) -> Result<FilesWriter, Error> {
        let config = Config::of(ctx)?;
        if let Some(layout) = Layout::open(ctx)?
            && layout.head()?.is_some_and(|head| head.fences(&ctx.run))
        {
            return Err(Error::fenced("fenced", "a newer run owns the output directory"));
        }
        Ok(FilesWriter { config, layout: None, part: None })
    }
}

impl Writer for FilesWriter {
    fn begin(&mut self, ctx: &Ctx, part: &Part) -> Result<(), Error> {
        layout::check_short(ctx, &part.short)?;
        if self.layout.is_none() {
            self.layout = Some(Layout::create(ctx)?);
        }
        self.part = Some(Staging { part: part.clone(), file: None, bytes: 0, rows: 0 });
        Ok(())
    }

    fn write(&mut self, _ctx: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        let (Some(layout), Some(staging)) = (&self.layout, &mut self.part) else { return Err(not_begun()) };
        let info = rows.info();
        if info.rows == 0 && info.bytes == 0 {
            return Ok(Vec::new());
        }
        let open = match &mut staging.file {
            Some(open) => open,
            None => staging.file.insert(create(layout, &staging.part.short, info.encoding)?),
        };
        if open.encoding != info.encoding {
            return Err(Error::permanent("encoding-changed", "all batches of an epoch must have one encoding"));
        }
        // After an error the stream is dead and the file holds nobody knows what.
        let moved = rows.write_to(&mut open.stream).map_err(|error| error.with_kind(ErrorKind::EpochLost))?;
        if moved != info.bytes {
            let message = format!("{moved} of {} bytes were staged", info.bytes);
            return Err(Error::epoch_lost("short-write", message));
        }
        let overflow = || Error::permanent("part-too-large", "the part has more than 2^64 bytes or rows");
        staging.bytes = staging.bytes.checked_add(moved).ok_or_else(overflow)?;
        staging.rows = staging.rows.checked_add(info.rows).ok_or_else(overflow)?;
        Ok(Vec::new())
    }

    fn prepare(&mut self, ctx: &Ctx) -> Result<Prepared, Error> {
        let layout = self.layout.as_ref().ok_or_else(not_begun)?;
        let Staging { part, file, bytes, rows } = self.part.take().ok_or_else(not_begun)?;
        let mut body = Body { file: None, bytes };
        let mut resources = Vec::new();
        if let Some(open) = file {
            make_durable(layout, &part.short, open.file, bytes)
                .map_err(|error| error.with_kind(ErrorKind::EpochLost))?;
            let extension = self.config.extension(open.encoding);
            body.file = Some(layout::published(self.config.prefix(), ctx, &part, extension));
            resources.push(External { kind: STAGED_FILE.to_owned(), name: part.short.clone(), expires_at: None });
        }
        let body = serde_json::to_vec(&body).map_err(|error| Error::permanent("body-json", error.to_string()))?;
        let committable = Committable { part, version: BODY_VERSION, body, rows, expires_at: None };
        Ok(Prepared { committable, resources, state: None, rows, rejects: Vec::new() })
    }
}

/// Names are never used twice: one that is taken belongs to somebody else's part.
fn create(layout: &Layout, short: &str, encoding: Encoding) -> Result<Open, Error> {
    let file = layout.staging.create_new(short).map_err(|error| Error::from(error).with_kind(ErrorKind::EpochLost))?;
    let stream = file.stream(0).map_err(|error| Error::from(error).with_kind(ErrorKind::EpochLost))?;
    Ok(Open { stream, file, encoding })
}

/// Flushes the file, then the name, and looks whether both are what was promised.
fn make_durable(layout: &Layout, short: &str, file: File, bytes: u64) -> Result<(), Error> {
    file.sync()?;
    layout.staging.sync()?;
    match layout.staging.metadata(short)? {
        Some(found) if found.is_file && found.bytes == bytes => Ok(()),
        Some(found) => Err(Error::epoch_lost(
            "staged-size",
            format!("`{short}` has {} bytes, {bytes} were written: something else wrote to it", found.bytes),
        )),
        None => Err(Error::epoch_lost("staged-gone", format!("`{short}` was removed while it was written"))),
    }
}

fn not_begun() -> Error {
    Error::permanent("not-begun", "`begin` has to be called first")
}
