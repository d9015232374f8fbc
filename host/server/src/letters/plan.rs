//! Which pipeline sends letters again, and where each letter goes in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidegate_columns::schema::Kept;
use tidegate_protocol::ids::{PipelineId, SinkId, SourceId};
use tidegate_protocol::plugin::Encoding;

use super::rows::Store;
use super::unwrap::Letter;
use super::{header, short_hash};
use crate::config::{
    Compression, CsvSection, Format, OnBadRow, OnLostRows, PipelineFile, Route, RowFormat, SchemaSection, SinkFormat,
    SinkSection, SourceKind, SourceSection, UnknownFields,
};
use crate::error::ServerError;
use crate::graph;
use crate::state::State;

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
    /// For each sink, the sources of the rows that it did not take.
    back: BTreeMap<SinkId, Back>,
    /// Where the rows are.
    takes_dir: PathBuf,
}

/// The sources of rows that a sink did not take.
struct Back {
    /// Rows as the pipeline's sources have them.
    plain: SourceId,
    /// Rows as the plugin was handed them; only where these are others. They go to a sink of this name, which is the same
    /// but that it does not change them.
    transformed: Option<SourceId>,
}

impl Back {
    fn names(&self, name: &str) -> bool {
        self.plain.as_str() == name || self.transformed.as_ref().is_some_and(|source| source.as_str() == name)
    }
}

/// The code of letters whose row could not be transformed, and so is as the source had it.
const NOT_TRANSFORMED: &str = "transform";

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
    pub(super) fn new(file: &'a PipelineFile, state: Option<&State>, takes_dir: PathBuf) -> Result<Self, ServerError> {
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
        let mut plan = Self { file, schemas, encodings, back: BTreeMap::new(), takes_dir };
        for (id, section) in &file.sinks {
            let transformed =
                plan.hands_on_others(id, section).then(|| free_name(file, &format!("again-{id}"))).transpose()?;
            plan.back.insert(id.clone(), Back { plain: free_name(file, &format!("to-{id}"))?, transformed });
        }
        Ok(plan)
    }

    /// Whether a sink's plugin is handed other rows than the sources have: changed ones, or columns written as text.
    fn hands_on_others(&self, id: &SinkId, section: &SinkSection) -> bool {
        let typed = section.sources.iter().any(|source| self.schema_of(source).is_some());
        let text = matches!(self.encodings.get(id), Some(Encoding::JsonLines | Encoding::Csv));
        changes(section) || (typed && text)
    }

    /// The pipeline's own directory.
    pub(super) fn base(&self) -> &Path {
        &self.file.base
    }

    pub(super) fn takes_dir(&self) -> &Path {
        &self.takes_dir
    }

    /// Where a letter goes.
    ///
    /// # Errors
    /// Why it cannot go anywhere.
    pub(super) fn target(&self, letter: &Letter) -> Result<Target, String> {
        // What fails again names the replay's own source or sink.
        let ours = |name: &str| self.back.iter().find(|(_, back)| back.names(name));
        if let Some((id, back)) = [&letter.source, &letter.sink].into_iter().flatten().find_map(|name| ours(name)) {
            let again = |name: &Option<String>| name.as_deref() == back.transformed.as_ref().map(SourceId::as_str);
            let transformed = back.transformed.is_some() && (again(&letter.source) || again(&letter.sink));
            return Ok(self.to_sink(id, back, transformed));
        }
        if let Some(name) = letter.sink.as_deref() {
            let found = self.back.iter().find(|(id, _)| id.as_str() == name);
            let Some((id, back)) = found else { return Err(format!("the pipeline has no sink `{name}`")) };
            let transformed = letter.code.as_deref() != Some(NOT_TRANSFORMED);
            let shapes = self.file.sinks.get(id).is_some_and(|section| section.transform.is_some());
            if !transformed && !shapes {
                return Err(format!(
                    "sink `{id}` has no `transform` any more, and the row was not transformed yet; put it back for the \
                     time of the replay"
                ));
            }
            return Ok(self.to_sink(id, back, transformed));
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

    fn to_sink(&self, id: &SinkId, back: &Back, transformed: bool) -> Target {
        let source = back.transformed.as_ref().filter(|_| transformed).unwrap_or(&back.plain);
        Target { source: source.clone(), format: self.format_back(id, back, source) }
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
        for (id, back) in &self.back {
            let Some(section) = self.file.sinks.get(id) else { continue };
            let format = section.format.or(self.encodings.get(id).and_then(|encoding| sink_format(*encoding)));
            if store.has_rows(&back.plain)? {
                let rows = self.of_sink(id, back, &back.plain, store)?;
                sources.insert(back.plain.clone(), self.source(&back.plain, rows));
                if let Some(sink) = sinks.get_mut(id) {
                    sink.format = format;
                    sink.sources.push(back.plain.clone());
                }
            }
            let Some(source) = &back.transformed else { continue };
            if let (true, Ok(again)) = (store.has_rows(source)?, SinkId::new(source.as_str())) {
                sources.insert(source.clone(), self.source(source, self.of_sink(id, back, source, store)?));
                let mut section = SinkSection { format, sources: vec![source.clone()], ..section.clone() };
                if matches!(self.handed(id), Format::Csv(_)) {
                    // Records have no names for their fields any more.
                    section.route = Route::RoundRobin;
                }
                sinks.insert(again, SinkSection { transform: None, columns: Vec::new(), ..section });
            }
        }
        sinks.retain(|_, section| !section.sources.is_empty());
        if sources.is_empty() {
            return Ok(None);
        }
        let file = of_replay(self.file, store, tag)?;
        let takes = Some(store.takes_dir());
        let places = file.places.without_sources();
        Ok(Some(PipelineFile { base: store.takes_dir(), takes, sources, sinks, places, ..file }))
    }

    fn source(&self, id: &SourceId, rows: RowFormat) -> SourceSection {
        let paths = vec![format!("*/rows/{id}/*")];
        let kind = SourceKind::Files {
            paths,
            rows,
            compression: Compression::None,
            follow: false,
            on_lost_rows: OnLostRows::Stop,
        };
        SourceSection { kind, tasks: None, rate: None }
    }

    /// The columns of a source's rows, as far as they are known.
    fn schema_of(&self, id: &SourceId) -> Option<SchemaSection> {
        let declared = self.file.sources.get(id)?.kind.rows()?.schema.clone();
        let found = || self.schemas.get(id).cloned().map(SchemaSection::Declared);
        declared.filter(|schema| *schema != SchemaSection::Infer).or_else(found)
    }

    /// How a source's own rows are read again: with the columns that it has found.
    fn of_source(&self, id: &SourceId, rows: &RowFormat) -> RowFormat {
        let schema = self.schema_of(id).or_else(|| rows.schema.clone());
        RowFormat { format: written(&rows.format), on_bad_row: OnBadRow::DeadLetter, schema, ..rows.clone() }
    }

    /// How the rows of one of a sink's sources are read. Those that were not transformed, and those of a plugin that takes
    /// no text, need their columns.
    fn of_sink(&self, id: &SinkId, back: &Back, source: &SourceId, store: &Store) -> Result<RowFormat, ServerError> {
        let mut rows = row_format(self.format_back(id, back, source), LONGEST_ROW);
        if let Format::Csv(csv) = &mut rows.format {
            let first = store.first_row(source)?;
            let (_, count) = header::record(&first, csv).unwrap_or((0, 1));
            csv.columns = Some((1..=count).map(|number| format!("c{number}")).collect());
        }
        let section = self.file.sinks.get(id);
        let as_read = *source == back.plain && back.transformed.is_some();
        if as_read || matches!(self.encodings.get(id), Some(Encoding::ArrowStream | Encoding::Files)) {
            let found = section.filter(|section| as_read || !changes(section));
            rows.schema = Some(found.and_then(|section| self.common_schema(section)).unwrap_or(SchemaSection::Infer));
        }
        Ok(rows)
    }

    /// The columns of all sources of a sink, if they are known and the same.
    fn common_schema(&self, sink: &SinkSection) -> Option<SchemaSection> {
        let mut schemas = sink.sources.iter().map(|source| self.schema_of(source));
        let first = schemas.next()??;
        schemas.all(|schema| schema.as_ref() == Some(&first)).then_some(first)
    }

    /// How the rows of one of a sink's sources stand in letters. Those that were not transformed had columns.
    fn format_back(&self, id: &SinkId, back: &Back, source: &SourceId) -> Format {
        match back.transformed.is_some() && *source == back.plain {
            true => Format::JsonLines,
            false => self.handed(id),
        }
    }

    /// How the rows that a sink's plugin was handed stand in letters.
    fn handed(&self, id: &SinkId) -> Format {
        match self.encodings.get(id) {
            Some(Encoding::Csv) => Format::Csv(COMMAS),
            Some(Encoding::Raw) => Format::Raw,
            _ => Format::JsonLines,
        }
    }
}

/// Whether a sink's rows get other values or columns on their way.
fn changes(section: &SinkSection) -> bool {
    section.transform.is_some() || !section.columns.is_empty()
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
    let columns = Kept::from_text(cut.schema.as_deref()?).ok()?.into_columns()?;
    Some(columns.schema().to_string())
}

/// A name that no source or sink of the pipeline has, if need be another one than asked for.
fn free_name(file: &PipelineFile, name: &str) -> Result<SourceId, ServerError> {
    let other = format!("letters-{}", short_hash(name.as_bytes()));
    let taken = |name: &str| {
        file.sources.keys().any(|id| id.as_str() == name) || file.sinks.keys().any(|id| id.as_str() == name)
    };
    let free = [name, &other].into_iter().filter(|name| !taken(name)).find_map(|name| SourceId::new(name).ok());
    free.ok_or_else(|| {
        let message = format!("the replay needs a source `{other}`, and the pipeline has one of its own");
        file.wrong(&["sources".to_owned(), other.clone()], message, vec![format!("rename `{other}`")]).into()
    })
}

/// The pipeline under the replay's name, with its state; sources and sinks are still its own.
pub(super) fn of_replay(file: &PipelineFile, store: &Store, tag: &str) -> Result<PipelineFile, ServerError> {
    let mut replay = PipelineFile { replays: true, ..file.clone() };
    replay.pipeline.name = replay_name(&file.pipeline.name, tag)?;
    replay.pipeline.state = store.log_dir();
    Ok(replay)
}

fn replay_name(name: &PipelineId, tag: &str) -> Result<PipelineId, ServerError> {
    let start: String = name.as_str().chars().take(20).collect();
    PipelineId::new(format!("{start}-replay-{tag}")).map_err(|error| ServerError::Host(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const PIPELINE: &str = r#"
        [pipeline]
        name = "a-name-of-twenty-one-a"
        state = "state"
        [sources.s]
        kind = "files"
        paths = ["in/*"]
        format = "json-lines"
        schema = "n BIGINT"
        on-bad-row = "dead-letter"
        [sources.to-plain]
        kind = "generate"
        [sinks.plain]
        plugin = "builtin:files"
        sources = ["to-plain"]
        dirs = { output = "plain" }
        [sinks.typed]
        plugin = "builtin:files"
        sources = ["s"]
        dirs = { output = "typed" }
        [sinks.shaped]
        plugin = "builtin:files"
        sources = ["s"]
        dirs = { output = "shaped" }
        transform = { filter = "n > 1" }
        [dead-letter]
        plugin = "builtin:files"
        dirs = { output = "dead" }
    "#;

    fn target(plan: &Plan<'_>, letter: &str) -> Result<String, String> {
        Letter::read(letter.as_bytes()).and_then(|letter| plan.target(&letter)).map(|target| target.source.to_string())
    }

    #[test]
    fn letters_go_back_to_where_they_failed() {
        let file = config::parse(PIPELINE, Path::new("p.toml"), Path::new("/")).expect("valid");
        let plan = Plan::new(&file, None, PathBuf::new()).expect("there are free names");
        let taken = format!("letters-{}", short_hash(b"to-plain"));
        for (letter, expected) in [
            (r#"{"source":"s"}"#, "s"),
            (r#"{"sink":"plain","code":"c"}"#, taken.as_str()),
            // As the plugin was handed it.
            (r#"{"sink":"typed","code":"c"}"#, "again-typed"),
            (r#"{"sink":"shaped","code":"c"}"#, "again-shaped"),
            (r#"{"sink":"shaped","code":"transform"}"#, "to-shaped"),
            // What failed in a replay.
            (r#"{"sink":"again-shaped","code":"c"}"#, "again-shaped"),
            (r#"{"source":"again-shaped"}"#, "again-shaped"),
            (r#"{"source":"to-shaped"}"#, "to-shaped"),
        ] {
            assert_eq!(target(&plan, letter).as_deref(), Ok(expected), "{letter}");
        }
        for (letter, part) in [
            (r#"{"source":"t"}"#, "no source `t`"),
            (r#"{"sink":"s"}"#, "no sink `s`"),
            (r#"{"sink":"plain","code":"transform"}"#, "no `transform`"),
            (r#"{"source":"to-plain"}"#, "itself"),
            ("{}", "neither"),
        ] {
            let error = target(&plan, letter).expect_err(letter);
            assert!(error.contains(part), "{letter}: {error}");
        }
    }

    #[test]
    fn rows_that_were_transformed_are_not_transformed_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = config::parse(PIPELINE, Path::new("p.toml"), folder.path()).expect("valid");
        let plan = Plan::new(&file, None, PathBuf::new()).expect("there are free names");
        let store = Store::new(folder.path().join("replay"));
        assert_eq!(plan.pipeline(&store, "0").expect("names fit"), None);
        let letters = folder.path().join("letters");
        let text = "{\"sink\":\"shaped\",\"code\":\"c\",\"row\":\"1\"}\n{\"sink\":\"shaped\",\"code\":\"transform\",\"row\":\"2\"}\n";
        std::fs::write(&letters, text).expect("can be written");
        store.take(&[letters], folder.path(), &plan).expect("they are letters");
        let replay = plan.pipeline(&store, "0").expect("names fit").expect("there are rows");
        assert_eq!(replay.pipeline.name.as_str(), "a-name-of-twenty-one-replay-0");
        let sinks: Vec<_> = replay.sinks.iter().map(|(id, sink)| (id.as_str(), sink.transform.is_some())).collect();
        assert_eq!(sinks, [("again-shaped", false), ("shaped", true)]);
        let rows = |id: &str| replay.sources[&SourceId::new(id).expect("legal")].kind.rows().cloned().expect("files");
        assert_eq!(rows("again-shaped").schema, None);
        assert_eq!(rows("to-shaped").schema, Some(SchemaSection::Declared("n BIGINT".to_owned())));
    }
}
