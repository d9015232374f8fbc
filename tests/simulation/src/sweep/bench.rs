//! The world of one execution, which outlives its processes, and can be taken over into another execution as it stands.

use tidegate_protocol::ids::SinkId;
use tidegate_store::disk::sim::Image;

use super::effect::Between;
use super::scenario::Scenario;
use super::tap::network::Network;
use super::tap::plugin::Dress;
use super::trace::{Fact, Trace};
use crate::dice::Dice;
use crate::host::{Spec, Told};
use crate::oracle::{self, Evidence, Violation};
use crate::store::SimStore;
use crate::world::World;

/// One pipeline with its log.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) spec: Spec,
    pub(crate) store: SimStore,
    pub(crate) told: Vec<Told>,
    /// It has read all of its input and said so.
    pub(crate) finished: bool,
}

/// What the next process finds.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) dress: Dress,
    /// How many participants every sink has, if not as many as the scenario says.
    pub(crate) subtasks: Option<u32>,
    /// The source has lost what is behind so many rows of each partition.
    pub(crate) source_ends_at: Option<u64>,
    /// Credentials do not work for so many calls.
    pub(crate) denied: u32,
}

impl Default for Setting {
    fn default() -> Self {
        let dress = Dress { version: "1".into(), reads: vec![1] };
        Self { dress, subtasks: None, source_ends_at: None, denied: 0 }
    }
}

/// Everything that outlives a process.
pub(crate) struct Bench {
    pub(crate) world: World,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) network: Network,
    pub(crate) trace: Trace,
    pub(crate) setting: Setting,
    /// Numbers for processes.
    pub(crate) hosts: u16,
    pub(crate) scenario: &'static Scenario,
    /// A checkpoint store or a destination has lied: the log may be older than what was acknowledged.
    pub(crate) store_lied: bool,
    /// What lay on the first tenant's disk before it was damaged.
    pub(crate) undamaged: Option<Image>,
}

impl Bench {
    /// A new world in which nothing has happened.
    pub(crate) fn new(scenario: &'static Scenario) -> Self {
        let world = World::detached(&Dice::new(1));
        let tenants = (scenario.build)(&world);
        Self {
            world,
            tenants,
            network: Network::default(),
            trace: Trace::default(),
            setting: Setting::default(),
            hosts: 0,
            scenario,
            store_lied: false,
            undamaged: None,
        }
    }

    /// The same world once more. Nothing may be on its way.
    #[must_use]
    pub(crate) fn fork(&self) -> Self {
        debug_assert!(self.network.is_empty(), "requests cannot be copied");
        let world = self.world.fork();
        let tenants = self.tenants.iter().map(|tenant| Tenant {
            spec: tenant.spec.fork(&world),
            store: tenant.store.fork(&world),
            told: tenant.told.clone(),
            finished: tenant.finished,
        });
        Self {
            tenants: tenants.collect(),
            world,
            network: Network::default(),
            trace: Trace::of(self.trace.facts()),
            setting: self.setting.clone(),
            hosts: self.hosts,
            scenario: self.scenario,
            store_lied: self.store_lied,
            undamaged: self.undamaged.clone(),
        }
    }

    /// The number by which facts know a sink.
    pub(crate) fn sink_number(&self, tenant: usize, sink: &SinkId) -> usize {
        let before: usize = self.tenants[..tenant].iter().map(|tenant| tenant.spec.all_sinks().count()).sum();
        before + self.tenants[tenant].spec.all_sinks().position(|spec| spec.id == *sink).unwrap_or(0)
    }

    /// What changes while no process runs.
    pub(crate) fn change(&mut self, between: Between) {
        match between {
            Between::Nothing => return,
            Between::Downtime => self.world.advance(600_000),
            Between::ClockBack => self.world.skew(-86_400_000),
            Between::Upgrade => self.setting.dress = Dress { version: "2".into(), reads: vec![1, 2] },
            Between::UpgradeBlind => self.setting.dress = Dress { version: "2".into(), reads: vec![2] },
            Between::Rescale(subtasks) => self.setting.subtasks = Some(subtasks),
            Between::Denied => self.setting.denied = 3,
            Between::SourceBehind => self.setting.source_ends_at = Some(0),
            Between::Corrupt | Between::Cut | Between::Hollow | Between::Forgotten => {
                let before = self.tenants[0].store.image();
                if !super::damage::damage(&self.tenants[0].store, between) {
                    return;
                }
                self.undamaged = before;
                self.store_lied = between == Between::Forgotten;
            }
        }
        self.trace.note(Fact::Changed(between));
    }

    /// Whatever is on its way arrives.
    pub(crate) fn drain(&self) {
        if self.network.is_empty() {
            return;
        }
        let Ok(runtime) = super::process::runtime() else { return };
        runtime.block_on(self.network.drain(&self.trace));
    }

    /// What broke, of all pipelines.
    pub(crate) fn judge(&self) -> Vec<Violation> {
        let mut found = Vec::new();
        for tenant in &self.tenants {
            let mut evidence = Evidence::gather(&tenant.spec, tenant.store.journal(), tenant.told.clone(), None);
            evidence.finished = tenant.finished;
            found.extend(oracle::judge(&evidence));
        }
        if self.store_lied {
            // What a disk never had cannot be kept by anybody; but readers see each row once all the same.
            found.retain(|violation| violation.what.starts_with("sink `"));
        }
        found
    }
}
