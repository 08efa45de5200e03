//! What the writer of the cluster state hears.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1 as apps, core::v1 as core, policy::v1 as policy};

use crate::{
    api::{EC2NodeClass, NodeClaim, NodePool},
    cluster::{Catalog, Hold, Nomination, PodKey},
};

/// An object that could not be read; it is reported once and skipped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Malformed {
    /// Kind.
    pub kind: &'static str,
    /// Namespace and name, as far as known.
    pub name: String,
    /// What is wrong.
    pub reason: String,
}

/// A change of the cluster. Applying an event twice, or an older version after a newer one, changes nothing.
#[derive(Clone, Debug)]
pub enum Event {
    /// A pod was added or changed.
    Pod(Box<core::Pod>),
    /// A pod is gone.
    PodGone(PodKey),
    /// A node was added or changed.
    Node(Box<core::Node>),
    /// A node is gone, by name.
    NodeGone(String),
    /// A NodeClaim was added or changed.
    Claim(Box<NodeClaim>),
    /// A NodeClaim is gone, by name.
    ClaimGone(String),
    /// A NodePool was added or changed.
    Pool(Box<NodePool>),
    /// A NodePool is gone, by name.
    PoolGone(String),
    /// A node class was added or changed.
    Class(Box<EC2NodeClass>),
    /// A node class is gone, by name.
    ClassGone(String),
    /// A DaemonSet was added or changed.
    DaemonSet(Box<apps::DaemonSet>),
    /// A DaemonSet is gone, by namespace and name.
    DaemonSetGone(PodKey),
    /// A PodDisruptionBudget was added or changed.
    Budget(Box<policy::PodDisruptionBudget>),
    /// A PodDisruptionBudget is gone, by namespace and name.
    BudgetGone(PodKey),
    /// Everything of a kind was listed again: what is not among these names is gone.
    Listed {
        /// Plural resource name, e.g. `pods`.
        resource: &'static str,
        /// Namespace/name (or name) of every object in the list.
        present: Vec<String>,
    },
    /// The cloud told the instance types of a node class.
    InstanceTypes {
        /// Node class name.
        class: String,
        /// Types with offerings.
        types: Catalog,
    },
    /// A plan chose places for pods.
    Nominated(Arc<Vec<(PodKey, Nomination)>>),
    /// A node is being taken out on our decision, or no longer (in memory, before its taint is seen).
    Leaving {
        /// Provider id.
        provider_id: String,
        /// True when it is leaving.
        leaving: bool,
    },
    /// A pool is held back after launches that failed, or no longer.
    PoolHeld {
        /// NodePool name.
        pool: String,
        /// The hold; `None` lifts it.
        hold: Option<Hold>,
    },
    /// A NodePool as our own write would leave it, in advise mode, where nothing is written; counts until the API tells a newer one.
    AssumedPool(Box<NodePool>),
    /// The same for a node class.
    AssumedClass(Box<EC2NodeClass>),
    /// An object could not be read.
    Malformed(Malformed),
}
