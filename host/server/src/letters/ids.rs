//! Which letters were sent before: a sorted file with a digest of each one's id.
//!
//! ```text
//! "tidegate letters"   16 bytes
//! digests              16 bytes each, rising
//! SHA-256              of everything before, the first 16 bytes
//! ```
//! The file is written anew for every replay that finds something; memory is bounded however many letters there are.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Stands for an id.
pub(super) type Key = [u8; KEY];

const KEY: usize = 16;
const MAGIC: &Key = b"tidegate letters";
/// Keys per entry of the index in memory.
const BLOCK: u64 = 256;
/// New keys that are held in memory before they go to a file.
const MOST_FRESH: usize = 1 << 20;

/// The key of a text of one kind.
pub(super) fn key(kind: &str, parts: &[&[u8]]) -> Key {
    let mut digest = Sha256::new_with_prefix(kind);
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    short(digest)
}

fn short(digest: Sha256) -> Key {
    let digest = digest.finalize();
    let mut key = [0; KEY];
    key.copy_from_slice(&digest[..KEY]);
    key
}

/// Why the keys cannot be used.
#[derive(Debug)]
pub(super) enum IdsError {
    /// Reading or writing failed.
    Io(PathBuf, io::Error),
    /// This file is not as it was written: in which way.
    Damaged(PathBuf, String),
}

type Result<T> = std::result::Result<T, IdsError>;

/// All keys: those of earlier replays, and what this one adds.
pub(super) struct Ids {
    /// Where unfinished files go.
    dir: PathBuf,
    sorted: Vec<Sorted>,
    fresh: BTreeSet<Key>,
    most_fresh: usize,
}

impl Ids {
    /// The keys in `before`, if any. Reads it to the end, and so knows that it is whole.
    pub(super) fn open(before: Option<&Path>, dir: &Path) -> Result<Self> {
        let sorted = before.map(Sorted::open).transpose()?.into_iter().collect();
        Ok(Self { dir: dir.to_owned(), sorted, fresh: BTreeSet::new(), most_fresh: MOST_FRESH })
    }

    pub(super) fn contains(&self, key: &Key) -> Result<bool> {
        if self.fresh.contains(key) {
            return Ok(true);
        }
        for sorted in &self.sorted {
            if sorted.contains(key)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds a key; nothing happens if it is there.
    pub(super) fn insert(&mut self, key: Key) -> Result<()> {
        if self.contains(&key)? {
            return Ok(());
        }
        self.fresh.insert(key);
        if self.fresh.len() >= self.most_fresh {
            let path = self.dir.join(format!("ids.{}", self.sorted.len()));
            let fresh = std::mem::take(&mut self.fresh);
            let mut writer = Writer::create(&path)?;
            fresh.into_iter().try_for_each(|key| writer.push(key))?;
            writer.finish()?;
            self.sorted.push(Sorted::open(&path)?);
        }
        Ok(())
    }

    /// Writes all keys into one new file, durably, and removes the unfinished ones.
    pub(super) fn finish(self, path: &Path) -> Result<()> {
        let mut writer = Writer::create(path)?;
        let mut inputs = self.sorted.iter().map(Sorted::keys).collect::<Result<Vec<_>>>()?;
        let mut heads = inputs.iter_mut().map(Keys::next).collect::<Result<Vec<_>>>()?;
        let mut fresh = self.fresh.into_iter().peekable();
        // No key is in two inputs.
        while let Some(least) = heads.iter().flatten().chain(fresh.peek()).min().copied() {
            writer.push(least)?;
            match heads.iter().position(|head| *head == Some(least)) {
                Some(at) => heads[at] = inputs[at].next()?,
                None => drop(fresh.next()),
            }
        }
        writer.finish()?;
        for unfinished in self.sorted.iter().filter(|sorted| sorted.path.starts_with(&self.dir)) {
            std::fs::remove_file(&unfinished.path).map_err(|error| IdsError::Io(unfinished.path.clone(), error))?;
        }
        Ok(())
    }
}

/// A file of keys that was found to be whole.
struct Sorted {
    path: PathBuf,
    file: File,
    count: u64,
    /// Every [`BLOCK`]th key.
    index: Vec<Key>,
}

impl Sorted {
    fn open(path: &Path) -> Result<Self> {
        let io = |error| IdsError::Io(path.to_owned(), error);
        let damaged = |why: String| IdsError::Damaged(path.to_owned(), why);
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(damaged("is missing".to_owned())),
            file => file.map_err(io)?,
        };
        let length = file.metadata().map_err(io)?.len();
        let keys = (length / KEY as u64).checked_sub(2).filter(|_| length.is_multiple_of(KEY as u64));
        let count = keys
            .ok_or_else(|| damaged(format!("has {length} bytes, expected a multiple of {KEY}, from {} on", 2 * KEY)))?;
        let mut input = BufReader::with_capacity(1 << 16, &file);
        let mut next = || -> Result<Key> {
            let mut key = [0; KEY];
            input.read_exact(&mut key).map(|()| key).map_err(io)
        };
        let magic = next()?;
        if magic != *MAGIC {
            let expected = String::from_utf8_lossy(MAGIC);
            return Err(damaged(format!(
                "does not begin with `{expected}`: it is no such file, or of a later version"
            )));
        }
        let mut digest = Sha256::new_with_prefix(magic);
        let (mut index, mut last) = (Vec::new(), None);
        for at in 0..count {
            let key = next()?;
            digest.update(key);
            if last >= Some(key) {
                return Err(damaged(format!("is damaged at byte {}: its entries do not rise", (at + 1) * KEY as u64)));
            }
            last = Some(key);
            if at % BLOCK == 0 {
                index.push(key);
            }
        }
        if next()? != short(digest) {
            let end = length - KEY as u64;
            return Err(damaged(format!(
                "is damaged: the checksum at byte {end} is not that of what stands before it"
            )));
        }
        Ok(Self { path: path.to_owned(), file, count, index })
    }

    fn contains(&self, key: &Key) -> Result<bool> {
        let after = self.index.partition_point(|first| first <= key) as u64;
        let Some(block) = after.checked_sub(1) else { return Ok(false) };
        let keys = BLOCK.min(self.count - block * BLOCK) as usize;
        let mut bytes = [0; BLOCK as usize * KEY];
        let bytes = &mut bytes[..keys * KEY];
        let read = self.file.read_exact_at(bytes, (1 + block * BLOCK) * KEY as u64);
        read.map_err(|error| IdsError::Io(self.path.clone(), error))?;
        let (keys, _) = bytes.as_chunks::<KEY>();
        Ok(keys.binary_search(key).is_ok())
    }

    fn keys(&self) -> Result<Keys<'_>> {
        let file = File::open(&self.path).map_err(|error| IdsError::Io(self.path.clone(), error))?;
        let mut keys = Keys { path: &self.path, input: BufReader::with_capacity(1 << 16, file), left: self.count + 1 };
        keys.next()?; // the first 16 bytes are no key
        Ok(keys)
    }
}

struct Keys<'a> {
    path: &'a Path,
    input: BufReader<File>,
    left: u64,
}

impl Keys<'_> {
    fn next(&mut self) -> Result<Option<Key>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let mut key = [0; KEY];
        self.input.read_exact(&mut key).map_err(|error| IdsError::Io(self.path.to_owned(), error))?;
        Ok(Some(key))
    }
}

struct Writer {
    path: PathBuf,
    out: BufWriter<File>,
    digest: Sha256,
}

impl Writer {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| IdsError::Io(path.to_owned(), error))?;
        let mut writer = Self { path: path.to_owned(), out: BufWriter::new(file), digest: Sha256::new() };
        writer.push(*MAGIC)?;
        Ok(writer)
    }

    fn push(&mut self, key: Key) -> Result<()> {
        self.digest.update(key);
        self.out.write_all(&key).map_err(|error| IdsError::Io(self.path.clone(), error))
    }

    fn finish(mut self) -> Result<()> {
        let digest = short(self.digest);
        let written = self.out.write_all(&digest).and_then(|()| {
            let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()
        });
        written.map_err(|error| IdsError::Io(self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(n: u32) -> Key {
        key("n", &[&n.to_be_bytes()])
    }

    #[test]
    fn keys_are_found_again_whatever_was_held_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("unfinished");
        std::fs::create_dir(&dir).expect("a folder");
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let mut ids = Ids { most_fresh: 100, ..Ids::open(None, &dir).expect("nothing yet") };
        (0..1_000).for_each(|n| ids.insert(number(n % 950)).expect("it is added"));
        ids.finish(&first).expect("it is written");
        let mut ids = Ids { most_fresh: 300, ..Ids::open(Some(&first), &dir).expect("whole") };
        (900..2_000).for_each(|n| ids.insert(number(n)).expect("it is added"));
        assert!(ids.contains(&number(1_999)).expect("readable"));
        ids.finish(&second).expect("it is written");
        assert_eq!(std::fs::metadata(&second).expect("it is there").len(), 2_002 * 16, "each key once");
        assert_eq!(std::fs::read_dir(&dir).expect("it is there").count(), 0, "nothing is left over");
        let ids = Ids::open(Some(&second), &dir).expect("whole");
        assert!((0..2_000).all(|n| ids.contains(&number(n)).expect("readable")));
        assert!((2_000..4_000).all(|n| !ids.contains(&number(n)).expect("readable")));
    }

    #[test]
    fn damage_is_seen_and_never_taken_for_letters_that_were_not_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ids");
        let mut ids = Ids::open(None, folder.path()).expect("nothing yet");
        (0..600).for_each(|n| ids.insert(number(n)).expect("it is added"));
        ids.finish(&path).expect("it is written");
        let whole = std::fs::read(&path).expect("it is there");
        for bad in [&whole[..whole.len() - 16], &whole[..whole.len() - 1], &[], &whole[16..]] {
            std::fs::write(&path, bad).expect("it can be written");
            assert!(matches!(Ids::open(Some(&path), folder.path()), Err(IdsError::Damaged(..))), "{} bytes", bad.len());
        }
        for at in (0..whole.len()).step_by(997) {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            std::fs::write(&path, bad).expect("it can be written");
            assert!(matches!(Ids::open(Some(&path), folder.path()), Err(IdsError::Damaged(..))), "byte {at}");
        }
        std::fs::remove_file(&path).expect("it is there");
        assert!(matches!(Ids::open(Some(&path), folder.path()), Err(IdsError::Damaged(..))));
    }
}
