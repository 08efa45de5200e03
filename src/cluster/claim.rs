//! NodeClaims, parsed once.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use crate::{
    api::{NodeClaim, conditions, names, requirement::Requirements, taint::Taint},
    cluster::pool,
    units::{Resources, Rounding},
};

/// A NodeClaim with what the solver and the lifecycle read of it.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The object as the API has it.
    pub object: Arc<NodeClaim>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: String,
    /// NodePool name, empty for a standalone claim.
    pub pool: Arc<str>,
    /// `status.providerID`, empty until launched.
    pub provider_id: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// `spec.requirements` (what cannot be read is left out; admission refuses such claims).
    pub requirements: Requirements,
    /// `spec.resources.requests`: what the claim was planned to hold.
    pub requests: Resources,
    /// `spec.taints`.
    pub taints: Vec<Taint>,
    /// `spec.startupTaints`.
    pub startup_taints: Vec<Taint>,
    /// `status.capacity`.
    pub capacity: Resources,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// Creation time.
    pub created: Timestamp,
    /// Deletion time.
    pub deletion: Option<Timestamp>,
    /// `status.lastPodEventTime`.
    pub last_pod_event: Option<Timestamp>,
}

impl Claim {
    /// Reads a claim of the API.
    pub fn from_api(object: Arc<NodeClaim>) -> Self {
        let meta = &object.metadata;
        let status = object.status.clone().unwrap_or_default();
        let labels = meta.labels.clone().unwrap_or_default();
        Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.clone().unwrap_or_default(),
            pool: labels
                .get(names::label::NODEPOOL)
                .map(String::as_str)
                .unwrap_or_default()
                .into(),
            provider_id: status.provider_id.clone(),
            requirements: pool::requirements(&object.spec.requirements).0,
            requests: pool::amounts(&object.spec.resources.requests, Rounding::Up),
            taints: pool::taints(&object.spec.taints),
            startup_taints: pool::taints(&object.spec.startup_taints),
            capacity: pool::amounts(&status.capacity, Rounding::Down),
            allocatable: pool::amounts(&status.allocatable, Rounding::Down),
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            deletion: meta.deletion_timestamp.as_ref().map(|t| t.0),
            last_pod_event: status.last_pod_event_time.as_ref().map(|t| t.0),
            labels,
            object,
        }
    }

    /// Whether a condition is True.
    pub fn is(&self, condition: &str) -> bool {
        self.object
            .status
            .as_ref()
            .is_some_and(|s| conditions::is_true(&s.conditions, condition))
    }
}
