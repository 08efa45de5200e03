//! Hashes of a pool's template and of a class, by which drift is noticed.
//!
//! The values are those that upstream writes under the same version strings, so that a cluster can change hands
//! without replacing its nodes: a structural hash on 64-bit FNV-1, where lists count as sets, absent fields do not
//! count, and fields go by the names they have in upstream's Go types.

use std::collections::BTreeMap;

use super::{
    BlockDevice, BlockDeviceMapping, ConnectionTracking, CpuOptions, EC2NodeClassSpec,
    MetadataOptions, NetworkInterface, NodeClaimTemplate, PlacementGroupSelector, Taint,
    TemplateMetadata,
};
use crate::units::Quantity;

/// Version of [`pool_hash`].
pub const POOL_HASH_VERSION: &str = "v3";
/// Version of [`class_hash`].
pub const CLASS_HASH_VERSION: &str = "v6";

/// Hash of a pool's template without its requirements, in decimal.
pub fn pool_hash(template: &NodeClaimTemplate) -> String {
    let metadata = Object::new("ObjectMeta")
        .option("Labels", template.metadata.labels.as_ref().map(map))
        .option(
            "Annotations",
            template.metadata.annotations.as_ref().map(map),
        );
    let spec = &template.spec;
    let class = Object::new("NodeClassReference")
        .nonempty("Kind", &spec.node_class_ref.kind)
        .nonempty("Name", &spec.node_class_ref.name)
        .nonempty("Group", &spec.node_class_ref.group);
    let grace = spec
        .termination_grace_period
        .as_ref()
        .and_then(|period| period.get());
    let grace = grace.map(|period| {
        let object = Object::new("Duration");
        if period.0 == 0 {
            object
        } else {
            object.field("Duration", int64(period.0))
        }
        .0
    });
    let lifetime = spec.expire_after.get().map(|d| {
        Object::new("NillableDuration")
            .field("Duration", int64(d.0))
            .0
    });
    let spec = Object::new("NodeClaimTemplateSpec")
        .option("Taints", spec.taints.as_deref().map(taints))
        .option("StartupTaints", spec.startup_taints.as_deref().map(taints))
        .field("NodeClassRef", class.0)
        .option("TerminationGracePeriod", grace)
        .option("ExpireAfter", lifetime);
    let metadata = (template.metadata != TemplateMetadata::default()).then_some(metadata.0);
    Object::new("NodeClaimTemplate")
        .option("ObjectMeta", metadata)
        .field("Spec", spec.0)
        .0
        .to_string()
}

/// Hash of a class, in decimal: of its spec without the selector terms, of the family that its images resolve to, and
/// of the cluster's CA bundle as it is configured (base64), empty if there is none.
pub fn class_hash(spec: &EC2NodeClassSpec, resolved_family: &str, ca_bundle: &str) -> String {
    let object = Object::new("EC2NodeClassSpec")
        .option(
            "PlacementGroupSelector",
            spec.placement_group_selector.as_ref().map(placement_group),
        )
        .option(
            "AssociatePublicIPAddress",
            spec.associate_public_ip_address.map(bool),
        )
        .option("UserData", spec.user_data.as_deref().map(text))
        .nonempty("Role", spec.role.as_deref().unwrap_or_default())
        .option(
            "InstanceProfile",
            spec.instance_profile.as_deref().map(text),
        )
        .option("Tags", spec.tags.as_ref().map(map))
        .option(
            "BlockDeviceMappings",
            spec.block_device_mappings
                .as_deref()
                .map(|all| list(all, mapping)),
        )
        .option(
            "InstanceStorePolicy",
            spec.instance_store_policy.as_deref().map(text),
        )
        .option(
            "NetworkInterfaces",
            spec.network_interfaces
                .as_deref()
                .map(|all| list(all, interface)),
        )
        .option("DetailedMonitoring", spec.detailed_monitoring.map(bool))
        .option(
            "MetadataOptions",
            spec.metadata_options.as_ref().map(metadata_options),
        )
        .option(
            "EnclaveOptions",
            spec.enclave_options
                .as_ref()
                .map(|e| Object::new("EnclaveOptions").flag("Enabled", e.enabled).0),
        )
        .option(
            "ConnectionTracking",
            spec.connection_tracking.as_ref().map(connection_tracking),
        )
        .option("Context", spec.context.as_deref().map(text))
        .option("CPUOptions", spec.cpu_options.as_ref().map(cpu_options));
    let kubelet = match &spec.kubelet {
        Some(kubelet) if !kubelet.is_empty() => go_json(kubelet),
        _ => "null".to_owned(),
    };
    (object.0 ^ text(resolved_family) ^ text(ca_bundle) ^ text(&kubelet)).to_string()
}

fn taints(all: &[Taint]) -> u64 {
    list(all, |taint| {
        Object::new("Taint")
            .nonempty("Key", &taint.key)
            .nonempty("Value", taint.value.as_deref().unwrap_or_default())
            .nonempty("Effect", &taint.effect)
            .0
    })
}

fn placement_group(selector: &PlacementGroupSelector) -> u64 {
    Object::new("PlacementGroupSelector")
        .option("Name", selector.name.as_deref().map(text))
        .option("ID", selector.id.as_deref().map(text))
        .0
}

fn mapping(mapping: &BlockDeviceMapping) -> u64 {
    Object::new("BlockDeviceMapping")
        .option("DeviceName", mapping.device_name.as_deref().map(text))
        .option("EBS", mapping.ebs.as_ref().map(device))
        .flag("RootVolume", mapping.root_volume)
        .0
}

fn device(device: &BlockDevice) -> u64 {
    // Sizes count by value: 1Ti equals 1024Gi.
    let size = device.volume_size.as_deref().map(|size| {
        size.parse::<Quantity>()
            .map_or_else(|_| text(size), |quantity| text(&quantity.to_string()))
    });
    Object::new("BlockDevice")
        .option(
            "DeleteOnTermination",
            device.delete_on_termination.map(bool),
        )
        .option("Encrypted", device.encrypted.map(bool))
        .option("IOPS", device.iops.map(int64))
        .option("KMSKeyID", device.kms_key_id.as_deref().map(text))
        .option("SnapshotID", device.snapshot_id.as_deref().map(text))
        .option("Throughput", device.throughput.map(int64))
        .option(
            "VolumeInitializationRate",
            device.volume_initialization_rate.map(int32),
        )
        .option("VolumeSize", size)
        .option("VolumeType", device.volume_type.as_deref().map(text))
        .0
}

fn interface(interface: &NetworkInterface) -> u64 {
    let nonzero = |index: i32| (index != 0).then(|| int32(index));
    Object::new("NetworkInterface")
        .option("NetworkCardIndex", nonzero(interface.network_card_index))
        .option("DeviceIndex", nonzero(interface.device_index))
        .nonempty("InterfaceType", &interface.interface_type)
        .0
}

fn metadata_options(options: &MetadataOptions) -> u64 {
    Object::new("MetadataOptions")
        .option("HTTPEndpoint", options.http_endpoint.as_deref().map(text))
        .option(
            "HTTPProtocolIPv6",
            options.http_protocol_ipv6.as_deref().map(text),
        )
        .option(
            "HTTPPutResponseHopLimit",
            options.http_put_response_hop_limit.map(int64),
        )
        .option("HTTPTokens", options.http_tokens.as_deref().map(text))
        .0
}

fn connection_tracking(tracking: &ConnectionTracking) -> u64 {
    Object::new("ConnectionTracking")
        .option(
            "TCPEstablishedTimeout",
            tracking.tcp_established_timeout.map(int32),
        )
        .option("UDPStreamTimeout", tracking.udp_stream_timeout.map(int32))
        .option("UDPTimeout", tracking.udp_timeout.map(int32))
        .0
}

fn cpu_options(options: &CpuOptions) -> u64 {
    Object::new("CPUOptions")
        .option(
            "NestedVirtualization",
            options.nested_virtualization.as_deref().map(text),
        )
        .0
}

/// The hash of an object so far: its type's name, then one field after the other.
struct Object(u64);

impl Object {
    fn new(type_name: &str) -> Self {
        Self(text(type_name))
    }

    fn field(self, name: &str, value: u64) -> Self {
        Self(finish(self.0 ^ pair(text(name), value)))
    }

    fn option(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    fn nonempty(self, name: &str, value: &str) -> Self {
        if value.is_empty() {
            self
        } else {
            self.field(name, text(value))
        }
    }

    fn flag(self, name: &str, value: bool) -> Self {
        if value {
            self.field(name, bool(true))
        } else {
            self
        }
    }
}

fn map(map: &BTreeMap<String, String>) -> u64 {
    finish(
        map.iter()
            .fold(0, |sum, (key, value)| sum ^ pair(text(key), text(value))),
    )
}

/// Order does not count, and two equal entries cancel out.
fn list<T>(entries: &[T], hash: impl Fn(&T) -> u64) -> u64 {
    entries.iter().fold(0, |sum, entry| sum ^ hash(entry))
}

fn text(text: &str) -> u64 {
    fnv1(text.as_bytes())
}

fn int32(value: i32) -> u64 {
    fnv1(&value.to_le_bytes())
}

fn int64(value: i64) -> u64 {
    fnv1(&value.to_le_bytes())
}

fn bool(value: bool) -> u64 {
    fnv1(&[u8::from(value)])
}

fn pair(a: u64, b: u64) -> u64 {
    let [a, b] = [a.to_le_bytes(), b.to_le_bytes()];
    fnv1(&[a, b].concat())
}

fn finish(hash: u64) -> u64 {
    fnv1(&hash.to_le_bytes())
}

/// FNV-1, which multiplies before it mixes in the byte; not FNV-1a.
fn fnv1(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(*byte)
    })
}

/// Compact JSON with sorted keys and Go's escapes.
fn go_json(kubelet: &BTreeMap<String, serde_json::Value>) -> String {
    let mut json = serde_json::to_value(kubelet).unwrap_or_default();
    json.sort_all_objects();
    json.to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;
    use crate::api::NodePoolSpec;

    #[derive(Deserialize)]
    struct Vectors {
        nodeclass_hash: Vec<Vector>,
        nodepool_hash: Vec<Vector>,
    }

    #[derive(Deserialize)]
    struct Vector {
        id: String,
        #[serde(default)]
        ca_bundle: String,
        spec: Value,
        expect: String,
    }

    fn vectors() -> Vectors {
        serde_saphyr::from_str(include_str!("../../tests/data/hashes.yaml")).unwrap()
    }

    #[test]
    fn pools_hash_as_upstream() {
        let vectors = vectors().nodepool_hash;
        assert_eq!(vectors.len(), 7);
        for vector in vectors {
            let spec: NodePoolSpec = serde_json::from_value(vector.spec).unwrap();
            assert_eq!(pool_hash(&spec.template), vector.expect, "{}", vector.id);
        }
    }

    #[test]
    fn classes_hash_as_upstream() {
        let vectors = vectors().nodeclass_hash;
        assert_eq!(vectors.len(), 18);
        for vector in vectors {
            let spec: EC2NodeClassSpec = serde_json::from_value(vector.spec).unwrap();
            let hash = class_hash(&spec, spec.resolved_family(), &vector.ca_bundle);
            assert_eq!(hash, vector.expect, "{}", vector.id);
        }
    }
}
