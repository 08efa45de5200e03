//! What happened, when: one row for like events that come within a second.

use std::collections::BTreeMap;

use serde::Serialize;

/// Like events this close together share a row, seconds.
const TOGETHER: f64 = 1.0;

/// One row of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Seconds since the start.
    pub at_s: f64,
    /// What happened.
    pub what: String,
    /// Nodes that the API knows.
    pub nodes: usize,
    /// Pods without a place, DaemonSets' left out.
    pub pending: usize,
    /// What the running instances cost, USD.
    pub price_per_hour: f64,
}

/// The kinds of events, in the order in which rows of one time are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happened {
    Claimed,
    Launched,
    Failed,
    Registered,
    Ready,
    Leaving,
    Unregistered,
    Terminated,
}

impl Happened {
    fn words(self, count: usize) -> String {
        let s = if count == 1 { "" } else { "s" };
        match self {
            Self::Claimed => format!("{count} NodeClaim{s} created"),
            Self::Launched => format!("{count} instance{s} launched"),
            Self::Failed => format!(
                "{count} launch{} failed",
                if count == 1 { "" } else { "es" }
            ),
            Self::Registered => format!("{count} node{s} registered"),
            Self::Ready => format!("{count} node{s} ready"),
            Self::Leaving => format!("{count} node{s} told to go"),
            Self::Unregistered => format!("{count} node{s} gone"),
            Self::Terminated => format!("{count} NodeClaim{s} gone"),
        }
    }
}

/// Events that wait to become rows.
#[derive(Debug, Default)]
pub(super) struct Batch {
    since: Option<f64>,
    /// By kind, how many of which sort.
    events: BTreeMap<Happened, BTreeMap<String, usize>>,
}

impl Batch {
    /// Notes an event of a sort (a pool, an instance type; may be empty).
    pub(super) fn add(&mut self, at_s: f64, happened: Happened, sort: &str) {
        self.since.get_or_insert(at_s);
        *self
            .events
            .entry(happened)
            .or_default()
            .entry(sort.to_owned())
            .or_default() += 1;
    }

    /// When the events are due as rows, seconds since the start.
    pub(super) fn due(&self) -> Option<f64> {
        self.since.map(|s| s + TOGETHER)
    }

    /// Takes the events as texts with the time of the first.
    pub(super) fn take(&mut self) -> Vec<(f64, String)> {
        let at = self.since.take().unwrap_or_default();
        let text = |(happened, sorts): (Happened, BTreeMap<String, usize>)| {
            let words = happened.words(sorts.values().sum());
            (at, format!("{words}{}", list(sorts)))
        };
        std::mem::take(&mut self.events)
            .into_iter()
            .map(text)
            .collect()
    }
}

/// Sorts shown by name; the most frequent first.
const SORTS: usize = 3;

fn list(sorts: BTreeMap<String, usize>) -> String {
    let mut named: Vec<(String, usize)> = sorts
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .collect();
    if named.is_empty() {
        return String::new();
    }
    named.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let shown = named.iter().take(SORTS).map(|(name, count)| match count {
        1 => name.clone(),
        _ => format!("{count} x {name}"),
    });
    let mut text = format!(": {}", shown.collect::<Vec<_>>().join(", "));
    if named.len() > SORTS {
        let rest: usize = named.iter().skip(SORTS).map(|(_, count)| count).sum();
        text.push_str(&format!(", {rest} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_events_share_a_row() {
        let mut batch = Batch::default();
        assert_eq!(batch.due(), None);
        batch.add(2.0, Happened::Launched, "c7g.large spot");
        batch.add(2.5, Happened::Claimed, "flexible");
        batch.add(2.7, Happened::Launched, "m5.large spot");
        batch.add(2.8, Happened::Launched, "m5.large spot");
        assert_eq!(batch.due(), Some(3.0));
        let rows = batch.take();
        assert_eq!(
            rows,
            [
                (2.0, "1 NodeClaim created: flexible".to_owned()),
                (
                    2.0,
                    "3 instances launched: 2 x m5.large spot, c7g.large spot".to_owned()
                ),
            ]
        );
        assert!(batch.take().is_empty());
    }

    #[test]
    fn many_sorts_are_cut_short() {
        let mut batch = Batch::default();
        for sort in ["a", "b", "c", "d", "d", "e"] {
            batch.add(0.0, Happened::Registered, sort);
        }
        assert_eq!(batch.take()[0].1, "6 nodes registered: 2 x d, a, b, 2 more");
    }
}
