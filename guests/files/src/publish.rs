//! Making visible what an entry of the register decided.
//!
//! All names are linked first, and then every directory is flushed, one flush behind the other: on a journaling file
//! system the first carries most of what the others ask for. Nothing hangs on that. The entry is durable before the
//! first link ([`crate::register`]), and whoever finds it finishes it, whichever of the links a power cut took.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_sdk::{Ctx, Error, Level, fs};

use crate::entry::{Entry, Kind, PublishedFile, StagedFile};
use crate::layout::{self, Layout};
use crate::register::{FILE_NAME_TAKEN, Kept, MAX_TRIES, STAGED_FILE_DAMAGED, corrupt, staged_file_damaged};

impl Layout {
    /// Makes visible, durably, what the newest entry decided. May be repeated, by anyone, from any point.
    ///
    /// `fresh`: this call has just added the entry.
    pub(crate) fn publish(&self, ctx: &Ctx, entry: &Entry, fresh: bool, kept: &mut Kept) -> Result<(), Error> {
        let slot = entry.register.slot;
        let (Kind::Epoch, Some(run)) = (entry.kind, &entry.run) else { return Ok(()) };
        if kept.published == Some(slot) {
            return Ok(());
        }
        let log_name = layout::epoch_name(ctx, run, entry.epoch);
        if fresh || !self.is_published(ctx, entry)? {
            if !fresh {
                ctx.log(Level::Info, &format!("finishing epoch {}, which was left half published", entry.epoch), &[]);
                // Others may have linked it, and an older version of this plugin leaves no spare.
                self.flush_slots()?;
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
        kept.published = Some(slot);
        Ok(())
    }

    /// Finishes what the newest entry decided, before another one is added. Answers with the slot of an epoch that nobody
    /// can make visible before a person has mended its files.
    pub(crate) fn finish(&self, ctx: &Ctx, head: Option<&Entry>, kept: &mut Kept) -> Result<Option<u64>, Error> {
        let Some(head) = head else { return Ok(None) };
        match self.publish(ctx, head, false, kept) {
            Ok(()) => Ok(head.register.unfinished),
            Err(error) if is_for_a_person(&error) => {
                let fields = [("error".to_owned(), error.to_string())];
                ctx.log(Level::Warn, &format!("epoch {} cannot be made visible", head.epoch), &fields);
                Ok(Some(head.register.slot))
            }
            Err(error) => Err(error),
        }
    }

    /// The entry that decided the newest epoch: the newest one, or the one that a fence left unfinished.
    pub(crate) fn decided(&self, head: &Entry) -> Result<Entry, Error> {
        match head.register.unfinished {
            Some(slot) => self.entry(slot),
            None => Ok(head.clone()),
        }
    }

    /// What stands in the way of making an entry's files visible, if a person has to mend it. Changes nothing.
    pub(crate) fn obstacle(&self, entry: &Entry) -> Result<Option<Error>, Error> {
        let look = || {
            for StagedFile { staged, published } in staged_files(entry)? {
                self.check_staged(&staged, published.bytes)?;
                let there = self.published(&published.name, published.bytes)?;
                if !there && self.staging.metadata(&staged)?.is_none() {
                    return Err(file_missing(entry, &staged, &published.name));
                }
            }
            Ok(())
        };
        match look() {
            Ok(()) => Ok(None),
            Err(error) if is_for_a_person(&error) => Ok(Some(error)),
            Err(error) => Err(error),
        }
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
        let folders: BTreeSet<&str> = by_folder.keys().flat_map(|folder| layout::folders_down_to(folder)).collect();
        for folder in folders.iter().rev() {
            self.out.open_dir(folder)?.sync()?;
        }
        if !by_folder.is_empty() {
            self.out.sync()?;
        }
        Ok(())
    }

    /// Links files into one folder. Answers `false` if others finished meanwhile.
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
            return Err(Linking::Failed(file_missing(entry, &file.staged, name)));
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
            // A fence is added only after the epoch before it was published, or says that it was not.
            _ => match entry.register.unfinished {
                Some(slot) => self.is_published(ctx, &self.entry(slot)?),
                None => Ok(true),
            },
        }
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

const FILE_MISSING: &str = "committed-file-missing";

fn file_missing(entry: &Entry, staged: &str, name: &str) -> Error {
    Error::permanent(
        FILE_MISSING,
        format!(
            "epoch {} is committed, but `{name}` is neither published nor staged (`{staged}`): somebody removed it before \
             the epoch was in `_epochs`; put the file back under one of the two names",
            entry.epoch
        ),
    )
}

/// Files of a decided epoch are not what they were: no call mends that.
fn is_for_a_person(error: &Error) -> bool {
    [FILE_MISSING, STAGED_FILE_DAMAGED, FILE_NAME_TAKEN].contains(&error.code.as_str())
}

fn folder_gone(error: fs::Error) -> Linking {
    if error.is_not_found() { Linking::FolderGone } else { error.into() }
}

fn staged_files(entry: &Entry) -> Result<Vec<StagedFile<'_>>, Error> {
    let place = format!("register entry {}", entry.register.slot);
    entry.staged_files().ok_or_else(|| corrupt(&place, "its parts and its files do not fit together"))
}
