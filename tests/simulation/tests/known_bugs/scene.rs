//! A simulated pipeline with its destinations and its log, through as many lives of its host as a scenario needs.

use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use tidegate_pipeline::Blocking;
use tidegate_pipeline::observe::{Moment, Observer};
use tidegate_pipeline::run::{Control, Env, RunReport, run};
use tidegate_pipeline::spec::Pipeline;
use tidegate_protocol::event::{End, Notice};
use tidegate_protocol::history::History;
use tidegate_protocol::ids::{EpochRef, Nonce, PartId, SinkId};
use tidegate_protocol::record::Blocked;
use tidegate_simulation::crash::Crash;
use tidegate_simulation::dest::{Destination, Did, Kind};
use tidegate_simulation::dice::Dice;
use tidegate_simulation::host::{Do, Ended, Life, Numbers, SinkSpec, Spec, Told};
use tidegate_simulation::oracle::{Evidence, judge};
use tidegate_simulation::person;
use tidegate_simulation::source::{Mark, Pace, Rows, SimSource};
use tidegate_simulation::store::SimStore;
use tidegate_simulation::world::{Seq, World};

/// What is done at the nth time that a moment is passed.
pub(crate) type Plan = Vec<(Moment, u64, Do)>;

pub(crate) const PARTITIONS: u32 = 2;
pub(crate) const ROWS: u32 = 200;

pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) dice: Dice,
    pub(crate) store: SimStore,
    pub(crate) spec: Spec,
    /// What was told, life by life.
    pub(crate) told: Vec<Told>,
}

pub(crate) fn sink_id(name: &str) -> SinkId {
    SinkId::new(name).expect("a legal name")
}

/// So many good rows in each of so many partitions.
pub(crate) fn good_rows(partitions: u32, rows: u32) -> Rows {
    Rows { marks: vec![vec![Mark::Good; rows as usize]; partitions as usize], keys: 11 }
}

impl Scene {
    /// One sink `out` of this kind with two participants, fed by two partitions.
    pub(crate) fn of(kind: Kind) -> Self {
        Self::with(vec![("out", kind)])
    }

    /// The strongest kind of destination.
    pub(crate) fn register() -> Self {
        Self::of(Kind::register())
    }

    /// Several sinks, each with a destination of its own.
    pub(crate) fn with(sinks: Vec<(&str, Kind)>) -> Self {
        tell_broken_promises();
        let dice = Dice::new(4);
        let world = World::new(&dice, 2, true);
        let source = SimSource::new(&world, good_rows(PARTITIONS, ROWS), Pace { batch: 5, pause_ms: 8 }, &dice);
        let sink = |(name, kind): (&str, Kind)| SinkSpec {
            id: sink_id(name),
            destination: Destination::new(&world, name, kind),
            subtasks: 2,
            by_key: false,
        };
        let spec = Spec {
            id: Spec::name("known-bugs").expect("a legal name"),
            source,
            tasks: PARTITIONS,
            columns: false,
            operator: None,
            sinks: sinks.into_iter().map(sink).collect(),
            dead_letter: None,
            settings: Numbers::default(),
        };
        Self { store: SimStore::object(&world), world, dice, spec, told: Vec::new() }
    }

    /// Other rows than those that [`Scene::of`] gives.
    pub(crate) fn rows(mut self, rows: Rows) -> Self {
        self.spec.source = SimSource::new(&self.world, rows, Pace { batch: 5, pause_ms: 8 }, &self.dice);
        self
    }

    pub(crate) fn out(&self) -> &Destination {
        &self.spec.sinks[0].destination
    }

    /// One life, up to its end or the planned one.
    pub(crate) async fn live(&mut self, plan: Plan) -> Ended {
        let mut life = Life::new(&self.spec, &self.store);
        life.plan = plan;
        let (ended, told) = life.live(&self.world, &self.dice).await;
        self.told.push(told);
        ended
    }

    /// A life that ends with the death of its host.
    pub(crate) async fn live_until_crash(&mut self, moment: Moment, nth: u64) {
        let ended = self.live(vec![(moment, nth, Do::Crash)]).await;
        self.claim(matches!(ended, Ended::Died), &format!("the host dies, and not: {ended:?}"));
    }

    /// A life that ends when its host dies of what a script does.
    pub(crate) async fn live_until_death(&mut self) {
        let ended = self.live(vec![]).await;
        self.claim(matches!(ended, Ended::Died), &format!("the host dies, and not: {ended:?}"));
    }

    /// A life that ends in good order.
    pub(crate) async fn live_to_end(&mut self) -> End {
        match self.live(vec![]).await {
            Ended::Report(report) => report.end,
            ref other => self.fail(&format!("P6: a start goes on or ends in a named refusal, and not: {other:?}")),
        }
    }

    /// A life that reads everything and commits it.
    pub(crate) async fn finish(&mut self) {
        let end = self.live_to_end().await;
        self.claim(end == End::Finished, &format!("P6: what is left is read and committed, and not: {end:?}"));
    }

    /// A life of a pipeline that is not quite what the kit makes, with nothing planned.
    pub(crate) async fn live_changed(&mut self, change: impl FnOnce(&mut Pipeline)) -> RunReport {
        let host = Crash::new();
        let mut pipeline = self.spec.pipeline(&host).expect("legal names");
        change(&mut pipeline);
        let log = self.store.open(&host, &self.spec.id).expect("the log opens");
        let heard = Arc::new(Heard { world: self.world.clone(), notices: Mutex::default() });
        let nonces = Mutex::new(self.dice.fork(&format!("nonces {}", self.world.seq())));
        let nonce = move || {
            let mut dice = nonces.lock().unwrap_or_else(PoisonError::into_inner);
            let mut bytes = [0; 10];
            bytes[..8].copy_from_slice(&dice.draw().to_be_bytes());
            Nonce(bytes)
        };
        let env = Env {
            clock: Arc::new(self.world.clone()),
            nonce: Box::new(nonce),
            control: Control::default(),
            observer: Arc::clone(&heard) as Arc<dyn Observer>,
            blocking: Blocking::Inline,
        };
        let report = tokio::time::timeout(Duration::from_secs(600), run(pipeline, log, env)).await;
        host.now();
        let notices = std::mem::take(&mut *heard.notices.lock().unwrap_or_else(PoisonError::into_inner));
        self.told.push(Told { notices, ..Told::default() });
        match report {
            Ok(Ok(report)) => report,
            other => self.fail(&format!("P6: a start goes on or ends in a named refusal, and not: {other:?}")),
        }
    }

    /// Two hosts of the same pipeline on the same log; the second starts so many milliseconds after the first.
    pub(crate) async fn live_beside(&mut self, delay_ms: u64) -> [Ended; 2] {
        let one = Life::new(&self.spec, &self.store);
        let other = Life::new(&self.spec, &self.store);
        let (dice, others) = (self.dice.fork("one"), self.dice.fork("other"));
        let later = async {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            other.live(&self.world, &others).await
        };
        let ((one, told), (other, told_too)) = tokio::join!(one.live(&self.world, &dice), later);
        self.told.extend([told, told_too]);
        [one, other]
    }

    /// Another pipeline of this name with the same rows and the same destinations, and a log of its own.
    pub(crate) fn beside(&self, name: &str) -> Self {
        let mut spec = self.spec.clone();
        spec.id = Spec::name(name).expect("a legal name");
        let (world, dice) = (self.world.clone(), self.dice.fork(name));
        Self { store: SimStore::object(&world), world, dice, spec, told: Vec::new() }
    }

    /// What the log means now.
    pub(crate) fn history(&self) -> History {
        person::look(&self.store, &self.spec.id).expect("the log is readable")
    }

    /// Decides about a blocked epoch.
    pub(crate) fn resolve(&self, id: &str, sink: &SinkId, of: EpochRef, retry: bool) {
        let done = person::resolve(&self.world, &self.store, &self.spec.id, id, (sink, of), retry);
        self.claim(done, "the decision is taken");
    }

    /// The epochs that wait for a person at the end of a life.
    pub(crate) fn blocked(&self, end: &End) -> Vec<(SinkId, EpochRef, Blocked)> {
        match end {
            End::Blocked { waiting } => waiting.clone(),
            other => self.fail(&format!("P4: a person is asked, and not: {other:?}")),
        }
    }

    pub(crate) fn claim(&self, holds: bool, what: &str) {
        if !holds {
            self.fail(what);
        }
    }

    pub(crate) fn fail(&self, what: &str) -> ! {
        let trace = self.world.trace();
        for line in trace.iter().rev().take(120).rev() {
            eprintln!("{line}");
        }
        panic!("{what}");
    }

    /// Whether one of the warnings holds these words.
    pub(crate) fn was_warned_of(&self, words: &str) -> usize {
        self.notices(|notice| matches!(notice, Notice::Warning(text) if text.contains(words)))
    }

    /// How many notices of this sort were told.
    pub(crate) fn notices(&self, sort: impl Fn(&Notice) -> bool) -> usize {
        self.told.iter().flat_map(|told| &told.notices).filter(|(_, notice)| sort(notice)).count()
    }

    /// How often each row can be seen at a destination.
    pub(crate) fn seen(&self, destination: &Destination) -> BTreeMap<String, u32> {
        let mut seen = BTreeMap::new();
        for row in destination.visible().into_iter().flat_map(|(_, rows)| rows) {
            *seen.entry(String::from_utf8_lossy(&row).into_owned()).or_default() += 1;
        }
        seen
    }

    pub(crate) fn expected(&self) -> BTreeSet<String> {
        let rows = self.spec.source.rows();
        rows.all().filter(|row| rows.mark(*row) == Mark::Good).map(|row| rows.text(row)).collect()
    }

    /// Everything was read, and every promise holds: each row is seen once at every sink, above all.
    pub(crate) fn assert_each_row_once(&self) {
        for sink in &self.spec.sinks {
            let seen = self.seen(&sink.destination);
            let expected = self.expected();
            let lost = expected.iter().filter(|row| !seen.contains_key(*row)).count();
            let twice = seen.values().filter(|count| **count > 1).count();
            let strange = seen.keys().filter(|row| !expected.contains(*row)).count();
            let words = format!("P1 at `{}`: {lost} rows lost, {twice} twice, {strange} from nowhere", sink.id);
            self.claim((lost, twice, strange) == (0, 0, 0), &words);
        }
        self.assert_promises(true);
    }

    /// What the kit's oracles find. `finished`: everything was read and is committed.
    pub(crate) fn assert_promises(&self, finished: bool) {
        let mut evidence = Evidence::gather(&self.spec, self.store.journal(), self.told.clone(), None);
        evidence.finished = finished;
        let violations = judge(&evidence);
        let words: Vec<String> = violations.iter().take(5).map(ToString::to_string).collect();
        self.claim(violations.is_empty(), &words.join("\n"));
    }

    /// The parts that ever waited at a destination for their commit.
    pub(crate) fn staged_parts(&self, destination: &Destination) -> Vec<PartId> {
        let journal = destination.journal();
        let staged = journal.entries.iter().filter_map(|entry| match &entry.did {
            Did::Staged { part, .. } => Some(part.clone()),
            _ => None,
        });
        staged.collect()
    }

    /// How many things of this sort were done to a destination.
    pub(crate) fn count(&self, destination: &Destination, sort: impl Fn(&Did) -> bool) -> usize {
        destination.journal().entries.iter().filter(|entry| sort(&entry.did)).count()
    }
}

/// A failed test says in a line for machines which promise it found broken: its words begin with it.
#[expect(clippy::print_stdout, reason = "who looks for planted bugs reads it there")]
pub(crate) fn tell_broken_promises() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let words = info.payload_as_str().unwrap_or_default();
            if let Some(promise) = broken_promise(words) {
                let test = std::thread::current().name().unwrap_or_default().to_owned();
                println!("{}", serde_json::json!({ "promise": promise, "test": test, "what": words }));
            }
            before(info);
        }));
    });
}

fn broken_promise(words: &str) -> Option<&str> {
    let words =
        words.split_once("failed: ").filter(|(before, _)| before.starts_with("assertion")).map_or(words, |w| w.1);
    let end = words.find([':', ' ', '\n']).unwrap_or(words.len());
    let promise = words.get(..end)?;
    let number: u32 = promise.strip_prefix('P')?.parse().ok()?;
    (1..=12).contains(&number).then_some(promise)
}

#[test]
fn the_words_of_a_failure_name_its_promise() {
    assert_eq!(broken_promise("P1 at `out`: 3 rows lost"), Some("P1"));
    assert_eq!(broken_promise("assertion `left == right` failed: P9\n  left: 1"), Some("P9"));
    assert_eq!(broken_promise("as the simulation wants it"), None);
    assert_eq!(broken_promise("P13: there is none"), None);
}

struct Heard {
    world: World,
    notices: Mutex<Vec<(Seq, Notice)>>,
}

impl Observer for Heard {
    fn notice(&self, notice: &Notice) {
        let seq = self.world.note(|| format!("told: {notice:?}"));
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).push((seq, notice.clone()));
    }
}
