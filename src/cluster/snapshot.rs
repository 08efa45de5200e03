//! An immutable picture of the cluster, cheap to clone.

use std::{collections::BTreeMap, sync::Arc};

use imbl::{OrdMap, OrdSet};
use jiff::Timestamp;

use crate::{
    api::names,
    cloud::InstanceType,
    cluster::{
        Claim, Class, DaemonSet, DisruptionBudgetState, Malformed, Node, Pod, PodKey, Pool,
        StateNode,
    },
    units::{NODES, Resources},
};

/// Instance types of one node class, sorted by name.
pub type Catalog = Arc<Vec<Arc<InstanceType>>>;

/// Where a plan wants a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Nomination {
    /// An existing node, by name.
    Node(Arc<str>),
    /// A NodeClaim, by name; its node may not be there yet.
    Claim(Arc<str>),
}

/// A pool that must not launch for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Launches in a row that failed.
    pub failures: u32,
    /// No launches before this time.
    pub until: Timestamp,
}

/// The cluster at one revision. All maps iterate in key order.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Grows by one with each published change.
    pub revision: u64,
    /// True once every watched kind has been listed.
    pub synced: bool,
    /// Pods by namespace and name.
    pub pods: OrdMap<PodKey, Arc<Pod>>,
    /// Bound, unfinished pods by node name.
    pub pods_by_node: OrdMap<Arc<str>, OrdSet<PodKey>>,
    /// Sum of the requests of the pods of [`Self::pods_by_node`], by node name.
    pub requested: OrdMap<Arc<str>, Resources>,
    /// Pods without a node that are not finished.
    pub unbound: OrdSet<PodKey>,
    /// Nodes by name.
    pub nodes: OrdMap<Arc<str>, Arc<Node>>,
    /// Node names by provider id.
    pub nodes_by_provider_id: OrdMap<String, OrdSet<Arc<str>>>,
    /// NodeClaims by name.
    pub claims: OrdMap<Arc<str>, Arc<Claim>>,
    /// NodeClaim names by provider id.
    pub claims_by_provider_id: OrdMap<String, OrdSet<Arc<str>>>,
    /// NodePools by name.
    pub pools: OrdMap<Arc<str>, Arc<Pool>>,
    /// Node classes by name.
    pub classes: OrdMap<Arc<str>, Arc<Class>>,
    /// DaemonSets.
    pub daemon_sets: OrdMap<PodKey, Arc<DaemonSet>>,
    /// PodDisruptionBudgets.
    pub budgets: OrdMap<PodKey, Arc<DisruptionBudgetState>>,
    /// Instance types by node class.
    pub catalogs: OrdMap<String, Catalog>,
    /// Where plans want pods that are not bound yet.
    pub nominations: OrdMap<PodKey, Nomination>,
    /// Provider ids of nodes that we are taking out.
    pub leaving: OrdSet<String>,
    /// Pools that must not launch before a time.
    pub held_pools: OrdMap<String, Hold>,
    /// When a pod of a workload last came to or left a node, by node name; what the API remembers is on the claim.
    pub pod_events: OrdMap<Arc<str>, Timestamp>,
    /// Objects that could not be read.
    pub malformed: OrdSet<Malformed>,
}

impl Snapshot {
    /// Pods bound to a node, unfinished ones.
    pub fn pods_on<'a>(&'a self, node: &str) -> impl Iterator<Item = &'a Arc<Pod>> + use<'a> {
        let node: Arc<str> = node.into();
        self.pods_by_node
            .get(&node)
            .into_iter()
            .flatten()
            .filter_map(|k| self.pods.get(k))
    }

    /// The node that a claim became, if exactly one carries its provider id.
    pub fn node_of(&self, claim: &Claim) -> Option<&Arc<Node>> {
        if claim.provider_id.is_empty() {
            return None;
        }
        let names = self.nodes_by_provider_id.get(&claim.provider_id)?;
        if names.len() == 1 {
            names.get_min().and_then(|n| self.nodes.get(n))
        } else {
            None
        }
    }

    /// The claim of a node, if exactly one carries its provider id.
    pub fn claim_of(&self, node: &Node) -> Option<&Arc<Claim>> {
        if node.provider_id.is_empty() {
            return None;
        }
        let names = self.claims_by_provider_id.get(&node.provider_id)?;
        if names.len() == 1 {
            names.get_min().and_then(|n| self.claims.get(n))
        } else {
            None
        }
    }

    /// Nodes and claims merged (`spec/scheduling.md` 1.4), sorted by name: one entry per machine, launched or about to be.
    pub fn state_nodes(&self) -> Vec<StateNode> {
        let by_provider: BTreeMap<&str, &Arc<Claim>> = self
            .claims
            .values()
            .filter(|c| !c.provider_id.is_empty())
            .map(|c| (c.provider_id.as_str(), c))
            .collect();
        let mut all: Vec<StateNode> = self
            .nodes
            .values()
            .map(|n| {
                StateNode::new(
                    Some(n.clone()),
                    by_provider
                        .get(n.provider_id.as_str())
                        .map(|c| Arc::clone(c)),
                    self,
                )
            })
            .collect();
        let nodeless = self.claims.values().filter(|c| {
            c.provider_id.is_empty() || !self.nodes_by_provider_id.contains_key(&c.provider_id)
        });
        all.extend(nodeless.map(|c| StateNode::new(None, Some(c.clone()), self)));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// What each pool uses, counted from the moment of decision: capacity of its machines that are not leaving, with `nodes` as their
    /// number.
    pub fn pool_usage(&self) -> BTreeMap<Arc<str>, Resources> {
        let mut usage: BTreeMap<Arc<str>, Resources> = BTreeMap::new();
        for node in self.state_nodes() {
            if let Some(claim) = node
                .claim
                .as_ref()
                .filter(|c| !c.pool.is_empty() && !node.marked_for_deletion)
            {
                let used = usage.entry(claim.pool.clone()).or_default();
                used.add(&if claim.provider_id.is_empty() {
                    self.planned_capacity(claim)
                } else {
                    node.capacity()
                });
                used.set(NODES, used.get(NODES) + 1);
            }
        }
        usage
    }

    /// The most that a claim which has not launched may turn out to have: per resource the largest capacity among the instance types
    /// that it allows.
    fn planned_capacity(&self, claim: &Claim) -> Resources {
        let mut most = claim.requests.clone();
        let types = self.catalogs.get(&claim.object.spec.node_class_ref.name);
        let allowed = claim.requirements.get(names::label::INSTANCE_TYPE);
        for instance_type in types.into_iter().flat_map(|t| t.iter()) {
            if allowed.is_some_and(|r| r.has(&instance_type.name)) {
                most.max_with(&instance_type.capacity);
            }
        }
        most
    }
}
