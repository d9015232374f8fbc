//! One process: the production pipelines of all tenants in one thread, from their start to their end, or to the effect at
//! which the process ends.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_pipeline::Blocking;
use tidegate_pipeline::observe::{Moment, Observer};
use tidegate_pipeline::run::{Env, RunError, run_keeping};
use tidegate_pipeline::spec::Pipeline;
use tidegate_protocol::event::{End, Notice};
use tidegate_protocol::ids::{Nonce, PartId};
use tidegate_store::{Log, StoreError};
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::bench::{Bench, Tenant};
use super::director::Director;
use super::tap::clock::TapClock;
use super::tap::disk::TapDisk;
use super::tap::log::TapLog;
use super::tap::plugin::{NOTHING_STAGED, TapPlugin};
use super::tap::source::TapSource;
use super::trace::{Fact, Trace};
use crate::crash::Crash;
use crate::host::Told;

/// How a tenant's pipeline ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// By itself.
    Report(End),
    /// It could not be run.
    Error(RunError),
    /// Its log could not be opened.
    Unopened(StoreError),
    /// With the process.
    Died,
    /// Not at all, although nothing held it up.
    Stuck,
}

/// Simulated time after which a pipeline is taken for stuck.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Single-threaded, with time that passes only when there is nothing to do.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()
}

/// What a process needs of the world.
pub(crate) struct Process {
    tenants: Vec<(Tenant, Vec<usize>)>,
    setting: super::bench::Setting,
    network: super::tap::network::Network,
    trace: Trace,
    world: crate::world::World,
    scenario: &'static super::scenario::Scenario,
    director: Director,
}

impl Process {
    pub(crate) fn new(bench: &Bench, director: &Director) -> Self {
        let numbers =
            |at: usize, tenant: &Tenant| tenant.spec.all_sinks().map(|sink| bench.sink_number(at, &sink.id)).collect();
        Self {
            tenants: bench.tenants.iter().enumerate().map(|(at, t)| (t.clone(), numbers(at, t))).collect(),
            setting: bench.setting.clone(),
            network: bench.network.clone(),
            trace: bench.trace.clone(),
            world: bench.world.clone(),
            scenario: bench.scenario,
            director: director.clone(),
        }
    }

    /// Runs to the end, on this thread. What its pipelines told comes with how each ended.
    pub(crate) fn live(self) -> Vec<(Ended, Told)> {
        let Ok(runtime) = runtime() else { return Vec::new() };
        self.trace.note(Fact::Life(self.director.host()));
        if self.setting.denied > 0 {
            self.director.deny(self.setting.denied);
        }
        let ended = runtime.block_on(async {
            let begun = Instant::now();
            let since = self.world.elapsed_ms();
            self.director.keep_time(self.world.clone(), begun, since);
            let mut lives: Vec<_> = (0..self.tenants.len()).map(|at| Box::pin(self.one(at))).collect();
            let mut ended = Vec::new();
            // In turn and not in parallel would let one hold up the other; joined by hand, since their number is small.
            let all = async {
                let mut left: Vec<Option<(Ended, Told)>> = lives.iter().map(|_| None).collect();
                std::future::poll_fn(|context| {
                    for (life, slot) in lives.iter_mut().zip(&mut left) {
                        if slot.is_none()
                            && let std::task::Poll::Ready(done) = life.as_mut().poll(context)
                        {
                            *slot = Some(done);
                        }
                    }
                    match left.iter().all(Option::is_some) {
                        true => std::task::Poll::Ready(()),
                        false => std::task::Poll::Pending,
                    }
                })
                .await;
                left.into_iter().flatten().collect::<Vec<_>>()
            };
            ended.extend(all.await);
            ended
        });
        // Whatever is still there belongs to a process that is gone.
        let host = self.director.host();
        if self.director.is_dead() {
            self.trace.note(Fact::Killed(host));
        } else {
            let words: Vec<String> = ended.iter().map(|(ended, _)| shown(ended)).collect();
            self.trace.note(Fact::Ended(host, words.join("; ")));
            self.director.kill();
        }
        drop(runtime);
        self.director.release();
        ended
    }

    async fn one(&self, at: usize) -> (Ended, Told) {
        let (tenant, numbers) = &self.tenants[at];
        let told = Arc::new(Mutex::new(Told::default()));
        let ended = match self.open(at, tenant) {
            _ if self.director.is_dead() => Ended::Died,
            Err(error) => {
                let refused = Some(error.to_string());
                self.director.note(Fact::Recovered { host: self.director.host(), tenant: at, refused });
                Ended::Unopened(error)
            }
            Ok(log) => {
                self.director.note(Fact::Recovered { host: self.director.host(), tenant: at, refused: None });
                self.run(tenant, numbers, log, &told).await
            }
        };
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (ended, told)
    }

    fn open(&self, at: usize, tenant: &Tenant) -> Result<Box<dyn Log>, StoreError> {
        let alive = Crash::new();
        let log = match tenant.store.disk() {
            Some(disk) => {
                let disk = Box::new(TapDisk::new(disk, at, &self.director));
                tenant.store.open_on(&alive, &tenant.spec.id, disk)?
            }
            None => tenant.store.open(&alive, &tenant.spec.id)?,
        };
        Ok(Box::new(TapLog::new(log, at, &self.director, !tenant.store.is_local())))
    }

    async fn run(&self, tenant: &Tenant, numbers: &[usize], log: Box<dyn Log>, told: &Arc<Mutex<Told>>) -> Ended {
        let pipeline = match tenant.spec.pipeline(&Crash::new()) {
            Ok(pipeline) => self.tap(pipeline, tenant, numbers),
            Err(error) => return Ended::Error(RunError::Spec(error.to_string())),
        };
        let (host, nonces) = (u64::from(self.director.host().0), Mutex::new(0u64));
        let observer = Watch {
            director: self.director.clone(),
            world: self.world.clone(),
            sinks: tenant.spec.all_sinks().map(|sink| sink.id.clone()).zip(numbers.iter().copied()).collect(),
            told: Arc::clone(told),
            sealed: Mutex::new(0),
            savepoints_at: self.scenario.savepoints_at,
        };
        let env = Env {
            clock: Arc::new(TapClock::new(self.world.clone(), &self.director)),
            nonce: Box::new(move || {
                let mut drawn = nonces.lock().unwrap_or_else(PoisonError::into_inner);
                *drawn += 1;
                let mut bytes = [0; 10];
                bytes[..8].copy_from_slice(&(host << 16 | *drawn).to_be_bytes());
                Nonce(bytes)
            }),
            control: self.director.control().clone(),
            observer: Arc::new(observer),
            blocking: Blocking::Inline,
        };
        tokio::select! {
            biased;
            () = self.director.died() => Ended::Died,
            ended = Box::pin(run_keeping(pipeline, log, env)) => match ended {
                _ if self.director.is_dead() => Ended::Died,
                Ok((report, _log)) => Ended::Report(report.end),
                Err(error) => Ended::Error(error),
            },
            () = tokio::time::sleep(PATIENCE) => Ended::Stuck,
        }
    }

    /// Puts a layer around everything that the pipeline meets.
    fn tap(&self, mut pipeline: Pipeline, tenant: &Tenant, numbers: &[usize]) -> Pipeline {
        let specs: Vec<_> = tenant.spec.all_sinks().cloned().collect();
        let entries = pipeline.sinks.iter_mut().chain(pipeline.dead_letter.as_mut());
        for ((entry, spec), number) in entries.zip(&specs).zip(numbers) {
            let destination = spec.destination.clone();
            let liar = move |parts: &[PartId], how: &str| {
                destination.lied(parts, how);
                if how == NOTHING_STAGED {
                    parts.iter().for_each(|part| destination.lose(part));
                }
            };
            let splits = !destination_splits_badly(spec);
            entry.plugin = Arc::new(
                TapPlugin::new(
                    Arc::clone(&entry.plugin),
                    *number,
                    &self.director,
                    &self.network,
                    &self.trace,
                    Arc::new(liar),
                    &self.setting.dress,
                )
                .paced(
                    self.scenario.slow_prepare_ms,
                    // One sink is slower than the other, so that there is something between their commits.
                    self.scenario.slow_commit_ms * (1 + *number as u64),
                    splits,
                ),
            );
            entry.binding.plugin = entry.plugin.digest().to_owned();
            entry.binding.plugin_name = format!("simulated {}", self.setting.dress.version);
            if self.scenario.padding > 0 {
                let padding = "x".repeat(self.scenario.padding);
                entry.binding.config = format!(r#"{{"sink":"{}","padding":"{padding}"}}"#, entry.id);
            }
            if let Some(subtasks) = self.setting.subtasks {
                entry.subtasks = subtasks;
            }
        }
        for entry in &mut pipeline.sources {
            let tap = TapSource::new(Arc::clone(&entry.source), &self.director, self.setting.source_ends_at);
            entry.source = Arc::new(tap);
        }
        pipeline
    }
}

/// Half of a batch that is refused as a whole would stay.
fn destination_splits_badly(spec: &crate::host::SinkSpec) -> bool {
    spec.destination.rejects().batches
}

pub(crate) fn shown(ended: &Ended) -> String {
    match ended {
        Ended::Report(end) => format!("{end:?}"),
        Ended::Error(error) => format!("cannot run: {error}"),
        Ended::Unopened(error) => format!("log not opened: {error}"),
        Ended::Died => "died".to_owned(),
        Ended::Stuck => "stuck".to_owned(),
    }
}

/// Looks on, and asks for savepoints where the scenario wants some.
struct Watch {
    director: Director,
    world: crate::world::World,
    sinks: Vec<(tidegate_protocol::ids::SinkId, usize)>,
    told: Arc<Mutex<Told>>,
    sealed: Mutex<u64>,
    savepoints_at: Option<u64>,
}

impl Observer for Watch {
    fn reached(&self, moment: Moment) {
        self.director.note(Fact::Moment(self.director.host(), moment));
        if moment != Moment::Sealed || self.director.is_dead() {
            return;
        }
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        *sealed += 1;
        if self.savepoints_at == Some(*sealed) {
            // One right after the other: there is nothing to be cut by the second.
            drop(self.director.control().savepoint(&format!("one-{}", self.director.host().0)));
            drop(self.director.control().savepoint(&format!("two-{}", self.director.host().0)));
        }
    }

    fn notice(&self, notice: &Notice) {
        if self.director.is_dead() {
            return;
        }
        let host = self.director.host();
        let number = |sink| self.sinks.iter().find(|(id, _)| id == sink).map_or(0, |(_, number)| *number);
        match notice {
            Notice::RunOpened { run, .. } => self.director.note(Fact::Opened(host, *run)),
            Notice::EpochCommitted { sink, of, .. } => {
                self.director.note(Fact::Committed { host, sink: number(sink), epoch: of.epoch.0 });
            }
            Notice::Blocked { sink, .. } => self.director.note(Fact::Blocked { host, sink: number(sink) }),
            _ => {}
        }
        let seq = self.world.note(|| format!("told: {notice:?}"));
        self.told.lock().unwrap_or_else(PoisonError::into_inner).notices.push((seq, notice.clone()));
    }
}
