//! `FORMAT.md` says what is really written: its tables are read as a schema, samples of every record are held against it,
//! and its example is a log.

use std::collections::{BTreeMap, BTreeSet};

use ciborium::Value;
use tidegate_protocol::ids::{Nonce, RunId, Slot};
use tidegate_protocol::record::{Body, Forget, Record, Seal};
use tidegate_store::Log as _;
use tidegate_store::codec::encode_record;
use tidegate_store::disk::sim::{Image, SimDisk};

use crate::formats::{golden_pages, golden_records};
use crate::support::{open_on, segment};

const TEXT: &str = include_str!("../../FORMAT.md");

/// A field, its type, and whether it may be left out.
type Field = (String, Type, bool);

#[derive(Debug)]
enum Table {
    /// In order.
    Fields(Vec<Field>),
    Variants(BTreeMap<String, Option<Type>>),
}

#[derive(Debug, Clone, PartialEq)]
enum Type {
    Uint,
    Int,
    Text,
    Bytes,
    Bool,
    Null,
    List(Box<Type>),
    Pair(Box<Type>, Box<Type>),
    Map(Box<Type>),
    Either(Box<Type>, Box<Type>),
    Named(String),
}

/// The tables under "Records", by their headings.
fn tables() -> BTreeMap<String, Table> {
    let section = TEXT.split("\n## Records\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut tables = BTreeMap::new();
    for part in section.split("\n### ").skip(1) {
        let name = part.lines().next().unwrap().trim().to_owned();
        let rows = part.lines().filter(|line| line.starts_with("| `"));
        let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.len() == 6), "{name}");
        let quoted = |cell: &str| cell.split('`').nth(1).unwrap().to_owned();
        let since = rows.iter().all(|row| row[4].split(", ").all(|version| ["1", "2"].contains(&version)));
        assert!(since, "{name}: since which version?");
        let table = match part.contains("| variant |") {
            true => {
                let content = |cell: &str| (cell != "–").then(|| parse(cell));
                Table::Variants(rows.iter().map(|row| (quoted(row[1]), content(row[2]))).collect())
            }
            false => {
                Table::Fields(rows.iter().map(|row| (quoted(row[1]), parse(row[2]), row[1].ends_with("` ?"))).collect())
            }
        };
        assert!(tables.insert(name.clone(), table).is_none(), "{name} is there twice");
    }
    tables
}

fn parse(text: &str) -> Type {
    let (left, rest) = parse_one(text.trim());
    match rest.trim().strip_prefix('/') {
        Some(right) => Type::Either(Box::new(left), Box::new(parse(right))),
        None if rest.trim().is_empty() => left,
        None => panic!("`{text}` is no type"),
    }
}

fn parse_one(text: &str) -> (Type, &str) {
    if let Some(inner) = text.strip_prefix("[*") {
        let (inner, rest) = parse_one(inner.trim_start());
        return (Type::List(Box::new(inner)), rest.strip_prefix(']').expect("`]`"));
    }
    if let Some(inner) = text.strip_prefix("{* text =>") {
        let (inner, rest) = parse_one(inner.trim_start());
        return (Type::Map(Box::new(inner)), rest.strip_prefix('}').expect("`}`"));
    }
    if let Some(inner) = text.strip_prefix('[') {
        let (first, rest) = parse_one(inner);
        let (second, rest) = parse_one(rest.strip_prefix(',').expect("`,`").trim_start());
        return (Type::Pair(Box::new(first), Box::new(second)), rest.strip_prefix(']').expect("`]`"));
    }
    let end = text.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let named = match name {
        "uint" => Type::Uint,
        "int" => Type::Int,
        "text" => Type::Text,
        "bytes" => Type::Bytes,
        "bool" => Type::Bool,
        "null" => Type::Null,
        "" => panic!("`{text}` is no type"),
        other => Type::Named(other.to_owned()),
    };
    (named, rest)
}

struct Check<'a> {
    tables: &'a BTreeMap<String, Table>,
    /// Fields, variants and sides of an alternative that a sample had.
    met: BTreeSet<String>,
}

impl Check<'_> {
    fn fits(&mut self, value: &Value, expected: &Type, place: &str) -> Result<(), String> {
        let wrong = || Err(format!("{place} is {value:?}, and FORMAT.md says {expected:?}"));
        match (expected, value) {
            (Type::Uint, Value::Integer(number)) => {
                if i128::from(*number) >= 0 {
                    Ok(())
                } else {
                    wrong()
                }
            }
            (Type::Int, Value::Integer(_))
            | (Type::Text, Value::Text(_))
            | (Type::Bytes, Value::Bytes(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Null, Value::Null) => Ok(()),
            (Type::List(of), Value::Array(list)) => list.iter().try_for_each(|value| self.fits(value, of, place)),
            (Type::Pair(first, second), Value::Array(list)) if list.len() == 2 => {
                self.fits(&list[0], first, place)?;
                self.fits(&list[1], second, place)
            }
            (Type::Map(of), Value::Map(map)) => map.iter().try_for_each(|(key, value)| {
                self.fits(key, &Type::Text, place)?;
                self.fits(value, of, place)
            }),
            (Type::Either(left, right), value) => {
                let side = if self.fits(value, left, place).is_ok() { "first" } else { "second" };
                self.met.insert(format!("{place}: {side}"));
                if side == "first" { Ok(()) } else { self.fits(value, right, place) }
            }
            (Type::Named(name), value) => self.table(name, value),
            _ => wrong(),
        }
    }

    fn table(&mut self, name: &str, value: &Value) -> Result<(), String> {
        match self.tables.get(name) {
            None => Err(format!("FORMAT.md names `{name}` and has no table of it")),
            Some(Table::Fields(fields)) => self.fields(name, fields, value),
            Some(Table::Variants(variants)) => self.variant(name, variants, value),
        }
    }

    fn fields(&mut self, name: &str, fields: &[Field], value: &Value) -> Result<(), String> {
        let Value::Map(map) = value else { return Err(format!("`{name}` is {value:?}, expected a map")) };
        let mut written = map.iter().peekable();
        for (field, of, optional) in fields {
            let place = format!("{name}.{field}");
            match written.next_if(|(key, _)| key.as_text() == Some(field)) {
                Some((_, value)) => {
                    self.met.insert(place.clone());
                    self.fits(value, of, &place)?;
                }
                None if *optional => {
                    self.met.insert(format!("{place}: left out"));
                }
                None => return Err(format!("FORMAT.md lists {place}, and it is not written there: {map:?}")),
            }
        }
        written.next().map_or(Ok(()), |(key, _)| Err(format!("`{name}` is written with {key:?}, not listed there")))
    }

    fn variant(&mut self, name: &str, variants: &BTreeMap<String, Option<Type>>, value: &Value) -> Result<(), String> {
        let (variant, content) = match value {
            Value::Text(variant) => (variant.as_str(), None),
            Value::Map(map) if map.len() == 1 => (map[0].0.as_text().unwrap_or_default(), Some(&map[0].1)),
            _ => return Err(format!("`{name}` is {value:?}, expected a variant")),
        };
        let place = format!("{name}.{variant}");
        self.met.insert(place.clone());
        match (variants.get(variant), content) {
            (None, _) => Err(format!("{place} is written and not listed in FORMAT.md")),
            (Some(None), None) => Ok(()),
            (Some(Some(of)), Some(content)) => self.fits(content, of, &place),
            _ => Err(format!("FORMAT.md says of {place} whether it has content, and that is wrong")),
        }
    }
}

/// Everything that a table lists, with both sides of what may be left out or be one of two.
fn listed(tables: &BTreeMap<String, Table>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (name, table) in tables {
        match table {
            Table::Fields(fields) => fields.iter().for_each(|(field, of, optional)| {
                all.insert(format!("{name}.{field}"));
                if *optional {
                    all.insert(format!("{name}.{field}: left out"));
                }
                if matches!(of, Type::Either(..)) {
                    all.extend(["first", "second"].map(|side| format!("{name}.{field}: {side}")));
                }
            }),
            Table::Variants(variants) => all.extend(variants.keys().map(|variant| format!("{name}.{variant}"))),
        }
    }
    all
}

fn held_against(records: &[Record], tables: &BTreeMap<String, Table>) -> Result<BTreeSet<String>, String> {
    let mut check = Check { tables, met: BTreeSet::new() };
    for record in records {
        let value: Value = ciborium::from_reader(&encode_record(record).unwrap()[..]).unwrap();
        check.table("record", &value)?;
    }
    Ok(check.met)
}

/// Every kind of record, with what the golden log of version 1 has not: it was written before.
fn samples() -> Vec<Record> {
    let mut records = golden_records();
    records.extend(golden_pages().1);
    let mut later = golden_records();
    for record in &mut later {
        match &mut record.body {
            Body::Seal(seal) => later_or_absent(seal),
            Body::Open(open) => open.observed.values_mut().for_each(|position| position.fence = None),
            Body::Intent(intent) => {
                intent.part = None;
                intent.resource.expires_at = None;
            }
            _ => {}
        }
    }
    records.extend(later);
    records.extend(crate::formats::every_error());
    records
}

/// Fields that came later, and none of what may be absent.
fn later_or_absent(seal: &mut Seal) {
    seal.sources.values_mut().for_each(|cut| cut.schema = Some("a BIGINT".to_owned()));
    seal.operators.values_mut().flatten().for_each(|cut| cut.watermark = None);
    for part in seal.sinks.values_mut().flat_map(|cut| &mut cut.parts) {
        part.filtered = 1;
        part.committable.iter_mut().for_each(|committable| committable.expires_at = None);
    }
}

#[test]
fn the_tables_list_exactly_what_is_written() {
    let expected = listed(&tables());
    assert!(expected.len() > 100, "{}", expected.len());
    let met = held_against(&samples(), &tables()).unwrap_or_else(|wrong| panic!("{wrong}"));
    let never: Vec<&String> = expected.difference(&met).collect();
    assert!(never.is_empty(), "FORMAT.md lists what no sample has: {never:?}");
}

/// A description that lacks a field, has one too many or another type is noticed.
#[test]
fn a_table_that_is_out_of_date_is_noticed() {
    let wrong = |change: &dyn Fn(&mut BTreeMap<String, Table>)| {
        let mut tables = tables();
        change(&mut tables);
        held_against(&samples(), &tables).unwrap_err()
    };
    let fields = |tables: &mut BTreeMap<String, Table>, change: &dyn Fn(&mut Vec<Field>)| {
        let Some(Table::Fields(fields)) = tables.get_mut("part-id") else { panic!("it has fields") };
        change(fields);
    };
    let lacks = wrong(&|tables| fields(tables, &|fields| drop(fields.pop())));
    assert!(lacks.contains("not listed"), "{lacks}");
    let more = wrong(&|tables| fields(tables, &|fields| fields.push(("more".to_owned(), Type::Uint, false))));
    assert!(more.contains("part-id.more"), "{more}");
    let other = wrong(&|tables| fields(tables, &|fields| fields[1].1 = Type::Text));
    assert!(other.contains("part-id.epoch"), "{other}");
    let variant = wrong(&|tables| {
        let Some(Table::Variants(variants)) = tables.get_mut("policy") else { panic!("it has variants") };
        variants.remove("accept-loss");
    });
    assert!(variant.contains("accept-loss"), "{variant}");
}

#[test]
fn the_example_is_a_log_that_says_what_stands_beside_it() {
    let block = TEXT.split("```hex\n").nth(1).unwrap().split("```").next().unwrap();
    let mut bytes = Vec::new();
    for line in block.lines() {
        let hex = line.split('#').next().unwrap();
        match hex.split("to byte").nth(1) {
            Some(end) => bytes.resize(end.trim().parse().unwrap(), 0),
            None => bytes.extend(hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap())),
        }
    }
    let mut image = Image::default();
    image.put(&segment(1), bytes.clone());
    let mut log = open_on(&SimDisk::from_image(image)).unwrap();
    let forget = Record {
        slot: Slot(1),
        run: RunId { number: 2, nonce: Nonce([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]) },
        written_at: 1_700_000_000_000,
        outcomes: Vec::new(),
        body: Body::Forget(Forget { name: "monday".to_owned() }),
    };
    assert_eq!(log.read_all().unwrap(), std::slice::from_ref(&forget));
    // And the other way round: this program writes exactly these bytes.
    let disk = SimDisk::new();
    crate::support::append_all(&mut open_on(&disk).unwrap(), &[forget]);
    assert!(disk.visible().file(&segment(1)) == Some(&bytes));
}
