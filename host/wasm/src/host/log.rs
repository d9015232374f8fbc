//! A plugin's log lines: counted, cleaned, and handed to the operator's sink.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::State;
use crate::bindings::imported::log::{self, Level};
use crate::limits::budget;
use crate::tenant::Tenant;
use crate::text::{MAX_NAME, Redactor};

const MAX_FIELDS: usize = 16;

/// How important a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogLevel {
    /// Every detail.
    Trace,
    /// For finding errors.
    Debug,
    /// What happens.
    Info,
    /// Somebody should look.
    Warn,
    /// Something failed.
    Error,
}

/// One line of a plugin's log. All text in it is bounded and escaped, secrets and host paths are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The sink on whose behalf the plugin runs.
    pub sink: String,
    /// Name and version of the plugin.
    pub plugin: String,
    /// Which role the instance has; `describe` before any.
    pub role: &'static str,
    /// How important.
    pub level: LogLevel,
    /// What it says.
    pub message: String,
    /// More, as names and values.
    pub fields: Vec<(String, String)>,
}

/// Where plugins' log lines go. Called on the instance's thread; should not block.
pub trait LogSink: Send + Sync {
    /// Takes one line.
    fn line(&self, line: LogLine);
}

/// Hands lines to `tracing`, under the target `tidegate::plugin`.
#[derive(Debug, Clone, Copy, Default)]
pub struct TracingLog;

impl LogSink for TracingLog {
    fn line(&self, line: LogLine) {
        let LogLine { sink, plugin, role, level, message, fields } = line;
        let fields = Fields(&fields);
        macro_rules! emit {
            ($level:ident) => {
                tracing::event!(
                    target: "tidegate::plugin", tracing::Level::$level, %sink, %plugin, role, %fields, "{message}"
                )
            };
        }
        match level {
            LogLevel::Trace => emit!(TRACE),
            LogLevel::Debug => emit!(DEBUG),
            LogLevel::Info => emit!(INFO),
            LogLevel::Warn => emit!(WARN),
            LogLevel::Error => emit!(ERROR),
        }
    }
}

struct Fields<'a>(&'a [(String, String)]);

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if i == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// Who is talking.
#[derive(Debug, Clone)]
pub(crate) struct Speaker {
    pub(crate) sink: String,
    pub(crate) plugin: String,
    pub(crate) role: &'static str,
}

/// How long a log budget lasts.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);

/// What all instances of one sink, or of one tenant, may log within one window. Shared, so that a plugin that is started
/// again and again does not get more.
pub(crate) struct LogBudget {
    lines: u64,
    bytes: u64,
    window: Mutex<Window>,
}

struct Window {
    /// `None` before the first line.
    began: Option<Instant>,
    lines_left: u64,
    bytes_left: u64,
    dropped: u64,
}

/// Whether a line may pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pass {
        /// Lines dropped in the window that is over, if this is the first line of a new one.
        dropped_before: u64,
    },
    Drop {
        /// Whether it is the first one dropped in this window.
        first: bool,
    },
}

impl LogBudget {
    pub(crate) fn new(lines: u64, bytes: u64) -> Self {
        let window = Window { began: None, lines_left: lines, bytes_left: bytes, dropped: 0 };
        Self { lines, bytes, window: Mutex::new(window) }
    }

    fn take(&self, bytes: u64, now: Instant) -> Verdict {
        let mut window = self.lock();
        let mut dropped_before = 0;
        if window.began.is_none_or(|began| now.saturating_duration_since(began) >= WINDOW) {
            dropped_before = window.dropped;
            *window = Window { began: Some(now), lines_left: self.lines, bytes_left: self.bytes, dropped: 0 };
        }
        match (window.lines_left.checked_sub(1), window.bytes_left.checked_sub(bytes)) {
            (Some(lines_left), Some(bytes_left)) => {
                (window.lines_left, window.bytes_left) = (lines_left, bytes_left);
                Verdict::Pass { dropped_before }
            }
            _ => {
                // One line too long ends the window too: what follows it would be out of context.
                window.lines_left = 0;
                window.dropped = window.dropped.saturating_add(1);
                Verdict::Drop { first: window.dropped == 1 }
            }
        }
    }

    fn is_spent(&self, now: Instant) -> bool {
        let window = self.lock();
        window.dropped > 0 && window.began.is_some_and(|began| now.saturating_duration_since(began) < WINDOW)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log of one instance. Lines beyond the budgets of the sink and of the tenant are dropped; the first one is announced,
/// and how many there were.
pub(crate) struct PluginLog {
    speaker: Speaker,
    sink: Arc<dyn LogSink>,
    redactor: Redactor,
    budget: Arc<LogBudget>,
    tenant: Tenant,
}

impl PluginLog {
    pub(crate) fn new(
        speaker: Speaker,
        sink: Arc<dyn LogSink>,
        redactor: Redactor,
        budget: Arc<LogBudget>,
        tenant: Tenant,
    ) -> Self {
        Self { speaker, sink, redactor, budget, tenant }
    }

    pub(crate) fn write(&self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let bytes =
            fields.iter().fold(message.len(), |sum, (k, v)| sum.saturating_add(k.len()).saturating_add(v.len()));
        let (bytes, now) = (bytes as u64, Instant::now());
        if !self.passes(self.budget.take(bytes, now), "this sink's plugin") {
            return;
        }
        if !self.passes(self.tenant.log().take(bytes, now), "this tenant's plugins") {
            self.tenant.note_spent(budget::LOG_LINES, None);
            return;
        }
        self.tenant.note_spent(budget::LOG_LINES, Some(1));
        self.tenant.note_spent(budget::LOG_BYTES, Some(bytes));
        let fields = fields
            .iter()
            .take(MAX_FIELDS)
            .map(|(name, value)| (self.redactor.show(name, MAX_NAME), self.redactor.show(value, MAX_NAME)))
            .collect();
        self.emit(level, self.redactor.message(message), fields);
    }

    /// Whether a line is let through; says what a budget has dropped.
    fn passes(&self, verdict: Verdict, whose: &str) -> bool {
        match verdict {
            Verdict::Pass { dropped_before: 0 } => true,
            Verdict::Pass { dropped_before } => {
                self.emit(LogLevel::Warn, format!("{dropped_before} lines of {whose} were dropped"), vec![]);
                true
            }
            Verdict::Drop { first } => {
                if first {
                    let message = format!("log budget spent: further lines of {whose} are dropped for now");
                    self.emit(LogLevel::Warn, message, vec![]);
                }
                false
            }
        }
    }

    /// Whether a line would be dropped.
    pub(crate) fn is_silenced(&self) -> bool {
        let now = Instant::now();
        self.budget.is_spent(now) || self.tenant.log().is_spent(now)
    }

    /// Longest line, in bytes.
    pub(crate) fn longest(&self) -> usize {
        self.redactor.max_message()
    }

    fn emit(&self, level: LogLevel, message: String, fields: Vec<(String, String)>) {
        let Speaker { sink, plugin, role } = self.speaker.clone();
        self.sink.line(LogLine { sink, plugin, role, level, message, fields });
    }
}

impl log::Host for State {
    async fn log(&mut self, level: Level, message: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        self.meter.check()?;
        let level = match level {
            Level::Trace => LogLevel::Trace,
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        self.log.write(level, &message, &fields);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_full_again_when_its_window_is_over() {
        let budget = LogBudget::new(2, 100);
        let start = Instant::now();
        let pass = Verdict::Pass { dropped_before: 0 };
        assert_eq!([budget.take(1, start), budget.take(1, start)], [pass, pass]);
        assert_eq!(budget.take(1, start), Verdict::Drop { first: true });
        assert_eq!(budget.take(1, start), Verdict::Drop { first: false });
        assert!(budget.is_spent(start) && !budget.is_spent(start + WINDOW));
        assert_eq!(budget.take(1, start + WINDOW), Verdict::Pass { dropped_before: 2 });
        assert_eq!(budget.take(1, start + WINDOW), pass);
    }

    #[test]
    fn bytes_count_as_well_as_lines() {
        let budget = LogBudget::new(10, 100);
        assert_eq!(budget.take(101, Instant::now()), Verdict::Drop { first: true });
    }
}
