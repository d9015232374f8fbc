//! Keeps what a plugin tells, up to a bound: what floods the host must not flood the judge.

use std::sync::{Mutex, PoisonError};

use tidegate_protocol::ids::PartId;
use tidegate_protocol::plugin::{BoxFuture, External, IntentLog, PluginError};
use tidegate_wasm::{LogLine, LogSink, MetricSample, MetricSink};

const MOST: usize = 10_000;

/// What one sink's plugin told.
#[derive(Default)]
pub struct Kept {
    lines: Mutex<Vec<LogLine>>,
    samples: Mutex<Vec<MetricSample>>,
    intents: Mutex<Vec<String>>,
}

impl Kept {
    /// Its log.
    pub fn lines(&self) -> Vec<LogLine> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its metrics.
    pub fn samples(&self) -> Vec<MetricSample> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it announced.
    pub fn intents(&self) -> Vec<String> {
        self.intents.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn keep<T>(kept: &Mutex<Vec<T>>, new: T) -> u64 {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() < MOST {
        kept.push(new);
    }
    kept.len() as u64
}

impl LogSink for Kept {
    fn line(&self, line: LogLine) {
        keep(&self.lines, line);
    }
}

impl MetricSink for Kept {
    fn sample(&self, sample: MetricSample) {
        keep(&self.samples, sample);
    }
}

impl IntentLog for Kept {
    fn intent(&self, _: Option<PartId>, resource: External) -> BoxFuture<'_, Result<u64, PluginError>> {
        let number = keep(&self.intents, resource.name);
        Box::pin(async move { Ok(number) })
    }

    fn bound(&self, _: u64, name: String) -> BoxFuture<'_, Result<(), PluginError>> {
        keep(&self.intents, name);
        Box::pin(async { Ok(()) })
    }
}
