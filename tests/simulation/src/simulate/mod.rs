//! `simulate`: very many pipelines, each with its own misfortunes, each from a seed.

mod plan;
mod run;
mod show;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub use plan::{Item, Plan, PlannedLife, PlannedSink};
pub use run::{Outcome, carry_out};
pub use tidegate_store::disk::sim::Dishonest as PlantedDisk;

use crate::dest::{Kind, Planted};
use crate::oracle::Violation;
use crate::said::{print, say};

/// One in so many seeds is run twice.
const REPEAT: u64 = 100;

/// From so many seeds on, each kind of fault and of destination must have occurred.
const ENOUGH_FOR_ALL: u64 = 1_000;

/// So many failing seeds are told in full.
const TOLD: usize = 3;

const USAGE: &str = "simulate [--seeds N] [--first S] [--threads N] [--planted BUG]
simulate --seed S [--planted BUG]   one alone, with its whole trace";

/// More threads than this help nobody.
const MOST_THREADS: u64 = 256;

/// Bugs of a disk, by name.
const PLANTED_DISKS: [(&str, PlantedDisk); 2] =
    [("dishonest-flush", PlantedDisk::Files), ("dishonest-folder-flush", PlantedDisk::Folders)];

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// So many seeds must count.
    pub seeds: u64,
    /// The first one.
    pub first: u64,
    /// Threads.
    pub threads: usize,
    /// A bug in the destination of the first sink.
    pub planted: Option<Planted>,
    /// A bug in the disk.
    pub planted_disk: Option<PlantedDisk>,
    /// Each broken promise is printed as soon as it is found, one line of JSON each.
    pub tells: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { seeds: 1_000, first: 0, threads: 1, planted: None, planted_disk: None, tells: false }
    }
}

/// What came of all seeds together.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Seeds that counted.
    pub counted: u64,
    /// Seeds in which too little happened.
    pub uncounted: u64,
    /// Epochs with rows that every sink committed.
    pub epochs: u64,
    /// Faults that took place, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Runs after the first.
    pub recoveries: u64,
    /// Rows of all sources.
    pub rows: u64,
    /// How often each kind of destination took part.
    pub kinds: BTreeMap<&'static str, u64>,
    /// How lives ended.
    pub ends: BTreeMap<&'static str, u64>,
    /// Seeds with broken promises, and the promises.
    pub failed: BTreeMap<u64, Vec<Violation>>,
    /// Seeds that were run twice.
    pub repeated: u64,
    /// Seeds of which the second run was another one, and where they part.
    pub differing: BTreeMap<u64, String>,
    /// Wall time.
    pub seconds: f64,
}

/// Runs one seed; a panic is a violation too.
pub fn run_seed(seed: u64, tracing: bool, options: &Options) -> Outcome {
    let plan = Plan::draw(seed, options.planted);
    guarded(&plan, tracing, options.planted_disk)
}

pub(crate) fn guarded(plan: &Plan, tracing: bool, planted: Option<PlantedDisk>) -> Outcome {
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| carry_out(plan, tracing, planted)));
    caught.unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
        let violation = Violation { promise: "P10", what: format!("the host panicked: {what}"), at: None };
        Outcome { violations: vec![violation], ..Outcome::default() }
    })
}

/// Runs as many seeds as are needed.
pub fn simulate(options: &Options) -> Summary {
    let began = Instant::now();
    let next = AtomicU64::new(options.first);
    let counted = AtomicU64::new(0);
    let total = Mutex::new(Summary::default());
    let last = last_seed(options).unwrap_or(u64::MAX);
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                let mut mine = Summary::default();
                while counted.load(Ordering::SeqCst) < options.seeds && mine.failed.len() < 50 {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= last {
                        break;
                    }
                    mine.take(seed, options);
                    if mine.counted > 0 {
                        counted.fetch_add(std::mem::take(&mut mine.counted), Ordering::SeqCst);
                    }
                }
                total.lock().unwrap_or_else(std::sync::PoisonError::into_inner).merge(mine);
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.counted = counted.into_inner();
    total.seconds = began.elapsed().as_secs_f64();
    total
}

impl Summary {
    fn take(&mut self, seed: u64, options: &Options) {
        let twice = seed.is_multiple_of(REPEAT);
        let outcome = run_seed(seed, twice, options);
        if twice {
            self.repeated += 1;
            let again = run_seed(seed, true, options).trace;
            if again != outcome.trace {
                let first = outcome.trace.iter().zip(&again).find(|(one, other)| one != other);
                let first = first.map(|(one, other)| format!("{one}\n{other}")).unwrap_or_default();
                self.differing.insert(seed, first);
            }
        }
        if outcome.counts() {
            self.counted += 1;
        } else {
            self.uncounted += 1;
        }
        self.epochs += outcome.epochs as u64;
        self.recoveries += outcome.recoveries as u64;
        self.rows += outcome.rows as u64;
        outcome.kinds.iter().for_each(|kind| *self.kinds.entry(kind).or_default() += 1);
        outcome.ends.iter().for_each(|(end, count)| *self.ends.entry(end).or_default() += count);
        for (kind, count) in outcome.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        if !outcome.violations.is_empty() {
            if options.tells {
                outcome.violations.iter().for_each(|violation| tell(seed, violation));
            }
            self.failed.insert(seed, outcome.violations);
        }
    }

    fn merge(&mut self, other: Summary) {
        self.uncounted += other.uncounted;
        self.epochs += other.epochs;
        self.recoveries += other.recoveries;
        self.rows += other.rows;
        self.repeated += other.repeated;
        self.failed.extend(other.failed);
        self.differing.extend(other.differing);
        other.kinds.into_iter().for_each(|(kind, count)| *self.kinds.entry(kind).or_default() += count);
        other.ends.into_iter().for_each(|(end, count)| *self.ends.entry(end).or_default() += count);
        other.faults.into_iter().for_each(|(kind, count)| *self.faults.entry(kind).or_default() += count);
    }

    /// Kinds of faults and destinations that never occurred.
    pub fn missing(&self) -> Vec<String> {
        let faults = plan::all_faults().into_iter().filter(|kind| !self.faults.contains_key(kind));
        let kinds = Kind::all().into_iter().map(|kind| kind.name).filter(|kind| !self.kinds.contains_key(kind));
        faults.chain(kinds.map(str::to_owned)).collect()
    }

    /// Whether everything holds that must.
    pub fn holds(&self, asked: u64) -> bool {
        let all = asked < ENOUGH_FOR_ALL || self.missing().is_empty();
        self.failed.is_empty() && self.differing.is_empty() && self.counted >= asked && all
    }

    fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "seeds": self.counted,
            "uncounted": self.uncounted,
            "epochs": self.epochs,
            "faults": self.faults.values().sum::<u64>(),
            "faults-by-kind": self.faults,
            "recoveries": self.recoveries,
            "rows": self.rows,
            "destinations": self.kinds,
            "ends": self.ends,
            "violations": self.failed.values().map(Vec::len).sum::<usize>(),
            "repeated": self.repeated,
            "repeats-that-differ": self.differing.len(),
            "never-occurred": self.missing(),
            "seconds": self.seconds,
        })
    }
}

/// The subcommand; false if a promise is broken, or too little happened.
///
/// # Errors
/// The arguments make no sense.
pub fn command(arguments: &[String]) -> Result<bool, String> {
    let (options, only) = parse(arguments)?;
    // What the simulation breaks on purpose is not worth a word; everything else is.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&crate::dest::mischief::ON_PURPOSE) {
            usual(info);
        }
    }));
    if let Some(seed) = only {
        return Ok(show::one(seed, &options));
    }
    let summary = simulate(&Options { tells: true, ..options.clone() });
    for (seed, violations) in summary.failed.iter().take(TOLD) {
        show::failure(*seed, violations, &options);
    }
    for (seed, first) in &summary.differing {
        let what = format!("it gave another trace when it was run again: {first}");
        tell(*seed, &Violation { promise: "repeat", what, at: None });
    }
    if options.seeds >= ENOUGH_FOR_ALL && !summary.missing().is_empty() {
        say(format!("these never occurred: {}", summary.missing().join(", ")));
    }
    if summary.counted < options.seeds {
        say(format!(
            "only {} of {} seeds count: in {} too little happened",
            summary.counted, options.seeds, summary.uncounted
        ));
    }
    print(summary.json());
    Ok(summary.holds(options.seeds))
}

/// One line of JSON that begins with the promise.
fn tell(seed: u64, violation: &Violation) {
    let what = violation.at.map_or_else(|| violation.what.clone(), |at| format!("{} (at #{at})", violation.what));
    print(serde_json::json!({ "promise": violation.promise, "seed": seed, "what": what }));
}

fn parse(arguments: &[String]) -> Result<(Options, Option<u64>), String> {
    let mut options = Options::default();
    let mut only = None;
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("`{name}` needs a value, or is not known\n{USAGE}"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("`{name}` needs a whole number, not `{value}`"));
        let some = || match number()? {
            0 => Err(format!("`{name} 0` would check nothing")),
            number => Ok(number),
        };
        match name.as_str() {
            "--seeds" => options.seeds = some()?,
            "--first" => options.first = number()?,
            "--seed" => only = Some(number()?),
            "--threads" => options.threads = some()?.min(MOST_THREADS) as usize,
            "--planted" => match (Planted::named(value), planted_disk(value)) {
                (None, None) => {
                    let disk = PLANTED_DISKS.iter().map(|(name, _)| *name);
                    let known: Vec<&str> = Planted::ALL.iter().map(|(name, _)| *name).chain(disk).collect();
                    return Err(format!("there is no planted bug `{value}`; there are {}", known.join(", ")));
                }
                (planted, disk) => {
                    options.planted = planted.or(options.planted);
                    options.planted_disk = disk.or(options.planted_disk);
                }
            },
            _ => return Err(format!("`{name}` is not known\n{USAGE}")),
        }
    }
    if last_seed(&options).is_none() {
        return Err(format!("from {} on there are not so many seeds", options.first));
    }
    Ok((options, only))
}

fn planted_disk(name: &str) -> Option<PlantedDisk> {
    PLANTED_DISKS.iter().find(|(known, _)| *known == name).map(|(_, planted)| *planted)
}

/// More than these would mean that seeds hardly ever count.
fn last_seed(options: &Options) -> Option<u64> {
    options.seeds.checked_mul(3)?.checked_div(2)?.checked_add(10)?.checked_add(options.first)
}
