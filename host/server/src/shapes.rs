//! What becomes of rows on their way from a source to a plugin: columns, transforms, whole files.

use std::collections::BTreeMap;

use tidegate_columns::files::{self, FileFormat, FileOptions};
use tidegate_columns::transform::TransformOptions;
use tidegate_columns::{ColumnsError, Schema};
use tidegate_pipeline::spec::{self, ColumnsOptions, SinkShape};
use tidegate_protocol::ids::{SinkId, SourceId};
use tidegate_protocol::plugin::Encoding;

use crate::config::{
    ConfigError, FilesSection, PipelineFile, Route, SchemaSection, SinkFormat, SinkSection, TransformSection, of_sink,
    of_source,
};
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
                let misfit = |error| file.wrong(&of_source(id, &["schema"]), format!("source `{id}`: {error}"), vec![]);
                Some(Schema::parse_ddl(text).map_err(misfit)?)
            }
            Some(SchemaSection::Infer) | None => None,
        };
        shapes.sources.insert(id.clone(), ColumnsOptions { declared, unknown: rows.unknown_fields });
    }
    for (id, section, _) in file.all_sinks() {
        let shape = shape(section).map_err(|(keys, error)| misfit(file, &id, keys, &error))?;
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
        let route = route(&section.route);
        if let Err(error) = shape.check(*encoding, &route, &rows) {
            let keys = culprit(shape, *encoding, &route, &rows);
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            return Err(misfit(file, &id, &keys, &error).into());
        }
    }
    Ok(())
}

/// The key of a sink for which a check fails: it is added to what is checked, key by key, until the check fails.
fn culprit(shape: &SinkShape, encoding: Encoding, route: &spec::Route, rows: &[(SourceId, Schema)]) -> Vec<String> {
    let mut so_far = SinkShape::default();
    let passes =
        |shape: &SinkShape, route: &spec::Route, encoding: Encoding| shape.check(encoding, route, rows).is_ok();
    let in_turn = spec::Route::RoundRobin;
    // Without columns, or when the columns themselves have no form, no key is to blame.
    if !passes(&so_far, &in_turn, Encoding::JsonLines) {
        return Vec::new();
    }
    if !passes(&so_far, route, Encoding::JsonLines) {
        return vec!["route".to_owned(), "key".to_owned()];
    }
    for (keys, transform) in shape.transform.iter().flat_map(steps) {
        so_far.transform = Some(transform);
        if !passes(&so_far, &in_turn, Encoding::JsonLines) {
            return keys;
        }
    }
    so_far.added.clone_from(&shape.added);
    if !passes(&so_far, &in_turn, Encoding::JsonLines) {
        return vec!["columns".to_owned()];
    }
    let Some(files) = &shape.files else { return vec!["format".to_owned()] };
    so_far.files = Some(FileOptions { folder: None, ..files.clone() });
    match passes(&so_far, &in_turn, encoding) {
        true => vec!["files".to_owned(), "folder".to_owned()],
        false => vec!["format".to_owned()],
    }
}

/// A transform, key by key in the order of its work, with the key that each step adds.
fn steps(whole: &TransformOptions) -> Vec<(Vec<String>, TransformOptions)> {
    let TransformOptions { rename, cast, add, filter, select, drop } = whole.clone();
    let mut steps = Vec::new();
    let mut so_far = TransformOptions::default();
    let mut step = |keys: &[&str], change: &dyn Fn(&mut TransformOptions)| {
        change(&mut so_far);
        let keys = ["transform"].iter().chain(keys).map(|key| (*key).to_owned()).collect();
        steps.push((keys, so_far.clone()));
    };
    // All at the same time: one alone may clash where all together do not.
    step(&["rename"], &|so_far| so_far.rename.clone_from(&rename));
    for pair in &cast {
        step(&["cast", &pair.0], &|so_far| so_far.cast.push(pair.clone()));
    }
    for pair in &add {
        step(&["add", &pair.0], &|so_far| so_far.add.push(pair.clone()));
    }
    step(&["filter"], &|so_far| so_far.filter.clone_from(&filter));
    step(&["select"], &|so_far| so_far.select.clone_from(&select));
    step(&["drop"], &|so_far| so_far.drop.clone_from(&drop));
    steps
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

fn misfit(file: &PipelineFile, id: &SinkId, keys: &[&str], error: &ColumnsError) -> ConfigError {
    file.wrong(&of_sink(id, keys), format!("sink `{id}`: {error}"), Vec::new())
}

/// What is wrong, and the keys that lead to it.
type Misfit = (&'static [&'static str], ColumnsError);

fn shape(section: &SinkSection) -> Result<SinkShape, Misfit> {
    let transform = section.transform.as_ref().map(transform).filter(|transform| !transform.is_empty());
    let files = section.files.as_ref().map(|files| file_options(section.format, files)).transpose()?;
    Ok(SinkShape { transform, added: section.columns.clone(), files })
}

fn transform(section: &TransformSection) -> TransformOptions {
    let TransformSection { filter, cast, add, select, drop, rename } = section.clone();
    TransformOptions { rename, cast, add, filter, select: select.unwrap_or_default(), drop }
}

fn file_options(format: Option<SinkFormat>, section: &FilesSection) -> Result<FileOptions, Misfit> {
    let format = match format {
        None | Some(SinkFormat::JsonLines) => FileFormat::JsonLines,
        Some(SinkFormat::Csv) => FileFormat::Csv,
        Some(SinkFormat::Raw) => FileFormat::Raw,
        Some(SinkFormat::Parquet) => FileFormat::Parquet,
        Some(SinkFormat::ArrowStream) => FileFormat::ArrowStream,
    };
    let mut options = FileOptions::new(format);
    let compression = |name, level| {
        files::Compression::parse(name, level).map_err(|error| (&["files", "compression"][..], error)).map(Some)
    };
    let level = section.level.map(|level| i32::try_from(level).unwrap_or(i32::MAX));
    options.compression = match (section.compression, level) {
        (Some(name), level) => compression(name.name(), level)?,
        // The usual compression of Parquet, which may have a level of its own.
        (None, Some(_)) if format == FileFormat::Parquet => compression("zstd", level)?,
        (None, _) => None,
    };
    options.folder =
        section.folder.as_deref().map(str::parse).transpose().map_err(|error| (&["files", "folder"][..], error))?;
    options.roll_bytes = section.roll_size;
    options.max_open_files = usize::try_from(section.max_open_files).unwrap_or(usize::MAX);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
        for (place, sink, part) in [
            ("11:24", "transform = { filter = \"m > 1\" }", "m"),
            ("11:28", "transform = { cast = { n = \"NUMMER\" } }", "NUMMER"),
            ("12:19", "transform.add.a = \"n\"\ntransform.add.b = \"m\"", "add.b"),
            ("11:11", "columns = [\"_epoch\"]\ntransform = { rename = { n = \"_epoch\" } }", "_epoch"),
            ("11:20", "files = { folder = \"x={x}\" }", "x={x}"),
            ("11:20", "files = { folder = \"x\" }", "names no column"),
            ("11:17", "route = { key = \"wrod\" }", "the nearest is word"),
        ] {
            let said = made(sink).unwrap_err();
            assert!(said.starts_with(&format!("p.toml:{place}: sink `out`")) && said.contains(part), "{said}");
        }
    }
}
