//! Nodes, parsed once.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;

use crate::{
    api::taint::Taint,
    units::{Resources, Rounding},
};

/// Condition Ready of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// True.
    Ready,
    /// False or Unknown.
    NotReady,
}

/// A Node. Immutable; a change makes a new one.
#[derive(Clone, Debug)]
pub struct Node {
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: String,
    /// API version of the object, for preconditions.
    pub resource_version: String,
    /// `spec.providerID`, empty until the kubelet or cloud controller sets it.
    pub provider_id: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable` (cordoned).
    pub cordoned: bool,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Owner UIDs.
    pub owners: Vec<String>,
    /// Status capacity.
    pub capacity: Resources,
    /// Status allocatable.
    pub allocatable: Resources,
    /// Condition Ready.
    pub readiness: Readiness,
    /// Creation time.
    pub created: Timestamp,
    /// Deletion time.
    pub deletion: Option<Timestamp>,
}

impl Node {
    /// Reads a node of the API. Amounts that cannot be read count as absent.
    pub fn from_k8s(node: &core::Node) -> Self {
        let meta = &node.metadata;
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.clone().unwrap_or_default();
        let amounts = |list: &Option<
            BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
        >| {
            Resources::from_k8s(&list.clone().unwrap_or_default(), Rounding::Down)
                .unwrap_or_default()
        };
        let ready = status
            .conditions
            .iter()
            .flatten()
            .any(|c| c.type_ == "Ready" && c.status == "True");
        Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            provider_id: spec.provider_id.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
            taints: spec
                .taints
                .iter()
                .flatten()
                .map(|t| Taint {
                    key: t.key.clone(),
                    value: t.value.clone().unwrap_or_default(),
                    effect: t.effect.clone(),
                })
                .collect(),
            cordoned: spec.unschedulable.unwrap_or(false),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            owners: meta
                .owner_references
                .iter()
                .flatten()
                .map(|o| o.uid.clone())
                .collect(),
            capacity: amounts(&status.capacity),
            allocatable: amounts(&status.allocatable),
            readiness: if ready {
                Readiness::Ready
            } else {
                Readiness::NotReady
            },
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            deletion: meta.deletion_timestamp.as_ref().map(|t| t.0),
        }
    }
}
