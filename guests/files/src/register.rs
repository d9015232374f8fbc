//! The position register: finding its newest entry, adding one, publishing what an entry decided, trimming.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_sdk::{Ctx, Error, Level, fs};

use crate::entry::{Entry, FORMATS, Kind, PublishedFile, StagedFile};
use crate::layout::{self, Layout, NEW};

/// Entries kept behind the newest one.
const KEPT: u64 = 8;
/// An entry is never larger: some 100,000 parts.
const MAX_ENTRY_BYTES: u64 = 64 * 1024 * 1024;
/// How often a call looks again when others move the register.
pub(crate) const MAX_TRIES: u32 = 16;
/// Unfinished entries of the same call that may lie around.
const MAX_LEFTOVERS: u32 = 64;

/// Code of the error that something else has a published file's name.
pub(crate) const FILE_NAME_TAKEN: &str = "file-name-taken";

/// What came of adding an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It is the newest entry, and durable.
    Won,
    /// Others moved the register: look again.
    Lost,
}

impl Layout {
    /// The newest entry.
    pub(crate) fn head(&self) -> Result<Option<Entry>, Error> {
        for _ in 0..MAX_TRIES {
            let Some(slot) = self.slots()?.into_iter().max() else { return Ok(None) };
            match self.register.read(&layout::slot_name(slot), MAX_ENTRY_BYTES) {
                Ok(bytes) => return parse(&bytes, slot).map(Some),
                // Trimmed since the listing: it is not the newest any more.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(contended())
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

    /// Adds an entry as compare-and-set on the one before it: on `Won` it is the newest, and durable.
    pub(crate) fn append(&self, entry: &Entry) -> Result<Appended, Error> {
        let slot = entry.register.slot;
        let new = self.write_new(entry)?;
        match self.register.hard_link(&new, &self.register, &layout::slot_name(slot)) {
            Ok(()) => {}
            // Taken, or a newer run swept the unfinished entry away.
            Err(error) if error.is_exists() || error.is_not_found() => {
                self.register.remove_file(&new)?;
                return Ok(Appended::Lost);
            }
            Err(error) => {
                // Whether the link exists is not known; the next look at the register tells.
                return Err(Error::unknown("register-link", error.to_string()));
            }
        }
        // A caller that slept since it read the register may have taken a slot that was trimmed long ago. Such an
        // entry is never the newest, and those before it are gone; nobody ever looks at it, and the next trim takes it.
        let slots = self.slots()?;
        let newest = slots.iter().all(|&other| other <= slot);
        let follows = slot == 1 || slots.contains(&(slot - 1));
        if !newest || !follows {
            return Ok(Appended::Lost);
        }
        self.register.remove_file(&new)?;
        self.register.sync().map_err(|error| Error::unknown("register-flush", error.to_string()))?;
        Ok(Appended::Won)
    }

    /// Writes and flushes an entry under a name that nobody else uses.
    fn write_new(&self, entry: &Entry) -> Result<String, Error> {
        let json = serde_json::to_vec(entry).map_err(|error| Error::permanent("register-json", error.to_string()))?;
        // Nobody could read it again.
        if json.len() as u64 > MAX_ENTRY_BYTES {
            let message = format!("an epoch of {} files has an entry of more than 64 MiB", entry.files.len());
            return Err(Error::permanent("register-entry-too-large", message));
        }
        for number in 0..MAX_LEFTOVERS {
            let name = format!("{NEW}{}-{number}", entry.register.by);
            match self.register.create_new(&name) {
                Ok(file) => {
                    let written =
                        file.stream(0).and_then(|mut stream| stream.write_all(&json)).and_then(|()| file.sync());
                    if let Err(error) = written {
                        // Nothing names it yet; a leftover is swept later.
                        let _ = self.register.remove_file(&name);
                        return Err(error.into());
                    }
                    return Ok(name);
                }
                // Left by a crash, or in use by the same call made twice at once.
                Err(error) if error.is_exists() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::permanent("register-leftovers", "too many unfinished register entries of one call"))
    }

    /// Makes visible, durably, what the newest entry decided. May be repeated, by anyone, from any point.
    ///
    /// `decided`: the entry is known to be durable. `durable` notes the newest slot whose publication is.
    pub(crate) fn publish(
        &self,
        ctx: &Ctx,
        entry: &Entry,
        decided: bool,
        durable: &mut Option<u64>,
    ) -> Result<(), Error> {
        let slot = entry.register.slot;
        let (Kind::Epoch, Some(run)) = (entry.kind, &entry.run) else { return Ok(()) };
        if *durable == Some(slot) {
            return Ok(());
        }
        let log_name = layout::epoch_name(ctx, run, entry.epoch);
        if !self.is_published(ctx, entry)? {
            if !decided {
                ctx.log(Level::Info, &format!("finishing epoch {}, which was left half published", entry.epoch), &[]);
                self.register.sync()?;
            }
            self.link_files(entry, &log_name)?;
            match self.register.hard_link(&layout::slot_name(slot), &self.epochs, &log_name) {
                Ok(()) => {}
                Err(error) if error.is_exists() => {}
                // Trimmed: others have published it, and more after it.
                Err(error) if error.is_not_found() && self.epochs.metadata(&log_name)?.is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.epochs.sync()?;
        self.note_published(slot)?;
        for file in staged_files(entry)? {
            self.staging.remove_file(&file.staged)?;
        }
        *durable = Some(slot);
        Ok(())
    }

    /// Notes in the register, which is ours, that an epoch is published: files and the readers' log are the readers', who
    /// may clear both away, and without the note that would look like an epoch of which everything was lost. Never there
    /// before the publication is durable; if a power cut takes it, the readers' log still tells.
    fn note_published(&self, slot: u64) -> Result<(), Error> {
        match self.register.hard_link(&layout::slot_name(slot), &self.register, &layout::note_name(slot)) {
            Ok(()) => Ok(()),
            // Noted before, or trimmed: others have published it, and more after it.
            Err(error) if error.is_exists() || error.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the staged files their published names, durably; they keep the staged ones until then, so that at no time a
    /// power cut can leave a file without a name. Nothing more is to be done if others finished meanwhile.
    fn link_files(&self, entry: &Entry, log_name: &str) -> Result<(), Error> {
        let mut by_folder: BTreeMap<&str, Vec<StagedFile<'_>>> = BTreeMap::new();
        for file in staged_files(entry)? {
            by_folder.entry(layout::folder_of(&file.published.name)).or_default().push(file);
        }
        for (folder, files) in &by_folder {
            if !self.link_into(folder, files, entry, log_name)? {
                return Ok(());
            }
        }
        // Every folder on the way, from the innermost on, whoever made it: others may have made it without a flush.
        let above: BTreeSet<&str> = by_folder.keys().flat_map(|folder| layout::folders_down_to(folder)).collect();
        for folder in above.iter().rev().filter(|folder| !by_folder.contains_key(*folder)) {
            self.out.open_dir(folder)?.sync()?;
        }
        if !by_folder.is_empty() {
            self.out.sync()?;
        }
        Ok(())
    }

    /// Links files into one folder and flushes it. Answers `false` if others finished meanwhile.
    fn link_into(&self, folder: &str, files: &[StagedFile<'_>], entry: &Entry, log_name: &str) -> Result<bool, Error> {
        let mut tries = 0;
        loop {
            match self.try_link_into(folder, files, entry, log_name) {
                // Readers may remove a folder that is empty, at any time.
                Err(Linking::FolderGone) if tries < MAX_TRIES => tries += 1,
                Err(Linking::FolderGone) => {
                    let message = format!("somebody keeps removing the folder `{folder}`");
                    return Err(Error::retryable("folder-removed", message));
                }
                Err(Linking::Failed(error)) => return Err(error),
                Ok(all) => return Ok(all),
            }
        }
    }

    fn try_link_into(
        &self,
        folder: &str,
        files: &[StagedFile<'_>],
        entry: &Entry,
        log_name: &str,
    ) -> Result<bool, Linking> {
        let made;
        let target = if folder.is_empty() {
            &self.out
        } else {
            for folder in layout::folders_down_to(folder) {
                self.out.create_dir(folder).map_err(folder_gone)?;
            }
            made = self.out.open_dir(folder).map_err(folder_gone)?;
            &made
        };
        for file in files {
            let PublishedFile { name, bytes, .. } = file.published;
            self.check_staged(&file.staged, *bytes)?;
            let own = name.rsplit_once('/').map_or(name.as_str(), |(_, own)| own);
            match self.staging.hard_link(&file.staged, target, own) {
                Ok(()) => continue,
                Err(error) if error.is_exists() || error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
            if self.published(name, *bytes)? {
                continue;
            }
            if self.epochs.metadata(log_name)?.is_some() {
                return Ok(false);
            }
            if self.staging.metadata(&file.staged)?.is_some() {
                return Err(Linking::FolderGone);
            }
            return Err(Linking::Failed(Error::permanent(
                "committed-file-missing",
                format!(
                    "epoch {} is committed, but `{name}` is neither published nor staged (`{}`): somebody removed it \
                     before the epoch was in `_epochs`; put the file back under one of the two names",
                    entry.epoch, file.staged
                ),
            )));
        }
        // That of the output directory comes last.
        if !folder.is_empty() {
            target.sync()?;
        }
        Ok(true)
    }

    /// A staged file that somebody cut or extended since it was prepared is never published.
    fn check_staged(&self, staged: &str, bytes: u64) -> Result<(), Error> {
        match self.staging.metadata(staged)? {
            Some(found) if found.bytes != bytes => Err(staged_file_damaged(staged, found.bytes, bytes)),
            _ => Ok(()),
        }
    }

    /// Whether a published file is there; never takes another file for it.
    pub(crate) fn published(&self, name: &str, bytes: u64) -> Result<bool, Error> {
        match self.out.metadata(name)? {
            None => Ok(false),
            Some(found) if found.is_file && bytes == found.bytes => Ok(true),
            Some(found) => Err(Error::permanent(
                FILE_NAME_TAKEN,
                format!(
                    "`{name}` holds {} bytes where {bytes} were committed: something else wrote it; move it away",
                    found.bytes
                ),
            )),
        }
    }

    /// Whether the newest entry's publication is complete: readers see it, or have seen it and cleared it away.
    pub(crate) fn is_published(&self, ctx: &Ctx, entry: &Entry) -> Result<bool, Error> {
        match (entry.kind, &entry.run) {
            (Kind::Epoch, Some(run)) => {
                let logged = self.epochs.metadata(&layout::epoch_name(ctx, run, entry.epoch))?.is_some();
                Ok(logged || self.register.metadata(&layout::note_name(entry.register.slot))?.is_some())
            }
            // A fence is added only after the epoch before it was published.
            _ => Ok(true),
        }
    }

    /// Removes entries that nobody needs. Oldest first and never past a failure: that a slot is free means that all
    /// before it are. What fails here is tried again after the next entry.
    pub(crate) fn trim(&self, ctx: &Ctx, head: &Entry) {
        if let Err(error) = self.try_trim(head) {
            ctx.log(
                Level::Warn,
                "old register entries could not be removed",
                &[("error".to_owned(), error.to_string())],
            );
        }
    }

    fn try_trim(&self, head: &Entry) -> Result<(), Error> {
        let oldest_kept = head.register.slot.saturating_sub(KEPT);
        let names = self.register.names()?;
        let mut old: Vec<u64> = names.iter().filter_map(|name| layout::slot_of(name)).collect();
        old.retain(|&slot| slot < oldest_kept);
        old.sort_unstable();
        for slot in old {
            self.register.remove_file(&layout::slot_name(slot))?;
        }
        for name in &names {
            // Only the newest entry can be unfinished, so only its note says something.
            if layout::slot_of_note(name).is_some_and(|slot| slot < head.register.slot) {
                self.register.remove_file(name)?;
            }
        }
        // Unfinished entries of older runs can no longer win a slot. Those of this run may be in use.
        for name in names {
            let older = layout::run_of_new(&name).is_some_and(|run| run.number < head.register.fence.number);
            if older {
                self.register.remove_file(&name)?;
            }
        }
        Ok(())
    }
}

/// Why files of a folder were not linked.
enum Linking {
    /// Somebody removed the folder.
    FolderGone,
    Failed(Error),
}

impl From<Error> for Linking {
    fn from(error: Error) -> Linking {
        Linking::Failed(error)
    }
}

impl From<fs::Error> for Linking {
    fn from(error: fs::Error) -> Linking {
        Linking::Failed(error.into())
    }
}

fn folder_gone(error: fs::Error) -> Linking {
    if error.is_not_found() { Linking::FolderGone } else { error.into() }
}

fn staged_files(entry: &Entry) -> Result<Vec<StagedFile<'_>>, Error> {
    let place = format!("register entry {}", entry.register.slot);
    entry.staged_files().ok_or_else(|| corrupt(&place, "its parts and its files do not fit together"))
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
        "staged-file-damaged",
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
    if !FORMATS.contains(&entry.format) {
        return Err(Error::permanent(
            "register-format",
            format!("{place} has format {}; this version reads 1 and 2: use the plugin that wrote it", entry.format),
        ));
    }
    Ok(entry)
}

/// A damaged entry is never taken for "nothing there".
fn corrupt(place: &str, detail: &str) -> Error {
    Error::permanent("register-corrupt", format!("{place} cannot be read ({detail}); restore it from a backup"))
}
