//! An entry of the position register. An epoch's entry is at the same time its entry in the readers' log.

use serde::{Deserialize, Serialize};
use tidegate_sdk::{Ctx, Part, RunId};

use crate::layout;

/// Version of an entry of which every part has one file at most, and no file a folder. A reader refuses what it does not
/// know.
const FORMAT: u32 = 1;
/// Version of an entry with several files of a part, some in folders: an older plugin would publish none of them.
const FORMAT_NUMBERED: u32 = 2;
/// Versions of an entry that are read.
pub const FORMATS: [u32; 2] = [FORMAT, FORMAT_NUMBERED];

/// Of so many runs an entry remembers the newest committed epoch.
const REMEMBERED_RUNS: usize = 64;

/// What an entry does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Commits an epoch.
    Epoch,
    /// Makes older runs unable to commit, or makes calls under way look again. Carries the newest epoch along.
    Fence,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) format: u32,
    pub(crate) kind: Kind,
    /// The sink's name, for people.
    pub(crate) sink: String,
    /// The newest committed epoch; 0 before the first.
    pub(crate) epoch: u64,
    /// The run that wrote its rows.
    pub(crate) run: Option<RunId>,
    /// Its rows.
    pub(crate) rows: u64,
    /// Its files, those of each part one behind the other. All are in place when the entry is in the readers' log.
    pub(crate) files: Vec<PublishedFile>,
    /// Its parts.
    pub(crate) parts: Vec<CommittedPart>,
    /// The register's own.
    pub(crate) register: Place,
}

/// A published file, with its folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublishedFile {
    pub(crate) name: String,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

/// A committed part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommittedPart {
    #[serde(flatten)]
    pub(crate) part: Part,
    /// Its file, staged under the part's short id; none if it had no rows, or has files with numbers.
    pub(crate) file: Option<String>,
    /// Files staged under the part's short id and a number.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) numbered: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A file of an entry, and what it is staged as.
pub(crate) struct StagedFile<'a> {
    pub(crate) staged: String,
    pub(crate) published: &'a PublishedFile,
}

/// Where an entry stands in the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) slot: u64,
    /// The call that made it: no other call makes an entry with the same words.
    pub(crate) by: String,
    /// Token of the entry before; empty for the first.
    pub(crate) previous: String,
    /// The newest run that fenced or committed.
    pub(crate) fence: RunId,
    /// The newest committed epoch of each run, oldest run first.
    pub(crate) history: Vec<RunHistory>,
    /// Runs up to this number may be missing in `history`.
    pub(crate) forgotten: u64,
    /// Of a fence: the slot of the newest epoch's entry, if files of that epoch are not there as they were staged. Only
    /// its own commit, sent again, makes it visible; a commit of another epoch says that it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unfinished: Option<u64>,
}

/// How far a run's epochs are committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunHistory {
    pub(crate) run: RunId,
    pub(crate) epoch: u64,
}

/// What the history says of an epoch that no marker names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remembered {
    /// It was certainly never committed.
    NeverCommitted,
    /// A later or the same epoch of its run was committed.
    Passed,
    /// The run is too old to be remembered, or there is no register.
    Forgotten,
}

/// The names of an epoch's content, for building its entry.
pub(crate) struct Content {
    pub(crate) run: RunId,
    pub(crate) epoch: u64,
    pub(crate) rows: u64,
    pub(crate) files: Vec<PublishedFile>,
    pub(crate) parts: Vec<CommittedPart>,
}

impl Entry {
    /// The entry that commits `content` after `head`.
    pub(crate) fn epoch(ctx: &Ctx, head: Option<&Entry>, slot: u64, content: Content) -> Entry {
        let call = format!("epoch-{}-{}-{}", ctx.run, content.epoch, ctx.attempt);
        let mut register = Place::after(ctx, head, slot, call);
        register.remember(&content.run, content.epoch);
        let numbered = content.parts.iter().any(|part| part.numbered > 0);
        Entry {
            format: if numbered { FORMAT_NUMBERED } else { FORMAT },
            kind: Kind::Epoch,
            sink: ctx.sink.clone(),
            epoch: content.epoch,
            run: Some(content.run),
            rows: content.rows,
            files: content.files,
            parts: content.parts,
            register,
        }
    }

    /// The entry that fences after `head`, of which this is left unfinished.
    pub(crate) fn fence(ctx: &Ctx, head: Option<&Entry>, slot: u64, unfinished: Option<u64>) -> Entry {
        let mut register = Place::after(ctx, head, slot, format!("fence-{}-{slot}-{}", ctx.run, ctx.attempt));
        register.unfinished = unfinished;
        match head {
            Some(head) => Entry { kind: Kind::Fence, sink: ctx.sink.clone(), register, ..head.clone() },
            None => Entry {
                format: FORMAT,
                kind: Kind::Fence,
                sink: ctx.sink.clone(),
                epoch: 0,
                run: None,
                rows: 0,
                files: Vec::new(),
                parts: Vec::new(),
                register,
            },
        }
    }

    /// What a later call compares to see whether the register has moved.
    pub(crate) fn token(&self) -> String {
        format!("{}:{}", self.register.slot, self.register.by)
    }

    /// Whether the newest epoch is this one.
    pub(crate) fn is_of(&self, run: &RunId, epoch: u64) -> bool {
        self.run.as_ref() == Some(run) && self.epoch == epoch
    }

    /// Whether it names the part, by its exact id.
    pub(crate) fn names(&self, part: &Part) -> bool {
        self.parts.iter().any(|committed| committed.part == *part)
    }

    /// Every file with its staged name; `None` if parts and files do not fit together.
    pub(crate) fn staged_files(&self) -> Option<Vec<StagedFile<'_>>> {
        let mut files = self.files.iter();
        let mut found = Vec::with_capacity(self.files.len());
        for committed in &self.parts {
            let short = &committed.part.short;
            if let Some(name) = &committed.file {
                let published = files.next().filter(|file| file.name == *name)?;
                found.push(StagedFile { staged: short.clone(), published });
            }
            for number in 0..committed.numbered {
                found.push(StagedFile { staged: layout::staged_name(short, number), published: files.next()? });
            }
        }
        files.next().is_none().then_some(found)
    }

    /// Whether a newer run, or a foreign one, owns the destination.
    pub(crate) fn fences(&self, run: &RunId) -> bool {
        let fence = &self.register.fence;
        fence.number > run.number || (fence.number == run.number && fence.nonce != run.nonce)
    }

    /// What the history says of an epoch.
    pub(crate) fn remembers(&self, run: &RunId, epoch: u64) -> Remembered {
        match self.register.history.iter().find(|known| known.run == *run) {
            Some(known) if known.epoch < epoch => Remembered::NeverCommitted,
            Some(_) => Remembered::Passed,
            None if run.number > self.register.forgotten => Remembered::NeverCommitted,
            None => Remembered::Forgotten,
        }
    }
}

impl Place {
    fn after(ctx: &Ctx, head: Option<&Entry>, slot: u64, by: String) -> Place {
        Place {
            slot,
            by,
            previous: head.map(Entry::token).unwrap_or_default(),
            fence: ctx.run.clone(),
            history: head.map(|head| head.register.history.clone()).unwrap_or_default(),
            forgotten: head.map_or(0, |head| head.register.forgotten),
            unfinished: None,
        }
    }

    fn remember(&mut self, run: &RunId, epoch: u64) {
        match self.history.iter_mut().find(|known| known.run == *run) {
            Some(known) => known.epoch = known.epoch.max(epoch),
            None => self.history.push(RunHistory { run: run.clone(), epoch }),
        }
        self.history.sort_by(|a, b| a.run.cmp(&b.run));
        while self.history.len() > REMEMBERED_RUNS {
            let forgotten = self.history.remove(0);
            self.forgotten = self.forgotten.max(forgotten.run.number);
        }
    }
}
