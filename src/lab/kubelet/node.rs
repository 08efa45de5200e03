//! The Node object as kubelet, cloud controller and node controller write it.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    api::names::{label, taint_key},
    cloud::simulated::Booted,
    lab::{
        api::{Kind, Patch, Server, WriteOptions},
        status::{rfc3339, set_condition},
    },
    units::{self, Resources},
};

pub(super) use taint_key::{NOT_READY, UNREACHABLE};

/// How often a change of taints is made again when another writer was quicker.
const TRIES: usize = 5;

/// The Node that a kubelet registers: not ready, and without devices.
pub(super) fn new(machine: &Booted, now: Timestamp) -> Value {
    let (name, instance) = (&machine.node_name, &machine.instance);
    let given = |key: &str, other: &'static str| {
        let label = machine.labels.get(key);
        label.map_or_else(|| other.to_owned(), String::clone)
    };
    let (arch, os) = (given(label::ARCH, "amd64"), given(label::OS, "linux"));
    let region = given(label::REGION, "");
    let mut labels: Map<String, Value> = (machine.labels.iter())
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    for (key, value) in [
        (label::HOSTNAME, name),
        (label::ARCH, &arch),
        (label::OS, &os),
        ("beta.kubernetes.io/arch", &arch),
        ("beta.kubernetes.io/os", &os),
        ("beta.kubernetes.io/instance-type", &instance.instance_type),
        ("failure-domain.beta.kubernetes.io/zone", &instance.zone),
        ("failure-domain.beta.kubernetes.io/region", &region),
    ] {
        labels.insert(key.to_owned(), json!(value));
    }
    let mut taints: Vec<Value> = machine
        .taints
        .iter()
        .map(|t| {
            let mut taint = json!({"key": t.key, "effect": t.effect});
            if !t.value.is_empty() {
                taint["value"] = json!(t.value);
            }
            taint
        })
        .collect();
    taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": instance.provider_id, "taints": taints},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": machine.address},
                {"type": "Hostname", "address": name},
                {"type": "InternalDNS", "address": name},
            ],
            "nodeInfo": {
                "architecture": arch,
                "operatingSystem": os,
                "kubeletVersion": machine.kubelet_version,
                "containerRuntimeVersion": "containerd://2.0",
            },
        },
    });
    let status = &mut node["status"];
    let plain = |all: &Resources| -> Resources {
        all.iter().filter(|(name, _)| !is_device(name)).collect()
    };
    set_amounts(
        status,
        &plain(&instance.capacity),
        &plain(&instance.allocatable),
    );
    for (kind, reason, message) in [
        (
            "MemoryPressure",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        (
            "DiskPressure",
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        (
            "PIDPressure",
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        (
            "Ready",
            "KubeletNotReady",
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady",
        ),
    ] {
        let condition =
            json!({"type": kind, "status": "False", "reason": reason, "message": message});
        set_condition(status, condition, now);
    }
    node
}

/// Whether the amounts include any that a device plugin has to tell of.
pub(super) fn has_devices(amounts: &Resources) -> bool {
    amounts
        .iter()
        .any(|(name, amount)| is_device(name) && amount > 0)
}

/// Extended resources; the others are the kubelet's own.
fn is_device(name: &str) -> bool {
    let own = [
        units::CPU,
        units::MEMORY,
        units::PODS,
        units::EPHEMERAL_STORAGE,
    ];
    !own.contains(&name) && !name.starts_with("hugepages-")
}

pub(super) fn set_amounts(status: &mut Value, capacity: &Resources, allocatable: &Resources) {
    for (key, amounts) in [("capacity", capacity), ("allocatable", allocatable)] {
        let amounts: Map<String, Value> = (amounts.to_quantities().into_iter())
            .map(|(name, quantity)| (name, json!(quantity.to_string())))
            .collect();
        status[key] = Value::Object(amounts);
    }
}

pub(super) fn set_ready(status: &mut Value, now: Timestamp) {
    let ready = json!({
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
    });
    set_condition(status, ready, now);
}

pub(super) fn set_unknown(status: &mut Value, now: Timestamp) {
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
        let unknown = json!({
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        });
        set_condition(status, unknown, now);
    }
}

/// The taints of a node that is not heard of.
pub(super) fn unreachable(now: Timestamp) -> [Value; 2] {
    ["NoSchedule", "NoExecute"]
        .map(|effect| json!({"key": UNREACHABLE, "effect": effect, "timeAdded": rfc3339(now)}))
}

/// Changes a node's taints, and nothing if it is gone.
pub(super) async fn change_taints(server: &Server, name: &str, change: impl Fn(&mut Vec<Value>)) {
    for _ in 0..TRIES {
        let Ok(node) = server.get(Kind::Node, "", name) else {
            return;
        };
        let old = node["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let mut taints = old.clone();
        change(&mut taints);
        if taints == old {
            return;
        }
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "spec": {"taints": taints},
        }));
        let patched = server
            .patch(Kind::Node, "", name, &patch, &WriteOptions::default())
            .await;
        match patched {
            Ok(_) => return,
            Err(error) if error.is_conflict() => {}
            Err(error) => {
                tracing::warn!(node = %name, %error, "taints not changed");
                return;
            }
        }
    }
}
