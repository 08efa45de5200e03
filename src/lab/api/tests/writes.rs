//! Create, update, patch, binding.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, Patch as KubePatch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::{client, code, pod, running_pod, server, status, typed_pod};
use crate::lab::api::{Kind, Patch, Server, WriteOptions};

fn node_pools(server: &Server) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool");
    Api::all_with(client(server), &ApiResource::from_gvk(&gvk))
}

fn node_pool() -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "general"},
        "spec": {"weight": 1},
        "status": {"nodes": 3},
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn create_fills_in_what_the_api_server_does_and_refuses_a_taken_name() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    let made = pods
        .create(&PostParams::default(), &typed_pod("a"))
        .await
        .unwrap();
    let spec = made.spec.unwrap();
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
    assert!(made.metadata.uid.is_some());
    let created = made.metadata.creation_timestamp.unwrap();
    assert_eq!(created.0.to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    assert_eq!(spec.priority, Some(0));
    let state = made.status.unwrap();
    assert_eq!(state.phase.as_deref(), Some("Pending"));
    assert_eq!(state.qos_class.as_deref(), Some("BestEffort"));

    let again = pods.create(&PostParams::default(), &typed_pod("a")).await;
    let refused = status(again.unwrap_err());
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (409, "AlreadyExists")
    );
    assert_eq!(refused.message, "pods \"a\" already exists");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_and_what_has_no_namespace_is_404() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    let missing = status(pods.get("a").await.unwrap_err());
    assert_eq!((missing.code, missing.reason.as_str()), (404, "NotFound"));
    let nowhere: Api<Pod> = Api::namespaced(client(&server), "nowhere");
    let refused = nowhere
        .create(&PostParams::default(), &typed_pod("a"))
        .await;
    let refused = status(refused.unwrap_err());
    assert_eq!(refused.code, 404);
    assert_eq!(refused.message, "namespaces \"nowhere\" not found");
}

#[tokio::test(start_paused = true)]
async fn bad_names_are_422_and_a_generated_name_takes_a_suffix() {
    let server = server();
    let options = WriteOptions::default();
    let refused = server
        .create(Kind::Pod, "default", pod("A_b"), &options)
        .await;
    assert_eq!(refused.unwrap_err().code, 422);
    let mut generated = pod("x");
    generated["metadata"] = json!({"generateName": "web-"});
    let made = server
        .create(Kind::Pod, "default", generated, &options)
        .await
        .unwrap();
    assert!(made.object.name().starts_with("web-"));
    assert_eq!(made.object.name().len(), "web-".len() + 5);
}

#[tokio::test(start_paused = true)]
async fn dry_run_stores_nothing() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let before = server.version();
    pods.create(&dry, &typed_pod("a")).await.unwrap();
    assert_eq!(server.version(), before);
    assert_eq!(code(&pods.get("a").await.unwrap_err()), 404);
}

#[tokio::test(start_paused = true)]
async fn an_update_of_an_old_version_conflicts_and_one_without_change_is_silent() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"a": "1"}})).unwrap();
    let first = maps.create(&PostParams::default(), &map).await.unwrap();
    let mut second = first.clone();
    second.data = Some([("a".to_owned(), "2".to_owned())].into());
    let second = maps
        .replace("m", &PostParams::default(), &second)
        .await
        .unwrap();
    assert_ne!(
        first.metadata.resource_version,
        second.metadata.resource_version
    );

    let stale = maps.replace("m", &PostParams::default(), &first).await;
    let refused = status(stale.unwrap_err());
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));

    let same = maps
        .replace("m", &PostParams::default(), &second)
        .await
        .unwrap();
    assert_eq!(
        same.metadata.resource_version,
        second.metadata.resource_version
    );
}

#[tokio::test(start_paused = true)]
async fn status_and_spec_are_written_apart_and_only_spec_counts_a_generation() {
    let server = server();
    let pools = node_pools(&server);
    let params = PostParams::default();
    let made = pools.create(&params, &node_pool()).await.unwrap();
    assert_eq!(made.data.get("status"), None);
    assert_eq!(made.metadata.generation, Some(1));

    let both = KubePatch::Merge(json!({"spec": {"weight": 2}, "status": {"nodes": 5}}));
    let patch = PatchParams::default();
    let spec_only = pools.patch("general", &patch, &both).await.unwrap();
    assert_eq!(spec_only.data["spec"]["weight"], 2);
    assert_eq!(spec_only.data.get("status"), None);
    assert_eq!(spec_only.metadata.generation, Some(2));

    let both = KubePatch::Merge(json!({"spec": {"weight": 3}, "status": {"nodes": 6}}));
    let status_only = pools.patch_status("general", &patch, &both).await.unwrap();
    assert_eq!(status_only.data["spec"]["weight"], 2);
    assert_eq!(status_only.data["status"]["nodes"], 6);
    assert_eq!(status_only.metadata.generation, Some(2));

    let stale = KubePatch::Merge(json!({
        "metadata": {"resourceVersion": made.metadata.resource_version},
        "status": {"nodes": 7},
    }));
    let refused = pools.patch_status("general", &patch, &stale).await;
    assert_eq!(code(&refused.unwrap_err()), 409);

    let mut unversioned = status_only.clone();
    unversioned.metadata.resource_version = None;
    let refused = pools.replace("general", &params, &unversioned).await;
    assert_eq!(code(&refused.unwrap_err()), 422);
}

#[tokio::test(start_paused = true)]
async fn json_patch_tests_and_changes() {
    let server = server();
    let nodes: Api<Node> = Api::all(client(&server));
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n", "finalizers": ["a", "b"]},
        "status": {"phase": "Pending"},
    }))
    .unwrap();
    let made = nodes.create(&PostParams::default(), &node).await.unwrap();
    assert!(made.status.is_some(), "a kubelet registers with a status");
    let patch = |test: &str| -> KubePatch<()> {
        let operations = json!([
            {"op": "test", "path": "/metadata/finalizers/0", "value": test},
            {"op": "remove", "path": "/metadata/finalizers/0"},
        ]);
        KubePatch::Json(serde_json::from_value(operations).unwrap())
    };
    let params = PatchParams::default();
    let refused = nodes.patch("n", &params, &patch("b")).await;
    assert_eq!(code(&refused.unwrap_err()), 422);
    let patched = nodes.patch("n", &params, &patch("a")).await.unwrap();
    assert_eq!(patched.metadata.finalizers, Some(vec!["b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn apply_creates_and_then_merges() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server));
    let params = PatchParams::apply("test").force();
    for (key, expected) in [("a", 1), ("b", 2)] {
        let map = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "m"},
            "data": {key: "x"},
        });
        let applied = maps
            .patch("m", &params, &KubePatch::Apply(&map))
            .await
            .unwrap();
        assert_eq!(applied.data.unwrap().len(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_manifest_finds_its_type_and_namespace() {
    let server = server();
    let options = WriteOptions::default();
    let manifest = |weight: u8| {
        json!({
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": "general"},
            "spec": {"weight": weight, "taints": [{"key": "a"}, {"key": "b"}]},
        })
    };
    let made = server.apply(manifest(1), &options).await.unwrap();
    assert!(made.created);
    let mut fewer = manifest(2);
    fewer["spec"]["taints"] = json!([{"key": "c"}]);
    let merged = server.apply(fewer, &options).await.unwrap();
    assert!(!merged.created);
    let expected = json!({"weight": 2, "taints": [{"key": "c"}]});
    assert_eq!(merged.object["spec"], expected);

    let applied = server.apply(pod("a"), &options).await.unwrap();
    assert_eq!(applied.object.namespace(), "default");
    let unknown = json!({"apiVersion": "v9", "kind": "Thing", "metadata": {"name": "x"}});
    let refused = server.apply(unknown, &options).await.unwrap_err();
    assert_eq!(
        refused.message,
        "no matches for kind \"Thing\" in version \"v9\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once_and_its_spec_then_stays() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(client(&server));
    let params = PostParams::default();
    pods.create(&params, &typed_pod("a")).await.unwrap();
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a"},
        "target": {"kind": "Node", "name": "n1"},
    });
    let bind = || pods.create_subresource::<_, Value>("binding", "a", &params, &binding);
    bind().await.unwrap();
    let bound = server.get(Kind::Pod, "default", "a").unwrap();
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound.condition("PodScheduled"), Some("True"));
    assert_eq!(code(&bind().await.unwrap_err()), 409);

    let moved = Patch::Merge(json!({"spec": {"nodeName": "n2"}}));
    let refused = server
        .patch(Kind::Pod, "default", "a", &moved, &WriteOptions::default())
        .await;
    assert_eq!(refused.unwrap_err().code, 422);
}

#[tokio::test(start_paused = true)]
async fn lists_select_by_label_and_field_across_namespaces() {
    let server = server();
    running_pod(&server, pod("a"), "n1").await;
    running_pod(&server, pod("b"), "n2").await;
    let mut other = pod("c");
    other["metadata"]["labels"] = json!({"app": "db"});
    let options = WriteOptions::default();
    server
        .create(Kind::Pod, "kube-system", other, &options)
        .await
        .unwrap();
    let pods: Api<Pod> = Api::all(client(&server));
    let names = |params: ListParams| {
        let pods = pods.clone();
        async move {
            let list = pods.list(&params).await.unwrap();
            let names = list.items.into_iter().map(|p| p.metadata.name.unwrap());
            names.collect::<Vec<_>>().join(",")
        }
    };
    let all = ListParams::default();
    assert_eq!(names(all.clone()).await, "a,b,c");
    assert_eq!(names(all.clone().labels("app in (web)")).await, "a,b");
    assert_eq!(names(all.clone().fields("spec.nodeName=n2")).await, "b");
    assert_eq!(names(all.clone().fields("spec.nodeName=")).await, "c");
    assert_eq!(names(all.fields("status.phase!=Running")).await, "c");
    let on_node: Vec<_> = server.pods_on_node("n1");
    assert_eq!(on_node.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_calls_with_the_same_seed_give_the_same_cluster() {
    async fn history() -> String {
        let server = server();
        for name in ["b", "a"] {
            running_pod(&server, pod(name), "n1").await;
        }
        let mut generated = pod("x");
        generated["metadata"] = json!({"generateName": "web-"});
        let options = WriteOptions::default();
        server
            .create(Kind::Pod, "default", generated, &options)
            .await
            .unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let gone = Default::default();
        server
            .delete(Kind::Pod, "default", "b", &gone)
            .await
            .unwrap();
        server.dump().to_string()
    }
    let first = history().await;
    assert_eq!(first, history().await);
    assert!(
        first.contains("2026-01-01T00:00:35Z"),
        "5 s + 30 s of grace"
    );
}
