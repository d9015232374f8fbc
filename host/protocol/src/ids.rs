//! Names and numbers that the protocol mints, checks and compares.
//!
//! Ids are minted once, stored, and never computed again: what is found outside is compared with what was stored.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A name that does not follow the rules. The message says which rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InvalidId {
    /// The name as given.
    pub given: String,
    /// What was expected.
    pub expected: &'static str,
}

impl fmt::Display for InvalidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a valid name: expected {}", self.given, self.expected)
    }
}

impl std::error::Error for InvalidId {}

const NAME_RULE: &str = "1 to 40 characters of a-z, 0-9 and `-`, starting with a letter";

fn check_name(name: &str) -> Result<(), InvalidId> {
    let legal = (1..=40).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if legal { Ok(()) } else { Err(InvalidId { given: name.to_owned(), expected: NAME_RULE }) }
}

/// Whether a savepoint may be called that. A name is never an epoch's number, so that both can be asked for alike.
///
/// # Errors
/// The name breaks the rule.
pub fn check_savepoint_name(name: &str) -> Result<(), InvalidId> {
    check_name(name)
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks and wraps a name: 1 to 40 characters of `a-z`, `0-9` and `-`, starting with a letter.
            ///
            /// # Errors
            /// The name breaks the rule.
            pub fn new(name: impl Into<String>) -> Result<Self, InvalidId> {
                let name = name.into();
                check_name(&name)?;
                Ok(Self(name))
            }

            /// The name itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidId;
            fn try_from(name: String) -> Result<Self, InvalidId> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(id: $type) -> String {
                id.0
            }
        }

        impl FromStr for $type {
            type Err = InvalidId;
            fn from_str(name: &str) -> Result<Self, InvalidId> {
                Self::new(name)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The operator's stable name of a pipeline.
    PipelineId
);
name!(
    /// The operator's stable name of a source within its pipeline.
    SourceId
);
name!(
    /// The operator's stable name of a stateful step within its pipeline.
    OperatorId
);
name!(
    /// The operator's stable name of a sink within its pipeline.
    SinkId
);

/// 80 random bits that tell two runs with the same number apart. Written as 16 characters of lower-case base32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nonce(pub [u8; 10]);

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl FromStr for Nonce {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId { given: text.to_owned(), expected: "16 characters of lower-case base32" };
        if text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(invalid());
        }
        let bytes = data_encoding::BASE32_NOPAD.decode(text.to_ascii_uppercase().as_bytes()).map_err(|_| invalid())?;
        Ok(Self(bytes.try_into().map_err(|_| invalid())?))
    }
}

impl Serialize for Nonce {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One incarnation of a pipeline: the fencing token and the random part that makes it ours.
///
/// Ordered by number first. Equal numbers with different nonces are foreign to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RunId {
    /// The fencing token: one more than the larger of what log and destinations have seen. Starts at 1.
    pub number: u64,
    /// The random part.
    pub nonce: Nonce,
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.number, self.nonce)
    }
}

/// Number of an epoch: rising within a pipeline, starting at 1, never used twice within a line of descent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Stands for "before the first epoch".
    pub const ZERO: Epoch = Epoch(0);

    /// The epoch after this one. Stays at the last number there is; the log refuses that one.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One sealed epoch of one run. Two branches of a fork may hold the same epoch number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EpochRef {
    /// The run that sealed it.
    pub run: RunId,
    /// Its number.
    pub epoch: Epoch,
}

impl fmt::Display for EpochRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} of run {}", self.epoch, self.run)
    }
}

/// Position of a record in a pipeline's log. Numbered without gaps, starting at 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u64);

impl Slot {
    /// The slot after this one. Stays at the last number there is; the log refuses that one.
    #[must_use]
    pub fn next(self) -> Slot {
        Slot(self.0.saturating_add(1))
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An inclusive range of the key space `0..=u32::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KeyRange {
    /// First key that belongs to it.
    pub first: u32,
    /// Last key that belongs to it.
    pub last: u32,
}

impl KeyRange {
    /// The whole key space.
    pub const ALL: KeyRange = KeyRange { first: 0, last: u32::MAX };

    /// Cuts the key space into `count` ranges of nearly equal size, in order. `count` of 0 counts as 1.
    pub fn split(count: u32) -> Vec<KeyRange> {
        let count = u64::from(count.max(1));
        let edge = |i: u64| ((1u64 << 32) * i / count) as u32;
        (0..count)
            .map(|i| KeyRange { first: edge(i), last: if i + 1 == count { u32::MAX } else { edge(i + 1) - 1 } })
            .collect()
    }

    /// Which range of `split(count)` owns `key`.
    pub fn owner(key: u32, count: u32) -> u32 {
        // The inverse of `split`: the largest i with floor(2^32 * i / count) <= key.
        let count = u64::from(count.max(1));
        ((((u64::from(key) + 1) * count).div_ceil(1u64 << 32)) - 1) as u32
    }

    /// Whether the two ranges share a key.
    pub fn overlaps(self, other: KeyRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The keys that both have.
    pub fn shared(self, other: KeyRange) -> Option<KeyRange> {
        self.overlaps(other).then(|| KeyRange { first: self.first.max(other.first), last: self.last.min(other.last) })
    }

    /// Whether `ranges`, in any order, cover the whole key space, each key once.
    pub fn complete(ranges: impl IntoIterator<Item = KeyRange>) -> bool {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort();
        let mut next = Some(0u32);
        for range in ranges {
            if next != Some(range.first) || range.last < range.first {
                return false;
            }
            next = range.last.checked_add(1);
        }
        next.is_none()
    }
}

/// Eight characters that stand for pipeline and sink in every short name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SinkHash(String);

impl SinkHash {
    /// Derives it from the two stable names, and from nothing else.
    pub fn of(pipeline: &PipelineId, sink: &SinkId) -> Self {
        let digest = Sha256::digest(format!("{pipeline}/{sink}"));
        let text = data_encoding::BASE32_NOPAD.encode(&digest[..5]).to_ascii_lowercase();
        Self(text)
    }

    /// The eight characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What every short name of this sink starts with.
    pub fn prefix(&self) -> String {
        format!("tg-{}-", self.0)
    }
}

/// Identity of what one participant prepares for one epoch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PartId {
    /// The run that writes it.
    pub run: RunId,
    /// The epoch it belongs to.
    pub epoch: Epoch,
    /// Which participant, from 0.
    pub ordinal: u32,
    /// How often this participant began this epoch within this run, from 1.
    pub attempt: u32,
    /// `<pipeline>/<sink>/<run number>-<run nonce>/<epoch>/<ordinal>/<attempt>`.
    pub full: String,
    /// `tg-<sink hash>-<run number>-<run nonce>-<epoch>-<ordinal>-<attempt>`; at most 63 of `[a-z0-9-]` while run
    /// number, epoch, ordinal and attempt together have at most 31 digits less the hyphens.
    pub short: String,
}

impl PartId {
    /// Mints both names. Called once per part; from then on the stored names count.
    pub fn mint(pipeline: &PipelineId, sink: &SinkId, run: RunId, epoch: Epoch, ordinal: u32, attempt: u32) -> Self {
        let hash = SinkHash::of(pipeline, sink);
        Self {
            run,
            epoch,
            ordinal,
            attempt,
            full: format!("{pipeline}/{sink}/{run}/{epoch}/{ordinal}/{attempt}"),
            short: format!("{}{run}-{epoch}-{ordinal}-{attempt}", hash.prefix()),
        }
    }

    /// The run named in a short name that starts with `prefix`, or `None` when it is not of our making.
    pub fn run_of_short(short: &str, prefix: &str) -> Option<RunId> {
        let mut fields = short.strip_prefix(prefix)?.split('-');
        let number = fields.next()?.parse().ok()?;
        let nonce = fields.next()?.parse().ok()?;
        Some(RunId { number, nonce })
    }

    /// The part that a short name found outside stands for, or `None` when no part of this sink has that name.
    pub fn from_short(pipeline: &PipelineId, sink: &SinkId, short: &str) -> Option<PartId> {
        let mut fields = short.strip_prefix(&SinkHash::of(pipeline, sink).prefix())?.split('-');
        let run = RunId { number: fields.next()?.parse().ok()?, nonce: fields.next()?.parse().ok()? };
        let epoch = Epoch(fields.next()?.parse().ok()?);
        let ordinal = fields.next()?.parse().ok()?;
        let attempt = fields.next()?.parse().ok()?;
        // Minting again and comparing refuses leading zeros and whatever else reads the same and is not the same.
        Some(PartId::mint(pipeline, sink, run, epoch, ordinal, attempt)).filter(|part| part.short == short)
    }

    /// The epoch this part belongs to, as a reference.
    pub fn epoch_ref(&self) -> EpochRef {
        EpochRef { run: self.run, epoch: self.epoch }
    }
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short)
    }
}
