//! Everything at once, from a seed: faults in every call, a failing log, stops at every moment, any shape of pipeline.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_columns::transform::TransformOptions;
use tidegate_pipeline::observe::Moment;
use tidegate_pipeline::run::{Control, run};
use tidegate_pipeline::spec::Route;
use tidegate_protocol::event::End;
use tidegate_protocol::plugin::{Call, ErrorKind, Outcome};
use tidegate_store::{AppendFault, Log, MemoryLog};

use crate::destination::{Destination, Mischief};
use crate::lines::Lines;
use crate::support::{Watch, env, pipeline, sink};

/// xorshift64*; the same seed gives the same storm.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const CALLS: [Call; 11] = [
    Call::Open,
    Call::Begin,
    Call::Write,
    Call::Prepare,
    Call::Observe,
    Call::Fence,
    Call::Commit,
    Call::Reconcile,
    Call::Abandon,
    Call::Release,
    Call::ListOrphans,
];

fn mischief(rng: &mut Rng, call: Call) -> Mischief {
    match rng.below(8) {
        0 => Mischief::Trap,
        1 if matches!(call, Call::Commit | Call::Prepare) => Mischief::LoseAnswer,
        2 => Mischief::Error(ErrorKind::Retryable),
        3 => Mischief::Error(ErrorKind::Unknown),
        4 if call == Call::Commit => Mischief::Outcome(Outcome::Retry(Some(700))),
        5 if call == Call::Commit => Mischief::Outcome(Outcome::Unknown),
        6 if call == Call::Commit => Mischief::Outcome(Outcome::NotCommitted),
        7 => Mischief::Hang,
        _ => Mischief::None,
    }
}

fn cause_trouble(rng: &mut Rng, destination: &Destination) {
    for call in CALLS {
        for _ in 0..rng.below(6) {
            for _ in 0..rng.below(4) {
                destination.script(call, [Mischief::None]);
            }
            destination.script(call, [mischief(rng, call)]);
        }
    }
}

fn break_log(rng: &mut Rng, log: &MemoryLog) {
    let fault = match rng.below(4) {
        0 => AppendFault::UnknownWritten,
        1 => AppendFault::UnknownNotWritten,
        2 => AppendFault::Full,
        _ => AppendFault::Refused,
    };
    log.fail_append(rng.below(12) as usize, fault);
}

/// One pipeline, run as often as it takes.
async fn weather(seed: u64) {
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let lines = Lines::new(1 + rng.below(3) as usize, rng.below(150) as usize);
    let sinks: Vec<Destination> = (0..=rng.below(2)).map(|_| Destination::default()).collect();
    let dead = Destination::default();
    let word = r#""n":17,"#;
    let rejecting = rng.below(4);
    match rejecting {
        1 => sinks[0].lock().rejects_in_write = vec![word],
        2 => sinks[0].lock().rejects_in_prepare = vec![word],
        3 => sinks[0].lock().bad_batch = vec![word],
        _ => {}
    }
    // Rows travel as text, as columns, or now so and now so.
    let travel = rng.below(3);
    // Columns can be filtered.
    let filters = travel == 1 && rng.one_in(2);
    let log = MemoryLog::default();
    for attempt in 0.. {
        assert!(attempt < 60, "seed {seed}: never finishes");
        let calm = attempt > 6;
        if !calm {
            sinks.iter().chain([&dead]).for_each(|destination| cause_trouble(&mut rng, destination));
        }
        let entries = sinks.iter().enumerate().map(|(n, destination)| {
            let mut entry = sink(&format!("s{n}"), destination.plugin(), 1 + rng.below(3) as u32);
            if rng.one_in(2) {
                entry.route = Route::Key("key".into());
            }
            entry
        });
        let mut entries: Vec<_> = entries.collect();
        if filters {
            let filter = Some("n % 5 <> 4".to_owned());
            entries[0].shape.transform = Some(TransformOptions { filter, ..TransformOptions::default() });
        }
        let mut with = pipeline(lines.clone(), 1 + rng.below(4) as u32, entries);
        if travel == 1 || (travel == 2 && rng.one_in(2)) {
            with.sources[0].columns = Some(Lines::columns());
        }
        with.dead_letter = Some(sink("dead", dead.plugin(), 1 + rng.below(2) as u32));
        with.settings.channel_bytes = [1, 64, 1024, 1 << 20][rng.below(4) as usize];
        with.settings.interval = Duration::from_millis([1, 20, 100, 1000][rng.below(4) as usize]);
        with.settings.protocol.max_waiting = 1 + rng.below(3) as u32;
        with.settings.protocol.retain_count = 1 + rng.below(4) as u32;
        with.settings.reject_window = [1, 1 << 20][rng.below(2) as usize];
        let control = Control::default();
        let moment = Moment::ALL[rng.below(8) as usize];
        let stop_at = (!calm && rng.one_in(2)).then(|| (moment, 1 + rng.below(3) as usize, control.clone()));
        if !calm && rng.one_in(2) {
            break_log(&mut rng, &log);
        }
        let watch = Watch { moments: Mutex::default(), stop_at };
        let boxed: Box<dyn Log> = Box::new(log.clone());
        let running = run(with, boxed, env(control, Arc::new(watch)));
        let report = tokio::time::timeout(Duration::from_secs(100_000), running)
            .await
            .unwrap_or_else(|_| panic!("seed {seed}, attempt {attempt}: hangs"))
            .expect("the log is readable");
        match report.end {
            End::Finished => break,
            End::Superseded(why) => panic!("seed {seed}, attempt {attempt}: superseded: {why}"),
            End::Refused(_) | End::Blocked { .. } | End::Failed(_) | End::Restart(_) if calm && attempt > 40 => {
                panic!("seed {seed}, attempt {attempt}: {:?}", report.end)
            }
            _ => {}
        }
    }
    let (rejected, taken): (Vec<_>, Vec<_>) = lines.expected().into_iter().partition(|row| row.contains(word));
    for (n, destination) in sinks.iter().enumerate() {
        let mut expected = if n == 0 && rejecting > 0 { taken.clone() } else { lines.expected() };
        if n == 0 && filters {
            expected.retain(|row| ![r#"4,"key""#, r#"9,"key""#].iter().any(|end| row.contains(end)));
        }
        assert_eq!(destination.rows(), expected, "seed {seed}, sink {n}");
    }
    let letters = if rejecting > 0 { rejected.len() } else { 0 };
    assert_eq!(dead.rows().len(), letters, "seed {seed}: dead letters");
}

#[tokio::test(start_paused = true)]
async fn every_row_arrives_once_whatever_fails_and_whenever_it_is_stopped() {
    let seeds: u64 = std::env::var("STORM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(25);
    let first: u64 = std::env::var("STORM_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        weather(seed).await;
    }
}
