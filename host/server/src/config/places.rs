//! Where everything in a pipeline file stands, for what is found out after the file was read.

use std::collections::BTreeMap;

use tidegate_protocol::ids::{SinkId, SourceId};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Problem};
use super::reader::Document;
use super::{DEAD_LETTER, PipelineFile};

/// Line and column, both from 1.
type At = (usize, usize);

/// Where the tables and keys of a pipeline file stand, by the names that lead to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places(BTreeMap<Vec<String>, Place>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    key: At,
    /// As [`Place::key`] for tables, which may be written in several places.
    value: At,
}

impl Places {
    /// Of everything in a file.
    pub(super) fn of(document: &Document<'_>, root: &DeTable<'_>) -> Self {
        let mut places = BTreeMap::new();
        // Tables that wait to be walked through; the file's own nesting is bounded by its parser.
        let mut waiting = vec![(Vec::new(), root)];
        while let Some((path, table)) = waiting.pop() {
            for (key, value) in table {
                let mut below = path.clone();
                below.push(key.get_ref().to_string());
                let value = match value.get_ref() {
                    DeValue::Table(table) => {
                        waiting.push((below.clone(), table));
                        Spanned::span(key)
                    }
                    _ => value.span(),
                };
                let at = |offset: std::ops::Range<usize>| document.place(offset.start);
                places.insert(below, Place { key: at(Spanned::span(key)), value: at(value) });
            }
        }
        Self(places)
    }

    /// Where the value of `path` stands, or the table that it would stand in; `None` at the top level.
    pub(crate) fn at(&self, path: &[String]) -> Option<At> {
        (1..=path.len()).rev().find_map(|length| self.0.get(&path[..length])).map(|place| place.value)
    }

    /// Where the name stands that `path` ends with.
    pub(crate) fn key_at(&self, path: &[String]) -> Option<At> {
        self.0.get(path).map(|place| place.key)
    }

    /// Whether it was written.
    pub(crate) fn is_there(&self, path: &[String]) -> bool {
        self.0.contains_key(path)
    }

    /// All but what is said of sources.
    pub(crate) fn without_sources(&self) -> Self {
        let kept = self.0.iter().filter(|(path, _)| path.first().is_none_or(|name| name != "sources"));
        Self(kept.map(|(path, at)| (path.clone(), *at)).collect())
    }
}

fn below(start: &[&str], keys: &[&str]) -> Vec<String> {
    start.iter().chain(keys).map(|name| (*name).to_owned()).collect()
}

/// What leads to a key of a source: `keys` below its table.
pub(crate) fn of_source(id: &SourceId, keys: &[&str]) -> Vec<String> {
    below(&["sources", id.as_str()], keys)
}

/// What leads to a key of a sink: `keys` below its table.
pub(crate) fn of_sink(id: &SinkId, keys: &[&str]) -> Vec<String> {
    match id.as_str() {
        DEAD_LETTER => below(&[DEAD_LETTER], keys),
        id => below(&["sinks", id], keys),
    }
}

impl PipelineFile {
    /// One thing that is wrong with the file, where `path` leads.
    pub(crate) fn wrong(&self, path: &[String], message: impl Into<String>, hints: Vec<String>) -> ConfigError {
        self.wrong_in(vec![Problem::new(self.places.at(path), message, hints)])
    }

    /// Several of them; not empty.
    pub(crate) fn wrong_in(&self, problems: Vec<Problem>) -> ConfigError {
        ConfigError { file: self.path.clone(), problems, unreadable: false }
    }

    /// A message about what stands where `path` leads.
    pub(crate) fn told_at(&self, path: &[String], message: impl Into<String>) -> String {
        self.wrong(path, message, Vec::new()).to_string()
    }
}
