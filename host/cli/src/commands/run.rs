//! `tidegate run`

use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_server::config::PipelineFile;
use tidegate_server::{
    Assembled, Clock, Control, End, Fate, Moment, Notice, Observer, Progress, Ready, Report, RunOptions, SystemClock,
    Verdict, assemble,
};
use tokio::signal::unix::{SignalKind, signal};

use super::validate::guarantee_lines;
use super::{Outcome, host_in, load};
use crate::args::{ProgressKind, RunArgs};
use crate::exit::Exit;
use crate::output::{Failure, print_json_line, say};
use crate::progress::{self, Display, Meter};
use crate::words::{count, counted, span};

/// How often the live display is redrawn.
const LIVE_EVERY: Duration = Duration::from_millis(200);
/// How often a plain line is printed.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &RunArgs) -> Outcome {
    run_file(&load(&args.file)?, args)
}

/// Runs a pipeline.
pub(crate) fn run_file(file: &PipelineFile, args: &RunArgs) -> Outcome {
    let assembled = assemble(&host_in(&args.host, args.isolation.into())?, file)?;
    announce(&assembled, args);
    let watch = Arc::new(Watch::new(args));
    let options = options(args, &watch);
    let ready = assembled.open_for(&options)?;
    for finding in &ready.findings {
        let word = if finding.verdict == Verdict::Warning { "warning" } else { "changed" };
        say(&format!("{word}: {}", finding.message));
        finding.hints.iter().for_each(|hint| say(&format!("  hint: {hint}")));
    }
    // At least two, so that signals are heard whatever the pipeline does.
    let workers = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, format!("cannot start threads: {error}")))?;
    let outcome = runtime.block_on(watched(ready, options, watch, args));
    // A read from standard input cannot be cancelled; nobody waits for it.
    runtime.shutdown_background();
    outcome
}

/// What the pipeline promises, and why.
fn announce(assembled: &Assembled, args: &RunArgs) {
    let file = assembled.file();
    say(&format!("pipeline `{}`, state in {}", file.pipeline.name, file.pipeline.state.display()));
    guarantee_lines(assembled.guarantee(), &assembled.grounds()).iter().for_each(|line| say(line));
    assembled.travel().iter().for_each(|line| say(line));
    if args.output.json {
        print_json_line(&json!({
            "event": "start",
            "pipeline": file.pipeline.name,
            "guarantee": assembled.guarantee(),
            "grounds": assembled.grounds(),
        }));
    }
}

fn options(args: &RunArgs, watch: &Arc<Watch>) -> RunOptions {
    RunOptions {
        from: args.from.clone(),
        accept: args.accept.iter().cloned().collect(),
        decision_id: args.decision_id.clone(),
        by: args.by.clone().or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "unnamed".to_owned()),
        observer: Arc::clone(watch) as Arc<dyn Observer>,
        control: Control::default(),
        clock: Arc::new(SystemClock),
        lose_commit_answers: args.lose_commit_answers.unwrap_or(0),
    }
}

async fn watched(ready: Ready, options: RunOptions, watch: Arc<Watch>, args: &RunArgs) -> Outcome {
    let control = options.control.clone();
    let used_before = ready.decisions(&options)?.into_iter().filter(|decision| decision.fate == Fate::UsedBefore);
    used_before.for_each(|decision| say(&decision.words()));
    let began = Instant::now();
    let signals = tokio::spawn(stop_on_signal(control));
    let shown = tokio::spawn(show(Arc::clone(&watch), args.progress, args.output.json));
    let report = ready.run(options).await;
    signals.abort();
    shown.abort();
    // The display goes with its task; wait until it is gone before the last words.
    let _ = shown.await;
    let report = report?;
    Ok(conclude(&report, began.elapsed(), args.from.is_some(), args.output.json))
}

/// The first signal stops in good order, the second Ctrl-C at once.
async fn stop_on_signal(control: Control) {
    let listen = |kind| signal(kind).ok();
    let hang_up = SignalKind::hangup();
    // Listening would undo `nohup`.
    let mut hang_up = if is_ignored(hang_up) { None } else { listen(hang_up) };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
    async fn next(signal: &mut Option<tokio::signal::unix::Signal>) {
        let heard = match signal {
            Some(signal) => signal.recv().await,
            None => None,
        };
        if heard.is_none() {
            std::future::pending().await
        }
    }
    let mut asked = false;
    loop {
        let interrupted = tokio::select! {
            () = next(&mut interrupt) => true,
            () = next(&mut terminate) => false,
            () = next(&mut hang_up) => false,
        };
        if asked && interrupted {
            say("left at once; nothing is lost, the next run goes on behind the last sealed epoch");
            std::process::exit(i32::from(Exit::Left as u8));
        }
        if !asked {
            say("stopping: what was read is sealed and committed; Ctrl-C again leaves at once and loses nothing");
            control.stop();
        }
        asked = true;
    }
}

/// Whether this process was started with the signal ignored.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask.checked_shr((kind.as_raw_value() - 1).unsigned_abs()).is_some_and(|mask| mask & 1 == 1)
}

/// Looks at a run for whoever looks at us.
struct Watch {
    progress: Mutex<Progress>,
    hold: Option<(Moment, u64)>,
    json: bool,
    reached: AtomicU64,
}

impl Watch {
    fn new(args: &RunArgs) -> Self {
        Self { progress: Mutex::default(), hold: args.hold_at, json: args.output.json, reached: AtomicU64::new(0) }
    }

    fn latest(&self) -> Progress {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Watch {
    fn reached(&self, moment: Moment) {
        let Some((hold, nth)) = self.hold else { return };
        if moment == hold && self.reached.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            say(&format!("held {}", moment.as_str()));
            loop {
                std::thread::park();
            }
        }
    }

    fn notice(&self, notice: &Notice) {
        if let Some(line) = progress::notice(notice) {
            say(&crate::output::one_line(&line));
        }
        if let Some(warning) = progress::warning(notice).filter(|_| self.json) {
            print_json_line(&json!({"event": "warning", "message": warning}));
        }
    }

    fn progress(&self, progress: &Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress.clone();
    }
}

async fn show(watch: Arc<Watch>, kind: ProgressKind, json: bool) {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let live = kind == ProgressKind::Auto && std::io::stderr().is_terminal() && !dumb;
    let mut display = live.then(Display::start);
    let mut meter = Meter::default();
    let mut last = Instant::now();
    let every = if live { LIVE_EVERY } else { PLAIN_EVERY };
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick comes at once, when there is nothing to see.
    ticks.tick().await;
    let mut since_json = Duration::ZERO;
    loop {
        ticks.tick().await;
        let progress = watch.latest();
        let elapsed = last.elapsed();
        last = Instant::now();
        let rate = meter.rate(progress.rows_read, elapsed);
        let now = SystemClock.now_ms();
        match &mut display {
            Some(display) => display.show(&progress::live(&progress, rate, now)),
            None if kind == ProgressKind::None => {}
            None => say(&progress::plain(&progress, rate, now)),
        }
        since_json += elapsed;
        if json && since_json >= PLAIN_EVERY {
            since_json = Duration::ZERO;
            print_json_line(
                &json!({"event": "progress", "rows-per-second": rate, "progress": progress::json(&progress)}),
            );
        }
    }
}

fn exit_of(report: &Report) -> Exit {
    if let Some(kind) = report.no_use {
        return kind.into();
    }
    match &report.end {
        End::Finished | End::Stopped => Exit::Done,
        End::StoppedInDoubt { .. } => Exit::InDoubt,
        End::Blocked { .. } => Exit::Blocked,
        End::Restart(_) | End::Failed(_) => Exit::Failed,
        End::Refused(tidegate_server::Refusal::Log(_)) => Exit::Log,
        End::Refused(_) => Exit::Refused,
        End::Superseded(_) => Exit::Owned,
        End::StoreFailed(_) => Exit::Log,
    }
}

fn end_name(report: &Report) -> &'static str {
    match &report.end {
        End::Finished => "finished",
        End::Stopped => "stopped",
        End::StoppedInDoubt { .. } => "stopped-in-doubt",
        End::Blocked { .. } => "blocked",
        End::Failed(_) if exit_of(report) != Exit::Failed => "refused",
        End::Restart(_) | End::Failed(_) => "failed",
        End::Refused(_) => "refused",
        End::Superseded(_) => "superseded",
        End::StoreFailed(_) => "store-failed",
    }
}

/// Says how it ended, and returns the exit code for it.
fn conclude(report: &Report, took: Duration, went_back: bool, json: bool) -> Exit {
    let exit = exit_of(report);
    let (message, hints) = report.words();
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let settled = report.decisions.iter().filter(|decision| decision.fate != Fate::UsedBefore);
    settled.for_each(|decision| say(&decision.words()));
    match exit {
        Exit::Done if report.nothing_new() => {
            say("finished before, and nothing has changed since: no new input, nothing was written");
        }
        Exit::Done => {
            if report.was_finished && !went_back {
                say(&format!("finished before; took {} of new input", counted(report.progress.rows_read, "row")));
            }
            say(&message);
            summary(report, millis).iter().for_each(|line| say(line));
        }
        _ => {
            summary(report, millis).iter().for_each(|line| say(line));
            let failure = Failure { exit, messages: vec![(message.clone(), hints.clone())] };
            failure.lines().iter().for_each(|line| say(line));
        }
    }
    if json {
        print_json_line(&json!({
            "event": "end",
            "result": end_name(report),
            "exit": exit as u8,
            "message": message,
            "hints": hints,
            "nothing-new": report.nothing_new(),
            "decisions": report.decisions,
            "ms": millis,
            "progress": progress::json(&report.progress),
        }));
    }
    exit
}

fn summary(report: &Report, millis: u64) -> Vec<String> {
    let progress = &report.progress;
    if progress.rows_read == 0 && progress.rows_committed.is_empty() {
        return Vec::new();
    }
    let rate = (u128::from(progress.rows_read) * 1000).checked_div(u128::from(millis)).unwrap_or(0);
    let mut lines = vec![format!(
        "  {} read in {} ({} rows/s), {}{}",
        counted(progress.rows_read, "row"),
        span(millis),
        count(u64::try_from(rate).unwrap_or(u64::MAX)),
        sealed(progress),
        match progress.waiting.len() as u64 {
            0 => String::new(),
            waiting => format!(", {} outstanding", counted(waiting, "commit")),
        },
    )];
    for (sink, rows) in &progress.rows_committed {
        lines.push(format!("  {} committed at sink `{sink}`", counted(*rows, "row")));
    }
    if progress.rows_dead_lettered > 0 {
        lines.push(format!("  {} dead-lettered", counted(progress.rows_dead_lettered, "row")));
    }
    if progress.rows_filtered > 0 {
        lines.push(format!("  {} left out by filters", counted(progress.rows_filtered, "row")));
    }
    if progress.runs > 1 {
        lines.push(format!("  {} runs", count(progress.runs)));
    }
    lines
}

/// How many epochs were sealed, and how many of them every sink has, where that is another number.
fn sealed(progress: &Progress) -> String {
    let sealed = format!("{} sealed", counted(progress.epochs_sealed, "epoch"));
    match progress.epochs_committed == progress.epochs_sealed {
        true => sealed,
        false => format!("{sealed}, {} committed by every sink", count(progress.epochs_committed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_that_not_every_sink_has_are_counted_apart() {
        let mut progress = Progress { epochs_sealed: 7, epochs_committed: 7, ..Progress::default() };
        assert_eq!(sealed(&progress), "7 epochs sealed");
        progress.epochs_committed = 5;
        assert_eq!(sealed(&progress), "7 epochs sealed, 5 committed by every sink");
    }
}
