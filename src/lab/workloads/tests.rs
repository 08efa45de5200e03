use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::lab::testing::*;

async fn scale(server: &Server, name: &str, replicas: u32) {
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    let options = WriteOptions::default();
    let done = server.patch(Kind::Deployment, "default", name, &patch, &options);
    done.await.unwrap();
}

/// Plays a kubelet that starts every pod at once.
fn start_pods(server: &Server) {
    for pod in all(server, Kind::Pod) {
        let set = |status: &mut Value| {
            status["phase"] = json!("Running");
            status["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        };
        let (namespace, name) = (pod.namespace(), pod.name());
        server.edit_status(Kind::Pod, namespace, name, set).unwrap();
    }
}

fn names(server: &Server) -> BTreeSet<String> {
    let pods = all(server, Kind::Pod);
    pods.iter().map(|p| p.name().to_owned()).collect()
}

fn deployment(server: &Server) -> Object {
    server.get(Kind::Deployment, "default", "inflate").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_scales_up_and_down() {
    let server = server();
    start_workloads(&server, 7);
    create(&server, Kind::Deployment, workload("inflate", Some(0), "1")).await;
    sleep(1.0).await;
    let sets = all(&server, Kind::ReplicaSet);
    assert_eq!(sets.len(), 1);
    assert!(names(&server).is_empty());

    scale(&server, "inflate", 10).await;
    sleep(5.0).await;
    let pods = all(&server, Kind::Pod);
    assert_eq!(pods.len(), 10);
    let hash = sets[0].label("pod-template-hash").unwrap();
    for pod in &pods {
        let suffix = pod
            .name()
            .strip_prefix(&format!("inflate-{hash}-"))
            .unwrap();
        assert_eq!(suffix.len(), 5);
        assert_eq!(pod.label("app"), Some("inflate"));
        assert_eq!(pod.label("pod-template-hash"), Some(hash));
        assert_eq!(pod.controller_uid(), Some(sets[0].uid()));
    }
    start_pods(&server);
    sleep(1.0).await;
    let status = deployment(&server)["status"].clone();
    for key in [
        "replicas",
        "readyReplicas",
        "updatedReplicas",
        "availableReplicas",
    ] {
        assert_eq!(status[key], 10, "{key}");
    }
    assert_eq!(deployment(&server).condition("Available"), Some("True"));

    let before = names(&server);
    scale(&server, "inflate", 3).await;
    sleep(5.0).await;
    let after = names(&server);
    assert_eq!(after.len(), 3);
    assert!(after.is_subset(&before));
    assert_eq!(deployment(&server)["status"]["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn pods_that_go_or_fail_are_replaced() {
    let server = server();
    start_workloads(&server, 7);
    create(&server, Kind::Deployment, workload("inflate", Some(3), "1")).await;
    sleep(5.0).await;
    let before: Vec<String> = names(&server).into_iter().collect();
    let now = DeleteOptions::now();
    server
        .delete(Kind::Pod, "default", &before[0], &now)
        .await
        .unwrap();
    let fail = |status: &mut Value| status["phase"] = json!("Failed");
    server
        .edit_status(Kind::Pod, "default", &before[1], fail)
        .unwrap();
    sleep(5.0).await;
    let after = names(&server);
    assert!(!after.contains(&before[0]));
    // The failed one stays to be looked at, and does not count.
    assert_eq!(after.len(), 4);
    let active = all(&server, Kind::Pod)
        .iter()
        .filter(|p| is_active(p))
        .count();
    assert_eq!(active, 3);
}

#[tokio::test(start_paused = true)]
async fn a_new_template_rolls_out_without_losing_ready_pods() {
    let server = server();
    start_workloads(&server, 7);
    create(&server, Kind::Deployment, workload("inflate", Some(4), "1")).await;
    sleep(5.0).await;
    start_pods(&server);
    sleep(1.0).await;
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}});
    let (patch, options) = (Patch::Merge(patch), WriteOptions::default());
    let done = server.patch(Kind::Deployment, "default", "inflate", &patch, &options);
    done.await.unwrap();
    // 25 % of 4: one more than wanted, one fewer ready.
    for _ in 0..20 {
        sleep(1.0).await;
        let pods = all(&server, Kind::Pod);
        assert!(pods.len() <= 5, "{} pods", pods.len());
        assert!(pods.iter().filter(|p| is_ready(p)).count() >= 3);
        start_pods(&server);
    }
    let pods = all(&server, Kind::Pod);
    assert_eq!(pods.len(), 4);
    assert!(pods.iter().all(|p| p.annotation("v") == Some("2")));
    let sets = all(&server, Kind::ReplicaSet);
    let replicas: BTreeSet<u64> = sets
        .iter()
        .map(|s| s["spec"]["replicas"].as_u64().unwrap())
        .collect();
    assert_eq!(replicas, BTreeSet::from([0, 4]));
}

#[tokio::test(start_paused = true)]
async fn recreate_starts_the_new_pods_when_the_old_ones_are_gone() {
    let server = server();
    start_workloads(&server, 7);
    let mut inflate = workload("inflate", Some(2), "1");
    inflate["spec"]["strategy"] = json!({"type": "Recreate"});
    create(&server, Kind::Deployment, inflate).await;
    sleep(5.0).await;
    add_node(&server, "n1", json!({})).await;
    let old = names(&server);
    for name in &old {
        server.bind("default", name, "n1", None).unwrap();
    }
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}});
    let (patch, options) = (Patch::Merge(patch), WriteOptions::default());
    let done = server.patch(Kind::Deployment, "default", "inflate", &patch, &options);
    done.await.unwrap();
    sleep(5.0).await;
    // Bound pods wait for their kubelet; until it has ended them, no others.
    assert_eq!(names(&server), old);
    for name in &old {
        let now = DeleteOptions::now();
        server
            .delete(Kind::Pod, "default", name, &now)
            .await
            .unwrap();
    }
    sleep(5.0).await;
    let pods = all(&server, Kind::Pod);
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().all(|p| p.annotation("v") == Some("2")));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_has_a_pod_on_each_node_that_admits_it() {
    let server = server();
    start_workloads(&server, 7);
    start_scheduler(&server, 7, Default::default());
    add_node(
        &server,
        "n1",
        json!({"metadata": {"labels": {"disk": "ssd"}}}),
    )
    .await;
    let not_ready = json!([
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    let more = json!({"metadata": {"labels": {"disk": "ssd"}}, "spec": {"taints": not_ready, "unschedulable": true}});
    add_node(&server, "n2", more).await;
    let taints = json!([{"key": "dedicated", "effect": "NoSchedule"}]);
    let more = json!({"metadata": {"labels": {"disk": "ssd"}}, "spec": {"taints": taints}});
    add_node(&server, "n3", more).await;
    add_node(&server, "n4", json!({})).await;
    let mut agent = workload("agent", None, "100m");
    agent["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    create(&server, Kind::DaemonSet, agent).await;
    sleep(5.0).await;
    let nodes = || -> Vec<String> {
        let mut nodes: Vec<String> = (all(&server, Kind::Pod).iter())
            .map(|p| {
                p["spec"]["nodeName"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect();
        nodes.sort();
        nodes
    };
    assert_eq!(nodes(), ["n1", "n2"]);
    let set = server.get(Kind::DaemonSet, "default", "agent").unwrap();
    assert_eq!(set["status"]["desiredNumberScheduled"], 2);

    add_node(
        &server,
        "n5",
        json!({"metadata": {"labels": {"disk": "ssd"}}}),
    )
    .await;
    sleep(5.0).await;
    assert_eq!(nodes(), ["n1", "n2", "n5"]);

    let now = DeleteOptions::default();
    server.delete(Kind::Node, "", "n1", &now).await.unwrap();
    sleep(39.0).await;
    assert_eq!(nodes(), ["n1", "n2", "n5"]);
    sleep(2.0).await;
    assert_eq!(nodes(), ["n2", "n5"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_pods_until_enough_succeed() {
    let server = server();
    start_workloads(&server, 7);
    let mut job = workload("work", None, "1");
    let spec = job["spec"].as_object_mut().unwrap();
    spec.remove("selector");
    spec["template"]["spec"]["restartPolicy"] = json!("Never");
    spec.insert("completions".to_owned(), json!(2));
    create(&server, Kind::Job, job).await;
    let end = |phase: &'static str| {
        for pod in all(&server, Kind::Pod).iter().filter(|p| is_active(p)) {
            let set = |status: &mut Value| status["phase"] = json!(phase);
            server
                .edit_status(Kind::Pod, "default", pod.name(), set)
                .unwrap();
        }
    };
    sleep(1.0).await;
    end("Failed");
    sleep(1.0).await;
    end("Succeeded");
    sleep(1.0).await;
    let job = server.get(Kind::Job, "default", "work").unwrap();
    assert_eq!(job.condition("Complete"), None);
    assert_eq!(job["status"]["active"], 1);
    end("Succeeded");
    sleep(1.0).await;
    let job = server.get(Kind::Job, "default", "work").unwrap();
    assert_eq!(job.condition("Complete"), Some("True"));
    let status = &job["status"];
    assert_eq!(
        (&status["succeeded"], &status["failed"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(all(&server, Kind::Pod).len(), 3);
}
