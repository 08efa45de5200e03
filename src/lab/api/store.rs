//! The store: tables of objects, indexes, history and watchers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::error::ApiError;
use super::kinds::Kind;
use super::object::{Key, Object, Seeded, owner_uids, set_metadata, text};
use super::rfc3339;
use super::select::Selectors;
use super::watch::{Carried, Change, Event, Past, Watch, Watcher};

/// How long the API server keeps an event after its last change.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);

pub(super) struct State {
    version: u64,
    history: usize,
    pub(super) seeded: Seeded,
    tables: Vec<Table>,
    by_node: BTreeMap<String, BTreeSet<Key>>,
    by_owner: BTreeMap<String, BTreeSet<(Kind, Key)>>,
    by_uid: BTreeMap<String, (Kind, Key)>,
    /// UIDs that no longer exist, of types that own others.
    gone: BTreeSet<String>,
    /// Objects whose owners are gone.
    pub(super) garbage: VecDeque<(Kind, Key)>,
    /// Budgets whose status may be out of date.
    pub(super) dirty_budgets: BTreeSet<Key>,
    /// When each event was last written, oldest first.
    event_ages: VecDeque<(Timestamp, Key, u64)>,
}

#[derive(Default)]
struct Table {
    objects: BTreeMap<Key, Object>,
    past: VecDeque<Past>,
    /// The newest version that has fallen out of the history.
    forgotten: u64,
    watchers: Vec<Watcher>,
}

impl State {
    pub(super) fn new(seed: u64, history: usize) -> Self {
        Self {
            version: 0,
            history,
            seeded: Seeded::new(seed),
            tables: Kind::ALL.iter().map(|_| Table::default()).collect(),
            by_node: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            gone: BTreeSet::new(),
            garbage: VecDeque::new(),
            dirty_budgets: BTreeSet::new(),
            event_ages: VecDeque::new(),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn set_history(&mut self, changes: usize) {
        self.history = changes;
        for table in &mut self.tables {
            table.trim(changes);
        }
    }

    fn table(&self, kind: Kind) -> &Table {
        &self.tables[kind as usize]
    }

    pub(super) fn get(&self, kind: Kind, key: &Key) -> Option<Object> {
        self.table(kind).objects.get(key).cloned()
    }

    pub(super) fn count(&self, kind: Kind) -> usize {
        self.table(kind).objects.len()
    }

    pub(super) fn by_uid(&self, uid: &str) -> Option<Object> {
        let (kind, key) = self.by_uid.get(uid)?;
        self.get(*kind, key)
    }

    pub(super) fn owned_by(&self, kind: Kind, uid: &str) -> Vec<Object> {
        let owned = self.by_owner.get(uid).into_iter().flatten();
        owned
            .filter(|(k, _)| *k == kind)
            .filter_map(|(kind, key)| self.get(*kind, key))
            .collect()
    }

    pub(super) fn has_dirty_budgets(&self) -> bool {
        !self.dirty_budgets.is_empty()
    }

    /// Objects of a namespace, or of all.
    pub(super) fn objects(
        &self,
        kind: Kind,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = &Object> {
        let from = Key::new(namespace.unwrap_or_default(), "");
        let namespace = namespace.map(str::to_owned);
        self.table(kind)
            .objects
            .range(from..)
            .take_while(move |(key, _)| namespace.as_ref().is_none_or(|n| *n == key.namespace))
            .map(|(_, object)| object)
    }

    pub(super) fn list(
        &self,
        kind: Kind,
        namespace: Option<&str>,
        selectors: &Selectors,
    ) -> Vec<Object> {
        let selected =
            |o: &&Object| namespace.is_none_or(|n| n == o.namespace()) && selectors.matches(o);
        if kind == Kind::Pod
            && let Some(node) = selectors.node().filter(|n| !n.is_empty())
        {
            let keys = self.by_node.get(node).into_iter().flatten();
            let pods = keys.filter_map(|key| self.table(kind).objects.get(key));
            return pods.filter(selected).cloned().collect();
        }
        if let Some(name) = selectors.name()
            && (namespace.is_some() || !kind.info().namespaced)
        {
            let key = Key::new(namespace.unwrap_or_default(), name);
            let found = self.table(kind).objects.get(&key);
            return found.into_iter().filter(selected).cloned().collect();
        }
        let all = self.objects(kind, namespace);
        if selectors.is_everything() {
            return all.cloned().collect();
        }
        all.filter(selected).cloned().collect()
    }

    /// Gives a new object its UID, creation time and first generation.
    pub(super) fn stamp_new(&mut self, kind: Kind, value: &mut Value, now: Timestamp) {
        let uid = self.seeded.uid();
        set_metadata(value, "uid", Some(json!(uid)));
        set_metadata(value, "creationTimestamp", Some(json!(rfc3339(now))));
        let generation = kind.info().generation.then(|| json!(1));
        set_metadata(value, "generation", generation);
        for key in [
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
        ] {
            set_metadata(value, key, None);
        }
    }

    /// Stores an object under the next version, new or in place of the one with its name.
    pub(super) fn put(&mut self, kind: Kind, mut value: Value) -> Object {
        self.version += 1;
        let version = self.version;
        set_metadata(
            &mut value,
            "resourceVersion",
            Some(json!(version.to_string())),
        );
        let key = Key::of(&value);
        let object = Object::new(kind, value, version);
        let before = self.tables[kind as usize]
            .objects
            .insert(key.clone(), object.clone());
        self.index(kind, &key, before.as_ref(), Some(&object));
        if before.is_none()
            && owner_uids(&object).next().is_some()
            && owner_uids(&object).all(|uid| self.gone.contains(uid))
        {
            self.garbage.push_back((kind, key.clone()));
        }
        self.mark_budgets(kind, before.as_ref(), Some(&object));
        self.tell(kind, before.as_ref(), &object, false);
        object
    }

    /// Takes an object away and queues what only it owned.
    pub(super) fn remove(&mut self, kind: Kind, key: &Key) -> Option<Object> {
        let before = self.tables[kind as usize].objects.remove(key)?;
        self.version += 1;
        let mut last = before.value().clone();
        set_metadata(
            &mut last,
            "resourceVersion",
            Some(json!(self.version.to_string())),
        );
        let object = Object::new(kind, last, self.version);
        self.index(kind, key, Some(&before), None);
        if !matches!(kind, Kind::Pod | Kind::Event) {
            self.gone.insert(before.uid().to_owned());
        }
        if let Some(owned) = self.by_owner.get(before.uid()) {
            self.garbage.extend(owned.iter().cloned());
        }
        self.mark_budgets(kind, Some(&before), None);
        self.tell(kind, Some(&before), &object, true);
        Some(object)
    }

    pub(super) fn is_live(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    fn index(&mut self, kind: Kind, key: &Key, before: Option<&Object>, after: Option<&Object>) {
        if before.is_none() != after.is_none() {
            if let Some(object) = before {
                self.by_uid.remove(object.uid());
            }
            if let Some(object) = after {
                self.by_uid
                    .insert(object.uid().to_owned(), (kind, key.clone()));
            }
        }
        if kind == Kind::Pod {
            let node = |o: Option<&Object>| {
                o.map_or(String::new(), |o| text(o, &["spec", "nodeName"]).to_owned())
            };
            let (from, to) = (node(before), node(after));
            if from != to || before.is_none() != after.is_none() {
                remove_from(&mut self.by_node, &from, key);
                if !to.is_empty() {
                    self.by_node.entry(to).or_default().insert(key.clone());
                }
            }
        }
        let owners = |o: Option<&Object>| -> BTreeSet<String> {
            o.into_iter()
                .flat_map(|o| owner_uids(o))
                .map(str::to_owned)
                .collect()
        };
        let (from, to) = (owners(before), owners(after));
        if from != to {
            let entry = (kind, key.clone());
            for uid in from.difference(&to) {
                remove_from(&mut self.by_owner, uid, &entry);
            }
            for uid in to.difference(&from) {
                let owned = self.by_owner.entry(uid.clone()).or_default();
                owned.insert(entry.clone());
            }
        }
    }

    fn tell(&mut self, kind: Kind, before: Option<&Object>, after: &Object, gone: bool) {
        let history = self.history;
        let table = &mut self.tables[kind as usize];
        table.past.push_back(Past {
            version: after.version(),
            before: before.map(|o| (o.version(), o.bytes())),
            after: after.bytes(),
            gone,
        });
        table.trim(history);
        table
            .watchers
            .retain(|watcher| watcher.tell(before, after, gone));
    }

    pub(super) fn watch<T: Carried>(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        since: Option<u64>,
        selectors: &Selectors,
    ) -> Result<Watch<T>, ApiError> {
        let Some(since) = since else {
            return Ok(self.subscribe(kind, namespace, selectors));
        };
        let current = self.version;
        let table = &mut self.tables[kind as usize];
        if since < table.forgotten {
            return Err(ApiError::expired(since, table.forgotten));
        }
        if since > current {
            let message = format!("Too large resource version: {since}, current: {current}");
            return Err(ApiError::new(504, "Timeout", message));
        }
        let (watcher, live) = open(namespace, selectors);
        let from = table.past.partition_point(|past| past.version <= since);
        let backlog = table
            .past
            .range(from..)
            .filter_map(|past| past.seen_by(kind, &watcher))
            .map(T::carry)
            .collect();
        table.watchers.push(watcher);
        Ok(Watch::new(backlog, live, current))
    }

    pub(super) fn subscribe<T: Carried>(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        selectors: &Selectors,
    ) -> Watch<T> {
        let added = |object| Event {
            change: Change::Added,
            object,
        };
        let objects = self.list(kind, namespace, selectors);
        let backlog = objects.into_iter().map(added).map(T::carry).collect();
        let (watcher, live) = open(namespace, selectors);
        self.tables[kind as usize].watchers.push(watcher);
        Watch::new(backlog, live, self.version)
    }

    /// Remembers an event's last write and drops the events whose time is over.
    pub(super) fn age_events(&mut self, written: &Object, now: Timestamp) {
        let key = super::watch::key(written);
        self.event_ages.push_back((now, key, written.version()));
        while let Some((at, _, _)) = self.event_ages.front() {
            if now.duration_since(*at) < EVENT_LIFE {
                break;
            }
            let Some((_, key, version)) = self.event_ages.pop_front() else {
                break;
            };
            if self
                .get(Kind::Event, &key)
                .is_some_and(|o| o.version() == version)
            {
                self.remove(Kind::Event, &key);
            }
        }
    }
}

impl Table {
    fn trim(&mut self, history: usize) {
        while self.past.len() > history {
            if let Some(past) = self.past.pop_front() {
                self.forgotten = past.version;
            }
        }
    }
}

fn open<T: Carried>(
    namespace: Option<&str>,
    selectors: &Selectors,
) -> (Watcher, UnboundedReceiver<T>) {
    let (sender, live) = unbounded_channel();
    let watcher = Watcher {
        namespace: namespace.map(str::to_owned),
        selectors: selectors.clone(),
        sink: T::sink(sender),
    };
    (watcher, live)
}

fn remove_from<T: Ord>(index: &mut BTreeMap<String, BTreeSet<T>>, at: &str, entry: &T) {
    if let Some(set) = index.get_mut(at) {
        set.remove(entry);
        if set.is_empty() {
            index.remove(at);
        }
    }
}
