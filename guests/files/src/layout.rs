//! All names in the output directory, and the directories behind them.
//!
//! ```text
//! <prefix><epoch>-<sink hash>-<run>-<ordinal>-<attempt>.jsonl   published
//! <folder>/<prefix><epoch>-…-<attempt>-<number>.parquet         published, one of several files of a part
//! _epochs/<epoch>-<sink hash>-<run>.json                        the readers' log
//! _tidegate/<sink hash>/staging/<short id of the part>          staged
//! _tidegate/<sink hash>/staging/<short id of the part>.<number> staged, one of several files of a part
//! _tidegate/<sink hash>/register/<slot>                         the position register
//! _tidegate/<sink hash>/register/new-<run>-<n>                  a spare: an entry is written there, and then linked
//! _tidegate/<sink hash>/register/published-<slot>               a note that an entry's epoch is whole in the readers' log
//! ```
//! Epoch and slot have 20 digits, so that names sort by number.

use tidegate_sdk::fs::{self, Dir};
use tidegate_sdk::{Ctx, Error, Part, RunId};

use crate::GRANT;

const TIDEGATE: &str = "_tidegate";
const EPOCHS: &str = "_epochs";
const STAGING: &str = "staging";
const REGISTER: &str = "register";

/// What a spare's name begins with.
pub(crate) const NEW: &str = "new-";
const PUBLISHED: &str = "published-";
/// Bytes of a published file's folder.
const MAX_FOLDER_BYTES: usize = 1024;
/// Folders within folders.
const MAX_FOLDER_LEVELS: usize = 16;

/// The directories of one sink.
pub(crate) struct Layout {
    /// Where published files are.
    pub(crate) out: Dir,
    /// The readers' log.
    pub(crate) epochs: Dir,
    /// Staged files.
    pub(crate) staging: Dir,
    /// The position register.
    pub(crate) register: Dir,
}

impl Layout {
    /// The directories, if they are there; creates nothing.
    pub(crate) fn open(ctx: &Ctx) -> Result<Option<Layout>, Error> {
        let own = format!("{TIDEGATE}/{}", checked_hash(ctx)?);
        let out = ctx.dir(GRANT)?;
        let Some(register) = found(out.open_dir(&format!("{own}/{REGISTER}")))? else { return Ok(None) };
        let staging = found(out.open_dir(&format!("{own}/{STAGING}")))?;
        let epochs = found(out.open_dir(EPOCHS))?;
        match (epochs, staging) {
            (Some(epochs), Some(staging)) => Ok(Some(Layout { out, epochs, staging, register })),
            // A power cut while they were made for the first time.
            _ if register.names()?.iter().all(|name| slot_of(name).is_none()) => Ok(None),
            (epochs, _) => {
                let missing = if epochs.is_none() { EPOCHS.to_owned() } else { format!("{own}/{STAGING}") };
                Err(Error::permanent(
                    "directory-missing",
                    format!("`{missing}` was removed, `{own}/{REGISTER}` was not: restore it, or make it empty again"),
                ))
            }
        }
    }

    /// The directories, made where missing, and durable: also those that a crashed process made without flushing.
    pub(crate) fn create(ctx: &Ctx) -> Result<Layout, Error> {
        let hash = checked_hash(ctx)?;
        let out = ctx.dir(GRANT)?;
        out.create_dir(EPOCHS)?;
        out.create_dir(TIDEGATE)?;
        let tidegate = out.open_dir(TIDEGATE)?;
        tidegate.create_dir(hash)?;
        let own = tidegate.open_dir(hash)?;
        own.create_dir(STAGING)?;
        own.create_dir(REGISTER)?;
        own.sync()?;
        tidegate.sync()?;
        out.sync()?;
        let epochs = out.open_dir(EPOCHS)?;
        Ok(Layout { epochs, staging: own.open_dir(STAGING)?, register: own.open_dir(REGISTER)?, out })
    }
}

fn found(opened: Result<Dir, fs::Error>) -> Result<Option<Dir>, Error> {
    match opened {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The sink hash becomes part of paths.
fn checked_hash(ctx: &Ctx) -> Result<&str, Error> {
    let hash = ctx.sink_hash.as_str();
    let legal = (1..=16).contains(&hash.len()) && hash.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let expected = || format!("sink hash `{hash}`: expected 1 to 16 of a-z and 0-9");
    if legal { Ok(hash) } else { Err(Error::permanent("bad-sink-hash", expected())) }
}

/// Checks that a staged file's name is a short id of this sink, before it becomes part of a path.
pub(crate) fn check_short(ctx: &Ctx, short: &str) -> Result<(), Error> {
    let ours = short.strip_prefix("tg-").and_then(|rest| rest.strip_prefix(ctx.sink_hash.as_str()));
    let legal = ours.is_some_and(|rest| rest.starts_with('-') && rest.len() > 1)
        && short.len() <= 128
        && short.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if legal {
        return Ok(());
    }
    Err(Error::permanent(
        "foreign-name",
        format!("`{short}` is not a short id of this sink: expected tg-{}-…", ctx.sink_hash),
    ))
}

/// The short id that the part of the same participant gets in another epoch: ids differ in the epoch alone. `None` for ids
/// of a form that this version does not know.
pub(crate) fn short_in(part: &Part, epoch: u64) -> Option<String> {
    let Part { short, ordinal, attempt, .. } = part;
    let begin = short.strip_suffix(&format!("-{}-{ordinal}-{attempt}", part.epoch))?;
    Some(format!("{begin}-{epoch}-{ordinal}-{attempt}"))
}

/// What one of several files of a part is staged as. A short id has no dot.
pub(crate) fn staged_name(short: &str, number: u32) -> String {
    format!("{short}.{number}")
}

/// The short id of the part that a staged file belongs to.
pub(crate) fn short_of(staged: &str) -> &str {
    staged.split_once('.').map_or(staged, |(short, _)| short)
}

/// What the names begin with under which a part's files are published. Minted once, at prepare.
pub(crate) fn stem(prefix: &str, ctx: &Ctx, part: &Part) -> String {
    let Part { run, epoch, ordinal, attempt, .. } = part;
    format!("{prefix}{epoch:020}-{}-{run}-{ordinal}-{attempt}", ctx.sink_hash)
}

/// The name, with its folder, of one of several files of a part.
pub(crate) fn numbered(folder: &str, stem: &str, number: u32, extension: &str) -> String {
    let slash = if folder.is_empty() { "" } else { "/" };
    format!("{folder}{slash}{stem}-{number}.{extension}")
}

/// The folder of a published file; empty for none.
pub(crate) fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Every folder on the way to this one, it among them, from the outermost on.
pub(crate) fn folders_down_to(folder: &str) -> impl Iterator<Item = &str> {
    let inner = folder.match_indices('/').map(|(at, _)| &folder[..at]);
    inner.chain((!folder.is_empty()).then_some(folder))
}

/// Checks a folder that comes from the host or a committable, before it becomes a path. Empty for none.
pub(crate) fn check_folder(folder: &str) -> Result<(), Error> {
    let segment_is_legal = |segment: &str| {
        (1..=255).contains(&segment.len())
            && !matches!(segment, "." | "..")
            && !segment.starts_with('_')
            && !segment.contains(|c: char| c.is_control())
    };
    let legal = folder.is_empty()
        || folder.len() <= MAX_FOLDER_BYTES
            && folder.split('/').count() <= MAX_FOLDER_LEVELS
            && folder.split('/').all(segment_is_legal);
    let message = || format!("`{}` cannot be a folder of published files", folder.escape_debug());
    if legal { Ok(()) } else { Err(Error::permanent("bad-folder", message())) }
}

/// Checks what a name ends in that comes from the host or a committable.
pub(crate) fn check_extension(extension: &str) -> Result<(), Error> {
    let legal = (1..=16).contains(&extension.len())
        && extension.split('.').all(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric()));
    let message = || format!("`{}` cannot end the name of a file", extension.escape_debug());
    if legal { Ok(()) } else { Err(Error::permanent("bad-extension", message())) }
}

/// Checks a published name that comes from a committable, before it becomes part of a path.
pub(crate) fn check_published(name: &str) -> Result<(), Error> {
    let legal = (1..=255).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if legal { Ok(()) } else { Err(Error::permanent("bad-file-name", format!("`{name}` cannot be a published file"))) }
}

/// Name of an epoch in the readers' log.
pub(crate) fn epoch_name(ctx: &Ctx, run: &RunId, epoch: u64) -> String {
    format!("{epoch:020}-{}-{run}.json", ctx.sink_hash)
}

/// Name of a register entry.
pub(crate) fn slot_name(slot: u64) -> String {
    format!("{slot:020}")
}

/// The slot that a name in the register stands for.
pub(crate) fn slot_of(name: &str) -> Option<u64> {
    if name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit()) { name.parse().ok() } else { None }
}

/// Name of the note that an entry was published.
pub(crate) fn note_name(slot: u64) -> String {
    format!("{PUBLISHED}{slot:020}")
}

/// The slot that a note in the register is about.
pub(crate) fn slot_of_note(name: &str) -> Option<u64> {
    name.strip_prefix(PUBLISHED).and_then(slot_of)
}

/// Name of a spare register entry.
pub(crate) fn spare_name(run: &RunId, number: u64) -> String {
    format!("{NEW}spare-{run}-{number}")
}

/// The run whose spare this is.
pub(crate) fn run_of_new(name: &str) -> Option<RunId> {
    let mut fields = name.strip_prefix(NEW)?.splitn(4, '-');
    let (_kind, number, nonce) = (fields.next()?, fields.next()?, fields.next()?);
    format!("{number}-{nonce}").parse().ok()
}
