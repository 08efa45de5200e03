//! Numbers that look random and follow from the seed and from what they are for, whatever the order in which they are asked for.

use std::time::Duration;

/// A stream of numbers (splitmix64).
pub(super) struct Random(u64);

impl Random {
    /// The stream of a purpose: the same words give the same stream.
    pub(super) fn new(seed: u64, words: &[&str]) -> Self {
        // FNV-1a over the words, each closed by a byte that no word has.
        let bytes = words.iter().flat_map(|w| w.bytes().chain([0xff]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }

    /// The next number.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = (high.max(low) - low).saturating_add(1);
        low + self.next() % span
    }

    /// A time between two, in whole milliseconds.
    pub(super) fn time(&mut self, (low, high): (Duration, Duration)) -> Duration {
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.between(millis(low), millis(high)))
    }

    /// So many lower-case hexadecimal digits.
    pub(super) fn hex(&mut self, digits: usize) -> String {
        let mut text = String::with_capacity(digits + 16);
        while text.len() < digits {
            text.push_str(&format!("{:016x}", self.next()));
        }
        text.truncate(digits);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values of splitmix64 from state 1234567, as published with the generator.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn streams_differ_by_seed_and_words() {
        let first = |seed, words: &[&str]| Random::new(seed, words).next();
        assert_eq!(first(7, &["a", "b"]), first(7, &["a", "b"]));
        assert_ne!(first(7, &["a", "b"]), first(8, &["a", "b"]));
        assert_ne!(first(7, &["a", "b"]), first(7, &["ab"]));
    }

    #[test]
    fn bounds_are_kept() {
        let mut random = Random::new(1, &[]);
        let drawn: std::collections::BTreeSet<u64> =
            (0..200).map(|_| random.between(3, 5)).collect();
        assert_eq!(drawn, [3, 4, 5].into());
        assert_eq!(random.hex(17).len(), 17);
    }
}
