//! The columns of CSV records that are handed on without a header: all records of a source have to have the same ones, in
//! this run and in those after it.

use std::sync::{Arc, OnceLock};

use tidegate_columns::schema::Kept;
use tidegate_protocol::plugin::BoxFuture;
use tidegate_protocol::record::SourceCut;

use super::csv::CsvOptions;
use super::{Read, Reader, SourceError};

/// Longest names that a checkpoint keeps, in bytes: they stand in every seal.
const LONGEST: usize = 256 << 10;

/// The names that count: those of the checkpoint, else those of the first file that is read.
#[derive(Debug, Default)]
pub(super) struct Header {
    names: OnceLock<Vec<String>>,
    /// They are those of the checkpoint.
    kept: bool,
}

impl Header {
    /// Those that a source goes on with.
    ///
    /// # Errors
    /// The checkpoint's cannot be read, or the configured ones of files without a header are others.
    pub(super) fn restored(options: &CsvOptions, restored: Option<&SourceCut>) -> Result<Arc<Self>, SourceError> {
        let kept = restored.and_then(|cut| cut.schema.as_deref()).map(Kept::from_text).transpose();
        let refused = |key, expected| SourceError::Configuration { key, expected };
        let kept =
            kept.map_err(|error| refused("csv", format!("the columns in the checkpoint cannot be read: {error}")))?;
        let header = match kept {
            Some(Kept::Names(names)) => Self { names: OnceLock::from(names), kept: true },
            // Rows of before had types: they were brought into the order of a schema.
            Some(Kept::Columns(_)) | None => Self::default(),
        };
        if !options.header {
            header.check(&options.columns).map_err(|expected| refused("csv.columns", expected))?;
        }
        Ok(Arc::new(header))
    }

    /// Takes these names for those that count, if there are none yet.
    ///
    /// # Errors
    /// There are, and they are others.
    pub(super) fn check(&self, names: &[String]) -> Result<(), String> {
        let first = self.names.get_or_init(|| names.to_vec());
        if first == names {
            return Ok(());
        }
        let whose = if self.kept { "the rows handed on before" } else { "another file" };
        Err(format!(
            "the columns are {}, and those of {whose} are {}: rows would be handed on without their names, in different \
             orders. Declare `schema`, which brings them into one, or read the files with sources and sinks of their own",
            names.join(", "),
            first.join(", ")
        ))
    }

    fn names(&self) -> Option<&[String]> {
        let names = self.names.get()?;
        (names.iter().map(String::len).sum::<usize>() <= LONGEST).then_some(names)
    }

    /// Readers that tell these names.
    pub(super) fn told_by(self: &Arc<Self>, readers: Vec<Box<dyn Reader>>) -> Vec<Box<dyn Reader>> {
        let told = |reader| Box::new(Told { reader, header: Arc::clone(self) }) as Box<dyn Reader>;
        readers.into_iter().map(told).collect()
    }
}

/// A reader of records.
struct Told {
    reader: Box<dyn Reader>,
    header: Arc<Header>,
}

impl Reader for Told {
    fn next<'a>(&'a mut self, max_bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        self.reader.next(max_bytes)
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        self.reader.initial_positions()
    }

    fn header(&self) -> Option<&[String]> {
        self.header.names()
    }
}
