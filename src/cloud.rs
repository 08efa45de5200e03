//! What Tenon asks of a cloud: a few verbs, instance types with offerings, and errors sorted into classes.
//!
//! The pure rooms import only the types here. Providers: [`simulated`] (in memory, our clock); EC2 joins behind the same trait.
//! Must never: know about Kubernetes objects other than the API types, or decide what to launch beyond choosing among the offerings
//! that a [`LaunchRequest`] allows.

pub mod ami_family;
pub mod catalog;
mod error;
pub mod hardware;
pub mod instance_type;
pub mod simulated;

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use jiff::Timestamp;

pub use error::{CloudError, ErrorClass};
pub use instance_type::{CapacityType, InstanceType, Offering};

use crate::{
    api::{EC2NodeClass, requirement::Requirements},
    units::Resources,
};

/// What to launch for one NodeClaim. The provider picks one offering that the requirements admit: the cheapest usable one of the
/// preferred capacity type (reserved, then spot, then on-demand).
#[derive(Clone, Debug)]
pub struct LaunchRequest {
    /// Idempotency token: the same token never makes a second instance (the NodeClaim's UID).
    pub token: String,
    /// NodeClaim name, for tags and messages.
    pub claim: String,
    /// NodePool name, for tags; empty for a claim without a pool.
    pub pool: String,
    /// The node class to launch with.
    pub class: Arc<EC2NodeClass>,
    /// What the instance must satisfy: types, zones, capacity types.
    pub requirements: Requirements,
    /// What must fit on it.
    pub requests: Resources,
    /// Labels that the node must come up with.
    pub labels: BTreeMap<String, String>,
    /// Taints (startup taints included) that the node registers with.
    pub taints: Vec<crate::api::taint::Taint>,
}

/// An instance as the cloud tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// `aws:///<zone>/<instance-id>`.
    pub provider_id: String,
    /// The token of the launch that made it.
    pub token: String,
    /// NodeClaim that it was launched for (a tag).
    pub claim: String,
    /// Instance type name.
    pub instance_type: String,
    /// Zone name.
    pub zone: String,
    /// Spot, on-demand or reserved.
    pub capacity_type: CapacityType,
    /// Image id.
    pub image: String,
    /// Price per hour in USD at launch.
    pub price_per_hour: f64,
    /// When it was launched.
    pub launched: Timestamp,
    /// Whether termination has been asked for and is under way.
    pub terminating: bool,
    /// Labels that the provider resolved (type, zone, capacity type, hardware labels).
    pub labels: BTreeMap<String, String>,
    /// Expected capacity of the node.
    pub capacity: Resources,
    /// Expected allocatable of the node.
    pub allocatable: Resources,
}

/// What a node class resolves to: status fields and the reason when it is not usable.
#[derive(Clone, Debug, Default)]
pub struct ResolvedClass {
    /// Status as it should be written, conditions excluded.
    pub status: crate::api::EC2NodeClassStatus,
    /// Condition type, reason and message of each part that could not be resolved.
    pub problems: Vec<(String, String, String)>,
}

/// The cloud. Every call may take long or fail; callers set a time-out.
pub trait Cloud: Send + Sync {
    /// Instance types with their current offerings for a class, sorted by name.
    fn instance_types<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<Arc<Vec<Arc<InstanceType>>>, CloudError>>;

    /// Resolves images, subnets, security groups and profile of a class.
    fn resolve_class<'a>(
        &'a self,
        class: &'a EC2NodeClass,
    ) -> BoxFuture<'a, Result<ResolvedClass, CloudError>>;

    /// Launches one instance, idempotent by token.
    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<Instance, CloudError>>;

    /// One instance; `ErrorClass::NotFound` once it is gone.
    fn get<'a>(&'a self, provider_id: &'a str) -> BoxFuture<'a, Result<Instance, CloudError>>;

    /// Every instance of this cluster that is not gone, sorted by provider id.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>>;

    /// Asks for termination; `ErrorClass::NotFound` once it is gone (part of the contract, not a failure).
    fn terminate<'a>(&'a self, provider_id: &'a str) -> BoxFuture<'a, Result<(), CloudError>>;
}
