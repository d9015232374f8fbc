//! A plugin's metrics: bounded in names and in number of series, and handed to the operator's sink.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::State;
use crate::bindings::imported::metrics;
use crate::text::Redactor;

const MAX_LABELS: usize = 8;
const MAX_METRIC_NAME: usize = 64;
const MAX_LABEL_VALUE: usize = 100;

/// What happened to a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricChange {
    /// A counter rose by so much.
    CounterAdd(u64),
    /// A gauge has this value.
    GaugeSet(f64),
    /// A histogram saw this value.
    HistogramRecord(f64),
}

/// One change of one series. Names are `[a-z0-9_]`, at most 64 bytes; there are at most 8 labels.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    /// The sink on whose behalf the plugin runs.
    pub sink: String,
    /// The metric's name.
    pub name: String,
    /// Names and values of its labels, in order.
    pub labels: Vec<(String, String)>,
    /// What happened.
    pub change: MetricChange,
}

/// Where plugins' metrics go. Called on the instance's thread; should not block.
pub trait MetricSink: Send + Sync {
    /// Takes one change.
    fn sample(&self, sample: MetricSample);
}

/// Hands changes to `tracing`, under the target `tidegate::metric`, at level trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct TracingMetrics;

impl MetricSink for TracingMetrics {
    fn sample(&self, sample: MetricSample) {
        tracing::trace!(
            target: "tidegate::metric",
            sink = %sample.sink, name = %sample.name, labels = ?sample.labels, change = ?sample.change
        );
    }
}

/// The metrics of one instance.
pub(crate) struct PluginMetrics {
    sink_name: String,
    sink: Arc<dyn MetricSink>,
    redactor: Redactor,
    series: BTreeSet<(String, Vec<(String, String)>)>,
    max_series: usize,
}

impl PluginMetrics {
    pub(crate) fn new(sink_name: String, sink: Arc<dyn MetricSink>, redactor: Redactor, max_series: usize) -> Self {
        Self { sink_name, sink, redactor, series: BTreeSet::new(), max_series }
    }

    /// Passes a change on, or drops it when its name is not legal or one series too many.
    fn record(&mut self, name: String, mut labels: Vec<(String, String)>, change: MetricChange) {
        if !legal_name(&name) || labels.len() > MAX_LABELS || !labels.iter().all(|(name, _)| legal_name(name)) {
            return;
        }
        for (_, value) in &mut labels {
            *value = self.redactor.show(value, MAX_LABEL_VALUE);
        }
        labels.sort();
        let key = (name, labels);
        if !self.series.contains(&key) {
            if self.series.len() >= self.max_series {
                return;
            }
            self.series.insert(key.clone());
        }
        let (name, labels) = key;
        self.sink.sample(MetricSample { sink: self.sink_name.clone(), name, labels, change });
    }
}

fn legal_name(name: &str) -> bool {
    (1..=MAX_METRIC_NAME).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

impl metrics::Host for State {
    async fn counter_add(&mut self, name: String, labels: Vec<(String, String)>, value: u64) -> wasmtime::Result<()> {
        self.meter.check()?;
        self.metrics.record(name, labels, MetricChange::CounterAdd(value));
        Ok(())
    }

    async fn gauge_set(&mut self, name: String, labels: Vec<(String, String)>, value: f64) -> wasmtime::Result<()> {
        self.meter.check()?;
        self.metrics.record(name, labels, MetricChange::GaugeSet(value));
        Ok(())
    }

    async fn histogram_record(
        &mut self,
        name: String,
        labels: Vec<(String, String)>,
        value: f64,
    ) -> wasmtime::Result<()> {
        self.meter.check()?;
        self.metrics.record(name, labels, MetricChange::HistogramRecord(value));
        Ok(())
    }
}
