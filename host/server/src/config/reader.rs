//! Reads TOML tables by a description of their keys, and collects everything that is wrong with its place.
//!
//! A [`Table`] lists its keys with shape, default and meaning. The reader takes defaults from there and refuses what is
//! not listed, so that the description cannot drift from what is read.

use std::cell::RefCell;
use std::ops::Range;
use std::time::Duration;

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::error::Problem;
use super::units;

/// What a key's value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Any text.
    Text,
    /// A path; relative ones are relative to the file.
    Path,
    /// A list of texts, with at least one.
    Texts,
    /// A whole number in this range.
    Integer(u64, u64),
    /// A duration in this range of milliseconds.
    Duration(u64, u64),
    /// A number of bytes in this range.
    Size(u64, u64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `true` or `false`.
    Boolean,
    /// One ASCII character.
    Character,
    /// A further table.
    Table,
    /// Read by hand; says what is expected.
    Other(&'static str),
}

impl Shape {
    /// What to write, for a person.
    pub fn expected(self) -> String {
        match self {
            Shape::Text => "a text in quotes".into(),
            Shape::Path => "a path in quotes".into(),
            Shape::Texts => "a list of texts, [\"…\"]".into(),
            Shape::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Shape::Duration(..) => "a duration such as \"250ms\" or \"10s\"".into(),
            Shape::Size(..) => "a size such as \"64KiB\" or \"1MiB\"".into(),
            Shape::OneOf(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
                match words.as_slice() {
                    [one] => one.clone(),
                    [init @ .., last] => format!("{} or {last}", init.join(", ")),
                    [] => String::new(),
                }
            }
            Shape::Boolean => "true or false".into(),
            Shape::Character => "one ASCII character in quotes".into(),
            Shape::Table => "a table".into(),
            Shape::Other(words) => words.into(),
        }
    }
}

/// Whether a key must be there, and what counts when it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// It must be there.
    Required,
    /// As if this had been written (texts without their quotes).
    Default(&'static str),
    /// Absence has a meaning of its own, told here.
    Means(&'static str),
}

/// One key of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub shape: Shape,
    /// What absence means.
    pub absent: Absent,
    /// What it is for.
    pub about: &'static str,
}

/// One table of a pipeline file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Its path, with `NAME` where the operator chooses.
    pub path: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// The text of a file and the problems found in it so far.
pub(crate) struct Document<'t> {
    text: &'t str,
    /// The tables that such files have, and what lists them.
    tables: &'static [Table],
    reference: &'static str,
    problems: RefCell<Vec<Problem>>,
}

impl<'t> Document<'t> {
    /// Of a pipeline file.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, tables: super::tables::ALL, reference: ALL_KEYS, problems: RefCell::default() }
    }

    /// Of a host file.
    pub(crate) fn of_host(text: &'t str) -> Self {
        let reference = "`tidegate config reference --host` lists every key";
        Self { text, tables: super::host_tables::ALL, reference, problems: RefCell::default() }
    }

    /// Line and column of a byte offset, both from 1; columns count characters.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// Notes a problem at a place.
    pub(crate) fn problem(&self, span: Range<usize>, message: impl Into<String>, hints: Vec<String>) {
        let problem = Problem::new(Some(self.place(span.start)), message, hints);
        let mut problems = self.problems.borrow_mut();
        // A key that is read in several places is missing once.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }

    /// Notes a problem at a place that is known as line and column.
    pub(crate) fn problem_at(&self, at: Option<(usize, usize)>, message: impl Into<String>, hint: &str) {
        let hints = vec![hint.to_owned()];
        self.problems.borrow_mut().push(Problem::new(at, message, hints));
    }

    /// All problems, in the order of the file.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|problem| problem.at);
        problems
    }
}

/// Where an operator finds the keys that there are.
pub(super) const ALL_KEYS: &str = "`tidegate config reference` lists every key";

/// The nearest of `known`, if it is near enough to be meant.
pub(crate) fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let given = given.to_lowercase().replace('_', "-");
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&given, &name.to_lowercase()), name))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name)
}

/// A hint for an unknown word: the nearest known one, else all of them.
pub(crate) fn suggest(given: &str, known: &[&str]) -> String {
    match nearest(given, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None if known.is_empty() => "nothing is known here".to_owned(),
        None => format!("known are: {}", known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")),
    }
}

/// One table of the file, being read.
pub(crate) struct Section<'d, 'i> {
    document: &'d Document<'i>,
    /// Its full path, as in `[sources.flights]`.
    pub(crate) path: String,
    pub(crate) span: Range<usize>,
    table: &'d DeTable<'i>,
    about: Table,
}

impl<'d, 'i> Section<'d, 'i> {
    /// Starts to read a table; keys that it does not know become problems.
    pub(crate) fn new(
        document: &'d Document<'i>,
        path: impl Into<String>,
        span: Range<usize>,
        table: &'d DeTable<'i>,
        about: Table,
    ) -> Self {
        let section = Self { document, path: path.into(), span, table, about };
        let known: Vec<_> = about.keys.iter().map(|key| key.name).collect();
        for key in section.table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                let message = format!("unknown key `{}` in {}", key.get_ref(), section.title());
                document.problem(
                    key.span(),
                    message,
                    vec![suggest(key.get_ref(), &known), document.reference.to_owned()],
                );
            }
        }
        section
    }

    /// `[path]`, or "the top level".
    pub(crate) fn title(&self) -> String {
        if self.path.is_empty() { "the top level".to_owned() } else { format!("[{}]", self.path) }
    }

    fn key(&self, name: &str) -> Key {
        *self.about.keys.iter().find(|key| key.name == name).expect("the code reads only keys that its table lists")
    }

    /// Whether the key was written.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    fn raw(&self, name: &str) -> Option<&'d Spanned<DeValue<'i>>> {
        self.table.get(name)
    }

    /// Where the key's value stands, else the table.
    pub(crate) fn span_of(&self, name: &str) -> Range<usize> {
        self.raw(name).map_or_else(|| self.span.clone(), Spanned::span)
    }

    /// Notes a problem at the key, or at the table when the key is absent.
    pub(crate) fn problem(&self, name: &str, message: impl Into<String>, hints: &[&str]) {
        self.document.problem(self.span_of(name), message, hints.iter().map(|&hint| hint.to_owned()).collect());
    }

    fn wrong(&self, key: Key, found: &str) {
        let message = format!("`{}` in {} is {found}, expected {}", key.name, self.title(), key.shape.expected());
        self.document.problem(self.span_of(key.name), message, vec![]);
    }

    /// The written text, or the default's, for shapes that are written as text.
    fn text_or_default(&self, key: Key) -> Option<String> {
        match self.raw(key.name) {
            Some(value) => match value.get_ref() {
                DeValue::String(text) => Some(text.to_string()),
                other => {
                    self.wrong(key, a_type(other));
                    None
                }
            },
            None => self.default_of(key).map(str::to_owned),
        }
    }

    fn default_of(&self, key: Key) -> Option<&'static str> {
        match key.absent {
            Absent::Default(text) => Some(text),
            Absent::Means(_) => None,
            Absent::Required => {
                let message = format!("{} lacks `{}`: {}", self.title(), key.name, key.about);
                let hint = match key.shape {
                    Shape::Table => format!("add a table [{}]", self.table_below(key.name)),
                    shape => format!("add `{} = …` with {}", key.name, shape.expected()),
                };
                self.document.problem(self.span.clone(), message, vec![hint]);
                None
            }
        }
    }

    /// A text or path. `None` when absent without default, or wrong (and noted).
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let key = self.key(name);
        let text = self.text_or_default(key)?;
        if text.is_empty() {
            self.wrong(key, "empty");
            return None;
        }
        if text.contains('\0') {
            self.wrong(key, "a text with a NUL character");
            return None;
        }
        Some(text)
    }

    /// One of the words of the key's shape.
    pub(crate) fn word(&self, name: &str) -> Option<String> {
        let key = self.key(name);
        let text = self.text_or_default(key)?;
        let Shape::OneOf(words) = key.shape else { return Some(text) };
        if words.contains(&text.as_str()) {
            return Some(text);
        }
        let message = format!("`{name}` in {} is \"{text}\", expected {}", self.title(), key.shape.expected());
        let hints = nearest(&text, words.iter().copied()).map(|word| format!("did you mean \"{word}\"?"));
        self.document.problem(self.span_of(name), message, hints.into_iter().collect());
        None
    }

    /// A whole number within the shape's range.
    pub(crate) fn integer(&self, name: &str) -> Option<u64> {
        let key = self.key(name);
        let Shape::Integer(min, max) = key.shape else { return None };
        let (number, written) = match self.raw(name) {
            Some(value) => match value.get_ref() {
                DeValue::Integer(number) => (whole(number), number.to_string()),
                other => {
                    self.wrong(key, a_type(other));
                    return None;
                }
            },
            None => {
                let text = self.default_of(key)?;
                (text.parse().ok(), text.to_owned())
            }
        };
        match number {
            Some(number) if (min..=max).contains(&number) => Some(number),
            _ => {
                self.wrong(key, &out_of_range(&written));
                None
            }
        }
    }

    /// As [`Section::integer`], for numbers whose range fits.
    pub(crate) fn small(&self, name: &str) -> Option<u32> {
        self.integer(name).and_then(|number| u32::try_from(number).ok())
    }

    /// A duration.
    pub(crate) fn duration(&self, name: &str) -> Option<Duration> {
        let Shape::Duration(min, max) = self.key(name).shape else { return None };
        let duration = self.measured(name, units::duration)?;
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        if !(min..=max).contains(&millis) {
            let show = |millis| units::show_duration(Duration::from_millis(millis));
            let found = out_of_range(&self.text_or_default(self.key(name)).unwrap_or_default());
            let message = format!("`{name}` in {} is {found}, expected {} to {}", self.title(), show(min), show(max));
            self.problem(name, message, &[]);
            return None;
        }
        Some(duration)
    }

    /// A number of bytes.
    pub(crate) fn size(&self, name: &str) -> Option<u64> {
        let Shape::Size(min, max) = self.key(name).shape else { return None };
        let size = self.measured(name, units::size)?;
        if !(min..=max).contains(&size) {
            let found = out_of_range(&self.text_or_default(self.key(name)).unwrap_or_default());
            let message = format!("`{name}` in {} is {found}, expected {min} to {max} bytes", self.title());
            self.problem(name, message, &[]);
            return None;
        }
        Some(size)
    }

    fn measured<T>(&self, name: &str, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        let key = self.key(name);
        if let Some(DeValue::Integer(number)) = self.raw(name).map(Spanned::get_ref) {
            self.wrong(key, &format!("the number {} without a unit", number.as_str()));
            return None;
        }
        let text = self.text_or_default(key)?;
        parse(&text)
            .map_err(|expected| {
                self.problem(name, format!("`{name}` in {} is \"{text}\", {expected}", self.title()), &[]);
            })
            .ok()
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&self, name: &str) -> Option<bool> {
        let key = self.key(name);
        match self.raw(name) {
            Some(value) => match value.get_ref() {
                DeValue::Boolean(value) => Some(*value),
                other => {
                    self.wrong(key, a_type(other));
                    None
                }
            },
            None => self.default_of(key).map(|text| text == "true"),
        }
    }

    /// One ASCII character.
    pub(crate) fn character(&self, name: &str) -> Option<u8> {
        let key = self.key(name);
        let text = self.text_or_default(key)?;
        match text.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Some(*byte),
            _ => {
                self.wrong(key, &format!("{text:?}"));
                None
            }
        }
    }

    /// A list of texts; not empty.
    pub(crate) fn texts(&self, name: &str) -> Option<Vec<String>> {
        let key = self.key(name);
        let Some(value) = self.raw(name) else {
            self.default_of(key);
            return None;
        };
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong(key, a_type(value.get_ref()));
            return None;
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(text) if !text.is_empty() && !text.contains('\0') => texts.push(text.to_string()),
                other => {
                    let message = format!(
                        "`{name}` in {} holds {}, expected texts that are not empty",
                        self.title(),
                        a_type(other)
                    );
                    self.document.problem(item.span(), message, vec![]);
                    return None;
                }
            }
        }
        if texts.is_empty() {
            self.wrong(key, "an empty list");
            return None;
        }
        Some(texts)
    }

    /// One whole number of 32 bits, or a list of them.
    pub(crate) fn numbers(&self, name: &str) -> Option<Vec<u32>> {
        let value = self.raw(name)?;
        let number = |value: &DeValue<'_>| match value {
            DeValue::Integer(number) => whole(number).and_then(|number| u32::try_from(number).ok()),
            _ => None,
        };
        let numbers = match value.get_ref() {
            DeValue::Array(items) => items.iter().map(|item| number(item.get_ref())).collect::<Option<Vec<_>>>(),
            other => number(other).map(|number| vec![number]),
        };
        if numbers.is_none() {
            self.wrong(self.key(name), a_type(value.get_ref()));
        }
        numbers
    }

    /// A nested table with keys of its own.
    pub(crate) fn table(&self, name: &str, about: Table) -> Option<Section<'d, 'i>> {
        let (span, table) = self.raw_table(name)?;
        Some(Section::new(self.document, self.below(name), span, table, about))
    }

    /// The entries of a nested table whose keys the operator chooses: name, its place, value.
    pub(crate) fn entries(&self, name: &str) -> Vec<Entry<'d, 'i>> {
        let Some((_, table)) = self.raw_table(name) else { return Vec::new() };
        let path = self.below(name);
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, value)| Entry {
                document: self.document,
                path: format!("{path}.{}", key.get_ref()),
                name: key.get_ref().to_string(),
                span: key.span(),
                value,
            })
            .collect();
        entries.sort_by_key(|entry| entry.span.start);
        entries
    }

    /// A nested table that belongs to somebody else, as JSON.
    pub(crate) fn json_table(&self, name: &str) -> serde_json::Map<String, Json> {
        let Some((_, table)) = self.raw_table(name) else { return serde_json::Map::new() };
        table.iter().map(|(key, value)| (key.get_ref().to_string(), self.json(value))).collect()
    }

    fn json(&self, value: &Spanned<DeValue<'i>>) -> Json {
        match value.get_ref() {
            DeValue::String(text) => Json::from(text.as_ref()),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Json::from(number),
                Err(_) => {
                    self.document.problem(value.span(), "this number does not fit into 64 bits", vec![]);
                    Json::Null
                }
            },
            DeValue::Float(number) => {
                let parsed = number.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
                parsed.map_or_else(
                    || {
                        self.document.problem(value.span(), "this number cannot be written as JSON", vec![]);
                        Json::Null
                    },
                    Json::Number,
                )
            }
            DeValue::Boolean(value) => Json::from(*value),
            DeValue::Datetime(when) => Json::from(when.to_string()),
            DeValue::Array(items) => items.iter().map(|item| self.json(item)).collect(),
            DeValue::Table(table) => {
                table.iter().map(|(key, value)| (key.get_ref().to_string(), self.json(value))).collect()
            }
        }
    }

    fn raw_table(&self, name: &str) -> Option<(Range<usize>, &'d DeTable<'i>)> {
        let key = self.key(name);
        let Some(value) = self.raw(name) else {
            self.default_of(key);
            return None;
        };
        match value.get_ref() {
            DeValue::Table(table) => {
                // The span of a table that only exists through its children points at the first of them.
                let span = self.table.get_key_value(name).map_or_else(|| value.span(), |(key, _)| key.span());
                Some((span, table))
            }
            other => {
                self.wrong(key, a_type(other));
                None
            }
        }
    }

    /// What to write to have a table of that name, or one in it where the operator chooses the names.
    fn table_below(&self, name: &str) -> String {
        let path = self.below(name);
        let named = format!("{path}.NAME");
        if self.document.tables.iter().any(|table| table.path == named) { named } else { path }
    }

    fn below(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The value of a key of shape [`Shape::Other`].
    pub(crate) fn other(&self, name: &str) -> Option<Entry<'d, 'i>> {
        let value = self.raw(name)?;
        Some(Entry {
            document: self.document,
            path: self.below(name),
            name: name.to_owned(),
            span: value.span(),
            value,
        })
    }
}

/// A value under a name that the operator chose.
pub(crate) struct Entry<'d, 'i> {
    document: &'d Document<'i>,
    /// Full dotted path.
    pub(crate) path: String,
    /// The last piece of it.
    pub(crate) name: String,
    /// Where the name stands.
    pub(crate) span: Range<usize>,
    value: &'d Spanned<DeValue<'i>>,
}

impl<'d, 'i> Entry<'d, 'i> {
    /// Notes a problem at the entry.
    pub(crate) fn problem(&self, message: impl Into<String>, hints: &[&str]) {
        self.document.problem(self.span.clone(), message, hints.iter().map(|&hint| hint.to_owned()).collect());
    }

    /// The value as text, if it is one.
    pub(crate) fn as_text(&self) -> Option<&'d str> {
        self.value.get_ref().as_str()
    }

    /// A number or truth value as SQL writes it.
    pub(crate) fn constant(&self) -> Option<String> {
        match self.value.get_ref() {
            DeValue::Integer(number) => {
                i128::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number.to_string())
            }
            DeValue::Float(number) => {
                number.as_str().parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| n.to_string())
            }
            DeValue::Boolean(value) => Some(value.to_string()),
            _ => None,
        }
    }

    /// The word of `kind` in the table, before its keys are known.
    pub(crate) fn peek(&self, key: &str) -> Option<&'d str> {
        self.value.get_ref().as_table()?.get(key)?.get_ref().as_str()
    }

    /// The value as a table with keys.
    pub(crate) fn section(&self, about: Table) -> Option<Section<'d, 'i>> {
        let DeValue::Table(table) = self.value.get_ref() else {
            let message = format!("`{}` is {}, expected a table", self.path, a_type(self.value.get_ref()));
            self.problem(message, &[]);
            return None;
        };
        Some(Section::new(self.document, self.path.clone(), self.span.clone(), table, about))
    }

    /// What the value is, with an article.
    pub(crate) fn kind(&self) -> &'static str {
        a_type(self.value.get_ref())
    }
}

fn whole(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn out_of_range(written: &str) -> String {
    format!("{written}, which is out of range")
}

fn a_type(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(text) if text.trim().is_empty() => "an empty text",
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
