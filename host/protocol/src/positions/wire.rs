//! Positions in a record: without layers a map from partition to position. With layers a list of two: that map of what
//! moved lately, and a list of layers, oldest first, each a byte string of 40 bytes per page: SHA-256 and length (8
//! bytes, little-endian).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeTuple as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Positions;
use super::layers::Layer;
use super::page::Page;
use crate::record::StateChunk;

const DIGEST: usize = 32;
const NAME: usize = DIGEST + 8;

impl Serialize for Positions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.layers.is_empty() {
            return self.recent.serialize(serializer);
        }
        let layers: Vec<Bytes> = self
            .layers
            .iter()
            .map(names)
            .collect::<Option<_>>()
            .ok_or_else(|| serde::ser::Error::custom("a page whose name is not a SHA-256"))?;
        let mut both = serializer.serialize_tuple(2)?;
        both.serialize_element(&*self.recent)?;
        both.serialize_element(&layers)?;
        both.end()
    }
}

fn names(layer: &Layer) -> Option<Bytes> {
    let mut bytes = Vec::new();
    for page in layer.pages() {
        bytes.extend_from_slice(&data_encoding::HEXLOWER.decode(page.name().sha256.as_bytes()).ok()?);
        bytes.extend_from_slice(&page.name().bytes.to_le_bytes());
    }
    Some(bytes.into())
}

impl<'de> Deserialize<'de> for Positions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Positions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of positions, or such a map and layers of pages")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Positions, A::Error> {
        let mut recent = BTreeMap::new();
        while let Some((partition, position)) = map.next_entry()? {
            recent.insert(partition, position);
        }
        Ok(Positions { recent: Arc::new(recent), layers: Vec::new() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut both: A) -> Result<Positions, A::Error> {
        let recent = both.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
        let layers: Vec<Bytes> = both.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
        if both.next_element::<serde::de::IgnoredAny>()?.is_some() {
            return Err(A::Error::invalid_length(3, &self));
        }
        let layers = layers.iter().map(|names| layer(names)).collect::<Option<Vec<_>>>();
        let layers = layers.filter(|layers| !layers.is_empty()).ok_or_else(|| {
            A::Error::custom("layers of positions name their pages in 40 bytes each, and there is at least one")
        })?;
        Ok(Positions { recent: Arc::new(recent), layers })
    }
}

fn layer(names: &[u8]) -> Option<Layer> {
    let (names, rest) = names.as_chunks::<NAME>();
    if names.is_empty() || !rest.is_empty() {
        return None;
    }
    let page = |name: &[u8; NAME]| {
        let mut bytes = [0; NAME - DIGEST];
        bytes.copy_from_slice(&name[DIGEST..]);
        let sha256 = data_encoding::HEXLOWER.encode(&name[..DIGEST]);
        Arc::new(Page::named(StateChunk { sha256, bytes: u64::from_le_bytes(bytes) }))
    };
    Some(Layer::new(names.iter().map(page).collect()))
}
