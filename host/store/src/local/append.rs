//! Appending: one write and one flush per record, and once in a while a new segment.

use tidegate_protocol::event::AppendResult;
use tidegate_protocol::ids::{Nonce, Slot};
use tidegate_protocol::record::Record;

use super::scan::{self, Place, Segment};
use super::segment_file::write_segment;
use super::{FIRST_SEGMENT, LocalLog};
use crate::StoreError;
use crate::codec::{self, Frame, Header, SECTOR};
use crate::error::is_full;
use crate::memory::{SlotCheck, check_slot, gap_message, is_open, not_written};
use crate::state;

const SECTOR_BYTES: u64 = SECTOR as u64;

impl LocalLog {
    pub(super) fn append_record(&mut self, record: &Record) -> AppendResult {
        if let Err(error) = self.check_ours() {
            return not_written(error.to_string());
        }
        match check_slot(record.slot, self.next_slot().0 - 1) {
            SlotCheck::Free => {}
            SlotCheck::Used => return self.taken(record.slot),
            SlotCheck::Gap { next } => return not_written(gap_message(record.slot, next)),
        }
        let payload = match codec::encode_record(record) {
            Ok(payload) => payload,
            Err(error) => return not_written(error.to_string()),
        };
        if let Err(error) = self.put_pages(record) {
            let retryable = matches!(error, StoreError::Full { .. });
            return AppendResult::NotWritten { message: error.to_string(), retryable };
        }
        let sectors = Frame::record(record, payload).encode();
        if let Err(error) = self.make_room(record.run.nonce, sectors.len() as u64) {
            let retryable = matches!(error, StoreError::Full { .. });
            return AppendResult::NotWritten { message: error.to_string(), retryable };
        }
        self.write_frame(record, &sectors)
    }

    /// What the record names beside the log is durable before the record is.
    fn put_pages(&mut self, record: &Record) -> Result<(), StoreError> {
        let put = self.chunks.put_pages(&mut *self.disk, &self.dir, state::pages_of(record));
        put.map_err(|error| self.poison_unless_invalid(error))
    }

    fn taken(&mut self, slot: Slot) -> AppendResult {
        let Some(place) = self.index.get(&slot).copied() else {
            return not_written(format!("slot {slot} was used, and its record was deleted"));
        };
        let at = self.segments.partition_point(|segment| segment.header.first <= slot) - 1;
        let path = self.segments[at].path();
        match scan::read_record(&mut *self.disk, &self.dir, &path, slot, place) {
            Ok((record, _)) => AppendResult::Taken(Box::new(record)),
            Err(error) => {
                self.poison(&error);
                AppendResult::Unknown(error.to_string())
            }
        }
    }

    /// Writes behind the newest frame; there is room.
    fn write_frame(&mut self, record: &Record, sectors: &[u8]) -> AppendResult {
        let newest = self.segments.len() - 1;
        let (path, offset) = (self.segments[newest].path(), self.segments[newest].used);
        if let Err(error) = self.disk.write(&path, offset, sectors) {
            let full = is_full(&error);
            let error = self.error(&path, "write", &error);
            let cut_back = self.cut_back(&path, offset, sectors.len());
            if full && cut_back {
                return AppendResult::NotWritten { message: error.to_string(), retryable: true };
            }
            self.poison(&error);
            return AppendResult::Unknown(error.to_string());
        }
        if let Err(error) = self.disk.flush(&path) {
            // Not even for want of room may it be tried again: what the page cache shows from now on proves nothing.
            let error = self.error(&path, "flush", &error);
            self.poison(&error);
            return AppendResult::Unknown(error.to_string());
        }
        let place = Place { offset, sectors: sectors.len() / SECTOR, open: is_open(record) };
        let segment = &mut self.segments[newest];
        segment.used += place.bytes();
        segment.live += place.bytes();
        segment.next = record.slot.next();
        self.index.insert(record.slot, place);
        AppendResult::Created
    }

    /// Puts the fill back where a frame was written in part, so that the next frame meets what it expects.
    fn cut_back(&mut self, path: &str, offset: u64, len: usize) -> bool {
        self.disk.write(path, offset, &vec![0; len]).and_then(|()| self.disk.flush(path)).is_ok()
    }

    /// Sees to it that the newest segment has room for a frame of `len` bytes and for its closing frame behind it.
    fn make_room(&mut self, nonce: Nonce, len: u64) -> Result<(), StoreError> {
        let log = self.log.unwrap_or(nonce);
        let capacity = match self.segments.last() {
            Some(newest) if newest.used + len + SECTOR_BYTES <= newest.header.capacity => return Ok(()),
            Some(newest) => newest.header.capacity.saturating_mul(2),
            None => FIRST_SEGMENT,
        };
        let limit = self.options.segment_limit();
        let capacity = capacity.clamp(FIRST_SEGMENT.min(limit), limit).max(len + 2 * SECTOR_BYTES);
        let first = self.next_slot();
        let header = Header { first, last: None, capacity, log };
        let segment = Segment { header, next: first, used: SECTOR_BYTES, rolled: false, live: 0, dead: 0 };
        // The new file takes its space now: later writes meet no full disk, and change nothing but their own bytes.
        write_segment(&mut *self.disk, &self.dir, &header, |_| Ok(()))
            .map_err(|error| self.poison_unless_full(error))?;
        self.log = Some(log);
        self.close_newest(first, log)?;
        self.segments.push(segment);
        Ok(())
    }

    /// Marks the newest segment as closed, before anything is written to its successor: from then on a successor that is
    /// lost is missed.
    fn close_newest(&mut self, next: Slot, log: Nonce) -> Result<(), StoreError> {
        let Some((path, offset)) = self.segments.last().map(|segment| (segment.path(), segment.used)) else {
            return Ok(());
        };
        let sectors = Frame::roll(next, log).encode();
        let closed = self.disk.write(&path, offset, &sectors).and_then(|()| self.disk.flush(&path));
        if let Err(error) = closed {
            // Also for want of room: the successor is there already.
            let error = StoreError::Io { file: self.dir.join(&path), doing: "close", detail: error.to_string() };
            self.poison(&error);
            return Err(error);
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.rolled = true;
        }
        Ok(())
    }
}
