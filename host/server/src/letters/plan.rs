//! Which pipeline sends letters again, and where each letter goes in it.

use std::collections::BTreeMap;

use tidegate_columns::Schema;
use tidegate_protocol::ids::{PipelineId, SinkId, SourceId};
use tidegate_protocol::plugin::Encoding;

use super::rows::Store;
use super::unwrap::Letter;
use super::{header, short_hash};
use crate::config::{
    Compression, CsvSection, Format, OnBadRow, PipelineFile, RowFormat, SchemaSection, SinkFormat, SinkSection,
    SourceKind, SourceSection, UnknownFields,
};
use crate::error::ServerError;
use crate::graph;
use crate::state::State;

/// The source and the sink of letters that cannot be sent again.
const KEPT: &str = "kept-letters";
/// Longest row of a letter that a sink did not take.
const LONGEST_ROW: u64 = 1 << 30;
const COMMAS: CsvSection = CsvSection { header: false, delimiter: b',', quote: b'"', columns: None };

const ENCODINGS: [Encoding; 5] =
    [Encoding::Raw, Encoding::JsonLines, Encoding::Csv, Encoding::ArrowStream, Encoding::Files];

/// Which sources of the replay there can be.
pub(super) struct Plan<'a> {
    file: &'a PipelineFile,
    /// The schemas that the pipeline's sources have found, as column lists.
    schemas: BTreeMap<SourceId, String>,
    /// What each sink was handed.
    encodings: BTreeMap<SinkId, Encoding>,
    /// For each sink, the source of the rows that it did not take.
    back: BTreeMap<SinkId, SourceId>,
    kept: SourceId,
}

/// Where the row of a letter goes.
#[derive(Debug)]
pub(super) struct Target {
    /// The replay's source that reads it.
    pub(super) source: SourceId,
    /// How it is written.
    pub(super) format: Format,
}

impl<'a> Plan<'a> {
    /// Reads from the pipeline's state what its file does not say.
    pub(super) fn new(file: &'a PipelineFile, state: Option<&State>) -> Result<Self, ServerError> {
        let seal = state.and_then(|state| state.history.seal(state.history.newest_seal()?));
        let mut schemas = BTreeMap::new();
        for (id, cut) in seal.iter().flat_map(|sealed| &sealed.seal.sources) {
            if let Some(text) = schema(cut) {
                schemas.insert(id.clone(), text);
            }
        }
        let graph = seal.and_then(|sealed| graph::read(&sealed.seal.graph));
        let encoding = |id: &SinkId| {
            let name = graph.as_ref()?["sinks"][id.as_str()]["encoding"].as_str()?;
            ENCODINGS.into_iter().find(|encoding| encoding.as_str() == name)
        };
        let encodings = file.sinks.keys().map(|id| (id.clone(), encoding(id).unwrap_or(Encoding::JsonLines))).collect();
        let mut back = BTreeMap::new();
        for id in file.sinks.keys() {
            back.insert(id.clone(), free_name(file, &format!("to-{id}"))?);
        }
        Ok(Self { file, schemas, encodings, back, kept: free_name(file, KEPT)? })
    }

    /// The source of letters that cannot be sent again.
    pub(super) fn kept(&self) -> Target {
        Target { source: self.kept.clone(), format: Format::JsonLines }
    }

    /// Where a letter goes.
    ///
    /// # Errors
    /// Why it cannot go anywhere.
    pub(super) fn target(&self, letter: &Letter) -> Result<Target, String> {
        // Rows that a sink did not take, and that could not be read the next time either, name the replay's source.
        let back = |id: &str| self.back.iter().find(|(_, source)| source.as_str() == id).map(|(sink, _)| sink.as_str());
        let sink = letter.sink.as_deref().or_else(|| back(letter.source.as_deref()?));
        if let Some(name) = sink {
            let found = self.back.iter().find(|(id, _)| id.as_str() == name);
            let Some((id, source)) = found else { return Err(format!("the pipeline has no sink `{name}`")) };
            return Ok(Target { source: source.clone(), format: self.format_back(id) });
        }
        let Some(name) = letter.source.as_deref() else {
            return Err("the letter names neither `source` nor `sink`".to_owned());
        };
        let found = self.file.sources.iter().find(|(id, _)| id.as_str() == name);
        let Some((id, section)) = found else { return Err(format!("the pipeline has no source `{name}`")) };
        match section.kind.rows() {
            Some(rows) => Ok(Target { source: id.clone(), format: written(&rows.format) }),
            None => Err(format!("source `{name}` makes its rows itself")),
        }
    }

    /// The pipeline over all rows that are in the store; `None` if there are none.
    pub(super) fn pipeline(&self, store: &Store, tag: &str) -> Result<Option<PipelineFile>, ServerError> {
        let mut sources = BTreeMap::new();
        for (id, section) in &self.file.sources {
            if let (true, Some(rows)) = (store.has_rows(id)?, section.kind.rows()) {
                let again = self.source(id, self.of_source(id, rows));
                // What slows the source down protects the destination.
                sources.insert(id.clone(), SourceSection { rate: section.rate, ..again });
            }
        }
        let mut sinks = BTreeMap::new();
        for (id, section) in &self.file.sinks {
            let mut again = SinkSection { sources: Vec::new(), ..section.clone() };
            again.sources.extend(section.sources.iter().filter(|source| sources.contains_key(*source)).cloned());
            sinks.insert(id.clone(), again);
        }
        for (id, source) in &self.back {
            if !store.has_rows(source)? {
                continue;
            }
            sources.insert(source.clone(), self.source(source, self.of_sink(id, source, store)?));
            if let Some(sink) = sinks.get_mut(id) {
                sink.format = sink.format.or(self.encodings.get(id).and_then(|encoding| sink_format(*encoding)));
                sink.sources.push(source.clone());
            }
        }
        if store.has_rows(&self.kept)? {
            let rows = row_format(Format::JsonLines, LONGEST_ROW);
            sources.insert(self.kept.clone(), self.source(&self.kept, rows));
            if let (Some(section), Ok(id)) = (&self.file.dead_letter, SinkId::new(self.kept.as_str())) {
                let format = Some(SinkFormat::JsonLines);
                sinks.insert(id, SinkSection { format, sources: vec![self.kept.clone()], ..section.clone() });
            }
        }
        sinks.retain(|_, section| !section.sources.is_empty());
        if sources.is_empty() {
            return Ok(None);
        }
        let mut file = PipelineFile { base: store.rows_dir(), sources, sinks, ..self.file.clone() };
        file.pipeline.name = replay_name(&self.file.pipeline.name, tag)?;
        file.pipeline.state = store.log_dir();
        Ok(Some(file))
    }

    fn source(&self, id: &SourceId, rows: RowFormat) -> SourceSection {
        let paths = vec![format!("{id}/*")];
        let kind = SourceKind::Files { paths, rows, compression: Compression::None, follow: false };
        SourceSection { kind, tasks: None, rate: None }
    }

    /// How a source's own rows are read again: with the columns that it has found.
    fn of_source(&self, id: &SourceId, rows: &RowFormat) -> RowFormat {
        let found = self.schemas.get(id).map(|text| SchemaSection::Declared(text.clone()));
        let schema = match &rows.schema {
            Some(SchemaSection::Declared(text)) => Some(SchemaSection::Declared(text.clone())),
            other => found.or_else(|| other.clone()),
        };
        RowFormat { format: written(&rows.format), on_bad_row: OnBadRow::DeadLetter, schema, ..rows.clone() }
    }

    /// How the rows are read that a sink did not take.
    fn of_sink(&self, id: &SinkId, source: &SourceId, store: &Store) -> Result<RowFormat, ServerError> {
        let mut rows = row_format(self.format_back(id), LONGEST_ROW);
        if let Format::Csv(csv) = &mut rows.format {
            let first = store.first_row(source)?;
            let (_, count) = header::record(&first, csv).unwrap_or((0, 1));
            csv.columns = Some((1..=count).map(|number| format!("c{number}")).collect());
        }
        if matches!(self.encodings.get(id), Some(Encoding::ArrowStream | Encoding::Files)) {
            let only = self.file.sinks.get(id).filter(|sink| sink.sources.len() == 1 && sink.transform.is_none());
            let found = only.and_then(|sink| self.schemas.get(sink.sources.first()?)).cloned();
            rows.schema = Some(found.map_or(SchemaSection::Infer, SchemaSection::Declared));
        }
        Ok(rows)
    }

    fn format_back(&self, id: &SinkId) -> Format {
        match self.encodings.get(id) {
            Some(Encoding::Csv) => Format::Csv(COMMAS),
            Some(Encoding::Raw) => Format::Raw,
            _ => Format::JsonLines,
        }
    }
}

/// How rows of a format stand in letters: those of binary files as JSON.
fn written(format: &Format) -> Format {
    match format {
        Format::Parquet => Format::JsonLines,
        other => other.clone(),
    }
}

fn row_format(format: Format, max_line: u64) -> RowFormat {
    RowFormat {
        format,
        max_line,
        on_bad_row: OnBadRow::DeadLetter,
        schema: None,
        unknown_fields: UnknownFields::BadRow,
    }
}

fn sink_format(encoding: Encoding) -> Option<SinkFormat> {
    match encoding {
        Encoding::JsonLines => Some(SinkFormat::JsonLines),
        Encoding::Csv => Some(SinkFormat::Csv),
        Encoding::Raw => Some(SinkFormat::Raw),
        Encoding::ArrowStream => Some(SinkFormat::ArrowStream),
        Encoding::Files => None,
    }
}

/// The schema of a source's rows in a checkpoint, as a column list.
fn schema(cut: &tidegate_protocol::record::SourceCut) -> Option<String> {
    let cut = serde_json::to_value(cut).ok()?;
    let text = cut["schema"].as_str()?;
    Schema::parse_ddl(text).ok().map(|schema| schema.to_string())
}

/// A name that no source or sink of the pipeline has, if need be another one than asked for.
fn free_name(file: &PipelineFile, name: &str) -> Result<SourceId, ServerError> {
    let other = format!("letters-{}", short_hash(name.as_bytes()));
    let taken = |name: &str| {
        file.sources.keys().any(|id| id.as_str() == name) || file.sinks.keys().any(|id| id.as_str() == name)
    };
    let free = [name, &other].into_iter().filter(|name| !taken(name)).find_map(|name| SourceId::new(name).ok());
    free.ok_or_else(|| ServerError::Fit {
        problem: format!("the replay needs a source `{other}`, and the pipeline has one of its own"),
        hints: vec![format!("rename `{other}`")],
    })
}

fn replay_name(name: &PipelineId, tag: &str) -> Result<PipelineId, ServerError> {
    let start: String = name.as_str().chars().take(20).collect();
    PipelineId::new(format!("{start}-replay-{tag}")).map_err(|error| ServerError::Host(error.to_string()))
}
