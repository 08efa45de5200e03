//! Where would these pods go? The solver: pure, deterministic, the one answer that launching, disruption, the extender, admission
//! advice and explanations share.
//!
//! Entry point: [`Problem::from_snapshot`], then [`solve`]. Must never: do I/O, read a clock, or change a snapshot.

mod bound;
mod classes;
mod daemons;
mod explain;
mod finish;
mod go_sort;
mod input;
mod model;
mod pass;
mod sets;
mod shelves;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

pub use bound::lower_bound_per_hour;
pub use pass::solve;

use crate::{
    api::requirement::{Conflict, Requirements},
    cloud::InstanceType,
    cluster::{Catalog, Pod, PodKey, Pool, StateNode},
    units::Resources,
};

/// How preferences are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreferencePolicy {
    /// Treat preferences as wishes: try with, then without.
    #[default]
    Respect,
    /// Do not look at preferences.
    Ignore,
}

/// What happens when `minValues` cannot be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MinValuesPolicy {
    /// The claim is not opened.
    #[default]
    Strict,
    /// The number is lowered to what there is, and the claim says so.
    BestEffort,
}

/// How a pool's `nodes` limit is counted while a pass opens nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeLimit {
    /// Each node that the pass opens counts at once.
    #[default]
    Counted,
    /// Only what is there when the pass begins counts, as upstream does: one pass may open more nodes than the limit.
    AtStart,
}

/// Settings of a pass.
#[derive(Clone, Debug)]
pub struct Options {
    /// Preferences.
    pub preferences: PreferencePolicy,
    /// minValues.
    pub min_values: MinValuesPolicy,
    /// Limit on nodes.
    pub node_limit: NodeLimit,
    /// Most instance types kept on a claim; upstream keeps 600.
    pub max_instance_types: usize,
    /// Label keys beside the built-in ones that new nodes may have although nothing defines them.
    pub extra_well_known: Vec<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
            node_limit: NodeLimit::Counted,
            max_instance_types: 600,
            extra_well_known: Vec::new(),
        }
    }
}

/// One pass: what to place, and where it may go.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Pods to place, pods of leaving nodes included.
    pub pods: Vec<Arc<Pod>>,
    /// Machines that stay, in flight ones included.
    pub nodes: Vec<StateNode>,
    /// Usable pools with their instance types, in upstream's order: weight descending, then name descending.
    pub pools: Vec<(Arc<Pool>, Catalog)>,
    /// Pools that would be usable but may not launch now, with the reason: held back, or their instance types are not known yet.
    pub refusing: Vec<(Arc<Pool>, Refusal)>,
    /// What each pool uses already, `nodes` included.
    pub usage: BTreeMap<Arc<str>, Resources>,
    /// The pod of each DaemonSet.
    pub daemons: Vec<Arc<Pod>>,
    /// Where earlier plans want pods: tried first, so that plans do not flap while nodes start.
    pub nominations: BTreeMap<PodKey, crate::cluster::Nomination>,
    /// Pods that wait but are not tried, and why.
    pub ignored: BTreeMap<PodKey, Ignored>,
    /// Settings.
    pub options: Options,
}

/// A node to be made.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// The pool that it comes from.
    pub pool: Arc<Pool>,
    /// Pods planned onto it.
    pub pods: Vec<PodKey>,
    /// What it must satisfy, the pool's requirements included, placeholder hostname excluded.
    pub requirements: Requirements,
    /// Requests of its pods plus the DaemonSet overhead.
    pub requests: Resources,
    /// Instance types that hold the pods, cheapest first.
    pub instance_types: Vec<Arc<InstanceType>>,
    /// Price per hour of the cheapest launchable offering among them, USD.
    pub price_per_hour: f64,
    /// Zone and capacity type of that offering.
    pub offering: (Arc<str>, crate::cloud::CapacityType),
    /// Whether `minValues` had to be lowered.
    pub min_values_relaxed: bool,
}

/// Why a pod was not handed to the solver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// Not waiting for a node.
    NotProvisionable,
    /// The pod rules every NodePool out by `karpenter.sh/nodepool DoesNotExist`.
    OptedOut,
    /// A selector names a label that only the node itself may have.
    RestrictedLabel(String),
    /// An operator or value that cannot be read.
    Malformed(String),
    /// `matchFields` in a required term.
    MatchFields,
    /// No listed value of a key with a closed set is known.
    UnknownValue(String),
}

/// Why one pool did not take a pod. Data, so that explanations, events and tests read the same.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Taints of the pool that the pod does not tolerate.
    Taint(Vec<crate::api::taint::Taint>),
    /// A label that the pool does not define.
    UndefinedLabel(Conflict),
    /// Keys on which pod and pool are disjoint.
    Requirements(Vec<Conflict>),
    /// The pool's node limit is reached.
    NodeLimit,
    /// Every instance type that is left exceeds what remains of the pool's limits.
    Limits {
        /// Limited resources that no candidate type fits into, with what remains.
        remaining: Resources,
    },
    /// `minValues` cannot be met, by key.
    MinValues(Vec<String>),
    /// No instance type passes; see the parts.
    InstanceTypes(TypeRefusal),
    /// The pool may not launch until then, after launches that failed.
    Held(Timestamp),
    /// The instance types of the pool's node class are not known yet.
    NoCatalog,
    /// A selector that cannot be read.
    Malformed(String),
    /// A hard constraint that the solver does not know yet.
    Unsupported(Vec<&'static str>),
}

/// What no candidate instance type of a pool met.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeRefusal {
    /// Some type met the requirements.
    pub requirements_met: bool,
    /// Some type had the resources (with a usable offering, as upstream counts).
    pub resources_met: bool,
    /// Some type had a usable offering.
    pub offering_met: bool,
    /// Which pairs some type met together: requirements+resources, requirements+offering, resources+offering.
    pub pairs_met: [bool; 3],
    /// What was asked for in total, DaemonSet overhead of the smallest kind included.
    pub requested: Resources,
    /// The instance type that came nearest, and what it lacks per resource.
    pub nearest: Option<(Arc<str>, Resources)>,
}

/// Why a pod was not placed.
#[derive(Clone, Debug, PartialEq)]
pub enum Pending {
    /// No usable NodePool.
    NoPools,
    /// No NodePool has an instance type that its own requirements admit.
    NoInstanceTypes,
    /// Each pool's reason, in pool order.
    Refused(Vec<(Arc<str>, Refusal)>),
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Nodes to make.
    pub new_nodes: Vec<NewNode>,
    /// Pods placed on existing or starting nodes, by state node name.
    pub existing: BTreeMap<Arc<str>, Vec<PodKey>>,
    /// Pods without a place.
    pub pending: BTreeMap<PodKey, Pending>,
    /// Pods that were not tried.
    pub ignored: BTreeMap<PodKey, Ignored>,
    /// Pools whose own requirements leave no instance type.
    pub empty_pools: Vec<Arc<str>>,
}

#[cfg(test)]
mod tests;
