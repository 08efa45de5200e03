//! Nodes with what runs on them, kept up to date by events and never rebuilt.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

use crate::{
    cluster,
    lab::api::Key,
    units::{self, Resources},
};

/// What kube-scheduler takes for a container that requests no CPU (millicores) when it scores.
const DEFAULT_CPU: i64 = 100;
/// What kube-scheduler takes for a container that requests no memory (bytes) when it scores.
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// A pod's amounts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Demand {
    /// Effective requests, one pod slot included.
    pub(super) requests: Resources,
    /// CPU in millicores for scoring.
    pub(super) scored_cpu: i64,
    /// Memory in bytes for scoring.
    pub(super) scored_memory: i64,
}

impl Demand {
    pub(super) fn new(requests: Resources, spec: &core::PodSpec) -> Self {
        let without = |resource: &str| {
            let missing = spec.containers.iter().filter(|c| {
                let asked = c.resources.as_ref().and_then(|r| r.requests.as_ref());
                asked.is_none_or(|r| !r.contains_key(resource))
            });
            i64::try_from(missing.count()).unwrap_or(0)
        };
        Self {
            scored_cpu: requests.get(units::CPU) + without(units::CPU) * DEFAULT_CPU,
            scored_memory: requests.get(units::MEMORY) + without(units::MEMORY) * DEFAULT_MEMORY,
            requests,
        }
    }
}

/// One node, seen or only named by pods bound to it.
#[derive(Debug, Default)]
pub(super) struct NodeInfo {
    /// The node, once seen.
    pub(super) node: Option<Arc<cluster::Node>>,
    /// What the pods on it request.
    pub(super) requested: Resources,
    /// Allocatable less requested.
    pub(super) free: Resources,
    /// CPU of its pods for scoring, millicores.
    pub(super) scored_cpu: i64,
    /// Memory of its pods for scoring, bytes.
    pub(super) scored_memory: i64,
    /// Number of this state of the node, unique over all nodes.
    pub(super) stamp: u64,
}

/// The nodes by slot, and the pods bound to them.
#[derive(Debug, Default)]
pub(super) struct Cache {
    slots: Vec<NodeInfo>,
    by_name: BTreeMap<Arc<str>, usize>,
    unused: Vec<usize>,
    bound: BTreeMap<Key, (Arc<str>, Arc<Demand>)>,
    /// Slots of the nodes seen, by name.
    order: Vec<usize>,
    stamps: u64,
    /// Changes whenever a pod refused before might be admitted now, or refused for other reasons.
    pub(super) room: u64,
}

/// Whether a change of a node matters to a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeChange {
    /// A node that was not there.
    Added,
    /// Labels, taints, annotations, readiness, allocatable or `unschedulable` differ.
    Changed,
    /// Nothing that a scheduler looks at.
    Nothing,
}

impl Cache {
    /// Slots of the nodes seen, in order of name.
    pub(super) fn order(&self) -> &[usize] {
        &self.order
    }

    pub(super) fn info(&self, slot: usize) -> &NodeInfo {
        &self.slots[slot]
    }

    /// The slot of a node that has been seen.
    pub(super) fn slot(&self, name: &str) -> Option<usize> {
        let slot = *self.by_name.get(name)?;
        self.slots[slot].node.is_some().then_some(slot)
    }

    /// The node a pod is bound to.
    pub(super) fn node_of(&self, pod: &Key) -> Option<&str> {
        self.bound.get(pod).map(|(node, _)| &**node)
    }

    pub(super) fn set_node(&mut self, node: cluster::Node) -> NodeChange {
        let slot = self.slot_for(&node.name);
        let change = match &self.slots[slot].node {
            None => NodeChange::Added,
            Some(old) if looks_same(old, &node) => NodeChange::Nothing,
            Some(_) => NodeChange::Changed,
        };
        self.slots[slot].node = Some(Arc::new(node));
        if change == NodeChange::Nothing {
            return change;
        }
        self.touch(slot);
        self.room += 1;
        if change == NodeChange::Added {
            self.reorder();
        }
        change
    }

    /// Forgets a node; pods bound to it are remembered until they go.
    pub(super) fn remove_node(&mut self, name: &str) -> bool {
        let Some(slot) = self.slot(name) else {
            return false;
        };
        self.slots[slot].node = None;
        self.touch(slot);
        self.room += 1;
        self.reorder();
        self.release(name);
        true
    }

    /// Notes that a pod takes its share of a node.
    pub(super) fn bind(&mut self, pod: &Key, node: &str, demand: &Arc<Demand>) {
        if self.node_of(pod) == Some(node) {
            return;
        }
        self.unbind(pod);
        let slot = self.slot_for(node);
        let info = &mut self.slots[slot];
        info.requested.add(&demand.requests);
        info.scored_cpu += demand.scored_cpu;
        info.scored_memory += demand.scored_memory;
        self.touch(slot);
        self.bound
            .insert(pod.clone(), (node.into(), demand.clone()));
    }

    /// Gives a pod's share back; the node it was on.
    pub(super) fn unbind(&mut self, pod: &Key) -> Option<Arc<str>> {
        let (node, demand) = self.bound.remove(pod)?;
        let slot = *self.by_name.get(&node)?;
        let info = &mut self.slots[slot];
        info.requested.sub(&demand.requests);
        info.scored_cpu -= demand.scored_cpu;
        info.scored_memory -= demand.scored_memory;
        self.touch(slot);
        self.room += 1;
        self.release(&node);
        Some(node)
    }

    fn slot_for(&mut self, name: &str) -> usize {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.unused.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(NodeInfo::default());
        }
        self.by_name.insert(name.into(), slot);
        slot
    }

    /// Lets go of a slot that neither a node nor a pod needs.
    fn release(&mut self, name: &str) {
        let Some(slot) = self.by_name.get(name).copied() else {
            return;
        };
        let info = &mut self.slots[slot];
        if info.node.is_none() && info.requested.get(units::PODS) == 0 {
            *info = NodeInfo::default();
            self.by_name.remove(name);
            self.unused.push(slot);
        }
    }

    fn touch(&mut self, slot: usize) {
        self.stamps += 1;
        let info = &mut self.slots[slot];
        info.stamp = self.stamps;
        info.free = match &info.node {
            Some(node) => node.allocatable.clone(),
            None => Resources::default(),
        };
        info.free.sub(&info.requested);
    }

    fn reorder(&mut self) {
        let seen = self.by_name.values().copied();
        self.order = seen.filter(|s| self.slots[*s].node.is_some()).collect();
    }
}

fn looks_same(old: &cluster::Node, new: &cluster::Node) -> bool {
    old.labels == new.labels
        && old.taints == new.taints
        && old.annotations == new.annotations
        && old.readiness == new.readiness
        && old.allocatable == new.allocatable
        && old.cordoned == new.cordoned
}
