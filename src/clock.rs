//! The one clock: every timestamp of the program comes from here, so that the lab can run on virtual time.
//!
//! Time is a base timestamp plus what `tokio::time` says has passed since. Under a paused runtime that is virtual time; else the base is
//! taken from the wall clock and taken again now and then, because monotonic clocks drift and sleep with the machine.
//! Must never: be read by a pure room, which is told what time it is.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// How long the system clock trusts its base before it looks at the wall clock again.
const ANCHOR_FOR: Duration = Duration::from_secs(30);

/// The longest sleep on the system clock before the wall clock is asked again.
const NAP: Duration = Duration::from_secs(60);

/// A clock; clones tell the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Fixed(Anchor),
    Wall(Arc<Mutex<Anchor>>),
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    base: Timestamp,
    at: Instant,
}

impl Anchor {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from(self.at.elapsed()).unwrap_or(SignedDuration::MAX);
        self.base.checked_add(passed).unwrap_or(Timestamp::MAX)
    }
}

impl Clock {
    /// The time of day, for real clusters.
    pub fn system() -> Self {
        Self(Source::Wall(Arc::new(Mutex::new(Anchor {
            base: wall(),
            at: Instant::now(),
        }))))
    }

    /// A clock that says `base` now and then follows `tokio::time` alone, for the lab and for tests.
    pub fn starting_at(base: Timestamp) -> Self {
        Self(Source::Fixed(Anchor {
            base,
            at: Instant::now(),
        }))
    }

    /// The present time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Fixed(anchor) => anchor.now(),
            Source::Wall(anchor) => {
                let mut anchor = anchor.lock().unwrap_or_else(PoisonError::into_inner);
                if anchor.at.elapsed() >= ANCHOR_FOR {
                    *anchor = Anchor {
                        base: wall(),
                        at: Instant::now(),
                    };
                }
                anchor.now()
            }
        }
    }

    /// Waits for a while.
    pub async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    /// Waits until the clock says `deadline`; returns at once if it has passed.
    pub async fn sleep_until(&self, deadline: Timestamp) {
        loop {
            let Some(left) = until(self.now(), deadline) else {
                return;
            };
            match self.0 {
                Source::Fixed(_) => tokio::time::sleep(left).await,
                Source::Wall(_) => tokio::time::sleep(left.min(NAP)).await,
            }
        }
    }
}

/// What is left until the deadline; `None` once it is reached.
fn until(now: Timestamp, deadline: Timestamp) -> Option<Duration> {
    Duration::try_from(deadline.duration_since(now))
        .ok()
        .filter(|left| !left.is_zero())
}

#[allow(
    clippy::disallowed_methods,
    reason = "the only place that reads the wall clock"
)]
fn wall() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn virtual_time_moves_with_sleeps_only() {
        let clock = Clock::starting_at(timestamp("2026-01-01T00:00:00Z"));
        assert_eq!(clock.now(), timestamp("2026-01-01T00:00:00Z"));
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.clone().now(), timestamp("2026-01-01T01:00:00Z"));
        clock.sleep_until(timestamp("2026-01-03T00:00:00Z")).await;
        assert_eq!(clock.now(), timestamp("2026-01-03T00:00:00Z"));
        clock.sleep_until(timestamp("2026-01-02T00:00:00Z")).await;
        assert_eq!(clock.now(), timestamp("2026-01-03T00:00:00Z"));
    }

    #[test]
    fn nothing_is_left_of_a_past_deadline() {
        let (early, late) = (
            timestamp("2026-01-01T00:00:00Z"),
            timestamp("2026-01-01T00:00:02Z"),
        );
        assert_eq!(until(early, late), Some(Duration::from_secs(2)));
        assert_eq!(until(late, late), None);
        assert_eq!(until(late, early), None);
    }

    #[tokio::test]
    async fn the_system_clock_agrees_with_the_wall() {
        let clock = Clock::system();
        let apart = clock.now().duration_since(wall()).abs();
        assert!(apart < SignedDuration::from_secs(60), "{apart:?}");
    }
}

/// Measures how long our own computing takes, by the machine's clock even where time is virtual. For figures only, never for decisions.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts measuring.
    #[allow(
        clippy::disallowed_methods,
        reason = "figures about ourselves need the machine's clock"
    )]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
