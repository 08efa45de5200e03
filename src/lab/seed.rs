//! Chance in the lab: every delay, name and tie is drawn from one seed and from what it is drawn for.
//!
//! A draw depends on the seed and on the label alone, never on how many draws came before, so one change in a history
//! leaves the chances of all else as they were.

use std::time::Duration;

/// The letters that Kubernetes uses in generated names: no vowels, nothing that looks like another.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A source of chance. Copies draw the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The source for a run's seed.
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    /// A source of its own for one component.
    #[must_use]
    pub fn of(self, component: &str) -> Self {
        Self(self.draw(component))
    }

    /// The number drawn for a label.
    pub fn draw(self, label: &str) -> u64 {
        // FNV-1a, then mixed: the labels differ in few letters.
        let hash = label
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        mix(self.0 ^ hash)
    }

    /// A duration from `least` to `most`, in whole milliseconds.
    pub fn between(self, label: &str, least: Duration, most: Duration) -> Duration {
        let span = most.saturating_sub(least).as_millis();
        let span = u64::try_from(span).unwrap_or(u64::MAX - 1);
        least + Duration::from_millis(self.draw(label) % (span + 1))
    }

    /// An index below `count`, zero when there is nothing to choose from.
    pub fn index(self, label: &str, count: usize) -> usize {
        let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.draw(label) % count).unwrap_or(0)
    }

    /// The letters that end a generated name.
    pub fn letters(self, label: &str, count: usize) -> String {
        let mut rest = self.draw(label);
        let mut letter = || {
            let at = usize::try_from(rest % LETTERS.len() as u64).unwrap_or(0);
            rest = mix(rest);
            char::from(LETTERS[at])
        };
        (0..count).map(|_| letter()).collect()
    }
}

/// splitmix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_seed_and_label_alone() {
        let seed = Seed::new(7);
        assert_eq!(seed.draw("a"), Seed::new(7).draw("a"));
        assert_ne!(seed.draw("a"), seed.draw("b"));
        assert_ne!(seed.draw("a"), Seed::new(8).draw("a"));
        assert_ne!(seed.of("x").draw("a"), seed.of("y").draw("a"));
        assert_eq!(seed.letters("a", 5).len(), 5);
    }

    #[test]
    fn durations_stay_within_their_ends() {
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(3));
        let drawn: Vec<Duration> = (0..200)
            .map(|n| Seed::new(1).between(&n.to_string(), least, most))
            .collect();
        assert!(drawn.iter().all(|d| (least..=most).contains(d)));
        assert!(drawn.iter().any(|d| *d < Duration::from_millis(1500)));
        assert!(drawn.iter().any(|d| *d > Duration::from_millis(2500)));
        assert_eq!(Seed::new(1).between("x", most, least), most);
    }
}
