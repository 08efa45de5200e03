//! NodePool: what nodes may be made, and when they may go.

#![allow(
    clippy::duplicated_attributes,
    reason = "the lint takes the keys of several printer columns for one"
)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::Condition;
use super::node_claim::{NodeClassRef, RequirementSpec, Taint};
use crate::units::{NillableDuration, Quantity};

/// How long a node lives if nothing is said.
pub const DEFAULT_EXPIRE_AFTER: &str = "720h";
/// How many nodes may be disrupted at once if nothing is said.
pub const DEFAULT_BUDGET_NODES: &str = "10%";
/// The consolidation policy if nothing is said.
pub const WHEN_EMPTY_OR_UNDERUTILIZED: &str = "WhenEmptyOrUnderutilized";
/// Only empty nodes are consolidated.
pub const WHEN_EMPTY: &str = "WhenEmpty";
/// A move must save enough for the disruption it causes.
pub const BALANCED: &str = "Balanced";

const EMPTY: &BTreeMap<String, String> = &BTreeMap::new();

/// What nodes may be made, from which class, within which limits, and how they are disrupted.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodePool",
    plural = "nodepools",
    singular = "nodepool",
    category = "karpenter",
    doc = "NodePool is the Schema for the NodePools API: what nodes may be made, and when they may go.",
    status = "NodePoolStatus",
    derive = "PartialEq",
    derive = "Default",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.nodes"
    ),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.template.spec.nodeClassRef.name"
    ),
    printcolumn(name = "Nodes", type_ = "string", json_path = ".status.nodes"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Weight",
        type_ = "integer",
        json_path = ".spec.weight",
        priority = 1
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        json_path = ".status.resources.cpu",
        priority = 1
    ),
    printcolumn(
        name = "Memory",
        type_ = "string",
        json_path = ".status.resources.memory",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolSpec {
    /// What each NodeClaim of the pool looks like.
    pub template: NodeClaimTemplate,
    /// When and how fast nodes may be disrupted.
    pub disruption: Disruption,
    /// The most the pool may hold in sum, by resource name; `nodes` counts nodes. Absent means no limit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Quantity>,
    /// Pools of higher weight are tried first, absent counts as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
    /// Keeps this many nodes whatever the pods ask for. A pool cannot change between having and not having it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
}

/// What each NodeClaim of a pool looks like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimTemplate {
    /// Labels and annotations of claims and nodes.
    #[serde(skip_serializing_if = "TemplateMetadata::is_unset")]
    pub metadata: TemplateMetadata,
    /// The claim's spec.
    pub spec: NodeClaimTemplateSpec,
}

/// Labels and annotations that claims and nodes of a pool get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMetadata {
    /// Labels of claims and nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of claims and nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

impl TemplateMetadata {
    /// The labels, empty if none were written.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        self.labels.as_ref().unwrap_or(EMPTY)
    }

    /// The annotations, empty if none were written.
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        self.annotations.as_ref().unwrap_or(EMPTY)
    }

    fn is_unset(&self) -> bool {
        self.labels.is_none() && self.annotations.is_none()
    }
}

/// The spec of each NodeClaim of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimTemplateSpec {
    /// What instances are acceptable; an empty list accepts any.
    pub requirements: Vec<RequirementSpec>,
    /// The class that says how instances are made.
    pub node_class_ref: NodeClassRef,
    /// Taints that nodes keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,
    /// Taints that nodes start with and that something else removes before the node counts as initialized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_taints: Option<Vec<Taint>>,
    /// How long after its creation a node is removed, or Never.
    pub expire_after: NillableDuration,
    /// The longest a drain may take; absent means without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<NillableDuration>,
    /// Deprecated: kubelet settings belong to the class. Moved or dropped by the defaulting webhook, otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<BTreeMap<String, Value>>,
}

impl NodeClaimTemplateSpec {
    /// The taints, empty if none were written.
    pub fn taints(&self) -> &[Taint] {
        self.taints.as_deref().unwrap_or_default()
    }

    /// The start-up taints, empty if none were written.
    pub fn startup_taints(&self) -> &[Taint] {
        self.startup_taints.as_deref().unwrap_or_default()
    }
}

impl Default for NodeClaimTemplateSpec {
    fn default() -> Self {
        Self {
            requirements: Vec::new(),
            node_class_ref: NodeClassRef::default(),
            taints: None,
            startup_taints: None,
            expire_after: NillableDuration::from_raw(DEFAULT_EXPIRE_AFTER),
            termination_grace_period: None,
            kubelet: None,
        }
    }
}

/// When and how fast nodes of a pool may be disrupted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// How long a node must be left alone by pods before it may be consolidated, or Never.
    pub consolidate_after: NillableDuration,
    /// Which nodes may be consolidated: WhenEmpty, WhenEmptyOrUnderutilized or Balanced.
    pub consolidation_policy: String,
    /// How many nodes may be disrupted at once; of those that are active and apply, the smallest counts. An empty list
    /// means no cap.
    pub budgets: Vec<Budget>,
    /// Deprecated: belongs to template.spec. Moved there by the defaulting webhook, otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<String>,
}

impl Default for Disruption {
    fn default() -> Self {
        Self {
            consolidate_after: NillableDuration::from_raw("0s"),
            consolidation_policy: WHEN_EMPTY_OR_UNDERUTILIZED.to_owned(),
            budgets: vec![Budget::default()],
            expire_after: None,
        }
    }
}

/// How many nodes may be disrupted at once, when, and for which reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Budget {
    /// A number of nodes, or a percentage of the pool's nodes, rounded up.
    pub nodes: String,
    /// When the budget begins to be active: five cron fields or an @ name, in UTC. Comes with duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// How long the budget stays active from each firing of the schedule: hours and minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// The reasons that the budget applies to; absent means every one, an empty list means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<String>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            nodes: DEFAULT_BUDGET_NODES.to_owned(),
            schedule: None,
            duration: None,
            reasons: None,
        }
    }
}

/// What the pool holds at present.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolStatus {
    /// Sum of the capacity of the pool's nodes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Quantity>,
    /// Number of the pool's nodes.
    pub nodes: i64,
    /// Generation of the class at which the health of registration was last reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_class_observed_generation: Option<i64>,
    /// ValidationSucceeded, NodeClassReady, NodeRegistrationHealthy, Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
