//! The position register: finding its newest entry, adding one, trimming.
//!
//! Entries are a chain. Whoever links an entry to the next free **slot** has decided: `link` fails when the name is taken,
//! so there is one winner among all processes of the machine. What survives a power cut is another matter, and costs one
//! flush of a file that changes neither its length nor a name: the entry is written over a **spare**, a file full of
//! spaces whose name was flushed before, and flushed *before* it is linked. So a decision is durable before anybody can
//! see it. The slots' names are flushed only when new spares are made, once in [`SPARES`] commits: where a power cut took
//! one, the entry is found under its spare's name, and [`Layout::newest`] links it again ([`Layout::follow`]).
//!
//! - An entry that was written and never linked counts as well. It follows the newest one exactly, so it was about to be
//!   linked by somebody who was allowed to: a commit of a sealed epoch, or a fence. If that somebody still lives, one of
//!   the two links wins, and the other is told.
//! - Two entries may claim the slot behind the newest one if a power cut took it: a commit and a fence that raced. The
//!   commit counts, for its rows may have been seen; the fence was not acknowledged, or its slot would be there.
//! - A fence is flushed together with its slot before it is acknowledged: so that no commit can come before it.
//! - The name of a spare is removed only after the slots were flushed.

use std::collections::BTreeMap;

use tidegate_sdk::{Ctx, Error, Level};

use crate::entry::{Entry, FORMATS, Kind};
use crate::layout::{self, Layout, NEW};

/// Entries kept behind the newest one.
const KEPT: u64 = 8;
/// Spares made at a time.
const SPARES: usize = 8;
/// An entry takes a multiple of this in its spare, which has room for the one before it: then nothing but bytes changes.
const SPARE_STEP: usize = 4096;
const MAX_SPARE: usize = 64 * 1024;
/// A disk writes so many bytes whole or not at all.
const SECTOR: usize = 512;
/// An entry is never larger: some 100,000 parts.
const MAX_ENTRY_BYTES: u64 = 64 * 1024 * 1024;
/// How often a call looks again when others move the register.
pub(crate) const MAX_TRIES: u32 = 16;
/// Names of spares that are tried: those of a run are numbered, and an earlier instance of it may have left some.
const MAX_LEFTOVERS: u64 = 1024;

/// Code of the error that something else has a published file's name.
pub(crate) const FILE_NAME_TAKEN: &str = "file-name-taken";

/// Code of the error that a staged file is not as it was prepared.
pub(crate) const STAGED_FILE_DAMAGED: &str = "staged-file-damaged";

/// What came of adding an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It is the newest entry. It is durable, under its slot or its spare's name.
    Won,
    /// Others moved the register: look again.
    Lost,
}

/// What a committer keeps between calls. Whatever may be out of date is checked before it is used.
#[derive(Default)]
pub(crate) struct Kept {
    /// The newest entry as it was seen last.
    head: Option<Head>,
    /// Slot whose publication this instance made durable itself.
    pub(crate) published: Option<u64>,
    spares: Vec<Spare>,
    /// The register was trimmed by this instance before.
    tidied: bool,
    /// Bytes of the last entry.
    entry_bytes: usize,
}

/// A file for an entry. Its name is durable.
struct Spare {
    name: String,
    bytes: usize,
}

/// A spare that is an entry now.
struct Written {
    name: String,
    content: Vec<u8>,
}

/// An entry, and how it is written.
struct Head {
    entry: Entry,
    bytes: Vec<u8>,
    /// Entries up to this one that are not linked to their slots, in order: the slot, and how the entry is written.
    unlinked: Vec<(u64, Vec<u8>)>,
}

impl Layout {
    /// The newest entry, for callers that change nothing in the register.
    pub(crate) fn head(&self) -> Result<Option<Entry>, Error> {
        Ok(self.look()?.map(|head| head.entry))
    }

    /// The newest entry, durable and linked to its slot.
    ///
    /// What was seen last is still the newest if nothing stands behind it and it is there itself: slots are taken in
    /// order and given up oldest first. It is compared by its bytes, since a sleeper can take a slot that was given up.
    pub(crate) fn newest(&self, ctx: &Ctx, kept: &mut Kept) -> Result<Option<Entry>, Error> {
        if let Some(head) = &kept.head {
            let next = next_slot(Some(&head.entry))?;
            if self.register.metadata(&layout::slot_name(next))?.is_none() && self.is_there(head)? {
                return Ok(Some(head.entry.clone()));
            }
        }
        for _ in 0..MAX_TRIES {
            let head = self.look()?;
            let unlinked = head.as_ref().map(|head| head.unlinked.clone()).unwrap_or_default();
            if unlinked.is_empty() {
                kept.head = head;
                return Ok(kept.head.as_ref().map(|head| head.entry.clone()));
            }
            for (slot, bytes) in unlinked {
                // Whoever wrote it may not have flushed it, or may have failed to, after which a flush proves nothing:
                // it is written once more.
                let linked = self.write(ctx, bytes, kept)?.map(|spare| self.link(&spare, slot)).transpose()?;
                if linked != Some(true) {
                    // By its own writer, or another's: the next look tells.
                    break;
                }
            }
        }
        Err(contended())
    }

    /// The entry of a slot that is known to be kept.
    pub(crate) fn entry(&self, slot: u64) -> Result<Entry, Error> {
        parse(&self.register.read(&layout::slot_name(slot), MAX_ENTRY_BYTES)?, slot)
    }

    fn is_there(&self, head: &Head) -> Result<bool, Error> {
        match self.register.read(&layout::slot_name(head.entry.register.slot), MAX_ENTRY_BYTES) {
            Ok(bytes) => Ok(bytes == head.bytes),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn look(&self) -> Result<Option<Head>, Error> {
        for _ in 0..MAX_TRIES {
            let names = self.register.names()?;
            let Some(slot) = names.iter().filter_map(|name| layout::slot_of(name)).max() else {
                return self.follow(None, &names);
            };
            match self.register.read(&layout::slot_name(slot), MAX_ENTRY_BYTES) {
                Ok(bytes) => {
                    let head = Head { entry: parse(&bytes, slot)?, bytes, unlinked: Vec::new() };
                    return self.follow(Some(head), &names);
                }
                // Trimmed since the listing: it is not the newest any more.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(contended())
    }

    /// Goes on from the newest slot to entries that are durable and not linked.
    fn follow(&self, mut head: Option<Head>, names: &[String]) -> Result<Option<Head>, Error> {
        let mut found: BTreeMap<u64, Vec<(String, Vec<u8>, Entry)>> = BTreeMap::new();
        for name in names.iter().filter(|name| name.starts_with(NEW)) {
            let bytes = match self.register.read(name, MAX_ENTRY_BYTES) {
                Ok(bytes) => bytes,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            // Not used yet, or torn: then its writer never got as far as to link it.
            let Some(entry) = whole(&bytes) else { continue };
            check_format(&entry, name)?;
            found.entry(entry.register.slot).or_default().push((name.clone(), bytes, entry));
        }
        loop {
            let slot = next_slot(head.as_ref().map(|head| &head.entry))?;
            let before = head.as_ref().map(|head| head.entry.token()).unwrap_or_default();
            let mut next = found.remove(&slot).unwrap_or_default();
            next.retain(|(.., entry)| entry.register.previous == before);
            next.sort_by(|(a, _, one), (b, _, two)| (one.kind == Kind::Fence, a).cmp(&(two.kind == Kind::Fence, b)));
            let Some((_, bytes, entry)) = next.into_iter().next() else { return Ok(head) };
            let mut unlinked = head.map(|head| head.unlinked).unwrap_or_default();
            unlinked.push((slot, bytes.clone()));
            head = Some(Head { entry, bytes, unlinked });
        }
    }

    fn slots(&self) -> Result<Vec<u64>, Error> {
        Ok(self.register.names()?.iter().filter_map(|name| layout::slot_of(name)).collect())
    }

    /// The entry of an epoch in the readers' log, if it is there.
    pub(crate) fn logged(&self, name: &str) -> Result<Option<Entry>, Error> {
        match self.epochs.read(name, MAX_ENTRY_BYTES) {
            Ok(bytes) => parse_any(&bytes, &format!("_epochs/{name}")).map(Some),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds an entry as compare-and-set on the one that [`Layout::newest`] answered: on `Won` it is the newest.
    pub(crate) fn append(&self, ctx: &Ctx, entry: &Entry, kept: &mut Kept) -> Result<Appended, Error> {
        let slot = entry.register.slot;
        let before = kept.head.take();
        let json = serde_json::to_vec(entry).map_err(|error| Error::permanent("register-json", error.to_string()))?;
        // Nobody could read it again.
        if json.len() as u64 > MAX_ENTRY_BYTES {
            let message = format!("an epoch of {} files has an entry of more than 64 MiB", entry.files.len());
            return Err(Error::permanent("register-entry-too-large", message));
        }
        let Some(spare) = self.write(ctx, json, kept)? else { return Ok(Appended::Lost) };
        if !self.link(&spare, slot)? {
            return Ok(Appended::Lost);
        }
        // A caller that slept since it read the register may have taken a slot that was trimmed long ago. Then the entry
        // before it is gone too. Nobody ever looks at such an entry, and a later trim takes it.
        let follows = match &before {
            Some(before) => self.is_there(before)?,
            None => self.slots()?.iter().all(|&other| other <= slot),
        };
        if !follows {
            return Ok(Appended::Lost);
        }
        if entry.kind == Kind::Fence {
            self.flush_slots()?;
        }
        kept.head = Some(Head { entry: entry.clone(), bytes: spare.content, unlinked: Vec::new() });
        Ok(Appended::Won)
    }

    /// Makes the names of all slots durable.
    pub(crate) fn flush_slots(&self) -> Result<(), Error> {
        self.register.sync().map_err(|error| Error::unknown("register-flush", error.to_string()))
    }

    /// Links a written spare to a slot; `false` if the slot is taken, or the spare swept away.
    fn link(&self, spare: &Written, slot: u64) -> Result<bool, Error> {
        match self.register.hard_link(&spare.name, &self.register, &layout::slot_name(slot)) {
            Ok(()) => Ok(true),
            Err(error) if error.is_exists() || error.is_not_found() => Ok(false),
            // Whether the link exists is not known; the next look at the register tells.
            Err(error) => Err(Error::unknown("register-link", error.to_string())),
        }
    }

    /// Writes an entry over a spare and flushes it. From then on it is durable. Nothing if the spare is gone: a newer run,
    /// or another instance, swept it away.
    fn write(&self, ctx: &Ctx, mut content: Vec<u8>, kept: &mut Kept) -> Result<Option<Written>, Error> {
        kept.entry_bytes = content.len();
        if kept.spares.is_empty() {
            self.make_spares(ctx, kept)?;
        }
        let Spare { name, bytes } = kept.spares.pop().ok_or_else(contended)?;
        content.resize(content.len().max(bytes), b' ');
        let file = match self.register.open_to_write(&name) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let written = file.stream(0).and_then(|mut stream| stream.write_all(&content)).and_then(|()| file.sync());
        if let Err(error) = written {
            // Whether it is durable is not known, so nobody shall find it; if somebody does, it is written once more.
            let _ = self.register.remove_file(&name);
            return Err(error.into());
        }
        Ok(Some(Written { name, content }))
    }

    /// Makes spares, and makes their names and those of all slots durable.
    fn make_spares(&self, ctx: &Ctx, kept: &mut Kept) -> Result<(), Error> {
        let steps = kept.entry_bytes.clamp(1, MAX_SPARE).div_ceil(SPARE_STEP);
        let spaces = vec![b' '; steps * SPARE_STEP];
        let mut names = (0..MAX_LEFTOVERS).map(|number| layout::spare_name(&ctx.run, number));
        let mut made = Vec::new();
        while made.len() < SPARES {
            let Some(name) = names.next() else {
                return Err(Error::permanent("register-leftovers", "too many spare register entries of one run"));
            };
            let file = match self.register.create_new(&name) {
                Ok(file) => file,
                Err(error) if error.is_exists() => continue,
                Err(error) => return Err(error.into()),
            };
            if let Err(error) = file.stream(0).and_then(|mut stream| stream.write_all(&spaces)) {
                // On a full disk every try would leave one.
                let _ = self.register.remove_file(&name);
                return Err(error.into());
            }
            // Blocks are found now, and not when an entry is flushed.
            file.begin_writing_out(0, spaces.len() as u64);
            made.push(Spare { name, bytes: spaces.len() });
        }
        self.flush_slots()?;
        kept.spares = made;
        Ok(())
    }

    /// Gets ready for the next commits, where that is due. What fails here is done, or reported, by the next one.
    pub(crate) fn tidy(&self, ctx: &Ctx, head: &Entry, kept: &mut Kept) {
        if kept.tidied && !kept.spares.is_empty() {
            return;
        }
        let ready = if kept.spares.is_empty() { self.make_spares(ctx, kept) } else { self.flush_slots() };
        match ready {
            Ok(()) => self.trim(ctx, head, kept),
            Err(error) => {
                let fields = [("error".to_owned(), error.to_string())];
                ctx.log(Level::Warn, "no register entries could be made ready for the next commits", &fields);
            }
        }
    }

    /// Removes entries that nobody needs. Oldest first and never past a failure: that a slot is free means that all
    /// before it are. What fails here is tried again later. The slots were flushed since this run linked to one.
    pub(crate) fn trim(&self, ctx: &Ctx, head: &Entry, kept: &mut Kept) {
        kept.tidied = true;
        if let Err(error) = self.try_trim(ctx, head, kept) {
            ctx.log(
                Level::Warn,
                "old register entries could not be removed",
                &[("error".to_owned(), error.to_string())],
            );
        }
    }

    fn try_trim(&self, ctx: &Ctx, head: &Entry, kept: &Kept) -> Result<(), Error> {
        let unfinished = head.register.unfinished;
        let oldest_kept = head.register.slot.saturating_sub(KEPT).min(unfinished.unwrap_or(u64::MAX));
        let names = self.register.names()?;
        let mut old: Vec<u64> = names.iter().filter_map(|name| layout::slot_of(name)).collect();
        old.retain(|&slot| slot < oldest_kept);
        old.sort_unstable();
        for slot in old {
            self.register.remove_file(&layout::slot_name(slot))?;
        }
        for name in &names {
            // Only the newest entry can be unfinished, or what it names, so only their notes say something.
            if layout::slot_of_note(name).is_some_and(|slot| slot < head.register.slot && Some(slot) != unfinished) {
                self.register.remove_file(name)?;
            }
        }
        // What older runs wrote can no longer win a slot. What this run wrote has its slot, and that is durable.
        for name in names {
            let over = layout::run_of_new(&name).is_some_and(|run| {
                let spare = kept.spares.iter().any(|spare| spare.name == name);
                run.number < head.register.fence.number || (run == ctx.run && !spare)
            });
            if over {
                self.register.remove_file(&name)?;
            }
        }
        Ok(())
    }
}

/// The entry that a spare holds, if all of it is there. Of a write that a power cut interrupted, any sectors may be on the
/// disk, and the spaces that were there before in place of the others: what is left can be JSON, of another entry.
fn whole(bytes: &[u8]) -> Option<Entry> {
    let mut spaces = 0;
    for byte in bytes.trim_ascii_end() {
        spaces = if *byte == b' ' { spaces + 1 } else { 0 };
        // No name has so many.
        if spaces == SECTOR {
            return None;
        }
    }
    serde_json::from_slice(bytes).ok()
}

/// The slot after the newest entry.
pub(crate) fn next_slot(head: Option<&Entry>) -> Result<u64, Error> {
    let slot = head.map_or(Some(1), |head| head.register.slot.checked_add(1));
    slot.ok_or_else(|| Error::permanent("register-full", "the register has no slot left"))
}

pub(crate) fn contended() -> Error {
    Error::retryable("register-contended", "others kept moving the register; nothing was changed")
}

/// A staged file does not have the length with which it was prepared.
pub(crate) fn staged_file_damaged(short: &str, found: u64, prepared: u64) -> Error {
    Error::permanent(
        STAGED_FILE_DAMAGED,
        format!("`{short}` has {found} bytes, {prepared} were prepared: something else wrote to it; restore it"),
    )
}

fn parse(bytes: &[u8], slot: u64) -> Result<Entry, Error> {
    let place = format!("register entry {slot}");
    let entry = parse_any(bytes, &place)?;
    if entry.register.slot != slot {
        return Err(corrupt(&place, &format!("it says slot {}", entry.register.slot)));
    }
    Ok(entry)
}

fn parse_any(bytes: &[u8], place: &str) -> Result<Entry, Error> {
    let entry: Entry = serde_json::from_slice(bytes).map_err(|error| corrupt(place, &error.to_string()))?;
    check_format(&entry, place)?;
    Ok(entry)
}

fn check_format(entry: &Entry, place: &str) -> Result<(), Error> {
    let format = entry.format;
    if FORMATS.contains(&format) {
        return Ok(());
    }
    let message = format!("{place} has format {format}; this version reads 1 and 2: use the plugin that wrote it");
    Err(Error::permanent("register-format", message))
}

/// A damaged entry is never taken for "nothing there".
pub(crate) fn corrupt(place: &str, detail: &str) -> Error {
    Error::permanent("register-corrupt", format!("{place} cannot be read ({detail}); restore it from a backup"))
}
