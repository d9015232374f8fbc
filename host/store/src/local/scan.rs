//! Reads a log's directory and says what is there, changing nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidegate_protocol::ids::{Nonce, Slot};
use tidegate_protocol::record::{FORMAT_VERSION, Record};

use super::layout::{self, LOG_FOLDER, Named};
use crate::codec::{self, Frame, FrameFault, Header, Kind, MAX_SEGMENT, SECTOR, SEGMENT_VERSION, Sector};
use crate::disk::{Disk, Entry};
use crate::memory::is_open;
use crate::{StoreError, Tail};

/// Where a record lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of its first sector, in bytes.
    pub(crate) offset: u64,
    /// How many sectors it takes.
    pub(crate) sectors: usize,
    /// Whether it opens a run.
    pub(crate) open: bool,
}

impl Place {
    pub(crate) fn bytes(&self) -> u64 {
        (self.sectors * SECTOR) as u64
    }
}

/// A segment that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) header: Header,
    /// The slot after its last one.
    pub(crate) next: Slot,
    /// Where the next frame goes, in bytes; in a closed segment, where its closing frame stands.
    pub(crate) used: u64,
    /// Whether it has a closing frame.
    pub(crate) rolled: bool,
    /// Bytes of frames whose records count.
    pub(crate) live: u64,
    /// Bytes of frames whose records were deleted since.
    pub(crate) dead: u64,
}

impl Segment {
    pub(crate) fn path(&self) -> String {
        layout::segment_path(self.header.first)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == SECTOR as u64
    }
}

/// What is there.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// In order of slots. The last one is being appended to.
    pub(crate) segments: Vec<Segment>,
    pub(crate) index: BTreeMap<Slot, Place>,
    /// Paths of what an interrupted change left behind.
    pub(crate) leftovers: Vec<String>,
    pub(crate) tail: Tail,
    /// The newest segment holds nothing yet, so its predecessor is what a recovery must act on.
    pub(crate) empty_newest: bool,
}

/// How the frames of a segment end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    Open,
    Rolled,
    Torn,
}

/// Reads everything, hands every record to `visit`, and checks all there is to check.
pub(crate) fn scan(
    disk: &mut dyn Disk,
    dir: &Path,
    visit: &mut dyn FnMut(Record) -> Result<(), StoreError>,
) -> Result<Scan, StoreError> {
    let mut scan = Scan::default();
    let files = classify(disk, dir, &mut scan.leftovers)?;
    if files.is_empty() {
        check_empty(disk, dir)?;
    }
    let mut endings = Vec::new();
    for (position, (first, entry)) in files.iter().enumerate() {
        if scan.segments.last().and_then(|segment| segment.header.last).is_some_and(|last| *first <= last) {
            // Its records were copied into the segment before; only its removal was interrupted.
            scan.leftovers.push(layout::segment_path(*first));
            continue;
        }
        let mut reader = SegmentReader::open(disk, dir, *first, entry)?;
        reader.check_order(scan.segments.last())?;
        let ending = reader.frames(&mut scan.index, visit)?;
        reader.check_closed(scan.segments.last(), endings.last(), position + 1 == files.len())?;
        endings.push(ending);
        scan.segments.push(reader.segment);
    }
    check_ending(&mut scan, &endings, dir)?;
    Ok(scan)
}

/// Sorts the folder's names: segments in order, leftovers, and what does not belong here.
fn classify(disk: &mut dyn Disk, dir: &Path, leftovers: &mut Vec<String>) -> Result<Vec<(Slot, Entry)>, StoreError> {
    let folder = dir.join(LOG_FOLDER);
    let entries = disk.list(LOG_FOLDER).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::NoLog { dir: dir.to_owned() },
        _ => StoreError::io(&folder, "list", &error),
    })?;
    let mut segments = Vec::new();
    for entry in entries {
        match layout::log_name(&entry.name) {
            Named::Segment(first) if entry.file => segments.push((first, entry)),
            Named::Unfinished if entry.file => leftovers.push(format!("{LOG_FOLDER}/{}", entry.name)),
            _ => return Err(StoreError::ForeignFile { file: folder.join(entry.name) }),
        }
    }
    segments.sort_by_key(|(first, _)| *first);
    Ok(segments)
}

/// Every log has a segment that begins with slot 1. Whoever believed a listing that leaves it out would begin the log
/// anew, in its place.
fn check_empty(disk: &mut dyn Disk, dir: &Path) -> Result<(), StoreError> {
    let path = layout::segment_path(Slot(1));
    match disk.read(&path, 0, 1) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io(dir.join(&path), "read", &error)),
        Ok(_) => Err(StoreError::MissingFile {
            file: dir.join(LOG_FOLDER),
            slot: Some(Slot(1)),
            detail: format!("the folder's listing leaves out `{path}`, which can be read under its name"),
        }),
    }
}

/// What must hold at the end of the newest segment.
fn check_ending(scan: &mut Scan, endings: &[Ending], dir: &Path) -> Result<(), StoreError> {
    let (Some(newest), Some(ending)) = (scan.segments.last(), endings.last()) else { return Ok(()) };
    let file = dir.join(newest.path());
    match ending {
        Ending::Open => {}
        Ending::Torn => scan.tail = Tail::Torn { file, offset: newest.used, slot: newest.next },
        Ending::Rolled => {
            return Err(StoreError::MissingFile {
                file: dir.join(LOG_FOLDER),
                slot: Some(newest.next),
                detail: format!("`{}` ends with a mark that the log goes on in another file", newest.path()),
            });
        }
    }
    scan.empty_newest = newest.is_empty();
    Ok(())
}

/// One segment while it is read.
struct SegmentReader {
    file: PathBuf,
    bytes: Vec<u8>,
    segment: Segment,
}

impl SegmentReader {
    fn open(disk: &mut dyn Disk, dir: &Path, first: Slot, entry: &Entry) -> Result<SegmentReader, StoreError> {
        let path = layout::segment_path(first);
        let file = dir.join(&path);
        let read = |disk: &mut dyn Disk, len: usize| {
            disk.read(&path, 0, len).map_err(|error| StoreError::io(&file, "read", &error))
        };
        let head = read(disk, SECTOR)?;
        let header = Header::decode(&head).map_err(|fault| fault_error(fault, &file, 0, None, SEGMENT_VERSION))?;
        let corrupt = |detail: String| StoreError::corrupt(&file, 0, Some(first), detail);
        if header.first != first {
            return Err(corrupt(format!("its header names record {} as its first, its name another", header.first)));
        }
        if entry.len != header.capacity {
            let detail = format!("the file has {} bytes, its header says {}", entry.len, header.capacity);
            return Err(StoreError::corrupt(&file, entry.len.min(header.capacity), None, detail));
        }
        let bytes = read(disk, usize::try_from(header.capacity.min(MAX_SEGMENT)).unwrap_or(usize::MAX))?;
        if bytes.len() as u64 != header.capacity {
            return Err(StoreError::corrupt(
                &file,
                bytes.len() as u64,
                None,
                "the file became shorter while it was read",
            ));
        }
        let segment = Segment { header, next: first, used: SECTOR as u64, rolled: false, live: 0, dead: 0 };
        Ok(SegmentReader { file, bytes, segment })
    }

    /// Whether this segment begins where the one before it ended.
    fn check_order(&self, before: Option<&Segment>) -> Result<(), StoreError> {
        let first = self.segment.header.first;
        let Some(before) = before else {
            return if first == Slot(1) { Ok(()) } else { Err(self.missing(Slot(1), first)) };
        };
        if self.segment.header.log != before.header.log {
            return Err(StoreError::corrupt(&self.file, 40, Some(first), "this file is part of another log"));
        }
        if first > before.next {
            return Err(self.missing(before.next, first));
        }
        if first < before.next {
            let last = before.next.0 - 1;
            let detail = format!("the file before it goes up to record {last}, so two files claim this one");
            return Err(StoreError::corrupt(&self.file, 16, Some(first), detail));
        }
        Ok(())
    }

    /// Whether the segment before this one was closed, as it is before anything is written here. Without that mark only
    /// a newest segment without a whole frame is in order: either it was just made, or a recovery was about to drop it.
    fn check_closed(&self, before: Option<&Segment>, ending: Option<&Ending>, newest: bool) -> Result<(), StoreError> {
        let (Some(before), Some(ending)) = (before, ending) else { return Ok(()) };
        if *ending == Ending::Rolled || (*ending == Ending::Open && newest && self.segment.is_empty()) {
            return Ok(());
        }
        Err(StoreError::corrupt(
            self.file.with_file_name(layout::segment_name(before.header.first)),
            before.used,
            Some(before.next),
            "a later file holds records, but this one has no mark that it is closed",
        ))
    }

    fn missing(&self, from: Slot, first: Slot) -> StoreError {
        StoreError::MissingFile {
            file: self.file.parent().unwrap_or(&self.file).to_owned(),
            slot: Some(from),
            detail: format!(
                "records {from} to {} were not deleted, but the file that held them is not there",
                first.0.saturating_sub(1)
            ),
        }
    }

    fn frames(
        &mut self,
        index: &mut BTreeMap<Slot, Place>,
        visit: &mut dyn FnMut(Record) -> Result<(), StoreError>,
    ) -> Result<Ending, StoreError> {
        let ending = loop {
            let Some(sectors) = self.whole_frame()? else {
                break if self.rest_is_fill(self.at()) { Ending::Open } else { self.torn()? };
            };
            let (from, to) = (self.at(), self.at() + sectors * SECTOR);
            let frame = Frame::decode(&self.bytes[from..to]).map_err(|fault| {
                fault_error(fault, &self.file, from as u64, Some(self.segment.next), FORMAT_VERSION)
            })?;
            if frame.slot != self.segment.next {
                return Err(self.corrupt(from, format!("record {} stands where another should", frame.slot)));
            }
            if frame.kind == Kind::Roll {
                if !self.rest_is_fill(to) {
                    return Err(self.corrupt(to, "something follows the mark that the file is closed"));
                }
                self.segment.rolled = true;
                break Ending::Rolled;
            }
            self.take(&frame, sectors, index, visit)?;
            self.segment.used = to as u64;
        };
        let closed_at = self.segment.header.last;
        if closed_at.is_some_and(|last| ending != Ending::Rolled || last.0 + 1 != self.segment.next.0) {
            return Err(self.corrupt(24, "it does not end where its header says"));
        }
        Ok(ending)
    }

    /// Notes what a frame says.
    fn take(
        &mut self,
        frame: &Frame,
        sectors: usize,
        index: &mut BTreeMap<Slot, Place>,
        visit: &mut dyn FnMut(Record) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let at = self.at();
        match frame.kind {
            Kind::Record => {
                let record = record_of(frame).map_err(|detail| self.corrupt(at, detail))?;
                let place = Place { offset: at as u64, sectors, open: is_open(&record) };
                self.segment.live += place.bytes();
                index.insert(frame.slot, place);
                self.segment.next = frame.slot.next();
                visit(record)
            }
            Kind::Gap => {
                let last = frame.gap_last().map_err(|detail| self.corrupt(at, detail))?;
                self.check_log(frame.nonce, at)?;
                self.segment.next = last.next();
                Ok(())
            }
            Kind::Roll => Ok(()),
        }
    }

    fn check_log(&self, nonce: Nonce, at: usize) -> Result<(), StoreError> {
        if nonce == self.segment.header.log { Ok(()) } else { Err(self.corrupt(at, "a frame of another log")) }
    }

    /// How many sectors the frame here takes, if it is whole.
    fn whole_frame(&self) -> Result<Option<usize>, StoreError> {
        let at = self.at();
        let Sector::Good { index: 0, count, slot_low } = self.sector(at) else { return Ok(None) };
        if slot_low != self.segment.next.0 as u32 {
            return Ok(None);
        }
        let sectors = count as usize;
        if at + sectors * SECTOR > self.bytes.len() {
            return Err(self.corrupt(at, "a frame that reaches beyond the file's end"));
        }
        let whole = (0..count)
            .all(|index| self.sector(at + index as usize * SECTOR) == Sector::Good { index, count, slot_low });
        Ok(whole.then_some(sectors))
    }

    /// Decides between a write that a crash interrupted and damage: from here on every sector must be fill, or a good
    /// sector of the one frame that was being written, in its place.
    fn torn(&self) -> Result<Ending, StoreError> {
        let start = self.at();
        let slot_low = self.segment.next.0 as u32;
        let mut of = None;
        for (index, at) in (start..self.bytes.len()).step_by(SECTOR).enumerate() {
            match self.sector(at) {
                Sector::Fill => {}
                Sector::Good { index: found, count, slot_low: low }
                    if found as usize == index && low == slot_low && of.is_none_or(|of| of == count) =>
                {
                    of = Some(count);
                }
                Sector::Good { .. } => {
                    return Err(self.corrupt(at, "a piece of a record that does not belong here"));
                }
                Sector::Bad => {
                    let detail = "a sector that is neither as it was written nor unwritten; the record in it may have \
                                  been acknowledged";
                    return Err(self.corrupt(at, detail));
                }
            }
        }
        Ok(Ending::Torn)
    }

    fn at(&self) -> usize {
        // Offsets stay within the file, which is in memory.
        self.segment.used as usize
    }

    fn sector(&self, at: usize) -> Sector {
        codec::judge(&self.bytes[at.min(self.bytes.len())..])
    }

    fn rest_is_fill(&self, from: usize) -> bool {
        self.bytes[from.min(self.bytes.len())..].iter().all(|byte| *byte == 0)
    }

    fn corrupt(&self, at: usize, detail: impl Into<String>) -> StoreError {
        StoreError::corrupt(&self.file, at as u64, Some(self.segment.next), detail)
    }
}

/// The record in a frame.
pub(crate) fn record_of(frame: &Frame) -> Result<Record, String> {
    let record = codec::decode_record(&frame.payload)?;
    if record.slot != frame.slot || record.run.nonce != frame.nonce {
        return Err(format!("the frame is of record {}, what is in it of record {}", frame.slot, record.slot));
    }
    if record.format_version() > frame.version {
        return Err(format!("a record of version {} in a frame of version {}", record.format_version(), frame.version));
    }
    Ok(record)
}

/// Reads one record again. The slot is what the index says.
pub(crate) fn read_record(
    disk: &mut dyn Disk,
    dir: &Path,
    path: &str,
    slot: Slot,
    place: Place,
) -> Result<(Record, Vec<u8>), StoreError> {
    let file = dir.join(path);
    let sectors =
        disk.read(path, place.offset, place.sectors * SECTOR).map_err(|error| StoreError::io(&file, "read", &error))?;
    let record = record_in(&file, slot, place, &sectors)?;
    Ok((record, sectors))
}

/// Checks the sectors of one record and decodes it.
pub(crate) fn record_in(file: &Path, slot: Slot, place: Place, sectors: &[u8]) -> Result<Record, StoreError> {
    let damaged = |detail: String| StoreError::corrupt(file, place.offset, Some(slot), detail);
    if sectors.len() != place.sectors * SECTOR
        || sectors.chunks(SECTOR).any(|sector| codec::judge(sector) == Sector::Bad)
    {
        return Err(damaged("it is no longer what it was when the log was opened".to_owned()));
    }
    let frame =
        Frame::decode(sectors).map_err(|fault| fault_error(fault, file, place.offset, Some(slot), FORMAT_VERSION))?;
    if frame.slot != slot || frame.kind != Kind::Record {
        return Err(damaged(format!("record {} stands where another should", frame.slot)));
    }
    record_of(&frame).map_err(damaged)
}

fn fault_error(fault: FrameFault, file: &Path, offset: u64, slot: Option<Slot>, supported: u16) -> StoreError {
    match fault {
        FrameFault::Damaged(detail) => StoreError::corrupt(file, offset, slot, detail),
        FrameFault::Version(found) => StoreError::UnsupportedVersion { file: file.to_owned(), found, supported },
    }
}
