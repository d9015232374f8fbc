//! Where an execution stood when it was disturbed: what the facts before it add up to.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_pipeline::observe::Moment;
use tidegate_protocol::ids::{PartId, RunId};
use tidegate_protocol::plugin::Call;

use super::effect::{Between, Category, DiskOp, Mode, Phase, What};
use super::trace::{Appended, Fact, Host, Kind, Site, Stage};

/// One call, as far as it is.
pub(crate) struct Known<'a> {
    pub(crate) site: &'a Site,
    pub(crate) stage: Stage,
    pub(crate) done: bool,
    pub(crate) answered: Option<bool>,
}

impl Known<'_> {
    /// The host waits for it.
    fn open(&self) -> bool {
        self.answered.is_none() && self.stage != Stage::Dropped
    }
}

/// An execution with its disturbance, and the sums of what was before.
pub(crate) struct View<'a> {
    pub(crate) facts: &'a [Fact],
    /// Where the disturbance is among them.
    pub(crate) at: usize,
    pub(crate) what: &'a What,
    pub(crate) mode: Mode,
    /// Epochs that are sealed without rows when nothing is disturbed.
    pub(crate) empty: &'a BTreeSet<u64>,
    calls: BTreeMap<u64, Known<'a>>,
    sealed: BTreeMap<u64, bool>,
    cutting: Option<u64>,
    committed: BTreeSet<(usize, u64)>,
    unrecorded: bool,
    retiring: bool,
    rejected: bool,
    read: BTreeMap<usize, u64>,
}

impl<'a> View<'a> {
    /// `None` if nothing was disturbed.
    pub(crate) fn new(facts: &'a [Fact], empty: &'a BTreeSet<u64>) -> Option<Self> {
        let at = facts.iter().position(|fact| matches!(fact, Fact::Disturbed { .. }))?;
        let Fact::Disturbed { what, mode, .. } = &facts[at] else { return None };
        let mut view = View {
            facts,
            at,
            what,
            mode: *mode,
            empty,
            calls: BTreeMap::new(),
            sealed: BTreeMap::new(),
            cutting: None,
            committed: BTreeSet::new(),
            unrecorded: false,
            retiring: false,
            rejected: false,
            read: BTreeMap::new(),
        };
        facts[..at].iter().for_each(|fact| view.take_in(fact));
        Some(view)
    }

    fn take_in(&mut self, fact: &'a Fact) {
        match fact {
            Fact::Moment(_, Moment::Preparing) => {
                let newest = self.sealed.keys().next_back().copied().unwrap_or(0);
                self.cutting = Some(newest + 1);
            }
            Fact::Append { kind, stage: Some(Appended::Created), outcomes, .. } => {
                if *outcomes > 0 {
                    self.unrecorded = false;
                }
                match kind {
                    Kind::Seal { epoch, empty } => {
                        self.sealed.insert(*epoch, *empty);
                        self.cutting = None;
                        self.rejected = false;
                    }
                    Kind::Retire => self.retiring = true,
                    _ => {}
                }
            }
            Fact::Disk { op: DiskOp::FlushFolder | DiskOp::Remove, .. } | Fact::Life(_) => {}
            Fact::Committed { sink, epoch, .. } => {
                self.committed.insert((*sink, *epoch));
                self.unrecorded = true;
            }
            Fact::Rejected(_) => self.rejected = true,
            Fact::Read { task, rows, .. } => *self.read.entry(*task).or_default() += rows,
            Fact::Call { site, stage, .. } => {
                let known = self.calls.entry(site.id).or_insert_with(|| Known {
                    site,
                    stage: *stage,
                    done: false,
                    answered: None,
                });
                known.stage = *stage;
                match stage {
                    Stage::Done(true) => known.done = true,
                    Stage::Answered(ok) => known.answered = Some(*ok),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    pub(crate) fn category(&self) -> Category {
        self.mode.category()
    }

    pub(crate) fn later(&self) -> &'a [Fact] {
        &self.facts[self.at + 1..]
    }

    /// A call of this kind is disturbed, at this point of it.
    pub(crate) fn is_call(&self, wanted: Call, when: impl Fn(Phase) -> bool) -> bool {
        matches!(self.what, What::Call { call, phase, .. } if *call == wanted && when(*phase))
    }

    pub(crate) fn is_disk(&self, wanted: DiskOp) -> bool {
        matches!(self.what, What::Disk { op, .. } if *op == wanted)
    }

    /// The epoch whose barrier was sent and which is not sealed.
    pub(crate) fn cutting(&self) -> Option<u64> {
        self.cutting
    }

    fn of_epoch(&self, epoch: u64, call: Call) -> impl Iterator<Item = &Known<'a>> {
        self.calls.values().filter(move |known| known.site.is(call) && known.site.epoch() == Some(epoch))
    }

    /// No row of this epoch has reached a destination.
    pub(crate) fn unwritten(&self, epoch: u64) -> bool {
        !self.of_epoch(epoch, Call::Write).any(|known| known.done)
    }

    /// So many participants' prepares of this epoch are answered well, and so many are not answered.
    pub(crate) fn prepared(&self, epoch: u64) -> (usize, usize) {
        let asked: Vec<_> = self.of_epoch(epoch, Call::Prepare).collect();
        let answered = asked.iter().filter(|known| known.answered == Some(true)).count();
        (answered, asked.len() - answered)
    }

    /// So many participants have begun this epoch.
    pub(crate) fn begun(&self, epoch: u64) -> usize {
        self.of_epoch(epoch, Call::Begin).count()
    }

    /// Sealed with rows, and no commit of it has arrived at some sink.
    pub(crate) fn sealed_not_sent(&self) -> bool {
        let Some((epoch, false)) = self.sealed.iter().next_back() else { return false };
        !self.of_epoch(*epoch, Call::Commit).any(|known| known.stage != Stage::Asked)
    }

    /// Sealed with rows, and not known to be committed everywhere.
    pub(crate) fn sealed_not_committed(&self, sinks: usize) -> bool {
        self.sealed
            .iter()
            .any(|(epoch, empty)| !empty && (0..sinks).any(|sink| !self.committed.contains(&(sink, *epoch))))
    }

    /// One sink has committed an epoch and another has not.
    pub(crate) fn between_sinks(&self) -> bool {
        let newest = self.committed.iter().map(|(_, epoch)| *epoch).max();
        newest.is_some_and(|epoch| {
            let at: BTreeSet<usize> = self
                .calls
                .values()
                .filter(|known| known.site.is(Call::Prepare) && known.site.epoch() == Some(epoch))
                .map(|known| known.site.sink)
                .collect();
            at.iter().any(|sink| !self.committed.contains(&(*sink, epoch))) && at.len() > 1
        })
    }

    /// A commit is known, and no record says so.
    pub(crate) fn outcome_not_recorded(&self) -> bool {
        self.unrecorded
    }

    /// A checkpoint was given up in this run, and what belongs to it is being taken away.
    pub(crate) fn retiring(&self) -> bool {
        self.retiring
    }

    /// A row of the epoch under way was rejected.
    pub(crate) fn has_rejects(&self) -> bool {
        self.rejected
    }

    /// A task of the source has read nothing while another one has.
    pub(crate) fn idle_partition(&self) -> bool {
        self.read.values().any(|rows| *rows == 0) && self.read.values().any(|rows| *rows > 0)
    }

    /// A commit is under way while a later epoch is written.
    pub(crate) fn overlapping(&self) -> bool {
        let committing = self.calls.values().filter(|known| known.site.is(Call::Commit) && known.open());
        let oldest = committing.filter_map(|known| known.site.epoch()).min();
        oldest.is_some_and(|epoch| {
            let writes = |known: &Known<'_>| matches!(known.site.call, Call::Begin | Call::Write | Call::Prepare);
            self.calls.values().any(|known| writes(known) && known.site.epoch() > Some(epoch))
        })
    }

    /// What was staged and not sealed.
    pub(crate) fn staged_not_sealed(&self) -> bool {
        let staged = |known: &&Known<'_>| known.site.is(Call::Prepare) && known.done;
        self.calls
            .values()
            .filter(staged)
            .any(|known| known.site.epoch().is_some_and(|e| !self.sealed.contains_key(&e)))
    }

    /// A log was read without records that it has.
    pub(crate) fn left_out(&self) -> bool {
        self.later().iter().any(|fact| matches!(fact, Fact::LeftOut(_)))
    }

    pub(crate) fn changed(&self, wanted: Between) -> bool {
        self.later().iter().any(|fact| matches!(fact, Fact::Changed(between) if *between == wanted))
    }

    /// Calls of this kind with the place of each stage.
    pub(crate) fn calls(&self, wanted: Call) -> impl Iterator<Item = (usize, Host, &'a Site, Stage)> {
        self.facts.iter().enumerate().filter_map(move |(at, fact)| match fact {
            Fact::Call { host, site, stage } if site.call == wanted => Some((at, *host, site, *stage)),
            _ => None,
        })
    }

    /// Late requests of this kind, with their place.
    pub(crate) fn late(&self, wanted: Call) -> impl Iterator<Item = (usize, &'a Site)> {
        self.facts.iter().enumerate().filter_map(move |(at, fact)| match fact {
            Fact::Late { site, .. } if site.call == wanted => Some((at, site)),
            _ => None,
        })
    }

    /// The newest run that was decided before this place.
    pub(crate) fn newest_run(&self, before: usize) -> Option<RunId> {
        let opened = self.facts[..before].iter().filter_map(|fact| match fact {
            Fact::Opened(_, run) => Some(*run),
            _ => None,
        });
        opened.max()
    }

    /// Prepared before this place.
    pub(crate) fn was_prepared(&self, part: &PartId, before: usize) -> bool {
        self.calls(Call::Prepare)
            .any(|(at, _, site, stage)| at < before && stage == Stage::Done(true) && site.about(part))
    }

    /// Abandons that arrived, also late.
    pub(crate) fn abandons(&self) -> Vec<(usize, &'a PartId)> {
        let here = self.calls(Call::Abandon).filter(|(.., stage)| matches!(stage, Stage::Done(_)));
        let here = here.map(|(at, _, site, _)| (at, site)).chain(self.late(Call::Abandon));
        here.flat_map(|(at, site)| site.parts.iter().map(move |part| (at, part))).collect()
    }

    /// An epoch of this number was sealed before this place.
    pub(crate) fn seal_before(&self, epoch: u64, before: usize) -> bool {
        self.facts[..before].iter().any(|fact| {
            matches!(fact, Fact::Append { kind: Kind::Seal { epoch: e, .. }, stage: Some(Appended::Created), .. } if *e == epoch)
        })
    }

    /// Orphans were looked for while a prepare of the same sink was under way.
    pub(crate) fn sweep_meets_prepare(&self) -> bool {
        let mut preparing: BTreeMap<u64, usize> = BTreeMap::new();
        for fact in self.facts {
            let Fact::Call { site, stage, .. } = fact else { continue };
            match (site.call, stage) {
                (Call::Prepare, Stage::Asked) => {
                    preparing.insert(site.id, site.sink);
                }
                (Call::Prepare, Stage::Done(_) | Stage::Answered(_) | Stage::Dropped) => {
                    preparing.remove(&site.id);
                }
                (Call::ListOrphans | Call::Abandon, Stage::Arrived)
                    if preparing.values().any(|sink| *sink == site.sink) =>
                {
                    return true;
                }
                _ => {}
            }
        }
        false
    }
}
