//! Records, frames, sectors and segment headers as bytes. `FORMAT.md` draws them.
//!
//! A **frame** is cut into pieces, and each piece lies in a **sector** of 512 bytes with a checksum of its own. A disk
//! writes a sector whole or not at all, and every sector of a segment is written once, over a known fill. So after a
//! power cut each sector of the frame that was being written is either good or fill; a sector that is neither was
//! damaged, and the record in it was perhaps acknowledged.

use bytes::Bytes;
use tidegate_protocol::ids::{Nonce, Slot};
use tidegate_protocol::record::{FORMAT_VERSION, Record};

use crate::StoreError;

/// Largest encoded record and largest piece of state, in bytes.
pub const MAX_PAYLOAD: usize = 64 << 20;
/// Version of segments and frames written by this program.
pub const SEGMENT_VERSION: u16 = 1;
/// A sector, in bytes: what a disk writes whole or not at all.
pub const SECTOR: usize = 512;

const SECTOR_HEAD: usize = 16;
const PIECE: usize = SECTOR - SECTOR_HEAD;
const FRAME_HEAD: usize = 32;
const FRAME_TAIL: usize = 4;
const FRAME_MAGIC: [u8; 4] = *b"TGFR";
const SEGMENT_MAGIC: [u8; 8] = *b"TIDEGATE";

/// Most sectors that one frame can take.
pub(crate) const MAX_FRAME_SECTORS: usize = (FRAME_HEAD + MAX_PAYLOAD + FRAME_TAIL).div_ceil(PIECE);
/// Longest file that can be a segment: the larger of the usual size and one for a single huge frame.
pub(crate) const MAX_SEGMENT: u64 = 2 * MAX_FRAME_SECTORS as u64 * SECTOR as u64;

/// Encodes a record as CBOR.
///
/// # Errors
/// It is larger than [`MAX_PAYLOAD`].
pub fn encode_record(record: &Record) -> Result<Vec<u8>, StoreError> {
    let mut payload = Vec::with_capacity(1024);
    ciborium::into_writer(record, &mut payload)
        .expect("a vector accepts every write, and a record has no value that CBOR lacks");
    if payload.len() > MAX_PAYLOAD {
        return Err(StoreError::TooLarge {
            what: format!("record {}", record.slot),
            bytes: payload.len() as u64,
            limit: MAX_PAYLOAD as u64,
        });
    }
    Ok(payload)
}

/// Decodes a record.
///
/// # Errors
/// Says in words what is wrong.
pub fn decode_record(payload: &[u8]) -> Result<Record, String> {
    let mut rest = payload;
    let record: Record =
        ciborium::from_reader(&mut rest).map_err(|error| format!("not a record: {}", in_words(error)))?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow the record", rest.len()));
    }
    Ok(record)
}

/// The decoder's own text is that of its data type.
fn in_words(error: ciborium::de::Error<std::io::Error>) -> String {
    use ciborium::de::Error;
    match error {
        Error::Io(_) => "it ends too early".to_owned(),
        Error::Syntax(offset) => format!("its CBOR is wrong at byte {offset}"),
        Error::Semantic(Some(offset), message) => format!("{message}, at byte {offset}"),
        Error::Semantic(None, message) => message,
        Error::RecursionLimitExceeded => "it is nested too deeply".to_owned(),
    }
}

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A record.
    Record,
    /// Slots whose records were deleted: from the frame's slot to the one in its payload.
    Gap,
    /// The segment is full; the next one begins with the frame's slot.
    Roll,
}

/// One entry of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Of the record format; 1 for what is not a record.
    pub(crate) version: u16,
    pub(crate) kind: Kind,
    pub(crate) slot: Slot,
    pub(crate) nonce: Nonce,
    pub(crate) payload: Bytes,
}

/// Why a frame's bytes are not a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FrameFault {
    Damaged(String),
    Version(u16),
}

impl Frame {
    /// A frame for a record that was encoded with [`encode_record`].
    pub(crate) fn record(record: &Record, payload: Vec<u8>) -> Frame {
        let version = record.format_version();
        Frame { version, kind: Kind::Record, slot: record.slot, nonce: record.run.nonce, payload: payload.into() }
    }

    pub(crate) fn gap(first: Slot, last: Slot, log: Nonce) -> Frame {
        let payload = Bytes::copy_from_slice(&last.0.to_le_bytes());
        Frame { version: 1, kind: Kind::Gap, slot: first, nonce: log, payload }
    }

    pub(crate) fn roll(next: Slot, log: Nonce) -> Frame {
        Frame { version: 1, kind: Kind::Roll, slot: next, nonce: log, payload: Bytes::new() }
    }

    /// Last slot of a gap.
    pub(crate) fn gap_last(&self) -> Result<Slot, String> {
        let last: [u8; 8] = self.payload[..].try_into().map_err(|_| "a gap without its end".to_owned())?;
        let last = u64::from_le_bytes(last);
        if last < self.slot.0 || last == u64::MAX { Err(format!("a gap that ends at {last}")) } else { Ok(Slot(last)) }
    }

    /// How many sectors a frame with such a payload takes.
    pub(crate) fn sectors(payload: usize) -> usize {
        (FRAME_HEAD + payload + FRAME_TAIL).div_ceil(PIECE)
    }

    /// The frame as sectors, ready to be written.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(FRAME_HEAD + self.payload.len() + FRAME_TAIL);
        body.extend_from_slice(&FRAME_MAGIC);
        body.extend_from_slice(&self.version.to_le_bytes());
        body.push(match self.kind {
            Kind::Record => 1,
            Kind::Gap => 2,
            Kind::Roll => 3,
        });
        body.push(0);
        // Callers keep payloads within MAX_PAYLOAD, which fits.
        body.extend_from_slice(&(self.payload.len() as u32).to_le_bytes());
        body.extend_from_slice(&self.slot.0.to_le_bytes());
        body.extend_from_slice(&self.nonce.0);
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&self.payload);
        body.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());

        let count = body.len().div_ceil(PIECE);
        let mut sectors = vec![0; count * SECTOR];
        for (index, (sector, piece)) in sectors.chunks_mut(SECTOR).zip(body.chunks(PIECE)).enumerate() {
            sector[4..8].copy_from_slice(&(index as u32).to_le_bytes());
            sector[8..12].copy_from_slice(&(count as u32).to_le_bytes());
            sector[12..16].copy_from_slice(&(self.slot.0 as u32).to_le_bytes());
            sector[16..16 + piece.len()].copy_from_slice(piece);
            let checksum = crc32c::crc32c(&sector[4..]);
            sector[..4].copy_from_slice(&checksum.to_le_bytes());
        }
        sectors
    }

    /// Puts a frame together from sectors that were each found good.
    pub(crate) fn decode(sectors: &[u8]) -> Result<Frame, FrameFault> {
        let damaged = |what: &str| FrameFault::Damaged(what.to_owned());
        let mut body = Vec::with_capacity(sectors.len());
        for sector in sectors.chunks(SECTOR) {
            body.extend_from_slice(sector.get(SECTOR_HEAD..).unwrap_or_default());
        }
        let head = body.get(..FRAME_HEAD).ok_or_else(|| damaged("a frame that is too short"))?;
        if head[..4] != FRAME_MAGIC {
            return Err(damaged("no frame begins here"));
        }
        let version = u16_at(head, 4);
        if !(1..=FORMAT_VERSION).contains(&version) {
            return Err(FrameFault::Version(version));
        }
        let kind = match head[6] {
            1 => Kind::Record,
            2 => Kind::Gap,
            3 => Kind::Roll,
            other => return Err(FrameFault::Damaged(format!("a frame of unknown kind {other}"))),
        };
        let length = u32_at(head, 8) as usize;
        if length > MAX_PAYLOAD || Self::sectors(length) * SECTOR != sectors.len() {
            return Err(FrameFault::Damaged(format!(
                "a frame whose length of {length} bytes does not fit its sectors"
            )));
        }
        let end = FRAME_HEAD + length;
        if u32_at(&body, end) != crc32c::crc32c(&body[..end]) {
            return Err(damaged("the frame's checksum does not match, though each of its sectors does"));
        }
        if head[7] != 0 || head[30..32] != [0, 0] || body[end + FRAME_TAIL..].iter().any(|byte| *byte != 0) {
            return Err(damaged("bytes that must be zero are not"));
        }
        let mut nonce = [0; 10];
        nonce.copy_from_slice(&head[20..30]);
        let slot = Slot(u64_at(head, 12));
        let payload = Bytes::from(body).slice(FRAME_HEAD..end);
        Ok(Frame { version, kind, slot, nonce: Nonce(nonce), payload })
    }
}

/// What a sector is, judged by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sector {
    /// Never written.
    Fill,
    /// Piece `index` of `count` of the frame of a slot, of which the lower half is known.
    Good { index: u32, count: u32, slot_low: u32 },
    /// Neither.
    Bad,
}

/// Judges the sector in the first [`SECTOR`] bytes.
pub(crate) fn judge(bytes: &[u8]) -> Sector {
    let Some(sector) = bytes.get(..SECTOR) else { return Sector::Bad };
    if sector.iter().all(|byte| *byte == 0) {
        return Sector::Fill;
    }
    let (index, count) = (u32_at(sector, 4), u32_at(sector, 8));
    let good = u32_at(sector, 0) == crc32c::crc32c(&sector[4..]);
    // A sector with count 0 would not be distinguishable from fill by more than its checksum.
    if good && index < count && count as usize <= MAX_FRAME_SECTORS {
        Sector::Good { index, count, slot_low: u32_at(sector, 12) }
    } else {
        Sector::Bad
    }
}

/// First sector of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Slot of its first frame.
    pub(crate) first: Slot,
    /// Last slot, for a segment that was rewritten whole; `None` for one that was written by appending.
    pub(crate) last: Option<Slot>,
    /// Length of the file in bytes, which never changes.
    pub(crate) capacity: u64,
    /// The log's identity: the nonce of the run that began it.
    pub(crate) log: Nonce,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; SECTOR] {
        let mut sector = [0; SECTOR];
        sector[..8].copy_from_slice(&SEGMENT_MAGIC);
        sector[8..10].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
        sector[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        sector[24..32].copy_from_slice(&self.last.map_or(0, |slot| slot.0).to_le_bytes());
        sector[32..40].copy_from_slice(&self.capacity.to_le_bytes());
        sector[40..50].copy_from_slice(&self.log.0);
        let checksum = crc32c::crc32c(&sector[..SECTOR - 4]);
        sector[SECTOR - 4..].copy_from_slice(&checksum.to_le_bytes());
        sector
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Header, FrameFault> {
        let damaged = |what: &str| FrameFault::Damaged(what.to_owned());
        let Some(sector) = bytes.get(..SECTOR) else {
            return Err(FrameFault::Damaged(format!("the file ends after {} bytes, inside its header", bytes.len())));
        };
        if sector[..8] != SEGMENT_MAGIC {
            return Err(damaged("this is not a segment of a log"));
        }
        let version = u16_at(sector, 8);
        if version != SEGMENT_VERSION {
            return Err(FrameFault::Version(version));
        }
        if u32_at(sector, SECTOR - 4) != crc32c::crc32c(&sector[..SECTOR - 4]) {
            return Err(damaged("the header's checksum does not match"));
        }
        let mut log = [0; 10];
        log.copy_from_slice(&sector[40..50]);
        let last = u64_at(sector, 24);
        let header = Header {
            first: Slot(u64_at(sector, 16)),
            last: (last != 0).then_some(Slot(last)),
            capacity: u64_at(sector, 32),
            log: Nonce(log),
        };
        let sane = header.first.0 != 0
            && header.last.is_none_or(|last| last >= header.first && last.0 < u64::MAX)
            && header.capacity >= 3 * SECTOR as u64
            && header.capacity.is_multiple_of(SECTOR as u64)
            && header.capacity <= MAX_SEGMENT
            && sector[10..16].iter().chain(&sector[50..SECTOR - 4]).all(|byte| *byte == 0);
        if sane { Ok(header) } else { Err(damaged("the header contradicts itself")) }
    }
}

// All three are called with offsets inside what was length-checked before.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}
