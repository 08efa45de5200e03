//! Admission, schema rules, faults, the recorder, the version.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use serde_json::{Value, json};
use tower::Service as _;

use super::{client, pod, server};
use crate::lab::api::{
    Admission, ApiError, CustomResourceRules, DeleteOptions, FieldValidation, Kind, Patch, Phase,
    Server, WriteOptions, service,
};

/// A webhook that sets a weight where there is none, denies weights over 100, and keeps what it was sent.
#[derive(Default)]
struct Weights {
    seen: Mutex<Vec<(Phase, Value)>>,
}

impl Admission for Weights {
    fn review(&self, phase: Phase, review: Value) -> BoxFuture<'_, Result<Value, String>> {
        let request = review["request"].clone();
        self.seen.lock().unwrap().push((phase, request.clone()));
        let mut response = json!({"uid": request["uid"], "allowed": true});
        let weight = &request["object"]["spec"]["weight"];
        if phase == Phase::Mutate && weight.is_null() {
            let patch = json!([{"op": "add", "path": "/spec/weight", "value": 10}]);
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(patch.to_string()));
            response["warnings"] = json!(["spec.weight: set to \"10\""]);
        }
        if phase == Phase::Validate && weight.as_i64() > Some(100) {
            response["allowed"] = json!(false);
            response["status"] =
                json!({"code": 422, "reason": "Invalid", "message": "spec.weight: at most 100"});
        }
        let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        async move { Ok(answer) }.boxed()
    }
}

fn pool(spec: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

async fn create(server: &Server, spec: Value) -> Result<super::super::Written, ApiError> {
    server
        .create(Kind::NodePool, "", pool(spec), &WriteOptions::default())
        .await
}

#[tokio::test(start_paused = true)]
async fn webhooks_see_requests_as_recorded_from_a_real_api_server() {
    let server = server();
    let webhook = Arc::new(Weights::default());
    server.set_admission(webhook.clone());
    let made = create(&server, json!({})).await.unwrap();
    assert_eq!(made.object["spec"]["weight"], 10);
    assert_eq!(made.warnings, ["spec.weight: set to \"10\""]);
    let patch = Patch::Merge(json!({"spec": {"weight": 20}}));
    let options = WriteOptions::default();
    server
        .patch(Kind::NodePool, "", "p", &patch, &options)
        .await
        .unwrap();
    let any = DeleteOptions::default();
    server.delete(Kind::NodePool, "", "p", &any).await.unwrap();

    let seen = webhook.seen.lock().unwrap();
    let calls: Vec<_> = seen
        .iter()
        .map(|(phase, request)| (*phase, request["operation"].as_str().unwrap()))
        .collect();
    let (mutate, validate) = (Phase::Mutate, Phase::Validate);
    assert_eq!(
        calls,
        [
            (mutate, "CREATE"),
            (validate, "CREATE"),
            (mutate, "UPDATE"),
            (validate, "UPDATE"),
            (validate, "DELETE")
        ]
    );
    let keys = |value: &Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    // The keys of shared fixture 007, an update.
    let expected = [
        "dryRun",
        "kind",
        "name",
        "object",
        "oldObject",
        "operation",
        "options",
        "requestKind",
        "requestResource",
        "resource",
        "uid",
        "userInfo",
    ];
    assert_eq!(keys(&seen[2].1), expected);
    assert_eq!(seen[0].1["oldObject"], Value::Null);
    assert_eq!(seen[0].1["object"]["metadata"]["uid"], Value::Null);
    assert_eq!(seen[1].1["object"]["metadata"]["generation"], 1);
    assert_eq!(seen[2].1["object"]["metadata"]["generation"], 1);
    assert_eq!(seen[3].1["object"]["metadata"]["generation"], 2);
    assert_eq!(seen[3].1["oldObject"]["spec"]["weight"], 10);
    assert_eq!(seen[4].1["object"], Value::Null);
    let resource = json!({"group": "karpenter.sh", "version": "v1", "resource": "nodepools"});
    assert_eq!(seen[0].1["resource"], resource);
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_told_as_the_api_server_tells_it() {
    let server = server();
    server.set_admission(Arc::new(Weights::default()));
    let refused = create(&server, json!({"weight": 101})).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert_eq!(
        refused.message,
        "admission webhook \"validation.webhook.karpenter.sh\" denied the request: spec.weight: at most 100"
    );
    assert_eq!(server.count(Kind::NodePool), 0);
    // Other types are not reviewed.
    let options = WriteOptions::default();
    server
        .create(Kind::Pod, "default", pod("a"), &options)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn warnings_travel_as_headers() {
    let server = server();
    server.set_admission(Arc::new(Weights::default()));
    let body = serde_json::to_vec(&pool(json!({}))).unwrap();
    let request = Request::post("/apis/karpenter.sh/v1/nodepools")
        .body(kube::client::Body::from(body))
        .unwrap();
    let response = service(server).call(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    assert_eq!(warnings, [r#"299 - "spec.weight: set to \"10\"""#]);
}

/// Knows `spec.weight` only, with default 1.
struct OneField;

impl CustomResourceRules for OneField {
    fn apply_defaults(&self, _: Kind, object: &mut Value) {
        let spec = object["spec"].as_object_mut().unwrap();
        spec.entry("weight").or_insert(json!(1));
    }

    fn prune(&self, _: Kind, object: &mut Value) -> Vec<String> {
        let spec = object["spec"].as_object_mut().unwrap();
        let unknown: Vec<String> = spec.keys().filter(|k| *k != "weight").cloned().collect();
        for key in &unknown {
            spec.remove(key);
        }
        unknown.iter().map(|key| format!("spec.{key}")).collect()
    }

    fn validate(&self, _: Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
        let changed = old.is_some_and(|old| old["spec"] != object["spec"]);
        let problem = changed.then(|| "spec.weight: Invalid value: immutable".to_owned());
        problem.into_iter().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn schemas_default_prune_and_refuse() {
    let server = server();
    server.set_custom_resource_rules(Arc::new(OneField));
    let strict = WriteOptions {
        field_validation: FieldValidation::Strict,
        ..WriteOptions::default()
    };
    let refused = server
        .create(Kind::NodePool, "", pool(json!({"wait": 1})), &strict)
        .await
        .unwrap_err();
    assert_eq!(refused.code, 400);
    assert!(refused.message.contains("unknown field \"spec.wait\""));

    let made = create(&server, json!({"wait": 1})).await.unwrap();
    assert_eq!(made.warnings, ["unknown field \"spec.wait\""]);
    assert_eq!(made.object["spec"], json!({"weight": 1}));

    let patch = Patch::Merge(json!({"spec": {"weight": 2}}));
    let refused = server
        .patch(Kind::NodePool, "", "p", &patch, &WriteOptions::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code, 422);
    assert_eq!(
        refused.message,
        "NodePool.karpenter.sh \"p\" is invalid: spec.weight: Invalid value: immutable"
    );
}

#[tokio::test(start_paused = true)]
async fn faults_refuse_http_writes_and_the_recorder_hears_all() {
    let server = server();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let record = heard.clone();
    server.set_recorder(Some(Arc::new(move |call, code| {
        let line = format!(
            "{} {} {} {code}",
            call.verb,
            call.kind.info().plural,
            call.name
        );
        record.lock().unwrap().push(line);
    })));
    server.set_fault(Some(Arc::new(|call| {
        (call.name == "a").then(|| ApiError::internal("etcdserver: request timed out"))
    })));
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
        kube::Api::default_namespaced(client(&server));
    pods.create(&Default::default(), &super::typed_pod("a"))
        .await
        .unwrap();
    pods.get("a").await.unwrap();
    let refused = pods.delete("a", &Default::default()).await.unwrap_err();
    assert_eq!(super::code(&refused), 500);
    let heard = heard.lock().unwrap();
    assert_eq!(
        *heard,
        ["create pods  201", "get pods a 200", "delete pods a 500"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_version_is_the_one_set() {
    let server = server();
    let info = client(&server).apiserver_version().await.unwrap();
    assert_eq!(
        (info.minor.as_str(), info.git_version.as_str()),
        ("32", "v1.32.0")
    );
    server.set_version("v1.33.1");
    let info = client(&server).apiserver_version().await.unwrap();
    assert_eq!((info.major.as_str(), info.minor.as_str()), ("1", "33"));
    let groups = client(&server).list_api_groups().await.unwrap();
    assert!(groups.groups.iter().any(|g| g.name == "karpenter.sh"));
}
