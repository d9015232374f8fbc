//! From a pipeline file to everything that is needed to run it, without touching state or destinations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_columns::Schema;
use tidegate_pipeline::source::files::{self, FilesOptions, FilesSource, FollowOptions};
use tidegate_pipeline::source::generate::{GenerateOptions, GenerateSource};
use tidegate_pipeline::source::parquet::{ParquetOptions, ParquetSource};
use tidegate_pipeline::source::stdin::{StdinOptions, StdinSource};
use tidegate_pipeline::source::{Source, SourceError};
use tidegate_pipeline::spec::{self, ColumnsOptions, Pipeline, SinkEntry, SourceEntry};
use tidegate_protocol::coordinator;
use tidegate_protocol::guarantee::{self, Guarantee, Ingredients, SinkPromise, SourcePromise, Times};
use tidegate_protocol::ids::{SinkId, SourceId};
use tidegate_protocol::plugin::Plugin;

use crate::config::{
    CheckpointSection, Compression, Format, OnBadRow, OnLostRows, PipelineFile, RowFormat, SourceKind, SourceSection,
};
use crate::edits::SinkNow;
use crate::encodings::{self, Encodings};
use crate::error::ServerError;
use crate::graph::{self, SinkFacts};
use crate::letters::origins::Takes;
use crate::plugins::{self, Admission, Host};
use crate::shapes::{self, Shapes};

/// Tasks of a source whose file does not say.
const DEFAULT_TASKS: u32 = 4;
/// Bytes that may wait between two tasks.
const CHANNEL_BYTES: usize = 1 << 20;
/// Bytes that a source is asked for at once.
const BATCH_BYTES: usize = 256 << 10;
/// Rows of a participant that are kept until prepare, once a plugin has rejected rows there.
const REJECT_WINDOW: usize = 64 << 20;
/// Runs that may end one after the other without a committed epoch.
const RESTARTS: u32 = 5;
/// What the host itself may need for a call beyond what the plugin is allowed.
const CALL_GRACE: Duration = Duration::from_secs(5);

/// A pipeline whose parts are known and fit together: plugins admitted, sources made, the guarantee computed.
pub struct Assembled {
    pub(crate) file: PipelineFile,
    sources: BTreeMap<SourceId, Built>,
    pub(crate) sinks: BTreeMap<SinkId, Admission>,
    encodings: Encodings,
    shapes: Shapes,
    guarantee: Guarantee,
    description: serde_json::Value,
}

pub(crate) struct Built {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) tasks: u32,
}

/// Admits the plugins and makes the sources of a pipeline. Blocks while plugins compile; changes nothing outside the
/// compile cache.
///
/// # Errors
/// A plugin or source cannot be used as the file says.
pub fn assemble(host: &Host, file: &PipelineFile) -> Result<Assembled, ServerError> {
    let mut sources = BTreeMap::new();
    for (id, section) in &file.sources {
        let built = build(file, section).map_err(|error| ServerError::of_source(file, id, error))?;
        sources.insert(id.clone(), built);
    }
    host.check_tenant(file)?;
    let mut sinks = BTreeMap::new();
    for (id, section, _) in file.all_sinks() {
        let admission = host.admit(file, &id, section)?;
        sinks.insert(id, admission);
    }
    let offered = sources.iter().map(|(id, built)| (id.clone(), built.source.contract().encodings)).collect();
    let accepted = sinks.iter().map(|(id, sink)| (id.clone(), sink.description().encodings.clone())).collect();
    let encodings = encodings::choose(file, &offered, &accepted)?;
    let shapes = shapes::make(file, &encodings)?;
    let guarantee = guarantee::compute(&ingredients(file, &sources, &sinks));
    let description = describe(file, &sources, &sinks, &encodings);
    Ok(Assembled { file: file.clone(), sources, sinks, encodings, shapes, guarantee, description })
}

impl Assembled {
    /// The pipeline file.
    pub fn file(&self) -> &PipelineFile {
        &self.file
    }

    /// What the pipeline promises.
    pub fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    /// Refuses when the file asks for more than is promised.
    ///
    /// # Errors
    /// [`ServerError::Guarantee`] with every reason.
    pub fn require_guarantee(&self) -> Result<(), ServerError> {
        let asked = self.file.pipeline.guarantee;
        if self.guarantee.delivery >= asked {
            return Ok(());
        }
        Err(ServerError::Guarantee {
            problem: format!("the pipeline asks for {asked}, and only {} can be promised", self.guarantee.delivery),
            promised: self.guarantee.delivery,
            reasons: self.guarantee.reasons.clone(),
        })
    }

    /// What the guarantee rests on, one line each. What limits it is in [`Guarantee::reasons`].
    pub fn grounds(&self) -> Vec<String> {
        let mut grounds = Vec::new();
        for (id, built) in &self.sources {
            let contract = built.source.contract();
            if contract.replayable {
                grounds.push(format!("source `{id}` can be read again from every checkpoint ({})", contract.describe));
            }
        }
        for (id, sink) in &self.sinks {
            let description = sink.description();
            let abilities = &description.abilities;
            let kept = [
                (abilities.staging, "rows wait unseen until their epoch is sealed"),
                (abilities.idempotent_commit, "a commit can be repeated"),
                (abilities.observe, "its position can be observed"),
                (abilities.fence, "older runs are fenced"),
            ];
            let kept: Vec<_> = kept.iter().filter(|(can, _)| *can).map(|(_, words)| *words).collect();
            if !kept.is_empty() {
                let plugin = format!("{} {}", description.name, description.version);
                grounds.push(format!("sink `{id}` ({plugin}): {}", kept.join(", ")));
            }
        }
        grounds
    }

    /// How rows travel where they are not handed on as they are, one line each.
    pub fn travel(&self) -> Vec<String> {
        self.shapes.lines(&self.encodings)
    }

    /// Fingerprint of the graph, as it goes into every seal.
    pub fn fingerprint(&self) -> String {
        graph::fingerprint(&self.description)
    }

    /// Names and versions of the sinks' plugins.
    pub fn plugins(&self) -> BTreeMap<SinkId, String> {
        self.sinks.iter().map(|(id, sink)| (id.clone(), sink.binding.plugin_name.clone())).collect()
    }

    pub(crate) fn description(&self) -> &serde_json::Value {
        &self.description
    }

    pub(crate) fn sinks_now(&self) -> BTreeMap<SinkId, SinkNow<'_>> {
        self.sinks
            .iter()
            .map(|(id, sink)| {
                let versions = &sink.description().committable_versions;
                (id.clone(), SinkNow { binding: &sink.binding, committable_versions: versions })
            })
            .collect()
    }

    /// Refuses what sinks cannot do with rows of these columns.
    ///
    /// # Errors
    /// It names sink and source.
    pub(crate) fn check_columns(&self, known: &BTreeMap<SourceId, Schema>) -> Result<(), ServerError> {
        shapes::check(&self.file, &self.encodings, &self.shapes, known)
    }

    /// How a source's rows become columns, if they do.
    pub(crate) fn columns(&self, source: &SourceId) -> Option<&ColumnsOptions> {
        self.shapes.sources.get(source)
    }

    /// Sources with the encoding that they will be asked for.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&SourceId, &Built, tidegate_protocol::plugin::Encoding)> {
        self.sources.iter().filter_map(|(id, built)| Some((id, built, *self.encodings.sources.get(id)?)))
    }

    /// Binds the plugins, which creates granted directories, and puts everything together. `wrap` may decorate plugins;
    /// `grants` are other words for what some sinks are granted.
    pub(crate) fn pipeline(
        &self,
        protocol: coordinator::Settings,
        grants: &BTreeMap<SinkId, String>,
        wrap: impl Fn(Arc<dyn Plugin>) -> Arc<dyn Plugin>,
    ) -> Result<Pipeline, ServerError> {
        let mut sinks = Vec::new();
        let mut dead_letter = None;
        let lease = plugins::lease(&self.file)?;
        for (id, section, is_dead_letter) in self.file.all_sinks() {
            let (Some(admission), Some(encoding)) = (self.sinks.get(&id), self.encodings.sinks.get(&id)) else {
                continue;
            };
            let shape = self.shapes.sinks.get(&id).cloned().unwrap_or_default();
            let sources: BTreeSet<_> = section.sources.iter().cloned().collect();
            let mut binding = admission.binding.clone();
            if let Some(words) = grants.get(&id) {
                binding.grants.clone_from(words);
            }
            let entry = SinkEntry {
                id,
                plugin: wrap(admission.bind(&self.file, Some(&lease))?),
                binding,
                subtasks: section.subtasks,
                route: shapes::route(&section.route),
                encoding: *encoding,
                shape,
                sources: (sources.len() < self.file.sources.len()).then_some(sources),
            };
            match is_dead_letter {
                true => dead_letter = Some(entry),
                false => sinks.push(entry),
            }
        }
        let origins = self.file.takes.clone().map(|takes| Arc::new(Takes::new(takes)) as Arc<dyn spec::Origins>);
        let sources = self.sources().map(|(id, built, encoding)| SourceEntry {
            origins: origins.clone(),
            id: id.clone(),
            source: Arc::clone(&built.source),
            tasks: built.tasks,
            encoding,
            columns: self.shapes.sources.get(id).cloned(),
            on_bad_row: match self.file.sources.get(id).and_then(|section| section.kind.rows()) {
                Some(RowFormat { on_bad_row: OnBadRow::DeadLetter, .. }) => spec::OnBadRow::DeadLetter,
                _ => spec::OnBadRow::Stop,
            },
        });
        Ok(Pipeline {
            id: self.file.pipeline.name.clone(),
            fingerprint: self.fingerprint(),
            sources: sources.collect(),
            operators: Vec::new(),
            sinks,
            dead_letter,
            settings: self.settings(protocol),
            rejects_in_prepare: spec::RejectsInPrepare::default(),
            pace: spec::Pace::default(),
        })
    }

    fn settings(&self, protocol: coordinator::Settings) -> spec::Settings {
        let CheckpointSection { interval, min_pause, alarm_after, .. } = self.file.checkpoint;
        spec::Settings {
            interval,
            min_pause,
            channel_bytes: CHANNEL_BYTES,
            batch_bytes: BATCH_BYTES,
            alarm_after,
            call_timeout: call_timeout(&self.file),
            reject_window: REJECT_WINDOW,
            restarts: RESTARTS,
            restart_backoff: Duration::from_millis(200),
            restart_backoff_max: Duration::from_secs(10),
            protocol,
        }
    }
}

fn ingredients(
    file: &PipelineFile,
    sources: &BTreeMap<SourceId, Built>,
    sinks: &BTreeMap<SinkId, Admission>,
) -> Ingredients {
    let source = |(id, built): (&SourceId, &Built)| SourcePromise {
        name: id.to_string(),
        replayable: built.source.contract().replayable,
    };
    let sink = |(id, sink): (&SinkId, &Admission)| SinkPromise {
        sink: id.clone(),
        abilities: sink.description().abilities.clone(),
        participants: file.all_sinks().find(|(name, ..)| name == id).map_or(1, |(_, section, _)| section.subtasks),
    };
    Ingredients {
        sources: sources.iter().map(source).collect(),
        steps: Vec::new(),
        sinks: sinks.iter().map(sink).collect(),
        dead_letter: file.dead_letter.is_some(),
        // The local log flushes every record before it calls it durable.
        store_durable: true,
        times: times(file),
    }
}

fn times(file: &PipelineFile) -> Times {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let checkpoint = &file.checkpoint;
    let protocol = coordinator::Settings { commit_tries: checkpoint.commit_tries, ..coordinator::Settings::default() };
    Times {
        retain_ms: checkpoint.retain_age.map(millis),
        recovery_ms: protocol.recovery_ms(millis(call_timeout(file))),
        interval_ms: Some(millis(checkpoint.interval)),
    }
}

/// What the longest call of any sink may take.
fn call_timeout(file: &PipelineFile) -> Duration {
    let longest = file.all_sinks().map(|(_, section, _)| section.limits.call_time);
    longest.max().unwrap_or_default().saturating_add(CALL_GRACE)
}

fn describe(
    file: &PipelineFile,
    sources: &BTreeMap<SourceId, Built>,
    sinks: &BTreeMap<SinkId, Admission>,
    encodings: &Encodings,
) -> serde_json::Value {
    let tasks = sources.iter().map(|(id, built)| (id.clone(), built.tasks)).collect();
    let facts = sinks.iter().filter_map(|(id, sink)| {
        Some((id.clone(), SinkFacts { binding: &sink.binding, encoding: *encodings.sinks.get(id)? }))
    });
    graph::describe(file, &tasks, &encodings.typed, &facts.collect())
}

fn build(file: &PipelineFile, section: &SourceSection) -> Result<Built, SourceError> {
    match &section.kind {
        SourceKind::Files { paths, rows: RowFormat { format: Format::Parquet, .. }, .. } => {
            let options = ParquetOptions::new(&file.base, paths.clone());
            let source = ParquetSource::new(ParquetOptions { rate: section.rate, ..options })?;
            let tasks = match section.tasks {
                Some(tasks) => tasks,
                None => few(source.partitions()?.len()),
            };
            Ok(Built { source: Arc::new(source), tasks })
        }
        SourceKind::Files { paths, rows, compression, follow, on_lost_rows } => {
            let follow = follow.then(|| FollowOptions {
                on_lost_rows: match on_lost_rows {
                    OnLostRows::Stop => files::OnLostRows::Stop,
                    OnLostRows::Warn => files::OnLostRows::Warn,
                },
                ..FollowOptions::default()
            });
            let source = FilesSource::new(FilesOptions {
                base: file.base.clone(),
                paths: paths.clone(),
                format: format(&rows.format),
                compression: match compression {
                    Compression::Auto => files::Compression::Auto,
                    Compression::None => files::Compression::None,
                    Compression::Gzip => files::Compression::Gzip,
                    Compression::Zstd => files::Compression::Zstd,
                },
                max_line: usize::try_from(rows.max_line).unwrap_or(usize::MAX),
                rate: section.rate,
                files_per_batch: FilesOptions::FILES_PER_BATCH,
                follow,
            })?;
            let tasks = match section.tasks {
                Some(tasks) => tasks,
                // How many there will be is not known.
                None if follow.is_some() => DEFAULT_TASKS,
                None => few(source.partitions()?.len()),
            };
            Ok(Built { source: Arc::new(source), tasks })
        }
        SourceKind::Generate { seed, rows, partitions, row_bytes, keys } => {
            let source = GenerateSource::new(GenerateOptions {
                seed: *seed,
                rows: *rows,
                partitions: *partitions,
                row_bytes: row_bytes.unwrap_or(GenerateOptions::default().row_bytes),
                keys: *keys,
                rate: section.rate,
            })?;
            Ok(Built { source: Arc::new(source), tasks: section.tasks.unwrap_or(few(*partitions as usize)) })
        }
        SourceKind::Stdin { rows } => {
            let max_line = usize::try_from(rows.max_line).unwrap_or(usize::MAX);
            let source = StdinSource::new(StdinOptions { format: format(&rows.format), max_line })?;
            Ok(Built { source: Arc::new(source), tasks: 1 })
        }
    }
}

fn few(partitions: usize) -> u32 {
    u32::try_from(partitions).unwrap_or(DEFAULT_TASKS).clamp(1, DEFAULT_TASKS)
}

fn format(format: &Format) -> files::Format {
    match format {
        Format::JsonLines => files::Format::JsonLines,
        // Parquet files have a source of their own.
        Format::Raw | Format::Parquet => files::Format::Raw,
        Format::Csv(csv) => files::Format::Csv(files::CsvOptions {
            header: csv.header,
            delimiter: csv.delimiter,
            quote: csv.quote,
            columns: csv.columns.clone().unwrap_or_default(),
        }),
    }
}
