//! A look at the first rows, to find out their columns.

use std::path::PathBuf;
use std::sync::Arc;

use tidegate_columns::{ColumnsError, Schema};
use tidegate_protocol::plugin::Encoding;

use super::partition::{Partition, Settings, explain, identify};
use crate::source::input::Input;
use crate::source::rows::{Format, Rows, RowsError};
use crate::source::window::Window;
use crate::source::{HandOut, SourceError, csv};

/// Files that are looked at.
const FILES: usize = 16;
/// Bytes that are looked at in each.
const BYTES: usize = 256 << 10;

/// The columns that the rows of these files seem to have. Files are looked at in the order given until enough of them
/// have rows.
///
/// # Errors
/// No file has rows, or the rows differ.
pub(super) fn schema(
    files: impl IntoIterator<Item = (String, PathBuf)>,
    settings: &Settings,
) -> Result<Schema, SourceError> {
    let mut sample = Sample::default();
    let mut names = Vec::new();
    for (name, path) in files {
        if names.len() == FILES {
            break;
        }
        if std::fs::metadata(&path).is_ok_and(|data| data.len() == 0) {
            continue;
        }
        if sample.look(&name, path, settings)? {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(undeclared("no schema can be inferred, because no file has rows yet; declare `schema`".to_owned()));
    }
    sample.infer(&settings.format).map_err(|error| undeclared(format!("{error} (looked at {})", names.join(", "))))
}

fn undeclared(expected: String) -> SourceError {
    SourceError::Configuration { key: "schema", expected }
}

#[derive(Default)]
struct Sample {
    lines: Vec<u8>,
    /// All columns of CSV files, in order of appearance.
    columns: Vec<String>,
    records: Vec<Vec<Vec<u8>>>,
}

impl Sample {
    /// Whether there were rows.
    fn look(&mut self, name: &str, path: PathBuf, settings: &Settings) -> Result<bool, SourceError> {
        let partition = Partition::find(name, path, None, settings.compression)?;
        let (file, _, compression) = identify(name, &partition.path, settings.compression)?;
        let failed = |error: RowsError| explain(&partition, compression, 0, error);
        let input = Input::new(file, compression).map_err(|error| partition.io(error))?;
        let window = Window::new(input);
        match &settings.format {
            Format::Csv(options) => self.look_at_records(window, options, settings.longest).map_err(failed),
            format => self.look_at_lines(window, name, format, settings.longest).map_err(failed),
        }
    }

    fn look_at_lines(
        &mut self,
        window: Window,
        name: &str,
        format: &Format,
        longest: usize,
    ) -> Result<bool, RowsError> {
        let as_they_are = HandOut::Encoded(Encoding::JsonLines);
        let mut rows = Rows::new(window, Arc::from(name), format, &as_they_are, longest, None)?;
        let before = self.lines.len();
        while rows.window().offset() < BYTES as u64
            && let Some(taken) = rows.next(BYTES, u64::MAX)?
        {
            self.lines.extend_from_slice(&taken.bytes);
        }
        Ok(self.lines.len() > before)
    }

    fn look_at_records(
        &mut self,
        mut window: Window,
        options: &csv::CsvOptions,
        longest: usize,
    ) -> Result<bool, RowsError> {
        let mut records = csv::Records::new(options);
        let mut places: Option<Vec<usize>> = (!options.header).then(|| self.places(&options.columns));
        let (mut bytes, before) = (0, self.records.len());
        while bytes < BYTES {
            let (csv::Found::Record(length), count) = records.next(&mut window, longest, true)? else { break };
            let fields = records.fields(count);
            match &places {
                None => {
                    let names = csv::header(fields).map_err(|what| RowsError::Malformed(1, what))?;
                    places = Some(self.places(&names));
                }
                // Others are bad rows.
                Some(places) if places.len() == count => {
                    let mut record = vec![Vec::new(); self.columns.len()];
                    for (place, field) in places.iter().zip(fields) {
                        record[*place] = field.to_vec();
                    }
                    self.records.push(record);
                }
                Some(_) => {}
            }
            window.take(length);
            bytes += length;
        }
        Ok(self.records.len() > before)
    }

    /// Where columns of these names stand.
    fn places(&mut self, names: &[String]) -> Vec<usize> {
        let place = |name: &String| {
            self.columns.iter().position(|column| column == name).unwrap_or_else(|| {
                self.columns.push(name.clone());
                self.columns.len() - 1
            })
        };
        names.iter().map(place).collect()
    }

    fn infer(&self, format: &Format) -> Result<Schema, ColumnsError> {
        match format {
            Format::Csv(_) => Schema::infer_csv(&self.columns, self.records.iter().map(Vec::as_slice)),
            _ => Schema::infer_json(&self.lines),
        }
    }
}
