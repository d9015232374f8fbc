//! The fingerprint of a pipeline's graph, as it goes into every seal.
//!
//! `sha256:<hex> <canonical JSON>`: a digest to compare, and behind it the description that it is the digest of, so that a
//! later start can say *what* has changed. The plugins' own configuration and grants are not part of the text, since the
//! seal holds them as each sink's binding; their digest is.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_protocol::ids::{SinkId, SourceId};
use tidegate_protocol::plugin::Encoding;
use tidegate_protocol::record::Binding;

use crate::canonical;
use crate::config::{
    Compression, Format, PipelineFile, Route, SchemaSection, SinkFormat, SinkSection, SourceKind, SourceSection,
    TransformSection, UnknownFields,
};

/// What the fingerprint needs to know of a sink beyond its section.
pub(crate) struct SinkFacts<'a> {
    pub(crate) binding: &'a Binding,
    pub(crate) encoding: Encoding,
}

/// The description of a pipeline's graph.
pub(crate) fn describe(
    file: &PipelineFile,
    tasks: &BTreeMap<SourceId, u32>,
    typed: &BTreeMap<SourceId, String>,
    sinks: &BTreeMap<SinkId, SinkFacts<'_>>,
) -> Value {
    let sources: BTreeMap<_, _> = file
        .sources
        .iter()
        .map(|(id, section)| {
            let mut source = source(section, tasks.get(id).copied().unwrap_or(1));
            if typed.contains_key(id) {
                source["as-columns"] = true.into();
            }
            (id.to_string(), source)
        })
        .collect();
    let sinks: BTreeMap<_, _> = file
        .all_sinks()
        .filter_map(|(id, section, dead)| Some((id.to_string(), sink(section, sinks.get(&id)?, dead))))
        .collect();
    json!({"sources": sources, "sinks": sinks})
}

/// The fingerprint of a description.
pub(crate) fn fingerprint(description: &Value) -> String {
    let text = canonical::text(description);
    format!("{} {text}", canonical::sha256(text.as_bytes()))
}

/// The digest part of a fingerprint.
pub(crate) fn digest(fingerprint: &str) -> &str {
    fingerprint.split_once(' ').map_or(fingerprint, |(digest, _)| digest)
}

/// The description in a fingerprint, if it is one of ours and whole.
pub(crate) fn read(fingerprint: &str) -> Option<Value> {
    let (digest, text) = fingerprint.split_once(' ')?;
    if canonical::sha256(text.as_bytes()) != digest {
        return None;
    }
    serde_json::from_str(text).ok()
}

fn source(section: &SourceSection, tasks: u32) -> Value {
    let mut value = match &section.kind {
        SourceKind::Files { paths, compression, follow, .. } => {
            let mut value = json!({"paths": paths, "compression": compression.name()});
            if *follow {
                value["follow"] = true.into();
            }
            value
        }
        SourceKind::Generate { seed, rows, partitions, row_bytes, keys } => {
            json!({"seed": seed, "rows": rows, "partitions": partitions, "row-bytes": row_bytes, "keys": keys})
        }
        SourceKind::Stdin { .. } => json!({}),
    };
    value["kind"] = section.kind.name().into();
    value["tasks"] = tasks.into();
    if let Some(rows) = section.kind.rows() {
        value["format"] = rows.format.name().into();
        value["max-line"] = rows.max_line.into();
        // What is not written is left out, so that pipelines from before these keys have the description they had.
        match &rows.schema {
            Some(SchemaSection::Declared(text)) => value["schema"] = text.as_str().into(),
            Some(SchemaSection::Infer) => value["schema"] = "infer".into(),
            None => {}
        }
        if rows.unknown_fields != UnknownFields::BadRow {
            value["unknown-fields"] = rows.unknown_fields.name().into();
        }
        if let Format::Csv(csv) = &rows.format {
            value["csv"] = json!({
                "header": csv.header,
                "delimiter": char::from(csv.delimiter).to_string(),
                "quote": char::from(csv.quote).to_string(),
                "columns": csv.columns,
            });
        }
    }
    value
}

fn sink(section: &SinkSection, facts: &SinkFacts<'_>, dead_letter: bool) -> Value {
    // Not where directories lead: a project that is moved as a whole is the same one.
    let mut grants: Value = serde_json::from_str(&facts.binding.grants).unwrap_or_default();
    grants.as_object_mut().map(|grants| grants.remove("at"));
    let bound = canonical::text(&json!([facts.binding.config, canonical::text(&grants)]));
    let route = match &section.route {
        Route::RoundRobin => json!("round-robin"),
        Route::Key(field) => json!({"key": field}),
    };
    let mut value = json!({
        "plugin": facts.binding.plugin,
        "plugin-name": facts.binding.plugin_name,
        "bound": canonical::sha256(bound.as_bytes()),
        "encoding": facts.encoding.as_str(),
        "subtasks": section.subtasks,
        "route": route,
        "sources": section.sources.iter().map(SourceId::as_str).collect::<Vec<_>>(),
        "dead-letter": dead_letter,
    });
    // What is not written is left out, so that pipelines from before these keys have the description they had.
    if !section.columns.is_empty() {
        value["columns"] = section.columns.iter().map(|column| column.name()).collect();
    }
    if let Some(files) = &section.files {
        value["files"] = json!({
            "format": section.format.map(SinkFormat::name),
            "compression": files.compression.map(Compression::name),
            "level": files.level,
            "folder": files.folder,
            "roll-size": files.roll_size,
        });
    }
    if let Some(transform) = &section.transform {
        let TransformSection { filter, cast, add, select, drop, rename } = transform;
        value["transform"] = json!({
            "filter": filter, "cast": cast, "add": add, "select": select, "drop": drop, "rename": rename,
        });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_can_be_read_and_notice_damage() {
        let description = json!({"sources": {"a": {"kind": "files"}}, "sinks": {}});
        let text = fingerprint(&description);
        assert!(text.starts_with("sha256:"));
        assert_eq!(digest(&text).len(), 7 + 64);
        assert_eq!(read(&text), Some(description));
        assert_eq!(read(&text.replace("files", "stdin")), None);
        assert_eq!(read("something else"), None);
    }
}
