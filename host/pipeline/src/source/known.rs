//! What the tasks of a source know of its columns together.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use tidegate_columns::Schema;
use tidegate_columns::schema::KeptColumns;
use tidegate_protocol::event::ToldSchema;

/// Shared by the tasks of a source, so that whoever is cut last tells what all of them have seen.
#[derive(Debug, Clone)]
pub(crate) struct KnownColumns {
    schema: Schema,
    inferred: bool,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug)]
struct Known {
    kept: KeptColumns,
    told: ToldSchema,
}

impl KnownColumns {
    pub(crate) fn new(kept: KeptColumns, inferred: bool) -> Self {
        let told = ToldSchema { revision: 0, text: kept.to_text() };
        Self { schema: kept.schema().clone(), inferred, known: Arc::new(Mutex::new(Known { kept, told })) }
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Notes the columns that have values in rows which are about to be handed on.
    pub(crate) fn see(&self, rows: &RecordBatch) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.kept.all_set() && known.kept.see(rows) {
            known.told = ToldSchema { revision: known.told.revision + 1, text: known.kept.to_text() };
        }
    }

    /// For the checkpoint.
    pub(crate) fn told(&self) -> ToldSchema {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).told.clone()
    }

    /// Words for a row that does not fit: it may be the columns that are wrong.
    pub(crate) fn doubt(&self) -> String {
        if !self.inferred {
            return String::new();
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unset = known.kept.unset_texts();
        let more = if unset.len() > MOST_NAMED { ", …" } else { "" };
        unset.truncate(MOST_NAMED);
        let only_null = if unset.is_empty() {
            String::new()
        } else {
            format!(" ({}{more} had only NULL so far, were taken for TEXT, and may get any type)", unset.join(", "))
        };
        format!(
            "; the columns were inferred: where they are wrong, declare `schema`, beginning with the columns that \
             `tidegate checkpoint show` tells{only_null}"
        )
    }
}

/// Columns that a message names, at most.
const MOST_NAMED: usize = 10;
