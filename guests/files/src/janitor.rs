//! Abandon, release and listing: what happens to staged files that are not committed.

use std::collections::BTreeMap;

use tidegate_sdk::{Ctx, Error, External, Orphan, OrphanPage, Outcome, Unsealed};

use crate::entry::Entry;
use crate::layout::{self, Layout};
use crate::writer::STAGED_FILE;

/// Orphans per page.
const PAGE: usize = 256;

/// Removes staged files of parts that were never sealed. Refuses what the register or the readers' log names.
pub(crate) fn abandon(ctx: &Ctx, parts: &[Unsealed]) -> Result<Vec<Outcome>, Error> {
    let Some(layout) = Layout::open(ctx)? else { return Ok(vec![Outcome::AlreadyCommitted; parts.len()]) };
    let head = layout.head()?;
    if head.as_ref().is_some_and(|head| head.fences(&ctx.run)) {
        return Ok(vec![Outcome::Fenced; parts.len()]);
    }
    let staged = Staged::list(&layout)?;
    let mut outcomes = Vec::with_capacity(parts.len());
    for unsealed in parts {
        outcomes.push(abandon_one(ctx, &layout, &staged, head.as_ref(), unsealed)?);
    }
    flush_removals(&layout, &outcomes)?;
    Ok(outcomes)
}

fn abandon_one(
    ctx: &Ctx,
    layout: &Layout,
    staged: &Staged,
    head: Option<&Entry>,
    unsealed: &Unsealed,
) -> Result<Outcome, Error> {
    let part = &unsealed.part;
    if let Err(error) = layout::check_short(ctx, &part.short) {
        return Ok(Outcome::Rejected(error));
    }
    let logged = layout.logged(&layout::epoch_name(ctx, &part.run, part.epoch))?;
    let named = head.into_iter().chain(&logged).any(|entry| entry.names(part));
    if named {
        // A power cut may bring back the staged name of a published file; nobody else would remove it again.
        if logged.is_some() {
            staged.remove(layout, &part.short)?;
        }
        return Ok(Outcome::Rejected(Error::permanent(
            "committed",
            format!("`{}` is committed and cannot be given back", part.short),
        )));
    }
    let removed = staged.remove(layout, &part.short)?;
    Ok(if removed { Outcome::Committed } else { Outcome::AlreadyCommitted })
}

/// Removes staged files that no retained checkpoint needs. Of a committed part nothing is left to remove.
pub(crate) fn release(ctx: &Ctx, resources: &[External]) -> Result<Vec<Outcome>, Error> {
    let Some(layout) = Layout::open(ctx)? else { return Ok(vec![Outcome::AlreadyCommitted; resources.len()]) };
    let head = layout.head()?;
    if head.as_ref().is_some_and(|head| head.fences(&ctx.run)) {
        return Ok(vec![Outcome::Fenced; resources.len()]);
    }
    let unfinished = match &head {
        Some(head) if !layout.is_published(ctx, head)? => Some(head),
        _ => None,
    };
    let staged = Staged::list(&layout)?;
    let mut outcomes = Vec::with_capacity(resources.len());
    for resource in resources {
        outcomes.push(release_one(ctx, &layout, &staged, unfinished, resource)?);
    }
    flush_removals(&layout, &outcomes)?;
    Ok(outcomes)
}

fn release_one(
    ctx: &Ctx,
    layout: &Layout,
    staged: &Staged,
    unfinished: Option<&Entry>,
    resource: &External,
) -> Result<Outcome, Error> {
    if resource.kind != STAGED_FILE {
        return Ok(Outcome::Unsupported);
    }
    if let Err(error) = layout::check_short(ctx, &resource.name) {
        return Ok(Outcome::Rejected(error));
    }
    let needed = unfinished.is_some_and(|head| head.parts.iter().any(|known| known.part.short == resource.name));
    if needed {
        return Ok(Outcome::Rejected(Error::permanent(
            "committed",
            format!("`{}` is committed and not yet published; commit again first", resource.name),
        )));
    }
    let removed = staged.remove(layout, &resource.name)?;
    Ok(if removed { Outcome::Committed } else { Outcome::AlreadyCommitted })
}

/// "Gone" is said only when a power cut cannot bring it back.
fn flush_removals(layout: &Layout, outcomes: &[Outcome]) -> Result<(), Error> {
    if outcomes.contains(&Outcome::Committed) {
        layout.staging.sync()?;
    }
    Ok(())
}

/// What is staged: the files of each part, by its short id.
struct Staged(BTreeMap<String, Vec<String>>);

impl Staged {
    fn list(layout: &Layout) -> Result<Staged, Error> {
        let mut staged: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in layout.staging.names()? {
            staged.entry(layout::short_of(&name).to_owned()).or_default().push(name);
        }
        Ok(Staged(staged))
    }

    /// Removes all files of a part; answers whether there were any.
    fn remove(&self, layout: &Layout, short: &str) -> Result<bool, Error> {
        let mut removed = false;
        for name in self.0.get(short).into_iter().flatten() {
            removed |= layout.staging.remove_file(name)?;
        }
        Ok(removed)
    }
}

/// Parts of which files are staged, by prefix, in the order of their short ids. A page starts behind the one given.
pub(crate) fn list_orphans(ctx: &Ctx, prefix: &str, page: Option<&str>) -> Result<OrphanPage, Error> {
    let Some(layout) = Layout::open(ctx)? else { return Ok(OrphanPage::default()) };
    let mut staged = Staged::list(&layout)?.0;
    staged.retain(|short, _| short.starts_with(prefix) && page.is_none_or(|page| short.as_str() > page));
    let next = if staged.len() > PAGE { staged.keys().nth(PAGE - 1).cloned() } else { None };
    let mut orphans = Vec::with_capacity(staged.len().min(PAGE));
    for (short, names) in staged.into_iter().take(PAGE) {
        let mut bytes = None;
        for name in names {
            if let Some(found) = layout.staging.metadata(&name)? {
                bytes = Some(bytes.unwrap_or(0u64).saturating_add(found.bytes));
            }
        }
        // Gone since the listing: no orphan.
        if bytes.is_none() {
            continue;
        }
        let resource = External { kind: STAGED_FILE.to_owned(), name: short.clone(), expires_at: None };
        orphans.push(Orphan { short, resource, bytes });
    }
    Ok(OrphanPage { orphans, next })
}
