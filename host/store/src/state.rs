//! Large state, cut into pieces so that what did not change keeps its name.
//!
//! The cuts are found in the content: a window of some bytes is hashed as it rolls along, and a cut is where the hash
//! ends in enough zeros. Bytes inserted near the front move a few cuts, not all that follow.

use std::path::Path;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tidegate_protocol::positions::{Page, Positions};
use tidegate_protocol::record::{Body, Record, StateChunk, StateRef};

use crate::codec::MAX_PAYLOAD;
use crate::{Log, StoreError};

/// State shorter than this stays in the record, in bytes.
pub const INLINE_LIMIT: usize = 4 << 10;
/// Most bytes of state that [`load`] puts together in memory.
pub const LOAD_LIMIT: u64 = 4 << 30;

const SMALLEST: usize = 64 << 10;
const LARGEST: usize = 1 << 20;
/// 18 bits: a cut every 256 KiB beyond the smallest, on average.
const CUT_MASK: u64 = ((1 << 18) - 1) << 40;

/// Keeps `bytes`: short state in the answer itself, longer state in pieces beside the log, durable on return.
///
/// # Errors
/// As [`Log::put_state`].
pub fn store(log: &mut dyn Log, bytes: &[u8]) -> Result<StateRef, StoreError> {
    if bytes.len() < INLINE_LIMIT {
        return Ok(StateRef::Inline(Bytes::copy_from_slice(bytes)));
    }
    let mut chunks = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(cut(rest));
        chunks.push(log.put_state(piece)?);
        rest = after;
    }
    Ok(StateRef::Chunks(chunks))
}

/// Reads back what [`store`] kept. Every piece is checked against its name.
///
/// # Errors
/// As [`Log::read_state`]; also when the pieces together exceed [`LOAD_LIMIT`].
pub fn load(log: &mut dyn Log, state: &StateRef) -> Result<Bytes, StoreError> {
    let chunks = match state {
        StateRef::Inline(bytes) => return Ok(bytes.clone()),
        StateRef::Chunks(chunks) => chunks,
    };
    let total = chunks.iter().fold(0u64, |sum, chunk| sum.saturating_add(chunk.bytes));
    if total > LOAD_LIMIT {
        return Err(StoreError::TooLarge { what: "one state".to_owned(), bytes: total, limit: LOAD_LIMIT });
    }
    // Grows with what is really read: the lengths are only claims until the pieces are there.
    let mut all = Vec::new();
    for chunk in chunks {
        all.extend_from_slice(&log.read_state(chunk)?);
    }
    Ok(all.into())
}

/// Reads the pages of positions that are names only, each checked against its name. Whatever shares pages with these
/// positions has them as well.
///
/// # Errors
/// As [`Log::read_state`], and a page that does not hold positions.
pub fn load_positions(log: &mut dyn Log, positions: &Positions) -> Result<(), StoreError> {
    for page in positions.missing() {
        let bytes = log.read_state(page.name())?;
        let file = || format!("state/{}", page.name().sha256);
        page.fill(&bytes).map_err(|error| StoreError::corrupt(file(), 0, None, error.to_string()))?;
    }
    Ok(())
}

/// Pages of positions that a record names.
pub(crate) fn pages_of(record: &Record) -> impl Iterator<Item = &Page> {
    let seal = if let Body::Seal(seal) = &record.body { Some(seal) } else { None };
    seal.into_iter().flat_map(|seal| seal.sources.values()).flat_map(|cut| cut.partitions.pages())
}

/// The name of a piece.
pub fn chunk_of(content: &[u8]) -> StateChunk {
    StateChunk { sha256: data_encoding::HEXLOWER.encode(&Sha256::digest(content)), bytes: content.len() as u64 }
}

/// Whether `name` can be the name of a piece; also what keeps names from leaving their directory.
pub(crate) fn is_chunk_name(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

pub(crate) fn check_name(chunk: &StateChunk) -> Result<(), StoreError> {
    if !is_chunk_name(&chunk.sha256) {
        return Err(StoreError::BadChunkName { name: chunk.sha256.chars().take(80).collect() });
    }
    if chunk.bytes > MAX_PAYLOAD as u64 {
        return Err(StoreError::TooLarge {
            what: format!("piece of state {}", chunk.sha256),
            bytes: chunk.bytes,
            limit: MAX_PAYLOAD as u64,
        });
    }
    Ok(())
}

pub(crate) fn check_chunk(file: &Path, expected: &StateChunk, content: &[u8]) -> Result<(), StoreError> {
    let found = chunk_of(content);
    if found == *expected {
        return Ok(());
    }
    let detail = if found.bytes == expected.bytes {
        format!("the content's SHA-256 is {}", found.sha256)
    } else {
        format!("the file has {} bytes, the checkpoint names {}", found.bytes, expected.bytes)
    };
    Err(StoreError::corrupt(file, 0, None, detail))
}

/// Length of the first piece of `bytes`.
fn cut(bytes: &[u8]) -> usize {
    if bytes.len() <= SMALLEST {
        return bytes.len();
    }
    let mut hash = 0u64;
    // The shift pushes a byte's share out after 64 steps: that is the window, and 64 bytes of run-up fill it.
    for (at, byte) in bytes.iter().enumerate().take(LARGEST).skip(SMALLEST - 64) {
        hash = (hash << 1).wrapping_add(GEAR[usize::from(*byte)]);
        if at >= SMALLEST && hash & CUT_MASK == 0 {
            return at + 1;
        }
    }
    bytes.len().min(LARGEST)
}

/// One pseudo-random number per byte value (splitmix64 from zero). Changing it moves all cuts: everything stays readable,
/// but nothing is shared with what was stored before.
static GEAR: [u64; 256] = gear();

const fn gear() -> [u64; 256] {
    let mut table = [0; 256];
    let mut state = 0u64;
    let mut i = 0;
    while i < 256 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[i] = z ^ (z >> 31);
        i += 1;
    }
    table
}
