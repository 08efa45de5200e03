//! Pods that wait for a node: ready to be tried, in backoff, or asleep until something changes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::lab::{
    api::{Key, Object},
    timers::Timers,
};

/// kube-scheduler's `podInitialBackoffSeconds`.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// kube-scheduler's `podMaxBackoffSeconds`.
const MOST_BACKOFF: Duration = Duration::from_secs(10);
/// kube-scheduler's `podMaxInUnschedulablePodsDuration`.
const LONGEST_SLEEP: Duration = Duration::from_secs(300);

/// The least time between two messages to a pod that differ in numbers alone. kube-scheduler writes each; here a cluster
/// that grows under thousands of waiting pods would do little else.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Where a pending pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Active(u64),
    Backoff,
    Asleep,
    /// Being tried now.
    InHand,
}

/// A pending pod.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its latest version.
    pub(super) pod: Object,
    /// Its class.
    pub(super) class: usize,
    /// How often it has been tried without success.
    pub(super) attempts: u32,
    /// Whether the extender took the last of its nodes away.
    pub(super) by_extender: bool,
    /// What it was last told, but for the numbers, and when.
    told: Option<(String, Instant)>,
    tried: Instant,
    place: Place,
}

impl Pending {
    fn priority(&self) -> i64 {
        self.pod["spec"]["priority"].as_i64().unwrap_or(0)
    }

    fn backoff_ends(&self) -> Instant {
        let doublings = self.attempts.saturating_sub(1).min(8);
        self.tried + (FIRST_BACKOFF * 2u32.pow(doublings)).min(MOST_BACKOFF)
    }
}

/// All pending pods.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pods: BTreeMap<Key, Pending>,
    active: BTreeSet<(Reverse<i64>, u64, Key)>,
    asleep: BTreeMap<usize, BTreeSet<Key>>,
    refused_by_extender: BTreeSet<Key>,
    timers: Timers<(Key, u32)>,
    count: u64,
}

impl Queue {
    pub(super) fn get(&self, key: &Key) -> Option<&Pending> {
        self.pods.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Pending> {
        self.pods.get_mut(key)
    }

    /// Adds a pod that has not been tried yet.
    pub(super) fn add(&mut self, key: &Key, pod: Object, class: usize) {
        let pending = Pending {
            pod,
            class,
            attempts: 0,
            by_extender: false,
            told: None,
            tried: Instant::now(),
            place: Place::InHand,
        };
        self.pods.insert(key.clone(), pending);
        self.activate(key);
    }

    /// Takes a pod out for good.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Pending> {
        self.lift(key);
        self.pods.remove(key)
    }

    /// The pod to try next: highest priority, longest waiting. It stays in the queue's hand until it is put to sleep,
    /// back or removed.
    pub(super) fn next(&mut self) -> Option<Key> {
        let (_, _, key) = self.active.pop_first()?;
        if let Some(pending) = self.pods.get_mut(&key) {
            pending.place = Place::InHand;
            pending.tried = Instant::now();
        }
        Some(key)
    }

    /// Whether the pod is to be told why it waits; the caller then does.
    pub(super) fn is_to_be_told(&mut self, key: &Key, message: &str) -> bool {
        let now = Instant::now();
        let Some(pending) = self.pods.get_mut(key) else {
            return false;
        };
        let gist: String = message.chars().filter(|c| !c.is_ascii_digit()).collect();
        let told = pending.told.as_ref();
        let due = told.is_none_or(|(was, at)| *was != gist || *at + TELL_EVERY <= now);
        if due {
            pending.told = Some((gist, now));
        }
        due
    }

    /// Puts a pod that found no node to sleep.
    pub(super) fn sleep(&mut self, key: &Key, by_extender: bool) {
        self.lift(key);
        let Some(pending) = self.pods.get_mut(key) else {
            return;
        };
        pending.attempts += 1;
        pending.by_extender = by_extender;
        pending.place = Place::Asleep;
        let at = pending.tried + LONGEST_SLEEP;
        self.timers.add(at, (key.clone(), pending.attempts));
        let sleepers = self.asleep.entry(pending.class).or_default();
        sleepers.insert(key.clone());
        if by_extender {
            self.refused_by_extender.insert(key.clone());
        }
    }

    /// Lets a pod whose try failed for no fault of its own have another one after its backoff.
    pub(super) fn put_back(&mut self, key: &Key) {
        if let Some(pending) = self.pods.get_mut(key) {
            pending.attempts += 1;
            self.back_off(key);
        }
    }

    /// The classes of which some pods sleep.
    pub(super) fn sleeping_classes(&self) -> Vec<usize> {
        self.asleep.keys().copied().collect()
    }

    /// Wakes the sleeping pods of a class.
    pub(super) fn wake_class(&mut self, class: usize) {
        for key in self.asleep.remove(&class).unwrap_or_default() {
            self.back_off(&key);
        }
    }

    /// Wakes the pods that the extender left without a node.
    pub(super) fn wake_refused_by_extender(&mut self) {
        for key in std::mem::take(&mut self.refused_by_extender) {
            self.back_off(&key);
        }
    }

    /// Makes a pod ready to be tried, whatever its backoff.
    pub(super) fn activate(&mut self, key: &Key) {
        self.lift(key);
        let Some(pending) = self.pods.get_mut(key) else {
            return;
        };
        self.count += 1;
        pending.place = Place::Active(self.count);
        let entry = (Reverse(pending.priority()), self.count, key.clone());
        self.active.insert(entry);
    }

    /// Activates the pods whose backoff or longest sleep is over.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        while let Some((key, attempts)) = self.timers.pop_due(now) {
            let due = self.pods.get(&key).is_some_and(|p| {
                p.attempts == attempts
                    && match p.place {
                        Place::Backoff => p.backoff_ends() <= now,
                        Place::Asleep => p.tried + LONGEST_SLEEP <= now,
                        Place::Active(_) | Place::InHand => false,
                    }
            });
            if due {
                self.activate(&key);
            }
        }
    }

    /// Waits until some pod may be due.
    pub(super) async fn due(&self) {
        self.timers.due().await;
    }

    /// Takes a pod from its place.
    fn lift(&mut self, key: &Key) {
        let Some(pending) = self.pods.get_mut(key) else {
            return;
        };
        match pending.place {
            Place::Active(count) => {
                let entry = (Reverse(pending.priority()), count, key.clone());
                self.active.remove(&entry);
            }
            Place::Asleep => {
                if let Some(sleepers) = self.asleep.get_mut(&pending.class) {
                    sleepers.remove(key);
                    if sleepers.is_empty() {
                        self.asleep.remove(&pending.class);
                    }
                }
                self.refused_by_extender.remove(key);
            }
            Place::Backoff | Place::InHand => {}
        }
        pending.place = Place::InHand;
    }

    fn back_off(&mut self, key: &Key) {
        self.lift(key);
        let Some(pending) = self.pods.get_mut(key) else {
            return;
        };
        let ends = pending.backoff_ends();
        if ends <= Instant::now() {
            self.activate(key);
        } else {
            pending.place = Place::Backoff;
            self.timers.add(ends, (key.clone(), pending.attempts));
        }
    }
}
