//! A log written by hand, record by record.

use std::collections::BTreeMap;

use tidegate_protocol::history::{History, HistoryErrorKind};
use tidegate_protocol::ids::{Epoch, EpochRef, KeyRange, Nonce, PartId, RunId, SinkId, Slot};
use tidegate_protocol::plugin::{Committable, External};
use tidegate_protocol::record::{
    Body, Choice, CutReason, Decision, Deleted, EpochOutcome, Intent, Open, OperatorCut, OutcomeEntry, PartCut, Record,
    Released, Retire, Seal, SinkCut, SlotRange, StateRef,
};

use super::host::staged_file;
use super::{binding, body_bytes, pipeline, sink};

pub struct Hand {
    pub history: History,
    pub records: Vec<Record>,
    pub run: RunId,
}

pub fn run(number: u64) -> RunId {
    RunId { number, nonce: Nonce([number as u8; 10]) }
}

pub fn file(name: &str) -> External {
    staged_file(name)
}

pub fn open(parent: Option<EpochRef>) -> Open {
    Open { pipeline: pipeline(), parent, observed: BTreeMap::new(), under: Vec::new(), product: "1".to_owned() }
}

pub fn committed(at: &str, of: EpochRef) -> OutcomeEntry {
    OutcomeEntry { sink: sink(at), of, attempt: 1, outcome: EpochOutcome::Committed }
}

pub fn decision(id: &str, choice: Choice) -> Body {
    Body::Decision(Decision { id: id.to_owned(), by: "me".to_owned(), choice })
}

pub fn intent(number: u64, part: Option<&PartId>, epoch: u64, name: &str) -> Intent {
    let part = part.map(|part| part.short.clone());
    Intent { number, sink: sink("a"), part, epoch: Epoch(epoch), resource: file(name) }
}

pub fn released(names: &[&str]) -> Body {
    Body::Released(Released { sink: sink("a"), resources: names.iter().map(|name| file(name)).collect() })
}

pub fn deleted(ranges: &[(u64, u64)]) -> Body {
    let range = |(first, last): &(u64, u64)| SlotRange { first: Slot(*first), last: Slot(*last) };
    Body::Deleted(Deleted { gone: ranges.iter().map(range).collect() })
}

/// What one subtask that owns every key keeps.
pub fn operator_cut(rows_in: u64, rows_out: u64) -> OperatorCut {
    OperatorCut {
        range: KeyRange::ALL,
        version: 1,
        state: StateRef::Inline(body_bytes()),
        timers: Vec::new(),
        watermark: None,
        rows_in,
        rows_out,
    }
}

impl Hand {
    /// A log with its first run open.
    pub fn new() -> Self {
        let mut hand = Self { history: History::default(), records: Vec::new(), run: run(1) };
        hand.add(Body::Open(open(None)));
        hand
    }

    pub fn of(&self, epoch: u64) -> EpochRef {
        EpochRef { run: self.run, epoch: Epoch(epoch) }
    }

    pub fn part(&self, at: &str, epoch: u64, ordinal: u32) -> PartId {
        PartId::mint(&pipeline(), &sink(at), self.run, Epoch(epoch), ordinal, 1)
    }

    /// One participant's share of an epoch, with one file.
    pub fn part_cut(&self, at: &str, epoch: u64) -> PartCut {
        let part = self.part(at, epoch, 0);
        PartCut {
            ordinal: 0,
            range: KeyRange::ALL,
            resources: vec![file(&part.short)],
            committable: Some(Committable { part, version: 1, body: body_bytes(), rows: 1, expires_at: None }),
            state: Vec::new(),
            rows_in: 1,
            rows: 1,
            rejected: 0,
            filtered: 0,
        }
    }

    /// A seal of one row at each of these sinks.
    pub fn seal(&self, epoch: u64, sinks: &[&str]) -> Seal {
        let cut = |at: &&str| (sink(at), SinkCut { binding: binding(), parts: vec![self.part_cut(at, epoch)] });
        Seal {
            epoch: Epoch(epoch),
            reason: CutReason::Interval,
            graph: "graph".to_owned(),
            sources: BTreeMap::new(),
            operators: BTreeMap::new(),
            sinks: sinks.iter().map(cut).collect::<BTreeMap<SinkId, SinkCut>>(),
        }
    }

    pub fn record(&self, body: Body) -> Record {
        let slot = self.history.next_slot();
        Record { slot, run: self.run, written_at: slot.0 * 1_000, outcomes: Vec::new(), body }
    }

    /// Writes a record that can stand there; returns its slot.
    pub fn add(&mut self, body: Body) -> Slot {
        self.add_with(Vec::new(), body)
    }

    pub fn add_with(&mut self, outcomes: Vec<OutcomeEntry>, body: Body) -> Slot {
        let record = Record { outcomes, ..self.record(body) };
        self.put(record)
    }

    pub fn put(&mut self, record: Record) -> Slot {
        self.history.apply(&record).unwrap_or_else(|error| panic!("a record that can stand there: {error}"));
        self.records.push(record.clone());
        record.slot
    }

    /// Seals an epoch at sink `a`.
    pub fn sealed(&mut self, epoch: u64) -> EpochRef {
        self.add(Body::Seal(Box::new(self.seal(epoch, &["a"]))));
        self.of(epoch)
    }

    pub fn committed(&mut self, of: EpochRef) {
        self.add_with(vec![committed("a", of)], Body::Outcomes);
    }

    pub fn opened(&mut self, number: u64, open: Open) {
        self.run = run(number);
        self.add(Body::Open(open));
    }

    pub fn retired(&mut self, of: EpochRef) -> Slot {
        self.add(Body::Retire(Retire { of: vec![of] }))
    }

    /// Why a record cannot stand there. Being asked about it, and being given it, leave no trace.
    pub fn refuses(&self, record: &Record) -> HistoryErrorKind {
        let mut tried = self.history.clone();
        let asked = tried.check(record).expect_err("it cannot stand there");
        let given = tried.apply(record).expect_err("it cannot stand there");
        assert_eq!(asked, given);
        assert_eq!(given.slot, record.slot);
        assert!(given.to_string().starts_with(&format!("record {}: ", record.slot)), "{given}");
        assert!(tried == self.history, "a refused record leaves no trace");
        given.kind
    }

    pub fn refuses_body(&self, body: Body) -> HistoryErrorKind {
        self.refuses(&self.record(body))
    }

    pub fn refuses_with(&self, outcomes: Vec<OutcomeEntry>) -> HistoryErrorKind {
        self.refuses(&Record { outcomes, ..self.record(Body::Outcomes) })
    }

    /// What a fold of the records that are left says.
    pub fn folded(&self) -> History {
        let left = self.records.iter().filter(|record| !self.history.is_gone(record.slot));
        History::fold(left).unwrap_or_else(|error| panic!("what is left is a log: {error}"))
    }

    /// Two committed epochs, of which the first was retired, released and deleted.
    pub fn with_a_deleted_epoch() -> (Self, EpochRef, EpochRef) {
        let mut hand = Self::new();
        let first = hand.sealed(1);
        let second = hand.sealed(2);
        hand.committed(first);
        hand.committed(second);
        hand.retired(first);
        hand.add(released(&[&hand.part("a", 1, 0).short]));
        let (gone, _) = hand.history.expendable();
        hand.add(Body::Deleted(Deleted { gone }));
        assert!(hand.history.seal(first).is_none() && hand.history.seal(second).is_some());
        (hand, first, second)
    }
}
