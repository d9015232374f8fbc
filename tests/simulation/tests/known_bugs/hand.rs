//! A run of which every message is sent by hand: for messages that the tasks of this host never send.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_protocol::coordinator::{Coordinator, Settings};
use tidegate_protocol::event::{Effect, End, Event, Graph, SinkSpec, SourceProgress, SourceSpec};
use tidegate_protocol::ids::{Epoch, Nonce, PartId, PipelineId, RunId, SinkId, SourceId};
use tidegate_protocol::plugin::{Committable, External, OrphanPage, Position, Prepared};
use tidegate_protocol::record::{Binding, Body, CutReason, Record, Seal};
use tidegate_simulation::dest::Kind;
use tidegate_store::{Log, MemoryLog};

use crate::scene::sink_id;

/// One sink `out` with two participants, one source `rows` with one task.
pub(crate) struct Hand {
    coordinator: Coordinator,
    log: MemoryLog,
    /// What was asked for and is answered by nobody but the test.
    pub(crate) asked: Vec<Effect>,
}

pub(crate) const PARTICIPANTS: u32 = 2;

fn pipeline() -> PipelineId {
    PipelineId::new("by-hand").expect("a legal name")
}

impl Hand {
    /// A run that is ready to read.
    pub(crate) fn new(settings: Settings) -> Self {
        crate::scene::tell_broken_promises();
        let source = SourceSpec { tasks: 1, replayable: true, bounded: false };
        let binding = Binding {
            plugin: "sha256:p".to_owned(),
            plugin_name: "p 1".to_owned(),
            config: "{}".to_owned(),
            grants: "{}".to_owned(),
        };
        let sink = SinkSpec {
            participants: PARTICIPANTS,
            abilities: Kind::register().abilities(),
            committable_versions: vec![1],
            binding,
            dead_letter: false,
        };
        let graph = Graph {
            sources: BTreeMap::from([(SourceId::new("rows").expect("a legal name"), source)]),
            operators: BTreeMap::new(),
            sinks: BTreeMap::from([(sink_id("out"), sink)]),
            wiring: BTreeMap::new(),
        };
        let coordinator = Coordinator::new(pipeline(), graph, "f".to_owned(), settings, vec![], Nonce([7; 10]));
        let mut hand =
            Self { coordinator: coordinator.expect("an empty log"), log: MemoryLog::new(), asked: Vec::new() };
        hand.tell(Event::Start);
        hand
    }

    fn run(&self) -> RunId {
        self.coordinator.run().expect("the run is decided")
    }

    fn out() -> SinkId {
        sink_id("out")
    }

    /// One message, and everything that a driver would do at once because of it.
    pub(crate) fn tell(&mut self, event: Event) {
        for effect in self.coordinator.step(1_000, event) {
            match effect {
                Effect::Append { record } => {
                    let result = self.log.append(&record);
                    self.tell(Event::Appended { slot: record.slot, result });
                }
                Effect::Observe { sink, run } => {
                    // Fenced by whoever asks, as soon as there is a run.
                    let fence = self
                        .coordinator
                        .run()
                        .filter(|mine| *mine == run && self.coordinator.history().runs().contains_key(mine));
                    self.tell(Event::Observed { sink, result: Ok(Position { fence, ..Position::default() }) });
                }
                Effect::Fence { sink, run, .. } => {
                    let result = Ok(Position { fence: Some(run), ..Position::default() });
                    self.tell(Event::Fenced { sink, result });
                }
                Effect::ListOrphans { sink, .. } => {
                    self.tell(Event::OrphansListed { sink, result: Ok(OrphanPage::default()) })
                }
                Effect::OpenTasks(_) => self.tell(Event::TasksOpened),
                Effect::Notice(_)
                | Effect::Wait { .. }
                | Effect::IntentRecorded { .. }
                | Effect::InjectBarrier { .. }
                | Effect::PublishProgress { .. } => {}
                other => self.asked.push(other),
            }
        }
    }

    /// A barrier, and the source's answer to it: so many rows since the last one.
    pub(crate) fn cut(&mut self, epoch: u64, rows: u64) {
        self.tell(Event::Busy);
        self.tell(Event::BarrierDue { reason: CutReason::Interval });
        let moved = BTreeMap::from([("p0".to_owned(), (epoch * 10).to_string())]);
        self.tell(Event::SourceCut {
            source: SourceId::new("rows").expect("a legal name"),
            task: 0,
            epoch: Epoch(epoch),
            progress: SourceProgress { moved, rows, ..SourceProgress::default() },
        });
    }

    /// The answer of one participant to the barrier of an epoch, in which it took so many rows.
    pub(crate) fn answer(&self, ordinal: u32, epoch: u64, rows: u64, resources: &[&str]) -> Event {
        let part = PartId::mint(&pipeline(), &Self::out(), self.run(), Epoch(epoch), ordinal, 1);
        let external = |name: &&str| External { kind: "stream".to_owned(), name: (*name).to_owned(), expires_at: None };
        let prepared = Prepared {
            committable: Committable { part, version: 1, body: Bytes::new(), rows, expires_at: None },
            resources: resources.iter().map(external).collect(),
            state: None,
            rows,
            rejects: vec![],
        };
        Event::PartPrepared {
            sink: Self::out(),
            ordinal,
            epoch: Epoch(epoch),
            rows_in: rows,
            filtered: 0,
            rejected_in_write: 0,
            prepared: (rows > 0).then_some(prepared),
        }
    }

    /// A writer announces something for the part that it writes.
    pub(crate) fn announce(&mut self, epoch: u64, name: &str) {
        let part = PartId::mint(&pipeline(), &Self::out(), self.run(), Epoch(epoch), 1, 1);
        let resource = External { kind: "stream".to_owned(), name: name.to_owned(), expires_at: None };
        self.tell(Event::IntentAnnounced { request: 1, sink: Self::out(), part: Some(part), resource });
    }

    /// All commits that were asked for are answered well.
    pub(crate) fn commit_all(&mut self) {
        for effect in std::mem::take(&mut self.asked) {
            match effect {
                Effect::Commit(permit) => {
                    let outcomes = vec![tidegate_protocol::plugin::Outcome::Committed; permit.committables().len()];
                    self.tell(Event::CommitAnswered {
                        sink: permit.sink().clone(),
                        of: permit.of(),
                        attempt: permit.attempt(),
                        result: Ok(outcomes),
                    });
                }
                other => self.asked.push(other),
            }
        }
    }

    /// Every seal in the log.
    pub(crate) fn seals(&self) -> Vec<Seal> {
        let seal = |record: Record| match record.body {
            Body::Seal(seal) => Some(*seal),
            _ => None,
        };
        self.log.snapshot().into_iter().filter_map(seal).collect()
    }

    /// Names of what was asked to be released.
    pub(crate) fn released(&self) -> Vec<String> {
        let resources = self.asked.iter().filter_map(|effect| match effect {
            Effect::Release { resources, .. } => Some(resources),
            _ => None,
        });
        resources.flatten().map(|resource| resource.name.clone()).collect()
    }

    /// How the run ended, if it did.
    pub(crate) fn ended(&self) -> Option<&End> {
        self.asked.iter().find_map(|effect| match effect {
            Effect::End(end) => Some(end),
            _ => None,
        })
    }
}
