//! EC2NodeClass: how instances are made on AWS.

#![allow(
    clippy::duplicated_attributes,
    reason = "the lint takes the keys of several printer columns for one"
)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::conditions::Condition;

/// How instances are made on AWS.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.k8s.aws",
    version = "v1",
    kind = "EC2NodeClass",
    plural = "ec2nodeclasses",
    singular = "ec2nodeclass",
    shortname = "ec2nc",
    shortname = "ec2ncs",
    category = "karpenter",
    doc = "EC2NodeClass is the Schema for the EC2NodeClass API: how instances are made on AWS.",
    status = "EC2NodeClassStatus",
    derive = "PartialEq",
    derive = "Default",
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
        name = "Role",
        type_ = "string",
        json_path = ".spec.role",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct EC2NodeClassSpec {
    /// Subnets that instances may be started in; one term must match.
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Security groups of the instances; those of every term are used.
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Capacity reservations that may be used; none if absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// Placement group of the instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Whether instances get a public address; absent leaves it to the subnet.
    #[serde(
        rename = "associatePublicIPAddress",
        skip_serializing_if = "Option::is_none"
    )]
    pub associate_public_ip_address: Option<bool>,
    /// Number of address prefixes given to the first network interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_prefix_count: Option<i32>,
    /// Images; an alias stands alone, otherwise one term must match.
    pub ami_selector_terms: Vec<AmiSelectorTerm>,
    /// How the image is bootstrapped: AL2, AL2023, Bottlerocket, Custom, Windows2019, Windows2022 or Windows2025. Follows
    /// from the alias where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<String>,
    /// Text that is merged into the bootstrap data, in the family's format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// Role of the nodes; the controller makes the instance profile. Excludes instanceProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// An existing instance profile of the nodes. Excludes role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// Tags of instances, volumes, network interfaces and launch templates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Settings of the kubelet, with the keys of kubelet.config.k8s.io/v1beta1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<BTreeMap<String, Value>>,
    /// Volumes; absent means those of the family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_device_mappings: Option<Vec<BlockDeviceMapping>>,
    /// RAID0 joins the instance store into one file system for pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<String>,
    /// Network interfaces; absent means one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_interfaces: Option<Vec<NetworkInterface>>,
    /// Whether CloudWatch gets figures every minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// The instance metadata service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_options: Option<MetadataOptions>,
    /// Time-outs of idle connections in the network interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// Reserved context of the launch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Processor options.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
    /// Nitro Enclaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enclave_options: Option<EnclaveOptions>,
    /// Deprecated: now subnetSelectorTerms. Turned into terms by the defaulting webhook, otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet_selector: Option<BTreeMap<String, Value>>,
    /// Deprecated: now securityGroupSelectorTerms. Turned into terms by the defaulting webhook, otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_group_selector: Option<BTreeMap<String, Value>>,
    /// Deprecated: now amiSelectorTerms. Turned into terms by the defaulting webhook, otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami_selector: Option<BTreeMap<String, Value>>,
}

impl EC2NodeClassSpec {
    /// The alias among the terms, if there is one.
    pub fn alias(&self) -> Option<&str> {
        self.ami_selector_terms
            .iter()
            .find_map(|term| term.alias.as_deref())
    }

    /// The family by which images are bootstrapped: as written, else that of the alias, else Custom.
    pub fn resolved_family(&self) -> &str {
        if let Some(family) = &self.ami_family {
            return family;
        }
        match self.alias().and_then(|alias| alias.split('@').next()) {
            Some("al2") => "AL2",
            Some("al2023") => "AL2023",
            Some("bottlerocket") => "Bottlerocket",
            Some("windows2019") => "Windows2019",
            Some("windows2022") => "Windows2022",
            Some("windows2025") => "Windows2025",
            _ => "Custom",
        }
    }
}

/// Which subnets: an id alone, or tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetSelectorTerm {
    /// Tags that must all match; the value * asks for the key only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Id of the subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Which security groups: an id alone, a name alone, or tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityGroupSelectorTerm {
    /// Tags that must all match; the value * asks for the key only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Id of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the group, which is not its Name tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Which capacity reservations: an id alone, or tags, owner and match criteria.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReservationSelectorTerm {
    /// Tags that must all match; the value * asks for the key only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Id of the reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Account that owns the reservation.
    #[serde(rename = "ownerID", skip_serializing_if = "Option::is_none")]
    pub owner_id: Option<String>,
    /// Which instances the reservation takes: open or targeted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<String>,
}

/// Which placement group: exactly one of name and id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementGroupSelector {
    /// Name of the placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Id of the placement group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// Which images: an alias alone, an id alone, or name, owner and tags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AmiSelectorTerm {
    /// A family and a version such as al2023@latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Tags that must all match; the value * asks for the key only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Id of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the image, with the wildcards of EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Owner of the image: an account, self, or an owner alias such as amazon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// SSM parameter that holds the image's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
}

/// One volume of the instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDeviceMapping {
    /// Name of the device, such as /dev/xvda.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_name: Option<String>,
    /// The volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ebs: Option<BlockDevice>,
    /// Whether this volume holds the kubelet's directory, so that its size is what pods can use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub root_volume: bool,
}

/// An EBS volume: a size, a snapshot, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockDevice {
    /// Whether the volume goes with the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_on_termination: Option<bool>,
    /// Whether the volume is encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypted: Option<bool>,
    /// I/O operations per second, for gp3, io1 and io2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<i64>,
    /// Key that encrypts the volume.
    #[serde(rename = "kmsKeyID", skip_serializing_if = "Option::is_none")]
    pub kms_key_id: Option<String>,
    /// Snapshot that the volume is made from.
    #[serde(rename = "snapshotID", skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// MiB per second, for gp3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput: Option<i64>,
    /// MiB per second at which the snapshot is read in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_initialization_rate: Option<i32>,
    /// Size as a quantity in Gi, G, Ti or T.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<String>,
    /// standard, io1, io2, gp2, sc1, st1 or gp3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_type: Option<String>,
}

/// One network interface of the instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkInterface {
    /// Network card that it sits on.
    pub network_card_index: i32,
    /// Position on the card.
    pub device_index: i32,
    /// interface or efa-only.
    pub interface_type: String,
}

/// The instance metadata service. The schema fills in what is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetadataOptions {
    /// Whether the service answers: enabled or disabled.
    #[serde(rename = "httpEndpoint", skip_serializing_if = "Option::is_none")]
    pub http_endpoint: Option<String>,
    /// Whether it answers on IPv6: enabled or disabled.
    #[serde(rename = "httpProtocolIPv6", skip_serializing_if = "Option::is_none")]
    pub http_protocol_ipv6: Option<String>,
    /// How many hops an answer may travel; 1 keeps it from containers without host network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_put_response_hop_limit: Option<i64>,
    /// Whether a token must be shown: required or optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_tokens: Option<String>,
}

/// Time-outs of idle connections, in seconds; at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConnectionTracking {
    /// Established TCP connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established_timeout: Option<i32>,
    /// UDP flows with more than one request and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_stream_timeout: Option<i32>,
    /// UDP flows of one direction, or of one request and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_timeout: Option<i32>,
}

/// Processor options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuOptions {
    /// enabled or disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested_virtualization: Option<String>,
}

/// Nitro Enclaves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EnclaveOptions {
    /// Whether instances have them, which limits the class to instance types that can.
    pub enabled: bool,
}

/// What the class's selectors found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EC2NodeClassStatus {
    /// Subnets, those with most free addresses first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<SubnetStatus>,
    /// Security groups, by id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_groups: Vec<SecurityGroupStatus>,
    /// Images, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub amis: Vec<AmiStatus>,
    /// Capacity reservations, by id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capacity_reservations: Vec<CapacityReservationStatus>,
    /// Instance profile in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_profile: Option<String>,
    /// One for each selector, ValidationSucceeded and Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A subnet that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SubnetStatus {
    /// Id of the subnet.
    pub id: String,
    /// Its zone's name.
    pub zone: String,
    /// Its zone's id.
    #[serde(rename = "zoneID", skip_serializing_if = "Option::is_none")]
    pub zone_id: Option<String>,
}

/// A security group that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityGroupStatus {
    /// Id of the group.
    pub id: String,
    /// Name of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An image that was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AmiStatus {
    /// Id of the image.
    pub id: String,
    /// Name of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether its owner has deprecated it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// Instances that it is for.
    pub requirements: Vec<NodeSelectorRequirement>,
}

/// A capacity reservation that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityReservationStatus {
    /// Id of the reservation.
    pub id: String,
    /// Zone of the reservation.
    pub availability_zone: String,
    /// Instance type of the reservation.
    pub instance_type: String,
    /// open or targeted.
    pub instance_match_criteria: String,
    /// Account that owns it.
    #[serde(rename = "ownerID")]
    pub owner_id: String,
    /// When it ends, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// default or capacity-block.
    pub reservation_type: String,
    /// Whether its instances may be taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interruptible: Option<bool>,
    /// active or expiring.
    pub state: String,
}

impl Default for CapacityReservationStatus {
    fn default() -> Self {
        Self {
            id: String::new(),
            availability_zone: String::new(),
            instance_type: String::new(),
            instance_match_criteria: String::new(),
            owner_id: String::new(),
            end_time: None,
            reservation_type: "default".to_owned(),
            interruptible: None,
            state: "active".to_owned(),
        }
    }
}
