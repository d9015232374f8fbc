//! Staging: rows go straight from the host into a file outside the readers' view.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_sdk::fs::{File, Stream};
use tidegate_sdk::{
    Batch, BatchInfo, Committable, Ctx, Encoding, Error, ErrorKind, External, FileChunk, Part, Prepared, Reject, Writer,
};

use crate::body::{Body, NumberedBody, NumberedFile};
use crate::config::Config;
use crate::layout::{self, Layout};

/// The kind of our one resource; its name is the part's short id. It stands for all files staged for the part.
pub(crate) const STAGED_FILE: &str = "staged-file";
/// Files of one part.
const MAX_FILES: usize = 16 * 1024;
/// So many bytes of a file are left to `prepare` to write out.
const WRITE_OUT_STEP: u64 = 256 * 1024;
/// Of so many epochs the files are made together when one is.
const EPOCHS_AHEAD: u64 = 8;

/// Stages the parts of one participant.
pub struct FilesWriter {
    config: Config,
    layout: Option<Layout>,
    part: Option<Staging>,
    /// Empty files for the next epochs, by their parts' short ids. The names are durable.
    ahead: BTreeSet<String>,
}

/// The part being written.
struct Staging {
    part: Part,
    content: Content,
    rows: u64,
}

/// What has come of the part.
enum Content {
    Nothing,
    /// Rows, in one file.
    Rows {
        open: Open,
        encoding: Encoding,
        /// The file's name is durable.
        named: bool,
    },
    /// Pieces of the host's files.
    Files(HostFiles),
}

struct Open {
    // Closed before the file.
    stream: Stream,
    file: File,
    bytes: u64,
    /// Up to here the system was asked to write out.
    written_out: u64,
}

/// Files that the host writes.
#[derive(Default)]
struct HostFiles {
    /// Not ended yet, by number.
    open: BTreeMap<u32, Open>,
    /// All of them in the order of their numbers; bytes of open ones are not in it yet.
    known: Vec<NumberedFile>,
    folders: Vec<String>,
    folder_numbers: BTreeMap<String, u32>,
}

impl FilesWriter {
    pub(crate) fn open(ctx: &Ctx) -> Result<FilesWriter, Error> {
        let config = Config::of(ctx)?;
        if let Some(layout) = Layout::open(ctx)?
            && layout.head()?.is_some_and(|head| head.fences(&ctx.run))
        {
            return Err(Error::fenced("fenced", "a newer run owns the output directory"));
        }
        Ok(FilesWriter { config, layout: None, part: None, ahead: BTreeSet::new() })
    }
}

impl Writer for FilesWriter {
    fn begin(&mut self, ctx: &Ctx, part: &Part) -> Result<(), Error> {
        layout::check_short(ctx, &part.short)?;
        if self.layout.is_none() {
            self.layout = Some(Layout::create(ctx)?);
        }
        self.part = Some(Staging { part: part.clone(), content: Content::Nothing, rows: 0 });
        Ok(())
    }

    fn write(&mut self, _ctx: &Ctx, rows: &Batch) -> Result<Vec<Reject>, Error> {
        let (Some(layout), Some(staging)) = (&self.layout, &mut self.part) else { return Err(not_begun()) };
        let info = rows.info();
        match (info.encoding, &info.file) {
            (Encoding::Files, Some(chunk)) => staging.write_piece(layout, rows, &info, chunk)?,
            (Encoding::Files, None) => return Err(Error::permanent("no-file", "a piece of a file that is not named")),
            _ if info.rows == 0 && info.bytes == 0 => {}
            _ => staging.write_rows(layout, rows, &info, &mut self.ahead)?,
        }
        let rows = staging.rows.checked_add(info.rows);
        staging.rows = rows.ok_or_else(|| Error::permanent("part-too-large", "the part has more than 2^64 rows"))?;
        Ok(Vec::new())
    }

    fn prepare(&mut self, ctx: &Ctx) -> Result<Prepared, Error> {
        let layout = self.layout.as_ref().ok_or_else(not_begun)?;
        let Staging { part, content, rows } = self.part.take().ok_or_else(not_begun)?;
        let stem = layout::stem(self.config.prefix(), ctx, &part);
        let body = match content {
            Content::Nothing => Body { file: None, bytes: 0 }.into(),
            Content::Rows { open, encoding, named } => {
                let Open { stream, file, bytes, .. } = open;
                drop(stream);
                file.sync().map_err(lost)?;
                if !named {
                    layout.staging.sync().map_err(lost)?;
                }
                check_staged(layout, [(part.short.clone(), bytes)])?;
                let extension = self.config.extension(encoding);
                Body { file: Some(format!("{stem}.{extension}")), bytes }.into()
            }
            Content::Files(files) => files.prepare(layout, &part.short, stem, &self.config)?.into(),
        };
        let crate::body::Encoded { version, bytes, any } = body;
        let body = bytes.map_err(|error| Error::permanent("body-json", error.to_string()))?;
        let resource = || External { kind: STAGED_FILE.to_owned(), name: part.short.clone(), expires_at: None };
        let resources = if any { vec![resource()] } else { Vec::new() };
        let committable = Committable { part, version, body, rows, expires_at: None };
        Ok(Prepared { committable, resources, state: None, rows, rejects: Vec::new() })
    }
}

impl Staging {
    fn write_rows(
        &mut self,
        layout: &Layout,
        rows: &Batch,
        info: &BatchInfo,
        ahead: &mut BTreeSet<String>,
    ) -> Result<(), Error> {
        if let Content::Nothing = &self.content {
            let named = ahead.remove(&self.part.short);
            let open = if named {
                Open::of(layout.staging.open_to_write(&self.part.short).map_err(lost)?)?
            } else {
                Open::create(layout, &self.part.short)?
            };
            self.content = Content::Rows { open, encoding: info.encoding, named };
        }
        match &mut self.content {
            Content::Rows { open, encoding, named } if *encoding == info.encoding => {
                open.take(rows, info)?;
                // Much comes: flushing the name now, with names for epochs to come, leaves less to wait for in `prepare`.
                if !*named && open.bytes >= WRITE_OUT_STEP {
                    make_ahead(layout, &self.part, ahead)?;
                    *named = true;
                }
                Ok(())
            }
            _ => Err(encoding_changed()),
        }
    }

    fn write_piece(&mut self, layout: &Layout, rows: &Batch, info: &BatchInfo, chunk: &FileChunk) -> Result<(), Error> {
        if let Content::Nothing = &self.content {
            self.content = Content::Files(HostFiles::default());
        }
        let Content::Files(files) = &mut self.content else { return Err(encoding_changed()) };
        files.open(layout, &self.part.short, chunk)?;
        let (Some(open), Some(known)) = (files.open.get_mut(&chunk.number), files.known.get_mut(chunk.number as usize))
        else {
            return Err(Error::permanent("file-ended", format!("file {} has ended before", chunk.number)));
        };
        if info.bytes > 0 {
            open.take(rows, info)?;
        }
        known.rows = known.rows.saturating_add(info.rows);
        if chunk.last
            && let Some(Open { stream, file, bytes, .. }) = files.open.remove(&chunk.number)
        {
            known.bytes = bytes;
            drop(stream);
            // Now, and not in `prepare`: no more files are open than the host has open.
            file.sync().map_err(lost)?;
        }
        Ok(())
    }
}

impl HostFiles {
    /// Opens a file with its first piece; checks that later ones are of the same file.
    fn open(&mut self, layout: &Layout, short: &str, chunk: &FileChunk) -> Result<(), Error> {
        let FileChunk { number, folder, extension, .. } = chunk;
        if let Some(known) = self.known.get(*number as usize) {
            let same = self.folders.get(known.folder as usize) == Some(folder) && known.extension == *extension;
            let moved = || Error::permanent("file-moved", format!("file {number} was begun in another folder"));
            return if same { Ok(()) } else { Err(moved()) };
        }
        if *number as usize != self.known.len() || self.known.len() >= MAX_FILES {
            let message = format!("file {number} after {} files; at most {MAX_FILES} in a part", self.known.len());
            return Err(Error::permanent("file-number", message));
        }
        layout::check_folder(folder)?;
        layout::check_extension(extension)?;
        let open = Open::create(layout, &layout::staged_name(short, *number))?;
        let next = self.folders.len() as u32;
        let folder_number = *self.folder_numbers.entry(folder.clone()).or_insert(next);
        if folder_number == next {
            self.folders.push(folder.clone());
        }
        self.known.push(NumberedFile { folder: folder_number, extension: extension.clone(), bytes: 0, rows: 0 });
        self.open.insert(*number, open);
        Ok(())
    }

    /// Promises the files. Each was flushed when it ended.
    fn prepare(self, layout: &Layout, short: &str, stem: String, config: &Config) -> Result<NumberedBody, Error> {
        if let Some(number) = self.open.keys().next() {
            return Err(Error::permanent("file-not-ended", format!("file {number} was not ended before `prepare`")));
        }
        let mut files = self.known;
        let staged =
            files.iter().enumerate().map(|(number, file)| (layout::staged_name(short, number as u32), file.bytes));
        layout.staging.sync().map_err(lost)?;
        check_staged(layout, staged)?;
        for file in &mut files {
            file.extension = config.file_extension(&file.extension).to_owned();
        }
        Ok(NumberedBody { stem, folders: self.folders, files })
    }
}

impl Open {
    /// Names are never used twice: one that is taken belongs to somebody else's part.
    fn create(layout: &Layout, staged: &str) -> Result<Open, Error> {
        Open::of(layout.staging.create_new(staged).map_err(lost)?)
    }

    fn of(file: File) -> Result<Open, Error> {
        let stream = file.stream(0).map_err(lost)?;
        Ok(Open { stream, file, bytes: 0, written_out: 0 })
    }

    /// The host moves a batch into the file.
    fn take(&mut self, rows: &Batch, info: &BatchInfo) -> Result<(), Error> {
        // After an error the stream is dead and the file holds nobody knows what.
        let moved = rows.write_to(&mut self.stream).map_err(|error| error.with_kind(ErrorKind::EpochLost))?;
        if moved != info.bytes {
            return Err(Error::epoch_lost("short-write", format!("{moved} of {} bytes were staged", info.bytes)));
        }
        let bytes = self.bytes.checked_add(moved);
        self.bytes = bytes.ok_or_else(|| Error::permanent("part-too-large", "a file has more than 2^64 bytes"))?;
        let waiting = self.bytes - self.written_out;
        if waiting >= WRITE_OUT_STEP {
            self.file.begin_writing_out(self.written_out, waiting);
            self.written_out = self.bytes;
        }
        Ok(())
    }
}

/// Makes the names of this part's file, and of those that this participant will need for the next epochs, durable with
/// one flush. Names that are not used in the end stand for empty files, which go with the names of older epochs here, or
/// as what a later run finds unsealed.
fn make_ahead(layout: &Layout, part: &Part, ahead: &mut BTreeSet<String>) -> Result<(), Error> {
    for name in std::mem::take(ahead) {
        layout.staging.remove_file(&name).map_err(lost)?;
    }
    for epoch in (1..EPOCHS_AHEAD).filter_map(|further| part.epoch.checked_add(further)) {
        let Some(name) = layout::short_in(part, epoch) else { break };
        match layout.staging.create_new(&name) {
            Ok(_) => drop(ahead.insert(name)),
            // Whoever has that name keeps it; it is asked for again when its epoch comes.
            Err(error) if error.is_exists() => {}
            Err(error) => return Err(lost(error)),
        }
    }
    layout.staging.sync().map_err(lost)
}

/// Looks whether staged files are what was promised.
fn check_staged(layout: &Layout, staged: impl IntoIterator<Item = (String, u64)>) -> Result<(), Error> {
    for (name, bytes) in staged {
        match layout.staging.metadata(&name).map_err(lost)? {
            Some(found) if found.is_file && found.bytes == bytes => {}
            Some(found) => {
                return Err(Error::epoch_lost(
                    "staged-size",
                    format!("`{name}` has {} bytes, {bytes} were written: something else wrote to it", found.bytes),
                ));
            }
            None => return Err(Error::epoch_lost("staged-gone", format!("`{name}` was removed while it was written"))),
        }
    }
    Ok(())
}

fn lost(error: tidegate_sdk::fs::Error) -> Error {
    Error::from(error).with_kind(ErrorKind::EpochLost)
}

fn encoding_changed() -> Error {
    Error::permanent("encoding-changed", "all batches of an epoch must have one encoding")
}

fn not_begun() -> Error {
    Error::permanent("not-begun", "`begin` has to be called first")
}
