//! Pseudo-random numbers from a seed: the only source of chance in a simulation.

/// Draws numbers; the same seed draws the same ones on every machine.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// A stream of its own for every seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15)))
    }

    /// A stream that does not depend on how much is drawn from this one. The same label gives the same stream.
    #[must_use]
    pub fn fork(&self, label: &str) -> Self {
        let label = label
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
        Self(mix(self.0 ^ label))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Less than `limit`, which is at least 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of them; there is at least one.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap_or(0)]
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
