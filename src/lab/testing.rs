//! Small clusters for the tests of the lab's own components.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    api::{Kind, Object, Selectors, Server, WriteOptions},
    scheduler::{Scheduler, Settings},
    seed::Seed,
    workloads::Workloads,
};
use crate::{
    api::taint::Taint,
    clock::Clock,
    cloud::{CapacityType, Instance, simulated::Booted},
};

/// An API server on the paused clock.
pub(super) fn server() -> Server {
    let clock = Clock::starting_at(Timestamp::from_second(1_800_000_000).unwrap());
    Server::new(move || clock.now(), 1)
}

/// Starts workload controllers; they stop when the runtime ends.
pub(super) fn start_workloads(server: &Server, seed: u64) {
    let workloads = Workloads::new(server.clone(), Seed::new(seed));
    tokio::spawn(workloads.run(CancellationToken::new()));
}

pub(super) fn start_scheduler(server: &Server, seed: u64, settings: Settings) {
    let scheduler = Scheduler::new(server.clone(), Seed::new(seed), settings);
    tokio::spawn(scheduler.run(CancellationToken::new()));
}

pub(super) async fn create(server: &Server, kind: Kind, value: Value) -> Object {
    let namespace = if kind.info().namespaced {
        "default"
    } else {
        ""
    };
    let options = WriteOptions::default();
    let written = server.create(kind, namespace, value, &options).await;
    written.unwrap().object
}

pub(super) async fn sleep(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

pub(super) fn all(server: &Server, kind: Kind) -> Vec<Object> {
    server.list(kind, None, &Selectors::default()).1
}

pub(super) fn pod(server: &Server, name: &str) -> Object {
    server.get(Kind::Pod, "default", name).unwrap()
}

pub(super) fn node_of(server: &Server, pod_name: &str) -> Option<String> {
    let pod = pod(server, pod_name);
    pod["spec"]["nodeName"].as_str().map(str::to_owned)
}

/// A ready node with 4 CPUs, 16 GiB and 110 pods; `more` is merged into it.
pub(super) async fn add_node(server: &Server, name: &str, more: Value) -> Object {
    let amounts = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    json_patch::merge(&mut node, &more);
    create(server, Kind::Node, node).await
}

/// A pod that asks for CPUs; `more` is merged into its spec.
pub(super) async fn add_pod(server: &Server, name: &str, cpu: &str, more: Value) -> Object {
    let mut spec = json!({"containers": [
        {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}]});
    json_patch::merge(&mut spec, &more);
    create(
        server,
        Kind::Pod,
        json!({"metadata": {"name": name}, "spec": spec}),
    )
    .await
}

/// A Deployment or DaemonSet whose pods ask for CPUs.
pub(super) fn workload(name: &str, replicas: Option<u32>, cpu: &str) -> Value {
    let mut value = json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [
                    {"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}]},
            },
        },
    });
    if let Some(replicas) = replicas {
        value["spec"]["replicas"] = json!(replicas);
    }
    value
}

/// A machine with 4 CPUs and two devices.
pub(super) fn machine(id: &str) -> Booted {
    let amounts = [
        ("cpu", 4000),
        ("memory", 16 << 30),
        ("pods", 58),
        ("nvidia.com/gpu", 2),
    ];
    let instance = Instance {
        provider_id: format!("aws:///us-east-1a/{id}"),
        token: id.to_owned(),
        claim: "default-abcde".to_owned(),
        instance_type: "g4dn.xlarge".to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        image: "ami-1".to_owned(),
        price_per_hour: 1.0,
        launched: Timestamp::UNIX_EPOCH,
        terminating: false,
        labels: BTreeMap::new(),
        capacity: amounts.into_iter().collect(),
        allocatable: amounts.into_iter().collect(),
    };
    let labels = [
        ("karpenter.sh/nodepool", "default"),
        ("node.kubernetes.io/instance-type", "g4dn.xlarge"),
        ("topology.kubernetes.io/region", "us-east-1"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
    ];
    Booted {
        instance,
        node_name: "ip-10-0-0-9.ec2.internal".to_owned(),
        address: "10.0.0.9".to_owned(),
        labels: (labels.into_iter())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        taints: vec![Taint {
            key: "karpenter.sh/unregistered".to_owned(),
            value: String::new(),
            effect: "NoExecute".to_owned(),
        }],
        kubelet_version: "v1.32.0".to_owned(),
    }
}
