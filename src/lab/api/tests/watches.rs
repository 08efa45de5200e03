//! Watches over HTTP and in process.

use std::pin::pin;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use super::{client, pod, running_pod, server, typed_pod};
use crate::lab::api::{Change, DeleteOptions, Kind, Patch, Selectors, Server, WriteOptions};

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn seen(event: &WatchEvent<Pod>) -> String {
    let (word, pod) = match event {
        WatchEvent::Added(pod) => ("ADDED", pod),
        WatchEvent::Modified(pod) => ("MODIFIED", pod),
        WatchEvent::Deleted(pod) => ("DELETED", pod),
        other => return format!("{other:?}"),
    };
    format!(
        "{word} {}",
        pod.metadata.name.as_deref().unwrap_or_default()
    )
}

async fn relabel(server: &Server, name: &str, labels: Value) {
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    let options = WriteOptions::default();
    server
        .patch(Kind::Pod, "default", name, &patch, &options)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_list_misses_nothing() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    let params = PostParams::default();
    pods.create(&params, &typed_pod("a")).await.unwrap();
    let list = pods.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    pods.create(&params, &typed_pod("b")).await.unwrap();
    let watch = pods.watch(&WatchParams::default(), &version).await.unwrap();
    let mut watch = pin!(watch);
    pods.create(&params, &typed_pod("c")).await.unwrap();
    pods.delete("a", &Default::default()).await.unwrap();
    for expected in ["ADDED b", "ADDED c", "DELETED a"] {
        let event = watch.try_next().await.unwrap().unwrap();
        assert_eq!(seen(&event), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_forgotten_history_is_gone() {
    let server = server();
    server.set_history(2);
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let params = PostParams::default();
    let first = maps.create(&params, &config_map("a")).await.unwrap();
    for name in ["b", "c"] {
        maps.create(&params, &config_map(name)).await.unwrap();
    }
    // Two changes are remembered and a watch from the first needs just these two.
    let first = first.metadata.resource_version.unwrap();
    let watch = |from: String| {
        let maps = maps.clone();
        async move {
            let watch = maps.watch(&WatchParams::default(), &from).await.unwrap();
            pin!(watch).try_next().await.unwrap().unwrap()
        }
    };
    assert!(matches!(watch(first.clone()).await, WatchEvent::Added(_)));
    maps.create(&params, &config_map("d")).await.unwrap();
    match watch(first).await {
        WatchEvent::Error(status) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        }
        other => panic!("not an error: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn objects_come_and_go_as_they_enter_and_leave_a_label_selection() {
    let server = server();
    let selectors = Selectors::parse("app=web", "").unwrap();
    let from = server.version();
    let mut live = server
        .watch(Kind::Pod, Some("default"), Some(from), &selectors)
        .unwrap();
    let options = WriteOptions::default();
    let mut other = pod("a");
    other["metadata"]["labels"] = json!({"app": "db"});
    server
        .create(Kind::Pod, "default", other, &options)
        .await
        .unwrap();
    relabel(&server, "a", json!({"app": "web"})).await;
    relabel(&server, "a", json!({"app": "web", "more": "x"})).await;
    relabel(&server, "a", json!({"app": "db"})).await;
    let left = server.version();
    let any = DeleteOptions::default();
    server
        .delete(Kind::Pod, "default", "a", &any)
        .await
        .unwrap();

    let mut replayed = server
        .watch(Kind::Pod, Some("default"), Some(from), &selectors)
        .unwrap();
    for watch in [&mut live, &mut replayed] {
        let mut words = Vec::new();
        let mut last = None;
        while let Some(event) = watch.try_next() {
            words.push(event.change.word());
            last = Some(event.object);
        }
        assert_eq!(words, ["ADDED", "MODIFIED", "DELETED"]);
        let last = last.unwrap();
        assert_eq!(last.label("app"), Some("web"), "the last selected state");
        assert_eq!(last["metadata"]["resourceVersion"], left.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_sees_the_pods_of_its_node() {
    let server = server();
    let pods: Api<Pod> = Api::all(client(&server));
    let params = WatchParams::default().fields("spec.nodeName=n1");
    let watch = pods.watch(&params, "0").await.unwrap();
    let mut watch = pin!(watch);
    running_pod(&server, pod("other"), "n2").await;
    running_pod(&server, pod("mine"), "n1").await;
    for expected in ["ADDED mine", "MODIFIED mine"] {
        let event = watch.try_next().await.unwrap().unwrap();
        assert_eq!(seen(&event), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_watch_begins_with_what_is_there() {
    let server = server();
    running_pod(&server, pod("a"), "n1").await;
    let mut watch = server.subscribe(Kind::Pod);
    let event = watch.next().await.unwrap();
    assert_eq!((event.change, event.object.name()), (Change::Added, "a"));
    assert!(watch.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_follows_in_both_list_modes() {
    for streaming in [false, true] {
        let server = server();
        let pods: Api<Pod> = Api::all(client(&server));
        running_pod(&server, pod("a"), "n1").await;
        let mut config = watcher::Config::default();
        if streaming {
            config = config.streaming_lists();
        }
        let mut objects = pin!(watcher(pods, config).default_backoff().touched_objects());
        let first = objects.next().await.unwrap().unwrap();
        assert_eq!(first.metadata.name.as_deref(), Some("a"), "{streaming}");
        running_pod(&server, pod("b"), "n1").await;
        let next = objects.next().await.unwrap().unwrap();
        assert_eq!(next.metadata.name.as_deref(), Some("b"), "{streaming}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_the_time_asked_for() {
    let server = server();
    let pods: Api<Pod> = Api::all(client(&server));
    let params = WatchParams::default().timeout(60);
    let watch = pods.watch(&params, "0").await.unwrap();
    let started = tokio::time::Instant::now();
    assert!(pin!(watch).try_next().await.unwrap().is_none());
    assert_eq!(started.elapsed().as_secs(), 60);
}
