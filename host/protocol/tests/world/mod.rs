//! A tiny world around coordinators: a log, destinations, hosts that crash, linger as zombies and lose answers.
//! Everything is drawn from one seed.

#![allow(dead_code, unreachable_pub, clippy::result_large_err)]

pub mod destination;
pub mod drive;
pub mod host;
pub mod records;
pub mod rng;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use destination::Destination;
use tidegate_protocol::coordinator::Settings;
use tidegate_protocol::event::{AppendResult, Graph, SinkSpec, SourceSpec};
use tidegate_protocol::history::History;
use tidegate_protocol::ids::{Epoch, EpochRef, PipelineId, RunId, SinkId, Slot, SourceId};
use tidegate_protocol::plugin::{Abilities, AtomicScope, Orphans, Visibility};
use tidegate_protocol::positions::Positions;
use tidegate_protocol::record::{Binding, Body, Record, StateChunk};

pub fn pipeline() -> PipelineId {
    PipelineId::new("p").expect("a legal name")
}

pub fn sink(name: &str) -> SinkId {
    SinkId::new(name).expect("a legal name")
}

pub fn source() -> SourceId {
    SourceId::new("in").expect("a legal name")
}

pub fn abilities() -> Abilities {
    Abilities {
        staging: true,
        idempotent_commit: true,
        marker_retention: None,
        marker_survives_foreign_writers: true,
        observe: true,
        fence: true,
        reconcile: true,
        atomic_scope: AtomicScope::Sink,
        visibility: Visibility::WholeEpoch,
        max_open_epochs: 100,
        upsert_keys: false,
        prepared_ttl: None,
        max_idle: None,
        names_per_day: None,
        orphans: Orphans::Listable,
    }
}

pub fn binding() -> Binding {
    let text = str::to_owned;
    Binding { plugin: text("sha256:00"), plugin_name: text("model 1"), config: text("{}"), grants: text("[]") }
}

pub fn spec(participants: u32, abilities: Abilities) -> SinkSpec {
    SinkSpec { participants, abilities, committable_versions: vec![1], binding: binding(), dead_letter: false }
}

pub fn graph(tasks: u32, sinks: Vec<(SinkId, SinkSpec)>) -> Graph {
    let source_spec = SourceSpec { tasks, replayable: true, bounded: true };
    Graph {
        sources: BTreeMap::from([(source(), source_spec)]),
        operators: BTreeMap::new(),
        sinks: sinks.into_iter().collect(),
        wiring: BTreeMap::new(),
    }
}

pub fn settings() -> Settings {
    Settings { commit_tries: 5, backoff_base_ms: 1, backoff_max_ms: 8, retain_count: 2, ..Settings::default() }
}

/// The log that all hosts share: create-if-absent.
#[derive(Default)]
pub struct SharedLog {
    pub records: BTreeMap<Slot, Record>,
    pub deleted: BTreeSet<Slot>,
    pub sealed: BTreeSet<String>,
    /// Pages of positions, beside the log.
    pub pages: BTreeMap<StateChunk, Vec<u8>>,
    /// At every seal, deleted ones too: of each sink and sampled key the epoch that its owner prepared last.
    pub said: BTreeMap<EpochRef, BTreeMap<(SinkId, u32), Epoch>>,
    /// The newest seal of each run, or what it descends from.
    tips: BTreeMap<RunId, Option<EpochRef>>,
}

/// Keys at which states are compared: both ends, and all edges of up to four ranges.
pub fn sampled_keys() -> impl Iterator<Item = u32> {
    (0..=12u64).map(|twelfth| ((1u64 << 32) * twelfth / 12).min(u64::from(u32::MAX)) as u32)
}

impl SharedLog {
    pub fn append(&mut self, record: &Record) -> AppendResult {
        if let Some(found) = self.records.get(&record.slot) {
            return AppendResult::Taken(Box::new(found.clone()));
        }
        if self.deleted.contains(&record.slot) || record.slot <= self.deleted.last().copied().unwrap_or(Slot(0)) {
            return AppendResult::NotWritten { message: "the slot is in the past".to_owned(), retryable: false };
        }
        let newest = self.records.keys().next_back().copied().unwrap_or(Slot(0));
        assert_eq!(record.slot, newest.next(), "a record was written with a gap before it");
        let mut kept = record.clone();
        if let Body::Seal(seal) = &mut kept.body {
            for cut in seal.sources.values_mut() {
                self.keep(&cut.partitions);
                cut.partitions.unload();
            }
        }
        self.records.insert(record.slot, kept);
        self.follow(record);
        if let Body::Seal(seal) = &record.body {
            let committables = seal.sinks.values().flat_map(|cut| &cut.parts).filter_map(|p| p.committable.as_ref());
            self.sealed.extend(committables.map(|committable| committable.part.short.clone()));
        }
        AppendResult::Created
    }

    /// Keeps account of who said what last.
    fn follow(&mut self, record: &Record) {
        match &record.body {
            Body::Open(open) => _ = self.tips.insert(record.run, open.parent),
            Body::Seal(seal) => {
                let before = self.tips.get(&record.run).copied().flatten();
                let mut said = before.and_then(|of| self.said.get(&of)).cloned().unwrap_or_default();
                for (sink, part) in
                    seal.sinks.iter().flat_map(|(sink, cut)| cut.parts.iter().map(move |part| (sink, part)))
                {
                    let owned = sampled_keys().filter(|key| part.range.first <= *key && *key <= part.range.last);
                    if part.committable.is_some() {
                        said.extend(owned.map(|key| ((sink.clone(), key), seal.epoch)));
                    }
                }
                let of = EpochRef { run: record.run, epoch: seal.epoch };
                self.said.insert(of, said);
                self.tips.insert(record.run, Some(of));
            }
            _ => {}
        }
    }

    /// What is in memory is put beside the log; what is not must be there.
    fn keep(&mut self, positions: &Positions) {
        for page in positions.pages() {
            match page.bytes() {
                Some(bytes) => _ = self.pages.insert(page.name().clone(), bytes),
                None => assert!(self.pages.contains_key(page.name()), "a seal names a page that is gone: {page:?}"),
            }
        }
    }

    /// Reads what positions need and is not in memory.
    pub fn load(&self, positions: &Positions) {
        for page in positions.missing() {
            let bytes = self.pages.get(page.name()).unwrap_or_else(|| panic!("{page:?} is needed and gone"));
            page.fill(bytes).expect("the page that was kept");
        }
    }

    /// Deletes all pages but these.
    pub fn retain_pages(&mut self, named: &BTreeSet<StateChunk>) {
        for chunk in named {
            assert!(self.pages.contains_key(chunk), "a retained checkpoint names a page that is gone: {chunk:?}");
        }
        self.pages.retain(|chunk, _| named.contains(chunk));
    }

    pub fn all(&self) -> Vec<Record> {
        self.records.values().cloned().collect()
    }

    pub fn fold(&self) -> History {
        History::fold(self.records.values()).unwrap_or_else(|error| {
            let lines: Vec<String> =
                self.records.values().map(|r| format!("{} {} {:?}", r.slot, r.run.number, r)).collect();
            panic!("the log contradicts itself: {error}\n{}", lines.join("\n"))
        })
    }

    pub fn delete(&mut self, slots: &[Slot]) {
        for slot in slots {
            if let Some(record) = self.records.remove(slot) {
                assert!(!matches!(record.body, Body::Open(_) | Body::Decision(_)), "{slot} must stay");
                self.deleted.insert(*slot);
            }
        }
    }

    /// Seals that no `retire` record names and that are still there.
    pub fn retained(&self) -> Vec<(EpochRef, &Record)> {
        let retired: BTreeSet<EpochRef> = self
            .records
            .values()
            .filter_map(|record| if let Body::Retire(retire) = &record.body { Some(retire.of.clone()) } else { None })
            .flatten()
            .collect();
        let seals = self.records.values().filter_map(|record| match &record.body {
            Body::Seal(seal) => Some((EpochRef { run: record.run, epoch: seal.epoch }, record)),
            _ => None,
        });
        seals.filter(|(of, _)| !retired.contains(of)).collect()
    }
}

pub struct World {
    pub log: SharedLog,
    pub destinations: BTreeMap<SinkId, Destination>,
    /// How many streams of rows there are. Whatever the number of source tasks is, one task reads each.
    pub streams: u32,
    /// How many partitions each stream has, read in turn. With more than one their positions are long, so that they do
    /// not stay in the records.
    pub partitions: u64,
    /// Writers have state: the epoch that they prepared last. What they are told of it is compared.
    pub states: bool,
}

pub fn body_bytes() -> Bytes {
    Bytes::from_static(b"c")
}
