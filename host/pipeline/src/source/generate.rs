//! Rows made from a seed: replayable, the same on every machine and in every version.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_protocol::plugin::{BoxFuture, Encoding};
use tidegate_protocol::record::SourceCut;

use super::rate::RateLimiter;
use super::{Read, Reader, Source, SourceBatch, SourceContract, SourceError};

/// Rows between two checks whether somebody else wants the thread.
const MOST_ROWS: u64 = 65_536;
/// Largest row that can be asked for, in bytes.
const MOST_ROW_BYTES: u32 = 1 << 20;

/// What to generate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerateOptions {
    /// All rows follow from it.
    pub seed: u64,
    /// Rows over all partitions; `None`: endless.
    pub rows: Option<u64>,
    /// How many partitions; at least 1.
    pub partitions: u32,
    /// Smallest and largest row in bytes, newline included. A row that needs more for its fields is longer.
    pub row_bytes: (u32, u32),
    /// How many different keys; at least 1.
    pub keys: u64,
    /// Rows per second over all partitions.
    pub rate: Option<u64>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self { seed: 0, rows: None, partitions: 1, row_bytes: (120, 200), keys: 1000, rate: None }
    }
}

/// JSON lines `{"partition":0,"n":0,"key":"k17","value":123,"fill":"…"}`. Row n of partition p is a function of seed, p,
/// n, number of keys and row size, and of nothing else.
#[derive(Debug, Clone)]
pub struct GenerateSource {
    options: GenerateOptions,
}

/// The position of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Position {
    /// The next row.
    next: u64,
    /// What the rows are a function of; a position fits no other rows.
    seed: u64,
    partitions: u32,
    row_bytes: (u32, u32),
    keys: u64,
}

impl GenerateSource {
    /// Checks the options.
    ///
    /// # Errors
    /// A number is out of range; the message names the key.
    pub fn new(options: GenerateOptions) -> Result<Self, SourceError> {
        let wrong = |key, expected: &str| Err(SourceError::Configuration { key, expected: expected.to_owned() });
        if options.partitions == 0 || options.partitions > 4096 {
            return wrong("partitions", "must be from 1 to 4096");
        }
        if options.keys == 0 {
            return wrong("keys", "must be at least 1");
        }
        let (least, most) = options.row_bytes;
        if least > most || most > MOST_ROW_BYTES {
            return wrong("row-bytes", "must be two numbers, the smaller first, of at most 1 MiB");
        }
        if options.rate == Some(0) {
            return wrong("rate", "must be at least 1 row per second; leave it out for no limit");
        }
        Ok(Self { options })
    }

    /// Row `n` of partition `partition`, without its newline.
    pub fn row(&self, partition: u32, n: u64) -> Vec<u8> {
        let mut row = Vec::new();
        append_row(&mut row, &self.options, partition, n);
        row.pop();
        row
    }

    /// How many rows `partition` has; `None`: endless. The first partitions take what does not divide.
    fn share(&self, partition: u32) -> Option<u64> {
        let partitions = u64::from(self.options.partitions);
        self.options.rows.map(|rows| rows / partitions + u64::from(u64::from(partition) < rows % partitions))
    }

    fn position(&self, next: u64) -> String {
        let GenerateOptions { seed, partitions, row_bytes, keys, .. } = self.options;
        let position = Position { next, seed, partitions, row_bytes, keys };
        serde_json::to_string(&position).expect("a struct of numbers is always JSON")
    }

    fn restored_row(&self, partition: &str, text: &str) -> Result<u64, SourceError> {
        let wrong = |problem: String| SourceError::Position { partition: partition.to_owned(), problem };
        let position: Position = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let GenerateOptions { seed, partitions, row_bytes, keys, .. } = self.options;
        if position != (Position { next: position.next, seed, partitions, row_bytes, keys }) {
            return Err(wrong(format!(
                "it counts rows made with seed {}, {} partitions, row-bytes {:?} and {} keys; put these back, or start \
                 with a new state directory",
                position.seed, position.partitions, position.row_bytes, position.keys
            )));
        }
        Ok(position.next)
    }
}

fn partition_name(partition: u32) -> String {
    format!("generate-{partition:04}")
}

impl Source for GenerateSource {
    fn contract(&self) -> SourceContract {
        let GenerateOptions { seed, rows, partitions, .. } = self.options;
        let rows = rows.map_or("endless".to_owned(), |rows| format!("{rows}"));
        SourceContract {
            replayable: true,
            bounded: self.options.rows.is_some(),
            encodings: vec![Encoding::JsonLines, Encoding::Raw],
            describe: format!("generate: {rows} rows from seed {seed} in {partitions} partitions"),
        }
    }

    fn open(
        &self,
        encoding: Encoding,
        restored: Option<&SourceCut>,
        tasks: u32,
    ) -> Result<Vec<Box<dyn Reader>>, SourceError> {
        super::check_encoding(&self.contract(), encoding)?;
        let mut shares: Vec<Vec<Partition>> = (0..tasks.max(1)).map(|_| Vec::new()).collect();
        let restored = restored.map(|cut| cut.partitions.entries()).transpose()?;
        for partition in 0..self.options.partitions {
            let name = partition_name(partition);
            let next = match restored.and_then(|partitions| partitions.get(&name)) {
                Some(text) => self.restored_row(&name, text)?,
                None => 0,
            };
            let task = partition as usize % shares.len();
            shares[task].push(Partition { number: partition, name, next, end: self.share(partition) });
        }
        if let Some(unknown) = restored.and_then(|known| {
            known.iter().map(|(name, _)| name).find(|name| !shares.iter().flatten().any(|p| p.name == *name))
        }) {
            let problem = "there is no such partition; put `partitions` back".to_owned();
            return Err(SourceError::Position { partition: unknown.to_owned(), problem });
        }
        let limiter = self.options.rate.map(|rate| Arc::new(RateLimiter::new(rate)));
        Ok(shares
            .into_iter()
            .map(|partitions| {
                let reader = GenerateReader { source: self.clone(), partitions, turn: 0, limiter: limiter.clone() };
                Box::new(reader) as Box<dyn Reader>
            })
            .collect())
    }
}

struct Partition {
    number: u32,
    name: String,
    next: u64,
    end: Option<u64>,
}

impl Partition {
    fn left(&self) -> u64 {
        self.end.map_or(u64::MAX, |end| end.saturating_sub(self.next))
    }
}

struct GenerateReader {
    source: GenerateSource,
    partitions: Vec<Partition>,
    /// The partition that is next; they take turns, batch by batch.
    turn: usize,
    limiter: Option<Arc<RateLimiter>>,
}

impl GenerateReader {
    async fn next_batch(&mut self, max_bytes: usize) -> Read {
        let count = self.partitions.len();
        let Some(index) = (0..count).map(|i| (self.turn + i) % count).find(|&i| self.partitions[i].left() > 0) else {
            return Read::End;
        };
        let most = self.partitions[index].left().min(MOST_ROWS);
        let allowed = match &self.limiter {
            None => most,
            Some(limiter) => limiter.take(most).await,
        };
        if allowed == 0 {
            return Read::Idle;
        }
        self.turn = (index + 1) % count;
        let partition = &mut self.partitions[index];
        let (bytes, rows) = fill(&self.source.options, partition, allowed, max_bytes);
        if let Some(limiter) = &self.limiter {
            limiter.give_back(allowed - rows);
        }
        let positions = vec![(partition.name.clone(), self.source.position(partition.next))];
        // Generating is pure computation: let other tasks of this thread have their turn.
        tokio::task::yield_now().await;
        Read::Rows(SourceBatch { bytes, rows, positions, ..SourceBatch::default() })
    }
}

/// At most `allowed` rows, about `max_bytes`.
fn fill(options: &GenerateOptions, partition: &mut Partition, allowed: u64, max_bytes: usize) -> (Bytes, u64) {
    let largest = options.row_bytes.1.max(128) as usize;
    let estimate = usize::try_from(allowed).unwrap_or(usize::MAX).saturating_mul(largest);
    let mut bytes = Vec::with_capacity(estimate.min(max_bytes.min(1 << 20).saturating_add(largest)));
    let mut rows = 0;
    while rows < allowed {
        let before = bytes.len();
        append_row(&mut bytes, options, partition.number, partition.next);
        if rows > 0 && bytes.len() > max_bytes {
            bytes.truncate(before);
            break;
        }
        partition.next += 1;
        rows += 1;
    }
    (Bytes::from(bytes), rows)
}

impl Reader for GenerateReader {
    fn next<'a>(&'a mut self, max_bytes: usize) -> BoxFuture<'a, Result<Read, SourceError>> {
        Box::pin(async move { Ok(self.next_batch(max_bytes).await) })
    }

    fn initial_positions(&self) -> Vec<(String, String)> {
        self.partitions.iter().map(|p| (p.name.clone(), self.source.position(p.next))).collect()
    }
}

/// SplitMix64's finalizer: every bit of the input moves every bit of the output.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

const FILL: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";

/// Appends row `n` and a newline. What it writes is frozen: positions of old checkpoints count on it.
fn append_row(out: &mut Vec<u8>, options: &GenerateOptions, partition: u32, n: u64) {
    use std::io::Write;
    let start = out.len();
    let random = mix(mix(mix(options.seed) ^ u64::from(partition)) ^ n);
    let key = mix(random ^ 1) % options.keys;
    let value = mix(random ^ 2) % 1_000_000;
    let (least, most) = options.row_bytes;
    let target = u64::from(least) + mix(random ^ 3) % (u64::from(most - least) + 1);
    write!(out, r#"{{"partition":{partition},"n":{n},"key":"k{key}","value":{value},"fill":""#)
        .expect("writing into a Vec does not fail");
    let tail = b"\"}\n";
    let fill = usize::try_from(target).unwrap_or(usize::MAX).saturating_sub(out.len() - start + tail.len());
    let mut letters = 0u64;
    for i in 0..fill {
        if i % 10 == 0 {
            letters = mix(random ^ (4 + i as u64));
        }
        out.push(FILL[(letters & 63) as usize]);
        letters >>= 6;
    }
    out.extend_from_slice(tail);
}
