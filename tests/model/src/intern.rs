//! Things that are known by a number: two numbers are equal exactly when the things are.
//!
//! Of most things the value is the key. A coordinator is large, so its key is a fingerprint of 128 bits of everything
//! that `Hash` sees in it, which is every field.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Multiplication folded to 64 bits: every bit of the product counts.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

const LEFT: u64 = 0x9E37_79B9_7F4A_7C15;
const RIGHT: u64 = 0xD6E8_FEB8_6659_FD93;

/// Two independent chains of 64 bits each; the same on every machine and in every process.
#[derive(Debug, Clone)]
pub struct Fingerprint {
    left: u64,
    right: u64,
}

impl Default for Fingerprint {
    fn default() -> Self {
        Self { left: 0x243F_6A88_85A3_08D3, right: 0x1319_8A2E_0370_7344 }
    }
}

impl Fingerprint {
    /// The fingerprint of a value.
    pub fn of(value: &impl Hash) -> u128 {
        let mut hasher = Self::default();
        value.hash(&mut hasher);
        (u128::from(fold(hasher.left, LEFT ^ hasher.right)) << 64) | u128::from(fold(hasher.right, RIGHT ^ hasher.left))
    }

    fn word(&mut self, word: u64) {
        self.left = fold(self.left ^ word, LEFT);
        self.right = fold(self.right.rotate_left(23) ^ word, RIGHT);
    }
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length tells a short word from one that ends in zeros.
        self.word(u64::from_le_bytes(last) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, number: u8) {
        self.word(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.word(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.left, LEFT ^ self.right)
    }
}

/// A map that hashes quickly, and is never iterated: its order would be no order.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Fingerprint>>;

/// Values by number.
#[derive(Debug)]
pub struct Pool<T> {
    values: Vec<T>,
    numbers: Map<u128, u32>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: Map::default() }
    }
}

impl<T: Hash> Pool<T> {
    /// The number of a value, and whether it is new.
    pub fn put(&mut self, value: T) -> (u32, bool) {
        let next = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(Fingerprint::of(&value)).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        (number, number == next)
    }

    /// The value behind a number that [`Self::put`] gave.
    pub fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_tell_small_differences_apart() {
        let mut seen = std::collections::BTreeSet::new();
        for a in 0..64u64 {
            for b in 0..64u8 {
                assert!(seen.insert(Fingerprint::of(&(a, b))));
                assert!(seen.insert(Fingerprint::of(&(1u64 << a, vec![b]))), "{a} {b}");
            }
        }
        assert_ne!(Fingerprint::of(&"ab"), Fingerprint::of(&"ab\0"));
        assert_ne!(Fingerprint::of(&("a", "bc")), Fingerprint::of(&("ab", "c")));
    }

    #[test]
    fn equal_values_have_one_number() {
        let mut pool = Pool::default();
        let (first, fresh) = pool.put("a".to_owned());
        assert!(fresh);
        assert_eq!(pool.put("a".to_owned()), (first, false));
        assert_ne!(pool.put("b".to_owned()).0, first);
        assert_eq!(pool.get(first), "a");
    }
}
