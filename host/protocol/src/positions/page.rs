//! A sorted piece of a layer, and its bytes: a CBOR map (RFC 8949) from partition to position, both text, numbers in
//! their shortest form, sorted by the bytes of the partition.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::record::StateChunk;

const TEXT: u8 = 3;
const MAP: u8 = 5;

/// A page: its name, and its content once that is known. The name follows from the content, so filling it in changes
/// nothing that a decision could hang on.
pub struct Page {
    name: StateChunk,
    content: OnceLock<Content>,
}

/// Entries one behind the other in one text.
struct Content {
    text: Box<str>,
    /// Where each partition and each position ends.
    ends: Box<[(usize, usize)]>,
}

/// Bytes are not the page that they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageError {
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PageError {}

impl Page {
    /// A page of which only the name is known.
    pub(super) fn named(name: StateChunk) -> Self {
        Self { name, content: OnceLock::new() }
    }

    /// A page of these entries, which are sorted and apart from each other.
    pub(super) fn of(entries: &[(&str, &str)]) -> Self {
        let mut text = String::with_capacity(entries.iter().map(|(name, at)| name.len() + at.len()).sum());
        let mut ends = Vec::with_capacity(entries.len());
        for (partition, position) in entries {
            text.push_str(partition);
            let partition_end = text.len();
            text.push_str(position);
            ends.push((partition_end, text.len()));
        }
        let content = Content { text: text.into(), ends: ends.into() };
        Self { name: name_of(&content.encode()), content: OnceLock::from(content) }
    }

    /// Its name beside the log.
    pub fn name(&self) -> &StateChunk {
        &self.name
    }

    /// Whether its content is known.
    pub fn is_loaded(&self) -> bool {
        self.content.get().is_some()
    }

    /// Its bytes, if its content is known.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.content.get().map(Content::encode)
    }

    /// Takes in its content. A second time changes nothing.
    ///
    /// # Errors
    /// These are not the bytes that its name stands for, or they are not a page.
    pub fn fill(&self, bytes: &[u8]) -> Result<(), PageError> {
        let found = name_of(bytes);
        if found != self.name {
            let message =
                format!("page {} was asked for, and the content is that of {}", self.name.sha256, found.sha256);
            return Err(PageError { message });
        }
        let content = Content::decode(bytes)
            .ok_or_else(|| PageError { message: format!("{} is not a page of positions", self.name.sha256) })?;
        let _ = self.content.set(content);
        Ok(())
    }

    /// The entry at `index`, if there are as many.
    pub(super) fn entry(&self, index: usize) -> Option<(&str, &str)> {
        self.content.get()?.entry(index)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.content.get().into_iter().flat_map(|content| (0..content.ends.len()).filter_map(|at| content.entry(at)))
    }

    pub(super) fn get(&self, partition: &str) -> Option<&str> {
        let content = self.content.get()?;
        let (mut low, mut high) = (0, content.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let (name, position) = content.entry(middle)?;
            match name.cmp(partition) {
                std::cmp::Ordering::Equal => return Some(position),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

impl Content {
    fn entry(&self, index: usize) -> Option<(&str, &str)> {
        let (partition_end, end) = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends.get(index - 1)?.1 };
        Some((self.text.get(start..partition_end)?, self.text.get(partition_end..end)?))
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.text.len() + 9 + self.ends.len() * 4);
        put_head(&mut bytes, MAP, self.ends.len());
        for (partition, position) in (0..self.ends.len()).filter_map(|index| self.entry(index)) {
            for text in [partition, position] {
                put_head(&mut bytes, TEXT, text.len());
                bytes.extend_from_slice(text.as_bytes());
            }
        }
        bytes
    }

    /// Only what [`Self::encode`] writes is taken.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let count = take_head(&mut rest, MAP)?;
        // Two bytes at least for each entry: what a number claims is not allocated before it can be true.
        if count > rest.len() / 2 {
            return None;
        }
        let mut text = String::with_capacity(rest.len());
        let mut ends = Vec::with_capacity(count);
        let mut last: Option<&str> = None;
        for _ in 0..count {
            let partition = take_text(&mut rest)?;
            if last.is_some_and(|last| last >= partition) {
                return None;
            }
            last = Some(partition);
            text.push_str(partition);
            let partition_end = text.len();
            text.push_str(take_text(&mut rest)?);
            ends.push((partition_end, text.len()));
        }
        rest.is_empty().then(|| Self { text: text.into(), ends: ends.into() })
    }
}

/// Bytes that an entry takes in a page or a record.
pub(super) fn entry_bytes(partition: &str, position: &str) -> usize {
    head_bytes(partition.len()) + partition.len() + head_bytes(position.len()) + position.len()
}

fn head_bytes(length: usize) -> usize {
    match length {
        0..=23 => 1,
        24..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

fn put_head(bytes: &mut Vec<u8>, kind: u8, length: usize) {
    let kind = kind << 5;
    let wide = (length as u64).to_be_bytes();
    match head_bytes(length) {
        1 => bytes.push(kind | wide[7]),
        2 => bytes.extend_from_slice(&[kind | 24, wide[7]]),
        3 => bytes.extend_from_slice(&[kind | 25, wide[6], wide[7]]),
        5 => {
            bytes.push(kind | 26);
            bytes.extend_from_slice(&wide[4..]);
        }
        _ => {
            bytes.push(kind | 27);
            bytes.extend_from_slice(&wide);
        }
    }
}

fn take_head(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let (first, after) = rest.split_first()?;
    if first >> 5 != kind {
        return None;
    }
    let short = first & 0x1f;
    let width = match short {
        0..=23 => 0,
        24 => 1,
        25 => 2,
        26 => 4,
        27 => 8,
        _ => return None,
    };
    let (number, after) = after.split_at_checked(width)?;
    let value = if width == 0 {
        u64::from(short)
    } else {
        number.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
    };
    let value = usize::try_from(value).ok()?;
    if head_bytes(value) != width + 1 {
        return None;
    }
    *rest = after;
    Some(value)
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = take_head(rest, TEXT)?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

fn name_of(bytes: &[u8]) -> StateChunk {
    StateChunk { sha256: data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)), bytes: bytes.len() as u64 }
}

impl PartialEq for Page {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Page {}

impl Hash for Page {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.name.sha256, self.name.bytes)
    }
}
