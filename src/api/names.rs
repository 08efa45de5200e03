//! Every label, annotation, taint, finalizer and group name that is API, in one place.

/// Group of NodePool and NodeClaim; also the domain of the core labels.
pub const GROUP: &str = "karpenter.sh";
/// Group of EC2NodeClass; also the domain of the AWS labels.
pub const AWS_GROUP: &str = "karpenter.k8s.aws";
/// Group of the class kind that the KWOK provider uses.
pub const KWOK_GROUP: &str = "karpenter.kwok.sh";
/// Version of all three kinds.
pub const VERSION: &str = "v1";
/// Kind of the AWS class.
pub const EC2_NODE_CLASS_KIND: &str = "EC2NodeClass";

/// Labels on NodeClaims and Nodes.
pub mod label {
    /// Owning pool; absent on standalone claims.
    pub const NODEPOOL: &str = "karpenter.sh/nodepool";
    /// How the instance is paid for, one of [`super::capacity_type`].
    pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
    /// `true` on a Node whose registration is finished.
    pub const REGISTERED: &str = "karpenter.sh/registered";
    /// `true` on a Node that is ready for pods and for disruption.
    pub const INITIALIZED: &str = "karpenter.sh/initialized";
    /// `true` on a Node whose kubelet owns the taints: registration copies none.
    pub const DO_NOT_SYNC_TAINTS: &str = "karpenter.sh/do-not-sync-taints";
    /// Name of the EC2NodeClass.
    pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/ec2nodeclass";
    /// Availability zone.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// Region.
    pub const REGION: &str = "topology.kubernetes.io/region";
    /// Availability zone id such as `use1-az1`.
    pub const ZONE_ID: &str = "topology.k8s.aws/zone-id";
    /// Instance type.
    pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
    /// Processor architecture, `amd64` or `arm64`.
    pub const ARCH: &str = "kubernetes.io/arch";
    /// Operating system, `linux` or `windows`.
    pub const OS: &str = "kubernetes.io/os";
    /// Windows build number.
    pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
    /// Host name of a Node; never a requirement.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
    /// Set to `karpenter` when termination starts, so that load balancers let go of the node.
    pub const EXCLUDE_FROM_LOAD_BALANCERS: &str =
        "node.kubernetes.io/exclude-from-external-load-balancers";

    /// Leading letters of the instance type, such as `m`.
    pub const INSTANCE_CATEGORY: &str = "karpenter.k8s.aws/instance-category";
    /// Generation number of the instance type.
    pub const INSTANCE_GENERATION: &str = "karpenter.k8s.aws/instance-generation";
    /// Part of the instance type before the dot.
    pub const INSTANCE_FAMILY: &str = "karpenter.k8s.aws/instance-family";
    /// Part of the instance type after the dot.
    pub const INSTANCE_SIZE: &str = "karpenter.k8s.aws/instance-size";
    /// Whether the family is a flex family.
    pub const INSTANCE_CAPABILITY_FLEX: &str = "karpenter.k8s.aws/instance-capability-flex";
    /// Default number of vCPUs.
    pub const INSTANCE_CPU: &str = "karpenter.k8s.aws/instance-cpu";
    /// `intel`, `amd` or `aws`.
    pub const INSTANCE_CPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-cpu-manufacturer";
    /// Sustained clock speed in MHz.
    pub const INSTANCE_CPU_CLOCK_SPEED: &str =
        "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz";
    /// Memory in MiB as EC2 reports it.
    pub const INSTANCE_MEMORY: &str = "karpenter.k8s.aws/instance-memory";
    /// Maximum EBS bandwidth in Mbps.
    pub const INSTANCE_EBS_BANDWIDTH: &str = "karpenter.k8s.aws/instance-ebs-bandwidth";
    /// Baseline network bandwidth in Mbps.
    pub const INSTANCE_NETWORK_BANDWIDTH: &str = "karpenter.k8s.aws/instance-network-bandwidth";
    /// Instance store in GB.
    pub const INSTANCE_LOCAL_NVME: &str = "karpenter.k8s.aws/instance-local-nvme";
    /// `nitro`, `xen`, or empty for bare metal.
    pub const INSTANCE_HYPERVISOR: &str = "karpenter.k8s.aws/instance-hypervisor";
    /// Whether traffic between instances is encrypted.
    pub const INSTANCE_ENCRYPTION_IN_TRANSIT: &str =
        "karpenter.k8s.aws/instance-encryption-in-transit-supported";
    /// GPU model, such as `t4`.
    pub const INSTANCE_GPU_NAME: &str = "karpenter.k8s.aws/instance-gpu-name";
    /// GPU maker.
    pub const INSTANCE_GPU_MANUFACTURER: &str = "karpenter.k8s.aws/instance-gpu-manufacturer";
    /// Number of GPUs.
    pub const INSTANCE_GPU_COUNT: &str = "karpenter.k8s.aws/instance-gpu-count";
    /// Memory of one GPU in MiB.
    pub const INSTANCE_GPU_MEMORY: &str = "karpenter.k8s.aws/instance-gpu-memory";
    /// Accelerator model.
    pub const INSTANCE_ACCELERATOR_NAME: &str = "karpenter.k8s.aws/instance-accelerator-name";
    /// Accelerator maker.
    pub const INSTANCE_ACCELERATOR_MANUFACTURER: &str =
        "karpenter.k8s.aws/instance-accelerator-manufacturer";
    /// Number of accelerators.
    pub const INSTANCE_ACCELERATOR_COUNT: &str = "karpenter.k8s.aws/instance-accelerator-count";
    /// `default` or `dedicated`.
    pub const INSTANCE_TENANCY: &str = "karpenter.k8s.aws/instance-tenancy";
    /// Id of the capacity reservation, on reserved offerings.
    pub const CAPACITY_RESERVATION_ID: &str = "karpenter.k8s.aws/capacity-reservation-id";
    /// `default` or `capacity-block`, on reserved offerings.
    pub const CAPACITY_RESERVATION_TYPE: &str = "karpenter.k8s.aws/capacity-reservation-type";
    /// Whether the reservation may be taken back, on reserved offerings.
    pub const CAPACITY_RESERVATION_INTERRUPTIBLE: &str =
        "karpenter.k8s.aws/capacity-reservation-interruptible";
    /// Id of the placement group.
    pub const PLACEMENT_GROUP_ID: &str = "karpenter.k8s.aws/placement-group-id";
    /// Partition within the placement group.
    pub const PLACEMENT_GROUP_PARTITION: &str = "karpenter.k8s.aws/placement-group-partition";
}

/// Values of [`label::CAPACITY_TYPE`].
pub mod capacity_type {
    /// Paid by the second at list price.
    pub const ON_DEMAND: &str = "on-demand";
    /// Spare capacity that may be taken back.
    pub const SPOT: &str = "spot";
    /// From a capacity reservation.
    pub const RESERVED: &str = "reserved";
}

/// Annotations.
pub mod annotation {
    /// On a Pod `true` or a Go duration, on a Node or NodeClaim exactly `true`: no voluntary disruption.
    pub const DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
    /// Exactly `true` on a Node or NodeClaim: no node repair.
    pub const DO_NOT_REPAIR: &str = "karpenter.sh/do-not-repair";
    /// Eviction cost of a Pod, takes the place of [`POD_DELETION_COST`].
    pub const DISRUPTION_COST: &str = "karpenter.sh/disruption-cost";
    /// Eviction cost of a Pod, in Kubernetes' own words.
    pub const POD_DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    /// Hash of the pool's template, on NodePool and NodeClaim.
    pub const NODEPOOL_HASH: &str = "karpenter.sh/nodepool-hash";
    /// Version of [`NODEPOOL_HASH`].
    pub const NODEPOOL_HASH_VERSION: &str = "karpenter.sh/nodepool-hash-version";
    /// RFC 3339 deadline of the drain, on NodeClaim.
    pub const TERMINATION_TIMESTAMP: &str = "karpenter.sh/nodeclaim-termination-timestamp";
    /// `true` or `false`: whether minValues were loosened for this NodeClaim.
    pub const MIN_VALUES_RELAXED: &str = "karpenter.sh/nodeclaim-min-values-relaxed";
    /// Comma list of DRA drivers that must publish before a NodeClaim is initialized.
    pub const REQUESTED_DRA_DRIVERS: &str = "karpenter.sh/requested-dra-drivers";
    /// `true` on a NodeClaim whose candidate prices an overlay changed.
    pub const PRICE_OVERLAY_APPLIED: &str = "karpenter.sh/price-overlay-applied";
    /// `true` on a NodeClaim whose candidate capacity an overlay changed.
    pub const CAPACITY_OVERLAY_APPLIED: &str = "karpenter.sh/capacity-overlay-applied";
    /// Marks a virtual pod of a CapacityBuffer.
    pub const CAPACITY_BUFFER_FAKE_POD: &str = "karpenter.sh/capacity-buffer-fake-pod";
    /// Buffer that a virtual pod belongs to.
    pub const CAPACITY_BUFFER_NAME: &str = "karpenter.sh/capacity-buffer-name";
    /// Namespace of the buffer that a virtual pod belongs to.
    pub const CAPACITY_BUFFER_NAMESPACE: &str = "karpenter.sh/capacity-buffer-namespace";
    /// Boot id before a repair by reboot, on NodeClaim.
    pub const REBOOT_PRE_BOOT_ID: &str = "karpenter.sh/reboot-pre-boot-id";
    /// Drain bound of a repair by reboot, on NodeClaim.
    pub const REBOOT_TERMINATION_GRACE_PERIOD: &str =
        "karpenter.sh/reboot-termination-grace-period";
    /// Hash of the class, on EC2NodeClass and NodeClaim.
    pub const EC2_NODE_CLASS_HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
    /// Version of [`EC2_NODE_CLASS_HASH`].
    pub const EC2_NODE_CLASS_HASH_VERSION: &str = "karpenter.k8s.aws/ec2nodeclass-hash-version";
    /// `true` on a NodeClaim whose instance has its tags.
    pub const TAGGED: &str = "karpenter.k8s.aws/tagged";
    /// `true` on a NodeClaim whose instance has the cluster-name tag.
    pub const CLUSTER_NAME_TAGGED: &str = "compatibility.karpenter.k8s.aws/cluster-name-tagged";
    /// Instance profile in use by a NodeClaim, guards it from garbage collection.
    pub const INSTANCE_PROFILE_NAME: &str = "karpenter.k8s.aws/instance-profile-name";
    /// How the NVIDIA DRA driver shares GPUs, on EC2NodeClass.
    pub const NVIDIA_CONSUMABLE_CAPACITY: &str = "karpenter.k8s.aws/nvidia-consumable-capacity";
}

/// Keys of taints on Nodes; ours have no value.
pub mod taint_key {
    /// Effect `NoSchedule`: the node is being disrupted.
    pub const DISRUPTED: &str = "karpenter.sh/disrupted";
    /// Effect `NoExecute`: comes from the bootstrap, removed at registration.
    pub const UNREGISTERED: &str = "karpenter.sh/unregistered";
    /// Effect `NoSchedule`: keeps pods away during a repair by reboot.
    pub const REBOOTING: &str = "karpenter.sh/rebooting";
    /// Set by Kubernetes on a Node that is not ready.
    pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
    /// Set by Kubernetes on a Node that cannot be reached.
    pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
    /// Set by the kubelet until a cloud controller has seen the Node; its value is `true`.
    pub const CLOUD_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
    /// Any taint whose key begins so goes away by itself.
    pub const READINESS_PREFIX: &str = "readiness.k8s.io/";
}

/// Effects of taints.
pub mod taint_effect {
    /// New pods need a toleration.
    pub const NO_SCHEDULE: &str = "NoSchedule";
    /// New pods without a toleration are placed elsewhere if possible.
    pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
    /// Pods without a toleration are evicted.
    pub const NO_EXECUTE: &str = "NoExecute";
}

/// Finalizers.
pub mod finalizer {
    /// On NodeClaim and Node: drain, detach, delete the instance.
    pub const TERMINATION: &str = "karpenter.sh/termination";
    /// On EC2NodeClass: wait for its claims, then delete instance profiles and launch templates.
    pub const EC2_NODE_CLASS: &str = "karpenter.k8s.aws/termination";
}

/// Condition types of the three kinds.
pub mod condition {
    /// All dependents are True.
    pub const READY: &str = "Ready";
    /// The object passed the checks that admission cannot make.
    pub const VALIDATION_SUCCEEDED: &str = "ValidationSucceeded";
    /// NodePool: its class is ready.
    pub const NODE_CLASS_READY: &str = "NodeClassReady";
    /// NodePool: its latest nodes registered.
    pub const NODE_REGISTRATION_HEALTHY: &str = "NodeRegistrationHealthy";
    /// NodeClaim: the instance was created.
    pub const LAUNCHED: &str = "Launched";
    /// NodeClaim: the Node joined and was synced.
    pub const REGISTERED: &str = "Registered";
    /// NodeClaim: the Node is ready for pods.
    pub const INITIALIZED: &str = "Initialized";
    /// NodeClaim: consolidateAfter has passed.
    pub const CONSOLIDATABLE: &str = "Consolidatable";
    /// NodeClaim: no longer as its pool or class wants it.
    pub const DRIFTED: &str = "Drifted";
    /// NodeClaim: chosen for disruption, with the reason.
    pub const DISRUPTION_REASON: &str = "DisruptionReason";
    /// NodeClaim: pods are gone.
    pub const DRAINED: &str = "Drained";
    /// NodeClaim: volumes are detached.
    pub const VOLUMES_DETACHED: &str = "VolumesDetached";
    /// NodeClaim: the provider was told to delete the instance.
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    /// NodeClaim: repair by reboot.
    pub const REBOOTING: &str = "Rebooting";
    /// NodeClaim: the node has what was promised.
    pub const CONSISTENT_STATE_FOUND: &str = "ConsistentStateFound";
    /// EC2NodeClass: images were found.
    pub const AMIS_READY: &str = "AMIsReady";
    /// EC2NodeClass: subnets were found.
    pub const SUBNETS_READY: &str = "SubnetsReady";
    /// EC2NodeClass: security groups were found.
    pub const SECURITY_GROUPS_READY: &str = "SecurityGroupsReady";
    /// EC2NodeClass: the instance profile exists.
    pub const INSTANCE_PROFILE_READY: &str = "InstanceProfileReady";
    /// EC2NodeClass: the placement group was found, or none is wanted.
    pub const PLACEMENT_GROUP_READY: &str = "PlacementGroupReady";
    /// EC2NodeClass: capacity reservations were resolved.
    pub const CAPACITY_RESERVATIONS_READY: &str = "CapacityReservationsReady";
}

/// Reasons of voluntary disruption, which budgets may name.
pub mod disruption_reason {
    /// Its pods fit elsewhere, or something cheaper would do.
    pub const UNDERUTILIZED: &str = "Underutilized";
    /// No pods worth keeping a node for.
    pub const EMPTY: &str = "Empty";
    /// No longer as its pool or class wants it.
    pub const DRIFTED: &str = "Drifted";
    /// Node repair.
    pub const UNHEALTHY: &str = "Unhealthy";
}

/// Reasons of Kubernetes events.
pub mod reason {
    /// Node, NodeClaim, NodePool: a candidate was refused, or the budget is 0.
    pub const DISRUPTION_BLOCKED: &str = "DisruptionBlocked";
    /// NodeClaim: a replacement is being created.
    pub const DISRUPTION_LAUNCHING: &str = "DisruptionLaunching";
    /// NodeClaim: a replacement is not initialized yet.
    pub const DISRUPTION_WAITING_READINESS: &str = "DisruptionWaitingReadiness";
    /// Node, NodeClaim: the disruption goes ahead.
    pub const DISRUPTION_TERMINATING: &str = "DisruptionTerminating";
    /// Node, NodeClaim: why consolidation passed it over.
    pub const UNCONSOLIDATABLE: &str = "Unconsolidatable";
    /// Node, NodeClaim: considered for consolidation.
    pub const CONSOLIDATION_CANDIDATE: &str = "ConsolidationCandidate";
    /// Node, NodeClaim: the move does not score enough.
    pub const CONSOLIDATION_REJECTED: &str = "ConsolidationRejected";
    /// Node, NodeClaim, NodePool: the move scores enough.
    pub const CONSOLIDATION_APPROVED: &str = "ConsolidationApproved";
    /// Pod: the node that is planned for it.
    pub const NOMINATED: &str = "Nominated";
    /// Pod, warning: no pool fits.
    pub const FAILED_SCHEDULING: &str = "FailedScheduling";
    /// NodePool, warning: its requirements leave no instance type.
    pub const NO_COMPATIBLE_INSTANCE_TYPES: &str = "NoCompatibleInstanceTypes";
    /// Node, warning: too many unhealthy nodes for a repair.
    pub const NODE_REPAIR_BLOCKED: &str = "NodeRepairBlocked";
    /// Pod: drained.
    pub const EVICTED: &str = "Evicted";
    /// Pod: deleted to meet the termination deadline.
    pub const DISRUPTED: &str = "Disrupted";
    /// Node, warning: the drain met an error.
    pub const FAILED_DRAINING: &str = "FailedDraining";
    /// Node: waits for volumes.
    pub const AWAITING_VOLUME_DETACHMENT: &str = "AwaitingVolumeDetachment";
    /// Node, NodeClaim, warning: the termination deadline is set.
    pub const TERMINATION_GRACE_PERIOD_EXPIRING: &str = "TerminationGracePeriodExpiring";
    /// NodeClaim, warning: the node is less than was promised.
    pub const FAILED_CONSISTENCY_CHECK: &str = "FailedConsistencyCheck";
    /// NodeClaim, warning: the cloud has none left; the claim is deleted.
    pub const INSUFFICIENT_CAPACITY: &str = "InsufficientCapacityError";
    /// NodeClaim, warning: its class is not ready; the claim is deleted.
    pub const NODE_CLASS_NOT_READY: &str = "NodeClassNotReady";
    /// NodeClaim, warning: the node joined without the taint `karpenter.sh/unregistered`.
    pub const UNREGISTERED_TAINT_MISSING: &str = "UnregisteredTaintMissing";
    /// Pod, warning: the annotation `do-not-disrupt` cannot be read.
    pub const INVALID_DO_NOT_DISRUPT: &str = "InvalidDoNotDisruptAnnotation";
    /// Pod: protected until a time.
    pub const DO_NOT_DISRUPT_UNTIL: &str = "DoNotDisruptUntil";
    /// Pod: no longer protected.
    pub const DO_NOT_DISRUPT_ELAPSED: &str = "DoNotDisruptGracePeriodElapsed";
    /// NodeClaim: the node came back with a new boot id.
    pub const REBOOT_OBSERVED: &str = "RebootObserved";
    /// NodeClaim: the reboot failed.
    pub const REBOOT_FAILED: &str = "RebootFailed";
    /// NodeClaim: deleting the instance failed.
    pub const FAILED_TERMINATION: &str = "FailedTermination";
    /// EC2NodeClass: claims still use it.
    pub const WAITING_ON_NODE_CLAIM_TERMINATION: &str = "WaitingOnNodeClaimTermination";
    /// NodeClaim, Node, warning: the spot instance will be taken back.
    pub const SPOT_INTERRUPTED: &str = "SpotInterrupted";
    /// NodeClaim, Node, warning: the reserved instance will be taken back.
    pub const CAPACITY_RESERVATION_INSTANCE_INTERRUPTED: &str =
        "CapacityReservationInstanceInterrupted";
    /// NodeClaim, Node: the spot instance is at risk.
    pub const SPOT_REBALANCE_RECOMMENDATION: &str = "SpotRebalanceRecommendation";
    /// NodeClaim, Node, warning: the instance is stopping.
    pub const INSTANCE_STOPPING: &str = "InstanceStopping";
    /// NodeClaim, Node, warning: the instance is terminating.
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    /// NodeClaim, Node, warning: EC2 reports a fault.
    pub const INSTANCE_UNHEALTHY: &str = "InstanceUnhealthy";
    /// NodeClaim, Node, warning: replaced because of an interruption.
    pub const TERMINATING_ON_INTERRUPTION: &str = "TerminatingOnInterruption";
    /// NodePool, warning: a zone is shifted away from.
    pub const ZONAL_SHIFT_ACTIVE: &str = "ZonalShiftActive";
    /// NodePool: the zonal shift is over.
    pub const ZONAL_SHIFT_CLEARED: &str = "ZonalShiftCleared";
}

/// Names of resources beyond those in [`crate::units`].
pub mod resource {
    /// Counts nodes, in pool limits and pool status only.
    pub const NODES: &str = "nodes";
    /// NVIDIA GPUs.
    pub const NVIDIA_GPU: &str = "nvidia.com/gpu";
    /// AMD GPUs.
    pub const AMD_GPU: &str = "amd.com/gpu";
    /// Neuron devices.
    pub const AWS_NEURON: &str = "aws.amazon.com/neuron";
    /// Neuron cores.
    pub const AWS_NEURON_CORE: &str = "aws.amazon.com/neuroncore";
    /// Gaudi accelerators.
    pub const HABANA_GAUDI: &str = "habana.ai/gaudi";
    /// Branch network interfaces.
    pub const AWS_POD_ENI: &str = "vpc.amazonaws.com/pod-eni";
    /// Elastic fabric adapters.
    pub const AWS_EFA: &str = "vpc.amazonaws.com/efa";
    /// Private IPv4 addresses, on Windows.
    pub const AWS_PRIVATE_IPV4: &str = "vpc.amazonaws.com/PrivateIPv4Address";
}

/// Labels whose meaning is known without a provider: pods may constrain them even if the pool does not.
pub const WELL_KNOWN: [&str; 8] = [
    label::NODEPOOL,
    label::ZONE,
    label::REGION,
    label::INSTANCE_TYPE,
    label::ARCH,
    label::OS,
    label::CAPACITY_TYPE,
    label::WINDOWS_BUILD,
];

/// Labels that are well known on AWS besides [`WELL_KNOWN`]. All but the zone id are the keys of the AWS domain that
/// pools and claims may use.
pub const AWS_WELL_KNOWN: [&str; 28] = [
    label::ZONE_ID,
    label::INSTANCE_CATEGORY,
    label::INSTANCE_GENERATION,
    label::INSTANCE_FAMILY,
    label::INSTANCE_SIZE,
    label::INSTANCE_CAPABILITY_FLEX,
    label::INSTANCE_CPU,
    label::INSTANCE_CPU_MANUFACTURER,
    label::INSTANCE_CPU_CLOCK_SPEED,
    label::INSTANCE_MEMORY,
    label::INSTANCE_EBS_BANDWIDTH,
    label::INSTANCE_NETWORK_BANDWIDTH,
    label::INSTANCE_LOCAL_NVME,
    label::INSTANCE_HYPERVISOR,
    label::INSTANCE_ENCRYPTION_IN_TRANSIT,
    label::INSTANCE_GPU_NAME,
    label::INSTANCE_GPU_MANUFACTURER,
    label::INSTANCE_GPU_COUNT,
    label::INSTANCE_GPU_MEMORY,
    label::INSTANCE_ACCELERATOR_NAME,
    label::INSTANCE_ACCELERATOR_MANUFACTURER,
    label::INSTANCE_ACCELERATOR_COUNT,
    label::INSTANCE_TENANCY,
    label::CAPACITY_RESERVATION_ID,
    label::CAPACITY_RESERVATION_TYPE,
    label::CAPACITY_RESERVATION_INTERRUPTIBLE,
    label::PLACEMENT_GROUP_ID,
    label::PLACEMENT_GROUP_PARTITION,
];

/// Old names of labels and their present ones.
pub const ALIASES: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", label::ZONE),
    ("failure-domain.beta.kubernetes.io/region", label::REGION),
    ("beta.kubernetes.io/arch", label::ARCH),
    ("beta.kubernetes.io/os", label::OS),
    ("beta.kubernetes.io/instance-type", label::INSTANCE_TYPE),
];

/// The present name of a label key.
pub fn normalize_key(key: &str) -> &str {
    ALIASES
        .iter()
        .find(|(old, _)| *old == key)
        .map_or(key, |(_, new)| new)
}

/// Whether the key's meaning is known, on AWS or anywhere.
pub fn is_well_known(key: &str) -> bool {
    WELL_KNOWN.contains(&key) || AWS_WELL_KNOWN.contains(&key)
}

/// The label under which claims and nodes carry the name of their class, by the class's group and kind.
pub fn class_label_key(group: &str, kind: &str) -> String {
    format!("{group}/{}", kind.to_lowercase())
}

/// The part of a label key before the slash, empty if there is none.
pub fn domain(key: &str) -> &str {
    key.split_once('/').map_or("", |(domain, _)| domain)
}

/// Whether controllers refuse the key in a pool's requirements or labels: the host name, and the keys of our own two
/// domains and their subdomains that are not well known.
pub fn is_restricted_key(key: &str) -> bool {
    if is_well_known(key) {
        return false;
    }
    let within = |restricted: &str| {
        domain(key)
            .strip_suffix(restricted)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    key == label::HOSTNAME || within(GROUP) || within(AWS_GROUP)
}

/// Whether the AWS schema lets pools and claims use this key of the AWS domain.
pub fn is_allowed_aws_key(key: &str) -> bool {
    key == label::EC2_NODE_CLASS || (domain(key) == AWS_GROUP && AWS_WELL_KNOWN.contains(&key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_keys_get_their_present_name() {
        assert_eq!(
            normalize_key("beta.kubernetes.io/arch"),
            "kubernetes.io/arch"
        );
        assert_eq!(
            normalize_key("failure-domain.beta.kubernetes.io/zone"),
            "topology.kubernetes.io/zone"
        );
        assert_eq!(normalize_key("team"), "team");
    }

    #[test]
    fn class_label() {
        assert_eq!(
            class_label_key(AWS_GROUP, EC2_NODE_CLASS_KIND),
            label::EC2_NODE_CLASS
        );
    }

    /// The rows of the restricted-key table, as controllers apply it.
    #[test]
    fn restricted_keys() {
        for key in [
            "karpenter.sh/capacity-type",
            "karpenter.sh/nodepool",
            "karpenter.k8s.aws/instance-cpu",
            "kubernetes.io/os",
            "node-restriction.kubernetes.io/team",
            "notkarpenter.sh/x",
            "karpenter.sh",
            "team",
        ] {
            assert!(!is_restricted_key(key), "{key}");
        }
        for key in [
            "kubernetes.io/hostname",
            "karpenter.sh/initialized",
            "sub.karpenter.sh/x",
            "karpenter.k8s.aws/instance-pods",
            "x.karpenter.k8s.aws/y",
            "karpenter.k8s.aws/ec2nodeclass",
        ] {
            assert!(is_restricted_key(key), "{key}");
        }
    }
}
