//! Comparing rows as multisets, line by line, with code of its own.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read};

use anyhow::Result;

/// How often each line occurs. Lines are kept as 128-bit hashes, so that gigabytes fit.
#[derive(Debug, Default, Clone)]
pub(crate) struct Lines {
    counts: HashMap<u128, i64>,
    total: u64,
}

/// Two differently keyed 64-bit hashes of one line.
pub(crate) fn hash(line: &[u8]) -> u128 {
    let half = |key: u64| {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        line.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// How two multisets differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Difference {
    /// Lines that should be there and are not.
    pub(crate) lost: u64,
    /// Lines that are there more often than they should be, unknown ones included.
    pub(crate) duplicated: u64,
}

impl Lines {
    /// Counts one line.
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.add_hash(hash(line));
    }

    /// Counts something by its hash.
    pub(crate) fn add_hash(&mut self, hash: u128) {
        *self.counts.entry(hash).or_default() += 1;
        self.total += 1;
    }

    /// Counts every line of a file; answers with their number and whether the last one ended with a newline.
    pub(crate) fn add_all(&mut self, file: impl Read) -> Result<(u64, bool)> {
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let mut line = Vec::new();
        let (mut rows, mut whole) = (0, true);
        while reader.read_until(b'\n', &mut line)? > 0 {
            whole = line.last() == Some(&b'\n');
            self.add(line.strip_suffix(b"\n").unwrap_or(&line));
            rows += 1;
            line.clear();
        }
        Ok((rows, whole))
    }

    /// How many lines were counted.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Whether a line was counted.
    pub(crate) fn knows(&self, line: &[u8]) -> bool {
        self.counts.contains_key(&hash(line))
    }

    /// Compares what arrived (`self`) with what was sent.
    pub(crate) fn against(&self, sent: &Lines) -> Difference {
        let mut difference = Difference::default();
        for (hash, &count) in &sent.counts {
            let arrived = self.counts.get(hash).copied().unwrap_or(0);
            difference.lost += u64::try_from(count - arrived).unwrap_or(0);
        }
        for (hash, &count) in &self.counts {
            let expected = sent.counts.get(hash).copied().unwrap_or(0);
            difference.duplicated += u64::try_from(count - expected).unwrap_or(0);
        }
        difference
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Lines {
    fn from_iter<I: IntoIterator<Item = T>>(lines: I) -> Self {
        let mut all = Self::default();
        lines.into_iter().for_each(|line| all.add(line.as_ref()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_counts_do() {
        let sent: Lines = ["a", "b", "b"].into_iter().collect();
        assert_eq!(["b", "a", "b"].into_iter().collect::<Lines>().against(&sent), Difference::default());
        let difference = ["a", "a", "b", "x"].into_iter().collect::<Lines>().against(&sent);
        assert_eq!(difference, Difference { lost: 1, duplicated: 2 });
    }

    #[test]
    fn a_last_line_without_newline_is_a_row_and_is_told() {
        let mut lines = Lines::default();
        assert_eq!(lines.add_all(&b"a\nb"[..]).expect("memory can be read"), (2, false));
        assert_eq!(lines.add_all(&b"a\n"[..]).expect("memory can be read"), (1, true));
        assert_eq!(lines.total(), 3);
        assert!(lines.knows(b"b") && !lines.knows(b"c"));
    }
}
