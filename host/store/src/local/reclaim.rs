//! Giving back the space of deleted records, by writing closed segments again without them.

use super::layout;
use super::scan::{self, Place, Segment};
use super::{LocalLog, segment_bytes, write_whole};
use crate::StoreError;
use crate::codec::{Frame, Header, SECTOR};
use tidegate_protocol::ids::Slot;

const SECTOR_BYTES: u64 = SECTOR as u64;

impl LocalLog {
    /// Reclaims when at least half of what the closed segments hold is dead, so that every byte that is copied is paid
    /// for by one that goes.
    ///
    /// All of them are gone through, in order of slots: a record that says that another is retired never goes before the
    /// one it speaks of.
    pub(super) fn reclaim(&mut self) -> Result<(), StoreError> {
        let closed = self.segments.len().saturating_sub(1);
        let (live, dead) =
            self.segments[..closed].iter().fold((0, 0), |(live, dead), s| (live + s.live, dead + s.dead));
        if dead < live || dead < self.options.segment_limit() / 4 {
            return Ok(());
        }
        let mut at = 0;
        while at + 1 < self.segments.len() {
            let group = self.group_at(at);
            let worthwhile = group > 1 || self.segments[at].dead > 0;
            if worthwhile && let Err(error) = self.rewrite(at, group) {
                return match self.poison_unless_full(error) {
                    // The deletion itself is done; the space comes back another time.
                    StoreError::Full { file, detail } => {
                        tracing::warn!(file = %file.display(), %detail, "no room to reclaim deleted records");
                        Ok(())
                    }
                    error => Err(error),
                };
            }
            at += 1;
        }
        Ok(())
    }

    /// How many closed segments from `at` on are put into one: those that have something dead or are small, as long as
    /// what remains of them fits.
    fn group_at(&self, at: usize) -> usize {
        let limit = self.options.segment_limit();
        let closed = &self.segments[at..self.segments.len() - 1];
        let mut total = 0;
        let fitting = closed.iter().take_while(|segment| {
            total += segment.live;
            (segment.dead > 0 || segment.live < limit / 4) && total <= limit
        });
        fitting.count().max(1)
    }

    /// Writes `count` segments from `at` on as one, without what was deleted.
    ///
    /// The new file takes the first one's name, and its header names its last slot; from then on the others do not
    /// count, whether their removal is completed or not.
    fn rewrite(&mut self, at: usize, count: usize) -> Result<(), StoreError> {
        let (first, end) = (self.segments[at].header.first, self.segments[at + count - 1].next);
        let log = self.segments[at].header.log;
        let (mut frames, mut moved) = (Vec::new(), Vec::new());
        let mut next = first;
        for segment in &self.segments[at..at + count] {
            let path = segment.path();
            let places: Vec<(Slot, Place)> =
                self.index.range(segment.header.first..segment.next).map(|(slot, place)| (*slot, *place)).collect();
            for (slot, place) in places {
                let (_, sectors) = scan::read_record(&mut *self.disk, &self.dir, &path, slot, place)?;
                if next < slot {
                    frames.extend(Frame::gap(next, Slot(slot.0 - 1), log).encode());
                }
                moved.push((slot, Place { offset: SECTOR_BYTES + frames.len() as u64, ..place }));
                frames.extend(sectors);
                next = slot.next();
            }
        }
        if next < end {
            frames.extend(Frame::gap(next, Slot(end.0 - 1), log).encode());
        }
        let used = SECTOR_BYTES + frames.len() as u64;
        frames.extend(Frame::roll(end, log).encode());
        let capacity = SECTOR_BYTES + frames.len() as u64;
        let header = Header { first, last: Some(Slot(end.0 - 1)), capacity, log };
        let live = moved.iter().map(|(_, place)| place.bytes()).sum();
        let merged = Segment { header, next: end, used, rolled: true, live, dead: 0 };
        write_whole(&mut *self.disk, &self.dir, &merged.path(), &segment_bytes(&header, &frames))?;

        self.index.extend(moved);
        let replaced: Vec<Segment> = self.segments.splice(at..at + count, [merged]).collect();
        for segment in &replaced[1..] {
            let path = layout::segment_path(segment.header.first);
            self.disk.remove(&path).map_err(|error| self.error(&path, "remove", &error))?;
        }
        Ok(())
    }
}
