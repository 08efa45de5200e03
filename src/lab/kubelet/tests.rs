use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};

use super::*;
use crate::lab::{api::Object, testing::*};

fn start(server: &Server, seed: u64) -> Sender<Machine> {
    let (sender, machines) = channel(16);
    let kubelets = Kubelets::new(server.clone(), Seed::new(seed));
    tokio::spawn(kubelets.run(machines, CancellationToken::new()));
    sender
}

fn boot(machines: &Sender<Machine>, id: &str) {
    let event = Machine::Booted(Box::new(machine(id)));
    machines.try_send(event).unwrap();
}

/// Takes a machine away.
fn lose(machines: &Sender<Machine>, id: &str) {
    let provider_id = format!("aws:///us-east-1a/{id}");
    let node_name = "ip-10-0-0-9.ec2.internal".to_owned();
    let terminating = Machine::Terminating {
        provider_id: provider_id.clone(),
        node_name: node_name.clone(),
    };
    machines.try_send(terminating).unwrap();
    let terminated = Machine::Terminated {
        provider_id,
        node_name,
    };
    machines.try_send(terminated).unwrap();
}

fn the_node(server: &Server) -> Object {
    let nodes = all(server, Kind::Node);
    assert_eq!(nodes.len(), 1);
    nodes[0].clone()
}

fn taints(node: &Object) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints
        .map(|t| {
            format!(
                "{}:{}",
                t["key"].as_str().unwrap(),
                t["effect"].as_str().unwrap()
            )
        })
        .collect()
}

/// Puts a pod on the only node.
async fn run(server: &Server, name: &str, more: Value, annotations: Value) {
    let mut pod = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "pause"}]},
    });
    json_patch::merge(&mut pod["spec"], &more);
    create(server, Kind::Pod, pod).await;
    let node = the_node(server);
    server.bind("default", name, node.name(), None).unwrap();
}

fn phase(server: &Server, name: &str) -> Option<String> {
    let pod = server.get(Kind::Pod, "default", name).ok()?;
    pod["status"]["phase"].as_str().map(str::to_owned)
}

#[tokio::test(start_paused = true)]
async fn a_machine_becomes_a_ready_node_and_then_tells_of_its_devices() {
    let server = server();
    let machines = start(&server, 7);
    boot(&machines, "i-1");
    sleep(0.1).await;
    let node = the_node(&server);
    assert_eq!(node.name(), "ip-10-0-0-9.ec2.internal");
    assert_eq!(node["status"]["addresses"][0]["address"], "10.0.0.9");
    assert_eq!(node["spec"]["providerID"], "aws:///us-east-1a/i-1");
    for (key, value) in [
        ("karpenter.sh/nodepool", "default"),
        ("kubernetes.io/hostname", node.name()),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", "g4dn.xlarge"),
        ("topology.kubernetes.io/zone", "us-east-1a"),
        ("topology.kubernetes.io/region", "us-east-1"),
    ] {
        assert_eq!(node.label(key), Some(value), "{key}");
    }
    assert_eq!(node.condition("Ready"), Some("False"));
    let unregistered = "karpenter.sh/unregistered:NoExecute";
    assert_eq!(
        taints(&node),
        [unregistered, "node.kubernetes.io/not-ready:NoSchedule"]
    );
    let amounts = json!({"cpu": "4", "memory": "16Gi", "pods": "58"});
    assert_eq!(node["status"]["allocatable"], amounts);

    sleep(6.0).await;
    let node = the_node(&server);
    assert_eq!(node.condition("Ready"), Some("True"));
    assert_eq!(taints(&node), [unregistered]);
    sleep(8.0).await;
    assert_eq!(
        the_node(&server)["status"]["allocatable"]["nvidia.com/gpu"],
        "2"
    );
    assert_eq!(
        the_node(&server)["status"]["capacity"]["nvidia.com/gpu"],
        "2"
    );
}

#[tokio::test(start_paused = true)]
async fn bound_pods_start_run_and_end() {
    let server = server();
    let machines = start(&server, 7);
    boot(&machines, "i-1");
    sleep(10.0).await;
    run(&server, "service", json!({}), json!({})).await;
    run(
        &server,
        "once",
        json!({"restartPolicy": "Never"}),
        json!({}),
    )
    .await;
    run(&server, "timed", json!({}), json!({RUN_FOR: "10s"})).await;
    sleep(0.9).await;
    assert_eq!(phase(&server, "service").unwrap(), "Pending");
    sleep(2.2).await;
    for name in ["service", "once", "timed"] {
        assert_eq!(phase(&server, name).unwrap(), "Running", "{name}");
        assert_eq!(pod(&server, name).condition("Ready"), Some("True"));
    }
    let status = pod(&server, "service")["status"].clone();
    assert_eq!(status["startTime"], "2027-01-15T08:00:10Z");
    sleep(10.0).await;
    assert_eq!(phase(&server, "timed").unwrap(), "Succeeded");
    assert_eq!(phase(&server, "once").unwrap(), "Running");
    sleep(20.0).await;
    assert_eq!(phase(&server, "once").unwrap(), "Succeeded");
    assert_eq!(phase(&server, "service").unwrap(), "Running");
}

#[tokio::test(start_paused = true)]
async fn pods_told_to_end_are_gone_soon_or_when_their_grace_is_over() {
    let server = server();
    let machines = start(&server, 7);
    boot(&machines, "i-1");
    sleep(10.0).await;
    run(&server, "quick", json!({}), json!({})).await;
    run(&server, "slow", json!({}), json!({STOP_AFTER: "20s"})).await;
    let stubborn = json!({"terminationGracePeriodSeconds": 5});
    run(&server, "stubborn", stubborn, json!({STOP_AFTER: "1h"})).await;
    sleep(4.0).await;
    for name in ["quick", "slow", "stubborn"] {
        let options = DeleteOptions::default();
        server
            .delete(Kind::Pod, "default", name, &options)
            .await
            .unwrap();
    }
    sleep(0.9).await;
    assert!(phase(&server, "quick").is_some());
    sleep(1.2).await;
    assert!(phase(&server, "quick").is_none());
    assert!(phase(&server, "stubborn").is_some());
    sleep(3.0).await;
    assert!(phase(&server, "stubborn").is_none());
    assert!(phase(&server, "slow").is_some());
    sleep(15.0).await;
    assert!(phase(&server, "slow").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_without_its_machine_goes_silent_and_is_deleted() {
    let server = server();
    let machines = start(&server, 7);
    boot(&machines, "i-1");
    sleep(20.0).await;
    run(&server, "service", json!({}), json!({})).await;
    sleep(4.0).await;
    lose(&machines, "i-1");
    sleep(39.0).await;
    assert_eq!(the_node(&server).condition("Ready"), Some("True"));
    sleep(2.0).await;
    let node = the_node(&server);
    assert_eq!(node.condition("Ready"), Some("Unknown"));
    assert_eq!(
        taints(&node)[1..],
        [
            "node.kubernetes.io/unreachable:NoSchedule",
            "node.kubernetes.io/unreachable:NoExecute"
        ]
    );
    assert_eq!(pod(&server, "service").condition("Ready"), Some("False"));
    sleep(5.0).await;
    assert!(all(&server, Kind::Node).is_empty());
    // The pod is the collector's, which does not run here.
    assert_eq!(phase(&server, "service").unwrap(), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_pod_bound_before_the_node_is_ready_waits_for_it() {
    let server = server();
    let machines = start(&server, 7);
    boot(&machines, "i-1");
    sleep(0.1).await;
    run(&server, "early", json!({}), json!({})).await;
    while the_node(&server).condition("Ready") != Some("True") {
        assert_eq!(phase(&server, "early").unwrap(), "Pending");
        sleep(0.1).await;
    }
    sleep(3.1).await;
    assert_eq!(phase(&server, "early").unwrap(), "Running");
}

#[tokio::test(start_paused = true)]
async fn a_machine_with_an_old_address_registers_once_the_old_node_is_gone() {
    let server = server();
    let machines = start(&server, 7);
    boot(&machines, "i-1");
    sleep(20.0).await;
    lose(&machines, "i-1");
    sleep(10.0).await;
    boot(&machines, "i-2");
    sleep(34.0).await;
    let provider_id = || the_node(&server)["spec"]["providerID"].clone();
    assert_eq!(provider_id(), "aws:///us-east-1a/i-1");
    sleep(3.0).await;
    assert_eq!(provider_id(), "aws:///us-east-1a/i-2");
    sleep(60.0).await;
    assert_eq!(the_node(&server).condition("Ready"), Some("True"));
}

#[tokio::test(start_paused = true)]
async fn kubelets_run_on_when_the_cloud_is_dropped() {
    let server = server();
    let machines = start(&server, 7);
    boot(&machines, "i-1");
    drop(machines);
    sleep(10.0).await;
    run(&server, "service", json!({}), json!({})).await;
    sleep(3.1).await;
    assert_eq!(phase(&server, "service").unwrap(), "Running");
}
