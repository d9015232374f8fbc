//! Observe, fence, commit and reconcile: everything that goes by the register.

use std::collections::BTreeSet;

use tidegate_sdk::{Committable, Ctx, Error, Outcome, Part, Position, RunId};

use crate::body::{self, PartFiles};
use crate::entry::{CommittedPart, Content, Entry, Kind, PublishedFile, Remembered};
use crate::layout::{self, Layout};
use crate::register::{self, Appended, FILE_NAME_TAKEN, Kept, MAX_TRIES, staged_file_damaged};

/// Where the destination stands. What the newest entry decided counts, finished or not: it will be finished.
pub(crate) fn observe(ctx: &Ctx) -> Result<Position, Error> {
    let head = match Layout::open(ctx)? {
        Some(layout) => layout.head()?,
        None => None,
    };
    Ok(head.as_ref().map(position).unwrap_or_default())
}

fn position(head: &Entry) -> Position {
    Position {
        fence: Some(head.register.fence.clone()),
        last: head.parts.iter().map(|committed| committed.part.clone()).collect(),
        token: head.token().into_bytes(),
    }
}

/// Adds a fence entry after the one that was observed. Finishes what that one decided first; where files of it are not
/// there as they were staged, that is left to a person, who decides about that epoch and not about the whole directory.
pub(crate) fn fence(ctx: &Ctx, expected: &Position, kept: &mut Kept) -> Result<Position, Error> {
    let layout = Layout::create(ctx)?;
    let moved = || {
        Error::retryable("position-moved", "the register has moved since it was observed; observe and compare again")
    };
    for _ in 0..MAX_TRIES {
        let head = layout.newest(ctx, kept)?;
        if head.as_ref().is_some_and(|head| head.fences(&ctx.run)) {
            return Err(Error::fenced("fenced", "a newer run, or a foreign one, owns the output directory"));
        }
        if let Some(head) = &head {
            let repeated = head.kind == Kind::Fence
                && head.register.fence == ctx.run
                && head.register.previous.as_bytes() == expected.token;
            if repeated {
                layout.flush_slots()?;
                return Ok(position(head));
            }
        }
        let token = head.as_ref().map(Entry::token).unwrap_or_default();
        if token.as_bytes() != expected.token {
            return Err(moved());
        }
        let unfinished = layout.finish(ctx, head.as_ref(), kept)?;
        let entry = Entry::fence(ctx, head.as_ref(), register::next_slot(head.as_ref())?, unfinished);
        if layout.append(ctx, &entry, kept)? == Appended::Won {
            layout.trim(ctx, &entry, kept);
            return Ok(position(&entry));
        }
    }
    Err(register::contended())
}

/// Publishes one epoch, all parts or none.
pub(crate) fn commit(
    ctx: &Ctx,
    previous: &[Part],
    committables: &[Committable],
    kept: &mut Kept,
) -> Result<Vec<Outcome>, Error> {
    let Some(subject) = Subject::of(ctx, committables)? else { return Ok(Vec::new()) };
    let layout = match Layout::open(ctx)? {
        Some(layout) => layout,
        None => Layout::create(ctx)?,
    };
    for _ in 0..MAX_TRIES {
        let head = layout.newest(ctx, kept)?;
        match decide(ctx, &layout, head.as_ref(), previous, &subject)? {
            Decision::Answer(outcomes) => return Ok(outcomes),
            Decision::FinishHead(outcomes) => {
                if let Some(head) = &head {
                    layout.publish(ctx, &layout.decided(head)?, false, kept)?;
                }
                return Ok(outcomes);
            }
            Decision::Lost(outcomes) => {
                // A call under way may still have seen the missing file: an entry makes it look again, and fail.
                let unfinished = layout.finish(ctx, head.as_ref(), kept)?;
                let entry = Entry::fence(ctx, head.as_ref(), register::next_slot(head.as_ref())?, unfinished);
                if layout.append(ctx, &entry, kept)? == Appended::Won {
                    layout.trim(ctx, &entry, kept);
                    return Ok(outcomes);
                }
            }
            Decision::Append => {
                // Only the newest entry may be unfinished.
                if let Some(head) = &head {
                    layout.publish(ctx, head, false, kept)?;
                }
                let slot = register::next_slot(head.as_ref())?;
                let entry = Entry::epoch(ctx, head.as_ref(), slot, subject.content());
                if layout.append(ctx, &entry, kept)? == Appended::Won {
                    layout.publish(ctx, &entry, true, kept)?;
                    layout.tidy(ctx, &entry, kept);
                    return Ok(vec![Outcome::Committed; committables.len()]);
                }
            }
        }
    }
    Err(register::contended())
}

/// What became of an epoch; changes nothing. Committed means: readers can see it whole.
pub(crate) fn reconcile(ctx: &Ctx, committables: &[Committable]) -> Result<Vec<Outcome>, Error> {
    let Some(subject) = Subject::of(ctx, committables)? else { return Ok(Vec::new()) };
    let Some(layout) = Layout::open(ctx)? else { return Ok(subject.all(Outcome::Unknown)) };
    let head = layout.head()?;
    if let Some(head) = head.as_ref().filter(|head| head.is_of(&subject.run, subject.epoch)) {
        if !layout.is_published(ctx, head)? {
            // Decided; the same commit again makes it visible, unless somebody has to mend something first.
            return Ok(match layout.obstacle(&layout.decided(head)?)? {
                None => subject.compared(head, Outcome::NotCommitted),
                Some(error) => subject.compared(head, Outcome::Rejected(error)),
            });
        }
        return Ok(subject.compared(head, Outcome::AlreadyCommitted));
    }
    if let Some(entry) = layout.logged(&subject.log_name)? {
        return Ok(subject.compared(&entry, Outcome::AlreadyCommitted));
    }
    let remembered = subject.remembered(head.as_ref());
    let ask = |item: &Item<'_>| {
        Ok(match remembered {
            Remembered::NeverCommitted => Outcome::NotCommitted,
            // Staged, and not visible: no commit has got that far, and the same one still can.
            Remembered::Forgotten if look(&layout, item)?.iter().all(|found| matches!(found, Found::Staged)) => {
                Outcome::NotCommitted
            }
            Remembered::Forgotten | Remembered::Passed => Outcome::Unknown,
        })
    };
    subject.items.iter().map(ask).collect()
}

/// What is to be committed: parts of one epoch of one run.
struct Subject<'a> {
    run: RunId,
    epoch: u64,
    log_name: String,
    items: Vec<Item<'a>>,
}

struct Item<'a> {
    committable: &'a Committable,
    content: PartFiles,
}

impl Item<'_> {
    fn part(&self) -> &Part {
        &self.committable.part
    }
}

impl<'a> Subject<'a> {
    /// Checks everything that came from outside. `None`: nothing to do.
    fn of(ctx: &Ctx, committables: &'a [Committable]) -> Result<Option<Subject<'a>>, Error> {
        let Some(first) = committables.first() else { return Ok(None) };
        let (run, epoch) = (first.part.run.clone(), first.part.epoch);
        let mut seen = BTreeSet::new();
        let mut items = Vec::with_capacity(committables.len());
        for committable in committables {
            let part = &committable.part;
            layout::check_short(ctx, &part.short)?;
            if part.run != run || part.epoch != epoch {
                return Err(Error::permanent("mixed-epochs", "committables of more than one epoch in one call"));
            }
            let content = body::read(committable)?;
            let files_are_new = content.files.iter().all(|file| seen.insert(file.name.clone()));
            if !seen.insert(part.short.clone()) || !files_are_new {
                return Err(Error::permanent("same-part-twice", "two committables of one call name the same thing"));
            }
            items.push(Item { committable, content });
        }
        let log_name = layout::epoch_name(ctx, &run, epoch);
        Ok(Some(Subject { run, epoch, log_name, items }))
    }

    fn all(&self, outcome: Outcome) -> Vec<Outcome> {
        vec![outcome; self.items.len()]
    }

    /// An entry of this very epoch exists: which of our parts does it name?
    fn compared(&self, entry: &Entry, named: Outcome) -> Vec<Outcome> {
        let other = || {
            Outcome::Rejected(Error::permanent(
                "other-parts",
                format!("epoch {} of run {} was committed with other parts", self.epoch, self.run),
            ))
        };
        self.items.iter().map(|item| if entry.names(item.part()) { named.clone() } else { other() }).collect()
    }

    fn remembered(&self, head: Option<&Entry>) -> Remembered {
        head.map_or(Remembered::Forgotten, |head| head.remembers(&self.run, self.epoch))
    }

    fn content(&self) -> Content {
        let files = self.items.iter().flat_map(|item| &item.content.files);
        let published =
            |file: &body::PartFile| PublishedFile { name: file.name.clone(), rows: file.rows, bytes: file.bytes };
        let committed = |item: &Item<'_>| {
            let PartFiles { files, numbered } = &item.content;
            let file = if *numbered { None } else { files.first().map(|file| file.name.clone()) };
            let numbered = if *numbered { files.len() as u32 } else { 0 };
            CommittedPart { part: item.part().clone(), file, numbered }
        };
        Content {
            run: self.run.clone(),
            epoch: self.epoch,
            rows: self.items.iter().map(|item| item.committable.rows).fold(0, u64::saturating_add),
            files: files.map(published).collect(),
            parts: self.items.iter().map(committed).collect(),
        }
    }
}

/// What a commit has to do, given the register.
enum Decision {
    /// Nothing.
    Answer(Vec<Outcome>),
    /// The newest entry is this epoch: finish it.
    FinishHead(Vec<Outcome>),
    /// Nobody can commit it any more.
    Lost(Vec<Outcome>),
    /// Add the entry.
    Append,
}

fn decide(
    ctx: &Ctx,
    layout: &Layout,
    head: Option<&Entry>,
    previous: &[Part],
    subject: &Subject<'_>,
) -> Result<Decision, Error> {
    if head.is_some_and(|head| head.fences(&ctx.run)) {
        return Ok(Decision::Answer(subject.all(Outcome::Fenced)));
    }
    if let Some(head) = head.filter(|head| head.is_of(&subject.run, subject.epoch)) {
        return Ok(Decision::FinishHead(subject.compared(head, Outcome::AlreadyCommitted)));
    }
    if let Some(entry) = layout.logged(&subject.log_name)? {
        return Ok(Decision::Answer(subject.compared(&entry, Outcome::AlreadyCommitted)));
    }
    let remembered = subject.remembered(head);
    let mut found = Vec::new();
    for item in &subject.items {
        found.extend(look(layout, item)?);
    }
    match worst(&found, remembered) {
        None => {}
        Some(Outcome::Never) => return Ok(Decision::Lost(subject.all(Outcome::Never))),
        Some(outcome) => return Ok(Decision::Answer(subject.all(outcome))),
    }
    if remembered == Remembered::Passed {
        let message = format!("a later epoch of run {} is committed already", subject.run);
        return Ok(rejected(subject, "out-of-order", message));
    }
    if let Some(message) = mismatch(ctx, head, previous) {
        return Ok(rejected(subject, "position-mismatch", message));
    }
    Ok(Decision::Append)
}

fn rejected(subject: &Subject<'_>, code: &str, message: String) -> Decision {
    Decision::Answer(subject.all(Outcome::Rejected(Error::permanent(code, message))))
}

/// What is left of a file that no entry names.
enum Found {
    /// What was staged.
    Staged,
    /// Nothing.
    Missing,
    /// The published file, though the register that should name it was lost.
    Visible,
    /// Something else than what was staged, here or under the name to publish.
    Wrong(Error),
}

/// An epoch is committed with all its parts or not at all, so the worst of them speaks for all.
fn worst(found: &[Found], remembered: Remembered) -> Option<Outcome> {
    let refused = found.iter().find_map(|found| match found {
        Found::Wrong(error) => Some(Outcome::Rejected(error.clone())),
        _ => None,
    });
    let gone = || found.iter().any(|found| matches!(found, Found::Missing));
    let hidden = || found.iter().any(|found| matches!(found, Found::Visible));
    refused.or_else(|| match remembered {
        Remembered::NeverCommitted if gone() && !hidden() => Some(Outcome::Never),
        // A marker that is not there is no proof: it may have been removed together with the file.
        _ if gone() || hidden() => Some(Outcome::Unknown),
        _ => None,
    })
}

/// Looks for every file of a part.
fn look(layout: &Layout, item: &Item<'_>) -> Result<Vec<Found>, Error> {
    item.content.files.iter().map(|file| look_for(layout, file)).collect()
}

fn look_for(layout: &Layout, file: &body::PartFile) -> Result<Found, Error> {
    // No entry names the part, so a published file of its name says that an entry was lost.
    match layout.published(&file.name, file.bytes) {
        Ok(false) => {}
        Ok(true) => return Ok(Found::Visible),
        Err(error) if error.code == FILE_NAME_TAKEN => return Ok(Found::Wrong(error)),
        Err(error) => return Err(error),
    }
    Ok(match layout.staging.metadata(&file.staged)? {
        Some(found) if found.is_file && found.bytes == file.bytes => Found::Staged,
        Some(found) => Found::Wrong(staged_file_damaged(&file.staged, found.bytes, file.bytes)),
        None => Found::Missing,
    })
}

/// Whether the destination is somewhere else than the host believes. After a fence of this run the host has compared
/// for itself, and may have accepted a difference.
fn mismatch(ctx: &Ctx, head: Option<&Entry>, previous: &[Part]) -> Option<String> {
    let compared = head.is_some_and(|head| head.kind == Kind::Fence && head.register.fence == ctx.run);
    let agrees = previous.iter().any(|part| head.is_some_and(|head| head.is_of(&part.run, part.epoch)));
    if previous.is_empty() || compared || agrees {
        return None;
    }
    let expected = previous.iter().max_by_key(|part| part.epoch).map_or(0, |part| part.epoch);
    let there = head.map_or(0, |head| head.epoch);
    Some(format!(
        "the output directory stands at epoch {there}, the host expects epoch {expected}: it was changed or restored \
         behind the pipeline's back; start again, which compares both"
    ))
}
