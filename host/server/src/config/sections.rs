//! From tables to structs, and the checks between tables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tidegate_protocol::ids::{PipelineId, SinkId, SourceId};
use toml::de::DeTable;

use super::error::Problem;
use super::reader::{Document, Entry, Section, suggest};
use super::*;

/// Reads the whole file. Problems come back in the order of the file.
pub(super) fn read(text: &str, name: &Path, base: &Path) -> Result<PipelineFile, Vec<Problem>> {
    let document = Document::new(text);
    let root = match DeTable::parse(text) {
        Ok(root) => root,
        Err(error) => {
            // Not `to_string`: that would repeat the line, and with it what somebody may have meant as a secret.
            document.problem(error.span().unwrap_or(0..0), format!("not TOML: {}", error.message()), vec![]);
            return Err(document.into_problems());
        }
    };
    let file = Reading { base, name, document: &document }.file(root.get_ref());
    let problems = document.into_problems();
    match file {
        Some(file) if problems.is_empty() => Ok(file),
        _ => Err(problems),
    }
}

struct Reading<'d, 'i> {
    base: &'d Path,
    name: &'d Path,
    document: &'d Document<'i>,
}

impl<'d, 'i> Reading<'d, 'i> {
    fn file(&self, root: &'d DeTable<'i>) -> Option<PipelineFile> {
        let top = Section::new(self.document, "", 0..0, root, tables::TOP);
        let pipeline = top.table("pipeline", tables::PIPELINE).and_then(|section| self.pipeline(&section));
        let checkpoint = self.checkpoint(&top);
        let sources = self.sources(&top);
        let sinks = self.sinks(&top, &sources);
        let dead_letter = match top.other("dead-letter") {
            Some(entry) => Some(self.sink(&entry, true, &sources)?),
            None => None,
        };
        self.check_bad_rows(&top, &sources, dead_letter.is_some());
        self.check_all_taken(&top, &sources, &sinks);
        let file = PipelineFile {
            takes: None,
            places: Places::of(self.document, root),
            replays: false,
            path: self.name.to_owned(),
            base: self.base.to_owned(),
            pipeline: pipeline?,
            checkpoint: checkpoint?,
            sources: sources.into_iter().map(|(id, source)| Some((id, source?))).collect::<Option<_>>()?,
            sinks: sinks.into_iter().map(|(id, sink)| Some((id, sink?))).collect::<Option<_>>()?,
            dead_letter,
        };
        directories::check(self.base, self.document, &file);
        Some(file)
    }

    fn resolve(&self, written: &str) -> PathBuf {
        self.base.join(written)
    }

    fn pipeline(&self, section: &Section<'d, 'i>) -> Option<PipelineSection> {
        let name = section.text("name").and_then(|name| match PipelineId::new(name) {
            Ok(id) => Some(id),
            Err(error) => {
                section.problem("name", error.to_string(), &[]);
                None
            }
        });
        let state = section.text("state").map(|state| self.resolve(&state));
        let guarantee = section.word("guarantee").map(|word| match word.as_str() {
            "at-least-once" => Delivery::AtLeastOnce,
            "at-most-once" => Delivery::AtMostOnce,
            "best-effort" => Delivery::BestEffort,
            _ => Delivery::ExactlyOnce,
        });
        let tenant = section.text("tenant");
        Some(PipelineSection { name: name?, state: state?, guarantee: guarantee?, tenant: tenant? })
    }

    fn checkpoint(&self, top: &Section<'d, 'i>) -> Option<CheckpointSection> {
        let empty = DeTable::new();
        let read = |section: &Section<'_, '_>| {
            let interval = section.duration("interval");
            let min_pause = section.duration("min-pause");
            let max_waiting = section.small("max-waiting");
            let retain_count = section.small("retain-count");
            let retain_age = section.duration("retain-age");
            let commit_tries = section.small("commit-tries");
            let alarm_after = section.duration("alarm-after");
            Some(CheckpointSection {
                interval: interval?,
                min_pause: min_pause?,
                max_waiting: max_waiting?,
                retain_count: retain_count?,
                retain_age,
                commit_tries: commit_tries?,
                alarm_after: alarm_after?,
            })
        };
        match top.table("checkpoint", tables::CHECKPOINT) {
            Some(section) => read(&section),
            None => read(&Section::new(self.document, "checkpoint", 0..0, &empty, tables::CHECKPOINT)),
        }
    }

    fn sources(&self, top: &Section<'d, 'i>) -> BTreeMap<SourceId, Option<SourceSection>> {
        let mut sources = BTreeMap::new();
        for entry in top.entries("sources") {
            match SourceId::new(entry.name.clone()) {
                Ok(id) => {
                    sources.insert(id, self.source(&entry));
                }
                Err(error) => entry.problem(error.to_string(), &[]),
            }
        }
        if top.has("sources") && top.entries("sources").is_empty() {
            top.problem("sources", "[sources] is empty: a pipeline needs at least one source", &[]);
        }
        sources
    }

    fn source(&self, entry: &Entry<'d, 'i>) -> Option<SourceSection> {
        let about = match entry.peek("kind") {
            Some("generate") => tables::GENERATE,
            Some("stdin") => tables::STDIN,
            _ => tables::FILES,
        };
        let section = entry.section(about)?;
        let kind = section.word("kind")?;
        match kind.as_str() {
            "generate" => {
                let (seed, rows) = (section.integer("seed"), section.integer("rows"));
                let (partitions, keys) = (section.small("partitions"), section.integer("keys"));
                let row_bytes = section.numbers("row-bytes").and_then(|numbers| match numbers[..] {
                    [exact] => Some((exact, exact)),
                    [least, most] if least <= most => Some((least, most)),
                    _ => {
                        section.problem("row-bytes", "`row-bytes` is not one or two rising numbers", &[]);
                        None
                    }
                });
                let (tasks, rate) = (section.small("tasks"), section.integer("rate"));
                let (seed, partitions, keys) = (seed?, partitions?, keys?);
                let kind = SourceKind::Generate { seed, rows, partitions, row_bytes, keys };
                Some(SourceSection { kind, tasks, rate })
            }
            "stdin" => {
                let rows = self.row_format(&section)?;
                Some(SourceSection { kind: SourceKind::Stdin { rows }, tasks: Some(1), rate: None })
            }
            _ => {
                let paths = section.texts("paths");
                let rows = self.row_format(&section);
                let compression = section.word("compression").map(|word| match word.as_str() {
                    "none" => Compression::None,
                    "gzip" => Compression::Gzip,
                    "zstd" => Compression::Zstd,
                    _ => Compression::Auto,
                });
                let (tasks, rate) = (section.small("tasks"), section.integer("rate"));
                let follow = section.boolean("follow");
                let on_lost_rows = section.word("on-lost-rows").map(|word| match word.as_str() {
                    "warn" => OnLostRows::Warn,
                    _ => OnLostRows::Stop,
                });
                if section.has("on-lost-rows") && follow == Some(false) {
                    let message = format!("`on-lost-rows` in {} has no effect without `follow`", section.title());
                    section.problem("on-lost-rows", message, &["remove `on-lost-rows`, or write follow = true"]);
                }
                let (rows, compression) = (rows?, compression?);
                self.check_parquet(&section, &rows, compression);
                let kind = SourceKind::Files {
                    paths: paths?,
                    rows,
                    compression,
                    follow: follow?,
                    on_lost_rows: on_lost_rows?,
                };
                Some(SourceSection { kind, tasks, rate })
            }
        }
    }

    fn row_format(&self, section: &Section<'d, 'i>) -> Option<RowFormat> {
        let format = section.word("format").and_then(|word| match word.as_str() {
            "json-lines" => Some(Format::JsonLines),
            "raw" => Some(Format::Raw),
            "parquet" => Some(Format::Parquet),
            _ => self.csv(section).map(Format::Csv),
        });
        if section.has("csv") && format.as_ref().is_some_and(|format| !matches!(format, Format::Csv(_))) {
            let message = format!("[{}.csv] is there, but the format is not csv", section.path);
            section.problem("csv", message, &["remove the table, or write format = \"csv\""]);
        }
        let max_line = section.size("max-line");
        let on_bad_row = section.word("on-bad-row").map(|word| match word.as_str() {
            "dead-letter" => OnBadRow::DeadLetter,
            _ => OnBadRow::Stop,
        });
        let schema = self.schema(section);
        if section.has("schema") && format == Some(Format::Raw) {
            let message = format!("{} has a schema, but raw rows have no columns", section.title());
            section.problem("schema", message, &["remove `schema`, or use a format with columns"]);
        }
        let unknown_fields = section.word("unknown-fields").map(|word| match word.as_str() {
            "drop" => UnknownFields::Drop,
            _ => UnknownFields::BadRow,
        });
        Some(RowFormat {
            format: format?,
            max_line: max_line?,
            on_bad_row: on_bad_row?,
            schema,
            unknown_fields: unknown_fields?,
        })
    }

    fn schema(&self, section: &Section<'d, 'i>) -> Option<SchemaSection> {
        let text = section.text("schema")?;
        if text == "infer" {
            return Some(SchemaSection::Infer);
        }
        Some(SchemaSection::Declared(text))
    }

    fn check_parquet(&self, section: &Section<'d, 'i>, rows: &RowFormat, compression: Compression) {
        if rows.format != Format::Parquet {
            return;
        }
        if !matches!(compression, Compression::Auto | Compression::None) {
            let message = format!("{}: parquet files are compressed within", section.title());
            section.problem("compression", message, &["remove `compression`"]);
        }
        if section.boolean("follow") == Some(true) {
            let message = format!("{}: parquet files are written whole and cannot be followed", section.title());
            section.problem("follow", message, &["remove `follow`, or use another format"]);
        }
    }

    fn csv(&self, source: &Section<'d, 'i>) -> Option<CsvSection> {
        let empty = DeTable::new();
        let path = format!("{}.csv", source.path);
        let read = |section: &Section<'_, '_>| {
            let header = section.boolean("header");
            let (delimiter, quote) = (section.character("delimiter"), section.character("quote"));
            let columns = section.texts("columns");
            match (header, &columns) {
                (Some(true), Some(_)) if section.has("columns") => section.problem(
                    "columns",
                    format!("[{}] names columns, but the files have a header that names them", section.path),
                    &["remove `columns`, or write header = false"],
                ),
                (Some(false), None) if !section.has("columns") => section.problem(
                    "header",
                    format!("[{}] has header = false, so nothing names the columns", section.path),
                    &["add columns = [\"…\", …]"],
                ),
                _ => {}
            }
            if let Some(columns) = &columns
                && let Some(twice) = columns.iter().enumerate().find(|(i, name)| columns[..*i].contains(name))
            {
                section.problem("columns", format!("the column `{}` is named twice", twice.1), &[]);
            }
            if delimiter.is_some() && delimiter == quote {
                section.problem("quote", "`quote` and `delimiter` are the same character", &[]);
            }
            Some(CsvSection { header: header?, delimiter: delimiter?, quote: quote?, columns })
        };
        match source.table("csv", tables::CSV_OPTIONS) {
            Some(section) => read(&section),
            None => read(&Section::new(self.document, path, 0..0, &empty, tables::CSV_OPTIONS)),
        }
    }

    fn sinks(
        &self,
        top: &Section<'d, 'i>,
        sources: &BTreeMap<SourceId, Option<SourceSection>>,
    ) -> BTreeMap<SinkId, Option<SinkSection>> {
        let mut sinks = BTreeMap::new();
        for entry in top.entries("sinks") {
            match SinkId::new(entry.name.clone()) {
                Ok(id) if id == dead_letter_id() => {
                    entry.problem("this name is taken by [dead-letter]", &["choose another name for the sink"]);
                }
                Ok(id) => {
                    sinks.insert(id, self.sink(&entry, false, sources));
                }
                Err(error) => entry.problem(error.to_string(), &[]),
            }
        }
        if top.has("sinks") && top.entries("sinks").is_empty() {
            top.problem("sinks", "[sinks] is empty: a pipeline needs at least one sink", &[]);
        }
        sinks
    }

    fn sink(
        &self,
        entry: &Entry<'d, 'i>,
        dead_letter: bool,
        sources: &BTreeMap<SourceId, Option<SourceSection>>,
    ) -> Option<SinkSection> {
        let section = entry.section(tables::SINK)?;
        let plugin = section.text("plugin").map(|plugin| match plugin.strip_prefix("builtin:") {
            Some(name) => PluginRef::Builtin(name.to_owned()),
            None => PluginRef::File(self.resolve(&plugin)),
        });
        let format = section.word("format").map(|word| match word.as_str() {
            "raw" => SinkFormat::Raw,
            "csv" => SinkFormat::Csv,
            "arrow-stream" => SinkFormat::ArrowStream,
            "parquet" => SinkFormat::Parquet,
            _ => SinkFormat::JsonLines,
        });
        let columns = self.columns(&section);
        let files = self.files(&section, format);
        let transform = self.transform(&section);
        if dead_letter {
            self.check_dead_letter(&section, format);
        } else {
            self.check_raw(&section, format);
        }
        let subtasks = section.small("subtasks");
        let route = self.route(&section);
        let taken = if dead_letter { self.no_sources(&section) } else { self.taken(&section, sources) };
        if let Some(Route::Key(field)) = &route {
            self.check_key(&section, field, format, &taken, sources);
        }
        let dirs = directories::grants(self.base, &section);
        let tcp = network::places(&section, &|written| self.resolve(written));
        let http = services::services(&section, &|written| self.resolve(written));
        let secrets = self.secrets(&section);
        let limits = self.limits(&section);
        Some(SinkSection {
            plugin: plugin?,
            format,
            columns,
            files: files?,
            transform,
            subtasks: subtasks?,
            route: route?,
            sources: taken,
            dirs,
            tcp,
            http,
            config: section.json_table("config"),
            secrets,
            limits: limits?,
        })
    }

    fn columns(&self, section: &Section<'d, 'i>) -> Vec<AddedColumn> {
        if !section.has("columns") {
            return Vec::new();
        }
        let mut columns = Vec::new();
        for name in section.texts("columns").unwrap_or_default() {
            let column = match name.as_str() {
                "_epoch" => AddedColumn::Epoch,
                "_part" => AddedColumn::Part,
                "_emitted_at" => AddedColumn::EmittedAt,
                _ => {
                    let message = format!("`columns` in {} names `{name}`, which the host cannot add", section.title());
                    let hint = "columns of your own go into `add` of the table `transform`";
                    section.problem("columns", message, &[&suggest(&name, tables::COLUMNS), hint]);
                    continue;
                }
            };
            if columns.contains(&column) {
                section.problem("columns", format!("the column `{name}` is named twice"), &[]);
            } else {
                columns.push(column);
            }
        }
        columns
    }

    fn files(&self, sink: &Section<'d, 'i>, format: Option<SinkFormat>) -> Option<Option<FilesSection>> {
        let empty = DeTable::new();
        let path = format!("{}.files", sink.path);
        let read = |section: &Section<'_, '_>| {
            let compression = match section.has("compression") {
                false => None,
                true => Some(match section.word("compression")?.as_str() {
                    "gzip" => Compression::Gzip,
                    "zstd" => Compression::Zstd,
                    _ => Compression::None,
                }),
            };
            let level = section.small("level");
            let effective = match (compression, format) {
                (None, Some(SinkFormat::Parquet)) => Compression::Zstd,
                (None, _) => Compression::None,
                (Some(compression), _) => compression,
            };
            match (effective, level) {
                (Compression::Gzip, Some(level)) if level > 9 => {
                    section.problem("level", format!("gzip has levels from 1 to 9, not {level}"), &[]);
                }
                (Compression::None, Some(_)) => {
                    let message = format!("{} has a level, but files are not compressed", section.title());
                    section.problem("level", message, &["add compression = \"zstd\", or remove `level`"]);
                }
                _ => {}
            }
            let folder = section.text("folder");
            let (roll_size, max_open_files) = (section.size("roll-size"), section.small("max-open-files"));
            Some(FilesSection { compression, level, folder, roll_size: roll_size?, max_open_files: max_open_files? })
        };
        match sink.table("files", tables::FILES_OPTIONS) {
            Some(section) => read(&section).map(Some),
            None if format == Some(SinkFormat::Parquet) => {
                read(&Section::new(self.document, path, 0..0, &empty, tables::FILES_OPTIONS)).map(Some)
            }
            None => Some(None),
        }
    }

    fn transform(&self, sink: &Section<'d, 'i>) -> Option<TransformSection> {
        let section = sink.table("transform", tables::TRANSFORM)?;
        let texts = |name: &str| if section.has(name) { section.texts(name) } else { None };
        Some(TransformSection {
            filter: section.text("filter"),
            cast: self.pairs(&section, "cast", false),
            add: self.pairs(&section, "add", true),
            select: texts("select"),
            drop: texts("drop").unwrap_or_default(),
            rename: self.pairs(&section, "rename", false),
        })
    }

    /// Names of the operator's choice with texts; also, where they are expressions, with constants.
    fn pairs(&self, section: &Section<'d, 'i>, name: &str, constants: bool) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for entry in section.entries(name) {
            match entry.as_text().map(str::to_owned).or_else(|| entry.constant().filter(|_| constants)) {
                Some(text) if !text.trim().is_empty() => pairs.push((entry.name, text)),
                _ => {
                    let expected = if constants {
                        "an SQL expression in quotes, a number, true or false"
                    } else {
                        "a text in quotes"
                    };
                    entry.problem(format!("`{}` is {}, expected {expected}", entry.path, entry.kind()), &[]);
                }
            }
        }
        pairs
    }

    /// Dead letters are JSON objects of their own shape.
    fn check_dead_letter(&self, section: &Section<'d, 'i>, format: Option<SinkFormat>) {
        for key in ["columns", "files", "transform"] {
            if section.has(key) {
                let message = format!("[dead-letter] has no `{key}`: bad rows go there as they are, for a person");
                section.problem(key, message, &[&format!("remove `{key}`")]);
            }
        }
        if matches!(format, Some(format) if format != SinkFormat::JsonLines) {
            let message = "[dead-letter] takes json-lines: every dead letter is a JSON object";
            section.problem("format", message, &["remove `format`"]);
        }
    }

    /// What needs columns, and rows that have none.
    fn check_raw(&self, section: &Section<'d, 'i>, format: Option<SinkFormat>) {
        if format != Some(SinkFormat::Raw) {
            return;
        }
        for key in ["columns", "transform"] {
            if section.has(key) {
                let message = format!("{} has `{key}`, but raw rows have no columns", section.title());
                section.problem(key, message, &["use a format with columns, such as json-lines"]);
            }
        }
    }

    fn route(&self, section: &Section<'d, 'i>) -> Option<Route> {
        let Some(entry) = section.other("route") else { return Some(Route::RoundRobin) };
        match entry.as_text() {
            Some("round-robin") => Some(Route::RoundRobin),
            None if entry.kind() == "a table" => entry.section(tables::ROUTE)?.text("key").map(Route::Key),
            found => {
                let found = found.map_or_else(|| entry.kind().to_owned(), |text| format!("\"{text}\""));
                let message = format!(
                    "`route` in {} is {found}, expected \"round-robin\" or {{ key = \"FIELD\" }}",
                    section.title()
                );
                entry.problem(message, &[]);
                None
            }
        }
    }

    fn no_sources(&self, section: &Section<'d, 'i>) -> Vec<SourceId> {
        if section.has("sources") {
            let hint = "remove `sources`; which rows it takes is said by on-bad-row of the sources";
            section.problem("sources", "[dead-letter] takes bad rows of every source", &[hint]);
        }
        Vec::new()
    }

    fn taken(&self, section: &Section<'d, 'i>, sources: &BTreeMap<SourceId, Option<SourceSection>>) -> Vec<SourceId> {
        if !section.has("sources") {
            return sources.keys().cloned().collect();
        }
        let mut taken = Vec::new();
        for name in section.texts("sources").unwrap_or_default() {
            let known = sources.keys().find(|id| id.as_str() == name);
            match known {
                Some(id) if taken.contains(id) => {
                    section.problem("sources", format!("the source `{name}` is named twice"), &[]);
                }
                Some(id) => taken.push(id.clone()),
                None => {
                    let names: Vec<_> = sources.keys().map(SourceId::as_str).collect();
                    let message = format!("`sources` in {} names `{name}`, which is no source", section.title());
                    section.problem("sources", message, &[&suggest(&name, &names)]);
                }
            }
        }
        taken
    }

    fn check_key(
        &self,
        section: &Section<'d, 'i>,
        field: &str,
        format: Option<SinkFormat>,
        taken: &[SourceId],
        sources: &BTreeMap<SourceId, Option<SourceSection>>,
    ) {
        let hint = "write route = \"round-robin\", or use a format with fields";
        if format == Some(SinkFormat::Raw) {
            let message = format!("{} routes by the field `{field}`, but raw rows have no fields", section.title());
            section.problem("route", message, &[hint]);
            return;
        }
        let rows = |id: &SourceId| sources.get(id).and_then(Option::as_ref).and_then(|source| source.kind.rows());
        let raw = taken.iter().find(|id| rows(id).is_some_and(|rows| rows.format == Format::Raw));
        if let Some(id) = raw {
            let message =
                format!("{} routes by the field `{field}`, but the rows of source `{id}` are raw", section.title());
            section.problem("route", message, &[hint]);
        }
    }

    fn secrets(&self, section: &Section<'d, 'i>) -> BTreeMap<String, SecretSource> {
        let mut secrets = BTreeMap::new();
        for entry in section.entries("secrets") {
            let hint = format!("write {0} = {{ env = \"NAME\" }} or {0} = {{ file = \"path\" }}", entry.name);
            if let Some(source) = secret(&entry, &hint, &|written| self.resolve(written)) {
                secrets.insert(entry.name, source);
            }
        }
        secrets
    }

    fn limits(&self, sink: &Section<'d, 'i>) -> Option<Limits> {
        let empty = DeTable::new();
        let path = format!("{}.limits", sink.path);
        match sink.table("limits", tables::LIMITS) {
            Some(section) => budgets::limits(&section),
            None => budgets::limits(&Section::new(self.document, path, 0..0, &empty, tables::LIMITS)),
        }
    }

    fn check_bad_rows(&self, top: &Section<'d, 'i>, sources: &BTreeMap<SourceId, Option<SourceSection>>, there: bool) {
        if there {
            return;
        }
        for entry in top.entries("sources") {
            let asks = sources
                .iter()
                .find(|(id, _)| id.as_str() == entry.name)
                .and_then(|(_, source)| source.as_ref()?.kind.rows())
                .is_some_and(|rows| rows.on_bad_row == OnBadRow::DeadLetter);
            if asks {
                let message =
                    format!("[{}] hands bad rows to the dead-letter sink, but there is no [dead-letter]", entry.path);
                entry.problem(message, &["add a table [dead-letter] with a plugin, or write on-bad-row = \"stop\""]);
            }
        }
    }

    fn check_all_taken(
        &self,
        top: &Section<'d, 'i>,
        sources: &BTreeMap<SourceId, Option<SourceSection>>,
        sinks: &BTreeMap<SinkId, Option<SinkSection>>,
    ) {
        // With a broken sink it is not known what it would take.
        if sinks.is_empty() || sinks.values().any(Option::is_none) {
            return;
        }
        for entry in top.entries("sources") {
            let Some(id) = sources.keys().find(|id| id.as_str() == entry.name) else { continue };
            if !sinks.values().flatten().any(|sink| sink.sources.contains(id)) {
                let message = format!("no sink takes the rows of source `{id}`");
                entry.problem(message, &["add it to `sources` of a sink, or remove it"]);
            }
        }
    }
}

/// Where a secret is. `hint` says how to write it.
pub(super) fn secret(entry: &Entry<'_, '_>, hint: &str, resolve: &dyn Fn(&str) -> PathBuf) -> Option<SecretSource> {
    if entry.kind() != "a table" {
        let message = format!(
            "`{}` holds a value; a secret in this file would end up in backups and version control",
            entry.path
        );
        entry.problem(message, &[hint]);
        return None;
    }
    let secret = entry.section(tables::SECRET)?;
    match (secret.text("env"), secret.text("file")) {
        (Some(env), None) if env.contains('=') => {
            secret.problem("env", "the name of an environment variable holds no `=`", &[hint]);
            None
        }
        (Some(env), None) => Some(SecretSource::Env(env)),
        (None, Some(file)) => Some(SecretSource::File { path: resolve(&file), written: file }),
        (Some(_), Some(_)) => {
            entry.problem(format!("`{}` has both env and file", entry.path), &[hint]);
            None
        }
        (None, None) if secret.has("env") || secret.has("file") => None,
        (None, None) => {
            entry.problem(format!("`{}` says not where the secret is", entry.path), &[hint]);
            None
        }
    }
}
