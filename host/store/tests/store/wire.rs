//! The format once more, written from `FORMAT.md` and sharing no code with what is tested: for logs that no version of
//! the program would write.

const SECTOR: usize = 512;
const PIECE: usize = 496;

fn sealed(mut sector: Vec<u8>) -> Vec<u8> {
    sector.resize(SECTOR, 0);
    let checksum = crc32c::crc32c(&sector[4..]);
    sector[..4].copy_from_slice(&checksum.to_le_bytes());
    sector
}

/// A frame, cut into sectors.
pub(crate) fn frame(version: u16, kind: u8, slot: u64, nonce: &[u8; 10], payload: &[u8]) -> Vec<u8> {
    cut(slot, &summed(frame_body(version, kind, slot, nonce, payload)))
}

/// A frame's bytes up to its checksum.
pub(crate) fn frame_body(version: u16, kind: u8, slot: u64, nonce: &[u8; 10], payload: &[u8]) -> Vec<u8> {
    let mut bytes = b"TGFR".to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&[kind, 0]);
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&slot.to_le_bytes());
    bytes.extend_from_slice(nonce);
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(payload);
    bytes
}

/// With the frame's checksum behind it.
pub(crate) fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Bytes as the sectors of one frame, each good in itself.
pub(crate) fn cut(slot: u64, bytes: &[u8]) -> Vec<u8> {
    let count = bytes.len().div_ceil(PIECE) as u32;
    (0..).zip(bytes.chunks(PIECE)).flat_map(|(index, piece)| sector(index, count, slot, piece)).collect()
}

/// One good sector: piece `index` of `count` of the frame of a slot.
pub(crate) fn sector(index: u32, count: u32, slot: u64, piece: &[u8]) -> Vec<u8> {
    let head = [[0; 4], index.to_le_bytes(), count.to_le_bytes(), (slot as u32).to_le_bytes()].concat();
    sealed([&head, piece].concat())
}

/// The only segment of a log, of 64 KiB or more, begun by the run whose random part is ten times 1.
pub(crate) fn segment(frames: &[Vec<u8>]) -> Vec<u8> {
    let taken = 2 * SECTOR + frames.iter().map(Vec::len).sum::<usize>();
    let length = (taken as u64).next_power_of_two().max(64 << 10);
    let mut file = b"TIDEGATE\x01\0\0\0\0\0\0\0".to_vec();
    file.extend_from_slice(&1u64.to_le_bytes());
    file.extend_from_slice(&0u64.to_le_bytes());
    file.extend_from_slice(&length.to_le_bytes());
    file.extend_from_slice(&[1; 10]);
    file.resize(SECTOR - 4, 0);
    file.extend_from_slice(&crc32c::crc32c(&file).to_le_bytes());
    frames.iter().for_each(|frame| file.extend_from_slice(frame));
    file.resize(length as usize, 0);
    file
}

/// Puts bytes into a segment's header, with a checksum that fits.
pub(crate) fn patch_header(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
    let checksum = crc32c::crc32c(&file[..SECTOR - 4]);
    file[SECTOR - 4..SECTOR].copy_from_slice(&checksum.to_le_bytes());
}

/// `bytes` with the one place where `from` stands replaced.
pub(crate) fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert_eq!(places.len(), 1, "it stands there once");
    [&bytes[..places[0]], to, &bytes[places[0] + from.len()..]].concat()
}

/// A record in which the layer that begins with `page` lacks its last byte.
pub(crate) fn shortened_layer(record: &[u8], page: &[u8]) -> Vec<u8> {
    let at = (0..record.len()).find(|at| record[*at..].starts_with(page)).expect("the page is named");
    assert_eq!(record[at - 2], 0x58, "the head of a byte string of less than 256 bytes");
    let length = usize::from(record[at - 1]);
    [&record[..at - 1], &[record[at - 1] - 1], &record[at..at + length - 1], &record[at + length..]].concat()
}
