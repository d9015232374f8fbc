//! The destination itself: what it holds, and what each call does to it. Never panics and asserts nothing: it writes down
//! what happened, and the oracles judge.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidegate_protocol::ids::{Epoch, PartId, RunId};
use tidegate_protocol::plugin::{
    AtomicScope, Committable, ErrorKind, External, Orphan, OrphanPage, Orphans, Outcome, PluginError, Position,
};

use super::journal::{Did, Entry, Journal};
use super::kind::{Kind, Planted};
use crate::world::{Seq, World};

/// So many orphans are on one page of a listing.
const PAGE: usize = 3;

/// Rows and markers of one destination.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) kind: Kind,
    pub(super) world: World,
    pub(super) name: String,
    pub(super) held: Held,
    pub(super) journal: Journal,
    backups: Vec<(Seq, Held)>,
    commits: u64,
}

/// What goes back in time when a backup is restored.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    staged: BTreeMap<String, Staged>,
    /// What a reader sees, in order.
    visible: Vec<(String, Vec<Bytes>)>,
    markers: BTreeMap<String, Marker>,
    /// Commits so far.
    count: usize,
    last: Vec<PartId>,
    pub(super) fence: Option<RunId>,
    resources: BTreeSet<(String, String)>,
    foreign: u64,
}

#[derive(Debug, Clone)]
struct Staged {
    part: PartId,
    rows: Vec<Bytes>,
    at: u64,
    /// Commits that had been made when it was prepared.
    count: usize,
}

#[derive(Debug, Clone)]
struct Marker {
    at: u64,
    /// Its place among all commits.
    count: usize,
}

impl Held {
    pub(super) fn lose(&mut self, part: &PartId) {
        self.staged.remove(&part.short);
    }
}

impl Store {
    pub(super) fn new(name: &str, kind: Kind, world: World) -> Self {
        Self {
            kind,
            world,
            name: name.to_owned(),
            held: Held::default(),
            journal: Journal::default(),
            backups: Vec::new(),
            commits: 0,
        }
    }

    pub(super) fn fork(&self, world: &World) -> Self {
        Self {
            kind: self.kind.clone(),
            world: world.clone(),
            name: self.name.clone(),
            held: self.held.clone(),
            journal: self.journal.clone(),
            backups: self.backups.clone(),
            commits: self.commits,
        }
    }

    pub(super) fn write_down(&mut self, by: Option<RunId>, did: Did) -> Seq {
        let name = &self.name;
        let seq = self.world.note(|| {
            format!("{name}: {}{}", shown(&did), by.map_or(String::new(), |by| format!(" by run {}", by.number)))
        });
        self.journal.entries.push(Entry { seq, by, did });
        seq
    }

    /// Time passes: what has a term runs out.
    pub(super) fn pass_time(&mut self) {
        let now = self.world.elapsed_ms();
        let ttl = match (self.kind.prepared_ttl, self.kind.orphans) {
            (Some(ttl), Orphans::Expires(orphan)) => Some(ttl.min(orphan)),
            (ttl, _) => ttl,
        };
        if let Some(ttl) = ttl {
            let over = |staged: &Staged| staged.at.saturating_add(ttl) < now;
            let gone: Vec<String> = self
                .held
                .staged
                .iter()
                .filter(|(short, staged)| over(staged) && !self.held.markers.contains_key(*short))
                .map(|(short, _)| short.clone())
                .collect();
            for short in gone {
                if let Some(staged) = self.held.staged.remove(&short) {
                    self.held.resources.remove(&("staged".to_owned(), short));
                    self.write_down(None, Did::Expired { part: staged.part });
                }
            }
        }
        if let Some(kept) = self.kind.marker_retention {
            let gone: Vec<String> = self
                .held
                .markers
                .iter()
                .filter(|(_, marker)| marker.at.saturating_add(kept) < now)
                .map(|(short, _)| short.clone())
                .collect();
            if !gone.is_empty() {
                self.held.markers.retain(|short, _| !gone.contains(short));
                self.write_down(None, Did::MarkersForgotten { shorts: gone, foreign: false });
            }
        }
    }

    fn fenced_out(&mut self, run: RunId, call: &'static str) -> bool {
        let out = self.kind.fence
            && self.kind.planted != Some(Planted::NoFence)
            && self.held.fence.is_some_and(|fence| fence != run);
        if out {
            self.write_down(Some(run), Did::Refused { call });
        }
        out
    }

    pub(super) fn begin(&mut self, run: RunId, part: &PartId) {
        self.pass_time();
        self.write_down(Some(run), Did::Began { part: part.clone() });
    }

    /// Rows of a destination that does not stage.
    pub(super) fn show_early(&mut self, run: RunId, part: &PartId, rows: &[Bytes]) {
        if self.kind.staging || rows.is_empty() {
            return;
        }
        self.held.visible.push((part.short.clone(), rows.to_vec()));
        self.write_down(
            Some(run),
            Did::Visible { part: part.clone(), rows: rows.to_vec(), early: true, step: vec![part.clone()] },
        );
    }

    pub(super) fn prepare(&mut self, run: RunId, part: &PartId, rows: Vec<Bytes>, resources: &[External]) {
        self.pass_time();
        let at = self.world.elapsed_ms();
        self.held.resources.extend(resources.iter().map(|r| (r.kind.clone(), r.name.clone())));
        let staged = Staged { part: part.clone(), rows: rows.clone(), at, count: self.held.count };
        self.held.staged.insert(part.short.clone(), staged);
        self.write_down(
            Some(run),
            Did::Staged { part: part.clone(), rows: rows.clone(), resources: resources.to_vec() },
        );
        if self.kind.planted == Some(Planted::VisibleWhenPrepared) {
            self.held.visible.push((part.short.clone(), rows.clone()));
            self.write_down(
                Some(run),
                Did::Visible { part: part.clone(), rows, early: false, step: vec![part.clone()] },
            );
        }
    }

    pub(super) fn expires_at(&self) -> Option<u64> {
        self.kind.prepared_ttl.map(|ttl| crate::world::EPOCH_MS + self.world.elapsed_ms() + ttl)
    }

    fn position(&self) -> Position {
        let mut token = self.held.count as u64;
        token = token.wrapping_add(self.held.foreign << 32);
        let last = match self.kind.planted {
            Some(Planted::ObserveForgets) => Vec::new(),
            _ => self.held.last.clone(),
        };
        Position {
            fence: self.held.fence.filter(|_| self.kind.fence),
            last,
            token: Bytes::copy_from_slice(&token.to_be_bytes()),
        }
    }

    pub(super) fn observe(&mut self, run: RunId) -> Position {
        self.pass_time();
        let position = self.position();
        self.write_down(Some(run), Did::Observed { position: position.clone() });
        position
    }

    pub(super) fn fence(&mut self, run: RunId, expected: &Position) -> Result<Position, PluginError> {
        self.pass_time();
        let position = self.position();
        if position != *expected || self.held.fence.is_some_and(|fence| fence > run) {
            self.write_down(Some(run), Did::Refused { call: "fence" });
            // It lost the compare-and-set; whoever is newer shows when one looks again.
            let kind = if self.held.fence > Some(run) { ErrorKind::Fenced } else { ErrorKind::Retryable };
            return Err(PluginError {
                kind,
                code: "moved".into(),
                message: "the destination is not where it was".into(),
            });
        }
        let from = self.held.fence.replace(run);
        self.write_down(Some(run), Did::Fenced { from, position });
        Ok(self.position())
    }

    /// `only` limits how many are really done.
    pub(super) fn commit(
        &mut self,
        run: RunId,
        config: &str,
        previous: &[PartId],
        committables: &[Committable],
        only: Option<usize>,
    ) -> Vec<Outcome> {
        self.pass_time();
        let parts: Vec<PartId> = committables.iter().map(|c| c.part.clone()).collect();
        self.write_down(
            Some(run),
            Did::CommitCalled { parts: parts.clone(), previous: previous.to_vec(), config: config.to_owned() },
        );
        if self.fenced_out(run, "commit") {
            return vec![Outcome::Fenced; parts.len()];
        }
        self.commits += 1;
        let drops = self.kind.planted == Some(Planted::DropsCommits) && self.commits.is_multiple_of(3);
        match self.kind.scope {
            AtomicScope::Sink => self.commit_step(run, &parts, drops),
            AtomicScope::Participant => {
                let limit = only.unwrap_or(parts.len());
                let mut outcomes = Vec::new();
                for (number, part) in parts.iter().enumerate() {
                    outcomes.push(match number < limit {
                        true => {
                            self.commit_step(run, std::slice::from_ref(part), drops).pop().unwrap_or(Outcome::Unknown)
                        }
                        false => Outcome::Unknown,
                    });
                }
                outcomes
            }
        }
    }

    /// One atomic step: all or nothing.
    fn commit_step(&mut self, run: RunId, parts: &[PartId], drops: bool) -> Vec<Outcome> {
        let known = |part: &PartId| self.held.markers.contains_key(&part.short);
        let repeats = self.kind.idempotent && self.kind.planted != Some(Planted::NotIdempotent);
        if repeats && parts.iter().all(known) {
            for part in parts {
                self.write_down(Some(run), Did::KnownAlready { part: part.clone() });
            }
            return vec![Outcome::AlreadyCommitted; parts.len()];
        }
        let missing: Vec<PartId> =
            parts.iter().filter(|part| !self.held.staged.contains_key(&part.short)).cloned().collect();
        if self.kind.staging && !missing.is_empty() {
            for part in &missing {
                self.write_down(Some(run), Did::NothingToCommit { part: part.clone() });
            }
            // What has expired can be committed by nobody any more.
            let outcome = match self.kind.prepared_ttl {
                Some(_) => Outcome::Never,
                None => Outcome::Rejected(PluginError {
                    kind: ErrorKind::Permanent,
                    code: "not-there".into(),
                    message: "nothing is prepared under this name".into(),
                }),
            };
            return vec![outcome; parts.len()];
        }
        let now = self.world.elapsed_ms();
        self.held.count += 1;
        for part in parts {
            self.held.markers.insert(part.short.clone(), Marker { at: now, count: self.held.count });
            self.write_down(Some(run), Did::Marked { part: part.clone() });
            let rows = match self.kind.keeps_prepared() {
                true => self.held.staged.get(&part.short).map(|staged| staged.rows.clone()),
                false => self.held.staged.remove(&part.short).map(|staged| staged.rows),
            };
            let shown_before = !self.kind.staging || self.kind.planted == Some(Planted::VisibleWhenPrepared);
            if let Some(rows) = rows.filter(|_| !shown_before && !drops) {
                self.held.visible.push((part.short.clone(), rows.clone()));
                self.write_down(
                    Some(run),
                    Did::Visible { part: part.clone(), rows, early: false, step: parts.to_vec() },
                );
            }
        }
        self.held.last = match self.kind.scope {
            AtomicScope::Sink => parts.to_vec(),
            AtomicScope::Participant => {
                let mut last = std::mem::take(&mut self.held.last);
                last.retain(|old| !parts.iter().any(|new| new.ordinal == old.ordinal));
                last.extend(parts.iter().cloned());
                last.sort_by_key(|part| part.ordinal);
                last
            }
        };
        vec![Outcome::Committed; parts.len()]
    }

    pub(super) fn reconcile(&mut self, run: RunId, committables: &[Committable]) -> Vec<Outcome> {
        self.pass_time();
        let outcomes: Vec<Outcome> = committables.iter().map(|committable| self.became_of(&committable.part)).collect();
        let parts = committables.iter().map(|committable| committable.part.clone());
        self.write_down(Some(run), Did::Asked { answers: parts.zip(outcomes.iter().cloned()).collect() });
        outcomes
    }

    fn became_of(&self, part: &PartId) -> Outcome {
        let kept = |count: usize| self.kind.history_kept.is_none_or(|kept| count + kept > self.held.count);
        match self.held.markers.get(&part.short) {
            Some(marker) if kept(marker.count) => Outcome::AlreadyCommitted,
            Some(_) => Outcome::Unknown,
            // Its absence proves something only if the history reaches back to its prepare.
            None => match self.held.staged.get(&part.short) {
                Some(staged) if kept(staged.count + 1) => Outcome::NotCommitted,
                _ if self.kind.history_kept.is_some() || self.kind.marker_retention.is_some() => Outcome::Unknown,
                _ => Outcome::NotCommitted,
            },
        }
    }

    pub(super) fn abandon(&mut self, run: RunId, part: &PartId, resources: &[External]) -> Outcome {
        self.pass_time();
        if self.fenced_out(run, "abandon") {
            return Outcome::Fenced;
        }
        let was_committed = self.held.markers.contains_key(&part.short);
        let was_staged = !was_committed && self.held.staged.remove(&part.short).is_some();
        if self.kind.planted == Some(Planted::AbandonsCommitted) {
            self.lose_epoch(part.epoch);
        }
        if !was_committed {
            for resource in resources {
                self.held.resources.remove(&(resource.kind.clone(), resource.name.clone()));
            }
        }
        let resources = if was_committed { Vec::new() } else { resources.to_vec() };
        self.write_down(Some(run), Did::Abandoned { short: part.short.clone(), was_staged, was_committed, resources });
        if was_staged { Outcome::Committed } else { Outcome::AlreadyCommitted }
    }

    /// Removes all that was ever staged under this number, whoever did, from where it is now.
    fn lose_epoch(&mut self, epoch: Epoch) {
        for entry in &self.journal.entries {
            if let Did::Staged { part, .. } = &entry.did
                && part.epoch == epoch
            {
                self.held.staged.remove(&part.short);
                self.held.visible.retain(|(short, _)| *short != part.short);
            }
        }
    }

    pub(super) fn release(&mut self, run: RunId, resource: &External) -> Outcome {
        if self.fenced_out(run, "release") {
            return Outcome::Fenced;
        }
        let was_there = self.held.resources.remove(&(resource.kind.clone(), resource.name.clone()));
        if resource.kind == "staged" {
            self.held.staged.remove(&resource.name);
        }
        self.write_down(Some(run), Did::Released { resource: resource.clone(), was_there });
        if was_there { Outcome::Committed } else { Outcome::AlreadyCommitted }
    }

    /// What was released last.
    pub(super) fn released_last(&self) -> Option<External> {
        self.journal.entries.iter().rev().find_map(|entry| match &entry.did {
            Did::Released { resource, .. } => Some(resource.clone()),
            _ => None,
        })
    }

    pub(super) fn list_orphans(&mut self, prefix: &str, page: Option<&str>) -> OrphanPage {
        self.pass_time();
        let all: Vec<&Staged> = self
            .held
            .staged
            .iter()
            .filter(|(short, _)| short.starts_with(prefix) && page.is_none_or(|page| short.as_str() > page))
            .map(|(_, staged)| staged)
            .take(PAGE + 1)
            .collect();
        let orphan = |staged: &&Staged| Orphan {
            short: staged.part.short.clone(),
            resource: External { kind: "staged".into(), name: staged.part.short.clone(), expires_at: None },
            bytes: Some(staged.rows.iter().map(|row| row.len() as u64).sum()),
        };
        let orphans: Vec<Orphan> = all.iter().take(PAGE).map(orphan).collect();
        let next = (all.len() > PAGE).then(|| orphans.last().map(|orphan| orphan.short.clone())).flatten();
        OrphanPage { orphans, next }
    }

    /// Keeps a copy of everything, to go back to.
    pub(super) fn back_up(&mut self) {
        let name = &self.name;
        let seq = self.world.note(|| format!("{name}: a backup is made"));
        self.backups.push((seq, self.held.clone()));
    }

    /// Goes back to the newest copy; false if there is none.
    pub(super) fn go_back(&mut self) -> bool {
        let Some((to, held)) = self.backups.pop() else { return false };
        self.held = held;
        self.write_down(None, Did::WentBack { to });
        true
    }

    /// A program that knows nothing of Tidegate writes.
    pub(super) fn foreign_write(&mut self) {
        self.held.foreign += 1;
        let name = &self.name;
        self.world.note(|| format!("{name}: a foreign program writes"));
        if !self.kind.marker_survives_foreign_writers {
            let shorts: Vec<String> = std::mem::take(&mut self.held.markers).into_keys().collect();
            self.held.last.clear();
            self.write_down(None, Did::MarkersForgotten { shorts, foreign: true });
        }
    }

    /// What a reader sees: parts in order, with their rows.
    pub(super) fn visible(&self) -> Vec<(String, Vec<Bytes>)> {
        self.held.visible.clone()
    }

    pub(super) fn has_marker(&self, short: &str) -> bool {
        self.held.markers.contains_key(short)
    }

    pub(super) fn staged(&self) -> Vec<String> {
        self.held.staged.keys().cloned().collect()
    }
}

fn names<'a>(parts: impl Iterator<Item = &'a PartId>) -> String {
    parts.map(name).collect::<Vec<_>>().join(" ")
}

/// Short for people: run, epoch and participant.
fn name(part: &PartId) -> String {
    format!("r{}e{}p{}", part.run.number, part.epoch, part.ordinal)
}

fn shown(did: &Did) -> String {
    match did {
        Did::Began { part } => format!("begin {}", name(part)),
        Did::Restored { range, states } => format!("opened for {range:?} with {} states", states.len()),
        Did::Staged { part, rows, .. } => format!("prepared {} with {} rows", name(part), rows.len()),
        Did::Visible { part, rows, early, .. } => {
            format!("{} rows of {} can be seen{}", rows.len(), name(part), if *early { " early" } else { "" })
        }
        Did::CommitCalled { parts, previous, .. } => {
            format!("commit {} after {}", names(parts.iter()), names(previous.iter()))
        }
        Did::Sent { parts } => format!("commit of {} is on its way", names(parts.iter())),
        Did::Asked { answers } => {
            let answers = answers.iter().map(|(part, answer)| format!("{}: {answer:?}", name(part)));
            format!("asked, {}", answers.collect::<Vec<_>>().join(", "))
        }
        Did::Haunted { call } => format!("{call} of a dead instance"),
        Did::Refused { call } => format!("{call} refused, fenced"),
        Did::Marked { part } => format!("marked {}", name(part)),
        Did::KnownAlready { part } => format!("{} was committed before", name(part)),
        Did::NothingToCommit { part } => format!("{} is not there", name(part)),
        Did::Fenced { from, .. } => {
            format!("fenced, before {}", from.map_or("nobody".to_owned(), |from| format!("run {}", from.number)))
        }
        Did::Observed { position } => format!("observed at {}", names(position.last.iter())),
        Did::Abandoned { short, was_staged, was_committed, .. } => {
            format!("abandoned {short} (staged: {was_staged}, committed: {was_committed})")
        }
        Did::Released { resource, was_there } => {
            format!("released {} {} (there: {was_there})", resource.kind, resource.name)
        }
        Did::Expired { part } => format!("{} expired", name(part)),
        Did::MarkersForgotten { shorts, foreign } => {
            format!("{} markers forgotten{}", shorts.len(), if *foreign { " through a foreign writer" } else { "" })
        }
        Did::WentBack { to } => format!("put back to what it held at #{to}"),
        Did::Lied { parts, how } => format!("lied about {}: {how}", names(parts.iter())),
    }
}
