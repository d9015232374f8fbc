//! What a pipeline can promise (P9), with its reasons in plain words.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::event::Graph;
use crate::ids::SinkId;
use crate::plugin::{Abilities, Orphans, Visibility};

/// How often a row arrives at a destination. Ordered from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// A crash may lose rows and may repeat rows.
    BestEffort,
    /// A crash may lose rows, and repeats none.
    AtMostOnce,
    /// A crash loses none, and may repeat rows.
    AtLeastOnce,
    /// Each row once.
    ExactlyOnce,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BestEffort => "best-effort",
            Self::AtMostOnce => "at-most-once",
            Self::AtLeastOnce => "at-least-once",
            Self::ExactlyOnce => "exactly-once",
        })
    }
}

/// A source, as far as promises hang on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePromise {
    /// Its name, for the reasons.
    pub name: String,
    /// Can be read again from a recorded position.
    pub replayable: bool,
}

/// A step between sources and sinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPromise {
    /// Its name, for the reasons.
    pub name: String,
    /// The same rows and state give the same result.
    pub deterministic: bool,
}

/// A sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkPromise {
    /// Its name.
    pub sink: SinkId,
    /// What its plugin declared.
    pub abilities: Abilities,
    /// How many participants write it.
    pub participants: u32,
}

/// Everything that the promise is computed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingredients {
    /// Sources.
    pub sources: Vec<SourcePromise>,
    /// Steps.
    pub steps: Vec<StepPromise>,
    /// Sinks, the dead-letter sink among them.
    pub sinks: Vec<SinkPromise>,
    /// Bad rows go to a dead-letter sink instead of stopping the pipeline.
    pub dead_letter: bool,
    /// A record that the store calls durable survives a power cut.
    pub store_durable: bool,
    /// Times that the operator set.
    pub times: Times,
}

/// Times that promises hang on, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// How long checkpoints are kept at least; `None` = not stated.
    pub retain_ms: Option<u64>,
    /// How long the host tries a commit before it asks a person.
    pub recovery_ms: u64,
    /// From one barrier to the next; `None` = not stated.
    pub interval_ms: Option<u64>,
}

impl Times {
    /// For how long a sealed epoch must stay committable and recognisable.
    fn horizon_ms(&self) -> u64 {
        self.retain_ms.unwrap_or(0).max(self.recovery_ms)
    }

    /// Names that so many participants make in a day when every epoch has rows.
    fn names_per_day(&self, participants: u32) -> Option<u64> {
        const DAY_MS: u64 = 86_400_000;
        let epochs = DAY_MS / self.interval_ms?.max(1);
        Some(epochs.saturating_mul(u64::from(participants)))
    }
}

impl Ingredients {
    /// From what the coordinator knows. Steps are taken to be deterministic.
    pub fn of(graph: &Graph, times: Times, store_durable: bool) -> Self {
        let source = |(id, spec): (&crate::ids::SourceId, &crate::event::SourceSpec)| SourcePromise {
            name: id.to_string(),
            replayable: spec.replayable,
        };
        let sink = |(id, spec): (&SinkId, &crate::event::SinkSpec)| SinkPromise {
            sink: id.clone(),
            abilities: spec.abilities.clone(),
            participants: spec.participants,
        };
        Self {
            sources: graph.sources.iter().map(source).collect(),
            steps: graph.operators.keys().map(|id| StepPromise { name: id.to_string(), deterministic: true }).collect(),
            sinks: graph.sinks.iter().map(sink).collect(),
            dead_letter: graph.sinks.values().any(|spec| spec.dead_letter),
            store_durable,
            times,
        }
    }
}

/// What holds at one sink.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct SinkGuarantee {
    /// How often a row arrives.
    pub delivery: Delivery,
    /// When it can be seen.
    pub visibility: Visibility,
    /// Why not more, and what one must know.
    pub reasons: Vec<String>,
}

/// What a pipeline promises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Guarantee {
    /// The weakest of all sinks.
    pub delivery: Delivery,
    /// The weakest of all sinks.
    pub visibility: Visibility,
    /// Holds when a second host runs the same pipeline by mistake.
    pub survives_second_host: bool,
    /// Per sink.
    pub sinks: BTreeMap<SinkId, SinkGuarantee>,
    /// All reasons, each once, those of the pipeline first.
    pub reasons: Vec<String>,
}

impl Guarantee {
    /// Refuses when more is asked for than holds.
    ///
    /// # Errors
    /// One text with every reason.
    pub fn require(&self, asked: Delivery) -> Result<(), String> {
        if self.delivery >= asked {
            return Ok(());
        }
        let reasons = self.reasons.join("; ");
        Err(format!("{asked} was asked for and only {} can be promised: {reasons}", self.delivery))
    }
}

/// Computes what can be promised.
pub fn compute(from: &Ingredients) -> Guarantee {
    let (ceiling, mut reasons) = pipeline_ceiling(from);
    let sinks: BTreeMap<SinkId, SinkGuarantee> =
        from.sinks.iter().map(|sink| (sink.sink.clone(), sink_guarantee(sink, &from.times, ceiling))).collect();
    // Each names its sink, so none comes twice.
    reasons.extend(sinks.values().flat_map(|sink| sink.reasons.iter().cloned()));
    Guarantee {
        delivery: sinks.values().map(|sink| sink.delivery).min().unwrap_or(ceiling),
        visibility: sinks.values().map(|sink| sink.visibility).min().unwrap_or(Visibility::WholeEpoch),
        survives_second_host: from.sinks.iter().all(|sink| sink.abilities.fence && sink.abilities.observe),
        sinks,
        reasons,
    }
}

fn pipeline_ceiling(from: &Ingredients) -> (Delivery, Vec<String>) {
    let mut reasons = Vec::new();
    let mut ceiling = Delivery::ExactlyOnce;
    let mut lower = |to: Delivery, reason: String, reasons: &mut Vec<String>| {
        ceiling = ceiling.min(to);
        reasons.push(reason);
    };
    for source in from.sources.iter().filter(|source| !source.replayable) {
        let reason =
            format!("source `{}` cannot be read again: rows read and not yet sealed are lost in a crash", source.name);
        lower(Delivery::AtMostOnce, reason, &mut reasons);
    }
    if !from.store_durable {
        let reason = "the log is not durable: after a power cut sealed epochs may be forgotten".to_owned();
        lower(Delivery::BestEffort, reason, &mut reasons);
    }
    for step in from.steps.iter().filter(|step| !step.deterministic) {
        reasons.push(format!(
            "step `{}` may give another result when an unsealed epoch is read again; each row still counts once",
            step.name
        ));
    }
    if from.dead_letter {
        reasons.push("bad rows go to the dead-letter sink: \"each row once\" means once in one of the two".to_owned());
    }
    (ceiling, reasons)
}

fn sink_guarantee(from: &SinkPromise, times: &Times, ceiling: Delivery) -> SinkGuarantee {
    let Abilities { staging, idempotent_commit, observe, fence, reconcile, .. } = from.abilities;
    let sink = &from.sink;
    let mut delivery = ceiling;
    let mut reasons = Vec::new();
    // Rows that may come twice: at-least-once where nothing can be lost, else nothing at all is left to promise.
    let repeats = if ceiling == Delivery::ExactlyOnce { Delivery::AtLeastOnce } else { Delivery::BestEffort };
    let mut weaken = |reason: String| {
        delivery = delivery.min(repeats);
        reasons.push(reason);
    };
    if !idempotent_commit && reconcile {
        weaken(format!(
            "sink `{sink}` cannot repeat a commit without effect: a delayed one may land after it was asked about"
        ));
    } else if !idempotent_commit {
        weaken(format!(
            "sink `{sink}` can neither repeat a commit without effect nor be asked about one: a lost answer waits for a person"
        ));
    }
    if !observe {
        weaken(format!(
            "sink `{sink}` cannot be observed: a destination that is ahead, behind or somebody else's goes unnoticed"
        ));
    }
    if !staging {
        weaken(format!(
            "sink `{sink}` does not stage: rows of an epoch that is never sealed stay visible, and come again"
        ));
    }
    let needed = times.horizon_ms();
    if let Some(kept) = from.abilities.marker_retention {
        if kept < needed {
            weaken(format!(
                "sink `{sink}` remembers commits for {kept} ms, and may be asked about one for {needed} ms: as long as \
                 checkpoints are kept and commits are tried"
            ));
        }
        if !fence {
            weaken(format!(
                "sink `{sink}` cannot be fenced and remembers commits for {kept} ms: one that is delayed for longer \
                 lands a second time"
            ));
        }
    }
    if !from.abilities.marker_survives_foreign_writers {
        weaken(format!(
            "sink `{sink}`: other programs that write to the destination can erase its commit markers, and a commit that \
             is repeated then lands a second time"
        ));
    }
    if !fence {
        reasons.push(format!(
            "sink `{sink}` cannot be fenced: a second host can commit an old epoch late; keep it to one host"
        ));
    }
    if from.abilities.marker_retention.is_some() {
        reasons.push(by_the_clock(sink, "the destination may have forgotten a commit", "that commit may land twice"));
    }
    if let Some(ttl) = from.abilities.prepared_ttl {
        reasons.push(by_the_clock(
            sink,
            "it may have dropped prepared work",
            "it is told late that rows may be missing",
        ));
        reasons.push(format!(
            "sink `{sink}` drops prepared work after {ttl} ms: an outage longer than that blocks its epochs"
        ));
        if ttl < needed {
            reasons.push(format!(
                "sink `{sink}`: prepared work lives for {ttl} ms, and checkpoints are kept and commits tried for \
                 {needed} ms: an older checkpoint may find its work gone; let the destination keep it for longer"
            ));
        }
    }
    if let (Some(borne), Some(made)) = (from.abilities.names_per_day, times.names_per_day(from.participants))
        && made > borne
    {
        reasons.push(format!(
            "sink `{sink}` bears {borne} new names a day, and {} participants that end an epoch every {} ms may make \
             {made}; no row waits for that and nothing stops: use fewer subtasks or a longer interval",
            from.participants,
            times.interval_ms.unwrap_or(0)
        ));
    }
    if let Orphans::Expires(after) = from.abilities.orphans {
        reasons.push(format!("sink `{sink}`: work that was never sealed stays at the destination for {after} ms"));
    }
    let visibility = if staging { from.abilities.visibility } else { Visibility::Early };
    if visibility == Visibility::Early {
        reasons.push(format!("sink `{sink}`: rows can be seen before their epoch is sealed"));
    }
    SinkGuarantee { delivery, visibility, reasons }
}

/// What is timed by the host can be no surer than its clock.
fn by_the_clock(sink: &SinkId, what: &str, otherwise: &str) -> String {
    format!(
        "sink `{sink}`: that {what} is told by this host's clock; set back while an epoch waits, by more than the log has \
         seen pass since, {otherwise}: keep it in step"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::AtomicScope;

    fn able() -> Abilities {
        Abilities {
            staging: true,
            idempotent_commit: true,
            marker_retention: None,
            marker_survives_foreign_writers: true,
            observe: true,
            fence: true,
            reconcile: true,
            atomic_scope: AtomicScope::Sink,
            visibility: Visibility::WholeEpoch,
            max_open_epochs: 4,
            upsert_keys: false,
            prepared_ttl: None,
            max_idle: None,
            names_per_day: None,
            orphans: Orphans::Listable,
        }
    }

    fn of(replayable: bool, abilities: Abilities) -> Ingredients {
        Ingredients {
            sources: vec![SourcePromise { name: "in".to_owned(), replayable }],
            steps: Vec::new(),
            sinks: vec![SinkPromise { sink: SinkId::new("out").expect("a legal name"), abilities, participants: 4 }],
            dead_letter: false,
            store_durable: true,
            times: Times { retain_ms: Some(1_000), recovery_ms: 500, interval_ms: Some(86_400) },
        }
    }

    #[test]
    fn with_every_ability_it_is_exactly_once_and_there_is_nothing_to_say() {
        let guarantee = compute(&of(true, able()));
        assert_eq!(guarantee.delivery, Delivery::ExactlyOnce);
        assert_eq!(guarantee.visibility, Visibility::WholeEpoch);
        assert!(guarantee.survives_second_host && guarantee.reasons.is_empty(), "{:?}", guarantee.reasons);
        assert_eq!(guarantee.require(Delivery::ExactlyOnce), Ok(()));
    }

    #[test]
    fn each_missing_ability_lowers_the_promise_and_says_why() {
        type Lack = fn(&mut Abilities);
        let lacks: [(Lack, Delivery, &str); 10] = [
            (|a| a.idempotent_commit = false, Delivery::AtLeastOnce, "cannot repeat a commit"),
            (|a| a.observe = false, Delivery::AtLeastOnce, "cannot be observed"),
            (|a| a.staging = false, Delivery::AtLeastOnce, "does not stage"),
            (|a| a.marker_retention = Some(10), Delivery::AtLeastOnce, "remembers commits for 10 ms"),
            (|a| a.fence = false, Delivery::ExactlyOnce, "a second host can"),
            (|a| (a.marker_retention, a.fence) = (Some(9_999), false), Delivery::AtLeastOnce, "lands a second time"),
            (|a| a.marker_survives_foreign_writers = false, Delivery::AtLeastOnce, "can erase its commit markers"),
            (|a| a.prepared_ttl = Some(7), Delivery::ExactlyOnce, "drops prepared work after 7 ms"),
            (|a| a.prepared_ttl = Some(7), Delivery::ExactlyOnce, "an older checkpoint may find its work gone"),
            (|a| a.names_per_day = Some(3_999), Delivery::ExactlyOnce, "may make 4000; no row waits"),
        ];
        for (lack, delivery, words) in lacks {
            let mut abilities = able();
            lack(&mut abilities);
            let guarantee = compute(&of(true, abilities));
            assert_eq!(guarantee.delivery, delivery, "{words}");
            assert!(guarantee.reasons.iter().any(|reason| reason.contains(words)), "{words}: {:?}", guarantee.reasons);
        }
    }

    #[test]
    fn what_is_kept_for_long_enough_is_not_mentioned() {
        let mut abilities = able();
        (abilities.marker_retention, abilities.names_per_day) = (Some(1_000), Some(4_000));
        let guarantee = compute(&of(true, abilities));
        assert_eq!(guarantee.delivery, Delivery::ExactlyOnce);
        assert!(matches!(&guarantee.reasons[..], [clock] if clock.contains("clock")), "{:?}", guarantee.reasons);
    }

    #[test]
    fn what_the_pipeline_itself_cannot_promise_comes_first_and_each_reason_once() {
        let mut from = of(true, able());
        from.store_durable = false;
        from.dead_letter = true;
        from.steps.push(StepPromise { name: "lookup".to_owned(), deterministic: false });
        from.steps.push(StepPromise { name: "sum".to_owned(), deterministic: true });
        let guarantee = compute(&from);
        assert_eq!(guarantee.delivery, Delivery::BestEffort);
        for (reason, words) in guarantee.reasons.iter().zip(["not durable", "step `lookup`", "dead-letter sink"]) {
            assert!(reason.contains(words), "{words}: {:?}", guarantee.reasons);
        }
        assert_eq!(guarantee.reasons.len(), 3);
        let mut one = able();
        one.observe = false;
        let mut from = of(true, one);
        from.sinks.push(from.sinks[0].clone());
        assert_eq!(compute(&from).reasons.len(), 1, "the same words about the same sink");
    }

    #[test]
    fn a_commit_that_can_neither_be_repeated_nor_asked_about_is_said_to_wait_for_a_person() {
        let mut abilities = able();
        (abilities.idempotent_commit, abilities.reconcile) = (false, false);
        let guarantee = compute(&of(true, abilities));
        assert_eq!(guarantee.delivery, Delivery::AtLeastOnce);
        assert!(guarantee.reasons[0].contains("waits for a person"), "{:?}", guarantee.reasons);
    }

    #[test]
    fn leftovers_and_short_lives_are_mentioned_and_long_ones_are_not() {
        let mut abilities = able();
        abilities.orphans = Orphans::Expires(77);
        abilities.prepared_ttl = Some(1_000);
        let guarantee = compute(&of(true, abilities));
        assert_eq!(guarantee.delivery, Delivery::ExactlyOnce);
        assert_eq!(guarantee.reasons.len(), 3, "{:?}", guarantee.reasons);
        assert!(guarantee.reasons[0].contains("clock") && guarantee.reasons[2].contains("for 77 ms"));
    }

    #[test]
    fn a_source_that_cannot_be_read_again_is_never_exactly_once() {
        let guarantee = compute(&of(false, able()));
        assert_eq!(guarantee.delivery, Delivery::AtMostOnce);
        let words = guarantee.require(Delivery::ExactlyOnce).expect_err("refused");
        assert!(words.contains("`in`") && words.contains("at-most-once"), "{words}");
        let mut both = able();
        both.idempotent_commit = false;
        assert_eq!(compute(&of(false, both)).delivery, Delivery::BestEffort);
    }

    #[test]
    fn rows_without_staging_are_early_whatever_the_plugin_says() {
        let mut abilities = able();
        abilities.staging = false;
        assert_eq!(compute(&of(true, abilities)).visibility, Visibility::Early);
    }
}
