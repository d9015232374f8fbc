//! Giving back the space of deleted records, by writing closed segments again without them.

use std::collections::BTreeMap;

use tidegate_protocol::ids::Slot;

use super::scan::{self, Place, Segment};
use super::segment_file::write_segment;
use super::{LocalLog, layout};
use crate::StoreError;
use crate::codec::{Frame, Header, SECTOR};

const SECTOR_BYTES: u64 = SECTOR as u64;
/// A gap's end is all it holds, so one sector takes it.
const GAP_BYTES: u64 = SECTOR_BYTES;

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
        let group = &self.segments[at..at + count];
        let (first, end, log) = (group[0].header.first, group[count - 1].next, group[0].header.log);
        let plan = Plan::of(group, &self.index, end);
        let header = Header { first, last: Some(Slot(end.0 - 1)), capacity: plan.used + SECTOR_BYTES, log };
        write_segment(&mut *self.disk, &self.dir, &header, |pieces| {
            for step in &plan.steps {
                match step {
                    Step::Gap(from, to) => pieces.put(&Frame::gap(*from, *to, log).encode())?,
                    Step::Copy { slot, segment, from, to } => {
                        debug_assert_eq!(pieces.at(), to.offset, "record {slot}");
                        let path = group[*segment].path();
                        let (_, sectors) = scan::read_record(pieces.disk(), &self.dir, &path, *slot, *from)?;
                        pieces.put(&sectors)?;
                    }
                }
            }
            pieces.put(&Frame::roll(end, log).encode())
        })?;

        let moved = plan.steps.iter().filter_map(|step| match step {
            Step::Copy { slot, to, .. } => Some((*slot, *to)),
            Step::Gap(..) => None,
        });
        self.index.extend(moved);
        let live = group.iter().map(|segment| segment.live).sum();
        let merged = Segment { header, next: end, used: plan.used, rolled: true, live, dead: 0 };
        let replaced: Vec<Segment> = self.segments.splice(at..at + count, [merged]).collect();
        for segment in &replaced[1..] {
            let path = layout::segment_path(segment.header.first);
            self.disk.remove(&path).map_err(|error| self.error(&path, "remove", &error))?;
        }
        Ok(())
    }
}

/// What a segment will hold that replaces several.
struct Plan {
    steps: Vec<Step>,
    /// Where its closing frame will stand.
    used: u64,
}

enum Step {
    /// From the first to the last slot that is not there.
    Gap(Slot, Slot),
    /// One record, from the segment of that index within the group.
    Copy { slot: Slot, segment: usize, from: Place, to: Place },
}

impl Plan {
    fn of(group: &[Segment], index: &BTreeMap<Slot, Place>, end: Slot) -> Plan {
        let mut plan = Plan { steps: Vec::new(), used: SECTOR_BYTES };
        let mut next = group.first().map_or(end, |segment| segment.header.first);
        for (at, segment) in group.iter().enumerate() {
            for (slot, place) in index.range(segment.header.first..segment.next) {
                plan.gap(next, *slot);
                let to = Place { offset: plan.used, ..*place };
                plan.steps.push(Step::Copy { slot: *slot, segment: at, from: *place, to });
                plan.used += place.bytes();
                next = slot.next();
            }
        }
        plan.gap(next, end);
        plan
    }

    /// Slots from `next` on, up to the one before `slot`, are not there.
    fn gap(&mut self, next: Slot, slot: Slot) {
        if next < slot {
            self.steps.push(Step::Gap(next, Slot(slot.0 - 1)));
            self.used += GAP_BYTES;
        }
    }
}
