//! Eviction and disruption budgets.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, EvictParams};
use serde_json::{Value, json};

use super::{client, code, pod, running_pod, server, status};
use crate::lab::api::{BudgetStatus, DeleteOptions, Kind, Server, WriteOptions};

async fn budget(server: &Server, name: &str, mut spec: Value) {
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    let value = json!({"metadata": {"name": name}, "spec": spec});
    let options = WriteOptions::default();
    let kind = Kind::PodDisruptionBudget;
    server
        .create(kind, "default", value, &options)
        .await
        .unwrap();
}

async fn pods(server: &Server, names: &[&str]) -> Api<Pod> {
    for name in names {
        running_pod(server, pod(name), "n1").await;
    }
    Api::default_namespaced(client(server))
}

#[tokio::test(start_paused = true)]
async fn a_budget_pays_for_one_eviction_and_then_refuses() {
    let server = server();
    let pods = pods(&server, &["a", "b"]).await;
    budget(&server, "web", json!({"minAvailable": 1})).await;
    let params = EvictParams::default();
    pods.evict("a", &params).await.unwrap();
    let leaving = server.get(Kind::Pod, "default", "a").unwrap();
    assert!(leaving.is_deleting());
    assert_eq!(leaving.condition("DisruptionTarget"), Some("True"));

    let refused = status(pods.evict("b", &params).await.unwrap_err());
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (429, "TooManyRequests")
    );
    let causes = &refused.details.as_ref().unwrap().causes;
    assert_eq!(
        causes[0].message,
        "The disruption budget web needs 1 healthy pods and has 1 currently"
    );
    // A pod that is already going costs nothing.
    pods.evict("a", &params).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn two_budgets_over_one_pod_are_an_error() {
    let server = server();
    let pods = pods(&server, &["a"]).await;
    budget(&server, "one", json!({"maxUnavailable": 1})).await;
    budget(&server, "two", json!({"maxUnavailable": 1})).await;
    let refused = pods.evict("a", &EvictParams::default()).await;
    let refused = status(refused.unwrap_err());
    assert_eq!(refused.code, 500);
    assert!(
        refused
            .message
            .contains("more than one PodDisruptionBudget")
    );
}

#[tokio::test(start_paused = true)]
async fn ended_and_waiting_pods_need_no_budget() {
    let server = server();
    let pods = pods(&server, &["done", "stays"]).await;
    budget(&server, "web", json!({"maxUnavailable": 0})).await;
    let set = |status: &mut Value| status["phase"] = json!("Succeeded");
    server
        .edit_status(Kind::Pod, "default", "done", set)
        .unwrap();
    let options = WriteOptions::default();
    server
        .create(Kind::Pod, "default", pod("waits"), &options)
        .await
        .unwrap();
    let params = EvictParams::default();
    for name in ["done", "waits"] {
        pods.evict(name, &params).await.unwrap();
        assert_eq!(code(&pods.get(name).await.unwrap_err()), 404, "{name}");
    }
    assert_eq!(code(&pods.evict("stays", &params).await.unwrap_err()), 429);
}

#[tokio::test(start_paused = true)]
async fn a_failed_precondition_costs_nothing() {
    let server = server();
    pods(&server, &["a", "b"]).await;
    budget(&server, "web", json!({"maxUnavailable": 1})).await;
    let wrong = DeleteOptions {
        uid: Some("other".to_owned()),
        ..DeleteOptions::default()
    };
    let refused = server.evict("default", "a", &wrong);
    assert!(refused.unwrap_err().is_conflict());
    let status = server.budget_status("default", "web").unwrap();
    assert_eq!(status.disruptions_allowed, 1);
}

#[tokio::test(start_paused = true)]
async fn budgets_count_as_the_disruption_controller_does() {
    let server = server();
    pods(&server, &["a", "b", "c"]).await;
    let mut unready = pod("d");
    unready["spec"]["nodeName"] = json!("n1");
    let options = WriteOptions::default();
    server
        .create(Kind::Pod, "default", unready, &options)
        .await
        .unwrap();
    // 4 pods, 3 of them ready. 30 % of 4 is 1.2, rounded up to 2.
    for (name, spec, desired, allowed) in [
        ("min-number", json!({"minAvailable": 2}), 2, 1),
        ("min-percent", json!({"minAvailable": "30%"}), 2, 1),
        ("max-number", json!({"maxUnavailable": 2}), 2, 1),
        ("max-percent", json!({"maxUnavailable": "30%"}), 2, 1),
        ("all", json!({"minAvailable": "100%"}), 4, 0),
        ("over", json!({"maxUnavailable": 9}), 0, 3),
    ] {
        budget(&server, name, spec).await;
        let expected = BudgetStatus {
            expected_pods: 4,
            current_healthy: 3,
            desired_healthy: desired,
            disruptions_allowed: allowed,
        };
        let status = server.budget_status("default", name).unwrap();
        assert_eq!(status, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn percentages_count_on_the_scale_of_the_owner() {
    let server = server();
    let options = WriteOptions::default();
    let labels = json!({"app": "web"});
    let workload = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 10, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}},
    });
    let set = server
        .create(Kind::ReplicaSet, "default", workload, &options)
        .await
        .unwrap();
    let mut value = pod("a");
    let uid = set.object.uid();
    value["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}]);
    running_pod(&server, value, "n1").await;
    budget(&server, "web", json!({"minAvailable": "50%"})).await;
    let status = server.budget_status("default", "web").unwrap();
    assert_eq!((status.expected_pods, status.desired_healthy), (10, 5));
    assert_eq!(status.disruptions_allowed, 0);
}

#[tokio::test(start_paused = true)]
async fn the_disruption_controller_writes_the_status() {
    let server = server();
    let controller = server.clone();
    let task = tokio::spawn(async move { controller.run_disruption_controller().await });
    let mut watch = server.subscribe(Kind::PodDisruptionBudget);
    budget(&server, "web", json!({"maxUnavailable": 1})).await;
    pods(&server, &["a"]).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let mut last = None;
    while let Some(event) = watch.try_next() {
        last = Some(event.object);
    }
    let budget: PodDisruptionBudget = last.unwrap().parse().unwrap();
    let status = budget.status.unwrap();
    assert_eq!((status.disruptions_allowed, status.current_healthy), (1, 1));
    assert_eq!(status.observed_generation, Some(1));
    task.abort();
}
