//! A source of numbered rows in partitions, that can be read again from any row, in pieces and at times that the seed
//! decides.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidegate_columns::Schema;
use tidegate_columns::decode::{JsonDecoder, UnknownFields};
use tidegate_pipeline::source::{BadRow, ColumnsPlan, Read, Reader, Source, SourceBatch, SourceContract, SourceError};
use tidegate_pipeline::spec::ColumnsOptions;
use tidegate_protocol::plugin::{BoxFuture, Encoding};
use tidegate_protocol::positions::Entries;
use tidegate_protocol::record::SourceCut;

use crate::dice::Dice;
use crate::world::{Seq, World};

/// One row: partition and place in it.
pub type RowId = (u32, u32);

/// A byte that no UTF-8 has.
const NO_TEXT: u8 = 0xff;

/// What is unusual about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    Good,
    /// It cannot be read. Every other one is no text.
    Bad,
    /// Sinks that do so refuse it in `write`.
    RefusedInWrite,
    /// The same, and it is no text: no step and no columns can make anything of it.
    RefusedNoText,
    /// Sinks that do so refuse it in `prepare`.
    RefusedInPrepare,
    /// Sinks that do so refuse the batch that it is in.
    SpoilsBatch,
}

/// The rows of a source.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Per partition, what each row is.
    pub marks: Vec<Vec<Mark>>,
    /// So many keys there are.
    pub keys: u32,
}

impl Rows {
    /// The bytes of a row, without its line end.
    pub fn bytes(&self, (p, n): RowId) -> Vec<u8> {
        let x: &[u8] = match self.mark((p, n)) {
            Mark::Good => b"-",
            Mark::Bad => {
                let mut bytes = format!("!p{p}n{n}").into_bytes();
                bytes.extend((p.wrapping_add(n) % 2 == 1).then_some(NO_TEXT));
                return bytes;
            }
            Mark::RefusedInWrite => b"w",
            Mark::RefusedNoText => &[b'w', NO_TEXT],
            Mark::RefusedInPrepare => b"p",
            Mark::SpoilsBatch => b"b",
        };
        let mut bytes = format!(r#"{{"p":{p},"n":{n},"key":"k{}","x":""#, self.key((p, n))).into_bytes();
        bytes.extend_from_slice(x);
        bytes.extend_from_slice(b"\"}");
        bytes
    }

    /// The same as text; what is none is shown as such.
    pub fn text(&self, id: RowId) -> String {
        String::from_utf8_lossy(&self.bytes(id)).into_owned()
    }

    /// Its key.
    pub fn key(&self, (p, n): RowId) -> u32 {
        (p.wrapping_mul(7) + n.wrapping_mul(5)) % self.keys.max(1)
    }

    /// What is unusual about it.
    pub fn mark(&self, (p, n): RowId) -> Mark {
        self.marks.get(p as usize).and_then(|marks| marks.get(n as usize)).copied().unwrap_or(Mark::Good)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = RowId> {
        (0u32..).zip(&self.marks).flat_map(|(p, marks)| (0..marks.len() as u32).map(move |n| (p, n)))
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.marks.iter().map(Vec::len).sum()
    }
}

/// The row that a text stands for, as sinks and letters show it.
pub fn row_id(text: &[u8]) -> Option<RowId> {
    let number = |label: &[u8]| {
        let at = text.windows(label.len()).position(|bytes| bytes == label)? + label.len();
        let digits: Vec<u8> = text[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
        std::str::from_utf8(&digits).ok()?.parse().ok()
    };
    if text.starts_with(b"!p") {
        return Some((number(b"!p")?, number(b"n")?));
    }
    Some((number(b"\"p\":")?, number(b"\"n\":")?))
}

/// Two names take turns.
fn file_name(p: u32, file: u32) -> String {
    format!("p{p}-{}", file % 2)
}

/// The source. Clones read the same rows, and publish to the same place.
#[derive(Clone)]
pub struct SimSource {
    world: World,
    rows: Arc<Rows>,
    pace: Pace,
    dice: Dice,
    columns: bool,
    /// Partitions from this one on are those of a second source.
    second_from: Option<u32>,
    /// The second source is not in the pipeline.
    second_away: bool,
    /// What it reads.
    partitions: Range<u32>,
    /// It tells how far time has come. A row's time is its place in its partition.
    timed: bool,
    /// A partition is read in files of so many rows, one after the other. One that is read is forgotten, and its name
    /// comes again.
    file: Option<u32>,
    /// A position has so many digits at least.
    digits: usize,
    published: Arc<Mutex<Vec<(Seq, SourceCut)>>>,
    faults: Arc<Mutex<Vec<u64>>>,
    reads: Arc<Mutex<u64>>,
}

/// How fast it gives rows.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Rows at once, at most.
    pub batch: u32,
    /// Longest wait before them, in milliseconds.
    pub pause_ms: u64,
}

impl SimSource {
    /// A source of these rows.
    pub fn new(world: &World, rows: Rows, pace: Pace, dice: &Dice) -> Self {
        let partitions = 0..rows.marks.len() as u32;
        Self {
            world: world.clone(),
            rows: Arc::new(rows),
            pace,
            dice: dice.fork("source"),
            columns: false,
            second_from: None,
            second_away: false,
            partitions,
            timed: false,
            file: None,
            digits: 1,
            published: Arc::default(),
            faults: Arc::default(),
            reads: Arc::default(),
        }
    }

    /// The same source in another world, with all that it was told so far.
    #[must_use]
    pub fn fork(&self, world: &World) -> Self {
        let copy = |numbers: &Mutex<Vec<u64>>| numbers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            world: world.clone(),
            published: Arc::new(Mutex::new(self.published())),
            faults: Arc::new(Mutex::new(copy(&self.faults))),
            reads: Arc::new(Mutex::new(*self.reads.lock().unwrap_or_else(PoisonError::into_inner))),
            ..self.clone()
        }
    }

    /// The same rows for one host: what it is told to publish is kept apart.
    #[must_use]
    pub fn for_one_host(&self) -> Self {
        Self { published: Arc::default(), ..self.clone() }
    }

    /// The columns of its rows; written as JSON again, rows are the same bytes.
    pub fn columns() -> Option<ColumnsOptions> {
        let declared = Schema::parse_ddl("p BIGINT, n BIGINT, key TEXT, x TEXT").ok()?;
        Some(ColumnsOptions { declared: Some(declared), unknown: UnknownFields::BadRow })
    }

    /// With positions so long that a few of them are put aside from the record, as very many would be.
    #[must_use]
    pub fn with_long_positions(self, digits: usize) -> Self {
        Self { digits, ..self }
    }

    /// As two sources of one pipeline: partitions from this one on are the second's.
    #[must_use]
    pub fn with_second_from(self, partition: Option<u32>) -> Self {
        Self { second_from: partition, ..self }
    }

    /// Its second source is left out of the pipeline.
    #[must_use]
    pub fn without_second(self) -> Self {
        Self { second_away: true, ..self }
    }

    /// The sources that the pipeline has, by name.
    pub fn parts(&self) -> Vec<(&'static str, SimSource)> {
        let of = |partitions: Range<u32>| SimSource { partitions, ..self.clone() };
        let Some(from) = self.second_from else { return vec![("rows", self.clone())] };
        let mut parts = vec![("rows", of(self.partitions.start..from))];
        if !self.second_away {
            parts.push(("more-rows", of(from..self.partitions.end)));
        }
        parts
    }

    /// With watermarks: no row comes any more whose place in its partition is before them.
    #[must_use]
    pub fn with_time(self) -> Self {
        Self { timed: true, ..self }
    }

    /// In files of so many rows each, of which one after the other has the same name.
    #[must_use]
    pub fn in_files(self, rows: u32) -> Self {
        Self { file: Some(rows.max(1)), ..self }
    }

    fn position(&self, place: u32) -> String {
        format!("{place:0digits$}", digits = self.digits)
    }

    /// What is said of a partition that stands at `place`. A position that is empty is forgotten.
    fn positions(&self, p: u32, place: u32) -> Vec<(String, String)> {
        let Some(rows) = self.file else { return vec![(format!("p{p}"), self.position(place))] };
        let (file, within) = (place / rows, place % rows);
        let mut positions = vec![(format!("p{p}"), file.to_string())];
        match within {
            0 if file > 0 => positions.push((file_name(p, file - 1), String::new())),
            0 => {}
            _ => positions.push((file_name(p, file), self.position(within))),
        }
        positions
    }

    /// Where a checkpoint says that a partition stands.
    fn place(&self, p: u32, entries: Entries<'_>) -> Result<u32, std::num::ParseIntError> {
        let number = |partition: &str| entries.get(partition).map_or(Ok(0), |text| text.parse::<u32>());
        let first = number(&format!("p{p}"))?;
        match self.file {
            Some(rows) => Ok(first.saturating_mul(rows).saturating_add(number(&file_name(p, first))?)),
            None => Ok(first),
        }
    }

    /// Its rows.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Everything that was published as progress.
    pub fn published(&self) -> Vec<(Seq, SourceCut)> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The read after `skip` further ones of any task fails, and works when tried again.
    pub fn fail_read_after(&self, skip: u64) {
        let at = *self.reads.lock().unwrap_or_else(PoisonError::into_inner) + skip;
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).push(at);
    }

    fn fails_now(&self) -> bool {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let now = *reads;
        *reads += 1;
        drop(reads);
        if self.world.is_calm() {
            return false;
        }
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let planned = faults.len();
        faults.retain(|at| *at != now);
        planned != faults.len()
    }
}

impl Source for SimSource {
    fn contract(&self) -> SourceContract {
        SourceContract {
            replayable: true,
            bounded: true,
            encodings: vec![Encoding::JsonLines, Encoding::Raw],
            describe: "simulated rows".into(),
        }
    }

    fn open(
        &self,
        _encoding: Encoding,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        let changed = |why: String| SourceError::Configuration { key: "positions", expected: why };
        let mut places = BTreeMap::new();
        for p in self.partitions.clone() {
            let place = match restored {
                Some(cut) => {
                    let entries = cut.partitions.entries().map_err(|error| changed(error.to_string()))?;
                    self.place(p, entries).map_err(|error| changed(error.to_string()))?
                }
                None => 0,
            };
            places.insert(p, place);
        }
        Ok((0..tasks)
            .map(|task| {
                let next = places.iter().filter(|(p, _)| *p % tasks == task).map(|(p, n)| (*p, *n)).collect();
                // The same pieces at the same places, however often they are read.
                let reader = SimReader { source: self.clone(), next, turn: 0, told_end: false };
                Box::new(reader) as Box<dyn Reader>
            })
            .collect())
    }

    fn has_columns(&self) -> bool {
        true
    }

    fn open_columns(
        &self,
        _plan: &ColumnsPlan,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        Self { columns: true, ..self.clone() }.open(Encoding::JsonLines, restored, tasks)
    }

    fn committed(&self, cut: &SourceCut) {
        let seq = self.world.note(|| "source: progress is published".to_owned());
        self.published.lock().unwrap_or_else(PoisonError::into_inner).push((seq, cut.clone()));
    }
}

struct SimReader {
    source: SimSource,
    next: BTreeMap<u32, u32>,
    turn: usize,
    /// Everybody knows that no row comes any more.
    told_end: bool,
}

impl SimReader {
    /// No row comes any more that is earlier.
    fn watermark(&mut self) -> Option<i64> {
        if !self.source.timed {
            return None;
        }
        let rows = &self.source.rows;
        let left = self.next.iter().filter(|(p, n)| (**n as usize) < rows.marks[**p as usize].len());
        let earliest = left.map(|(_, n)| i64::from(*n)).min();
        self.told_end = earliest.is_none();
        earliest.or(Some(i64::MAX))
    }

    /// The partition whose turn it is, if any has rows left.
    fn turn(&mut self) -> Option<(u32, u32)> {
        let rows = Arc::clone(&self.source.rows);
        let left: Vec<(u32, u32)> = self
            .next
            .iter()
            .map(|(p, n)| (*p, *n))
            .filter(|(p, n)| (*n as usize) < rows.marks[*p as usize].len())
            .collect();
        self.turn += 1;
        left.get(self.turn % left.len().max(1)).copied()
    }
}

impl Reader for SimReader {
    fn next<'a>(&'a mut self, _bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move {
            let mut dice = self.source.dice.fork(&format!("{:?}", self.next));
            if self.source.pace.pause_ms > 0 {
                tokio::time::sleep(Duration::from_millis(dice.between(1, self.source.pace.pause_ms))).await;
            }
            let Some((p, from)) = self.turn() else {
                // Who begins behind the last row says so as well: what waits for its time waits for every task.
                let unheard = !self.told_end;
                let watermark = self.watermark().filter(|_| unheard);
                return Ok(watermark.map_or(Read::End, |end| {
                    Read::Rows(SourceBatch { watermark: Some(end), ..SourceBatch::default() })
                }));
            };
            if self.source.fails_now() {
                self.source.world.fired("source-error");
                return Err(SourceError::Io {
                    path: format!("p{p}").into(),
                    error: std::io::Error::other("simulated"),
                });
            }
            let rows = &self.source.rows;
            let count = dice.between(1, u64::from(self.source.pace.batch)) as u32;
            let whole = self.source.file.map_or(u32::MAX, |rows| (from / rows + 1).saturating_mul(rows));
            let to = (from + count).min(rows.marks[p as usize].len() as u32).min(whole);
            self.next.insert(p, to);
            let mut bytes = Vec::new();
            let mut good = 0;
            let mut bad = Vec::new();
            for n in from..to {
                let row = rows.bytes((p, n));
                if rows.mark((p, n)) == Mark::Bad {
                    bad.push(BadRow {
                        partition: format!("p{p}"),
                        line: u64::from(n) + 1,
                        reason: "marked bad".into(),
                        raw_len: row.len() as u64,
                        raw: Bytes::from(row),
                    });
                } else {
                    bytes.extend_from_slice(&row);
                    bytes.push(b'\n');
                    good += 1;
                }
            }
            let columns =
                match self.source.columns.then(SimSource::columns).flatten().and_then(|options| options.declared) {
                    Some(schema) => {
                        let refused = |error: tidegate_columns::ColumnsError| SourceError::Configuration {
                            key: "schema",
                            expected: error.message,
                        };
                        let mut decoder = JsonDecoder::new(&schema, UnknownFields::BadRow).map_err(refused)?;
                        let decoded = decoder.decode(&std::mem::take(&mut bytes)).map_err(refused)?;
                        Some(decoded.batch)
                    }
                    None => None,
                };
            Ok(Read::Rows(SourceBatch {
                bytes: Bytes::from(bytes),
                columns,
                rows: good,
                bad,
                positions: self.source.positions(p, to),
                watermark: self.watermark(),
            }))
        })
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        let all = self.next.iter().flat_map(|(p, n)| self.source.positions(*p, *n));
        all.filter(|(_, position)| !position.is_empty()).collect()
    }
}
