//! From a field's name to its place.

use std::collections::HashMap;

use arrow_schema::Fields;

use crate::{ColumnsError, Result};

/// The names of an object's fields. Objects mostly have their fields in one order, so the next one is tried first.
#[derive(Debug)]
pub(super) struct Names {
    /// `"name":`, as most writers write it.
    patterns: Vec<Vec<u8>>,
    places: HashMap<String, usize>,
}

impl Names {
    /// # Errors
    /// Two fields have one name.
    pub(super) fn new(fields: &Fields) -> Result<Self> {
        let mut places = HashMap::with_capacity(fields.len());
        let mut patterns = Vec::with_capacity(fields.len());
        for (place, field) in fields.iter().enumerate() {
            let name = field.name();
            if places.insert(name.clone(), place).is_some() {
                return Err(ColumnsError::bad_schema(format!(
                    "column `{name}` is there twice; every column needs a name of its own"
                )));
            }
            let mut pattern = serde_json::to_vec(name).map_err(|error| ColumnsError::internal(error.to_string()))?;
            pattern.push(b':');
            patterns.push(pattern);
        }
        Ok(Self { patterns, places })
    }

    /// The length of the field's name in quotes with its colon, if `bytes` begins with it.
    #[inline]
    pub(super) fn starts(&self, place: usize, bytes: &[u8]) -> Option<usize> {
        let pattern = self.patterns.get(place)?;
        bytes.starts_with(pattern).then_some(pattern.len())
    }

    /// The place of a name.
    pub(super) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }
}
