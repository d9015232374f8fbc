//! What becomes of rows on their way from a source to a plugin: columns, transforms, whole files.

use std::collections::BTreeMap;

use tidegate_columns::Schema;
use tidegate_columns::files::{self, FileFormat, FileOptions};
use tidegate_columns::transform::TransformOptions;
use tidegate_pipeline::spec::{self, ColumnsOptions, SinkShape};
use tidegate_protocol::ids::{SinkId, SourceId};

use crate::config::{FilesSection, PipelineFile, Route, SchemaSection, SinkFormat, SinkSection, TransformSection};
use crate::encodings::Encodings;
use crate::error::ServerError;

/// The shapes of a pipeline's rows.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    /// How rows become columns; without those that travel as bytes.
    pub(crate) sources: BTreeMap<SourceId, ColumnsOptions>,
    /// What happens before a plugin gets them.
    pub(crate) sinks: BTreeMap<SinkId, SinkShape>,
}

/// Reads schemas, folders and compressions, and tries everything that concerns columns where these are known.
///
/// # Errors
/// One is wrong, or does not fit the columns; names source or sink.
pub(crate) fn make(file: &PipelineFile, encodings: &Encodings) -> Result<Shapes, ServerError> {
    let mut shapes = Shapes::default();
    for id in encodings.typed.keys() {
        let Some(rows) = file.sources.get(id).and_then(|section| section.kind.rows()) else { continue };
        let declared = match &rows.schema {
            Some(SchemaSection::Declared(text)) => {
                let schema = Schema::parse_ddl(text).map_err(|error| misfit(format!("source `{id}`: {error}")))?;
                Some(schema)
            }
            Some(SchemaSection::Infer) | None => None,
        };
        shapes.sources.insert(id.clone(), ColumnsOptions { declared, unknown: rows.unknown_fields });
    }
    for (id, section, _) in file.all_sinks() {
        let shape = shape(section).map_err(|error| misfit(format!("sink `{id}`: {error}")))?;
        shapes.sinks.insert(id, shape);
    }
    let declared = shapes.sources.iter();
    let declared = declared.filter_map(|(id, columns)| Some((id.clone(), columns.declared.clone()?))).collect();
    check(file, encodings, &shapes, &declared)?;
    Ok(shapes)
}

/// Finds out what sinks cannot do with rows of these columns; of sources whose columns are not known yet, nothing.
///
/// # Errors
/// It names sink and source.
pub(crate) fn check(
    file: &PipelineFile,
    encodings: &Encodings,
    shapes: &Shapes,
    known: &BTreeMap<SourceId, Schema>,
) -> Result<(), ServerError> {
    for (id, section, _) in file.all_sinks() {
        let (Some(shape), Some(encoding)) = (shapes.sinks.get(&id), encodings.sinks.get(&id)) else { continue };
        let columns = |source: &SourceId| Some((source.clone(), known.get(source)?.clone()));
        let rows: Vec<_> = section.sources.iter().filter_map(columns).collect();
        let typed = section.sources.iter().any(|source| shapes.sources.contains_key(source));
        // Typed ones whose columns are not known yet are not bytes.
        if rows.is_empty() && typed {
            continue;
        }
        shape
            .check(*encoding, &route(&section.route), &rows)
            .map_err(|error| misfit(format!("sink `{id}`: {error}")))?;
    }
    Ok(())
}

/// How rows find their participant, for the pipeline.
pub(crate) fn route(route: &Route) -> spec::Route {
    match route {
        Route::RoundRobin => spec::Route::RoundRobin,
        Route::Key(field) => spec::Route::Key(field.clone()),
    }
}

impl Shapes {
    /// How rows travel where they are not handed on as they are.
    pub(crate) fn lines(&self, encodings: &Encodings) -> Vec<String> {
        let source = |(id, columns): (&SourceId, &ColumnsOptions)| {
            let schema = if columns.declared.is_some() { "declared" } else { "inferred" };
            let cause = encodings.typed.get(id).map(|cause| format!(", since {cause}")).unwrap_or_default();
            format!("rows of `{id}` travel as columns (schema {schema}){cause}")
        };
        let sink = |(id, shape): (&SinkId, &SinkShape)| {
            let files = shape.files.as_ref()?;
            Some(format!("sink `{id}` gets whole files ({})", files.extension()))
        };
        self.sources.iter().map(source).chain(self.sinks.iter().filter_map(sink)).collect()
    }
}

fn misfit(problem: String) -> ServerError {
    ServerError::Fit { problem, hints: Vec::new() }
}

fn shape(section: &SinkSection) -> tidegate_columns::Result<SinkShape> {
    let transform = section.transform.as_ref().map(transform).filter(|transform| !transform.is_empty());
    let files = section.files.as_ref().map(|files| file_options(section.format, files)).transpose()?;
    Ok(SinkShape { transform, added: section.columns.clone(), files })
}

fn transform(section: &TransformSection) -> TransformOptions {
    let TransformSection { filter, cast, add, select, drop, rename } = section.clone();
    TransformOptions { rename, cast, add, filter, select: select.unwrap_or_default(), drop }
}

fn file_options(format: Option<SinkFormat>, section: &FilesSection) -> tidegate_columns::Result<FileOptions> {
    let format = match format {
        None | Some(SinkFormat::JsonLines) => FileFormat::JsonLines,
        Some(SinkFormat::Csv) => FileFormat::Csv,
        Some(SinkFormat::Raw) => FileFormat::Raw,
        Some(SinkFormat::Parquet) => FileFormat::Parquet,
        Some(SinkFormat::ArrowStream) => FileFormat::ArrowStream,
    };
    let mut options = FileOptions::new(format);
    let level = section.level.map(|level| i32::try_from(level).unwrap_or(i32::MAX));
    options.compression = match (section.compression, level) {
        (Some(compression), level) => Some(files::Compression::parse(compression.name(), level)?),
        // The usual compression of Parquet, which may have a level of its own.
        (None, Some(_)) if format == FileFormat::Parquet => Some(files::Compression::parse("zstd", level)?),
        (None, _) => None,
    };
    options.folder = section.folder.as_deref().map(str::parse).transpose()?;
    options.roll_bytes = section.roll_size;
    options.max_open_files = usize::try_from(section.max_open_files).unwrap_or(usize::MAX);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_protocol::plugin::Encoding;

    use super::*;

    fn made(sink: &str) -> Result<Shapes, String> {
        let text = format!(
            "[pipeline]\nname = \"p\"\nstate = \"s\"\n[sources.a]\nkind = \"files\"\npaths = [\"a\"]\n\
             format = \"json-lines\"\nschema = \"n BIGINT, word TEXT\"\n[sinks.out]\nplugin = \"x\"\n{sink}"
        );
        let file = crate::config::parse(&text, Path::new("p.toml"), Path::new("/b")).unwrap();
        let offered = [(SourceId::new("a").unwrap(), vec![Encoding::JsonLines])].into();
        let accepted = [(SinkId::new("out").unwrap(), vec![Encoding::JsonLines, Encoding::Files])].into();
        let encodings = crate::encodings::choose(&file, &offered, &accepted).unwrap();
        make(&file, &encodings).map_err(|error| error.to_string())
    }

    #[test]
    fn what_does_not_fit_declared_columns_is_refused_before_a_run() {
        assert_eq!(made("columns = [\"_epoch\"]").unwrap().sinks.values().next().unwrap().added.len(), 1);
        for (sink, part) in [
            ("transform = { filter = \"m > 1\" }", "m"),
            ("columns = [\"_epoch\"]\ntransform = { rename = { n = \"_epoch\" } }", "_epoch"),
            ("files = { folder = \"x={x}\" }", "x={x}"),
            ("files = { folder = \"x\" }", "names no column"),
            ("route = { key = \"wrod\" }", "the nearest is word"),
        ] {
            let said = made(sink).unwrap_err();
            assert!(said.starts_with("sink `out`") && said.contains(part), "{said}");
        }
    }
}
