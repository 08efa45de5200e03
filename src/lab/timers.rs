//! What is to be done when, for one task that does many things later.

use std::collections::BTreeMap;

use tokio::time::Instant;

/// Items by the time they are due; those of one time in the order they came.
#[derive(Debug)]
pub(super) struct Timers<T> {
    items: BTreeMap<(Instant, u64), T>,
    count: u64,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            items: BTreeMap::new(),
            count: 0,
        }
    }
}

impl<T> Timers<T> {
    /// Adds an item.
    pub(super) fn add(&mut self, at: Instant, item: T) {
        self.count += 1;
        self.items.insert((at, self.count), item);
    }

    /// The next item that is due at `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<T> {
        let entry = self.items.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// When the next item is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.items.keys().next().map(|(at, _)| *at)
    }

    /// Waits for the next item to be due; forever when there is none.
    pub(super) async fn due(&self) {
        match self.next_at() {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn items_come_when_due_and_in_order() {
        let start = Instant::now();
        let mut timers = Timers::default();
        timers.add(start + Duration::from_secs(2), "later");
        timers.add(start + Duration::from_secs(1), "first");
        timers.add(start + Duration::from_secs(1), "second");
        assert_eq!(timers.pop_due(start), None);
        timers.due().await;
        assert_eq!(Instant::now() - start, Duration::from_secs(1));
        assert_eq!(timers.pop_due(Instant::now()), Some("first"));
        assert_eq!(timers.pop_due(Instant::now()), Some("second"));
        assert_eq!(timers.pop_due(Instant::now()), None);
        assert_eq!(timers.next_at(), Some(start + Duration::from_secs(2)));
    }
}
