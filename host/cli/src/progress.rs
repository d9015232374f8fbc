//! What a person sees of a running pipeline.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tidegate_server::{Entries, Notice, Positions, Progress, SinkId, blocked_words};

use crate::output;
use crate::words::{clip, count, counted, span, time};

/// Over how long rates are averaged, in milliseconds.
const RATE_WINDOW: f64 = 3_000.0;

/// Counters and what follows from two looks at them.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    rows: u64,
    /// `None` until something moved.
    rate: Option<f64>,
}

impl Meter {
    /// Takes another look, so long after the last one, and returns rows per second.
    pub(crate) fn rate(&mut self, rows: u64, since: Duration) -> u64 {
        let millis = since.as_secs_f64() * 1000.0;
        if millis > 0.0 {
            let now = rows.saturating_sub(self.rows) as f64 * 1000.0 / millis;
            let weight = (millis / RATE_WINDOW).min(1.0);
            self.rate = match self.rate {
                Some(rate) => Some(rate + (now - rate) * weight),
                None if now > 0.0 => Some(now),
                None => None,
            };
            self.rows = rows;
        }
        self.rate.unwrap_or(0.0).round() as u64
    }
}

fn committed(progress: &Progress) -> u64 {
    // Every sink has its own share; the slowest one tells how far the pipeline is.
    progress.rows_committed.values().copied().min().unwrap_or(0)
}

fn age(progress: &Progress, now_ms: u64) -> String {
    match progress.last_commit_at {
        Some(at) => format!("last commit {} ago", span(now_ms.saturating_sub(at))),
        None => "no commit yet".to_owned(),
    }
}

/// One line, for logs and pipes.
pub(crate) fn plain(progress: &Progress, rate: u64, now_ms: u64) -> String {
    let mut line = format!(
        "{} read ({} rows/s), {} committed, {} sealed, {}",
        counted(progress.rows_read, "row"),
        count(rate),
        counted(committed(progress), "row"),
        counted(progress.epochs_sealed, "epoch"),
        age(progress, now_ms),
    );
    if progress.rows_dead_lettered > 0 {
        line.push_str(&format!(", {} dead-lettered", count(progress.rows_dead_lettered)));
    }
    if progress.rows_filtered > 0 {
        line.push_str(&format!(", {} filtered out", count(progress.rows_filtered)));
    }
    if !progress.waiting.is_empty() {
        line.push_str(&format!(", {} waiting", counted(progress.waiting.len() as u64, "commit")));
    }
    if !progress.quarantined.is_empty() {
        line.push_str(&format!(", in quarantine: the plugin of {}", names(&progress.quarantined)));
    }
    for (source, positions) in &progress.positions {
        line.push_str(&format!("; {source}: {}", position(positions, 60)));
    }
    line
}

/// Several lines, for a terminal.
pub(crate) fn live(progress: &Progress, rate: u64, now_ms: u64) -> Vec<String> {
    let mut lines = vec![
        format!("{:>14} rows read    {:>12} rows/s", count(progress.rows_read), count(rate)),
        format!(
            "{:>14} committed    {:>12} epochs   {}",
            count(committed(progress)),
            count(progress.epochs_sealed),
            age(progress, now_ms)
        ),
    ];
    if progress.rows_dead_lettered > 0 || !progress.waiting.is_empty() {
        lines.push(format!(
            "{:>14} dead-lettered {:>11} waiting for their commit",
            count(progress.rows_dead_lettered),
            count(progress.waiting.len() as u64)
        ));
    }
    if progress.rows_filtered > 0 {
        lines.push(format!("{:>14} filtered out", count(progress.rows_filtered)));
    }
    if !progress.quarantined.is_empty() {
        lines.push(format!("{:>14} the plugin of {}", "in quarantine", names(&progress.quarantined)));
    }
    for (source, positions) in &progress.positions {
        lines.push(format!("{:>14} {}", source.as_str(), position(positions, 200)));
    }
    lines
}

fn names(sinks: &[SinkId]) -> String {
    sinks.iter().map(SinkId::as_str).collect::<Vec<_>>().join(", ")
}

/// So many partitions that are not done are looked at for a line of progress.
const LOOKED_AT: usize = 1000;

/// Where a source stands: how many partitions are done, and the first that are not.
pub(crate) fn position(positions: &Positions, most: usize) -> String {
    let Ok(entries) = positions.entries() else { return String::new() };
    let (all, done) = counts(entries);
    let mut pieces = Vec::new();
    if done > 0 {
        pieces.push(format!("{done} of {all} done"));
    }
    let not_done = entries.iter().filter(|(_, text)| !is_done(text)).take(LOOKED_AT);
    let begun = not_done.filter_map(|(name, text)| {
        let position: Value = serde_json::from_str(text).unwrap_or(Value::Null);
        let at = match (position["line"].as_u64(), position["next"].as_u64()) {
            (Some(line), _) => (line, "line"),
            (None, Some(next)) => (next, "row"),
            (None, None) => return Some(clip(name, 40)),
        };
        (at.0 > 0).then(|| format!("{} {} {}", clip(name, 40), at.1, count(at.0)))
    });
    let mut left = 0;
    for piece in begun {
        let length: usize = pieces.iter().map(|piece: &String| piece.chars().count() + 2).sum();
        if pieces.is_empty() || length + piece.chars().count() <= most {
            pieces.push(piece);
        } else {
            left += 1;
        }
    }
    if left > 0 {
        pieces.push(format!("{left} more"));
    }
    if pieces.is_empty() { "at the beginning".to_owned() } else { pieces.join(", ") }
}

/// How many partitions there are, and how many of them are done.
fn counts(entries: Entries<'_>) -> (u64, u64) {
    entries.iter().fold((0, 0), |(all, done), (_, text)| (all + 1, done + u64::from(is_done(text))))
}

/// Positions are JSON as `serde_json` writes it. There may be very many, so they are not parsed for this.
fn is_done(position: &str) -> bool {
    position.contains("\"done\":true")
}

/// What a person should be told at once, if anything.
pub(crate) fn notice(notice: &Notice) -> Option<String> {
    match notice {
        Notice::RunOpened { run, from: Some(from) } => {
            Some(format!("run {} goes on behind epoch {}", run.number, from.epoch))
        }
        Notice::RunOpened { run, from: None } => Some(format!("run {} begins at the beginning", run.number)),
        other => warning(other).map(|text| format!("warning: {text}")),
    }
}

/// What a person should be warned of, if anything.
pub(crate) fn warning(notice: &Notice) -> Option<String> {
    match notice {
        Notice::InDoubt { sink, of, reason } => {
            Some(format!("epoch {} at sink `{sink}` is in doubt and will be settled: {reason}", of.epoch))
        }
        Notice::Blocked { sink, of, reason } => Some(format!(
            "epoch {} at sink `{sink}` is blocked, a person must decide: {}",
            of.epoch,
            blocked_words(reason)
        )),
        Notice::Warning(text) => Some(text.clone()),
        // The server tells these as warnings that name directories.
        Notice::CallFails { sink, fault, .. } => Some(format!("sink `{sink}`: {fault}")),
        Notice::GoesBack { failure, .. } => Some(failure.to_string()),
        Notice::NoProgress { sink: Some(sink), epoch, for_ms } => Some(format!(
            "no progress at sink `{sink}`: epoch {epoch} is sealed, and nothing was committed there for {}",
            span(*for_ms)
        )),
        Notice::NoProgress { sink: None, epoch, for_ms } => Some(format!(
            "no progress: the barrier of epoch {epoch} was sent {} ago and it is not sealed",
            span(*for_ms)
        )),
        Notice::ExpiresSoon { sink, of, at } => Some(format!(
            "epoch {} at sink `{sink}` is not committed, and the destination may drop its prepared work from {} on",
            of.epoch,
            time(*at)
        )),
        Notice::RunOpened { .. }
        | Notice::EpochPrepared { .. }
        | Notice::EpochSealed { .. }
        | Notice::EpochCommitted { .. } => None,
    }
}

/// Positions of a source with more partitions than this are only counted; `checkpoint show` has them all.
const LISTED: u64 = 1000;

/// Counters for machines.
pub(crate) fn json(progress: &Progress) -> Value {
    let mut positions = serde_json::Map::new();
    let mut partitions = serde_json::Map::new();
    for (source, known) in &progress.positions {
        let Ok(entries) = known.entries() else { continue };
        let (all, done) = counts(entries);
        partitions.insert(source.to_string(), json!({"count": all, "done": done}));
        if all <= LISTED {
            let list = entries.iter().map(|(name, text)| {
                let position = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
                (name.to_owned(), position)
            });
            positions.insert(source.to_string(), Value::Object(list.collect()));
        }
    }
    let waiting: Vec<_> = progress
        .waiting
        .iter()
        .map(|(sink, of)| json!({"sink": sink, "epoch": of.epoch.0, "run": of.run.to_string()}))
        .collect();
    json!({
        "rows-read": progress.rows_read,
        "rows-committed": progress.rows_committed,
        "rows-dead-lettered": progress.rows_dead_lettered,
        "rows-filtered": progress.rows_filtered,
        "epochs-sealed": progress.epochs_sealed,
        "epochs-committed": progress.epochs_committed,
        "last-commit-at": progress.last_commit_at,
        "last-seal-at": progress.last_seal_at,
        "last-checkpoint-ms": progress.last_checkpoint_millis,
        "runs": progress.runs,
        "quarantined": progress.quarantined,
        "waiting": waiting,
        "partitions": partitions,
        "positions": positions,
    })
}

/// Lines that stay at the bottom of a terminal.
pub(crate) struct Display {
    bars: MultiProgress,
    lines: Vec<ProgressBar>,
}

impl Display {
    /// Takes the bottom of the terminal on standard error.
    pub(crate) fn start() -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        output::set_live(Some(bars.clone()));
        Self { bars, lines: Vec::new() }
    }

    /// Shows these lines, as far as the terminal is wide.
    pub(crate) fn show(&mut self, lines: &[String]) {
        while self.lines.len() < lines.len() {
            let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
            self.lines.push(self.bars.add(ProgressBar::no_length().with_style(style)));
        }
        for (bar, line) in self.lines.iter().zip(lines) {
            bar.set_message(output::one_line_keeping_blanks(line));
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        for line in &self.lines {
            line.finish_and_clear();
        }
        output::set_live(None);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tidegate_server::SourceId;

    use super::*;

    fn sample() -> Progress {
        let positions = [
            ("data/a.jsonl.gz", r#"{"line":4121,"done":false}"#),
            ("data/b.jsonl.gz", r#"{"line":9000,"done":true}"#),
            ("data/c.jsonl.gz", r#"{"line":0,"done":false}"#),
        ];
        let positions = positions.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Progress {
            rows_read: 13_121,
            rows_committed: BTreeMap::from([(SinkId::new("out").unwrap(), 12_000)]),
            epochs_sealed: 41,
            last_commit_at: Some(1_000_000),
            positions: BTreeMap::from([(SourceId::new("flights").unwrap(), positions)]),
            ..Progress::default()
        }
    }

    #[test]
    fn the_plain_line_says_everything() {
        assert_eq!(
            plain(&sample(), 24_310, 1_000_200),
            "13,121 rows read (24,310 rows/s), 12,000 rows committed, 41 epochs sealed, last commit 200ms ago; flights: 1 \
             of 3 done, data/a.jsonl.gz line 4,121"
        );
    }

    #[test]
    fn the_live_lines_have_one_for_each_source() {
        assert_eq!(
            live(&sample(), 24_310, 1_000_200),
            [
                "        13,121 rows read          24,310 rows/s",
                "        12,000 committed              41 epochs   last commit 200ms ago",
                "       flights 1 of 3 done, data/a.jsonl.gz line 4,121",
            ]
        );
    }

    #[test]
    fn positions_of_many_partitions_stay_short() {
        let many = (0..50).map(|i| (format!("part-{i:02}"), "{\"next\":7}".to_owned())).collect();
        assert_eq!(position(&many, 30), "part-00 row 7, part-01 row 7, 48 more");
        assert_eq!(position(&Positions::new(), 30), "at the beginning");
        let odd = Positions::from([("x".to_owned(), "not json".to_owned())]);
        assert_eq!(position(&odd, 30), "x");
    }

    #[test]
    fn rates_settle_and_do_not_divide_by_zero() {
        let mut meter = Meter::default();
        assert_eq!(meter.rate(1000, Duration::ZERO), 0);
        assert_eq!(meter.rate(0, Duration::from_secs(1)), 0);
        assert_eq!(meter.rate(300, Duration::from_millis(300)), 1000);
        assert_eq!(meter.rate(300, Duration::from_millis(300)), 900);
        assert_eq!(meter.rate(200, Duration::from_secs(3)), 0);
    }
}
