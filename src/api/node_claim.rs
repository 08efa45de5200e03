//! NodeClaim: one wanted node, from the decision to launch it until its instance is gone.

#![allow(
    clippy::duplicated_attributes,
    reason = "the lint takes the keys of several printer columns for one"
)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::node_pool::DEFAULT_EXPIRE_AFTER;
use crate::units::{NillableDuration, Quantity};

/// What one node must be. Immutable after creation.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.sh",
    version = "v1",
    kind = "NodeClaim",
    plural = "nodeclaims",
    singular = "nodeclaim",
    category = "karpenter",
    doc = "NodeClaim is the Schema for the NodeClaims API: one wanted node and what became of it.",
    status = "NodeClaimStatus",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Type",
        type_ = "string",
        json_path = ".metadata.labels.node\\.kubernetes\\.io/instance-type"
    ),
    printcolumn(
        name = "Capacity",
        type_ = "string",
        json_path = ".metadata.labels.karpenter\\.sh/capacity-type"
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".metadata.labels.topology\\.kubernetes\\.io/zone"
    ),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
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
        name = "ImageID",
        type_ = "string",
        json_path = ".status.imageID",
        priority = 1
    ),
    printcolumn(
        name = "ID",
        type_ = "string",
        json_path = ".status.providerID",
        priority = 1
    ),
    printcolumn(
        name = "NodePool",
        type_ = "string",
        json_path = ".metadata.labels.karpenter\\.sh/nodepool",
        priority = 1
    ),
    printcolumn(
        name = "NodeClass",
        type_ = "string",
        json_path = ".spec.nodeClassRef.name",
        priority = 1
    ),
    printcolumn(
        name = "Drifted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Drifted\")].status",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimSpec {
    /// What instances are acceptable; an empty list accepts any.
    pub requirements: Vec<RequirementSpec>,
    /// The class that says how the instance is made.
    pub node_class_ref: NodeClassRef,
    /// The least that the node must hold.
    #[serde(skip_serializing_if = "ResourceRequests::is_empty")]
    pub resources: ResourceRequests,
    /// Taints that the node keeps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Taints that the node starts with and that something else removes before it counts as initialized.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub startup_taints: Vec<Taint>,
    /// How long after its creation the node is removed, or Never.
    pub expire_after: NillableDuration,
    /// The longest a drain may take; absent means without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub termination_grace_period: Option<NillableDuration>,
}

impl Default for NodeClaimSpec {
    fn default() -> Self {
        Self {
            requirements: Vec::new(),
            node_class_ref: NodeClassRef::default(),
            resources: ResourceRequests::default(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            expire_after: NillableDuration::from_raw(DEFAULT_EXPIRE_AFTER),
            termination_grace_period: None,
        }
    }
}

/// The least that a node must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRequests {
    /// Amounts by resource name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

impl ResourceRequests {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

/// One requirement on a label, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RequirementSpec {
    /// The label's key.
    pub key: String,
    /// In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte.
    pub operator: String,
    /// For In and NotIn any number of values, for Gt, Lt, Gte and Lte one non-negative integer, else none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// How many distinct values of the label must stay available for the launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_values: Option<i32>,
}

/// A taint, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What happens to pods that do not tolerate it: NoSchedule, PreferNoSchedule or NoExecute.
    pub effect: String,
    /// When the taint was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Time>,
}

/// Which class says how instances are made.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClassRef {
    /// Group of the class, without version.
    pub group: String,
    /// Kind of the class.
    pub kind: String,
    /// Name of the class.
    pub name: String,
    /// Deprecated: group says it. Turned into group by the defaulting webhook, otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
}

/// What became of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClaimStatus {
    /// Name of the Node, once it has registered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    /// The instance, as the Node's spec.providerID has it.
    #[serde(rename = "providerID", skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// The image that the instance was started from.
    #[serde(rename = "imageID", skip_serializing_if = "String::is_empty")]
    pub image_id: String,
    /// What the instance is expected to hold.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    /// What is expected to be left for pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// When a pod that is no daemon's was last bound, ended or began to terminate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pod_event_time: Option<Time>,
    /// Launched, Registered, Initialized, Ready and those of disruption and termination.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
