//! Looks a Parquet footer over before it is parsed.
//!
//! Damaged or hostile counts would make a parser reserve any amount of memory, and deep nesting would exhaust its stack;
//! neither can be caught afterwards. The footer is one structure of Thrift's compact protocol; this walks through it,
//! holds nothing, and finds out on the way whether columns are encrypted.

/// Structures within structures: the format's own need 8, and a schema is a flat list.
const MAX_DEPTH: u32 = 32;
/// Groups within groups of a schema.
const MAX_SCHEMA_DEPTH: usize = 64;

/// What the walk found out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Footer {
    /// Some or all columns are encrypted.
    pub(super) encrypted: bool,
}

/// Types of the compact protocol.
mod wire {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const MAP: u8 = 11;
    pub(super) const STRUCT: u8 = 12;
    pub(super) const UUID: u8 = 13;
}

/// Which structure is being walked through, as far as that matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    File,
    SchemaElement,
    RowGroup,
    ColumnChunk,
    Other,
}

impl Place {
    fn field(self, id: i16) -> Place {
        match (self, id) {
            (Place::File, 2) => Place::SchemaElement,
            (Place::File, 4) => Place::RowGroup,
            (Place::RowGroup, 1) => Place::ColumnChunk,
            _ => Place::Other,
        }
    }
}

/// Walks through a footer. The error says what is wrong with it.
pub(super) fn check(bytes: &[u8]) -> Result<Footer, &'static str> {
    let mut walk = Walk { rest: bytes, footer: Footer::default(), groups: Groups::default() };
    walk.structure(Place::File, 0)?;
    walk.groups.end()?;
    Ok(walk.footer)
}

struct Walk<'a> {
    rest: &'a [u8],
    footer: Footer,
    groups: Groups,
}

const CUT: &str = "it ends in the middle of a value";

impl Walk<'_> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (&byte, rest) = self.rest.split_first().ok_or(CUT)?;
        self.rest = rest;
        Ok(byte)
    }

    fn skip(&mut self, bytes: u64) -> Result<(), &'static str> {
        let bytes = usize::try_from(bytes).map_err(|_| CUT)?;
        self.rest = self.rest.get(bytes..).ok_or(CUT)?;
        Ok(())
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("it holds a number that does not end")
    }

    fn zigzag(&mut self) -> Result<i64, &'static str> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn structure(&mut self, place: Place, depth: u32) -> Result<(), &'static str> {
        if depth > MAX_DEPTH {
            return Err("its structures are nested too deep");
        }
        let mut id = 0i16;
        let mut children = None;
        loop {
            let header = self.byte()?;
            if header == 0 {
                break;
            }
            let kind = header & 0x0f;
            id = match header >> 4 {
                0 => i16::try_from(self.zigzag()?).map_err(|_| "it holds a field with an impossible number")?,
                delta => id.checked_add(i16::from(delta)).ok_or("it holds a field with an impossible number")?,
            };
            match (place, id) {
                // FileMetaData.encryption_algorithm, ColumnChunk.crypto_metadata
                (Place::File, 8) | (Place::ColumnChunk, 8) => self.footer.encrypted = true,
                // SchemaElement.num_children
                (Place::SchemaElement, 5) if kind == wire::I32 => {
                    children = Some(self.zigzag()?);
                    continue;
                }
                _ => {}
            }
            self.value(kind, place.field(id), depth + 1)?;
        }
        if place == Place::SchemaElement {
            self.groups.element(children)?;
        }
        Ok(())
    }

    fn value(&mut self, kind: u8, place: Place, depth: u32) -> Result<(), &'static str> {
        if depth > MAX_DEPTH {
            return Err("its structures are nested too deep");
        }
        match kind {
            // The value is in the field's header.
            wire::TRUE | wire::FALSE => Ok(()),
            wire::BYTE => self.skip(1),
            wire::I16 | wire::I32 | wire::I64 => self.varint().map(|_| ()),
            wire::DOUBLE => self.skip(8),
            wire::UUID => self.skip(16),
            wire::BINARY => {
                let bytes = self.varint()?;
                self.skip(bytes)
            }
            wire::LIST | wire::SET => self.list(place, depth),
            wire::MAP => self.map(depth),
            wire::STRUCT => self.structure(place, depth),
            _ => Err("it holds a value of an unknown type"),
        }
    }

    fn list(&mut self, place: Place, depth: u32) -> Result<(), &'static str> {
        let header = self.byte()?;
        let count = match header >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        // Every element takes a byte at least.
        if count > self.rest.len() as u64 {
            return Err("it says that it holds more than it has bytes");
        }
        for _ in 0..count {
            self.element(header & 0x0f, place, depth)?;
        }
        Ok(())
    }

    fn map(&mut self, depth: u32) -> Result<(), &'static str> {
        let count = self.varint()?;
        if count == 0 {
            return Ok(());
        }
        if count > self.rest.len() as u64 {
            return Err("it says that it holds more than it has bytes");
        }
        let kinds = self.byte()?;
        for _ in 0..count {
            self.element(kinds >> 4, Place::Other, depth)?;
            self.element(kinds & 0x0f, Place::Other, depth)?;
        }
        Ok(())
    }

    /// Within lists and maps a boolean takes a byte.
    fn element(&mut self, kind: u8, place: Place, depth: u32) -> Result<(), &'static str> {
        match kind {
            wire::TRUE | wire::FALSE => self.skip(1),
            _ => self.value(kind, place, depth + 1),
        }
    }
}

/// The groups of the schema that are open: how many children of each are still to come.
#[derive(Default)]
struct Groups {
    open: Vec<i64>,
    seen: bool,
}

impl Groups {
    fn element(&mut self, children: Option<i64>) -> Result<(), &'static str> {
        if self.seen && self.open.is_empty() {
            return Err("its schema has elements that belong to no group");
        }
        self.seen = true;
        if let Some(parent) = self.open.last_mut() {
            *parent -= 1;
        }
        match children {
            Some(count) if count > 0 => self.open.push(count),
            Some(count) if count < 0 => return Err("its schema has a group with an impossible number of children"),
            _ => {}
        }
        // A group that has all its children stays open until the next element; then it must not count as depth.
        while self.open.last() == Some(&0) {
            self.open.pop();
        }
        if self.open.len() > MAX_SCHEMA_DEPTH {
            return Err("its schema is nested too deep");
        }
        Ok(())
    }

    fn end(&self) -> Result<(), &'static str> {
        if self.open.is_empty() { Ok(()) } else { Err("its schema has groups without all their children") }
    }
}
