//! A plugin's metrics: bounded in names and in number of series, and handed to the operator's sink.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::State;
use crate::bindings::imported::metrics;
use crate::limits::Limits;
use crate::tenant::Tenant;
use crate::text::Redactor;

const MAX_LABELS: usize = 8;
const MAX_METRIC_NAME: usize = 64;
const MAX_LABEL_VALUE: usize = 100;

/// What happened to a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    tenant: Tenant,
    names: BTreeSet<String>,
    series: BTreeSet<(String, Vec<(String, String)>)>,
    max_names: usize,
    max_series: usize,
}

impl PluginMetrics {
    pub(crate) fn new(
        sink_name: String,
        sink: Arc<dyn MetricSink>,
        redactor: Redactor,
        tenant: Tenant,
        limits: &Limits,
    ) -> Self {
        let (max_names, max_series) = (limits.metric_names, limits.metric_series);
        let (names, series) = (BTreeSet::new(), BTreeSet::new());
        Self { sink_name, sink, redactor, tenant, names, series, max_names, max_series }
    }

    /// Passes a change on, or drops it when its name is not legal, or it is of one name or series too many.
    pub(crate) fn record(&mut self, name: String, mut labels: Vec<(String, String)>, change: MetricChange) {
        if !legal_name(&name) || labels.len() > MAX_LABELS || !labels.iter().all(|(name, _)| legal_name(name)) {
            return;
        }
        for (_, value) in &mut labels {
            *value = self.redactor.show(value, MAX_LABEL_VALUE);
        }
        labels.sort();
        let key = (name, labels);
        if !self.series.contains(&key) {
            let name_fits = self.names.len() < self.max_names || self.names.contains(&key.0);
            if !name_fits || self.series.len() >= self.max_series || !self.tenant.admit_series(&(&self.sink_name, &key))
            {
                return;
            }
            self.names.insert(key.0.clone());
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::limits::TenantLimits;

    #[derive(Default)]
    struct Kept(Mutex<Vec<MetricSample>>);

    impl MetricSink for Kept {
        fn sample(&self, sample: MetricSample) {
            self.0.lock().unwrap().push(sample);
        }
    }

    fn passed(kept: &Kept) -> Vec<String> {
        let samples = kept.0.lock().unwrap();
        let label = |sample: &MetricSample| sample.labels.first().map_or("", |(_, value)| value).to_owned();
        samples.iter().map(|sample| format!("{}{}", sample.name, label(sample))).collect()
    }

    fn metrics(kept: &Arc<Kept>, tenant: &Tenant, limits: &Limits) -> PluginMetrics {
        PluginMetrics::new("out".to_owned(), kept.clone(), Redactor::default(), tenant.clone(), limits)
    }

    fn count(metrics: &mut PluginMetrics, name: &str, label: &str) {
        let labels = if label.is_empty() { vec![] } else { vec![("l".to_owned(), label.to_owned())] };
        metrics.record(name.to_owned(), labels, MetricChange::CounterAdd(1));
    }

    #[test]
    fn names_and_series_are_bounded_each_for_itself() {
        let (kept, tenant) = (Arc::new(Kept::default()), Tenant::default());
        let limits = Limits { metric_names: 2, metric_series: 3, ..Limits::default() };
        let mut metrics = metrics(&kept, &tenant, &limits);
        for (name, label) in [("a", ""), ("b", ""), ("c", ""), ("a", "1"), ("a", "2"), ("b", "")] {
            count(&mut metrics, name, label);
        }
        assert_eq!(passed(&kept), ["a", "b", "a1", "b"]);
    }

    #[test]
    fn an_instance_that_starts_again_gets_no_new_series_of_its_tenants() {
        let kept = Arc::new(Kept::default());
        let tenant = Tenant::new("t", TenantLimits { metric_series: 2, ..TenantLimits::default() });
        for name in ["a", "b", "c", "a"] {
            count(&mut metrics(&kept, &tenant, &Limits::default()), name, "");
        }
        assert_eq!(passed(&kept), ["a", "b", "a"]);
    }
}
