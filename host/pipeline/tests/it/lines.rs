//! A source of given lines, in partitions, that can be read again from any row.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_columns::Schema;
use tidegate_columns::decode::{JsonDecoder, UnknownFields};
use tidegate_pipeline::source::{BadRow, ColumnsPlan, Read, Reader, Source, SourceBatch, SourceContract, SourceError};
use tidegate_pipeline::spec::ColumnsOptions;
use tidegate_protocol::plugin::{BoxFuture, Encoding};
use tidegate_protocol::record::SourceCut;

/// Lines per partition. `pause` is waited after every `batch` rows. Lines that start with `!` are bad rows.
#[derive(Clone)]
pub(crate) struct Lines {
    /// The lines of each partition.
    pub(crate) partitions: Arc<Vec<Vec<String>>>,
    /// Rows at once.
    pub(crate) batch: usize,
    /// Waited before them.
    pub(crate) pause: Duration,
    /// It has no end.
    pub(crate) endless: bool,
    /// Rows are handed out as these columns.
    pub(crate) schema: Option<Schema>,
}

impl Lines {
    /// So many rows in each of so many partitions.
    pub(crate) fn new(partitions: usize, rows: usize) -> Self {
        let partition = |p: usize| (0..rows).map(|n| format!(r#"{{"p":{p},"n":{n},"key":"k{}"}}"#, n % 7)).collect();
        Self {
            partitions: Arc::new((0..partitions).map(partition).collect()),
            batch: 10,
            pause: Duration::from_millis(10),
            endless: false,
            schema: None,
        }
    }

    /// These lines, in one partition.
    pub(crate) fn of(lines: &[&str]) -> Self {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        Self { partitions: Arc::new(vec![lines]), ..Self::new(0, 0) }
    }

    /// The columns of [`Lines::new`]; written as JSON again, rows are the same bytes.
    pub(crate) fn columns() -> ColumnsOptions {
        let schema = Schema::parse_ddl("p BIGINT, n BIGINT, key TEXT").expect("a column list");
        ColumnsOptions { declared: Some(schema), unknown: UnknownFields::BadRow }
    }

    /// All good lines, sorted.
    pub(crate) fn expected(&self) -> Vec<String> {
        let mut rows: Vec<_> = self.partitions.iter().flatten().filter(|row| !row.starts_with('!')).cloned().collect();
        rows.sort();
        rows
    }
}

impl Source for Lines {
    fn contract(&self) -> SourceContract {
        SourceContract {
            replayable: true,
            bounded: !self.endless,
            encodings: vec![Encoding::JsonLines, Encoding::Raw],
            describe: "given lines".into(),
        }
    }

    fn open(
        &self,
        _encoding: Encoding,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let position = |p: usize| {
            restored
                .and_then(|cut| cut.partitions.entries().expect("all pages are there").get(&format!("p{p}")))
                .map_or(0, |text| text.parse().expect("our own position"))
        };
        Ok((0..tasks as usize)
            .map(|task| {
                let mine = (0..self.partitions.len()).filter(|p| p % tasks as usize == task);
                let next = mine.map(|p| (p, position(p))).collect();
                Box::new(LinesReader { lines: self.clone(), next }) as Box<dyn Reader>
            })
            .collect())
    }

    fn has_columns(&self) -> bool {
        true
    }

    fn open_columns(
        &self,
        plan: &ColumnsPlan,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        Self { schema: Some(plan.schema.clone()), ..self.clone() }.open(Encoding::JsonLines, restored, tasks)
    }
}

struct LinesReader {
    lines: Lines,
    next: BTreeMap<usize, usize>,
}

impl Reader for LinesReader {
    fn next<'a>(&'a mut self, _bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move {
            tokio::time::sleep(self.lines.pause).await;
            let partitions = Arc::clone(&self.lines.partitions);
            let Some((p, from)) = self.next.iter().map(|(p, n)| (*p, *n)).find(|(p, n)| *n < partitions[*p].len())
            else {
                return Ok(if self.lines.endless { Read::Idle } else { Read::End });
            };
            let to = (from + self.lines.batch).min(partitions[p].len());
            self.next.insert(p, to);
            let mut bytes = String::new();
            let mut rows = 0;
            let mut bad = Vec::new();
            for (number, line) in partitions[p][from..to].iter().enumerate() {
                if line.starts_with('!') {
                    bad.push(BadRow {
                        partition: format!("p{p}"),
                        line: (from + number + 1) as u64,
                        reason: "marked bad".into(),
                        raw: Bytes::from(line.clone()),
                        raw_len: line.len() as u64,
                    });
                } else {
                    bytes.push_str(line);
                    bytes.push('\n');
                    rows += 1;
                }
            }
            let columns = self.lines.schema.as_ref().map(|schema| {
                let mut decoder = JsonDecoder::new(schema, UnknownFields::BadRow).expect("a schema for JSON");
                decoder.decode(std::mem::take(&mut bytes).as_bytes()).expect("rows of these columns").batch
            });
            Ok(Read::Rows(SourceBatch {
                bytes: Bytes::from(bytes),
                columns,
                rows,
                bad,
                positions: vec![(format!("p{p}"), to.to_string())],
                watermark: Some(to as i64),
            }))
        })
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        self.next.iter().map(|(p, n)| (format!("p{p}"), n.to_string())).collect()
    }
}
