//! The one mutable copy of the cluster, owned by one task.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use imbl::OrdSet;
use jiff::Timestamp;

use crate::cluster::{
    Claim, Class, DaemonSet, DisruptionBudgetState, Event, Node, Nomination, Owner, Pod, PodKey,
    Pool, Snapshot,
};

/// How many UIDs of deleted objects are remembered, so that a late answer to one of our own writes cannot bring one back. Far more
/// objects than can be deleted while a write is on its way.
const TOMBSTONES: usize = 10_000;

/// Kinds that must have been listed before the cluster counts as known, by plural resource name.
pub const WATCHED: [&str; 7] = [
    "pods",
    "nodes",
    "nodeclaims",
    "nodepools",
    "ec2nodeclasses",
    "daemonsets",
    "poddisruptionbudgets",
];

/// Cluster state in the making.
#[derive(Debug, Default)]
pub struct State {
    snapshot: Snapshot,
    listed: BTreeSet<&'static str>,
    buried: BTreeSet<String>,
    burial_order: VecDeque<String>,
}

impl State {
    /// The cluster as it is now; cheap.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.clone()
    }

    /// Applies one event, heard at `now`, and says whether anything changed. An event about an older version than the known one changes
    /// nothing.
    pub fn apply(&mut self, event: Event, now: Timestamp) -> bool {
        let changed = self.change(event, now);
        if changed {
            self.snapshot.revision += 1;
        }
        changed
    }

    fn change(&mut self, event: Event, now: Timestamp) -> bool {
        let s = &mut self.snapshot;
        match event {
            Event::Pod(pod) => {
                let known = |k: &PodKey| {
                    s.pods
                        .get(k)
                        .map(|p| (p.uid.clone(), p.resource_version.clone()))
                };
                let pod = Pod::from_k8s(&pod);
                if self.buried.contains(&pod.uid)
                    || is_stale(known(&pod.key), &pod.uid, &pod.resource_version)
                {
                    return false;
                }
                self.put_pod(pod, now);
            }
            Event::PodGone(key) => return self.remove_pod(&key, now),
            Event::Node(node) => {
                let node = Node::from_k8s(&node);
                let known = s
                    .nodes
                    .get(&node.name)
                    .map(|n| (n.uid.clone(), n.resource_version.clone()));
                if self.buried.contains(&node.uid)
                    || is_stale(known, &node.uid, &node.resource_version)
                {
                    return false;
                }
                self.remove_node_index(&node.name.clone());
                if !node.provider_id.is_empty() {
                    let names = self
                        .snapshot
                        .nodes_by_provider_id
                        .entry(node.provider_id.clone())
                        .or_default();
                    names.insert(node.name.clone());
                }
                self.snapshot
                    .nodes
                    .insert(node.name.clone(), Arc::new(node));
            }
            Event::NodeGone(name) => return self.remove_node(&name),
            Event::Claim(claim) => {
                let claim = Claim::from_api(Arc::new(*claim));
                let version = |c: &Claim| {
                    c.object
                        .metadata
                        .resource_version
                        .clone()
                        .unwrap_or_default()
                };
                let known = s
                    .claims
                    .get(&claim.name)
                    .map(|c| (c.uid.clone(), version(c)));
                if self.buried.contains(&claim.uid) || is_stale(known, &claim.uid, &version(&claim))
                {
                    return false;
                }
                self.unindex_claim(&claim.name);
                let s = &mut self.snapshot;
                if !claim.provider_id.is_empty() {
                    s.claims_by_provider_id
                        .entry(claim.provider_id.clone())
                        .or_default()
                        .insert(claim.name.clone());
                }
                s.claims.insert(claim.name.clone(), Arc::new(claim));
            }
            Event::ClaimGone(name) => return self.remove_claim(&name),
            Event::Pool(pool) => {
                let pool = Pool::from_api(Arc::new(*pool));
                let version = |p: &Pool| {
                    p.object
                        .metadata
                        .resource_version
                        .clone()
                        .unwrap_or_default()
                };
                let known = s.pools.get(&pool.name).map(|p| (p.uid.clone(), version(p)));
                if self.buried.contains(&pool.uid) || is_stale(known, &pool.uid, &version(&pool)) {
                    return false;
                }
                s.pools.insert(pool.name.clone(), Arc::new(pool));
            }
            Event::PoolGone(name) => {
                s.held_pools.remove(&name);
                let gone = s.pools.remove(name.as_str());
                return self.bury(gone.map(|p| p.uid.clone()));
            }
            Event::Class(class) => {
                let class = Class::from_api(Arc::new(*class));
                let id = |c: &Class| {
                    let meta = &c.object.metadata;
                    (
                        meta.uid.clone().unwrap_or_default(),
                        meta.resource_version.clone().unwrap_or_default(),
                    )
                };
                let (uid, version) = id(&class);
                let known = s.classes.get(&class.name).map(|c| id(c));
                if self.buried.contains(&uid) || is_stale(known, &uid, &version) {
                    return false;
                }
                s.classes.insert(class.name.clone(), Arc::new(class));
            }
            Event::ClassGone(name) => {
                s.catalogs.remove(&name);
                let gone = s.classes.remove(name.as_str());
                return self.bury(gone.and_then(|c| c.object.metadata.uid.clone()));
            }
            Event::DaemonSet(set) => {
                let set = DaemonSet::from_k8s(&set);
                s.daemon_sets.insert(set.key.clone(), Arc::new(set));
            }
            Event::DaemonSetGone(key) => return s.daemon_sets.remove(&key).is_some(),
            Event::Budget(budget) => {
                let budget = DisruptionBudgetState::from_k8s(&budget);
                s.budgets.insert(budget.key.clone(), Arc::new(budget));
            }
            Event::BudgetGone(key) => return s.budgets.remove(&key).is_some(),
            Event::Listed { resource, present } => return self.listed(resource, present, now),
            Event::InstanceTypes { class, types } => {
                s.catalogs.insert(class, types);
            }
            Event::Nominated(all) => {
                for (pod, place) in all.iter() {
                    if s.pods.get(pod).is_some_and(|p| !p.terminal) {
                        s.nominations.insert(pod.clone(), place.clone());
                    }
                }
            }
            Event::Leaving {
                provider_id,
                leaving: true,
            } => return s.leaving.insert(provider_id).is_none(),
            Event::Leaving {
                provider_id,
                leaving: false,
            } => return s.leaving.remove(&provider_id).is_some(),
            Event::PoolHeld {
                pool,
                hold: Some(hold),
            } => return s.held_pools.insert(pool, hold) != Some(hold),
            Event::PoolHeld { pool, hold: None } => return s.held_pools.remove(&pool).is_some(),
            Event::AssumedPool(pool) => {
                let pool = Pool::from_api(Arc::new(*pool));
                s.pools.insert(pool.name.clone(), Arc::new(pool));
            }
            Event::AssumedClass(class) => {
                let class = Class::from_api(Arc::new(*class));
                s.classes.insert(class.name.clone(), Arc::new(class));
            }
            Event::Malformed(object) => return s.malformed.insert(object).is_none(),
        }
        true
    }

    /// After a list, what is not in it is gone; the first list of every kind completes the picture.
    fn listed(&mut self, resource: &'static str, present: Vec<String>, now: Timestamp) -> bool {
        let present: BTreeSet<String> = present.into_iter().collect();
        let absent_pods = |keys: &mut dyn Iterator<Item = &PodKey>| -> Vec<PodKey> {
            keys.filter(|k| !present.contains(&k.to_string()))
                .cloned()
                .collect()
        };
        let absent = |names: &mut dyn Iterator<Item = &Arc<str>>| -> Vec<String> {
            names
                .filter(|n| !present.contains(&***n))
                .map(|n| n.to_string())
                .collect()
        };
        let s = &self.snapshot;
        let gone: Vec<Event> = match resource {
            "pods" => absent_pods(&mut s.pods.keys())
                .into_iter()
                .map(Event::PodGone)
                .collect(),
            "daemonsets" => absent_pods(&mut s.daemon_sets.keys())
                .into_iter()
                .map(Event::DaemonSetGone)
                .collect(),
            "poddisruptionbudgets" => absent_pods(&mut s.budgets.keys())
                .into_iter()
                .map(Event::BudgetGone)
                .collect(),
            "nodes" => absent(&mut s.nodes.keys())
                .into_iter()
                .map(Event::NodeGone)
                .collect(),
            "nodeclaims" => absent(&mut s.claims.keys())
                .into_iter()
                .map(Event::ClaimGone)
                .collect(),
            "nodepools" => absent(&mut s.pools.keys())
                .into_iter()
                .map(Event::PoolGone)
                .collect(),
            "ec2nodeclasses" => absent(&mut s.classes.keys())
                .into_iter()
                .map(Event::ClassGone)
                .collect(),
            _ => Vec::new(),
        };
        let mut changed = !gone.is_empty();
        for event in gone {
            self.change(event, now);
        }
        self.listed.insert(resource);
        let synced = WATCHED.iter().all(|r| self.listed.contains(r));
        changed |= synced != self.snapshot.synced;
        self.snapshot.synced = synced;
        changed
    }

    fn put_pod(&mut self, pod: Pod, now: Timestamp) {
        self.note_pod_event(&pod, now);
        let newly_bound = pod.node.is_some()
            && self
                .snapshot
                .pods
                .get(&pod.key)
                .is_none_or(|p| p.node.is_none());
        self.unindex_pod(&pod.key);
        let s = &mut self.snapshot;
        if !pod.terminal {
            match &pod.node {
                Some(node) => {
                    s.pods_by_node
                        .entry(node.clone())
                        .or_default()
                        .insert(pod.key.clone());
                    s.requested
                        .entry(node.clone())
                        .or_default()
                        .add(&pod.requests);
                }
                None => {
                    s.unbound.insert(pod.key.clone());
                }
            }
        }
        if newly_bound || pod.terminal {
            s.nominations.remove(&pod.key);
        }
        s.pods.insert(pod.key.clone(), Arc::new(pod));
    }

    /// Upstream's pod events (`spec/disruption-and-lifecycle.md` 1.13): newly bound, finished or terminating, for pods that are not a
    /// DaemonSet's.
    fn note_pod_event(&mut self, pod: &Pod, now: Timestamp) {
        let Some(node) = pod.node.clone().filter(|_| is_workload(pod)) else {
            return;
        };
        let before = self
            .snapshot
            .pods
            .get(&pod.key)
            .filter(|p| p.uid == pod.uid);
        let moved = before.is_none_or(|b| {
            b.node.is_none()
                || (pod.terminal && !b.terminal)
                || (pod.deletion.is_some() && b.deletion.is_none())
        });
        if moved {
            self.snapshot.pod_events.insert(node, now);
        }
    }

    fn unindex_pod(&mut self, key: &PodKey) {
        let s = &mut self.snapshot;
        s.unbound.remove(key);
        let Some((pod, node)) = s.pods.get(key).and_then(|p| Some((p, p.node.clone()?))) else {
            return;
        };
        if let Some(pods) = s.pods_by_node.get_mut(&node) {
            let was_counted = pods.remove(key).is_some();
            if pods.is_empty() {
                s.pods_by_node.remove(&node);
                s.requested.remove(&node);
            } else if was_counted && let Some(requested) = s.requested.get_mut(&node) {
                requested.sub(&pod.requests);
            }
        }
    }

    fn remove_pod(&mut self, key: &PodKey, now: Timestamp) -> bool {
        if let Some(node) = self
            .snapshot
            .pods
            .get(key)
            .filter(|p| is_workload(p))
            .and_then(|p| p.node.clone())
        {
            self.snapshot.pod_events.insert(node, now);
        }
        self.unindex_pod(key);
        self.snapshot.nominations.remove(key);
        let gone = self.snapshot.pods.remove(key);
        self.bury(gone.map(|p| p.uid.clone()))
    }

    fn remove_node_index(&mut self, name: &Arc<str>) {
        let s = &mut self.snapshot;
        let Some(id) = s.nodes.get(name).map(|n| n.provider_id.clone()) else {
            return;
        };
        let rest: Option<OrdSet<Arc<str>>> = s
            .nodes_by_provider_id
            .get(&id)
            .map(|names| names.without(name));
        match rest {
            Some(names) if names.is_empty() => {
                s.nodes_by_provider_id.remove(&id);
            }
            Some(names) => {
                s.nodes_by_provider_id.insert(id, names);
            }
            None => {}
        }
    }

    fn remove_node(&mut self, name: &str) -> bool {
        let name: Arc<str> = name.into();
        self.remove_node_index(&name);
        self.snapshot.pod_events.remove(&name);
        let gone = self.snapshot.nodes.remove(&name);
        self.bury(gone.map(|n| n.uid.clone()))
    }

    fn unindex_claim(&mut self, name: &Arc<str>) {
        let s = &mut self.snapshot;
        let Some(id) = s.claims.get(name).map(|c| c.provider_id.clone()) else {
            return;
        };
        if let Some(names) = s.claims_by_provider_id.get_mut(&id) {
            names.remove(name);
            if names.is_empty() {
                s.claims_by_provider_id.remove(&id);
            }
        }
    }

    fn remove_claim(&mut self, name: &str) -> bool {
        self.unindex_claim(&name.into());
        let s = &mut self.snapshot;
        let Some(claim) = s.claims.remove(name) else {
            return false;
        };
        s.leaving.remove(&claim.provider_id);
        let place = Nomination::Claim(claim.name.clone());
        let orphans: Vec<PodKey> = s
            .nominations
            .iter()
            .filter(|(_, p)| **p == place)
            .map(|(k, _)| k.clone())
            .collect();
        for pod in orphans {
            s.nominations.remove(&pod);
        }
        self.bury(Some(claim.uid.clone()))
    }

    fn bury(&mut self, uid: Option<String>) -> bool {
        let Some(uid) = uid else { return false };
        if self.buried.insert(uid.clone()) {
            self.burial_order.push_back(uid);
        }
        if self.burial_order.len() > TOMBSTONES
            && let Some(oldest) = self.burial_order.pop_front()
        {
            self.buried.remove(&oldest);
        }
        true
    }
}

fn is_workload(pod: &Pod) -> bool {
    !matches!(pod.owner, Owner::DaemonSet(_) | Owner::Node)
}

/// Whether a version of an object is not newer than the known one. Versions of one object compare as numbers (Kubernetes guarantees
/// it from 1.35 on, etcd has always behaved so); what is not a number is taken as newer.
fn is_stale(known: Option<(String, String)>, uid: &str, version: &str) -> bool {
    known.is_some_and(|(known_uid, known_version)| {
        known_uid == uid
            && matches!((known_version.parse::<u64>(), version.parse::<u64>()), (Ok(known), Ok(new)) if new <= known)
    })
}
