//! Sorted runs of pages: putting aside, merging, reading several as one.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use super::page::{Page, entry_bytes};

/// A layer has about so many pages, whatever its size, so that the seal that names them stays small …
const PAGES: usize = 32;
/// … as far as they have at least so many bytes …
const PAGE_SMALL: usize = 64 << 10;
/// … and at most so many.
const PAGE_LARGE: usize = 4 << 20;

/// Pages in order, without overlap. Never changed, only replaced.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Layer {
    pages: Arc<[Arc<Page>]>,
}

impl Layer {
    pub(super) fn new(pages: Vec<Arc<Page>>) -> Self {
        Self { pages: pages.into() }
    }

    pub(super) fn pages(&self) -> impl Iterator<Item = &Page> {
        self.pages.iter().map(|page| &**page)
    }

    pub(super) fn shared(&self) -> impl Iterator<Item = &Arc<Page>> {
        self.pages.iter()
    }

    pub(super) fn unload(&mut self) {
        if self.pages().any(Page::is_loaded) {
            self.replace(|page| page.is_loaded().then(|| Arc::new(Page::named(page.name().clone()))));
        }
    }

    /// Puts other pages with the same names in place of those for which there is one.
    pub(super) fn replace(&mut self, other: impl Fn(&Page) -> Option<Arc<Page>>) {
        let replaced = self.pages.iter().map(|page| other(page).unwrap_or_else(|| Arc::clone(page)));
        self.pages = replaced.collect();
    }

    fn bytes(&self) -> usize {
        let bytes = self.pages.iter().fold(0u64, |sum, page| sum.saturating_add(page.name().bytes));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn is_loaded(&self) -> bool {
        self.pages.iter().all(|page| page.is_loaded())
    }

    pub(super) fn get(&self, partition: &str) -> Option<&str> {
        let behind = self.pages.partition_point(|page| page.entry(0).is_some_and(|(first, _)| first <= partition));
        self.pages.get(behind.checked_sub(1)?)?.get(partition)
    }

    fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pages.iter().flat_map(|page| page.entries())
    }
}

/// Makes a layer of `recent` and merges from the newest end while two layers are of like size. So each position is
/// written again about once for each doubling, and there are few layers. Layers that were not read are left alone.
pub(super) fn put_aside(layers: &mut Vec<Layer>, recent: &BTreeMap<String, String>) {
    let mut cutter = Cutter::new(recent.iter().map(|(name, at)| entry_bytes(name, at)).sum());
    recent.iter().for_each(|(partition, position)| cutter.add(partition, position));
    layers.push(Layer::new(cutter.finish()));
    while let [.., older, newer] = layers.as_slice() {
        // The newer one was made just now: its pages are there.
        if older.bytes() >= newer.bytes().saturating_mul(2) || !older.is_loaded() {
            return;
        }
        let merged = merge(older, newer, layers.len() == 2);
        layers.truncate(layers.len() - 2);
        if !merged.pages.is_empty() {
            layers.push(merged);
        }
    }
}

/// Both as one. Pages of `older` that nothing in `newer` falls into stay as they are. Under the oldest layer there is
/// nothing that an empty position could hide.
fn merge(older: &Layer, newer: &Layer, oldest: bool) -> Layer {
    let mut cutter = Cutter { drops_empty: oldest, ..Cutter::new(older.bytes().saturating_add(newer.bytes())) };
    let mut moved = newer.entries().peekable();
    for (at, page) in older.pages.iter().enumerate() {
        let end = older.pages.get(at + 1).and_then(|next| next.entry(0)).map(|(first, _)| first);
        let within = |partition: &str| end.is_none_or(|end| partition < end);
        let untouched = moved.peek().is_none_or(|(partition, _)| !within(partition));
        if untouched && cutter.keeps(page) {
            cutter.keep(Arc::clone(page));
            continue;
        }
        for (partition, position) in page.entries() {
            while let Some((earlier, at)) = moved.next_if(|(name, _)| *name < partition) {
                cutter.add(earlier, at);
            }
            match moved.next_if(|(name, _)| *name == partition) {
                Some((_, newer)) => cutter.add(partition, newer),
                None => cutter.add(partition, position),
            }
        }
        while let Some((later, at)) = moved.next_if(|(name, _)| within(name)) {
            cutter.add(later, at);
        }
    }
    moved.for_each(|(partition, position)| cutter.add(partition, position));
    Layer::new(cutter.finish())
}

/// Cuts sorted entries into pages of about the same size.
struct Cutter<'a> {
    target: usize,
    pages: Vec<Arc<Page>>,
    entries: Vec<(&'a str, &'a str)>,
    bytes: usize,
    drops_empty: bool,
}

impl<'a> Cutter<'a> {
    fn new(total: usize) -> Self {
        let target = (total / PAGES).clamp(PAGE_SMALL, PAGE_LARGE);
        Self { target, pages: Vec::new(), entries: Vec::new(), bytes: 0, drops_empty: false }
    }

    fn add(&mut self, partition: &'a str, position: &'a str) {
        if self.drops_empty && position.is_empty() {
            return;
        }
        let bytes = entry_bytes(partition, position);
        if self.bytes + bytes > self.target && !self.entries.is_empty() {
            self.end_page();
        }
        self.entries.push((partition, position));
        self.bytes += bytes;
    }

    /// Pages that have become small for the layer are put together with others.
    fn keeps(&self, page: &Page) -> bool {
        page.name().bytes >= self.target as u64 / 4
    }

    fn keep(&mut self, page: Arc<Page>) {
        self.end_page();
        self.pages.push(page);
    }

    fn end_page(&mut self) {
        if !self.entries.is_empty() {
            self.pages.push(Arc::new(Page::of(&self.entries)));
            self.entries.clear();
            self.bytes = 0;
        }
    }

    fn finish(mut self) -> Vec<Arc<Page>> {
        self.end_page();
        self.pages
    }
}

type Input<'a> = Box<dyn Iterator<Item = (&'a str, &'a str)> + 'a>;

/// All layers and what is newer as one, sorted, each partition once.
pub(super) fn merged<'a>(
    layers: &'a [Layer],
    recent: impl Iterator<Item = (&'a str, &'a str)> + 'a,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    // Newest first: of several entries of one partition the first one counts.
    let newest: Input<'a> = Box::new(recent);
    let older = layers.iter().rev().map(|layer| -> Input<'a> { Box::new(layer.entries()) });
    let mut inputs: Vec<Peekable<Input<'a>>> = std::iter::once(newest).chain(older).map(Iterator::peekable).collect();
    std::iter::from_fn(move || {
        let next = inputs.iter_mut().filter_map(|input| input.peek().map(|(partition, _)| *partition)).min()?;
        let mut found = None;
        for input in &mut inputs {
            let entry = input.next_if(|(partition, _)| *partition == next);
            found = found.or(entry);
        }
        found
    })
}
