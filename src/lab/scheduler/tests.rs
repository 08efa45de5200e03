use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::{Json, routing::post};
use serde_json::{Value, json};

use super::*;
use crate::lab::{
    api::{DeleteOptions, Patch, WriteOptions},
    testing::*,
};

fn unschedulable(server: &Server, name: &str) -> String {
    let pod = pod(server, name);
    let conditions = pod["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let scheduled = conditions
        .iter()
        .find(|c| c["type"] == "PodScheduled")
        .unwrap();
    assert_eq!(
        (&scheduled["status"], &scheduled["reason"]),
        (&json!("False"), &json!("Unschedulable"))
    );
    scheduled["message"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn pods_go_where_they_fit_and_the_message_says_why_not() {
    let server = server();
    start_scheduler(&server, 7, Settings::default());
    add_pod(&server, "lonely", "1", json!({})).await;
    sleep(0.1).await;
    assert_eq!(
        unschedulable(&server, "lonely"),
        "no nodes available to schedule pods"
    );

    let taints = json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]);
    add_node(&server, "tainted", json!({"spec": {"taints": taints}})).await;
    add_node(
        &server,
        "cordoned",
        json!({"spec": {"unschedulable": true}}),
    )
    .await;
    let small =
        json!({"status": {"allocatable": {"cpu": "1"}}, "metadata": {"labels": {"size": "small"}}});
    add_node(&server, "small", small).await;
    sleep(20.0).await;
    assert_eq!(node_of(&server, "lonely").unwrap(), "small");

    add_pod(&server, "large", "2", json!({})).await;
    add_pod(
        &server,
        "picky",
        "2",
        json!({"nodeSelector": {"size": "large"}}),
    )
    .await;
    let tolerations = json!([{"key": "team", "operator": "Exists"}]);
    add_pod(
        &server,
        "tolerant",
        "2",
        json!({"tolerations": tolerations}),
    )
    .await;
    add_pod(
        &server,
        "gated",
        "10m",
        json!({"schedulingGates": [{"name": "g"}]}),
    )
    .await;
    add_pod(&server, "other", "10m", json!({"schedulerName": "mine"})).await;
    sleep(1.0).await;
    assert_eq!(
        unschedulable(&server, "large"),
        "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {team: a}, \
         1 node(s) were unschedulable."
    );
    assert_eq!(
        unschedulable(&server, "picky"),
        "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
         1 node(s) had untolerated taint {team: a}, 1 node(s) were unschedulable."
    );
    assert_eq!(node_of(&server, "tolerant").unwrap(), "tainted");
    assert_eq!(node_of(&server, "gated"), None);
    assert_eq!(node_of(&server, "other"), None);
    assert!(pod(&server, "gated").condition("PodScheduled") != Some("True"));
}

#[tokio::test(start_paused = true)]
async fn init_containers_pod_slots_and_devices_count() {
    let server = server();
    start_scheduler(&server, 7, Settings::default());
    let allocatable = json!({"cpu": "4", "pods": "2", "nvidia.com/gpu": "1"});
    add_node(
        &server,
        "n1",
        json!({"status": {"allocatable": allocatable}}),
    )
    .await;
    let init = json!([{"name": "i", "image": "i", "resources": {"requests": {"cpu": "5"}}}]);
    add_pod(&server, "init", "1", json!({"initContainers": init})).await;
    let gpu = json!([{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    add_pod(&server, "gpu-a", "0", json!({"containers": gpu})).await;
    sleep(0.1).await;
    add_pod(&server, "gpu-b", "0", json!({"containers": gpu})).await;
    add_pod(&server, "second", "1", json!({})).await;
    sleep(0.1).await;
    add_pod(&server, "third", "1", json!({})).await;
    sleep(0.1).await;
    let insufficient = |what: &str| format!("0/1 nodes are available: 1 {what}.");
    assert_eq!(
        unschedulable(&server, "init"),
        insufficient("Insufficient cpu")
    );
    assert_eq!(node_of(&server, "gpu-a").unwrap(), "n1");
    assert_eq!(
        unschedulable(&server, "gpu-b"),
        insufficient("Insufficient nvidia.com/gpu")
    );
    assert_eq!(node_of(&server, "second").unwrap(), "n1");
    assert_eq!(
        unschedulable(&server, "third"),
        insufficient("Too many pods")
    );
}

#[tokio::test(start_paused = true)]
async fn what_makes_room_wakes_a_pod() {
    let server = server();
    start_scheduler(&server, 7, Settings::default());
    add_node(&server, "n1", json!({})).await;
    add_pod(&server, "a", "3", json!({})).await;
    sleep(0.1).await;
    add_pod(&server, "b", "3", json!({})).await;
    sleep(60.0).await;
    assert_eq!(node_of(&server, "b"), None);
    let attempts_end = server.version();
    // Nothing changes, so nothing is tried or written, but for the flush after five minutes.
    sleep(200.0).await;
    assert_eq!(server.version(), attempts_end);

    server
        .delete(Kind::Pod, "default", "a", &DeleteOptions::now())
        .await
        .unwrap();
    sleep(0.1).await;
    assert_eq!(node_of(&server, "b").unwrap(), "n1");

    let taints = json!([{"key": "boot", "effect": "NoExecute"}]);
    add_node(&server, "n2", json!({"spec": {"taints": taints}})).await;
    add_pod(&server, "c", "3", json!({})).await;
    sleep(60.0).await;
    assert_eq!(node_of(&server, "c"), None);
    let patch = Patch::Merge(json!({"spec": {"taints": null}}));
    let options = WriteOptions::default();
    server
        .patch(Kind::Node, "", "n2", &patch, &options)
        .await
        .unwrap();
    sleep(0.1).await;
    assert_eq!(node_of(&server, "c").unwrap(), "n2");
}

#[tokio::test(start_paused = true)]
async fn a_pod_just_refused_waits_out_its_backoff() {
    let server = server();
    start_scheduler(&server, 7, Settings::default());
    add_pod(&server, "a", "1", json!({})).await;
    sleep(0.1).await;
    add_node(&server, "n1", json!({})).await;
    sleep(0.8).await;
    assert_eq!(node_of(&server, "a"), None);
    sleep(0.2).await;
    assert_eq!(node_of(&server, "a").unwrap(), "n1");
}

#[tokio::test(start_paused = true)]
async fn scores_prefer_the_emptier_the_liked_and_the_untainted_node() {
    let server = server();
    start_scheduler(&server, 7, Settings::default());
    add_node(&server, "n1", json!({})).await;
    add_node(
        &server,
        "n2",
        json!({"metadata": {"labels": {"zone": "b"}}}),
    )
    .await;
    add_pod(
        &server,
        "filler",
        "1",
        json!({"nodeSelector": {"kubernetes.io/hostname": "n1"}}),
    )
    .await;
    sleep(0.1).await;
    add_pod(&server, "any", "100m", json!({})).await;
    sleep(0.1).await;
    assert_eq!(node_of(&server, "any").unwrap(), "n2");

    let term = json!({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]});
    let preferred = json!([{"weight": 1, "preference": term}]);
    let affinity =
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    add_pod(&server, "liking", "100m", json!({"affinity": affinity})).await;
    sleep(0.1).await;
    assert_eq!(node_of(&server, "liking").unwrap(), "n1");

    let patch =
        Patch::Merge(json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}));
    let options = WriteOptions::default();
    server
        .patch(Kind::Node, "", "n2", &patch, &options)
        .await
        .unwrap();
    add_pod(&server, "shy", "100m", json!({})).await;
    sleep(0.1).await;
    assert_eq!(node_of(&server, "shy").unwrap(), "n1");
}

type Calls = Arc<Mutex<Vec<(String, Value)>>>;

/// An extender that records what it is sent and answers what it is told to.
fn extender(filter: Value, scores: Value) -> (Settings, Calls) {
    let calls = Calls::default();
    let route = |path: &'static str, answer: Value, calls: Calls| {
        post(move |Json(body): Json<Value>| async move {
            calls.lock().unwrap().push((path.to_owned(), body));
            Json(answer)
        })
    };
    let router = Router::new()
        .route("/scheduler/filter", route("filter", filter, calls.clone()))
        .route(
            "/scheduler/prioritize",
            route("prioritize", scores, calls.clone()),
        );
    let settings = Settings {
        extender: Some(router),
        ..Settings::default()
    };
    (settings, calls)
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    keys
}

#[tokio::test(start_paused = true)]
async fn the_extender_is_asked_as_kube_scheduler_asks() {
    let server = server();
    let left = json!({"Nodes": null, "NodeNames": ["n1", "n2"], "FailedNodes": {"n3": "leaving"}, "Error": ""});
    let scores = json!([{"Host": "n1", "Score": 0}, {"Host": "n2", "Score": 10}]);
    let (settings, calls) = extender(left, scores);
    start_scheduler(&server, 7, settings);
    add_pod(&server, "a", "1", json!({})).await;
    sleep(0.1).await;
    // No node, no question.
    assert!(calls.lock().unwrap().is_empty());
    for name in ["n1", "n2", "n3"] {
        add_node(&server, name, json!({})).await;
    }
    // The emptiest node by far is not the one that the extender wants.
    add_pod(&server, "filler", "2", json!({"nodeName": "n2"})).await;
    sleep(2.0).await;
    assert_eq!(node_of(&server, "a").unwrap(), "n2");

    let calls = calls.lock().unwrap().clone();
    let paths: Vec<&str> = calls.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["filter", "prioritize"]);
    let text = include_str!("../../../tests/fixtures/extender/filter.json");
    let recorded: Value = serde_json::from_str(text).unwrap();
    for (_, body) in &calls {
        assert_eq!(keys(body), keys(&recorded["body"]));
        assert_eq!(keys(&body["Pod"]), keys(&recorded["body"]["Pod"]));
        assert_eq!(body["Nodes"], Value::Null);
        assert_eq!(body["Pod"]["metadata"]["name"], "a");
    }
    assert_eq!(calls[0].1["NodeNames"], json!(["n1", "n2", "n3"]));
    assert_eq!(calls[1].1["NodeNames"], json!(["n1", "n2"]));
}

#[tokio::test(start_paused = true)]
async fn with_one_node_left_nothing_is_prioritised() {
    let server = server();
    let (settings, calls) = extender(json!({"NodeNames": ["n1"]}), json!([]));
    start_scheduler(&server, 7, settings);
    add_node(&server, "n1", json!({})).await;
    add_node(&server, "n2", json!({})).await;
    add_pod(&server, "a", "1", json!({})).await;
    sleep(0.1).await;
    assert_eq!(node_of(&server, "a").unwrap(), "n1");
    assert_eq!(calls.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_extender_refuses_sleeps_until_something_happens() {
    let server = server();
    let refuse = json!({"NodeNames": [], "FailedNodes": {"n1": "held for another pod"}});
    let (settings, calls) = extender(refuse, json!([]));
    start_scheduler(&server, 7, settings);
    add_node(&server, "n1", json!({})).await;
    add_pod(&server, "a", "1", json!({})).await;
    sleep(60.0).await;
    assert_eq!(calls.lock().unwrap().len(), 1);
    assert_eq!(
        unschedulable(&server, "a"),
        "0/1 nodes are available: 1 held for another pod."
    );
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"touched": "yes"}}}));
    let options = WriteOptions::default();
    server
        .patch(Kind::Node, "", "n1", &patch, &options)
        .await
        .unwrap();
    sleep(0.1).await;
    assert_eq!(calls.lock().unwrap().len(), 2);
    sleep(301.0).await;
    assert_eq!(calls.lock().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_extender_that_fails_is_ignored() {
    for answer in [
        json!({"Error": "broken"}),
        json!({"NodeNames": ["nowhere"]}),
    ] {
        let server = server();
        let (settings, _) = extender(answer, json!("nothing"));
        start_scheduler(&server, 7, settings);
        add_node(&server, "n1", json!({})).await;
        add_node(&server, "n2", json!({})).await;
        add_pod(&server, "a", "1", json!({})).await;
        sleep(0.1).await;
        assert!(node_of(&server, "a").is_some());
    }
    let server = server();
    let settings = Settings {
        extender: Some(Router::new()),
        ..Settings::default()
    };
    start_scheduler(&server, 7, settings);
    add_node(&server, "n1", json!({})).await;
    add_pod(&server, "a", "1", json!({})).await;
    sleep(0.1).await;
    assert_eq!(node_of(&server, "a").unwrap(), "n1");
}

/// 40 nodes and 300 pods, more than fit; where each pod ended up.
async fn burst(seed: u64) -> (Value, BTreeMap<String, usize>) {
    let server = server();
    start_workloads(&server, seed);
    start_scheduler(&server, seed, Settings::default());
    create(
        &server,
        Kind::Deployment,
        workload("inflate", Some(300), "1"),
    )
    .await;
    sleep(2.0).await;
    for n in 0..40 {
        add_node(&server, &format!("n{n:02}"), json!({})).await;
    }
    sleep(60.0).await;
    let mut on: BTreeMap<String, usize> = BTreeMap::new();
    for pod in all(&server, Kind::Pod) {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        *on.entry(node.to_owned()).or_default() += 1;
    }
    (server.dump(), on)
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_history() {
    let (first, on) = burst(7).await;
    // 40 nodes of 4 CPUs take 160 pods of one CPU.
    assert_eq!(on.get(""), Some(&140));
    assert!((0..40).all(|n| on.get(&format!("n{n:02}")) == Some(&4)));
    assert_eq!(first, burst(7).await.0);
    assert_ne!(first, burst(8).await.0);
}
