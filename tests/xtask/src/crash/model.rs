//! What a disk holds after a power cut, as far as the flushes seen in a trace allow.
//!
//! The model, on purpose harsher than a journaling file system:
//! * **Contents.** A write or a change of length survives for certain once `fsync` or `fdatasync` on that file began
//!   after it had returned, and has returned itself. Any other one may have survived, be lost, be torn at a multiple of
//!   512 bytes, have kept any of its sectors of 512 bytes and not the others, or have left its length behind with zeros
//!   in place of its bytes; each by itself, in no order. A sector is written whole or not at all.
//! * **Names.** Creating, linking, renaming and removing a name survives for certain once `fsync` on the directory
//!   that holds it (for a rename: the directory of the new name) began after it and has returned. Flushing a file
//!   does *not* keep its name. Any other change of names may be lost or kept, in no order, except that a change is
//!   kept only together with the earlier changes of the same names. A rename within a directory is one change; one
//!   between two directories may leave both names behind until the old directory is flushed.
//! * A call that had begun and not returned counts as made and not flushed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::strace::Call;
use crate::random::Random;

/// Index of a file or directory of the model.
type Inode = usize;

/// When something happened: lines of the trace on which it began and ended.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
}

#[derive(Debug, Clone)]
enum Content {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

#[derive(Debug, Clone)]
enum Naming {
    Link { directory: Inode, name: String, inode: Inode },
    Unlink { directory: Inode, name: String },
    Rename { from: (Inode, String), to: (Inode, String), inode: Inode },
}

impl Naming {
    /// The names it changes.
    fn keys(&self) -> Vec<(Inode, &str)> {
        match self {
            Naming::Link { directory, name, .. } | Naming::Unlink { directory, name } => vec![(*directory, name)],
            Naming::Rename { from, to, .. } => vec![(from.0, &from.1), (to.0, &to.1)],
        }
    }

    /// The directory whose flush keeps it.
    fn kept_by(&self) -> Inode {
        match self {
            Naming::Link { directory, .. } | Naming::Unlink { directory, .. } => *directory,
            Naming::Rename { to, .. } => to.0,
        }
    }
}

#[derive(Debug, Clone)]
struct Node {
    /// What a file held at the start; nothing for a directory.
    file: Option<Vec<u8>>,
    contents: Vec<(Span, Content)>,
    flushes: Vec<Span>,
}

/// How changes that no flush covers are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// None survives.
    NothingUnflushed,
    /// All survive, as after SIGKILL.
    Everything,
    /// Names survive, contents do not: the file is there and short.
    NamesOnly,
    /// Names and lengths survive, contents are zeros.
    Zeroed,
    /// Contents survive, names do not.
    ContentsOnly,
    /// All survive, but the last write of each file is torn.
    Torn(u64),
    /// Names survive up to a point, as from a journal; contents at random.
    Journal(u64),
    /// Each by itself, from a seed.
    Random(u64),
}

/// A directory tree after a power cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// Path relative to the root → what is there. Parents come before children.
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// One name of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A directory.
    Directory,
    /// A file: its identity (names with the same one are hard links) and its bytes.
    File(usize, Vec<u8>),
}

impl Image {
    /// A number that differs when the images differ.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (path, entry) in &self.entries {
            path.hash(&mut hasher);
            if let Entry::File(_, bytes) = entry {
                bytes.hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Lays the image into an empty directory.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        let mut first: HashMap<usize, std::path::PathBuf> = HashMap::new();
        for (path, entry) in &self.entries {
            let path = root.join(path);
            match entry {
                Entry::Directory => std::fs::create_dir(&path)?,
                Entry::File(inode, bytes) => match first.get(inode) {
                    Some(other) => std::fs::hard_link(other, &path)?,
                    None => {
                        std::fs::write(&path, bytes)?;
                        first.insert(*inode, path);
                    }
                },
            }
        }
        Ok(())
    }

    /// Reads a directory tree as it is now.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let mut entries = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let path = entry?.path();
                let metadata = path.symlink_metadata()?;
                let name = path.strip_prefix(root)?.to_str().context("a name is not UTF-8")?.to_owned();
                if metadata.is_dir() {
                    entries.insert(name, Entry::Directory);
                    folders.push(path);
                } else if metadata.is_file() {
                    let inode = usize::try_from(metadata.ino())?;
                    entries.insert(name, Entry::File(inode, std::fs::read(&path)?));
                }
            }
        }
        Ok(Self { entries })
    }

    /// Names of what differs between two images, hard links aside.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let same = |a: Option<&Entry>, b: Option<&Entry>| match (a, b) {
            (Some(Entry::Directory), Some(Entry::Directory)) => true,
            (Some(Entry::File(_, a)), Some(Entry::File(_, b))) => a == b,
            _ => false,
        };
        let names: std::collections::BTreeSet<&String> = self.entries.keys().chain(other.entries.keys()).collect();
        names.into_iter().filter(|name| !same(self.entries.get(*name), other.entries.get(*name))).cloned().collect()
    }
}

/// An open file description.
#[derive(Debug, Clone, Copy)]
struct Open {
    inode: Inode,
    offset: u64,
    append: bool,
    /// Every write is flushed by itself (`O_SYNC`, `O_DSYNC`).
    sync: bool,
}

/// All that a trace did below one directory.
#[derive(Debug)]
pub(crate) struct Disk {
    root: String,
    nodes: Vec<Node>,
    /// The names as they are now: (directory, name) → inode.
    names: BTreeMap<(Inode, String), Inode>,
    /// The names at the start.
    initial: BTreeMap<(Inode, String), Inode>,
    namings: Vec<(Span, Naming)>,
    open: Vec<Open>,
    descriptors: HashMap<i64, usize>,
    /// How many flushes were seen.
    pub(crate) flushes: usize,
}

const ROOT: Inode = 0;
const SECTOR: u64 = 512;

impl Disk {
    /// A disk that holds `image` below `root`, all of it flushed.
    pub(crate) fn new(root: &str, image: &Image) -> Self {
        let directory = || Node { file: None, contents: Vec::new(), flushes: Vec::new() };
        let mut disk = Self {
            root: root.to_owned(),
            nodes: vec![directory()],
            names: BTreeMap::new(),
            initial: BTreeMap::new(),
            namings: Vec::new(),
            open: Vec::new(),
            descriptors: HashMap::new(),
            flushes: 0,
        };
        let mut links: HashMap<usize, Inode> = HashMap::new();
        for (path, entry) in &image.entries {
            let (parent, name) = match path.rsplit_once('/') {
                Some((parent, name)) => (disk.find(parent), name),
                None => (Some(ROOT), path.as_str()),
            };
            let Some(parent) = parent else { continue };
            let inode = match entry {
                Entry::Directory => disk.node(None),
                Entry::File(inode, bytes) => match links.get(inode) {
                    Some(known) => *known,
                    None => {
                        let new = disk.node(Some(bytes.clone()));
                        links.insert(*inode, new);
                        new
                    }
                },
            };
            disk.names.insert((parent, name.to_owned()), inode);
        }
        disk.initial = disk.names.clone();
        disk
    }

    fn node(&mut self, file: Option<Vec<u8>>) -> Inode {
        self.nodes.push(Node { file, contents: Vec::new(), flushes: Vec::new() });
        self.nodes.len() - 1
    }

    /// The inode of a path relative to the root.
    fn find(&self, path: &str) -> Option<Inode> {
        path.split('/')
            .filter(|part| !part.is_empty())
            .try_fold(ROOT, |at, part| self.names.get(&(at, part.to_owned())).copied())
    }

    /// Directory and name of an absolute path, if it lies below the root.
    fn place(&self, path: &str) -> Result<Option<(Inode, String)>> {
        let Some(inside) = path.strip_prefix(&self.root).filter(|rest| rest.starts_with('/')) else {
            return Ok(None);
        };
        let (parent, name) = inside.rsplit_once('/').context("a path below the root has a slash")?;
        let parent = self.find(parent).with_context(|| format!("the trace uses `{path}` whose folder is unknown"))?;
        Ok(Some((parent, name.to_owned())))
    }

    /// Takes in one call.
    pub(crate) fn apply(&mut self, call: &Call) -> Result<()> {
        let span = Span { start: call.start, end: call.end };
        match call.name.as_str() {
            "openat" | "openat2" => {
                let path = call.path(0, 1)?;
                self.opened(span, &path, call.arg(2)?, call.returned)?;
            }
            "open" | "creat" => {
                if let Some(path) = call.absolute(0)? {
                    let flags = if call.name == "creat" { "O_CREAT|O_TRUNC" } else { call.arg(1)? };
                    self.opened(span, &path, flags, call.returned)?;
                }
            }
            "close" => {
                self.descriptors.remove(&call.descriptor(0)?.0);
            }
            "dup" | "dup2" | "dup3" => self.duplicated(call.descriptor(0)?.0, call.returned),
            "fcntl" if call.arg(1)?.starts_with("F_DUPFD") => self.duplicated(call.descriptor(0)?.0, call.returned),
            "fcntl" => {}
            "write" => self.written(span, call, call.bytes(1)?, None)?,
            "writev" => self.written(span, call, call.vector(1)?, None)?,
            "pwrite64" => self.written(span, call, call.bytes(1)?, Some(call.number(3)?))?,
            "pwritev" | "pwritev2" => self.written(span, call, call.vector(1)?, Some(call.number(3)?))?,
            "lseek" => {
                if let Some(open) = self.description(call.descriptor(0)?.0) {
                    self.open[open].offset = u64::try_from(call.returned)?;
                }
            }
            "ftruncate" => self.resized(span, call, call.number(1)?, false)?,
            "fallocate" => self.resized(span, call, call.number(2)? + call.number(3)?, true)?,
            "fsync" | "fdatasync" => {
                if let Some(open) = self.description(call.descriptor(0)?.0) {
                    let inode = self.open[open].inode;
                    self.nodes[inode].flushes.push(span);
                    self.flushes += 1;
                }
            }
            "sync" | "syncfs" => self.nodes.iter_mut().for_each(|node| node.flushes.push(span)),
            "mkdir" => self.made(span, call.absolute(0)?)?,
            "mkdirat" => self.made(span, Some(call.path(0, 1)?))?,
            "rename" => self.renamed(span, call.absolute(0)?, call.absolute(1)?)?,
            "renameat" | "renameat2" => {
                ensure!(!call.args.get(4).is_some_and(|flags| flags.contains("EXCHANGE")), "an exchange of names");
                self.renamed(span, Some(call.path(0, 1)?), Some(call.path(2, 3)?))?;
            }
            "link" => self.linked(span, call.absolute(0)?, call.absolute(1)?)?,
            "linkat" => self.linked(span, Some(call.path(0, 1)?), Some(call.path(2, 3)?))?,
            "unlink" | "rmdir" => self.unlinked(span, call.absolute(0)?)?,
            "unlinkat" => self.unlinked(span, Some(call.path(0, 1)?))?,
            other => bail!("the model does not know `{other}`"),
        }
        Ok(())
    }

    fn description(&self, descriptor: i64) -> Option<usize> {
        self.descriptors.get(&descriptor).copied()
    }

    fn duplicated(&mut self, from: i64, to: i64) {
        match self.description(from) {
            Some(open) => self.descriptors.insert(to, open),
            None => self.descriptors.remove(&to),
        };
    }

    fn opened(&mut self, span: Span, path: &str, flags: &str, descriptor: i64) -> Result<()> {
        self.descriptors.remove(&descriptor);
        let inode = if path == self.root {
            ROOT
        } else {
            let Some((directory, name)) = self.place(path)? else { return Ok(()) };
            ensure!(!flags.contains("O_TMPFILE"), "files without a name are not modelled");
            match self.names.get(&(directory, name.clone())) {
                Some(&inode) => {
                    if flags.contains("O_TRUNC") {
                        self.nodes[inode].contents.push((span, Content::Length(0)));
                    }
                    inode
                }
                None => {
                    ensure!(flags.contains("O_CREAT"), "the trace opens `{path}`, which the model does not have");
                    let inode = self.node(Some(Vec::new()));
                    self.name(span, Naming::Link { directory, name, inode });
                    inode
                }
            }
        };
        let sync = flags.contains("O_SYNC") || flags.contains("O_DSYNC");
        self.open.push(Open { inode, offset: 0, append: flags.contains("O_APPEND"), sync });
        self.descriptors.insert(descriptor, self.open.len() - 1);
        Ok(())
    }

    fn written(&mut self, span: Span, call: &Call, mut bytes: Vec<u8>, at: Option<u64>) -> Result<()> {
        let Some(open) = self.description(call.descriptor(0)?.0) else { return Ok(()) };
        if span.end != usize::MAX {
            bytes.truncate(usize::try_from(call.returned)?);
        }
        let Open { inode, offset, append, sync } = self.open[open];
        let offset = match at {
            _ if append => self.length(inode),
            Some(at) => at,
            None => offset,
        };
        if at.is_none() {
            self.open[open].offset = offset + bytes.len() as u64;
        }
        self.nodes[inode].contents.push((span, Content::Write { offset, bytes }));
        if sync && span.end != usize::MAX {
            self.nodes[inode].flushes.push(Span { start: span.end + 1, end: span.end });
        }
        Ok(())
    }

    fn resized(&mut self, span: Span, call: &Call, length: u64, only_grow: bool) -> Result<()> {
        if let Some(open) = self.description(call.descriptor(0)?.0) {
            let inode = self.open[open].inode;
            let length = if only_grow { length.max(self.length(inode)) } else { length };
            self.nodes[inode].contents.push((span, Content::Length(length)));
        }
        Ok(())
    }

    /// The length of a file with all that happened so far.
    fn length(&self, inode: Inode) -> u64 {
        let node = &self.nodes[inode];
        let initial = node.file.as_ref().map_or(0, |bytes| bytes.len() as u64);
        node.contents.iter().fold(initial, |length, (_, content)| match content {
            Content::Write { offset, bytes } => length.max(offset + bytes.len() as u64),
            Content::Length(length) => *length,
        })
    }

    fn made(&mut self, span: Span, path: Option<String>) -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        if let Some((directory, name)) = self.place(&path)? {
            let inode = self.node(None);
            self.name(span, Naming::Link { directory, name, inode });
        }
        Ok(())
    }

    fn renamed(&mut self, span: Span, from: Option<String>, to: Option<String>) -> Result<()> {
        let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
        match (self.place(&from)?, self.place(&to)?) {
            (Some(from), Some(to)) => {
                let inode = *self.names.get(&from).with_context(|| format!("renamed and unknown: {from:?}"))?;
                if self.names.get(&to) != Some(&inode) {
                    self.name(span, Naming::Rename { from, to, inode });
                }
                Ok(())
            }
            (None, None) => Ok(()),
            _ => bail!("a rename across the edge of the modelled directory: `{from}` to `{to}`"),
        }
    }

    fn linked(&mut self, span: Span, from: Option<String>, to: Option<String>) -> Result<()> {
        let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
        match (self.place(&from)?, self.place(&to)?) {
            (Some(from), Some((directory, name))) => {
                let inode = *self.names.get(&from).with_context(|| format!("linked and unknown: {from:?}"))?;
                self.name(span, Naming::Link { directory, name, inode });
                Ok(())
            }
            (None, None) => Ok(()),
            _ => bail!("a link across the edge of the modelled directory: `{from}` to `{to}`"),
        }
    }

    fn unlinked(&mut self, span: Span, path: Option<String>) -> Result<()> {
        let Some(path) = path else { return Ok(()) };
        if let Some((directory, name)) = self.place(&path)? {
            self.name(span, Naming::Unlink { directory, name });
        }
        Ok(())
    }

    fn name(&mut self, span: Span, naming: Naming) {
        change(&mut self.names, &naming);
        self.namings.push((span, naming));
    }

    /// Every line of the trace on which something happened below the root.
    pub(crate) fn points(&self) -> Vec<usize> {
        let spans = self.namings.iter().map(|(span, _)| *span);
        let contents = self.nodes.iter().flat_map(|node| node.contents.iter().map(|(span, _)| *span));
        let flushes = self.nodes.iter().flat_map(|node| node.flushes.iter().copied());
        let mut points: Vec<usize> = spans
            .chain(contents)
            .chain(flushes)
            .flat_map(|span| [span.start, span.end])
            .filter(|point| *point != usize::MAX)
            .collect();
        points.sort_unstable();
        points.dedup();
        points
    }

    /// What the disk may hold when the power fails right after line `point`.
    pub(crate) fn image(&self, point: usize, fate: Fate) -> Image {
        let seed = match fate {
            Fate::Torn(seed) | Fate::Journal(seed) | Fate::Random(seed) => seed,
            _ => 0,
        };
        let mut random = Random::new(seed ^ (point as u64) << 20);
        let names = self.names_after(point, fate, &mut random);
        let mut entries = BTreeMap::new();
        let mut contents: HashMap<Inode, Vec<u8>> = HashMap::new();
        let mut folders = vec![(ROOT, String::new())];
        while let Some((folder, path)) = folders.pop() {
            let inside = names.range((folder, String::new())..(folder + 1, String::new()));
            for ((_, name), &inode) in inside {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                if self.nodes[inode].file.is_none() {
                    entries.insert(path.clone(), Entry::Directory);
                    folders.push((inode, path));
                } else {
                    let bytes = contents
                        .entry(inode)
                        .or_insert_with(|| self.content_after(inode, point, fate, &mut random))
                        .clone();
                    entries.insert(path, Entry::File(inode, bytes));
                }
            }
        }
        Image { entries }
    }

    fn names_after(&self, point: usize, fate: Fate, random: &mut Random) -> BTreeMap<(Inode, String), Inode> {
        let seen: Vec<&(Span, Naming)> = self.namings.iter().filter(|(span, _)| span.start <= point).collect();
        // The change before each one that touches the same name: kept only together.
        let mut newest: HashMap<(Inode, &str), usize> = HashMap::new();
        let mut needs: Vec<Vec<usize>> = Vec::with_capacity(seen.len());
        for (index, (_, naming)) in seen.iter().enumerate() {
            let keys = naming.keys();
            needs.push(keys.iter().filter_map(|key| newest.get(key).copied()).collect());
            keys.into_iter().for_each(|key| {
                newest.insert(key, index);
            });
        }
        let mut certain: HashSet<usize> = HashSet::new();
        for index in (0..seen.len()).rev() {
            let (span, naming) = seen[index];
            if certain.contains(&index) || self.flushed(naming.kept_by(), *span, point) {
                certain.insert(index);
                certain.extend(&needs[index]);
            }
        }
        let journal_end = random.below(seen.len() as u64 + 1) as usize;
        let mut kept = vec![false; seen.len()];
        let mut names = self.initial.clone();
        for (index, (_, naming)) in seen.iter().enumerate() {
            let wanted = match fate {
                Fate::NothingUnflushed | Fate::ContentsOnly => false,
                Fate::Everything | Fate::NamesOnly | Fate::Zeroed | Fate::Torn(_) => true,
                Fate::Journal(_) => index < journal_end,
                Fate::Random(_) => random.one_in(2),
            };
            kept[index] = certain.contains(&index) || (wanted && needs[index].iter().all(|need| kept[*need]));
            if kept[index] {
                change(&mut names, naming);
                self.both_names(naming, seen[index].0, point, fate, random, &mut names);
            }
        }
        names
    }

    /// A rename between two directories may be on the disk in the new one only: then the old name is still there.
    fn both_names(
        &self,
        naming: &Naming,
        span: Span,
        point: usize,
        fate: Fate,
        random: &mut Random,
        names: &mut BTreeMap<(Inode, String), Inode>,
    ) {
        let random_fate = matches!(fate, Fate::Random(_) | Fate::Journal(_));
        if let Naming::Rename { from, to, inode } = naming
            && random_fate
            && from.0 != to.0
            && !self.flushed(from.0, span, point)
            && random.one_in(3)
        {
            names.insert(from.clone(), *inode);
        }
    }

    fn flushed(&self, inode: Inode, span: Span, point: usize) -> bool {
        self.nodes[inode].flushes.iter().any(|flush| span.end < flush.start && flush.end <= point)
    }

    fn content_after(&self, inode: Inode, point: usize, fate: Fate, random: &mut Random) -> Vec<u8> {
        let node = &self.nodes[inode];
        let mut bytes = node.file.clone().unwrap_or_default();
        let seen: Vec<&(Span, Content)> = node.contents.iter().filter(|(span, _)| span.start <= point).collect();
        for (index, (span, content)) in seen.iter().enumerate() {
            if self.flushed(inode, *span, point) {
                put(&mut bytes, content, Survival::Whole);
                continue;
            }
            let survival = match fate {
                Fate::NothingUnflushed | Fate::NamesOnly => Survival::Lost,
                Fate::Everything | Fate::ContentsOnly => Survival::Whole,
                Fate::Zeroed => Survival::Zeros,
                Fate::Torn(_) if index + 1 == seen.len() => Survival::Torn(random.next()),
                Fate::Torn(_) => Survival::Whole,
                Fate::Journal(_) | Fate::Random(_) => match random.below(6) {
                    0 => Survival::Lost,
                    1 => Survival::Zeros,
                    2 => Survival::Torn(random.next()),
                    3 => Survival::Scattered(random.next()),
                    _ => Survival::Whole,
                },
            };
            put(&mut bytes, content, survival);
        }
        bytes
    }
}

/// What is left of one change of contents.
#[derive(Debug, Clone, Copy)]
enum Survival {
    Whole,
    Lost,
    /// The length, not the bytes.
    Zeros,
    /// Up to a multiple of 512 bytes; where exactly comes from the number.
    Torn(u64),
    /// Some sectors and not the others; which comes from the number.
    Scattered(u64),
}

fn put(file: &mut Vec<u8>, content: &Content, survival: Survival) {
    match (content, survival) {
        (_, Survival::Lost) => {}
        (Content::Length(length), _) => file.resize(usize::try_from(*length).unwrap_or(usize::MAX), 0),
        (Content::Write { offset, bytes }, survival) => {
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            let keep = match survival {
                Survival::Torn(choice) => torn(*offset, bytes.len() as u64, choice),
                _ => bytes.len(),
            };
            if file.len() < start + keep {
                file.resize(start + keep, 0);
            }
            match survival {
                Survival::Zeros => {}
                Survival::Scattered(choice) => scatter(file, start, bytes, choice),
                _ => file[start..start + keep].copy_from_slice(&bytes[..keep]),
            }
        }
    }
}

/// Writes some sectors of a write, each whole.
fn scatter(file: &mut [u8], start: usize, bytes: &[u8], choice: u64) {
    let mut random = Random::new(choice);
    let sector = SECTOR as usize;
    let mut at = 0;
    while at < bytes.len() {
        let end = ((start + at) / sector * sector + sector - start).min(bytes.len());
        if random.one_in(2) {
            file[start + at..start + end].copy_from_slice(&bytes[at..end]);
        }
        at = end;
    }
}

/// How many bytes of a write survive when it is torn at a multiple of the sector within the file.
fn torn(offset: u64, length: u64, choice: u64) -> usize {
    let first = offset / SECTOR + 1;
    let last = (offset + length).div_ceil(SECTOR);
    // Within one sector nothing tears: it is there or it is not.
    let whole_or_nothing = if choice.is_multiple_of(2) { offset } else { offset + length };
    let cut = if last > first { (first + choice % (last - first)) * SECTOR } else { whole_or_nothing };
    usize::try_from(cut.saturating_sub(offset).min(length)).unwrap_or(usize::MAX)
}

fn change(names: &mut BTreeMap<(Inode, String), Inode>, naming: &Naming) {
    match naming {
        Naming::Link { directory, name, inode } => {
            names.insert((*directory, name.clone()), *inode);
        }
        Naming::Unlink { directory, name } => {
            names.remove(&(*directory, name.clone()));
        }
        Naming::Rename { from, to, inode } => {
            names.remove(from);
            names.insert(to.clone(), *inode);
        }
    }
}

#[cfg(test)]
mod tests;
