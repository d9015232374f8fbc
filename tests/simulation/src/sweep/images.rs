//! What a power cut may leave of a disk.
//!
//! Of up to ten things that were not flushed every subset is there or not; of more than that every prefix, every single
//! and pair loss, and a thousand drawn subsets. Each write that was not flushed is also torn: at every sector of 512 bytes
//! near its ends, and at every 4 KiB between, with all other things kept and with all of them lost.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tidegate_store::disk::sim::{Fate, Image, Op, SimDisk};

use super::trace::Loss;
use crate::dice::Dice;

const SECTOR: usize = 512;
/// Sectors of a page of 4 KiB.
const PAGE: usize = 8;
/// Up to so many things all subsets are built.
const ALL_SUBSETS: usize = 10;
const DRAWN: usize = 1_000;

/// One image, and what it lacks.
pub(crate) struct Left {
    pub(crate) image: Image,
    pub(crate) losses: Vec<Loss>,
}

/// Every image of a power cut that comes now, each once. `thorough`: all of them; else the corners, and some.
pub(crate) fn images(disk: &SimDisk, thorough: bool) -> Vec<Left> {
    let done = disk.ops();
    let mut made = Made { disk, done, trace: disk.trace(), seen: HashSet::new(), left: Vec::new() };
    let pending = disk.pending(done);
    for lost in subsets(&pending, thorough) {
        made.add(&lost.into_iter().map(|op| (op, Fate::Lost)).collect());
    }
    for op in &pending {
        let Op::Write { bytes, .. } = &made.trace[*op] else { continue };
        for fate in torn(bytes.len().div_ceil(SECTOR), thorough) {
            for others in [Fate::Kept, Fate::Lost] {
                let mut fates: BTreeMap<usize, Fate> = pending.iter().map(|other| (*other, others.clone())).collect();
                fates.insert(*op, fate.clone());
                made.add(&fates);
            }
        }
    }
    made.left
}

struct Made<'a> {
    disk: &'a SimDisk,
    done: usize,
    trace: Vec<Op>,
    seen: HashSet<u64>,
    left: Vec<Left>,
}

impl Made<'_> {
    fn add(&mut self, fates: &BTreeMap<usize, Fate>) {
        let image = self.disk.crash(self.done, |op| fates.get(&op).cloned().unwrap_or(Fate::Kept));
        let mut hasher = DefaultHasher::new();
        for path in image.paths() {
            (&path, image.file(&path)).hash(&mut hasher);
        }
        if !self.seen.insert(hasher.finish()) {
            return;
        }
        let losses = fates.iter().filter_map(|(op, fate)| self.loss(*op, fate)).collect();
        self.left.push(Left { image, losses });
    }

    fn loss(&self, op: usize, fate: &Fate) -> Option<Loss> {
        let of = match &self.trace[op] {
            Op::Write { bytes, .. } => bytes.len().div_ceil(SECTOR),
            _ => 0,
        };
        match (fate, &self.trace[op]) {
            (Fate::Kept, _) => None,
            (Fate::Lost, Op::Write { .. }) => Some(Loss::Write),
            (Fate::Lost, _) => Some(Loss::Name),
            (Fate::OnlySectors(range), _) => {
                Some(Loss::Torn { at: if range.start > 0 { range.start } else { range.end }, of })
            }
            (Fate::AllButSectors(range), _) => Some(Loss::Torn { at: range.start, of }),
        }
    }
}

/// Which of these are lost.
fn subsets(pending: &[usize], thorough: bool) -> Vec<Vec<usize>> {
    let chosen = |mask: u64| -> Vec<usize> {
        pending.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, op)| *op).collect()
    };
    if pending.len() <= ALL_SUBSETS {
        let all = 1u64 << pending.len();
        let step = if thorough { 1 } else { (all / 8).max(1) | 1 };
        return (0..all).step_by(step as usize).chain([all - 1]).map(chosen).collect();
    }
    let mut subsets = vec![Vec::new(), pending.to_vec()];
    let mut dice = Dice::new(pending.len() as u64).fork("subsets");
    for (at, one) in pending.iter().enumerate() {
        subsets.push(pending[at..].to_vec());
        subsets.push(vec![*one]);
        if thorough {
            subsets.extend(pending[at + 1..].iter().map(|other| vec![*one, *other]));
        }
    }
    for _ in 0..if thorough { DRAWN } else { 8 } {
        subsets.push(pending.iter().copied().filter(|_| dice.chance(50)).collect());
    }
    subsets
}

/// How a write of so many sectors can be torn.
fn torn(sectors: usize, thorough: bool) -> Vec<Fate> {
    // Only the file's length got there.
    let mut fates = vec![Fate::OnlySectors(0..0)];
    let near = if thorough { 9 } else { 2 };
    for at in (0..sectors).filter(|at| *at < near || at + 3 > sectors || (thorough && at % PAGE == 0)) {
        fates.extend([Fate::OnlySectors(0..at + 1), Fate::OnlySectors(at..sectors), Fate::AllButSectors(at..at + 1)]);
        if at % PAGE == 0 && sectors > PAGE {
            fates.extend([Fate::OnlySectors(0..at + PAGE), Fate::AllButSectors(at..at + PAGE)]);
        }
    }
    fates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_ten_things_are_lost_in_every_combination() {
        assert_eq!(subsets(&[1, 2, 3], true).into_iter().collect::<HashSet<_>>().len(), 8);
        let ten: Vec<usize> = (0..10).collect();
        assert_eq!(subsets(&ten, true).into_iter().collect::<HashSet<_>>().len(), 1024);
    }

    #[test]
    fn more_things_are_lost_by_prefix_one_by_one_in_pairs_and_by_draw() {
        let many: Vec<usize> = (0..14).collect();
        let all: HashSet<Vec<usize>> = subsets(&many, true).into_iter().collect();
        for at in 0..14 {
            assert!(all.contains(&many[at..]) && all.contains([at].as_slice()));
            assert!((at + 1..14).all(|other| all.contains([at, other].as_slice())));
        }
        assert!(all.len() > 900, "{}", all.len());
    }

    #[test]
    fn a_long_write_is_torn_at_sectors_and_pages() {
        let fates = torn(128, true);
        assert!((0..9).all(|at| fates.contains(&Fate::OnlySectors(0..at + 1))));
        assert!((0..16).all(|page| fates.contains(&Fate::OnlySectors(0..page * 8 + 8))));
    }
}
