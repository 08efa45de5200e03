//! Workload controllers: Deployments make ReplicaSets, ReplicaSets and Jobs make pods, DaemonSets one pod for each node,
//! and pods of nodes that are gone are cleaned up.
//!
//! One task does it all, level-triggered: an event names what to look at again, and each look compares what is with what
//! is wanted. Must never: place a pod, or know of the product.

mod daemon_set;
mod deployment;
mod gc;
mod job;
mod replica_set;
mod template;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{gc::PodGc, job::Ended};
use super::{
    api::{Change, DeleteOptions, Event, Key, Kind, Object, Patch, Server, WriteOptions},
    seed::Seed,
    timers::Timers,
};
use crate::cluster;

/// How long losses of pods are gathered before their owner is looked at again.
const GATHER_LOSSES: Duration = Duration::from_millis(100);

/// The same for pods that become ready: a burst of them is some writes of status, not one for each pod.
const GATHER_GAINS: Duration = Duration::from_millis(500);

/// What one pod costs a controller to create or delete.
const PACE: Duration = Duration::from_millis(1);

/// The most pods a controller creates or deletes at one look (`BurstReplicas` of the ReplicaSet controller).
const BURST: usize = 500;

/// An object to look at.
type Item = (Kind, Key);

/// The workload controllers. [`Workloads::run`] is their one task.
#[derive(Debug)]
pub struct Workloads {
    server: Server,
    seed: Seed,
    /// When to look at what; one entry for each item, the earliest wins.
    wanted: BTreeMap<Item, Instant>,
    timers: Timers<Item>,
    /// Size of the next batch of pods that an owner creates, and when it may; absent when it is done.
    batches: BTreeMap<Item, (usize, Instant)>,
    /// How many names an owner has given.
    names: BTreeMap<Item, u64>,
    /// What pods counted as when last seen.
    standings: BTreeMap<Key, Standing>,
    /// Nodes as last seen.
    nodes: BTreeMap<String, cluster::Node>,
    ended: Ended,
    gc: PodGc,
}

/// What a pod counts as for its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Active,
    Ready,
    /// Ended or on its way out.
    Leaving,
    Gone,
}

/// When an item needs another look, if not for an event.
type Again = Option<Duration>;

impl Workloads {
    /// Controllers for the objects of a server; the seed decides names.
    pub fn new(server: Server, seed: Seed) -> Self {
        Self {
            gc: PodGc::new(server.clone()),
            server,
            seed: seed.of("workloads"),
            wanted: BTreeMap::new(),
            timers: Timers::default(),
            batches: BTreeMap::new(),
            names: BTreeMap::new(),
            standings: BTreeMap::new(),
            nodes: BTreeMap::new(),
            ended: Ended::default(),
        }
    }

    /// Controls until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut pods = self.server.subscribe(Kind::Pod);
        let mut nodes = self.server.subscribe(Kind::Node);
        let mut deployments = self.server.subscribe(Kind::Deployment);
        let mut replica_sets = self.server.subscribe(Kind::ReplicaSet);
        let mut daemon_sets = self.server.subscribe(Kind::DaemonSet);
        let mut jobs = self.server.subscribe(Kind::Job);
        loop {
            let now = Instant::now();
            while let Some(item) = self.timers.pop_due(now) {
                if self.wanted.get(&item).is_some_and(|at| *at <= now) {
                    self.wanted.remove(&item);
                    self.look(&item).await;
                }
            }
            self.gc.tick().await;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(event) = nodes.next() => self.node_event(&event),
                Some(event) = deployments.next() => self.owner_event(&event),
                Some(event) = replica_sets.next() => self.owner_event(&event),
                Some(event) = daemon_sets.next() => self.owner_event(&event),
                Some(event) = jobs.next() => self.owner_event(&event),
                Some(event) = pods.next() => self.pod_event(&event),
                () = self.timers.due() => {}
                () = self.gc.due() => {}
                else => return,
            }
        }
    }

    fn want(&mut self, item: Item, after: Duration) {
        let at = Instant::now() + after;
        let sooner = self.wanted.get(&item).is_none_or(|known| at < *known);
        if sooner {
            self.wanted.insert(item.clone(), at);
            self.timers.add(at, item);
        }
    }

    fn owner_event(&mut self, event: &Event) {
        let object = &event.object;
        let item = (object.kind(), Key::new(object.namespace(), object.name()));
        if event.change == Change::Deleted {
            self.wanted.remove(&item);
            self.batches.remove(&item);
            self.ended.forget(object.uid());
        } else if event.change == Change::Added || !is_observed(object) {
            self.want(item, Duration::ZERO);
        }
        if object.kind() == Kind::ReplicaSet {
            self.want_owner(object, Duration::ZERO);
        }
    }

    fn pod_event(&mut self, event: &Event) {
        let pod = &event.object;
        if event.change == Change::Bookmark {
            return;
        }
        self.ended.note(pod);
        let key = Key::new(pod.namespace(), pod.name());
        let standing = if event.change == Change::Deleted {
            Standing::Gone
        } else if !is_active(pod) {
            Standing::Leaving
        } else if is_ready(pod) {
            Standing::Ready
        } else {
            Standing::Active
        };
        let before = if standing == Standing::Gone {
            self.standings.remove(&key)
        } else {
            self.gc.pod(pod);
            self.standings.insert(key, standing)
        };
        if before == Some(standing) {
            return;
        }
        match standing {
            Standing::Active | Standing::Ready => self.want_owner(pod, GATHER_GAINS),
            Standing::Leaving => self.want_owner(pod, GATHER_LOSSES),
            Standing::Gone => {
                self.want_owner(pod, GATHER_LOSSES);
                if let Some(owner) = self.owner(pod) {
                    // A Deployment that recreates waits for the last old pod.
                    self.want_owner(&owner, GATHER_LOSSES);
                }
            }
        }
    }

    /// The object that controls another.
    fn owner(&self, object: &Object) -> Option<Object> {
        self.server.by_uid(object.controller_uid()?)
    }

    fn want_owner(&mut self, object: &Object, after: Duration) {
        if let Some(owner) = self.owner(object) {
            let item = (owner.kind(), Key::new(owner.namespace(), owner.name()));
            self.want(item, after);
        }
    }

    fn node_event(&mut self, event: &Event) {
        self.gc.node(event);
        let name = event.object.name();
        match event.change {
            Change::Bookmark => return,
            Change::Deleted => {
                self.nodes.remove(name);
            }
            Change::Added | Change::Modified => match event.object.parse() {
                Ok(node) => {
                    let node = cluster::Node::from_k8s(&node);
                    self.nodes.insert(name.to_owned(), node);
                }
                Err(error) => tracing::warn!(node = name, %error, "node cannot be read"),
            },
        }
        let (_, sets) = self
            .server
            .list(Kind::DaemonSet, None, &super::api::Selectors::default());
        for set in sets {
            let item = (Kind::DaemonSet, Key::new(set.namespace(), set.name()));
            self.want(item, Duration::ZERO);
        }
    }

    async fn look(&mut self, item: &Item) {
        let (kind, key) = item;
        let Ok(object) = self.server.get(*kind, &key.namespace, &key.name) else {
            return;
        };
        if object.is_deleting() {
            return;
        }
        let again = match kind {
            Kind::Deployment => self.deployment(&object).await,
            Kind::ReplicaSet => self.replica_set(&object).await,
            Kind::DaemonSet => self.daemon_set(&object).await,
            Kind::Job => self.job(&object).await,
            _ => None,
        };
        if let Some(after) = again {
            self.want(item.clone(), after);
        }
    }

    /// Creates up to `count` of an owner's pods, in batches that double as long as all goes well.
    async fn create_pods(&mut self, owner: &Object, count: usize, pod: &Value) -> Again {
        let item = (owner.kind(), Key::new(owner.namespace(), owner.name()));
        if count == 0 {
            self.batches.remove(&item);
            return None;
        }
        let now = Instant::now();
        let (size, from) = self.batches.get(&item).copied().unwrap_or((1, now));
        if now < from {
            return Some(from - now);
        }
        let batch = size.min(count).min(BURST);
        for _ in 0..batch {
            if !self.create_pod(owner, pod.clone()).await {
                self.batches.remove(&item);
                return Some(Duration::from_secs(1));
            }
        }
        let pause = paced(batch);
        self.batches.insert(item, (batch * 2, now + pause));
        Some(pause)
    }

    /// Creates one pod under a name of its own.
    async fn create_pod(&mut self, owner: &Object, mut pod: Value) -> bool {
        let item = (owner.kind(), Key::new(owner.namespace(), owner.name()));
        let prefix = format!("{}-", owner.name());
        pod["metadata"]["generateName"] = Value::String(prefix.clone());
        for _ in 0..BURST {
            let count = self.names.entry(item.clone()).or_insert(0);
            *count += 1;
            let label = format!("{}/{prefix}{count}", owner.namespace());
            let name = format!("{prefix}{}", self.seed.letters(&label, 5));
            pod["metadata"]["name"] = Value::String(name);
            let options = WriteOptions::default();
            let created = self
                .server
                .create(Kind::Pod, owner.namespace(), pod.clone(), &options);
            match created.await {
                Ok(_) => return true,
                Err(error) if error.is_already_exists() => {}
                Err(error) => {
                    tracing::warn!(owner = owner.name(), %error, "pod not created");
                    return false;
                }
            }
        }
        false
    }

    async fn delete_pods(&mut self, pods: &[&Object]) -> Again {
        for pod in pods {
            let options = DeleteOptions {
                uid: Some(pod.uid().to_owned()),
                ..DeleteOptions::default()
            };
            let deleted = self
                .server
                .delete(Kind::Pod, pod.namespace(), pod.name(), &options);
            match deleted.await {
                Ok(_) => {}
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => tracing::warn!(pod = pod.name(), %error, "pod not deleted"),
            }
        }
        None
    }

    async fn patch(&self, object: &Object, patch: Value) {
        let (kind, namespace, name) = (object.kind(), object.namespace(), object.name());
        let patch = Patch::Merge(patch);
        let options = WriteOptions::default();
        let patched = self
            .server
            .patch(kind, namespace, name, &patch, &options)
            .await;
        if let Err(error) = patched {
            tracing::warn!(%name, %error, "{} not changed", kind.info().kind);
        }
    }

    /// Sets fields of an object's status; others stay.
    fn set_status(&self, object: &Object, set: impl FnOnce(&mut Value)) {
        let (kind, namespace, name) = (object.kind(), object.namespace(), object.name());
        let edited = self.server.edit_status(kind, namespace, name, |status| {
            status["observedGeneration"] = object["metadata"]["generation"].clone();
            set(status);
        });
        if let Err(error) = edited {
            tracing::debug!(%name, %error, "status not written");
        }
    }
}

/// Whether the controller has seen this spec, so that the change was its own writing of status.
fn is_observed(object: &Object) -> bool {
    let seen = &object["status"]["observedGeneration"];
    seen.is_number() && *seen == object["metadata"]["generation"]
}

fn paced(pods: usize) -> Duration {
    PACE * u32::try_from(pods).unwrap_or(u32::MAX)
}

/// Neither ended nor on its way out.
fn is_active(pod: &Object) -> bool {
    !is_over(pod) && !pod.is_deleting()
}

/// Succeeded or Failed.
fn is_over(pod: &Object) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

fn is_ready(pod: &Object) -> bool {
    pod.condition("Ready") == Some("True")
}

fn phase(pod: &Object) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

fn count(value: &Value) -> usize {
    value
        .as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(0)
}
