//! NodePool, NodeClaim and EC2NodeClass: their types, names, rules and CRDs.
//!
//! Imports `units` only. Types mirror the fields of the API one to one; what people may write wrongly stays text in
//! them, so that a bad object can still be read and every mistake told by its path. Defaults of the types are those
//! of the schemas, but for metadataOptions, which only the schema fills in.
//! Must never: know the state of a cluster, or refuse what upstream accepts.

pub mod conditions;
pub mod crd;
mod ec2_node_class;
pub mod hash;
mod kind;
pub mod names;
mod node_claim;
mod node_pool;
pub mod repair;
pub mod requirement;
pub mod taint;
pub mod validate;

pub use conditions::{Condition, ConditionStatus};
pub use ec2_node_class::{
    AmiSelectorTerm, AmiStatus, BlockDevice, BlockDeviceMapping, CapacityReservationSelectorTerm,
    CapacityReservationStatus, ConnectionTracking, CpuOptions, EC2NodeClass, EC2NodeClassSpec,
    EC2NodeClassStatus, EnclaveOptions, MetadataOptions, NetworkInterface, PlacementGroupSelector,
    SecurityGroupSelectorTerm, SecurityGroupStatus, SubnetSelectorTerm, SubnetStatus,
};
pub use kind::Kind;
pub use node_claim::{
    NodeClaim, NodeClaimSpec, NodeClaimStatus, NodeClassRef, RequirementSpec, ResourceRequests,
    Taint,
};
pub use node_pool::{
    BALANCED, Budget, DEFAULT_BUDGET_NODES, DEFAULT_EXPIRE_AFTER, Disruption, NodeClaimTemplate,
    NodeClaimTemplateSpec, NodePool, NodePoolSpec, NodePoolStatus, TemplateMetadata, WHEN_EMPTY,
    WHEN_EMPTY_OR_UNDERUTILIZED,
};
