//! One life of a host: the production pipeline from its start to its end, or to the instant at which the host dies.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_pipeline::Blocking;
use tidegate_pipeline::observe::{Moment, Observer};
use tidegate_pipeline::operator::OperatorEntry;
use tidegate_pipeline::run::{Control, Env, RunError, RunReport, run_keeping};
use tidegate_pipeline::spec::{OnBadRow, Pipeline, Route, Settings, SinkEntry, SinkShape, SourceEntry};
use tidegate_protocol::coordinator;
use tidegate_protocol::event::{End, Notice};
use tidegate_protocol::guarantee::{self, Guarantee, Ingredients, SinkPromise, SourcePromise, StepPromise, Times};
use tidegate_protocol::ids::{EpochRef, InvalidId, Nonce, OperatorId, PipelineId, SinkId, SourceId};
use tidegate_protocol::plugin::Encoding;
use tidegate_protocol::record::Binding;
use tidegate_store::StoreError;

use crate::crash::Crash;
use crate::dest::Destination;
use crate::dice::Dice;
use crate::operator::Counter;
use crate::source::SimSource;
use crate::store::SimStore;
use crate::world::{Seq, World};

/// A sink of a simulated pipeline.
#[derive(Debug, Clone)]
pub struct SinkSpec {
    /// Its name.
    pub id: SinkId,
    /// Where it writes.
    pub destination: Destination,
    /// How many participants.
    pub subtasks: u32,
    /// Rows find their participant by their key, else in turn.
    pub by_key: bool,
}

/// A simulated pipeline.
#[derive(Clone)]
pub struct Spec {
    /// Its name.
    pub id: PipelineId,
    /// Its source, or both of them.
    pub source: SimSource,
    /// How many tasks read it.
    pub tasks: u32,
    /// Rows travel as columns, else as text.
    pub columns: bool,
    /// A step with state, and how many subtasks it has.
    pub operator: Option<(Counter, u32)>,
    /// Its sinks.
    pub sinks: Vec<SinkSpec>,
    /// Where bad and refused rows go.
    pub dead_letter: Option<SinkSpec>,
    /// Numbers.
    pub settings: Numbers,
}

/// Numbers of a simulated pipeline, short enough for simulated time.
#[derive(Debug, Clone)]
pub struct Numbers {
    /// From barrier to barrier, in milliseconds.
    pub interval_ms: u64,
    /// Limit of a plugin's call.
    pub call_timeout_ms: u64,
    /// The protocol's own.
    pub protocol: coordinator::Settings,
    /// Runs without a sealed epoch before a process gives up.
    pub restarts: u32,
    /// Part of the sinks' configuration: it may be another one in each life.
    pub revision: u64,
}

impl Default for Numbers {
    fn default() -> Self {
        let protocol = coordinator::Settings {
            max_waiting: 3,
            commit_tries: 4,
            backoff_base_ms: 20,
            backoff_max_ms: 200,
            retain_count: 3,
            idle_flush_ms: 40,
            sweep_ms: 400,
            ..coordinator::Settings::default()
        };
        Self { interval_ms: 60, call_timeout_ms: 400, protocol, restarts: 2, revision: 0 }
    }
}

impl Spec {
    /// A name for everything that needs one.
    ///
    /// # Errors
    /// It breaks the rule.
    pub fn name<T: TryFrom<String, Error = InvalidId>>(name: &str) -> Result<T, InvalidId> {
        T::try_from(name.to_owned())
    }

    /// The same pipeline in another world, with source and destinations as they stand. What is planned for its operator
    /// is left out.
    #[must_use]
    pub fn fork(&self, world: &World) -> Self {
        let sink = |sink: &SinkSpec| SinkSpec { destination: sink.destination.fork(world), ..sink.clone() };
        Self {
            source: self.source.fork(world),
            operator: self.operator.as_ref().map(|(counter, subtasks)| (counter.fork(world), *subtasks)),
            sinks: self.sinks.iter().map(sink).collect(),
            dead_letter: self.dead_letter.as_ref().map(sink),
            ..self.clone()
        }
    }

    /// For one host.
    ///
    /// # Errors
    /// A name that the kit chose breaks the rule.
    pub fn pipeline(&self, host: &Crash) -> Result<Pipeline, InvalidId> {
        let operators = match &self.operator {
            Some((counter, subtasks)) => vec![OperatorEntry {
                id: Self::name::<OperatorId>("count")?,
                operator: Arc::new(counter.clone()),
                subtasks: *subtasks,
                route: Route::Key("key".into()),
            }],
            None => vec![],
        };
        let numbers = &self.settings;
        let source = |(name, source): (&str, SimSource)| {
            Ok(SourceEntry {
                id: Self::name::<SourceId>(name)?,
                source: Arc::new(source),
                tasks: self.tasks,
                encoding: Encoding::JsonLines,
                columns: if self.columns { SimSource::columns() } else { None },
                on_bad_row: OnBadRow::DeadLetter,
                origins: None,
            })
        };
        Ok(Pipeline {
            id: self.id.clone(),
            fingerprint: "simulated".into(),
            sources: self.source.parts().into_iter().map(source).collect::<Result<_, InvalidId>>()?,
            operators,
            sinks: self.sinks.iter().map(|sink| sink.entry(host, numbers.revision)).collect(),
            dead_letter: self.dead_letter.as_ref().map(|sink| sink.entry(host, numbers.revision)),
            settings: Settings {
                interval: Duration::from_millis(numbers.interval_ms),
                min_pause: Duration::ZERO,
                channel_bytes: 4096,
                batch_bytes: 1024,
                alarm_after: Duration::ZERO,
                call_timeout: Duration::from_millis(numbers.call_timeout_ms),
                reject_window: 64 << 10,
                restarts: numbers.restarts,
                restart_backoff: Duration::from_millis(20),
                restart_backoff_max: Duration::from_millis(200),
                protocol: numbers.protocol.clone(),
            },
            rejects_in_prepare: Default::default(),
            pace: Default::default(),
        })
    }

    /// What the product promises of it, when destinations must recognise commits for so long.
    pub fn guarantee(&self, retain_ms: Option<u64>) -> Guarantee {
        guarantee::compute(&Ingredients {
            sources: vec![SourcePromise { name: "rows".into(), replayable: true }],
            steps: self.operator.iter().map(|_| StepPromise { name: "count".into(), deterministic: true }).collect(),
            sinks: self
                .all_sinks()
                .map(|sink| SinkPromise {
                    sink: sink.id.clone(),
                    abilities: sink.destination.kind().abilities(),
                    participants: sink.subtasks,
                })
                .collect(),
            dead_letter: self.dead_letter.is_some(),
            store_durable: true,
            times: Times {
                retain_ms,
                recovery_ms: self.settings.protocol.recovery_ms(self.settings.call_timeout_ms),
                interval_ms: Some(self.settings.interval_ms),
            },
        })
    }

    /// Sinks and the dead-letter sink.
    pub fn all_sinks(&self) -> impl Iterator<Item = &SinkSpec> {
        self.sinks.iter().chain(&self.dead_letter)
    }
}

impl SinkSpec {
    fn entry(&self, host: &Crash, revision: u64) -> SinkEntry {
        SinkEntry {
            id: self.id.clone(),
            plugin: self.destination.plugin(host),
            binding: Binding {
                plugin: "sha256:simulated".into(),
                plugin_name: "simulated 1".into(),
                config: format!(r#"{{"sink":"{}","revision":{revision}}}"#, self.id),
                grants: "{}".into(),
            },
            subtasks: self.subtasks,
            route: if self.by_key { Route::Key("key".into()) } else { Route::RoundRobin },
            encoding: Encoding::JsonLines,
            shape: SinkShape::default(),
            sources: None,
        }
    }
}

/// What is done to a host when it passes a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Do {
    /// It dies.
    Crash,
    /// It is asked to stop.
    Stop,
    /// A savepoint of this name is asked for.
    Savepoint(String),
    /// A savepoint is given up.
    Forget(String),
    /// The destination of the sink of this number makes a backup of itself.
    BackUp(usize),
    /// A foreign program writes to the destination of the sink of this number.
    ForeignWrite(usize),
    /// The wall clock is off by so many milliseconds from now on.
    Skew(i64),
}

/// One life.
pub struct Life {
    /// What runs.
    pub spec: Spec,
    /// Its log.
    pub store: SimStore,
    /// Kills it.
    pub host: Crash,
    /// Done at the nth time (from 1) that a moment is passed.
    pub plan: Vec<(Moment, u64, Do)>,
    /// It dies after so many simulated milliseconds.
    pub dies_after_ms: Option<u64>,
    /// It is taken for stuck after so many.
    pub patience_ms: u64,
}

/// How a life ended.
#[derive(Debug)]
pub enum Ended {
    /// The pipeline ended by itself.
    Report(Box<RunReport>),
    /// The pipeline could not be run.
    Error(RunError),
    /// The log could not be opened.
    Unopened(StoreError),
    /// The host died.
    Died,
    /// It did not end, although nothing held it up.
    Stuck,
}

/// What the run told, and when.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Everything that the protocol had to tell.
    pub notices: Vec<(Seq, Notice)>,
    /// Rows committed per sink, as counted by the driver.
    pub rows_committed: BTreeMap<SinkId, u64>,
    /// Savepoints that were asked for and confirmed.
    pub savepoints: Vec<(Seq, EpochRef)>,
    /// When it said that the pipeline is finished.
    pub finished: Option<Seq>,
}

/// Looks on, and acts at moments.
struct Watch {
    world: World,
    host: Crash,
    control: Control,
    spec: Spec,
    state: Arc<Mutex<WatchState>>,
}

#[derive(Default)]
struct WatchState {
    passed: BTreeMap<Moment, u64>,
    plan: Vec<(Moment, u64, Do)>,
    told: Told,
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_for_savepoint(&self, name: &str) {
        let mut waiting = self.control.savepoint(name);
        let (world, state) = (self.world.clone(), Arc::clone(&self.state));
        tokio::spawn(async move {
            if let Ok(of) = waiting.answer().await {
                let seq = world.note(|| format!("a savepoint is confirmed: {of}"));
                state.lock().unwrap_or_else(PoisonError::into_inner).told.savepoints.push((seq, of));
            }
        });
    }

    fn act(&self, what: &Do) {
        self.world.note(|| format!("at this moment: {what:?}"));
        let destination = |number: &usize| self.spec.sinks.get(*number).map(|sink| &sink.destination);
        match what {
            Do::Crash => {
                self.world.fired("crash-at-moment");
                self.host.now();
            }
            Do::Stop => self.control.stop(),
            Do::Savepoint(name) => self.ask_for_savepoint(name),
            Do::Forget(name) => drop(self.control.forget(name)),
            Do::BackUp(number) => {
                if let Some(destination) = destination(number) {
                    destination.back_up();
                }
            }
            Do::ForeignWrite(number) => {
                if let Some(destination) = destination(number) {
                    self.world.fired("foreign-write");
                    destination.foreign_write();
                }
            }
            Do::Skew(millis) => {
                self.world.fired("clock-jump");
                self.world.skew(*millis);
            }
        }
    }
}

impl Observer for Watch {
    fn reached(&self, moment: Moment) {
        if self.host.is_dead() {
            return;
        }
        self.world.note(|| format!("host: {}", moment.as_str()));
        let mut state = self.lock();
        let passed = state.passed.entry(moment).or_default();
        *passed += 1;
        let passed = *passed;
        let due: Vec<Do> = state
            .plan
            .iter()
            .filter(|(at, nth, _)| *at == moment && *nth == passed)
            .map(|(.., what)| what.clone())
            .collect();
        drop(state);
        due.iter().for_each(|what| self.act(what));
    }

    fn notice(&self, notice: &Notice) {
        if self.host.is_dead() {
            return;
        }
        let seq = self.world.note(|| format!("told: {notice:?}"));
        self.lock().told.notices.push((seq, notice.clone()));
    }
}

impl Life {
    /// A life without anything planned.
    pub fn new(spec: &Spec, store: &SimStore) -> Self {
        Self {
            spec: spec.clone(),
            store: store.clone(),
            host: Crash::new(),
            plan: Vec::new(),
            dies_after_ms: None,
            patience_ms: 120_000,
        }
    }

    /// Runs it to its end. `dice` draw the random part of each run.
    pub async fn live(self, world: &World, dice: &Dice) -> (Ended, Told) {
        let Life { spec, store, host, plan, dies_after_ms, patience_ms } = self;
        let control = Control::default();
        let watch = Arc::new(Watch {
            world: world.clone(),
            host: host.clone(),
            control: control.clone(),
            spec: spec.clone(),
            state: Arc::new(Mutex::new(WatchState { plan, ..WatchState::default() })),
        });
        world.note(|| format!("host starts: {}", described(&spec)));
        let opened = store.open(&host, &spec.id);
        let ended = match (opened, spec.pipeline(&host)) {
            _ if host.is_dead() => Ended::Died,
            (Err(error), _) => Ended::Unopened(error),
            (_, Err(error)) => Ended::Error(RunError::Spec(error.to_string())),
            (Ok(log), Ok(pipeline)) => {
                let nonces = Mutex::new(dice.fork(&format!("nonces {}", world.seq())));
                let env = Env {
                    clock: Arc::new(world.clone()),
                    nonce: Box::new(move || nonce(&nonces)),
                    control,
                    observer: watch.clone(),
                    blocking: Blocking::Inline,
                };
                let run = Box::pin(run_keeping(pipeline, log, env));
                tokio::select! {
                    biased;
                    () = host.died() => Ended::Died,
                    () = sleep(dies_after_ms) => {
                        world.fired("crash-at-time");
                        Ended::Died
                    }
                    ended = run => match ended {
                        Ok((report, _log)) => Ended::Report(Box::new(report)),
                        Err(error) => Ended::Error(error),
                    },
                    () = sleep(Some(patience_ms)) => Ended::Stuck,
                }
            }
        };
        // Whatever it left behind has no effect any more.
        host.now();
        let mut told = watch.lock().told.clone();
        if matches!(&ended, Ended::Report(report) if report.end == End::Finished) {
            told.finished = Some(world.seq());
        }
        world.note(|| format!("host ends: {}", shown(&ended)));
        (ended, told)
    }
}

async fn sleep(millis: Option<u64>) {
    match millis {
        Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        None => std::future::pending().await,
    }
}

fn nonce(dice: &Mutex<Dice>) -> Nonce {
    let mut dice = dice.lock().unwrap_or_else(PoisonError::into_inner);
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&dice.draw().to_be_bytes());
    Nonce(bytes)
}

fn described(spec: &Spec) -> String {
    let sinks: Vec<String> = spec
        .all_sinks()
        .map(|sink| format!("{} ({}) x{}", sink.id, sink.destination.kind().name, sink.subtasks))
        .collect();
    let operator = spec.operator.as_ref().map_or(String::new(), |(_, subtasks)| format!(", counter x{subtasks}"));
    let columns = if spec.columns { ", columns" } else { "" };
    let sources: Vec<&str> = spec.source.parts().into_iter().map(|(name, _)| name).collect();
    format!("{} of {} tasks{operator}{columns}, {}", sources.join(" and "), spec.tasks, sinks.join(", "))
}

fn shown(ended: &Ended) -> String {
    match ended {
        Ended::Report(report) => format!("{:?}", report.end),
        Ended::Error(error) => format!("error: {error}"),
        Ended::Unopened(error) => format!("log not opened: {error}"),
        Ended::Died => "it died".to_owned(),
        Ended::Stuck => "it is stuck".to_owned(),
    }
}
