//! A plugin's log lines: counted, cleaned, and handed to the operator's sink.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::State;
use crate::bindings::imported::log::{self, Level};
use crate::limits::Limits;
use crate::text::{MAX_MESSAGE, MAX_NAME, Redactor};

const MAX_FIELDS: usize = 16;

/// How important a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

/// The log of one instance, with what is left of its budget. Lines beyond it are dropped; the first one is announced.
pub(crate) struct PluginLog {
    speaker: Speaker,
    sink: Arc<dyn LogSink>,
    redactor: Redactor,
    lines_left: AtomicU64,
    bytes_left: AtomicU64,
    silenced: AtomicU64,
}

impl PluginLog {
    pub(crate) fn new(speaker: Speaker, sink: Arc<dyn LogSink>, redactor: Redactor, limits: &Limits) -> Self {
        Self {
            speaker,
            sink,
            redactor,
            lines_left: AtomicU64::new(limits.log_lines),
            bytes_left: AtomicU64::new(limits.log_bytes),
            silenced: AtomicU64::new(0),
        }
    }

    pub(crate) fn write(&self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let bytes =
            fields.iter().fold(message.len(), |sum, (k, v)| sum.saturating_add(k.len()).saturating_add(v.len()));
        if !(take(&self.lines_left, 1) && take(&self.bytes_left, bytes as u64)) {
            if self.silenced.fetch_add(1, Ordering::Relaxed) == 0 {
                self.emit(
                    LogLevel::Warn,
                    "log budget spent: further lines of this instance are dropped".to_owned(),
                    vec![],
                );
            }
            return;
        }
        let fields = fields
            .iter()
            .take(MAX_FIELDS)
            .map(|(name, value)| (self.redactor.show(name, MAX_NAME), self.redactor.show(value, MAX_NAME)))
            .collect();
        self.emit(level, self.redactor.show(message, MAX_MESSAGE), fields);
    }

    /// Whether further lines would be dropped.
    pub(crate) fn is_silenced(&self) -> bool {
        self.silenced.load(Ordering::Relaxed) > 0
    }

    fn emit(&self, level: LogLevel, message: String, fields: Vec<(String, String)>) {
        let Speaker { sink, plugin, role } = self.speaker.clone();
        self.sink.line(LogLine { sink, plugin, role, level, message, fields });
    }
}

fn take(left: &AtomicU64, amount: u64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(amount)).is_ok()
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
