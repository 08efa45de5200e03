//! Finalizers, graceful deletion, preconditions, owners, namespaces.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch as KubePatch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::{client, code, pod, running_pod, server, typed_pod};
use crate::lab::api::{DeleteOptions, Deleted, Kind, Server, WriteOptions};

async fn create(server: &Server, kind: Kind, value: Value) -> String {
    let space = if kind.info().namespaced {
        "default"
    } else {
        ""
    };
    let made = server
        .create(kind, space, value, &WriteOptions::default())
        .await;
    made.unwrap().object.uid().to_owned()
}

fn owned(mut value: Value, owners: &[&str]) -> Value {
    let references = owners.iter().enumerate().map(|(at, uid)| {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": uid, "controller": at == 0})
    });
    value["metadata"]["ownerReferences"] = references.collect();
    value
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test(start_paused = true)]
async fn finalizers_hold_an_object_until_the_last_is_taken_away() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let held: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "m", "finalizers": ["x/y"]}})).unwrap();
    maps.create(&PostParams::default(), &held).await.unwrap();
    let params = DeleteParams::default();
    let pending = maps.delete("m", &params).await.unwrap().left().unwrap();
    assert!(pending.metadata.deletion_timestamp.is_some());

    let version = server.version();
    maps.delete("m", &params).await.unwrap();
    assert_eq!(server.version(), version, "a second delete changes nothing");

    let patch = PatchParams::default();
    let more = KubePatch::Merge(json!({"metadata": {"finalizers": ["x/y", "x/z"]}}));
    let refused = maps.patch("m", &patch, &more).await;
    assert_eq!(code(&refused.unwrap_err()), 422);

    let none = KubePatch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("m", &patch, &none).await.unwrap();
    assert_eq!(code(&maps.get("m").await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn deletion_counts_a_generation_and_honours_preconditions() {
    let server = server();
    let value = json!({"metadata": {"name": "p", "finalizers": ["x/y"]}, "spec": {}});
    let uid = create(&server, Kind::NodePool, value).await;
    let wrong = DeleteOptions {
        uid: Some("other".to_owned()),
        ..DeleteOptions::default()
    };
    let refused = server.delete(Kind::NodePool, "", "p", &wrong).await;
    assert!(refused.unwrap_err().is_conflict());
    let stale = DeleteOptions {
        uid: Some(uid),
        resource_version: Some("1".to_owned()),
        ..DeleteOptions::default()
    };
    let refused = server.delete(Kind::NodePool, "", "p", &stale).await;
    assert!(refused.unwrap_err().is_conflict());
    let any = DeleteOptions::default();
    let deleted = server.delete(Kind::NodePool, "", "p", &any).await.unwrap();
    assert!(matches!(deleted, Deleted::Pending(_)));
    assert_eq!(deleted.object()["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_goes_only_when_its_kubelet_says_so() {
    let server = server();
    running_pod(&server, pod("a"), "n1").await;
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    let pending = pods.delete("a", &DeleteParams::default()).await.unwrap();
    let metadata = pending.left().unwrap().metadata;
    assert_eq!(metadata.deletion_grace_period_seconds, Some(30));
    let at = metadata.deletion_timestamp.unwrap().0.to_string();
    assert_eq!(at, "2026-01-01T00:00:30Z");

    let longer = DeleteParams::default().grace_period(60);
    let same = pods.delete("a", &longer).await.unwrap().left().unwrap();
    assert_eq!(same.metadata.deletion_grace_period_seconds, Some(30));
    let shorter = DeleteParams::default().grace_period(5);
    let sooner = pods.delete("a", &shorter).await.unwrap().left().unwrap();
    assert_eq!(sooner.metadata.deletion_grace_period_seconds, Some(5));

    let uid = metadata.uid.clone();
    let now = DeleteParams::default()
        .grace_period(0)
        .preconditions(Preconditions {
            uid,
            resource_version: None,
        });
    assert!(pods.delete("a", &now).await.unwrap().is_right());
    assert_eq!(code(&pods.get("a").await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_goes_at_once() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    pods.create(&PostParams::default(), &typed_pod("a"))
        .await
        .unwrap();
    let gone = pods.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(gone.is_right());
    assert_eq!(server.count(Kind::Pod), 0);
}

#[tokio::test(start_paused = true)]
async fn what_only_the_deleted_owned_goes_with_it() {
    let server = server();
    let top = create(&server, Kind::ConfigMap, map("top")).await;
    let other = create(&server, Kind::ConfigMap, map("other")).await;
    let middle = create(&server, Kind::ConfigMap, owned(map("middle"), &[&top])).await;
    create(
        &server,
        Kind::ConfigMap,
        owned(map("shared"), &[&top, &other]),
    )
    .await;
    create(&server, Kind::Pod, owned(pod("waiting"), &[&middle])).await;
    running_pod(&server, owned(pod("running"), &[&middle]), "n1").await;
    assert_eq!(server.owned_by(Kind::Pod, &middle).len(), 2);

    let options = DeleteOptions::default();
    let space = "default";
    server
        .delete(Kind::ConfigMap, space, "top", &options)
        .await
        .unwrap();
    let missing = |kind, name| server.get(kind, space, name).is_err();
    assert!(missing(Kind::ConfigMap, "middle"));
    assert!(missing(Kind::Pod, "waiting"));
    assert!(
        server
            .get(Kind::Pod, space, "running")
            .unwrap()
            .is_deleting()
    );
    let shared = server.get(Kind::ConfigMap, space, "shared").unwrap();
    let left = shared["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((left.len(), left[0]["uid"].as_str()), (1, Some(&*other)));

    // A child that comes after its owner has gone does not stay.
    create(&server, Kind::ConfigMap, owned(map("late"), &[&top])).await;
    assert!(missing(Kind::ConfigMap, "late"));
}

#[tokio::test(start_paused = true)]
async fn orphans_stay() {
    let server = server();
    let top = create(&server, Kind::ConfigMap, map("top")).await;
    create(&server, Kind::ConfigMap, owned(map("child"), &[&top])).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let params = DeleteParams::orphan();
    maps.delete("top", &params).await.unwrap();
    let child = maps.get("child").await.unwrap();
    assert_eq!(child.metadata.owner_references, None);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_after_its_last_object() {
    let server = server();
    let options = WriteOptions::default();
    create(&server, Kind::Namespace, map("team")).await;
    let made = server.create(Kind::Pod, "team", pod("a"), &options).await;
    made.unwrap();
    server.bind("team", "a", "n1", None).unwrap();
    let any = DeleteOptions::default();
    let deleted = server.delete(Kind::Namespace, "", "team", &any).await;
    assert!(matches!(deleted, Ok(Deleted::Pending(_))));
    let refused = server.create(Kind::Pod, "team", pod("b"), &options).await;
    assert_eq!(refused.unwrap_err().code, 403);
    let now = DeleteOptions::now();
    server.delete(Kind::Pod, "team", "a", &now).await.unwrap();
    assert!(server.get(Kind::Namespace, "", "team").is_err());
}

#[tokio::test(start_paused = true)]
async fn events_last_an_hour_from_their_last_write() {
    let server = server();
    let hour = std::time::Duration::from_secs(3600);
    create(&server, Kind::Event, map("first")).await;
    create(&server, Kind::Event, map("renewed")).await;
    tokio::time::sleep(hour / 2).await;
    let patch = crate::lab::api::Patch::Merge(json!({"count": 2}));
    let options = WriteOptions::default();
    server
        .patch(Kind::Event, "default", "renewed", &patch, &options)
        .await
        .unwrap();
    tokio::time::sleep(hour / 2).await;
    create(&server, Kind::Event, map("last")).await;
    assert!(server.get(Kind::Event, "default", "first").is_err());
    assert_eq!(server.count(Kind::Event), 2);
}
